/* line.c - a place in a line
 *
 * line.h says what a line is, and which process marks its entries; entry.c has
 * the order of entries, and the rule by which one keeps out another.  The head
 * of lock.c has the algorithm of a lock, step by step, with deaths and lost
 * replies; this file is its code, and that of the other lines.
 *
 * The states, and the functions that change them; an object begins OUT:
 *
 *     OUT      no znode                    zke_line_quit, zke_line_yield
 *     WAITING  a znode, kept out           zke_line_join, zke_line_jump
 *     HELD     a znode, not kept out       line_take_office
 *     LOST     the znode was taken away    line_lose
 *
 *     OUT --join--> WAITING --look--> HELD --yield--> OUT
 *     OUT, WAITING, LOST --jump--> WAITING
 *     any --quit--> OUT       (release, failure, free; LOST too, before a join)
 *     WAITING, HELD --look, check, session's end--> LOST
 *
 * An object holds only after line_take_office().  line_look() calls that for
 * entries that it has read after the object's znode was made.  If anything has
 * changed between two reads, a version or a missing node shows it; the look is
 * then repeated (ZKE_LOOK_AGAIN).  A repetition means that another process has
 * made progress, so looks do not repeat for ever.
 *
 * Invariants:
 *  1. state is WAITING or HELD exactly while znode is not NULL.
 *  2. While state is WAITING, the entries that keep it out are watched, and its
 *     own znode; or `changed` is set, and a look is due.
 *  3. token is the zxid of the write or creation by which it holds: it is
 *     greater than that of any holder before it.
 *  4. heir is set only while state is HELD.
 *
 * Sections, each using those above it: an entry's text; states; watching; the
 * hooks, where kinds differ; a look; joining and leaving; replacing the own
 * entry (a thief, a change of mode, a handover); entries of several lines; the
 * blocking call; what public functions are made of.
 *
 * Start reading at zke_line_join(), then line_look() and zke_line_quit(). */
#include "line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deadlock.h"
#include "entry.h"
#include "limit.h"
#include "party.h"
#include "../support.h"
#include "text.h"
#include "znode.h"

/* ---- the entry's data ---- */

/* The data of the own znode in this state; for zke_free(). */
static char *line_text(const zke_line *l, const char *state, int *len) {
  return zke_line_text(l->r.z, state, l->actor, l->data, l->len, len);
}

/* The arguments of line_set() for the tries of zke_retry(). */
typedef struct line_write {
  zke_line *l;
  const char *path, *text; /* of the own znode; its new data */
  int len;                 /* bytes of text */
  int version;             /* the directory's, -1: any */
  zke_stat stat;           /* out: the znode's after the write */
} line_write;

/* A write with the check of the directory's version in the same step: the limit
 * is data of the directory, so it cannot have changed unnoticed. */
static int line_try_write(zke *z, void *arg) {
  line_write *w = arg;
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  if (w->version == -1)
    return zke_set(z, w->path, w->text, w->len, -1, &w->stat);
  zke_op_set(&ops[0], w->path, w->text, w->len, -1);
  zke_op_check(&ops[1], w->l->r.path, w->version);
  int rc = zke_recipe_multi(z, ops, 2, results);
  w->stat = results[0].stat;
  zke_results_clear(results, 2);
  return rc;
}

/* Write the state into the own znode, while the directory has this version.  If
 * a reply is lost it is written twice, which does no harm: the text is the
 * same, and the later zxid counts. */
static int line_set(zke_line *l, const char *state, int version,
                    zke_stat *stat) {
  line_write w = {.l = l, .path = l->znode, .version = version};
  char *text = line_text(l, state, &w.len);
  if (!text) return ZKE_NOMEM;
  w.text = text;
  int rc = zke_retry(l->r.z, line_try_write, &w, ZKE_FOREVER);
  zke_free(text);
  if (rc == ZKE_OK) *stat = w.stat;
  return rc;
}

/* ---- states ----
 *
 * What the object believes, and what it tells the listener.  Nothing here
 * touches the tree, except line_lose(), which gives up the rest of a lease. */

/* Set state and token, and queue an event if the state is new.  A converted
 * lock stays HELD and gets another token: this queues no event. */
static void line_change(zke_line *l, int state, int64_t token) {
  bool news = l->state != state;
  l->state = state;
  l->token = token;
  if (news) zke_recipe_tell(&l->r, state, token, NULL, 0);
}

/* Keep the own znode's path in `gone`, for a program's operation that still
 * names it: such an operation must fail, not read freed memory.  The oldest of
 * the former paths is freed. */
static void line_keep_path(zke_line *l) {
  if (!l->znode) return;
  zke_free(l->gone[ZKE_LINE_FORMER - 1]);
  memmove(&l->gone[1], &l->gone[0], (ZKE_LINE_FORMER - 1) * sizeof l->gone[0]);
  l->gone[0] = l->znode;
}

/* The object no longer has its own znode. */
static void line_forget_own(zke_line *l) {
  zke_free(l->heir);
  l->heir = NULL;
  line_keep_path(l);
  zke_free(l->own);
  l->znode = NULL;
  l->own = NULL;
  l->also = NULL;
  l->own_watched = false;
}

/* The own znode has gone, or the session.  A lease of several znodes gives up
 * the rest, as it is all or none.  After the session's end there is nothing to
 * discard.
 */
static void line_lose(zke_line *l) {
  if (l->own && !l->r.ended) zke_recipe_discard_all(l->r.z, l->own);
  line_forget_own(l);
  line_change(l, ZKE_LINE_LOST, 0);
}

/* Is this path the own znode, or one of them?  They share the guid. */
static bool line_is_own(const zke_line *l, const char *path) {
  size_t len = strlen(l->r.path) + 1 + ZKE_NAME_HEAD;
  return l->znode && strncmp(path, l->znode, len) == 0;
}

/* Record which watch has fired, for the look that follows.  An event without a
 * path is an overflow: all watches have gone. */
void zke_line_event(zke_line *l, const char *path) {
  if (!*path || strcmp(path, l->r.path) == 0) l->place_watched = false;
  if (!*path || line_is_own(l, path)) l->own_watched = false;
}

/* An object that was out already is told nothing. */
void zke_line_ended(zke_line *l) {
  if (l->state == ZKE_LINE_WAITING || l->state == ZKE_LINE_HELD) line_lose(l);
}

/* Say that the place was taken away; returns ZKE_LOST. */
static int line_lost(const zke_line *l) {
  return zke_recipe_fail(ZKE_LOST, "the place in the %s %s was taken away",
                         l->r.class_->name, l->r.path);
}

/* The user's data is copied, since every later change of state writes it
 * again. */
int zke_line_init(zke_line *l) {
  const char *data = l->data;
  l->data = NULL; /* until it is a copy: zke_line_free() frees it */
  if (l->limit < 1) l->limit = 1;
  if (l->weight < 1) l->weight = 1;
  if (!data) l->len = 0;
  if (l->len < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", l->len);
  if (l->len == 0) return ZKE_OK;
  l->data = zke_recipe_copy(l->r.z, data, (size_t)l->len);
  return l->data ? ZKE_OK : ZKE_NOMEM;
}

/* No znode is left here: quit has discarded it. */
void zke_line_free(zke_line *l) {
  zke_free((void *)(uintptr_t)l->data);
  line_forget_own(l);
  for (int i = 0; i < ZKE_LINE_FORMER; i++) zke_free(l->gone[i]);
  zke_free(l->watched);
}

/* ---- watching ----
 *
 * Three things are watched, each by a watch that fires once:
 *   the entries that keep this one out   child watch   while waiting
 *   the own znode                        data watch    while waiting, and while
 *                                                      holding with watch_own
 *   the directory's data                 data watch    leases, while waiting
 *
 * A watch is a row in the database.  So it is taken back when it is no longer
 * needed; otherwise it would fire later and wake this process for nothing. */

/* Take back the watches of the entries in front, and of the directory. */
static void line_unwatch(zke_line *l) {
  for (int i = 0; l->watched && i < l->watched->count; i++) {
    zke_remove_watch(l->r.z, l->watched->data[i], ZKE_WATCH_CHILD,
                     zke_recipe_watcher, &l->r);
  }
  zke_free(l->watched);
  l->watched = NULL;
  if (l->place_watched) {
    zke_remove_watch(l->r.z, l->r.path, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &l->r);
  }
  l->place_watched = false;
}

/* Room for the paths of `count` entries of one directory, in one block.  Each
 * gets as much as the longest of them needs. */
static zke_strings *line_new_paths(const zke_line *l, const zke_entries *e,
                                   int count) {
  size_t size = sizeof(zke_strings) + (size_t)count * sizeof(char *);
  size_t longest = 0;
  for (int i = 0; i < e->count; i++) {
    size_t len = strlen(e->data[i].name);
    if (len > longest) longest = len;
  }
  longest += strlen(l->r.path) + 2;
  zke_strings *s = zke_alloc(l->r.z, size + (size_t)count * longest);
  if (!s) return NULL;
  s->data = (char **)(void *)(s + 1);
  char *text = (char *)(s->data + count);
  for (int i = 0; i < count; i++) s->data[i] = text + (size_t)i * longest;
  return s;
}

/* Watch an own znode, also for the writes of others: a grant, an heir's
 * wake-up, a request to release. */
static int line_watch_data(zke_line *l, const char *path) {
  return zke_get(l->r.z, path, zke_recipe_watcher, &l->r, NULL, NULL, NULL);
}

/* Watch another entry's znode for its end only.  An ephemeral has no children,
 * so only its end fires a child watch: a write of "held" wakes no process.  The
 * read fails with ZKE_NONODE if the entry has gone since it was listed; so no
 * end is missed between the list and the watch. */
static int line_watch_end(zke_line *l, const char *path) {
  return zke_children(l->r.z, path, zke_recipe_watcher, &l->r, NULL, NULL);
}

/* Take back the watch of the own znode, before it is deleted: otherwise the
 * deletion would put an event into this session's queue. */
static void line_unwatch_own(zke_line *l) {
  if (!l->own_watched || !l->znode) return;
  char *const *own = l->own ? l->own->data : &l->znode;
  int count = l->own ? l->own->count : 1;
  for (int i = 0; i < count; i++)
    zke_remove_watch(l->r.z, own[i], ZKE_WATCH_DATA, zke_recipe_watcher, &l->r);
  l->own_watched = false;
}

/* Watch the own znode unless it is watched already; ZKE_LOST if it has gone. */
static int line_watch_own(zke_line *l) {
  if (l->own_watched) return ZKE_OK;
  int rc = l->own ? ZKE_OK : line_watch_data(l, l->znode);
  for (int i = 0; l->own && i < l->own->count && rc == ZKE_OK; i++)
    rc = line_watch_data(l, l->own->data[i]);
  if (rc == ZKE_NONODE) {
    line_lose(l);
    return ZKE_LOST;
  }
  l->own_watched = rc == ZKE_OK;
  return rc;
}

/* An attempt to leave or to convert has failed, and the own znode still exists:
 * watch it again.  Returns rc, and keeps its sentence. */
static int line_watch_again(zke_line *l, int rc) {
  zke_sentence kept;
  bool watch = l->znode && (l->state == ZKE_LINE_WAITING ||
                            (l->state == ZKE_LINE_HELD && l->watch_own));
  zke_recipe_keep(&kept);
  if (watch && line_watch_own(l) != ZKE_OK) l->r.changed = true;
  return zke_recipe_restore(&kept, rc);
}

/* Watch the last entries of others that keep out the one at index i, as many as
 * needed.
 *
 * With a limit of 1, only the nearest one is watched.  With a limit of N and
 * one znode, N of them are: while these N exist, at least N keep this entry
 * out, whatever happens further ahead.  So changes there need not wake it, and
 * an entry that goes wakes at most N others.  The own znodes in front
 * (weight - 1) use up part of the limit, so there are fewer to watch.
 *
 * ZKE_NONODE: one of them has gone, look again. */
static int line_watch_keepers(zke_line *l, const zke_entries *e, int i) {
  int most = l->limit - (l->weight - 1);
  zke_strings *paths = line_new_paths(l, e, most < i ? most : i);
  int rc = ZKE_OK;
  if (!paths) return ZKE_NOMEM;
  for (int j = i - l->weight; j >= 0 && paths->count < most && rc == ZKE_OK;
       j--) {
    if (!zke_entry_keeps_out(&e->data[j], &e->data[i])) continue;
    char *path = paths->data[paths->count++];
    memcpy(path, l->r.path, strlen(l->r.path));
    path[strlen(l->r.path)] = '/';
    memcpy(path + strlen(l->r.path) + 1, e->data[j].name,
           strlen(e->data[j].name) + 1);
    rc = line_watch_end(l, path);
  }
  zke_free(l->watched); /* these have fired, or are watched still */
  l->watched = paths;
  return rc;
}

/* ---- how kinds differ ----
 *
 *                      locks        leases               latches
 *     read             the entries  and the limit        watch the own znode,
 *                                                        then the entries
 *     make             one znode    `weight` of them     one znode
 *     mark             if needed    always, at the       if needed
 *                                   limit that was read
 *     wait             -            watch the limit      -
 *     tidy             -            -                    marks of handovers
 *     grants           yes          no                   no
 *     unwatch_on_hold  no           yes                  yes
 *
 * "locks" are the entries of locks and of read/write locks.  Leases have a
 * limit that may change, and several znodes; an election's latch can be handed
 * over. */

typedef struct line_hooks {
  /* read the entries for a look; first set watches that must come before */
  int (*read)(zke_line *l, zke_entries **e, zke_stat *directory);
  /* make the own znode or znodes, with text as data */
  int (*make)(zke_line *l, const char *text, int len, int64_t deadline_ms);
  /* it is not kept out: make its data say "held"; stat: in: with the czxid as
   * mzxid, out: of that write.  ZKE_BADVERSION: look again */
  int (*mark)(zke_line *l, const zke_stat *directory, zke_stat *stat);
  /* it has to wait: watch anything else that may end the wait, or NULL */
  int (*wait)(zke_line *l, const zke_stat *directory);
  /* it has taken or left the office: remove unneeded marks, or NULL */
  void (*tidy)(const zke_line *l);
  bool grants;          /* it may mark the next in line when it leaves */
  bool unwatch_on_hold; /* it may hold while what it watched is still there */
} line_hooks;

/* Delete the own znode or znodes, now or later; if this fails, the session
 * deletes them later.
 *
 * Every holder uses the same name for the znode that goes with the office
 * (`also`).  By now that may be another candidate's on this handle, owned by
 * the same session: it is deleted all the same, and that candidate makes it
 * again (election_keep_word()).  Returns the first failure. */
static int line_discard_own(zke_line *l) {
  int rc = ZKE_OK, also = ZKE_OK;
  if (l->own)
    rc = zke_recipe_discard_all(l->r.z, l->own);
  else if (l->znode)
    rc = zke_recipe_discard(l->r.z, l->znode, ZKE_EPHEMERAL, l->czxid);
  if (l->also) also = zke_recipe_discard(l->r.z, l->also, ZKE_EPHEMERAL, 0);
  return rc == ZKE_OK ? also : rc;
}

/* Read only the entries: the limit is the object's, 1. */
static int line_read(zke_line *l, zke_entries **e, zke_stat *directory) {
  return zke_entry_list(l->r.z, l->r.path, e, directory);
}

/* Make one znode.  A lost reply is resolved by its guid. */
static int line_make_one(zke_line *l, const char *text, int len,
                         int64_t deadline_ms) {
  zke_stat stat;
  int rc = zke_recipe_create(
      l->r.z, l->r.path, l->place, zke_entry_kinds[l->kind], text, len,
      ZKE_EPHEMERAL_SEQUENTIAL, deadline_ms, &l->znode, &stat);
  if (rc == ZKE_OK) l->czxid = stat.czxid;
  return rc;
}

/* Mark the own znode as one that holds.  stat->mzxid becomes the token.
 *
 * No mark is needed if the directory's pzxid is the znode's czxid: then no
 * entry has come or gone since it was made, so it was first from the beginning,
 * and its czxid is the token.
 *
 * If the previous holder has granted the office, the mark is there already; its
 * zxid is the token.  Only these two write "held" into a waiting znode. */
static int line_mark(zke_line *l, const zke_stat *directory, zke_stat *stat) {
  char *data = NULL;
  int len;
  if (directory->pzxid == l->czxid) return ZKE_OK;
  int rc = zke_get(l->r.z, l->znode, NULL, NULL, &data, &len, stat);
  bool granted = rc == ZKE_OK && zke_entry_read(data, len).held;
  zke_free(data);
  if (granted || (rc != ZKE_OK && rc != ZKE_NOAUTH)) return rc;
  return line_set(l, "held", -1, stat);
}

static const line_hooks line_of_locks = {.read = line_read,
                                         .make = line_make_one,
                                         .mark = line_mark,
                                         .grants = true};

/* A lease: read the limit together with the entries, since any process may
 * change it. */
static int lease_read(zke_line *l, zke_entries **e, zke_stat *directory) {
  return zke_entry_survey(l->r.z, l->r.path, e, directory, &l->limit);
}

/* Make a lease's znodes, all in one step; the last one has the data, the others
 * are empty. */
static int lease_make(zke_line *l, const char *text, int len,
                      int64_t deadline_ms) {
  int n = l->weight;
  zke_seat *seats = zke_alloc(l->r.z, (size_t)n * sizeof *seats);
  if (!seats) return ZKE_NOMEM;
  for (int i = 0; i < n; i++)
    seats[i] = (zke_seat){l->r.path, zke_entry_kinds[l->kind], "", 0};
  seats[n - 1].data = text;
  seats[n - 1].len = len;
  int rc =
      zke_recipe_create_all(l->r.z, seats, n, deadline_ms, &l->own, &l->czxid);
  zke_free(seats);
  if (rc != ZKE_OK) return rc;
  const char *last = l->own->data[n - 1];
  l->znode = zke_recipe_copy(l->r.z, last, strlen(last));
  if (l->znode) return ZKE_OK;
  line_discard_own(l);
  line_forget_own(l);
  return ZKE_NOMEM;
}

/* A lease always writes its mark: if the limit is lowered later, its place no
 * longer shows that it holds.  It writes only while the directory still has the
 * version that was read; otherwise a lease could be taken under an old
 * limit. */
static int lease_mark(zke_line *l, const zke_stat *directory, zke_stat *stat) {
  return line_set(l, "held", directory->version, stat);
}

/* Watch the directory for a change of the limit.  The version shows whether it
 * has changed between the read of the limit and this watch. */
static int lease_wait(zke_line *l, const zke_stat *directory) {
  zke_stat stat;
  if (l->place_watched) return ZKE_OK;
  int rc =
      zke_get(l->r.z, l->r.path, zke_recipe_watcher, &l->r, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  l->place_watched = true;
  return stat.version == directory->version ? ZKE_OK : ZKE_LOOK_AGAIN;
}

static const line_hooks line_of_leases = {.read = lease_read,
                                          .make = lease_make,
                                          .mark = lease_mark,
                                          .wait = lease_wait,
                                          .unwatch_on_hold = true};

/* A latch: a write to an heir's znode tells it, so watch the znode before
 * reading the entries.  In the other order, a handover between the two would be
 * missed: too late for the list, too early for the watch. */
static int latch_read(zke_line *l, zke_entries **e, zke_stat *directory) {
  int rc = line_watch_own(l);
  return rc == ZKE_OK ? line_read(l, e, directory) : rc;
}

/* Does the mark at index m name an entry that has gone? */
static bool latch_is_orphan(const zke_entries *e, int m) {
  const zke_entry *mark = &e->data[m];
  if (mark->kind != ZKE_LINE_NEXT) return false;
  for (int i = 0; i < e->count; i++) {
    if (i != m && zke_entry_same_guid(&e->data[i], mark)) return false;
  }
  return true;
}

/* Remove NEXT marks for entries that have gone.  If that fails they stay, and
 * do no harm: no entry has their guid any more. */
static void latch_remove_marks(const zke_line *l) {
  zke_entries *e = NULL;
  if (zke_recipe_entries(l->r.z, l->r.path, zke_entry_kinds, ZKE_LINE_KINDS,
                         NULL, NULL, &e, NULL) != ZKE_OK)
    return;
  for (int i = 0; i < e->count; i++) {
    if (!latch_is_orphan(e, i)) continue;
    char *path = zke_recipe_path(l->r.z, l->r.path, e->data[i].name);
    if (path) zke_recipe_delete(l->r.z, path);
    zke_free(path);
  }
  zke_free(e);
}

static const line_hooks line_of_latches = {.read = latch_read,
                                           .make = line_make_one,
                                           .mark = line_mark,
                                           .tidy = latch_remove_marks,
                                           .unwatch_on_hold = true};

/* No object has the kind FRONT or NEXT: a thief's object keeps the kind it
 * had. */
static const line_hooks *line_does(const zke_line *l) {
  static const line_hooks *const by_kind[ZKE_LINE_KINDS] = {
      [ZKE_LINE_LOCK] = &line_of_locks,
      [ZKE_LINE_WRITE] = &line_of_locks,
      [ZKE_LINE_READ] = &line_of_locks,
      [ZKE_LINE_LEASE] = &line_of_leases,
      [ZKE_LINE_LATCH] = &line_of_latches};
  return by_kind[l->kind];
}

/* ---- one look ----
 *
 * line_look() reads the line and then handles one of three cases: the own entry
 * has gone (line_lose), no entry keeps it out (line_take_office), or one
 * does (line_wait_on). */

/* The first entry that the one at index i keeps out, or NULL if there is none
 * or if another one keeps it out too.  Of several readers behind a writer this
 * returns the first; the others mark themselves. */
static const zke_entry *line_heir_of(const zke_entries *e, int i) {
  int j = i + 1;
  while (j < e->count && !zke_entry_keeps_out(&e->data[i], &e->data[j])) j++;
  bool next = j < e->count && zke_entry_keepers(e, j) == 1;
  return next ? &e->data[j] : NULL;
}

/* Record the next entry in line after the own one, at index i.  Without memory
 * there is none. */
static void line_note_heir(zke_line *l, const zke_entries *e, int i) {
  const zke_entry *next = line_does(l)->grants ? line_heir_of(e, i) : NULL;
  zke_free(l->heir);
  l->heir = next ? zke_recipe_path(l->r.z, l->r.path, next->name) : NULL;
}

/* No entry keeps out the own one, at index i: take office.
 *
 * The order: mark the znode, which fixes the token; record the heir; then
 * change the state, which tells the listener.  If the process dies after the
 * mark, the znode goes with the session, including the mark.
 *
 * ZKE_LOOK_AGAIN: the limit has changed in between. */
static int line_take_office(zke_line *l, const zke_entries *e, int i,
                            const zke_stat *directory) {
  zke_stat stat = {.mzxid = l->czxid};
  int rc = line_does(l)->mark(l, directory, &stat);
  if (rc == ZKE_NONODE) {
    line_lose(l);
    return ZKE_OK;
  }
  if (rc == ZKE_BADVERSION) return ZKE_LOOK_AGAIN;
  if (rc != ZKE_OK) return rc;
  /* other kinds: the entry that was watched has gone, and the watch with it */
  if (line_does(l)->unwatch_on_hold) line_unwatch(l);
  zke_free(l->watched);
  l->watched = NULL;
  line_note_heir(l, e, i);
  line_change(l, ZKE_LINE_HELD, stat.mzxid);
  if (line_does(l)->tidy) line_does(l)->tidy(l);
  return ZKE_OK;
}

/* The entry is kept out: watch until it is not.  ZKE_LIMIT: it always will be,
 * since the limit is below the weight. */
static int line_wait_on(zke_line *l, const zke_entries *e, int i,
                        const zke_stat *directory) {
  if (l->weight > l->limit) {
    return zke_recipe_fail(
        ZKE_LIMIT, "%d permits of the %s %s asked for, but its limit is %d",
        l->weight, l->r.class_->name, l->r.path, l->limit);
  }
  int rc = line_does(l)->wait ? line_does(l)->wait(l, directory) : ZKE_OK;
  return rc == ZKE_OK ? line_watch_keepers(l, e, i) : rc;
}

/* Make the directory if it is missing, and check its kind. */
static int line_place(zke_line *l) {
  return zke_recipe_place_seen(l->r.z, l->r.path, l->place, ZKE_CONTAINER,
                               ZKE_FOREVER, &l->seen);
}

/* The checked directory may have gone, as empty containers do, and have been
 * made again as another kind.  Its czxid shows this; then check its kind
 * again. */
static int line_check_place(zke_line *l, int64_t czxid) {
  if (l->seen == czxid) return ZKE_OK;
  int rc = line_place(l);
  if (rc != ZKE_OK) return rc;
  return l->seen == czxid ? ZKE_OK : ZKE_LOOK_AGAIN;
}

/* One look while waiting.  The own entry must exist with its whole group: if a
 * lease's first znode was deleted, its last one would stand too far ahead.  A
 * missing directory means a missing entry.
 *
 * If anything has gone between two reads, returns ZKE_LOOK_AGAIN.  At the end
 * the own znode is watched, to notice its loss. */
static int line_look(zke_line *l) {
  zke_entries *e = NULL;
  zke_stat directory;
  int rc = line_does(l)->read(l, &e, &directory);
  if (rc == ZKE_OK) rc = line_check_place(l, directory.czxid);
  if (rc == ZKE_OK)
    rc = zke_entry_refuse(l->r.z, e, l->kind, l->r.class_->name, l->r.path);
  int i = rc == ZKE_OK ? zke_recipe_find(e, zke_recipe_name(l->znode)) : -1;
  bool all = i >= 0 && zke_entry_group_before(e, i) == l->weight - 1;
  if (rc == ZKE_NONODE || (rc == ZKE_OK && !all)) {
    line_lose(l);
    rc = ZKE_OK;
  } else if (rc == ZKE_OK) {
    if (zke_entry_keepers(e, i) < l->limit)
      rc = line_take_office(l, e, i, &directory);
    else
      rc = line_wait_on(l, e, i, &directory);
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  }
  zke_free(e);
  if (rc == ZKE_OK && (l->state == ZKE_LINE_WAITING ||
                       (l->state == ZKE_LINE_HELD && l->watch_own))) {
    rc = line_watch_own(l);
  }
  return rc == ZKE_LOST ? ZKE_OK : rc; /* the state says it */
}

/* One look while holding: has the own znode gone?  No entry can come back in
 * front, so nothing else matters. */
static int line_look_held(zke_line *l) {
  int rc = zke_line_check(l);
  if (rc == ZKE_OK && l->watch_own) rc = line_watch_own(l);
  return rc == ZKE_LOST ? ZKE_OK : rc; /* the state says it */
}

/* Returns rc, and keeps its sentence: a failed clean-up must not hide the
 * reason.  The clean-up has a grace, because the deadline may be the reason.
 * After the session's end nothing is left to clean up. */
int zke_line_give_up(zke_line *l, int rc) {
  zke_sentence kept;
  if (zke_recipe_has_ended(&l->r, rc) || l->r.ended) return rc;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(l->r.z);
  zke_line_quit(l);
  zke_limit(l->r.z, limit);
  return zke_recipe_restore(&kept, rc);
}

/* One look, repeated while the line changes.  An object that waits without a
 * blocking call has no caller to receive ZKE_LIMIT, or ZKE_OTHERKIND for
 * another library's entry: it goes OUT, and its listener is told. */
int zke_line_step(zke_line *l) {
  int rc;
  if (l->state == ZKE_LINE_HELD) return line_look_held(l);
  if (l->state != ZKE_LINE_WAITING) return ZKE_OK;
  do {
    rc = line_look(l);
  } while (zke_recipe_again(l->r.z, &rc));
  bool unheard = (rc == ZKE_LIMIT || rc == ZKE_OTHERKIND) && !l->blocking;
  return unheard ? zke_line_give_up(l, rc) : rc;
}

/* ---- joining and leaving ----
 *
 * Joining makes the own znode and takes one look; leaving deletes it, and may
 * grant the office to the next in line.  Neither waits for others in the line.
 */

/* Record the next entry in line; ZKE_NONODE: there is none, or the own entry
 * has gone and keeps nothing out.
 *
 * While the own znode exists, no entry comes between it and the heir: new
 * entries stand behind, and a thief deletes the holder's. */
static int line_find_heir(zke_line *l) {
  zke_entries *e = NULL;
  zke_stat stat;
  int rc = zke_exists(l->r.z, l->r.path, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  if (stat.numChildren < 2) return ZKE_NONODE; /* the own one is alone */
  rc = zke_entry_list(l->r.z, l->r.path, &e, &stat);
  if (rc != ZKE_OK) return rc;
  int i = zke_recipe_find(e, zke_recipe_name(l->znode));
  if (i >= 0) line_note_heir(l, e, i);
  zke_free(e);
  return i >= 0 && l->heir ? ZKE_OK : ZKE_NONODE;
}

/* Leave, and mark the waiting heir as the holder, in one step.  Only the state
 * in its data changes.  The step requires the version that was read, so it
 * cannot overwrite anything that the heir has written since. */
static int line_bestow(const zke_line *l) {
  zke_op ops[2];
  zke_stat stat;
  char *data = NULL, *mark = NULL;
  int len, rc = zke_get(l->r.z, l->heir, NULL, NULL, &data, &len, &stat);
  if (rc != ZKE_OK) return rc;
  zke_entry_words w = zke_entry_read(data, len);
  bool waits = w.waiting || w.queued;
  if (waits)
    mark = zke_line_text(l->r.z, "held", w.actor, data + w.head, len - w.head,
                         &len);
  zke_free(data);
  if (!mark) return waits ? ZKE_NOMEM : ZKE_NONODE;
  zke_op_set(&ops[0], l->heir, mark, len, stat.version);
  zke_op_delete(&ops[1], l->znode, -1);
  rc = zke_recipe_multi(l->r.z, ops, 2, NULL);
  zke_free(mark);
  return rc;
}

/* Leave, and grant the office to the next in line.  The recorded heir may have
 * gone, or none was recorded: then look again.  On failure nothing has changed,
 * or the reply was lost: the caller deletes the znode.
 *
 * Leases and elections grant nothing: the next lease must find out how many may
 * hold, and in an election the heir may be named (zke_line_yield()). */
static int line_grant(zke_line *l) {
  if (l->state != ZKE_LINE_HELD || !line_does(l)->grants) return ZKE_NONODE;
  int rc = l->heir ? line_bestow(l) : ZKE_NONODE;
  if (rc == ZKE_NONODE) {
    rc = line_find_heir(l);
    if (rc == ZKE_OK) rc = line_bestow(l);
  }
  return rc;
}

/* Delete the own znode and `also`, in one step.  On failure as line_grant(). */
static int line_leave_both(zke_line *l) {
  zke_op ops[2];
  zke_op_delete(&ops[0], l->znode, -1);
  zke_op_delete(&ops[1], l->also, -1);
  return zke_recipe_multi(l->r.z, ops, 2, NULL);
}

/* Leave the line, by the first way that works:
 *   1. delete the znode and mark the heir, or delete `also`, in one step;
 *   2. delete only the znode;
 *   3. have the session delete it later (zke_discard()).
 * The object forgets it in any case, because it can promise nothing more about
 * it.  If the reply to 1 was lost, 2 deletes the znode, if it still exists.
 *
 * If the process dies before the step, its session's end deletes the znode, and
 * the next in line marks itself.  The own watch is taken back first: the object
 * need not hear of its own deletion. */
int zke_line_quit(zke_line *l) {
  zke_sentence kept;
  line_unwatch_own(l);
  int rc = l->also ? line_leave_both(l) : line_grant(l);
  if (rc != ZKE_OK) rc = line_discard_own(l);
  if (zke_recipe_has_ended(&l->r, rc)) return rc; /* it is LOST, not OUT */
  if (rc != ZKE_OK) zke_recipe_keep(&kept);
  if (line_does(l)->tidy && l->state == ZKE_LINE_HELD && rc == ZKE_OK)
    line_does(l)->tidy(l); /* the mark for it */
  line_unwatch(l);
  line_forget_own(l);
  line_change(l, ZKE_LINE_OUT, 0);
  if (l->blocking) zke_wake(l->r.z); /* another thread waits with this object */
  return rc == ZKE_OK ? ZKE_OK : zke_recipe_restore(&kept, rc);
}

/* Make the own znode or znodes, with this state. */
static int line_make(zke_line *l, const char *state, int64_t deadline_ms) {
  int len;
  char *text = line_text(l, state, &len);
  if (!text) return ZKE_NOMEM;
  int rc = line_does(l)->make(l, text, len, deadline_ms);
  zke_free(text);
  return rc;
}

/* An object that has lost its place may join again, unless another thread's
 * blocking call has not noticed the loss yet.
 *
 * The znode says "waiting" or "queued" from the beginning, so a search for
 * deadlocks sees a wait as soon as it exists.  If the process dies after the
 * znode was made, the session's end removes it. */
int zke_line_join(zke_line *l, bool blocking, int64_t deadline_ms) {
  if (l->state == ZKE_LINE_LOST && !l->blocking) {
    int rc = zke_line_quit(l);
    if (rc != ZKE_OK) return rc;
  }
  if (l->state != ZKE_LINE_OUT || l->blocking) {
    return zke_recipe_fail(ZKE_MISUSE,
                           "this object already holds or waits for the %s %s",
                           l->r.class_->name, l->r.path);
  }
  l->actor = zke_line_actor();
  int rc = line_make(l, blocking ? "waiting" : "queued", deadline_ms);
  if (rc != ZKE_OK) return rc;
  l->state = ZKE_LINE_WAITING;
  rc = zke_line_step(l);
  return rc == ZKE_OK ? ZKE_OK : zke_line_give_up(l, rc);
}

/* Asks the file, not the memory: this notices a deleted znode before its event
 * is dispatched.  All znodes of a lease must exist. */
int zke_line_check(zke_line *l) {
  if (l->state == ZKE_LINE_HELD) {
    int rc = l->own ? ZKE_OK : zke_exists(l->r.z, l->znode, NULL, NULL, NULL);
    for (int i = 0; l->own && i < l->own->count && rc == ZKE_OK; i++)
      rc = zke_exists(l->r.z, l->own->data[i], NULL, NULL, NULL);
    if (rc != ZKE_NONODE) return rc;
    line_lose(l);
  }
  return zke_recipe_fail(ZKE_LOST, "the %s %s is not held", l->r.class_->name,
                         l->r.path);
}

/* Fail with rc and a sentence that names the holder. */
static int line_say_held(zke_line *l, int rc) {
  return zke_line_say_held(l->r.z, rc, l->r.class_->name, l->r.path, l->znode);
}

/* The znode must be made to find out whether it is kept out.  It exists for a
 * moment: an entry that comes in this moment watches it, and is woken when it
 * goes.
 *
 * Only living processes may keep it out: this buries dead ones among the
 * watched entries, and the entry that the sentence names. */
int zke_line_try(zke_line *l) {
  int rc = zke_line_join(l, false, ZKE_FOREVER);
  if (rc != ZKE_OK) return rc;
  while (rc == ZKE_OK && l->state == ZKE_LINE_WAITING) {
    rc = zke_recipe_bury_all(l->r.z, l->r.path, l->watched);
    if (rc == ZKE_OK) rc = line_say_held(l, ZKE_HELD);
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
    if (zke_recipe_again(l->r.z, &rc)) rc = zke_line_step(l);
  }
  if (rc == ZKE_OK && l->state == ZKE_LINE_LOST) rc = line_lost(l);
  return rc == ZKE_OK ? ZKE_OK : zke_line_give_up(l, rc);
}

/* ---- replacing the own entry ----
 *
 * A leap makes a new entry and deletes the own old one in one step.  By a leap
 *   a thief      gets a FRONT entry, and deletes the victim's in the same step;
 *   a converter  gets an entry of another kind with the same number.
 * After a lost reply the new entry is found by its guid. */

/* One leap, for zke_retry(). */
typedef struct line_leap {
  zke_line *l;
  const char *victim; /* path of the znode to delete as well, or NULL */
  const char *text;   /* the new entry's data, "held …" */
  int len;            /* bytes of it */
  zke_creation made;  /* the new entry, for zke_creation_find() */
} line_leap;

/* One try.  One step makes the new entry and deletes the old one, so no
 * other can hold in between, and a death leaves one or the other. */
static int line_try_leap(zke *z, void *arg) {
  line_leap *j = arg;
  zke_op ops[3];
  zke_op_result results[3] = {{0}};
  int n = 0;
  int rc = j->made.unsure ? zke_creation_find(z, &j->made) : ZKE_NONODE;
  if (rc != ZKE_NONODE) return rc;
  zke_op_create(&ops[n++], j->made.given, j->text, j->len, ZKE_OPEN_ACL,
                j->made.mode);
  if (j->victim && !(j->l->znode && strcmp(j->victim, j->l->znode) == 0))
    zke_op_delete(&ops[n++], j->victim, -1);
  if (j->l->znode) zke_op_delete(&ops[n++], j->l->znode, -1);
  rc = zke_recipe_multi(z, ops, n, results);
  if (rc == ZKE_OK) {
    j->made.path = results[0].path;
    j->made.stat = results[0].stat;
    results[0].path = NULL;
  }
  zke_results_clear(results, n);
  j->made.unsure |= zke_recipe_is_lost(rc);
  return rc;
}

/* Make the leap.  If its outcome stays unknown, it counts as not made, and the
 * new znode is discarded. */
static int line_leap_make(zke_line *l, line_leap *j) {
  char *text = line_text(l, "held", &j->len);
  if (!text) return ZKE_NOMEM;
  j->text = text;
  int rc = zke_retry(l->r.z, line_try_leap, j, ZKE_FOREVER);
  if (rc != ZKE_OK && j->made.unsure)
    rc = zke_creation_resolve(l->r.z, &j->made, rc);
  zke_free(text);
  return rc;
}

/* Leap; afterwards the new znode is the own one.  The caller must find out its
 * token, and for a thief whether it holds.
 *
 * ZKE_NONODE: a znode to be deleted has gone already.  ZKE_LOST: a leap without
 * a reply has deleted the own old znode, and somebody has robbed the thief
 * since.  A thief without an old znode cannot distinguish this from a victim
 * that left by itself: for it nothing has changed.
 *
 *   kind    of the new entry
 *   suffix  its number, or "" for the next one that the directory gives
 *   victim  or NULL */
static int line_leap_over(zke_line *l, int kind, const char *suffix,
                          const char *victim) {
  line_leap j = {.l = l, .victim = victim};
  j.made.directory = l->r.path;
  j.made.kind = zke_entry_kinds[kind];
  j.made.mode = *suffix ? ZKE_EPHEMERAL : ZKE_EPHEMERAL_SEQUENTIAL;
  int rc = zke_creation_name(l->r.z, &j.made, suffix);
  bool waits = l->state == ZKE_LINE_WAITING;
  line_unwatch_own(l);
  if (rc == ZKE_OK) rc = line_leap_make(l, &j);
  zke_free(j.made.given);
  if (rc != ZKE_OK) {
    line_watch_again(l, rc); /* it may find the own old znode gone */
    bool robbed = rc == ZKE_NONODE && j.made.unsure && waits && !l->znode;
    return robbed ? line_lost(l) : rc;
  }
  line_unwatch(l);
  line_forget_own(l);
  l->znode = j.made.path;
  l->kind = kind == ZKE_LINE_FRONT ? l->kind : kind;
  l->czxid = j.made.stat.czxid;
  return ZKE_OK;
}

/* A thief's FRONT entry makes it the first in line.  It takes office by an
 * ordinary look after the leap, so it notices if somebody has robbed it in
 * turn. */
int zke_line_jump(zke_line *l, const char *victim) {
  uint64_t before = l->actor;
  l->actor = zke_line_actor(); /* this thread will hold, not the one that
                                  joined */
  int rc = line_leap_over(l, ZKE_LINE_FRONT, "", victim);
  if (rc != ZKE_OK) l->actor = before;
  if (rc != ZKE_OK && rc != ZKE_LOST) return rc;
  if (rc == ZKE_OK) {
    l->state = ZKE_LINE_WAITING;
    rc = zke_line_step(l);
  }
  if (rc == ZKE_OK && l->state == ZKE_LINE_LOST) rc = line_lost(l);
  return rc == ZKE_OK ? ZKE_OK : zke_line_give_up(l, rc);
}

/* A handover to a named heir, for zke_recipe_do(). */
typedef struct line_legacy {
  zke_line *l;
  char *heir;       /* path of its znode */
  char *mark;       /* path of the NEXT mark that names it */
  const char *word; /* path of another znode to delete, or NULL */
  bool unsure;      /* a try has lost its reply: it may have been made */
} line_legacy;

/* The two paths, from the name of the heir's znode. */
static int line_name_heir(line_legacy *y, const char *heir) {
  const zke_recipe *r = &y->l->r;
  zke_entry entry;
  char name[64];
  zke_recipe_parse(heir, zke_entry_kinds, ZKE_LINE_KINDS, &entry);
  snprintf(name, sizeof name, "%.*s%s" ZKE_RECIPE_NUMBER, ZKE_NAME_KIND, heir,
           zke_entry_kinds[ZKE_LINE_NEXT], entry.number);
  y->heir = zke_recipe_path(r->z, r->path, heir);
  y->mark = zke_recipe_path(r->z, r->path, name);
  return y->heir && y->mark ? ZKE_OK : ZKE_NOMEM;
}

/* In one step: make the NEXT mark that names the heir, wake the heir by writing
 * its data unchanged, delete the own znode, and delete the word if it exists.
 * Only a lost reply of this step, not of a read, makes `unsure`.
 * ZKE_LOOK_AGAIN: the heir's data, or the word, has changed in between. */
static int line_bequeath(zke *z, line_legacy *y, const zke_op_result *heir) {
  zke_op ops[4];
  zke_op_result results[4] = {{0}};
  int n = 0;
  int rc = y->word ? zke_exists(z, y->word, NULL, NULL, NULL) : ZKE_NONODE;
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  zke_op_create(&ops[n++], y->mark, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_set(&ops[n++], y->heir, heir->data, heir->len, heir->stat.version);
  zke_op_delete(&ops[n++], y->l->znode, -1);
  if (rc == ZKE_OK) zke_op_delete(&ops[n++], y->word, -1);
  rc = zke_recipe_multi(z, ops, n, results);
  y->unsure |= zke_recipe_is_lost(rc);
  bool faster = rc == ZKE_BADVERSION || results[3].rc == ZKE_NONODE;
  zke_results_clear(results, n);
  return faster ? ZKE_LOOK_AGAIN : rc;
}

/* After a lost reply: was the step made?  ZKE_NONODE: no.  If the own znode has
 * gone, the mark shows that the step has deleted it; without the mark somebody
 * else has: ZKE_LOST.  A mark stays as long as the znode that it names.  If
 * that has gone too, it cannot be known; the step counts as made. */
static int line_find_bequest(zke *z, const line_legacy *y) {
  int rc = zke_exists(z, y->l->znode, NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc == ZKE_OK ? ZKE_NONODE : rc;
  rc = zke_exists(z, y->mark, NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  rc = zke_exists(z, y->heir, NULL, NULL, NULL);
  if (rc == ZKE_OK) return zke_line_check(y->l);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* One step. */
static int line_try_yield(zke *z, void *arg) {
  line_legacy *y = arg;
  zke_op_result got = {0};
  int rc = y->unsure ? line_find_bequest(z, y) : ZKE_NONODE;
  if (rc != ZKE_NONODE) return rc;
  rc = zke_get(z, y->heir, NULL, NULL, &got.data, &got.len, &got.stat);
  if (rc == ZKE_OK) rc = line_bequeath(z, y, &got);
  zke_free(got.data);
  return rc;
}

/* Repeated while the heir's data changes, since the write that wakes it must
 * not change the data.  If the process dies before the step, no heir is named,
 * and the next in line follows; after it, the heir holds. */
int zke_line_yield(zke_line *l, const char *heir, const char *word) {
  line_legacy y = {.l = l, .word = word};
  if (l->state != ZKE_LINE_HELD) return zke_line_check(l);
  int rc = line_name_heir(&y, heir);
  line_unwatch_own(l);
  if (rc == ZKE_OK) rc = zke_recipe_do(l->r.z, line_try_yield, &y, ZKE_FOREVER);
  zke_free(y.heir);
  zke_free(y.mark);
  if (rc == ZKE_NONODE && zke_line_check(l) == ZKE_LOST) return ZKE_LOST;
  if (rc != ZKE_OK) {
    rc = line_watch_again(l, rc); /* it may find the own znode gone */
    return l->state == ZKE_LINE_HELD ? rc : zke_line_check(l);
  }
  line_forget_own(l);
  line_change(l, ZKE_LINE_OUT, 0);
  return ZKE_OK;
}

/* ---- an entry of several lines ----
 *
 * A multi-lock has one object and an entry in each of several lines.  This is
 * the look at one of them, without a zke_line. */

/* Watch the nearest entry that keeps out the one at index i, and no longer the
 * one watched before.  The caller has counted that there is one. */
static int line_watch_nearest(zke_recipe *r, const char *directory,
                              const zke_entries *e, int i, char **watched) {
  int j = i - 1;
  while (!zke_entry_keeps_out(&e->data[j], &e->data[i])) j--;
  char *path = zke_recipe_path(r->z, directory, e->data[j].name);
  if (!path) return ZKE_NOMEM;
  int rc = zke_children(r->z, path, zke_recipe_watcher, r, NULL, NULL);
  if (rc != ZKE_OK) {
    zke_free(path);
    return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
  }
  if (*watched && strcmp(*watched, path) != 0)
    zke_remove_watch(r->z, *watched, ZKE_WATCH_CHILD, zke_recipe_watcher, r);
  zke_free(*watched);
  *watched = path;
  return ZKE_NOT_YET;
}

/* As line_look(), but takes no office: a multi-lock takes all its lines or
 * none, when its turn has come in each. */
int zke_line_turn(zke_recipe *r, const char *directory, const char *znode,
                  char **watched, int64_t *pzxid) {
  int rc;
  do {
    zke_entries *e = NULL;
    zke_stat stat;
    rc = zke_entry_list(r->z, directory, &e, &stat);
    if (rc != ZKE_OK) return rc;
    int i = zke_recipe_find(e, zke_recipe_name(znode));
    if (i < 0)
      rc = ZKE_NONODE;
    else
      rc = zke_entry_refuse(r->z, e, e->data[i].kind, r->class_->name,
                            directory);
    if (rc == ZKE_OK && zke_entry_keepers(e, i) > 0)
      rc = line_watch_nearest(r, directory, e, i, watched);
    zke_free(e);
    if (rc != ZKE_OK) continue;
    *pzxid = stat.pzxid;
    zke_free(*watched); /* it has fired */
    *watched = NULL;
  } while (zke_recipe_again(r->z, &rc));
  return rc;
}

/* The new entry has the number of the old one, and so its place: no entry comes
 * in between.  The state stays HELD, even if a reader becomes a writer: the
 * caller must find out whether other readers hold, too (rwlock_upgrade()).
 *
 * The step watches the new znode.  If it fails, the conversion is made all the
 * same: a later look watches. */
int zke_line_convert(zke_line *l, int kind) {
  char suffix[16];
  zke_entry own;
  if (l->state != ZKE_LINE_HELD ||
      !zke_recipe_parse(zke_recipe_name(l->znode), zke_entry_kinds,
                        ZKE_LINE_KINDS, &own)) {
    return zke_line_check(l);
  }
  snprintf(suffix, sizeof suffix, ZKE_RECIPE_NUMBER, own.number);
  int rc = line_leap_over(l, kind, suffix, NULL);
  if (rc == ZKE_NONODE) {
    line_lose(l);
    return line_lost(l);
  }
  if (rc != ZKE_OK) return rc;
  l->token = l->czxid;
  rc = zke_line_step(l);
  if (zke_recipe_has_ended(&l->r, rc)) return rc;
  if (rc != ZKE_OK) l->r.changed = true; /* converted; a look is due */
  return l->state == ZKE_LINE_LOST ? line_lost(l) : ZKE_OK;
}

/* Look for a deadlock that this object's wait has closed. */
static int line_detect(const zke_line *l) {
  if (l->no_check) return ZKE_OK;
  return zke_line_detect(l->r.z, l->actor, l->weight);
}

/* ---- the blocking call ----
 *
 * zke_line_acquire(): join, say in the znode that a thread waits, look for a
 * deadlock, sleep until the state says HELD or LOST (zke_recipe_await()).  The
 * looks themselves are the steps of the object, on whichever thread. */

/* For zke_recipe_await(): has the wait ended, and how? */
static int line_is_done(zke_recipe *r) {
  zke_line *l = (zke_line *)r;
  if (l->state == ZKE_LINE_HELD) return ZKE_OK;
  return l->state == ZKE_LINE_WAITING ? ZKE_NOT_YET : line_lost(l);
}

/* The object has joined without blocking and blocks now: its znode must say so,
 * and name the thread, for the search for deadlocks.  If the znode has gone,
 * the state says so, and zke_recipe_await() sees it. */
static int line_begin_blocking(zke_line *l) {
  zke_stat stat;
  l->actor = zke_line_actor();
  int rc = line_set(l, "waiting", -1, &stat);
  if (rc == ZKE_NONODE) line_lose(l);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* The wait first writes "waiting" into the znode, and then looks for a
 * deadlock.  So if two close a circle at the same time, the later one to write
 * sees the other; in the other order neither might.
 *
 * After any failure the object is out of the line, even if it had joined before
 * this call. */
int zke_line_acquire(zke_line *l, int64_t deadline_ms) {
  int rc = ZKE_OK;
  if (l->state == ZKE_LINE_WAITING && !l->blocking) {
    l->blocking = true;
    rc = line_begin_blocking(l);
  } else {
    rc = zke_line_join(l, true, deadline_ms);
    if (rc != ZKE_OK) return rc;
    l->blocking = true;
  }
  if (rc == ZKE_OK && l->state == ZKE_LINE_WAITING) rc = line_detect(l);
  if (rc == ZKE_OK) rc = zke_recipe_await(&l->r, line_is_done, deadline_ms);
  l->blocking = false;
  if (rc == ZKE_OPERATIONTIMEOUT) line_say_held(l, rc);
  return rc == ZKE_OK ? ZKE_OK : zke_line_give_up(l, rc);
}

/* ---- the public functions of a line ---- */

/* Gives up a wait as well.  ZKE_LOST may be the last chance to tell the caller
 * that it has lost the place, so a holder looks at the file first: without a
 * listener, or without a dispatch, it has not heard of the loss.  A failed look
 * does not keep it from leaving. */
int zke_line_release(zke_line *l) {
  if (l->state == ZKE_LINE_HELD) zke_line_check(l);
  if (l->state == ZKE_LINE_WAITING || l->state == ZKE_LINE_HELD)
    return zke_line_quit(l);
  if (l->state == ZKE_LINE_LOST) zke_line_quit(l);
  return zke_line_check(l); /* ZKE_LOST: not held */
}

/* The operation checks that the own znode exists; no znode of that name is made
 * again.  So the caller's multi fails if the place is lost by then. */
int zke_line_check_op(zke_line *l, zke_op *op) {
  if (l->state != ZKE_LINE_HELD) return zke_line_check(l);
  zke_op_check(op, l->znode, -1);
  return ZKE_OK;
}

/* The members of a class that adds nothing to a line. */
int zke_line_on_step(zke_recipe *r) { return zke_line_step((zke_line *)r); }

void zke_line_on_event(zke_recipe *r, int type, const char *path) {
  (void)type;
  zke_line_event((zke_line *)r, path);
}

void zke_line_on_ended(zke_recipe *r) { zke_line_ended((zke_line *)r); }
void zke_line_on_quit(zke_recipe *r) { zke_line_quit((zke_line *)r); }
void zke_line_on_destroy(zke_recipe *r) { zke_line_free((zke_line *)r); }

/* Entered with rc: make or check the directory, once in an object's life and
 * before its first change.  If the directory is made again later,
 * line_check_place() notices. */
static int line_enter(zke_line *l, int rc) {
  if (rc != ZKE_OK || l->seen) return rc;
  rc = line_place(l);
  return rc == ZKE_OK ? ZKE_OK : zke_recipe_leave(&l->r, rc);
}

/* For a call without a deadline. */
int zke_line_enter(zke_line *l) {
  return line_enter(l, zke_recipe_enter((zke_recipe *)l));
}

/* For a call that waits and can be cancelled. */
int zke_line_enter_by(zke_line *l, int64_t deadline_ms) {
  return line_enter(l, zke_recipe_enter_by((zke_recipe *)l, deadline_ms));
}

/* An object that cannot be entered (the session has ended, a thread was
 * cancelled inside, this is a forked child) holds nothing for the caller to
 * rely on. */
int zke_line_api_state(zke_line *l) {
  if (zke_recipe_enter_memory((zke_recipe *)l) != ZKE_OK) return ZKE_LINE_LOST;
  int state = l->state;
  zke_recipe_leave(&l->r, ZKE_OK);
  return state;
}

/* 0 for an object that cannot be entered: no fence accepts it. */
int64_t zke_line_api_token(zke_line *l) {
  if (zke_recipe_enter_memory((zke_recipe *)l) != ZKE_OK) return 0;
  int64_t token = l->token;
  zke_recipe_leave(&l->r, ZKE_OK);
  return token;
}

/* Asks the file, since the object knows only the dispatched events. */
int zke_line_api_check(zke_line *l) {
  int rc = zke_recipe_enter((zke_recipe *)l);
  return rc == ZKE_OK ? zke_recipe_leave(&l->r, zke_line_check(l)) : rc;
}

/* A program puts this before its own changes, to make them only while it
 * holds. */
int zke_line_api_op(zke_line *l, zke_op *op) {
  if (!op) return zke_recipe_fail(ZKE_BADARGUMENTS, "op is NULL");
  int rc = zke_recipe_enter((zke_recipe *)l);
  return rc == ZKE_OK ? zke_recipe_leave(&l->r, zke_line_check_op(l, op)) : rc;
}
