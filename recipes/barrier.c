/* barrier.c - a znode that keeps all others waiting until it is removed
 *
 * A barrier is two nodes that are made and deleted in one multi: `barrier`,
 * which everybody reads, and its twin `set-<id>`, which has a new name in each
 * setting.
 *
 *   set     1. Make the directory if necessary, and note its pzxid.
 *           2. Create node and twin in one step (barrier_try_set).
 *              ZKE_NODEEXISTS: ZKE_HELD, and read the present setting for the
 *              message.
 *           3. If the reply was lost: was it made (barrier_resolve)?  If the
 *              directory is unchanged, it was not: go to 1.  If a node has this
 *              setting's id, it was.
 *   remove  1. Read the present setting; if its token is not the one asked
 *              for, ZKE_NONODE.
 *           2. Delete node and twin in one step (barrier_delete).  The twin's
 *              name makes the step fail if another setting has come since 1.
 *   wait    1. Read the present setting, and watch it; note its token
 *              (barrier_look).
 *           2. Sleep until a look finds another token, or none.
 *
 * Why the twin: `barrier` has the same name, and version 0, in every setting.
 * Without a twin, if a removal is delayed after its read, or repeated after a
 * lost reply, it would delete the next setting.
 *
 * If a process dies before a step, nothing has changed; after the step the
 * barrier is set, or removed.  A barrier that is not ephemeral has no owner
 * session; so its data names the setter.
 *
 * Invariants:
 *  1. While `listening` or `waiting`, the node is watched (its end if it
 *     exists; for a listener its creation if not), or `changed` is set.
 *  2. `seen` is the token that the last look has found.  The listener was told
 *     each change of it, in order, while `listening`.
 *
 * Begin with barrier_look(), then barrier_try_set() and barrier_try_remove().
 */
#include "barrier.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

#define BARRIER_PLACE "barrier"
#define BARRIER_NODE "barrier"

enum { BARRIER_ID = 64 }; /* bytes of an id, with its NUL */

/* The mutex of r guards what changes: from listening on. */
struct zke_barrier {
  zke_recipe r;
  char *node; /* the znode's path */
  int mode;   /* ZKE_EPHEMERAL or ZKE_PERSISTENT: for this object's settings */
  zke_barrier_fn listener;
  void *context;
  bool listening; /* started */
  bool waiting;   /* a blocking call runs */
  int64_t seen;   /* the token of the setting last seen, or 0 */
  int64_t wanted; /* the token whose removal a blocking call waits for */
};

/* ---- the znode's data ----
 *
 * "<id> <session> <pid> <identity>\n<data>".  The data names the setter because
 * the setter's session may have ended before somebody asks. */

/* The present setting: one block, cut into strings. */
typedef struct setting {
  char *text; /* the block */
  zke_stat stat;
  const char *id;       /* in text; NULL: set by other means */
  uint64_t session;     /* the setter's */
  int64_t pid;          /* the setter's process, in its own PID namespace */
  const char *identity; /* in text, or "" */
  const char *data;     /* in text: the setter's data */
  int len;              /* bytes of data */
} setting;

/* Release a setting that was read. */
static void setting_free(setting *s) { zke_free(s->text); }

/* Read "<id> <session> <pid> ", and leave *at after it.  False: the data has
 * another form, so it was set by other means. */
static bool setting_head(setting *s, char **at) {
  int64_t session;
  if (strncmp(s->text, "id-", 3) != 0) return false;
  size_t id = strspn(s->text + 3, "0123456789abcdef-");
  *at = s->text + 3 + id;
  if (id < 1 || id >= BARRIER_ID) return false;
  if (!zke_recipe_read(at, " ", 16, &session)) return false;
  if (!zke_recipe_read(at, " ", 10, &s->pid) || **at != ' ') return false;
  s->session = (uint64_t)session;
  *at += 1;
  return true;
}

/* Cut the data into its parts.  If it has another form, all of it is the
 * setter's data. */
static void setting_parse(setting *s, int len) {
  char *end = len > 0 ? memchr(s->text, '\n', (size_t)len) : NULL;
  char *at;
  s->identity = "";
  s->data = s->text;
  s->len = len;
  if (!end) return;
  *end = '\0';
  if (!setting_head(s, &at)) {
    *end = '\n';
    s->pid = 0;
    return;
  }
  s->id = s->text;
  s->text[strcspn(s->text, " ")] = '\0';
  s->identity = at;
  s->data = end + 1;
  s->len = len - (int)(end + 1 - s->text);
}

/* Read the present setting, and watch it if fn is not NULL; ZKE_NONODE: none.
 * Release it by setting_free() in any case. */
static int setting_read(zke *z, const char *node, zke_watch_fn fn,
                        void *context, setting *s) {
  int len;
  memset(s, 0, sizeof *s);
  int rc = zke_get(z, node, fn, context, &s->text, &len, &s->stat);
  if (rc == ZKE_OK) setting_parse(s, len);
  return rc;
}

/* Fail with rc: "the barrier /path is set by backup (pid 12) since
 * 2026-11-20T12:00:00Z". */
static int setting_say(const setting *s, int rc, const char *path) {
  char when[ZKE_RECIPE_WHEN];
  zke_recipe_when(s->stat.ctime, when);
  if (!s->id)
    return zke_recipe_fail(rc, "the barrier %s is set since %s", path, when);
  return zke_recipe_fail(
      rc, "the barrier %s is set by %s (pid %" PRId64 ") since %s", path,
      s->identity, s->pid, when);
}

/* ---- looking ---- */

/* Note the result of a look.  If the barrier was removed and set again between
 * two looks, it has another token: both events are told, in order. */
static void barrier_see(zke_barrier *b, int64_t token) {
  int64_t before = b->seen;
  b->seen = token;
  if (before == token || !b->listening) return;
  if (before) zke_recipe_tell(&b->r, ZKE_BARRIER_REMOVED, before, NULL, 0);
  if (token) zke_recipe_tell(&b->r, ZKE_BARRIER_SET, token, NULL, 0);
}

/* Look, and watch: for the end of the present setting, and for a listener also
 * for the next.  Two reads are needed, since zke_get() sets no watch on a
 * missing node; if the node comes between the two, it is read again. */
static int barrier_look(zke_barrier *b) {
  zke_stat stat = {0};
  int rc;
  do {
    rc = zke_get(b->r.z, b->node, zke_recipe_watcher, &b->r, NULL, NULL, &stat);
    if (rc != ZKE_NONODE || !b->listening) break;
    rc = zke_exists(b->r.z, b->node, zke_recipe_watcher, &b->r, NULL);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN; /* it has come: get it */
  } while (zke_recipe_again(b->r.z, &rc));
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  barrier_see(b, rc == ZKE_OK ? stat.czxid : 0);
  return ZKE_OK;
}

/* Without a listener or a waiting thread there is nothing to look for. */
static int barrier_step(zke_recipe *r) {
  zke_barrier *b = (zke_barrier *)r;
  return b->listening || b->waiting ? barrier_look(b) : ZKE_OK;
}

/* Only a started listener is told. */
static void barrier_ended(zke_recipe *r) {
  zke_barrier *b = (zke_barrier *)r;
  if (b->listening) zke_recipe_tell(r, ZKE_BARRIER_LOST, 0, NULL, 0);
  b->listening = false;
}

/* The number is the token of the setting that the event is about. */
static void barrier_deliver(zke_recipe *r, int event, int64_t number,
                            const char *text, int len) {
  zke_barrier *b = (zke_barrier *)r;
  (void)text, (void)len;
  if (b->listener) b->listener(b, event, number, b->context);
}

/* Release the object's memory; a barrier that it has set stays. */
static void barrier_destroy(zke_recipe *r) {
  zke_free(((zke_barrier *)r)->node);
}

static const zke_recipe_class barrier_class = {.name = "barrier",
                                               .step = barrier_step,
                                               .ended = barrier_ended,
                                               .deliver = barrier_deliver,
                                               .destroy = barrier_destroy};

/* Remove the watch, unless a listener needs it. */
static void barrier_unwatch(zke_barrier *b) {
  if (!b->listening)
    zke_remove_watch(b->r.z, b->node, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &b->r);
}

/* An existing path must be a barrier's; a missing one is fine. */
static int barrier_check_place(zke_barrier *b) {
  int rc = zke_exists(b->r.z, b->r.path, NULL, NULL, NULL);
  if (rc == ZKE_NONODE) return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  return zke_recipe_place(b->r.z, b->r.path, BARRIER_PLACE, ZKE_CONTAINER, NULL,
                          ZKE_FOREVER);
}

/* ---- setting ---- */

/* A setting or a removal in progress. */
typedef struct barrier_change {
  zke_barrier *b;
  char id[BARRIER_ID]; /* a setting: its id, which no other has */
  char *text, *twin;   /* a setting: the node's data, the twin's path */
  int len;             /* bytes of text */
  int64_t token;       /* a setting: out; a removal: its target, 0: any */
  int64_t pzxid;       /* a setting: of the directory before the step */
  bool unsure;         /* a setting: the last step has lost its reply */
  int64_t lost;        /* a removal: the target of the last step if it lost its
                          reply; else 0 */
} barrier_change;

/* "<path>/set-<id>", for zke_free(). */
static char *barrier_twin(zke *z, const char *path, const char *id) {
  char name[BARRIER_ID + 8];
  snprintf(name, sizeof name, "set-%.*s", BARRIER_ID,
           strncmp(id, "id-", 3) == 0 ? id + 3 : id);
  char *twin = zke_recipe_path(z, path, name);
  if (!twin) zke_fail(ZKE_NOMEM, "no memory for the path of a barrier");
  return twin;
}

/* Id, data and twin's path of a setting.  They are made once: a repetition must
 * have the same id to recognise its own work. */
static int barrier_begin_set(barrier_change *c, const void *data, int len) {
  zke *z = c->b->r.z;
  char guid[ZKE_RECIPE_GUID], head[BARRIER_ID + 24];
  zke_recipe_guid(z, guid);
  snprintf(c->id, sizeof c->id, "id-%s", guid);
  snprintf(head, sizeof head, "%s %" PRIx64 " ", c->id,
           (uint64_t)zke_session_id(z));
  c->twin = barrier_twin(z, c->b->r.path, c->id);
  if (!c->twin) return ZKE_NOMEM;
  return zke_recipe_sign(z, head, data, len, &c->text, &c->len);
}

/* A barrier is set: is it this setting, with a lost reply?  ZKE_HELD: another
 * one, and if it is ephemeral, its process lives; ZKE_LOOK_AGAIN: it has
 * gone. */
static int barrier_recognise(barrier_change *c) {
  setting s;
  int rc = setting_read(c->b->r.z, c->b->node, NULL, NULL, &s);
  if (rc == ZKE_NONODE) return ZKE_LOOK_AGAIN;
  if (rc != ZKE_OK) return rc;
  if (s.id && strcmp(s.id, c->id) == 0)
    c->token = s.stat.czxid;
  else if (zke_recipe_bury(c->b->r.z, c->b->node, s.stat.ephemeralOwner) ==
           ZKE_NONODE)
    rc = ZKE_LOOK_AGAIN;
  else
    rc = setting_say(&s, ZKE_HELD, c->b->r.path);
  setting_free(&s);
  return rc;
}

/* The step has lost its reply: what happened?  ZKE_NOT_MADE: nothing was made,
 * as the directory is unchanged.  If it has changed and no barrier is set, this
 * setting may have been made and removed.  Then it is not made a second time,
 * since no process would remove that one. */
static int barrier_resolve(zke *z, barrier_change *c) {
  zke_stat stat = {0};
  int rc = zke_exists(z, c->b->r.path, NULL, NULL, &stat);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  c->unsure = stat.pzxid != c->pzxid;
  if (!c->unsure) return ZKE_NOT_MADE;
  rc = barrier_recognise(c);
  if (rc != ZKE_LOOK_AGAIN) return rc;
  return zke_recipe_in_doubt(
      "the reply was lost: the barrier %s may have been "
      "set and removed",
      c->b->r.path);
}

/* The step: make node and twin together.  The directory is a container, which
 * may go before: then it is made again.  If the process dies after the step the
 * barrier stays set, unless it is ephemeral. */
static int barrier_try_set(zke *z, void *arg) {
  barrier_change *c = arg;
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  zke_stat directory;
  if (c->unsure) return barrier_resolve(z, c);
  int rc = zke_recipe_place(z, c->b->r.path, BARRIER_PLACE, ZKE_CONTAINER, NULL,
                            ZKE_FOREVER);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(z, c->b->r.path, NULL, NULL, &directory);
  if (rc != ZKE_OK) return zke_recipe_faster(rc);
  c->pzxid = directory.pzxid;
  zke_op_create(&ops[0], c->b->node, c->text, c->len, ZKE_OPEN_ACL, c->b->mode);
  zke_op_create(&ops[1], c->twin, "", 0, ZKE_OPEN_ACL, c->b->mode);
  rc = zke_recipe_multi(z, ops, 2, results);
  c->unsure = zke_recipe_is_lost(rc);
  c->token = results[0].stat.czxid;
  zke_results_clear(results, 2);
  return rc == ZKE_NODEEXISTS ? barrier_recognise(c) : zke_recipe_faster(rc);
}

/* ---- removing ---- */

/* Delete the setting that was read, and not a later one: the twin's name
 * belongs to that setting alone.  A node that was made by other means has no
 * twin, and only its version identifies it.  ZKE_LOOK_AGAIN: something else is
 * there by now. */
static int barrier_delete(zke *z, barrier_change *c, const setting *s) {
  zke_op ops[2];
  int rc = ZKE_NONODE;
  char *twin = NULL;
  if (s->id) {
    twin = barrier_twin(z, c->b->r.path, s->id);
    if (!twin) return ZKE_NOMEM;
    rc = zke_recipe_find_twin(z, c->b->node, s->stat.czxid, twin);
  }
  zke_op_delete(&ops[1], c->b->node, s->stat.version);
  if (rc == ZKE_OK) {
    zke_op_delete(&ops[0], twin, -1);
    rc = zke_recipe_multi(z, ops, 2, NULL);
  } else if (rc == ZKE_NONODE) { /* made by other means */
    rc = zke_delete(z, c->b->node, s->stat.version);
  }
  zke_free(twin);
  return zke_recipe_faster(rc);
}

/* The step: remove the setting with a token, or any.  After a lost reply it is
 * enough that its target has gone, in whatever way.  If the target still
 * exists, nothing was changed. */
static int barrier_try_remove(zke *z, void *arg) {
  barrier_change *c = arg;
  setting s;
  int64_t wanted = c->lost ? c->lost : c->token;
  int rc = setting_read(z, c->b->node, NULL, NULL, &s);
  bool there = rc == ZKE_OK && (!wanted || s.stat.czxid == wanted);
  if (there && c->lost) {
    c->lost = 0;
    rc = ZKE_NOT_MADE;
  } else if (there) {
    rc = barrier_delete(z, c, &s);
    if (zke_recipe_is_lost(rc)) c->lost = s.stat.czxid;
  } else if (rc == ZKE_OK || rc == ZKE_NONODE) {
    rc = c->lost ? ZKE_OK : ZKE_NONODE;
  }
  setting_free(&s);
  return rc;
}

/* Remove it; a failure names the token. */
static int barrier_do_remove(barrier_change *c, int64_t deadline_ms) {
  int rc = zke_recipe_do(c->b->r.z, barrier_try_remove, c, deadline_ms);
  if (rc == ZKE_NONODE && c->token)
    return zke_recipe_fail(rc, "the barrier %s of token %" PRId64 " is not set",
                           c->b->r.path, c->token);
  if (rc == ZKE_NONODE)
    return zke_recipe_fail(rc, "the barrier %s is not set", c->b->r.path);
  return rc;
}

/* ---- waiting ---- */

/* For zke_recipe_await(): has the awaited setting gone?  A later setting does
 * not matter to this call. */
static int barrier_gone(zke_recipe *r) {
  const zke_barrier *b = (const zke_barrier *)r;
  return r->ended || b->seen == b->wanted ? ZKE_NOT_YET : ZKE_OK;
}

/* Fail with a timeout, and name the setter. */
static int barrier_say_standing(zke_barrier *b) {
  setting s;
  int rc = setting_read(b->r.z, b->node, NULL, NULL, &s);
  if (rc == ZKE_OK) {
    rc = setting_say(&s, ZKE_OPERATIONTIMEOUT, b->r.path);
    setting_free(&s);
    return rc;
  }
  return zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                         "the barrier %s stood until the deadline", b->r.path);
}

/* Wait for the end of the present setting.  A later setting does not delay this
 * call: so even if a barrier is set again and again at short intervals, its
 * waiters pass. */
static int barrier_wait(zke_barrier *b, int64_t deadline_ms) {
  int rc = barrier_check_place(b);
  if (rc == ZKE_OK) rc = barrier_look(b);
  if (rc != ZKE_OK || !b->seen) return rc;
  b->wanted = b->seen;
  rc = zke_recipe_await(&b->r, barrier_gone, deadline_ms);
  if (rc == ZKE_OPERATIONTIMEOUT) rc = barrier_say_standing(b);
  return rc;
}

/* ---- the interface ---- */

/* The node's path is made here, so no later call can run out of memory before
 * it has begun. */
int zke_barrier_new(zke *z, const char *path,
                    const zke_barrier_options *options,
                    zke_barrier **barrier_out) {
  zke_barrier_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(barrier_out, options, &o, zke_barrier_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &barrier_class, sizeof(zke_barrier), &r);
  if (rc != ZKE_OK) return rc;
  zke_barrier *b = (zke_barrier *)r;
  b->mode = o.ephemeral ? ZKE_EPHEMERAL : ZKE_PERSISTENT;
  b->listener = o.listener;
  b->context = o.context;
  b->node = zke_recipe_path(z, path, BARRIER_NODE);
  if (!b->node) {
    zke_recipe_free(r);
    return zke_recipe_fail(ZKE_NOMEM, "no memory for a barrier");
  }
  *barrier_out = b;
  return ZKE_OK;
}

/* A set barrier stays set; a waiting call ends. */
void zke_barrier_free(zke_barrier *barrier) {
  zke_recipe_free((zke_recipe *)barrier);
}

/* Id, data and twin live as long as the call. */
int zke_barrier_set(zke_barrier *barrier, const void *data, int len,
                    int64_t deadline_ms, int64_t *token_out) {
  barrier_change c = {.b = barrier};
  if (len < 0 || (!data && len))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", len);
  int rc = zke_recipe_enter_by((zke_recipe *)barrier, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = barrier_begin_set(&c, data, len);
  if (rc == ZKE_OK)
    rc = zke_recipe_do(barrier->r.z, barrier_try_set, &c, deadline_ms);
  zke_free(c.text);
  zke_free(c.twin);
  if (rc == ZKE_OK && token_out) *token_out = c.token;
  return zke_recipe_leave(&barrier->r, rc);
}

/* When the node goes, the engine wakes all waiters. */
int zke_barrier_remove(zke_barrier *barrier, int64_t token,
                       int64_t deadline_ms) {
  barrier_change c = {.b = barrier, .token = token};
  int rc = zke_recipe_enter_by((zke_recipe *)barrier, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = barrier_check_place(barrier);
  if (rc == ZKE_OK) rc = barrier_do_remove(&c, deadline_ms);
  return zke_recipe_leave(&barrier->r, rc);
}

/* One blocking call an object, since the object has only one `wanted`.  If the
 * call ended well and no barrier is set, the watch has fired already; else it
 * is removed. */
int zke_barrier_wait(zke_barrier *barrier, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)barrier, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (barrier->waiting) {
    rc =
        zke_recipe_fail(ZKE_MISUSE, "another thread waits with this barrier %s",
                        barrier->r.path);
    return zke_recipe_leave(&barrier->r, rc);
  }
  barrier->waiting = true;
  rc = barrier_wait(barrier, deadline_ms);
  barrier->waiting = false;
  if (rc != ZKE_OK || barrier->seen) barrier_unwatch(barrier);
  return zke_recipe_leave(&barrier->r, rc);
}

/* Forget the last token, so the listener's first event is the present state.  A
 * waiting thread cannot see the 0: the mutex is held until the look has set
 * `seen` again or, after a failure, the old value is back. */
int zke_barrier_start(zke_barrier *barrier) {
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  rc = barrier_check_place(barrier);
  if (rc == ZKE_OK && !barrier->listening) {
    int64_t before = barrier->seen;
    barrier->listening = true;
    barrier->seen = 0;
    rc = barrier_look(barrier);
    if (rc != ZKE_OK) {
      barrier->listening = false;
      barrier->seen = before;
    }
  }
  return zke_recipe_leave(&barrier->r, rc);
}

/* For a program without a dispatch. */
int zke_barrier_step(zke_barrier *barrier) {
  return zke_recipe_step((zke_recipe *)barrier);
}

/* Asks the file.  A missing node is an answer: token 0. */
int zke_barrier_get(zke_barrier *barrier, int64_t *token_out) {
  zke_stat stat;
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(barrier->r.z, barrier->node, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) {
    stat.czxid = 0;
    rc = ZKE_OK;
  }
  if (rc == ZKE_OK && token_out) *token_out = stat.czxid;
  return zke_recipe_leave(&barrier->r, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_barrier_cancel(zke_barrier *barrier) {
  return zke_recipe_cancel((zke_recipe *)barrier);
}

/* One block: the list, its party, the party's strings. */
static zke_party_list *setting_list(zke *z, const setting *s) {
  bool stands = s->stat.czxid != 0;
  size_t identity = stands ? strlen(s->identity) + 1 : 0;
  size_t data = s->len > 0 ? (size_t)s->len : 0;
  zke_party_list *list =
      zke_alloc(z, sizeof *list + sizeof(zke_party) + identity + data + 1);
  if (!list || !stands) return list;
  zke_party *p = (zke_party *)(void *)(list + 1);
  char *text = (char *)(p + 1);
  *p = (zke_party){.name = BARRIER_NODE,
                   .kind = BARRIER_NODE,
                   .held = 1,
                   .session = (int64_t)s->session,
                   .czxid = s->stat.czxid,
                   .mzxid = s->stat.mzxid,
                   .queued_ms = s->stat.ctime,
                   .since_ms = s->stat.ctime,
                   .identity = memcpy(text, s->identity, identity),
                   .pid = s->pid,
                   .data = text + identity,
                   .len = (int)data};
  if (data) memcpy(text + identity, s->data, data);
  list->count = 1;
  list->data = p;
  return list;
}

/* The setter, as a list of one.  It is read from the node's data, so it is
 * known even after its session has ended. */
int zke_barrier_parties(zke *z, const char *path, zke_party_list **list_out) {
  setting s = {0};
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_recipe_state(z);
  if (rc == ZKE_OK) rc = zke_exists(z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  char *node = zke_recipe_path(z, path, BARRIER_NODE);
  if (!node) return zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  rc = setting_read(z, node, NULL, NULL, &s);
  zke_free(node);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  zke_party_list *list = setting_list(z, &s);
  setting_free(&s);
  if (!list) return zke_recipe_fail(ZKE_NOMEM, "no memory for a list");
  *list_out = list;
  return ZKE_OK;
}
