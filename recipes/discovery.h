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
 * The rules that every recipe keeps stand in support.h: deadlines, listeners,
 * cancellation, what a failed call leaves, the end of the session, fork().
 * It does what Curator's ServiceDiscovery, ServiceCache and ServiceProvider do,
 * without their instance serializer: the address is a line of text, and the
 * payload is any bytes.
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
 * COSTS are those of group.h: registering two writes and two reads, an update
 * one write, and one more when its event is dispatched, unregistering two
 * writes, a change one read for each object that was started.  Lists and picks
 * after the start cost no transaction.
 *
 * LOSING THE SESSION, or the instance to a process that deletes it: the
 * listener hears ZKE_DISCOVERY_LOST; as in group.h.
 *
 * FENCING: nothing is held that would need it.
 *
 * ON AN ENSEMBLE (zookeeper.h): as in group.h: an instance that has died is
 * listed for the session's timeout.
 *
 * MISTAKES, and what they come to:
 * - Keeping an instance that was picked: it may have gone since.  Pick again
 *   for each connection; a pick is cheap.
 * - Taking "it is registered" for "it answers": an instance is there as long as
 *   its session, and a process that hangs keeps its session.
 * - Registering before the address can be reached: clients connect at once.
 * - One object for two instances: the second register is ZKE_MISUSE.
 */
#ifndef ZKEMBED_RECIPES_DISCOVERY_H
#define ZKEMBED_RECIPES_DISCOVERY_H

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_discovery zke_discovery;

/* One process that offers a service.  Its strings lie in the same block. */
typedef struct zke_instance {
  const char *id;       /* of its znode, unique */
  const char *address;  /* as it was registered */
  const char *payload;  /* followed by a NUL that is not counted */
  int len;              /* bytes of the payload */
  int64_t session;      /* that registered it */
  int64_t czxid;        /* zxid of the registration: orders the instances */
  int64_t mzxid;        /* zxid of the last update, or of the registration */
  int64_t since_ms;     /* when it was registered, ms since 1970 */
  const char *identity; /* of that session (zke_options.identity) */
  int64_t pid;          /* in its own PID namespace; for display */
  int64_t reserved[4];
} zke_instance;

/* One block, released by zke_free(); in the order of registration. */
typedef struct zke_instance_list {
  int count;
  const zke_instance *data;
} zke_instance_list;

/* What the listener hears, and what zke_discovery_state() returns; the states
 * are those of group.h. */
enum {
  ZKE_DISCOVERY_OUT = 0,     /* a state only: not registered */
  ZKE_DISCOVERY_ADDED = 1,   /* an instance came, or was there at the start.
                                As a state: this object's is registered */
  ZKE_DISCOVERY_CHANGED = 2, /* an instance has another address or payload */
  ZKE_DISCOVERY_REMOVED = 3, /* with its last address and payload */
  ZKE_DISCOVERY_READY = 4,   /* all that were there at the start have been told;
                                the instance is NULL */
  ZKE_DISCOVERY_LOST = 5     /* the object's own instance, or the session, is
                                gone; the instance is NULL */
};

/* Called after zke_discovery_start(), or the first pick or wait; with
 * ZKE_DISCOVERY_LOST in any case.  instance is the recipe's, and lives until
 * the listener returns.
 *
 * Example: close the connections of an instance that has gone.
 *
 *     static void heard(zke_discovery *service, int event,
 *                       const zke_instance *instance, void *context) {
 *       (void)service, (void)context;
 *       if (event == ZKE_DISCOVERY_REMOVED)
 *         printf("disconnect from %s\n", instance->address);
 *     }
 */
typedef void (*zke_discovery_fn)(zke_discovery *service, int event,
                                 const zke_instance *instance, void *context);

typedef struct zke_discovery_options {
  size_t size;
  zke_discovery_fn listener; /* or NULL */
  void *context;             /* for the listener; borrowed */
} zke_discovery_options;

/* zke_discovery_new - an object for one service; writes nothing
 *
 *   base,name    the service is base/name; name has no '/'
 *   options      NULL for the defaults; copied
 *   service_out  out, not NULL; NULL on failure.  For zke_discovery_free()
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS (the path, or service_out is NULL),
 * ZKE_NOMEM, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_discovery_new(zke *z, const char *base, const char *name,
                              const zke_discovery_options *options,
                              zke_discovery **service_out);

/* zke_discovery_free - unregister, release the object; NULL is fine
 *
 * Afterwards the listener does not run on any thread.  Instances and lists that
 * the object gave stay valid.
 * Threads: any, while no other call on it runs.  In a callback: yes.
 * Blocks: on the disk. */
ZKE_API void zke_discovery_free(zke_discovery *service);

/* zke_discovery_register   - offer the service
 * zke_discovery_update     - the same with another address and payload
 * zke_discovery_unregister - offer it no more
 *
 * Example: take an instance out of service, finish, and go.
 *
 *     rc = zke_discovery_register(service, "10.0.0.7:80", "v2", 2, deadline);
 *     if (rc == ZKE_OK)
 *       rc = zke_discovery_update(service, "10.0.0.7:80", "drain", 5,
 *       deadline);
 *     if (rc == ZKE_OK) rc = zke_discovery_unregister(service);
 *
 *   address      text without a newline; copied
 *   payload,len  any bytes, copied; NULL and 0 for none
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Return ZKE_OK, or
 *   ZKE_MISUSE        register: this object has registered already
 *   ZKE_LOST          update, unregister: it is not registered
 *   ZKE_OTHERKIND     register: the path belongs to something else
 *   ZKE_BADARGUMENTS  the address is NULL or has a newline, or len is negative
 *   ZKE_INVALIDSTATE  the session has ended
 * After another failure of register or unregister the instance is not there, or
 * goes as soon as the session can delete it; after one of update it is
 * registered, and the call can be repeated.
 * Threads: any.  In a callback: yes.  Block: on the disk.  Since 0.1. */
ZKE_API int zke_discovery_register(zke_discovery *service, const char *address,
                                   const void *payload, int len,
                                   int64_t deadline_ms);
ZKE_API int zke_discovery_update(zke_discovery *service, const char *address,
                                 const void *payload, int len,
                                 int64_t deadline_ms);
ZKE_API int zke_discovery_unregister(zke_discovery *service);

/* zke_discovery_start  - keep the list current in memory, tell the listener
 * zke_discovery_step   - look again now, as dispatches do by themselves
 * zke_discovery_list   - all instances: from memory after the start, else from
 *                        the file; list_out: not NULL, one block
 * zke_discovery_state  - ZKE_DISCOVERY_OUT, _ADDED or _LOST: of what this
 *                        object has registered, as known without asking the
 *                        file
 * zke_discovery_wait   - wait until at least so many instances are there;
 *                        starts where that has not been done
 * zke_discovery_cancel - the wait that another thread has running on the object
 *                        returns ZKE_CANCELLED; ZKE_IDLE where none runs
 *
 * Example: wait for two servers, and show them.
 *
 *     zke_instance_list *all;
 *     rc = zke_discovery_wait(service, 2, deadline);
 *     if (rc == ZKE_OK) rc = zke_discovery_list(service, &all);
 *     for (int i = 0; rc == ZKE_OK && i < all->count; i++)
 *       printf("%s %s\n", all->data[i].address, all->data[i].payload);
 *     if (rc == ZKE_OK) zke_free(all);
 *
 * Return ZKE_OK, the state, or
 *   ZKE_OTHERKIND         start, wait: the path belongs to something else
 *   ZKE_OPERATIONTIMEOUT  wait: at the deadline; the sentence says who is there
 *   ZKE_CANCELLED         wait: zke_discovery_cancel()
 *   ZKE_MISUSE            wait: another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended; state is _LOST then
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

/* How zke_discovery_pick() chooses. */
enum {
  ZKE_PICK_FIRST = 0,       /* the instance that was registered first */
  ZKE_PICK_ROUND_ROBIN = 1, /* the instance registered next after the one that
                               this object picked last by this rule; after the
                               last one the first.  When instances come or go,
                               no other one is left out */
  ZKE_PICK_RANDOM = 2       /* each with the same probability */
};

/* zke_discovery_pick - one instance
 *
 * From memory; the first call starts.  An instance may have gone by the time
 * it is asked: pick again then.
 *
 * Example: connect, and try the next instance where that fails.
 *
 *     zke_instance *i;
 *     for (int n = 0; n < 3; n++) {
 *       rc = zke_discovery_pick(service, ZKE_PICK_ROUND_ROBIN, &i);
 *       if (rc != ZKE_OK) break;
 *       printf("connect to %s\n", i->address);
 *       zke_free(i);
 *     }
 *
 *   rule          ZKE_PICK_…; anything else is ZKE_BADARGUMENTS
 *   instance_out  out, not NULL: one block for zke_free()
 *
 * Returns ZKE_OK, ZKE_NONODE where there is none, or as zke_discovery_start().
 * Threads: any; each pick of a round counts once.  In a callback: yes.
 * Blocks: on the disk when it starts. */
ZKE_API int zke_discovery_pick(zke_discovery *service, int rule,
                               zke_instance **instance_out);

/* zke_discovery_names - the services of a base that have instances, sorted
 *
 * It reads the base and all of its children in one snapshot.
 *
 * Example: what is on offer.
 *
 *     zke_strings *names;
 *     rc = zke_discovery_names(z, "/services", &names);
 *     for (int i = 0; rc == ZKE_OK && i < names->count; i++)
 *       printf("%s\n", names->data[i]);
 *     if (rc == ZKE_OK) zke_free(names);
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

/* What the listener hears of a service. */
enum {
  ZKE_SERVICES_ADDED = 1,   /* its first instance came, or was there at the
                               start */
  ZKE_SERVICES_REMOVED = 3, /* its last instance went */
  ZKE_SERVICES_READY = 4,   /* all that were there at the start have been told;
                               the name is NULL */
  ZKE_SERVICES_LOST = 5     /* the session has ended; the name is NULL */
};

/* name lives until the listener returns.
 *
 * Example: show which services there are, and follow them.
 *
 *     static void seen(zke_services *services, int event, const char *name,
 *                      void *context) {
 *       (void)services, (void)context;
 *       if (event == ZKE_SERVICES_ADDED) printf("%s is offered\n", name);
 *       if (event == ZKE_SERVICES_REMOVED) printf("%s is gone\n", name);
 *     }
 *
 *     static int follow(zke *z, zke_services **services) {
 *       zke_services_options o = ZKE_INIT(zke_services_options);
 *       o.listener = seen;
 *       int rc = zke_services_new(z, "/services", &o, services);
 *       return rc == ZKE_OK ? zke_services_start(*services) : rc;
 *     }
 */
typedef void (*zke_services_fn)(zke_services *services, int event,
                                const char *name, void *context);

typedef struct zke_services_options {
  size_t size;
  zke_services_fn listener; /* or NULL */
  void *context;            /* for the listener; borrowed */
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
 * The instances of all services of the base are kept in memory, and each
 * instance that comes or goes wakes the object: see COST in config.h.
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
