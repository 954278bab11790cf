/* subtree.c - find, deleteall, cp: whole subtrees, in batches
 *
 * A batch is one zke_batch(), so others see all of it or nothing.  An
 * interruption leaves an incomplete but consistent tree: deleteall goes from
 * the leaves upwards, so no node loses its parent; cp from the top downwards.
 *
 * Others may change the same tree meanwhile.  find skips nodes that have gone;
 * deleteall deletes new ones in further passes; cp copies each node as it is
 * when it is read, not one moment of all (export does that).
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/support.h"
#include "batch.h"
#include "database.h"
#include "tree.h"
#include "walk.h"
#include "work.h"

/* As fail_cancelled(), with a sentence about the progress. */
static int fail_interrupted(call *c, const char *done, int64_t count) {
  int signal = atomic_load(&c->signal);
  if (signal)
    fail_with(c, STATUS_SIGNAL + signal, "INTERRUPTED",
              "%s had %s %" PRId64 " nodes when signal %d (%s) ended it",
              c->command->name, done, count, signal, strsignal(signal));
  else
    fail_with(c, STATUS_CONFLICT, "CANCELLED",
              "%s had %s %" PRId64 " nodes when it was cancelled",
              c->command->name, done, count);
  return fail_cancelled(c);
}

/* ------------------------------------------------------------------------
 * find
 *
 * The walk reads only Stats; the data is read last, for nodes that match all
 * other options.
 * --------------------------------------------------------------------- */

const option find_options[] = {
    {'N', "name", "GLOB"},    {'d', "data", "TEXT"},
    {'e', "ephemeral", NULL}, {'o', "owner", "SESSION"},
    {'L', "depth", "DEPTH"},  {'\0', NULL, NULL}};

/* The conditions of a find. */
typedef struct wanted {
  const word *name, *data;
  bool ephemeral, owned;
  int64_t owner;
} wanted;

/* Does a node's data contain this text?  1 or 0; below 0 after fail_with().
 * For a node that has gone, or may not be read: 0. */
static int find_in_data(call *c, const char *path, const word *text) {
  char *data;
  int len;
  int rc = zke_get(c->z, path, NULL, NULL, &data, &len, NULL);
  if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) return 0;
  if (rc != ZKE_OK) {
    fail_rc(c, rc);
    return -1;
  }
  bool found = text->len == 0 ||
               (len > 0 && memmem(data, (size_t)len, text->text, text->len));
  zke_free(data);
  return found;
}

/* Does the node match all options?  1 or 0; below 0 after fail_with().  The
 * data comes last, since it must be read. */
static int find_matches(call *c, const walk *w, const wanted *want) {
  int64_t owner = w->stat.ephemeralOwner;
  if (want->ephemeral && owner == 0) return 0;
  if (want->owned && owner != want->owner) return 0;
  if (want->name && fnmatch(want->name->text, walk_name(w), 0) != 0) return 0;
  return want->data ? find_in_data(c, w->path, want->data) : 1;
}

/* A row for each matching node at and below path; 0 or the exit code. */
static int find_from(call *c, const char *path, const wanted *want, int limit) {
  walk w;
  int status = 0;
  walk_begin(&w, c, path, limit, false);
  while (!status && walk_next(&w)) {
    int found = find_matches(c, &w, want);
    if (found < 0) status = c->status;
    if (found > 0)
      status = emit_row(c, json_pack("{s:o}", "path", value_text(w.path)));
  }
  return walk_end(&w, status);
}

/* find: without options all nodes match. */
int find_run(call *c) {
  wanted want = {.name = option_word(c, 'N'),
                 .data = option_word(c, 'd'),
                 .ephemeral = option_given(c, 'e'),
                 .owned = option_given(c, 'o')};
  char *path;
  int64_t limit;
  int status = option_number(c, 'L', 0, INT32_MAX, -1, &limit);
  if (status) return status;
  if (want.owned && !word_session(option_word(c, 'o'), &want.owner))
    return fail_usage(c, "--owner wants a session's id, not \"%s\"",
                      option_word(c, 'o')->text);
  status = arg_path(c, 0, &path);
  if (status) return status;
  status = find_from(c, path, &want, (int)limit);
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * deleteall
 *
 * A tree is deleted from its leaves up, in batches, since one transaction for a
 * large tree would keep other writers waiting.  So others see it half deleted,
 * and a further pass deletes nodes that they add meanwhile.
 * --------------------------------------------------------------------- */

enum { PASSES = 10 };

/* One call of deleteall, for one path. */
typedef struct removal {
  batch batch;
  int64_t total; /* nodes at the start, for the progress */
  bool again;    /* others have added nodes: another pass */
} removal;

/* For struct batch: a node that has gone is done; a node with new children is
 * left for the next pass. */
static int removal_refused(void *owner, const zke_op *op, int rc) {
  removal *r = owner;
  if (op && rc == ZKE_NOTEMPTY) r->again = true;
  bool dealt_with = op && (rc == ZKE_NOTEMPTY || rc == ZKE_NONODE);
  return dealt_with ? 0 : fail_rc(r->batch.c, rc);
}

/* Adds a node to the batch; its children came before. */
static int removal_add(removal *r, const char *path) {
  zke_op op;
  char *copy = strdup(path);
  if (!copy) return no_memory(r->batch.c);
  zke_op_delete(&op, copy, -1);
  int status = batch_add(&r->batch, &op, copy);
  progress_show(r->batch.c, "deleteall", r->batch.deleted, r->total);
  return status;
}

/* One pass over the tree.  After a cancel the incomplete batch is given up. */
static int removal_pass(removal *r, const char *path) {
  walk w;
  int status = 0;
  r->again = false;
  walk_begin(&w, r->batch.c, path, -1, true);
  while (!status && walk_next(&w)) status = removal_add(r, w.path);
  if (w.cancelled && !status)
    status = fail_interrupted(r->batch.c, "deleted", r->batch.deleted);
  status = walk_end(&w, status);
  if (!status) status = batch_run(&r->batch);
  batch_clear(&r->batch);
  return status;
}

/* Repeats passes until the node is gone, while others add nodes; but not for
 * ever. */
static int removal_passes(removal *r, const char *path) {
  for (int i = 0; i < PASSES; i++) {
    if (zke_exists(r->batch.c->z, path, NULL, NULL, NULL) == ZKE_NONODE)
      return 0;
    int status = removal_pass(r, path);
    if (status || !r->again) return status;
  }
  return fail_with(r->batch.c, STATUS_CONFLICT, "NOTEMPTY",
                   "%s is filled again as fast as it is emptied", path);
}

/* Removes path with all below it and reports the number of nodes. */
static int deleteall_one(call *c, removal *r, const char *path) {
  int rc = zke_exists(c->z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  if (strcmp(path, "/") == 0 && !c->sh->options.chroot)
    return fail_with(c, STATUS_DATA, "BADARGUMENTS",
                     "the root cannot be deleted");
  *r = (removal){.batch = {.c = c,
                           .most = BATCH_MOST,
                           .most_bytes = INT64_MAX,
                           .release = free,
                           .refused = removal_refused,
                           .owner = r}};
  if (zke_count(c->z, path, &r->total) == ZKE_OK) r->total++;
  int status = removal_passes(r, path);
  if (status) return status;
  return emit_row(c, json_pack("{s:o,s:I}", "path", value_text(path), "deleted",
                               (json_int_t)r->batch.deleted));
}

/* deleteall: one path after the other, until one fails. */
int deleteall_run(call *c) {
  int status = 0;
  removal *r = malloc(sizeof *r); /* too large for a thread's stack */
  if (!r) return no_memory(c);
  for (int i = 0; !status && i < c->count; i++) {
    char *path;
    status = arg_path(c, i, &path);
    if (status) break;
    status = deleteall_one(c, r, path);
    free(path);
  }
  free(r);
  return status;
}

/* ------------------------------------------------------------------------
 * cp
 *
 * The copy is made from the top down, in batches, and is not of one moment.  It
 * has the data, the ACLs and the kinds of nodes.  Versions, times and sequence
 * numbers start again.
 * --------------------------------------------------------------------- */

enum { COPY_BYTES = 512 * 1024 };

const option cp_options[] = {{'R', "recursive", NULL}, {'\0', NULL, NULL}};

/* One call of cp. */
typedef struct copying {
  batch batch;
  const char *from, *to;
  json_t *kinds;   /* by path: 0 for containers, the TTL for expiring nodes */
  int64_t total;   /* nodes at the start, for the progress */
  int64_t skipped; /* ephemeral nodes */
} copying;

/* A node's contents, to which its copying operation points. */
typedef struct copied {
  char *path, *data;
  int len;
  zke_acls *acls;
} copied;

/* For struct batch; data and ACL came from zkembed. */
static void copied_free(void *owned) {
  copied *n = owned;
  free(n->path);
  zke_free(n->data);
  zke_free(n->acls);
  free(n);
}

/* For snapshot_read(): records a container or a TTL node.  Only the file shows
 * this, not a Stat, so cp reads the file. */
static int copying_kind(void *arg, const snapshot_node *node) {
  copying *k = arg;
  bool ttl = strcmp(node->kind, "ttl") == 0;
  if (cancel_came(k->batch.c)) return fail_cancelled(k->batch.c);
  if (!ttl && strcmp(node->kind, "container") != 0) return 0;
  int failed = json_object_set_new(k->kinds, path_below(k->batch.c, node->path),
                                   json_integer(ttl ? node->ttl_ms : 0));
  return failed ? no_memory(k->batch.c) : 0;
}

/* Records which nodes are containers or expire; in memory and on an ensemble
 * there is no file, and none is recorded. */
static int copying_kinds(copying *k) {
  snapshot *s;
  k->kinds = json_object();
  if (!k->kinds) return no_memory(k->batch.c);
  if (store_of(k->batch.c->sh) != STORE_FILE) return 0;
  int status = snapshot_open(k->batch.c, &s);
  if (status) return status;
  status = snapshot_read(s, k->from, copying_kind, k);
  snapshot_close(s);
  return status;
}

/* Any refusal ends the copying; reports the reason. */
static int copying_refused(void *owner, const zke_op *op, int rc) {
  copying *k = owner;
  (void)op;
  return fail_rc(k->batch.c, rc);
}

/* Reads a node; ZKE_NONODE if it went meanwhile.  Refuses a masked ACL: the
 * copy would have another one. */
static int copying_read(copying *k, const char *path, copied *n) {
  zke *z = k->batch.c->z;
  int rc = zke_get(z, path, NULL, NULL, &n->data, &n->len, NULL);
  if (rc != ZKE_OK) return rc;
  rc = zke_get_acl(z, path, &n->acls, NULL);
  for (int i = 0; rc == ZKE_OK && i < n->acls->count; i++)
    rc = acl_accept(z, &n->acls->data[i]);
  if (rc == ZKE_OK && acls_are_masked(n->acls))
    rc = zke_fail(
        ZKE_NOAUTH,
        "the ACL of %s is shown in full only to users who may change it", path);
  return rc;
}

/* The operation that copies the node at path to n->path. */
static zke_op copying_op(const copying *k, const char *path, const copied *n) {
  zke_op op;
  const json_t *kind = json_object_get(k->kinds, path);
  int64_t ttl = json_integer_value(kind);
  if (ttl)
    zke_op_create_ttl(&op, n->path, n->data, n->len, n->acls,
                      ZKE_PERSISTENT_WITH_TTL, ttl);
  else
    zke_op_create(&op, n->path, n->data, n->len, n->acls,
                  kind ? ZKE_CONTAINER : ZKE_PERSISTENT);
  return op;
}

/* Reads a node and adds its copy to the batch.  A node that went meanwhile is
 * left out, unless it is the first one. */
static int copying_add(copying *k, const char *path) {
  copied *n = calloc(1, sizeof *n);
  if (!n) return no_memory(k->batch.c);
  int status = 0, rc = copying_read(k, path, n);
  bool gone = rc == ZKE_NONODE && strcmp(path, k->from) != 0;
  if (rc != ZKE_OK && !gone) status = fail_rc(k->batch.c, rc);
  if (rc == ZKE_OK &&
      asprintf(&n->path, "%s%s", k->to, path + strlen(k->from)) < 0) {
    n->path = NULL;
    status = no_memory(k->batch.c);
  }
  if (status || gone) {
    copied_free(n);
    return status;
  }
  zke_op op = copying_op(k, path, n);
  status = batch_add(&k->batch, &op, n);
  progress_show(k->batch.c, "cp", k->batch.created, k->total);
  return status;
}

/* Ephemeral nodes belong to their sessions, and are left out. */
static int copying_all(copying *k, int limit) {
  walk w;
  int status = 0;
  walk_begin(&w, k->batch.c, k->from, limit, false);
  while (!status && walk_next(&w))
    if (w.stat.ephemeralOwner)
      k->skipped++;
    else
      status = copying_add(k, w.path);
  if (w.cancelled && !status)
    status = fail_interrupted(k->batch.c, "copied", k->batch.created);
  status = walk_end(&w, status);
  if (!status) status = batch_run(&k->batch);
  batch_clear(&k->batch);
  return status;
}

/* The copy's path; "/b/" means below /b, with the same name; for free(). */
static char *copy_target(const char *from, const char *to) {
  size_t len = strlen(to);
  char *path;
  bool below = to[len - 1] == '/';
  if (asprintf(&path, "%.*s%s", (int)(len - below), to,
               below ? strrchr(from, '/') : "") < 0)
    return NULL;
  return path;
}

/* Is it the node itself, or below it? */
static bool is_within(const char *path, const char *top) {
  size_t len = strlen(top);
  return strcmp(top, "/") == 0 ||
         (strncmp(path, top, len) == 0 && (path[len] == '/' || !path[len]));
}

/* May from be copied to to?  Checks before any change; 0 or the exit code. */
static int copy_check(call *c, const char *from, const char *to) {
  zke_stat stat;
  int rc = zke_exists(c->z, from, NULL, NULL, &stat);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  if (stat.ephemeralOwner)
    return fail_with(c, STATUS_NO, "EPHEMERAL",
                     "%s is ephemeral: it belongs to its session", from);
  if (stat.numChildren && !option_given(c, 'R'))
    return fail_with(c, STATUS_NO, "NOTEMPTY",
                     "%s has children; cp -R copies them too", from);
  if (is_within(to, from))
    return fail_with(c, STATUS_DATA, "BADARGUMENTS",
                     "%s would be copied into itself, as %s", from, to);
  return 0;
}

/* Copies, and reports the number of nodes. */
static int copy_from_to(call *c, const char *from, const char *to) {
  copying *k = malloc(sizeof *k); /* too large for a thread's stack */
  if (!k) return no_memory(c);
  *k = (copying){.batch = {.c = c,
                           .most = BATCH_MOST,
                           .most_bytes = COPY_BYTES,
                           .release = copied_free,
                           .refused = copying_refused,
                           .owner = k},
                 .from = from,
                 .to = to};
  if (zke_count(c->z, from, &k->total) == ZKE_OK) k->total++;
  int status = copying_kinds(k);
  if (!status) status = copying_all(k, option_given(c, 'R') ? -1 : 0);
  if (!status)
    status =
        emit_row(c, json_pack("{s:o,s:I,s:I}", "path", value_text(to), "copied",
                              (json_int_t)k->batch.created,
                              "ephemerals_left_out", (json_int_t)k->skipped));
  json_decref(k->kinds);
  free(k);
  return status;
}

/* cp: with -R all below it too. */
int cp_run(call *c) {
  char *from, *given, *to;
  int status = arg_path(c, 0, &from);
  if (status) return status;
  status = path_join(c, &c->args[1], &given); /* "/b/" means below it */
  if (status) {
    free(from);
    return status;
  }
  to = copy_target(from, given);
  status = to ? copy_check(c, from, to) : no_memory(c);
  if (to && !status) status = copy_from_to(c, from, to);
  free(from);
  free(given);
  free(to);
  return status;
}

/* Only reports ephemeral nodes that were left out: people would miss them. */
void cp_human(call *c, json_t *row, FILE *out) {
  (void)c;
  json_int_t skipped =
      json_integer_value(json_object_get(row, "ephemerals_left_out"));
  if (skipped)
    fprintf(out, "%" JSON_INTEGER_FORMAT " ephemeral node%s left out\n",
            skipped, skipped == 1 ? " was" : "s were");
}
