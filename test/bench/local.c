/* local.c - what the system itself offers: one lock each
 *
 *   fifo       a byte in a FIFO; who has read it holds the lock.  Its hand-over
 *              is one bare wake-up
 *   flock      flock(2), which flock(1) calls
 *   mutex      a robust mutex of pthreads, shared through a mapped file
 *   semaphore  sem_t of the same kind
 *
 * The first to come initialises: our own process, before others start.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct connection {
  int fd;
  union {
    pthread_mutex_t mutex;
    sem_t semaphore;
  } * shared;
} connection;

static const char *always(void) { return NULL; }

static void describe_libc(char *out, size_t size) {
  snprintf(out, size, "glibc %s", gnu_get_libc_version());
}

/* Opens the file of a lock; *fresh_out: we have made it. */
static connection *connect(const char *kind, const char *place, bool fifo,
                           bool *fresh_out) {
  connection *c = allocate(sizeof *c);
  char name[64], path[PATH_BYTES];
  snprintf(name, sizeof name, "%s-%.40s", kind, place);
  file_in(path, sizeof path, name);
  *fresh_out = access(path, F_OK) != 0;
  if (fifo && *fresh_out && mkfifo(path, 0600)) die("mkfifo: %d", errno);
  c->fd = open(path, O_RDWR | O_CLOEXEC | (fifo ? 0 : O_CREAT), 0600);
  if (c->fd < 0) die("cannot open %s: %s", path, strerror(errno));
  return c;
}

static connection *map(const char *kind, const char *place, bool *fresh_out) {
  connection *c = connect(kind, place, false, fresh_out);
  if (ftruncate(c->fd, sizeof *c->shared)) die("ftruncate: %d", errno);
  c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED,
                   c->fd, 0);
  if (c->shared == MAP_FAILED) die("mmap: %d", errno);
  return c;
}

static void disconnect(void *self) {
  connection *c = self;
  if (c->shared) munmap(c->shared, sizeof *c->shared);
  close(c->fd);
  free(c);
}

/* ---- a byte in a FIFO ---- */

static void fifo_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  if (write(c->fd, "", 1) != 1) die("write: %d", errno);
}

static void fifo_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  char byte;
  (void)key, (void)count;
  if (read(c->fd, &byte, 1) != 1) die("read: %d", errno);
}

static void *fifo_open(const char *place, purpose why) {
  bool fresh;
  connection *c = connect("fifo", place, true, &fresh);
  (void)why;
  if (fresh) fifo_unlock(c, NULL, 0);
  return c;
}

const subject subject_fifo = {
    .name = "fifo",
    .promise =
        "nothing: a byte that its holder takes with it; the floor of "
        "every wake-up",
    .absent = always,
    .version = describe_libc,
    .open = fifo_open,
    .close = disconnect,
    .patience_s = -1,
    .act = {[ACT_LOCK] = fifo_lock, [ACT_UNLOCK] = fifo_unlock}};

/* ---- flock(2) ---- */

static void *flock_open(const char *place, purpose why) {
  bool fresh;
  (void)why;
  return connect("flock", place, false, &fresh);
}

static void flock_do(connection *c, int how) {
  while (flock(c->fd, how)) {
    if (errno != EINTR) die("flock: %s", strerror(errno));
  }
}

static void flock_lock(void *self, const raw_key *key, int count) {
  (void)key, (void)count;
  flock_do(self, LOCK_EX);
}

static void flock_unlock(void *self, const raw_key *key, int count) {
  (void)key, (void)count;
  flock_do(self, LOCK_UN);
}

const subject subject_flock = {
    .name = "flock",
    .promise =
        "goes with its process; no token, no list of who waits, no data; "
        "a child that inherits the descriptor shares it",
    .absent = always,
    .version = describe_libc,
    .open = flock_open,
    .close = disconnect,
    .act = {[ACT_LOCK] = flock_lock, [ACT_UNLOCK] = flock_unlock}};

/* ---- robust mutex ---- */

static void *mutex_open(const char *place, purpose why) {
  bool fresh;
  connection *c = map("mutex", place, &fresh);
  (void)why;
  if (!fresh) return c;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&c->shared->mutex, &attributes);
  return c;
}

static void mutex_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  int rc = pthread_mutex_lock(&c->shared->mutex);
  if (rc == EOWNERDEAD) rc = pthread_mutex_consistent(&c->shared->mutex);
  if (rc) die("mutex: %s", strerror(rc));
}

static void mutex_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  pthread_mutex_unlock(&c->shared->mutex);
}

const subject subject_mutex = {
    .name = "mutex",
    .promise =
        "tells of a dead holder; no order among those who wait, no token; "
        "whoever writes into the mapping breaks it",
    .absent = always,
    .version = describe_libc,
    .open = mutex_open,
    .close = disconnect,
    .act = {[ACT_LOCK] = mutex_lock, [ACT_UNLOCK] = mutex_unlock}};

/* ---- semaphore ---- */

static void *semaphore_open(const char *place, purpose why) {
  bool fresh;
  connection *c = map("semaphore", place, &fresh);
  (void)why;
  if (fresh) sem_init(&c->shared->semaphore, 1, 1);
  return c;
}

static void semaphore_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  while (sem_wait(&c->shared->semaphore)) {
    if (errno != EINTR) die("sem_wait: %s", strerror(errno));
  }
}

static void semaphore_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  sem_post(&c->shared->semaphore);
}

const subject subject_semaphore = {
    .name = "semaphore",
    .promise = "nothing when its holder dies: the count is lost",
    .absent = always,
    .version = describe_libc,
    .open = semaphore_open,
    .close = disconnect,
    .patience_s = -1,
    .act = {[ACT_LOCK] = semaphore_lock, [ACT_UNLOCK] = semaphore_unlock}};
