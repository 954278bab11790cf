/* test_users.c - zke serve: SASL as ZooKeeper's clients do it, and super users
 *
 * The client is that of wire.h.  The server's own digest.c makes the client's
 * answers to a challenge; test_digest.c compares digest.c with its RFCs.
 * kazoo.sh has a real client.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell/serve/digest.c"
#include "test/server/wire.h"

/* ------------------------------------------------------------------------
 * The server, and a client with SASL
 * --------------------------------------------------------------------- */

static serving serve_users(const char *more) {
  return serve_with(":memory:", "--users '%s' %s",
                    users_file("# two of them\n\nann:secret\nbob:a:b\n"), more);
}

/* Send a token; the error of the answer, with the answer's token in *next. */
static int send_token(wire *w, const char *token, int len,
                      zke_jute_sasl_token *next) {
  ASK(w, ZKE_JUTE_SASL, sasl_token, {len, token});
  ck_assert_msg(next_frame(w), "the server has hung up");
  GET(w, reply_header, &w->head);
  ck_assert_int_eq(w->head.xid, w->xid);
  GET(w, sasl_token, next);
  ck_assert_ptr_eq(w->r.at, w->r.end);
  return w->head.err;
}

/* A client's answer to a challenge.  Tests change it. */
typedef struct reply {
  const char *user, *password, *realm, *nonce, *nc, *qop, *uri, *more;
} reply;

static const reply anns = {"ann",      "secret", "zk-sasl-md5",           NULL,
                           "00000001", "auth",   "zookeeper/zk-sasl-md5", ""};

/* Ask for a challenge; its nonce, valid until the next call. */
static const char *challenged(wire *w) {
  static char nonce[100];
  zke_jute_sasl_token next;
  char text[200];
  ck_assert_int_eq(send_token(w, "", 0, &next), 0);
  snprintf(text, sizeof text, "%.*s", next.token.len, next.token.data);
  ck_assert_int_eq(
      sscanf(text, "realm=\"zk-sasl-md5\",nonce=\"%99[^\"]\"", nonce), 1);
  ck_assert_str_eq(strstr(text, "\",charset"),
                   "\",charset=utf-8,algorithm=md5-sess");
  return nonce;
}

/* Write the token that answers a challenge. */
static void put_token(const reply *r, char *out, size_t size) {
  digest_answer a = {.username = r->user,
                     .realm = r->realm,
                     .nonce = r->nonce,
                     .cnonce = "abc",
                     .nc = r->nc,
                     .qop = r->qop,
                     .uri = r->uri};
  char hex[DIGEST_HEX];
  digest_response(&a, r->password, "AUTHENTICATE", hex);
  snprintf(out, size,
           "username=\"%s\",realm=\"%s\",nonce=\"%s\",cnonce=\"abc\",nc=%s,"
           "qop=%s,digest-uri=\"%s\",response=%s%s",
           r->user, r->realm, r->nonce, r->nc, r->qop, r->uri, hex, r->more);
}

/* The whole exchange; the error at its end.  Without an error the server has
 * proven that it knows the password. */
static int log_in(wire *w, reply r) {
  zke_jute_sasl_token next;
  char token[1000], hex[DIGEST_HEX], text[100];
  const char *nonce = challenged(w);
  if (!r.nonce) r.nonce = nonce;
  put_token(&r, token, sizeof token);
  int rc = send_token(w, token, (int)strlen(token), &next);
  if (rc != 0) {
    ck_assert_int_eq(next.token.len, -1);
    return rc;
  }
  digest_answer a;
  ck_assert(digest_parse(token, strlen(token), &a));
  digest_response(&a, r.password, "", hex);
  snprintf(text, sizeof text, "%.*s", next.token.len, next.token.data);
  ck_assert_str_eq(strstr(text, "=") + 1, hex);
  return 0;
}

/* The error of a create with a list of one entry. */
static int create_for(wire *w, const char *path, const char *scheme,
                      const char *id) {
  const zke_acl entry = {ZKE_PERM_ALL, scheme, id};
  return CALL(w, ZKE_JUTE_CREATE, create_request, path, {1, "x"}, {1, &entry},
              0);
}

/* whoAmI, as "scheme:name scheme:name". */
static const char *who_am_i(wire *w) {
  static char text[200];
  zke_jute_who_am_i_response who;
  size_t len = 0;
  ck_assert_int_eq(call(w, ZKE_JUTE_WHO_AM_I), 0);
  GET(w, who_am_i_response, &who);
  for (int i = 0; i < who.ids.count; i++)
    len +=
        (size_t)snprintf(text + len, sizeof text - len, "%s%s:%s", i ? " " : "",
                         who.ids.data[i].scheme, who.ids.data[i].id);
  return text;
}

/* ------------------------------------------------------------------------
 * SASL
 * --------------------------------------------------------------------- */

/* What a user protects by SASL is open to every connection of that user, and
 * closed to strangers and other users. */
TEST(a_user_opens_what_it_protects) {
  serving s = serve_users("");
  wire *w = begin(s), *other = begin(s);
  reply bob = anns;
  bob.user = "bob";
  bob.password = "a:b";
  ck_assert_int_eq(log_in(w, anns), 0);
  ck_assert_str_eq(who_am_i(w), "ip:127.0.0.1 sasl:ann");
  ck_assert_int_eq(create_for(w, "/a", "sasl", "ann"), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), 0);
  ck_assert_int_eq(look(other, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
  ck_assert_int_eq(log_in(other, bob), 0);
  ck_assert_int_eq(look(other, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
  hang_up(other);
  other = begin(s);
  ck_assert_int_eq(log_in(other, anns), 0);
  ck_assert_int_eq(look(other, ZKE_JUTE_GET_DATA, "/a", 0), 0);
}

/* Whatever is wrong with the answer: AUTHFAILED with an empty token, and the
 * connection ends.  The session stays. */
TEST(what_proves_nothing_ends_the_connection) {
  serving s = serve_users("");
  for (int i = 0; i < 11; i++) {
    reply r = anns;
    wire *w = begin(s), *again;
    if (i == 0) r.password = "Secret";
    if (i == 1) r.user = "nobody";
    if (i == 2) r.nonce = "abcd";
    if (i == 3) r.nc = "00000002";
    if (i == 4) r.qop = "auth-int";
    if (i == 5) r.uri = "zookeeper/elsewhere";
    if (i == 6) r.realm = "elsewhere";
    if (i == 7) r.more = ",nc=00000001";
    if (i == 8) r.more = ",charset=latin1";
    if (i == 9) r.more = ",x";
    if (i == 10) r.more = ",response=00";
    ck_assert_msg(log_in(w, r) == ZKE_AUTHFAILED, "%d", i);
    ck_assert(!next_frame(w));
    ck_assert_int_eq(attach(s, &again, w), w->id);
    ck_assert_str_eq(who_am_i(again), "ip:127.0.0.1");
    hang_up(again);
    hang_up(w);
  }
}

/* A missing directive is noticed, whichever it is. */
TEST(an_answer_without_a_directive_proves_nothing) {
  static const char *const needed[] = {"username", "realm",    "nonce",
                                       "cnonce",   "response", "digest-uri"};
  serving s = serve_users("");
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    wire *w = begin(s);
    zke_jute_sasl_token next;
    char token[1000], name[40];
    reply r = anns;
    r.nonce = challenged(w);
    r.more = ",";
    put_token(&r, token, sizeof token);
    snprintf(name, sizeof name, "%s%s=", i ? "," : "", needed[i]);
    memset(strstr(token, name) + (i ? 1 : 0), 'x', strlen(needed[i]));
    ck_assert_msg(
        send_token(w, token, (int)strlen(token), &next) == ZKE_AUTHFAILED, "%s",
        needed[i]);
    ck_assert(!next_frame(w));
  }
}

/* A captured token is worthless: both on its own connection again, and on
 * another one, which has another nonce. */
TEST(a_token_cannot_be_sent_twice) {
  serving s = serve_users("");
  wire *w = begin(s), *thief = begin(s);
  zke_jute_sasl_token next;
  char token[1000], nonce[100];
  reply r = anns;
  snprintf(nonce, sizeof nonce, "%s", challenged(w));
  r.nonce = nonce;
  put_token(&r, token, sizeof token);
  ck_assert_int_eq(send_token(w, token, (int)strlen(token), &next), 0);
  ck_assert_str_ne(challenged(thief), nonce);
  ck_assert_int_eq(send_token(thief, token, (int)strlen(token), &next),
                   ZKE_AUTHFAILED);
  ck_assert(!next_frame(thief));
  ck_assert_int_eq(send_token(w, token, (int)strlen(token), &next),
                   ZKE_AUTHFAILED);
  ck_assert(!next_frame(w));
}

/* Random tokens, as the first and as the second, and frames with wrong lengths:
 * the server answers or hangs up, and goes on. */
TEST(malformed_tokens_do_no_harm) {
  enum { ROUNDS = 200 };
  static const char letters[] = "\"\\,= \tusernamepqco-di1\377";
  static char token[5000];
  serving s = serve_users("");
  srand(test_seed());
  for (int i = 0; i < ROUNDS; i++) {
    wire *w = begin(s);
    zke_jute_sasl_token next;
    int len = i ? rand() % 100 : (int)sizeof token;
    for (int k = 0; k < len; k++)
      token[k] = letters[(size_t)rand() % (sizeof letters - 1)];
    ck_assert_int_eq(send_token(w, token, rand() % 50, &next), 0);
    ck_assert_int_eq(send_token(w, token, len, &next), ZKE_AUTHFAILED);
    ck_assert(!next_frame(w));
  }
  for (int i = 0; i < 3; i++) {
    wire *w = begin(s);
    request(w, ZKE_JUTE_SASL);
    if (i) PUT(w, error_response, i == 1 ? -1 : 100000);
    ask(w);
    ck_closed(w);
  }
  wire *w = begin(s);
  ck_assert_int_eq(log_in(w, anns), 0);
}

/* A server without users lets nobody believe that it has verified something. */
TEST(without_users_there_is_no_sasl) {
  wire *w = begin(serve(":memory:", ""));
  zke_jute_sasl_token next;
  ck_assert_int_eq(create_for(w, "/a", "sasl", "ann"), ZKE_INVALIDACL);
  ck_assert_int_eq(send_token(w, "", 0, &next), ZKE_AUTHFAILED);
  ck_assert(!next_frame(w));
}

/* ------------------------------------------------------------------------
 * --require-sasl
 * --------------------------------------------------------------------- */

/* The answer to the request with this xid refuses the client, without a zxid,
 * and the connection ends. */
static void ck_stranger(wire *w, int xid) {
  ck_assert_int_eq(answer_to(w, xid), ZKE_JUTE_SESSIONCLOSEDREQUIRESASLAUTH);
  ck_assert_int_eq(w->head.zxid, 0);
  ck_assert(!next_frame(w));
}

/* Any request is refused, even a ping, and later ones are not executed.  The
 * session stays. */
TEST(who_has_not_proven_to_be_a_user_is_refused) {
  static const int types[] = {ZKE_JUTE_EXISTS, ZKE_JUTE_WHO_AM_I, 99,
                              ZKE_JUTE_CLOSE};
  serving s = serve_users("--require-sasl");
  wire *w = begin(s), *again, *ann = begin(s);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    request(w, types[i]);
    ask(w);
    ck_stranger(w, w->xid);
    ck_assert_int_eq(attach(s, &again, w), w->id);
    hang_up(w);
    w = again;
  }
  for (int i = 0; i < 2; i++)
    ADD(w, ZKE_JUTE_CREATE, create_request, i ? "/b" : "/a", {0, ""},
        zke_open_acl, 0);
  send_out(w);
  ck_stranger(w, w->xid - 1);
  hang_up(w);
  w = begin(s);
  ck_assert_int_eq(ping(w), ZKE_JUTE_SESSIONCLOSEDREQUIRESASLAUTH);
  ck_assert_int_eq(log_in(ann, anns), 0);
  ck_assert(!is_there(ann, "/a") && !is_there(ann, "/b"));
}

/* Another identity does not help, and failed SASL gives the same error. */
TEST(only_sasl_lets_in) {
  serving s = serve_users(
      "--require-sasl --super-digest "
      "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=");
  wire *w = begin(s);
  reply r = anns;
  ck_assert_int_eq(add_auth(w, "digest", "super:admin"), 0);
  ask_read(w, ZKE_JUTE_EXISTS, "/", 0);
  ck_stranger(w, w->xid);
  hang_up(w);
  w = begin(s);
  r.password = "Secret";
  ck_assert_int_eq(log_in(w, r), ZKE_JUTE_SESSIONCLOSEDREQUIRESASLAUTH);
  ck_assert(!next_frame(w));
  w = begin(s);
  ck_assert_int_eq(log_in(w, anns), 0);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_word(s, "ruok", "imok");
}

/* A user proves it again on each connection. */
TEST(a_user_who_comes_back_is_a_stranger) {
  serving s = serve_users("--require-sasl");
  wire *w = begin(s), *again;
  ck_assert_int_eq(log_in(w, anns), 0);
  ck_assert_int_eq(ping(w), 0);
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ask_read(again, ZKE_JUTE_EXISTS, "/", 0);
  ck_stranger(again, again->xid);
}

/* ------------------------------------------------------------------------
 * Super users
 * --------------------------------------------------------------------- */

/* From ZooKeeper's documentation: super:admin. */
#define SUPER "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="

/* The super user passes every check, by its digest or as a user; a wrong digest
 * and other users do not. */
TEST(a_super_user_passes_every_check) {
  serving s = serve_users("--super-user bob --super-digest " SUPER);
  wire *w = begin(s), *other = begin(s);
  reply bob = anns;
  bob.user = "bob";
  bob.password = "a:b";
  ck_assert_int_eq(create_for(w, "/a", "ip", "10.0.0.1"), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
  ck_assert_int_eq(log_in(w, anns), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
  ck_assert_int_eq(add_auth(w, "digest", "super:Admin"), 0);
  ck_assert_int_eq(add_auth(w, "digest", "supe:admin"), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
  ck_assert_int_eq(add_auth(w, "digest", "super:admin"), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), 0);
  ck_assert_int_eq(log_in(other, bob), 0);
  ck_assert_int_eq(look(other, ZKE_JUTE_GET_DATA, "/a", 0), 0);
  ck_assert_str_eq(who_am_i(other), "ip:127.0.0.1 super: sasl:bob");
}

/* The identities of a connection are limited, so that they cannot fill the
 * server's memory: the connection ends.  A repeated identity does not count,
 * and a new connection starts with none. */
TEST(identities_of_a_connection_are_limited) {
  enum { SOME = 100, NAME = 20000 };
  static char cert[NAME + 3];
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  for (int i = 0; i < 2 * SOME; i++) {
    snprintf(cert, sizeof cert, "ann%d:x", i % SOME);
    ck_assert_int_eq(add_auth(w, "digest", cert), 0);
  }
  memset(cert, 'n', NAME);
  memcpy(cert + NAME, ":x", 3);
  int added = 0;
  while (add_auth(w, "digest", cert) == 0) {
    ck_assert_int_lt(++added, 4);
    cert[0]++;
  }
  ck_closed(w);
  ck_assert_int_ge(added, 1);
  hang_up(w);
  w = begin(s);
  ck_assert_int_eq(add_auth(w, "digest", cert), 0);
}

/* The super identity belongs to the connection, like others. */
TEST(a_super_user_who_comes_back_is_nobody) {
  serving s = serve(":memory:", "--super-digest " SUPER);
  wire *w = begin(s), *again;
  ck_assert_int_eq(create_for(w, "/a", "ip", "10.0.0.1"), 0);
  ck_assert_int_eq(add_auth(w, "digest", "super:admin"), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), 0);
  ck_assert_int_eq(attach(s, &again, w), w->id);
  ck_assert_int_eq(look(again, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
}
