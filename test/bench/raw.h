/* raw.h - the benchmark's raw side: what a program would write by hand
 *
 * The tables of doc/format.md and the row changes and reads of each operation
 * as plain prepared SQL: no gate for writers, no path or permission checks,
 * no liveness, no wake-ups.  It is the floor that bench.c compares with; the
 * recipes' steps are made of these calls, and of bare wake-ups.
 * Every failure prints a sentence and ends the program.
 */
#ifndef ZKE_BENCH_RAW_H
#define ZKE_BENCH_RAW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct raw raw;

/* A node, taken apart beforehand so that no string work is timed. */
typedef struct raw_key {
  char path[128];       /* "/a/b" */
  char parent[64];      /* "/a" */
  char name[64];        /* "b" */
  char grand[64];       /* "/": with parent_name the parent's own row */
  char parent_name[64]; /* "a" */
} raw_key;

typedef struct raw_stat {
  int64_t czxid, mzxid, pzxid, ctime, mtime, version, aversion, creates;
  int64_t nchild, owner, len;
} raw_stat;

enum {
  RAW_WATCH_KIND = 2,
  RAW_WATCH_END = 1 /* of a node that is written, but has no children */
};
enum { RAW_CACHE_KIB = 256, RAW_PAGE_SIZE = 4096, RAW_CHECKPOINT_PAGES = 2048 };

/* Open or create the database, and insert a session for it; or only read one
 * that is there, zkembed's too, which has the same tables. */
raw *raw_open(const char *file);
raw *raw_open_reader(const char *file);
void raw_close(raw *r);
int64_t raw_session(const raw *r);

/* synchronous=FULL for the transactions to come, or NORMAL. */
void raw_durable(raw *r, bool durable);

/* Each is one transaction; count nodes are made, or deleted, in one.  Ephemeral
 * ones get this connection's session as their owner.  Node, parent and whatever
 * else is read must exist, except for watching. */
void raw_create(raw *r, const raw_key *keys, int count, bool ephemeral,
                const void *data, int len);
void raw_create_container(raw *r, const raw_key *key);
void raw_delete(raw *r, const raw_key *keys, int count);
void raw_set(raw *r, const raw_key *key, const void *data, int len);
void raw_unwatch(raw *r, const raw_key *key);

/* Returns the node's owner, 0 for none, -1 where there is no such node. */
int64_t raw_watch(raw *r, const raw_key *key, int kind);

/* A session has died that owned this node and no other.  Returns whether we
 * were the first to bury it. */
bool raw_bury(raw *r, const raw_key *key, int64_t session);

/* Create the next of a directory's children, "<prefix>0000000007"; where it
 * announces that, the directory's own data is written in the same step. */
void raw_append(raw *r, const raw_key *directory, const char *prefix,
                bool ephemeral, bool announce, const void *data, int len,
                raw_key *key_out);

/* The session that the last change has left an event for, or 0. */
int64_t raw_woken(const raw *r);

/* The data or the NUL-separated names are copied to a buffer that is large
 * enough; returns the bytes of data or the number of names. */
int raw_get(raw *r, const raw_key *key, void *data_out, raw_stat *stat_out);
int raw_children(raw *r, const raw_key *key, char *names_out,
                 raw_stat *stat_out);

/* Read one's new events; they go with one's next change.  Returns how many. */
int raw_events(raw *r);

#endif
