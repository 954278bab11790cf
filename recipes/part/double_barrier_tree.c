/* double_barrier_tree.c - the znodes of a double barrier
 *
 * This file knows the data of each znode, and which changes belong into one
 * step.  It promises its callers: a step is made only while its conditions
 * still hold, and never hits a later round.
 *
 * The name of a party is never used again.  The name `ready` is, and its
 * versions repeat.  So each step that relies on a round names a party: it is
 * refused if that party's znode, or its child of `ready`, has changed since it
 * was read.
 *
 * Start reading at zke_picture_take() and zke_picture_state(); then
 * zke_round_begin() and round_depart_once(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "double_barrier_tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"
#include "text.h"

#define PLACE "double-barrier" /* the directory's kind */

/* The text before the number in a party's name. */
static const char *const party_kinds[] = {"party-"};

/* The znode of a party begins with this until its round begins. */
static const char word_waiting[] = "waiting ";

/* `ready` begins with one of these, of equal length. */
static const char word_running[] = "running\n", word_broken[] = "broken \n";
enum { WORD = sizeof word_running - 1 /* bytes of either word */ };

/* The znode of a member: this, from its round's beginning on. */
static const char word_inside[] = "inside\n";

/* If a member's broken round was cleared away before it looked, it finds this
 * word in its own znode.  The name of the dead member follows. */
static const char own_broken[] = "broken ";

/* ---- waiting parties ---- */

/* Cut the data of a waiting party, "waiting <pid> <identity>\n<data>", into
 * strings.  False: it does not wait (its version is above 0), or it was made by
 * other means.  The strings point into the result, and live as long. */
static bool party_read(zke_op_result *node, const char *name, zke_party *p) {
  int64_t pid;
  if (node->rc != ZKE_OK || node->len <= 0) return false;
  if (node->stat.version != 0 || !node->stat.ephemeralOwner) return false;
  char *end = memchr(node->data, '\n', (size_t)node->len);
  if (!end) return false;
  *end = '\0';
  char *at = node->data;
  if (!zke_recipe_read(&at, word_waiting, 10, &pid) || *at != ' ') return false;
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

/* Release everything.  Any array may be missing, if memory was short. */
void zke_arrivals_clear(zke_arrivals *a) {
  if (a->read) zke_results_clear(a->read, a->entries->count);
  zke_free(a->read);
  zke_free(a->waiting);
  zke_free(a->entries);
}

/* For bsearch(): compare a session's number with a session of a list. */
static int session_order(const void *key, const void *element) {
  int64_t id = *(const int64_t *)key;
  const zke_session_info *info = element;
  return id < info->id ? -1 : id > info->id;
}

/* Drop parties of dead processes whose znodes still exist: a round with them
 * would be broken from the start.
 *
 * A session that is not listed is kept.  On an ensemble it may not have
 * published its node, and while it lives its znode exists.  In a file it has
 * ended since the znodes were read, and its znode has gone with it: so no round
 * can begin with it (zke_round_begin()). */
static int arrivals_drop_dead(zke_arrivals *a) {
  zke_session_list *s = NULL;
  int living = 0;
  int rc = a->count ? zke_sessions(a->gate->z, -1, &s) : ZKE_OK;
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

/* Read all parties' znodes in one snapshot, keep the waiting ones, and drop
 * those of dead processes. */
static int arrivals_read_all(zke_arrivals *a) {
  const zke_gate *gate = a->gate;
  int n = a->entries->count;
  a->waiting = zke_alloc(gate->z, (size_t)n * sizeof *a->waiting);
  if (!a->waiting) return ZKE_NOMEM;
  int rc = zke_recipe_read_entries(gate->z, gate->path, a->entries, &a->read);
  for (int i = 0; rc == ZKE_OK && i < n; i++) {
    a->count += party_read(&a->read[i], a->entries->data[i].name,
                           &a->waiting[a->count]);
  }
  return rc == ZKE_OK ? arrivals_drop_dead(a) : rc;
}

/* A directory without parties needs no second read. */
int zke_arrivals_read(zke_arrivals *a, const zke_gate *gate, int least) {
  *a = (zke_arrivals){.gate = gate};
  int rc = zke_recipe_entries(gate->z, gate->path, party_kinds, 1, NULL, NULL,
                              &a->entries, NULL);
  if (rc != ZKE_OK || a->entries->count < least) return rc;
  return a->entries->count ? arrivals_read_all(a) : ZKE_OK;
}

/* ---- the picture ----
 *
 * `ready` is "running\n" or "broken \n", followed by a record of each member.
 * So all know the members and their data as long as the round exists, whatever
 * has become of them. */

/* Any part may be missing, if the read failed. */
void zke_picture_clear(zke_picture *p) {
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

/* Parse ready's data; ZKE_OTHERKIND if it has another form.  The records are
 * counted first, and then cut.  A malformed record ends the list: no party has
 * written what follows it. */
static int picture_parse(zke_picture *p) {
  const zke_op_result *node = &p->read[0];
  int len = node->len, at, count = 0;
  const char *data = node->data;
  bool running = len >= WORD && memcmp(data, word_running, WORD) == 0;
  p->broken = len >= WORD && memcmp(data, word_broken, WORD) == 0;
  if (!running && !p->broken)
    return zke_recipe_fail(
        ZKE_OTHERKIND, "%s is not a round of a double barrier", p->gate->ready);
  p->text = zke_alloc(p->gate->z, (size_t)len + 1);
  if (!p->text) return ZKE_NOMEM;
  memcpy(p->text, data, (size_t)len);
  for (at = WORD; at < len && member_read(p->text, len, &at, NULL);) count++;
  p->members = zke_alloc(p->gate->z, (size_t)(count + 1) * sizeof *p->members);
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

/* A znode that is missing has no children. */
int zke_picture_take(zke_picture *p, const zke_gate *gate) {
  static const zke_strings none;
  zke_op ops[3];
  *p = (zke_picture){.gate = gate};
  zke_op_get(&ops[0], gate->ready);
  zke_op_children(&ops[1], gate->ready, NULL, 0);
  zke_op_children(&ops[2], gate->path, NULL, 0);
  int rc = zke_recipe_multi_read(gate->z, ops, 3, p->read);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < 3; i++) {
    rc = p->read[i].rc;
    if (rc != ZKE_OK && rc != ZKE_NONODE)
      return zke_recipe_fail(rc, "cannot read the double barrier %s",
                             gate->path);
  }
  p->inside = p->read[1].rc == ZKE_OK ? p->read[1].children : &none;
  p->there = p->read[2].rc == ZKE_OK ? p->read[2].children : &none;
  return p->read[0].rc == ZKE_OK ? picture_parse(p) : ZKE_OK;
}

/* For bsearch(): compare a name with one of a list. */
static int name_order(const void *key, const void *element) {
  return strcmp(key, *(char *const *)element);
}

/* Is this name in a sorted list? */
static bool names_have(const zke_strings *names, const char *name) {
  return names->count && bsearch(name, names->data, (size_t)names->count,
                                 sizeof *names->data, name_order) != NULL;
}

/* Other nodes of the directory do not have a party's name. */
bool zke_picture_has(const zke_picture *p, const char *name) {
  return names_have(p->there, name);
}

/* Two names decide: the own znode's, and that of the child of `ready`. */
enum zke_member_state zke_picture_state(const zke_picture *p,
                                        const zke_party *m) {
  bool inside = names_have(p->inside, m->name);
  if (names_have(p->there, m->name))
    return inside ? ZKE_MEMBER_INSIDE : ZKE_MEMBER_LEAVING;
  return inside ? ZKE_MEMBER_DEAD : ZKE_MEMBER_GONE;
}

/* Members are in the order in which they arrived. */
const zke_party *zke_picture_first(const zke_picture *p,
                                   enum zke_member_state state) {
  for (int i = 0; i < p->count; i++) {
    if (zke_picture_state(p, &p->members[i]) == state) return &p->members[i];
  }
  return NULL;
}

/* The name of the dead member is moved to the front of the block. */
int zke_round_told(zke *z, const char *znode, char **dead_out) {
  char *data = NULL;
  size_t word = sizeof own_broken - 1;
  *dead_out = NULL;
  int rc = zke_get(z, znode, NULL, NULL, &data, NULL, NULL);
  if (rc != ZKE_OK) return zke_recipe_faster(rc);
  if (data && strncmp(data, own_broken, word) == 0) {
    memmove(data, data + word, strlen(data + word) + 1);
    *dead_out = data;
  } else {
    zke_free(data);
  }
  return ZKE_OK;
}

/* ---- a multi being built ---- */

/* Operations are added one by one; then change_do() makes them and releases
 * all.  If memory runs out, that is recorded, and change_do() returns it. */
typedef struct change {
  zke *z;
  int count, room; /* operations added, and the room for them */
  bool no_memory;
  zke_op *ops; /* their paths belong to the change */
} change;

/* Begin a step of at most `room` operations.  Without memory none are added,
 * and change_do() returns ZKE_NOMEM. */
static void change_new(change *c, zke *z, int room) {
  *c = (change){.z = z, .room = room};
  c->ops = zke_alloc(z, (size_t)room * sizeof *c->ops);
  c->no_memory = !c->ops;
}

/* The next operation, and its path; NULL without memory. */
static zke_op *change_op(change *c, const char *directory, const char *name,
                         char **path) {
  *path = c->no_memory || c->count == c->room
              ? NULL
              : zke_recipe_path(c->z, directory, name);
  if (!*path) c->no_memory = true;
  return *path ? &c->ops[c->count++] : NULL;
}

/* Add the creation of a persistent node. */
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

/* Add a check that a node exists, of any version: the change is made only while
 * it does. */
static void change_check(change *c, const char *directory, const char *name) {
  char *path;
  zke_op *op = change_op(c, directory, name, &path);
  if (op) zke_op_check(op, path, -1);
}

/* Make the change, and release it.  ZKE_LOOK_AGAIN: the picture has changed.
 * (ZKE_NOTEMPTY does not count: a child has children only if other programs
 * have made them, and a new look would find the same.) */
static int change_do(change *c) {
  int rc =
      c->no_memory ? ZKE_NOMEM : zke_recipe_multi(c->z, c->ops, c->count, NULL);
  for (int i = 0; i < c->count; i++)
    zke_free((void *)(uintptr_t)c->ops[i].path);
  zke_free(c->ops);
  return rc == ZKE_NONODE || rc == ZKE_BADVERSION ? ZKE_LOOK_AGAIN : rc;
}

/* ---- steps for any party ---- */

/* The data for `ready`, in one block (member_read() has the form). */
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

/* One step, which fails if any party's znode has changed since its owner made
 * it. */
int zke_round_begin(const zke_arrivals *a) {
  const zke_gate *g = a->gate;
  const zke_party *p = a->waiting;
  change c;
  int len = 0;
  char *text = round_text(g->z, p, g->parties, &len);
  if (!text) return ZKE_NOMEM;
  change_new(&c, g->z, 2 * g->parties + 1);
  change_create(&c, g->path, "ready", text, len);
  for (int i = 0; i < g->parties; i++) {
    change_set(&c, g->path, p[i].name, word_inside, sizeof word_inside - 1, 0);
    change_create(&c, g->ready, p[i].name, "", 0);
  }
  int rc = change_do(&c);
  zke_free(text);
  if (rc == ZKE_BADARGUMENTS)
    rc = zke_recipe_fail(
        ZKE_LIMIT, "the data of the %d parties of %s, %d bytes, is too much",
        g->parties, g->path, len);
  return rc;
}

enum { DEATH = 160 }; /* bytes of the sentence about the dead member */

/* Tell the members that wait to leave, in their own znodes, that the round was
 * broken: `ready` is about to go, which would look like a good end.  text must
 * live until the change is done. */
static void picture_mark(const zke_picture *p, change *c, char text[DEATH]) {
  const zke_party *dead = zke_picture_first(p, ZKE_MEMBER_DEAD);
  if (!dead) return;
  int len = snprintf(text, DEATH, "%s%.100s (pid %" PRId64 ")", own_broken,
                     dead->identity, dead->pid);
  for (int i = 0; i < p->count; i++) {
    const zke_party *m = &p->members[i];
    if (zke_picture_state(p, m) == ZKE_MEMBER_LEAVING)
      change_set(c, p->gate->path, m->name, text, len, -1);
  }
}

/* The children's names are never used again, and `ready` must have the version
 * that was read: so this does not hit a later round. */
int zke_round_remove(const zke_picture *p) {
  change c;
  char text[DEATH];
  change_new(&c, p->gate->z, p->inside->count + p->count + 1);
  for (int i = 0; i < p->inside->count; i++)
    change_delete(&c, p->gate->ready, p->inside->data[i], -1);
  change_delete(&c, p->gate->path, "ready", p->read[0].stat.version);
  picture_mark(p, &c, text);
  return change_do(&c);
}

/* The version alone is not enough: `ready` of the next round begins with the
 * same versions.  So the step also checks that the dead member's child exists;
 * its name is never used again. */
int zke_round_break(const zke_picture *p, const zke_party *dead) {
  const zke_op_result *node = &p->read[0];
  change c;
  char *text = zke_alloc(p->gate->z, (size_t)node->len);
  if (!text) return ZKE_NOMEM;
  memcpy(text, node->data, (size_t)node->len);
  memcpy(text, word_broken, WORD);
  change_new(&c, p->gate->z, 2);
  change_check(&c, p->gate->ready, dead->name);
  change_set(&c, p->gate->path, "ready", text, node->len, node->stat.version);
  int rc = change_do(&c);
  zke_free(text);
  return rc;
}

/* ---- a party's own steps ---- */

/* The directory says for how many parties it is.  (If it was made again just
 * now, it may not say so: then the first round decides.) */
static int round_check_parties(const zke_gate *g) {
  char *data = NULL;
  int len = 0;
  int64_t stated = g->parties;
  int rc = zke_get(g->z, g->path, NULL, NULL, &data, &len, NULL);
  char *line = data && len > 0 ? strstr(data, "\nparties ") : NULL;
  if (line && !zke_recipe_read(&line, "\nparties ", 10, &stated)) stated = 0;
  zke_free(data);
  if (rc == ZKE_OK && stated != g->parties)
    rc = zke_recipe_fail(ZKE_OTHERKIND,
                         "%s is for %" PRId64 " parties, not for %d", g->path,
                         stated, g->parties);
  return zke_recipe_faster(rc);
}

/* Make the directory, and check that all use the same number of parties: with
 * two numbers a round would begin for some only. */
static int round_make_place(zke *z, void *arg) {
  const zke_gate *g = *(const zke_gate *const *)arg;
  char more[32];
  snprintf(more, sizeof more, "parties %d\n", g->parties);
  int rc = zke_recipe_place(z, g->path, PLACE, ZKE_CONTAINER, more, 0);
  return rc == ZKE_OK ? round_check_parties(g) : rc;
}

/* The directory comes first, since it has the number of parties. */
int zke_round_join(const zke_gate *gate, const void *data, int len,
                   int64_t deadline_ms, char **znode_out) {
  zke *z = gate->z;
  char *text = NULL;
  int text_len = 0;
  int rc = zke_recipe_do(z, round_make_place, &gate, deadline_ms);
  if (rc == ZKE_OK)
    rc = zke_recipe_sign(z, word_waiting, data, len, &text, &text_len);
  if (rc != ZKE_OK) return rc;
  rc =
      zke_recipe_create(z, gate->path, PLACE, party_kinds[0], text, text_len,
                        ZKE_EPHEMERAL_SEQUENTIAL, deadline_ms, znode_out, NULL);
  zke_free(text);
  return rc;
}

/* One try, at version 0: the step that begins a round raises it. */
static int withdraw_once(zke *z, void *arg) {
  const char *const *znode = arg;
  int rc = zke_delete(z, *znode, 0);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* A missing znode was deleted by a try that lost its reply. */
int zke_round_withdraw(zke *z, const char *znode) {
  return zke_retry(z, withdraw_once, &znode, ZKE_FOREVER);
}

/* Delete the own child of `ready`.  If another member stays, the same step
 * checks that its child still exists; if none does, the same step deletes
 * `ready` with all its children.  So the last member ends the round: if two
 * leave at the same time, the check of one fails, and it looks again. */
static int round_depart_once(const zke_picture *p, const char *name) {
  const char *other = NULL;
  change c;
  if (!names_have(p->inside, name)) return ZKE_OK; /* an earlier try was made */
  for (int i = 0; i < p->count && !other; i++) {
    const char *member = p->members[i].name;
    bool stays = names_have(p->inside, member) && strcmp(member, name) != 0;
    if (stays) other = member;
  }
  if (!other) return zke_round_remove(p);
  change_new(&c, p->gate->z, 2);
  change_check(&c, p->gate->ready, other);
  change_delete(&c, p->gate->ready, name, -1);
  return change_do(&c);
}

/* For zke_recipe_do(): the barrier, and the member that leaves. */
typedef struct round_departure {
  const zke_gate *gate;
  const char *name;
} round_departure;

/* One step, repeated while others leave at the same time. */
static int round_depart(zke *z, void *arg) {
  const round_departure *d = arg;
  zke_picture p;
  (void)z;
  int rc = zke_picture_take(&p, d->gate);
  if (rc == ZKE_OK) rc = round_depart_once(&p, d->name);
  zke_picture_clear(&p);
  return rc;
}

/* Each try takes a picture, which shows whether the try before was made. */
int zke_round_depart(const zke_gate *gate, const char *name) {
  round_departure d = {gate, name};
  return zke_recipe_do(gate->z, round_depart, &d, ZKE_FOREVER);
}
