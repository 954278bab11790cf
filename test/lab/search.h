/* search.h - which step comes next, and a finding made short */
#ifndef SEARCH_H
#define SEARCH_H

#include "world.h"

/* Run schedules until one fails, until nothing is left to try, or until the
 * time is over.  The world is open.  True: found; lab->taken are its steps. */
bool search_run(zke_lab *lab, bool *exhausted_out);

/* Drop what a failing schedule does not need. */
void search_shrink(zke_lab *lab);

/* Run these steps, skipping what is not possible, and then everybody to the
 * end.  True: it has failed.  lab->kept are the steps that were possible. */
bool search_replay(zke_lab *lab, const char *steps, int count);

/* After how many of these steps does all fail that can follow?  What follows is
 * tried by chance, SEARCH_ENDINGS times, without another fault. */
enum { SEARCH_ENDINGS = 64 };
int search_point_of_no_return(zke_lab *lab, const char *steps, int count);

/* A schedule as text: letters, repeated ones counted, a point and a check
 * number of what it does.  search_parse() returns how many steps, or -1. */
void search_print(const zke_lab *lab, const char *steps, int count, char *out,
                  size_t size);
int search_parse(const char *text, char *steps, unsigned *check_out);
unsigned search_check(const zke_lab *lab);

#endif
