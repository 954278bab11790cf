/* proxy.h - a bad network between a client and a ZooKeeper server, for tests
 *
 * A process of its own listens on a free port of 127.0.0.1 and passes on what
 * comes, both ways.  Its parent orders what goes wrong:
 *
 *     proxy p;
 *     if (!proxy_start(&p, server_port)) ...
 *     ...a client connects to p.port...
 *     proxy_delay(&p, 5, 5);             // ms, to the server and back
 *     proxy_lose(&p, PROXY_AFTER, 0);    // the next change loses its reply
 *     proxy_cut(&p);                     // the client comes back
 *     proxy_end(&p);
 *
 * When an order returns it is in force.  The child keeps no descriptor of the
 * parent's; it dies with the parent.  A proxy belongs to the process that has
 * started it: another must not give it orders.
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

/* Begin, before a server at this port of 127.0.0.1.  False: it could not. */
bool proxy_start(proxy *p, int server_port);
void proxy_end(proxy *p); /* all connections are cut */

/* Connections from now on are made to this port. */
void proxy_aim(proxy *p, int server_port);

/* Connections from now on are no client's: what comes is not taken for frames
 * but passed on as it comes.  Nothing of it can be lost by proxy_lose(). */
void proxy_plain(proxy *p);

/* What comes from now on arrives so many milliseconds later. */
void proxy_delay(proxy *p, int to_server_ms, int to_client_ms);

/* Reset all connections; what was under way is lost.  How many there were. */
long proxy_cut(proxy *p);

/* Nobody listens any more; or again. */
void proxy_refuse(proxy *p, bool refuse);

/* Nothing is read or passed on, and connections stay open; or as before, with
 * what has come meanwhile. */
void proxy_freeze(proxy *p, bool freeze);

/* Of the requests that change the tree the next one, after so many that pass,
 * resets its connection.  BEFORE: the server does not get it.  AFTER: the
 * server has answered, and the answer is lost.  NEVER: takes an order back that
 * was not carried out. */
enum { PROXY_NEVER, PROXY_BEFORE, PROXY_AFTER };
void proxy_lose(proxy *p, int when, int skip);

long proxy_lost(proxy *p);  /* how many requests and replies have been lost */
long proxy_links(proxy *p); /* how many connections there are */

/* Keep a free port of 127.0.0.1 for whoever is going to listen there with
 * SO_REUSEADDR, until the descriptor is closed; -1: it could not. */
int proxy_hold_port(int *port);

#endif
