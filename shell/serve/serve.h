/* serve.h - what the files of the protocol server share
 *
 *     serve.c    the command: options, listeners, the loop
 *     control.c  how a test asks for faults, by HTTP
 *     http.c     the form of HTTP
 *     words.c    the four-letter words
 *     stats.c    the numbers and lists for the words
 *     request.c  clients' requests and their answers
 *     quota.c    limits of subtrees, and their sizes
 *     sasl.c     who the users are, and how clients prove it (digest.c)
 *     session.c  sessions: their time, their handles, their events
 *     fault.c    faults that a test has asked for
 *     conn.c     connections: frames in, frames out
 *     tell.c     messages on standard error about refusals
 *
 * Each file calls those below it in this list.  Everything runs on the
 * command's thread, so there are no locks.
 *
 * A client's session is a kept session of the library on the store of the
 * command.  It outlives its connection and the server: a client that comes back
 * with the id and the password gets it again.  Watches and identities belong to
 * the connection, as in ZooKeeper: the watcher's context is the connection.
 *
 * A round of the loop takes epoll's events, serves the connections that have
 * something to do, and then checks the time.  A connection that is over is
 * marked (conn_drop()) and freed at the round's end, so nothing is freed while
 * a caller still uses it.
 *
 * While another process writes, changes to the file have to wait.  A round
 * waits for it some milliseconds at most (server_limit()).  A request that
 * cannot be done in that time is held: it stays in its place, with all input
 * after it, and is tried again in the next round, until it is late.  Meanwhile
 * other clients are served, and their pings answered.
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

/* A source of epoll events: the first member of a larger struct; an event calls
 * its function. */
typedef struct source {
  int fd;
  void (*ready)(server *s, struct source *from, unsigned events);
} source;

/* ------------------------------------------------------------------------
 * The server
 *
 * Shared by all files of the server.  All of it runs on the thread of serve.c's
 * loop, so no struct here has a mutex.
 * --------------------------------------------------------------------- */

enum { LISTENERS_MOST = 8, PASSWORD_BYTES = 16 };

/* The kinds of messages on standard error; so many quotas at a time. */
enum {
  TELL_CONNECTIONS, /* --connections */
  TELL_DESCRIPTORS, /* none is left for a connection */
  TELL_FRAME,       /* the input is not a frame */
  TELL_ZXID,        /* the client was at another server */
  TELL_PASSWORD,    /* of a session */
  TELL_AUTH,
  TELL_SASL,
  TELL_STRANGER, /* --require-sasl */
  TELL_OPERATION,
  TELL_SILENT,
  TELL_UNREAD,     /* much output waits for a client that does not read */
  TELL_FAILED,     /* the database cannot be read or written */
  TELL_BUSY,       /* another process has held it for too long */
  TELL_QUOTA,      /* from here on each path is a separate kind: a hard limit */
  TELL_SOFT_QUOTA, /* a soft one */
  TELL_KINDS,
  TOLD_MOST = TELL_QUOTA + 8,
  LINES_MOST = 32 /* lines waiting to be printed */
};

/* When a kind was last reported. */
typedef struct told {
  int kind;         /* for quotas, one for each path */
  char *path;       /* of a quota, for free(); else NULL */
  int64_t again_ms; /* server's clock: not reported again before */
  int64_t left_out; /* how often it was not reported */
} told;

/* Blocks that are kept for reuse, and how long one may be. */
enum { SPARES_MOST = 32, SPARE_BYTES = 16 * 1024 };

/* The time of requests, from reading them to their answer. */
typedef struct timing {
  int64_t count, min_ms, max_ms, last_ms, sum_ms;
} timing;

/* Totals since the start (stats_monitor()). */
typedef struct counts {
  int64_t received, sent; /* packets */
  timing all, reads, changes;
  int64_t bytes_received, bytes_answered;         /* of packets */
  int64_t answer_last, answer_least, answer_most; /* bytes */
  int64_t refused;  /* connections over the limit */
  int64_t silent;   /* connections that did not identify themselves */
  int64_t accepted; /* connections */
  int64_t expired;  /* sessions */
} counts;

typedef struct watch_counts {
  int sessions, paths, watches;
} watch_counts;

/* Numbers that were counted row by row (stats.c), and how long, by the server's
 * clock, they are reused.  Small results are not kept: then the limit is 0. */
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
  int own_descriptors;    /* open descriptors without connections */
  bool listening_off;     /* no connection can be taken: lack of means */
  bool is_listening_off;  /* epoll does not report them */
  bool is_for_others;     /* other hosts can reach it */
  int port;               /* of TCP; 0: none */
  const char *unix_path;  /* NULL: none */
  int64_t timeout_min_ms; /* limits for a session's timeout */
  int64_t timeout_max_ms;
  int64_t tick_ms;    /* sessions end at multiples of it */
  int address_most;   /* connections from one address; 0: any number */
  bool enforce_quota; /* refuse changes above hard limits, report soft */
  told told[TOLD_MOST];
  char *lines[LINES_MOST]; /* not printed yet */
  int line_count;
  int64_t lines_left_out;   /* since the array was full */
  bool in_batch;            /* other processes wait: print nothing */
  user *users;              /* of SASL; NULL: there is none */
  bool require_sasl;        /* refuse clients that are none of them */
  const char *super_user;   /* of SASL; NULL: none */
  const char *super_digest; /* "super:hash"; NULL: none */

  /* The server's clock: it follows the monotonic one, but by half a tick at
   * most between two rounds.  So a time in which the server stood still counts
   * as half a tick, however long it is. */
  int64_t now_ms;
  int64_t real_ms;  /* the monotonic clock at the latest look */
  int64_t began_ms; /* wall clock at the start */
  int64_t swept_ms; /* when sessions were last checked */

  conn *busy;             /* those for the next round */
  conn *round;            /* those for this round */
  struct answer *answers; /* not sent yet */
  int answer_count, answer_size;
  size_t answer_bytes;
  zke_jute_writer spares[SPARES_MOST]; /* empty, with room: spare_take() */
  int spare_count;
  int refusal;  /* if not ZKE_OK: the answer to changes, which are not made */
  bool blocked; /* a request of this round had to wait for another process */
  int blocked_rounds; /* how many such rounds in a row came before */
  conn *conns;        /* all; the newest first */
  int conn_count;
  size_t events;    /* of all connections: conn.events */
  client *sessions; /* all; the newest first */
  int session_count;
  bool some_over;  /* a session has ended by itself */
  bool is_behind;  /* more sessions are due to end than one round ends */
  int full_rounds; /* full rounds in a row, which may have left input unread */
  int64_t zxid;    /* the latest that was seen */
  counts counts;
  kept_counts kept;
  struct faults *faults; /* NULL: without --control */
};

/* ------------------------------------------------------------------------
 * Messages on standard error (tell.c)
 *
 * A line for each kind of refusal, with a limit so that a client cannot fill a
 * disk with them.
 * --------------------------------------------------------------------- */

/* server_tell        - report a refusal, unless its kind was reported a short
 *                      time ago.  about: the person or thing; for a quota its
 *                      path; "" for nothing
 * conn_tell          - the same about a client, by its address
 * server_tell_failed - the same for a code of the library that means that the
 *                      database cannot be read or written, with the sentence of
 *                      the call that has just failed; c may be NULL
 * server_log         - the store's logger; its context is the shell.  It stores
 *                      the library's warnings, since it may be called while
 *                      other processes wait
 * server_print       - print what was stored: call it while no process waits
 * server_tell_free   - free the memory of all this */
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
 * Bytes and frames of a socket.  Callers know what a frame means.
 * --------------------------------------------------------------------- */

enum {
  CONN_ADDRESS = 64,
  /* Descriptors that are not for connections: the library opens files. */
  DESCRIPTORS_KEPT = 32,
  /* Per connection and round, so that others get their turn. */
  REQUESTS_AT_ONCE = 64,
  /* After this time a connection that has not identified itself ends. */
  GREETING_MS = 10000,
  /* With so much output waiting, no more requests are read. */
  CONN_OUT_ENOUGH = 1 << 20,
  /* With so much, events end the connection: its client comes back and names
   * its watches.  If clients of words together leave more unread, no further
   * word is answered. */
  CONN_OUT_MOST = 64 << 20,
  /* If all clients together have more bytes of events unread, the connection
   * with most of them ends. */
  EVENTS_UNREAD_MOST = 256 << 20
};

/* A proven identity of the client; whoAmI lists them. */
typedef struct identity {
  struct identity *next;
  const char *scheme;          /* digest, sasl, super */
  char proof[ZKE_DIGEST_SIZE]; /* its proof: a hash, or "" */
  char user[];                 /* "ann"; "" for super */
} identity;

/* What a fault does to a request: nothing; or it refuses the request with an
 * error; or the request is done, and its reply is lost with the connection, or
 * is held with all replies after it. */
enum { FATE_NONE, FATE_REFUSED, FATE_LOST, FATE_HELD };

typedef struct fate {
  int what;  /* FATE_… */
  int fault; /* its number */
  int error; /* of FATE_REFUSED */
} fate;

/* The effect of faults on a connection; all zero without --control. */
typedef struct conn_faults {
  bool looked;           /* the next frame has met all its faults */
  fate fate;             /* of that frame */
  bool deaf;             /* no frame is taken */
  int deaf_by;           /* the fault that holds the client's input; 0: none */
  int mute_by;           /* the fault that holds its output; 0: none */
  size_t mute_at;        /* the held output begins there in `out` */
  int64_t deaf_until_ms; /* server's clock; 0: until it is released */
  int64_t mute_until_ms;
} conn_faults;

/* What a test's order waits for before it is answered. */
typedef struct control_wait {
  int what;  /* WAITS_… of control.c; 0: for nothing */
  int fault; /* its number */
  int64_t count;
} control_wait;

struct conn {
  source source;
  server *server;
  conn *next, **link;
  conn *busy_next; /* in server.busy, if is_busy */
  bool is_busy;
  client *session; /* NULL: none yet, or no more */
  bool greeted;    /* it has sent its first four bytes */
  bool is_text;    /* they begin an HTTP request: there are no frames */
  bool ended;      /* nothing more is read; closed once all has been sent */
  bool gone;       /* its peer has hung up: nothing can be sent any more */
  bool all_read;   /* it is gone, and all its input was read */
  bool dropped;    /* closed at the end of the round */
  unsigned waited; /* the events requested from epoll */
  bool is_unix;
  bool has_watched; /* it may have watches, and events may wait for it */
  int changes;      /* among its next frames, in this round */
  char address[CONN_ADDRESS]; /* "127.0.0.1" */
  int port;
  char *in; /* input; the bytes from in_at to in_len are not taken yet */
  size_t in_at, in_len, in_size;
  zke_jute_writer out; /* output; unsent from `sent` on */
  size_t sent;
  size_t events; /* at most so many bytes of the output are events */
  identity *identities;
  sasl *sasl;               /* NULL: it has sent no token */
  bool is_user;             /* it has authenticated by SASL as a user */
  int64_t since_ms;         /* server's clock: when it was accepted */
  int64_t heard_ms;         /* server's clock: its last request */
  int64_t received, issued; /* packets */
  timing took;              /* its requests */
  int64_t answered_ms;      /* monotonic: its latest answer */
  int64_t last_zxid;
  int last_xid;
  const char *last_name; /* of its last request; NULL: none */
  int64_t held_ms; /* monotonic: since when its next request is held; 0: it is
                      not held */
  conn_faults faults;
  control_wait wait;
};

/* conn_accept   - take a connection from a listener; NULL if it cannot be kept.
 *                 If no descriptor is left it sets listening_off
 * conn_touch    - have this round handle it: there is something to read, to
 *                 send, or to close
 * conn_read     - read its input, unless much is waiting; or note its end
 * conn_hung_up  - has its peer hung up?  Some input may still be unread
 * conn_gone     - its peer has hung up: drop it, unless a request of it must
 *                 still be done
 * conn_frame    - the next whole frame, without its length, valid until
 *                 conn_taken(); NULL if there is none.  A frame that is too
 *                 long drops the connection.  skip: skip so many bytes, which
 *                 are frames
 * conn_taken    - the frame was handled
 * conn_flush    - send what can be sent
 * conn_event    - an event of so many bytes was added to the output
 * conns_relieve - if too many bytes of events wait, drop the connection with
 *                 most of them
 * conn_end      - close it after all output was sent
 * conn_drop     - close it at the end of the round
 * conn_free     - close and free; the caller has detached its session
 * conn_unread   - how many bytes of output wait
 * conn_full     - is so much output waiting that no request should be read?
 * conn_takes_text - may it get a list, which may be long?  False: others have
 *                 left so much unread that it is dropped
 * spare_take    - gives a spare block to a writer without room
 * spare_give    - the opposite, also for a block that the writer allocated: the
 *                 block becomes a spare, or is freed
 * spares_free   - free the spare blocks */
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
 * password and the time when it ends.  It outlives its connections.
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

/* client_open    - a new session for a connection: ZKE_OK, or a code of
 *                  zke_open_session()
 * client_attach  - a client has come back with id and password, 16 bytes: it
 *                  gets its session again, and the session's old connection is
 *                  dropped.  ZKE_OK, or a code of zke_attach()
 * client_detach  - the connection ends, the session stays for its timeout
 * client_heard   - its client lives
 * clients_heard  - so do all clients that are connected and not held
 * client_find    - this server's session with that id, unless it is over; NULL
 * client_events  - send its watchers' events up to a zxid; false if they cannot
 *                  be read now
 * client_close   - end it now, and free it; its connection stays
 * client_leave   - free it; it lives on in the file
 * client_over    - it has ended by itself: it is freed at the round's end
 * clients_expire - end sessions that were silent for too long, and free those
 *                  that are over; true if a tick has passed */
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

/* server_limit    - let the library's next calls for z wait for other processes
 *                   for some milliseconds at most, or not at all if a call has
 *                   waited in vain in this round
 * server_unlimit  - let them wait as long as --timeout says
 * server_blocked  - a call has waited in vain
 * server_can_write - can the file be written now?  For what cannot be tried
 *                   twice
 * server_saw      - note the zxid of the library call that was just made
 * server_zxid     - the zxid of the present state */
void server_limit(server *s, zke *z);
void server_unlimit(server *s);
void server_blocked(server *s);
bool server_can_write(server *s);
void server_saw(server *s);
int64_t server_zxid(server *s);

/* client_watcher - the callback for all watches; its context is the
 * connection */
void client_watcher(zke *z, int type, int state, const char *path,
                    void *context);

/* ------------------------------------------------------------------------
 * Quotas (quota.c)
 *
 * ZooKeeper's handling of the nodes below /zookeeper/quota.
 * --------------------------------------------------------------------- */

/* Counts for one request; NULL at its start. */
typedef struct quota_counts quota_counts;

/* quota_stats   - the contents of a node for a quota's statistics, for free();
 *                 NULL: it is another node, which has its own data
 * quota_refuses - does a hard limit refuse to create the path, or set its data,
 *                 with so many bytes?  This is reported; a soft limit that it
 *                 would exceed is noted
 * quota_tell_passed - the changes were made: report the soft limits
 * quota_forget  - free the counts, when the request is done */
char *quota_stats(server *s, quota_counts **counted, const char *node);
bool quota_refuses(server *s, quota_counts **counted, const char *path,
                   bool is_create, int len);
void quota_tell_passed(server *s, const quota_counts *counted);
void quota_forget(quota_counts **counted);

/* ------------------------------------------------------------------------
 * Users (sasl.c)
 *
 * A client's identity: by DIGEST-MD5 and a file of users, or by a digest that
 * the client sends.
 * --------------------------------------------------------------------- */

/* users_load   - read the options about users and their file; 0 or the exit
 *                code
 * users_free   - the opposite
 * users_digest - give a session the digest identity of "user:password", and the
 *                super user's if it matches
 * sasl_token   - handle a client's token: the next step of DIGEST-MD5.  ZKE_OK
 *                and the server's token, for free(); or ZKE_AUTHFAILED: the
 *                client has not proven its identity
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
 * From a frame to its answer.  Answers wait for the end of their batch, since
 * several changes are made together.
 * --------------------------------------------------------------------- */

/* request_take    - handle the next frame of a connection; false if there is
 *                   none, or it is held.  Its answer waits for
 *                   requests_answer()
 * request_changes - how many changes are among the next frames of a connection,
 *                   up to one that cannot be part of a batch
 * request_is_alone - can the next frame not be part of a batch?
 * request_takes_long - may one of the next frames wait for other processes or
 *                   for the disk, or read much?
 * requests_answer - send the kept answers.  rc: the result of their batch, or
 *                   ZKE_OK
 * requests_many   - are so many answers waiting that they must be sent before
 *                   another request is taken? */
bool request_take(server *s, conn *c);
int request_changes(conn *c);
bool request_is_alone(conn *c);
bool request_takes_long(conn *c);
void requests_answer(server *s, int rc);
bool requests_many(const server *s);

/* letters_take - is the input a four-letter word?  Then it is answered */
bool letters_take(server *s, conn *c);

/* ------------------------------------------------------------------------
 * The server's statistics (stats.c)
 *
 * Numbers and lists under ZooKeeper's names, for the words.
 * --------------------------------------------------------------------- */

/* Clients parse this: kazoo and the monitors take the number after the colon
 * for ZooKeeper's, and go-zookeeper expects a date in ZooKeeper's form.  It is
 * the release's date, so that two builds are the same. */
#define SERVE_VERSION "3.8.0-zkembed-" ZKE_VERSION
#define SERVE_VERSION_FULL SERVE_VERSION ", built on 2026-11-30 00:00 UTC"

/* The watches of this server's clients. */
typedef struct own_watches {
  zke_watch_list *list; /* of all processes; `at` points into it */
  zke_watch_info *at;   /* at first in the order of their paths */
  int count;
} own_watches;

/* timing_add          - add a request
 * timing_average      - 0 if there was none
 * stats_nodes         - nodes of the tree, "/" too; for a large tree the number
 *                       may be a second old
 * stats_waiting       - requests of a connection that have come and are not
 *                       done
 * stats_all_waiting   - the same for all
 * stats_interest      - what a connection waits for: 1 to read, 4 to write
 * stats_watches       - those of this server's clients; for
 *                       stats_watches_free().  None if they cannot be read
 * stats_by_session    - sort them by session, the newest first, then by path
 * stats_new_path      - does the i-th have another path than the one before?
 * stats_new_session   - the same for its session
 * stats_repeated      - does it have the path and the session of that one?
 * stats_count_watches - their number; if all processes have many, it may be a
 *                       second old
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
 * HTTP (http.c), orders of a test (control.c)
 *
 * http.c knows requests and answers; pages and orders are functions in a
 * table.
 * --------------------------------------------------------------------- */

/* An HTTP request; valid while its function runs. */
typedef struct http_request {
  const char *method; /* "GET" */
  const char *path;   /* "/control" */
  const char *head;   /* the lines after the first */
  const char *body;   /* or "" */
} http_request;

/* The function for a path. */
typedef struct http_page {
  const char *method, *path;
  void (*run)(server *s, conn *c, const http_request *r);
} http_page;

/* http_take    - does the input begin an HTTP request?  When it is complete
 *                this runs its page; the last page has no path
 * http_answer  - answer with a body, and close
 * http_refuse  - answer with a sentence that says what is wrong, and close
 * http_is_from_page - has a page in a browser sent it? */
bool http_take(server *s, conn *c, const http_page *pages);
void http_answer(conn *c, int status, const char *type, const char *body);
void http_refuse(conn *c, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool http_is_from_page(const http_request *r);

/* control_report - GET /control: the list of faults
 * control_do     - POST /control: an order of a test
 * control_round  - answer the orders that were completed in this round */
void control_report(server *s, conn *c, const http_request *r);
void control_do(server *s, conn *c, const http_request *r);
void control_round(server *s);

/* ------------------------------------------------------------------------
 * Faults (fault.c)
 *
 * The functions that the server calls.  fault.h has those for control.c.
 * --------------------------------------------------------------------- */

/* faults_begin  - the server can have faults from now on; false without memory
 * faults_end    - free them
 * fault_stops   - the next frame of a connection meets the faults: must it
 *                 wait?  Else its fate says what happens to it
 * fault_taken   - that frame was taken
 * fault_answers - the reply to a request with a fate is due: should it not be
 *                 sent?
 * fault_event   - an event is about to be sent: it meets the faults, too
 * fault_refuses - is the connection refused because of an outage?
 * faults_passed - how many of so many real ms count for the server's clock
 * faults_pause  - how long the server may wait, at most so many ms
 * faults_round  - end what the server's clock ends */
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
