/* raw.h - the benchmark's raw side: a program's own SQL
 *
 * The tables of doc/format.md and the row changes and reads of each operation
 * as plain prepared SQL: no gate for writers, no path or permission checks, no
 * liveness, no wake-ups.  This is the floor that bench.c compares with; floor.c
 * makes the recipes' steps of these calls, and of bare wake-ups.  Every failure
 * prints a sentence and ends the program.
 */
#ifndef ZKE_BENCH_RAW_H
#define ZKE_BENCH_RAW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct raw raw;

/* A node, with its path split in advance, so no string work is timed. */
typedef struct raw_key {
  char path[128];       /* "/a/b" */
  char parent[64];      /* "/a" */
  char name[64];        /* "b" */
  char grand[64];       /* "/": with parent_name the parent's row */
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

/* Open or create the database, and insert a session for it; or open an existing
 * one read-only, such as zkembed's, which has the same tables. */
raw *raw_open(const char *file);
raw *raw_open_reader(const char *file);
void raw_close(raw *r);
int64_t raw_session(const raw *r);

/* synchronous=FULL for later transactions, or NORMAL. */
void raw_durable(raw *r, bool durable);

/* Each is one transaction, which creates or deletes count nodes.  This
 * connection's session owns the ephemeral ones.  The node, its parent and all
 * else that is read must exist, except for watching. */
void raw_create(raw *r, const raw_key *keys, int count, bool ephemeral,
                const void *data, int len);
void raw_create_container(raw *r, const raw_key *key);
void raw_delete(raw *r, const raw_key *keys, int count);
void raw_set(raw *r, const raw_key *key, const void *data, int len);
void raw_unwatch(raw *r, const raw_key *key);

/* Returns the node's owner, 0 for none, -1 if there is no such node. */
int64_t raw_watch(raw *r, const raw_key *key, int kind);

/* The session that owned only this node has died.  Returns whether we were the
 * first to delete it. */
bool raw_bury(raw *r, const raw_key *key, int64_t session);

/* Create a directory's next child, "<prefix>0000000007"; if it announces, also
 * write the directory's own data in the same step. */
void raw_append(raw *r, const raw_key *directory, const char *prefix,
                bool ephemeral, bool announce, const void *data, int len,
                raw_key *key_out);

/* The session that got an event from the last change, or 0. */
int64_t raw_woken(const raw *r);

/* Copy the data or the NUL-separated names to a sufficient buffer; returns the
 * bytes of data or the number of names. */
int raw_get(raw *r, const raw_key *key, void *data_out, raw_stat *stat_out);
int raw_children(raw *r, const raw_key *key, char *names_out,
                 raw_stat *stat_out);

/* Read our new events; the next change deletes them.  Returns how many. */
int raw_events(raw *r);

#endif
