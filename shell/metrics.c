/* metrics.c - the command metrics: numbers of a database as OpenMetrics text
 *
 * For a collector of text files, or a monitor that runs commands.  It is
 * Prometheus' older text as well, which knows no type "info".  What the file
 * tells is read in one read transaction, so these numbers fit together.
 * Which sessions live only the kernel knows; it is asked right before.  What
 * is not known is not printed.
 *
 * The zxid is no count of changes: a new epoch, as after a copy of the file,
 * begins anywhere above all zxids before.  So it is two gauges, of 32 bits
 * each, which a collector can keep without loss; while the first one stays, the
 * second rises by one with each change.
 *
 * Start reading at metrics_write().
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "database.h"
#include "work.h"

/* What one call has read. */
typedef struct metrics {
  zke_session_list *sessions;
  snapshot *file;
  FILE *out;
} metrics;

/* The head of a family: its samples follow. */
static void family(metrics *m, const char *name, const char *help) {
  fprintf(m->out, "# HELP zkembed_%s %s\n# TYPE zkembed_%s gauge\n", name, help,
          name);
}

/* A family of one sample without labels. */
static void gauge(metrics *m, const char *name, const char *help,
                  int64_t value) {
  family(m, name, help);
  fprintf(m->out, "zkembed_%s %" PRId64 "\n", name, value);
}

/* The same of what a statement counts; none where it cannot be read. */
static void gauge_of(metrics *m, const char *name, const char *help,
                     const char *sql) {
  int64_t value = snapshot_number(m->file, sql);
  if (value >= 0) gauge(m, name, help, value);
}

/* A sample of a family with a label. */
static void labelled(metrics *m, const char *name, const char *label,
                     const char *of, int64_t value) {
  if (value < 0) return;
  fprintf(m->out, "zkembed_%s{%s=\"%s\"} %" PRId64 "\n", name, label, of,
          value);
}

/* A point in time. */
static void timestamp(metrics *m, const char *name, const char *help,
                      int64_t ms) {
  family(m, name, help);
  fprintf(m->out, "zkembed_%s %" PRId64 ".%03" PRId64 "\n", name, ms / 1000,
          ms % 1000);
}

/* ------------------------------------------------------------------------
 * The families
 *
 * A function writes one group of numbers, and leaves out what it cannot read.
 * --------------------------------------------------------------------- */

enum { SESSION_PROCESS, SESSION_LEASED, SESSION_LIGHT, SESSION_KEPT, SESSIONS };

/* By what a session lives: see zkembed.h. */
static int session_kind(const zke_session_info *s) {
  if (s->timeout_ms) return SESSION_KEPT;
  if (s->carrier) return SESSION_LIGHT;
  return s->lease_ms ? SESSION_LEASED : SESSION_PROCESS;
}

/* Sessions by kind, and those of them that are dead and not removed yet.  A
 * kept session that nobody is attached to lives by its timeout alone. */
static void write_sessions(metrics *m) {
  static const char *const kinds[SESSIONS] = {"process", "leased", "light",
                                              "kept"};
  int64_t count[SESSIONS] = {0}, dead = 0;
  for (int i = 0; i < m->sessions->count; i++) {
    const zke_session_info *s = &m->sessions->data[i];
    bool detached = s->timeout_ms && !s->carrier;
    count[session_kind(s)]++;
    dead += !s->alive && !detached;
  }
  family(m, "sessions", "Sessions in the database, by kind.");
  for (int i = 0; i < SESSIONS; i++)
    labelled(m, "sessions", "kind", kinds[i], count[i]);
  gauge(m, "sessions_dead",
        "Sessions whose process has ended and that are not removed yet.", dead);
}

/* Nodes and watches by kind. */
static void write_tree(metrics *m) {
  static const char *const kinds[][2] = {
      {"persistent",
       "SELECT count(*) FROM zkembed_node WHERE kind=0 AND owner=0"},
      {"ephemeral", "SELECT count(*) FROM zkembed_node WHERE owner<>0"},
      {"container", "SELECT count(*) FROM zkembed_node WHERE kind=1"},
      {"ttl", "SELECT count(*) FROM zkembed_node WHERE kind=2"}};
  static const char *const modes[][2] = {
      {"one-shot", "SELECT count(*) FROM zke_watches WHERE mode='one-shot'"},
      {"persistent",
       "SELECT count(*) FROM zke_watches WHERE mode='persistent'"},
      {"recursive", "SELECT count(*) FROM zke_watches WHERE mode='recursive'"}};
  family(m, "nodes", "Nodes in the tree, by kind.");
  for (int i = 0; i < 4; i++)
    labelled(m, "nodes", "kind", kinds[i][0],
             snapshot_number(m->file, kinds[i][1]));
  family(m, "watches", "Watches that are set, by mode.");
  for (int i = 0; i < 3; i++)
    labelled(m, "watches", "mode", modes[i][0],
             snapshot_number(m->file, modes[i][1]));
  gauge_of(m, "waiters", "Watches on nodes that other sessions own.",
           "SELECT count(*) FROM zke_waiters");
  gauge_of(m, "events_pending", "Events that no session has taken yet.",
           "SELECT count(*) FROM zkembed_event");
}

/* Up to which change the database is. */
static void write_changes(metrics *m) {
  int64_t zxid = snapshot_number(m->file, "SELECT zxid FROM zkembed_meta");
  if (zxid < 0) return;
  gauge(m, "zxid_high", "Upper 32 bits of the zxid of the last change.",
        zxid >> 32);
  gauge(m, "zxid_low",
        "Lower 32 bits; while the upper ones stay, one more for each "
        "transaction that changes the tree or the sessions.",
        zxid & INT64_C(0xffffffff));
}

/* What the files take.  The log is written over from its beginning when all of
 * it is in the database, so its length says how much it has grown to. */
static void write_file(metrics *m) {
  enum { LOG_HEADER = 32, FRAME_HEADER = 24 };
  snapshot_sizes s = snapshot_file(m->file);
  int64_t frame = s.page_bytes + FRAME_HEADER;
  int64_t log = s.log_bytes > LOG_HEADER ? s.log_bytes - LOG_HEADER : 0;
  if (s.pages >= 0 && s.page_bytes > 0) {
    gauge(m, "database_bytes", "Size of the database.", s.pages * s.page_bytes);
    gauge(m, "database_pages", "Pages of the database.", s.pages);
  }
  if (s.free_pages >= 0)
    gauge(m, "database_free_pages", "Pages of it that are not in use.",
          s.free_pages);
  gauge(m, "log_bytes", "Length of the write-ahead log's file.", s.log_bytes);
  if (s.page_bytes > 0)
    gauge(m, "log_room_pages", "Pages that this length has room for.",
          log / frame);
}

/* Of the history, where one is kept. */
static void write_history(metrics *m) {
  if (snapshot_number(m->file,
                      "SELECT history_rows>0 OR history_ms>0 FROM "
                      "zkembed_meta") <= 0)
    return;
  gauge_of(m, "history_rows", "Changes in the history.",
           "SELECT count(*) FROM zkembed_history WHERE type<>0");
  int64_t ms = snapshot_number(
      m->file, "SELECT time FROM zkembed_history ORDER BY seq LIMIT 1");
  if (ms < 0) return;
  timestamp(m, "history_begin_timestamp_seconds",
            "When the history begins, since 1970.", ms);
}

/* The whole text. */
static void metrics_write(metrics *m) {
  family(m, "build_info", "The library that answers.");
  fprintf(m->out, "zkembed_build_info{version=\"%s\"} 1\n", zke_version());
  write_sessions(m);
  write_tree(m);
  write_changes(m);
  write_file(m);
  write_history(m);
  fputs("# EOF\n", m->out);
}

/* ------------------------------------------------------------------------
 * The command
 *
 * Read first, print afterwards: a text that was begun cannot be taken back, so
 * the whole of it is in memory before its first byte goes out.
 * --------------------------------------------------------------------- */

/* The text as one row with one member, so that --json has it as a string. */
static int metrics_emit(call *c, metrics *m) {
  char *text = NULL;
  size_t len;
  m->out = open_memstream(&text, &len);
  if (!m->out) return no_memory(c);
  metrics_write(m);
  int status =
      fclose(m->out) == 0
          ? emit_row(c, json_pack("{s:o}", "metrics", value_text(text)))
          : no_memory(c);
  free(text);
  return status;
}

/* The command.  One that was cancelled meanwhile fails, since its statements
 * were stopped and numbers of the text may be missing. */
static int metrics_run(call *c) {
  metrics m = {.sessions = NULL};
  int rc = zke_sessions(c->z, -1, &m.sessions);
  int status = rc == ZKE_OK ? snapshot_open(c, &m.file) : fail_rc(c, rc);
  if (!status) status = metrics_emit(c, &m);
  if (!status && cancel_came(c)) status = fail_cancelled(c);
  snapshot_close(m.file);
  zke_free(m.sessions);
  return status;
}

/* The text as it is. */
static void metrics_human(call *c, json_t *row, FILE *out) {
  (void)c;
  fputs(json_string_value(json_object_get(row, "metrics")), out);
}

const command metrics_commands[] = {
    {"metrics", "", "print numbers of the database as OpenMetrics text", NULL,
     0, 0, NEEDS_FILE | FILE_ONLY, STYLE_LINE, metrics_run, metrics_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
