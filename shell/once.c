/* once.c - "once": run a command at most once a period, whoever starts it
 *
 * It is for cron in several containers: all of them start the command, and one
 * runs it.  If it is not due, nothing is printed and the exit code is 0, since
 * cron would send a mail otherwise.  --wait waits until it is due; -E chooses
 * the exit code for a command that was not run.
 *
 * The recipe periodic.h decides who runs it, and remembers the last result.
 * This file has two ways to use it:
 *
 *   - With a command after "--": claim, run it under guard.c, write its exit
 *     code.
 *   - Without one, if several commands share a session: claim now, and report
 *     later with --done.
 *
 * The two, with each outcome:
 *
 *     once NAME -- CMD   job_claim() --> job_run() --> the outcome is written
 *                            \ not due, or run by another --> 0, or -E's code
 *     once NAME          job_claim() --> turn_hold(): in the session's list
 *                            \ the same --> {"due": false}, or -E's code
 *     once NAME --done   turn_done(): the outcome is written, and the turn
 *                        leaves the list
 *     the session ends   turn_free(): nothing is written, the run has died
 *
 * If this process dies while it runs the command, the record says that the run
 * has died, and --retry-dead makes the job due again.
 *
 * Start reading at job_start().
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/periodic.h"
#include "work.h"

CANCELLER(cancel_job, zke_periodic, zke_periodic_cancel)

/* ------------------------------------------------------------------------
 * Running the job
 *
 * The common parts of both ways: options into the recipe's object, the claim,
 * the run, and the exit code if nothing ran.  The process with the claim writes
 * the outcome, whatever it is.
 * --------------------------------------------------------------------- */

/* A listener that does nothing.  With a listener, the recipe watches the job's
 * node, and that watch ends the wait of zke_periodic_acquire(). */
static void job_heard(zke_periodic *job, int state, void *context) {
  (void)job, (void)state, (void)context;
}

/* Reads what makes a job due into *o, and refuses contradictory options.
 * Returns 0, or STATUS_USAGE after reporting.  It needs no store, so
 * job_usage() calls it before a file is created. */
static int once_options(call *c, zke_periodic_options *o) {
  *o = (zke_periodic_options){.size = sizeof *o,
                              .aligned = option_given(c, 'a'),
                              .listener = job_heard};
  if (!option_given(c, 'e'))
    return fail_usage(c, "--every DURATION is missing: how often to run it");
  if (option_given(c, 'O') && !option_given(c, 'a'))
    return fail_usage(c, "--offset wants --aligned");
  if (option_given(c, 'f') && option_given(c, 'w'))
    return fail_usage(c, "--force or --wait, not both");
  if (option_given(c, 'r')) o->retry |= ZKE_PERIODIC_RETRY_FAILED;
  if (option_given(c, 'd')) o->retry |= ZKE_PERIODIC_RETRY_DEAD;
  int status = option_duration(c, 'e', 0, &o->period_ms);
  if (!status && o->period_ms == 0)
    status = fail_usage(c, "--every wants a duration above 0");
  if (!status) status = option_duration(c, 'O', 0, &o->offset_ms);
  return status ? status : guard_options(c);
}

/* For guard_run(), while the command runs: does the run still belong to this
 * session? */
static int job_check(void *object) { return zke_periodic_check(object); }

/* Runs the command, then writes its outcome in any case: it decides when the
 * job is due again.  The exit code is the command's; if that is 0, a failure to
 * write the outcome replaces it. */
static int job_run(call *c, zke_periodic *job, const char *path) {
  guard g = {.kind = "job",
             .path = path,
             .token = zke_periodic_token(job),
             .check = job_check,
             .object = job};
  int status = guard_run(c, &g);
  int rc = zke_periodic_release(job, status);
  return rc == ZKE_OK || status ? status : fail_rc(c, rc);
}

/* The exit code if the command was not run.  It is no failure that it is not
 * due, or that another process runs it: cron would send a mail.  With -E the
 * caller chooses the code. */
static int job_not_due(call *c, const patience *p, int rc) {
  bool expected = rc == ZKE_LIMIT || rc == ZKE_HELD;
  if (!expected || option_given(c, 'E')) return fail_wait(c, p, rc);
  verbose_say(c, "%s", zke_errmsg());
  return 0;
}

/* Tries to claim the job.  Returns ZKE_OK, ZKE_LIMIT if it is not due, ZKE_HELD
 * if another process runs it, or another code.  It waits only with --wait,
 * until the job is due and free. */
static int job_claim(call *c, zke_periodic *job, const patience *p) {
  if (option_given(c, 'f')) return zke_periodic_force(job);
  if (!option_given(c, 'w')) return zke_periodic_try(job);
  cancel_by(c, cancel_job, job);
  int rc = zke_periodic_acquire(job, p->deadline);
  cancel_by(c, NULL, NULL);
  return rc;
}

/* ------------------------------------------------------------------------
 * Without a child command
 *
 * Claim now, report later with --done.  Between the two calls a turn stands in
 * the session's list; it is shared, since another call of a coprocess may
 * report while the session ends.
 * --------------------------------------------------------------------- */

/* A claim kept between two calls.  Two calls may use it at the same time. */
typedef struct turn {
  shared s;          /* its references */
  zke_periodic *job; /* the recipe's object with the claim */
  int64_t token;     /* of the run, for display after the recipe has lost it */
  atomic_bool done;  /* it was reported, so it is not a loss */
} turn;

/* Called when the last reference is dropped.  If the turn was not reported as
 * done, its run counts as dead. */
static void turn_free(void *object) {
  turn *t = object;
  zke_periodic_free(t->job);
  free(t);
}

/* The number under which the turn is listed, or 0 if the run was lost, so that
 * the coprocess tells its client.  A turn that is being reported as done no
 * longer has a token in the recipe, but was not lost. */
static int64_t turn_on_token(void *object) {
  turn *t = object;
  return zke_periodic_token(t->job) || atomic_load(&t->done) ? t->token : 0;
}

static const held_class turn_class = {"job", NULL, shared_drop, turn_on_token};

/* Keeps the claim under the job's path until --done, and answers with its
 * token.  Takes over the job: frees it even on failure. */
static int turn_hold(call *c, zke_periodic *job, const char *path) {
  turn *t = malloc(sizeof *t);
  if (!t) {
    zke_periodic_free(job);
    return no_memory(c);
  }
  *t = (turn){.job = job, .token = zke_periodic_token(job)};
  shared_init(&t->s, turn_free);
  json_t *row = json_pack("{s:b,s:I}", "due", 1, "token", t->token);
  int status = held_add(c, &turn_class, path, t);
  if (!status) return emit_row(c, row);
  shared_drop(t);
  json_decref(row);
  return status;
}

/* once NAME --done STATUS: reports the outcome of a job that this session has
 * claimed.  The claim is given up in any case.  Another call may report it at
 * the same time, so the turn has a reference meanwhile. */
static int turn_done(call *c) {
  place at;
  int64_t outcome;
  int status = option_number(c, 'D', 0, 255, 0, &outcome);
  if (!status) status = place_of(c, 0, "jobs", &at);
  if (status) return status;
  turn *t = shared_held(c, &turn_class, at.path);
  if (t) {
    atomic_store(&t->done, true);
    int rc = zke_periodic_release(t->job, (int)outcome);
    if (rc != ZKE_OK) status = fail_rc(c, rc);
    held_release(c, turn_class.kind, at.path, 0, t);
  } else {
    status = fail_with(c, STATUS_NO, "NOTHELD",
                       "this session has not claimed the job %s", at.path);
  }
  shared_drop(t);
  free(at.base);
  return status;
}

/* ------------------------------------------------------------------------
 * The command
 *
 * The words decide which of the two ways it is; all their errors are found
 * before a file is created.
 * --------------------------------------------------------------------- */

/* Claims the job, then runs the command, or keeps the claim for --done.  If
 * several commands share a session, a job that is not due is an answer ({"due":
 * false}), not an error. */
static int once_at(call *c, const place *at, const zke_periodic_options *o,
                   const patience *p) {
  zke_periodic *job;
  int rc = zke_periodic_new(c->z, at->base, at->name, o, &job), status;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  rc = job_claim(c, job, p);
  if (rc == ZKE_OK && !c->child) return turn_hold(c, job, at->path);
  status = rc == ZKE_OK ? job_run(c, job, at->path) : job_not_due(c, p, rc);
  zke_periodic_free(job);
  if (c->child || status || rc == ZKE_OK) return status;
  return emit_row(c, json_pack("{s:b}", "due", 0));
}

/* Finds errors in the words before session_open() creates a file for them. */
static int job_usage(call *c) {
  zke_periodic_options o;
  if (c->count < 1) return fail_usage(c, "once wants a NAME");
  if (option_given(c, 'D'))
    return c->child ? fail_usage(c, "--done runs no command") : 0;
  if (!c->child && !c->sh->persists)
    return fail_usage(c, "once wants a command to run after \"--\"");
  return once_options(c, &o);
}

/* once without --show: claims the job, or reports with --done. */
static int job_start(call *c) {
  zke_periodic_options o;
  patience p;
  place at;
  if (option_given(c, 'D')) return turn_done(c);
  int status = once_options(c, &o);
  if (!status) status = patience_of(c, &p);
  if (!status) status = place_of(c, 0, "jobs", &at);
  if (status) return status;
  status = once_at(c, &at, &o, &p);
  free(at.base);
  return status;
}

/* ------------------------------------------------------------------------
 * Looking
 *
 * Reads the records of the last runs.  It claims nothing, so a handle without a
 * session is enough.
 * --------------------------------------------------------------------- */

/* Answers with the record of a job's last run.  Unknown values, such as the end
 * of a run in progress, are null. */
static int show_one(call *c, const char *base, const char *name) {
  zke_periodic_record *r;
  int rc = zke_periodic_get(c->z, base, name, &r);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  const char *state = r->running ? "running" : "died";
  if (r->end_ms) state = "ended";
  json_t *row =
      json_pack("{s:o,s:s,s:o,s:I,s:o,s:o,s:I,s:i,s:b,s:I}", "job",
                value_text(name), "state", state, "status",
                r->end_ms ? json_integer(r->status) : json_null(), "start_at",
                r->start_ms, "end_at", value_time(r->end_ms), "identity",
                value_text(r->identity), "pid", r->pid, "tries", r->tries,
                "forced", r->forced, "token", r->token);
  zke_free(r);
  return emit_row(c, value_for_people(c, row));
}

/* The records of all jobs below /jobs.  Leaves out nodes that are not jobs, and
 * nodes that go meanwhile. */
static int show_all(call *c) {
  zke_strings *names;
  int rc = zke_children(c->z, "/jobs", NULL, NULL, &names, NULL), status = 0;
  if (rc == ZKE_NONODE) return 0;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; !status && i < names->count; i++) {
    zke_periodic_record *r;
    rc = zke_periodic_get(c->z, "/jobs", names->data[i], &r);
    if (rc == ZKE_OK) {
      zke_free(r);
      status = show_one(c, "/jobs", names->data[i]);
    } else if (rc != ZKE_NONODE && rc != ZKE_OTHERKIND) {
      status = fail_rc(c, rc);
    }
  }
  zke_free(names);
  return status;
}

/* once --show: one job, or all of them.  A job that never ran has no record,
 * which is an error if it was named. */
static int job_show(call *c) {
  place at;
  if (c->child) return fail_usage(c, "--show runs no command");
  if (c->count == 0) return show_all(c);
  int status = place_of(c, 0, "jobs", &at);
  if (status) return status;
  status = show_one(c, at.base, at.name);
  free(at.base);
  return status;
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option once_table[] = {{'e', "every", "DURATION"},
                                    {'r', "retry-failed", NULL},
                                    {'d', "retry-dead", NULL},
                                    {'a', "aligned", NULL},
                                    {'O', "offset", "DURATION"},
                                    {'f', "force", NULL},
                                    {'w', "wait", "DURATION"},
                                    OPTIONS_CONFLICT,
                                    OPTIONS_GUARD,
                                    {'D', "done", "STATUS"},
                                    {'s', "show", NULL},
                                    {'\0', NULL, NULL}};

static const char once_usage[] =
    "NAME --every DURATION [--retry-failed] [--retry-dead] [--aligned "
    "[--offset DURATION]] [--force | --wait DURATION] [-E CODE] [--on-lost "
    "kill|warn] [--grace DURATION] [--close | --wait-all] [--outlive] -- CMD "
    "ARGS…, or NAME "
    "--done STATUS, or --show [NAME]";

/* The command.  Showing jobs needs an existing file; running one creates it. */
static int once_run(call *c) {
  bool show = option_given(c, 's');
  c->style = show ? STYLE_RECORD : STYLE_LINE;
  int status = show ? 0 : job_usage(c);
  if (!status)
    status =
        session_open(c, show ? NEEDS_FILE | PREFERS_SESSION : CREATES_FILE);
  if (status) return status;
  return show ? job_show(c) : job_start(c);
}

const command once_commands[] = {
    {"once", once_usage,
     "run CMD at most once in a period, in one of many processes", once_table,
     0, 1, NEEDS_NOTHING | TAKES_CHILD, STYLE_RECORD, once_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
