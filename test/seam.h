/* seam.h - between the engine and the system, between SQLite and its files
 *
 * A seam is two tables through which calls pass: a zke_os over the library's
 * own, and an SQLite VFS over the default one.  A test opens its database with
 * them.  Then it can count calls, look at them, refuse them, and act before or
 * after them:
 *
 *     static void no_room(seam_call *c) {
 *       if (c->at >= LEASE_SLOTS_AT) seam_refuse(c, -ENOSPC);
 *     }
 *     static seam s = {.vfs = "disk", .before = {[SEAM_pwrite] = no_room}};
 *
 *     zke_options o = {
 *         .size = sizeof o, .os = seam_os(&s), .vfs = seam_vfs(&s)};
 *     ...
 *     s.fail[SEAM_xSync] = (seam_fault){SQLITE_IOERR_FSYNC, .times = 1};
 *
 * Handles that the test must tell apart have a seam each.  A hook may call the
 * library and SQLite.  Calls come from any thread.
 */
#ifndef ZKE_TEST_SEAM_H
#define ZKE_TEST_SEAM_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

/* The calls, by their names in zke_os, sqlite3_vfs and sqlite3_io_methods:
 * SEAM_open, SEAM_close ... SEAM_xUnfetch. */
/* clang-format off */
#define SEAM_OF_OS(X)                                                        \
  X(open) X(close) X(dup) X(read) X(write) X(pread) X(pwrite) X(stat)        \
  X(fstat) X(fsync) X(adopt) X(mkdir) X(mkfifo) X(mkfile) X(share) X(unlink) \
  X(list) X(network) X(pipe) X(lock) X(lock_range) X(probe) X(find_lock)     \
  X(poll) X(poller) X(poller_add) X(poller_remove) X(timer) X(timer_set)     \
  X(clock) X(sleep) X(random) X(boot_id) X(pid) X(process_name)              \
  X(boot_offset)
#define SEAM_OF_VFS(X)                                                       \
  X(xOpen) X(xDelete) X(xAccess) X(xFullPathname) X(xSleep)
#define SEAM_OF_FILE(X)                                                      \
  X(xClose) X(xRead) X(xWrite) X(xTruncate) X(xSync) X(xFileSize) X(xLock)   \
  X(xUnlock) X(xCheckReservedLock) X(xFileControl) X(xSectorSize)            \
  X(xDeviceCharacteristics) X(xShmMap) X(xShmLock) X(xShmBarrier)            \
  X(xShmUnmap) X(xUnfetch)
#define SEAM_KIND(name) SEAM_##name,
typedef enum seam_kind {
  SEAM_OF_OS(SEAM_KIND) SEAM_OF_VFS(SEAM_KIND) SEAM_OF_FILE(SEAM_KIND)
  SEAM_KINDS
} seam_kind;
/* clang-format on */

typedef struct seam seam;

/* One call.  It has the arguments of its function, under the names below; a
 * hook may change them. */
typedef struct seam_call {
  seam *seam;
  seam_kind kind;
  const char *name; /* of the kind: "pread" */
  const char *path;
  int fd;
  int how;       /* flags, a level, ZKE_LOCK_…, ZKE_CLOCK_…, an opcode */
  void *data;    /* what is read or written; where the answer is put */
  size_t size;   /* of the data; how many descriptors, how many locks */
  int64_t at;    /* the offset, the page, the new length */
  int64_t time;  /* of poll in ms, of xSleep in us, of others in ns */
  zke_file *out; /* of stat and fstat */

  sqlite3_file *file;
  int opened_as; /* the file's flags, such as SQLITE_OPEN_WAL */
  void **own;    /* the test's note on the file; NULL at first */

  bool refused;
  int64_t result; /* after the call */
} seam_call;

typedef void seam_hook(seam_call *c);

/* This many calls of a kind are refused, after `skip` that are not. */
typedef struct seam_fault {
  int64_t result; /* -errno, or SQLite's code */
  long skip;
  long times;    /* counted down; SEAM_ALWAYS */
  int opened_as; /* only calls on files with one of these flags; 0: all */
} seam_fault;

enum { SEAM_ALWAYS = -1 };

/* A call comes to each(), to its fault, and to the hook before its kind, until
 * one of them refuses it; if none does, it is made.  The hook after its kind
 * sees the result in any case, and may change it. */
struct seam {
  const char *vfs; /* the name of the VFS; set before seam_vfs() */
  void *context;   /* of the test */
  bool no_shm;     /* files cannot share memory, so SQLite has no WAL */
  seam_hook *each;
  seam_hook *before[SEAM_KINDS], *after[SEAM_KINDS];
  seam_fault fail[SEAM_KINDS];
  long calls[SEAM_KINDS]; /* so far, including refused ones */
  long descriptors;       /* opened by zke_os and not closed */
  long files;             /* likewise of the VFS */

  zke_os own_os;
  sqlite3_vfs own_vfs;
};

/* The table to open with.  seam_vfs() registers the VFS at the first call, and
 * returns its name. */
const zke_os *seam_os(seam *s);
const char *seam_vfs(seam *s);

/* For a hook before a call: do not make the call, but return this result.  (A
 * descriptor is closed all the same.) */
void seam_refuse(seam_call *c, int64_t result);

/* From now on every call of a kind fails with its fault's result, or none
 * does. */
void seam_fail(seam *s, seam_kind kind, bool fails);

/* Does the call release a lock?  The kernel never fails such a call. */
bool seam_unlocks(const seam_call *c);

/* The type of an open file: ZKE_FILE_… */
int seam_type(int fd);

/* The clocks of all seams are ahead of the kernel's by seam_ahead ns, and each
 * by seam_apart[ZKE_CLOCK_…] more.  seam_stand() stops them at the next full
 * millisecond, in children too.  Then a sleep or a poll returns immediately and
 * moves them forward, and no timer expires. */
extern int64_t seam_ahead, seam_apart[3];
void seam_pass(int64_t ms); /* moves them forward */
void seam_stand(void);
int64_t seam_clock(int which); /* its reading, ns */

#endif
