/* compare.c - what must be equal, and what need not be
 *
 * Everything is compared but what MASKS names, with the reason.  What cannot
 * be equal is compared through a relation where there is one: zxids, times
 * and session ids are mapped one to one, and zxids in order.
 */
#include "conformance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

/* Name, how it is compared, why it differs by nature. */
#define MASKS(X)                                                             \
  X(ZXID, "zxids: one to one and in the same order",                         \
    "the server gives a zxid to refused writes and to sessions as well")     \
  X(TIME, "ctime, mtime: equal zxids have equal times, on each side",        \
    "the two sides make a change some microseconds apart")                   \
  X(OWNER, "ephemeralOwner: one to one with the sessions",                   \
    "each side numbers its own sessions")                                    \
  X(NAMES, "children, ephemerals: as sets",                                  \
    "the server lists them in the order of a hash table")                    \
  X(AUTH_ORDER, "digests of equal permissions in a row: as a set",           \
    "the server expands scheme auth in the order of a hash table")           \
  X(ABSENT_STAT, "a Stat that only zkembed gives: not compared",             \
    "the server has forms of create, getChildren and multi without a Stat, " \
    "and the C client's set_acl keeps it to itself")                         \
  X(END_ORDER, "events of the end of a session: as a set",                   \
    "the server deletes ephemerals in the order of a hash table")            \
  X(CALL_ORDER, "callbacks of one event: as a set",                          \
    "the C client calls watchers in the order of a hash table")              \
  X(RAW_SESSION, "session events of a session on a raw connection: none",    \
    "they are made by the C client, not by the server")                      \
  X(SYNC_PATH, "sync of a malformed path: not compared",                     \
    "zkembed has nothing to sync and does not look at the path")             \
  X(CONNECTION, "session events of connecting: not kept",                    \
    "zkembed has no connection")                                             \
  X(OWN_END, "events of a session's own end: as if it were told of the end", \
    "the server sends them while it ends a session, and hardly ever is "     \
    "there somebody to deliver them")                                        \
  X(AUTH_END, "session after failed authentication: ended by the harness",   \
    "the server would keep it until it times out, zke_close() ends it")      \
  X(CLIENT_MULTI,                                                            \
    "refused by the C client, multi: its code is taken as known",            \
    "the C client frees what it never allocated there, or hangs (bugs)")     \
  X(LEFT_WATCH, "remove_all_watches after remove_watches: 0 or no watcher",  \
    "the C client takes one watcher back without telling the server, which " \
    "then still finds its watch")                                            \
  X(SILENCED,                                                                \
    "callbacks of one event, or of the end, through the C client where "     \
    "READ may be missing: zkembed's among ZooKeeper's; remove_watches "      \
    "there: not generated",                                                  \
    "the server spends a watch in silence and the client keeps its "         \
    "watcher, to be called with the next one; zkembed spends both")          \
  X(PENDING, "dispatched before a watch is taken back",                      \
    "zkembed promises no callback after that, the client calls what has "    \
    "arrived")                                                               \
  X(NULLS, "ACLs with NULL beside others or in a multi: not generated",      \
    "the server falls over them at one point or another")                    \
  X(MODE,                                                                    \
    "an unknown mode or a bad TTL, in a multi or on a dead session: "        \
    "both refuse",                                                           \
    "zkembed checks modes before anything else")                             \
  X(MODE_CHANGE, "dispatched before a staying watch changes its mode",       \
    "zkembed calls for waiting events by the new mode")                      \
  X(REAPER, "containers and TTL nodes: are not reaped during a run",         \
    "the server's job and zkembed's sweep have their own time")              \
  X(SIZES, "values near a mebibyte: not generated",                          \
    "the server limits the request, zkembed the value")                      \
  X(MIXED_WATCH,                                                             \
    "one-shot and staying watch of one session on one path: "                \
    "not generated",                                                         \
    "ZooKeeper 3.8.0 loses the staying one (a known bug)")                   \
  X(CHROOT_ROOT, "sequential create of \"/\" under a chroot: not generated", \
    "the C client makes it outside of the chroot; zkembed refuses")          \
  X(RELATIVE, "relative paths under a chroot: not generated",                \
    "the C client glues them to the chroot's name; zkembed refuses")         \
  X(IP, "ACLs and identities of scheme ip: not generated",                   \
    "zkembed has no addresses")                                              \
  X(QUOTA, "quota nodes: not generated", "zkembed has no quotas")

#define MASK_ENUM(name, how, why) MASK_##name,
enum { MASKS(MASK_ENUM) MASK_COUNT };
#undef MASK_ENUM

static const struct mask {
  const char *name, *how, *why;
} masks[] = {
#define MASK_ROW(name, how, why) {#name, how, why},
    MASKS(MASK_ROW)
#undef MASK_ROW
};

static int64_t mask_used[MASK_COUNT];

void cf_mask_client_multi(void) { mask_used[MASK_CLIENT_MULTI]++; }

void cf_mask_left_watch(void) { mask_used[MASK_LEFT_WATCH]++; }

void cf_mask_own_end(void) { mask_used[MASK_OWN_END]++; }

void cf_masks_print(bool counts) {
  for (int i = 0; i < MASK_COUNT; i++) {
    if (counts && mask_used[i] == 0) continue;
    if (counts)
      printf("  %-12s %12" PRId64 "  %s\n", masks[i].name, mask_used[i],
             masks[i].how);
    else
      printf("%s: %s\n    since %s\n", masks[i].name, masks[i].how,
             masks[i].why);
  }
}

/* ---- what was seen ---- */

enum { CODES = 128 }; /* 0 to -127 */

static int64_t seen[CF_KINDS][CODES];
static int64_t seen_events[5];  /* by type; 0: of sessions */
static int64_t seen_modes[7];   /* nodes made */
static int64_t seen_watches[3]; /* set: one-shot, persistent, recursive */

/* What an operation has made; exists watches what is not there, too. */
static void note_made(const cf_op *op, int rc) {
  bool made = rc == ZKE_OK, absent = rc == ZKE_NONODE;
  if (made && op->kind == CF_CREATE) seen_modes[op->mode]++;
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

void cf_note_end(cf_kind kind) { seen[kind][0]++; }

static void note_events(const cf_events *e) {
  for (int i = 0; i < e->count; i++) {
    int type = e->at[i].type;
    seen_events[type > 0 && type < 5 ? type : 0]++;
  }
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

/* ---- what is mapped ---- */

/* A change on both sides; time -1: not seen yet. */
typedef struct change {
  int64_t server, zke_side;
  int64_t server_ms, zke_ms;
} change;

typedef struct owner {
  int64_t server, zke_side;
} owner;

struct cf_compare {
  change *changes; /* ascending on both sides */
  int change_count, change_cap;
  owner *owners;
  int owner_count, owner_cap;
};

cf_compare *cf_compare_new(void) {
  cf_compare *c = calloc(1, sizeof *c);
  if (!c) cf_die("out of memory");
  cf_compare_session(c, 0, 0);
  return c;
}

void cf_compare_free(cf_compare *c) {
  free(c->changes);
  free(c->owners);
  free(c);
}

void cf_compare_session(cf_compare *c, int64_t server, int64_t zke_id) {
  if (c->owner_count == c->owner_cap) {
    c->owner_cap = 2 * c->owner_cap + 16;
    c->owners = realloc(c->owners, (size_t)c->owner_cap * sizeof *c->owners);
    if (!c->owners) cf_die("out of memory");
  }
  c->owners[c->owner_count++] = (owner){server, zke_id};
}

static bool same_owner(const cf_compare *c, int64_t server, int64_t zke_id) {
  mask_used[MASK_OWNER] += server != zke_id;
  for (int i = c->owner_count; i-- > 0;) {
    if (c->owners[i].server == server) return c->owners[i].zke_side == zke_id;
  }
  return false;
}

/* Where the server's zxid is, or would have to be put. */
static int find_change(const cf_compare *c, int64_t server) {
  int low = 0, high = c->change_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (c->changes[middle].server < server)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* A change, at its place among those that are known: its zxid on the server and
 * here. */
static change *insert_change(cf_compare *c, int at, int64_t server,
                             int64_t zke_side) {
  if (c->change_count == c->change_cap) {
    c->change_cap = 2 * c->change_cap + 256;
    c->changes =
        realloc(c->changes, (size_t)c->change_cap * sizeof *c->changes);
    if (!c->changes) cf_die("out of memory");
  }
  memmove(c->changes + at + 1, c->changes + at,
          (size_t)(c->change_count - at) * sizeof *c->changes);
  c->change_count++;
  c->changes[at] = (change){server, zke_side, -1, -1};
  return &c->changes[at];
}

/* The change that these two zxids name; learned where both are new and fit
 * between their neighbours, NULL where they do not. */
static change *same_change(cf_compare *c, int64_t server, int64_t zke_side) {
  mask_used[MASK_ZXID] += server != zke_side;
  int at = find_change(c, server);
  change *here = c->changes + at;
  if (at < c->change_count && here->server == server)
    return here->zke_side == zke_side ? here : NULL;
  if (at > 0 && here[-1].zke_side >= zke_side) return NULL;
  if (at < c->change_count && here->zke_side <= zke_side) return NULL;
  return insert_change(c, at, server, zke_side);
}

/* A change has one time on each side, whoever tells it. */
static bool same_time(change *at, int64_t server_ms, int64_t zke_ms) {
  mask_used[MASK_TIME] += server_ms != zke_ms;
  if (at->server_ms < 0) {
    at->server_ms = server_ms;
    at->zke_ms = zke_ms;
  }
  return at->server_ms == server_ms && at->zke_ms == zke_ms;
}

/* ---- replies ---- */

static const char *differ(const char *field, int64_t server, int64_t zke_side) {
  return cf_text("%s: ZooKeeper %" PRId64 ", zkembed %" PRId64, field, server,
                 zke_side);
}

/* What differs between two Stats, NULL if nothing does: zxids and times must be
 * of the same changes. */
static const char *compare_stat(cf_compare *c, const zke_stat *a,
                                const zke_stat *b) {
#define SAME(field) \
  if (a->field != b->field) return differ(#field, a->field, b->field)
  SAME(version);
  SAME(cversion);
  SAME(aversion);
  SAME(dataLength);
  SAME(numChildren);
#undef SAME
  if (!same_owner(c, a->ephemeralOwner, b->ephemeralOwner))
    return differ("ephemeralOwner", a->ephemeralOwner, b->ephemeralOwner);
  change *made = same_change(c, a->czxid, b->czxid);
  if (!made) return differ("czxid", a->czxid, b->czxid);
  if (!same_time(made, a->ctime, b->ctime))
    return differ("ctime", a->ctime, b->ctime);
  change *set = same_change(c, a->mzxid, b->mzxid);
  if (!set) return differ("mzxid", a->mzxid, b->mzxid);
  if (!same_time(set, a->mtime, b->mtime))
    return differ("mtime", a->mtime, b->mtime);
  if (!same_change(c, a->pzxid, b->pzxid))
    return differ("pzxid", a->pzxid, b->pzxid);
  return NULL;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What differs between two lists of names, in any order. */
static const char *compare_names(zke_strings *a, zke_strings *b) {
  if (a->count != b->count) return differ("names", a->count, b->count);
  if (a->count == 0) return NULL;
  qsort(a->data, (size_t)a->count, sizeof *a->data, by_text);
  qsort(b->data, (size_t)b->count, sizeof *b->data, by_text);
  mask_used[MASK_NAMES]++;
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
static zke_acl *sorted_acls(const zke_acls *acls) {
  zke_acl *copy = cf_alloc((size_t)acls->count * sizeof *copy + 1);
  for (int i = 0; i < acls->count; i++) copy[i] = acls->data[i];
  for (int i = 0, end; i < acls->count; i = end) {
    for (end = i + 1; end < acls->count && copy[end].perms == copy[i].perms &&
                      strcmp(copy[end].scheme, "digest") == 0 &&
                      strcmp(copy[i].scheme, "digest") == 0;)
      end++;
    if (end > i + 1) mask_used[MASK_AUTH_ORDER]++;
    qsort(copy + i, (size_t)(end - i), sizeof *copy, by_acl);
  }
  return copy;
}

/* What differs between two lists of ACL entries, in any order. */
static const char *compare_acls(const zke_acls *a, const zke_acls *b) {
  if (a->count != b->count) return differ("acl count", a->count, b->count);
  const zke_acl *x = sorted_acls(a), *y = sorted_acls(b);
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

/* What a successful operation gave. */
static const char *compare_outputs(cf_compare *c, const cf_reply *a,
                                   cf_reply *b) {
  const char *why = NULL;
  if (a->path && (!b->path || strcmp(a->path, b->path) != 0))
    return "path: differs";
  if (a->has_stat && b->has_stat) why = compare_stat(c, &a->stat, &b->stat);
  if (a->has_stat != b->has_stat) mask_used[MASK_ABSENT_STAT]++;
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

/* Both refuse, zkembed for the mode and ZooKeeper for what it looks at
 * before. */
static bool mode_comes_first(const cf_op *op, const cf_reply *a,
                             const cf_reply *b) {
  bool found = mode_is_refused(op);
  for (int i = 0; op->kind == CF_MULTI && i < op->count; i++)
    found |= mode_is_refused(&op->subs[i]);
  bool same = a->rc == b->rc && a->count == b->count;
  if (!found || same || a->rc == ZKE_OK || b->rc != ZKE_BADARGUMENTS)
    return false;
  mask_used[MASK_MODE]++;
  return true;
}

const char *cf_compare_reply(cf_compare *c, const cf_op *op, const cf_reply *a,
                             const cf_reply *b) {
  note_seen(op, a);
  if (mode_comes_first(op, a, b)) return NULL;
  if (op->kind == CF_SYNC && a->rc == ZKE_BADARGUMENTS) {
    mask_used[MASK_SYNC_PATH]++;
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

/* The callbacks of one event stand together: sort each such group. */
static void sort_calls(cf_events *e) {
  for (int i = 0, end; i < e->count; i = end) {
    for (end = i + 1; end < e->count && e->at[end].type == e->at[i].type &&
                      strcmp(e->at[end].path, e->at[i].path) == 0;)
      end++;
    if (end > i + 1) mask_used[MASK_CALL_ORDER]++;
    qsort(e->at + i, (size_t)(end - i), sizeof *e->at, by_event);
  }
}

/* Leave out the session's own events, which only the C client tells. */
static void drop_session_events(cf_events *e) {
  int kept = 0;
  for (int i = 0; i < e->count; i++) {
    if (e->at[i].type == ZKE_EVENT_SESSION) {
      mask_used[MASK_RAW_SESSION]++;
      free(e->at[i].path);
    } else {
      e->at[kept++] = e->at[i];
    }
  }
  e->count = kept;
}

/* Bring events into an order in which they can be compared, where theirs means
 * nothing. */
static void arrange(cf_events *e, unsigned how) {
  if (!(how & CF_BY_CLIENT)) drop_session_events(e);
  if (how & CF_ANY_ORDER && e->count > 1) {
    mask_used[MASK_END_ORDER]++;
    qsort(e->at, (size_t)e->count, sizeof *e->at, by_event);
  } else if (how & CF_BY_CLIENT) {
    sort_calls(e);
  }
}

/* Is the call number i of e, if there is one, of the same event? */
static bool is_of_event(const cf_events *e, int i, const cf_event *event) {
  return i >= 0 && i < e->count && e->at[i].type == event->type &&
         e->at[i].state == event->state &&
         strcmp(e->at[i].path, event->path) == 0;
}

/* Drop from a the calls of watchers whose watch was spent in silence: those
 * beyond b's, of an event that b has as well. */
static void drop_silenced(cf_events *a, const cf_events *b) {
  int kept = 0, at = 0;
  for (int i = 0; i < a->count; i++) {
    cf_event *call = &a->at[i];
    bool same = at < b->count && compare_event(call, &b->at[at]) == 0;
    at += same;
    if (same || !(is_of_event(b, at, call) || is_of_event(b, at - 1, call))) {
      a->at[kept++] = *call;
    } else {
      mask_used[MASK_SILENCED]++;
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
