/* zk_name.h - for zookeeper.c: the name of an ensemble, taken apart
 *
 *     zk://host[:port][,host[:port]…][/chroot][?timeout=MS&sync=0&thread=1]
 *
 * A host is a name, an IPv4 address, or an IPv6 address in brackets.  The port
 * is 2181 where none is said.  This pair of files knows texts only.
 */
#ifndef ZKE_ZK_NAME_H
#define ZKE_ZK_NAME_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZK_NAME_PREFIX "zk://"

enum { ZK_NAME_SERVERS = 64 }; /* in one name */

typedef struct zk_server {
  const char *host, *port;
} zk_server;

typedef struct zk_name {
  zk_server servers[ZK_NAME_SERVERS];
  int count;
  const char *chroot; /* "" or "/a/b" */
  int64_t timeout_ms; /* 0: not said */
  bool sync;          /* reads are preceded by a sync */
  bool thread;        /* a thread of its own keeps the session */
  char *block;        /* what all texts point into */
} zk_name;

/* zk_name_parse - take a name apart
 *
 *   out  out: for zke_ensemble_name_free(), also after a failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS with a sentence that says what is wrong, or
 * ZKE_NOMEM. */
int zke_ensemble_name_parse(const char *text, zk_name *out);
void zke_ensemble_name_free(zk_name *name);

/* zk_path_check - what ZooKeeper's C client checks before it sends a path
 * (doc/semantics.md 1.3).  sequential: the end may be that of a prefix. */
bool zke_ensemble_path_check(const char *path, bool sequential);

#ifdef __cplusplus
}
#endif

#endif
