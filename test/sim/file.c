/* file.c - see file.h */
#include "test/sim/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- locks of an open file description ---- */

/* Give the owner the range, if it is not empty; no one else has any of it.
 * Locks of the owner that touch it become one with it. */
static void lock_add(disk_node *n, int64_t from, int64_t end,
                     const file_open *owner) {
  if (from >= end) return;
  for (int i = 0; i < n->locks; i++) {
    disk_lock l = n->lock[i];
    if (l.owner != owner || (l.end != from && l.from != end)) continue;
    if (l.from < from) from = l.from;
    if (l.end > end) end = l.end;
    n->lock[i--] = n->lock[--n->locks];
  }
  if (n->locks == n->lock_room) {
    n->lock_room = n->lock_room * 2 + 8;
    n->lock = sim_resize(n->lock, (size_t)n->lock_room * sizeof *n->lock);
  }
  n->lock[n->locks++] = (disk_lock){from, end, owner};
}

/* Remove a range from all locks of the owner. */
static void lock_drop(disk_node *n, const file_open *owner, int64_t from,
                      int64_t end) {
  for (int i = 0; i < n->locks; i++) {
    disk_lock l = n->lock[i];
    if (l.owner != owner || l.end <= from || l.from >= end) continue;
    n->lock[i--] = n->lock[--n->locks];
    lock_add(n, l.from, from, owner);
    lock_add(n, end, l.end, owner);
  }
}

/* Take a range, unless another description has some of it; or drop it.  It
 * replaces the owner's old locks in the range, as fcntl() does. */
bool file_lock(file_open *o, int64_t from, int64_t count, bool take) {
  disk_node *n = o->n;
  int64_t end = from + count;
  for (int i = 0; take && i < n->locks; i++) {
    const disk_lock *l = &n->lock[i];
    if (l->owner != o && l->from < end && l->end > from) return false;
  }
  lock_drop(n, o, from, end);
  if (take) lock_add(n, from, end, o);
  return true;
}

/* Any of several locks may be reported, so it is random: no caller may rely on
 * an order. */
const disk_lock *file_find_lock(const file_open *o, int64_t from,
                                int64_t count) {
  const disk_lock *found = NULL;
  uint64_t hits = 0;
  for (int i = 0; i < o->n->locks; i++) {
    const disk_lock *l = &o->n->lock[i];
    if (l->owner == o || l->from >= from + count || l->end <= from) continue;
    if (sim_random(SIM_KERNEL, ++hits) == 0) found = l;
  }
  return found;
}

/* For checks: a lock belongs to a description, so look at all those of the
 * process. */
bool file_process_has_lock(const sched_process *p, const disk_node *n,
                           int64_t at) {
  for (int i = 0; i < n->locks; i++) {
    const disk_lock *l = &n->lock[i];
    if (l->from > at || l->end <= at) continue;
    for (int fd = 0; fd < FILE_DESCRIPTORS; fd++)
      if (p->files->fd[fd] == l->owner) return true;
  }
  return false;
}

/* ---- open file descriptions ---- */

static file_open *pollers; /* of all processes: forked children share them */

/* A new process has no descriptor open, or copies of another process's. */
file_table *file_table_new(const file_table *from) {
  file_table *t = sim_zero(sizeof *t);
  for (int fd = 0; from && fd < FILE_DESCRIPTORS; fd++) {
    t->fd[fd] = from->fd[fd];
    if (t->fd[fd]) t->fd[fd]->refs++;
  }
  return t;
}

/* A description is closed: pollers forget it. */
static void members_forget(const file_open *o) {
  for (file_open *p = pollers; p; p = p->next_poller)
    for (int i = 0; i < p->members; i++)
      if (p->member[i].o == o) p->member[i--] = p->member[--p->members];
}

/* A poller is closed. */
static void poller_forget(const file_open *o) {
  file_open **at = &pollers;
  while (*at && *at != o) at = &(*at)->next_poller;
  if (*at) *at = o->next_poller;
}

/* One of its descriptors is closed. */
static void open_drop(file_open *o) {
  if (--o->refs > 0) return;
  if (o->kind == FILE_POLLER) poller_forget(o);
  members_forget(o);
  disk_node *n = o->n;
  if (n) {
    lock_drop(n, o, 0, INT64_MAX);
    n->readers -= n->type == DISK_PIPE && o->reads;
    n->writers -= n->type == DISK_PIPE && o->writes;
    if (!n->readers && !n->writers) n->length = 0;
    n->opens--;
    disk_settle(n);
  }
  free(o->member);
  free(o);
}

/* For the check at a process's end that it has closed everything. */
int file_count(const file_table *t) {
  int count = 0;
  for (int fd = 0; fd < FILE_DESCRIPTORS; fd++) count += t->fd[fd] != NULL;
  return count;
}

/* In random order, like that of a kernel. */
bool file_reap_one(file_table *t) {
  int count = file_count(t);
  if (!count) return false;
  int pick = (int)sim_random(SIM_KERNEL, (uint64_t)count);
  for (int fd = 0; fd < FILE_DESCRIPTORS; fd++) {
    file_open *o = t->fd[fd];
    if (!o || pick-- > 0) continue;
    t->fd[fd] = NULL;
    open_drop(o);
    return true;
  }
  return false;
}

/* The lowest free descriptor. */
static int fd_new(file_open *o) {
  file_table *t = sched_self()->files;
  for (int fd = 3; fd < FILE_DESCRIPTORS; fd++) {
    if (t->fd[fd]) continue;
    t->fd[fd] = o;
    o->refs++;
    return fd;
  }
  return -EMFILE;
}

/* It is a finding, not an EBADF, if the engine uses a descriptor that it has
 * closed. */
file_open *file_get(int fd) {
  file_table *t = sched_self()->files;
  if (fd < 0 || fd >= FILE_DESCRIPTORS || !t->fd[fd])
    sim_found("P9: a descriptor is used that is not open: %d", fd);
  return t->fd[fd];
}

/* Open a file, a directory, or one end or both ends of a FIFO. */
int file_open_node(disk_node *n, bool reads, bool writes) {
  file_open *o = sim_zero(sizeof *o);
  *o = (file_open){.kind = FILE_DISK, .n = n, .reads = reads, .writes = writes};
  int fd = fd_new(o);
  if (fd < 0) {
    free(o);
    return fd;
  }
  n->opens++;
  n->readers += n->type == DISK_PIPE && reads;
  n->writers += n->type == DISK_PIPE && writes;
  n->writings += n->type == DISK_PIPE && writes;
  o->writings = n->writers ? -1 : n->writings;
  return fd;
}

/* Make a description without a file: a poller or a timer. */
int file_open_kind(file_kind kind) {
  file_open *o = sim_zero(sizeof *o);
  o->kind = kind;
  int fd = fd_new(o);
  if (fd < 0) {
    free(o);
    return fd;
  }
  if (kind != FILE_POLLER) return fd;
  o->member = sim_zero(FILE_MEMBERS * sizeof *o->member);
  o->next_poller = pollers;
  pollers = o;
  return fd;
}

/* Another descriptor of the same description. */
int file_dup(int fd) { return fd_new(file_get(fd)); }

/* The last descriptor closes the description and drops its locks. */
void file_close(int fd) {
  file_table *t = sched_self()->files;
  file_open *o = file_get(fd);
  t->fd[fd] = NULL;
  open_drop(o);
}

/* ---- FIFOs ---- */

/* What is there, at most size bytes; if it is empty and has no writer 0, the
 * end. */
int64_t file_fifo_read(disk_node *n, void *out, size_t size) {
  if (!n->length) return n->writers ? -EAGAIN : 0;
  int count = n->length < (int)size ? n->length : (int)size;
  memcpy(out, n->bytes + n->first_byte, (size_t)count);
  n->first_byte += count;
  n->length -= count;
  return count;
}

/* All or nothing, as Linux does up to PIPE_BUF bytes.  The room of bytes that
 * were read is free again once the page is empty. */
int64_t file_fifo_write(disk_node *n, const void *data, size_t size) {
  if (!n->readers) return -EPIPE;
  if (!n->length) n->first_byte = 0;
  int end = n->first_byte + n->length;
  if ((size_t)end + size > sizeof n->bytes) return -EAGAIN;
  memcpy(n->bytes + end, data, size);
  n->length += (int)size;
  return (int64_t)size;
}
