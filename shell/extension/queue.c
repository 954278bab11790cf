/* queue.c - queues in SQL
 *
 * A pop claims an item and returns a number, with which the connection then
 * reads the item and acknowledges it.  Other connections cannot use the number.
 */
#include "extension.h"

#include <stdlib.h>

#include "../../recipes/queue.h"

/* An item that the connection has claimed. */
typedef struct claim {
  int64_t number;
  zke_queue_item *item;
  struct claim *next;
} claim;

typedef struct queue {
  zke_queue *object;
  zke *z;
  bool told; /* there may be an item */
  claim *claims;
} queue;

/* ---- the connection's queues ---- */

static void remove_claim(claim **at) {
  claim *x = *at;
  *at = x->next;
  zke_free(x->item);
  free(x);
}

/* There is an item.  (Its ack reports that a claim was lost.) */
static void heard(zke_queue *object, int event, int64_t token, const char *name,
                  void *context) {
  (void)object, (void)token, (void)name;
  if (event == ZKE_QUEUE_ITEM) ((queue *)context)->told = true;
}

static int make(ext_call *c, const char *path, zke_queue_fn listener,
                void **object_out) {
  zke_queue_options o = ZKE_INIT(zke_queue_options);
  queue *q = calloc(1, sizeof *q);
  if (!q) return ext_nomem();
  q->z = c->k->z;
  o.listener = listener;
  o.context = q;
  o.new_attempts = EXT_NEW_ATTEMPTS;
  int rc = zke_queue_new(q->z, path, &o, &q->object);
  if (rc != ZKE_OK) free(q);
  *object_out = rc == ZKE_OK ? q : NULL;
  return rc;
}

static int make_plain(ext_call *c, const char *path, void **object_out) {
  return make(c, path, NULL, object_out);
}

static int make_listening(ext_call *c, const char *path, void **object_out) {
  return make(c, path, heard, object_out);
}

static void free_queue(void *object) {
  queue *q = object;
  while (q->claims) remove_claim(&q->claims);
  zke_forget(q->z, ext_wake, q);
  zke_queue_free(q->object);
  free(q);
}

/* A queue that listens can wait without a blocking call, and needs a watch for
 * each claim; so it is a separate object. */
static const ext_sort plain = {make_plain, free_queue},
                      listening = {make_listening, free_queue};

/* The queue of that name; makes it if there is none. */
static int get(ext_call *c, const ext_sort *is, queue **out) {
  char *path;
  ext_owned **at;
  int rc = ext_path(c, 0, "queues", &path);
  if (rc == ZKE_OK) rc = ext_owned_get(c, is, path, &at);
  if (rc == ZKE_OK) *out = (*at)->object;
  sqlite3_free(path);
  return rc;
}

/* The claim with that number, and its queue. */
static int find(ext_call *c, queue **q_out, claim ***at_out) {
  int64_t number = ext_int(c, 0, 0);
  for (const ext_owned *o = c->k->owned; o; o = o->next) {
    if (o->is != &plain && o->is != &listening) continue;
    queue *q = *q_out = o->object;
    claim **at = &q->claims;
    while (*at && (*at)->number != number) at = &(*at)->next;
    *at_out = at;
    if (*at) return ZKE_OK;
  }
  zke_fail(ZKE_LOST, "%s(): this connection has no item %lld",
           c->function->name, (long long)number);
  return ZKE_LOST;
}

/* ---- in ---- */

/* zke_queue_push(queue, data [, delay_ms [, priority]]): 1. */
static int run_push(ext_call *c) {
  queue *q;
  zke_queue_put_options o = ZKE_INIT(zke_queue_put_options);
  int rc = get(c, &plain, &q);
  if (rc != ZKE_OK) return rc;
  ext_data v = ext_bytes(c, 1);
  int64_t delay = ext_int(c, 2, 0), now = zke_wall(c->k->z);
  if (delay > 0) o.due_ms = delay < INT64_MAX - now ? now + delay : INT64_MAX;
  o.priority = (int)ext_int(c, 3, 0);
  rc = zke_queue_put(q->object, v.data, v.len, &o, zke_now(c->k->z));
  return ext_done(c, rc);
}

/* ---- out ---- */

static int cancel(void *object) { return zke_queue_cancel(object); }

/* Waits for an item, interruptibly. */
static int claim_item(ext_call *c, zke_queue *object, int64_t deadline,
                      zke_queue_item **item) {
  ext_patience p = {.c = c, .cancel = cancel, .object = object};
  int rc = ext_patience_begin(&p);
  *item = NULL;
  if (rc == ZKE_OK) rc = zke_queue_claim(object, deadline, item);
  int ended = ext_patience_end(&p);
  if (ended == ZKE_OK) return rc;
  if (rc == ZKE_OK) zke_queue_release(object, *item, 0, NULL);
  zke_free(*item);
  *item = NULL;
  return ended;
}

/* Claims an item: returns its number; NULL at the deadline. */
static int pop(ext_call *c, queue *q, int64_t deadline, bool *got) {
  claim *x = calloc(1, sizeof *x);
  int rc = x ? claim_item(c, q->object, deadline, &x->item) : ext_nomem();
  *got = rc == ZKE_OK;
  if (rc == ZKE_OK) {
    x->number = ++c->k->items;
    x->next = q->claims;
    q->claims = x;
    sqlite3_result_int64(c->sql, x->number);
    return ZKE_OK;
  }
  free(x);
  return ext_say_waited(c, rc);
}

/* zke_queue_pop(queue [, ms]): waits for it. */
static int run_pop(ext_call *c) {
  queue *q;
  bool got;
  int rc = get(c, &plain, &q);
  return rc == ZKE_OK ? pop(c, q, ext_until(c, 1), &got) : rc;
}

/* Makes zke_fd() readable when there may be an item, or a delayed one is
 * due. */
static int listen_for_item(queue *q) {
  int64_t due;
  int rc = zke_queue_start(q->object, ZKE_QUEUE_ITEM);
  if (rc == ZKE_OK) rc = zke_queue_due(q->object, &due);
  if (rc == ZKE_OK && due != ZKE_FOREVER)
    rc = zke_call_at(q->z, due, ext_wake, q);
  return rc;
}

/* zke_queue_join(queue): as zke_queue_pop(), but without a blocking call: NULL
 * while there is no item.  The program calls it again when zke_fd() is
 * readable. */
static int run_join(ext_call *c) {
  queue *q;
  bool got = false;
  int rc = get(c, &listening, &q);
  if (rc == ZKE_OK) rc = ext_dispatch(c->k);
  do {
    if (rc == ZKE_OK) q->told = false;
    if (rc == ZKE_OK) rc = pop(c, q, 0, &got);
    if (rc == ZKE_OK && !got) rc = listen_for_item(q);
  } while (rc == ZKE_OK && !got && q->told);
  return rc;
}

/* zke_queue_leave(queue): 1; it no longer waits. */
static int run_leave(ext_call *c) {
  queue *q;
  int rc = get(c, &listening, &q);
  if (rc == ZKE_OK) zke_forget(q->z, ext_wake, q);
  if (rc == ZKE_OK) rc = zke_queue_stop(q->object, ZKE_QUEUE_ITEM);
  return ext_done(c, rc);
}

/* zke_queue_data(item): its data. */
static int run_data(ext_call *c) {
  queue *q;
  claim **at;
  int rc = find(c, &q, &at);
  if (rc == ZKE_OK && (*at)->item->data)
    sqlite3_result_blob(c->sql, (*at)->item->data, (*at)->item->len,
                        SQLITE_TRANSIENT);
  return rc;
}

/* zke_queue_ack(item), zke_queue_release(item [, delay_ms]): 1; the claim
 * ends. */
static int finish(ext_call *c, bool done) {
  queue *q;
  claim **at;
  int rc = find(c, &q, &at);
  if (rc != ZKE_OK) return rc;
  rc = done ? zke_queue_ack(q->object, (*at)->item, NULL, 0, NULL)
            : zke_queue_release(q->object, (*at)->item, ext_int(c, 1, 0), NULL);
  if (rc == ZKE_OK || rc == ZKE_LOST) remove_claim(at);
  return ext_done(c, rc);
}

static int run_ack(ext_call *c) { return finish(c, true); }
static int run_release(ext_call *c) { return finish(c, false); }

/* zke_queue_prolong(item, ms): 1; the claim ends so long from now. */
static int run_prolong(ext_call *c) {
  queue *q;
  claim **at;
  int rc = find(c, &q, &at);
  if (rc == ZKE_OK)
    rc = zke_queue_prolong(q->object, (*at)->item, ext_int(c, 1, 0));
  return ext_done(c, rc);
}

/* zke_queue_size(queue): how many items it has, including claimed ones. */
static int run_size(ext_call *c) {
  queue *q;
  zke_queue_counts n;
  int rc = get(c, &plain, &q);
  if (rc == ZKE_OK) rc = zke_queue_size(q->object, &n);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, n.items);
  return rc;
}

const ext_function ext_queues[] = {
    {"zke_queue_push", 2, "tdni", EXT_CHANGES, run_push},
    {"zke_queue_pop", 1, "tn", EXT_WAITS, run_pop},
    {"zke_queue_join", 1, "t", EXT_WAITS, run_join},
    {"zke_queue_leave", 1, "t", EXT_CHANGES, run_leave},
    {"zke_queue_data", 1, "n", EXT_LOOKS, run_data},
    {"zke_queue_ack", 1, "n", EXT_CHANGES, run_ack},
    {"zke_queue_release", 1, "nn", EXT_CHANGES, run_release},
    {"zke_queue_prolong", 2, "nn", EXT_CHANGES, run_prolong},
    {"zke_queue_size", 1, "t", EXT_READS, run_size},
    {0}};
