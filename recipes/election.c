/* election.c - one leader among candidates, known to all
 *
 * A line (line.h) in which one may hold: the first candidate leads.  Joining,
 * waiting and leaving are those of a lock, step by step in lock.c.  This file
 * adds the events of ZooKeeper's LeaderElectionSupport, the word, handing over,
 * and the observers.
 *
 * The word is the znode "leader": the leader's name, its token, and its value.
 * It is not made before zke_election_ready(), so an observer sees a leader only
 * when that leader has taken over.
 *
 *   ready      In one step: check the own entry, delete a former leader's word
 *              if there is one, create the own one (election_try_announce).
 *              Then watch it: if somebody deletes it, make it again.
 *   set        In one step: check the own entry, write the word.
 *   resign     In one step: delete the own entry and the word
 *              (line_leave_both).
 *   hand over  In one step: make a mark that names the heir's entry, which puts
 *              it in front of all, wake the heir, delete the own entry and the
 *              word (zke_line_yield).
 *   lost       The own entry has gone, but not the session: delete the word if
 *              it is still this candidate's (election_retract).
 *
 * A death at any point ends the session, and entry and word go together.  A
 * lost reply: ready reads the word that exists, and replaces it by the own one;
 * set writes the same again.  The word contains its token, by which its writer
 * recognises it.  Handing over checks whether the own entry still exists, and
 * otherwise whether the mark does.
 *
 * Invariants:
 *  1. The word is written only in a step that checks the candidate's own znode:
 *     a candidate that has lost the office can no longer write it.
 *  2. While the object holds and `ready` is set, the word exists and is
 *     watched, or a look is due; if somebody deletes it, it is made again.
 *  3. The word goes in the step that gives up the office: by `also` of the
 *     line, by zke_line_yield(), or with the session.  If the office is taken
 *     away, the word goes in a later step (election_retract()), or in the step
 *     in which the next leader makes its own.
 *  4. Each state is told before the next begins, in ZooKeeper's order.
 *
 * Start reading at zke_election_start(), election_determined() and
 * election_keep_word(); for observers at observer_step(). */
#include "election.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/line.h"
#include "part/party.h"
#include "part/text.h"
#include "part/znode.h"

#define ELECTION_PLACE "election"
#define ELECTION_LEADER "leader"

/* The mutex of l.r guards what changes, except `shown`: only the thread that
 * tells events reads and writes it. */
struct zke_election {
  zke_line l; /* its data is the candidate's name */
  int state;  /* ZKE_ELECTION_…: as of the last event that was queued */
  int shown;  /* the state that belongs to the event being delivered */
  bool again; /* the entry in front has gone: tell DETERMINE again */
  bool ready; /* has taken office: the word must exist */
  bool word_watched; /* the word existed, and its end will be heard */
  int64_t said;      /* the token in the word made or found last */
  char *leader;      /* path of the word: the znode "leader" */
  char *value;       /* the leader's value, or NULL; a copy */
  int value_len;     /* bytes of value */
  zke_election_fn listener;
  void *context;
};

/* ---- the word: "<token> <name>\n<value>" ---- */

/* A word that was read; it points into the znode's data. */
typedef struct leader_word {
  int64_t token; /* 0: it is not a word */
  const char *name, *value;
  size_t name_len; /* bytes of name, which has no NUL */
  int len;         /* bytes of value */
} leader_word;

/* Take a znode's data apart.  Data of another form is not a word: somebody else
 * has made the znode. */
static leader_word word_read(const char *data, int len) {
  char *end = NULL;
  leader_word w = {.token = data ? strtoll(data, &end, 10) : 0};
  if (w.token <= 0 || *end != ' ') return (leader_word){0};
  w.name = end + 1;
  w.name_len = strcspn(w.name, "\n");
  w.value = w.name + w.name_len;
  if (*w.value) w.value++;
  w.len = (int)(data + len - w.value);
  return w;
}

/* ---- events ---- */

/* Queue an event for the listener.  It has no text, so the object has memory
 * in reserve for it (zke_recipe_tell()). */
static void election_tell(zke_election *e, int event, int64_t token) {
  zke_recipe_tell(&e->l.r, event, token, NULL, 0);
}

/* The state that follows from the line's.  A failed candidacy stays failed even
 * if the line has gone out since. */
static int election_state_in_line(const zke_election *e) {
  if (e->l.state == ZKE_LINE_HELD) return ZKE_ELECTION_ELECTED;
  if (e->l.state == ZKE_LINE_WAITING) return ZKE_ELECTION_READY;
  if (e->l.state == ZKE_LINE_LOST) return ZKE_ELECTION_FAILED;
  return e->state == ZKE_ELECTION_FAILED ? ZKE_ELECTION_FAILED
                                         : ZKE_ELECTION_STOP;
}

/* Follow the line: elected, waiting, or out.  The same state is told again only
 * if it is `asked`. */
static void election_determined(zke_election *e, bool asked) {
  int state = election_state_in_line(e);
  if (state == e->state && !asked) return;
  e->state = state;
  if (state == ZKE_ELECTION_ELECTED || state == ZKE_ELECTION_READY) {
    election_tell(e, ZKE_ELECTION_DETERMINE_START, 0);
    election_tell(e, ZKE_ELECTION_DETERMINE_COMPLETE, 0);
  }
  if (state == ZKE_ELECTION_ELECTED) {
    election_tell(e, ZKE_ELECTION_ELECTED_START, e->l.token);
    election_tell(e, ZKE_ELECTION_ELECTED_COMPLETE, e->l.token);
  } else if (state == ZKE_ELECTION_READY) {
    election_tell(e, ZKE_ELECTION_READY_START, 0);
    election_tell(e, ZKE_ELECTION_READY_COMPLETE, 0);
  } else if (state == ZKE_ELECTION_FAILED) {
    election_tell(e, ZKE_ELECTION_FAILURE, 0);
  } else {
    election_tell(e, ZKE_ELECTION_STOP_START, 0);
    election_tell(e, ZKE_ELECTION_STOP_COMPLETE, 0);
  }
}

/* The candidacy has failed; this is told once. */
static void election_fail(zke_election *e) {
  if (e->state != ZKE_ELECTION_FAILED)
    election_tell(e, ZKE_ELECTION_FAILURE, 0);
  e->state = ZKE_ELECTION_FAILED;
}

/* ---- taking office ----
 *
 * The office comes with the turn.  The word comes when the leader reports that
 * it is ready, so observers see a leader only when that leader has taken over.
 *
 * A leader deletes a former leader's word when it makes its own.  It deletes
 * its own when it leaves or has lost the office.  If the word has another token
 * than `said`, it is the next leader's, and stays. */

/* A word to be written, for zke_retry(). */
typedef struct election_word {
  zke_election *e;
  char *data;
  int len; /* bytes of data */
} election_word;

/* Make its text, with the token of the present office. */
static int word_make(election_word *w) {
  const zke_election *e = w->e;
  size_t size = 25 + (size_t)e->l.len + (size_t)e->value_len;
  w->data = zke_alloc(e->l.r.z, size);
  if (!w->data) return ZKE_NOMEM;
  w->len = snprintf(w->data, size, "%" PRId64 " ", e->l.token);
  if (e->l.len) memcpy(w->data + w->len, e->l.data, (size_t)e->l.len);
  w->len += e->l.len;
  if (e->value_len) w->data[w->len++] = '\n';
  if (e->value_len) memcpy(w->data + w->len, e->value, (size_t)e->value_len);
  w->len += e->value_len;
  return ZKE_OK;
}

/* One try: in one step, check that the candidate leads, delete a former
 * leader's word, and create the own one.  ZKE_LOST: it does not lead;
 * ZKE_LOOK_AGAIN: a word has gone or come since the read. */
static int election_try_announce(zke *z, void *arg) {
  election_word *w = arg;
  zke_op ops[3];
  int n = 0;
  int rc = zke_exists(z, w->e->leader, NULL, NULL, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  zke_op_check(&ops[n++], w->e->l.znode, -1);
  if (rc == ZKE_OK) zke_op_delete(&ops[n++], w->e->leader, -1);
  zke_op_create(&ops[n++], w->e->leader, w->data, w->len, ZKE_OPEN_ACL,
                ZKE_EPHEMERAL);
  zke_op_result results[3] = {{0}};
  rc = zke_recipe_multi(z, ops, n, results);
  bool lost = results[0].rc == ZKE_NONODE;
  zke_results_clear(results, n);
  return lost ? zke_line_check(&w->e->l) : zke_recipe_faster(rc);
}

/* Make the word.  A former leader's may be in the way, and go at this moment:
 * so repeat until it is made or the office is lost. */
static int election_announce(zke_election *e, int64_t deadline_ms) {
  election_word w = {.e = e};
  int rc = word_make(&w);
  if (rc == ZKE_OK)
    rc = zke_recipe_do(e->l.r.z, election_try_announce, &w, deadline_ms);
  zke_free(w.data);
  return rc;
}

/* One try to change it in place: so observers hear no end of the office. */
static int election_try_change(zke *z, void *arg) {
  election_word *w = arg;
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  zke_op_check(&ops[0], w->e->l.znode, -1);
  zke_op_set(&ops[1], w->e->leader, w->data, w->len, -1);
  int rc = zke_recipe_multi(z, ops, 2, results);
  bool lost = results[0].rc == ZKE_NONODE;
  zke_results_clear(results, 2);
  return lost ? zke_line_check(&w->e->l) : rc;
}

/* Write the word again; if it is missing, make it. */
static int election_change(zke_election *e, int64_t deadline_ms) {
  election_word w = {.e = e};
  int rc = word_make(&w);
  if (rc == ZKE_OK)
    rc = zke_retry(e->l.r.z, election_try_change, &w, deadline_ms);
  zke_free(w.data);
  return rc == ZKE_NONODE ? election_announce(e, deadline_ms) : rc;
}

/* Is the word there, this candidate's, and of this token?  Else ZKE_NONODE.
 * *czxid: of its znode. */
static int election_find_word(zke_election *e, int64_t token, bool watch,
                              int64_t *czxid) {
  char *data = NULL;
  int len = 0;
  zke_stat stat;
  zke *z = e->l.r.z;
  int rc = zke_get(z, e->leader, watch ? zke_recipe_watcher : NULL, &e->l.r,
                   &data, &len, &stat);
  if (rc != ZKE_OK) return rc;
  bool own = stat.ephemeralOwner == zke_session_id(z);
  if (!own || word_read(data, len).token != token) rc = ZKE_NONODE;
  zke_free(data);
  *czxid = stat.czxid;
  return rc;
}

/* While the candidate is in office the word stays, even if somebody deletes it.
 * The loop ends when the word exists and is watched, or with a failure; then
 * the next step tries again. */
static int election_keep_word(zke_election *e) {
  int rc;
  int64_t czxid;
  if (!e->ready || e->word_watched || e->l.state != ZKE_LINE_HELD)
    return ZKE_OK;
  do {
    e->said = e->l.token;
    rc = election_find_word(e, e->said, true, &czxid);
    e->word_watched = rc == ZKE_OK;
    if (rc != ZKE_NONODE) break;
    rc = election_announce(e, ZKE_FOREVER);
    if (rc == ZKE_OK && e->l.state == ZKE_LINE_HELD) rc = ZKE_LOOK_AGAIN;
  } while (zke_recipe_again(e->l.r.z, &rc));
  return rc;
}

/* Remove the watch of the word, before this candidate deletes the word. */
static void election_unwatch_word(zke_election *e) {
  if (e->word_watched) {
    zke_remove_watch(e->l.r.z, e->leader, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &e->l.r);
  }
  e->word_watched = false;
}

/* The place was lost or given up, but not the session: delete the word, unless
 * it is already the next leader's.  If it cannot be read, discard whatever word
 * this session has; if another candidate of this handle made it, that candidate
 * makes it again. */
static int election_retract(zke_election *e) {
  int64_t czxid = 0;
  if (!e->ready) return ZKE_OK;
  election_unwatch_word(e);
  e->ready = false;
  int rc = election_find_word(e, e->said, false, &czxid);
  if (rc == ZKE_NONODE) return ZKE_OK;
  return zke_recipe_discard(e->l.r.z, e->leader, ZKE_EPHEMERAL,
                            rc == ZKE_OK ? czxid : 0);
}

/* ---- the object ---- */

/* Tell the line's new state, and keep or delete the word accordingly.  The line
 * gives up an office by itself if the look of lead() fails: then the word is
 * still there, and must not be announced in the object's next office. */
static int election_follow_line(zke_election *e, bool asked) {
  election_determined(e, asked);
  bool there = e->l.state == ZKE_LINE_WAITING || e->l.state == ZKE_LINE_HELD;
  return there ? election_keep_word(e) : election_retract(e);
}

/* The line first: the word must exist if the candidate leads.  A refusal that
 * no call can return has put the candidate out.  An entry in front may have
 * gone before a look that has failed: by now the candidate may no longer wait.
 */
static int election_step(zke_recipe *r) {
  zke_election *e = (zke_election *)r;
  int rc = zke_line_step(&e->l);
  if (rc != ZKE_OK && e->l.state == ZKE_LINE_OUT) election_fail(e);
  if (rc != ZKE_OK) return rc;
  bool asked = e->again && e->l.state == ZKE_LINE_WAITING;
  e->again = false;
  return election_follow_line(e, asked);
}

/* Note an event.  If the candidate waits, the deleted entry may be the one
 * before it: the next step tells DETERMINE again. */
static void election_event(zke_recipe *r, int type, const char *path) {
  zke_election *e = (zke_election *)r;
  if (!*path || strcmp(path, e->leader) == 0) /* none: an overflow */
    e->word_watched = false;
  else if (type == ZKE_EVENT_DELETED && e->l.state == ZKE_LINE_WAITING)
    e->again = true;
  zke_line_event(&e->l, path);
}

/* The word went with the session. */
static void election_ended(zke_recipe *r) {
  zke_line_ended((zke_line *)r);
  election_determined((zke_election *)r, false);
}

/* The state that belongs to an election event. */
static int election_state_of(int event) {
  switch (event) {
    case ZKE_ELECTION_STARTED:
      return ZKE_ELECTION_START;
    case ZKE_ELECTION_OFFER_START:
    case ZKE_ELECTION_OFFER_COMPLETE:
      return ZKE_ELECTION_OFFER;
    case ZKE_ELECTION_DETERMINE_START:
    case ZKE_ELECTION_DETERMINE_COMPLETE:
      return ZKE_ELECTION_DETERMINE;
    case ZKE_ELECTION_ELECTED_START:
    case ZKE_ELECTION_ELECTED_COMPLETE:
      return ZKE_ELECTION_ELECTED;
    case ZKE_ELECTION_READY_START:
    case ZKE_ELECTION_READY_COMPLETE:
      return ZKE_ELECTION_READY;
    case ZKE_ELECTION_FAILURE:
      return ZKE_ELECTION_FAILED;
    case ZKE_ELECTION_STOP_START:
    case ZKE_ELECTION_STOP_COMPLETE:
      return ZKE_ELECTION_STOP;
    default:
      return -1; /* none: the object has no other event */
  }
}

/* The line queues its own events, with smaller numbers.  Here other events tell
 * the same, so drop them. */
static void election_deliver(zke_recipe *r, int event, int64_t number,
                             const char *text, int len) {
  zke_election *e = (zke_election *)r;
  (void)text, (void)len;
  if (!e->listener || event < ZKE_ELECTION_STARTED) return;
  e->shown = election_state_of(event);
  e->listener(e, event, number, e->context);
}

/* Leave the line.  If the leader has taken office, its word goes in the same
 * step: so no observer sees a word without a leader. */
static int election_quit(zke_election *e) {
  bool office = e->ready && e->l.state == ZKE_LINE_HELD;
  int rc = office ? ZKE_OK : election_retract(e);
  if (office) {
    election_unwatch_word(e);
    e->ready = false;
    e->l.also = e->leader;
  }
  int quit = zke_line_quit(&e->l);
  return rc == ZKE_OK ? quit : rc;
}

/* The object is freed: the office and the word go in one step. */
static void election_going(zke_recipe *r) { election_quit((zke_election *)r); }

/* Release the object's memory. */
static void election_destroy(zke_recipe *r) {
  zke_free(((zke_election *)r)->leader);
  zke_free(((zke_election *)r)->value);
  zke_line_free((zke_line *)r);
}

static const zke_recipe_class election_class = {.name = "election",
                                                .event = election_event,
                                                .step = election_step,
                                                .ended = election_ended,
                                                .deliver = election_deliver,
                                                .quit = election_going,
                                                .destroy = election_destroy};

/* It does not look for deadlocks.  The own znode is always watched: a write to
 * it tells an heir that it was named. */
int zke_election_new(zke *z, const char *path,
                     const zke_election_options *options,
                     zke_election **e_out) {
  zke_election_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(e_out, options, &o, zke_election_options);
  if (rc != ZKE_OK) return rc;
  if (o.name && strchr(o.name, '\n'))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "a candidate's name has no newline");
  rc = zke_recipe_new(z, path, &election_class, sizeof(zke_election), &r);
  if (rc != ZKE_OK) return rc;
  zke_election *e = (zke_election *)r;
  e->l.place = ELECTION_PLACE;
  e->l.kind = ZKE_LINE_LATCH;
  e->l.no_check = true; /* an office is held permanently, not for a while */
  e->l.watch_own = true;
  e->l.data = o.name;
  e->l.len = o.name ? (int)strlen(o.name) : 0;
  e->listener = o.listener;
  e->context = o.context;
  rc = zke_line_init(&e->l);
  e->leader = zke_recipe_path(z, path, ELECTION_LEADER);
  if (rc == ZKE_OK && !e->leader) rc = ZKE_NOMEM;
  if (rc == ZKE_OK)
    *e_out = e;
  else
    zke_recipe_free(r);
  return rc;
}

/* Resigns, so the next candidate leads immediately. */
void zke_election_free(zke_election *e) { zke_recipe_free((zke_recipe *)e); }

/* ---- in and out ---- */

/* End a call: tell its changes.  If the word cannot be kept or deleted now, the
 * next step does it. */
static int election_leave(zke_election *e, int rc) {
  if (!e->l.r.ended && election_follow_line(e, false) != ZKE_OK)
    e->l.r.changed = true;
  return zke_recipe_leave(&e->l.r, rc);
}

/* Become a candidate.  The events come in ZooKeeper's order, even if the first
 * look finds that this candidate leads. */
static int election_offer(zke_election *e) {
  if (e->l.state == ZKE_LINE_WAITING || e->l.state == ZKE_LINE_HELD) {
    return zke_recipe_fail(ZKE_MISUSE, "already a candidate of the election %s",
                           e->l.r.path);
  }
  election_tell(e, ZKE_ELECTION_STARTED, 0);
  election_tell(e, ZKE_ELECTION_OFFER_START, 0);
  e->state = ZKE_ELECTION_OFFER;
  e->again = false;
  int rc = zke_line_join(&e->l, false, ZKE_FOREVER);
  if (rc == ZKE_OK) {
    election_tell(e, ZKE_ELECTION_OFFER_COMPLETE, 0);
    election_determined(e, true);
  } else {
    election_fail(e);
  }
  return rc;
}

/* Joins, and leaves the rest to dispatching: the listener hears the result. */
int zke_election_start(zke_election *e) {
  int rc = zke_line_enter((zke_line *)e);
  if (rc != ZKE_OK) return rc;
  return election_leave(e, election_offer(e));
}

/* Blocks until the candidate leads.  An object that was started before keeps
 * its place. */
int zke_election_lead(zke_election *e, int64_t deadline_ms) {
  int rc = zke_line_enter_by((zke_line *)e, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (e->l.state == ZKE_LINE_HELD)
    rc = zke_line_check(&e->l);
  else if (e->l.state != ZKE_LINE_WAITING)
    rc = election_offer(e);
  if (rc == ZKE_OK && e->l.state != ZKE_LINE_HELD)
    rc = zke_line_acquire(&e->l, deadline_ms);
  if (rc == ZKE_LOST && e->state != ZKE_ELECTION_STOP) election_fail(e);
  return election_leave(e, rc);
}

/* If the process dies while it leaves, its session's end does the rest. */
int zke_election_resign(zke_election *e) {
  int rc = zke_recipe_enter((zke_recipe *)e);
  if (rc != ZKE_OK) return rc;
  if (e->l.state == ZKE_LINE_HELD && zke_line_check(&e->l) == ZKE_LOST)
    election_determined(e, false); /* a loss that was not heard of */
  bool there = e->l.state == ZKE_LINE_WAITING || e->l.state == ZKE_LINE_HELD;
  if (e->state != ZKE_ELECTION_STOP) {
    rc = election_quit(e);
    if (!e->l.r.ended) { /* else it has told FAILURE */
      e->state = ZKE_ELECTION_STOP;
      election_tell(e, ZKE_ELECTION_STOP_START, 0);
      election_tell(e, ZKE_ELECTION_STOP_COMPLETE, 0);
    }
  }
  if (rc == ZKE_OK && !there) rc = zke_line_check(&e->l); /* reports it */
  return zke_recipe_leave(&e->l.r, rc);
}

/* The first candidate of that name, except this one; *out is its znode's name,
 * for zke_free(). */
static int election_find(zke_election *e, const char *name, char **out) {
  zke_party_list *list = NULL;
  int rc = zke_election_parties(e->l.r.z, e->l.r.path, &list);
  if (rc != ZKE_OK) return rc;
  const char *own = strrchr(e->l.znode, '/') + 1;
  rc = zke_recipe_fail(ZKE_NONODE, "the election %s has no candidate named %s",
                       e->l.r.path, name);
  for (int i = 0; i < list->count && rc == ZKE_NONODE; i++) {
    const zke_party *p = &list->data[i];
    if (strcmp(p->name, own) == 0) continue;
    if (strcmp(p->data ? p->data : "", name) != 0) continue;
    *out = zke_alloc(e->l.r.z, strlen(p->name) + 1);
    rc = *out ? ZKE_OK : ZKE_NOMEM;
    if (*out) memcpy(*out, p->name, strlen(p->name));
  }
  zke_free(list);
  return rc;
}

/* Find an heir and yield to it, until that succeeds: if an heir dies before the
 * step, take the next one of its name. */
static int election_hand_over(zke_election *e, const char *name) {
  int rc = zke_line_check(&e->l);
  if (rc != ZKE_OK) return rc;
  do {
    char *heir = NULL;
    rc = election_find(e, name, &heir);
    if (rc == ZKE_OK) {
      rc = zke_line_yield(&e->l, heir, e->leader);
      if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
    }
    zke_free(heir);
  } while (zke_recipe_again(e->l.r.z, &rc));
  return rc;
}

/* A death before the step only ends the session; after it the heir leads. */
int zke_election_hand_over(zke_election *e, const char *name) {
  if (!name) return zke_recipe_fail(ZKE_BADARGUMENTS, "name is NULL");
  int rc = zke_recipe_enter((zke_recipe *)e);
  if (rc != ZKE_OK) return rc;
  election_unwatch_word(e); /* watched again if it stays */
  rc = election_hand_over(e, name);
  if (rc == ZKE_OK) e->ready = false;
  return election_leave(e, rc); /* tells that it has stopped */
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_election_cancel(zke_election *e) {
  return zke_recipe_cancel((zke_recipe *)e);
}

/* The word is not made before this call, so no process sends work to a leader
 * that has not finished taking over. */
int zke_election_ready(zke_election *e) {
  int rc = zke_recipe_enter((zke_recipe *)e);
  if (rc != ZKE_OK) return rc;
  if (e->l.state == ZKE_LINE_HELD) {
    e->ready = true;
    rc = election_keep_word(e);
  } else {
    rc = zke_line_check(&e->l); /* reports that it is not held */
  }
  return election_leave(e, rc);
}

/* Keep a copy of the value; the caller writes the word. */
static int election_keep_value(zke_election *e, const void *data, int len) {
  char *copy = NULL;
  if (len) copy = zke_recipe_copy(e->l.r.z, data, (size_t)len);
  if (len && !copy) return zke_recipe_fail(ZKE_NOMEM, "no memory for a value");
  zke_free(e->value);
  e->value = copy;
  e->value_len = len;
  return ZKE_OK;
}

/* If the candidate does not lead yet, or is not ready, the value is kept for
 * later. */
int zke_election_set(zke_election *e, const void *data, int len,
                     int64_t deadline_ms) {
  if (len < 0 || (!data && len))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a value of length %d", len);
  int rc = zke_recipe_enter_by((zke_recipe *)e, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = election_keep_value(e, data, len);
  if (rc == ZKE_OK && e->ready && e->l.state == ZKE_LINE_HELD)
    rc = election_change(e, deadline_ms);
  return election_leave(e, rc);
}

/* ---- looking ---- */

/* For a program without a dispatch: looks as after an event. */
int zke_election_step(zke_election *e) {
  int rc = zke_recipe_enter((zke_recipe *)e);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&e->l.r, election_step(&e->l.r));
}

/* A listener hears one state after the other; while it runs it sees the state
 * of its event, not the last. */
int zke_election_state(zke_election *e) {
  if (zke_recipe_enter_memory((zke_recipe *)e) != ZKE_OK)
    return ZKE_ELECTION_FAILED;
  const zke_recipe *r = &e->l.r;
  bool told = r->telling && pthread_equal(r->teller, pthread_self());
  int state = told ? e->shown : e->state;
  zke_recipe_leave(&e->l.r, ZKE_OK);
  return state;
}

/* The zxid of taking office. */
int64_t zke_election_token(zke_election *e) {
  return zke_line_api_token((zke_line *)e);
}

/* Asks the file.  A leader that finds itself out tells its listener. */
int zke_election_check(zke_election *e) {
  int rc = zke_recipe_enter((zke_recipe *)e);
  if (rc != ZKE_OK) return rc;
  return election_leave(e, zke_line_check(&e->l));
}

/* Makes the program's multi fail unless the candidate leads at that moment. */
int zke_election_op(zke_election *e, zke_op *op) {
  if (!op) return zke_recipe_fail(ZKE_BADARGUMENTS, "op is NULL");
  int rc = zke_recipe_enter((zke_recipe *)e);
  if (rc != ZKE_OK) return rc;
  return election_leave(e, zke_line_check_op(&e->l, op));
}

/* Reads the line without an object; nothing is made. */
int zke_election_parties(zke *z, const char *path, zke_party_list **list_out) {
  return zke_line_parties(z, path, 1, list_out);
}

/* ---- observing ----
 *
 * An observer reads and watches only the word, so the number of candidates does
 * not matter, and candidates do not know of observers. */

/* The mutex of r guards what changes. */
struct zke_observer {
  zke_recipe r;
  char *leader;  /* path of the znode */
  bool started;  /* it looks, and must be told */
  bool known;    /* it has looked at least once */
  int64_t token; /* the leader's, or 0 */
  char *name;    /* the leader's, and after its NUL the value; or NULL */
  char *value;   /* in the block of name */
  int len;       /* bytes of value */
  bool waiting;  /* a blocking call runs */
  int want;      /* it waits for: 1 a leader, 0 none */
  zke_observer_fn listener;
  void *context;
};

/* Is this word known already? */
static bool observer_knows(const zke_observer *o, const leader_word *w) {
  if (!o->known || o->token != w->token) return false;
  return !w->token ||
         (o->len == w->len && memcmp(o->value, w->value, (size_t)w->len) == 0);
}

/* Note and tell the present leader; data that is NULL, or not a word, means
 * none.  If memory is short nothing is noted, and the step is repeated. */
static int observer_note(zke_observer *o, const char *data, int len) {
  leader_word w = word_read(data, len);
  size_t size = w.token ? w.name_len + 1 + (size_t)w.len : 0;
  char *copy = NULL;
  if (observer_knows(o, &w)) return ZKE_OK;
  if (w.token) {
    copy = zke_alloc(o->r.z, size + 1);
    if (!copy) return ZKE_NOMEM;
    memcpy(copy, w.name, w.name_len);
    if (w.len) memcpy(copy + w.name_len + 1, w.value, (size_t)w.len);
  }
  if (!zke_recipe_tell(&o->r, copy ? 1 : 0, w.token, copy, (int)size)) {
    zke_free(copy);
    return ZKE_NOMEM;
  }
  zke_free(o->name);
  o->name = copy;
  o->value = copy ? copy + w.name_len + 1 : NULL;
  o->len = w.len;
  o->token = w.token;
  o->known = true;
  return ZKE_OK;
}

/* Watch the word if it exists, otherwise for its creation.  It may come between
 * the two reads; then the first is repeated. */
static int observer_step(zke_recipe *r) {
  zke_observer *o = (zke_observer *)r;
  char *data = NULL;
  int len = 0;
  int rc;
  if (!o->started) return ZKE_OK;
  do {
    rc = zke_get(r->z, o->leader, zke_recipe_watcher, r, &data, &len, NULL);
    if (rc == ZKE_NONODE) { /* wait for its coming */
      rc = zke_exists(r->z, o->leader, zke_recipe_watcher, r, NULL);
      if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
    }
  } while (zke_recipe_again(r->z, &rc));
  if (rc == ZKE_NONODE) rc = ZKE_OK;
  if (rc == ZKE_OK) rc = observer_note(o, data, len);
  zke_free(data);
  return rc;
}

/* The note's text is the name, a NUL, and the value. */
static void observer_deliver(zke_recipe *r, int event, int64_t number,
                             const char *text, int len) {
  zke_observer *o = (zke_observer *)r;
  size_t name = event ? strlen(text) + 1 : 0; /* the value is after it */
  if (!o->listener) return;
  if (event)
    o->listener(o, text, number, text + name, len - (int)name, o->context);
  else
    o->listener(o, NULL, 0, NULL, 0, o->context);
}

/* Without a session nothing is known. */
static void observer_ended(zke_recipe *r) {
  observer_note((zke_observer *)r, NULL, 0);
}

/* Release the object's memory; an observer has no znode. */
static void observer_destroy(zke_recipe *r) {
  zke_observer *o = (zke_observer *)r;
  zke_free(o->leader);
  zke_free(o->name);
}

static const zke_recipe_class observer_class = {.name = "election",
                                                .step = observer_step,
                                                .ended = observer_ended,
                                                .deliver = observer_deliver,
                                                .destroy = observer_destroy};

/* An existing path must be an election's; an observer makes nothing. */
static int observer_place(zke *z, const char *path) {
  int rc = zke_exists(z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  return zke_recipe_place(z, path, ELECTION_PLACE, ZKE_CONTAINER, NULL,
                          ZKE_FOREVER);
}

/* An observer makes no znode, and no process sees it. */
int zke_observer_new(zke *z, const char *path,
                     const zke_observer_options *options,
                     zke_observer **o_out) {
  zke_recipe *r = NULL;
  zke_observer_options given;
  int rc = zke_recipe_options(o_out, options, &given, zke_observer_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &observer_class, sizeof(zke_observer), &r);
  if (rc != ZKE_OK) return rc;
  zke_observer *o = (zke_observer *)r;
  o->listener = given.listener;
  o->context = given.context;
  o->leader = zke_recipe_path(z, path, ELECTION_LEADER);
  if (o->leader)
    *o_out = o;
  else
    zke_recipe_free(r);
  return *o_out ? ZKE_OK : ZKE_NOMEM;
}

/* Forgets the watch; the election does not notice. */
void zke_observer_free(zke_observer *o) { zke_recipe_free((zke_recipe *)o); }

/* Begin to look, unless that was done.  A failure changes nothing. */
static int observer_start(zke_observer *o) {
  if (o->started) return ZKE_OK;
  int rc = observer_place(o->r.z, o->r.path);
  if (rc != ZKE_OK) return rc;
  o->started = true;
  rc = zke_recipe_look(&o->r);
  if (rc != ZKE_OK) o->started = false;
  return rc;
}

/* A second call does nothing. */
int zke_observer_start(zke_observer *o) {
  int rc = zke_recipe_enter((zke_recipe *)o);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&o->r, observer_start(o));
}

/* For a program without a dispatch. */
int zke_observer_step(zke_observer *o) {
  return zke_recipe_step((zke_recipe *)o);
}

/* Copies of the known name and value, if asked for. */
static int observer_copy(const zke_observer *o, char **name_out,
                         char **value_out) {
  char *name = NULL, *value = NULL;
  bool wants_name = o->name && name_out, wants_value = o->name && value_out;
  if (wants_name) name = zke_recipe_copy(o->r.z, o->name, strlen(o->name));
  if (wants_value) value = zke_recipe_copy(o->r.z, o->value, (size_t)o->len);
  if ((wants_name && !name) || (wants_value && !value)) {
    zke_free(name);
    zke_free(value);
    return zke_recipe_fail(ZKE_NOMEM, "no memory for a leader's name");
  }
  if (name_out) *name_out = name;
  if (value_out) *value_out = value;
  return ZKE_OK;
}

/* From memory, as of the last dispatch. */
int zke_observer_leader(zke_observer *o, char **name_out, int64_t *token_out,
                        char **value_out, int *len_out) {
  int rc = zke_recipe_enter((zke_recipe *)o);
  if (rc != ZKE_OK) return rc;
  if (!o->started)
    rc = zke_recipe_fail(ZKE_MISUSE, "the observer of %s was not started",
                         o->r.path);
  if (rc == ZKE_OK) rc = observer_copy(o, name_out, value_out);
  if (rc == ZKE_OK && token_out) *token_out = o->token;
  if (rc == ZKE_OK && len_out) *len_out = o->len;
  return zke_recipe_leave(&o->r, rc);
}

/* Is there a leader, or none, as the blocking call wants?  An observer whose
 * session has ended sees no leader, but does not know that there is none. */
static int observer_is_so(zke_recipe *r) {
  const zke_observer *o = (zke_observer *)r;
  if (r->ended) return ZKE_NOT_YET;
  return (o->name != NULL) == (o->want != 0) ? ZKE_OK : ZKE_NOT_YET;
}

/* Wait until there is a leader, or, with want of 0, until there is none.  One
 * blocking call an object, since the object has only one `want`. */
int zke_observer_wait(zke_observer *o, int want, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)o, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (o->waiting) {
    rc = zke_recipe_fail(
        ZKE_MISUSE, "another thread waits with this object for %s", o->leader);
    return zke_recipe_leave(&o->r, rc);
  }
  o->waiting = true;
  o->want = want;
  rc = observer_start(o);
  if (rc == ZKE_OK) rc = zke_recipe_await(&o->r, observer_is_so, deadline_ms);
  o->waiting = false;
  return zke_recipe_leave(&o->r, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_observer_cancel(zke_observer *o) {
  return zke_recipe_cancel((zke_recipe *)o);
}
