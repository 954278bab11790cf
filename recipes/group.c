/* group.c - the members of a group
 *
 * A group is a view (view.h) of its directory, one level deep, and perhaps the
 * object's own znode in it.  The two are independent: an object may only watch,
 * or only be a member.
 *
 * Joining:
 *
 *   1. Write pid, identity and data into one text.  A member's znode must
 *      contain everything that a listener needs: when the member has gone, its
 *      session cannot be asked any more.
 *   2. Make the directory, then the znode, by zke_recipe_create(): its name has
 *      a guid, so after a lost reply it is found again, and no member is there
 *      twice.
 *   3. Watch the znode by reading it (own_check()).  If it has gone by then, or
 *      cannot be watched, the object is not a member.
 *
 * If the process dies after 2, the znode goes with its session, and the objects
 * that watch hear ZKE_GROUP_LEFT.
 *
 * Invariants:
 *
 *   - g->znode is not NULL exactly while the object is a member, as far as it
 *     knows.  g->look: something may have happened to the znode.
 *   - g->members is the number of members in the picture of the view.  The view
 *     reports each change of the picture to members_edit(), once.
 *   - The listener hears of members only through the view's news: for each
 *     member the difference between the last report and the present state.
 *
 * A znode is a member's if it is ephemeral and has the name that a recipe gives
 * (member_number()).  All other nodes in the directory are ignored.
 *
 * Start reading at zke_group_join() and own_begin(); at zke_group_start() and
 * group_deliver() for the listener's events; at group_wait(). */
#include "group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/object.h"
#include "part/text.h"
#include "part/view.h"
#include "part/znode.h"

#define GROUP_PLACE "group" /* the directory's kind */
#define GROUP_KIND "member-"

/* Guarded by the mutex of the zke_recipe that the view begins with. */
struct zke_group {
  zke_view v;   /* first: a zke_view * is a zke_group * */
  char *znode;  /* path of the object's own znode; NULL: it is not a member */
  bool look;    /* the own znode must be looked at, and is not watched */
  bool waiting; /* a call waits for members */
  int wanted;   /* the number it waits for */
  int members;  /* in the picture of the view */
  bool ready;   /* ZKE_GROUP_READY was told */
  bool lost;    /* the membership was taken away, and not joined again */
  zke_group_fn listener;
  void *context;
};

/* ---- members ---- */

/* The number of a member's znode; false: it is not a member's. */
static bool member_number(const zke_config_node *n, int32_t *number) {
  static const char *const kind[] = {GROUP_KIND};
  zke_entry e;
  if (n->stat.ephemeralOwner == 0 || !zke_recipe_parse(n->name, kind, 1, &e))
    return false;
  *number = e.number;
  return true;
}

/* Is this znode a member's?  All other nodes in the directory are ignored. */
static bool member_is(const zke_config_node *n) {
  int32_t number;
  return member_number(n, &number);
}

/* Read a member from its node.  The strings are the node's, except the
 * identity, which needs a NUL.  Data that no group has written is given as it
 * is, with pid 0.
 *
 *   identity  room for member_room() bytes */
static zke_party member_party(const zke_config_node *n, char *identity) {
  const char *end = n->len > 0 ? memchr(n->data, '\n', (size_t)n->len) : NULL;
  char *rest = NULL;
  zke_party p = {.name = n->name,
                 .kind = GROUP_KIND,
                 .held = 1,
                 .session = n->stat.ephemeralOwner,
                 .czxid = n->stat.czxid,
                 .mzxid = n->stat.mzxid,
                 .queued_ms = n->stat.ctime,
                 .since_ms = n->stat.ctime,
                 .data = n->data ? n->data : "",
                 .len = n->len};
  identity[0] = '\0';
  p.identity = identity;
  if (!end) return p;
  int64_t pid = strtoll(n->data, &rest, 10);
  if (rest == n->data || *rest != ' ') return p; /* not written by a group */
  size_t len = (size_t)(end - rest) - 1;
  memcpy(identity, rest + 1, len);
  identity[len] = '\0';
  p.pid = pid;
  p.data = end + 1;
  p.len = n->len - (int)(end + 1 - n->data);
  return p;
}

/* Bytes that member_party() may write. */
static size_t member_room(const zke_config_node *n) {
  return (size_t)(n->len > 0 ? n->len : 0) + 1;
}

/* By number, which may wrap around; then by name: so the order is the same in
 * every process. */
static int member_order(const void *a, const void *b) {
  const zke_config_node *x = a, *y = b;
  int32_t m = 0, n = 0;
  member_number(x, &m);
  member_number(y, &n);
  int32_t by = (int32_t)((uint32_t)m - (uint32_t)n);
  if (by != 0) return by < 0 ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* The members' nodes of a tree, in order; *count of them. */
static zke_config_node *members_sorted(zke *z, const zke_config_tree *t,
                                       int *count) {
  size_t size = ((size_t)t->count + 1) * sizeof(zke_config_node);
  zke_config_node *nodes = zke_alloc(z, size);
  int n = 0;
  for (int i = 0; nodes && i < t->count; i++) {
    if (member_is(&t->data[i])) nodes[n++] = t->data[i];
  }
  if (nodes) qsort(nodes, (size_t)n, sizeof *nodes, member_order);
  *count = n;
  return nodes;
}

/* One block: the list, its parties, their strings. */
static zke_party_list *members_list(zke *z, const zke_config_tree *t) {
  int count;
  zke_config_node *nodes = members_sorted(z, t, &count);
  if (!nodes) return NULL;
  size_t size = sizeof(zke_party_list) + (size_t)count * sizeof(zke_party);
  for (int i = 0; i < count; i++)
    size += strlen(nodes[i].name) + 1 + 2 * member_room(&nodes[i]);
  zke_party_list *list = zke_alloc(z, size);
  if (list) {
    zke_party *p = (zke_party *)(void *)(list + 1);
    char *text = (char *)(p + count);
    list->count = count;
    list->data = p;
    for (int i = 0; i < count; i++, p++) {
      size_t name = strlen(nodes[i].name) + 1, room = member_room(&nodes[i]);
      *p = member_party(&nodes[i], text);
      p->name = memcpy(text + room, p->name, name);
      if (p->len > 0) memcpy(text + room + name, p->data, (size_t)p->len);
      p->data = text + room + name;
      text += name + 2 * room;
    }
  }
  zke_free(nodes);
  return list;
}

/* Keep the count. */
static void members_edit(zke_view *v, const zke_config_node *before,
                         const zke_config_node *now) {
  zke_group *g = (zke_group *)v;
  g->members += (now && member_is(now)) - (before && member_is(before));
}

/* ---- the object's own znode ---- */

/* It was taken away: note it, and tell the listener. */
static void own_lose(zke_group *g) {
  zke_free(g->znode);
  g->znode = NULL;
  g->look = false;
  g->lost = true;
  zke_recipe_tell(&g->v.r, ZKE_GROUP_LOST, 0, NULL, 0);
}

/* If something may have happened to the own znode: does it still exist?  The
 * same call watches it again, so no later event is missed.  It is a read:
 * zke_exists() would leave a watch on a znode that has gone. */
static int own_check(zke_group *g) {
  if (!g->znode || !g->look) return ZKE_OK;
  int rc = zke_get(g->v.r.z, g->znode, zke_recipe_watcher, &g->v.r, NULL, NULL,
                   NULL);
  if (rc == ZKE_OK) g->look = false;
  if (rc == ZKE_NONODE) own_lose(g);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Report that the object is not a member; returns ZKE_LOST. */
static int own_none(const zke_group *g) {
  return zke_recipe_fail(
      ZKE_LOST, "this object is not a member of the group %s", g->v.r.path);
}

/* Delete the own znode, now or as soon as the session can.  Its watch is
 * removed first, so the object does not hear of its own deletion. */
static int own_drop(zke_group *g) {
  zke_recipe *r = &g->v.r;
  if (!g->znode) return ZKE_OK;
  if (!g->look) {
    zke_remove_watch(r->z, g->znode, ZKE_WATCH_DATA, zke_recipe_watcher, r);
  }
  int rc = zke_recipe_discard(r->z, g->znode, ZKE_EPHEMERAL, 0);
  zke_free(g->znode);
  g->znode = NULL;
  g->look = false;
  return rc;
}

/* Watch the znode just made; if that fails, be out again. */
static int own_begin(zke_group *g) {
  zke_sentence kept;
  g->look = true;
  int rc = own_check(g);
  if (rc == ZKE_OK) return g->znode ? ZKE_OK : own_none(g);
  zke_recipe_keep(&kept);
  own_drop(g);
  return zke_recipe_restore(&kept, rc);
}

typedef struct own_write {
  const char *path, *text;
  int len;
} own_write;

/* One try; a repetition after a lost reply writes the same again. */
static int own_try_write(zke *z, void *arg) {
  const own_write *w = arg;
  return zke_set(z, w->path, w->text, w->len, -1, NULL);
}

/* ---- the object ---- */

/* An event of a negative type, such as an overflow, means that events were
 * dropped: one of them may have been about the own znode. */
static void group_event(zke_recipe *r, int type, const char *path) {
  zke_group *g = (zke_group *)r;
  if (type < 0 || (g->znode && strcmp(path, g->znode) == 0)) g->look = true;
  zke_view_event(&g->v, type, path);
}

/* Look at the own znode and at the view; if one fails, do the other all the
 * same. */
static int group_step(zke_recipe *r) {
  int rc = own_check((zke_group *)r);
  int view = zke_view_step((zke_view *)r);
  return rc == ZKE_OK ? view : rc;
}

/* The membership ended with the session.  An object that only listens is told
 * as well, since it will hear of no member any more. */
static void group_ended(zke_recipe *r) {
  zke_group *g = (zke_group *)r;
  if (g->znode)
    own_lose(g);
  else if (g->v.watching)
    zke_recipe_tell(r, ZKE_GROUP_LOST, 0, NULL, 0);
}

/* A member came, went, or has other data. */
static void group_say(zke_view *v, const zke_config_node *before,
                      const zke_config_node *now) {
  zke_group *g = (zke_group *)v;
  const zke_config_node *n = now ? now : before;
  if (!member_is(n)) return;
  char *identity = zke_alloc(v->r.z, member_room(n)), none[1];
  zke_config_node plain = *n;
  if (!identity) plain.len = 0; /* tell at least that it came or went */
  zke_party who = member_party(&plain, identity ? identity : none);
  int event = ZKE_GROUP_CHANGED;
  if (!before) event = ZKE_GROUP_JOINED;
  if (!now) event = ZKE_GROUP_LEFT;
  g->listener(g, event, &who, g->context);
  zke_free(identity);
}

/* The view gives the news of members at this moment, so the listener sees each
 * member's latest state once. */
static void group_deliver(zke_recipe *r, int event, int64_t number,
                          const char *text, int len) {
  zke_group *g = (zke_group *)r;
  (void)number, (void)text, (void)len;
  if (!g->listener) return;
  if (event == ZKE_VIEW_NEWS)
    zke_view_deliver(&g->v, group_say);
  else
    g->listener(g, event, NULL, g->context);
}

/* The others hear immediately that the member has left. */
static void group_quit(zke_recipe *r) { own_drop((zke_group *)r); }

/* Release the rest after quit has discarded the znode, or the session has. */
static void group_destroy(zke_recipe *r) {
  zke_group *g = (zke_group *)r;
  zke_view_free(&g->v);
  zke_free(g->znode);
}

static const zke_recipe_class group_class = {.name = "group",
                                             .event = group_event,
                                             .step = group_step,
                                             .ended = group_ended,
                                             .deliver = group_deliver,
                                             .quit = group_quit,
                                             .destroy = group_destroy};

/* A group is a view of one level, with only the members' znodes. */
int zke_group_new(zke *z, const char *path, const zke_group_options *options,
                  zke_group **group_out) {
  zke_group_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(group_out, options, &o, zke_group_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &group_class, sizeof(zke_group), &r);
  if (rc != ZKE_OK) return rc;
  zke_group *g = (zke_group *)r;
  g->v.scope.levels = 1;
  g->v.edit = members_edit;
  g->v.listens = o.listener != NULL;
  g->listener = o.listener;
  g->context = o.context;
  *group_out = g;
  return ZKE_OK;
}

/* Leaves the group, and ends a waiting call. */
void zke_group_free(zke_group *group) { zke_recipe_free((zke_recipe *)group); }

/* ---- in and out ---- */

/* ZKE_BADARGUMENTS: a length below 0, or one without data. */
static int group_check_data(const void *data, int len) {
  if (len >= 0 && (data || !len)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", len);
}

/* Make the directory and the object's znode, and watch the znode. */
static int group_join(zke_group *g, const char *text, int len,
                      int64_t deadline_ms) {
  zke_recipe *r = &g->v.r;
  int rc = zke_recipe_place(r->z, r->path, GROUP_PLACE, ZKE_CONTAINER, NULL,
                            deadline_ms);
  if (rc == ZKE_OK)
    rc = zke_recipe_create(r->z, r->path, GROUP_PLACE, GROUP_KIND, text, len,
                           ZKE_EPHEMERAL_SEQUENTIAL, deadline_ms, &g->znode,
                           NULL);
  if (rc == ZKE_OK) g->lost = false;
  return rc == ZKE_OK ? own_begin(g) : rc;
}

/* The znode's text contains pid and identity: so a list can still name a member
 * after its session has just ended. */
int zke_group_join(zke_group *group, const void *data, int len,
                   int64_t deadline_ms) {
  char *text = NULL;
  int rc = group_check_data(data, len);
  if (rc == ZKE_OK) rc = zke_recipe_enter_by((zke_recipe *)group, deadline_ms);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &group->v.r;
  if (group->znode)
    rc = zke_recipe_fail(
        ZKE_MISUSE, "this object is a member of the group %s already", r->path);
  if (rc == ZKE_OK) rc = zke_recipe_sign(r->z, "", data, len, &text, &len);
  if (rc == ZKE_OK) rc = group_join(group, text, len, deadline_ms);
  zke_free(text);
  return zke_recipe_leave(r, rc);
}

/* The znode keeps its number, and so the member its place in the list.  If it
 * has gone, the membership was taken away; this does not make it again. */
static int group_update(zke_group *g, const void *data, int len,
                        int64_t deadline_ms) {
  char *text = NULL;
  if (!g->znode) return own_none(g);
  int rc = zke_recipe_sign(g->v.r.z, "", data, len, &text, &len);
  if (rc != ZKE_OK) return rc;
  own_write w = {g->znode, text, len};
  rc = zke_retry(g->v.r.z, own_try_write, &w, deadline_ms);
  zke_free(text);
  if (rc != ZKE_NONODE) return rc;
  own_lose(g);
  return own_none(g);
}

/* As joining, with the same limits for the data. */
int zke_group_update(zke_group *group, const void *data, int len,
                     int64_t deadline_ms) {
  int rc = group_check_data(data, len);
  if (rc == ZKE_OK) rc = zke_recipe_enter_by((zke_recipe *)group, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&group->v.r,
                          group_update(group, data, len, deadline_ms));
}

/* ZKE_LOST: the object is not a member. */
static int group_leave(zke_group *g) {
  if (!g->znode) return own_none(g);
  return own_drop(g);
}

/* Deletes the znode, and the others hear of its end. */
int zke_group_leave(zke_group *group) {
  int rc = zke_recipe_enter((zke_recipe *)group);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&group->v.r, group_leave(group));
}

/* For a program that dispatches seldom: it does the work of a dispatch. */
int zke_group_step(zke_group *group) {
  return zke_recipe_step((zke_recipe *)group);
}

/* From memory.  LOST stays until the object joins again. */
int zke_group_state(zke_group *group) {
  if (zke_recipe_enter_memory((zke_recipe *)group) != ZKE_OK)
    return ZKE_GROUP_LOST;
  int state = group->znode ? ZKE_GROUP_JOINED : ZKE_GROUP_OUT;
  if (group->lost) state = ZKE_GROUP_LOST;
  zke_recipe_leave(&group->v.r, ZKE_OK);
  return state;
}

/* The znode's name, by which a member finds itself in a list. */
static int group_self(const zke_group *g, char **name_out) {
  if (!g->znode) return own_none(g);
  const char *name = strrchr(g->znode, '/') + 1;
  char *copy = zke_alloc(g->v.r.z, strlen(name) + 1);
  if (!copy) return zke_recipe_fail(ZKE_NOMEM, "no memory for a name");
  *name_out = memcpy(copy, name, strlen(name));
  return ZKE_OK;
}

/* ZKE_LOST if the object is not a member. */
int zke_group_self(zke_group *group, char **name_out) {
  if (!name_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "name_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)group);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&group->v.r, group_self(group, name_out));
}

/* ---- looking ---- */

/* An existing path must be a group's. */
static int group_check_place(zke_group *g) {
  zke_recipe *r = &g->v.r;
  int rc = zke_exists(r->z, r->path, NULL, NULL, NULL);
  if (rc == ZKE_NONODE) return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  return zke_recipe_place(r->z, r->path, GROUP_PLACE, ZKE_CONTAINER, NULL,
                          ZKE_FOREVER);
}

/* READY is told once, after the news of the members that were there, since
 * notes are delivered in order: after READY the listener knows all of them. */
static int group_start(zke_group *g) {
  int rc = g->v.watching ? ZKE_OK : group_check_place(g);
  if (rc == ZKE_OK) rc = own_check(g);
  if (rc == ZKE_OK) rc = zke_view_start(&g->v);
  if (rc != ZKE_OK || g->ready || !g->v.listens) return rc;
  g->ready = zke_recipe_tell(&g->v.r, ZKE_GROUP_READY, 0, NULL, 0);
  return ZKE_OK;
}

/* A second start tells nothing again. */
int zke_group_start(zke_group *group) {
  int rc = zke_recipe_enter((zke_recipe *)group);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&group->v.r, group_start(group));
}

/* From memory while the view is kept, which costs no read; else from the
 * file. */
static int group_members(zke_group *g, zke_party_list **list_out) {
  zke_recipe *r = &g->v.r;
  zke_config_tree *tree = NULL;
  int rc = g->v.watching ? zke_view_list(&g->v, "", &tree)
                         : zke_view_read(r->z, r->path, 1, &tree);
  if (rc != ZKE_OK) return rc;
  zke_party_list *list = members_list(r->z, tree);
  zke_free(tree);
  if (!list)
    return zke_recipe_fail(ZKE_NOMEM, "no memory for a list of members");
  *list_out = list;
  return ZKE_OK;
}

/* In the order of joining. */
int zke_group_list(zke_group *group, zke_party_list **list_out) {
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)group);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&group->v.r, group_members(group, list_out));
}

/* ---- waiting ---- */

/* For zke_recipe_await(): are there as many members as the call waits for? */
static int group_enough(zke_recipe *r) {
  const zke_group *g = (const zke_group *)r;
  return g->members >= g->wanted ? ZKE_OK : ZKE_NOT_YET;
}

/* "waited for 3 members of the group /g; 2 are there: a (pid 7), b (pid 8)" */
static int group_say_missing(zke_group *g) {
  char text[400] = "";
  zke_party_list *list = NULL;
  size_t at = 0;
  group_members(g, &list);
  for (int i = 0; list && i < list->count && at < sizeof text; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at,
                           "%s%s (pid %" PRId64 ")", i ? ", " : ": ",
                           list->data[i].identity, list->data[i].pid);
  }
  zke_free(list);
  return zke_recipe_fail(
      ZKE_OPERATIONTIMEOUT,
      "waited for %d members of the group %s; %d are there%s", g->wanted,
      g->v.r.path, g->members, text);
}

/* If the view was kept already, it may be older than the file: refresh it, so a
 * member that joined before the call is counted. */
static int group_wait(zke_group *g, int members, int64_t deadline_ms) {
  bool fresh = !g->v.watching;
  int rc = group_start(g);
  if (rc != ZKE_OK) return rc;
  if (!fresh) zke_view_refresh(&g->v);
  g->wanted = members;
  rc = zke_recipe_await(&g->v.r, group_enough, deadline_ms);
  if (rc == ZKE_OPERATIONTIMEOUT && group_enough(&g->v.r) != ZKE_OK)
    rc = group_say_missing(g);
  return rc;
}

/* Only one call may wait with an object, since the object has only one
 * `wanted`. */
int zke_group_wait(zke_group *group, int members, int64_t deadline_ms) {
  if (members < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d members are waited for",
                           members);
  int rc = zke_recipe_enter_by((zke_recipe *)group, deadline_ms);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &group->v.r;
  if (group->waiting) {
    rc = zke_recipe_fail(
        ZKE_MISUSE, "another thread waits with this object for %s", r->path);
    return zke_recipe_leave(r, rc);
  }
  group->waiting = true;
  rc = group_wait(group, members, deadline_ms);
  group->waiting = false;
  return zke_recipe_leave(r, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_group_cancel(zke_group *group) {
  return zke_recipe_cancel((zke_recipe *)group);
}
