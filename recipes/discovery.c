/* discovery.c - where a service can be reached
 *
 * A thin layer over a group (group.h): a service is a group of the kind
 * "service", an instance is a member, and the member's data is the address in
 * one line, with the payload behind it.  What joining, dying and lost replies
 * come to is therefore decided in group.c.  What is added here:
 *
 *   instances  members are handed out with address and payload taken apart
 *   picking    a list from memory, of which one instance is chosen.  The state
 *              of the choice (`picked`, `random`) is changed by atomic
 *              operations, so that threads may pick at the same time
 *   services   a configuration (config.h) of the base, two levels deep: the
 *              services and their instances.  The listener is told when a
 *              service gets its first instance and loses its last one
 *
 * Two rules keep the memory safe.  A user's listener may free the object, so
 * nothing of it is looked at after a listener has returned.  A call that makes
 * several calls of the group holds the object meanwhile (discovery_hold()),
 * since a listener could free it between two of them.
 *
 * Start reading at zke_discovery_pick(), discovery_hear(), and services_hear()
 * for the observer. */
#include "discovery.h"

#include <string.h>

#include "object.h"
#include "text.h"

#define DISCOVERY_PLACE "service"

/* The members do not change while the object lives, but for the atomic ones: so
 * no mutex guards them.  The group has its own. */
struct zke_discovery {
  zke_group *group; /* its memory is held as long as this object's */
  zke *z;
  int refs;        /* atomic: calls that keep the object, and 1 until free */
  int64_t picked;  /* atomic: czxid of the last pick by round robin, or 0 */
  uint64_t random; /* atomic: state of the generator */
  zke_discovery_fn listener;
  void *context;
};

/* ---- instances ---- */

/* Room for an instance's strings.  Its data is the address, then the rest. */
static size_t instance_bytes(const zke_party *p) {
  return strlen(p->name) + strlen(p->identity) +
         (p->len > 0 ? (size_t)p->len : 0) + 4;
}

/* Make an instance of a member, with its strings at text, where there are
 * instance_bytes() bytes of zeros; returns what is behind them.  Data without a
 * newline, which no service writes, is an address without payload. */
static char *instance_make(const zke_party *p, zke_instance *out, char *text) {
  size_t name = strlen(p->name) + 1, identity = strlen(p->identity) + 1;
  size_t len = p->len > 0 ? (size_t)p->len : 0;
  char *address = text + name + identity;
  memcpy(text, p->name, name);
  memcpy(text + name, p->identity, identity);
  if (len) memcpy(address, p->data, len);
  char *end = len ? memchr(address, '\n', len) : NULL;
  if (end) *end = '\0';
  char *payload = end ? end + 1 : address + len;
  *out = (zke_instance){.id = text,
                        .address = address,
                        .payload = payload,
                        .len = (int)(address + len - payload),
                        .session = p->session,
                        .czxid = p->czxid,
                        .mzxid = p->mzxid,
                        .since_ms = p->since_ms,
                        .identity = text + name,
                        .pid = p->pid};
  return text + instance_bytes(p);
}

/* One instance in one block, or NULL without memory. */
static zke_instance *instance_block(zke *z, const zke_party *p) {
  zke_instance *i = zke_alloc(z, sizeof *i + instance_bytes(p));
  if (i) instance_make(p, i, (char *)(i + 1));
  return i;
}

/* "<address>\n<payload>" in one block, or NULL without memory. */
static char *instance_text(zke *z, const char *address, const void *payload,
                           int len, int *len_out) {
  size_t head = strlen(address) + 1;
  char *text = zke_alloc(z, head + (size_t)len);
  if (!text) {
    zke_fail(ZKE_NOMEM, "no memory for an instance");
    return NULL;
  }
  memcpy(text, address, head - 1);
  text[head - 1] = '\n';
  if (len) memcpy(text + head, payload, (size_t)len);
  *len_out = (int)head + len;
  return text;
}

/* ---- the object ---- */

/* The group's listener: tells the user's what it hears, of an instance.
 * Without memory for that the user hears at least that one came, changed or
 * went, with its id.  The user's listener may free the object: nothing of it
 * is looked at afterwards. */
static void discovery_hear(zke_group *group, int event, const zke_party *who,
                           void *context) {
  zke_discovery *d = context;
  (void)group; /* ZKE_DISCOVERY_… are ZKE_GROUP_… */
  if (!who) {
    d->listener(d, event, NULL, d->context);
    return;
  }
  zke_instance *i = instance_block(d->z, who), plain = {.id = who->name,
                                                        .address = "",
                                                        .payload = "",
                                                        .czxid = who->czxid,
                                                        .identity = ""};
  d->listener(d, event, i ? i : &plain, d->context);
  zke_free(i);
}

/* The service's path, and the group there. */
static int discovery_open(zke_discovery *d, const char *base,
                          const char *name) {
  zke_group_options o = {
      .size = sizeof o, .context = d, .place = DISCOVERY_PLACE};
  if (!base || !name || !*name || strchr(name, '/'))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "'%s' cannot be a service's name",
                           name ? name : "NULL");
  if (d->listener) o.listener = discovery_hear;
  char *path = zke_recipe_path(d->z, strcmp(base, "/") ? base : "", name);
  if (!path) return zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  int rc = zke_group_new(d->z, path, &o, &d->group);
  zke_free(path);
  return rc;
}

/* The service is a group with a data format, so its object holds a group's.
 * The random numbers need not be good: they spread load. */
int zke_discovery_new(zke *z, const char *base, const char *name,
                      const zke_discovery_options *options,
                      zke_discovery **service_out) {
  zke_discovery_options o;
  int rc = zke_recipe_options(service_out, options, &o, zke_discovery_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  zke_discovery *d = zke_alloc(z, sizeof *d);
  if (!d) return zke_recipe_fail(ZKE_NOMEM, "no memory for a service");
  d->z = z;
  d->refs = 1;
  d->listener = o.listener;
  d->context = o.context;
  d->random = (uint64_t)zke_session_id(z) ^ (uint64_t)(uintptr_t)d ^
              (uint64_t)zke_now(z) << 20;
  rc = discovery_open(d, base, name);
  if (rc == ZKE_OK) {
    zke_recipe_hold((zke_recipe *)d->group);
    *service_out = d;
  } else {
    zke_free(d);
  }
  return rc;
}

/* Keep the service's memory, and its group's, for a call that makes several
 * calls: a listener may free it between two of them. */
static void discovery_hold(zke_discovery *d) {
  __atomic_add_fetch(&d->refs, 1, __ATOMIC_RELAXED);
}

/* Let go of the object; the last one to do so frees it. */
static void discovery_drop(zke_discovery *d) {
  if (__atomic_sub_fetch(&d->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  zke_recipe_drop((zke_recipe *)d->group);
  zke_free(d);
}

/* The group goes first, and with it the instance.  The object's memory stays
 * while a pick on another thread holds it. */
void zke_discovery_free(zke_discovery *service) {
  if (!service || zke_recipe_stays((zke_recipe *)service->group)) return;
  zke_group_free(service->group);
  discovery_drop(service);
}

/* The group behind the object, also for NULL. */
static zke_group *discovery_group(zke_discovery *d) {
  return d ? d->group : NULL; /* which the group's calls refuse */
}

/* ---- in and out ---- */

/* zke_group_join() or zke_group_update(). */
typedef int (*discovery_fn)(zke_group *g, const void *data, int len,
                            int64_t deadline_ms);

/* Check the arguments, and join or update with the text made of them.  The
 * handle is asked before its allocator is used: it may be a parent's. */
static int discovery_write(zke_discovery *d, discovery_fn fn,
                           const char *address, const void *payload, int len,
                           int64_t deadline_ms) {
  if (!d) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  if (!address || strchr(address, '\n'))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "the address is NULL, or not one line");
  if (len < 0 || (!payload && len))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a payload of length %d", len);
  int rc = zke_recipe_state(d->z);
  if (rc != ZKE_OK && rc != ZKE_INVALIDSTATE) return rc;
  char *text = instance_text(d->z, address, payload, len, &len);
  if (!text) return ZKE_NOMEM;
  rc = fn(d->group, text, len, deadline_ms);
  zke_free(text);
  return rc;
}

/* The address is the first line of the member's data. */
int zke_discovery_register(zke_discovery *service, const char *address,
                           const void *payload, int len, int64_t deadline_ms) {
  return discovery_write(service, zke_group_join, address, payload, len,
                         deadline_ms);
}

/* The instance keeps its id, and its place in a round. */
int zke_discovery_update(zke_discovery *service, const char *address,
                         const void *payload, int len, int64_t deadline_ms) {
  return discovery_write(service, zke_group_update, address, payload, len,
                         deadline_ms);
}

/* The clients hear of it as they hear of a death. */
int zke_discovery_unregister(zke_discovery *service) {
  return zke_group_leave(discovery_group(service));
}

/* ---- looking ---- */

/* The four calls that follow are the group's. */
int zke_discovery_start(zke_discovery *service) {
  return zke_group_start(discovery_group(service));
}

int zke_discovery_step(zke_discovery *service) {
  return zke_group_step(discovery_group(service));
}

int zke_discovery_state(zke_discovery *service) {
  return zke_group_state(discovery_group(service));
}

int zke_discovery_wait(zke_discovery *service, int instances,
                       int64_t deadline_ms) {
  return zke_group_wait(discovery_group(service), instances, deadline_ms);
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_discovery_cancel(zke_discovery *service) {
  return zke_group_cancel(discovery_group(service));
}

/* Copies what the group knows, in the order of coming. */
int zke_discovery_list(zke_discovery *service, zke_instance_list **list_out) {
  zke_party_list *who = NULL;
  if (!service || !list_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "service or list_out is NULL");
  zke *z = service->z; /* a listener may free the service */
  int rc = zke_group_list(service->group, &who);
  if (rc != ZKE_OK) return rc;
  size_t size =
      sizeof(zke_instance_list) + (size_t)who->count * sizeof(zke_instance);
  for (int i = 0; i < who->count; i++) size += instance_bytes(&who->data[i]);
  zke_instance_list *list = zke_alloc(z, size);
  if (list) {
    zke_instance *instance = (zke_instance *)(void *)(list + 1);
    char *text = (char *)(instance + who->count);
    list->count = who->count;
    list->data = instance;
    for (int i = 0; i < who->count; i++)
      text = instance_make(&who->data[i], &instance[i], text);
    *list_out = list;
  }
  zke_free(who);
  return list ? ZKE_OK : zke_recipe_fail(ZKE_NOMEM, "no memory for instances");
}

/* ---- picking ---- */

/* The next of a round: the first instance with a greater czxid than the last
 * pick's, else the first of all.  A position would skip an instance when an
 * earlier one goes; a czxid does not.  Where another thread has picked in
 * between, the exchange fails and this one takes the next, so that each pick of
 * a round counts once. */
static int pick_next(zke_discovery *d, const zke_party_list *who) {
  int64_t last = __atomic_load_n(&d->picked, __ATOMIC_RELAXED);
  int i;
  do {
    i = 0;
    while (i < who->count && who->data[i].czxid <= last) i++;
    if (i == who->count) i = 0;
  } while (!__atomic_compare_exchange_n(&d->picked, &last, who->data[i].czxid,
                                        false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  return i;
}

/* A number below count, all with the same probability but for 2^-32.  Each call
 * takes the next state of the generator by one atomic addition. */
static int pick_random(zke_discovery *d, int count) {
  uint64_t x = __atomic_add_fetch(&d->random, UINT64_C(0x9e3779b97f4a7c15),
                                  __ATOMIC_RELAXED);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9); /* splitmix64 */
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  x ^= x >> 31;
  return (int)((x >> 32) * (uint64_t)count >> 32);
}

/* The index of the member that a rule picks; there is at least one. */
static int pick_by(zke_discovery *d, int rule, const zke_party_list *who) {
  if (rule == ZKE_PICK_ROUND_ROBIN) return pick_next(d, who);
  return rule == ZKE_PICK_RANDOM ? pick_random(d, who->count) : 0;
}

/* Begins to listen with the first pick, so that later ones cost no read. */
static int discovery_pick(zke_discovery *d, int rule,
                          zke_instance **instance_out) {
  zke_party_list *who = NULL;
  int rc = zke_group_start(d->group);
  if (rc == ZKE_OK) rc = zke_group_list(d->group, &who);
  if (rc != ZKE_OK) return rc;
  zke_instance *i = NULL;
  if (!who->count)
    rc = zke_recipe_fail(ZKE_NONODE, "the service has no instances");
  else
    i = instance_block(d->z, &who->data[pick_by(d, rule, who)]);
  if (rc == ZKE_OK && !i)
    rc = zke_recipe_fail(ZKE_NOMEM, "no memory for an instance");
  zke_free(who);
  if (rc == ZKE_OK) *instance_out = i;
  return rc;
}

/* The service is held while it runs: its listener may free it in between. */
int zke_discovery_pick(zke_discovery *service, int rule,
                       zke_instance **instance_out) {
  if (!service || !instance_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "service or instance_out is NULL");
  if (rule < ZKE_PICK_FIRST || rule > ZKE_PICK_RANDOM)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "there is no rule %d", rule);
  discovery_hold(service);
  int rc = discovery_pick(service, rule, instance_out);
  discovery_drop(service);
  return rc;
}

/* ---- all services ---- */

/* Is that the directory of a service, with or without instances? */
static bool service_is_marked(const zke_config_node *n) {
  static const char mark[] = "zkembed " DISCOVERY_PLACE "\n";
  return *n->name && n->data && strncmp(n->data, mark, sizeof mark - 1) == 0;
}

/* Is this znode a service of which somebody is there? */
static bool service_is(const zke_config_node *n) {
  return service_is_marked(n) && n->stat.numChildren > 0;
}

/* What is in the base and bears the mark of a service; anything else is
 * ignored. */
int zke_discovery_names(zke *z, const char *base, zke_strings **names_out) {
  zke_config_tree *tree = NULL;
  if (!names_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "names_out is NULL");
  int rc = zke_exists(z, base, NULL, NULL, NULL); /* checks the path */
  if (rc == ZKE_OK || rc == ZKE_NONODE) rc = zke_view_read(z, base, 1, &tree);
  if (rc != ZKE_OK) return rc;
  size_t size = sizeof(zke_strings);
  for (int i = 0; i < tree->count; i++)
    size += sizeof(char *) + strlen(tree->data[i].name) + 1;
  zke_strings *names = zke_alloc(z, size);
  if (names) {
    names->data = (char **)(void *)(names + 1);
    char *text = (char *)(names->data + tree->count);
    for (int i = 0; i < tree->count; i++) {
      const zke_config_node *n = &tree->data[i];
      size_t bytes = strlen(n->name) + 1;
      if (!service_is(n)) continue;
      names->data[names->count++] = memcpy(text, n->name, bytes);
      text += bytes;
    }
    *names_out = names;
  }
  zke_free(tree);
  return names ? ZKE_OK : zke_recipe_fail(ZKE_NOMEM, "no memory for names");
}

/* ---- an observer: which services come and go ---- */

/* The configuration has a mutex, and its listener runs on one thread at a time.
 * Only the listener uses known, count and room, so nothing else guards them. */
struct zke_services {
  zke *z;
  zke_config *config;
  char **known; /* names of the services that were told to be there */
  int count;    /* of known */
  int room;     /* for so many names */
  zke_services_fn listener;
  void *context;
};

/* The index at which a service is known; the count where it is not. */
static int services_find(const zke_services *s, const char *name) {
  int i = 0;
  while (i < s->count && strcmp(s->known[i], name) != 0) i++;
  return i;
}

/* Keep a name, which is then the object's.  False without memory. */
static bool services_add(zke_services *s, char *name) {
  if (s->count == s->room) {
    int room = s->room ? 2 * s->room : 8;
    char **known = zke_alloc(s->z, (size_t)room * sizeof *known);
    if (!known) return false;
    if (s->count) memcpy(known, s->known, (size_t)s->count * sizeof *known);
    zke_free(s->known);
    s->known = known;
    s->room = room;
  }
  s->known[s->count++] = name;
  return true;
}

/* Is there a service of that name with an instance, as of memory? */
static bool services_there(const zke_services *s, const char *name) {
  zke_config_tree *tree = NULL;
  bool there = false;
  if (zke_config_list(s->config, name, &tree) != ZKE_OK) return false;
  bool marked = tree->count && service_is_marked(&tree->data[0]);
  for (int i = 1; marked && i < tree->count && !there; i++)
    there = tree->data[i].stat.ephemeralOwner != 0;
  zke_free(tree);
  return there;
}

/* Something became of a service: tell the listener where that makes a
 * difference between what it knows and what is in memory now.  `known` is
 * changed before the listener is called, which may free the object: nothing of
 * it is looked at afterwards. */
static void services_look(zke_services *s, const char *name) {
  int i = services_find(s, name);
  bool known = i < s->count, there = services_there(s, name);
  if (there == known) return;
  char *told = known ? s->known[i] : zke_recipe_copy(s->z, name, strlen(name));
  if (!told) return;
  if (known) {
    s->known[i] = s->known[--s->count];
  } else if (!services_add(s, told)) {
    zke_free(told);
    return;
  }
  s->listener(s, there ? ZKE_SERVICES_ADDED : ZKE_SERVICES_REMOVED, name,
              s->context);
  if (known) zke_free(told);
}

/* The configuration's listener, about a service's node or an instance's.  An
 * instance that comes to a known service, or goes from an unknown one, makes no
 * difference. */
static void services_hear(zke_config *config, int event,
                          const zke_config_node *before,
                          const zke_config_node *now, void *context) {
  zke_services *s = context;
  const zke_config_node *n = now ? now : before;
  (void)config; /* READY and LOST are ZKE_CONFIG_… */
  if (!n) {
    s->listener(s, event, NULL, s->context);
    return;
  }
  size_t len = strcspn(n->name, "/");
  if (event == ZKE_CONFIG_CHANGED || !len) return;
  char *name = zke_recipe_copy(s->z, n->name, len);
  if (!name) return;
  bool known = services_find(s, name) < s->count;
  if (known != (event == ZKE_CONFIG_ADDED)) services_look(s, name);
  zke_free(name);
}

/* A view of two levels: the services, and their instances. */
int zke_services_new(zke *z, const char *base,
                     const zke_services_options *options,
                     zke_services **services_out) {
  zke_services_options given;
  int rc =
      zke_recipe_options(services_out, options, &given, zke_services_options);
  if (rc == ZKE_OK) rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  zke_services *s = zke_alloc(z, sizeof *s);
  if (!s) return zke_recipe_fail(ZKE_NOMEM, "no memory for services");
  s->z = z;
  s->listener = given.listener;
  s->context = given.context;
  zke_config_options o = {.size = sizeof o, .levels = 2, .context = s};
  if (s->listener) o.listener = services_hear;
  rc = zke_config_new(z, base, &o, &s->config);
  if (rc == ZKE_OK)
    *services_out = s;
  else
    zke_free(s);
  return rc;
}

/* The view first; afterwards nothing here is used by anybody else. */
void zke_services_free(zke_services *services) {
  if (!services || zke_recipe_stays((zke_recipe *)services->config)) return;
  zke_config_free(services->config); /* no listener runs elsewhere after it */
  for (int i = 0; i < services->count; i++) zke_free(services->known[i]);
  zke_free(services->known);
  zke_free(services);
}

/* The configuration behind the object, also for NULL. */
static zke_config *services_config(zke_services *s) {
  return s ? s->config : NULL; /* which the configuration's calls refuse */
}

/* Both calls are the configuration's. */
int zke_services_start(zke_services *services) {
  return zke_config_start(services_config(services));
}

int zke_services_step(zke_services *services) {
  return zke_config_step(services_config(services));
}
