/* steps.h - the steps of a test, written as text
 *
 * Most tests of a recipe are calls that a few sessions make in turn:
 *
 *     play("ann put a;"
 *          "bob claim -> 'a' 1;"
 *          "cid claim_now -> OPERATIONTIMEOUT; said is claimed;"
 *          "cid waits claim;"
 *          "bob expires;"
 *          "cid returns -> 'a' 2;"
 *          "told bob LOST");
 *
 * The participants are ann, bob, cid, dan and eve.  Each has a session of one
 * store, and an object.  "ann'" is a second object of ann's session, made when
 * it is first named.  Each counts as a thread when deadlocks are looked for.
 *
 * "ann,bob release" is a step of each, in this order.
 *
 * After "->" comes the result that the step must give: a code without ZKE_, an
 * answer, or both.  A first word in capitals is a code.  Without a code, the
 * step must return ZKE_OK.  Without an answer, any will do.  A step that only
 * looks needs no arrow: "told bob LOST".
 *
 * P is a participant.  A recipe adds verbs, which have priority over these:
 *
 *     P VERB ...           a call.  It waits until a deadline that only a call
 *                          that hangs reaches
 *     P VERB_now ...       the same with a deadline that has come
 *     P VERB_30 ...        the same with a deadline in 30 ms.  It may not time
 *                          out earlier
 *     P begins VERB ...    the same on a thread, without a deadline
 *     P waits VERB ...     the same, and wait until it waits
 *     P still              that call has not returned
 *     P returns            the end of that call: its code and its answer
 *     P cancels            cancel it, as soon as it can be
 *     P cancel             cancel once
 *     P free               free P's object
 *     P expires            another session ends P's session
 *     P fails WHEN [N]     its session loses the reply of its next call, or of
 *                          the one after N others: "before" or "after" that
 *                          has changed something, or of a "read"; "none": of
 *                          no call any more
 *     P renewed [N]        another session and object for P; the session keeps
 *                          no more than N events.  P is ann, bob, cid or dan
 *     P wakes              zke_wake() of its session
 *     P dispatches -> 2    how many watchers were called
 *     all dispatch
 *     P hears EVENT        dispatch until P's listener has heard it
 *     P watches N          its session has N watches; without P: all have
 *     told ann HELD, ...   what listeners have heard since the last "told"
 *     news ann HELD, ...   the same after "all dispatch"
 *     said TEXT            a part of the sentence of the last call that failed
 *
 * And these, which eve's session does:
 *
 *     create PATH DATA     a znode; DATA may have blanks or be missing
 *     ephemeral PATH DATA  the same, for as long as eve's session lives
 *     set PATH DATA
 *     delete PATH
 *     empty PATH               delete its children
 *     entries PATH -> 2        how many children it has; 0 without a znode
 *     children PATH -> a b     sorted; "none" if there are none
 *     data PATH -> DATA        "(null)" for NULL
 *
 * A RECIPE JOINS with a step_recipe, which says how an object is made, and a
 * table of verbs.  A verb makes its call on s->object and returns the code; the
 * player compares it.
 *
 *     static int make(zke *session, const char *who, void **object) {
 *       zke_queue_options o = {.size = sizeof o, .listener = hear,
 *                              .context = (void *)who};
 *       return zke_queue_new(session, "/jobs", &o, (zke_queue **)object);
 *     }
 *     STEP(put, zke_queue_put(s->object, s->rest, ...))
 *     static int step_claim(step *s) {
 *       zke_queue_item *item = NULL;
 *       int rc = zke_queue_claim(s->object, s->deadline, &item);
 *       if (rc == ZKE_OK) gives(s, "'%s' %d", item->data, item->attempts);
 *       zke_free(item);
 *       return rc;
 *     }
 *     static const step_verb verbs[] = {VERB(put), VERB(claim), {NULL, NULL}};
 *     static const step_recipe of_queue = {verbs, make, ...};
 *
 *     TEST(a_claim_is_lost) {
 *       open_steps(&of_queue);
 *       play("...");
 *     }
 *
 * Its listener calls tell("%s LOST", who).  A verb that only looks, as "told"
 * does, ends with sees().  Options that differ between tests are variables that
 * make() reads.  State of a verb, such as a claimed item, is in an array:
 * kept[s->who].
 */
#ifndef ZKE_TEST_STEPS_H
#define ZKE_TEST_STEPS_H

#include "sessions.h"

/* The step that is taken.  "ann' put b c" has who 5, the words "b" and "c", and
 * the rest "b c". */
typedef struct step {
  int who; /* index in `party`; -1: the first word is not a participant */
  zke *session;
  void *object;
  const char *verb;
  const char *word[8]; /* NULL after the last */
  const char *rest;
  const char *wanted; /* after the arrow; NULL: there is none */
  int64_t deadline;   /* of its call */
  int patience;       /* ms until then, if the verb says it */
  char answer[600];
  char text[400], parts[400], words[400]; /* as it stands, and in pieces */
} step;

typedef struct step_verb {
  const char *name; /* NULL after the last row */
  int (*take)(step *s);
} step_verb;

/* A recipe's part; members that it does not need are NULL. */
typedef struct step_recipe {
  const step_verb *verbs;
  int (*create)(zke *session, const char *who, void **object);
  void (*free)(void *object); /* NULL too */
  int (*cancel)(void *object);
  /* Does the call of "waits" wait by now?  NULL: if it sleeps on the object */
  bool (*waits)(const step *s);
  struct {
    const char *name;
    int code;
  } codes[4]; /* further names of codes */
} step_recipe;

enum { PARTIES = 2 * SESSIONS };
extern void *party[PARTIES]; /* ann, bob ... ann', bob' ... */

/* Play steps of this recipe from now on; the test has opened the sessions. */
void begin_steps(const step_recipe *recipe);
/* The same, and open the sessions, and make an object for each. */
void open_steps(const step_recipe *recipe);
/* The same on a database with this name, and with this table of system
 * calls. */
void open_steps_by(const step_recipe *recipe, const char *name,
                   const zke_os *os);
/* Free all objects; the sessions stay open for a look. */
void free_parties(void);
/* free_parties(), and close the sessions. */
void close_steps(void);

/* Take the steps of a text. */
void play(const char *script);
/* The same between open_steps() and close_steps(). */
void play_steps(const step_recipe *recipe, const char *script);

/* ---- for verbs ---- */

/* A row of the table, and a verb that is one call. */
#define VERB(name) \
  { #name, step_##name }
#define STEP(name, call) \
  static int step_##name(step *s) { return (call); }

/* Add to what the step answers. */
void gives(step *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends a step that only looks: the rest of its text must be this.  Returns
 * ZKE_OK. */
int sees(step *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Note what a listener has heard, on any thread: "ann HELD". */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Make the call of a verb by the i-th party; its code. */
int take_by(int i, const char *verb, const char *rest);
/* Begin the call of a verb on a thread.  If `waits` is given, wait until it is
 * true. */
int begin_by(step *s, const char *verb, const char *rest,
             bool (*waits)(const step *s));
/* Does a call sleep on this object of a recipe? */
bool sleeps(void *object);
/* The rest without its first word. */
const char *after_word(const step *s);
/* "ann", or "ann'". */
const char *party_name(int i);
/* The participant with this name; -1: there is none. */
int party_named(const char *name);

#define ck_step(s, condition, ...)                       \
  do {                                                   \
    char why_[700];                                      \
    snprintf(why_, sizeof why_, __VA_ARGS__);            \
    ck_assert_msg(condition, "%s: %s", (s)->text, why_); \
  } while (0)

/* What listeners were told, in order: "ann HELD, bob OUT". */
extern char told[600];
#define ck_told(expected)             \
  do {                                \
    ck_assert_str_eq(told, expected); \
    told[0] = '\0';                   \
  } while (0)

#endif
