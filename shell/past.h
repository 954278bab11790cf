/* past.h - past holders, calculated from a history (past.c) */
#ifndef ZKE_SHELL_PAST_H
#define ZKE_SHELL_PAST_H

#include <stdint.h>

#include "../zkembed.h"

/* A change of a node in the history. */
typedef struct past_change {
  int64_t zxid, time_ms;
  int type; /* ZKE_EVENT_CREATED, _DELETED or _CHANGED */
  int64_t session, owner, pid;
  const char *path, *identity; /* identity: "" without one */
} past_change;

/* Changes in their order. */
typedef struct past_changes {
  int count;
  past_change *data;
} past_changes;

/* The life of an ephemeral node. */
typedef struct past_life {
  const char *path; /* the change list's, or the present node's */
  int64_t owner;
  int64_t from, to;       /* zxids; from 0: before the history, to INT64_MAX: it
                             still exists */
  int64_t from_ms, to_ms; /* 0 likewise */
} past_life;

/* A node that exists now, which the history may not have. */
typedef struct past_node {
  const char *path;
  int64_t owner;
} past_node;

/* A holder at the time in question. */
typedef struct past_holder {
  const past_life *life;
  int place;        /* in the line, from 1 */
  int64_t since_ms; /* 0: since before the history */
  int64_t until_ms; /* 0: it still holds */
} past_holder;

/* past_lives   - the lives of a node and of its children, sorted by path
 *   changes      of that node and those below it
 *   path         of the node
 *   now, count   ephemeral nodes that exist now, at path and its children
 *   lives_out    out: for free(); the paths are those of changes and now
 *   Returns how many; -1 without memory
 * past_holders - the holders at a time
 *   at           a time in ms since 1970
 *   holders_out  out: for free()
 *   Returns how many; -1 without memory
 *
 * The holder is the node itself, if it was ephemeral; else the first of the
 * line among its children, with all readers that follow a reader.  For a
 * semaphore it is all in the line: its limit then is not known. */
int past_lives(const past_changes *changes, const char *path,
               const past_node *now, int count, past_life **lives_out);
int past_holders(const past_changes *changes, const char *path,
                 const past_life *lives, int count, int64_t at,
                 past_holder **holders_out);

#endif
