/* lines.h - the recipes with a line of participants, and steps as text
 *
 * A table has a row for each recipe: how to use it so that one party holds and
 * the others wait.  A test of their common promises runs for each row.
 *
 * A test writes its steps as text (steps.h):
 *
 *     play("ann acquire;"
 *          "bob try -> HELD;"
 *          "bob waits;"
 *          "ann expires;"
 *          "bob returns;"
 *          "told ann HELD, bob HELD");
 *
 * The verbs of the lines:
 *
 *     P acquire [HOW]      The calls of the recipe.  HOW is "read", "write" or
 *     P try [HOW]          a number of permits; without it the row says how.
 *     P start [HOW]
 *     P release, P check, P op
 *     P waits [HOW]        acquire on a thread, which waits from now on
 *     P locks, P unlocks   a separate lock, shared by all parties
 *     P waits_for_lock     locks on a thread, which waits from now on
 *     P steal, P upgrade   what only this recipe has
 *     P loses [N]          another session deletes P's znode, the N-th of it
 *     P is HELD            its state: OUT, WAITING, HELD or LOST; "out" is OUT
 *                          or LOST
 *     line ann (bob)       who holds and (who waits), as the tree says it
 *     modes RW             the modes of these; of a rwlock only
 *
 * REFUSED is the code of a try while others hold, AGAIN the code of an acquire
 * by the holder.
 *
 * If only one party holds at a time, each HELD that a listener hears must have
 * a greater token than all earlier ones. */
#ifndef ZKE_TEST_LINES_H
#define ZKE_TEST_LINES_H

#include "recipes/support.h"
#include "steps.h"

#define PATH "/line/a"
#define OTHER "/line/b" /* of the multi-lock */

/* ---- the table ---- */

/* What an object is made with. */
typedef struct line_options {
  int size;        /* of the recipe's options; 0: as it is */
  const char *who; /* its listener tells that name; NULL: no listener */
  const char *data;
  int len;
  int no_deadlock_check;
} line_options;

/* How the recipes differ. */
enum {
  LINE_ALONE = 1,     /* only one holds; else all that wait hold together */
  LINE_HAS_DATA = 2,  /* it has options.data */
  LINE_KEEPS_REST = 4 /* a holder that lost one part keeps the others */
};

/* A recipe, used so that only one can hold.  how: a mode, or a number. */
typedef struct line_kind {
  const char *directory; /* the data of its directory */
  const char *entry;     /* what stands before an entry's number: "lock-" */
  int places;            /* entries of each party below PATH */
  int is;                /* LINE_ALONE … */
  int refusal;           /* of a try, while others hold */
  int again;             /* of an acquire by the holder */
  int first, others;     /* how ann acquires, and how the others do */
  int (*create)(zke *session, const char *path, const line_options *o,
                void **out);
  void (*free)(void *x);
  int (*acquire)(void *x, int how, int64_t deadline);
  int (*try_once)(void *x, int how);
  int (*start)(void *x, int how);
  int (*release)(void *x);
  int (*cancel)(void *x);
  int (*check)(void *x);
  int (*state)(void *x); /* as enum ZKE_LINE_… */
  int64_t (*token)(void *x);
  int (*ops)(void *x, zke_op *ops); /* what guards a multi; NULL is refused */
  int ops_count;                    /* their number */
  int (*parties)(zke *session, const char *path, zke_party_list **list);
} line_kind;

enum {
  LINE_READER, /* readers behind a writer, ann */
  LINE_LOCK,
  LINE_PERMIT,  /* of a semaphore of one */
  LINE_PERMITS, /* three of four */
  LINE_WRITER,
  LINE_MULTILOCK,
  LINE_ELECTION, /* has no try, and no check for deadlocks */
  LINE_KINDS
};
extern const line_kind line_kinds[LINE_KINDS];

/* A test that runs for each row; for each in which only one holds; for each but
 * the election.  _i is the row. */
#define TEST_LINES(name) TEST_LOOP(name, 0, LINE_KINDS)
#define TEST_ALONE(name) TEST_LOOP(name, LINE_LOCK, LINE_KINDS)
#define TEST_NO_ELECTIONS(name) TEST_LOOP(name, 0, LINE_ELECTION)

/* ---- a line ---- */

extern const line_kind *line; /* the row that is tested; each party listens */
extern int line_limit;        /* of a semaphore; 0: as the row has it; below 0:
                                 it states none */
extern bool line_reentrant;   /* of a lock */

/* Open the sessions, and make an object for each. */
void open_line(int kind);
/* Free all objects.  No entry and no watch may be left. */
void close_line(void);

/* A further object of this kind at PATH. */
void *make_party(zke *session, const line_options *options);
/* The calls of the i-th party as the row has them. */
int party_acquire(int i, int64_t deadline);
int party_try(int i);
int party_start(int i);

/* What only this recipe has, by its name. */
int party_does(int i, const char *verb, const char *word);

/* How many stand in line. */
int in_line(void);
/* Delete the session's znode in line; of several, the part-th. */
void delete_place(zke *session, int part);
extern int64_t told_token; /* the last token that came with an event */
/* Called after each reported event; may free the object.  NULL: none. */
extern void (*line_hook)(void *object, int event);

/* The whole of a test: open a line, take the steps, close it. */
void play_line(int kind, const char *script);

/* ---- any history ---- */

/* Random calls, one after the other, on two objects each of ann, bob and cid.
 * Entries are deleted meanwhile, and sessions end. */
typedef struct line_history {
  int calls;
  int most; /* how: from 1 on; 0: as the row has it */
  /* now and then, a call that only this recipe has, by the i-th party; or
   * NULL */
  void (*also)(unsigned *random, int i);
  void (*check)(unsigned *random); /* after each call */
} line_history;

/* Needs an open line.  At the end all leave, and one more comes and leaves. */
void play_history(const line_history *h);

/* ---- for uses, as in recipes.h ---- */

/* Run `use` with two objects with listeners, of `user` and of another
 * session. */
int use_by_two(zke *user, int (*use)(zke *user, void *first, void *second));

#endif
