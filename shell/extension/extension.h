/* extension.h - zkembed in the SQL of any SQLite connection: what its files
 * share
 *
 * A connection that loads the extension gets the functions of doc/extension.md.
 * Its first call of one opens a handle on the connection's own file, "main",
 * which is one session of zkembed.  It ends with the connection, or by
 * zke_close().
 *
 *   load.c        the init function, the way into a function
 *   connection.c  the connections of the process, and their handles
 *   call.c        arguments and errors
 *   owned.c       what a connection keeps: locks, queues
 *   patience.c    waits that can be interrupted
 *   tree.c        znodes
 *   hold.c        locks, semaphores, elections
 *   queue.c       queues
 *   count.c       counters
 *   wait.c        waiting for a change, descriptors
 *   rows.c        transactions with rows of the program's own
 *   outbox.c      rows that are moved to the tree after their commit
 *   send.c        functions and triggers that insert such rows
 *   table.c       table-valued functions
 *   alone.c       whether another SQLite library has the file open
 *
 * A function is a row of its file's table (ext_function) and returns a code of
 * zkembed.  call() of load.c is around it: it opens the handle, refuses what
 * would wait for itself, and makes the code an error of SQLite's.
 */
#ifndef ZKE_EXTENSION_H
#define ZKE_EXTENSION_H

#include <stdbool.h>
#include <stdint.h>

#include "sqlite.h"

#include "../../zkembed.h"

typedef struct ext_owned ext_owned;
typedef struct ext_function ext_function;

/* A connection that has loaded the extension. */
typedef struct ext_connection {
  sqlite3 *db;
  zke *z;            /* NULL: not opened yet */
  bool adopted;      /* zke_sql_adopt() was successful; that stays */
  bool guest;        /* between zke_begin() and its end */
  ext_owned *owned;  /* owned.c */
  int64_t items;     /* queue.c: the last number that a claimed item got */
  bool moving;       /* outbox.c: rows are being moved */
  bool unmoved;      /* outbox.c: the last look may have left rows */
  bool no_outbox;    /* outbox.c: it has found no table */
  int64_t moved_ms;  /* outbox.c: when that was */
  int log_pages;     /* outbox.c: if the log has so many, it is too long */
  int64_t looked_ms; /* when ext_alone() last looked; 0: never */
  int64_t open_ms;   /* alone.c: when it last looked at each descriptor, */
  int64_t open;      /* and how many there were; 0: unknown */
  int users;         /* functions and tables of SQLite's that point to it */
  struct ext_connection *next;
} ext_connection;

/* One call of a function. */
typedef struct ext_call {
  sqlite3_context *sql;
  ext_connection *k;
  const ext_function *function;
  int count;
  sqlite3_value **value;
} ext_call;

/* What a function does, and so when it is refused. */
enum ext_kind {
  EXT_LOOKS,   /* at the handle, or at nothing: never */
  EXT_READS,   /* the tree: never */
  EXT_ADDS,    /* rows of the connection's own, in its transaction: never */
  EXT_CHANGES, /* it: in a transaction that writes, whose lock it needs */
  EXT_WAITS    /* or takes what protects rows: in each transaction, which would
                  go on to see them as they were before */
};

struct ext_function {
  const char *name;
  int least, most; /* arguments */
  enum ext_kind kind;
  int (*run)(ext_call *c); /* ZKE_OK: its result is set, or is NULL */
};

/* The shortest time between two looks of a call that waits, for an interruption
 * and at the outbox.  ext_outbox_gap() is the longest. */
enum { EXT_SLICE_MS = 100 };

/* The attempts of a queue that the extension makes: those of one that the
 * command zke makes. */
enum { EXT_NEW_ATTEMPTS = 5 };

/* The tables, which end with a name of NULL. */
extern const ext_function ext_tree[], ext_lines[], ext_queues[], ext_counters[],
    ext_waiting[], ext_rows[], ext_sending[];

/* ext_begin      - enter a connection into the list of the process, with one
 *                  user; NULL: it is there already.  An SQLite code
 * ext_release    - one user less; without any it is closed, and gone
 * ext_is_another - was the extension loaded by another SQLite before?  Two of
 *                  them in one process drop each other's locks
 * ext_open       - the handle is there, and has the connection as its guest
 * ext_close      - release what it has, and end its session
 * ext_alone      - nobody else in the process has the file open by another
 *                  SQLite; looks once a second at most
 * ext_error_text - the code's name and the sentence; for sqlite3_free(), or
 *                  NULL without memory */
int ext_begin(sqlite3 *db, ext_connection **k_out);
void ext_release(ext_connection *k);
bool ext_is_another(const sqlite3_api_routines *api);
int ext_open(ext_connection *k);
void ext_close(ext_connection *k);
int ext_alone(ext_connection *k);
char *ext_error_text(int rc);

/* ZKE_NOMEM.  It stands here so that the checkers of a file see that. */
static inline int ext_nomem(void) {
  zke_fail(ZKE_NOMEM, "out of memory");
  return ZKE_NOMEM;
}

/* A znode's data: the bytes of a text or a blob, of no bytes too; SQL's NULL is
 * NULL data. */
typedef struct ext_data {
  const void *data;
  int len; /* -1: NULL */
} ext_data;

/* ext_text  - an argument as a text; NULL where it is NULL or not given.  Valid
 *             until the function returns
 * ext_path  - the same as a znode's path: a name without a slash is below
 *             /BASE/.  ZKE_BADARGUMENTS without one, ZKE_NOMEM
 * ext_znode - the first argument as a znode's whole path; ZKE_BADARGUMENTS
 *             without one
 * ext_bytes - an argument as data; valid as ext_text()
 * ext_int   - an argument as a number; `without` where it is NULL or not given
 * ext_until - the same in ms from now on, as a deadline of zke_now(); without
 *             one: ZKE_FOREVER */
const char *ext_text(const ext_call *c, int at);
int ext_path(const ext_call *c, int at, const char *base, char **path_out);
int ext_znode(const ext_call *c, const char **path_out);
ext_data ext_bytes(const ext_call *c, int at);
int64_t ext_int(const ext_call *c, int at, int64_t without);
int64_t ext_until(const ext_call *c, int at);

/* ext_done - the end of a function whose result is 1 if it was successful
 * ext_wake - a watcher that does nothing: zke_fd() becomes readable, which is
 *            all that it is for
 * ext_file - the connection's file; NULL: it is in memory, or temporary
 * ext_is_missing - is there no such table in it?  What cannot be found out is
 *                  no */
int ext_done(ext_call *c, int rc);
void ext_wake(zke *z, int type, int state, const char *path, void *context);
const char *ext_file(const ext_connection *k);
bool ext_is_missing(sqlite3 *db, const char *table);

/* ext_is_interrupted - was sqlite3_interrupt() called since the statement
 *                      began? */
bool ext_is_interrupted(sqlite3 *db);

/* A blocking call that sqlite3_interrupt() ends.  Between begin and end the
 * call's own waits look for it, and then cancel it: ten times a second, and
 * less often the longer it lasts.  So they do if another SQLite library comes.
 *
 * ext_patience_end() returns ZKE_OK if the call was not ended so, else
 * ZKE_CANCELLED or what ext_alone() says. */
typedef struct ext_patience {
  const ext_call *c;
  int (*cancel)(void *object); /* NULL: none is needed */
  void *object;
  sqlite3_stmt *look; /* tells of an interruption and of others' commits */
  int64_t seen;       /* which of these the outbox was looked at after; -1 */
  int64_t begun_ms;
  int ended; /* ZKE_OK: it was not */
} ext_patience;
int ext_patience_begin(ext_patience *p);
int ext_patience_end(ext_patience *p);

/* The result of a call that waits and has failed: NULL at the deadline,
 * SQLITE_INTERRUPT if it was interrupted, else its error. */
int ext_say_waited(ext_call *c, int rc);

/* A sort of things that a connection keeps, each at a path. */
typedef struct ext_sort {
  int (*make)(ext_call *c, const char *path, void **object_out);
  void (*free_)(void *object);
} ext_sort;

struct ext_owned {
  const ext_sort *is;
  void *object;
  ext_owned *next;
  char path[];
};

/* ext_owned_find   - the place of the one at a path, or that at the list's end
 * ext_owned_get    - the same, and one is made if there is none
 * ext_owned_remove - release the one at a place
 * ext_owned_free   - release all */
ext_owned **ext_owned_find(ext_connection *k, const ext_sort *is,
                           const char *path);
int ext_owned_get(ext_call *c, const ext_sort *is, const char *path,
                  ext_owned ***out);
void ext_owned_remove(ext_owned **at);
void ext_owned_free(ext_connection *k);

/* What the connection holds or waits for in a line: the at-th; with a path of
 * NULL behind the last. */
typedef struct ext_hold {
  const char *kind, *path;
  int64_t token; /* 0: it waits */
} ext_hold;
ext_hold ext_held_at(const ext_connection *k, int at);

/* ext_outbox_tables     - the SQL that makes the outbox
 * ext_outbox_hook       - have it looked at after each commit.  It looks
 *                         whether somebody has taken the hook away, and takes
 *                         it back.  ZKE_MISUSE if it was a hook of the
 *                         program's
 * ext_outbox_gap        - how long after a look a call that waits makes the
 *                         next, in ms
 * ext_outbox_look       - move rows to the tree, if it is time to look.  What
 *                         fails is tried again later.  True: it has looked, and
 *                         there were none or all are moved
 * ext_outbox_move       - move all that are there */
extern const char ext_outbox_tables[];
int ext_outbox_hook(ext_connection *k);
int64_t ext_outbox_gap(const ext_connection *k);
bool ext_outbox_look(ext_connection *k);
int ext_outbox_move(ext_connection *k);

/* Give a connection the tables of table.c; an SQLite code. */
int ext_tables_add(ext_connection *k);

#endif
