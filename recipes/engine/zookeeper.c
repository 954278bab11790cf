/* zookeeper.c - zkembed.h on a ZooKeeper ensemble
 *
 * Each function of the engine's table is a request.  Wrong arguments are
 * refused here, as in a file's engine; the server finds the other errors.
 *
 * Sections, each using those above it: one operation; results; changes; reads;
 * several operations; access control lists; watches; waiting; sessions; opening
 * and closing; the table.  To see how a call works, read zk_remove() and the
 * section "one operation", which it is made of.  zk_handle.c does all waiting
 * of a call, and zk_link.c all sending; neither of them knows what an operation
 * means.
 *
 * In this file a function named zk_… is in the table at the end, so it has the
 * contract of zke_… in zkembed.h, and is called on any thread.  A function that
 * is given a call in progress, as an op or one of the structs around it, runs
 * with the handle's mutex held. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "zookeeper.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jute.h"
#include "zk_handle.h"

/* Sessions publish themselves here.  The path is the ensemble's, so handles
 * with different chroots see each other's sessions. */
#define WHO "/zke-sessions"

/* The longest busy timeout, ms: a file's, which counts in ns. */
#define BUSY_MOST (INT64_MAX / 1000000)

enum {
  DEFAULT_BUSY = 5000, /* ms */
  DEFAULT_TIMEOUT = 10000,
  DEFAULT_EVENTS = 10000,
  DEFAULT_DATA = 1048576, /* bytes */
  WHO_TRIES = 3,          /* tries to publish a session, while replies are
                             lost */
  NUMBER_MOST = 11,       /* bytes of a sequential node's number, with a sign */
  AUTH_FRAME = 12,        /* bytes of an identity, besides its two texts */
  DISCARD_FRAME = 8,      /* of a discard's longest request, likewise */
  WATCH_FRAME = 32,       /* of a request to set a watch again, besides its
                             path */
  FRAME_MORE = 65536      /* besides the data, in a frame that may be longer */
};

/* zke_fail() with its code as its value.  It is a macro because analyzers do
 * not look into the library, and must know that the value is an error. */
#define fail(rc, ...) (zke_fail((rc), __VA_ARGS__), (rc))

/* ---- one operation ----
 *
 * Every call is an `op` from op_begin() to op_end(): the path below the chroot,
 * the deadline, a request.  Between the two the handle's mutex is held, except
 * during the wait for the request.  An op is on its caller's stack, and so is
 * its request, which the link and the poll loop of another thread refer to.
 * That is safe because zke_ensemble_call() does not return before the request
 * is over.
 *
 * Order of checks: the arguments, then the state of the handle, then the size
 * of the data.  A file's engine has the same order, so a call with two errors
 * fails with the same code on both. */

/* The kind of a call, for op_begin().  OP_READ: its request is sent again after
 * a lost connection.  OP_CHANGE: it is refused on a read-only handle, and waits
 * for discards.  OP_SEQUENTIAL: a number will follow the path.  A call without
 * any of these neither reads nor changes the tree. */
enum { OP_READ = 1, OP_CHANGE = 2, OP_SEQUENTIAL = 4 };

/* A running call: from op_begin() to op_end(). */
typedef struct op {
  zk *z;
  const char *path; /* the caller's */
  char *whole;      /* with the chroot; NULL: the call has no path */
  /* the deadline of the whole call, taken once at its beginning */
  int64_t until_ms;
  unsigned flags;
  int losses; /* the handle's, when a sync was requested */
  zk_request r;
} op;

/* End a call that op_begin() or op_enter() has begun with ZKE_OK: release its
 * memory, then the handle.  Returns rc, for the caller to return.  Afterwards
 * another thread may close the handle, so do not touch it.  Texts of the reply
 * are released with the request: copy results before. */
static int op_end(op *c, int rc) {
  zke_link_request_clear(&c->r);
  free(c->whole);
  zke_ensemble_leave(c->z, rc);
  return rc;
}

/* Set the whole path, as the server knows it.  A call without a path has none.
 * A sequential create of "/" is refused below a chroot: its name would be the
 * chroot's followed by a number, a sibling of the chroot and so outside of it.
 */
static int op_path(op *c) {
  if (!c->path) return ZKE_OK;
  if (c->z->chroot_len && !c->path[1] && c->flags & OP_SEQUENTIAL) {
    return fail(ZKE_BADARGUMENTS,
                "a sequential create of / would leave the chroot %s",
                c->z->chroot);
  }
  c->whole = zke_ensemble_whole(c->z, c->path);
  return c->whole ? ZKE_OK : fail(ZKE_NOMEM, "%s: out of memory", c->path);
}

/* Begin a call with a path that was checked already, or without one (NULL).
 * ZKE_OK: call op_end() afterwards; after any other code nothing is held.
 *
 * A change waits here until all discards are done, and fails if they are not:
 * zke_discard() promises that nothing made by the session comes before.
 * The wait releases the mutex, so anything read from the handle before it may
 * be out of date. */
static int op_enter(op *c, zke *h, const char *path, unsigned flags) {
  *c = (op){.z = zke_ensemble_of(h), .path = path, .flags = flags};
  if (flags) zke_set_zxid(0);
  int rc = zke_ensemble_enter(c->z, 0);
  if (rc != ZKE_OK) return rc;
  c->until_ms = zke_ensemble_until(c->z);
  c->r.reads = (flags & OP_READ) != 0;
  rc = op_path(c);
  if (rc == ZKE_OK && flags & OP_CHANGE && c->z->readonly)
    rc = fail(ZKE_READONLY, "the handle was opened read-only");
  if (rc == ZKE_OK && flags & OP_CHANGE && c->z->discards)
    rc = zke_ensemble_discarded(c->z, c->until_ms);
  if (rc != ZKE_OK) op_end(c, rc);
  return rc;
}

/* Fail for a malformed path.  Only some printf()s can print NULL. */
static int bad_path(const char *path) {
  return fail(ZKE_BADARGUMENTS, "malformed path %s", path ? path : "(NULL)");
}

/* The same, but check the path first.  As on a file, a malformed path is
 * ZKE_BADARGUMENTS whatever the handle's state.  flags 0: a call that fails
 * here does not change zke_zxid(). */
static int op_begin(op *c, zke *h, const char *path, unsigned flags) {
  if (!path || !zke_ensemble_path_check(path, (flags & OP_SEQUENTIAL) != 0)) {
    if (flags) zke_set_zxid(0);
    return bad_path(path);
  }
  return op_enter(c, h, path, flags);
}

/* Has a test asked to lose this call's reply (zke_test_fail()), and when?
 * Returns ZKE_TEST_FAIL_…, or 0.  The first call that it meets uses up the
 * request, so recipes that try again succeed.  Calls without OP_READ and
 * OP_CHANGE do not count, as zkembed.h lists them. */
static int op_fails(op *c) {
  zk *z = c->z;
  bool read = z->fail_when == ZKE_TEST_FAIL_READ;
  if (!z->fail_when || !(c->flags & (read ? OP_READ : OP_CHANGE))) return 0;
  if (z->fail_skip-- > 0) return 0;
  int when = z->fail_when;
  z->fail_when = 0;
  return when;
}

/* Fail as a lost connection does.  The thread's zxid is 0, since the call has
 * seen no state of the tree. */
static int op_lost(void) {
  zke_set_zxid(0);
  return fail(ZKE_CONNECTIONLOSS, "the reply was lost for a test");
}

/* Do servers accept a request with so many bytes after its header?  A server
 * closes the connection for a longer one, and the handle's other changes on
 * their way would be ZKE_CONNECTIONLOSS, too.  A program sets
 * options.data_limit if its servers take more.  The 8 bytes are the request's
 * header: its number and its type. */
static bool frame_fits(const zk *z, size_t len) {
  size_t most = ZKE_JUTE_FRAME_LIMIT;
  if (z->data_limit > DEFAULT_DATA) most = (size_t)z->data_limit + FRAME_MORE;
  return len + 8 <= most;
}

/* Refuse a request that is too long for servers; what: for the sentence. */
static int check_frame(const zk *z, size_t len, const char *what) {
  if (frame_fits(z, len)) return ZKE_OK;
  return fail(ZKE_BADARGUMENTS, "%s: a request of %zu bytes, servers take %d",
              what, len + 8, ZKE_JUTE_FRAME_LIMIT);
}

/* Make the server catch up with the leader before it answers, which makes a
 * read linearizable.  A server answers a session's requests in order, so the
 * read after the sync sees what the sync has brought.  Both go in the same
 * packet, so this costs no round trip.  With sync=0 this is done only after a
 * lost connection: the new server may be behind the one that has made a change
 * whose reply was lost. */
static void op_sync(op *c, const char *whole) {
  zke_jute_path_request path = {whole};
  c->losses = c->z->losses;
  if (c->z->name.sync || c->losses != c->z->losses_synced)
    zke_jute_write(&c->r.sync, &zke_jute_of_path_request, &path);
}

/* A read has its answer: it has seen everything up to its sync. */
static void op_synced(const op *c) {
  if (c->r.sync.len && c->losses > c->z->losses_synced)
    c->z->losses_synced = c->losses;
}

/* Send the request and wait until it is over.  If a test has asked for a lost
 * reply, either nothing is sent (before, and reads), or the request is made and
 * its result is hidden (after). */
static int op_run(op *c) {
  int when = op_fails(c);
  if (when && when != ZKE_TEST_FAIL_AFTER) return op_lost();
  int rc = check_frame(c->z, c->r.body.len, c->path ? c->path : "multi");
  if (rc != ZKE_OK) return rc;
  rc = zke_ensemble_call(c->z, &c->r, c->path ? c->path : "the session",
                         c->until_ms);
  if (when) rc = op_lost();
  if (rc == ZKE_OK || rc == ZKE_NONODE) op_synced(c);
  return rc;
}

/* Fail for a reply that cannot be parsed.  The peer is not a ZooKeeper server,
 * or uses a later version of the protocol. */
static int malformed(const op *c) {
  return fail(ZKE_MARSHALLINGERROR, "%s: the server's reply is malformed",
              c->path ? c->path : "multi");
}

/* Fail for a reply that does not fit the request.  A change with such a reply
 * was made, since its header says so: so its code is ZKE_CONNECTIONLOSS, which
 * tells the caller to look. */
static int op_malformed(const op *c) {
  int rc = malformed(c);
  return c->flags & OP_CHANGE ? fail(ZKE_CONNECTIONLOSS, "%s", zke_errmsg())
                              : rc;
}

/* Read the reply's record; its texts and bytes stay in the reply. */
static int op_take(op *c, const zke_jute_record *record, void *out) {
  return zke_jute_read(&c->r.reply, record, out) ? ZKE_OK : op_malformed(c);
}

/* Fail for a lack of memory; path: the call's, or a word for it. */
static int no_memory(const char *path) {
  return fail(ZKE_NOMEM, "%s: out of memory", path);
}

/* ---- results ----
 *
 * Results belong to the caller: one block of its allocator, released by
 * zke_free().  A reply's own texts are released with the request.  Below, a
 * function that returns NULL has found no memory and has changed nothing; its
 * caller fails with no_memory().  A function writes its output last, so a
 * failure does not change the caller's variables. */

/* A result from the caller's allocator, with a NUL after it that is not
 * counted; NULL without memory. */
static char *copy_bytes(zk *z, const void *data, size_t len) {
  char *copy = zke_alloc((zke *)(void *)z, len + 1);
  if (copy && len) memcpy(copy, data, len);
  return copy;
}

/* Order of names for qsort(): by bytes, as zke_children() promises, whatever
 * the locale. */
static int compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Copy a server's list for the caller: sorted, and in one block for zke_free().
 * keep() returns the text to show for an entry, or NULL to leave it out.  It is
 * called twice for each entry, to count and then to copy, so it must return the
 * same both times.  An entry that is null on the wire is left out. */
static zke_strings *copy_strings(zk *z, const zke_strings *from,
                                 const char *(*keep)(void *arg,
                                                     const char *text),
                                 void *arg) {
  size_t count = 0, bytes = 0;
  for (int i = 0; i < from->count; i++) {
    const char *text = from->data[i] ? keep(arg, from->data[i]) : NULL;
    if (text) count++;
    if (text) bytes += strlen(text) + 1;
  }
  size_t head = sizeof(zke_strings) + count * sizeof(char *);
  zke_strings *list = zke_alloc((zke *)(void *)z, head + bytes);
  if (!list) return NULL;
  char *at = (char *)list + head;
  list->data = (char **)(list + 1);
  for (int i = 0; i < from->count; i++) {
    const char *text = from->data[i] ? keep(arg, from->data[i]) : NULL;
    if (!text) continue;
    list->data[list->count++] = at;
    memcpy(at, text, strlen(text));
    at += strlen(text) + 1;
  }
  qsort(list->data, count, sizeof(char *), compare);
  return list;
}

/* For copy_strings(): all entries as they are. */
static const char *keep_all(void *arg, const char *text) {
  (void)arg;
  return text;
}

/* The arguments of zke_op_children(). */
typedef struct page {
  const char *after;
} page;

/* For zke_op_children(): names after the last one of the previous page. */
static const char *keep_after(void *arg, const char *text) {
  const page *p = arg;
  return strcmp(text, p->after) > 0 ? text : NULL;
}

/* ---- changes ----
 *
 * If the connection breaks, a change may have been made, and is never sent
 * again.  A program's errors are refused here with the codes of a file's
 * engine; the server decides the rest, such as versions and permissions.  A
 * change has three steps: check, write the record, read the reply.  A multi
 * makes the same steps for each of its operations, with the functions of this
 * section, except those of the table. */

/* Does the mode have a TTL?  Such nodes have their own request, with one more
 * member. */
static bool mode_has_ttl(int mode) {
  return mode == ZKE_PERSISTENT_WITH_TTL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* Does the server add a number to the path?  Such a path may end in anything,
 * even in '/'. */
static bool mode_is_sequential(int mode) {
  return mode == ZKE_PERSISTENT_SEQUENTIAL ||
         mode == ZKE_EPHEMERAL_SEQUENTIAL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* Does the node end with the session?  Only then its Stat names an owner. */
static bool mode_is_ephemeral(int mode) {
  return mode == ZKE_EPHEMERAL || mode == ZKE_EPHEMERAL_SEQUENTIAL;
}

/* Refuse an unknown mode, and a TTL that the mode does not have or that is out
 * of range.  The record of a plain create has no TTL, so a server would never
 * see the request for one. */
static int check_mode(const zke_op *o) {
  if (o->mode < ZKE_PERSISTENT || o->mode > ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL)
    return fail(ZKE_BADARGUMENTS, "unknown mode %d", o->mode);
  bool bad = o->ttl_ms != 0;
  if (mode_has_ttl(o->mode)) bad = o->ttl_ms < 1 || o->ttl_ms > ZKE_MAX_TTL;
  if (!bad) return ZKE_OK;
  return fail(ZKE_BADARGUMENTS, "mode %d with a ttl of %lld ms", o->mode,
              (long long)o->ttl_ms);
}

/* Refuse an impossible length.  A length of -1 means NULL data, which ZooKeeper
 * distinguishes from empty data. */
static int check_length(const void *data, int len) {
  if (len >= -1 && (data || len <= 0)) return ZKE_OK;
  return fail(ZKE_BADARGUMENTS, "data of length %d", len);
}

/* Apply options.data_limit to one value, or to the sum of a multi's values.
 * Checked after the handle was entered, as on a file, where the check needs the
 * handle. */
static int check_limit(const zk *z, int64_t len) {
  if (len <= z->data_limit) return ZKE_OK;
  return fail(ZKE_BADARGUMENTS, "data of %lld bytes, the limit is %d",
              (long long)len, z->data_limit);
}

/* The request's type for a mode.  In a multi, a plain create has a reply with
 * only the path: servers before 3.5 do not allow create2 there. */
static int create_type(int mode, bool in_multi) {
  if (mode_has_ttl(mode)) return ZKE_JUTE_CREATE_TTL;
  if (mode == ZKE_CONTAINER) return ZKE_JUTE_CREATE_CONTAINER;
  return in_multi ? ZKE_JUTE_CREATE : ZKE_JUTE_CREATE2;
}

/* Data for a record; a length of -1 is null on the wire. */
static zke_jute_bytes bytes_of(const void *data, int len) {
  return (zke_jute_bytes){len, data};
}

/* Write the record of a create, alone or in a multi.  zkembed.h numbers its
 * modes as ZooKeeper does, so a mode is the record's flags.  NULL for the ACL
 * is an empty list, which the server refuses with ZKE_INVALIDACL. */
static void write_create(zke_jute_writer *w, const char *whole,
                         const zke_op *o) {
  static const zke_acls none = {0, NULL};
  zke_jute_create_ttl_request r = {.path = whole,
                                   .data = bytes_of(o->data, o->len),
                                   .acl = o->acls ? *o->acls : none,
                                   .flags = o->mode,
                                   .ttl = o->ttl_ms};
  zke_jute_create_request plain = {r.path, r.data, r.acl, r.flags};
  if (mode_has_ttl(o->mode))
    zke_jute_write(w, &zke_jute_of_create_ttl_request, &r);
  else
    zke_jute_write(w, &zke_jute_of_create_request, &plain);
}

/* The path of a created node, as the program knows it: the requested one,
 * followed by a number of at most 11 bytes if the create is sequential.  NULL:
 * the server has sent another path.  A server is not trusted, and callers have
 * room only for such a path. */
static const char *made_path(const zk *z, const zke_op *o, const char *whole) {
  const char *shown = whole ? zke_ensemble_shown(z, whole) : NULL;
  size_t len = strlen(o->path);
  if (!shown || strncmp(shown, o->path, len) != 0) return NULL;
  size_t more = strlen(shown + len);
  if (!mode_is_sequential(o->mode)) return more ? NULL : shown;
  bool number = more > 0 && more <= NUMBER_MOST &&
                strspn(shown + len, "-0123456789") == more;
  return number ? shown : NULL;
}

/* Take the reply to a create.  Without memory for the path the caller could not
 * learn its node's number.  That is as bad as a lost reply, so it has the same
 * code: recipes then look for the node, or discard it. */
static int take_created(op *c, const zke_op *o, char **path_out,
                        zke_stat *stat_out) {
  zke_jute_create2_response made;
  int rc = op_take(c, &zke_jute_of_create2_response, &made);
  if (rc != ZKE_OK) return rc;
  const char *shown = made_path(c->z, o, made.path);
  if (!shown) return op_malformed(c);
  if (path_out) {
    char *path = copy_bytes(c->z, shown, strlen(shown));
    if (!path) return fail(ZKE_CONNECTIONLOSS, "made, but out of memory");
    *path_out = path;
  }
  if (stat_out) *stat_out = made.stat;
  return ZKE_OK;
}

/* Make a node in any mode: zke_create() and zke_create_ttl() differ only in
 * their arguments. */
static int create_by(zke *h, const zke_op *o, char **path_out,
                     zke_stat *stat_out) {
  op c;
  unsigned flags = OP_CHANGE;
  if (mode_is_sequential(o->mode)) flags |= OP_SEQUENTIAL;
  int rc = check_mode(o);
  if (rc == ZKE_OK) rc = check_length(o->data, o->len);
  if (rc == ZKE_OK) rc = op_begin(&c, h, o->path, flags);
  if (rc != ZKE_OK) return rc;
  rc = check_limit(c.z, o->len);
  if (rc != ZKE_OK) return op_end(&c, rc);
  c.r.type = create_type(o->mode, false);
  write_create(&c.r.body, c.whole, o);
  rc = op_run(&c);
  if (rc == ZKE_OK) rc = take_created(&c, o, path_out, stat_out);
  return op_end(&c, rc);
}

/* zke_create(), as an operation. */
static int zk_create(zke *z, const char *path, const void *data, int len,
                     const zke_acls *acls, int mode, char **path_out,
                     zke_stat *stat_out) {
  zke_op o;
  zke_op_create(&o, path, data, len, acls, mode);
  return create_by(z, &o, path_out, stat_out);
}

/* zke_create_ttl(), as an operation. */
static int zk_create_ttl(zke *z, const char *path, const void *data, int len,
                         const zke_acls *acls, int mode, int64_t ttl_ms,
                         char **path_out, zke_stat *stat_out) {
  zke_op o;
  zke_op_create_ttl(&o, path, data, len, acls, mode, ttl_ms);
  return create_by(z, &o, path_out, stat_out);
}

/* zke_delete(): a server finds all other errors. */
static int zk_remove(zke *z, const char *path, int version) {
  op c;
  int rc = op_begin(&c, z, path, OP_CHANGE);
  if (rc != ZKE_OK) return rc;
  zke_jute_delete_request r = {c.whole, version};
  c.r.type = ZKE_JUTE_DELETE;
  zke_jute_write(&c.r.body, &zke_jute_of_delete_request, &r);
  return op_end(&c, op_run(&c));
}

/* Take the reply to a set or a set_acl.  Both have only the new Stat; so has
 * that of exists. */
static int take_stat(op *c, zke_stat *stat_out) {
  zke_jute_stat_response answer;
  int rc = op_take(c, &zke_jute_of_stat_response, &answer);
  if (rc == ZKE_OK && stat_out) *stat_out = answer.stat;
  return rc;
}

/* Would this set make a server of 3.8 use the version -1, which means any?
 * Such a set is sent twice in one multi, the first time empty, so no client
 * sees the version in between. */
static bool is_set_twice(const zke_op *o) {
  return o->type == ZKE_OP_SET && o->version == -2;
}

static int zk_multi(zke *z, const zke_op *ops, int count,
                    zke_op_result *results);

/* Make such a set by a multi.  A multi has another code for a session that is
 * over. */
static int set_twice(zke *z, const zke_op *o, zke_stat *stat_out) {
  zke_op_result result = {0};
  int rc = zk_multi(z, o, 1, &result);
  if (rc == ZKE_OK && stat_out) *stat_out = result.stat;
  return rc == ZKE_MARSHALLINGERROR ? ZKE_INVALIDSTATE : rc;
}

/* zke_set(): the length is checked before the path, as on a file. */
static int zk_set(zke *z, const char *path, const void *data, int len,
                  int version, zke_stat *stat_out) {
  op c;
  zke_op o;
  zke_op_set(&o, path, data, len, version);
  int rc = check_length(data, len);
  if (rc == ZKE_OK && is_set_twice(&o) && zke_ensemble_path_check(path, false))
    return set_twice(z, &o, stat_out);
  if (rc == ZKE_OK) rc = op_begin(&c, z, path, OP_CHANGE);
  if (rc != ZKE_OK) return rc;
  rc = check_limit(c.z, len);
  if (rc != ZKE_OK) return op_end(&c, rc);
  zke_jute_set_data_request r = {c.whole, bytes_of(data, len), version};
  c.r.type = ZKE_JUTE_SET_DATA;
  zke_jute_write(&c.r.body, &zke_jute_of_set_data_request, &r);
  rc = op_run(&c);
  if (rc == ZKE_OK) rc = take_stat(&c, stat_out);
  return op_end(&c, rc);
}

/* Queue the discard first, so the node goes in any case, then wait for it.
 * Without memory to queue it, the session is given up: the server then removes
 * the node with the session, after its timeout.  zke_discard() promises this.
 */
static int discard(zk *z, const char *path, int mode, int64_t czxid) {
  int rc =
      zke_ensemble_discard(z, path, mode == ZKE_EPHEMERAL_SEQUENTIAL, czxid);
  if (rc == ZKE_NOMEM) zke_ensemble_end(z, ZKE_STATE_EXPIRED);
  return rc == ZKE_OK ? zke_ensemble_discarded(z, zke_ensemble_until(z)) : rc;
}

/* zke_discard().  The call is entered without flags: with OP_CHANGE, an earlier
 * discard that is stuck would prevent this one.  A reply that a test wants lost
 * is lost when the node has gone, as on a file.  A path that does not fit into
 * a request is refused: it would be sent for ever, and a create of it would
 * have been too long, too. */
static int zk_discard_node(zke *h, const char *path, int mode, int64_t czxid) {
  bool sequential = mode == ZKE_EPHEMERAL_SEQUENTIAL;
  op c;
  if (mode != ZKE_EPHEMERAL && !sequential)
    return fail(ZKE_BADARGUMENTS, "mode %d is not ephemeral", mode);
  int rc = zke_ensemble_path_check(path, sequential) ? ZKE_OK : bad_path(path);
  if (rc == ZKE_OK) rc = op_enter(&c, h, NULL, 0);
  if (rc != ZKE_OK) return rc;
  size_t number = sequential ? NUMBER_MOST : 0;
  rc = check_frame(c.z, c.z->chroot_len + strlen(path) + number + DISCARD_FRAME,
                   "a discard");
  if (rc != ZKE_OK) return op_end(&c, rc);
  c.flags = OP_CHANGE;
  int when = op_fails(&c);
  rc = discard(c.z, path, mode, czxid);
  return op_end(&c, when ? op_lost() : rc);
}

/* ---- reads ----
 *
 * A sync precedes a read, and the read may be sent again.  If it sets a watch,
 * the link's callback enters the watch when the reply is taken, so no event
 * comes in between.  The reason: a watch that is entered later could miss the
 * event of the very next change, and one that is entered before the request
 * could be called for a change that the read already shows. */

/* Refuse a watch whose path would fit into its own request, but not into the
 * longer one that sets it again: that one would end every later connection. */
static int check_watch(const op *c) {
  return check_frame(c->z, strlen(c->whole) + WATCH_FRAME, "a watch");
}

/* A read that may register a watch.  It is the request's context, so
 * read_done() finds the watch.  After read_done() has entered the watch,
 * `watch` is NULL and the tables own it. */
typedef struct reading {
  op c;
  zk_watch *watch;
  enum zk_watch_kind kind;
} reading;

/* The link's callback at the reply, with the mutex held: enter the watch if the
 * server has set it.  A server sets it for every read that succeeds, and for
 * exists of a missing node, to wait for the creation.  It sets none for a get
 * or a list of a missing node. */
static void read_done(zk_request *r) {
  reading *g = r->context;
  enum zk_watch_kind kind = g->kind;
  bool missing = r->rc == ZKE_NONODE && r->type == ZKE_JUTE_EXISTS;
  if (!g->watch || (r->rc != ZKE_OK && !missing)) return;
  if (missing) kind = ZK_WATCH_EXIST;
  zke_watcher_put(&g->c.z->watches, g->watch, kind);
  g->watch = NULL;
}

/* Begin a read, send it and wait.  ZKE_OK: the caller takes the reply and ends
 * the call with op_end(); after a failure the call has ended.  Memory for the
 * watch is allocated before the request is sent, so a server's watch always has
 * a watcher here.  A watch that was not entered is dropped at the end. */
static int read_node(reading *g, zke *h, const char *path, int type,
                     zke_watch_fn fn, void *context) {
  op *c = &g->c;
  bool names = type == ZKE_JUTE_GET_CHILDREN2;
  *g = (reading){.c = {.z = zke_ensemble_of(h)},
                 .kind = names ? ZK_WATCH_CHILD : ZK_WATCH_DATA};
  int rc = op_begin(c, h, path, OP_READ);
  if (rc != ZKE_OK) return rc;
  if (fn) {
    rc = check_watch(c);
    if (rc != ZKE_OK) return op_end(c, rc);
    g->watch = zke_watcher_new(&c->z->watches, path, fn, context);
    if (!g->watch) return op_end(c, no_memory(path));
  }
  zke_jute_read_request r = {c->whole, fn != NULL};
  c->r.type = type;
  c->r.done = read_done;
  c->r.context = g;
  op_sync(c, c->whole);
  zke_jute_write(&c->r.body, &zke_jute_of_read_request, &r);
  rc = op_run(c);
  zke_watcher_drop(&c->z->watches, g->watch);
  return rc == ZKE_OK ? ZKE_OK : op_end(c, rc);
}

/* zke_exists().  A missing node is ZKE_NONODE, and its watch is set all the
 * same: see read_done(). */
static int zk_exists(zke *z, const char *path, zke_watch_fn fn, void *context,
                     zke_stat *stat_out) {
  reading g;
  int rc = read_node(&g, z, path, ZKE_JUTE_EXISTS, fn, context);
  if (rc != ZKE_OK) return rc;
  return op_end(&g.c, take_stat(&g.c, stat_out));
}

/* zke_get(). NULL data and empty data differ on the wire, too. */
static int zk_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                  char **data_out, int *len_out, zke_stat *stat_out) {
  reading g;
  zke_jute_get_data_response answer;
  int rc = read_node(&g, z, path, ZKE_JUTE_GET_DATA, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = op_take(&g.c, &zke_jute_of_get_data_response, &answer);
  if (rc == ZKE_OK && data_out) {
    bool null = answer.data.len < 0;
    char *copy =
        null ? NULL
             : copy_bytes(g.c.z, answer.data.data, (size_t)answer.data.len);
    if (!null && !copy) return op_end(&g.c, no_memory(path));
    *data_out = copy;
  }
  if (rc == ZKE_OK && len_out) *len_out = answer.data.len;
  if (rc == ZKE_OK && stat_out) *stat_out = answer.stat;
  return op_end(&g.c, rc);
}

/* zke_children(), by getChildren2, which has the Stat.  Servers send names in
 * any order; callers get them sorted. */
static int zk_children(zke *z, const char *path, zke_watch_fn fn, void *context,
                       zke_strings **names_out, zke_stat *stat_out) {
  reading g;
  zke_jute_children2_response answer;
  int rc = read_node(&g, z, path, ZKE_JUTE_GET_CHILDREN2, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = op_take(&g.c, &zke_jute_of_children2_response, &answer);
  if (rc == ZKE_OK && names_out) {
    zke_strings *names = copy_strings(g.c.z, &answer.children, keep_all, NULL);
    if (!names) return op_end(&g.c, no_memory(path));
    *names_out = names;
  }
  if (rc == ZKE_OK && stat_out) *stat_out = answer.stat;
  return op_end(&g.c, rc);
}

/* A read with a path as its request. */
static int read_path(op *c, int type, const char *whole) {
  zke_jute_path_request r = {whole};
  c->r.type = type;
  op_sync(c, whole);
  zke_jute_write(&c->r.body, &zke_jute_of_path_request, &r);
  return op_run(c);
}

/* zke_count(), by getAllChildrenNumber, which counts all descendants and not
 * the path itself. */
static int zk_count(zke *z, const char *path, int64_t *count_out) {
  op c;
  zke_jute_count_response answer = {0};
  int rc = op_begin(&c, z, path, OP_READ);
  if (rc != ZKE_OK) return rc;
  rc = read_path(&c, ZKE_JUTE_COUNT, c.whole);
  if (rc == ZKE_OK) rc = op_take(&c, &zke_jute_of_count_response, &answer);
  if (rc == ZKE_OK && count_out) *count_out = answer.count;
  return op_end(&c, rc);
}

/* The selection of the session's ephemeral nodes to show. */
typedef struct owned {
  const zk *z;
  const char *prefix;
} owned;

/* A node of the session as shown: below the chroot, with the prefix.  The node
 * that publishes the session itself is left out. */
static const char *keep_owned(void *arg, const char *whole) {
  const owned *o = arg;
  const char *shown = zke_ensemble_shown(o->z, whole);
  if (strncmp(whole, WHO "/", strlen(WHO "/")) == 0) return NULL;
  if (!shown || strncmp(shown, o->prefix, strlen(o->prefix)) != 0) return NULL;
  return shown;
}

/* zke_ephemerals() of this session: a server gives a session's nodes only to
 * the session.  The request has the chroot as its prefix.  A server compares
 * prefixes as texts, and would also return nodes of "/ab" for the chroot "/a";
 * keep_owned() leaves these out. */
static int zk_ephemerals(zke *h, int64_t session, const char *prefix,
                         zke_strings **paths_out) {
  op c;
  zke_jute_children_response answer;
  int rc = op_enter(&c, h, NULL, OP_READ);
  if (rc != ZKE_OK) return rc;
  owned o = {c.z, prefix ? prefix : ""};
  if (session && session != zke_link_session(c.z->link)) {
    rc = fail(ZKE_UNIMPLEMENTED,
              "a server tells a session's ephemeral nodes to itself only");
  }
  if (rc == ZKE_OK)
    rc = read_path(&c, ZKE_JUTE_GET_EPHEMERALS,
                   c.z->chroot_len ? c.z->chroot : "/");
  if (rc == ZKE_OK) rc = op_take(&c, &zke_jute_of_children_response, &answer);
  if (rc == ZKE_OK && paths_out) {
    zke_strings *paths = copy_strings(c.z, &answer.children, keep_owned, &o);
    if (!paths) return op_end(&c, no_memory(o.prefix));
    *paths_out = paths;
  }
  return op_end(&c, rc);
}

/* zke_sync().  If reads sync by themselves, it only reports the handle's state.
 * Otherwise it waits for the server to catch up.  A server ignores the path, so
 * a malformed one is replaced by "/". */
static int zk_sync(zke *z, const char *path) {
  op c;
  bool plain = path && path[0] == '/';
  int rc = op_enter(&c, z, plain ? path : "/", 0);
  if (rc != ZKE_OK) return rc;
  zke_jute_path_request r = {c.whole};
  if (c.z->name.sync) return op_end(&c, ZKE_OK);
  c.r.reads = true;
  c.r.type = ZKE_JUTE_SYNC;
  zke_jute_write(&c.r.body, &zke_jute_of_path_request, &r);
  return op_end(&c, op_run(&c));
}

/* ---- several operations ----
 *
 * A multi is one request: headers and records in turn; the results have the
 * same form.  The caller's results are written only when all could be read.
 * multi_read is the same with reads.  A reply may have another number of
 * results than there are operations, or results of wrong types: take_result()
 * checks each header before it reads the record after it. */

/* A running multi: the operations and their results. */
typedef struct several {
  op c;
  const zke_op *ops;
  int count;
  /* our copy: callers get all of them, or none */
  zke_op_result *results;
  bool reads, failed; /* failed: no memory for a result */
} several;

/* Can an operation be refused with this code?  As in a file's engine. */
static bool is_refusal(int rc) {
  return rc == ZKE_BADARGUMENTS || rc == ZKE_MARSHALLINGERROR ||
         rc == ZKE_UNIMPLEMENTED || (rc <= -100 && rc > -200);
}

/* Refuse operations for a later version of the library: a reserved member must
 * be zero now, so that it can get a meaning later.  Refuse also a code for
 * zke_op_fail() that no server would give. */
static int check_reserved(const zke_op *o, int i) {
  int64_t set = o->reserved_int;
  if (o->type == ZKE_OP_FAIL && !is_refusal(o->version)) {
    return fail(ZKE_BADARGUMENTS,
                "operation %d cannot be refused with the code %d", i,
                o->version);
  }
  for (size_t k = 0; k < sizeof o->reserved / sizeof *o->reserved; k++)
    set |= o->reserved[k];
  if (!set) return ZKE_OK;
  return fail(ZKE_BADARGUMENTS, "operation %d: a reserved member is not zero",
              i);
}

/* May an operation be in a multi that changes, or in one that reads?  The two
 * are different requests on the wire, and no request of ZooKeeper does both.
 * No `default`: the compiler names a type of zkembed.h that is missing here. */
static bool op_belongs(const zke_op *o, bool reads) {
  switch ((enum zke_op_type)o->type) {
    case ZKE_OP_CREATE:
    case ZKE_OP_DELETE:
    case ZKE_OP_SET:
    case ZKE_OP_CHECK:
      return !reads;
    case ZKE_OP_GET:
    case ZKE_OP_CHILDREN:
    case ZKE_OP_UNTOLD:
      return reads;
    case ZKE_OP_FAIL:
      return true;
    case ZKE_OP_SQL:
      break;
  }
  return false;
}

/* Check one operation's path.  ZooKeeper's C client reports a bad path in a
 * multi as ZKE_MARSHALLINGERROR, and not as ZKE_BADARGUMENTS as for a single
 * call.  A sequential create of "/" is refused below a chroot: see op_path().
 */
static int check_op_path(const zk *z, const zke_op *o, int i) {
  bool sequential = o->type == ZKE_OP_CREATE && mode_is_sequential(o->mode);
  bool root = o->path && o->path[0] == '/' && !o->path[1];
  if (zke_ensemble_path_check(o->path, sequential) &&
      !(root && sequential && z->chroot_len))
    return ZKE_OK;
  return fail(ZKE_MARSHALLINGERROR, "operation %d: malformed path %s", i,
              o->path ? o->path : "(NULL)");
}

/* Check one operation, in the order of a file's engine: the kind, the reserved
 * members, the path, the mode, the data. */
static int check_op(const several *m, int i) {
  const zke_op *o = &m->ops[i];
  if (o->type == ZKE_OP_SQL) {
    return fail(ZKE_UNIMPLEMENTED,
                "operation %d: an ensemble has no tables for SQL", i);
  }
  if (!op_belongs(o, m->reads)) {
    return fail(m->reads ? ZKE_MARSHALLINGERROR : ZKE_BADARGUMENTS,
                "operation %d: type %d", i, o->type);
  }
  int rc = check_reserved(o, i);
  if (rc == ZKE_OK && m->reads && o->len < 0)
    rc = fail(ZKE_BADARGUMENTS, "operation %d: at most %d", i, o->len);
  if (rc == ZKE_OK) rc = check_op_path(m->c.z, o, i);
  if (rc != ZKE_OK || m->reads) return rc;
  if (o->type == ZKE_OP_CREATE) rc = check_mode(o);
  if (rc == ZKE_OK) rc = check_length(o->data, o->len);
  return rc == ZKE_OK ? check_limit(m->c.z, o->len) : rc;
}

/* Check all operations, then the sum of their data.  All are checked before
 * anything is written, so a refused multi has sent nothing. */
static int check_ops(const several *m) {
  int64_t sum = 0;
  for (int i = 0; i < m->count; i++) {
    int rc = check_op(m, i);
    if (rc != ZKE_OK) return rc;
    if (m->ops[i].len > 0) sum += m->ops[i].len;
  }
  return m->reads ? ZKE_OK : check_limit(m->c.z, sum);
}

/* Write the header before each operation of a multi, and after the last
 * (done). */
static void write_head(zke_jute_writer *w, int type, bool done) {
  zke_jute_multi_header head = {type, done, -1};
  zke_jute_write(w, &zke_jute_of_multi_header, &head);
}

/* The required type of a change's result.  For a create this stands for all of
 * makes_node(); zke_op_fail() is a check, see write_change(). */
static int result_type(const zke_op *o) {
  switch ((enum zke_op_type)o->type) {
    case ZKE_OP_CREATE:
      return ZKE_JUTE_CREATE;
    case ZKE_OP_SET:
      return ZKE_JUTE_SET_DATA;
    case ZKE_OP_DELETE:
      return ZKE_JUTE_DELETE;
    case ZKE_OP_CHECK:
    case ZKE_OP_FAIL:
      return ZKE_JUTE_CHECK;
    case ZKE_OP_GET:
    case ZKE_OP_CHILDREN:
    case ZKE_OP_UNTOLD:
    case ZKE_OP_SQL:
      break;
  }
  return ZKE_JUTE_ERROR; /* never: check_op() has refused it */
}

/* Write one change.  A delete and a check have the same record.  zke_op_fail()
 * becomes a check that always fails: the root exists, and never has the version
 * INT32_MIN.  So the server judges the operations before it first;
 * take_changes() then replaces the code.  check_op() has refused all others. */
static void write_change(zke_jute_writer *w, const char *whole,
                         const zke_op *o) {
  zke_jute_delete_request versioned = {whole, o->version};
  zke_jute_set_data_request set = {whole, bytes_of(o->data, o->len),
                                   o->version};
  switch ((enum zke_op_type)o->type) {
    case ZKE_OP_CREATE:
      write_head(w, create_type(o->mode, true), false);
      write_create(w, whole, o);
      break;
    case ZKE_OP_SET:
      if (is_set_twice(o)) {
        zke_jute_set_data_request first = {whole, bytes_of("", 0), o->version};
        write_head(w, ZKE_JUTE_SET_DATA, false);
        zke_jute_write(w, &zke_jute_of_set_data_request, &first);
        set.version = -1;
      }
      write_head(w, ZKE_JUTE_SET_DATA, false);
      zke_jute_write(w, &zke_jute_of_set_data_request, &set);
      break;
    case ZKE_OP_FAIL: /* always refused: the root never has this version */
      versioned = (zke_jute_delete_request){"/", INT32_MIN};
      write_head(w, ZKE_JUTE_CHECK, false);
      zke_jute_write(w, &zke_jute_of_delete_request, &versioned);
      break;
    case ZKE_OP_DELETE:
    case ZKE_OP_CHECK:
      write_head(w, result_type(o), false);
      zke_jute_write(w, &zke_jute_of_delete_request, &versioned);
      break;
    case ZKE_OP_GET:
    case ZKE_OP_CHILDREN:
    case ZKE_OP_UNTOLD:
    case ZKE_OP_SQL:
      break;
  }
}

/* Write one read.  A list of children has no Stat in a multi, so a get follows
 * for the Stat: one operation, two results.  take_reads() reads them in
 * the same order.  zke_op_untold() and zke_op_fail() send nothing to the
 * server.
 */
static void write_read(zke_jute_writer *w, const char *whole, const zke_op *o) {
  zke_jute_read_request r = {whole, 0};
  bool lists = o->type == ZKE_OP_CHILDREN;
  if (lists) {
    write_head(w, ZKE_JUTE_GET_CHILDREN, false);
    zke_jute_write(w, &zke_jute_of_read_request, &r);
  }
  if (lists || o->type == ZKE_OP_GET) {
    write_head(w, ZKE_JUTE_GET_DATA, false);
    zke_jute_write(w, &zke_jute_of_read_request, &r);
  }
}

/* Write all operations, each after a header, and a header at the end.  A writer
 * without memory records this, and zke_ensemble_call() reports it. */
static int write_ops(several *m) {
  zke_jute_writer *w = &m->c.r.body;
  for (int i = 0; i < m->count; i++) {
    char *whole = zke_ensemble_whole(m->c.z, m->ops[i].path);
    if (!whole) return no_memory(m->ops[i].path);
    if (m->reads)
      write_read(w, whole, &m->ops[i]);
    else
      write_change(w, whole, &m->ops[i]);
    free(whole);
  }
  write_head(w, -1, true);
  return ZKE_OK;
}

/* Compute the Stat of a node that a multi has made.  The reply to a plain
 * create in a multi has only the path, but it has the multi's zxid.  The times
 * are this host's, as zookeeper.h says; a program that needs the server's must
 * read the node. */
static zke_stat made_stat(const several *m, const zke_op *o) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  int64_t ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
  zke_stat stat = {.czxid = m->c.r.zxid,
                   .mzxid = m->c.r.zxid,
                   .pzxid = m->c.r.zxid,
                   .ctime = ms,
                   .mtime = ms,
                   .dataLength = o->len > 0 ? o->len : 0};
  if (mode_is_ephemeral(o->mode))
    stat.ephemeralOwner = zke_link_session(m->c.z->link);
  return stat;
}

/* Take the result of a create; false if it is malformed, or has another path
 * than requested.  Results of containers and TTL nodes have a Stat, those of
 * plain creates do not.  If the path cannot be copied, the whole multi fails,
 * as in take_created(). */
static bool take_made(several *m, int i, int type) {
  zke_jute_reader *reply = &m->c.r.reply;
  zke_op_result *out = &m->results[i];
  zke_jute_create2_response both;
  zke_jute_path_response made;
  if (type == ZKE_JUTE_CREATE) {
    if (!zke_jute_read(reply, &zke_jute_of_path_response, &made)) return false;
    out->stat = made_stat(m, &m->ops[i]);
  } else {
    if (!zke_jute_read(reply, &zke_jute_of_create2_response, &both))
      return false;
    made.path = both.path;
    out->stat = both.stat;
  }
  const char *shown = made_path(m->c.z, &m->ops[i], made.path);
  if (!shown) return false;
  out->path = copy_bytes(m->c.z, shown, strlen(shown));
  m->failed = m->failed || !out->path;
  return true;
}

/* Take the result of a get; whole: with the data, else only the Stat, for a
 * list of children. */
static bool take_data(several *m, zke_op_result *out, bool whole) {
  zke_jute_get_data_response got;
  if (!zke_jute_read(&m->c.r.reply, &zke_jute_of_get_data_response, &got))
    return false;
  out->stat = got.stat;
  out->len = got.data.len;
  if (!whole) return true;
  if (got.data.len >= 0) {
    out->data = copy_bytes(m->c.z, got.data.data, (size_t)got.data.len);
    m->failed = m->failed || !out->data;
  }
  return true;
}

/* Take a list of names; false if it is malformed.  The server sends all of
 * them.  They are sorted here, and then cut to the page of zke_op_children():
 * those after its name, and at most so many. */
static bool take_names(several *m, int i) {
  zke_jute_children_response all;
  page p = {m->ops[i].data ? m->ops[i].data : ""};
  if (!zke_jute_read(&m->c.r.reply, &zke_jute_of_children_response, &all))
    return false;
  zke_strings *names =
      copy_strings(m->c.z, &all.children, *p.after ? keep_after : keep_all, &p);
  m->failed = m->failed || !names;
  if (names && m->ops[i].len && names->count > m->ops[i].len)
    names->count = m->ops[i].len;
  m->results[i].children = names;
  return true;
}

/* Is it the type of a create's result?  Servers send the requested type, or
 * that of the plain create. */
static bool makes_node(int type) {
  return type == ZKE_JUTE_CREATE || type == ZKE_JUTE_CREATE2 ||
         type == ZKE_JUTE_CREATE_CONTAINER || type == ZKE_JUTE_CREATE_TTL;
}

/* Take one result of this type, or an error; false if the reply is malformed.
 * The header says which record follows, so after a header of another type
 * nothing more can be read. */
static bool take_result(several *m, int i, int type) {
  zke_jute_reader *reply = &m->c.r.reply;
  zke_jute_multi_header head;
  zke_jute_error_response error;
  zke_jute_stat_response set;
  zke_op_result *out = &m->results[i];
  if (!zke_jute_read(reply, &zke_jute_of_multi_header, &head) || head.done)
    return false;
  if (head.type == ZKE_JUTE_ERROR) {
    if (!zke_jute_read(reply, &zke_jute_of_error_response, &error))
      return false;
    out->rc = zke_link_code(error.err);
    return true;
  }
  if (type == ZKE_JUTE_CREATE)
    return makes_node(head.type) && take_made(m, i, head.type);
  if (type != head.type) return false;
  switch (type) {
    case ZKE_JUTE_SET_DATA:
      if (!zke_jute_read(reply, &zke_jute_of_stat_response, &set)) return false;
      out->stat = set.stat;
      return true;
    case ZKE_JUTE_GET_DATA:
      return take_data(m, out, m->ops[i].type == ZKE_OP_GET);
    case ZKE_JUTE_GET_CHILDREN:
      return take_names(m, i);
    case ZKE_JUTE_DELETE:
    case ZKE_JUTE_CHECK:
      return true; /* only a header */
    default:
      return false; /* result_type() and take_reads() ask for no other */
  }
}

/* Take the result of one change, or two if it was sent twice: the first refusal
 * counts. */
static bool take_change(several *m, int i) {
  int type = result_type(&m->ops[i]);
  zke_op_result *out = &m->results[i];
  if (!take_result(m, i, type)) return false;
  int rc = out->rc;
  if (!is_set_twice(&m->ops[i])) return true;
  if (!take_result(m, i, type)) return false;
  if (rc) out->rc = rc;
  return true;
}

/* Take all results of a multi, and return its code: that of the first operation
 * that was refused.  The results of a refused multi have 0 before that
 * operation and ZKE_RUNTIMEINCONSISTENCY after it, which only says that they
 * were not made. zke_op_fail() is recognised by its place, and gets the
 * caller's code. */
static int take_changes(several *m) {
  int rc = ZKE_OK;
  for (int i = 0; i < m->count; i++) {
    if (!take_change(m, i)) {
      m->failed = true;
      return ZKE_CONNECTIONLOSS;
    }
    zke_op_result *out = &m->results[i];
    bool first = out->rc && out->rc != ZKE_RUNTIMEINCONSISTENCY;
    if (first && m->ops[i].type == ZKE_OP_FAIL) out->rc = m->ops[i].version;
    if (first && rc == ZKE_OK)
      rc = fail(out->rc, "%s: %s", m->ops[i].path, zke_error_text(out->rc));
  }
  return rc;
}

/* Check and write a multi.  ZKE_OK: call several_end() afterwards; otherwise
 * nothing is held.  As on a file, and in ZooKeeper's client, a multi on a
 * session that is over is ZKE_MARSHALLINGERROR.  The results are allocated
 * before the request is sent, so no memory is needed after it was made. */
static int several_begin(several *m, zke *h, const zke_op *ops, int count,
                         bool reads) {
  *m = (several){.ops = ops, .count = count, .reads = reads};
  if (count < 0 || (count && !ops))
    return fail(ZKE_BADARGUMENTS, "%d operations%s", count,
                count < 0 ? "" : ", but ops is NULL");
  int rc = op_enter(&m->c, h, NULL, reads ? OP_READ : OP_CHANGE);
  if (rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED)
    return ZKE_MARSHALLINGERROR;
  if (rc != ZKE_OK) return rc;
  rc = check_ops(m);
  if (rc == ZKE_OK) rc = write_ops(m);
  m->results = calloc((size_t)count + 1, sizeof *m->results);
  if (rc == ZKE_OK && !m->results) rc = no_memory("multi");
  if (rc == ZKE_OK) return ZKE_OK;
  free(m->results);
  return op_end(&m->c, rc);
}

/* Give the results to the caller, who then owns their memory, or release them.
 * Then end the call.  The caller's array may be NULL: a change need not ask for
 * results. */
static int several_end(several *m, zke_op_result *results, bool give, int rc) {
  if (give && results) {
    if (m->count)
      memcpy(results, m->results, (size_t)m->count * sizeof *results);
  } else {
    zke_results_clear(m->results, m->count);
  }
  free(m->results);
  if (rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE)
    rc = ZKE_MARSHALLINGERROR;
  return op_end(&m->c, rc);
}

/* zke_multi().  Results are returned even if it was refused: they say which
 * operation was.  A reply that cannot be parsed counts as lost. */
static int zk_multi(zke *z, const zke_op *ops, int count,
                    zke_op_result *results) {
  several m;
  int rc = several_begin(&m, z, ops, count, false);
  if (rc != ZKE_OK) return rc;
  m.c.r.type = ZKE_JUTE_MULTI;
  rc = op_run(&m.c);
  if (rc != ZKE_OK) return several_end(&m, results, false, rc);
  rc = take_changes(&m);
  if (m.failed) {
    rc = fail(ZKE_CONNECTIONLOSS, "made, but its reply could not be read");
    return several_end(&m, results, false, rc);
  }
  return several_end(&m, results, true, rc);
}

/* A list of paths being built; list NULL: only count.  Two passes under one
 * lock see the same queue, so the second one fits the first one's count. */
typedef struct untold {
  zke_strings *list;
  char *at;
  size_t count, bytes;
} untold;

/* Add a path.  Called twice for each: to count, then to fill the list. */
static void add_untold(void *arg, const char *path) {
  untold *u = arg;
  size_t size = strlen(path) + 1;
  if (u->list) {
    memcpy(u->at, path, size);
    u->list->data[u->list->count++] = u->at;
    u->at += size;
  }
  u->count++;
  u->bytes += size;
}

/* Answer zke_op_untold(): the paths of undelivered events at the time of the
 * reply.  The queue has everything that the read can show, since a server sends
 * the event of a change before a reply that shows it.  If an overflow is still
 * to be told, or there are more paths than the caller wants, the answer is "not
 * known". */
static void take_untold(several *m, int i) {
  zk *z = m->c.z;
  zke_op_result *out = &m->results[i];
  untold u = {NULL, NULL, 0, 0};
  zke_watcher_untold(&z->watches, m->ops[i].path, add_untold, &u);
  out->len = z->missed;
  if (z->watches.round_type || u.count > (size_t)m->ops[i].len) {
    out->rc = ZKE_RUNTIMEINCONSISTENCY;
    return;
  }
  size_t head = sizeof(zke_strings) + u.count * sizeof(char *);
  out->children = zke_alloc((zke *)(void *)z, head + u.bytes);
  m->failed = m->failed || !out->children;
  if (!out->children) return;
  out->children->data = (char **)(out->children + 1);
  untold fill = {out->children, (char *)out->children + head, 0, 0};
  zke_watcher_untold(&z->watches, m->ops[i].path, add_untold, &fill);
}

/* The link's callback at the reply, with the mutex held.  The queue of events
 * is read here and not after the call has woken up: in between another thread
 * could take more events, or dispatch some. */
static void several_done(zk_request *r) {
  several *m = r->context;
  for (int i = 0; r->rc == ZKE_OK && i < m->count; i++) {
    if (m->ops[i].type == ZKE_OP_UNTOLD) take_untold(m, i);
  }
}

/* Take the results of a multi_read.  The operations are independent, so one
 * that fails does not change the others.  If the second part of a list, the
 * get, has failed, the whole list is dropped: an operation has either a code or
 * a result. */
static int take_reads(several *m) {
  for (int i = 0; i < m->count; i++) {
    zke_op_result *out = &m->results[i];
    int type = m->ops[i].type;
    if (type == ZKE_OP_FAIL) out->rc = m->ops[i].version;
    if (type != ZKE_OP_GET && type != ZKE_OP_CHILDREN) continue;
    bool lists = type == ZKE_OP_CHILDREN;
    if (lists && !take_result(m, i, ZKE_JUTE_GET_CHILDREN))
      return malformed(&m->c);
    if (!take_result(m, i, ZKE_JUTE_GET_DATA)) return malformed(&m->c);
    if (out->rc != ZKE_OK && out->children) {
      zke_free(out->children);
      out->children = NULL;
    }
  }
  return m->failed ? no_memory("multi_read") : ZKE_OK;
}

/* zke_multi_read(), after one sync for all. */
static int zk_multi_read(zke *z, const zke_op *ops, int count,
                         zke_op_result *results) {
  several m;
  if (count > 0 && !results) return fail(ZKE_BADARGUMENTS, "results is NULL");
  int rc = several_begin(&m, z, ops, count, true);
  if (rc != ZKE_OK) return rc;
  m.c.r.type = ZKE_JUTE_MULTI_READ;
  m.c.r.done = several_done;
  m.c.r.context = &m;
  op_sync(&m.c, m.c.z->chroot_len ? m.c.z->chroot : "/");
  rc = op_run(&m.c);
  if (rc == ZKE_OK) rc = take_reads(&m);
  return several_end(&m, results, rc == ZKE_OK, rc);
}

/* ---- access control lists ----
 *
 * The server checks the lists.  Identities belong to a connection there, so the
 * handle keeps them and sends them on each new one.  An identity is never taken
 * back, neither here nor by a server; it goes with the handle.  A refusal ends
 * the session (ZKE_STATE_AUTH_FAILED), as in ZooKeeper's clients. */

/* Wait until the server has judged an identity.  It judges when it reads it,
 * and answers later requests in order.  So the reply to any request will do; a
 * refusal comes before it. */
static int await_auth(op *c) {
  zke_jute_path_request r = {"/"};
  c->r.type = ZKE_JUTE_SYNC;
  c->r.reads = true;
  zke_jute_write(&c->r.body, &zke_jute_of_path_request, &r);
  int rc = op_run(c);
  if (c->z->state != ZKE_STATE_AUTH_FAILED) return rc;
  return fail(ZKE_AUTHFAILED, "the server refused the identity");
}

/* Copy an identity for the handle, which keeps it for later connections. */
static int new_auth(const char *scheme, const char *cert, int len,
                    zk_auth **out) {
  zk_auth *a = calloc(1, sizeof *a);
  if (a) a->scheme = strdup(scheme);
  if (a) a->cert = malloc((size_t)len + 1);
  if (!a || !a->scheme || !a->cert) {
    if (a) free(a->scheme);
    if (a) free(a->cert);
    free(a);
    return no_memory("an identity");
  }
  if (len) memcpy(a->cert, cert, (size_t)len);
  a->len = len;
  *out = a;
  return ZKE_OK;
}

/* Refuse the same as a file's engine.  This includes a NUL in the user's name:
 * a server would take the name up to the NUL, and grant the rights of another
 * user. */
static int check_auth(const char *scheme, const char *cert, int len) {
  if (!scheme) return fail(ZKE_BADARGUMENTS, "scheme is NULL");
  if (len < 0 || (len && !cert))
    return fail(ZKE_BADARGUMENTS, "cert of length %d", len);
  size_t size = (size_t)len;
  const char *colon = size ? memchr(cert, ':', size) : NULL;
  size_t user = colon ? (size_t)(colon - cert) : size;
  if (user && memchr(cert, '\0', user))
    return fail(ZKE_BADARGUMENTS, "a NUL in the user's name");
  return ZKE_OK;
}

/* zke_add_auth().  The identity is sent now if there is a connection, and on
 * each later connection before any request.  It is kept even if this call fails
 * later: then the next connection sends it.  So one that is too long for
 * servers is refused here: it would end every connection. */
static int zk_add_auth(zke *h, const char *scheme, const char *cert, int len) {
  op c;
  zk_auth *a = NULL;
  int rc = check_auth(scheme, cert, len);
  if (rc == ZKE_OK) rc = op_enter(&c, h, NULL, 0);
  if (rc != ZKE_OK) return rc;
  rc = check_frame(c.z, strlen(scheme) + (size_t)len + AUTH_FRAME,
                   "an identity");
  if (rc == ZKE_OK) rc = new_auth(scheme, cert, len, &a);
  if (rc != ZKE_OK) return op_end(&c, rc);
  zke_ensemble_add_auth(c.z, a);
  return op_end(&c, await_auth(&c));
}

/* Copy a text, NULL as "", to *at, and move *at past it. */
static const char *append_text(char **at, const char *text) {
  char *copy = *at;
  size_t size = text ? strlen(text) + 1 : 1;
  memcpy(copy, text ? text : "", size);
  *at += size;
  return copy;
}

/* Copy a list of the reply for the caller, in one block.  Texts that are null
 * on the wire become "", so callers need not check for NULL. */
static int copy_acls(zk *z, const zke_acls *from, zke_acls **out) {
  size_t count = from->count > 0 ? (size_t)from->count : 0;
  size_t head = sizeof(zke_acls) + count * sizeof(zke_acl), bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const zke_acl *e = &from->data[i];
    bytes +=
        2 + (e->scheme ? strlen(e->scheme) : 0) + (e->id ? strlen(e->id) : 0);
  }
  zke_acls *list = zke_alloc((zke *)(void *)z, head + bytes);
  if (!list) return no_memory("an ACL");
  zke_acl *to = (zke_acl *)(void *)(list + 1);
  char *at = (char *)list + head;
  list->count = (int)count;
  list->data = to;
  for (size_t i = 0; i < count; i++) {
    const zke_acl *e = &from->data[i];
    to[i].perms = e->perms;
    to[i].scheme = append_text(&at, e->scheme);
    to[i].id = append_text(&at, e->id);
  }
  *out = list;
  return ZKE_OK;
}

/* zke_get_acl(). */
static int zk_get_acl(zke *z, const char *path, zke_acls **acls_out,
                      zke_stat *stat_out) {
  op c;
  zke_jute_acl_response answer = {0};
  int rc = op_begin(&c, z, path, OP_READ);
  if (rc != ZKE_OK) return rc;
  rc = read_path(&c, ZKE_JUTE_GET_ACL, c.whole);
  if (rc == ZKE_OK) rc = op_take(&c, &zke_jute_of_acl_response, &answer);
  if (rc == ZKE_OK && acls_out) rc = copy_acls(c.z, &answer.acl, acls_out);
  if (rc == ZKE_OK && stat_out) *stat_out = answer.stat;
  return op_end(&c, rc);
}

/* zke_set_acl().  A server finds the errors in a list. */
static int zk_set_acl(zke *z, const char *path, int version,
                      const zke_acls *acls, zke_stat *stat_out) {
  op c;
  static const zke_acls none = {0, NULL};
  int rc = op_begin(&c, z, path, OP_CHANGE);
  if (rc != ZKE_OK) return rc;
  zke_jute_set_acl_request r = {c.whole, acls ? *acls : none, version};
  c.r.type = ZKE_JUTE_SET_ACL;
  zke_jute_write(&c.r.body, &zke_jute_of_set_acl_request, &r);
  rc = op_run(&c);
  if (rc == ZKE_OK) rc = take_stat(&c, stat_out);
  return op_end(&c, rc);
}

/* ---- watches ----
 *
 * Only this process knows which watchers an event calls (zk_watch.h); a server
 * has one watch of a kind for each connection and path.  It is set with the
 * first watcher and removed with the last.  A call that fails may leave a watch
 * at the server that no watcher needs; its events are dropped.  It never leaves
 * a watcher without a watch at the server: that one would wait in vain. */

/* As read_done(), for a watch that stays: the server sets it for any path,
 * whether the node exists or not. */
static void add_watch_done(zk_request *r) {
  reading *g = r->context;
  if (r->rc != ZKE_OK) return;
  zke_watcher_put(&g->c.z->watches, g->watch, g->kind);
  g->watch = NULL;
}

/* zke_add_watch().  Setting it again does no harm, so the request is sent again
 * after a lost connection. */
static int zk_add_watch(zke *z, const char *path, int mode, zke_watch_fn fn,
                        void *context) {
  reading g;
  bool recursive = mode == ZKE_WATCH_PERSISTENT_RECURSIVE;
  if (!fn) return fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = op_begin(&g.c, z, path, 0);
  if (rc != ZKE_OK) return rc;
  if (mode != ZKE_WATCH_PERSISTENT && !recursive) {
    return op_end(&g.c,
                  fail(ZKE_MARSHALLINGERROR, "unknown watch mode %d", mode));
  }
  g.kind = recursive ? ZK_WATCH_RECURSIVE : ZK_WATCH_PERSISTENT;
  rc = check_watch(&g.c);
  if (rc != ZKE_OK) return op_end(&g.c, rc);
  g.watch = zke_watcher_new(&g.c.z->watches, path, fn, context);
  if (!g.watch) return op_end(&g.c, no_memory(path));
  zke_jute_add_watch_request r = {g.c.whole, mode};
  g.c.r.type = ZKE_JUTE_ADD_WATCH;
  g.c.r.reads = true;
  g.c.r.done = add_watch_done;
  g.c.r.context = &g;
  zke_jute_write(&g.c.r.body, &zke_jute_of_add_watch_request, &r);
  rc = op_run(&g.c);
  zke_watcher_drop(&g.c.z->watches, g.watch);
  return op_end(&g.c, rc);
}

/* The table for a type of zke_set_watch(); -1: there is none. */
static int watch_kind(int type) {
  if (type == ZKE_WATCH_DATA) return ZK_WATCH_DATA;
  if (type == ZKE_WATCH_EXIST) return ZK_WATCH_EXIST;
  return type == ZKE_WATCH_CHILD ? ZK_WATCH_CHILD : -1;
}

/* ZooKeeper's setWatches with one watch.  A server sends the event that the
 * watch has missed since zxid before its reply, so the watch is entered before
 * the request is sent; otherwise that event would find no watcher.  After a
 * failure it is taken out, unless the pair had such a watch already. */
static int zk_set_watch(zke *z, const char *path, int type, int64_t zxid,
                        zke_watch_fn fn, void *context) {
  op c;
  int kind = watch_kind(type);
  if (!fn) return fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = op_begin(&c, z, path, 0);
  if (rc != ZKE_OK) return rc;
  if (kind < 0)
    return op_end(&c, fail(ZKE_BADARGUMENTS, "unknown watch type %d", type));
  rc = check_watch(&c);
  if (rc != ZKE_OK) return op_end(&c, rc);
  zk_watch *watch = zke_watcher_new(&c.z->watches, path, fn, context);
  if (!watch) return op_end(&c, no_memory(path));
  bool entered =
      zke_watcher_put(&c.z->watches, watch, (enum zk_watch_kind)kind);
  char *one[1] = {c.whole};
  zke_strings none = {0, NULL}, list = {1, one};
  zke_jute_set_watches r = {zxid, kind == ZK_WATCH_DATA ? list : none,
                            kind == ZK_WATCH_EXIST ? list : none,
                            kind == ZK_WATCH_CHILD ? list : none};
  c.r.type = ZKE_JUTE_SET_WATCHES;
  c.r.reads = true;
  zke_jute_write(&c.r.body, &zke_jute_of_set_watches, &r);
  c.z->settings++;
  rc = op_run(&c);
  c.z->settings--;
  if (rc != ZKE_OK && entered)
    zke_watcher_take(&c.z->watches, path, (enum zk_watch_kind)kind, fn,
                     context);
  return op_end(&c, rc);
}

/* Does this handle have such a watch?  The server is not asked: it knows
 * connections, not watchers. */
static int find_watch(const op *c, const zk_watch_query *q) {
  if (q->type < ZKE_WATCH_CHILD || q->type > ZKE_WATCH_ANY)
    return fail(ZKE_BADARGUMENTS, "unknown watch type %d", q->type);
  if (zke_watcher_find(&c->z->watches, q)) return ZKE_OK;
  return fail(ZKE_NOWATCHER, "no such watcher of %s", q->path);
}

/* zke_check_watch(). */
static int zk_check_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                          void *context) {
  op c;
  zk_watch_query q = {path, type, fn, context};
  int rc = op_begin(&c, z, path, 0);
  return rc == ZKE_OK ? op_end(&c, find_watch(&c, &q)) : rc;
}

/* The server's tables that no watcher here needs, apart from the watches that q
 * means; 0: none.  All watchers of the path share a server's watch, so it goes
 * with the last of them. */
static int unneeded(const zk *z, const zk_watch_query *q) {
  bool child = !zke_watcher_needed(&z->watches, q, ZKE_WATCH_CHILD);
  bool data = !zke_watcher_needed(&z->watches, q, ZKE_WATCH_DATA);
  int type = (child ? ZKE_WATCH_CHILD : 0) | (data ? ZKE_WATCH_DATA : 0);
  return type & q->type;
}

/* zke_remove_watch().  Remove watches at the server first, if no other watcher
 * here needs them, and then here.  So if the server cannot be asked they stay,
 * and the caller may try again.  The server's ZKE_NOWATCHER is no failure: the
 * watch has fired there, and its event is on the way. */
static int zk_remove_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                           void *context) {
  op c;
  zk_watch_query q = {path, type, fn, context};
  int rc = op_begin(&c, z, path, 0);
  if (rc != ZKE_OK) return rc;
  rc = find_watch(&c, &q);
  int servers = rc == ZKE_OK ? unneeded(c.z, &q) : 0;
  if (servers) {
    zke_jute_watches_request r = {c.whole, servers};
    c.r.type = ZKE_JUTE_REMOVE_WATCHES;
    c.r.reads = true;
    zke_jute_write(&c.r.body, &zke_jute_of_watches_request, &r);
    rc = op_run(&c);
    if (rc == ZKE_NOWATCHER) rc = ZKE_OK;
  }
  if (rc == ZKE_OK) zke_watcher_remove(&c.z->watches, &q);
  return op_end(&c, rc);
}

/* For a request without a waiting caller: it releases itself when it is over,
 * by a reply, a lost connection or the link's end. */
static void alone_done(zk_request *r) {
  zke_link_request_clear(r);
  free(r);
}

/* Make the server stop sending events of a watch that stays, without waiting
 * for the answer: zke_forget() must not fail or wait for a server.  Without
 * memory, or without a connection, nothing is sent, which does no harm: later
 * events find no watcher, and a new connection sets only the remaining watches.
 */
static void stop_watching(void *arg, const char *path) {
  zk *z = arg;
  char *whole = zke_ensemble_whole(z, path);
  zk_request *r = whole ? calloc(1, sizeof *r) : NULL;
  zke_jute_watches_request body = {whole, ZKE_WATCH_ANY};
  if (r) {
    r->type = ZKE_JUTE_REMOVE_WATCHES;
    r->done = alone_done;
    zke_jute_write(&r->body, &zke_jute_of_watches_request, &body);
  }
  if (r && !r->body.failed && zke_link_is_up(z->link))
    zke_link_submit(z->link, r, zke_ensemble_now());
  else if (r)
    alone_done(r);
  free(whole);
}

/* zke_forget().  The server is told first, while the pair's watches still name
 * the paths, but its answer is not waited for. */
static int zk_forget(zke *h, zke_watch_fn fn, void *context) {
  zk *z = zke_ensemble_of(h);
  if (!fn) return fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  zke_watcher_of_pair(&z->watches, fn, context, stop_watching, z);
  zke_ensemble_kick(z); /* the reader sends the rest if the socket is full */
  zke_ensemble_forget(z, fn, context);
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_call_at().  Times concern only this process: no server is told.  A reader
 * that sleeps for longer is woken to set its time again. */
static int zk_call_at(zke *h, int64_t when_ms, zke_watch_fn fn, void *context) {
  zk *z = zke_ensemble_of(h);
  if (!fn) return fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  if (when_ms < 0) when_ms = 0;
  if (!zke_watcher_alarm(&z->watches, when_ms, fn, context))
    rc = no_memory("an alarm");
  zke_ensemble_kick(z);
  return zke_ensemble_leave(z, rc);
}

/* zke_set_watcher().  The default watcher is read when it is called, so
 * undelivered events go to the new one. */
static int zk_set_watcher(zke *h, zke_watch_fn fn, void *context) {
  zk *z = zke_ensemble_of(h);
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  z->watcher = fn;
  z->watcher_context = context;
  return zke_ensemble_leave(z, ZKE_OK);
}

/* ---- waiting ----
 *
 * Thin: zk_handle.c does the waiting.  Most of these work after the session's
 * end, too, so that a program is told of it.  A function here enters the
 * handle, asks zk_handle.c, and leaves.  Entering does what is due, such as
 * pings, so a program that only polls keeps its session, too. */

/* zke_now(): the monotonic clock, so deadlines do not move with the time of
 * day. */
static int64_t zk_now(zke *z) {
  (void)z;
  return zke_ensemble_now();
}

/* The time of day of this host; a server's is not known. */
static int64_t zk_wall(zke *z) {
  struct timespec t;
  (void)z;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* zke_sleep().  The pause keeps the session alive and dispatches nothing.  It
 * ends early if another thread closes the handle, which would otherwise wait
 * for it; the session's end does not shorten it. */
static int zk_sleep(zke *h, int64_t deadline_ms) {
  zk *z = zke_ensemble_of(h);
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  while (!z->closing && zke_ensemble_now() < deadline_ms)
    zke_ensemble_rest(z, deadline_ms);
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_busy_timeout(): fixed at open, so no lock is needed. */
static int64_t zk_busy_timeout(zke *z) { return zke_ensemble_of(z)->busy_ms; }

/* zke_limit(): a variable of the thread, so no lock is needed. */
static int64_t zk_limit(zke *z, int64_t deadline_ms) {
  return zke_ensemble_limit(zke_ensemble_of(z), deadline_ms);
}

/* zke_fd().  The descriptor stays the same for the handle's life, though the
 * socket changes. */
static int zk_fd(zke *h, int *fd_out) {
  zk *z = zke_ensemble_of(h);
  if (!fd_out) return fail(ZKE_BADARGUMENTS, "fd_out is NULL");
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  *fd_out = z->poller;
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_next_deadline(): also the time of the descriptor's timer. */
static int zk_next_deadline(zke *h, int64_t *deadline_out) {
  zk *z = zke_ensemble_of(h);
  if (!deadline_out) return fail(ZKE_BADARGUMENTS, "deadline_out is NULL");
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  *deadline_out = zke_ensemble_deadline(z);
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_pending(): would a dispatch find work now? */
static int zk_pending(zke *h, int *pending_out) {
  zk *z = zke_ensemble_of(h);
  if (!pending_out) return fail(ZKE_BADARGUMENTS, "pending_out is NULL");
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  *pending_out = zke_ensemble_pending(z);
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_dispatch_to().  After ZKE_FORKED this is a child that was forked in a
 * callback: the mutex and the count of calls are its parent's, so the handle is
 * not left. */
static int zk_dispatch_to(zke *h, int64_t zxid, int *count_out, int *more_out) {
  zk *z = zke_ensemble_of(h);
  int count = 0, more = 0, rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  rc = zke_ensemble_dispatch(z, zxid, &count, &more);
  if (rc == ZKE_FORKED) return rc; /* the handle belongs to the parent */
  if (rc == ZKE_OK && count_out) *count_out = count;
  if (rc == ZKE_OK && more_out) *more_out = more;
  return zke_ensemble_leave(z, rc);
}

/* zke_dispatch(): all events, whatever their zxid. */
static int zk_dispatch(zke *z, int *count_out) {
  return zk_dispatch_to(z, INT64_MAX, count_out, NULL);
}

/* zke_event_zxid(): of the innermost running callback on this thread.  0
 * outside of callbacks, and on other threads, since these are not their events.
 */
static int64_t zk_event_zxid(zke *h) {
  zk *z = zke_ensemble_of(h);
  int64_t zxid = 0;
  if (zke_ensemble_enter(z, ZK_ANY_STATE) != ZKE_OK) return 0;
  if (z->frame && pthread_equal(z->dispatcher, pthread_self()))
    zxid = z->frame->target.zxid;
  zke_ensemble_leave(z, ZKE_OK);
  return zxid;
}

/* zke_turn(): for comparison by zke_wait_turn().  A caller takes it before it
 * looks at what it waits for, so a change in between ends the wait immediately.
 */
static int64_t zk_turn(zke *h) {
  zk *z = zke_ensemble_of(h);
  if (zke_ensemble_enter(z, ZK_ANY_STATE) != ZKE_OK) return 0;
  int64_t turn = z->turn;
  zke_ensemble_leave(z, ZKE_OK);
  return turn;
}

/* zke_wait() and zke_wait_turn().  Only these calls are cancellation points:
 * after any other a program would not know what it has done.  ZKE_FORKED: see
 * zk_dispatch_to(). */
static int zk_wait_turn(zke *h, int64_t turn, int64_t deadline_ms) {
  zk *z = zke_ensemble_of(h);
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  rc = zke_ensemble_wait(z, turn, deadline_ms);
  return rc == ZKE_FORKED ? rc : zke_ensemble_leave(z, rc);
}

/* zke_wake(): end all waits on this handle, on any thread. */
static int zk_wake(zke *h) {
  zk *z = zke_ensemble_of(h);
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  zke_ensemble_turn(z);
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_test_fail(): lost replies without a faulty network. */
static int zk_test_fail(zke *h, int when, int skip) {
  zk *z = zke_ensemble_of(h);
  if (when < 0 || when > ZKE_TEST_FAIL_READ || skip < 0)
    return fail(ZKE_BADARGUMENTS, "when %d, skip %d", when, skip);
  int rc = zke_ensemble_enter(z, 0);
  if (rc != ZKE_OK) return rc;
  z->fail_when = when;
  z->fail_skip = skip;
  return zke_ensemble_leave(z, ZKE_OK);
}

/* ---- sessions ----
 *
 * A session publishes itself by an ephemeral node below /zke-sessions, outside
 * every chroot: "PID STARTED TIMEOUT IDENTITY".  It goes with the session, so a
 * listed session lives, or has died within its timeout.  The node is only a
 * notice.  Locks and ephemerals do not depend on it, so a session that could
 * not publish it works as any other; others then know only its number. */

/* zke_session_id(); works after the session's end, too. */
static int64_t zk_session_id(zke *h) {
  zk *z = zke_ensemble_of(h);
  if (zke_ensemble_enter(z, ZK_ANY_STATE) != ZKE_OK) return 0;
  int64_t id = zke_link_session(z->link);
  zke_ensemble_leave(z, ZKE_OK);
  return id;
}

/* zke_state(), as of the last step. */
static int zk_state(zke *h) {
  zk *z = zke_ensemble_of(h);
  if (zke_ensemble_enter(z, ZK_ANY_STATE) != ZKE_OK) return ZKE_STATE_CLOSED;
  int state = z->state;
  zke_ensemble_leave(z, ZKE_OK);
  return state;
}

/* The path of the node that publishes a session: its number in 16 hexadecimal
 * digits, so names sort as numbers do. */
static void who_path(char *out, size_t size, int64_t session) {
  snprintf(out, size, WHO "/%016" PRIx64, (uint64_t)session);
}

/* Create a node at its whole path, whatever the chroot.  The op's request is
 * used again, so one call may make several. */
static int who_create(op *c, const char *path, const char *text,
                      const zke_acls *acls, int mode) {
  zke_op o;
  zke_op_create(&o, path, text, (int)strlen(text), acls, mode);
  zke_link_request_clear(&c->r);
  c->r = (zk_request){.type = create_type(mode, false)};
  write_create(&c->r.body, path, &o);
  return zke_ensemble_call(c->z, &c->r, path, c->until_ms);
}

/* Publish the session; a failure is ignored.  The node's ACL lets everybody
 * read it and nobody set it.  The directory is made on demand, and is open to
 * all, since each session must be able to make its node in it.  After a lost
 * reply it tries again: if the node was made, that fails with ZKE_NODEEXISTS,
 * which ends the loop. */
static void who_publish(zke *h) {
  op c;
  char path[64], text[512];
  if (op_enter(&c, h, NULL, 0) != ZKE_OK) return;
  zk *z = c.z;
  who_path(path, sizeof path, zke_link_session(z->link));
  snprintf(text, sizeof text, "%lld %lld %lld %s", (long long)z->pid,
           (long long)z->started_ms, (long long)zke_link_timeout(z->link),
           z->identity);
  for (int i = 0; i < WHO_TRIES; i++) {
    int rc = who_create(&c, path, text, ZKE_READ_ACL, ZKE_EPHEMERAL);
    if (rc == ZKE_NONODE)
      who_create(&c, WHO, "", ZKE_OPEN_ACL, ZKE_PERSISTENT);
    else if (rc != ZKE_CONNECTIONLOSS)
      break;
  }
  op_end(&c, ZKE_OK);
}

/* One session, from its node's data. */
typedef struct who {
  int64_t session;
  const char *text; /* NUL-terminated, in the reply */
} who;

/* Parse "PID STARTED TIMEOUT IDENTITY"; returns the identity.  Anybody may have
 * written a node below /zke-sessions, so the text is not trusted: a number that
 * cannot be parsed is 0. */
static const char *who_read(const who *w, zke_session_info *out) {
  char *at = (char *)(uintptr_t)(w->text ? w->text : "");
  *out = (zke_session_info){.id = w->session, .identity = "", .alive = 1};
  out->pid = strtoll(at, &at, 10);
  out->started_ms = strtoll(at, &at, 10);
  out->lease_ms = strtoll(at, &at, 10);
  return *at == ' ' ? at + 1 : "";
}

/* Make the list for the caller, in one block with its texts. who_read() is
 * called twice, to measure and then to fill. */
static int who_list(zk *z, const who *all, size_t count,
                    zke_session_list **out) {
  size_t head = sizeof(zke_session_list) + count * sizeof(zke_session_info);
  size_t bytes = 0;
  zke_session_info one;
  for (size_t i = 0; i < count; i++)
    bytes += strlen(who_read(&all[i], &one)) + 1;
  zke_session_list *list = zke_alloc((zke *)(void *)z, head + bytes);
  if (!list) return no_memory("sessions");
  zke_session_info *info = (zke_session_info *)(void *)(list + 1);
  char *at = (char *)list + head;
  list->count = (int)count;
  list->data = info;
  for (size_t i = 0; i < count; i++) {
    const char *text = who_read(&all[i], &info[i]);
    size_t size = strlen(text) + 1;
    info[i].identity = memcpy(at, text, size);
    at += size;
  }
  *out = list;
  return ZKE_OK;
}

/* The list for this handle's own session.  It asks no server, so it is right
 * even if the session could not publish its node. */
static int who_own(zk *z, zke_session_list **out) {
  char text[512];
  snprintf(text, sizeof text, "%lld %lld %lld %s", (long long)z->pid,
           (long long)z->started_ms, (long long)zke_link_timeout(z->link),
           z->identity);
  who own = {zke_link_session(z->link), text};
  return who_list(z, &own, 1, out);
}

/* The text of a node's data, NUL-terminated in place; NULL if the reply cannot
 * be parsed.  The reply's Stat follows the data and has been read by then, so
 * its first byte may be overwritten. */
static const char *who_text(op *c, zke_jute_get_data_response *answer) {
  if (op_take(c, &zke_jute_of_get_data_response, answer) != ZKE_OK) return NULL;
  if (answer->data.len < 0) return "";
  char *text = c->r.frame + (answer->data.data - c->r.frame);
  text[answer->data.len] = '\0';
  return text;
}

/* Read one session's node.  The text stays in the op's reply, so it is valid
 * only until the next request of the op. */
static int who_ask(op *c, int64_t session, who *out) {
  char path[64];
  zke_jute_get_data_response answer;
  who_path(path, sizeof path, session);
  zke_jute_read_request r = {path, 0};
  zke_link_request_clear(&c->r);
  c->r = (zk_request){.type = ZKE_JUTE_GET_DATA, .reads = true};
  op_sync(c, path);
  zke_jute_write(&c->r.body, &zke_jute_of_read_request, &r);
  int rc = zke_ensemble_call(c->z, &c->r, path, c->until_ms);
  if (rc != ZKE_OK) return rc;
  *out = (who){session, who_text(c, &answer)};
  return out->text ? ZKE_OK : malformed(c);
}

/* Find one session: this one is known here, others by their nodes. */
static int who_find(op *c, int64_t session, zke_session_list **out) {
  who one;
  if (session == zke_link_session(c->z->link)) return who_own(c->z, out);
  int rc = who_ask(c, session, &one);
  if (rc == ZKE_OK) rc = who_list(c->z, &one, 1, out);
  if (rc == ZKE_NONODE)
    rc = fail(rc, "there is no session 0x%" PRIx64, (uint64_t)session);
  return rc;
}

/* Read the node of each name, and copy its text.  A node that has gone or may
 * not be read is left out: anybody may make a node there. */
static int who_ask_all(op *c, const zke_strings *names, who *all,
                       size_t *count) {
  for (int i = 0; i < names->count; i++) {
    int64_t id = (int64_t)strtoull(names->data[i], NULL, 16);
    int rc = who_ask(c, id, &all[*count]);
    if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) continue;
    if (rc != ZKE_OK) return rc;
    const char *said = all[*count].text;
    all[*count].text =
        copy_bytes(c->z, said ? said : "", said ? strlen(said) : 0);
    if (!all[*count].text) return no_memory("sessions");
    ++*count;
  }
  return ZKE_OK;
}

/* The names of the published sessions; the caller frees the list with
 * zke_free().  If no session was ever published there is no directory, and the
 * list is empty. */
static int who_names(op *c, zke_strings **out) {
  zke_jute_children2_response answer;
  zke_jute_read_request r = {WHO, 0};
  c->r.type = ZKE_JUTE_GET_CHILDREN2;
  op_sync(c, WHO);
  zke_jute_write(&c->r.body, &zke_jute_of_read_request, &r);
  int rc = zke_ensemble_call(c->z, &c->r, WHO, c->until_ms);
  if (rc == ZKE_OK) rc = op_take(c, &zke_jute_of_children2_response, &answer);
  if (rc == ZKE_NONODE) { /* no session was ever published */
    answer.children = (zke_strings){0, NULL};
    rc = ZKE_OK;
  }
  if (rc != ZKE_OK) return rc;
  *out = copy_strings(c->z, &answer.children, keep_all, NULL);
  return *out ? ZKE_OK : no_memory("sessions");
}

/* All sessions: one request for the names, and one for each of them.  This is
 * no snapshot: a session that ends in between is left out, one that begins may
 * be missing. */
static int who_find_all(op *c, zke_session_list **out) {
  zke_strings *names = NULL;
  size_t count = 0;
  int rc = who_names(c, &names);
  if (rc != ZKE_OK) return rc;
  who *all = calloc((size_t)names->count + 1, sizeof *all);
  if (!all) {
    zke_free(names);
    return no_memory("sessions");
  }
  rc = who_ask_all(c, names, all, &count);
  if (rc == ZKE_OK) rc = who_list(c->z, all, count, out);
  for (size_t i = 0; i < count; i++) zke_free((char *)(uintptr_t)all[i].text);
  free(all);
  zke_free(names);
  return rc;
}

/* zke_sessions(), of one session or of all. */
static int zk_sessions(zke *h, int64_t session, zke_session_list **list_out) {
  op c;
  if (!list_out) return fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = op_enter(&c, h, NULL, OP_READ);
  if (rc != ZKE_OK) return rc;
  if (session == -1)
    rc = who_find_all(&c, list_out);
  else
    rc = who_find(&c, session, list_out);
  return op_end(&c, rc);
}

/* zke_password().  Works after the session's end, too, as zke_session_id()
 * does. */
static int zk_password(zke *h, unsigned char out[16]) {
  zk *z = zke_ensemble_of(h);
  if (!out) return fail(ZKE_BADARGUMENTS, "out is NULL");
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  memcpy(out, zke_link_password(z->link), 16);
  return zke_ensemble_leave(z, ZKE_OK);
}

/* zke_touch().  Entering the handle is enough: it does what is due, including a
 * ping. */
static int zk_touch(zke *h) {
  zk *z = zke_ensemble_of(h);
  int rc = zke_ensemble_enter(z, 0);
  return rc == ZKE_OK ? zke_ensemble_leave(z, ZKE_OK) : rc;
}

/* ---- opening and closing ----
 *
 * Opening a handle sets up its options, link, first connection, its node, its
 * thread.  The process keeps a list of its handles: only a session's own handle
 * ends it, even if another one asks for that.  A thread that holds the list's
 * mutex takes no handle's: a handle may be busy for as long as a resolver
 * takes, and each fork() of the process waits for the list. */

/* The open handles of this process, for zke_expire(): only a session's own
 * handle can end it, as its password is not published. */
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static zk *open_first;

/* Take and release the list's mutex; also called by pthread_atfork().  A fork
 * takes the mutex before, so it is free in the child. */
static void open_lock(void) { pthread_mutex_lock(&open_mutex); }
static void open_unlock(void) { pthread_mutex_unlock(&open_mutex); }

/* Make forks take the list's mutex, so no child inherits it from a thread that
 * the child does not have.  pthread_once() calls it, once for the process. */
static void open_prepare(void) {
  pthread_atfork(open_lock, open_unlock, open_unlock);
}

/* A handle is in the list from its opening to its close. */
static void open_enter(zk *z) {
  pthread_once(&open_once, open_prepare);
  open_lock();
  z->next_open = open_first;
  open_first = z;
  open_unlock();
}

/* Take a handle out of the list before it is closed, so zke_expire() of another
 * thread no longer finds it.  A handle that is not in the list is no error. */
static void open_leave(const zk *z) {
  open_lock();
  zk **at = &open_first;
  while (*at && *at != z) at = &(*at)->next_open;
  if (*at) *at = z->next_open;
  open_unlock();
}

/* A cleanup handler, for a thread that may be cancelled. */
static void open_unpin(void *arg) { zke_ensemble_unpin(arg); }

/* Does a name have this server? */
static bool has_server(const zk_name *name, const zk_server *server) {
  for (int i = 0; i < name->count; i++) {
    if (!strcmp(name->servers[i].host, server->host) &&
        !strcmp(name->servers[i].port, server->port))
      return true;
  }
  return false;
}

/* Do two names have the same servers, in any order? */
static bool same_servers(const zk_name *one, const zk_name *other) {
  bool same = one->count == other->count;
  for (int i = 0; same && i < one->count; i++)
    same = has_server(other, &one->servers[i]);
  return same;
}

/* The handle of a session that is open in this process, pinned: it is not
 * released before open_unpin().  NULL: there is none.  Two ensembles may have
 * sessions of the same number: `zke serve` counts the sessions of each file
 * from the same one.  So the caller's own session is the caller's, and any
 * other one must be on the caller's servers. */
static zk *open_pin_session(zk *caller, int64_t session) {
  open_lock();
  bool own = zke_link_session(caller->link) == session;
  zk *z = own ? caller : open_first;
  while (z && !own &&
         (zke_link_session(z->link) != session ||
          !same_servers(&z->name, &caller->name)))
    z = z->next_open;
  if (z) zke_ensemble_pin(z);
  open_unlock();
  return z;
}

/* The program's name, as on a file. */
static char *default_identity(void) {
  return strdup(program_invocation_short_name);
}

/* The chroot of the name, followed by that of the options. */
static int set_chroot(zk *z, const char *more) {
  const char *first = z->name.chroot;
  if (!more) more = "";
  if (*more && !zke_ensemble_path_check(more, false))
    return fail(ZKE_BADARGUMENTS, "malformed chroot %s", more);
  if (!strcmp(more, "/")) more = "";
  z->chroot_len = strlen(first) + strlen(more);
  z->chroot = malloc(z->chroot_len + 1);
  if (!z->chroot) return no_memory("a chroot");
  memcpy(z->chroot, first, strlen(first));
  memcpy(z->chroot + strlen(first), more, strlen(more) + 1);
  return ZKE_OK;
}

/* The session's timeout: the name's, or the options'; their lease means the
 * same on a file. */
static int64_t option_timeout(const zk *z, const zke_options *o) {
  int64_t timeout = z->name.timeout_ms;
  if (!timeout) timeout = o->lease_ms ? o->lease_ms : o->timeout_ms;
  if (!timeout) timeout = DEFAULT_TIMEOUT;
  return timeout < INT32_MAX ? timeout : INT32_MAX;
}

/* Refuse negative options, as every engine does, and a busy timeout that a file
 * refuses: it is used for deadlines, which must not overflow.  ZKE_AT_ONCE is
 * the only valid negative value. */
static int check_options(const zke_options *o) {
  const struct {
    const char *name;
    int64_t value, least, most;
  } numbers[] = {
      {"data_limit", o->data_limit, 0, INT_MAX},
      {"event_limit", o->event_limit, 0, INT_MAX},
      {"read_limit", o->read_limit, 0, INT64_MAX},
      {"lease_ms", o->lease_ms, 0, INT64_MAX},
      {"timeout_ms", o->timeout_ms, 0, INT64_MAX},
      {"busy_timeout_ms", o->busy_timeout_ms, ZKE_AT_ONCE, BUSY_MOST}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (numbers[i].value >= numbers[i].least &&
        numbers[i].value <= numbers[i].most)
      continue;
    return fail(ZKE_BADARGUMENTS,
                "options.%s is %" PRId64 ", not %" PRId64 " to %" PRId64,
                numbers[i].name, numbers[i].value, numbers[i].least,
                numbers[i].most);
  }
  return ZKE_OK;
}

/* Set the handle's members from the name and the options.  Texts are copied,
 * since the caller may release them.  zke_ensemble_free() releases the copies,
 * even after a failure here. */
static int set_options(zk *z, const char *name, const zke_options *o) {
  int rc = check_options(o);
  if (rc == ZKE_OK) rc = zke_ensemble_name_parse(name, &z->name);
  if (rc == ZKE_OK) rc = set_chroot(z, o->chroot);
  if (rc != ZKE_OK) return rc;
  z->base.allocator = o->allocator;
  z->data_limit = o->data_limit ? o->data_limit : DEFAULT_DATA;
  z->busy_ms = o->busy_timeout_ms ? o->busy_timeout_ms : DEFAULT_BUSY;
  if (o->busy_timeout_ms == ZKE_AT_ONCE) z->busy_ms = 0;
  z->readonly = (o->flags & ZKE_OPEN_READONLY) != 0;
  z->log = o->log;
  z->log_context = o->log_context;
  z->watcher = o->watcher;
  z->watcher_context = o->watcher_context;
  z->started_ms = zk_wall(NULL);
  zke_watchers_init(&z->watches,
                    o->event_limit ? o->event_limit : DEFAULT_EVENTS);
  z->text = strdup(name);
  z->identity = o->identity ? strdup(o->identity) : default_identity();
  return z->text && z->identity ? ZKE_OK : no_memory(name);
}

/* Wait for the first connection, for at most the busy timeout.  A handle with
 * ZKE_AT_ONCE waits for the default time, only here: without a session there is
 * no handle.  If the servers do not know a session to be resumed, it is
 * ZKE_SESSIONEXPIRED without further waiting. */
static int await_connection(zk *z) {
  int64_t until = zke_ensemble_until(z);
  if (until < zke_ensemble_now() + DEFAULT_BUSY && !z->busy_ms)
    until = zke_ensemble_now() + DEFAULT_BUSY;
  int rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  while (z->state == ZKE_STATE_CONNECTING && zke_ensemble_now() < until)
    zke_ensemble_rest(z, until);
  if (z->state == ZKE_STATE_EXPIRED) {
    rc = fail(ZKE_SESSIONEXPIRED, "%s has no such session", z->text);
  } else if (z->state != ZKE_STATE_CONNECTED) {
    rc =
        fail(ZKE_OPERATIONTIMEOUT, "no server of %s could be reached", z->text);
  }
  return zke_ensemble_leave(z, rc);
}

/* ZKE_OPEN_EXISTING: refuse to open if the node above the program's data does
 * not exist. */
static int await_chroot(zk *z) {
  int rc = zk_exists((zke *)(void *)z, "/", NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  return fail(ZKE_CANTOPEN, "%s has no znode %s", z->text, z->chroot);
}

/* A session to resume, or NULL for a new one. */
typedef struct taken {
  int64_t session;
  const unsigned char *password;
} taken;

/* Open a handle: its options, its link, the first connection, its helper
 * thread.  *z_out is NULL until the handle is complete.  Until open_enter() no
 * other thread knows it.  t: a session to resume, which is published already;
 * so only a new session publishes its node, and a read-only handle, which
 * changes nothing, never does.  If the opening fails, a new session ends, since
 * nobody uses it; one that was to be resumed lives on, with its nodes. */
static int open_handle(const zke_engine *engine, const char *name,
                       const zke_options *o, const taken *t, zke **z_out) {
  zk *z = zke_ensemble_new();
  *z_out = NULL;
  if (!z) {
    return fail(errno == ENOMEM ? ZKE_NOMEM : ZKE_SYSTEMERROR, "%s: %s", name,
                strerror(errno));
  }
  z->base.engine = engine;
  int rc = set_options(z, name, o);
  if (rc == ZKE_OK)
    rc = zke_ensemble_connect(z, option_timeout(z, o), t ? t->session : 0,
                              t ? t->password : NULL);
  if (rc != ZKE_OK) {
    zke_ensemble_free(z);
    return rc;
  }
  rc = await_connection(z);
  if (rc == ZKE_OK && o->flags & ZKE_OPEN_EXISTING) rc = await_chroot(z);
  if (rc == ZKE_OK && z->name.thread) rc = zke_ensemble_help(z);
  if (rc != ZKE_OK) {
    zke_ensemble_close(z, t != NULL);
    return rc;
  }
  open_enter(z);
  *z_out = (zke *)(void *)z;
  if (!t && !z->readonly) who_publish(*z_out);
  return ZKE_OK;
}

/* zke_open().  Cancellation of the thread is held off to the end, so the caller
 * gets its handle, or its failure: otherwise a session without an owner would
 * remain. */
static int zk_open(const zke_engine *engine, const char *name,
                   const zke_options *options, zke **z_out) {
  zke_ensemble_cancel_off();
  int rc = open_handle(engine, name, options, NULL, z_out);
  zke_ensemble_cancel_back();
  return rc;
}

/* The timeout of a session to be resumed, from its node; 0: not known.  A
 * server gives a session the timeout of the latest greeting, so a caller that
 * asks for none must ask for the one the session has.  The handle has been
 * entered.  If it has no connection, there is no wait for one. */
static int64_t kept_timeout(zk *z, int64_t session) {
  op c = {.z = z, .until_ms = zke_ensemble_now()};
  zke_session_info info = {.lease_ms = 0};
  who one;
  if (session == zke_link_session(z->link)) return zke_link_timeout(z->link);
  if (z->state != ZKE_STATE_CONNECTED) return 0;
  if (who_ask(&c, session, &one) == ZKE_OK) who_read(&one, &info);
  zke_link_request_clear(&c.r);
  return info.lease_ms > 0 ? info.lease_ms : 0;
}

/* Open another session on the same ensemble.  Name, data limit, busy timeout,
 * allocator and logger are those of z.  They are copied under z's mutex, which
 * is released before the wait for the connection: so z's other calls continue.
 * Cancellation is held off from before the mutex is released, as in zk_open().
 */
static int open_beside(zke *h, const zke_options *given, const taken *t,
                       zke **z_out) {
  zk *z = zke_ensemble_of(h);
  zke_options o;
  *z_out = NULL;
  int rc = zke_take_options(given, &o, sizeof o, "zke_options");
  if (rc == ZKE_OK) rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  o.allocator = z->base.allocator;
  o.log = z->log;
  o.log_context = z->log_context;
  o.data_limit = z->data_limit;
  o.busy_timeout_ms = z->busy_ms ? z->busy_ms : ZKE_AT_ONCE;
  if (t && !o.timeout_ms && !o.lease_ms)
    o.timeout_ms = kept_timeout(z, t->session);
  char *name = strdup(z->text);
  const zke_engine *engine = z->base.engine;
  zke_ensemble_cancel_off();
  zke_ensemble_leave(z, ZKE_OK);
  rc = name ? open_handle(engine, name, &o, t, z_out) : no_memory("a name");
  free(name);
  zke_ensemble_cancel_back();
  return rc;
}

/* zke_open_session(): a new connection and session. */
static int zk_open_session(zke *z, const zke_options *options, zke **z_out) {
  if (!z_out) return fail(ZKE_BADARGUMENTS, "z_out is NULL");
  return open_beside(z, options, NULL, z_out);
}

/* zke_attach().  Only missing arguments are refused here; the server compares
 * the password. */
static int zk_attach(zke *z, int64_t session, const unsigned char password[16],
                     const zke_options *options, zke **z_out) {
  taken t = {session, password};
  if (!z_out) return fail(ZKE_BADARGUMENTS, "z_out is NULL");
  *z_out = NULL;
  if (!password || !session)
    return fail(ZKE_BADARGUMENTS, "no session, or no password");
  return open_beside(z, options, &t, z_out);
}

/* zke_close() and zke_detach().  The handle leaves the list before it closes.
 * In a forked child the close fails, and its copy of the list does not change.
 * ZKE_MISUSE: this is a callback of the handle, which stays open, and so goes
 * back into the list. */
static int close_handle(zke *h, bool keep) {
  zk *z = zke_ensemble_of(h);
  if (z->pid != getpid()) return zke_ensemble_close(z, keep);
  open_leave(z);
  int rc = zke_ensemble_close(z, keep);
  if (rc == ZKE_MISUSE) open_enter(z);
  return rc;
}

/* zke_close(): the session ends, with its ephemerals. */
static int zk_close(zke *z) { return close_handle(z, false); }
/* zke_detach(): only the connection ends.  The session lives on for its
 * timeout.
 */
static int zk_detach(zke *z) { return close_handle(z, true); }

/* End the session of a handle that was entered: its own connection sends the
 * close.  Another connection would have to resume the session first, and the
 * handle's own one would take it back.  If the session has expired by then,
 * that is a success. */
static int expire_entered(zk *z) {
  zk_request r = {.type = ZKE_JUTE_CLOSE};
  if (z->state == ZKE_STATE_EXPIRED)
    return fail(ZKE_NONODE, "the session has ended");
  int rc = zke_ensemble_call(z, &r, "the session", zke_ensemble_until(z));
  zke_link_request_clear(&r);
  if (rc != ZKE_OK && rc != ZKE_SESSIONEXPIRED) return rc;
  zke_ensemble_end(z, ZKE_STATE_EXPIRED);
  return ZKE_OK;
}

/* A session of another process, or of a handle with other servers in its name,
 * can be looked up, to tell ZKE_NONODE from ZKE_UNIMPLEMENTED, but not ended:
 * that takes its password. */
static int expire_foreign(zke *h, int64_t session) {
  op c;
  zke_session_list *list = NULL;
  int rc = op_enter(&c, h, NULL, OP_READ);
  if (rc != ZKE_OK) return rc;
  rc = op_end(&c, who_find(&c, session, &list));
  zke_free(list);
  if (rc != ZKE_OK) return rc;
  return fail(ZKE_UNIMPLEMENTED,
              "a session of no handle here with these servers: only its own "
              "process can end it");
}

/* A session of this process is ended by its handle, if the caller's handle can
 * be used. */
static int expire_own(zk *caller, zk *z) {
  int rc = zke_ensemble_enter(caller, 0);
  if (rc != ZKE_OK) return rc;
  zke_ensemble_leave(caller, ZKE_OK);
  rc = zke_ensemble_enter(z, ZK_ANY_STATE);
  return rc == ZKE_OK ? zke_ensemble_leave(z, expire_entered(z)) : rc;
}

/* The thread may be cancelled while it waits for the server's answer. */
static int expire_pinned(zk *caller, zk *z) {
  int rc;
  pthread_cleanup_push(open_unpin, z);
  rc = expire_own(caller, z);
  pthread_cleanup_pop(1);
  return rc;
}

/* zke_expire(). */
static int zk_expire(zke *h, int64_t session) {
  zk *caller = zke_ensemble_of(h);
  zk *z = open_pin_session(caller, session);
  return z ? expire_pinned(caller, z) : expire_foreign(h, session);
}

/* ---- the table ---- */

/* Missing members are ZKE_UNIMPLEMENTED: zookeeper.h says what an ensemble
 * cannot do. */
const zke_engine zke_zookeeper = {
    .size = sizeof(zke_engine),
    .prefix = ZK_NAME_PREFIX,
    .open = zk_open,
    .open_session = zk_open_session,
    .attach = zk_attach,
    .detach = zk_detach,
    .password = zk_password,
    .touch = zk_touch,
    .close = zk_close,
    .session_id = zk_session_id,
    .state = zk_state,
    .expire = zk_expire,
    .create = zk_create,
    .create_ttl = zk_create_ttl,
    .remove = zk_remove,
    .discard = zk_discard_node,
    .exists = zk_exists,
    .get = zk_get,
    .set = zk_set,
    .children = zk_children,
    .count = zk_count,
    .ephemerals = zk_ephemerals,
    .sync = zk_sync,
    .multi = zk_multi,
    .multi_read = zk_multi_read,
    .add_auth = zk_add_auth,
    .get_acl = zk_get_acl,
    .set_acl = zk_set_acl,
    .add_watch = zk_add_watch,
    .set_watch = zk_set_watch,
    .check_watch = zk_check_watch,
    .remove_watch = zk_remove_watch,
    .forget = zk_forget,
    .call_at = zk_call_at,
    .set_watcher = zk_set_watcher,
    .now = zk_now,
    .wall = zk_wall,
    .sleep = zk_sleep,
    .busy_timeout = zk_busy_timeout,
    .limit = zk_limit,
    .fd = zk_fd,
    .next_deadline = zk_next_deadline,
    .pending = zk_pending,
    .dispatch = zk_dispatch,
    .dispatch_to = zk_dispatch_to,
    .event_zxid = zk_event_zxid,
    .turn = zk_turn,
    .wait_turn = zk_wait_turn,
    .wake = zk_wake,
    .sessions = zk_sessions,
    .test_fail = zk_test_fail,
};
