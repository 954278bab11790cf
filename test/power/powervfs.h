/* powervfs.h - a disk that loses unsynced changes at a power cut
 *
 * An SQLite VFS, "power", over the default one.  The files of one directory are
 * modelled: each has a durable content and the changes made since its last
 * sync, and so do the directory's names.  Reads, locks and shared memory go to
 * the real files, which get every change immediately; no real sync is made.  At
 * any moment power_image() writes a state that could be found after a cut: the
 * durable contents with a random part of the changes, dropped, torn or in
 * another order.
 *
 * The assumptions about the disk are SQLite's: a sync is one, a write changes
 * no byte outside its range, and the bytes of a sector are not mixed.  A file
 * that was growing may have grown over zeros or rubbish.
 */
#ifndef ZKE_POWERVFS_H
#define ZKE_POWERVFS_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

/* How often a test of the checkers alone runs: it costs more than the tests it
 * is for, so only `make powerloss` runs it, and not `make test`. */
#define POWER_LONG (getenv("CUTS") ? 1 : (int)test_sample(1, 0))

/* What is about to happen to the disk.  A cut in a call of the hook comes
 * before the event; all events but the last change what a cut can leave. */
typedef enum power_event {
  POWER_WRITE,
  POWER_TRUNCATE,
  POWER_SYNC,
  POWER_CREATE,
  POWER_DELETE,
  POWER_SYNC_NAMES,
  POWER_PUBLISH /* the log's write lock is released: a commit is visible */
} power_event;

typedef void (*power_hook)(power_event event);

/* Model this directory from now on; its present files, except -shm files, are
 * durable.  The hook, if any, is called before each event. */
void power_begin(const char *directory, power_hook hook);

/* Set the table of system calls for the machine with this disk.  Its one
 * process has the number 1000, files' inodes follow from their names, so a run
 * can be repeated, and fsync() of a directory syncs its names.  All else is
 * Linux's. */
void power_machine(zke_os *os);

/* The side directory next to the database, which is never synced, is lost: what
 * is made there from now on has other inodes. */
void power_lose_side(void);

/* No change of this file has ever been synced: another process wrote it and
 * died. */
void power_doubt(const char *name);

/* Make the file's next `syncs` syncs fail.  Their data reaches the disk only if
 * it is written again: the system takes it for written. */
void power_fail(const char *name, int syncs);

/* How many have failed since. */
int power_failed(void);

/* Writes to this file since its last sync. */
int power_unsynced(const char *name);

/* Names made or deleted since the directory's last sync. */
int power_unsynced_names(void);

/* The effect of a cut on a file's changes since its last sync. */
typedef enum power_style {
  POWER_NONE,    /* all are lost */
  POWER_PREFIX,  /* all files stop at one moment, in the middle of a write */
  POWER_ZEROS,   /* all are lost, but files have grown, over zeros */
  POWER_RUBBISH, /* or over rubbish */
  POWER_ALL,     /* all arrive */
  POWER_SUBSET,  /* each arrives, is lost or torn, in order */
  POWER_SHUFFLE, /* the same in any order */
  POWER_SECTORS, /* each sector of each arrives or is lost */
  POWER_STYLES
} power_style;

typedef struct power_loss {
  long kept, lost, torn, reordered; /* changes */
} power_loss;

/* Write a state that a cut now could leave into another, empty directory.  The
 * same number in *random gives the same state. */
void power_image(const char *directory, power_style style, uint64_t *random,
                 power_loss *loss);

/* The next pseudo-random number below a limit, determined by the state
 * (splitmix64). */
uint64_t power_random(uint64_t *state, uint64_t limit);

#endif
