/* wire.h - what the parts share that know the frames of the wire
 *
 *     raw.c      a session of ZooKeeper, for runs by calls
 *     request.c  an operation as a frame
 *     pair.c     a session on both sides: two connections that do the same
 *     answer.c   comparison byte by byte, except for what masks.h names
 *     wire.c     one run
 *
 * recipes/engine/jute.h makes and reads the frames; no client library takes
 * part.
 */
#ifndef ZKE_CONFORMANCE_WIRE_H
#define ZKE_CONFORMANCE_WIRE_H

#include "conformance.h"
#include "recipes/engine/jute.h"
#include "test/server/peer.h"

enum { CF_ZOOKEEPER, CF_ZKEMBED, CF_SIDES };

/* ---- requests ---- */

/* An operation's type on the wire. */
int cf_wire_type(const cf_op *op);

/* Write one frame.  zxid: for a SET_WATCHES. */
void cf_put_request(zke_jute_writer *w, const cf_op *op, int xid, int64_t zxid);

bool cf_is_utf8(const char *text);
bool cf_has_ttl(int mode);

/* The record after an answer's header, for this type; NULL: none. */
const zke_jute_record *cf_record_of(int type);

/* Large enough for each of them. */
typedef union cf_body {
  zke_jute_multi_header multi;
  zke_jute_path_response path;
  zke_jute_create2_response create2;
  zke_jute_stat_response stat;
  zke_jute_get_data_response data;
  zke_jute_children_response children;
  zke_jute_children2_response children2;
  zke_jute_acl_response acl;
  zke_jute_count_response count;
  zke_jute_error_response error;
  zke_jute_who_am_i_response ids;
} cf_body;

/* Does the server end the connection after it, whatever it answers? */
bool cf_ends_connection(const cf_op *op);
/* Is it answered?  Some frames are ignored. */
bool cf_is_answered(const cf_op *op);

/* ---- a session on both sides ---- */

/* One of the two sides. */
typedef struct cf_end {
  peer peer;
  int64_t id;
  char password[16];
  int64_t zxid; /* the last one reported */
  int64_t mark; /* an earlier one */
} cf_end;

typedef struct cf_pair {
  cf_end end[CF_SIDES];
  int xid;
  int server; /* which of zkembed's servers */
} cf_pair;

/* One side's answers to some requests, in memory of the operation. */
typedef struct cf_frame {
  char *at;
  size_t len;
} cf_frame;

typedef struct cf_answers {
  int count, cap;
  cf_frame *frames;
  int outcome; /* PEER_FRAME: complete; else how it ended */
} cf_answers;

enum { CF_WIRE_SERVERS = 2 };
extern int cf_zke_ports[CF_WIRE_SERVERS];

enum { CF_LIVE_MS = 3600000, CF_SHORT_MS = 1 }; /* timeouts to ask for */

/* How to begin a connection. */
typedef struct cf_greeting {
  int timeout_ms;
  bool old_client; /* from before 3.4 */
  bool from_the_future;
  bool wrong_password, unknown;
} cf_greeting;

bool cf_is_event(const cf_frame *f);

/* Connect both and send the first frame; with id 0 for a new session. */
void cf_pair_greet(cf_pair *p, const cf_greeting *g);
void cf_pair_hang_up(cf_pair *p);
/* Send what both writers hold; a side may already have closed. */
void cf_pair_send(cf_pair *p);
/* Take frames until `answers` answers have come, or the connection ends. */
void cf_pair_take(cf_pair *p, int answers, cf_answers out[CF_SIDES]);

/* ---- comparing; NULL if all is well, else the difference ---- */

const char *cf_compare_greetings(cf_compare *c, cf_pair *p,
                                 const cf_answers both[CF_SIDES]);

enum { CF_UNORDERED = 1, CF_OWN_END = 2 }; /* events */

/* Compare the answers to these operations; *bad is the one with a different
 * answer.  Learns the zxids. */
const char *cf_compare_answers(cf_compare *c, cf_pair *p, const cf_op *ops,
                               int count, unsigned how,
                               const cf_answers both[CF_SIDES], int *bad);

/* Did the refusal of one of a session's operations end its connection? */
bool cf_was_refused_auth(const cf_answers *a);

#endif
