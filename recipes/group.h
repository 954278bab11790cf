/* group.h - who is there
 *
 *     static void changed(zke_group *group, int event, const zke_party *who,
 *                         void *context) {
 *       if (event == ZKE_GROUP_JOINED) printf("%s came\n", who->identity);
 *       if (event == ZKE_GROUP_LEFT) printf("%s went\n", who->identity);
 *     }
 *
 *     zke_group_options o = ZKE_INIT(zke_group_options);
 *     zke_group *group;
 *     zke_party_list *list;
 *     o.listener = changed;
 *     zke_group_new(z, "/groups/workers", &o, &group);
 *     zke_group_join(group, "host:80", 7, deadline);
 *     zke_group_wait(group, 3, deadline);  // until three are there
 *     zke_group_list(group, &list);
 *     zke_group_free(group);  // and out
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * This is the group membership of ZooKeeper's page "Recipes and Solutions":
 * each member is an ephemeral znode.  The object keeps a cache of the members
 * in memory, like kazoo's ChildrenWatch and Party or Curator's GroupMember.  A
 * cache of any other nodes is config.h.
 *
 * LAYOUT:
 *
 *     /groups/workers                     container, data "zkembed group"
 *       _c_<guid>-member-0000000000       ephemeral: "<pid> <identity>", and on
 *                                         the next line the member's data
 *
 * Members are ordered by that number, which is the order of joining.  A child
 * with a name of another form, or a persistent one, is not a member.
 *
 * IF THE PROCESS DIES its membership ends with its session, and the others
 * hear that it left.  Joining and leaving are one step each; a death before or
 * after leaves nothing.
 *
 * WHO IS WOKEN: all that watch, whenever a member joins, leaves or changes its
 * data: that is the purpose.  Objects that only joined are not woken.
 *
 * COSTS, in transactions of the database: joining is two writes (the znode; the
 * watch of it) and two reads, and the first member also makes the directory.
 * An update is one write, and another one when its event is dispatched, to set
 * the watch again.  Leaving is two writes: the watch goes first.  Watching
 * takes one watch for the whole group.  A change costs each watching process
 * one read of the change, however many members there are.  A list from memory
 * costs no transaction.
 *
 * LOSING THE SESSION, or the member's znode because a process deletes it: the
 * listener hears ZKE_GROUP_LOST, and zke_group_update() and zke_group_leave()
 * return ZKE_LOST.  After a delete the object can join again; after the end of
 * the session every call except free returns ZKE_INVALIDSTATE.
 *
 * FENCING: a member holds nothing, so no fencing is needed.  A member's czxid
 * is unique for all time.
 *
 * ON AN ENSEMBLE (zookeeper.h): a member goes off the list after it was silent
 * for the session's timeout, and one that has died stays on it for as long.
 *
 * MISTAKES, and their results:
 * - Joining twice with one object: ZKE_MISUSE.  Two members of one process need
 *   two objects.
 * - Taking "it is in the list" for "it works": a member stays as long as its
 *   session, and a process that hangs keeps its session.
 * - Acting alone because the list names this process first: another process may
 *   have read another list.  Use a lock or an election for that.
 * - Waiting for N members and then relying on N: a member may leave
 *   immediately.  double_barrier.h starts N processes together.
 */
#ifndef ZKEMBED_RECIPES_GROUP_H
#define ZKEMBED_RECIPES_GROUP_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_group zke_group;

/* The listener's events, and the values of zke_group_state().  `who` is the
 * member that the event is about.
 *
 *     OUT -> JOINED    zke_group_join()
 *     JOINED -> OUT    zke_group_leave()
 *     JOINED -> LOST   the znode or the session has gone
 *     LOST -> JOINED   zke_group_join(), if the session lives
 */
enum {
  ZKE_GROUP_OUT = 0,     /* a state only: the object is not a member */
  ZKE_GROUP_JOINED = 1,  /* it came, or was there at the start.  As a state: the
                            object is a member */
  ZKE_GROUP_CHANGED = 2, /* its data was updated; `who` has the new data */
  ZKE_GROUP_LEFT = 3,    /* it went; `who` has its last data */
  ZKE_GROUP_READY = 4,   /* all that were there at the start have been told;
                            `who` is NULL */
  ZKE_GROUP_LOST = 5     /* the object's own membership, or the session, is
                            gone; `who` is NULL */
};

/* Called after zke_group_start(), about all members, including this object, and
 * with ZKE_GROUP_LOST in any case.  `who` belongs to the recipe and lives until
 * the listener returns: kind is "member-", held is 1, since_ms is the time of
 * joining, and mzxid changes with its data.
 *
 * Example: join again after the znode was deleted; the listener may do this.
 *
 *     static void heard(zke_group *group, int event, const zke_party *who,
 *                       void *context) {
 *       (void)context;
 *       if (event == ZKE_GROUP_JOINED)
 *         printf("%s is there: %.*s\n", who->identity, who->len, who->data);
 *       if (event == ZKE_GROUP_LOST &&
 *           zke_group_join(group, "host:80", 7, ZKE_FOREVER) != ZKE_OK)
 *         fprintf(stderr, "%s\n", zke_errmsg());
 *     }
 */
typedef void (*zke_group_fn)(zke_group *group, int event, const zke_party *who,
                             void *context);

typedef struct zke_group_options {
  size_t size;
  zke_group_fn listener;
  void *context;
} zke_group_options;

/* zke_group_new - an object for one member or watcher; writes nothing
 *
 *   path       of the group; the first member makes it, as a container
 *   options    NULL for the defaults; copied
 *   group_out  out; for zke_group_free() */
ZKE_API int zke_group_new(zke *z, const char *path,
                          const zke_group_options *options,
                          zke_group **group_out);

/* zke_group_free - leave, and release the object
 *
 * Lists that the object gave stay valid. */
ZKE_API void zke_group_free(zke_group *group);

/* ------------------------------------------------------------------------
 * In and out
 *
 * Example: a worker that tells others how busy it is.
 *
 *     rc = zke_group_join(group, "idle", 4, deadline);
 *     if (rc == ZKE_OK) rc = zke_group_update(group, "busy", 4, deadline);
 *     if (rc == ZKE_OK) rc = zke_group_leave(group);
 *     if (rc == ZKE_LOST) printf("the membership was gone already\n");
 * --------------------------------------------------------------------- */

/* zke_group_join - become a member
 *
 * After ZKE_OK every list that is read from the file has the member.
 * ZKE_MISUSE and ZKE_BADARGUMENTS change nothing.  After any other error the
 * object is not a member; if a znode was made, it is deleted.
 *
 *   data,len     shown to others, copied; NULL and 0 for nothing
 *   deadline_ms  for repeating calls that got no reply
 *
 * Returns ZKE_OK, or
 *   ZKE_MISUSE        the object is a member already
 *   ZKE_BADARGUMENTS  len is negative, or positive without data
 *   ZKE_LOST          another process deleted the znode immediately
 *   ZKE_OTHERKIND, ZKE_INVALIDSTATE */
ZKE_API int zke_group_join(zke_group *group, const void *data, int len,
                           int64_t deadline_ms);

/* zke_group_update - replace the member's data; its place in the list stays
 * zke_group_leave  - stop being a member
 *
 * Return ZKE_OK, or ZKE_LOST if the object is not a member.  If update fails
 * otherwise, the object is still a member, and the call can be repeated.  If
 * leave fails otherwise, it is not a member, and the session deletes the znode
 * as soon as it can. */
ZKE_API int zke_group_update(zke_group *group, const void *data, int len,
                             int64_t deadline_ms);
ZKE_API int zke_group_leave(zke_group *group);

/* zke_group_state - ZKE_GROUP_OUT, _JOINED or _LOST, from memory: as of the
 *                   last event that was dispatched
 * zke_group_self  - the name of the member's znode, from memory, in one block
 *                   for zke_free(); ZKE_LOST if the object is not a member
 *
 * Example: which of the members is this process?
 *
 *     zke_party_list *all = NULL;
 *     char *self = NULL;
 *     rc = zke_group_self(group, &self);
 *     if (rc == ZKE_OK) rc = zke_group_list(group, &all);
 *     for (int i = 0; rc == ZKE_OK && i < all->count; i++)
 *       if (!strcmp(all->data[i].name, self)) printf("the %dth\n", i + 1);
 *     zke_free(all);
 *     zke_free(self);
 */
ZKE_API int zke_group_state(zke_group *group);
ZKE_API int zke_group_self(zke_group *group, char **name_out);

/* ------------------------------------------------------------------------
 * Looking
 * --------------------------------------------------------------------- */

/* zke_group_start - keep the members in memory, and tell the listener from now
 * on
 *
 * The listener hears of all members that are there, in no particular order,
 * then ZKE_GROUP_READY.  If a member comes and goes between two dispatches, the
 * listener is not told.  A second start does nothing.
 *
 * Returns ZKE_OK, or ZKE_OTHERKIND.  After a failure the call can be repeated.
 */
ZKE_API int zke_group_start(zke_group *group);

/* zke_group_step - look again now */
ZKE_API int zke_group_step(zke_group *group);

/* zke_group_list - all members in the order of joining
 *
 * After zke_group_start() it is from memory, without I/O, as of the last event
 * dispatched.  Before, it is a snapshot from the file.
 *
 *   list_out  count 0 if there are no members */
ZKE_API int zke_group_list(zke_group *group, zke_party_list **list_out);

/* zke_group_wait - wait until the group has at least this many members
 *
 * It starts the object if necessary, and looks into the file first.  Whatever
 * it returns, the object stays a member or not, as before.
 *
 * Example: begin when three are there.
 *
 *     rc = zke_group_wait(group, 3, zke_now(z) + 10000);
 *     if (rc == ZKE_OPERATIONTIMEOUT) printf("%s\n", zke_errmsg());
 *
 *   members      0 or more; this object counts if it is a member
 *
 * Returns ZKE_OK, or ZKE_OPERATIONTIMEOUT (the sentence says who is there),
 * ZKE_CANCELLED, ZKE_OTHERKIND, ZKE_MISUSE, ZKE_INVALIDSTATE. */
ZKE_API int zke_group_wait(zke_group *group, int members, int64_t deadline_ms);

/* zke_group_cancel - another thread's call with a deadline returns
 * ZKE_CANCELLED, or the result it has reached; ZKE_IDLE if none runs */
ZKE_API int zke_group_cancel(zke_group *group);

#ifdef __cplusplus
}
#endif

#endif
