/* serve.c - the protocol server: ZooKeeper's clients on a zkembed file
 *
 * The command `serve` listens, and answers until a signal comes.  One thread
 * does all the work, with one epoll.  A round of the loop is:
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
  /* So many bytes of answers are sent before the round's end. */
  SEND_AT_ONCE = 4096,
  /* SQLite's page cache.  The nodes of many clients use more pages than one
   * program's, and a page that is not cached is read from the file again. */
  CACHE_KIB = 4096
};

/* ------------------------------------------------------------------------
 * Ready sources
 *
 * A source's function accepts, reads, or takes the library's events.  Requests
 * are taken later in the round, in the order of serve_round(), not in epoll's
 * order of their connections.
 * --------------------------------------------------------------------- */

/* A connection is ready to read or write, or its peer has hung up.  Input is
 * read in any case: the server also hears a client that sends a close and hangs
 * up immediately (conn_flush()). */
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

/* The store's own session has duties: dead sessions, expired nodes, and events
 * for the clients' sessions, which it carries.  It waits for other processes
 * only for a moment (server_limit()), since all clients wait with it. */
static void store_ready(server *s, source *from, unsigned events) {
  (void)from, (void)events;
  server_limit(s, s->z);
  zke_dispatch(s->z, NULL);
  server_unlimit(s);
}

/* A signal has come (cancel_by_fd()): this round is the last.  The eventfd need
 * not be read, since it is not used again. */
static void wake_ready(server *s, source *from, unsigned events) {
  (void)from, (void)events;
  s->ending = true;
}

/* Adds a descriptor to epoll; 0 or the exit code. */
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
 * Requests are taken in two passes.  If one round has several changes, from any
 * clients, they become one transaction with one sync to the disk
 * (take_together()); all other requests are taken one by one (take_requests()).
 * An answer is sent only after the state that it shows is committed.
 * --------------------------------------------------------------------- */

/* Is the server's own session alive?  The sessions of its clients do not end
 * with it, so they are told nothing. */
static bool server_lives(const server *s) {
  return zke_state(s->z) == ZKE_STATE_CONNECTED;
}

/* May another request of the connection be taken?  Both limits bound memory:
 * the output waiting for this client, and all answers of a batch. */
static bool has_room(const server *s, const conn *c) {
  return !conn_full(c) && !requests_many(s);
}

/* The function of a batch: takes all requests that can be part of it.  A
 * connection's requests stay in order, so its turn ends at the first that must
 * be ALONE or is held.  A connection without changes is left out, so the
 * batch's failure does not affect it.  This never fails: a failure inside is
 * one client's answer. */
static int take_batch(zke *z, void *context) {
  server *s = context;
  (void)z;
  for (conn *c = s->round; c; c = c->busy_next) {
    for (int i = 0; c->changes && i < REQUESTS_AT_ONCE && has_room(s, c); i++)
      if (request_is_alone(c) || !request_take(s, c)) break;
  }
  return ZKE_OK;
}

/* If there are two or more changes, makes them one transaction; their answers
 * follow its commit.  If the transaction cannot begin, no change waits for it
 * again in this round: another process is writing, and they are held, or the
 * file cannot be written, and they are refused.  (If the server's own session
 * has ended, they are left for another server.)  Zxids seen in a failed
 * transaction are taken back. */
static void take_together(server *s) {
  int changes = 0;
  int64_t before = s->zxid;
  for (conn *c = s->round; c; c = c->busy_next)
    changes += c->changes = request_changes(c);
  /* a single change gains nothing from a batch */
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
  /* the transaction could not begin: answers each change with its code */
  s->refusal = rc;
  take_batch(s->z, s);
  requests_answer(s, ZKE_OK);
  s->refusal = ZKE_OK;
}

/* The pages that HTTP offers. */
static const http_page pages[] = {{"GET", "/control", control_report},
                                  {"POST", "/control", control_do},
                                  {NULL, NULL, NULL}};

/* Takes requests one by one: a connection's first frame, requests that cannot
 * be part of a batch, and all requests without a batch.  A connection that has
 * not been greeted may speak HTTP or four-letter words; neither is a frame, so
 * they are checked before a frame is read. */
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

/* Sends what can be sent.  While much output waits for a client, the server
 * does not read from it, so its pings are not seen.  Taking some of the output
 * also shows that the client lives. */
static void send_waiting(server *s, conn *c) {
  bool is_full = conn_full(c);
  size_t before = conn_unread(c);
  conn_flush(c);
  bool takes = !c->gone && conn_unread(c) < before;
  if (is_full && takes && c->session) client_heard(s, c->session);
}

/* Ends the turns of all connections before that one in this round, or of all
 * (NULL): sends their answers. */
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

/* Handles the busy connections.  Sending first makes room for answers.  A
 * connection that stays busy, or becomes busy meanwhile, is left for the next
 * round, which then does not wait.  Short answers are sent together at the end:
 * a client that wakes earlier takes the processor from the others' turns.  No
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

/* Frees the connections that are marked for closing.  All of them are in the
 * busy list, since conn_drop() puts them there.  The loop frees connections
 * only here, so a pointer to one is valid for the whole round. */
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
 * a tick at most, so in a longer pause the server could hear no client: it
 * counts as half a tick. */
static void follow_clock(server *s) {
  int64_t real = clock_ms(), passed = real - s->real_ms;
  s->real_ms = real;
  s->now_ms +=
      faults_passed(s, passed < s->tick_ms / 2 ? passed : s->tick_ms / 2);
}

/* Reports why a silent connection ends. */
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

/* Drops connections that did not identify themselves in time, and connections
 * without a session that do not read their output: each of them would keep a
 * descriptor for ever. */
static void drop_silent(server *s) {
  for (conn *c = s->conns; c; c = c->next)
    if (!c->session && !c->dropped && s->now_ms - c->heard_ms >= GREETING_MS) {
      s->counts.silent++;
      tell_silent(c);
      conn_drop(c);
    }
}

/* A connection that cannot be accepted stays in its queue, and epoll would
 * report it again and again.  So epoll ignores the listeners for the next wait:
 * the server tries again after another event, or after that wait. */
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

/* Was all available input read, after a round of so many events?  A full round
 * may have left some; then no session is checked for its time, since a ping may
 * be unread.  Epoll reports the sources in turn, so after as many full rounds
 * as the connections can fill, each has been read. */
static bool has_read_all(server *s, int events) {
  if (events == EVENTS_AT_ONCE && s->full_rounds <= s->conn_count / events) {
    s->full_rounds++;
    return false;
  }
  s->full_rounds = 0;
  return true;
}

/* Waits for events, and does all that is due.  The order matters: sessions
 * expire after the frames that came before their end, connections are closed
 * after their last answers were tried, and fault orders are answered last. */
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
  /* after a signal or a stop (n < 0) it has read nothing */
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
 * All addresses of the name get the same port, even if the system chooses it:
 * the first address decides.
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

/* The port of a socket, which the system has chosen with --port 0; 0 if it has
 * none. */
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

/* Listens on one address; 0 or the exit code.  The descriptor is in the list
 * before anything can fail, so that serve_end() closes it.  IPv6 excludes IPv4;
 * otherwise the second of a host's two addresses would find its port taken. */
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

/* Does this host have the address?  If IPv6 is switched off it has no such
 * address, though its name may have one.  listen_at() finds other obstacles. */
static bool is_here(const struct addrinfo *at) {
  int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool fails = fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) != 0;
  int why = fails ? errno : 0;
  if (fd >= 0) close(fd);
  return why != EAFNOSUPPORT && why != EADDRNOTAVAIL;
}

/* Warns that other hosts can reach the server. */
static void warn_of_network(const char *host) {
  fputs("zke: serve: ", stderr);
  output_sentence(host, stderr);
  fputs(
      " is not only for this host: whoever reaches it can read and change the "
      "database as far as ACLs let them, and nothing is encrypted\n",
      stderr);
}

/* Listens on all addresses of the name that this host has, on one port. */
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

/* Is there a stale socket?  A killed server's socket blocks the name.  A
 * connection to a file that is not a socket is refused, too: such a file stays.
 * EAGAIN means that a stopped server still has the socket. */
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

/* The umask limits the socket's permissions, as for a file. */
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

/* Listens at the addresses of the options.  --unix alone means no TCP: a server
 * only for this host's users must not become reachable over the network because
 * its user forgot --host. */
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
 * From the options to the loop and back.  serve_end() undoes everything, and
 * may be called after a partial start.
 * --------------------------------------------------------------------- */

/* Reads the numeric options, with ZooKeeper's defaults.  If only one of the two
 * limits is given, it moves the other: the limit that a user names counts.  A
 * tick is half of the shortest timeout, as ZooKeeper's shortest timeout is two
 * ticks. */
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

/* Opens the store, with the containers' time, the logger and the page cache.
 * These belong to the store: one that is already open, in a script, has its own
 * time and cache, and no logger. */
static int serve_open(server *s) {
  call *c = s->c;
  int64_t ms;
  int status = option_number(c, 'c', 0, INT_MAX, 60000, &ms);
  if (!status && option_given(c, 'c') && c->sh->persists)
    status = fail_usage(c,
                        "--container-ms needs a session of its own: give it to "
                        "one command on the command line");
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

/* Raises the limit of descriptors as far as the system allows, since each
 * connection needs one.  The usual limit of 1,024 protects programs that use
 * select(), which this does not.  If it cannot be raised, the server has fewer
 * connections. */
static void raise_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* Sets up epoll and its permanent sources. */
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
  int rc = zke_vouch(s->z, "super", ""); /* numbers and quotas see all */
  if (rc == ZKE_OK) rc = zke_fd(s->z, &fd);
  if (rc != ZKE_OK) return fail_rc(s->c, rc);
  int status = source_add(s, &s->store, fd, store_ready);
  return status ? status : source_add(s, &s->wake, s->wake.fd, wake_ready);
}

/* Closes the connections; 0 or the exit code.  Sessions stay in the file: the
 * next server takes them, or they expire.  Leaving them all may wait for
 * another process as long as one call does. */
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

/* Reports the port, by the only row of this command. */
static int tell_port(server *s) {
  if (!option_given(s->c, 'P')) return 0;
  return emit_event(s->c, json_pack("{s:i}", "port", s->port));
}

/* Answers until a signal comes, the normal end.  Earlier sessions get their
 * whole timeout again, since no server could hear their clients.  Replies need
 * the zxids of reads, which the library only gives to a thread that has asked
 * before. */
static int serve_loop(server *s) {
  (void)zke_zxid();
  int rc = zke_rearm(s->z);
  int status = rc == ZKE_OK ? tell_port(s) : fail_rc(s->c, rc);
  cancel_by(s->c, cancel_by_fd, &s->wake.fd);
  while (!status && !s->ending) status = serve_round(s);
  cancel_by(s->c, NULL, NULL);
  return status;
}

/* Serves on an open store.  serve_end() closes everything, even after a partial
 * start; the first failure is the exit status. */
static int serve_store(server *s) {
  int status = users_load(s);
  if (!status) status = serve_prepare(s);
  if (!status) status = serve_listen(s);
  if (!status) status = serve_loop(s);
  int ended = serve_end(s);
  return status ? status : ended;
}

/* Runs the command.  The store's logger may write as soon as the store is
 * opened. */
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
