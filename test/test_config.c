/* test_config.c - recipes/config: a node, or all below it, in memory
 *
 * Issue 4, recipe 1 (configuration), and recipes.md 1.8: survives deletion
 * and re-creation, misses nothing, compares mzxid, can be taken back. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../recipes/config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes.h"

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

static void put(zke *z, const char *path, const char *data) {
  int rc = zke_set(z, path, data, (int)strlen(data), -1, NULL);
  if (rc == ZKE_NONODE)
    rc = zke_create(z, path, data, (int)strlen(data), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT, NULL, NULL);
  ck_ok(rc);
}

static void drop(zke *z, const char *path) { ck_ok(zke_delete(z, path, -1)); }

static void plant(zke *z) {
  put(z, "/app", "");
  put(z, ROOT, "root");
  put(z, ROOT "/db", "");
  put(z, ROOT "/db/host", "a");
  put(z, ROOT "/db/port", "1");
}

static int64_t soon(zke *z) { return zke_now(z) + 5000; }

/* How many sessions watch something. */
static int watches(zke *z) {
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
START_TEST(start_tells_what_is_there) {
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
END_TEST

/* Added, changed and removed, each with old and new data and Stat. */
START_TEST(changes_are_told) {
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
  ck_assert_int_eq(watches(z), 0);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}
END_TEST

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

START_TEST(a_multi_is_seen_whole) {
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
END_TEST

/* recipes.md 1.8: deletion and re-creation of the root do not end it. */
START_TEST(survives_the_root) {
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
    ck_assert_int_eq(watches(z), 0);
    if (all) drop(z, ROOT "/a");
    drop(z, ROOT);
    drop(z, "/app");
  }
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}
END_TEST

/* recipes.md 1.8: the version of the new node is the same, the mzxid is not. */
START_TEST(made_anew_is_a_change) {
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
END_TEST

/* P4: after an overflow one look catches up with everything, and goes on. */
START_TEST(catches_up_after_overflow) {
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
END_TEST

/* The node alone, one level, all of them. */
START_TEST(levels_of_the_tree) {
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
END_TEST

/* Names that sort between a node and its children; a part of the tree; NULL
 * data and binary data. */
START_TEST(list_of_a_part) {
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
END_TEST

/* Reading asks nobody: what others change is not seen before it is
 * dispatched, and the system is not called. */
static long calls;
static int (*real_lock)(void *, int, int64_t, int64_t, int);
static int count_lock(void *c, int fd, int64_t offset, int64_t count, int how) {
  calls++;
  return real_lock(c, fd, offset, count, how);
}

START_TEST(reads_without_io) {
  zke_os os;
  zke *z;
  zke_os_default(&os);
  real_lock = os.lock_range;
  os.lock_range = count_lock;
  zke_options o = {.size = sizeof o, .os = &os};
  ck_ok(zke_open(test_path("db"), &o, &z));
  plant(z);
  zke_config *c = started(z, 0, NULL);
  zke *other = test_open(test_path("db"));
  put(other, ROOT "/db/host", "b");
  long before = calls;
  for (int i = 0; i < 1000; i++) ck_assert_str_eq(in_memory(c, "db/host"), "a");
  ck_assert_int_eq(calls, before);
  ck_ok(zke_wait(z, soon(z)));
  ck_assert_str_eq(in_memory(c, "db/host"), "b");
  zke_config_free(c);
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
}
END_TEST

/* A node that the session may not read is not there, and hides nothing. */
START_TEST(unreadable_is_not_there) {
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
END_TEST

/* Many random changes: memory ends as the file is, and the news add up. */
typedef struct mirror {
  int count;
  char names[64][16];
} mirror;

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

START_TEST(random_changes) {
  unsigned seed =
      getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : (unsigned)test_now();
  zke *z = test_open(":memory:");
  zke_options few = {.size = sizeof few, .event_limit = 20};
  mirror m = {0};
  zke_config_options o = {.size = sizeof o, .listener = follow, .context = &m};
  zke_config *c;
  zke_config_tree *seen, *real = NULL;
  zke *y;
  printf("random_changes: SEED=%u\n", seed);
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
    ck_ok(zke_view_read(z, ROOT, 0, NULL, &real));
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
END_TEST

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
  w->rc = w->name ? zke_config_wait_node(w->c, w->name, w->since, w->deadline,
                                         &w->out)
                  : zke_config_wait(w->c, w->since, w->deadline, &w->out);
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
START_TEST(waits_for_a_revision) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  int64_t revision = 0;
  waiter w;
  plant(z);
  zke_config *c = make(y, 0, NULL);
  ck_assert_int_eq(zke_config_revision(c), 0);
  ck_ok(zke_config_wait(c, 0, zke_now(y), &revision)); /* starts */
  ck_assert_int_eq(revision, 1);
  wait_begin(&w, c, NULL, revision);
  ck_until(watches(z) == 1, 5000);
  ck_ok(zke_wake(y));
  ck_assert(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
  put(z, ROOT "/db/host", "b");
  ck_ok(wait_end(&w));
  ck_assert_int_eq(w.out, 2);
  ck_assert_str_eq(in_memory(c, "db/host"), "b");
  ck_ok(zke_config_wait(c, 1, zke_now(y), NULL));
  int64_t begin = zke_now(y);
  ck_rc(zke_config_wait(c, 2, begin + 30, NULL), ZKE_OPERATIONTIMEOUT);
  ck_says(ROOT);
  ck_assert_int_ge(zke_now(y), begin + 30);
  put(z, ROOT, "x"); /* known only to the file: a last look finds it */
  ck_ok(zke_config_wait(c, 2, 0, NULL));
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}
END_TEST

/* A node's change, coming and going; other nodes do not count. */
START_TEST(waits_for_a_node) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_stat stat;
  waiter w;
  plant(z);
  zke_config *c = started(y, 0, NULL);
  ck_ok(zke_config_get(c, "db/host", NULL, NULL, &stat));
  ck_ok(zke_config_wait_node(c, "db/host", 0, zke_now(y), NULL));
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
  ck_rc(zke_config_wait_node(c, "db/host", 0, zke_now(y) + 10, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_says(ROOT "/db/host");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}
END_TEST

START_TEST(cancel_and_misuse) {
  zke *z = test_open(test_path("db"));
  waiter w;
  zke_config *c = started(z, 0, NULL);
  wait_begin(&w, c, NULL, 1);
  while (zke_config_wait(c, 0, 0, NULL) == ZKE_OK) test_pause();
  ck_rc(zke_config_wait(c, 0, 0, NULL), ZKE_MISUSE);
  ck_until(zke_config_cancel(c) == ZKE_OK, 10000);
  ck_rc(wait_end(&w), ZKE_CANCELLED);
  ck_assert_ptr_nonnull(strstr(w.sentence, ROOT));
  ck_rc(zke_config_cancel(c), ZKE_IDLE); /* and the next is not hit */
  ck_ok(zke_config_wait(c, 0, soon(z), NULL));
  zke_config_free(c);
  ck_ok(zke_close(z));
}
END_TEST

/* After the session's end nothing in memory passes for current. */
START_TEST(expired) {
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
  ck_rc(zke_config_wait(c, 0, 0, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_config_start(c), ZKE_INVALIDSTATE);
  ck_rc(zke_config_set(c, "x", "", 0, -1, 0, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(zke_config_revision(c), 0);
  ck_assert_str_eq(h.text, "LOST ");
  zke_config_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}
END_TEST

/* Freed by its listener in the middle of the news: nothing more is told. */
START_TEST(listener_frees) {
  zke *z = test_open(":memory:");
  heard h = {{0}, NULL, 0};
  plant(z);
  zke_config *c = make(z, 0, &h);
  h.free_it = c;
  ck_ok(zke_config_start(c));
  ck_assert_str_eq(h.text, "+:root ");
  ck_assert_int_eq(watches(z), 0);
  put(z, ROOT, "x");
  expect(z, &h, "+:root ");
  ck_ok(zke_close(z));
}
END_TEST

/* ---- setting ---- */

START_TEST(set_makes_and_checks) {
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
  ck_rc(zke_config_set(c, "a/b", "9", 1, 1, soon(z), &stat), ZKE_BADVERSION);
  zke_config_free(c);
  ck_ok(zke_close(z));
}
END_TEST

/* Set by the holder of something, and by nobody who held it before: neither the
 * node nor what is above it is made, and a lost reply does not get around it.
 */
START_TEST(set_with_guards) {
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
END_TEST

/* In the pause before the repetition the guard's node goes. */
static void lose_guard(void *context, int64_t ns) {
  zke **z = context;
  (void)ns;
  if (zke_exists(*z, "/held", NULL, NULL, NULL) == ZKE_OK) drop(*z, "/held");
}

/* The reply was lost, and then the guard: what was done is found where the
 * version tells, and is not said to be undone where nothing does. */
START_TEST(guard_goes_after_a_lost_reply) {
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
  ck_rc(zke_exists(z, "/held", NULL, NULL, NULL), ZKE_NONODE);
  zke_config_free(c);
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
}
END_TEST

START_TEST(bad_arguments) {
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
  ck_rc(zke_config_start(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_cancel(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_wait(NULL, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_get(NULL, "", NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_config_revision(NULL), 0);
  c = make(z, 0, NULL);
  ck_rc(zke_config_get(c, "", NULL, NULL, NULL), ZKE_MISUSE);
  ck_rc(zke_config_list(c, "", &tree), ZKE_MISUSE);
  ck_rc(zke_config_get(c, NULL, NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_list(c, "", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_wait_node(c, NULL, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_config_set(c, NULL, "", 0, -1, 0, NULL), ZKE_BADARGUMENTS);
  zke_config_free(NULL);
  zke_config_free(c);
  ck_ok(zke_close(z));
}
END_TEST

/* ---- deaths, lost replies, faults, processes ---- */

static void prepare(zke *z) {
  put(z, "/app", "");
  put(z, ROOT, "root");
}

static int use(zke *z) {
  heard h = {{0}, NULL, 0};
  zke_config_options o = {.size = sizeof o, .listener = hear, .context = &h};
  zke_config *c = NULL;
  int64_t revision = 0;
  int rc = zke_config_new(z, ROOT, &o, &c);
  if (rc == ZKE_OK) rc = zke_config_wait(c, 0, zke_now(z) + 1000, &revision);
  if (rc == ZKE_OK)
    rc = zke_config_set(c, "a/b", "1", 1, -1, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK)
    rc = zke_config_wait_node(c, "a/b", 0, zke_now(z) + 1000, NULL);
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

static const recipe_use typical = {"config", prepare, use, check};

START_TEST(dies_anywhere) { ck_assert_int_gt(recipe_deaths(&typical), 10); }
END_TEST

START_TEST(lost_replies) { recipe_lost_replies(&typical); }
END_TEST

START_TEST(faults) { recipe_faults(&typical); }
END_TEST

/* Several processes follow a counter that another one sets; the last value
 * reaches all of them. */
START_TEST(processes) {
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
      rc = zke_config_wait(c, revision, zke_now(z) + 10000, &revision);
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
  ck_until(watches(z) == 3, 8000);
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
END_TEST

static void add(Suite *s, const char *name, const TTest *const *tests,
                int count, int timeout) {
  TCase *tc = tcase_create(name);
  tcase_set_timeout(tc, timeout);
  for (int i = 0; i < count; i++) tcase_add_test(tc, tests[i]);
  suite_add_tcase(s, tc);
}

int main(int argc, char **argv) {
  const TTest *const tests[] = {start_tells_what_is_there,
                                changes_are_told,
                                a_multi_is_seen_whole,
                                survives_the_root,
                                made_anew_is_a_change,
                                catches_up_after_overflow,
                                levels_of_the_tree,
                                list_of_a_part,
                                reads_without_io,
                                unreadable_is_not_there,
                                random_changes,
                                waits_for_a_revision,
                                waits_for_a_node,
                                cancel_and_misuse,
                                expired,
                                listener_frees,
                                set_makes_and_checks,
                                set_with_guards,
                                bad_arguments,
                                processes};
  const TTest *const proof[] = {dies_anywhere, lost_replies, faults};
  Suite *s = suite_create("config");
  add(s, "config", tests, sizeof tests / sizeof *tests, 30);
  add(s, "proof", proof, 3, 120);
  TCase *guards = tcase_create("guards");
  tcase_add_loop_test(guards, guard_goes_after_a_lost_reply, 0, 4);
  suite_add_tcase(s, guards);
  return test_main(argc, argv, s);
}
