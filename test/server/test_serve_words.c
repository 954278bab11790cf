/* test_serve_words.c - the four-letter words of zke serve, as whole texts
 *
 * Programs parse these texts, so their lines are those of ZooKeeper 3.8, in its
 * order.  Numbers are compared as #, and dates apart from that.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strptime() */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "test/server/wire.h"

/* ------------------------------------------------------------------------
 * Texts
 * --------------------------------------------------------------------- */

enum { TEXT = 10000, TIMEOUT_S = 10 };

/* Replace each date of dump by the word DATE.  At each, a session of the test
 * or a connection may end. */
static void take_dates(char *text) {
  static const char before[] = " expire at ";
  char *at = text;
  while ((at = strstr(at, before)) != NULL) {
    struct tm parts = {0};
    at += strlen(before);
    char *end = strptime(at, "%a %b %d %H:%M:%S UTC %Y", &parts);
    ck_assert_msg(end && *end == ':', "no date: %s", at);
    double left = difftime(timegm(&parts), time(NULL));
    ck_assert(left > -1 && left <= 2 * TIMEOUT_S + 5);
    memmove(at + 4, end, strlen(end) + 1);
    memcpy(at, "DATE", 4);
  }
}

/* The answer to a word is this text. */
static void ck_text(serving s, const char *word, const char *text) {
  char got[TEXT], wanted[TEXT], masked[TEXT];
  snprintf(got, sizeof got, "%s", says(s, word));
  take_dates(got);
  mask_numbers(masked, got);
  mask_numbers(wanted, text);
  ck_assert_str_eq(masked, wanted);
}

/* A server whose clock stands still, so that sessions end together; with a file
 * or in memory. */
static serving serve_still(const char *file) {
  ck_assert_int_eq(setenv("TZ", "UTC", 1), 0);
  serving s = serve(file, "--control");
  order(s, "stop-clock");
  return s;
}

/* ------------------------------------------------------------------------
 * The words
 * --------------------------------------------------------------------- */

#define NUMBER "3.8.0-zkembed-1.0.0, built on 2026-11-30 00:00 UTC\n"
#define VERSION "Zookeeper version: " NUMBER
#define STATE                                                            \
  "Latency min/avg/max: 0/0.0000/0\nReceived: 1\nSent: 1\nConnections: " \
  "1\nOutstanding: 0\nZxid: 0x1\nMode: standalone\nNode count: 1\n"

/* Sessions that end at one time are one set; a session with ephemeral nodes is
 * a heading; the connection that asks has no session. */
TEST(dump_has_zookeepers_form) {
  serving s = serve_still(":memory:");
  wire *a = begin_with(s, TIMEOUT_S * 1000),
       *b = begin_with(s, 2000 * TIMEOUT_S);
  begin_with(s, TIMEOUT_S * 1000);
  ck_assert_int_eq(create(a, "/e1", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(create(a, "/e2", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(create(b, "/e3", "", ZKE_EPHEMERAL), 0);
  ck_text(s, "dump",
          "SessionTracker dump:\nSession Sets (2)/(3):\n2 expire at DATE:\n"
          "\t0x1\n\t0x1\n1 expire at DATE:\n\t0x1\nephemeral nodes dump:\n"
          "Sessions with Ephemerals (2):\n0x1:\n\t/e3\n0x1:\n\t/e1\n\t/e2\n"
          "Connections dump:\nConnections Sets (2)/(4):\n3 expire at DATE:\n"
          "\tip: /127.0.0.1:1 sessionId: 0x0\n"
          "\tip: /127.0.0.1:1 sessionId: 0x1\n"
          "\tip: /127.0.0.1:1 sessionId: 0x1\n1 expire at DATE:\n"
          "\tip: /127.0.0.1:1 sessionId: 0x1\n");
  ck_word(s, "dump", "Sessions with Ephemerals (2):\n");
  ck_word(s, "dump", "Connections Sets (2)/(4):\n3 expire at ");
}

/* The connection that asks comes first, since it is the newest. */
TEST(cons_and_stat_have_zookeepers_form) {
  serving s = serve_still(":memory:");
  wire *w = begin(s);
  create(w, "/a", "", 0);
  ck_text(s, "cons",
          " /127.0.0.1:1[0](queued=0,recved=1,sent=0)\n /127.0.0.1:1[1]("
          "queued=0,recved=2,sent=2,sid=0x1,lop=CREA,est=1,to=10000,lcxid=0x1,"
          "lzxid=0x1,lresp=1,llat=0,minlat=0,avglat=0,maxlat=0)\n\n");
  ck_text(s, "stat",
          VERSION
          "Clients:\n /127.0.0.1:1[0](queued=0,recved=1,sent=0)\n "
          "/127.0.0.1:1[1](queued=0,recved=2,sent=2)\n\n" STATE);
  ck_text(s, "srvr", VERSION STATE);
}

/* Pings and auths have numbers below 0, which are not the client's. */
TEST(a_ping_is_not_the_last_request) {
  serving s = serve_still(":memory:");
  wire *w = begin(s);
  ck_word(s, "cons", ",lop=SESS,");
  ck_word(s, "cons", ",lcxid=0x0,");
  for (int i = 0; i < 3; i++) create(w, "/a", "", 0);
  ck_word(s, "cons", ",lcxid=0x3,");
  ck_assert_int_eq(add_auth(w, "digest", "a:b"), 0);
  ck_assert_int_eq(ping(w), 0);
  ck_word(s, "cons", ",lop=PING,");
  ck_word(s, "cons", ",lcxid=0x3,");
}

/* A database in memory has no size. */
TEST(conf_tells_the_sizes_of_files) {
  char text[TEXT];
  const char *file = test_path("app.db");
  static const char rest[] =
      "tickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\n"
      "maxSessionTimeout=40000\nclientPortListenBacklog=-1\nserverId=0\n";
  serving s = serve_still(file);
  snprintf(text, sizeof text,
           "clientPort=1\nsecureClientPort=-1\ndataDir=%s\ndataDirSize=1\n"
           "dataLogDir=%s\ndataLogSize=1\n%s",
           file, file, rest);
  ck_text(s, "conf", text);
  ck_assert_int_gt(
      strtoll(strstr(says(s, "conf"), "dataDirSize=") + 12, NULL, 10), 0);
  ck_assert_int_gt(
      strtoll(strstr(says(s, "conf"), "dataLogSize=") + 12, NULL, 10), 0);
  stop(s);
  s = serve_still(":memory:");
  snprintf(text, sizeof text,
           "clientPort=1\nsecureClientPort=-1\ndataDir=:memory:\n%s", rest);
  ck_text(s, "conf", text);
}

/* Each value is true of this host and this process. */
TEST(envi_has_zookeepers_form) {
  char text[TEXT];
  struct utsname host;
  ck_assert_int_eq(uname(&host), 0);
  serving s = serve_still(":memory:");
  snprintf(text, sizeof text,
           "Environment:\nzookeeper.version=" NUMBER
           "host.name=%s\nos.name=%s\nos.arch=%s\nos.version=%s\n",
           host.nodename, host.sysname, host.machine, host.release);
  ck_text(s, "envi", text);
}

/* Paths by session, the newest first, and sessions by path. */
TEST(lists_of_watches_have_zookeepers_form) {
  serving s = serve_still(":memory:");
  wire *w = begin(s), *other = begin(s);
  look(w, ZKE_JUTE_EXISTS, "/a", 1);
  look(w, ZKE_JUTE_EXISTS, "/b", 1);
  look(other, ZKE_JUTE_EXISTS, "/a", 1);
  ck_text(s, "wchs", "2 connections watching 2 paths\nTotal watches:3\n");
  ck_text(s, "wchc", "0x1\n\t/a\n0x1\n\t/a\n\t/b\n\n");
  ck_text(s, "wchp", "/a\n\t0x1\n\t0x1\n/b\n\t0x1\n\n");
}
