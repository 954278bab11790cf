/* pair.c - a session on both sides: two connections that do the same
 *
 * Both are sent the same; their frames are kept as they come, and compared
 * elsewhere (answer.c).
 */
#include "wire.h"

#include <string.h>

enum { ANSWER_MS = 30000, PASSWORD = 16 };

int cf_zke_ports[CF_WIRE_SERVERS];

static int port_of(const cf_pair *p, int side) {
  return side == CF_ZOOKEEPER ? cf_port : cf_zke_ports[p->server];
}

/* ---- the first frame ---- */

static void put_greeting(cf_end *e, const cf_greeting *g) {
  char password[PASSWORD];
  memcpy(password, e->password, PASSWORD);
  if (g->wrong_password) password[3] ^= 1;
  int64_t id = g->unknown ? e->id + 0x10000 : e->id;
  int64_t zxid = e->id ? e->zxid : 0;
  if (g->from_the_future) zxid = INT64_MAX - 1;
  peer_begin(&e->peer);
  zke_jute_write(&e->peer.out, &zke_jute_of_connect_request,
                 &(zke_jute_connect_request){
                     0, zxid, g->timeout_ms, id, {PASSWORD, password}});
  if (!g->old_client)
    zke_jute_write(&e->peer.out, &zke_jute_of_read_only,
                   &(zke_jute_read_only){0});
  peer_end(&e->peer);
}

void cf_pair_greet(cf_pair *p, const cf_greeting *g) {
  for (int i = 0; i < CF_SIDES; i++) {
    if (!peer_dial(&p->end[i].peer, port_of(p, i)))
      cf_die("cannot connect to port %d", port_of(p, i));
    put_greeting(&p->end[i], g);
  }
  cf_pair_send(p);
}

void cf_pair_hang_up(cf_pair *p) {
  for (int i = 0; i < CF_SIDES; i++) peer_hang_up(&p->end[i].peer);
}

/* ---- frames ---- */

/* A closed connection is noticed when reading from it. */
void cf_pair_send(cf_pair *p) {
  for (int i = 0; i < CF_SIDES; i++) peer_send(&p->end[i].peer);
}

static void keep_frame(cf_answers *a, const zke_jute_reader *in) {
  if (a->count == a->cap) {
    cf_frame *before = a->frames;
    a->cap = 2 * a->cap + 16;
    a->frames = cf_alloc((size_t)a->cap * sizeof *a->frames);
    if (a->count)
      memcpy(a->frames, before, (size_t)a->count * sizeof *a->frames);
  }
  size_t len = (size_t)(in->end - in->at);
  a->frames[a->count++] = (cf_frame){cf_copy(in->at, len), len};
}

bool cf_is_event(const cf_frame *f) {
  return f->len >= 4 && zke_jute_length(f->at) == ZKE_JUTE_XID_EVENT;
}

static void take(cf_end *e, int answers, cf_answers *a) {
  zke_jute_reader in;
  *a = (cf_answers){.outcome = PEER_FRAME};
  while (answers > 0) {
    a->outcome = peer_next(&e->peer, ANSWER_MS, &in);
    if (a->outcome != PEER_FRAME) return;
    keep_frame(a, &in);
    if (!cf_is_event(&a->frames[a->count - 1])) answers--;
  }
}

void cf_pair_take(cf_pair *p, int answers, cf_answers out[CF_SIDES]) {
  for (int i = 0; i < CF_SIDES; i++) take(&p->end[i], answers, &out[i]);
}
