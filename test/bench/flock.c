/* flock.c - flock(2), as used by flock(1): only a lock */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct connection {
  int fd;
} connection;

static const char *always(void) { return NULL; }

static void describe_libc(char *out, size_t size) {
  snprintf(out, size, "glibc %s", gnu_get_libc_version());
}

static void *flock_open(const char *place, purpose why) {
  connection *c = allocate(sizeof *c);
  char name[64], path[PATH_BYTES];
  (void)why;
  snprintf(name, sizeof name, "flock-%.40s", place);
  file_in(path, sizeof path, name);
  c->fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0600);
  if (c->fd < 0) die("cannot open %s: %s", path, strerror(errno));
  return c;
}

static void flock_close(void *self) {
  connection *c = self;
  close(c->fd);
  free(c);
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
    .close = flock_close,
    .act = {[ACT_LOCK] = flock_lock, [ACT_UNLOCK] = flock_unlock}};
