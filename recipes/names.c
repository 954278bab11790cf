/* names.c - a name service: names for values, or for znodes
 *
 * A binding is two nodes that are made and deleted in one multi: the name,
 * which everybody looks up, and its twin `_c_<id>`, which has a new name in
 * each binding.
 *
 * Every change is one step (names_try), repeated until it is decided:
 *   1. Read the name's present binding.
 *   2. Decide by it:
 *
 *                the name is free     it is bound
 *        bind    create node, twin    ZKE_HELD
 *        rebind  ZKE_NONODE           replace, if meant; else ZKE_HELD
 *        unbind  ZKE_NONODE           delete, if meant; else ZKE_HELD
 *
 *   3. Make the change, which names the twin that was read.  If somebody was
 *      faster it fails, and 1 is next.
 *
 * After a lost reply the next try begins with a look (names_recognise): was the
 * change made?
 *
 *                the name is free     bound by this call  bound otherwise
 *        bind    no, or unknown       yes                 ZKE_HELD
 *        rebind  unknown              yes                 decide again
 *        unbind  yes                  -                   yes
 *
 * The lost try's target, to unbind or replace, is known by its token
 * (`aimed_at`): if it still exists, nothing was made.
 *
 * If the reply of a bind was lost, the name may be free.  Then either it was
 * never bound, or it was bound and another process has unbound it.  In the
 * second case it must not be bound again, since no process would unbind that
 * one.  A free name does not tell which case it is.  But if the directory is
 * unchanged since before the lost try, nothing was made.  Else the call fails,
 * even if only other names were changed.
 *
 * If no time is left for a repetition there is one more look
 * (zke_recipe_settle()).
 *
 * If the process dies before the step, nothing has changed; after it the change
 * is made.
 *
 * The object itself has only the state of its blocking call.  Begin with
 * names_try(). */
#include "names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/view.h"
#include "part/znode.h"

#define NAMES_PLACE "names"
#define NAMES_TWIN ZKE_NAME_MARK /* a twin's name begins with this */

enum { NAMES_ID = 64 }; /* bytes of an id, with its NUL */

/* The mutex of r guards both members. */
struct zke_names {
  zke_recipe r;
  const char *wanted; /* the path that a blocking call waits for, or NULL; the
                         call owns it */
  bool there;         /* that node was seen */
};

/* ---- bindings ----
 *
 * The data of a name's node is a line that names the binder, and then the
 * value.  Data without such a line was written by other means: all of it is the
 * value, and there is no twin.  A binding that was read points into that data,
 * so the data is kept as long as the binding is used. */

/* Is it the name of a binding, and not of its twin? */
static bool name_is_plain(const char *name) {
  return strncmp(name, NAMES_TWIN, strlen(NAMES_TWIN)) != 0;
}

/* Recipes' own names ("_c_…") are refused, or a twin could be mistaken for a
 * binding. */
static int name_check(const char *name) {
  if (!name) return zke_recipe_fail(ZKE_BADARGUMENTS, "the name is NULL");
  if (!*name || strchr(name, '/') || !name_is_plain(name))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "'%s' cannot be a name", name);
  return ZKE_OK;
}

/* A binding as it was read. */
typedef struct bound {
  zke_binding b;     /* its strings are in the node's data */
  char id[NAMES_ID]; /* "": it was made by other means */
  int version;       /* of the node */
} bound;

/* Read "<id> <session> <pid> <identity>\n", the line that ends at `end`.
 * False: it has another form, and nothing was changed. */
static bool bound_head(bound *o, char *text, char *end) {
  char *space = memchr(text, ' ', (size_t)(end - text)), *at;
  if (!space || space - text >= NAMES_ID || strncmp(text, "id-", 3) != 0)
    return false;
  uint64_t session = strtoull(space + 1, &at, 16);
  if (at == space + 1 || *at != ' ') return false;
  int64_t pid = strtoll(at + 1, &at, 10);
  if (*at != ' ' || at >= end) return false;
  memcpy(o->id, text, (size_t)(space - text));
  o->id[space - text] = '\0';
  o->b.session = (int64_t)session;
  o->b.pid = pid;
  o->b.identity = at + 1;
  *end = '\0';
  return true;
}

/* Take a znode's data apart; the text is cut into strings.  If the data has
 * another form, all of it is the value. */
static void bound_parse(bound *o, const char *name, char *data, int len,
                        const zke_stat *stat) {
  char *end = len > 0 ? memchr(data, '\n', (size_t)len) : NULL;
  *o = (bound){.b = {.name = name,
                     .value = data ? data : "",
                     .len = len > 0 ? len : 0,
                     .token = stat->czxid,
                     .since_ms = stat->ctime,
                     .ephemeral = stat->ephemeralOwner != 0,
                     .session = stat->ephemeralOwner,
                     .identity = ""},
               .version = stat->version};
  if (!end || !bound_head(o, data, end)) return;
  o->b.value = end + 1;
  o->b.len = len - (int)(end + 1 - data);
}

/* Bytes of a binding's strings, each with its NUL. */
static size_t bound_bytes(const zke_binding *b) {
  return strlen(b->name) + strlen(b->identity) + (size_t)b->len + 3;
}

/* Copy a binding to *to, and its strings to text; returns the place after
 * these. */
static char *bound_copy(zke_binding *to, const zke_binding *b, char *text) {
  size_t name = strlen(b->name) + 1, identity = strlen(b->identity) + 1;
  *to = *b;
  to->name = memcpy(text, b->name, name);
  to->identity = memcpy(text + name, b->identity, identity);
  to->value = text + name + identity;
  if (b->len) memcpy(text + name + identity, b->value, (size_t)b->len);
  return text + bound_bytes(b);
}

/* Read a name's binding.  Its strings are in *data, for zke_free() in any
 * case. */
static int bound_read(zke *z, const char *path, bound *o, char **data) {
  int len = 0;
  zke_stat stat;
  *data = NULL;
  int rc = zke_get(z, path, NULL, NULL, data, &len, &stat);
  if (rc == ZKE_OK) bound_parse(o, strrchr(path, '/') + 1, *data, len, &stat);
  return rc;
}

/* Fail with ZKE_HELD: "the name /names/x is bound by backup (pid 12) since
 * 2026-11-20T12:00:00Z". */
static int bound_say(const bound *o, const char *path) {
  char when[ZKE_RECIPE_WHEN];
  zke_recipe_when(o->b.since_ms, when);
  if (!o->id[0])
    return zke_recipe_fail(ZKE_HELD, "the name %s is bound since %s", path,
                           when);
  return zke_recipe_fail(
      ZKE_HELD, "the name %s is bound by %s (pid %" PRId64 ") since %s", path,
      o->b.identity, o->b.pid, when);
}

/* ---- the object ---- */

/* Look for the awaited name, and watch for its creation.  Once it was seen, the
 * waiting call reads it itself. */
static int names_step(zke_recipe *r) {
  zke_names *n = (zke_names *)r;
  if (!n->wanted || n->there) return ZKE_OK;
  int rc = zke_exists(r->z, n->wanted, zke_recipe_watcher, r, NULL);
  n->there = rc == ZKE_OK;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

static const zke_recipe_class names_class = {.name = "name service",
                                             .step = names_step};

/* No znode is made: the directory comes with the first binding. */
int zke_names_new(zke *z, const char *path, const zke_names_options *options,
                  zke_names **names_out) {
  zke_recipe *r = NULL;
  zke_names_options o;
  int rc = zke_recipe_options(names_out, options, &o, zke_names_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &names_class, sizeof(zke_names), &r);
  *names_out = (zke_names *)r;
  return rc;
}

/* All bindings stay: the object owns none. */
void zke_names_free(zke_names *names) { zke_recipe_free((zke_recipe *)names); }

/* An existing path must be a directory of names; a missing one is fine. */
static int names_check_place(zke_names *n) {
  int rc = zke_exists(n->r.z, n->r.path, NULL, NULL, NULL);
  if (rc == ZKE_NONODE) return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  return zke_recipe_place(n->r.z, n->r.path, NAMES_PLACE, ZKE_CONTAINER, NULL,
                          ZKE_FOREVER);
}

/* Begin a call: check the name, take the mutex, make the name's path.
 * deadline_ms: 0 for a call without one.  On success names_leave() ends it. */
static int names_enter(zke_names *names, const char *name, int64_t deadline_ms,
                       char **path) {
  zke_recipe *r = (zke_recipe *)names;
  int rc = name_check(name);
  if (rc == ZKE_OK)
    rc =
        deadline_ms ? zke_recipe_enter_by(r, deadline_ms) : zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  *path = zke_recipe_path(names->r.z, names->r.path, name);
  if (*path) return ZKE_OK;
  rc = zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  return zke_recipe_leave(&names->r, rc);
}

/* End a call that has made a path. */
static int names_leave(zke_names *names, char *path, int rc) {
  zke_free(path);
  return zke_recipe_leave(&names->r, rc);
}

/* ---- changing ----
 *
 * A names_change is one call, from its first try to its last.  It keeps what
 * later tries need: the id that identifies the new binding and, after a lost
 * reply, the earlier state. */

/* A change in progress.
 *
 *              make   replace
 *     bind     yes    no
 *     rebind   yes    yes
 *     unbind   no     yes
 */
typedef struct names_change {
  zke_names *n;
  const char *path;  /* of the name */
  int mode;          /* of the new binding's nodes */
  bool make;         /* make a new binding */
  bool replace;      /* a binding must exist now; it is removed */
  int64_t token;     /* that binding's; 0: any */
  int64_t aimed_at;  /* token of the last try's target; of the first try that
                        lost its reply, if any */
  char id[NAMES_ID]; /* of the new one; unique */
  char *text, *twin; /* its data and its twin's path; made once */
  int len;           /* bytes of text */
  int64_t made;      /* out: the new one's token */
  int64_t pzxid;     /* a binding: of the directory before the step */
  bool unsure;       /* a step has lost its reply: it may have been made */
} names_change;

/* The path of a binding's twin, for zke_free(). */
static char *names_twin(const zke_names *n, const char *id) {
  char name[NAMES_ID + 8];
  snprintf(name, sizeof name, NAMES_TWIN "%.*s", NAMES_ID, id);
  return zke_recipe_path(n->r.z, n->r.path, name);
}

/* Make the new binding's id, its data "<id> <session> <pid>
 * <identity>\n<value>" and its twin's path. */
static int names_text(names_change *c, const void *value, int len) {
  zke *z = c->n->r.z;
  char guid[ZKE_RECIPE_GUID], head[NAMES_ID + 24];
  zke_recipe_guid(z, guid);
  snprintf(c->id, sizeof c->id, "id-%s", guid);
  snprintf(head, sizeof head, "%s %" PRIx64 " ", c->id,
           (uint64_t)zke_session_id(z));
  c->twin = names_twin(c->n, c->id);
  if (!c->twin) return zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  return zke_recipe_sign(z, head, value, len, &c->text, &c->len);
}

/* The step: unbind `old`, unless it is NULL, and bind the new one, if any.
 * Deletions come first, as the name is the same.  A node without a twin is
 * identified only by its version.  Only a reply lost here leaves a doubt: a
 * read that loses its reply has changed nothing. */
static int names_multi(names_change *c, const bound *old, const char *twin) {
  zke_op ops[4];
  zke_op_result results[4] = {{0}};
  int n = 0;
  if (old && twin) zke_op_delete(&ops[n++], twin, -1);
  if (old) zke_op_delete(&ops[n++], c->path, old->version);
  if (c->make) {
    zke_op_create(&ops[n++], c->path, c->text, c->len, ZKE_OPEN_ACL, c->mode);
    zke_op_create(&ops[n++], c->twin, "", 0, ZKE_OPEN_ACL, c->mode);
  }
  int rc = zke_recipe_multi(c->n->r.z, ops, n, results);
  c->unsure |= zke_recipe_is_lost(rc);
  if (rc == ZKE_OK && c->make) c->made = results[n - 2].stat.czxid;
  zke_results_clear(results, n);
  return zke_recipe_faster(rc);
}

/* Unbind the binding that was read and, if asked for, bind the new one.  A
 * binding may have lost its twin, if somebody has deleted it: then its version
 * identifies it.  ZKE_LOOK_AGAIN: another binding exists by now. */
static int names_exchange(names_change *c, const bound *old) {
  zke *z = c->n->r.z;
  char *twin = NULL;
  int rc = ZKE_OK;
  if (old->id[0]) {
    twin = names_twin(c->n, old->id);
    if (!twin) return zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
    rc = zke_recipe_find_twin(z, c->path, old->b.token, twin);
  }
  bool has = twin && rc == ZKE_OK;
  if (rc == ZKE_OK || rc == ZKE_NONODE)
    rc = names_multi(c, old, has ? twin : NULL);
  zke_free(twin);
  return zke_recipe_faster(rc);
}

/* The name is bound: by the binding that is meant, or by another one? */
static int names_try_bound(names_change *c, const bound *old) {
  bool meant = c->replace && (!c->token || c->token == old->b.token);
  if (!meant) {
    int rc = zke_recipe_bury(c->n->r.z, c->path,
                             old->b.ephemeral ? old->b.session : 0);
    return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : bound_say(old, c->path);
  }
  if (!c->unsure) c->aimed_at = old->b.token;
  return names_exchange(c, old);
}

/* The name is free.  If an earlier try is unsure, names_recognise() decides. */
static int names_try_free(names_change *c) {
  zke_stat directory;
  if (c->unsure) return ZKE_LOOK_AGAIN;
  if (c->replace)
    return zke_recipe_fail(ZKE_NONODE, "the name %s is not bound", c->path);
  int rc = zke_exists(c->n->r.z, c->n->r.path, NULL, NULL, &directory);
  if (rc != ZKE_OK) return zke_recipe_faster(rc);
  c->pzxid = directory.pzxid;
  return names_multi(c, NULL, NULL);
}

/* A step has lost its reply, and the name is free. */
static int names_recognise_free(const names_change *c) {
  if (!c->make) return ZKE_OK;
  return zke_recipe_in_doubt(
      "the reply was lost: the name %s may have been "
      "bound and unbound, or it was never bound",
      c->path);
}

/* The same for a bound name. */
static int names_recognise_bound(names_change *c, const bound *o) {
  if (c->make && strcmp(o->id, c->id) == 0) {
    c->made = o->b.token;
    return ZKE_OK;
  }
  if (c->aimed_at != o->b.token) return c->make ? ZKE_NOT_YET : ZKE_OK;
  c->unsure = false;
  return ZKE_NOT_MADE;
}

/* A step has lost its reply: was the change made?  ZKE_NOT_MADE: no, its target
 * still exists, or the directory is unchanged; ZKE_NOT_YET: the name has
 * another binding, which decides it. */
static int names_recognise(zke *z, void *arg) {
  names_change *c = arg;
  zke_stat directory;
  bound o;
  char *data = NULL;
  int rc = zke_exists(z, c->n->r.path, NULL, NULL, &directory);
  if (rc == ZKE_OK && c->pzxid == directory.pzxid) {
    c->unsure = false;
    return ZKE_NOT_MADE;
  }
  if (rc == ZKE_OK) rc = bound_read(z, c->path, &o, &data);
  if (rc == ZKE_OK)
    rc = names_recognise_bound(c, &o);
  else if (rc == ZKE_NONODE)
    rc = names_recognise_free(c);
  zke_free(data);
  return rc;
}

/* The directory is a container, which may go at any time while it is empty: a
 * binding makes it again. */
static int names_see_place(names_change *c) {
  zke_recipe *r = &c->n->r;
  return c->replace ? names_check_place(c->n)
                    : zke_recipe_place(r->z, r->path, NAMES_PLACE,
                                       ZKE_CONTAINER, NULL, ZKE_FOREVER);
}

/* The step of a change, as at the head of this file. */
static int names_try(zke *z, void *arg) {
  names_change *c = arg;
  bound old;
  char *data = NULL;
  int rc = c->unsure ? names_recognise(z, c) : ZKE_NOT_YET;
  if (rc != ZKE_NOT_YET) return rc;
  rc = names_see_place(c);
  if (rc != ZKE_OK) return rc;
  rc = bound_read(z, c->path, &old, &data);
  if (rc == ZKE_OK)
    rc = names_try_bound(c, &old);
  else if (rc == ZKE_NONODE)
    rc = names_try_free(c);
  zke_free(data);
  return rc;
}

/* Repeat the change until it is decided. */
static int names_do(names_change *c, const void *value, int len,
                    int64_t deadline_ms) {
  int rc = c->make ? names_text(c, value, len) : ZKE_OK;
  if (rc == ZKE_OK) rc = zke_recipe_do(c->n->r.z, names_try, c, deadline_ms);
  /* otherwise a caller that binds again would meet its own binding */
  if (c->unsure && rc != ZKE_OK)
    rc = zke_recipe_settle(c->n->r.z, rc, names_recognise, c, c->path,
                           c->make ? "bound" : "unbound");
  zke_free(c->text);
  zke_free(c->twin);
  return rc;
}

/* ZKE_BADARGUMENTS: a length below 0, or one without a value. */
static int names_check_value(const void *value, int len) {
  if (len >= 0 && (value || !len)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "a value of length %d", len);
}

/* Bind a name.  With replace, it replaces the present binding, and with a token
 * only if the binding has it.  An ephemeral binding's twin is ephemeral as
 * well: both go with the session. */
static int names_make(zke_names *names, const char *name, bool replace,
                      int64_t token, const void *value, int len, int ephemeral,
                      int64_t deadline_ms, int64_t *token_out) {
  char *path;
  int rc = names_check_value(value, len);
  if (rc == ZKE_OK) rc = names_enter(names, name, deadline_ms, &path);
  if (rc != ZKE_OK) return rc;
  names_change c = {.n = names,
                    .path = path,
                    .make = true,
                    .replace = replace,
                    .token = token,
                    .mode = ephemeral ? ZKE_EPHEMERAL : ZKE_PERSISTENT};
  rc = names_do(&c, value, len, deadline_ms);
  if (rc == ZKE_OK && token_out) *token_out = c.made;
  return names_leave(names, path, rc);
}

/* Nothing is replaced, so no token is needed. */
int zke_names_bind(zke_names *names, const char *name, const void *value,
                   int len, int ephemeral, int64_t deadline_ms,
                   int64_t *token_out) {
  return names_make(names, name, false, 0, value, len, ephemeral, deadline_ms,
                    token_out);
}

/* With a token only that binding is replaced: a process that was stopped for a
 * while cannot undo later changes. */
int zke_names_rebind(zke_names *names, const char *name, int64_t token,
                     const void *value, int len, int ephemeral,
                     int64_t deadline_ms, int64_t *token_out) {
  return names_make(names, name, true, token, value, len, ephemeral,
                    deadline_ms, token_out);
}

/* A change that makes nothing. */
int zke_names_unbind(zke_names *names, const char *name, int64_t token,
                     int64_t deadline_ms) {
  char *path;
  int rc = names_enter(names, name, deadline_ms, &path);
  if (rc != ZKE_OK) return rc;
  names_change c = {.n = names, .path = path, .replace = true, .token = token};
  return names_leave(names, path, names_do(&c, NULL, 0, deadline_ms));
}

/* ---- looking ----
 *
 * Nothing is written here.  Nodes that belong together are read in one
 * snapshot: a name and the znode that it names, or all names. */

/* One read, so the value and its binder belong together. */
static int names_lookup(zke_names *n, const char *path, zke_binding **out) {
  bound o;
  char *data;
  int rc = bound_read(n->r.z, path, &o, &data);
  if (rc == ZKE_OK) {
    zke_binding *b = zke_alloc(n->r.z, sizeof *b + bound_bytes(&o.b));
    if (b)
      bound_copy(b, &o.b, (char *)(b + 1));
    else
      rc = zke_recipe_fail(ZKE_NOMEM, "no memory for a binding");
    *out = b;
  }
  zke_free(data);
  if (rc != ZKE_NONODE) return rc;
  return zke_recipe_fail(rc, "the name %s is not bound", path);
}

/* Asks the file. */
int zke_names_lookup(zke_names *names, const char *name,
                     zke_binding **binding_out) {
  char *path;
  zke_binding *b = NULL;
  if (!binding_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "binding_out is NULL");
  int rc = names_enter(names, name, 0, &path);
  if (rc != ZKE_OK) return rc;
  rc = names_lookup(names, path, &b);
  if (rc == ZKE_OK) *binding_out = b;
  return names_leave(names, path, rc);
}

/* Check a snapshot of name and znode: the name must still stand for b.  Its
 * token tells, and its value, which may have been set by other means.  The
 * name's data is taken apart in place.  ZKE_LOOK_AGAIN: it stands for something
 * else now. */
static int names_resolved(const zke_binding *b, const char *path,
                          const zke_op_result *name,
                          const zke_op_result *node) {
  bound now;
  if (name->rc == ZKE_NONODE) return ZKE_LOOK_AGAIN;
  if (name->rc != ZKE_OK) return name->rc;
  bound_parse(&now, b->name, name->data, name->len, &name->stat);
  if (now.b.token != b->token || now.b.len != b->len ||
      memcmp(now.b.value, b->value, (size_t)b->len) != 0)
    return ZKE_LOOK_AGAIN;
  if (node->rc == ZKE_OK) return ZKE_OK;
  return zke_recipe_fail(node->rc, "the name %s stands for %s: %s", path,
                         b->value, zke_error_text(node->rc));
}

/* One look: read the name, to know the znode; then read both in one snapshot.
 * A value that contains a NUL is not a path. */
static int names_resolve(zke_names *n, const char *path, zke_op_result *out) {
  zke_binding *b = NULL;
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  int rc = names_lookup(n, path, &b);
  if (rc != ZKE_OK) return rc;
  zke_op_get(&ops[0], path);
  zke_op_get(&ops[1], b->value);
  if (b->value[0] == '/' && strlen(b->value) == (size_t)b->len)
    rc = zke_recipe_multi_read(n->r.z, ops, 2, results);
  else
    rc = ZKE_MARSHALLINGERROR;
  if (rc == ZKE_MARSHALLINGERROR)
    rc = zke_recipe_fail(ZKE_BADARGUMENTS,
                         "the name %s does not stand for a path: %s", path,
                         b->value);
  if (rc == ZKE_OK) rc = names_resolved(b, path, &results[0], &results[1]);
  if (rc == ZKE_OK) {
    *out = results[1];
    results[1].data = NULL;
  }
  zke_results_clear(results, 2);
  zke_free(b);
  return rc;
}

/* Repeated while the name stands for another znode at each look: so the result
 * is from one moment. */
int zke_names_resolve(zke_names *names, const char *name, char **data_out,
                      int *len_out, zke_stat *stat_out) {
  char *path;
  zke_op_result node = {0};
  int rc = names_enter(names, name, 0, &path);
  if (rc != ZKE_OK) return rc;
  do {
    rc = names_resolve(names, path, &node);
  } while (zke_recipe_again(names->r.z, &rc));
  if (rc == ZKE_OK && len_out) *len_out = node.len;
  if (rc == ZKE_OK && stat_out) *stat_out = node.stat;
  if (rc == ZKE_OK && data_out) {
    *data_out = node.data;
    node.data = NULL;
  }
  zke_results_clear(&node, 1);
  return names_leave(names, path, rc);
}

/* Make a list of a directory's tree, in one block: the bindings' strings are
 * cut out of copies of the nodes' data. */
static int names_list(zke_names *n, const zke_config_tree *t,
                      zke_binding_list **out) {
  size_t size =
      sizeof(zke_binding_list) + (size_t)t->count * sizeof(zke_binding);
  for (int i = 0; i < t->count; i++) {
    const zke_config_node *node = &t->data[i];
    size += strlen(node->name) + (node->len > 0 ? (size_t)node->len : 0) + 2;
  }
  zke_binding_list *list = zke_alloc(n->r.z, size);
  if (!list) return zke_recipe_fail(ZKE_NOMEM, "no memory for a list of names");
  zke_binding *b = (zke_binding *)(void *)(list + 1);
  char *text = (char *)(b + t->count);
  list->data = b;
  for (int i = 0; i < t->count; i++) {
    const zke_config_node *node = &t->data[i];
    size_t len = node->len > 0 ? (size_t)node->len : 0;
    size_t name = strlen(node->name) + 1;
    bound o;
    if (!*node->name || !name_is_plain(node->name)) continue;
    memcpy(text, node->name, name);
    if (len) memcpy(text + name, node->data, len);
    bound_parse(&o, text, text + name, node->len, &node->stat);
    b[list->count++] = o.b;
    text += name + len + 1;
  }
  *out = list;
  return ZKE_OK;
}

/* Twins are left out, and the directory itself. */
int zke_names_list(zke_names *names, zke_binding_list **list_out) {
  zke_config_tree *tree = NULL;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)names);
  if (rc != ZKE_OK) return rc;
  rc = names_check_place(names);
  if (rc == ZKE_OK) rc = zke_view_read(names->r.z, names->r.path, 1, &tree);
  if (rc == ZKE_OK) rc = names_list(names, tree, list_out);
  zke_free(tree);
  return zke_recipe_leave(&names->r, rc);
}

/* ---- waiting ----
 *
 * Only the name is watched, so other names wake no process.  The watch only
 * tells that the name was bound: the binding is read afterwards, and may have
 * gone again.
 */

/* For zke_recipe_await(): does the name exist? */
static int names_there(zke_recipe *r) {
  return ((const zke_names *)r)->there ? ZKE_OK : ZKE_NOT_YET;
}

/* Wait until it is bound and was read.  It may be unbound again between the
 * two: then the wait continues. */
static int names_wait(zke_names *n, const char *path, int64_t deadline_ms,
                      zke_binding **out) {
  int rc;
  do {
    n->there = false;
    n->r.changed = true; /* a step looks */
    rc = zke_recipe_await(&n->r, names_there, deadline_ms);
    if (rc == ZKE_OK) rc = names_lookup(n, path, out);
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  } while (zke_recipe_again(n->r.z, &rc));
  if (rc == ZKE_OPERATIONTIMEOUT && !n->there)
    return zke_recipe_fail(rc, "the name %s was not bound until the deadline",
                           path);
  return rc;
}

/* One blocking call an object, since the object has only one `wanted`.  The
 * watch ends with the call, and the call's sentence survives that. */
int zke_names_wait(zke_names *names, const char *name, int64_t deadline_ms,
                   zke_binding **binding_out) {
  char *path;
  zke_binding *b = NULL;
  int rc = names_enter(names, name, deadline_ms, &path);
  if (rc != ZKE_OK) return rc;
  if (names->wanted) {
    rc = zke_recipe_fail(ZKE_MISUSE,
                         "another thread waits with this object for %s",
                         names->wanted);
    return names_leave(names, path, rc);
  }
  rc = names_check_place(names);
  names->wanted = path;
  if (rc == ZKE_OK) rc = names_wait(names, path, deadline_ms, &b);
  names->wanted = NULL;
  if (!names->r.ended) {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    zke_remove_watch(names->r.z, path, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &names->r);
    zke_recipe_restore(&kept, rc);
  }
  if (rc == ZKE_OK && binding_out)
    *binding_out = b;
  else
    zke_free(b);
  return names_leave(names, path, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_names_cancel(zke_names *names) {
  return zke_recipe_cancel((zke_recipe *)names);
}
