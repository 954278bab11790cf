/* ops.h - the calls that a process of the load makes */
#ifndef ZKE_SIM_OPS_H
#define ZKE_SIM_OPS_H

#include "zkembed.h"

extern const char *const ops_file;

/* A container is removed so long after its last child.  The user may do all. */
enum { ops_container_ms = 100 };
#define OPS_USER "user:secret"

/* A thread of a process; the handle is the process's. */
typedef struct ops_actor {
  int slot, thread;
  zke *z;
} ops_actor;

/* ops_open  - open with options of the plan, and random ones
 * ops_nodes - make the nodes that all work on; a result
 * ops_set   - set a register
 * ops_create - make a node, with one byte of data or NULL; a result.  The
 *             path returned is for zke_free(); path_out may be NULL
 * ops_any   - one call, or some that belong together
 * ops_wait  - sleep for events for ms
 * ops_told  - the result of a dispatch or a wait: these return ZKE_OK, too, if
 *             they have found that the session has ended
 * ops_look  - read all and compare with what is known */
int ops_open(int slot, zke **z_out);
int ops_nodes(const ops_actor *a);
void ops_set(const ops_actor *a);
int ops_create(const ops_actor *a, const char *name, const char *path,
               const char *data, int mode, char **path_out);
void ops_any(const ops_actor *a);
int ops_wait(const ops_actor *a, int64_t ms);
int ops_told(const ops_actor *a, int rc);
void ops_look(const ops_actor *a);
void ops_check(const ops_actor *a);
int ops_close(int slot, zke *z);

/* Until then only make calls that are not synced. */
void ops_calm(int64_t until);

#endif
