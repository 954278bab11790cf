/* keep.h - the changes of a schedule are undone: by the arena, or by fork()
 *
 * keep_arena.c: the world is in the arena, and is restored from a picture.
 * This takes microseconds.  libzkembed-lab.a does it.
 *
 * keep_fork.c: each schedule runs in its own process, forked when the world was
 * made.  This works wherever there are fork() and threads, and under sanitizers
 * and valgrind.  libzkembed-lab-forked.a does it.  Worlds have no pictures and
 * are not compared, so there is no going back within a schedule. */
#ifndef KEEP_H
#define KEEP_H

#include "lab.h"

extern const bool keep_has_pictures;

/* The finding for a process that runs and makes no call. */
#define KEEP_NO_CALL "goes on without a call, for as long as it is watched"

/* Lasting memory: nothing restores it, and forked processes share it.  Zeroed;
 * NULL: there is none. */
void *keep_alloc(size_t size);
void keep_free(void *at, size_t size); /* NULL is allowed */

/* Run fn; of all its changes only those in lasting memory stay.  Returns what
 * fn returns, with its sentence. */
typedef int (*keep_run_fn)(zke_lab *lab);
int keep_run(zke_lab *lab, keep_run_fn fn);

/* Begin with a world, and end it: in between, death by a signal is a
 * finding. */
bool keep_begin(zke_lab *lab);
void keep_end(zke_lab *lab);

/* Let SQLite take its memory from the world.  A result of zkembed.h. */
int keep_sqlite(void);

/* Run fn in the world as it was after it was made.  Returns what fn returns;
 * also true if fn ended the program, with the reason in lab->why. */
typedef bool (*keep_try_fn)(zke_lab *lab, void *arg);
bool keep_try(zke_lab *lab, keep_try_fn fn, void *arg);

/* A process of the world is continued, or has stopped.  In between it may run
 * for a second of processor time, or, in a schedule that is known to fail, for
 * a fifth of it. */
void keep_watch(zke_lab *lab, bool runs);

#endif
