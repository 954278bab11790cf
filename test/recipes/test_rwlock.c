/* test_rwlock.c - what only read/write locks promise (recipes/rwlock.h)
 *
 * test_lines tests what all lines promise.  Here are sharing, changes of mode
 * and revocation.  A model says who holds, in all short walks and in long
 * random ones.  The table of system calls lets another session act in the
 * middle of a call.
 */
#include "lines.h"
#include "recipes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/part/entry.h"
#include "recipes/lock.h"
#include "recipes/rwlock.h"

enum { READ = ZKE_RWLOCK_READ, WRITE = ZKE_RWLOCK_WRITE };

static zke_rwlock *make(zke *session) {
  zke_rwlock *lock;
  ck_ok(zke_rwlock_new(session, PATH, NULL, &lock));
  return lock;
}

/* A read/write lock whose listener notes its events under this name. */
static zke_rwlock *make_listening(zke *session, const char *who) {
  line = &line_kinds[LINE_READER];
  return make_party(session, &(line_options){.who = who});
}

/* Who holds and who waits: "R0 R1 (W2)", in the order of the queue. */
static const char *in_order(void) {
  static char text[200];
  zke_party_list *list;
  text[0] = '\0';
  ck_ok(zke_rwlock_parties(z[SESSIONS - 1], PATH, &list));
  for (int i = 0; i < list->count; i++) {
    const zke_party *p = &list->data[i];
    int who = 0;
    while (zke_session_id(z[who]) != p->session) who++;
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, p->held ? "%s%c%d" : "%s(%c%d)",
             used ? " " : "", p->kind[2], who);
  }
  zke_free(list);
  return text;
}

/* ---- who holds ---- */

/* Two readers hold together; the writer gets in only when the last one has
 * released. */
TEST(readers_share_and_a_writer_is_alone) {
  play_line(LINE_READER,
            "ann acquire read; bob acquire read; cid start write;"
            "line ann bob (cid);"
            "modes RR(W);"
            "ann check; bob check;"
            "cid check -> LOST;"
            "cid is WAITING;"
            "ann release; all dispatch;"
            "cid is WAITING;"
            "bob release; all dispatch;"
            "line cid;"
            "cid is HELD;"
            "told ann HELD, bob HELD, ann OUT, bob OUT, cid HELD");
}

/* "Writers not starved": a reader queues behind a waiting writer; the readers
 * behind one writer get in together. */
TEST(a_reader_queues_behind_a_writer) {
  play_line(LINE_READER,
            "ann start read;"
            "bob start write;"
            "cid try read -> HELD;"
            "said " PATH
            " is held by ann (pid ;"
            "cid start read;"
            "dan start read;"
            "line ann (bob) (cid) (dan);"
            "modes R(W)(R)(R);"
            "told ann HELD, cid OUT;"
            "ann release;"
            "all dispatch;"
            "line bob (cid) (dan);"
            "told ann OUT, bob HELD;"
            "bob release;"
            "all dispatch;"
            "line cid dan;"
            "told bob OUT, cid HELD, dan HELD");
}

/* If a waiting writer gives up, the readers behind it join those in front. */
TEST(a_writer_that_gives_up_lets_readers_in) {
  play_line(LINE_READER,
            "ann start read; bob start write; cid start read; bob release;"
            "all dispatch;"
            "line ann cid;"
            "cid is HELD");
}

/* One object is one contender, in one mode. */
TEST(an_object_in_use_is_refused) {
  play_line(LINE_READER,
            "ann start write;"
            "ann acquire write -> MISUSE;"
            "ann try read -> MISUSE;"
            "ann ask_now -> MISUSE;"
            "bob start read;"
            "bob acquire write -> MISUSE;"
            "bob upgrade -> LOST;"
            "bob downgrade -> LOST;"
            "ann upgrade -> MISUSE;"
            "line ann (bob);"
            "modes W(R);"
            "ann release; bob acquire read;"
            "bob downgrade -> MISUSE");
}

/* P11: invalid modes are refused; nothing is made. */
TEST(modes_are_checked) {
  open_line(LINE_READER);
  ck_rc(zke_rwlock_acquire(party[0], 0, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_rwlock_try(party[0], ZKE_LINE_LOCK), ZKE_BADARGUMENTS);
  ck_rc(zke_rwlock_start(party[0], 77), ZKE_BADARGUMENTS);
  ck_assert_int_eq(entries(z[0], PATH), 0);
}

/* A revocation does not ask another kind's entry, or a name that is no entry; a
 * change of mode and a request do not touch these. */
TEST(what_is_no_entry_is_not_asked) {
  static const char other[] = PATH "/__WRIT__0000000000";
  open_line(LINE_READER);
  ck_ok(zke_ensure_path(z[0], PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_set(z[0], PATH, "zkembed lock\n", 13, -1, NULL));
  play(
      "bob ask_now -> OTHERKIND;"
      "said " PATH " is of kind lock, not rwlock");
  ck_ok(zke_set(z[0], PATH, "", 0, -1, NULL));
  ck_ok(zke_create(z[3], other, "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  play(
      "ann try write; bob start read;"
      "cid ask_now -> OPERATIONTIMEOUT;"
      "ann downgrade; all dispatch; bob release; ann upgrade;"
      "ann release");
  ck_assert_int_eq(entries(z[0], PATH), 1);
  ck_ok(zke_delete(z[0], other, -1));
}

/* Another kind is also refused by an object that has only revoked here, when
 * the directory was still a rwlock's. */
TEST(a_directory_made_anew_by_another_kind_is_refused) {
  open_sessions();
  zke_rwlock *lock = make(z[0]);
  ck_ok(zke_rwlock_revoke(lock, soon(z[0]), 0));
  ck_ok(zke_delete(z[1], PATH, -1));
  ck_ok(zke_create(z[1], PATH, "zkembed queue\n", 14, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_rc(zke_rwlock_acquire(lock, READ, soon(z[0])), ZKE_OTHERKIND);
  ck_says("queue");
  ck_assert_int_eq(entries(z[0], PATH), 0);
  zke_rwlock_free(lock);
}

/* ---- against a model ---- */

/* The queue as it should be. */
typedef struct model {
  int count;
  struct {
    int who, mode;
  } at[SESSIONS];
  int64_t token[SESSIONS];  /* of those that hold */
  int64_t written, highest; /* the highest token of a writer, and of all */
} model;

static int model_find(const model *m, int who) {
  for (int i = 0; i < m->count; i++) {
    if (m->at[i].who == who) return i;
  }
  return -1;
}

/* Does the party at this place hold?  A writer holds if it is first, a reader
 * if it is before all writers. */
static bool model_holds(const model *m, int at) {
  if (m->at[at].mode == WRITE) return at == 0;
  for (int i = 0; i < at; i++) {
    if (m->at[i].mode == WRITE) return false;
  }
  return true;
}

static void model_remove(model *m, int at) {
  m->token[m->at[at].who] = 0;
  m->count--;
  for (int i = at; i < m->count; i++) m->at[i] = m->at[i + 1];
}

/* A token is higher than those of all earlier holders that excluded it. */
static void expect_token(model *m, int at) {
  int who = m->at[at].who;
  int64_t token = zke_rwlock_token(party[who]);
  if (token == m->token[who]) return;
  ck_assert_int_gt(token, m->at[at].mode == WRITE ? m->highest : m->written);
  m->token[who] = token;
  if (m->at[at].mode == WRITE) m->written = token;
  if (token > m->highest) m->highest = token;
}

/* Every party must see what the model says. */
static void expect_model(model *m) {
  char text[200] = "";
  dispatch_all();
  for (int i = 0; i < m->count; i++) {
    int who = m->at[i].who;
    bool holds = model_holds(m, i);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, holds ? "%s%c%d" : "%s(%c%d)",
             used ? " " : "", m->at[i].mode == READ ? 'R' : 'W', who);
    ck_assert_int_eq(zke_rwlock_state(party[who]),
                     holds ? ZKE_RWLOCK_HELD : ZKE_RWLOCK_WAITING);
    ck_assert_int_eq(zke_rwlock_mode(party[who]), m->at[i].mode);
    ck_assert_int_eq(zke_rwlock_check(party[who]), holds ? ZKE_OK : ZKE_LOST);
    if (holds) expect_token(m, i);
  }
  ck_assert_str_eq(in_order(), text);
}

enum { START_READ, START_WRITE, RELEASE, DOWNGRADE, UPGRADE, ACTIONS };

static bool can_upgrade(const model *m, int at) {
  return at == 0 && (m->count == 1 || m->at[1].mode == WRITE);
}

/* One step of a session, which must have the model's result.  False: it is
 * impossible here. */
static bool act(model *m, int who, int action) {
  int at = model_find(m, who);
  bool start = action == START_READ || action == START_WRITE;
  bool reads = at >= 0 && m->at[at].mode == READ;
  if (start != (at < 0)) return false;
  if (action >= DOWNGRADE && !model_holds(m, at)) return false;
  if (action >= DOWNGRADE && reads != (action == UPGRADE)) return false;
  if (start) {
    m->at[m->count].who = who;
    m->at[m->count++].mode = action == START_READ ? READ : WRITE;
    ck_ok(zke_rwlock_start(party[who], action == START_READ ? READ : WRITE));
  } else if (action == RELEASE) {
    model_remove(m, at);
    ck_ok(zke_rwlock_release(party[who]));
  } else if (action == DOWNGRADE) {
    m->at[at].mode = READ;
    ck_ok(zke_rwlock_downgrade(party[who]));
  } else if (can_upgrade(m, at)) {
    m->at[at].mode = WRITE;
    ck_ok(zke_rwlock_upgrade(party[who]));
  } else {
    ck_rc(zke_rwlock_upgrade(party[who]), ZKE_HELD);
  }
  return true;
}

/* Walk from the start: `steps` steps, then release all. */
static bool walk(const int *who, const int *action, int steps) {
  model m = {.count = 0};
  bool sense = true;
  for (int i = 0; i < steps && sense; i++) {
    sense = act(&m, who[i], action[i]);
    if (i == steps - 1 && sense) expect_model(&m);
    dispatch_all();
  }
  while (m.count > 0) {
    act(&m, m.at[m.count - 1].who, RELEASE);
  }
  dispatch_all();
  told[0] = '\0';
  return sense;
}

static int walks;

/* All walks that continue this one; sessions first appear in the order of their
 * numbers, since they are alike. */
static void walk_on(int *who, int *action, int depth, int used, int most) {
  if (depth > 0) {
    if (!walk(who, action, depth)) return;
    walks++;
  }
  if (depth == most) return;
  for (int w = 0; w <= used && w < 3; w++) {
    for (int a = 0; a < ACTIONS; a++) {
      who[depth] = w;
      action[depth] = a;
      walk_on(who, action, depth + 1, w == used ? used + 1 : used, most);
    }
  }
}

/* After every sequence of five actions of the sessions, the lock agrees with
 * the model. */
TEST(all_short_walks_are_as_the_model_says) {
  int who[8], action[8];
  open_line(LINE_READER);
  walk_on(who, action, 0, 0, 5);
  ck_assert_int_gt(walks, 500);
}

/* A session expires, or its znode is deleted: it loses, the others continue. */
static void strike(model *m, int who, bool expire) {
  int at = model_find(m, who);
  if (expire) {
    ck_ok(zke_expire(z[3], zke_session_id(z[who])));
    dispatch_all();
    ck_assert_int_eq(zke_rwlock_state(party[who]), ZKE_RWLOCK_LOST);
    zke_rwlock_free(party[who]);
    renew_session(who);
    party[who] = make_listening(z[who], "new");
  } else if (at >= 0) {
    zke_strings *own;
    ck_ok(zke_ephemerals(z[3], zke_session_id(z[who]), NULL, &own));
    ck_assert_int_eq(own->count, 1);
    ck_ok(zke_delete(z[3], own->data[0], -1));
    zke_free(own);
    dispatch_all();
    ck_assert_int_eq(zke_rwlock_state(party[who]), ZKE_RWLOCK_LOST);
    ck_rc(zke_rwlock_release(party[who]), ZKE_LOST);
  }
  if (at >= 0) model_remove(m, at);
}

/* The same for 2,500 random actions, with lost sessions and deleted znodes. */
TEST(long_random_walks_are_as_the_model_says) {
  unsigned random = test_seed();
  model m = {.count = 0};
  open_line(LINE_READER);
  for (int i = 0; i < 2500; i++) {
    int who = rand_r(&random) % 3, dice = rand_r(&random) % 40;
    if (dice % ACTIONS >= DOWNGRADE) dispatch_all(); /* it knows its turn */
    if (dice < 2)
      strike(&m, who, dice == 0);
    else
      act(&m, who, dice % ACTIONS);
    if (rand_r(&random) % 3) expect_model(&m);
    told[0] = '\0';
  }
  ck_assert_int_gt(m.written, 0);
  for (int i = 0; i < SESSIONS; i++) zke_rwlock_release(party[i]);
}

/* ---- changing the mode ---- */

/* A queued writer does not get in between: the reader has the writer's number
 * (CURATOR-276, CURATOR-621).  Its own state has not changed, so its listener
 * is not called. */
TEST(a_downgrade_keeps_its_place) {
  open_line(LINE_READER);
  play("ann try write");
  int64_t token = zke_rwlock_token(party[0]);
  play(
      "bob start read; cid start write; dan start read;"
      "ann downgrade;"
      "line ann bob (cid) (dan);"
      "modes RR(W)(R)");
  ck_assert_int_gt(zke_rwlock_token(party[0]), token);
  play(
      "all dispatch;"
      "bob is HELD;"
      "ann check;"
      "cid is WAITING;"
      "told ann HELD, bob HELD");
}

/* A reader becomes the writer only if it is the only holder, and then before a
 * waiting writer: two upgrading readers cannot wait for each other. */
TEST(an_upgrade_is_at_once_or_not_at_all) {
  open_line(LINE_READER);
  play(
      "ann try read;"
      "bob try read;"
      "ann upgrade -> HELD;"
      "said " PATH
      " is held by bob (pid ;"
      "bob upgrade -> HELD;"
      "said " PATH
      " is held by ann (pid ;"
      "ann check;"
      "modes RR;"
      "cid start write;"
      "ann release");
  int64_t token = zke_rwlock_token(party[1]);
  play(
      "bob upgrade; all dispatch;"
      "line bob (cid);"
      "modes W(W)");
  ck_assert_int_gt(zke_rwlock_token(party[1]), token);
  play(
      "bob release; all dispatch;"
      "line cid");
}

/* A session that has ended changes no mode. */
TEST(an_expired_session_changes_no_mode) {
  play_line(LINE_READER,
            "ann try write; bob start read; ann expires; all dispatch;"
            "ann is LOST;"
            "ann downgrade -> INVALIDSTATE;"
            "line bob;"
            "bob is HELD");
}

/* After a change of mode, operations that relied on the old znode fail. */
TEST(an_op_is_of_the_present_mode) {
  zke_op op[2];
  open_line(LINE_READER);
  ck_ok(zke_rwlock_try(party[0], WRITE));
  ck_ok(zke_rwlock_downgrade(party[0]));
  ck_ok(zke_rwlock_op(party[0], &op[0]));
  zke_op_create(&op[1], "/done", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_multi(z[0], op, 2, NULL));
  zke_op_set(&op[1], "/done", "1", 1, -1);
  zke_rwlock *thief = make(z[1]);
  ck_ok(zke_rwlock_revoke(thief, 0, 1));
  ck_rc(zke_multi(z[0], op, 2, NULL), ZKE_NONODE);
  ck_rc(zke_rwlock_check(party[0]), ZKE_LOST);
  ck_rc(zke_rwlock_downgrade(party[0]), ZKE_LOST);
  zke_rwlock_free(thief);
}

/* A change of mode does not restore a deleted place. */
TEST(a_change_of_mode_after_deletion_is_lost) {
  open_line(LINE_READER);
  for (int mode = WRITE; mode <= READ; mode++) {
    zke_strings *own;
    ck_ok(zke_rwlock_try(party[0], mode));
    ck_ok(zke_ephemerals(z[0], 0, NULL, &own));
    ck_ok(zke_delete(z[1], own->data[0], -1));
    ck_rc(mode == READ ? zke_rwlock_upgrade(party[0])
                       : zke_rwlock_downgrade(party[0]),
          ZKE_LOST);
    zke_free(own);
    ck_assert_int_eq(zke_rwlock_state(party[0]), ZKE_RWLOCK_LOST);
    ck_assert_int_eq(entries(z[1], PATH), 0);
  }
}

/* ---- in the middle of a call ---- */

static zke_rwlock *one, *other;

static void comes_to_read(void) { ck_ok(zke_rwlock_start(other, READ)); }
static void comes_to_write(void) { ck_ok(zke_rwlock_start(other, WRITE)); }

static void comes_and_upgrades(void) {
  ck_ok(zke_rwlock_start(other, READ));
  if (zke_rwlock_state(other) == ZKE_RWLOCK_HELD)
    ck_rc(zke_rwlock_upgrade(other), ZKE_HELD);
}

/* Never two holders that exclude each other. */
static void expect_one_of_them(int rc) {
  bool reads = zke_rwlock_state(other) == ZKE_RWLOCK_HELD &&
               zke_rwlock_mode(other) == READ;
  ck_assert_int_ne(zke_rwlock_state(other) == ZKE_RWLOCK_HELD,
                   zke_rwlock_state(other) == ZKE_RWLOCK_WAITING);
  ck_assert_int_eq(zke_rwlock_mode(one), rc == ZKE_OK ? WRITE : READ);
  ck_assert_int_eq(rc, reads ? ZKE_HELD : ZKE_OK);
  ck_ok(zke_rwlock_check(one));
}

/* Before each change of an upgrade, another party reads, writes or upgrades
 * too: never two holders that exclude each other. */
TEST_LOOP(an_upgrade_survives_others_in_its_middle, 0, 3) {
  static void (*const actions[])(void) = {comes_to_read, comes_to_write,
                                          comes_and_upgrades};
  int held = 0, n = 1;
  open_two();
  one = make(caller);
  other = make(intruder);
  for (bool more = true; more; n++) {
    ck_ok(zke_rwlock_try(one, READ));
    act_at(n, actions[_i]);
    int rc = zke_rwlock_upgrade(one);
    more = acted();
    zke_dispatch(intruder, NULL);
    if (more) expect_one_of_them(rc);
    held += rc == ZKE_HELD;
    ck_ok(zke_rwlock_release(one));
    zke_dispatch(intruder, NULL);
    if (more) ck_ok(zke_rwlock_check(other));
    if (more) ck_ok(zke_rwlock_release(other));
    zke_dispatch(caller, NULL);
    ck_assert_int_eq(entries(caller, PATH), 0);
  }
  ck_assert_int_gt(n, 2);
  if (actions[_i] != comes_to_write) ck_assert_int_gt(held, 0);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

/* Another reader whose znode may not be read still counts as a holder. */
TEST(a_hidden_reader_is_said_to_hold) {
  zke_strings *own;
  const zke_acl acl = {ZKE_PERM_ALL - ZKE_PERM_READ, "world", "anyone"};
  open_line(LINE_READER);
  for (int i = 0; i < 2; i++) ck_ok(zke_rwlock_try(party[i], READ));
  ck_ok(zke_ephemerals(z[1], 0, PATH "/_c_", &own));
  ck_ok(zke_set_acl(z[1], own->data[0], -1, &(zke_acls){1, &acl}, NULL));
  zke_free(own);
  ck_rc(zke_rwlock_upgrade(party[0]), ZKE_HELD);
  ck_says("the rwlock " PATH " is held; by which process cannot be read");
}

/* Delete what the caller has in line. */
static void take_away(void) {
  zke_strings *own;
  ck_ok(zke_ephemerals(intruder, zke_session_id(caller), PATH "/_c_", &own));
  for (int i = 0; i < own->count; i++) zke_delete(intruder, own->data[i], -1);
  zke_free(own);
}

/* The holder's znode is deleted anywhere in a change of mode, while another
 * party waits: the lock is lost, and this call or the next one says so. */
TEST_LOOP(a_change_of_mode_survives_its_loss_in_the_middle, 0, 2) {
  int n = 1;
  open_two();
  one = make(caller);
  other = make(intruder);
  for (bool more = true; more; n++) {
    ck_ok(zke_rwlock_try(one, _i ? READ : WRITE));
    ck_ok(zke_rwlock_start(other, WRITE));
    act_between(n, take_away);
    int rc = _i ? zke_rwlock_upgrade(one) : zke_rwlock_downgrade(one);
    more = acted();
    ck_assert(rc == ZKE_OK || (more && rc == ZKE_LOST));
    if (more) ck_rc(zke_rwlock_check(one), ZKE_LOST);
    zke_rwlock_release(one);
    dispatch_on(intruder);
    ck_ok(zke_rwlock_check(other));
    ck_ok(zke_rwlock_release(other));
    dispatch_on(caller);
    ck_assert_int_eq(entries(caller, PATH), 0);
  }
  ck_assert_int_gt(n, 5);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

/* An operation from before an upgrade fails after it, and still names the old
 * znode.  This holds also if the upgrade was undone, for which it makes two
 * znodes, and after a second upgrade. */
TEST(an_op_outlives_upgrades_that_go_back) {
  int back = 0;
  open_two();
  one = make(caller);
  other = make(intruder);
  bool more = true;
  for (int n = 1; more; n++) {
    zke_op op;
    ck_ok(zke_rwlock_try(one, READ));
    ck_ok(zke_rwlock_op(one, &op));
    char *path = strdup(op.path);
    for (int i = 0; i < 2; i++) {
      act_at(n, comes_to_read);
      int rc = zke_rwlock_upgrade(one);
      more = acted();
      back += rc == ZKE_HELD;
      if (more) ck_ok(zke_rwlock_release(other));
      if (rc == ZKE_OK) ck_ok(zke_rwlock_downgrade(one));
    }
    ck_assert_str_eq(op.path, path);
    ck_rc(zke_multi(caller, &op, 1, NULL), ZKE_NONODE);
    ck_ok(zke_rwlock_release(one));
    free(path);
  }
  ck_assert_int_gt(back, 0);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

static int asked_rc;

static void asks(void) {
  asked_rc = zke_rwlock_revoke(other, zke_now(intruder), 0);
}

/* The holder is asked after it got the lock, before it watches itself: it still
 * hears the request. */
TEST(a_request_in_the_middle_of_acquiring_is_heard) {
  int heard = 0;
  open_two();
  one = make_listening(caller, "one");
  other = make(intruder);
  for (int n = 1;; n++) {
    told[0] = '\0';
    asked_rc = ZKE_OK;
    act_at(n, asks);
    ck_ok(zke_rwlock_acquire(one, WRITE, soon(caller)));
    if (!acted()) break;
    while (zke_dispatch(caller, &(int){0}) == ZKE_OK && asked_rc &&
           !strstr(told, "ASKED")) {
      ck_rc(zke_wait(caller, soon(caller)), ZKE_OK);
    }
    heard += asked_rc == ZKE_OPERATIONTIMEOUT;
    ck_ok(zke_rwlock_release(one));
  }
  ck_assert_int_gt(heard, 0);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

static void downgrades(void) { zke_rwlock_downgrade(other); }

/* A holder that changes its mode while it is being asked, or deleted, does not
 * evade a revocation that insists. */
TEST(a_change_of_mode_in_the_middle_does_not_evade) {
  bool more = true;
  int n = 1;
  open_two();
  one = make(caller);
  other = make(intruder);
  for (; more; n++) {
    ck_ok(zke_rwlock_try(other, WRITE));
    act_at(n, downgrades);
    ck_ok(zke_rwlock_revoke(one, zke_now(caller), 1));
    more = acted();
    if (more) ck_assert_int_eq(zke_rwlock_mode(other), READ);
    ck_rc(zke_rwlock_check(other), ZKE_LOST);
    ck_rc(zke_rwlock_release(other), ZKE_LOST);
    ck_assert_int_eq(entries(caller, PATH), 0);
    zke_dispatch(caller, NULL); /* the same in each round */
    zke_dispatch(intruder, NULL);
  }
  ck_assert_int_gt(n, 3);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

enum { TIRELESS_MS = 3000 };
static int64_t tireless_until;

/* At each of the caller's reads, until the test has failed. */
static void changes_always(void) {
  bool writes = zke_rwlock_mode(other) == WRITE;
  if (zke_now(intruder) > tireless_until) return;
  writes ? zke_rwlock_downgrade(other) : zke_rwlock_upgrade(other);
  act_between(1, changes_always);
}

/* A holder that changes its mode at each read is asked, or loses the lock, no
 * later than the deadline and its grace. */
TEST_LOOP(a_holder_that_changes_its_mode_all_the_time_ends_the_call, 0, 2) {
  open_two();
  one = make(caller);
  other = make(intruder);
  ck_ok(zke_rwlock_try(other, WRITE));
  int64_t began = zke_now(intruder);
  tireless_until = began + TIRELESS_MS;
  act_between(1, changes_always);
  int rc = zke_rwlock_revoke(one, zke_now(intruder) + 10, _i);
  acted();
  ck_assert_int_lt(zke_now(intruder) - began, TIRELESS_MS);
  if (!_i) ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

/* The holder releases, the empty container is removed, and the holder comes
 * again, with the same number. */
static void comes_again(void) {
  int rc = zke_rwlock_release(other);
  ck_assert(rc == ZKE_OK || rc == ZKE_LOST);
  ck_ok(zke_delete(intruder, PATH, -1));
  ck_ok(zke_rwlock_try(other, WRITE));
}

/* A revocation that insists takes away what was held when it asked, not what
 * the same session holds in a directory that was made again meanwhile. */
TEST(a_holding_in_the_next_directory_is_not_taken_away) {
  bool more = true;
  int n = 1;
  open_two();
  one = make(caller);
  other = make(intruder);
  for (; more; n++) {
    ck_ok(zke_rwlock_try(other, WRITE));
    act_at(n, comes_again);
    ck_ok(zke_rwlock_revoke(one, zke_now(caller), 1));
    more = acted();
    ck_rc(zke_rwlock_check(other), more ? ZKE_OK : ZKE_LOST);
    ck_rc(zke_rwlock_release(other), more ? ZKE_OK : ZKE_LOST);
    ck_ok(zke_delete(caller, PATH, -1)); /* the numbers begin again */
    zke_dispatch(caller, NULL);          /* the same in each round */
    zke_dispatch(intruder, NULL);
  }
  ck_assert_int_gt(n, 3);
  zke_rwlock_free(one);
  zke_rwlock_free(other);
}

/* ---- circles ---- */

static zke_rwlock *make_at(zke *session, const char *path, int no_check) {
  zke_rwlock *lock;
  zke_rwlock_options o = {.size = sizeof o, .no_deadlock_check = no_check};
  ck_ok(zke_rwlock_new(session, path, &o, &lock));
  return lock;
}

/* Each reads one path and wants to write the other's. */
static int read_then_write(call *c) {
  zke_rwlock *reads = make_at(z[1], "/b", 0);
  int rc = zke_rwlock_acquire(reads, READ, c->deadline);
  if (rc == ZKE_OK) rc = zke_rwlock_acquire(c->object, WRITE, c->deadline);
  zke_rwlock_free(reads);
  return rc;
}

/* Each of two reads what the other waits to write: the call that closes the
 * circle reports it. */
TEST(readers_that_want_to_write_make_a_circle) {
  call c;
  open_line(LINE_READER);
  zke_rwlock *reads = make_at(z[0], PATH, 0), *writes = make_at(z[0], "/b", 0);
  ck_ok(zke_rwlock_try(reads, READ));
  call_begin(&c, read_then_write, party[1], 0, soon(z[1]));
  ck_until(entries(z[0], PATH) == 2, 5000);
  ck_rc(zke_rwlock_acquire(writes, WRITE, soon(z[0])), ZKE_DEADLOCK);
  ck_says("/b is held by bob");
  zke_rwlock_free(reads);
  call_end(&c);
  ck_ok(c.rc);
  zke_rwlock_free(writes);
}

/* A reader that wants to write by another object waits for itself: found
 * immediately.  An upgrade succeeds or returns ZKE_HELD. */
TEST(a_reader_that_waits_to_write_is_a_circle) {
  play_line(LINE_READER,
            "ann try read;"
            "ann' acquire write -> DEADLOCK;"
            "said this thread;"
            "line ann");
}

/* A thread that reads, and reads again behind a writer that waits for it.
 * Without the writer it may read again. */
TEST(reading_again_behind_a_writer_is_a_circle) {
  play_line(LINE_READER,
            "ann try read; ann' acquire read; ann' release;"
            "bob waits write;"
            "ann' acquire read -> DEADLOCK;"
            "said bob;"
            "ann release; bob returns");
}

/* A circle through two kinds: a waiting writer holds a lock, and one of the two
 * readers in front of it waits for that lock. */
TEST(a_lock_and_a_rwlock_can_make_a_circle) {
  play_line(LINE_READER,
            "ann try read;"
            "bob try read;"
            "cid locks;"
            "cid waits write;"
            "ann locks -> DEADLOCK;"
            "said /beside is held by cid;"
            "said " PATH
            ", held by this thread;"
            "ann release;"
            "bob release;"
            "cid returns");
}

/* ---- revoking ---- */

/* Asks, hears, consents. */
TEST(a_holder_is_asked_and_consents) {
  play_line(LINE_READER,
            "ann try write;"
            "told ann HELD;"
            "bob begins ask; ann hears ASKED;"
            "told ann ASKED;"
            "ann is HELD;"
            "ann check; ann release; bob returns;"
            "told ann OUT");
}

/* A change of mode is not a release: the holder is asked again. */
TEST(a_downgrade_does_not_evade) {
  play_line(LINE_READER,
            "ann try write; bob begins ask; ann hears ASKED;"
            "told ann HELD, ann ASKED;"
            "ann downgrade; ann hears ASKED;"
            "line ann;"
            "ann upgrade; ann release; bob returns");
}

/* A cancel ends a revocation that waits for consent; the holder was asked, and
 * keeps the lock. */
TEST(revoking_can_be_cancelled) {
  play_line(LINE_READER,
            "ann try write; bob begins ask; ann hears ASKED; bob cancels;"
            "bob returns -> CANCELLED;"
            "ann check;"
            "bob watches 0");
}

static void complies(void *x, int event) {
  if (event == ZKE_RWLOCK_ASKED) ck_ok(zke_rwlock_release(x));
}

/* A holder's listener releases inside the dispatch that asks it: the revocation
 * continues. */
TEST(a_listener_may_comply) {
  line_hook = complies;
  play_line(LINE_READER,
            "ann try write; bob begins ask; ann hears OUT; bob returns;"
            "line");
}

/* Only the holders at the time of the call are asked, not the waiters.  A
 * session that has lost the lock may ask others. */
TEST(a_waiter_is_not_asked) {
  open_line(LINE_READER);
  play(
      "ann try write; bob start read; cid insist; all dispatch;"
      "line bob;"
      "modes R");
  ck_assert_ptr_null(strstr(told, "bob ASKED"));
  play(
      "ann insist;"
      "line;"
      "ann ask_now"); /* no holder: done */
}

/* The request written without the recipe, as in ZooKeeper's text.  A holder
 * that was already asked is not told again. */
TEST(the_bare_word_asks_too) {
  zke_strings *own;
  open_line(LINE_READER);
  play("ann try read");
  ck_ok(zke_ephemerals(z[0], 0, NULL, &own));
  ck_ok(zke_set(z[1], own->data[0], "unlocked", 8, -1, NULL));
  play(
      "all dispatch;"
      "told ann HELD");
  ck_ok(zke_set(z[1], own->data[0], "unlock", 6, -1, NULL));
  play(
      "all dispatch;"
      "told ann ASKED;"
      "bob ask_now -> OPERATIONTIMEOUT;"
      "all dispatch;"
      "told");
  zke_free(own);
}

/* An allocation fails anywhere in a downgrade: the code says whether it was
 * made, and the holder hears requests in either case. */
TEST(a_downgrade_hears_requests_whatever_fails_once) {
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int failed = 0;
  ck_ok(zke_open(":memory:", &o, &z[0]));
  for (bool more = true; more;) {
    zke_strings *own;
    zke_rwlock *lock = make_listening(z[0], "ann");
    ck_ok(zke_rwlock_try(lock, WRITE));
    heap.fail_at = heap.calls + ++failed;
    int rc = zke_rwlock_downgrade(lock);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_assert(rc == ZKE_OK || (more && rc == ZKE_NOMEM));
    ck_assert_int_eq(zke_rwlock_mode(lock), rc == ZKE_OK ? READ : WRITE);
    told[0] = '\0';
    ck_ok(zke_ephemerals(z[0], 0, PATH "/_c_", &own));
    ck_assert_int_eq(own->count, 1);
    ck_ok(zke_set(z[0], own->data[0], "unlock", 6, -1, NULL));
    zke_free(own);
    ck_until((dispatch_on(z[0]), told[0]), 5000);
    ck_told("ann ASKED");
    zke_rwlock_free(lock);
  }
  ck_assert_int_gt(failed, 3);
  ck_ok(zke_close(z[0]));
}

/* A request writes the word of ZooKeeper's text in front of the owner and the
 * user's data. */
TEST(a_request_keeps_the_users_data) {
  zke_party_list *list;
  zke_strings *own;
  char *data;
  zke_rwlock *lock;
  zke_rwlock_options o = {.size = sizeof o, .data = "mine", .len = 4};
  open_line(LINE_READER);
  ck_ok(zke_rwlock_new(z[0], PATH, &o, &lock));
  ck_ok(zke_rwlock_try(lock, READ));
  for (int i = 0; i < 2; i++) /* twice does no harm */
    ck_rc(zke_rwlock_revoke(party[1], zke_now(z[1]), 0), ZKE_OPERATIONTIMEOUT);
  ck_says(PATH " is held by ann (pid ");
  ck_assert_int_eq(watches(z[1]), 0);
  ck_ok(zke_ephemerals(z[0], 0, NULL, &own));
  ck_ok(zke_get(z[0], own->data[0], NULL, NULL, &data, NULL, NULL));
  ck_assert_int_eq(strncmp(data, "unlock ", 7), 0);
  ck_ok(zke_rwlock_parties(z[1], PATH, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].len, 4);
  ck_assert_int_eq(memcmp(list->data[0].data, "mine", 4), 0);
  ck_ok(zke_rwlock_check(lock)); /* without a listener it does not notice */
  zke_rwlock *again = make(z[0]);
  ck_rc(zke_rwlock_acquire(again, WRITE, soon(z[0])), ZKE_DEADLOCK);
  zke_rwlock_free(again);
  zke_free(list);
  zke_free(data);
  zke_free(own);
  zke_rwlock_free(lock);
}

/* Without consent the lock is taken away after the grace period, and the holder
 * is told. */
TEST(revoking_with_insistence_takes_it_away) {
  open_line(LINE_READER);
  ck_ok(zke_rwlock_try(party[0], READ));
  ck_ok(zke_rwlock_try(party[1], READ));
  ck_ok(zke_rwlock_start(party[3], WRITE));
  told[0] = '\0';
  int64_t end = zke_now(z[2]) + 30;
  ck_ok(zke_rwlock_revoke(party[2], end, 1));
  ck_assert_int_ge(zke_now(z[2]), end); /* not before */
  dispatch_all();
  ck_assert_str_eq(in_order(), "W3");
  ck_assert_ptr_ne(strstr(told, "ann LOST"), NULL);
  ck_assert_ptr_ne(strstr(told, "bob LOST"), NULL);
  ck_assert_ptr_ne(strstr(told, "dan HELD"), NULL);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(zke_rwlock_state(party[i]), ZKE_RWLOCK_LOST);
    ck_assert_int_eq(zke_rwlock_token(party[i]), 0);
    ck_rc(zke_rwlock_check(party[i]), ZKE_LOST);
    ck_rc(zke_rwlock_release(party[i]), ZKE_LOST);
  }
}

/* ---- processes ---- */

enum { CROWD = 24 };

/* Joins, and holds until it is told to leave. */
static void play_part(zke *own) {
  zke_rwlock *lock = NULL;
  int mode = self == 11 ? WRITE : READ;
  int rc = zke_rwlock_new(own, PATH, NULL, &lock);
  if (rc == ZKE_OK) rc = zke_rwlock_start(lock, mode);
  store(&shared->stage[self], -1); /* it stands in line */
  if (rc == ZKE_OK) rc = zke_rwlock_acquire(lock, mode, ZKE_FOREVER);
  if (rc != ZKE_OK) give_up("acquire", rc);
  store(&shared->stage[self], 1);
  listen_for(own, &shared->stage[self], 2);
  rc = zke_rwlock_release(lock);
  if (rc != ZKE_OK) give_up("release", rc);
  store(&shared->stage[self], 3);
  wait_for(&shared->go, 100);
  zke_rwlock_free(lock);
}

/* Exactly processes first to last were woken since. */
static void expect_woken(const long *before, int begin, int end) {
  for (int i = begin; i < end; i++)
    ck_until(shared->bytes[i] > before[i], 10000);
  test_settle(shared->bytes, CROWD);
  for (int i = 0; i < CROWD; i++) {
    bool due = i >= begin && i < end;
    ck_assert_msg(due || shared->bytes[i] == before[i], "%d was woken", i);
  }
}

/* The first in line: writes until it is told to leave. */
static void play_first(zke *own) {
  zke_rwlock *lock = NULL;
  int rc = zke_rwlock_new(own, PATH, NULL, &lock);
  if (rc == ZKE_OK) rc = zke_rwlock_try(lock, WRITE);
  if (rc != ZKE_OK) give_up("try", rc);
  store(&shared->stage[self], 1);
  wait_for(&shared->go, 2);
  rc = zke_rwlock_release(lock);
  if (rc != ZKE_OK) give_up("release", rc);
  wait_for(&shared->go, 100);
}

/* No herd: behind a writer stand eleven readers, a writer, twelve readers.  Its
 * release wakes only the first readers; of their releases only the last wakes
 * the writer. */
TEST(a_release_wakes_only_the_next_holders) {
  pid_t pid[CROWD];
  long before[CROWD];
  share();
  store(&shared->go, 1);
  pid_t writer = spawn(CROWD - 1, play_first);
  ck_until(load(&shared->stage[CROWD - 1]) == 1, 10000);
  for (int i = 0; i < CROWD - 1; i++) {
    pid[i] = spawn(i, play_part);
    ck_until(load(&shared->stage[i]) == -1, 10000);
  }
  test_settle(shared->bytes, CROWD);
  memcpy(before, shared->bytes, sizeof before);
  store(&shared->go, 2);
  for (int i = 0; i < 11; i++) ck_until(load(&shared->stage[i]) == 1, 10000);
  expect_woken(before, 0, 11);
  memcpy(before, shared->bytes, sizeof before);
  for (int i = 0; i < 10; i++) {
    store(&shared->stage[i], 2);
    ck_until(load(&shared->stage[i]) == 3, 10000);
  }
  expect_woken(before, 0, 0);
  store(&shared->stage[10], 2);
  ck_until(load(&shared->stage[11]) == 1, 10000);
  expect_woken(before, 11, 12);
  ck_assert_str_eq(shared->sentence, "");
  for (int i = 0; i < CROWD - 1; i++) kill(pid[i], SIGKILL);
  kill(writer, SIGKILL);
  while (waitpid(-1, NULL, 0) > 0) continue;
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: read, write by an upgrade, read again, release. */
static int use_modes(zke *user) {
  zke_rwlock *lock = NULL;
  zke_rwlock_options o = {.size = sizeof o, .data = "x", .len = 1};
  int rc = zke_rwlock_new(user, PATH, &o, &lock);
  if (rc == ZKE_OK) rc = zke_rwlock_acquire(lock, READ, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_rwlock_upgrade(lock);
  if (rc == ZKE_OK) rc = zke_rwlock_downgrade(lock);
  if (rc == ZKE_OK) rc = zke_rwlock_check(lock);
  if (rc == ZKE_OK) rc = zke_rwlock_release(lock);
  zke_rwlock_free(lock);
  return rc;
}

static int expect_rc(int rc, int expected) {
  if (rc == expected) return ZKE_OK;
  return rc < 0 ? rc : zke_fail(ZKE_MISUSE, "it ought to have been refused");
}

/* Two sessions: sharing, a refused upgrade, waiting, a revocation. */
static int share_and_revoke(zke *user, void *a, void *b) {
  int rc = zke_rwlock_acquire(a, READ, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_rwlock_try(b, READ);
  if (rc == ZKE_OK) rc = expect_rc(zke_rwlock_upgrade(a), ZKE_HELD);
  if (rc == ZKE_OK) rc = zke_rwlock_release(b);
  if (rc == ZKE_OK) rc = zke_rwlock_start(b, WRITE);
  if (rc == ZKE_OK) rc = zke_rwlock_release(a);
  if (rc == ZKE_OK) rc = zke_rwlock_acquire(b, WRITE, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_rwlock_downgrade(b);
  if (rc == ZKE_OK) rc = zke_rwlock_revoke(a, zke_now(user), 1);
  if (rc == ZKE_OK) rc = expect_rc(zke_rwlock_check(b), ZKE_LOST);
  return rc;
}

static int use_two(zke *user) {
  line = &line_kinds[LINE_READER];
  return use_by_two(user, share_and_revoke);
}

/* Another party gets it, in either mode, and holds alone. */
static void check_rwlock(zke *by, int rc) {
  zke_rwlock *lock = make(by);
  (void)rc;
  ck_ok(zke_rwlock_acquire(lock, WRITE, soon(by)));
  ck_assert_int_eq(entries(by, PATH), 1);
  ck_ok(zke_rwlock_downgrade(lock));
  ck_ok(zke_rwlock_upgrade(lock));
  zke_rwlock_free(lock);
  ck_assert_int_eq(entries(by, PATH), 0);
  ck_assert_int_eq(watches(by), 0);
}

static const recipe_use uses[] = {{"modes", NULL, use_modes, check_rwlock},
                                  {"two", NULL, use_two, check_rwlock}};

RECIPE_TESTS(uses, 20, 0);

/* ---- granting ---- */

/* A line of four modes. */
static void line_up(const char *modes) {
  open_line(LINE_READER);
  for (int i = 0; modes[i]; i++) {
    bool writes = modes[i] == 'W';
    ck_ok(zke_rwlock_start(party[i],
                           writes ? ZKE_RWLOCK_WRITE : ZKE_RWLOCK_READ));
  }
}

/* "+-?": marked as holder and knows it, not marked, marked but does not know it
 * yet; in the order of the line. */
static const char *marks(void) {
  static char text[SESSIONS + 1];
  zke_party_list *list;
  ck_ok(zke_rwlock_parties(z[0], PATH, &list));
  memset(text, 0, sizeof text);
  for (int i = 0; i < list->count; i++) {
    bool knows = false;
    for (int j = 0; j < SESSIONS; j++) {
      if (zke_rwlock_token(party[j]) == list->data[i].mzxid &&
          list->data[i].session == zke_session_id(z[j]))
        knows = true;
    }
    text[i] = knows ? '+' : '?';
    if (!list->data[i].office) text[i] = '-';
  }
  zke_free(list);
  return text;
}

/* A release grants the first of several readers; a writer is granted only by
 * the last holder that keeps it out. */
TEST(a_release_grants_the_first_behind_it) {
  line_up("WWRR");
  ck_ok(zke_rwlock_release(party[0])); /* it came before all others */
  ck_assert_str_eq(marks(), "?--");
  dispatch_all();
  ck_assert_str_eq(marks(), "+--");
  ck_ok(zke_rwlock_release(party[1]));
  ck_assert_str_eq(marks(), "?-");
  dispatch_all();
  ck_assert_str_eq(marks(), "++");
}

/* A reader's release marks the writer behind it only if no other reader
 * holds. */
TEST(a_writer_is_granted_it_by_the_last_reader_only) {
  line_up("WRRW");
  ck_ok(zke_rwlock_release(party[0]));
  dispatch_all();
  ck_assert_str_eq(marks(), "++-");
  ck_ok(zke_rwlock_release(party[1]));
  ck_assert_str_eq(marks(), "+-");
  dispatch_all();
  ck_assert_int_eq(zke_rwlock_state(party[3]), ZKE_RWLOCK_WAITING);
  ck_ok(zke_rwlock_release(party[2]));
  dispatch_all();
  ck_assert_str_eq(marks(), "+");
  close_line();
  line_up("WRWR");
  ck_ok(zke_rwlock_release(party[0]));
  dispatch_all();
  ck_ok(zke_rwlock_release(party[1])); /* the only one */
  ck_assert_str_eq(marks(), "?-");
  dispatch_all();
  ck_assert_str_eq(marks(), "+-");
}
