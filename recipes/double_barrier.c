/* double_barrier.c - N parties begin together and end together
 *
 * What has happened is read off the tree, in one snapshot, and nothing else:
 *
 *     a party's znode   its child of `ready`
 *     version 0         -                      it waits for a round
 *     there             there                  it is inside
 *     there             -                      it has left, waits for the rest
 *     -                 there                  it died inside: broken
 *     -                 -                      it has left and gone
 *
 * The steps.  Each change is one transaction, and each that goes by the picture
 * fails if that has changed; then the party looks again.
 *
 *   enter     1. Make the own znode, ephemeral and sequential (gate_join).
 *             2. Watch it; if its version is above 0 the round has begun: take
 *                the list of its members from `ready` (enter_round).  Inside.
 *             3. Fewer than N wait: sleep until the own znode changes.
 *             4. N wait: begin the round for the first N of them (round_begin).
 *                In one step create `ready`, which lists them, a child of it
 *                for each, and write "inside" into each znode, at version 0.
 *                Go to 2.
 *             5. `ready` is there: a round runs.  If no member that lives is
 *                inside, clear it away (picture_remove) and go to 2; else watch
 *                one that is, and sleep (enter_behind).
 *   withdraw  Delete the own znode at version 0 (gate_withdraw).  If that is
 *             ZKE_BADVERSION, the round has begun: the party is inside.
 *   leave     1. Delete the own child of `ready`: together with a check that
 *                another member's is there, or, as the last one, together with
 *                `ready` (picture_depart).
 *             2. Sleep until `ready` has gone (all have left), or a member is
 *                seen dead (broken).
 *             3. Delete the own znode (stay_end).
 *   broken    A party that sees a dead member writes "broken" into `ready`,
 *             which wakes all that watch it (stay_broken).
 *
 * Why no party is counted and yet out, or inside and not counted: both the
 * round's beginning and a withdrawal ask for version 0 of the same znode, so
 * only one of them is made.
 *
 * Why a leave does not end too early: `ready` goes only in the step of the last
 * member, whose check fails while another child is there.  Why it does not
 * hang: a member that dies inside leaves its child without a znode, and each
 * one in leave watches the directory, so it sees that.
 *
 * A death: before step 4 of enter the party's znode just goes.  Between step 4
 * of enter and step 1 of leave the party counts as dead inside, after that as
 * one that had left.  If all members of a round have died, the next round
 * clears it away (step 5 of enter).
 *
 * A lost reply: of enter's 1, the guid tells; of all others, the next look
 * reads whether the step was made.
 *
 * Invariants:
 *  1. znode and name are set exactly while the party is WAITING, INSIDE or
 *     LEAVING.
 *  2. While it is, what can change its picture is watched, or `changed` is set.
 *  3. members, round, broken and dead are of one round: the present or the
 *     last.
 *
 * Names: arrivals_ those that wait; change_ a multi under way; picture_ one
 * snapshot; round_ its beginning; gate_ the object; enter_, stay_ a look while
 * waiting, and while inside or leaving.  Begin with enter_look(), then
 * stay_look(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double_barrier.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

#define PLACE "double-barrier" /* the directory's kind */

/* What stands before the number in a party's name. */
static const char *const party_kinds[] = {"party-"};

/* `ready` begins with one of these, of equal length. */
static const char word_running[] = "running\n", word_broken[] = "broken \n";

/* A member in leave finds this word in its own znode if its broken round was
 * cleared away before it looked.  The name of the dead member follows. */
static const char own_broken[] = "broken ";

/* The znode of a member: this, from its round's beginning on. */
static const char word_inside[] = "inside\n";

enum {
  WORD = sizeof word_running - 1, /* bytes of either word */
  PATIENCE = 250 /* ms that a step inside zke_dispatch() repeats itself */
};

/* One party. The mutex of r guards what changes: from state on. */

struct zke_double_barrier {
  zke_recipe r;
  int parties; /* N */
  char *ready; /* path of `ready` */
  zke_double_barrier_fn listener;
  void *context;
  int state;               /* ZKE_DOUBLE_BARRIER_… */
  bool calling;            /* a blocking call runs */
  bool hasty;              /* it does not wait for the others to leave */
  char *znode;             /* path of the own znode, or NULL */
  const char *name;        /* its last part, in znode */
  int64_t round;           /* zxid of the round, while inside and afterwards */
  bool broken;             /* that round is */
  char dead[128];          /* who died in it; "": not known */
  bool told_in;            /* enter has returned for this round */
  bool told_out;           /* so has leave */
  zke_party_list *members; /* of that round, or NULL */
  int outcome;             /* ZKE_… by which the last leave ended */
};

/* ---- lists of parties ---- */

/* Copy parties, with their strings, into one block, for zke_free(). */
static int list_pack(zke *z, const zke_party *p, int count,
                     zke_party_list **list_out) {
  size_t text = 0;
  for (int i = 0; i < count; i++)
    text += strlen(p[i].name) + strlen(p[i].identity) + (size_t)p[i].len + 3;
  zke_party_list *list =
      zke_alloc(z, sizeof *list + (size_t)count * sizeof *p + text);
  if (!list) return ZKE_NOMEM;
  zke_party *out = (zke_party *)(void *)(list + 1);
  char *at = (char *)(out + count);
  for (int i = 0; i < count; i++) {
    out[i] = p[i];
    out[i].name = at;
    at = stpcpy(at, p[i].name) + 1;
    out[i].identity = at;
    at = stpcpy(at, p[i].identity) + 1;
    out[i].data = at;
    if (p[i].len) memcpy(at, p[i].data, (size_t)p[i].len);
    at += p[i].len + 1;
  }
  list->count = count;
  list->data = out;
  *list_out = list;
  return ZKE_OK;
}

/* "a (pid 12), b (pid 13)", as far as there is room. */
static void list_say(const zke_party_list *list, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < list->count && used < size; i++) {
    int n = snprintf(text + used, size - used, "%s%s (pid %" PRId64 ")%s",
                     i ? ", " : "", list->data[i].identity, list->data[i].pid,
                     strcmp(list->data[i].kind, "dead") == 0 ? " died" : "");
    used += n > 0 ? (size_t)n : 0;
  }
}

/* ---- a party's znode ---- */

/* Cut the data of one that waits, "waiting <pid> <identity>\n<data>", into
 * strings. False: it does not wait (its version is above 0), or it was made by
 * other means. The strings are the result's own bytes, and end with it. */
static bool party_read(zke_op_result *node, const char *name, zke_party *p) {
  int64_t pid;
  if (node->rc != ZKE_OK || node->len <= 0) return false;
  if (node->stat.version != 0 || !node->stat.ephemeralOwner) return false;
  char *end = memchr(node->data, '\n', (size_t)node->len);
  if (!end) return false;
  *end = '\0';
  char *at = node->data;
  if (!zke_recipe_read(&at, "waiting ", 10, &pid) || *at != ' ') return false;
  *p = (zke_party){.name = name,
                   .kind = "waiting",
                   .session = node->stat.ephemeralOwner,
                   .czxid = node->stat.czxid,
                   .mzxid = node->stat.mzxid,
                   .queued_ms = node->stat.ctime,
                   .since_ms = node->stat.ctime,
                   .identity = at + 1,
                   .pid = pid,
                   .data = end + 1,
                   .len = node->len - (int)(end + 1 - node->data)};
  return true;
}

/* Those that wait for a round, in order. */
typedef struct arrivals {
  zke_entries *entries; /* all parties' names, members' among them */
  int read_count;       /* of ops and read */
  zke_op *ops;
  zke_op_result *read; /* their znodes; waiting points into these */
  zke_party *waiting;
  int count; /* of waiting */
} arrivals;

/* Release what was read. Any of the arrays may be missing, if memory was short.
 */
static void arrivals_clear(arrivals *a) {
  for (int i = 0; a->ops && i < a->read_count; i++)
    zke_free((void *)(uintptr_t)a->ops[i].path);
  if (a->read) zke_results_clear(a->read, a->read_count);
  zke_free(a->ops);
  zke_free(a->read);
  zke_free(a->waiting);
  zke_free(a->entries);
}

/* For bsearch(): a session's number beside the sessions of a list. */
static int session_order(const void *key, const void *element) {
  int64_t id = *(const int64_t *)key;
  const zke_session_info *info = element;
  return id < info->id ? -1 : id > info->id;
}

/* Drop those whose process has died, and whose znode nobody has removed yet: a
 * round that begins with them would be broken from the start.
 *
 * A session that is not listed is kept.  On an ensemble it may just not have
 * shown itself, and while it lives its znode is there.  In a file it has ended
 * since the znodes were read, and its znode has gone with it: so no round can
 * begin with it (round_begin()). */
static int arrivals_drop_dead(zke *z, arrivals *a) {
  zke_session_list *s = NULL;
  int living = 0;
  int rc = a->count ? zke_sessions(z, &s) : ZKE_OK;
  for (int i = 0; rc == ZKE_OK && i < a->count; i++) {
    const zke_session_info *info =
        bsearch(&a->waiting[i].session, s->data, (size_t)s->count,
                sizeof *s->data, session_order);
    if (!info || info->alive) a->waiting[living++] = a->waiting[i];
  }
  if (rc == ZKE_OK) a->count = living;
  zke_free(s);
  return rc;
}

/* Read all parties' znodes in one snapshot, keep those that wait, and drop
 * those whose process has died. */
static int arrivals_read_all(zke *z, const char *path, arrivals *a) {
  size_t n = (size_t)a->entries->count;
  a->ops = zke_alloc(z, n * sizeof *a->ops);
  a->read = zke_alloc(z, n * sizeof *a->read);
  a->waiting = zke_alloc(z, n * sizeof *a->waiting);
  if (!a->ops || !a->read || !a->waiting) return ZKE_NOMEM;
  for (int i = 0; i < a->entries->count; i++) {
    char *node = zke_recipe_path(z, path, a->entries->data[i].name);
    if (!node) return ZKE_NOMEM;
    zke_op_get(&a->ops[i], node);
    a->read_count++;
  }
  int rc = zke_recipe_multi_read(z, a->ops, a->read_count, a->read);
  for (int i = 0; rc == ZKE_OK && i < a->read_count; i++) {
    a->count += party_read(&a->read[i], a->entries->data[i].name,
                           &a->waiting[a->count]);
  }
  return rc == ZKE_OK ? arrivals_drop_dead(z, a) : rc;
}

/* Read who waits.  If there are fewer than `least` parties of any sort, no
 * znode is read: so coming early costs one read.  To be cleared whatever is
 * returned. */
static int arrivals_read(zke *z, const char *path, int least, arrivals *a) {
  memset(a, 0, sizeof *a);
  int rc = zke_recipe_entries(z, path, party_kinds, 1, NULL, NULL, &a->entries,
                              NULL);
  if (rc != ZKE_OK || a->entries->count < least) return rc;
  return a->entries->count ? arrivals_read_all(z, path, a) : ZKE_OK;
}

/* ---- a multi under way ---- */

/* Operations are added one by one; then change_do() makes them and releases
 * all.  A failure for want of memory is noted, and is what change_do() returns.
 */
typedef struct change {
  zke *z;
  int count, room; /* operations that were added, and that fit */
  bool no_memory;
  zke_op *ops; /* their paths are the change's */
} change;

/* Begin a step of at most `room` operations. Without memory it goes on with
 * none, and change_do() tells. */
static void change_new(change *c, zke *z, int room) {
  *c = (change){.z = z, .room = room};
  c->ops = zke_alloc(z, (size_t)room * sizeof *c->ops);
  c->no_memory = !c->ops;
}

/* The next operation, with the path it is to have; NULL without memory. */
static zke_op *change_op(change *c, const char *directory, const char *name,
                         char **path) {
  *path = c->no_memory || c->count == c->room
              ? NULL
              : zke_recipe_path(c->z, directory, name);
  if (!*path) c->no_memory = true;
  return *path ? &c->ops[c->count++] : NULL;
}

/* Add the making of a persistent node. */
static void change_create(change *c, const char *directory, const char *name,
                          const void *data, int len) {
  char *path;
  zke_op *op = change_op(c, directory, name, &path);
  if (op) zke_op_create(op, path, data, len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
}

/* Add a write.  The version makes the change fail if somebody else was faster;
 * -1 for any.  data lives until change_do(). */
static void change_set(change *c, const char *directory, const char *name,
                       const void *data, int len, int version) {
  char *path;
  zke_op *op = change_op(c, directory, name, &path);
  if (op) zke_op_set(op, path, data, len, version);
}

/* Add a deletion, with the same use of the version. */
static void change_delete(change *c, const char *directory, const char *name,
                          int version) {
  char *path;
  zke_op *op = change_op(c, directory, name, &path);
  if (op) zke_op_delete(op, path, version);
}

/* Add a check that a node is there, of any version: the change is made only as
 * long as what was seen still holds. */
static void change_check(change *c, const char *directory, const char *name) {
  char *path;
  zke_op *op = change_op(c, directory, name, &path);
  if (op) zke_op_check(op, path, -1);
}

/* Make the change, and release it.  ZKE_LOOK_AGAIN: the picture has changed.
 * (ZKE_NOTEMPTY is no such case: only a child that somebody has made by hand
 * has children, and it would stay so.) */
static int change_do(change *c) {
  int rc =
      c->no_memory ? ZKE_NOMEM : zke_recipe_multi(c->z, c->ops, c->count, NULL);
  for (int i = 0; i < c->count; i++)
    zke_free((void *)(uintptr_t)c->ops[i].path);
  zke_free(c->ops);
  return rc == ZKE_NONODE || rc == ZKE_BADVERSION ? ZKE_LOOK_AGAIN : rc;
}

/* ---- the round ----
 *
 * `ready` is "running\n" or "broken \n", and behind it a record of each member.
 * Who they are and what they brought is so known to all as long as the round is
 * there, whatever has become of them. */

/* `ready`, its children and those of the directory in one snapshot. */
typedef struct picture {
  zke *z;
  const char *path, *ready; /* of the directory and of `ready`; borrowed */
  zke_op_result read[3];
  const zke_strings *inside; /* children of ready: those that have not left */
  const zke_strings *there;  /* those with a znode; other names among them */
  int64_t round;             /* czxid of `ready`; 0: there is none */
  bool broken;               /* it has been said */
  char *text;                /* a copy of ready's data, cut into strings */
  zke_party *members;        /* its strings lie in text */
  int count;                 /* of members */
} picture;

/* Release a picture, also one that could not be read whole. Its members'
 * strings go with it. */
static void picture_clear(picture *p) {
  zke_results_clear(p->read, 3);
  zke_free(p->members);
  zke_free(p->text);
}

/* The record of a member at text[*at]:
 *   "<name> <session> <czxid> <queued> <pid> <len> <identity>\n<data>\n"
 * With p it is cut into strings. */
static bool member_read(char *text, int len, int *at, zke_party *p) {
  int64_t session, czxid, queued, pid, size;
  char *record = text + *at;
  char *end = memchr(record, '\n', (size_t)(len - *at));
  if (!end) return false;
  char *head = record + strcspn(record, " \n");
  if (head == record || !zke_recipe_read(&head, " ", 16, &session) ||
      !zke_recipe_read(&head, " ", 10, &czxid) ||
      !zke_recipe_read(&head, " ", 10, &queued) ||
      !zke_recipe_read(&head, " ", 10, &pid) ||
      !zke_recipe_read(&head, " ", 10, &size) || *head != ' ')
    return false;
  if (size < 0 || size >= text + len - (end + 1)) return false;
  if (end[1 + size] != '\n') return false;
  *at = (int)(end + 1 - text + size) + 1;
  if (!p) return true;
  *end = '\0';
  end[1 + size] = '\0';
  record[strcspn(record, " ")] = '\0';
  *p = (zke_party){.name = record,
                   .kind = "inside",
                   .held = 1,
                   .session = session,
                   .czxid = czxid,
                   .queued_ms = queued,
                   .identity = head + 1,
                   .pid = pid,
                   .data = end + 1,
                   .len = (int)size};
  return true;
}

/* Read ready's data; ZKE_OTHERKIND if it has another form. The records are
 * counted first, and then cut. A record that is malformed ends the list: what
 * is behind it was not written by a party. */
static int picture_parse(picture *p) {
  const zke_op_result *node = &p->read[0];
  int len = node->len, at, count = 0;
  const char *data = node->data;
  bool running = len >= WORD && memcmp(data, word_running, WORD) == 0;
  p->broken = len >= WORD && memcmp(data, word_broken, WORD) == 0;
  if (!running && !p->broken)
    return zke_recipe_fail(ZKE_OTHERKIND,
                           "%s is not a round of a double barrier", p->ready);
  p->text = zke_alloc(p->z, (size_t)len + 1);
  if (!p->text) return ZKE_NOMEM;
  memcpy(p->text, data, (size_t)len);
  for (at = WORD; at < len && member_read(p->text, len, &at, NULL);) count++;
  p->members = zke_alloc(p->z, (size_t)(count + 1) * sizeof *p->members);
  if (!p->members) return ZKE_NOMEM;
  for (at = WORD; p->count < count; p->count++) {
    zke_party *m = &p->members[p->count];
    member_read(p->text, len, &at, m);
    m->mzxid = node->stat.czxid;
    m->since_ms = node->stat.ctime;
  }
  p->round = node->stat.czxid;
  return ZKE_OK;
}

/* Read it all, in one snapshot.  To be cleared whatever is returned. */
static int picture_take(picture *p, zke *z, const char *path,
                        const char *ready) {
  static const zke_strings none;
  zke_op ops[3];
  *p = (picture){.z = z, .path = path, .ready = ready};
  zke_op_get(&ops[0], ready);
  zke_op_children(&ops[1], ready);
  zke_op_children(&ops[2], path);
  int rc = zke_recipe_multi_read(z, ops, 3, p->read);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < 3; i++) {
    rc = p->read[i].rc;
    if (rc != ZKE_OK && rc != ZKE_NONODE)
      return zke_recipe_fail(rc, "cannot read the double barrier %s", path);
  }
  p->inside = p->read[1].rc == ZKE_OK ? p->read[1].children : &none;
  p->there = p->read[2].rc == ZKE_OK ? p->read[2].children : &none;
  return p->read[0].rc == ZKE_OK ? picture_parse(p) : ZKE_OK;
}

/* For bsearch(): a name beside those of a list. */
static int name_order(const void *key, const void *element) {
  return strcmp(key, *(char *const *)element);
}

/* Is this name in a list, which is sorted? */
static bool names_have(const zke_strings *names, const char *name) {
  return names->count && bsearch(name, names->data, (size_t)names->count,
                                 sizeof *names->data, name_order) != NULL;
}

/* What the picture shows of a member (the table at the head). */
enum member_state { MEMBER_GONE, MEMBER_INSIDE, MEMBER_LEAVING, MEMBER_DEAD };

static enum member_state picture_state(const picture *p, const zke_party *m) {
  bool inside = names_have(p->inside, m->name);
  if (names_have(p->there, m->name))
    return inside ? MEMBER_INSIDE : MEMBER_LEAVING;
  return inside ? MEMBER_DEAD : MEMBER_GONE;
}

/* The first member in that state, or NULL. */
static const zke_party *picture_first(const picture *p,
                                      enum member_state state) {
  for (int i = 0; i < p->count; i++) {
    if (picture_state(p, &p->members[i]) == state) return &p->members[i];
  }
  return NULL;
}

enum { DEATH = 160 }; /* bytes of the sentence on who died */

/* Tell the members that are in leave, in their own znodes, that the round was
 * broken: `ready` is about to go, and would be taken for a good end.  The word
 * is written into text, which has to live until the change is done. */
static void picture_mark(const picture *p, change *c, char text[DEATH]) {
  const zke_party *dead = picture_first(p, MEMBER_DEAD);
  if (!dead) return;
  int len = snprintf(text, DEATH, "%s%.100s (pid %" PRId64 ")", own_broken,
                     dead->identity, dead->pid);
  for (int i = 0; i < p->count; i++) {
    const zke_party *m = &p->members[i];
    enum member_state state = picture_state(p, m);
    if (state == MEMBER_INSIDE || state == MEMBER_LEAVING)
      change_set(c, p->path, m->name, text, len, -1);
  }
}

/* Clear away a round in which nobody stays, in one step.  Its children have
 * names that never come again, and `ready` the version that was read: so this
 * does not hit a later round. */
static int picture_remove(const picture *p) {
  change c;
  char text[DEATH];
  change_new(&c, p->z, p->inside->count + p->count + 1);
  for (int i = 0; i < p->inside->count; i++)
    change_delete(&c, p->ready, p->inside->data[i], -1);
  change_delete(&c, p->path, "ready", p->read[0].stat.version);
  picture_mark(p, &c, text);
  return change_do(&c);
}

/* ---- beginning a round ---- */

/* What `ready` is to contain, in one block (member_read() has the form). */
static char *round_text(zke *z, const zke_party *p, int count, int *len_out) {
  size_t size = WORD + 1;
  for (int i = 0; i < count; i++)
    size += strlen(p[i].name) + strlen(p[i].identity) + (size_t)p[i].len + 128;
  char *text = size <= INT32_MAX ? zke_alloc(z, size) : NULL;
  if (!text) return NULL;
  memcpy(text, word_running, WORD);
  char *at = text + WORD;
  for (int i = 0; i < count; i++) {
    at += sprintf(at,
                  "%s %" PRIx64 " %" PRId64 " %" PRId64 " %" PRId64 " %d %s\n",
                  p[i].name, (uint64_t)p[i].session, p[i].czxid, p[i].queued_ms,
                  p[i].pid, p[i].len, p[i].identity);
    if (p[i].len) memcpy(at, p[i].data, (size_t)p[i].len);
    at += p[i].len;
    *at++ = '\n';
  }
  *len_out = (int)(at - text);
  return text;
}

/* Begin a round with these N, in one step, which fails if any of them is not as
 * its owner made it.  Any party may do this; the one that does may itself be
 * beyond the first N.  ZKE_NODEEXISTS: another round runs; ZKE_LOOK_AGAIN: a
 * party has gone, or somebody was faster. */
static int round_begin(zke_double_barrier *b, const zke_party *p) {
  zke *z = b->r.z;
  change c;
  int len = 0;
  char *text = round_text(z, p, b->parties, &len);
  if (!text) return ZKE_NOMEM;
  change_new(&c, z, 2 * b->parties + 1);
  change_create(&c, b->r.path, "ready", text, len);
  for (int i = 0; i < b->parties; i++) {
    change_set(&c, b->r.path, p[i].name, word_inside, sizeof word_inside - 1,
               0);
    change_create(&c, b->ready, p[i].name, "", 0);
  }
  int rc = change_do(&c);
  zke_free(text);
  if (rc == ZKE_BADARGUMENTS)
    rc = zke_recipe_fail(
        ZKE_LIMIT, "the data of the %d parties of %s, %d bytes, is too much",
        b->parties, b->r.path, len);
  return rc;
}

/* ---- watching ----
 *
 *   waiting   the own znode; behind a round also `ready`, and the znode and
 *             child of one member that is inside
 *   inside    the own znode, `ready`, and the next member's znode in the ring
 *   leaving   the same, the ring up to the next member in leave, and the
 *             directory
 */

/* Watch a znode for its end and for changes of its data. */
static int gate_watch(zke_double_barrier *b, const char *path, zke_stat *stat) {
  return zke_get(b->r.z, path, zke_recipe_watcher, &b->r, NULL, NULL, stat);
}

/* Watch another party's znode, or its child of `ready`.  ZKE_LOOK_AGAIN: that
 * has gone. */
static int gate_watch_party(zke_double_barrier *b, const char *directory,
                            const zke_party *m) {
  char *path = zke_recipe_path(b->r.z, directory, m->name);
  int rc = path ? gate_watch(b, path, NULL) : ZKE_NOMEM;
  zke_free(path);
  return zke_recipe_faster(rc);
}

/* Watch `ready` of a round.  ZKE_LOOK_AGAIN: it has gone, or is another
 * round's. */
static int gate_watch_ready(zke_double_barrier *b, int64_t round) {
  zke_stat stat;
  int rc = zke_recipe_faster(gate_watch(b, b->ready, &stat));
  return rc == ZKE_OK && stat.czxid != round ? ZKE_LOOK_AGAIN : rc;
}

/* Take back what is still watched of the round.  A watch that stays does no
 * harm but to wake this process for nothing: so failures do not matter. */
static void gate_unwatch(zke_double_barrier *b) {
  zke_remove_watch(b->r.z, b->ready, ZKE_WATCH_DATA, zke_recipe_watcher, &b->r);
  zke_remove_watch(b->r.z, b->r.path, ZKE_WATCH_CHILD, zke_recipe_watcher,
                   &b->r);
  for (int i = 0; b->members && i < b->members->count; i++) {
    char *path = zke_recipe_path(b->r.z, b->r.path, b->members->data[i].name);
    if (path)
      zke_remove_watch(b->r.z, path, ZKE_WATCH_DATA, zke_recipe_watcher, &b->r);
    zke_free(path);
  }
}

/* ---- states ----
 *
 *   OUT -> WAITING      the own znode is made (gate_join)
 *   WAITING -> INSIDE   a look finds that the round has begun (enter_round)
 *   WAITING -> OUT      withdrawn, before a round has begun (gate_withdraw)
 *   INSIDE -> LEAVING   the own child of `ready` is deleted (gate_depart)
 *   INSIDE -> OUT       that has failed (depart_give_up)
 *   LEAVING -> OUT      all have left, the round is broken, or the time of the
 *                       call is over (stay_end)
 *   engaged -> LOST     the own znode or the session has gone (gate_lose)
 *   LOST -> OUT         a call has returned that, and a session is there still
 *
 * "Engaged" is WAITING, INSIDE or LEAVING.
 */

/* Queue an event for the listener, with the round that it is about. */
static void gate_tell(zke_double_barrier *b, int event) {
  zke_recipe_tell(&b->r, event, b->round, NULL, 0);
}

/* Forget the own znode: the party is OUT, or LOST. */
static void gate_out(zke_double_barrier *b, int state) {
  b->state = state;
  zke_free(b->znode);
  b->znode = NULL;
  b->name = NULL;
}

/* Delete the party's znode, now or later.  The party is out from here on. */
static int gate_discard(zke_double_barrier *b) {
  return zke_recipe_discard(b->r.z, b->znode, ZKE_EPHEMERAL, 0);
}

/* The own znode has gone, or the session. */
static void gate_lose(zke_double_barrier *b) {
  gate_out(b, ZKE_DOUBLE_BARRIER_LOST);
  gate_tell(b, ZKE_DOUBLE_BARRIER_LOST);
}

/* Does the object take part in a round, or wait for one? */
static bool gate_engaged(const zke_double_barrier *b) {
  return b->state == ZKE_DOUBLE_BARRIER_WAITING ||
         b->state == ZKE_DOUBLE_BARRIER_INSIDE ||
         b->state == ZKE_DOUBLE_BARRIER_LEAVING;
}

/* Say that the place was taken away; returns ZKE_LOST. */
static int gate_lost(const zke_double_barrier *b) {
  return zke_recipe_fail(
      ZKE_LOST, "the place at the double barrier %s was taken away", b->r.path);
}

/* ---- entering ----
 *
 * A look of a party that waits takes one of the steps 2 to 5 of enter (at the
 * head).  ZKE_LOOK_AGAIN: the picture has changed, by this step or by others,
 * and gate_look() is called again.  ZKE_OK: nothing is to be done until a watch
 * fires.  No change is missed between two looks: a watch is set before the read
 * that it is for, or its own read tells that something has changed since.
 */

/* The own znode says that the round has begun: get to know it.  If memory is
 * short the step is made again; the state stays WAITING until the members are
 * known.  ZKE_LOOK_AGAIN: inside; look as one that is. */
static int enter_round(zke_double_barrier *b, int64_t round) {
  picture p;
  zke_party_list *members = NULL;
  int rc = picture_take(&p, b->r.z, b->r.path, b->ready);
  if (rc == ZKE_OK && p.round != round) {
    /* somebody deleted what nobody but members may */
    rc = gate_discard(b);
    gate_lose(b);
  } else if (rc == ZKE_OK) {
    rc = list_pack(b->r.z, p.members, p.count, &members);
  }
  picture_clear(&p);
  if (!members) return rc;
  zke_free(b->members);
  b->members = members;
  b->round = round;
  b->broken = false;
  b->dead[0] = '\0';
  b->state = ZKE_DOUBLE_BARRIER_INSIDE;
  gate_tell(b, ZKE_DOUBLE_BARRIER_ENTERED);
  return ZKE_LOOK_AGAIN;
}

/* There are enough, but a round runs: wait for its end, or clear it away if no
 * living member is inside, since nothing can become of it any more.  (Members
 * in leave may be stopped: nobody waits for them.)  One that is inside is
 * watched, for its death and its leaving; then there may be another one to
 * watch.  So a party behind a round is woken N times or so at most, one after
 * the other. */
static int enter_behind(zke_double_barrier *b) {
  picture p;
  int rc = picture_take(&p, b->r.z, b->r.path, b->ready);
  const zke_party *staying = picture_first(&p, MEMBER_INSIDE);
  if (rc == ZKE_OK && !staying) {
    if (p.round) rc = picture_remove(&p);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  } else if (rc == ZKE_OK) {
    rc = gate_watch_ready(b, p.round);
    if (rc == ZKE_OK) rc = gate_watch_party(b, b->ready, staying);
    if (rc == ZKE_OK) rc = gate_watch_party(b, b->r.path, staying);
  }
  picture_clear(&p);
  return rc;
}

/* A look while waiting: has the round begun, can it begin?  The own znode is
 * watched before the arrivals are read: a party that comes after that sees this
 * one, and begins the round, which fires the watch. */
static int enter_look(zke_double_barrier *b) {
  arrivals a;
  zke_stat own;
  int rc = gate_watch(b, b->znode, &own);
  if (rc == ZKE_NONODE) {
    gate_lose(b);
    return ZKE_OK;
  }
  if (rc != ZKE_OK) return rc;
  if (own.version > 0) return enter_round(b, own.mzxid);
  rc = arrivals_read(b->r.z, b->r.path, b->parties, &a);
  if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  if (rc == ZKE_OK && a.count >= b->parties) {
    rc = round_begin(b, a.waiting);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
    if (rc == ZKE_NODEEXISTS) rc = enter_behind(b);
  }
  arrivals_clear(&a);
  return rc;
}

/* ---- inside, and leaving ----
 *
 * A look of a member, and the step by which it leaves.  A member that is in
 * leave knows that all have left when `ready` has gone.  A round is broken if a
 * member's child is there without its znode, or if `ready` goes while this
 * party is inside.  Only a member in leave goes out by a look; one that is
 * inside is told that the round is broken, and stays until it leaves.
 */

/* The last member that goes clears away a broken round: no other looks at
 * `ready` any more.  If it cannot, the next round does. */
static void stay_tidy(zke_double_barrier *b) {
  picture p;
  if (picture_take(&p, b->r.z, b->r.path, b->ready) == ZKE_OK &&
      p.round == b->round && !picture_first(&p, MEMBER_INSIDE) &&
      !picture_first(&p, MEMBER_LEAVING))
    picture_remove(&p);
  picture_clear(&p);
}

/* Out of the round, with that outcome.  Returns ZKE_OK. */
static int stay_end(zke_double_barrier *b, int outcome) {
  gate_unwatch(b);
  gate_discard(b);
  gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
  b->outcome = outcome;
  if (outcome == ZKE_OK)
    gate_tell(b, ZKE_DOUBLE_BARRIER_ALL_LEFT);
  else
    stay_tidy(b);
  return ZKE_OK;
}

/* Write into `ready` that the round is broken, which wakes all that watch it.
 *
 * The version alone would not do: `ready` of the next round begins with the
 * same ones.  So the step also checks that the dead member's child is there,
 * whose name never comes again. */
static int picture_break(const picture *p, const zke_party *dead) {
  const zke_op_result *node = &p->read[0];
  change c;
  char *text = zke_alloc(p->z, (size_t)node->len);
  if (!text) return ZKE_NOMEM;
  memcpy(text, node->data, (size_t)node->len);
  memcpy(text, word_broken, WORD);
  change_new(&c, p->z, 2);
  change_check(&c, p->ready, dead->name);
  change_set(&c, p->path, "ready", text, node->len, node->stat.version);
  int rc = change_do(&c);
  zke_free(text);
  return rc;
}

/* A member has died, or `ready` has gone: write the first into `ready`, unless
 * it says so already; tell the listener once; and go out, if this party is in
 * leave. */
static int stay_broken(zke_double_barrier *b, const picture *p) {
  const zke_party *dead = picture_first(p, MEMBER_DEAD);
  if (p->round == b->round && !p->broken) {
    int rc = picture_break(p, dead);
    if (rc != ZKE_OK) return rc;
  }
  if (!b->broken) gate_tell(b, ZKE_DOUBLE_BARRIER_BROKEN);
  if (dead)
    snprintf(b->dead, sizeof b->dead, "%s (pid %" PRId64 ")", dead->identity,
             dead->pid);
  b->broken = true;
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) return stay_end(b, ZKE_BROKEN);
  return zke_recipe_faster(gate_watch(b, b->znode, NULL));
}

/* Watch the members behind the own place in the ring.  A party inside watches
 * just the next one that has a znode.  A party in leave watches up to the next
 * one that is in leave, too, which watches on from there.  So each member that
 * is inside is watched by somebody in leave, and its death is told at once,
 * unless that one is stopped. */
static int stay_watch_ring(zke_double_barrier *b, const picture *p) {
  int own = 0, rc = ZKE_OK;
  while (own < p->count && strcmp(p->members[own].name, b->name) != 0) own++;
  for (int i = 1; i < p->count && rc == ZKE_OK; i++) {
    const zke_party *m = &p->members[(own + i) % p->count];
    enum member_state state = picture_state(p, m);
    if (state == MEMBER_GONE || state == MEMBER_DEAD) continue;
    rc = gate_watch_party(b, b->r.path, m);
    if (b->state == ZKE_DOUBLE_BARRIER_INSIDE || state == MEMBER_LEAVING) break;
  }
  return rc;
}

/* Set the watches of a party that is inside or in leave.  In leave it also
 * watches the directory's children, so it sees a death even if its neighbour in
 * the ring is stopped.  A call that does not wait needs none. */
static int stay_watch(zke_double_barrier *b, const picture *p) {
  if (b->hasty) return ZKE_OK;
  int rc = zke_recipe_faster(gate_watch(b, b->znode, NULL));
  if (rc == ZKE_OK) rc = gate_watch_ready(b, b->round);
  if (rc == ZKE_OK && b->state == ZKE_DOUBLE_BARRIER_LEAVING)
    rc = zke_children(b->r.z, b->r.path, zke_recipe_watcher, &b->r, NULL, NULL);
  return rc == ZKE_OK ? stay_watch_ring(b, p) : rc;
}

/* `ready` has gone after this party had left: all have left, unless the own
 * znode tells that the round was broken (picture_mark()), or this party has
 * said so already while it was inside. */
static int stay_over(zke_double_barrier *b) {
  char *data = NULL;
  size_t word = sizeof own_broken - 1;
  int rc = zke_get(b->r.z, b->znode, NULL, NULL, &data, NULL, NULL);
  if (rc != ZKE_OK) return zke_recipe_faster(rc);
  bool broken = data && strncmp(data, own_broken, word) == 0;
  if (broken && !b->broken) {
    snprintf(b->dead, sizeof b->dead, "%s", data + word);
    gate_tell(b, ZKE_DOUBLE_BARRIER_BROKEN);
    b->broken = true;
  }
  zke_free(data);
  return stay_end(b, b->broken ? ZKE_BROKEN : ZKE_OK);
}

/* A look while inside or leaving.  In this order: has the own znode gone; is
 * the round over; is it broken; else watch. */
static int stay_look(zke_double_barrier *b) {
  picture p;
  int rc = picture_take(&p, b->r.z, b->r.path, b->ready);
  if (rc != ZKE_OK) {
    /* nothing can be said */
  } else if (!names_have(p.there, b->name)) {
    gate_lose(b);
  } else if (p.round != b->round && b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    rc = stay_over(b);
  } else if (p.round != b->round || picture_first(&p, MEMBER_DEAD)) {
    rc = stay_broken(b, &p);
  } else {
    rc = stay_watch(b, &p);
  }
  picture_clear(&p);
  return rc;
}

/* One try to leave: delete the own child of `ready`.  If another member stays,
 * the same step checks that its child is still there; if none does, `ready` and
 * all that is in it goes in the same step.  So the last member's leaving is the
 * end: of two that leave at the same time one finds its check to fail, and
 * looks again. */
static int picture_depart(const picture *p, const char *name) {
  const char *other = NULL;
  change c;
  if (!names_have(p->inside, name)) return ZKE_OK; /* it was made before */
  for (int i = 0; i < p->count && !other; i++) {
    const char *member = p->members[i].name;
    bool stays = names_have(p->inside, member) && strcmp(member, name) != 0;
    if (stays) other = member;
  }
  if (!other) return picture_remove(p);
  change_new(&c, p->z, 2);
  change_check(&c, p->ready, other);
  change_delete(&c, p->ready, name, -1);
  return change_do(&c);
}

/* One step, made again while others leave at the same time. */
static int stay_depart(zke *z, void *arg) {
  zke_double_barrier *b = arg;
  picture p;
  int rc = picture_take(&p, z, b->r.path, b->ready);
  if (rc == ZKE_OK) rc = picture_depart(&p, b->name);
  picture_clear(&p);
  return rc;
}

/* ---- the object ---- */

/* One look, made again while the picture changes under it.  The state decides
 * where to look: at the arrivals, or at the round.  For zke_recipe_do(). */
static int gate_look(zke *z, void *arg) {
  zke_double_barrier *b = arg;
  (void)z;
  if (b->state == ZKE_DOUBLE_BARRIER_WAITING) return enter_look(b);
  return gate_engaged(b) ? stay_look(b) : ZKE_OK;
}

/* A blocking call repeats a failed step by itself; in a dispatch it is repeated
 * for a short time here. */
static int gate_step(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  return zke_recipe_do(r->z, gate_look, b,
                       b->calling ? 0 : zke_now(r->z) + PATIENCE);
}

/* An object that took part in nothing is told nothing. */
static void gate_ended(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  if (gate_engaged(b)) gate_lose(b);
}

/* The number is the round. */
static void gate_deliver(zke_recipe *r, int event, int64_t number,
                         const char *text, int len) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  (void)text, (void)len;
  if (b->listener) b->listener(b, event, number, b->context);
}

/* The object is freed.  Inside a round that is as a death: the others find it
 * broken. */
static void gate_quit(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  if (!b->znode || gate_discard(b) != ZKE_OK) return;
  if (b->state != ZKE_DOUBLE_BARRIER_WAITING) stay_tidy(b);
}

/* No znode is left at this point: quit has discarded it. */
static void gate_destroy(zke_recipe *r) {
  zke_double_barrier *b = (zke_double_barrier *)r;
  zke_free(b->ready);
  zke_free(b->znode);
  zke_free(b->members);
}

static const zke_recipe_class gate_class = {.name = "double barrier",
                                            .step = gate_step,
                                            .ended = gate_ended,
                                            .deliver = gate_deliver,
                                            .quit = gate_quit,
                                            .destroy = gate_destroy};

/* ---- coming and going ----
 *
 * How a call begins to take part, and how it gives up.  A party that gives up
 * is out, or finds that the round has begun and is inside: its znode never
 * stays behind to be counted in a round of which its program knows nothing.
 */

/* The directory says for how many it is.  (Where it was made anew this very
 * moment it may not: then the first round decides.) */
static int gate_check_parties(const zke_double_barrier *b) {
  char *data = NULL;
  int len = 0;
  int64_t parties = b->parties;
  int rc = zke_get(b->r.z, b->r.path, NULL, NULL, &data, &len, NULL);
  char *line = data && len > 0 ? strstr(data, "\nparties ") : NULL;
  if (line && !zke_recipe_read(&line, "\nparties ", 10, &parties)) parties = 0;
  zke_free(data);
  if (rc == ZKE_OK && parties != b->parties)
    rc = zke_recipe_fail(ZKE_OTHERKIND,
                         "%s is for %" PRId64 " parties, not for %d", b->r.path,
                         parties, b->parties);
  return zke_recipe_faster(rc);
}

/* One step: make the directory, and check that everybody means the same number
 * of parties: with two numbers a round would begin for some only. */
static int gate_place(zke *z, void *arg) {
  const zke_double_barrier *b = arg;
  char more[32];
  snprintf(more, sizeof more, "parties %d\n", b->parties);
  int rc = zke_recipe_place(z, b->r.path, PLACE, ZKE_CONTAINER, more, 0);
  return rc == ZKE_OK ? gate_check_parties(b) : rc;
}

/* Make the own znode.  From then on the step does what is due. */
static int gate_join(zke_double_barrier *b, const void *data, int len,
                     int64_t deadline_ms) {
  int text_len = 0;
  char *text = NULL;
  int rc = zke_recipe_do(b->r.z, gate_place, b, deadline_ms);
  if (rc == ZKE_OK)
    rc = zke_recipe_sign(b->r.z, "waiting ", data, len, &text, &text_len);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_create(b->r.z, b->r.path, PLACE, party_kinds[0], text,
                         text_len, ZKE_EPHEMERAL_SEQUENTIAL, deadline_ms,
                         &b->znode, NULL);
  zke_free(text);
  if (rc != ZKE_OK) return rc;
  b->name = strrchr(b->znode, '/') + 1;
  b->state = ZKE_DOUBLE_BARRIER_WAITING;
  b->told_in = false;
  b->told_out = true;
  b->r.changed = true;
  return ZKE_OK;
}

/* One try to delete the own znode at version 0: while no round has it. */
static int withdraw_once(zke *z, void *arg) {
  const zke_double_barrier *b = arg;
  int rc = zke_delete(z, b->znode, 0);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Withdraw.  ZKE_BADVERSION: the round has begun, and the party is in it.
 * After any other failure the znode goes all the same: if the round begins
 * before that, a member dies inside. */
static int gate_withdraw(zke_double_barrier *b) {
  int rc = zke_retry(b->r.z, withdraw_once, b, ZKE_FOREVER);
  if (rc != ZKE_BADVERSION) {
    if (rc != ZKE_OK) rc = gate_discard(b);
    zke_remove_watch(b->r.z, b->ready, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &b->r);
    gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
  }
  return rc;
}

/* Out again after a failure, whose code and sentence stay; or ZKE_OK: inside
 * after all.  After the session's end nothing is left to do: the party is LOST,
 * and stays so. */
static int enter_give_up(zke_double_barrier *b, int rc) {
  zke_sentence kept;
  if (zke_recipe_has_ended(&b->r, rc) || b->r.ended) return rc;
  zke_recipe_keep(&kept);
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) {
    b->state = ZKE_DOUBLE_BARRIER_OUT;
    return zke_recipe_restore(&kept, rc);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_WAITING) {
    int64_t limit = zke_recipe_grace(b->r.z);
    if (gate_withdraw(b) == ZKE_BADVERSION &&
        zke_recipe_do(b->r.z, gate_look, b, ZKE_FOREVER) != ZKE_OK) {
      gate_discard(b); /* it cannot be told whether it is inside */
      gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
    }
    zke_limit(b->r.z, limit);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_INSIDE) return ZKE_OK;
  return zke_recipe_restore(&kept, rc);
}

/* ---- who is missing ---- */

/* Say in its kind what a member does; returns its state. */
static enum member_state member_describe(const picture *p, zke_party *m) {
  static const char *const kinds[] = {[MEMBER_GONE] = "gone",
                                      [MEMBER_INSIDE] = "inside",
                                      [MEMBER_LEAVING] = "leaving",
                                      [MEMBER_DEAD] = "dead"};
  enum member_state state = picture_state(p, m);
  m->kind = kinds[state];
  return state;
}

/* Those of the party's round that have not left. */
static int missing_members(const zke_double_barrier *b, zke_party_list **out) {
  picture p;
  int count = 0;
  int rc = picture_take(&p, b->r.z, b->r.path, b->ready);
  for (int i = 0; p.round == b->round && i < p.count; i++) {
    zke_party m = p.members[i];
    enum member_state state = member_describe(&p, &m);
    if (state == MEMBER_INSIDE || state == MEMBER_DEAD) p.members[count++] = m;
  }
  if (rc == ZKE_OK) rc = list_pack(b->r.z, p.members, count, out);
  picture_clear(&p);
  return rc;
}

/* Those that wait, this party among them. */
static int missing_arrivals(const zke_double_barrier *b, zke_party_list **out) {
  arrivals a;
  int rc = arrivals_read(b->r.z, b->r.path, 0, &a);
  if (rc == ZKE_OK) rc = list_pack(b->r.z, a.waiting, a.count, out);
  arrivals_clear(&a);
  return rc;
}

/* Explain why the time was not enough: who is still inside, or died there; or
 * who waits outside with this party.  The code stays. */
static int gate_say_missing(const zke_double_barrier *b, int rc) {
  bool leaving = b->state == ZKE_DOUBLE_BARRIER_LEAVING;
  char who[384];
  zke_sentence kept;
  zke_party_list *list = NULL;
  zke_recipe_keep(&kept);
  int found = leaving ? missing_members(b, &list) : missing_arrivals(b, &list);
  if (found != ZKE_OK) return zke_recipe_restore(&kept, rc);
  list_say(list, who, sizeof who);
  if (leaving)
    zke_fail(rc, "%d of the %d parties inside of %s have not left: %s",
             list->count, b->parties, b->r.path, who);
  else
    zke_fail(rc, "%d of %d parties are at %s%s: %s", list->count, b->parties,
             b->r.path,
             list->count >= b->parties ? ", where a round still runs" : "",
             who);
  zke_free(list);
  return rc;
}

/* ---- the blocking calls ----
 *
 * A round may begin, and a leave may end, inside a dispatch, before the call
 * that is to say so.  told_in: enter has returned for this round, so another
 * enter is a misuse.  told_out is false while a leave was begun and no call has
 * returned how it ended; the next leave does.
 */

/* Say what is wrong with a call; returns ZKE_MISUSE. */
static int gate_misuse(const zke_double_barrier *b, const char *why) {
  return zke_recipe_fail(ZKE_MISUSE, "the double barrier %s: %s", b->r.path,
                         why);
}

/* For zke_recipe_await(): has the round begun? */
static int entered(zke_recipe *r) {
  const zke_double_barrier *b = (const zke_double_barrier *)r;
  if (r->ended || b->state == ZKE_DOUBLE_BARRIER_WAITING) return ZKE_NOT_YET;
  return b->state == ZKE_DOUBLE_BARRIER_LOST ? gate_lost(b) : ZKE_OK;
}

/* Blocks until the round has begun.  A call that failed may have been overtaken
 * by the round's beginning: enter_give_up() finds that out, and then it was no
 * failure. */
static int gate_enter(zke_double_barrier *b, const void *data, int len,
                      int64_t deadline_ms) {
  int rc = ZKE_OK;
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) b->state = ZKE_DOUBLE_BARRIER_OUT;
  if (b->state == ZKE_DOUBLE_BARRIER_OUT) {
    rc = gate_join(b, data, len, deadline_ms);
    if (rc != ZKE_OK) return rc;
  } else if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    return gate_misuse(b, "this object is in leave");
  } else if (b->state != ZKE_DOUBLE_BARRIER_WAITING && b->told_in) {
    return gate_misuse(b, "this object is inside");
  }
  rc = zke_recipe_await(&b->r, entered, deadline_ms);
  if (rc == ZKE_OPERATIONTIMEOUT) rc = gate_say_missing(b, rc);
  if (rc != ZKE_OK) rc = enter_give_up(b, rc);
  b->told_in = rc == ZKE_OK;
  return rc;
}

/* For zke_recipe_await(): has the round ended? */
static int left(zke_recipe *r) {
  const zke_double_barrier *b = (const zke_double_barrier *)r;
  if (r->ended || b->state == ZKE_DOUBLE_BARRIER_LEAVING) return ZKE_NOT_YET;
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) return gate_lost(b);
  return ZKE_OK;
}

/* Leaving has failed: out all the same, by deleting the own znode, as if the
 * party had died inside.  So nobody waits for a member that has given up, and
 * none is told that all is well.  Returns rc.  After the session's end nothing
 * is left to do. */
static int depart_give_up(zke_double_barrier *b, int rc) {
  zke_sentence kept;
  if (rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED) return rc;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(b->r.z);
  gate_unwatch(b);
  gate_discard(b);
  zke_limit(b->r.z, limit);
  gate_out(b, ZKE_DOUBLE_BARRIER_OUT);
  b->told_out = true;
  return zke_recipe_restore(&kept, rc);
}

/* Say that the object is in no round; returns ZKE_LOST. */
static int gate_not_inside(const zke_double_barrier *b) {
  return zke_recipe_fail(ZKE_LOST, "this object is in no round at %s",
                         b->r.path);
}

/* Leave; the waiting is the step's. */
static int gate_depart(zke_double_barrier *b) {
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) {
    b->state = ZKE_DOUBLE_BARRIER_OUT;
    return gate_lost(b);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) return ZKE_OK;
  if (b->state != ZKE_DOUBLE_BARRIER_INSIDE) return gate_not_inside(b);
  int rc = zke_recipe_do(b->r.z, stay_depart, b, ZKE_FOREVER);
  if (rc != ZKE_OK) return depart_give_up(b, rc);
  b->state = ZKE_DOUBLE_BARRIER_LEAVING;
  b->told_out = false;
  b->r.changed = true;
  return ZKE_OK;
}

/* Say who died, as far as that is known; returns ZKE_BROKEN. */
static int gate_say_broken(const zke_double_barrier *b) {
  return zke_recipe_fail(ZKE_BROKEN,
                         "the round at %s is broken: %s died inside", b->r.path,
                         b->dead[0] ? b->dead : "somebody");
}

/* How the leaving ended. */
static int stay_outcome(zke_double_barrier *b) {
  b->told_out = true;
  return b->outcome == ZKE_BROKEN ? gate_say_broken(b) : b->outcome;
}

/* Leave, and wait for the end of the round, which comes for all at once.  If
 * the deadline comes first the party is out all the same: the others see that
 * its child went before its znode, so it had left.  A leave that was started
 * before, and has ended, tells how. */
static int gate_leave(zke_double_barrier *b, int64_t deadline_ms) {
  b->hasty = deadline_ms <= zke_now(b->r.z);
  if (b->state == ZKE_DOUBLE_BARRIER_OUT && !b->told_out)
    return stay_outcome(b); /* it was started and has ended */
  int rc = gate_depart(b);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_await(&b->r, left, deadline_ms);
  if (rc == ZKE_OK) return stay_outcome(b);
  if (zke_recipe_has_ended(&b->r, rc) || b->r.ended) return rc; /* LOST */
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    if (rc == ZKE_OPERATIONTIMEOUT) rc = gate_say_missing(b, rc);
    zke_sentence kept;
    zke_recipe_keep(&kept);
    stay_end(b, rc);
    b->told_out = true;
    return zke_recipe_restore(&kept, rc);
  }
  if (b->state == ZKE_DOUBLE_BARRIER_LOST) b->state = ZKE_DOUBLE_BARRIER_OUT;
  return rc;
}

/* Out of a round at once, whatever becomes of it.  Fails only if the session
 * has ended. */
static int gate_pass(zke_double_barrier *b) {
  int rc = b->state == ZKE_DOUBLE_BARRIER_INSIDE ? gate_depart(b) : ZKE_OK;
  if (b->state == ZKE_DOUBLE_BARRIER_LEAVING) {
    stay_end(b, ZKE_OPERATIONTIMEOUT);
    b->told_out = true;
  }
  return b->state == ZKE_DOUBLE_BARRIER_INSIDE ? rc : ZKE_OK;
}

/* Enter, copy the list of the round's parties, and leave at once.  An object
 * that is still inside a round leaves that one first. */
static int gate_meet(zke_double_barrier *b, const void *data, int len,
                     int64_t deadline_ms, zke_party_list **list) {
  int rc = gate_pass(b);
  if (rc == ZKE_OK) rc = gate_enter(b, data, len, deadline_ms);
  if (rc != ZKE_OK) return rc;
  list_pack(b->r.z, b->members->data, b->members->count, list);
  rc = gate_pass(b);
  if (rc != ZKE_OK || *list) return rc;
  return zke_recipe_fail(ZKE_NOMEM, "no memory for a list");
}

/* ---- the interface ---- */

/* Begin a call, one at a time; deadline_ms: NULL for one that does not wait. */
static int gate_call(zke_double_barrier *b, const int64_t *deadline_ms) {
  zke_recipe *r = (zke_recipe *)b;
  int rc =
      deadline_ms ? zke_recipe_enter_by(r, *deadline_ms) : zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  if (b->calling)
    return zke_recipe_leave(&b->r, gate_misuse(b, "another call runs"));
  b->calling = deadline_ms != NULL;
  return ZKE_OK;
}

/* End a call that could wait: the next one may come. */
static int gate_return(zke_double_barrier *b, int rc) {
  b->calling = false;
  b->hasty = false;
  return zke_recipe_leave(&b->r, rc);
}

/* ZKE_BADARGUMENTS: a length below 0, or one without data. */
static int check_data(const void *data, int len) {
  if (len >= 0 && (data || len == 0)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", len);
}

/* `told_out` begins as true: there is no round whose end nobody was told. */
int zke_double_barrier_new(zke *z, const char *path, int parties,
                           const zke_double_barrier_options *options,
                           zke_double_barrier **barrier_out) {
  zke_double_barrier_options o;
  zke_recipe *r = NULL;
  int rc =
      zke_recipe_options(barrier_out, options, &o, zke_double_barrier_options);
  if (rc != ZKE_OK) return rc;
  if (parties < 1 || parties > ZKE_DOUBLE_BARRIER_MOST)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a barrier for %d parties",
                           parties);
  rc = zke_recipe_new(z, path, &gate_class, sizeof(zke_double_barrier), &r);
  if (rc != ZKE_OK) return rc;
  zke_double_barrier *b = (zke_double_barrier *)r;
  b->parties = parties;
  b->told_out = true;
  b->listener = o.listener;
  b->context = o.context;
  b->ready = zke_recipe_path(z, path, "ready");
  if (!b->ready) {
    zke_recipe_free(r);
    return zke_recipe_fail(ZKE_NOMEM, "no memory for a double barrier");
  }
  *barrier_out = b;
  return ZKE_OK;
}

/* Inside of a round this is as a death (gate_quit()). */
void zke_double_barrier_free(zke_double_barrier *barrier) {
  zke_recipe_free((zke_recipe *)barrier);
}

/* The token is read before the mutex is dropped. */
int zke_double_barrier_enter(zke_double_barrier *barrier, const void *data,
                             int len, int64_t deadline_ms, int64_t *token_out) {
  int rc = check_data(data, len);
  if (rc == ZKE_OK) rc = gate_call(barrier, &deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = gate_enter(barrier, data, len, deadline_ms);
  if (rc == ZKE_OK && token_out) *token_out = barrier->round;
  return gate_return(barrier, rc);
}

/* One whose deadline has passed leaves, and waits for nobody. */
int zke_double_barrier_leave(zke_double_barrier *barrier, int64_t deadline_ms) {
  int rc = gate_call(barrier, &deadline_ms);
  if (rc != ZKE_OK) return rc;
  return gate_return(barrier, gate_leave(barrier, deadline_ms));
}

/* Enter and leave in one call, with what all had brought.  The list is made
 * while inside, since the round's data goes with the last that leaves. */
int zke_double_barrier_meet(zke_double_barrier *barrier, const void *data,
                            int len, int64_t deadline_ms,
                            zke_party_list **list_out, int64_t *token_out) {
  zke_party_list *list = NULL;
  int rc = check_data(data, len);
  if (rc == ZKE_OK) rc = gate_call(barrier, &deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = gate_meet(barrier, data, len, deadline_ms, &list);
  if (rc == ZKE_OK && token_out) *token_out = barrier->round;
  rc = gate_return(barrier, rc);
  if (rc == ZKE_OK && list_out)
    *list_out = list;
  else
    zke_free(list);
  return rc;
}

/* Joins, and leaves the rest to dispatching. */
int zke_double_barrier_start(zke_double_barrier *barrier, const void *data,
                             int len) {
  int rc = check_data(data, len);
  if (rc == ZKE_OK) rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  if (barrier->state == ZKE_DOUBLE_BARRIER_LOST)
    barrier->state = ZKE_DOUBLE_BARRIER_OUT;
  if (barrier->state != ZKE_DOUBLE_BARRIER_OUT) {
    rc = gate_misuse(barrier, "this object is in use");
    return gate_return(barrier, rc);
  }
  rc = gate_join(barrier, data, len, ZKE_FOREVER);
  if (rc == ZKE_OK) {
    rc = zke_recipe_look(&barrier->r);
    if (rc != ZKE_OK) rc = enter_give_up(barrier, rc);
  }
  return gate_return(barrier, rc);
}

/* Withdraws, unless the round began first: then the others count on this party,
 * and it is told so by ZKE_HELD. */
int zke_double_barrier_stop(zke_double_barrier *barrier) {
  int rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  if (barrier->state == ZKE_DOUBLE_BARRIER_WAITING) {
    rc = gate_withdraw(barrier);
    if (rc == ZKE_BADVERSION) rc = zke_recipe_look(&barrier->r);
  } else if (barrier->state != ZKE_DOUBLE_BARRIER_INSIDE) {
    rc = zke_recipe_fail(ZKE_LOST, "this object does not wait at %s",
                         barrier->r.path);
  }
  if (rc == ZKE_OK && barrier->state == ZKE_DOUBLE_BARRIER_INSIDE)
    rc =
        zke_recipe_fail(ZKE_HELD, "the round at %s has begun", barrier->r.path);
  return gate_return(barrier, rc);
}

/* Departs, and leaves the end to dispatching. */
int zke_double_barrier_leave_start(zke_double_barrier *barrier) {
  int rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  rc = gate_depart(barrier);
  if (rc == ZKE_OK) rc = zke_recipe_look(&barrier->r);
  return gate_return(barrier, rc);
}

/* For a program that has no dispatch. */
int zke_double_barrier_step(zke_double_barrier *barrier) {
  int rc = gate_call(barrier, NULL);
  if (rc != ZKE_OK) return rc;
  return gate_return(barrier, zke_recipe_look(&barrier->r));
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_double_barrier_cancel(zke_double_barrier *barrier) {
  return zke_recipe_cancel((zke_recipe *)barrier);
}

/* From memory; an object that cannot be entered is inside of nothing. */
int zke_double_barrier_state(zke_double_barrier *barrier) {
  if (zke_recipe_enter_memory((zke_recipe *)barrier) != ZKE_OK)
    return ZKE_DOUBLE_BARRIER_LOST;
  int state = barrier->state;
  zke_recipe_leave(&barrier->r, ZKE_OK);
  return state;
}

/* The round, which also stays after its end. */
int64_t zke_double_barrier_token(zke_double_barrier *barrier) {
  if (zke_recipe_enter_memory((zke_recipe *)barrier) != ZKE_OK) return 0;
  int64_t round = barrier->round;
  zke_recipe_leave(&barrier->r, ZKE_OK);
  return round;
}

/* Looks first, so a round that was broken a moment ago is known as broken. */
int zke_double_barrier_check(zke_double_barrier *barrier) {
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  if (gate_engaged(barrier)) rc = zke_recipe_look(&barrier->r);
  if (rc == ZKE_OK && barrier->broken)
    rc = gate_say_broken(barrier);
  else if (rc == ZKE_OK && barrier->state != ZKE_DOUBLE_BARRIER_INSIDE)
    rc = gate_not_inside(barrier);
  return zke_recipe_leave(&barrier->r, rc);
}

/* The members of the round, as they were when it began. */
int zke_double_barrier_list(zke_double_barrier *barrier,
                            zke_party_list **list_out) {
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  const zke_party_list *members = barrier->members;
  rc = list_pack(barrier->r.z, members ? members->data : NULL,
                 members ? members->count : 0, list_out);
  return zke_recipe_leave(&barrier->r, rc);
}

/* While waiting only the number is known of those who have not come; while
 * inside, who has not left. */
int zke_double_barrier_missing(zke_double_barrier *barrier,
                               zke_party_list **list_out, int *count_out) {
  zke_party_list *list = NULL;
  int rc = zke_recipe_enter((zke_recipe *)barrier);
  if (rc != ZKE_OK) return rc;
  bool waits = barrier->state == ZKE_DOUBLE_BARRIER_WAITING;
  rc = waits ? missing_arrivals(barrier, &list)
             : missing_members(barrier, &list);
  if (rc == ZKE_OK) {
    int missing = waits ? barrier->parties - list->count : list->count;
    if (count_out) *count_out = missing > 0 ? missing : 0;
    if (waits) list->count = 0;
    if (list_out)
      *list_out = list;
    else
      zke_free(list);
  }
  return zke_recipe_leave(&barrier->r, rc);
}

/* The members and those that wait, as one list. */
static int gate_list(zke *z, const picture *p, const arrivals *a,
                     zke_party_list **list_out) {
  size_t most = (size_t)p->count + (size_t)a->count + 1;
  zke_party *all = zke_alloc(z, most * sizeof *all);
  int count = 0;
  if (!all) return ZKE_NOMEM;
  for (int i = 0; i < p->count; i++) {
    all[count] = p->members[i];
    enum member_state state = member_describe(p, &all[count]);
    all[count].held = state == MEMBER_INSIDE;
    count += state != MEMBER_GONE;
  }
  for (int i = 0; i < a->count; i++) all[count++] = a->waiting[i];
  int rc = list_pack(z, all, count, list_out);
  zke_free(all);
  return rc;
}

/* Members first, then those that wait. */
static int gate_parties(zke *z, const char *path, const char *ready,
                        zke_party_list **list_out) {
  picture p;
  arrivals a = {0};
  int rc = picture_take(&p, z, path, ready);
  if (rc == ZKE_OK) rc = arrivals_read(z, path, 0, &a);
  if (rc == ZKE_OK || rc == ZKE_NONODE) rc = gate_list(z, &p, &a, list_out);
  arrivals_clear(&a);
  picture_clear(&p);
  return rc;
}

/* For a look from outside, without an object. */
int zke_double_barrier_parties(zke *z, const char *path,
                               zke_party_list **list_out) {
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_exists(z, path, NULL, NULL, NULL); /* checks the path */
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  char *ready = zke_recipe_path(z, path, "ready");
  if (!ready) return ZKE_NOMEM;
  rc = gate_parties(z, path, ready, list_out);
  zke_free(ready);
  return rc;
}
