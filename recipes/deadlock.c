/* deadlock.c - who waits for whom, and whether for ever
 *
 * A wait is an entry that says "waiting"; an actor is the thread that waits, or
 * that holds what another waits for.  From one's own wait the graph is built by
 * reading the lines and the sessions of whoever stands before it; whoever can
 * go on is crossed out; what is left is a deadlock if one snapshot confirms it.
 *
 * Promises: of each circle the youngest wait fails, and no other; nobody fails
 * whose wait would have ended.  The znodes are all there is: no process asks
 * another one, and none has to be running.
 *
 * From the bottom: actors; the graph and how it grows; crossing out; the
 * circle's snapshot; the list for those who look from outside.  Begin with
 * zke_line_detect(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getentropy */
#endif

#include "deadlock.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "entry.h"
#include "text.h"
#include "znode.h"

/* This thread, as others can tell it from theirs. */
static _Thread_local struct {
  pid_t pid;
  uint64_t id;
  uint64_t role; /* the actor that it acts as; 0: itself */
} actor_self;

/* After a fork it is another thread, and nobody's substitute. */
static void actor_draw_self(pid_t pid) {
  actor_self.pid = pid;
  actor_self.id = actor_self.role = 0;
  while (getentropy(&actor_self.id, sizeof actor_self.id) == 0 &&
         !actor_self.id)
    continue;
  if (actor_self.id) return;
  /* without random numbers: addresses differ from process to process */
  actor_self.id = (uint64_t)(uintptr_t)&actor_self ^ (uint64_t)pid << 48;
}

/* Drawn at random at the thread's first call, so no two threads of two
 * processes have the same one. */
uint64_t zke_line_actor(void) {
  pid_t pid = getpid();
  if (actor_self.pid != pid) actor_draw_self(pid);
  return actor_self.role ? actor_self.role : actor_self.id;
}

/* The role is the thread's own; in a forked child nobody has given it one. */
uint64_t zke_line_act_as(uint64_t actor) {
  zke_line_actor(); /* so that no forked copy's role is given back */
  uint64_t was = actor_self.role;
  actor_self.role = actor;
  return was;
}

/* ---- deadlocks ----
 *
 * An actor that waits in a blocking call is stuck while the entries that keep
 * it out belong to actors that are stuck.  From one's own wait the search
 * follows the keepers' actors to what these wait for, and so on; then it
 * crosses out who can still go on, until nobody else can.  What is left and
 * lies on a way from oneself back to oneself is a deadlock; the youngest wait
 * of it gives up.  An actor that waits in several places at once, for a
 * multi-lock, is stuck when it is in one of them.  The last to begin its wait
 * sees all the others, so one look at that moment suffices.
 *
 * For whoever looks from outside the same graph has everybody's waits, and
 * those of entries that wait without a blocking call: these are never stuck. */

typedef struct graph_wait {
  char *directory, *name;
  uint64_t actor;
  int64_t since, session; /* since: the zxid of beginning to wait */
  int64_t since_ms;       /* of its znode */
  int room;   /* entries of others that may stay: stuck with this many */
  bool kept;  /* its place keeps it out */
  bool loose; /* not in a blocking call */
  bool stuck, from_me, to_me;
  int next;    /* on the way to me */
  bool doomed; /* stuck, when the circles are looked for among these */
  int circle;  /* which, from 1 on; 0: none */
} graph_wait;

/* waits[from] is kept out by `weight` entries of an actor, who may wait too,
 * in one place or in several; 0: one that can go on. */
typedef struct graph_edge {
  int from, weight;
  uint64_t actor; /* 0: the data does not tell; can go on */
  char *path;     /* of the keeper's znode */
  int64_t session;
} graph_edge;

typedef struct graph {
  zke *z;
  uint64_t me;
  bool all; /* everybody's waits */
  graph_wait *waits;
  graph_edge *edges;
  int wait_count, wait_cap, edge_count, edge_cap;
  /* Sessions are read once, whole: one may have hundreds of actors, each at
   * the end of another's wait.  What is moved to waits has no name here. */
  graph_wait *known;
  int64_t *sessions;
  int known_count, known_cap, session_count, session_cap;
  /* the line that was looked at last; NULL: none */
  const char *directory;
  zke_entries *entries;
  int limit;
} graph;

/* Room for one more in a growing array of the graph. */
static bool graph_room(zke *z, void **array, int count, int *cap, size_t size) {
  if (count < *cap) return true;
  int more = *cap ? *cap * 2 : 16;
  char *grown = zke_alloc(z, (size_t)more * size);
  if (!grown) return false;
  if (count) memcpy(grown, *array, (size_t)count * size);
  zke_free(*array);
  *array = grown;
  *cap = more;
  return true;
}

/* What was moved from one array to the other is NULL in the first. */
static void graph_free_waits(graph_wait *waits, int count) {
  for (int i = 0; i < count; i++) {
    zke_free(waits[i].directory);
    zke_free(waits[i].name);
  }
  zke_free(waits);
}

/* `directory` is one of the waits' own strings. */
static void graph_free(graph *g) {
  graph_free_waits(g->waits, g->wait_count);
  graph_free_waits(g->known, g->known_count);
  for (int i = 0; i < g->edge_count; i++) zke_free(g->edges[i].path);
  zke_free(g->sessions);
  zke_free(g->edges);
  zke_free(g->entries);
}

/* On failure the edge's path remains the caller's. */
static int graph_add_edge(graph *g, graph_edge edge) {
  void *array = g->edges;
  if (!graph_room(g->z, &array, g->edge_count, &g->edge_cap, sizeof *g->edges))
    return ZKE_NOMEM;
  g->edges = array;
  g->edges[g->edge_count++] = edge;
  return ZKE_OK;
}

/* Note an entry by which somebody waits, or might.  An entry whose data names
 * no actor cannot be in a circle: it is loose. */
static int graph_add_known(graph *g, const char *path,
                           const zke_entry_words *is, const zke_stat *stat) {
  void *array = g->known;
  if (!graph_room(g->z, &array, g->known_count, &g->known_cap,
                  sizeof *g->known))
    return ZKE_NOMEM;
  g->known = array;
  graph_wait *w = &g->known[g->known_count];
  *w = (graph_wait){.actor = is->actor,
                    .since = stat->mzxid,
                    .session = stat->ephemeralOwner,
                    .since_ms = stat->ctime,
                    .loose = !is->waiting || !is->actor,
                    .room = 1,
                    .next = -1};
  const char *name = zke_recipe_name(path);
  w->directory = zke_recipe_copy(g->z, path, (size_t)(name - path) - 1);
  w->name = zke_recipe_copy(g->z, name, strlen(name));
  g->known_count++;
  return w->directory && w->name ? ZKE_OK : ZKE_NOMEM;
}

/* Moves it. */
static int graph_add_wait(graph *g, graph_wait *known) {
  void *array = g->waits;
  if (!graph_room(g->z, &array, g->wait_count, &g->wait_cap, sizeof *g->waits))
    return ZKE_NOMEM;
  g->waits = array;
  g->waits[g->wait_count++] = *known;
  known->directory = known->name = NULL;
  return ZKE_OK;
}

/* news: out, it was not there. */
static int graph_add_session(graph *g, int64_t session, bool *news) {
  void *array = g->sessions;
  *news = false;
  for (int i = 0; i < g->session_count; i++)
    if (g->sessions[i] == session) return ZKE_OK;
  if (!graph_room(g->z, &array, g->session_count, &g->session_cap,
                  sizeof *g->sessions))
    return ZKE_NOMEM;
  g->sessions = array;
  g->sessions[g->session_count++] = session;
  *news = true;
  return ZKE_OK;
}

/* Whatever has such a name in "/" is in no line. */
static bool graph_is_entry(const char *path) {
  zke_entry e;
  const char *name = zke_recipe_name(path);
  return name > path + 1 &&
         zke_recipe_parse(name, zke_entry_kinds, ZKE_LINE_KINDS, &e);
}

/* Are this actor's waits among those that are looked at already? */
static bool graph_has_wait(const graph *g, uint64_t actor) {
  for (int i = 0; i < g->wait_count; i++) {
    if (g->waits[i].actor == actor) return true;
  }
  return false;
}

/* An entry of a session, if somebody waits by it.  What one got at once looks
 * as if; but nobody keeps it out. */
static int graph_read_entry(graph *g, const char *path) {
  char *data = NULL;
  int len;
  zke_stat stat;
  if (!graph_is_entry(path)) return ZKE_OK;
  int rc = zke_get(g->z, path, NULL, NULL, &data, &len, &stat);
  zke_entry_words w = zke_entry_read(rc == ZKE_OK ? data : NULL, len);
  if (rc == ZKE_OK && (g->all ? !w.held : w.waiting))
    rc = graph_add_known(g, path, &w, &stat);
  zke_free(data);
  return rc == ZKE_NONODE || rc == ZKE_NOAUTH ? ZKE_OK : rc;
}

/* Read each session once, with all its entries: an actor may wait in several
 * places, and others of its session come up soon. */
static int graph_read_session(graph *g, int64_t session) {
  zke_strings *paths = NULL;
  bool news;
  int rc = graph_add_session(g, session, &news);
  if (rc != ZKE_OK || !news) return rc;
  rc = zke_ephemerals(g->z, session, NULL, &paths);
  for (int i = 0; rc == ZKE_OK && i < paths->count; i++)
    rc = graph_read_entry(g, paths->data[i]);
  zke_free(paths);
  return rc;
}

/* Add all the places where an actor of a session waits, or anybody of it where
 * all are wanted. */
static int graph_find_waits(graph *g, int64_t session, uint64_t actor) {
  if (!g->all && graph_has_wait(g, actor)) return ZKE_OK;
  int rc = graph_read_session(g, session);
  for (int i = 0; i < g->known_count && rc == ZKE_OK; i++) {
    graph_wait *w = &g->known[i];
    if (w->name && w->session == session && (g->all || w->actor == actor))
      rc = graph_add_wait(g, w);
  }
  return rc;
}

/* Add the edge to one keeper.  One that has gone meanwhile keeps nobody out,
 * and whoever it kept out is told. */
static int graph_add_keeper(graph *g, graph_edge edge, const char *name,
                            bool *waiting) {
  char *path = zke_recipe_path(g->z, g->waits[edge.from].directory, name);
  char *data = NULL;
  int len;
  zke_stat stat;
  if (!path) return ZKE_NOMEM;
  int rc = zke_get(g->z, path, NULL, NULL, &data, &len, &stat);
  zke_entry_words w = zke_entry_read(rc == ZKE_OK ? data : NULL, len);
  if (rc == ZKE_OK && w.actor && !g->all)
    rc = graph_find_waits(g, stat.ephemeralOwner, w.actor);
  *waiting = w.waiting;
  if (rc == ZKE_OK) {
    edge.actor = w.actor;
    edge.path = path;
    edge.session = stat.ephemeralOwner;
    rc = graph_add_edge(g, edge);
  }
  if (rc != ZKE_OK) zke_free(path);
  if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) rc = ZKE_OK;
  zke_free(data);
  return rc;
}

/* Add the edges of the wait at index i of a line.  Where every entry stands
 * for itself, it is enough to go back over `limit` of those that wait too:
 * they are kept out by all that stand before them.  For a wait that is never
 * stuck, over as many of any. */
static int graph_follow_entry(graph *g, int at, const zke_entries *e, int i,
                              int limit) {
  int own = zke_entry_group_before(e, i) + 1, weight, rc = ZKE_OK;
  int left = own > 1 ? INT_MAX : limit;
  bool any = g->waits[at].loose;
  g->waits[at].room = limit - own + 1;
  for (int j = i - own; j >= 0 && left > 0 && rc == ZKE_OK; j -= weight) {
    bool waiting = false;
    weight = zke_entry_group_before(e, j) + 1;
    if (weight > 1) left = INT_MAX;
    if (!zke_entry_keeps_out(&e->data[j], &e->data[i])) continue;
    rc = graph_add_keeper(g, (graph_edge){.from = at, .weight = weight},
                          e->data[j].name, &waiting);
    left -= (waiting || any) && e->data[j].kind != ZKE_LINE_READ;
  }
  return rc;
}

/* Look at the line of a wait.  Many that wait in one line are looked up in what
 * the first one saw: whoever joined since looks for itself. */
static int graph_look_at(graph *g, const char *directory) {
  zke_stat stat;
  if (g->directory && strcmp(g->directory, directory) == 0) return ZKE_OK;
  zke_free(g->entries);
  g->entries = NULL;
  g->directory = NULL;
  int rc = zke_entry_survey(g->z, directory, &g->entries, &stat, &g->limit);
  if (rc == ZKE_OK) g->directory = directory;
  return rc;
}

/* Add the edges of one wait, if its place keeps it out. */
static int graph_follow(graph *g, int at) {
  int rc = graph_look_at(g, g->waits[at].directory);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  const zke_entries *e = g->entries;
  int i = zke_recipe_find(e, g->waits[at].name);
  if (i < 0 || zke_entry_last_of_group(e, i) != i) return ZKE_OK;
  g->waits[at].kept = zke_entry_keepers(e, i) >= g->limit;
  return g->waits[at].kept ? graph_follow_entry(g, at, e, i, g->limit) : ZKE_OK;
}

/* An actor is stuck when it is in any of the places where it waits. */
static bool graph_is_stuck(const graph *g, uint64_t actor) {
  for (int i = 0; i < g->wait_count; i++) {
    if (g->waits[i].actor == actor && g->waits[i].stuck) return true;
  }
  return false;
}

/* How many of a wait's keepers are stuck. */
static int graph_stuck_keepers(const graph *g, int at) {
  int count = 0;
  for (int i = 0; i < g->edge_count; i++) {
    const graph_edge *e = &g->edges[i];
    if (e->from == at && graph_is_stuck(g, e->actor)) count += e->weight;
  }
  return count;
}

/* Cross out whoever can go on, until nobody can: one goes on when few enough
 * keepers stay for ever.  The last found first: it is at the end of a chain. */
static void graph_cross_out(graph *g) {
  for (int i = 0; i < g->wait_count; i++)
    g->waits[i].stuck = !g->waits[i].loose;
  for (bool again = true; again;) {
    again = false;
    for (int i = g->wait_count - 1; i >= 0; i--) {
      if (!g->waits[i].stuck) continue;
      if (graph_stuck_keepers(g, i) >= g->waits[i].room) continue;
      g->waits[i].stuck = false;
      again = true;
    }
  }
}

/* Note that from wait a one comes to wait b.  True: that is news. */
static bool graph_mark_step(graph *g, int a, int b) {
  graph_wait *from = &g->waits[a], *to = &g->waits[b];
  bool news = (from->from_me && !to->from_me) || (!from->to_me && to->to_me);
  to->from_me = to->from_me || from->from_me;
  from->to_me = from->to_me || to->to_me;
  if (to->to_me && from->next < 0) from->next = b;
  return news;
}

/* Mark what lies on a way from one's own waits and what on a way to them. */
static void graph_mark_ways(graph *g) {
  for (int i = 0; i < g->wait_count; i++) {
    graph_wait *w = &g->waits[i];
    w->from_me = w->to_me = w->stuck && w->actor == g->me;
    w->next = -1;
  }
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < g->edge_count; i++) {
      const graph_edge *e = &g->edges[i];
      if (!g->waits[e->from].stuck) continue;
      for (int j = 0; j < g->wait_count; j++) {
        if (g->waits[j].actor != e->actor || !g->waits[j].stuck) continue;
        if (graph_mark_step(g, e->from, j)) again = true;
      }
    }
  }
}

/* Did I begin to wait later than all others of the circles that I am in? */
static bool graph_is_youngest(const graph *g) {
  int64_t mine = 0, others = 0;
  for (int i = 0; i < g->wait_count; i++) {
    const graph_wait *w = &g->waits[i];
    bool me = w->actor == g->me;
    if (me && w->since > mine) mine = w->since;
    if (me || !w->stuck || !w->from_me || !w->to_me) continue;
    if (w->since > others) others = w->since;
  }
  return mine > others;
}

/* Which of my waits is in a deadlock, with me as the youngest of it?  -1:
 * none.  One that is stuck behind a deadlock, but not in it, is no victim. */
static int graph_victim(graph *g) {
  graph_cross_out(g);
  graph_mark_ways(g);
  for (int i = 0; i < g->wait_count && graph_is_youngest(g); i++) {
    const graph_wait *w = &g->waits[i];
    if (w->stuck && w->actor == g->me && w->next >= 0) return i;
  }
  return -1;
}

/* "I wait for /a held by x (pid 1), who waits for /b held by …". */
static int graph_say_deadlock(const graph *g, int at) {
  char text[420] = "";
  size_t used = 0;
  for (int steps = 0; steps <= g->wait_count && used < sizeof text; steps++) {
    const graph_wait *w = &g->waits[at], *next = &g->waits[w->next];
    bool me = next->actor == g->me;
    zke_session_list *who = NULL;
    zke_session(g->z, next->session, &who);
    int n = snprintf(text + used, sizeof text - used, "%s%s held by %s",
                     used ? ", who waits for " : "", w->directory,
                     me    ? "this thread"
                     : who ? who->data[0].identity
                           : "another");
    if (who && !me && n > 0 && used + (size_t)n < sizeof text) {
      used += (size_t)n;
      n = snprintf(text + used, sizeof text - used, " (pid %" PRId64 ")",
                   who->data[0].pid);
    }
    zke_free(who);
    used += n > 0 ? (size_t)n : 0;
    at = w->next;
    if (me) break;
  }
  return zke_recipe_fail(ZKE_DEADLOCK, "deadlock: this call waits for %s",
                         text);
}

/* Does this session hold or wait for anything but one's own entries?  If not,
 * nobody can wait for it. */
static bool graph_is_alone(zke *z, int own) {
  zke_strings *paths = NULL;
  int entries = 0;
  if (zke_ephemerals(z, 0, NULL, &paths) != ZKE_OK) return false;
  for (int i = 0; i < paths->count; i++)
    entries += graph_is_entry(paths->data[i]);
  zke_free(paths);
  return entries <= own;
}

/* Is this wait one of the circles that I am in? */
static bool graph_in_circle(const graph_wait *w) {
  return w->stuck && w->from_me && w->to_me;
}

/* The znodes that make the circles, for one snapshot: where the waits are, and
 * who keeps these out. */
typedef struct graph_proof {
  char **paths;
  zke_op *ops;
  zke_op_result *read;
  int64_t *mzxid; /* of a wait; 0: of a keeper, which has to exist */
  int count;
} graph_proof;

/* The arrays may be missing, where memory was short. */
static void graph_free_proof(graph_proof *p) {
  for (int i = 0; i < p->count; i++) zke_free(p->paths[i]);
  if (p->read) zke_results_clear(p->read, p->count);
  zke_free(p->paths);
  zke_free(p->ops);
  zke_free(p->read);
  zke_free(p->mzxid);
}

/* One more znode; the path becomes the proof's. */
static bool graph_add_proof(graph_proof *p, char *path, int64_t mzxid) {
  if (!path) return false;
  p->paths[p->count] = path;
  p->mzxid[p->count] = mzxid;
  zke_op_get(&p->ops[p->count++], path);
  return true;
}

/* List the znodes that one snapshot has to see for the circle to be real: the
 * waits of it by their mzxid, which tells that they have waited all the time,
 * and their keepers by being there. */
static bool graph_list_proof(const graph *g, graph_proof *p) {
  size_t most = (size_t)g->wait_count + (size_t)g->edge_count;
  p->paths = zke_alloc(g->z, most * sizeof *p->paths);
  p->ops = zke_alloc(g->z, most * sizeof *p->ops);
  p->read = zke_alloc(g->z, most * sizeof *p->read);
  p->mzxid = zke_alloc(g->z, most * sizeof *p->mzxid);
  bool ok = p->paths && p->ops && p->read && p->mzxid;
  for (int i = 0; ok && i < g->wait_count; i++) {
    const graph_wait *w = &g->waits[i];
    if (!graph_in_circle(w)) continue;
    ok = graph_add_proof(p, zke_recipe_path(g->z, w->directory, w->name),
                         w->since);
  }
  for (int i = 0; ok && i < g->edge_count; i++) {
    const char *path = g->edges[i].path;
    if (!graph_in_circle(&g->waits[g->edges[i].from])) continue;
    ok = graph_add_proof(p, zke_recipe_copy(g->z, path, strlen(path)), 0);
  }
  return ok;
}

/* The circle was put together from several looks, between which somebody may
 * have released one lock and begun to wait for another.  It is a deadlock only
 * if all of it is there at one moment: then nobody in it can go on.  *so: it
 * is. */
static int graph_confirm(const graph *g, bool *so) {
  graph_proof p = {0};
  int rc = graph_list_proof(g, &p)
               ? zke_recipe_multi_read(g->z, p.ops, p.count, p.read)
               : ZKE_NOMEM;
  *so = rc == ZKE_OK;
  for (int i = 0; *so && i < p.count; i++) {
    *so = p.read[i].rc == ZKE_OK &&
          (!p.mzxid[i] || p.mzxid[i] == p.read[i].stat.mzxid);
  }
  graph_free_proof(&p);
  return rc;
}

/* One look; *again: what it saw has changed meanwhile. */
static int graph_detect_once(zke *z, uint64_t actor, bool *again) {
  graph g = {.z = z, .me = actor};
  bool so = true;
  int rc = graph_find_waits(&g, zke_session_id(z), actor);
  for (int i = 0; i < g.wait_count && rc == ZKE_OK; i++)
    rc = graph_follow(&g, i);
  int victim = rc == ZKE_OK ? graph_victim(&g) : -1;
  if (victim >= 0) rc = graph_confirm(&g, &so);
  if (victim >= 0 && rc == ZKE_OK && so) rc = graph_say_deadlock(&g, victim);
  graph_free(&g);
  *again = !so;
  return rc;
}

/* Looks until what it has found is confirmed or gone; each repetition means
 * that somebody has moved on, so this ends. */
int zke_line_detect(zke *z, uint64_t actor, int own) {
  bool again = true;
  int rc = ZKE_OK;
  if (graph_is_alone(z, own)) return ZKE_OK;
  while (again && rc == ZKE_OK) rc = graph_detect_once(z, actor, &again);
  return rc;
}

/* ---- the graph of waits, for those who look ---- */

/* The youngest first: crossing out begins at the other end, where those stand
 * who can go on soonest. */
static int graph_compare_waits(const void *a, const void *b) {
  const graph_wait *x = a, *y = b;
  return (x->since < y->since) - (x->since > y->since);
}

/* Does anybody who is stuck wait for this one's actor? */
static bool graph_is_waited_for(const graph *g, int at) {
  for (int i = 0; i < g->edge_count; i++) {
    const graph_edge *e = &g->edges[i];
    if (e->actor == g->waits[at].actor && g->waits[e->from].stuck) return true;
  }
  return false;
}

/* Of those that are stuck leave the circles and what is between them: who is
 * behind one, with nobody behind, is crossed out.  The youngest first. */
static void graph_leave_circles(graph *g) {
  for (int i = 0; i < g->wait_count; i++)
    g->waits[i].doomed = g->waits[i].stuck;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < g->wait_count; i++) {
      if (!g->waits[i].stuck || graph_is_waited_for(g, i)) continue;
      g->waits[i].stuck = false;
      again = true;
    }
  }
}

/* Number the circles, the one with the oldest wait first. */
static void graph_number_circles(graph *g) {
  int count = 0;
  graph_cross_out(g);
  graph_leave_circles(g);
  for (int i = g->wait_count - 1; i >= 0; i--) {
    if (!g->waits[i].stuck || g->waits[i].circle) continue;
    g->me = g->waits[i].actor;
    graph_mark_ways(g);
    if (g->waits[i].next < 0) continue;
    count++;
    for (int j = 0; j < g->wait_count; j++) {
      graph_wait *w = &g->waits[j];
      if (w->stuck && w->from_me && w->to_me && w->next >= 0) w->circle = count;
    }
  }
}

/* The session's entry, or NULL where it has just ended or begun. */
static const zke_session_info *graph_who(const zke_session_list *who,
                                         int64_t session) {
  for (int i = 0; i < who->count; i++) {
    if (who->data[i].id == session) return &who->data[i];
  }
  return NULL;
}

/* How much text and room one wait takes in the list. */
static size_t graph_wait_size(const graph_wait *w,
                              const zke_session_list *who) {
  const zke_session_info *info = graph_who(who, w->session);
  return sizeof(zke_wait_info) + strlen(w->directory) + 1 + strlen(w->name) +
         1 + strlen(info ? info->identity : "") + 1;
}

/* Where the parts of a list go, which is one block. */
typedef struct graph_block {
  zke_wait_info *waits;
  zke_keeper *keepers;
  char *text;
} graph_block;

/* Room was counted before by graph_list_waits(). */
static const char *graph_put_text(graph_block *b, const char *text) {
  size_t size = strlen(text) + 1;
  char *put = memcpy(b->text, text, size);
  b->text += size;
  return put;
}

/* The edges of one wait, from the one at index `first` on, as keepers; returns
 * how many edges it has. */
static int graph_put_keepers(graph_block *b, const graph *g, int first) {
  int i = first;
  for (; i < g->edge_count && g->edges[i].from == g->edges[first].from; i++) {
    const graph_edge *e = &g->edges[i];
    *b->keepers++ = (zke_keeper){.path = graph_put_text(b, e->path),
                                 .session = e->session,
                                 .actor = e->actor};
  }
  return i - first;
}

/* `stuck` is told from `doomed`: while circles were looked for, the waits
 * behind one were crossed out again. */
static void graph_put_wait(graph_block *b, const graph_wait *w,
                           const zke_session_list *who) {
  const zke_session_info *info = graph_who(who, w->session);
  char *path = b->text;
  b->text += sprintf(path, "%s/%s", w->directory, w->name) + 1;
  *b->waits++ =
      (zke_wait_info){.path = path,
                      .session = w->session,
                      .actor = w->actor,
                      .since_ms = w->since_ms,
                      .identity = graph_put_text(b, info ? info->identity : ""),
                      .pid = info ? info->pid : 0,
                      .blocking = !w->loose,
                      .stuck = w->doomed,
                      .circle = w->circle,
                      .keepers = b->keepers};
}

/* Edges stand in the order of their waits. */
static zke_wait_list *graph_list_waits(const graph *g,
                                       const zke_session_list *who) {
  size_t size = sizeof(zke_wait_list);
  for (int i = 0; i < g->wait_count; i++)
    size += graph_wait_size(&g->waits[i], who);
  for (int i = 0; i < g->edge_count; i++)
    size += sizeof(zke_keeper) + strlen(g->edges[i].path) + 1;
  zke_wait_list *list = zke_alloc(g->z, size);
  if (!list) return NULL;
  graph_block b = {.waits = (zke_wait_info *)(void *)(list + 1)};
  list->data = b.waits;
  b.keepers = (zke_keeper *)(void *)(b.waits + g->wait_count);
  b.text = (char *)(b.keepers + g->edge_count);
  for (int i = 0, edge = 0; i < g->wait_count; i++) {
    int first = edge;
    while (edge < g->edge_count && g->edges[edge].from == i) edge++;
    if (!g->waits[i].kept) continue;
    graph_put_wait(&b, &g->waits[i], who);
    b.waits[-1].keeper_count =
        first < edge ? graph_put_keepers(&b, g, first) : 0;
    list->count++;
  }
  return list;
}

/* Reads everybody's waits, not those that one wait leads to; nobody gives up
 * because of it. */
int zke_line_waits(zke *z, zke_wait_list **list_out) {
  graph g = {.z = z, .all = true};
  zke_session_list *who = NULL;
  zke_wait_list *list = NULL;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_sessions(z, &who);
  for (int i = 0; rc == ZKE_OK && i < who->count; i++)
    rc = graph_find_waits(&g, who->data[i].id, 0);
  if (g.wait_count)
    qsort(g.waits, (size_t)g.wait_count, sizeof *g.waits, graph_compare_waits);
  for (int i = 0; rc == ZKE_OK && i < g.wait_count; i++)
    rc = graph_follow(&g, i);
  if (rc == ZKE_OK) {
    graph_number_circles(&g);
    list = graph_list_waits(&g, who);
    rc = list ? ZKE_OK : ZKE_NOMEM;
  }
  zke_free(who);
  graph_free(&g);
  if (rc == ZKE_OK) *list_out = list;
  return rc;
}
