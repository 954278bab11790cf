/* test_lab_tables: the laboratory's tables do what SQLite does
 *
 * The laboratory searches on plain tables and replays what it has found on
 * SQLite, and refuses a finding that is not the same there.  So two processes
 * make calls by chance here, fold all that comes back into one number, and tell
 * of it as a finding: the laboratory compares the two.
 *
 * Environment: SEED, the first seed; SEEDS, how many; OPS, calls of a process.
 */
#include "test/lab/zkembed-lab.h"
#include "test/test.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The laboratory puts these back before each schedule. */
static uint64_t sum, state;
static int ended;
static zke *first; /* the handle of one of the two */

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}

static int draw(int below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((state >> 33) % (uint64_t)below);
}

/* ---- what comes back ---- */

static void fold(const void *at, size_t size) {
  const unsigned char *bytes = at;
  for (size_t i = 0; i < size; i++)
    sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
}

static void fold_int(int64_t value) { fold(&value, sizeof value); }

static void fold_text(const char *text) {
  if (text) fold(text, strlen(text) + 1);
}

static void fold_stat(const zke_stat *s) {
  const int64_t all[] = {s->czxid,       s->mzxid,          s->ctime,
                         s->mtime,       s->version,        s->cversion,
                         s->aversion,    s->ephemeralOwner, s->dataLength,
                         s->numChildren, s->pzxid};
  fold(all, sizeof all);
}

static void fold_names(const zke_strings *names) {
  fold_int(names ? names->count : -1);
  for (int i = 0; names && i < names->count; i++) fold_text(names->data[i]);
}

static void on_event(zke *z, int type, int event_state, const char *path,
                     void *context) {
  (void)z, (void)context;
  fold_int(type * 100 + event_state);
  fold_text(path);
}

/* ---- calls by chance ---- */

static char data[600];

static int some_length(void) {
  static const int lengths[] = {-1, 0, 1, 20, 200, 201, 600};
  return lengths[draw(7)];
}

/* Some are like others in their beginnings, or look like numbered ones. */
static const char *some_path(void) {
  static const char *const paths[] = {
      "/a",      "/b",    "/a/b", "/a/c",  "/a/b/d",           "/a/b/e",
      "/ab",     "/a/bb", "/t",   "/a/n-", "/a/n-00000000012", "/a/n-x",
      "/a/never"};
  return paths[draw((int)(sizeof paths / sizeof paths[0]))];
}

static const char *some_new_path(int mode) {
  static const char *const starts[] = {"/a/n-", "/b/n-", "/a/b/n-"};
  bool numbered = mode == ZKE_PERSISTENT_SEQUENTIAL ||
                  mode == ZKE_EPHEMERAL_SEQUENTIAL ||
                  mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
  return numbered ? starts[draw(3)] : some_path();
}

static void do_create(zke *z) {
  int mode = draw(7);
  char *path = NULL;
  zke_stat stat;
  memset(&stat, 0, sizeof stat);
  bool lives = mode == ZKE_PERSISTENT_WITH_TTL ||
               mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
  fold_int(zke_create_ttl(z, some_new_path(mode), data, some_length(),
                          ZKE_OPEN_ACL, mode, lives ? 1 + draw(2000) : -1,
                          &path, &stat));
  fold_text(path);
  fold_stat(&stat);
  zke_free(path);
}

static void do_change(zke *z) {
  zke_stat stat;
  memset(&stat, 0, sizeof stat);
  if (draw(2))
    fold_int(zke_delete(z, some_path(), draw(4) ? -1 : draw(3)));
  else
    fold_int(zke_set(z, some_path(), data, some_length(),
                     draw(4) ? -1 : draw(3), &stat));
  fold_stat(&stat);
}

static void do_read(zke *z) {
  char *bytes = NULL;
  int len = 0;
  zke_stat stat;
  zke_strings *names = NULL;
  memset(&stat, 0, sizeof stat);
  zke_watch_fn fn = draw(3) ? NULL : on_event;
  const char *path = some_path();
  switch (draw(3)) {
    case 0:
      fold_int(zke_exists(z, path, fn, NULL, &stat));
      break;
    case 1:
      fold_int(zke_get(z, path, fn, NULL, &bytes, &len, &stat));
      break;
    default:
      fold_int(zke_children(z, path, fn, NULL, &names, &stat));
      break;
  }
  if (len > 0) fold(bytes, (size_t)len);
  fold_int(len);
  fold_names(names);
  fold_stat(&stat);
  zke_free(bytes);
  zke_free(names);
}

static void do_multi(zke *z) {
  zke_op ops[4];
  zke_op_result results[4];
  int count = 1 + draw(4);
  memset(ops, 0, sizeof ops);
  memset(results, 0, sizeof results);
  for (int i = 0; i < count; i++) {
    int mode = draw(5);
    switch (draw(4)) {
      case 0:
        zke_op_create(&ops[i], some_new_path(mode), data, some_length(),
                      ZKE_OPEN_ACL, mode);
        break;
      case 1:
        zke_op_delete(&ops[i], some_path(), -1);
        break;
      case 2:
        zke_op_set(&ops[i], some_path(), data, some_length(), -1);
        break;
      default:
        zke_op_check(&ops[i], some_path(), draw(4) ? -1 : draw(3));
        break;
    }
  }
  fold_int(zke_multi(z, ops, count, results));
  for (int i = 0; i < count; i++) {
    fold_int(results[i].rc);
    fold_text(results[i].path);
    fold_stat(&results[i].stat);
  }
  zke_results_clear(results, count);
}

/* Changes of which some are refused, and with those between them a multi, in
 * one batch; now and then all of it is undone. */
static int some_changes(zke *z, void *context) {
  (void)context;
  for (int i = draw(5); i >= 0; i--) {
    int mode = draw(5);
    if (draw(3) == 0) {
      do_multi(z);
    } else if (draw(2) == 0) {
      fold_int(zke_create(z, some_new_path(mode), data, some_length(),
                          ZKE_OPEN_ACL, mode, NULL, NULL));
    } else {
      fold_int(zke_delete(z, some_path(), -1));
    }
  }
  do_read(z);
  return draw(3) ? ZKE_OK : ZKE_CANCELLED;
}

static void do_batch(zke *z) { fold_int(zke_batch(z, some_changes, NULL)); }

static void do_multi_read(zke *z) {
  zke_op ops[3];
  zke_op_result results[3];
  memset(ops, 0, sizeof ops);
  memset(results, 0, sizeof results);
  zke_op_get(&ops[0], some_path());
  zke_op_children(&ops[1], some_path(), draw(2) ? "b" : "n-", draw(3));
  zke_op_untold(&ops[2], some_path(), 3);
  fold_int(zke_multi_read(z, ops, 3, results));
  for (int i = 0; i < 3; i++) {
    fold_int(results[i].rc);
    fold_int(results[i].len);
    fold_names(results[i].children);
    fold_stat(&results[i].stat);
  }
  zke_results_clear(results, 3);
}

static void do_acl(zke *z) {
  static const zke_acl entries[] = {{ZKE_PERM_ALL, "world", "anyone"}};
  static const zke_acl less[] = {
      {ZKE_PERM_READ | ZKE_PERM_ADMIN, "world", "anyone"}};
  const zke_acls all[] = {{1, entries}, {1, less}};
  zke_acls *acls = NULL;
  zke_stat stat;
  memset(&stat, 0, sizeof stat);
  if (draw(2)) {
    fold_int(zke_set_acl(z, some_path(), draw(2) ? -1 : draw(3),
                         &all[draw(4) == 0], NULL));
    return;
  }
  fold_int(zke_get_acl(z, some_path(), &acls, &stat));
  for (int i = 0; acls && i < acls->count; i++) {
    fold_int(acls->data[i].perms);
    fold_text(acls->data[i].id);
  }
  fold_stat(&stat);
  zke_free(acls);
}

static void do_watch(zke *z) {
  const char *path = some_path();
  switch (draw(4)) {
    case 0:
      fold_int(zke_add_watch(z, path, draw(2), on_event, NULL));
      break;
    case 1:
      fold_int(zke_remove_watch(z, path, 1 + draw(3), on_event, NULL));
      break;
    case 2:
      fold_int(zke_remove_watch(z, path, 1 + draw(3), NULL, NULL));
      break;
    default:
      fold_int(zke_forget(z, on_event, NULL));
      break;
  }
}

static void do_look(zke *z) {
  int64_t count = 0, bytes = 0;
  int overdue = 0;
  zke_strings *paths = NULL;
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  fold_int(zke_count(z, draw(2) ? "/" : some_path(), &count));
  fold_int(count);
  fold_int(zke_usage(z, draw(2) ? "/" : some_path(), &count, &bytes));
  fold_int(count);
  fold_int(bytes);
  fold_int(zke_ephemerals(z, 0, "/", &paths));
  fold_names(paths);
  fold_int(zke_sessions(z, -1, &sessions));
  for (int i = 0; sessions && i < sessions->count; i++) {
    const zke_session_info *s = &sessions->data[i];
    fold_int(s->ephemerals + 100 * s->watches + 10000 * s->events);
    fold_text(s->identity);
  }
  fold_int(zke_watches(z, &watches));
  for (int i = 0; watches && i < watches->count; i++) {
    fold_text(watches->data[i].path);
    fold_int(watches->data[i].owner + watches->data[i].type);
  }
  fold_int(zke_overdue(z, &overdue));
  fold_int(overdue);
  zke_free(paths);
  zke_free(sessions);
  zke_free(watches);
}

static void do_discard(zke *z) {
  if (draw(2)) {
    fold_int(zke_discard(z, draw(2) ? "/a/n-" : "/b/n-",
                         ZKE_EPHEMERAL_SEQUENTIAL, 0));
  } else {
    fold_int(zke_discard(z, some_path(), ZKE_EPHEMERAL, 0));
  }
}

/* Another session of each process. */
static zke *others[2];

/* It is opened, and the next time it ends.  It watches all, and few events are
 * kept for it, so that they overflow. */
static void do_session(zke *z) {
  static int opened[2]; /* the laboratory keeps eight of a process */
  zke **other = &others[z == first];
  zke_options o = ZKE_INIT(zke_options);
  o.event_limit = 5;
  o.lease_ms = draw(2) ? 5000 : 0;
  if (!*other && opened[z == first]++ < 8) {
    fold_int(zke_open_session(z, &o, other));
    fold_int(zke_create(*other, some_path(), NULL, -1, ZKE_OPEN_ACL,
                        ZKE_EPHEMERAL, NULL, NULL));
    fold_int(zke_add_watch(*other, "/", ZKE_WATCH_PERSISTENT_RECURSIVE,
                           on_event, NULL));
    fold_int(zke_exists(*other, some_path(), on_event, NULL, NULL));
  } else if (*other) {
    if (draw(2)) fold_int(zke_expire(z, zke_session_id(*other)));
    fold_int(zke_close(*other));
    *other = NULL;
  }
}

static void do_rest(zke *z) {
  zke_stat stat;
  memset(&stat, 0, sizeof stat);
  switch (draw(4)) {
    case 0:
      fold_int(zke_raise_sequence(z, some_path(), draw(40), &stat));
      fold_stat(&stat);
      break;
    case 1:
      fold_int(zke_sleep(z, zke_now(z) + 1 + draw(draw(4) ? 1500 : 200000)));
      break;
    default:
      fold_int(zke_dispatch(z, NULL));
      break;
  }
}

static void call_by_chance(zke *z) {
  static void (*const calls[])(zke * z) = {
      do_create,     do_create, do_create, do_change, do_change,  do_read,
      do_read,       do_multi,  do_batch,  do_acl,    do_watch,   do_look,
      do_multi_read, do_rest,   do_rest,   do_rest,   do_discard, do_session};
  int call = draw((int)(sizeof calls / sizeof calls[0]));
  zke *other = others[z == first];
  bool mine = !other || calls[call] == do_session || draw(4);
  calls[call](mine ? z : other);
}

static void say(void *context, const char *sentence) {
  (void)context;
  zke_lab_fail("zke_check(): %s", sentence);
}

static void make_calls(zke *z, void *count) {
  if (!first) first = z;
  for (int i = 0; i < *(int *)count; i++) call_by_chance(z);
  fold_int(zke_check(z, say, NULL));
  if (++ended == 2) zke_lab_fail("the sum is %016" PRIx64, sum);
}

static void set_up(zke *z, void *seed) {
  state = *(uint64_t *)seed;
  sum = 0;
  ended = 0;
  first = NULL;
  memset(data, 'd', sizeof data);
  zke_create(z, "/a", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  zke_create(z, "/b", NULL, -1, ZKE_OPEN_ACL, ZKE_CONTAINER, NULL, NULL);
}

/* P1 to P9 hold of the tables because they hold of SQLite, call by call. */
TEST(tables_are_as_sqlite) {
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  zke_lab_result found;
  uint64_t seed = (uint64_t)number("SEED", 1);
  int calls = (int)number("OPS", 200);
  o.crashes = o.expiries = o.losses = o.pauses = -1;
  o.timeouts = o.leftovers = 1;
  o.steps = 4000;
  o.strategies = ZKE_LAB_RANDOM;
  for (int i = 0; i < number("SEEDS", 20); i++, seed++) {
    zke_lab *lab = NULL;
    o.seed = seed;
    ck_rc(zke_lab_new(&o, &lab), ZKE_OK);
    zke_lab_setup(lab, set_up, &seed);
    ck_rc(zke_lab_process(lab, "a", make_calls, &calls), ZKE_OK);
    ck_rc(zke_lab_process(lab, "b", make_calls, &calls), ZKE_OK);
    int rc = zke_lab_run(lab, &found);
    ck_assert_msg(rc == ZKE_OK, "SEED=%" PRIu64 ": %s", seed, zke_errmsg());
    ck_assert_msg(found.found && strstr(found.why, "the sum is"),
                  "SEED=%" PRIu64 ": %s", seed, found.why);
    zke_lab_free(lab);
  }
}
