/* os.c - see os.h; zkembed.h says what each member must do */
#include "test/sim/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/container.h"
#include "test/sim/plan.h"
#include "test/sim/vfs.h"
#include "test/sim/wait.h"

enum { UMASK = 022 };

/* ---- files and names ---- */

/* Never blocks: opening a FIFO for writing needs a reader. */
static int call_open(void *context, const char *path, int flags,
                     unsigned mode) {
  int error = sched_step(CALL_open);
  int access = flags & O_ACCMODE;
  disk_node *n = disk_find(path);
  (void)context;
  if (error == ENOSPC && !(flags & O_CREAT)) error = 0; /* it needs no room */
  if (error) return -error;
  if (n && (flags & O_CREAT) && (flags & O_EXCL)) return -EEXIST;
  if (!n) {
    if (!(flags & O_CREAT) || !disk_parent_exists(path))
      return disk_missing(path);
    if ((error = disk_no_room(DISK_NAME))) return -error;
    n = disk_add(path, DISK_FILE, mode & ~(unsigned)UMASK);
  }
  bool directory = n->type == DISK_DIRECTORY;
  if (flags & O_DIRECTORY && !directory) return -ENOTDIR;
  if (directory && (access != O_RDONLY || flags & O_CREAT)) return -EISDIR;
  if (n->type == DISK_PIPE && access == O_WRONLY && !n->readers) return -ENXIO;
  return file_open_node(n, access != O_WRONLY, access != O_RDONLY);
}

/* Closing any descriptor of a file drops SQLite's locks on it in that process:
 * POSIX locks belong to the process. */
static int call_close(void *context, int fd) {
  (void)context;
  sched_step(CALL_close);
  const disk_node *n = file_get(fd)->n;
  if (n && n->type == DISK_FILE && vfs_would_lose_locks(n))
    sim_found("P9: close() of a descriptor drops locks of SQLite's");
  file_close(fd);
  return 0;
}

/* It shares the description and its locks. */
static int call_dup(void *context, int fd) {
  int error = sched_step(CALL_dup);
  (void)context;
  return error ? -error : file_dup(fd);
}

/* Only a FIFO or a timer: the engine reads files by pread. */
static int64_t call_read(void *context, int fd, void *buffer, size_t size) {
  int error = sched_step(CALL_read);
  file_open *o = file_get(fd);
  (void)context;
  if (error) return -error;
  if (o->kind == FILE_TIMER) {
    const uint64_t once = 1;
    if (size < sizeof once) return -EINVAL;
    if (!wait_take_timer(o)) return -EAGAIN;
    memcpy(buffer, &once, sizeof once);
    return sizeof once;
  }
  if (!o->reads) return -EBADF;
  if (!o->n || o->n->type != DISK_PIPE) return -EINVAL;
  return file_fifo_read(o->n, buffer, size);
}

/* Only a FIFO, likewise. */
static int64_t call_write(void *context, int fd, const void *buffer,
                          size_t size) {
  int error = sched_step(CALL_write);
  const file_open *o = file_get(fd);
  (void)context;
  if (error) return -error;
  if (!o->n || o->n->type != DISK_PIPE || !o->writes) return -EBADF;
  return file_fifo_write(o->n, buffer, size);
}

/* What processes see, durable or not. */
static int64_t call_pread(void *context, int fd, void *buffer, size_t size,
                          int64_t at) {
  if (fd < 0) return -EBADF; /* a read-only handle without side files */
  int error = sched_step(CALL_pread);
  const file_open *o = file_get(fd);
  (void)context;
  if (error) return -error;
  return o->reads ? disk_read(o->n, buffer, at, (int64_t)size) : -EBADF;
}

/* If the disk is full, existing bytes can still be overwritten. */
static int64_t call_pwrite(void *context, int fd, const void *buffer,
                           size_t size, int64_t at) {
  if (fd < 0) return -EBADF;
  int error = sched_step(CALL_pwrite);
  const file_open *o = file_get(fd);
  disk_node *n = o->n;
  (void)context;
  if (error) return -error;
  if (!o->writes) return -EBADF;
  if ((error = disk_no_room(at + (int64_t)size - n->now.size))) return -error;
  disk_write(n, buffer, at, (int64_t)size);
  return (int64_t)size;
}

/* The results of stat and fstat.  With the knob `devices`, the disk has another
 * number after each boot. */
static void describe(zke_file *out, const disk_node *n) {
  static const int types[] = {[DISK_FILE] = ZKE_FILE_REGULAR,
                              [DISK_DIRECTORY] = ZKE_FILE_DIRECTORY,
                              [DISK_PIPE] = ZKE_FILE_FIFO};
  uint64_t device = the_plan.k.devices ? 1 + (uint64_t)sim.boots : 1;
  *out = (zke_file){.device = device,
                    .inode = n->inode,
                    .size = n->now.size,
                    .mode = n->mode,
                    .uid = n->uid,
                    .gid = n->gid,
                    .type = types[n->type],
                    .links = (unsigned)n->links,
                    .mount = 1};
}

/* There are no symbolic links. */
static int call_stat(void *context, const char *path, zke_file *out) {
  int error = sched_step(CALL_stat);
  const disk_node *n = disk_find(path);
  (void)context;
  if (error) return -error;
  if (!n) return disk_missing(path);
  describe(out, n);
  return 0;
}

/* Of a file; the engine does not use it for others. */
static int call_fstat(void *context, int fd, zke_file *out) {
  (void)context;
  sched_step(CALL_fstat);
  const disk_node *n = file_get(fd)->n;
  if (!n) return -EINVAL;
  describe(out, n);
  return 0;
}

/* Takes time, while others run.  What was written before it began becomes
 * durable. */
static int call_fsync(void *context, int fd) {
  int error = sched_step(CALL_fsync);
  disk_node *n = file_get(fd)->n;
  int64_t mark = disk_mark();
  (void)context;
  sched_wait_until(sim.now + disk_sync_ns(), NULL, 0);
  sched_step(CALL_synced);
  if (sim.now < sim.bad_until) error = EIO;
  if (n->type == DISK_FILE) disk_sync(n, mark, error != 0);
  if (n->type == DISK_DIRECTORY && !error) disk_sync_names(n);
  return -error;
}

/* As root, which may set owner and group. */
static int call_adopt(void *context, int fd, unsigned mode, unsigned uid,
                      unsigned gid) {
  (void)context;
  sched_step(CALL_adopt);
  disk_node *n = file_get(fd)->n;
  n->mode = mode;
  n->uid = uid;
  n->gid = gid;
  return 0;
}

/* By name, as root. */
static int call_share(void *context, const char *path, unsigned mode,
                      unsigned gid) {
  int error = sched_step(CALL_share);
  disk_node *n = disk_find(path);
  (void)context;
  if (error) return -error;
  if (!n) return disk_missing(path);
  n->mode = mode;
  n->gid = gid;
  return 0;
}

/* The common part of mkdir, mkfifo and mkfile. */
static int make(sim_call call, const char *path, disk_type type,
                unsigned mode) {
  int error = sched_step(call);
  if (error) return -error;
  if (disk_find(path)) return -EEXIST;
  if (!disk_parent_exists(path)) return disk_missing(path);
  if ((error = disk_no_room(DISK_NAME))) return -error;
  disk_add(path, type, mode & ~(unsigned)UMASK);
  return 0;
}

/* See make(). */
static int call_mkdir(void *context, const char *path, unsigned mode) {
  (void)context;
  return make(CALL_mkdir, path, DISK_DIRECTORY, mode);
}

/* See make(). */
static int call_mkfifo(void *context, const char *path, unsigned mode) {
  (void)context;
  return make(CALL_mkfifo, path, DISK_PIPE, mode);
}

/* See make(). */
static int call_mkfile(void *context, const char *path, unsigned mode) {
  (void)context;
  return make(CALL_mkfile, path, DISK_FILE, mode);
}

/* Processes that have the file open keep it. */
static int call_unlink(void *context, const char *path) {
  int error = sched_step(CALL_unlink);
  (void)context;
  if (error) return -error;
  const disk_node *n = disk_find(path);
  if (!n) return disk_missing(path);
  if (n->type == DISK_DIRECTORY) return -EISDIR;
  disk_remove(path);
  return 0;
}

/* Others may run between two names; they do not change the list. */
static int call_list(void *context, const char *path,
                     void (*entry)(void *, const char *), void *arg) {
  int error = sched_step(CALL_list);
  char(*names)[DISK_PATH];
  (void)context;
  if (error) return -error;
  const disk_node *n = disk_find(path);
  if (!n) return disk_missing(path);
  if (n->type != DISK_DIRECTORY) return -ENOTDIR;
  int count = disk_list(path, &names);
  entry(arg, ".");
  entry(arg, "..");
  for (int i = 0; i < count; i++) {
    sched_step(CALL_entry);
    entry(arg, names[i]);
  }
  free(names);
  return 0;
}

/* No: the disk is local. */
static int call_network(void *context, const char *path) {
  (void)context, (void)path;
  return 0;
}

/* A FIFO without a name. */
static int call_pipe(void *context, int fds[2]) {
  int error = sched_step(CALL_pipe);
  (void)context;
  if (error) return -error;
  disk_node *n = disk_anonymous(DISK_PIPE, 0600);
  n->links = 1; /* like Linux for a FIFO without a name */
  fds[0] = file_open_node(n, true, false);
  if (fds[0] < 0) return fds[0];
  fds[1] = file_open_node(n, false, true);
  if (fds[1] >= 0) return 0;
  file_close(fds[0]);
  return fds[1];
}

/* ---- locks ---- */

/* Without waiting. */
static int call_lock_range(void *context, int fd, int64_t from, int64_t count,
                           int how) {
  int error = sched_step(how ? CALL_lock : CALL_unlock);
  file_open *o = file_get(fd);
  (void)context;
  if (error) return -ENOLCK;
  if (how != ZKE_LOCK_NONE && !o->writes) return -EBADF;
  return file_lock(o, from, count, how != ZKE_LOCK_NONE) ? 0 : -EAGAIN;
}

/* One byte. */
static int call_lock(void *context, int fd, int64_t offset, int how) {
  return call_lock_range(context, fd, offset, 1, how);
}

/* The place of another description's lock in the range, or -ENOENT. */
static int64_t find_lock(sim_call call, int fd, int64_t from, int64_t count,
                         int64_t *count_out) {
  int error = sched_step(call);
  const file_open *o = file_get(fd);
  if (error) return -error;
  const disk_lock *l = file_find_lock(o, from, count);
  if (!l) return -ENOENT;
  *count_out = l->end - l->from;
  return l->from;
}

/* See find_lock(). */
static int64_t call_find_lock(void *context, int fd, int64_t from,
                              int64_t count, int64_t *count_out) {
  (void)context;
  return find_lock(CALL_findlock, fd, from, count, count_out);
}

/* find_lock of one byte. */
static int call_probe(void *context, int fd, int64_t offset) {
  int64_t count, at = find_lock(CALL_probe, fd, offset, 1, &count);
  (void)context;
  if (at == -ENOENT) return 0;
  return at < 0 ? (int)at : 1;
}

/* ---- waiting ---- */

/* The scheduler continues it when a descriptor is ready, or its time has
 * come. */
static int call_poll(void *context, struct pollfd *fds, unsigned count,
                     int timeout_ms) {
  int error = sched_step(CALL_poll);
  const sched_process *p = sched_self();
  (void)context;
  if (error) return -error;
  int ready = wait_look(p, fds, count);
  if (ready || timeout_ms == 0) return ready;
  int64_t until = timeout_ms < 0 ? SIM_NEVER : sim.now + timeout_ms * SIM_MS;
  sched_wait_until(until, fds, count);
  return wait_look(p, fds, count);
}

/* See file_open_kind(). */
static int call_poller(void *context) {
  int error = sched_step(CALL_poller);
  (void)context;
  return error ? -error : file_open_kind(FILE_POLLER);
}

/* See wait_add(). */
static int call_poller_add(void *context, int poller, int fd, int for_reading) {
  int error = sched_step(CALL_padd);
  (void)context;
  return error ? -error : wait_add(poller, fd, for_reading != 0);
}

/* See wait_remove(). */
static int call_poller_remove(void *context, int poller, int fd) {
  (void)context;
  sched_step(CALL_premove);
  return wait_remove(poller, fd);
}

/* See file_open_kind(). */
static int call_timer(void *context) {
  int error = sched_step(CALL_timer);
  (void)context;
  return error ? -error : file_open_kind(FILE_TIMER);
}

/* 0 turns it off; a time that has passed makes it ready immediately. */
static int call_timer_set(void *context, int fd, int64_t when_ns) {
  (void)context;
  sched_step(CALL_timerset);
  file_get(fd)->due = when_ns ? wait_of_monotonic(when_ns) : 0;
  return 0;
}

/* Not a step: two of them would run in an order that the compiler chooses. */
static int64_t call_clock(void *context, int which) {
  (void)context;
  return wait_clock(which);
}

/* Sleeps for the whole time. */
static void call_sleep(void *context, int64_t ns) {
  (void)context;
  sched_step(CALL_sleep);
  sched_wait_until(sim.now + ns, NULL, 0);
}

/* ---- what a process is ---- */

/* From the kernel's sequence, so that a run can be repeated. */
static int call_random(void *context, void *buffer, size_t size) {
  int error = sched_step(CALL_random);
  unsigned char *at = buffer;
  (void)context;
  while (size-- > 0) *at++ = (unsigned char)sim_random(SIM_KERNEL, 256);
  return -error;
}

/* A different text after each power cut. */
static int call_boot_id(void *context, char *buffer, size_t size) {
  (void)context;
  return container_boot_id(buffer, size);
}

/* A dead process may have had it before (container.h). */
static int64_t call_pid(void *context) {
  (void)context;
  return sched_self()->pid;
}

/* Depends on the slot. */
static int call_process_name(void *context, char *buffer, size_t size) {
  (void)context;
  snprintf(buffer, size, "process %c", 'A' + sched_slot());
  return 0;
}

/* That of the process's time namespace (container.h). */
static int call_boot_offset(void *context, int64_t *out) {
  (void)context;
  return container_boot_offset(out);
}

const zke_os os_simulated = {.size = sizeof(zke_os),
                             .open = call_open,
                             .close = call_close,
                             .dup = call_dup,
                             .read = call_read,
                             .write = call_write,
                             .pread = call_pread,
                             .pwrite = call_pwrite,
                             .stat = call_stat,
                             .fstat = call_fstat,
                             .fsync = call_fsync,
                             .adopt = call_adopt,
                             .mkdir = call_mkdir,
                             .mkfifo = call_mkfifo,
                             .unlink = call_unlink,
                             .list = call_list,
                             .network = call_network,
                             .pipe = call_pipe,
                             .lock = call_lock,
                             .probe = call_probe,
                             .poll = call_poll,
                             .poller = call_poller,
                             .poller_add = call_poller_add,
                             .poller_remove = call_poller_remove,
                             .timer = call_timer,
                             .timer_set = call_timer_set,
                             .clock = call_clock,
                             .sleep = call_sleep,
                             .random = call_random,
                             .boot_id = call_boot_id,
                             .pid = call_pid,
                             .process_name = call_process_name,
                             .boot_offset = call_boot_offset,
                             .lock_range = call_lock_range,
                             .find_lock = call_find_lock,
                             .mkfile = call_mkfile,
                             .share = call_share};
