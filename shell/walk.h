/* walk.h - over a subtree, node by node
 *
 *     walk w;
 *     walk_begin(&w, c, path, -1, false);
 *     while (!status && walk_next(&w)) status = look_at(w.path, &w.stat);
 *     return walk_end(&w, status);
 *
 * The names of siblings come sorted.  The walk keeps the remaining names of
 * each level, but no nodes: a million nodes cost as much as their names.  Nodes
 * that appear meanwhile may or may not be met; nodes that have gone are left
 * out.
 */
#ifndef ZKE_WALK_H
#define ZKE_WALK_H

#include "shell.h"

/* The children of one node on the way to the current one. */
typedef struct walk_level {
  zke_strings *names;
  int next;   /* the first remaining one */
  size_t len; /* of the path of these children's parent */
} walk_level;

typedef struct walk {
  /* the node of the last walk_next() */
  char *path;
  int depth;     /* 0: the walk's start */
  zke_stat stat; /* not set if the walk gives children first */
  int64_t count; /* nodes so far */

  /* the walk's own */
  call *c;
  int limit;           /* as given to walk_begin() */
  bool children_first; /* the same */
  bool begun;          /* the first node was read */
  bool cancelled;      /* the call was cancelled: the walk has ended early */
  int status;          /* of a failure in the walk; 0: none */
  size_t room;         /* bytes that fit into path */
  walk_level *levels;  /* of the current path, from the top */
  int level_count, level_room;
  int64_t denied; /* nodes whose children may not be read */
  char *denied_path;
} walk;

/* walk_begin - at a path, which walk_next() gives first
 *
 *   limit           the deepest level to visit; -1: no limit
 *   children_first  give a node after its children, not before
 *
 * walk_next - to the next node: false at the end, after an error and when the
 *             call was cancelled
 * walk_end  - release; returns status, or the walk's error.  Unreadable
 *             children are an error, reported at the end */
void walk_begin(walk *w, call *c, const char *path, int limit,
                bool children_first);
bool walk_next(walk *w);
int walk_end(walk *w, int status);

/* walk_is_name   - can a child have this name?  In a damaged file it may not
 * walk_fail_name - the exit code for an invalid name of a child of parent */
bool walk_is_name(const char *name);
int walk_fail_name(call *c, const char *parent);

/* walk_name - the last part of the current path; "/" for the root
 * walk_last - is there no sibling after the node, or after its ancestor at that
 *             depth (1 or more)? */
const char *walk_name(const walk *w);
bool walk_last(const walk *w, int depth);

#endif
