/* walk.c - over a subtree, node by node
 *
 * The walk is at w->path.  For each node on the way to it there is a level: the
 * names of that node's children, and which is next.  The names are read when
 * the walk comes there, so the memory depends on depth and width, not on the
 * number of nodes:
 *
 *     /            [a] b  c        level 0: at a
 *     /a            x [y] z        level 1: at y
 *     /a/y         the node of walk_next(): its level comes next
 *
 * Nodes that others remove meanwhile are skipped.  An invalid name, in a
 * damaged file, ends the walk: it might lead back to the same place.
 */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

static void walk_no_memory(walk *w) {
  w->status = fail_with(w->c, STATUS_SYSTEM, "NOMEM", "out of memory");
}

/* Makes room in the path for len bytes and a NUL; false after fail_with(). */
static bool walk_make_room(walk *w, size_t len) {
  if (len < w->room) return true;
  char *larger = realloc(w->path, len * 2 + 1);
  if (larger) {
    w->path = larger;
    w->room = len * 2 + 1;
  } else {
    walk_no_memory(w);
  }
  return larger != NULL;
}

/* Reads nothing yet; walk_end() reports errors. */
void walk_begin(walk *w, call *c, const char *path, int limit,
                bool children_first) {
  *w = (walk){.c = c, .limit = limit, .children_first = children_first};
  size_t len = strlen(path);
  if (walk_make_room(w, len)) memcpy(w->path, path, len + 1);
}

/* ------------------------------------------------------------------------
 * Levels
 *
 * The path grows by a name with each level and is cut at its end, so w->path is
 * always that of the deepest level's node.
 * --------------------------------------------------------------------- */

/* Begins the level of the current node; takes the names. */
static void walk_push(walk *w, zke_strings *names) {
  if (w->level_count == w->level_room) {
    int room = w->level_room * 2 + 16;
    walk_level *more = realloc(w->levels, (size_t)room * sizeof *w->levels);
    if (!more) {
      zke_free(names);
      walk_no_memory(w);
      return;
    }
    w->levels = more;
    w->level_room = room;
  }
  w->levels[w->level_count++] = (walk_level){names, 0, strlen(w->path)};
}

/* Ends a level: back to the node whose children these were. */
static void walk_pop(walk *w) {
  walk_level *top = &w->levels[--w->level_count];
  zke_free(top->names);
  w->path[top->len] = '\0';
  w->depth = w->level_count;
}

bool walk_is_name(const char *name) { return *name && !strchr(name, '/'); }

/* Fails for a name that only a damaged file can have. */
int walk_fail_name(call *c, const char *parent) {
  return fail_with(
      c, STATUS_IO, "CORRUPT",
      "%s has a child whose name is not allowed: the database is damaged, and "
      "check tells more",
      parent);
}

/* Goes to the level's next child, which must exist; false after fail_with().  A
 * child without a name, in a damaged file, would have its parent's path, and
 * the walk would never end. */
static bool walk_child(walk *w, walk_level *top) {
  const char *name = top->names->data[top->next++];
  size_t len = top->len, more = strlen(name);
  if (!walk_is_name(name)) {
    w->path[len] = '\0';
    w->status = walk_fail_name(w->c, w->path);
    return false;
  }
  if (!walk_make_room(w, len + 1 + more)) return false;
  if (len > 1) w->path[len++] = '/';
  memcpy(w->path + len, name, more + 1);
  return true;
}

/* ------------------------------------------------------------------------
 * Nodes
 *
 * One node at a time: read it, give it, then go below it.  Unreadable nodes and
 * nodes that have gone are skipped; walk_end() reports the former.
 * --------------------------------------------------------------------- */

/* The children of the node may not be read.  The walk continues without them,
 * and walk_end() reports this, if there are any. */
static int walk_deny(walk *w) {
  int rc = zke_exists(w->c->z, w->path, NULL, NULL, &w->stat);
  if (rc != ZKE_OK || w->stat.numChildren == 0) return rc;
  if (w->denied++ == 0) w->denied_path = strdup(w->path);
  return rc;
}

/* Reads the node and the names of its children; false if it has gone, or after
 * fail_with(). */
static bool walk_visit(walk *w) {
  zke *z = w->c->z;
  zke_strings *names = NULL;
  bool deeper = w->limit < 0 || w->level_count < w->limit;
  int rc = deeper ? zke_children(z, w->path, NULL, NULL, &names, &w->stat)
                  : zke_exists(z, w->path, NULL, NULL, &w->stat);
  if (rc == ZKE_NOAUTH) rc = walk_deny(w);
  w->depth = w->level_count;
  if (rc == ZKE_NONODE && w->depth > 0) return false;
  if (rc != ZKE_OK) {
    w->status = fail_rc(w->c, rc);
    return false;
  }
  if (names && names->count > 0)
    walk_push(w, names);
  else
    zke_free(names);
  return w->status == 0;
}

/* False after a failure, or when the call was cancelled; the walk records
 * which. */
static bool walk_goes_on(walk *w) {
  if (cancel_came(w->c)) w->cancelled = true;
  return w->status == 0 && !w->cancelled;
}

/* One step; true if it leads to a node for the caller. */
static bool walk_step(walk *w) {
  walk_level *top = w->begun ? &w->levels[w->level_count - 1] : NULL;
  if (top && top->next == top->names->count) {
    walk_pop(w);
    return w->children_first;
  }
  if (top && !walk_child(w, top)) return false;
  w->begun = true;
  int before = w->level_count;
  return walk_visit(w) && !(w->children_first && w->level_count > before);
}

/* Steps until there is a node for the caller; false at the end, on failure and
 * when cancelled. */
bool walk_next(walk *w) {
  while (walk_goes_on(w) && !(w->begun && w->level_count == 0))
    if (walk_step(w)) {
      w->count++;
      return true;
    }
  return false;
}

/* The caller's failure counts first, then the walk's own, then that of
 * unreadable nodes. */
int walk_end(walk *w, int status) {
  while (w->level_count > 0) zke_free(w->levels[--w->level_count].names);
  if (!status) status = w->status;
  if (!status && w->cancelled) status = fail_cancelled(w->c);
  if (!status && w->denied)
    status = fail_with(w->c, STATUS_DENIED, "NOAUTH",
                       "the children of %s may not be read%s",
                       w->denied_path ? w->denied_path : "a node",
                       w->denied > 1 ? ", nor those of others" : "");
  free(w->levels);
  free(w->path);
  free(w->denied_path);
  return status;
}

/* The last component of the current path; "/" for the root. */
const char *walk_name(const walk *w) {
  const char *slash = strrchr(w->path, '/');
  return slash && slash[1] ? slash + 1 : w->path;
}

/* Is the current node the last child at this depth?  For tree's drawing. */
bool walk_last(const walk *w, int depth) {
  const walk_level *l = &w->levels[depth - 1];
  return l->next == l->names->count;
}
