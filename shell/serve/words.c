/* words.c - the four-letter words of the protocol server
 *
 * A person or a monitor sends four letters instead of a frame, gets a text, and
 * the connection is closed.  The texts have the form of ZooKeeper 3.8, since
 * programs read them; values without a meaning here are left out, not invented.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "serve.h"

/* ------------------------------------------------------------------------
 * Texts
 *
 * A function writes the answer to one word.  A value that cannot be read now is
 * 0 or left out: for a monitor that asks every few seconds, this is better than
 * no answer.
 * --------------------------------------------------------------------- */

/* ruok: the server answers, so it runs. */
static void say_ruok(server *s, FILE *out) {
  (void)s;
  fputs("imok", out);
}

/* isro: "rw", since this server is never read-only. */
static void say_isro(server *s, FILE *out) {
  (void)s;
  fputs("rw", out);
}

/* The lines of srvr, which stat has, too.  The lines are in ZooKeeper's order,
 * since programs find some by their position. */
static void say_state(server *s, FILE *out) {
  const counts *n = &s->counts;
  fprintf(out, "Latency min/avg/max: %" PRId64 "/%.4f/%" PRId64 "\n",
          n->all.min_ms, timing_average(&n->all), n->all.max_ms);
  fprintf(out, "Received: %" PRId64 "\nSent: %" PRId64 "\n", n->received,
          n->sent);
  fprintf(out, "Connections: %d\nOutstanding: %" PRId64 "\n", s->conn_count,
          stats_all_waiting(s));
  fprintf(out, "Zxid: 0x%" PRIx64 "\nMode: standalone\n",
          (uint64_t)server_zxid(s));
  fprintf(out, "Node count: %" PRId64 "\n", stats_nodes(s));
}

/* The first line of srvr and stat; programs take the version from it. */
static void say_version(FILE *out) {
  fputs("Zookeeper version: " SERVE_VERSION_FULL "\n", out);
}

/* srvr: the server's numbers. */
static void say_srvr(server *s, FILE *out) {
  say_version(out);
  say_state(s, out);
}

/* How stat and cons begin a connection's line. */
static void say_peer(conn *c, FILE *out) {
  fprintf(out,
          " /%s:%d[%d](queued=%" PRId64 ",recved=%" PRId64 ",sent=%" PRId64,
          c->address, c->port, stats_interest(c), stats_waiting(c), c->received,
          c->issued);
}

/* stat: the same, and a line for each connection, including the one that
 * asks. */
static void say_stat(server *s, FILE *out) {
  say_version(out);
  fputs("Clients:\n", out);
  for (conn *c = s->conns; c; c = c->next) {
    say_peer(c, out);
    fputs(")\n", out);
  }
  fputs("\n", out);
  say_state(s, out);
}

/* The part of cons about a connection with a session. */
static void say_session(const server *s, const conn *c, FILE *out) {
  fprintf(out,
          ",sid=0x%" PRIx64 ",lop=%s,est=%" PRId64 ",to=%" PRId64
          ",lcxid=0x%x,lzxid=0x%" PRIx64,
          (uint64_t)c->session->id, c->last_name ? c->last_name : "NA",
          s->began_ms + c->since_ms, c->session->timeout_ms,
          (unsigned)c->last_xid, (uint64_t)c->last_zxid);
  fprintf(out,
          ",lresp=%" PRId64 ",llat=%" PRId64 ",minlat=%" PRId64
          ",avglat=%" PRId64 ",maxlat=%" PRId64,
          c->answered_ms, c->took.last_ms, c->took.min_ms,
          (int64_t)timing_average(&c->took), c->took.max_ms);
}

/* cons: all connections, with their sessions' activity. */
static void say_cons(server *s, FILE *out) {
  for (conn *c = s->conns; c; c = c->next) {
    say_peer(c, out);
    if (c->session) say_session(s, c, out);
    fputs(")\n", out);
  }
  fputs("\n", out);
}

/* The sizes of the database and of its log, which is a file beside it.  A
 * database in memory has neither. */
static void say_sizes(const char *file, FILE *out) {
  struct stat of;
  char *log = NULL;
  if (stat(file, &of) != 0) return;
  fprintf(out, "dataDirSize=%lld\ndataLogDir=%s\n", (long long)of.st_size,
          file);
  if (asprintf(&log, "%s-wal", file) < 0) return;
  long long size = stat(log, &of) == 0 ? (long long)of.st_size : 0;
  fprintf(out, "dataLogSize=%lld\n", size);
  free(log);
}

/* conf: the server's options.  In ZooKeeper -1 means not configured. */
static void say_conf(server *s, FILE *out) {
  fprintf(out, "clientPort=%d\nsecureClientPort=-1\ndataDir=%s\n", s->port,
          s->c->sh->file);
  say_sizes(s->c->sh->file, out);
  fprintf(out, "tickTime=%" PRId64 "\nmaxClientCnxns=%d\n", s->tick_ms,
          s->address_most);
  fprintf(out, "minSessionTimeout=%" PRId64 "\nmaxSessionTimeout=%" PRId64 "\n",
          s->timeout_min_ms, s->timeout_max_ms);
  fputs("clientPortListenBacklog=-1\nserverId=0\n", out);
}

/* envi: ZooKeeper's lines that are not about Java. */
static void say_envi(server *s, FILE *out) {
  struct utsname host = {0};
  (void)s;
  uname(&host);
  fputs("Environment:\nzookeeper.version=" SERVE_VERSION_FULL "\n", out);
  fprintf(out, "host.name=%s\nos.name=%s\nos.arch=%s\nos.version=%s\n",
          host.nodename, host.sysname, host.machine, host.release);
}

/* A line for each number, as ZooKeeper writes it. */
static void say_mntr(server *s, FILE *out) { stats_monitor(s, out); }

/* ------------------------------------------------------------------------
 * dump
 *
 * ZooKeeper puts items that end at the same time into a set.  A session here
 * ends at a tick, too, and its connection with it.  A connection without a
 * session ends some seconds after it was last heard from.
 * --------------------------------------------------------------------- */

/* An item that ends at a time of the server's clock: a session or a
 * connection. */
typedef struct due {
  int64_t ms;
  const client *session;
  const conn *conn; /* NULL: it is about the session */
} due;

/* For qsort(): by the time. */
static int order_dues(const void *a, const void *b) {
  const due *one = a, *other = b;
  return (one->ms > other->ms) - (one->ms < other->ms);
}

/* A time in Java's form, "Thu Nov 26 19:50:18 UTC 2026". */
static void say_date(const server *s, int64_t ms, FILE *out) {
  time_t at = (time_t)((clock_wall_ms() + ms - s->now_ms) / 1000);
  struct tm parts;
  char text[64] = "";
  if (localtime_r(&at, &parts))
    strftime(text, sizeof text, "%a %b %d %H:%M:%S %Z %Y", &parts);
  fputs(text, out);
}

/* The line of an item: a connection with its address and its session, or a
 * session with its id. */
static void say_due(const due *at, FILE *out) {
  uint64_t id = at->session ? (uint64_t)at->session->id : 0;
  if (at->conn)
    fprintf(out, "\tip: /%s:%d sessionId: 0x%" PRIx64 "\n", at->conn->address,
            at->conn->port, id);
  else
    fprintf(out, "\t0x%" PRIx64 "\n", id);
}

/* The line with the numbers of sets and members, then each set: its time, and
 * its members below it. */
static void say_sets(const server *s, const char *title, due *all, int count,
                     FILE *out) {
  int sets = 0;
  qsort(all, (size_t)count, sizeof *all, order_dues);
  for (int i = 0; i < count; i++) sets += !i || all[i].ms != all[i - 1].ms;
  fprintf(out, "%s (%d)/(%d):\n", title, sets, count);
  for (int i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && all[end].ms == all[i].ms;) end++;
    fprintf(out, "%d expire at ", end - i);
    say_date(s, all[i].ms, out);
    fputs(":\n", out);
    for (int k = i; k < end; k++) say_due(&all[k], out);
  }
}

/* The ephemeral nodes of each session; sessions without any have no line. */
static void say_ephemerals(server *s, FILE *out) {
  char *text = NULL;
  size_t len;
  int count = 0;
  FILE *list = open_memstream(&text, &len);
  if (!list) return;
  for (const client *at = s->sessions; at; at = at->next) {
    zke_strings *paths;
    if (zke_ephemerals(s->z, at->id, NULL, &paths) != ZKE_OK) continue;
    count += paths->count > 0;
    if (paths->count) fprintf(list, "0x%" PRIx64 ":\n", (uint64_t)at->id);
    for (int i = 0; i < paths->count; i++)
      fprintf(list, "\t%s\n", paths->data[i]);
    zke_free(paths);
  }
  if (fclose(list) == 0)
    fprintf(out, "Sessions with Ephemerals (%d):\n%s", count, text);
  free(text);
}

/* dump: when sessions and connections end, and which ephemeral nodes exist. */
static void say_dump(server *s, FILE *out) {
  int count = 0;
  size_t most = (size_t)s->session_count + (size_t)s->conn_count + 1;
  due *all = calloc(most, sizeof *all);
  if (!all) return;
  for (const client *at = s->sessions; at; at = at->next)
    all[count++] = (due){at->expires_ms, at, NULL};
  fputs("SessionTracker dump:\n", out);
  say_sets(s, "Session Sets", all, count, out);
  fputs("ephemeral nodes dump:\n", out);
  say_ephemerals(s, out);
  count = 0;
  for (const conn *c = s->conns; c; c = c->next) {
    int64_t ms = (c->heard_ms + GREETING_MS) / s->tick_ms + 1;
    all[count++] = (due){ms * s->tick_ms, c->session, c};
    if (c->session) all[count - 1].ms = c->session->expires_ms;
  }
  fputs("Connections dump:\n", out);
  say_sets(s, "Connections Sets", all, count, out);
  free(all);
}

/* ------------------------------------------------------------------------
 * Watches
 *
 * One list of the watches of only this server's clients (stats.c): counted, by
 * session, or by path.
 * --------------------------------------------------------------------- */

/* wchs: how many watches there are. */
static void say_wchs(server *s, FILE *out) {
  watch_counts n = stats_count_watches(s);
  fprintf(out, "%d connections watching %d paths\nTotal watches:%d\n",
          n.sessions, n.paths, n.watches);
}

/* wchc: paths by session. */
static void say_wchc(server *s, FILE *out) {
  own_watches w;
  stats_watches(s, &w);
  stats_by_session(&w);
  for (int i = 0; i < w.count; i++) {
    if (stats_new_session(&w, i))
      fprintf(out, "0x%" PRIx64 "\n", (uint64_t)w.at[i].session);
    if (!stats_repeated(&w, i)) fprintf(out, "\t%s\n", w.at[i].path);
  }
  fputs("\n", out);
  stats_watches_free(&w);
}

/* wchp: sessions by path. */
static void say_wchp(server *s, FILE *out) {
  own_watches w;
  stats_watches(s, &w);
  for (int i = 0; i < w.count; i++) {
    if (stats_new_path(&w, i)) fprintf(out, "%s\n", w.at[i].path);
    if (!stats_repeated(&w, i))
      fprintf(out, "\t0x%" PRIx64 "\n", (uint64_t)w.at[i].session);
  }
  fputs("\n", out);
  stats_watches_free(&w);
}

/* ------------------------------------------------------------------------
 * The words
 *
 * Only a connection that has not been greeted may send one (take_requests() in
 * serve.c).
 * --------------------------------------------------------------------- */

static const struct {
  char word[5];
  void (*say)(server *s, FILE *out);
  bool is_list; /* grows with the clients' activity */
} words_known[] = {{"ruok", say_ruok, false}, {"srvr", say_srvr, false},
                   {"stat", say_stat, true},  {"mntr", say_mntr, false},
                   {"cons", say_cons, true},  {"conf", say_conf, false},
                   {"isro", say_isro, false}, {"envi", say_envi, false},
                   {"dump", say_dump, true},  {"wchs", say_wchs, false},
                   {"wchc", say_wchc, true},  {"wchp", say_wchp, true}};

/* Puts the text into the connection's output. */
static void words_answer(server *s, conn *c, size_t which) {
  zke_jute_writer text = {0};
  FILE *out = open_memstream(&text.data, &text.len);
  if (!out) {
    conn_drop(c);
    return;
  }
  conn_end(c);
  c->received++; /* a word is a packet, as in ZooKeeper */
  s->counts.received++;
  words_known[which].say(s, out);
  if (fclose(out) == 0) zke_jute_append(&c->out, &text);
  free(text.data);
}

/* Read as the length of a frame, each word is far above the limit.  A word
 * stays in the input until its answer has been sent, and is answered once. */
bool letters_take(server *s, conn *c) {
  if (c->ended) return true;
  if (c->in_len - c->in_at < 4) return false;
  for (size_t i = 0; i < sizeof words_known / sizeof *words_known; i++) {
    if (memcmp(c->in + c->in_at, words_known[i].word, 4) != 0) continue;
    if (!words_known[i].is_list || conn_takes_text(c)) words_answer(s, c, i);
    return true;
  }
  return false;
}
