/* vfs.c - see vfs.h */
#include "test/sim/vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/plan.h"

enum { SECTOR_BYTES = 4096, LONGEST_PATH = 100 };

/* The locks of the WAL-index that a writer and a checkpoint hold. */
enum { WRITERS = 0, CHECKPOINTS = 1 };

/* A handle.  It is in three lists: the file's, the WAL-index's, and the
 * process's. */
typedef struct vfs_file {
  sqlite3_file base;
  disk_node *n, *shm;
  struct vfs_file *next, *next_shm, *next_own;
  file_table *owner;
  int level; /* SQLITE_LOCK_… */
  int persist;
  int flags;
  unsigned shared, exclusive; /* locks of the WAL-index */
  bool sync_names;            /* at the next sync, as the file may be new */
  bool remove;                /* when it is closed */
  bool copies;                /* pages were copied and not yet synced, since */
  uint32_t copied; /* this many frames of the log were noted as copied */
  bool written;    /* since the last sync */
  bool untold;     /* a sync failed: Linux reports it once per description */
  bool inherited;  /* by a forked child */
  bool foreign;    /* another program's */
  bool only_reads; /* of a read-only handle */
  char path[DISK_PATH];
} handle;

/* SQLite's file object is the first part of ours. */
static handle *handle_of(sqlite3_file *f) { return (handle *)f; }

/* Note the call's errno, and return SQLite's code. */
static int fail(int error, int code) {
  sched_process *p = sched_self();
  if (p) p->error = error;
  return code;
}

/* Some VFSs do not sync directories (SQLITE_DISABLE_DIRSYNC). */
static bool forgets_names(void) { return the_plan.k.medium & 1; }

/* ---- the lists ---- */

/* Replace a handle in a list. */
#define REPLACE(first, member, h, by)                  \
  do {                                                 \
    handle **at_ = (first);                            \
    while (*at_ && *at_ != (h)) at_ = &(*at_)->member; \
    if (*at_) *at_ = (by);                             \
  } while (0)

/* Remove a handle from a list. */
#define UNLINK(first, member, h) REPLACE(first, member, h, (h)->member)

/* Remove the handle from the WAL-index; its locks there go with it. */
static void shm_drop(handle *h) {
  disk_node *n = h->shm;
  if (!n) return;
  UNLINK(&n->shm, next_shm, h);
  h->shm = NULL;
  h->shared = h->exclusive = 0;
  disk_settle(n);
}

/* Remove it from all lists: it is closed, or its process is dead. */
static void handle_drop(handle *h) {
  disk_node *n = h->n;
  shm_drop(h);
  UNLINK(&n->handles, next, h);
  UNLINK(&h->owner->handles, next_own, h);
  disk_settle(n);
}

/* Removes them in random order. */
bool vfs_reap_one(file_table *t) {
  int count = 0;
  for (const handle *h = t->handles; h; h = h->next_own) count++;
  if (!count) return false;
  int pick = (int)sim_random(SIM_KERNEL, (uint64_t)count);
  handle *h = t->handles;
  while (pick-- > 0) h = h->next_own;
  handle_drop(h);
  return true;
}

/* The parent's handle stays in the lists as a copy; the original's memory
 * belongs to the child, and has no locks. */
static void handle_forked(handle *h, file_table *parent, file_table *child) {
  handle *own = sim_zero(sizeof *own);
  *own = *h;
  REPLACE(&own->n->handles, next, h, own);
  if (own->shm) REPLACE(&own->shm->shm, next_shm, h, own);
  own->next_own = parent->handles;
  parent->handles = own;
  h->level = SQLITE_LOCK_NONE;
  h->shared = h->exclusive = 0;
  h->inherited = true;
  h->owner = child;
  h->next = h->n->handles;
  h->n->handles = h;
  h->next_own = child->handles;
  child->handles = h;
  if (!h->shm) return;
  h->next_shm = h->shm->shm;
  h->shm->shm = h;
}

/* The memory goes to the child, and the locks stay with the parent. */
void vfs_forked(file_table *parent, file_table *child) {
  handle *h = parent->handles, *next;
  parent->handles = NULL;
  for (; h; h = next) {
    next = h->next_own;
    handle_forked(h, parent, child);
  }
}

/* Has it a writing connection from before the fork? */
bool vfs_has_inherited(const file_table *t) {
  const int flags = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_READWRITE;
  for (const handle *h = t->handles; h; h = h->next_own)
    if (h->inherited && (h->flags & flags) == flags) return true;
  return false;
}

/* Does SQLite hold any lock on the file in the process? */
bool vfs_would_lose_locks(const disk_node *n) {
  for (const handle *h = sched_self()->files->handles; h; h = h->next_own)
    if ((h->n == n && h->level) || h->shm == n) return true;
  return false;
}

/* ---- reading and writing ---- */

/* Closing drops its locks. */
static int io_close(sqlite3_file *f) {
  handle *h = handle_of(f);
  sched_step(CALL_dclose);
  if (h->remove && h->path[0]) disk_remove(h->path);
  handle_drop(h);
  return SQLITE_OK;
}

/* Is the process without the gate, the first byte of DATABASE-zke/gate?  Not
 * before that file exists, since no process can have the gate then. */
static bool lacks_gate(const handle *h) {
  char path[DISK_PATH];
  size_t len = strlen(h->path);
  if (h->flags & SQLITE_OPEN_WAL) len -= strlen("-wal");
  snprintf(path, sizeof path, "%.*s-zke/gate", (int)len, h->path);
  const disk_node *n = disk_find(path);
  if (!n || sched_self()->adrift) return false; /* it has another gate file */
  return !file_process_has_lock(sched_self(), n, 0);
}

/* The process's locks of the WAL-index; -1: it has not opened that. */
static int index_locks(const file_table *owner) {
  int locks = -1;
  for (const handle *o = owner->handles; o; o = o->next_own)
    if (o->shm)
      locks = (locks < 0 ? 0 : locks) | (int)(o->shared | o->exclusive);
  return locks;
}

/* The name of a read: one without locks, by a process that does not write, has
 * its own. */
static sim_call read_call(const handle *h) {
  bool locks = index_locks(h->owner) != 0 || !lacks_gate(h);
  return locks ? CALL_dread : CALL_lread;
}

/* The name of a file's sync: a checkpoint holds a lock of the WAL-index while
 * it syncs the log; a commit does not. */
static sim_call sync_call(const handle *h) {
  enum { CHECKPOINT = 1 << 1 };
  int locks = index_locks(h->owner);
  if (h->flags & SQLITE_OPEN_MAIN_DB) return CALL_dbsync;
  return locks > 0 && locks & CHECKPOINT ? CALL_cksync : CALL_dsync;
}

/* A short read is filled with zeros: SQLite relies on that. */
static int io_read(sqlite3_file *f, void *out, int size, sqlite3_int64 at) {
  int error = sched_step(read_call(handle_of(f)));
  if (error) return fail(error, SQLITE_IOERR_READ);
  int64_t got = disk_read(handle_of(f)->n, out, at, size);
  if (got == size) return SQLITE_OK;
  memset((char *)out + got, 0, (size_t)(size - got));
  return SQLITE_IOERR_SHORT_READ;
}

/* Whoever writes to the log, or to a database with a log, has the gate (P12):
 * the first byte of DATABASE-zke/gate.  Other programs do not know the gate, so
 * nothing is copied into the database while one of them writes. */
static void check_gate(const handle *h) {
  bool log = h->flags & SQLITE_OPEN_WAL;
  if (h->foreign || (!log && !(h->flags & SQLITE_OPEN_MAIN_DB && h->shm)))
    return;
  if (lacks_gate(h)) sim_found("P12: %s is written without the gate", h->path);
  for (const handle *o = log ? NULL : h->shm->shm; o; o = o->next_shm)
    if (o->foreign && o->exclusive & 1u << WRITERS)
      sim_found("P12: %s is written beside a writer of the log", h->path);
}

/* How many frames of the log are noted as copied: nBackfill of the WAL-index,
 * which comes after two copies of its header. */
static uint32_t frames_copied(const handle *h) {
  uint32_t n = 0;
  if (h->shm->regions) memcpy(&n, (char *)h->shm->region[0] + 96, sizeof n);
  return n;
}

/* A page of the log is written to the database. */
static void note_copy(handle *h) {
  if (!(h->flags & SQLITE_OPEN_MAIN_DB) || !h->shm || h->copies) return;
  h->copies = true;
  h->copied = frames_copied(h);
}

/* A checkpoint releases its lock: pages noted as copied are not written again,
 * so they must have been synced before (P8). */
static void check_copies(handle *h) {
  if (h->copies && !h->foreign && frames_copied(h) > h->copied)
    sim_found("P8: pages are noted as copied into %s without a sync", h->path);
  h->copies = false;
}

/* A rollback journal gets its page count, in 12 bytes at its head, after its
 * pages are synced.  Otherwise a power cut could leave the count and lose a
 * page, and the damaged database would look intact (P8). */
static void check_journal(handle *h, int size) {
  bool counts = h->flags & SQLITE_OPEN_MAIN_JOURNAL && size == 12;
  if (counts && h->written && !h->foreign)
    sim_found("P8: %s counts pages that are not synced", h->path);
  h->written = true;
}

/* The process dies inside the write: some of its pages arrive.  Linux checks
 * for a signal between two pages. */
static void die_writing(handle *h, const void *data, int size, int64_t at) {
  int64_t part = (int64_t)size * sched_torn() / 1000;
  part -= (at + part) % SECTOR_BYTES;
  disk_write(h->n, data, at, part);
  sched_die();
}

/* If a quota has no room for everything, the blocks for which it has room are
 * written.  Only a full disk has its own code in SQLite. */
static int write_some(handle *h, const void *data, int64_t at, int error) {
  if (error == ENOSPC) return fail(error, SQLITE_FULL);
  int64_t part = h->n->now.size + sim.quota_left - at;
  part -= (at + part) % SECTOR_BYTES;
  sim.quota_left = 0;
  disk_write(h->n, data, at, part);
  return fail(error, SQLITE_IOERR_WRITE);
}

/* Everything, or an error and some of the sectors, or a death inside. */
static int io_write(sqlite3_file *f, const void *data, int size,
                    sqlite3_int64 at) {
  handle *h = handle_of(f);
  int error = sched_step(CALL_dwrite);
  check_gate(h);
  check_journal(h, size);
  note_copy(h);
  if (sim.verbose > 2)
    sim_say("  %d bytes at %lld of %s", size, (long long)at, h->path);
  if (sched_torn() > 0) die_writing(h, data, size, at);
  if (sim.now < sim.bad_until) error = EIO;
  if (error) {
    int64_t part = (int64_t)sim_random(SIM_DISK, (uint64_t)size);
    disk_write(h->n, data, at, part - (at + part) % 512);
    return fail(error, error == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE);
  }
  int64_t more = at + size - h->n->now.size;
  if ((error = disk_no_room(more))) return write_some(h, data, at, error);
  disk_write(h->n, data, at, size);
  return SQLITE_OK;
}

/* See disk_truncate(). */
static int io_truncate(sqlite3_file *f, sqlite3_int64 size) {
  int error = sched_step(CALL_dtruncate);
  if (error) return fail(error, SQLITE_IOERR_TRUNCATE);
  disk_truncate(handle_of(f)->n, size);
  return SQLITE_OK;
}

/* As systems report it: what a failed sync should have written counts as
 * written from then on, and each open description is told once, or only the one
 * that asked.  Syncs of other programs do not fail: the engine would not learn
 * of that, and promises nothing then.  For the same reason a failed sync of a
 * read-only handle is reported to all. */
static int io_sync(sqlite3_file *f, int flags) {
  handle *h = handle_of(f);
  int error = sched_step(sync_call(h));
  int64_t mark = disk_mark();
  (void)flags;
  if (sched_torn() > 0) {
    disk_sync_part(h->n, mark, sched_torn());
    sched_die();
  }
  sched_wait_until(sim.now + disk_sync_ns(), NULL, 0);
  sched_step(CALL_dsynced);
  if (sim.now < sim.bad_until) error = EIO;
  if (h->foreign) error = 0, h->untold = false;
  if (sim.verbose > 2) sim_say("  sync of %s: %d", h->path, error);
  disk_sync(h->n, mark, error != 0);
  for (handle *o = h->n->handles; o && error; o = o->next)
    o->untold |= o == h || !(the_plan.k.medium & 4) || h->only_reads;
  if (h->untold) {
    h->untold = false;
    sim_error(sim.now);
    sim_fault(sim.now);
    sim_say("a sync reports an error");
    return fail(EIO, SQLITE_IOERR_FSYNC);
  }
  if (h->sync_names) disk_sync_parent(h->path);
  h->sync_names = h->copies = h->written = false;
  return SQLITE_OK;
}

/* The size that processes see.  SQLite's own VFS treats a file of one byte as
 * empty. */
static int io_size(sqlite3_file *f, sqlite3_int64 *out) {
  int error = sched_step(CALL_dsize);
  if (error) return fail(error, SQLITE_IOERR_FSTAT);
  *out = handle_of(f)->n->now.size;
  if (*out == 1) *out = 0;
  return SQLITE_OK;
}

/* ---- the locks of the database ---- */

/* The highest lock of any other handle, or of one of the same process. */
static int others_level(const handle *h, bool same) {
  int level = SQLITE_LOCK_NONE;
  for (const handle *o = h->n->handles; o; o = o->next)
    if (o != h && o->level > level && (!same || o->owner == h->owner))
      level = o->level;
  return level;
}

/* Is SHARED possible?  A process that has it, or RESERVED, has it for all of
 * its handles. */
static bool may_share(const handle *h) {
  int own = others_level(h, true);
  return own == SQLITE_LOCK_SHARED || own == SQLITE_LOCK_RESERVED ||
         others_level(h, false) < SQLITE_LOCK_PENDING;
}

/* SQLite's levels: many SHARED, together with one RESERVED; then PENDING, which
 * admits no new readers; then EXCLUSIVE.  A refused EXCLUSIVE leaves PENDING,
 * unless it was requested without RESERVED, as for a hot journal. */
static int io_lock(sqlite3_file *f, int level) {
  handle *h = handle_of(f);
  int error = sched_step(CALL_dlock);
  if (error) return fail(error, SQLITE_IOERR_LOCK);
  if (h->level >= level) return SQLITE_OK;
  int others = others_level(h, false);
  if (level == SQLITE_LOCK_SHARED && !may_share(h)) return SQLITE_BUSY;
  if (level == SQLITE_LOCK_RESERVED && others >= SQLITE_LOCK_RESERVED)
    return SQLITE_BUSY;
  if (level == SQLITE_LOCK_EXCLUSIVE) {
    if (h->level == SQLITE_LOCK_RESERVED) h->level = SQLITE_LOCK_PENDING;
    if (others >= SQLITE_LOCK_SHARED) return SQLITE_BUSY;
  }
  h->level = level;
  return SQLITE_OK;
}

/* Down to SHARED or NONE. */
static int io_unlock(sqlite3_file *f, int level) {
  handle *h = handle_of(f);
  sched_step(CALL_dunlock);
  if (h->level > level) h->level = level;
  return SQLITE_OK;
}

/* Is a process writing, or about to? */
static int io_reserved(sqlite3_file *f, int *out) {
  const handle *h = handle_of(f);
  sched_step(CALL_dreserved);
  *out = h->level >= SQLITE_LOCK_RESERVED ||
         others_level(h, false) >= SQLITE_LOCK_RESERVED;
  return SQLITE_OK;
}

/* What SQLite or the engine asks for; other requests are unknown. */
static int io_control(sqlite3_file *f, int op, void *arg) {
  handle *h = handle_of(f);
  int *number = arg;
  switch (op) {
    case SQLITE_FCNTL_PERSIST_WAL:
      if (*number >= 0) h->persist = *number != 0;
      *number = h->persist;
      return SQLITE_OK;
    case SQLITE_FCNTL_LAST_ERRNO:
      *number = sched_self()->error;
      return SQLITE_OK;
    case SQLITE_FCNTL_SIZE_HINT:
      return SQLITE_OK;
    case SQLITE_FCNTL_HAS_MOVED:
      *number = disk_find(h->path) != h->n;
      return SQLITE_OK;
    default:
      return SQLITE_NOTFOUND;
  }
}

/* As SQLite's own VFS reports for Linux. */
static int io_sector(sqlite3_file *f) {
  (void)f;
  return SECTOR_BYTES;
}

/* A write does not change bytes outside its range, even if the power fails. */
static int io_device(sqlite3_file *f) {
  (void)f;
  return the_plan.k.medium & 2 ? 0 : SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* ---- the WAL-index ---- */

/* DATABASE-shm. */
static void shm_path(const handle *h, char out[DISK_PATH]) {
  snprintf(out, DISK_PATH, "%.*s-shm", DISK_PATH - 5, h->path);
}

/* The WAL-index that another handle of the process uses for the same database,
 * or NULL: the name may be gone, or lead to another file. */
static disk_node *shm_of_process(const handle *h) {
  for (const handle *o = h->n->handles; o; o = o->next)
    if (o->owner == h->owner && o->shm) return o->shm;
  return NULL;
}

/* Open the -shm file; a process that finds it unused empties it. */
static int shm_open_file(handle *h) {
  char path[DISK_PATH];
  shm_path(h, path);
  disk_node *n = shm_of_process(h);
  if (!n) n = disk_find(path);
  int error = n ? 0 : disk_no_room(DISK_NAME);
  if (error) return fail(error, SQLITE_CANTOPEN);
  if (!n) n = disk_add(path, DISK_FILE, h->n->mode);
  if (!n->shm) {
    for (int i = 0; i < n->regions; i++) free(n->region[i]);
    n->regions = 0;
    disk_set_size(n, 3);
  }
  h->shm = n;
  h->next_shm = n->shm;
  n->shm = h;
  return SQLITE_OK;
}

/* Regions are memory of the simulation, visible to all processes.  They belong
 * to the file.  The first process to open it again discards them. */
static int io_shm_map(sqlite3_file *f, int region, int size, int extend,
                      void volatile **out) {
  handle *h = handle_of(f);
  int error = sched_step(CALL_shmmap);
  *out = NULL;
  if (error) return fail(error, SQLITE_IOERR_SHMMAP);
  int rc = h->shm ? SQLITE_OK : shm_open_file(h);
  if (rc != SQLITE_OK) return rc;
  disk_node *n = h->shm;
  if (region >= n->regions && !extend) return SQLITE_OK;
  if (region >= DISK_REGIONS) return fail(EFBIG, SQLITE_IOERR_SHMSIZE);
  while (n->regions <= region) {
    if ((error = disk_no_room(size))) return fail(error, SQLITE_IOERR_SHMSIZE);
    n->region[n->regions++] = sim_zero((size_t)size);
    disk_set_size(n, (int64_t)n->regions * size);
  }
  *out = n->region[region];
  return SQLITE_OK;
}

/* Locks of the WAL-index: shared or exclusive, a mask of eight. */
static int io_shm_lock(sqlite3_file *f, int first, int count, int flags) {
  handle *h = handle_of(f);
  bool unlocks = flags & SQLITE_SHM_UNLOCK;
  unsigned mask = ((1u << count) - 1) << first;
  int error = sched_step(unlocks ? CALL_shmunlock : CALL_shmlock);
  if (!h->shm || error) return fail(error, SQLITE_IOERR_SHMLOCK);
  if (unlocks) {
    if (h->exclusive & mask & 1u << CHECKPOINTS) check_copies(h);
    h->shared &= ~mask;
    h->exclusive &= ~mask;
    return SQLITE_OK;
  }
  for (const handle *o = h->shm->shm; o; o = o->next_shm) {
    if (o == h) continue;
    unsigned theirs = o->exclusive;
    if (flags & SQLITE_SHM_EXCLUSIVE) theirs |= o->shared;
    if (theirs & mask) return SQLITE_BUSY;
  }
  if (flags & SQLITE_SHM_EXCLUSIVE)
    h->exclusive |= mask;
  else
    h->shared |= mask;
  return SQLITE_OK;
}

/* Needs no ordering, but another fiber may run here. */
static void io_shm_barrier(sqlite3_file *f) {
  (void)f;
  sched_step(CALL_barrier);
}

/* The process's last handle also removes the name if SQLite asks for that; it
 * has locked out all others. */
static int io_shm_unmap(sqlite3_file *f, int remove) {
  handle *h = handle_of(f);
  char path[DISK_PATH];
  sched_step(CALL_shmunmap);
  disk_node *n = h->shm;
  if (!n) return SQLITE_OK;
  shm_path(h, path);
  bool last = true;
  for (const handle *o = n->shm; o; o = o->next_shm)
    last &= o == h || o->owner != h->owner;
  if (remove && last && disk_find(path)) disk_remove(path);
  shm_drop(h);
  return SQLITE_OK;
}

static const sqlite3_io_methods methods = {.iVersion = 2,
                                           .xClose = io_close,
                                           .xRead = io_read,
                                           .xWrite = io_write,
                                           .xTruncate = io_truncate,
                                           .xSync = io_sync,
                                           .xFileSize = io_size,
                                           .xLock = io_lock,
                                           .xUnlock = io_unlock,
                                           .xCheckReservedLock = io_reserved,
                                           .xFileControl = io_control,
                                           .xSectorSize = io_sector,
                                           .xDeviceCharacteristics = io_device,
                                           .xShmMap = io_shm_map,
                                           .xShmLock = io_shm_lock,
                                           .xShmBarrier = io_shm_barrier,
                                           .xShmUnmap = io_shm_unmap};

/* ---- the VFS ---- */

/* SQLite creates a journal or a log with the mode of its database, which it
 * reads first, even if it creates none: that database's file, or NULL. */
static const disk_node *database_of(const char *path) {
  char database[DISK_PATH];
  snprintf(database, sizeof database, "%s", path);
  char *dash = strrchr(database, '-');
  if (dash) *dash = '\0';
  return disk_find(database);
}

/* The file to open, or NULL, with the errno in *error. */
static disk_node *open_node(const char *path, int flags, unsigned mode,
                            int *error) {
  disk_node *n = path ? disk_find(path) : NULL;
  bool create = flags & SQLITE_OPEN_CREATE;
  *error = 0;
  if (n && create && flags & SQLITE_OPEN_EXCLUSIVE) *error = EEXIST;
  if (n && n->type != DISK_FILE) *error = EISDIR;
  if (!n && path && (!create || !disk_parent_exists(path))) *error = ENOENT;
  if (!n && !*error) *error = disk_no_room(DISK_NAME);
  if (*error) return NULL;
  if (n) return n;
  return path ? disk_add(path, DISK_FILE, mode)
              : disk_anonymous(DISK_FILE, 0600);
}

/* Open a file, and create it if the flags say so.  A path of NULL is a file
 * without a name. */
static int vfs_open(sqlite3_vfs *v, const char *path, sqlite3_file *f,
                    int flags, int *flags_out) {
  const int synced =
      SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
  handle *h = handle_of(f);
  int error = sched_step(CALL_dopen);
  *h = (handle){.owner = sched_self()->files,
                .foreign = v->pAppData != NULL,
                .only_reads = sched_self()->only_reads};
  if (error) return fail(error, SQLITE_CANTOPEN);
  unsigned mode = 0644;
  if (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) {
    const disk_node *database = database_of(path);
    if (!database) return fail(ENOENT, SQLITE_IOERR_FSTAT);
    mode = database->mode;
  }
  h->n = open_node(path, flags, mode, &error);
  if (!h->n) return fail(error, SQLITE_CANTOPEN);
  h->base.pMethods = &methods;
  h->flags = flags;
  h->remove = flags & SQLITE_OPEN_DELETEONCLOSE;
  h->sync_names =
      flags & SQLITE_OPEN_CREATE && flags & synced && !forgets_names();
  if (path) snprintf(h->path, sizeof h->path, "%s", path);
  h->next = h->n->handles;
  h->n->handles = h;
  h->next_own = h->owner->handles;
  h->owner->handles = h;
  if (flags_out) *flags_out = flags;
  return SQLITE_OK;
}

/* Remove a name; with sync, durably. */
static int vfs_delete(sqlite3_vfs *v, const char *path, int sync) {
  int error = sched_step(CALL_ddelete);
  (void)v;
  if (!disk_find(path)) return fail(ENOENT, SQLITE_IOERR_DELETE_NOENT);
  if (error) return fail(error, SQLITE_IOERR_DELETE);
  disk_remove(path);
  if (!sync || forgets_names()) return SQLITE_OK;
  sched_wait_until(sim.now + disk_sync_ns(), NULL, 0);
  sched_step(CALL_synced);
  disk_sync_parent(path);
  return SQLITE_OK;
}

/* An empty file does not exist for SQLite, which checks for a journal with
 * this. */
static int vfs_access(sqlite3_vfs *v, const char *path, int flags, int *out) {
  (void)v;
  sched_step(CALL_daccess);
  const disk_node *n = disk_find(path);
  *out = n && (flags != SQLITE_ACCESS_EXISTS || n->now.size > 0);
  return SQLITE_OK;
}

/* All paths are absolute. */
static int vfs_full_path(sqlite3_vfs *v, const char *path, int size,
                         char *out) {
  (void)v;
  snprintf(out, (size_t)size, "%s", path);
  return SQLITE_OK;
}

/* For SQLite's salts of the log, and rowids. */
static int vfs_random(sqlite3_vfs *v, int size, char *out) {
  (void)v;
  for (int i = 0; i < size; i++) out[i] = (char)sim_random(SIM_KERNEL, 256);
  return size;
}

/* For busy handlers. */
static int vfs_sleep(sqlite3_vfs *v, int us) {
  (void)v;
  sched_step(CALL_dsleep);
  sched_wait_until(sim.now + us * INT64_C(1000), NULL, 0);
  return us;
}

/* In days, as SQLite expects. */
static int vfs_time(sqlite3_vfs *v, double *out) {
  (void)v;
  *out = 2460000.5 + (double)sim.now / 86400e9;
  return SQLITE_OK;
}

/* The errno that sqlite3_system_errno() returns. */
static int vfs_last_error(sqlite3_vfs *v, int size, char *out) {
  (void)v, (void)size, (void)out;
  return sched_self() ? sched_self()->error : 0;
}

const char *const vfs_name = "unix-simulated";
const char *const vfs_foreign_name = "unix-foreign";

/* It becomes the default, so that sqlite3_open() uses it, too. */
void vfs_register(void) {
  static sqlite3_vfs foreign, vfs = {.iVersion = 1,
                                     .szOsFile = sizeof(handle),
                                     .mxPathname = LONGEST_PATH,
                                     .zName = "unix-simulated",
                                     .xOpen = vfs_open,
                                     .xDelete = vfs_delete,
                                     .xAccess = vfs_access,
                                     .xFullPathname = vfs_full_path,
                                     .xRandomness = vfs_random,
                                     .xSleep = vfs_sleep,
                                     .xCurrentTime = vfs_time,
                                     .xGetLastError = vfs_last_error};
  foreign = vfs;
  foreign.zName = vfs_foreign_name;
  foreign.pAppData = &foreign;
  sqlite3_vfs_register(&vfs, 1);
  sqlite3_vfs_register(&foreign, 0);
}
