/* test_watch.c - what fires a watch, whom it tells, and in which order
 *
 * The rules are shown three ways: the watching session changes the tree
 * itself, another session of its store in memory does, or another store on
 * the same file.  The events must be the same.
 */
#include "test/test.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BY_ITSELF, BY_A_SESSION, BY_A_STORE, WAYS };

static zke *watcher, *writer; /* one handle when BY_ITSELF */
static test_events seen;      /* context of most watches */
static test_events other;     /* context of a second pair */
static test_events fallback;  /* context of the default watcher */
static int limit;             /* event_limit of the stores; 0: the default */

/* One more session on the watcher's tree, on a store like the watcher's. */
static zke *further(int way) {
  zke_options options = {
      .size = sizeof options, .event_limit = limit, .container_ms = 1};
  zke *z = NULL;
  if (way == BY_A_STORE) {
    ck_ok(zke_open(test_path("watch.db"), &options, &z));
  } else {
    ck_ok(zke_open_session(watcher, &options, &z));
  }
  return z;
}

static void begin(int way) {
  zke_options options = {.size = sizeof options,
                         .event_limit = limit,
                         .container_ms = 1,
                         .watcher = test_record,
                         .watcher_context = &fallback};
  const char *name = way == BY_A_STORE ? test_path("watch.db") : ":memory:";
  ck_ok(zke_open(name, &options, &watcher));
  writer = way == BY_ITSELF ? watcher : further(way);
}

/* Closes what begin() opened; runs after every test. */
static void finish(void) {
  if (writer != watcher) ck_ok(zke_close(writer));
  ck_ok(zke_close(watcher));
}

/* ---- changes by the writer ---- */

static void make(const char *path) {
  ck_ok(zke_create(writer, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
}

static void change(const char *path) {
  ck_ok(zke_set(writer, path, "x", 1, -1, NULL));
}

static void drop(const char *path) { ck_ok(zke_delete(writer, path, -1)); }

/* ---- watches by the watcher ---- */

static void on_exists(const char *path, test_events *events) {
  int rc = zke_exists(watcher, path, test_record, events, NULL);
  ck_assert_msg(rc == ZKE_OK || rc == ZKE_NONODE, "exists %s: %d", path, rc);
}

static void on_data(const char *path, test_events *events) {
  ck_ok(zke_get(watcher, path, test_record, events, NULL, NULL, NULL));
}

static void on_children(const char *path, test_events *events) {
  ck_ok(zke_children(watcher, path, test_record, events, NULL, NULL));
}

static void on_all(const char *path, int mode, test_events *events) {
  ck_ok(zke_add_watch(watcher, path, mode, test_record, events));
}

static void on_node(const char *path, test_events *events) {
  on_all(path, ZKE_WATCH_PERSISTENT, events);
}

static void on_subtree(const char *path, test_events *events) {
  on_all(path, ZKE_WATCH_PERSISTENT_RECURSIVE, events);
}

static void expect(const char *events) { test_expect(watcher, &seen, events); }

static void expect_other(const char *events) {
  test_expect(watcher, &other, events);
}

/* ---- tests that are written as a table ---- */

/* What is done, and what the two pairs are told of it:
 *
 *     {"create /n, data /n, other children /n, set /n", "CHANGED /n", ""}
 *
 * The writer does "create", "set" and "delete"; the others are watches, with
 * the second pair behind "other". */
typedef struct part {
  const char *steps, *seen, *other;
} part;

static const struct {
  const char *verb;
  void (*change)(const char *path);
  void (*watch)(const char *path, test_events *events);
} verbs[] = {{"create", make, NULL},        {"set", change, NULL},
             {"delete", drop, NULL},        {"exists", NULL, on_exists},
             {"data", NULL, on_data},       {"children", NULL, on_children},
             {"persistent", NULL, on_node}, {"recursive", NULL, on_subtree}};

/* One step: a verb and a path, up to a comma. */
static void step(const char *text) {
  enum { VERBS = sizeof verbs / sizeof *verbs };
  char verb[16], path[64];
  bool second = strncmp(text, "other ", 6) == 0;
  int i = 0;
  if (second) text += 6;
  ck_assert_int_eq(sscanf(text, "%15s %63[^,]", verb, path), 2);
  while (i < VERBS && strcmp(verbs[i].verb, verb) != 0) i++;
  ck_assert_msg(i < VERBS, "no verb: %s", text);
  if (verbs[i].change)
    verbs[i].change(path);
  else
    verbs[i].watch(path, second ? &other : &seen);
}

/* Do the parts one after the other. */
static void play(int way, const part *parts, size_t count) {
  begin(way);
  for (const part *p = parts; p < parts + count; p++) {
    for (const char *at = p->steps; at; at = strstr(at, ", ")) {
      if (at != p->steps) at += 2;
      step(at);
    }
    expect(p->seen);
    expect_other(p->other);
  }
}

/* A test of these parts, in each of the ways. */
#define SEES(name, ...)                            \
  TEST_LOOP(name, 0, WAYS) {                       \
    static const part parts[] = {__VA_ARGS__};     \
    play(_i, parts, sizeof parts / sizeof *parts); \
  }                                                \
  struct part

/* ---- one-shot watches ---- */

/* 12 #46: the watch of a missing node fires at its creation, once. */
TEST_LOOP(exists_on_missing_fires_at_creation, 0, WAYS) {
  begin(_i);
  ck_rc(zke_exists(watcher, "/n", test_record, &seen, NULL), ZKE_NONODE);
  make("/n");
  expect("CREATED /n");
  change("/n");
  expect("");
}

/* 5.1: the ancestors may be missing as well. */
SEES(exists_below_missing_ancestors_fires,
     {"exists /a/b/c, create /a, create /a/b", "", ""},
     {"create /a/b/c", "CREATED /a/b/c", ""});

/* 12 #47: the watch of an existing node fires for a set and for a delete. */
SEES(exists_on_existing_fires_at_set_and_delete,
     {"create /n, exists /n, set /n", "CHANGED /n", ""},
     {"exists /n, delete /n", "DELETED /n", ""});

/* 12 #47, #33: neither an ACL nor a child nor a refused change fires a data
 * watch; it stays armed. */
TEST_LOOP(data_watch_ignores_acl_children_and_refusals, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  ck_ok(zke_set_acl(writer, "/n", -1, ZKE_OPEN_ACL, NULL));
  make("/n/child");
  drop("/n/child");
  ck_rc(zke_set(writer, "/n", "x", 1, 7, NULL), ZKE_BADVERSION);
  ck_rc(zke_delete(writer, "/n", 7), ZKE_BADVERSION);
  ck_ok(zke_sync(writer, "/n"));
  expect("");
  change("/n");
  expect("CHANGED /n");
}

/* 12 #48: a get or children of a missing node registers nothing. */
TEST_LOOP(reading_a_missing_node_registers_nothing, 0, WAYS) {
  begin(_i);
  ck_rc(zke_get(watcher, "/n", test_record, &seen, NULL, NULL, NULL),
        ZKE_NONODE);
  ck_rc(zke_children(watcher, "/n", test_record, &seen, NULL, NULL),
        ZKE_NONODE);
  make("/n");
  make("/n/child");
  expect("");
}

/* 12 #49: data and child watch of one node give one DELETED. */
SEES(data_and_child_watch_see_one_deletion,
     {"create /p, create /p/n, data /p/n, children /p/n, children /p, "
      "delete /p/n",
      "DELETED /p/n; CHILD /p", ""});

/* 12 #50: a child watch alone sees its node's end and is consumed by it. */
SEES(child_watch_sees_its_node_deleted,
     {"create /n, children /n, delete /n", "DELETED /n", ""},
     {"create /n, create /n/child", "", ""});

/* 12 #51: the node's event comes before its parent's. */
SEES(creation_comes_before_child,
     {"create /p, children /p, exists /p/n, create /p/n",
      "CREATED /p/n; CHILD /p", ""});

/* 12 #52: any number of data watches is one watch. */
SEES(data_watches_collapse,
     {"create /n, exists /n, data /n, data /n, set /n", "CHANGED /n", ""},
     {"set /n", "", ""});

/* 12 #53: a child watch sees children come and go, nothing else. */
SEES(child_watch_ignores_data_and_grandchildren,
     {"create /n, create /n/c, children /n, set /n, set /n/c, "
      "create /n/c/grandchild, delete /n/c/grandchild",
      "", ""},
     {"create /n/d", "CHILD /n", ""},
     {"children /n, delete /n/d", "CHILD /n", ""});

/* 12 #24: the same bytes are a change. */
SEES(same_bytes_fire, {"create /n, set /n, data /n, set /n", "CHANGED /n", ""});

/* 5.2: a deletion and a new creation in between are seen as a deletion. */
SEES(watch_does_not_outlive_its_node,
     {"create /n, data /n, delete /n, create /n, set /n", "DELETED /n", ""});

/* 5.2: the root's watches fire like any other's. */
SEES(root_is_watched_like_any_node,
     {"children /, other data /, create /n, set /", "CHILD /", "CHANGED /"});

/* 12 #62: one pair is told once; each pair of function or context is told. */
TEST_LOOP(pairs_are_told_once_each, 0, WAYS) {
  begin(_i);
  make("/n");
  on_exists("/n", &seen);
  on_exists("/n", &seen);
  on_data("/n", &seen);
  on_data("/n", &other);
  change("/n");
  int count = 0;
  ck_ok(zke_dispatch(watcher, &count));
  ck_assert_int_eq(count, 2);
  expect("CHANGED /n");
  expect_other("CHANGED /n");
}

/* A second function for pairs that differ in it alone. */
static void record_too(zke *z, int type, int state, const char *path,
                       void *context) {
  test_record(z, type, state, path, context);
}

/* 5.5: the function tells pairs apart as well as the context. */
TEST_LOOP(functions_tell_pairs_apart, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  ck_ok(zke_get(watcher, "/n", record_too, &seen, NULL, NULL, NULL));
  change("/n");
  expect("CHANGED /n; CHANGED /n");
}

/* 12 #62: a deletion is told to data's pair and to children's pair. */
SEES(deletion_is_told_to_both_kinds,
     {"create /n, data /n, other children /n, delete /n", "DELETED /n",
      "DELETED /n"});

/* 5.1: the pair of another kind of watch is not told of a change of data. */
SEES(change_is_told_to_data_watches_only,
     {"create /n, data /n, other children /n, set /n", "CHANGED /n", ""},
     {"create /n/child", "", "CHILD /n"});

/* P4: events of several nodes come in the order of their commits. */
SEES(events_come_in_commit_order,
     {"create /a, create /b, data /a, data /b, exists /c, create /c, "
      "set /b, delete /a",
      "CREATED /c; CHANGED /b; DELETED /a", ""});

/* What a callback was given, beyond what test_record keeps. */
typedef struct given {
  zke *z;
  int state, calls;
} given;

static void note_arguments(zke *z, int type, int state, const char *path,
                           void *context) {
  given *g = context;
  (void)type, (void)path;
  *g = (given){.z = z, .state = state, .calls = g->calls + 1};
}

/* zkembed.h: a callback gets the watching handle and the session's state. */
TEST_LOOP(callback_gets_handle_and_state, 0, WAYS) {
  begin(_i);
  make("/n");
  given g = {0};
  ck_ok(zke_get(watcher, "/n", note_arguments, &g, NULL, NULL, NULL));
  change("/n");
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_eq(g.calls, 1);
  ck_assert_ptr_eq(g.z, watcher);
  ck_assert_int_eq(g.state, ZKE_STATE_CONNECTED);
}

/* zkembed.h: a NULL function registers nothing, whatever the context. */
TEST_LOOP(no_function_is_no_watch, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(zke_get(watcher, "/n", NULL, &seen, NULL, NULL, NULL));
  ck_ok(zke_children(watcher, "/n", NULL, &seen, NULL, NULL));
  ck_ok(zke_exists(watcher, "/n", NULL, &seen, NULL));
  zke_watch_list *list = NULL;
  ck_ok(zke_watches(watcher, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  change("/n");
  int count = -1;
  ck_ok(zke_dispatch(watcher, &count));
  ck_assert_int_eq(count, 0);
}

/* ---- registered after the change, before its dispatch ---- */

/* P3, P4: the old event does not consume the watch that was registered by a
 * read of the new state. */
SEES(old_event_leaves_new_data_watch,
     {"create /n, data /n, set /n, data /n", "CHANGED /n", ""},
     {"set /n", "CHANGED /n", ""});

/* The same for a pair that was not registered at the change. */
SEES(old_event_is_not_told_to_new_pair,
     {"create /n, data /n, set /n, other data /n", "CHANGED /n", ""},
     {"set /n", "", "CHANGED /n"});

/* The same for both at once: the second pair's watch must not hide that the
 * first is registered again. */
SEES(old_event_leaves_new_watch_beside_another,
     {"create /n, data /n, set /n, other data /n, data /n", "CHANGED /n", ""},
     {"set /n", "CHANGED /n", "CHANGED /n"});

/* The same for child watches. */
SEES(old_event_leaves_new_child_watch,
     {"create /n, children /n, create /n/a, children /n", "CHILD /n", ""},
     {"create /n/b", "CHILD /n", ""});

/* The same for a creation, seen by the exists that registers again. */
SEES(old_creation_leaves_new_exists_watch,
     {"exists /n, create /n, exists /n", "CREATED /n", ""},
     {"delete /n", "DELETED /n", ""});

/* The same across a deletion, which drains every kind (5.5). */
SEES(old_deletion_leaves_watches_of_new_node,
     {"create /n, data /n, other children /n, delete /n, create /n, "
      "data /n, other children /n",
      "DELETED /n", "DELETED /n"},
     {"set /n, create /n/child", "CHANGED /n", "CHILD /n"});

/* A persistent watch is not told what happened before it either. */
SEES(persistent_watch_begins_with_its_registration,
     {"create /n, data /n, set /n, other persistent /n, delete /n",
      "CHANGED /n", "DELETED /n"});

/* ---- multi ---- */

/* 12 #55: each operation fires in its turn, one-shots only once. */
TEST_LOOP(multi_fires_in_operation_order, 0, WAYS) {
  begin(_i);
  make("/p");
  make("/p/n");
  on_data("/p/n", &seen);
  on_children("/p/n", &seen);
  on_children("/p", &seen);
  on_exists("/p/n/c", &seen);
  zke_op ops[6];
  zke_op_set(&ops[0], "/p/n", "1", 1, -1);
  zke_op_set(&ops[1], "/p/n", "2", 1, -1);
  zke_op_create(&ops[2], "/p/n/c", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[3], "/p/n/c", -1);
  zke_op_delete(&ops[4], "/p/n", -1);
  zke_op_create(&ops[5], "/p/n", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_multi(writer, ops, 6, NULL));
  expect("CHANGED /p/n; CREATED /p/n/c; CHILD /p/n; CHILD /p");
}

/* 12 #56: a multi that recreates a node shows its deletion only. */
TEST_LOOP(multi_recreation_is_a_deletion, 0, WAYS) {
  begin(_i);
  make("/n");
  on_exists("/n", &seen);
  on_children("/n", &seen);
  zke_op ops[2];
  zke_op_delete(&ops[0], "/n", -1);
  zke_op_create(&ops[1], "/n", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_multi(writer, ops, 2, NULL));
  expect("DELETED /n");
  change("/n");
  make("/n/child");
  expect("");
}

/* 12 #57: a refused multi fires nothing, and the watches stay armed. */
TEST_LOOP(refused_multi_fires_nothing, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  on_children("/n", &seen);
  on_exists("/n/c", &seen);
  zke_op ops[3];
  zke_op_set(&ops[0], "/n", "1", 1, -1);
  zke_op_create(&ops[1], "/n/c", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[2], "/missing", -1);
  ck_rc(zke_multi(writer, ops, 3, NULL), ZKE_NONODE);
  expect("");
  ck_ok(zke_multi(writer, ops, 2, NULL));
  expect("CHANGED /n; CREATED /n/c; CHILD /n");
}

/* 4: three sets in one multi are one event of a one-shot watch, three of a
 * persistent one. */
TEST_LOOP(multi_fires_persistent_watches_each_time, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  on_all("/n", ZKE_WATCH_PERSISTENT, &other);
  zke_op ops[3];
  for (int i = 0; i < 3; i++) zke_op_set(&ops[i], "/n", "x", 1, -1);
  ck_ok(zke_multi(writer, ops, 3, NULL));
  expect("CHANGED /n");
  expect_other("CHANGED /n; CHANGED /n; CHANGED /n");
}

/* 4: creation and deletion in one multi show the creation and one CHILD. */
TEST_LOOP(multi_shows_a_passing_node, 0, WAYS) {
  begin(_i);
  on_exists("/n", &seen);
  on_children("/", &seen);
  zke_op ops[2];
  zke_op_create(&ops[0], "/n", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[1], "/n", -1);
  ck_ok(zke_multi(writer, ops, 2, NULL));
  expect("CREATED /n; CHILD /");
}

/* ---- persistent watches ---- */

/* 5.7: a persistent watch sees its node and its children, again and again,
 * and survives the node. */
SEES(persistent_watch_stays,
     {"persistent /n, create /n, set /n, set /n, create /n/c, set /n/c, "
      "delete /n/c, delete /n, create /n",
      "CREATED /n; CHANGED /n; CHANGED /n; CHILD /n; CHILD /n; DELETED /n; "
      "CREATED /n",
      ""});

/* 12 #60: a recursive watch sees its node and every descendant, never CHILD. */
SEES(recursive_watch_sees_the_subtree,
     {"recursive /n, create /n, create /n/a, create /n/a/b, set /n/a/b, "
      "set /n, delete /n/a/b, delete /n/a, delete /n",
      "CREATED /n; CREATED /n/a; CREATED /n/a/b; CHANGED /n/a/b; "
      "CHANGED /n; DELETED /n/a/b; DELETED /n/a; DELETED /n",
      ""});

/* 5.7: a recursive watch of the root sees everything. */
SEES(recursive_root_watch_sees_all,
     {"recursive /, create /a, create /a/b, set /",
      "CREATED /a; CREATED /a/b; CHANGED /", ""});

/* A path is below another by its components, not by its characters. */
SEES(recursive_watch_ignores_like_names,
     {"recursive /a_b, recursive /%, create /a_bc, create /axb, "
      "create /axb/c, create /A_B, create /a_b, create /a_b/c",
      "CREATED /a_b; CREATED /a_b/c", ""});

/* 12 #60: overlapping recursive watches of one pair give one event; of two
 * pairs one each. */
SEES(overlapping_recursive_watches_collapse,
     {"recursive /, recursive /a, other recursive /a, create /a, "
      "create /a/b, create /c",
      "CREATED /a; CREATED /a/b; CREATED /c", "CREATED /a; CREATED /a/b"});

/* The same when a one-shot watch of the pair meets its persistent ones. */
SEES(one_event_whatever_the_kinds_of_watch,
     {"create /a, create /a/b, recursive /, persistent /a/b, data /a/b, "
      "set /a/b",
      "CHANGED /a/b", ""},
     {"set /a/b", "CHANGED /a/b", ""});

/* 12 #61, not copied: a one-shot watch on the same path leaves the persistent
 * watch alone. */
SEES(one_shot_leaves_persistent_watch,
     {"create /n, persistent /n, data /n, children /n, set /n, create /n/a",
      "CHANGED /n; CHILD /n", ""},
     {"set /n, create /n/b, delete /n/a", "CHANGED /n; CHILD /n; CHILD /n",
      ""});

/* The same when the pairs differ: only the one-shot is consumed. */
SEES(one_shot_of_another_pair_leaves_persistent_watch,
     {"create /n, persistent /n, other data /n, set /n, set /n",
      "CHANGED /n; CHANGED /n", "CHANGED /n"});

/* 5.7, not copied: a persistent watch does not prolong a one-shot before it. */
SEES(persistent_watch_leaves_one_shot,
     {"create /n, other data /n, persistent /n, set /n, set /n",
      "CHANGED /n; CHANGED /n", "CHANGED /n"});

/* A one-shot child watch under a recursive one still gets its CHILD. */
SEES(child_watch_works_under_recursive_watch,
     {"create /n, recursive /n, other children /n, create /n/a, create /n/b",
      "CREATED /n/a; CREATED /n/b", "CHILD /n"});

/* 5.7: the later mode on a path replaces the earlier. */
SEES(recursive_replaces_persistent,
     {"create /n, persistent /n, recursive /n, create /n/c, set /n/c, "
      "set /n",
      "CREATED /n/c; CHANGED /n/c; CHANGED /n", ""});

/* The other way round. */
SEES(persistent_replaces_recursive,
     {"create /n, recursive /n, persistent /n, create /n/c, set /n/c, "
      "set /n",
      "CHILD /n; CHANGED /n", ""});

/* The replaced mode does not come back when another watch of the session
 * brings the event. */
SEES(recursive_stays_recursive_beside_child_watch,
     {"create /n, persistent /n, recursive /n, other children /n, "
      "create /n/c",
      "CREATED /n/c", "CHILD /n"});

/* The other way round. */
SEES(persistent_stays_persistent_beside_recursive_watch,
     {"create /n, recursive /n, persistent /n, other recursive /, "
      "create /n/c, set /n/c",
      "CHILD /n", "CREATED /n/c; CHANGED /n/c"});

/* zkembed.h: a mode that is none, a missing function, a bad path. */
TEST_LOOP(add_watch_checks_its_arguments, 0, WAYS) {
  begin(_i);
  ck_rc(zke_add_watch(watcher, "/n", 2, test_record, &seen),
        ZKE_MARSHALLINGERROR);
  ck_rc(zke_add_watch(watcher, "/n", -1, test_record, &seen),
        ZKE_MARSHALLINGERROR);
  ck_rc(zke_add_watch(watcher, "/n", ZKE_WATCH_PERSISTENT, NULL, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_add_watch(watcher, "n/", ZKE_WATCH_PERSISTENT, test_record, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_add_watch(watcher, NULL, ZKE_WATCH_PERSISTENT, test_record, &seen),
        ZKE_BADARGUMENTS);
  make("/n");
  expect("");
}

/* Rows of watches in the database, anybody's. */
static int registered(void) {
  zke_watch_list *list = NULL;
  ck_ok(zke_watches(writer, &list));
  int count = list->count;
  zke_free(list);
  return count;
}

/* ---- removal ---- */

/* 12 #63: only the very pair and kind is taken back, and no event comes. */
TEST_LOOP(removal_takes_one_pair, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  on_data("/n", &other);
  int data = ZKE_WATCH_DATA;
  ck_rc(zke_remove_watch(watcher, "/n", data, test_record, NULL),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(watcher, "/n", data, record_too, &seen),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(watcher, "/n", ZKE_WATCH_CHILD, test_record, &seen),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(watcher, "/m", data, test_record, &seen),
        ZKE_NOWATCHER);
  ck_ok(zke_remove_watch(watcher, "/n", data, test_record, &seen));
  ck_rc(zke_remove_watch(watcher, "/n", data, test_record, &seen),
        ZKE_NOWATCHER);
  change("/n");
  expect("");
  expect_other("CHANGED /n");
}

/* 5.6: ZKE_WATCH_ANY takes both kinds at once, or the one there is. */
TEST_LOOP(removal_of_any_kind, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  on_children("/n", &seen);
  int any = ZKE_WATCH_ANY;
  ck_ok(zke_remove_watch(watcher, "/n", any, test_record, &seen));
  ck_rc(zke_remove_watch(watcher, "/n", any, test_record, &seen),
        ZKE_NOWATCHER);
  on_children("/n", &seen);
  ck_ok(zke_remove_watch(watcher, "/n", any, test_record, &seen));
  change("/n");
  make("/n/c");
  expect("");
}

/* 5.6: the watch of a missing node counts as a data watch. */
TEST_LOOP(removal_of_exists_watch, 0, WAYS) {
  begin(_i);
  on_exists("/n", &seen);
  ck_ok(zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, test_record, &seen));
  make("/n");
  expect("");
}

/* 5.7: a persistent watch is taken back kind by kind. */
TEST_LOOP(removal_of_persistent_watch_by_kind, 0, WAYS) {
  begin(_i);
  make("/n");
  on_all("/n", ZKE_WATCH_PERSISTENT, &seen);
  ck_ok(zke_remove_watch(watcher, "/n", ZKE_WATCH_CHILD, test_record, &seen));
  ck_rc(zke_remove_watch(watcher, "/n", ZKE_WATCH_CHILD, test_record, &seen),
        ZKE_NOWATCHER);
  make("/n/a");
  change("/n");
  expect("CHANGED /n");
  ck_ok(zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, test_record, &seen));
  ck_rc(zke_remove_watch(watcher, "/n", ZKE_WATCH_ANY, test_record, &seen),
        ZKE_NOWATCHER);
  change("/n");
  expect("");
}

/* 5.7: or as a whole, the recursive one too. */
TEST_LOOP(removal_of_recursive_watch, 0, WAYS) {
  begin(_i);
  on_all("/", ZKE_WATCH_PERSISTENT_RECURSIVE, &seen);
  on_all("/n", ZKE_WATCH_PERSISTENT_RECURSIVE, &other);
  ck_ok(zke_remove_watch(watcher, "/", ZKE_WATCH_ANY, test_record, &seen));
  make("/n");
  make("/n/c");
  expect("");
  expect_other("CREATED /n; CREATED /n/c");
}

/* 5.6: remove_all takes every pair of the kind and leaves the other kind. */
TEST_LOOP(removal_of_all_pairs, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  on_data("/n", &other);
  on_children("/n", &seen);
  ck_ok(zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, NULL, NULL));
  ck_rc(zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, NULL, NULL),
        ZKE_NOWATCHER);
  change("/n");
  make("/n/c");
  expect("CHILD /n");
  expect_other("");
  ck_rc(zke_remove_watch(watcher, "/n", ZKE_WATCH_ANY, NULL, NULL),
        ZKE_NOWATCHER);
}

/* A removal after the change either takes the event back or says that there
 * is nothing left to remove; never both, never neither. */
TEST_LOOP(removal_after_the_change_is_consistent, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  change("/n");
  int rc = zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, test_record, &seen);
  ck_assert(rc == ZKE_OK || rc == ZKE_NOWATCHER);
  expect(rc == ZKE_OK ? "" : "CHANGED /n");
}

/* 5.6: one session's removal does not touch another's watch. */
TEST_LOOP(removal_is_of_one_session, 0, WAYS) {
  begin(_i);
  make("/n");
  zke *third = further(_i);
  on_data("/n", &seen);
  ck_rc(zke_remove_watch(third, "/n", ZKE_WATCH_DATA, test_record, &seen),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(third, "/n", ZKE_WATCH_ANY, NULL, NULL),
        ZKE_NOWATCHER);
  ck_ok(zke_close(third));
  change("/n");
  expect("CHANGED /n");
}

static int check(const char *path, int type, test_events *events) {
  return zke_check_watch(watcher, path, type, events ? test_record : NULL,
                         events);
}

/* 5.6: a check finds what a removal would find, and removes nothing. */
TEST_LOOP(a_check_finds_what_is_registered, 0, WAYS) {
  int data = ZKE_WATCH_DATA, child = ZKE_WATCH_CHILD, any = ZKE_WATCH_ANY;
  begin(_i);
  make("/n");
  ck_rc(check("/n", any, NULL), ZKE_NOWATCHER);
  on_data("/n", &seen);
  for (int again = 0; again < 2; again++) {
    ck_ok(check("/n", data, &seen));
    ck_ok(check("/n", any, &seen));
    ck_ok(check("/n", any, NULL));
    ck_rc(check("/n", child, &seen), ZKE_NOWATCHER);
    ck_rc(check("/n", child, NULL), ZKE_NOWATCHER);
    ck_rc(check("/n", any, &other), ZKE_NOWATCHER);
    ck_rc(check("/m", any, &seen), ZKE_NOWATCHER);
  }
  ck_rc(check("/n", 0, &seen), ZKE_BADARGUMENTS);
  ck_rc(check("/n", ZKE_WATCH_EXIST, &seen), ZKE_BADARGUMENTS);
  ck_rc(check("n", any, &seen), ZKE_BADARGUMENTS);
  ck_rc(zke_check_watch(NULL, "/n", any, NULL, NULL), ZKE_BADARGUMENTS);
  change("/n");
  expect("CHANGED /n");
  ck_rc(check("/n", any, NULL), ZKE_NOWATCHER);
  on_all("/n", ZKE_WATCH_PERSISTENT_RECURSIVE, &seen);
  ck_ok(check("/n", child, &seen));
}

/* ---- watches that are set once more: 5.9 ---- */

static void set_once_more(const char *path, int type, int64_t zxid,
                          test_events *events) {
  ck_ok(zke_set_watch(watcher, path, type, zxid, test_record, events));
}

static int64_t now(void) {
  zke_zxid(); /* the first read is to know it, too */
  ck_ok(zke_exists(watcher, "/", NULL, NULL, NULL));
  return zke_zxid();
}

/* What each type tells of at once, by what has happened since its zxid; "" for
 * a watch that is registered. */
static const struct {
  int type;
  bool there; /* the node, at first */
  int change; /* ZKE_EVENT_…: of the node, CHILD: a child comes; -1: anew */
  const char *told;
} missed[] = {
    {ZKE_WATCH_DATA, true, 0, ""},
    {ZKE_WATCH_DATA, true, ZKE_EVENT_CHANGED, "CHANGED /n"},
    {ZKE_WATCH_DATA, true, ZKE_EVENT_CHILD, ""},
    {ZKE_WATCH_DATA, true, ZKE_EVENT_DELETED, "DELETED /n"},
    {ZKE_WATCH_DATA, true, -1, "CHANGED /n"},
    {ZKE_WATCH_DATA, false, 0, "DELETED /n"},
    {ZKE_WATCH_EXIST, false, 0, ""},
    {ZKE_WATCH_EXIST, false, ZKE_EVENT_CREATED, "CREATED /n"},
    {ZKE_WATCH_EXIST, true, 0, "CREATED /n"},
    {ZKE_WATCH_CHILD, true, 0, ""},
    {ZKE_WATCH_CHILD, true, ZKE_EVENT_CHANGED, ""},
    {ZKE_WATCH_CHILD, true, ZKE_EVENT_CHILD, "CHILD /n"},
    {ZKE_WATCH_CHILD, true, ZKE_EVENT_DELETED, "DELETED /n"},
    {ZKE_WATCH_CHILD, true, -1, "CHILD /n"},
    {ZKE_WATCH_CHILD, false, 0, "DELETED /n"},
};
enum { MISSED = sizeof missed / sizeof *missed };

static void make_the_change(int type) {
  if (type == ZKE_EVENT_CREATED) make("/n");
  if (type == ZKE_EVENT_CHANGED) change("/n");
  if (type == ZKE_EVENT_CHILD) make("/n/c");
  if (type == ZKE_EVENT_DELETED || type == -1) drop("/n");
  if (type == -1) make("/n");
}

/* The event comes in the next dispatch, by the descriptor's wish, once; a watch
 * without one fires at the next change. */
TEST_LOOP(a_watch_set_once_more_tells_what_was_missed, 0, WAYS *MISSED) {
  const char *told = missed[_i / WAYS].told;
  int type = missed[_i / WAYS].type;
  struct pollfd fd = {.events = POLLIN};
  begin(_i % WAYS);
  ck_ok(zke_fd(watcher, &fd.fd));
  if (missed[_i / WAYS].there) make("/n");
  int64_t zxid = now();
  make_the_change(missed[_i / WAYS].change);
  expect("");
  set_once_more("/n", type, zxid, &seen);
  ck_assert_int_eq(zke_zxid(), now());
  if (*told) ck_assert_int_eq(poll(&fd, 1, 0), 1);
  expect(told);
  if (zke_exists(writer, "/n", NULL, NULL, NULL) == ZKE_NONODE)
    make("/n");
  else if (type == ZKE_WATCH_CHILD)
    make("/n/later");
  else
    change("/n");
  if (*told)
    expect("");
  else if (type == ZKE_WATCH_CHILD)
    expect("CHILD /n");
  else
    expect(type == ZKE_WATCH_EXIST ? "CREATED /n" : "CHANGED /n");
}

/* Only the pair that asked is told of what was missed.  Others of the path stay
 * armed, and so does what the pair had already. */
TEST_LOOP(what_was_missed_is_told_to_one_pair, 0, WAYS) {
  begin(_i);
  make("/n");
  int64_t zxid = now();
  change("/n");
  on_data("/n", &other);
  on_all("/n", ZKE_WATCH_PERSISTENT, &fallback);
  set_once_more("/n", ZKE_WATCH_DATA, zxid, &seen);
  expect("CHANGED /n");
  expect_other("");
  test_expect(watcher, &fallback, "");
  on_data("/n", &seen);
  set_once_more("/n", ZKE_WATCH_DATA, zxid, &seen);
  expect("CHANGED /n");
  change("/n");
  expect("CHANGED /n");
  expect_other("CHANGED /n");
}

/* It has the zxid of the state in which it was found, and comes in that
 * place. */
TEST_LOOP(what_was_missed_has_its_place, 0, WAYS) {
  int more = 0;
  begin(_i);
  make("/n");
  int64_t zxid = now();
  on_all("/m", ZKE_WATCH_PERSISTENT, &seen);
  change("/n");
  make("/m");
  set_once_more("/n", ZKE_WATCH_DATA, zxid, &seen);
  int64_t found = zke_zxid();
  change("/m");
  ck_ok(zke_dispatch_to(watcher, found - 1, NULL, &more));
  ck_assert_int_eq(seen.count, 0);
  ck_assert_int_eq(more, 1);
  ck_ok(zke_dispatch_to(watcher, found, NULL, &more));
  expect("CREATED /m; CHANGED /n; CHANGED /m");
  ck_assert_int_eq(more, 1);
}

/* 5.9, issue: no permission is asked for, so a child watch of a node that could
 * be read when it was set survives; what comes later is told by the ACL. */
TEST_LOOP(a_watch_set_once_more_needs_no_permission, 0, WAYS) {
  const zke_acl entries[] = {
      {ZKE_PERM_ALL & ~ZKE_PERM_READ, "world", "anyone"}};
  const zke_acls shut = {1, entries};
  begin(_i);
  make("/n");
  int64_t zxid = now();
  ck_ok(zke_set_acl(writer, "/n", -1, &shut, NULL));
  ck_rc(zke_children(watcher, "/n", test_record, &seen, NULL, NULL),
        ZKE_NOAUTH);
  set_once_more("/n", ZKE_WATCH_CHILD, zxid, &seen);
  ck_ok(zke_set_acl(writer, "/n", -1, ZKE_OPEN_ACL, NULL));
  make("/n/c");
  expect("CHILD /n");
  ck_ok(zke_set_acl(writer, "/n", -1, &shut, NULL));
  set_once_more("/n", ZKE_WATCH_CHILD, zxid, &seen);
  expect("CHILD /n");
}

/* Until it is dispatched it can be taken back, and takes no other's row along.
 */
TEST_LOOP(what_was_missed_can_be_taken_back, 0, WAYS) {
  int data = ZKE_WATCH_DATA;
  begin(_i);
  make("/n");
  int64_t zxid = now();
  change("/n");
  set_once_more("/n", data, zxid, &seen);
  set_once_more("/n", data, zxid, &other);
  ck_ok(check("/n", data, &seen));
  ck_assert_int_eq(registered(), 0);
  ck_ok(zke_remove_watch(watcher, "/n", data, test_record, &seen));
  ck_rc(check("/n", data, &seen), ZKE_NOWATCHER);
  expect("");
  expect_other("CHANGED /n");
  set_once_more("/n", data, zxid, &seen);
  ck_ok(zke_forget(watcher, test_record, &seen));
  set_once_more("/n", data, zxid, &other);
  set_once_more("/n", data, now(), &seen); /* this one is registered */
  ck_assert_int_eq(registered(), 1);
  ck_ok(zke_remove_watch(watcher, "/n", data, test_record, &seen));
  ck_assert_int_eq(registered(), 0);
  expect("");
  expect_other("CHANGED /n");
}

/* The session's end comes in its place; an overflow does, too. */
TEST_LOOP(what_was_missed_is_told_or_the_end, 0, WAYS) {
  begin(_i);
  make("/n");
  int64_t zxid = now();
  change("/n");
  set_once_more("/n", ZKE_WATCH_DATA, zxid, &seen);
  ck_ok(zke_expire(writer, zke_session_id(watcher)));
  expect("SESSION -112");
}

/* In a dispatch that has read the file: a change is made that the watcher is
 * told of, then one that a watch set once more tells of at once. */
static void change_and_set_once_more(zke *z, int type, int state,
                                     const char *path, void *context) {
  test_record(z, type, state, path, context);
  change("/a");
  change("/b");
  set_once_more("/b", ZKE_WATCH_DATA, INT64_MIN, context);
}

/* P4: the event that comes at once does not come before those of earlier
 * changes, which the dispatch has not read yet. */
TEST_LOOP(what_was_missed_comes_in_order, 0, WAYS) {
  begin(_i);
  make("/n");
  make("/a");
  make("/b");
  on_data("/a", &seen);
  ck_ok(zke_get(watcher, "/n", change_and_set_once_more, &seen, NULL, NULL,
                NULL));
  change("/n");
  expect("CHANGED /n; CHANGED /a; CHANGED /b");
}

/* zkembed.h: arguments. */
TEST_LOOP(arguments_of_set_watch, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_rc(zke_set_watch(watcher, "/n", ZKE_WATCH_ANY, 0, test_record, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set_watch(watcher, "/n", 0, 0, test_record, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set_watch(watcher, "/n", ZKE_WATCH_DATA, 0, NULL, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set_watch(watcher, "n", ZKE_WATCH_DATA, 0, test_record, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set_watch(NULL, "/n", ZKE_WATCH_DATA, 0, test_record, &seen),
        ZKE_BADARGUMENTS);
  expect("");
  set_once_more("/n", ZKE_WATCH_DATA, INT64_MIN, &seen);
  expect("CHANGED /n");
  set_once_more("/n", ZKE_WATCH_DATA, INT64_MAX, &seen);
  expect("");
  ck_ok(check("/n", ZKE_WATCH_DATA, &seen));
}

/* ---- the end of another session ---- */

/* A session that makes count ephemerals /p/0 ... and is then ended: closed
 * when how is even, expired by the writer when odd. */
static void end_owner(int way, int how, int count) {
  zke *owner = further(way);
  make("/p");
  for (int i = 0; i < count; i++) {
    char path[16];
    snprintf(path, sizeof path, "/p/%d", i);
    ck_ok(zke_create(owner, path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                     NULL));
    on_exists(path, &seen);
  }
  on_children("/p", &seen);
  if (how % 2) ck_ok(zke_expire(writer, zke_session_id(owner)));
  ck_ok(zke_close(owner));
}

/* 12 #58: each ephemeral gives its DELETED, the parent one CHILD after the
 * first of them. */
TEST_LOOP(end_of_session_fires_for_each_ephemeral, 0, 2 * WAYS) {
  begin(_i / 2);
  end_owner(_i / 2, _i, 7);
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_eq(seen.count, 8);
  ck_assert_int_eq(seen.at[0].type, ZKE_EVENT_DELETED);
  ck_assert_int_eq(seen.at[1].type, ZKE_EVENT_CHILD);
  ck_assert_str_eq(seen.at[1].path, "/p");
  unsigned deleted = 0;
  for (int i = 0; i < seen.count; i++) {
    if (i == 1) continue;
    ck_assert_int_eq(seen.at[i].type, ZKE_EVENT_DELETED);
    deleted |= 1u << (seen.at[i].path[3] - '0');
  }
  ck_assert_uint_eq(deleted, 0x7f);
}

/* 12 #58, section 6: they go in one zxid. */
TEST_LOOP(end_of_session_is_one_zxid, 0, 2 * WAYS) {
  begin(_i / 2);
  zke_stat parent, next;
  end_owner(_i / 2, _i, 7);
  ck_ok(zke_exists(watcher, "/p", NULL, NULL, &parent));
  ck_assert_int_eq(parent.cversion, 14);
  ck_assert_int_eq(parent.numChildren, 0);
  make("/next");
  ck_ok(zke_exists(watcher, "/next", NULL, NULL, &next));
  ck_assert_int_eq(next.czxid, parent.pzxid + 1);
}

/* 12 #59: a persistent watch of the parent sees each of them go. */
TEST_LOOP(end_of_session_fires_persistent_watch_each_time, 0, 2 * WAYS) {
  begin(_i / 2);
  make("/p");
  zke *owner = further(_i / 2);
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_create(owner, "/p/e-", "", 0, ZKE_OPEN_ACL,
                     ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL));
  }
  on_all("/p", ZKE_WATCH_PERSISTENT, &seen);
  if (_i % 2) ck_ok(zke_expire(writer, zke_session_id(owner)));
  ck_ok(zke_close(owner));
  expect("CHILD /p; CHILD /p; CHILD /p");
}

/* 5.2, 12 #77: the sweep's removals fire like a delete. */
TEST_LOOP(reaped_container_and_ttl_node_fire, 0, WAYS) {
  begin(_i);
  ck_ok(
      zke_create(writer, "/c", "", 0, ZKE_OPEN_ACL, ZKE_CONTAINER, NULL, NULL));
  on_exists("/c", &seen);
  make("/c/child");
  drop("/c/child");
  test_expect_within(watcher, &seen, "DELETED /c", 5000);
  make("/p");
  on_all("/p/t", ZKE_WATCH_PERSISTENT, &seen); /* it may go at once */
  on_all("/p", ZKE_WATCH_PERSISTENT, &seen);
  ck_ok(zke_create_ttl(writer, "/p/t", "", 0, ZKE_OPEN_ACL,
                       ZKE_PERSISTENT_WITH_TTL, 1, NULL, NULL));
  test_expect_within(watcher, &seen,
                     "CREATED /p/t; CHILD /p; DELETED /p/t; CHILD /p", 5000);
}

/* ---- what a session may not read, it is not told (5.8) ---- */

static const zke_acl all_but_read = {ZKE_PERM_ALL & ~ZKE_PERM_READ, "world",
                                     "anyone"};
static const zke_acls unreadable = {1, &all_but_read};

static void make_unreadable(const char *path) {
  ck_ok(
      zke_create(writer, path, "", 0, &unreadable, ZKE_PERSISTENT, NULL, NULL));
}

static void permit(const char *path, const zke_acls *acls) {
  ck_ok(zke_set_acl(writer, path, -1, acls, NULL));
}

/* 12 #84: an unreadable node's creation is not told, and the watch is spent. */
TEST_LOOP(unreadable_creation_is_silent, 0, WAYS) {
  begin(_i);
  on_exists("/n", &seen);
  make_unreadable("/n");
  permit("/n", ZKE_OPEN_ACL);
  change("/n");
  expect("");
}

/* 12 #84: nor is its change. */
TEST_LOOP(unreadable_change_is_silent, 0, WAYS) {
  begin(_i);
  make_unreadable("/n");
  on_exists("/n", &seen);
  change("/n");
  permit("/n", ZKE_OPEN_ACL);
  change("/n");
  expect("");
}

/* 12 #84: nor is its deletion. */
TEST_LOOP(unreadable_deletion_is_silent, 0, WAYS) {
  begin(_i);
  make_unreadable("/n");
  on_exists("/n", &seen);
  drop("/n");
  make("/n");
  expect("");
}

/* 12 #84: a watch spent in silence is spent, also when a later watch of the
 * session brings the next event. */
TEST_LOOP(silently_spent_watch_does_not_return, 0, WAYS) {
  begin(_i);
  on_exists("/n", &seen);
  make_unreadable("/n");
  expect("");
  permit("/n", ZKE_OPEN_ACL);
  ck_rc(zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, test_record, &seen),
        ZKE_NOWATCHER);
  on_data("/n", &other);
  change("/n");
  expect("");
  expect_other("CHANGED /n");
}

/* 5.8: CHILD asks for READ on the parent, whose watch is spent unheard. */
TEST_LOOP(unreadable_parent_hides_its_children, 0, WAYS) {
  begin(_i);
  make("/p");
  on_children("/p", &seen);
  permit("/p", &unreadable);
  make("/p/a");
  permit("/p", ZKE_OPEN_ACL);
  make("/p/b");
  expect("");
}

/* 5.8: an unreadable child of a readable parent does show as CHILD. */
TEST_LOOP(readable_parent_shows_unreadable_child, 0, WAYS) {
  begin(_i);
  make("/p");
  on_children("/p", &seen);
  on_exists("/p/n", &seen);
  make_unreadable("/p/n");
  expect("CHILD /p");
}

/* 5.8: a persistent watch goes on once the node is readable again. */
TEST_LOOP(persistent_watch_skips_what_is_unreadable, 0, WAYS) {
  begin(_i);
  make("/p");
  on_all("/p", ZKE_WATCH_PERSISTENT_RECURSIVE, &seen);
  make_unreadable("/p/n");
  change("/p/n");
  make("/p/m");
  permit("/p/n", ZKE_OPEN_ACL);
  change("/p/n");
  expect("CREATED /p/m; CHANGED /p/n");
}

/* 5.8: the ACL at the time of the change decides, not that at dispatch. */
TEST_LOOP(acl_at_the_change_decides, 0, WAYS) {
  begin(_i);
  make("/open");
  make_unreadable("/shut");
  on_exists("/open", &seen);
  on_exists("/shut", &seen);
  change("/open");
  change("/shut");
  permit("/open", &unreadable);
  permit("/shut", ZKE_OPEN_ACL);
  expect("CHANGED /open");
}

/* 5.8: identities decide, session by session. */
TEST_LOOP(identities_decide_which_sessions_hear, 0, WAYS) {
  begin(_i);
  zke *third = further(_i);
  ck_ok(zke_add_auth(writer, "digest", "u:p", 3));
  ck_ok(zke_create(writer, "/n", "", 0, ZKE_CREATOR_ALL_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  if (writer != watcher) ck_ok(zke_add_auth(watcher, "digest", "u:p", 3));
  on_exists("/n", &seen);
  ck_ok(zke_exists(third, "/n", test_record, &other, NULL));
  change("/n");
  expect("CHANGED /n");
  test_expect(third, &other, "");
  ck_ok(zke_close(third));
}

/* 12 #84: a read that is refused registers nothing. */
TEST_LOOP(refused_read_registers_nothing, 0, WAYS) {
  begin(_i);
  make_unreadable("/n");
  ck_rc(zke_get(watcher, "/n", test_record, &seen, NULL, NULL, NULL),
        ZKE_NOAUTH);
  ck_rc(zke_children(watcher, "/n", test_record, &seen, NULL, NULL),
        ZKE_NOAUTH);
  permit("/n", ZKE_OPEN_ACL);
  change("/n");
  make("/n/c");
  expect("");
}

/* ---- too many events (P4) ---- */

enum { LIMIT = 8 };

static void begin_limited(int way) {
  limit = LIMIT;
  begin(way);
  make("/n");
  on_all("/n", ZKE_WATCH_PERSISTENT, &seen);
}

/* Rows that wait for the watcher, as the database counts them. */
static int pending(void) {
  zke_session_list *list = NULL;
  ck_ok(zke_sessions(writer, -1, &list));
  int events = -1;
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].id == zke_session_id(watcher))
      events = list->data[i].events;
  }
  zke_free(list);
  return events;
}

static void change_often(const char *path, int times) {
  for (int i = 0; i < times; i++) change(path);
}

/* Far too many events. */
static void flood(void) { change_often("/n", 3 * LIMIT); }

/* Assert one ZKE_EVENT_OVERFLOW, before at most LIMIT events, and forget. */
static void expect_overflow(test_events *events) {
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_ge(events->count, 1);
  ck_assert_int_le(events->count, LIMIT + 1);
  ck_assert_int_eq(events->at[0].type, ZKE_EVENT_OVERFLOW);
  for (int i = 1; i < events->count; i++)
    ck_assert_int_ne(events->at[i].type, ZKE_EVENT_OVERFLOW);
  events->count = 0;
}

/* P4: as many events as the limit are all delivered. */
TEST_LOOP(events_up_to_the_limit_are_kept, 0, WAYS) {
  begin_limited(_i);
  change_often("/n", LIMIT);
  expect(
      "CHANGED /n; CHANGED /n; CHANGED /n; CHANGED /n; "
      "CHANGED /n; CHANGED /n; CHANGED /n; CHANGED /n");
}

/* P4: what was delivered no longer counts, though its rows are trimmed only
 * now and then. */
TEST_LOOP(delivered_events_make_room, 0, WAYS) {
  begin_limited(_i);
  for (int i = 0; i < 2 * LIMIT; i++) {
    change_often("/n", LIMIT / 2);
    expect("CHANGED /n; CHANGED /n; CHANGED /n; CHANGED /n");
  }
}

/* P4: one event more, and a single overflow stands for all. */
TEST_LOOP(one_event_too_many_is_an_overflow, 0, WAYS) {
  begin_limited(_i);
  change_often("/n", LIMIT + 1);
  expect_overflow(&seen);
}

/* P4: a session that never dispatches does not fill the disk. */
TEST_LOOP(pending_events_are_bounded, 0, WAYS) {
  begin_limited(_i);
  for (int i = 0; i < 20; i++) {
    change_often("/n", LIMIT);
    ck_assert_int_le(pending(), LIMIT + 1);
    ck_assert_int_ge(pending(), 1);
  }
  expect_overflow(&seen);
}

/* zkembed.h: the overflow is told to every pair and to the default watcher. */
TEST_LOOP(overflow_is_told_to_all, 0, WAYS) {
  begin_limited(_i);
  on_exists("/missing", &other);
  flood();
  expect_overflow(&seen);
  expect_other("OVERFLOW");
  test_expect(watcher, &fallback, "OVERFLOW");
}

/* zkembed.h: every one-shot watch from before is gone, persistent ones go
 * on. */
TEST_LOOP(overflow_spends_one_shots_only, 0, WAYS) {
  begin_limited(_i);
  on_exists("/missing", &other);
  flood();
  expect_overflow(&seen);
  expect_other("OVERFLOW");
  ck_rc(zke_remove_watch(watcher, "/missing", ZKE_WATCH_DATA, test_record,
                         &other),
        ZKE_NOWATCHER);
  make("/missing");
  change("/n");
  expect("CHANGED /n");
  expect_other("");
}

/* One-shot watches in the database, anybody's. */
static int one_shots(void) {
  zke_watch_list *list = NULL;
  int count = 0;
  ck_ok(zke_watches(writer, &list));
  for (int i = 0; i < list->count; i++) count += list->data[i].mode == -1;
  zke_free(list);
  return count;
}

/* The same as others see it: nothing is left of them once it was told. */
TEST_LOOP(overflow_removes_one_shots_from_the_database, 0, WAYS) {
  begin_limited(_i);
  on_exists("/missing", &other);
  ck_assert_int_eq(one_shots(), 1);
  flood();
  expect_overflow(&seen);
  ck_assert_int_eq(one_shots(), 0);
}

/* P3: a watch registered after the overflow is not spent by it. */
TEST_LOOP(overflow_leaves_later_one_shots, 0, WAYS) {
  begin_limited(_i);
  make("/m");
  on_data("/m", &other);
  flood();
  on_data("/m", &other);
  expect_overflow(&seen);
  expect_other("OVERFLOW");
  change("/m");
  expect_other("CHANGED /m");
}

/* zkembed.h: the limit is an option of the watching session's handle, whatever
 * that of the changing one. */
TEST(limit_is_the_watchers) {
  begin_limited(BY_A_STORE);
  limit = 0;
  zke *third = further(BY_A_STORE);
  for (int i = 0; i < 3 * LIMIT; i++)
    ck_ok(zke_set(third, "/n", "x", 1, -1, NULL));
  ck_ok(zke_close(third));
  expect_overflow(&seen);
}

/* The other way round. */
TEST(limit_is_not_the_writers) {
  begin(BY_A_STORE);
  make("/n");
  on_all("/n", ZKE_WATCH_PERSISTENT, &seen);
  limit = LIMIT;
  zke *third = further(BY_A_STORE);
  for (int i = 0; i < 3 * LIMIT; i++)
    ck_ok(zke_set(third, "/n", "x", 1, -1, NULL));
  ck_ok(zke_close(third));
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_eq(seen.count, 3 * LIMIT);
  ck_assert_int_eq(seen.at[0].type, ZKE_EVENT_CHANGED);
}

/* ---- callbacks that call back ---- */

/* A watcher that reads again and thereby registers again. */
static void read_again(zke *z, int type, int state, const char *path,
                       void *context) {
  test_record(z, type, state, path, context);
  ck_ok(zke_get(z, path, read_again, context, NULL, NULL, NULL));
}

/* zkembed.h: the usual loop, one event for each change. */
TEST_LOOP(callback_registers_again, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(zke_get(watcher, "/n", read_again, &seen, NULL, NULL, NULL));
  for (int i = 0; i < 5; i++) {
    change("/n");
    expect("CHANGED /n");
  }
}

/* A watcher that creates what another watch of its session waits for. */
static void create_next(zke *z, int type, int state, const char *path,
                        void *context) {
  test_record(z, type, state, path, context);
  ck_ok(
      zke_create(z, "/next", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

/* P4: a callback's own change is told as well, after the present event. */
TEST_LOOP(callback_creates, 0, WAYS) {
  begin(_i);
  make("/n");
  on_exists("/next", &seen);
  ck_ok(zke_get(watcher, "/n", create_next, &seen, NULL, NULL, NULL));
  change("/n");
  test_expect_within(watcher, &seen, "CHANGED /n; CREATED /next", 2000);
}

static char nesting[64]; /* "(" path when a callback begins, ")" at its end */

static void dispatch_inside(zke *z, int type, int state, const char *path,
                            void *context) {
  (void)type, (void)state;
  strcat(strcat(nesting, "("), path);
  if (context) change(context);
  ck_ok(zke_dispatch(z, NULL));
  strcat(nesting, ")");
}

/* P4: a dispatch inside a callback goes on where the outer one is, in order,
 * and takes what came since. */
TEST_LOOP(callback_dispatches, 0, WAYS) {
  begin(_i);
  static char last[] = "/c";
  make("/a");
  make("/b");
  make("/c");
  ck_ok(zke_get(watcher, "/a", dispatch_inside, last, NULL, NULL, NULL));
  ck_ok(zke_get(watcher, "/b", dispatch_inside, NULL, NULL, NULL, NULL));
  ck_ok(zke_get(watcher, "/c", dispatch_inside, NULL, NULL, NULL, NULL));
  change("/a");
  change("/b");
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_str_eq(nesting, "(/a(/b(/c)))");
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_str_eq(nesting, "(/a(/b(/c)))");
}

/* What calls inside a callback returned. */
static int inner_rc[2];

static void wait_inside(zke *z, int type, int state, const char *path,
                        void *context) {
  test_record(z, type, state, path, context);
  inner_rc[0] = zke_wait(z, zke_now(z) + 2000);
  inner_rc[1] = zke_wait(z, zke_now(z) + 5);
}

/* zkembed.h: a callback may wait for the next event, and gives up in time. */
TEST_LOOP(callback_waits, 0, WAYS) {
  begin(_i);
  make("/a");
  make("/b");
  ck_ok(zke_get(watcher, "/a", wait_inside, &seen, NULL, NULL, NULL));
  on_data("/b", &seen);
  change("/a");
  change("/b");
  expect("CHANGED /a; CHANGED /b");
  ck_rc(inner_rc[0], ZKE_OK);
  ck_rc(inner_rc[1], ZKE_OPERATIONTIMEOUT);
}

static void close_inside(zke *z, int type, int state, const char *path,
                         void *context) {
  test_record(z, type, state, path, context);
  inner_rc[0] = zke_close(z);
}

/* zkembed.h: closing the dispatching handle is refused and does nothing. */
TEST_LOOP(callback_may_not_close_its_handle, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(zke_get(watcher, "/n", close_inside, &seen, NULL, NULL, NULL));
  change("/n");
  expect("CHANGED /n");
  ck_rc(inner_rc[0], ZKE_MISUSE);
  ck_assert_int_eq(zke_state(watcher), ZKE_STATE_CONNECTED);
  on_data("/n", &seen);
  change("/n");
  expect("CHANGED /n");
}

static void dispatch_then_close(zke *z, int type, int state, const char *path,
                                void *context) {
  test_record(z, type, state, path, context);
  ck_ok(zke_dispatch(z, NULL));
  inner_rc[1] = zke_close(z);
}

/* The outer callback still runs when an inner dispatch has ended. */
TEST_LOOP(callback_may_not_close_after_inner_dispatch, 0, WAYS) {
  begin(_i);
  make("/a");
  make("/b");
  ck_ok(zke_get(watcher, "/a", dispatch_then_close, &seen, NULL, NULL, NULL));
  ck_ok(zke_get(watcher, "/b", close_inside, &seen, NULL, NULL, NULL));
  change("/a");
  change("/b");
  expect("CHANGED /a; CHANGED /b");
  ck_rc(inner_rc[0], ZKE_MISUSE);
  ck_rc(inner_rc[1], ZKE_MISUSE);
}

static void swap_sessions(zke *z, int type, int state, const char *path,
                          void *context) {
  zke **third = context;
  (void)type, (void)state, (void)path;
  ck_ok(zke_close(*third));
  ck_ok(zke_open_session(z, NULL, third));
}

/* zkembed.h: a callback may close another handle and open a session. */
TEST_LOOP(callback_closes_and_opens_others, 0, WAYS) {
  begin(_i);
  make("/n");
  zke *third = further(_i);
  ck_ok(zke_create(third, "/eph", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  on_exists("/eph", &seen);
  ck_ok(zke_get(watcher, "/n", swap_sessions, &third, NULL, NULL, NULL));
  change("/n");
  test_expect_within(watcher, &seen, "DELETED /eph", 2000);
  ck_ok(zke_exists(third, "/n", NULL, NULL, NULL));
  ck_ok(zke_close(third));
}

static void remove_inside(zke *z, int type, int state, const char *path,
                          void *context) {
  test_record(z, type, state, path, context);
  ck_ok(zke_remove_watch(z, "/n", ZKE_WATCH_ANY, remove_inside, context));
}

/* zkembed.h: a persistent watcher may take itself back. */
TEST_LOOP(callback_removes_itself, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(
      zke_add_watch(watcher, "/n", ZKE_WATCH_PERSISTENT, remove_inside, &seen));
  change("/n");
  expect("CHANGED /n");
  change("/n");
  expect("");
}

static void expire_inside(zke *z, int type, int state, const char *path,
                          void *context) {
  test_record(z, type, state, path, context);
  if (type != ZKE_EVENT_SESSION) ck_ok(zke_expire(z, zke_session_id(z)));
}

/* zkembed.h: a callback may end its own session; the event of that follows. */
TEST_LOOP(callback_expires_its_session, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(
      zke_add_watch(watcher, "/n", ZKE_WATCH_PERSISTENT, expire_inside, &seen));
  change("/n");
  test_expect_within(watcher, &seen, "CHANGED /n; SESSION -112", 2000);
}

/* ---- chroot ---- */

/* 12 #81: events of a session with a chroot have its paths, and it sees only
 * what is below, the chroot node itself being "/". */
TEST(events_are_stripped_of_the_chroot) {
  begin(BY_A_SESSION);
  zke *inside = test_session(watcher, "/c");
  ck_rc(zke_exists(inside, "/", test_record, &seen, NULL), ZKE_NONODE);
  make("/c");
  test_expect(inside, &seen, "CREATED /");
  ck_ok(zke_children(inside, "/", test_record, &seen, NULL, NULL));
  ck_rc(zke_exists(inside, "/n", test_record, &seen, NULL), ZKE_NONODE);
  make("/c/n");
  make("/n");
  test_expect(inside, &seen, "CREATED /n; CHILD /");
  ck_ok(zke_close(inside));
}

/* 12 #81: the same for a recursive watch of its root. */
TEST(recursive_watch_stays_in_the_chroot) {
  begin(BY_A_SESSION);
  zke *inside = test_session(watcher, "/c");
  ck_ok(zke_add_watch(inside, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &seen));
  make("/cc");
  make("/c");
  make("/c/n");
  drop("/c/n");
  test_expect(inside, &seen, "CREATED /; CREATED /n; DELETED /n");
  ck_ok(zke_remove_watch(inside, "/", ZKE_WATCH_ANY, test_record, &seen));
  ck_ok(zke_close(inside));
}

/* ---- a long history against a model ---- */

/* The watch tables of 5.1 and 5.2 for one session with one pair, and what it
 * has to be told: in one_shot by the watches of reading calls, in recursive
 * by one persistent recursive watch. */
enum { NODES = 5, LOG = 4096 };
static const char *const node_path[NODES] = {"/m", "/m/a", "/m/b", "/m/a/x",
                                             "/m/a/y"};
static const int node_parent[NODES] = {-1, 0, 0, 1, 1};

typedef struct model {
  bool exists[NODES], data[NODES], child[NODES];
  char one_shot[LOG], recursive[LOG];
} model;

static void model_say(char *log, const char *event, int node) {
  size_t used = strlen(log);
  snprintf(log + used, LOG - used, "%s%s %s", used ? "; " : "", event,
           node_path[node]);
}

/* Fire a watch if it is set. */
static void model_fire(model *m, bool *watch, const char *event, int node) {
  if (*watch) model_say(m->one_shot, event, node);
  *watch = false;
}

static void model_fire_parent(model *m, int node) {
  int parent = node_parent[node];
  if (parent >= 0) model_fire(m, &m->child[parent], "CHILD", parent);
}

static bool model_has_children(const model *m, int node) {
  for (int i = 0; i < NODES; i++) {
    if (node_parent[i] == node && m->exists[i]) return true;
  }
  return false;
}

static int model_create(model *m, int n) {
  if (node_parent[n] >= 0 && !m->exists[node_parent[n]]) return ZKE_NONODE;
  if (m->exists[n]) return ZKE_NODEEXISTS;
  m->exists[n] = true;
  model_fire(m, &m->data[n], "CREATED", n);
  model_fire_parent(m, n);
  model_say(m->recursive, "CREATED", n);
  return ZKE_OK;
}

static int model_set(model *m, int n) {
  if (!m->exists[n]) return ZKE_NONODE;
  model_fire(m, &m->data[n], "CHANGED", n);
  model_say(m->recursive, "CHANGED", n);
  return ZKE_OK;
}

static int model_delete(model *m, int n) {
  if (!m->exists[n]) return ZKE_NONODE;
  if (model_has_children(m, n)) return ZKE_NOTEMPTY;
  m->exists[n] = false;
  m->data[n] = m->data[n] || m->child[n];
  m->child[n] = false;
  model_fire(m, &m->data[n], "DELETED", n);
  model_fire_parent(m, n);
  model_say(m->recursive, "DELETED", n);
  return ZKE_OK;
}

/* Do one thing to the model and to the engine; both must agree. */
static void model_step(model *m, int action, int n) {
  const char *path = node_path[n];
  int read_rc = m->exists[n] ? ZKE_OK : ZKE_NONODE;
  switch (action) {
    case 0:
      ck_rc(zke_create(writer, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                       NULL),
            model_create(m, n));
      break;
    case 1:
      ck_rc(zke_delete(writer, path, -1), model_delete(m, n));
      break;
    case 2:
      ck_rc(zke_set(writer, path, "x", 1, -1, NULL), model_set(m, n));
      break;
    case 3:
      ck_rc(zke_exists(watcher, path, test_record, &seen, NULL), read_rc);
      m->data[n] = true;
      break;
    case 4:
      ck_rc(zke_get(watcher, path, test_record, &seen, NULL, NULL, NULL),
            read_rc);
      if (m->exists[n]) m->data[n] = true;
      break;
    default:
      ck_rc(zke_children(watcher, path, test_record, &seen, NULL, NULL),
            read_rc);
      if (m->exists[n]) m->child[n] = true;
  }
}

/* 5.1, 5.2, P3, P4: whatever happens in whatever order, and however late the
 * dispatch, the events are those of the model. */
TEST_LOOP(events_follow_the_model, 0, WAYS) {
  begin(_i);
  on_all("/m", ZKE_WATCH_PERSISTENT_RECURSIVE, &other);
  unsigned seed = test_seed();
  static model m;
  for (int round = 0; round < 200; round++) {
    m.one_shot[0] = m.recursive[0] = '\0';
    for (int left = rand_r(&seed) % 20; left > 0; left--) {
      int action = rand_r(&seed) % 6;
      model_step(&m, action, rand_r(&seed) % NODES);
    }
    expect(m.one_shot);
    expect_other(m.recursive);
  }
}

/* ---- watches that are set too late ---- */

/* zkembed.h, zke_set_watch: missed events come in the order in which their
 * watches were set.  One that is forgotten before takes only its own away. */
TEST_LOOP(a_missed_event_is_taken_back_alone, 0, 3 * WAYS) {
  static const char *const left[] = {"CREATED /b; CREATED /c",
                                     "CREATED /a; CREATED /c",
                                     "CREATED /a; CREATED /b"};
  static const char *const paths[] = {"/a", "/b", "/c"};
  begin(_i % WAYS);
  for (int i = 0; i < 3; i++) {
    test_events *events = i == _i / WAYS ? &other : &seen;
    make(paths[i]);
    ck_ok(zke_set_watch(watcher, paths[i], ZKE_WATCH_EXIST, 0, test_record,
                        events));
  }
  ck_ok(zke_forget(watcher, test_record, &other));
  expect(left[_i / WAYS]);
  expect_other("");
}

/* ---- the suite ---- */

/* ---- calls at a time ---- */

static void ring(int64_t when_ms, test_events *events) {
  ck_ok(zke_call_at(watcher, when_ms, test_record, events));
}

static int64_t next_deadline(void) {
  int64_t deadline;
  ck_ok(zke_next_deadline(watcher, &deadline));
  return deadline;
}

/* zkembed.h, zke_call_at: once, at the earliest in a dispatch at the time, in
 * the order of the times, after the events; the later call replaces. */
TEST_LOOP(a_time_comes_once, 0, WAYS) {
  int pending = 0, count = 0;
  begin(_i);
  int64_t now = zke_now(watcher);
  ring(now + 100000, &seen);
  expect("");
  ck_assert_int_le(next_deadline(), now + 100000);
  ring(now - 1, &seen); /* in the place of that */
  ck_ok(zke_pending(watcher, &pending));
  ck_assert_int_eq(pending, 1);
  expect("ALARM");
  expect("");
  ring(now, &seen);
  ring(ZKE_FOREVER, &seen);
  expect("");
  ring(-5, &other); /* as if the time were 0 */
  ring(now - 2, &seen);
  on_exists("/n", &seen);
  make("/n");
  ck_ok(zke_dispatch(watcher, &count));
  ck_assert_int_eq(count, 3);
  expect("CREATED /n; ALARM");
  expect_other("ALARM");
  ck_rc(zke_call_at(watcher, 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_call_at(NULL, 0, test_record, NULL), ZKE_BADARGUMENTS);
}

/* One that a wait and, by poll(), a host hear of without any event. */
TEST_LOOP(a_time_wakes, 0, WAYS) {
  int fd;
  begin(_i);
  ck_ok(zke_dispatch(watcher, NULL));
  ring(zke_now(watcher) + 20, &seen);
  ck_ok(zke_wait(watcher, zke_now(watcher) + 20000));
  expect("ALARM");
  ck_ok(zke_fd(watcher, &fd));
  ring(zke_now(watcher) + 20, &seen);
  while (!seen.count) {
    struct pollfd p = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&p, 1, 20000), 1);
    ck_ok(zke_dispatch(watcher, NULL));
  }
  expect("ALARM");
}

static void ring_again(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)state, (void)path;
  ck_assert_int_eq(type, ZKE_EVENT_ALARM);
  ++*(int *)context;
  ck_ok(zke_call_at(z, zke_now(z) - 10, ring_again, context));
}

/* One that sets itself again does not keep the dispatch from its end, and is
 * taken back in the end. */
TEST_LOOP(a_time_that_has_passed_is_for_the_next_dispatch, 0, WAYS) {
  int rung = 0;
  begin(_i);
  ck_ok(zke_call_at(watcher, 0, ring_again, &rung));
  for (int i = 1; i < 5; i++) {
    ck_ok(zke_dispatch(watcher, NULL));
    ck_assert_int_eq(rung, i);
  }
  ck_ok(zke_forget(watcher, ring_again, &rung));
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_eq(rung, 4);
  ck_assert_int_gt(next_deadline(), zke_now(watcher));
}

/* Nor does it keep others that are due from theirs: it was called in their
 * place, dispatch by dispatch. */
TEST_LOOP(a_time_that_is_set_again_leaves_others_their_turn, 0, WAYS) {
  int rung = 0;
  begin(_i);
  ck_ok(zke_call_at(watcher, 0, ring_again, &rung));
  ring(zke_now(watcher), &seen);
  expect("ALARM");
  ck_assert_int_eq(rung, 1);
}

/* A pair that has set a time is told of the session's end, once, and of no time
 * after that. */
TEST_LOOP(a_time_ends_with_the_session, 0, WAYS) {
  begin(_i);
  ring(0, &seen);
  ring(zke_now(watcher) + 100000, &fallback); /* the handle's own pair */
  on_exists("/n", &other);
  ring(0, &other);
  ck_ok(zke_expire(writer, zke_session_id(watcher)));
  while (!fallback.count) ck_ok(zke_dispatch(watcher, NULL));
  test_expect(watcher, &seen, "SESSION -112");
  test_expect(watcher, &other, "SESSION -112");
  test_expect(watcher, &fallback, "SESSION -112");
  ring(0, &seen);
  ck_rc(zke_dispatch(watcher, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(seen.count, 0);
  ck_assert_int_eq(next_deadline(), ZKE_FOREVER);
}

AFTER_EACH(finish);
