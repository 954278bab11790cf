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
 * What is kept in memory is a cache of the members, for which others take
 * kazoo's ChildrenWatch and Party or Curator's GroupMember.  A cache of any
 * other nodes is config.h.
 *
 * LAYOUT:
 *
 *     /groups/workers                     container, data "zkembed group"
 *       _c_<guid>-member-0000000000       ephemeral: "<pid> <identity>", and on
 *                                         the next line the member's data
 *
 * Members are ordered by that number, the order of their coming.  Children of
 * any other form, and persistent ones, are no members.
 *
 * IF THE PROCESS DIES its membership goes with its session, and the others
 * hear that it left.  Joining and leaving are one step each; before and after
 * nothing is left behind.
 *
 * WHO IS WOKEN: all who watch, by each coming, going and change of data: that
 * is its purpose.  Objects that only joined are not.
 *
 * LOSING THE SESSION, or one's znode to somebody's delete: the listener hears
 * ZKE_GROUP_LOST, and zke_group_update() and zke_group_leave() return
 * ZKE_LOST.  After a delete one can join again; after the session's end every
 * call but free returns ZKE_INVALIDSTATE.
 *
 * FENCING: nothing is held that would need it.  A member's czxid is its number
 * in all of history.
 */
#ifndef ZKEMBED_RECIPES_GROUP_H
#define ZKEMBED_RECIPES_GROUP_H

#include "config.h"
#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_group zke_group;

enum {
  ZKE_GROUP_OUT = 0,     /* a state only: no member */
  ZKE_GROUP_JOINED = 1,  /* who came; at the start: who is there.  As a state:
                            one is a member */
  ZKE_GROUP_CHANGED = 2, /* whose data was updated; who has the new one */
  ZKE_GROUP_LEFT = 3,    /* who went, with its last data */
  ZKE_GROUP_READY = 4,   /* those who were there at the start have been told;
                            who is NULL */
  ZKE_GROUP_LOST = 5     /* one's own membership, or the session; who is NULL */
};

/* Called after zke_group_start(), about all members, oneself too, and with
 * ZKE_GROUP_LOST in any case.  who lives until the listener returns: kind is
 * "member-", held is 1, since_ms when it came, mzxid changes with its data. */
typedef void (*zke_group_fn)(zke_group *group, int event, const zke_party *who,
                             void *context);

typedef struct zke_group_options {
  size_t size;
  zke_group_fn listener;
  void *context;
  const char *place; /* for recipes made of groups: the directory's kind;
                        "group" */
} zke_group_options;

/* zke_group_new - an object for one member or onlooker; touches nothing
 *
 *   path       of the group; made as a container by the first who joins
 *   options    NULL for the defaults; copied
 *   group_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_group_new(zke *z, const char *path,
                          const zke_group_options *options,
                          zke_group **group_out);

/* zke_group_free - leave, and release the object; NULL is fine
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_group_free(zke_group *group);

/* zke_group_join - become a member
 *
 *   data,len     shown to others; NULL and 0 for nothing
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Returns ZKE_OK, or
 *   ZKE_MISUSE        it is one already
 *   ZKE_OTHERKIND     the path is not a group's
 *   ZKE_BADARGUMENTS  len is negative
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_group_join(zke_group *group, const void *data, int len,
                           int64_t deadline_ms);

/* zke_group_update - replace one's data
 * zke_group_leave  - be a member no more
 *
 * Return ZKE_OK, or ZKE_LOST where one is no member.  After another failure of
 * update one still is, and it can be repeated; after one of leave one is none,
 * and the session deletes the znode as soon as it can.
 * Threads: any.  In a callback: yes.  Block: on the disk. */
ZKE_API int zke_group_update(zke_group *group, const void *data, int len,
                             int64_t deadline_ms);
ZKE_API int zke_group_leave(zke_group *group);

/* zke_group_state - ZKE_GROUP_OUT, _JOINED or _LOST, as known without asking
 *                   the file
 * zke_group_self  - the name of one's znode, in one block; ZKE_LOST where one
 *                   is no member.  Compare it with zke_party.name
 * Threads: any.  In a callback: yes.  Block: no. */
ZKE_API int zke_group_state(zke_group *group);
ZKE_API int zke_group_self(zke_group *group, char **name_out);

/* zke_group_start - tell the listener from now on
 *
 * First of all who are there, in no certain order, then ZKE_GROUP_READY.  Who
 * came and went between two dispatches is not told.
 * Returns ZKE_OK, or ZKE_OTHERKIND.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_group_start(zke_group *group);

/* zke_group_step - look again now, as dispatches do by themselves */
ZKE_API int zke_group_step(zke_group *group);

/* zke_group_list - all members in the order of their coming
 *
 * Once started out of memory, without I/O, else out of the file.
 *
 *   list_out  out, not NULL: one block; count 0 where there are none
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk before the start. */
ZKE_API int zke_group_list(zke_group *group, zke_party_list **list_out);

/* zke_group_wait - until at least so many members are there
 *
 * Starts where that has not been done, and looks into the file first.  One
 * stays a member, or none, whatever it returns.
 *
 *   members      0 or more
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says who is there
 *   ZKE_CANCELLED         zke_group_cancel()
 *   ZKE_OTHERKIND         the path is not a group's
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_group_wait(zke_group *group, int members, int64_t deadline_ms);

/* zke_group_cancel - the blocking call on it returns ZKE_CANCELLED;
 * ZKE_IDLE where none runs.  Threads: any.  Blocks: no. */
ZKE_API int zke_group_cancel(zke_group *group);

#ifdef __cplusplus
}
#endif

#endif
