/* rwlock.c - many readers or one writer, in the order they came; revocable
 *
 * A line (line.h) in which READ entries do not block each other.  Acquire and
 * release are those of a lock, step by step in lock.c.  This file adds changing
 * the mode without leaving the line, and revocation.
 *
 *   downgrade  A reader's entry of the same number replaces the writer's, in
 *              one step: no writer can come between.
 *   upgrade    1. Look: is this object the only holder?  If not, ZKE_HELD.
 *              2. In one step a writer's entry of the same number replaces the
 *                 reader's.
 *              3. Look again: a reader may have come between 1 and 2.  It saw a
 *                 reader, so it holds.  Then go back to reading (rwlock_undo),
 *                 and return ZKE_HELD.
 *              If two readers upgrade at the same time, the later one in the
 *              line sees the other in front of it, in either mode, and goes
 *              back.  It never waits: two readers that both waited to write
 *              would wait for each other.
 *   revoke     1. Note the znodes of all present holders (rwlock_holders).
 *              2. Write the word into each, keep the rest of the data, and
 *                 watch it (rwlock_ask).
 *              3. Wait until all of them have gone.  If a holder changes its
 *                 mode meanwhile, it has another znode of the same number and
 *                 session: then that one is asked (rwlock_follow).  In a
 *                 directory that was made again the numbers begin again: there
 *                 no holder is asked.
 *              4. At the deadline, if the caller insists, delete the rest.
 *
 * A death or a lost reply in a conversion: the new entry has a guid, which
 * identifies it; old and new go and come in one step (line.c).  In an upgrade
 * the object reports that it reads from the moment when it goes back, though
 * its znode may say "writes" until rwlock_undo() has succeeded: that blocks
 * others for longer, and lets no other in.
 *
 * Invariants:
 *  1. `undo` is set only while the object holds; from then on it reports that
 *     it reads, whatever its znode says.
 *  2. `look` is set whenever the object's own znode may have a request that the
 *     listener has not heard.
 *  3. An object is either in the line or revokes (`asked`), never both.
 *
 * Start reading at zke_rwlock_acquire(), rwlock_upgrade() and
 * rwlock_revoke(). */
#include "rwlock.h"

#include <stdio.h>
#include <string.h>

#include "part/limit.h"
#include "part/line.h"
#include "part/party.h"
#include "part/text.h"
#include "part/znode.h"

#define RWLOCK_PLACE "rwlock"
#define RWLOCK_ASK "unlock"

/* The mutex of l.r guards all members; listener and context do not change. */
struct zke_rwlock {
  zke_line l; /* its kind is the mode: READ or WRITE */
  bool look;  /* the own data may be a request: see invariant 2 */
  bool undo;  /* the znode still says that it writes, but it reads */
  zke_rwlock_fn listener;
  void *context;
  zke_strings *asked; /* paths of the holders' znodes that must go, in one
                         block; gone ones are removed from it.  NULL: not
                         revoking */
  int64_t directory;  /* czxid of their directory; 0: none */
};

/* The start of a name's number: both kinds have eight letters, so names have
 * the same length in either mode. */
enum { RWLOCK_NUMBER = ZKE_NAME_KIND + 8 };

_Static_assert(ZKE_RWLOCK_WRITE == (int)ZKE_LINE_WRITE &&
                   ZKE_RWLOCK_READ == (int)ZKE_LINE_READ,
               "a mode is the kind of its entries");

/* The kinds that rwlock_entries() reads, and their indexes: the kind of a
 * zke_entry. */
static const char *const rwlock_kinds[] = {"__WRIT__", "__READ__"};
enum { RWLOCK_WRITES, RWLOCK_READS };

/* The entries of readers and writers in the order of the line, for
 * zke_free().  stat: of the directory; may be NULL. */
static int rwlock_entries(zke_rwlock *rw, zke_entries **out, zke_stat *stat) {
  return zke_recipe_entries(rw->l.r.z, rw->l.r.path, rwlock_kinds, 2, NULL,
                            NULL, out, stat);
}

/* The last name of a path: a part of the path, not to be freed. */
static const char *rwlock_name(const char *path) {
  return strrchr(path, '/') + 1;
}

/* ---- asking for the release ----
 *
 * A request is the word "unlock" instead of the state: "unlock <actor>", and
 * then the user's data. */

/* Is this data the request to release?  A person writes the word alone. */
static bool rwlock_asks(const char *data, int len) {
  int word = (int)strlen(RWLOCK_ASK);
  return len >= word && memcmp(data, RWLOCK_ASK, (size_t)word) == 0 &&
         (len == word || data[word] == ' ' || data[word] == '\n');
}

/* Tell the listener if the own znode asks for the release.  If the znode is not
 * watched now, a request may come unseen: so look again later.  This object's
 * own write of "held" may have overwritten the word; then the revoker, which
 * watches the znode, writes it again. */
static int rwlock_look(zke_rwlock *rw) {
  char *data = NULL;
  int len;
  if (!rw->look || !rw->listener || rw->l.state != ZKE_LINE_HELD) return ZKE_OK;
  int rc = zke_get(rw->l.r.z, rw->l.znode, NULL, NULL, &data, &len, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  bool asked = rwlock_asks(data, len);
  rw->look = !asked && !rw->l.own_watched;
  if (asked) zke_recipe_tell(&rw->l.r, ZKE_RWLOCK_ASKED, rw->l.token, NULL, 0);
  zke_free(data);
  return ZKE_OK;
}

/* Write the word over the state; the actor and the user's data stay.  Data of
 * another form is replaced as a whole. */
static int rwlock_write(zke *z, const char *path, const char *data, int len,
                        int version) {
  const char *rest = data ? memchr(data, ' ', (size_t)len) : NULL;
  size_t word = strlen(RWLOCK_ASK), more = 0;
  if (rest && data + len - rest > ZKE_ENTRY_ACTOR &&
      rest[ZKE_ENTRY_ACTOR] == '\n')
    more = (size_t)(data + len - rest);
  char *text = zke_alloc(z, word + more + 1);
  if (!text) return ZKE_NOMEM;
  memcpy(text, RWLOCK_ASK, word);
  if (more) memcpy(text + word, rest, more);
  int rc = zke_set(z, path, text, (int)(word + more), version, NULL);
  zke_free(text);
  return rc;
}

/* A holder's znode has gone: has the holder changed its mode?  Then its session
 * has another znode of the same number, and the path becomes that one's.  Else
 * ZKE_NONODE: it has released.
 *
 * The directory is a container, which goes when it is empty.  In the next one
 * the session may have the same number for a holding that was not asked. */
static int rwlock_follow(zke_rwlock *rw, char *path) {
  zke_entries *e = NULL;
  zke_stat stat;
  char *name = path + (rwlock_name(path) - path);
  int rc = rwlock_entries(rw, &e, &stat);
  if (rc != ZKE_OK) return rc;
  rc = ZKE_NONODE;
  int count = stat.czxid == rw->directory ? e->count : 0;
  for (int i = 0; i < count && rc == ZKE_NONODE; i++) {
    const char *other = e->data[i].name;
    if (strcmp(other + RWLOCK_NUMBER, name + RWLOCK_NUMBER) != 0) continue;
    if (strncmp(other, name, ZKE_NAME_SESSION) != 0) continue;
    memcpy(name, other, strlen(other)); /* as long as the old one */
    rc = ZKE_OK;
  }
  zke_free(e);
  return rc;
}

/* A request to ask or remove one holder, for zke_recipe_do(). */
typedef struct rwlock_request {
  zke_rwlock *rw; /* the revoker */
  char *path;     /* of the holder's znode; follows its changes of mode */
} rwlock_request;

/* One step.  The read also sets the watch, so the end of the holder's znode is
 * noticed whether the word was written or not.  The holder may change its data
 * or its mode at the same time.  ZKE_NONODE: it has released. */
static int rwlock_try_ask(zke *z, void *arg) {
  const rwlock_request *q = arg;
  char *data = NULL;
  int len;
  zke_stat stat;
  int rc =
      zke_get(z, q->path, zke_recipe_watcher, &q->rw->l.r, &data, &len, &stat);
  if (rc == ZKE_OK && !rwlock_asks(data, len))
    rc = rwlock_write(z, q->path, data, len, stat.version);
  zke_free(data);
  if (rc == ZKE_NONODE) {
    rc = rwlock_follow(q->rw, q->path);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  }
  return rc == ZKE_BADVERSION ? ZKE_LOOK_AGAIN : rc;
}

/* Ask all remaining holders; a gone one is removed from the list, by putting
 * the last one in its place. */
static int rwlock_ask_all(zke_rwlock *rw) {
  zke_strings *s = rw->asked;
  for (int i = 0; s && i < s->count;) {
    rwlock_request q = {rw, s->data[i]};
    int rc = zke_recipe_do(rw->l.r.z, rwlock_try_ask, &q, ZKE_FOREVER);
    if (rc == ZKE_NONODE)
      s->data[i] = s->data[--s->count];
    else if (rc == ZKE_OK)
      i++;
    else
      return rc;
  }
  return ZKE_OK;
}

/* ---- the object ---- */

/* Go back to reading after a failed upgrade.  Each step repeats it until it
 * succeeds.  The new znode may have got a request while it was not watched: so
 * look at it. */
static int rwlock_undo(zke_rwlock *rw) {
  if (!rw->undo) return ZKE_OK;
  int rc = rw->l.state == ZKE_LINE_HELD
               ? zke_line_convert(&rw->l, ZKE_LINE_READ)
               : ZKE_OK;
  rw->undo = rc != ZKE_OK && rw->l.state == ZKE_LINE_HELD;
  rw->look = true;
  return rc == ZKE_LOST ? ZKE_OK : rc; /* the state tells it */
}

/* The place in the line first; then undo an upgrade, or ask holders. */
static int rwlock_step(zke_recipe *r) {
  zke_rwlock *rw = (zke_rwlock *)r;
  int rc = zke_line_step(&rw->l);
  if (rc == ZKE_OK) rc = rwlock_undo(rw);
  if (rc == ZKE_OK) rc = rwlock_look(rw);
  return rc == ZKE_OK ? rwlock_ask_all(rw) : rc;
}

/* A write to the own znode may be the request to release. */
static void rwlock_event(zke_recipe *r, int type, const char *path) {
  zke_rwlock *rw = (zke_rwlock *)r;
  bool written = type == ZKE_EVENT_CHANGED && rw->l.znode &&
                 strcmp(path, rw->l.znode) == 0;
  if (written || !*path) rw->look = true; /* an overflow may have hidden it */
  zke_line_event(&rw->l, path);
}

/* Release the object's memory; quit has deleted the znode before. */
static void rwlock_destroy(zke_recipe *r) {
  zke_free(((zke_rwlock *)r)->asked);
  zke_line_free((zke_line *)r);
}

/* The number is the token; for ASKED it is the present holding's. */
static void rwlock_deliver(zke_recipe *r, int event, int64_t number,
                           const char *text, int len) {
  zke_rwlock *rw = (zke_rwlock *)r;
  (void)text, (void)len;
  if (rw->listener) rw->listener(rw, event, number, rw->context);
}

static const zke_recipe_class rwlock_class = {.name = "rwlock",
                                              .event = rwlock_event,
                                              .step = rwlock_step,
                                              .ended = zke_line_on_ended,
                                              .deliver = rwlock_deliver,
                                              .quit = zke_line_on_quit,
                                              .destroy = rwlock_destroy};

/* Each acquisition sets the kind.  A listener must hear requests, which are
 * written to the own znode: so with a listener the znode is watched while it
 * holds. */
int zke_rwlock_new(zke *z, const char *path, const zke_rwlock_options *options,
                   zke_rwlock **rw_out) {
  zke_rwlock_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(rw_out, options, &o, zke_rwlock_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &rwlock_class, sizeof(zke_rwlock), &r);
  if (rc != ZKE_OK) return rc;
  zke_rwlock *rw = (zke_rwlock *)r;
  rw->l.place = RWLOCK_PLACE;
  rw->l.kind = ZKE_LINE_READ;
  rw->l.no_check = o.no_deadlock_check != 0;
  rw->l.watch_own = o.listener != NULL;
  rw->l.data = o.data;
  rw->l.len = o.len;
  rw->listener = o.listener;
  rw->context = o.context;
  rc = zke_line_init(&rw->l);
  if (rc == ZKE_OK)
    *rw_out = rw;
  else
    zke_recipe_free(r);
  return rc;
}

/* Leaves the line, so objects that wait behind it continue immediately. */
void zke_rwlock_free(zke_rwlock *rw) { zke_recipe_free((zke_recipe *)rw); }

/* ---- in and out ---- */

/* ZKE_BADARGUMENTS: the mode is neither of the two. */
static int rwlock_check_mode(int mode) {
  if (mode == ZKE_RWLOCK_READ || mode == ZKE_RWLOCK_WRITE) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "unknown mode %d", mode);
}

/* Entered with rc: note the mode of a new contender, or refuse the call.  An
 * object that waits in one mode cannot wait in the other. */
static int rwlock_enter_as(zke_rwlock *rw, int mode, int rc) {
  if (rc != ZKE_OK) return rc;
  if (rw->asked || (rw->l.znode && rw->l.kind != mode)) {
    rc = zke_recipe_fail(
        ZKE_MISUSE,
        "this object already holds, waits for or revokes the rwlock %s",
        rw->l.r.path);
    return zke_recipe_leave(&rw->l.r, rc);
  }
  if (!rw->l.znode) {
    rw->l.kind = mode;
    rw->undo = false;
    rw->look = true; /* it may be asked before it watches its znode */
  }
  return ZKE_OK;
}

/* End a call.  A request may have come while the znode was not watched: look
 * for it; if that fails, or the call has failed, the next step looks. */
static int rwlock_leave(zke_rwlock *rw, int rc) {
  if (rc == ZKE_OK) rwlock_look(rw);
  if (rw->look && rw->listener && rw->l.state == ZKE_LINE_HELD)
    rw->l.r.changed = true;
  return zke_recipe_leave(&rw->l.r, rc);
}

/* As a lock's, in the given mode. */
int zke_rwlock_acquire(zke_rwlock *rw, int mode, int64_t deadline_ms) {
  int rc = rwlock_check_mode(mode);
  if (rc == ZKE_OK) rc = zke_line_enter_by((zke_line *)rw, deadline_ms);
  rc = rwlock_enter_as(rw, mode, rc);
  if (rc != ZKE_OK) return rc;
  return rwlock_leave(rw, zke_line_acquire(&rw->l, deadline_ms));
}

/* Leaves immediately if it is blocked: for a reader, by a writer before it,
 * which holds or waits. */
int zke_rwlock_try(zke_rwlock *rw, int mode) {
  int rc = rwlock_check_mode(mode);
  if (rc == ZKE_OK) rc = zke_line_enter((zke_line *)rw);
  rc = rwlock_enter_as(rw, mode, rc);
  if (rc != ZKE_OK) return rc;
  return rwlock_leave(rw, zke_line_try(&rw->l));
}

/* Joins, and leaves the rest to dispatching. */
int zke_rwlock_start(zke_rwlock *rw, int mode) {
  int rc = rwlock_check_mode(mode);
  if (rc == ZKE_OK) rc = zke_line_enter((zke_line *)rw);
  rc = rwlock_enter_as(rw, mode, rc);
  if (rc != ZKE_OK) return rc;
  return rwlock_leave(rw, zke_line_join(&rw->l, false, ZKE_FOREVER));
}

/* For a program without a dispatch: looks as after an event. */
int zke_rwlock_step(zke_rwlock *rw) {
  int rc = zke_recipe_enter((zke_recipe *)rw);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&rw->l.r, rwlock_step(&rw->l.r));
}

/* Also gives up a waiting place. */
int zke_rwlock_release(zke_rwlock *rw) {
  int rc = zke_recipe_enter((zke_recipe *)rw);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&rw->l.r, zke_line_release(&rw->l));
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_rwlock_cancel(zke_rwlock *rw) {
  return zke_recipe_cancel((zke_recipe *)rw);
}

/* ---- changing the mode ---- */

/* ZKE_OK: held in this mode; ZKE_MISUSE: in the other; ZKE_LOST: not at all. */
static int rwlock_expect(zke_rwlock *rw, int mode, const char *what) {
  if (rw->l.state != ZKE_LINE_HELD) return zke_line_check(&rw->l);
  if (rw->l.kind == mode) return ZKE_OK;
  return zke_recipe_fail(ZKE_MISUSE, "the rwlock %s is not held for %s",
                         rw->l.r.path, what);
}

/* In one step a reader's entry with the same number replaces the writer's: no
 * other writer comes between. */
int zke_rwlock_downgrade(zke_rwlock *rw) {
  int rc = zke_recipe_enter((zke_recipe *)rw);
  if (rc != ZKE_OK) return rc;
  rc = rwlock_expect(rw, ZKE_LINE_WRITE, "writing");
  if (rc == ZKE_OK) {
    rw->look = true;
    rc = zke_line_convert(&rw->l, ZKE_LINE_READ);
  }
  return rwlock_leave(rw, rc);
}

/* Did this reader come before the object's present znode was made?  Then it
 * found a reader here, and holds; else it found a writer, and waits. */
static int rwlock_is_older(zke_rwlock *rw, const char *path, bool *older) {
  zke_stat stat;
  int rc = zke_exists(rw->l.r.z, path, NULL, NULL, &stat);
  *older = rc == ZKE_OK && stat.czxid < rw->l.czxid;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Find a reader that holds together with the object, which is the first of the
 * line: one of those directly after it.  If the object writes already, only
 * readers older than the conversion hold.  *rival: its path, or unchanged. */
static int rwlock_find_reader(zke_rwlock *rw, const zke_entries *e,
                              char **rival) {
  for (int j = 1; j < e->count && e->data[j].kind == RWLOCK_READS; j++) {
    bool holds = rw->l.kind == ZKE_LINE_READ;
    char *path = zke_recipe_path(rw->l.r.z, rw->l.r.path, e->data[j].name);
    int rc = path ? ZKE_OK : ZKE_NOMEM;
    if (rc == ZKE_OK && !holds) rc = rwlock_is_older(rw, path, &holds);
    if (rc == ZKE_OK && holds) {
      *rival = path;
      return ZKE_OK;
    }
    zke_free(path);
    if (rc != ZKE_OK) return rc;
  }
  return ZKE_OK;
}

/* Find another holder besides the object: the first of the line if that is not
 * the object, else a reader after it.  The names are a snapshot, so a holder
 * that changes its mode at this moment cannot be missed.
 *
 *   rival  out: its path, for zke_free(); it stays NULL if there is none
 *
 * ZKE_LOST: the object's own znode has gone. */
static int rwlock_rival(zke_rwlock *rw, char **rival) {
  zke_entries *e = NULL;
  int rc = rwlock_entries(rw, &e, NULL);
  if (rc == ZKE_NONODE) return zke_line_check(&rw->l);
  if (rc != ZKE_OK) return rc;
  int i = zke_recipe_find(e, rwlock_name(rw->l.znode));
  if (i < 0) {
    rc = zke_line_check(&rw->l);
  } else if (i == 0) {
    rc = rwlock_find_reader(rw, e, rival);
  } else {
    *rival = zke_recipe_path(rw->l.r.z, rw->l.r.path, e->data[0].name);
    rc = *rival ? ZKE_OK : ZKE_NOMEM;
  }
  zke_free(e);
  return rc;
}

/* The upgrade, as at the head of this file.  After a failure the object reports
 * that it reads (kind, undo), before its znode says so: once a look has refused
 * the upgrade, it must not count as a writer.  Later steps correct the
 * znode. */
static int rwlock_upgrade_once(zke_rwlock *rw) {
  char what[256], *rival = NULL;
  zke_sentence kept;
  int rc = rwlock_rival(rw, &rival);
  if (rc == ZKE_OK && !rival) {
    rc = zke_line_convert(&rw->l, ZKE_LINE_WRITE);
    rw->look = true;
    if (rc == ZKE_OK) rc = rwlock_rival(rw, &rival);
  }
  if (rc == ZKE_OK && !rival) return ZKE_OK;
  zke_recipe_keep(&kept);
  if (rw->l.state == ZKE_LINE_HELD && rw->l.kind == ZKE_LINE_WRITE) {
    rw->l.kind = ZKE_LINE_READ; /* it only reads from now on */
    rw->undo = true;
    if (rwlock_undo(rw) != ZKE_OK) rw->l.r.changed = true;
  }
  if (rc != ZKE_OK) return zke_recipe_restore(&kept, rc);
  snprintf(what, sizeof what, "the rwlock %s", rw->l.r.path);
  rc = zke_recipe_say_held(rw->l.r.z, ZKE_HELD, what, rival);
  zke_free(rival);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* Repeated while the rival turns out to have gone. */
static int rwlock_upgrade(zke_rwlock *rw) {
  int rc;
  do {
    rc = rwlock_expect(rw, ZKE_LINE_READ, "reading");
    if (rc == ZKE_OK) rc = rwlock_undo(rw);
    if (rc == ZKE_OK) rc = rwlock_expect(rw, ZKE_LINE_READ, "reading");
    if (rc == ZKE_OK) rc = rwlock_upgrade_once(rw);
  } while (zke_recipe_again(rw->l.r.z, &rc));
  return rc;
}

/* If the znode still says that it writes, because an earlier way back has
 * failed, it is corrected first.  That may find that the lock is lost, hence
 * the second look at the mode. */
int zke_rwlock_upgrade(zke_rwlock *rw) {
  int rc = zke_recipe_enter((zke_recipe *)rw);
  if (rc != ZKE_OK) return rc;
  return rwlock_leave(rw, rwlock_upgrade(rw));
}

/* ---- looking ---- */

/* As of the last look; the file may be newer, see zke_rwlock_check(). */
int zke_rwlock_state(zke_rwlock *rw) {
  return zke_line_api_state((zke_line *)rw);
}

/* From memory: the present mode, or the last one. */
int zke_rwlock_mode(zke_rwlock *rw) {
  if (zke_recipe_enter_memory((zke_recipe *)rw) != ZKE_OK)
    return ZKE_RWLOCK_READ;
  int mode = rw->l.kind;
  zke_recipe_leave(&rw->l.r, ZKE_OK);
  return mode;
}

/* New with each change of mode. */
int64_t zke_rwlock_token(zke_rwlock *rw) {
  return zke_line_api_token((zke_line *)rw);
}

/* Asks the file, for a holder that was stopped for a while. */
int zke_rwlock_check(zke_rwlock *rw) {
  return zke_line_api_check((zke_line *)rw);
}

/* Checks the holder's own znode, which changes with the mode: so an op from
 * before a downgrade fails. */
int zke_rwlock_op(zke_rwlock *rw, zke_op *op) {
  return zke_line_api_op((zke_line *)rw, op);
}

/* Reads the line without an object; nothing is made. */
int zke_rwlock_parties(zke *z, const char *path, zke_party_list **list_out) {
  return zke_line_parties(z, path, 1, list_out);
}

/* ---- revoking ----
 *
 * The revoker's side; the holder's is above, under "asking for the release".  A
 * revoker has no znode in the line, so it blocks no one. */

/* The znodes of all present holders, in one block, and their directory.  The
 * names are a snapshot, so a holder that changes its mode at this moment is
 * among them.  Holders come first, so the list ends at the first entry that
 * does not hold. */
static int rwlock_holders(zke_rwlock *rw, zke_strings **out) {
  zke_entries *e = NULL;
  zke_stat stat = {0};
  int rc = zke_entry_list(rw->l.r.z, rw->l.r.path, &e, &stat);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  rw->directory = stat.czxid;
  int count = 0;
  while (e && count < e->count && zke_entry_keepers(e, count) == 0) count++;
  size_t directory = strlen(rw->l.r.path), size = sizeof **out;
  for (int i = 0; i < count; i++)
    size += sizeof(char *) + directory + strlen(e->data[i].name) + 2;
  zke_strings *s = zke_alloc(rw->l.r.z, size);
  if (s) {
    s->data = (char **)(void *)(s + 1);
    char *text = (char *)(s->data + count);
    for (int i = 0; i < count; i++) {
      s->data[i] = text;
      text += sprintf(text, "%s/%s", rw->l.r.path, e->data[i].name) + 1;
    }
    s->count = count;
  }
  zke_free(e);
  *out = s;
  return s ? ZKE_OK : ZKE_NOMEM;
}

/* For zke_recipe_await(): have all asked holders gone? */
static int rwlock_is_free(zke_recipe *r) {
  const zke_rwlock *rw = (zke_rwlock *)r;
  return rw->asked->count == 0 ? ZKE_OK : ZKE_NOT_YET;
}

/* One step: take the lock from a holder.  It may have changed its mode just
 * before, so look for it again.  ZKE_NONODE: it has no znode any more. */
static int rwlock_try_take(zke *z, void *arg) {
  const rwlock_request *q = arg;
  int rc = zke_delete(z, q->path, -1);
  if (rc == ZKE_OK || rc == ZKE_NONODE) rc = rwlock_follow(q->rw, q->path);
  return rc == ZKE_OK ? ZKE_LOOK_AGAIN : rc;
}

/* The grace period is over: take away what is still held, in either mode. */
static int rwlock_take_away(zke_rwlock *rw) {
  zke_strings *s = rw->asked;
  int rc = ZKE_NONODE;
  for (; s->count > 0 && rc == ZKE_NONODE; s->count -= rc == ZKE_NONODE) {
    rwlock_request q = {rw, s->data[s->count - 1]};
    rc = zke_recipe_do(rw->l.r.z, rwlock_try_take, &q, ZKE_FOREVER);
  }
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Stop asking: remove the watches, and name one that has stayed.  The words
 * stay in the znodes. */
static int rwlock_end_asking(zke_rwlock *rw, int rc) {
  char what[256];
  zke_sentence kept;
  zke_strings *s = rw->asked;
  zke_recipe_keep(&kept);
  for (int i = 0; i < s->count; i++) {
    zke_remove_watch(rw->l.r.z, s->data[i], ZKE_WATCH_DATA, zke_recipe_watcher,
                     &rw->l.r);
  }
  if (rc == ZKE_OPERATIONTIMEOUT && s->count > 0) {
    snprintf(what, sizeof what, "the rwlock %s", rw->l.r.path);
    zke_recipe_say_held(rw->l.r.z, rc, what, s->data[0]);
  } else {
    zke_recipe_restore(&kept, rc);
  }
  zke_free(s);
  rw->asked = NULL;
  return rc;
}

/* Revoke, as at the head of this file.  The step asks again after each change.
 * Taking the lock away has extra time, as the deadline has passed. */
static int rwlock_revoke(zke_rwlock *rw, int64_t deadline_ms, bool insist) {
  int rc = rwlock_holders(rw, &rw->asked);
  if (rc != ZKE_OK) return rc;
  rc = rwlock_ask_all(rw);
  if (rc == ZKE_OK)
    rc = zke_recipe_await(&rw->l.r, rwlock_is_free, deadline_ms);
  if (rc == ZKE_OPERATIONTIMEOUT && insist) {
    int64_t limit = zke_recipe_grace(rw->l.r.z);
    rc = rwlock_take_away(rw);
    zke_limit(rw->l.r.z, limit);
  }
  return rwlock_end_asking(rw, rc);
}

/* An object in the line would ask itself, and wait for itself. */
int zke_rwlock_revoke(zke_rwlock *rw, int64_t deadline_ms, int insist) {
  int rc = zke_line_enter_by((zke_line *)rw, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (rw->asked || rw->l.znode)
    rc = zke_recipe_fail(
        ZKE_MISUSE,
        "this object already holds, waits for or revokes the rwlock %s",
        rw->l.r.path);
  else
    rc = rwlock_revoke(rw, deadline_ms, insist != 0);
  return zke_recipe_leave(&rw->l.r, rc);
}
