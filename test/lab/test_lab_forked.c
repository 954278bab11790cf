/* test_lab_forked: test_lab with the forking laboratory */
#define WITH_FORKS 1
#include "test_lab.c"
