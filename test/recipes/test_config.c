/* test_config.c - recipes/config: a node or a subtree in memory
 *
 * The cache survives the deletion of its root, misses no change, and tells a
 * new node from an old one by its mzxid.  Waits can be cancelled. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/config.h"
#include "recipes/part/view.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew.h"
#include "recipes.h"
#include "steps.h"
#include "test/seam.h"

#define ROOT "/app/config"

/* ---- objects, and changes made by others ---- */

static zke_config *made(zke *own, const zke_config_options *o) {
  zke_config *c = NULL;
  ck_ok(zke_config_new(own, ROOT, o, &c));
  return c;
}

static zke_config *started(zke *own, const zke_config_options *o) {
  zke_config *c = made(own, o);
  ck_ok(zke_config_start(c));
  return c;
}

/* Write a node; make it if it is missing. */
static void put(zke *own, const char *path, const char *data) {
  int rc = zke_set(own, path, data, (int)strlen(data), -1, NULL);
  if (rc == ZKE_NONODE)
    rc = zke_create(own, path, data, (int)strlen(data), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT, NULL, NULL);
  ck_ok(rc);
}

static void drop(zke *own, const char *path) {
  ck_ok(zke_delete(own, path, -1));
}

/* The initial tree of most tests. */
static void plant(zke *own) {
  put(own, "/app", "");
  put(own, ROOT, "root");
  put(own, ROOT "/db", "");
  put(own, ROOT "/db/host", "a");
  put(own, ROOT "/db/port", "1");
}

/* A node as the cache has it, or "none". */
static const char *in_memory(zke_config *c, const char *name) {
  static char text[200];
  char *data = NULL;
  int rc = zke_config_get(c, name, &data, NULL, NULL);
  if (rc == ZKE_NONODE) return "none";
  ck_ok(rc);
  snprintf(text, sizeof text, "%s", data ? data : "(null)");
  zke_free(data);
  return text;
}

/* ---- steps as text ----
 *
 * A name is "db/host"; "." is the root.  Eve changes the tree. */

static zke_config_options options; /* of the objects, without the listener */
static bool looks;                 /* the listener looks at the cache */
static bool frees;                 /* the listener frees its object */
static bool deaf;                  /* no listener */

/* Note what the cache shows during a change. */
static void look_around(zke_config *c) {
  zke_stat db, port;
  ck_ok(zke_config_get(c, "db", NULL, NULL, &db));
  ck_ok(zke_config_get(c, "db/port", NULL, NULL, &port));
  tell("db/host %s", in_memory(c, "db/host"));
  tell("db/port %s", in_memory(c, "db/port"));
  tell("%d %d", db.numChildren, port.cversion);
}

/* The listener tells "+name:data", "~name:old>new", "-name:data", READY and
 * LOST. */
static void hear(zke_config *c, int event, const zke_config_node *before,
                 const zke_config_node *now, void *context) {
  static const char *const names[] = {"", "+", "~", "-", "READY", "LOST"};
  (void)context;
  if (before && now)
    tell("~%s:%s>%s", now->name, before->data, now->data);
  else if (before || now)
    tell("%s%s:%s", names[event], (before ? before : now)->name,
         (before ? before : now)->data);
  else
    tell("%s", names[event]);
  ck_assert(!before ==
            (event != ZKE_CONFIG_CHANGED && event != ZKE_CONFIG_REMOVED));
  if (looks && event == ZKE_CONFIG_CHANGED) look_around(c);
  if (frees) zke_config_free(c);
}

static int create(zke *session, const char *who, void **object) {
  (void)who;
  options.size = sizeof options;
  options.listener = deaf ? NULL : hear;
  return zke_config_new(session, ROOT, &options, (zke_config **)object);
}

/* A word as the recipe's name, and as a path. */
static const char *name_in(const step *s, int i) {
  return strcmp(s->word[i], ".") == 0 ? "" : s->word[i];
}

static const char *path_in(const step *s, int i) {
  static char path[100];
  const char *name = name_in(s, i);
  snprintf(path, sizeof path, ROOT "%s%s", *name ? "/" : "", name);
  return path;
}

STEP(plant, (plant(s->session), ZKE_OK))
STEP(put, (put(s->session, path_in(s, 0), after_word(s)), ZKE_OK))
STEP(drop, zke_delete(s->session, path_in(s, 0), -1))
STEP(signs, zke_add_auth(s->session, "digest", "me:pw", 5))
STEP(hide,
     zke_set_acl(s->session, path_in(s, 0), -1, ZKE_CREATOR_ALL_ACL, NULL))
STEP(show, zke_set_acl(s->session, path_in(s, 0), -1, ZKE_OPEN_ACL, NULL))

/* "multi db/host b db/port 2": set both in one step. */
static int step_multi(step *s) {
  char first[100];
  zke_op ops[2];
  strcpy(first, path_in(s, 0));
  zke_op_set(&ops[0], first, s->word[1], 1, -1);
  zke_op_set(&ops[1], path_in(s, 2), s->word[3], 1, -1);
  return zke_multi(s->session, ops, 2, NULL);
}

STEP(start, zke_config_start(s->object))
STEP(revision, sees(s, "%d", (int)zke_config_revision(s->object)))

static zke_stat seen[PARTIES]; /* the last Stat that each has read */

static int step_get(step *s) {
  char *data = NULL;
  int rc = zke_config_get(s->object, name_in(s, 0), &data, NULL, &seen[s->who]);
  if (rc == ZKE_OK) gives(s, "%s", data ? data : "(null)");
  zke_free(data);
  return rc;
}

/* "shows db/host b": wait until a waiting thread has updated it. */
static int step_shows(step *s) {
  ck_until(strcmp(in_memory(s->object, name_in(s, 0)), s->word[1]) == 0, 5000);
  return ZKE_OK;
}

/* "now db/host": the cache has what the file has. */
static int step_now(step *s) {
  zke_stat stat;
  ck_ok(zke_config_get(s->object, name_in(s, 0), NULL, NULL, &stat));
  test_expect_stat(stat, test_stat(s->session, path_in(s, 0)));
  return ZKE_OK;
}

static int step_list(step *s) {
  zke_config_tree *tree = NULL;
  int rc = zke_config_list(s->object, name_in(s, 0), &tree);
  for (int i = 0; rc == ZKE_OK && i < tree->count; i++) {
    const zke_config_node *n = &tree->data[i];
    gives(s, "%s%s:%s", i ? " " : "", n->name, n->data ? n->data : "(null)");
  }
  if (rc == ZKE_OK && tree->count == 0) gives(s, "none");
  zke_free(tree);
  return rc;
}

/* "wait 2" waits for a revision after the second; "wait db/host" for another
 * state of the node than P has read.  Answers the revision, "there" or
 * "gone". */
static int step_wait(step *s) {
  bool revision = s->word[0][0] >= '0' && s->word[0][0] <= '9';
  const char *name = revision ? NULL : name_in(s, 0);
  int64_t known = revision ? atoll(s->word[0]) : seen[s->who].mzxid, now = -1;
  int rc = zke_config_wait(s->object, name, known, s->deadline, &now);
  if (rc != ZKE_OK) return rc;
  ck_step(s, now > known || now == 0, "it is old");
  if (revision) return gives(s, "%d", (int)now), rc;
  seen[s->who].mzxid = now;
  return gives(s, now ? "there" : "gone"), rc;
}

/* The number of guards of the sets: the root exists; /held was not written
 * to. */
static int guards;

/* "sets db/host 2 DATA": set version 2; -1: any. */
static int step_sets(step *s) {
  const char *data = s->word[2] ? s->word[2] : "";
  int version = atoi(s->word[1]), len = (int)strlen(data), rc;
  zke_op checks[2];
  zke_stat stat = {.version = -1};
  zke_op_check(&checks[0], "/", -1);
  zke_op_check(&checks[1], "/held", 0);
  if (guards)
    rc = zke_config_set_guarded(s->object, name_in(s, 0), data, len, version,
                                checks, guards, s->deadline, &stat);
  else
    rc = zke_config_set(s->object, name_in(s, 0), data, len, version,
                        s->deadline, &stat);
  if (rc == ZKE_OK) gives(s, "%d", stat.version);
  return rc;
}

static const step_verb verbs[] = {
    VERB(plant),    VERB(put),  VERB(drop),  VERB(signs),
    VERB(hide),     VERB(show), VERB(multi), VERB(start),
    VERB(revision), VERB(get),  VERB(shows), VERB(now),
    VERB(list),     VERB(wait), VERB(sets),  {NULL, NULL}};

static void release(void *object) { zke_config_free(object); }
static int cancel(void *object) { return zke_config_cancel(object); }

static const step_recipe of_config = {
    .verbs = verbs, .create = create, .free = release, .cancel = cancel};

/* ---- keeping current ---- */

#define PLANTED "+:root, +db:, +db/host:a, +db/port:1, READY"

/* All existing nodes are told first, in order, then READY; later each added,
 * changed and removed node, with old and new data. */
TEST(changes_are_told) {
  play_steps(&of_config,
             "plant; ann start; told " PLANTED
             "; ann start; news ;"
             "put db/host b; news ~db/host:a>b; ann now db/host;"
             "put db/user me; news +db/user:me; ann now db;"
             "drop db/port; news -db/port:1; ann now db;"
             "put . ROOT; news ~:root>ROOT;"
             "put db/host b; news ~db/host:b>b;" /* with the same bytes */
             "create /app/other x; create /app/config2 x; news ;" /* others */
             "ann free; watches 0");
}

/* A listener sees both changes of a multi or neither, at whichever node it is
 * called; nothing changes before the dispatch.  The Stats above a node include
 * changes that are not told yet, also of a child that has come and gone. */
TEST(what_is_shown_is_of_one_moment) {
  looks = true;
  play_steps(&of_config,
             "plant; ann start; told " PLANTED
             ";"
             "multi db/host b db/port 2; ann get db/host -> a;"
             "news ~db/host:a>b, db/host b, db/port 2, 2 0,"
             " ~db/port:1>2, db/host b, db/port 2, 2 0;"
             "ann revision 2;" /* one read for both */
             "put db/host c; put db/new; put db/port/x; drop db/port/x;"
             "news ~db/host:b>c, db/host c, db/port 2, 3 2, +db/new:");
}

/* The cache survives deletion and re-creation of its root. */
TEST(survives_the_root) {
  options.levels = -1;
  play_steps(&of_config,
             "ann start; told READY; ann get . -> NONODE;"
             "create /app; put . 1; news +:1;"
             "drop .; news -:1; put . 1; news +:1;"
             "drop .; news -:1; put . 1; news +:1;"
             "ann free; watches 0");
  options.levels = 0;
  play_steps(&of_config,
             "ann start; told READY; ann get . -> NONODE;"
             "create /app; put . 1; put a x; news +:1, +a:x;"
             "drop a; drop .; news -:1, -a:x; put . 1; put a x; news +:1, +a:x;"
             "drop a; drop .; news -:1, -a:x; put . 1; put a x; news +:1, +a:x;"
             "ann free; watches 0");
}

/* A node that is made again has the same version, but another mzxid. */
TEST(a_node_made_again_is_a_change) {
  play_steps(&of_config, "plant; ann start; told " PLANTED
                         "; drop db/host; put db/host a;"
                         "news ~db/host:a>a; ann now db/host");
}

/* P4: after an overflow one read catches up with everything. */
TEST(catches_up_after_overflow) {
  open_steps(&of_config);
  play("plant; ann renewed 8; ann start; told " PLANTED);
  options.levels = -1; /* for the second object, */
  deaf = true;         /* without a listener: its order is not fixed */
  play("ann' start");
  for (int i = 0; i < 40; i++) {
    char path[64];
    snprintf(path, sizeof path, ROOT "/n%02d", i);
    put(z[4], path, "x");
    if (i != 7) drop(z[4], path);
  }
  play(
      "put . late; drop db/port;"
      "all dispatch; ann' get . -> late; put . later; ann dispatches;"
      "ann get . -> later; ann' get . -> later;"
      "told ~:root>late, -db/port:1, +n07:x, ~:late>later");
}

/* The node alone, one level, or all levels; without a listener. */
TEST_LOOP(levels_of_the_tree, -1, 4) {
  static const char *const seen_then[] = {
      ":root; put db/host z; ann dispatches; ann revision 1",
      ":root db: db/host:a db/port:1;"
      "put db/host z; ann dispatches; ann revision 2",
      ":root db:; put db/host z; ann dispatches; ann revision 1",
      ":root db: db/host:a db/port:1;"
      "put db/host z; ann dispatches; ann revision 2",
      ":root db: db/host:a db/port:1;"
      "put db/host z; ann dispatches; ann revision 2"};
  options.levels = _i;
  deaf = true;
  open_steps(&of_config);
  play("plant; ann start; ann revision 1");
  char script[200];
  snprintf(script, sizeof script, "ann list . -> %s", seen_then[_i + 1]);
  play(script);
}

/* Names that sort between a node and its children; a part of the tree; NULL
 * data and binary data. */
TEST(list_of_a_part) {
  char *data;
  int len;
  open_steps(&of_config);
  play("plant; put db-old no; put db.x no");
  ck_ok(zke_set(z[4], ROOT "/db/host", "a\0b", 3, -1, NULL));
  ck_ok(zke_set(z[4], ROOT "/db/port", NULL, -1, -1, NULL));
  play(
      "ann start; ann list db -> db: db/host:a db/port:(null);"
      "ann list nothing -> none;"
      "ann get db/none -> NONODE; said " ROOT "/db/none");
  zke_config_tree *tree;
  ck_ok(zke_config_list(party[0], "db", &tree));
  ck_assert_int_eq(tree->data[1].len, 3);
  ck_assert_mem_eq(tree->data[1].data, "a\0b", 4);
  ck_assert_int_eq(tree->data[2].len, -1);
  zke_free(tree);
  ck_ok(zke_config_get(party[0], "db/host", &data, &len, NULL));
  ck_assert_int_eq(len, 3);
  ck_assert_mem_eq(data, "a\0b", 4);
  zke_free(data);
  ck_ok(zke_config_get(party[0], "db/port", &data, &len, NULL));
  ck_assert_ptr_null(data);
  ck_assert_int_eq(len, -1);
}

/* A read of the cache takes no lock of a file, even after another process has
 * changed a node: the news comes with the next wait. */
TEST(reads_without_io) {
  zke *own;
  static seam s;
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  ck_ok(zke_open(test_path("db"), &o, &own));
  plant(own);
  zke_config *c = started(own, NULL);
  zke *other = test_open(test_path("db"));
  put(other, ROOT "/db/host", "b");
  long before = s.calls[SEAM_lock_range];
  for (int i = 0; i < 1000; i++) ck_assert_str_eq(in_memory(c, "db/host"), "a");
  ck_assert_int_eq(s.calls[SEAM_lock_range], before);
  ck_ok(zke_wait(own, soon(own)));
  ck_assert_str_eq(in_memory(c, "db/host"), "b");
  zke_config_free(c);
  ck_ok(zke_close(other));
  ck_ok(zke_close(own));
}

/* The nodes of which a listener was told. */
typedef struct mirror {
  int count;
  struct {
    char name[16], data[8];
  } at[64];
} mirror;

/* A listener that keeps the tree by the events alone; each must fit those
 * before it. */
static void follow(zke_config *c, int event, const zke_config_node *before,
                   const zke_config_node *now, void *context) {
  mirror *m = context;
  const zke_config_node *n = now ? now : before;
  int i = 0;
  (void)c, (void)event;
  if (!n) return;
  while (i < m->count && strcmp(m->at[i].name, n->name) != 0) i++;
  ck_assert_int_eq(i < m->count, before != NULL);
  if (before) ck_assert_str_eq(m->at[i].data, before->data);
  if (before && now) ck_assert_int_gt(now->stat.mzxid, before->stat.mzxid);
  if (!before) m->count++;
  if (!now) m->at[i] = m->at[--m->count];
  if (!now) return;
  snprintf(m->at[i].name, sizeof m->at[i].name, "%s", now->name);
  snprintf(m->at[i].data, sizeof m->at[i].data, "%s", now->data);
}

/* It was told of these nodes, with these data. */
static void expect_told(const mirror *m, const zke_config_tree *tree) {
  ck_assert_int_eq(m->count, tree->count);
  for (int i = 0, j; i < tree->count; i++) {
    for (j = 0; j < m->count; j++)
      if (strcmp(m->at[j].name, tree->data[i].name) == 0) break;
    ck_assert_int_lt(j, m->count);
    ck_assert_str_eq(m->at[j].data, tree->data[i].data);
  }
}

/* 3,000 random changes with an event limit that overflows: after each dispatch,
 * the cache and its listener's list agree with the file. */
TEST(random_changes) {
  unsigned seed = test_seed();
  zke *own = test_open(":memory:");
  zke_options few = {.size = sizeof few, .event_limit = 20};
  mirror m = {0};
  zke_config_options o = {.size = sizeof o, .listener = follow, .context = &m};
  zke_config_tree *shown, *real = NULL;
  zke *y;
  put(own, "/app", "");
  ck_ok(zke_open_session(own, &few, &y));
  zke_config *c = started(y, &o);
  for (int i = 0; i < 3000; i++) {
    static const char *const names[] = {"", "/a", "/b", "/a/x", "/a/y", "/b/x"};
    char path[64];
    seed = seed * 1103515245u + 12345u;
    snprintf(path, sizeof path, ROOT "%s", names[(seed >> 16) % 6]);
    if (seed >> 24 & 1) {
      if (zke_set(own, path, "x", 1, -1, NULL) == ZKE_NONODE)
        zke_create(own, path, "y", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
    } else {
      zke_delete(own, path, -1);
    }
    if (seed >> 28) continue;
    ck_ok(zke_dispatch(y, NULL));
    ck_ok(zke_config_list(c, "", &shown));
    ck_ok(zke_view_read(own, ROOT, 0, &real));
    ck_assert_int_eq(shown->count, real->count);
    expect_told(&m, real);
    for (int j = 0; j < real->count; j++) {
      ck_assert_str_eq(shown->data[j].name, real->data[j].name);
      ck_assert_mem_eq(&shown->data[j].stat.mzxid, &real->data[j].stat.mzxid,
                       8);
      ck_assert_str_eq(shown->data[j].data, real->data[j].data);
    }
    zke_free(shown);
    zke_free(real);
  }
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
}

/* ---- others' changes in the middle of a look ---- */

static int generation;

static char letter(int of) { return (char)('A' + of % 26); }

/* One step changes three nodes, and makes or removes two others. */
static void next_generation(void) {
  zke_op ops[5];
  char data = letter(++generation);
  zke_op_set(&ops[0], ROOT, &data, 1, -1);
  zke_op_set(&ops[1], ROOT "/a-", &data, 1, -1);
  zke_op_set(&ops[2], ROOT "/a/x", &data, 1, -1);
  if (generation % 2) {
    zke_op_create(&ops[3], ROOT "/b", &data, 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    zke_op_create(&ops[4], ROOT "/b/y", &data, 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  } else {
    zke_op_delete(&ops[3], ROOT "/b/y", -1);
    zke_op_delete(&ops[4], ROOT "/b", -1);
  }
  ck_ok(zke_multi(intruder, ops, 5, NULL));
}

/* Leaves out two nodes, and not what is below them. */
static int no_parents(const char *name, void *context) {
  (void)context;
  bool parent = strcmp(name, "a") == 0 || strcmp(name, "b") == 0;
  return parent ? ZKE_CONFIG_DESCEND : ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND;
}

/* What a configuration shows of an even and an odd generation; # is the
 * letter. */
static const struct part {
  int event_limit, levels;
  zke_config_select_fn select;
  const char *shown[2];
} parts[] = {{0, 0, NULL, {":# a: a-:# a/x:#", ":# a: a-:# a/x:# b:# b/y:#"}},
             {3, 0, NULL, {":# a: a-:# a/x:#", ":# a: a-:# a/x:# b:# b/y:#"}},
             {0, 1, NULL, {":# a: a-:#", ":# a: a-:# b:#"}},
             {0, 0, no_parents, {":# a-:# a/x:#", ":# a-:# a/x:# b/y:#"}}};

/* The configuration's picture is of one generation, with its Stats; which. */
static int expect_one_moment(zke_config *c, const struct part *p) {
  zke_config_tree *tree;
  char text[100] = "", wanted[100];
  ck_ok(zke_config_list(c, "", &tree));
  for (int i = 0; i < tree->count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%s",
             i ? " " : "", tree->data[i].name, tree->data[i].data);
  zke_stat root = tree->data[0].stat;
  zke_free(tree);
  strcpy(wanted, p->shown[root.version % 2]);
  for (char *at = wanted; *at; at++)
    if (*at == '#') *at = letter(root.version);
  ck_assert_str_eq(text, wanted);
  ck_assert_int_eq(root.cversion, 2 + root.version);
  ck_assert_int_eq(root.numChildren, 2 + root.version % 2);
  return root.version;
}

static const struct part *shown_part;

/* The listener looks at the picture during the news. */
static void follow_moments(zke_config *c, int event,
                           const zke_config_node *before,
                           const zke_config_node *now, void *context) {
  follow(c, event, before, now, context);
  expect_one_moment(c, shown_part);
}

/* Start, and follow one generation; meanwhile another process makes the next
 * one, at the n-th moment of each look.  Returns whether it did. */
static bool follow_generations(zke *own, int n) {
  mirror m = {0};
  zke_config_tree *tree;
  zke_config_options o = {.size = sizeof o,
                          .levels = shown_part->levels,
                          .listener = follow_moments,
                          .context = &m,
                          .select = shown_part->select};
  act_between(n, next_generation);
  zke_config *c = started(own, &o);
  bool more = acted();
  expect_one_moment(c, shown_part);
  next_generation();
  act_between(n, next_generation);
  ck_ok(zke_dispatch(own, NULL));
  more = acted() || more;
  expect_one_moment(c, shown_part);
  dispatch_on(own);
  ck_assert_int_eq(expect_one_moment(c, shown_part), generation);
  ck_ok(zke_config_list(c, "", &tree));
  expect_told(&m, tree);
  zke_free(tree);
  zke_config_free(c);
  return more;
}

/* Whenever another process changes several nodes in one step: the picture, also
 * the one that the listener sees, is a committed state with its Stats, and the
 * last one is the file's. */
TEST_LOOP(pictures_are_committed_states, 0, sizeof parts / sizeof *parts) {
  const char data[] = {letter(0), '\0'};
  zke *own;
  int n = 1;
  shown_part = &parts[_i];
  open_two();
  put(intruder, "/app", "");
  put(intruder, ROOT, data);
  put(intruder, ROOT "/a", "");
  put(intruder, ROOT "/a-", data);
  put(intruder, ROOT "/a/x", data);
  zke_options o = {.size = sizeof o, .event_limit = shown_part->event_limit};
  ck_ok(zke_open_session(caller, &o, &own));
  while (follow_generations(own, n)) n++;
  ck_assert_int_gt(n, 5);
  ck_ok(zke_close(own));
}

/* ---- what a change costs ---- */

/* zkembed's allocations for one change of a tree of this many nodes. */
typedef struct cost {
  long set, created, deleted, filtered;
} cost;

static long cost_of(zke *y, test_heap *heap) {
  int count = 1;
  long before = heap->calls;
  while (count) ck_ok(zke_dispatch(y, &count));
  return heap->calls - before;
}

static int not_z(const char *name, void *context) {
  (void)context;
  return *name == 'z' ? 0 : ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND;
}

/* The allocations that a cache of this many nodes needs to follow one change,
 * of each kind. */
static cost measure(const char *file, int nodes) {
  zke *own = test_open(test_path(file)), *y;
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  char path[64];
  put(own, "/app", "");
  put(own, ROOT, "");
  for (int i = 0; i < nodes; i++) {
    snprintf(path, sizeof path, ROOT "/n%d", i);
    ck_ok(
        zke_create(own, path, "x", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  }
  ck_ok(zke_open(test_path(file), &o, &y));
  cost all = {0};
  zke_config *c =
      started(y, &(zke_config_options){.size = sizeof(zke_config_options),
                                       .select = not_z});
  for (int i = 0; i < 3; i++) { /* the last time counts: arrays have grown */
    put(own, ROOT "/n1", "y");
    all.set = cost_of(y, &heap);
    put(own, ROOT "/new", "y");
    all.created = cost_of(y, &heap);
    drop(own, ROOT "/new");
    all.deleted = cost_of(y, &heap);
    put(own, ROOT "/zed", "y");
    all.filtered = cost_of(y, &heap);
  }
  ck_assert_str_eq(in_memory(c, "n1"), "y");
  ck_assert_str_eq(in_memory(c, "new"), "none");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
  return all;
}

/* The cost depends on the change, not on the number of nodes. */
TEST(a_change_costs_what_has_changed) {
  cost few = measure("few", 5), many = measure("many", 1500);
  ck_assert_int_eq(many.set, few.set);
  ck_assert_int_eq(many.created, few.created);
  ck_assert_int_eq(many.deleted, few.deleted);
  ck_assert_int_eq(many.filtered, few.filtered);
  ck_assert_int_lt(few.set, 40);
}

/* ---- what may not be read ---- */

/* A node that the session may not read is not shown, and hides no other
 * node. */
TEST(unreadable_is_not_there) {
  play_steps(&of_config,
             "plant; eve signs; put dark x; hide dark; ann start;"
             "told " PLANTED "; put z 1; news +z:1");
}

/* A change of it is not told, and still the cache shows one moment. */
TEST(unreadable_nodes_go) {
  play_steps(&of_config,
             "plant; eve signs; ann start; told " PLANTED
             ";"
             "hide db; put db secret; news ;" /* not told */
             "put . new; news ~:root>new, -db:, -db/host:a, -db/port:1;"
             "put db/host b; put db/more c; news ;" /* readable, but not seen */
             "ann get db/host -> NONODE; show db; put db open;"
             "news +db:open, +db/host:b, +db/more:c, +db/port:1");
}

/* The same if only a child shows it. */
TEST(unreadable_nodes_take_all_below_them) {
  play_steps(&of_config,
             "plant; eve signs; ann start; told " PLANTED
             "; hide db; put db/more c;"
             "news -db:, -db/host:a, -db/port:1; ann list . -> :root");
}

/* News that is still to be told, but may not be read, counts too. */
TEST(unreadable_changes_count_before_they_are_told) {
  play_steps(&of_config,
             "plant; eve signs; ann start; told " PLANTED
             ";"
             "put db/port 2; hide db/host; put db/host secret; put . new;"
             "news ~:root>new, -db/host:a, ~db/port:1>2");
}

/* ---- a filter ---- */

/* "db" and all below it; of "web" only the children. */
static int choose(const char *name, void *context) {
  (void)context;
  if (!*name || strcmp(name, "web") == 0) return ZKE_CONFIG_DESCEND;
  if (strncmp(name, "web/", 4) == 0) return ZKE_CONFIG_INCLUDE;
  if (strcmp(name, "db") == 0 || strncmp(name, "db/", 3) == 0)
    return ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND;
  return 0;
}

/* Nodes that it leaves out are not shown or told, but nodes below them may
 * be. */
TEST(filter_chooses) {
  options.select = choose;
  play_steps(&of_config,
             "plant; put web w; put web/a 1; put web/a/deep 2; put other 3;"
             "put other/x 4; ann start;"
             "told +db:, +db/host:a, +db/port:1, +web/a:1, READY;"
             "put . x; put web x; put web/a/deep x; put other x; put other/x x;"
             "news ; ann revision 1;"
             "put web/b 5; put db/host b; news ~db/host:a>b, +web/b:5;"
             "ann get . -> NONODE; ann get web -> NONODE; ann get web/a -> 1;"
             "ann list web -> web/a:1 web/b:5;"
             "drop web/a/deep; drop web/a; drop web/b; drop web;"
             "news -web/a:1, -web/b:5; put web; put web/c 6; news +web/c:6");
}

/* ---- waiting ---- */

/* 0 waits until it is initialised; then for the next change; a past one is
 * found immediately. */
TEST(waits_for_a_revision) {
  open_steps_by(&of_config, test_path("db"), NULL);
  play(
      "plant; ann revision 0; ann wait_now 0 -> 1;" /* starts */
      "ann waits wait 1; ann wakes; ann still; put db/host b;"
      "ann returns -> 2; ann get db/host -> b; ann wait_now 1 -> 2;"
      "ann wait_30 2 -> OPERATIONTIMEOUT; said " ROOT);
  zke *other = test_open(test_path("db"));
  put(other, ROOT, "x");
  play("ann wait_now 2 -> 3"); /* a last read finds it */
  ck_ok(zke_close(other));
}

/* A node's change, creation and deletion; other nodes do not count. */
TEST(waits_for_a_node) {
  play_steps(&of_config,
             "plant; ann start; ann wait_now db/host -> there;"
             "told " PLANTED
             "; ann waits wait db/host;"
             "put db/port 7; ann shows db/port 7; ann still;"
             "put db/host b; ann returns -> there;"
             "ann waits wait db/host; drop db/host; ann returns -> gone;"
             "ann wait_30 db/host -> OPERATIONTIMEOUT; said " ROOT "/db/host");
}

/* A second waiting call is refused; cancel ends the first call and not the
 * next. */
TEST(cancel_ends_one_wait) {
  play_steps(&of_config,
             "ann start; ann waits wait 1; ann wait_now 0 -> MISUSE;"
             "ann cancels; ann returns -> CANCELLED; said " ROOT
             "; ann cancel -> IDLE; ann wait 0 -> 1");
}

/* After the session's end no data is taken for current. */
TEST(nothing_is_current_after_the_sessions_end) {
  play_steps(&of_config,
             "plant; ann start; told " PLANTED
             "; ann waits wait 1;"
             "ann expires; ann returns -> INVALIDSTATE; told LOST;"
             "ann get . -> INVALIDSTATE; ann wait_now 0 -> INVALIDSTATE;"
             "ann start -> INVALIDSTATE; ann sets x -1 -> INVALIDSTATE;"
             "ann revision 0; told ");
}

/* Freed by its listener during the news: nothing more is told. */
TEST(listener_frees) {
  frees = true;
  open_steps(&of_config);
  play("plant; ann start; told +:root; watches 0; put . x; news ");
  party[0] = NULL;
}

/* ---- setting ---- */

/* A set makes missing parents, requires the given version, and is not refused
 * because of its own change when the reply was lost. */
TEST(set_makes_and_checks) {
  open_steps(&of_config);
  play(
      "ann start; ann sets a/b -1 1 -> 0;" /* its parents come first, empty */
      "ann dispatches; ann list . -> : a: a/b:1;"
      "ann sets a/b 0 2 -> 1; ann sets a/b 0 3 -> BADVERSION;"
      "ann sets a/c 0 3 -> NONODE; ann sets . -1 r;"
      "ann sets a/ -1 3 -> BADARGUMENTS;"
      "ann fails after; ann sets a/b 1 3 -> 2;"
      "ann fails before; ann sets a/b 2 4 -> 3;"
      "ann fails after; ann sets a/b 2 9 -> BADVERSION;"
      /* but it may be older than later changes */
      "ann fails after; ann sets a/b 1 9 -> CONNECTIONLOSS; ann fails none");
  ck_ok(zke_config_set(party[0], "a", NULL, -1, -1, soon(z[0]), NULL));
  ck_rc(zke_config_set(party[0], "a", NULL, 3, -1, soon(z[0]), NULL),
        ZKE_BADARGUMENTS);
  play("ann dispatches; ann get a -> (null); ann get . -> r");
}

/* A holder can set, a former holder cannot: neither the node nor its parents
 * are made, and a lost reply does not evade the guards.
 */
TEST(set_with_guards) {
  static const char late[] =
      "ann sets a/b -1 9 -> LOST; said /held; ann sets n/m -1 9 -> LOST;"
      "ann sets a/b 3 9 -> LOST; data " ROOT
      "/n -> NONODE;"
      "ann dispatches; ann get a/b -> 3;";
  guards = 2;
  open_steps(&of_config);
  play(
      "ann start; ephemeral /held; ann sets a/b -1 1 -> 0;"
      "ann sets a/b 0 2 -> 1; ann sets a/b 0 3 -> BADVERSION;"
      "ann sets a/c 0 3 -> NONODE;"
      "ann fails before; ann sets a/b 1 3 -> 2;"
      "ann fails after; ann sets a/b 2 3 -> 3;"
      "set /held another's");
  play(late);
  play("delete /held");
  play(late);
}

/* What another session does in the pause before a retry. */
typedef struct meddling {
  zke *other;
  int sets;  /* of the node; -1: it deletes it */
  int anew;  /* then it makes it again, immediately (1) or in the next, longer
                pause (2) */
  int then;  /* and sets it this often */
  bool held; /* /held exists: it deletes that too */
} meddling;

static void meddle(void *context, int64_t ns) {
  meddling *m = context;
  if (m->sets < 0) drop(m->other, ROOT "/db/port");
  for (int i = 0; i < m->sets; i++) put(m->other, ROOT "/db/port", "other");
  if (m->anew == 1 || (m->anew == 2 && ns > 7 * INT64_C(1000000))) {
    for (int i = 0; i <= m->then; i++) put(m->other, ROOT "/db/port", "other");
    m->anew = 0;
  }
  if (m->held) drop(m->other, "/held");
  m->sets = 0;
  m->held = false;
}

/* A configuration and a meddling session; the database is "db". */
static zke_config *started_beside(meddling *m, zke **own_out) {
  zke_os os = {.size = sizeof os, .context = m, .sleep = meddle};
  zke_options o = {.size = sizeof o, .os = &os};
  ck_ok(zke_open(test_path("db"), &o, own_out));
  m->other = test_session(*own_out, NULL);
  plant(*own_out);
  return started(*own_out, NULL);
}

/* The reply to a change was lost, and others change the node, perhaps after its
 * guard has gone.  If the version shows that the set was made, the call
 * succeeds.  It is refused only if it was not made, and does not deny the
 * change if nothing shows it.  This holds also when versions have wrapped
 * around, or are about to. */
TEST_LOOP(the_node_goes_on_after_a_lost_reply, 0, 39) {
  static const int32_t versions[] = {0, -2, INT32_MAX};
  enum { BEFORE = ZKE_TEST_FAIL_BEFORE, AFTER = ZKE_TEST_FAIL_AFTER };
  static const struct {
    int when, sets, guards, rc, any; /* any: set without a version */
  } rows[] = {{AFTER, 1, 0, ZKE_CONNECTIONLOSS, 0},
              {AFTER, -1, 0, ZKE_CONNECTIONLOSS, 0},
              {BEFORE, 1, 0, ZKE_BADVERSION, 0},
              {BEFORE, 2, 0, ZKE_CONNECTIONLOSS, 0},
              {BEFORE, -1, 0, ZKE_CONNECTIONLOSS, 0},
              {BEFORE, 0, 0, ZKE_OK, 0},
              {AFTER, 1, 1, ZKE_CONNECTIONLOSS, 0},
              {AFTER, -1, 1, ZKE_CONNECTIONLOSS, 0},
              {BEFORE, 1, 1, ZKE_LOST, 0},
              {AFTER, 0, 1, ZKE_OK, 0},
              {BEFORE, 0, 1, ZKE_LOST, 0},
              {AFTER, 0, 1, ZKE_CONNECTIONLOSS, 1},
              {BEFORE, 0, 1, ZKE_CONNECTIONLOSS, 1}};
  meddling m = {.sets = 0};
  int row = _i % 13, version = versions[_i / 13];
  zke_op guard;
  zke *own;
  zke_config *c = started_beside(&m, &own);
  put(own, "/held", "");
  test_set_version(test_path("db"), ROOT "/db/port", version);
  zke_op_check(&guard, "/held", -1);
  m.sets = rows[row].sets;
  m.held = rows[row].guards > 0;
  ck_ok(zke_test_fail(own, rows[row].when, 0));
  ck_rc(
      zke_config_set_guarded(c, "db/port", "2", 1, rows[row].any ? -1 : version,
                             &guard, rows[row].guards, soon(own), NULL),
      rows[row].rc);
  if (rows[row].rc == ZKE_CONNECTIONLOSS)
    ck_says("is not known: the reply was lost");
  if (rows[row].rc == ZKE_LOST || rows[row].any) ck_says("/held is not held");
  const char *words = strstr(zke_errmsg(), "is not known");
  if (words) ck_assert_ptr_null(strstr(words + 1, "is not known"));
  ck_assert_int_eq(m.sets, 0);
  ck_assert(!m.held);
  zke_config_free(c);
  ck_ok(zke_close(m.other));
  ck_ok(zke_close(own));
}

/* The same if the node is made again, with the version that the set would give
 * or the next: the others' node stays. */
TEST_LOOP(the_node_is_made_anew_after_a_lost_reply, 0, 8) {
  int before = _i & 1, pause = 1 + (_i >> 1 & 1);
  meddling m = {.sets = 0};
  char *data = NULL;
  zke *own;
  zke_config *c = started_beside(&m, &own);
  m.sets = -1;
  m.anew = pause;
  m.then = _i >> 2;
  ck_ok(zke_test_fail(own, before ? ZKE_TEST_FAIL_BEFORE : ZKE_TEST_FAIL_AFTER,
                      0));
  ck_rc(zke_config_set(c, "db/port", "2", 1, 0, soon(own), NULL),
        ZKE_CONNECTIONLOSS);
  ck_says("is not known: the reply was lost");
  ck_assert_int_eq(m.anew, pause == 1 ? 0 : 2); /* it is not tried again */
  int rc = zke_get(own, ROOT "/db/port", NULL, NULL, &data, NULL, NULL);
  ck_assert_int_eq(rc, pause == 1 ? ZKE_OK : ZKE_NONODE);
  if (rc == ZKE_OK) ck_assert_str_eq(data, "other");
  zke_free(data);
  zke_config_free(c);
  ck_ok(zke_close(m.other));
  ck_ok(zke_close(own));
}

/* P11: invalid arguments, and reads before the start, are refused; the output
 * is then NULL. */
TEST(bad_arguments) {
  zke *own = test_open(":memory:");
  zke_config_options o = {.size = 3};
  zke_config *c = (zke_config *)&o;
  zke_config_tree *tree;
  ck_rc(zke_config_new(own, ROOT, &o, &c), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(c);
  o = (zke_config_options){.size = sizeof o, .levels = -2};
  ck_rc(zke_config_new(own, ROOT, &o, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(own, "x", NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(own, "/", NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(NULL, ROOT, NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(own, ROOT, NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_config_revision(NULL), 0);
  c = made(own, NULL);
  zke_op guard;
  zke_op_delete(&guard, "/held", -1);
  ck_rc(zke_config_set_guarded(c, "a", "x", 1, -1, &guard, 1, 0, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_config_set_guarded(c, "a", "x", 1, -1, NULL, 1, 0, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_config_set_guarded(c, "a", "x", 1, -1, &guard, -1, 0, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_config_get(c, "", NULL, NULL, NULL), ZKE_MISUSE);
  ck_rc(zke_config_list(c, "", &tree), ZKE_MISUSE);
  ck_rc(zke_config_get(c, NULL, NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_list(c, "", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_set(c, NULL, "", 0, -1, 0, NULL), ZKE_BADARGUMENTS);
  zke_config_free(NULL);
  zke_config_free(c);
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

static void prepare(zke *own) {
  put(own, "/app", "");
  put(own, ROOT, "root");
}

static void count_ready(zke_config *c, int event, const zke_config_node *before,
                        const zke_config_node *now, void *context) {
  (void)c, (void)before, (void)now;
  *(int *)context += event == ZKE_CONFIG_READY;
}

/* The typical use: wait for the start, set, wait for the node, and read it. */
static int use(zke *own) {
  int ready = 0;
  zke_config_options o = {
      .size = sizeof o, .listener = count_ready, .context = &ready};
  zke_config *c = NULL;
  int64_t revision = 0;
  int rc = zke_config_new(own, ROOT, &o, &c);
  if (rc == ZKE_OK)
    rc = zke_config_wait(c, NULL, 0, zke_now(own) + 1000, &revision);
  if (rc == ZKE_OK)
    rc = zke_config_set(c, "a/b", "1", 1, -1, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK)
    rc = zke_config_wait(c, "a/b", 0, zke_now(own) + 1000, NULL);
  if (rc == ZKE_OK) rc = zke_config_get(c, "a/b", NULL, NULL, NULL);
  if (rc == ZKE_OK && !ready) rc = ZKE_SYSTEMERROR;
  zke_config_free(c);
  return rc;
}

/* The set was made completely or not at all; others see it and continue. */
static void check(zke *own, int rc) {
  zke_config *c = started(own, NULL);
  if (rc == ZKE_OK) ck_assert_str_eq(in_memory(c, "a/b"), "1");
  if (strcmp(in_memory(c, "a/b"), "none") != 0)
    ck_assert_str_eq(in_memory(c, "a/b"), "1");
  ck_ok(zke_config_set(c, "a/b", "2", 1, -1, soon(own), NULL));
  ck_ok(zke_dispatch(own, NULL));
  ck_assert_str_eq(in_memory(c, "a/b"), "2");
  zke_config_free(c);
}

static const recipe_use uses[] = {{"config", prepare, use, check}};

RECIPE_TESTS(uses, 10, 0);
