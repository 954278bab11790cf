/* test_serve_rare.c - zke serve: what clients seldom send
 *
 * Rare requests, and common ones at an unlucky moment.  Conformance over the
 * wire has found each of them, by an answer that differed from ZooKeeper's.
 */
#include <signal.h>
#include <sqlite3.h>

#include "test/server/wire.h"

/* An answer to auth has no zxid, and one to an unknown request has -1. */
TEST(answers_from_outside_of_the_tree_have_their_own_zxids) {
  wire *w = begin(serve(":memory:", ""));
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(add_auth(w, "digest", "ann:red"), 0);
  ck_assert_int_eq(w->head.zxid, 0);
  ck_assert_int_eq(call(w, 99), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(w->head.zxid, -1);
  ck_closed(w);
}

/* An identity that is added twice counts once; with another password it is
 * another. */
TEST(whoami_lists_each_identity_once) {
  wire *w = begin(serve(":memory:", ""));
  zke_jute_who_am_i_response r;
  ck_assert_int_eq(add_auth(w, "digest", "ann:red"), 0);
  ck_assert_int_eq(add_auth(w, "digest", "ann:red"), 0);
  ck_assert_int_eq(call(w, ZKE_JUTE_WHO_AM_I), 0);
  GET(w, who_am_i_response, &r);
  ck_assert_int_eq(r.ids.count, 2); /* and the address */
  ck_assert_int_eq(add_auth(w, "digest", "ann:blue"), 0);
  ck_assert_int_eq(call(w, ZKE_JUTE_WHO_AM_I), 0);
  GET(w, who_am_i_response, &r);
  ck_assert_int_eq(r.ids.count, 3);
}

/* A create with an unknown mode, or an invalid TTL, is refused in its turn: the
 * multi has a result for each of its operations. */
TEST(a_multi_refuses_a_create_in_an_unknown_mode_by_itself) {
  static const int errors[] = {0, ZKE_BADARGUMENTS, ZKE_RUNTIMEINCONSISTENCY};
  wire *w = begin(serve(":memory:", ""));
  for (int way = 0; way < 2; way++) {
    request(w, ZKE_JUTE_MULTI);
    PART(w, ZKE_JUTE_CREATE, create_request, "/a", {0, ""}, zke_open_acl, 0);
    PUT(w, multi_header, way ? ZKE_JUTE_CREATE_TTL : ZKE_JUTE_CREATE, 0, -1);
    if (way)
      PUT(w, create_ttl_request, "/b", {0, ""}, zke_open_acl,
          ZKE_PERSISTENT_WITH_TTL, ZKE_MAX_TTL + 1);
    else
      PUT(w, create_request, "/b", {0, ""}, zke_open_acl, 77);
    PART(w, ZKE_JUTE_DELETE, delete_request, "/c", -1);
    ck_assert_int_eq(end_multi(w), 0);
    for (int i = 0; i < 3; i++) ck_result(w, ZKE_JUTE_ERROR, errors[i]);
    ck_results_end(w);
  }
  ck_assert(!is_there(w, "/a"));
}

/* An invalid mode is reported before an invalid path. */
TEST(a_create_without_a_path_is_refused_for_its_mode_first) {
  wire *w = begin(serve(":memory:", ""));
  for (int mode = 0; mode < 2; mode++)
    ck_assert_int_eq(CALL(w, ZKE_JUTE_CREATE, create_request, NULL, {0, ""},
                          zke_open_acl, mode ? 77 : 0),
                     mode ? ZKE_BADARGUMENTS : ZKE_MARSHALLINGERROR);
}

/* "" is another name of "/" for reads, but not for watches. */
TEST(the_empty_path_is_the_root_without_its_watches) {
  wire *w = begin(serve(":memory:", ""));
  ck_call(w, ZKE_JUTE_GET_ACL, path_request, "");
  ck_call(w, ZKE_JUTE_COUNT, path_request, "");
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "", 1), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "", 1), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_CHILDREN, "", 1), 0);
  ck_assert_int_eq(set(w, "/", "x", -1), 0);
  ck_assert_int_eq(create(w, "/a", "", 0), 0); /* no event before it */
}

/* The server checks the modes of watches, but not their paths. */
TEST(a_watch_of_what_is_no_path_never_fires) {
  static const char *const bad[] = {"/a//b", "/a/", "", "/a/.."};
  wire *w = begin(serve(":memory:", ""));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ck_call(w, ZKE_JUTE_ADD_WATCH, watches_request, bad[i], 1);
    ck_assert_int_eq(CALL(w, ZKE_JUTE_ADD_WATCH, watches_request, bad[i], 9),
                     ZKE_MARSHALLINGERROR);
    ck_assert_int_eq(CALL(w, ZKE_JUTE_REMOVE_WATCHES, watches_request, bad[i],
                          ZKE_WATCH_ANY),
                     ZKE_NOWATCHER);
    ck_assert_int_eq(
        CALL(w, ZKE_JUTE_CHECK_WATCHES, watches_request, bad[i], ZKE_WATCH_ANY),
        ZKE_NOWATCHER);
  }
  ck_assert_int_eq(
      CALL(w, ZKE_JUTE_REMOVE_WATCHES, watches_request, NULL, ZKE_WATCH_ANY),
      ZKE_NOWATCHER);
  ck_assert_int_eq(create(w, "/a", "", 0), 0); /* no event before it */
  ck_assert_int_eq(create(w, "/a/b", "", 0), 0);
}

/* Run a statement on the file, unknown to its server. */
static void do_unseen(const char *file, const char *sql) {
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(file, &db), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

/* If a session has just ended, its connection ends, whatever its client asks
 * for.  No answer says that the request is malformed, or the proof wrong.
 */
TEST_LOOP(a_session_that_has_ended_is_no_fault_of_a_request, 0, 4) {
  static const int types[] = {ZKE_JUTE_CHECK, ZKE_JUTE_MULTI,
                              ZKE_JUTE_MULTI_READ, ZKE_JUTE_AUTH};
  const char *file = test_path("app.db");
  wire *w = begin(serve(file, ""));
  do_unseen(file, "DELETE FROM zkembed_session WHERE timeout<>0");
  request(w, types[_i]);
  if (types[_i] == ZKE_JUTE_MULTI) PUT(w, multi_header, ZKE_JUTE_CHECK, 0, -1);
  if (types[_i] == ZKE_JUTE_CHECK || types[_i] == ZKE_JUTE_MULTI)
    PUT(w, delete_request, "/", -1);
  if (types[_i] == ZKE_JUTE_MULTI_READ) {
    PART(w, ZKE_JUTE_GET_DATA, read_request, "/", 0);
  }
  if (types[_i] == ZKE_JUTE_AUTH)
    PUT(w, auth_packet, 0, "digest", {7, "ann:red"});
  else if (types[_i] != ZKE_JUTE_CHECK)
    PUT(w, multi_header, -1, 1, -1);
  ask(w);
  ck_assert(!next_frame(w));
}

/* If events cannot be read, no answer that shows their change is sent before
 * them, not even an error. */
TEST(an_error_does_not_come_before_an_event_that_cannot_be_read) {
  const char *file = test_path("app.db");
  serving s = serve(file, "");
  wire *w = begin(s);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/a", 1), 0);
  zke *z = test_open(file);
  kill(s.pid, SIGSTOP);
  ck_ok(zke_delete(z, "/a", -1));
  do_unseen(file, "ALTER TABLE zkembed_event RENAME TO gone");
  ask_read(w, ZKE_JUTE_EXISTS, "/a", 0);
  kill(s.pid, SIGCONT);
  ck_assert(!next_frame(w));
  do_unseen(file, "ALTER TABLE gone RENAME TO zkembed_event");
  ck_ok(zke_close(z));
}

/* In one send: a watch fired by the previous change no longer exists. */
TEST(a_watch_is_spent_by_the_change_just_before) {
  wire *w = begin(serve(":memory:", ""));
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 1), 0);
  for (int i = 0; i < 2; i++)
    ADD(w, ZKE_JUTE_SET_DATA, set_data_request, "/a", {1, "x"}, -1);
  ASK(w, ZKE_JUTE_CHECK_WATCHES, watches_request, "/a", ZKE_WATCH_DATA);
  ck_event(w, ZKE_EVENT_CHANGED, "/a");
  ck_assert_int_eq(answer_to(w, w->xid - 2), 0);
  ck_assert_int_eq(answer_to(w, w->xid - 1), 0);
  ck_assert_int_eq(answer(w), ZKE_NOWATCHER);
}

/* In one round of the server, in either order: a client that is told that its
 * watch exists has not yet seen the other client's change. */
TEST_LOOP(a_watch_is_spent_by_the_change_of_another, 0, 2) {
  serving s = serve(":memory:", "");
  wire *a = begin(s), *b = begin(s);
  ck_assert_int_eq(create(a, "/a", "", 0), 0);
  ck_assert_int_eq(look(a, ZKE_JUTE_GET_DATA, "/a", 1), 0);
  request(a, ZKE_JUTE_CHECK_WATCHES);
  PUT(a, watches_request, "/a", ZKE_WATCH_DATA);
  kill(s.pid, SIGSTOP);
  if (_i) ask(a);
  ask_set(b, "/a", "x", -1);
  if (!_i) ask(a);
  kill(s.pid, SIGCONT);
  ck_assert_int_eq(answer(b), 0);
  ck_assert(next_frame(a));
  GET(a, reply_header, &a->head);
  if (a->head.xid == ZKE_JUTE_XID_EVENT) {
    ck_assert_int_eq(answer(a), ZKE_NOWATCHER);
  } else {
    ck_assert_int_eq(a->head.err, 0);
    ck_assert_int_lt(a->head.zxid, b->head.zxid);
    ck_event(a, ZKE_EVENT_CHANGED, "/a");
  }
}
