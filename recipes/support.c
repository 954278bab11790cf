/* support.c - what the recipes have in common
 *
 * CONTENTS, in layers; a function calls its own section and those above.
 *
 *   text_      small strings
 *   retry_     again after a lost reply; paths
 *   znode_     places, protected creation, guaranteed deletion, entries
 *   recipe_    the object: mutex, notes for the listener, waiting
 *   line_      a place in a line, deadlocks, parties
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getentropy */
#endif

#include "support.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* ======================================================================
 * text_
 * ==================================================================== */

char *zke_recipe_copy(zke *z, const char *text, size_t len) {
  char *copy = zke_alloc(z, len + 1);
  if (copy && len) memcpy(copy, text, len);
  return copy;
}

/* The part of a path behind its last slash. */
static const char *text_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

bool zke_recipe_read(char **at, const char *word, int base,
                     int64_t *number_out) {
  size_t len = strlen(word);
  if (strncmp(*at, word, len) != 0) return false;
  char *start = *at + len, *end = start;
  if (!isxdigit((unsigned char)start[base == 10 && *start == '-']))
    return false;
  errno = 0;
  int64_t number = base == 16 ? (int64_t)strtoull(start, &end, 16)
                              : (int64_t)strtoll(start, &end, 10);
  if (errno != 0 || end == start) return false;
  *at = end;
  *number_out = number;
  return true;
}

char *zke_recipe_path(zke *z, const char *directory, const char *name) {
  size_t size = strlen(directory) + strlen(name) + 2;
  char *path = zke_alloc(z, size);
  if (path) snprintf(path, size, "%s/%s", directory, name);
  return path;
}

void zke_recipe_keep(zke_sentence *kept) {
  snprintf(kept->text, sizeof kept->text, "%s", zke_errmsg());
}

void zke_recipe_when(int64_t ms, char text[ZKE_RECIPE_WHEN]) {
  struct tm utc;
  time_t seconds = (time_t)(ms / 1000);
  if (!gmtime_r(&seconds, &utc) ||
      !strftime(text, ZKE_RECIPE_WHEN, "%Y-%m-%dT%H:%M:%SZ", &utc))
    snprintf(text, ZKE_RECIPE_WHEN, "%" PRId64 " ms", ms);
}

int zke_recipe_sign(zke *z, const char *before, const void *data, int len,
                    char **text_out, int *len_out) {
  zke_session_list *who = NULL;
  int rc = zke_session(z, zke_session_id(z), &who);
  if (rc != ZKE_OK) return rc;
  size_t room = strlen(before) + strlen(who->data[0].identity) + 32;
  char *text = zke_alloc(z, room + (size_t)len);
  if (text) {
    int head = snprintf(text, room, "%s%" PRId64 " %s", before,
                        who->data[0].pid, who->data[0].identity);
    for (char *p = text; *p; p++) {
      if (*p == '\n') *p = ' ';
    }
    text[head++] = '\n';
    if (len) memcpy(text + head, data, (size_t)len);
    *text_out = text;
    *len_out = head + len;
  }
  zke_free(who);
  return text ? ZKE_OK : ZKE_NOMEM; /* zke_alloc() has said it */
}

/* ======================================================================
 * retry_
 * ==================================================================== */

enum { RETRY_PAUSE_MS = 5 };

static bool retry_is_due(int rc) {
  return rc == ZKE_CONNECTIONLOSS || rc == ZKE_OPERATIONTIMEOUT;
}

/* A time after so many ms; ZKE_FOREVER where that never comes. */
static int64_t retry_after(zke *z, int64_t ms) {
  int64_t now = zke_now(z);
  return ms < ZKE_FOREVER - now ? now + ms : ZKE_FOREVER;
}

static int64_t retry_later(int64_t a, int64_t b) { return a > b ? a : b; }

/* Limit this thread's calls to a deadline, as far as they have no earlier limit
 * already; one that has passed leaves some time all the same.  0 is none.
 * Returns the limit before, to be given back to zke_limit(). */
static int64_t retry_limit(zke *z, int64_t deadline_ms) {
  int64_t was = zke_limit(z, ZKE_FOREVER), until = was;
  if (deadline_ms > 0) {
    int64_t end = retry_later(deadline_ms, retry_after(z, ZKE_GRACE_MS));
    until = end < was ? end : was;
  }
  zke_limit(z, until);
  return was;
}

/* The limit of a call that was not given one: what it may wait for others as a
 * whole. */
static int64_t retry_patience(zke *z) {
  return retry_after(z, retry_later(zke_busy_timeout(z), ZKE_GRACE_MS));
}

/* The end of what this thread's call has beyond its deadline, for all that it
 * cleans up together: ms; 0: not asked for yet; -1: it is in no call. */
static _Thread_local int64_t retry_grace_end = -1;

/* Begin a call of its own: its grace has not begun.  Returns what to give back
 * to retry_grace_back(). */
static int64_t retry_grace_begin(void) {
  int64_t was = retry_grace_end;
  retry_grace_end = 0;
  return was;
}

static void retry_grace_back(int64_t was) { retry_grace_end = was; }

/* A grace from now on, but one for the whole call. */
static int64_t retry_grace(zke *z) {
  if (retry_grace_end > 0) return retry_grace_end;
  int64_t end = retry_after(z, ZKE_GRACE_MS);
  if (retry_grace_end == 0) retry_grace_end = end;
  return end;
}

int zke_retry(zke *z, zke_retry_fn fn, void *arg, int64_t deadline_ms) {
  int64_t limit = retry_limit(z, deadline_ms);
  int64_t end = deadline_ms < limit ? deadline_ms : limit;
  int rc = fn(z, arg);
  for (int i = 1; i <= ZKE_RETRIES && retry_is_due(rc); i++) {
    int64_t next = zke_now(z) + i * RETRY_PAUSE_MS;
    if (end <= next) break;
    zke_sleep(z, next);
    rc = fn(z, arg);
  }
  zke_limit(z, limit);
  return rc;
}

typedef struct retry_node {
  const char *path;
  const char *data;
  int len, mode;
} retry_node;

static int retry_create(zke *z, void *arg) {
  const retry_node *n = arg;
  int rc = zke_create(z, n->path, n->data, n->len, ZKE_OPEN_ACL, n->mode, NULL,
                      NULL);
  return rc == ZKE_NODEEXISTS ? ZKE_OK : rc;
}

/* Create a node and what is missing above it; existing is fine. */
static int retry_create_all(zke *z, const retry_node *node,
                            int64_t deadline_ms) {
  retry_node n = *node;
  int rc = zke_retry(z, retry_create, &n, deadline_ms);
  size_t len = strlen(node->path);
  char *path = rc == ZKE_NONODE ? zke_recipe_copy(z, node->path, len) : NULL;
  if (rc != ZKE_NONODE) return rc;
  if (!path) return ZKE_NOMEM;
  n.path = path;
  n.data = "";
  n.len = 0;
  rc = ZKE_OK;
  for (char *at = strchr(path + 1, '/'); at && rc == ZKE_OK;
       at = strchr(at + 1, '/')) {
    *at = '\0';
    rc = zke_retry(z, retry_create, &n, deadline_ms);
    *at = '/';
  }
  n.data = node->data;
  n.len = node->len;
  if (rc == ZKE_OK) rc = zke_retry(z, retry_create, &n, deadline_ms);
  zke_free(path);
  return rc;
}

/* A container may be removed while it is being used for the first time. */
static int retry_ensure(zke *z, const retry_node *n, int64_t deadline_ms) {
  int rc = ZKE_NONODE;
  for (int i = 0; i < ZKE_RETRIES && rc == ZKE_NONODE; i++)
    rc = retry_create_all(z, n, deadline_ms);
  return rc;
}

int zke_ensure_path(zke *z, const char *path, int mode, int64_t deadline_ms) {
  retry_node n = {path, "", 0, mode};
  if (!path) return zke_recipe_fail(ZKE_BADARGUMENTS, "the path is NULL");
  return retry_ensure(z, &n, deadline_ms);
}

static int retry_multi_rc(zke *z, int rc) {
  if (rc != ZKE_MARSHALLINGERROR) return rc;
  int state = zke_state(z);
  bool ended = state == ZKE_STATE_EXPIRED || state == ZKE_STATE_AUTH_FAILED;
  return ended ? ZKE_INVALIDSTATE : rc;
}

int zke_recipe_multi(zke *z, const zke_op *ops, int count,
                     zke_op_result *results) {
  return retry_multi_rc(z, zke_multi(z, ops, count, results));
}

int zke_recipe_multi_read(zke *z, const zke_op *ops, int count,
                          zke_op_result *results) {
  return retry_multi_rc(z, zke_multi_read(z, ops, count, results));
}

/* ======================================================================
 * znode_
 * ==================================================================== */

#define ZNODE_MARK "zkembed "

typedef struct znode_place {
  const char *path, *kind, *more;
  int mode;
} znode_place;

/* "zkembed lock\nlimit 3\n" in one block. */
static char *znode_place_text(zke *z, const znode_place *p) {
  const char *more = p->more ? p->more : "";
  size_t size = strlen(ZNODE_MARK) + strlen(p->kind) + strlen(more) + 2;
  char *text = zke_alloc(z, size);
  if (text) snprintf(text, size, ZNODE_MARK "%s\n%s", p->kind, more);
  return text;
}

/* Fail, naming what a place is used for. */
static int znode_other_kind(const znode_place *p, const char *data) {
  size_t mark = strlen(ZNODE_MARK);
  if (strncmp(data, ZNODE_MARK, mark) != 0) {
    return zke_recipe_fail(ZKE_OTHERKIND, "%s has data of its own: it is no %s",
                           p->path, p->kind);
  }
  return zke_recipe_fail(ZKE_OTHERKIND, "%s is a %.*s, not a %s", p->path,
                         (int)strcspn(data + mark, "\n"), data + mark, p->kind);
}

/* Does the data say that it is ours?  ZKE_NODEEXISTS: it says nothing. */
static int znode_compare(const znode_place *p, const char *data, int len) {
  size_t mark = strlen(ZNODE_MARK), kind = strlen(p->kind);
  if (len <= 0) return ZKE_NODEEXISTS;
  if (strncmp(data, ZNODE_MARK, mark) == 0 &&
      strncmp(data + mark, p->kind, kind) == 0 &&
      (data[mark + kind] == '\n' || data[mark + kind] == '\0')) {
    return ZKE_OK;
  }
  return znode_other_kind(p, data);
}

/* One look at a place: make it, take it over, or see what it is. */
static int znode_see_to(zke *z, void *arg) {
  const znode_place *p = arg;
  char *data = NULL, *text;
  int len;
  zke_stat stat;
  int rc = zke_get(z, p->path, NULL, NULL, &data, &len, &stat);
  if (rc == ZKE_OK) rc = znode_compare(p, data, len);
  zke_free(data);
  if (rc != ZKE_NONODE && rc != ZKE_NODEEXISTS) return rc;
  bool missing = rc == ZKE_NONODE;
  text = znode_place_text(z, p);
  if (!text) return ZKE_NOMEM;
  if (!missing) {
    rc = zke_set(z, p->path, text, (int)strlen(text), stat.version, NULL);
  } else {
    retry_node n = {p->path, text, (int)strlen(text), p->mode};
    rc = retry_ensure(z, &n, 0); /* once: the whole is tried again */
  }
  zke_free(text);
  return rc == ZKE_OK || rc == ZKE_BADVERSION || (rc == ZKE_NONODE && !missing)
             ? ZKE_RUNTIMEINCONSISTENCY /* look again */
             : rc;
}

int zke_recipe_place(zke *z, const char *path, const char *kind, int mode,
                     const char *more, int64_t deadline_ms) {
  znode_place p = {path, kind, more, mode};
  int rc = ZKE_RUNTIMEINCONSISTENCY;
  for (int i = 0; i < ZKE_RETRIES && rc == ZKE_RUNTIMEINCONSISTENCY; i++)
    rc = zke_retry(z, znode_see_to, &p, deadline_ms);
  return rc;
}

void zke_recipe_guid(zke *z, char guid[ZKE_RECIPE_GUID]) {
  static unsigned counter; /* atomic: each number is given once a process */
  uint64_t id = (uint64_t)zke_session_id(z);
  unsigned n = __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
  snprintf(guid, ZKE_RECIPE_GUID,
           "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04x-%012x", id >> 32,
           id >> 16 & 0xffff, id & 0xffff, 0x8000u, n);
}

typedef struct znode_creation {
  const char *directory, *place, *kind;
  const void *data;
  int len, mode;
  char guid[ZKE_RECIPE_GUID];
  char *given; /* the path that a create is given */
  bool unsure; /* the last try may have made it */
  char *path;
  zke_stat stat;
} znode_creation;

static bool znode_is_ephemeral(int mode) {
  return mode == ZKE_EPHEMERAL || mode == ZKE_EPHEMERAL_SEQUENTIAL;
}

/* Look for what a lost try has made; ZKE_NONODE: it made nothing. */
static int znode_recover(zke *z, znode_creation *c) {
  zke_strings *names = NULL;
  int rc = zke_children(z, c->directory, NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) return rc;
  rc = ZKE_NONODE;
  for (int i = 0; i < names->count && rc == ZKE_NONODE; i++) {
    if (strncmp(names->data[i], "_c_", 3) != 0 ||
        strncmp(names->data[i] + 3, c->guid, 36) != 0) {
      continue;
    }
    char *path = zke_recipe_path(z, c->directory, names->data[i]);
    rc = path ? zke_exists(z, path, NULL, NULL, &c->stat) : ZKE_NOMEM;
    if (rc == ZKE_OK && znode_is_ephemeral(c->mode) &&
        c->stat.ephemeralOwner != zke_session_id(z))
      rc = ZKE_NONODE;
    if (rc == ZKE_OK)
      c->path = path;
    else
      zke_free(path);
  }
  zke_free(names);
  return rc;
}

static int znode_try_create(zke *z, void *arg) {
  znode_creation *c = arg;
  int rc = c->unsure ? znode_recover(z, c) : ZKE_NONODE;
  if (rc != ZKE_NONODE) return rc;
  rc = zke_create(z, c->given, c->data, c->len, ZKE_OPEN_ACL, c->mode, &c->path,
                  &c->stat);
  c->unsure = c->unsure || rc == ZKE_CONNECTIONLOSS;
  return rc;
}

static int znode_find_made(zke *z, void *arg) { return znode_recover(z, arg); }

/* What is to be discarded, see zke_discard(). */
typedef struct znode_goer {
  const char *path;
  int mode;
  int64_t czxid;
} znode_goer;

static int znode_try_discard(zke *z, void *arg) {
  const znode_goer *g = arg;
  return zke_discard(z, g->path, g->mode, g->czxid);
}

/* Discard it.  An obstacle that does not last, such as memory that was short,
 * is gone at the second try. */
static int znode_discard(zke *z, znode_goer *g) {
  int rc = zke_retry(z, znode_try_discard, g, ZKE_FOREVER);
  return rc == ZKE_OK || retry_is_due(rc) ? rc : znode_try_discard(z, g);
}

/* Have some time for cleaning up, though the deadline may have passed: once for
 * all that a call cleans up.  Returns the limit before, to be given back to
 * zke_limit(). */
static int64_t znode_allow(zke *z) {
  int64_t was = zke_limit(z, ZKE_FOREVER);
  int64_t until = was;
  if (was == ZKE_FOREVER)
    until = retry_patience(z);
  else if (was < retry_after(z, ZKE_GRACE_MS))
    until = retry_later(was, retry_grace(z));
  zke_limit(z, until);
  return was;
}

int64_t zke_recipe_grace(zke *z) { return zke_limit(z, retry_grace(z)); }

int zke_recipe_discard(zke *z, const char *path, int mode, int64_t czxid) {
  znode_goer g = {path, mode, czxid};
  int64_t limit = znode_allow(z);
  int rc = znode_discard(z, &g);
  zke_limit(z, limit);
  return rc;
}

/* The creation has failed with rc, and its last try may have made the znode:
 * see whether it is there, whatever the deadline was.  Where that cannot be
 * seen it is to go.  Returns ZKE_OK with the znode, else rc. */
static int znode_settle(zke *z, znode_creation *c, int rc) {
  zke_sentence kept;
  zke_recipe_keep(&kept);
  int64_t limit = znode_allow(z);
  int found = zke_retry(z, znode_find_made, c, ZKE_FOREVER);
  zke_limit(z, limit);
  if (found == ZKE_OK) return ZKE_OK;
  if (found != ZKE_NONODE && znode_is_ephemeral(c->mode))
    zke_recipe_discard(z, c->given, c->mode, 0);
  return zke_recipe_restore(&kept, rc);
}

/* The guid, and the path that a create is given; suffix: behind the kind. */
static int znode_name(zke *z, znode_creation *c, const char *suffix) {
  size_t size = strlen(c->directory) + strlen(c->kind) + strlen(suffix) + 48;
  zke_recipe_guid(z, c->guid);
  c->given = zke_alloc(z, size);
  if (!c->given) return ZKE_NOMEM;
  snprintf(c->given, size, "%s/_c_%s-%s%s", c->directory, c->guid, c->kind,
           suffix);
  return ZKE_OK;
}

int zke_recipe_create(zke *z, const char *directory, const char *place,
                      const char *kind, const void *data, int len, int mode,
                      int64_t deadline_ms, char **path_out,
                      zke_stat *stat_out) {
  znode_creation c = {.directory = directory,
                      .place = place,
                      .kind = kind,
                      .data = data,
                      .len = len,
                      .mode = mode};
  int rc = znode_name(z, &c, "");
  if (rc == ZKE_OK) rc = ZKE_NONODE;
  for (int i = 0; i < ZKE_RETRIES && rc == ZKE_NONODE; i++) {
    if (i > 0)
      rc = zke_recipe_place(z, directory, place, ZKE_CONTAINER, NULL,
                            deadline_ms);
    if (i == 0 || rc == ZKE_OK)
      rc = zke_retry(z, znode_try_create, &c, deadline_ms);
  }
  if (rc != ZKE_OK && c.unsure) rc = znode_settle(z, &c, rc);
  zke_free(c.given);
  if (rc == ZKE_OK && path_out)
    *path_out = c.path;
  else
    zke_free(c.path);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return rc;
}

typedef struct znode_creations {
  const zke_seat *seats;
  zke_op *ops;
  zke_op_result *made;
  int count;
  char guid[ZKE_RECIPE_GUID];
  bool unsure; /* the last try may have made them */
} znode_creations;

/* Look for what a lost try has made at seat i: of the entries with the guid
 * the one after those of the seats before it in the same directory. */
static int znode_recover_seat(zke *z, znode_creations *c, int i) {
  const zke_seat *seat = &c->seats[i];
  zke_entries *e = NULL;
  int before = 0;
  for (int j = 0; j < i; j++)
    before += strcmp(c->seats[j].directory, seat->directory) == 0;
  int rc = zke_recipe_entries(z, seat->directory, &seat->kind, 1, NULL, NULL,
                              &e, NULL);
  if (rc != ZKE_OK) return rc;
  rc = ZKE_NONODE;
  for (int j = 0; j < e->count && rc == ZKE_NONODE; j++) {
    if (strncmp(e->data[j].name + 3, c->guid, 36) != 0 || before-- > 0)
      continue;
    char *path = zke_recipe_path(z, seat->directory, e->data[j].name);
    rc = path ? zke_exists(z, path, NULL, NULL, &c->made[i].stat) : ZKE_NOMEM;
    if (rc == ZKE_OK)
      c->made[i].path = path;
    else
      zke_free(path);
  }
  zke_free(e);
  return rc;
}

/* They were made all or none; one missing alone was taken away. */
static int znode_recover_all(zke *z, void *arg) {
  znode_creations *c = arg;
  bool found = false;
  zke_results_clear(c->made, c->count);
  for (int i = 0; i < c->count; i++) {
    int rc = znode_recover_seat(z, c, i);
    if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
    found = found || rc == ZKE_OK;
  }
  return found ? ZKE_OK : ZKE_NONODE;
}

static int znode_try_create_all(zke *z, void *arg) {
  znode_creations *c = arg;
  int rc = c->unsure ? znode_recover_all(z, c) : ZKE_NONODE;
  if (rc != ZKE_NONODE) return rc;
  zke_results_clear(c->made, c->count);
  rc = zke_recipe_multi(z, c->ops, c->count, c->made);
  c->unsure = c->unsure || rc == ZKE_CONNECTIONLOSS;
  return rc;
}

/* As znode_settle(), for all of them. */
static int znode_settle_all(zke *z, znode_creations *c, int rc) {
  zke_sentence kept;
  zke_recipe_keep(&kept);
  int64_t limit = znode_allow(z);
  int found = zke_retry(z, znode_recover_all, c, ZKE_FOREVER);
  zke_limit(z, limit);
  if (found == ZKE_OK) return ZKE_OK;
  for (int i = 0; i < c->count && found != ZKE_NONODE; i++)
    zke_recipe_discard(z, c->ops[i].path, ZKE_EPHEMERAL_SEQUENTIAL, 0);
  return zke_recipe_restore(&kept, rc);
}

/* Fill in the operations; their paths are in one block. */
static char *znode_creation_ops(zke *z, znode_creations *c) {
  size_t size = 0;
  for (int i = 0; i < c->count; i++)
    size += strlen(c->seats[i].directory) + strlen(c->seats[i].kind) + 48;
  char *text = zke_alloc(z, size), *at = text;
  for (int i = 0; i < c->count && text; i++) {
    const zke_seat *seat = &c->seats[i];
    zke_op_create(&c->ops[i], at, seat->data, seat->len, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL_SEQUENTIAL);
    at += sprintf(at, "%s/_c_%s-%s", seat->directory, c->guid, seat->kind) + 1;
  }
  return text;
}

/* The paths made, in one block; "" for one that is missing. */
static zke_strings *znode_made(zke *z, const znode_creations *c) {
  size_t size = sizeof(zke_strings) + (size_t)c->count * sizeof(char *);
  for (int i = 0; i < c->count; i++)
    size += c->made[i].path ? strlen(c->made[i].path) + 1 : 1;
  zke_strings *s = zke_alloc(z, size);
  if (!s) return NULL;
  s->data = (char **)(void *)(s + 1);
  char *text = (char *)(s->data + c->count);
  for (int i = 0; i < c->count; i++) {
    const char *path = c->made[i].path ? c->made[i].path : "";
    s->data[s->count++] = text;
    text = (char *)memcpy(text, path, strlen(path) + 1) + strlen(path) + 1;
  }
  return s;
}

int zke_recipe_create_all(zke *z, const zke_seat *seats, int count,
                          int64_t deadline_ms, zke_strings **paths_out,
                          int64_t *czxid_out) {
  znode_creations c = {.seats = seats, .count = count};
  size_t n = (size_t)count;
  int rc = ZKE_NOMEM;
  zke_strings *paths = NULL;
  zke_recipe_guid(z, c.guid);
  c.ops = zke_alloc(z, n * sizeof *c.ops);
  c.made = zke_alloc(z, n * sizeof *c.made);
  char *text = c.ops && c.made ? znode_creation_ops(z, &c) : NULL;
  if (text) rc = zke_retry(z, znode_try_create_all, &c, deadline_ms);
  if (rc != ZKE_OK && c.unsure) rc = znode_settle_all(z, &c, rc);
  if (rc == ZKE_OK) {
    paths = znode_made(z, &c);
    for (int i = 0; i < count; i++) {
      if (!paths)
        zke_recipe_discard(z, c.ops[i].path, ZKE_EPHEMERAL_SEQUENTIAL, 0);
      if (c.made[i].path) *czxid_out = c.made[i].stat.czxid;
    }
    if (!paths) rc = ZKE_NOMEM;
  }
  if (c.made) zke_results_clear(c.made, count);
  zke_free(c.ops);
  zke_free(c.made);
  zke_free(text);
  *paths_out = paths;
  return rc;
}

static int znode_try_delete(zke *z, void *arg) {
  int rc = zke_delete(z, arg, -1);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

int zke_recipe_delete(zke *z, const char *path) {
  int64_t limit = retry_limit(z, retry_patience(z));
  int rc = zke_retry(z, znode_try_delete, (void *)(uintptr_t)path, ZKE_FOREVER);
  zke_limit(z, limit);
  return rc;
}

typedef struct znode_deletions {
  const zke_op *ops;
  int count;
} znode_deletions;

static int znode_try_delete_all(zke *z, void *arg) {
  const znode_deletions *d = arg;
  return zke_recipe_multi(z, d->ops, d->count, NULL);
}

int zke_recipe_delete_all(zke *z, const zke_strings *paths) {
  znode_deletions d = {.count = paths->count};
  zke_op *ops = zke_alloc(z, (size_t)paths->count * sizeof *ops);
  int rc = ZKE_NONODE; /* without memory: one by one */
  d.ops = ops;
  for (int i = 0; i < paths->count && ops; i++)
    zke_op_delete(&ops[i], paths->data[i], -1);
  if (ops) rc = zke_retry(z, znode_try_delete_all, &d, ZKE_FOREVER);
  zke_free(ops);
  if (rc != ZKE_NONODE && rc != ZKE_MARSHALLINGERROR) return rc;
  rc = ZKE_OK; /* some have gone before */
  for (int i = 0; i < paths->count; i++) {
    int one = *paths->data[i] ? zke_recipe_delete(z, paths->data[i]) : ZKE_OK;
    if (rc == ZKE_OK) rc = one;
  }
  return rc;
}

/* They bear a guid: nobody else makes one of these paths. */
int zke_recipe_discard_all(zke *z, const zke_strings *paths) {
  int64_t limit = znode_allow(z);
  int rc = zke_recipe_delete_all(z, paths);
  if (rc != ZKE_OK) {
    int sum = ZKE_OK;
    for (int i = 0; i < paths->count; i++) {
      znode_goer g = {paths->data[i], ZKE_EPHEMERAL, 0};
      rc = *g.path ? znode_discard(z, &g) : ZKE_OK;
      if (sum == ZKE_OK) sum = rc;
    }
    rc = sum;
  }
  zke_limit(z, limit);
  return rc;
}

/* Read a name of the form _c_<36 characters>-<kind><number>. */
static bool znode_parse(const char *name, const char *const *kinds, int count,
                        zke_entry *out) {
  if (strncmp(name, "_c_", 3) != 0) return false;
  if (strnlen(name, 41) < 41 || name[39] != '-') return false;
  for (int i = 0; i < count; i++) {
    size_t len = strlen(kinds[i]);
    const char *digits = name + 40 + len;
    if (strncmp(name + 40, kinds[i], len) != 0) continue;
    size_t size = strnlen(digits, 12), sign = *digits == '-';
    if (size != 10 && size != 10 + sign) continue; /* %010d */
    if (strspn(digits + sign, "0123456789") != size - sign) continue;
    long long number = strtoll(digits, NULL, 10);
    if (number < INT32_MIN || number > INT32_MAX) continue;
    *out = (zke_entry){name, i, (int32_t)number};
    return true;
  }
  return false;
}

/* By number, which may wrap around; the name breaks ties. */
static int znode_order(const void *a, const void *b) {
  const zke_entry *x = a, *y = b;
  int32_t by = (int32_t)((uint32_t)x->number - (uint32_t)y->number);
  return by < 0 ? -1 : by > 0 ? 1 : strcmp(x->name, y->name);
}

/* The entries among the names, in one block; NULL without memory. */
static zke_entries *znode_entries(zke *z, const zke_strings *names,
                                  const char *const *kinds, int count) {
  size_t text = 0;
  for (int i = 0; i < names->count; i++) text += strlen(names->data[i]) + 1;
  zke_entries *e =
      zke_alloc(z, sizeof *e + (size_t)names->count * sizeof(zke_entry) + text);
  if (!e) return NULL;
  zke_entry *entry = (zke_entry *)(void *)(e + 1);
  char *copy = (char *)(entry + names->count);
  for (int i = 0; i < names->count; i++) {
    size_t size = strlen(names->data[i]) + 1;
    if (!znode_parse(names->data[i], kinds, count, &entry[e->count])) continue;
    entry[e->count++].name = memcpy(copy, names->data[i], size);
    copy += size;
  }
  qsort(entry, (size_t)e->count, sizeof *entry, znode_order);
  e->data = entry;
  return e;
}

int zke_recipe_entries(zke *z, const char *directory, const char *const *kinds,
                       int count, zke_watch_fn fn, void *context,
                       zke_entries **entries_out, zke_stat *stat_out) {
  zke_strings *names = NULL;
  int rc = zke_children(z, directory, fn, context, &names, stat_out);
  if (rc != ZKE_OK) return rc;
  zke_entries *e = znode_entries(z, names, kinds, count);
  zke_free(names);
  if (!e) return ZKE_NOMEM;
  *entries_out = e;
  return ZKE_OK;
}

int zke_recipe_find(const zke_entries *entries, const char *name) {
  for (int i = 0; i < entries->count; i++) {
    if (strcmp(entries->data[i].name, name) == 0) return i;
  }
  return -1;
}

/* When a holder took office: its write of "held", else its coming. */
static int64_t znode_since(const zke_stat *stat, const char *data) {
  bool wrote = data && strncmp(data, "held ", 5) == 0;
  return wrote ? stat->mtime : stat->ctime;
}

int zke_recipe_say_held(zke *z, int rc, const char *what, const char *path) {
  char *data = NULL, when[ZKE_RECIPE_WHEN];
  zke_stat stat;
  zke_session_list *who = NULL;
  if (zke_get(z, path, NULL, NULL, &data, NULL, &stat) != ZKE_OK ||
      zke_session(z, stat.ephemeralOwner, &who) != ZKE_OK) {
    zke_free(data);
    return zke_recipe_fail(rc, "%s was held, but is no longer", what);
  }
  zke_recipe_when(znode_since(&stat, data), when);
  zke_fail(rc, "%s is held by %s (pid %" PRId64 ") since %s", what,
           who->data[0].identity, who->data[0].pid, when);
  zke_free(who);
  zke_free(data);
  return rc;
}

/* ======================================================================
 * recipe_: the object
 * ==================================================================== */

/* Something for the listener. */
typedef struct zke_note {
  struct zke_note *next;
  int event, len;
  int64_t number;
  char text[];
} zke_note;

/* The call that finds the session gone says so in its own way. */
static int recipe_rc(int rc) {
  return rc == ZKE_SESSIONEXPIRED ? ZKE_INVALIDSTATE : rc;
}

int zke_recipe_state(zke *z) { return recipe_rc(zke_sync(z, "/")); }

/* Have the memory of the reminder now, so that setting it cannot fail for that.
 * A read-only handle dispatches nothing. */
static int recipe_reserve(zke *z, zke_recipe *r) {
  int rc = zke_call_at(z, ZKE_FOREVER, zke_recipe_watcher, r);
  return rc == ZKE_READONLY ? ZKE_OK : rc;
}

int zke_recipe_new(zke *z, const char *path, const zke_recipe_class *class_,
                   size_t size, zke_recipe **out) {
  if (!out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "the %s's out is NULL",
                           class_->name);
  *out = NULL;
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(z, path, NULL, NULL, NULL); /* checks the path */
  if (rc != ZKE_OK && rc != ZKE_NONODE) return recipe_rc(rc);
  if (path[1] == '\0')
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a %s cannot be at /",
                           class_->name);
  zke_recipe *r = zke_alloc(z, size);
  if (r) r->path = zke_recipe_copy(z, path, strlen(path));
  rc = r && r->path ? recipe_reserve(z, r) : ZKE_NOMEM;
  if (rc != ZKE_OK) {
    if (r) zke_free(r->path);
    zke_free(r);
    return rc;
  }
  r->class_ = class_;
  r->z = z;
  r->refs = 1;
  r->notes_end = &r->notes;
  pthread_mutex_init(&r->m, NULL);
  pthread_cond_init(&r->told, NULL);
  *out = r;
  return ZKE_OK;
}

/* Cancellation of this thread is held off while it is inside recipes' calls:
 * how many, and what the outermost has found. */
static _Thread_local struct { int depth, state; } recipe_cancel;

static void recipe_cancel_off(void) {
  if (recipe_cancel.depth++ == 0)
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &recipe_cancel.state);
}

static void recipe_cancel_back(void) {
  if (--recipe_cancel.depth == 0)
    pthread_setcancelstate(recipe_cancel.state, NULL);
}

/* The call of a recipe that this thread is inside of, with its deadline.  What
 * it calls of other recipes has the same; listeners and watchers have none. */
typedef struct recipe_call {
  zke_recipe *r; /* NULL: none */
  int depth;     /* recipe_cancel's, inside the call */
  bool blocking; /* zke_recipe_cancel() is for it */
  int cancels;   /* r's, when it began */
  int64_t limit; /* the thread's before it, for zke_limit() */
  int64_t grace; /* … for retry_grace_back() */
} recipe_call;

static _Thread_local recipe_call recipe_running;

/* Begin a call, unless this is a part of one. */
static void recipe_begin(zke_recipe *r, int64_t deadline_ms) {
  if (recipe_running.r) return;
  recipe_running = (recipe_call){.r = r, .depth = recipe_cancel.depth};
  recipe_running.limit = retry_limit(r->z, deadline_ms);
  recipe_running.grace = retry_grace_begin();
}

/* From here on the call can be cancelled. */
static void recipe_begin_blocking(zke_recipe *r) {
  if (recipe_running.r != r || recipe_running.blocking) return;
  recipe_running.blocking = true;
  recipe_running.cancels = __atomic_load_n(&r->cancels, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&r->running, 1, __ATOMIC_SEQ_CST);
}

/* A call is over; the object is still there. */
static void recipe_finish(const recipe_call *call) {
  if (call->blocking)
    __atomic_sub_fetch(&call->r->running, 1, __ATOMIC_SEQ_CST);
  zke_limit(call->r->z, call->limit);
  retry_grace_back(call->grace);
}

/* The end of the call that began at this depth. */
static void recipe_finish_here(zke_recipe *r) {
  recipe_call call = recipe_running;
  if (call.r != r || call.depth != recipe_cancel.depth) return;
  recipe_running.r = NULL;
  recipe_finish(&call);
}

static bool recipe_is_cancelled(const zke_recipe *r) {
  const recipe_call *call = &recipe_running;
  return call->r == r && call->blocking &&
         __atomic_load_n(&r->cancels, __ATOMIC_SEQ_CST) != call->cancels;
}

static void recipe_drop_notes(zke_recipe *r) {
  for (zke_note *n = r->notes, *next; n; n = next) {
    next = n->next;
    zke_free(n);
  }
  r->notes = NULL;
  r->notes_end = &r->notes;
}

static void recipe_unref(zke_recipe *r) {
  if (__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  recipe_drop_notes(r);
  if (r->class_->destroy) r->class_->destroy(r);
  pthread_cond_destroy(&r->told);
  pthread_mutex_destroy(&r->m);
  zke_free(r->path);
  zke_free(r);
}

static void recipe_lock(zke_recipe *r) {
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  pthread_mutex_lock(&r->m);
}

/* In a child that was forked in a listener, or in a callback of a wait: take
 * the mutex, which a thread of the parent may have held, and tell nothing any
 * more.  The calls to come are refused by the handle. */
static void recipe_lock_in_child(zke_recipe *r) {
  pthread_mutex_init(&r->m, NULL);
  pthread_cond_init(&r->told, NULL);
  pthread_mutex_lock(&r->m);
  r->going = true;
  r->sleepers = NULL; /* they lie on the stacks of the parent's threads */
  recipe_drop_notes(r);
}

/* Call the listener, which is no part of the call that this thread is in. */
static void recipe_deliver(zke_recipe *r, const zke_note *n) {
  recipe_call call = recipe_running;
  recipe_running.r = NULL;
  int64_t limit = zke_limit(r->z, ZKE_FOREVER);
  int64_t grace = retry_grace_end;
  retry_grace_back(-1);
  r->class_->deliver(r, n->event, n->number, n->text, n->len);
  retry_grace_back(grace);
  zke_limit(r->z, limit);
  recipe_running = call;
}

/* Where the object is to look again, because the last look failed, and no call
 * sleeps that looks when it wakes: have that done in a later dispatch.  A call
 * that runs is no reason to leave it: it may fail before it has looked.  The
 * pause doubles, up to what a call waits for others; so in the end the look is
 * as patient as any call (recipe_step_limit()).  The mutex is held. */
static void recipe_remind(zke_recipe *r) {
  bool done = !r->changed || r->going || r->ended || !r->class_->step;
  if (done && r->reminded)
    zke_call_at(r->z, ZKE_FOREVER, zke_recipe_watcher, r);
  if (done) r->reminded = false;
  if (done || r->reminded || r->sleepers) return;
  int64_t most = retry_patience(r->z), now = zke_now(r->z);
  r->pause = r->pause ? 2 * r->pause : RETRY_PAUSE_MS;
  if (r->pause > most - now) r->pause = most - now;
  r->reminded =
      zke_call_at(r->z, now + r->pause, zke_recipe_watcher, r) == ZKE_OK;
}

/* Deliver notes until there are none; the mutex is held, and dropped. */
static void recipe_unlock(zke_recipe *r) {
  zke_note *n;
  if (!r->telling) {
    r->telling = true;
    r->teller = pthread_self();
    while ((n = r->notes) != NULL) {
      r->notes = n->next;
      if (!r->notes) r->notes_end = &r->notes;
      pid_t before = getpid();
      pthread_mutex_unlock(&r->m);
      recipe_deliver(r, n);
      zke_free(n);
      if (getpid() != before)
        recipe_lock_in_child(r);
      else
        pthread_mutex_lock(&r->m);
    }
    r->telling = false;
    pthread_cond_broadcast(&r->told);
  }
  recipe_remind(r);
  pthread_mutex_unlock(&r->m);
  recipe_unref(r);
}

/* The session has ended: say so, once. */
static void recipe_end(zke_recipe *r) {
  if (r->ended) return;
  r->ended = true;
  if (r->class_->ended) r->class_->ended(r);
}

/* Enter a call that has begun. */
static int recipe_enter(zke_recipe *r) {
  int rc = zke_recipe_state(r->z);
  if (rc != ZKE_OK && rc != ZKE_INVALIDSTATE) {
    recipe_finish_here(r);
    recipe_cancel_back();
    return rc;
  }
  recipe_lock(r);
  if (rc == ZKE_OK && r->left) {
    rc = zke_recipe_fail(ZKE_CLOSING,
                         "a thread was cancelled inside the %s %s; free it",
                         r->class_->name, r->path);
  } else if (rc == ZKE_OK && r->going) {
    rc = zke_recipe_fail(ZKE_CLOSING, "the %s %s was freed", r->class_->name,
                         r->path);
  }
  return rc == ZKE_OK ? ZKE_OK : zke_recipe_leave(r, rc);
}

int zke_recipe_enter(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, retry_patience(r->z));
  return recipe_enter(r);
}

int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, retry_later(deadline_ms, 1));
  recipe_begin_blocking(r);
  return recipe_enter(r);
}

int zke_recipe_leave(zke_recipe *r, int rc) {
  zke_sentence kept;
  rc = recipe_rc(rc);
  if (rc == ZKE_INVALIDSTATE) recipe_end(r); /* whichever call has found it */
  if (rc == ZKE_LOST && r->ended)            /* and that is why it is lost */
    rc = zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  bool keep = rc != ZKE_OK && r->notes;
  if (keep) zke_recipe_keep(&kept);
  recipe_finish_here(r);
  recipe_unlock(r);
  recipe_cancel_back();
  return keep ? zke_recipe_restore(&kept, rc) : rc;
}

void zke_recipe_hold(zke_recipe *r) {
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
}

void zke_recipe_drop(zke_recipe *r) { recipe_unref(r); }

static int recipe_step(zke_recipe *r) {
  if (r->going || r->ended || !r->class_->step) return ZKE_OK;
  r->changed = false;
  int rc = r->class_->step(r);
  if (rc != ZKE_OK) r->changed = true;
  if (!r->changed) r->pause = 0;
  return rc;
}

int zke_recipe_step(zke_recipe *r) {
  int rc = zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(r, recipe_step(r));
}

/* A thread that sleeps in a call. */
typedef struct recipe_sleeper {
  zke_recipe *r;
  recipe_call call;
  int64_t until;                /* the call's limit, zke_limit() */
  struct recipe_sleeper *next;  /* of the object */
  struct recipe_sleeper *outer; /* of the thread: it sleeps in a callback */
} recipe_sleeper;

/* The sleep whose dispatches this thread makes, or NULL. */
static _Thread_local recipe_sleeper *recipe_asleep;

/* Until when the steps that watchers make on this thread do not wait for others
 * on a handle, because one has waited as long in vain: so a host that
 * dispatches for many objects is kept half of its time at most. */
static _Thread_local struct {
  const zke *z;
  int64_t until;
} recipe_rest;

/* Until when a step that a watcher makes may wait for others: as long as any
 * call does, but no longer than a call that waits for it, on this thread or on
 * another, and one that was made again no longer than it has paused. */
static int64_t recipe_step_limit(const zke_recipe *r, bool again) {
  int64_t now = zke_now(r->z), until = retry_patience(r->z);
  if (again && r->pause < until - now) until = now + r->pause;
  if (recipe_rest.z == r->z && now < recipe_rest.until) until = now;
  const recipe_sleeper *s = recipe_asleep;
  if (s && s->r->z == r->z && s->until < until) until = s->until;
  for (s = r->sleepers; s; s = s->next) {
    if (s->until < until) until = s->until;
  }
  return until;
}

/* A step by a watcher, which is a call of its own. */
static void recipe_step_apart(zke_recipe *r, bool again) {
  int64_t began = zke_now(r->z);
  int64_t limit = zke_limit(r->z, recipe_step_limit(r, again));
  int64_t grace = retry_grace_begin();
  int rc = recipe_step(r); /* who awaits repeats a failure, or a reminder */
  retry_grace_back(grace);
  zke_limit(r->z, limit);
  int64_t now = zke_now(r->z), until = now + (now - began);
  if (rc != ZKE_OPERATIONTIMEOUT) return;
  if (recipe_rest.z == r->z && until < recipe_rest.until) return;
  recipe_rest.z = r->z;
  recipe_rest.until = until;
}

void zke_recipe_watcher(zke *z, int type, int state, const char *path,
                        void *context) {
  zke_recipe *r = context;
  bool again = type == ZKE_EVENT_ALARM;
  (void)z;
  recipe_lock(r);
  if (type == ZKE_EVENT_SESSION && state != ZKE_STATE_CONNECTED) {
    recipe_end(r);
  } else if (!r->going) {
    if (!again && r->class_->event) r->class_->event(r, type, path);
    if (again) r->reminded = false;
    if (!again) r->changed = true;
    if (r->changed) recipe_step_apart(r, again);
  }
  recipe_unlock(r);
}

bool zke_recipe_tell(zke_recipe *r, int event, int64_t number, const char *text,
                     int len) {
  size_t size = len > 0 ? (size_t)len : 0;
  if (r->going || !r->class_->deliver) return true;
  zke_note *n = zke_alloc(r->z, sizeof *n + size + 1);
  if (!n) return false;
  n->event = event;
  n->number = number;
  n->len = len;
  if (size) memcpy(n->text, text, size);
  *r->notes_end = n;
  r->notes_end = &n->next;
  return true;
}

/* Give up what the object holds, with the mutex held: it is going.  state is
 * zke_recipe_state()'s; where it could not be told, quit does what it can. */
static void recipe_quit(zke_recipe *r, int state) {
  r->going = true;
  recipe_drop_notes(r);
  if (state == ZKE_INVALIDSTATE || !r->class_->quit) return;
  int64_t limit = zke_limit(r->z, retry_patience(r->z));
  int64_t grace = retry_grace_begin();
  r->class_->quit(r);
  retry_grace_back(grace);
  zke_limit(r->z, limit);
}

/* A call is about to sleep; the mutex is held. */
static void recipe_lie_down(recipe_sleeper *sleeper) {
  sleeper->next = sleeper->r->sleepers;
  sleeper->r->sleepers = sleeper;
}

/* The sleeper is up; the mutex is held.  In a child it is in no list. */
static void recipe_get_up(const recipe_sleeper *sleeper) {
  recipe_sleeper **at = &sleeper->r->sleepers;
  while (*at && *at != sleeper) at = &(*at)->next;
  if (*at) *at = sleeper->next;
}

/* The thread of a blocking call was cancelled while it slept, without the
 * mutex: the participant is out, and the object good for nothing but free. */
static void recipe_leave_sleep(void *arg) {
  const recipe_sleeper *sleeper = arg;
  zke_recipe *r = sleeper->r;
  recipe_cancel.depth++; /* what enter has counted, as before the sleep */
  recipe_asleep = sleeper->outer;
  pthread_mutex_lock(&r->m);
  recipe_get_up(sleeper);
  r->left = true;
  recipe_quit(r, zke_recipe_state(r->z));
  pthread_mutex_unlock(&r->m);
  zke_wake(r->z); /* another thread may be inside the object */
  if (sleeper->call.r) recipe_finish(&sleeper->call);
  recipe_unref(r); /* the sleep's, in place of the call's */
  recipe_cancel_back();
}

/* Wait for the handle's next turn.  Here alone a recipe's call may be left by
 * the cancellation of its thread, and only where the recipe was called by the
 * program itself: what a listener calls is finished. */
static int recipe_sleep(recipe_sleeper *sleeper, int64_t turn, int64_t until) {
  volatile int rc = ZKE_OK;
  bool outermost = recipe_cancel.depth == 1;
  recipe_running.r = NULL; /* the watchers are no part of it */
  recipe_asleep = sleeper;
  pthread_cleanup_push(recipe_leave_sleep, sleeper);
  if (outermost) recipe_cancel_back();
  rc = zke_wait_turn(sleeper->r->z, turn, until);
  if (outermost) recipe_cancel_off();
  pthread_cleanup_pop(0);
  recipe_asleep = sleeper->outer;
  recipe_running = sleeper->call;
  return rc;
}

/* Wait without the mutex; a step that failed for the time being is repeated
 * soon. */
static int recipe_wait(zke_recipe *r, int64_t turn, int step, int failures,
                       int64_t deadline_ms) {
  int64_t until = deadline_ms;
  if (retry_is_due(step)) {
    int64_t soon = zke_now(r->z) + (int64_t)failures * RETRY_PAUSE_MS;
    if (soon < until) until = soon;
  }
  recipe_sleeper sleeper = {.r = r,
                            .call = recipe_running,
                            .until = retry_limit(r->z, 0),
                            .outer = recipe_asleep};
  recipe_lie_down(&sleeper);
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED); /* a listener may free */
  recipe_unlock(r);
  int rc = recipe_sleep(&sleeper, turn, until);
  if (rc == ZKE_FORKED) {
    r->telling = false;
    __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
    recipe_lock_in_child(r);
  } else {
    recipe_lock(r);
  }
  recipe_get_up(&sleeper);
  __atomic_sub_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  if (rc == ZKE_OPERATIONTIMEOUT && until < deadline_ms) rc = ZKE_OK;
  if (rc == ZKE_OK && zke_now(r->z) >= deadline_ms) rc = ZKE_OPERATIONTIMEOUT;
  if (recipe_rc(rc) == ZKE_INVALIDSTATE) recipe_end(r);
  return rc;
}

int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                     int64_t deadline_ms) {
  for (int failures = 0;;) {
    int64_t turn = zke_turn(r->z);
    int step = r->changed ? recipe_step(r) : ZKE_OK;
    failures = step == ZKE_OK ? 0 : failures + 1;
    if (step != ZKE_OK && (!retry_is_due(step) || failures > ZKE_RETRIES))
      return step;
    int rc = done(r);
    if (rc <= 0) return rc;
    if (r->going) {
      return zke_recipe_fail(ZKE_CLOSING, "the %s %s was freed",
                             r->class_->name, r->path);
    }
    if (r->ended)
      return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
    if (recipe_is_cancelled(r)) {
      return zke_recipe_fail(ZKE_CANCELLED,
                             "waiting for the %s %s was cancelled",
                             r->class_->name, r->path);
    }
    rc = recipe_wait(r, turn, step, failures, deadline_ms);
    if (rc == ZKE_OPERATIONTIMEOUT) { /* a last look */
      rc = r->changed ? recipe_step(r) : ZKE_OK;
      if (rc == ZKE_OK) rc = done(r);
      if (rc > 0)
        rc = zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                             "waited for the %s %s until the deadline",
                             r->class_->name, r->path);
      return rc;
    }
    if (rc != ZKE_OK && !r->ended) return rc;
  }
}

int zke_recipe_cancel(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  if (__atomic_load_n(&r->running, __ATOMIC_SEQ_CST) == 0) {
    return zke_recipe_fail(ZKE_IDLE, "no call on the %s %s is running",
                           r->class_->name, r->path);
  }
  __atomic_add_fetch(&r->cancels, 1, __ATOMIC_SEQ_CST);
  return zke_wake(r->z);
}

void zke_recipe_free(zke_recipe *r) {
  if (!r) return;
  zke *z = r->z;
  recipe_cancel_off();
  int64_t limit = zke_limit(z, retry_patience(z));
  int rc = zke_recipe_state(z);
  if (rc != ZKE_FORKED) { /* else the mutex may be locked for ever */
    recipe_lock(r);
    recipe_quit(r, rc);
    pthread_mutex_unlock(&r->m);
    zke_forget(r->z, zke_recipe_watcher, r);
    pthread_mutex_lock(&r->m);
    r->reminded = false; /* by zke_forget() */
    while (r->telling && !pthread_equal(r->teller, pthread_self()))
      pthread_cond_wait(&r->told, &r->m);
    pthread_mutex_unlock(&r->m);
    recipe_unref(r);
  }
  recipe_unref(r);
  zke_limit(z, limit);
  recipe_cancel_back();
}

/* ======================================================================
 * line_: a place in a line
 *
 * What a line is, and by whom its entries are marked, stands in support.h at
 * zke_line.  From the bottom: the entries of a directory, read and sorted; an
 * entry's text; what the object knows of its own znode; watches; going on; in
 * and out; to the front (a thief), and out in favour of another (an election);
 * the graph of who waits for whom, in which deadlocks are looked for; lists.
 *
 * An object holds only after line_take_office(), which line_look() calls for
 * entries that it has read after the object's znode was made.  Whatever may
 * have changed between two reads is noticed by a version or a missing node; the
 * look is then repeated (ZKE_RUNTIMEINCONSISTENCY), never guessed.
 *
 * Start reading at zke_line_join(), then line_look() and zke_line_quit().
 * ==================================================================== */

static const char *const line_kinds[ZKE_LINE_KINDS] = {
    "lock-", "__WRIT__", "__READ__", "lease-", "latch-", "front-", "next-"};

/* Does an entry keep out one behind it? */
static bool line_keeps_out(const zke_entry *first, const zke_entry *then) {
  return !(first->kind == ZKE_LINE_READ && then->kind == ZKE_LINE_READ);
}

/* How many entries keep out the one at index i. */
static int line_keepers(const zke_entries *e, int i) {
  int count = 0;
  for (int j = 0; j < i; j++) count += line_keeps_out(&e->data[j], &e->data[i]);
  return count;
}

/* Move the entry at index i to index `to`, further ahead. */
static void line_advance(zke_entry *entry, int to, int i) {
  zke_entry moved = entry[i];
  memmove(&entry[to + 1], &entry[to], (size_t)(i - to) * sizeof *entry);
  entry[to] = moved;
}

static bool line_same_guid(const zke_entry *a, const zke_entry *b) {
  return strncmp(a->name, b->name, 39) == 0;
}

/* The order of a line: whom a NEXT mark names, FRONT entries, the rest by
 * number.  Marks are no entries; they go behind the end. */
static void line_sort(zke_entries *e) {
  zke_entry *entry = (zke_entry *)(void *)(e + 1);
  int front = 0, marks = 0;
  for (int i = 0; i < e->count; i++) {
    if (entry[i].kind == ZKE_LINE_FRONT) line_advance(entry, front++, i);
  }
  for (int i = 0; i < e->count - marks;) {
    zke_entry mark = entry[i];
    if (mark.kind != ZKE_LINE_NEXT) {
      i++;
      continue;
    }
    memmove(&entry[i], &entry[i + 1],
            (size_t)(e->count - i - 1) * sizeof *entry);
    entry[e->count - 1] = mark;
    marks++;
  }
  e->count -= marks;
  for (int m = e->count; m < e->count + marks; m++) {
    for (int i = 0; i < e->count; i++) {
      if (line_same_guid(&entry[i], &entry[m])) line_advance(entry, 0, i);
    }
  }
}

static int line_entries(zke *z, const char *directory, zke_entries **out,
                        zke_stat *stat) {
  int rc = zke_recipe_entries(z, directory, line_kinds, ZKE_LINE_KINDS, NULL,
                              NULL, out, stat);
  if (rc == ZKE_OK) line_sort(*out);
  return rc;
}

/* The limit that a directory's data states; 1 where it states none. */
static int line_limit_in(const char *data) {
  const char *line = data ? strstr(data, "\nlimit ") : NULL;
  long limit = line ? strtol(line + 7, NULL, 10) : 1;
  return limit < 1 ? 1 : limit > INT_MAX ? INT_MAX : (int)limit;
}

/* The entries and the limit, in one snapshot. */
static int line_survey(zke *z, const char *directory, zke_entries **out,
                       zke_stat *stat, int *limit) {
  zke_op ops[2];
  zke_op_result got[2] = {{0}};
  zke_op_children(&ops[0], directory);
  zke_op_get(&ops[1], directory);
  int rc = zke_recipe_multi_read(z, ops, 2, got);
  for (int i = 0; i < 2 && rc == ZKE_OK; i++) rc = got[i].rc;
  if (rc == ZKE_OK) {
    *out = znode_entries(z, got[0].children, line_kinds, ZKE_LINE_KINDS);
    *stat = got[0].stat;
    *limit = line_limit_in(got[1].data);
    rc = *out ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) line_sort(*out);
  zke_results_clear(got, 2);
  return rc;
}

/* The last of the entries made together with the one at index i. */
static int line_last_of_group(const zke_entries *e, int i) {
  while (i + 1 < e->count && line_same_guid(&e->data[i], &e->data[i + 1])) i++;
  return i;
}

/* How many stand right before the one at index i, made together with it. */
static int line_group_before(const zke_entries *e, int i) {
  int j = i;
  while (j > 0 && line_same_guid(&e->data[j - 1], &e->data[i])) j--;
  return i - j;
}

/* This thread, as others can tell it from theirs. */
static _Thread_local struct {
  pid_t pid;
  uint64_t id;
  uint64_t role; /* the actor that it acts as; 0: itself */
} line_self;

/* After a fork it is another thread, and nobody's substitute. */
static void line_draw_self(pid_t pid) {
  line_self.pid = pid;
  line_self.id = line_self.role = 0;
  while (getentropy(&line_self.id, sizeof line_self.id) == 0 && !line_self.id)
    continue;
  if (line_self.id) return;
  /* without random numbers: addresses differ from process to process */
  line_self.id = (uint64_t)(uintptr_t)&line_self ^ (uint64_t)pid << 48;
}

uint64_t zke_line_actor(void) {
  pid_t pid = getpid();
  if (line_self.pid != pid) line_draw_self(pid);
  return line_self.role ? line_self.role : line_self.id;
}

uint64_t zke_line_act_as(uint64_t actor) {
  zke_line_actor(); /* so that no forked copy's role is given back */
  uint64_t was = line_self.role;
  line_self.role = actor;
  return was;
}

/* ---- the znode's data ---- */

enum { LINE_HEAD = 32 }; /* "waiting 0123456789abcdef\n" */

char *zke_line_text(zke *z, const char *state, uint64_t actor, const char *data,
                    int len, int *len_out) {
  size_t size = len > 0 ? (size_t)len : 0;
  char *text = zke_alloc(z, LINE_HEAD + size);
  if (!text) return NULL;
  int head = snprintf(text, LINE_HEAD, "%s %016" PRIx64 "\n", state, actor);
  if (size) memcpy(text + head, data, size);
  *len_out = head + (int)size;
  return text;
}

static char *line_text(const zke_line *l, const char *state, int *len) {
  return zke_line_text(l->r.z, state, l->actor, l->data, l->len, len);
}

/* What a znode's data says: its state, and as which actor.  An actor of 0 is
 * nobody's: the data is not a line's. */
typedef struct line_words {
  bool waiting, queued, held;
  uint64_t actor;
  int head; /* bytes before the user's data */
} line_words;

static line_words line_read(const char *data, int len) {
  line_words w = {0};
  if (!data || len <= 0) return w;
  const char *space = memchr(data, ' ', (size_t)len);
  const char *end = memchr(data, '\n', (size_t)len);
  char *digits_end;
  if (!space || !end || end - space != 17) return w;
  w.actor = strtoull(space + 1, &digits_end, 16);
  if (digits_end != end) return (line_words){0};
  w.waiting = strncmp(data, "waiting ", 8) == 0;
  w.queued = strncmp(data, "queued ", 7) == 0;
  w.held = strncmp(data, "held ", 5) == 0;
  w.head = (int)(end - data) + 1;
  return w;
}

typedef struct line_write {
  zke_line *l;
  const char *path, *text;
  int len;
  int version; /* the directory's, -1: any */
  zke_stat stat;
} line_write;

static int line_try_write(zke *z, void *arg) {
  line_write *w = arg;
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  if (w->version < 0) return zke_set(z, w->path, w->text, w->len, -1, &w->stat);
  zke_op_set(&ops[0], w->path, w->text, w->len, -1);
  zke_op_check(&ops[1], w->l->r.path, w->version);
  int rc = zke_recipe_multi(z, ops, 2, results);
  w->stat = results[0].stat;
  zke_results_clear(results, 2);
  return rc;
}

/* Write one's state, while the directory has this version.  Twice does no
 * harm: the later zxid counts. */
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

/* ---- states ---- */

static void line_change(zke_line *l, int state, int64_t token) {
  bool news = l->state != state;
  l->state = state;
  l->token = token;
  if (news) zke_recipe_tell(&l->r, state, token, NULL, 0);
}

static void line_forget_heir(zke_line *l) {
  zke_free(l->heir);
  zke_free(l->grant);
  l->heir = NULL;
  l->grant = NULL;
}

/* The path stays for the operations that name it, until the next is forgotten
 * or the object goes. */
static void line_forget_own(zke_line *l) {
  line_forget_heir(l);
  if (l->znode) zke_free(l->gone);
  if (l->znode) l->gone = l->znode;
  zke_free(l->own);
  l->znode = NULL;
  l->own = NULL;
  l->also = NULL;
  l->own_watched = false;
}

/* One's znode has gone, or the session.  Of several the others go too. */
static void line_lose(zke_line *l) {
  if (l->own && !l->r.ended) zke_recipe_discard_all(l->r.z, l->own);
  line_forget_own(l);
  line_change(l, ZKE_LINE_LOST, 0);
}

/* Is this path one's own znode, or one of them? */
static bool line_is_own(const zke_line *l, const char *path) {
  size_t len = strlen(l->r.path) + 1 + 39; /* up to the guid's end */
  return l->znode && strncmp(path, l->znode, len) == 0;
}

/* An event without a path is an overflow: all watches have gone. */
void zke_line_event(zke_line *l, const char *path) {
  if (!*path || strcmp(path, l->r.path) == 0) l->place_watched = false;
  if (!*path || line_is_own(l, path)) l->own_watched = false;
}

void zke_line_ended(zke_line *l) {
  if (l->state == ZKE_LINE_WAITING || l->state == ZKE_LINE_HELD) line_lose(l);
}

static int line_lost(const zke_line *l) {
  return zke_recipe_fail(ZKE_LOST, "the place in the %s %s was taken away",
                         l->r.class_->name, l->r.path);
}

int zke_line_init(zke_line *l) {
  const char *data = l->data;
  l->data = NULL; /* until it is one's own */
  if (l->limit < 1) l->limit = 1;
  if (l->weight < 1) l->weight = 1;
  if (!data) l->len = 0;
  if (l->len < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", l->len);
  if (l->len == 0) return ZKE_OK;
  l->data = zke_recipe_copy(l->r.z, data, (size_t)l->len);
  return l->data ? ZKE_OK : ZKE_NOMEM;
}

void zke_line_free(zke_line *l) {
  zke_free((void *)(uintptr_t)l->data);
  line_forget_own(l);
  zke_free(l->gone);
  zke_free(l->watched);
  l->data = NULL;
  l->gone = NULL;
  l->watched = NULL;
}

/* ---- watching ---- */

/* Take back the watches of those that one waited for. */
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

/* Room for the paths of `count` entries of one directory. */
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

/* Watch one's own znode, also for what others write to it. */
static int line_watch_data(zke_line *l, const char *path) {
  return zke_get(l->r.z, path, zke_recipe_watcher, &l->r, NULL, NULL, NULL);
}

/* Watch another's znode for its end alone: an ephemeral has no children, so
 * nothing else fires a child watch, and taking office wakes nobody. */
static int line_watch_end(zke_line *l, const char *path) {
  return zke_children(l->r.z, path, zke_recipe_watcher, &l->r, NULL, NULL);
}

/* Take back the watch of one's own znode, before it is deleted: else the event
 * of that would lie about until the next dispatch. */
static void line_unwatch_own(zke_line *l) {
  if (!l->own_watched || !l->znode) return;
  char *const *own = l->own ? l->own->data : &l->znode;
  int count = l->own ? l->own->count : 1;
  for (int i = 0; i < count; i++)
    zke_remove_watch(l->r.z, own[i], ZKE_WATCH_DATA, zke_recipe_watcher, &l->r);
  l->own_watched = false;
}

/* Watch one's own znode, once; ZKE_LOST where it has gone. */
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

/* One's own znode is still there after a failure, whose code and sentence
 * stay: watch it again. */
static int line_watch_again(zke_line *l, int rc) {
  zke_sentence kept;
  bool watch = l->znode && (l->state == ZKE_LINE_WAITING ||
                            (l->state == ZKE_LINE_HELD && l->watch_own));
  zke_recipe_keep(&kept);
  if (watch && line_watch_own(l) != ZKE_OK) l->r.changed = true;
  return zke_recipe_restore(&kept, rc);
}

/* Watch the last entries of others that keep out the one at index i, as many
 * as it takes: while they are all there nothing can change for it, and one
 * that goes wakes no others than those.  ZKE_NONODE: look again. */
static int line_watch_keepers(zke_line *l, const zke_entries *e, int i) {
  int most = l->limit - (l->weight - 1);
  zke_strings *paths = line_new_paths(l, e, most < i ? most : i);
  int rc = ZKE_OK;
  if (!paths) return ZKE_NOMEM;
  for (int j = i - l->weight; j >= 0 && paths->count < most && rc == ZKE_OK;
       j--) {
    if (!line_keeps_out(&e->data[j], &e->data[i])) continue;
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

/* ---- going on ---- */

/* Does the mark at index m name an entry that has gone? */
static bool line_is_orphan(const zke_entries *e, int m) {
  const zke_entry *mark = &e->data[m];
  if (mark->kind != ZKE_LINE_NEXT) return false;
  for (int i = 0; i < e->count; i++) {
    if (i != m && line_same_guid(&e->data[i], mark)) return false;
  }
  return true;
}

/* Remove the NEXT marks whose entries have gone.  Where that fails they do no
 * harm but to be there. */
static void line_remove_marks(const zke_line *l) {
  zke_entries *e = NULL;
  if (zke_recipe_entries(l->r.z, l->r.path, line_kinds, ZKE_LINE_KINDS, NULL,
                         NULL, &e, NULL) != ZKE_OK)
    return;
  for (int i = 0; i < e->count; i++) {
    if (!line_is_orphan(e, i)) continue;
    char *path = zke_recipe_path(l->r.z, l->r.path, e->data[i].name);
    if (path) zke_recipe_delete(l->r.z, path);
    zke_free(path);
  }
  zke_free(e);
}

/* The index of the first entry that the one at index i keeps out, or -1 where
 * there is none or where another one keeps it out too.  Of several readers
 * behind a writer it is the first; the others mark themselves. */
static int line_find_heir(const zke_entries *e, int i) {
  int j = i + 1;
  while (j < e->count && !line_keeps_out(&e->data[i], &e->data[j])) j++;
  return j < e->count && line_keepers(e, j) == 1 ? j : -1;
}

/* Prepare the grant of one's office to an entry that waits; its data is what
 * it was, but for the state.  Without memory, or where the entry says anything
 * else, there will be no grant. */
static void line_prepare_grant(zke_line *l, const char *name) {
  char *data = NULL;
  int len;
  zke_stat stat;
  l->heir = zke_recipe_path(l->r.z, l->r.path, name);
  if (!l->heir) return;
  if (zke_get(l->r.z, l->heir, NULL, NULL, &data, &len, &stat) != ZKE_OK)
    return;
  line_words w = line_read(data, len);
  if (w.waiting || w.queued) {
    l->grant = zke_line_text(l->r.z, "held", w.actor, data + w.head,
                             len - w.head, &l->grant_len);
  }
  l->heir_version = stat.version;
  zke_free(data);
}

/* Note who is next in line, for line_grant().  The one at index i of these
 * entries takes office.  While its znode exists nobody comes between it and
 * the heir: those that join stand behind, and a thief deletes the holder's.
 *
 * Leases and elections are left out: how many leases may hold is for the next
 * one to find out, and in an election the heir may be named (zke_line_yield).
 */
static void line_note_heir(zke_line *l, const zke_entries *e, int i) {
  line_forget_heir(l);
  if (l->kind > ZKE_LINE_READ) return;
  int heir = line_find_heir(e, i);
  if (heir >= 0) line_prepare_grant(l, e->data[heir].name);
}

/* Mark the own znode as one that holds; its stat.  A grant by the previous
 * holder has done that already, and nobody else writes "held" into a znode that
 * waits.  The entry of a multi-lock may be granted while the object still waits
 * for its other locks. */
static int line_mark_held(zke_line *l, zke_stat *stat) {
  char *data = NULL;
  int len;
  int rc = zke_get(l->r.z, l->znode, NULL, NULL, &data, &len, stat);
  bool granted = rc == ZKE_OK && line_read(data, len).held;
  zke_free(data);
  if (granted || (rc != ZKE_OK && rc != ZKE_NOAUTH)) return rc;
  return line_set(l, "held", -1, stat);
}

/* Nobody keeps out the one at index i, which is one's own: take office.  A
 * lease always writes: under a limit that was lowered its place does not tell
 * that it holds.
 * ZKE_RUNTIMEINCONSISTENCY: the limit has changed meanwhile. */
static int line_take_office(zke_line *l, const zke_entries *e, int i,
                            const zke_stat *directory) {
  zke_stat stat = {.mzxid = l->czxid};
  bool lease = l->kind == ZKE_LINE_LEASE;
  int rc = ZKE_OK;
  if (lease)
    rc = line_set(l, "held", directory->version, &stat);
  else if (directory->pzxid != l->czxid)
    rc = line_mark_held(l, &stat);
  if (rc == ZKE_NONODE) {
    line_lose(l);
    return ZKE_OK;
  }
  if (rc == ZKE_BADVERSION) return ZKE_RUNTIMEINCONSISTENCY;
  if (rc != ZKE_OK) return rc;
  if (lease || l->kind == ZKE_LINE_LATCH) /* an heir too came before its turn */
    line_unwatch(l);                      /* else what was watched has fired */
  zke_free(l->watched);
  l->watched = NULL;
  line_note_heir(l, e, i);
  line_change(l, ZKE_LINE_HELD, stat.mzxid);
  if (l->kind == ZKE_LINE_LATCH) line_remove_marks(l);
  return ZKE_OK;
}

/* Watch the directory for a change of the limit, and see whether it has
 * changed since it was surveyed. */
static int line_watch_place(zke_line *l, const zke_stat *directory) {
  zke_stat stat;
  if (l->place_watched) return ZKE_OK;
  int rc =
      zke_get(l->r.z, l->r.path, zke_recipe_watcher, &l->r, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  l->place_watched = true;
  return stat.version == directory->version ? ZKE_OK : ZKE_RUNTIMEINCONSISTENCY;
}

/* One is kept out: watch for the end of that.  ZKE_LIMIT: it has none. */
static int line_wait_on(zke_line *l, const zke_entries *e, int i,
                        const zke_stat *directory) {
  if (l->weight > l->limit) {
    return zke_recipe_fail(
        ZKE_LIMIT, "%d permits of the %s %s asked for, but its limit is %d",
        l->weight, l->r.class_->name, l->r.path, l->limit);
  }
  int rc = l->kind == ZKE_LINE_LEASE ? line_watch_place(l, directory) : ZKE_OK;
  return rc == ZKE_OK ? line_watch_keepers(l, e, i) : rc;
}

/* An heir is told by a write to its znode, so that is watched before one
 * looks: else a hand-over in between went unheard. */
static int line_read_entries(zke_line *l, zke_entries **e, zke_stat *stat) {
  int rc = l->kind == ZKE_LINE_LATCH ? line_watch_own(l) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  return l->kind == ZKE_LINE_LEASE
             ? line_survey(l->r.z, l->r.path, e, stat, &l->limit)
             : line_entries(l->r.z, l->r.path, e, stat);
}

/* The directory that was seen to may have gone, as empty containers do, and
 * been made anew for something else. */
static int line_check_place(zke_line *l, int64_t czxid) {
  bool known = !l->seen || l->seen == czxid;
  int rc = known ? ZKE_OK
                 : zke_recipe_place(l->r.z, l->r.path, l->place, ZKE_CONTAINER,
                                    NULL, ZKE_FOREVER);
  if (rc == ZKE_OK) l->seen = czxid;
  return rc;
}

/* One look while waiting.  ZKE_RUNTIMEINCONSISTENCY: it has changed
 * meanwhile. */
static int line_look(zke_line *l) {
  zke_entries *e = NULL;
  zke_stat directory;
  int rc = line_read_entries(l, &e, &directory);
  if (rc == ZKE_OK) rc = line_check_place(l, directory.czxid);
  int i = rc == ZKE_OK ? zke_recipe_find(e, text_name(l->znode)) : -1;
  bool all = i >= 0 && line_group_before(e, i) == l->weight - 1;
  if (rc == ZKE_NONODE || (rc == ZKE_OK && !all)) {
    line_lose(l);
    rc = ZKE_OK;
  } else if (rc == ZKE_OK) {
    if (line_keepers(e, i) < l->limit)
      rc = line_take_office(l, e, i, &directory);
    else
      rc = line_wait_on(l, e, i, &directory);
    if (rc == ZKE_NONODE) rc = ZKE_RUNTIMEINCONSISTENCY;
  }
  zke_free(e);
  if (rc == ZKE_OK && (l->state == ZKE_LINE_WAITING ||
                       (l->state == ZKE_LINE_HELD && l->watch_own))) {
    rc = line_watch_own(l);
  }
  return rc == ZKE_LOST ? ZKE_OK : rc; /* the state says it */
}

/* One look while holding: has one's own znode gone? */
static int line_look_held(zke_line *l) {
  int rc = zke_line_check(l);
  if (rc == ZKE_OK && l->watch_own) rc = line_watch_own(l);
  return rc == ZKE_LOST ? ZKE_OK : rc; /* the state says it */
}

/* Out again after a failure, whose code and sentence stay.  The session's end
 * is told as that, whichever call has found it. */
static int line_give_up(zke_line *l, int rc) {
  zke_sentence kept;
  if (recipe_rc(rc) == ZKE_INVALIDSTATE) {
    recipe_end(&l->r);
    return rc;
  }
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(l->r.z);
  zke_line_quit(l);
  zke_limit(l->r.z, limit);
  return zke_recipe_restore(&kept, rc);
}

int zke_line_step(zke_line *l) {
  int rc = ZKE_RUNTIMEINCONSISTENCY;
  if (l->state == ZKE_LINE_HELD) return line_look_held(l);
  if (l->state != ZKE_LINE_WAITING) return ZKE_OK;
  while (rc == ZKE_RUNTIMEINCONSISTENCY) rc = line_look(l);
  bool unheard = rc == ZKE_LIMIT && !l->blocking;
  return unheard ? line_give_up(l, rc) : rc;
}

/* Leave and grant the office to the heir, in one step.  On failure nothing has
 * changed, or the reply was lost: the znode is to be deleted then. */
static int line_grant(zke_line *l) {
  zke_op ops[2];
  if (l->state != ZKE_LINE_HELD || !l->grant) return ZKE_NONODE;
  zke_op_set(&ops[0], l->heir, l->grant, l->grant_len, l->heir_version);
  zke_op_delete(&ops[1], l->znode, -1);
  return zke_recipe_multi(l->r.z, ops, 2, NULL);
}

/* Leave together with what goes with the office, in one step.  On failure as
 * line_grant(). */
static int line_leave_both(zke_line *l) {
  zke_op ops[2];
  zke_op_delete(&ops[0], l->znode, -1);
  zke_op_delete(&ops[1], l->also, -1);
  return zke_recipe_multi(l->r.z, ops, 2, NULL);
}

/* Delete one's znode or znodes, now or later.  What goes with the office has a
 * name that others use as well: where it is by now that of another candidate on
 * this handle, that one writes it again (election_keep_word()). */
static int line_discard_own(zke_line *l) {
  int rc = ZKE_OK, also = ZKE_OK;
  if (l->own)
    rc = zke_recipe_discard_all(l->r.z, l->own);
  else if (l->znode)
    rc = zke_recipe_discard(l->r.z, l->znode, ZKE_EPHEMERAL, l->czxid);
  if (l->also) also = zke_recipe_discard(l->r.z, l->also, ZKE_EPHEMERAL, 0);
  return rc == ZKE_OK ? also : rc;
}

int zke_line_quit(zke_line *l) {
  zke_sentence kept;
  line_unwatch_own(l);
  int rc = l->also ? line_leave_both(l) : line_grant(l);
  if (rc != ZKE_OK) rc = line_discard_own(l);
  if (rc != ZKE_OK) zke_recipe_keep(&kept);
  if (l->kind == ZKE_LINE_LATCH && l->state == ZKE_LINE_HELD && rc == ZKE_OK)
    line_remove_marks(l); /* the one that named it */
  line_unwatch(l);
  line_forget_own(l);
  line_change(l, ZKE_LINE_OUT, 0);
  if (l->blocking) zke_wake(l->r.z); /* another thread waits in this place */
  return rc == ZKE_OK ? ZKE_OK : zke_recipe_restore(&kept, rc);
}

/* Make a lease's znodes, all in one step; the last one is what speaks for
 * them, the others are empty. */
static int line_make_leases(zke_line *l, const char *text, int len,
                            int64_t deadline_ms) {
  int n = l->weight;
  zke_seat *seats = zke_alloc(l->r.z, (size_t)n * sizeof *seats);
  if (!seats) return ZKE_NOMEM;
  for (int i = 0; i < n; i++)
    seats[i] = (zke_seat){l->r.path, line_kinds[l->kind], "", 0};
  seats[n - 1].data = text;
  seats[n - 1].len = len;
  int rc =
      zke_recipe_create_all(l->r.z, seats, n, deadline_ms, &l->own, &l->czxid);
  zke_free(seats);
  if (rc != ZKE_OK) return rc;
  const char *last = l->own->data[n - 1];
  l->znode = zke_recipe_copy(l->r.z, last, strlen(last));
  if (l->znode) return ZKE_OK;
  zke_line_quit(l);
  return ZKE_NOMEM;
}

/* Make one's znode or znodes. */
static int line_make(zke_line *l, const char *state, int64_t deadline_ms) {
  zke_stat stat;
  int len, rc;
  char *text = line_text(l, state, &len);
  if (!text) return ZKE_NOMEM;
  if (l->kind == ZKE_LINE_LEASE) {
    rc = line_make_leases(l, text, len, deadline_ms);
  } else {
    rc = zke_recipe_create(l->r.z, l->r.path, l->place, line_kinds[l->kind],
                           text, len, ZKE_EPHEMERAL_SEQUENTIAL, deadline_ms,
                           &l->znode, &stat);
    if (rc == ZKE_OK) l->czxid = stat.czxid;
  }
  zke_free(text);
  return rc;
}

int zke_line_join(zke_line *l, bool blocking, int64_t deadline_ms) {
  if (l->state == ZKE_LINE_LOST && !l->blocking) {
    int rc = zke_line_quit(l);
    if (rc != ZKE_OK) return rc;
  }
  if (l->state != ZKE_LINE_OUT || l->blocking) {
    return zke_recipe_fail(ZKE_MISUSE, "this %s %s object is in use",
                           l->r.class_->name, l->r.path);
  }
  l->actor = zke_line_actor();
  int rc = line_make(l, blocking ? "waiting" : "queued", deadline_ms);
  if (rc != ZKE_OK) return rc;
  l->state = ZKE_LINE_WAITING;
  rc = zke_line_step(l);
  return rc == ZKE_OK ? ZKE_OK : line_give_up(l, rc);
}

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

int zke_line_say_held(zke *z, int rc, const char *kind, const char *directory) {
  char what[256];
  zke_entries *e = NULL;
  snprintf(what, sizeof what, "the %s %s", kind, directory);
  if (line_entries(z, directory, &e, NULL) != ZKE_OK || e->count == 0) {
    zke_free(e);
    return zke_recipe_fail(rc, "%s was held, but is no longer", what);
  }
  const char *name = e->data[line_last_of_group(e, 0)].name;
  char *path = zke_recipe_path(z, directory, name);
  rc = path ? zke_recipe_say_held(z, rc, what, path) : ZKE_NOMEM;
  zke_free(path);
  zke_free(e);
  return rc;
}

/* Name who is in front. */
static int line_say_held(zke_line *l, int rc) {
  return zke_line_say_held(l->r.z, rc, l->r.class_->name, l->r.path);
}

int zke_line_try(zke_line *l) {
  int rc = zke_line_join(l, false, ZKE_FOREVER);
  if (rc != ZKE_OK || l->state == ZKE_LINE_HELD) return rc;
  rc = l->state == ZKE_LINE_LOST ? line_lost(l) : line_say_held(l, ZKE_HELD);
  return line_give_up(l, rc);
}

/* ---- another entry in one's place ---- */

/* One step: a new entry is made, the victim's and one's own old one go. */
typedef struct line_leap {
  zke_line *l;
  const char *victim; /* or NULL */
  const char *text;
  int len;
  znode_creation made; /* the new entry, as znode_recover() looks for it */
} line_leap;

static int line_try_leap(zke *z, void *arg) {
  line_leap *j = arg;
  zke_op ops[3];
  zke_op_result results[3] = {{0}};
  int n = 0;
  int rc = j->made.unsure ? znode_recover(z, &j->made) : ZKE_NONODE;
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
  j->made.unsure = j->made.unsure || rc == ZKE_CONNECTIONLOSS;
  return rc;
}

/* Make the leap.  One whose outcome cannot be told has not been made: then the
 * new znode goes. */
static int line_leap_make(zke_line *l, line_leap *j) {
  char *text = line_text(l, "held", &j->len);
  if (!text) return ZKE_NOMEM;
  j->text = text;
  int rc = zke_retry(l->r.z, line_try_leap, j, ZKE_FOREVER);
  if (rc != ZKE_OK && j->made.unsure) rc = znode_settle(l->r.z, &j->made, rc);
  zke_free(text);
  return rc;
}

/* Leap; afterwards the new znode is one's own.  suffix: its number, or "" for
 * the next one. */
static int line_leap_over(zke_line *l, int kind, const char *suffix,
                          const char *victim) {
  line_leap j = {.l = l, .victim = victim};
  j.made.directory = l->r.path;
  j.made.kind = line_kinds[kind];
  j.made.mode = *suffix ? ZKE_EPHEMERAL : ZKE_EPHEMERAL_SEQUENTIAL;
  int rc = znode_name(l->r.z, &j.made, suffix);
  line_unwatch_own(l);
  if (rc == ZKE_OK) rc = line_leap_make(l, &j);
  zke_free(j.made.given);
  if (rc != ZKE_OK) return line_watch_again(l, rc);
  line_unwatch(l);
  line_forget_own(l);
  l->znode = j.made.path;
  l->kind = kind == ZKE_LINE_FRONT ? l->kind : kind;
  l->czxid = j.made.stat.czxid;
  return ZKE_OK;
}

int zke_line_jump(zke_line *l, const char *victim) {
  uint64_t before = l->actor;
  l->actor = zke_line_actor(); /* whoever had joined: this thread will hold */
  int rc = line_leap_over(l, ZKE_LINE_FRONT, "", victim);
  if (rc != ZKE_OK) l->actor = before;
  if (rc != ZKE_OK) return rc;
  l->state = ZKE_LINE_WAITING;
  rc = zke_line_step(l);
  return rc == ZKE_OK ? ZKE_OK : line_give_up(l, rc);
}

typedef struct line_legacy {
  zke_line *l;
  const char *heir; /* its znode */
  const char *word; /* another znode that goes, or NULL */
  bool unsure;
} line_legacy;

/* In one step: mark the heir, wake it by a write of what it says anyway, and
 * go.  ZKE_BADVERSION: something has changed meanwhile. */
static int line_bequeath(zke *z, const line_legacy *y, const char *mark,
                         const zke_op_result *heir) {
  zke_op ops[4];
  zke_op_result results[4] = {{0}};
  int n = 0;
  int rc = y->word ? zke_exists(z, y->word, NULL, NULL, NULL) : ZKE_NONODE;
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  zke_op_create(&ops[n++], mark, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_set(&ops[n++], y->heir, heir->data, heir->len, heir->stat.version);
  zke_op_delete(&ops[n++], y->l->znode, -1);
  if (rc == ZKE_OK) zke_op_delete(&ops[n++], y->word, -1);
  rc = zke_recipe_multi(z, ops, n, results);
  if (results[3].rc == ZKE_NONODE) rc = ZKE_BADVERSION;
  zke_results_clear(results, n);
  return rc;
}

static int line_try_yield(zke *z, void *arg) {
  line_legacy *y = arg;
  zke_op_result got = {0};
  zke_entry heir;
  char name[64];
  if (y->unsure) {
    int rc = zke_exists(z, y->l->znode, NULL, NULL, NULL);
    if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  }
  int rc = zke_get(z, y->heir, NULL, NULL, &got.data, &got.len, &got.stat);
  if (rc != ZKE_OK) return rc;
  znode_parse(text_name(y->heir), line_kinds, ZKE_LINE_KINDS, &heir);
  snprintf(name, sizeof name, "%.40s%s%010" PRId32, text_name(y->heir),
           line_kinds[ZKE_LINE_NEXT], heir.number);
  char *mark = zke_recipe_path(z, y->l->r.path, name);
  rc = mark ? line_bequeath(z, y, mark, &got) : ZKE_NOMEM;
  zke_free(mark);
  zke_free(got.data);
  y->unsure = y->unsure || rc == ZKE_CONNECTIONLOSS;
  return rc;
}

int zke_line_yield(zke_line *l, const char *heir, const char *word) {
  line_legacy y = {.l = l, .word = word};
  if (l->state != ZKE_LINE_HELD) return zke_line_check(l);
  char *path = zke_recipe_path(l->r.z, l->r.path, heir);
  if (!path) return ZKE_NOMEM;
  y.heir = path;
  line_unwatch_own(l);
  int rc = ZKE_BADVERSION;
  while (rc == ZKE_BADVERSION)
    rc = zke_retry(l->r.z, line_try_yield, &y, ZKE_FOREVER);
  zke_free(path);
  if (rc == ZKE_NONODE && zke_line_check(l) == ZKE_LOST) return ZKE_LOST;
  if (rc != ZKE_OK) return line_watch_again(l, rc);
  line_unwatch(l);
  line_forget_own(l);
  line_change(l, ZKE_LINE_OUT, 0);
  return ZKE_OK;
}

/* ---- an entry of several lines ---- */

/* Watch the nearest entry that keeps out the one at index i, in the place of
 * the one watched before. */
static int line_watch_nearest(zke_recipe *r, const char *directory,
                              const zke_entries *e, int i, char **watched) {
  int j = i - 1;
  while (!line_keeps_out(&e->data[j], &e->data[i])) j--;
  char *path = zke_recipe_path(r->z, directory, e->data[j].name);
  if (!path) return ZKE_NOMEM;
  int rc = zke_children(r->z, path, zke_recipe_watcher, r, NULL, NULL);
  if (rc != ZKE_OK) {
    zke_free(path);
    return rc == ZKE_NONODE ? ZKE_RUNTIMEINCONSISTENCY : rc;
  }
  if (*watched && strcmp(*watched, path) != 0)
    zke_remove_watch(r->z, *watched, ZKE_WATCH_CHILD, zke_recipe_watcher, r);
  zke_free(*watched);
  *watched = path;
  return 1;
}

int zke_line_turn(zke_recipe *r, const char *directory, const char *znode,
                  char **watched, int64_t *pzxid) {
  int rc = ZKE_RUNTIMEINCONSISTENCY;
  while (rc == ZKE_RUNTIMEINCONSISTENCY) {
    zke_entries *e = NULL;
    zke_stat stat;
    rc = line_entries(r->z, directory, &e, &stat);
    if (rc != ZKE_OK) return rc;
    int i = zke_recipe_find(e, text_name(znode));
    if (i < 0)
      rc = ZKE_NONODE;
    else if (line_keepers(e, i) > 0)
      rc = line_watch_nearest(r, directory, e, i, watched);
    zke_free(e);
    if (rc != ZKE_OK) continue;
    *pzxid = stat.pzxid;
    zke_free(*watched); /* it has fired */
    *watched = NULL;
  }
  return rc;
}

int zke_line_convert(zke_line *l, int kind) {
  char suffix[16];
  zke_entry own;
  if (l->state != ZKE_LINE_HELD ||
      !znode_parse(text_name(l->znode), line_kinds, ZKE_LINE_KINDS, &own)) {
    return zke_line_check(l);
  }
  snprintf(suffix, sizeof suffix, "%010" PRId32, own.number);
  int rc = line_leap_over(l, kind, suffix, NULL);
  if (rc == ZKE_NONODE) line_lose(l);
  if (rc == ZKE_OK) l->token = l->czxid;
  return rc == ZKE_NONODE ? line_lost(l) : rc == ZKE_OK ? zke_line_step(l) : rc;
}

/* ---- deadlocks ----
 *
 * An actor that waits in a blocking call is stuck while the entries that keep
 * it out belong to actors that are stuck.  From one's own wait the search
 * follows the keepers' actors to what these wait for, and so on; then it
 * crosses out who can still go on, until nobody else can.  What is left and
 * lies on a way from oneself back to oneself is a deadlock; the youngest wait
 * of it gives up.  An actor that waits in several places at once, for a
 * multi-lock, is stuck when it is in one of them.  The last to begin its wait
 * sees all the others, so one look at that moment suffices.
 *
 * For whoever looks from outside the same graph has everybody's waits, and
 * those of entries that wait without a blocking call: these are never stuck. */

typedef struct line_wait {
  char *directory, *name;
  uint64_t actor;
  int64_t since, session; /* since: the zxid of beginning to wait */
  int64_t since_ms;       /* of its znode */
  int room;   /* entries of others that may stay: stuck with this many */
  bool kept;  /* its place keeps it out */
  bool loose; /* not in a blocking call */
  bool stuck, from_me, to_me;
  int next;    /* on the way to me */
  bool doomed; /* stuck, when the circles are looked for among these */
  int circle;  /* which, from 1 on; 0: none */
} line_wait;

/* waits[from] is kept out by `weight` entries of an actor, who may wait too,
 * in one place or in several; 0: one that can go on. */
typedef struct line_edge {
  int from, weight;
  uint64_t actor; /* 0: the data does not tell; can go on */
  char *path;     /* of the keeper's znode */
  int64_t session;
} line_edge;

typedef struct line_graph {
  zke *z;
  uint64_t me;
  bool all; /* everybody's waits */
  line_wait *waits;
  line_edge *edges;
  int wait_count, wait_cap, edge_count, edge_cap;
  /* Sessions are read once, whole: one may have hundreds of actors, each at
   * the end of another's wait.  What is moved to waits has no name here. */
  line_wait *known;
  int64_t *sessions;
  int known_count, known_cap, session_count, session_cap;
  /* the line that was looked at last; NULL: none */
  const char *directory;
  zke_entries *entries;
  int limit;
} line_graph;

/* Room for one more in a growing array of the graph. */
static bool line_room(zke *z, void **array, int count, int *cap, size_t size) {
  if (count < *cap) return true;
  int more = *cap ? *cap * 2 : 16;
  char *grown = zke_alloc(z, (size_t)more * size);
  if (!grown) return false;
  if (count) memcpy(grown, *array, (size_t)count * size);
  zke_free(*array);
  *array = grown;
  *cap = more;
  return true;
}

static void line_free_waits(line_wait *waits, int count) {
  for (int i = 0; i < count; i++) {
    zke_free(waits[i].directory);
    zke_free(waits[i].name);
  }
  zke_free(waits);
}

static void line_free_graph(line_graph *g) {
  line_free_waits(g->waits, g->wait_count);
  line_free_waits(g->known, g->known_count);
  for (int i = 0; i < g->edge_count; i++) zke_free(g->edges[i].path);
  zke_free(g->sessions);
  zke_free(g->edges);
  zke_free(g->entries);
}

static int line_add_edge(line_graph *g, line_edge edge) {
  void *array = g->edges;
  if (!line_room(g->z, &array, g->edge_count, &g->edge_cap, sizeof *g->edges))
    return ZKE_NOMEM;
  g->edges = array;
  g->edges[g->edge_count++] = edge;
  return ZKE_OK;
}

static int line_add_known(line_graph *g, const char *path, const line_words *is,
                          const zke_stat *stat) {
  void *array = g->known;
  if (!line_room(g->z, &array, g->known_count, &g->known_cap, sizeof *g->known))
    return ZKE_NOMEM;
  g->known = array;
  line_wait *w = &g->known[g->known_count];
  *w = (line_wait){.actor = is->actor,
                   .since = stat->mzxid,
                   .session = stat->ephemeralOwner,
                   .since_ms = stat->ctime,
                   .loose = !is->waiting || !is->actor,
                   .room = 1,
                   .next = -1};
  const char *name = text_name(path);
  w->directory = zke_recipe_copy(g->z, path, (size_t)(name - path) - 1);
  w->name = zke_recipe_copy(g->z, name, strlen(name));
  g->known_count++;
  return w->directory && w->name ? ZKE_OK : ZKE_NOMEM;
}

/* Moves it. */
static int line_add_wait(line_graph *g, line_wait *known) {
  void *array = g->waits;
  if (!line_room(g->z, &array, g->wait_count, &g->wait_cap, sizeof *g->waits))
    return ZKE_NOMEM;
  g->waits = array;
  g->waits[g->wait_count++] = *known;
  known->directory = known->name = NULL;
  return ZKE_OK;
}

/* news: out, it was not there. */
static int line_add_session(line_graph *g, int64_t session, bool *news) {
  void *array = g->sessions;
  *news = false;
  for (int i = 0; i < g->session_count; i++)
    if (g->sessions[i] == session) return ZKE_OK;
  if (!line_room(g->z, &array, g->session_count, &g->session_cap,
                 sizeof *g->sessions))
    return ZKE_NOMEM;
  g->sessions = array;
  g->sessions[g->session_count++] = session;
  *news = true;
  return ZKE_OK;
}

/* Whatever has such a name in "/" is in no line. */
static bool line_is_entry(const char *path) {
  zke_entry e;
  const char *name = text_name(path);
  return name > path + 1 && znode_parse(name, line_kinds, ZKE_LINE_KINDS, &e);
}

static bool line_has_wait(const line_graph *g, uint64_t actor) {
  for (int i = 0; i < g->wait_count; i++) {
    if (g->waits[i].actor == actor) return true;
  }
  return false;
}

/* An entry of a session, if somebody waits by it.  What one got at once looks
 * as if; but nobody keeps it out. */
static int line_read_entry(line_graph *g, const char *path) {
  char *data = NULL;
  int len;
  zke_stat stat;
  if (!line_is_entry(path)) return ZKE_OK;
  int rc = zke_get(g->z, path, NULL, NULL, &data, &len, &stat);
  line_words w = line_read(rc == ZKE_OK ? data : NULL, len);
  if (rc == ZKE_OK && (g->all ? !w.held : w.waiting))
    rc = line_add_known(g, path, &w, &stat);
  zke_free(data);
  return rc == ZKE_NONODE || rc == ZKE_NOAUTH ? ZKE_OK : rc;
}

static int line_read_session(line_graph *g, int64_t session) {
  zke_strings *paths = NULL;
  bool news;
  int rc = line_add_session(g, session, &news);
  if (rc != ZKE_OK || !news) return rc;
  rc = zke_ephemerals(g->z, session, NULL, &paths);
  for (int i = 0; rc == ZKE_OK && i < paths->count; i++)
    rc = line_read_entry(g, paths->data[i]);
  zke_free(paths);
  return rc;
}

/* Add all the places where an actor of a session waits, or anybody of it where
 * all are wanted. */
static int line_find_waits(line_graph *g, int64_t session, uint64_t actor) {
  if (!g->all && line_has_wait(g, actor)) return ZKE_OK;
  int rc = line_read_session(g, session);
  for (int i = 0; i < g->known_count && rc == ZKE_OK; i++) {
    line_wait *w = &g->known[i];
    if (w->name && w->session == session && (g->all || w->actor == actor))
      rc = line_add_wait(g, w);
  }
  return rc;
}

/* Add the edge to one keeper.  One that has gone meanwhile keeps nobody out,
 * and whoever it kept out is told. */
static int line_add_keeper(line_graph *g, line_edge edge, const char *name,
                           bool *waiting) {
  char *path = zke_recipe_path(g->z, g->waits[edge.from].directory, name);
  char *data = NULL;
  int len;
  zke_stat stat;
  if (!path) return ZKE_NOMEM;
  int rc = zke_get(g->z, path, NULL, NULL, &data, &len, &stat);
  line_words w = line_read(rc == ZKE_OK ? data : NULL, len);
  if (rc == ZKE_OK && w.actor && !g->all)
    rc = line_find_waits(g, stat.ephemeralOwner, w.actor);
  *waiting = w.waiting;
  if (rc == ZKE_OK) {
    edge.actor = w.actor;
    edge.path = path;
    edge.session = stat.ephemeralOwner;
    rc = line_add_edge(g, edge);
  }
  if (rc != ZKE_OK) zke_free(path);
  if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) rc = ZKE_OK;
  zke_free(data);
  return rc;
}

/* Add the edges of the wait at index i of a line.  Where every entry stands
 * for itself, it is enough to go back over `limit` of those that wait too:
 * they are kept out by all that stand before them.  For a wait that is never
 * stuck, over as many of any. */
static int line_follow_entry(line_graph *g, int at, const zke_entries *e, int i,
                             int limit) {
  int own = line_group_before(e, i) + 1, weight, rc = ZKE_OK;
  int left = own > 1 ? INT_MAX : limit;
  bool any = g->waits[at].loose;
  g->waits[at].room = limit - own + 1;
  for (int j = i - own; j >= 0 && left > 0 && rc == ZKE_OK; j -= weight) {
    bool waiting = false;
    weight = line_group_before(e, j) + 1;
    if (weight > 1) left = INT_MAX;
    if (!line_keeps_out(&e->data[j], &e->data[i])) continue;
    rc = line_add_keeper(g, (line_edge){.from = at, .weight = weight},
                         e->data[j].name, &waiting);
    left -= (waiting || any) && e->data[j].kind != ZKE_LINE_READ;
  }
  return rc;
}

/* Look at the line of a wait.  Many that wait in one line are looked up in what
 * the first one saw: whoever joined since looks for itself. */
static int line_look_at(line_graph *g, const char *directory) {
  zke_stat stat;
  if (g->directory && strcmp(g->directory, directory) == 0) return ZKE_OK;
  zke_free(g->entries);
  g->entries = NULL;
  g->directory = NULL;
  int rc = line_survey(g->z, directory, &g->entries, &stat, &g->limit);
  if (rc == ZKE_OK) g->directory = directory;
  return rc;
}

/* Add the edges of one wait, if its place keeps it out. */
static int line_follow(line_graph *g, int at) {
  int rc = line_look_at(g, g->waits[at].directory);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  const zke_entries *e = g->entries;
  int i = zke_recipe_find(e, g->waits[at].name);
  if (i < 0 || line_last_of_group(e, i) != i) return ZKE_OK;
  g->waits[at].kept = line_keepers(e, i) >= g->limit;
  return g->waits[at].kept ? line_follow_entry(g, at, e, i, g->limit) : ZKE_OK;
}

/* An actor is stuck when it is in any of the places where it waits. */
static bool line_is_stuck(const line_graph *g, uint64_t actor) {
  for (int i = 0; i < g->wait_count; i++) {
    if (g->waits[i].actor == actor && g->waits[i].stuck) return true;
  }
  return false;
}

/* How many of a wait's keepers are stuck. */
static int line_stuck_keepers(const line_graph *g, int at) {
  int count = 0;
  for (int i = 0; i < g->edge_count; i++) {
    const line_edge *e = &g->edges[i];
    if (e->from == at && line_is_stuck(g, e->actor)) count += e->weight;
  }
  return count;
}

/* Cross out whoever can go on, until nobody can: one goes on when few enough
 * keepers stay for ever.  The last found first: it is at the end of a chain. */
static void line_cross_out(line_graph *g) {
  for (int i = 0; i < g->wait_count; i++)
    g->waits[i].stuck = !g->waits[i].loose;
  for (bool again = true; again;) {
    again = false;
    for (int i = g->wait_count - 1; i >= 0; i--) {
      if (!g->waits[i].stuck) continue;
      if (line_stuck_keepers(g, i) >= g->waits[i].room) continue;
      g->waits[i].stuck = false;
      again = true;
    }
  }
}

/* Note that from wait a one comes to wait b.  True: that is news. */
static bool line_mark_step(line_graph *g, int a, int b) {
  line_wait *from = &g->waits[a], *to = &g->waits[b];
  bool news = (from->from_me && !to->from_me) || (!from->to_me && to->to_me);
  to->from_me = to->from_me || from->from_me;
  from->to_me = from->to_me || to->to_me;
  if (to->to_me && from->next < 0) from->next = b;
  return news;
}

/* Mark what lies on a way from one's own waits and what on a way to them. */
static void line_mark_ways(line_graph *g) {
  for (int i = 0; i < g->wait_count; i++) {
    line_wait *w = &g->waits[i];
    w->from_me = w->to_me = w->stuck && w->actor == g->me;
    w->next = -1;
  }
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < g->edge_count; i++) {
      const line_edge *e = &g->edges[i];
      if (!g->waits[e->from].stuck) continue;
      for (int j = 0; j < g->wait_count; j++) {
        if (g->waits[j].actor != e->actor || !g->waits[j].stuck) continue;
        if (line_mark_step(g, e->from, j)) again = true;
      }
    }
  }
}

/* Did I begin to wait later than all others of the circles that I am in? */
static bool line_is_youngest(const line_graph *g) {
  int64_t mine = 0, others = 0;
  for (int i = 0; i < g->wait_count; i++) {
    const line_wait *w = &g->waits[i];
    bool me = w->actor == g->me;
    if (me && w->since > mine) mine = w->since;
    if (me || !w->stuck || !w->from_me || !w->to_me) continue;
    if (w->since > others) others = w->since;
  }
  return mine > others;
}

/* Which of my waits is in a deadlock, with me as the youngest of it?  -1:
 * none.  One that is stuck behind a deadlock, but not in it, is no victim. */
static int line_victim(line_graph *g) {
  line_cross_out(g);
  line_mark_ways(g);
  for (int i = 0; i < g->wait_count && line_is_youngest(g); i++) {
    const line_wait *w = &g->waits[i];
    if (w->stuck && w->actor == g->me && w->next >= 0) return i;
  }
  return -1;
}

/* "I wait for /a held by x (pid 1), who waits for /b held by …". */
static int line_say_deadlock(const line_graph *g, int at) {
  char text[420] = "";
  size_t used = 0;
  for (int steps = 0; steps <= g->wait_count && used < sizeof text; steps++) {
    const line_wait *w = &g->waits[at], *next = &g->waits[w->next];
    bool me = next->actor == g->me;
    zke_session_list *who = NULL;
    zke_session(g->z, next->session, &who);
    int n = snprintf(text + used, sizeof text - used, "%s%s held by %s",
                     used ? ", who waits for " : "", w->directory,
                     me    ? "this thread"
                     : who ? who->data[0].identity
                           : "another");
    if (who && !me && n > 0 && used + (size_t)n < sizeof text) {
      used += (size_t)n;
      n = snprintf(text + used, sizeof text - used, " (pid %" PRId64 ")",
                   who->data[0].pid);
    }
    zke_free(who);
    used += n > 0 ? (size_t)n : 0;
    at = w->next;
    if (me) break;
  }
  return zke_recipe_fail(ZKE_DEADLOCK, "deadlock: this call waits for %s",
                         text);
}

/* Does this session hold or wait for anything but one's own entries?  If not,
 * nobody can wait for it. */
static bool line_is_alone(zke *z, int own) {
  zke_strings *paths = NULL;
  int entries = 0;
  if (zke_ephemerals(z, 0, NULL, &paths) != ZKE_OK) return false;
  for (int i = 0; i < paths->count; i++)
    entries += line_is_entry(paths->data[i]);
  zke_free(paths);
  return entries <= own;
}

/* Is this wait one of the circles that I am in? */
static bool line_in_circle(const line_wait *w) {
  return w->stuck && w->from_me && w->to_me;
}

/* The znodes that make the circles, for one snapshot: where the waits are, and
 * who keeps these out. */
typedef struct line_proof {
  char **paths;
  zke_op *ops;
  zke_op_result *read;
  int64_t *mzxid; /* of a wait; 0: of a keeper, which has to exist */
  int count;
} line_proof;

static void line_free_proof(line_proof *p) {
  for (int i = 0; i < p->count; i++) zke_free(p->paths[i]);
  if (p->read) zke_results_clear(p->read, p->count);
  zke_free(p->paths);
  zke_free(p->ops);
  zke_free(p->read);
  zke_free(p->mzxid);
}

/* One more znode; the path becomes the proof's. */
static bool line_add_proof(line_proof *p, char *path, int64_t mzxid) {
  if (!path) return false;
  p->paths[p->count] = path;
  p->mzxid[p->count] = mzxid;
  zke_op_get(&p->ops[p->count++], path);
  return true;
}

static bool line_list_proof(const line_graph *g, line_proof *p) {
  size_t most = (size_t)g->wait_count + (size_t)g->edge_count;
  p->paths = zke_alloc(g->z, most * sizeof *p->paths);
  p->ops = zke_alloc(g->z, most * sizeof *p->ops);
  p->read = zke_alloc(g->z, most * sizeof *p->read);
  p->mzxid = zke_alloc(g->z, most * sizeof *p->mzxid);
  bool ok = p->paths && p->ops && p->read && p->mzxid;
  for (int i = 0; ok && i < g->wait_count; i++) {
    const line_wait *w = &g->waits[i];
    if (!line_in_circle(w)) continue;
    ok = line_add_proof(p, zke_recipe_path(g->z, w->directory, w->name),
                        w->since);
  }
  for (int i = 0; ok && i < g->edge_count; i++) {
    const char *path = g->edges[i].path;
    if (!line_in_circle(&g->waits[g->edges[i].from])) continue;
    ok = line_add_proof(p, zke_recipe_copy(g->z, path, strlen(path)), 0);
  }
  return ok;
}

/* The circle was put together from several looks, between which somebody may
 * have released one lock and begun to wait for another.  It is a deadlock only
 * if all of it is there at one moment: then nobody in it can go on.  *so: it
 * is. */
static int line_confirm(const line_graph *g, bool *so) {
  line_proof p = {0};
  int rc = line_list_proof(g, &p)
               ? zke_recipe_multi_read(g->z, p.ops, p.count, p.read)
               : ZKE_NOMEM;
  *so = rc == ZKE_OK;
  for (int i = 0; *so && i < p.count; i++) {
    *so = p.read[i].rc == ZKE_OK &&
          (!p.mzxid[i] || p.mzxid[i] == p.read[i].stat.mzxid);
  }
  line_free_proof(&p);
  return rc;
}

/* One look; *again: what it saw has changed meanwhile. */
static int line_detect_once(zke *z, uint64_t actor, bool *again) {
  line_graph g = {.z = z, .me = actor};
  bool so = true;
  int rc = line_find_waits(&g, zke_session_id(z), actor);
  for (int i = 0; i < g.wait_count && rc == ZKE_OK; i++)
    rc = line_follow(&g, i);
  int victim = rc == ZKE_OK ? line_victim(&g) : -1;
  if (victim >= 0) rc = line_confirm(&g, &so);
  if (victim >= 0 && rc == ZKE_OK && so) rc = line_say_deadlock(&g, victim);
  line_free_graph(&g);
  *again = !so;
  return rc;
}

int zke_line_detect(zke *z, uint64_t actor, int own) {
  bool again = true;
  int rc = ZKE_OK;
  if (line_is_alone(z, own)) return ZKE_OK;
  while (again && rc == ZKE_OK) rc = line_detect_once(z, actor, &again);
  return rc;
}

/* Look for a deadlock that one's own joining has closed. */
static int line_detect(const zke_line *l) {
  if (l->no_check) return ZKE_OK;
  return zke_line_detect(l->r.z, l->actor, l->weight);
}

/* ---- the graph of waits, for those who look ---- */

/* The youngest first: crossing out begins at the other end, where those stand
 * who can go on soonest. */
static int line_compare_waits(const void *a, const void *b) {
  const line_wait *x = a, *y = b;
  return (x->since < y->since) - (x->since > y->since);
}

/* Does anybody who is stuck wait for this one's actor? */
static bool line_is_waited_for(const line_graph *g, int at) {
  for (int i = 0; i < g->edge_count; i++) {
    const line_edge *e = &g->edges[i];
    if (e->actor == g->waits[at].actor && g->waits[e->from].stuck) return true;
  }
  return false;
}

/* Of those that are stuck leave the circles and what is between them: who is
 * behind one, with nobody behind, is crossed out.  The youngest first. */
static void line_leave_circles(line_graph *g) {
  for (int i = 0; i < g->wait_count; i++)
    g->waits[i].doomed = g->waits[i].stuck;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < g->wait_count; i++) {
      if (!g->waits[i].stuck || line_is_waited_for(g, i)) continue;
      g->waits[i].stuck = false;
      again = true;
    }
  }
}

/* Number the circles, the one with the oldest wait first. */
static void line_number_circles(line_graph *g) {
  int count = 0;
  line_cross_out(g);
  line_leave_circles(g);
  for (int i = g->wait_count - 1; i >= 0; i--) {
    if (!g->waits[i].stuck || g->waits[i].circle) continue;
    g->me = g->waits[i].actor;
    line_mark_ways(g);
    if (g->waits[i].next < 0) continue;
    count++;
    for (int j = 0; j < g->wait_count; j++) {
      line_wait *w = &g->waits[j];
      if (w->stuck && w->from_me && w->to_me && w->next >= 0) w->circle = count;
    }
  }
}

/* The session's entry, or NULL where it has just ended or begun. */
static const zke_session_info *line_who(const zke_session_list *who,
                                        int64_t session) {
  for (int i = 0; i < who->count; i++) {
    if (who->data[i].id == session) return &who->data[i];
  }
  return NULL;
}

static size_t line_wait_size(const line_wait *w, const zke_session_list *who) {
  const zke_session_info *info = line_who(who, w->session);
  return sizeof(zke_wait_info) + strlen(w->directory) + 1 + strlen(w->name) +
         1 + strlen(info ? info->identity : "") + 1;
}

/* Where the parts of a list go, which is one block. */
typedef struct line_block {
  zke_wait_info *waits;
  zke_keeper *keepers;
  char *text;
} line_block;

static const char *line_put_text(line_block *b, const char *text) {
  size_t size = strlen(text) + 1;
  char *put = memcpy(b->text, text, size);
  b->text += size;
  return put;
}

/* The edges of one wait, from the one at index `first` on, as keepers; returns
 * how many edges it has. */
static int line_put_keepers(line_block *b, const line_graph *g, int first) {
  int i = first;
  for (; i < g->edge_count && g->edges[i].from == g->edges[first].from; i++) {
    const line_edge *e = &g->edges[i];
    *b->keepers++ = (zke_keeper){.path = line_put_text(b, e->path),
                                 .session = e->session,
                                 .actor = e->actor};
  }
  return i - first;
}

static void line_put_wait(line_block *b, const line_wait *w,
                          const zke_session_list *who) {
  const zke_session_info *info = line_who(who, w->session);
  char *path = b->text;
  b->text += sprintf(path, "%s/%s", w->directory, w->name) + 1;
  *b->waits++ =
      (zke_wait_info){.path = path,
                      .session = w->session,
                      .actor = w->actor,
                      .since_ms = w->since_ms,
                      .identity = line_put_text(b, info ? info->identity : ""),
                      .pid = info ? info->pid : 0,
                      .blocking = !w->loose,
                      .stuck = w->doomed,
                      .circle = w->circle,
                      .keepers = b->keepers};
}

/* Edges stand in the order of their waits. */
static zke_wait_list *line_list_waits(const line_graph *g,
                                      const zke_session_list *who) {
  size_t size = sizeof(zke_wait_list);
  for (int i = 0; i < g->wait_count; i++)
    size += line_wait_size(&g->waits[i], who);
  for (int i = 0; i < g->edge_count; i++)
    size += sizeof(zke_keeper) + strlen(g->edges[i].path) + 1;
  zke_wait_list *list = zke_alloc(g->z, size);
  if (!list) return NULL;
  line_block b = {.waits = (zke_wait_info *)(void *)(list + 1)};
  list->data = b.waits;
  b.keepers = (zke_keeper *)(void *)(b.waits + g->wait_count);
  b.text = (char *)(b.keepers + g->edge_count);
  for (int i = 0, edge = 0; i < g->wait_count; i++) {
    int first = edge;
    while (edge < g->edge_count && g->edges[edge].from == i) edge++;
    if (!g->waits[i].kept) continue;
    line_put_wait(&b, &g->waits[i], who);
    b.waits[-1].keeper_count =
        first < edge ? line_put_keepers(&b, g, first) : 0;
    list->count++;
  }
  return list;
}

int zke_line_waits(zke *z, zke_wait_list **list_out) {
  line_graph g = {.z = z, .all = true};
  zke_session_list *who = NULL;
  zke_wait_list *list = NULL;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_sessions(z, &who);
  for (int i = 0; rc == ZKE_OK && i < who->count; i++)
    rc = line_find_waits(&g, who->data[i].id, 0);
  if (g.wait_count)
    qsort(g.waits, (size_t)g.wait_count, sizeof *g.waits, line_compare_waits);
  for (int i = 0; rc == ZKE_OK && i < g.wait_count; i++)
    rc = line_follow(&g, i);
  if (rc == ZKE_OK) {
    line_number_circles(&g);
    list = line_list_waits(&g, who);
    rc = list ? ZKE_OK : ZKE_NOMEM;
  }
  zke_free(who);
  line_free_graph(&g);
  if (rc == ZKE_OK) *list_out = list;
  return rc;
}

/* ---- the blocking call ---- */

static int line_is_done(zke_recipe *r) {
  zke_line *l = (zke_line *)r;
  return l->state == ZKE_LINE_HELD      ? ZKE_OK
         : l->state == ZKE_LINE_WAITING ? 1
                                        : line_lost(l);
}

/* One has joined without blocking and blocks now. */
static int line_begin_blocking(zke_line *l) {
  zke_stat stat;
  l->actor = zke_line_actor();
  int rc = line_set(l, "waiting", -1, &stat);
  if (rc == ZKE_NONODE) line_lose(l);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

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
  return rc == ZKE_OK ? ZKE_OK : line_give_up(l, rc);
}

/* ---- what a recipe that is a line is made of ---- */

int zke_line_release(zke_line *l) {
  if (l->state == ZKE_LINE_WAITING || l->state == ZKE_LINE_HELD)
    return zke_line_quit(l);
  if (l->state == ZKE_LINE_LOST) zke_line_quit(l);
  return zke_line_check(l); /* says that it is not held */
}

int zke_line_check_op(zke_line *l, zke_op *op) {
  if (l->state != ZKE_LINE_HELD) return zke_line_check(l);
  zke_op_check(op, l->znode, -1);
  return ZKE_OK;
}

int zke_line_on_step(zke_recipe *r) { return zke_line_step((zke_line *)r); }

void zke_line_on_event(zke_recipe *r, int type, const char *path) {
  (void)type;
  zke_line_event((zke_line *)r, path);
}

void zke_line_on_ended(zke_recipe *r) { zke_line_ended((zke_line *)r); }
void zke_line_on_quit(zke_recipe *r) { zke_line_quit((zke_line *)r); }
void zke_line_on_destroy(zke_recipe *r) { zke_line_free((zke_line *)r); }

/* Entered with rc: see to the place. */
static int line_enter(zke_line *l, int rc) {
  if (rc != ZKE_OK || l->placed) return rc;
  rc = zke_recipe_place(l->r.z, l->r.path, l->place, ZKE_CONTAINER, NULL,
                        ZKE_FOREVER);
  if (rc != ZKE_OK) return zke_recipe_leave(&l->r, rc);
  l->placed = true;
  return ZKE_OK;
}

int zke_line_enter(zke_line *l) {
  return line_enter(l, zke_recipe_enter((zke_recipe *)l));
}

int zke_line_enter_by(zke_line *l, int64_t deadline_ms) {
  return line_enter(l, zke_recipe_enter_by((zke_recipe *)l, deadline_ms));
}

int zke_line_ask_state(zke_line *l) {
  if (zke_recipe_enter((zke_recipe *)l) != ZKE_OK) return ZKE_LINE_LOST;
  int state = l->state;
  zke_recipe_leave(&l->r, ZKE_OK);
  return state;
}

int64_t zke_line_ask_token(zke_line *l) {
  if (zke_recipe_enter((zke_recipe *)l) != ZKE_OK) return 0;
  int64_t token = l->token;
  zke_recipe_leave(&l->r, ZKE_OK);
  return token;
}

int zke_line_ask(zke_line *l) {
  int rc = zke_recipe_enter((zke_recipe *)l);
  return rc == ZKE_OK ? zke_recipe_leave(&l->r, zke_line_check(l)) : rc;
}

int zke_line_ask_op(zke_line *l, zke_op *op) {
  if (!op) return zke_recipe_fail(ZKE_BADARGUMENTS, "op is NULL");
  int rc = zke_recipe_enter((zke_recipe *)l);
  return rc == ZKE_OK ? zke_recipe_leave(&l->r, zke_line_check_op(l, op)) : rc;
}

/* ---- who is in a line ---- */

static size_t line_party_size(const zke_session_list *who,
                              const zke_op_result *got) {
  size_t size = strlen(who ? who->data[0].identity : "") + 1;
  return size + (got->rc == ZKE_OK && got->len > 0 ? (size_t)got->len : 0) + 1;
}

/* Fill in one party; text is where its strings go.  Returns their end. */
static char *line_fill_party(zke_party *p, const zke_entry *entry,
                             const zke_op_result *got,
                             const zke_session_list *who, bool held,
                             char *text) {
  line_words w = line_read(got->data, got->len);
  const char *identity = who ? who->data[0].identity : "";
  int len = got->len - w.head;
  size_t size = strlen(identity) + 1;
  *p = (zke_party){.kind = line_kinds[entry->kind],
                   .held = held,
                   .office = got->data && strncmp(got->data, "held ", 5) == 0,
                   .session = got->stat.ephemeralOwner,
                   .czxid = got->stat.czxid,
                   .mzxid = got->stat.mzxid,
                   .queued_ms = got->stat.ctime,
                   .pid = who ? who->data[0].pid : 0,
                   .len = len > 0 ? len : -1};
  if (entry->kind == ZKE_LINE_LEASE && p->office)
    p->held = 1; /* limit lowered */
  p->since_ms = p->held ? znode_since(&got->stat, got->data) : got->stat.ctime;
  p->identity = memcpy(text, identity, size);
  text += size;
  if (len > 0) {
    p->data = memcpy(text, got->data + w.head, (size_t)len);
    text += len;
  }
  *text++ = '\0';
  return text;
}

typedef struct line_roll {
  zke_entries *entries;
  char **paths;
  zke_op *ops;
  zke_op_result *got;
  zke_session_list **who;
  int count;
} line_roll;

static void line_free_roll(line_roll *roll) {
  for (int i = 0; i < roll->count; i++) {
    if (roll->paths) zke_free(roll->paths[i]);
    if (roll->who) zke_free(roll->who[i]);
  }
  if (roll->got) zke_results_clear(roll->got, roll->count);
  zke_free(roll->paths);
  zke_free(roll->ops);
  zke_free(roll->got);
  zke_free(roll->who);
  zke_free(roll->entries);
}

/* Read all the entries' znodes in one snapshot, and who owns them. */
static int line_call_roll(zke *z, const char *directory, line_roll *roll) {
  int n = roll->entries->count, rc = ZKE_OK;
  roll->paths = zke_alloc(z, (size_t)n * sizeof *roll->paths);
  roll->ops = zke_alloc(z, (size_t)n * sizeof *roll->ops);
  roll->got = zke_alloc(z, (size_t)n * sizeof *roll->got);
  roll->who = zke_alloc(z, (size_t)n * sizeof(zke_session_list *));
  roll->count = n;
  if (!roll->paths || !roll->ops || !roll->got || !roll->who) return ZKE_NOMEM;
  for (int i = 0; i < n; i++) {
    roll->paths[i] = zke_recipe_path(z, directory, roll->entries->data[i].name);
    if (!roll->paths[i]) return ZKE_NOMEM;
    zke_op_get(&roll->ops[i], roll->paths[i]);
  }
  rc = zke_recipe_multi_read(z, roll->ops, n, roll->got);
  for (int i = 0; i < n && rc == ZKE_OK; i++) {
    if (roll->got[i].rc != ZKE_OK) continue;
    rc = zke_session(z, roll->got[i].stat.ephemeralOwner, &roll->who[i]);
    if (rc == ZKE_NONODE) rc = ZKE_OK; /* it is about to go */
  }
  return rc;
}

static zke_party_list *line_list(zke *z, const line_roll *roll, int limit) {
  size_t size = sizeof(zke_party_list);
  for (int i = 0; i < roll->count; i++) {
    size += sizeof(zke_party) + strlen(roll->entries->data[i].name) + 1 +
            line_party_size(roll->who[i], &roll->got[i]);
  }
  zke_party_list *list = zke_alloc(z, size);
  if (!list) return NULL;
  zke_party *party = (zke_party *)(void *)(list + 1);
  char *text = (char *)(party + roll->count);
  for (int i = 0; i < roll->count; i++) {
    const zke_entry *entry = &roll->entries->data[i];
    size_t len = strlen(entry->name) + 1;
    if (roll->got[i].rc != ZKE_OK) continue;
    if (line_last_of_group(roll->entries, i) != i) continue;
    zke_party *p = &party[list->count++];
    char *name = memcpy(text, entry->name, len);
    text = line_fill_party(p, entry, &roll->got[i], roll->who[i],
                           line_keepers(roll->entries, i) < limit, text + len);
    p->name = name;
    p->permits = line_group_before(roll->entries, i) + 1;
  }
  list->data = party;
  return list;
}

int zke_line_parties(zke *z, const char *path, int limit,
                     zke_party_list **list_out) {
  line_roll roll = {0};
  zke_stat stat;
  int stated = 1;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = line_survey(z, path, &roll.entries, &stat, &stated);
  if (limit == 0) limit = stated;
  if (rc == ZKE_OK) rc = line_call_roll(z, path, &roll);
  zke_party_list *list = NULL;
  if (rc == ZKE_OK)
    list = line_list(z, &roll, limit);
  else if (rc == ZKE_NONODE)
    list = zke_alloc(z, sizeof *list);
  if (rc == ZKE_NONODE) rc = ZKE_OK;
  line_free_roll(&roll);
  if (rc == ZKE_OK && !list) rc = ZKE_NOMEM;
  if (rc == ZKE_OK) *list_out = list;
  return rc;
}
