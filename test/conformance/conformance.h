/* conformance.h - what the parts of the conformance program share
 *
 *     base.c     memory of one operation, event lists, printing
 *     gen.c      random operations, each from (seed, index) alone
 *     zke.c      a session of zkembed
 *     client.c   a session of ZooKeeper through its C client
 *     raw.c      a session of ZooKeeper through its wire protocol
 *     compare.c  what must be equal
 *     masks.c    what is not compared, and why
 *     ensemble.c zkembed on a second server instead of a file
 *     map.c      zxids, times and session ids of both sides
 *     tree.c     the tree of a run: its start, and what operations need of it
 *     run.c      one run of operations on both sides
 *     conformance.c   seeds, shrinking, reports
 *
 * An operation is a cf_op; a session of either side answers it with a cf_reply
 * and collects the events that came before the reply.
 */
#ifndef ZKE_CONFORMANCE_H
#define ZKE_CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "masks.h"
#include "zkembed.h"

enum {
  CF_SEATS = 6,   /* most sessions at once; one more inspects the end */
  CF_WATCHERS = 3 /* contexts that a session of the C client registers */
};

#define CF_BASE "/base" /* the node below which most of a run happens */

/* ---- operations and replies ---- */

/* Name, weight in ten thousand, which clients can do it: C client, wire
 * protocol.  If neither can, only wire.c does it, on both sides. */
#define CF_KIND_LIST(X)      \
  X(CREATE, 2200, 1, 1)      \
  X(DELETE, 1100, 1, 1)      \
  X(EXISTS, 1150, 1, 1)      \
  X(GET, 950, 1, 1)          \
  X(SET, 1100, 1, 1)         \
  X(CHILDREN, 850, 1, 1)     \
  X(GET_ACL, 200, 1, 1)      \
  X(SET_ACL, 250, 1, 1)      \
  X(SYNC, 60, 1, 1)          \
  X(MULTI, 1000, 1, 1)       \
  X(MULTI_READ, 150, 0, 1)   \
  X(COUNT, 120, 0, 1)        \
  X(EPHEMERALS, 120, 0, 1)   \
  X(ADD_WATCH, 250, 0, 1)    \
  X(REMOVE_WATCH, 250, 1, 1) \
  X(ADD_AUTH, 80, 1, 1)      \
  X(FLUSH, 60, 1, 1)         \
  X(CLOSE, 60, 1, 1)         \
  X(EXPIRE, 12, 1, 1)        \
  X(KILL, 6, 0, 1)           \
  X(CHECK, 0, 0, 0)          \
  X(PING, 60, 0, 0)          \
  X(WHO_AM_I, 60, 0, 0)      \
  X(SET_WATCHES, 120, 0, 0)  \
  X(CHECK_WATCH, 120, 0, 0)  \
  X(RECONNECT, 60, 0, 0)     \
  X(MALFORMED, 200, 0, 0)

#define CF_KIND_ENUM(name, weight, client, raw) CF_##name,
typedef enum cf_kind { CF_KIND_LIST(CF_KIND_ENUM) CF_KINDS } cf_kind;
#undef CF_KIND_ENUM

/* How a version is filled in just before the operation. */
enum { CF_LITERAL, CF_CURRENT };

typedef struct cf_op {
  cf_kind kind;
  int seat;
  bool listen_first; /* zkembed also dispatches before the operation */
  bool revive;       /* close a dead session instead */
  bool whole;        /* create: the form that returns a Stat */
  int revisit;       /* >= 0: the path was watched recently */
  int pick;          /* >= 0: the name of an existing child */
  const char *below; /* after that: a further name, or NULL */
  int version_rule;  /* CF_LITERAL or CF_CURRENT (+ version) */
  int watch;         /* number of the context, 0: none */
  int type;          /* ADD_WATCH: mode; REMOVE_WATCH, CHECK_WATCH: type;
                      * RECONNECT and MALFORMED: in which way; CREATE: the type
                      * on the wire, 0: by the mode */
  int chance;        /* further random choice for this way */
  int ahead;         /* over the wire: so many more are sent with it */
  const char *path;
  const char *data; /* NULL with len -1 */
  int len;
  zke_acls acls;
  int mode;
  int64_t ttl_ms;
  int version;
  const char *scheme; /* ADD_AUTH; the certificate is data */
  int count;          /* MULTI, MULTI_READ, SET_WATCHES; MALFORMED: 1 */
  struct cf_op *subs;
} cf_op;

typedef struct cf_reply {
  int rc;
  bool local; /* the client answered, so events may still be under way */
  bool has_stat, has_data, has_names, has_acls, has_count;
  zke_stat stat;
  const char *path; /* made; NULL: none returned */
  const char *data;
  int len;
  zke_strings names;
  zke_acls acls;
  int64_t number;
  int count; /* of a multi's results; 0 if they were left untouched */
  struct cf_reply *subs;
} cf_reply;

/* ---- events ---- */

typedef struct cf_event {
  int type, state, watch;
  char *path;
} cf_event;

typedef struct cf_events {
  cf_event *at;
  int count, cap;
} cf_events;

void cf_events_add(cf_events *e, int type, int state, const char *path,
                   int watch);
void cf_events_move(cf_events *to, cf_events *from); /* appends */
void cf_events_free(cf_events *e);
/* Reduce a session's events up to its own end: each watcher heard of it. */
void cf_events_of_own_end(cf_events *e);

/* ---- memory of one operation, text, trouble ---- */

void *cf_alloc(size_t size); /* zeroed; lives until cf_reset() */
char *cf_copy(const void *bytes, size_t len); /* with a NUL after it */
char *cf_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cf_reset(void);

/* The harness itself cannot go on: exit status 2. */
_Noreturn void cf_die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

int64_t cf_now_ms(void); /* monotonic */

/* "" in C's quotes, long ones shortened; in memory of the operation. */
const char *cf_quote(const char *bytes, int len);
const char *cf_describe(const cf_op *op);
const char *cf_describe_reply(const cf_reply *r);
const char *cf_describe_events(const cf_events *e);
const char *cf_kind_name(cf_kind kind);

/* What the C client accepts as a path (semantics.md 1.3). */
bool cf_client_passes(const cf_op *op);

/* A path below the chroot of a session, "" for none: whole, and shown. */
const char *cf_whole(const char *chroot, const char *path);

/* ---- the generator ---- */

typedef struct cf_seat_plan {
  bool client;  /* through the C client, else raw */
  bool chroot;  /* below CF_BASE */
  bool sibling; /* zkembed: a session on an existing store, else its own */
} cf_seat_plan;

/* Chosen once by a seed. */
typedef struct cf_plan {
  uint64_t seed;
  bool file;   /* zkembed on a file, else in memory */
  bool quiet;  /* everybody may read everything: no event is withheld */
  bool wire;   /* both sides over the wire; zkembed's is `zke FILE serve` */
  int servers; /* of zkembed on the file, over the wire */
  int seats;
  cf_seat_plan seat[CF_SEATS + 1]; /* the last one inspects the end */
  int depth;                       /* of paths, at most */
  int hostile;                     /* odd paths, per thousand */
  int names;
  const char *name[12];
  int weight[CF_KINDS];
} cf_plan;

void cf_plan_make(uint64_t seed, cf_plan *plan);
void cf_plan_wire(uint64_t seed, cf_plan *plan);
void cf_generate(const cf_plan *plan, int index, cf_op *op);

/* Identities of sessions: "user:password". */
#define CF_USERS 4
const char *cf_user(int i);

/* ---- sessions of both sides ---- */

/* One kind of session.  Replies live as long as the operation. */
typedef struct cf_driver {
  const char *name;
  void *(*open)(const char *chroot);
  void (*call)(void *session, const cf_op *op, cf_reply *reply);
  void (*flush)(void *session); /* until all events so far are there */
  /* Take the events that came before the last reply. */
  void (*events)(void *session, cf_events *out);
  int64_t (*id)(void *session);
  /* End the session and wait until the session knows.  by_timeout: like the
   * death of its process, otherwise like an expiry. */
  void (*expire)(void *session, bool by_timeout);
  int (*close)(void *session); /* end and free */
} cf_driver;

extern const cf_driver cf_client_driver, cf_raw_driver;

extern int cf_port; /* of the server, on 127.0.0.1 */

/* A raw connection outside any run, with all permissions. */
typedef struct cf_raw cf_raw;
bool cf_raw_is_up(void); /* does a server answer, within a second? */
cf_raw *cf_raw_open(const char *chroot);
cf_raw *cf_raw_open_at(int port, const char *chroot); /* another server */
void cf_raw_call(cf_raw *r, const cf_op *op, cf_reply *reply);
int cf_raw_close(cf_raw *r);
int64_t cf_raw_look(cf_raw *r); /* the current zxid */
void cf_raw_await_expiry(cf_raw *watch, int64_t before);
/* Take over a session and end it, immediately or by its timeout; returns when
 * it has ended. */
void cf_raw_end(int64_t id, const char password[16], bool by_timeout);

/* zkembed: the database of a run, with a session that only the harness uses,
 * and the sessions on it. */
typedef struct cf_store cf_store;
typedef struct cf_zke cf_zke;
extern zke_options cf_zke_options; /* of every session; may be set before */
cf_store *cf_store_open(const char *file); /* NULL: in memory */
void cf_store_close(cf_store *s);
zke *cf_store_anchor(cf_store *s);
cf_zke *cf_zke_open(cf_store *s, const char *chroot, bool sibling);
void cf_zke_call(cf_zke *z, const cf_op *op, cf_reply *reply);
void cf_zke_listen(cf_zke *z); /* dispatches, keeps the events */
void cf_zke_events(cf_zke *z, cf_events *out); /* dispatches, gives them */
int64_t cf_zke_id(cf_zke *z);
/* Its session was ended on a server: wait until it knows. */
void cf_zke_await_end(cf_zke *z);
int cf_zke_close(cf_zke *z);

/* ---- the tree of a run ---- */

/* A growing list of paths. */
typedef struct cf_paths {
  char **at;
  int count, cap;
} cf_paths;

void cf_paths_add(cf_paths *p, const char *path);
bool cf_paths_have(const cf_paths *p, const char *path);
void cf_paths_free(cf_paths *p);

/* A watched path, as the server knows it. */
typedef struct cf_watched {
  int seat;
  char *path;
} cf_watched;

enum { CF_RECENT = 24 };

typedef struct cf_tree {
  const cf_plan *plan;
  cf_raw *control; /* a super user's session on the server */
  cf_raw *other;   /* the same on zkembed's server; NULL: it has none */
  char *file;      /* of the database; NULL: in memory */
  cf_store *store;
  cf_watched recent[CF_RECENT]; /* a ring */
  unsigned recent_at;
} cf_tree;

/* Clear the server, and make an equal database in an empty directory. */
void cf_tree_begin(cf_tree *t, const cf_plan *plan);
void cf_tree_end(cf_tree *t);
void cf_tree_list(cf_tree *t, cf_paths *out); /* parents before children */
void cf_note_watched(cf_tree *t, const cf_op *op);
void cf_resolve(cf_tree *t, cf_op *op);         /* fills in parts from the
                                                 * tree */
bool cf_stays_here(int seat, const char *path); /* the watches of a path */
void cf_must(int rc, const char *what);         /* be ZKE_OK */

/* ---- zkembed on a second server ---- */

/* The address for the engine of ensembles; NULL: zkembed is on a file. */
extern const char *cf_ensemble;

/* The parent of this engine's session nodes. */
#define CF_SESSIONS "/zke-sessions"

void cf_ensemble_use(int port);
void cf_ensemble_choose(uint64_t seed);
cf_raw *cf_ensemble_control(void);
/* Bring the nodes that cannot be made anew to equal counters. */
void cf_ensemble_level(cf_raw *server, cf_raw *other);
/* Is the path below a node where only this engine makes nodes? */
bool cf_ensemble_hides(const char *path);
/* How many nodes the second server has there. */
int64_t cf_ensemble_hidden(cf_raw *other);

/* ---- comparing ---- */

typedef struct cf_compare cf_compare;
cf_compare *cf_compare_new(void);
void cf_compare_free(cf_compare *c);
void cf_compare_session(cf_compare *c, int64_t server, int64_t zke_id);

/* Do these correspond?  The change that two zxids name, or NULL; the times of a
 * change; zxids that may be between changes. */
typedef struct cf_change cf_change;
bool cf_same_owner(const cf_compare *c, int64_t server, int64_t zke_id);
cf_change *cf_same_change(cf_compare *c, int64_t server, int64_t zke_side);
bool cf_same_time(cf_change *at, int64_t server_ms, int64_t zke_ms);
bool cf_same_moment(const cf_compare *c, int64_t server, int64_t zke_side);

/* NULL if all is well, else the difference, with the field's name before a
 * colon; in memory of the operation. */
const char *cf_compare_reply(cf_compare *c, const cf_op *op,
                             const cf_reply *server, const cf_reply *z);
enum {
  CF_BY_CLIENT = 1, /* through the C client, else raw */
  CF_ANY_ORDER = 2, /* a session's end is among the events */
  CF_SILENCED = 4   /* watches may have been removed without an event */
};
const char *cf_compare_events(unsigned how, cf_events *server, cf_events *z);
/* NULL if two Stats are of the same changes, else the difference. */
const char *cf_compare_stat(cf_compare *c, const zke_stat *server,
                            const zke_stat *z);
/* A copy without meaningless differences in order. */
zke_acl *cf_sorted_acls(const zke_acls *acls);
void cf_note_code(const cf_op *op, int rc);
void cf_note_event(int type);
void cf_note_end(cf_kind kind); /* of a session */
void cf_seen_print(void);       /* prints counts by operation and code */

/* ---- one run ---- */

typedef struct cf_mismatch {
  int at;         /* position in the list of indices; -1: none */
  char field[64]; /* kind of operation and field, to tell mismatches apart */
  char *text;     /* the whole report; free() it */
} cf_mismatch;

/* Fill it in: the operation is the at-th, and `why` begins with the differing
 * field, and a colon. */
void cf_tell(const cf_op *op, int at, const char *why, cf_mismatch *out);

/* How a connection comes back, or fails to; how a frame is malformed. */
enum {
  CF_DROPPED,    /* dropped, and resumed */
  CF_TAKEN_OVER, /* resumed while the previous one still exists */
  CF_OLD_CLIENT, /* resumed by a client from before 3.4 */
  CF_WRONG_PASSWORD,
  CF_UNKNOWN_SESSION,
  CF_FROM_THE_FUTURE, /* has seen a zxid of the future */
  CF_RECONNECTS
};
enum {
  CF_CUT_SHORT,
  CF_TOO_LONG,
  CF_OTHER_LENGTH, /* of its first text */
  CF_UNKNOWN_TYPE,
  CF_NO_HEADER,
  CF_HUGE,
  CF_NEGATIVE,
  CF_MALFORMATIONS
};

/* Run these operations of the plan on both sides.  true: a mismatch. */
bool cf_run(const cf_plan *plan, const int *indices, int count, bool verbose,
            cf_mismatch *out);
/* The same over the wire (wire.c); cf_zke is the program `zke`. */
bool cf_wire_run(const cf_plan *plan, const int *indices, int count,
                 bool verbose, cf_mismatch *out);
extern const char *cf_zke_program;

extern const char *cf_directory; /* for files */
extern int64_t cf_events_compared, cf_replies_compared;

#endif
