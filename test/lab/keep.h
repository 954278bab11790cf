/* keep.h - what a schedule changes is undone: by the arena, or by fork()
 *
 * keep_arena.c: the world lies in the arena, and is put back from a picture.
 * This takes microseconds and is what libzkembed-lab.a does.
 *
 * keep_fork.c: each schedule runs in a process of its own, forked off when the
 * world was made.  This works wherever there are fork() and threads, and under
 * sanitizers and valgrind, and is what libzkembed-lab-forked.a does.  Worlds
 * have no pictures and are not compared, so nothing can go back in the middle
 * of a schedule. */
#ifndef KEEP_H
#define KEEP_H

#include "lab.h"

extern const bool keep_has_pictures;

/* What is found of a process that goes on and makes no call. */
#define KEEP_NO_CALL "goes on without a call, for as long as it is watched"

/* Memory that lasts: nothing puts it back, and it is the same in a process
 * that was forked off.  Zeroed; NULL: there is none. */
void *keep_alloc(size_t size);
void keep_free(void *at, size_t size); /* NULL is allowed */

/* Run fn; of all that it changes only what lies in memory that lasts stays.
 * Returns what fn returns, with its sentence. */
typedef int (*keep_run_fn)(zke_lab *lab);
int keep_run(zke_lab *lab, keep_run_fn fn);

/* Begin with a world, and end it: between the two a death by a signal is a
 * finding. */
bool keep_begin(zke_lab *lab);
void keep_end(zke_lab *lab);

/* SQLite takes its memory so that it is kept.  A result of zkembed.h. */
int keep_sqlite(void);

/* Run fn in the world as it was when it was made.  Returns what fn returns;
 * true, too, where it ended the program, which lab->why then says. */
typedef bool (*keep_try_fn)(zke_lab *lab, void *arg);
bool keep_try(zke_lab *lab, keep_try_fn fn, void *arg);

#endif
