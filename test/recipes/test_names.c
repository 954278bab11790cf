/* test_names.c - recipes/names: names that stand for values, or for znodes
 *
 * A name has one binding at a time, which exists completely or not at all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/names.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "steps.h"

#define PATH "/names"

static zke_names *make(zke *own) {
  zke_names *n = NULL;
  ck_ok(zke_names_new(own, PATH, NULL, &n));
  return n;
}

/* Bind a persistent name; its token. */
static int64_t bind(zke_names *n, const char *name, const char *value) {
  int64_t token = 0;
  ck_ok(zke_names_bind(n, name, value, (int)strlen(value), 0, ZKE_FOREVER,
                       &token));
  ck_assert_int_gt(token, 0);
  return token;
}

/* The name's value, or "none". */
static const char *value(zke_names *n, const char *name) {
  static char text[200];
  zke_binding *b = NULL;
  int rc = zke_names_lookup(n, name, &b);
  if (rc == ZKE_NONODE) return "none";
  ck_ok(rc);
  snprintf(text, sizeof text, "%s", b->value);
  zke_free(b);
  return text;
}

/* ---- steps as text ---- */

static int64_t newest; /* token of the last binding made by a step */
static int64_t former; /* token of the binding before that */

/* "last" and "former" are these tokens, "any" is 0, and "other" is no binding's
 * token. */
static int64_t token_in(const step *s) {
  if (strcmp(s->word[1], "any") == 0) return 0;
  if (strcmp(s->word[1], "former") == 0) return former;
  return strcmp(s->word[1], "last") == 0 ? newest : newest + 1;
}

/* Each binding has a greater token; a refusal gives none. */
static int bound(step *s, int rc, int64_t token) {
  ck_step(s, rc == ZKE_OK ? token > newest : token == -7, "its token is wrong");
  if (rc != ZKE_OK) return rc;
  former = newest;
  newest = token;
  return rc;
}

/* "bind x TEXT"; "lend": until the session ends. */
static int bind_as(step *s, int ephemeral) {
  const char *text = after_word(s);
  int64_t token = -7;
  int rc = zke_names_bind(s->object, s->word[0], text, (int)strlen(text),
                          ephemeral, s->deadline, &token);
  return bound(s, rc, token);
}

STEP(bind, bind_as(s, 0))
STEP(lend, bind_as(s, 1))

/* "rebind x last TEXT" makes it ephemeral. */
static int step_rebind(step *s) {
  const char *text = s->word[2] ? s->word[2] : "";
  int64_t token = -7;
  int rc = zke_names_rebind(s->object, s->word[0], token_in(s), text,
                            (int)strlen(text), 1, s->deadline, &token);
  return bound(s, rc, token);
}

STEP(unbind, zke_names_unbind(s->object, s->word[0], token_in(s), s->deadline))

/* A binding must agree with its znode.  It answers "'value' ann", and "lent" if
 * it is ephemeral; one made without the recipe has no owner. */
static void say(step *s, const zke_binding *b) {
  char path[100];
  snprintf(path, sizeof path, PATH "/%s", b->name);
  zke_stat stat = test_stat(z[SESSIONS - 1], path);
  ck_assert_int_eq(b->len, (int)strlen(b->value));
  ck_assert_int_eq(b->token, stat.czxid);
  ck_assert_int_eq(b->since_ms, stat.ctime);
  ck_assert_int_eq(b->ephemeral, stat.ephemeralOwner != 0);
  if (*b->identity) ck_assert_int_eq(b->pid, getpid());
  if (stat.ephemeralOwner) ck_assert_int_eq(b->session, stat.ephemeralOwner);
  gives(s, "'%s'%s%s%s", b->value, *b->identity ? " " : "", b->identity,
        b->ephemeral ? " lent" : "");
}

static int step_lookup(step *s) {
  zke_binding *b = NULL;
  int rc = zke_names_lookup(s->object, s->word[0], &b);
  if (rc == ZKE_OK) say(s, b);
  zke_free(b);
  return rc;
}

static int step_wait(step *s) {
  zke_binding *b = NULL;
  int rc = zke_names_wait(s->object, s->word[0], s->deadline, &b);
  if (rc == ZKE_OK) say(s, b);
  zke_free(b);
  return rc;
}

static int step_list(step *s) {
  zke_binding_list *list = NULL;
  int rc = zke_names_list(s->object, &list);
  for (int i = 0; rc == ZKE_OK && i < list->count; i++) {
    gives(s, "%s%s=", i ? ", " : "", list->data[i].name);
    say(s, &list->data[i]);
  }
  if (rc == ZKE_OK && list->count == 0) gives(s, "none");
  zke_free(list);
  return rc;
}

/* The Stat must be that of /target, the only target of a name. */
static int step_resolve(step *s) {
  char *data = NULL;
  int len = -7;
  zke_stat stat;
  int rc = zke_names_resolve(s->object, s->word[0], &data, &len, &stat);
  ck_step(s, (rc == ZKE_OK) == (data != NULL), "it gives data");
  if (rc != ZKE_OK) return rc;
  ck_assert_int_eq(len, (int)strlen(data));
  test_expect_stat(stat, test_stat(z[SESSIONS - 1], "/target"));
  gives(s, "%s", data);
  zke_free(data);
  return rc;
}

/* Delete the bindings' second znodes. */
static int step_untwin(step *s) {
  zke_strings *names;
  ck_ok(zke_children(s->session, PATH, NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    char path[200];
    snprintf(path, sizeof path, PATH "/%s", names->data[i]);
    if (strncmp(names->data[i], "_c_", 3) == 0)
      ck_ok(zke_delete(s->session, path, -1));
  }
  zke_free(names);
  return ZKE_OK;
}

static const step_verb verbs[] = {
    VERB(bind), VERB(lend), VERB(rebind),  VERB(unbind), VERB(lookup),
    VERB(wait), VERB(list), VERB(resolve), VERB(untwin), {NULL, NULL}};

static int create(zke *session, const char *who, void **object) {
  (void)who;
  *object = make(session);
  return ZKE_OK;
}

static void release(void *object) { zke_names_free(object); }
static int cancel(void *object) { return zke_names_cancel(object); }

static const step_recipe of_names = {
    .verbs = verbs, .create = create, .free = release, .cancel = cancel};

/* ---- binding ---- */

/* A binding is found with its value, token, owner and time, also after its
 * object was freed; any process that knows the token can unbind it.  An empty
 * value is a value. */
TEST(bind_lookup_unbind) {
  play_steps(&of_names,
             "bob lookup x -> NONODE; said " PATH
             "/x is not bound;"
             "ann bind x 1\n2; bob lookup x -> '1\n2' ann; bob unbind x last;"
             "ann lookup x -> NONODE; ann unbind x any -> NONODE;"
             "entries " PATH
             " -> 0;"
             "ann bind empty; ann free; bob lookup empty -> '' ann;"
             "entries " PATH " -> 2");
}

/* The owner has a process, a session and an identity, in which line breaks
 * become blanks.  NULL is an empty value, and outputs are optional. */
TEST(a_binding_tells_its_owner) {
  zke_options o = {.size = sizeof o, .identity = "ann\nand co"};
  zke_binding *b;
  zke *own;
  ck_ok(zke_open(":memory:", &o, &own));
  zke_names *n = make(own);
  ck_ok(zke_names_bind(n, "x", NULL, 0, 0, ZKE_FOREVER, NULL));
  ck_ok(zke_names_lookup(n, "x", &b));
  ck_assert_str_eq(b->value, "");
  ck_assert_int_eq(b->session, zke_session_id(own));
  ck_assert_int_eq(b->pid, getpid());
  ck_assert_str_eq(b->identity, "ann and co");
  zke_free(b);
  ck_ok(zke_names_wait(n, "x", 0, NULL));
  zke_names_free(n);
  ck_ok(zke_close(own));
}

/* A bound name is refused, and the sentence names the owner, also after its
 * session has ended. */
TEST(refused_naming_the_owner) {
  char script[400];
  snprintf(
      script, sizeof script,
      "bob bind x 2 -> HELD; said is bound by ann (pid %d) since 20;"
      "bob lend x 2 -> HELD; said is bound by ann (pid %d) since 20;"
      "bob rebind x other 2 -> HELD; said is bound by ann (pid %d) since 20;"
      "bob unbind x other -> HELD; said is bound by ann (pid %d) since 20;",
      (int)getpid(), (int)getpid(), (int)getpid(), (int)getpid());
  open_steps(&of_names);
  play("ann bind x 1");
  play(script);
  play("ann free");
  play(script);
  play("ann expires");
  play(script);
  play("bob lookup x -> '1' ann");
}

/* A rebinding replaces only the binding with the given token, or any; it gets a
 * greater token, and the name is never unbound in between. */
TEST(rebind_in_one_step) {
  play_steps(&of_names,
             "bob rebind x any 1 -> NONODE; ann bind x 1;"
             "bob rebind x last 2; ann lookup x -> '2' bob lent;"
             "ann rebind x former 3 -> HELD; ann unbind x former -> HELD;"
             "ann rebind x any 3;"
             "bob lookup x -> '3' ann lent; entries " PATH
             " -> 2;"
             "ann unbind x any; bob rebind x any 1 -> NONODE");
}

/* An ephemeral binding ends with its session, and the name is free again.
 * After its session's end each call says so, and changes nothing. */
TEST(ephemeral_goes_with_the_session) {
  play_steps(&of_names,
             "ann lend x 1; bob lookup x -> '1' ann lent; ann' list -> x='1' "
             "ann lent; ann free; bob lookup x -> '1' ann lent;"
             "ann expires; bob lookup x -> NONODE; entries " PATH
             " -> 0;"
             "bob bind x 2; ann dispatches; ann' bind y -> INVALIDSTATE;"
             "ann' lookup x -> INVALIDSTATE; ann' list -> INVALIDSTATE;"
             "ann' wait_now x -> INVALIDSTATE; bob list -> x='2' bob");
}

/* ---- lost replies ---- */

/* The unbinding took effect but lost its reply, and another process binds the
 * name before the retry: its binding stays. */
static void *bind_at_once(void *arg) {
  while (zke_names_bind(arg, "x", "next", 4, 0, 0, NULL) == ZKE_HELD)
    test_pause();
  return NULL;
}

/* An unbinding whose reply was lost is repeated, while another process binds
 * the name: the new binding stays. */
TEST(lost_unbinding_hits_no_other) {
  zke *own = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_names *n = make(own), *m = make(y);
  for (int i = 0; i < 10; i++) {
    pthread_t thread;
    bind(n, "x", "mine");
    ck_assert_int_eq(pthread_create(&thread, NULL, bind_at_once, m), 0);
    ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_AFTER, 0));
    ck_ok(zke_names_unbind(n, "x", 0, soon(own)));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_str_eq(value(n, "x"), "next");
    ck_ok(zke_names_unbind(n, "x", 0, soon(own)));
  }
  zke_names_free(n);
  zke_names_free(m);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
}

/* A lost reply of any read before the change is not taken for an unbinding:
 * afterwards the name is unbound. */
TEST(lost_read_is_no_unbinding) {
  zke *own = test_open(":memory:");
  zke_names *n = make(own);
  int unbound = 0;
  for (int skip = 0; skip < 8; skip++) {
    bind(n, "x", "mine");
    ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_READ, skip));
    int rc = zke_names_unbind(n, "x", 0, soon(own));
    ck_ok(zke_test_fail(own, 0, 0));
    if (rc != ZKE_OK) ck_rc(rc, ZKE_CONNECTIONLOSS); /* not repeated */
    ck_assert_str_eq(value(n, "x"), rc == ZKE_OK ? "none" : "mine");
    unbound += rc == ZKE_OK;
    if (rc != ZKE_OK) ck_ok(zke_names_unbind(n, "x", 0, soon(own)));
  }
  ck_assert_int_gt(unbound, 4);
  zke_names_free(n);
  ck_ok(zke_close(own));
}

/* In the pause between two tries the other process unbinds the name. */
static void unbind_in_pause(void *context, int64_t ns) {
  struct timespec t = {0, (long)ns};
  zke_names_unbind(*(zke_names **)context, "x", 0, 0);
  nanosleep(&t, NULL);
}

/* Another process unbinds the name in the pause after a lost reply.  If the
 * binding was made and then unbound, it is not made again, since no one would
 * unbind it; one that was never made is.  A rebinding finds the name free:
 * either it or the former binding was unbound.  That is unknown, so the code is
 * not ZKE_NONODE. */
TEST_LOOP(lost_binding_is_not_made_twice, 0, 4) {
  bool made = _i % 2, again = _i / 2, doubt = made || again;
  zke_names *other = NULL;
  zke_os os = {.size = sizeof os, .context = &other, .sleep = unbind_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  zke *own, *y = test_open(test_path("db"));
  ck_ok(zke_open(test_path("db"), &o, &own));
  zke_names *n = make(own);
  other = make(y);
  int64_t token = bind(n, again ? "x" : "w", "old");
  ck_ok(
      zke_test_fail(own, made ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE, 0));
  int rc = again
               ? zke_names_rebind(n, "x", token, "mine", 4, 0, soon(own), NULL)
               : zke_names_bind(n, "x", "mine", 4, 0, soon(own), NULL);
  ck_rc(rc, doubt ? ZKE_CONNECTIONLOSS : ZKE_OK);
  if (doubt) ck_says("may have been bound and unbound");
  ck_assert_str_eq(value(n, "x"), doubt ? "none" : "mine");
  zke_names_free(n);
  zke_names_free(other);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
}

/* In the first pause another name is bound, and then the next change is lost
 * before it takes effect. */
typedef struct late {
  zke *own;
  zke_names *other;
  int pauses;
} late;

static void bind_another_in_pause(void *context, int64_t ns) {
  struct timespec t = {0, (long)ns};
  late *l = context;
  if (l->pauses++ == 0) {
    zke_test_fail(l->own, ZKE_TEST_FAIL_BEFORE, 0);
    zke_names_bind(l->other, "y", "other", 5, 0, 0, NULL);
    zke_names_unbind(l->other, "y", 0, 0);
  }
  nanosleep(&t, NULL);
}

/* Others' changes before the step that lost its reply cause no doubt: the first
 * reads are repeated after a change of another name, and then the binding's
 * reply is lost before it takes effect.  It is still made. */
TEST(lost_binding_goes_by_its_own_step) {
  late l = {.pauses = 0};
  zke_os os = {
      .size = sizeof os, .context = &l, .sleep = bind_another_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  zke *y = test_open(test_path("db"));
  int late_ones = 0;
  ck_ok(zke_open(test_path("db"), &o, &l.own));
  zke_names *n = make(l.own);
  l.other = make(y);
  bind(n, "w", "makes the directory");
  for (int skip = 0; skip < 8; skip++) {
    l.pauses = 0;
    ck_ok(zke_test_fail(l.own, ZKE_TEST_FAIL_READ, skip));
    int rc = zke_names_bind(n, "x", "mine", 4, 0, soon(l.own), NULL);
    ck_ok(zke_test_fail(l.own, 0, 0));
    if (!l.pauses && rc != ZKE_OK) continue; /* that read is not repeated */
    ck_ok(rc);
    ck_assert_str_eq(value(n, "x"), "mine");
    ck_ok(zke_names_unbind(n, "x", 0, soon(l.own)));
    late_ones += l.pauses > 1;
  }
  ck_assert_int_gt(late_ones, 0);
  zke_names_free(n);
  zke_names_free(l.other);
  ck_ok(zke_close(y));
  ck_ok(zke_close(l.own));
}

/* A binding whose reply was lost with no time to repeat it succeeds if it was
 * made, with its token; else it fails.  The same goes for a rebinding. */
TEST(lost_binding_is_known_after_the_deadline) {
  play_steps(&of_names,
             "ann bind w makes the directory;"
             "ann fails before; ann bind_now x mine -> CONNECTIONLOSS;"
             "bob lookup x -> NONODE;"
             "ann fails after; ann bind_now x mine; bob lookup x -> 'mine' ann;"
             "ann fails before; ann rebind_now x last new -> CONNECTIONLOSS;"
             "bob lookup x -> 'mine' ann;"
             "ann fails after; ann rebind_now x last new;"
             "bob lookup x -> 'new' ann lent; ann unbind x last");
}

/* ---- looking ---- */

/* The list has all names in order, also nodes without data or made without the
 * recipe. */
TEST(list_of_one_moment) {
  open_steps(&of_names);
  play(
      "ann list -> none; ann bind b 2; ann lend a 1;"
      "create " PATH "/c by hand\n");
  ck_ok(zke_create(z[4], PATH "/d", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  play("bob list -> a='1' ann lent, b='2' ann, c='by hand\n', d=''");
}

/* A node made without the recipe, with any data, is a name; so is a binding
 * whose twin was deleted. */
TEST(made_by_hand) {
  static const char *const texts[] = {
      "", "x\ny", "id-1 zz 5 me\n", "id-1 1\n", "id-1 1 5\nx y", "\n"};
  open_steps(&of_names);
  play("ann bind keep");
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char script[400];
    snprintf(script, sizeof script,
             "create " PATH
             "/x %s; ann lookup x -> '%s';"
             "ann bind_now x -> HELD; said is bound since 20; %s"
             "ann unbind x any; entries " PATH " -> 2",
             texts[i], texts[i], i % 2 ? "ann rebind x any;" : "");
    play(script);
  }
  play(
      "ann bind x 1; untwin; ann unbind x any; ann unbind keep any;"
      "entries " PATH " -> 0");
}

/* A name whose value is a path gives that node's data and Stat.  A value that
 * is no path, or a path without a node, is reported. */
TEST(resolves_to_a_znode) {
  open_steps(&of_names);
  play(
      "ann resolve x -> NONODE; ann bind x /target; ann bind no target;"
      "ann bind bad /target/; ann resolve x -> NONODE;"
      "said " PATH
      "/x stands for /target; ann resolve no -> BADARGUMENTS;"
      "ann resolve bad -> BADARGUMENTS;"
      "create /target abc; ann resolve x -> abc");
  ck_ok(zke_names_resolve(party[0], "x", NULL, NULL, NULL));
}

/* ---- waiting ---- */

/* wait() sleeps until this name is bound; a deadline, a cancel and the
 * session's end also end it. */
TEST(waits_until_bound) {
  play_steps(&of_names,
             "bob waits wait x; ann bind other; bob wakes;"
             "bob wait_now x -> MISUSE; bob still;"
             "ann bind x 1; bob returns -> '1' ann; watches 0;"
             "bob wait_now x -> '1' ann;" /* bound already */
             "ann unbind x any; bob wait_30 x -> OPERATIONTIMEOUT;"
             "said " PATH
             "/x was not bound; watches 0;"
             "bob waits wait x; bob cancels; bob returns -> CANCELLED;"
             "watches 0;"
             "bob waits wait x; bob expires; bob returns -> INVALIDSTATE");
}

/* A binding through one store of a file ends a wait in another store. */
TEST(a_wait_hears_of_another_store) {
  begin_steps(&of_names);
  for (int i = 0; i < 2; i++) {
    zke_options o = {.size = sizeof o, .identity = identities[i]};
    ck_ok(zke_open(test_path("db"), &o, &z[i]));
    party[i] = make(z[i]);
  }
  z[SESSIONS - 1] = z[0]; /* say() reads by it */
  play("bob waits wait x; ann bind x 5; bob returns -> '5' ann");
  free_parties();
  for (int i = 0; i < 2; i++) ck_ok(zke_close(z[i]));
}

/* ---- refusals ---- */

/* Another recipe's directory is neither read nor changed. */
TEST(other_kind) {
  play_steps(&of_names,
             "create " PATH
             " zkembed lock\n; ann bind_now x -> OTHERKIND;"
             "ann rebind_now x any -> OTHERKIND;"
             "ann unbind_now x any -> OTHERKIND; ann list -> OTHERKIND;"
             "ann wait_now x -> OTHERKIND; entries " PATH " -> 0");
}

/* P11: names that cannot be nodes or are reserved for recipes, and calls
 * without an object, are refused. */
TEST(bad_arguments) {
  static const char *const names[] = {NULL, "", "a/b", "_c_x", ".", ".."};
  zke *own = test_open(":memory:");
  zke_names *n = (zke_names *)&own;
  zke_binding *b;
  ck_rc(zke_names_new(own, "x", NULL, &n), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(n);
  ck_rc(zke_names_new(own, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_new(NULL, PATH, NULL, &n), ZKE_BADARGUMENTS);
  n = make(own);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    ck_rc(zke_names_bind(n, names[i], "", 0, 0, 0, NULL), ZKE_BADARGUMENTS);
    ck_rc(zke_names_lookup(n, names[i], &b), ZKE_BADARGUMENTS);
    ck_rc(zke_names_unbind(n, names[i], 0, 0), ZKE_BADARGUMENTS);
    ck_rc(zke_names_wait(n, names[i], 0, NULL), ZKE_BADARGUMENTS);
  }
  ck_rc(zke_names_bind(n, "x", NULL, 1, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_bind(n, "x", "", -1, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_rebind(n, "x", 0, "", -1, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_lookup(n, "x", NULL), ZKE_BADARGUMENTS);
  zke_names_free(NULL);
  zke_names_free(n);
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: bind, rebind, wait, unbind, by tokens. */
static int use(zke *own) {
  zke_names *n = NULL;
  zke_binding *b = NULL;
  int64_t token = 0;
  int rc = zke_names_new(own, PATH, NULL, &n);
  if (rc == ZKE_OK) rc = zke_names_bind(n, "x", "1", 1, 0, ZKE_FOREVER, &token);
  if (rc == ZKE_OK)
    rc = zke_names_rebind(n, "x", token, "2", 1, 0, ZKE_FOREVER, &token);
  if (rc == ZKE_OK) rc = zke_names_wait(n, "x", zke_now(own) + 1000, &b);
  if (rc == ZKE_OK && (b->token != token || strcmp(b->value, "2") != 0))
    rc = ZKE_SYSTEMERROR;
  zke_free(b);
  if (rc == ZKE_OK) rc = zke_names_unbind(n, "x", token, ZKE_FOREVER);
  zke_names_free(n);
  return rc;
}

/* The name is bound completely or not at all, and others can unbind and bind
 * it. */
static void check(zke *own, int rc) {
  zke_names *n = make(own);
  bool bound = strcmp(value(n, "x"), "none") != 0;
  if (rc == ZKE_OK) ck_assert(!bound);
  ck_assert_int_eq(entries(own, PATH), bound ? 2 : 0);
  if (bound) ck_ok(zke_names_unbind(n, "x", 0, soon(own)));
  bind(n, "x", "3");
  zke_names_free(n);
}

static const recipe_use uses[] = {{"names", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);
