/* test_batch.c - zke_batch(): calls with results of their own in one
 * transaction
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/seam.h"
#include "test/engine/calls.h"

static int create_stat(zke *z, const char *path, int mode, zke_stat *stat) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, stat);
}

/* Every test of this file runs on a file and in memory. */
enum { ON_FILE, IN_MEMORY, PLACES };
static zke *open_at(int place) {
  return test_open(place == ON_FILE ? test_path("db") : ":memory:");
}

/* ---- SQL that reads in a batch ---- */

/* Run a statement; returns SQLite's code. */
static int run_text(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid;
  return sqlite3_exec(db, context, NULL, NULL, NULL);
}

static int run_and_refuse(sqlite3 *db, int64_t zxid, void *context) {
  ck_assert_int_eq(run_text(db, zxid, context), SQLITE_OK);
  return 5000;
}

/* Call a function in a zke_multi_read(); returns its code. */
static int read_by(zke *z, zke_sql_fn fn, void *context) {
  zke_op op;
  zke_op_result result;
  zke_op_sql(&op, fn, context);
  ck_ok(zke_multi_read(z, &op, 1, &result));
  return result.rc;
}

static int note_zxid(sqlite3 *db, int64_t zxid, void *context) {
  (void)db;
  *(int64_t *)context = zxid;
  return ZKE_OK;
}

/* The zxid that a function is told before a change and after it. */
static int read_zxids(zke *z, void *context) {
  int64_t from = *(int64_t *)context, zxid = -1;
  ck_ok(read_by(z, note_zxid, &zxid));
  ck_assert_int_eq(zxid, from);
  make(z, "/a");
  make(z, "/b");
  ck_ok(read_by(z, note_zxid, &zxid));
  ck_assert_int_eq(zxid, from + 2);
  ck_assert_int_eq(zxid, zke_zxid());
  return ZKE_OK;
}

/* A function that reads in a batch is told the zxid of the state it sees. */
TEST_LOOP(reading_function_is_told_the_zxid, 0, PLACES) {
  zke *z = open_at(_i);
  int64_t from = test_zxid(z);
  ck_ok(zke_batch(z, read_zxids, &from));
}

/* Make a savepoint and a node, and return to the savepoint. */
static int go_back(zke *z, void *context) {
  char begin[] = "SAVEPOINT mine", back[] = "ROLLBACK TO mine";
  char ours[] = "ROLLBACK TO zkembed_function";
  bool refuses = *(int *)context != 0;
  int rc = read_by(z, refuses ? run_and_refuse : run_text, begin);
  ck_assert_int_eq(rc, refuses ? 5000 : ZKE_OK);
  make(z, "/a");
  ck_assert_int_eq(read_by(z, run_text, back), SQLITE_ERROR);
  ck_assert_int_eq(read_by(z, run_text, ours), SQLITE_AUTH);
  make(z, "/b");
  return ZKE_OK;
}

/* zkembed.h, zke_op_sql: SAVEPOINTs end with fn.  So a function that reads
 * cannot undo anything of the batch around it. */
TEST_LOOP(reading_function_undoes_nothing, 0, 2 * PLACES) {
  int refuses = _i / PLACES;
  zke *z = open_at(_i % PLACES);
  ck_ok(zke_batch(z, go_back, &refuses));
  ck_ok(see(z, "/a"));
  ck_ok(see(z, "/b"));
}

/* ---- results ---- */

/* Creates, a refusal, a change, a deletion, and between them a refused
 * multi. */
static int each(zke *z, void *context) {
  zke_stat a, b, set;
  zke_op ops[2];
  int64_t from = *(int64_t *)context;
  ck_ok(create_stat(z, "/a", ZKE_PERSISTENT, &a));
  ck_assert_int_eq(zke_zxid(), from + 1);
  ck_rc(create(z, "/a", ZKE_PERSISTENT), ZKE_NODEEXISTS);
  ck_assert_int_eq(zke_zxid(), from + 1);
  ck_rc(create(z, "/none/b", ZKE_PERSISTENT), ZKE_NONODE);
  ck_ok(create_stat(z, "/a/b", ZKE_EPHEMERAL, &b));
  ck_rc(create(z, "/a/b/c", ZKE_PERSISTENT), ZKE_NOCHILDRENFOREPHEMERALS);
  ck_rc(zke_delete(z, "/a", -1), ZKE_NOTEMPTY);
  zke_op_set(&ops[0], "/a", "lost", 4, -1);
  zke_op_check(&ops[1], "/a", 7);
  ck_rc(zke_multi(z, ops, 2, NULL), ZKE_BADVERSION);
  ck_ok(zke_set(z, "/a", "kept", 4, 0, &set));
  ck_ok(zke_delete(z, "/a/b", 0));
  ck_assert_int_eq(zke_zxid(), from + 4);
  ck_assert_int_eq(a.czxid, from + 1);
  ck_assert_int_eq(b.czxid, from + 2);
  ck_assert_int_eq(set.mzxid, from + 3);
  ck_assert_int_eq(test_stat(z, "/a").pzxid, from + 4);
  ck_assert_int_eq(zke_zxid(), from + 4);
  return ZKE_OK;
}

/* Each call of a batch has the result and the zxid that it would have alone.  A
 * refused call uses no zxid and undoes only itself. */
TEST_LOOP(each_call_has_its_own_result_and_zxid, 0, PLACES) {
  zke *z = open_at(_i);
  int64_t from = test_zxid(z);
  ck_ok(zke_batch(z, each, &from));
  ck_assert_int_eq(zke_zxid(), from + 4);
  zke_stat a = test_stat(z, "/a");
  ck_assert_int_eq(a.czxid, from + 1);
  ck_assert_int_eq(a.mzxid, from + 3);
  ck_assert_int_eq(a.cversion, 2);
  ck_assert_int_eq(a.version, 1);
  ck_assert_int_eq(test_zxid(z), from + 5);
}

/* A function that does nothing, and one that returns what it is given. */
static int answer(zke *z, void *context) {
  (void)z;
  return *(const int *)context;
}

/* A batch that changes nothing leaves no gap in the zxids. */
TEST_LOOP(a_batch_of_nothing_uses_no_zxid, 0, PLACES) {
  int rc = ZKE_OK;
  zke *z = open_at(_i);
  int64_t from = test_zxid(z);
  ck_ok(zke_batch(z, answer, &rc));
  ck_assert_int_eq(test_zxid(z), from + 1);
}

/* The changes of a batch that is undone. */
static int undone(zke *z, void *context) {
  zke_strings *names;
  make(z, "/b");
  make_as(z, "/b/e", ZKE_EPHEMERAL);
  ck_ok(zke_set(z, "/a", "new", 3, -1, NULL));
  ck_ok(zke_children(z, "/b", NULL, NULL, &names, NULL));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  return zke_fail(*(const int *)context, "thought better of it");
}

/* Any result of fn but ZKE_OK undoes everything, and is returned with its
 * sentence. */
TEST_LOOP(another_result_undoes_all, 0, PLACES) {
  static const int codes[] = {ZKE_NONODE, ZKE_CONNECTIONLOSS, 1};
  zke *z = open_at(_i);
  make(z, "/a");
  int64_t from = test_zxid(z);
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    int rc = codes[i];
    ck_rc(zke_batch(z, undone, &rc), rc);
    ck_says("thought better of it");
    ck_rc(see(z, "/b"), ZKE_NONODE);
    ck_assert_int_eq(test_stat(z, "/a").version, 0);
  }
  ck_assert_int_eq(test_zxid(z), from + 1);
}

/* ---- who sees it, and when ---- */

typedef struct outside {
  const char *db;
  int seen;
} outside;

/* Another thread with its own store, which this one sees as another process. */
static void *look_from_outside(void *arg) {
  outside *o = arg;
  zke_options options = ZKE_INIT(zke_options);
  options.flags = ZKE_OPEN_READONLY;
  zke *z = NULL;
  o->seen = zke_open(o->db, &options, &z);
  if (o->seen == ZKE_OK) o->seen = see(z, "/new");
  zke_close(z);
  return NULL;
}

static int make_while_others_look(zke *z, void *context) {
  make(z, "/new");
  ck_ok(see(z, "/new"));
  pthread_t thread = begin_thread(look_from_outside, context);
  pthread_join(thread, NULL);
  return ZKE_OK;
}

/* Other handles of the file see nothing of a batch while it runs, and all of it
 * afterwards. */
TEST(nobody_sees_it_before_it_is_committed) {
  outside o = {test_path("db"), 0};
  zke *z = test_open(o.db);
  ck_ok(zke_batch(z, make_while_others_look, &o));
  ck_rc(o.seen, ZKE_NONODE);
  look_from_outside(&o);
  ck_ok(o.seen);
}

/* A thread of the same store, which has to wait. */
static void *set_meanwhile(void *arg) {
  zke *z = arg;
  return (void *)(intptr_t)zke_set(z, "/a", "thread", 6, -1, NULL);
}

typedef struct meanwhile {
  pthread_t thread;
  zke *other;
} meanwhile;

static int begin_another_call(zke *z, void *context) {
  meanwhile *m = context;
  m->thread = begin_thread(set_meanwhile, m->other);
  for (int i = 0; i < 20; i++) {
    test_pause();
    ck_ok(zke_set(z, "/a", "batch", 5, i, NULL));
  }
  return ZKE_OK;
}

/* A call by another thread on a session of the same store is made after the
 * batch, not in the middle of it. */
TEST(other_threads_of_the_store_wait) {
  void *rc;
  zke *z = test_open(test_path("db"));
  meanwhile m = {.other = test_session(z, NULL)};
  make(z, "/a");
  ck_ok(zke_batch(z, begin_another_call, &m));
  ck_assert_int_eq(pthread_join(m.thread, &rc), 0);
  ck_rc((int)(intptr_t)rc, ZKE_OK);
  ck_assert_int_eq(test_stat(z, "/a").version, 21);
  ck_ok(zke_close(m.other));
}

/* ---- several sessions ---- */

typedef struct pair {
  zke *one, *two;
  test_events *events;
} pair;

static int by_both(zke *z, void *context) {
  pair *p = context;
  make_as(p->two, "/two", ZKE_EPHEMERAL);
  make_as(z, "/one", ZKE_EPHEMERAL);
  ck_ok(change(p->two, "/one"));
  return ZKE_OK;
}

/* Calls on another session of the store are also part of the batch, and the
 * nodes they create belong to that session. */
TEST_LOOP(sessions_of_the_store_take_part, 0, PLACES) {
  pair p = {.one = open_at(_i)};
  p.two = test_session(p.one, NULL);
  ck_ok(zke_batch(p.one, by_both, &p));
  ck_assert_int_eq(test_stat(p.one, "/one").ephemeralOwner,
                   zke_session_id(p.one));
  ck_assert_int_eq(test_stat(p.one, "/two").ephemeralOwner,
                   zke_session_id(p.two));
  ck_ok(zke_close(p.two));
  ck_rc(see(p.one, "/two"), ZKE_NONODE);
  ck_ok(zke_close(p.one));
}

/* The same for a light session; its carrier's dispatch delivers its events. */
static int by_light(zke *z, void *context) {
  const pair *p = context;
  make_as(p->two, "/two", ZKE_EPHEMERAL);
  ck_rc(zke_exists(p->two, "/one", test_record, p->events, NULL), ZKE_NONODE);
  make_as(z, "/one", ZKE_EPHEMERAL);
  return ZKE_OK;
}

/* A light session of the store takes part in a batch too, and its carrier's
 * dispatch delivers its events. */
TEST_LOOP(light_sessions_take_part, 0, PLACES) {
  static test_events heard;
  zke_options options = {.size = sizeof options, .flags = ZKE_OPEN_LIGHT};
  pair p = {.one = open_at(_i), .events = &heard};
  ck_ok(zke_open_session(p.one, &options, &p.two));
  ck_ok(zke_batch(p.one, by_light, &p));
  ck_assert_int_eq(test_stat(p.one, "/two").ephemeralOwner,
                   zke_session_id(p.two));
  test_expect(p.one, &heard, "CREATED /one");
  ck_ok(zke_close(p.two));
  ck_rc(see(p.one, "/two"), ZKE_NONODE);
  ck_ok(zke_close(p.one));
}

static int by_the_dead(zke *z, void *context) {
  pair *p = context;
  make(z, "/before");
  ck_rc(create(p->two, "/dead", ZKE_PERSISTENT), ZKE_SESSIONEXPIRED);
  ck_rc(create(p->two, "/dead", ZKE_PERSISTENT), ZKE_INVALIDSTATE);
  ck_rc(see(p->two, "/before"), ZKE_INVALIDSTATE);
  return ZKE_OK;
}

/* A session that was ended by another handle can do nothing in a batch of
 * another session. */
TEST(an_expired_session_is_refused_inside) {
  const char *db = test_path("db");
  zke *other = test_open(db);
  pair p = {.one = test_open(db)};
  p.two = test_session(p.one, NULL);
  ck_ok(zke_expire(other, zke_session_id(p.two)));
  ck_ok(zke_batch(p.one, by_the_dead, &p));
  ck_ok(see(p.one, "/before"));
  ck_ok(zke_expire(other, zke_session_id(p.one)));
  ck_rc(zke_batch(p.one, by_the_dead, &p), ZKE_SESSIONEXPIRED);
  ck_ok(zke_close(p.two));
  ck_ok(zke_close(p.one));
}

/* ---- what the store caches from its last transaction ---- */

/* A change and a read of both sessions, and a batch, so that the store has
 * cached all it can of its file. */
static void know(const pair *p, const char *path) {
  make(p->one, path);
  ck_ok(see(p->two, path));
  ck_ok(zke_batch(p->one, by_both, (void *)(uintptr_t)p));
  ck_ok(zke_delete(p->two, "/one", -1));
  ck_ok(zke_delete(p->two, "/two", -1));
}

/* The store's next change takes account of what another process did since the
 * last one: its zxid, its watches, and above all its end of a session. */
TEST(what_another_store_did_is_not_missed) {
  static test_events heard, above;
  const char *db = test_path("db");
  zke *other = test_open(db);
  pair p = {.one = test_open(db)};
  p.two = test_session(p.one, NULL);
  know(&p, "/a");
  ck_rc(zke_exists(other, "/b", test_record, &heard, NULL), ZKE_NONODE);
  ck_ok(zke_add_watch(other, "/a", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &above));
  make(p.one, "/b");
  make(p.two, "/a/c");
  test_expect(other, &heard, "CREATED /b");
  test_expect(other, &above, "CREATED /a/c");
  know(&p, "/d");
  int64_t zxid = test_zxid(other);
  ck_assert_int_eq(test_zxid(p.two), zxid + 1);
  know(&p, "/e");
  ck_ok(zke_expire(other, zke_session_id(p.two)));
  ck_rc(create(p.two, "/f", ZKE_EPHEMERAL), ZKE_SESSIONEXPIRED);
  ck_rc(see(p.two, "/e"), ZKE_INVALIDSTATE);
  ck_ok(zke_close(p.two));
  p.two = test_session(p.one, NULL);
  know(&p, "/g");
  ck_ok(zke_expire(other, zke_session_id(p.two)));
  ck_ok(zke_batch(p.one, by_the_dead, &p));
  ck_ok(zke_close(p.two));
  ck_ok(zke_close(p.one));
}

/* ---- watches and events ---- */

static int change_three(zke *z, void *context) {
  (void)context;
  make(z, "/w");
  ck_ok(change(z, "/w"));
  ck_rc(create(z, "/w", ZKE_PERSISTENT), ZKE_NODEEXISTS);
  ck_ok(zke_delete(z, "/w", -1));
  return ZKE_OK;
}

/* Watchers hear of every change of a batch, in order, after the commit, and of
 * none if the batch was undone. */
TEST_LOOP(events_come_in_order, 0, PLACES) {
  static test_events events;
  pair p = {.one = open_at(_i)};
  p.two = test_session(p.one, NULL);
  make(p.one, "/a");
  ck_ok(zke_add_watch(p.two, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &events));
  int rc = ZKE_NONODE;
  ck_rc(zke_batch(p.one, undone, &rc), ZKE_NONODE);
  test_expect(p.two, &events, "");
  ck_ok(zke_batch(p.one, change_three, NULL));
  test_expect(p.two, &events, "CREATED /w; CHANGED /w; DELETED /w");
  ck_ok(zke_close(p.two));
  ck_ok(zke_close(p.one));
}

static test_events events, more;

/* One-shot watches that are set, fire, and are set again in one batch; also two
 * by one function on one node. */
static int watch_and_change(zke *z, void *context) {
  ck_rc(zke_exists(z, "/w", test_record, &events, NULL), ZKE_NONODE);
  ck_rc(zke_exists(z, "/w", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_children(z, "/", test_record, &more, NULL, NULL));
  make(z, "/w");
  ck_ok(zke_exists(z, "/w", test_record, &events, NULL));
  ck_ok(change(z, "/w"));
  ck_ok(zke_set(z, "/w", "y", 1, -1, NULL));
  ck_ok(zke_get(z, "/w", test_record, &events, NULL, NULL, NULL));
  ck_ok(zke_add_watch(z, "/p", ZKE_WATCH_PERSISTENT, test_record, &more));
  make(z, "/p");
  return *(const int *)context;
}

static const char *const heard = "CREATED /w; CHANGED /w";

/* A watch that is set in a batch sees the later changes of that batch, and is
 * called once for each event.  Watches that have not fired stay. */
TEST_LOOP(watches_that_are_set_inside, 0, PLACES) {
  int rc = ZKE_OK;
  zke *z = open_at(_i);
  ck_ok(zke_batch(z, watch_and_change, &rc));
  int count;
  ck_ok(zke_dispatch(z, &count));
  test_expect(z, &events, heard);
  test_expect(z, &more, "CHILD /; CREATED /p");
  ck_ok(zke_set(z, "/w", "z", 1, -1, NULL));
  ck_ok(zke_delete(z, "/p", -1));
  test_expect(z, &events, "CHANGED /w");
  test_expect(z, &more, "DELETED /p");
}

/* The same, undone: no row is left, no watcher is called, and earlier watches
 * stay. */
TEST_LOOP(watches_that_are_undone, 0, PLACES) {
  zke_watch_list *list = NULL;
  int rc = ZKE_BROKEN;
  zke *z = open_at(_i);
  ck_rc(zke_batch(z, watch_and_change, &rc), ZKE_BROKEN);
  ck_ok(zke_watches(z, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_rc(zke_exists(z, "/w", test_record, &events, NULL), ZKE_NONODE);
  ck_rc(zke_batch(z, watch_and_change, &rc), ZKE_BROKEN);
  make(z, "/w");
  test_expect(z, &events, "CREATED /w");
  test_expect(z, &more, "");
}

typedef struct refused {
  int result;
  test_events *events;
} refused;

static int watch_what_is_refused(zke *z, void *context) {
  const refused *r = context;
  ck_rc(zke_get(z, "/none", test_record, r->events, NULL, NULL, NULL),
        ZKE_NONODE);
  ck_rc(zke_exists(z, "/none", test_record, r->events, NULL), ZKE_NONODE);
  ck_rc(zke_children(z, "/none", test_record, r->events, NULL, NULL),
        ZKE_NONODE);
  make(z, "/made");
  return r->result;
}

static test_events again;

/* Set watches again, one that has missed a change and one that has not, and
 * return the result in context. */
static int set_again(zke *z, void *context) {
  ck_ok(see(z, "/"));
  int64_t since = zke_zxid();
  ck_ok(zke_set(z, "/a", "", 0, -1, NULL));
  ck_ok(zke_set_watch(z, "/a", ZKE_WATCH_DATA, since, test_record, &again));
  ck_assert_int_eq(zke_zxid(), since + 1);
  ck_ok(zke_set_watch(z, "/b", ZKE_WATCH_DATA, since, test_record, &again));
  ck_ok(zke_set(z, "/b", "", 0, -1, NULL));
  return *(int *)context;
}

/* A missed change is reported after the batch is committed, in its order, and
 * not at all if the batch is undone. */
TEST_LOOP(watches_set_once_more_inside, 0, PLACES) {
  zke *z = open_at(_i);
  int rc = ZKE_CANCELLED;
  make(z, "/a");
  make(z, "/b");
  ck_rc(zke_batch(z, set_again, &rc), ZKE_CANCELLED);
  ck_rc(zke_check_watch(z, "/a", ZKE_WATCH_ANY, NULL, NULL), ZKE_NOWATCHER);
  ck_ok(zke_set(z, "/b", "", 0, -1, NULL));
  test_expect(z, &again, "");
  rc = ZKE_OK;
  ck_ok(zke_batch(z, set_again, &rc));
  test_expect(z, &again, "CHANGED /a; CHANGED /b");
}

/* A refused read registers nothing, and does not affect another registration
 * for the same path and function. */
TEST_LOOP(a_refused_watch_harms_no_other, 0, PLACES) {
  refused r = {ZKE_OK, &events};
  zke *z = open_at(_i);
  ck_ok(zke_batch(z, watch_what_is_refused, &r));
  make(z, "/none");
  test_expect(z, &events, "CREATED /none");
}

/* ---- what is discarded ---- */

typedef struct discarding {
  int result;
  int64_t czxid; /* of the new node */
} discarding;

static int discard_and_make(zke *z, void *context) {
  discarding *d = context;
  zke_stat stat;
  ck_ok(zke_discard(z, "/mine", ZKE_EPHEMERAL, 0));
  ck_rc(see(z, "/mine"), ZKE_NONODE);
  ck_ok(create_stat(z, "/mine", ZKE_EPHEMERAL, &stat));
  make(z, "/after");
  ck_ok(zke_discard(z, "/other", ZKE_EPHEMERAL, 0));
  ck_ok(zke_delete(z, "/after", -1));
  d->czxid = stat.czxid;
  return d->result;
}

/* A node that is made under the name of a discarded one stays. */
TEST_LOOP(what_is_discarded_goes_once, 0, PLACES) {
  discarding d = {ZKE_OK, 0};
  zke *z = open_at(_i);
  make_as(z, "/mine", ZKE_EPHEMERAL);
  make_as(z, "/other", ZKE_EPHEMERAL);
  ck_ok(zke_batch(z, discard_and_make, &d));
  make(z, "/later");
  ck_assert_int_eq(test_stat(z, "/mine").czxid, d.czxid);
  ck_rc(see(z, "/other"), ZKE_NONODE);
}

/* If the batch is undone, the next change still has to remove the node. */
TEST_LOOP(what_is_discarded_in_vain_goes_later, 0, PLACES) {
  discarding d = {ZKE_LOST, 0};
  zke *z = open_at(_i);
  make_as(z, "/mine", ZKE_EPHEMERAL);
  make_as(z, "/other", ZKE_EPHEMERAL);
  ck_rc(zke_batch(z, discard_and_make, &d), ZKE_LOST);
  make(z, "/later");
  ck_rc(see(z, "/mine"), ZKE_NONODE);
  ck_rc(see(z, "/other"), ZKE_NONODE);
}

/* ---- what is not allowed ---- */

static int misuse(zke *z, void *context) {
  zke *foreign = context, *made = NULL;
  const unsigned char password[16] = "";
  zke_op op;
  zke_op_result result;
  int n, rc = ZKE_OK;
  int64_t at;
  make(z, "/a");
  ck_rc(zke_batch(z, answer, &rc), ZKE_MISUSE);
  ck_rc(zke_batch(foreign, answer, &rc), ZKE_MISUSE);
  ck_rc(zke_open(test_path("new"), NULL, &made), ZKE_MISUSE);
  ck_rc(zke_open_session(z, NULL, &made), ZKE_MISUSE);
  ck_rc(zke_attach(z, 1, password, NULL, &made), ZKE_MISUSE);
  ck_rc(zke_rearm(z), ZKE_MISUSE);
  ck_assert_ptr_null(made);
  ck_rc(zke_close(z), ZKE_MISUSE);
  ck_rc(zke_close(foreign), ZKE_MISUSE);
  ck_rc(zke_wait(z, 0), ZKE_MISUSE);
  ck_rc(zke_dispatch(z, &n), ZKE_MISUSE);
  ck_rc(zke_sleep(z, 0), ZKE_MISUSE);
  ck_rc(zke_sleep(foreign, 0), ZKE_MISUSE);
  ck_rc(zke_compact(z, 0), ZKE_MISUSE);
  ck_rc(zke_expire(z, zke_session_id(z)), ZKE_MISUSE);
  ck_rc(zke_check(z, NULL, NULL), ZKE_MISUSE);
  ck_rc(zke_forget(z, test_record, &events), ZKE_MISUSE);
  ck_rc(zke_sync(z, "/"), ZKE_MISUSE);
  ck_rc(zke_remove_watch(z, "/", ZKE_WATCH_ANY, NULL, NULL), ZKE_MISUSE);
  ck_rc(create(foreign, "/a", ZKE_PERSISTENT), ZKE_MISUSE);
  ck_rc(see(foreign, "/"), ZKE_MISUSE);
  ck_rc(zke_discard(foreign, "/e", ZKE_EPHEMERAL, 0), ZKE_MISUSE);
  ck_rc(zke_wake(foreign), ZKE_MISUSE);
  ck_says("zke_wake() on another store");
  ck_ok(zke_wake(z));
  ck_rc(zke_sql_begin(z, NULL), ZKE_MISUSE);
  ck_says("zke_sql_begin()");
  ck_rc(zke_next_deadline(foreign, &at), ZKE_MISUSE);
  ck_assert_int_eq(zke_state(z), ZKE_STATE_CONNECTED);
  at = deadline_of(z);
  zke_op_get(&op, "/a");
  ck_ok(zke_multi_read(z, &op, 1, &result));
  ck_rc(result.rc, ZKE_OK);
  zke_results_clear(&result, 1);
  ck_ok(zke_count(z, "/", &at));
  return ZKE_OK;
}

/* None of them harms the batch, and each is allowed again after it. */
TEST_LOOP(calls_that_are_refused, 0, PLACES) {
  int rc = ZKE_OK;
  zke *z = open_at(_i), *foreign = test_open(test_path("foreign"));
  make_as(foreign, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_batch(z, misuse, foreign));
  ck_ok(see(z, "/a"));
  ck_ok(see(foreign, "/e"));
  ck_ok(zke_batch(foreign, answer, &rc));
  ck_rc(zke_batch(z, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_batch(NULL, answer, &rc), ZKE_BADARGUMENTS);
}

/* ---- failures outside of the transaction ---- */

/* A call that uses the handle only, between two changes. */
static int fail_beside(zke *z, void *context) {
  int fd = -1;
  (void)context;
  make(z, "/a");
  ck_rc(zke_keepalive_fd(z, &fd), ZKE_SYSTEMERROR);
  make(z, "/b");
  return ZKE_OK;
}

/* If no descriptor is available, the batch is not affected. */
TEST(failure_beside_a_batch_breaks_nothing) {
  seam s = {.fail = {[SEAM_dup] = {-EMFILE, .times = SEAM_ALWAYS}}};
  zke *z = open_as(test_path("db"), .os = seam_os(&s));
  ck_ok(zke_batch(z, fail_beside, NULL));
  ck_ok(see(z, "/a"));
  ck_ok(see(z, "/b"));
  ck_ok(zke_close(z));
}

/* A batch that a watcher runs. */
static void batch_in_callback(zke *z, int type, int state, const char *path,
                              void *context) {
  (void)type, (void)state, (void)path;
  *(int *)context = zke_batch(z, change_three, NULL);
}

/* A watcher may run a batch. */
TEST_LOOP(in_a_callback, 0, PLACES) {
  int rc = ZKE_CORRUPT, count;
  zke *z = open_at(_i);
  ck_rc(zke_exists(z, "/a", batch_in_callback, &rc, NULL), ZKE_NONODE);
  make(z, "/a");
  ck_ok(zke_dispatch(z, &count));
  ck_ok(rc);
}

/* ---- a function that does not return ---- */

static int leave_thread(zke *z, void *context) {
  (void)context;
  create(z, "/lost", ZKE_PERSISTENT);
  zke_exists(z, "/lost", test_record, &events, NULL);
  pthread_exit(NULL);
}

static void *run_leaving(void *arg) {
  zke_batch(arg, leave_thread, NULL);
  return NULL;
}

/* A function that ends its thread undoes the batch: none of its changes,
 * watches and locks stays, and the handle works. */
TEST_LOOP(one_that_ends_its_thread_leaves_nothing, 0, PLACES) {
  zke *z = open_at(_i), *other = NULL;
  if (_i == ON_FILE) other = test_open(test_path("db"));
  pthread_t thread = begin_thread(run_leaving, z);
  pthread_join(thread, NULL);
  ck_rc(see(z, "/lost"), ZKE_NONODE);
  make(z, "/a");
  if (other) make(other, "/b"); /* the gate is free */
  test_expect(z, &events, "");
}

typedef struct forking {
  const char *db;
  int status;
} forking;

/* In the child every call is refused.  It cannot open its own store: in its
 * memory SQLite has the parent's transaction open. */
static int in_the_child(zke *z, const char *db) {
  zke *own = NULL;
  if (create(z, "/child", ZKE_PERSISTENT) != ZKE_FORKED) return 2;
  if (zke_close(z) != ZKE_FORKED) return 3;
  return zke_open(db, NULL, &own) == ZKE_FORKED ? 0 : 4;
}

static int forks(zke *z, void *context) {
  forking *f = context;
  make(z, "/parent");
  pid_t pid = fork();
  if (pid == 0) _exit(in_the_child(z, f->db));
  ck_assert_int_eq(waitpid(pid, &f->status, 0), pid);
  ck_ok(see(z, "/parent"));
  return ZKE_OK;
}

/* In a child that is forked in a batch every call is refused; the parent's
 * batch is committed. */
TEST(a_child_that_is_forked_inside) {
  forking f = {test_path("child"), -1};
  zke *z = test_open(test_path("db"));
  ck_ok(zke_batch(z, forks, &f));
  ck_assert_int_eq(test_status(f.status), 0);
  ck_ok(see(z, "/parent"));
}

/* The child returns from the function. */
static int forks_and_returns(zke *z, void *context) {
  make(z, "/parent");
  *(pid_t *)context = fork();
  return ZKE_OK;
}

/* In a child that returns from the function, zke_batch() returns ZKE_FORKED and
 * commits nothing. */
TEST(a_child_that_returns) {
  pid_t pid = -1;
  zke *z = test_open(test_path("db"));
  int rc = zke_batch(z, forks_and_returns, &pid);
  if (pid == 0)
    _exit(rc == ZKE_FORKED && create(z, "/c", ZKE_PERSISTENT) == ZKE_FORKED
              ? 0
              : 2);
  ck_ok(rc);
  ck_assert_int_eq(test_child_end(pid), 0);
  ck_ok(see(z, "/parent"));
}

/* Cancellation is deferred until the batch is committed. */
static int cancel_self(zke *z, void *context) {
  (void)context;
  pthread_cancel(pthread_self());
  pthread_testcancel();
  return create(z, "/done", ZKE_PERSISTENT);
}

static void *run_cancelled(void *arg) {
  zke_batch(arg, cancel_self, NULL);
  pthread_testcancel();
  return NULL;
}

/* A thread that is cancelled in a batch ends after it: the batch is
 * committed. */
TEST(cancellation_waits) {
  void *ended;
  zke *z = test_open(":memory:");
  pthread_t thread = begin_thread(run_cancelled, z);
  pthread_join(thread, &ended);
  ck_assert_ptr_eq(ended, PTHREAD_CANCELED);
  ck_ok(see(z, "/done"));
}

/* ---- lost replies, lack of memory ---- */

static int make_two(zke *z, void *context) {
  int *made = context;
  if (create(z, "/1", ZKE_PERSISTENT) == ZKE_OK) ++*made;
  if (create(z, "/2", ZKE_PERSISTENT) == ZKE_OK) ++*made;
  return ZKE_OK;
}

/* A batch can lose its reply as a whole, before or after the commit; the calls
 * inside do not lose theirs one by one. */
TEST_LOOP(its_reply_can_be_lost, 0, PLACES) {
  int made = 0;
  zke *z = open_at(_i);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(zke_batch(z, make_two, &made), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(made, 2);
  ck_rc(see(z, "/1"), ZKE_NONODE);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 1));
  make(z, "/first");
  ck_rc(zke_batch(z, make_two, &made), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(made, 4);
  ck_ok(see(z, "/2"));
}

/* Reads in a batch do not count either. */
TEST_LOOP(no_read_inside_is_lost, 0, PLACES) {
  int rc = ZKE_OK;
  zke *z = open_at(_i);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_READ, 0));
  make(z, "/a");
  ck_ok(zke_batch(z, watch_and_change, &rc));
  ck_rc(see(z, "/w"), ZKE_CONNECTIONLOSS);
}

enum { STARVED = 6 };

typedef struct starving {
  test_heap heap;
  int at; /* the allocation that fails, from the function on */
  int result[STARVED], watched;
  bool reached; /* it was requested */
} starving;

enum { LARGE = 3000 }; /* such data is stored apart from its node */

/* Creations of each kind, one of which may run out of memory. */
static int make_starving(zke *z, void *context) {
  static char large[LARGE];
  starving *s = context;
  s->heap.fail_at = s->heap.calls + s->at;
  for (int i = 0; i < STARVED; i++) {
    char path[32];
    snprintf(path, sizeof path, "/s/%d", i);
    s->result[i] =
        zke_create(z, path, large, i % 2 ? LARGE : 3, ZKE_OPEN_ACL,
                   i % 3 ? ZKE_PERSISTENT : ZKE_EPHEMERAL, NULL, NULL);
    if (s->result[i] != ZKE_OK) ck_rc(s->result[i], ZKE_NOMEM);
  }
  s->watched =
      zke_add_watch(z, "/s", ZKE_WATCH_PERSISTENT_RECURSIVE, test_ignore, NULL);
  if (s->watched != ZKE_OK) ck_rc(s->watched, ZKE_NOMEM);
  s->reached = s->heap.calls >= s->heap.fail_at;
  s->heap.fail_at = 0;
  return ZKE_OK;
}

/* Each operation is complete or was not made, as its result says; a watch that
 * it fires is queued with it.  This holds if another session watches the
 * changed node, if it watches another node, and if there is no watch. */
TEST_LOOP(without_memory_no_half_is_left, 0, 3) {
  static const char *const watched[] = {"/s", "/else", NULL};
  starving s = {.reached = true};
  zke_options options = ZKE_INIT(zke_options);
  options.allocator = (zke_allocator){test_heap_resize, &s.heap};
  while (s.reached) {
    zke *z, *other;
    s.at++;
    test_remove(test_path("db"));
    test_remove(test_path("db-zke"));
    ck_ok(zke_open(test_path("db"), &options, &z));
    make(z, "/s");
    ck_ok(zke_open_session(z, NULL, &other));
    if (watched[_i])
      ck_ok(zke_add_watch(other, watched[_i], ZKE_WATCH_PERSISTENT_RECURSIVE,
                          test_record, &events));
    ck_ok(zke_batch(z, make_starving, &s));
    int made = 0;
    for (int i = 0; i < STARVED; i++) {
      char path[32];
      snprintf(path, sizeof path, "/s/%d", i);
      ck_rc(see(z, path), s.result[i] == ZKE_OK ? ZKE_OK : ZKE_NONODE);
      made += s.result[i] == ZKE_OK;
    }
    ck_ok(zke_check(z, NULL, NULL));
    int count;
    ck_ok(zke_dispatch(other, &count));
    ck_assert_int_eq(events.count, _i == 0 ? made : 0);
    events.count = 0;
    ck_ok(zke_close(other));
    ck_ok(zke_close(z));
    ck_assert_int_eq(s.heap.live, 0);
  }
  ck_assert_int_gt(s.at, STARVED);
}

/* ---- SQLite without memory ----
 *
 * One of its allocations fails, the n-th since the batch's first call. */

static sqlite3_mem_methods sqlite_real;
static long sqlite_fail; /* 1: the next one; 0: none */

static bool sqlite_fails(void) { return sqlite_fail && --sqlite_fail == 0; }

static void *sqlite_malloc(int size) {
  return sqlite_fails() ? NULL : sqlite_real.xMalloc(size);
}

static void *sqlite_realloc(void *block, int size) {
  return sqlite_fails() ? NULL : sqlite_real.xRealloc(block, size);
}

/* Before SQLite is used. */
static void starve_sqlite(void) {
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_real);
  sqlite3_mem_methods mine = sqlite_real;
  mine.xMalloc = sqlite_malloc;
  mine.xRealloc = sqlite_realloc;
  ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &mine), SQLITE_OK);
  sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
}

enum { CREATED, SET, DELETED, CREATED_LARGE, CHANGES };

typedef struct lacking {
  long at;
  int result[CHANGES];
} lacking;

/* One change of each kind, whatever the results of the earlier ones. */
static int change_lacking(zke *z, void *context) {
  static char large[LARGE];
  lacking *l = context;
  sqlite_fail = l->at;
  l->result[CREATED] = create(z, "/p/created", ZKE_PERSISTENT);
  l->result[SET] = change(z, "/p/set");
  l->result[DELETED] = zke_delete(z, "/p/deleted", -1);
  l->result[CREATED_LARGE] = zke_create(
      z, "/p/large", large, LARGE, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
  for (int i = 0; i < CHANGES; i++)
    if (l->result[i] != ZKE_OK) ck_rc(l->result[i], ZKE_NOMEM);
  return ZKE_OK;
}

/* Check that a change is there exactly if its result says so, or that none is
 * if the batch has failed. */
static void look_at_changes(zke *z, const lacking *l, int rc) {
  bool is[] = {
      see(z, "/p/created") == ZKE_OK, test_stat(z, "/p/set").version == 1,
      see(z, "/p/deleted") == ZKE_NONODE, see(z, "/p/large") == ZKE_OK};
  int children = 2;
  for (int i = 0; i < CHANGES; i++) {
    ck_assert_int_eq(is[i], rc == ZKE_OK && l->result[i] == ZKE_OK);
    if (is[i]) children += i == DELETED ? -1 : i != SET;
  }
  ck_assert_int_eq(test_stat(z, "/p").numChildren, children);
}

/* P2: if SQLite runs out of memory at any allocation, an operation of the batch
 * is complete or was not made, or nothing of the batch is left, and its result
 * says which.  Usually only the operation fails: preparing statements needs the
 * most memory, and comes before an operation's first write. */
TEST(sqlite_without_memory_leaves_no_half) {
  starve_sqlite();
  lacking l = {.at = 0};
  int broken = 0, times = 0;
  bool starved = true;
  while (starved) {
    const char *db = test_path("db");
    l.at++;
    test_remove(db);
    test_remove(test_path("db-zke"));
    zke *z = test_open(db);
    make(z, "/p");
    make(z, "/p/set");
    make(z, "/p/deleted");
    int rc = zke_batch(z, change_lacking, &l);
    starved = sqlite_fail == 0;
    sqlite_fail = 0;
    if (rc != ZKE_OK) ck_rc(rc, ZKE_NOMEM);
    times += starved;
    broken += rc != ZKE_OK;
    look_at_changes(z, &l, rc);
    ck_ok(zke_check(z, NULL, NULL));
    ck_ok(zke_close(z));
  }
  ck_assert_int_gt(times, 3 * broken);
}

/* ---- a full disk ---- */

enum { HEAVY = 40, LIGHT = 40000 };

typedef struct stubborn {
  int count, len;         /* creates, and the bytes of each */
  int made, first, later; /* successful creates; results after that */
  int read;
} stubborn;

/* Continues after errors, and returns ZKE_OK. */
static int go_on(zke *z, void *context) {
  static char data[100000];
  stubborn *s = context;
  for (int i = 0; i < s->count; i++) {
    char path[32];
    snprintf(path, sizeof path, "/heavy%d", i);
    int rc = zke_create(z, path, data, s->len, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                        NULL, NULL);
    if (rc == ZKE_OK) s->made++;
    if (rc != ZKE_OK && s->first == ZKE_OK) s->first = rc;
    if (s->first != ZKE_OK) s->later = rc;
  }
  s->read = see(z, "/kept");
  return ZKE_OK;
}

/* P2, P11: if the disk fills up in the middle, the batch is broken, and this
 * cannot be missed: each later call fails, and so does the batch.  The size of
 * the values decides how the failed call would be undone. */
TEST_LOOP(a_full_disk_breaks_it, 0, 2) {
  if (!test_small_disk("disk", 2048)) return;
  stubborn s = {_i ? LIGHT : HEAVY, _i ? 150 : 100000, 0, 0, 0, 0};
  zke_options options = ZKE_INIT(zke_options);
  options.cache_kib = 64; /* so that it is written before the end */
  zke *z = NULL;
  ck_ok(zke_open(test_path("disk/a.db"), &options, &z));
  make(z, "/kept");
  int64_t from = test_zxid(z);
  ck_rc(zke_batch(z, go_on, &s), ZKE_FULL);
  ck_assert_int_gt(s.made, 0);
  ck_rc(s.first, ZKE_FULL);
  ck_rc(s.later, ZKE_FULL);
  ck_rc(s.read, ZKE_FULL);
  ck_ok(see(z, "/kept"));
  ck_rc(see(z, "/heavy0"), ZKE_NONODE);
  ck_assert_int_eq(test_zxid(z), from + 1);
}
