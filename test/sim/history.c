/* history.c - see history.h */
#include "test/sim/history.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell/changes.h"
#include "test/sim/judge.h"
#include "test/sim/outbox.h"
#include "test/sim/plan.h"
#include "test/sim/rounds.h"
#include "test/sim/sched.h"
#include "test/sim/vfs.h"

enum { ROWS = 1000000, NOTES = 1 << 16, NODES = 1 << 13, PATH = 40 };

typedef struct note {
  int64_t zxid;
  int type, boots; /* boots: of the host, until it was acknowledged */
  bool lasting;
  char path[PATH];
} note;

/* A node that the history has created. */
typedef struct node {
  char path[PATH];
  bool there;
  int sets;
} node;

static note notes[NOTES];
static int note_count, note_kept; /* note_kept: at the backup */
static int64_t begun;             /* the zxid at which it begins */
static node nodes[NODES];

/* Ask the engine to keep a history.  Changes count from the first answer on. */
int history_begin(const ops_actor *a) {
  if (!the_plan.k.history) return ZKE_OK;
  known_call c = known_begin(a->slot, "history_keep");
  int rc = known_end(c, zke_history_keep(a->z, ROWS, 0));
  if (rc == ZKE_OK && !begun) begun = zke_zxid();
  return rc;
}

/* The call that made the change returned ZKE_OK. */
void history_note(int64_t zxid, int type, const char *path, bool lasting) {
  if (!the_plan.k.history || note_count == NOTES) return;
  note *n = &notes[note_count++];
  *n = (note){
      .zxid = zxid, .type = type, .boots = sim.boots, .lasting = lasting};
  snprintf(n->path, sizeof n->path, "%s", path);
}

void history_note_call(known_call c, int64_t zxid, int type, const char *path,
                       bool lasting) {
  known_zxid(c, zxid);
  history_note(zxid, type, path, lasting);
}

void history_keep(void) { note_kept = note_count; }
void history_go_back(void) { note_count = note_kept; }

/* For qsort(). */
static int by_zxid(const void *a, const void *b) {
  const note *n = a, *m = b;
  return (n->zxid > m->zxid) - (n->zxid < m->zxid);
}

/* For findings. */
static const char *type_name(int type) {
  if (type == ZKE_EVENT_CREATED) return "created";
  return type == ZKE_EVENT_DELETED ? "deleted" : "set";
}

/* ---- reading it ---- */

/* Append the row that a statement is at. */
static void add(history_changes *list, sqlite3_stmt *st) {
  size_t size = (size_t)(list->count + 1) * sizeof *list->at;
  const char *path = (const char *)sqlite3_column_text(st, 5);
  if (!path) sim_bug("no memory for a path");
  size_t len = strlen(path) + 1;
  if ((list->count & (list->count - 1)) == 0)
    list->at = sim_resize(list->at, 2 * size);
  list->at[list->count++] =
      (history_change){.zxid = sqlite3_column_int64(st, 0),
                       .time_ms = sqlite3_column_int64(st, 1),
                       .type = sqlite3_column_int(st, 2),
                       .session = sqlite3_column_int64(st, 3),
                       .owner = sqlite3_column_int64(st, 4),
                       .path = memcpy(sim_zero(len), path, len)};
}

/* The rows of a statement; false: they cannot be read now. */
static bool read_rows(sqlite3 *db, const char *sql, int64_t after,
                      const char *path, history_changes *list) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_bind_int64(st, 1, after);
  if (rc == SQLITE_OK)
    rc = sqlite3_bind_text(st, 2, path, -1, SQLITE_TRANSIENT);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  for (; rc == SQLITE_ROW; rc = sqlite3_step(st)) add(list, st);
  sqlite3_finalize(st);
  return rc == SQLITE_DONE;
}

/* Is there an earlier row?  Then no later one can have been dropped. */
static bool reaches_back(sqlite3 *db, int64_t after) {
  static const char sql[] =
      "SELECT zxid<=?1 FROM zkembed_history ORDER BY seq LIMIT 1";
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_bind_int64(st, 1, after);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  bool reaches = rc == SQLITE_ROW && sqlite3_column_int(st, 0);
  sqlite3_finalize(st);
  return reaches;
}

bool history_read(const char *path, int64_t after, history_changes *list) {
  static const char sql[] =
      "SELECT zxid,time,type,session,owner,path" CHANGES_SINCE;
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
  *list = (history_changes){.count = 0};
  int rc = sqlite3_open_v2(ops_file, &db, flags, vfs_foreign_name);
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
  bool is_read = rc == SQLITE_OK && read_rows(db, sql, after, path, list);
  if (is_read) list->complete = reaches_back(db, after);
  sqlite3_close(db);
  return is_read;
}

void history_free(history_changes *list) {
  for (int i = 0; i < list->count; i++)
    free((char *)(uintptr_t)list->at[i].path);
  free(list->at);
}

/* ---- what was acknowledged is in it ---- */

/* Is the note among the changes of its zxid, of which `from` is the first? */
static bool is_in(const history_change *from, const history_change *end,
                  const note *n) {
  for (const history_change *c = from; c < end && c->zxid == n->zxid; c++)
    if (c->type == n->type && strcmp(c->path, n->path) == 0) return true;
  return false;
}

/* Both are sorted by zxid. */
static void check_notes(const history_changes *list) {
  const history_change *at = list->at, *end = at + list->count;
  qsort(notes, (size_t)note_count, sizeof *notes, by_zxid);
  for (int i = 0; i < note_count; i++) {
    const note *n = &notes[i];
    while (at < end && at->zxid < n->zxid) at++;
    if (is_in(at, end, n)) continue;
    if (!n->lasting && n->boots != sim.boots)
      continue; /* a power cut has undone it */
    sim_found("P8: %s was %s by %llx, and the history does not have it",
              n->path, type_name(n->type), (long long)n->zxid);
  }
}

/* ---- played from the beginning ---- */

/* The node of a path, added if necessary. */
static node *node_of(const char *path) {
  uint32_t hash = 2166136261u;
  for (const char *c = path; *c; c++)
    hash = (hash ^ (unsigned char)*c) * 16777619u;
  for (uint32_t i = hash % NODES;; i = (i + 1) % NODES) {
    node *n = &nodes[i];
    if (n->path[0] && strcmp(n->path, path) != 0) continue;
    snprintf(n->path, sizeof n->path, "%s", path);
    return n;
  }
}

/* A register's n-th set gives version n. */
static void check_set(const history_change *c, int sets) {
  int64_t known = 0;
  if (strncmp(c->path, "/r", 2) == 0 && strlen(c->path) == 3)
    known = known_mzxid(c->path[2] - '0', sets);
  if (known && known != c->zxid)
    sim_found("P1: version %d of %s is of zxid %llx, but its set %d was %llx",
              sets, c->path, (long long)known, sets, (long long)c->zxid);
}

/* Apply a change to `nodes`, where it must be possible (P2). */
static void play_one(const history_change *c) {
  static int last = -1;
  if (rounds_has(c->path) || outbox_has(c->path)) return;
  node *n = node_of(c->path);
  if (n->there == (c->type == ZKE_EVENT_CREATED))
    sim_found("P2: %s is %s by %llx, and it is %s", c->path, type_name(c->type),
              (long long)c->zxid, n->there ? "there" : "not there");
  if (c->type == ZKE_EVENT_CHANGED) check_set(c, ++n->sets);
  n->there = c->type != ZKE_EVENT_DELETED;
  if (c->type != ZKE_EVENT_CREATED || strncmp(c->path, "/q/", 3) != 0) return;
  int number = known_number_of(c->path);
  if (number <= last)
    sim_found("P8: the number %d of /q was given after %d", number, last);
  last = number;
}

/* Apply all changes in the order of their zxids (P1). */
static void play(const history_changes *list) {
  for (int i = 0; i < list->count; i++) {
    if (i && list->at[i].zxid < list->at[i - 1].zxid)
      sim_found("P1: the history is not in the order of zxids");
    play_one(&list->at[i]);
  }
}

/* The tree's children of a parent are those of the history. */
static void check_children(const ops_actor *a, const char *parent) {
  char path[PATH];
  zke_strings *names = NULL;
  size_t len = strlen(parent);
  int there = 0;
  if (zke_children(a->z, parent, NULL, NULL, &names, NULL) != ZKE_OK) return;
  for (int i = 0; i < names->count; i++) {
    snprintf(path, sizeof path, "%s/%s", parent, names->data[i]);
    if (!node_of(path)->there)
      sim_found("P2: %s is there, but not by the history", path);
  }
  for (int i = 0; i < NODES; i++)
    there += nodes[i].there && strncmp(nodes[i].path, parent, len) == 0 &&
             nodes[i].path[len] == '/';
  if (there != names->count)
    sim_found("P2: %s has %d children, by the history %d", parent, names->count,
              there);
  zke_free(names);
}

/* Read it, at rest; if an error prevents that even now, the next try
 * succeeds. */
static bool read_all(const ops_actor *a, history_changes *list) {
  enum { TRIES = 5, PAUSE_MS = 1000 };
  for (int i = 0; i < TRIES && !known_of[a->slot].lost; i++) {
    if (history_read("", begun, list)) return true;
    history_free(list);
    sched_pause(PAUSE_MS * SIM_MS);
  }
  if (!known_of[a->slot].lost)
    sim_found("P11: the history cannot be read at rest");
  return false;
}

/* Read the history and compare it with everything known. */
void history_check(const ops_actor *a) {
  history_changes list;
  if (!the_plan.k.history) return;
  judge_look(a);
  if (!read_all(a, &list)) return;
  if (!list.complete) sim_found("P1: the history is not complete");
  check_notes(&list);
  play(&list);
  check_children(a, "/q");
  check_children(a, "/l");
  check_children(a, "/line");
  if (!the_plan.k.uses) judge(&list); /* recipes' calls are not noted */
  history_free(&list);
}
