/* proxy.h - a bad network between a client and a ZooKeeper server, for tests
 *
 * A separate process listens on a free port of 127.0.0.1 and passes on all
 * bytes, both ways.  Its parent orders the faults:
 *
 *     proxy p;
 *     if (!proxy_start(&p, server_port)) ...
 *     ...a client connects to p.port...
 *     proxy_delay(&p, 5, 5);             // ms, to the server and back
 *     proxy_lose(&p, PROXY_AFTER, 0);    // the next change loses its reply
 *     proxy_cut(&p);                     // the client comes back
 *     proxy_end(&p);
 *
 * When a function returns, its order is in force.  The child keeps none of the
 * parent's descriptors, and dies with the parent.  A proxy belongs to the
 * process that started it: no other may give it orders.
 */
#ifndef ZKE_TEST_PROXY_H
#define ZKE_TEST_PROXY_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct proxy {
  pid_t pid;
  int port;   /* where it listens */
  int orders; /* a descriptor */
} proxy;

/* Start a proxy before a server at this port of 127.0.0.1.  False: it
 * failed. */
bool proxy_start(proxy *p, int server_port);
void proxy_end(proxy *p); /* cuts all connections */

/* Make new connections to this port. */
void proxy_aim(proxy *p, int server_port);

/* New connections are no client's: their bytes are passed on as they come, and
 * not taken for frames.  proxy_lose() loses none of them. */
void proxy_plain(proxy *p);

/* Delay all new bytes by so many milliseconds. */
void proxy_delay(proxy *p, int to_server_ms, int to_client_ms);

/* Reset all connections; bytes under way are lost.  How many there were. */
long proxy_cut(proxy *p);

/* Stop listening; or listen again. */
void proxy_refuse(proxy *p, bool refuse);

/* Read and pass on nothing, with open connections; or continue, with what has
 * come meanwhile. */
void proxy_freeze(proxy *p, bool freeze);

/* After `skip` changes that pass, reset the connection of the next request that
 * changes the tree.  BEFORE: the server does not get it.  AFTER: the server has
 * answered, and the answer is lost.  NEVER: cancel an order that was not yet
 * carried out. */
enum { PROXY_NEVER, PROXY_BEFORE, PROXY_AFTER };
void proxy_lose(proxy *p, int when, int skip);

long proxy_lost(proxy *p);  /* how many requests and replies have been lost */
long proxy_links(proxy *p); /* how many connections there are */

/* Keep a free port of 127.0.0.1 for a process that will listen there with
 * SO_REUSEADDR, until the descriptor is closed; -1: it failed. */
int proxy_hold_port(int *port);

#endif
