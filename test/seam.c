/* seam.c - see seam.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "seam.h"

#include <poll.h>
#include <stdlib.h>

/* ---- the path of a call ---- */

#define CALL(from, of, ...) \
  seam_call c = {.seam = (from), .kind = SEAM_##of, .name = #of, __VA_ARGS__}

/* Does the fault apply to this call?  Several threads may ask together. */
static bool fault_takes(seam_fault *f, const seam_call *c) {
  if (!__atomic_load_n(&f->times, __ATOMIC_RELAXED)) return false;
  if (f->opened_as && !(f->opened_as & c->opened_as)) return false;
  if (f->skip > 0 && __atomic_fetch_sub(&f->skip, 1, __ATOMIC_RELAXED) > 0)
    return false;
  if (f->times < 0) return true;
  return __atomic_fetch_sub(&f->times, 1, __ATOMIC_RELAXED) > 0;
}

/* Run the hooks and faults before a call.  Returns whether to make it. */
static bool enter(seam_call *c) {
  seam *s = c->seam;
  seam_fault *fault = &s->fail[c->kind];
  __atomic_fetch_add(&s->calls[c->kind], 1, __ATOMIC_RELAXED);
  if (s->each) s->each(c);
  if (!c->refused && fault_takes(fault, c)) seam_refuse(c, fault->result);
  if (!c->refused && s->before[c->kind]) s->before[c->kind](c);
  return !c->refused || c->kind == SEAM_close;
}

/* Count the descriptors and files that are open. */
static void count_open(const seam_call *c) {
  seam *s = c->seam;
  long more = 0;
  switch ((int)c->kind) {
    case SEAM_open:
    case SEAM_dup:
    case SEAM_poller:
    case SEAM_timer:
      more = c->result >= 0;
      break;
    case SEAM_pipe:
      more = c->result < 0 ? 0 : 2;
      break;
    case SEAM_close:
      more = -1;
      break;
    case SEAM_xOpen:
      __atomic_fetch_add(&s->files, c->result == SQLITE_OK, __ATOMIC_RELAXED);
      break;
    case SEAM_xClose:
      __atomic_fetch_sub(&s->files, 1, __ATOMIC_RELAXED);
      break;
  }
  if (more) __atomic_fetch_add(&s->descriptors, more, __ATOMIC_RELAXED);
}

/* Run the hook after a call, which returned `result` if it was made.  Returns
 * what its caller gets. */
static int64_t leave(seam_call *c, int64_t result) {
  if (!c->refused) c->result = result;
  count_open(c);
  if (c->seam->after[c->kind]) c->seam->after[c->kind](c);
  return c->result;
}

void seam_refuse(seam_call *c, int64_t result) {
  c->refused = true;
  c->result = result;
}

void seam_fail(seam *s, seam_kind kind, bool fails) {
  __atomic_store_n(&s->fail[kind].times, fails ? SEAM_ALWAYS : 0,
                   __ATOMIC_RELAXED);
}

bool seam_unlocks(const seam_call *c) {
  if (c->kind == SEAM_lock || c->kind == SEAM_lock_range)
    return c->how == ZKE_LOCK_NONE;
  return c->kind == SEAM_xShmLock && !(c->how & SQLITE_SHM_LOCK);
}

/* ---- time ---- */

static zke_os real; /* the library's own table, once a seam is used */

static void find_real(void) {
  if (!real.size) zke_os_default(&real);
}

int64_t seam_ahead, seam_apart[3];
static bool stands;
static int64_t stood[3]; /* where each clock was stopped */

static void pass_ns(int64_t ns) {
  __atomic_fetch_add(&seam_ahead, ns, __ATOMIC_SEQ_CST);
}

void seam_pass(int64_t ms) { pass_ns(ms * 1000000); }

void seam_stand(void) {
  if (stands) return;
  find_real();
  for (int i = 0; i < 3; i++)
    stood[i] = (real.clock(NULL, i) / 1000000 + 1) * 1000000;
  stands = true;
}

int64_t seam_clock(int which) {
  int64_t now = stands ? stood[which] : real.clock(NULL, which);
  return now + __atomic_load_n(&seam_ahead, __ATOMIC_SEQ_CST) +
         seam_apart[which];
}

static void sleep_by_clock(int64_t ns) {
  if (stands)
    pass_ns(ns);
  else
    real.sleep(NULL, ns);
}

static int poll_by_clock(const seam_call *c) {
  unsigned count = (unsigned)c->size;
  if (!stands) return real.poll(NULL, c->data, count, (int)c->time);
  int n = real.poll(NULL, c->data, count, 0);
  if (n == 0 && c->time > 0) seam_pass(c->time);
  return n;
}

/* The kernel's timer follows the kernel's clock. */
static int set_timer(const seam_call *c) {
  int64_t when = c->time && !stands ? c->time - seam_ahead : 0;
  return real.timer_set(NULL, c->fd, when);
}

/* ---- the table of system calls ---- */

#define ARGUMENT(pointer) ((void *)(uintptr_t)(pointer))

/* A member of the table: its parameters, the call below it, and what a hook
 * sees of it. */
#define OS(type, name, parameters, call, ...)       \
  static type os_##name parameters {                \
    CALL(context, name, __VA_ARGS__);               \
    return (type)leave(&c, enter(&c) ? (call) : 0); \
  }

OS(int, open, (void *context, const char *path, int flags, unsigned mode),
   real.open(NULL, c.path, c.how, mode), .path = path, .how = flags)
OS(int, close, (void *context, int fd), real.close(NULL, c.fd), .fd = fd)
OS(int, dup, (void *context, int fd), real.dup(NULL, c.fd), .fd = fd)
OS(int64_t, read, (void *context, int fd, void *buffer, size_t size),
   real.read(NULL, c.fd, c.data, c.size), .fd = fd, .data = buffer,
   .size = size)
OS(int64_t, write, (void *context, int fd, const void *buffer, size_t size),
   real.write(NULL, c.fd, c.data, c.size), .fd = fd, .data = ARGUMENT(buffer),
   .size = size)
OS(int64_t, pread,
   (void *context, int fd, void *buffer, size_t size, int64_t at),
   real.pread(NULL, c.fd, c.data, c.size, c.at), .fd = fd, .data = buffer,
   .size = size, .at = at)
OS(int64_t, pwrite,
   (void *context, int fd, const void *buffer, size_t size, int64_t at),
   real.pwrite(NULL, c.fd, c.data, c.size, c.at), .fd = fd,
   .data = ARGUMENT(buffer), .size = size, .at = at)
OS(int, stat, (void *context, const char *path, zke_file *out),
   real.stat(NULL, c.path, c.out), .path = path, .out = out)
OS(int, fstat, (void *context, int fd, zke_file *out),
   real.fstat(NULL, c.fd, c.out), .fd = fd, .out = out)
OS(int, fsync, (void *context, int fd), real.fsync(NULL, c.fd), .fd = fd)
OS(int, adopt,
   (void *context, int fd, unsigned mode, unsigned uid, unsigned gid),
   real.adopt(NULL, c.fd, mode, uid, gid), .fd = fd)
OS(int, mkdir, (void *context, const char *path, unsigned mode),
   real.mkdir(NULL, c.path, mode), .path = path)
OS(int, mkfifo, (void *context, const char *path, unsigned mode),
   real.mkfifo(NULL, c.path, mode), .path = path)
OS(int, mkfile, (void *context, const char *path, unsigned mode),
   real.mkfile(NULL, c.path, mode), .path = path)
OS(int, share, (void *context, const char *path, unsigned mode, unsigned gid),
   real.share(NULL, c.path, mode, gid), .path = path)
OS(int, unlink, (void *context, const char *path), real.unlink(NULL, c.path),
   .path = path)
OS(int, list,
   (void *context, const char *path, void (*entry)(void *, const char *),
    void *arg),
   real.list(NULL, c.path, entry, arg), .path = path)
OS(int, network, (void *context, const char *path), real.network(NULL, c.path),
   .path = path)
OS(int, pipe, (void *context, int fds[2]), real.pipe(NULL, fds), )
OS(int, lock, (void *context, int fd, int64_t offset, int how),
   real.lock(NULL, c.fd, c.at, c.how), .fd = fd, .at = offset, .how = how)
OS(int, lock_range,
   (void *context, int fd, int64_t from, int64_t count, int how),
   real.lock_range(NULL, c.fd, c.at, count, c.how), .fd = fd, .at = from,
   .how = how)
OS(int, probe, (void *context, int fd, int64_t offset),
   real.probe(NULL, c.fd, c.at), .fd = fd, .at = offset)
OS(int64_t, find_lock,
   (void *context, int fd, int64_t from, int64_t count, int64_t *count_out),
   real.find_lock(NULL, c.fd, c.at, count, count_out), .fd = fd, .at = from)
OS(int, poll,
   (void *context, struct pollfd *fds, unsigned count, int timeout_ms),
   poll_by_clock(&c), .data = fds, .size = count, .time = timeout_ms)
OS(int, poller, (void *context), real.poller(NULL), )
OS(int, poller_add, (void *context, int poller, int fd, int for_reading),
   real.poller_add(NULL, poller, c.fd, for_reading), .fd = fd)
OS(int, poller_remove, (void *context, int poller, int fd),
   real.poller_remove(NULL, poller, c.fd), .fd = fd)
OS(int, timer, (void *context), real.timer(NULL), )
OS(int, timer_set, (void *context, int fd, int64_t when_ns), set_timer(&c),
   .fd = fd, .time = when_ns)
OS(int64_t, clock, (void *context, int which), seam_clock(c.how), .how = which)

static void os_sleep(void *context, int64_t ns) {
  CALL(context, sleep, .time = ns);
  if (enter(&c)) sleep_by_clock(c.time);
  leave(&c, 0);
}

OS(int, random, (void *context, void *buffer, size_t size),
   real.random(NULL, c.data, c.size), .data = buffer, .size = size)
OS(int, boot_id, (void *context, char *buffer, size_t size),
   real.boot_id(NULL, c.data, c.size), .data = buffer, .size = size)
OS(int64_t, pid, (void *context), real.pid(NULL), )
OS(int, process_name, (void *context, char *buffer, size_t size),
   real.process_name(NULL, c.data, c.size), .data = buffer, .size = size)
OS(int, boot_offset, (void *context, int64_t *out),
   real.boot_offset(NULL, c.data), .data = out)

const zke_os *seam_os(seam *s) {
  find_real();
#define MEMBER(name) .name = os_##name,
  s->own_os =
      (zke_os){.size = sizeof(zke_os), .context = s, SEAM_OF_OS(MEMBER)};
  return &s->own_os;
}

int seam_type(int fd) {
  zke_file f = {0};
  return real.fstat(NULL, fd, &f) < 0 ? -1 : f.type;
}

/* ---- the VFS ---- */

typedef struct seam_file {
  sqlite3_file base;
  seam *seam;
  int opened_as;
  void *note;         /* of the test */
  sqlite3_file *real; /* lies after this structure */
} seam_file;

static sqlite3_vfs *under; /* the default VFS */

#define FILE_CALL(name, ...)                                    \
  seam_file *own = (seam_file *)f;                              \
  CALL(own->seam, name, .file = f, .opened_as = own->opened_as, \
       .own = &own->note, __VA_ARGS__)

/* A method of a file, like OS(). */
#define FILE_METHOD(name, parameters, arguments, ...)                       \
  static int file_##name parameters {                                       \
    FILE_CALL(name, __VA_ARGS__);                                           \
    sqlite3_file *below = own->real;                                        \
    return (int)leave(&c, enter(&c) ? below->pMethods->name arguments : 0); \
  }

FILE_METHOD(xClose, (sqlite3_file * f), (below), )
FILE_METHOD(xRead, (sqlite3_file * f, void *to, int size, sqlite3_int64 at),
            (below, c.data, (int)c.size, c.at), .data = to,
            .size = (size_t)size, .at = at)
FILE_METHOD(xWrite,
            (sqlite3_file * f, const void *from, int size, sqlite3_int64 at),
            (below, c.data, (int)c.size, c.at), .data = ARGUMENT(from),
            .size = (size_t)size, .at = at)
FILE_METHOD(xTruncate, (sqlite3_file * f, sqlite3_int64 size), (below, c.at),
            .at = size)
FILE_METHOD(xSync, (sqlite3_file * f, int flags), (below, c.how), .how = flags)
FILE_METHOD(xFileSize, (sqlite3_file * f, sqlite3_int64 *out), (below, c.data),
            .data = out)
FILE_METHOD(xLock, (sqlite3_file * f, int level), (below, c.how), .how = level)
FILE_METHOD(xUnlock, (sqlite3_file * f, int level), (below, c.how),
            .how = level)
FILE_METHOD(xCheckReservedLock, (sqlite3_file * f, int *out), (below, c.data),
            .data = out)
FILE_METHOD(xFileControl, (sqlite3_file * f, int op, void *arg),
            (below, c.how, c.data), .how = op, .data = arg)
FILE_METHOD(xSectorSize, (sqlite3_file * f), (below), )
FILE_METHOD(xDeviceCharacteristics, (sqlite3_file * f), (below), )
FILE_METHOD(xShmMap,
            (sqlite3_file * f, int page, int size, int extend,
             void volatile **out),
            (below, (int)c.at, size, extend, out), .at = page)
FILE_METHOD(xShmLock, (sqlite3_file * f, int offset, int n, int how),
            (below, (int)c.at, (int)c.size, c.how), .at = offset,
            .size = (size_t)n, .how = how)
FILE_METHOD(xShmUnmap, (sqlite3_file * f, int remove), (below, c.how),
            .how = remove)

static void file_xShmBarrier(sqlite3_file *f) {
  FILE_CALL(xShmBarrier, );
  if (enter(&c)) own->real->pMethods->xShmBarrier(own->real);
  leave(&c, SQLITE_OK);
}

/* No page is mapped, so each read is a call.  But SQLite also calls xUnfetch to
 * say that the database may have changed. */
static int file_xFetch(sqlite3_file *f, sqlite3_int64 at, int size,
                       void **out) {
  (void)f, (void)at, (void)size;
  *out = NULL;
  return SQLITE_OK;
}

static int file_xUnfetch(sqlite3_file *f, sqlite3_int64 at, void *page) {
  FILE_CALL(xUnfetch, .at = at);
  (void)page;
  enter(&c);
  return (int)leave(&c, SQLITE_OK);
}

/* A file's methods.  Those for shared memory came with version 2. */
#define METHOD(name) .name = file_##name,
#define METHODS(version) \
  { .iVersion = (version), .xFetch = file_xFetch, SEAM_OF_FILE(METHOD) }

static const sqlite3_io_methods methods = METHODS(3), no_shm = METHODS(1);

/* Open the file below.  It has methods if it must be closed. */
static int open_below(seam_file *own, const char *path, int flags, int *out) {
  int rc = under->xOpen(under, path, own->real, flags, out);
  if (own->real->pMethods)
    own->base.pMethods = own->seam->no_shm ? &no_shm : &methods;
  return rc;
}

/* A method of the VFS, like OS(). */
#define VFS_METHOD(name, parameters, call, ...)    \
  static int vfs_##name parameters {               \
    CALL(v->pAppData, name, __VA_ARGS__);          \
    return (int)leave(&c, enter(&c) ? (call) : 0); \
  }

VFS_METHOD(xDelete, (sqlite3_vfs * v, const char *path, int sync),
           under->xDelete(under, c.path, c.how), .path = path, .how = sync)
VFS_METHOD(xAccess, (sqlite3_vfs * v, const char *path, int flags, int *out),
           under->xAccess(under, c.path, c.how, c.data), .path = path,
           .how = flags, .data = out)
VFS_METHOD(xFullPathname,
           (sqlite3_vfs * v, const char *path, int size, char *out),
           under->xFullPathname(under, c.path, (int)c.size, c.data),
           .path = path, .size = (size_t)size, .data = out)
VFS_METHOD(xSleep, (sqlite3_vfs * v, int us),
           (sleep_by_clock(c.time * 1000), us), .time = us)

static int vfs_xOpen(sqlite3_vfs *v, const char *path, sqlite3_file *f,
                     int flags, int *out) {
  seam_file *own = (seam_file *)f;
  CALL(v->pAppData, xOpen, .file = f, .opened_as = flags, .own = &own->note,
       .path = path, .how = flags);
  *own = (seam_file){.seam = c.seam,
                     .opened_as = flags,
                     .real = (sqlite3_file *)(void *)(own + 1)};
  return (int)leave(&c, enter(&c) ? open_below(own, c.path, c.how, out) : 0);
}

const char *seam_vfs(seam *s) {
  if (s->own_vfs.zName) return s->vfs;
  find_real();
  under = sqlite3_vfs_find(NULL);
  s->own_vfs = *under;
  s->own_vfs.pNext = NULL;
  s->own_vfs.zName = s->vfs;
  s->own_vfs.pAppData = s;
  s->own_vfs.szOsFile += (int)sizeof(seam_file);
#define TAKE(name) s->own_vfs.name = vfs_##name;
  SEAM_OF_VFS(TAKE)
  if (sqlite3_vfs_register(&s->own_vfs, 0) != SQLITE_OK) abort();
  return s->vfs;
}
