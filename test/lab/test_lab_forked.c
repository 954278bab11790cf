/* test_lab_forked: test_lab with the laboratory that forks */
#define WITH_FORKS 1
#include "test_lab.c"
