/* stats.c - the protocol server's statistics
 *
 * Several of the four-letter words (words.c) report the same numbers, which are
 * calculated here, under ZooKeeper's names.  A number without a meaning here is
 * left out: a program that asks for it finds nothing, not an invented 0.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "serve.h"

/* ------------------------------------------------------------------------
 * Times
 *
 * For durations only count, sum, least, greatest and the last are kept.
 * --------------------------------------------------------------------- */

/* Counts one duration.  The first is also the least, although the struct starts
 * with zeros. */
void timing_add(timing *t, int64_t ms) {
  if (t->count == 0 || ms < t->min_ms) t->min_ms = ms;
  if (ms > t->max_ms) t->max_ms = ms;
  t->last_ms = ms;
  t->sum_ms += ms;
  t->count++;
}

/* The average; 0, not NaN, if nothing was counted. */
double timing_average(const timing *t) {
  return t->count ? (double)t->sum_ms / (double)t->count : 0;
}

/* ------------------------------------------------------------------------
 * Numbers
 *
 * They are rarely needed, so they are counted on request.  Any program may
 * request them, without a session, and as often as a port can take.  So a count
 * of many rows is reused for a second.
 * --------------------------------------------------------------------- */

/* How long a count of so many rows is reused; 0: not at all. */
static int64_t keep_until(const server *s, int64_t rows) {
  enum { ROWS_MOST = 10000, KEPT_MS = 1000 };
  return rows > ROWS_MOST ? s->now_ms + KEPT_MS : 0;
}

/* How many nodes the file has, with the root; 0 if it cannot be read now. */
int64_t stats_nodes(server *s) {
  kept_counts *k = &s->kept;
  int64_t count = 0;
  if (s->now_ms < k->nodes_until_ms) return k->nodes;
  k->nodes = zke_count(s->z, "/", &count) == ZKE_OK ? count + 1 : 0;
  k->nodes_until_ms = keep_until(s, k->nodes);
  return k->nodes;
}

/* How many complete requests of the connection have not been taken. */
int64_t stats_waiting(conn *c) {
  size_t at = 0, len;
  int64_t count = 0;
  for (; c->session && conn_frame(c, at, &len); at += 4 + len) count++;
  return count;
}

/* The same, of all connections. */
int64_t stats_all_waiting(const server *s) {
  int64_t count = 0;
  for (conn *c = s->conns; c; c = c->next) count += stats_waiting(c);
  return count;
}

/* Java's numbers for reading and writing.  A connection that is about to end is
 * not read any more. */
int stats_interest(const conn *c) {
  return (c->waited & EPOLLIN && !c->ended ? 1 : 0) |
         (c->waited & EPOLLOUT ? 4 : 0);
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

/* ------------------------------------------------------------------------
 * Sessions and watches
 *
 * The file has the watches of all processes that use it.  A server reports only
 * its own clients' watches, so lists are filtered by its sessions' ids.
 * --------------------------------------------------------------------- */

/* For qsort() and bsearch(): a difference of two ids may not fit into an int.
 */
static int order_ids(const void *a, const void *b) {
  int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
  return (one > other) - (one < other);
}

/* The ids of this server's sessions, sorted, for free(); NULL without memory.
 * There are session_count of them. */
static int64_t *sorted_ids(const server *s) {
  int64_t *ids = malloc(((size_t)s->session_count + 1) * sizeof *ids);
  size_t count = 0;
  if (!ids) return NULL;
  for (const client *at = s->sessions; at; at = at->next) ids[count++] = at->id;
  qsort(ids, count, sizeof *ids, order_ids);
  return ids;
}

/* Is it one of the ids that sorted_ids() returned? */
static bool is_ours(const server *s, const int64_t *ids, int64_t id) {
  return bsearch(&id, ids, (size_t)s->session_count, sizeof *ids, order_ids);
}

/* Counts the ephemeral nodes of all sessions, and the watches of this
 * server's. */
static void count_all(server *s) {
  zke_session_list *list;
  kept_counts *k = &s->kept;
  int64_t rows = 0;
  if (s->now_ms < k->sessions_until_ms) return;
  k->ephemerals = k->own_watches = 0;
  int64_t *ids = sorted_ids(s);
  if (ids && zke_sessions(s->z, -1, &list) == ZKE_OK) {
    for (int i = 0; i < list->count; i++) {
      const zke_session_info *at = &list->data[i];
      rows += 1 + at->ephemerals + at->watches;
      k->ephemerals += at->ephemerals;
      if (is_ours(s, ids, at->id)) k->own_watches += at->watches;
    }
    zke_free(list);
  }
  free(ids);
  k->sessions_until_ms = keep_until(s, rows);
}

/* By session, the newest first, and within a session by path. */
static int order_watches(const void *a, const void *b) {
  const zke_watch_info *one = a, *other = b;
  if (one->session != other->session)
    return one->session > other->session ? -1 : 1;
  return strcmp(one->path, other->path);
}

void stats_by_session(own_watches *w) {
  if (w->at) qsort(w->at, (size_t)w->count, sizeof *w->at, order_watches);
}

/* The library lists the watches of all sessions of the file.  Those of sessions
 * without a client of this server belong to other programs, and are left
 * out. */
void stats_watches(server *s, own_watches *w) {
  *w = (own_watches){NULL, NULL, 0};
  int64_t *ids = sorted_ids(s);
  if (ids && zke_watches(s->z, &w->list) == ZKE_OK)
    w->at = calloc((size_t)w->list->count + 1, sizeof *w->at);
  for (int i = 0; w->at && i < w->list->count; i++)
    if (is_ours(s, ids, w->list->data[i].session))
      w->at[w->count++] = w->list->data[i];
  free(ids);
}

void stats_watches_free(own_watches *w) {
  free(w->at);
  zke_free(w->list);
}

bool stats_new_path(const own_watches *w, int i) {
  const char *path = w->at[i].path, *before = i ? w->at[i - 1].path : NULL;
  return !before || !path || strcmp(before, path) != 0;
}

bool stats_new_session(const own_watches *w, int i) {
  return i == 0 || w->at[i - 1].session != w->at[i].session;
}

bool stats_repeated(const own_watches *w, int i) {
  return !stats_new_session(w, i) && !stats_new_path(w, i);
}

/* Counts paths while the list is sorted by path, as the library returns it, and
 * sessions after sorting by those. */
watch_counts stats_count_watches(server *s) {
  own_watches w;
  if (s->now_ms < s->kept.watches_until_ms) return s->kept.watches;
  stats_watches(s, &w);
  watch_counts n = {0, 0, w.count};
  for (int i = 0; i < w.count; i++) n.paths += stats_new_path(&w, i);
  stats_by_session(&w);
  for (int i = 0; i < w.count; i++) n.sessions += stats_new_session(&w, i);
  s->kept.watches = n;
  s->kept.watches_until_ms = keep_until(s, w.list ? w.list->count : 0);
  stats_watches_free(&w);
  return n;
}

/* ------------------------------------------------------------------------
 * The monitor
 *
 * The lines of mntr: a name of ZooKeeper's, a tab and a number.
 * --------------------------------------------------------------------- */

/* Writes the line of a whole number. */
static void put(FILE *out, const char *name, int64_t value) {
  fprintf(out, "zk_%s\t%" PRId64 "\n", name, value);
}

/* Writes one of ZooKeeper's summaries, without its percentiles. */
static void put_timing(FILE *out, const char *name, const timing *t) {
  fprintf(out, "zk_avg_%s\t%.4f\n", name, timing_average(t));
  fprintf(out, "zk_min_%s\t%" PRId64 "\n", name, t->min_ms);
  fprintf(out, "zk_max_%s\t%" PRId64 "\n", name, t->max_ms);
  fprintf(out, "zk_cnt_%s\t%" PRId64 "\n", name, t->count);
  fprintf(out, "zk_sum_%s\t%" PRId64 "\n", name, t->sum_ms);
}

/* Writes the counts of the file, which any program may have changed. */
static void put_tree(server *s, FILE *out) {
  count_all(s);
  put(out, "znode_count", stats_nodes(s));
  put(out, "ephemerals_count", s->kept.ephemerals);
  put(out, "watch_count", s->kept.own_watches);
}

/* Writes the counts of connections and packets. */
static void put_traffic(server *s, FILE *out) {
  const counts *n = &s->counts;
  put(out, "num_alive_connections", s->conn_count);
  put(out, "outstanding_requests", stats_all_waiting(s));
  put(out, "packets_received", n->received);
  put(out, "packets_sent", n->sent);
  put(out, "bytes_received_count", n->bytes_received);
  put(out, "response_bytes", n->bytes_answered);
  put(out, "last_client_response_size", n->answer_last);
  put(out, "min_client_response_size", n->answer_least);
  put(out, "max_client_response_size", n->answer_most);
  put(out, "connection_rejected", n->refused);
  put(out, "connection_request_count", n->accepted);
  put(out, "sessionless_connections_expired", n->silent);
  put(out, "stale_sessions_expired", n->expired);
  put(out, "global_sessions", s->session_count);
}

/* In ZooKeeper's order. */
void stats_monitor(server *s, FILE *out) {
  const timing *all = &s->counts.all;
  struct rlimit limit = {0};
  getrlimit(RLIMIT_NOFILE, &limit);
  fprintf(out, "zk_version\t%s\nzk_server_state\tstandalone\n",
          SERVE_VERSION_FULL);
  fprintf(out, "zk_avg_latency\t%.4f\n", timing_average(all));
  put(out, "max_latency", all->max_ms);
  put(out, "min_latency", all->min_ms);
  put(out, "uptime", clock_wall_ms() - s->began_ms);
  put_tree(s, out);
  put_traffic(s, out);
  put(out, "open_file_descriptor_count", open_descriptors());
  put(out, "max_file_descriptor_count", (int64_t)limit.rlim_cur);
  put_timing(out, "readlatency", &s->counts.reads);
  put_timing(out, "updatelatency", &s->counts.changes);
}
