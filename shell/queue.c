/* queue.c - the commands "queue …": recipes/queue.h for scripts
 *
 * Nothing leaves a queue in one step: an item is claimed, which others see, and
 * removed when the work is done.  If the process dies in between, the claim
 * goes with its session, and the item is next again.
 *
 *     pop               claim --> print it -----------------> ack
 *                                   \ it could not be printed -> give it back
 *     pop -- CMD        claim --> guard_run() --> 0 --------> ack
 *                                   \ any other status ------> give it back;
 *                                     with --go-on back_off(), and the next
 *     claim, then       claim --> the session's list (held_add())
 *     ack or release              until ack, release, or the session's end,
 *                                 which gives it back
 *
 * An item becomes a dead letter when its attempts are used up: each return, and
 * each claim that ended with its session, counts.  The recipe does this.
 *
 * WHO OWNS A CLAIM.  pop's claim is on its stack, and its recipe object serves
 * one item after the other.  A claim that the session holds has its own object,
 * with reference counts (struct shared): the session's list has one reference,
 * and so has each call that uses the claim.  So a call that prolongs a claim
 * keeps it even if another call gives it back, or the session ends.
 *
 * Unless a comment says otherwise, a function returns 0 or the exit code after
 * fail_with().  Start reading at pop_one(), then claim_run().
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../recipes/queue.h"
#include "work.h"

CANCELLER(cancel_queue, zke_queue, zke_queue_cancel)

/* The queue that argument 0 names, from queue_open() to queue_close(). */
typedef struct queue_of {
  char *path;       /* whole: "/queues/jobs" for "jobs" */
  zke_queue *queue; /* the recipe's object */
} queue_of;

/* Releases what queue_open() has made. */
static void queue_close(queue_of *q) {
  zke_queue_free(q->queue);
  free(q->path);
  *q = (queue_of){NULL, NULL};
}

/* The attempts of a queue that a command makes without --attempts: an item that
 * always fails must not block the items after it for ever. */
enum { NEW_ATTEMPTS = 5 };

/* Makes the recipe's object for argument 0, with the command's options; 0 or
 * the exit code.  Options that the command does not have read as not given.
 *
 * --attempts is a demand, which fails if the queue has another number;
 * NEW_ATTEMPTS is a default, for a queue that this object makes.
 *
 *   listener  hears of lost claims, with context; NULL: no listener */
static int queue_open_for(call *c, queue_of *q, zke_queue_fn listener,
                          void *context) {
  int64_t limit, attempts, visible_ms;
  *q = (queue_of){NULL, NULL};
  int status = option_number(c, 'm', 1, INT32_MAX, 0, &limit);
  if (!status)
    status = option_number(c, 'a', 0, INT32_MAX, NEW_ATTEMPTS, &attempts);
  if (!status) status = option_duration(c, 'V', 0, &visible_ms);
  if (!status) status = arg_place(c, 0, "queues", &q->path);
  if (status) return status;
  zke_queue_options o = {.size = sizeof o,
                         .limit = (int)limit,
                         .attempts = option_given(c, 'a') ? (int)attempts : 0,
                         .new_attempts = (int)attempts,
                         .listener = listener,
                         .context = context,
                         .claim_ms = visible_ms};
  int rc = zke_queue_new(c->z, q->path, &o, &q->queue);
  if (rc == ZKE_OK) return 0;
  status = fail_rc(c, rc);
  queue_close(q);
  return status;
}

/* For putting and looking, which cannot lose a claim. */
static int queue_open(call *c, queue_of *q) {
  return queue_open_for(c, q, NULL, NULL);
}

/* For looking and removing, which report a missing queue.  The recipe's object
 * alone does not: it does not touch the tree, and would find an empty queue. */
static int queue_open_existing(call *c, queue_of *q) {
  int status = queue_open(c, q);
  if (status) return status;
  int rc = zke_exists(c->z, q->path, NULL, NULL, NULL);
  if (rc == ZKE_OK) return 0;
  status = rc == ZKE_NONODE ? fail_with(c, STATUS_NO, "NONODE",
                                        "there is no queue %s", q->path)
                            : fail_rc(c, rc);
  queue_close(q);
  return status;
}

/* ------------------------------------------------------------------------
 * In
 *
 * push puts one item, or one for each line of a stream.  Each step is one write
 * to the disk, so lines that arrive together are put together; no line waits
 * for a later one.
 * --------------------------------------------------------------------- */

/* At most so many lines, and bytes of them, in one step. */
enum { LINES_MOST = 500, LINES_BYTES = 256 * 1024, READ_BYTES = 64 * 1024 };

/* One push, of one item or of lines. */
typedef struct push {
  call *c;
  zke_queue *queue;
  patience p;              /* how long to wait for room */
  zke_queue_put_options o; /* the same for each item */
  int64_t count;           /* items put */
  int most;                /* how many are put in one step */
  /* of --lines */
  int in;           /* their source */
  bool end;         /* there is no more input */
  char *text;       /* input that is not put yet: part of the last line */
  size_t len, room; /* bytes in it, and bytes that fit */
} push;

/* Reads the options of each item; returns a status, as most functions here.
 * --delay becomes a time once, when the command begins, not for each line. */
static int push_options(push *p) {
  int64_t priority, delay;
  const word *key = option_word(p->c, 'k');
  if (key && option_given(p->c, 'l'))
    return fail_usage(
        p->c, "--key is for one item, and --lines puts one for each line");
  int status = patience_of(p->c, &p->p);
  if (!status) status = option_number(p->c, 'p', 1, 999, 100, &priority);
  if (!status) status = option_duration(p->c, 'd', 0, &delay);
  if (status) return status;
  p->o = (zke_queue_put_options){.size = sizeof p->o,
                                 .priority = (int)priority,
                                 .ephemeral = option_given(p->c, 'e'),
                                 .due_ms = delay ? clock_wall_ms() + delay : 0,
                                 .key = key ? key->text : NULL};
  return 0;
}

/* Puts the values in one step, waiting for room as long as --wait says.  If the
 * queue can never hold so many together, or has no room for all of them until
 * the deadline, the steps become smaller: as many as there is room for.  After
 * each step that succeeds they become larger again, since others may have made
 * room. */
static int push_values(push *p, const zke_queue_value *values, int count) {
  int at = 0;
  while (at < count) {
    int some = count - at < p->most ? count - at : p->most;
    cancel_by(p->c, cancel_queue, p->queue);
    int rc =
        zke_queue_put_all(p->queue, values + at, some, &p->o, p->p.deadline);
    cancel_by(p->c, NULL, NULL);
    if (rc == ZKE_LIMIT && some > 1) {
      p->most = some / 2;
      continue;
    }
    if (rc != ZKE_OK) return fail_wait(p->c, &p->p, rc);
    p->count += some;
    at += some;
    p->most = p->most < LINES_MOST / 2 ? p->most * 2 : LINES_MOST;
  }
  return 0;
}

/* Puts the one item that the arguments give. */
static int push_data(push *p) {
  char *data = NULL;
  int len;
  int status = arg_data(p->c, 1, &data, &len, NULL);
  if (!status) status = push_values(p, &(zke_queue_value){data, len}, 1);
  free(data);
  return status;
}

/* Puts the complete lines; at the end the last one may be incomplete.  They go
 * in groups, each in one step, since each step is a write to the disk.  But no
 * line waits until a group is full: if a program writes line by line, each line
 * is in the queue immediately.  A line longer than a group goes alone. */
static int push_whole(push *p) {
  zke_queue_value values[LINES_MOST];
  size_t at = 0, sum = 0;
  int count = 0, status = 0;
  while (!status && at < p->len) {
    char *line = p->text + at, *end = memchr(line, '\n', p->len - at);
    if (!end && !p->end) break;
    size_t len = end ? (size_t)(end - line) : p->len - at;
    if (len > INT32_MAX)
      return fail_with(p->c, STATUS_DATA, "BADARGUMENTS", "a line is too long");
    if (count == LINES_MOST || (count && sum + len > LINES_BYTES)) {
      status = push_values(p, values, count);
      count = 0;
      sum = 0;
    }
    values[count++] = (zke_queue_value){line, (int)len};
    sum += len;
    at += len + (end != NULL);
  }
  if (!status && count) status = push_values(p, values, count);
  if (!status && at) memmove(p->text, p->text + at, p->len -= at);
  return status;
}

/* Reads whatever is available, as soon as anything is; the text keeps room for
 * the longest line so far. */
static int push_read(push *p) {
  if (p->room - p->len < READ_BYTES) {
    char *larger = realloc(p->text, p->room = p->room * 2 + READ_BYTES);
    if (!larger) return no_memory(p->c);
    p->text = larger;
  }
  if (!input_wait(p->c, p->in)) return input_failed(p->c, "the lines");
  ssize_t n = read(p->in, p->text + p->len, READ_BYTES);
  if (n < 0 && errno == EAGAIN) return 0;
  if (n < 0) return fail_errno(p->c, STATUS_IO, "the lines");
  p->len += (size_t)n;
  p->end = n == 0;
  return 0;
}

/* Puts lines as they come, and prints how many were put. */
static int push_stream(push *p) {
  int status = 0;
  while (!status && !p->end) {
    status = push_read(p);
    if (!status) status = push_whole(p);
    progress_show(p->c, "queue push", p->count, 0);
  }
  free(p->text);
  progress_end(p->c);
  /* These items are in the queue, even if the rest failed. */
  int told = emit_row(p->c, json_pack("{s:I}", "items", p->count));
  return status ? status : told;
}

/* Puts the lines of --input, or of standard input if it is not read for
 * commands.
 */
static int push_lines(push *p) {
  const word *file = option_word(p->c, 'i');
  bool ours = file && !word_is(file, "-");
  const char *name = ours ? file->text : "-";
  int status;
  if (p->c->count > 1 || option_given(p->c, '0') || option_given(p->c, '6'))
    return fail_usage(
        p->c, "--lines takes the items from standard input or --input alone");
  if (!ours && (p->c->id || p->c->sh->reads_input))
    return fail_usage(p->c,
                      "standard input has the commands; --lines wants "
                      "--input FILE here");
  p->in = input_descriptor(name);
  if (p->in < 0) return fail_errno(p->c, STATUS_CANTOPEN, name);
  status = push_stream(p);
  if (ours) close(p->in);
  return status;
}

/* queue push.  A single command's session would end immediately, and an
 * ephemeral item with it: so that command waits for a signal. */
static int push_run(call *c) {
  queue_of q;
  push p = {.c = c, .most = LINES_MOST};
  int status = push_options(&p);
  if (!status) status = queue_open(c, &q);
  if (status) return status;
  p.queue = q.queue;
  status = option_given(c, 'l') ? push_lines(&p) : push_data(&p);
  queue_close(&q);
  if (!status && p.o.ephemeral && !c->sh->persists) {
    verbose_say(c, "the item is there until this command is ended");
    status = held_until_signal(c, NULL, NULL);
  }
  return status;
}

/* Prints the result of --lines for people. */
static void push_human(call *c, json_t *row, FILE *out) {
  int64_t count = json_integer_value(json_object_get(row, "items"));
  (void)c;
  fprintf(out, "%" PRId64 " item%s\n", count, count == 1 ? "" : "s");
}

/* ------------------------------------------------------------------------
 * Out
 *
 * One claimed item, from the claim to its acknowledgement or return.  pop uses
 * this directly; claims that the session holds are built on it.
 * --------------------------------------------------------------------- */

/* An item as printed; it has a token only if it is claimed. */
static json_t *item_row(const zke_queue_item *item) {
  json_t *row = json_pack("{s:o,s:o,s:i,s:i,s:I}", "data",
                          value_data(item->data, item->len), "item",
                          value_text(item->name), "priority", item->priority,
                          "attempts", item->attempts, "put_at", item->put_ms);
  if (row && item->token)
    json_object_set_new(row, "token", json_integer(item->token));
  return row;
}

/* An item that this process has claimed.  pop has it on its stack; a claim that
 * the session holds is shared between the session and the calls that use it.
 * Such a claim records how it should end, since held_release() has no argument
 * for that. */
typedef struct claim {
  shared s;              /* only for a held one */
  zke_queue *queue;      /* the object that has claimed it */
  zke_queue_item *item;  /* its data, its name and its token */
  atomic_bool ack;       /* how it should end: done, else given back */
  atomic_llong delay_ms; /* if given back, it is kept back for so long */
  atomic_bool lost;      /* the listener has heard of its loss */
} claim;

/* Claims the next item; a zkembed code.  With --verbose it first tries once
 * without waiting, to report why it has to wait.  This costs nothing if there
 * is an item, since the try claims it. */
static int claim_next(call *c, zke_queue *queue, const patience *p,
                      zke_queue_item **item_out) {
  int rc = ZKE_OPERATIONTIMEOUT;
  cancel_by(c, cancel_queue, queue);
  if (verbose_wanted(c) && p->deadline > zke_now(c->z)) {
    rc = zke_queue_claim(queue, 0, item_out);
    if (rc == ZKE_OPERATIONTIMEOUT) verbose_say(c, "waiting: %s", zke_errmsg());
  }
  if (rc == ZKE_OPERATIONTIMEOUT)
    rc = zke_queue_claim(queue, p->deadline, item_out);
  cancel_by(c, NULL, NULL);
  return rc;
}

/* For guard_run(): does the file still show the item as claimed? */
static int claim_check(void *object) {
  claim *k = object;
  return zke_queue_check(k->queue, k->item);
}

/* Acknowledges the item on success, else gives it back with the reason, which a
 * dead letter shows.  A failure to give it back does not matter: the claim ends
 * with its object in any case. */
static int claim_end(call *c, const claim *k, int status) {
  char why[60];
  if (status) {
    snprintf(why, sizeof why, "the command ended with %d", status);
    zke_queue_release(k->queue, k->item, 0,
                      c->child ? why : "it could not be printed");
    return status;
  }
  int rc = zke_queue_ack(k->queue, k->item, NULL, 0, NULL);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* ------------------------------------------------------------------------
 * A command of the user's for each item
 *
 * pop -- CMD: guard.c runs it while the item is claimed.  Its exit code decides
 * what happens to the item, and --follow continues with the next.
 * --------------------------------------------------------------------- */

enum { ITEM_TEXTS = 5, ITEM_TEXT_MOST = 100 * 1024 /* Linux has 128 KiB */ };

/* Appends "NAME=value" to the texts, which have room for it; false without
 * memory. */
__attribute__((format(printf, 3, 4))) static bool item_text(char **texts,
                                                            int *count,
                                                            const char *format,
                                                            ...) {
  va_list arguments;
  va_start(arguments, format);
  int len = vasprintf(&texts[*count], format, arguments);
  va_end(arguments);
  if (len < 0) return false;
  ++*count;
  return true;
}

/* The item as texts for the command's environment.  Data that has a NUL, or is
 * too long for a variable, is left empty: standard input has all of it. */
static bool item_texts(const zke_queue_item *item, char **texts, int *count) {
  bool text = item->data && item->len <= ITEM_TEXT_MOST &&
              !memchr(item->data, '\0', (size_t)item->len);
  return item_text(texts, count, "ZKE_ITEM=%s", item->name) &&
         item_text(texts, count, "ZKE_ITEM_PRIORITY=%d", item->priority) &&
         item_text(texts, count, "ZKE_ITEM_ATTEMPTS=%d", item->attempts) &&
         item_text(texts, count, "ZKE_ITEM_KEY=%s", item->key) &&
         item_text(texts, count, "ZKE_ITEM_DATA=%s", text ? item->data : "");
}

/* Has the item become a dead letter?  The recipe does not tell, so this looks
 * for the letter's znode (LAYOUT in queue.h).  A letter older than the claim
 * belongs to an earlier item of that name, since numbers start again in a queue
 * that was empty.  That letter keeps the name, so this item's letter has
 * another; then the test is whether the item has left the queue. */
static bool is_dead(const call *c, const queue_of *q,
                    const zke_queue_item *item) {
  char *letter = NULL, *entry = NULL;
  zke_stat stat = {.czxid = 0};
  bool dead = false;
  if (asprintf(&letter, "%s/dead/%s", q->path, item->name) < 0) return false;
  if (asprintf(&entry, "%s/entries/%s", q->path, item->name) < 0) entry = NULL;
  if (zke_exists(c->z, letter, NULL, NULL, &stat) == ZKE_OK)
    dead = stat.czxid > item->token ||
           (entry && zke_exists(c->z, entry, NULL, NULL, NULL) == ZKE_NONODE);
  free(entry);
  free(letter);
  return dead;
}

/* Writes that the command failed with an item, in words or as JSON. */
static void failure_tell(const call *c, const char *item, bool dead, int status,
                         FILE *out) {
  if (c->format == FORMAT_JSON) {
    json_t *row = json_pack("{s:s,s:s,s:i,s:b}", "event", "failed", "item",
                            item, "status", status, "dead", (int)dead);
    if (row) json_dumpf(row, out, JSON_COMPACT);
    json_decref(row);
  } else {
    fputs("zke: ", out);
    output_sentence(item, out);
    fprintf(out, " %s: the command ended with %d",
            dead ? "becomes a dead letter" : "is given back", status);
  }
  fputc('\n', out);
}

/* The command has failed with an item, which was given back.  This reports it
 * with --verbose.  With --go-on it reports unless --quiet is given, since the
 * worker continues and shows no exit code.  A failure of this process or a
 * signal ends the worker; then its exit code tells.
 *
 * Writes in one piece, since several workers may write to one file. */
static void tell_failure(const call *c, const queue_of *q,
                         const zke_queue_item *item, int status) {
  char *text = NULL;
  size_t len;
  bool goes_on = option_given(c, 'g') && !c->code && !cancel_came(c);
  if (goes_on ? c->sh->quiet : !verbose_wanted(c)) return;
  FILE *out = open_memstream(&text, &len);
  if (out) failure_tell(c, item->name, is_dead(c, q, item), status, out);
  if (out && fclose(out) == 0) fputs(text, stderr);
  free(text);
}

/* Lets the command work on the item; its exit code.
 *
 *   asked  out: true if a signal came meanwhile that should end us */
static int work_on(call *c, const queue_of *q, claim *k, bool *asked) {
  char *texts[ITEM_TEXTS];
  int count = 0, status;
  guard g = {.kind = "queue",
             .path = q->path,
             .token = k->item->token,
             .check = claim_check,
             .object = k,
             .asked = asked,
             .more = (const char *const *)texts,
             .input = k->item->data ? k->item->data : "",
             .input_len = k->item->len > 0 ? (size_t)k->item->len : 0};
  if (item_texts(k->item, texts, &count)) {
    g.more_count = count;
    status = guard_run(c, &g);
  } else {
    status = no_memory(c);
  }
  for (int i = 0; i < count; i++) free(texts[i]);
  return status;
}

/* The command has failed with an item: pauses this worker.  The pause doubles
 * with each attempt at the item, up to 64 times; other workers may take the
 * item meanwhile. */
static int back_off(call *c, const zke_queue_item *item) {
  int64_t ms;
  int status = option_duration(c, 'b', 1000, &ms);
  if (status) return status;
  int doublings = item->attempts < 7 ? item->attempts - 1 : 6;
  for (int i = 0; i < doublings && ms < INT64_MAX / 4; i++) ms *= 2;
  verbose_say(c, "backing off for %" PRId64 " ms", ms);
  int rc = wait_session(c, NULL, NULL, zke_now(c->z) + ms);
  if (rc == ZKE_CANCELLED) return fail_cancelled(c);
  return rc == ZKE_OPERATIONTIMEOUT ? 0 : fail_rc(c, rc);
}

/* Takes one item, and prints it or lets the command work on it; the exit code.
 *
 *   more  out: continue with the next one (--follow)
 *
 * With --go-on, a failure of the command causes a pause and is then forgotten.
 * A failure with a code (c->code) is one of this process: for example, the item
 * could not be printed.  That ends the worker. */
static int pop_one(call *c, const queue_of *q, const patience *p, bool *more) {
  claim k = {.queue = q->queue};
  bool asked = false;
  int rc = claim_next(c, k.queue, p, &k.item), status;
  *more = rc == ZKE_OK && option_given(c, 'f');
  if (rc == ZKE_OPERATIONTIMEOUT && option_given(c, 'f')) return 0;
  if (rc != ZKE_OK) return fail_wait(c, p, rc);
  if (c->child)
    status = work_on(c, q, &k, &asked);
  else if (c->id)
    status = emit_row(c, item_row(k.item));
  else
    status = emit_event(c, item_row(k.item));
  int worked = status;
  status = claim_end(c, &k, status);
  if (worked && c->child) tell_failure(c, q, k.item, worked);
  if (asked) *more = false;
  if (status && *more && option_given(c, 'g') && !c->code && !cancel_came(c))
    status = back_off(c, k.item);
  zke_free(k.item);
  return status;
}

/* Takes one item, or with --follow one after the other, until none comes within
 * --wait, which starts again for each item. */
static int pop_all(call *c, const queue_of *q) {
  patience p;
  bool more = true;
  while (more) {
    int status = patience_of(c, &p);
    if (!status) status = pop_one(c, q, &p, &more);
    if (status) return status;
    if (more && cancel_came(c)) return fail_cancelled(c);
  }
  return 0;
}

/* A listener that does nothing, but has to exist: only then is the claim
 * watched, so that its loss wakes guard_run(), which asks claim_check(). */
static void pop_heard(zke_queue *queue, int event, int64_t token,
                      const char *name, void *context) {
  (void)queue, (void)event, (void)token, (void)name, (void)context;
}

/* queue pop */
static int pop_run(call *c) {
  queue_of q;
  if (option_given(c, 'g') && (!option_given(c, 'f') || !c->child))
    return fail_usage(c, "--go-on is for --follow with a command");
  if (option_given(c, 'b') && !option_given(c, 'g'))
    return fail_usage(c, "--back-off is for --go-on");
  if (option_given(c, 'V') && !c->child)
    return fail_usage(c,
                      "--visibility is for a command that works on the item");
  int status = c->child ? guard_options(c) : 0;
  if (!status)
    status = queue_open_for(c, &q, c->child ? pop_heard : NULL, NULL);
  if (status) return status;
  status = pop_all(c, &q);
  queue_close(&q);
  return status;
}

/* ------------------------------------------------------------------------
 * Claims that the session holds
 *
 * For scripts and coprocesses, which claim with one command and finish with
 * another.  The struct is shared, as the file's head says; the claim records
 * how it should end before the list gives it up.
 * --------------------------------------------------------------------- */

/* The held_class of claims: ends one.  k->ack says how; if it is not set, at
 * the session's end, the item is given back. */
static int claim_on_release(void *object) {
  claim *k = object;
  if (atomic_load(&k->ack))
    return zke_queue_ack(k->queue, k->item, NULL, 0, NULL);
  return zke_queue_release(k->queue, k->item, atomic_load(&k->delay_ms), NULL);
}

/* The held_class of claims: the token under which the claim is listed; 0 if it
 * was lost, so that the loss is reported. */
static int64_t claim_on_token(void *object) {
  claim *k = object;
  return atomic_load(&k->lost) ? 0 : k->item->token;
}

/* Called when the session and the last call have dropped their references.
 * Also frees a claim that never got an item. */
static void claim_free(void *object) {
  claim *k = object;
  zke_queue_free(k->queue);
  zke_free(k->item);
  free(k);
}

static const held_class claim_class = {"claim", claim_on_release, shared_drop,
                                       claim_on_token};

/* "/queues/jobs/entry-100-0000000000", for free().  No such znode exists: the
 * session lists a claim under this name, which distinguishes the claims of a
 * queue, and those of queues below it. */
static char *claim_path(const char *queue, const char *item) {
  char *path;
  return asprintf(&path, "%s/%s", queue, item) < 0 ? NULL : path;
}

/* A listener, which the recipe calls: records a loss, for "held" and for the
 * event that reports it. */
static void claim_heard(zke_queue *queue, int event, int64_t token,
                        const char *name, void *context) {
  claim *k = context;
  (void)queue, (void)token, (void)name;
  if (event == ZKE_QUEUE_LOST) atomic_store(&k->lost, true);
}

/* Puts the claim into the session's list, and answers with the item.  From here
 * on the list has a reference.  If the list could not take it, the caller's
 * reference is the last, and dropping it gives the item back. */
static int claim_hold(call *c, const char *queue, claim *k) {
  char *path = claim_path(queue, k->item->name);
  json_t *row = item_row(k->item);
  int status = path && row ? 0 : no_memory(c);
  if (!status) {
    atomic_fetch_add(&k->s.refs, 1);
    status = held_add(c, &claim_class, path, k);
    if (status) shared_drop(k);
  }
  free(path);
  if (!status) return emit_row(c, row);
  json_decref(row);
  return status;
}

/* Claims an item by a separate object, which lives as long as the claim: its
 * listener has the claim as its context, and so knows which claim was lost.
 * The claim owns the object as soon as it is made. */
static int claim_with(call *c, const patience *p, claim *k) {
  queue_of q;
  int status = queue_open_for(c, &q, claim_heard, k);
  if (status) return status;
  k->queue = q.queue;
  int rc = claim_next(c, k->queue, p, &k->item);
  status = rc == ZKE_OK ? claim_hold(c, q.path, k) : fail_wait(c, p, rc);
  free(q.path);
  return status;
}

/* queue claim: only if the session outlives the command. */
static int claim_run(call *c) {
  patience p;
  if (!c->sh->persists)
    return fail_usage(c,
                      "a claim would end with this command: use it in a "
                      "script, at the prompt or in a coprocess, or \"queue pop "
                      "NAME -- CMD\"");
  int status = patience_of(c, &p);
  if (status) return status;
  claim *k = calloc(1, sizeof *k);
  if (!k) return no_memory(c);
  shared_init(&k->s, claim_free);
  status = claim_with(c, &p, k);
  shared_drop(k);
  return status;
}

/* The search for a claim of a queue. */
typedef struct search {
  const char *queue; /* its path */
  const char *item;  /* its name; NULL: the latest claim */
  int64_t token;     /* its token; 0: any */
  claim *found;      /* with a reference; NULL: none yet */
} search;

/* For held_each(), which begins with the latest: keeps the first match.  A
 * claim of a queue below this one has one more slash.  A lost claim keeps its
 * token, so that no later claim matches it. */
static void search_one(void *arg, const held_class *class_, const char *path,
                       void *object) {
  search *s = arg;
  size_t len = strlen(s->queue);
  claim *k = object;
  if (s->found || class_ != &claim_class || strncmp(path, s->queue, len) != 0 ||
      path[len] != '/' || strchr(path + len + 1, '/'))
    return;
  if (s->item && strcmp(path + len + 1, s->item) != 0) return;
  if (s->token && k->item->token != s->token) return;
  s->found = k;
  atomic_fetch_add(&k->s.refs, 1);
}

/* The claim of the item that argument 1 names, or the latest one of the queue,
 * with a reference for the caller. */
static int claim_of(call *c, claim **k_out) {
  search s = {.item = c->count > 1 ? c->args[1].text : NULL};
  char *queue;
  int status = option_number(c, 't', 1, INT64_MAX, 0, &s.token);
  if (!status) status = arg_place(c, 0, "queues", &queue);
  if (status) return status;
  s.queue = queue;
  held_each(c->sh, search_one, &s);
  const char *with = s.token ? " with that token" : "";
  if (!s.found && s.item)
    status =
        fail_with(c, STATUS_NO, "NOTHELD",
                  "this session holds no claim %s/%s%s", queue, s.item, with);
  else if (!s.found)
    status = fail_with(c, STATUS_NO, "NOTHELD",
                       "this session has claimed no item of %s%s", queue, with);
  free(queue);
  *k_out = s.found;
  return status;
}

/* Acknowledges the claim that the arguments name, or gives it back: the claim
 * records which, and held_release() ends it (claim_on_release()).  If another
 * call has ended it meanwhile, held_release() reports that. */
static int claim_finish(call *c, bool ack) {
  claim *k;
  int64_t delay_ms;
  int status = option_duration(c, 'd', 0, &delay_ms);
  if (!status) status = claim_of(c, &k);
  if (status) return status;
  if (ack) atomic_store(&k->ack, true);
  atomic_store(&k->delay_ms, delay_ms);
  status = held_release(c, claim_class.kind, k->item->name, 0, k);
  shared_drop(k);
  return status;
}

static int ack_run(call *c) { return claim_finish(c, true); }
static int release_run(call *c) { return claim_finish(c, false); }

/* queue prolong: the claim that the arguments name ends --visibility from now.
 * It stays in the session's list. */
static int prolong_run(call *c) {
  claim *k;
  int64_t ms;
  int status = option_duration(c, 'V', 0, &ms);
  if (!status && ms == 0)
    status = fail_usage(c, "queue prolong wants --visibility DURATION");
  if (!status) status = claim_of(c, &k);
  if (status) return status;
  int rc = zke_queue_prolong(k->queue, k->item, ms);
  if (rc != ZKE_OK) status = fail_rc(c, rc);
  shared_drop(k);
  return status;
}

/* ------------------------------------------------------------------------
 * Dead letters
 *
 * list --dead shows them.  This section puts back or removes one of them, or
 * all; and at the end it removes whole queues.
 * --------------------------------------------------------------------- */

/* A letter_fn: puts a letter back, and waits for room. */
static int requeue_one(call *c, const queue_of *q, const patience *p,
                       const char *name) {
  cancel_by(c, cancel_queue, q->queue);
  int rc = zke_queue_requeue(q->queue, name, p->deadline);
  cancel_by(c, NULL, NULL);
  return rc == ZKE_OK ? 0 : fail_wait(c, p, rc);
}

/* A letter_fn: removes a letter. */
static int drop_one(call *c, const queue_of *q, const patience *p,
                    const char *name) {
  (void)p;
  int rc = zke_queue_drop(q->queue, name);
  if (rc == ZKE_BADARGUMENTS)
    return fail_usage(c, "\"%s\" is not an item's name", name);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

typedef int letter_fn(call *c, const queue_of *q, const patience *p,
                      const char *name);

/* Each letter is a separate step: an interruption leaves some of them done. */
static int each_letter(call *c, const queue_of *q, const patience *p,
                       letter_fn *fn) {
  zke_queue_entries *all;
  int rc = zke_queue_dead(q->queue, &all), status = 0;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; !status && i < all->count; i++) {
    status =
        cancel_came(c) ? fail_cancelled(c) : fn(c, q, p, all->data[i].name);
    progress_show(c, c->command->name, i + 1, all->count);
  }
  zke_free(all);
  return status;
}

/* Calls fn for the letter that argument 1 names, or for all letters. */
static int letters(call *c, letter_fn *fn) {
  queue_of q;
  patience p;
  if ((c->count > 1) == option_given(c, 'A'))
    return fail_usage(c, "give either an ITEM or --all");
  int status = patience_of(c, &p);
  if (!status) status = queue_open_existing(c, &q);
  if (status) return status;
  status = c->count > 1 ? fn(c, &q, &p, c->args[1].text)
                        : each_letter(c, &q, &p, fn);
  queue_close(&q);
  return status;
}

static int requeue_run(call *c) { return letters(c, requeue_one); }
static int drop_run(call *c) { return letters(c, drop_one); }

/* queue rm: without --force only a queue without items and dead letters.  The
 * recipe checks this in the step that removes it. */
static int rm_run(call *c) {
  queue_of q;
  int status = queue_open_existing(c, &q);
  if (status) return status;
  int rc = zke_queue_destroy(q.queue, !option_given(c, 'f'));
  status = rc == ZKE_OK ? 0 : fail_rc(c, rc);
  queue_close(&q);
  return status;
}

/* ------------------------------------------------------------------------
 * Looking
 *
 * peek, size, list: they claim nothing.  Their output may be old when it is
 * read, since others take items meanwhile.
 * --------------------------------------------------------------------- */

/* queue peek */
static int peek_run(call *c) {
  queue_of q;
  zke_queue_item *item;
  int status = queue_open_existing(c, &q);
  if (status) return status;
  int rc = zke_queue_peek(q.queue, &item);
  status = rc == ZKE_OK ? emit_row(c, item_row(item)) : fail_rc(c, rc);
  if (rc == ZKE_OK) zke_free(item);
  queue_close(&q);
  return status;
}

/* queue size */
static int size_run(call *c) {
  queue_of q;
  zke_queue_counts n;
  int status = queue_open_existing(c, &q);
  if (status) return status;
  int rc = zke_queue_size(q.queue, &n);
  queue_close(&q);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  return emit_row(
      c, json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "items", n.items,
                   "ready", n.ready, "delayed", n.delayed, "claimed", n.claimed,
                   "dead", n.dead, "takers", n.takers, "putters", n.putters,
                   "limit", n.limit, "attempts", n.attempts));
}

/* An item's state in one word. */
static const char *state_of(const zke_queue_entry *e) {
  if (e->claimed) return "claimed";
  return e->due_ms > clock_wall_ms() ? "delayed" : "ready";
}

/* The process that works on it, for people. */
static json_t *holder_of(const zke_queue_entry *e) {
  return *e->identity
             ? json_sprintf("%s (pid %" PRId64 ")", e->identity, e->pid)
             : json_null();
}

/* A dead letter in the list; people get only what fits on a line. */
static json_t *letter_row(const call *c, const zke_queue_entry *e) {
  json_t *row = json_pack("{s:o,s:i,s:i,s:i,s:I}", "item", value_text(e->name),
                          "priority", e->priority, "bytes", e->len, "attempts",
                          e->attempts, "died_at", e->put_ms);
  if (!row) return NULL;
  if (c->format == FORMAT_HUMAN && !c->id) {
    json_object_set_new(row, "holder", holder_of(e));
  } else {
    json_object_set_new(row, "holder",
                        *e->identity ? value_text(e->identity) : json_null());
    json_object_set_new(row, "pid",
                        *e->identity ? json_integer(e->pid) : json_null());
  }
  json_object_set_new(row, "reason", value_text(e->reason));
  return row;
}

/* An item in the list; people do not get members that would not fit.
 * value_time() makes null of every 0, also of the token of an unclaimed item.
 */
static json_t *entry_row(const call *c, const zke_queue_entry *e) {
  json_t *row = json_pack("{s:o,s:s,s:i,s:i,s:I}", "item", value_text(e->name),
                          "state", state_of(e), "priority", e->priority,
                          "attempts", e->attempts, "put_at", e->put_ms);
  if (!row) return NULL;
  if (c->format == FORMAT_HUMAN && !c->id) {
    json_object_set_new(row, "holder", holder_of(e));
    return row;
  }
  json_object_set_new(row, "due_at", value_time(e->due_ms));
  json_object_set_new(row, "bytes", json_integer(e->len));
  json_object_set_new(row, "holder",
                      e->claimed ? value_text(e->identity) : json_null());
  json_object_set_new(row, "pid",
                      e->claimed ? json_integer(e->pid) : json_null());
  json_object_set_new(row, "session",
                      e->claimed ? value_session(e->session) : json_null());
  json_object_set_new(row, "since", value_time(e->since_ms));
  json_object_set_new(row, "token", value_time(e->token));
  json_object_set_new(row, "key", *e->key ? value_text(e->key) : json_null());
  return row;
}

/* Adds an item's data to its row.  The recipe's list does not include it, so
 * this reads the znode (LAYOUT in queue.h).  An item that has gone meanwhile
 * has null. */
static int entry_data(call *c, const char *queue, const zke_queue_entry *e,
                      json_t *row) {
  char *path, *data = NULL;
  int len = -1;
  const char *where = option_given(c, 'D') ? "dead" : "entries";
  if (asprintf(&path, "%s/%s/%s", queue, where, e->name) < 0)
    return no_memory(c);
  int rc = zke_get(c->z, path, NULL, NULL, &data, &len, NULL);
  free(path);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return fail_rc(c, rc);
  json_object_set_new(row, "data", value_data(data, len));
  zke_free(data);
  return 0;
}

/* Prints the rows, until interrupted: with --data each row costs a read. */
static int list_entries(call *c, const queue_of *q,
                        const zke_queue_entries *all) {
  int status = 0;
  for (int i = 0; !status && i < all->count; i++) {
    if (cancel_came(c)) return fail_cancelled(c);
    json_t *row = option_given(c, 'D') ? letter_row(c, &all->data[i])
                                       : entry_row(c, &all->data[i]);
    if (row && option_given(c, 'd'))
      status = entry_data(c, q->path, &all->data[i], row);
    if (!status)
      status = emit_row(c, row);
    else
      json_decref(row);
  }
  return status;
}

/* queue list: the items in their order, or with --dead the dead letters. */
static int list_run(call *c) {
  queue_of q;
  zke_queue_entries *all;
  int status = queue_open_existing(c, &q);
  if (status) return status;
  int rc = option_given(c, 'D') ? zke_queue_dead(q.queue, &all)
                                : zke_queue_list(q.queue, &all);
  if (rc == ZKE_OK) {
    status = list_entries(c, &q, all);
    zke_free(all);
  } else {
    status = fail_rc(c, rc);
  }
  queue_close(&q);
  return status;
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option push_table[] = {
    {'p', "priority", "N"},   {'d', "delay", "DURATION"},
    {'k', "key", "KEY"},      {'l', "lines", NULL},
    {'e', "ephemeral", NULL}, {'m', "limit", "N"},
    {'a', "attempts", "N"},   OPTIONS_DATA,
    OPTIONS_PATIENCE,         {'\0', NULL, NULL}};
static const option pop_table[] = {{'f', "follow", NULL},
                                   {'g', "go-on", NULL},
                                   {'b', "back-off", "DURATION"},
                                   {'a', "attempts", "N"},
                                   {'V', "visibility", "DURATION"},
                                   OPTIONS_PATIENCE,
                                   OPTIONS_GUARD,
                                   {'\0', NULL, NULL}};
static const option claim_table[] = {{'a', "attempts", "N"},
                                     {'V', "visibility", "DURATION"},
                                     OPTIONS_PATIENCE,
                                     {'\0', NULL, NULL}};
static const option ack_table[] = {{'t', "token", "TOKEN"}, {'\0', NULL, NULL}};
static const option release_table[] = {
    {'d', "delay", "DURATION"}, {'t', "token", "TOKEN"}, {'\0', NULL, NULL}};
static const option prolong_table[] = {{'V', "visibility", "DURATION"},
                                       {'t', "token", "TOKEN"},
                                       {'\0', NULL, NULL}};
static const option requeue_table[] = {
    {'A', "all", NULL}, OPTIONS_PATIENCE, {'\0', NULL, NULL}};
static const option rm_table[] = {{'f', "force", NULL}, {'\0', NULL, NULL}};
static const option drop_table[] = {{'A', "all", NULL}, {'\0', NULL, NULL}};
static const option list_table[] = {
    {'D', "dead", NULL}, {'d', "data", NULL}, {'\0', NULL, NULL}};

const command queue_commands[] = {
    {"queue",
     "push | pop | claim | prolong | ack | release | peek | list | size | "
     "requeue | drop "
     "| rm NAME …",
     "work queues: each item goes to one process", NULL, 0, -1, VERBS,
     STYLE_LINE, NULL, NULL},
    {"queue push",
     "NAME [DATA | --base64 TEXT | --input FILE | --null | --lines [--input "
     "FILE]] [--priority N] [--delay DURATION] [--key KEY] [--ephemeral] "
     "[--limit N] "
     "[--attempts N] [--wait DURATION | --nonblock] [-E CODE]",
     "put an item into a queue, or each line of standard input", push_table, 1,
     2, CREATES_FILE | HIDDEN, STYLE_LINE, push_run, push_human},
    {"queue pop",
     "NAME [--wait DURATION | --nonblock] [-E CODE] [--follow [--go-on "
     "[--back-off DURATION]]] [--attempts N] [--visibility DURATION] "
     "[--on-lost kill|warn] [--grace "
     "DURATION] [--close | --wait-all] "
     "[--outlive] "
     "[-- CMD ARGS…]",
     "take the first item and print it, or have CMD work on it", pop_table, 1,
     1, CREATES_FILE | TAKES_CHILD | HIDDEN, STYLE_VALUE, pop_run, NULL},
    {"queue claim",
     "NAME [--wait DURATION | --nonblock] [-E CODE] [--attempts N] "
     "[--visibility DURATION]",
     "claim the first item, until ack, release or the session's end",
     claim_table, 1, 1, CREATES_FILE | HIDDEN, STYLE_LINE, claim_run, NULL},
    {"queue ack", "NAME [ITEM] [--token TOKEN]",
     "a claimed item is done: remove it", ack_table, 1, 2,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, ack_run, NULL},
    {"queue prolong", "NAME [ITEM] --visibility DURATION [--token TOKEN]",
     "extend the time for a claimed item", prolong_table, 1, 2,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, prolong_run, NULL},
    {"queue release", "NAME [ITEM] [--delay DURATION] [--token TOKEN]",
     "give a claimed item back", release_table, 1, 2, NEEDS_SESSION | HIDDEN,
     STYLE_LINE, release_run, NULL},
    {"queue peek", "NAME", "print the next item, and leave it there", NULL, 1,
     1, NEEDS_FILE | HIDDEN, STYLE_VALUE, peek_run, NULL},
    {"queue list", "NAME [--dead] [--data]",
     "print the items in their order, and who works on them", list_table, 1, 1,
     NEEDS_FILE | HIDDEN, STYLE_TABLE, list_run, NULL},
    {"queue size", "NAME", "count the items in each state", NULL, 1, 1,
     NEEDS_FILE | HIDDEN, STYLE_RECORD, size_run, NULL},
    {"queue requeue",
     "NAME ITEM | NAME --all [--wait DURATION | --nonblock] [-E CODE]",
     "put dead letters back into their queue", requeue_table, 1, 2,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, requeue_run, NULL},
    {"queue drop", "NAME ITEM | NAME --all", "remove dead letters", drop_table,
     1, 2, NEEDS_SESSION | HIDDEN, STYLE_LINE, drop_run, NULL},
    {"queue rm", "NAME [--force]", "remove a queue and all that is in it",
     rm_table, 1, 1, NEEDS_SESSION | HIDDEN, STYLE_LINE, rm_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
