/* request.c - an operation as a frame of the wire
 *
 * Everything that the generator makes is sent, without a client's checks.  A
 * malformed frame is a well-formed one that was damaged.
 */
#include "wire.h"

bool cf_has_ttl(int mode) {
  return mode == ZKE_PERSISTENT_WITH_TTL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

static int create_type(const cf_op *op) {
  if (op->type) return op->type;
  if (op->mode == ZKE_CONTAINER) return ZKE_JUTE_CREATE_CONTAINER;
  if (cf_has_ttl(op->mode)) return ZKE_JUTE_CREATE_TTL;
  return op->whole ? ZKE_JUTE_CREATE2 : ZKE_JUTE_CREATE;
}

/* -2 if there is none. */
int cf_wire_type(const cf_op *op) {
  static const int types[CF_KINDS] = {
      [CF_DELETE] = ZKE_JUTE_DELETE,
      [CF_EXISTS] = ZKE_JUTE_EXISTS,
      [CF_GET] = ZKE_JUTE_GET_DATA,
      [CF_SET] = ZKE_JUTE_SET_DATA,
      [CF_GET_ACL] = ZKE_JUTE_GET_ACL,
      [CF_SET_ACL] = ZKE_JUTE_SET_ACL,
      [CF_SYNC] = ZKE_JUTE_SYNC,
      [CF_MULTI] = ZKE_JUTE_MULTI,
      [CF_MULTI_READ] = ZKE_JUTE_MULTI_READ,
      [CF_COUNT] = ZKE_JUTE_COUNT,
      [CF_EPHEMERALS] = ZKE_JUTE_GET_EPHEMERALS,
      [CF_ADD_WATCH] = ZKE_JUTE_ADD_WATCH,
      [CF_REMOVE_WATCH] = ZKE_JUTE_REMOVE_WATCHES,
      [CF_ADD_AUTH] = ZKE_JUTE_AUTH,
      [CF_CHECK] = ZKE_JUTE_CHECK,
      [CF_CLOSE] = ZKE_JUTE_CLOSE,
      [CF_PING] = ZKE_JUTE_PING,
      [CF_WHO_AM_I] = ZKE_JUTE_WHO_AM_I,
      [CF_CHECK_WATCH] = ZKE_JUTE_CHECK_WATCHES,
      [CF_FLUSH] = ZKE_JUTE_EXISTS};
  if (op->kind == CF_CREATE) return create_type(op);
  if (op->kind == CF_CHILDREN)
    return op->whole ? ZKE_JUTE_GET_CHILDREN2 : ZKE_JUTE_GET_CHILDREN;
  if (op->kind == CF_SET_WATCHES)
    return op->whole ? ZKE_JUTE_SET_WATCHES2 : ZKE_JUTE_SET_WATCHES;
  if (op->kind == CF_MALFORMED) return cf_wire_type(op->subs);
  return types[op->kind];
}

/* ---- records ---- */

#define PUT(w, name, ...) \
  zke_jute_write(w, &zke_jute_of_##name, &(zke_jute_##name){__VA_ARGS__})

static zke_jute_bytes data_of(const cf_op *op) {
  return (zke_jute_bytes){op->len, op->data};
}

static void put_create(zke_jute_writer *w, const cf_op *op) {
  if (create_type(op) == ZKE_JUTE_CREATE_TTL)
    PUT(w, create_ttl_request, op->path, data_of(op), op->acls, op->mode,
        op->ttl_ms);
  else
    PUT(w, create_request, op->path, data_of(op), op->acls, op->mode);
}

static void put_body(zke_jute_writer *w, const cf_op *op, int64_t zxid);

/* getChildren2 cannot be part of a multiRead. */
static void put_several(zke_jute_writer *w, const cf_op *op) {
  for (int i = 0; i < op->count; i++) {
    cf_op sub = op->subs[i];
    if (op->kind == CF_MULTI_READ) sub.whole = false;
    PUT(w, multi_header, cf_wire_type(&sub), 0, -1);
    put_body(w, &sub, 0);
  }
  PUT(w, multi_header, -1, 1, -1);
}

/* The paths of one kind of watch; watches that stay have other paths. */
static zke_strings paths_of(const cf_op *op, bool stays, int type) {
  zke_strings list = {0, cf_alloc((size_t)(op->count + 1) * sizeof(char *))};
  for (int i = 0; i < op->count; i++) {
    const cf_op *sub = &op->subs[i];
    int kind = stays ? sub->type % 2 : sub->type;
    if (!sub->path || cf_stays_here(op->seat, sub->path) != stays) continue;
    if (kind == type) list.data[list.count++] = cf_text("%s", sub->path);
  }
  return list;
}

static void put_set_watches(zke_jute_writer *w, const cf_op *op, int64_t zxid) {
  zke_strings data = paths_of(op, false, 0), exist = paths_of(op, false, 1),
              child = paths_of(op, false, 2);
  if (op->whole)
    PUT(w, set_watches2, zxid, data, exist, child, paths_of(op, true, 0),
        paths_of(op, true, 1));
  else
    PUT(w, set_watches, zxid, data, exist, child);
}

/* The record that belongs to the kind. */
static void put_body(zke_jute_writer *w, const cf_op *op, int64_t zxid) {
  switch (op->kind) {
    case CF_CREATE:
      put_create(w, op);
      break;
    case CF_DELETE:
    case CF_CHECK:
      PUT(w, delete_request, op->path, op->version);
      break;
    case CF_EXISTS:
    case CF_GET:
    case CF_CHILDREN:
    case CF_FLUSH:
      PUT(w, read_request, op->path, op->watch != 0);
      break;
    case CF_SET:
      PUT(w, set_data_request, op->path, data_of(op), op->version);
      break;
    case CF_SET_ACL:
      PUT(w, set_acl_request, op->path, op->acls, op->version);
      break;
    case CF_GET_ACL:
    case CF_SYNC:
    case CF_COUNT:
    case CF_EPHEMERALS:
      PUT(w, path_request, op->path);
      break;
    case CF_ADD_WATCH:
      PUT(w, add_watch_request, op->path, op->type);
      break;
    case CF_REMOVE_WATCH:
    case CF_CHECK_WATCH:
      PUT(w, watches_request, op->path, op->type);
      break;
    case CF_ADD_AUTH:
      PUT(w, auth_packet, 0, op->scheme, data_of(op));
      break;
    case CF_SET_WATCHES:
      put_set_watches(w, op, zxid);
      break;
    case CF_MULTI:
    case CF_MULTI_READ:
      put_several(w, op);
      break;
    default:
      break;
  }
}

/* ---- damage ---- */

enum { HEADER = 8, LENGTH = 4 };

static void set_int(char *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (char)(value >> (24 - 8 * i) & 0xff);
}

/* A type of no request. */
static uint32_t unknown_type(int chance) {
  static const int types[] = {0, 10, 23, 50, 99, 108, 1000, -3, -5, -12};
  return (uint32_t)types[(size_t)chance % (sizeof types / sizeof *types)];
}

/* A wrong length for a text. */
static uint32_t other_length(uint32_t length, int chance) {
  const uint32_t lengths[] = {UINT32_MAX, UINT32_MAX - 1, INT32_MAX, 0,
                              length + 1, length - 1,     1u << 20,  1u << 31};
  return lengths[(size_t)chance % (sizeof lengths / sizeof *lengths)];
}

/* A SET_WATCHES begins with a zxid.  In the paths of the other three, half a
 * character would become another one in Java, which returns it; and "/" counts
 * among the nodes below "".  A multi begins with the type of its first
 * operation, which is changed instead. */
static bool begins_with_path(const cf_op *op) {
  return op->kind != CF_SET_WATCHES && op->kind != CF_SYNC &&
         op->kind != CF_EPHEMERALS && op->kind != CF_COUNT;
}

/* body: the frame, from its header on. */
static void damage(zke_jute_writer *w, const cf_op *op, size_t begun) {
  static const char more[] = "\0\0\0\7garbage";
  size_t body = begun + LENGTH, len = w->len - body;
  size_t chance = (size_t)op->chance;
  char *first = w->data + body + HEADER;
  switch (op->type) {
    case CF_CUT_SHORT:
      if (len > HEADER) w->len = body + HEADER + chance % (len - HEADER);
      break;
    case CF_TOO_LONG:
      zke_jute_append(w, &(zke_jute_writer){.data = (char *)(uintptr_t)more,
                                            .len = 1 + chance % 11});
      break;
    case CF_OTHER_LENGTH:
      if (len >= HEADER + 4 && begins_with_path(op->subs))
        set_int(first,
                other_length((uint32_t)zke_jute_length(first), op->chance));
      break;
    case CF_UNKNOWN_TYPE:
      set_int(w->data + body + 4, unknown_type(op->chance));
      break;
    case CF_NO_HEADER:
      w->len = body + chance % HEADER;
      break;
    default:
      break;
  }
  zke_jute_end(w, begun);
  if (op->type == CF_HUGE) set_int(w->data + begun, 0x100000 + 0x1000000);
  if (op->type == CF_NEGATIVE) set_int(w->data + begun, 0x80000000u);
}

/* Does Java read and write all characters alike?  Each must have as many bytes
 * as its first byte says, at most three. */
bool cf_is_utf8(const char *text) {
  for (const char *at = text; at && *at;) {
    unsigned char c = (unsigned char)*at++;
    if ((c >= 0x80 && c < 0xc2) || c >= 0xf0) return false;
    int more = (c >= 0xc2) + (c >= 0xe0);
    if (c == 0xed && (unsigned char)*at >= 0xa0) return false;
    for (; more > 0; more--, at++)
      if (((unsigned char)*at & 0xc0) != 0x80) return false;
  }
  return true;
}

bool cf_ends_connection(const cf_op *op) {
  return op->kind == CF_CLOSE ||
         (op->kind == CF_MALFORMED && op->type >= CF_UNKNOWN_TYPE);
}

bool cf_is_answered(const cf_op *op) {
  return op->kind != CF_MALFORMED || op->type <= CF_UNKNOWN_TYPE;
}

/* Pings and identities have special numbers. */
static int xid_of(const cf_op *op, int next) {
  if (op->kind == CF_PING) return ZKE_JUTE_XID_PING;
  return op->kind == CF_ADD_AUTH ? ZKE_JUTE_XID_AUTH : next;
}

void cf_put_request(zke_jute_writer *w, const cf_op *op, int xid,
                    int64_t zxid) {
  const cf_op *whole = op->kind == CF_MALFORMED ? op->subs : op;
  size_t begun = zke_jute_begin(w);
  PUT(w, request_header, xid_of(op, xid), cf_wire_type(op));
  put_body(w, whole, zxid);
  if (op->kind == CF_MALFORMED)
    damage(w, op, begun);
  else
    zke_jute_end(w, begun);
}
