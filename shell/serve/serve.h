/* serve.h - what the files of the protocol server share
 *
 *     serve.c    the command: options, listeners, the loop
 *     control.c  how a test asks for faults, by HTTP
 *     http.c     the form of HTTP
 *     words.c    the four-letter words
 *     stats.c    what the words tell of the server
 *     request.c  what a client asks for, and its answer
 *     quota.c    what a subtree may hold, and what it holds
 *     sasl.c     who the users are, and how clients prove it (digest.c)
 *     session.c  sessions: their time, their handles, their events
 *     fault.c    faults that a test has asked for
 *     conn.c     connections: frames in, frames out
 *     tell.c     what it says on standard error of what it refuses
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

#include "../../recipes/engine/jute.h"
#include "../shell.h"

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
 *
 * What all files of the server share. One thread runs all of it, that of
 * serve.c's loop, so no struct here has a mutex.
 * --------------------------------------------------------------------- */

enum { LISTENERS_MOST = 8, PASSWORD_BYTES = 16 };

/* What is told of on standard error; so many quotas at a time. */
enum {
  TELL_CONNECTIONS, /* --connections */
  TELL_DESCRIPTORS, /* there is none for a connection */
  TELL_FRAME,       /* what comes is no frame */
  TELL_ZXID,        /* the client was at another server */
  TELL_PASSWORD,    /* of a session */
  TELL_AUTH,
  TELL_SASL,
  TELL_STRANGER, /* --require-sasl */
  TELL_OPERATION,
  TELL_SILENT,
  TELL_UNREAD, /* much was sent to a client that does not read */
  TELL_FAILED, /* the database cannot be read or written */
  TELL_BUSY,   /* another process has it for too long */
  TELL_QUOTA,  /* from here on each path is a kind of its own: a hard limit */
  TELL_SOFT_QUOTA, /* a soft one */
  TELL_KINDS,
  TOLD_MOST = TELL_QUOTA + 8,
  LINES_MOST = 32 /* that wait to be printed */
};

/* When a kind was told of. */
typedef struct told {
  int kind;         /* where each path has its own */
  char *path;       /* of a quota, for free(); else NULL */
  int64_t again_ms; /* server's clock: before that it is not told again */
  int64_t left_out; /* so often it was not */
} told;

/* Blocks that are kept to be used again, and how long one may be. */
enum { SPARES_MOST = 32, SPARE_BYTES = 16 * 1024 };

/* How long requests took, from their being read to their answer. */
typedef struct timing {
  int64_t count, min_ms, max_ms, last_ms, sum_ms;
} timing;

/* What it counts since its beginning (stats_monitor()). */
typedef struct counts {
  int64_t received, sent; /* packets */
  timing all, reads, changes;
  int64_t bytes_received, bytes_answered;         /* of packets */
  int64_t answer_last, answer_least, answer_most; /* bytes */
  int64_t refused;  /* connections over the limit */
  int64_t silent;   /* connections that did not say whose they are */
  int64_t accepted; /* connections */
  int64_t expired;  /* sessions */
} counts;

typedef struct watch_counts {
  int sessions, paths, watches;
} watch_counts;

/* What was counted row by row (stats.c), and until when of the server's
 * clock it is told again.  Few rows are not kept: until is 0 then. */
typedef struct kept_counts {
  int64_t nodes, nodes_until_ms;
  int64_t ephemerals, own_watches, sessions_until_ms;
  watch_counts watches;
  int64_t watches_until_ms;
} kept_counts;

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
  bool is_for_others;    /* other hosts can reach it */
  int port;              /* of TCP; 0: none */
  const char *unix_path; /* NULL: none */
  int64_t timeout_min_ms; /* what a session's timeout is brought into */
  int64_t timeout_max_ms;
  int64_t tick_ms;    /* sessions end at multiples of it */
  int address_most;   /* connections from one address; 0: any number */
  bool enforce_quota; /* refuse what passes a hard limit, tell of a soft */
  told told[TOLD_MOST];
  char *lines[LINES_MOST]; /* not printed yet */
  int line_count;
  int64_t lines_left_out;   /* since there was no room for them */
  bool in_batch;            /* other processes wait: nothing is printed */
  user *users;              /* of SASL; NULL: there is none */
  bool require_sasl;        /* a client that is none of them is refused */
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
  zke_jute_writer spares[SPARES_MOST]; /* empty, with room: spare_take() */
  int spare_count;
  int refusal;  /* other than ZKE_OK: changes are answered with it, unmade */
  bool blocked; /* in this round something had to wait for another process */
  int blocked_rounds; /* so many before this one, without one between */
  conn *conns;        /* all; the newest first */
  int conn_count;
  size_t events;    /* of all connections: conn.events */
  client *sessions; /* all; the newest first */
  int session_count;
  bool some_over;  /* a session has ended by itself */
  bool is_behind;  /* more sessions are due to end than one round ends */
  int full_rounds; /* so many in a row have left sources unread, perhaps */
  int64_t zxid;    /* the latest that was seen */
  counts counts;
  kept_counts kept;
  struct faults *faults; /* NULL: without --control */
};

/* ------------------------------------------------------------------------
 * What is said on standard error (tell.c)
 *
 * A line for each kind of refusal, at most so often that a client cannot fill
 * a disk with them.
 * --------------------------------------------------------------------- */

/* server_tell        - say that something was refused, unless its kind was told
 *                      a short time ago.  about: of whom or what; of a quota
 *                      its path; "" for nothing
 * conn_tell          - the same about a client, by its address
 * server_tell_failed - the same of a code of the library that means that the
 *                      database cannot be read or written, with the sentence
 *                      of the call that has just failed; c may be NULL
 * server_log         - the store's logger; its context is the shell.  What the
 *                      library warns of is kept, since it may be called while
 *                      other processes wait
 * server_print       - print what was kept: call it while nobody waits
 * server_tell_free   - free what is remembered of that */
void server_tell(server *s, int kind, const char *about, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
void conn_tell(const conn *c, int kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void server_tell_failed(server *s, const conn *c, int rc);
void server_log(void *context, int level, const char *text);
void server_print(server *s);
void server_tell_free(server *s);

/* ------------------------------------------------------------------------
 * Connections (conn.c)
 *
 * Bytes and frames of a socket. What a frame means the files below know.
 * --------------------------------------------------------------------- */

enum {
  CONN_ADDRESS = 64,
  /* So many descriptors are not for connections: the library opens files. */
  DESCRIPTORS_KEPT = 32,
  /* Of one connection in one round, so that others get their turn. */
  REQUESTS_AT_ONCE = 64,
  /* A connection that has not said whose it is ends after that. */
  GREETING_MS = 10000,
  /* With so many bytes waiting to be sent, no request is read any more. */
  CONN_OUT_ENOUGH = 1 << 20,
  /* With so many, events end the connection: its client comes back and says
   * which watches it had.  With more, left unread by clients of words together,
   * no further word is answered. */
  CONN_OUT_MOST = 64 << 20,
  /* With more bytes of events unread by all clients together, the connection
   * ends that most of them wait for. */
  EVENTS_UNREAD_MOST = 256 << 20
};

/* An identity that the client has proven; whoAmI lists them. */
typedef struct identity {
  struct identity *next;
  const char *scheme;          /* digest, sasl, super */
  char proof[ZKE_DIGEST_SIZE]; /* what it was proven by: a hash, or "" */
  char user[];                 /* "ann"; of super "" */
} identity;

/* What a fault does to a request: nothing; or the request is refused with an
 * error; or it is done, and its reply is lost with the connection, or is held
 * with all behind it. */
enum { FATE_NONE, FATE_REFUSED, FATE_LOST, FATE_HELD };

typedef struct fate {
  int what;  /* FATE_… */
  int fault; /* its number */
  int error; /* of FATE_REFUSED */
} fate;

/* What faults do to a connection; all of it is zero without --control. */
typedef struct conn_faults {
  bool looked;    /* the next frame has met all faults that there are for it */
  fate fate;      /* of that frame */
  bool deaf;      /* no frame is taken */
  int deaf_by;    /* the fault that holds what the client sends; 0: none */
  int mute_by;    /* the fault that holds what is sent to it; 0: none */
  size_t mute_at; /* what is held begins there in `out` */
  int64_t deaf_until_ms; /* server's clock; 0: until it is released */
  int64_t mute_until_ms;
} conn_faults;

/* What an order of a test is waiting for before it is answered. */
typedef struct control_wait {
  int what;  /* WAITS_… of control.c; 0: for nothing */
  int fault; /* its number */
  int64_t count;
} control_wait;

struct conn {
  source source;
  server *server;
  conn *next, **link;
  conn *busy_next; /* in server.busy, while is_busy */
  bool is_busy;
  client *session; /* NULL: none yet, or no more */
  bool greeted;    /* it has sent its first four bytes */
  bool is_text;    /* they begin a request by HTTP: there are no frames */
  bool ended;      /* nothing more is read; closed once all has been sent */
  bool gone;       /* its peer has hung up: nothing can be sent any more */
  bool all_read;   /* it is gone, and all that it had sent was read */
  bool dropped;    /* closed at the end of the round */
  unsigned waited; /* the events that epoll is asked for */
  bool is_unix;
  bool has_watched; /* it may have watches, and events may wait for it */
  int changes;      /* among its next frames, in this round */
  char address[CONN_ADDRESS]; /* "127.0.0.1" */
  int port;
  char *in; /* received bytes; those from in_at to in_len are not taken yet */
  size_t in_at, in_len, in_size;
  zke_jute_writer out; /* what is to be sent, from `sent` on */
  size_t sent;
  size_t events; /* so many bytes of what is to be sent are events, at most */
  identity *identities;
  sasl *sasl;               /* NULL: it has sent no token */
  bool is_user;             /* it has proven by SASL which user it is */
  int64_t since_ms;         /* server's clock: when it was accepted */
  int64_t heard_ms;         /* server's clock: its last request */
  int64_t received, issued; /* packets */
  timing took;              /* its requests */
  int64_t answered_ms;      /* monotonic: its latest answer */
  int64_t last_zxid;
  int last_xid;
  const char *last_name; /* of its last request; NULL: none */
  int64_t held_ms; /* monotonic: since when its next request is held; 0: it is
                      not */
  conn_faults faults;
  control_wait wait;
};

/* conn_accept - take a connection from a listener; NULL where it cannot be
 *               kept.  Where no descriptor is left it sets listening_off
 * conn_touch  - have this round deal with it: there is something to read, to
 *               send, or to close
 * conn_read   - read what is there, unless much is waiting; or note that
 *               nothing more will come
 * conn_hung_up - has its peer hung up, though not all that it has sent may be
 *               read?
 * conn_gone   - its peer has hung up: drop it, unless it has asked for
 *               something that is still to be done
 * conn_frame  - the next whole frame, without its length: it stays until
 *               conn_taken().  NULL: there is none.  One that is too long drops
 *               the connection.  skip: so many bytes first, which are frames
 * conn_taken  - the frame was dealt with
 * conn_flush  - send what can be sent
 * conn_event  - an event of so many bytes was written to what is to be sent
 * conns_relieve - where too much of events waits, drop the connection that most
 *               of it waits for
 * conn_end    - close it when all was sent
 * conn_drop   - close it at the end of the round
 * conn_free   - close and free; the caller has taken the session off
 * conn_unread - so many bytes wait to be sent
 * conn_full   - is so much waiting that no request is to be read?
 * conn_takes_text - may a list be made for it, which may be long?  False:
 *               others have left so much unread that it is dropped
 * spare_take  - a writer that has no room gets a block that lay ready
 * spare_give  - the opposite of it, or of its first write: its block lies ready
 *               for the next, or is freed
 * spares_free - free those that lie ready */
conn *conn_accept(server *s, int listener, bool is_unix,
                  void (*ready)(server *s, source *from, unsigned events));
void conn_touch(conn *c);
void conn_read(conn *c);
bool conn_hung_up(const conn *c);
void conn_gone(conn *c);
char *conn_frame(conn *c, size_t skip, size_t *len_out);
void conn_taken(conn *c, size_t len);
void conn_flush(conn *c);
void conn_event(conn *c, size_t len);
void conns_relieve(server *s);
void conn_end(conn *c);
void conn_drop(conn *c);
void conn_free(conn *c);
size_t conn_unread(const conn *c);
bool conn_full(const conn *c);
bool conn_takes_text(conn *c);
void spare_take(server *s, zke_jute_writer *w);
void spare_give(server *s, zke_jute_writer *w);
void spares_free(server *s);

/* ------------------------------------------------------------------------
 * Sessions (session.c)
 *
 * A client is a session of the protocol: a handle of the library, with a
 * password and a time at which it ends. It outlives its connections.
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
 * clients_heard  - those do that are connected and not held
 * client_find    - this server's session with that id, unless it is over; NULL
 * client_events  - send what its watchers are to be told of changes up to a
 *                  zxid; false where that cannot be read now
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
void clients_heard(server *s);
client *client_find(server *s, int64_t id);
bool client_events(client *session, int64_t zxid);
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
 * Quotas (quota.c)
 *
 * What ZooKeeper's server does with the nodes below /zookeeper/quota.
 * --------------------------------------------------------------------- */

/* What was counted for a request; NULL at its beginning. */
typedef struct quota_counts quota_counts;

/* quota_stats   - what stands in a node that has a quota's statistics, for
 *                 free(); NULL: it is none, its data is what it has
 * quota_refuses - does a hard limit refuse to create the path, or set its data,
 *                 with so many bytes?  That is told; a soft limit that it would
 *                 pass is noted
 * quota_tell_passed - the changes were made: tell of the soft limits
 * quota_forget  - free what was counted, when the request is done */
char *quota_stats(server *s, quota_counts **counted, const char *node);
bool quota_refuses(server *s, quota_counts **counted, const char *path,
                   bool is_create, int len);
void quota_tell_passed(server *s, const quota_counts *counted);
void quota_forget(quota_counts **counted);

/* ------------------------------------------------------------------------
 * Users (sasl.c)
 *
 * Who a client is: by DIGEST-MD5 and a file of users, or by a digest that it
 * sends itself.
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
 * Requests (request.c), four-letter words (words.c)
 *
 * From a frame to its answer. Answers wait until what was taken with them is
 * done, since several changes are made in one batch.
 * --------------------------------------------------------------------- */

/* request_take    - deal with the next frame of a connection; false where there
 *                   is none, or where it is held.  Its answer waits for
 *                   requests_answer()
 * request_changes - how many changes are among the next frames of a connection,
 *                   up to one that cannot be part of a batch
 * request_is_alone - is the next frame one of those?
 * request_takes_long - may one of the next frames wait for other processes or
 *                   for the disk, or read much?
 * requests_answer - send the answers of what was taken.  rc: what became of the
 *                   batch that it was taken in, or ZKE_OK
 * requests_many   - are so many answers waiting that no request is to be taken
 *                   before they are sent? */
bool request_take(server *s, conn *c);
int request_changes(conn *c);
bool request_is_alone(conn *c);
bool request_takes_long(conn *c);
void requests_answer(server *s, int rc);
bool requests_many(const server *s);

/* letters_take - is what came a four-letter word?  Then it is answered */
bool letters_take(server *s, conn *c);

/* ------------------------------------------------------------------------
 * What the server tells of itself (stats.c)
 *
 * Numbers and lists under ZooKeeper's names, for the words.
 * --------------------------------------------------------------------- */

/* What clients parse: kazoo and the monitors take the number behind the colon
 * for ZooKeeper's, and go-zookeeper wants a date in ZooKeeper's form.  It is
 * the release's, so that two builds are the same. */
#define SERVE_VERSION "3.8.0-zkembed-" ZKE_VERSION
#define SERVE_VERSION_FULL SERVE_VERSION ", built on 2026-11-30 00:00 UTC"

/* The watches of this server's clients. */
typedef struct own_watches {
  zke_watch_list *list; /* of all processes: what `at` points to is in it */
  zke_watch_info *at;   /* in the order of their paths at first */
  int count;
} own_watches;

/* timing_add          - one request more
 * timing_average      - 0 where there was none
 * stats_nodes         - nodes of the tree, "/" too; of a large tree as they
 *                       were a second ago at most
 * stats_waiting       - requests of a connection that are here and not dealt
 *                       with
 * stats_all_waiting   - the same of all
 * stats_interest      - what a connection waits for: 1 to read, 4 to write
 * stats_watches       - those of clients of this server; for
 *                       stats_watches_free().  None where they cannot be read
 * stats_by_session    - sort them by session, the newest first, and by path
 *                       within
 * stats_new_path      - does the i-th have another path than the one before?
 * stats_new_session   - the same of its session
 * stats_repeated      - does it have the path and the session of that one?
 * stats_count_watches - how many they are, or where there are many of all
 *                       processes, were a second ago at most
 * stats_monitor       - the lines of mntr */
void timing_add(timing *t, int64_t ms);
double timing_average(const timing *t);
int64_t stats_nodes(server *s);
int64_t stats_waiting(conn *c);
int64_t stats_all_waiting(const server *s);
int stats_interest(const conn *c);
void stats_watches(server *s, own_watches *w);
void stats_watches_free(own_watches *w);
void stats_by_session(own_watches *w);
bool stats_new_path(const own_watches *w, int i);
bool stats_new_session(const own_watches *w, int i);
bool stats_repeated(const own_watches *w, int i);
watch_counts stats_count_watches(server *s);
void stats_monitor(server *s, FILE *out);

/* ------------------------------------------------------------------------
 * HTTP (http.c), what a test asks for (control.c)
 *
 * http.c knows requests and answers; pages and orders are functions in a
 * table.
 * --------------------------------------------------------------------- */

/* A request by HTTP; it is valid while its function runs. */
typedef struct http_request {
  const char *method; /* "GET" */
  const char *path;   /* "/control" */
  const char *head;   /* the lines behind the first */
  const char *body;   /* or "" */
} http_request;

/* What stands behind a path. */
typedef struct http_page {
  const char *method, *path;
  void (*run)(server *s, conn *c, const http_request *r);
} http_page;

/* http_take    - has what came the beginning of a request by HTTP?  When all of
 *                it is there its page is run; the last page has no path
 * http_answer  - answer with a body, and close
 * http_refuse  - answer with a sentence that says what is wrong, and close
 * http_is_from_page - has a page in a browser sent it? */
bool http_take(server *s, conn *c, const http_page *pages);
void http_answer(conn *c, int status, const char *type, const char *body);
void http_refuse(conn *c, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool http_is_from_page(const http_request *r);

/* control_report - GET /control: which faults there are
 * control_do     - POST /control: what a test asks for
 * control_round  - answer those whose order was done in this round */
void control_report(server *s, conn *c, const http_request *r);
void control_do(server *s, conn *c, const http_request *r);
void control_round(server *s);

/* ------------------------------------------------------------------------
 * Faults (fault.c)
 *
 * What the server itself asks. fault.h has what control.c needs.
 * --------------------------------------------------------------------- */

/* faults_begin  - the server can have faults from now on; false without memory
 * faults_end    - free them
 * fault_stops   - the next frame of a connection meets the faults: is it not to
 *                 be taken now?  Else what becomes of it is in its fate
 * fault_taken   - that frame was taken
 * fault_answers - the reply to a request with a fate is due: is it not sent?
 * fault_event   - an event is about to be sent: it meets the faults, too
 * fault_refuses - is the connection refused because of an outage?
 * faults_passed - how much of so many real ms counts for the server's clock
 * faults_pause  - until when the server may wait, at most so many ms
 * faults_round  - what the server's clock ends */
bool faults_begin(server *s);
void faults_end(server *s);
bool fault_stops(server *s, conn *c, const char *frame, size_t len);
void fault_taken(conn *c);
bool fault_answers(server *s, conn *c, const fate *f);
void fault_event(server *s, conn *c, const char *path);
bool fault_refuses(server *s, conn *c);
int64_t faults_passed(const server *s, int64_t ms);
int64_t faults_pause(const server *s, int64_t ms);
void faults_round(server *s);

#endif
