/* zk_link.h - for zookeeper.c: one session's connection to an ensemble
 *
 * A link keeps a session connected: it tries the servers in a random order,
 * begins the session or resumes it, pings, and gives up a connection that is
 * silent.  Requests are sent in the order in which they are submitted, many may
 * be on their way, and replies come in the same order.
 *
 * It never waits; it acts in zke_link_step() and when a request is submitted.
 * Only one thread at a time may be in it: the caller has a lock.  Its callbacks
 * run under that lock, inside these functions, and must not free the link.
 *
 *     while (!r.over) {
 *       struct pollfd p = {.fd = zke_link_poll(link, &p.events)};
 *       poll(&p, 1, ...);  // at most until zke_link_due(link)
 *       zke_link_step(link, now_ms);
 *     }
 *
 * If the connection is lost, a submitted request
 *   of which no byte was sent        stays, for the next connection
 *   that was sent and only reads     stays, too: it is sent again
 *   that was sent and changes data   is over with ZKE_CONNECTIONLOSS
 *
 * A server is not trusted.  A frame that is too long or malformed, or a reply
 * without a request, ends the connection.
 */
#ifndef ZKE_ZK_LINK_H
#define ZKE_ZK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "jute.h"
#include "zk_name.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest frame that is accepted from a server, bytes.  Replies to reads
 * are as long as their data or list of names. */
enum { ZK_LINK_REPLY_MOST = 64 << 20 };

/* The xid of setWatches2, as other clients have it. */
enum { ZK_LINK_XID_WATCHES = -8 };

typedef struct zk_request zk_request;

/* A request.  Begin with zeros; set the members above the line, submit it, and
 * release it with zke_link_request_clear() when it is over. */
struct zk_request {
  int type;                    /* ZKE_JUTE_… */
  bool reads;                  /* may be sent again */
  zke_jute_writer body;        /* after the header */
  zke_jute_writer sync;        /* a path_request: sync it first; empty: no
                                  sync */
  void (*done)(zk_request *r); /* called when it is over; may be NULL */
  void *context;
  /* ---- */
  /* nothing more comes for it; its owner may release it */
  bool over;
  int rc;                /* the server's code, or ZKE_CONNECTIONLOSS … */
  int64_t zxid;          /* the reply's; 0: there was none */
  zke_jute_reader reply; /* the rest after its header */
  /* the reply's bytes: texts in `reply` point into them */
  char *frame;
  zk_request *next;
  /* is_sent: its bytes are in the buffer of this connection; syncing: the reply
   * to its sync has not come yet */
  bool is_sent, syncing;
  int sync_rc;
  int32_t xid;
  uint64_t begins; /* its offset among all bytes ever sent */
};

void zke_link_request_clear(zk_request *r);

typedef struct zk_link_config {
  const zk_name *name; /* must outlive the link */
  int64_t timeout_ms;  /* of the session, as requested */
  int poller;          /* epoll descriptor to register the socket with */
  int64_t session;     /* a session to take up; 0: a new one */
  unsigned char password[16];
  void *owner;
  /* An event; path is the server's. */
  void (*event)(void *owner, int type, const char *path, int64_t zxid);
  /* Connected: frames that are put now are sent before all requests. */
  void (*connected)(void *owner);
  /* The connection is lost; why is a sentence. */
  void (*lost)(void *owner, const char *why);
  /* The session is over: ZKE_STATE_EXPIRED or _AUTH_FAILED. */
  void (*ended)(void *owner, int state);
} zk_link_config;

typedef struct zk_link zk_link;

/* zke_link_new  - a link without a connection; NULL without memory
 * zke_link_free - close the connection; all requests must be over; NULL is
 *                 fine */
zk_link *zke_link_new(const zk_link_config *config);
void zke_link_free(zk_link *l);

/* zke_link_step - do what can be done now: connect, read, write, ping
 * zke_link_due  - when it must be called at the latest, ms
 * zke_link_poll - its descriptor and what to poll it for; -1: there is none
 * zke_link_is_up - is there a connection on which the session lives?
 * zke_link_news - a number that changes whenever something has come, and at
 *                 each connection's beginning and end */
void zke_link_step(zk_link *l, int64_t now_ms);
int64_t zke_link_due(const zk_link *l);
int zke_link_poll(const zk_link *l, short *events);
bool zke_link_is_up(const zk_link *l);
uint64_t zke_link_news(const zk_link *l);

/* zke_link_submit - send a request, as soon as there is a connection
 * zke_link_take_back - end a request that was not sent, with rc.  false: it was
 *                      sent */
void zke_link_submit(zk_link *l, zk_request *r, int64_t now_ms);
bool zke_link_take_back(zk_link *l, zk_request *r, int rc);

/* zke_link_put - send a frame without a numbered reply: setWatches2, auth, a
 *                ping */
void zke_link_put(zk_link *l, int32_t xid, int type,
                  const zke_jute_record *record, const void *in);

/* zke_link_drop - give the connection up; the link connects again
 * zke_link_end  - the same, finally: all requests are over, with rc.  A change
 *                 that was sent may have been made: it is ZKE_CONNECTIONLOSS,
 *                 unless rc is ZKE_CLOSING */
void zke_link_drop(zk_link *l, const char *why);
void zke_link_end(zk_link *l, int rc);

/* zke_link_code - a server's error as a result code; ZKE_SYSTEMERROR if
 *                 zkembed.h has none for it */
int zke_link_code(int32_t err);

/* What the server has said about the session; 0 before. */
int64_t zke_link_session(const zk_link *l);
const unsigned char *zke_link_password(const zk_link *l);
int64_t zke_link_timeout(const zk_link *l);
int64_t zke_link_zxid(const zk_link *l); /* the last one seen */

/* zke_link_complete - the zxid up to which nothing was missed: the events of
 * all changes up to it have come, for all watches.  After a lost connection it
 * does not move until all watches are set again. */
int64_t zke_link_complete(const zk_link *l);

#ifdef __cplusplus
}
#endif

#endif
