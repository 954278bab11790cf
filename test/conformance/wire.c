/* wire.c - one run over the wire: ZooKeeper's server and `zke FILE serve`
 *
 * Each session is two connections that are sent the same bytes, sometimes
 * several requests together.  After each such exchange the received frames are
 * compared: answers, events, and their order.  Sessions come back with id and
 * password; if two servers serve zkembed's file, to either of them.  Begin with
 * exchange().
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

const char *cf_zke_program;

enum {
  MOST_AHEAD = 16,       /* the generator's is less */
  FRAMES_ENOUGH = 60000, /* bytes to send together, about */
  TO_THE_END = 1 << 30   /* answers: up to the connection's end */
};

typedef struct seat {
  bool open;
  cf_pair pair;
} seat;

typedef struct run {
  const cf_plan *plan;
  cf_tree tree;
  cf_compare *compare;
  pid_t servers[CF_WIRE_SERVERS];
  seat seats[CF_SEATS + 1];
  bool verbose;
  int bad;         /* which of the last exchange's operations differs */
  const char *why; /* the mismatch, in memory of the operation */
} run;

/* ---- servers ---- */

static void start_servers(run *r) {
  static const char *const options[] = {"--timeout-min",
                                        "200ms",
                                        "--timeout-max",
                                        "1h",
                                        "--connections",
                                        "0",
                                        NULL};
  for (int i = 0; i < r->plan->servers; i++) {
    r->servers[i] =
        peer_serve(cf_zke_program, r->tree.file, options, &cf_zke_ports[i]);
    if (!r->servers[i]) cf_die("%s serve does not begin", cf_zke_program);
  }
}

/* A server that is told to end must exit with 0. */
static void stop_servers(run *r) {
  for (int i = 0; i < r->plan->servers; i++) {
    int status = 0;
    kill(r->servers[i], SIGTERM);
    waitpid(r->servers[i], &status, 0);
    if (status != 0) cf_die("zke serve has ended with status %#x", status);
  }
}

/* ---- connections ---- */

/* Begin a connection; true: both sides gave the same answer. */
static bool greet(run *r, cf_pair *p, const cf_greeting *g) {
  cf_answers both[CF_SIDES];
  cf_pair_greet(p, g);
  cf_pair_take(p, 1, both);
  r->why = cf_compare_greetings(r->compare, p, both);
  return !r->why;
}

/* The server closes this connection on both sides, after no frames but events
 * of the session's own end. */
static bool await_close(run *r, cf_pair *p) {
  cf_answers both[CF_SIDES];
  int bad;
  cf_pair_take(p, TO_THE_END, both);
  if (both[CF_ZOOKEEPER].outcome == PEER_SILENT &&
      both[CF_ZKEMBED].outcome == PEER_CLOSED) {
    cf_mask_used[CF_MASK_STALE]++;
    both[CF_ZOOKEEPER].outcome = PEER_CLOSED;
  }
  r->why = cf_compare_answers(r->compare, p, NULL, 0, CF_OWN_END, both, &bad);
  cf_pair_hang_up(p);
  return !r->why;
}

static bool open_seat(run *r, int i) {
  static const cf_greeting usual = {.timeout_ms = CF_LIVE_MS};
  seat *s = &r->seats[i];
  *s = (seat){.open = true, .pair = {.server = i % r->plan->servers}};
  return greet(r, &s->pair, &usual);
}

/* Another connection of the session. */
static cf_pair another(const cf_pair *from) {
  cf_pair p = *from;
  for (int i = 0; i < CF_SIDES; i++) p.end[i].peer = (peer){.fd = -1};
  return p;
}

/* Resume the session by a new connection, after its old one has ended. */
static bool come_back(run *r, seat *s) {
  static const cf_greeting usual = {.timeout_ms = CF_LIVE_MS};
  cf_pair_hang_up(&s->pair);
  return greet(r, &s->pair, &usual);
}

/* ---- exchanges ---- */

/* If the request was refused, or malformed, both connections end. */
static bool after_exchange(run *r, seat *s, const cf_answers both[CF_SIDES]) {
  if (both[0].outcome == PEER_CLOSED) return come_back(r, s);
  if (!cf_was_refused_auth(&both[CF_ZOOKEEPER])) return true;
  return await_close(r, &s->pair) && come_back(r, s);
}

/* Send these together and compare the answers. */
static bool exchange(run *r, int at, const cf_op *ops, int count,
                     unsigned how) {
  seat *s = &r->seats[at];
  cf_answers both[CF_SIDES];
  int answers = 0;
  for (int i = 0; i < count; i++) {
    s->pair.xid++;
    for (int k = 0; k < CF_SIDES; k++) {
      cf_end *e = &s->pair.end[k];
      cf_put_request(&e->peer.out, &ops[i], s->pair.xid,
                     ops[i].chance % 2 ? e->mark : e->zxid);
    }
    answers += cf_is_answered(&ops[i]);
  }
  if (cf_ends_connection(&ops[count - 1])) {
    answers = TO_THE_END;
    how |= CF_OWN_END;
  }
  cf_pair_send(&s->pair);
  cf_pair_take(&s->pair, answers, both);
  r->why =
      cf_compare_answers(r->compare, &s->pair, ops, count, how, both, &r->bad);
  if (r->why) r->why = cf_text("%s\n    of session %d", r->why, at);
  if (ops[count - 1].kind == CF_CLOSE) return !r->why;
  return !r->why && after_exchange(r, s, both);
}

/* Get and compare all events of one session: a read brings them. */
static bool flush_seat(run *r, int i, unsigned how) {
  static const cf_op look = {.kind = CF_FLUSH, .path = "/"};
  return exchange(r, i, &look, 1, how);
}

static bool flush(run *r, unsigned how) {
  bool same = true;
  for (int i = 0; i <= CF_SEATS && same; i++)
    if (r->seats[i].open) same = flush_seat(r, i, how);
  return same;
}

/* ---- ends of sessions ---- */

static bool close_seat(run *r, int i) {
  static const cf_op close = {.kind = CF_CLOSE};
  bool same = exchange(r, i, &close, 1, 0);
  cf_pair_hang_up(&r->seats[i].pair);
  r->seats[i].open = false;
  return same;
}

/* A connection takes over the session and ends it, or asks for the shortest
 * timeout and waits for it.  ZooKeeper closes a silent connection some time
 * before the session is over. */
static bool expire_seat(run *r, int i, bool by_timeout) {
  seat *s = &r->seats[i];
  cf_pair before = s->pair;
  cf_greeting g = {.timeout_ms = by_timeout ? CF_SHORT_MS : CF_LIVE_MS};
  int64_t zxid = cf_raw_look(r->tree.control);
  s->pair = another(&before);
  if (!greet(r, &s->pair, &g) || !await_close(r, &before)) return false;
  if (!by_timeout) return close_seat(r, i);
  s->open = false;
  if (!await_close(r, &s->pair)) return false;
  cf_raw_await_expiry(r->tree.control, zxid);
  return true;
}

/* Is the session over?  Both sides tell a returning client. */
static bool is_over(run *r, cf_pair *p) {
  static const cf_greeting usual = {.timeout_ms = CF_LIVE_MS};
  return greet(r, p, &usual) && await_close(r, p);
}

/* Events before the end are compared in order, and its own as a set. */
static bool end_seat(run *r, const cf_op *op) {
  cf_pair over = another(&r->seats[op->seat].pair);
  if (!flush(r, 0)) return false;
  cf_note_end(op->kind);
  bool same = op->kind == CF_CLOSE
                  ? close_seat(r, op->seat)
                  : expire_seat(r, op->seat, op->kind == CF_KILL);
  return same && is_over(r, &over) && flush(r, CF_UNORDERED);
}

/* ---- coming back ---- */

/* A connection that is refused; the session's own continues, unless the
 * password was wrong. */
static bool fail_to_come_back(run *r, seat *s, const cf_op *op) {
  cf_pair stranger = another(&s->pair);
  cf_greeting g = {.timeout_ms = CF_LIVE_MS,
                   .wrong_password = op->type == CF_WRONG_PASSWORD,
                   .unknown = op->type == CF_UNKNOWN_SESSION,
                   .from_the_future = op->type == CF_FROM_THE_FUTURE};
  cf_answers both[CF_SIDES];
  cf_pair_greet(&stranger, &g);
  cf_pair_take(&stranger, TO_THE_END, both);
  r->why = cf_compare_greetings(r->compare, &stranger, both);
  cf_pair_hang_up(&stranger);
  if (r->why || !g.wrong_password) return !r->why;
  return await_close(r, &s->pair) && come_back(r, s);
}

/* Drop the previous connection, or leave it for the server to close. */
static bool reconnect(run *r, const cf_op *op) {
  seat *s = &r->seats[op->seat];
  cf_pair before = s->pair;
  cf_greeting g = {.timeout_ms = CF_LIVE_MS,
                   .old_client = op->type == CF_OLD_CLIENT};
  if (op->type > CF_OLD_CLIENT) return fail_to_come_back(r, s, op);
  s->pair = another(&before);
  s->pair.server = op->chance % r->plan->servers;
  for (int i = 0; i < CF_SIDES; i++) s->pair.end[i].mark = before.end[i].zxid;
  if (op->type == CF_DROPPED) cf_pair_hang_up(&before);
  if (!greet(r, &s->pair, &g)) return false;
  return op->type == CF_DROPPED || await_close(r, &before);
}

/* ---- steps ---- */

static bool is_apart(const cf_op *op) {
  return op->kind == CF_CLOSE || op->kind == CF_EXPIRE || op->kind == CF_KILL ||
         op->kind == CF_FLUSH || op->kind == CF_RECONNECT;
}

/* Must it be the only request under way?  ZooKeeper answers it, or closes the
 * connection, out of turn. */
static bool is_alone(const cf_op *op) {
  return op->kind == CF_ADD_AUTH || cf_ends_connection(op);
}

/* Does ZooKeeper judge the requests behind it otherwise until it is done (mask
 * IN_FLIGHT)? */
static bool misleads(const cf_op *op) {
  return op->kind == CF_SET_ACL ||
         (cf_wire_type(op) == ZKE_JUTE_CREATE_CONTAINER &&
          op->mode == ZKE_EPHEMERAL);
}

/* Must its answer come before anything else is sent? */
static bool is_last(const cf_op *op) {
  return is_alone(op) || misleads(op->kind == CF_MALFORMED ? op->subs : op);
}

/* Does the answer show the current state?  A refusal may show an older one,
 * before the events of another server's changes.
 */
static bool shows_now(const cf_op *op) {
  static const bool reads[CF_KINDS] = {[CF_EXISTS] = true,
                                       [CF_GET] = true,
                                       [CF_CHILDREN] = true,
                                       [CF_GET_ACL] = true,
                                       [CF_COUNT] = true};
  return reads[op->kind] && cf_client_passes(op);
}

static void say(const run *r, int at, const cf_op *op) {
  if (!r->verbose) return;
  printf("  %4d  session %d %s\n", at, op->seat, cf_describe(op));
}

static size_t bytes_of(const cf_op *op) {
  size_t bytes = op->len > 0 ? (size_t)op->len : 0;
  for (int i = 0; i < op->count; i++) bytes += bytes_of(&op->subs[i]);
  return bytes + 1000;
}

/* Avoid paths that ZooKeeper returns changed (mask UTF8), or watches though
 * they are invalid (mask BAD_WATCH); it counts "/" itself among the nodes below
 * "". */
static void avoid_echo(cf_op *op) {
  if (op->kind == CF_MALFORMED) avoid_echo(op->subs);
  if (op->kind == CF_SYNC && !cf_is_utf8(op->path)) op->path = CF_BASE;
  if (op->kind == CF_COUNT && op->path && !*op->path) op->path = CF_BASE;
  for (int i = 0; op->kind == CF_SET_WATCHES && i < op->count; i++) {
    cf_op *sub = &op->subs[i];
    if (!cf_client_passes(sub) || !cf_is_utf8(sub->path)) sub->path = CF_BASE;
  }
}

static void seat_all(cf_op *op, int at) {
  op->seat = at;
  for (int i = 0; i < op->count; i++) seat_all(&op->subs[i], at);
}

/* The operations to send together, from the first on; how many. */
static int gather(run *r, const int *indices, int left, cf_op *ops) {
  int count = 1;
  size_t bytes = bytes_of(&ops[0]);
  while (count <= ops[0].ahead && count < left && count < MOST_AHEAD &&
         bytes < FRAMES_ENOUGH && !is_last(&ops[count - 1])) {
    cf_op *op = &ops[count];
    cf_generate(r->plan, indices[count], op);
    if (is_apart(op) || is_alone(op)) break;
    seat_all(op, ops[0].seat);
    bytes += bytes_of(op);
    cf_resolve(&r->tree, op);
    avoid_echo(op);
    count++;
  }
  return count;
}

static bool step_apart(run *r, const cf_op *op) {
  if (op->kind == CF_FLUSH) return flush(r, 0);
  if (op->kind != CF_RECONNECT) return end_seat(r, op);
  return flush_seat(r, op->seat, 0) && reconnect(r, op);
}

/* One exchange; how many operations it took.  The last is kept for the
 * report. */
static int step(run *r, const int *indices, int left, cf_op *last) {
  static cf_op ops[MOST_AHEAD];
  int count = 1;
  cf_generate(r->plan, indices[0], &ops[0]);
  *last = ops[0];
  int at = ops[0].seat;
  if (!r->seats[at].open && !open_seat(r, at)) return 0;
  cf_resolve(&r->tree, &ops[0]);
  avoid_echo(&ops[0]);
  if (!is_apart(&ops[0])) count = gather(r, indices, left, ops);
  bool blind = false; /* the first ones sent do not show all events */
  for (int i = 0; i < count; i++) {
    say(r, indices[i], &ops[i]);
    cf_note_watched(&r->tree, &ops[i]);
    blind |= !shows_now(&ops[i]);
  }
  *last = ops[0];
  if (is_apart(&ops[0])) return step_apart(r, &ops[0]) ? 1 : 0;
  if (blind && r->plan->servers > 1) {
    cf_mask_used[CF_MASK_BLIND]++;
    if (!flush_seat(r, at, 0)) return 0;
  }
  if (exchange(r, at, ops, count, 0)) return count;
  *last = ops[r->bad];
  last->ahead = count - 1;
  return 0;
}

/* ---- the end of a run ---- */

/* Inspect one node in every way, in one exchange. */
static bool look_over(run *r, const char *path) {
  static const cf_kind ways[] = {CF_EXISTS, CF_GET, CF_CHILDREN, CF_GET_ACL,
                                 CF_COUNT};
  enum { WAYS = sizeof ways / sizeof *ways };
  cf_op ops[WAYS];
  for (int i = 0; i < WAYS; i++)
    ops[i] = (cf_op){.kind = ways[i], .path = path, .whole = true};
  return exchange(r, CF_SEATS, ops, WAYS, 0);
}

static bool take_identities(run *r) {
  bool same = r->seats[CF_SEATS].open || open_seat(r, CF_SEATS);
  for (int i = 0; i < CF_USERS && same; i++) {
    cf_op op = {.kind = CF_ADD_AUTH,
                .scheme = "digest",
                .data = cf_user(i),
                .len = (int)strlen(cf_user(i))};
    same = exchange(r, CF_SEATS, &op, 1, 0);
  }
  return same;
}

static void violated(void *arg, const char *sentence) {
  run *r = arg;
  r->why = cf_text("zke_check: %s", sentence);
}

static bool check_store(run *r) {
  int rc = zke_check(cf_store_anchor(r->tree.store), violated, r);
  if (rc != ZKE_OK && !r->why) r->why = cf_text("zke_check: %d", rc);
  return rc == ZKE_OK;
}

/* All nodes, all events, the invariants of the file, the closes. */
static bool finish(run *r, cf_op *last) {
  cf_paths all = {0};
  *last = (cf_op){.kind = CF_FLUSH};
  bool same = flush(r, 0) && take_identities(r);
  if (same) cf_tree_list(&r->tree, &all);
  for (int i = 0; i < all.count && same; i++) {
    cf_reset();
    *last = (cf_op){.kind = CF_EXISTS, .path = all.at[i]};
    same = look_over(r, all.at[i]);
  }
  if (!same && last->path) last->path = cf_text("%s", last->path);
  if (same) *last = (cf_op){.kind = CF_CHECK};
  same = same && check_store(r);
  for (int i = 0; i <= CF_SEATS && same; i++) {
    *last = (cf_op){.kind = CF_CLOSE, .seat = i};
    if (r->seats[i].open) same = end_seat(r, last);
  }
  cf_paths_free(&all);
  return same;
}

/* ---- a whole run ---- */

static void begin(run *r) {
  cf_tree_begin(&r->tree, r->plan);
  r->compare = cf_compare_new();
  start_servers(r);
}

/* After a mismatch the state of sessions is unknown: end ZooKeeper's, so that
 * the next run finds none. */
static void end(run *r) {
  for (int i = 0; i <= CF_SEATS; i++) {
    seat *s = &r->seats[i];
    cf_pair_hang_up(&s->pair);
    if (s->open && s->pair.end[CF_ZOOKEEPER].id)
      cf_raw_end(s->pair.end[CF_ZOOKEEPER].id,
                 s->pair.end[CF_ZOOKEEPER].password, false);
  }
  stop_servers(r);
  cf_compare_free(r->compare);
  cf_tree_end(&r->tree);
  cf_reset();
}

bool cf_wire_run(const cf_plan *plan, const int *indices, int count,
                 bool verbose, cf_mismatch *out) {
  run r = {.plan = plan, .verbose = verbose};
  cf_op op = {0};
  bool same = true;
  int at = 0;
  for (int i = 0; i <= CF_SEATS; i++) r.seats[i].pair = another(&(cf_pair){0});
  begin(&r);
  while (at < count && same) {
    cf_reset();
    int done = step(&r, indices + at, count - at, &op);
    same = done > 0;
    at += done;
  }
  int last = at + op.ahead < count ? at + op.ahead : count;
  if (same) {
    same = finish(&r, &op);
    last = count;
  }
  if (!same) cf_tell(&op, last, r.why, out);
  end(&r);
  return !same;
}
