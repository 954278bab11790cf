/* serve_stats.c - what the protocol server knows of itself, for people
 *
 * Four-letter words (serve_words.c) and pages of JSON (serve_admin.c) tell the
 * same.  What both have is calculated here, once, under ZooKeeper's names.  A
 * number that would have no meaning here has no name here: a program that asks
 * for it finds nothing, and no made-up 0.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "serve.h"

/* ------------------------------------------------------------------------
 * Times
 *
 * Of durations only count, sum, least, greatest and the last are kept.
 * --------------------------------------------------------------------- */

/* Counts one duration.  The first is the least, whatever the struct's zeros
 * say. */
void timing_add(timing *t, int64_t ms) {
  if (t->count == 0 || ms < t->min_ms) t->min_ms = ms;
  if (ms > t->max_ms) t->max_ms = ms;
  t->last_ms = ms;
  t->sum_ms += ms;
  t->count++;
}

/* The average; 0 before anything was counted, and no NaN, which JSON cannot
 * have. */
double timing_average(const timing *t) {
  return t->count ? (double)t->sum_ms / (double)t->count : 0;
}

/* ------------------------------------------------------------------------
 * Numbers
 *
 * They are asked for seldom, so they are counted when somebody asks.  Anybody
 * may, without a session, and as often as a port can take.  So what took many
 * rows to count is told again for a second.
 * --------------------------------------------------------------------- */

/* Until when a number is told again that took so many rows; 0: not at all. */
static int64_t keep_until(const server *s, int64_t rows) {
  enum { ROWS_MOST = 10000, KEPT_MS = 1000 };
  return rows > ROWS_MOST ? s->now_ms + KEPT_MS : 0;
}

/* How many nodes the file has, the root included; 0 when it cannot be read
 * now. */
int64_t stats_nodes(server *s) {
  kept_counts *k = &s->kept;
  int64_t count = 0;
  if (s->now_ms < k->nodes_until_ms) return k->nodes;
  k->nodes = zke_count(s->z, "/", &count) == ZKE_OK ? count + 1 : 0;
  k->nodes_until_ms = keep_until(s, k->nodes);
  return k->nodes;
}

/* How many requests of the connection have come whole and were not taken. */
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

/* Java's numbers for reading and writing.  One that is about to end is not
 * read any more. */
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
 * The file has the watches of all processes that use it. What a server tells
 * are those of its own clients, so lists are filtered by its sessions' ids.
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

/* Is it among what sorted_ids() has returned? */
static bool is_ours(const server *s, const int64_t *ids, int64_t id) {
  return bsearch(&id, ids, (size_t)s->session_count, sizeof *ids, order_ids);
}

/* Ephemeral nodes of all sessions, and watches of those of this server. */
static void count_all(server *s) {
  zke_session_list *list;
  kept_counts *k = &s->kept;
  int64_t rows = 0;
  if (s->now_ms < k->sessions_until_ms) return;
  k->ephemerals = k->own_watches = 0;
  int64_t *ids = sorted_ids(s);
  if (ids && zke_sessions(s->z, &list) == ZKE_OK) {
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

/* By session, the newest first, and those of one session by path. */
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
 * that no client of this server has are other programs', and left out. */
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

/* Counts paths while the list is sorted by path, as the library gives it, and
 * sessions after it was sorted by those. */
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
 * One object of JSON with all numbers, from which both mntr and the page of
 * the same name are printed.
 * --------------------------------------------------------------------- */

/* Adds a number to the monitor's object. */
static void put(json_t *to, const char *name, int64_t value) {
  json_object_set_new(to, name, json_integer(value));
}

/* One of ZooKeeper's summaries, without its percentiles. */
static void put_timing(json_t *to, const char *name, const timing *t) {
  json_t *j =
      json_pack("{s:f, s:I, s:I, s:I, s:I}", "avg", timing_average(t), "min",
                (json_int_t)t->min_ms, "max", (json_int_t)t->max_ms, "cnt",
                (json_int_t)t->count, "sum", (json_int_t)t->sum_ms);
  const char *kind;
  json_t *value;
  json_object_foreach(j, kind, value) {
    char full[64];
    snprintf(full, sizeof full, "%s_%s", kind, name);
    json_object_set(to, full, value);
  }
  json_decref(j);
}

/* What is counted in the file, by all that use it. */
static void put_tree(server *s, json_t *to) {
  count_all(s);
  put(to, "znode_count", stats_nodes(s));
  put(to, "ephemerals_count", s->kept.ephemerals);
  put(to, "watch_count", s->kept.own_watches);
}

/* What is counted of connections and packets. */
static void put_traffic(server *s, json_t *to) {
  const counts *n = &s->counts;
  put(to, "num_alive_connections", s->conn_count);
  put(to, "outstanding_requests", stats_all_waiting(s));
  put(to, "packets_received", n->received);
  put(to, "packets_sent", n->sent);
  put(to, "bytes_received_count", n->bytes_received);
  put(to, "response_bytes", n->bytes_answered);
  put(to, "last_client_response_size", n->answer_last);
  put(to, "min_client_response_size", n->answer_least);
  put(to, "max_client_response_size", n->answer_most);
  put(to, "connection_rejected", n->refused);
  put(to, "connection_request_count", n->accepted);
  put(to, "sessionless_connections_expired", n->silent);
  put(to, "stale_sessions_expired", n->expired);
  put(to, "global_sessions", s->session_count);
}

/* What mntr and /commands/monitor tell, under ZooKeeper's names.  For
 * json_decref(). */
json_t *stats_monitor(server *s) {
  const timing *all = &s->counts.all;
  struct rlimit limit = {0};
  getrlimit(RLIMIT_NOFILE, &limit);
  json_t *to = json_object();
  json_object_set_new(to, "version", json_string(SERVE_VERSION_FULL));
  json_object_set_new(to, "server_state", json_string("standalone"));
  json_object_set_new(to, "avg_latency", json_real(timing_average(all)));
  put(to, "max_latency", all->max_ms);
  put(to, "min_latency", all->min_ms);
  put(to, "uptime", wall_now() - s->began_ms);
  put_tree(s, to);
  put_traffic(s, to);
  put(to, "open_file_descriptor_count", open_descriptors());
  put(to, "max_file_descriptor_count", (int64_t)limit.rlim_cur);
  put_timing(to, "readlatency", &s->counts.reads);
  put_timing(to, "updatelatency", &s->counts.changes);
  return to;
}
