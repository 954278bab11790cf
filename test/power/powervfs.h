/* powervfs.h - a disk that a power cut robs of what was not synced
 *
 * An SQLite VFS, "power", over the default one.  The files of one directory
 * are modelled: each has a durable content and the changes made since its last
 * sync, and so has the directory for its names.  Reads, locks and shared
 * memory go to the real files, which have everything at once; no real sync is
 * made.  At any moment power_image() writes what could be found after a cut:
 * the durable contents with a random part of the changes, dropped, torn or in
 * another order.
 *
 * What is assumed of the disk is what SQLite assumes: a sync is one, a write
 * changes no byte outside of its range, the bytes of a sector are not mixed.
 * A file that was growing may have grown over zeros or rubbish.
 */
#ifndef ZKE_POWERVFS_H
#define ZKE_POWERVFS_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

/* How often a test runs that looks at the checkers alone: it costs more than
 * those that they are for, so `make test` leaves it to `make powerloss`. */
#define POWER_LONG (getenv("CUTS") ? 1 : (int)test_sample(1, 0))

/* What is about to happen to the disk.  A cut in a call of the hook is one
 * before it; all but the last change what a cut can leave. */
typedef enum power_event {
  POWER_WRITE,
  POWER_TRUNCATE,
  POWER_SYNC,
  POWER_CREATE,
  POWER_DELETE,
  POWER_SYNC_NAMES,
  POWER_PUBLISH /* the log's write lock is let go: a commit is visible */
} power_event;

typedef void (*power_hook)(power_event event);

/* Model this directory from now on; what lies in it, but for -shm files and
 * directories, is durable.  The hook, or none, is called before each event. */
void power_begin(const char *directory, power_hook hook);

/* Set the table of system calls of the machine that has this disk.  Its one
 * process has the number 1000, the inodes of files follow from their names, so
 * that a run can be repeated, and fsync() of a directory syncs its names.  All
 * else is Linux's. */
void power_machine(zke_os *os);

/* The directory beside the database, in which nothing is ever synced, is gone:
 * what is made in it from now on has other inodes. */
void power_lose_side(void);

/* Nothing that lies in the file of that name has ever been synced: another
 * process wrote it and died. */
void power_doubt(const char *name);

/* The next syncs of the file of that name fail, so many.  What they should have
 * written never comes to the disk unless it is written again: the system takes
 * it for written. */
void power_fail(const char *name, int syncs);

/* How many have failed since. */
int power_failed(void);

/* Writes to the file of that name since its last sync. */
int power_unsynced(const char *name);

/* Names made or deleted since the directory's last sync. */
int power_unsynced_names(void);

/* What a cut does to the changes of a file since its last sync. */
typedef enum power_style {
  POWER_NONE,    /* all are lost */
  POWER_PREFIX,  /* all files stop at one moment, in the middle of a write */
  POWER_ZEROS,   /* all are lost, but files have grown, over zeros */
  POWER_RUBBISH, /* or over rubbish */
  POWER_ALL,     /* all are there */
  POWER_SUBSET,  /* each is there, lost or torn, in the order made */
  POWER_SHUFFLE, /* the same in any order */
  POWER_SECTORS, /* each sector of each is there or lost */
  POWER_STYLES
} power_style;

typedef struct power_loss {
  long kept, lost, torn, reordered; /* changes */
} power_loss;

/* Write into another, empty directory what a cut now could leave.  The same
 * number in *random gives the same. */
void power_image(const char *directory, power_style style, uint64_t *random,
                 power_loss *loss);

/* The next pseudo-random number below a limit, of a sequence that its state
 * determines (splitmix64). */
uint64_t power_random(uint64_t *state, uint64_t limit);

#endif
