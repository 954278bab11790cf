/* wire.h - what the parts of a run over the wire share
 *
 *     request.c  an operation as a frame
 *     pair.c     a session on both sides: two connections that do the same
 *     answer.c   what came from both: byte by byte, but for what masks.h names
 *     wire.c     one run
 *
 * Frames are made and read by recipes/engine/jute.h, and nothing of a client
 * library takes part.
 */
#ifndef ZKE_CONFORMANCE_WIRE_H
#define ZKE_CONFORMANCE_WIRE_H

#include "conformance.h"
#include "recipes/engine/jute.h"
#include "test/server/peer.h"

enum { CF_ZOOKEEPER, CF_ZKEMBED, CF_SIDES };

/* ---- requests ---- */

/* The type that an operation has on the wire. */
int cf_wire_type(const cf_op *op);

/* Write one frame.  zxid: what a SET_WATCHES tells. */
void cf_put_request(zke_jute_writer *w, const cf_op *op, int xid, int64_t zxid);

bool cf_is_utf8(const char *text);

/* Does the server end the connection for it, whatever is answered? */
bool cf_ends_connection(const cf_op *op);
/* Is it answered?  Some frames are not even looked at. */
bool cf_is_answered(const cf_op *op);

/* ---- a session on both sides ---- */

/* One side of it. */
typedef struct cf_end {
  peer peer;
  int64_t id;
  char password[16];
  int64_t zxid; /* the last that was told */
  int64_t mark; /* one that was told before */
} cf_end;

typedef struct cf_pair {
  cf_end end[CF_SIDES];
  int xid;
  int server; /* which of zkembed's it is connected to */
} cf_pair;

/* What a side has sent for some requests, in memory of the operation. */
typedef struct cf_frame {
  char *at;
  size_t len;
} cf_frame;

typedef struct cf_answers {
  int count, cap;
  cf_frame *frames;
  int outcome; /* PEER_FRAME: all came; else how it ended */
} cf_answers;

enum { CF_WIRE_SERVERS = 2 };
extern int cf_zke_ports[CF_WIRE_SERVERS];

enum { CF_LIVE_MS = 3600000, CF_SHORT_MS = 1 }; /* timeouts to ask for */

/* How a connection is begun. */
typedef struct cf_greeting {
  int timeout_ms;
  bool old_client; /* from before 3.4 */
  bool from_the_future;
  bool wrong_password, unknown;
} cf_greeting;

/* Connect both and send the first frame; with id 0 for a new session. */
void cf_pair_greet(cf_pair *p, const cf_greeting *g);
void cf_pair_hang_up(cf_pair *p);
/* Send what both writers hold; a side may have closed already. */
void cf_pair_send(cf_pair *p);
/* Take frames until so many answers have come, or the connection's end. */
void cf_pair_take(cf_pair *p, int answers, cf_answers out[CF_SIDES]);

/* ---- comparing; NULL where all is well, else what differs ---- */

const char *cf_compare_greetings(cf_compare *c, cf_pair *p,
                                 const cf_answers both[CF_SIDES]);

enum { CF_UNORDERED = 1, CF_OWN_END = 2 }; /* events */

/* What came for these operations; *bad is the one whose answer differs.  Learns
 * the zxids told. */
const char *cf_compare_answers(cf_compare *c, cf_pair *p, const cf_op *ops,
                               int count, unsigned how,
                               const cf_answers both[CF_SIDES], int *bad);

/* Was one of a session's operations refused in a way that ends its
 * connection? */
bool cf_was_refused_auth(const cf_answers *a);

#endif
