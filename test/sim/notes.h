/* notes.h - records each call of the load on the tree
 *
 * A file that includes this header makes its calls of zkembed.h through the
 * functions below, which have the same arguments; the macros at the end arrange
 * that.  Each notes the caller, the arguments, the answer, and the zxid of the
 * change that it made, or of the state that it saw.  If the process dies in a
 * call, its note has no answer.  At the end judge.c plays all notes through the
 * model.
 *
 * Each kind of call is one function over a table of functions (zke_engine), so
 * the engine and the model are called in the same way.
 */
#ifndef ZKE_SIM_NOTES_H
#define ZKE_SIM_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

/* name in zke_engine, and what the call does if it succeeds: C it changes the
 * tree and has its own zxid, M it may, R it does not */
#define NOTES_KIND_LIST(X)                                  \
  X(create, 'C')                                            \
  X(remove, 'C')                                            \
  X(set, 'C')                                               \
  X(set_acl, 'C')                                           \
  X(multi, 'C')                                             \
  X(raise_sequence, 'M')                                    \
  X(discard, 'R') /* its rows are searched; its nodes go */ \
  X(exists, 'R')                                            \
  X(get, 'R')                                               \
  X(children, 'R')                                          \
  X(get_acl, 'R')                                           \
  X(count, 'R')                                             \
  X(ephemerals, 'R')                                        \
  X(multi_read, 'R')                                        \
  X(add_auth, 'R')                                          \
  X(add_watch, 'R')                                         \
  X(set_watch, 'R')                                         \
  X(remove_watch, 'R')                                      \
  X(forget, 'R')                                            \
  X(batch, 'R')

#define NOTES_ENUM(name, does) NOTES_##name,
typedef enum notes_kind { NOTES_KIND_LIST(NOTES_ENUM) NOTES_KINDS } notes_kind;
#undef NOTES_ENUM

/* What a watcher was told. */
typedef struct notes_event {
  int type;
  int64_t zxid;
  const char *path;
  int when; /* how many calls were noted then */
} notes_event;

typedef struct notes_events {
  int count, room;
  notes_event *at;
} notes_events;

/* A call.  Members mean the same as the arguments of that name. */
typedef struct noted {
  notes_kind kind;
  int64_t session;
  const char *path;
  const void *data;
  int len;      /* of data or ops */
  int number;   /* version, mode, next number, type of a watch */
  int64_t wide; /* TTL, czxid, session, zxid of a state */
  zke_acls *acls;
  zke_op *ops;
  zke_watch_fn fn;
  void *context;
  struct noted *batch;  /* the batch that it is part of */
  struct noted *target; /* remove_watch, forget: the call that set the watch */
  /* times: what had been acknowledged, and the wall clock, ms */
  int64_t from, wall_begin, wall_end, wall_set;
  /* the answer */
  bool done; /* else its process has died in it, or it is still running */
  int rc;
  int64_t zxid;
  const char *text; /* the whole answer */
  zke_stat stat;
  int64_t *pzxids; /* of a multi_read's operations; 0: it has not answered */
  /* of a watch */
  notes_events told, owed; /* by the engine, by the model */
  int64_t cut; /* events up to this zxid were too many, and were dropped */
  bool used;   /* judge.c has played it */
} noted;

/* All of them, in the order in which they began. */
extern noted **notes_all;
extern int notes_count;

const char *notes_name(notes_kind kind);
char notes_does(notes_kind kind);
/* If the path is in a corner, "/o" or "/p" and its owner, the rest of the path:
 * corner.c or rights.c judges it.  Else NULL. */
const char *notes_corner(const char *path);

/* Make the call with an engine's functions on a handle.  Returns the answer as
 * a text, which the caller frees; *rc_out and *stat_out are parts of it. */
char *notes_make(const zke_engine *engine, zke *z, const noted *c, int *rc_out,
                 zke_stat *stat_out);

/* notes_told - a watcher with this context was told of an event
 * notes_cut  - a session was told that its events up to a zxid were dropped */
void notes_told(const void *context, int type, const char *path, int64_t zxid);
void notes_cut(int64_t session, int64_t zxid);
void notes_event_add(notes_events *list, int type, const char *path,
                     int64_t zxid);

/* zkembed.h's functions, noted. */
#define NOTED(name) __typeof__(zke_##name) notes_zke_##name
NOTED(create);
NOTED(create_ttl);
NOTED(delete);
NOTED(discard);
NOTED(raise_sequence);
NOTED(set);
NOTED(set_acl);
NOTED(multi);
NOTED(exists);
NOTED(get);
NOTED(children);
NOTED(get_acl);
NOTED(count);
NOTED(ephemerals);
NOTED(multi_read);
NOTED(batch);
NOTED(add_auth);
NOTED(add_watch);
NOTED(set_watch);
NOTED(remove_watch);
NOTED(forget);
#undef NOTED

#ifndef NOTES_PLAIN
#define zke_create notes_zke_create
#define zke_create_ttl notes_zke_create_ttl
#define zke_delete notes_zke_delete
#define zke_discard notes_zke_discard
#define zke_raise_sequence notes_zke_raise_sequence
#define zke_set notes_zke_set
#define zke_set_acl notes_zke_set_acl
#define zke_multi notes_zke_multi
#define zke_exists notes_zke_exists
#define zke_get notes_zke_get
#define zke_children notes_zke_children
#define zke_get_acl notes_zke_get_acl
#define zke_count notes_zke_count
#define zke_ephemerals notes_zke_ephemerals
#define zke_multi_read notes_zke_multi_read
#define zke_batch notes_zke_batch
#define zke_add_auth notes_zke_add_auth
#define zke_add_watch notes_zke_add_watch
#define zke_set_watch notes_zke_set_watch
#define zke_remove_watch notes_zke_remove_watch
#define zke_forget notes_zke_forget
#endif

#endif
