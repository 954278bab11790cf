/* serve_words.c - the four-letter words of the protocol server
 *
 * A person or a monitor sends four letters instead of a frame, gets a text, and
 * the connection is closed.  The texts have the form of ZooKeeper 3.8, since
 * programs read them; what has no meaning here is left out, not made up.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "serve.h"

/* What old clients parse: kazoo and the monitors take the number behind the
 * colon for ZooKeeper's. */
#define VERSION "3.8.0-zkembed-" ZKE_VERSION

/* ------------------------------------------------------------------------
 * Numbers
 * --------------------------------------------------------------------- */

/* Nodes of the tree, "/" too. */
static int64_t node_count(server *s) {
  int64_t count = 0;
  return zke_count(s->z, "/", &count) == ZKE_OK ? count + 1 : 0;
}

static double average_ms(const server *s) {
  if (!s->counts.requests) return 0;
  return (double)s->counts.latency_sum_ms / (double)s->counts.requests;
}

/* This server's session with that id; NULL where another process has it. */
static const client *client_of(const server *s, int64_t id) {
  for (const client *at = s->sessions; at; at = at->next)
    if (at->id == id) return at;
  return NULL;
}

/* ------------------------------------------------------------------------
 * Texts
 * --------------------------------------------------------------------- */

static void say_ruok(server *s, FILE *out) {
  (void)s;
  fputs("imok", out);
}

static void say_isro(server *s, FILE *out) {
  (void)s;
  fputs("rw", out);
}

/* The lines of srvr, which stat has, too. */
static void say_state(server *s, FILE *out) {
  const counts *n = &s->counts;
  fprintf(out, "Latency min/avg/max: %" PRId64 "/%.4f/%" PRId64 "\n",
          n->latency_min_ms, average_ms(s), n->latency_max_ms);
  fprintf(out, "Received: %" PRId64 "\nSent: %" PRId64 "\n", n->received,
          n->sent);
  fprintf(out, "Connections: %d\nOutstanding: 0\n", s->conn_count);
  fprintf(out, "Zxid: 0x%" PRIx64 "\nMode: standalone\n",
          (uint64_t)server_zxid(s));
  fprintf(out, "Node count: %" PRId64 "\n", node_count(s));
}

static void say_version(FILE *out) {
  fputs("Zookeeper version: " VERSION ", built on zkembed\n", out);
}

static void say_srvr(server *s, FILE *out) {
  say_version(out);
  say_state(s, out);
}

/* What stat and cons say of a connection first. */
static void say_peer(const conn *c, FILE *out) {
  fprintf(out, " /%s:%d[1](queued=0,recved=%" PRId64 ",sent=%" PRId64,
          c->address, c->port, c->received, c->issued);
}

static void say_stat(server *s, FILE *out) {
  say_version(out);
  fputs("Clients:\n", out);
  for (const conn *c = s->conns; c; c = c->next) {
    say_peer(c, out);
    fputs(")\n", out);
  }
  fputs("\n", out);
  say_state(s, out);
}

static void say_cons(server *s, FILE *out) {
  for (const conn *c = s->conns; c; c = c->next) {
    say_peer(c, out);
    if (c->session)
      fprintf(out,
              ",sid=0x%" PRIx64 ",lop=%s,est=%" PRId64 ",to=%" PRId64
              ",lcxid=0x%x,lzxid=0x%" PRIx64,
              (uint64_t)c->session->id, c->last_name ? c->last_name : "NA",
              s->began_ms + c->since_ms, c->session->timeout_ms,
              (unsigned)c->last_xid, (uint64_t)c->last_zxid);
    fputs(")\n", out);
  }
  fputs("\n", out);
}

static void say_conf(server *s, FILE *out) {
  fprintf(out, "clientPort=%d\nsecureClientPort=-1\ndataDir=%s\n", s->port,
          s->c->sh->file);
  fprintf(out, "tickTime=%" PRId64 "\nmaxClientCnxns=%d\n", s->tick_ms,
          s->address_most);
  fprintf(out, "minSessionTimeout=%" PRId64 "\nmaxSessionTimeout=%" PRId64 "\n",
          s->timeout_min_ms, s->timeout_max_ms);
  fputs("clientPortListenBacklog=-1\nserverId=0\n", out);
}

static void say_envi(server *s, FILE *out) {
  struct utsname host = {0};
  (void)s;
  uname(&host);
  fputs("Environment:\nzookeeper.version=" VERSION "\n", out);
  fprintf(out, "host.name=%s\nos.name=%s\nos.arch=%s\nos.version=%s\n",
          host.nodename, host.sysname, host.machine, host.release);
}

/* How many descriptors the process has open. */
static int open_descriptors(void) {
  int count = 0;
  DIR *d = opendir("/proc/self/fd");
  if (!d) return 0;
  while (readdir(d)) count++;
  closedir(d);
  return count - 3; /* ".", ".." and d itself */
}

/* Ephemeral nodes of all sessions, and watches of those of this server. */
static void count_all(server *s, int64_t *ephemerals, int64_t *watches) {
  zke_session_list *list;
  *ephemerals = *watches = 0;
  if (zke_sessions(s->z, &list) != ZKE_OK) return;
  for (int i = 0; i < list->count; i++) {
    *ephemerals += list->data[i].ephemerals;
    if (client_of(s, list->data[i].id)) *watches += list->data[i].watches;
  }
  zke_free(list);
}

static void say_number(FILE *out, const char *name, int64_t value) {
  fprintf(out, "zk_%s\t%" PRId64 "\n", name, value);
}

static void say_mntr(server *s, FILE *out) {
  const counts *n = &s->counts;
  struct rlimit limit = {0};
  int64_t ephemerals, watches;
  count_all(s, &ephemerals, &watches);
  getrlimit(RLIMIT_NOFILE, &limit);
  fputs("zk_version\t" VERSION ", built on zkembed\n", out);
  fputs("zk_server_state\tstandalone\n", out);
  fprintf(out, "zk_avg_latency\t%.4f\n", average_ms(s));
  say_number(out, "max_latency", n->latency_max_ms);
  say_number(out, "min_latency", n->latency_min_ms);
  say_number(out, "packets_received", n->received);
  say_number(out, "packets_sent", n->sent);
  say_number(out, "num_alive_connections", s->conn_count);
  say_number(out, "outstanding_requests", 0);
  say_number(out, "connection_rejected", n->refused);
  say_number(out, "connection_request_count", n->accepted);
  say_number(out, "stale_sessions_expired", n->expired);
  say_number(out, "global_sessions", s->session_count);
  say_number(out, "uptime", wall_now() - s->began_ms);
  say_number(out, "znode_count", node_count(s));
  say_number(out, "watch_count", watches);
  say_number(out, "ephemerals_count", ephemerals);
  say_number(out, "open_file_descriptor_count", open_descriptors());
  say_number(out, "max_file_descriptor_count", (int64_t)limit.rlim_cur);
}

static void say_dump(server *s, FILE *out) {
  fprintf(out, "SessionTracker dump:\nSession Sets (%d)/(%d):\n",
          s->session_count, s->session_count);
  for (const client *at = s->sessions; at; at = at->next)
    fprintf(out, "1 expire in %" PRId64 " ms:\n\t0x%" PRIx64 "\n",
            at->expires_ms - s->now_ms, (uint64_t)at->id);
  fputs("ephemeral nodes dump:\n", out);
  for (const client *at = s->sessions; at; at = at->next) {
    zke_strings *paths;
    if (zke_ephemerals(s->z, at->id, NULL, &paths) != ZKE_OK) continue;
    if (paths->count) fprintf(out, "0x%" PRIx64 ":\n", (uint64_t)at->id);
    for (int i = 0; i < paths->count; i++)
      fprintf(out, "\t%s\n", paths->data[i]);
    zke_free(paths);
  }
}

/* ------------------------------------------------------------------------
 * Watches
 * --------------------------------------------------------------------- */

/* A watch that a client of this server has. */
static bool is_ours(const server *s, const zke_watch_info *w) {
  return client_of(s, w->session) != NULL;
}

static void say_wchs(server *s, FILE *out) {
  zke_watch_list *list;
  int watches = 0, paths = 0, sessions = 0;
  const char *before = NULL;
  if (zke_watches(s->z, &list) != ZKE_OK) return;
  for (int i = 0; i < list->count; i++) {
    const zke_watch_info *w = &list->data[i];
    if (!is_ours(s, w)) continue;
    watches++;
    paths += !before || strcmp(before, w->path) != 0;
    before = w->path;
  }
  for (const client *at = s->sessions; at; at = at->next) {
    int i = 0;
    while (i < list->count && list->data[i].session != at->id) i++;
    sessions += i < list->count;
  }
  fprintf(out, "%d connections watching %d paths\nTotal watches:%d\n", sessions,
          paths, watches);
  zke_free(list);
}

/* By session; the list is by path. */
static void say_wchc(server *s, FILE *out) {
  zke_watch_list *list;
  if (zke_watches(s->z, &list) != ZKE_OK) return;
  for (const client *at = s->sessions; at; at = at->next) {
    bool told = false;
    for (int i = 0; i < list->count; i++) {
      if (list->data[i].session != at->id) continue;
      if (!told) fprintf(out, "0x%" PRIx64 "\n", (uint64_t)at->id);
      told = true;
      fprintf(out, "\t%s\n", list->data[i].path);
    }
  }
  fputs("\n", out);
  zke_free(list);
}

static void say_wchp(server *s, FILE *out) {
  zke_watch_list *list;
  const char *before = NULL;
  if (zke_watches(s->z, &list) != ZKE_OK) return;
  for (int i = 0; i < list->count; i++) {
    const zke_watch_info *w = &list->data[i];
    if (!is_ours(s, w)) continue;
    if (!before || strcmp(before, w->path) != 0) fprintf(out, "%s\n", w->path);
    before = w->path;
    fprintf(out, "\t0x%" PRIx64 "\n", (uint64_t)w->session);
  }
  fputs("\n", out);
  zke_free(list);
}

/* ------------------------------------------------------------------------
 * The words
 * --------------------------------------------------------------------- */

static const struct {
  char word[5];
  void (*say)(server *s, FILE *out);
} words_known[] = {{"ruok", say_ruok}, {"srvr", say_srvr}, {"stat", say_stat},
                   {"mntr", say_mntr}, {"cons", say_cons}, {"conf", say_conf},
                   {"isro", say_isro}, {"envi", say_envi}, {"dump", say_dump},
                   {"wchs", say_wchs}, {"wchc", say_wchc}, {"wchp", say_wchp}};

/* Puts the text into the connection's output. */
static void words_answer(server *s, conn *c, size_t which) {
  zke_jute_writer text = {0};
  FILE *out = open_memstream(&text.data, &text.len);
  if (!out) {
    conn_drop(c);
    return;
  }
  words_known[which].say(s, out);
  if (fclose(out) == 0) zke_jute_append(&c->out, &text);
  free(text.data);
  conn_end(c);
}

/* As the length of a frame each of them is far above the limit. */
bool words_take(server *s, conn *c) {
  if (c->in_len - c->in_at < 4) return false;
  for (size_t i = 0; i < sizeof words_known / sizeof *words_known; i++) {
    if (memcmp(c->in + c->in_at, words_known[i].word, 4) != 0) continue;
    words_answer(s, c, i);
    return true;
  }
  return false;
}
