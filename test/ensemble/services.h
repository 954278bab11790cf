/* services.h - two services, one of them with old reads, for tests and bench
 *
 * `near` is one server.  `far` is a ZooKeeper service of two: a leader, which
 * votes alone, and an observer.  A proxy delays everything between them, so
 * reads of the observer show the past.
 *
 *     services s;
 *     if (!services_start(&s, "zookeeper", "/dev/shm")) ...
 *     services_delay(&s, 5);
 *     services_name(&s, SERVICES_OBSERVER, "?sync=0", name, sizeof name);
 *     rc = zke_open(name, NULL, &z);
 *     ...
 *     services_stop(&s);
 *
 * The servers are children of the thread that started them, and die with it.
 * Each has at most 256 MiB of Java's heap.
 */
#ifndef ZKE_TEST_SERVICES_H
#define ZKE_TEST_SERVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "test/ensemble/proxy.h"

typedef enum service_server {
  SERVICES_NEAR,
  SERVICES_LEADER,  /* of far */
  SERVICES_OBSERVER /* of far */
} service_server;

enum { SERVICES_SERVERS = 3 };

typedef struct services {
  char directory[400]; /* of the servers' files */
  pid_t pid[SERVICES_SERVERS];
  int port[SERVICES_SERVERS];
  proxy way; /* from the observer to the leader */
} services;

/* Start all, and wait until each gives a session.  near: a kind of server.sh,
 * "zke" or "zookeeper".  base: a directory for their files.  zke_zookeeper must
 * be registered.  False, and reported on stderr: they did not start. */
bool services_start(services *s, const char *near, const char *base);

/* Stop all, and remove their files. */
void services_stop(services *s);

/* Delay everything between the leader and the observer by so many milliseconds,
 * in both directions. */
void services_delay(services *s, int ms);

/* The name of a server for zke_open(), with this text after it. */
void services_name(const services *s, service_server which, const char *query,
                   char *out, size_t size);

#endif
