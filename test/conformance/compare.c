/* compare.c - what must be equal, and what need not be
 *
 * Everything is compared, except what masks.h lists with the reason.  Values
 * that cannot be equal are compared by a relation if there is one: zxids, times
 * and session ids are mapped one to one, and zxids in order.
 */
#include "conformance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- coverage ---- */

enum { CODES = 128 }; /* 0 to -127 */

static int64_t seen[CF_KINDS][CODES];
static int64_t seen_events[5];  /* by type; 0: of sessions */
static int64_t seen_modes[7];   /* of new nodes */
static int64_t seen_watches[3]; /* set: one-shot, persistent, recursive */

/* Count what an operation made; exists also watches a missing node. */
static void note_made(const cf_op *op, int rc) {
  bool made = rc == ZKE_OK, absent = rc == ZKE_NONODE;
  bool known = op->mode >= 0 && op->mode < 7;
  if (made && op->kind == CF_CREATE && known) seen_modes[op->mode]++;
  if (made && op->kind == CF_ADD_WATCH) seen_watches[1 + op->type]++;
  if ((made || (absent && op->kind == CF_EXISTS)) && op->watch &&
      op->kind != CF_REMOVE_WATCH)
    seen_watches[0]++;
}

static void note_code(const cf_op *op, int rc) {
  if (rc <= 0 && rc > -CODES) seen[op->kind][-rc]++;
}

static void note_seen(const cf_op *op, const cf_reply *r) {
  note_code(op, r->rc);
  note_made(op, r->rc);
  for (int i = 0; i < r->count; i++) {
    note_code(&op->subs[i], r->subs[i].rc);
    if (r->rc == ZKE_OK) note_made(&op->subs[i], r->subs[i].rc);
  }
}

void cf_note_code(const cf_op *op, int rc) {
  note_code(op, rc);
  note_made(op, rc);
}

void cf_note_event(int type) { seen_events[type > 0 && type < 5 ? type : 0]++; }

void cf_note_end(cf_kind kind) { seen[kind][0]++; }

static void note_events(const cf_events *e) {
  for (int i = 0; i < e->count; i++) cf_note_event(e->at[i].type);
}

void cf_seen_print(void) {
  printf("  EVENTS        CREATED: %" PRId64 "  DELETED: %" PRId64
         "  CHANGED: %" PRId64 "  CHILD: %" PRId64 "  session: %" PRId64 "\n",
         seen_events[1], seen_events[2], seen_events[3], seen_events[4],
         seen_events[0]);
  printf("  MADE          by mode:");
  for (int mode = 0; mode < 7; mode++) printf(" %" PRId64, seen_modes[mode]);
  printf("\n  WATCHES       one-shot: %" PRId64 "  persistent: %" PRId64
         "  recursive: %" PRId64 "\n",
         seen_watches[0], seen_watches[1], seen_watches[2]);
  for (int kind = 0; kind < CF_KINDS; kind++) {
    int64_t total = 0;
    for (int code = 0; code < CODES; code++) total += seen[kind][code];
    if (!total) continue;
    printf("  %-12s", cf_kind_name((cf_kind)kind));
    for (int code = 0; code < CODES; code++) {
      if (seen[kind][code]) printf("  %d: %" PRId64, -code, seen[kind][code]);
    }
    printf("\n");
  }
}

/* ---- replies ---- */

static const char *differ(const char *field, int64_t server, int64_t zke_side) {
  return cf_text("%s: ZooKeeper %" PRId64 ", zkembed %" PRId64, field, server,
                 zke_side);
}

/* The difference between two Stats, or NULL: zxids and times must belong to the
 * same changes. */
const char *cf_compare_stat(cf_compare *c, const zke_stat *a,
                            const zke_stat *b) {
#define SAME(field) \
  if (a->field != b->field) return differ(#field, a->field, b->field)
  SAME(version);
  SAME(cversion);
  SAME(aversion);
  SAME(dataLength);
  SAME(numChildren);
#undef SAME
  if (!cf_same_owner(c, a->ephemeralOwner, b->ephemeralOwner))
    return differ("ephemeralOwner", a->ephemeralOwner, b->ephemeralOwner);
  cf_change *made = cf_same_change(c, a->czxid, b->czxid);
  if (!made) return differ("czxid", a->czxid, b->czxid);
  if (!cf_same_time(made, a->ctime, b->ctime))
    return differ("ctime", a->ctime, b->ctime);
  cf_change *set = cf_same_change(c, a->mzxid, b->mzxid);
  if (!set) return differ("mzxid", a->mzxid, b->mzxid);
  if (!cf_same_time(set, a->mtime, b->mtime))
    return differ("mtime", a->mtime, b->mtime);
  if (!cf_same_change(c, a->pzxid, b->pzxid))
    return differ("pzxid", a->pzxid, b->pzxid);
  return NULL;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The difference between two lists of names, in any order. */
static const char *compare_names(zke_strings *a, zke_strings *b) {
  if (a->count != b->count) return differ("names", a->count, b->count);
  if (a->count == 0) return NULL;
  qsort(a->data, (size_t)a->count, sizeof *a->data, by_text);
  qsort(b->data, (size_t)b->count, sizeof *b->data, by_text);
  cf_mask_used[CF_MASK_NAMES]++;
  for (int i = 0; i < a->count; i++) {
    if (strcmp(a->data[i], b->data[i]) != 0)
      return cf_text("names: ZooKeeper %s, zkembed %s",
                     cf_quote(a->data[i], (int)strlen(a->data[i])),
                     cf_quote(b->data[i], (int)strlen(b->data[i])));
  }
  return NULL;
}

static int compare_acl(const zke_acl *a, const zke_acl *b) {
  if (a->perms != b->perms) return a->perms < b->perms ? -1 : 1;
  int order = strcmp(a->scheme, b->scheme);
  return order ? order : strcmp(a->id, b->id);
}

static int by_acl(const void *a, const void *b) { return compare_acl(a, b); }

/* A copy with each run of digests of the same permissions sorted. */
zke_acl *cf_sorted_acls(const zke_acls *acls) {
  zke_acl *copy = cf_alloc((size_t)acls->count * sizeof *copy + 1);
  for (int i = 0; i < acls->count; i++) copy[i] = acls->data[i];
  for (int i = 0, end; i < acls->count; i = end) {
    for (end = i + 1; end < acls->count && copy[end].perms == copy[i].perms &&
                      strcmp(copy[end].scheme, "digest") == 0 &&
                      strcmp(copy[i].scheme, "digest") == 0;)
      end++;
    if (end > i + 1) cf_mask_used[CF_MASK_AUTH_ORDER]++;
    qsort(copy + i, (size_t)(end - i), sizeof *copy, by_acl);
  }
  return copy;
}

/* The difference between two lists of ACL entries, in any order. */
static const char *compare_acls(const zke_acls *a, const zke_acls *b) {
  if (a->count != b->count) return differ("acl count", a->count, b->count);
  const zke_acl *x = cf_sorted_acls(a), *y = cf_sorted_acls(b);
  for (int i = 0; i < a->count; i++) {
    if (compare_acl(&x[i], &y[i]) != 0)
      return cf_text("acl: entry %d differs", i);
  }
  return NULL;
}

static const char *compare_data(const cf_reply *a, const cf_reply *b) {
  if (a->len != b->len) return differ("length", a->len, b->len);
  if (a->len > 0 && memcmp(a->data, b->data, (size_t)a->len) != 0)
    return "data: differ";
  return NULL;
}

/* Compare a successful operation's outputs. */
static const char *compare_outputs(cf_compare *c, const cf_reply *a,
                                   cf_reply *b) {
  const char *why = NULL;
  if (a->path && (!b->path || strcmp(a->path, b->path) != 0))
    return "path: differs";
  if (a->has_stat && b->has_stat) why = cf_compare_stat(c, &a->stat, &b->stat);
  if (a->has_stat != b->has_stat) cf_mask_used[CF_MASK_ABSENT_STAT]++;
  if (!why && a->has_data) why = compare_data(a, b);
  if (!why && a->has_names) {
    zke_strings names = a->names;
    why = compare_names(&names, &b->names);
  }
  if (!why && a->has_acls) why = compare_acls(&a->acls, &b->acls);
  if (!why && a->has_count && a->number != b->number)
    why = differ("number", a->number, b->number);
  return why;
}

static const char *compare_one(cf_compare *c, const cf_reply *a,
                               const cf_reply *b) {
  cf_reply copy = *b;
  if (a->rc != b->rc) return differ("rc", a->rc, b->rc);
  return a->rc == ZKE_OK ? compare_outputs(c, a, &copy) : NULL;
}

static bool mode_is_refused(const cf_op *op) {
  bool known = op->mode >= ZKE_PERSISTENT &&
               op->mode <= ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
  bool ttl = op->mode == ZKE_PERSISTENT_WITH_TTL ||
             op->mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
  bool in_range = op->ttl_ms >= 1 && op->ttl_ms <= ZKE_MAX_TTL;
  return op->kind == CF_CREATE && (!known || (ttl && !in_range));
}

/* Both refuse: zkembed for the mode, and ZooKeeper for something that it checks
 * before. */
static bool mode_comes_first(const cf_op *op, const cf_reply *a,
                             const cf_reply *b) {
  bool found = mode_is_refused(op);
  for (int i = 0; op->kind == CF_MULTI && i < op->count; i++)
    found |= mode_is_refused(&op->subs[i]);
  bool same = a->rc == b->rc && a->count == b->count;
  if (!found || same || a->rc == ZKE_OK || b->rc != ZKE_BADARGUMENTS)
    return false;
  cf_mask_used[CF_MASK_MODE]++;
  return true;
}

const char *cf_compare_reply(cf_compare *c, const cf_op *op, const cf_reply *a,
                             const cf_reply *b) {
  note_seen(op, a);
  if (mode_comes_first(op, a, b)) return NULL;
  if (op->kind == CF_SYNC && a->rc == ZKE_BADARGUMENTS) {
    cf_mask_used[CF_MASK_SYNC_PATH]++;
    return NULL;
  }
  const char *why = compare_one(c, a, b);
  if (!why && a->count != b->count) why = differ("results", a->count, b->count);
  for (int i = 0; i < a->count && !why; i++) {
    why = compare_one(c, &a->subs[i], &b->subs[i]);
    if (why) why = cf_text("sub-%s (operation %d)", why, i);
  }
  return why;
}

/* ---- events ---- */

static int compare_event(const cf_event *a, const cf_event *b) {
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  if (a->state != b->state) return a->state < b->state ? -1 : 1;
  int order = strcmp(a->path, b->path);
  return order ? order : a->watch - b->watch;
}

static int by_event(const void *a, const void *b) {
  return compare_event(a, b);
}

/* The callbacks of one event are neighbours: sort each such group. */
static void sort_calls(cf_events *e) {
  for (int i = 0, end; i < e->count; i = end) {
    for (end = i + 1; end < e->count && e->at[end].type == e->at[i].type &&
                      strcmp(e->at[end].path, e->at[i].path) == 0;)
      end++;
    if (end > i + 1) cf_mask_used[CF_MASK_CALL_ORDER]++;
    qsort(e->at + i, (size_t)(end - i), sizeof *e->at, by_event);
  }
}

/* Leave out the session's own events, which only the C client reports. */
static void drop_session_events(cf_events *e) {
  int kept = 0;
  for (int i = 0; i < e->count; i++) {
    if (e->at[i].type == ZKE_EVENT_SESSION) {
      cf_mask_used[CF_MASK_RAW_SESSION]++;
      free(e->at[i].path);
    } else {
      e->at[kept++] = e->at[i];
    }
  }
  e->count = kept;
}

/* If the order of events means nothing, bring them into one that can be
 * compared. */
static void arrange(cf_events *e, unsigned how) {
  if (!(how & CF_BY_CLIENT)) drop_session_events(e);
  if (how & CF_ANY_ORDER && e->count > 1) {
    cf_mask_used[CF_MASK_END_ORDER]++;
    qsort(e->at, (size_t)e->count, sizeof *e->at, by_event);
  } else if (how & CF_BY_CLIENT) {
    sort_calls(e);
  }
}

/* Does call number i of e exist, and belong to this event? */
static bool is_of_event(const cf_events *e, int i, const cf_event *event) {
  return i >= 0 && i < e->count && e->at[i].type == event->type &&
         e->at[i].state == event->state &&
         strcmp(e->at[i].path, event->path) == 0;
}

/* Drop calls from a for watches that were removed without an event: those
 * beyond b's, of an event that b also has. */
static void drop_silenced(cf_events *a, const cf_events *b) {
  int kept = 0, at = 0;
  for (int i = 0; i < a->count; i++) {
    cf_event *call = &a->at[i];
    bool same = at < b->count && compare_event(call, &b->at[at]) == 0;
    at += same;
    if (same || !(is_of_event(b, at, call) || is_of_event(b, at - 1, call))) {
      a->at[kept++] = *call;
    } else {
      cf_mask_used[CF_MASK_SILENCED]++;
      free(call->path);
    }
  }
  a->count = kept;
}

const char *cf_compare_events(unsigned how, cf_events *a, cf_events *b) {
  arrange(a, how);
  arrange(b, how);
  note_events(a);
  if (how & CF_SILENCED) drop_silenced(a, b);
  bool same = a->count == b->count;
  for (int i = 0; i < a->count && same; i++)
    same = compare_event(&a->at[i], &b->at[i]) == 0;
  if (same) return NULL;
  return cf_text("events:\n    ZooKeeper %s\n    zkembed   %s",
                 cf_describe_events(a), cf_describe_events(b));
}
