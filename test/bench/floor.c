/* floor.c - the floor as a subject: raw.c's calls, bare wake-ups
 *
 * Only the row changes and reads that each job needs:
 *
 *   lock      append an ephemeral; list the children; if others are before us,
 *             watch the last of them and sleep; then write "held"
 *   unlock    delete it, leaving the watcher an event; one byte to its FIFO
 *   put       append a durable item and write its directory, which takers
 *             watch
 *   take      list the items, list the claims, read the first, delete it
 *   a death   the hang-up of the holder's FIFO; the next in line deletes its
 *             session and node in one transaction; then as lock
 *
 * All further work of the recipes, for example to survive lost replies, counts
 * as their cost.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK "/lock"
#define ITEMS "/queue/entries"
#define ENTRY "_c_00000000-0000-0000-8000-%012x-lock-"

enum { SESSIONS = 8192, NAMES_BYTES = LARGE_FAMILY * 16 };

/* As long as the text of a lock's znode. */
static const char queued[] = "waiting 0123456789abcdef\n";
static const char held[] = "held 0123456789abcdef\n";

typedef struct connection {
  raw *r;
  char file[PATH_BYTES];
  int fifo;            /* ours, once we wait; -1 */
  int known[SESSIONS]; /* others' FIFOs for writing; 0: not opened */
  int64_t wakeups;     /* bytes written to them */
  raw_key lock, items, claims;
  raw_key own;        /* our entry in the line */
  char claimed[4096]; /* names */
  char names[NAMES_BYTES];
} connection;

static const char *raw_absent(void) { return NULL; }

static void raw_describe(char *out, size_t size) {
  snprintf(out, size, "prepared SQL by hand, test/bench/raw.c");
}

/* The nodes for lock and queue, made by the connection that fills. */
static void make_places(connection *c) {
  raw_key queue;
  key_set(&queue, "/", "queue");
  raw_create_container(c->r, &c->lock);
  raw_create(c->r, &queue, 1, false, "", 0);
  raw_create(c->r, &c->items, 1, false, "", 0);
  raw_create(c->r, &c->claims, 1, false, "", 0);
}

static void *raw_begin(const char *place, purpose why) {
  connection *c = allocate(sizeof *c);
  char name[64];
  snprintf(name, sizeof name, "raw-%.50s.db", place);
  file_in(c->file, sizeof c->file, name);
  bool fresh = access(c->file, F_OK) != 0;
  (void)why;
  key_set(&c->lock, "/", "lock");
  key_set(&c->items, "/queue", "entries");
  key_set(&c->claims, "/queue", "taken");
  c->fifo = -1;
  c->r = raw_open(c->file);
  if (fresh) make_places(c);
  return c;
}

static void raw_end(void *self) {
  connection *c = self;
  raw_close(c->r);
  for (int i = 0; i < SESSIONS; i++) {
    if (c->known[i] > 0) close(c->known[i]);
  }
  if (c->fifo >= 0) close(c->fifo);
  free(c);
}

static void set_durable(void *self, bool durable) {
  connection *c = self;
  raw_durable(c->r, durable);
}

static int64_t raw_wakeups(const void *self) {
  const connection *c = self;
  return c->wakeups;
}

/* ---- wake-ups ---- */

static void fifo_name(char *name, size_t size, const connection *c,
                      int64_t session) {
  snprintf(name, size, "%.3000s-%" PRId64, c->file, session);
}

/* Keep a writing end open, so that a leaving writer causes no hang-up. */
static void need_fifo(connection *c) {
  char name[PATH_BYTES];
  if (c->fifo >= 0) return;
  fifo_name(name, sizeof name, c, raw_session(c->r));
  if (mkfifo(name, 0600) && errno != EEXIST) die("mkfifo: %d", errno);
  c->fifo = open(name, O_RDWR | O_CLOEXEC);
  if (c->fifo < 0) die("cannot open %s", name);
}

static int writing_end(const connection *c, int64_t session) {
  char name[PATH_BYTES];
  fifo_name(name, sizeof name, c, session);
  return open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

/* Send a byte to the session that got an event from the last change.  A dead
 * one no longer reads. */
static void wake(connection *c) {
  int64_t session = raw_woken(c->r);
  if (!session) return;
  if (session >= SESSIONS) die("session %d", (int)session);
  if (c->known[session] <= 0) c->known[session] = writing_end(c, session);
  if (write(c->known[session], "", 1) == 1) c->wakeups++;
}

static void take_byte(connection *c) {
  char byte;
  if (read(c->fifo, &byte, 1) != 1) die("not woken");
  raw_events(c->r);
}

/* ---- nodes ---- */

static void do_get(void *self, const raw_key *key, int count) {
  connection *c = self;
  char bytes[DATA_BYTES];
  raw_stat stat;
  (void)count;
  if (raw_get(c->r, key, bytes, &stat) != DATA_BYTES) die("%s", key->path);
}

static void do_set(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  raw_set(c->r, key, data, DATA_BYTES);
  wake(c);
}

static void do_create(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  raw_create(c->r, key, 1, true, data, DATA_BYTES);
}

static void do_persist(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  raw_create(c->r, key, 1, false, data, DATA_BYTES);
}

static void do_delete(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  raw_delete(c->r, key, 1);
  wake(c);
}

static void do_multi(void *self, const raw_key *key, int count) {
  connection *c = self;
  raw_create(c->r, key, count, true, data, DATA_BYTES);
}

static void do_fill(void *self, const raw_key *key, int count) {
  connection *c = self;
  raw_create(c->r, key, count, false, data, DATA_BYTES);
}

static void do_multi_undo(void *self, const raw_key *key, int count) {
  connection *c = self;
  raw_delete(c->r, key, count);
}

static void do_children(void *self, const raw_key *key, int count) {
  connection *c = self;
  raw_stat stat;
  (void)count;
  if (raw_children(c->r, key, c->names, &stat) < 10) die("%s", key->path);
}

/* ---- watches ---- */

static void do_watch(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  need_fifo(c);
  raw_watch(c->r, key, RAW_WATCH_KIND);
}

static void do_await(void *self, const raw_key *key, int count) {
  (void)key, (void)count;
  take_byte(self);
}

static void do_unwatch(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  raw_unwatch(c->r, key);
}

/* ---- lock ---- */

/* The entry just before our own; false: ours is the first. */
static bool find_before(connection *c, raw_key *before_out) {
  const char *name = c->names, *found = NULL;
  raw_stat stat;
  int64_t most = -1, limit = number_of(c->own.name);
  for (int i = raw_children(c->r, &c->lock, c->names, &stat); i > 0; i--) {
    int64_t number = number_of(name);
    if (number < limit && number > most) {
      most = number;
      found = name;
    }
    name += strlen(name) + 1;
  }
  if (found) key_set(before_out, LOCK, found);
  return found != NULL;
}

/* Wait until the previous entry is gone; if its owner is dead, delete it. */
static void await_end(connection *c, const raw_key *before, int64_t owner) {
  int theirs = writing_end(c, owner);
  struct pollfd fds[2] = {{.fd = c->fifo, .events = POLLIN}, {.fd = theirs}};
  bool dead = theirs < 0 && errno == ENXIO;
  if (!dead && poll(fds, 2, -1) < 1) die("poll: %d", errno);
  if (dead || (fds[1].revents && !fds[0].revents)) {
    raw_bury(c->r, before, owner);
    wake(c);
  }
  take_byte(c); /* whoever wrote it, the event is ours */
  if (theirs >= 0) close(theirs);
}

static void do_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  static unsigned counter;
  char prefix[64];
  raw_key before;
  bool waited = false;
  (void)key, (void)count;
  need_fifo(c); /* later ones hear of our end by it */
  snprintf(prefix, sizeof prefix, ENTRY, ++counter);
  raw_append(c->r, &c->lock, prefix, true, false, queued, sizeof queued - 1,
             &c->own);
  while (find_before(c, &before)) {
    int64_t owner = raw_watch(c->r, &before, RAW_WATCH_END);
    if (owner < 0) {
      raw_unwatch(c->r, &before); /* gone meanwhile */
    } else {
      await_end(c, &before, owner);
    }
    waited = true;
  }
  if (waited) raw_set(c->r, &c->own, held, sizeof held - 1);
}

static void do_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key;
  do_delete(c, &c->own, count);
}

/* ---- queue ---- */

static void do_put(void *self, const raw_key *key, int count) {
  connection *c = self;
  raw_key own;
  (void)key, (void)count;
  raw_append(c->r, &c->items, "entry-100-", false, true, data, DATA_BYTES,
             &own);
}

static void do_take(void *self, const raw_key *key, int count) {
  connection *c = self;
  char bytes[DATA_BYTES];
  raw_stat stat;
  raw_key item;
  (void)key;
  if (raw_children(c->r, &c->items, c->names, &stat) == 0) die("none to take");
  if (raw_children(c->r, &c->claims, c->claimed, &stat) != 0) die("claimed");
  key_set(&item, ITEMS, c->names);
  if (raw_get(c->r, &item, bytes, &stat) != DATA_BYTES) die("%s", item.path);
  do_delete(c, &item, count);
}

static void do_open(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  raw_close(raw_open(c->file));
}

const subject subject_raw = {
    .name = "raw",
    .promise =
        "nothing but SQLite's own: no queue of writers, no sessions that "
        "end with their process, no checks",
    .absent = raw_absent,
    .version = raw_describe,
    .open = raw_begin,
    .close = raw_end,
    .durable = set_durable,
    .wakeups = raw_wakeups,
    .act = {[ACT_GET] = do_get,
            [ACT_SET] = do_set,
            [ACT_CREATE] = do_create,
            [ACT_PERSIST] = do_persist,
            [ACT_DELETE] = do_delete,
            [ACT_MULTI] = do_multi,
            [ACT_MULTI_UNDO] = do_multi_undo,
            [ACT_FILL] = do_fill,
            [ACT_CHILDREN] = do_children,
            [ACT_WATCH] = do_watch,
            [ACT_AWAIT] = do_await,
            [ACT_UNWATCH] = do_unwatch,
            [ACT_LOCK] = do_lock,
            [ACT_UNLOCK] = do_unlock,
            [ACT_PUT] = do_put,
            [ACT_TAKE] = do_take,
            [ACT_OPEN] = do_open}};
