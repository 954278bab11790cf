/* test_config.c - recipes/config: a node, or all below it, in memory
 *
 * It survives that its root is deleted and made again, misses no change, tells
 * a new node from an old one by its mzxid, and can be taken back. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/config.h"
#include "recipes/part/view.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "test/seam.h"

#define ROOT "/app/config"

/* ---- what a listener hears, as one text ---- */

typedef struct heard {
  char text[4000];
  zke_config *free_it; /* at the first call */
  int ready;
} heard;

static const char *data_of(const zke_config_node *n) {
  return n->data ? n->data : "NULL";
}

/* The listener: writes "+name:data", "~name:old>new", "-name:data", READY and
 * LOST, and frees the cache if the test asks for it. */
static void hear(zke_config *c, int event, const zke_config_node *before,
                 const zke_config_node *now, void *context) {
  static const char *const names[] = {"", "+", "~", "-", "READY", "LOST"};
  heard *h = context;
  size_t at = strlen(h->text);
  char *text = h->text + at;
  size_t room = sizeof h->text - at;
  if (before && now)
    snprintf(text, room, "~%s:%s>%s ", now->name, data_of(before),
             data_of(now));
  else if (before || now)
    snprintf(text, room, "%s%s:%s ", names[event],
             before ? before->name : now->name, data_of(before ? before : now));
  else
    snprintf(text, room, "%s ", names[event]);
  h->ready += event == ZKE_CONFIG_READY;
  if (h->free_it) {
    ck_assert_ptr_eq(h->free_it, c);
    h->free_it = NULL;
    zke_config_free(c);
  }
}

/* Dispatch all; then what was heard since the last time. */
static void expect(zke *z, heard *h, const char *text) {
  int count = 1;
  while (count && zke_dispatch(z, &count) == ZKE_OK) continue;
  ck_assert_str_eq(h->text, text);
  h->text[0] = '\0';
}

static zke_config *make(zke *z, int levels, heard *h) {
  zke_config_options o = {.size = sizeof o, .levels = levels};
  zke_config *c = NULL;
  if (h) {
    o.listener = hear;
    o.context = h;
  }
  ck_ok(zke_config_new(z, ROOT, &o, &c));
  return c;
}

static zke_config *started(zke *z, int levels, heard *h) {
  zke_config *c = make(z, levels, h);
  ck_ok(zke_config_start(c));
  return c;
}

/* ---- changes, made by others ---- */

/* Write a node, which is made where it is missing. */
static void put(zke *z, const char *path, const char *data) {
  int rc = zke_set(z, path, data, (int)strlen(data), -1, NULL);
  if (rc == ZKE_NONODE)
    rc = zke_create(z, path, data, (int)strlen(data), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT, NULL, NULL);
  ck_ok(rc);
}

static void drop(zke *z, const char *path) { ck_ok(zke_delete(z, path, -1)); }

/* The tree that most tests begin with. */
static void plant(zke *z) {
  put(z, "/app", "");
  put(z, ROOT, "root");
  put(z, ROOT "/db", "");
  put(z, ROOT "/db/host", "a");
  put(z, ROOT "/db/port", "1");
}

/* How many sessions watch something. */
static int watching(zke *z) {
  zke_watch_list *list;
  int count = 0;
  ck_ok(zke_watches(z, &list));
  for (int i = 0; i < list->count; i++) {
    int j = 0;
    while (list->data[j].session != list->data[i].session) j++;
    count += i == j;
  }
  zke_free(list);
  return count;
}

/* What memory says of a node, or "none". */
static const char *in_memory(zke_config *c, const char *name) {
  static char text[200];
  char *data = NULL;
  int rc = zke_config_get(c, name, &data, NULL, NULL);
  if (rc == ZKE_NONODE) return "none";
  ck_ok(rc);
  snprintf(text, sizeof text, "%s", data ? data : "NULL");
  zke_free(data);
  return text;
}

/* ---- keeping current ---- */

/* All that is there is told first, in order, then READY. */
TEST(start_tells_all_nodes_first) {
  zke *z = test_open(":memory:");
  heard h = {{0}, NULL, 0};
  plant(z);
  zke_config *c = started(z, 0, &h);
  expect(z, &h, "+:root +db: +db/host:a +db/port:1 READY ");
  ck_ok(zke_config_start(c));
  expect(z, &h, "");
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* Added, changed and removed, each with old and new data and Stat. */
TEST(changes_are_told) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, NULL, 0};
  plant(z);
  zke_config *c = started(y, 0, &h);
  h.text[0] = '\0';
  put(z, ROOT "/db/host", "b");
  expect(y, &h, "~db/host:a>b ");
  put(z, ROOT "/db/user", "me");
  expect(y, &h, "+db/user:me ");
  drop(z, ROOT "/db/port");
  expect(y, &h, "-db/port:1 ");
  put(z, ROOT, "ROOT");
  expect(y, &h, "~:root>ROOT ");
  put(z, ROOT "/db/host", "b"); /* the same bytes are a change */
  expect(y, &h, "~db/host:b>b ");
  put(z, "/app/other", "x"); /* not below it */
  put(z, "/app/config2", "x");
  expect(y, &h, "");
  zke_config_free(c);
  ck_assert_int_eq(watching(z), 0);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* What a multi changes is seen changed together, by the first callback too. */
static void look_around(zke_config *c, int event, const zke_config_node *before,
                        const zke_config_node *now, void *context) {
  int *calls = context;
  (void)before, (void)now;
  if (event != ZKE_CONFIG_CHANGED) return;
  ++*calls;
  ck_assert_str_eq(in_memory(c, "db/host"), "b");
  ck_assert_str_eq(in_memory(c, "db/port"), "2");
}

/* A listener of a cache sees either both changes of a multi or neither, at
 * whichever node it is called; nothing changes before the dispatch. */
TEST(a_multi_is_seen_whole) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  int calls = 0;
  zke_config_options o = {
      .size = sizeof o, .listener = look_around, .context = &calls};
  zke_config *c;
  zke_op ops[2];
  plant(z);
  ck_ok(zke_config_new(y, ROOT, &o, &c));
  ck_ok(zke_config_start(c));
  zke_op_set(&ops[0], ROOT "/db/host", "b", 1, -1);
  zke_op_set(&ops[1], ROOT "/db/port", "2", 1, -1);
  ck_ok(zke_multi(z, ops, 2, NULL));
  ck_assert_str_eq(in_memory(c, "db/host"), "a"); /* not dispatched yet */
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(calls, 2);
  ck_assert_int_eq(zke_config_revision(c), 2); /* one look for both */
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Deletion and re-creation of the root do not end it. */
TEST(survives_the_root) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, NULL, 0};
  for (int levels = -1; levels <= 0; levels++) {
    bool all = levels == 0;
    zke_config *c = started(y, levels, &h); /* nothing is there */
    expect(y, &h, "READY ");
    ck_assert_str_eq(in_memory(c, ""), "none");
    put(z, "/app", "");
    put(z, ROOT, "1");
    if (all) put(z, ROOT "/a", "x");
    expect(y, &h, all ? "+:1 +a:x " : "+:1 ");
    for (int i = 0; i < 3; i++) {
      if (all) drop(z, ROOT "/a");
      drop(z, ROOT);
      expect(y, &h, all ? "-:1 -a:x " : "-:1 ");
      put(z, ROOT, "1");
      if (all) put(z, ROOT "/a", "x");
      expect(y, &h, all ? "+:1 +a:x " : "+:1 ");
    }
    zke_config_free(c);
    ck_assert_int_eq(watching(z), 0);
    if (all) drop(z, ROOT "/a");
    drop(z, ROOT);
    drop(z, "/app");
  }
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The version of a node made anew is the same, the mzxid is not. */
TEST(a_node_made_again_is_a_change) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, NULL, 0};
  zke_stat old, new_;
  plant(z);
  zke_config *c = started(y, 0, &h);
  ck_ok(zke_config_get(c, "db/host", NULL, NULL, &old));
  h.text[0] = '\0';
  drop(z, ROOT "/db/host");
  put(z, ROOT "/db/host", "a");
  expect(y, &h, "~db/host:a>a ");
  ck_ok(zke_config_get(c, "db/host", NULL, NULL, &new_));
  ck_assert_int_eq(old.version, new_.version);
  ck_assert_int_gt(new_.czxid, old.czxid);
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* P4: after an overflow one look catches up with everything, and goes on. */
TEST(catches_up_after_overflow) {
  zke *z = test_open(":memory:");
  zke_options few = {.size = sizeof few, .event_limit = 8};
  heard h = {{0}, NULL, 0};
  char path[64];
  zke *y;
  plant(z);
  ck_ok(zke_open_session(z, &few, &y));
  zke_config *tree = started(y, 0, &h), *value = started(y, -1, NULL);
  h.text[0] = '\0';
  for (int i = 0; i < 40; i++) {
    snprintf(path, sizeof path, ROOT "/n%02d", i);
    put(z, path, "x");
    if (i != 7) drop(z, path);
  }
  put(z, ROOT, "late");
  drop(z, ROOT "/db/port");
  expect(y, &h, "~:root>late -db/port:1 +n07:x ");
  ck_assert_str_eq(in_memory(value, ""), "late");
  put(z, ROOT, "later");
  expect(y, &h, "~:late>later ");
  ck_assert_str_eq(in_memory(value, ""), "later");
  zke_config_free(tree);
  zke_config_free(value);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The node alone, one level, all of them. */
TEST(levels_of_the_tree) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  static const int counts[] = {1, 4, 2, 4, 4};
  zke_config_tree *tree;
  plant(z);
  for (int levels = -1; levels <= 3; levels++) {
    zke_config *c = started(y, levels, NULL);
    ck_ok(zke_config_list(c, "", &tree));
    ck_assert_int_eq(tree->count, counts[levels + 1]);
    zke_free(tree);
    int64_t revision = zke_config_revision(c);
    put(z, ROOT "/db/host", "z");
    ck_ok(zke_dispatch(y, NULL));
    bool seen = levels == 0 || levels >= 2;
    ck_assert_int_eq(zke_config_revision(c), revision + seen);
    zke_config_free(c);
  }
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Names that sort between a node and its children; a part of the tree; NULL
 * data and binary data. */
TEST(list_of_a_part) {
  zke *z = test_open(":memory:");
  zke_config_tree *tree;
  char *data;
  int len;
  plant(z);
  put(z, ROOT "/db-old", "no");
  put(z, ROOT "/db.x", "no");
  ck_ok(zke_set(z, ROOT "/db/host", "a\0b", 3, -1, NULL));
  ck_ok(zke_set(z, ROOT "/db/port", NULL, -1, -1, NULL));
  zke_config *c = started(z, 0, NULL);
  ck_ok(zke_config_list(c, "db", &tree));
  ck_assert_int_eq(tree->count, 3);
  ck_assert_str_eq(tree->data[0].name, "db");
  ck_assert_str_eq(tree->data[1].name, "db/host");
  ck_assert_int_eq(tree->data[1].len, 3);
  ck_assert_mem_eq(tree->data[1].data, "a\0b", 4);
  ck_assert_ptr_null(tree->data[2].data);
  ck_assert_int_eq(tree->data[2].len, -1);
  zke_free(tree);
  ck_ok(zke_config_list(c, "nothing", &tree));
  ck_assert_int_eq(tree->count, 0);
  zke_free(tree);
  ck_ok(zke_config_get(c, "db/host", &data, &len, NULL));
  ck_assert_int_eq(len, 3);
  ck_assert_mem_eq(data, "a\0b", 4);
  zke_free(data);
  ck_ok(zke_config_get(c, "db/port", &data, &len, NULL));
  ck_assert_ptr_null(data);
  ck_assert_int_eq(len, -1);
  ck_rc(zke_config_get(c, "db/none", &data, &len, NULL), ZKE_NONODE);
  ck_says(ROOT "/db/none");
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* A read of the cache takes no lock of any file, also after another process has
 * changed a node: the news comes by the next wait. */
TEST(reads_without_io) {
  zke *z;
  static seam s;
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  ck_ok(zke_open(test_path("db"), &o, &z));
  plant(z);
  zke_config *c = started(z, 0, NULL);
  zke *other = test_open(test_path("db"));
  put(other, ROOT "/db/host", "b");
  long before = s.calls[SEAM_lock_range];
  for (int i = 0; i < 1000; i++) ck_assert_str_eq(in_memory(c, "db/host"), "a");
  ck_assert_int_eq(s.calls[SEAM_lock_range], before);
  ck_ok(zke_wait(z, soon(z)));
  ck_assert_str_eq(in_memory(c, "db/host"), "b");
  zke_config_free(c);
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
}

/* A node that the session may not read is not there, and hides nothing. */
TEST(unreadable_is_not_there) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_acl write = {ZKE_PERM_WRITE | ZKE_PERM_ADMIN, "world", "anyone"};
  zke_acls acls = {1, &write};
  heard h = {{0}, NULL, 0};
  plant(z);
  ck_ok(zke_create(z, ROOT "/dark", "x", 1, &acls, ZKE_PERSISTENT, NULL, NULL));
  zke_config *c = started(y, 0, &h);
  expect(y, &h, "+:root +db: +db/host:a +db/port:1 READY ");
  put(z, ROOT "/z", "1");
  expect(y, &h, "+z:1 ");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Many random changes: memory ends as the file is, and the news add up. */
typedef struct mirror {
  int count;
  char names[64][16];
} mirror;

/* A listener that keeps a list of the nodes by the events alone: none is added
 * twice, none removed that was not there. */
static void follow(zke_config *c, int event, const zke_config_node *before,
                   const zke_config_node *now, void *context) {
  mirror *m = context;
  (void)c;
  if (event == ZKE_CONFIG_ADDED) {
    for (int i = 0; i < m->count; i++) ck_assert_str_ne(m->names[i], now->name);
    snprintf(m->names[m->count++], 16, "%s", now->name);
  } else if (event == ZKE_CONFIG_REMOVED) {
    int i = 0;
    while (i < m->count && strcmp(m->names[i], before->name) != 0) i++;
    ck_assert_int_lt(i, m->count);
    memcpy(m->names[i], m->names[--m->count], 16);
  } else if (event == ZKE_CONFIG_CHANGED) {
    ck_assert_int_gt(now->stat.mzxid, before->stat.mzxid);
  }
}

/* 3,000 random changes under an event limit that overflows: after each dispatch
 * the cache, and what its listener was told, are what the file has. */
TEST(random_changes) {
  unsigned seed = test_seed();
  zke *z = test_open(":memory:");
  zke_options few = {.size = sizeof few, .event_limit = 20};
  mirror m = {0};
  zke_config_options o = {.size = sizeof o, .listener = follow, .context = &m};
  zke_config *c;
  zke_config_tree *seen, *real = NULL;
  zke *y;
  put(z, "/app", "");
  ck_ok(zke_open_session(z, &few, &y));
  ck_ok(zke_config_new(y, ROOT, &o, &c));
  ck_ok(zke_config_start(c));
  for (int i = 0; i < 3000; i++) {
    static const char *const names[] = {"", "/a", "/b", "/a/x", "/a/y", "/b/x"};
    char path[64];
    seed = seed * 1103515245u + 12345u;
    snprintf(path, sizeof path, ROOT "%s", names[(seed >> 16) % 6]);
    if (seed >> 24 & 1) {
      if (zke_set(z, path, "x", 1, -1, NULL) == ZKE_NONODE)
        zke_create(z, path, "y", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
    } else {
      zke_delete(z, path, -1);
    }
    if (seed >> 28) continue;
    ck_ok(zke_dispatch(y, NULL));
    ck_ok(zke_config_list(c, "", &seen));
    ck_ok(zke_view_read(z, ROOT, 0, &real));
    ck_assert_int_eq(seen->count, real->count);
    ck_assert_int_eq(m.count, real->count);
    for (int j = 0; j < real->count; j++) {
      ck_assert_str_eq(seen->data[j].name, real->data[j].name);
      ck_assert_mem_eq(&seen->data[j].stat.mzxid, &real->data[j].stat.mzxid, 8);
      ck_assert_str_eq(seen->data[j].data, real->data[j].data);
    }
    zke_free(seen);
    zke_free(real);
  }
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- pictures beside a history that is known ---- */

/* A tree of 85 names, three levels deep; "a-" lies between "a" and "a/a". */
enum { NAMES = 85, STEP_MOST = 6, GENERATIONS = 400, WRITERS = 8 };

/* The committed state of one generation.  The root's data is its number, and
 * each change makes the next one out of the one before and the seed alone. */
typedef struct history {
  unsigned seed;
  int64_t generation;
  struct {
    bool there;
    int version, cversion, children;
    int64_t data;
  } at[NAMES];
} history;

/* The changes of one generation. */
typedef struct history_step {
  int count;
  char paths[STEP_MOST][64], data[24];
  zke_op ops[STEP_MOST];
} history_step;

static int parent_of(int i) { return (i - 1) / 4; }

/* The i-th name of the histories' tree, some of which begin alike. */
static const char *name_of(int i) {
  static _Thread_local char name[32];
  static const char *const parts[] = {"a", "a-", "b", "c"};
  char rest[32] = "";
  name[0] = '\0';
  for (; i > 0; i = parent_of(i)) {
    snprintf(name, sizeof name, "%s%s%.20s", parts[(i - 1) % 4],
             *rest ? "/" : "", rest);
    memcpy(rest, name, sizeof rest);
  }
  return name;
}

/* A number for the k-th choice of a generation. */
static unsigned chance(const history *h, int k) {
  uint64_t x = (uint64_t)h->seed * 0x9e3779b97f4a7c15u +
               (uint64_t)h->generation * 64 + (unsigned)k;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (unsigned)(x >> 33);
}

static void history_begin(history *h, unsigned seed) {
  memset(h, 0, sizeof *h);
  h->seed = seed;
  h->at[0].there = true;
}

/* Add an operation on the i-th name to a step, which is one multi. */
static void step_add(history_step *s, int i, int type, int version) {
  char *path = s->paths[s->count];
  zke_op *op = &s->ops[s->count++];
  int len = (int)strlen(s->data);
  snprintf(path, sizeof s->paths[0], ROOT "%s%s", i ? "/" : "", name_of(i));
  if (type == ZKE_OP_SET) zke_op_set(op, path, s->data, len, version);
  if (type == ZKE_OP_DELETE) zke_op_delete(op, path, version);
  if (type == ZKE_OP_CREATE)
    zke_op_create(op, path, s->data, len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
}

/* Create, set or delete one node, whichever is possible. */
static void history_touch(history *h, int i, bool drop, history_step *s) {
  int above = parent_of(i);
  int type = h->at[i].there ? ZKE_OP_SET : ZKE_OP_CREATE;
  if (!h->at[i].there && !h->at[above].there) return;
  if (h->at[i].there && drop && !h->at[i].children) type = ZKE_OP_DELETE;
  step_add(s, i, type, -1);
  if (type != ZKE_OP_SET) {
    h->at[above].cversion++;
    h->at[above].children += type == ZKE_OP_CREATE ? 1 : -1;
    memset(&h->at[i], 0, sizeof h->at[i]);
    h->at[i].there = type == ZKE_OP_CREATE;
  } else {
    h->at[i].version++;
  }
  h->at[i].data = h->generation;
}

/* Make the next generation, and say by which changes. */
static void history_next(history *h, history_step *s) {
  int count = 1 + (int)(chance(h, 0) % (STEP_MOST - 1));
  h->generation++;
  s->count = 0;
  snprintf(s->data, sizeof s->data, "%lld", (long long)h->generation);
  step_add(s, 0, ZKE_OP_SET, (int)h->generation - 1);
  h->at[0].version++;
  h->at[0].data = h->generation;
  for (int k = 1; k <= count; k++) {
    unsigned r = chance(h, k);
    history_touch(h, 1 + (int)(r % (NAMES - 1)), r >> 16 & 1, s);
  }
}

static void history_to(history *h, int64_t generation) {
  history_step s;
  while (h->generation < generation) history_next(h, &s);
}

/* A writer: takes part in making each generation, until the last. */
static int write_history(void *arg) {
  zke_options o = {.size = sizeof o, .durability = ZKE_DURABLE_NONE};
  history h = *(history *)arg, next;
  history_step s;
  zke *z;
  if (zke_open(test_path("db"), &o, &z) != ZKE_OK) return 1;
  while (h.generation < GENERATIONS) {
    char *data = NULL;
    int rc = zke_get(z, ROOT, NULL, NULL, &data, NULL, NULL);
    if (rc == ZKE_OK) history_to(&h, strtoll(data, NULL, 10));
    zke_free(data);
    if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT) return 2;
    next = h;
    history_next(&next, &s);
    if (h.generation >= GENERATIONS) break;
    rc = zke_multi(z, s.ops, s.count, NULL);
    if (rc == ZKE_OK) h = next;
    if (rc != ZKE_OK && rc != ZKE_BADVERSION && rc != ZKE_OPERATIONTIMEOUT)
      return 3;
  }
  return zke_close(z);
}

/* What of the tree an object shows. */
typedef struct part {
  const char *name;
  int limit, levels;
  zke_config_select_fn select;
} part;

/* A selector: no node whose name ends in b, with all below it; and nothing of a
 * node that ends in -, but what is below it. */
static int no_b(const char *name, void *context) {
  (void)context;
  size_t len = strlen(name);
  if (len > 1 && strcmp(name + len - 2, "/b") == 0) return 0;
  if (strcmp(name, "b") == 0) return 0;
  return len && name[len - 1] == '-' ? ZKE_CONFIG_DESCEND
                                     : ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND;
}

static const part parts[] = {{"all", 0, 0, NULL},
                             {"overflows", 40, 0, NULL},
                             {"two levels", 0, 2, NULL},
                             {"filter", 0, 0, no_b}};

/* Does that part of the tree show the i-th name?  By its levels and its
 * selector. */
static bool part_shows(const part *p, int i) {
  int level = 0, what = 3;
  for (int j = i; p->select && j; j = parent_of(j)) {
    int of = p->select(name_of(j), NULL);
    what &= j == i || !of ? of : 3;
  }
  for (int j = i; j; j = parent_of(j)) level++;
  return (p->levels == 0 || level <= p->levels) && what & ZKE_CONFIG_INCLUDE;
}

/* What is wrong with a picture, or "". */
static const char *picture_fault(history *h, const part *p,
                                 const zke_config_tree *t) {
  static _Thread_local char text[200];
  int count = 0;
  if (!t->count || *t->data[0].name) return "no root";
  int64_t generation = strtoll(t->data[0].data, NULL, 10);
  if (generation < h->generation) return "back in time";
  history_to(h, generation);
  for (int i = 0; i < NAMES; i++) {
    if (!part_shows(p, i) || !h->at[i].there) continue;
    const zke_config_node *n = NULL;
    for (int j = 0; j < t->count && !n; j++)
      n = strcmp(t->data[j].name, name_of(i)) ? NULL : &t->data[j];
    count++;
    if (n && strtoll(n->data, NULL, 10) == h->at[i].data &&
        n->stat.version == h->at[i].version &&
        n->stat.cversion == h->at[i].cversion &&
        n->stat.numChildren == h->at[i].children)
      continue;
    snprintf(text, sizeof text,
             "generation %lld: \"%s\" %s: data %s, not %lld; version %d, %d; "
             "cversion %d, %d",
             (long long)generation, name_of(i), n ? "differs" : "missing",
             n ? n->data : "", (long long)h->at[i].data,
             n ? n->stat.version : 0, h->at[i].version,
             n ? n->stat.cversion : 0, h->at[i].cversion);
    return text;
  }
  return count == t->count ? "" : "too many nodes";
}

/* What a listener has been told, as a tree. */
typedef struct told {
  bool there[NAMES];
  char data[NAMES][24];
} told;

/* A listener that keeps the data of each name by the events alone, and finds
 * each event to fit what it knew. */
static void tell(zke_config *c, int event, const zke_config_node *before,
                 const zke_config_node *now, void *context) {
  told *t = context;
  (void)c;
  const zke_config_node *n = now ? now : before;
  if (!n) return;
  int i = 0;
  while (i < NAMES && strcmp(name_of(i), n->name) != 0) i++;
  ck_assert_int_lt(i, NAMES);
  ck_assert_int_eq(t->there[i], event != ZKE_CONFIG_ADDED);
  if (before) ck_assert_str_eq(t->data[i], before->data);
  t->there[i] = event != ZKE_CONFIG_REMOVED;
  snprintf(t->data[i], sizeof t->data[i], "%s", now ? now->data : "");
}

/* What was told is one generation as well. */
static void told_check(const told *t, history *h, const part *p) {
  history_to(h, strtoll(t->data[0], NULL, 10));
  for (int i = 0; i < NAMES; i++) {
    bool there = part_shows(p, i) && h->at[i].there;
    ck_assert_msg(t->there[i] == there, "%s is told %d", name_of(i),
                  t->there[i]);
    if (there) ck_assert_int_eq(strtoll(t->data[i], NULL, 10), h->at[i].data);
  }
}

/* A thread that looks by itself at an object of the same handle. */
typedef struct looker {
  zke_config *c;
  const part *p;
  history h;
  int done;
  char fault[200];
} looker;

/* A thread that looks at the cache until the test ends: at each look it must
 * show the tree after some step of the history. */
static void *look_there(void *arg) {
  looker *l = arg;
  while (!__atomic_load_n(&l->done, __ATOMIC_ACQUIRE) && !*l->fault) {
    zke_config_tree *tree = NULL;
    int rc = zke_config_step(l->c);
    if (rc == ZKE_OK) rc = zke_config_list(l->c, "", &tree);
    if (rc == ZKE_OK)
      snprintf(l->fault, sizeof l->fault, "%s",
               picture_fault(&l->h, l->p, tree));
    else if (rc != ZKE_OPERATIONTIMEOUT)
      snprintf(l->fault, sizeof l->fault, "%s", zke_errmsg());
    zke_free(tree);
  }
  return NULL;
}

/* The cache shows the tree after some step of the history, which the test has
 * not passed yet. */
static void expect_picture(zke_config *c, history *h, const part *p) {
  zke_config_tree *tree;
  ck_ok(zke_config_list(c, "", &tree));
  const char *fault = picture_fault(h, p, tree);
  ck_assert_msg(!*fault, "%s: %s", p->name, fault);
  zke_free(tree);
}

static zke_config *shown(zke *z, const part *p, zke_config_fn fn, void *arg) {
  zke_config_options o = {.size = sizeof o,
                          .levels = p->levels,
                          .listener = fn,
                          .context = arg,
                          .select = p->select};
  zke_config *c;
  ck_ok(zke_config_new(z, ROOT, &o, &c));
  ck_ok(zke_config_start(c));
  return c;
}

/* Watch until the last generation, and kill all writers but one meanwhile. */
static void watch_history(zke *z, zke_config *c, const told *t, const part *p,
                          history *h, pid_t *writers) {
  history h_told = *h;
  int killed = 0;
  while (h->generation < GENERATIONS) {
    int rc = zke_wait(z, zke_now(z) + 1000);
    ck_assert(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT);
    expect_picture(c, h, p);
    told_check(t, &h_told, p);
    int due = (int)(h->generation * WRITERS / GENERATIONS);
    for (; killed < due && killed < WRITERS - 1; killed++) {
      kill(writers[killed], SIGKILL);
      test_child_end(writers[killed]);
    }
  }
  while (killed < WRITERS - 1) {
    kill(writers[killed], SIGKILL);
    test_child_end(writers[killed++]);
  }
  ck_assert_int_eq(test_child_end(writers[WRITERS - 1]), 0);
}

/* Several processes change several nodes in each step, and are killed.  Each
 * picture, the listener's too, is a committed state, its Stats included, and
 * the last one is the file's. */
TEST_LOOP(pictures_are_committed_states, 0, sizeof parts / sizeof *parts) {
  const part *p = &parts[_i];
  unsigned seed = test_seed();
  zke_options few = {.size = sizeof few, .event_limit = p->limit};
  history h;
  told t = {{false}, {{0}}};
  pid_t writers[WRITERS];
  pthread_t thread;
  zke *z;
  history_begin(&h, seed);
  z = test_open(test_path("db"));
  put(z, "/app", "");
  put(z, ROOT, "0");
  ck_ok(zke_close(z));
  for (int i = 0; i < WRITERS; i++) writers[i] = test_child(write_history, &h);
  ck_ok(zke_open(test_path("db"), &few, &z));
  zke_config *c = shown(z, p, tell, &t);
  looker l = {.c = shown(z, p, NULL, NULL), .p = p, .h = h};
  ck_assert_int_eq(pthread_create(&thread, NULL, look_there, &l), 0);
  watch_history(z, c, &t, p, &h, writers);
  __atomic_store_n(&l.done, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  ck_assert_str_eq(l.fault, "");
  for (int count = 1; count;) ck_ok(zke_dispatch(z, &count));
  expect_picture(c, &h, p);
  expect_picture(l.c, &l.h, p);
  ck_assert_int_eq(l.h.generation, GENERATIONS);
  zke_config_free(c);
  zke_config_free(l.c);
  ck_ok(zke_close(z));
}

/* The children of "db" and "db/port" as their parents' Stats say, at the first
 * change that is heard of. */
static void count_children(zke_config *c, int event,
                           const zke_config_node *before,
                           const zke_config_node *now, void *context) {
  int *counts = context;
  zke_stat stat;
  (void)before, (void)now;
  if (event != ZKE_CONFIG_CHANGED || counts[2]++) return;
  ck_ok(zke_config_get(c, "db", NULL, NULL, &stat));
  counts[0] = stat.numChildren;
  ck_ok(zke_config_get(c, "db/port", NULL, NULL, &stat));
  counts[1] = stat.cversion;
}

/* What is not told yet shows in the Stats above it as well, also of a child
 * that has come and gone. */
TEST(stats_are_of_the_same_moment) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  int counts[3] = {0};
  zke_config_options o = {
      .size = sizeof o, .listener = count_children, .context = counts};
  zke_config *c;
  plant(z);
  ck_ok(zke_config_new(y, ROOT, &o, &c));
  ck_ok(zke_config_start(c));
  put(z, ROOT "/db/host", "b");
  put(z, ROOT "/db/new", "");
  put(z, ROOT "/db/port/x", "");
  drop(z, ROOT "/db/port/x");
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(counts[0], 3);
  ck_assert_int_eq(counts[1], 2);
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- what a change costs ---- */

/* Allocations of zkembed's for one change of a tree of so many nodes. */
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

/* How many allocations a cache of so many nodes needs to follow one change, of
 * each kind. */
static cost measure(const char *file, int nodes) {
  zke *z = test_open(test_path(file)), *y;
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  char path[64];
  put(z, "/app", "");
  put(z, ROOT, "");
  for (int i = 0; i < nodes; i++) {
    snprintf(path, sizeof path, ROOT "/n%d", i);
    ck_ok(zke_create(z, path, "x", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  }
  ck_ok(zke_open(test_path(file), &o, &y));
  heard h = {{0}, NULL, 0};
  zke_config_options options = {
      .size = sizeof options, .select = not_z, .context = &h};
  zke_config *c;
  cost all = {0};
  ck_ok(zke_config_new(y, ROOT, &options, &c));
  ck_ok(zke_config_start(c));
  for (int i = 0; i < 3; i++) { /* the last time counts: arrays have grown */
    put(z, ROOT "/n1", "y");
    all.set = cost_of(y, &heap);
    put(z, ROOT "/new", "y");
    all.created = cost_of(y, &heap);
    drop(z, ROOT "/new");
    all.deleted = cost_of(y, &heap);
    put(z, ROOT "/zed", "y");
    all.filtered = cost_of(y, &heap);
  }
  ck_assert_str_eq(in_memory(c, "n1"), "y");
  ck_assert_str_eq(in_memory(c, "new"), "none");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
  return all;
}

/* As much as what has changed, however many nodes there are. */
TEST(a_change_costs_what_has_changed) {
  cost few = measure("few", 5), many = measure("many", 1500);
  ck_assert_int_eq(many.set, few.set);
  ck_assert_int_eq(many.created, few.created);
  ck_assert_int_eq(many.deleted, few.deleted);
  ck_assert_int_eq(many.filtered, few.filtered);
  ck_assert_int_lt(few.set, 40);
}

/* ---- what may not be read ---- */

/* A change of it tells nobody, and yet what is shown is of one moment. */
TEST(unreadable_nodes_go) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, NULL, 0};
  plant(z);
  ck_ok(zke_add_auth(z, "digest", "me:pw", 5));
  zke_config *c = started(y, 0, &h);
  expect(y, &h, "+:root +db: +db/host:a +db/port:1 READY ");
  ck_ok(zke_set_acl(z, ROOT "/db", -1, ZKE_CREATOR_ALL_ACL, NULL));
  put(z, ROOT "/db", "secret"); /* spent in silence */
  expect(y, &h, "");
  put(z, ROOT, "new");
  expect(y, &h, "~:root>new -db: -db/host:a -db/port:1 ");
  put(z, ROOT "/db/host", "b"); /* may be read, but is not seen */
  put(z, ROOT "/db/more", "c");
  expect(y, &h, "");
  ck_assert_str_eq(in_memory(c, "db/host"), "none");
  ck_ok(zke_set_acl(z, ROOT "/db", -1, ZKE_OPEN_ACL, NULL));
  put(z, ROOT "/db", "open");
  expect(y, &h, "+db:open +db/host:b +db/more:c +db/port:1 ");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* What is still to be told, but may not be read, counts as well. */
TEST(unreadable_changes_count_before_they_are_told) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, NULL, 0};
  plant(z);
  ck_ok(zke_add_auth(z, "digest", "me:pw", 5));
  zke_config *c = started(y, 0, &h);
  expect(y, &h, "+:root +db: +db/host:a +db/port:1 READY ");
  put(z, ROOT "/db/port", "2");
  ck_ok(zke_set_acl(z, ROOT "/db/host", -1, ZKE_CREATOR_ALL_ACL, NULL));
  put(z, ROOT "/db/host", "secret");
  put(z, ROOT, "new");
  expect(y, &h, "~:root>new -db/host:a ~db/port:1>2 ");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- a filter ---- */

/* "db" and all in it, of "web" the children alone. */
static int choose(const char *name, void *context) {
  (void)context;
  if (!*name || strcmp(name, "web") == 0) return ZKE_CONFIG_DESCEND;
  if (strncmp(name, "web/", 4) == 0) return ZKE_CONFIG_INCLUDE;
  if (strcmp(name, "db") == 0 || strncmp(name, "db/", 3) == 0)
    return ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND;
  return 0;
}

/* What it leaves out is neither shown nor told, but what is below may be. */
TEST(filter_chooses) {
  zke *z = test_open(":memory:");
  heard h = {{0}, NULL, 0};
  zke_config_options o = {
      .size = sizeof o, .listener = hear, .context = &h, .select = choose};
  zke_config *c;
  zke_config_tree *tree;
  plant(z);
  put(z, ROOT "/web", "w");
  put(z, ROOT "/web/a", "1");
  put(z, ROOT "/web/a/deep", "2");
  put(z, ROOT "/other", "3");
  put(z, ROOT "/other/x", "4");
  ck_ok(zke_config_new(z, ROOT, &o, &c));
  ck_ok(zke_config_start(c));
  expect(z, &h, "+db: +db/host:a +db/port:1 +web/a:1 READY ");
  int64_t revision = zke_config_revision(c);
  put(z, ROOT, "x");
  put(z, ROOT "/web", "x");
  put(z, ROOT "/web/a/deep", "x");
  put(z, ROOT "/other", "x");
  put(z, ROOT "/other/x", "x");
  expect(z, &h, "");
  ck_assert_int_eq(zke_config_revision(c), revision);
  put(z, ROOT "/web/b", "5");
  put(z, ROOT "/db/host", "b");
  expect(z, &h, "~db/host:a>b +web/b:5 ");
  ck_assert_str_eq(in_memory(c, ""), "none");
  ck_assert_str_eq(in_memory(c, "web"), "none");
  ck_assert_str_eq(in_memory(c, "web/a"), "1");
  ck_ok(zke_config_list(c, "web", &tree));
  ck_assert_int_eq(tree->count, 2);
  zke_free(tree);
  drop(z, ROOT "/web/a/deep");
  drop(z, ROOT "/web/a");
  drop(z, ROOT "/web/b");
  drop(z, ROOT "/web");
  expect(z, &h, "-web/a:1 -web/b:5 ");
  put(z, ROOT "/web", "");
  put(z, ROOT "/web/c", "6");
  expect(z, &h, "+web/c:6 ");
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* ---- waiting ---- */

typedef struct waiter {
  zke_config *c;
  const char *name;
  int64_t since, deadline, out;
  pthread_t thread;
  int rc, done;
  char sentence[256];
} waiter;

static void *wait_there(void *arg) {
  waiter *w = arg;
  w->rc = zke_config_wait(w->c, w->name, w->since, w->deadline, &w->out);
  snprintf(w->sentence, sizeof w->sentence, "%s", zke_errmsg());
  __atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void wait_begin(waiter *w, zke_config *c, const char *name,
                       int64_t since) {
  *w = (waiter){.c = c, .name = name, .since = since, .deadline = ZKE_FOREVER};
  ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_there, w), 0);
}

static int wait_end(waiter *w) {
  ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
  return w->rc;
}

/* 0: initialised; then the next change; one that has been is not waited for. */
TEST(waits_for_a_revision) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  int64_t revision = 0;
  waiter w;
  plant(z);
  zke_config *c = make(y, 0, NULL);
  ck_assert_int_eq(zke_config_revision(c), 0);
  ck_ok(zke_config_wait(c, NULL, 0, zke_now(y), &revision)); /* starts */
  ck_assert_int_eq(revision, 1);
  wait_begin(&w, c, NULL, revision);
  ck_until(watching(z) == 1, 5000);
  ck_ok(zke_wake(y));
  ck_assert(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
  put(z, ROOT "/db/host", "b");
  ck_ok(wait_end(&w));
  ck_assert_int_eq(w.out, 2);
  ck_assert_str_eq(in_memory(c, "db/host"), "b");
  ck_ok(zke_config_wait(c, NULL, 1, zke_now(y), NULL));
  int64_t begin = zke_now(y);
  ck_rc(zke_config_wait(c, NULL, 2, begin + 30, NULL), ZKE_OPERATIONTIMEOUT);
  ck_says(ROOT);
  ck_assert_int_ge(zke_now(y), begin + 30);
  put(z, ROOT, "x"); /* known only to the file: a last look finds it */
  ck_ok(zke_config_wait(c, NULL, 2, 0, NULL));
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A node's change, coming and going; other nodes do not count. */
TEST(waits_for_a_node) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_stat stat;
  waiter w;
  plant(z);
  zke_config *c = started(y, 0, NULL);
  ck_ok(zke_config_get(c, "db/host", NULL, NULL, &stat));
  ck_ok(zke_config_wait(c, "db/host", 0, zke_now(y), NULL));
  wait_begin(&w, c, "db/host", stat.mzxid);
  put(z, ROOT "/db/port", "7");
  ck_until(strcmp(in_memory(c, "db/port"), "7") == 0, 5000);
  ck_assert(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
  put(z, ROOT "/db/host", "b");
  ck_ok(wait_end(&w));
  ck_assert_int_gt(w.out, stat.mzxid);
  wait_begin(&w, c, "db/host", w.out);
  drop(z, ROOT "/db/host");
  ck_ok(wait_end(&w));
  ck_assert_int_eq(w.out, 0);
  ck_rc(zke_config_wait(c, "db/host", 0, zke_now(y) + 10, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_says(ROOT "/db/host");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A second waiting call is refused; cancel ends the first one and not the
 * next. */
TEST(cancel_ends_one_wait) {
  zke *z = test_open(test_path("db"));
  waiter w;
  zke_config *c = started(z, 0, NULL);
  wait_begin(&w, c, NULL, 1);
  while (zke_config_wait(c, NULL, 0, 0, NULL) == ZKE_OK) test_pause();
  ck_rc(zke_config_wait(c, NULL, 0, 0, NULL), ZKE_MISUSE);
  ck_until(zke_config_cancel(c) == ZKE_OK, 10000);
  ck_rc(wait_end(&w), ZKE_CANCELLED);
  ck_assert_ptr_nonnull(strstr(w.sentence, ROOT));
  ck_rc(zke_config_cancel(c), ZKE_IDLE); /* and the next is not hit */
  ck_ok(zke_config_wait(c, NULL, 0, soon(z), NULL));
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* After the session's end nothing in memory passes for current. */
TEST(nothing_is_current_after_the_sessions_end) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  heard h = {{0}, NULL, 0};
  char *data = NULL;
  waiter w;
  plant(z);
  zke_config *c = started(y, 0, &h);
  h.text[0] = '\0';
  wait_begin(&w, c, NULL, 1);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(wait_end(&w), ZKE_INVALIDSTATE);
  ck_assert_str_eq(h.text, "LOST ");
  ck_rc(zke_config_get(c, "", &data, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_config_wait(c, NULL, 0, 0, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_config_start(c), ZKE_INVALIDSTATE);
  ck_rc(zke_config_set(c, "x", "", 0, -1, 0, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(zke_config_revision(c), 0);
  ck_assert_str_eq(h.text, "LOST ");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Freed by its listener in the middle of the news: nothing more is told. */
TEST(listener_frees) {
  zke *z = test_open(":memory:");
  heard h = {{0}, NULL, 0};
  plant(z);
  zke_config *c = make(z, 0, &h);
  h.free_it = c;
  ck_ok(zke_config_start(c));
  ck_assert_str_eq(h.text, "+:root ");
  ck_assert_int_eq(watching(z), 0);
  put(z, ROOT, "x");
  expect(z, &h, "+:root ");
  ck_ok(zke_close(z));
}

/* ---- setting ---- */

/* A set makes missing parents, keeps to the version that it is given, and is
 * not refused by its own change when the reply was lost. */
TEST(set_makes_and_checks) {
  zke *z = test_open(":memory:");
  zke_stat stat;
  zke_config *c = started(z, 0, NULL);
  ck_ok(zke_config_set(c, "a/b", "1", 1, -1, soon(z), &stat));
  ck_assert_int_eq(stat.version, 0); /* its parents come first, empty */
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_str_eq(in_memory(c, "a"), "");
  ck_assert_str_eq(in_memory(c, "a/b"), "1");
  ck_ok(zke_config_set(c, "a/b", "2", 1, 0, soon(z), &stat));
  ck_assert_int_eq(stat.version, 1);
  ck_rc(zke_config_set(c, "a/b", "3", 1, 0, soon(z), &stat), ZKE_BADVERSION);
  ck_rc(zke_config_set(c, "a/c", "3", 1, 0, soon(z), &stat), ZKE_NONODE);
  ck_ok(zke_config_set(c, "", "r", 1, -1, soon(z), NULL));
  ck_ok(zke_config_set(c, "a", NULL, -1, -1, soon(z), NULL));
  ck_rc(zke_config_set(c, "a/", "3", 1, -1, soon(z), NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_set(c, "a", NULL, 3, -1, soon(z), NULL), ZKE_BADARGUMENTS);
  /* a checked set whose reply was lost is not taken for a refusal */
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_ok(zke_config_set(c, "a/b", "3", 1, 1, soon(z), &stat));
  ck_assert_int_eq(stat.version, 2);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_BEFORE, 0));
  ck_ok(zke_config_set(c, "a/b", "4", 1, 2, soon(z), &stat));
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_config_set(c, "a/b", "9", 1, 2, soon(z), &stat), ZKE_BADVERSION);
  /* but it may be older than what has come since */
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_config_set(c, "a/b", "9", 1, 1, soon(z), &stat),
        ZKE_CONNECTIONLOSS);
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* Set by the holder of something, and by nobody who held it before: neither the
 * node nor what is above it is made, and a lost reply does not get around it.
 */
TEST(set_with_guards) {
  zke *z = test_open(":memory:");
  zke_stat stat = {0};
  zke_op guards[2], change;
  zke_config *c = started(z, 0, NULL);
  ck_ok(zke_create(z, "/held", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  zke_op_check(&guards[0], "/", -1);
  zke_op_check(&guards[1], "/held", 0);
  ck_ok(
      zke_config_set_guarded(c, "a/b", "1", 1, -1, guards, 2, soon(z), &stat));
  ck_ok(zke_config_set_guarded(c, "a/b", "2", 1, 0, guards, 2, soon(z), &stat));
  ck_assert_int_eq(stat.version, 1);
  ck_rc(zke_config_set_guarded(c, "a/b", "3", 1, 0, guards, 2, soon(z), NULL),
        ZKE_BADVERSION);
  ck_rc(zke_config_set_guarded(c, "a/c", "3", 1, 0, guards, 2, soon(z), NULL),
        ZKE_NONODE);
  for (int when = ZKE_TEST_FAIL_BEFORE; when <= ZKE_TEST_FAIL_AFTER; when++) {
    int version = stat.version;
    ck_ok(zke_test_fail(z, when, 0));
    ck_ok(zke_config_set_guarded(c, "a/b", "3", 1, version, guards, 2, soon(z),
                                 &stat));
    ck_assert_int_eq(stat.version, version + 1);
  }
  zke_op_delete(&change, "/held", -1);
  guards[0] = change;
  ck_rc(zke_config_set_guarded(c, "a", "x", 1, -1, guards, 1, soon(z), NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_config_set_guarded(c, "a", "x", 1, -1, NULL, 1, soon(z), NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_config_set_guarded(c, "a", "x", 1, -1, guards, -1, soon(z), NULL),
        ZKE_BADARGUMENTS);
  zke_op_check(&guards[0], "/", -1);
  for (int gone = 0; gone < 2; gone++) { /* another version, then none */
    if (gone)
      drop(z, "/held");
    else
      put(z, "/held", "another's");
    ck_rc(
        zke_config_set_guarded(c, "a/b", "9", 1, -1, guards, 2, soon(z), NULL),
        ZKE_LOST);
    ck_says("/held");
    ck_rc(
        zke_config_set_guarded(c, "n/m", "9", 1, -1, guards, 2, soon(z), NULL),
        ZKE_LOST);
    ck_rc(zke_config_set_guarded(c, "a/b", "9", 1, stat.version, guards, 2,
                                 soon(z), NULL),
          ZKE_LOST);
    ck_rc(zke_exists(z, ROOT "/n", NULL, NULL, NULL), ZKE_NONODE);
    ck_ok(zke_dispatch(z, NULL));
    ck_assert_str_eq(in_memory(c, "a/b"), "3");
  }
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* In the pause before the repetition the guard's node goes. */
static void lose_guard(void *context, int64_t ns) {
  zke **z = context;
  (void)ns;
  if (zke_exists(*z, "/held", NULL, NULL, NULL) == ZKE_OK) drop(*z, "/held");
}

/* The reply was lost, and then the guard: what was done is found where the
 * version tells, and is not said to be undone where nothing does. */
TEST_LOOP(guard_goes_after_a_lost_reply, 0, 4) {
  static const struct {
    int when, version, rc;
  } rows[] = {{ZKE_TEST_FAIL_AFTER, 0, ZKE_OK},
              {ZKE_TEST_FAIL_BEFORE, 0, ZKE_LOST},
              {ZKE_TEST_FAIL_AFTER, -1, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_BEFORE, -1, ZKE_CONNECTIONLOSS}};
  zke *z, *other = NULL;
  zke_op guard;
  zke_os os = {.size = sizeof os, .context = &other, .sleep = lose_guard};
  zke_options o = {.size = sizeof o, .os = &os};
  ck_ok(zke_open(":memory:", &o, &z));
  other = test_session(z, NULL);
  plant(z);
  put(z, "/held", "");
  zke_config *c = started(z, 0, NULL);
  zke_op_check(&guard, "/held", -1);
  ck_ok(zke_test_fail(z, rows[_i].when, 0));
  ck_rc(zke_config_set_guarded(c, "", "y", 1, rows[_i].version, &guard, 1,
                               soon(z), NULL),
        rows[_i].rc);
  if (rows[_i].rc != ZKE_OK) ck_says("/held is not held");
  const char *words = strstr(zke_errmsg(), "is not known");
  if (words) ck_assert_ptr_null(strstr(words + 1, "is not known"));
  ck_rc(zke_exists(z, "/held", NULL, NULL, NULL), ZKE_NONODE);
  zke_config_free(c);
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
}

/* What another one does in the pause before a repetition. */
typedef struct meddling {
  zke *z;
  int sets;  /* of the node; -1: it deletes it */
  int anew;  /* then it makes it anew, at once (1) or in the next pause (2),
                which is the longer one */
  int then;  /* and sets it so often */
  bool held; /* /held is there: it deletes that, too */
} meddling;

static void meddle(void *context, int64_t ns) {
  meddling *m = context;
  if (m->sets < 0) drop(m->z, ROOT "/db/port");
  for (int i = 0; i < m->sets; i++) put(m->z, ROOT "/db/port", "other");
  if (m->anew == 1 || (m->anew == 2 && ns > 7 * INT64_C(1000000))) {
    for (int i = 0; i <= m->then; i++) put(m->z, ROOT "/db/port", "other");
    m->anew = 0;
  }
  if (m->held) drop(m->z, "/held");
  m->sets = 0;
  m->held = false;
}

/* A configuration with one beside it that meddles; its database is "db". */
static zke_config *started_beside(meddling *m, zke **z_out) {
  zke_os os = {.size = sizeof os, .context = m, .sleep = meddle};
  zke_options o = {.size = sizeof o, .os = &os};
  ck_ok(zke_open(test_path("db"), &o, z_out));
  m->z = test_session(*z_out, NULL);
  plant(*z_out);
  return started(*z_out, 0, NULL);
}

/* The reply to a change with a version was lost, and others go on from there,
 * perhaps after its guard has gone: it is refused only where it was not made.
 * So it is at versions that have wrapped around, or are about to.
 */
TEST_LOOP(the_node_goes_on_after_a_lost_reply, 0, 27) {
  static const int32_t versions[] = {0, -2, INT32_MAX};
  static const struct {
    int when, sets, guards, rc;
  } rows[] = {{ZKE_TEST_FAIL_AFTER, 1, 0, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_AFTER, -1, 0, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_BEFORE, 1, 0, ZKE_BADVERSION},
              {ZKE_TEST_FAIL_BEFORE, 2, 0, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_BEFORE, -1, 0, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_BEFORE, 0, 0, ZKE_OK},
              {ZKE_TEST_FAIL_AFTER, 1, 1, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_AFTER, -1, 1, ZKE_CONNECTIONLOSS},
              {ZKE_TEST_FAIL_BEFORE, 1, 1, ZKE_LOST}};
  meddling m = {.sets = 0};
  int row = _i % 9, version = versions[_i / 9];
  zke_op guard;
  zke *z;
  zke_config *c = started_beside(&m, &z);
  put(z, "/held", "");
  test_set_version(test_path("db"), ROOT "/db/port", version);
  zke_op_check(&guard, "/held", -1);
  m.sets = rows[row].sets;
  m.held = rows[row].guards > 0;
  ck_ok(zke_test_fail(z, rows[row].when, 0));
  ck_rc(zke_config_set_guarded(c, "db/port", "2", 1, version, &guard,
                               rows[row].guards, soon(z), NULL),
        rows[row].rc);
  if (rows[row].rc == ZKE_CONNECTIONLOSS)
    ck_says("is not known: the reply was lost");
  ck_assert_int_eq(m.sets, 0);
  zke_config_free(c);
  ck_ok(zke_close(m.z));
  ck_ok(zke_close(z));
}

/* The same where the node is made anew, with the version that is to be set or
 * the one behind it: what the others have made stays as it is. */
TEST_LOOP(the_node_is_made_anew_after_a_lost_reply, 0, 8) {
  int before = _i & 1, pause = 1 + (_i >> 1 & 1);
  meddling m = {.sets = 0};
  char *data = NULL;
  zke *z;
  zke_config *c = started_beside(&m, &z);
  m.sets = -1;
  m.anew = pause;
  m.then = _i >> 2;
  ck_ok(
      zke_test_fail(z, before ? ZKE_TEST_FAIL_BEFORE : ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_config_set(c, "db/port", "2", 1, 0, soon(z), NULL),
        ZKE_CONNECTIONLOSS);
  ck_says("is not known: the reply was lost");
  ck_assert_int_eq(m.anew, pause == 1 ? 0 : 2); /* it is not tried again */
  int rc = zke_get(z, ROOT "/db/port", NULL, NULL, &data, NULL, NULL);
  ck_assert_int_eq(rc, pause == 1 ? ZKE_OK : ZKE_NONODE);
  if (rc == ZKE_OK) ck_assert_str_eq(data, "other");
  zke_free(data);
  zke_config_free(c);
  ck_ok(zke_close(m.z));
  ck_ok(zke_close(z));
}

/* P11: arguments that make no sense, and reading before the start, are refused;
 * the output is NULL then. */
TEST(bad_arguments) {
  zke *z = test_open(":memory:");
  zke_config_options o = {.size = 3};
  zke_config *c = (zke_config *)&o;
  zke_config_tree *tree;
  ck_rc(zke_config_new(z, ROOT, &o, &c), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(c);
  o = (zke_config_options){.size = sizeof o, .levels = -2};
  ck_rc(zke_config_new(z, ROOT, &o, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(z, "x", NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(z, "/", NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(NULL, ROOT, NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_config_new(z, ROOT, NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_config_revision(NULL), 0);
  c = make(z, 0, NULL);
  ck_rc(zke_config_get(c, "", NULL, NULL, NULL), ZKE_MISUSE);
  ck_rc(zke_config_list(c, "", &tree), ZKE_MISUSE);
  ck_rc(zke_config_get(c, NULL, NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_list(c, "", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_set(c, NULL, "", 0, -1, 0, NULL), ZKE_BADARGUMENTS);
  zke_config_free(NULL);
  zke_config_free(c);
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults, processes ---- */

static void prepare(zke *z) {
  put(z, "/app", "");
  put(z, ROOT, "root");
}

/* The typical use: wait for the start, set, wait for the node, and read it. */
static int use(zke *z) {
  heard h = {{0}, NULL, 0};
  zke_config_options o = {.size = sizeof o, .listener = hear, .context = &h};
  zke_config *c = NULL;
  int64_t revision = 0;
  int rc = zke_config_new(z, ROOT, &o, &c);
  if (rc == ZKE_OK)
    rc = zke_config_wait(c, NULL, 0, zke_now(z) + 1000, &revision);
  if (rc == ZKE_OK)
    rc = zke_config_set(c, "a/b", "1", 1, -1, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK) rc = zke_config_wait(c, "a/b", 0, zke_now(z) + 1000, NULL);
  if (rc == ZKE_OK) rc = zke_config_get(c, "a/b", NULL, NULL, NULL);
  if (rc == ZKE_OK && !h.ready) rc = ZKE_SYSTEMERROR;
  zke_config_free(c);
  return rc;
}

/* The set was made whole or not at all; others see it and go on. */
static void check(zke *z, int rc) {
  zke_config *c = started(z, 0, NULL);
  if (rc == ZKE_OK) ck_assert_str_eq(in_memory(c, "a/b"), "1");
  if (strcmp(in_memory(c, "a/b"), "none") != 0)
    ck_assert_str_eq(in_memory(c, "a/b"), "1");
  ck_ok(zke_config_set(c, "a/b", "2", 1, -1, soon(z), NULL));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_str_eq(in_memory(c, "a/b"), "2");
  zke_config_free(c);
}

static const recipe_use uses[] = {{"config", prepare, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* Several processes follow a counter that another one sets; the last value
 * reaches all of them. */
TEST(the_last_value_reaches_all_processes) {
  const char *db = test_path("db");
  int ready[2];
  char byte;
  pid_t pids[3];
  ck_assert_int_eq(pipe(ready), 0);
  for (int i = 0; i < 3; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *z;
    zke_config *c;
    int64_t revision = 0;
    if (read(ready[0], &byte, 1) != 1) _exit(2);
    int rc = zke_open(db, NULL, &z);
    if (rc == ZKE_OK) rc = zke_config_new(z, ROOT, NULL, &c);
    for (char *data = NULL; rc == ZKE_OK;) {
      rc = zke_config_wait(c, NULL, revision, zke_now(z) + test_patience(10000),
                           &revision);
      if (rc == ZKE_OK) rc = zke_config_get(c, "n", &data, NULL, NULL);
      bool last = rc == ZKE_OK && strcmp(data, "50") == 0;
      zke_free(data);
      data = NULL;
      if (last) _exit(0);
    }
    _exit(1);
  }
  zke *z = test_open(db);
  plant(z);
  put(z, ROOT "/n", "0");
  ck_assert_int_eq(write(ready[1], "abc", 3), 3);
  ck_until(watching(z) == 3, 8000);
  for (int i = 1; i <= 50; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    put(z, ROOT "/n", text);
  }
  for (int i = 0; i < 3; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
  ck_ok(zke_close(z));
}
