/* serve.c - the protocol server: ZooKeeper's clients on a zkembed file
 *
 * The command `serve` listens, and answers until a signal comes.  One thread
 * does all of it, by one epoll.  A round of the loop is:
 *
 *     wait         until something can be read or sent, or a tick is over
 *     sources      each that is ready: accept, read, dispatch events
 *     busy         each connection with something to do: requests, sending,
 *                  closing
 *     time         sessions whose time is over end
 *
 * Start with serve_run().  serve.h says what the other files do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve.h"

enum {
  BACKLOG = 512,
  EVENTS_AT_ONCE = 256,
  /* So many bytes of answers are not kept back until the round's end. */
  SEND_AT_ONCE = 4096,
  /* SQLite's page cache.  Many clients' nodes lie on more pages than one
   * program's, and a page that is not there is read from the file again. */
  CACHE_KIB = 4096
};

/* ------------------------------------------------------------------------
 * What is ready
 *
 * A source's function accepts, reads, or takes what the library has to tell.
 * Requests are taken later in the round, in the order of serve_round(), and not
 * in that in which epoll tells of their connections.
 * --------------------------------------------------------------------- */

/* A connection can be read or written, or its peer has hung up.  What has come
 * is read all the same: a client that sends a close and hangs up at once is
 * heard (conn_flush()). */
static void conn_ready(server *s, source *from, unsigned events) {
  conn *c = (void *)from;
  (void)s;
  if (c->dropped) return;
  conn_touch(c);
  if (events & EPOLLIN)
    conn_read(c);
  else if (events & (EPOLLHUP | EPOLLERR))
    conn_gone(c);
}

static void tcp_ready(server *s, source *from, unsigned events) {
  (void)events;
  conn_accept(s, from->fd, false, conn_ready);
}

static void unix_ready(server *s, source *from, unsigned events) {
  (void)events;
  conn_accept(s, from->fd, true, conn_ready);
}

/* The store's own session has its duties: dead sessions, nodes whose time is
 * over, and events for the clients' sessions, which it carries. It waits for
 * other processes for a moment at most (server_limit()), since all clients wait
 * with it. */
static void store_ready(server *s, source *from, unsigned events) {
  (void)from, (void)events;
  server_limit(s, s->z);
  zke_dispatch(s->z, NULL);
  server_unlimit(s);
}

/* A signal has come (cancel_by_fd()): this round is the last. The eventfd need
 * not be read, since nobody looks at it again. */
static void wake_ready(server *s, source *from, unsigned events) {
  (void)from, (void)events;
  s->ending = true;
}

/* Gives a descriptor to epoll; 0 or the exit code. */
static int source_add(server *s, source *from, int fd,
                      void (*ready)(server *, source *, unsigned)) {
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = from};
  *from = (source){fd, ready};
  if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) != 0)
    return fail_errno(s->c, STATUS_SYSTEM, "epoll_ctl");
  return 0;
}

/* ------------------------------------------------------------------------
 * A round
 *
 * Requests are taken in two passes. Where several changes have come in one
 * round, of whatever clients, they are one transaction with one sync to the
 * disk (take_together()); all others are taken one by one (take_requests()). No
 * answer is sent before what it shows is committed.
 * --------------------------------------------------------------------- */

/* Has the server's own session not ended?  The sessions of its clients do not
 * end with it, so nothing is to be said to them. */
static bool server_lives(const server *s) {
  return zke_state(s->z) == ZKE_STATE_CONNECTED;
}

/* May another request of the connection be taken? Both limits bound memory:
 * what waits to be sent to this client, and what all answers of a batch take.
 */
static bool has_room(const server *s, const conn *c) {
  return !conn_full(c) && !requests_many(s);
}

/* Take all that can be part of a batch: the batch's function. A connection's
 * requests stay in their order, so its turn ends at the first that has to be
 * alone or is held. One that changes nothing has no part in it, and so none in
 * its failure. It never fails: what fails in it is one client's answer. */
static int take_batch(zke *z, void *context) {
  server *s = context;
  (void)z;
  for (conn *c = s->round; c; c = c->busy_next) {
    for (int i = 0; c->changes && i < REQUESTS_AT_ONCE && has_room(s, c); i++)
      if (request_is_alone(c) || !request_take(s, c)) break;
  }
  return ZKE_OK;
}

/* Where two changes or more are there they are one transaction, and their
 * answers follow its commit.  Where the transaction could not begin, none of
 * the changes waits for it once more in this round: another process writes, and
 * they are held, or the file cannot be written, and they are refused. (Where
 * the server's own session has ended they are left for another server.)  The
 * zxids that were seen in a transaction that failed have not been. */
static void take_together(server *s) {
  int changes = 0;
  int64_t before = s->zxid;
  for (conn *c = s->round; c; c = c->busy_next)
    changes += c->changes = request_changes(c);
  /* one change alone gains nothing by a batch */
  if (changes < 2) return;
  server_limit(s, s->z);
  s->in_batch = true;
  int rc = zke_batch(s->z, take_batch, s);
  s->in_batch = false;
  server_tell_failed(s, NULL, rc);
  server_unlimit(s);
  bool begun = s->answer_count > 0;
  if (rc != ZKE_OK) s->zxid = before;
  requests_answer(s, rc);
  if (rc == ZKE_OPERATIONTIMEOUT && !begun) server_blocked(s);
  if (rc == ZKE_OK || begun || s->blocked || !server_lives(s)) return;
  /* the transaction could not begin: have each change answered with its code */
  s->refusal = rc;
  take_batch(s->z, s);
  requests_answer(s, ZKE_OK);
  s->refusal = ZKE_OK;
}

/* What is there by HTTP. */
static const http_page pages[] = {{"GET", "/control", control_report},
                                  {"POST", "/control", control_do},
                                  {NULL, NULL, NULL}};

/* Take requests one by one: a connection's first frame, what cannot be part of
 * a batch, and all where there is no batch. A connection that has not been
 * greeted may speak HTTP or four-letter words; both are no frames, and are
 * looked at before one is read. */
static void take_requests(server *s, conn *c) {
  size_t len;
  if (!c->greeted &&
      (http_take(s, c, pages) || fault_refuses(s, c) || letters_take(s, c)))
    return;
  for (int i = 0; i < REQUESTS_AT_ONCE && has_room(s, c); i++) {
    if (!request_take(s, c)) break;
    requests_answer(s, ZKE_OK);
  }
  if (!conn_frame(c, 0, &len)) c->held_ms = 0;
}

/* Sends what can be sent.  A client to which much is to be sent is not read
 * from, so its pings are not seen.  That it takes a part of it tells as well
 * that it is there. */
static void send_waiting(server *s, conn *c) {
  bool is_full = conn_full(c);
  size_t before = conn_unread(c);
  conn_flush(c);
  bool takes = !c->gone && conn_unread(c) < before;
  if (is_full && takes && c->session) client_heard(s, c->session);
}

/* The turns in this round are over of all connections before that one, or of
 * all (NULL): their answers are sent. */
static void end_turns(server *s, const conn *before) {
  size_t len;
  while (s->round != before) {
    conn *c = s->round;
    s->round = c->busy_next;
    c->is_busy = false;
    send_waiting(s, c);
    if (c->dropped || (!conn_full(c) && conn_frame(c, 0, &len))) conn_touch(c);
  }
}

/* Deals with what is busy.  What was sent first makes room for answers.  A
 * connection that stays busy, or becomes it meanwhile, is for the next round,
 * which does not wait then.  Short answers are sent together at the end: a
 * client that is woken at once takes the processor from the others' turns.  No
 * answer waits for a turn that may take long. */
static void take_busy(server *s) {
  s->blocked_rounds = s->blocked ? s->blocked_rounds + 1 : 0;
  s->blocked = false;
  s->round = s->busy;
  s->busy = NULL;
  for (conn *c = s->round; c; c = c->busy_next) send_waiting(s, c);
  take_together(s);
  for (conn *c = s->round; c; c = c->busy_next)
    if (c->sent < c->out.len) send_waiting(s, c);
  bool lives = server_lives(s); /* asked once: it takes the library's lock */
  for (conn *c = s->round, *next; c; c = next) {
    next = c->busy_next;
    if (request_takes_long(c)) end_turns(s, c);
    if (lives) take_requests(s, c);
    if (c->out.len - c->sent >= SEND_AT_ONCE) end_turns(s, next);
  }
  end_turns(s, NULL);
}

/* Free those connections that are to be closed. All of them are in the busy
 * list, since conn_drop() puts them there. It is the only place in the loop
 * that frees one, so a pointer to a connection is good for the whole round. */
static void close_dropped(server *s) {
  conn *list = s->busy;
  s->busy = NULL;
  while (list) {
    conn *c = list;
    list = c->busy_next;
    c->is_busy = false;
    if (!c->dropped) {
      conn_touch(c);
      continue;
    }
    if (c->session) client_detach(c->session);
    conn_free(c);
  }
}

/* Lets the server's clock follow the real one.  The loop waits for a quarter of
 * a tick at most, so a longer pause is one in which the server could hear
 * nobody: it counts as half a tick. */
static void follow_clock(server *s) {
  int64_t real = clock_ms(), passed = real - s->real_ms;
  s->real_ms = real;
  s->now_ms +=
      faults_passed(s, passed < s->tick_ms / 2 ? passed : s->tick_ms / 2);
}

/* Says why such a connection ends. */
static void tell_silent(const conn *c) {
  if (c->ended)
    conn_tell(c, TELL_UNREAD,
              "ended, since it has left the last %zu bytes unread for %d "
              "seconds",
              c->out.len - c->sent, GREETING_MS / 1000);
  else
    conn_tell(c, TELL_SILENT,
              "ended, since it has begun no session within %d seconds",
              GREETING_MS / 1000);
}

/* Drop connections that did not say in time whose they are, and those that have
 * no session any more and do not read what is left for them: each of them would
 * keep a descriptor for ever. */
static void drop_silent(server *s) {
  for (conn *c = s->conns; c; c = c->next)
    if (!c->session && !c->dropped && s->now_ms - c->heard_ms >= GREETING_MS) {
      s->counts.silent++;
      tell_silent(c);
      conn_drop(c);
    }
}

/* A connection that cannot be taken stays in its queue, and epoll would tell of
 * it again at once, for ever.  So for the next wait it does not: the server
 * tries again when something else has happened, or after that wait. */
static void listen_or_not(server *s) {
  struct epoll_event e = {.events = s->listening_off ? 0 : EPOLLIN};
  if (s->listening_off != s->is_listening_off) {
    for (int i = 0; i < s->listener_count; i++) {
      e.data.ptr = &s->listeners[i];
      epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listeners[i].fd, &e);
    }
  }
  s->is_listening_off = s->listening_off;
  s->listening_off = false;
}

/* Was all that is ready read, after a round of so many events?  A full round
 * may have left some: then nobody's time is looked at, since a ping may be
 * among it.  Epoll tells of each source in turn, so after as many full rounds
 * as the connections fill each was read. */
static bool has_read_all(server *s, int events) {
  if (events == EVENTS_AT_ONCE && s->full_rounds <= s->conn_count / events) {
    s->full_rounds++;
    return false;
  }
  s->full_rounds = 0;
  return true;
}

/* Waits for something to happen, and does all that is to be done.  The order
 * matters: sessions expire after the frames that had come before their end,
 * connections are closed after their last answers were tried, and whoever gave
 * an order to the faults is answered last. */
static int serve_round(server *s) {
  struct epoll_event events[EVENTS_AT_ONCE];
  int64_t wait_ms = s->busy || s->is_behind ? 0 : s->tick_ms / 4;
  int n = epoll_wait(s->epoll, events, EVENTS_AT_ONCE,
                     (int)faults_pause(s, wait_ms));
  if (n < 0 && errno != EINTR)
    return fail_errno(s->c, STATUS_SYSTEM, "epoll_wait");
  if (!server_lives(s))
    return fail_with(
        s->c, STATUS_LOST, "LOST",
        "the server's own session has ended; its clients can go on "
        "with another server");
  follow_clock(s);
  for (int i = 0; i < n; i++) {
    source *from = events[i].data.ptr;
    from->ready(s, from, events[i].events);
  }
  take_busy(s);
  /* a signal or a stop (n < 0) has kept it from reading anything */
  if (n >= 0 && has_read_all(s, n) && clients_expire(s)) drop_silent(s);
  listen_or_not(s);
  close_dropped(s);
  server_print(s);
  faults_round(s);
  control_round(s);
  return 0;
}

/* ------------------------------------------------------------------------
 * Listening
 *
 * All addresses of the name get the same port, also where the system chooses
 * it: the first one decides.
 * --------------------------------------------------------------------- */

/* Can only this host reach the address? */
static bool is_loopback(const struct sockaddr *a) {
  if (a->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)a;
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  const struct sockaddr_in6 *in = (const void *)a;
  return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
}

/* The port that a socket got, which with --port 0 the system has chosen; 0
 * where it has none. */
static int port_of(int fd) {
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  } a = {.six = {0}};
  socklen_t len = sizeof a;
  if (getsockname(fd, &a.any, &len) != 0) return 0;
  return ntohs(a.any.sa_family == AF_INET ? a.four.sin_port : a.six.sin6_port);
}

/* Listen on one address; 0 or the exit code. The descriptor is in the list
 * before anything can fail, so that serve_end() closes it. IPv6 is without
 * IPv4, or the second of a host's two addresses would find its port taken. */
static int listen_at(server *s, const struct sockaddr *address, socklen_t len,
                     const char *name,
                     void (*ready)(server *, source *, unsigned)) {
  int yes = 1;
  if (s->listener_count == LISTENERS_MOST) return 0;
  int fd =
      socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail_errno(s->c, STATUS_SYSTEM, "socket");
  s->listeners[s->listener_count++].fd = fd;
  if (address->sa_family != AF_UNIX)
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address->sa_family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (bind(fd, address, len) != 0 || listen(fd, BACKLOG) != 0)
    return fail_errno(s->c, STATUS_SYSTEM, name);
  if (fd >= s->own_descriptors) s->own_descriptors = fd + 1;
  return source_add(s, &s->listeners[s->listener_count - 1], fd, ready);
}

/* Does this host have the address?  It has none of IPv6 where that is switched
 * off, though its name may have one.  What else is in the way listen_at() finds
 * out. */
static bool is_here(const struct addrinfo *at) {
  int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool fails = fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) != 0;
  int why = fails ? errno : 0;
  if (fd >= 0) close(fd);
  return why != EAFNOSUPPORT && why != EADDRNOTAVAIL;
}

/* Says what it means that others reach the server. */
static void warn_of_network(const char *host) {
  fputs("zke: serve: ", stderr);
  output_sentence(host, stderr);
  fputs(
      " is not only for this host: whoever reaches it can read and change the "
      "database as far as ACLs let them, and nothing is encrypted\n",
      stderr);
}

/* Listens on all addresses that the name has and this host has, on one port. */
static int listen_tcp(server *s, const char *host, int port) {
  struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                           .ai_socktype = SOCK_STREAM};
  struct addrinfo *list = NULL;
  char name[300], service[8];
  int status = 0;
  snprintf(service, sizeof service, "%d", port);
  snprintf(name, sizeof name, "%.255s port %d", host, port);
  int rc = getaddrinfo(host, service, &hints, &list);
  if (rc != 0)
    return fail_with(s->c, STATUS_USAGE, "USAGE", "%s: %s", host,
                     gai_strerror(rc));
  for (struct addrinfo *at = list; at && !status; at = at->ai_next) {
    if (!is_here(at)) continue;
    if (s->port && at->ai_family == AF_INET6)
      ((struct sockaddr_in6 *)(void *)at->ai_addr)->sin6_port =
          htons((uint16_t)s->port);
    else if (s->port)
      ((struct sockaddr_in *)(void *)at->ai_addr)->sin_port =
          htons((uint16_t)s->port);
    bool is_first = !is_loopback(at->ai_addr) && !s->is_for_others;
    if (is_first) warn_of_network(host);
    s->is_for_others = s->is_for_others || is_first;
    status = listen_at(s, at->ai_addr, at->ai_addrlen, name, tcp_ready);
    if (!status) s->port = port_of(s->listeners[s->listener_count - 1].fd);
  }
  freeaddrinfo(list);
  errno = EADDRNOTAVAIL;
  return status || s->port ? status : fail_errno(s->c, STATUS_SYSTEM, name);
}

/* Is there a socket that nobody listens on any more?  That of a server that was
 * killed is in the way.  A connection to a file that is no socket is refused,
 * too: such a file stays.  One that cannot be taken now (EAGAIN) waits for a
 * server that stands still. */
static bool is_left_over(const struct sockaddr_un *address) {
  struct stat st;
  if (lstat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  bool refused =
      connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
      errno == ECONNREFUSED;
  close(fd);
  return refused;
}

/* The socket gets the permissions that the umask leaves, as a file does. */
static int listen_unix(server *s, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path)
    return fail_usage(s->c, "--unix wants a path of at most %d bytes",
                      (int)sizeof address.sun_path - 1);
  memcpy(address.sun_path, path, strlen(path));
  if (is_left_over(&address)) unlink(path);
  int status = listen_at(s, (struct sockaddr *)&address, sizeof address, path,
                         unix_ready);
  if (!status) s->unix_path = path;
  return status;
}

/* Listen where the options say. --unix alone means no TCP: a server for this
 * host's users only is not to be reached by the network because somebody forgot
 * --host. */
static int serve_listen(server *s) {
  call *c = s->c;
  const word *host = option_word(c, 'h'), *path = option_word(c, 'u');
  int64_t port;
  int status = option_number(c, 'p', 0, 65535, 2181, &port);
  if (!status && path) status = listen_unix(s, path->text);
  if (!status && (!path || host || option_given(c, 'p')))
    status = listen_tcp(s, host ? host->text : "127.0.0.1", (int)port);
  return status;
}

/* ------------------------------------------------------------------------
 * serve
 *
 * From the options to the loop and back. serve_end() takes back all of it, and
 * may be called however far the beginning came.
 * --------------------------------------------------------------------- */

/* Read the options that are numbers, with ZooKeeper's defaults. Where only one
 * of the two limits is given it moves the other: the limit that a user has
 * named counts. A tick is half of the shortest timeout, as ZooKeeper's shortest
 * timeout is two ticks. */
static int serve_options(server *s) {
  call *c = s->c;
  int64_t most = 0;
  int status = option_duration(c, 'm', 4000, &s->timeout_min_ms);
  if (!status) status = option_duration(c, 'M', 40000, &s->timeout_max_ms);
  if (!status) status = option_number(c, 'n', 0, INT_MAX, 60, &most);
  s->address_most = (int)most;
  s->enforce_quota = option_given(c, 'q');
  if (status) return status;
  if (option_given(c, 'm') && !option_given(c, 'M') &&
      s->timeout_max_ms < s->timeout_min_ms)
    s->timeout_max_ms = s->timeout_min_ms;
  if (option_given(c, 'M') && !option_given(c, 'm') &&
      s->timeout_min_ms > s->timeout_max_ms)
    s->timeout_min_ms = s->timeout_max_ms;
  if (s->timeout_min_ms < 20 || s->timeout_max_ms < s->timeout_min_ms ||
      s->timeout_max_ms > INT_MAX)
    return fail_usage(c,
                      "--timeout-min is 20ms at least, and --timeout-max not "
                      "less than it");
  s->tick_ms = s->timeout_min_ms / 2;
  return 0;
}

/* Opens the store, with the time of containers, the logger and the page cache,
 * which are the store's.  One that is open already, in a script, has its own
 * time and cache, and no logger. */
static int serve_open(server *s) {
  call *c = s->c;
  int64_t ms;
  int status = option_number(c, 'c', 0, INT_MAX, 60000, &ms);
  if (!status && option_given(c, 'c') && c->sh->persists)
    status = fail_usage(c,
                        "--container-ms is for a session of its own, which one "
                        "command on the command line has");
  if (status) return status;
  if (option_given(c, 'c')) c->sh->options.container_ms = ms ? ms : ZKE_AT_ONCE;
  c->sh->server = s;
  if (!c->sh->persists) {
    c->sh->options.log = server_log;
    c->sh->options.log_context = c->sh;
    c->sh->options.cache_kib = CACHE_KIB;
  }
  status = session_open(c, CREATES_FILE);
  s->z = c->z;
  return status;
}

/* Raise the limit of descriptors to the most that the system allows: each
 * connection is one. The usual limit of 1,024 is there for programs that use
 * select(), which this is not. Where it cannot be raised the server has fewer
 * connections. */
static void raise_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* epoll, and what it always has. */
static int serve_prepare(server *s) {
  int fd;
  s->epoll = epoll_create1(EPOLL_CLOEXEC);
  s->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (s->epoll < 0 || s->wake.fd < 0)
    return fail_errno(s->c, STATUS_SYSTEM, "epoll");
  s->real_ms = clock_ms();
  s->began_ms = clock_wall_ms();
  if (option_given(s->c, 'C') && !faults_begin(s))
    return fail_with(s->c, STATUS_SYSTEM, "NOMEM", "out of memory");
  raise_descriptors();
  int rc = zke_vouch(s->z, "super", ""); /* numbers and quotas are of all */
  if (rc == ZKE_OK) rc = zke_fd(s->z, &fd);
  if (rc != ZKE_OK) return fail_rc(s->c, rc);
  int status = source_add(s, &s->store, fd, store_ready);
  return status ? status : source_add(s, &s->wake, s->wake.fd, wake_ready);
}

/* Closes the connections; 0 or the exit code.  Sessions live on in the file:
 * the next server has them, or their time is over.  That of all of them may
 * wait for another process as long as one call does. */
static int serve_end(server *s) {
  int status = 0;
  int64_t deadline = zke_now(s->z) + zke_busy_timeout(s->z);
  while (s->sessions) {
    zke_limit(s->sessions->z, deadline);
    int rc = client_leave(s, s->sessions);
    if (rc != ZKE_OK && !status) status = fail_rc(s->c, rc);
  }
  server_unlimit(s);
  while (s->conns) conn_free(s->conns);
  free(s->answers);
  spares_free(s);
  users_free(s);
  server_tell_free(s);
  faults_end(s);
  for (int i = 0; i < s->listener_count; i++) close(s->listeners[i].fd);
  if (s->unix_path) unlink(s->unix_path);
  if (s->epoll >= 0) close(s->epoll);
  if (s->wake.fd >= 0) close(s->wake.fd);
  return status;
}

/* Tells where it listens, to whoever has started it.  It is the only row. */
static int tell_port(server *s) {
  if (!option_given(s->c, 'P')) return 0;
  return emit_event(s->c, json_pack("{s:i}", "port", s->port));
}

/* Answers until a signal comes, which is the usual way to end it.  Sessions
 * from before get their whole time again, since nobody could hear their
 * clients.  Replies need the zxids of reads: the library tells these only to a
 * thread that has asked before. */
static int serve_loop(server *s) {
  (void)zke_zxid();
  int rc = zke_rearm(s->z);
  int status = rc == ZKE_OK ? tell_port(s) : fail_rc(s->c, rc);
  cancel_by(s->c, cancel_by_fd, &s->wake.fd);
  while (!status && !s->ending) status = serve_round(s);
  cancel_by(s->c, NULL, NULL);
  return status;
}

/* Serves on an open store.  serve_end() closes all, however far this came; the
 * first failure is the exit status. */
static int serve_store(server *s) {
  int status = users_load(s);
  if (!status) status = serve_prepare(s);
  if (!status) status = serve_listen(s);
  if (!status) status = serve_loop(s);
  int ended = serve_end(s);
  return status ? status : ended;
}

/* Runs the command.  The store's logger may speak from its opening on. */
static int serve_run(call *c) {
  server s = {.c = c, .epoll = -1, .wake = {-1, NULL}};
  int status = serve_options(&s);
  if (!status) status = serve_open(&s);
  if (!status) status = serve_store(&s);
  server_print(&s);
  c->sh->server = NULL;
  return status;
}

static const option serve_options_list[] = {{'p', "port", "N"},
                                            {'h', "host", "HOST"},
                                            {'u', "unix", "PATH"},
                                            {'m', "timeout-min", "DURATION"},
                                            {'M', "timeout-max", "DURATION"},
                                            {'n', "connections", "N"},
                                            {'c', "container-ms", "N"},
                                            {'q', "enforce-quota", NULL},
                                            {'U', "users", "FILE"},
                                            {'R', "require-sasl", NULL},
                                            {'S', "super-user", "NAME"},
                                            {'D', "super-digest", "ID"},
                                            {'P', "print-port", NULL},
                                            {'C', "control", NULL},
                                            {'\0', NULL, NULL}};

const command serve_commands[] = {
    {"serve",
     "[--port N] [--host HOST] [--unix PATH] [--timeout-min DURATION] "
     "[--timeout-max DURATION] [--connections N] [--container-ms N] "
     "[--enforce-quota] [--users FILE] [--require-sasl] "
     "[--super-user NAME] [--super-digest ID] [--print-port] "
     "[--control]",
     "let ZooKeeper's clients use the database", serve_options_list, 0, 0,
     NOT_IN_COPROCESS | FILE_ONLY, STYLE_VALUE, serve_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
