/* metrics.c - the command metrics: numbers of a database as OpenMetrics text
 *
 * For a collector of text files, or a monitor that runs commands.  The output
 * is also valid in Prometheus' older text format, which has no type "info".
 * Numbers from the file are read in one read transaction, so they agree.  Only
 * the kernel knows which sessions live; it is asked right before.  Unknown
 * values are not printed.
 *
 * The zxid does not count changes: a new epoch, as after a copy of the file,
 * begins anywhere above all earlier zxids.  So it becomes two gauges of 32
 * bits, which a collector can store exactly; while the first stays, the second
 * rises by one with each change.
 *
 * Start reading at metrics_write().
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "database.h"
#include "work.h"

/* The data of one call. */
typedef struct metrics {
  zke_session_list *sessions;
  snapshot *file;
  FILE *out;
} metrics;

/* The head of a family; its samples follow. */
static void family(metrics *m, const char *name, const char *help) {
  fprintf(m->out, "# HELP zkembed_%s %s\n# TYPE zkembed_%s gauge\n", name, help,
          name);
}

/* A family with one sample and no labels. */
static void gauge(metrics *m, const char *name, const char *help,
                  int64_t value) {
  family(m, name, help);
  fprintf(m->out, "zkembed_%s %" PRId64 "\n", name, value);
}

/* The same for a statement's number; nothing if it cannot be read. */
static void gauge_of(metrics *m, const char *name, const char *help,
                     const char *sql) {
  int64_t value = snapshot_number(m->file, sql);
  if (value >= 0) gauge(m, name, help, value);
}

/* A sample with a label. */
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
 * Each function writes one group of numbers, and leaves out those it cannot
 * read.
 * --------------------------------------------------------------------- */

enum { SESSION_PROCESS, SESSION_LEASED, SESSION_LIGHT, SESSION_KEPT, SESSIONS };

/* How a session is kept alive: see zkembed.h. */
static int session_kind(const zke_session_info *s) {
  if (s->timeout_ms) return SESSION_KEPT;
  if (s->carrier) return SESSION_LIGHT;
  return s->lease_ms ? SESSION_LEASED : SESSION_PROCESS;
}

/* Sessions by kind, and how many are dead and not yet removed.  A kept session
 * without an attached process lives only by its timeout. */
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

/* The latest change of the database. */
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

/* The sizes of the files.  The log is overwritten from its start once all of it
 * is in the database, so its length is the largest size that it reached. */
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

/* The history's numbers, if there is one. */
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
 * Reads first, prints afterwards: printed text cannot be taken back, so all of
 * it is in memory before the first byte is written.
 * --------------------------------------------------------------------- */

/* The text as one row with one member, so that --json prints it as a string. */
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

/* The command.  If it was cancelled it fails, since its statements were stopped
 * and the text may lack numbers. */
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

/* Prints the text unchanged. */
static void metrics_human(call *c, json_t *row, FILE *out) {
  (void)c;
  fputs(json_string_value(json_object_get(row, "metrics")), out);
}

const command metrics_commands[] = {
    {"metrics", "", "print numbers of the database as OpenMetrics text", NULL,
     0, 0, NEEDS_FILE | FILE_ONLY, STYLE_LINE, metrics_run, metrics_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
