/* serve_torture.c - servers of one file that are killed, over and over
 *
 * In each round, clients with raw connections work on two `zke FILE serve` of
 * one file, and direct users of the file do so in other processes.  Servers,
 * clients and direct users are killed by SIGKILL at random instants and started
 * again.  A client whose server has died comes back with its session's id and
 * password, to either server.  What is promised:
 *
 *   lock      whoever holds the lock of "/lock" raises "/guarded", in one step
 *             with a check of its own node there: if its number and its version
 *             differ, two held the lock together.  Direct users lock by
 *             recipes/lock.h; clients by nodes with Curator's names, as
 *             Curator's own lock does
 *   counter   "/counter" is raised by version: no acknowledged step is lost,
 *             none is made twice
 *   queue     each acknowledged item of "/queue" is taken once or still there
 *   sessions  a session that comes back in time is let in and has its ephemeral
 *             node; a session that is reported as over has none
 *   order     no client is told a lower zxid than before
 *
 *   KILLS=n   how many in all; 200
 *   SEED=n    of the first round; the others follow from it; printed with each
 *             complaint.  It decides who does what; the scheduler decides when
 *   MISTAKE=n plant a mistake, which must be found: 1: a client holds the lock
 *             although it is not the first in line; 2: a direct user does not
 *             take the lock
 *
 * Arguments: the program `zke`, and a directory on a disk for every other round
 * (the others are in memory if there is /dev/shm).  Exit status 1: something
 * was wrong, and the round's files are kept.  Start reading at play().
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/engine/jute.h"
#include "recipes/lock.h"
#include "test/program.h"
#include "test/server/peer.h"
#include "zkembed.h"

enum {
  SERVERS = 2,
  CLIENTS = 6, /* by the wire; the direct users' numbers follow */
  DIRECT = 2,
  USERS = CLIENTS + DIRECT,
  ITEMS = 20000, /* most that one user puts into the queue */
  KILLS_A_ROUND = 40,
  ANSWER_MS = 20000, /* nothing takes longer */
  SETTLE_MS = 20000,
  QUEUE_FULL = 60,
  TEXT = 200
};

/* ---- what is shared ---- */

/* An item of the queue; each step is counted before it is tried. */
typedef struct item {
  atomic_int put;     /* 0: never tried, 1: perhaps, 2: acknowledged */
  atomic_int taken;   /* acknowledged deletions */
  atomic_int perhaps; /* deletions with unknown results */
} item;

typedef struct tally {
  atomic_long tried, acknowledged; /* steps of a counter */
} tally;

static struct shared {
  atomic_int port[SERVERS]; /* 0: none there */
  atomic_int stop;
  atomic_long complaints, answers, returns, refusals;
  atomic_long locks, direct_locks;
  tally counter, guarded;
  atomic_int items[USERS];
  item item[USERS][ITEMS];
} * shared;

static uint64_t round_seed;
static char directory[500], database[600];
static volatile sig_atomic_t stopped; /* by SIGTERM or SIGINT */
static const char *program;
enum { NO_MISTAKE, NOT_FIRST, NOT_LOCKED };
static long mistake;

static void pause_ms(int ms) { poll(NULL, 0, ms); }

static int below(uint64_t *random, int n) {
  uint64_t x = *random += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return (int)((x ^ x >> 31) % (uint64_t)n);
}

static void complain(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...) {
  char text[500];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  atomic_fetch_add(&shared->complaints, 1);
  printf("SEED=%" PRIu64 ": %s\n", round_seed, text);
  fflush(stdout);
}

/* A call without which a round cannot go on.  Everything that it started ends
 * with this process. */
static void must(int rc, const char *what) {
  if (rc == 0) return;
  fprintf(stderr, "SEED=%" PRIu64 ": %s: %s\n", round_seed, what, zke_errmsg());
  exit(2);
}

/* ------------------------------------------------------------------------
 * A client
 * --------------------------------------------------------------------- */

typedef struct client {
  int number;
  uint64_t random;
  peer peer;
  int64_t id, zxid;
  int timeout_ms, xid;
  int64_t heard_ms; /* when the last request that was answered was sent */
  int64_t sent_ms;
  char password[16];
  bool has_own; /* the session's node was made */
} client;

/* Codes besides ZooKeeper's. */
enum { LOST = -1000, NEW_SESSION = -1001 };

#define PUT(c, name, ...)                             \
  zke_jute_write(&(c)->peer.out, &zke_jute_of_##name, \
                 &(zke_jute_##name){__VA_ARGS__})
#define GET(r, name, to) zke_jute_read(r, &zke_jute_of_##name, to)

static void begin(client *c, int type) {
  peer_begin(&c->peer);
  PUT(c, request_header, ++c->xid, type);
}

/* Notes the zxid of an answer. */
static void note_zxid(client *c, int64_t zxid) {
  if (zxid < c->zxid)
    complain("client %d: zxid %" PRIx64 " after %" PRIx64, c->number,
             (uint64_t)zxid, (uint64_t)c->zxid);
  c->zxid = zxid;
}

/* Send the request that was written; its error, or LOST. */
static int finish(client *c, zke_jute_reader *r) {
  zke_jute_reply_header head;
  peer_end(&c->peer);
  c->sent_ms = program_ms();
  if (!peer_send(&c->peer)) return LOST;
  int outcome = peer_next(&c->peer, ANSWER_MS, r);
  if (outcome == PEER_SILENT)
    complain("client %d: no answer for %d ms", c->number, ANSWER_MS);
  if (outcome != PEER_FRAME) return LOST;
  if (!GET(r, reply_header, &head) || head.xid != c->xid) {
    complain("client %d: answer %d to request %d", c->number, head.xid, c->xid);
    return LOST;
  }
  note_zxid(c, head.zxid);
  c->heard_ms = c->sent_ms;
  atomic_fetch_add(&shared->answers, 1);
  return head.err;
}

/* ---- sessions ---- */

/* Connect to one of the running servers; false: none accepts. */
static bool dial(client *c) {
  int first = below(&c->random, SERVERS);
  for (int i = 0; i < SERVERS; i++) {
    int port = atomic_load(&shared->port[(first + i) % SERVERS]);
    if (port && peer_dial(&c->peer, port)) return true;
  }
  return false;
}

/* Ask for the session, or for a new one; LOST, 0, or NEW_SESSION if the old one
 * is over. */
static int greet(client *c) {
  zke_jute_connect_response a;
  zke_jute_reader r;
  int timeout_ms = c->id ? c->timeout_ms : 1500 + below(&c->random, 2500);
  peer_begin(&c->peer);
  PUT(c, connect_request, 0, c->zxid, timeout_ms, c->id, {16, c->password});
  PUT(c, read_only, 0);
  peer_end(&c->peer);
  int64_t sent_ms = program_ms();
  if (!peer_send(&c->peer)) return LOST;
  if (peer_next(&c->peer, ANSWER_MS, &r) != PEER_FRAME) return LOST;
  if (!GET(&r, connect_response, &a) || a.passwd.len != 16) return LOST;
  if (a.session_id == 0) return NEW_SESSION;
  if (c->id && a.session_id != c->id)
    complain("client %d: came back to another session", c->number);
  c->id = a.session_id;
  c->timeout_ms = a.time_out;
  c->heard_ms = sent_ms;
  memcpy(c->password, a.passwd.data, 16);
  return 0;
}

static void own_path(const client *c, int64_t id, char *path) {
  snprintf(path, TEXT, "/sessions/%d-%" PRIx64, c->number, (uint64_t)id);
}

static int exists(client *c, const char *path, zke_jute_stat_response *stat) {
  zke_jute_reader r = {0};
  begin(c, ZKE_JUTE_EXISTS);
  PUT(c, read_request, path, 0);
  int rc = finish(c, &r);
  if (rc == 0 && !GET(&r, stat_response, stat)) rc = LOST;
  return rc;
}

static int create(client *c, const char *path, const char *data, int mode,
                  char *made) {
  zke_jute_reader r = {0};
  zke_jute_path_response answer;
  begin(c, ZKE_JUTE_CREATE);
  PUT(c, create_request, path, {(int)strlen(data), data}, zke_open_acl, mode);
  int rc = finish(c, &r);
  if (rc == 0 && !GET(&r, path_response, &answer)) rc = LOST;
  if (rc == 0 && made) snprintf(made, TEXT, "%s", answer.path);
  return rc;
}

/* A session that has come back must have its node; LOST: unknown. */
static int look_for_own(client *c) {
  zke_jute_stat_response stat;
  char path[TEXT];
  own_path(c, c->id, path);
  int rc = exists(c, path, &stat);
  if (rc == ZKE_NONODE)
    complain("client %d: has come back, and %s is gone", c->number, path);
  else if (rc == 0 && stat.stat.ephemeralOwner != c->id)
    complain("client %d: %s is another's", c->number, path);
  return rc == LOST ? LOST : 0;
}

/* Our session is over: its node must be gone. */
static int look_for_remains(client *c, int64_t before) {
  zke_jute_stat_response stat;
  char path[TEXT];
  own_path(c, before, path);
  int rc = exists(c, path, &stat);
  if (rc == 0)
    complain("client %d: %s has outlived its session", c->number, path);
  return rc == LOST ? LOST : 0;
}

/* Make the node that shows that the session is alive. */
static int make_own(client *c) {
  char path[TEXT];
  own_path(c, c->id, path);
  int rc = create(c, path, "", ZKE_EPHEMERAL, NULL);
  if (rc != 0 && rc != ZKE_NODEEXISTS && rc != LOST &&
      rc != ZKE_OPERATIONTIMEOUT)
    complain("client %d: cannot make %s: %d", c->number, path, rc);
  if (rc == ZKE_NODEEXISTS) rc = 0;
  c->has_own = rc == 0;
  return rc;
}

/* The session was refused: it must have been silent for its timeout. */
static void judge_refusal(client *c) {
  int64_t silent_ms = program_ms() - c->heard_ms;
  atomic_fetch_add(&shared->refusals, 1);
  if (silent_ms < c->timeout_ms)
    complain("client %d: session %" PRIx64 " was ended after %" PRId64
             " of %d ms",
             c->number, (uint64_t)c->id, silent_ms, c->timeout_ms);
}

static bool is_stopping(void) { return atomic_load(&shared->stop) == 2; }

/* One attempt: connect to a server, with the old session or a new one, and
 * check or make its node. */
static int try_to_come_back(client *c, int64_t *over) {
  peer_hang_up(&c->peer);
  if (!dial(c)) return LOST;
  int rc = greet(c);
  if (rc == NEW_SESSION) {
    judge_refusal(c);
    *over = c->id;
    c->id = 0;
    c->has_own = false;
  }
  if (rc != 0) return rc;
  if (*over && look_for_remains(c, *over) != 0) return LOST;
  *over = 0;
  return c->has_own ? look_for_own(c) : make_own(c);
}

/* Come back to a server; NEW_SESSION if the session is now another one. */
static int come_back(client *c) {
  int64_t before = c->id, over = 0;
  while (!is_stopping() && try_to_come_back(c, &over) != 0)
    pause_ms(1 + below(&c->random, 20));
  atomic_fetch_add(&shared->returns, 1);
  return before == c->id ? LOST : NEW_SESSION;
}

/* The result of a call; after a loss, come back first. */
static int settled(client *c, int rc) { return rc == LOST ? come_back(c) : rc; }

/* End the session regularly, and begin another. */
static void change_session(client *c) {
  zke_jute_reader r = {0};
  int64_t before = c->id;
  begin(c, ZKE_JUTE_CLOSE);
  int rc = finish(c, &r);
  zke_jute_reader_free(&r);
  if (rc == LOST) {
    come_back(c);
    return;
  }
  c->id = 0;
  c->has_own = false;
  int64_t over = before;
  while (!is_stopping() && try_to_come_back(c, &over) != 0)
    pause_ms(1 + below(&c->random, 20));
}

/* ------------------------------------------------------------------------
 * A user: a client, or a direct one
 * --------------------------------------------------------------------- */

typedef struct user {
  int number;
  uint64_t random;
  client *wire; /* NULL: a direct one */
  zke *z;
} user;

/* If a call returns LOST or NEW_SESSION, it is unknown whether the change was
 * made.  A direct user's calls never return these. */

static int user_create(user *u, const char *path, const char *data, int mode,
                       char *made) {
  if (u->wire) return settled(u->wire, create(u->wire, path, data, mode, made));
  char *name = NULL;
  int rc = zke_create(u->z, path, data, (int)strlen(data), ZKE_OPEN_ACL, mode,
                      &name, NULL);
  if (rc == 0 && made) snprintf(made, TEXT, "%s", name);
  if (rc == 0) zke_free(name);
  return rc;
}

static void keep_text(char *text, const char *data, int len) {
  snprintf(text, TEXT, "%.*s", len > 0 ? len : 0, data ? data : "");
}

static int user_get(user *u, const char *path, char *text, int *version) {
  zke_jute_reader r = {0};
  zke_jute_get_data_response got;
  if (u->wire) {
    begin(u->wire, ZKE_JUTE_GET_DATA);
    PUT(u->wire, read_request, path, 0);
    int rc = finish(u->wire, &r);
    if (rc == 0 && !GET(&r, get_data_response, &got)) rc = LOST;
    if (rc == 0) keep_text(text, got.data.data, got.data.len);
    if (rc == 0) *version = got.stat.version;
    return settled(u->wire, rc);
  }
  char *data;
  int len, rc = zke_get(u->z, path, NULL, NULL, &data, &len, &got.stat);
  if (rc != 0) return rc;
  keep_text(text, data, len);
  *version = got.stat.version;
  zke_free(data);
  return 0;
}

static int user_set(user *u, const char *path, const char *data, int version) {
  zke_jute_reader r = {0};
  if (!u->wire)
    return zke_set(u->z, path, data, (int)strlen(data), version, NULL);
  begin(u->wire, ZKE_JUTE_SET_DATA);
  PUT(u->wire, set_data_request, path, {(int)strlen(data), data}, version);
  return settled(u->wire, finish(u->wire, &r));
}

static int user_delete(user *u, const char *path) {
  zke_jute_reader r = {0};
  if (!u->wire) return zke_delete(u->z, path, -1);
  begin(u->wire, ZKE_JUTE_DELETE);
  PUT(u->wire, delete_request, path, -1);
  return settled(u->wire, finish(u->wire, &r));
}

/* A client sets data if its node is there, in one step. */
static int wire_set_while(user *u, const char *node, const char *path,
                          const char *data) {
  zke_jute_reader r = {0};
  zke_jute_multi_header head;
  int len = (int)strlen(data);
  begin(u->wire, ZKE_JUTE_MULTI);
  PUT(u->wire, multi_header, ZKE_JUTE_CHECK, 0, -1);
  PUT(u->wire, delete_request, node, -1);
  PUT(u->wire, multi_header, ZKE_JUTE_SET_DATA, 0, -1);
  PUT(u->wire, set_data_request, path, {len, data}, -1);
  PUT(u->wire, multi_header, -1, 1, -1);
  int rc = finish(u->wire, &r);
  if (rc == 0 && !GET(&r, multi_header, &head)) rc = LOST;
  if (rc == 0 && head.type == ZKE_JUTE_ERROR) rc = ZKE_NONODE;
  return settled(u->wire, rc);
}

/* A direct user sets data if it holds the lock, in one step. */
static int direct_set_while(user *u, zke_lock *lock, const char *path,
                            const char *data) {
  zke_op ops[2];
  if (mistake == NOT_LOCKED) return user_set(u, path, data, -1);
  int rc = zke_lock_op(lock, &ops[0]);
  zke_op_set(&ops[1], path, data, (int)strlen(data), -1);
  return rc == ZKE_OK ? zke_multi(u->z, ops, 2, NULL) : rc;
}

/* The names in a directory, copied; to be freed by names_free(). */
static void copy_names(zke_strings *to, const zke_strings *from) {
  to->data = calloc((size_t)from->count + 1, sizeof *to->data);
  to->count = to->data ? from->count : 0;
  for (int i = 0; i < to->count; i++) to->data[i] = strdup(from->data[i]);
}

static void names_free(zke_strings *names) {
  for (int i = 0; i < names->count; i++) free(names->data[i]);
  free(names->data);
  *names = (zke_strings){0};
}

static int user_children(user *u, const char *path, zke_strings *names) {
  zke_jute_reader r = {0};
  zke_jute_children_response got;
  *names = (zke_strings){0};
  if (u->wire) {
    begin(u->wire, ZKE_JUTE_GET_CHILDREN);
    PUT(u->wire, read_request, path, 0);
    int rc = finish(u->wire, &r);
    if (rc == 0 && !GET(&r, children_response, &got)) rc = LOST;
    if (rc == 0) copy_names(names, &got.children);
    zke_jute_reader_free(&r);
    return settled(u->wire, rc);
  }
  zke_strings *list;
  int rc = zke_children(u->z, path, NULL, NULL, &list, NULL);
  if (rc == 0) copy_names(names, list);
  if (rc == 0) zke_free(list);
  return rc;
}

/* ------------------------------------------------------------------------
 * What users do
 * --------------------------------------------------------------------- */

/* Count a tried step of a number, with its result. */
static void note_step(tally *t, int rc) {
  if (rc == 0) atomic_fetch_add(&t->acknowledged, 1);
  if (rc != LOST && rc != NEW_SESSION && rc != 0)
    atomic_fetch_sub(&t->tried, 1); /* refused: not made */
}

static void expect(const user *u, const char *what, int rc) {
  if (rc == 0 || rc == LOST || rc == NEW_SESSION || rc == ZKE_NONODE ||
      rc == ZKE_BADVERSION || rc == ZKE_OPERATIONTIMEOUT)
    return;
  complain("user %d: %s gives %d (%s)", u->number, what, rc,
           zke_error_name(rc));
}

static void count_up(user *u) {
  char text[TEXT];
  int version;
  int rc = user_get(u, "/counter", text, &version);
  expect(u, "get", rc);
  if (rc != 0) return;
  if (atoi(text) != version)
    complain("user %d: /counter is %s in version %d", u->number, text, version);
  snprintf(text, sizeof text, "%d", version + 1);
  atomic_fetch_add(&shared->counter.tried, 1);
  rc = user_set(u, "/counter", text, version);
  expect(u, "set", rc);
  note_step(&shared->counter, rc);
}

/* The number after a name's last '-'. */
static long sequence_of(const char *name) {
  const char *dash = strrchr(name, '-');
  return dash ? atol(dash + 1) : -1;
}

/* A name of this prefix in the directory; false: none was seen. */
static bool find_mine(user *u, const char *prefix, char *path) {
  zke_strings names;
  bool found = false;
  int rc;
  do rc = user_children(u, "/lock", &names);
  while (rc == LOST && !is_stopping());
  for (int i = 0; i < names.count && !found; i++) {
    found = strncmp(names.data[i], prefix, strlen(prefix)) == 0;
    if (found) snprintf(path, TEXT, "/lock/%s", names.data[i]);
  }
  names_free(&names);
  return found;
}

/* Stand in line; false: not in it.  After a loss the node may exist.  The name
 * is Curator's: the part between "_c_" and "-lock-" is unique. */
static bool enter_line(user *u, char *path) {
  static unsigned attempts;
  char prefix[TEXT - 10], name[TEXT];
  snprintf(prefix, sizeof prefix, "_c_%08x-0000-4000-8000-%012x-lock-",
           (unsigned)getpid(), ++attempts);
  snprintf(name, sizeof name, "/lock/%s", prefix);
  int rc = user_create(u, name, "", ZKE_EPHEMERAL_SEQUENTIAL, path);
  expect(u, "create", rc);
  if (rc == LOST) return find_mine(u, prefix, path);
  return rc == 0;
}

enum { HELD, WAITING, OUT };

/* Is our node first, behind others, or gone with its session? */
static int place_in_line(user *u, const char *path) {
  zke_strings names;
  int rc = user_children(u, "/lock", &names);
  if (rc == LOST) return WAITING;
  if (rc != 0) return OUT;
  long mine = sequence_of(path);
  bool there = false, first = true;
  if (mistake == NOT_FIRST) mine = 0;
  for (int i = 0; i < names.count; i++) {
    there |= strcmp(names.data[i], path + strlen("/lock/")) == 0;
    first &= sequence_of(names.data[i]) >= mine;
  }
  names_free(&names);
  if (!there) return OUT;
  return first ? HELD : WAITING;
}

/* Raise the guarded number, unless the lock has been lost.
 *
 *   node  a client's, in the line
 *   lock  a direct user's */
static void raise_guarded(user *u, const char *node, zke_lock *lock) {
  char text[TEXT];
  int version;
  if (user_get(u, "/guarded", text, &version) != 0) return;
  int value = atoi(text) + 1;
  snprintf(text, sizeof text, "%d", value);
  atomic_fetch_add(&shared->guarded.tried, 1);
  int rc = u->wire ? wire_set_while(u, node, "/guarded", text)
                   : direct_set_while(u, lock, "/guarded", text);
  expect(u, "multi", rc);
  note_step(&shared->guarded, rc);
  atomic_fetch_add(u->wire ? &shared->locks : &shared->direct_locks, 1);
}

static void wire_lock_and_raise(user *u) {
  char path[TEXT];
  if (!enter_line(u, path)) return;
  int place = WAITING;
  for (int64_t end = program_ms() + 5000;
       program_ms() < end && !is_stopping();) {
    place = place_in_line(u, path);
    if (place != WAITING) break;
    pause_ms(1 + below(&u->random, 4));
  }
  if (place == HELD) raise_guarded(u, path, NULL);
  while (place != OUT && user_delete(u, path) == LOST && !is_stopping())
    continue;
}

static void direct_lock_and_raise(user *u) {
  zke_lock *lock;
  must(zke_lock_new(u->z, "/lock", NULL, &lock), "zke_lock_new");
  int rc = ZKE_OK;
  if (mistake != NOT_LOCKED) rc = zke_lock_acquire(lock, zke_now(u->z) + 5000);
  expect(u, "zke_lock_acquire", rc);
  if (rc == ZKE_OK) raise_guarded(u, NULL, lock);
  zke_lock_free(lock);
}

static void lock_and_raise(user *u) {
  if (u->wire)
    wire_lock_and_raise(u);
  else
    direct_lock_and_raise(u);
}

static void put_item(user *u) {
  int n = atomic_load(&shared->items[u->number]);
  char text[TEXT];
  if (n == ITEMS) return;
  item *it = &shared->item[u->number][n];
  atomic_store(&it->put, 1);
  atomic_store(&shared->items[u->number], n + 1);
  snprintf(text, sizeof text, "%d %d", u->number, n);
  int rc = user_create(u, "/queue/i-", text, ZKE_PERSISTENT_SEQUENTIAL, NULL);
  expect(u, "create", rc);
  if (rc == 0) atomic_store(&it->put, 2);
  if (rc != 0 && rc != LOST && rc != NEW_SESSION) atomic_store(&it->put, 0);
}

static item *item_of(const char *text) {
  int number = -1, n = -1;
  if (sscanf(text, "%d %d", &number, &n) != 2 || number < 0 ||
      number >= USERS || n < 0 || n >= ITEMS) {
    complain("an item says \"%s\"", text);
    return NULL;
  }
  return &shared->item[number][n];
}

static void take_named(user *u, const char *name) {
  char path[TEXT], text[TEXT];
  int version;
  snprintf(path, sizeof path, "/queue/%s", name);
  int rc = user_get(u, path, text, &version);
  expect(u, "get", rc);
  item *it = rc == 0 ? item_of(text) : NULL;
  if (!it) return;
  atomic_fetch_add(&it->perhaps, 1);
  rc = user_delete(u, path);
  expect(u, "delete", rc);
  if (rc == LOST || rc == NEW_SESSION) return;
  if (rc == 0 && atomic_fetch_add(&it->taken, 1) > 0)
    complain("user %d: item \"%s\" was taken twice", u->number, text);
  atomic_fetch_sub(&it->perhaps, 1);
}

/* Put one, or take one of the first. */
static void use_queue(user *u) {
  zke_strings names;
  if (user_children(u, "/queue", &names) != 0) return;
  if (names.count && (names.count > QUEUE_FULL || below(&u->random, 2)))
    take_named(u, names.data[below(&u->random, names.count)]);
  else
    put_item(u);
  names_free(&names);
}

static void work(user *u) {
  while (!atomic_load(&shared->stop)) {
    int n = below(&u->random, 100);
    if (n < 35)
      count_up(u);
    else if (n < 60)
      lock_and_raise(u);
    else if (n < 97 || !u->wire)
      use_queue(u);
    else
      change_session(u->wire);
    if (u->wire) u->random = u->wire->random += 1;
  }
}

/* ---- processes ---- */

static uint64_t random_of(int number, int life) {
  return round_seed * 1000003 + (uint64_t)number * 1009 + (uint64_t)life;
}

static void be_client(int number, int life) {
  zke_jute_reader r = {0};
  client c = {.number = number, .peer = {.fd = -1}};
  user u = {.number = number, .wire = &c};
  c.random = u.random = random_of(number, life);
  come_back(&c);
  work(&u);
  begin(&c, ZKE_JUTE_CLOSE); /* if this is lost, the session times out */
  finish(&c, &r);
  peer_hang_up(&c.peer);
}

static void be_direct(int number, int life) {
  user u = {.number = number, .random = random_of(number, life)};
  zke_options o = {.size = sizeof o, .busy_timeout_ms = ANSWER_MS};
  int rc = zke_open(database, &o, &u.z);
  if (rc != 0) {
    complain("user %d: zke_open gives %d", number, rc);
    return;
  }
  work(&u);
  rc = zke_close(u.z);
  if (rc != 0) complain("user %d: zke_close gives %d", number, rc);
}

static pid_t start_user(int number, int life) {
  pid_t pid = program_fork();
  if (pid != 0) return pid;
  if (number < CLIENTS)
    be_client(number, life);
  else
    be_direct(number, life);
  _exit(0);
}

/* ------------------------------------------------------------------------
 * A round
 * --------------------------------------------------------------------- */

static struct scene {
  uint64_t random;
  pid_t server[SERVERS], user[USERS];
  int lives;
} scene;

/* A killed server must leave nothing that stops its successor. */
static void start_server(int i) {
  static const char *const options[] = {"--timeout-min", "500ms",
                                        "--connections", "0", NULL};
  int port = 0;
  scene.server[i] = peer_serve(program, database, options, &port);
  if (!scene.server[i]) complain("server %d does not begin", i);
  atomic_store(&shared->port[i], port);
}

static void kill_server(int i) {
  if (!scene.server[i]) return;
  atomic_store(&shared->port[i], 0);
  program_kill(scene.server[i]);
  scene.server[i] = 0;
}

/* Kill a direct user, whose session ends immediately, or a client, whose
 * session must time out: until then it may hold the lock. */
static void kill_user(void) {
  bool direct = below(&scene.random, 3);
  int i = direct ? CLIENTS + below(&scene.random, DIRECT)
                 : below(&scene.random, CLIENTS);
  program_kill(scene.user[i]);
  scene.user[i] = start_user(i, ++scene.lives);
}

/* How long there is no server, in ms: longer than a session's timeout, about as
 * long, or a moment. */
static int outage(int n) {
  if (n < 2) return 4500;
  return below(&scene.random, n < 6 ? 2500 : 200);
}

/* One kill: of a server, of both servers together, or of a user.  Now and then
 * there is no server for longer than a session's timeout. */
static int one_kill(void) {
  pause_ms(20 + below(&scene.random, 250));
  int n = below(&scene.random, 100);
  if (n < 20) {
    kill_user();
    return 1;
  }
  int i = below(&scene.random, SERVERS), killed = 1;
  kill_server(i);
  if (n < 40) {
    kill_server(1 - i);
    killed = 2;
    pause_ms(outage(n - 20));
    start_server(1 - i);
  }
  pause_ms(below(&scene.random, 100));
  start_server(i);
  return killed;
}

static void make_tree(void) {
  static const char *const paths[] = {"/counter", "/guarded", "/lock", "/queue",
                                      "/sessions"};
  enum { NUMBERS = 2 }; /* the first of them; a lock's node is empty */
  zke *z;
  must(zke_open(database, NULL, &z), "zke_open");
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    must(zke_create(z, paths[i], "0", i < NUMBERS, ZKE_OPEN_ACL, 0, NULL, NULL),
         paths[i]);
  must(zke_close(z), "zke_close");
}

/* The users must end regularly, within the time. */
static void stop_users(void) {
  int64_t end = program_ms() + SETTLE_MS;
  atomic_store(&shared->stop, 1);
  for (int i = 0; i < USERS; i++) {
    int status = 0;
    if (!program_await(scene.user[i], end, &status)) {
      atomic_store(&shared->stop, 2);
      if (!program_await(scene.user[i], end + 5000, &status)) {
        complain("user %d does not end", i);
        program_kill(scene.user[i]);
      }
    }
    if (status != 0) complain("user %d has ended with %#x", i, status);
  }
}

/* Skip servers that have not started: killing number 0 would kill this process
 * too. */
static void stop_servers(void) {
  for (int i = 0; i < SERVERS; i++) {
    int status = 0;
    if (!scene.server[i]) continue;
    kill(scene.server[i], SIGTERM);
    waitpid(scene.server[i], &status, 0);
    if (status != 0) complain("server %d has ended with %#x", i, status);
  }
}

/* ---- looking at what is left ---- */

static void violated(void *context, const char *sentence) {
  (void)context;
  complain("zke_check: %s", sentence);
}

/* Wait until the ended sessions' nodes are gone, by the timeout at the
 * latest. */
static void await_empty(zke *z, const char *path) {
  int64_t end = program_ms() + SETTLE_MS;
  for (;;) {
    zke_stat stat;
    must(zke_exists(z, path, NULL, NULL, &stat), path);
    if (stat.numChildren == 0) return;
    if (program_ms() > end) {
      complain("%s has %d nodes of sessions that are over", path,
               stat.numChildren);
      return;
    }
    zke_wait(z, 50);
  }
}

/* Each step of the number was made once. */
static void judge_number(zke *z, const char *path, tally *t) {
  char *data;
  int len;
  zke_stat stat;
  must(zke_get(z, path, NULL, NULL, &data, &len, &stat), path);
  long value = atol(data), least = atomic_load(&t->acknowledged),
       most = atomic_load(&t->tried);
  if (value != stat.version)
    complain("%s is %ld in version %d", path, value, stat.version);
  if (value < least || value > most)
    complain("%s is %ld, after %ld acknowledged steps of %ld", path, value,
             least, most);
  zke_free(data);
}

/* Count how often each item is in the queue. */
static void list_queue(zke *z, char (*there)[ITEMS]) {
  zke_strings *names;
  must(zke_children(z, "/queue", NULL, NULL, &names, NULL), "/queue");
  for (int i = 0; i < names->count; i++) {
    char path[TEXT], *data;
    int len, number, n;
    snprintf(path, sizeof path, "/queue/%s", names->data[i]);
    must(zke_get(z, path, NULL, NULL, &data, &len, NULL), path);
    if (sscanf(data, "%d %d", &number, &n) == 2 && item_of(data))
      there[number][n]++;
    zke_free(data);
  }
  zke_free(names);
}

static void judge_item(int number, int n, int there) {
  const item *it = &shared->item[number][n];
  const char *what = NULL;
  if (there > 1) what = "is there twice";
  if (there && atomic_load(&it->taken)) what = "was taken, and is there";
  if (there && !atomic_load(&it->put)) what = "was refused, and is there";
  if (atomic_load(&it->put) == 2 && !there && !atomic_load(&it->taken) &&
      !atomic_load(&it->perhaps))
    what = "is lost";
  if (what) complain("item \"%d %d\" %s", number, n, what);
}

static void judge_queue(zke *z) {
  char(*there)[ITEMS] = calloc(USERS, sizeof *there);
  if (!there) must(ZKE_NOMEM, "calloc");
  list_queue(z, there);
  for (int i = 0; i < USERS; i++)
    for (int n = 0; n < atomic_load(&shared->items[i]); n++)
      judge_item(i, n, there[i][n]);
  free(there);
}

static void judge(void) {
  char command[1300];
  zke *z;
  must(zke_open(database, NULL, &z), "zke_open");
  await_empty(z, "/lock");
  await_empty(z, "/sessions");
  judge_number(z, "/counter", &shared->counter);
  judge_number(z, "/guarded", &shared->guarded);
  judge_queue(z);
  if (zke_check(z, violated, NULL) != 0) complain("zke_check fails");
  must(zke_close(z), "zke_close");
  snprintf(command, sizeof command, "'%s' '%s' check >/dev/null", program,
           database);
  if (system(command) != 0) complain("zke check fails");
}

/* One round, from an empty file to its checks; returns the kills. */
static int play(int kills, const char *disk, bool on_disk) {
  int killed = 0;
  memset(shared, 0, sizeof *shared);
  scene = (struct scene){.random = round_seed};
  program_directory(directory, sizeof directory, "serve-torture", disk,
                    !on_disk);
  snprintf(database, sizeof database, "%s/db", directory);
  make_tree();
  for (int i = 0; i < SERVERS; i++) start_server(i);
  for (int i = 0; i < USERS; i++) scene.user[i] = start_user(i, 0);
  while (killed < kills && !stopped && !atomic_load(&shared->complaints))
    killed += one_kill();
  pause_ms(100);
  stop_users();
  stop_servers();
  judge();
  if (atomic_load(&shared->complaints))
    printf("SEED=%" PRIu64 ": files kept in %s\n", round_seed, directory);
  else
    program_remove(directory);
  return killed;
}

static struct totals {
  long kills, rounds, bad, answers, returns, refusals, steps, items;
  long locks, direct_locks;
} totals;

static void add_up(int killed) {
  totals.kills += killed;
  totals.rounds++;
  totals.bad += atomic_load(&shared->complaints) != 0;
  totals.answers += atomic_load(&shared->answers);
  totals.returns += atomic_load(&shared->returns);
  totals.refusals += atomic_load(&shared->refusals);
  totals.locks += atomic_load(&shared->locks);
  totals.direct_locks += atomic_load(&shared->direct_locks);
  totals.steps += atomic_load(&shared->counter.acknowledged);
  for (int i = 0; i < USERS; i++) totals.items += shared->items[i];
}

/* A stopped run ends its round early, so it cleans up its processes and its
 * directory as always. */
static void stop(int signal) {
  (void)signal;
  stopped = 1;
}

static void listen_to_signals(void) {
  struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
}

int main(int argc, char **argv) {
  long kills = program_setting("KILLS", 200), seed = program_setting("SEED", 1);
  int64_t began = program_ms();
  mistake = program_setting("MISTAKE", NO_MISTAKE);
  program = argc > 1 ? argv[1] : "build/zke";
  shared = program_share(sizeof *shared);
  listen_to_signals();
  while (totals.kills < kills && totals.bad < 3 && !stopped) {
    long left = kills - totals.kills;
    round_seed = (uint64_t)seed++;
    add_up(play((int)(left < KILLS_A_ROUND ? left : KILLS_A_ROUND),
                argc > 2 ? argv[2] : ".", totals.rounds % 2 == 1));
  }
  printf(
      "serve_torture: %ld kills in %ld rounds, %ld answers, clients came back "
      "%ld times, %ld sessions had timed out; %ld locks of clients, %ld of "
      "direct users, %ld steps, %ld items; %.1f s\n%ld passed, %ld failed\n",
      totals.kills, totals.rounds, totals.answers, totals.returns,
      totals.refusals, totals.locks, totals.direct_locks, totals.steps,
      totals.items, (double)(program_ms() - began) / 1e3,
      totals.rounds - totals.bad, totals.bad);
  return totals.bad || stopped ? 1 : 0;
}
