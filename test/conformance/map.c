/* map.c - numbers that cannot be equal on both sides
 *
 * Session ids are mapped one to one, zxids one to one and in order, and each
 * zxid has one time on each side.  A pair is learned when both sides report it
 * for the first time and it fits between its neighbours.
 */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

/* A change on both sides; time -1: not seen yet. */
struct cf_change {
  int64_t server, zke_side;
  int64_t server_ms, zke_ms;
};

typedef struct owner {
  int64_t server, zke_side;
} owner;

struct cf_compare {
  cf_change *changes; /* ascending on both sides */
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

bool cf_same_owner(const cf_compare *c, int64_t server, int64_t zke_id) {
  cf_mask_used[CF_MASK_OWNER] += server != zke_id;
  for (int i = c->owner_count; i-- > 0;) {
    if (c->owners[i].server == server) return c->owners[i].zke_side == zke_id;
  }
  return false;
}

/* The index of the server's zxid, or of its place. */
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

/* Insert a change at its place: its zxids on the server and here. */
static cf_change *insert_change(cf_compare *c, int at, int64_t server,
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
  c->changes[at] = (cf_change){server, zke_side, -1, -1};
  return &c->changes[at];
}

/* The change that these two zxids name, or NULL.  Two new zxids are learned if
 * they fit between their neighbours. */
cf_change *cf_same_change(cf_compare *c, int64_t server, int64_t zke_side) {
  cf_mask_used[CF_MASK_ZXID] += server != zke_side;
  int at = find_change(c, server);
  cf_change *here = c->changes + at;
  if (at < c->change_count && here->server == server)
    return here->zke_side == zke_side ? here : NULL;
  if (at > 0 && here[-1].zke_side >= zke_side) return NULL;
  if (at < c->change_count && here->zke_side <= zke_side) return NULL;
  return insert_change(c, at, server, zke_side);
}

/* A change has one time on each side, in all reports. */
bool cf_same_time(cf_change *at, int64_t server_ms, int64_t zke_ms) {
  cf_mask_used[CF_MASK_TIME] += server_ms != zke_ms;
  if (at->server_ms < 0) {
    at->server_ms = server_ms;
    at->zke_ms = zke_ms;
  }
  return at->server_ms == server_ms && at->zke_ms == zke_ms;
}

/* zkembed's zxid is at or after the last change known at the server's zxid, and
 * before the next one. */
bool cf_same_moment(const cf_compare *c, int64_t server, int64_t zke_side) {
  cf_mask_used[CF_MASK_ZXID] += server != zke_side;
  int next = find_change(c, server + 1);
  if (next > 0 && c->changes[next - 1].zke_side > zke_side) return false;
  return next == c->change_count || c->changes[next].zke_side > zke_side;
}
