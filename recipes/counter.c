/* counter.c - a number that several processes count with
 *
 * How a change is made:
 *
 *   1. Have a writer's znode below the counter, an ephemeral one of this object
 *      (counter_begin()).  The object knows its version.
 *   2. Read the number and its version; compute the new number.
 *   3. In one multi write the number, if it still has the version that was
 *      read, and write the writer's znode, if that still has the known version.
 *   4. If the number has another version, somebody was faster: go to 2.  Each
 *      repetition means that another writer succeeded.
 *   5. If the reply was lost, read the writer's znode.  Only this object writes
 *      it, so its version tells: with the known version, the change was not
 *      made (go to 1); with a later one, it was.
 *
 * The number alone would not tell in 5, since others may have counted since.
 * And since the writer's znode is below the counter's, a counter that was
 * deleted and made again has no such znode: it is never mistaken for the old
 * counter, even if its version is the same.
 *
 * If the process dies before 3, the number is unchanged; after 3 it has
 * counted.  The writer's znode goes with the session in either case.
 *
 * Start reading at counter_try(); at counter_look() for the listener. */
#include "counter.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

#define COUNTER_PLACE "counter"
#define COUNTER_MARK "zkembed " COUNTER_PLACE "\n"

enum { COUNTER_TEXT = 64 };

/* Guarded by the mutex of the zke_recipe. */
struct zke_counter {
  zke_recipe r;    /* first: a zke_recipe * is a zke_counter * */
  int64_t initial; /* the number of a counter that does not exist */
  /* Changing. */
  char *writer;    /* path of the writer's znode; fixed */
  bool tried;      /* its creation was tried: it may exist */
  bool writing;    /* it exists, as far as is known */
  int32_t version; /* its version, if `writing` */
  /* Looking. */
  zke_counter_fn listener;
  void *context;
  bool listening; /* started */
  bool waiting;   /* a blocking call runs */
  int64_t value;  /* as last seen */
  int64_t token;  /* zxid of its change; 0: the counter did not exist */
  bool seen;      /* value and token are set since the start */
  int64_t since;  /* the token that a blocking call wants to see replaced */
};

/* ---- the number ---- */

/* Read "zkembed counter\n<number>\n".  Without data it is not a counter yet. */
static int counter_parse(zke_counter *c, const char *data, int len,
                         int64_t *value) {
  size_t mark = strlen(COUNTER_MARK);
  const char *path = c->r.path;
  char *end;
  if (len <= 0) return ZKE_NONODE;
  if (strncmp(data, COUNTER_MARK, mark) != 0)
    return zke_recipe_fail(ZKE_OTHERKIND, "%s is not a counter", path);
  errno = 0;
  long long number = strtoll(data + mark, &end, 10);
  if (errno || end == data + mark || (*end != '\n' && *end) ||
      data[mark] == ' ' || data[mark] == '\n')
    return zke_recipe_fail(ZKE_DATAINCONSISTENCY,
                           "the counter %s does not hold a number", path);
  *value = number;
  return ZKE_OK;
}

/* Ask the file; ZKE_NONODE: there is no counter yet.  A watch is registered
 * only if the znode exists. */
static int counter_read(zke_counter *c, bool watch, int64_t *value,
                        zke_stat *stat) {
  char *data = NULL;
  int len = -1;
  int rc = zke_get(c->r.z, c->r.path, watch ? zke_recipe_watcher : NULL, &c->r,
                   &data, &len, stat);
  if (rc == ZKE_OK) rc = counter_parse(c, data, len, value);
  zke_free(data);
  return rc;
}

/* Store the number of a look, and tell the listener if it has changed.  Without
 * memory for that the number counts as not seen, and the next look tells it. */
static int counter_see(zke_counter *c, int64_t value, int64_t token) {
  bool news = !c->seen ? token != 0 : token != c->token;
  int event = token ? ZKE_COUNTER_CHANGED : ZKE_COUNTER_REMOVED;
  if (news && c->listening &&
      !zke_recipe_tell(&c->r, event, token, (const char *)&value, sizeof value))
    return zke_recipe_fail(ZKE_NOMEM, "no memory to tell the number");
  c->seen = true;
  c->value = value;
  c->token = token;
  return ZKE_OK;
}

/* Read the number, and watch for its next change.  A missing counter is watched
 * for its creation; it may come between the two calls, so the number is read
 * again.  A znode without data (stat.czxid is set) is not a counter yet: the
 * read watches it. */
static int counter_look(zke_counter *c) {
  zke_stat stat = {0};
  int64_t value = 0;
  int rc;
  do {
    rc = counter_read(c, true, &value, &stat);
    if (rc != ZKE_NONODE || stat.czxid) break;
    rc = zke_exists(c->r.z, c->r.path, zke_recipe_watcher, &c->r, NULL);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN; /* it has come */
  } while (zke_recipe_again(c->r.z, &rc));
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  bool there = rc == ZKE_OK;
  return counter_see(c, there ? value : c->initial, there ? stat.mzxid : 0);
}

/* ---- the object ---- */

/* Without a listener or a waiting call there is nothing to look for. */
static int counter_step(zke_recipe *r) {
  zke_counter *c = (zke_counter *)r;
  return c->listening || c->waiting ? counter_look(c) : ZKE_OK;
}

/* A change in progress may have been made; its caller learns from the call that
 * the session has ended. */
static void counter_ended(zke_recipe *r) {
  zke_counter *c = (zke_counter *)r;
  if (c->listening) zke_recipe_tell(r, ZKE_COUNTER_LOST, 0, NULL, 0);
  c->listening = false;
  c->writing = false;
}

/* The value is sent as the note's text, since a note has only one number, the
 * token.  A loss has no value. */
static void counter_deliver(zke_recipe *r, int event, int64_t number,
                            const char *text, int len) {
  zke_counter *c = (zke_counter *)r;
  int64_t value = 0;
  if (len) memcpy(&value, text, sizeof value);
  if (c->listener) c->listener(c, event, value, number, c->context);
}

/* The writer's znode belongs to this object alone, so nothing else deletes
 * it. */
static void counter_quit(zke_recipe *r) {
  zke_counter *c = (zke_counter *)r;
  if (c->tried) zke_recipe_discard(r->z, c->writer, ZKE_EPHEMERAL, 0);
}

/* Release the object's memory; the counter's znode stays. */
static void counter_destroy(zke_recipe *r) {
  zke_free(((zke_counter *)r)->writer);
}

static const zke_recipe_class counter_class = {.name = "counter",
                                               .step = counter_step,
                                               .ended = counter_ended,
                                               .deliver = counter_deliver,
                                               .quit = counter_quit,
                                               .destroy = counter_destroy};

/* A name that no other living object has.  A freed object at the same address
 * may have left a znode of this name; then its version is used. */
static int counter_name_writer(zke_counter *c) {
  char name[64];
  snprintf(name, sizeof name, "writer-%" PRIx64 "-%" PRIx64,
           (uint64_t)zke_session_id(c->r.z), (uint64_t)(uintptr_t)c);
  c->writer = zke_recipe_path(c->r.z, c->r.path, name);
  return c->writer ? ZKE_OK
                   : zke_recipe_fail(ZKE_NOMEM, "no memory for a counter");
}

/* The writer's name is made here: by it an object recognises its own change
 * after a lost reply. */
int zke_counter_new(zke *z, const char *path,
                    const zke_counter_options *options,
                    zke_counter **counter_out) {
  zke_counter_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(counter_out, options, &o, zke_counter_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &counter_class, sizeof(zke_counter), &r);
  if (rc != ZKE_OK) return rc;
  zke_counter *c = (zke_counter *)r;
  c->initial = o.initial;
  c->listener = o.listener;
  c->context = o.context;
  rc = counter_name_writer(c);
  if (rc == ZKE_OK)
    *counter_out = c;
  else
    zke_recipe_free(r);
  return rc;
}

/* The number stays; the writer's znode goes. */
void zke_counter_free(zke_counter *counter) {
  zke_recipe_free((zke_recipe *)counter);
}

/* ---- changing ---- */

enum counter_verb { COUNTER_SET, COUNTER_COMPARE, COUNTER_ADD };

/* A change in progress. */
typedef struct counter_change {
  zke_counter *c;
  enum counter_verb verb;
  int64_t operand;       /* the new value, or the addend */
  int64_t expected;      /* COUNTER_COMPARE: else nothing is changed */
  int64_t before, after; /* of the last try */
  int64_t token;         /* out: zxid of the change */
  bool unsure;           /* the last try may have done it */
} counter_change;

/* Make the counter.  ZKE_LOOK_AGAIN: it exists now. */
static int counter_place(zke_counter *c) {
  char text[COUNTER_TEXT];
  snprintf(text, sizeof text, "%" PRId64 "\n", c->initial);
  int rc = zke_recipe_place(c->r.z, c->r.path, COUNTER_PLACE, ZKE_PERSISTENT,
                            text, ZKE_FOREVER);
  return rc == ZKE_OK ? ZKE_LOOK_AGAIN : rc;
}

/* Make the writer's znode, or find it, as a reply may have been lost.  Not if
 * something else has the path. */
static int counter_begin(zke_counter *c) {
  zke_stat stat = {0};
  int64_t value;
  if (c->writing) return ZKE_OK;
  int rc = counter_read(c, false, &value, &stat);
  if (rc != ZKE_OK) return rc;
  c->tried = true;
  rc = zke_create(c->r.z, c->writer, NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                  NULL, &stat);
  if (rc == ZKE_NODEEXISTS)
    rc = zke_exists(c->r.z, c->writer, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  c->writing = true;
  c->version = stat.version;
  return ZKE_OK;
}

/* Compute the new number. */
static int counter_compute(counter_change *g) {
  g->after = g->operand;
  if (g->verb == COUNTER_COMPARE && g->before != g->expected)
    return zke_recipe_fail(ZKE_BADVERSION,
                           "the counter %s is %" PRId64 ", not %" PRId64,
                           g->c->r.path, g->before, g->expected);
  if (g->verb == COUNTER_ADD &&
      __builtin_add_overflow(g->before, g->operand, &g->after))
    return zke_recipe_fail(
        ZKE_LIMIT, "the counter %s is %" PRId64 ": %" PRId64 " cannot be added",
        g->c->r.path, g->before, g->operand);
  return ZKE_OK;
}

/* Write the number and the writer's znode in one step.  ZKE_LOOK_AGAIN: another
 * writer was faster, or a znode has gone.  If it was not the number's version,
 * look at the writer's znode again. */
static int counter_write(counter_change *g, int32_t version) {
  zke_counter *c = g->c;
  char text[COUNTER_TEXT];
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  int len = snprintf(text, sizeof text, COUNTER_MARK "%" PRId64 "\n", g->after);
  zke_op_set(&ops[0], c->r.path, text, len, version);
  zke_op_set(&ops[1], c->writer, NULL, -1, c->version);
  int rc = zke_recipe_multi(c->r.z, ops, 2, results);
  if (rc == ZKE_OK) {
    g->token = results[0].stat.mzxid;
    c->version = results[1].stat.version;
  }
  bool faster = results[0].rc == ZKE_BADVERSION; /* somebody was */
  zke_results_clear(results, 2);
  g->unsure = zke_recipe_is_lost(rc);
  rc = zke_recipe_faster(rc);
  if (rc == ZKE_LOOK_AGAIN && !faster) c->writing = false; /* has it gone? */
  return rc;
}

/* The last try got no reply: was it made?  ZKE_NOT_MADE: no.  If the counter
 * was deleted since, it is not known: ZKE_IN_DOUBT. */
static int counter_recognise(counter_change *g) {
  zke_counter *c = g->c;
  zke_stat stat;
  int rc = zke_exists(c->r.z, c->writer, NULL, NULL, &stat);
  if (rc == ZKE_NONODE)
    return zke_recipe_in_doubt(
        "the counter %s was deleted: whether it had "
        "counted is unknown",
        c->r.path);
  if (rc != ZKE_OK) return rc;
  g->unsure = false;
  if (stat.version == c->version) return ZKE_NOT_MADE;
  g->token = stat.mzxid;
  c->version = stat.version;
  return ZKE_OK;
}

/* The step: the outcome of the last try if that is not known, or a new try.
 * Only the look returns ZKE_NONODE: there is no counter yet. */
static int counter_try(zke *z, void *arg) {
  counter_change *g = arg;
  zke_stat stat;
  (void)z;
  if (g->unsure) return counter_recognise(g);
  int rc = counter_begin(g->c);
  if (rc == ZKE_OK) rc = counter_read(g->c, false, &g->before, &stat);
  if (rc == ZKE_NONODE) return counter_place(g->c);
  if (rc == ZKE_OK) rc = counter_compute(g);
  return rc == ZKE_OK ? counter_write(g, stat.version) : rc;
}

/* Every change: enter, do it, leave.  It is repeated as long as others are
 * faster: each time one of them has counted, so one always succeeds. */
static int counter_do(counter_change *g, int64_t deadline_ms,
                      int64_t *token_out) {
  int rc = zke_recipe_enter_by((zke_recipe *)g->c, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_do(g->c->r.z, counter_try, g, deadline_ms);
  if (rc == ZKE_OK && token_out) *token_out = g->token;
  return zke_recipe_leave(&g->c->r, rc);
}

/* Whatever the value; to set it from a known one, compare and set. */
int zke_counter_set(zke_counter *counter, int64_t value, int64_t deadline_ms,
                    int64_t *token_out) {
  counter_change g = {.c = counter, .verb = COUNTER_SET, .operand = value};
  return counter_do(&g, deadline_ms, token_out);
}

/* Changes nothing if the value is not the expected one. */
int zke_counter_compare_and_set(zke_counter *counter, int64_t expected,
                                int64_t value, int64_t deadline_ms,
                                int64_t *token_out) {
  counter_change g = {.c = counter,
                      .verb = COUNTER_COMPARE,
                      .operand = value,
                      .expected = expected};
  return counter_do(&g, deadline_ms, token_out);
}

/* The value after this addition, not after later changes of others. */
int zke_counter_add_and_get(zke_counter *counter, int64_t delta,
                            int64_t deadline_ms, int64_t *value_out,
                            int64_t *token_out) {
  counter_change g = {.c = counter, .verb = COUNTER_ADD, .operand = delta};
  int rc = counter_do(&g, deadline_ms, token_out);
  if (rc == ZKE_OK && value_out) *value_out = g.after;
  return rc;
}

/* ---- looking ---- */

/* Asks the file.  A counter that was never written has its initial value, and
 * token 0. */
int zke_counter_get(zke_counter *counter, int64_t *value_out,
                    int64_t *token_out) {
  zke_stat stat;
  int64_t value = 0;
  int rc = zke_recipe_enter((zke_recipe *)counter);
  if (rc != ZKE_OK) return rc;
  rc = counter_read(counter, false, &value, &stat);
  if (rc == ZKE_NONODE) {
    value = counter->initial;
    stat.mzxid = 0;
    rc = ZKE_OK;
  }
  if (rc == ZKE_OK && value_out) *value_out = value;
  if (rc == ZKE_OK && token_out) *token_out = stat.mzxid;
  return zke_recipe_leave(&counter->r, rc);
}

/* The present value is the first event.  After a failure the object is as
 * before: listening, or not. */
int zke_counter_start(zke_counter *counter) {
  int rc = zke_recipe_enter((zke_recipe *)counter);
  if (rc != ZKE_OK) return rc;
  if (!counter->listening) counter->seen = false;
  bool before = counter->listening;
  counter->listening = true;
  rc = counter_look(counter);
  if (rc != ZKE_OK) counter->listening = before;
  return zke_recipe_leave(&counter->r, rc);
}

/* For a program that dispatches seldom: it does the work of a dispatch. */
int zke_counter_step(zke_counter *counter) {
  return zke_recipe_step((zke_recipe *)counter);
}

/* ---- waiting ---- */

/* For zke_recipe_await(): was the counter written since the call's token? */
static int counter_done(zke_recipe *r) {
  const zke_counter *c = (const zke_counter *)r;
  return c->token != c->since ? ZKE_OK : ZKE_NOT_YET;
}

/* Looks first: if the value changed before the call, the wait ends
 * immediately. */
static int counter_wait(zke_counter *c, int64_t deadline_ms) {
  int rc = counter_look(c);
  if (rc == ZKE_OK) rc = zke_recipe_await(&c->r, counter_done, deadline_ms);
  if (rc != ZKE_OPERATIONTIMEOUT || counter_done(&c->r) == ZKE_OK) return rc;
  return zke_recipe_fail(
      rc, "the counter %s stayed at %" PRId64 " until the deadline", c->r.path,
      c->value);
}

/* Nothing looks any more: remove the watch, keep the sentence. */
static void counter_unwatch(zke_counter *c, int rc) {
  zke_sentence kept;
  if (c->listening || c->r.ended) return;
  zke_recipe_keep(&kept);
  zke_remove_watch(c->r.z, c->r.path, ZKE_WATCH_DATA, zke_recipe_watcher,
                   &c->r);
  zke_recipe_restore(&kept, rc);
}

/* Only one call may wait with an object, since the object has only one
 * `since`. */
int zke_counter_wait(zke_counter *counter, int64_t token, int64_t deadline_ms,
                     int64_t *value_out, int64_t *token_out) {
  int rc = zke_recipe_enter_by((zke_recipe *)counter, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (counter->waiting) {
    rc =
        zke_recipe_fail(ZKE_MISUSE, "another thread waits with this counter %s",
                        counter->r.path);
    return zke_recipe_leave(&counter->r, rc);
  }
  counter->waiting = true;
  counter->since = token;
  rc = counter_wait(counter, deadline_ms);
  counter->waiting = false;
  counter_unwatch(counter, rc);
  if (rc == ZKE_OK && value_out) *value_out = counter->value;
  if (rc == ZKE_OK && token_out) *token_out = counter->token;
  return zke_recipe_leave(&counter->r, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_counter_cancel(zke_counter *counter) {
  return zke_recipe_cancel((zke_recipe *)counter);
}
