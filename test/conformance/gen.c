/* gen.c - random operations
 *
 * Each operation is made only from the seed and its index, so any part of a run
 * can be repeated.  Names are few, so operations meet.  What depends on the
 * tree (an existing child, the current version) is a rule, which is applied
 * when the operation runs.
 */
#include "conformance.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers ---- */

typedef struct dice {
  uint64_t state;
} dice;

static uint64_t roll(dice *d) {
  uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static int below(dice *d, int n) { return (int)(roll(d) % (uint64_t)n); }
static bool permille(dice *d, int n) { return below(d, 1000) < n; }

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define ANY_OF(d, array) ((array)[below(d, COUNT(array))])

/* ---- the values ---- */

static const char *const plain_names[] = {"a", "b", "c", "d", "q", "s-"};

/* Valid, but difficult to sort, quote, match or normalise. */
static const char *const odd_names[] = {
    " ",
    "a ",
    " a",
    "%",
    "_",
    "'",
    "\"",
    "\\",
    "*",
    "?",
    ":",
    "...",
    ".a",
    "..a",
    "a.",
    "a-",
    "a0",
    "b!",
    "-",
    "!",
    "0",
    "~",
    "A",
    "NULL",
    "0000000001",
    "s-0000000002",
    "q-0000000003",
    "-1",
    "a%20b",
    "zookeeper",
    "\xc3\xa9",          /* e acute */
    "e\xcc\x81",         /* the same, decomposed */
    "\xc2\xa0",          /* U+00A0 */
    "\xe6\x97\xa5",      /* a kanji */
    "\xef\xa4\x80",      /* U+F900 */
    "\xef\xbf\xaf",      /* U+FFEF */
    "\xef\xbb\xbf",      /* U+FEFF */
    "\xe2\x80\xae",      /* right to left */
    "a\xcc\x80\xcc\x80", /* stacked accents */
};

/* Valid only for the client, or not at all. */
static const char *const bad_names[] = {
    "",
    ".",
    "..",
    "\x01",
    "a\x1e",
    "a\x1f",
    "a\x7f",
    "a\n",
    "\xc2\x80",         /* U+0080 */
    "\xc2\x9f",         /* U+009F */
    "\xed\x9f\xbf",     /* U+D7FF, valid after all */
    "\xee\x80\x80",     /* U+E000 */
    "\xef\xa3\xbf",     /* U+F8FF */
    "\xef\xbf\xb0",     /* U+FFF0 */
    "\xef\xbf\xbf",     /* U+FFFF */
    "\xf0\x9f\x98\x80", /* beyond the BMP */
    "\xff",             /* malformed from here on */
    "a\xc3",
    "\xc0\xaf",
    "\xe2\x82",
    "\xed\xa0\x80",
};

static const char *const odd_paths[] = {"",    "a",   "a/b", "//",  "/.",
                                        "/..", "/a/", "///", "/./", "."};

static const char *const root_paths[] = {
    "/",
    "/",
    CF_BASE,
    CF_BASE,
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/zookeeper/config/a",
    "/zookeeper/a",
    "/zookeeper/quota/a",
    "/a",
    "/b",
    "/s-",
    "/zookeeper/s-",
};

static const char *const users[CF_USERS] = {"ann:red", "bob:p", "cy:a:b",
                                            "nan"};
/* as ACL ids: user:base64(sha1(user:password)) */
static const char *const digests[CF_USERS] = {
    "ann:qz7xEHs7NbW6OqJy4aHj2a71378=", "bob:R3bUSw3Enrs8ff9W5R1qlyZbH2M=",
    "cy:RYbeBQQoIiIe3iGO2nCf7z2alZc=", "nan:EeYjo36Hz3mVxGZyPsmWiNVcrow="};

const char *cf_user(int i) { return users[i]; }

static const int32_t versions[] = {0, 1, 2, 3, -2, INT32_MAX, INT32_MIN, 7};

/* ---- paths ---- */

static const char *gen_name(dice *d, const cf_plan *plan) {
  /* the first names more often */
  int n = below(d, plan->names), m = below(d, plan->names);
  return plan->name[n < m ? n : m];
}

static const char *gen_long_name(dice *d) {
  size_t len = ANY_OF(d, ((const size_t[]){254, 255, 256, 1000, 5000}));
  char *name = cf_alloc(len + 1);
  return memset(name, 'x', len);
}

/* One odd component, or an odd end. */
static const char *gen_hostile(dice *d, const char *path) {
  switch (below(d, 6)) {
    case 0:
      return cf_text("%s/", path);
    case 1:
      return cf_text("%s//%s", path, plain_names[0]);
    case 2:
      return cf_text("%s/%s", path, gen_long_name(d));
    case 3:
      return cf_text("%s/%s/a", path, ANY_OF(d, bad_names));
    default:
      return cf_text("%s/%s", path, ANY_OF(d, bad_names));
  }
}

static const char *gen_deep(const char *path) {
  for (int i = 0; i < 60; i++) path = cf_text("%s/a", path);
  return path;
}

/* A path as the seat's client writes it. */
static const char *gen_path(dice *d, const cf_plan *plan, int seat) {
  bool chroot = plan->seat[seat].chroot;
  if (permille(d, chroot ? 10 : 60))
    return chroot ? "/" : ANY_OF(d, root_paths);
  if (!chroot && permille(d, plan->hostile / 10)) return ANY_OF(d, odd_paths);
  const char *path = chroot ? "" : CF_BASE;
  int depth = 1 + below(d, plan->depth);
  if (below(d, 2)) depth = 1 + below(d, depth);
  for (int i = 0; i < depth; i++)
    path = cf_text("%s/%s", path, gen_name(d, plan));
  if (permille(d, plan->hostile)) path = gen_hostile(d, path);
  return permille(d, 1) ? gen_deep(path) : path;
}

/* ---- data and ACLs ---- */

/* A random length of data: mostly short, sometimes 0, seldom near the limit. */
static int gen_length(dice *d) {
  int n = below(d, 10000);
  if (n < 500) return -1;
  if (n < 1500) return 0;
  if (n < 8500) return 1 + below(d, 20);
  if (n < 9500) return 198 + below(d, 5); /* near the inline limit */
  if (n < 9970) return 1000 + below(d, 4000);
  if (n < 9999) return 60000 + below(d, 10000);
  return 900000;
}

static void gen_data(dice *d, cf_op *op, int most) {
  op->len = gen_length(d);
  if (op->len > most) op->len = most;
  if (op->len < 0) return;
  char *data = cf_alloc((size_t)op->len + 1);
  for (int i = 0; i < op->len; i++) data[i] = (char)(roll(d) & 0xff);
  op->data = data;
}

static int32_t gen_perms(dice *d) {
  if (permille(d, 50))
    return ANY_OF(d, ((const int32_t[]){0, -1, 32, INT32_MAX, INT32_MIN}));
  return permille(d, 500) ? ZKE_PERM_ALL : below(d, 32);
}

/* Entries that the server refuses, or almost. */
static zke_acl gen_bad_entry(dice *d) {
  static const zke_acl bad[] = {{31, "world", "someone"},
                                {31, "world", ""},
                                {31, "digest", "bob"},
                                {31, "digest", "a:b:c"},
                                {31, "digest", ""},
                                {31, "digest", ":"},
                                {31, "digest", "a:"},
                                {31, "digest", ":b"},
                                {31, "digest", "a:b::"},
                                {31, "foo", "bar"},
                                {31, "", ""},
                                {31, "super", "x"},
                                {31, "x509", "CN=a"},
                                {31, "sasl", "a"},
                                {31, "WORLD", "anyone"},
                                {31, "digest", "a\n:b"},
                                {31, "digest", "a\\:b"},
                                {31, "digest", "\xc3\xa9:b"}};
  return ANY_OF(d, bad);
}

/* Entries of addresses, which clients have only over the wire. */
static zke_acl gen_address(dice *d) {
  static const char *const ids[] = {
      "127.0.0.1", "127.0.0.1", "127.0.0.0/8",  "10.0.0.1", "10.0.0.0/8",
      "1.2.3",     "a",         "127.0.0.1/33", "",         "127.0.0.1/"};
  return (zke_acl){gen_perms(d), "ip", ANY_OF(d, ids)};
}

/* A random ACL entry. */
static zke_acl gen_entry(dice *d, bool wire) {
  if (wire && permille(d, 150)) return gen_address(d);
  int32_t perms = gen_perms(d);
  switch (below(d, 4)) {
    case 0:
      return (zke_acl){perms, "auth", below(d, 2) ? "" : "ignored"};
    case 1:
      return (zke_acl){perms, "world", "anyone"};
    default:
      return (zke_acl){perms, "digest", ANY_OF(d, digests)};
  }
}

/* NULL only alone: in a list the server fails on it or not, depending on the
 * order of its comparisons. */
static const zke_acl null_scheme[] = {{31, NULL, "anyone"}},
                     null_id[] = {{31, "world", NULL}};

/* If everybody must be able to read, the world's entry comes first. */
static void gen_entries(dice *d, const cf_plan *plan, int count,
                        zke_acl *data) {
  bool quiet = plan->quiet;
  for (int i = 0; i < count; i++) {
    data[i] = gen_entry(d, plan->wire);
    if (quiet && i == 0)
      data[i] = (zke_acl){gen_perms(d) | ZKE_PERM_READ, "world", "anyone"};
    if (i > 0 && permille(d, 150)) data[i] = data[i - 1];
    if (!permille(d, 60)) continue;
    zke_acl bad = gen_bad_entry(d); /* some are valid */
    if (!quiet || i > 0) data[i] = bad;
  }
}

/* A random list: mostly the open one, sometimes an invalid one. */
static void gen_acls(dice *d, const cf_plan *plan, cf_op *op) {
  if (permille(d, 850)) {
    op->acls = zke_open_acl;
    return;
  }
  if (permille(d, 10)) {
    op->acls = (zke_acls){1, below(d, 2) ? null_scheme : null_id};
    return;
  }
  int n = below(d, 100), count = n < 3 ? 0 : 1;
  if (n >= 60) count = 2 + below(d, 3);
  zke_acl *data = cf_alloc((size_t)(count + 1) * sizeof *data);
  gen_entries(d, plan, count, data);
  op->acls = (zke_acls){count, data};
}

/* ---- operations ---- */

/* A random version: any, the node's own, or a neighbouring one. */
static void gen_version(dice *d, cf_op *op, bool lenient) {
  int n = below(d, 100);
  op->version_rule = CF_LITERAL;
  if (n < 35 || lenient) {
    op->version = -1;
  } else if (n < 80) {
    op->version_rule = CF_CURRENT;
  } else if (n < 88) {
    op->version_rule = CF_CURRENT;
    op->version = below(d, 2) ? 1 : -1;
  } else {
    op->version = ANY_OF(d, versions);
  }
}

static void gen_mode(dice *d, cf_op *op) {
  static const int modes[] = {0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6};
  op->mode = ANY_OF(d, modes);
  if (op->mode == ZKE_PERSISTENT_WITH_TTL ||
      op->mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL)
    op->ttl_ms = ZKE_MAX_TTL - below(d, 1000);
}

/* Invalid modes and TTLs. */
static void gen_bad_mode(dice *d, cf_op *op) {
  static const int64_t ttls[] = {0, -1, ZKE_MAX_TTL + 1, INT64_MAX, INT64_MIN};
  if (below(d, 2)) {
    op->mode = ANY_OF(d, ((const int[]){-1, 7, 8, 100, INT_MAX, INT_MIN}));
    op->ttl_ms = 0;
  } else {
    op->mode = 5 + below(d, 2);
    op->ttl_ms = ANY_OF(d, ttls);
  }
}

/* A type that may not fit the mode (mask CONTAINER). */
static int gen_create_type(dice *d, int mode) {
  static const int types[] = {1, 15, 21, 19}; /* of ZooKeeper's OpCode */
  return types[below(d, mode == 2 || mode == 3 || mode == 6 ? 3 : 4)];
}

/* A random create, seldom with an invalid mode. */
static void gen_create(dice *d, const cf_plan *plan, cf_op *op) {
  gen_mode(d, op);
  if (permille(d, 15)) gen_bad_mode(d, op);
  if (permille(d, 5) && op->mode < 5) op->ttl_ms = 1000;
  bool numbered = op->mode == 2 || op->mode == 3 || op->mode == 6;
  if (numbered && below(d, 3) == 0) op->path = cf_text("%s/", op->path);
  if (numbered && plan->seat[op->seat].chroot && strlen(op->path) < 2)
    op->path = "/s-";
  op->whole = below(d, 2) != 0;
  if (plan->wire && permille(d, 30)) op->type = gen_create_type(d, op->mode);
  gen_data(d, op, INT_MAX);
  gen_acls(d, plan, op);
}

/* Rules that take the path from the current tree. */
static void gen_rules(dice *d, const cf_plan *plan, cf_op *op, int pick,
                      int revisit) {
  op->pick = permille(d, pick) ? below(d, 1000) : -1;
  op->revisit = permille(d, revisit) ? below(d, 1000) : -1;
  if (permille(d, 200)) op->below = gen_name(d, plan);
}

/* An operation of a multi.  lenient: likely to be accepted.  last: the previous
 * path. */
static void gen_sub(dice *d, const cf_plan *plan, int seat, bool lenient,
                    const char *last, cf_op *op) {
  static const cf_kind kinds[] = {CF_CREATE, CF_CREATE, CF_CREATE, CF_DELETE,
                                  CF_DELETE, CF_SET,    CF_SET,    CF_CHECK};
  bool client = plan->seat[seat].client;
  op->seat = seat;
  op->kind = ANY_OF(d, kinds);
  op->path = gen_path(d, plan, seat);
  if (last && strlen(last) > 1 && below(d, 3) == 0)
    op->path = below(d, 2) ? last : cf_text("%s/%s", last, gen_name(d, plan));
  int pick = lenient ? 900 : 300;
  if (op->kind == CF_CREATE) pick = 50;
  gen_rules(d, plan, op, pick, lenient ? 0 : 150);
  gen_version(d, op, lenient);
  if (op->kind == CF_SET) gen_data(d, op, 5000);
  if (op->kind != CF_CREATE) return;
  gen_create(d, plan, op);
  op->type = 0;
  if (op->len > 5000) op->len = 5000;
  if (op->mode < ZKE_PERSISTENT_WITH_TTL) op->ttl_ms = 0; /* has no form */
  bool null = op->acls.data == null_scheme || op->acls.data == null_id;
  if (lenient || null) op->acls = zke_open_acl;
  if (client || lenient) {
    op->ttl_ms = 0;
    op->mode = lenient ? ZKE_PERSISTENT_SEQUENTIAL + below(d, 2) : below(d, 4);
  }
  if (plan->seat[seat].chroot && strlen(op->path) < 2) op->path = "/s-";
}

static void gen_multi(dice *d, const cf_plan *plan, cf_op *op) {
  bool lenient = below(d, 2) != 0;
  op->count = 0;
  if (!permille(d, 30)) op->count = 1 + below(d, below(d, 2) ? 3 : 12);
  op->subs = cf_alloc((size_t)(op->count + 1) * sizeof *op->subs);
  for (int i = 0; i < op->count; i++)
    gen_sub(d, plan, op->seat, lenient, i ? op->subs[i - 1].path : NULL,
            &op->subs[i]);
}

/* A random multi_read, sometimes empty. */
static void gen_multi_read(dice *d, const cf_plan *plan, cf_op *op) {
  op->count = permille(d, 30) ? 0 : 1 + below(d, 8);
  op->subs = cf_alloc((size_t)(op->count + 1) * sizeof *op->subs);
  for (int i = 0; i < op->count; i++) {
    cf_op *sub = &op->subs[i];
    sub->seat = op->seat;
    sub->kind = below(d, 2) ? CF_GET : CF_CHILDREN;
    sub->path = gen_path(d, plan, op->seat);
    gen_rules(d, plan, sub, 500, 0);
  }
}

/* Paths of watches to set again; their type is the watch's. */
static void gen_set_watches(dice *d, const cf_plan *plan, cf_op *op) {
  op->count = below(d, 6);
  op->chance = below(d, 1000);
  op->subs = cf_alloc((size_t)(op->count + 1) * sizeof *op->subs);
  for (int i = 0; i < op->count; i++) {
    cf_op *sub = &op->subs[i];
    *sub = (cf_op){.seat = op->seat, .kind = CF_EXISTS, .type = below(d, 3)};
    sub->path = gen_path(d, plan, op->seat);
    gen_rules(d, plan, sub, 500, 300);
  }
}

static void gen_arguments(dice *d, const cf_plan *plan, cf_op *op);

/* A well-formed operation, to be damaged. */
static void gen_malformed(dice *d, const cf_plan *plan, cf_op *op) {
  static const cf_kind kinds[] = {
      CF_CREATE,    CF_DELETE,     CF_EXISTS,       CF_GET,
      CF_SET,       CF_CHILDREN,   CF_GET_ACL,      CF_SET_ACL,
      CF_SYNC,      CF_MULTI,      CF_MULTI_READ,   CF_COUNT,
      CF_ADD_WATCH, CF_EPHEMERALS, CF_REMOVE_WATCH, CF_SET_WATCHES};
  op->type =
      permille(d, 850) ? below(d, CF_UNKNOWN_TYPE) : below(d, CF_MALFORMATIONS);
  op->chance = below(d, 1000000);
  op->count = 1;
  op->subs = cf_alloc(sizeof *op->subs);
  cf_op *sub = op->subs;
  *sub = (cf_op){.seat = op->seat, .kind = ANY_OF(d, kinds)};
  sub->path = gen_path(d, plan, op->seat);
  gen_rules(d, plan, sub, 300, 100);
  sub->watch = below(d, 2);
  gen_arguments(d, plan, sub);
}

static void gen_auth(dice *d, bool wire, cf_op *op) {
  static const char *const odd[] = {"", ":", "a:", ":b", "x:y:z", "\xc3\xa9:p"};
  op->scheme = "digest";
  op->data = permille(d, 100) ? ANY_OF(d, odd) : ANY_OF(d, users);
  op->len = (int)strlen(op->data);
  if (permille(d, 30))
    op->scheme = ANY_OF(d, ((const char *const[]){"foo", "world", "auth", ""}));
  if (wire && permille(d, 30)) op->scheme = "ip";
}

/* All arguments of this kind of operation. */
static void gen_arguments(dice *d, const cf_plan *plan, cf_op *op) {
  bool client = plan->seat[op->seat].client;
  switch (op->kind) {
    case CF_CREATE:
      gen_create(d, plan, op);
      break;
    case CF_SET:
      gen_data(d, op, INT_MAX);
      gen_version(d, op, false);
      break;
    case CF_DELETE:
      gen_version(d, op, false);
      break;
    case CF_SET_ACL:
      gen_version(d, op, false);
      gen_acls(d, plan, op);
      break;
    case CF_MULTI:
      gen_multi(d, plan, op);
      break;
    case CF_MULTI_READ:
      gen_multi_read(d, plan, op);
      break;
    case CF_ADD_WATCH:
      op->type =
          permille(d, 20) ? ANY_OF(d, ((const int[]){-1, 2, 9})) : below(d, 2);
      break;
    case CF_REMOVE_WATCH:
      op->type = 1 + below(d, 3);
      op->watch = client && plan->quiet ? below(d, CF_WATCHERS + 1) : 0;
      break;
    case CF_ADD_AUTH:
      gen_auth(d, plan->wire, op);
      break;
    case CF_SET_WATCHES:
      gen_set_watches(d, plan, op);
      break;
    case CF_CHECK_WATCH:
      op->type = permille(d, 50) ? below(d, 6) - 1 : 1 + below(d, 3);
      break;
    case CF_RECONNECT:
      op->type = below(d, 2) ? CF_DROPPED : below(d, CF_RECONNECTS);
      op->chance = below(d, 1000);
      break;
    case CF_MALFORMED:
      gen_malformed(d, plan, op);
      break;
    default:
      break;
  }
}

static bool can(const cf_plan *plan, int seat, cf_kind kind) {
#define WHO(name, weight, client, raw) {client, raw},
  static const struct { bool client, raw; } who[] = {CF_KIND_LIST(WHO)};
#undef WHO
  if (plan->wire) return kind != CF_CHECK;
  return plan->seat[seat].client ? who[kind].client : who[kind].raw;
}

/* A random kind that the seat's client can do. */
static cf_kind gen_kind(dice *d, const cf_plan *plan, int seat) {
  for (;;) {
    int total = 0, kind = 0;
    for (int i = 0; i < CF_KINDS; i++) total += plan->weight[i];
    int n = below(d, total);
    while ((n -= plan->weight[kind]) >= 0) kind++;
    if (can(plan, seat, (cf_kind)kind)) return (cf_kind)kind;
  }
}

void cf_generate(const cf_plan *plan, int index, cf_op *op) {
  dice d = {plan->seed * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)index};
  d.state = roll(&d);
  *op = (cf_op){.seat = below(&d, plan->seats)};
  bool client = plan->seat[op->seat].client;
  op->listen_first = below(&d, 2) != 0;
  op->revive = below(&d, 6) == 0;
  op->kind = gen_kind(&d, plan, op->seat);
  op->path = gen_path(&d, plan, op->seat);
  gen_rules(&d, plan, op, op->kind == CF_CREATE ? 100 : 350,
            op->kind == CF_REMOVE_WATCH ? 700 : 150);
  op->whole = below(&d, 2) != 0;
  bool can_watch =
      op->kind == CF_EXISTS || op->kind == CF_GET || op->kind == CF_CHILDREN;
  if (can_watch && below(&d, 2))
    op->watch = 1 + below(&d, client ? CF_WATCHERS : 1);
  gen_arguments(&d, plan, op);
  bool can_be_null = op->kind == CF_CREATE || op->kind == CF_DELETE ||
                     op->kind == CF_SET || op->kind == CF_EXISTS;
  if (can_be_null && permille(&d, 1) && !plan->seat[op->seat].chroot)
    op->path = NULL;
  if (plan->wire && below(&d, 4) == 0) op->ahead = 1 + below(&d, 12);
}

/* ---- plans ---- */

static void plan_names(dice *d, cf_plan *plan) {
  plan->names = 3 + below(d, 8);
  for (int i = 0; i < plan->names; i++)
    plan->name[i] =
        i < 2 || below(d, 2) ? ANY_OF(d, plain_names) : ANY_OF(d, odd_names);
}

/* The usual weights, some times three or a third; 0 for kinds that only the
 * wire has. */
static void plan_weights(dice *d, cf_plan *plan) {
#define WEIGHT(name, weight, client, raw) (client) || (raw) ? (weight) : 0,
  static const int usual[] = {CF_KIND_LIST(WEIGHT)};
#undef WEIGHT
  for (int i = 0; i < CF_KINDS; i++) {
    int mood = below(d, 6);
    bool end = i == CF_KILL || i == CF_EXPIRE;
    int thirds = mood == 0 ? 1 : 9;
    if (end || mood > 1) thirds = 3;
    plan->weight[i] = usual[i] * thirds;
  }
}

void cf_plan_make(uint64_t seed, cf_plan *plan) {
  dice d = {seed ^ UINT64_C(0x636f6e666f726d)};
  *plan = (cf_plan){.seed = seed, .file = seed % 4 == 3};
  plan->quiet = below(&d, 2) != 0;
  plan->seats = 2 + below(&d, CF_SEATS - 1);
  for (int i = 0; i < plan->seats; i++) {
    plan->seat[i].client = below(&d, 5) < 2;
    plan->seat[i].chroot = below(&d, 3) == 0;
    plan->seat[i].sibling = below(&d, 2) != 0;
  }
  plan->depth = 2 + below(&d, 3);
  plan->hostile = 10 + below(&d, 80);
  plan_names(&d, plan);
  plan_weights(&d, plan);
}

/* Every client is a raw one, without a chroot, which is a matter of clients. */
void cf_plan_wire(uint64_t seed, cf_plan *plan) {
#define WEIGHT(name, weight, client, raw) (client) || (raw) ? 0 : (weight)*3,
  static const int only_here[] = {CF_KIND_LIST(WEIGHT)};
#undef WEIGHT
  cf_plan_make(seed, plan);
  plan->wire = true;
  plan->file = true;
  plan->servers = 1 + (int)(seed % 2);
  for (int i = 0; i < CF_SEATS; i++) plan->seat[i] = (cf_seat_plan){0};
  for (int i = 0; i < CF_KINDS; i++) plan->weight[i] += only_here[i];
}
