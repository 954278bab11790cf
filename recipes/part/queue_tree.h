/* queue_tree.h - for recipe authors: the znodes of a queue, and how one change
 * of them is made
 *
 * queue.c is the queue that programs use.  It stands on these files; each calls
 * only those before it in this list:
 *
 *   queue_tree.c   the names, the directories, and the step: one transaction
 *                  that is made exactly once (Q3 to Q6)
 *   queue_item.c   which item is the next, reading it, burying it (Q1 and Q7)
 *   queue_list.c   all items and letters as a list, counts, the end of a queue
 *   queue_put.c    one put, with its limit and its keys (Q2 and Q8)
 *   queue_claim.c  an object's claims, from beginning to end (Q1, Q5 and Q7)
 *   queue_wait.c   waiting for an item, or for room: the line and the watches
 *
 * The head of queue.c has the invariants Q1 to Q8, queue.h the layout of the
 * znodes.  Call every function of these files that takes a zke_queue with the
 * mutex of its zke_recipe held; it guards every member below. */
#ifndef ZKEMBED_RECIPES_QUEUE_TREE_H
#define ZKEMBED_RECIPES_QUEUE_TREE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "object.h"
#include "../queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The marks and names of the znodes. */
#define ZKE_Q_PLACE "queue" /* the kind in the data of the queue's znode */
#define ZKE_Q_LINE "line"   /* the directory in "entries" */

/* The latest time that an item's name can hold: 13 digits, which last until the
 * year 2286. */
#define ZKE_Q_DUE_MOST INT64_C(9999999999999)

/* The names of items for printf(), up to the '-' before the number.  The name
 * of an item that can be taken now has its priority, an int; that of a delayed
 * item also has the time, an int64_t.  zke_q_parse() reads them. */
#define ZKE_Q_ENTRY "entry-%03d"
#define ZKE_Q_LATER "later-%03d-%013" PRId64
enum { ZKE_Q_ITEM_ROOM = 48 /* for a slash, the name of an item, and a NUL */ };

/* What these functions return besides ZKE_OK and an error.  The user never sees
 * these codes.
 *
 * ZKE_Q_NOTHING - no item to take, or no room to put, at this moment
 * ZKE_Q_AGAIN   - something has changed since it was read: read it again
 * ZKE_Q_UNSURE  - it is unknown whether the step was made: zke_q_do() turns it
 *                 into ZKE_CONNECTIONLOSS
 * ZKE_Q_WHOLE   - numbers have wrapped around, so sorting the names by bytes
 *                 does not give the order of the items: read all names and sort
 *                 them (queue_item.c) */
enum {
  ZKE_Q_NOTHING = ZKE_NOT_YET,
  ZKE_Q_AGAIN = ZKE_LOOK_AGAIN, /* for zke_recipe_again() */
  ZKE_Q_UNSURE = ZKE_IN_DOUBT,
  ZKE_Q_WHOLE = ZKE_NOT_MADE + 1
};

enum { ZKE_Q_BATCH = 256 /* the most items that one step handles */ };

/* The parts of an item's name: "entry-100-0000000000" or
 * "later-100-1790000000000-0000000000". */
typedef struct zke_q_name {
  const char *name; /* points into the text that was parsed */
  int priority;     /* 0 to 999, lower goes first */
  int32_t number;   /* given by the tree; may wrap around and be negative */
  int64_t due_ms;   /* of zke_wall(); 0: it had no delay */
} zke_q_name;

/* The parts of a marker's name (Q7): "until-<ms>-<version>-<item>" of a claim,
 * "after-<ms>-<version>-<item>" of a delay. */
typedef struct zke_q_marker {
  const char *name, *item; /* not copies; item is the end of name */
  bool delay;              /* "after-", else "until-" */
  int64_t ms;      /* a claim's: of zke_now(); a delay's: of zke_wall() */
  int32_t version; /* of the item, after the claim raised it */
  bool over;       /* that time had passed when "taken" was read */
} zke_q_marker;

/* Some items of one kind, in order.  A look reads the first page; a caller that
 * passes over all of its items reads the next one. */
typedef struct zke_q_page {
  const char *kind;   /* "entry-" or "later-" */
  zke_strings *names; /* as they were read; order points into them */
  zke_q_name *order;
  int at,
      count; /* order[at] is the next one; the ones before were passed over */
  bool last; /* no items of the kind follow this page */
} zke_q_page;

/* A claim that this object holds. */
typedef struct zke_q_claim {
  struct zke_q_claim *next;
  int64_t token; /* the czxid of its znode */
  bool suspect;  /* its watch has fired: the znode may be gone */
  char *until;   /* path of its marker; NULL: it ends with the session */
  char *other;   /* open: path of the marker that may have replaced it; or
                    NULL */
  bool open;     /* it may have been prolonged: `until` or `other` is there */
  char *path;    /* of its znode in "taken"; after the struct, in its block */
} zke_q_claim;

/* Waiting for an item, or for room:
 *
 *     NO -----> YES <----> READY
 *      ^         |           |
 *      '---------+-----------'
 *
 *   NO -> YES     zke_queue_start(), or a call that has found nothing: the
 *                 object takes a place in the line and watches
 *   YES -> READY  a look has found something; the listener is told, or the
 *                 blocking call wakes up
 *   READY -> YES  the try found nothing after all, or failed; or no try has
 *                 come, and an event has used up a watch, or zke_queue_step()
 *                 was called: the listener is told again.  A blocking call
 *                 looks again after each sleep (queue_wait_on())
 *   to NO         a try succeeded, zke_queue_stop(), or the end of the blocking
 *                 call, of the session, or of the object */
enum zke_q_state { ZKE_Q_WAIT_NO, ZKE_Q_WAIT_YES, ZKE_Q_WAIT_READY };

typedef struct zke_q_wait {
  zke_queue *q;
  const char *kind; /* of its znode in the line: "take-" or "put-" */
  int event;        /* the event for the listener: ZKE_QUEUE_ITEM or _ROOM */
  enum zke_q_state state;
  bool blocking; /* a call waits; false: tell the listener */
  bool quiet;    /* the listener's try has failed: watch, and tell it only of
                    later changes */
  char *znode;   /* path of its znode in the line, or NULL */
  int need;      /* for room: the number of items to put */
  int64_t due;   /* for an item: look again at this time of zke_now() */
  int64_t until; /* blocking: end of the current sleep */
  struct queue_watch *watches; /* registered, not yet fired */
} zke_q_wait;

struct zke_queue {
  zke_recipe r; /* first: a zke_recipe * is a zke_queue * */
  zke_queue_options o;
  /* Paths, fixed when the object is made. */
  char *entries, *taken, *dead, *keys, *line, *stays;
  /* What is known of the queue in the file.  If this is out of date, a step
   * fails (Q3, Q4), and it is read again. */
  bool placed;         /* queue and user znode exist, as far as is known */
  int limit, attempts; /* of the queue; 0: none */
  int32_t version;     /* of the queue's znode when these were read (Q4) */
  char *user;          /* path of the user znode, or NULL */
  int32_t changes;     /* its version: the number of steps that this object made
                          (Q3) */
  /* The object's claims, and what it waits for. */
  zke_q_claim *claims;
  zke_q_wait taking, putting;
  /* What the last look has read, in one snapshot. */
  zke_q_page entry, later; /* the first items */
  zke_strings *claimed;    /* all names of "taken", sorted by bytes */
  int64_t claimed_zxid;    /* of the last creation or deletion among them */
  zke_q_marker *markers;   /* for these, sorted by item, one for each item */
  int marker_count;
  int64_t due;   /* of zke_wall(): when the earliest item that was not due is
                    due, or ZKE_FOREVER */
  int64_t until; /* of zke_now(): when the first claim ends, or ZKE_FOREVER */
};

/* ---- basics ---- */

/* zke_q_do - zke_recipe_do() for a try: what a queue reads, decides and changes
 *
 * A try, fn, calls zke_q_ready() and at most one zke_q_change(), and returns
 * their codes.  A deadline that has passed counts as one second from now, since
 * even a try that must not wait for others has to survive a lost reply. */
int zke_q_do(zke_queue *q, int (*fn)(zke *z, void *arg), void *arg,
             int64_t deadline_ms);

/* zke_q_remove - delete an ephemeral znode of this object, now or as soon as
 * the session can; frees *path and sets it to NULL.  NULL is fine */
int zke_q_remove(zke_queue *q, char **path);

/* zke_q_pack - copy a text to *at, and move *at past its NUL.  The caller has
 * counted the bytes.  Returns the copy */
char *zke_q_pack(char **at, const char *text);

/* ---- names ---- */

/* zke_q_parse        - parse the name of an item; false for any other name
 * zke_q_parse_marker - the same for a marker
 * zke_q_sort         - the items among names, in queue order: how many, or -1
 *                      without memory.  *out is one block; it points into names
 * zke_q_count_in     - how many items or letters a directory has; other nodes
 *                      are not counted; 0 on failure
 * zke_q_marker_path  - the path of a marker; one block, or NULL without memory
 * zke_q_key_path     - the path of a key's znode, with '/' and '%' escaped; one
 *                      block, or NULL without memory */
bool zke_q_parse(const char *name, zke_q_name *out);
bool zke_q_parse_marker(const char *name, zke_q_marker *out);
int zke_q_sort(zke *z, const zke_strings *names, zke_q_name **out);
int zke_q_count_in(zke_queue *q, const char *directory, int *count_out);
char *zke_q_marker_path(const zke_queue *q, bool delay, int64_t ms,
                        int32_t version, const char *item);
char *zke_q_key_path(const zke_queue *q, const char *key);

/* ---- the place ---- */

/* zke_q_see_kind - fail with ZKE_OTHERKIND if the path is not a queue.  A path
 * that does not exist is fine.  A node with empty data is marked as a queue
 * (zke_recipe_place()) */
int zke_q_see_kind(zke_queue *q);

/* zke_q_ready - make the queue if it is missing, make this object's user znode
 * in it, and read its settings
 *
 * Does nothing while q->placed says that all of this was done.  A new queue
 * gets its settings in the step that makes it, so it is never seen without
 * them.  A queue with settings given by a user stays: it gets a child that is
 * not a container.  ZKE_Q_AGAIN: something has gone meanwhile. */
int zke_q_ready(zke_queue *q);

/* zke_q_know - read the settings without making a queue, for functions that
 * only look.  ZKE_OK if there is no queue: it is read as empty */
int zke_q_know(zke_queue *q);

/* zke_q_see_gone - convert the code of a read of "entries": if it is missing,
 * the queue was removed, ZKE_Q_AGAIN.  Other codes are returned as they are */
int zke_q_see_gone(zke_queue *q, int rc);

/* ---- the step ---- */

/* The operations of a step.  The first two belong to zke_q_change(); the others
 * begin at ZKE_Q_OP_FIRST. */
enum { ZKE_Q_OP_USER, ZKE_Q_OP_PLACE, ZKE_Q_OP_FIRST };

/* One transaction. */
typedef struct zke_q_step {
  const char *needs; /* a directory in which the step creates, and which may be
                        missing: then leave ops[ZKE_Q_OP_FIRST] to
                        zke_q_change(), which makes it; NULL: none */
  int count;         /* of ops; zke_q_step_end() sets it */
  int more;          /* how many of the last ones are the caller's */
  int code;          /* the code with which one of the caller's operations was
                        refused; 0: none was.  Then the result is ZKE_SQL, and
                        nothing here checks it again, since the queue's own
                        refusals may have the same codes */
  int64_t zxid;      /* of the step once it was made; the czxid of all nodes
                        that it created */
  zke_op *ops;
  zke_op_result *results; /* of the last try */
} zke_q_step;

/* zke_q_step_new  - a step with room for `more` operations besides the first
 *                   two; one block, or NULL without memory
 * zke_q_step_end  - tell it where the operations end; returns how many follow
 *                   the first two
 * zke_q_step_free - release it and its results; NULL is fine */
zke_q_step *zke_q_step_new(zke *z, int more);
int zke_q_step_end(zke_q_step *s, const zke_op *end);
void zke_q_step_free(zke_q_step *s);

/* The caller's changes in the step of a put or of an acknowledgement.  They
 * follow the queue's own operations, so they are made exactly when the step is.
 * The index of a refused operation tells whose it is (zke_recipe_refused()).
 * If it is the caller's, the call ends with its code, whatever that code would
 * mean to the queue. */
typedef struct zke_q_more {
  const zke_op *ops;
  int count;
  zke_op_result *results; /* of these, or NULL */
  int code; /* out: the code of the refused one (zke_q_step), or 0 */
} zke_q_more;

/* zke_q_check_more - refuse an impossible number of operations
 * zke_q_clear_more - set the results to zero; they stay so if nothing is tried
 * zke_q_add_more   - add them after the queue's operations, which end the step
 *                    so far
 * zke_q_give_more  - hand out their results, after the step was tried */
int zke_q_check_more(const zke_q_more *m);
void zke_q_clear_more(const zke_q_more *m);
void zke_q_add_more(zke_q_step *s, const zke_q_more *m);
void zke_q_give_more(zke_q_more *m, zke_q_step *s);

/* zke_q_change - try a step once, inside zke_q_do()
 *
 * If the reply is lost, this finds out whether the step was made.
 *
 * Returns ZKE_OK: it was made.  ZKE_Q_UNSURE: unknown.  After any other
 * code it was not made, unless the session has ended:
 *   ZKE_Q_AGAIN  the queue's settings have changed, or it was removed, or the
 *                user znode has another version.  q knows the queue as it is
 *                now; read again what the step depends on
 *   ZKE_NOT_MADE, ZKE_OPERATIONTIMEOUT  zke_q_do() tries again
 *   ZKE_SQL      one of the caller's operations was refused (code)
 *   other codes  of zke_multi() for the operations */
int zke_q_change(zke_queue *q, zke_q_step *s);

/* zke_q_has_changed - does the code of one of the operations from..to-1 of a
 *                     failed step say that something has changed since it was
 *                     read?
 * zke_q_was_late    - the same for the first `count` operations after the first
 *                     two: somebody else was faster */
bool zke_q_has_changed(const zke_q_step *s, int from, int to);
bool zke_q_was_late(const zke_q_step *s, int count);

#ifdef __cplusplus
}
#endif

#endif
