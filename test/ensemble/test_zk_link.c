/* test_zk_link.c - one session's connection, from the inside
 *
 * The source file is included: the test sets numbers that would be reached
 * after years, and makes the resolver and the system refuse what they seldom
 * do.  The server is stub.h's.
 */
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

/* The host's refusals from now on. */
static struct host {
  int lookups;     /* counted */
  int unresolved;  /* lookups that will fail */
  int unknown;     /* sockets of a kind that the host lacks */
  int slow_ms;     /* for each lookup, by the link's clock */
  int late_ms;     /* their sum */
  int unconnected; /* checks that find connect() still under way */
} host;

static int host_getaddrinfo(const char *node, const char *service,
                            const struct addrinfo *hints,
                            struct addrinfo **out) {
  host.lookups++;
  host.late_ms += host.slow_ms;
  if (host.unresolved && host.unresolved--) return EAI_AGAIN;
  return getaddrinfo(node, service, hints, out);
}

static int host_socket(int domain, int type, int protocol);

static int host_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
  if (host.unconnected && host.unconnected--) return 0;
  return poll(fds, count, timeout_ms);
}

#define getaddrinfo host_getaddrinfo
#define socket host_socket
#define poll host_poll
#include "recipes/engine/zk_link.c"
#undef getaddrinfo
#undef socket
#undef poll

#include "test/ensemble/stub.h"
#include "test/test.h"

static int host_socket(int domain, int type, int protocol) {
  if (host.unknown && host.unknown--) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  return socket(domain, type, protocol);
}

/* ---- a link and its server ---- */

typedef struct linked {
  stub s;
  zk_name name;
  int poller, lost, ended;
  zk_link *l;
} linked;

static void on_event(void *owner, int type, const char *path, int64_t zxid) {
  (void)owner, (void)type, (void)path, (void)zxid;
}

static void on_connected(void *owner) { (void)owner; }

static void on_lost(void *owner, const char *why) {
  linked *k = owner;
  (void)why;
  k->lost++;
}

static void on_ended(void *owner, int state) {
  linked *k = owner;
  k->ended = state;
}

static bool step(linked *k) {
  zke_link_step(k->l, test_now() + host.late_ms);
  return true;
}

/* A link to the server, with its address `addresses` times in the name. */
static void begin_linked(linked *k, int addresses) {
  char text[500] = "zk://";
  memset(k, 0, sizeof *k);
  stub_begin(&k->s);
  for (int i = 0; i < addresses; i++)
    snprintf(text + strlen(text), 40, "%s127.0.0.1:%d", i ? "," : "",
             k->s.port);
  ck_ok(zke_ensemble_name_parse(text, &k->name));
  k->poller = epoll_create1(EPOLL_CLOEXEC);
  zk_link_config c = {.name = &k->name,
                      .timeout_ms = 4000,
                      .poller = k->poller,
                      .owner = k,
                      .event = on_event,
                      .connected = on_connected,
                      .lost = on_lost,
                      .ended = on_ended};
  k->l = zke_link_new(&c);
  ck_assert_ptr_nonnull(k->l);
}

static void end_linked(linked *k) {
  zke_link_free(k->l);
  close(k->poller);
  zke_ensemble_name_free(&k->name);
  stub_end(&k->s);
}

/* A read with a sync before it; its result. */
static int ask(linked *k) {
  zk_request r = {.type = ZKE_JUTE_EXISTS, .reads = true};
  zke_jute_read_request look = {"/", 0};
  zke_jute_path_request path = {"/"};
  zke_jute_write(&r.sync, &zke_jute_of_path_request, &path);
  zke_jute_write(&r.body, &zke_jute_of_read_request, &look);
  zke_link_submit(k->l, &r, test_now());
  ck_until(step(k) && r.over, 10000);
  zke_link_request_clear(&r);
  return r.rc;
}

/* ---- tests ---- */

/* Request numbers restart after the greatest, wherever that falls: on a
 * request, on its sync, or between two. */
TEST_LOOP(numbers_of_requests_wrap, 0, 5) {
  linked k;
  begin_linked(&k, 1);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  k.l->xid = INT32_MAX - _i;
  for (int i = 0; i < 5; i++) ck_ok(ask(&k));
  ck_assert_int_eq(k.lost, 0);
  ck_assert_int_lt(k.l->xid, 20);
  end_linked(&k);
}

/* A server that is behind the others returns smaller zxids: the greatest one
 * stays in force, in greetings and setWatches2, too. */
TEST(the_last_zxid_never_goes_back) {
  linked k;
  begin_linked(&k, 1);
  ck_ok(ask(&k));
  ck_assert_int_eq(zke_link_zxid(k.l), 1);
  k.l->zxid = 100;
  ck_ok(ask(&k));
  stub_cut(&k.s);
  ck_until(step(&k) && k.lost == 1, 10000);
  ck_ok(ask(&k));
  ck_assert_int_eq(zke_link_zxid(k.l), 100);
  ck_assert_int_eq(k.s.last_zxid, 100);
  end_linked(&k);
}

/* No name is looked up while known addresses answer: a hanging resolver would
 * cost the session's time. */
TEST(known_addresses_are_tried_first) {
  linked k;
  begin_linked(&k, 2);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  ck_assert_int_eq(host.lookups, 2);
  stub_cut(&k.s);
  ck_until(step(&k) && k.lost == 1, 10000);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  ck_ok(ask(&k));
  ck_assert_int_eq(host.lookups, 2);
  end_linked(&k);
}

/* If names can no longer be looked up, the known addresses are used. */
TEST(known_addresses_outlive_the_resolver) {
  linked k;
  begin_linked(&k, 2);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  host.unresolved = 1000;
  k.s.silent = true;
  stub_cut(&k.s);
  ck_until(step(&k) && host.lookups > 2, 20000);
  k.s.silent = false;
  stub_cut(&k.s);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  ck_ok(ask(&k));
  end_linked(&k);
}

/* An address of a kind that the host lacks, such as IPv6 if it is switched off,
 * costs no pause. */
TEST(an_unknown_kind_of_address_is_passed_over) {
  linked k;
  begin_linked(&k, 4);
  host.unknown = 3;
  int64_t before = test_now();
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  ck_assert_int_lt(test_now() - before, LINK_PAUSE_MOST);
  ck_assert_int_eq(host.unknown, 0);
  end_linked(&k);
}

/* If no address has such a socket there is a pause, and then another try. */
TEST(no_known_kind_of_address_is_tried_again) {
  linked k;
  begin_linked(&k, 2);
  host.unknown = 4;
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  ck_assert_int_eq(host.unknown, 0);
  ck_assert_int_ge(host.lookups, 4);
  end_linked(&k);
}

/* The resolver's time is not taken from the server: even if a lookup takes
 * longer than an address has, the first try gets its answer. */
TEST(a_slow_resolver_leaves_a_server_its_time) {
  linked k;
  begin_linked(&k, 1);
  host.slow_ms = 2000;
  ck_until(step(&k) && zke_link_is_up(k.l), 5000);
  ck_assert_int_eq(host.lookups, 1);
  end_linked(&k);
}

/* If a late step finds the connection made meanwhile, the server still has its
 * time to greet. */
TEST(a_late_step_leaves_a_server_its_time) {
  linked k;
  begin_linked(&k, 1);
  host.unconnected = 1;
  ck_until(step(&k) && k.l->state == LINK_CONNECTING, 10000);
  host.late_ms += 5000;
  step(&k);
  ck_assert_int_eq(k.l->state, LINK_GREETING);
  ck_until(step(&k) && zke_link_is_up(k.l), 1000);
  ck_assert_int_eq(k.l->tried, 1);
  end_linked(&k);
}

/* A server has a sensible time to open a session, even if a very short timeout
 * is requested: it may grant a longer one. */
TEST(a_short_timeout_leaves_a_server_its_time) {
  linked k;
  begin_linked(&k, 1);
  ck_until(step(&k) && k.l->count == 1, 10000);
  k.l->c.timeout_ms = 60;
  ck_assert_int_eq(opening_time(k.l), LINK_OPEN_LEAST);
  k.l->c.timeout_ms = 3000;
  ck_assert_int_eq(opening_time(k.l), 1001);
  end_linked(&k);
}

/* A frame arrives with only a header. */
static void take_header(zk_link *l, int32_t xid, int64_t zxid, int32_t err) {
  zke_jute_writer w = {0};
  zke_jute_reply_header h = {xid, zxid, err};
  zke_jute_write(&w, &zke_jute_of_reply_header, &h);
  zke_jute_reader r = {.at = w.data, .end = w.data + w.len};
  link_take_frame(l, &r);
  zke_jute_reader_free(&r);
  zke_jute_writer_free(&w);
}

static void put_watches(zk_link *l) {
  zke_jute_set_watches2 none = {0};
  zke_link_put(l, ZK_LINK_XID_WATCHES, ZKE_JUTE_SET_WATCHES2,
               &zke_jute_of_set_watches2, &none);
}

/* Nothing counts as complete while watches are being set, though the last zxid
 * moves on, nor after a loss meanwhile. */
TEST(watches_that_are_being_set_are_not_complete) {
  linked k;
  begin_linked(&k, 1);
  ck_ok(ask(&k));
  ck_assert_int_eq(zke_link_complete(k.l), 1);
  k.s.silent = true;
  put_watches(k.l);
  put_watches(k.l);
  take_header(k.l, ZK_LINK_XID_WATCHES, 1000, 0);
  take_header(k.l, ZKE_JUTE_XID_PING, 1001, 0);
  ck_assert_int_eq(zke_link_zxid(k.l), 1001);
  ck_assert_int_eq(zke_link_complete(k.l), 1);
  stub_cut(&k.s);
  k.s.silent = false;
  ck_until(step(&k) && k.lost == 1, 10000);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  ck_assert_int_eq(zke_link_complete(k.l), 1);
  put_watches(k.l);
  take_header(k.l, ZK_LINK_XID_WATCHES, 1002, 0);
  ck_assert_int_eq(zke_link_complete(k.l), 1002);
  end_linked(&k);
}

/* A refused setWatches2 has set nothing. */
TEST(refused_watches_are_not_complete) {
  linked k;
  begin_linked(&k, 1);
  ck_ok(ask(&k));
  put_watches(k.l);
  take_header(k.l, ZK_LINK_XID_WATCHES, 1000, ZKE_SYSTEMERROR);
  ck_assert_int_eq(k.lost, 1);
  ck_assert_int_eq(zke_link_complete(k.l), 1);
  end_linked(&k);
}

/* A change may have several events: each event's zxid is seen, but not
 * complete. */
TEST(an_event_makes_nothing_complete) {
  linked k;
  begin_linked(&k, 1);
  ck_ok(ask(&k));
  zke_jute_writer w = {0};
  zke_jute_reply_header h = {ZKE_JUTE_XID_EVENT, 1000, 0};
  zke_jute_watcher_event event = {ZKE_EVENT_CHANGED, 3, "/x"};
  zke_jute_write(&w, &zke_jute_of_reply_header, &h);
  zke_jute_write(&w, &zke_jute_of_watcher_event, &event);
  zke_jute_reader r = {.at = w.data, .end = w.data + w.len};
  link_take_frame(k.l, &r);
  zke_jute_reader_free(&r);
  zke_jute_writer_free(&w);
  ck_assert_int_eq(k.lost, 0);
  ck_assert_int_eq(zke_link_zxid(k.l), 1000);
  ck_assert_int_eq(zke_link_complete(k.l), 1);
  end_linked(&k);
}

/* Submit a request that stays pending. */
static void submit(linked *k, zk_request *r, int type, bool reads) {
  zke_jute_read_request look = {"/", 0};
  *r = (zk_request){.type = type, .reads = reads};
  zke_jute_write(&r->body, &zke_jute_of_read_request, &look);
  zke_link_submit(k->l, r, test_now());
  ck_assert(!r->over);
}

/* A server has two codes for a session that it no longer knows: both end the
 * session, and the request with it. */
TEST_LOOP(an_unknown_session_has_ended, 0, 2) {
  linked k;
  zk_request r;
  begin_linked(&k, 1);
  ck_ok(ask(&k));
  k.s.silent = true;
  submit(&k, &r, ZKE_JUTE_EXISTS, true);
  take_header(k.l, k.l->xid, 0, _i ? ZKE_SESSIONEXPIRED : -12);
  ck_assert(r.over);
  ck_assert_int_eq(r.rc, ZKE_SESSIONEXPIRED);
  ck_assert_int_eq(k.ended, ZKE_STATE_EXPIRED);
  zke_link_request_clear(&r);
  end_linked(&k);
}

/* After the session's end it is unknown whether a sent change was made, unless
 * the server has answered, in the order of its replies, that the session no
 * longer exists. A read and the session's own close get the end's code.
 */
TEST_LOOP(the_end_tells_what_a_sent_change_may_have_done, 0, 4) {
  static const int ends[][2] = {
      {ZKE_AUTHFAILED, ZKE_CONNECTIONLOSS},
      {ZKE_SESSIONEXPIRED, ZKE_SESSIONEXPIRED},
      {ZKE_SESSIONEXPIRED, ZKE_CONNECTIONLOSS},
      {ZKE_CLOSING, ZKE_CLOSING},
  };
  linked k;
  zk_request read, change, closing;
  begin_linked(&k, 1);
  ck_until(step(&k) && zke_link_is_up(k.l), 10000);
  k.s.silent = true;
  submit(&k, &read, ZKE_JUTE_EXISTS, true);
  submit(&k, &change, ZKE_JUTE_DELETE, false);
  submit(&k, &closing, ZKE_JUTE_CLOSE, false);
  if (_i == 0)
    take_header(k.l, ZKE_JUTE_XID_AUTH, 1, ZKE_AUTHFAILED);
  else if (_i == 1)
    take_header(k.l, read.xid, 1, ZKE_SESSIONEXPIRED);
  else
    zke_link_end(k.l, ends[_i][0]);
  ck_assert(read.over && change.over && closing.over);
  ck_rc(read.rc, ends[_i][0]);
  ck_rc(change.rc, ends[_i][1]);
  ck_rc(closing.rc, ends[_i][0]);
  zke_link_request_clear(&read);
  zke_link_request_clear(&change);
  zke_link_request_clear(&closing);
  end_linked(&k);
}

/* A change that was waiting for a connection, or for room in the socket, was
 * not made, whatever ends it. */
TEST_LOOP(a_change_that_was_not_sent_has_the_code_of_the_end, 0, 2) {
  linked k;
  zk_request change = {.type = ZKE_JUTE_DELETE};
  begin_linked(&k, 1);
  if (_i == 0) {
    submit(&k, &change, ZKE_JUTE_DELETE, false);
  } else {
    ck_until(step(&k) && zke_link_is_up(k.l), 10000);
    link_send(k.l, &change); /* it is in the buffer */
  }
  zke_link_end(k.l, ZKE_SESSIONEXPIRED);
  ck_assert(change.over);
  ck_rc(change.rc, ZKE_SESSIONEXPIRED);
  zke_link_request_clear(&change);
  end_linked(&k);
}
