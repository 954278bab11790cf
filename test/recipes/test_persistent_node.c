/* test_persistent_node.c - recipes/persistent_node: an ephemeral znode that its
 * owner makes again when it is deleted
 *
 * Two faults that Curator had are tested for: the parent stays (CURATOR-506),
 * and the path does not grow (CURATOR-190). */
#include "recipes/persistent_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes.h"
#include "steps.h"

#define PATH "/status/host"

/* ---- steps ----
 *
 *     P start, P acquire, P release
 *     P sets DATA         "NULL": none
 *     P is HELD           its state: OUT, WAITING, HELD or LOST
 *     P moves Q           renew it in Q's session, whose participant it is then
 *     there DATA P        the znode's data, and its owner; "none" without one
 *     P makes DATA        a znode at the path, without the recipe */

static int64_t told_token;
static bool frees;  /* the listener frees its object at the first event */
static bool renews; /* it renews ann's as bob's when it hears LOST */

static void move(int from, int to) {
  zke_persistent_node *n = party[from];
  zke_persistent_node_free(party[to]);
  ck_ok(zke_persistent_node_renew(&n, z[to]));
  party[from] = NULL;
  party[to] = n;
}

/* The listener tells the states; each HELD must have a greater token. */
static void hear(zke_persistent_node *n, int state, int64_t token,
                 void *context) {
  static const char *const names[] = {"OUT", "WAITING", "HELD", "LOST"};
  tell("%s %s", (const char *)context, names[state]);
  ck_assert_int_eq(token != 0, state == ZKE_PERSISTENT_NODE_HELD);
  if (token) ck_assert_int_gt(token, told_token);
  if (token) told_token = token;
  if (frees) zke_persistent_node_free(n);
  if (frees) party[0] = NULL;
  if (renews && state == ZKE_PERSISTENT_NODE_LOST) move(0, 1);
}

static int create(zke *session, const char *who, void **object) {
  zke_persistent_node_options o = {
      .size = sizeof o, .listener = hear, .context = (void *)(uintptr_t)who};
  return zke_persistent_node_new(session, PATH, "up", 2, &o,
                                 (zke_persistent_node **)object);
}

static void release(void *object) { zke_persistent_node_free(object); }
static int cancel(void *object) { return zke_persistent_node_cancel(object); }

STEP(start, zke_persistent_node_start(s->object))
STEP(acquire, zke_persistent_node_acquire(s->object, s->deadline))
STEP(release, zke_persistent_node_release(s->object))
STEP(moves, (move(s->who, party_named(s->word[0])), ZKE_OK))

static int step_sets(step *s) {
  bool none = strcmp(s->rest, "NULL") == 0;
  return zke_persistent_node_set(s->object, none ? NULL : s->rest,
                                 none ? -1 : (int)strlen(s->rest), ZKE_FOREVER);
}

static int step_is(step *s) {
  static const char *const names[] = {"OUT", "WAITING", "HELD", "LOST"};
  int state = zke_persistent_node_state(s->object);
  int64_t token = zke_persistent_node_token(s->object);
  ck_assert_int_eq(token, state == ZKE_PERSISTENT_NODE_HELD ? told_token : 0);
  return sees(s, "%s", names[state]);
}

static int step_there(step *s) {
  char *data;
  zke_stat stat;
  int rc = zke_get(s->session, PATH, NULL, NULL, &data, NULL, &stat), i = 0;
  if (rc == ZKE_NONODE) return sees(s, "none");
  ck_ok(rc);
  while (i < SESSIONS && zke_session_id(z[i]) != stat.ephemeralOwner) i++;
  sees(s, "%s %s", data ? data : "NULL", i < SESSIONS ? identities[i] : "?");
  zke_free(data);
  return ZKE_OK;
}

static int step_makes(step *s) {
  return zke_create(s->session, PATH, s->rest, (int)strlen(s->rest),
                    ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
}

static const step_verb verbs[] = {VERB(start), VERB(acquire), VERB(release),
                                  VERB(moves), VERB(sets),    VERB(is),
                                  VERB(there), VERB(makes),   {NULL, NULL}};

static const step_recipe of_node = {
    .verbs = verbs, .create = create, .free = release, .cancel = cancel};

/* ---- keeping the node ---- */

#define AGAIN "delete " PATH "; news ann HELD; there up ann; ann is HELD;"

/* A deleted node comes again, at the same path, with a new token; free deletes
 * it and leaves the parents. */
TEST(comes_again) {
  play_steps(
      &of_node,
      "ann is OUT; ann start; news ann HELD; there up ann; ann is HELD;" AGAIN
          AGAIN AGAIN
      "ann start; news ;" /* no effect */
      "ann free; there none; watches 0; data /status");
}

/* If it is deleted with its parent, both come again. */
TEST(parents_come_again) {
  zke_op ops[2];
  open_steps(&of_node);
  play("ann start");
  zke_op_delete(&ops[0], PATH, -1);
  zke_op_delete(&ops[1], "/status", -1);
  ck_ok(zke_multi(z[4], ops, 2, NULL));
  play("news ann HELD, ann HELD; there up ann");
}

/* A new value is written immediately, or kept for later if the node is missing,
 * and replaces what others wrote. */
TEST(new_value) {
  open_steps(&of_node);
  play(
      "ann sets early; ann start; there early ann; ann sets busy;"
      "there busy ann; set " PATH
      " theirs; ann dispatches; there theirs ann;" /* another's value stays */
      "ann sets mine; there mine ann;" /* until the next own value */
      "delete " PATH
      "; ann sets later; there none; ann dispatches;"
      "there later ann; ann sets NULL; there NULL ann");
  ck_rc(zke_persistent_node_set(party[0], NULL, 2, ZKE_FOREVER),
        ZKE_BADARGUMENTS);
  play("there NULL ann");
}

/* ---- another's ---- */

/* Another session's node is not touched; its owner is named, and when it goes
 * it is replaced. */
TEST(waits_for_the_other) {
  play_steps(&of_node,
             "ann start; bob start; news ann HELD, bob WAITING; bob is WAITING;"
             "bob sets second; there up ann; ann free; news bob HELD;"
             "there second bob;"
             /* deleted and replaced before it could look */
             "delete " PATH
             "; ann makes a; bob sets third; there a ann;"
             "news bob WAITING;"
             "bob release; news bob OUT; there a ann; watches 0;"
             "bob acquire_20 -> OPERATIONTIMEOUT;"
             "said " PATH
             " is held by ann (pid ; bob is OUT; watches 0;"
             "news bob WAITING, bob OUT; ann expires; bob acquire_now;"
             "there third bob");
}

/* A node of the same session that the object did not make is not its own. */
TEST(same_session) {
  play_steps(&of_node,
             "create /status; ann makes hand; ann start; ann is WAITING;"
             "ann free; there hand ann");
}

/* ---- the session's end ---- */

/* After its session's end, or before it, the node moves to another session with
 * its last value; a stopped node stays stopped. */
TEST(renewed_in_another_session) {
  play_steps(&of_node,
             "ann start; ann sets busy; ann expires; there none;"
             "news ann HELD, ann LOST; ann is LOST; ann start -> INVALIDSTATE;"
             "ann acquire_now -> INVALIDSTATE; ann sets x -> INVALIDSTATE;"
             "ann release -> INVALIDSTATE; ann moves bob; news ann HELD;"
             "there busy bob; delete " PATH
             "; news ann HELD;"
             /* a living session's node moves too */
             "bob moves cid; there busy cid; watches 1; cid release;"
             "cid moves dan; there none; dan is OUT");
}

/* The listener may renew the node in another session when it hears LOST. */
TEST(renewed_in_the_listener) {
  renews = true;
  play_steps(&of_node, "ann start; ann expires; ann dispatches; there up bob");
}

/* The listener frees the node at its first event, inside start(): the znode and
 * its watch go. */
TEST(listener_frees) {
  frees = true;
  play_steps(&of_node, "ann start; there none; watches 0; news ann HELD");
}

/* ---- waiting ---- */

/* acquire() waits while another session has the path; a cancel, the other's
 * release and the session's end end it. */
TEST(acquire_waits_for_the_path) {
  play_steps(&of_node,
             "ann acquire_now; bob waits acquire; bob acquire_now -> MISUSE;"
             "bob cancels; bob returns -> CANCELLED; watches 1;"
             "bob waits acquire; ann release; bob returns; there up bob;"
             "bob release; ann start; bob waits acquire; bob expires;"
             "bob returns -> INVALIDSTATE");
}

/* ---- refusals ---- */

/* P11: invalid arguments are refused, and do not change the object.  A parent
 * that cannot have children is reported immediately. */
TEST(bad_arguments) {
  zke *own = test_open(":memory:");
  zke_persistent_node_options o = {.size = 3};
  zke_persistent_node *n = (zke_persistent_node *)&o;
  ck_rc(zke_persistent_node_new(own, PATH, "", 0, &o, &n), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(n);
  ck_rc(zke_persistent_node_new(own, "x", "", 0, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(own, PATH, NULL, 1, NULL, &n),
        ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(own, PATH, "", -2, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(own, PATH, "", 0, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(NULL, PATH, "", 0, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_renew(&n, own), ZKE_BADARGUMENTS);
  ck_ok(zke_persistent_node_new(own, PATH, "up", 2, NULL, &n));
  zke_persistent_node *same = n;
  ck_rc(zke_persistent_node_renew(&n, NULL), ZKE_BADARGUMENTS);
  ck_assert_ptr_eq(n, same);
  ck_rc(zke_persistent_node_release(n), ZKE_LOST);
  /* a parent that cannot have children is reported immediately */
  ck_ok(zke_create(own, "/status", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  ck_rc(zke_persistent_node_acquire(n, soon(own)), ZKE_NOCHILDRENFOREPHEMERALS);
  zke_persistent_node_free(NULL);
  zke_persistent_node_free(n);
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: wait for the path, change the value, release, and come
 * back. */
static int use(zke *user) {
  void *n = NULL;
  told_token = 0;
  int rc = create(user, "user", &n);
  if (rc == ZKE_OK) rc = zke_persistent_node_acquire(n, zke_now(user) + 1000);
  if (rc == ZKE_OK) rc = zke_persistent_node_set(n, "busy", 4, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_persistent_node_release(n);
  if (rc == ZKE_OK) rc = zke_persistent_node_acquire(n, zke_now(user) + 1000);
  zke_persistent_node_free(n);
  told[0] = '\0';
  return rc;
}

/* Another gets the path once the dead one's session has ended. */
static void check(zke *other, int rc) {
  zke_persistent_node *n = NULL;
  char *data = NULL;
  (void)rc;
  ck_ok(zke_persistent_node_new(other, PATH, "up", 2, NULL, &n));
  ck_ok(zke_persistent_node_acquire(n, soon(other)));
  ck_ok(zke_get(other, PATH, NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(data, "up");
  zke_free(data);
  zke_persistent_node_free(n);
  ck_rc(zke_exists(other, PATH, NULL, NULL, NULL), ZKE_NONODE);
}

static const recipe_use uses[] = {{"persistent node", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);
