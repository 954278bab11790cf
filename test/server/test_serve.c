/* test_serve.c - zke serve: the wire protocol as a client sees it, its sessions
 * and their time, hostile clients, and direct users of the same file
 *
 * The client here is the raw one of wire.h.  kazoo.sh runs a real client, and
 * test_zookeeper compares the answers to all operations with a file's.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/server/wire.h"

SIDE_BY_SIDE(6);

/* ------------------------------------------------------------------------
 * Nodes
 * --------------------------------------------------------------------- */

/* Requests that are sent together are answered in order, however the server
 * groups them into transactions. */
TEST(answers_come_in_the_order_of_the_requests) {
  enum { REQUESTS = 500 };
  wire *w = begin(serve(":memory:", ""));
  create(w, "/a", "", 0);
  int first = w->xid;
  for (int i = 0; i < REQUESTS; i++) {
    static const int types[] = {ZKE_JUTE_EXISTS, ZKE_JUTE_SET_DATA,
                                ZKE_JUTE_SYNC, ZKE_JUTE_SET_DATA};
    request(w, types[i % 4]);
    if (i % 2)
      PUT(w, set_data_request, "/a", {1, "x"}, -1);
    else if (i % 4)
      PUT(w, path_request, "/a");
    else
      PUT(w, read_request, "/a", 0);
    add(w);
  }
  send_out(w);
  for (int i = 1; i <= REQUESTS; i++) {
    zke_jute_stat_response stat;
    ck_assert_int_eq(answer_to(w, first + i), 0);
    if (i % 4 == 3) continue; /* sync */
    GET(w, stat_response, &stat);
    ck_assert_int_eq(stat.stat.version, i / 2);
  }
}

/* Changes that arrive together are one transaction; each has its answer with
 * its own zxid, and a refused one does not affect the others. */
TEST(changes_that_come_together_have_answers_of_their_own) {
  enum { NODES = 300 };
  wire *w = begin(serve(test_path("app.db"), ""));
  int64_t before = 0;
  int first = w->xid;
  for (int i = 0; i < NODES; i++) {
    char path[32];
    snprintf(path, sizeof path, i % 3 == 1 ? "/no/%d" : "/n%d", i);
    ADD(w, ZKE_JUTE_CREATE, create_request, path, {0, ""}, zke_open_acl, 0);
  }
  send_out(w);
  for (int i = 0; i < NODES; i++) {
    ck_assert_int_eq(answer_to(w, first + i + 1), i % 3 == 1 ? ZKE_NONODE : 0);
    if (i % 3 == 1) continue;
    ck_assert_int_gt(w->head.zxid, before);
    before = w->head.zxid;
  }
}

/* Another process does not let go of the file: changes are refused after
 * --timeout, once for all that have arrived and not once for each, and nothing
 * is changed.  Reads are answered. */
TEST(changes_wait_for_another_writer_together) {
  const char *file = test_path("app.db");
  wire *w = begin(serve(file, ""));
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  sqlite3 *db = hold(file);
  int first = w->xid;
  for (int i = 0; i < 9; i++) {
    request(w, i == 4 ? ZKE_JUTE_GET_DATA : ZKE_JUTE_SET_DATA);
    if (i == 4)
      PUT(w, read_request, "/a", 0);
    else
      PUT(w, set_data_request, "/a", {1, "x"}, -1);
    add(w);
  }
  int64_t began = test_now();
  send_out(w);
  for (int i = 0; i < 9; i++)
    ck_assert_int_eq(answer_to(w, first + i + 1),
                     i == 4 ? 0 : ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(test_now() - began, test_patience(9000)); /* 5 s, not 40 */
  release(db);
  ck_assert_str_eq(data_at(w, "/a"), "");
  ck_assert_int_eq(set(w, "/a", "y", 0), 0);
}

/* ---- another process writes, and does not end ---- */

/* The function of a batch that waits until its process is killed. */
static int never_end(zke *z, void *context) {
  (void)z;
  ck_assert_int_eq(write(*(int *)context, "", 1), 1);
  while (pause()) continue; /* it only returns -1 */
  return ZKE_OK;
}

/* Start a process that writes to the file, and wait until it does. */
static pid_t begin_writing(const char *file) {
  int began[2];
  char byte;
  ck_assert_int_eq(pipe(began), 0);
  pid_t pid = fork();
  if (pid == 0) {
    zke *z;
    ck_assert_int_eq(zke_open(file, NULL, &z), ZKE_OK);
    zke_batch(z, never_end, &began[1]);
    _exit(1);
  }
  ck_assert_int_eq(read(began[0], &byte, 1), 1);
  close(began[0]);
  close(began[1]);
  return pid;
}

static void end_writing(pid_t pid) {
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* ms.  For sessions that end unless the server hears of them.  On a busy
 * machine a test that pings may itself stand still for seconds. */
enum { TIMEOUT = 3000 };

/* A change that waits for another process holds up only its own connection, and
 * is made as soon as the other lets go.  The same holds for the beginning and
 * the end of a session.  Other clients are answered meanwhile.  A session with
 * a waiting request does not end; an expired one ends when that can be
 * written. */
TEST(a_change_that_waits_holds_up_nobody) {
  const char *file = test_path("app.db");
  serving s = serve_within("60s", file, "--timeout-min 1s");
  wire *w = begin_with(s, TIMEOUT), *other = begin_with(s, TIMEOUT);
  wire *ending = begin_with(s, TIMEOUT), *gone = begin_with(s, TIMEOUT);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(create(ending, "/ending", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(create(gone, "/gone", "", ZKE_EPHEMERAL), 0);
  pid_t writer = begin_writing(file);
  ask_set(w, "/a", "1", -1);
  ask_set(w, "/a", "2", -1);
  wire *fresh = dial(s.port);
  send_connect(fresh, 0, NULL, TIMEOUT, 0);
  request(ending, ZKE_JUTE_CLOSE);
  ask(ending);
  hang_up(gone);
  int64_t end = test_now() + 2 * TIMEOUT;
  do {
    ck_assert_int_eq(ping(other), 0);
    ck_assert_str_eq(data_at(other, "/a"), "");
    ck_assert(is_there(other, "/ending"));
  } while (test_now() < end);
  ck_assert(is_there(other, "/gone"));
  end_writing(writer);
  ck_assert_int_eq(answer_to(w, w->xid - 1), 0);
  ck_assert_int_eq(answer_to(w, w->xid), 0);
  ck_assert_int_eq(answer(ending), 0);
  ck_assert_int_ne(take_connected(fresh), 0);
  ck_assert_str_eq(data_at(fresh, "/a"), "2");
  ck_assert(!is_there(fresh, "/ending"));
  ck_until(!is_there(fresh, "/gone"), SOON);
}

/* A server that is told to end does so within --timeout, even if it cannot
 * record that its clients are away.  They continue with the next server. */
TEST(a_server_that_cannot_write_ends_in_time) {
  enum { CLIENTS = 8 };
  const char *file = test_path("app.db");
  serving s = serve_within("1s", file, "");
  wire *w[CLIENTS], *again;
  for (int i = 0; i < CLIENTS; i++) w[i] = begin(s);
  pid_t writer = begin_writing(file);
  int64_t began = test_now();
  kill(s.pid, SIGTERM);
  ended(s);
  ck_assert_int_lt(test_now() - began, test_patience(4000));
  end_writing(writer);
  s = serve(file, "");
  for (int i = 0; i < CLIENTS; i++) {
    ck_assert_int_eq(attach(s, &again, w[i]), w[i]->id);
    hang_up(again);
    hang_up(w[i]);
  }
}

/* create2, container and TTL also return the Stat. */
TEST(the_kinds_of_create) {
  wire *w = begin(serve(":memory:", ""));
  zke_jute_create2_response made;
  ck_call(w, ZKE_JUTE_CREATE2, create_request, "/a-", {-1, NULL}, zke_open_acl,
          ZKE_PERSISTENT_SEQUENTIAL);
  GET(w, create2_response, &made);
  ck_assert_str_eq(made.path, "/a-0000000000");
  ck_assert_int_eq(made.stat.czxid, w->head.zxid);
  ck_call(w, ZKE_JUTE_CREATE_CONTAINER, create_request, "/c", {0, ""},
          zke_open_acl, ZKE_CONTAINER);
  ck_call(w, ZKE_JUTE_CREATE_CONTAINER, create_request, "/box", {0, ""},
          zke_open_acl, ZKE_EPHEMERAL);
  ck_assert_int_eq(create(w, "/box/a", "", 0), 0); /* it is a container */
  ck_assert_int_eq(CALL(w, ZKE_JUTE_CREATE_TTL, create_ttl_request, "/t",
                        {0, ""}, zke_open_acl, ZKE_PERSISTENT_WITH_TTL, 0),
                   ZKE_BADARGUMENTS);
  ck_call(w, ZKE_JUTE_CREATE_TTL, create_ttl_request, "/t", {0, ""},
          zke_open_acl, ZKE_PERSISTENT_WITH_TTL, 3600000);
  ck_assert_int_eq(create(w, "/x", "", ZKE_PERSISTENT_WITH_TTL),
                   ZKE_BADARGUMENTS);
  for (int ttl = -1; ttl < 1; ttl++) { /* the mode's error comes first */
    ck_assert_int_eq(CALL(w, ZKE_JUTE_CREATE_TTL, create_ttl_request, NULL,
                          {0, ""}, zke_open_acl, ZKE_EPHEMERAL, ttl),
                     ttl < 0 ? ZKE_MARSHALLINGERROR : ZKE_BADARGUMENTS);
  }
}

/* An empty container is removed soon if the server was told so; by default
 * after a minute. */
TEST_LOOP(containers_go_when_they_are_told_to, 0, 2) {
  wire *w =
      begin(serve(":memory:", _i ? "--container-ms 0" : "--container-ms 50"));
  ck_call(w, ZKE_JUTE_CREATE_CONTAINER, create_request, "/box", {0, ""},
          zke_open_acl, ZKE_CONTAINER);
  ck_assert_int_eq(create(w, "/box/a", "", 0), 0);
  ck_assert(is_there(w, "/box"));
  ck_assert_int_eq(erase(w, "/box/a"), 0);
  ck_until(!is_there(w, "/box"), SOON);
}

/* ------------------------------------------------------------------------
 * multi
 * --------------------------------------------------------------------- */

static void put_create(wire *w, const char *path) {
  PART(w, ZKE_JUTE_CREATE, create_request, path, {0, ""}, zke_open_acl, 0);
}

/* A multi inside a multi, and other operations that cannot be part of one, are
 * malformed: the answer says so, and the connection stays. */
TEST(a_multi_of_what_cannot_be_in_one_is_refused) {
  static const int types[] = {ZKE_JUTE_MULTI, ZKE_JUTE_GET_DATA, -1, 99};
  wire *w = begin(serve(":memory:", ""));
  for (int i = 0; i < 4; i++) {
    request(w, ZKE_JUTE_MULTI);
    put_create(w, "/a");
    PART(w, types[i], delete_request, "/a", -1);
    ck_assert_int_eq(end_multi(w), ZKE_MARSHALLINGERROR);
  }
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/a", 0), ZKE_NONODE);
}

/* As in ZooKeeper's server; its client would not even send one. */
TEST(a_multi_with_a_malformed_path_is_refused_for_that_one) {
  wire *w = begin(serve(":memory:", ""));
  zke_jute_path_response made;
  request(w, ZKE_JUTE_MULTI);
  put_create(w, "/a");
  put_create(w, "/b/");
  put_create(w, "/c");
  ck_assert_int_eq(end_multi(w), 0);
  ck_result(w, ZKE_JUTE_ERROR, 0);
  ck_result(w, ZKE_JUTE_ERROR, ZKE_BADARGUMENTS);
  ck_result(w, ZKE_JUTE_ERROR, ZKE_RUNTIMEINCONSISTENCY);
  ck_results_end(w);
  request(w, ZKE_JUTE_MULTI);
  PART(w, ZKE_JUTE_CREATE, create_request, "/", {0, ""}, zke_open_acl,
       ZKE_PERSISTENT_SEQUENTIAL);
  ck_assert_int_eq(end_multi(w), 0);
  ck_result(w, ZKE_JUTE_CREATE, 0);
  GET(w, path_response, &made);
  ck_assert_str_eq(made.path, "/0000000000");
}

/* A short frame that asks for a large node very often is refused before its
 * answer fills the server's memory. */
TEST(an_immense_multi_read_is_refused) {
  enum { BYTES = 1000000, READS = 200 };
  static char data[BYTES + 1];
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  memset(data, 'x', BYTES);
  ck_assert_int_eq(create(w, "/a", data, 0), 0);
  request(w, ZKE_JUTE_MULTI_READ);
  for (int i = 0; i < READS; i++)
    PART(w, ZKE_JUTE_GET_DATA, read_request, "/a", 0);
  ck_assert_int_eq(end_multi(w), ZKE_BADARGUMENTS);
  ck_assert_int_lt(memory_of(s), 64 * 1024);
  ck_assert_int_eq(ping(w), 0);
}

/* So is one that asks for long names, or for a few nodes that are large
 * together. */
TEST(long_names_do_not_make_an_immense_multi_read) {
  enum { NAME = 900000, READS = 20000 };
  static char path[NAME + 4] = "/a/";
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  memset(path + 3, 'x', NAME);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(create(w, path, "", 0), 0);
  for (int reads = 80; reads <= READS; reads += READS - 80) {
    request(w, ZKE_JUTE_MULTI_READ);
    for (int i = 0; i < reads; i++) {
      PART(w, ZKE_JUTE_GET_CHILDREN, read_request, "/a", 0);
    }
    ck_assert_int_eq(end_multi(w), ZKE_BADARGUMENTS);
  }
  ck_assert_int_lt(memory_of(s), 128 * 1024);
  ck_assert_int_eq(ping(w), 0);
}

/* If the client's identities, in place of each entry, would make a short list
 * immense, it is refused. */
TEST(an_immense_acl_is_refused) {
  enum { IDENTITIES = 100, ENTRIES = 60000 };
  static zke_acl entries[ENTRIES];
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  for (int i = 0; i < IDENTITIES; i++) {
    char cert[16];
    snprintf(cert, sizeof cert, "u%d:p", i);
    ck_assert_int_eq(add_auth(w, "digest", cert), 0);
  }
  for (int i = 0; i < ENTRIES; i++) entries[i] = (zke_acl){i, "auth", ""};
  ck_assert_int_eq(CALL(w, ZKE_JUTE_CREATE, create_request, "/a", {0, ""},
                        {ENTRIES, entries}, ZKE_PERSISTENT),
                   ZKE_INVALIDACL);
  ck_assert_int_lt(memory_of(s), 64 * 1024);
  ck_assert(!is_there(w, "/a"));
}

/* ------------------------------------------------------------------------
 * A transaction of several changes that fails
 * --------------------------------------------------------------------- */

static void stand_still(serving s) {
  int status;
  kill(s.pid, SIGSTOP);
  ck_assert_int_eq(waitpid(s.pid, &status, WUNTRACED), s.pid);
  ck_assert(WIFSTOPPED(status));
}

/* Send two changes, which share a transaction. */
static void ask_two(wire *w, const char *data, int len) {
  for (int i = 0; i < 2; i++)
    ADD(w, ZKE_JUTE_CREATE, create_request, "/n-",
        {len, (char *)(uintptr_t)data}, zke_open_acl,
        ZKE_PERSISTENT_SEQUENTIAL);
  send_out(w);
}

/* The file cannot grow any more, and the commit fails: the client must find out
 * whether its changes were made.  Another client's read that arrived with them
 * is answered, and nobody is told a zxid that was rolled back. */
TEST(an_undone_transaction_has_shown_nothing) {
  enum { BYTES = 3000, MOST = 1000000, TRIES = 1000 };
  static char data[BYTES];
  struct rlimit full = {MOST, RLIM_INFINITY}, usual;
  bool goes_on = true;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
  full.rlim_max = usual.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
  serving s = serve(test_path("app.db"), "");
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
  wire *w = begin(s), *reader = begin(s);
  ck_assert_int_eq(create(w, "/a", "x", 0), 0);
  int64_t seen = w->head.zxid;
  for (int i = 0; i < TRIES && goes_on; i++) {
    stand_still(s);
    ask_two(w, data, BYTES);
    ask_read(reader, ZKE_JUTE_EXISTS, "/a", 0);
    kill(s.pid, SIGCONT);
    ck_assert_int_eq(answer(reader), 0);
    goes_on = next_frame(w);
    if (!goes_on) break;
    ck_assert_int_eq(answer(w), 0);
    seen = w->head.zxid;
  }
  ck_assert(!goes_on);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(ping(reader), 0);
    ck_assert_int_le(reader->head.zxid, seen);
  }
}

/* The server's own session. */
static int64_t own_session(zke *z, serving s) {
  zke_session_list *list;
  int64_t id = 0;
  ck_ok(zke_sessions(z, -1, &list));
  for (int i = 0; i < list->count; i++)
    if (list->data[i].pid == s.pid && !list->data[i].timeout_ms)
      id = list->data[i].id;
  zke_free(list);
  ck_assert_int_ne(id, 0);
  return id;
}

/* A server ends when its own session is ended.  Its clients' sessions do not,
 * whatever they have just sent: they continue with the next server. */
TEST(a_server_that_has_lost_its_session_ends_nobodys) {
  const char *file = test_path("app.db");
  serving s = serve(file, "");
  wire *w = begin(s), *again;
  zke *z = test_open(file);
  ck_assert_int_eq(create(w, "/e", "", ZKE_EPHEMERAL), 0);
  stand_still(s);
  ck_ok(zke_expire(z, own_session(z, s)));
  ask_two(w, "x", 1);
  kill(s.pid, SIGCONT);
  ck_assert_int_ne(ended(s), 0);
  ck_closed(w);
  ck_ok(zke_exists(z, "/e", NULL, NULL, NULL));
  s = serve(file, "");
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_assert(is_there(again, "/e"));
  hang_up(again), hang_up(w);
  ck_ok(zke_close(z));
}

/* ------------------------------------------------------------------------
 * Watches
 * --------------------------------------------------------------------- */

/* The client that changes what it watches gets the event before its answer; a
 * client that reads the change gets it before that answer. */
TEST(an_event_comes_before_the_answer_that_shows_it) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  create(w, "/a", "", 0);
  look(w, ZKE_JUTE_GET_DATA, "/a", 1);
  look(other, ZKE_JUTE_EXISTS, "/a", 1);
  ask_set(w, "/a", "x", -1);
  ck_event(w, ZKE_EVENT_CHANGED, "/a");
  ck_assert_int_eq(answer(w), 0);
  ask_read(other, ZKE_JUTE_GET_DATA, "/a", 0);
  ck_event(other, ZKE_EVENT_CHANGED, "/a");
  ck_assert_int_eq(answer(other), 0);
  ck_assert_int_eq(set(w, "/a", "y", -1), 0); /* it has fired */
}

/* Watches and changes in one packet: a change's event comes after the answer
 * that set the watch, and before the change's answer. */
TEST(an_event_comes_after_the_answer_that_set_its_watch) {
  wire *w = begin(serve(":memory:", ""));
  create(w, "/a", "", 0);
  for (int i = 0; i < 100; i++) {
    request(w, ZKE_JUTE_GET_DATA);
    PUT(w, read_request, "/a", 1);
    add(w);
    ask_set(w, "/a", "x", -1);
    ck_assert_int_eq(answer_to(w, w->xid - 1), 0);
    ck_event(w, ZKE_EVENT_CHANGED, "/a");
    ck_assert_int_eq(answer(w), 0);
  }
}

/* A recursive persistent watch reports every change below its path, each before
 * the answer to the change.  After its removal, which is refused a second time,
 * it reports nothing. */
TEST(a_persistent_watch_stays_until_it_is_removed) {
  wire *w = begin(serve(":memory:", ""));
  ck_call(w, ZKE_JUTE_ADD_WATCH, add_watch_request, "/a",
          ZKE_WATCH_PERSISTENT_RECURSIVE);
  static const char *const paths[] = {"/a", "/a/b", "/a/b/c"};
  for (int i = 0; i < 3; i++) {
    ask_create(w, paths[i], "", 0);
    ck_event(w, ZKE_EVENT_CREATED, paths[i]);
    ck_assert_int_eq(answer(w), 0);
  }
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(
        CALL(w, ZKE_JUTE_REMOVE_WATCHES, watches_request, "/a", ZKE_WATCH_ANY),
        i ? ZKE_NOWATCHER : 0);
  ck_assert_int_eq(set(w, "/a", "x", -1), 0);
}

/* What a returning client sends: one list of setWatches2. */
static zke_strings one(const char *path) {
  static char *at[8];
  static int count;
  count = (count + 1) % 8;
  at[count] = (char *)(uintptr_t)path;
  return (zke_strings){1, &at[count]};
}

/* Of each kind of watch, one fires immediately, since the node has changed
 * while the client was away, and one waits. */
TEST(watches_are_set_again_after_coming_back) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s), *again;
  create(w, "/changed", "", 0);
  create(w, "/same", "", 0);
  int64_t seen = w->head.zxid;
  hang_up(w);
  set(other, "/changed", "x", -1);
  create(other, "/new", "", 0);
  create(other, "/same/b", "", 0);
  ck_assert_int_eq(attach(s, &again, w), w->id);
  static const zke_strings none = {0, NULL};
  ASK(again, ZKE_JUTE_SET_WATCHES2, set_watches2, seen, one("/changed"),
      one("/new"), one("/same"), one("/p"), none);
  ck_event(again, ZKE_EVENT_CHANGED, "/changed");
  ck_event(again, ZKE_EVENT_CREATED, "/new");
  ck_event(again, ZKE_EVENT_CHILD, "/same");
  ck_assert_int_eq(answer(again), 0);
  ck_call(again, ZKE_JUTE_SET_WATCHES, set_watches, again->head.zxid,
          one("/same"), one("/none"), one("/changed"));
  set(other, "/same", "x", -1);
  ck_event(again, ZKE_EVENT_CHANGED, "/same");
  create(other, "/none", "", 0);
  ck_event(again, ZKE_EVENT_CREATED, "/none");
  create(other, "/changed/c", "", 0);
  ck_event(again, ZKE_EVENT_CHILD, "/changed");
  create(other, "/p", "", 0);
  ck_event(again, ZKE_EVENT_CREATED, "/p");
}

/* All of them or none: if one cannot be set, another's event is not sent. */
TEST(watches_are_set_again_together) {
  static const zke_strings none = {0, NULL};
  wire *w = begin(serve(":memory:", ""));
  create(w, "/changed", "", 0);
  int64_t seen = w->head.zxid;
  set(w, "/changed", "x", -1);
  ck_assert_int_eq(CALL(w, ZKE_JUTE_SET_WATCHES, set_watches, seen,
                        one("/changed"), one(NULL), none),
                   ZKE_MARSHALLINGERROR);
  ASK(w, ZKE_JUTE_SET_WATCHES, set_watches, seen, one("/changed"), none, none);
  ck_event(w, ZKE_EVENT_CHANGED, "/changed");
  ck_assert_int_eq(answer(w), 0);
  ck_assert_int_eq(ping(w), 0);
}

/* Clients ignore the answer to setWatches.  If it fails, since another process
 * writes for too long, the server ends the connection, and the client asks
 * again. */
TEST(watches_that_cannot_be_set_again_end_the_connection) {
  static const zke_strings none = {0, NULL};
  const char *file = test_path("app.db");
  serving s = serve_within("1s", file, "");
  wire *w = begin(s), *again;
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  int64_t seen = w->head.zxid;
  pid_t writer = begin_writing(file);
  ASK(w, ZKE_JUTE_SET_WATCHES, set_watches, seen, one("/a"), none, none);
  ck_assert(!next_frame(w));
  end_writing(writer);
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_call(again, ZKE_JUTE_SET_WATCHES, set_watches, seen, one("/a"), none,
          none);
}

/* Whether a watch of a kind is set is answered without removing it; a kind that
 * does not exist is an error. */
TEST(watches_can_be_asked_for) {
  static const int types[] = {ZKE_WATCH_DATA, ZKE_WATCH_CHILD, ZKE_WATCH_ANY,
                              7};
  static const int got[] = {0, ZKE_NOWATCHER, 0, ZKE_MARSHALLINGERROR};
  wire *w = begin(serve(":memory:", ""));
  look(w, ZKE_JUTE_EXISTS, "/a", 1);
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(
        CALL(w, ZKE_JUTE_CHECK_WATCHES, watches_request, "/a", types[i]),
        got[i]);
}

/* ------------------------------------------------------------------------
 * Sessions
 * --------------------------------------------------------------------- */

/* A client's timeout is adjusted to the server's limits, and the client is
 * told. */
TEST(the_timeout_is_brought_into_the_limits) {
  serving s = serve(":memory:", "--timeout-min 2s --timeout-max 1m");
  static const int asked[] = {-1, 0, 1, 5000, 60001},
                   got[] = {2000, 2000, 2000, 5000, 60000};
  for (int i = 0; i < 5; i++) {
    wire *w = begin_with(s, asked[i]);
    ck_assert_int_eq(w->timeout_ms, got[i]);
    hang_up(w);
  }
}

/* A client from before 3.4 sends no read-only flag, and gets none. */
TEST(an_old_client_gets_an_old_answer) {
  serving s = serve(":memory:", "");
  wire *w = dial(s.port);
  zke_jute_connect_response a;
  size_t at = zke_jute_begin(&w->out);
  PUT(w, connect_request, 0, 0, 9000, 0, {16, (char[16]){0}});
  zke_jute_end(&w->out, at);
  send_out(w);
  ck_assert(next_frame(w));
  GET(w, connect_response, &a);
  ck_assert_int_eq(a.time_out, 9000);
  ck_assert_ptr_eq(w->r.at, w->r.end);
}

/* The session outlives its connection, with its ephemerals; the connection's
 * watches do not.  A new connection of the session takes over immediately. */
TEST(a_session_outlives_its_connection) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *again, *third;
  create(w, "/e", "", ZKE_EPHEMERAL);
  look(w, ZKE_JUTE_GET_DATA, "/e", 1);
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_closed(w);
  ck_assert_int_eq(set(again, "/e", "x", -1), 0); /* and no event */
  hang_up(again);
  ck_assert_int_eq(attach(s, &third, again), w->id);
  ck_assert_str_eq(data_at(third, "/e"), "x");
}

/* A wrong password or an unknown id gets no session; the owner does, and finds
 * its ephemerals. */
TEST(a_session_is_refused_to_another_password) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *owner, thief = *w, stranger = *w;
  create(w, "/e", "", ZKE_EPHEMERAL);
  thief.password[3] = (char)(thief.password[3] ^ 1);
  ck_assert_int_eq(attach(s, &owner, &thief), 0);
  ck_closed(owner);
  ck_closed(w); /* as in ZooKeeper */
  stranger.id++;
  ck_assert_int_eq(attach(s, &owner, &stranger), 0);
  ck_closed(owner);
  ck_assert_int_eq(attach(s, &owner, w), w->id);
  ck_assert_int_eq(look(owner, ZKE_JUTE_EXISTS, "/e", 0), 0);
}

/* A client that has seen a later zxid than this server is at the wrong one. */
TEST(a_client_from_the_future_is_dropped) {
  serving s = serve(":memory:", "");
  wire *w = dial(s.port);
  send_connect(w, 0, NULL, 10000, INT64_MAX);
  ck_assert(!next_frame(w));
}

/* A client that comes from a ZooKeeper, with an id that may be below 0, is told
 * that its session is over, and does not retry forever. */
TEST(a_session_of_another_server_is_over) {
  static const int64_t ids[] = {INT64_MIN, -5, 1, INT64_MAX};
  serving s = serve(":memory:", "");
  for (int i = 0; i < 4; i++) {
    wire *w = dial(s.port);
    send_connect(w, ids[i], NULL, 10000, 0);
    ck_assert_int_eq(take_connected(w), 0);
    ck_closed(w);
  }
}

/* A session that is not heard of ends, and one that pings does not.  Its
 * connection is closed; the client is told when it comes back. */
TEST(a_session_that_is_not_heard_of_ends) {
  serving s = serve(":memory:", "--timeout-min 1s");
  wire *w = begin_with(s, TIMEOUT), *other = begin_with(s, 40000), *again;
  create(w, "/e", "", ZKE_EPHEMERAL);
  int64_t pinged = test_now(), end = pinged + 2 * TIMEOUT;
  while (pinged < end) {
    pinged = test_now();
    ck_assert_int_eq(ping(w), 0);
    ck_assert_int_eq(ping(other), 0);
    test_pause();
  }
  ck_until(!is_there(other, "/e"), SOON);
  ck_assert_int_ge(test_now() - pinged, TIMEOUT);
  ck_closed(w);
  ck_assert_int_eq(attach(s, &again, w), 0);
}

/* While the server stands still no session grows older.  (The session's timeout
 * leaves this test time to stand still, too.) */
TEST(time_in_which_the_server_stands_still_does_not_count) {
  serving s = serve(":memory:", "--timeout-min 1s");
  wire *w = begin_with(s, 4000), *other = begin(s);
  create(w, "/e", "", ZKE_EPHEMERAL);
  stand_still(s);
  int64_t until = test_now() + 6000;
  while (test_now() < until) test_pause();
  kill(s.pid, SIGCONT);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(ping(other), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/e", 0), 0);
}

/* Requests after a close are neither answered nor executed. */
TEST(a_close_ends_the_session_and_what_follows_it) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  create(w, "/e", "", ZKE_EPHEMERAL);
  request(w, ZKE_JUTE_CLOSE);
  add(w);
  int closed = w->xid;
  ask_create(w, "/late", "", 0);
  ck_assert_int_eq(answer_to(w, closed), 0);
  ck_assert(!next_frame(w));
  ck_assert(!is_there(other, "/e"));
  ck_assert(!is_there(other, "/late"));
}

/* ---- a client that hangs up without waiting for its answers ---- */

/* Append a request without a record to the unsent ones. */
static void put_close(wire *w) {
  request(w, ZKE_JUTE_CLOSE);
  add(w);
}

/* Hang up, even if a process that was started meanwhile also has the
 * descriptor.
 */
static void leave(wire *w) {
  shutdown(w->fd, SHUT_RDWR);
  hang_up(w);
}

/* The server has read everything sent before: one round serves all ready
 * connections. */
static void let_read(wire *other) {
  for (int i = 0; i < 3; i++) ck_assert_int_eq(ping(other), 0);
}

/* Everything that a client has sent is executed, whatever was answered when it
 * hung up: more requests than one round takes, and more bytes than one read.
 * Its close is the last of them. */
TEST(what_was_sent_before_hanging_up_is_done) {
  enum { NODES = 250, BYTES = 500 };
  static char data[BYTES];
  wire *w, *other;
  zke_jute_count_response got;
  serving s = serve_unix(&w);
  other = begin_unix();
  ck_assert_int_eq(create(w, "/e", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(create(w, "/d", "", 0), 0);
  for (int i = 0; i < NODES; i++)
    ADD(w, ZKE_JUTE_CREATE, create_request, "/d/n-", {BYTES, data},
        zke_open_acl, ZKE_PERSISTENT_SEQUENTIAL);
  put_close(w);
  send_out(w);
  hang_up(w);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t2\n"), SOON);
  ck_word(s, "mntr", "zk_global_sessions\t1\n");
  ck_word(s, "mntr", "zk_stale_sessions_expired\t0\n");
  ck_assert(!is_there(other, "/e"));
  ck_call(other, ZKE_JUTE_COUNT, path_request, "/d");
  GET(other, count_response, &got);
  ck_assert_int_eq(got.count, NODES);
}

/* A close that waits for another process is executed when that lets go, even if
 * its client has hung up.  Until then its connection counts. */
TEST(a_close_that_waits_outlives_its_connection) {
  const char *file = test_path("app.db");
  serving s = serve_within("60s", file, "--connections 3");
  wire *w = begin(s), *other = begin(s);
  ck_assert_int_eq(create(w, "/e", "", ZKE_EPHEMERAL), 0);
  pid_t writer = begin_writing(file);
  put_close(w);
  send_out(w);
  leave(w);
  let_read(other);
  ck_word(s, "mntr", "zk_num_alive_connections\t3\n");
  ck_word(s, "mntr", "zk_outstanding_requests\t1\n");
  dial(s.port);
  ck_assert(!next_frame(dial(s.port)));
  ck_assert(is_there(other, "/e"));
  end_writing(writer);
  ck_until(!is_there(other, "/e"), SOON);
  ck_word(s, "mntr", "zk_stale_sessions_expired\t0\n");
}

/* Requests that wait too long for another process are not executed, and the
 * connection of a client that has hung up ends with them. */
TEST(a_client_that_hung_up_is_not_served_for_ever) {
  const char *file = test_path("app.db");
  serving s = serve_within("1s", file, "");
  wire *w = begin(s), *other = begin(s);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  pid_t writer = begin_writing(file);
  for (int i = 0; i < 500; i++) ask_set(w, "/a", "x", -1);
  leave(w);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t2\n"), SOON);
  ck_assert_int_eq(ping(other), 0);
  end_writing(writer);
  ck_assert_str_eq(data_at(other, "/a"), "");
}

/* A client hangs up while its request waits, comes back, hangs up again, and
 * comes back once more.  The session belongs to its latest connection. */
TEST(a_client_that_hung_up_comes_back) {
  const char *file = test_path("app.db");
  serving s = serve_within("60s", file, "");
  wire *w = begin(s), *other = begin(s), *again[2], *before = w;
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  pid_t writer = begin_writing(file);
  ask_set(w, "/a", "x", -1);
  for (int i = 0; i < 2; i++) {
    again[i] = dial(s.port);
    send_connect(again[i], before->id, before->password, 30000, 0);
    let_read(other);
    if (i == 0) leave(w), leave(again[0]);
    let_read(other);
  }
  end_writing(writer);
  ck_assert_int_eq(take_connected(again[1]), before->id);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t3\n"), SOON);
  ck_assert_int_eq(set(again[1], "/a", "y", -1), 0);
  ck_assert_str_eq(data_at(other, "/a"), "y");
}

/* While the server stood still a client has come back and gone again.  This
 * does not take the session from its present connection, though the server sees
 * the frame first. */
TEST(a_connection_that_was_given_up_takes_no_session) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  stand_still(s);
  wire *stale = dial(s.port);
  send_connect(stale, w->id, w->password, 30000, 0);
  leave(stale);
  kill(s.pid, SIGCONT);
  let_read(other);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t3\n"), SOON);
  ck_assert_int_eq(ping(w), 0);
}

/* If another process keeps a close waiting too long, it is answered, and the
 * session ends as soon as that process lets go: its nodes do not stay for
 * another timeout, and nobody gets the session again. */
TEST(a_close_that_was_answered_late_is_done) {
  const char *file = test_path("app.db");
  serving s = serve_within("1s", file, "--timeout-max 1h");
  wire *w = begin_with(s, 3600000), *other = begin(s), *again;
  ck_assert_int_eq(create(w, "/e", "", ZKE_EPHEMERAL), 0);
  pid_t writer = begin_writing(file);
  ck_assert_int_eq(call(w, ZKE_JUTE_CLOSE), 0);
  end_writing(writer);
  ck_until(!is_there(other, "/e"), SOON);
  ck_assert_int_eq(attach(s, &again, w), 0);
}

/* `zke FILE expire` and zke_expire() can end a client's session, too. */
TEST(a_person_can_end_a_session) {
  const char *file = test_path("app.db");
  serving s = serve(file, "");
  wire *w = begin(s), *again;
  zke *z;
  create(w, "/e", "", ZKE_EPHEMERAL);
  ck_ok(zke_open(file, NULL, &z));
  ck_ok(zke_expire(z, w->id));
  ck_closed(w);
  ck_assert_int_eq(attach(s, &again, w), 0);
  ck_rc(zke_exists(z, "/e", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* ------------------------------------------------------------------------
 * The server's end
 * --------------------------------------------------------------------- */

/* Its sessions do not end with it: a client continues with the next server on
 * the file, whether the previous one was told to end or was killed. */
TEST_LOOP(a_session_goes_on_with_the_next_server, 0, 2) {
  const char *file = test_path("app.db");
  serving s = serve(file, "");
  wire *w = begin(s), *again;
  create(w, "/e", "", ZKE_EPHEMERAL);
  kill(s.pid, _i ? SIGKILL : SIGTERM);
  ck_assert_int_eq(ended(s), _i ? 128 + SIGKILL : 0);
  ck_closed(w);
  s = serve(file, "");
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_assert(is_there(again, "/e"));
  ck_assert_int_eq(set(again, "/e", "x", -1), 0);
  hang_up(w);
  w = begin(s);
  ck_assert(is_there(w, "/e"));
}

/* A new session with its own node "/e".  It asks for both together, so it is
 * not over before, however short its timeout is. */
static wire *begin_with_node(serving s, int timeout_ms) {
  wire *w = dial(s.port);
  size_t at = zke_jute_begin(&w->out);
  PUT(w, connect_request, 0, 0, timeout_ms, 0, {16, (char[16]){0}});
  PUT(w, read_only, 0);
  zke_jute_end(&w->out, at);
  ask_create(w, "/e", "", ZKE_EPHEMERAL);
  ck_assert_int_ne(take_connected(w), 0);
  ck_assert_int_eq(answer(w), 0);
  return w;
}

/* A killed server leaves no work for a person: its sessions end when their time
 * is over, even for a direct user, and the next server listens at the same
 * socket. */
TEST(a_server_that_is_killed_leaves_nothing_behind) {
  const char *file = test_path("app.db");
  static const char options[] = "--timeout-min 1s --unix '%s'";
  serving s = serve_with(file, options, test_path("socket"));
  wire *other = begin(s);
  zke *z;
  create(other, "/p", "", 0);
  ck_ok(zke_open(file, NULL, &z));
  begin_with_node(s, 1000);
  kill(s.pid, SIGKILL);
  ck_assert_int_eq(ended(s), 128 + SIGKILL);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK &&
               zke_exists(z, "/e", NULL, NULL, NULL) == ZKE_NONODE,
           SOON);
  ck_ok(zke_exists(z, "/p", NULL, NULL, NULL));
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  s = serve_with(file, options, test_path("socket"));
  ck_assert(is_there(begin(s), "/p"));
  stop(s);
  ck_assert_int_ne(access(test_path("socket"), F_OK), 0);
}

/* Two servers on one file: a session moves to the server that its client goes
 * to, and the other closes its connection. */
TEST(a_session_moves_between_servers) {
  const char *file = test_path("app.db");
  serving s = serve(file, ""), t = serve(file, "");
  wire *w = begin(s), *moved, *back;
  create(w, "/e", "", ZKE_EPHEMERAL);
  ck_assert_int_eq(attach(t, &moved, w), w->id);
  ck_closed(w);
  ck_assert(is_there(moved, "/e"));
  ck_assert_int_eq(attach(s, &back, moved), w->id);
  ck_closed(moved);
  ck_assert_int_eq(set(back, "/e", "x", -1), 0);
}

/* Changes by one server are seen, and cause events, at the other. */
TEST(two_servers_show_one_tree) {
  const char *file = test_path("app.db");
  serving s = serve(file, ""), t = serve(file, "");
  wire *w = begin(s), *other = begin(t);
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/a", 1), ZKE_NONODE);
  ck_assert_int_eq(create(other, "/a", "x", 0), 0);
  ck_event(w, ZKE_EVENT_CREATED, "/a");
  ck_assert_str_eq(data_at(w, "/a"), "x");
}

/* ------------------------------------------------------------------------
 * Access
 * --------------------------------------------------------------------- */

/* Identities belong to the connection: without them the session has none. */
TEST(identities_go_with_their_connection) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *again;
  ck_assert_int_eq(add_auth(w, "digest", "ann:secret"), 0);
  ck_call(w, ZKE_JUTE_CREATE, create_request, "/a", {1, "x"},
          zke_creator_all_acl, 0);
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_assert_int_eq(look(again, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
}

/* Every connection has the identity of its address. */
TEST(an_address_is_an_identity) {
  static const zke_acl here = {ZKE_PERM_ALL, "ip", "127.0.0.0/8"},
                       there = {ZKE_PERM_ALL, "ip", "10.0.0.1"};
  wire *w = begin(serve(":memory:", ""));
  ck_call(w, ZKE_JUTE_CREATE, create_request, "/here", {0, ""}, {1, &here}, 0);
  ck_call(w, ZKE_JUTE_CREATE, create_request, "/there", {0, ""}, {1, &there},
          0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/here", 0), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/there", 0), ZKE_NOAUTH);
}

/* An unknown scheme ends the connection; the session stays. */
TEST(an_unknown_scheme_ends_the_connection) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *again;
  ck_assert_int_eq(add_auth(w, "kerberos", "x"), ZKE_AUTHFAILED);
  ck_assert(!next_frame(w));
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_assert_int_eq(create(again, "/a", "", 0), 0);
}

/* ------------------------------------------------------------------------
 * Hostile clients
 * --------------------------------------------------------------------- */

/* A record that is cut short, or has wrong lengths, gets an error; an unknown
 * operation ends the connection.  The server lives on. */
TEST(a_malformed_request_is_refused) {
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  ck_assert_int_eq(call(w, ZKE_JUTE_CREATE), ZKE_MARSHALLINGERROR);
  request(w, ZKE_JUTE_GET_DATA);
  PUT(w, error_response, INT32_MAX); /* the path's length */
  ask(w);
  ck_assert_int_eq(answer(w), ZKE_MARSHALLINGERROR);
  ck_assert_int_eq(call(w, ZKE_JUTE_RECONFIG), ZKE_JUTE_RECONFIGDISABLED);
  ck_assert_int_eq(call(w, 12345), ZKE_UNIMPLEMENTED);
  ck_assert(!next_frame(w));
  w = begin(s);
}

/* The longest frame is jute.maxbuffer; one more byte, or a negative length,
 * ends the connection but not the session. */
TEST(a_frame_that_is_too_long_ends_the_connection) {
  serving s = serve(":memory:", "");
  static char data[ZKE_JUTE_FRAME_LIMIT];
  wire *w = begin(s), *again;
  int most = ZKE_JUTE_FRAME_LIMIT - 49; /* 47 and the path's two bytes */
  for (int i = 0; i < 2; i++) {
    ADD(w, ZKE_JUTE_CREATE, create_request, i ? "/b" : "/a", {most + i, data},
        zke_open_acl, 0);
    ck_assert_int_eq(zke_jute_length(w->out.data), ZKE_JUTE_FRAME_LIMIT + i);
    if (i == 0) send_out(w);
    if (i == 0) ck_assert_int_eq(answer(w), 0);
  }
  send(w->fd, w->out.data, w->out.len, MSG_NOSIGNAL);
  ck_assert(!next_frame(w));
  ck_assert_int_eq(attach(s, &again, w), w->id);
  send_bytes(again, "\377\377\377\377", 4);
  ck_assert(!next_frame(again));
}

/* A client that sends a byte at a time delays nobody. */
TEST(a_slow_sender_is_waited_for) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  create(w, "/a", "x", 0);
  ADD(w, ZKE_JUTE_GET_DATA, read_request, "/a", 0);
  for (size_t i = 0; i < w->out.len; i++) {
    send_bytes(w, w->out.data + i, 1);
    ck_assert_int_eq(ping(other), 0);
  }
  zke_jute_writer_free(&w->out);
  ck_assert_int_eq(answer(w), 0);
}

/* A client that asks for 400 MB and reads nothing gets no more than its buffers
 * hold; others are served, and when it reads, all of it arrives. */
TEST(a_client_that_does_not_read_is_not_read_from) {
  enum { ASKED = 800, BYTES = 500000 };
  static char data[BYTES];
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  memset(data, 'x', sizeof data);
  ck_call(w, ZKE_JUTE_CREATE, create_request, "/a", {BYTES, data}, zke_open_acl,
          0);
  int first = w->xid;
  long before = memory_of(s);
  for (int i = 0; i < ASKED; i++) ask_read(w, ZKE_JUTE_GET_DATA, "/a", 0);
  for (int i = 0; i < 200; i++) ck_assert_int_eq(ping(other), 0);
  ck_assert_int_lt(memory_of(s) - before, 100 * 1024);
  for (int i = 1; i <= ASKED; i++) ck_assert_int_eq(answer_to(w, first + i), 0);
}

/* A client on a slow link is alive while it reads, though the server does not
 * read from it meanwhile: an answer takes longer than a timeout.  The system
 * buffers about 200 KiB for a Unix socket, and tells the server when most of
 * that was read: several times in a timeout. */
TEST(a_client_that_reads_slowly_keeps_its_session) {
  enum { ASKED = 40, BYTES = 900000, PART = 50000 };
  static char data[BYTES], part[PART];
  serve_with(":memory:", "--timeout-min 1s --unix '%s'", test_path("socket"));
  wire *w = begin_unix_with(TIMEOUT), *other = begin_unix();
  ck_call(other, ZKE_JUTE_CREATE, create_request, "/a", {BYTES, data},
          zke_open_acl, 0);
  ck_assert_int_eq(create(w, "/e", "", ZKE_EPHEMERAL), 0);
  for (int i = 0; i < ASKED; i++) ask_read(w, ZKE_JUTE_GET_DATA, "/a", 0);
  int64_t end = test_now() + 3 * TIMEOUT, next = 0;
  while (test_now() < end) {
    if (test_now() < next) {
      test_pause();
      continue;
    }
    ck_assert(receive(w, part, PART));
    ck_assert_int_eq(ping(other), 0);
    next = test_now() + TIMEOUT / 12;
  }
  ck_assert(is_there(other, "/e"));
  ck_until(!is_there(other, "/e"), SOON); /* it no longer reads */
}

/* The server does not read ahead of a client that sends faster than its
 * requests are executed, and reads all answers: what is under way fits into the
 * sockets' and the server's buffers, and does not grow. */
TEST(a_client_that_sends_fast_is_not_read_ahead) {
  enum { PING = 112, PINGS = 75000, ANSWER = 20, AHEAD = 2 << 20 };
  static char pings[PING * PINGS], answers[65536];
  size_t sent = 0, got = 0;
  wire *w;
  serve_unix(&w);
  for (int i = 0; i < PINGS; i++) {
    request(w, ZKE_JUTE_PING);
    add(w);
    memcpy(pings + i * PING, "\0\0\0\x6c", 4);
    memcpy(pings + i * PING + 4, w->out.data + 4, 8);
    zke_jute_writer_free(&w->out);
  }
  while (got < (size_t)PINGS * ANSWER) {
    struct pollfd p = {w->fd, POLLIN | (sent < sizeof pings ? POLLOUT : 0), 0};
    ck_assert_int_eq(poll(&p, 1, (int)test_patience(SOON)), 1);
    ssize_t n = p.revents & POLLIN
                    ? recv(w->fd, answers, sizeof answers, MSG_DONTWAIT)
                    : 0;
    if (n > 0) got += (size_t)n;
    n = p.revents & POLLOUT
            ? send(w->fd, pings + sent, sizeof pings - sent, MSG_DONTWAIT)
            : 0;
    if (n > 0) sent += (size_t)n;
    ck_assert_int_lt((int64_t)(sent - got / ANSWER * PING), AHEAD);
  }
}

/* A client reads nothing, and its watches fire.  When 64 MiB of events wait for
 * it the server ends its connection.  Others are served meanwhile, and the
 * client can come back to its session.  The path is long, so few changes
 * suffice.  The connection that asks for a word counts, too. */
TEST(events_that_nobody_reads_end_the_connection) {
  enum { BYTES = 1000000, CHANGES = 100 };
  static char path[BYTES + 1];
  serving s = serve(":memory:", "");
  wire *w = begin(s), *sleeps = begin(s), *again;
  memset(path, 'x', BYTES);
  *path = '/';
  ck_assert_int_eq(create(w, path, "", 0), 0);
  ck_call(sleeps, ZKE_JUTE_ADD_WATCH, add_watch_request, path,
          ZKE_WATCH_PERSISTENT);
  for (int i = 0; i < CHANGES / 2; i++)
    ck_assert_int_eq(set(w, path, "", -1), 0);
  ck_word(s, "mntr", "zk_num_alive_connections\t3\n");
  for (int i = 0; i < CHANGES / 2; i++)
    ck_assert_int_eq(set(w, path, "", -1), 0);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t2\n"), SOON);
  ck_word(s, "mntr", "zk_global_sessions\t2\n");
  while (receive(sleeps, path, 4)) continue;
  ck_assert_int_eq(attach(s, &again, sleeps), sleeps->id);
  ck_assert_int_eq(ping(again), 0);
}

/* An answer of more than 64 MiB is no event: an event that comes while the
 * client reads it does not end the connection. */
TEST(an_event_behind_an_immense_answer_is_told) {
  enum { BYTES = 1000000, CHILDREN = 70 };
  static char path[BYTES + 1];
  wire *w;
  serving s = serve_unix(&w);
  wire *reads = begin_unix();
  memset(path, 'x', BYTES);
  memcpy(path, "/d/", 3);
  ck_assert_int_eq(create(w, "/d", "", 0), 0);
  for (int i = 0; i < CHILDREN; i++) {
    path[3] = (char)('0' + i);
    ck_assert_int_eq(create(w, path, "", 0), 0);
  }
  ask_read(reads, ZKE_JUTE_GET_CHILDREN, "/d", 1);
  ck_until(strstr(says(s, "mntr"), "zk_watch_count\t1\n"), SOON);
  ck_assert_int_eq(create(w, "/d/more", "", 0), 0);
  ck_assert_int_eq(answer(reads), 0);
  ck_event(reads, ZKE_EVENT_CHILD, "/d");
}

/* Several clients that read nothing together take at most four times the memory
 * of one: the one with the most unsent bytes ends, before its own limit. */
TEST(events_that_many_do_not_read_end_one_connection) {
  enum { BYTES = 1000000, CHANGES = 52, MANY = 6 };
  static char path[BYTES + 1];
  serving s = serve(":memory:", "--timeout-max 10m");
  wire *w = begin(s), *sleeps[MANY];
  memset(path, 'x', BYTES);
  *path = '/';
  ck_assert_int_eq(create(w, path, "", 0), 0);
  for (int i = 0; i < MANY; i++) {
    sleeps[i] = begin_with(s, 600000);
    ck_call(sleeps[i], ZKE_JUTE_ADD_WATCH, add_watch_request, path,
            ZKE_WATCH_PERSISTENT);
  }
  for (int i = 0; i < CHANGES; i++) ck_assert_int_eq(set(w, path, "", -1), 0);
  ck_word(s, "mntr", "zk_num_alive_connections\t7\n");
  ck_word(s, "mntr", "zk_global_sessions\t7\n");
  for (int i = 0; i < MANY; i++) hang_up(sleeps[i]);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t2\n"), SOON);
  ck_assert_int_eq(set(w, path, "", -1), 0);
}

/* However many events one transaction makes, a reading client gets all of them:
 * a persistent watch never repeats a missed one. */
TEST(many_events_at_once_are_all_told) {
  enum { NODES = 12000 };
  char path[32];
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  ck_call(w, ZKE_JUTE_ADD_WATCH, add_watch_request, "/",
          ZKE_WATCH_PERSISTENT_RECURSIVE);
  request(other, ZKE_JUTE_MULTI);
  for (int i = 0; i < NODES; i++) {
    snprintf(path, sizeof path, "/%05d", i);
    put_create(other, path);
  }
  ck_assert_int_eq(end_multi(other), 0);
  for (int i = 0; i < NODES; i++) {
    snprintf(path, sizeof path, "/%05d", i);
    ck_event(w, ZKE_EVENT_CREATED, path);
  }
  ck_assert_int_eq(ping(w), 0);
}

/* The client's host has vanished: neither bytes nor a close arrive.  If the
 * test may not do this to a socket the client is silent, which looks the same
 * to the server. */
static void vanish(wire *w) {
  int yes = 1;
  /* Acknowledge what the server has sent; otherwise it would send that again
   * and learn that nobody is there. */
  setsockopt(w->fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
  if (setsockopt(w->fd, IPPROTO_TCP, TCP_REPAIR, &yes, sizeof yes) == 0)
    hang_up(w);
}

/* A connection that is open only on the server's side ends with its session. */
TEST(a_half_open_connection_ends_with_its_session) {
  serving s = serve(":memory:", "--timeout-min 500ms");
  wire *other = begin(s), *w = begin_with_node(s, 500);
  vanish(w);
  ck_until(ping(other) == 0 && !is_there(other, "/e"), SOON);
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t2\n"), SOON);
  ck_word(s, "mntr", "zk_global_sessions\t1\n");
  ck_word(s, "mntr", "zk_sessionless_connections_expired\t0\n");
}

/* How often a process has gone to sleep voluntarily. */
static long sleeps_of(pid_t pid) {
  char path[64], line[200];
  long count = -1;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f))
    sscanf(line, "voluntary_ctxt_switches: %ld", &count);
  if (f) fclose(f);
  return count;
}

/* Without a free descriptor the server sleeps between its checks for one,
 * serves its connections, and later accepts those that have waited. */
TEST(a_server_without_descriptors_waits_for_one) {
  struct rlimit before, few;
  serving s = serve(":memory:", "--timeout-min 1s");
  wire *w = begin(s);
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, NULL, &before), 0);
  few = (struct rlimit){3, before.rlim_max};
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, &few, NULL), 0);
  wire *waiting = dial(s.port);
  send_connect(waiting, 0, NULL, 10000, 0);
  ck_assert_int_eq(ping(w), 0);
  long sleeps = sleeps_of(s.pid);
  ck_until(sleeps_of(s.pid) >= sleeps + 4, SOON);
  ck_assert_int_eq(ping(w), 0);
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, &before, NULL), 0);
  ck_assert_int_ne(take_connected(waiting), 0);
}

/* Is there an answer after some more rounds of the server?  It looks for a
 * descriptor at least in every second round, and a ping is a round. */
static bool has_answer(const wire *w, wire *other) {
  struct pollfd p = {.fd = w->fd, .events = POLLIN};
  for (int i = 0; i < 20 && poll(&p, 1, 0) == 0; i++)
    ck_assert_int_eq(ping(other), 0);
  return poll(&p, 1, 0) == 1;
}

/* Some descriptors are kept for the library: a server with as many connections
 * as possible still makes durable changes and checkpoints.  A new client waits
 * until another leaves. */
TEST(connections_leave_descriptors_for_the_file) {
  enum { LIMIT = 80, MOST = LIMIT - 32 };
  struct rlimit few = {LIMIT, LIMIT};
  serving s = serve(test_path("app.db"), "--timeout-min 1s");
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, &few, NULL), 0);
  wire *w[LIMIT] = {begin(s)};
  int count = 1;
  for (;; count++) {
    ck_assert_int_lt(count, MOST);
    w[count] = dial(s.port);
    send_connect(w[count], 0, NULL, 30000, 0);
    if (!has_answer(w[count], w[0])) break;
    ck_assert_int_ne(take_connected(w[count]), 0);
  }
  ck_assert_int_gt(count, 10);
  for (int i = 0; i < 3000; i++)
    ck_assert_int_eq(create(w[0], "/n-", "x", ZKE_EPHEMERAL_SEQUENTIAL), 0);
  ck_assert_int_eq(create(w[0], "/durable", "x", 0), 0);
  hang_up(w[1]);
  ck_assert_int_ne(take_connected(w[count]), 0);
  for (int i = 0; i <= count; i++)
    if (i != 1) hang_up(w[i]);
}

/* Get as many descriptors as allowed; how many. */
static int most_descriptors(void) {
  struct rlimit limit;
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit.rlim_max > INT_MAX ? INT_MAX : (int)limit.rlim_max;
}

/* Ten thousand connections, or as many as there are descriptors for, do not
 * begin a session: another client is served, and after ten seconds they end.
 * Some have sent a part of a word or of a frame. */
TEST(connections_that_say_nothing_end) {
  enum { MANY = 10000, OTHERS = 200 };
  static wire *silent[MANY];
  int most = most_descriptors() - OTHERS;
  int count = most < MANY ? most : MANY;
  serving s = serve(":memory:", "--connections 0");
  wire *w = begin(s);
  for (int i = 0; i < count; i++) {
    silent[i] = dial(s.port);
    send_bytes(silent[i], "\0\0\0", (size_t)(i % 4));
    if (i % 100 == 0) ck_assert_int_eq(ping(w), 0);
  }
  for (int i = 0; i < count; i++) ck_assert_str_eq(receive_rest(silent[i]), "");
  ck_assert_int_eq(ping(w), 0);
}

/* Three clients do not read: one waits for answers, one has closed its session,
 * and one has asked for a word.  The first ends with its session, the others
 * after ten seconds.  The system buffers about 200 KiB for a Unix socket. */
TEST(connections_that_do_not_read_end) {
  enum { BYTES = 500000, NODES = 4000 };
  static char data[BYTES + 1];
  char path[200];
  wire *waits, *w;
  serving s = serve_unix(&waits);
  wire *other = begin(s);
  memset(data, 'x', BYTES);
  ck_assert_int_eq(create(other, "/a", data, 0), 0);
  for (int i = 0; i < NODES; i++) {
    snprintf(path, sizeof path, "/%0100d", i);
    ck_assert_int_eq(create(other, path, "", ZKE_EPHEMERAL), 0);
    if (i % 100 == 0) ck_assert_int_eq(ping(waits), 0);
  }
  wire *closed = begin_unix(), *word = dial_unix();
  for (int i = 0; i < 5; i++) ask_read(waits, ZKE_JUTE_GET_DATA, "/a", 0);
  ask_read(closed, ZKE_JUTE_GET_DATA, "/a", 0);
  request(closed, ZKE_JUTE_CLOSE);
  ask(closed);
  send_bytes(word, "dump", 4);
  ck_until(strstr(says(s, "mntr"), "zk_global_sessions\t2\n"), SOON);
  ck_word(s, "mntr", "zk_num_alive_connections\t5\n");
  ck_until(strstr(says(s, "mntr"), "zk_num_alive_connections\t2\n"), SOON);
  ck_word(s, "mntr", "zk_global_sessions\t1\n");
  ck_word(s, "mntr", "zk_sessionless_connections_expired\t2\n");
  while (receive(waits, path, sizeof path)) continue;
  while (receive(closed, path, sizeof path)) continue;
  w = begin_unix();
  ck_assert_int_eq(ping(w), 0);
}

/* One connection too many from an address is ended immediately; after another's
 * end there is room again. */
TEST(connections_of_one_address_are_limited) {
  serving s = serve(":memory:", "--connections 3");
  wire *w[4];
  for (int i = 0; i < 3; i++) w[i] = begin(s);
  w[3] = dial(s.port);
  ck_assert(!next_frame(w[3]));
  hang_up(w[0]);
  ck_assert_int_eq(ping(w[1]), 0);
  ck_until((w[3] = dial(s.port), send_bytes(w[3], "ruok", 4),
            receive(w[3], (char[4]){0}, 4) ? true : (hang_up(w[3]), false)),
           SOON);
}

/* ------------------------------------------------------------------------
 * Words, and how it is started
 * --------------------------------------------------------------------- */

/* The answer to a word is sent once, even to a slow reader: the system buffers
 * about 200 KiB for a Unix socket. */
TEST(a_long_word_is_answered_once) {
  enum { NODES = 4000 };
  char path[200], first[200];
  wire *w;
  serve_unix(&w);
  for (int i = 0; i < NODES; i++) {
    snprintf(path, sizeof path, "/%0100d", i);
    ck_assert_int_eq(create(w, path, "", ZKE_EPHEMERAL), 0);
  }
  snprintf(first, sizeof first, "/%0100d\n", 0);
  wire *word = dial_unix();
  send_bytes(word, "dump", 4);
  for (int i = 0; i < 20; i++) ck_assert_int_eq(ping(w), 0);
  const char *text = receive_rest(word), *at = strstr(text, first);
  ck_assert_ptr_nonnull(at);
  ck_assert_ptr_null(strstr(at + 1, first));
  ck_assert_ptr_nonnull(strstr(at, path)); /* the last */
}

/* A word may come in parts, and bytes after it are not read. */
TEST(a_word_may_come_in_parts) {
  serving s = serve(":memory:", "");
  wire *w = dial(s.port);
  send_bytes(w, "r", 1);
  ck_word(s, "ruok", "imok"); /* the first byte has been read, too */
  send_bytes(w, "uo", 2);
  ck_word(s, "ruok", "imok");
  send_bytes(w, "k\n", 2);
  ck_assert_str_eq(receive_rest(w), "imok");
}

/* Each four-letter word tells the same as ZooKeeper's. */
TEST(four_letter_words_are_answered) {
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  char id[64];
  snprintf(id, sizeof id, "0x%llx", (unsigned long long)w->id);
  create(w, "/e", "", ZKE_EPHEMERAL);
  look(w, ZKE_JUTE_GET_DATA, "/e", 1);
  ck_assert_str_eq(says(s, "ruok"), "imok");
  ck_assert_str_eq(says(s, "isro"), "rw");
  ck_word(s, "srvr", "Mode: standalone\nNode count: 5\n");
  ck_word(s, "srvr", "Zookeeper version: 3.8.");
  ck_word(s, "stat", "Clients:\n /127.0.0.1:");
  ck_word(s, "mntr", "\nzk_znode_count\t5\n");
  ck_word(s, "mntr", "\nzk_ephemerals_count\t1\n");
  ck_word(s, "mntr", "\nzk_watch_count\t1\n");
  ck_word(s, "cons", id);
  ck_word(s, "conf", "tickTime=2000\n");
  ck_word(s, "conf", "minSessionTimeout=4000\nmaxSessionTimeout=40000\n");
  ck_word(s, "envi", "zookeeper.version=3.8.");
  ck_word(s, "dump", ":\n\t/e\n");
  ck_assert_str_eq(says(s, "wchs"),
                   "1 connections watching 1 paths\nTotal watches:1\n");
  ck_word(s, "wchp", "/e\n\t0x");
  ck_word(s, "wchc", "\n\t/e\n");
}

/* A path with a data watch and a child watch is listed once. */
TEST(words_tell_a_watched_path_once) {
  serving s = serve(":memory:", "");
  wire *w = begin(s), *other = begin(s);
  char text[200];
  long long one = w->id, two = other->id;
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 1), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_CHILDREN, "/a", 1), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/b", 1), ZKE_NONODE);
  ck_assert_int_eq(look(other, ZKE_JUTE_GET_DATA, "/a", 1), 0);
  ck_assert_str_eq(says(s, "wchs"),
                   "2 connections watching 2 paths\nTotal watches:4\n");
  snprintf(text, sizeof text, "0x%llx\n\t/a\n0x%llx\n\t/a\n\t/b\n\n", two, one);
  ck_assert_str_eq(says(s, "wchc"), text);
  snprintf(text, sizeof text, "/a\n\t0x%llx\n\t0x%llx\n/b\n\t0x%llx\n\n", one,
           two, one);
  ck_assert_str_eq(says(s, "wchp"), text);
}

/* A server that stands still accepts no connection, and its queue is full: the
 * socket is still its own. */
TEST(a_unix_socket_of_a_server_that_stands_still_is_in_use) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0), waiting;
  snprintf(a.sun_path, sizeof a.sun_path, "%s", test_path("socket"));
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
  ck_assert_int_eq(listen(fd, 0), 0);
  do {
    waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  } while (connect(waiting, (struct sockaddr *)&a, sizeof a) == 0);
  ck_assert_int_eq(errno, EAGAIN);
  const char *said = refusal("--unix '%s'", a.sun_path);
  ck_assert_msg(strstr(said, "Address already in use") != NULL, "%s", said);
  ck_assert_int_eq(access(a.sun_path, F_OK), 0);
  close(fd);
}

/* With --unix the server listens there and nowhere else. */
TEST(a_unix_socket_is_served) {
  wire *w;
  serve_unix(&w);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
}
