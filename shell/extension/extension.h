/* extension.h - zkembed in the SQL of any SQLite connection: shared by its
 * files
 *
 * A connection that loads the extension gets the functions of doc/extension.md.
 * The first call opens a handle on the connection's own file, "main", as one
 * session of zkembed.  The session ends with the connection, or by zke_close().
 *
 *   load.c        the init function, and the entry of every function
 *   connection.c  the connections of the process, and their handles
 *   call.c        arguments and errors
 *   owned.c       a connection's locks, queues and the like
 *   patience.c    waits that can be interrupted
 *   tree.c        znodes
 *   hold.c        locks, semaphores, elections
 *   queue.c       queues
 *   count.c       counters
 *   wait.c        waiting for a change, descriptors
 *   rows.c        transactions with the program's own rows
 *   outbox.c      rows that are moved to the tree after their commit
 *   send.c        functions and triggers that insert such rows
 *   table.c       table-valued functions
 *   alone.c       has another SQLite library the file open?
 *
 * A function is a row of its file's table (ext_function) and returns a zkembed
 * code.  call() in load.c wraps it: it opens the handle, refuses calls that
 * would wait for themselves, and converts the code to an SQLite error.
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
  bool adopted;      /* zke_sql_adopt() has succeeded; this is permanent */
  bool echoed;       /* wait.c: the alarm of ext_dispatch() was called */
  bool guest;        /* between zke_begin() and its end, on some thread */
  ext_owned *owned;  /* owned.c */
  int64_t items;     /* queue.c: the last number of a claimed item */
  bool moving;       /* outbox.c: rows are being moved */
  bool unmoved;      /* outbox.c: the last look may have left rows */
  bool no_outbox;    /* outbox.c: it found no table */
  int64_t moved_ms;  /* outbox.c: the time of that */
  int log_pages;     /* outbox.c: from this length on the log is too long */
  int64_t looked_ms; /* when ext_alone() last looked; 0: never */
  int64_t open_ms;   /* alone.c: when it last looked at each descriptor, */
  int64_t open;      /* and how many there were; 0: unknown */
  int users;         /* SQLite's functions and tables that point to it */
  struct ext_connection *next; /* connection.c */
} ext_connection;

/* One call of a function. */
typedef struct ext_call {
  sqlite3_context *sql;
  ext_connection *k;
  const ext_function *function;
  int count;
  sqlite3_value **value;
} ext_call;

/* What a function does, and when it is therefore refused. */
enum ext_kind {
  EXT_LOOKS,   /* reads the handle, or nothing: never refused */
  EXT_READS,   /* reads the tree: never */
  EXT_ADDS,    /* adds rows in the connection's transaction: never */
  EXT_CHANGES, /* changes it: in a writing transaction, whose lock it needs */
  EXT_WAITS    /* or acquires what protects rows: in any transaction, which
                  would still see the old rows */
};

struct ext_function {
  const char *name;
  int least;             /* how many arguments it needs */
  const char *arguments; /* a letter for each that it can have: ext_check() */
  enum ext_kind kind;
  int (*run)(ext_call *c); /* ZKE_OK: its result is set, or is NULL */
};

/* The shortest time between two checks of a waiting call, for an interruption
 * and of the outbox.  ext_outbox_gap() is the longest. */
enum { EXT_SLICE_MS = 100 };

/* The attempts of a queue that the extension makes: the same as for the command
 * zke. */
enum { EXT_NEW_ATTEMPTS = 5 };

/* The tables, which end with a name of NULL. */
extern const ext_function ext_tree[], ext_lines[], ext_queues[], ext_counters[],
    ext_waiting[], ext_rows[], ext_sending[];

/* ext_begin      - a connection, with one user; NULL without memory
 * ext_release    - removes one user; without any it is closed, and gone
 * ext_is_loaded  - does the connection have all functions, perhaps of another
 *                  copy of this library?
 * ext_refuses    - why this SQLite cannot load it; NULL: it can.  It is too
 *                  old, or another one has loaded it, and two in one process
 *                  drop each other's locks
 * ext_open       - makes sure of the handle, with the connection as its guest
 * ext_close      - releases everything, and ends its session.  ZKE_OK, or
 *                  ZKE_MISUSE if this thread is between zke_begin() and its end
 * ext_alone      - checks that no other SQLite of the process has the file
 *                  open, at most once a second
 * ext_error_text - the code's name and the sentence; for sqlite3_free(), or
 *                  NULL without memory */
ext_connection *ext_begin(sqlite3 *db);
void ext_release(ext_connection *k);
bool ext_is_loaded(sqlite3 *db);
const char *ext_refuses(const sqlite3_api_routines *api);
int ext_open(ext_connection *k);
int ext_close(ext_connection *k);
int ext_alone(ext_connection *k);
char *ext_error_text(int rc);

/* ZKE_NOMEM.  It is defined here so that analysers see the value in each
 * file. */
static inline int ext_nomem(void) {
  zke_fail(ZKE_NOMEM, "out of memory");
  return ZKE_NOMEM;
}

/* ext_left  - the transaction of zke_begin() has ended
 * ext_leave - ends it if this thread has begun it, and the program has ended it
 *             neither by zke_commit() nor by zke_rollback() */
void ext_left(ext_connection *k);
void ext_leave(ext_connection *k);

/* A znode's data: the bytes of a text or a blob, perhaps none; SQL's NULL is
 * NULL data. */
typedef struct ext_data {
  const void *data;
  int len; /* -1: NULL */
} ext_data;

/* Refuses a value that cannot be an argument of this sort: 't' text without a
 * zero byte, 'n' a number of 64 bits, 'i' one of 32 bits, 'd' data.  NULL is
 * never refused. */
int ext_check(const char *function, int at, char sort, sqlite3_value *value);

/* ext_text  - an argument as text; NULL if it is NULL or not given.  Valid
 *             until the function returns
 * ext_path  - the same as a znode's path: a name without a slash is below
 *             /BASE/.  ZKE_BADARGUMENTS without one, ZKE_NOMEM
 * ext_znode - the first argument as a znode's whole path; ZKE_BADARGUMENTS
 *             without one
 * ext_bytes - an argument as data; valid as ext_text()
 * ext_int   - an argument as a number; `without` if it is NULL or not given
 * ext_until - the same in ms from now, as a deadline of zke_now(); ZKE_FOREVER
 *             without one */
const char *ext_text(const ext_call *c, int at);
int ext_path(const ext_call *c, int at, const char *base, char **path_out);
int ext_znode(const ext_call *c, const char **path_out);
ext_data ext_bytes(const ext_call *c, int at);
int64_t ext_int(const ext_call *c, int at, int64_t without);
int64_t ext_until(const ext_call *c, int at);

/* Does what is due, for a call that asks about one thing.  It may concern
 * another that the program waits for; then zke_fd() is readable once more. */
int ext_dispatch(ext_connection *k);

/* ext_done - ends a function that returns 1 on success
 * ext_wake - a watcher that does nothing: its only purpose is that zke_fd()
 *            becomes readable
 * ext_file - the connection's file; NULL: it is in memory, or temporary
 * ext_is_missing - does it lack this table?  False if this cannot be found
 * out */
int ext_done(ext_call *c, int rc);
void ext_wake(zke *z, int type, int state, const char *path, void *context);
const char *ext_file(const ext_connection *k);
bool ext_is_missing(sqlite3 *db, const char *table);

/* ext_is_interrupted - was sqlite3_interrupt() called since the statement
 *                      began? */
bool ext_is_interrupted(sqlite3 *db);

/* A blocking call that sqlite3_interrupt() ends.  Between begin and end the
 * call's own waits check for it, and then cancel the call: ten times a second,
 * and less often the longer it lasts.  They also cancel it if another SQLite
 * library opens the file.
 *
 * ext_patience_end() returns ZKE_OK if nothing ended the call, else
 * ZKE_CANCELLED or the code of ext_alone(). */
typedef struct ext_patience {
  const ext_call *c;
  int (*cancel)(void *object); /* NULL: none is needed */
  void *object;
  sqlite3_stmt *look; /* reports an interruption and others' commits */
  int64_t seen;       /* the commit after which the outbox was checked; -1 */
  int64_t begun_ms;
  int ended; /* ZKE_OK: it was not */
} ext_patience;
int ext_patience_begin(ext_patience *p);
int ext_patience_end(ext_patience *p);

/* The result of a waiting call that has failed: NULL at the deadline,
 * SQLITE_INTERRUPT if it was interrupted, else its error. */
int ext_say_waited(ext_call *c, int rc);

/* A sort of things that a connection owns, each at a path. */
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

/* ext_owned_find   - the link to the one at a path, or the end of the list
 * ext_owned_get    - the same, but makes one if there is none
 * ext_owned_remove - releases the one at a link
 * ext_owned_free   - releases all */
ext_owned **ext_owned_find(ext_connection *k, const ext_sort *is,
                           const char *path);
int ext_owned_get(ext_call *c, const ext_sort *is, const char *path,
                  ext_owned ***out);
void ext_owned_remove(ext_owned **at);
void ext_owned_free(ext_connection *k);

/* The at-th thing that the connection holds or waits for in a line; after the
 * last one path is NULL. */
typedef struct ext_hold {
  const char *kind, *path;
  int64_t token; /* 0: it waits */
} ext_hold;
ext_hold ext_held_at(const ext_connection *k, int at);

/* ext_outbox_tables     - the SQL that creates the outbox
 * ext_outbox_hook       - checks the outbox after each commit from now on.  If
 *                         another hook has replaced ours, takes it back;
 *                         ZKE_MISUSE if that was the program's hook
 * ext_outbox_gap        - the time between two checks of a waiting call, in ms
 * ext_outbox_look       - moves rows to the tree, if a check is due.  Failed
 *                         moves are repeated later.  True: it has checked, and
 *                         no rows are left
 * ext_outbox_move       - moves all rows */
extern const char ext_outbox_tables[];
int ext_outbox_hook(ext_connection *k);
int64_t ext_outbox_gap(const ext_connection *k);
bool ext_outbox_look(ext_connection *k);
int ext_outbox_move(ext_connection *k);

/* ext_tables_add - gives a connection the tables of table.c; an SQLite code
 * ext_tables_use - from now on sqlite3_close() first ends the transaction of
 *                  zke_begin(), whose statements would keep it open */
int ext_tables_add(ext_connection *k);
int ext_tables_use(ext_connection *k);

#endif
