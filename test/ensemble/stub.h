/* stub.h - a ZooKeeper server that does what a test says, in a thread
 *
 * It greets, and answers every request with success and a body that is well
 * formed; it keeps no tree.  What a real server does seldom or never is set by
 * the members: another session, silence, bytes of the test.
 *
 *     stub s;
 *     stub_begin(&s);
 *     snprintf(name, sizeof name, "zk://127.0.0.1:%d", s.port);
 *     ...a client...
 *     stub_end(&s);
 *
 * The members above the line may be changed at any time.
 */
#ifndef ZKE_TEST_STUB_H
#define ZKE_TEST_STUB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STUB_CLIENTS = 16 };

typedef struct stub_client {
  int fd;
  bool greeted;
} stub_client;

typedef struct stub {
  atomic_int session;     /* that greetings give; 0: they say it has ended */
  atomic_int timeout_ms;  /* that they give */
  atomic_bool silent;     /* it takes connections, and says nothing */
  atomic_long zxid;       /* that answers tell */
  atomic_int answered;    /* frames of setWatches2 that have an answer; later
                             ones have none */
  const char *event;      /* sent once, before the next answer: a whole frame */
  atomic_int event_bytes; /* its length; set last */
  const char *made;       /* the path that creates are answered with */
  /* ---- */
  int fd, port;
  pthread_t thread;
  atomic_bool over, cut;
  char *frame;           /* one that is being read */
  atomic_int pings;      /* that have come */
  atomic_int auths;      /* identities that have come */
  atomic_int syncs;      /* that have come */
  atomic_int watches;    /* frames of setWatches2 that have come */
  atomic_long relative;  /* the zxid of the latest of them */
  atomic_int longest;    /* of the frames that have come, bytes */
  atomic_int clients;    /* connections that are open */
  atomic_long last_zxid; /* that the latest greeting has told */
  stub_client client[STUB_CLIENTS];
} stub;

void stub_begin(stub *s);
void stub_end(stub *s);
/* Close all connections; when it returns they are closed. */
void stub_cut(stub *s);

#endif
