/* double_barrier.c - N parties begin together and end together
 *
 * A party knows only what one snapshot of the tree shows:
 *
 *     a party's znode   its child of `ready`
 *     version 0         -                      it waits for a round
 *     there             there                  it is inside
 *     there             -                      it has left, waits for the rest
 *     -                 there                  it died inside: broken
 *     -                 -                      it has left, and is gone
 *
 * The steps.  Each change is one transaction.  If a change depends on a
 * snapshot, it fails when the tree has changed since; then the party looks
 * again.
 *
 *   enter     1. Make the own znode, ephemeral and sequential (gate_join).
 *             2. Watch it; if its version is above 0 the round has begun: take
 *                the list of its members from `ready` (enter_round).  Inside.
 *             3. Fewer than N wait: sleep until the own znode changes.
 *             4. N wait: begin the round for the first N of them
 *                (zke_round_begin).  In one step create `ready`, which lists
 *                them, a child of it for each, and write "inside" into each
 *                znode, at version 0.  Go to 2.
 *             5. `ready` exists: a round runs.  If no living member is inside,
 *                remove it (zke_round_remove) and go to 2; else watch one such
 *                member, and sleep (enter_behind).
 *   withdraw  Delete the own znode at version 0 (gate_withdraw).  If that is
 *             ZKE_BADVERSION, the round has begun: the party is inside.
 *   leave     1. Delete the own child of `ready`: together with a check that
 *                another member's child exists, or, as the last one, together
 *                with `ready` (zke_round_depart).
 *             2. Sleep until `ready` has gone (all have left), or a member is
 *                seen dead (broken).
 *             3. Delete the own znode (stay_end).
 *   broken    A party that sees a dead member writes "broken" into `ready`,
 *             which wakes all that watch it (stay_broken).
 *
 * Why no party is counted and yet out, or inside and not counted: the round's
 * beginning and a withdrawal both require version 0 of the same znode, so only
 * one of them can succeed.
 *
 * Why a leave does not end too early: `ready` goes only in the step of the last
 * member, and its check fails while another child exists.  Why it does not
 * hang: if a member dies inside, its child stays without a znode, and each
 * party in leave watches the directory, so it sees that.
 *
 * A death: before step 4 of enter the party's znode goes, and nothing else.
 * Between step 4 of enter and step 1 of leave the party counts as dead inside,
 * after that as one that had left.  If all members of a round have died, the
 * next round removes it (step 5 of enter).
 *
 * A lost reply: for enter's 1, the guid tells; for all others, the next look
 * shows whether the step was made.
 *
 * Invariants:
 *  1. znode and name are set exactly while the party is WAITING, INSIDE or
 *     LEAVING.
 *  2. During that time, everything that can change its snapshot is watched, or
 *     `changed` is set.
 *  3. members, round, broken and dead belong to one round: the present or the
 *     last.
 *
 * The reads and the transactions are in part/double_barrier_tree.c, the lists
 * and sentences for people in part/double_barrier_list.c.  Names here: gate_ is
 * the object; enter_ is a look while waiting, stay_ one while inside or
 * leaving.  Begin with enter_look(), then stay_look(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double_barrier.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "part/double_barrier_list.h"
#include "part/double_barrier_tree.h"
#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

enum { PATIENCE = 250 /* ms for which a step in a dispatch is repeated */ };

/* One party.  The mutex of r guards the members that change: from state on. */
struct zke_double_barrier {
  zke_recipe r;
  zke_gate gate; /* z and path are those of r */
  zke_double_barrier_fn listener;
  void *context;
  int state;               /* ZKE_DOUBLE_BARRIER_… */
  bool calling;            /* a blocking call runs */
  bool hasty;              /* it does not wait for the others to leave */
  char *znode;             /* path of the own znode, or NULL */
  const char *name;        /* its last part, in znode */
  int64_t round;           /* zxid of the round, while inside and afterwards */
  bool broken;             /* that round is broken */
  char dead[128];          /* the member that died in it; "": not known */
  bool told_in;            /* enter has returned for this round */
  bool told_out;           /* so has leave */
  zke_party_list *members; /* of that round, or NULL */
  int outcome;             /* ZKE_…, the result of the last leave */
};

/* ---- watching ----
 *
 *   waiting   the own znode; if another round runs, also `ready`, and the znode
 *             and child of one member inside
 *   inside    the own znode, `ready`, and the next member's znode in the ring
 *   leaving   the same, the ring up to the next member in leave, and the
 *             directory
 */

/* Watch a znode for its end and for changes of its data. */
static int gate_watch(zke_double_barrier *b, const char *path, zke_stat *stat) {
  return zke_get(b->r.z, path, zke_recipe_watcher, &b->r, NULL, NULL, stat);
}

/* Watch another party's znode, or its child of `ready`.  ZKE_LOOK_AGAIN: it has
 * gone. */
static int gate_watch_party(zke_double_barrier *b, const char *directory,
                            const zke_party *m) {
  char *path = zke_recipe_path(b->r.z, directory, m->name);
  int rc = path ? gate_watch(b, path, NULL) : ZKE_NOMEM;
  zke_free(path);
  return zke_recipe_faster(rc);
}

/* Watch `ready` of a round.  ZKE_LOOK_AGAIN: it has gone, or is another
 * round's. */
static int gate_watch_ready(zke_double_barrier *b, int64_t round) {
  zke_stat stat;
  int rc = zke_recipe_faster(gate_watch(b, b->gate.ready, &stat));
  return rc == ZKE_OK && stat.czxid != round ? ZKE_LOOK_AGAIN : rc;
}

/* Remove a watch.  A watch that stays only wakes this process for nothing, so
 * failures do not matter. */
static void gate_unwatch(zke_double_barrier *b, const char *path, int kind) {
  zke_remove_watch(b->r.z, path, kind, zke_recipe_watcher, &b->r);
}

/* Remove the remaining watches of the round. */
static void gate_unwatch_round(zke_double_barrier *b) {
  gate_unwatch(b, b->gate.ready, ZKE_WATCH_DATA);
  gate_unwatch(b, b->r.path, ZKE_WATCH_CHILD);
  for (int i = 0; b->members && i < b->members->count; i++) {
    char *path = zke_recipe_path(b->r.z, b->r.path, b->members->data[i].name);
    if (path) gate_unwatch(b, path, ZKE_WATCH_DATA);
    zke_free(path);
  }
}

/* ---- states ----
 *
 *   OUT -> WAITING      the own znode is made (gate_join)
 *   WAITING -> INSIDE   a look finds that the round has begun (enter_round)
 *   WAITING -> OUT      withdrawn, before a round has begun (gate_withdraw)
 *   INSIDE -> LEAVING   the own child of `ready` is deleted (gate_depart)
 *   INSIDE -> OUT       that has failed (depart_give_up)
 *   LEAVING -> OUT      all have left, the round is broken, or the time of the
 *                       call is over (stay_end)
 *   engaged -> LOST     the own znode or the session has gone (gate_lose)
 *   LOST -> OUT         a call has returned that, and the session still exists
 */

/* Queue an event for the listener, with its round. */
static void gate_tell(zke_double_barrier *b, int event) {
  zke_recipe_tell(&b->r, event, b->round, NULL, 0);
}

/* Forget the own znode: the party is OUT, or LOST. */
static void gate_out(zke_double_barrier *b, int state) {
  b->state = state;
  zke_free(b->znode);
  b->znode = NULL;
  b->name = NULL;
}

/* Delete the party's znode, now or later.  The party is out after this. */
static int gate_discard(zke_double_barrier *b) {
  return zke_recipe_discard(b->r.z, b->znode, ZKE_EPHEMERAL, 0);
}

/* The own znode has gone, or the session. */
static void gate_lose(zke_double_barrier *b) {
  gate_out(b, ZKE_DOUBLE_BARRIER_LOST);
  gate_tell(b, ZKE_DOUBLE_BARRIER_LOST);
}

/* Is it engaged: does it take part in a round, or wait for one? */
static bool gate_engaged(const zke_double_barrier *b) {
  return b->state == ZKE_DOUBLE_BARRIER_WAITING ||
         b->state == ZKE_DOUBLE_BARRIER_INSIDE ||
         b->state == ZKE_DOUBLE_BARRIER_LEAVING;
}

/* Report that the place was taken away; returns ZKE_LOST. */
static int gate_lost(const zke_double_barrier *b) {
  return zke_recipe_fail(
      ZKE_LOST, "the place at the double barrier %s was taken away", b->r.path);
}

/* ---- entering ----
 *
 * A look of a waiting party takes one of the steps 2 to 5 of enter (see the
 * head).  ZKE_LOOK_AGAIN: the tree has changed, by this step or by others, and
 * gate_look() calls it again.  ZKE_OK: nothing to do until a watch fires.  No
 * change is missed between two looks: a watch is set before its read, or the
 * watch's own read shows that something has changed since.
 */

/* The own znode shows that the round has begun: read the round.  If memory is
 * short the step is repeated; the state stays WAITING until the members are
 * known.  ZKE_LOOK_AGAIN: inside; look again as a member. */
static int enter_round(zke_double_barrier *b, int64_t round) {
  zke_picture p;
  zke_party_list *members = NULL;
  int rc = zke_picture_take(&p, &b->gate);
  if (rc == ZKE_OK && p.round != round) {
    /* somebody deleted a node that only members may delete */
    rc = gate_discard(b);
    gate_lose(b);
  } else if (rc == ZKE_OK) {
    rc = zke_parties_copy(b->r.z, p.members, p.count, &members);
  }
  zke_picture_clear(&p);
  if (!members) return rc;
  zke_free(b->members);
  b->members = members;
  b->round = round;
  b->broken = false;
  b->dead[0] = '\0';
  b->state = ZKE_DOUBLE_BARRIER_INSIDE;
  gate_tell(b, ZKE_DOUBLE_BARRIER_ENTERED);
  return ZKE_LOOK_AGAIN;
}

/* There are enough parties, but a round runs: wait for its end, or remove it if
 * no living member is inside, since it cannot continue.  (Members in leave may
 * be stopped: do not wait for them.)  Watch one member inside, for its death
 * and its leaving; after that there may be another one to watch.  So a waiting
 * party is woken about N times at most, one after the other. */
static int enter_behind(zke_double_barrier *b) {
  zke_picture p;
  int rc = zke_picture_take(&p, &b->gate);
  const zke_party *staying = zke_picture_first(&p, ZKE_MEMBER_INSIDE);
  if (rc == ZKE_OK && !staying) {
    if (p.round) rc = zke_round_remove(&p);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  } else if (rc == ZKE_OK) {
    rc = gate_watch_ready(b, p.round);
    if (rc == ZKE_OK) rc = gate_watch_party(b, b->gate.ready, staying);
    if (rc == ZKE_OK) rc = gate_watch_party(b, b->r.path, staying);
  }
  zke_picture_clear(&p);
  return rc;
}

/* A look while waiting: has the round begun, can it begin?  The own znode is
 * watched before the arrivals are read: a later party sees this one, and begins
 * the round, which fires the watch. */
static int enter_look(zke_double_barrier *b) {
  zke_arrivals a;
  zke_stat own;
  int rc = gate_watch(b, b->znode, &own);
  if (rc == ZKE_NONODE) {
    gate_lose(b);
    return ZKE_OK;
  }
  if (rc != ZKE_OK) return rc;
  if (own.version > 0) return enter_round(b, own.mzxid);
  rc = zke_arrivals_read(&a, &b->gate, b->gate.parties);
  if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  if (rc == ZKE_OK && a.count >= b->gate.parties) {
    rc = zke_round_begin(&a);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
    if (rc == ZKE_NODEEXISTS) rc = enter_behind(b);
  }
  zke_arrivals_clear(&a);
  return rc;
}

/* ---- inside, and leaving ----
 *
 * A look of a member.  In leave, if `ready` has gone, all have left.  A round
 * is broken if a member's child exists without its znode, or if `ready` goes
 * while this party is inside.  A look takes out only a member in leave; a
 * member inside is told that the round is broken, and stays until it leaves.
 */

/* The last member to go removes a broken round: no other looks at `ready` any
 * more.  If it cannot, the next round does. */
static void stay_tidy(zke_double_barrier *b) {
  zke_picture p;
  if (zke_picture_take(&p, &b->gate) == ZKE_OK && p.round == b->round &&
      !zke_picture_first(&p, ZKE_MEMBER_INSIDE) &&
      !zke_picture_first(&p, ZKE_MEMBER_LEAVING))
    zke_round_remove(&p);
  zke_picture_clear(&p);
}

/* Leave the round with that outcome.  Returns ZKE_OK. */
static int stay_end(zke_double_barrier *b, int outcome) {
  gate_unwatch_round(b);
  gate_discard(b);
  gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
  b->outcome = outcome;
  if (outcome == ZKE_OK)
    gate_tell(b, ZKE_DOUBLE_BARRIER_ALL_LEFT);
  else
    stay_tidy(b);
  return ZKE_OK;
}

/* A member has died, or `ready` has gone: write the first dead member into
 * `ready`, unless it says so already; tell the listener once; and go out, if
 * this party is in leave. */
static int stay_broken(zke_double_barrier *b, const zke_picture *p) {
  const zke_party *dead = zke_picture_first(p, ZKE_MEMBER_DEAD);
  if (p->round == b->round && !p->broken) {
    int rc = zke_round_break(p, dead);
    if (rc != ZKE_OK) return rc;
  }
  if (!b->broken) gate_tell(b, ZKE_DOUBLE_BARRIER_BROKEN);
  if (dead)
    snprintf(b->dead, sizeof b->dead, "%s (pid %" PRId64 ")", dead->identity,
             dead->pid);
  b->broken = true;
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) return stay_end(b, ZKE_BROKEN);
  return zke_recipe_faster(gate_watch(b, b->znode, NULL));
}

/* Watch the members after the own place in the ring.  A party inside watches
 * just the next one that has a znode.  A party in leave watches up to the next
 * one in leave, which watches on from there.  So somebody in leave watches each
 * member inside, and tells its death immediately, unless it is stopped. */
static int stay_watch_ring(zke_double_barrier *b, const zke_picture *p) {
  int own = 0, rc = ZKE_OK;
  while (own < p->count && strcmp(p->members[own].name, b->name) != 0) own++;
  for (int i = 1; i < p->count && rc == ZKE_OK; i++) {
    const zke_party *m = &p->members[(own + i) % p->count];
    enum zke_member_state state = zke_picture_state(p, m);
    if (state == ZKE_MEMBER_GONE || state == ZKE_MEMBER_DEAD) continue;
    rc = gate_watch_party(b, b->r.path, m);
    if (b->state == ZKE_DOUBLE_BARRIER_INSIDE || state == ZKE_MEMBER_LEAVING)
      break;
  }
  return rc;
}

/* Set the watches of a party inside or in leave.  In leave it also watches the
 * directory's children, so it sees a death even if its neighbour in the ring is
 * stopped.  A call that does not wait needs none. */
static int stay_watch(zke_double_barrier *b, const zke_picture *p) {
  if (b->hasty) return ZKE_OK;
  int rc = zke_recipe_faster(gate_watch(b, b->znode, NULL));
  if (rc == ZKE_OK) rc = gate_watch_ready(b, b->round);
  if (rc == ZKE_OK && b->state == ZKE_DOUBLE_BARRIER_LEAVING)
    rc = zke_children(b->r.z, b->r.path, zke_recipe_watcher, &b->r, NULL, NULL);
  return rc == ZKE_OK ? stay_watch_ring(b, p) : rc;
}

/* `ready` has gone after this party had left: all have left, unless the own
 * znode shows that the round was broken, or this party knew it while it was
 * inside. */
static int stay_over(zke_double_barrier *b) {
  char *dead = NULL;
  int rc = zke_round_told(b->r.z, b->znode, &dead);
  if (rc != ZKE_OK) return rc;
  if (dead && !b->broken) {
    snprintf(b->dead, sizeof b->dead, "%s", dead);
    gate_tell(b, ZKE_DOUBLE_BARRIER_BROKEN);
    b->broken = true;
  }
  zke_free(dead);
  return stay_end(b, b->broken ? ZKE_BROKEN : ZKE_OK);
}

/* A look while inside or leaving.  In this order: has the own znode gone; is
 * the round over; is it broken; else watch. */
static int stay_look(zke_double_barrier *b) {
  zke_picture p;
  int rc = zke_picture_take(&p, &b->gate);
  if (rc != ZKE_OK) {
    /* nothing is known */
  } else if (!zke_picture_has(&p, b->name)) {
    gate_lose(b);
  } else if (p.round != b->round && b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    rc = stay_over(b);
  } else if (p.round != b->round || zke_picture_first(&p, ZKE_MEMBER_DEAD)) {
    rc = stay_broken(b, &p);
  } else {
    rc = stay_watch(b, &p);
  }
  zke_picture_clear(&p);
  return rc;
}

/* ---- the object ---- */

/* One look, repeated while the tree changes during it.  The state decides
 * whether it looks at the arrivals or at the round.  For zke_recipe_do(). */
static int gate_look(zke *z, void *arg) {
  zke_double_barrier *b = arg;
  (void)z;
  if (b->state == ZKE_DOUBLE_BARRIER_WAITING) return enter_look(b);
  return gate_engaged(b) ? stay_look(b) : ZKE_OK;
}

/* A blocking call repeats a failed step by itself; in a dispatch it is repeated
 * here for a short time. */
static int gate_step(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  return zke_recipe_do(r->z, gate_look, b,
                       b->calling ? 0 : zke_now(r->z) + PATIENCE);
}

/* An object that took part in nothing hears nothing. */
static void gate_ended(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  if (gate_engaged(b)) gate_lose(b);
}

/* The number is the round. */
static void gate_deliver(zke_recipe *r, int event, int64_t number,
                         const char *text, int len) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  (void)text, (void)len;
  if (b->listener) b->listener(b, event, number, b->context);
}

/* The object is freed.  Inside a round that counts as a death: the others find
 * the round broken. */
static void gate_quit(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  if (!b->znode || gate_discard(b) != ZKE_OK) return;
  if (b->state != ZKE_DOUBLE_BARRIER_WAITING) stay_tidy(b);
}

/* No znode is left at this point: quit has discarded it. */
static void gate_destroy(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  zke_free(b->gate.ready);
  zke_free(b->znode);
  zke_free(b->members);
}

static const zke_recipe_class gate_class = {.name = "double barrier",
                                            .step = gate_step,
                                            .ended = gate_ended,
                                            .deliver = gate_deliver,
                                            .quit = gate_quit,
                                            .destroy = gate_destroy};

/* ---- coming and going ----
 *
 * How a call begins to take part, and how it gives up.  A party that gives up
 * is out, or finds that the round has begun and is inside: its znode never
 * stays to be counted in a round that its program does not know of.
 */

/* Make the own znode.  After that the step does the rest. */
static int gate_join(zke_double_barrier *b, const void *data, int len,
                     int64_t deadline_ms) {
  int rc = zke_round_join(&b->gate, data, len, deadline_ms, &b->znode);
  if (rc != ZKE_OK) return rc;
  b->name = zke_recipe_name(b->znode);
  b->state = ZKE_DOUBLE_BARRIER_WAITING;
  b->told_in = false;
  b->told_out = true;
  b->r.changed = true;
  return ZKE_OK;
}

/* Withdraw.  ZKE_BADVERSION: the round has begun, and the party is in it.
 * After any other failure the znode goes all the same: if the round begins
 * before that, a member dies inside. */
static int gate_withdraw(zke_double_barrier *b) {
  int rc = zke_round_withdraw(b->r.z, b->znode);
  if (rc != ZKE_BADVERSION) {
    if (rc != ZKE_OK) rc = gate_discard(b);
    gate_unwatch(b, b->gate.ready, ZKE_WATCH_DATA);
    gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
  }
  return rc;
}

/* Go out after a failure, and keep its code and sentence; or ZKE_OK: inside
 * after all.  After the session's end there is nothing to do: the party is
 * LOST, and stays so. */
static int enter_give_up(zke_double_barrier *b, int rc) {
  zke_sentence kept;
  if (zke_recipe_has_ended(&b->r, rc) || b->r.ended) return rc;
  zke_recipe_keep(&kept);
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) {
    b->state = ZKE_DOUBLE_BARRIER_OUT;
  } else if (b->state == ZKE_DOUBLE_BARRIER_WAITING) {
    int64_t limit = zke_recipe_grace(b->r.z);
    if (gate_withdraw(b) == ZKE_BADVERSION &&
        zke_recipe_do(b->r.z, gate_look, b, ZKE_FOREVER) != ZKE_OK) {
      gate_discard(b); /* it is unknown whether it is inside */
      gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
    }
    zke_limit(b->r.z, limit);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_INSIDE) return ZKE_OK;
  return zke_recipe_restore(&kept, rc);
}

/* ---- the blocking calls ----
 *
 * A round may begin, and a leave may end, inside a dispatch, before the call
 * that reports it.  told_in: enter has returned for this round, so another
 * enter is a misuse.  told_out is false from the beginning of a leave until a
 * call has returned its result; if none has, the next leave does.
 */

/* Report a misuse; returns ZKE_MISUSE. */
static int gate_misuse(const zke_double_barrier *b, const char *why) {
  return zke_recipe_fail(ZKE_MISUSE, "the double barrier %s: %s", b->r.path,
                         why);
}

/* For zke_recipe_await(): has the round begun? */
static int entered(zke_recipe *r) {
  const zke_double_barrier *b = (const zke_double_barrier *)r;
  if (r->ended || b->state == ZKE_DOUBLE_BARRIER_WAITING) return ZKE_NOT_YET;
  return b->state == ZKE_DOUBLE_BARRIER_LOST ? gate_lost(b) : ZKE_OK;
}

/* Blocks until the round has begun.  The round may have begun just before a
 * call failed: enter_give_up() finds that out, and then the call succeeds. */
static int gate_enter(zke_double_barrier *b, const void *data, int len,
                      int64_t deadline_ms) {
  int rc = ZKE_OK;
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) b->state = ZKE_DOUBLE_BARRIER_OUT;
  if (b->state == ZKE_DOUBLE_BARRIER_OUT) {
    rc = gate_join(b, data, len, deadline_ms);
    if (rc != ZKE_OK) return rc;
  } else if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    return gate_misuse(b, "this object is in leave");
  } else if (b->state != ZKE_DOUBLE_BARRIER_WAITING && b->told_in) {
    return gate_misuse(b, "this object is inside");
  }
  rc = zke_recipe_await(&b->r, entered, deadline_ms);
  if (rc == ZKE_OPERATIONTIMEOUT) rc = zke_parties_say_waiting(&b->gate, rc);
  if (rc != ZKE_OK) rc = enter_give_up(b, rc);
  b->told_in = rc == ZKE_OK;
  return rc;
}

/* For zke_recipe_await(): has the round ended? */
static int left(zke_recipe *r) {
  const zke_double_barrier *b = (const zke_double_barrier *)r;
  if (r->ended || b->state == ZKE_DOUBLE_BARRIER_LEAVING) return ZKE_NOT_YET;
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) return gate_lost(b);
  return ZKE_OK;
}

/* Leaving has failed: out all the same, by deleting the own znode, as if the
 * party had died inside.  So no party waits for a member that has given up, and
 * none is told that all is well.  Returns rc.  After the session's end there is
 * nothing to do. */
static int depart_give_up(zke_double_barrier *b, int rc) {
  zke_sentence kept;
  if (rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED) return rc;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(b->r.z);
  gate_unwatch_round(b);
  gate_discard(b);
  zke_limit(b->r.z, limit);
  gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
  b->told_out = true;
  return zke_recipe_restore(&kept, rc);
}

/* Report that the object is in no round; returns ZKE_LOST. */
static int gate_not_inside(const zke_double_barrier *b) {
  return zke_recipe_fail(ZKE_LOST, "this object is in no round at %s",
                         b->r.path);
}

/* Leave; the step waits. */
static int gate_depart(zke_double_barrier *b) {
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) {
    b->state = ZKE_DOUBLE_BARRIER_OUT;
    return gate_lost(b);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) return ZKE_OK;
  if (b->state != ZKE_DOUBLE_BARRIER_INSIDE) return gate_not_inside(b);
  int rc = zke_round_depart(&b->gate, b->name);
  if (rc != ZKE_OK) return depart_give_up(b, rc);
  b->state = ZKE_DOUBLE_BARRIER_LEAVING;
  b->told_out = false;
  b->r.changed = true;
  return ZKE_OK;
}

/* Name the dead member, as far as it is known; returns ZKE_BROKEN. */
static int gate_say_broken(const zke_double_barrier *b) {
  return zke_recipe_fail(ZKE_BROKEN,
                         "the round at %s is broken: %s died inside", b->r.path,
                         b->dead[0] ? b->dead : "somebody");
}

/* The result of the leaving. */
static int stay_outcome(zke_double_barrier *b) {
  b->told_out = true;
  return b->outcome == ZKE_BROKEN ? gate_say_broken(b) : b->outcome;
}

/* Leave, and wait for the end of the round, which comes for all together.  If
 * the deadline comes first the party is out all the same: the others see that
 * its child went before its znode, so it had left.  If a leave was started
 * before, and has ended, return its result. */
static int gate_leave(zke_double_barrier *b, int64_t deadline_ms) {
  b->hasty = deadline_ms <= zke_now(b->r.z);
  if (b->state == ZKE_DOUBLE_BARRIER_OUT && !b->told_out)
    return stay_outcome(b); /* it was started and has ended */
  int rc = gate_depart(b);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_await(&b->r, left, deadline_ms);
  if (rc == ZKE_OK) return stay_outcome(b);
  if (zke_recipe_has_ended(&b->r, rc) || b->r.ended) return rc; /* LOST */
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    if (rc == ZKE_OPERATIONTIMEOUT)
      rc = zke_parties_say_inside(&b->gate, rc, b->round);
    zke_sentence kept;
    zke_recipe_keep(&kept);
    stay_end(b, rc);
    b->told_out = true;
    return zke_recipe_restore(&kept, rc);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) b->state = ZKE_DOUBLE_BARRIER_OUT;
  return rc;
}

/* Leave a round without waiting, whatever becomes of it.  Fails only if the
 * session has ended. */
static int gate_pass(zke_double_barrier *b) {
  int rc = b->state == ZKE_DOUBLE_BARRIER_INSIDE ? gate_depart(b) : ZKE_OK;
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    stay_end(b, ZKE_OPERATIONTIMEOUT);
    b->told_out = true;
  }
  return b->state == ZKE_DOUBLE_BARRIER_INSIDE ? rc : ZKE_OK;
}

/* Enter, copy the list of the round's parties, and leave without waiting.  An
 * object that is still inside a round leaves that one first. */
static int gate_meet(zke_double_barrier *b, const void *data, int len,
                     int64_t deadline_ms, zke_party_list **list) {
  int rc = gate_pass(b);
  if (rc == ZKE_OK) rc = gate_enter(b, data, len, deadline_ms);
  if (rc != ZKE_OK) return rc;
  zke_parties_copy(b->r.z, b->members->data, b->members->count, list);
  rc = gate_pass(b);
  if (rc != ZKE_OK || *list) return rc;
  return zke_recipe_fail(ZKE_NOMEM, "no memory for a list");
}

/* ---- the interface ---- */

/* Begin a call, one at a time; deadline_ms: NULL for one that does not wait. */
static int gate_call(zke_double_barrier *b, const int64_t *deadline_ms) {
  zke_recipe *r = (zke_recipe *)b;
  int rc =
      deadline_ms ? zke_recipe_enter_by(r, *deadline_ms) : zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  if (b->calling)
    return zke_recipe_leave(&b->r, gate_misuse(b, "another call runs"));
  b->calling = deadline_ms != NULL;
  return ZKE_OK;
}

/* End a call that could wait: another one may begin. */
static int gate_return(zke_double_barrier *b, int rc) {
  b->calling = false;
  b->hasty = false;
  return zke_recipe_leave(&b->r, rc);
}

/* ZKE_BADARGUMENTS: a length below 0, or one without data. */
static int check_data(const void *data, int len) {
  if (len >= 0 && (data || len == 0)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", len);
}

/* `told_out` begins as true: no leave has been begun yet. */
int zke_double_barrier_new(zke *z, const char *path, int parties,
                           const zke_double_barrier_options *options,
                           zke_double_barrier **barrier_out) {
  zke_double_barrier_options o;
  zke_recipe *r = NULL;
  int rc =
      zke_recipe_options(barrier_out, options, &o, zke_double_barrier_options);
  if (rc != ZKE_OK) return rc;
  if (parties < 1 || parties > ZKE_DOUBLE_BARRIER_MOST)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a barrier for %d parties",
                           parties);
  rc = zke_recipe_new(z, path, &gate_class, sizeof(zke_double_barrier), &r);
  if (rc != ZKE_OK) return rc;
  zke_double_barrier *b = (zke_double_barrier *)r;
  b->gate = (zke_gate){.z = z, .path = r->path};
  b->gate.parties = parties;
  b->told_out = true;
  b->listener = o.listener;
  b->context = o.context;
  b->gate.ready = zke_recipe_path(z, path, "ready");
  if (!b->gate.ready) {
    zke_recipe_free(r);
    return zke_recipe_fail(ZKE_NOMEM, "no memory for a double barrier");
  }
  *barrier_out = b;
  return ZKE_OK;
}

/* Inside a round this counts as a death (gate_quit()). */
void zke_double_barrier_free(zke_double_barrier *barrier) {
  zke_recipe_free((zke_recipe *)barrier);
}

/* The token is read before the mutex is dropped. */
int zke_double_barrier_enter(zke_double_barrier *barrier, const void *data,
                             int len, int64_t deadline_ms, int64_t *token_out) {
  int rc = check_data(data, len);
  if (rc == ZKE_OK) rc = gate_call(barrier, &deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = gate_enter(barrier, data, len, deadline_ms);
  if (rc == ZKE_OK && token_out) *token_out = barrier->round;
  return gate_return(barrier, rc);
}

/* If the deadline has passed, it leaves without waiting. */
int zke_double_barrier_leave(zke_double_barrier *barrier, int64_t deadline_ms) {
  int rc = gate_call(barrier, &deadline_ms);
  if (rc != ZKE_OK) return rc;
  return gate_return(barrier, gate_leave(barrier, deadline_ms));
}

/* Enter and leave in one call, and return what all had brought.  The list is
 * made while inside, since the round's data goes with the last to leave. */
int zke_double_barrier_meet(zke_double_barrier *barrier, const void *data,
                            int len, int64_t deadline_ms,
                            zke_party_list **list_out, int64_t *token_out) {
  zke_party_list *list = NULL;
  int rc = check_data(data, len);
  if (rc == ZKE_OK) rc = gate_call(barrier, &deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = gate_meet(barrier, data, len, deadline_ms, &list);
  if (rc == ZKE_OK && token_out) *token_out = barrier->round;
  rc = gate_return(barrier, rc);
  if (rc == ZKE_OK && list_out)
    *list_out = list;
  else
    zke_free(list);
  return rc;
}

/* Joins, and leaves the rest to dispatching. */
int zke_double_barrier_start(zke_double_barrier *barrier, const void *data,
                             int len) {
  int rc = check_data(data, len);
  if (rc == ZKE_OK) rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  if (barrier->state == ZKE_DOUBLE_BARRIER_LOST)
    barrier->state = ZKE_DOUBLE_BARRIER_OUT;
  if (barrier->state != ZKE_DOUBLE_BARRIER_OUT) {
    rc = gate_misuse(barrier, "this object is in use");
    return gate_return(barrier, rc);
  }
  rc = gate_join(barrier, data, len, ZKE_FOREVER);
  if (rc == ZKE_OK) {
    rc = zke_recipe_look(&barrier->r);
    if (rc != ZKE_OK) rc = enter_give_up(barrier, rc);
  }
  return gate_return(barrier, rc);
}

/* Withdraws, unless the round began first: then the others count on this party,
 * and the call returns ZKE_HELD. */
int zke_double_barrier_stop(zke_double_barrier *barrier) {
  int rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  if (barrier->state == ZKE_DOUBLE_BARRIER_WAITING) {
    rc = gate_withdraw(barrier);
    if (rc == ZKE_BADVERSION) rc = zke_recipe_look(&barrier->r);
  } else if (barrier->state != ZKE_DOUBLE_BARRIER_INSIDE) {
    rc = zke_recipe_fail(ZKE_LOST, "this object does not wait at %s",
                         barrier->r.path);
  }
  if (rc == ZKE_OK && barrier->state == ZKE_DOUBLE_BARRIER_INSIDE)
    rc =
        zke_recipe_fail(ZKE_HELD, "the round at %s has begun", barrier->r.path);
  return gate_return(barrier, rc);
}

/* Departs, and leaves the end to dispatching. */
int zke_double_barrier_leave_start(zke_double_barrier *barrier) {
  int rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  rc = gate_depart(barrier);
  if (rc == ZKE_OK) rc = zke_recipe_look(&barrier->r);
  return gate_return(barrier, rc);
}

/* For a program without a dispatch. */
int zke_double_barrier_step(zke_double_barrier *barrier) {
  int rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  return gate_return(barrier, zke_recipe_look(&barrier->r));
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_double_barrier_cancel(zke_double_barrier *barrier) {
  return zke_recipe_cancel((zke_recipe *)barrier);
}

/* From memory; an object that cannot be entered is not inside. */
int zke_double_barrier_state(zke_double_barrier *barrier) {
  if (zke_recipe_enter_memory((zke_recipe *)barrier) != ZKE_OK)
    return ZKE_DOUBLE_BARRIER_LOST;
  int state = barrier->state;
  zke_recipe_leave(&barrier->r, ZKE_OK);
  return state;
}

/* The round, which also stays after its end. */
int64_t zke_double_barrier_token(zke_double_barrier *barrier) {
  if (zke_recipe_enter_memory((zke_recipe *)barrier) != ZKE_OK) return 0;
  int64_t round = barrier->round;
  zke_recipe_leave(&barrier->r, ZKE_OK);
  return round;
}

/* Looks first, so it sees a round that was broken a moment ago. */
int zke_double_barrier_check(zke_double_barrier *barrier) {
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  if (gate_engaged(barrier)) rc = zke_recipe_look(&barrier->r);
  if (rc == ZKE_OK && barrier->broken)
    rc = gate_say_broken(barrier);
  else if (rc == ZKE_OK && barrier->state != ZKE_DOUBLE_BARRIER_INSIDE)
    rc = gate_not_inside(barrier);
  return zke_recipe_leave(&barrier->r, rc);
}

/* The members of the round, as they were when it began. */
int zke_double_barrier_list(zke_double_barrier *barrier,
                            zke_party_list **list_out) {
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  const zke_party_list *members = barrier->members;
  rc = zke_parties_copy(barrier->r.z, members ? members->data : NULL,
                        members ? members->count : 0, list_out);
  return zke_recipe_leave(&barrier->r, rc);
}

/* While waiting, only the number of missing parties is known; while inside, the
 * members that have not left. */
int zke_double_barrier_missing(zke_double_barrier *barrier,
                               zke_party_list **list_out, int *count_out) {
  zke_party_list *list = NULL;
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  bool waits = barrier->state == ZKE_DOUBLE_BARRIER_WAITING;
  rc = waits ? zke_parties_waiting(&barrier->gate, &list)
             : zke_parties_inside(&barrier->gate, barrier->round, &list);
  if (rc == ZKE_OK) {
    int missing = waits ? barrier->gate.parties - list->count : list->count;
    if (count_out) *count_out = missing > 0 ? missing : 0;
    if (waits) list->count = 0;
    if (list_out)
      *list_out = list;
    else
      zke_free(list);
  }
  return zke_recipe_leave(&barrier->r, rc);
}

/* For a look from outside, without an object. */
int zke_double_barrier_parties(zke *z, const char *path,
                               zke_party_list **list_out) {
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_exists(z, path, NULL, NULL, NULL); /* checks the path */
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  return zke_parties_all(z, path, list_out);
}
