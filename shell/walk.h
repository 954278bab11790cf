/* walk.h - over a subtree, node by node
 *
 *     walk w;
 *     walk_begin(&w, c, path, -1, false);
 *     while (!status && walk_next(&w)) status = look_at(w.path, &w.stat);
 *     return walk_end(&w, status);
 *
 * The names of siblings come sorted.  Of each level the walk keeps the names
 * that are left, of nodes nothing: a million of them cost what their names do.
 * What appears or goes meanwhile is met or not; what has gone is left out.
 */
#ifndef ZKE_WALK_H
#define ZKE_WALK_H

#include "shell.h"

/* The children of one node that is on the way to where the walk is. */
typedef struct walk_level {
  zke_strings *names;
  int next;   /* the first that is left */
  size_t len; /* of the path of the node whose children they are */
} walk_level;

typedef struct walk {
  /* the node that walk_next() came to */
  char *path;
  int depth;     /* 0: where the walk began */
  zke_stat stat; /* not where the walk gives children first */
  int64_t count; /* nodes so far */

  /* the walk's own */
  call *c;
  int limit;           /* as walk_begin() got it */
  bool children_first; /* the same */
  bool begun;          /* the first node was read */
  bool cancelled;      /* the call was: the walk has ended early */
  int status;          /* of what has failed in the walk; 0: nothing */
  size_t room;         /* bytes that fit into path */
  walk_level *levels;  /* of the current path, from the top */
  int level_count, level_room;
  int64_t denied; /* nodes whose children may not be read */
  char *denied_path;
} walk;

/* walk_begin - at a path, which walk_next() gives first
 *
 *   limit           the deepest level to be visited; -1: no limit
 *   children_first  give a node behind its children, not before
 *
 * walk_next - to the next node: false at the end, after an error and when the
 *             call was cancelled
 * walk_end  - release; returns status, or what went wrong in the walk.  Nodes
 *             whose children may not be read are an error, told at the end */
void walk_begin(walk *w, call *c, const char *path, int limit,
                bool children_first);
bool walk_next(walk *w);
int walk_end(walk *w, int status);

/* walk_is_name   - can a child have this name?  In a damaged file it may not
 * walk_fail_name - the exit code for it, which is about a child of parent */
bool walk_is_name(const char *name);
int walk_fail_name(call *c, const char *parent);

/* walk_name - the last part of where it is; "/" of the root
 * walk_last - is there no sibling behind the node, or behind that of its
 *             ancestors which is at that depth (1 or more)? */
const char *walk_name(const walk *w);
bool walk_last(const walk *w, int depth);

#endif
