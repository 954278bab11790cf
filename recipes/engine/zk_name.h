/* zk_name.h - for zookeeper.c: parsing the name of an ensemble
 *
 *     zk://host[:port][,host[:port]…][/chroot][?timeout=MS&sync=0&thread=1]
 *
 * A host is a name, an IPv4 address, or an IPv6 address in brackets.  The port
 * is 2181 by default.  This pair of files knows texts only.
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
  int64_t timeout_ms; /* 0: not given */
  bool sync;          /* reads are preceded by a sync */
  bool thread;        /* a thread of the handle keeps the session */
  char *block;        /* holds all texts */
} zk_name;

/* zke_ensemble_name_parse - parse a name
 *
 *   out  out: for zke_ensemble_name_free(), even after a failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS with a sentence that names the error, or
 * ZKE_NOMEM. */
int zke_ensemble_name_parse(const char *text, zk_name *out);
void zke_ensemble_name_free(zk_name *name);

/* zke_ensemble_path_check - the check that ZooKeeper's C client makes before it
 * sends a path (doc/semantics.md 1.3).  sequential: a number will follow. */
bool zke_ensemble_path_check(const char *path, bool sequential);

#ifdef __cplusplus
}
#endif

#endif
