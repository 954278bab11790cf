/* two_phase.c - several sites do something together, or none does
 *
 * CONTENTS, in layers; a function calls its own section and those above.
 *
 *   head    a transaction's znode: form, limit, sites, payload
 *   steps   operations on a transaction's children, for one multi
 *   view    all of a transaction as of one moment; removing it
 *   object  looking, deciding, voting, acknowledging
 *
 * A transaction from beginning to end; each line is one step (one multi):
 *
 *   1. begin   the coordinator creates the znode with its head, "id-<id>",
 *              "coordinator" and for each site an empty vote, or, if votes are
 *              ephemeral, "came-<site>" (phase_create_all()).  A site that
 *              comes then creates its vote and writes "came-<site>"
 *              (phase_try_join())
 *   2. vote    a site writes "commit" into its vote; or "abort", and then
 *              "decision" with it (phase_give_vote()).  Operations of the
 *              caller's are done with it, and "work-<site>" created
 *   3. decide  any participant creates "decision": "commit", if each vote is
 *              "commit" in that very step; "abort" at the time limit, or when
 *              an ephemeral vote has gone, or on demand (phase_try_decide())
 *   4. ack     a site that has done what was decided creates "ack-<site>", and
 *              the coordinator deletes "coordinator" (phase_write_ack()).  A
 *              site may do it in this very step: operations of the caller's
 *   5. remove  the last one to acknowledge deletes all of it instead of 4, with
 *              the same operations (view_remove())
 *
 * What makes it safe:
 *
 *   T1  "decision" is created once and never changes its word.  Whoever has
 *       read it knows the outcome for good; of two that decide at the same time
 *       one creates it, and the other one reads it.
 *   T2  A vote's znode has version 0 while it is empty and 1 when it says a
 *       word; it never changes after that, and one that was made anew begins at
 *       0 again.  So a check of version 1 is a check of the vote, and 3 relies
 *       on no vote that it merely saw.  A vote for "abort" has version 1 too,
 *       but the decision is made in the same step, so 3 fails.
 *   T3  Every change checks "id-<id>", so it cannot hit a later transaction of
 *       the same name.
 *   T4  Acknowledgements write "decision" at the version that was seen.  So of
 *       two that acknowledge at the same time one fails and looks again, and
 *       the last one knows that it is the last.
 *   T5  "id-<id>" has version 0 until the step that decides raises it.  A vote
 *       checks version 0, so none comes after the decision, and no operation
 *       with it: not by a process that was stopped for long either, after
 *       another one has acknowledged for its site.
 *   T6  The caller's operations stand in the step of 2, 4 or 5, behind the
 *       recipe's own, so they are done where the vote or the acknowledgement is
 *       given by this very call, and nowhere else.  A mark stays of them, with
 *       an id of the call: "work-<site>", which outlives an ephemeral vote, and
 *       "ack-<site>" itself.  A call that finds the mark leaves its operations
 *       out, and the id says whether it was the call's own lost try.
 *   T7  The code of a caller's operation is not looked at here, since it may be
 *       one on which this recipe looks again.  Which operation of the step was
 *       refused tells whose the refusal is (more_take()).
 *   T8  An ephemeral vote is created in a step that writes "came-<site>".  So
 *       if that has another version than 0 and the vote is missing, the site
 *       has died, whether anybody had seen its vote or not.
 *
 * A death before a step leaves the transaction as it was; after it, the step is
 * whole.  Any participant can decide and remove, so nobody waits for a process
 * that died, except for its vote and its acknowledgement.  After a lost reply a
 * step is tried again.  If the first try has made it, the second one fails, and
 * the look that follows finds the decision, the vote or the acknowledgement;
 * begin finds its own id.  Votes and acknowledgements look before each try.
 *
 *     UNDECIDED --- all have voted commit ----> COMMIT --- all acks --> removed
 *         |                                                  ^
 *         '--- abort, limit, a site has died --> ABORT ------'
 *
 * Start reading at phase_look(), then phase_look_votes() and
 * phase_try_decide(); at phase_try_acknowledge() for the end. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "two_phase.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

#define PHASE_PLACE "two-phase"
#define PHASE_MARK "zkembed transaction\n"

enum {
  PHASE_ID = ZKE_RECIPE_GUID,
  PHASE_BY = 96,               /* bytes of "identity (pid 12)" */
  PHASE_OPS = INT32_MAX / 256, /* of a caller's, at most */
  PHASE_FORMS = ZKE_TWO_PHASE_COORDINATOR | ZKE_TWO_PHASE_EPHEMERAL
};

static const char *const phase_words[] = {"", "commit", "abort"};

/* What a vote's or a decision's data says. */
static int phase_word(const char *data) {
  size_t len = data ? strcspn(data, "\n") : 0;
  for (int i = ZKE_TWO_PHASE_COMMIT; i <= ZKE_TWO_PHASE_ABORT; i++) {
    if (strlen(phase_words[i]) == len &&
        strncmp(data, phase_words[i], len) == 0)
      return i;
  }
  return ZKE_TWO_PHASE_UNDECIDED;
}

/* Make one line of a text. */
static void text_flatten(char *text) {
  for (; *text; text++) {
    if (*text == '\n') *text = ' ';
  }
}

/* "identity (pid 12)" of this session, in one line. */
static void phase_by(zke *z, char by[PHASE_BY]) {
  zke_session_list *who = NULL;
  snprintf(by, PHASE_BY, "session %" PRIx64, (uint64_t)zke_session_id(z));
  if (zke_session(z, zke_session_id(z), &who) == ZKE_OK) {
    snprintf(by, PHASE_BY, "%.60s (pid %" PRId64 ")", who->data[0].identity,
             who->data[0].pid);
  }
  text_flatten(by);
  zke_free(who);
}

/* The path of base/name, in one block; base may be "/". */
static char *phase_tx_path(zke *z, const char *base, const char *name) {
  return zke_recipe_path(z, strcmp(base, "/") == 0 ? "" : base, name);
}

/* ======================================================================
 * head
 *
 * What the znode's data says: a mark, lines of a word and its value, an empty
 * line, and the payload.  It never changes.
 * ==================================================================== */

typedef struct phase_head {
  char *text;               /* as it was read; the rest points into it */
  const char *id;           /* that no other transaction has */
  int form;                 /* ZKE_TWO_PHASE_… */
  int64_t limit_ms;         /* wall time, since 1970; 0: none */
  int64_t begun_ms;         /* the same */
  int count;                /* of the sites */
  const char *const *sites; /* their names, in the coordinator's order */
  const char **names;       /* the block that they stand in */
  const char *payload;
  int len; /* bytes of the payload */
} phase_head;

/* Release what was read of a transaction's znode; what points into it is gone
 * then. */
static void head_free(phase_head *h) {
  zke_free(h->text);
  zke_free(h->names);
  *h = (phase_head){0};
}

/* Take a line "key value\n" off the text: its value, or NULL. */
static char *head_line(char **at, const char *key) {
  size_t len = strlen(key);
  char *end = strchr(*at, '\n'), *value = *at + len;
  if (!end || strncmp(*at, key, len) != 0) return NULL;
  *end = '\0';
  *at = end + 1;
  return value;
}

/* Cut the line of sites at its spaces. */
static int head_sites(zke *z, phase_head *h, char *line) {
  int most = 1;
  for (char *at = line; *at; at++) most += *at == ' ';
  h->sites = h->names = zke_alloc(z, (size_t)most * sizeof *h->names);
  if (!h->names) return ZKE_NOMEM;
  for (char *save, *at = strtok_r(line, " ", &save); at;
       at = strtok_r(NULL, " ", &save)) {
    h->names[h->count++] = at;
  }
  return ZKE_OK;
}

/* Write the data of a znode that has this head, in one block. */
static char *head_write(zke *z, const phase_head *h, int *len_out) {
  size_t size = 160 + (size_t)h->len;
  for (int i = 0; i < h->count; i++) size += strlen(h->sites[i]) + 1;
  char *text = zke_alloc(z, size);
  if (!text) return NULL;
  int used = snprintf(text, size,
                      PHASE_MARK "id %s\nform %d\nlimit %" PRId64 "\nsites",
                      h->id, h->form, h->limit_ms);
  for (int i = 0; i < h->count; i++)
    used += snprintf(text + used, size - (size_t)used, " %s", h->sites[i]);
  used += snprintf(text + used, size - (size_t)used, "\n\n");
  if (h->len) memcpy(text + used, h->payload, (size_t)h->len);
  *len_out = used + h->len;
  return text;
}

/* Read what head_write() wrote.  The text ends with a NUL. */
static int head_parse(zke *z, phase_head *h, int len) {
  char *at = h->text;
  if (len < 0 || strncmp(at, PHASE_MARK, strlen(PHASE_MARK)) != 0)
    return ZKE_OTHERKIND;
  at += strlen(PHASE_MARK);
  h->id = head_line(&at, "id ");
  const char *form = head_line(&at, "form ");
  const char *limit = head_line(&at, "limit ");
  char *sites = head_line(&at, "sites ");
  if (!h->id || !form || !limit || !sites || !head_line(&at, ""))
    return ZKE_OTHERKIND;
  h->form = (int)strtol(form, NULL, 10) & PHASE_FORMS;
  h->limit_ms = strtoll(limit, NULL, 10);
  h->payload = at;
  h->len = len - (int)(at - h->text);
  return head_sites(z, h, sites);
}

/* Read a transaction's znode; on failure there is nothing to release. */
static int head_read(zke *z, const char *path, phase_head *h) {
  zke_stat stat;
  int len;
  *h = (phase_head){0};
  int rc = zke_get(z, path, NULL, NULL, &h->text, &len, &stat);
  if (rc == ZKE_OK) rc = head_parse(z, h, len);
  if (rc == ZKE_OK) {
    h->begun_ms = stat.ctime;
    return ZKE_OK;
  }
  head_free(h);
  if (rc == ZKE_OTHERKIND)
    rc = zke_recipe_fail(rc, "%s is not a transaction of a two-phase commit",
                         path);
  return rc;
}

/* The index of a site, or -1 for a name that takes no part. */
static int head_find(const phase_head *h, const char *site) {
  for (int i = 0; i < h->count; i++) {
    if (strcmp(h->sites[i], site) == 0) return i;
  }
  return -1;
}

/* The names stand in one line of the data, and in znodes' names. */
static int phase_check_sites(const char *const *sites, int count) {
  if (!sites || count < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a transaction needs sites");
  for (int i = 0; i < count; i++) {
    if (!sites[i] || !*sites[i] || strpbrk(sites[i], "/ \n"))
      return zke_recipe_fail(ZKE_BADARGUMENTS, "'%s' cannot name a site",
                             sites[i] ? sites[i] : "NULL");
    for (int j = 0; j < i; j++) {
      if (strcmp(sites[i], sites[j]) == 0)
        return zke_recipe_fail(ZKE_BADARGUMENTS, "two sites are named %s",
                               sites[i]);
    }
  }
  return ZKE_OK;
}

/* ======================================================================
 * steps
 *
 * Operations on the children of one transaction, which are collected and then
 * made in one multi.  steps_begin() is followed by steps_do(), steps_do_with()
 * or steps_read().
 * ==================================================================== */

typedef struct phase_steps {
  zke *z;
  const char *tx; /* path of the transaction */
  zke_op *ops;
  char **paths; /* of the operations, freed with them; NULL where an operation
                   is on the transaction itself */
  int count;
  bool failed; /* there was no memory */
} phase_steps;

/* What a site does in the step of its vote or of its acknowledgement (T6). */
typedef struct phase_more {
  const zke_op *ops; /* the caller's; at least one */
  int count;
  zke_op_result *results; /* of these, or NULL; handed out where the step was
                             made or one of these was refused */
  char id[PHASE_ID];      /* of the call, as the mark bears it */
  bool tried;             /* false: a mark that is found is an earlier call's */
  int done;               /* out: ZKE_TWO_PHASE_NOT_DONE… */
  bool refused;           /* out: one of these was, with the code below */
  int code;
} phase_more;

/* Room for so many operations.  A lack of memory is noted, and told when they
 * are done: so nobody has to ask in between. */
static void steps_begin(phase_steps *s, zke *z, const char *tx, int room) {
  *s = (phase_steps){.z = z, .tx = tx};
  s->ops = zke_alloc(z, (size_t)room * sizeof *s->ops);
  s->paths = zke_alloc(z, (size_t)room * sizeof *s->paths);
  s->failed = !s->ops || !s->paths;
}

/* Release the operations and their paths. */
static void steps_end(phase_steps *s) {
  for (int i = 0; s->paths && i < s->count; i++) zke_free(s->paths[i]);
  zke_free(s->paths);
  zke_free(s->ops);
}

/* "transaction/<prefix><name>" in one block. */
static char *phase_path(zke *z, const char *tx, const char *prefix,
                        const char *name) {
  size_t size = strlen(tx) + strlen(prefix) + strlen(name) + 2;
  char *path = zke_alloc(z, size);
  if (path) snprintf(path, size, "%s/%s%s", tx, prefix, name);
  return path;
}

/* The path of the next operation, s->ops[s->count]; NULL without memory. */
static const char *steps_path(phase_steps *s, const char *prefix,
                              const char *name) {
  if (s->failed) return NULL;
  char *path = phase_path(s->z, s->tx, prefix, name);
  s->failed = !path;
  s->paths[s->count] = path;
  return path;
}

/* The step is done only while that znode has this version; -1: while it is
 * there. */
static void steps_check(phase_steps *s, const char *prefix, const char *name,
                        int version) {
  const char *path = steps_path(s, prefix, name);
  if (path) zke_op_check(&s->ops[s->count++], path, version);
}

/* One of the transaction's znodes, named by prefix and name. */
static void steps_create(phase_steps *s, const char *prefix, const char *name,
                         const char *data, int mode) {
  const char *path = steps_path(s, prefix, name);
  if (path)
    zke_op_create(&s->ops[s->count++], path, data, (int)strlen(data),
                  ZKE_OPEN_ACL, mode);
}

/* The version makes the step fail where somebody else was faster. */
static void steps_set(phase_steps *s, const char *prefix, const char *name,
                      const char *data, int version) {
  const char *path = steps_path(s, prefix, name);
  if (path)
    zke_op_set(&s->ops[s->count++], path, data, (int)strlen(data), version);
}

/* Add a deletion, of whatever version. */
static void steps_delete(phase_steps *s, const char *prefix, const char *name) {
  const char *path = steps_path(s, prefix, name);
  if (path) zke_op_delete(&s->ops[s->count++], path, -1);
}

/* Add a reading, for steps_read(). */
static void steps_get(phase_steps *s, const char *prefix, const char *name) {
  const char *path = steps_path(s, prefix, name);
  if (path) zke_op_get(&s->ops[s->count++], path);
}

/* Do the readings that were collected, in one snapshot, and release them.
 *
 *   got  out: a result for each of them, in their order; untouched on failure.
 *        NULL: there was no memory for these */
static int steps_read(phase_steps *s, zke_op_result *got) {
  int rc = ZKE_NOMEM;
  if (!s->failed && got)
    rc = zke_recipe_multi_read(s->z, s->ops, s->count, got);
  steps_end(s);
  return rc;
}

/* Do them, all or none, and release them. */
static int steps_do(phase_steps *s) {
  int rc =
      s->failed ? ZKE_NOMEM : zke_recipe_multi(s->z, s->ops, s->count, NULL);
  steps_end(s);
  return rc;
}

/* So many operations does the caller add; more may be NULL. */
static int more_count(const phase_more *more) { return more ? more->count : 0; }

/* Keep what came of the caller's operations, which stand behind `own` ones of
 * the recipe's.  Where one of the caller's was refused the result is ZKE_SQL,
 * on which nothing here looks again or tries again; its code travels in *more
 * (T7). */
static int more_take(phase_more *more, zke_op_result *got, int own, int rc) {
  size_t size = (size_t)more->count * sizeof *got;
  more->tried = true;
  more->refused =
      rc != ZKE_OK && zke_recipe_refused(got, own + more->count) >= own;
  more->code = more->refused ? rc : ZKE_OK;
  if (rc == ZKE_OK) more->done = ZKE_TWO_PHASE_DONE;
  if (more->results && (rc == ZKE_OK || more->refused)) {
    memcpy(more->results, got + own, size);
    memset(got + own, 0, size);
  }
  return more->refused ? ZKE_SQL : rc;
}

/* As steps_do(), with the caller's operations behind those collected, for which
 * steps_begin() has made room; more may be NULL. */
static int steps_do_with(phase_steps *s, phase_more *more) {
  int own = s->count, rc = ZKE_NOMEM;
  zke_op_result *got = NULL;
  if (!more) return steps_do(s);
  if (!s->failed)
    got = zke_alloc(s->z, (size_t)(own + more->count) * sizeof *got);
  if (got) {
    memcpy(s->ops + own, more->ops, (size_t)more->count * sizeof *s->ops);
    s->count += more->count;
    rc = zke_recipe_multi(s->z, s->ops, s->count, got);
    rc = more_take(more, got, own, rc);
    zke_results_clear(got, s->count);
  }
  zke_free(got);
  steps_end(s);
  return rc;
}

/* ======================================================================
 * view
 *
 * All of a transaction as of one moment, read without an object: for lists, for
 * acknowledging, and for what is found in the way of a new one.
 * ==================================================================== */

typedef struct phase_view {
  phase_head head;
  zke_op_result *got; /* [0] children, [1] the decision, then the votes in the
                         order of the sites */
  int count;          /* of got */
} phase_view;

/* Release a view, with the head that it has. */
static void view_free(phase_view *v) {
  if (v->got) zke_results_clear(v->got, v->count);
  zke_free(v->got);
  head_free(&v->head);
}

/* Is there such a child in the view? */
static bool view_has(const phase_view *v, const char *prefix,
                     const char *name) {
  const zke_strings *children = v->got[0].children;
  size_t len = strlen(prefix);
  for (int i = 0; i < children->count; i++) {
    const char *child = children->data[i];
    if (strncmp(child, prefix, len) == 0 && strcmp(child + len, name) == 0)
      return true;
  }
  return false;
}

/* What was decided at the moment of the view. */
static int view_decision(const phase_view *v) {
  return v->got[1].rc == ZKE_OK ? phase_word(v->got[1].data)
                                : ZKE_TWO_PHASE_UNDECIDED;
}

/* A site's vote.  It counts where its znode has version 1 (T2). */
static int view_vote(const phase_view *v, int site) {
  const zke_op_result *got = &v->got[2 + site];
  return got->rc == ZKE_OK && got->stat.version == 1 ? phase_word(got->data)
                                                     : ZKE_TWO_PHASE_UNDECIDED;
}

/* How many sites have not acknowledged, but for one of them. */
static int view_unacknowledged(const phase_view *v, int but) {
  int count = 0;
  for (int i = 0; i < v->head.count; i++)
    count += i != but && !view_has(v, "ack-", v->head.sites[i]);
  return count;
}

/* One look at all of it; ZKE_NONODE: there is no whole transaction. */
static int view_read_once(zke *z, const char *tx, phase_view *v) {
  phase_steps s;
  *v = (phase_view){0};
  int rc = head_read(z, tx, &v->head);
  if (rc != ZKE_OK) return rc;
  v->count = v->head.count + 2;
  v->got = zke_alloc(z, (size_t)v->count * sizeof *v->got);
  steps_begin(&s, z, tx, v->count);
  if (!s.failed) zke_op_children(&s.ops[s.count++], tx);
  steps_get(&s, "decision", "");
  for (int i = 0; i < v->head.count; i++)
    steps_get(&s, "vote-", v->head.sites[i]);
  rc = steps_read(&s, v->got);
  if (rc == ZKE_OK) rc = v->got[0].rc;
  if (rc == ZKE_OK && !view_has(v, "id-", v->head.id)) rc = ZKE_NONODE;
  if (rc != ZKE_OK) view_free(v);
  return rc;
}

/* Read a view.  The transaction may have been replaced by one of the same name
 * between the reading of the head and that of the rest, which the id tells:
 * then it is read once more. */
static int view_read(zke *z, const char *tx, phase_view *v) {
  int rc = view_read_once(z, tx, v);
  if (rc == ZKE_NONODE && zke_exists(z, tx, NULL, NULL, NULL) == ZKE_OK)
    rc = view_read_once(z, tx, v);
  if (rc == ZKE_NONODE) zke_fail(rc, "there is no transaction %s", tx);
  return rc;
}

/* "b, c": the sites that have not voted (or acknowledged), as far as they fit
 * in.  Returns text. */
static const char *view_missing(const phase_view *v, bool acks, char *text,
                                size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < v->head.count && used < size; i++) {
    const char *site = v->head.sites[i];
    if (acks ? view_has(v, "ack-", site) : view_vote(v, i) != 0) continue;
    used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                             site);
  }
  return text;
}

/* Remove all of it, if the decision has still the version that was seen: then
 * no acknowledgement has come since (T4), and the view's list of children is
 * whole.  ZKE_NOTEMPTY: there are foreign znodes in it.
 *
 *   more  of the site whose acknowledgement this is, or NULL */
static int view_remove(zke *z, const char *tx, const phase_view *v,
                       phase_more *more) {
  static const char *const kinds[] = {"vote-", "came-", "work-", "ack-"};
  const phase_head *h = &v->head;
  phase_steps s;
  steps_begin(&s, z, tx, 4 * h->count + 5 + more_count(more));
  steps_check(&s, "decision", "", v->got[1].stat.version);
  for (int i = 0; i < 4 * h->count; i++) {
    const char *site = h->sites[i / 4];
    if (view_has(v, kinds[i % 4], site)) steps_delete(&s, kinds[i % 4], site);
  }
  if (view_has(v, "coordinator", "")) steps_delete(&s, "coordinator", "");
  steps_delete(&s, "decision", "");
  steps_delete(&s, "id-", h->id);
  if (!s.failed) zke_op_delete(&s.ops[s.count++], tx, -1);
  return steps_do_with(&s, more);
}

/* End the session that owns an ephemeral if its process is dead, rather than
 * wait until that is noticed.  ZKE_OK: it lives; ZKE_LOOK_AGAIN: it has ended.
 */
static int view_bury(zke *z, const char *path) {
  zke_stat stat;
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  if (rc == ZKE_OK) rc = zke_recipe_bury(z, path, stat.ephemeralOwner);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* Have all sites (but one) acknowledged, and the coordinator, if it lives? */
static int view_is_over(zke *z, const char *tx, const phase_view *v, int but,
                        bool *over) {
  *over = view_decision(v) && view_unacknowledged(v, but) == 0;
  if (!*over || !view_has(v, "coordinator", "")) return ZKE_OK;
  *over = false;
  char *path = phase_path(z, tx, "coordinator", "");
  int rc = path ? view_bury(z, path) : ZKE_NOMEM;
  zke_free(path);
  return rc;
}

/* ======================================================================
 * object
 *
 * One participant: the coordinator, a site, or an onlooker.  Each look reads
 * the decision; the participant whose turn it is reads the votes too, and
 * decides.
 * ==================================================================== */

/* A site's vote. */
typedef struct phase_vote {
  char *path;
  bool watched; /* by this object, and the watch has not fired */
} phase_vote;

/* Guarded by the mutex of the zke_recipe; head, paths, coordinator and own do
 * not change after the object was made. */
struct zke_two_phase {
  zke_recipe r;        /* first; its path is the transaction's */
  phase_head head;     /* as it was written */
  phase_vote *votes;   /* in the order of the sites */
  char *decision;      /* paths of three children: "decision", */
  char *leader;        /* "coordinator", */
  char *id;            /* "id-<id>" */
  bool coordinator;    /* it began the transaction */
  bool leader_watched; /* "coordinator" is watched */
  bool joined;         /* the ephemeral vote is this object's, perhaps */
  bool waiting;        /* a blocking call runs */
  int own;             /* index of its site; -1: an onlooker or coordinator */
  int state;           /* ZKE_TWO_PHASE_…; UNDECIDED until it is known */
  int64_t token;       /* czxid of the decision, or 0 */
  zke_two_phase_fn listener;
  void *context;
};

/* Say that the transaction's znode has gone; returns ZKE_LOST. */
static int phase_gone(const zke_two_phase *t) {
  return zke_recipe_fail(ZKE_LOST, "the transaction %s has gone", t->r.path);
}

/* ---- looking ----
 *
 * A look ends with the decision known, or with watches on all that can bring
 * it: on "decision" always; on the votes, if this object is to decide for all;
 * else on the coordinator's znode, whose end makes this object one that
 * decides.  Nothing has to be agreed upon for that: of several that decide at
 * the same time one makes the decision, and the others read it (T1).  The time
 * limit fires no watch; a look after it sees it, and phase_wait() makes one.
 */

/* Take a watch back that is not needed any more: it would keep the engine busy
 * with events that nobody reads. */
static void phase_unwatch_path(zke_two_phase *t, const char *path,
                               bool *watched) {
  if (!*watched) return;
  zke_remove_watch(t->r.z, path, ZKE_WATCH_DATA, zke_recipe_watcher, &t->r);
  *watched = false;
}

/* It is known how the transaction ended: note it, and tell the listener, once.
 * Without memory for the reason it hears of the end without one. */
static void phase_conclude(zke_two_phase *t, int state, int64_t token,
                           const char *why, int len) {
  if (t->state != ZKE_TWO_PHASE_UNDECIDED) return;
  t->state = state;
  t->token = token;
  if (!zke_recipe_tell(&t->r, state, token, why, len))
    zke_recipe_tell(&t->r, state, token, NULL, 0);
  if (t->r.ended) return;
  phase_unwatch_path(t, t->leader, &t->leader_watched);
  for (int i = 0; i < t->head.count; i++)
    phase_unwatch_path(t, t->votes[i].path, &t->votes[i].watched);
}

/* Say that T1, T2 or T5 cannot be relied on here. */
static int phase_meddled(const zke_two_phase *t) {
  return zke_recipe_fail(ZKE_RUNTIMEINCONSISTENCY,
                         "something else has written to %s", t->r.path);
}

/* Note a decision that was read.  It is one znode that is made once: whoever
 * has read it knows it for good.  One that says neither word is somebody
 * else's, and no other can be made beside it. */
static int phase_note_decision(zke_two_phase *t, const zke_op_result *node) {
  const char *why = node->data ? node->data + strcspn(node->data, "\n") : "";
  why += *why == '\n';
  int state = phase_word(node->data);
  if (!state) return phase_meddled(t);
  phase_conclude(t, state, node->stat.czxid, why, (int)strcspn(why, "\n"));
  return ZKE_OK;
}

/* Read a child of this transaction: in one snapshot with the id, since a later
 * transaction of the same name has another id, and its children say nothing of
 * this one (T3).
 *
 *   got  out, for zke_results_clear()
 *
 * Returns ZKE_OK; ZKE_NONODE: it is missing; ZKE_LOOK_AGAIN: this transaction
 * has gone. */
static int phase_read_child(const zke_two_phase *t, const char *path,
                            zke_op_result *got) {
  zke_op ops[2];
  zke_op_result read[2] = {{0}};
  zke_op_get(&ops[0], t->id);
  zke_op_get(&ops[1], path);
  int rc = zke_recipe_multi_read(t->r.z, ops, 2, read);
  if (rc == ZKE_OK) rc = read[0].rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : read[0].rc;
  if (rc == ZKE_OK) rc = read[1].rc;
  *got = read[1];
  zke_results_clear(read, 1);
  return rc;
}

/* Read the decision, if there is one.  ZKE_LOOK_AGAIN: this transaction has
 * gone. */
static int phase_read_decision(zke_two_phase *t) {
  zke_op_result got;
  int rc = phase_read_child(t, t->decision, &got);
  if (rc == ZKE_OK) rc = phase_note_decision(t, &got);
  zke_results_clear(&got, 1);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Is it decided?  The state says it afterwards.
 *
 *   1. Is the transaction there, and this one (T3)?
 *   2. Watch "decision", which is missing as yet: so it is zke_exists(), whose
 *      watch also waits for a creation.
 *   3. Read it.  If all was removed since 1, look again (ZKE_LOOK_AGAIN), and 1
 *      says that it has gone. */
static int phase_look_decision(zke_two_phase *t) {
  zke *z = t->r.z;
  int rc = zke_exists(z, t->id, NULL, NULL, NULL);
  if (rc == ZKE_OK)
    rc = zke_exists(z, t->decision, zke_recipe_watcher, &t->r, NULL);
  else if (rc == ZKE_NONODE) {
    phase_conclude(t, ZKE_TWO_PHASE_LOST, 0, "", 0);
    return ZKE_OK;
  }
  return rc == ZKE_OK || rc == ZKE_NONODE ? phase_read_decision(t) : rc;
}

/* "commit\n<why>\n<by>\n" in one block. */
static char *phase_decision_text(zke *z, int decision, const char *why) {
  char by[PHASE_BY];
  phase_by(z, by);
  const char *word = phase_words[decision];
  size_t size = strlen(word) + strlen(why) + strlen(by) + 4;
  char *text = zke_alloc(z, size);
  if (!text) return NULL;
  snprintf(text, size, "%s\n%s", word, why);
  text_flatten(text + strlen(word) + 1);
  snprintf(text + strlen(text), size - strlen(text), "\n%s\n", by);
  return text;
}

/* A vote, a decision or an acknowledgement that is to be written. */
typedef struct phase_act {
  zke_two_phase *t;
  int word;         /* of the first two: ZKE_TWO_PHASE_COMMIT or _ABORT */
  char *text;       /* the data of the decision */
  phase_more *more; /* to be done in the same step, or NULL */
} phase_act;

/* Create the decision, after which no vote is given any more (T5).  "commit"
 * only where in the same step each vote has version 1, which one for "commit"
 * has (T2). */
static int phase_try_decide(zke *z, void *arg) {
  const phase_act *a = arg;
  const phase_head *h = &a->t->head;
  phase_steps s;
  steps_begin(&s, z, a->t->r.path, h->count + 2);
  steps_set(&s, "id-", h->id, "", -1); /* T5 */
  for (int i = 0; i < h->count && a->word == ZKE_TWO_PHASE_COMMIT; i++)
    steps_check(&s, "vote-", h->sites[i], 1);
  steps_create(&s, "decision", "", a->text, ZKE_PERSISTENT);
  return steps_do(&s);
}

/* Decide.  ZKE_LOOK_AGAIN: there is a decision now, this one or another, or
 * what it rested on has changed.  Also after a lost reply: a second try finds
 * that the znode exists. */
static int phase_decide(zke_two_phase *t, int decision, const char *why) {
  phase_act a = {.t = t, .word = decision};
  a.text = phase_decision_text(t->r.z, decision, why);
  if (!a.text) return ZKE_NOMEM;
  int rc = zke_retry(t->r.z, phase_try_decide, &a, ZKE_FOREVER);
  zke_free(a.text);
  return rc == ZKE_OK ? ZKE_LOOK_AGAIN : zke_recipe_faster(rc);
}

/* Has the transaction's limit passed, by the wall clock? Whoever sees that may
 * abort it. */
static bool phase_is_late(const zke_two_phase *t) {
  return t->head.limit_ms && zke_wall(t->r.z) >= t->head.limit_ms;
}

/* Read which sites have no vote, for people: "" if that cannot be read. */
static int phase_name_missing(const zke_two_phase *t, char *names,
                              size_t size) {
  phase_view v;
  names[0] = '\0';
  int rc = view_read(t->r.z, t->r.path, &v);
  if (rc != ZKE_OK) return rc;
  view_missing(&v, false, names, size);
  view_free(&v);
  return ZKE_OK;
}

/* The reason names those that did not vote.  Without memory for it the decision
 * is made all the same. */
static int phase_decide_late(zke_two_phase *t) {
  char why[256], names[160];
  phase_name_missing(t, names, sizeof names);
  snprintf(why, sizeof why, "the time limit, without the vote of %s", names);
  return phase_decide(t, ZKE_TWO_PHASE_ABORT, why);
}

/* Read a vote and, if asked to, watch it.  ZKE_NONODE: there is none. */
static int phase_read_vote(zke_two_phase *t, int i, bool watch, int *vote) {
  char *data = NULL;
  zke_stat stat;
  phase_vote *v = &t->votes[i];
  watch = watch && !v->watched;
  int rc = zke_get(t->r.z, v->path, watch ? zke_recipe_watcher : NULL,
                   watch ? &t->r : NULL, &data, NULL, &stat);
  *vote = ZKE_TWO_PHASE_UNDECIDED;
  if (rc == ZKE_OK) {
    v->watched = v->watched || watch;
    if (stat.version == 1) *vote = phase_word(data);
  }
  zke_free(data);
  return rc;
}

/* Has a site come, with an ephemeral vote that has gone (T8)?  ZKE_OK: it has
 * not come yet; ZKE_NONODE: it has died; ZKE_LOOK_AGAIN: its vote is there.  In
 * one snapshot, since it may come just now. */
static int phase_has_died(const zke_two_phase *t, int i) {
  zke_op_result got[2] = {{0}};
  phase_steps s;
  steps_begin(&s, t->r.z, t->r.path, 2);
  steps_get(&s, "vote-", t->head.sites[i]);
  steps_get(&s, "came-", t->head.sites[i]);
  int rc = steps_read(&s, got);
  bool came = got[1].rc == ZKE_OK && got[1].stat.version != 0;
  if (rc == ZKE_OK && got[0].rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  if (rc == ZKE_OK && came) rc = ZKE_NONODE;
  zke_results_clear(got, 2);
  return rc;
}

/* There is no such vote.  Watch for it, and then see whether its site has not
 * come yet, or has died: abort. */
static int phase_miss_vote(zke_two_phase *t, int i) {
  phase_vote *v = &t->votes[i];
  char why[160];
  int rc = v->watched
               ? ZKE_NONODE
               : zke_exists(t->r.z, v->path, zke_recipe_watcher, &t->r, NULL);
  v->watched = rc == ZKE_OK || rc == ZKE_NONODE;
  if (rc == ZKE_OK) return ZKE_LOOK_AGAIN; /* it has come */
  if (rc == ZKE_NONODE) rc = phase_has_died(t, i);
  if (rc != ZKE_NONODE) return rc;
  snprintf(why, sizeof why, "the site %.100s has died", t->head.sites[i]);
  return phase_decide(t, ZKE_TWO_PHASE_ABORT, why);
}

/* Look at one vote, as a watcher of votes.  Persistent ones stay as they are
 * once given: only a missing one needs to be watched. */
static int phase_look_vote(zke_two_phase *t, int i, int *vote) {
  bool ephemeral = t->head.form & ZKE_TWO_PHASE_EPHEMERAL;
  int rc = phase_read_vote(t, i, ephemeral, vote);
  if (rc == ZKE_OK && !ephemeral && !*vote)
    rc = phase_read_vote(t, i, true, vote);
  return rc == ZKE_NONODE ? phase_miss_vote(t, i) : rc;
}

/* Look at the votes, and decide if that can be done.  It is enough to watch the
 * first one that is missing: as long as it is, nothing can be decided but by
 * the limit or by an "abort", which brings the decision itself.  Ephemeral
 * ones are all watched, since any may go. */
static int phase_look_votes(zke_two_phase *t) {
  bool all = true, ephemeral = t->head.form & ZKE_TWO_PHASE_EPHEMERAL;
  for (int i = 0; i < t->head.count && (all || ephemeral); i++) {
    int vote, rc = phase_look_vote(t, i, &vote);
    if (rc != ZKE_OK) return rc;
    if (vote == ZKE_TWO_PHASE_ABORT)
      return phase_decide(t, vote, "a site has voted abort");
    all = all && vote == ZKE_TWO_PHASE_COMMIT;
  }
  if (all)
    return phase_decide(t, ZKE_TWO_PHASE_COMMIT, "all have voted commit");
  return phase_is_late(t) ? phase_decide_late(t) : ZKE_OK;
}

/* Is it this object's turn to watch the votes?  In the coordinator's form that
 * is the coordinator's as long as it lives: the sites watch its znode, and take
 * its part when that goes.  It is read, since a watch by zke_exists() would wait
 * for a creation where it has gone.  At the limit everybody may decide. */
static int phase_is_watcher(zke_two_phase *t, bool *watcher) {
  *watcher = true;
  if (!(t->head.form & ZKE_TWO_PHASE_COORDINATOR) || t->coordinator ||
      phase_is_late(t))
    return ZKE_OK;
  zke_watch_fn fn = t->leader_watched ? NULL : zke_recipe_watcher;
  int rc = zke_get(t->r.z, t->leader, fn, &t->r, NULL, NULL, NULL);
  t->leader_watched = rc == ZKE_OK;
  *watcher = rc == ZKE_NONODE;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* One look.  The decision comes first, since it ends the looking.  The votes
 * are looked at by the participant whose turn it is: it decides for all.
 * ZKE_LOOK_AGAIN: something has changed meanwhile. */
static int phase_look(zke_two_phase *t) {
  bool watcher;
  int rc = phase_look_decision(t);
  if (rc != ZKE_OK || t->state != ZKE_TWO_PHASE_UNDECIDED) return rc;
  rc = phase_is_watcher(t, &watcher);
  return rc == ZKE_OK && watcher ? phase_look_votes(t) : rc;
}

/* Repeated while it changes, and only until it is decided. */
static int phase_step(zke_recipe *r) {
  zke_two_phase *t = (zke_two_phase *)r;
  int rc;
  do {
    if (t->state != ZKE_TWO_PHASE_UNDECIDED) return ZKE_OK;
    rc = phase_look(t);
  } while (zke_recipe_again(r->z, &rc));
  return rc;
}

/* A one-shot watch has fired. */
static void phase_event(zke_recipe *r, int type, const char *path) {
  zke_two_phase *t = (zke_two_phase *)r;
  if (strcmp(path, t->leader) == 0) t->leader_watched = false;
  for (int i = 0; i < t->head.count; i++) {
    phase_vote *v = &t->votes[i];
    if (type == ZKE_EVENT_OVERFLOW) v->watched = t->leader_watched = false;
    if (strcmp(path, v->path) == 0) v->watched = false;
  }
}

/* Without a session nothing more will be heard of the transaction. */
static void phase_ended(zke_recipe *r) {
  phase_conclude((zke_two_phase *)r, ZKE_TWO_PHASE_LOST, 0, "", 0);
}

/* The number is the token of the decision, the text its reason. */
static void phase_deliver(zke_recipe *r, int event, int64_t number,
                          const char *text, int len) {
  zke_two_phase *t = (zke_two_phase *)r;
  (void)len;
  if (t->listener) t->listener(t, event, number, text, t->context);
}

/* ---- the caller's operations ----
 *
 * T6 says where they stand, T7 how a refusal is told; the mark is for a call
 * that has lost its reply. */

/* Were operations done for the own site, and by which call?  more->done says it
 * afterwards.
 *
 *   prefix  of the znode that is the mark: "work-" or "ack-"
 *
 * ZKE_NONODE: there is no mark, and none were; ZKE_LOOK_AGAIN: the transaction
 * has gone. */
static int phase_read_mark(const zke_two_phase *t, const char *prefix,
                           phase_more *more) {
  zke_op_result got;
  char *path = phase_path(t->r.z, t->r.path, prefix, t->head.sites[t->own]);
  if (!path) return ZKE_NOMEM;
  int rc = phase_read_child(t, path, &got);
  const char *id = got.data ? got.data : "";
  more->done = ZKE_TWO_PHASE_NOT_DONE;
  if (rc == ZKE_OK && *id) {
    bool own = more->tried && strcmp(id, more->id) == 0;
    more->done = own ? ZKE_TWO_PHASE_DONE : ZKE_TWO_PHASE_DONE_BEFORE;
  }
  zke_results_clear(&got, 1);
  zke_free(path);
  return rc;
}

/* ---- acknowledging ----
 *
 * The decision is kept until all sites, and the coordinator if it lives, have
 * said that they need it no more; then the last of them removes the
 * transaction.  So a transaction that has gone was acknowledged by all, this
 * participant too, and a repeated try that finds none has succeeded.
 */

/* Has this participant acknowledged, as of the view? */
static bool phase_has_acknowledged(const zke_two_phase *t,
                                   const phase_view *v) {
  return t->own >= 0 ? view_has(v, "ack-", t->head.sites[t->own])
                     : !view_has(v, "coordinator", "");
}

/* Write this participant's acknowledgement, unless it is there already.  It
 * also writes the decision, at the version seen, so of two at the same time
 * one looks again (T4).  With operations of the caller's it bears the id of the
 * call (T6). */
static int phase_write_ack(zke_two_phase *t, const phase_view *v,
                           phase_more *more) {
  phase_steps s;
  if (phase_has_acknowledged(t, v)) return ZKE_OK;
  steps_begin(&s, t->r.z, t->r.path, 3 + more_count(more));
  steps_check(&s, "id-", t->head.id, -1);
  steps_set(&s, "decision", "", v->got[1].data, v->got[1].stat.version);
  if (t->own >= 0)
    steps_create(&s, "ack-", t->head.sites[t->own], more ? more->id : "",
                 ZKE_PERSISTENT);
  else
    steps_delete(&s, "coordinator", "");
  return steps_do_with(&s, more);
}

/* Have all others acknowledged?  For a coordinator: all sites.  For a site: all
 * other sites, and the coordinator, unless it is dead. */
static int phase_is_last(zke_two_phase *t, const phase_view *v, bool *last) {
  *last = view_unacknowledged(v, -1) == 0;
  return t->coordinator ? ZKE_OK
                        : view_is_over(t->r.z, t->r.path, v, t->own, last);
}

/* Acknowledge in a transaction as it was seen.  The last one removes it instead
 * of writing the acknowledgement, if nobody has acknowledged since the view: so
 * one of several that are the last at the same moment does it.  Operations were
 * done where the site has acknowledged before, and are not done again. */
static int phase_acknowledge_in(zke_two_phase *t, const phase_view *v,
                                phase_more *more) {
  bool last = false;
  int rc = ZKE_OK;
  if (!view_decision(v))
    return zke_recipe_fail(ZKE_MISUSE, "%s is undecided", t->r.path);
  if (more && phase_has_acknowledged(t, v)) {
    rc = phase_read_mark(t, "ack-", more);
    more = NULL;
  }
  if (rc == ZKE_OK) rc = phase_is_last(t, v, &last);
  if (rc == ZKE_OK && last) rc = view_remove(t->r.z, t->r.path, v, more);
  if (rc == ZKE_NOTEMPTY || (rc == ZKE_OK && !last))
    rc = phase_write_ack(t, v, more);
  return rc;
}

/* One step of an acknowledgement.  Where somebody else has acknowledged at the
 * same moment it looks again.  A transaction that has gone was acknowledged by
 * all, which is fine.  If the process dies before the step, another one that
 * opens the transaction with the site's name acknowledges. */
static int phase_try_acknowledge(zke *z, void *arg) {
  const phase_act *a = arg;
  zke_two_phase *t = a->t;
  phase_view v;
  int rc = view_read(z, t->r.path, &v);
  bool gone = rc == ZKE_NONODE || rc == ZKE_OTHERKIND;
  if (rc == ZKE_OK) {
    gone = strcmp(v.head.id, t->head.id) != 0;
    if (!gone) rc = phase_acknowledge_in(t, &v, a->more);
    view_free(&v);
  }
  if (gone && a->more) a->more->done = ZKE_TWO_PHASE_GONE;
  return gone ? ZKE_OK : zke_recipe_faster(rc);
}

/* Acknowledge the decision; twice does no harm.
 *
 *   more  of a site, or NULL */
static int phase_acknowledge(zke_two_phase *t, phase_more *more) {
  phase_act a = {.t = t, .more = more};
  return zke_recipe_do(t->r.z, phase_try_acknowledge, &a, ZKE_FOREVER);
}

/* ---- leaving ---- */

/* Delete an ephemeral of this transaction, as far as this session owns it, now
 * or later.  One of a later transaction of the same name is left alone: id and
 * ephemeral are seen at one moment.  Where they cannot be seen it goes whosever
 * it is; if it is that of another object of this handle, its party counts as
 * dead, so that its transaction is aborted at worst. */
static void phase_drop(zke_two_phase *t, char *path) {
  zke_op_result got;
  int rc = phase_read_child(t, path, &got);
  int64_t czxid = rc == ZKE_OK ? got.stat.czxid : 0;
  zke_results_clear(&got, 1);
  if (rc != ZKE_NONODE && rc != ZKE_LOOK_AGAIN)
    zke_recipe_discard(t->r.z, path, ZKE_EPHEMERAL, czxid);
}

/* A coordinator acknowledges when it goes; a site does so only when it says it
 * has done its work. */
static void phase_quit(zke_recipe *r) {
  zke_two_phase *t = (zke_two_phase *)r;
  if (t->coordinator &&
      (t->state == ZKE_TWO_PHASE_COMMIT || t->state == ZKE_TWO_PHASE_ABORT))
    phase_acknowledge(t, NULL);
  if (t->coordinator) phase_drop(t, t->leader);
  if (t->joined) phase_drop(t, t->votes[t->own].path);
}

/* What is persistent stays: the decision is for whoever comes later. */
static void phase_destroy(zke_recipe *r) {
  zke_two_phase *t = (zke_two_phase *)r;
  for (int i = 0; t->votes && i < t->head.count; i++)
    zke_free(t->votes[i].path);
  zke_free(t->votes);
  zke_free(t->decision);
  zke_free(t->leader);
  zke_free(t->id);
  head_free(&t->head);
}

static const zke_recipe_class phase_class = {.name = "transaction",
                                             .event = phase_event,
                                             .step = phase_step,
                                             .ended = phase_ended,
                                             .deliver = phase_deliver,
                                             .quit = phase_quit,
                                             .destroy = phase_destroy};

/* ---- beginning ---- */

/* Make the object of base/name, without its head.
 *
 *   o  out: the options as given */
static int phase_new(zke *z, const char *base, const char *name,
                     const zke_two_phase_options *given,
                     zke_two_phase_options *o, zke_two_phase **out) {
  zke_recipe *r = NULL;
  if (!out) return zke_recipe_fail(ZKE_BADARGUMENTS, "t_out is NULL");
  *out = NULL;
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  if (!base || !name || !*name || strchr(name, '/'))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "base/name is not a transaction's path");
  rc = zke_take_options(given, o, sizeof *o, "zke_two_phase_options");
  if (rc != ZKE_OK) return rc;
  char *path = phase_tx_path(z, base, name);
  if (!path) return ZKE_NOMEM;
  rc = zke_recipe_new(z, path, &phase_class, sizeof(zke_two_phase), &r);
  zke_free(path);
  if (rc != ZKE_OK) return rc;
  *out = (zke_two_phase *)r;
  (*out)->own = -1;
  (*out)->listener = o->listener;
  (*out)->context = o->context;
  return ZKE_OK;
}

/* Make the paths of the children that the head names. */
static int phase_prepare(zke_two_phase *t) {
  zke *z = t->r.z;
  const char *tx = t->r.path;
  bool all = true;
  t->votes = zke_alloc(z, (size_t)t->head.count * sizeof *t->votes);
  t->decision = phase_path(z, tx, "decision", "");
  t->leader = phase_path(z, tx, "coordinator", "");
  t->id = phase_path(z, tx, "id-", t->head.id);
  for (int i = 0; t->votes && i < t->head.count; i++) {
    t->votes[i].path = phase_path(z, tx, "vote-", t->head.sites[i]);
    all = all && t->votes[i].path;
  }
  return t->votes && t->decision && t->leader && t->id && all ? ZKE_OK
                                                              : ZKE_NOMEM;
}

/* A transaction that is to begin.  What it is to be stands in the object. */
typedef struct phase_start {
  zke_two_phase *t;
  const char *base; /* borrowed */
  char *text;       /* the znode's data */
  int len;          /* its bytes */
  bool unsure;      /* a try may have begun it */
} phase_start;

/* All znodes come in one step, so nobody sees a transaction with some of its
 * votes.  If the coordinator dies after it, its ephemeral goes, and the sites
 * decide without it. */
static int phase_create_all(zke *z, const phase_start *b) {
  const phase_head *h = &b->t->head;
  const char *kind = h->form & ZKE_TWO_PHASE_EPHEMERAL ? "came-" : "vote-";
  char by[PHASE_BY];
  phase_steps s;
  phase_by(z, by);
  steps_begin(&s, z, b->t->r.path, h->count + 3);
  if (!s.failed)
    zke_op_create(&s.ops[s.count++], s.tx, b->text, b->len, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  steps_create(&s, "id-", h->id, "", ZKE_PERSISTENT);
  steps_create(&s, "coordinator", "", by, ZKE_EPHEMERAL);
  for (int i = 0; i < h->count; i++)
    steps_create(&s, kind, h->sites[i], "", ZKE_PERSISTENT);
  return steps_do(&s);
}

/* There is a transaction of that name.  ZKE_OK: it is the one that this call
 * began, and whose reply was lost.  ZKE_LOOK_AGAIN: it was over and is removed;
 * ZKE_NONODE, ZKE_BADVERSION: it has gone, or is going.  ZKE_HELD: it is under
 * way. */
static int phase_meet(zke *z, const phase_start *b) {
  const char *path = b->t->r.path;
  char names[160];
  phase_view v;
  bool over = false;
  int rc = view_read(z, path, &v);
  if (rc == ZKE_NONODE && zke_exists(z, path, NULL, NULL, NULL) == ZKE_OK)
    return zke_recipe_fail(ZKE_OTHERKIND, "%s holds only foreign znodes", path);
  if (rc != ZKE_OK) return rc;
  bool own = b->unsure && strcmp(v.head.id, b->t->head.id) == 0;
  if (!own) rc = view_is_over(z, path, &v, -1, &over);
  if (over) {
    rc = view_remove(z, path, &v, NULL);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  } else if (rc == ZKE_OK && !own) {
    bool decided = view_decision(&v);
    rc = zke_recipe_fail(
        ZKE_HELD, "there is a transaction %s, which waits for %s%s", path,
        decided ? "the acknowledgement of " : "the vote of ",
        view_missing(&v, decided, names, sizeof names));
  }
  view_free(&v);
  return rc;
}

/* One step: make the directory, and the transaction in it.  The directory is a
 * container, which may go before it has a child.  What is there already may be
 * what this call has begun, after a lost reply, or one that has ended and waits
 * for its removal: phase_meet() tells. */
static int phase_try_begin(zke *z, void *arg) {
  phase_start *b = arg;
  int rc = zke_recipe_place(z, b->base, PHASE_PLACE, ZKE_CONTAINER, NULL, 0);
  if (rc != ZKE_OK) return rc;
  rc = phase_create_all(z, b);
  b->unsure = b->unsure || rc == ZKE_CONNECTIONLOSS;
  if (rc == ZKE_NODEEXISTS) rc = phase_meet(z, b);
  return zke_recipe_faster(rc);
}

/* The mutex is held: begin, then watch.  A failure to watch is repeated later.
 * The object is the coordinator's also where a try may have begun it: what it
 * made goes with the object then.
 *
 *   given  the limit counts from now on; the id is made here */
static int phase_begin(zke_two_phase *t, const char *base, phase_head *given) {
  zke *z = t->r.z;
  phase_start b = {.t = t, .base = base};
  char id[PHASE_ID];
  int rc = ZKE_NOMEM;
  zke_recipe_guid(z, id);
  given->id = id;
  if (given->limit_ms) given->limit_ms += zke_wall(z);
  b.text = head_write(z, given, &b.len);
  if (b.text) t->head.text = zke_recipe_copy(z, b.text, (size_t)b.len);
  if (t->head.text) rc = head_parse(z, &t->head, b.len); /* as others will */
  if (rc == ZKE_OK) rc = phase_prepare(t);
  if (rc == ZKE_OK) rc = zke_recipe_do(z, phase_try_begin, &b, ZKE_FOREVER);
  t->coordinator = rc == ZKE_OK || b.unsure;
  if (rc == ZKE_OK) zke_recipe_look(&t->r);
  zke_free(b.text);
  return rc;
}

/* The object is made first, since its path has to be known; it goes again on
 * any failure. */
int zke_two_phase_begin(zke *z, const char *base, const char *name,
                        const void *payload, int len, const char *const *sites,
                        int count, const zke_two_phase_options *options,
                        zke_two_phase **t_out) {
  zke_two_phase *t;
  zke_two_phase_options o;
  int rc = phase_new(z, base, name, options, &o, &t);
  if (t_out) *t_out = NULL;
  if (rc != ZKE_OK) return rc;
  phase_head given = {.form = o.form,
                      .limit_ms = o.limit_ms,
                      .count = count,
                      .sites = sites,
                      .payload = payload,
                      .len = len};
  rc = phase_check_sites(sites, count);
  if (rc == ZKE_OK &&
      (!t_out || len < 0 || (!payload && len) || o.limit_ms < 0 ||
       o.limit_ms > INT64_MAX / 4 || (o.form & ~PHASE_FORMS)))
    rc = zke_recipe_fail(ZKE_BADARGUMENTS, "t_out, payload, limit or form");
  if (rc == ZKE_OK) rc = zke_recipe_enter(&t->r);
  if (rc == ZKE_OK) {
    rc = phase_begin(t, base, &given);
    if (rc == ZKE_OK) *t_out = t;
    rc = zke_recipe_leave(&t->r, rc);
  }
  if (rc != ZKE_OK) zke_recipe_free(&t->r);
  return rc;
}

/* What was the session's alone goes: a coordinator's znode, and a vote where
 * votes are ephemeral.  Any other vote stands. */
void zke_two_phase_free(zke_two_phase *t) { zke_recipe_free((zke_recipe *)t); }

/* ---- taking part ----
 *
 * A site opens the transaction by its name.  In the ephemeral form it makes its
 * vote at that moment, empty, and the znode tells the others that the site is
 * there.  In the other form the votes are there from the beginning, and nobody
 * knows which process speaks for a site until it votes.
 */

/* The ephemeral vote is there.  Is it this session's, or another live
 * session's?  ZKE_LOOK_AGAIN: it was a dead session's. */
static int phase_meet_vote(zke_two_phase *t) {
  zke *z = t->r.z;
  const char *path = t->votes[t->own].path;
  zke_stat stat;
  char what[256];
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return ZKE_LOOK_AGAIN;
  if (rc != ZKE_OK || stat.ephemeralOwner == zke_session_id(z)) return rc;
  snprintf(what, sizeof what, "the vote of %.60s in %.120s",
           t->head.sites[t->own], t->r.path);
  rc = zke_recipe_say_held(z, ZKE_HELD, what, path);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* The ephemeral vote says that the site is there, and "came-<site>" that it was
 * (T8).  The check of the id makes this fail where the transaction has been
 * removed and begun anew.  One step; others may change the votes meanwhile. */
static int phase_try_join(zke *z, void *arg) {
  zke_two_phase *t = arg;
  phase_steps s;
  steps_begin(&s, z, t->r.path, 3);
  steps_check(&s, "id-", t->head.id, -1);
  steps_set(&s, "came-", t->head.sites[t->own], "", -1);
  steps_create(&s, "vote-", t->head.sites[t->own], "", ZKE_EPHEMERAL);
  int rc = steps_do(&s);
  if (rc == ZKE_CONNECTIONLOSS) t->joined = true; /* perhaps */
  if (rc == ZKE_NODEEXISTS) rc = phase_meet_vote(t);
  if (rc == ZKE_OK) t->joined = true;
  return rc;
}

/* The mutex is held: see what is there; in the ephemeral form join. */
static int phase_open(zke_two_phase *t, const char *site) {
  zke *z = t->r.z;
  int rc = head_read(z, t->r.path, &t->head);
  if (rc == ZKE_OK) rc = phase_prepare(t);
  if (rc == ZKE_OK && site) t->own = head_find(&t->head, site);
  if (rc == ZKE_OK && site && t->own < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%s takes no part in %s", site,
                           t->r.path);
  if (rc == ZKE_OK) rc = phase_look_decision(t);
  if (rc == ZKE_NONODE || rc == ZKE_LOOK_AGAIN ||
      (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_LOST))
    return zke_recipe_fail(ZKE_NONODE, "there is no transaction %s", t->r.path);
  if (rc == ZKE_OK && site && t->state == ZKE_TWO_PHASE_UNDECIDED &&
      t->head.form & ZKE_TWO_PHASE_EPHEMERAL)
    rc = zke_recipe_do(z, phase_try_join, t, ZKE_FOREVER);
  return rc == ZKE_OK ? zke_recipe_look(&t->r) : rc;
}

/* Whoever has opened one before and died opens it again by the site's name, and
 * finds its vote. */
int zke_two_phase_open(zke *z, const char *base, const char *name,
                       const char *site, const zke_two_phase_options *options,
                       zke_two_phase **t_out) {
  zke_two_phase_options o;
  int rc = phase_new(z, base, name, options, &o, t_out);
  if (rc != ZKE_OK) return rc;
  zke_two_phase *t = *t_out;
  rc = zke_recipe_enter(&t->r);
  if (rc == ZKE_OK) {
    rc = phase_open(t, site);
    if (rc != ZKE_OK) t->listener = NULL;
    rc = zke_recipe_leave(&t->r, rc);
  }
  if (rc == ZKE_OK) return ZKE_OK;
  zke_recipe_free(&t->r);
  *t_out = NULL;
  return rc;
}

/* ---- voting ----
 *
 * A vote is written once, at version 0 (T2), in a step that fails once there is
 * a decision (T5).  A call looks, writes, and looks again where that failed.
 */

/* The site has voted before: the same, which is fine, or otherwise. */
static int phase_compare_vote(const zke_two_phase *t, int given, int vote) {
  if (given == vote) return ZKE_OK;
  return zke_recipe_fail(ZKE_MISUSE, "%s has voted %s in %s",
                         t->head.sites[t->own], phase_words[given], t->r.path);
}

/* Give the vote; "abort" in one step with the decision that it means.  The vote
 * must have version 0: it is given once (T2); and so must the id: there is no
 * decision (T5).  The caller's operations are done with it, unless they were
 * with an earlier vote of the site's, which went with its session (T6).
 *
 *   missing  the vote's znode has to be made, in the same step */
static int phase_give_vote(zke *z, const phase_act *a, bool missing) {
  const zke_two_phase *t = a->t;
  const char *site = t->head.sites[t->own];
  bool does = a->more && a->more->done == ZKE_TWO_PHASE_NOT_DONE;
  phase_more *more = does ? a->more : NULL;
  phase_steps s;
  steps_begin(&s, z, t->r.path, 6 + more_count(more));
  steps_check(&s, "id-", t->head.id, 0);
  if (missing) steps_create(&s, "vote-", site, "", ZKE_EPHEMERAL);
  steps_set(&s, "vote-", site, phase_words[a->word], 0);
  if (a->word == ZKE_TWO_PHASE_ABORT) {
    steps_set(&s, "id-", t->head.id, "", 0);
    steps_create(&s, "decision", "", a->text, ZKE_PERSISTENT);
  }
  if (more) steps_create(&s, "work-", site, more->id, ZKE_PERSISTENT);
  return steps_do_with(&s, more);
}

/* Give the vote in an undecided transaction in which the site has none.
 *
 *   there  what reading the vote's znode has returned.  Only an ephemeral one
 *          may be missing: then it is made; one of a former session is buried
 *          first
 *
 * Where the outcome is not known the object counts as joined, so that it takes
 * the znode back when it goes. */
static int phase_vote_now(zke *z, const phase_act *a, int there) {
  zke_two_phase *t = a->t;
  bool ephemeral = t->head.form & ZKE_TWO_PHASE_EPHEMERAL;
  int rc = there;
  if (!ephemeral) return rc == ZKE_OK ? phase_give_vote(z, a, false) : rc;
  if (rc == ZKE_OK) rc = phase_meet_vote(t);
  if (rc == ZKE_OK || rc == ZKE_NONODE)
    rc = phase_give_vote(z, a, rc == ZKE_NONODE);
  if (rc == ZKE_OK || rc == ZKE_CONNECTIONLOSS) t->joined = true;
  return rc;
}

/* The own vote's znode is missing, which is made with the transaction and goes
 * with it.  Where the transaction is still there, and is undecided, somebody
 * has deleted the vote alone. */
static int phase_vote_deleted(zke_two_phase *t) {
  int rc = phase_look_decision(t);
  if (rc != ZKE_OK) return rc;
  if (t->state != ZKE_TWO_PHASE_UNDECIDED) return ZKE_LOOK_AGAIN;
  return zke_recipe_fail(ZKE_NONODE, "the vote of %s on %s was deleted",
                         t->head.sites[t->own], t->r.path);
}

/* Read the own vote, and then whether operations were done with it: they are
 * done in the step of a vote, so a vote that was seen has its mark.  A
 * transaction that has gone, and whose decision this object has seen, needs no
 * vote.
 *
 *   there  out: what reading the vote's znode has returned */
static int phase_read_own(const phase_act *a, int *given, int *there) {
  *there = phase_read_vote(a->t, a->t->own, false, given);
  if (!a->more) return ZKE_OK;
  int rc = phase_read_mark(a->t, "work-", a->more);
  if (rc == ZKE_LOOK_AGAIN && a->t->state != ZKE_TWO_PHASE_UNDECIDED) {
    a->more->done = ZKE_TWO_PHASE_GONE;
    *given = ZKE_TWO_PHASE_UNDECIDED;
    return ZKE_OK;
  }
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* A vote was refused.  ZKE_LOOK_AGAIN: others have changed what it rests on.
 * ZKE_RUNTIMEINCONSISTENCY: something else has written what T2 and T5 rely on.
 * At any moment an undecided transaction has its id at version 0, a vote at 0,
 * or at 1 with a word, and no mark of work without one. */
static int phase_see_meddling(const zke_two_phase *t) {
  zke_op_result got[4] = {{0}};
  phase_steps s;
  steps_begin(&s, t->r.z, t->r.path, 4);
  steps_get(&s, "id-", t->head.id);
  steps_get(&s, "decision", "");
  steps_get(&s, "vote-", t->head.sites[t->own]);
  steps_get(&s, "work-", t->head.sites[t->own]);
  int rc = steps_read(&s, got);
  bool undecided = got[0].rc == ZKE_OK && got[1].rc == ZKE_NONODE;
  bool voted = got[2].stat.version == 1 && phase_word(got[2].data);
  bool meddled = got[0].stat.version || (got[2].stat.version && !voted) ||
                 (got[3].rc == ZKE_OK && got[3].len <= 0);
  zke_results_clear(got, 4);
  if (rc != ZKE_OK) return rc;
  return undecided && meddled ? phase_meddled(t) : ZKE_LOOK_AGAIN;
}

/* A vote is given once; the same one again is fine, another one is refused.  If
 * the process dies before the step the site has not voted; after it the vote
 * stands, unless votes are ephemeral and the transaction is undecided. */
static int phase_try_vote(zke *z, void *arg) {
  const phase_act *a = arg;
  zke_two_phase *t = a->t;
  int given, there;
  int rc = phase_look_decision(t);
  if (rc != ZKE_OK) return rc;
  if (t->state == ZKE_TWO_PHASE_LOST) return phase_gone(t);
  rc = phase_read_own(a, &given, &there);
  if (rc != ZKE_OK) return rc;
  if (given) return phase_compare_vote(t, given, a->word);
  if (t->state != ZKE_TWO_PHASE_UNDECIDED) return ZKE_OK;
  if (there == ZKE_NONODE && !(t->head.form & ZKE_TWO_PHASE_EPHEMERAL))
    return phase_vote_deleted(t);
  rc = zke_recipe_faster(phase_vote_now(z, a, there));
  return rc == ZKE_LOOK_AGAIN ? phase_see_meddling(t) : rc;
}

/* Take over what a caller wants to be done along; the arguments are checked
 * before anything is touched. */
static int phase_take_more(phase_more *more) {
  if (more->count < 0 || more->count > PHASE_OPS || (more->count && !more->ops))
    return zke_recipe_fail(
        ZKE_BADARGUMENTS, "%d operations%s", more->count,
        more->count > 0 && !more->ops ? ", but ops is NULL" : "");
  for (int i = 0; more->results && i < more->count; i++)
    more->results[i] = (zke_op_result){0};
  return ZKE_OK;
}

/* Leave a call that took operations along.  A code that one of these was
 * refused with is not shown to the object, for which it may mean that the
 * session has ended (T7). */
static int phase_leave(zke_two_phase *t, const phase_more *more, int rc,
                       int *done_out) {
  if (rc == ZKE_OK && done_out) *done_out = more->done;
  rc = zke_recipe_leave(&t->r, rc);
  return more->refused ? more->code : rc;
}

/* The mutex is held: vote.  A vote for abort decides at once, in the same step.
 * After the last vote one look suffices to decide. */
static int phase_vote_as(zke_two_phase *t, int vote, phase_more *more) {
  phase_act a = {.t = t, .word = vote, .more = more->count ? more : NULL};
  char why[160];
  if (t->own < 0)
    return zke_recipe_fail(ZKE_MISUSE, "an onlooker has no vote in %s",
                           t->r.path);
  if (vote != ZKE_TWO_PHASE_COMMIT && vote != ZKE_TWO_PHASE_ABORT)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d is not a vote", vote);
  snprintf(why, sizeof why, "%.100s has voted abort", t->head.sites[t->own]);
  if (a.more) zke_recipe_guid(t->r.z, more->id);
  a.text = phase_decision_text(t->r.z, ZKE_TWO_PHASE_ABORT, why);
  if (!a.text) return ZKE_NOMEM;
  int rc = zke_recipe_do(t->r.z, phase_try_vote, &a, ZKE_FOREVER);
  zke_free(a.text);
  if (rc == ZKE_OK) zke_recipe_look(&t->r); /* it may have been the last one */
  return rc;
}

/* The vote and the caller's changes are one step. */
int zke_two_phase_vote_with(zke_two_phase *t, int vote, const zke_op *ops,
                            int count, zke_op_result *results, int *done_out) {
  phase_more more = {.ops = ops, .count = count, .results = results};
  int rc = phase_take_more(&more);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  return phase_leave(t, &more, phase_vote_as(t, vote, &more), done_out);
}

/* A vote without changes of the caller's. */
int zke_two_phase_vote(zke_two_phase *t, int vote) {
  return zke_two_phase_vote_with(t, vote, NULL, 0, NULL, NULL);
}

/* Anybody may abort what is undecided.  Of two that decide at the same time one
 * makes the znode, and the other reads it. */
int zke_two_phase_abort(zke_two_phase *t, const char *why) {
  int rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  do {
    rc = phase_look_decision(t);
    if (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_UNDECIDED)
      rc = phase_decide(t, ZKE_TWO_PHASE_ABORT, why ? why : "");
  } while (zke_recipe_again(t->r.z, &rc));
  if (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_LOST) rc = phase_gone(t);
  if (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_COMMIT)
    rc = zke_recipe_fail(ZKE_MISUSE, "%s is committed", t->r.path);
  return zke_recipe_leave(&t->r, rc);
}

/* ---- waiting ---- */

/* For zke_recipe_await(): is it decided? The session's end is told by the
 * await. */
static int phase_is_done(zke_recipe *r) {
  const zke_two_phase *t = (const zke_two_phase *)r;
  if (t->state == ZKE_TWO_PHASE_UNDECIDED || r->ended) return ZKE_NOT_YET;
  return t->state == ZKE_TWO_PHASE_LOST ? phase_gone(t) : ZKE_OK;
}

/* When to look again, of zke_now(): at the time limit, if that comes before the
 * deadline.  The limit is a wall time, and the clock may be set meanwhile. */
static int64_t phase_until(const zke_two_phase *t, int64_t deadline_ms) {
  if (!t->head.limit_ms) return deadline_ms;
  int64_t left = t->head.limit_ms - zke_wall(t->r.z);
  int64_t until = zke_now(t->r.z) + (left > 0 ? left : 0);
  return until < deadline_ms ? until : deadline_ms;
}

/* Names the votes that are missing; without a view the sentence stays what it
 * was. */
static int phase_say_missing(const zke_two_phase *t, int rc) {
  char names[200];
  if (phase_name_missing(t, names, sizeof names) == ZKE_OK)
    zke_fail(rc, "the transaction %s waits for %s%s", t->r.path,
             *names ? "the vote of " : "its coordinator", names);
  return rc;
}

/* Wait for the decision, and look again at the time limit: a participant that
 * waits may be the one that has to abort then. */
static int phase_wait(zke_two_phase *t, int64_t deadline_ms) {
  int rc;
  int64_t until;
  do {
    t->r.changed = true;
    until = phase_until(t, deadline_ms);
    rc = zke_recipe_await(&t->r, phase_is_done, until);
  } while (rc == ZKE_OPERATIONTIMEOUT && until < deadline_ms);
  return rc == ZKE_OPERATIONTIMEOUT ? phase_say_missing(t, rc) : rc;
}

/* Only one call may wait with an object. */
int zke_two_phase_wait(zke_two_phase *t, int64_t deadline_ms,
                       int *decision_out) {
  int rc = zke_recipe_enter_by((zke_recipe *)t, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (t->waiting) {
    rc = zke_recipe_fail(ZKE_MISUSE, "another thread waits for %s", t->r.path);
    return zke_recipe_leave(&t->r, rc);
  }
  t->waiting = true;
  rc = phase_wait(t, deadline_ms);
  t->waiting = false;
  if (rc == ZKE_OK && decision_out) *decision_out = t->state;
  return zke_recipe_leave(&t->r, rc);
}

/* The mutex is held: acknowledge.  A coordinator's own part is not kept when it
 * dies, so nothing can be promised of operations of its. */
static int phase_acknowledge_as(zke_two_phase *t, phase_more *more) {
  if (t->own < 0 && !t->coordinator)
    return zke_recipe_fail(ZKE_MISUSE, "an onlooker does not acknowledge");
  if (t->own < 0 && more->count)
    return zke_recipe_fail(ZKE_MISUSE, "only a site takes operations along");
  if (!more->count) return phase_acknowledge(t, NULL);
  zke_recipe_guid(t->r.z, more->id);
  return phase_acknowledge(t, more);
}

/* The acknowledgement and the caller's changes are one step: what was decided
 * is applied as the site says that it is. */
int zke_two_phase_ack_with(zke_two_phase *t, const zke_op *ops, int count,
                           zke_op_result *results, int *done_out) {
  phase_more more = {.ops = ops, .count = count, .results = results};
  int rc = phase_take_more(&more);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  return phase_leave(t, &more, phase_acknowledge_as(t, &more), done_out);
}

/* The site's work is done: nobody needs the decision for it any more. */
int zke_two_phase_ack(zke_two_phase *t) {
  return zke_two_phase_ack_with(t, NULL, 0, NULL, NULL);
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_two_phase_cancel(zke_two_phase *t) {
  return zke_recipe_cancel((zke_recipe *)t);
}

/* For a program that has no dispatch: looks as an event would make it look. */
int zke_two_phase_step(zke_two_phase *t) {
  return zke_recipe_step((zke_recipe *)t);
}

/* From memory: as of the last look or event. */
int zke_two_phase_state(zke_two_phase *t) {
  if (zke_recipe_enter_memory((zke_recipe *)t) != ZKE_OK)
    return ZKE_TWO_PHASE_LOST;
  int state = t->state;
  zke_recipe_leave(&t->r, ZKE_OK);
  return state;
}

/* The decision's czxid, 0 before it. */
int64_t zke_two_phase_token(zke_two_phase *t) {
  if (zke_recipe_enter_memory((zke_recipe *)t) != ZKE_OK) return 0;
  int64_t token = t->token;
  zke_recipe_leave(&t->r, ZKE_OK);
  return token;
}

/* What the coordinator gave to all; it does not change. */
int zke_two_phase_payload(zke_two_phase *t, char **data_out, int *len_out) {
  int rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  if (data_out) {
    char *copy = zke_recipe_copy(t->r.z, t->head.payload, (size_t)t->head.len);
    if (copy)
      *data_out = copy;
    else
      rc = ZKE_NOMEM;
  }
  if (rc == ZKE_OK && len_out) *len_out = t->head.len;
  return zke_recipe_leave(&t->r, rc);
}

/* ---- looking on ---- */

/* Take a line off a decision's data: "<word>\n<why>\n<by>\n". */
static char *status_line(char **at) {
  char *line = *at, *end = strchr(line, '\n');
  *at = end ? end + 1 : line + strlen(line);
  if (end) *end = '\0';
  return line;
}

/* Fill in what is not a text.  The view's second result is the decision's
 * znode. */
static void status_fill(zke_two_phase_status *st, const phase_view *v) {
  const zke_stat *decided = &v->got[1].stat;
  st->form = v->head.form;
  st->decision = view_decision(v);
  st->begun_ms = v->head.begun_ms;
  st->limit_ms = v->head.limit_ms;
  st->token = st->decision ? decided->czxid : 0;
  st->decided_ms = st->decision ? decided->ctime : 0;
  st->coordinator = view_has(v, "coordinator", "");
  st->len = v->head.len;
  st->count = v->head.count;
}

/* Votes follow the decision, in the order of the sites. */
static void status_fill_site(zke_two_phase_site *site, const phase_view *v,
                             int i) {
  site->vote = view_vote(v, i);
  site->present = v->got[2 + i].rc == ZKE_OK;
  site->acknowledged = view_has(v, "ack-", v->head.sites[i]);
  site->voted_ms = site->vote ? v->got[2 + i].stat.mtime : 0;
}

/* All of it in one block. */
static zke_two_phase_status *status_make(zke *z, const phase_view *v) {
  const char *decision = view_decision(v) ? v->got[1].data : "";
  size_t sites = (size_t)v->head.count * sizeof(zke_two_phase_site);
  size_t decided = strlen(decision) + 1;
  size_t size =
      sizeof(zke_two_phase_status) + sites + (size_t)v->head.len + 1 + decided;
  for (int i = 0; i < v->head.count; i++) size += strlen(v->head.sites[i]) + 1;
  zke_two_phase_status *st = zke_alloc(z, size);
  if (!st) return NULL;
  zke_two_phase_site *site = (zke_two_phase_site *)(void *)(st + 1);
  char *text = (char *)(site + v->head.count);
  status_fill(st, v);
  st->sites = site;
  for (int i = 0; i < v->head.count; i++) {
    status_fill_site(&site[i], v, i);
    site[i].name = text;
    text = stpcpy(text, v->head.sites[i]) + 1;
  }
  st->payload = memcpy(text, v->head.payload, (size_t)v->head.len);
  text = memcpy(text + v->head.len + 1, decision, decided);
  status_line(&text);
  st->why = status_line(&text);
  st->by = status_line(&text);
  return st;
}

/* One snapshot, for whoever looks from outside. */
int zke_two_phase_get(zke *z, const char *base, const char *name,
                      zke_two_phase_status **status_out) {
  phase_view v;
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  if (!base || !name || !status_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "base, name or status_out is NULL");
  char *path = phase_tx_path(z, base, name);
  rc = path ? view_read(z, path, &v) : ZKE_NOMEM;
  zke_free(path);
  if (rc != ZKE_OK) return rc;
  zke_two_phase_status *st = status_make(z, &v);
  view_free(&v);
  if (!st) return ZKE_NOMEM;
  *status_out = st;
  return ZKE_OK;
}

/* A transaction that may wait for a site. */
typedef struct pending_look {
  char *tx;
  const char *site; /* NULL: whichever */
  bool pending;     /* out */
} pending_look;

/* Does it?  What is over is removed, what is no transaction ignored. */
static int pending_try(zke *z, void *arg) {
  pending_look *p = arg;
  phase_view v;
  bool over;
  int rc = view_read(z, p->tx, &v);
  p->pending = false;
  if (rc == ZKE_NONODE || rc == ZKE_OTHERKIND || rc == ZKE_NOAUTH)
    return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  rc = view_is_over(z, p->tx, &v, -1, &over);
  if (over) {
    rc = view_remove(z, p->tx, &v, NULL);
    if (rc == ZKE_NONODE || rc == ZKE_BADVERSION || rc == ZKE_NOTEMPTY)
      rc = ZKE_OK;
  } else if (rc == ZKE_OK) {
    p->pending = !p->site || (head_find(&v.head, p->site) >= 0 &&
                              !view_has(&v, "ack-", p->site));
  }
  view_free(&v);
  return rc;
}

/* Move the names that are pending to the front, and leave out the others.  The
 * list is one block, so names are exchanged, not freed.  All together have the
 * time that any call has. */
static int pending_select(zke *z, const char *base, const char *site,
                          zke_strings *names) {
  pending_look p = {.site = site};
  int64_t deadline = zke_recipe_patience(z);
  char **name = names->data;
  int rc = ZKE_OK, kept = 0;
  for (int i = 0; i < names->count && rc == ZKE_OK; i++) {
    p.tx = phase_tx_path(z, base, name[i]);
    rc = p.tx ? zke_recipe_do(z, pending_try, &p, deadline) : ZKE_NOMEM;
    zke_free(p.tx);
    if (rc != ZKE_OK || !p.pending) continue;
    char *other = name[kept];
    name[kept++] = name[i];
    name[i] = other;
  }
  names->count = kept;
  return rc;
}

/* For qsort(): names by their bytes. */
static int pending_order(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What a site has to see to when it starts: transactions that name it and that
 * it has not acknowledged. */
int zke_two_phase_pending(zke *z, const char *base, const char *site,
                          zke_watch_fn fn, void *context,
                          zke_strings **names_out) {
  zke_strings *names = NULL;
  if (!names_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "names_out is NULL");
  int rc = zke_children(z, base, fn, context, &names, NULL);
  if (rc == ZKE_NONODE) {
    names = zke_alloc(z, sizeof *names);
    rc = names ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc != ZKE_OK) return rc;
  rc = pending_select(z, base, site, names);
  if (rc != ZKE_OK) {
    zke_free(names);
    return rc;
  }
  if (names->count > 1)
    qsort(names->data, (size_t)names->count, sizeof(char *), pending_order);
  *names_out = names;
  return ZKE_OK;
}
