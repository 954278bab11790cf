/* txn.c - the commands "txn …": recipes/two_phase.h for scripts
 *
 * Each command is one step of one party.  Between steps the transaction is in
 * the file, so begin, vote and wait can be different processes:
 *
 *     begin --> vote by each site --> decision --> ack by each site --> gone
 *          \--> abort ----------------/
 *
 * Two things belong to a session and end with it: the coordinator's part (with
 * --coordinator only it decides by the votes while it exists), and a vote in
 * the ephemeral form.  If commands share a session, it keeps these as a "part"
 * in its list.  A single command waits for the decision instead, or leaves it
 * to the sites.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/two_phase.h"
#include "work.h"

CANCELLER(cancel_txn, zke_two_phase, zke_two_phase_cancel)

static const char *const decisions[] = {[ZKE_TWO_PHASE_UNDECIDED] = "undecided",
                                        [ZKE_TWO_PHASE_COMMIT] = "commit",
                                        [ZKE_TWO_PHASE_ABORT] = "abort"};

/* A failed call of the recipe.  ZKE_MISUSE is a vote or an abort that came too
 * late: a negative answer. */
static int fail_txn(call *c, const patience *p, int rc) {
  if (rc == ZKE_MISUSE)
    return fail_with(c, STATUS_NO, "DECIDED", "%s", zke_errmsg());
  return fail_wait(c, p, rc);
}

/* ------------------------------------------------------------------------
 * Taking part
 *
 * A part is what a session holds of a transaction, as the file's head says.  It
 * is listed under the transaction's path, or below that under the site's name,
 * and each call that uses it has a reference.
 * --------------------------------------------------------------------- */

/* A session's part: a coordinator, or a site with an ephemeral vote. */
typedef struct part {
  shared s;
  zke_two_phase *t;
} part;

/* Freeing the recipe's object gives up the session's part. */
static void part_free(void *object) {
  part *p = object;
  zke_two_phase_free(p->t);
  free(p);
}

/* 0 if it was lost; an undecided one has no token yet. */
static int64_t part_on_token(void *object) {
  part *p = object;
  int64_t token = zke_two_phase_token(p->t);
  if (zke_two_phase_state(p->t) == ZKE_TWO_PHASE_LOST) return 0;
  return token ? token : 1;
}

static const held_class part_class = {"txn", NULL, shared_drop, part_on_token};

/* Makes a part of t, with one reference; takes over t even on failure. */
static part *part_new(call *c, zke_two_phase *t) {
  part *p = malloc(sizeof *p);
  if (!p) {
    no_memory(c);
    zke_two_phase_free(t);
    return NULL;
  }
  shared_init(&p->s, part_free);
  p->t = t;
  return p;
}

/* The path under which the session holds a part: the transaction's, or for a
 * site the site's path below that.  For free(); NULL without memory. */
static char *part_path(const char *path, const char *site) {
  char *whole;
  if (!site) return strdup(path);
  return asprintf(&whole, "%s/%s", path, site) < 0 ? NULL : whole;
}

/* Gives the session a reference; from now on it holds the part. */
static int part_hold(call *c, part *p, const char *path, const char *site) {
  char *whole = part_path(path, site);
  if (!whole) return no_memory(c);
  atomic_fetch_add(&p->s.refs, 1);
  int status = held_add(c, &part_class, whole, p);
  if (status) shared_drop(p);
  free(whole);
  return status;
}

/* This session's part of a transaction for that site, with a reference for the
 * caller; NULL: none. */
static part *part_held(call *c, const char *path, const char *site) {
  char *whole = part_path(path, site);
  if (!whole) return NULL;
  part *p = shared_held(c, &part_class, whole);
  free(whole);
  return p;
}

/* The session's part, else a new one for this call; NULL after fail_with().  A
 * transaction that is gone has a separate code: a caller that waits for the
 * decision must not take it for "abort".
 *
 *   site  NULL: the coordinator, or an observer */
static part *part_open(call *c, const place *at, const char *site) {
  zke_two_phase *t;
  part *p = part_held(c, at->path, site);
  if (p) return p;
  int rc = zke_two_phase_open(c->z, at->base, at->name, site, NULL, &t);
  if (rc == ZKE_OK) return part_new(c, t);
  if (rc == ZKE_NONODE)
    fail_with(c, STATUS_LOST, "GONE", "%s, or it has been acknowledged by all",
              zke_errmsg());
  else
    fail_rc(c, rc);
  return NULL;
}

/* ------------------------------------------------------------------------
 * The decision
 *
 * The decision, and for an abort the reason.  A transaction goes when all have
 * acknowledged it, so it may be decided and gone: the recipe distinguishes
 * this, and so do these functions.
 * --------------------------------------------------------------------- */

/* A row with the decision; with the reason and its site if the transaction
 * still exists. */
static json_t *decision_row(call *c, const place *at, int decision) {
  zke_two_phase_status *s;
  json_t *row = json_pack("{s:s}", "decision", decisions[decision]);
  int rc = zke_two_phase_get(c->z, at->base, at->name, &s);
  if (!row || rc != ZKE_OK) return row;
  json_object_set_new(row, "why", value_text(s->why));
  json_object_set_new(row, "by", value_text(s->by));
  json_object_set_new(row, "token", json_integer(s->token));
  zke_free(s);
  return row;
}

/* "commit", or "abort: why" */
static void decision_human(call *c, json_t *row, FILE *out) {
  const json_t *why = json_object_get(row, "why");
  (void)c;
  output_text(NULL, json_object_get(row, "decision"), out);
  if (why && json_string_length(why) > 0) fputs(": ", out);
  if (why) output_visible(NULL, why, out);
  fputc('\n', out);
}

/* Waits for the decision and prints it: 0 for "commit", 1 for "abort". */
static int part_wait(call *c, part *p, const place *at, const patience *how) {
  int decision;
  cancel_by(c, cancel_txn, p->t);
  int rc = zke_two_phase_wait(p->t, how->deadline, &decision);
  cancel_by(c, NULL, NULL);
  if (rc != ZKE_OK) return fail_txn(c, how, rc);
  int status = emit_row(c, decision_row(c, at, decision));
  if (status) return status;
  return decision == ZKE_TWO_PHASE_COMMIT ? STATUS_OK : STATUS_NO;
}

/* Gives up the session's part without a site, if the transaction is decided: a
 * coordinator acknowledges in this way. */
static void part_end(call *c, const place *at) {
  part *p = part_held(c, at->path, NULL);
  if (p && zke_two_phase_state(p->t) != ZKE_TWO_PHASE_UNDECIDED)
    held_release(c, part_class.kind, at->path, 0, p);
  shared_drop(p);
}

/* ------------------------------------------------------------------------
 * begin
 *
 * Creates the transaction.  The caller chooses who waits for the votes: this
 * command, the session, or only the sites.
 * --------------------------------------------------------------------- */

/* The transaction's description, from --data or as in other commands. */
static int begin_payload(call *c, char **data_out, int *len_out) {
  const word *text = option_word(c, 'd');
  if (text && (option_given(c, '6') || option_given(c, 'i')))
    return fail_usage(c,
                      "only one of --data, --base64 and --input can be given");
  if (!text) return arg_data(c, c->count, data_out, len_out, NULL);
  if (text->len > INT32_MAX || (*data_out = malloc(text->len + 1)) == NULL)
    return no_memory(c);
  memcpy(*data_out, text->text, text->len + 1);
  *len_out = (int)text->len;
  return 0;
}

/* The form and the deadline of a new transaction. */
static int begin_options(call *c, zke_two_phase_options *o) {
  *o = (zke_two_phase_options){.size = sizeof *o};
  if (option_given(c, 'C')) o->form |= ZKE_TWO_PHASE_COORDINATOR;
  if (option_given(c, 'e')) o->form |= ZKE_TWO_PHASE_EPHEMERAL;
  return option_duration(c, 'l', 0, &o->limit_ms);
}

/* After the beginning: waits here (--wait), or the session keeps the
 * coordinator's part for txn wait, or the sites continue by themselves. */
static int begin_end(call *c, part *p, const place *at, const patience *how) {
  if (option_given(c, 'w')) return part_wait(c, p, at, how);
  return c->sh->persists ? part_hold(c, p, at->path, NULL) : 0;
}

/* Begins it, and waits for the decision if requested. */
static int begin_with(call *c, const place *at, const char *data, int len,
                      const patience *how) {
  zke_two_phase_options o;
  zke_two_phase *t;
  int n = c->count - 1, status = begin_options(c, &o);
  if (status) return status;
  const char **sites = malloc((size_t)n * sizeof *sites);
  if (!sites) return no_memory(c);
  for (int i = 0; i < n; i++) sites[i] = c->args[i + 1].text;
  int rc = zke_two_phase_begin(c->z, at->base, at->name, data, len, sites, n,
                               &o, &t);
  free(sites);
  if (rc != ZKE_OK) return fail_wait(c, how, rc);
  part *p = part_new(c, t);
  status = p ? begin_end(c, p, at, how) : c->status;
  shared_drop(p);
  return status;
}

/* txn begin */
static int begin_run(call *c) {
  char *data = NULL;
  int len = -1;
  place at = {NULL, NULL, NULL};
  patience how;
  int status = patience_of(c, &how);
  if (!status) status = begin_payload(c, &data, &len);
  if (!status) status = place_of(c, 0, "txns", &at);
  if (!status) {
    status = begin_with(c, &at, data, len, &how);
    free(at.base);
  }
  free(data);
  return status;
}

/* ------------------------------------------------------------------------
 * vote, wait, abort, ack
 *
 * One step each, of a site or an observer.  Each opens the session's part, or a
 * new one that lasts as long as the call.
 * --------------------------------------------------------------------- */

/* A command's action on its transaction; site: NULL without one. */
typedef int part_fn(call *c, part *p, const place *at, const char *site,
                    const patience *how);

/* The site, if there is one, is argument 1. */
static int with_part(call *c, bool site, part_fn *fn) {
  place at;
  patience how;
  const char *name = site && c->count > 1 ? c->args[1].text : NULL;
  int status = patience_of(c, &how);
  if (!status) status = place_of(c, 0, "txns", &at);
  if (status) return status;
  part *p = part_open(c, &at, name);
  status = p ? fn(c, p, &at, name, &how) : c->status;
  shared_drop(p);
  free(at.base);
  return status;
}

/* Does it have the ephemeral form, in which a vote ends with its session? */
static bool is_ephemeral(call *c, const place *at) {
  zke_two_phase_status *s;
  if (zke_two_phase_get(c->z, at->base, at->name, &s) != ZKE_OK) return false;
  bool ephemeral = s->form & ZKE_TWO_PHASE_EPHEMERAL;
  zke_free(s);
  return ephemeral;
}

/* Votes.  In the ephemeral form the site must stay until the decision: the
 * command waits, or the session keeps the part. */
static int vote_with(call *c, part *p, const place *at, const char *site,
                     const patience *how) {
  bool yes = word_is(&c->args[2], "yes"), keep = is_ephemeral(c, at);
  int rc = zke_two_phase_vote(p->t,
                              yes ? ZKE_TWO_PHASE_COMMIT : ZKE_TWO_PHASE_ABORT);
  if (rc != ZKE_OK) return fail_txn(c, how, rc);
  if (option_given(c, 'w') || (keep && yes && !c->sh->persists))
    return part_wait(c, p, at, how);
  if (!keep || !c->sh->persists) return 0;
  part *before = part_held(c, at->path, site);
  int status = before ? 0 : part_hold(c, p, at->path, site);
  shared_drop(before);
  return status;
}

/* The words are checked before the transaction is opened. */
static int vote_run(call *c) {
  if (!word_is(&c->args[2], "yes") && !word_is(&c->args[2], "no"))
    return fail_usage(c, "the vote is yes or no, not \"%s\"", c->args[2].text);
  return with_part(c, true, vote_with);
}

/* Waits for the decision.  Then the session that began the transaction is done
 * with it. */
static int wait_with(call *c, part *p, const place *at, const char *site,
                     const patience *how) {
  verbose_say(c, "waiting for the decision of %s", at->path);
  int status = part_wait(c, p, at, how);
  if (!site) part_end(c, at);
  return status;
}

static int wait_run(call *c) { return with_part(c, true, wait_with); }

/* Aborts an undecided transaction. */
static int abort_with(call *c, part *p, const place *at, const char *site,
                      const patience *how) {
  (void)site;
  const char *why = c->count > 1 ? c->args[1].text : NULL;
  int rc = zke_two_phase_abort(p->t, why);
  if (rc != ZKE_OK) return fail_txn(c, how, rc);
  part_end(c, at);
  return 0;
}

static int abort_run(call *c) { return with_part(c, false, abort_with); }

/* Reports that the site has carried out the decision. */
static int ack_with(call *c, part *p, const place *at, const char *site,
                    const patience *how) {
  (void)at, (void)site;
  int rc = zke_two_phase_ack(p->t);
  if (rc == ZKE_MISUSE) {
    bool open = zke_two_phase_state(p->t) == ZKE_TWO_PHASE_UNDECIDED;
    return fail_with(c, STATUS_NO, open ? "UNDECIDED" : "MISUSE", "%s",
                     zke_errmsg());
  }
  return rc == ZKE_OK ? 0 : fail_txn(c, how, rc);
}

static int ack_run(call *c) { return with_part(c, true, ack_with); }

/* ------------------------------------------------------------------------
 * Looking
 *
 * status: all that the file has about one transaction.
 * --------------------------------------------------------------------- */

/* The names of the sites for which is() returns true. */
static json_t *sites_that(const zke_two_phase_status *s,
                          bool (*is)(const zke_two_phase_site *site)) {
  json_t *names = json_array();
  for (int i = 0; i < s->count; i++)
    if (is(&s->sites[i]))
      json_array_append_new(names, value_text(s->sites[i].name));
  return names;
}

static bool has_to_vote(const zke_two_phase_site *s) {
  return s->vote == ZKE_TWO_PHASE_UNDECIDED;
}
static bool votes_yes(const zke_two_phase_site *s) {
  return s->vote == ZKE_TWO_PHASE_COMMIT;
}
static bool votes_no(const zke_two_phase_site *s) {
  return s->vote == ZKE_TWO_PHASE_ABORT;
}
static bool acknowledged(const zke_two_phase_site *s) {
  return s->acknowledged;
}

/* The two bits of the form in words. */
static const char *form_of(const zke_two_phase_status *s) {
  static const char *const forms[] = {"sites", "coordinator", "sites ephemeral",
                                      "coordinator ephemeral"};
  return forms[s->form & 3];
}

/* All that is known about a transaction. */
static json_t *status_row(const char *name, const zke_two_phase_status *s) {
  return json_pack(
      "{s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:s,s:o}", "txn",
      value_text(name), "decision", decisions[s->decision], "why",
      value_text(s->why), "by", value_text(s->by), "waiting_for",
      sites_that(s, has_to_vote), "yes", sites_that(s, votes_yes), "no",
      sites_that(s, votes_no), "acknowledged", sites_that(s, acknowledged),
      "begun_at", value_time(s->begun_ms), "deadline_at",
      value_time(s->limit_ms), "decided_at", value_time(s->decided_ms), "data",
      value_data(s->payload, s->len), "coordinator", s->coordinator, "form",
      form_of(s), "token", value_time(s->token));
}

/* txn status */
static int status_run(call *c) {
  place at;
  zke_two_phase_status *s;
  int status = place_of(c, 0, "txns", &at);
  if (status) return status;
  int rc = zke_two_phase_get(c->z, at.base, at.name, &s);
  if (rc == ZKE_OK) {
    status = emit_row(c, value_for_people(c, status_row(at.name, s)));
    zke_free(s);
  } else {
    status = fail_rc(c, rc);
  }
  free(at.base);
  return status;
}

/* ------------------------------------------------------------------------
 * pending
 *
 * For a site that starts: which transactions exist, and has it voted?  --wait
 * watches the directory, so that the site need not poll.
 * --------------------------------------------------------------------- */

/* A site's vote; "" if no site was named. */
static const char *vote_of(const zke_two_phase_status *s, const char *site) {
  for (int i = 0; site && i < s->count; i++)
    if (strcmp(s->sites[i].name, site) == 0) {
      if (votes_yes(&s->sites[i])) return "yes";
      return votes_no(&s->sites[i]) ? "no" : "none";
    }
  return "";
}

/* A row for a pending transaction; none if it has gone meanwhile. */
static int pending_one(call *c, const char *name, const char *site) {
  zke_two_phase_status *s;
  int rc = zke_two_phase_get(c->z, "/txns", name, &s);
  if (rc == ZKE_NONODE) return 0;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  json_t *row = json_pack("{s:o,s:s}", "txn", value_text(name), "decision",
                          decisions[s->decision]);
  if (row && site)
    json_object_set_new(row, "vote", json_string(vote_of(s, site)));
  if (row) json_object_set_new(row, "data", value_data(s->payload, s->len));
  zke_free(s);
  return emit_row(c, row);
}

/* The watcher of the directory: a transaction has come or gone. */
static void pending_changed(zke *z, int type, int state, const char *path,
                            void *context) {
  (void)z, (void)type, (void)state, (void)path;
  atomic_store((atomic_bool *)context, true);
}

static bool pending_look(void *context) {
  return atomic_load((atomic_bool *)context);
}

/* Lists pending transactions; with --wait, waits until there is one. */
static int pending_list(call *c, const char *site, const patience *how,
                        atomic_bool *changed, zke_strings **names_out) {
  for (;;) {
    atomic_store(changed, false);
    int rc = zke_two_phase_pending(
        c->z, "/txns", site, option_given(c, 'w') ? pending_changed : NULL,
        changed, names_out);
    if (rc != ZKE_OK) return fail_rc(c, rc);
    if ((*names_out)->count || !option_given(c, 'w')) return 0;
    zke_free(*names_out);
    *names_out = NULL;
    rc = wait_session(c, pending_look, changed, how->deadline);
    if (rc == ZKE_OPERATIONTIMEOUT)
      zke_fail(rc, "no transaction is pending%s%s", site ? " for " : "",
               site ? site : "");
    if (rc != ZKE_OK) return fail_wait(c, how, rc);
  }
}

/* txn pending.  It needs a session only to wait.  Then it also creates the
 * directory, since a missing one could not be watched. */
static int pending_run(call *c) {
  patience how;
  atomic_bool changed = false;
  zke_strings *names = NULL;
  const char *site = c->count ? c->args[0].text : NULL;
  int status =
      session_open(c, option_given(c, 'w') ? NEEDS_SESSION : NEEDS_FILE);
  if (!status) status = patience_of(c, &how);
  if (!status && option_given(c, 'w')) {
    int rc = zke_ensure_path(c->z, "/txns", ZKE_CONTAINER, how.deadline);
    if (rc != ZKE_OK) status = fail_rc(c, rc);
  }
  if (!status) status = pending_list(c, site, &how, &changed, &names);
  if (option_given(c, 'w')) zke_forget(c->z, pending_changed, &changed);
  if (status || !names) return status;
  for (int i = 0; !status && i < names->count; i++)
    status = pending_one(c, names->data[i], site);
  zke_free(names);
  return status;
}

/* The options and rows of these commands, for run.c, args.c and help. */
#define OPTIONS_WAIT {'w', "wait", "DURATION"}, OPTIONS_CONFLICT
static const option begin_table[] = {{'d', "data", "TEXT"},
                                     {'6', "base64", "TEXT"},
                                     {'i', "input", "FILE"},
                                     {'l', "deadline", "DURATION"},
                                     {'C', "coordinator", NULL},
                                     {'e', "ephemeral", NULL},
                                     OPTIONS_WAIT,
                                     {'\0', NULL, NULL}};
static const option wait_table[] = {OPTIONS_WAIT, {'\0', NULL, NULL}};

const command txn_commands[] = {
    {"txn", "begin | vote | wait | abort | ack | status | pending …",
     "two-phase commit: all sites apply a transaction, or none", NULL, 0, -1,
     VERBS, STYLE_LINE, NULL, NULL},
    {"txn begin",
     "NAME SITE… [--data TEXT | --base64 TEXT | --input FILE] [--deadline "
     "DURATION] [--coordinator] [--ephemeral] [--wait DURATION] [-E CODE]",
     "begin a transaction of the sites named", begin_table, 2, -1,
     CREATES_FILE | HIDDEN, STYLE_LINE, begin_run, decision_human},
    {"txn vote", "NAME SITE yes|no [--wait DURATION] [-E CODE]",
     "vote for a site; abort by \"no\"", wait_table, 3, 3,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, vote_run, decision_human},
    {"txn wait", "NAME [SITE] [--wait DURATION] [-E CODE]",
     "wait for the decision: 0 for commit, 1 for abort", wait_table, 1, 2,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, wait_run, decision_human},
    {"txn abort", "NAME [WHY]", "abort a transaction that is not decided yet",
     NULL, 1, 2, NEEDS_SESSION | HIDDEN, STYLE_LINE, abort_run, NULL},
    {"txn ack", "NAME [SITE]",
     "report that a site has done what was decided; the last removes it", NULL,
     1, 2, NEEDS_SESSION | HIDDEN, STYLE_LINE, ack_run, NULL},
    {"txn status", "NAME", "print who has voted what, and the decision", NULL,
     1, 1, NEEDS_FILE | HIDDEN, STYLE_RECORD, status_run, NULL},
    {"txn pending", "[SITE] [--wait DURATION] [-E CODE]",
     "print the transactions that a site has not acknowledged", wait_table, 0,
     1, NEEDS_NOTHING | HIDDEN, STYLE_TABLE, pending_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
