/* periodic.c - a job that several processes may start, at most once a period
 *
 * CONTENTS: record_ (a job's znode), job_ (the object).
 *
 * How a run is claimed (job_claim_once()):
 *
 *   1. Read the record of the last run and `running`, in one snapshot.
 *   2. Judge: a living process has the run (HELD); its process is dead: end
 *      that session and begin again; the last run counts for this period
 *      (LIMIT); or the job is due.
 *   3. In one multi write the new record, if the old one still has the version
 *      that was read, and create `running`, an ephemeral.
 *   4. If 3 fails, somebody was faster: go to 1.  If its reply was lost, go to
 *      1 as well: the run is this object's if the record has the id of its
 *      claim, and `running` is this session's.
 *
 * The end of a run is one multi too: the record gets its end and status, if it
 * still has the version of the claim, and `running` goes (job_try_end()).  If
 * somebody deletes the job's znode and it is made again, it can reach the same
 * version again.  So the id of the record is checked right before the step.
 *
 * If the process dies before 3, nothing has happened.  Between 3 and the end,
 * `running` goes with the session, and the record without an end shows that the
 * run died.  After the end the record is complete.
 *
 * Start reading at zke_periodic_try(); at job_wait() for the waiting. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "periodic.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

#define PERIODIC_PLACE "periodic"
#define RECORD_MARK "zkembed job\n"

enum { RECORD_ID = ZKE_RECIPE_GUID };

/* ======================================================================
 * record_
 * ==================================================================== */

/* The last run of a job, and whether a process has the run now. */
typedef struct record {
  char *text;         /* as it was read, cut after the identity; NULL: there is
                         no znode */
  bool filled;        /* it describes a run; else there was none yet */
  zke_stat stat;      /* of the job's znode */
  int64_t start_ms;   /* of zke_wall(), ms since 1970 */
  int64_t end_ms;     /* the same; 0: the run has not ended */
  int64_t pid;        /* of the process */
  int status;         /* of the ended run */
  int tries;          /* runs begun in this period, including this one */
  int forced;         /* 1: begun although it was not due */
  char id[RECORD_ID]; /* of the claim; unique */
  const char *identity; /* of the session; in text, or the object's */
  bool running;         /* `running` exists */
  int64_t runner;       /* the session that owns it */
} record;

/* Release a record that was read.  It may be called twice. */
static void record_free(record *c) {
  zke_free(c->text);
  *c = (record){0};
}

/* As zke_recipe_read(), for an int.  A number that does not fit is refused, not
 * cut: somebody else wrote the text. */
static bool record_int(char **at, const char *word, int *out) {
  int64_t number;
  if (!zke_recipe_read(at, word, 10, &number)) return false;
  *out = (int)number;
  return number >= INT_MIN && number <= INT_MAX;
}

/* Move *at past a word; false: the text differs, and *at is unchanged. */
static bool record_word(char **at, const char *word) {
  size_t len = strlen(word);
  if (strncmp(*at, word, len) != 0) return false;
  *at += len;
  return true;
}

/* Read the id, which is one line.  An empty id, or one that is too long, is not
 * ours. */
static bool record_id(char **at, char *id) {
  if (!record_word(at, "\nid ")) return false;
  size_t len = strcspn(*at, " \n");
  if (len < 1 || len >= RECORD_ID) return false;
  memcpy(id, *at, len);
  id[len] = '\0';
  *at += len;
  return true;
}

/* Read the text of record_text(); it ends with a NUL.  An empty text, or none,
 * means no run.  The identity stays in the text, and gets its NUL there. */
static int record_parse(record *c, const char *path) {
  char *at = c->text;
  if (!at || !*at) return ZKE_OK;
  if (!zke_recipe_read(&at, RECORD_MARK "start ", 10, &c->start_ms) ||
      !zke_recipe_read(&at, "\nend ", 10, &c->end_ms) ||
      !record_int(&at, "\nstatus ", &c->status) ||
      !record_int(&at, "\ntries ", &c->tries) ||
      !record_int(&at, "\nforced ", &c->forced) || !record_id(&at, c->id) ||
      !zke_recipe_read(&at, "\npid ", 10, &c->pid) ||
      !record_word(&at, "\nwho "))
    return zke_recipe_fail(ZKE_OTHERKIND, "%s is not a periodic job", path);
  c->filled = true;
  c->identity = at;
  at[strcspn(at, "\n")] = '\0';
  return ZKE_OK;
}

/* A snapshot of the record, and of the session that has the run.  Without a
 * znode all is 0.  record_free() releases it; after a failure there is nothing
 * to release. */
static int record_read(zke *z, const char *path, const char *running,
                       record *c) {
  zke_op ops[2];
  zke_op_result got[2] = {{0}};
  *c = (record){0};
  zke_op_get(&ops[0], path);
  zke_op_get(&ops[1], running);
  int rc = zke_recipe_multi_read(z, ops, 2, got);
  if (rc == ZKE_OK && got[0].rc != ZKE_NONODE) rc = got[0].rc;
  if (rc == ZKE_OK && got[0].rc == ZKE_OK) {
    c->text = got[0].data ? got[0].data : zke_alloc(z, 1);
    got[0].data = NULL;
    c->stat = got[0].stat;
    rc = c->text ? record_parse(c, path) : ZKE_NOMEM;
  }
  if (rc == ZKE_OK && got[1].rc == ZKE_OK) {
    c->running = true;
    c->runner = got[1].stat.ephemeralOwner;
  }
  zke_results_clear(got, 2);
  if (rc != ZKE_OK) record_free(c);
  return rc;
}

/* The record as lines of text, for record_parse(); NULL without memory.  A line
 * end in the identity becomes a space, since the text is read by lines. */
static char *record_text(zke *z, const record *c) {
  size_t size = 320 + strlen(c->identity);
  char *text = zke_alloc(z, size);
  if (!text) return NULL;
  int at = snprintf(text, size,
                    RECORD_MARK "start %" PRId64 "\nend %" PRId64
                                "\nstatus %d\ntries %d\nforced %d\nid %s\n"
                                "pid %" PRId64 "\nwho ",
                    c->start_ms, c->end_ms, c->status, c->tries, c->forced,
                    c->id, c->pid);
  for (const char *who = c->identity; *who; who++)
    text[at++] = *who == '\n' ? ' ' : *who;
  text[at] = '\n';
  return text;
}

/* ======================================================================
 * job_
 * ==================================================================== */

/* Guarded by the mutex of the zke_recipe. */
struct zke_periodic {
  zke_recipe r;         /* first; its path is the job's */
  char *base, *running; /* paths of the directory and of `running` */
  zke_periodic_options o;
  int state;      /* ZKE_PERIODIC_… */
  int64_t token;  /* zxid of the claim, 0 unless HELD */
  record mine;    /* of the claimed run, or of the claim in progress */
  char *identity; /* of the session, for mine */
  int version;    /* of the job's znode, after the claim */
  int64_t made;   /* czxid of that znode */
  bool placed;    /* the directory exists, as far as is known */
  bool waiting;   /* a blocking call runs */
  bool watched;   /* `running` is watched, and the watch has not fired */
  bool noticed;   /* the same for the job's znode, for its next record */
  bool woken;     /* an event has come since the wait began: look */
  bool given_up;  /* released while a blocking call waits for it */
};

/* Report that this object does not have the run; returns ZKE_LOST. */
static int job_lost(const zke_periodic *j) {
  return zke_recipe_fail(
      ZKE_LOST, "this object does not have the run of the job %s", j->r.path);
}

/* The object has lost its run: tell the listener. */
static void job_lose(zke_periodic *j) {
  if (j->state != ZKE_PERIODIC_HELD) return;
  j->state = ZKE_PERIODIC_LOST;
  j->token = 0;
  zke_recipe_tell(&j->r, ZKE_PERIODIC_LOST, 0, NULL, 0);
}

/* ---- when it is due ---- */

/* The number of the period of a wall time; periods before 1970 have the same
 * length. */
static int64_t job_period(const zke_periodic *j, int64_t ms) {
  int64_t since = ms - j->o.offset_ms, period = j->o.period_ms;
  return since / period - (since % period < 0);
}

/* The end of the last run's period, in wall time: one period after the start,
 * or, if periods are aligned, the beginning of the next one. */
static int64_t job_next(const zke_periodic *j, const record *c) {
  if (!j->o.aligned) return c->start_ms + j->o.period_ms;
  return (job_period(j, c->start_ms) + 1) * j->o.period_ms + j->o.offset_ms;
}

/* Is the last run's period over, forwards or backwards?  If a start is a period
 * or more in the future, a wrong clock wrote it: such a run does not count, or
 * the job would not run until then. */
static bool job_is_over(const zke_periodic *j, const record *c, int64_t now) {
  return !c->filled || now >= job_next(j, c) ||
         now <= c->start_ms - j->o.period_ms;
}

/* Does the last run not count, by the options?  If it has no end, it has died,
 * since no process has it now. */
static bool job_is_retried(const zke_periodic *j, const record *c) {
  return c->end_ms ? c->status && j->o.retry & ZKE_PERIODIC_RETRY_FAILED
                   : j->o.retry & ZKE_PERIODIC_RETRY_DEAD;
}

/* Fail with rc, and say why it cannot be claimed: "the job /jobs/a was done by
 * x (pid 1) at ... (status 0) and is due again at ...". */
static int job_say(const zke_periodic *j, int rc, const record *c) {
  char start[ZKE_RECIPE_WHEN], next[ZKE_RECIPE_WHEN], how[32] = "it died";
  zke_recipe_when(c->start_ms, start);
  zke_recipe_when(job_next(j, c), next);
  if (c->running)
    return zke_recipe_fail(
        rc, "the job %s is done by %s (pid %" PRId64 ") since %s", j->r.path,
        c->filled ? c->identity : "somebody", c->pid, start);
  if (c->end_ms) snprintf(how, sizeof how, "status %d", c->status);
  return zke_recipe_fail(rc,
                         "the job %s was done by %s (pid %" PRId64
                         ") at %s (%s) and is due again at %s",
                         j->r.path, c->identity, c->pid, start, how, next);
}

/* ---- claiming ---- */

/* If the process that has the run is dead, end its session.  ZKE_OK: it lives;
 * ZKE_LOOK_AGAIN: it does not have the run any more. */
static int job_bury(zke *z, const char *running, int64_t session) {
  int rc = zke_recipe_bury(z, running, session);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* May it be claimed?  ZKE_OK: now; else the code of the refusal. */
static int job_judge(zke_periodic *j, const record *c, bool force,
                     int64_t now) {
  if (c->running) {
    int rc = job_bury(j->r.z, j->running, c->runner);
    return rc == ZKE_OK ? job_say(j, ZKE_HELD, c) : rc;
  }
  if (force || job_is_over(j, c, now) || job_is_retried(j, c)) return ZKE_OK;
  return job_say(j, ZKE_LIMIT, c);
}

/* Write the claim in one step: the new record over the one that was seen, and
 * `running`.  ZKE_BADVERSION, ZKE_NODEEXISTS, ZKE_NONODE: something has changed
 * since the look. */
static int job_write_claim(zke *z, zke_periodic *j, const record *last) {
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  char *text = record_text(z, &j->mine);
  if (!text) return ZKE_NOMEM;
  int len = (int)strlen(text);
  if (last->text)
    zke_op_set(&ops[0], j->r.path, text, len, last->stat.version);
  else
    zke_op_create(&ops[0], j->r.path, text, len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[1], j->running, j->mine.id, (int)strlen(j->mine.id),
                ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  int rc = zke_recipe_multi(z, ops, 2, results);
  if (rc == ZKE_OK) {
    j->version = results[0].stat.version;
    j->made = results[0].stat.czxid;
    j->token = results[0].stat.mzxid;
  }
  zke_results_clear(results, 2);
  zke_free(text);
  return rc;
}

/* A claim in progress. */
typedef struct job_claim {
  zke_periodic *j;
  bool force;       /* claim it even if it is not due */
  bool unsure;      /* the last try may have made it */
  int64_t next;     /* out, if it was done: when it is due, wall time */
  bool end_matters; /* out, if a process has it: its end may make it due */
  int64_t mzxid;    /* out: of the record that was read; 0: there is none */
} job_claim;

/* Is the record of the claim that this object made? */
static bool job_is_mine(const zke_periodic *j, const record *c) {
  return c->filled && strcmp(c->id, j->mine.id) == 0;
}

/* One look, and the claim if the job is due.  After a lost reply the claim is
 * this object's if the record has its id and `running` is this session's.  The
 * claim gets the results for a wait: when to look next, and whether the end of
 * the present run may make it due sooner.
 *
 * If the process dies after the claim `running` goes with its session; the
 * record shows that the run has not ended. */
static int job_claim_once(zke *z, job_claim *a) {
  zke_periodic *j = a->j;
  record c;
  int rc = record_read(z, j->r.path, j->running, &c);
  if (rc != ZKE_OK) return rc;
  int64_t now = zke_wall(j->r.z);
  bool over = job_is_over(j, &c, now), wrote = false;
  a->mzxid = c.stat.mzxid;
  if (a->unsure && job_is_mine(j, &c) && c.runner == zke_session_id(z)) {
    j->version = c.stat.version;
    j->made = c.stat.czxid;
    j->token = c.stat.mzxid;
  } else if (a->unsure) { /* the lost try has left nothing */
    rc = ZKE_NOT_MADE;
  } else {
    rc = job_judge(j, &c, a->force, now);
    a->next = c.filled ? job_next(j, &c) : now;
    a->end_matters = over || j->o.retry;
    j->mine.start_ms = now;
    j->mine.tries = over ? 1 : c.tries + 1;
    j->mine.forced = a->force && !over;
    wrote = rc == ZKE_OK;
    if (wrote) rc = job_write_claim(z, j, &c);
  }
  record_free(&c);
  /* The results of earlier tries were seen.  If this try only looked, or ended
   * a dead session, it has made no claim. */
  a->unsure = wrote && zke_recipe_is_lost(rc);
  return zke_recipe_faster(rc);
}

/* The step of a claim.  Before the first try, and if a try must be repeated,
 * the directory may be missing: then make it. */
static int job_try_claim(zke *z, void *arg) {
  job_claim *a = arg;
  int rc = ZKE_OK;
  if (!a->j->placed)
    rc = zke_recipe_place(z, a->j->base, PERIODIC_PLACE, ZKE_PERSISTENT, NULL,
                          ZKE_FOREVER);
  if (rc == ZKE_OK) rc = job_claim_once(z, a);
  a->j->placed = rc == ZKE_OK || rc == ZKE_HELD || rc == ZKE_LIMIT;
  return rc;
}

/* Prepare the record of a claim: the owner, and a unique id that identifies it
 * after a lost reply. */
static int job_begin_claim(zke_periodic *j) {
  zke_session_list *who = NULL;
  j->mine = (record){0};
  zke_recipe_guid(j->r.z, j->mine.id);
  int rc = zke_sessions(j->r.z, zke_session_id(j->r.z), &who);
  if (rc != ZKE_OK) return rc;
  zke_free(j->identity);
  j->identity = zke_recipe_copy(j->r.z, who->data[0].identity,
                                strlen(who->data[0].identity));
  j->mine.identity = j->identity;
  j->mine.pid = who->data[0].pid;
  zke_free(who);
  return j->identity ? ZKE_OK : ZKE_NOMEM;
}

/* Watch the run, for its end or the death of its process.  ZKE_NONODE: it has
 * ended. */
static int job_watch(zke_periodic *j) {
  int rc =
      zke_get(j->r.z, j->running, zke_recipe_watcher, &j->r, NULL, NULL, NULL);
  j->watched = j->watched || rc == ZKE_OK;
  return rc;
}

/* Remove the watch before this object ends its run: otherwise its event would
 * stay queued until the next dispatch. */
static void job_unwatch(zke_periodic *j) {
  if (j->watched)
    zke_remove_watch(j->r.z, j->running, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &j->r);
  j->watched = false;
}

/* Does this object still have the run?  It looks only if a listener wants to
 * know; the same call sets the fired watch again.  `running` and the token are
 * of one step, so another claim of this session is recognised, too. */
static int job_step(zke_recipe *r) {
  zke_periodic *j = (zke_periodic *)r;
  zke_stat stat = {0};
  if (j->state != ZKE_PERIODIC_HELD || !j->o.listener) return ZKE_OK;
  int rc = j->watched ? zke_exists(r->z, j->running, NULL, NULL, &stat)
                      : zke_get(r->z, j->running, zke_recipe_watcher, r, NULL,
                                NULL, &stat);
  if (rc == ZKE_OK) j->watched = true;
  if (rc == ZKE_NONODE ||
      (rc == ZKE_OK && (stat.ephemeralOwner != zke_session_id(r->z) ||
                        stat.czxid != j->token))) {
    job_lose(j);
    rc = ZKE_OK;
  }
  return rc;
}

/* A try got no reply, and no later one could see its result: delete `running`
 * if it may have been made.  Its czxid is not known: if another object of this
 * handle has begun the job on another thread since then, that object finds that
 * it has lost it.  The code and its sentence stay. */
static int job_discard(zke_periodic *j, const job_claim *a, int rc) {
  zke_sentence kept;
  if (!a->unsure || rc == ZKE_HELD || rc == ZKE_LIMIT) return rc;
  zke_recipe_keep(&kept);
  zke_recipe_discard(j->r.z, j->running, ZKE_EPHEMERAL, 0);
  return zke_recipe_restore(&kept, rc);
}

/* Claims now or fails.  With a listener `running` is watched from the claim on,
 * so the listener hears if the claim is taken away. */
static int job_claim_now(zke_periodic *j, job_claim *a) {
  int rc = job_begin_claim(j);
  if (rc == ZKE_OK) rc = zke_recipe_do(j->r.z, job_try_claim, a, ZKE_FOREVER);
  if (rc != ZKE_OK) return job_discard(j, a, rc);
  j->state = ZKE_PERIODIC_HELD;
  zke_recipe_look(&j->r); /* a failure is repeated later */
  return ZKE_OK;
}

/* ---- giving it back ---- */

/* The end of a run, for zke_retry(). */
typedef struct job_end {
  zke_periodic *j;
  const char *text;
  bool unsure; /* a try has lost its reply: it may have been made */
} job_end;

/* The record of this object's run was replaced or has gone.  May a try with a
 * lost reply have ended this run before?  Its end was one change of the znode,
 * and the other's claim another, so two changes came after the own claim.  If
 * the znode was deleted, nothing shows whether the run has ended. */
static bool job_may_have_ended(const job_end *a, const record *c) {
  return a->unsure && c->stat.czxid == a->j->made &&
         c->stat.version != a->j->version &&
         c->stat.version != zke_recipe_next_version(a->j->version);
}

/* The state of the run.  ZKE_NOT_YET: it still runs.  ZKE_OK: a try with a lost
 * reply has ended it; then the record has this claim's id and an end, or it
 * belongs to another run that has begun since.  Else ZKE_LOST. */
static int job_look_end(zke *z, const job_end *a) {
  const zke_periodic *j = a->j;
  record c;
  int rc = record_read(z, j->r.path, j->running, &c);
  if (rc != ZKE_OK) return rc;
  if (!job_is_mine(j, &c))
    rc = job_may_have_ended(a, &c) ? ZKE_OK : ZKE_LOST;
  else if (!c.end_ms)
    rc = c.runner == zke_session_id(z) ? ZKE_NOT_YET : ZKE_LOST;
  record_free(&c);
  return rc;
}

/* Write the end in one step: the record gets its end, and `running` goes.
 *
 * The version alone does not identify the record: if the job's znode was
 * deleted during the run, the record may be that of another run.  Hence the
 * look before the step.  One race remains: if the job is deleted and claimed
 * again between the two, and reaches the same version, this ends the other
 * run. */
static int job_try_end(zke *z, void *arg) {
  job_end *a = arg;
  zke_periodic *j = a->j;
  zke_op ops[2];
  int rc = job_look_end(z, a);
  if (rc == ZKE_NOT_YET && a->unsure) {
    a->unsure = false;
    rc = ZKE_NOT_MADE;
  }
  if (rc != ZKE_NOT_YET) return rc;
  zke_op_set(&ops[0], j->r.path, a->text, (int)strlen(a->text), j->version);
  zke_op_delete(&ops[1], j->running, -1);
  rc = zke_recipe_multi(z, ops, 2, NULL);
  a->unsure |= zke_recipe_is_lost(rc);
  if (rc != ZKE_BADVERSION && rc != ZKE_NONODE) return rc;
  rc = job_look_end(z, a);
  return rc == ZKE_NOT_YET ? ZKE_LOST : rc;
}

/* The end and its status are written in the step in which `running` goes: no
 * process sees a run that is neither running nor ended.  If the process dies
 * before the step, the run was not finished. */
static int job_end_run(zke_periodic *j, int status) {
  job_unwatch(j);
  j->r.changed = true; /* if this fails, a step watches again */
  j->mine.end_ms = zke_wall(j->r.z);
  if (j->mine.end_ms == 0) j->mine.end_ms = 1; /* 0 is none */
  j->mine.status = status;
  char *text = record_text(j->r.z, &j->mine);
  if (!text) return ZKE_NOMEM;
  job_end a = {.j = j, .text = text};
  int rc = zke_recipe_do(j->r.z, job_try_end, &a, ZKE_FOREVER);
  zke_free(text);
  if (rc == ZKE_LOST) {
    job_lose(j);
    return job_lost(j);
  }
  if (rc != ZKE_OK) return rc;
  j->watched = false; /* the watched node has gone */
  j->r.changed = false;
  j->state = ZKE_PERIODIC_OUT;
  j->token = 0;
  return ZKE_OK;
}

/* ---- the object ---- */

/* Note an event.  An overflow may have hidden the awaited event, so it counts
 * as that. */
static void job_event(zke_recipe *r, int type, const char *path) {
  zke_periodic *j = (zke_periodic *)r;
  bool all = type == ZKE_EVENT_OVERFLOW;
  if (all || strcmp(path, j->running) == 0) j->watched = false;
  if (all || strcmp(path, j->r.path) == 0) j->noticed = false;
  j->woken = true;
}

/* The claim went with the session. */
static void job_ended(zke_recipe *r) { job_lose((zke_periodic *)r); }

/* The only event is the loss of the claim. */
static void job_deliver(zke_recipe *r, int event, int64_t number,
                        const char *text, int len) {
  zke_periodic *j = (zke_periodic *)r;
  (void)number, (void)text, (void)len;
  if (j->o.listener) j->o.listener(j, event, j->o.context);
}

/* A held claim goes with the object: another process may start the job
 * again. */
static void job_quit(zke_recipe *r) {
  zke_periodic *j = (zke_periodic *)r;
  if (j->state == ZKE_PERIODIC_HELD)
    zke_recipe_discard(r->z, j->running, ZKE_EPHEMERAL, j->token);
}

/* No znode is left at this point: quit has discarded it. */
static void job_destroy(zke_recipe *r) {
  zke_periodic *j = (zke_periodic *)r;
  zke_free(j->base);
  zke_free(j->running);
  zke_free(j->identity);
}

static const zke_recipe_class job_class = {.name = "job",
                                           .event = job_event,
                                           .step = job_step,
                                           .ended = job_ended,
                                           .deliver = job_deliver,
                                           .quit = job_quit,
                                           .destroy = job_destroy};

/* Refuse invalid options.  The bounds keep the times of periods within 64
 * bits. */
static int job_check_options(const char *base, const char *name,
                             const zke_periodic_options *given,
                             zke_periodic_options *o) {
  const int64_t most = INT64_MAX / 8;
  if (!base || !name || !*name || strchr(name, '/'))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "base/name is not a job's path");
  int rc = zke_take_options(given, o, sizeof *o, "zke_periodic_options");
  if (rc != ZKE_OK) return rc;
  if (o->period_ms < 1 || o->period_ms > most || o->offset_ms < -most ||
      o->offset_ms > most || o->retry & ~3)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "period, offset or retry");
  return ZKE_OK;
}

/* Makes no znode; the directory comes with the first claim. */
int zke_periodic_new(zke *z, const char *base, const char *name,
                     const zke_periodic_options *options,
                     zke_periodic **job_out) {
  zke_periodic_options o;
  zke_recipe *r = NULL;
  if (!job_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "job_out is NULL");
  *job_out = NULL;
  int rc = zke_recipe_state(z);
  if (rc == ZKE_OK) rc = job_check_options(base, name, options, &o);
  if (rc != ZKE_OK) return rc;
  char *path = zke_recipe_path(z, strcmp(base, "/") == 0 ? "" : base, name);
  if (!path) return ZKE_NOMEM;
  rc = zke_recipe_new(z, path, &job_class, sizeof(zke_periodic), &r);
  zke_free(path);
  if (rc != ZKE_OK) return rc;
  zke_periodic *j = (zke_periodic *)r;
  j->o = o;
  j->base = zke_recipe_copy(z, base, strlen(base));
  j->running = zke_recipe_path(z, r->path, "running");
  if (!j->base || !j->running) {
    zke_recipe_free(r);
    return ZKE_NOMEM;
  }
  *job_out = j;
  return ZKE_OK;
}

/* A run that was not released ends as if the process had died. */
void zke_periodic_free(zke_periodic *job) {
  zke_recipe_free((zke_recipe *)job);
}

/* Enter an object that neither has a run nor waits for one; deadline_ms: 0 for
 * a call that does not wait. */
static int job_enter(zke_periodic *j, int64_t deadline_ms) {
  zke_recipe *r = (zke_recipe *)j;
  int rc =
      deadline_ms ? zke_recipe_enter_by(r, deadline_ms) : zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  if (j->state != ZKE_PERIODIC_HELD && !j->waiting) return ZKE_OK;
  rc = zke_recipe_fail(ZKE_MISUSE, "this object of the job %s is in use",
                       j->r.path);
  return zke_recipe_leave(&j->r, rc);
}

/* Claim now, or report why not: ZKE_LIMIT if it is not due, ZKE_HELD if another
 * has it. */
static int job_try(zke_periodic *j, bool force) {
  int rc = job_enter(j, 0);
  if (rc != ZKE_OK) return rc;
  job_claim a = {.j = j, .force = force};
  return zke_recipe_leave(&j->r, job_claim_now(j, &a));
}

/* Both claim now, or report why not. */
int zke_periodic_try(zke_periodic *job) { return job_try(job, false); }
int zke_periodic_force(zke_periodic *job) { return job_try(job, true); }

/* ---- waiting ----
 *
 * A waiting call sleeps until the job is due by time.  If a process has the
 * run, and its end may make the job due, it watches `running` instead.  If the
 * job was done, and retry is set, it also watches the job's znode: somebody may
 * force a run, and if that run fails it makes the job due before its time.
 */

/* For zke_recipe_await(): has anything come since the wait began?  A release by
 * another thread ends the wait. */
static int job_is_woken(zke_recipe *r) {
  const zke_periodic *j = (const zke_periodic *)r;
  if (j->given_up) return job_lost(j);
  return j->woken ? ZKE_OK : ZKE_NOT_YET;
}

/* A process has the run: if its end may make the job due, watch for it, without
 * a time limit.  ZKE_NONODE: it has ended. */
static int job_attend(zke_periodic *j, const job_claim *a, int64_t *until) {
  if (!a->end_matters) return ZKE_OK;
  *until = ZKE_FOREVER;
  return j->watched ? ZKE_OK : job_watch(j);
}

/* It was done: watch for the next record, if the end of that run may make the
 * job due.  ZKE_NONODE: the record has changed already. */
static int job_notice(zke_periodic *j, const job_claim *a) {
  zke_stat stat;
  if (!j->o.retry) return ZKE_OK;
  int rc =
      zke_get(j->r.z, j->r.path, zke_recipe_watcher, &j->r, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  j->noticed = true;
  return stat.mzxid == a->mzxid ? ZKE_OK : ZKE_NONODE;
}

/* Remove that watch, before this object's claim fires it.  rc and its sentence
 * stay. */
static int job_unnotice(zke_periodic *j, int rc) {
  zke_sentence kept;
  if (!j->noticed) return rc;
  zke_recipe_keep(&kept);
  zke_remove_watch(j->r.z, j->r.path, ZKE_WATCH_DATA, zke_recipe_watcher,
                   &j->r);
  j->noticed = false;
  return zke_recipe_restore(&kept, rc);
}

enum { JOB_BLIND_MS = 100 /* until a wait without its watch looks again */ };

/* Setting a watch is a write: it may fail for a while, as long as others keep
 * the database or the disk is full.  That does not end a wait. */
static bool job_is_blind(int rc) {
  return zke_recipe_is_transient(rc) || rc == ZKE_FULL;
}

/* The run could not be claimed: wait for the next reason to look.  ZKE_OK:
 * there is one.  If the watch cannot be set, a short time is a reason as
 * well. */
static int job_linger(zke_periodic *j, const job_claim *a, int refused,
                      int64_t deadline_ms) {
  int64_t left = a->next - zke_wall(j->r.z), until;
  j->woken = false;
  until = zke_now(j->r.z) + (left > 0 ? left : 1);
  int rc = refused == ZKE_HELD ? job_attend(j, a, &until) : job_notice(j, a);
  if (job_is_blind(rc)) {
    int64_t soon = zke_now(j->r.z) + JOB_BLIND_MS;
    if (soon < until) until = soon;
    rc = ZKE_OK;
  }
  if (rc == ZKE_OK) {
    bool last = deadline_ms <= until;
    rc = zke_recipe_await(&j->r, job_is_woken, last ? deadline_ms : until);
    if (rc == ZKE_OPERATIONTIMEOUT && !last) rc = ZKE_OK;
  } else if (rc == ZKE_NONODE) {
    rc = ZKE_OK;
  }
  return job_unnotice(j, rc);
}

/* Tries, and waits until there is a reason to try again.  At the deadline the
 * sentence of the last try is returned: it names the process that has the run,
 * or the time when it is due. */
static int job_wait(zke_periodic *j, int64_t deadline_ms) {
  zke_sentence kept;
  for (;;) {
    job_claim a = {.j = j};
    int rc = job_claim_now(j, &a);
    if (rc != ZKE_HELD && rc != ZKE_LIMIT) return rc;
    zke_recipe_keep(&kept);
    rc = job_linger(j, &a, rc, deadline_ms);
    if (rc == ZKE_OPERATIONTIMEOUT) zke_recipe_restore(&kept, rc);
    if (rc != ZKE_OK) return rc;
  }
}

/* A deadline of 0 has passed; but 0 for job_enter() means a call that does not
 * wait. */
int zke_periodic_acquire(zke_periodic *job, int64_t deadline_ms) {
  int rc = job_enter(job, deadline_ms ? deadline_ms : 1);
  if (rc != ZKE_OK) return rc;
  job->waiting = true;
  job->given_up = false;
  rc = job_wait(job, deadline_ms);
  job->waiting = false;
  if (rc != ZKE_OK) {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    job_unwatch(job);
    zke_recipe_restore(&kept, rc);
  }
  return zke_recipe_leave(&job->r, rc);
}

/* End the run, or the object's waiting call; that call sleeps, so wake it. */
int zke_periodic_release(zke_periodic *job, int status) {
  int rc = zke_recipe_enter((zke_recipe *)job);
  if (rc != ZKE_OK) return rc;
  if (job->state == ZKE_PERIODIC_HELD) {
    rc = job_end_run(job, status);
  } else if (job->waiting) {
    job->given_up = true;
    rc = zke_wake(job->r.z);
  } else {
    rc = job_lost(job);
  }
  return zke_recipe_leave(&job->r, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_periodic_cancel(zke_periodic *job) {
  return zke_recipe_cancel((zke_recipe *)job);
}

/* ---- looking ---- */

/* From memory. */
int zke_periodic_state(zke_periodic *job) {
  if (zke_recipe_enter_memory((zke_recipe *)job) != ZKE_OK)
    return ZKE_PERIODIC_LOST;
  int state = job->state;
  zke_recipe_leave(&job->r, ZKE_OK);
  return state;
}

/* The zxid of the claim, greater than that of any earlier run. */
int64_t zke_periodic_token(zke_periodic *job) {
  if (zke_recipe_enter_memory((zke_recipe *)job) != ZKE_OK) return 0;
  int64_t token = job->token;
  zke_recipe_leave(&job->r, ZKE_OK);
  return token;
}

/* Ask the file: is the last run this object's, and does this session have it?
 * If not, the object knows it from now on. */
static int job_check(zke_periodic *j) {
  record c;
  if (j->state != ZKE_PERIODIC_HELD) return job_lost(j);
  int rc = record_read(j->r.z, j->r.path, j->running, &c);
  if (rc != ZKE_OK) return rc;
  bool mine = job_is_mine(j, &c) && c.runner == zke_session_id(j->r.z);
  record_free(&c);
  if (mine) return ZKE_OK;
  job_lose(j);
  return job_lost(j);
}

/* For a process that was stopped for a while, or that has no listener. */
int zke_periodic_check(zke_periodic *job) {
  int rc = zke_recipe_enter((zke_recipe *)job);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&job->r, job_check(job));
}

/* Makes the user's multi fail unless this object still has the run: each claim
 * writes the record, so its version tells. */
int zke_periodic_op(zke_periodic *job, zke_op *op) {
  if (!op) return zke_recipe_fail(ZKE_BADARGUMENTS, "op is NULL");
  int rc = zke_recipe_enter((zke_recipe *)job);
  if (rc != ZKE_OK) return rc;
  if (job->state == ZKE_PERIODIC_HELD)
    zke_op_check(op, job->r.path, job->version);
  else
    rc = job_lost(job);
  return zke_recipe_leave(&job->r, rc);
}

/* A copy of the record for the caller, in one block; NULL without memory. */
static zke_periodic_record *job_give(zke *z, const record *c) {
  size_t size = strlen(c->identity) + 1;
  zke_periodic_record *out = zke_alloc(z, sizeof *out + size);
  if (!out) return NULL;
  *out = (zke_periodic_record){.start_ms = c->start_ms,
                               .end_ms = c->end_ms,
                               .status = c->status,
                               .running = c->running,
                               .tries = c->tries,
                               .forced = c->forced,
                               .token = c->stat.mzxid,
                               .pid = c->pid};
  out->identity = memcpy(out + 1, c->identity, size);
  return out;
}

/* A look without an object. */
typedef struct job_look {
  const char *path, *running; /* of the job and of its znode `running` */
  record c;                   /* out */
} job_look;

/* The last run; if its process has died, end that session first. */
static int job_last(zke *z, void *arg) {
  job_look *a = arg;
  int rc = record_read(z, a->path, a->running, &a->c);
  if (rc == ZKE_OK && !a->c.filled)
    rc = zke_recipe_fail(ZKE_NONODE, "the job %s was never run", a->path);
  if (rc == ZKE_OK && a->c.running) rc = job_bury(z, a->running, a->c.runner);
  if (rc != ZKE_OK) record_free(&a->c);
  return rc;
}

/* The last run, or the present one, for callers without an object. */
int zke_periodic_get(zke *z, const char *base, const char *name,
                     zke_periodic_record **record_out) {
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  if (!base || !name || !record_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "base, name or record_out is NULL");
  char *path = zke_recipe_path(z, strcmp(base, "/") == 0 ? "" : base, name);
  char *running = path ? zke_recipe_path(z, path, "running") : NULL;
  job_look a = {.path = path, .running = running};
  rc = running ? zke_recipe_do(z, job_last, &a, 0) : ZKE_NOMEM;
  zke_periodic_record *out = a.c.identity ? job_give(z, &a.c) : NULL;
  if (rc == ZKE_OK && !out) rc = ZKE_NOMEM;
  if (rc == ZKE_OK) *record_out = out;
  record_free(&a.c);
  zke_free(path);
  zke_free(running);
  return rc;
}
