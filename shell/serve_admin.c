/* serve_admin.c - what the protocol server tells of itself, as JSON by HTTP
 *
 * ZooKeeper answers GET /commands/NAME on a port of its own.  Here the port of
 * the clients does (serve_http.c).  The commands have ZooKeeper's names and
 * members.  What has no meaning here is left out, not made up; no command
 * changes anything.  A page on the web that somebody looks at on this host gets
 * none of it: neither paths nor the ids of sessions are for its author.
 *
 * Begin with admin_page().
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "serve.h"

/* ------------------------------------------------------------------------
 * The commands
 *
 * Each page is a function that builds one JSON object; answer_json() adds what
 * all pages have. Their members' names, types and units are ZooKeeper's, as
 * monitors read them. Where memory runs out a page lacks something or is NULL.
 * jansson's functions take NULL, and without a text the connection ends.
 * --------------------------------------------------------------------- */

/* A number, for an "o" of json_pack(): its own letter "I" wants a json_int_t,
 * which may be another type than int64_t. */
static json_t *number(int64_t value) { return json_integer(value); }

/* A session's id or a time, which is a member's name. */
static void put_list(json_t *to, int64_t id, json_t *list) {
  char name[32];
  snprintf(name, sizeof name, "%" PRId64, id);
  json_object_set_new(to, name, list);
}

/* /commands/configuration: what the server was started with.  The log lies
 * beside the database. */
static json_t *page_configuration(server *s) {
  const char *file = s->c->sh->file;
  return json_pack("{s:i, s:o, s:o, s:I, s:i, s:I, s:I, s:i, s:i}",
                   "client_port", s->port, "data_dir", json_text(file),
                   "data_log_dir", json_text(file), "tick_time",
                   (json_int_t)s->tick_ms, "max_client_cnxns", s->address_most,
                   "min_session_timeout", (json_int_t)s->timeout_min_ms,
                   "max_session_timeout", (json_int_t)s->timeout_max_ms,
                   "server_id", 0, "client_port_listen_backlog", -1);
}

/* What /stats says of a connection, and /connections first. */
static json_t *connection(conn *c) {
  char address[CONN_ADDRESS + 16];
  snprintf(address, sizeof address, "%s:%d", c->address, c->port);
  return json_pack("{s:s, s:i, s:o, s:o, s:o}", "remote_socket_address",
                   address, "interest_ops", stats_interest(c),
                   "outstanding_requests", number(stats_waiting(c)),
                   "packets_received", number(c->received), "packets_sent",
                   number(c->issued));
}

/* What /connections says besides of one with a session. */
static void put_session(json_t *to, const server *s, const conn *c) {
  const timing *t = &c->took;
  json_t *more = json_pack(
      "{s:o, s:s, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "session_id",
      number(c->session->id), "last_operation",
      c->last_name ? c->last_name : "NA", "established",
      number(s->began_ms + c->since_ms), "session_timeout",
      number(c->session->timeout_ms), "last_cxid", c->last_xid, "last_zxid",
      number(c->last_zxid), "last_response_time", number(c->answered_ms),
      "last_latency", number(t->last_ms), "min_latency", number(t->min_ms),
      "avg_latency", number((int64_t)timing_average(t)), "max_latency",
      number(t->max_ms));
  json_object_update(to, more);
  json_decref(more);
}

/* All connections in the order of the server's list, the latest first; with
 * what their sessions have done, or without, as /stats shows them. */
static json_t *connections(server *s, bool with_sessions) {
  json_t *list = json_array();
  for (conn *c = s->conns; c; c = c->next) {
    json_t *one = connection(c);
    if (with_sessions && c->session) put_session(one, s, c);
    json_array_append_new(list, one);
  }
  return list;
}

/* /commands/connections.  Without TLS there are no secure ones. */
static json_t *page_connections(server *s) {
  return json_pack("{s:o, s:[]}", "connections", connections(s, true),
                   "secure_connections");
}

/* Sessions by the time of the server's clock at which they end. They are times
 * of the server's clock, and not of day, as in ZooKeeper. */
static json_t *expiries(const server *s) {
  json_t *all = json_object();
  for (const client *at = s->sessions; at; at = at->next) {
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, at->expires_ms);
    json_t *list = json_object_get(all, name);
    if (!list) json_object_set_new(all, name, list = json_array());
    json_array_append_new(list, number(at->id));
  }
  return all;
}

/* /commands/dump: when sessions end, and which ephemeral nodes they have.  A
 * session whose nodes cannot be read now is left out. */
static json_t *page_dump(server *s) {
  json_t *all = json_object();
  for (const client *at = s->sessions; at; at = at->next) {
    zke_strings *paths;
    if (zke_ephemerals(s->z, at->id, NULL, &paths) != ZKE_OK) continue;
    json_t *list = json_array();
    for (int i = 0; i < paths->count; i++)
      json_array_append_new(list, json_text(paths->data[i]));
    if (paths->count)
      put_list(all, at->id, list);
    else
      json_decref(list);
    zke_free(paths);
  }
  return json_pack("{s:o, s:o}", "expiry_time_to_session_ids", expiries(s),
                   "session_id_to_ephemeral_paths", all);
}

/* /commands/environment: ZooKeeper's members, but those about Java. */
static json_t *page_environment(server *s) {
  struct utsname host = {0};
  (void)s;
  uname(&host);
  return json_pack("{s:s, s:s, s:s, s:s, s:s}", "zookeeper.version",
                   SERVE_VERSION_FULL, "host.name", host.nodename, "os.name",
                   host.sysname, "os.arch", host.machine, "os.version",
                   host.release);
}

/* /commands/is_read_only: never, as the server opens the file for writing. */
static json_t *page_is_read_only(server *s) {
  (void)s;
  return json_pack("{s:b}", "read_only", 0);
}

/* /commands/ruok: an object without members of its own. That there is an answer
 * is the answer. */
static json_t *page_ruok(server *s) {
  (void)s;
  return json_object();
}

/* The sizes of answers, which two members of a page have.  It is built twice,
 * since json_pack() takes each value over. */
static json_t *answer_sizes(const server *s) {
  const counts *n = &s->counts;
  return json_pack("{s:o, s:o, s:o}", "last_buffer_size",
                   number(n->answer_last), "min_buffer_size",
                   number(n->answer_least), "max_buffer_size",
                   number(n->answer_most));
}

/* /commands/server_stats: the numbers of srvr, under ZooKeeper's names. */
static json_t *page_server_stats(server *s) {
  const counts *n = &s->counts;
  json_t *stats = json_pack(
      "{s:o, s:o, s:o, s:s, s:o, s:o, s:f, s:o, s:o, s:i, s:o}", "packets_sent",
      number(n->sent), "packets_received", number(n->received),
      "client_response_stats", answer_sizes(s), "server_state", "standalone",
      "last_processed_zxid", number(server_zxid(s)), "outstanding_requests",
      number(stats_all_waiting(s)), "avg_latency", timing_average(&n->all),
      "max_latency", number(n->all.max_ms), "min_latency",
      number(n->all.min_ms), "num_alive_client_connections", s->conn_count,
      "uptime", number(wall_now() - s->began_ms));
  return json_pack("{s:s, s:b, s:o, s:o, s:o}", "version", SERVE_VERSION_FULL,
                   "read_only", 0, "server_stats", stats, "client_response",
                   answer_sizes(s), "node_count", number(stats_nodes(s)));
}

/* /commands/stats: the same, and the connections. */
static json_t *page_stats(server *s) {
  json_t *all = page_server_stats(s);
  json_object_set_new(all, "connections", connections(s, false));
  json_object_set_new(all, "secure_connections", json_array());
  return all;
}

/* /commands/watch_summary: how many watches there are, of how many sessions
 * and nodes. */
static json_t *page_watch_summary(server *s) {
  watch_counts n = stats_count_watches(s);
  return json_pack("{s:i, s:i, s:i}", "num_connections", n.sessions,
                   "num_paths", n.paths, "num_total_watches", n.watches);
}

/* Appends to the member's list, which may be a new one, what it does not end
 * in: a node may have several watches of a session, one behind the other.  The
 * name is UTF-8: JSON has no other members. */
static void append(json_t *to, const char *name, json_t *value) {
  json_t *list = json_object_get(to, name);
  if (!list) {
    json_object_set_new(to, name, json_array());
    list = json_object_get(to, name); /* NULL without memory */
  }
  size_t size = json_array_size(list);
  if (size && json_equal(json_array_get(list, size - 1), value))
    json_decref(value);
  else
    json_array_append_new(list, value);
}

/* Appends to the list of a path.  That of a watch may be no UTF-8, although
 * that of a node is: what is wrong in it stands as \xHH. */
static void append_by_path(json_t *to, const char *path, json_t *value) {
  char *name = NULL;
  size_t len;
  FILE *out = open_memstream(&name, &len);
  if (out) output_sentence(path, out);
  if (out && fclose(out) == 0)
    append(to, name, value);
  else
    json_decref(value);
  free(name);
}

/* Watches of this server's clients, by path or by session. */
static json_t *watches(server *s, bool by_path) {
  json_t *all = json_object();
  own_watches w;
  stats_watches(s, &w);
  for (int i = 0; i < w.count; i++) {
    char id[32];
    snprintf(id, sizeof id, "%" PRId64, w.at[i].session);
    if (by_path)
      append_by_path(all, w.at[i].path, number(w.at[i].session));
    else
      append(all, id, json_text(w.at[i].path));
  }
  stats_watches_free(&w);
  return all;
}

/* /commands/watches: the watches of each session. */
static json_t *page_watches(server *s) {
  return json_pack("{s:o}", "session_id_to_watched_paths", watches(s, false));
}

/* /commands/watches_by_path: the sessions that watch each node. */
static json_t *page_watches_by_path(server *s) {
  return json_pack("{s:o}", "path_to_session_ids", watches(s, true));
}

/* A command by its names, the first of which it tells. */
static const struct {
  const char *names[3];
  json_t *(*page)(server *s);
  bool is_list; /* grows with what clients do */
} pages[] = {{{"configuration", "conf", "config"}, page_configuration, false},
             {{"connections", "cons", NULL}, page_connections, true},
             {{"dump", NULL, NULL}, page_dump, true},
             {{"environment", "env", "envi"}, page_environment, false},
             {{"is_read_only", "isro", NULL}, page_is_read_only, false},
             {{"monitor", "mntr", NULL}, stats_monitor, false},
             {{"ruok", NULL, NULL}, page_ruok, false},
             {{"server_stats", "srvr", NULL}, page_server_stats, false},
             {{"stats", "stat", NULL}, page_stats, true},
             {{"watch_summary", "wchs", NULL}, page_watch_summary, false},
             {{"watches", "wchc", NULL}, page_watches, true},
             {{"watches_by_path", "wchp", NULL}, page_watches_by_path, true}};
enum { PAGES = sizeof pages / sizeof *pages };

/* The place of a command in the table; PAGES: it is not there. */
static int find_page(const char *name) {
  for (int i = 0; i < PAGES; i++)
    for (int k = 0; k < 3 && pages[i].names[k]; k++)
      if (strcmp(pages[i].names[k], name) == 0) return i;
  return PAGES;
}

/* ------------------------------------------------------------------------
 * Answers
 *
 * An unknown command is 404 with a JSON body; a command always has 200, also
 * where the file cannot be read now: then its numbers are 0 or its lists empty.
 * --------------------------------------------------------------------- */

/* Has a page in a browser asked?  Then it was refused. */
static bool is_refused(const server *s, conn *c, const http_request *r) {
  if (c->is_unix || !http_is_from_page(r, s->is_for_others)) return false;
  http_refuse(c, 403,
              "this is not for pages in a browser: Host wants an address, or "
              "localhost, and there may be no Origin");
  return true;
}

/* What a person sees in a browser, as ZooKeeper has it. */
void admin_index(server *s, conn *c, const http_request *r) {
  char *body = NULL;
  size_t len;
  if (is_refused(s, c, r)) return;
  FILE *out = open_memstream(&body, &len);
  for (int i = 0; out && i < PAGES; i++)
    fprintf(out, "<a href=\"/commands/%s\">%s</a>\n<br/>\n", pages[i].names[0],
            pages[i].names[0]);
  if (out && fclose(out) == 0)
    http_answer(c, 200, "text/html", body);
  else
    conn_drop(c);
  free(body);
}

/* ZooKeeper's two members stand behind those of every page. */
static void answer_json(conn *c, int status, json_t *page, const char *name,
                        json_t *error) {
  json_object_set_new(page, "command", json_text(name));
  json_object_set_new(page, "error", error);
  char *body = json_dumps(page, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  json_decref(page);
  if (body)
    http_answer(c, status, "application/json", body);
  else
    conn_drop(c);
  free(body);
}

/* Answers GET /commands/NAME; without a name, the list of them.  An unknown
 * name is answered in JSON as well, since it is a program that reads it. */
void admin_page(server *s, conn *c, const http_request *r) {
  const char *name = r->path + strlen("/commands/");
  char *sentence = NULL;
  int page = find_page(name);
  if (is_refused(s, c, r)) return;
  if (page < PAGES && pages[page].is_list && !conn_takes_text(c)) return;
  if (!*name)
    admin_index(s, c, r);
  else if (page < PAGES)
    answer_json(c, 200, pages[page].page(s), pages[page].names[0], json_null());
  else if (asprintf(&sentence, "Unknown command: %s", name) >= 0)
    answer_json(c, 404, json_object(), name, json_text(sentence));
  else
    conn_drop(c);
  free(sentence);
}
