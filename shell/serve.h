/* serve.h - what the files of the protocol server share
 *
 *     serve.c          the command: options, listeners, the loop
 *     serve_words.c    the four-letter words
 *     serve_request.c  what a client asks for, and its answer
 *     serve_sasl.c     who the users are, and how clients prove it
 *     serve_session.c  sessions: their time, their handles, their events
 *     serve_conn.c     connections: frames in, frames out
 *
 * Each file calls those below it in this list.  All of it runs on one thread,
 * that of the command; so there are no locks here.
 *
 * A client's session is a kept session of the library on the store of the
 * command.  It outlives its connection and the server: a client that comes back
 * with the id and the password gets it again.  Watches and identities belong to
 * the connection, as in ZooKeeper: the watcher's context is the connection.
 *
 * A round of the loop takes what epoll reports, serves the connections that
 * have something to do, and then looks at the time.  A connection
 * that is over is marked (conn_drop()) and freed at the round's end, so nothing
 * is freed while a function above works on it.
 *
 * While another process writes, what changes the file has to wait.  A round
 * waits for it some milliseconds at most (server_limit()).  A request that
 * could not be done in that time is held: it stays where it is, with all behind
 * it, and is tried again in the next round, until it is late.  Meanwhile others
 * are served, and pings of theirs answered.
 */
#ifndef ZKE_SERVE_H
#define ZKE_SERVE_H

#include "../recipes/jute.h"
#include "shell.h"

typedef struct server server;
typedef struct client client;
typedef struct conn conn;
typedef struct user user;
typedef struct sasl sasl;

/* What epoll tells of: one of these is the first member of what it points to,
 * and its function is called. */
typedef struct source {
  int fd;
  void (*ready)(server *s, struct source *from, unsigned events);
} source;

/* ------------------------------------------------------------------------
 * The server
 * --------------------------------------------------------------------- */

enum { LISTENERS_MOST = 8, PASSWORD_BYTES = 16 };

/* What it counts since its beginning, for srvr and mntr. */
typedef struct counts {
  int64_t received, sent; /* packets */
  int64_t requests;       /* answered */
  int64_t latency_min_ms, latency_max_ms, latency_sum_ms;
  int64_t refused;  /* connections over the limit */
  int64_t accepted; /* connections */
  int64_t expired;  /* sessions */
} counts;

struct server {
  call *c;
  zke *z; /* the command's own session: the store */
  int epoll;
  source wake; /* an eventfd: a signal came */
  bool ending;
  source store; /* z's descriptor */
  source listeners[LISTENERS_MOST];
  int listener_count;
  int own_descriptors;   /* that many are open without connections */
  bool listening_off;    /* no connection can be taken now, for want of means */
  bool is_listening_off; /* epoll does not tell of them */
  int port;              /* of TCP; 0: none */
  const char *unix_path; /* NULL: none */
  int64_t timeout_min_ms; /* what a session's timeout is brought into */
  int64_t timeout_max_ms;
  int64_t tick_ms;          /* sessions end at multiples of it */
  int address_most;         /* connections from one address; 0: any number */
  user *users;              /* of SASL; NULL: there is none */
  const char *super_user;   /* of SASL; NULL: none */
  const char *super_digest; /* "super:hash"; NULL: none */

  /* The server's clock: it goes on with the monotonic one, but by half a tick
   * at most between two rounds.  So a time in which the server stood still
   * counts as half a tick, however long it is. */
  int64_t now_ms;
  int64_t real_ms;  /* the monotonic clock at the latest look */
  int64_t began_ms; /* wall clock at the start */
  int64_t swept_ms; /* when sessions were looked at */

  conn *busy;             /* those that the next round deals with */
  conn *round;            /* those that this round deals with */
  struct answer *answers; /* not sent yet */
  int answer_count, answer_size;
  size_t answer_bytes;
  int refusal;  /* other than ZKE_OK: changes are answered with it, unmade */
  bool blocked; /* in this round something had to wait for another process */
  int blocked_rounds; /* so many before this one, without one between */
  conn *conns;        /* all; the newest first */
  int conn_count;
  client *sessions; /* all; the newest first */
  int session_count;
  bool some_over; /* a session has ended by itself */
  int64_t zxid;   /* the latest that was seen */
  counts counts;
};

/* ------------------------------------------------------------------------
 * Connections (serve_conn.c)
 * --------------------------------------------------------------------- */

enum {
  CONN_ADDRESS = 64,
  /* So many descriptors are not for connections: the library opens files. */
  DESCRIPTORS_KEPT = 32,
  /* Of one connection in one round, so that others get their turn. */
  REQUESTS_AT_ONCE = 64,
  /* With so many bytes waiting to be sent, no request is read any more. */
  CONN_OUT_ENOUGH = 1 << 20,
  /* With so many, events end the connection: its client comes back and says
   * which watches it had. */
  CONN_OUT_MOST = 64 << 20
};

/* An identity that the client has proven; whoAmI lists them. */
typedef struct identity {
  struct identity *next;
  const char *scheme; /* digest, sasl, super */
  char user[];        /* "ann"; of super "" */
} identity;

struct conn {
  source source;
  server *server;
  conn *next, **link;
  conn *busy_next; /* in server.busy, while is_busy */
  bool is_busy;
  client *session; /* NULL: none yet, or no more */
  bool greeted;    /* it has sent its first four bytes */
  bool ended;      /* nothing more is read; closed once all has been sent */
  bool dropped;    /* closed at the end of the round */
  unsigned waited; /* the events that epoll is asked for */
  bool is_unix;
  char address[CONN_ADDRESS]; /* "127.0.0.1" */
  int port;
  char *in; /* what came and was not taken yet, from in_at to in_len */
  size_t in_at, in_len, in_size;
  zke_jute_writer out; /* what is to be sent, from `sent` on */
  size_t sent;
  identity *identities;
  sasl *sasl;               /* NULL: it has sent no token */
  int64_t since_ms;         /* server's clock: when it was accepted */
  int64_t heard_ms;         /* server's clock: its last request */
  int64_t received, issued; /* packets */
  int64_t last_zxid;
  int last_xid;
  const char *last_name; /* of its last request; NULL: none */
  int64_t held_ms; /* monotonic: since when its next request is held; 0: it is
                      not */
};

/* conn_accept - take a connection from a listener; NULL where it cannot be
 *               kept.  Where no descriptor is left it sets listening_off
 * conn_touch  - have this round deal with it: there is something to read, to
 *               send, or to close
 * conn_read   - read what is there, unless much is waiting; false where nothing
 *               more will come
 * conn_frame  - the next whole frame, without its length: it stays until
 *               conn_taken().  NULL: there is none.  One that is too long drops
 *               the connection.  skip: so many bytes first, which are frames
 * conn_taken  - the frame was dealt with
 * conn_flush  - send what can be sent
 * conn_end    - close it when all was sent
 * conn_drop   - close it at the end of the round
 * conn_free   - close and free; the caller has taken the session off
 * conn_full   - is so much waiting that no request is to be read? */
conn *conn_accept(server *s, int listener, bool is_unix,
                  void (*ready)(server *s, source *from, unsigned events));
void conn_touch(conn *c);
bool conn_read(conn *c);
char *conn_frame(conn *c, size_t skip, size_t *len_out);
void conn_taken(conn *c, size_t len);
void conn_flush(conn *c);
void conn_end(conn *c);
void conn_drop(conn *c);
void conn_free(conn *c);
bool conn_full(const conn *c);

/* ------------------------------------------------------------------------
 * Sessions (serve_session.c)
 * --------------------------------------------------------------------- */

struct client {
  server *server;
  client *next, **link;
  zke *z;
  int64_t id;
  unsigned char password[PASSWORD_BYTES];
  int64_t timeout_ms;
  int64_t expires_ms; /* server's clock, a multiple of the tick */
  conn *conn;         /* NULL: its client is away */
  bool over;          /* it has expired, or another server has it */
};

/* client_open    - a new session for a connection: ZKE_OK, or what
 *                  zke_open_session() says
 * client_attach  - a client has come back with id and password, 16 bytes: it
 *                  has its session again, and the connection that it had is
 *                  dropped.  ZKE_OK, or what zke_attach() says
 * client_detach  - the connection goes, the session stays for its timeout
 * client_heard   - its client lives
 * client_events  - send what its watchers are to be told of changes up to a
 *                  zxid
 * client_close   - end it now, and free it; its connection stays
 * client_leave   - free it; it lives on in the file
 * client_over    - it has ended by itself: it is freed at the round's end
 * clients_expire - end those that were not heard of for too long, and free
 *                  those that are over; true where a tick was over */
int client_open(server *s, conn *c, int64_t timeout_ms);
int client_attach(server *s, conn *c, int64_t id, const char *password,
                  int64_t timeout_ms);
void client_detach(client *session);
void client_heard(server *s, client *session);
void client_events(client *session, int64_t zxid);
int client_close(server *s, client *session);
int client_leave(server *s, client *session);
void client_over(client *session);
bool clients_expire(server *s);

/* server_limit    - the library's next calls for z wait for other processes for
 *                   some milliseconds at most, or not at all where something
 *                   has waited in vain in this round
 * server_unlimit  - they wait as long as --timeout says
 * server_blocked  - a call has waited in vain
 * server_can_write - can the file be written now?  For what cannot be tried
 *                   twice
 * server_saw      - note the zxid of the call of the library that was just made
 * server_zxid     - the zxid of the present state */
void server_limit(server *s, zke *z);
void server_unlimit(server *s);
void server_blocked(server *s);
bool server_can_write(server *s);
void server_saw(server *s);
int64_t server_zxid(server *s);

/* client_watcher - what watches are registered with; the context is the
 *                   connection */
void client_watcher(zke *z, int type, int state, const char *path,
                    void *context);

/* ------------------------------------------------------------------------
 * Users (serve_sasl.c)
 * --------------------------------------------------------------------- */

/* users_load   - read what the options say about users; 0 or the exit code
 * users_free   - the opposite
 * users_digest - give a session the digest identity of "user:password", and
 *                that of the super user if it is that one
 * sasl_token   - deal with a client's token: the next step of DIGEST-MD5.
 *                ZKE_OK and the server's token, for free(); or ZKE_AUTHFAILED:
 *                the client has not proven who it is
 * sasl_free    - forget a connection's exchange */
int users_load(server *s);
void users_free(server *s);
int users_digest(server *s, conn *c, const char *cert, int len);
int sasl_token(server *s, conn *c, const char *token, size_t len,
               char **token_out);
void sasl_free(conn *c);

/* ------------------------------------------------------------------------
 * Requests (serve_request.c), four-letter words (serve_words.c)
 * --------------------------------------------------------------------- */

/* request_take    - deal with the next frame of a connection; false where there
 *                   is none, or where it is held.  Its answer waits for
 *                   requests_answer()
 * request_changes - how many changes are among the next frames of a connection,
 *                   up to one that cannot be part of a batch
 * request_is_alone - is the next frame one of those?
 * requests_answer - send the answers of what was taken.  rc: what became of the
 *                   batch that it was taken in, or ZKE_OK
 * requests_many   - are so many answers waiting that no request is to be taken
 *                   before they are sent? */
bool request_take(server *s, conn *c);
int request_changes(conn *c);
bool request_is_alone(conn *c);
void requests_answer(server *s, int rc);
bool requests_many(const server *s);

/* words_take - is what came a four-letter word?  Then it is answered */
bool words_take(server *s, conn *c);

#endif
