/* barrier.c - the commands "barrier …": recipes/barrier.h and double_barrier.h
 * for scripts
 *
 * Three things are called barriers; a name below /barriers is one of them:
 *
 *     set, remove, wait  one znode: waiting processes continue when it is gone
 *     enter, leave       N parties: none begins before all have entered, and
 *                        none continues before all have left
 *     meet               N parties wait for each other once, and get what each
 *                        has brought
 *
 * show reads any of them.  A session keeps only a place among the N beyond the
 * command (held_add()); a barrier that was set is independent of it, or with -e
 * ends with the session.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/barrier.h"
#include "../recipes/double_barrier.h"
#include "work.h"

CANCELLER(cancel_barrier, zke_barrier, zke_barrier_cancel)
CANCELLER(cancel_party, zke_double_barrier, zke_double_barrier_cancel)

/* ------------------------------------------------------------------------
 * A barrier that blocks
 *
 * set, remove and wait, over recipes/barrier.h.  The znode itself is the
 * barrier: it has no parties, and stands until it is removed or, with -e, until
 * its session is over.
 * --------------------------------------------------------------------- */

typedef struct standing {
  char *path;
  zke_barrier *barrier;
  int64_t token; /* of the barrier that this object set */
} standing;

/* Frees the object and the path; may be called twice. */
static void standing_close(standing *s) {
  zke_barrier_free(s->barrier);
  free(s->path);
  *s = (standing){NULL, NULL, 0};
}

/* A listener that does nothing, but has to exist: only then is the barrier
 * watched, so that its removal wakes guard_run() or held_until_signal(), which
 * check it. */
static void standing_heard(zke_barrier *barrier, int event, int64_t token,
                           void *context) {
  (void)barrier, (void)event, (void)token, (void)context;
}

/* Makes the object of the barrier that the first argument names; on failure
 * nothing is left to close. */
static int standing_open(call *c, bool ephemeral, standing *s) {
  *s = (standing){NULL, NULL, 0};
  zke_barrier_options o = {.size = sizeof o,
                           .ephemeral = ephemeral,
                           .listener = ephemeral ? standing_heard : NULL};
  int status = arg_place(c, 0, "barriers", &s->path);
  if (status) return status;
  int rc = zke_barrier_new(c->z, s->path, &o, &s->barrier);
  if (rc == ZKE_OK) return 0;
  status = fail_rc(c, rc);
  standing_close(s);
  return status;
}

/* For guard_run(): does our barrier still stand?  Another process may have
 * removed it, and set another one. */
static int standing_check(void *object) {
  const standing *s = object;
  int64_t token;
  int rc = zke_barrier_get(s->barrier, &token);
  if (rc != ZKE_OK || token == s->token) return rc;
  return zke_fail(ZKE_LOST, "the barrier %s was removed", s->path);
}

/* For held_until_signal(): was it removed, or is the session over?  If the file
 * could not be asked, it counts as standing. */
static bool standing_gone(void *object) {
  int rc = standing_check(object);
  return rc == ZKE_LOST || rc == ZKE_INVALIDSTATE;
}

/* Runs the command while the barrier stands, then removes it; the exit code is
 * the command's.  If the barrier is already gone, it was lost after guard_run()
 * last checked: this counts as a loss, as for a lock. */
static int set_around(call *c, standing *s) {
  guard g = {.kind = "barrier",
             .path = s->path,
             .token = s->token,
             .check = standing_check,
             .object = s};
  int status = guard_run(c, &g);
  int rc = zke_barrier_remove(s->barrier, s->token, ZKE_FOREVER);
  if (c->status == STATUS_LOST || rc == ZKE_OK) return status;
  if (rc == ZKE_NONODE || rc == ZKE_INVALIDSTATE)
    return fail_with(c, STATUS_LOST, "LOST", "the barrier %s was lost (%s)",
                     s->path, zke_errmsg());
  return status ? status : fail_rc(c, rc);
}

/* The barrier is set: runs the command; or prints the token, and stays if the
 * barrier is ephemeral and would end with this command's session. */
static int set_end(call *c, standing *s) {
  if (c->child) return set_around(c, s);
  json_t *row = json_pack("{s:I}", "token", s->token);
  int status = c->id ? emit_row(c, row) : emit_event(c, row);
  if (status || !option_given(c, 'e') || c->sh->persists) return status;
  verbose_say(c, "the barrier stands until this command is ended");
  status = held_until_signal(c, standing_gone, s);
  return status ? status
                : fail_with(c, STATUS_LOST, "LOST", "%s", zke_errmsg());
}

/* barrier set.  With a command the barrier is ephemeral, so that it ends if
 * this process dies.  If it was set, but cannot be watched, it is removed: a
 * failed command leaves none, even in a session that continues. */
static int set_with(call *c, const patience *p, const char *data, int len) {
  standing s;
  int status = standing_open(c, option_given(c, 'e') || c->child, &s);
  if (status) return status;
  int rc = zke_barrier_set(s.barrier, data, len < 0 ? 0 : len, ZKE_FOREVER,
                           &s.token);
  if (rc == ZKE_OK && (option_given(c, 'e') || c->child))
    rc = zke_barrier_start(s.barrier);
  status = rc == ZKE_OK ? set_end(c, &s) : fail_wait(c, p, rc);
  if (rc != ZKE_OK && s.token)
    zke_barrier_remove(s.barrier, s.token, ZKE_FOREVER);
  standing_close(&s);
  return status;
}

/* Reads the common parts of set, enter and meet: data for others, and how long
 * to wait. */
static int with_data(call *c, int (*fn)(call *c, const patience *how,
                                        const char *data, int len)) {
  patience how;
  char *data = NULL;
  int len;
  int status = c->child ? guard_options(c) : 0;
  if (!status) status = patience_of(c, &how);
  if (!status) status = arg_data(c, 1, &data, &len, NULL);
  if (!status) status = fn(c, &how, data, len);
  free(data);
  return status;
}

static int set_run(call *c) { return with_data(c, set_with); }

/* Prints nothing: only programs get the token. */
static void set_human(call *c, json_t *row, FILE *out) {
  (void)c, (void)row, (void)out;
}

/* barrier remove: with --token, only the barrier with that token. */
static int remove_run(call *c) {
  standing s;
  int64_t token;
  int status = option_number(c, 't', 1, INT64_MAX, 0, &token);
  if (!status) status = standing_open(c, false, &s);
  if (status) return status;
  int rc = zke_barrier_remove(s.barrier, token, ZKE_FOREVER);
  standing_close(&s);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* barrier wait: until it is gone.  With --verbose, first reports whom it waits
 * for. */
static int wait_run(call *c) {
  standing s;
  patience p;
  int status = patience_of(c, &p);
  if (!status) status = standing_open(c, false, &s);
  if (status) return status;
  int rc = ZKE_OPERATIONTIMEOUT;
  cancel_by(c, cancel_barrier, s.barrier);
  if (verbose_wanted(c)) rc = zke_barrier_wait(s.barrier, 0);
  if (rc == ZKE_OPERATIONTIMEOUT) {
    if (p.deadline > zke_now(c->z)) verbose_say(c, "waiting: %s", zke_errmsg());
    rc = zke_barrier_wait(s.barrier, p.deadline);
  }
  cancel_by(c, NULL, NULL);
  standing_close(&s);
  return rc == ZKE_OK ? 0 : fail_wait(c, &p, rc);
}

/* ------------------------------------------------------------------------
 * Who is inside
 *
 * A name does not say which of the three it is used for, so show asks for
 * setters of a barrier and for parties, and prints rows of one form.
 * --------------------------------------------------------------------- */

/* One participant or setter as a row. */
static json_t *party_row(const zke_party *p, const char *state) {
  return json_pack("{s:s,s:o,s:I,s:o,s:I,s:I,s:o}", "state", state, "identity",
                   value_text(p->identity ? p->identity : ""), "pid", p->pid,
                   "session", value_session(p->session), "since", p->since_ms,
                   "token", p->held ? p->mzxid : 0, "data",
                   value_data(p->data, p->len));
}

/* A row for each participant; the token of a barrier that is set is the zxid of
 * its creation. */
static int show_parties(call *c, const zke_party_list *all, bool set) {
  int status = 0;
  for (int i = 0; !status && i < all->count; i++) {
    const zke_party *p = &all->data[i];
    json_t *row = party_row(p, set ? "set" : p->kind);
    if (row && set) json_object_set_new(row, "token", json_integer(p->czxid));
    status = emit_row(c, row);
  }
  return status;
}

/* barrier show: its setter, or the parties of a double barrier or a meeting,
 * which have the same kind of znodes. */
static int show_run(call *c) {
  char *path;
  zke_party_list *set = NULL, *parties = NULL;
  int status = arg_place(c, 0, "barriers", &path);
  if (status) return status;
  int rc = zke_barrier_parties(c->z, path, &set);
  if (rc == ZKE_OK) rc = zke_double_barrier_parties(c->z, path, &parties);
  if (rc != ZKE_OK) {
    status = fail_rc(c, rc);
  } else if (set->count + parties->count == 0) {
    status = fail_with(c, STATUS_NO, "NONODE",
                       "no barrier is set at %s, and no party is there", path);
  } else {
    status = show_parties(c, set, true);
    if (!status) status = show_parties(c, parties, false);
  }
  zke_free(set);
  zke_free(parties);
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * Parties that begin and end together
 *
 * enter and leave, over recipes/double_barrier.h.  The session owns the place
 * among the N.  A waiting call has a second reference to it besides the one of
 * the session's list, so that `leave` in another call of a coprocess cannot
 * free it meanwhile.
 * --------------------------------------------------------------------- */

typedef struct party {
  shared s;
  zke_double_barrier *barrier;
  atomic_int leaves; /* calls that leave or left: a wanted end of the place */
} party;

/* Freeing the barrier gives up the place in the round. */
static void party_free(void *object) {
  party *p = object;
  zke_double_barrier_free(p->barrier);
  free(p);
}

/* `release` of a place in a double barrier: leaves, without waiting for the
 * others. */
static int party_on_release(void *object) {
  party *p = object;
  if (zke_double_barrier_state(p->barrier) != ZKE_DOUBLE_BARRIER_INSIDE)
    return ZKE_OK;
  int rc = zke_double_barrier_leave(p->barrier, 0);
  return rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}

/* 0 if it was lost. */
static int64_t party_on_token(void *object) {
  party *p = object;
  int state = zke_double_barrier_state(p->barrier);
  if (state == ZKE_DOUBLE_BARRIER_INSIDE || atomic_load(&p->leaves) > 0)
    return zke_double_barrier_token(p->barrier);
  return 0;
}

static const held_class party_class = {"party", party_on_release, shared_drop,
                                       party_on_token};

/* For guard_run(): is it still inside?  This need not ask the file, since the
 * object watches its znode. */
static int party_check(void *object) {
  party *p = object;
  if (zke_double_barrier_state(p->barrier) == ZKE_DOUBLE_BARRIER_INSIDE)
    return ZKE_OK;
  return zke_fail(ZKE_LOST, "the place inside was taken away");
}

static bool party_gone(void *object) { return party_check(object) != ZKE_OK; }

/* The number of -n, up to what a double barrier can hold. */
static int parties_of(call *c, int64_t *n) {
  if (!option_given(c, 'n'))
    return fail_usage(c, "-n PARTIES is missing: how many parties there are");
  return option_number(c, 'n', 1, ZKE_DOUBLE_BARRIER_MOST, 0, n);
}

/* A place in the double barrier of n parties, with one reference; NULL after
 * fail_with(). */
static party *party_new(call *c, const char *path, int64_t n) {
  party *p = malloc(sizeof *p);
  if (!p) {
    no_memory(c);
    return NULL;
  }
  int rc = zke_double_barrier_new(c->z, path, (int)n, NULL, &p->barrier);
  if (rc != ZKE_OK) {
    fail_rc(c, rc);
    free(p);
    return NULL;
  }
  shared_init(&p->s, party_free);
  atomic_init(&p->leaves, 0);
  return p;
}

/* Leaves, and waits until all have left; the exit code.  It first counts in
 * p->leaves, since the place is given up now, which must not be reported as a
 * loss.  If it was not given up, since the file could not be reached, its loss
 * must be reported again, unless another call leaves. */
static int party_leave(call *c, party *p, const patience *how) {
  atomic_fetch_add(&p->leaves, 1);
  cancel_by(c, cancel_party, p->barrier);
  int rc = zke_double_barrier_leave(p->barrier, how->deadline);
  cancel_by(c, NULL, NULL);
  int status = rc == ZKE_OK ? 0 : fail_wait(c, how, rc);
  if (zke_double_barrier_state(p->barrier) == ZKE_DOUBLE_BARRIER_INSIDE)
    atomic_fetch_sub(&p->leaves, 1);
  return status;
}

/* Runs the command inside, then leaves.  The time of --wait starts again, since
 * it is for each of the two waits.  If the command has failed, this does not
 * wait for the others. */
static int enter_around(call *c, party *p, const char *path) {
  patience how;
  guard g = {.kind = "barrier",
             .path = path,
             .token = zke_double_barrier_token(p->barrier),
             .check = party_check,
             .object = p};
  int status = guard_run(c, &g);
  if (status) {
    party_on_release(p);
    return status;
  }
  status = patience_of(c, &how);
  return status ? status : party_leave(c, p, &how);
}

/* Prints the round.  For a coprocess it is the answer; otherwise it is printed
 * immediately, since the command stays inside. */
static int enter_row(call *c, party *p) {
  json_t *row =
      json_pack("{s:I}", "round", zke_double_barrier_token(p->barrier));
  return c->id ? emit_row(c, row) : emit_event(c, row);
}

static void enter_human(call *c, json_t *row, FILE *out) {
  (void)c;
  fprintf(out, "round %" JSON_INTEGER_FORMAT "\n",
          json_integer_value(json_object_get(row, "round")));
}

/* All are inside: runs the command, gives the place to the session, or stays
 * until a signal. */
static int enter_end(call *c, party *p, const char *path) {
  if (c->child) return enter_around(c, p, path);
  if (c->sh->persists) {
    atomic_fetch_add(&p->s.refs, 1);
    int failed = held_add(c, &party_class, path, p);
    if (failed) shared_drop(p);
    return failed ? failed : enter_row(c, p);
  }
  int status = enter_row(c, p);
  if (!status) status = held_until_signal(c, party_gone, p);
  if (!status) status = fail_with(c, STATUS_LOST, "LOST", "%s", zke_errmsg());
  party_on_release(p);
  return status;
}

/* barrier enter.  p has this call's reference, and a second one if the session
 * has taken it. */
static int enter_with(call *c, const patience *how, const char *data, int len) {
  int64_t n = 0, round;
  char *path;
  int status = parties_of(c, &n);
  if (!status) status = arg_place(c, 0, "barriers", &path);
  if (status) return status;
  party *p = party_new(c, path, n);
  if (p) {
    verbose_say(c, "waiting for %" PRId64 " parties at %s", n, path);
    cancel_by(c, cancel_party, p->barrier);
    int rc = zke_double_barrier_enter(p->barrier, data, len < 0 ? 0 : len,
                                      how->deadline, &round);
    cancel_by(c, NULL, NULL);
    status = rc == ZKE_OK ? enter_end(c, p, path) : fail_wait(c, how, rc);
  }
  shared_drop(p);
  free(path);
  return p ? status : c->status;
}

static int enter_run(call *c) { return with_data(c, enter_with); }

/* barrier leave.  However the wait for the others ends, the place is given up;
 * it stays only if the file cannot be reached. */
static int leave_run(call *c) {
  char *path;
  patience how;
  int status = patience_of(c, &how);
  if (!status) status = arg_place(c, 0, "barriers", &path);
  if (status) return status;
  party *p = shared_held(c, &party_class, path);
  if (p) {
    status = party_leave(c, p, &how);
    if (zke_double_barrier_state(p->barrier) != ZKE_DOUBLE_BARRIER_INSIDE)
      held_release(c, party_class.kind, path, 0, p);
  } else {
    status = fail_with(c, STATUS_NO, "NOTHELD",
                       "this session is not inside the barrier %s", path);
  }
  shared_drop(p);
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * N that meet
 *
 * meet: one call that waits; nothing remains afterwards.  A late party begins
 * the next meeting.
 * --------------------------------------------------------------------- */

/* A row for each party that has met, with what it brought. */
static int meet_rows(call *c, const zke_party_list *all, int64_t token) {
  int status = 0;
  for (int i = 0; !status && i < all->count; i++) {
    const zke_party *p = &all->data[i];
    status = emit_row(
        c, json_pack("{s:o,s:o,s:I,s:o,s:I}", "data",
                     value_data(p->data, p->len), "identity",
                     value_text(p->identity ? p->identity : ""), "pid", p->pid,
                     "session", value_session(p->session), "token", token));
  }
  return status;
}

/* barrier meet: waits for n parties, and prints what each has brought. */
static int meet_with(call *c, const patience *how, const char *data, int len) {
  int64_t n = 0, token = 0;
  char *path;
  zke_double_barrier *meeting = NULL;
  zke_party_list *all = NULL;
  int status = parties_of(c, &n);
  if (!status) status = arg_place(c, 0, "barriers", &path);
  if (status) return status;
  verbose_say(c, "waiting for %" PRId64 " parties at %s", n, path);
  int rc = zke_double_barrier_new(c->z, path, (int)n, NULL, &meeting);
  if (rc == ZKE_OK) {
    cancel_by(c, cancel_party, meeting);
    rc = zke_double_barrier_meet(meeting, data, len < 0 ? 0 : len,
                                 how->deadline, &all, &token);
    cancel_by(c, NULL, NULL);
  }
  status = rc == ZKE_OK ? meet_rows(c, all, token) : fail_wait(c, how, rc);
  zke_free(all);
  zke_double_barrier_free(meeting);
  free(path);
  return status;
}

static int meet_run(call *c) { return with_data(c, meet_with); }

/* The options and rows of these commands, for run.c, args.c and help. */
static const option set_table[] = {{'e', "ephemeral", NULL},
                                   OPTIONS_DATA,
                                   OPTIONS_CONFLICT,
                                   OPTIONS_GUARD,
                                   {'\0', NULL, NULL}};
static const option remove_table[] = {{'t', "token", "N"}, {'\0', NULL, NULL}};
static const option wait_table[] = {OPTIONS_PATIENCE, {'\0', NULL, NULL}};
#define OPTIONS_PARTIES                                                      \
  {'n', "parties", "N"}, {'w', "wait", "DURATION"}, {'N', "nonblock", NULL}, \
      OPTIONS_CONFLICT, OPTIONS_DATA
static const option enter_table[] = {
    OPTIONS_PARTIES, OPTIONS_GUARD, {'\0', NULL, NULL}};
static const option meet_table[] = {OPTIONS_PARTIES, {'\0', NULL, NULL}};
static const option leave_table[] = {{'w', "wait", "DURATION"},
                                     {'N', "nonblock", NULL},
                                     OPTIONS_CONFLICT,
                                     {'\0', NULL, NULL}};

const command barrier_commands[] = {
    {"barrier", "set | remove | wait | show | enter | leave | meet NAME …",
     "keep processes waiting, or let them begin and end together", NULL, 0, -1,
     VERBS, STYLE_LINE, NULL, NULL},
    {"barrier set",
     "NAME [WHY | --base64 TEXT | --input FILE] [--ephemeral] [-E CODE] "
     "[--on-lost kill|warn] [--grace DURATION] [--close | --wait-all] "
     "[--outlive] "
     "[-- CMD ARGS…]",
     "block all that wait for it, until it is removed or CMD has ended",
     set_table, 1, 2, CREATES_FILE | TAKES_CHILD | HIDDEN, STYLE_LINE, set_run,
     set_human},
    {"barrier remove", "NAME [--token N]", "let all that wait for it continue",
     remove_table, 1, 1, NEEDS_SESSION | HIDDEN, STYLE_LINE, remove_run, NULL},
    {"barrier wait", "NAME [--wait DURATION | --nonblock] [-E CODE]",
     "wait while the barrier stands", wait_table, 1, 1, NEEDS_SESSION | HIDDEN,
     STYLE_LINE, wait_run, NULL},
    {"barrier show", "NAME", "print who has set it, or who is there", NULL, 1,
     1, NEEDS_FILE | HIDDEN, STYLE_TABLE, show_run, NULL},
    {"barrier enter",
     "NAME -n PARTIES [DATA | --base64 TEXT | --input FILE] [--wait DURATION | "
     "--nonblock] [-E CODE] [--on-lost kill|warn] [--grace DURATION] [--close "
     "| --wait-all] "
     "[--outlive] [-- CMD ARGS…]",
     "wait until all parties are there; run CMD; wait until all have left",
     enter_table, 1, 2, CREATES_FILE | TAKES_CHILD | HIDDEN, STYLE_LINE,
     enter_run, enter_human},
    {"barrier leave", "NAME [--wait DURATION | --nonblock] [-E CODE]",
     "leave, and wait until all parties of the round have left", leave_table, 1,
     1, NEEDS_SESSION | HIDDEN, STYLE_LINE, leave_run, NULL},
    {"barrier meet",
     "NAME -n PARTIES [DATA | --base64 TEXT | --input FILE] [--wait DURATION | "
     "--nonblock] [-E CODE]",
     "wait until all parties are there, and print what each has brought",
     meet_table, 1, 2, CREATES_FILE | HIDDEN, STYLE_VALUE, meet_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
