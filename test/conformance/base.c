/* base.c - memory of one operation, event lists, printing */
#include "conformance.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory of one operation ---- */

/* A chain of blocks; cf_reset() releases all but the first. */
typedef struct chunk {
  struct chunk *next;
  size_t used, size;
  char data[];
} chunk;

static chunk *chunks;

static void *checked(void *block) {
  if (!block) cf_die("out of memory");
  return block;
}

void *cf_alloc(size_t size) {
  size = (size + 15) & ~(size_t)15;
  if (!chunks || chunks->size - chunks->used < size) {
    size_t room = size > 65536 ? size : 65536;
    chunk *c = checked(malloc(sizeof *c + room));
    *c = (chunk){chunks, 0, room};
    chunks = c;
  }
  void *block = chunks->data + chunks->used;
  chunks->used += size;
  return memset(block, 0, size);
}

void cf_reset(void) {
  while (chunks && chunks->next) {
    chunk *next = chunks->next;
    free(chunks);
    chunks = next;
  }
  if (chunks) chunks->used = 0;
}

char *cf_copy(const void *bytes, size_t len) {
  char *copy = cf_alloc(len + 1);
  if (len) memcpy(copy, bytes, len);
  return copy;
}

char *cf_text(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  int len = vsnprintf(NULL, 0, format, ap);
  va_end(ap);
  char *text = cf_alloc((size_t)len + 1);
  va_start(ap, format);
  vsnprintf(text, (size_t)len + 1, format, ap);
  va_end(ap);
  return text;
}

_Noreturn void cf_die(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  fflush(stdout);
  fputs("conformance: ", stderr);
  vfprintf(stderr, format, ap);
  fputc('\n', stderr);
  va_end(ap);
  _Exit(2); /* the C client's threads may be running */
}

int64_t cf_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *cf_whole(const char *chroot, const char *path) {
  return cf_text("%s%s", chroot, *chroot && path[1] == '\0' ? "" : path);
}

/* ---- what the C client checks (semantics.md 1.3) ---- */

static bool is_sequential(int mode) {
  return mode == ZKE_PERSISTENT_SEQUENTIAL ||
         mode == ZKE_EPHEMERAL_SEQUENTIAL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* Check one component of a path; open: digits may follow. */
static bool component_passes(const char *at, size_t len, bool open) {
  if (len == 0) return open;
  for (size_t i = 0; i < len; i++) {
    if (at[i] > 0 && at[i] < 0x1f) return false;
  }
  bool dots =
      (len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.');
  return open || !dots;
}

/* Would the C client send a request with this path to the server? */
static bool path_passes(const char *path, bool sequential) {
  if (!path || path[0] != '/') return false;
  if (path[1] == '\0') return true;
  while (*path) { /* at a '/' */
    size_t len = strcspn(path + 1, "/");
    bool last = path[1 + len] == '\0';
    if (!component_passes(path + 1, len, last && sequential)) return false;
    path += 1 + len;
  }
  return true;
}

bool cf_client_passes(const cf_op *op) {
  return path_passes(op->path,
                     op->kind == CF_CREATE && is_sequential(op->mode));
}

/* ---- events ---- */

void cf_events_add(cf_events *e, int type, int state, const char *path,
                   int watch) {
  if (e->count == e->cap) {
    e->cap = e->cap ? 2 * e->cap : 16;
    e->at = checked(realloc(e->at, (size_t)e->cap * sizeof *e->at));
  }
  e->at[e->count++] = (cf_event){type, state, watch, checked(strdup(path))};
}

static void cf_events_clear(cf_events *e) {
  for (int i = 0; i < e->count; i++) free(e->at[i].path);
  e->count = 0;
}

void cf_events_move(cf_events *to, cf_events *from) {
  for (int i = 0; i < from->count; i++) {
    const cf_event *v = &from->at[i];
    cf_events_add(to, v->type, v->state, v->path, v->watch);
  }
  cf_events_clear(from);
}

void cf_events_free(cf_events *e) {
  cf_events_clear(e);
  free(e->at);
  *e = (cf_events){0};
}

/* Note, only once, that a watcher heard of the session's end. */
static void note_told(cf_events *told, int watch) {
  for (int i = 0; i < told->count; i++) {
    if (told->at[i].watch == watch) return;
  }
  cf_events_add(told, ZKE_EVENT_SESSION, ZKE_STATE_EXPIRED, "", watch);
}

/* A client that comes back quickly, and sets its watches again, sees the
 * deletion of its own ephemerals before it hears of the end.  This fires its
 * watches, so it counts as hearing of the end. */
void cf_events_of_own_end(cf_events *e) {
  cf_events told = {0};
  for (int i = 0; i < e->count; i++) {
    if (e->at[i].type != ZKE_EVENT_SESSION) cf_mask_used[CF_MASK_OWN_END]++;
    note_told(&told, e->at[i].watch);
  }
  cf_events_free(e);
  *e = told;
}

/* ---- printing ---- */

const char *cf_kind_name(cf_kind kind) {
#define NAME(name, weight, client, raw) #name,
  static const char *const names[] = {CF_KIND_LIST(NAME)};
#undef NAME
  return names[kind];
}

const char *cf_quote(const char *bytes, int len) {
  if (!bytes || len < 0) return "NULL";
  int shown = len > 120 ? 60 : len;
  char *out = cf_alloc((size_t)shown * 4 + 64), *at = out;
  *at++ = '"';
  for (int i = 0; i < shown; i++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c == '"' || c == '\\')
      at += sprintf(at, "\\%c", c);
    else if (c >= 0x20 && c < 0x7f)
      *at++ = (char)c;
    else
      at += sprintf(at, "\\%03o", c);
  }
  *at++ = '"';
  if (shown < len) sprintf(at, "... (%d bytes)", len);
  return out;
}

static const char *quote_text(const char *text) {
  return cf_quote(text, text ? (int)strlen(text) : -1);
}

/* A list as text, for a report. */
static const char *describe_acls(const zke_acls *acls) {
  const char *text = "";
  for (int i = 0; i < acls->count; i++) {
    const zke_acl *a = &acls->data[i];
    text = cf_text("%s%s%d:%s:%s", text, i ? "," : "", a->perms,
                   a->scheme ? a->scheme : "NULL", quote_text(a->id));
  }
  return cf_text("acl=[%s]", text);
}

static const char *describe_watch(const cf_op *op) {
  return op->watch ? cf_text(" watch=%d", op->watch) : "";
}

static const char *describe_subs(const cf_op *op) {
  const char *text = "";
  for (int i = 0; i < op->count; i++)
    text = cf_text("%s\n          %d: %s", text, i, cf_describe(&op->subs[i]));
  return text;
}

const char *cf_describe(const cf_op *op) {
  const char *head =
      cf_text("%s %s", cf_kind_name(op->kind), quote_text(op->path));
  const char *data = cf_quote(op->data, op->len);
  switch (op->kind) {
    case CF_CREATE:
      return cf_text("%s type=%d mode=%d ttl=%" PRId64 " data=%s %s", head,
                     op->type, op->mode, op->ttl_ms, data,
                     describe_acls(&op->acls));
    case CF_DELETE:
    case CF_CHECK:
      return cf_text("%s version=%d", head, op->version);
    case CF_SET:
      return cf_text("%s version=%d data=%s", head, op->version, data);
    case CF_SET_ACL:
      return cf_text("%s version=%d %s", head, op->version,
                     describe_acls(&op->acls));
    case CF_EXISTS:
    case CF_GET:
    case CF_CHILDREN:
      return cf_text("%s%s", head, describe_watch(op));
    case CF_ADD_WATCH:
      return cf_text("%s mode=%d", head, op->type);
    case CF_REMOVE_WATCH:
      return cf_text("%s type=%d%s", head, op->type, describe_watch(op));
    case CF_MULTI:
    case CF_MULTI_READ:
      return cf_text("%s of %d%s", cf_kind_name(op->kind), op->count,
                     describe_subs(op));
    case CF_ADD_AUTH:
      return cf_text("ADD_AUTH %s %s", quote_text(op->scheme), data);
    case CF_CHECK_WATCH:
      return cf_text("%s type=%d", head, op->type);
    case CF_SET_WATCHES:
      return cf_text("%s%s of %d%s", cf_kind_name(op->kind),
                     op->whole ? "2" : "", op->count, describe_subs(op));
    case CF_RECONNECT:
    case CF_MALFORMED:
      return cf_text("%s way=%d chance=%d%s", cf_kind_name(op->kind), op->type,
                     op->chance, describe_subs(op));
    case CF_FLUSH:
    case CF_CLOSE:
    case CF_EXPIRE:
    case CF_KILL:
    case CF_PING:
    case CF_WHO_AM_I:
      return cf_kind_name(op->kind);
    default:
      return head;
  }
}

static const char *describe_stat(const zke_stat *s) {
  return cf_text(" stat={c%" PRId64 " m%" PRId64 " p%" PRId64
                 " version=%d cversion=%d aversion=%d owner=%" PRIx64
                 " length=%d children=%d}",
                 s->czxid, s->mzxid, s->pzxid, s->version, s->cversion,
                 s->aversion, (uint64_t)s->ephemeralOwner, s->dataLength,
                 s->numChildren);
}

const char *cf_describe_reply(const cf_reply *r) {
  const char *text = cf_text("%d", r->rc);
  if (r->path) text = cf_text("%s path=%s", text, quote_text(r->path));
  if (r->has_data)
    text = cf_text("%s data=%s", text, cf_quote(r->data, r->len));
  if (r->has_stat) text = cf_text("%s%s", text, describe_stat(&r->stat));
  if (r->has_acls) text = cf_text("%s %s", text, describe_acls(&r->acls));
  if (r->has_count) text = cf_text("%s number=%" PRId64, text, r->number);
  for (int i = 0; r->has_names && i < r->names.count; i++)
    text = cf_text("%s %s", text, quote_text(r->names.data[i]));
  for (int i = 0; i < r->count; i++)
    text = cf_text("%s\n            %d: %s", text, i,
                   cf_describe_reply(&r->subs[i]));
  return text;
}

const char *cf_describe_events(const cf_events *e) {
  static const char *const names[] = {"CREATED", "DELETED", "CHANGED", "CHILD"};
  const char *text = "";
  if (e->count == 0) return "(none)";
  for (int i = 0; i < e->count && i < 60; i++) {
    const cf_event *v = &e->at[i];
    const char *name = v->type >= 1 && v->type <= 4 ? names[v->type - 1]
                                                    : cf_text("%d", v->type);
    text = cf_text("%s%s%s %s(%d,%d)", text, i ? "; " : "", name,
                   quote_text(v->path), v->state, v->watch);
  }
  return text;
}

/* Events may be compared at either of two operations, so they have no kind. */
void cf_tell(const cf_op *op, int at, const char *why, cf_mismatch *out) {
  int len = (int)strcspn(why, ":");
  bool events = strncmp(why, "events", 6) == 0;
  out->at = at;
  snprintf(out->field, sizeof out->field, "%s %.*s",
           events ? "any" : cf_kind_name(op->kind), len, why);
  out->text = strdup(cf_text("%s\n    %s", cf_describe(op), why));
  if (!out->text) cf_die("out of memory");
}
