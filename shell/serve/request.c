/* request.c - clients' requests and their answers
 *
 * A request is a header (xid and type) and a record; its answer is a header
 * (xid, zxid and error) and, without an error, a record.  Each type is a row of
 * a table: its name and a function that reads the record, makes one call of the
 * library, and writes the answer's record.  Begin with request_take().
 *
 * An answer is kept until the state that it shows is committed
 * (requests_answer()).  The events up to that state are sent before it, and
 * later ones after it.
 *
 * The library checks what ZooKeeper's client and server check together.  If the
 * server alone treats a malformed path in another way, this file restores its
 * answer as far as another one would mislead (path_rc()).  A function of the
 * table may run twice for one request: a request that waits for another process
 * is held, and run again in the next round.  So a function must change nothing
 * if it returns ZKE_OPERATIONTIMEOUT; one that cannot promise that asks first
 * (run_close()) or is a batch (run_set_watches()). */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

/* One request during one call of request_take().  Everything read from the
 * frame points into a copy that is freed with it.  z is the session's handle;
 * NULL before the first frame. */
typedef struct request {
  server *s;
  conn *c;
  zke *z;
  int32_t xid, type;
  bool is_change;
  zke_jute_reader body;
  zke_jute_writer answer; /* the records after the answer's header */
  quota_counts *counted;
} request;

/* What an operation is to a batch: a change of the tree gains by a batch; an
 * operation that ends or begins something cannot be part of one.  And why a
 * read may take long: it may set a watch, which is a change, or have a large
 * answer. */
enum { CHANGES = 1, ALONE = 2, WATCHES = 4, LARGE = 8 };

/* An operation: its function returns a code of the library or of the wire. */
typedef struct operation {
  int type;
  const char *name; /* for people, as in ZooKeeper's cons */
  unsigned flags;
  int (*run)(request *q);
} operation;

/* The answer to a request; it is sent when the state that it shows is
 * certain. */
struct answer {
  conn *c;
  int32_t xid;
  int rc;
  fate fate;
  int64_t zxid;            /* of the state that it shows */
  int64_t told_zxid;       /* the zxid in its header */
  int64_t began_ms;        /* monotonic */
  bool is_change;          /* the request was a change */
  zke_jute_writer records; /* after its header */
};

/* ------------------------------------------------------------------------
 * Reading and answering
 *
 * A reading function returns ZKE_OK, or the code with which ZooKeeper answers a
 * malformed record.  The connection continues: a frame's length says where the
 * next one begins.
 * --------------------------------------------------------------------- */

/* Reads the request's record; returns ZooKeeper's code for a malformed one. */
static int read_record(request *q, const zke_jute_record *record, void *out) {
  return zke_jute_read(&q->body, record, out) ? ZKE_OK : ZKE_MARSHALLINGERROR;
}

#define READ(q, name, out) read_record(q, &zke_jute_of_##name, out)
#define ANSWER(q, name, in) \
  zke_jute_write(&(q)->answer, &zke_jute_of_##name, in)

/* Does the request have a path without a NUL, which the library accepts? */
static int check_path(const request *q, const char *path) {
  if (!path) return ZKE_MARSHALLINGERROR;
  return q->body.has_nul ? ZKE_BADARGUMENTS : ZKE_OK;
}

/* Reads a record whose first member is the path, and checks it. */
static int read_with_path(request *q, const zke_jute_record *record,
                          void *out) {
  int rc = read_record(q, record, out);
  return rc == ZKE_OK ? check_path(q, *(const char **)out) : rc;
}

#define READ_PATH(q, name, out) read_with_path(q, &zke_jute_of_##name, out)

/* ZooKeeper's server does not check the path of a read: an invalid path has no
 * node. */
static int path_rc(int rc) { return rc == ZKE_BADARGUMENTS ? ZKE_NONODE : rc; }

/* The same for "", which there means "/". */
static const char *read_path(const char *path) { return *path ? path : "/"; }

/* The function for this request's watches.  From now on the server looks for
 * events before each answer to this connection; connections that have never set
 * a watch are spared that. */
static zke_watch_fn watcher(request *q) {
  q->c->has_watched = true;
  return client_watcher;
}

/* The watch that a read sets.  In ZooKeeper a watch of "" belongs to no node,
 * and never fires.
 */
static zke_watch_fn watch_of(request *q, const zke_jute_read_request *r) {
  return r->watch && *r->path ? watcher(q) : NULL;
}

/* The code to send.  The library's own codes, from -200 down, mean nothing to
 * ZooKeeper's clients. */
static int wire_code(int rc) { return rc <= -200 ? ZKE_SYSTEMERROR : rc; }

/* Does this code end the connection without an answer?  Its client must ask
 * again whether a change was made, and whether the session lives. */
static bool ends_connection(int rc) {
  return rc == ZKE_CONNECTIONLOSS || rc == ZKE_SESSIONEXPIRED ||
         rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONMOVED ||
         rc == ZKE_CLOSING || rc == ZKE_REPLACED;
}

/* For a session that has ended, the library's multis return the code of
 * ZooKeeper's client.  On the wire it is the code of other requests. */
static int several_rc(const request *q, int rc) {
  bool ended =
      rc == ZKE_MARSHALLINGERROR && zke_state(q->z) == ZKE_STATE_EXPIRED;
  return ended ? ZKE_SESSIONEXPIRED : rc;
}

/* ------------------------------------------------------------------------
 * Nodes
 *
 * Each function is one request of ZooKeeper's: it reads the record, makes one
 * call, writes the answer's record.  Its result becomes the answer's code.
 * --------------------------------------------------------------------- */

/* The mode that a create of this type and these flags means (semantics.md 2.1):
 * the container request makes only containers, and the request without a TTL
 * makes none. */
static int create_mode(int type, int flags) {
  bool is_container = flags == ZKE_CONTAINER || flags == ZKE_PERSISTENT ||
                      flags == ZKE_EPHEMERAL;
  if (type == ZKE_JUTE_CREATE_CONTAINER)
    return is_container ? ZKE_CONTAINER : INT_MAX;
  if (type == ZKE_JUTE_CREATE_TTL) return flags;
  return flags == ZKE_CONTAINER ? ZKE_PERSISTENT : flags;
}

/* Fills an operation for any of the four creates.  The operation points into r,
 * which must live as long. */
static void fill_create(zke_op *op, int type,
                        const zke_jute_create_ttl_request *r) {
  int mode = create_mode(type, r->flags);
  if (type == ZKE_JUTE_CREATE_TTL)
    zke_op_create_ttl(op, r->path, r->data.data, r->data.len, &r->acl, mode,
                      r->ttl);
  else
    zke_op_create(op, r->path, r->data.data, r->data.len, &r->acl, mode);
}

/* Is the mode valid, with this TTL (-1: none)?  For a mode that the request
 * cannot have, create_mode() returns an invalid one. */
static bool can_create(const zke_op *op, int64_t ttl) {
  if (op->mode == ZKE_PERSISTENT_WITH_TTL ||
      op->mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL)
    return ttl > 0 && ttl <= ZKE_MAX_TTL;
  return ttl < 0 && op->mode >= ZKE_PERSISTENT && op->mode <= ZKE_CONTAINER;
}

/* Reads one into r, into which the operation points; the record without a TTL
 * ends before it.  ZooKeeper checks the mode before the path. */
static int read_create(request *q, int type, zke_jute_create_ttl_request *r,
                       zke_op *op) {
  zke_jute_create_request plain;
  int rc = type == ZKE_JUTE_CREATE_TTL ? READ(q, create_ttl_request, r)
                                       : READ(q, create_request, &plain);
  if (rc != ZKE_OK) return rc;
  if (type != ZKE_JUTE_CREATE_TTL)
    *r = (zke_jute_create_ttl_request){plain.path, plain.data, plain.acl,
                                       plain.flags, -1};
  fill_create(op, type, r);
  return can_create(op, r->ttl) ? check_path(q, r->path) : ZKE_BADARGUMENTS;
}

/* The answer to a change that a quota refuses: that of a multi of the change
 * and a refusal.  It changes nothing, and if the change has another fault, it
 * reports that one, as ZooKeeper does. */
static int refuse_by_quota(request *q, const zke_op *op) {
  zke_op both[2] = {*op};
  zke_op_fail(&both[1], ZKE_JUTE_QUOTAEXCEEDED);
  return several_rc(q, zke_multi(q->z, both, 2, NULL));
}

/* The four creates, which differ in their modes and in whether the answer has a
 * Stat.  The quota is checked after the mode and the path, since ZooKeeper
 * reports those faults first. */
static int run_create(request *q) {
  zke_jute_create_ttl_request r;
  zke_jute_create2_response made = {0};
  char *path = NULL;
  zke_op op;
  int rc = read_create(q, q->type, &r, &op);
  if (rc != ZKE_OK) return rc;
  if (quota_refuses(q->s, &q->counted, op.path, true, op.len))
    return refuse_by_quota(q, &op);
  if (q->type == ZKE_JUTE_CREATE_TTL)
    rc = zke_create_ttl(q->z, op.path, op.data, op.len, op.acls, op.mode,
                        op.ttl_ms, &path, &made.stat);
  else
    rc = zke_create(q->z, op.path, op.data, op.len, op.acls, op.mode, &path,
                    &made.stat);
  if (rc != ZKE_OK) return rc;
  quota_tell_passed(q->s, q->counted);
  made.path = path;
  if (q->type == ZKE_JUTE_CREATE)
    ANSWER(q, path_response, &made.path);
  else
    ANSWER(q, create2_response, &made);
  zke_free(path);
  return ZKE_OK;
}

/* delete: the answer is its header alone. */
static int run_delete(request *q) {
  zke_jute_delete_request r;
  int rc = READ_PATH(q, delete_request, &r);
  return rc == ZKE_OK ? zke_delete(q->z, r.path, r.version) : rc;
}

/* check as a request, run as a multi of one operation, since the library has no
 * other.  ZooKeeper's own answer to it never arrives. */
static int run_check(request *q) {
  zke_jute_delete_request r;
  zke_op op;
  int rc = READ_PATH(q, delete_request, &r);
  if (rc != ZKE_OK) return rc;
  zke_op_check(&op, r.path, r.version);
  return several_rc(q, zke_multi(q->z, &op, 1, NULL));
}

/* exists.  This also sets a watch for a missing node; then the answer is only
 * the code. */
static int run_exists(request *q) {
  zke_jute_read_request r;
  zke_jute_stat_response stat;
  int rc = READ_PATH(q, read_request, &r);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(q->z, read_path(r.path), watch_of(q, &r), q->c, &stat.stat);
  if (rc == ZKE_OK) ANSWER(q, stat_response, &stat);
  return path_rc(rc);
}

/* Writes a node's data into the answer.  Statistics of a quota are current
 * ones. */
static void put_data(request *q, const char *path,
                     zke_jute_get_data_response *got) {
  char *stats = quota_stats(q->s, &q->counted, path);
  if (stats) {
    got->data = (zke_jute_bytes){(int)strlen(stats), stats};
    got->stat.dataLength = got->data.len;
  }
  ANSWER(q, get_data_response, got);
  free(stats);
}

/* getData.  The library owns the bytes until they are copied into the
 * answer. */
static int run_get_data(request *q) {
  zke_jute_read_request r;
  zke_jute_get_data_response got;
  char *data;
  int rc = READ_PATH(q, read_request, &r);
  if (rc != ZKE_OK) return rc;
  rc = zke_get(q->z, read_path(r.path), watch_of(q, &r), q->c, &data,
               &got.data.len, &got.stat);
  if (rc != ZKE_OK) return path_rc(rc);
  got.data.data = data;
  put_data(q, r.path, &got);
  zke_free(data);
  return ZKE_OK;
}

/* setData.  ZooKeeper calls a missing path a bad argument here, and a malformed
 * record elsewhere. */
static int run_set_data(request *q) {
  zke_jute_set_data_request r;
  zke_jute_stat_response stat;
  int rc = READ(q, set_data_request, &r);
  if (rc != ZKE_OK) return rc;
  if (!r.path || q->body.has_nul) return ZKE_BADARGUMENTS;
  if (quota_refuses(q->s, &q->counted, r.path, false, r.data.len)) {
    zke_op op; /* any version: that is checked last */
    zke_op_set(&op, r.path, r.data.data, r.data.len, -1);
    return refuse_by_quota(q, &op);
  }
  rc = zke_set(q->z, r.path, r.data.data, r.data.len, r.version, &stat.stat);
  if (rc != ZKE_OK) return rc;
  quota_tell_passed(q->s, q->counted);
  ANSWER(q, stat_response, &stat);
  return ZKE_OK;
}

/* getChildren and getChildren2: the second also answers with the Stat. */
static int run_get_children(request *q) {
  zke_jute_read_request r;
  zke_jute_children2_response got;
  zke_strings *names;
  int rc = READ_PATH(q, read_request, &r);
  if (rc != ZKE_OK) return rc;
  rc = zke_children(q->z, read_path(r.path), watch_of(q, &r), q->c, &names,
                    &got.stat);
  if (rc != ZKE_OK) return path_rc(rc);
  got.children = *names;
  if (q->type == ZKE_JUTE_GET_CHILDREN)
    ANSWER(q, children_response, &got.children);
  else
    ANSWER(q, children2_response, &got);
  zke_free(names);
  return ZKE_OK;
}

/* sync: returns the path unchanged.  In a batch there is nothing to do. */
static int run_sync(request *q) {
  zke_jute_path_request r;
  int rc = READ(q, path_request, &r);
  if (rc == ZKE_OK && !q->s->in_batch) rc = zke_sync(q->z, r.path);
  if (rc == ZKE_OK) ANSWER(q, path_response, &r);
  return rc;
}

/* getAllChildrenNumber.  The wire has 32 bits for it, so the number stops at
 * their maximum and does not become negative. */
static int run_count(request *q) {
  zke_jute_path_request r;
  zke_jute_count_response got;
  int64_t count;
  int rc = READ_PATH(q, path_request, &r);
  if (rc != ZKE_OK) return rc;
  rc = zke_count(q->z, read_path(r.path), &count);
  if (rc != ZKE_OK) return path_rc(rc);
  got.count = count > INT_MAX ? INT_MAX : (int)count;
  ANSWER(q, count_response, &got);
  return ZKE_OK;
}

/* getEphemerals of the client's own session, below a prefix. */
static int run_ephemerals(request *q) {
  zke_jute_path_request r;
  zke_strings *paths;
  int rc = READ_PATH(q, path_request, &r);
  if (rc == ZKE_OK) rc = zke_ephemerals(q->z, 0, r.path, &paths);
  if (rc != ZKE_OK) return rc;
  ANSWER(q, children_response, paths);
  zke_free(paths);
  return ZKE_OK;
}

/* ------------------------------------------------------------------------
 * Access control lists and identities
 *
 * Identities belong to the connection.  A proof counts from the next request
 * on; a failed proof ends the connection, so that it cannot be tried endlessly
 * on one connection.
 * --------------------------------------------------------------------- */

/* getACL.  The library masks what the client may not see: the hash of a digest
 * identity is hidden from clients that may not administer the node. */
static int run_get_acl(request *q) {
  zke_jute_path_request r;
  zke_jute_acl_response got;
  zke_acls *acls;
  int rc = READ_PATH(q, path_request, &r);
  if (rc != ZKE_OK) return rc;
  rc = zke_get_acl(q->z, read_path(r.path), &acls, &got.stat);
  if (rc != ZKE_OK) return path_rc(rc);
  got.acl = *acls;
  ANSWER(q, acl_response, &got);
  zke_free(acls);
  return ZKE_OK;
}

/* setACL, with the same answers to a bad path as setData. */
static int run_set_acl(request *q) {
  zke_jute_set_acl_request r;
  zke_jute_stat_response stat;
  int rc = READ(q, set_acl_request, &r);
  if (rc != ZKE_OK) return rc;
  if (!r.path || q->body.has_nul) return ZKE_BADARGUMENTS;
  rc = zke_set_acl(q->z, r.path, r.version, &r.acl, &stat.stat);
  if (rc == ZKE_OK) ANSWER(q, stat_response, &stat);
  return rc;
}

/* Sends the events of earlier changes.  For requests that are ALONE, so all
 * earlier answers have been sent. */
static void tell_first(request *q) {
  if (!client_events(q->c->session, server_zxid(q->s))) conn_drop(q->c);
}

/* Could a proof not be checked, since this server no longer has the session or
 * memory is short?  Then the connection ends without an answer, and the client
 * tries again.  It would take ZKE_AUTHFAILED as final. */
static bool is_undecided(request *q, int rc) {
  if (ends_connection(rc)) return true; /* send_answer() ends it */
  if (rc != ZKE_NOMEM && rc != ZKE_SYSTEMERROR) return false;
  conn_drop(q->c);
  return true;
}

/* The library has the scheme digest; "ip" is accepted and does nothing, as in
 * ZooKeeper; any other scheme ends the connection, after the answer.  An
 * identity does not count for earlier events: those are sent without it. */
static int run_auth(request *q) {
  zke_jute_auth_packet r;
  int rc = READ(q, auth_packet, &r);
  if (rc != ZKE_OK) return rc;
  bool is_digest = r.scheme && strcmp(r.scheme, "digest") == 0 && r.auth.data;
  bool is_ip = r.scheme && strcmp(r.scheme, "ip") == 0;
  tell_first(q);
  if (is_digest)
    rc = users_digest(q->s, q->c, r.auth.data, r.auth.len);
  else if (!is_ip)
    rc = zke_fail(ZKE_AUTHFAILED, "the scheme %.20s is neither digest nor ip",
                  r.scheme ? r.scheme : "");
  if (rc == ZKE_OK || is_undecided(q, rc)) return rc;
  conn_tell(q->c, TELL_AUTH, "ended: %s", zke_errmsg());
  conn_end(q->c);
  return ZKE_AUTHFAILED;
}

/* Ends the connection of a client without a proof of its identity. */
static void refuse_sasl(request *q) {
  conn_tell(q->c, TELL_SASL, "ended, since %s",
            q->s->users ? "its token proves no user of the file of --users"
                        : "the server has no users (--users)");
  conn_end(q->c);
}

/* A client that wants SASL is not admitted without it: a failed proof ends the
 * connection, after the answer.  Even that answer has a token, of length -1,
 * since clients read one. */
static int run_sasl(request *q) {
  zke_jute_sasl_token r, next = {{-1, NULL}};
  char *token = NULL;
  int rc = READ(q, sasl_token, &r);
  if (rc == ZKE_OK && r.token.len < 0) rc = ZKE_AUTHFAILED;
  if (rc == ZKE_OK)
    rc = sasl_token(q->s, q->c, r.token.data, (size_t)r.token.len, &token);
  if (is_undecided(q, rc)) return rc;
  if (rc == ZKE_OK)
    next.token = (zke_jute_bytes){(int)strlen(token), token};
  else
    refuse_sasl(q);
  ANSWER(q, sasl_token, &next);
  free(token);
  if (rc == ZKE_OK) return ZKE_OK;
  return q->s->require_sasl ? ZKE_JUTE_SESSIONCLOSEDREQUIRESASLAUTH
                            : ZKE_AUTHFAILED;
}

/* Is the client one that must first authenticate by SASL?  Until then it may
 * only do that, and add identities.  This is checked before an unknown request
 * is refused as unknown. */
static bool is_stranger(const request *q) {
  return q->s->require_sasl && !q->c->is_user && q->type != ZKE_JUTE_SASL &&
         q->type != ZKE_JUTE_AUTH;
}

/* whoAmI: the client's address, then its identities.  The connection owns the
 * texts, which live longer than the building of the answer. */
static int run_who_am_i(request *q) {
  int count = 1, i = 1;
  for (const identity *at = q->c->identities; at; at = at->next) count++;
  zke_acl *entries = calloc((size_t)count, sizeof *entries);
  if (!entries) return ZKE_NOMEM;
  entries[0] = (zke_acl){0, "ip", q->c->address};
  for (const identity *at = q->c->identities; at; at = at->next)
    entries[i++] = (zke_acl){0, at->scheme, at->user};
  zke_jute_who_am_i_response r = {{count, entries}};
  ANSWER(q, who_am_i_response, &r);
  free(entries);
  return ZKE_OK;
}

/* reconfig: refused, as by a standalone server, which cannot be
 * reconfigured. */
static int run_reconfig(request *q) {
  (void)q;
  return ZKE_JUTE_RECONFIGDISABLED;
}

/* ------------------------------------------------------------------------
 * Watches
 *
 * A watch is registered in the session's handle with the connection as its
 * context.  So it ends with the connection (client_detach()), and an event
 * finds its connection without another table.
 *
 * The events of earlier changes are sent before a lasting watch is set, and
 * before one is removed or looked for (tell_first()): they belong to the
 * earlier watches.
 * --------------------------------------------------------------------- */

/* Is it one of ZooKeeper's two modes?  Other modes are answered as a malformed
 * record, as in ZooKeeper. */
static bool is_watch_mode(int mode) {
  return mode == ZKE_WATCH_PERSISTENT || mode == ZKE_WATCH_PERSISTENT_RECURSIVE;
}

/* An invalid path has no node, so its watch would never fire. */
static int run_add_watch(request *q) {
  zke_jute_add_watch_request r;
  int rc = READ_PATH(q, add_watch_request, &r);
  if (rc != ZKE_OK) return rc;
  if (!is_watch_mode(r.mode)) return ZKE_MARSHALLINGERROR;
  tell_first(q);
  rc = zke_add_watch(q->z, r.path, r.mode, watcher(q), q->c);
  if (rc == ZKE_BADARGUMENTS) rc = ZKE_OK;
  if (rc == ZKE_OK) ANSWER(q, error_response, &(zke_jute_error_response){0});
  return rc;
}

/* Sets one kind of watches again, for a client that has reconnected.  An
 * invalid path has no node, and so no watch. */
static int set_again(request *q, const zke_strings *paths, int type,
                     int64_t zxid) {
  int rc = ZKE_OK;
  for (int i = 0; i < paths->count && rc == ZKE_OK; i++) {
    if (!paths->data[i]) return ZKE_MARSHALLINGERROR;
    rc = zke_set_watch(q->z, paths->data[i], type, zxid, watcher(q), q->c);
    if (rc == ZKE_BADARGUMENTS) rc = ZKE_OK;
  }
  return rc;
}

/* The same for lasting watches. */
static int add_again(request *q, const zke_strings *paths, int mode) {
  int rc = ZKE_OK;
  for (int i = 0; i < paths->count && rc == ZKE_OK; i++) {
    if (!paths->data[i]) return ZKE_MARSHALLINGERROR;
    rc = zke_add_watch(q->z, paths->data[i], mode, watcher(q), q->c);
    if (rc == ZKE_BADARGUMENTS) rc = ZKE_OK;
  }
  return rc;
}

/* A setWatches in progress. */
typedef struct rewatch {
  request *q;
  const zke_jute_set_watches2 *lists;
} rewatch;

/* The function of its batch. */
static int set_all_again(zke *z, void *context) {
  const rewatch *w = context;
  const zke_jute_set_watches2 *r = w->lists;
  request *q = w->q;
  int64_t zxid = r->relative_zxid;
  (void)z;
  int rc = set_again(q, &r->data, ZKE_WATCH_DATA, zxid);
  if (rc == ZKE_OK) rc = set_again(q, &r->exist, ZKE_WATCH_EXIST, zxid);
  if (rc == ZKE_OK) rc = set_again(q, &r->child, ZKE_WATCH_CHILD, zxid);
  if (rc == ZKE_OK) rc = add_again(q, &r->persistent, ZKE_WATCH_PERSISTENT);
  if (rc == ZKE_OK)
    rc = add_again(q, &r->recursive, ZKE_WATCH_PERSISTENT_RECURSIVE);
  return rc;
}

/* setWatches has the first three lists of setWatches2.  All is done or nothing:
 * a request that is held runs again, and must not send an event twice. */
static int run_set_watches(request *q) {
  zke_jute_set_watches2 r = {.persistent = {0, NULL}, .recursive = {0, NULL}};
  zke_jute_set_watches three;
  int rc;
  if (q->type == ZKE_JUTE_SET_WATCHES2) {
    rc = READ(q, set_watches2, &r);
  } else {
    rc = READ(q, set_watches, &three);
    r.relative_zxid = three.relative_zxid;
    r.data = three.data;
    r.exist = three.exist;
    r.child = three.child;
  }
  if (rc != ZKE_OK) return rc;
  return zke_batch(q->z, set_all_again, &(rewatch){q, &r});
}

/* Removes or looks for a watch.  ZooKeeper's server does not check its path: an
 * invalid path has no watch. */
static int run_watch(request *q, int (*run)(zke *z, const char *path, int type,
                                            zke_watch_fn fn, void *context)) {
  zke_jute_watches_request r;
  int rc = READ(q, watches_request, &r);
  if (rc != ZKE_OK) return rc;
  if (r.type < ZKE_WATCH_CHILD || r.type > ZKE_WATCH_ANY)
    return ZKE_MARSHALLINGERROR;
  if (!r.path || q->body.has_nul) return ZKE_NOWATCHER;
  tell_first(q);
  rc = run(q->z, r.path, r.type, client_watcher, q->c);
  return rc == ZKE_BADARGUMENTS ? ZKE_NOWATCHER : rc;
}

/* checkWatches: ZKE_NOWATCHER if there is none. */
static int run_check_watches(request *q) {
  return run_watch(q, zke_check_watch);
}

/* removeWatches, only of this connection: it may not remove those of others.
 */
static int run_remove_watches(request *q) {
  return run_watch(q, zke_remove_watch);
}

/* ------------------------------------------------------------------------
 * Several operations in one request
 *
 * A multi is read completely before any of it is done, since the library runs
 * it in one call.  The library refuses some multis as a whole if ZooKeeper's
 * server refuses only one operation; a second look finds that operation
 * (refuse_malformed()).  This costs time only for malformed paths.
 * --------------------------------------------------------------------- */

/* What the answer to an operation needs from it, and the operation's ACL. */
typedef struct part {
  int type;
  zke_acls acls;
} part;

/* The operations of a multi of either kind. */
typedef struct several {
  int count, size;
  zke_op *ops;
  part *parts;
  zke_op_result *results;
} several;

/* Frees the operations and their results, also after a partial
 * several_read(). */
static void several_free(several *m) {
  zke_results_clear(m->results, m->results ? m->count : 0);
  free(m->ops);
  free(m->parts);
  free(m->results);
}

/* Makes room for one more operation; false without memory. */
static bool several_grow(several *m) {
  size_t size = m->size ? 2 * (size_t)m->size : 8;
  if (m->count < m->size) return true;
  zke_op *ops = realloc(m->ops, size * sizeof *ops);
  if (ops) m->ops = ops;
  part *parts = realloc(m->parts, size * sizeof *parts);
  if (parts) m->parts = parts;
  if (!ops || !parts) return false;
  m->size = (int)size;
  return true;
}

/* Reads one operation of a multi, or returns ZooKeeper's code for one that
 * cannot be part of it.  A create in an invalid mode is refused in its turn. */
static int read_change(request *q, int type, zke_op *op, zke_acls *acls) {
  zke_jute_create_ttl_request create;
  zke_jute_delete_request del;
  zke_jute_set_data_request set;
  int rc = ZKE_MARSHALLINGERROR;
  if (type == ZKE_JUTE_CREATE || type == ZKE_JUTE_CREATE2 ||
      type == ZKE_JUTE_CREATE_CONTAINER || type == ZKE_JUTE_CREATE_TTL) {
    rc = read_create(q, type, &create, op);
    if (rc == ZKE_OK) *acls = create.acl;
    if (rc == ZKE_BADARGUMENTS) {
      zke_op_fail(op, rc);
      rc = ZKE_OK;
    }
  } else if (type == ZKE_JUTE_DELETE || type == ZKE_JUTE_CHECK) {
    rc = READ_PATH(q, delete_request, &del);
    if (rc == ZKE_OK && type == ZKE_JUTE_DELETE)
      zke_op_delete(op, del.path, del.version);
    else if (rc == ZKE_OK)
      zke_op_check(op, del.path, del.version);
  } else if (type == ZKE_JUTE_SET_DATA) {
    rc = READ_PATH(q, set_data_request, &set);
    if (rc == ZKE_OK)
      zke_op_set(op, set.path, set.data.data, set.data.len, set.version);
  }
  return rc;
}

/* Reads one operation of a multiRead: a get, or a list of names without a Stat.
 * The protocol has no others. */
static int read_look(request *q, int type, zke_op *op) {
  zke_jute_read_request r;
  if (type != ZKE_JUTE_GET_DATA && type != ZKE_JUTE_GET_CHILDREN)
    return ZKE_MARSHALLINGERROR;
  int rc = READ_PATH(q, read_request, &r);
  if (rc != ZKE_OK) return rc;
  if (type == ZKE_JUTE_GET_DATA)
    zke_op_get(op, read_path(r.path));
  else
    zke_op_children(op, read_path(r.path), NULL, 0);
  return ZKE_OK;
}

/* Reads all operations; the frame's size limits their number. */
static int several_read(request *q, several *m) {
  for (;;) {
    zke_jute_multi_header head;
    int rc = READ(q, multi_header, &head);
    if (rc != ZKE_OK || head.done) return rc;
    if (!several_grow(m)) return ZKE_NOMEM;
    zke_op *op = &m->ops[m->count];
    rc = q->type == ZKE_JUTE_MULTI
             ? read_change(q, head.type, op, &m->parts[m->count].acls)
             : read_look(q, head.type, op);
    if (rc != ZKE_OK) return rc;
    m->parts[m->count++].type = head.type;
  }
}

/* Completes the operations after the arrays have their final places:
 * several_grow() may have moved the ACLs that they point to.  The results start
 * as zeros, so that they can be released even after a partial call. */
static int several_prepare(several *m) {
  for (int i = 0; i < m->count; i++)
    if (m->ops[i].type == ZKE_OP_CREATE) m->ops[i].acls = &m->parts[i].acls;
  m->results = calloc((size_t)m->count + 1, sizeof *m->results);
  return m->results ? ZKE_OK : ZKE_NOMEM;
}

/* The type of a result in the answer: create2 answers as a plain create, and
 * creates that also return the Stat answer as create2 (semantics.md 4). */
static int result_type(int type, int rc) {
  if (rc != ZKE_OK) return ZKE_JUTE_ERROR;
  if (type == ZKE_JUTE_CREATE_CONTAINER || type == ZKE_JUTE_CREATE_TTL)
    return ZKE_JUTE_CREATE2;
  return type == ZKE_JUTE_CREATE2 ? ZKE_JUTE_CREATE : type;
}

/* The record after a result's header. */
static void put_result(request *q, int type, const char *path,
                       const zke_op_result *r) {
  if (type == ZKE_JUTE_CREATE)
    ANSWER(q, path_response, &(zke_jute_path_response){r->path});
  else if (type == ZKE_JUTE_CREATE2)
    ANSWER(q, create2_response,
           &((zke_jute_create2_response){r->path, r->stat}));
  else if (type == ZKE_JUTE_SET_DATA)
    ANSWER(q, stat_response, &(zke_jute_stat_response){r->stat});
  else if (type == ZKE_JUTE_GET_DATA)
    put_data(q, path,
             &(zke_jute_get_data_response){{r->len, r->data}, r->stat});
  else if (type == ZKE_JUTE_GET_CHILDREN && r->children)
    ANSWER(q, children_response, &(zke_jute_children_response){*r->children});
}

/* The answer to both kinds: a header and a result for each operation.  If a
 * multi is refused, all of its results are errors, 0 for those before. */
static void put_results(request *q, const several *m, bool refused) {
  for (int i = 0; i < m->count; i++) {
    const zke_op_result *r = &m->results[i];
    int type = refused ? ZKE_JUTE_ERROR : result_type(m->parts[i].type, r->rc);
    int err = type == ZKE_JUTE_ERROR ? wire_code(r->rc) : 0;
    ANSWER(q, multi_header, &((zke_jute_multi_header){type, 0, err}));
    if (type == ZKE_JUTE_ERROR)
      ANSWER(q, error_response, &(zke_jute_error_response){err});
    else
      put_result(q, type, m->ops[i].path, r);
  }
  ANSWER(q, multi_header, &((zke_jute_multi_header){-1, 1, -1}));
}

/* Was the multi refused for one of its operations?  Then the results say
 * which. */
static bool is_refused(const several *m, int rc) {
  for (int i = 0; i < m->count; i++)
    if (m->results[i].rc == rc) return rc != ZKE_OK;
  return false;
}

/* Does a create append a number to its path? */
static bool is_sequential(const zke_op *op) {
  return op->type == ZKE_OP_CREATE &&
         (op->mode == ZKE_PERSISTENT_SEQUENTIAL ||
          op->mode == ZKE_EPHEMERAL_SEQUENTIAL ||
          op->mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL);
}

/* Would the library refuse this path?  Asks by a read, which finds nothing else
 * wrong with a missing node.  A path that gets a number may end in '/', so a
 * digit stands for the number. */
static bool is_malformed(request *q, const zke_op *op) {
  char *path = NULL;
  if (op->type == ZKE_OP_FAIL) return false; /* it is refused already */
  if (asprintf(&path, "%s%s", op->path, is_sequential(op) ? "0" : "") < 0)
    return false;
  int rc = zke_exists(q->z, path, NULL, NULL, NULL);
  free(path);
  return rc == ZKE_BADARGUMENTS;
}

/* The library refuses a whole call for a malformed path, as ZooKeeper's client
 * does; its server refuses only that operation, with this code. */
static void refuse_malformed(request *q, several *m, int code) {
  for (int i = 0; i < m->count; i++)
    if (is_malformed(q, &m->ops[i])) zke_op_fail(&m->ops[i], code);
}

/* Checks each change separately, against the state before the multi, as
 * ZooKeeper does. */
static void refuse_passed(request *q, several *m) {
  for (int i = 0; i < m->count; i++) {
    const zke_op *op = &m->ops[i];
    bool is_create = op->type == ZKE_OP_CREATE;
    if ((is_create || op->type == ZKE_OP_SET) &&
        quota_refuses(q->s, &q->counted, op->path, is_create, op->len))
      zke_op_fail(&m->ops[i], ZKE_JUTE_QUOTAEXCEEDED);
  }
}

/* multi.  The refusal of one operation is an answer and not an error of the
 * request: the results name the operation.  The request itself fails only if
 * the whole could not be tried. */
static int run_multi(request *q) {
  several m = {0};
  int rc = several_read(q, &m);
  if (rc == ZKE_OK) rc = several_prepare(&m);
  if (rc == ZKE_OK) refuse_passed(q, &m);
  if (rc == ZKE_OK) rc = zke_multi(q->z, m.ops, m.count, m.results);
  if (rc == ZKE_MARSHALLINGERROR && m.results) {
    refuse_malformed(q, &m, ZKE_BADARGUMENTS);
    rc = zke_multi(q->z, m.ops, m.count, m.results);
  }
  if (rc == ZKE_OK) quota_tell_passed(q->s, q->counted);
  if (rc == ZKE_OK || (m.results && is_refused(&m, rc))) {
    put_results(q, &m, rc != ZKE_OK);
    rc = ZKE_OK;
  }
  several_free(&m);
  return several_rc(q, rc);
}

/* multiRead: each operation has its own result, so a failure changes nothing
 * for the others.  An option of the session's handle limits how much all may
 * read together (options_for()). */
static int run_multi_read(request *q) {
  several m = {0};
  int rc = several_read(q, &m);
  if (rc == ZKE_OK) rc = several_prepare(&m);
  if (rc == ZKE_OK) rc = zke_multi_read(q->z, m.ops, m.count, m.results);
  if (rc == ZKE_MARSHALLINGERROR && m.results) {
    refuse_malformed(q, &m, ZKE_NONODE);
    rc = zke_multi_read(q->z, m.ops, m.count, m.results);
  }
  for (int i = 0; rc == ZKE_OK && i < m.count; i++)
    m.results[i].rc = path_rc(m.results[i].rc);
  if (rc == ZKE_OK) put_results(q, &m, false);
  several_free(&m);
  return several_rc(q, rc);
}

/* ------------------------------------------------------------------------
 * The session
 *
 * Ping and close are ordinary requests, and are handled in order.
 * --------------------------------------------------------------------- */

/* ping: the answer is only the header.  Its arrival keeps the session alive. */
static int run_ping(request *q) {
  (void)q;
  return ZKE_OK;
}

/* Must the request be answered although it could not be done, because it has
 * waited for another process as long as any call does? */
static bool is_late(const server *s, const conn *c) {
  return c->held_ms && clock_ms() - c->held_ms >= zke_busy_timeout(s->z);
}

/* Nothing after a close is read, answered or done.  A close cannot be tried
 * twice: if another process has just begun to write, the library does the end
 * later, and the client has its answer. */
static int run_close(request *q) {
  if (!server_can_write(q->s) && !is_late(q->s, q->c))
    return ZKE_OPERATIONTIMEOUT;
  server_limit(q->s, q->z);
  int rc = client_close(q->s, q->c->session);
  conn_end(q->c);
  return rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}

static const operation operations[] = {
    {ZKE_JUTE_CREATE, "CREA", CHANGES, run_create},
    {ZKE_JUTE_DELETE, "DELE", CHANGES, run_delete},
    {ZKE_JUTE_EXISTS, "EXIS", WATCHES, run_exists},
    {ZKE_JUTE_GET_DATA, "GETD", WATCHES, run_get_data},
    {ZKE_JUTE_SET_DATA, "SETD", CHANGES, run_set_data},
    {ZKE_JUTE_GET_ACL, "GETA", 0, run_get_acl},
    {ZKE_JUTE_SET_ACL, "SETA", CHANGES, run_set_acl},
    {ZKE_JUTE_GET_CHILDREN, "GETC", LARGE, run_get_children},
    {ZKE_JUTE_SYNC, "SYNC", 0, run_sync},
    {ZKE_JUTE_PING, "PING", 0, run_ping},
    {ZKE_JUTE_GET_CHILDREN2, "GETC", LARGE, run_get_children},
    {ZKE_JUTE_CHECK, "CHEC", CHANGES, run_check},
    {ZKE_JUTE_MULTI, "MULT", CHANGES, run_multi},
    {ZKE_JUTE_CREATE2, "CREA", CHANGES, run_create},
    {ZKE_JUTE_RECONFIG, "RECO", 0, run_reconfig},
    {ZKE_JUTE_CHECK_WATCHES, "CHKW", ALONE, run_check_watches},
    {ZKE_JUTE_REMOVE_WATCHES, "REMW", ALONE, run_remove_watches},
    {ZKE_JUTE_CREATE_CONTAINER, "CREA", CHANGES, run_create},
    {ZKE_JUTE_CREATE_TTL, "CREA", CHANGES, run_create},
    {ZKE_JUTE_MULTI_READ, "MLTR", LARGE, run_multi_read},
    {ZKE_JUTE_AUTH, "AUTH", ALONE, run_auth},
    {ZKE_JUTE_SASL, "SASL", ALONE, run_sasl},
    {ZKE_JUTE_GET_EPHEMERALS, "GETE", LARGE, run_ephemerals},
    {ZKE_JUTE_COUNT, "GETACN", LARGE, run_count},
    {ZKE_JUTE_SET_WATCHES, "SETW", ALONE, run_set_watches},
    {ZKE_JUTE_SET_WATCHES2, "SETW", ALONE, run_set_watches},
    {ZKE_JUTE_ADD_WATCH, "ADDW", ALONE, run_add_watch},
    {ZKE_JUTE_WHO_AM_I, "HOMI", 0, run_who_am_i},
    {ZKE_JUTE_CLOSE, "CLOS", ALONE, run_close}};

/* The row of a type; NULL: ZooKeeper has no such request, or this server does
 * not know it.  The table is short, so the search is linear. */
static const operation *find_operation(int type) {
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (operations[i].type == type) return &operations[i];
  return NULL;
}

/* ------------------------------------------------------------------------
 * Waiting for another process
 *
 * ZKE_OPERATIONTIMEOUT from the library means that another process writes, and
 * that nothing was changed.  The frame then stays first in its connection's
 * input, so the order of requests is kept.
 * --------------------------------------------------------------------- */

/* Is a request with that result held, to be tried again?  It has changed
 * nothing.  Once it is late, its client is told. */
static bool hold(request *q, int rc) {
  conn *c = q->c;
  if (rc != ZKE_OPERATIONTIMEOUT || c->faults.fate.what == FATE_REFUSED)
    return false;
  server_blocked(q->s);
  if (!c->held_ms) c->held_ms = clock_ms();
  if (!is_late(q->s, c)) return true;
  conn_tell(c, TELL_BUSY,
            "its request was refused: another process has held the database "
            "for %d ms (zke --timeout)",
            (int)(clock_ms() - c->held_ms));
  return false;
}

/* ------------------------------------------------------------------------
 * The first frame of a connection
 *
 * It has no header.  The session id in the answer tells the client whether it
 * has the session that it asked for.
 * --------------------------------------------------------------------- */

/* Finds or makes the session that the frame asks for.  A failure that is not
 * the session's fault ends the connection, so that the client tries again.  No
 * session of a file has an id below 0, but some of ZooKeeper's have. */
static int admit(server *s, conn *c, const zke_jute_connect_request *r) {
  if (r->session_id == 0) return client_open(s, c, r->time_out);
  if (r->session_id < 0) return ZKE_SESSIONEXPIRED;
  if (r->passwd.len != PASSWORD_BYTES) return ZKE_AUTHFAILED;
  return client_attach(s, c, r->session_id, r->passwd.data, r->time_out);
}

/* Answers it; session id 0 tells the client that its session is over. */
static void put_connected(conn *c, const client *session, bool has_read_only) {
  static const char nothing[PASSWORD_BYTES];
  zke_jute_connect_response a = {0, 0, 0, {PASSWORD_BYTES, nothing}};
  if (session)
    a = (zke_jute_connect_response){
        0,
        (int32_t)session->timeout_ms,
        session->id,
        {PASSWORD_BYTES, (const char *)session->password}};
  size_t at = zke_jute_begin(&c->out);
  zke_jute_write(&c->out, &zke_jute_of_connect_response, &a);
  if (has_read_only)
    zke_jute_write(&c->out, &zke_jute_of_read_only, &(zke_jute_read_only){0});
  zke_jute_end(&c->out, at);
  c->issued++;
}

/* Reads a client's first frame; false if that drops the client.  A client that
 * has seen a later state than this file's is talking to the wrong server: it
 * gets no answer, as in ZooKeeper. */
static bool read_connect(request *q, zke_jute_connect_request *r) {
  if (READ(q, connect_request, r) != ZKE_OK)
    conn_tell(q->c, TELL_FRAME, "ended, since its first is no connect request");
  else if (r->last_zxid_seen > server_zxid(q->s))
    conn_tell(q->c, TELL_ZXID,
              "ended, since it has seen zxid 0x%" PRIx64
              " and this database is at 0x%" PRIx64,
              (uint64_t)r->last_zxid_seen, (uint64_t)q->s->zxid);
  else
    return true;
  conn_drop(q->c);
  return false;
}

/* Is the client answered after its session was looked for?  It learns of its
 * session's end; a wrong password gets the same answer. */
static bool is_admitted(request *q, const zke_jute_connect_request *r, int rc) {
  if (rc == ZKE_OK || rc == ZKE_SESSIONEXPIRED) return true;
  server_tell_failed(q->s, q->c, rc);
  if (rc != ZKE_AUTHFAILED) return false;
  conn_tell(q->c, TELL_PASSWORD,
            "refused, since it is not that of session 0x%" PRIx64,
            (uint64_t)r->session_id);
  return true;
}

/* Has the client given up this connection before its frame was read?  Then it
 * may have its session on another connection, perhaps at another server, and
 * would lose that one to this. */
static bool has_given_up(const conn *c, const zke_jute_connect_request *r) {
  return r->session_id != 0 && conn_hung_up(c);
}

/* The session of a connection.  False: it is held. */
static bool take_connect(request *q) {
  conn *c = q->c;
  zke_jute_connect_request r;
  if (!read_connect(q, &r)) return true;
  if (has_given_up(c, &r)) {
    conn_drop(c);
    return true;
  }
  bool has_read_only = q->body.at < q->body.end;
  server_limit(q->s, q->s->z);
  int rc = admit(q->s, c, &r);
  server_unlimit(q->s);
  if (hold(q, rc)) return false;
  if (!is_admitted(q, &r, rc)) {
    conn_drop(c);
    return true;
  }
  if (c->faults.fate.what && fault_answers(q->s, c, &c->faults.fate))
    return true;
  put_connected(c, c->session, has_read_only);
  c->greeted = true;
  c->last_name = "SESS";
  if (!c->session) conn_end(c);
  return true;
}

/* ------------------------------------------------------------------------
 * Answers
 *
 * An answer is kept from the request to the commit of its batch.  Only then is
 * the state that it shows certain, and only then are the earlier events known.
 * --------------------------------------------------------------------- */

/* Makes room for one more answer; false without memory.  Then the connection is
 * dropped: a change without a stored answer must look like a lost reply. */
static bool answers_grow(server *s) {
  size_t size = s->answer_size ? 2 * (size_t)s->answer_size : 64;
  if (s->answer_count < s->answer_size) return true;
  struct answer *grown = realloc(s->answers, size * sizeof *grown);
  if (!grown) return false;
  s->answers = grown;
  s->answer_size = (int)size;
  return true;
}

/* The zxid in an answer's header, as in ZooKeeper: its answers to auth, to
 * clients without SASL and to unknown requests come from a place that does not
 * know the state. */
static int64_t told_zxid(const server *s, const request *q) {
  if (is_stranger(q)) return 0;
  if (q->type == ZKE_JUTE_AUTH || q->type == ZKE_JUTE_SASL) return 0;
  return find_operation(q->type) ? s->zxid : -1;
}

/* Keeps the answer to q until it is sent; takes its records. */
static void keep_answer(server *s, request *q, int rc, int64_t began_ms) {
  if (!answers_grow(s)) {
    conn_drop(q->c);
    return;
  }
  if (rc != ZKE_OK && q->type != ZKE_JUTE_SASL)
    zke_jute_writer_free(&q->answer);
  s->answers[s->answer_count++] =
      (struct answer){q->c,     q->xid,          rc,       q->c->faults.fate,
                      s->zxid,  told_zxid(s, q), began_ms, q->is_change,
                      q->answer};
  s->answer_bytes += q->answer.len;
  q->answer = (zke_jute_writer){0};
}

/* Records the time from a request to its answer, and the answer's size. */
static void count_request(server *s, const struct answer *a, size_t bytes) {
  int64_t now = clock_ms(), took = now - a->began_ms;
  counts *n = &s->counts;
  timing_add(&n->all, took);
  timing_add(a->is_change ? &n->changes : &n->reads, took);
  timing_add(&a->c->took, took);
  a->c->answered_ms = now;
  n->answer_last = (int64_t)bytes;
  if (n->all.count == 1 || n->answer_last < n->answer_least)
    n->answer_least = n->answer_last;
  if (n->answer_last > n->answer_most) n->answer_most = n->answer_last;
  n->bytes_answered += n->answer_last;
  n->sent++;
}

/* Does an answer with this code show the state?  Errors of the protocol do,
 * such as that a node exists; system errors do not. */
static bool shows_state(int rc) {
  return rc == ZKE_OK || (rc <= -100 && rc > -200);
}

/* Sends an answer, after the events of the changes that it shows.  If the
 * connection has never set a watch, there are none to look for.  If they cannot
 * be read, an answer that shows no state has no zxid either: the client would
 * take it for the last zxid whose events it has seen. */
static void send_answer(server *s, struct answer *a) {
  conn *c = a->c;
  if (ends_connection(a->rc)) {
    bool over = a->rc != ZKE_CONNECTIONLOSS && a->rc != ZKE_REPLACED;
    if (over && c->session) client_over(c->session);
    conn_drop(c);
    return;
  }
  bool known =
      !c->session || !c->has_watched || client_events(c->session, a->zxid);
  if (!known && shows_state(a->rc)) {
    conn_drop(c);
    return;
  }
  if (!known) a->told_zxid = 0;
  zke_jute_reply_header head = {a->xid, a->told_zxid, wire_code(a->rc)};
  spare_take(s, &c->out);
  size_t at = zke_jute_begin(&c->out);
  zke_jute_write(&c->out, &zke_jute_of_reply_header, &head);
  zke_jute_append(&c->out, &a->records);
  zke_jute_end(&c->out, at);
  c->issued++;
  c->last_zxid = a->zxid;
  if (!c->out.failed) count_request(s, a, c->out.len - at - 4);
}

/* A batch has failed, so the changes, reads and zxids in its answers did not
 * happen.  An error that would end the session ends only the connection. */
static void undo_answer(const server *s, struct answer *a, int rc) {
  a->rc = ends_connection(rc) ? ZKE_CONNECTIONLOSS : rc;
  a->zxid = s->zxid;
  if (a->told_zxid > 0) a->told_zxid = s->zxid;
  zke_jute_writer_free(&a->records);
}

/* rc: the result of the answers' batch, or ZKE_OK. */
void requests_answer(server *s, int rc) {
  server_print(s);
  for (int i = 0; i < s->answer_count; i++) {
    struct answer *a = &s->answers[i];
    if (rc != ZKE_OK) undo_answer(s, a, rc);
    bool lost = a->fate.what && fault_answers(s, a->c, &a->fate);
    if (!lost && !a->c->dropped) send_answer(s, a);
    spare_give(s, &a->records);
  }
  s->answer_count = 0;
  s->answer_bytes = 0;
}

/* Are there so many answers that a batch had better end here?  This limits the
 * memory that answers take before they are sent. */
bool requests_many(const server *s) {
  return s->answer_bytes >= CONN_OUT_ENOUGH;
}

/* ------------------------------------------------------------------------
 * Every frame
 *
 * Only request_take() turns bytes into an operation.  The questions about
 * frames before that (request_changes() and the like) look at their type and
 * take nothing.
 * --------------------------------------------------------------------- */

/* The operation that a frame asks for; NULL if it is unknown.  The type is in
 * the second four bytes, after the xid. */
static const operation *operation_of(const char *frame, size_t len) {
  return len < 8 ? NULL : find_operation(zke_jute_length(frame + 4));
}

/* Input from a connection without a session may be a word instead of a
 * frame. */
bool request_is_alone(conn *c) {
  size_t len;
  const char *frame = c->session ? conn_frame(c, 0, &len) : NULL;
  const operation *op = frame ? operation_of(frame, len) : NULL;
  return !op || op->flags & ALONE;
}

/* May the frame's operation wait for other processes or the disk, or read much?
 * The last byte of a read's frame says whether it sets a watch.  (This cannot
 * know that the data is a quota's statistic, which counts nodes.) */
static bool may_take_long(const char *frame, size_t len) {
  const operation *op = operation_of(frame, len);
  if (!op || op->flags & (CHANGES | ALONE | LARGE)) return true;
  return op->flags & WATCHES && frame[len - 1];
}

/* Checks the connection's input as far as a turn may go.  A connection without
 * a session may begin one, or ask for anything by a word. */
bool request_takes_long(conn *c) {
  size_t at = 0, len;
  if (!c->session) return true;
  for (int i = 0; i < REQUESTS_AT_ONCE; i++, at += 4 + len) {
    const char *frame = conn_frame(c, at, &len);
    if (!frame) return false;
    if (may_take_long(frame, len)) return true;
  }
  return false;
}

/* How many changes the connection has sent, up to a request that must be ALONE.
 * The server uses this to decide whether a batch is worth its one sync. */
int request_changes(conn *c) {
  size_t at = 0, len;
  int changes = 0;
  if (!c->session || conn_full(c)) return 0;
  for (int i = 0; i < REQUESTS_AT_ONCE; i++, at += 4 + len) {
    const char *frame = conn_frame(c, at, &len);
    const operation *op = frame ? operation_of(frame, len) : NULL;
    if (!op || op->flags & ALONE) break;
    changes += (op->flags & CHANGES) != 0;
  }
  return changes;
}

/* Runs the operation, unless changes are refused now.  An operation that
 * ZooKeeper does not know, or that its client may not ask for, ends the
 * connection, after the answer.  The session may be gone on return. */
static int run_operation(request *q, const operation *op) {
  if (is_stranger(q)) {
    conn_tell(q->c, TELL_STRANGER,
              "ended, since it has not proven who it is (--require-sasl)");
    conn_end(q->c);
    return ZKE_JUTE_SESSIONCLOSEDREQUIRESASLAUTH;
  }
  if (!op) {
    conn_tell(q->c, TELL_OPERATION,
              "ended, since the server has none of number %d", q->type);
    conn_end(q->c);
    return ZKE_UNIMPLEMENTED;
  }
  if (q->c->faults.fate.what == FATE_REFUSED) return q->c->faults.fate.error;
  if (q->c->session->over) return ZKE_SESSIONEXPIRED;
  if (q->s->refusal && op->flags & CHANGES) return q->s->refusal;
  server_limit(q->s, q->z);
  int rc = op->run(q);
  server_tell_failed(q->s, q->c, rc);
  server_unlimit(q->s);
  return rc;
}

/* Is it a setWatches that has failed?  Clients ignore its answer, and would
 * continue without their watches; if the connection ends they ask again.  A
 * malformed one would fail again, and one that a test has refused gets the
 * requested answer. */
static bool loses_watches(const request *q, int rc) {
  bool sets =
      q->type == ZKE_JUTE_SET_WATCHES || q->type == ZKE_JUTE_SET_WATCHES2;
  return sets && rc != ZKE_OK && rc != ZKE_MARSHALLINGERROR &&
         !ends_connection(rc) && !q->c->ended &&
         q->c->faults.fate.what != FATE_REFUSED;
}

/* Handles a request of a session; false: it is held.  Its arrival counts as a
 * sign of life even if it is held, while its client is connected.  Its time
 * counts from its first try.  A change that was made had access to the file, so
 * the time limit for holding the next one starts again. */
static bool take_operation(server *s, request *q) {
  zke_jute_request_header head;
  if (READ(q, request_header, &head) != ZKE_OK) {
    conn_drop(q->c);
    return true;
  }
  const operation *op = find_operation(head.type);
  int64_t began_ms = q->c->held_ms ? q->c->held_ms : clock_ms();
  q->xid = head.xid;
  q->type = head.type;
  q->is_change = op && op->flags & CHANGES;
  q->z = q->c->session->z;
  if (head.xid >= 0) q->c->last_xid = head.xid; /* not a ping's or an auth's */
  q->c->last_name = op ? op->name : "NA";
  if (!q->c->gone) client_heard(q->s, q->c->session);
  int rc = run_operation(q, op);
  if (hold(q, rc)) return false;
  if (loses_watches(q, rc)) conn_drop(q->c);
  if (q->is_change && rc == ZKE_OK) q->c->held_ms = 0;
  server_saw(q->s);
  keep_answer(s, q, rc, began_ms);
  return true;
}

/* Handles a frame according to its connection.  A connection that has been
 * greeted and no longer has a session is about to end, so its frames are
 * ignored. */
static bool take_frame(server *s, request *q) {
  if (!q->c->greeted) return take_connect(q);
  if (q->c->session) return take_operation(s, q);
  conn_drop(q->c);
  return true;
}

/* A copy of a frame, with the length that precedes it, so that none is empty.
 * In a build for finding faults its block has exactly that size, so that
 * reading beyond the frame is detected. */
static bool copy_frame(server *s, zke_jute_writer *copy, char *frame,
                       size_t len) {
  const zke_jute_writer from = {.data = frame - 4, .len = len + 4};
#ifdef ZKE_DEBUG
  copy->data = malloc(from.len);
  if (!copy->data) return false;
  copy->size = from.len;
#else
  spare_take(s, copy);
#endif
  zke_jute_append(copy, &from);
  if (!copy->failed) return true;
  spare_give(s, copy);
  return false;
}

/* Reading changes a frame (jute.h), so it is done in a copy: a frame that is
 * held must be read again.  This releases everything that the request has
 * taken, whatever its result. */
bool request_take(server *s, conn *c) {
  size_t len;
  char *frame = conn_frame(c, 0, &len);
  if (!frame || fault_stops(s, c, frame, len)) return false;
  zke_jute_writer copy = {0};
  if (!copy_frame(s, &copy, frame, len)) {
    conn_drop(c);
    return false;
  }
  request q = {.s = s, .c = c};
  q.body = (zke_jute_reader){.at = copy.data + 4, .end = copy.data + 4 + len};
  spare_take(s, &q.answer);
  c->heard_ms = s->now_ms;
  bool taken = take_frame(s, &q);
  zke_jute_reader_free(&q.body);
  spare_give(s, &q.answer);
  quota_forget(&q.counted);
  spare_give(s, &copy);
  if (!taken) return false;
  if (!s->blocked) c->held_ms = 0;
  c->received++;
  s->counts.received++;
  s->counts.bytes_received += (int64_t)len;
  conn_taken(c, len);
  fault_taken(c);
  return true;
}
