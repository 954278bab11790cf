/* model.c - the tree's semantics a second time, in memory, without SQLite
 *
 *     memory    one block, which can be copied
 *     paths     which strings are paths
 *     digests   SHA-1, base64
 *     lists     ACLs, and who may do what
 *     nodes     the tree
 *     watches   rows, watchers, events
 *     ops       one operation on the tree, in the order of its checks
 *     sessions  begin, end, delivery
 *     calls     the engine's functions
 *
 * It must be plainly correct, so it searches lists from the front and compares
 * strings.  An undo copies the whole block back.
 */
#include "model.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct node node;
typedef struct watcher watcher;
typedef struct row row;
typedef struct event event;
typedef struct text text;
typedef struct alarm_at alarm_at;
typedef struct discard discard;

enum { CLASSES = 40, ONE_SHOT = -1 };

struct model {
  size_t size, top;
  void *unused[CLASSES]; /* released blocks, by power of two */
  zke_os os;
  int64_t zxid, container_ms;
  int data_limit;
  bool in_batch;
  node *root;
  zke *sessions; /* by id; ended ones stay until they are closed */
};

/* ---- memory ---- */

/* Mapped, because in the laboratory malloc() is its arena, whose regions are
 * smaller than this.  Unused pages are not touched.  A model that needs more
 * ends the program. */
static model *model_new(size_t bytes) {
  model *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED) abort();
  m->size = bytes;
  m->top = (sizeof *m + 63) & ~(size_t)63;
  return m;
}

void model_end(model *m) { munmap(m, m->size); }
size_t model_used(const model *m) { return m->top; }
void model_save(const model *m, void *to) { memcpy(to, m, m->top); }

void model_restore(model *m, const void *from) {
  memcpy(m, from, ((const model *)from)->top);
}

/* A block is preceded by its class. */
static void *mem_new(model *m, size_t size) {
  size_t power = 5;
  while (((size_t)1 << power) < size + 16) power++;
  char *block = m->unused[power];
  if (block) {
    memcpy(&m->unused[power], block + 16, sizeof(void *));
  } else {
    if (m->size - m->top < (size_t)1 << power) abort();
    block = (char *)m + m->top;
    m->top += (size_t)1 << power;
  }
  memset(block, 0, size + 16);
  *(size_t *)(void *)block = power;
  return block + 16;
}

static void mem_free(model *m, const void *at) {
  if (!at) return;
  size_t offset = (size_t)((const char *)at - (char *)m);
  char *block = (char *)m + offset - 16;
  size_t power = *(size_t *)(void *)block;
  memcpy(block + 16, &m->unused[power], sizeof(void *));
  m->unused[power] = block;
}

static char *mem_copy(model *m, const void *bytes, size_t len) {
  char *copy = mem_new(m, len + 1);
  if (len) memcpy(copy, bytes, len);
  return copy;
}

static char *mem_text(model *m, const char *s) {
  return mem_copy(m, s, strlen(s));
}

/* Memory for the time of a call. */
static void *temp_new(size_t size) {
  void *block = calloc(1, size);
  if (!block) abort();
  return block;
}

/* Memory for callers, who release it by zke_free(). */
static void *out_new(zke *z, size_t size) {
  void *block = zke_alloc(z, size);
  if (!block) abort();
  return memset(block, 0, size);
}

/* Several strings in one block. */
struct text {
  const char *at;
  text *next;
};

/* A list in one block, as the library returns it. */
static zke_strings *out_strings(zke *z, const text *first) {
  size_t bytes = sizeof(zke_strings);
  int count = 0;
  for (const text *t = first; t; t = t->next, count++)
    bytes += strlen(t->at) + 1 + sizeof(char *);
  zke_strings *s = out_new(z, bytes + sizeof(char *));
  s->data = (char **)(void *)(s + 1);
  char *at = (char *)(s->data + count);
  for (const text *t = first; t; t = t->next) {
    s->data[s->count++] = strcpy(at, t->at);
    at += strlen(at) + 1;
  }
  return s;
}

/* ---- paths ---- */

static bool path_is_sequential(int mode) {
  return mode == ZKE_PERSISTENT_SEQUENTIAL ||
         mode == ZKE_EPHEMERAL_SEQUENTIAL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

static bool path_is_dots(const char *at, size_t len) {
  return (len == 1 && at[0] == '.') || (len == 2 && memcmp(at, "..", 2) == 0);
}

/* semantics.md 1.3: what the C client lets through.  open: digits follow. */
static bool path_client(const char *path, bool open) {
  if (!path || path[0] != '/') return false;
  if (!path[1]) return true;
  while (*path) {
    size_t len = strcspn(path + 1, "/");
    bool last = !path[1 + len];
    for (size_t i = 1; i <= len; i++)
      if (path[i] > 0 && path[i] < 0x1f) return false;
    if (!(last && open) && (len == 0 || path_is_dots(path + 1, len)))
      return false;
    path += 1 + len;
  }
  return true;
}

/* The number of bytes that follow a character's first; -1: not a first byte. */
static int path_more(unsigned char first) {
  if (first < 0x80) return 0;
  if (first < 0xc2 || first > 0xf4) return -1;
  if (first < 0xe0) return 1;
  return first < 0xf0 ? 2 : 3;
}

/* One character of UTF-8; U+FFFD if it is invalid. */
static int path_decode(const unsigned char **at) {
  const unsigned char *s = *at;
  int more = path_more(s[0]);
  *at += 1;
  if (more < 0) return 0xfffd;
  if (more == 0) return s[0];
  static const int least[] = {0, 0x80, 0x800, 0x10000};
  int c = s[0] & (0x3f >> more);
  for (int i = 1; i <= more; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0xfffd;
    c = c << 6 | (s[i] & 0x3f);
  }
  *at += more;
  return c < least[more] ? 0xfffd : c;
}

static bool path_character(int c) {
  return c > 0x1f && !(c >= 0x7f && c <= 0x9f) &&
         !(c >= 0xd800 && c <= 0xf8ff) && c < 0xfff0;
}

/* semantics.md 1.1: what the server takes. */
static bool path_server(const char *path) {
  if (!path_client(path, false)) return false;
  for (const unsigned char *at = (const unsigned char *)path; *at;)
    if (!path_character(path_decode(&at))) return false;
  return true;
}

static bool path_below(const char *path, const char *top) {
  size_t len = strlen(top);
  if (len == 1) return true;
  return strncmp(path, top, len) == 0 && (!path[len] || path[len] == '/');
}

/* ---- digests ---- */

static uint32_t sha_turn(uint32_t x, int n) { return x << n | x >> (32 - n); }

static uint32_t sha_mix(int i, const uint32_t s[5]) {
  if (i < 20) return ((s[1] & s[2]) | (~s[1] & s[3])) + 0x5a827999u;
  if (i < 40) return (s[1] ^ s[2] ^ s[3]) + 0x6ed9eba1u;
  if (i < 60)
    return ((s[1] & s[2]) | (s[1] & s[3]) | (s[2] & s[3])) + 0x8f1bbcdcu;
  return (s[1] ^ s[2] ^ s[3]) + 0xca62c1d6u;
}

static uint32_t sha_word(const unsigned char *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 |
         at[3];
}

/* One block of SHA-1, by the standard: the model shares no code with the
 * engine. */
static void sha_block(uint32_t h[5], const unsigned char *block) {
  uint32_t w[80], s[5];
  memcpy(s, h, sizeof s);
  for (int i = 0; i < 80; i++) {
    if (i < 16)
      w[i] = sha_word(block + 4 * i);
    else
      w[i] = sha_turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t t = sha_turn(s[0], 5) + sha_mix(i, s) + s[4] + w[i];
    memmove(s + 1, s, 4 * sizeof *s);
    s[0] = t;
    s[2] = sha_turn(s[2], 30);
  }
  for (int i = 0; i < 5; i++) h[i] += s[i];
}

/* SHA-1 of some bytes, padded as the standard says. */
static void sha_sum(const char *bytes, size_t len, unsigned char out[20]) {
  uint32_t h[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u,
                   0xc3d2e1f0u};
  size_t whole = (len + 9 + 63) / 64 * 64;
  unsigned char *padded = temp_new(whole);
  memcpy(padded, bytes, len);
  padded[len] = 0x80;
  for (int i = 0; i < 8; i++)
    padded[whole - 1 - (size_t)i] = (unsigned char)((uint64_t)len * 8 >> 8 * i);
  for (size_t at = 0; at < whole; at += 64) sha_block(h, padded + at);
  for (int i = 0; i < 20; i++)
    out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
  free(padded);
}

/* "user:base64(sha1(user:password))" */
static char *digest_id(model *m, const char *cert, size_t len) {
  static const char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *colon = len ? memchr(cert, ':', len) : NULL;
  size_t user = colon ? (size_t)(colon - cert) : len;
  unsigned char sum[21] = {0};
  char *id = mem_new(m, user + 30), *at = id + user;
  sha_sum(cert, len, sum);
  if (user) memcpy(id, cert, user);
  *at++ = ':';
  for (int i = 0; i < 21; i += 3) {
    unsigned three =
        (unsigned)sum[i] << 16 | (unsigned)sum[i + 1] << 8 | sum[i + 2];
    for (int k = 18; k >= 0; k -= 6) *at++ = digits[three >> k & 63];
  }
  at[-1] = '=';
  return id;
}

/* ---- lists ---- */

/* An ACL that nodes and events share. */
typedef struct entry {
  int32_t perms;
  char *scheme, *id;
} entry;

typedef struct list {
  int count, refs;
  entry at[];
} list;

static list *list_share(list *l) {
  l->refs++;
  return l;
}

static void list_release(model *m, list *l) {
  if (--l->refs) return;
  for (int i = 0; i < l->count; i++) {
    mem_free(m, l->at[i].scheme);
    mem_free(m, l->at[i].id);
  }
  mem_free(m, l);
}

/* Java's split at ':' makes two parts of it: ends without text do not count. */
static bool list_is_digest(const char *id) {
  size_t len = strlen(id), colons = 0;
  while (len && id[len - 1] == ':') len--;
  for (size_t i = 0; i < len; i++) colons += id[i] == ':';
  return colons == 1;
}

static void list_add(model *m, list *l, int32_t perms, const char *scheme,
                     const char *id) {
  l->at[l->count++] = (entry){perms, mem_text(m, scheme), mem_text(m, id)};
}

/* ---- nodes ---- */

enum { PLAIN, CONTAINER, TTL };

struct node {
  node *up, *next, *down; /* children are sorted by their names' bytes */
  char *path, *name;      /* the name is the path's end */
  int64_t czxid, mzxid, pzxid, ctime, mtime, owner, ttl, emptied;
  int32_t version, aversion, creates, nchild;
  int32_t ahead;      /* creates, as this multi counts them */
  int64_t ahead_zxid; /* which multi */
  int kind, len;
  bool due; /* found by this sweep */
  char *data;
  list *acl;
};

static node *node_child(node *up, const char *name, size_t len) {
  for (node *n = up->down; n; n = n->next)
    if (strncmp(n->name, name, len) == 0 && !n->name[len]) return n;
  return NULL;
}

/* The node at a path, or NULL. */
static node *node_find(model *m, const char *path) {
  node *n = m->root;
  while (n && path[0] && path[1]) {
    size_t len = strcspn(path + 1, "/");
    n = node_child(n, path + 1, len);
    path += 1 + len;
  }
  return n;
}

/* The node before the last '/'. */
static node *node_parent(model *m, const char *path) {
  size_t len = (size_t)(strrchr(path, '/') - path);
  char *up = mem_copy(m, path, len);
  node *n = node_find(m, up);
  mem_free(m, up);
  return n;
}

static void node_data(model *m, node *n, const void *data, int len) {
  mem_free(m, n->data);
  n->data = len < 0 ? NULL : mem_copy(m, data, (size_t)len);
  n->len = len < 0 ? -1 : len;
}

/* A new node below another, among its siblings in order of names. */
static node *node_new(model *m, node *up, const char *path) {
  node *n = mem_new(m, sizeof *n), **at;
  n->up = up;
  n->path = mem_text(m, path);
  n->name = strrchr(n->path, '/') + 1;
  if (!up) return n;
  for (at = &up->down; *at && strcmp((*at)->name, n->name) < 0;)
    at = &(*at)->next;
  n->next = *at;
  *at = n;
  up->nchild++;
  return n;
}

/* Take a node out of the tree. */
static void node_free(model *m, node *n) {
  node **at = &n->up->down;
  while (*at != n) at = &(*at)->next;
  *at = n->next;
  n->up->nchild--;
  list_release(m, n->acl);
  mem_free(m, n->data);
  mem_free(m, n->path);
  mem_free(m, n);
}

/* A node's Stat: cversion counts creations and deletions of children. */
static zke_stat node_stat(const node *n) {
  return (zke_stat){
      .czxid = n->czxid,
      .mzxid = n->mzxid,
      .ctime = n->ctime,
      .mtime = n->mtime,
      .version = n->version,
      .cversion = (int32_t)(2u * (uint32_t)n->creates - (uint32_t)n->nchild),
      .aversion = n->aversion,
      .ephemeralOwner = n->owner,
      .dataLength = n->len < 0 ? 0 : n->len,
      .numChildren = n->nchild,
      .pzxid = n->pzxid};
}

static void node_tell(const node *n, zke_stat *out) {
  if (out) *out = node_stat(n);
}

/* The next node of the tree below top; parents first. */
static node *node_next(const node *n, const node *top) {
  if (n->down) return n->down;
  while (n != top && !n->next) n = n->up;
  return n == top ? NULL : n->next;
}

static int64_t clock_ms(model *m, int which) {
  return m->os.clock(m->os.context, which) / 1000000;
}

static int64_t wall(model *m) { return clock_ms(m, ZKE_CLOCK_REALTIME); }

static bool node_is_due(model *m, const node *n) {
  if (n->down) return false;
  if (n->kind == TTL) return wall(m) - n->mtime > n->ttl;
  return n->kind == CONTAINER && n->emptied &&
         wall(m) - n->emptied >= m->container_ms;
}

static list *list_world(model *m, int32_t perms) {
  list *l = mem_new(m, sizeof *l + sizeof *l->at);
  l->refs = 1;
  list_add(m, l, perms, "world", "anyone");
  return l;
}

static void node_reserved(model *m, node *up, const char *path, int32_t perms) {
  node *n = node_new(m, up, path);
  n->acl = list_world(m, perms);
  node_data(m, n, "", 0);
}

/* semantics.md 7: a fresh server's. */
static void node_plant(model *m) {
  m->root = node_new(m, NULL, "/");
  m->root->acl = list_world(m, ZKE_PERM_ALL);
  node_data(m, m->root, "", 0);
  node_reserved(m, m->root, "/zookeeper", ZKE_PERM_ALL);
  node *up = m->root->down;
  node_reserved(m, up, "/zookeeper/config", ZKE_PERM_READ);
  node_reserved(m, up, "/zookeeper/quota", ZKE_PERM_ALL);
  up->down->aversion = -1;
}

/* ---- sessions' structs ---- */

/* A watch as the server knows it: what the session watches. */
struct row {
  row *next;
  char *path;
  int type, mode; /* one of CHILD and DATA */
  int64_t since;
};

/* A watch as the client knows it: whom to call. */
struct watcher {
  watcher *next;
  char *path;
  int types, mode; /* a sum of CHILD and DATA */
  zke_watch_fn fn;
  void *context;
  int64_t since; /* the zxid at registration */
};

struct event {
  event *next;
  int type;
  char *path;
  int64_t zxid;
  list *acl;
  watcher *only; /* the only one told, whatever the list says; or NULL */
};

struct alarm_at {
  alarm_at *next;
  zke_watch_fn fn;
  void *context;
  int64_t when;
};

/* Nodes that must still be removed because a reply was lost. */
struct discard {
  discard *next;
  char *path;
  int mode;
  int64_t czxid;
};

typedef struct pair {
  zke_watch_fn fn;
  void *context;
} pair;

struct zke {
  zke_handle head; /* how zkembed.h sees it */
  model *m;
  zke *next;
  int64_t id, started, pid;
  bool gone;       /* no longer in the tree */
  bool end_untold; /* a session event is to be delivered */
  int state;
  char *chroot;
  row *rows;
  watcher *watchers; /* in the order of registration */
  event *events;
  alarm_at *alarms;
  text *ids;
  pair otherwise; /* the default watcher */
  int unread;     /* events withheld */
  int fail_when, fail_skip;
  discard *discards; /* newest first */
};

/* Does a list give the session's identities one of these permissions? */
static bool may(const zke *z, const list *acl, int32_t perms) {
  for (int i = 0; i < acl->count; i++) {
    const entry *e = &acl->at[i];
    if (!(e->perms & perms)) continue;
    if (strcmp(e->scheme, "world") == 0) return true;
    for (const text *t = z->ids; t; t = t->next)
      if (strcmp(t->at, e->id) == 0) return true;
  }
  return false;
}

static int list_add_auth(zke *z, list *l, int32_t perms) {
  if (!z->ids) return ZKE_INVALIDACL;
  for (const text *t = z->ids; t; t = t->next)
    list_add(z->m, l, perms, "digest", t->at);
  return ZKE_OK;
}

/* Add an entry of the caller's list, with "auth" expanded; the server's code if
 * it is invalid. */
static int list_add_given(zke *z, list *l, const zke_acl *a) {
  if (!a->scheme) return ZKE_INVALIDACL;
  if (strcmp(a->scheme, "auth") == 0) return list_add_auth(z, l, a->perms);
  bool world = strcmp(a->scheme, "world") == 0;
  if (!a->id) return world ? ZKE_MARSHALLINGERROR : ZKE_INVALIDACL;
  bool valid = world
                   ? strcmp(a->id, "anyone") == 0
                   : strcmp(a->scheme, "digest") == 0 && list_is_digest(a->id);
  if (valid) list_add(z->m, l, a->perms, a->scheme, a->id);
  return valid ? ZKE_OK : ZKE_INVALIDACL;
}

static bool text_same(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

/* An entry given twice counts once; the expansion of "auth" may repeat
 * entries. */
static bool list_given_before(const zke_acls *acls, int at) {
  const zke_acl *a = &acls->data[at];
  for (int i = 0; i < at; i++) {
    const zke_acl *b = &acls->data[i];
    if (a->perms == b->perms && text_same(a->scheme, b->scheme) &&
        text_same(a->id, b->id))
      return true;
  }
  return false;
}

/* semantics.md 8: the list as it is stored. */
static int list_make(zke *z, const zke_acls *acls, list **out) {
  size_t most = 0;
  int rc = ZKE_OK;
  if (!acls || acls->count <= 0 || !acls->data) return ZKE_INVALIDACL;
  for (const text *t = z->ids; t; t = t->next) most++;
  most = (most + 1) * (size_t)acls->count;
  list *l = mem_new(z->m, sizeof *l + most * sizeof *l->at);
  l->refs = 1;
  for (int i = 0; i < acls->count && rc == ZKE_OK; i++)
    if (!list_given_before(acls, i)) rc = list_add_given(z, l, &acls->data[i]);
  if (rc == ZKE_OK)
    *out = l;
  else
    list_release(z->m, l);
  return rc;
}

/* ---- watches ---- */

static row *row_find(zke *z, const char *path, int type, int mode) {
  for (row *r = z->rows; r; r = r->next)
    if (r->type == type && r->mode == mode && strcmp(r->path, path) == 0)
      return r;
  return NULL;
}

static void row_drop(zke *z, row **at) {
  row *r = *at;
  *at = r->next;
  mem_free(z->m, r->path);
  mem_free(z->m, r);
}

static void row_add(zke *z, const char *path, int type, int mode) {
  if (row_find(z, path, type, mode)) return;
  row *r = mem_new(z->m, sizeof *r);
  *r = (row){z->rows, mem_text(z->m, path), type, mode, z->m->zxid};
  z->rows = r;
}

static bool row_fires(const row *r, const char *path, int table, int type) {
  if (r->type != table) return false;
  if (r->mode != ZKE_WATCH_PERSISTENT_RECURSIVE)
    return strcmp(r->path, path) == 0;
  return type != ZKE_EVENT_CHILD && path_below(path, r->path);
}

/* Take the one-shot rows that fire; was there any row? */
static bool watch_take(zke *z, const char *path, int table, int type) {
  bool any = false;
  for (row **at = &z->rows; *at;) {
    bool fires = row_fires(*at, path, table, type);
    any |= fires;
    if (fires && (*at)->mode == ONE_SHOT)
      row_drop(z, at);
    else
      at = &(*at)->next;
  }
  return any;
}

static event *event_add(zke *z, int type, const char *path, list *acl) {
  event **at = &z->events, *e = mem_new(z->m, sizeof *e);
  while (*at) at = &(*at)->next;
  *e = (event){.type = type,
               .path = mem_text(z->m, path),
               .zxid = z->m->zxid,
               .acl = acl ? list_share(acl) : NULL};
  *at = e;
  return e;
}

static void event_drop_at(zke *z, event **at) {
  event *e = *at;
  *at = e->next;
  if (e->acl) list_release(z->m, e->acl);
  mem_free(z->m, e->path);
  mem_free(z->m, e);
}

static void event_drop(zke *z) { event_drop_at(z, &z->events); }

/* The event that is owed to a watcher that was set too late; NULL: it waits. */
static event **event_owed(zke *z, const watcher *w) {
  event **at = &z->events;
  while (*at && (*at)->only != w) at = &(*at)->next;
  return *at ? at : NULL;
}

/* Queue the event for each session that watches the path, and drop its one-shot
 * watches. */
static void watch_fire(model *m, const char *path, int type, list *acl) {
  for (zke *z = m->sessions; z; z = z->next) {
    bool any = false;
    if (type != ZKE_EVENT_CHILD)
      any |= watch_take(z, path, ZKE_WATCH_DATA, type);
    if (type == ZKE_EVENT_CHILD || type == ZKE_EVENT_DELETED)
      any |= watch_take(z, path, ZKE_WATCH_CHILD, type);
    if (any) event_add(z, type, path, acl);
  }
}

static bool watcher_is(const watcher *w, zke_watch_fn fn, const void *context) {
  return w->fn == fn && w->context == context;
}

static void watcher_drop(zke *z, watcher **at) {
  watcher *w = *at;
  event **owed = event_owed(z, w);
  if (owed) event_drop_at(z, owed);
  *at = w->next;
  mem_free(z->m, w->path);
  mem_free(z->m, w);
}

/* Does the watcher belong to the row, or has its row already fired? */
static bool watcher_has(const watcher *w, const row *r) {
  return w->mode == r->mode && (w->types & r->type) && w->since >= r->since &&
         strcmp(w->path, r->path) == 0;
}

static watcher *watcher_add(zke *z, const char *path, int types, int mode,
                            const pair *p) {
  watcher **at = &z->watchers, *w = mem_new(z->m, sizeof *w);
  while (*at) at = &(*at)->next;
  *w = (watcher){NULL,  mem_text(z->m, path), types,     mode,
                 p->fn, p->context,           z->m->zxid};
  *at = w;
  return w;
}

/* The watch of a reading call. */
static void watch_once(zke *z, const char *path, int type, const pair *p) {
  if (!p->fn) return;
  row *r = row_find(z, path, type, ONE_SHOT);
  for (watcher *w = z->watchers; w && r; w = w->next)
    if (watcher_is(w, p->fn, p->context) && watcher_has(w, r) &&
        !event_owed(z, w))
      return;
  row_add(z, path, type, ONE_SHOT);
  watcher_add(z, path, type, ONE_SHOT, p);
}

/* A persistent watch replaces one of the other kind on the same path. */
static void watch_stay(zke *z, const char *path, int mode, const pair *p) {
  bool known = false;
  for (row **at = &z->rows; *at;) {
    if ((*at)->mode == !mode && strcmp((*at)->path, path) == 0)
      row_drop(z, at);
    else
      at = &(*at)->next;
  }
  row_add(z, path, ZKE_WATCH_CHILD, mode);
  row_add(z, path, ZKE_WATCH_DATA, mode);
  for (watcher *w = z->watchers; w; w = w->next) {
    if (w->mode == ONE_SHOT || strcmp(w->path, path) != 0) continue;
    w->mode = mode;
    known |= watcher_is(w, p->fn, p->context) && w->types == ZKE_WATCH_ANY;
  }
  if (!known) watcher_add(z, path, ZKE_WATCH_ANY, mode, p);
}

/* Remove rows that no watcher needs any more. */
static void watch_tidy(zke *z) {
  for (row **at = &z->rows; *at;) {
    bool needed = false;
    for (watcher *w = z->watchers; w && !needed; w = w->next)
      needed = w->mode == (*at)->mode && (w->types & (*at)->type) &&
               !event_owed(z, w) &&
               (w->mode != ONE_SHOT || w->since >= (*at)->since) &&
               strcmp(w->path, (*at)->path) == 0;
    if (needed)
      at = &(*at)->next;
    else
      row_drop(z, at);
  }
}

/* Remove a pair's watches (NULL: all) of the path and types. */
static int watch_remove(zke *z, const char *path, int types, const pair *p) {
  int rc = ZKE_NOWATCHER;
  for (watcher **at = &z->watchers; *at;) {
    watcher *w = *at;
    bool mine = !p || watcher_is(w, p->fn, p->context);
    if (mine && (w->types & types) && strcmp(w->path, path) == 0) {
      w->types &= ~types;
      rc = ZKE_OK;
    }
    if (w->types)
      at = &w->next;
    else
      watcher_drop(z, at);
  }
  watch_tidy(z);
  return rc;
}

/* ---- the tree's changes ---- */

/* semantics.md 2.3: the counter sticks at its maximum, except for later creates
 * of the same multi. */
static int32_t tree_number(const model *m, const node *up) {
  return up->ahead_zxid == m->zxid ? up->ahead : up->creates;
}

static void tree_count(model *m, node *up) {
  up->ahead = (int32_t)((uint32_t)tree_number(m, up) + 1);
  up->ahead_zxid = m->zxid;
  if (up->ahead <= up->creates) return;
  up->creates = up->ahead;
  up->pzxid = m->zxid;
}

/* Remove a node: the parent's Stat, then its watches and its parent's. */
static void tree_remove(model *m, node *n) {
  node *up = n->up;
  char *path = mem_text(m, n->path);
  list *acl = list_share(n->acl);
  node_free(m, n);
  up->pzxid = m->zxid;
  if (!up->down) up->emptied = wall(m);
  watch_fire(m, path, ZKE_EVENT_DELETED, acl);
  watch_fire(m, up->path, ZKE_EVENT_CHILD, up->acl);
  list_release(m, acl);
  mem_free(m, path);
}

/* ---- ops ---- */

/* The arguments of an operation on the tree, with whole paths. */
typedef struct ask {
  const char *path;
  const void *data;
  int len, mode, version;
  const zke_acls *acls;
  int64_t ttl;
  zke_stat *stat;
  char *made; /* create: the path, in the model's memory */
} ask;

static bool version_fits(int32_t is, int asked) {
  return asked == -1 || asked == is;
}

static int create_check(zke *z, const ask *a, node **up) {
  *up = node_parent(z->m, a->path);
  if (!*up) return ZKE_NONODE;
  return may(z, (*up)->acl, ZKE_PERM_CREATE) ? ZKE_OK : ZKE_NOAUTH;
}

static char *create_path(model *m, const ask *a, const node *up) {
  size_t len = strlen(a->path);
  char *path = mem_new(m, len + 16);
  memcpy(path, a->path, len);
  if (path_is_sequential(a->mode))
    snprintf(path + len, 16, "%010d", tree_number(m, up));
  return path;
}

/* Make a node: the parent's Stat, then the watches on it and on its parent. */
static void create_node(zke *z, const ask *a, node *up, const char *path,
                        list *acl) {
  model *m = z->m;
  tree_count(m, up);
  node *n = node_new(m, up, path);
  n->czxid = n->mzxid = n->pzxid = m->zxid;
  n->ctime = n->mtime = wall(m);
  n->acl = acl;
  if (a->mode == ZKE_EPHEMERAL || a->mode == ZKE_EPHEMERAL_SEQUENTIAL)
    n->owner = z->id;
  if (a->mode == ZKE_CONTAINER) n->kind = CONTAINER;
  if (a->mode >= ZKE_PERSISTENT_WITH_TTL) n->kind = TTL;
  n->ttl = a->ttl;
  node_data(m, n, a->data, a->len);
  node_tell(n, a->stat);
  watch_fire(m, path, ZKE_EVENT_CREATED, acl);
  watch_fire(m, up->path, ZKE_EVENT_CHILD, up->acl);
}

/* A create, with the server's checks in the server's order. */
static int op_create(zke *z, ask *a) {
  model *m = z->m;
  list *acl;
  node *up;
  int rc = list_make(z, a->acls, &acl);
  if (rc != ZKE_OK) return rc;
  rc = create_check(z, a, &up);
  if (rc == ZKE_OK) {
    a->made = create_path(m, a, up);
    if (!path_server(a->made))
      rc = ZKE_BADARGUMENTS;
    else if (node_find(m, a->made))
      rc = ZKE_NODEEXISTS;
    else if (up->owner)
      rc = ZKE_NOCHILDRENFOREPHEMERALS;
  }
  if (rc == ZKE_OK)
    create_node(z, a, up, a->made, acl);
  else
    list_release(m, acl);
  return rc;
}

static bool is_reserved(const char *path) {
  return strcmp(path, "/") == 0 || strcmp(path, "/zookeeper") == 0 ||
         strcmp(path, "/zookeeper/config") == 0 ||
         strcmp(path, "/zookeeper/quota") == 0;
}

/* A delete, likewise. */
static int op_delete(zke *z, const ask *a) {
  if (is_reserved(a->path)) return ZKE_BADARGUMENTS;
  node *up = node_parent(z->m, a->path), *n = node_find(z->m, a->path);
  if (!up) return ZKE_NONODE;
  if (!may(z, up->acl, ZKE_PERM_DELETE)) return ZKE_NOAUTH;
  if (!n) return ZKE_NONODE;
  if (!version_fits(n->version, a->version)) return ZKE_BADVERSION;
  if (n->down) return ZKE_NOTEMPTY;
  tree_remove(z->m, n);
  return ZKE_OK;
}

/* The checks that set, set_acl and check share. */
static int op_find(zke *z, const char *path, int32_t perms, node **out) {
  if (!path_server(path)) return ZKE_BADARGUMENTS;
  *out = node_find(z->m, path);
  if (!*out) return ZKE_NONODE;
  return may(z, (*out)->acl, perms) ? ZKE_OK : ZKE_NOAUTH;
}

/* After -2 comes 0, since a version of -1 would mean any. */
static int32_t version_after(int32_t version) {
  if (version == -2) return 0;
  return version == INT32_MAX ? INT32_MIN : version + 1;
}

/* A set, likewise. */
static int op_set(zke *z, const ask *a) {
  node *n;
  int rc = op_find(z, a->path, ZKE_PERM_WRITE, &n);
  if (rc != ZKE_OK) return rc;
  if (!version_fits(n->version, a->version)) return ZKE_BADVERSION;
  n->version = version_after(n->version);
  n->mzxid = z->m->zxid;
  n->mtime = wall(z->m);
  node_data(z->m, n, a->data, a->len);
  node_tell(n, a->stat);
  watch_fire(z->m, a->path, ZKE_EVENT_CHANGED, n->acl);
  return ZKE_OK;
}

static int op_check(zke *z, const ask *a) {
  node *n;
  int rc = op_find(z, a->path, ZKE_PERM_READ, &n);
  if (rc != ZKE_OK) return rc;
  return version_fits(n->version, a->version) ? ZKE_OK : ZKE_BADVERSION;
}

/* Likewise, a set_acl with the list as it will be stored. */
static int op_set_acl_of(zke *z, const ask *a, list *acl) {
  node *n;
  int rc = op_find(z, a->path, ZKE_PERM_ADMIN, &n);
  if (rc != ZKE_OK) return rc;
  if (!version_fits(n->aversion, a->version)) return ZKE_BADVERSION;
  list_release(z->m, n->acl);
  n->acl = list_share(acl);
  n->aversion = version_after(n->aversion);
  node_tell(n, a->stat);
  return ZKE_OK;
}

/* A set_acl: the path and the list are checked before the node. */
static int op_set_acl(zke *z, ask *a) {
  list *acl;
  if (!path_server(a->path)) return ZKE_BADARGUMENTS;
  int rc = list_make(z, a->acls, &acl);
  if (rc != ZKE_OK) return rc;
  rc = op_set_acl_of(z, a, acl);
  list_release(z->m, acl);
  return rc;
}

/* A raise of a parent's counter, likewise. */
static int op_raise(zke *z, const ask *a) {
  node *n;
  int rc = op_find(z, a->path, ZKE_PERM_CREATE, &n);
  if (rc != ZKE_OK) return rc;
  if (n->owner) return ZKE_NOCHILDRENFOREPHEMERALS;
  if (a->version > n->creates) {
    n->creates = a->version;
    n->pzxid = z->m->zxid;
  } else {
    z->m->zxid--;
  }
  node_tell(n, a->stat);
  return ZKE_OK;
}

/* ---- sessions ---- */

static zke *session_find(model *m, int64_t id) {
  for (zke *z = m->sessions; z; z = z->next)
    if (z->id == id && !z->gone) return z;
  return NULL;
}

static void session_forget_rows(zke *z) {
  while (z->rows) row_drop(z, &z->rows);
  while (z->events) event_drop(z);
}

/* In order of parents, then of names. */
static bool remove_before(const node *a, const node *b) {
  int order = strcmp(a->up->path, b->up->path);
  return order ? order < 0 : strcmp(a->name, b->name) < 0;
}

static node *session_first(zke *z) {
  node *first = NULL;
  for (node *n = z->m->root; n; n = node_next(n, z->m->root))
    if (n->owner == z->id && (!first || remove_before(n, first))) first = n;
  return first;
}

/* All with one zxid; the session gets no events. */
static void session_remove(zke *z) {
  z->m->zxid++;
  z->gone = true;
  session_forget_rows(z);
  for (node *n; (n = session_first(z));) tree_remove(z->m, n);
}

/* A new session, after all older ones. */
static zke *session_new(model *m, const zke_handle *head,
                        const zke_options *o) {
  zke **at = &m->sessions, *z = mem_new(m, sizeof *z);
  z->head = *head;
  while (*at) at = &(*at)->next;
  *at = z;
  z->m = m;
  z->id = ++m->zxid;
  z->started = wall(m);
  z->pid = m->os.pid(m->os.context);
  z->state = ZKE_STATE_CONNECTED;
  bool root = !o->chroot || !*o->chroot || strcmp(o->chroot, "/") == 0;
  z->chroot = mem_text(m, root ? "" : o->chroot);
  z->otherwise = (pair){o->watcher, o->watcher_context};
  return z;
}

static void alarm_drop(zke *z, alarm_at **at) {
  alarm_at *a = *at;
  *at = a->next;
  mem_free(z->m, a);
}

static void discard_free(zke *z) {
  for (discard *d; (d = z->discards);) {
    z->discards = d->next;
    mem_free(z->m, d->path);
    mem_free(z->m, d);
  }
}

/* Forget a session, when its handle is closed. */
static void session_free(zke *z) {
  model *m = z->m;
  discard_free(z);
  zke **at = &m->sessions;
  while (*at != z) at = &(*at)->next;
  *at = z->next;
  while (z->watchers) watcher_drop(z, &z->watchers);
  while (z->alarms) alarm_drop(z, &z->alarms);
  for (text *t; (t = z->ids);) {
    z->ids = t->next;
    mem_free(m, t->at);
    mem_free(m, t);
  }
  mem_free(m, z->chroot);
  mem_free(m, z);
}

/* ---- delivery ---- */

static const char *shown(const zke *z, const char *path) {
  const char *rest = path + strlen(z->chroot);
  return *rest ? rest : "/";
}

/* The pairs to call, each once. */
typedef struct calls {
  int count, room;
  pair *at;
} calls;

/* Each pair of a function and its context is called once for an event, however
 * many watches have it. */
static void calls_add(calls *c, zke_watch_fn fn, void *context) {
  for (int i = 0; i < c->count; i++)
    if (c->at[i].fn == fn && c->at[i].context == context) return;
  if (c->count == c->room) {
    c->room = 2 * c->room + 8;
    c->at = realloc(c->at, (size_t)c->room * sizeof *c->at);
    if (!c->at) abort();
  }
  c->at[c->count++] = (pair){fn, context};
}

/* Call them; returns their number. */
static int calls_make(calls *c, zke *z, int type, const char *path) {
  for (int i = 0; i < c->count; i++)
    c->at[i].fn(z, type, z->state, path, c->at[i].context);
  free(c->at);
  return c->count;
}

static int event_types(int type) {
  if (type == ZKE_EVENT_DELETED) return ZKE_WATCH_ANY;
  return type == ZKE_EVENT_CHILD ? ZKE_WATCH_CHILD : ZKE_WATCH_DATA;
}

/* Not what was registered after the change. */
static bool watcher_hears(const watcher *w, const event *e) {
  if (w->since >= e->zxid || !(w->types & event_types(e->type))) return false;
  if (w->mode != ZKE_WATCH_PERSISTENT_RECURSIVE)
    return strcmp(w->path, e->path) == 0;
  return e->type != ZKE_EVENT_CHILD && path_below(e->path, w->path);
}

/* Add the watchers of one path; remove the one-shot ones. */
static void event_collect_at(zke *z, const event *e, size_t len, calls *c) {
  for (watcher **at = &z->watchers; *at;) {
    watcher *w = *at;
    bool hears =
        strlen(w->path) == len && watcher_hears(w, e) && !event_owed(z, w);
    if (hears) calls_add(c, w->fn, w->context);
    if (hears && w->mode == ONE_SHOT)
      watcher_drop(z, at);
    else
      at = &w->next;
  }
}

/* The watchers of the path itself first, then those of the nearest
 * ancestors. */
static void event_collect(zke *z, const event *e, calls *c) {
  for (size_t len = strlen(e->path); len > 0; len--)
    event_collect_at(z, e, len, c);
}

/* Call the watchers of the session's oldest event, unless the session may not
 * read it; returns how many were called. */
static int event_deliver(zke *z) {
  event *e = z->events;
  calls c = {0};
  watcher **only = &z->watchers;
  while (e->only && *only != e->only) only = &(*only)->next;
  if (e->only)
    calls_add(&c, e->only->fn, e->only->context);
  else
    event_collect(z, e, &c);
  if (!e->only && !may(z, e->acl, ZKE_PERM_READ)) {
    z->unread++;
    c.count = 0;
  }
  int type = e->type;
  char *path = strdup(shown(z, e->path));
  if (!path) abort();
  if (e->only)
    watcher_drop(z, only); /* and the event */
  else
    event_drop(z);
  int called = calls_make(&c, z, type, path);
  free(path);
  return called;
}

/* Call all watchers once with the session's end. */
static int end_deliver(zke *z) {
  calls c = {0};
  if (!z->end_untold) return 0;
  z->end_untold = false;
  for (watcher *w = z->watchers; w; w = w->next)
    calls_add(&c, w->fn, w->context);
  for (alarm_at *a = z->alarms; a; a = a->next)
    calls_add(&c, a->fn, a->context);
  if (z->otherwise.fn) calls_add(&c, z->otherwise.fn, z->otherwise.context);
  return calls_make(&c, z, ZKE_EVENT_SESSION, "");
}

/* Deliver an alarm that is due, and forget its pair. */
static int alarm_deliver(zke *z, int64_t now) {
  int called = 0;
  for (alarm_at **at = &z->alarms; *at;) {
    alarm_at *a = *at, due = *a;
    if (due.when > now) {
      at = &a->next;
      continue;
    }
    alarm_drop(z, at);
    due.fn(z, ZKE_EVENT_ALARM, z->state, "", due.context);
    called++;
  }
  return called;
}

/* ---- calls ---- */

/* The whole path; NULL if the client refuses it. */
static char *whole(const zke *z, const char *path, int mode) {
  bool open = path_is_sequential(mode);
  if (!path || path[0] != '/') return NULL;
  bool root = !path[1] && *z->chroot;
  if (root && open) return NULL;
  char *all = mem_new(z->m, strlen(z->chroot) + strlen(path) + 1);
  strcpy(all, z->chroot);
  if (!root) strcat(all, path);
  if (path_client(all, open)) return all;
  mem_free(z->m, all);
  return NULL;
}

static int usable(const zke *z) {
  return z->state == ZKE_STATE_CONNECTED ? ZKE_OK : ZKE_INVALIDSTATE;
}

/* What a lost reply takes: before, after, or nothing. */
static int lose(zke *z, bool read) {
  if (!z->fail_when || (z->fail_when == ZKE_TEST_FAIL_READ) != read) return 0;
  if (z->fail_skip-- > 0) return 0;
  int when = z->fail_when;
  z->fail_when = 0;
  return when;
}

/* Does it look like a number that a sequential create appends?  It has ten
 * characters, perhaps with a minus; eleven only below -999999999. */
static bool is_number(const char *s) {
  size_t len = strlen(s), minus = *s == '-';
  if (minus + strspn(s + minus, "0123456789") != len) return false;
  return len == 10 || (len == 11 && minus && (s[1] == '1' || s[1] == '2'));
}

/* The first node that a discard must still remove, or NULL. */
static node *discard_first(zke *z, const discard *d) {
  node *first = NULL;
  const char *path = d->path;
  size_t len = strlen(path);
  for (node *n = z->m->root; n; n = node_next(n, z->m->root)) {
    bool named = d->mode == ZKE_EPHEMERAL ? strcmp(n->path, path) == 0
                                          : strncmp(n->path, path, len) == 0 &&
                                                is_number(n->path + len);
    if (n->owner != z->id || !named || (d->czxid && n->czxid != d->czxid))
      continue;
    if (!first || remove_before(n, first)) first = n;
  }
  return first;
}

/* One zxid for all of them; none if there is nothing to remove. */
static void discard_apply(zke *z) {
  bool any = false;
  z->m->zxid++;
  for (const discard *d = z->discards; d; d = d->next) {
    for (node *n; (n = discard_first(z, d)); any = true) tree_remove(z->m, n);
  }
  if (!any) z->m->zxid--;
}

static int64_t model_now(zke *z) { return clock_ms(z->m, ZKE_CLOCK_MONOTONIC); }
static int64_t model_wall(zke *z) { return wall(z->m); }

/* Apply the discards: immediately before any call; in a batch only before those
 * that change anything, watches included. */
static int enter(zke *z, bool changes) {
  if (z->state != ZKE_STATE_CONNECTED) return ZKE_INVALIDSTATE;
  if (!z->discards || (z->m->in_batch && !changes)) return ZKE_OK;
  discard_apply(z);
  discard_free(z);
  return ZKE_OK;
}

/* An impossible length is found before the handle is looked at. */
static bool length_is_bad(const void *data, int len) {
  return len < -1 || (!data && len > 0);
}

static bool data_is_bad(const zke *z, const void *data, int len) {
  return length_is_bad(data, len) || len > z->m->data_limit;
}

/* One change of the tree, with its zxid; its reply may be lost. */
static int change(zke *z, int (*op)(zke *, ask *), ask *a) {
  int rc = enter(z, true);
  if (rc != ZKE_OK) return rc;
  if (data_is_bad(z, a->data, a->len)) return ZKE_BADARGUMENTS;
  int lost = lose(z, false);
  if (lost == ZKE_TEST_FAIL_BEFORE) return ZKE_CONNECTIONLOSS;
  z->m->zxid++;
  rc = op(z, a);
  if (rc != ZKE_OK) z->m->zxid--;
  return lost ? ZKE_CONNECTIONLOSS : rc;
}

static bool mode_is_bad(int mode, int64_t ttl, bool has_ttl) {
  bool wants = mode == ZKE_PERSISTENT_WITH_TTL ||
               mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
  if (mode < 0 || mode > ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL) return true;
  return wants != has_ttl || (wants && (ttl < 1 || ttl > ZKE_MAX_TTL));
}

/* A create of the public interface, of any mode. */
static int create_any(zke *z, ask *a, bool has_ttl, char **path_out,
                      zke_stat *stat_out) {
  if (mode_is_bad(a->mode, a->ttl, has_ttl)) return ZKE_BADARGUMENTS;
  if (length_is_bad(a->data, a->len)) return ZKE_BADARGUMENTS;
  char *path = whole(z, a->path, a->mode);
  zke_stat stat;
  if (!path) return ZKE_BADARGUMENTS;
  a->path = path;
  a->stat = &stat;
  int rc = change(z, op_create, a);
  if (rc == ZKE_OK && stat_out) *stat_out = stat;
  if (rc == ZKE_OK && path_out) {
    *path_out = out_new(z, strlen(a->made) + 2);
    strcpy(*path_out, shown(z, a->made));
  }
  mem_free(z->m, a->made);
  mem_free(z->m, path);
  return rc;
}

static int model_create(zke *z, const char *path, const void *data, int len,
                        const zke_acls *acls, int mode, char **path_out,
                        zke_stat *stat_out) {
  ask a = {.path = path, .data = data, .len = len, .acls = acls, .mode = mode};
  return create_any(z, &a, false, path_out, stat_out);
}

static int model_create_ttl(zke *z, const char *path, const void *data, int len,
                            const zke_acls *acls, int mode, int64_t ttl_ms,
                            char **path_out, zke_stat *stat_out) {
  ask a = {.path = path,
           .data = data,
           .len = len,
           .acls = acls,
           .mode = mode,
           .ttl = ttl_ms};
  return create_any(z, &a, true, path_out, stat_out);
}

/* A change of one node that should exist. */
static int change_at(zke *z, int (*op)(zke *, ask *), ask *a,
                     zke_stat *stat_out) {
  if (length_is_bad(a->data, a->len)) return ZKE_BADARGUMENTS;
  char *path = whole(z, a->path, ZKE_PERSISTENT);
  zke_stat stat;
  if (!path) return ZKE_BADARGUMENTS;
  a->path = path;
  a->stat = &stat;
  int rc = change(z, op, a);
  if (rc == ZKE_OK && stat_out) *stat_out = stat;
  mem_free(z->m, path);
  return rc;
}

static int change_delete(zke *z, ask *a) { return op_delete(z, a); }
static int change_set(zke *z, ask *a) { return op_set(z, a); }
static int change_raise(zke *z, ask *a) { return op_raise(z, a); }

static int model_delete(zke *z, const char *path, int version) {
  ask a = {.path = path, .version = version};
  return change_at(z, change_delete, &a, NULL);
}

static int model_set(zke *z, const char *path, const void *data, int len,
                     int version, zke_stat *stat_out) {
  ask a = {.path = path, .data = data, .len = len, .version = version};
  return change_at(z, change_set, &a, stat_out);
}

static int model_set_acl(zke *z, const char *path, int version,
                         const zke_acls *acls, zke_stat *stat_out) {
  ask a = {.path = path, .version = version, .acls = acls};
  return change_at(z, op_set_acl, &a, stat_out);
}

static int model_raise_sequence(zke *z, const char *path, int next,
                                zke_stat *stat_out) {
  ask a = {.path = path, .version = next};
  if (next < 0) return ZKE_BADARGUMENTS;
  return change_at(z, change_raise, &a, stat_out);
}

static void discard_note(zke *z, char *path, int mode, int64_t czxid) {
  discard *d = mem_new(z->m, sizeof *d);
  *d = (discard){z->discards, path, mode, czxid};
  z->discards = d;
}

static int model_discard(zke *z, const char *path, int mode, int64_t czxid) {
  if (mode != ZKE_EPHEMERAL && mode != ZKE_EPHEMERAL_SEQUENTIAL)
    return ZKE_BADARGUMENTS;
  char *all = whole(z, path, mode);
  if (!all) return ZKE_BADARGUMENTS;
  discard_note(z, all, mode, czxid);
  int rc = usable(z), lost = rc == ZKE_OK ? lose(z, false) : 0;
  if (rc == ZKE_OK && lost != ZKE_TEST_FAIL_BEFORE) discard_apply(z);
  if (rc == ZKE_OK && !lost) discard_free(z);
  return lost ? ZKE_CONNECTIONLOSS : rc;
}

/* ---- calls: reads ---- */

/* The node that may be read; *path is the caller's to release. */
static int look(zke *z, const char *path, int32_t perms, bool watches,
                char **all, node **out) {
  *out = NULL;
  *all = whole(z, path, ZKE_PERSISTENT);
  if (!*all) return ZKE_BADARGUMENTS;
  int rc = enter(z, watches);
  if (rc != ZKE_OK) return rc;
  if (lose(z, true)) return ZKE_CONNECTIONLOSS;
  *out = node_find(z->m, *all);
  if (!*out) return ZKE_NONODE;
  return !perms || may(z, (*out)->acl, perms) ? ZKE_OK : ZKE_NOAUTH;
}

static int model_exists(zke *z, const char *path, zke_watch_fn fn,
                        void *context, zke_stat *stat_out) {
  char *all;
  node *n;
  int rc = look(z, path, 0, fn != NULL, &all, &n);
  if (rc == ZKE_OK || rc == ZKE_NONODE)
    watch_once(z, all, ZKE_WATCH_DATA, &(pair){fn, context});
  if (rc == ZKE_OK) node_tell(n, stat_out);
  mem_free(z->m, all);
  return rc;
}

static char *out_data(zke *z, const node *n) {
  if (n->len < 0) return NULL;
  char *data = out_new(z, (size_t)n->len + 1);
  if (n->len) memcpy(data, n->data, (size_t)n->len);
  return data;
}

static int model_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                     char **data_out, int *len_out, zke_stat *stat_out) {
  char *all;
  node *n;
  int rc = look(z, path, ZKE_PERM_READ, fn != NULL, &all, &n);
  if (rc == ZKE_OK) {
    watch_once(z, all, ZKE_WATCH_DATA, &(pair){fn, context});
    if (data_out) *data_out = out_data(z, n);
    if (len_out) *len_out = n->len;
    node_tell(n, stat_out);
  }
  mem_free(z->m, all);
  return rc;
}

/* The names after one, at most this many; 0: all. */
static zke_strings *out_names(zke *z, const node *n, const char *after,
                              int most) {
  text *names = NULL, *last = NULL;
  int count = 0;
  size_t room = (size_t)n->nchild + 1;
  names = temp_new(room * sizeof *names);
  for (const node *c = n->down; c && (!most || count < most); c = c->next) {
    if (*after && strcmp(c->name, after) <= 0) continue;
    names[count] = (text){c->name, NULL};
    if (last) last->next = &names[count];
    last = &names[count++];
  }
  zke_strings *s = out_strings(z, last ? names : NULL);
  free(names);
  return s;
}

static int model_children(zke *z, const char *path, zke_watch_fn fn,
                          void *context, zke_strings **names_out,
                          zke_stat *stat_out) {
  char *all;
  node *n;
  int rc = look(z, path, ZKE_PERM_READ, fn != NULL, &all, &n);
  if (rc == ZKE_OK) {
    watch_once(z, all, ZKE_WATCH_CHILD, &(pair){fn, context});
    if (names_out) *names_out = out_names(z, n, "", 0);
    node_tell(n, stat_out);
  }
  mem_free(z->m, all);
  return rc;
}

static int model_count(zke *z, const char *path, int64_t *count_out) {
  char *all;
  node *n;
  int64_t count = 0;
  int rc = look(z, path, ZKE_PERM_READ, false, &all, &n);
  for (node *c = n; rc == ZKE_OK && (c = node_next(c, n));) count++;
  if (rc == ZKE_OK && count_out) *count_out = count;
  mem_free(z->m, all);
  return rc;
}

/* The node itself counts too. */
static int model_usage(zke *z, const char *path, int64_t *count_out,
                       int64_t *bytes_out) {
  char *all;
  node *n;
  int64_t count = 0, bytes = 0;
  int rc = look(z, path, ZKE_PERM_READ, false, &all, &n);
  for (node *at = n; rc == ZKE_OK && at; at = node_next(at, n)) {
    count++;
    bytes += at->len > 0 ? at->len : 0;
  }
  if (rc == ZKE_OK && count_out) *count_out = count;
  if (rc == ZKE_OK && bytes_out) *bytes_out = bytes;
  mem_free(z->m, all);
  return rc;
}

static int by_text(const void *a, const void *b) {
  return strcmp(((const text *)a)->at, ((const text *)b)->at);
}

static bool ephemeral_fits(const zke *z, const node *n, const char *prefix) {
  if (*z->chroot && !path_below(n->path, z->chroot)) return false;
  if (!prefix || !*prefix || strcmp(prefix, "/") == 0) return true;
  return strncmp(shown(z, n->path), prefix, strlen(prefix)) == 0;
}

static int model_ephemerals(zke *z, int64_t session, const char *prefix,
                            zke_strings **paths_out) {
  int rc = enter(z, false);
  if (rc != ZKE_OK) return rc;
  if (lose(z, true)) return ZKE_CONNECTIONLOSS;
  int64_t owner = session ? session : z->id;
  size_t count = 0;
  text *all = temp_new(sizeof *all);
  for (node *n = z->m->root; n; n = node_next(n, z->m->root)) {
    if (n->owner != owner || !ephemeral_fits(z, n, prefix)) continue;
    all = realloc(all, (count + 2) * sizeof *all);
    if (!all) abort();
    all[count++] = (text){shown(z, n->path), NULL};
  }
  qsort(all, count, sizeof *all, by_text);
  for (size_t i = 1; i < count; i++) all[i - 1].next = &all[i];
  if (paths_out) *paths_out = out_strings(z, count ? all : NULL);
  free(all);
  return ZKE_OK;
}

static int model_sync(zke *z, const char *path) {
  (void)path;
  return enter(z, false);
}

/* An entry as it is shown: without ADMIN, without hashes. */
static void acl_show(const entry *e, bool admin, zke_acl *to, char **at) {
  to->perms = e->perms;
  to->scheme = strcpy(*at, e->scheme);
  *at += strlen(*at) + 1;
  to->id = strcpy(*at, e->id);
  char *colon = strchr(*at, ':');
  if (!admin && colon && strcmp(e->scheme, "digest") == 0) strcpy(colon, ":x");
  *at += strlen(e->id) + 3;
}

/* A node's list as get_acl shows it: without digests if the caller may not
 * change it. */
static zke_acls *out_acls(zke *z, const node *n) {
  const list *l = n->acl;
  bool admin = may(z, n->acl, ZKE_PERM_ADMIN);
  size_t bytes = sizeof(zke_acls);
  for (int i = 0; i < l->count; i++)
    bytes +=
        sizeof(zke_acl) + strlen(l->at[i].scheme) + strlen(l->at[i].id) + 4;
  zke_acls *out = out_new(z, bytes);
  zke_acl *to = (zke_acl *)(void *)(out + 1);
  char *at = (char *)(to + l->count);
  for (int i = 0; i < l->count; i++) acl_show(&l->at[i], admin, &to[i], &at);
  *out = (zke_acls){l->count, to};
  return out;
}

static int model_get_acl(zke *z, const char *path, zke_acls **acls_out,
                         zke_stat *stat_out) {
  char *all;
  node *n;
  int rc = look(z, path, ZKE_PERM_READ | ZKE_PERM_ADMIN, false, &all, &n);
  if (rc == ZKE_OK && acls_out) *acls_out = out_acls(z, n);
  if (rc == ZKE_OK) node_tell(n, stat_out);
  mem_free(z->m, all);
  return rc;
}

/* ---- calls: several at once ---- */

static bool is_change(int type) {
  return type >= ZKE_OP_CREATE && type <= ZKE_OP_CHECK;
}

static bool op_is_zero(const zke_op *op) {
  for (size_t i = 0; i < sizeof op->reserved / sizeof *op->reserved; i++)
    if (op->reserved[i]) return false;
  return !op->reserved_int;
}

/* The mistakes that are found before anything is done. */
static int multi_check(zke *z, const zke_op *ops, int count) {
  int64_t sum = 0;
  for (int i = 0; i < count; i++) {
    const zke_op *op = &ops[i];
    bool create = op->type == ZKE_OP_CREATE;
    if (!is_change(op->type) || !op_is_zero(op)) return ZKE_BADARGUMENTS;
    char *path = whole(z, op->path, create ? op->mode : ZKE_PERSISTENT);
    mem_free(z->m, path);
    if (!path) return ZKE_MARSHALLINGERROR;
    if (create && mode_is_bad(op->mode, op->ttl_ms, op->ttl_ms != 0))
      return ZKE_BADARGUMENTS;
    if (!create && op->type != ZKE_OP_SET) continue;
    if (data_is_bad(z, op->data, op->len)) return ZKE_BADARGUMENTS;
    sum += op->len > 0 ? op->len : 0;
  }
  return sum > z->m->data_limit ? ZKE_BADARGUMENTS : ZKE_OK;
}

static int op_any(zke *z, int type, ask *a) {
  if (type == ZKE_OP_CREATE) return op_create(z, a);
  if (type == ZKE_OP_DELETE) return op_delete(z, a);
  return type == ZKE_OP_SET ? op_set(z, a) : op_check(z, a);
}

/* One operation of a multi. */
static int multi_one(zke *z, const zke_op *op, zke_op_result *r) {
  bool create = op->type == ZKE_OP_CREATE;
  ask a = {.data = op->data,
           .len = op->len,
           .mode = create ? op->mode : ZKE_PERSISTENT,
           .version = op->version,
           .acls = op->acls,
           .ttl = op->ttl_ms,
           .stat = &r->stat};
  char *path = whole(z, op->path, a.mode);
  a.path = path;
  r->rc = op_any(z, op->type, &a);
  if (r->rc == ZKE_OK && create) {
    r->path = out_new(z, strlen(a.made) + 2);
    strcpy(r->path, shown(z, a.made));
  }
  mem_free(z->m, a.made);
  mem_free(z->m, path);
  return r->rc;
}

/* All or nothing: a refusal restores the copy. */
static int multi_all(zke *z, const zke_op *ops, int count,
                     zke_op_result *results) {
  model *m = z->m;
  int rc = ZKE_OK, at = 0;
  void *before = temp_new(model_used(m));
  model_save(m, before);
  m->zxid++;
  while (at < count && rc == ZKE_OK) {
    rc = multi_one(z, &ops[at], &results[at]);
    at += rc == ZKE_OK;
  }
  if (rc != ZKE_OK) {
    model_restore(m, before);
    zke_results_clear(results, count);
    for (int i = at; i < count; i++)
      results[i].rc = i == at ? rc : ZKE_RUNTIMEINCONSISTENCY;
  }
  free(before);
  return rc;
}

static int model_multi(zke *z, const zke_op *ops, int count,
                       zke_op_result *results) {
  if (usable(z) != ZKE_OK) return ZKE_MARSHALLINGERROR;
  int rc = multi_check(z, ops, count);
  if (rc != ZKE_OK) return rc;
  enter(z, true);
  int lost = lose(z, false);
  if (lost == ZKE_TEST_FAIL_BEFORE) return ZKE_CONNECTIONLOSS;
  zke_op_result *all = temp_new(((size_t)count + 1) * sizeof *all);
  rc = multi_all(z, ops, count, all);
  if (results && !lost)
    memcpy(results, all, (size_t)count * sizeof *all);
  else
    zke_results_clear(all, count);
  free(all);
  return lost ? ZKE_CONNECTIONLOSS : rc;
}

/* The events below a path that the session has not been told. */
static void read_untold(zke *z, const zke_op *op, const char *path,
                        zke_op_result *r) {
  size_t count = 0;
  text *all = temp_new(sizeof *all);
  r->len = z->unread;
  for (event *e = z->events; e; e = e->next) {
    bool readable = e->only || may(z, e->acl, ZKE_PERM_READ);
    r->len += !readable;
    if (!readable || !path_below(e->path, path)) continue;
    all = realloc(all, (count + 2) * sizeof *all);
    if (!all) abort();
    all[count++] = (text){shown(z, e->path), NULL};
  }
  for (size_t i = 1; i < count; i++) all[i - 1].next = &all[i];
  r->rc = (int)count > op->len ? ZKE_RUNTIMEINCONSISTENCY : ZKE_OK;
  r->children = NULL;
  if (r->rc == ZKE_OK) r->children = out_strings(z, count ? all : NULL);
  free(all);
}

/* The result of a read of a node, or its code. */
static void read_node(zke *z, const zke_op *op, const node *n,
                      zke_op_result *r) {
  r->rc = n ? ZKE_OK : ZKE_NONODE;
  if (n && !may(z, n->acl, ZKE_PERM_READ)) r->rc = ZKE_NOAUTH;
  if (r->rc != ZKE_OK) return;
  node_tell(n, &r->stat);
  if (op->type == ZKE_OP_GET) {
    r->data = out_data(z, n);
    r->len = n->len;
  } else {
    r->children = out_names(z, n, op->data ? op->data : "", op->len);
  }
}

/* One operation of a multi_read; it fails by itself. */
static void read_one(zke *z, const zke_op *op, zke_op_result *r) {
  char *path = whole(z, op->path, ZKE_PERSISTENT);
  *r = (zke_op_result){0};
  if (op->type == ZKE_OP_UNTOLD)
    read_untold(z, op, path, r);
  else
    read_node(z, op, node_find(z->m, path), r);
  mem_free(z->m, path);
}

static int model_multi_read(zke *z, const zke_op *ops, int count,
                            zke_op_result *results) {
  if (usable(z) != ZKE_OK) return ZKE_MARSHALLINGERROR;
  for (int i = 0; i < count; i++) {
    if (ops[i].type < ZKE_OP_GET || ops[i].type > ZKE_OP_UNTOLD)
      return ZKE_MARSHALLINGERROR;
    if (!op_is_zero(&ops[i]) || ops[i].len < 0) return ZKE_BADARGUMENTS;
    char *path = whole(z, ops[i].path, ZKE_PERSISTENT);
    mem_free(z->m, path);
    if (!path) return ZKE_MARSHALLINGERROR;
  }
  enter(z, false);
  if (lose(z, true)) return ZKE_CONNECTIONLOSS;
  for (int i = 0; i < count; i++) read_one(z, &ops[i], &results[i]);
  return ZKE_OK;
}

/* ---- calls: identities and watches ---- */

/* Give the session an identity, once. */
static void auth_add(zke *z, char *id) {
  text **at = &z->ids;
  for (; *at; at = &(*at)->next)
    if (strcmp((*at)->at, id) == 0) {
      mem_free(z->m, id);
      return;
    }
  *at = mem_new(z->m, sizeof **at);
  (*at)->at = id;
}

static int model_add_auth(zke *z, const char *scheme, const char *cert,
                          int len) {
  if (!scheme || len < 0 || (!cert && len)) return ZKE_BADARGUMENTS;
  int rc = enter(z, false);
  if (rc != ZKE_OK) return rc;
  if (strcmp(scheme, "digest") != 0) {
    z->state = ZKE_STATE_AUTH_FAILED;
    z->end_untold = true;
    return ZKE_AUTHFAILED;
  }
  const char *colon = memchr(cert, ':', (size_t)len);
  size_t user = colon ? (size_t)(colon - cert) : (size_t)len;
  if (memchr(cert, 0, user)) return ZKE_BADARGUMENTS;
  auth_add(z, digest_id(z->m, cert, (size_t)len));
  return ZKE_OK;
}

static int model_add_watch(zke *z, const char *path, int mode, zke_watch_fn fn,
                           void *context) {
  char *all = whole(z, path, ZKE_PERSISTENT);
  int rc = all && fn ? enter(z, true) : ZKE_BADARGUMENTS;
  bool known =
      mode == ZKE_WATCH_PERSISTENT || mode == ZKE_WATCH_PERSISTENT_RECURSIVE;
  if (rc == ZKE_OK && !known) rc = ZKE_MARSHALLINGERROR;
  if (rc == ZKE_OK) watch_stay(z, all, mode, &(pair){fn, context});
  mem_free(z->m, all);
  return rc;
}

/* semantics.md 5.9: the event that a watch set earlier gets immediately. */
static int watch_missed(const node *n, int type, int64_t zxid) {
  if (type == ZKE_WATCH_EXIST) return n ? ZKE_EVENT_CREATED : 0;
  if (!n) return ZKE_EVENT_DELETED;
  if (type == ZKE_WATCH_DATA) return n->mzxid > zxid ? ZKE_EVENT_CHANGED : 0;
  return n->pzxid > zxid ? ZKE_EVENT_CHILD : 0;
}

static int model_set_watch(zke *z, const char *path, int type, int64_t zxid,
                           zke_watch_fn fn, void *context) {
  char *all = whole(z, path, ZKE_PERSISTENT);
  int rc = all && fn ? enter(z, true) : ZKE_BADARGUMENTS;
  bool known = type == ZKE_WATCH_DATA || type == ZKE_WATCH_CHILD ||
               type == ZKE_WATCH_EXIST;
  if (rc == ZKE_OK && !known) rc = ZKE_BADARGUMENTS;
  if (rc == ZKE_OK) {
    int table = type == ZKE_WATCH_CHILD ? ZKE_WATCH_CHILD : ZKE_WATCH_DATA;
    int missed = watch_missed(node_find(z->m, all), type, zxid);
    const pair p = {fn, context};
    if (missed)
      event_add(z, missed, all, NULL)->only =
          watcher_add(z, all, table, ONE_SHOT, &p);
    else
      watch_once(z, all, table, &p);
  }
  mem_free(z->m, all);
  return rc;
}

static int model_check_watch(zke *z, const char *path, int type,
                             zke_watch_fn fn, void *context) {
  char *all = whole(z, path, ZKE_PERSISTENT);
  int rc = all ? usable(z) : ZKE_BADARGUMENTS;
  bool found = false;
  if (rc == ZKE_OK && (type < ZKE_WATCH_CHILD || type > ZKE_WATCH_ANY))
    rc = ZKE_BADARGUMENTS;
  for (watcher *w = z->watchers; w && rc == ZKE_OK; w = w->next)
    found |= (!fn || watcher_is(w, fn, context)) && (w->types & type) &&
             strcmp(w->path, all) == 0;
  mem_free(z->m, all);
  return rc == ZKE_OK && !found ? ZKE_NOWATCHER : rc;
}

/* Remove watches of a type, of a pair or of all. */
static int model_remove_watch(zke *z, const char *path, int type,
                              zke_watch_fn fn, void *context) {
  const pair p = {fn, context};
  char *all = whole(z, path, ZKE_PERSISTENT);
  int rc = all ? enter(z, true) : ZKE_BADARGUMENTS;
  if (rc == ZKE_OK && (type < ZKE_WATCH_CHILD || type > ZKE_WATCH_ANY))
    rc = ZKE_BADARGUMENTS;
  if (rc == ZKE_OK) rc = watch_remove(z, all, type, fn ? &p : NULL);
  mem_free(z->m, all);
  return rc;
}

static int model_forget(zke *z, zke_watch_fn fn, void *context) {
  for (watcher **at = &z->watchers; *at;) {
    if (watcher_is(*at, fn, context))
      watcher_drop(z, at);
    else
      at = &(*at)->next;
  }
  for (alarm_at **at = &z->alarms; *at;) {
    if ((*at)->fn == fn && (*at)->context == context)
      alarm_drop(z, at);
    else
      at = &(*at)->next;
  }
  if (usable(z) == ZKE_OK) watch_tidy(z);
  return ZKE_OK;
}

static int model_call_at(zke *z, int64_t when_ms, zke_watch_fn fn,
                         void *context) {
  alarm_at **at = &z->alarms;
  if (!fn) return ZKE_BADARGUMENTS;
  while (*at && ((*at)->fn != fn || (*at)->context != context))
    at = &(*at)->next;
  if (*at) alarm_drop(z, at);
  if (when_ms == ZKE_FOREVER) return ZKE_OK;
  alarm_at *a = mem_new(z->m, sizeof *a);
  for (at = &z->alarms; *at && (*at)->when <= when_ms;) at = &(*at)->next;
  *a = (alarm_at){*at, fn, context, when_ms};
  *at = a;
  return ZKE_OK;
}

static int model_set_watcher(zke *z, zke_watch_fn fn, void *context) {
  int rc = usable(z);
  if (rc == ZKE_OK) z->otherwise = (pair){fn, context};
  return rc;
}

static int model_dispatch(zke *z, int *count_out) {
  int called = 0;
  if (enter(z, false) != ZKE_OK && !z->end_untold) return ZKE_INVALIDSTATE;
  while (z->state == ZKE_STATE_CONNECTED && z->events)
    called += event_deliver(z);
  if (z->state == ZKE_STATE_CONNECTED) called += alarm_deliver(z, model_now(z));
  called += end_deliver(z);
  if (count_out) *count_out = called;
  return ZKE_OK;
}

/* ---- calls: sessions and the rest ---- */

static int model_open(const zke_engine *engine, const char *name,
                      const zke_options *options, zke **z_out) {
  (void)name;
  model *m = model_new((size_t)1 << 28);
  const zke_handle head = {engine, options->allocator};
  m->os = *options->os;
  m->zxid = INT64_C(1) << 32;
  m->container_ms = options->container_ms;
  if (!m->container_ms) m->container_ms = 60000;
  if (m->container_ms == ZKE_AT_ONCE) m->container_ms = 0;
  m->data_limit = options->data_limit ? options->data_limit : 1048576;
  node_plant(m);
  *z_out = session_new(m, &head, options);
  return ZKE_OK;
}

static int model_open_session(zke *z, const zke_options *options, zke **z_out) {
  *z_out = session_new(z->m, &z->head, options);
  return ZKE_OK;
}

static int model_close(zke *z) {
  if (!z->gone) session_remove(z);
  session_free(z);
  return ZKE_OK;
}

static int64_t model_session_id(zke *z) { return z->id; }
static int model_state(zke *z) { return z->state; }

static int model_expire(zke *z, int64_t session) {
  int rc = enter(z, true);
  if (rc != ZKE_OK) return rc;
  zke *other = session_find(z->m, session);
  if (!other) return ZKE_NONODE;
  session_remove(other);
  if (other->state == ZKE_STATE_CONNECTED) {
    other->state = ZKE_STATE_EXPIRED;
    other->end_untold = true;
  }
  return ZKE_OK;
}

/* In order of the times since which they may be removed. */
static bool sweep_before(const node *a, const node *b) {
  int64_t x = a->kind == CONTAINER ? a->emptied : a->mtime + a->ttl;
  int64_t y = a->kind == CONTAINER ? b->emptied : b->mtime + b->ttl;
  return x != y ? x < y : remove_before(a, b);
}

static node *sweep_first(model *m) {
  node *first = NULL;
  for (node *n = m->root; n; n = node_next(n, m->root))
    if (n->due && (!first || sweep_before(n, first))) first = n;
  return first;
}

/* Remove the nodes of a kind that are due.  A parent of the same kind that this
 * empties waits for the next sweep. */
static void sweep_kind(model *m, int kind) {
  for (node *n = m->root; n; n = node_next(n, m->root))
    n->due = n->kind == kind && node_is_due(m, n);
  for (node *n; (n = sweep_first(m));) {
    m->zxid++;
    tree_remove(m, n);
  }
}

/* A TTL node whose last child is a removed container is removed too. */
void model_sweep(model *m) {
  sweep_kind(m, CONTAINER);
  sweep_kind(m, TTL);
}

int64_t model_zxid(const model *m) { return m->zxid; }
void model_set_zxid(model *m, int64_t zxid) { m->zxid = zxid; }

bool model_sweep_one(model *m, const char *path) {
  node *n = node_find(m, path);
  if (!n || !node_is_due(m, n)) return false;
  m->zxid++;
  tree_remove(m, n);
  return true;
}

static int model_overdue(zke *z, int *overdue_out) {
  int rc = enter(z, false);
  if (rc != ZKE_OK) return rc;
  *overdue_out = 0;
  for (node *n = z->m->root; n; n = node_next(n, z->m->root))
    *overdue_out |= node_is_due(z->m, n);
  return rc;
}

static void session_show(const zke *z, zke_session_info *i) {
  *i = (zke_session_info){
      .id = z->id, .pid = z->pid, .started_ms = z->started, .alive = 1};
  for (node *n = z->m->root; n; n = node_next(n, z->m->root))
    i->ephemerals += n->owner == z->id;
  for (row *r = z->rows; r; r = r->next) i->watches++;
  for (event *e = z->events; e; e = e->next) i->events++;
}

/* All sessions as a list (-1), or one. */
static int model_sessions(zke *z, int64_t session, zke_session_list **out) {
  int rc = enter(z, false), most = 0;
  if (rc != ZKE_OK) return rc;
  for (zke *s = z->m->sessions; s; s = s->next) most++;
  zke_session_list *l =
      out_new(z, sizeof *l + (size_t)most * sizeof(zke_session_info));
  zke_session_info *at = (zke_session_info *)(void *)(l + 1);
  l->data = at;
  for (zke *s = z->m->sessions; s; s = s->next)
    if (!s->gone && (session == -1 || s->id == session))
      session_show(s, &at[l->count++]);
  if (session == -1 || l->count) {
    *out = l;
    return ZKE_OK;
  }
  zke_free(l);
  return ZKE_NONODE;
}

static int by_watch(const void *a, const void *b) {
  const zke_watch_info *x = a, *y = b;
  int order = strcmp(x->path, y->path);
  if (order) return order;
  if (x->session != y->session) return x->session < y->session ? -1 : 1;
  if (x->mode != y->mode) return x->mode < y->mode ? -1 : 1;
  return y->type - x->type;
}

/* List a watch; its text goes before *end. */
static void watch_show(const zke *s, const row *r, int64_t owner, char **end,
                       zke_watch_info *out) {
  *end -= strlen(r->path) + 1;
  *out = (zke_watch_info){.session = s->id,
                          .path = strcpy(*end, r->path),
                          .type = r->type,
                          .mode = r->mode,
                          .owner = owner};
}

/* The session that owns the node, if it is another one; else 0. */
static int64_t watch_owner(const zke *s, const row *r) {
  const node *n = node_find(s->m, r->path);
  return n && n->owner != s->id ? n->owner : 0;
}

static int model_watches(zke *z, zke_watch_list **out) {
  int rc = enter(z, false);
  size_t most = 0;
  if (rc != ZKE_OK) return rc;
  for (zke *s = z->m->sessions; s; s = s->next)
    for (row *r = s->rows; r; r = r->next)
      most += sizeof(zke_watch_info) + strlen(r->path) + 1;
  zke_watch_list *l = out_new(z, sizeof *l + most + 1);
  zke_watch_info *at = (zke_watch_info *)(void *)(l + 1);
  char *end = (char *)(l + 1) + most;
  l->data = at;
  for (zke *s = z->m->sessions; s; s = s->next)
    for (row *r = s->rows; r; r = r->next)
      watch_show(s, r, watch_owner(s, r), &end, &at[l->count++]);
  qsort(at, (size_t)l->count, sizeof *at, by_watch);
  *out = l;
  return ZKE_OK;
}

static int model_test_fail(zke *z, int when, int skip) {
  int rc = usable(z);
  if (rc != ZKE_OK) return rc;
  z->fail_when = when;
  z->fail_skip = skip;
  return ZKE_OK;
}

/* fn's calls are one step, which is undone as a whole when the engine undoes
 * it. */
static int model_batch(zke *z, zke_batch_fn fn, void *context) {
  model *m = z->m;
  void *before = temp_new(model_used(m));
  model_save(m, before);
  m->in_batch = true;
  int rc = fn(z, context);
  m->in_batch = false;
  if (rc != ZKE_OK) model_restore(m, before);
  free(before);
  return rc;
}

/* Nothing waits for the model. */
static int64_t model_nothing(zke *z) {
  (void)z;
  return 0;
}
static int64_t model_limit(zke *z, int64_t deadline_ms) {
  (void)z, (void)deadline_ms;
  return 0;
}

/* ---- model.h ---- */

model *model_of(zke *z) { return z->m; }

const zke_engine model_engine = {
    .size = sizeof(zke_engine),
    .prefix = "model:",
    .open = model_open,
    .open_session = model_open_session,
    .close = model_close,
    .session_id = model_session_id,
    .state = model_state,
    .expire = model_expire,
    .create = model_create,
    .create_ttl = model_create_ttl,
    .remove = model_delete,
    .discard = model_discard,
    .raise_sequence = model_raise_sequence,
    .exists = model_exists,
    .get = model_get,
    .set = model_set,
    .children = model_children,
    .count = model_count,
    .usage = model_usage,
    .ephemerals = model_ephemerals,
    .sync = model_sync,
    .multi = model_multi,
    .multi_read = model_multi_read,
    .batch = model_batch,
    .add_auth = model_add_auth,
    .get_acl = model_get_acl,
    .set_acl = model_set_acl,
    .add_watch = model_add_watch,
    .set_watch = model_set_watch,
    .check_watch = model_check_watch,
    .remove_watch = model_remove_watch,
    .forget = model_forget,
    .call_at = model_call_at,
    .set_watcher = model_set_watcher,
    .now = model_now,
    .wall = model_wall,
    .busy_timeout = model_nothing,
    .limit = model_limit,
    .dispatch = model_dispatch,
    .event_zxid = model_nothing,
    .turn = model_nothing,
    .sessions = model_sessions,
    .watches = model_watches,
    .overdue = model_overdue,
    .test_fail = model_test_fail,
};
