/* discovery.h - where a service can be reached
 *
 *     zke_discovery *web;
 *     zke_discovery_new(z, "/services", "web", NULL, &web);
 *
 *     // the service
 *     zke_discovery_register(web, "10.0.0.7:80", "v2", 2, deadline);
 *
 *     // its clients
 *     zke_instance *i;
 *     if (zke_discovery_pick(web, ZKE_PICK_ROUND_ROBIN, &i) == ZKE_OK) {
 *       printf("connect to %s\n", i->address);
 *       zke_free(i);
 *     }
 *
 *     zke_discovery_free(web);  // and unregistered
 *
 * LAYOUT: a service is a group (group.h) of its own kind.
 *
 *     /services
 *       web                               container, data "zkembed service"
 *         _c_<guid>-member-0000000000     ephemeral: "<pid> <identity>", the
 *                                         address, the payload, on a line each
 *
 * IF THE PROCESS DIES its instance goes with its session, and the clients hear
 * of it.  Registering and unregistering are one step each.
 *
 * WHO IS WOKEN: every object that was started, by each change of the service's
 * instances.
 *
 * LOSING THE SESSION, or the instance to somebody's delete: the listener hears
 * ZKE_DISCOVERY_LOST; as in group.h.
 *
 * FENCING: nothing is held that would need it.
 */
#ifndef ZKEMBED_RECIPES_DISCOVERY_H
#define ZKEMBED_RECIPES_DISCOVERY_H

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_discovery zke_discovery;

/* One process that offers a service. */
typedef struct zke_instance {
  const char *id;      /* of its znode, unique */
  const char *address; /* as it was registered */
  const char *payload; /* followed by a NUL that is not counted */
  int len;             /* bytes of the payload */
  int64_t session;
  int64_t czxid;    /* when it was registered, in the order of all things */
  int64_t mzxid;    /* when it was updated */
  int64_t since_ms; /* when it was registered, ms since 1970 */
  const char *identity;
  int64_t pid; /* in its own PID namespace; for display */
  int64_t reserved[4];
} zke_instance;

/* One block, released by zke_free(); in the order of registration. */
typedef struct zke_instance_list {
  int count;
  const zke_instance *data;
} zke_instance_list;

enum {
  ZKE_DISCOVERY_OUT = 0,   /* a state only: not registered */
  ZKE_DISCOVERY_ADDED = 1, /* an instance came; at the start: is there.  As a
                              state: what this object offers is registered */
  ZKE_DISCOVERY_CHANGED = 2,
  ZKE_DISCOVERY_REMOVED = 3, /* with its last address and payload */
  ZKE_DISCOVERY_READY = 4,   /* those there at the start were told; NULL */
  ZKE_DISCOVERY_LOST = 5     /* one's own instance, or the session; NULL */
};

/* instance lives until the listener returns. */
typedef void (*zke_discovery_fn)(zke_discovery *service, int event,
                                 const zke_instance *instance, void *context);

typedef struct zke_discovery_options {
  size_t size;
  zke_discovery_fn listener;
  void *context;
} zke_discovery_options;

/* zke_discovery_new - an object for one service; does not touch the tree
 *
 *   base,name    the service is base/name; name has no '/'
 *   options      NULL for the defaults; copied
 *   service_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_discovery_new(zke *z, const char *base, const char *name,
                              const zke_discovery_options *options,
                              zke_discovery **service_out);

/* zke_discovery_free - unregister, release the object; NULL is fine
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_discovery_free(zke_discovery *service);

/* zke_discovery_register   - offer the service
 * zke_discovery_update     - with another address and payload
 * zke_discovery_unregister - offer it no more
 *
 *   address      text without a newline
 *   payload,len  any bytes; NULL and 0 for none
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Return ZKE_OK, or
 *   ZKE_MISUSE        register: this object has registered already
 *   ZKE_LOST          update, unregister: it is not registered
 *   ZKE_OTHERKIND     the path is not a service's
 *   ZKE_BADARGUMENTS  the address is NULL or has a newline, or len is negative
 *   ZKE_INVALIDSTATE  the session has ended
 * After another failure of register the instance is not there, or goes as soon
 * as the session can delete it; after one of update it is as before, and after
 * one of unregister it goes as after one of register.
 * Threads: any.  In a callback: yes.  Block: on the disk. */
ZKE_API int zke_discovery_register(zke_discovery *service, const char *address,
                                   const void *payload, int len,
                                   int64_t deadline_ms);
ZKE_API int zke_discovery_update(zke_discovery *service, const char *address,
                                 const void *payload, int len,
                                 int64_t deadline_ms);
ZKE_API int zke_discovery_unregister(zke_discovery *service);

/* zke_discovery_start  - keep the list current in memory, tell the listener
 * zke_discovery_step   - look again now, as dispatches do by themselves
 * zke_discovery_list   - all, out of memory once started, else out of the file;
 *                        list_out: not NULL
 * zke_discovery_state  - ZKE_DISCOVERY_OUT, _ADDED or _LOST: of what one has
 *                        registered, as known without asking the file
 * zke_discovery_wait   - until at least so many instances are there; starts
 * zke_discovery_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                        ZKE_IDLE where none runs
 *
 * Return ZKE_OK, the state, or
 *   ZKE_OTHERKIND         start, list, wait: the path is not a service's
 *   ZKE_OPERATIONTIMEOUT  wait: at the deadline; the sentence says who is there
 *   ZKE_CANCELLED         wait: zke_discovery_cancel()
 *   ZKE_MISUSE            wait: another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended; of state it is _LOST
 * Threads: any.  In a callback: yes.  Wait blocks until the deadline, start,
 * step and a list before the start on the disk. */
ZKE_API int zke_discovery_start(zke_discovery *service);
ZKE_API int zke_discovery_step(zke_discovery *service);
ZKE_API int zke_discovery_state(zke_discovery *service);
ZKE_API int zke_discovery_list(zke_discovery *service,
                               zke_instance_list **list_out);
ZKE_API int zke_discovery_wait(zke_discovery *service, int instances,
                               int64_t deadline_ms);
ZKE_API int zke_discovery_cancel(zke_discovery *service);

enum {
  ZKE_PICK_FIRST = 0,       /* the one that was registered first */
  ZKE_PICK_ROUND_ROBIN = 1, /* the one registered next after the one that this
                               object picked last so; after the last the first.
                               Whoever comes or goes, no other is left out */
  ZKE_PICK_RANDOM = 2       /* each with the same probability */
};

/* zke_discovery_pick - one instance
 *
 * Out of memory; the first call starts.  An instance may have gone by the time
 * it is asked: pick again then.
 *
 *   rule          ZKE_PICK_…
 *   instance_out  out, not NULL: one block
 *
 * Returns ZKE_OK, ZKE_NONODE where there is none, or as zke_discovery_start().
 * Threads: any; each pick of a round counts once.  In a callback: yes.
 * Blocks: on the disk when it starts. */
ZKE_API int zke_discovery_pick(zke_discovery *service, int rule,
                               zke_instance **instance_out);

/* zke_discovery_names - the services of a base that have instances, sorted
 *
 *   names_out  out, not NULL: one block; count 0 where the base is missing
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what zke_children() returns.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_discovery_names(zke *z, const char *base,
                                zke_strings **names_out);

/* ------------------------------------------------------------------------
 * Observing: which services there are
 * --------------------------------------------------------------------- */

typedef struct zke_services zke_services;

enum {
  ZKE_SERVICES_ADDED = 1,   /* its first instance came; at the start: has one */
  ZKE_SERVICES_REMOVED = 3, /* its last one went */
  ZKE_SERVICES_READY = 4,   /* those there at the start were told; NULL */
  ZKE_SERVICES_LOST = 5     /* the session has ended; NULL */
};

/* name lives until the listener returns. */
typedef void (*zke_services_fn)(zke_services *services, int event,
                                const char *name, void *context);

typedef struct zke_services_options {
  size_t size;
  zke_services_fn listener;
  void *context;
} zke_services_options;

/* zke_services_new   - an object for the services of a base; does not touch the
 *                      tree
 * zke_services_free  - NULL is fine
 * zke_services_start - tell the listener from now on; first of all which
 *                      services have instances.  One that went and came between
 *                      two dispatches is not told
 * zke_services_step  - look again now, as dispatches do by themselves
 *
 *   base          where the services are; it need not exist; not "/"
 *   options       NULL for the defaults; copied
 *   services_out  out, not NULL; NULL on failure
 *
 * The instances of all services of the base are kept in memory, and each one
 * that comes or goes wakes: see config.h.
 *
 * Return ZKE_OK, ZKE_BADARGUMENTS, ZKE_INVALIDSTATE when the session has ended,
 * or what the handle's state asks for.  Threads: any; free while no other call
 * on it runs.  In a callback: yes.  Start and step block on the disk.
 * Since 0.1. */
ZKE_API int zke_services_new(zke *z, const char *base,
                             const zke_services_options *options,
                             zke_services **services_out);
ZKE_API void zke_services_free(zke_services *services);
ZKE_API int zke_services_start(zke_services *services);
ZKE_API int zke_services_step(zke_services *services);

#ifdef __cplusplus
}
#endif

#endif
