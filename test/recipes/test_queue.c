/* test_queue.c - the queue (recipes/queue.h)
 *
 * Most tests are steps of a few sessions (steps.h).  A seam acts inside of
 * calls; threads wait.  Deaths, lost replies and faults come from recipes.h.
 */
#include "recipes.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes/queue.h"
#include "test/seam.h"

#define PATH "/jobs"

/* ---- steps ----
 *
 * The verbs of queues.  None waits, unless it is on a thread or its words
 * include "soon" or "in=MS".
 *
 *     P put DATA [p=PRIORITY] [key=KEY] [due=MS] [ephemeral]
 *     P puts DATA ...          several in one step
 *     P take -> ITEM; P peek -> ITEM
 *     P claim [LABEL] -> ITEM  the claim is known by that label, else as "P"
 *     P check [LABEL]; P ack [LABEL] [creates=PATH]; P ack_all LABEL ...
 *     P release [LABEL] [delay=MS] [reason=TEXT]
 *     P prolong LABEL MS       or "ever"
 *     P multi LABEL            a zke_multi() with the claim's operations
 *     break LABEL              delete the claim's znode
 *     P loses                  delete P's places in line
 *     P start [room]; P stop [room]; P step
 *     P requeue; P drop        the first of the dead letters
 *     P destroy; P destroy_empty
 *     P new [path=PATH] [limit=N] [attempts=N] [new=N]    another object
 *     P sleeps                 P's call watches a claim, its last step
 *     P due never              or "in an hour"
 *     [P] size items=1 ...     all counts that are not 0; "until": soon
 *     list 1 x2 bob, 2 delayed     numbers, attempts, consumers; "dead": the
 *                                  same of dead letters, with their reasons
 *     clock; passed MS         this much time has passed since "clock"
 *
 * An ITEM is its data, and what distinguishes it: "a x2 p=7 key=k due" was
 * claimed twice and had a time.  A take or a claim that must find nothing is
 * tried in both ways. */

static zke_queue_options how; /* of new objects */
static int64_t highest;       /* the highest token of a claim */
static int64_t due_at;        /* the time of the last item with one */

/* The claims, by their labels. */
static struct kept {
  char label[16];
  zke_queue_item *item;
} kept[20];

static zke_queue_item **keep(const char *label) {
  int i = 0;
  while (*kept[i].label && strcmp(kept[i].label, label) != 0) i++;
  snprintf(kept[i].label, sizeof kept[i].label, "%s", label);
  return &kept[i].item;
}

/* The listener.  It gets a token with a lost claim. */
static void hear(zke_queue *queue, int event, int64_t token, const char *name,
                 void *who) {
  static const char *const words[] = {"", "ITEM", "ROOM"};
  (void)queue;
  ck_assert_int_eq(token > 0, event == ZKE_QUEUE_LOST && name);
  if (event != ZKE_QUEUE_LOST)
    tell("%s %s", (char *)who, words[event]);
  else if (!name)
    tell("%s ENDED", (char *)who);
  else
    tell("%s LOST %s", (char *)who, name);
}

static int make_queue(zke *session, const char *who, void **object) {
  zke_queue_options o = how;
  o.size = sizeof o;
  o.context = (void *)(uintptr_t)who;
  return zke_queue_new(session, PATH, &o, (zke_queue **)object);
}

static void free_queue(void *object) { zke_queue_free(object); }
static int cancel_queue(void *object) { return zke_queue_cancel(object); }

/* The value of an option, as "key=": NULL if the step has none. */
static const char *option(const step *s, const char *name) {
  size_t len = strlen(name);
  for (int i = 0; s->word[i]; i++)
    if (strncmp(s->word[i], name, len) == 0) return s->word[i] + len;
  return NULL;
}

static int64_t number(const step *s, const char *name) {
  const char *value = option(s, name);
  return value ? atoll(value) : 0;
}

/* The deadline of the step's call. */
static int64_t until(const step *s) {
  if (option(s, "in=")) return zke_now(s->session) + number(s, "in=");
  bool waits = s->deadline == ZKE_FOREVER || option(s, "soon");
  return waits ? s->deadline : 0;
}

/* The label of the step's claim. */
static const char *label_of(const step *s) {
  const char *word = s->word[0];
  bool is_label = word && !strchr(word, '=') && strcmp(word, "soon") != 0;
  return is_label ? word : party_name(s->who);
}

static zke_queue_item *item_of(const step *s) { return *keep(label_of(s)); }

static int step_put(step *s) {
  zke_queue_put_options o = {.size = sizeof o};
  o.priority = (int)number(s, "p=");
  o.ephemeral = option(s, "ephemeral") != NULL;
  o.key = option(s, "key=");
  if (option(s, "due="))
    o.due_ms = due_at = zke_wall(s->session) + number(s, "due=");
  const char *data = s->word[0];
  return zke_queue_put(s->object, data, (int)strlen(data), &o, until(s));
}

static int step_puts(step *s) {
  zke_queue_value values[8];
  int count = 0;
  for (; s->word[count] && strcmp(s->word[count], "soon") != 0; count++)
    values[count] =
        (zke_queue_value){s->word[count], (int)strlen(s->word[count])};
  ck_step(s, count < 7, "too many words");
  return zke_queue_put_all(s->object, values, count, NULL, until(s));
}

/* Answer the item, unless there is none. */
static int say_item(step *s, int rc, const zke_queue_item *item) {
  if (rc != ZKE_OK) ck_assert_ptr_null(item);
  if (rc != ZKE_OK) return rc;
  ck_assert_int_eq(item->len, (int)strlen(item->data));
  gives(s, "%s", item->data);
  if (item->attempts > 1) gives(s, " x%d", item->attempts);
  if (item->priority != 100) gives(s, " p=%d", item->priority);
  if (*item->key) gives(s, " key=%s", item->key);
  if (!item->due_ms) return rc;
  gives(s, " due");
  ck_assert_int_eq(item->due_ms, due_at);
  ck_assert(zke_wall(s->session) >= due_at);
  return rc;
}

static int take(step *s) {
  zke_queue_item *item = (zke_queue_item *)1;
  int rc = zke_queue_take(s->object, until(s), &item);
  say_item(s, rc, item);
  if (rc == ZKE_OK) ck_assert_int_eq(item->token, 0);
  zke_free(item);
  return rc;
}

/* Claim; the token must be greater than those of all earlier claims. */
static int claim(step *s) {
  zke_queue_item *item = (zke_queue_item *)1, **at = keep(label_of(s));
  int64_t before = highest;
  int rc = zke_queue_claim(s->object, until(s), &item);
  say_item(s, rc, item);
  if (rc != ZKE_OK) return rc;
  zke_free(*at);
  *at = item;
  ck_assert_int_gt(item->token, before);
  if (item->token > highest) highest = item->token;
  return rc;
}

/* Try one way, and if that finds nothing the other. */
static int get(step *s, int (*first)(step *s), int (*other)(step *s)) {
  int rc = first(s);
  return rc == ZKE_OPERATIONTIMEOUT && until(s) == 0 ? other(s) : rc;
}

STEP(take, get(s, take, claim))
STEP(claim, get(s, claim, take))

static int step_peek(step *s) {
  zke_queue_item *item;
  int rc = zke_queue_peek(s->object, &item);
  say_item(s, rc, item);
  if (rc == ZKE_OK) ck_assert_int_eq(item->token, 0);
  zke_free(item);
  return rc;
}

STEP(check, zke_queue_check(s->object, item_of(s)))

static int step_ack(step *s) {
  const char *path = option(s, "creates=");
  zke_op op;
  if (path) zke_op_create(&op, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  return zke_queue_ack(s->object, item_of(s), &op, path != NULL, NULL);
}

static int step_ack_all(step *s) {
  zke_queue_item *some[8];
  int count = 0;
  for (; s->word[count]; count++) some[count] = *keep(s->word[count]);
  return zke_queue_ack_all(s->object, some, count, NULL, 0, NULL);
}

static int step_release(step *s) {
  const char *reason = strstr(s->rest, "reason=");
  return zke_queue_release(s->object, item_of(s), number(s, "delay="),
                           reason ? reason + strlen("reason=") : NULL);
}

static int step_prolong(step *s) {
  bool ever = strcmp(s->word[1], "ever") == 0;
  return zke_queue_prolong(s->object, item_of(s),
                           ever ? ZKE_FOREVER : atoll(s->word[1]));
}

static int step_multi(step *s) {
  zke_op ops[ZKE_QUEUE_OPS];
  ck_ok(zke_queue_ops(item_of(s), ops));
  return zke_multi(s->session, ops, ZKE_QUEUE_OPS, NULL);
}

STEP(break, zke_delete(s->session, (*keep(s->word[0]))->claim_path, -1))

static int event_of(const step *s) {
  return s->word[0] ? ZKE_QUEUE_ROOM : ZKE_QUEUE_ITEM;
}

STEP(start, zke_queue_start(s->object, event_of(s)))
STEP(stop, zke_queue_stop(s->object, event_of(s)))
STEP(step, zke_queue_step(s->object))
STEP(destroy, zke_queue_destroy(s->object, 0))
STEP(destroy_empty, zke_queue_destroy(s->object, 1))

/* The name of the first dead letter; if there is none, the last such name. */
static const char *letter(zke_queue *queue) {
  static char name[40];
  zke_queue_entries *list;
  ck_ok(zke_queue_dead(queue, &list));
  if (list->count) snprintf(name, sizeof name, "%s", list->data[0].name);
  zke_free(list);
  return name;
}

STEP(requeue, zke_queue_requeue(s->object, letter(s->object), 0))
STEP(drop, zke_queue_drop(s->object, letter(s->object)))

static int step_new(step *s) {
  zke_queue_options o = {.size = sizeof o,
                         .limit = (int)number(s, "limit="),
                         .attempts = (int)number(s, "attempts="),
                         .new_attempts = (int)number(s, "new=")};
  const char *path = option(s, "path=");
  zke_queue_free(s->object);
  return zke_queue_new(s->session, path ? path : PATH, &o,
                       (zke_queue **)&party[s->who]);
}

/* The number of places in line whose names contain a text, of this session or
 * of another one by its id. */
static int places(zke *looks, int64_t id, const char *part, bool remove) {
  zke_strings *line;
  int count = 0;
  ck_ok(zke_ephemerals(looks, id, PATH "/entries/line", &line));
  for (int i = 0; i < line->count; i++) {
    if (!strstr(line->data[i], part)) continue;
    if (remove) ck_ok(zke_delete(looks, line->data[i], -1));
    count++;
  }
  zke_free(line);
  return count;
}

STEP(loses, (places(s->session, 0, "-", true), ZKE_OK))

static bool stands_in_line(const step *s) {
  bool puts = strcmp(s->verb, "put") == 0;
  return places(s->session, 0, puts ? "-put-" : "-take-", false) > 0;
}

/* Does the session watch a claim? */
static bool watches_claim(zke *session) {
  zke_watch_list *list;
  bool found = false;
  ck_ok(zke_watches(session, &list));
  for (int i = 0; i < list->count; i++)
    found |= list->data[i].session == zke_session_id(session) &&
             strncmp(list->data[i].path, PATH "/taken/entry-", 18) == 0;
  zke_free(list);
  return found;
}

static int step_sleeps(step *s) {
  ck_until(watches_claim(s->session), 5000);
  return ZKE_OK;
}

static int step_due(step *s) {
  int64_t due, hour = zke_now(s->session) + 3600000;
  ck_ok(zke_queue_due(s->object, &due));
  if (due == ZKE_FOREVER) return sees(s, "never");
  ck_assert(due <= hour && due > hour - 60000);
  return sees(s, "in an hour");
}

static zke_queue_counts size_of(zke_queue *queue) {
  zke_queue_counts c;
  ck_ok(zke_queue_size(queue, &c));
  return c;
}

/* The object of a step, or eve's. */
static zke_queue *looker(const step *s) {
  return s->object ? s->object : party[SESSIONS - 1];
}

#define COUNT(name) \
  { #name, c.name }

/* All counts that are not 0. */
static const char *counts(const step *s) {
  static char text[200];
  zke_queue_counts c = size_of(looker(s));
  const struct {
    const char *name;
    int count;
  } all[] = {COUNT(items),   COUNT(ready), COUNT(claimed),
             COUNT(delayed), COUNT(dead),  COUNT(takers),
             COUNT(putters), COUNT(limit), COUNT(attempts)};
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].count)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%d",
                               used ? " " : "", all[i].name, all[i].count);
  return text;
}

STEP(size, sees(s, "%s", counts(s)))

static int step_until(step *s) {
  ck_until(strcmp(counts(s), s->rest) == 0, 5000);
  return ZKE_OK;
}

/* A letter's name must not grow, and its consumer was of this process. */
static int see_entries(step *s, int (*look)(zke_queue *queue,
                                            zke_queue_entries **list_out)) {
  zke_queue_entries *list;
  char text[300] = "";
  ck_ok(look(looker(s), &list));
  for (int i = 0; i < list->count; i++) {
    const zke_queue_entry *e = &list->data[i];
    size_t used = strlen(text);
    char attempts[20] = "";
    if (e->attempts) snprintf(attempts, sizeof attempts, " x%d", e->attempts);
    if (*e->reason) ck_assert_uint_eq(strlen(e->name), 20);
    if (*e->identity) ck_assert_int_eq(e->pid, getpid());
    snprintf(text + used, sizeof text - used, "%s%d%s%s%s%s%s%s%s%s",
             used ? ", " : "", atoi(strrchr(e->name, '-') + 1), attempts,
             *e->identity ? " " : "", e->identity, *e->reason ? " " : "",
             e->reason, *e->key ? " key=" : "", e->key,
             e->due_ms > zke_wall(s->session) ? " delayed" : "");
  }
  zke_free(list);
  return sees(s, "%s", text);
}

STEP(list, see_entries(s, zke_queue_list))
STEP(dead, see_entries(s, zke_queue_dead))

static int64_t wall_then, now_then; /* at "clock" */

static int step_clock(step *s) {
  wall_then = zke_wall(s->session);
  now_then = zke_now(s->session);
  return ZKE_OK;
}

static int step_passed(step *s) {
  int64_t wall = zke_wall(s->session) - wall_then;
  int64_t now = zke_now(s->session) - now_then;
  ck_assert_int_ge(wall > now ? wall : now, atoi(s->word[0]));
  return ZKE_OK;
}

static const step_verb verbs[] = {
    VERB(put),           VERB(puts),    VERB(take),  VERB(claim),
    VERB(peek),          VERB(check),   VERB(ack),   VERB(ack_all),
    VERB(release),       VERB(prolong), VERB(multi), VERB(break),
    VERB(start),         VERB(stop),    VERB(step),  VERB(destroy),
    VERB(new),           VERB(requeue), VERB(drop),  VERB(loses),
    VERB(sleeps),        VERB(due),     VERB(size),  VERB(until),
    VERB(list),          VERB(dead),    VERB(clock), VERB(passed),
    VERB(destroy_empty), {NULL, NULL}};

static const step_recipe of_queue = {.verbs = verbs,
                                     .create = make_queue,
                                     .free = free_queue,
                                     .cancel = cancel_queue,
                                     .waits = stands_in_line};

#define WITH(...) \
  (zke_queue_options) { __VA_ARGS__ }
#define LISTENING .listener = hear

/* Only this session has the queue, with these options. */
static void open_one(int i, zke *session, zke_queue_options o) {
  o.size = sizeof o;
  z[i] = z[SESSIONS - 1] = session;
  begin_steps(&of_queue);
  ck_ok(zke_queue_new(session, PATH, &o, (zke_queue **)&party[i]));
}

/* Ann alone, on a file. */
static void open_ann(void) { open_one(0, test_open(test_path("db")), WITH(0)); }

static void close_ann(void) {
  free_parties();
  ck_ok(zke_close(z[0]));
}

static void free_kept(void) {
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    zke_free(kept[i].item);
  memset(kept, 0, sizeof kept);
}

/* Close; no claim and no place in line may be left. */
static void close_queue(void) {
  free_kept();
  free_parties();
  for (int i = 0; i < SESSIONS; i++) {
    zke_strings *left;
    if (zke_sync(z[i], "/") != ZKE_OK) continue; /* its session has ended */
    ck_ok(zke_ephemerals(z[i], 0, PATH, &left));
    ck_assert_int_eq(left->count, 0);
    zke_free(left);
  }
  close_sessions();
}

/* Each session has the queue, with these options. */
static void open_queue(zke_queue_options o) {
  how = o;
  highest = 0;
  open_steps(&of_queue);
  closes = close_queue;
}

/* A test that is a text, with options as (.limit = 2). */
#define TEST_STEPS(name, script) TEST_WITH(name, (0), script)
#define TEST_WITH(name, options, script) \
  TEST(name) {                           \
    open_queue(WITH options);            \
    play(script);                        \
  }

/* ---- calls on any queue ---- */

static void put(zke_queue *queue, const char *text) {
  ck_ok(zke_queue_put(queue, text, (int)strlen(text), NULL, 0));
}

static int put_key(zke_queue *queue, const char *text, const char *key) {
  zke_queue_put_options o = {.size = sizeof o, .key = key};
  return zke_queue_put(queue, text, (int)strlen(text), &o, 0);
}

/* Take the next item, which must have this text. */
static void take_text(zke_queue *queue, const char *text) {
  zke_queue_item *item = NULL;
  ck_ok(zke_queue_take(queue, 0, &item));
  ck_assert_str_eq(item->data, text);
  zke_free(item);
}

/* The number of items and foreign children. */
static int items(zke *session) {
  bool line =
      zke_exists(session, PATH "/entries/line", NULL, NULL, NULL) == ZKE_OK;
  return entries(session, PATH "/entries") - line;
}

/* ---- order ---- */

/* "The item order is by number". */
TEST_STEPS(items_go_out_in_the_order_they_came,
           "ann put a; bob put b; ann put c; cid take -> a; bob put d;"
           "cid take -> b; bob take -> c; cid take -> d;"
           "cid take -> OPERATIONTIMEOUT; said is empty")

/* "Priority queue with the same interface, fresh list on every change": a later
 * but more urgent item is next, even if the list was read before. */
TEST_STEPS(lower_priorities_go_first,
           "ann put c; ann put d p=101; ann put b p=9; bob take -> b p=9;"
           "ann put a p=1; cid put e p=999; bob take -> a p=1; bob take -> c;"
           "bob take -> d p=101; bob take -> e p=999")

/* Numbers are compared as numbers, and may wrap around. */
TEST_STEPS(numbers_may_wrap_around,
           "ann take -> OPERATIONTIMEOUT;" /* makes the place */
           "create /jobs/entries/entry-100--2147483647 d;"
           "create /jobs/entries/entry-100--2147483648 c;"
           "create /jobs/entries/entry-100-2147483647 b;"
           "create /jobs/entries/entry-100-2147483646 a; bob take -> a;"
           "bob take -> b; bob take -> c; bob take -> d")

/* At its last number the tree repeats it.  The queue reports a limit, and
 * nothing about a key. */
TEST(the_end_of_the_numbers_is_refused) {
  open_queue(WITH(0));
  play("ann put a key=old");
  ck_ok(zke_raise_sequence(z[1], PATH "/entries", INT32_MAX, NULL));
  play("ann put b");
  for (int i = 0; i < 2; i++)
    play(
        "ann put c soon -> LIMIT;"
        "said /jobs/entries has given all of its 2147483647 numbers;"
        "bob put c key=old -> NODEEXISTS; said an item with the key old;"
        "bob put c key=new -> LIMIT;"
        "said /jobs/entries has given all of its 2147483647 numbers");
  play(
      "data /jobs/keys/key-new -> NONODE; bob take -> a key=old; bob take -> b;"
      "ann destroy_empty; bob put c key=new");
}

/* A foreign node with the name of the next item is not taken for an item with
 * its key. */
TEST_STEPS(a_name_that_is_taken_is_no_key,
           "ann put a; create /jobs/entries/entry-100-0000000003;"
           "ann put b key=k -> LIMIT; said entry-100-0000000003 is in the way")

/* "Foreign or malformed children in a recipe's directory are ignored". */
TEST(foreign_children_are_ignored) {
  static const char *const directories[] = {"entries", "dead", "taken",
                                            "entries/line"};
  char names[] =
      "entry entry- entry-100 entry-100- entry-100-1 entry-1-0000000001 "
      "entry-1000-0000000001 entry--10-0000000001 entry-100-0000000001x "
      "entry-100-99999999999 later-100-0000000001 later-100-x-0000000001 "
      "xentry-100-0000000001 qn-0000000001";
  char next[100];
  open_queue(WITH(.limit = 2));
  play("ann take -> OPERATIONTIMEOUT; create /jobs/dead; create /jobs/taken");
  for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
    for (int i = 0; i < 4; i++) {
      snprintf(next, sizeof next, "create /jobs/%s/%s x", directories[i], name);
      play(next);
    }
  }
  play(
      "bob take -> OPERATIONTIMEOUT;"
      "ann put a; ann put b;" /* they do not count toward the limit either */
      "bob size items=2 ready=2 limit=2; bob take -> a; bob take -> b;"
      "bob take -> OPERATIONTIMEOUT");
}

/* NULL data, empty data and zero bytes come out unchanged. */
TEST(data_is_kept) {
  static const struct {
    const char *data;
    int len;
  } kinds[] = {{NULL, -1}, {"", 0}, {"a\0b", 3}};
  zke_queue_item *item;
  open_queue(WITH(0));
  for (int i = 0; i < 6; i++) {
    const char *data = kinds[i / 2].data;
    int len = kinds[i / 2].len;
    ck_ok(zke_queue_put(party[0], data, len, NULL, 0));
    ck_ok(i % 2 ? zke_queue_take(party[1], 0, &item)
                : zke_queue_claim(party[1], 0, &item));
    ck_assert_int_eq(item->len, len);
    ck_assert_int_eq(item->data != NULL, data != NULL);
    if (data) ck_assert_mem_eq(item->data, data, (size_t)len + 1);
    if (i % 2 == 0) ck_ok(zke_queue_ack(party[1], item, NULL, 0, NULL));
    zke_free(item);
  }
}

/* "Batch put in one multi".  A batch over the data limit, or the queue's limit,
 * is refused as a whole. */
TEST(a_batch_is_one_step) {
  static char big[600000];
  const zke_queue_value values[] = {{big, sizeof big}, {big, sizeof big}};
  zke_queue_entries *list;
  open_queue(WITH(.limit = 3));
  ck_rc(zke_queue_put_all(party[0], values, 2, NULL, 0), ZKE_BADARGUMENTS);
  play(
      "ann puts a b c d soon -> LIMIT; said limit 3; ann puts;"
      "ann size limit=3; ann puts a b c; ann put x -> LIMIT");
  ck_ok(zke_queue_list(party[1], &list));
  ck_assert_int_eq(list->count, 3);
  ck_assert_int_eq(list->data[0].zxid, list->data[2].zxid);
  zke_free(list);
  play("bob take -> a; bob take -> b; bob take -> c");
}

/* ---- claims ---- */

/* "At least once under an ephemeral claim with ack, release"; each claim has a
 * greater token (fencing). */
TEST_STEPS(a_claim_keeps_others_out_until_it_is_released,
           "ann put a; bob claim -> a; cid claim -> OPERATIONTIMEOUT;"
           "said claimed; said bob; bob check; bob release; cid claim -> a x2;"
           "cid ack; bob take -> OPERATIONTIMEOUT; size;"
           "children /jobs/taken -> none")

/* The next item goes to the next consumer; a released item is first again. */
TEST_STEPS(several_claims_at_once,
           "ann put a; ann put b; ann put c; bob claim -> a; cid claim -> b;"
           "bob release; cid claim more -> a x2; bob take -> c; cid ack;"
           "cid ack more; size")

/* A claim ends once: a later call, or one from another object, is refused and
 * does not affect the present consumer, even if that is the same object
 * (etcd#22082). */
TEST_STEPS(
    a_claim_ends_once,
    "ann put a; bob claim old -> a; cid ack old -> LOST; bob release old;"
    "bob release old -> LOST; bob claim -> a x2; bob ack old -> LOST;"
    "bob release old -> LOST; bob check old -> LOST; bob check; bob ack")

/* "A check of the claim in the same multi as the ack": the changes of the work
 * are made together with the acknowledgement, or not at all. */
TEST(ack_takes_the_callers_changes_along) {
  zke_op ops[2];
  zke_op_result results[2];
  open_queue(WITH(0));
  play("ann put a; bob claim -> a");
  zke_queue_item *item = *keep("bob");
  zke_op_create(&ops[0], "/result", "r", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_check(&ops[1], "/missing", -1);
  memset(results, 0, sizeof results);
  ck_rc(zke_queue_ack(party[1], item, ops, 2, results), ZKE_NONODE);
  ck_assert_int_eq(results[1].rc, ZKE_NONODE);
  zke_results_clear(results, 2);
  play("size items=1 claimed=1; data /result -> NONODE; bob check");
  zke_op_create(&ops[1], "no path", "r", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_queue_ack(party[1], item, ops, 2, NULL), ZKE_MARSHALLINGERROR);
  ck_ok(zke_queue_ack(party[1], item, ops, 1, results));
  ck_assert_str_eq(results[0].path, "/result");
  zke_results_clear(results, 1);
  play("data /result -> r");
}

/* "A public way to put the claim's check into the caller's own zke_multi".  If
 * another consumer claims the item, the path exists again, but the claim does
 * not. */
TEST_STEPS(claim_op_guards_the_callers_multi,
           "ann put a; bob claim -> a; cid multi bob; bob release;"
           "cid multi bob -> NONODE; bob claim again -> a x2;"
           "cid multi bob -> BADVERSION")

/* "After the session is lost, no recipe object still claims to hold anything":
 * the item is immediately free for others.  An acknowledgement also finds the
 * end of its session. */
TEST_WITH(an_expired_session_holds_nothing, (LISTENING),
          "ann put a; bob claim -> a; bob expires; cid claim -> a x2;"
          "ann multi bob -> BADVERSION; bob dispatches;"
          "told bob LOST entry-100-0000000001, bob ENDED;"
          "bob ack -> INVALIDSTATE; bob check -> INVALIDSTATE;"
          "bob put b -> INVALIDSTATE; dan put b; dan claim -> b; dan expires;"
          "dan ack -> INVALIDSTATE; cid ack; cid take -> b x2; size")

/* A claim's znode is deleted: the listener hears it, and nothing works with the
 * claim any more, told or not.  One's own ack or release is not a loss. */
TEST_WITH(a_broken_claim_is_lost, (LISTENING),
          "ann put a; bob claim -> a; break bob; bob dispatches;"
          "told bob LOST entry-100-0000000001; bob ack -> LOST;"
          "cid claim -> a x2; break cid; bob claim -> a x3; cid ack -> LOST;"
          "bob check; bob ack; ann put b; bob claim -> b; bob release;"
          "all dispatch; bob claim -> b x2; bob ack; all dispatch; told")

/* "Ephemeral ones on request": they go with their producer; a claim on them is
 * then lost, and leaves nothing (kazoo#366). */
TEST_STEPS(ephemeral_items_go_with_their_producer,
           "ann put a ephemeral; ann put b ephemeral; ann put c; cid take -> a;"
           "bob claim -> b; ann expires; bob ack -> LOST;"
           "children /jobs/taken -> none; bob take -> c;"
           "bob take -> OPERATIONTIMEOUT")

/* "Freeing gives up what it holds". */
TEST_STEPS(free_releases_what_is_claimed,
           "ann put a; ann put b; bob claim -> a; bob claim more -> b;"
           "cid take -> OPERATIONTIMEOUT; bob free; cid take -> a x2;"
           "cid take -> b x2")

/* ---- delays ---- */

/* "Delayed items (not before a time)": skipped until then, whatever their
 * priority. */
TEST_STEPS(delayed_items_are_passed_over,
           "ann put late p=1 due=3600000; ann put a;"
           "size items=2 ready=1 delayed=1; bob take -> a;"
           "bob take -> OPERATIONTIMEOUT; said is due in; bob due in an hour")

/* Waiters wake up for them when their time has come.  A later put with an
 * earlier time moves the wake-up; an earlier deadline is kept. */
TEST_STEPS(
    delayed_items_wait_for_their_time,
    "clock; ann put late p=1 due=200; bob take soon -> late p=1 due;"
    "passed 200; bob due never; ann put far due=3600000; clock;"
    "bob take in=50 -> OPERATIONTIMEOUT; passed 50; bob waits take; clock;"
    "ann put near due=100; bob returns -> near due; passed 100")

/* The time survives the producer, and the database's closing. */
TEST(a_delay_survives) {
  open_ann();
  play("clock; ann put later due=100");
  close_ann();
  open_ann();
  play("ann take soon -> later due; passed 100");
  close_ann();
}

/* ---- limits ---- */

/* "A bound on size": claimed and delayed items count until they are gone. */
TEST_WITH(a_full_queue_takes_no_more, (.limit = 2),
          "ann put a; ann put b due=3600000; bob put c -> LIMIT; said full;"
          "cid claim -> a; bob put c -> LIMIT; bob put c in=20 -> LIMIT;"
          "cid ack; bob put c; ann put d -> LIMIT")

/* "Put blocks until room". */
TEST_WITH(a_put_waits_for_room, (.limit = 1),
          "ann put a; bob waits put late;"
          "size items=1 ready=1 putters=1 limit=1; ann take -> a; bob returns;"
          "ann take -> late; size limit=1")

/* The limit belongs to the queue: objects that state another are refused; those
 * that state none take it over, even older ones. */
TEST_STEPS(the_limit_is_the_queues,
           "ann put a;" /* no limit stated yet */
           "bob new limit=2; bob put b; ann put c -> LIMIT; bob' new limit=5;"
           "bob' put c -> BADARGUMENTS; said limit 2, not 5;"
           "cid size items=2 ready=2 limit=2; cid' new attempts=3;"
           "cid' size items=2 ready=2 limit=2 attempts=3")

/* ---- another process, between any two steps of a call ----
 *
 * Ann is the caller of sessions.h, and bob the intruder, each with its own
 * store: at the n-th place of ann's call bob acts; n = 1, 2, 3 ... until the
 * call has no such place. */

static void close_moments(void) {
  free_kept();
  free_parties();
  close_two();
}

static void open_moments(zke_queue_options own, zke_queue_options other) {
  open_two_patient(1000);
  open_one(0, caller, own);
  open_one(1, intruder, other);
  closes = close_moments;
}

/* A row of the table. */
typedef struct moment {
  const char *before; /* in each round */
  const char *call;   /* ann's */
  const char *act;    /* bob's, meanwhile */
  const char *won, *lost;
  int refusal;         /* ann's code if bob gets it */
  int limit, claim_ms; /* of ann's queue; of bob's claims */
  bool wraps;          /* the version of "entries" has just wrapped around */
  bool both;           /* both may succeed */
} moment;

static const moment *at_moment;
static int others_rc;

static void act_of_bob(void) { others_rc = take_by(1, at_moment->act, ""); }

/* One of the two gets it, or both.  Returns whether bob acted. */
static bool pass_moment(const moment *m, int n, int *won, int *lost) {
  act_between(n, act_of_bob);
  int rc = take_by(0, m->call, "");
  bool more = acted(), has = rc == ZKE_OK;
  bool other = more && others_rc == ZKE_OK;
  ck_assert_msg(m->both ? has : has != other, "%s at place %d, and %s",
                zke_error_name(rc), n, zke_error_name(others_rc));
  if (!has) ck_rc(rc, m->refusal);
  *won += has;
  *lost += other;
  play(has ? m->won : m->lost);
  while (take_by(0, "take", "") == ZKE_OK) continue;
  ck_assert_int_eq(items(caller) + entries(caller, PATH "/keys"), 0);
  return more;
}

#define ENDED "ann put a; bob claim soon -> a; ann until items=1 ready=1"

static const moment all_moments[] = {
    /* "A bound on size that holds under concurrency" (Q2) */
    {"", "put a", "put b", "ann take -> a", "ann take -> b",
     .refusal = ZKE_LIMIT, .limit = 1},
    {"", "put a", "put b", "ann take -> a", "ann take -> b",
     .refusal = ZKE_LIMIT, .limit = 1, .wraps = true},
    /* "Consume at most once", "at least once" (Q1) */
    {"ann put a", "take", "claim", "", "bob ack",
     .refusal = ZKE_OPERATIONTIMEOUT},
    {"ann put a", "claim", "claim", "ann ack", "bob ack",
     .refusal = ZKE_OPERATIONTIMEOUT},
    /* The first consumer acknowledges or prolongs while ann takes over. */
    {ENDED, "claim", "ack", "bob ack -> LOST; ann ack", "",
     .refusal = ZKE_OPERATIONTIMEOUT, .claim_ms = 1},
    {ENDED, "claim", "prolong bob 60000", "bob ack -> LOST; ann ack", "bob ack",
     .refusal = ZKE_OPERATIONTIMEOUT, .claim_ms = 1},
    /* One item gets the key, and its znodes name it. */
    {"", "put a key=k", "put b key=k", "ann take -> a key=k",
     "ann take -> b key=k", .refusal = ZKE_NODEEXISTS},
    {"", "put a key=k soon", "put b", "bob put c key=k -> NODEEXISTS", "",
     .both = true}};

/* Whatever the other does, at any moment: one of the two gets it. */
TEST_LOOP(one_of_two_has_it_at_every_moment, 0,
          sizeof all_moments / sizeof *all_moments) {
  const moment *m = at_moment = &all_moments[_i];
  int won = 0, lost = 0;
  bool more = true;
  open_moments(WITH(.limit = m->limit), WITH(.claim_ms = m->claim_ms));
  for (int n = 1; more; n++) {
    if (m->wraps) {
      play("bob put x; bob take -> x");
      test_set_version(test_path("db"), PATH "/entries", -2);
      play("bob put x; bob take -> x");
    }
    play(m->before);
    more = pass_moment(m, n, &won, &lost);
  }
  ck_assert_int_gt(won, 0);
  ck_assert_int_gt(lost, 0);
  close_moments();
}

/* The version of an item counts its claims.  A claim at which it wraps around
 * is like any other, and ends when its time has come. */
TEST_LOOP(claims_hold_where_versions_wrap, 0, 3) {
  static const int32_t versions[] = {-3, -2, INT32_MAX};
  open_moments(WITH(.claim_ms = 100), WITH(0));
  play("ann put a; ann claim -> a; ann release");
  test_set_version(test_path("db"), (*keep("ann"))->entry_path, versions[_i]);
  play(
      "ann claim; ann prolong ann 100; ann check; bob claim soon;"
      "ann ack -> LOST; bob prolong bob ever; bob ack");
}

/* ---- claims that end ---- */

/* The consumer is alive but silent: another that sleeps gets the item when the
 * time has come and not earlier.  The first is then refused. */
TEST_WITH(a_claim_that_ends_goes_on, (.claim_ms = 200),
          "ann put a; clock; ann claim -> a; bob claim soon -> a x2;"
          "passed 200; bob prolong bob ever; ann check -> LOST;"
          "ann multi ann -> BADVERSION; ann ack creates=/wrong -> LOST;"
          "data /wrong -> NONODE; all dispatch; bob check; bob ack; size")

/* Only the listener of the consumer that lost its item hears of it. */
TEST_WITH(the_listener_hears_that_a_claim_has_ended,
          (.claim_ms = 30, LISTENING),
          "ann put a; ann claim -> a; bob claim soon -> a x2; all dispatch;"
          "told ann LOST entry-100-0000000001; bob ack")

static const char *const late[] = {
    "ann ack -> LOST", "ann prolong ann 60000 -> LOST",
    "ann release delay=60000 -> LOST", "ann ack_all ann -> LOST", "ann free"};

/* A claim's time is over and another consumer has the item: every call with the
 * first claim returns ZKE_LOST, and takes nothing from the second. */
TEST_LOOP(a_claim_that_is_over_can_do_nothing, 0, sizeof late / sizeof *late) {
  open_queue(WITH(.claim_ms = 30));
  play("ann put a; ann claim -> a; bob claim soon -> a x2");
  play("bob prolong bob 60000");
  play(late[_i]);
  play("bob check; cid take -> OPERATIONTIMEOUT; bob ack");
}

/* Until another consumer takes the item, the claim still works.  A claim that
 * ends later blocks others. */
TEST_WITH(an_ended_claim_is_kept_until_another_comes, (.claim_ms = 30),
          "ann put a; ann claim -> a; until items=1 ready=1; ann check;"
          "ann prolong ann 60000; size items=1 claimed=1;"
          "bob take -> OPERATIONTIMEOUT; said is claimed; ann prolong ann 1;"
          "until items=1 ready=1; ann ack; size; children /jobs/taken -> none")

/* A consumer that keeps prolonging keeps the item; forever means as long as its
 * session.  This wakes no other consumer. */
TEST(prolonging_keeps_the_item) {
  zke_stat stat;
  open_queue(WITH(.claim_ms = 30));
  play("ann put a; ann claim -> a");
  for (int i = 0; i < 5; i++)
    play(
        "ann prolong ann 60000; bob claim in=30 -> OPERATIONTIMEOUT;"
        "ann check");
  play(
      "ann prolong ann ever; children /jobs/taken -> entry-100-0000000001;"
      "ann prolong ann 0 -> BADARGUMENTS; bob prolong ann 1 -> LOST");
  ck_ok(zke_exists(z[2], (*keep("ann"))->claim_path, NULL, NULL, &stat));
  ck_assert_int_eq(stat.version, 0); /* a waiting consumer was not woken */
  play("ann prolong ann 1; bob claim soon -> a x2; bob ack");
}

/* The last attempt's time is over: the next consumer that looks buries the
 * item. */
TEST_WITH(an_exhausted_item_whose_claim_ends_is_buried,
          (.claim_ms = 1, .attempts = 2),
          "ann put a; ann claim -> a; bob claim soon -> a x2;"
          "until items=1 ready=1 attempts=2; cid take -> OPERATIONTIMEOUT;"
          "dead 1 x2 its consumer did not answer in time; bob ack -> LOST;"
          "children /jobs/taken -> none")

/* A marker without its claim, which was discarded in two steps, does not end a
 * later claim. */
TEST_STEPS(a_marker_that_was_left_ends_no_later_claim,
           "ann put a; ann claim -> a;"
           "create /jobs/taken/until-0000000000001-0-entry-100-0000000001;"
           "bob take -> OPERATIONTIMEOUT; size items=1 claimed=1;"
           "children /jobs/taken -> entry-100-0000000001")

/* A consumer waits for a claim without an end, or (later) with one, which its
 * owner ends now: the sleeping consumer hears of it, and gets the item. */
TEST_STEPS(a_shortened_claim_wakes_waiting_consumers,
           "ann put a; ann claim -> a; bob waits claim; bob sleeps;"
           "ann prolong ann 1; bob returns -> a x2; ann ack -> LOST;"
           "bob release; ann claim -> a x3; ann prolong ann 60000;"
           "bob waits claim; bob sleeps; ann prolong ann 1;"
           "bob returns -> a x4; ann ack -> LOST")

/* The only claim goes, and an overdue one takes its place. */
static void swap_claims(void) {
  zke_op ops[3];
  char marker[100];
  const zke_queue_item *item = *keep("bob");
  snprintf(marker, sizeof marker, PATH "/taken/until-0000000000001-1-%s",
           item->name);
  zke_op_delete(&ops[0], item->claim_path, -1);
  zke_op_create(&ops[1], item->claim_path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  zke_op_create(&ops[2], marker, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  ck_ok(zke_multi(intruder, ops, 3, NULL));
}

/* At any moment, the claim that a consumer waits for is replaced by another,
 * which ends: the consumer wakes.  The last moment is just before its sleep. */
TEST(a_claim_that_becomes_another_is_noticed_at_every_moment) {
  int n = 1;
  open_moments(WITH(0), WITH(0));
  for (slept = false; !slept; n++) {
    play("ann put a; bob claim -> a");
    act_by_sleep(n, swap_claims);
    int rc = take_by(0, "claim", "soon");
    ck_assert_msg(acted() && rc == ZKE_OK, "place %d: it slept on", n);
    play("ann ack; bob ack -> LOST");
  }
  ck_assert_int_gt(n, 10);
}

/* ---- returned with a delay ---- */

/* An item returned with a delay is listed as delayed, is not claimed before its
 * time, and keeps its place.  Until then all items are looked at, on a server
 * too. */
TEST_STEPS(a_delayed_release_waits_for_its_time,
           "ann put a; ann put b; ann claim -> a;"
           "clock; ann release delay=1000; ann ack -> LOST;"
           "list 1 x1 delayed, 2; size items=2 ready=1 delayed=1;"
           "bob claim soon -> b; bob release;"
           "until items=2 ready=2; passed 1000;"
           "cid claim -> a x2; cid ack;" /* it kept its place */
           "cid take -> b x2; children /jobs/taken -> none")

/* A sleeping consumer wakes when the item is due; the last attempt is buried
 * immediately; a delay of zero is none. */
TEST_WITH(a_delayed_release_wakes_waiting_consumers, (.attempts = 2),
          "ann put a; ann claim -> a; bob waits claim; clock;"
          "ann release delay=60; bob returns -> a x2; passed 60;"
          "bob release delay=60000 reason=late; dead 1 x2 bob late; ann put b;"
          "ann claim -> b; ann release delay=-1 -> BADARGUMENTS; ann release;"
          "bob take -> b x2")

/* The consumer that returned it has ended, and another sleeps until it is
 * due. */
TEST_STEPS(
    a_delay_outlives_its_giver,
    "ann put a; ann claim -> a; bob waits claim; clock; ann release delay=300;"
    "ann expires; bob returns -> a x2; passed 300")

/* ---- batches ---- */

static void free_all(zke_queue_item **items, int count) {
  for (int i = 0; i < count; i++) zke_free(items[i]);
}

/* A claim gets as many items as there are, in order, with one token.  They are
 * returned one by one, or acknowledged together with a change or not at all. */
TEST(several_items_are_claimed_in_one_step) {
  zke_queue_item *some[4], *rest[20];
  int count;
  zke_op op;
  open_queue(WITH(0));
  for (int i = 0; i < 12; i++) put(party[0], i % 2 ? "b" : "a");
  play("ann put urgent p=1; cid claim -> urgent p=1");
  ck_ok(zke_queue_claim_some(party[0], 4, 0, some, &count));
  ck_assert_int_eq(count, 4);
  for (int i = 0; i < 4; i++) {
    ck_assert_str_eq(some[i]->data, i % 2 ? "b" : "a");
    ck_assert_int_eq(some[i]->token, some[0]->token);
    ck_assert_int_eq(some[i]->attempts, 1);
    ck_ok(zke_queue_check(party[0], some[i]));
  }
  play("size items=13 ready=8 claimed=5");
  ck_ok(zke_queue_release(party[0], some[3], 0, NULL));
  zke_op_create(&op, "/done", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_queue_ack_all(party[0], some, 3, &op, 1, NULL));
  free_all(some, 4);
  play("data /done; cid ack");
  ck_ok(zke_queue_claim_some(party[1], 20, 0, rest, &count));
  ck_assert_int_eq(count, 9);
  ck_assert_ptr_null(rest[9]);
  ck_ok(zke_queue_ack_all(party[1], rest, 9, NULL, 0, NULL));
  free_all(rest, 9);
  ck_rc(zke_queue_claim_some(party[1], 20, 0, rest, &count),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(count, 0);
  for (int most = 0; most <= 257; most += 257)
    ck_rc(zke_queue_claim_some(party[1], most, 0, rest, &count),
          ZKE_BADARGUMENTS);
  ck_rc(zke_queue_claim_some(party[1], 1, 0, NULL, &count), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_claim_some(party[1], 1, 0, rest, NULL), ZKE_BADARGUMENTS);
}

/* If one of them is lost, nothing is acknowledged, and the others stay
 * claimed. */
TEST(a_batch_is_acknowledged_or_not) {
  static const char *const labels[] = {"1", "2", "3"};
  zke_queue_item *some[3];
  int count;
  open_queue(WITH(0));
  play("ann puts a b c");
  ck_ok(zke_queue_claim_some(party[0], 3, 0, some, &count));
  ck_assert_int_eq(count, 3);
  for (int i = 0; i < 3; i++) *keep(labels[i]) = some[i];
  play(
      "break 2; ann ack_all 1 2 3 -> LOST; size items=3 ready=1 claimed=2;"
      "ann ack 1; ann ack 2 -> LOST; ann ack 3; bob take -> b x2");
}

/* Items that do not fit one step are claimed in parts. */
TEST(a_batch_is_as_large_as_a_step) {
  enum { LARGE = 400 * 1024 };
  char *data = calloc(1, LARGE);
  zke_queue_item *some[5];
  int count, sum = 0;
  open_queue(WITH(0));
  for (int i = 0; i < 5; i++)
    ck_ok(zke_queue_put(party[0], data, LARGE, NULL, 0));
  for (; sum < 5; sum += count) {
    ck_ok(zke_queue_claim_some(party[0], 5, 0, some, &count));
    ck_assert_int_ge(count, 1);
    ck_assert_int_le(count, 2);
    ck_ok(zke_queue_ack_all(party[0], some, count, NULL, 0, NULL));
    free_all(some, count);
  }
  free(data);
}

/* ---- keys ---- */

/* A key has one item, from its put until it is out. */
TEST_STEPS(a_key_is_in_the_queue_once,
           "ann put a key=k; bob put b key=k -> NODEEXISTS;"
           "said with the key k: entry-100-0000000001; bob put b key=K;"
           "cid claim -> a key=k; bob put c key=k -> NODEEXISTS;"
           "cid release delay=1; bob put c key=k -> NODEEXISTS;"
           "until items=2 ready=2; cid claim -> a x2 key=k; cid ack;"
           "bob put c key=k; ann take -> b key=K; ann put d key=K;"
           "ann take -> c key=k; ann take -> d key=K;"
           "children /jobs/keys -> none; ann put e; ann claim -> e; ann ack")

/* Any line of text is a key, and no two lines are the same key. */
TEST(keys_are_any_text) {
  static const char *const keys[] = {
      "/a/b",    "%2Fa%2Fb", "..", "%", "key-a", "a b", "entry-100-0000000001",
      "\xc3\xa4"};
  static const char *const bad[] = {"", "a\nb", "\xff"};
  enum { KEYS = sizeof keys / sizeof keys[0] };
  char largest[257];
  zke_queue_entries *list;
  open_queue(WITH(0));
  for (int i = 0; i < KEYS; i++) ck_ok(put_key(party[0], "a", keys[i]));
  for (int i = 0; i < KEYS; i++)
    ck_rc(put_key(party[0], "a", keys[i]), ZKE_NODEEXISTS);
  /* in znodes' names only '/' and '%' are escaped */
  play(
      "data /jobs/keys/key-%2Fa%2Fb; data /jobs/keys/key-%252Fa%252Fb;"
      "data /jobs/keys/key-\xc3\xa4");
  ck_ok(zke_exists(z[0], PATH "/keys/key-a b", NULL, NULL, NULL));
  ck_ok(zke_queue_list(party[1], &list));
  for (int i = 0; i < KEYS; i++) ck_assert_str_eq(list->data[i].key, keys[i]);
  zke_free(list);
  for (int i = 0; i < KEYS; i++) take_text(party[1], "a");
  memset(largest, '/', 256);
  largest[256] = '\0';
  ck_rc(put_key(party[0], "a", largest), ZKE_BADARGUMENTS);
  largest[255] = '\0';
  ck_ok(put_key(party[0], "a", largest));
  for (int i = 0; i < 3; i++)
    ck_rc(put_key(party[0], "a", bad[i]), ZKE_BADARGUMENTS);
  zke_queue_put_options o = {.size = sizeof o, .key = "two"};
  zke_queue_value two[2] = {{"a", 1}, {"b", 1}};
  ck_rc(zke_queue_put_all(party[0], two, 2, &o, 0), ZKE_BADARGUMENTS);
  take_text(party[1], "a");
}

/* A letter has its item's key, and is requeued like any item with it; the
 * burial frees the key. */
TEST_WITH(a_letter_keeps_its_key, (.attempts = 1),
          "ann put a key=x/y; bob claim -> a key=x/y; bob release;"
          "dead 1 x1 bob it was given back key=x/y; ann put b key=x/y;"
          "ann requeue -> NODEEXISTS; size items=1 ready=1 dead=1 attempts=1;"
          "bob take -> b key=x/y; ann requeue; ann put b key=x/y -> NODEEXISTS;"
          "ann requeue -> NONODE; bob take -> a key=x/y")

/* A key has no effect if its item went in another way: with its producer, or by
 * a program that does not know keys. */
TEST(a_key_without_its_item_keeps_nobody_out) {
  open_queue(WITH(0));
  play(
      "cid put a ephemeral key=e; ann put b key=e -> NODEEXISTS; cid free;"
      "cid expires; children /jobs/keys -> none; ann put b key=e;"
      "delete /jobs/entries/entry-100-0000000002; bob put c key=e;"
      "ann put d key=e -> NODEEXISTS");
  ck_ok(zke_set(z[0], PATH "/keys/key-e", NULL, -1, -1, NULL));
  play(
      "bob put d key=e;" /* it has no effect any more */
      "ann claim -> c key=e; ann claim more -> d key=e; ann ack;"
      "bob put f key=e -> NODEEXISTS; ann ack more; bob put f key=e;"
      "ann take -> f key=e; create /jobs/keys/entry-100-0000000006 of old;"
      "bob put g key=e; list 6 key=e; ann claim -> g key=e; ann ack");
}

/* A key in use is refused immediately, even if there is no room; a free key
 * waits for room. */
TEST_WITH(a_key_is_refused_before_room_is_waited_for, (.limit = 1),
          "ann put a key=k; bob put b key=k soon -> NODEEXISTS;"
          "bob put b key=other -> LIMIT; cid take -> a key=k; bob put b key=k;"
          "ann destroy; data /jobs -> NONODE; bob put b key=k;"
          "cid take -> b key=k")

static int times; /* bob's acts */

static void put_always(void) {
  play("bob put b");
  if (++times == 200) ck_ok(zke_queue_cancel(party[0]));
  act_between(1, put_always);
}

/* Others put at each try of a put with a key.  The put ends at its deadline,
 * and does not say that the queue is full; or it can be cancelled, although it
 * keeps trying without sleeping. */
TEST(a_call_that_is_never_quick_enough_is_cancelled) {
  open_moments(WITH(0), WITH(0));
  play("ann put first");
  times = 1000;
  act_between(1, put_always);
  ck_rc(put_key(party[0], "a", "k"), ZKE_OPERATIONTIMEOUT);
  ck_says("others changed the tree at each look");
  times = 0;
  zke_queue_put_options o = {.size = sizeof o, .key = "k"};
  ck_rc(zke_queue_put(party[0], "a", 1, &o, ZKE_FOREVER), ZKE_CANCELLED);
  acted();
  play("ann put a key=k");
}

/* Delete the user znodes, which show whether a step was made. */
static void delete_users(void) {
  places(intruder, zke_session_id(caller), "", true);
}

/* The reply of a prolongation is lost, after the change or (3) before it, and
 * the user znode is deleted at any moment of the call, so its result may be
 * unknown.  (1) The claim does not end by itself any more, or (2) has not until
 * now.  It is still held, and can be acknowledged. */
TEST_LOOP(a_prolongation_whose_end_is_open_keeps_the_claim, 0, 4) {
  bool more = true;
  int open = 0;
  open_moments(WITH(.claim_ms = 60000), WITH(0));
  for (int n = 1; more; n++) {
    play("ann put a; ann claim -> a");
    if (_i == 2) play("ann prolong ann ever");
    act_between(n, delete_users);
    ck_ok(zke_test_fail(
        caller, _i == 3 ? ZKE_TEST_FAIL_BEFORE : ZKE_TEST_FAIL_AFTER, 0));
    open += take_by(0, "prolong", _i == 1 ? "ann ever" : "ann 50000") ==
            ZKE_CONNECTIONLOSS;
    more = acted();
    play("ann ack");
    ck_assert_int_eq(entries(intruder, PATH "/taken"), 0);
  }
  ck_assert_int_gt(open, 0);
}

/* ---- dead letters ---- */

static void cancel_late(void) {
  if (++times == 500) ck_ok(zke_queue_cancel(party[0]));
  act_between(1, cancel_late);
}

/* A burial that finds every name for its letter taken can be cancelled. */
TEST(a_burial_that_looks_for_a_name_is_cancelled) {
  enum { LETTERS = 2000 };
  zke_queue_entries *list;
  char next[100] = "create /jobs/dead/entry-100-0000000001";
  open_moments(WITH(.attempts = 1), WITH(0));
  play("ann put a; create /jobs/dead");
  ck_ok(zke_queue_list(party[0], &list));
  int first = (int)list->data[0].zxid + 1;
  zke_free(list);
  for (int i = 0; i < LETTERS; i++) {
    play(next);
    snprintf(next, sizeof next, "create /jobs/dead/entry-100-%010d", first + i);
  }
  play("set /jobs/entries/entry-100-0000000001 a"); /* exhausted */
  times = 0;
  act_between(1, cancel_late);
  ck_assert_int_eq(take_by(0, "take", "soon"), ZKE_CANCELLED);
  acted();
  ck_assert_int_eq(size_of(party[0]).dead, LETTERS);
}

/* "After N attempts an item goes to a dead-letter place": with the release of
 * the last one. */
TEST_WITH(the_last_release_buries, (.attempts = 2),
          "ann put a p=7; ann put b; bob claim -> a p=7; bob release;"
          "size items=2 ready=2 attempts=2; cid claim -> a x2 p=7; cid release;"
          "size items=1 ready=1 dead=1 attempts=2; bob take -> b;"
          "bob take -> OPERATIONTIMEOUT")

/* An attempt counts even if its consumer was killed, so exhausted items do not
 * circulate.  A peek skips such an item, and changes nothing. */
TEST_WITH(an_item_that_kills_its_consumers_is_buried, (.attempts = 2),
          "ann put poison; ann put b; bob claim -> poison; bob expires;"
          "cid claim -> poison x2; cid expires; ann peek -> b; dead;"
          "ann take -> b; dead 1 x2 its consumer ended without an answer")

/* "Requeue of dead letters with the base name": the name never grows
 * (CURATOR-56); attempts start again. */
TEST(a_letter_is_requeued_under_its_base_name) {
  open_queue(WITH(.attempts = 1));
  play("ann put a p=7");
  for (int i = 0; i < 5; i++) {
    play("bob claim -> a p=7");
    ck_assert_uint_eq(strlen((*keep("bob"))->name), 20);
    play("bob release; size dead=1 attempts=1");
    ck_assert_uint_eq(strlen(letter(party[2])), 20);
    play("cid requeue; cid requeue -> NONODE; size items=1 ready=1 attempts=1");
  }
  play("ann take -> a p=7");
}

/* A letter says how often it was claimed, its last consumer, and why that
 * returned it, or that it died.  Letters are in the order of burial.
 */
TEST_WITH(
    a_letter_says_how_it_died, (.attempts = 2),
    "ann put a; ann put b; bob claim -> a; cid claim -> b;"
    "cid release reason=no space\nleft; cid claim -> b x2;"
    "cid release reason=no paper\nleft; bob release; bob claim -> a x2;"
    "bob expires; ann take -> OPERATIONTIMEOUT;"
    "dead 2 x2 cid no paper left, 1 x2 its consumer ended without an answer")

enum { MOST_BYTES = 1048576 };

static char *large(void) { return memset(malloc(MOST_BYTES), 'x', MOST_BYTES); }

/* An item of the maximum size leaves no room for more in the step that buries
 * it.  It is still buried, and its key kept, so that no second item gets it. */
TEST(the_largest_item_is_buried) {
  const int most = MOST_BYTES - (int)strlen("entry-100-0000000002k");
  zke_queue_put_options o = {.size = sizeof o, .key = "k"};
  zke_queue_entries *list;
  char *data = large();
  open_queue(WITH(.attempts = 1));
  ck_ok(zke_queue_put(party[0], data, MOST_BYTES, NULL, 0));
  play("bob claim; bob release");
  ck_ok(zke_queue_dead(party[0], &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].len, MOST_BYTES);
  zke_free(list);
  play("ann drop; ann drop -> NONODE");
  ck_rc(zke_queue_put(party[0], data, most + 1, &o, 0), ZKE_BADARGUMENTS);
  ck_ok(zke_queue_put(party[0], data, most, &o, 0));
  free(data);
  play(
      "bob claim; bob release; dead 2 key=k; ann put b key=k;"
      "ann requeue -> NODEEXISTS; bob take -> b key=k; ann requeue;"
      "ann put b key=k -> NODEEXISTS");
}

/* Also if an earlier letter has its name; the items behind it can be taken. */
TEST(the_largest_item_is_buried_beside_one_of_its_name) {
  const char *path = PATH "/entries/entry-100-0000000001";
  char *data = large();
  open_queue(WITH(.attempts = 1));
  play("ann put a; bob claim -> a; bob release");
  ck_ok(zke_create(z[0], path, data, MOST_BYTES, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  free(data);
  play(
      "ann put b; bob claim; bob release;"
      "size items=1 ready=1 dead=2 attempts=1; bob take -> b");
}

/* A program that makes items without the recipe may reuse a name; both items
 * are buried. */
TEST_WITH(two_items_of_one_name_become_dead_letters, (.attempts = 1),
          "ann put a; bob claim -> a; bob release;"
          "create /jobs/entries/entry-100-0000000001 b; bob claim -> b;"
          "bob release; size dead=2 attempts=1; ann drop;"
          "size dead=1 attempts=1; ann drop; size attempts=1")

/* The items' numbers start again with the directory, which is removed while the
 * queue is unused, and items put together have one zxid.  Still each letter
 * gets its own name, so none blocks the items behind it. */
TEST(letters_of_one_put_have_names_of_their_own) {
  open_queue(WITH(.attempts = 1));
  for (int i = 1; i <= 3; i++) {
    play(
        "ann puts a b; bob claim -> a; bob release; bob claim -> b;"
        "bob release");
    ck_assert_int_eq(size_of(party[2]).dead, 2 * i);
    play(
        "ann new; bob new; cid new; delete /jobs/entries/line;"
        "delete /jobs/entries");
  }
  play("ann put c; bob take -> c");
}

/* A new object's attempts do not change an existing queue. */
TEST_WITH(new_attempts_are_those_of_a_new_queue, (.new_attempts = 4),
          "ann put a; size items=1 ready=1 attempts=4; bob new new=5;"
          "bob take -> a; bob size attempts=4; bob new path=/plain; bob put a;"
          "bob new path=/plain new=5; bob take -> a; bob size;"
          "cid new path=/plain new=-1 -> BADARGUMENTS")

/* Requeueing needs room like any put, and wakes waiters. */
TEST_WITH(requeueing_is_putting, (.attempts = 1, .limit = 1),
          "ann put a; bob claim -> a; bob release; ann put b;"
          "ann requeue -> LIMIT;"
          "size items=1 ready=1 dead=1 limit=1 attempts=1; bob take -> b;"
          "bob waits take; ann requeue; bob returns -> a")

/* ---- waiting ---- */

/* A sleeping consumer, in take or claim, gets the item that is put, or that
 * another consumer returns, or the same object in another thread, or whose
 * consumer's session ended (P6). */
TEST_STEPS(the_next_item_ends_the_wait,
           "bob waits take; ann put a; bob returns -> a; bob waits claim;"
           "ann put b; bob returns -> b; bob ack; ann put a; ann claim -> a;"
           "bob waits take; ann release; bob returns -> a x2; bob put b;"
           "bob claim -> b; bob waits take; bob release; bob returns -> b x2;"
           "ann put c; ann claim -> c; bob waits take; ann expires;"
           "bob returns -> c x2")

/* "On timeout the sentence names what or who is missing"; nothing is left. */
TEST_STEPS(a_timeout_says_why_and_leaves_nothing,
           "bob take in=30 -> OPERATIONTIMEOUT; said the queue /jobs is empty;"
           "ann put a; ann claim -> a; bob take in=30 -> OPERATIONTIMEOUT;"
           "said is held by ann (pid; said since 20; size items=1 claimed=1")

/* A sleeping consumer, and a producer that sleeps for room, are cancelled, or
 * their session ends: neither stays in line, and nothing was put. */
TEST_WITH(cancel_ends_the_wait_of_another_thread, (.limit = 1),
          "bob waits take; bob cancels; bob returns -> CANCELLED; ann put a;"
          "bob waits put b; bob cancels; bob returns -> CANCELLED;"
          "size items=1 ready=1 limit=1; ann take -> a; bob waits take;"
          "bob expires; bob returns -> INVALIDSTATE")

/* One wait for items and one for room at a time; while a thread waits, others
 * can put and take. */
TEST_WITH(a_second_wait_on_an_object_is_misuse, (LISTENING),
          "bob waits take; bob take soon -> MISUSE; bob start -> MISUSE;"
          "bob stop -> MISUSE; bob take -> OPERATIONTIMEOUT; bob put a;"
          "bob returns -> a")

/* A deleted place in line is replaced. */
TEST_STEPS(a_lost_place_is_taken_again,
           "bob waits take; cid waits take; bob loses; cid loses; ann put a;"
           "ann put b; bob returns; cid returns; size")

/* ---- without blocking ---- */

/* A started consumer hears once of all existing items, and nothing more until
 * it starts again; a stop ends it. */
TEST_WITH(the_listener_is_told_of_an_item, (LISTENING),
          "bob start; bob start; all dispatch; told;"
          "ann put a; ann put b; bob dispatches; told bob ITEM;"
          "bob take -> a; size items=1 ready=1;"
          "bob start; told bob ITEM;" /* immediately */
          "bob stop; bob stop; size items=1 ready=1")

/* Another consumer was quicker: the try fails, and the next put is told
 * again. */
TEST_WITH(a_failed_try_waits_on, (LISTENING),
          "bob start; ann put a; bob dispatches; told bob ITEM; cid take -> a;"
          "bob take -> OPERATIONTIMEOUT; bob take soon -> MISUSE;"
          "size takers=1; ann put b; bob dispatches; told bob ITEM;"
          "bob take -> b")

/* The listener was told and has not tried, or its try could not begin: it hears
 * of the next put, and at a step of the existing items. */
TEST_WITH(who_has_not_tried_is_told_again, (LISTENING),
          "bob start; ann put a; bob dispatches; told bob ITEM;"
          "bob dispatches; told;" /* nothing has come */
          "ann put b; bob dispatches; told bob ITEM;"
          "bob step; told bob ITEM;"
          "bob take -> a; bob step; told;" /* it no longer waits */
          "bob take -> b")

static int tries; /* of a listener */

/* Takes an item when it is told; its first try fails because items cannot be
 * deleted then. */
static void take_second(zke_queue *queue, int event, int64_t token,
                        const char *name, void *context) {
  zke_queue_item *item = NULL;
  hear(queue, event, token, name, context);
  zke_acl keeps = {ZKE_PERM_ALL - ZKE_PERM_DELETE, "world", "anyone"};
  zke_acls acls = {1, &keeps};
  bool first = ++tries == 1;
  if (first) ck_ok(zke_set_acl(z[0], PATH "/entries", -1, &acls, NULL));
  ck_rc(zke_queue_take(queue, 0, &item), first ? ZKE_NOAUTH : ZKE_OK);
  if (first) ck_ok(zke_set_acl(z[0], PATH "/entries", -1, ZKE_OPEN_ACL, NULL));
  zke_free(item);
}

/* A listener whose try inside it has failed is told when a claim ends, even if
 * another item was there at that moment and has gone or was claimed since.
 * Until then it is told nothing. */
TEST_LOOP(who_has_failed_is_told_of_the_end_of_a_claim, 0, 3) {
  static const struct {
    const char *other, *end, *left;
  } ways[] = {{"ann take -> b", "cid release", "size"},
              {"ann claim -> b", "cid release", "size items=1 claimed=1"},
              {"ann claim -> b", "ann release", "size items=1 claimed=1"}};
  open_queue(WITH(.listener = take_second));
  play(
      "ann put a; ann put b; cid claim -> a; bob start; bob dispatches;"
      "told bob ITEM");
  play(ways[_i].other);
  play("bob dispatches; told");
  play(ways[_i].end);
  play("bob dispatches; told bob ITEM");
  play(ways[_i].left);
}

/* Takes one item each time it is told, or stops waiting (stops), but dispatches
 * before that, and the nested call is told of the next put.  The nested call
 * puts. */
static bool stops;
static void take_late(zke_queue *queue, int event, int64_t token,
                      const char *name, void *context) {
  zke_queue_item *item = NULL;
  hear(queue, event, token, name, context);
  put(party[0], "b");
  zke_dispatch(z[1], NULL);
  ck_ok(zke_queue_step(queue));
  if (stops) {
    ck_ok(zke_queue_stop(queue, event));
  } else {
    ck_ok(zke_queue_take(queue, 0, &item));
    zke_free(item);
  }
}

/* A consumer that stopped waiting hears nothing more, whatever was still to be
 * told, until its next start. */
TEST_LOOP(who_has_taken_is_not_told_again, 0, 2) {
  stops = _i;
  open_queue(WITH(.listener = take_late));
  play("bob start; ann put a; bob dispatches; told bob ITEM");
  play(_i ? "size items=2 ready=2" : "size items=1 ready=1");
  play("bob start; told bob ITEM");
}

/* The same for a producer at a full queue. */
TEST_WITH(the_listener_is_told_of_room, (.limit = 1, LISTENING),
          "ann put a; bob start room; all dispatch; told; ann take -> a;"
          "bob dispatches; told bob ROOM; bob put b;"
          "size items=1 ready=1 limit=1")

/* Puts two items when it is told of room, and gives up after some tries. */
static void put_two(zke_queue *queue, int event, int64_t token,
                    const char *name, void *context) {
  static const zke_queue_value values[] = {{"x", 1}, {"y", 1}};
  hear(queue, event, token, name, context);
  if (++tries > 9)
    ck_ok(zke_queue_stop(queue, event));
  else
    zke_queue_put_all(queue, values, 2, NULL, 0);
}

/* A listener that puts several and finds too little room is told when there is
 * room for all of them, not repeatedly before. */
TEST_WITH(the_listener_is_told_of_room_for_several,
          (.limit = 3, .listener = put_two),
          "ann put a; ann put b; ann put c; bob start room; ann take -> a;"
          "bob dispatches; told bob ROOM; ann take -> b; bob dispatches;"
          "told bob ROOM; size items=3 ready=3 limit=3")

/* Another put of several, without waiting, does not change what the listener is
 * told.  A second start asks for room for one, whatever was tried before. */
TEST_WITH(a_put_beside_leaves_the_listener_its_room, (.limit = 2, LISTENING),
          "ann put a; ann put b; bob start room; bob puts x y -> LIMIT;"
          "ann take -> a; bob dispatches; told bob ROOM; bob start room;"
          "told bob ROOM; bob puts x y -> LIMIT; told; bob start room;"
          "told bob ROOM; bob put c; size items=2 ready=2 limit=2")

/* Bad arguments are refused; a start needs a listener. */
TEST(arguments_are_checked) {
  zke_queue *none = (zke_queue *)1, *q;
  zke_queue_item *peeked;
  zke_op ops[ZKE_QUEUE_OPS];
  zke_queue_options o = {.size = 3};
  zke_queue_put_options p = {.size = sizeof p};
  open_queue(WITH(0));
  q = party[0];
  ck_rc(zke_queue_new(z[0], "jobs", NULL, &none), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(none);
  ck_rc(zke_queue_new(z[0], "/", NULL, &none), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_new(z[0], PATH, &o, &none), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_new(z[0], PATH, NULL, NULL), ZKE_BADARGUMENTS);
  o = (zke_queue_options){.size = sizeof o, .limit = -1};
  ck_rc(zke_queue_new(z[0], PATH, &o, &none), ZKE_BADARGUMENTS);
  play(
      "ann start -> MISUSE; ann put x p=1000 -> BADARGUMENTS;"
      "said options.priority is 1000, not 0 to 999");
  p.due_ms = -1;
  ck_rc(zke_queue_put(q, "x", 1, &p, 0), ZKE_BADARGUMENTS);
  ck_says("options.due_ms is -1, not 0 to 9999999999999");
  ck_rc(zke_queue_put(q, "x", -2, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_all(q, NULL, 1, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_take(q, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_ack(q, NULL, NULL, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_ack_all(q, NULL, 1, NULL, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_prolong(q, NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_requeue(q, "../a", 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_requeue(q, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_drop(q, "../entries"), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_size(q, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_list(q, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_peek(q, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_due(q, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_start(q, 77), ZKE_BADARGUMENTS);
  zke_queue_free(NULL);
  play("size; ann put a");
  ck_rc(zke_queue_destroy(q, 2), ZKE_BADARGUMENTS);
  ck_ok(zke_queue_peek(q, &peeked));
  ck_rc(zke_queue_ops(peeked, ops), ZKE_BADARGUMENTS);
  zke_free(peeked);
}

/* Two recipes of different kinds on one path get a clear error. */
TEST_STEPS(another_kind_on_the_path_is_refused,
           "create /jobs zkembed lock\n; ann put x -> OTHERKIND;"
           "said is of kind lock, not queue; ann take -> OTHERKIND;"
           "children /jobs -> none")

/* The whole queue was removed: the next call makes it again. */
TEST_STEPS(a_removed_queue_is_made_again,
           "ann put a; ann take -> a; ann free; delete /jobs/entries/line;"
           "delete /jobs/entries; delete /jobs; bob put b; cid take -> b")

/* ---- the end of a queue ---- */

/* A session whose dispatches remove empty containers immediately. */
static zke *open_hasty(void) {
  zke *hasty;
  zke_options o = {.size = sizeof o, .container_ms = ZKE_AT_ONCE};
  ck_ok(zke_open(test_path("db"), &o, &hasty));
  return hasty;
}

/* Dispatch until the path has gone. */
static void until_gone(zke *hasty, const char *path) {
  ck_until(zke_dispatch(hasty, NULL) == ZKE_OK &&
               zke_exists(hasty, path, NULL, NULL, NULL) == ZKE_NONODE,
           60000);
}

/* Queues that were used once, each by another object, leave nothing, whether
 * they were filled and emptied or only waited at. */
TEST(one_shot_queues_leave_nothing) {
  long queues = test_sample(1000, 200);
  zke *own = open_hasty();
  for (int i = 0; i < queues; i++) {
    zke_queue_options o = {.size = sizeof o, .new_attempts = i % 2};
    zke_queue *queue;
    zke_queue_item *item = NULL;
    char path[100];
    snprintf(path, sizeof path, "/replies/%d", i);
    ck_ok(zke_queue_new(own, path, &o, &queue));
    if (i % 4) put(queue, "x");
    int rc = i % 4 == 3 ? zke_queue_claim(queue, 0, &item)
                        : zke_queue_take(queue, 0, &item);
    ck_rc(rc, i % 4 ? ZKE_OK : ZKE_OPERATIONTIMEOUT);
    if (i % 4 == 3) ck_ok(zke_queue_ack(queue, item, NULL, 0, NULL));
    zke_free(item);
    zke_queue_free(queue);
  }
  until_gone(own, "/replies");
  ck_ok(zke_close(own));
}

static long dies_at; /* this reading of the clock is the last; 0: none */

static void die_at_look(seam_call *c) {
  (void)c;
  if (dies_at > 0 && --dies_at == 0) _exit(1);
}

/* Look for an item in its own queue, and die at the n-th reading of the clock.
 * Returns 0 if the call ended before. */
static int die_at_a_queue(void *context) {
  static seam s = {.before = {[SEAM_clock] = die_at_look}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  zke_queue *queue;
  zke_queue_item *item;
  zke *own;
  char path[100];
  snprintf(path, sizeof path, "/replies/%ld", *(long *)context);
  if (zke_open(test_path("db"), &o, &own) != ZKE_OK) return 2;
  dies_at = *(long *)context;
  if (zke_queue_new(own, path, NULL, &queue) != ZKE_OK) return 3;
  if (zke_queue_take(queue, 0, &item) != ZKE_OPERATIONTIMEOUT) return 4;
  zke_queue_free(queue);
  return zke_close(own) == ZKE_OK ? 0 : 5;
}

/* Wherever a process dies, all directories that it leaves are removed (Q6). */
TEST(a_death_leaves_no_queue) {
  int rc = 1;
  test_path("db");
  for (long n = 1; rc == 1; n++)
    rc = test_child_end(test_child(die_at_a_queue, &n));
  ck_assert_int_eq(rc, 0);
  zke *own = open_hasty();
  until_gone(own, "/replies");
  ck_ok(zke_close(own));
}

/* Reads make nothing. */
TEST_STEPS(looking_makes_no_queue,
           "ann peek -> NONODE; size; list; dead; ann due never;"
           "data /jobs -> NONODE")

/* A stated limit or stated attempts survive an empty queue. */
TEST(named_settings_stay) {
  zke *own = open_hasty();
  open_one(0, own, WITH(.limit = 7, .attempts = 2));
  play("ann put x; ann take -> x; ann free");
  until_gone(own, PATH "/entries");
  ck_ok(zke_create(own, "/later", "", 0, ZKE_OPEN_ACL, ZKE_CONTAINER, NULL,
                   NULL));
  play("create /later/x; delete /later/x");
  until_gone(own, "/later");
  play(
      "ann new; ann size limit=7 attempts=2; ann put y; ann take -> y;"
      "ann destroy_empty; ann destroy_empty -> NONODE; ann free");
  until_gone(own, PATH);
  ck_ok(zke_close(own));
}

static const char *const acts[] = {
    "bob ack -> LOST", "bob release -> LOST",
    "bob dispatches; told bob LOST entry-100-0000000001"};

/* The numbers start again with "entries", but a decision about an item is never
 * applied to another with its name and version (Q5). */
TEST_LOOP(a_name_that_comes_again_is_another_item, 0, 3) {
  open_queue(WITH(LISTENING));
  play(
      "ann put old; bob claim -> old; bob multi bob; ann destroy; ann put new;"
      "cid claim -> new");
  ck_assert_str_eq((*keep("bob"))->name, (*keep("cid"))->name);
  ck_assert_int_eq((*keep("bob"))->version, (*keep("cid"))->version);
  play("bob multi bob -> NONODE; bob check -> LOST");
  play(acts[_i]);
  play("cid check; cid ack; ann take -> OPERATIONTIMEOUT");
}

/* A user znode with an unknown version, as after a step whose reply could not
 * be resolved, stays: it guards its object's claims. */
TEST(an_unknown_version_keeps_the_claims_guarded) {
  zke_strings *line;
  open_queue(WITH(0));
  play("ann put a; bob claim -> a");
  ck_ok(zke_ephemerals(z[1], 0, PATH "/entries/line", &line));
  ck_assert_int_eq(line->count, 1);
  ck_ok(zke_set(z[1], line->data[0], "", 0, -1, NULL));
  zke_free(line);
  play(
      "bob put b; bob multi bob; bob check; bob ack; bob take -> b;"
      "bob take -> OPERATIONTIMEOUT");
}

static const char *const ends[] = {
    "bob ack -> LOST", "bob ack_all bob -> LOST", "bob release -> LOST",
    "bob release delay=60000 reason=later -> LOST",
    "bob prolong bob 60000 -> LOST"};
enum { ENDS = sizeof ends / sizeof *ends };

/* The same if the old claim's object is already in the new queue, as after a
 * put or the loss of another claim: its steps could be made there (Q5).  In
 * half of the rounds a release would bury the item. */
TEST_LOOP(an_old_claim_cannot_end_a_later_one, 0, 4 * ENDS) {
  bool puts = _i / ENDS % 2, buries = _i / ENDS / 2;
  open_queue(WITH(.attempts = buries));
  play(
      "ann put old; ann put too; bob claim -> old; bob claim lost -> too;"
      "ann destroy; ann put new; cid claim -> new");
  ck_assert_str_eq((*keep("bob"))->name, (*keep("cid"))->name);
  ck_assert_int_eq((*keep("bob"))->version, (*keep("cid"))->version);
  if (puts) play("bob put x soon");
  play("bob ack lost -> LOST");
  play(ends[_i % ENDS]);
  play("bob check -> LOST; cid check; cid ack");
  if (puts) play("ann take -> x");
  play("ann take -> OPERATIONTIMEOUT; dead");
}

/* Items in more than one batch, claims, letters and settings. */
TEST(destroying_removes_all) {
  open_queue(WITH(.attempts = 1));
  play(
      "ann put a; bob claim -> a; bob release;" /* a letter */
      "ann destroy_empty -> NOTEMPTY; said 0 items and 1 dead letters");
  for (int i = 0; i < 600; i++) put(party[0], "b");
  play(
      "bob claim -> b; ann destroy_empty -> NOTEMPTY; bob check; ann destroy;"
      "data /jobs -> NONODE; ann destroy -> NONODE; bob ack -> LOST; cid put c;"
      "bob take -> c; ann take -> OPERATIONTIMEOUT");
}

static void destroy_other(void) { play("bob destroy"); }
static void destroy_and_claim(void) {
  play("bob destroy; bob put a; bob claim -> a");
}

/* Another process destroys the queue at any moment of a claim, and perhaps
 * claims the next queue's item, which has the same name: the claim is lost, and
 * the listener hears of it. */
TEST_LOOP(a_claim_that_is_destroyed_is_lost_at_every_moment, 0, 2) {
  bool more = true;
  int lost = 0;
  open_moments(WITH(LISTENING, .context = (char[]){"ann"}), WITH(0));
  for (int n = 1; more; n++) {
    told[0] = '\0';
    play("bob put a");
    act_between(n, _i ? destroy_and_claim : destroy_other);
    int rc = take_by(0, "claim", "");
    more = acted();
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT, "%s at place %d",
                  zke_error_name(rc), n);
    if (rc == ZKE_OK && take_by(0, "check", "") == ZKE_LOST) {
      lost++;
      play("ann hears LOST; told ann LOST entry-100-0000000001");
    }
    if (_i && more) play("bob check");
    int gone = take_by(0, "destroy", "");
    ck_assert(gone == ZKE_OK || gone == ZKE_NONODE);
    play("ann dispatches");
  }
  ck_assert_int_gt(lost, 0);
  close_moments();
}

static bool bare;    /* an item was seen without its key */
static long moments; /* from the removal of the earlier items until the next
                        put */

/* Is there an item, and a key?  Both at one moment. */
static void see_items(bool *item, bool *key) {
  zke_op ops[2];
  zke_op_result r[2] = {{0}};
  zke_op_children(&ops[0], PATH "/entries", NULL, 0);
  zke_op_children(&ops[1], PATH "/keys", NULL, 0);
  ck_ok(zke_multi_read(intruder, ops, 2, r));
  *item = *key = false;
  for (int i = 0; r[0].children && i < r[0].children->count; i++)
    *item |= strcmp(r[0].children->data[i], "line") != 0;
  for (int i = 0; r[1].children && i < r[1].children->count; i++)
    *key |= strcmp(r[1].children->data[i], "key-k") == 0;
  zke_results_clear(r, 2);
}

/* Is the item there without its key?  Called at each place. */
static void see_key(void) {
  bool item, key;
  see_items(&item, &key);
  bare |= item && !key;
  act_between(1, see_key);
}

/* Put an item with a key, and check from then on that it has its key. */
static void put_and_see(void) {
  bool item, key;
  see_items(&item, &key);
  act_between(1, put_and_see);
  if (item || --moments > 0) return;
  play("bob put b key=k");
  act_between(1, see_key);
}

/* An item with a key is put at any moment of a destruction: the item has its
 * key as long as it exists, although the destruction may be given up at any
 * moment. */
TEST(a_destruction_takes_no_item_its_key) {
  int n = 1;
  open_moments(WITH(0), WITH(0));
  for (; moments <= 0; n++) {
    play("ann put a; bob put a");
    moments = n;
    act_between(1, put_and_see);
    ck_ok(zke_queue_destroy(party[0], 0));
    acted();
    ck_assert_msg(!bare, "without its key after a put at moment %d", n);
  }
  ck_assert_int_gt(n, 10);
}

/* Waiters for an item or for room keep waiting. */
TEST_WITH(waiters_survive_the_destruction, (.limit = 1),
          "bob waits take; bob destroy -> MISUSE; ann destroy; ann put x;"
          "bob returns -> x; cid take -> OPERATIONTIMEOUT; ann put full;"
          "bob waits put late; bob destroy -> MISUSE; ann destroy; bob returns")

/* ---- looking ---- */

/* "Ordered listing with claims (who works on what since when)". */
TEST(the_list_names_the_holders_of_claims) {
  zke_queue_entries *list;
  open_queue(WITH(.attempts = 5));
  play(
      "ann put aaa; ann put b p=50 ephemeral; ann put c due=60000;"
      "bob claim -> b p=50; list 2 x1 bob, 1, 3 delayed");
  const zke_queue_item *item = *keep("bob");
  ck_ok(zke_queue_list(party[2], &list));
  const zke_queue_entry *e = list->data;
  ck_assert_str_eq(e[0].name, item->name);
  ck_assert_int_eq(e[0].claimed, 1);
  ck_assert_int_eq(e[0].token, item->token);
  ck_assert_int_eq(e[0].session, zke_session_id(z[1]));
  ck_assert_int_eq(e[0].producer, zke_session_id(z[0]));
  ck_assert_int_le(test_wall() - e[0].since_ms, 10000);
  ck_assert_int_eq(e[1].claimed, 0);
  ck_assert_int_eq(e[1].len, 3);
  ck_assert_int_eq(e[1].priority, 100);
  ck_assert_int_eq(e[1].producer, 0);
  ck_assert_int_eq(e[1].due_ms, 0);
  zke_free(list);
  play(
      "cid peek -> aaa; size items=3 ready=1 claimed=1 delayed=1 attempts=5;"
      "bob ack; bob take -> aaa; cid peek -> NONODE");
}

/* ---- who is woken ---- */

/* A put wakes each waiter once: one that has not looked since is not woken
 * again, and one that is not needed keeps waiting.  A take wakes no one. */
TEST_WITH(a_put_wakes_each_once, (LISTENING),
          "bob start; cid start; dan start; eve start; all dispatch; told;"
          "ann put a; ann put b; bob,cid,dan,eve dispatches -> 1;"
          "told bob ITEM, cid ITEM, dan ITEM, eve ITEM;"
          "bob take -> a; cid take -> b; dan,eve take -> OPERATIONTIMEOUT;"
          "bob,cid,dan,eve dispatches -> 0; ann put c;"
          "bob,cid dispatches -> 0; dan,eve dispatches -> 1;"
          "told dan ITEM, eve ITEM; eve take -> c")

/* A consumer that has waited in vain is not woken by later puts. */
TEST_STEPS(a_consumer_that_left_is_not_woken,
           "ann put a; ann claim -> a; bob take in=20 -> OPERATIONTIMEOUT;"
           "cid take in=20 -> OPERATIONTIMEOUT; ann watches 0; bob watches 0;"
           "cid watches 0")

/* Any number of consumers in front may not look: two are told by the listener
 * and never dispatch, and the third gets each item; the same for room. */
TEST(consumers_that_do_not_dispatch_hinder_nobody) {
  open_queue(WITH(.limit = 1, LISTENING));
  play("ann start; bob start");
  for (int i = 0; i < 3; i++)
    play("cid waits take; dan put a; cid returns -> a");
  play("dan put late; ann start room; bob start room");
  for (int i = 0; i < 3; i++)
    play("cid waits put late; dan take -> late; cid returns");
}

/* Many consumers wait in line: each gets one of as many items. */
TEST_STEPS(a_crowd_is_served,
           "bob waits take; cid waits take; dan waits take; eve waits take;"
           "ann puts x x x x; bob returns -> x; cid returns -> x;"
           "dan returns -> x; eve returns -> x; size")

/* ---- deaths, lost replies, faults ---- */

/* End a claim by a call's code; returns that. */
static int end_claim(int rc, zke_queue_item **item) {
  zke_free(*item);
  *item = NULL;
  return rc;
}

/* Return with a delay that is over when the call returns, so that it does not
 * depend on chance whether the next claim waits. */
static int delay_shortly(zke *user, zke_queue *queue,
                         const zke_queue_item *item) {
  int rc = zke_queue_release(queue, item, 1, NULL);
  for (int64_t due = zke_wall(user) + 1; zke_wall(user) < due;) test_pause();
  return rc;
}

/* Put with a key, claim, prolong, release, claim several, return with a delay,
 * claim again, ack with a change; leaves nothing. */
static int use_claims(zke *user) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  int count = 0;
  zke_op op;
  zke_queue_options o = {.size = sizeof o,
                         .limit = 3,
                         .claim_ms = 60000,
                         .listener = hear,
                         .context = (char[]){"user"}};
  told[0] = '\0';
  zke_op_create(&op, "/done-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL);
  int rc = zke_queue_new(user, PATH, &o, &queue);
  if (rc == ZKE_OK) rc = put_key(queue, "x", "k");
  if (rc == ZKE_OK) rc = zke_queue_claim(queue, 0, &item);
  if (rc == ZKE_OK) rc = zke_queue_prolong(queue, item, 50000);
  if (rc == ZKE_OK)
    rc = end_claim(zke_queue_release(queue, item, 0, NULL), &item);
  if (rc == ZKE_OK) rc = zke_queue_claim_some(queue, 1, 0, &item, &count);
  if (rc == ZKE_OK) rc = end_claim(delay_shortly(user, queue, item), &item);
  if (rc == ZKE_OK)
    rc = zke_queue_claim_some(queue, 1, zke_now(user) + 2000, &item, &count);
  if (rc == ZKE_OK) rc = zke_queue_ack_all(queue, &item, 1, &op, 1, NULL);
  zke_free(item);
  zke_queue_free(queue);
  return rc;
}

/* An earlier item is buried and requeued, then waited for. */
static void prepare_letter(zke *other) {
  zke_queue *queue;
  zke_queue_options o = {.size = sizeof o, .attempts = 1};
  ck_ok(zke_queue_new(other, PATH, &o, &queue));
  put(queue, "x");
  zke_queue_free(queue);
}

static int requeue_first(zke_queue *queue) {
  zke_queue_entries *list = NULL;
  int rc = zke_queue_dead(queue, &list);
  if (rc == ZKE_OK && list->count != 1) rc = zke_fail(ZKE_BROKEN, "no letter");
  if (rc == ZKE_OK) rc = zke_queue_requeue(queue, list->data[0].name, 0);
  zke_free(list);
  return rc;
}

/* Uses up an item's attempts, and requeues the dead letter. */
static int use_letters(zke *user) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  int rc = zke_queue_new(user, PATH, NULL, &queue);
  if (rc == ZKE_OK) rc = zke_queue_claim(queue, 0, &item);
  if (rc == ZKE_OK)
    rc = end_claim(zke_queue_release(queue, item, 0, NULL), &item);
  if (rc == ZKE_OK) rc = requeue_first(queue);
  if (rc == ZKE_OK) rc = zke_queue_take(queue, 0, &item);
  zke_free(item);
  zke_queue_free(queue);
  return rc;
}

/* Two sessions: one waits in vain, then in line for the other's item. */
static int use_waiting(zke *user) {
  zke *further = NULL;
  zke_queue *in = NULL, *out = NULL;
  zke_queue_item *item = NULL;
  char sentence[300] = "";
  zke_queue_options o = {
      .size = sizeof o, .listener = hear, .context = (char[]){"user"}};
  told[0] = '\0';
  int rc = zke_open_session(user, NULL, &further);
  if (rc == ZKE_OK) rc = zke_queue_new(user, PATH, NULL, &in);
  if (rc == ZKE_OK) rc = zke_queue_new(further, PATH, &o, &out);
  if (rc == ZKE_OK) {
    rc = zke_queue_take(out, zke_now(further) + 5, &item);
    rc = rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
  }
  if (rc == ZKE_OK) rc = zke_queue_start(out, ZKE_QUEUE_ITEM);
  if (rc == ZKE_OK) rc = zke_queue_put(in, "x", 1, NULL, 0);
  if (rc == ZKE_OK) rc = zke_dispatch(further, NULL);
  if (rc == ZKE_OK) rc = zke_queue_take(out, 0, &item);
  if (rc != ZKE_OK) snprintf(sentence, sizeof sentence, "%s", zke_errmsg());
  zke_free(item);
  zke_queue_free(out);
  zke_queue_free(in);
  zke_close(further);
  return rc == ZKE_OK ? rc : zke_fail(rc, "%s", sentence);
}

/* At most one item is left, and the queue works.  Wait for an item whose
 * consumer is just dying; an exhausted item is buried. */
static void check_queue(zke *other, int rc) {
  zke_queue *queue;
  zke_queue_item *item;
  int count = 0;
  ck_ok(zke_queue_new(other, PATH, NULL, &queue));
  if (rc == ZKE_OK)
    ck_assert_int_eq(size_of(queue).items + size_of(queue).dead, 0);
  put(queue, "y");
  for (int64_t end = soon(other); size_of(queue).items > 0;) {
    ck_assert_int_lt(zke_now(other), end);
    if (zke_queue_take(queue, zke_now(other) + 50, &item) != ZKE_OK) continue;
    count++;
    zke_free(item);
  }
  ck_assert_int_le(count + size_of(queue).dead, 2);
  ck_assert_int_ge(count, 1);
  zke_queue_free(queue);
}

/* The item's work is done at most once, and once if the use succeeded; no key
 * is left. */
static void check_claims(zke *other, int rc) {
  zke_strings *names;
  int done = 0;
  check_queue(other, rc);
  ck_assert_int_eq(entries(other, PATH "/keys"), 0);
  ck_ok(zke_children(other, "/", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++)
    done += strncmp(names->data[i], "done-", 5) == 0;
  zke_free(names);
  ck_assert_int_le(done, 1);
  if (rc == ZKE_OK) ck_assert_int_eq(done, 1);
}

static const recipe_use uses[] = {
    {"claims", NULL, use_claims, check_claims},
    {"dead letters", prepare_letter, use_letters, check_queue},
    {"waiting", NULL, use_waiting, check_queue}};

RECIPE_TESTS(uses, 20, 30);

/* A call that must not wait still survives a read's lost reply. */
TEST(a_lost_read_is_repeated) {
  open_queue(WITH(0));
  play("ann put a");
  for (int i = 0; i < 8; i++) {
    ck_ok(zke_test_fail(z[1], ZKE_TEST_FAIL_READ, i));
    play("bob take -> a; ann put a");
  }
}

/* The reply of a put is lost, and its item taken before the producer looks: it
 * is not put again.  (A search for the item by a guid would not find it.) A put
 * that was lost before its change is put again. */
TEST(a_lost_put_that_was_taken_is_not_repeated) {
  open_queue(WITH(0));
  play("ann put a; bob take -> a; bob waits take"); /* makes the user znode */
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_AFTER, 0));
  play("ann put x soon; bob returns -> x; bob take -> OPERATIONTIMEOUT");
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_BEFORE, 0));
  play("ann put x soon; bob take -> x; bob take -> OPERATIONTIMEOUT");
}
