/* admin.c - see admin.h */
#include "test/sim/admin.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/container.h"
#include "test/sim/corner.h"
#include "test/sim/disk.h"
#include "test/sim/foreign.h"
#include "test/sim/history.h"
#include "test/sim/kept.h"
#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/ops.h"
#include "test/sim/outbox.h"
#include "test/sim/plan.h"
#include "test/sim/rounds.h"
#include "test/sim/sched.h"

enum { NOTHING = -1 };

/* The files of a backup: the database and its log. */
enum { PARTS = 2 };
static const char *const suffix[PARTS] = {"", "-wal"};
static disk_content backup[PARTS];
static bool taken;

static int waiting = NOTHING; /* the act that waits for all processes to end */

/* ---- files ---- */

/* The path of a side file of the database. */
static const char *path_of(const char *end) {
  static char path[DISK_PATH];
  snprintf(path, sizeof path, "%s%s", ops_file, end);
  return path;
}

static void remove_file(const char *path) {
  if (disk_find(path)) disk_remove(path);
}

/* Copy a file's content; empty if there is no such file. */
static void read_file(const char *path, disk_content *out) {
  const disk_node *n = disk_find(path);
  out->size = n ? n->now.size : 0;
  out->data = sim_resize(out->data, (size_t)out->size + 1);
  if (n) disk_read(n, out->data, 0, out->size);
}

/* Write a file, creating it if necessary, and sync it. */
static void write_file(const char *path, const disk_content *c) {
  disk_node *n = disk_find(path);
  if (!n) n = disk_add(path, DISK_FILE, 0644);
  disk_truncate(n, 0);
  disk_write(n, c->data, 0, c->size);
  disk_sync(n, disk_mark(), false);
  disk_sync_parent(path);
}

/* Write a file under another name, then rename it into place. */
static void move_file(const char *path, const disk_content *c) {
  static const char temporary[] = "/sim/new.db";
  write_file(temporary, c);
  disk_rename(temporary, path);
  disk_sync_parent(path);
}

/* Remove the side directory's files whose names begin with `name`; "" for all.
 * Returns whether any was removed. */
static bool remove_side(const char *name) {
  char path[DISK_PATH], side[DISK_PATH];
  char(*names)[DISK_PATH];
  snprintf(side, sizeof side, "%s", path_of("-zke"));
  int count = disk_list(side, &names);
  bool any = false;
  for (int i = 0; i < count; i++) {
    int fits = snprintf(path, sizeof path, "%s/%s", side, names[i]);
    bool fifo = disk_find(path)->type == DISK_PIPE;
    bool is = fifo ? !*name || *name == '|' : strcmp(name, names[i]) == 0;
    if (fits >= DISK_PATH || !(is || !*name)) continue;
    disk_remove(path);
    any = true;
  }
  free(names);
  if (*name || !disk_find(side)) return any;
  disk_remove(side);
  return true;
}

/* ---- acts ---- */

/* The first writer of a file chooses SQLite's page size, and the engine sets
 * none.  So another program has made the file, with a table of its own. */
void admin_begin(void) {
  sqlite3 *db = NULL;
  sqlite3_int64 size = 0;
  char sql[80];
  if (!the_plan.k.pages) return;
  snprintf(sql, sizeof sql, "PRAGMA page_size=%d; CREATE TABLE program(n)",
           256 << the_plan.k.pages);
  int rc = sqlite3_open(":memory:", &db);
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  disk_content c = {.data = sqlite3_serialize(db, "main", &size, 0)};
  if (rc != SQLITE_OK || !c.data) sim_bug("no file: %s", sqlite3_errmsg(db));
  c.size = size;
  write_file(ops_file, &c);
  sqlite3_free(c.data);
  sqlite3_close(db);
}

/* A process that loses its files has until its next tick to notice; until then
 * its calls may fail as after an error. */
static void note_lost(void) {
  known_side_lost = true;
  kept_adrift();
  sim_error(sim.now);
  for (int i = 0; i < SIM_SLOTS; i++)
    if (sched_lives(i)) sched_process_of(i)->adrift = sim.now;
}

/* Back up only a complete file. */
static void make_backup(void) {
  if (!known_ready) return;
  for (int i = 0; i < PARTS; i++) read_file(path_of(suffix[i]), &backup[i]);
  taken = true;
  known_keep();
  corner_keep();
  outbox_keep();
  history_keep();
  foreign_keep();
}

/* Remove the log and the -shm first, or an old log would be replayed. */
static void restore(bool moves) {
  if (!taken) return;
  remove_file(path_of("-wal"));
  remove_file(path_of("-shm"));
  (moves ? move_file : write_file)(ops_file, &backup[0]);
  if (backup[1].size) write_file(path_of("-wal"), &backup[1]);
  known_go_back();
  rounds_go_back();
  corner_go_back();
  outbox_go_back();
  history_go_back();
  foreign_go_back();
  load_cut();
}

/* Afterwards all sessions have ended, and side files are made again. */
static void copy_itself(void) {
  static disk_content c;
  if (!disk_find(ops_file)) return;
  read_file(ops_file, &c);
  move_file(ops_file, &c);
  known_side_lost = false;
  load_cut();
}

/* Remove one of the files that the engine opens at the start. */
static bool remove_one(void) {
  static const char *const names[] = {"gate", "line", "live"};
  return remove_side(names[sim_random(SIM_WORLD, 3)]);
}

/* Perform the act, and record it for the checks. */
static void act(int what) {
  bool lost;
  sim_say("administrator: act %d", what);
  sim_fault(sim.now);
  switch (what) {
    case ADMIN_BACKUP:
      make_backup();
      return;
    case ADMIN_RESTORE:
    case ADMIN_MOVE:
      restore(what == ADMIN_MOVE);
      return;
    case ADMIN_COPY:
      copy_itself();
      return;
    case ADMIN_FIFOS_OPEN:
      if (remove_side("|")) sim_error(sim.now); /* a process that opens one */
      known_fifos_lost = true;
      return;
    case ADMIN_FILE_OPEN:
    case ADMIN_SIDE_OPEN:
      if (!container_shows_boot()) return; /* looks like a reboot */
      lost = what == ADMIN_FILE_OPEN ? remove_one() : remove_side("");
      break;
    default:
      lost = remove_side("");
  }
  if (lost) note_lost();
}

static bool is_quiet(int what) {
#define QUIET(name, quiet) quiet,
  static const bool quiet[] = {ADMIN_ACT_LIST(QUIET)};
#undef QUIET
  return quiet[what];
}

void admin_strike(int what, void (*end_all)(void)) {
  what %= ADMIN_ACTS;
  if (!is_quiet(what)) {
    act(what);
    return;
  }
  end_all();
  waiting = what;
}

bool admin_tick(void) {
  if (waiting == NOTHING) return false;
  for (int i = 0; i < SIM_SLOTS; i++)
    if (!sched_is_free(i)) return true;
  act(waiting);
  waiting = NOTHING;
  return false;
}

void admin_cut(void) { known_side_lost = known_fifos_lost = false; }

void admin_end(void (*end_all)(void)) {
  if (known_side_lost || waiting != NOTHING) admin_strike(ADMIN_COPY, end_all);
}
