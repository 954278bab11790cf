/* stub.h - a ZooKeeper server, in a thread, that obeys a test
 *
 * It greets, and answers every request with success and a well-formed body; it
 * keeps no tree.  A test sets the members to get what a real server does seldom
 * or never: another session, silence, its own bytes.
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
  atomic_int session;     /* in greetings; 0: it has ended */
  atomic_int timeout_ms;  /* in greetings */
  atomic_bool silent;     /* accept connections, but send nothing */
  atomic_long zxid;       /* in answers */
  atomic_int answered;    /* frames of setWatches2 that are answered; later ones
                           * are not */
  const char *event;      /* sent once, before the next answer: a whole frame */
  atomic_int event_bytes; /* its length; set last */
  const char *made;       /* the path in answers to creates */
  /* ---- */
  int fd, port;
  pthread_t thread;
  atomic_bool over, cut;
  char *frame;           /* the frame being read */
  atomic_int pings;      /* received */
  atomic_int auths;      /* identities received */
  atomic_int syncs;      /* received */
  atomic_int watches;    /* frames of setWatches2 received */
  atomic_long relative;  /* the zxid in the latest of them */
  atomic_int longest;    /* of the received frames, bytes */
  atomic_int clients;    /* open connections */
  atomic_long last_zxid; /* in the latest greeting */
  stub_client client[STUB_CLIENTS];
} stub;

void stub_begin(stub *s);
void stub_end(stub *s);
/* Close all connections before it returns. */
void stub_cut(stub *s);

#endif
