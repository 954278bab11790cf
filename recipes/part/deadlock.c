/* deadlock.c - who waits for whom, and whether for ever
 *
 * A wait is an entry that says "waiting"; an actor is the thread that waits, or
 * that holds what another one waits for (deadlock.h defines the words).
 *
 * THE SEARCH, when an actor has begun to wait (zke_line_detect):
 *   1. If the session's only entries in lines are its new ones, nothing can
 *      wait for it: there is no circle (graph_is_alone).
 *   2. Build the graph of waits, from this one on.  For each wait: read its
 *      line, and add an edge to each entry that keeps it out (graph_follow).
 *      If the actor of such an entry waits, too, anywhere, add its waits
 *      (graph_find_waits), and follow them in turn.
 *   3. Cross out the waits that can continue, because enough of their keepers
 *      are not stuck.  Repeat until nothing more is crossed out
 *      (graph_cross_out).
 *   4. Of the remaining waits, keep those on a path from this actor back to
 *      itself (graph_mark_ways).  If there are any, this actor is in a circle.
 *   5. If this wait is the youngest of the circle, it is the victim
 *      (graph_victim).  Else the youngest one is, and finds out by itself.
 *   6. Read the whole circle again, in one snapshot.  Only if it exists at that
 *      moment is it a deadlock (graph_confirm); else begin again at 2.
 *
 * WHY IT IS RIGHT.  Each wait is written to the tree before its search begins,
 * and searches read the tree.  So in a circle, the wait that was written last
 * sees all the others, and it is the youngest.  One search at that moment is
 * enough; no search is needed later.  Only the youngest fails, so of one circle
 * one call fails.  No call fails because of a circle that never existed: in the
 * snapshot of step 6 every wait is unchanged since it was first read (by mzxid)
 * and every keeper exists, so all of them waited for each other at that moment.
 *
 * Only the znodes are used.  No process asks another one, and none has to be
 * running.
 *
 * WHAT IS NOT SEEN: see DEADLOCKS in lock.h.
 *
 * COST: each session that the search reaches is read once, with its entries.
 * Each wait costs a survey of its line, unless that line was read last, and a
 * read of each keeper that graph_follow_entry() looks at.  Crossing out visits
 * all waits and edges for each wait, in memory; a chain takes one such pass,
 * because the wait found last is looked at first.
 *
 * Sections, each using those above it: actors; the graph and how it grows;
 * crossing out; the circle's snapshot; the list for programs that watch from
 * outside.  Begin with zke_line_detect(). */
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
#include "object.h"
#include "text.h"
#include "znode.h"

/* ---- actors ----
 *
 * A thread's number means nothing in another process, and several threads may
 * act as one: so an actor is a random number, which the entries show. */

/* This thread, as an actor. */
static _Thread_local struct {
  pid_t pid;     /* the process that generated id; if it differs, this is a
                    forked child */
  uint64_t id;   /* its own */
  uint64_t role; /* the actor that it acts as; 0: itself */
} actor_self;

/* Generate the thread's actor.  After a fork it differs from the parent's, and
 * has no role. */
static void actor_draw_self(pid_t pid) {
  actor_self.pid = pid;
  actor_self.id = actor_self.role = 0;
  while (getentropy(&actor_self.id, sizeof actor_self.id) == 0 &&
         !actor_self.id)
    continue;
  if (actor_self.id) return;
  /* without random numbers: the address and the process's number */
  actor_self.id = (uint64_t)(uintptr_t)&actor_self ^ (uint64_t)pid << 48;
}

/* Generated at random at the thread's first call, so no two threads share one.
 */
uint64_t zke_line_actor(void) {
  pid_t pid = getpid();
  if (actor_self.pid != pid) actor_draw_self(pid);
  return actor_self.role ? actor_self.role : actor_self.id;
}

/* The role belongs to the thread; in a forked child it has none. */
uint64_t zke_line_act_as(uint64_t actor) {
  zke_line_actor(); /* so a parent's role is not returned in a child */
  uint64_t was = actor_self.role;
  actor_self.role = actor;
  return was;
}

/* ---- the graph ----
 *
 * Its nodes are waits; its edges go from a wait to the entries that keep it
 * out.  An edge leads on by the keeper's actor: to all waits of that actor.  An
 * actor that waits in several places at once, for a multi-lock, is stuck if it
 * is stuck in any of them.
 *
 *     wait "a of T1" --kept out by--> entry "b of T2"
 *                                        T2 waits: "c of T2" --> ...
 *
 * For zke_line_waits() the same graph has the waits of all sessions, including
 * entries that wait without a blocking call (loose); these are never stuck,
 * since their threads can continue. */

/* One wait: an entry, and what the search has found out about it. */
typedef struct graph_wait {
  char *directory, *name; /* its line, and its znode's name there */
  uint64_t actor;
  int64_t since;    /* the zxid of the beginning of the wait: its mzxid */
  int64_t session;  /* owner of the znode */
  int64_t since_ms; /* ctime of the znode */
  int room;         /* it is stuck if this many of its keepers, by weight, are
                   stuck */
  bool kept;        /* its place keeps it out */
  bool loose;       /* not in a blocking call */
  bool stuck;       /* not crossed out (yet) */
  bool from_me;     /* on a path from the actor `me` */
  bool to_me;       /* on a path to it */
  int next;         /* the wait after it on the path to me, or -1 */
  bool doomed;      /* it was stuck before the circles were separated */
  int circle;       /* its number, from 1 on; 0: none */
} graph_wait;

/* waits[from] is kept out by `weight` entries of an actor.  The actor may wait
 * too, in one place or in several. */
typedef struct graph_edge {
  int from;       /* index of the wait */
  int weight;     /* number of entries that were made together: permits of a
                     lease */
  uint64_t actor; /* 0: not in the data; such a keeper can continue */
  char *path;     /* of the keeper's znode */
  int64_t session;
} graph_edge;

/* The graph of one search.  A search belongs to one thread, so there are no
 * locks. */
typedef struct graph {
  zke *z;
  uint64_t me; /* the actor whose circles are searched */
  bool all;    /* the waits of all sessions, for zke_line_waits() */
  graph_wait *waits;
  graph_edge *edges; /* in the order of their waits */
  int wait_count, wait_cap, edge_count, edge_cap;
  /* The entries of the sessions that were read.  Each session is read once and
   * whole: it may have hundreds of actors, each at the end of another's wait.
   * An entry that was moved to waits has no name here. */
  graph_wait *known;
  int64_t *sessions;
  int known_count, known_cap, session_count, session_cap;
  /* the line that was read last; NULL: none */
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

/* A name moved from `known` to `waits` is NULL in `known`. */
static void graph_free_waits(graph_wait *waits, int count) {
  for (int i = 0; i < count; i++) {
    zke_free(waits[i].directory);
    zke_free(waits[i].name);
  }
  zke_free(waits);
}

/* g->directory is a string of one of the waits. */
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

/* Add an entry by which an actor of a session waits.  An entry whose data names
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

/* Add a wait to the graph.  Moves its strings: `known` has none afterwards. */
static int graph_add_wait(graph *g, graph_wait *known) {
  void *array = g->waits;
  if (!graph_room(g->z, &array, g->wait_count, &g->wait_cap, sizeof *g->waits))
    return ZKE_NOMEM;
  g->waits = array;
  g->waits[g->wait_count++] = *known;
  known->directory = known->name = NULL;
  return ZKE_OK;
}

/* Record that a session is read; *news: it was not recorded before. */
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

/* Is this the path of an entry in a line?  No line is at "/". */
static bool graph_is_entry(const char *path) {
  zke_entry e;
  const char *name = zke_recipe_name(path);
  return name > path + 1 &&
         zke_recipe_parse(name, zke_entry_kinds, ZKE_LINE_KINDS, &e);
}

/* Are this actor's waits in the graph already? */
static bool graph_has_wait(const graph *g, uint64_t actor) {
  for (int i = 0; i < g->wait_count; i++) {
    if (g->waits[i].actor == actor) return true;
  }
  return false;
}

/* Add an entry of a session, if its data says that its actor waits.  An entry
 * that held immediately still says so, since it was never written again.  That
 * does no harm here, because its place does not keep it out (graph_follow()).
 */
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

/* Read a session with all its entries, once: an actor may wait in several
 * places, and other actors of its session are often met soon.  If an ensemble
 * does not give them, the session seems to wait for nothing. */
static int graph_read_session(graph *g, int64_t session) {
  zke_strings *paths = NULL;
  bool news;
  int rc = graph_add_session(g, session, &news);
  if (rc != ZKE_OK || !news) return rc;
  rc = zke_ephemerals(g->z, session, NULL, &paths);
  if (rc == ZKE_UNIMPLEMENTED) return ZKE_OK; /* an ensemble, see deadlock.h */
  for (int i = 0; rc == ZKE_OK && i < paths->count; i++)
    rc = graph_read_entry(g, paths->data[i]);
  zke_free(paths);
  return rc;
}

/* Add all waits of an actor of a session, or of all its actors if g->all. */
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

/* Add the edge to one keeper, and the waits of its actor.  A keeper that has
 * gone since the survey keeps nothing out, so it has no edge; watches wake the
 * entries that it kept out.  *waiting: its data says that it waits. */
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

/* Add the edges of waits[at], which is the entry at index i of its line.
 *
 * The search need not go back to the beginning of a long line.  If every entry
 * stands for itself, `limit` keepers that wait themselves are enough: each of
 * these has edges to the entries in front, so through them the search reaches
 * the rest.  A reader does not count among them, as other readers do not keep
 * it out.  With entries made together (weight > 1) this does not hold, and all
 * are followed.  For a loose wait, which is never stuck, `limit` keepers of any
 * kind are enough to show whom it waits for. */
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

/* Read the line of a wait, unless it was read last.  Many waits of one line use
 * what the first one read: an entry that has joined since makes its own search.
 */
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

/* Add the edges of one wait, if its place keeps it out.  Of entries made
 * together the last one waits for all. */
static int graph_follow(graph *g, int at) {
  int rc = graph_look_at(g, g->waits[at].directory);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  const zke_entries *e = g->entries;
  int i = zke_recipe_find(e, g->waits[at].name);
  if (i < 0 || zke_entry_last_of_group(e, i) != i) return ZKE_OK;
  g->waits[at].kept = zke_entry_keepers(e, i) >= g->limit;
  return g->waits[at].kept ? graph_follow_entry(g, at, e, i, g->limit) : ZKE_OK;
}

/* ---- crossing out ----
 *
 * Steps 3 to 5 of the search: which waits are stuck, which of these are in a
 * circle with `me`, and whether `me` must give up. */

/* An actor is stuck if it is in any of the places where it waits. */
static bool graph_is_stuck(const graph *g, uint64_t actor) {
  for (int i = 0; i < g->wait_count; i++) {
    if (g->waits[i].actor == actor && g->waits[i].stuck) return true;
  }
  return false;
}

/* How many of the entries that keep out a wait belong to stuck actors. */
static int graph_stuck_keepers(const graph *g, int at) {
  int count = 0;
  for (int i = 0; i < g->edge_count; i++) {
    const graph_edge *e = &g->edges[i];
    if (e->from == at && graph_is_stuck(g, e->actor)) count += e->weight;
  }
  return count;
}

/* Cross out the waits that can continue, until none can.  A wait can continue
 * if fewer of its keepers than `room` stay for ever: the others will go, and
 * then its turn comes.  The wait found last is looked at first, since it is at
 * the end of a chain: so a chain is crossed out in one pass. */
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

/* An edge leads from wait a to wait b: pass on both marks.  Returns whether
 * anything was new. */
static bool graph_mark_step(graph *g, int a, int b) {
  graph_wait *from = &g->waits[a], *to = &g->waits[b];
  bool news = (from->from_me && !to->from_me) || (!from->to_me && to->to_me);
  to->from_me = to->from_me || from->from_me;
  from->to_me = from->to_me || to->to_me;
  if (to->to_me && from->next < 0) from->next = b;
  return news;
}

/* Among the stuck waits, mark the ones on a path from the waits of `me`, and
 * the ones on a path to them.  A wait with both marks is in a circle with `me`.
 * (A wait that was merely seen before need not be in one: only a path back to
 * the start counts.) */
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

/* Is this wait in a circle with `me`?  Each wait of `me` has both marks; only
 * `next` shows which are in a circle. */
static bool graph_in_circle(const graph_wait *w) {
  return w->stuck && w->from_me && w->to_me && w->next >= 0;
}

/* In the circles, did `me` begin to wait later than all others?  Its waits
 * elsewhere, by another thread that acts as `me`, do not count. */
static bool graph_is_youngest(const graph *g) {
  int64_t mine = 0, others = 0;
  for (int i = 0; i < g->wait_count; i++) {
    const graph_wait *w = &g->waits[i];
    int64_t *youngest = w->actor == g->me ? &mine : &others;
    if (graph_in_circle(w) && w->since > *youngest) *youngest = w->since;
  }
  return mine > others;
}

/* The wait of `me` that is in a circle of which `me` is the youngest, or -1.  A
 * wait that is stuck because of a circle, but not in it, is no victim: it
 * continues when the circle is broken. */
static int graph_victim(graph *g) {
  graph_cross_out(g);
  graph_mark_ways(g);
  for (int i = 0; i < g->wait_count && graph_is_youngest(g); i++) {
    const graph_wait *w = &g->waits[i];
    if (w->actor == g->me && graph_in_circle(w)) return i;
  }
  return -1;
}

/* "this call would wait for ever: /a is held by x (pid 1), who waits for /b,
 * held by this thread".  A long circle is cut at the end of the buffer. */
static int graph_say_deadlock(const graph *g, int at) {
  char text[420] = "";
  size_t used = 0;
  for (int steps = 0; steps <= g->wait_count && used < sizeof text; steps++) {
    const graph_wait *w = &g->waits[at], *next = &g->waits[w->next];
    bool me = next->actor == g->me;
    zke_session_list *who = NULL;
    zke_sessions(g->z, next->session, &who);
    const char *holder = who ? who->data[0].identity : "another";
    int n = snprintf(text + used, sizeof text - used, "%s%s%s held by %s",
                     used ? ", who waits for " : "", w->directory,
                     used ? "," : " is", me ? "this thread" : holder);
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
  return zke_recipe_fail(ZKE_DEADLOCK, "this call would wait for ever: %s",
                         text);
}

/* Does this session have only the entries of this wait?  Then nothing can wait
 * for it, and there is no circle.  This is the common case, and costs one read.
 */
static bool graph_is_alone(zke *z, int own) {
  zke_strings *paths = NULL;
  int entries = 0;
  if (zke_ephemerals(z, 0, NULL, &paths) != ZKE_OK) return false;
  for (int i = 0; i < paths->count; i++)
    entries += graph_is_entry(paths->data[i]);
  zke_free(paths);
  return entries <= own;
}

/* ---- the circle's snapshot ----
 *
 * Step 6.  The lines were read one after the other, so the circle may never
 * have existed at one moment. */

/* The znodes that make the circles, for one snapshot: the waits, and the
 * entries that keep them out. */
typedef struct graph_proof {
  char **paths;
  zke_op *ops;         /* to read them */
  zke_op_result *read; /* the results */
  int64_t *mzxid;      /* required of a wait; 0: a keeper, which must exist */
  int count;           /* of each of these */
} graph_proof;

/* The arrays may be missing, if memory was short. */
static void graph_free_proof(graph_proof *p) {
  for (int i = 0; i < p->count; i++) zke_free(p->paths[i]);
  if (p->read) zke_results_clear(p->read, p->count);
  zke_free(p->paths);
  zke_free(p->ops);
  zke_free(p->read);
  zke_free(p->mzxid);
}

/* Add a znode; the path becomes the proof's. */
static bool graph_add_proof(graph_proof *p, char *path, int64_t mzxid) {
  if (!path) return false;
  p->paths[p->count] = path;
  p->mzxid[p->count] = mzxid;
  zke_op_get(&p->ops[p->count++], path);
  return true;
}

/* List the znodes that one snapshot must show for the circle to be real: its
 * waits by their mzxid, which shows that they have waited all the time, and
 * their keepers, which must exist. */
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

/* The circle was put together from several reads; between them an actor may
 * have released one lock and begun to wait for another.  It is a deadlock only
 * if all of it exists at one moment: then no actor in it can continue.  *so: it
 * does. */
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

/* One look.  ZKE_LOOK_AGAIN: what it read has changed since. */
static int graph_detect_once(zke *z, uint64_t actor) {
  graph g = {.z = z, .me = actor};
  bool so = true;
  int rc = graph_find_waits(&g, zke_session_id(z), actor);
  for (int i = 0; i < g.wait_count && rc == ZKE_OK; i++)
    rc = graph_follow(&g, i);
  int victim = rc == ZKE_OK ? graph_victim(&g) : -1;
  if (victim >= 0) rc = graph_confirm(&g, &so);
  if (victim >= 0 && rc == ZKE_OK && so) rc = graph_say_deadlock(&g, victim);
  graph_free(&g);
  return rc == ZKE_OK && !so ? ZKE_LOOK_AGAIN : rc;
}

/* Look until the circle is confirmed or gone.  Each repetition means that an
 * actor of the circle has continued. */
int zke_line_detect(zke *z, uint64_t actor, int own) {
  int rc;
  if (graph_is_alone(z, own)) return ZKE_OK;
  do {
    rc = graph_detect_once(z, actor);
  } while (zke_recipe_again(z, &rc));
  return rc;
}

/* ---- the list, for programs that watch from outside ----
 *
 * The graph of all sessions' waits, without a `me`.  Stuck waits are marked as
 * doomed.  Then waits that only lead to a circle are crossed out.  The rest
 * are circles and the waits between circles; a search from each wait in turn
 * shows which wait is on which circle. */

/* The youngest first: crossing out begins at the other end, with the waits that
 * can continue soonest. */
static int graph_compare_waits(const void *a, const void *b) {
  const graph_wait *x = a, *y = b;
  return (x->since < y->since) - (x->since > y->since);
}

/* Does any stuck wait wait for the actor of this one? */
static bool graph_is_waited_for(const graph *g, int at) {
  for (int i = 0; i < g->edge_count; i++) {
    const graph_edge *e = &g->edges[i];
    if (e->actor == g->waits[at].actor && g->waits[e->from].stuck) return true;
  }
  return false;
}

/* Of the stuck waits, keep those in circles or between circles.  Cross out any
 * that no other stuck wait waits for, the youngest first. */
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
      if (graph_in_circle(w)) w->circle = count;
    }
  }
}

/* The session's entry, or NULL if it has just ended or begun. */
static const zke_session_info *graph_who(const zke_session_list *who,
                                         int64_t session) {
  for (int i = 0; i < who->count; i++) {
    if (who->data[i].id == session) return &who->data[i];
  }
  return NULL;
}

/* How many bytes one wait takes in the list, with its strings. */
static size_t graph_wait_size(const graph_wait *w,
                              const zke_session_list *who) {
  const zke_session_info *info = graph_who(who, w->session);
  return sizeof(zke_wait_info) + strlen(w->directory) + 1 + strlen(w->name) +
         1 + strlen(info ? info->identity : "") + 1;
}

/* The positions of the next parts of a list, which is one block: the list, all
 * waits, all keepers, all strings. */
typedef struct graph_block {
  zke_wait_info *waits;
  zke_keeper *keepers;
  char *text;
} graph_block;

/* graph_list_waits() has counted the room for it. */
static const char *graph_put_text(graph_block *b, const char *text) {
  size_t size = strlen(text) + 1;
  char *put = memcpy(b->text, text, size);
  b->text += size;
  return put;
}

/* Add the edges of one wait, from index `first` on, as keepers; returns how
 * many edges it has. */
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

/* `stuck` comes from `doomed`: the search for circles has crossed out the waits
 * that only lead to them. */
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

/* Lay out the list.  Edges are in the order of their waits, so one pass over
 * them is enough.  Waits that are not kept out are left out. */
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

/* Reads the waits of all sessions, not only what one wait leads to; no wait
 * is given up because of it. */
int zke_line_waits(zke *z, zke_wait_list **list_out) {
  graph g = {.z = z, .all = true};
  zke_session_list *who = NULL;
  zke_wait_list *list = NULL;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_sessions(z, -1, &who);
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
