/* search.h - chooses the next step, and shortens a finding */
#ifndef SEARCH_H
#define SEARCH_H

#include "world.h"

/* Run schedules until one fails, nothing is left to try, or the time is over.
 * The world is open.  True: found; lab->taken are its steps. */
bool search_run(zke_lab *lab, bool *exhausted_out);

/* Remove what a failing schedule does not need. */
void search_shrink(zke_lab *lab);

/* Run these steps, skipping impossible ones, and then all processes to their
 * ends.  True: it has failed.  lab->kept are the steps that were possible. */
bool search_replay(zke_lab *lab, const char *steps, int count);

/* After how many of these steps does every continuation fail?  Continuations
 * are random, SEARCH_ENDINGS of them, without further faults. */
enum { SEARCH_ENDINGS = 64 };
int search_point_of_no_return(zke_lab *lab, const char *steps, int count);

/* A schedule as text: letters, repeated ones counted, a dot and a check number
 * of its effects.  search_parse() returns how many steps, or -1. */
void search_print(const zke_lab *lab, const char *steps, int count, char *out,
                  size_t size);
int search_parse(const char *text, char *steps, unsigned *check_out);
unsigned search_check(const zke_lab *lab);

#endif
