/* test_lab_bugs: mistakes that recipe libraries have made, each found
 *
 * There is a small correct recipe of each kind, written directly on zkembed.h,
 * and a list of mistakes to make in it.  The correct ones pass with all faults
 * on; each wrong one is found with the default options.  If a mistake is known
 * from another project, its line in the table says which.
 *
 * Environment: SEEDS, how many seeds for each (1); SECONDS, of processor time
 * at most for each seed (20).  With either, a table of times is printed. */
#include "test/lab/zkembed-lab.h"
#include "test/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum bug {
  NONE,
  LOST_REPLY_FORGOTTEN,
  TIMEOUT_LEAVES_NODE,
  WHOLE_NAME_SORTED,
  FOREIGN_CHILD,
  PREDECESSOR_VANISHED,
  PREDECESSOR_VANISHED_DEADLINE,
  HERD,
  WAKE_IS_CONDITION,
  RELEASE_ONCE,
  INNER_RELEASE,
  NAMES_LEAK,
  STARTED_TWICE,
  LEADER_VANISHED,
  DELETE_BY_NAME,
  READER_WAITS_FOR_ALL,
  WRITER_SKIPS_READERS,
  SEMAPHORE_LOOKS_FIRST,
  RELEASE_COUNTS_TWICE,
  UPDATE_LOST,
  UPDATE_TWICE,
  ITEM_DELETED_FIRST,
  ITEM_TAKEN_TWICE,
  CLAIM_LEFT,
  LOOK_THEN_WATCH,
  REQUEUE_IN_TWO,
  BARRIER_LOOK_THEN_WATCH,
  READY_IS_MEMBER,
  FAILED_ENTRY_COUNTS,
  PRESUMED_ABORT,
  DECIDED_ON_SOME,
  CACHE_WATCHES_LATE,
  CACHE_STARTS_EMPTY,
  CACHE_STOPS_AT_DELETE
};

static enum bug bug;

/* ---- common functions ---- */

static void fire(zke *z, int type, int state, const char *path, void *fired) {
  (void)z, (void)type, (void)state, (void)path;
  *(int *)fired = 1;
}

/* Wait until the watcher of `fired` was called. */
static int wait_fired(zke *z, const int *fired, int64_t deadline_ms) {
  int rc = ZKE_OK;
  while (!*fired && rc == ZKE_OK) rc = zke_wait(z, deadline_ms);
  return *fired ? ZKE_OK : rc;
}

/* Wait until the znode at the path changes; not at all if there is none. */
static int wait_gone(zke *z, const char *path, int64_t deadline_ms) {
  int fired = 0;
  int rc = zke_get(z, path, fire, &fired, NULL, NULL, NULL);
  if (rc == ZKE_NONODE) return ZKE_OK;
  if (rc == ZKE_OK) rc = wait_fired(z, &fired, deadline_ms);
  zke_forget(z, fire, &fired);
  return rc;
}

static void make(zke *z, const char *path) {
  zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void lock_setup(zke *z, void *arg) {
  (void)arg;
  make(z, "/lock");
  if (bug == FOREIGN_CHILD) make(z, "/lock/foreign");
}

/* ---- a lock: a line of znodes ID-read-NUMBER and ID-lock-NUMBER ---- */

typedef struct line {
  zke *z;
  char id[40];
  char own[96];    /* path; "": none */
  char before[96]; /* path of the one to wait for */
} line;

static int number_of(const char *name) {
  const char *dash = strchr(name, '-');
  if (!dash && bug != FOREIGN_CHILD) return INT32_MAX;
  dash = strchr(dash + 1, '-');
  return dash ? atoi(dash + 1) : INT32_MAX;
}

/* Does the first come before the second? */
static int comes_before(const char *a, const char *b) {
  if (bug == WHOLE_NAME_SORTED) return strcmp(a, b) < 0;
  return (uint32_t)number_of(a) < (uint32_t)number_of(b);
}

/* The children of /lock; NULL: see *rc. */
static zke_strings *line_list(const line *l, int *rc) {
  zke_strings *names = NULL;
  *rc = zke_children(l->z, "/lock", NULL, NULL, &names, NULL);
  return names;
}

/* Find the znode after its reply was lost. */
static int line_find(line *l) {
  int rc;
  zke_strings *names = line_list(l, &rc);
  for (int i = 0; names && i < names->count; i++) {
    if (strncmp(names->data[i], l->id, strlen(l->id)) == 0)
      snprintf(l->own, sizeof l->own, "/lock/%s", names->data[i]);
  }
  zke_free(names);
  return rc;
}

static int line_join(line *l, zke *z, const char *kind) {
  char path[96], *made = NULL;
  memset(l, 0, sizeof *l);
  l->z = z;
  snprintf(l->id, sizeof l->id, "%llx-%s-",
           (unsigned long long)zke_session_id(z) % 4096 * 2654435761u % 97,
           kind);
  snprintf(path, sizeof path, "/lock/%s", l->id);
  int rc = ZKE_CONNECTIONLOSS;
  while (rc == ZKE_CONNECTIONLOSS) {
    rc = zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                    &made, NULL);
    if (rc == ZKE_OK) snprintf(l->own, sizeof l->own, "%s", made);
    zke_free(made);
    made = NULL;
    if (rc != ZKE_CONNECTIONLOSS || bug == LOST_REPLY_FORGOTTEN) continue;
    rc = line_find(l);
    if (rc == ZKE_OK && !l->own[0]) rc = ZKE_CONNECTIONLOSS;
  }
  return rc;
}

static int line_leave(line *l) {
  int rc = ZKE_CONNECTIONLOSS;
  while (l->own[0] && rc == ZKE_CONNECTIONLOSS) {
    rc = zke_delete(l->z, l->own, -1);
    if (bug == RELEASE_ONCE) break;
  }
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Does a znode with this name block us? */
static int keeps_out(const line *l, const char *name) {
  const char *own = l->own + strlen("/lock/");
  int is_reader = strstr(own, "-read-") != NULL;
  int other_reads = strstr(name, "-read-") != NULL;
  if (strcmp(name, own) == 0) return 0;
  if (bug != FOREIGN_CHILD && !strchr(name, '-')) return 0;
  if (is_reader && other_reads) return 0;
  if (is_reader && bug == READER_WAITS_FOR_ALL) return 1;
  if (!is_reader && other_reads && bug == WRITER_SKIPS_READERS) return 0;
  return comes_before(name, own);
}

/* The last znode that we must wait for, into l->before; 0: there is none. */
static int line_look(line *l, int *rc) {
  const char *last = NULL;
  zke_strings *names = line_list(l, rc);
  for (int i = 0; names && i < names->count; i++) {
    const char *name = names->data[i];
    if (!keeps_out(l, name)) continue;
    if (!last || comes_before(last, name)) last = name;
  }
  if (last) snprintf(l->before, sizeof l->before, "/lock/%s", last);
  int found = last != NULL;
  if (!found || bug != NAMES_LEAK) zke_free(names);
  return found;
}

/* Wait for any change of the line, instead of the relevant one. */
static int wait_with_the_herd(line *l, int64_t deadline_ms) {
  int fired = 0;
  int rc = zke_children(l->z, "/lock", fire, &fired, NULL, NULL);
  int more = 0, look = ZKE_OK;
  if (rc == ZKE_OK) more = line_look(l, &look);
  if (more) rc = wait_fired(l->z, &fired, deadline_ms);
  zke_forget(l->z, fire, &fired);
  return rc == ZKE_OK ? look : rc;
}

/* Wait with a read that accepts that the znode is gone. */
static int wait_by_exists(line *l, int64_t deadline_ms) {
  int fired = 0;
  int rc = zke_exists(l->z, l->before, fire, &fired, NULL);
  if (rc == ZKE_OK || rc == ZKE_NONODE)
    rc = wait_fired(l->z, &fired, deadline_ms);
  zke_forget(l->z, fire, &fired);
  return rc;
}

static int line_wait(line *l, int64_t deadline_ms) {
  if (bug == HERD) return wait_with_the_herd(l, deadline_ms);
  if (bug == PREDECESSOR_VANISHED || bug == PREDECESSOR_VANISHED_DEADLINE)
    return wait_by_exists(l, deadline_ms);
  return wait_gone(l->z, l->before, deadline_ms);
}

static int line_take(line *l, zke *z, const char *kind, int64_t deadline_ms) {
  int rc = line_join(l, z, kind);
  while (rc == ZKE_OK && line_look(l, &rc)) {
    rc = line_wait(l, deadline_ms);
    if (rc == ZKE_OK && bug == WAKE_IS_CONDITION) break;
  }
  if (rc != ZKE_OK && bug != TIMEOUT_LEAVES_NODE) line_leave(l);
  return rc;
}

static void take_lock_once(zke *z) {
  line l;
  int with_deadline =
      bug == PREDECESSOR_VANISHED_DEADLINE || bug == TIMEOUT_LEAVES_NODE;
  int64_t deadline = with_deadline ? zke_now(z) + 1000 : ZKE_FOREVER;
  if (line_take(&l, z, "lock", deadline) != ZKE_OK) return;
  zke_lab_enter("held", 1);
  if (bug == TIMEOUT_LEAVES_NODE) zke_sleep(z, zke_now(z) + 5000);
  zke_lab_leave("held");
  line_leave(&l);
}

/* A herd is noticed only if there is more than one change. */
static void take_lock(zke *z, void *arg) {
  (void)arg;
  take_lock_once(z);
  for (int i = 0; bug == HERD && i < 3; i++) take_lock_once(z);
}

/* A lock that is held twice is released after two releases. */
static void take_lock_twice(zke *z, void *arg) {
  line l;
  int held = 0;
  (void)arg;
  if (line_take(&l, z, "lock", ZKE_FOREVER) != ZKE_OK) return;
  held = 2;
  zke_lab_enter("held", 1);
  if (--held == 0 || bug == INNER_RELEASE) line_leave(&l);
  zke_lab_yield();
  zke_lab_leave("held");
  if (--held == 0) line_leave(&l);
}

static void start_twice(zke *z, void *arg) {
  line first;
  (void)arg;
  int rc = line_join(&first, z, "lock");
  if (bug == STARTED_TWICE && rc == ZKE_OK) rc = line_join(&first, z, "lock");
  while (rc == ZKE_OK && line_look(&first, &rc))
    rc = wait_gone(z, first.before, ZKE_FOREVER);
  if (rc == ZKE_OK) zke_lab_enter("held", 1);
  zke_lab_leave("held");
  line_leave(&first);
}

static void read_share(zke *z, void *arg) {
  line l;
  (void)arg;
  if (line_take(&l, z, "read", ZKE_FOREVER) != ZKE_OK) return;
  zke_lab_enter("read", 3);
  zke_lab_exclude("read", "written");
  zke_lab_leave("read");
  line_leave(&l);
}

static void write_alone(zke *z, void *arg) {
  line l;
  (void)arg;
  if (line_take(&l, z, "lock", ZKE_FOREVER) != ZKE_OK) return;
  zke_lab_enter("written", 1);
  zke_lab_exclude("written", "read");
  zke_lab_leave("written");
  line_leave(&l);
}

/* Who leads?  There must be a leader while this process itself is in line. */
static void ask_for_leader(zke *z, void *arg) {
  line l;
  int rc = line_join(&l, z, "lock"), found = 0;
  (void)arg;
  while (rc == ZKE_OK && !found) {
    if (!line_look(&l, &rc)) break;
    int look = zke_get(z, l.before, NULL, NULL, NULL, NULL, NULL);
    if (bug == LEADER_VANISHED) zke_lab_assert(look != ZKE_NONODE);
    found = look == ZKE_OK;
    if (look != ZKE_NONODE) rc = look;
  }
  line_leave(&l);
}

/* ---- a lock by one name ---- */

static int key_is_own(zke *z, const char *path) {
  zke_stat stat;
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  return rc == ZKE_OK && stat.ephemeralOwner == zke_session_id(z);
}

static int key_take(zke *z) {
  for (;;) {
    int rc =
        zke_create(z, "/key", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
    if (rc == ZKE_CONNECTIONLOSS && key_is_own(z, "/key")) rc = ZKE_OK;
    if (rc == ZKE_OK) return ZKE_OK;
    if (rc == ZKE_NODEEXISTS) rc = wait_gone(z, "/key", ZKE_FOREVER);
    if (rc != ZKE_OK && rc != ZKE_CONNECTIONLOSS) return rc;
  }
}

/* A retry must not delete what another process has made since. */
static void key_release(zke *z, const char *path) {
  while (zke_delete(z, path, -1) == ZKE_CONNECTIONLOSS) {
    if (bug != DELETE_BY_NAME && !key_is_own(z, path)) return;
  }
}

static void take_key(zke *z, void *arg) {
  (void)arg;
  if (key_take(z) != ZKE_OK) return;
  zke_lab_enter("held", 1);
  zke_lab_leave("held");
  key_release(z, "/key");
}

/* ---- a semaphore of two ---- */

static void permits_setup(zke *z, void *arg) {
  (void)arg;
  make(z, "/permits");
  zke_create(z, "/free", "2", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void take_permit_looking(zke *z) {
  int64_t count = 0;
  char path[64];
  snprintf(path, sizeof path, "/permits/%lld", (long long)zke_session_id(z));
  if (zke_count(z, "/permits", &count) != ZKE_OK || count >= 2) return;
  if (zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL) !=
      ZKE_OK)
    return;
  zke_lab_enter("permit", 2);
  zke_lab_leave("permit");
  zke_delete(z, path, -1);
}

static int value_get(zke *z, const char *path, int *version) {
  char *data = NULL;
  int len = -1;
  zke_stat stat;
  int rc = zke_get(z, path, NULL, NULL, &data, &len, &stat), value = -1;
  if (rc == ZKE_OK && len > 0) value = data[0] - '0';
  if (rc == ZKE_OK) *version = stat.version;
  zke_free(data);
  return value;
}

/* Add to the number at a path, repeatedly if others change it; ZKE_NONODE: it
 * would become negative. */
static int value_add(zke *z, const char *path, int by) {
  for (;;) {
    int version = -1, value = value_get(z, path, &version);
    char digit = (char)('0' + value + by);
    if (value < 0 || value + by < 0) return ZKE_NONODE;
    if (bug == UPDATE_LOST) version = -1;
    int rc = zke_set(z, path, &digit, 1, version, NULL);
    bool again = bug == UPDATE_TWICE || (bug == RELEASE_COUNTS_TWICE && by > 0);
    if (rc == ZKE_CONNECTIONLOSS && again) continue;
    if (rc != ZKE_BADVERSION) return rc;
  }
}

/* The number of free permits is in a znode. */
static void take_permit_counting(zke *z) {
  if (value_add(z, "/free", -1) != ZKE_OK) return;
  zke_lab_enter("permit", 2);
  zke_lab_leave("permit");
  value_add(z, "/free", 1);
}

/* Three processes, of which two may be inside, by two names. */
static void take_permit_number(zke *z) {
  for (int i = 0; i < 2; i++) {
    char path[] = {'/', 'p', 'e', 'r', 'm', 'i', 't', 's', '/', (char)('0' + i),
                   '\0'};
    if (zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL) !=
        ZKE_OK)
      continue;
    zke_lab_enter("permit", 2);
    zke_lab_leave("permit");
    key_release(z, path);
    return;
  }
}

static void take_permit(zke *z, void *arg) {
  (void)arg;
  for (int i = 0; i < 2; i++) {
    if (bug == SEMAPHORE_LOOKS_FIRST)
      take_permit_looking(z);
    else if (bug == RELEASE_COUNTS_TWICE)
      take_permit_counting(z);
    else
      take_permit_number(z);
  }
}

/* ---- a counter ---- */

static int told[2], tried[2]; /* additions that were reported; begun */

static void counter_setup(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/count", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void count_up(zke *z, void *arg) {
  int me = arg != NULL;
  tried[me]++;
  if (value_add(z, "/count", 1) == ZKE_OK) told[me]++;
}

static void counter_is_right(zke *z, void *arg) {
  int version, value = value_get(z, "/count", &version);
  (void)arg;
  zke_lab_assert(value >= told[0] + told[1]);
  zke_lab_assert(value <= tried[0] + tried[1]);
}

/* ---- a queue ---- */

static int worked; /* how often the item has been processed */

static void queue_setup(zke *z, void *arg) {
  (void)arg;
  make(z, "/items");
  make(z, "/items/i");
  make(z, "/claims");
}

static void drop_claim(zke *z) {
  while (zke_delete(z, "/claims/i", -1) == ZKE_CONNECTIONLOSS) continue;
}

static void work_on_item(void) {
  zke_lab_enter("item", 1);
  worked++;
  zke_lab_leave("item");
}

static int claim_item(zke *z) {
  int rc = zke_create(z, "/claims/i", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                      NULL);
  zke_stat stat;
  if (rc == ZKE_CONNECTIONLOSS &&
      zke_exists(z, "/claims/i", NULL, NULL, &stat) == ZKE_OK &&
      stat.ephemeralOwner == zke_session_id(z))
    rc = ZKE_OK;
  return rc;
}

static void take_item(zke *z, void *arg) {
  (void)arg;
  if (bug == ITEM_TAKEN_TWICE || bug == ITEM_DELETED_FIRST) {
    int rc = bug == ITEM_DELETED_FIRST
                 ? zke_delete(z, "/items/i", -1)
                 : zke_exists(z, "/items/i", NULL, NULL, NULL);
    if (rc == ZKE_OK) zke_lab_yield();
    if (rc == ZKE_OK) work_on_item();
    if (rc == ZKE_OK) zke_delete(z, "/items/i", -1);
    return;
  }
  if (claim_item(z) != ZKE_OK) return;
  int there = zke_exists(z, "/items/i", NULL, NULL, NULL) == ZKE_OK;
  if (!there && bug == CLAIM_LEFT) return;
  if (there) work_on_item();
  while (there && zke_delete(z, "/items/i", -1) == ZKE_CONNECTIONLOSS) continue;
  drop_claim(z);
}

static void item_is_not_lost(zke *z, void *arg) {
  (void)arg;
  zke_lab_assert(worked > 0 ||
                 zke_exists(z, "/items/i", NULL, NULL, NULL) == ZKE_OK);
}

/* Puts an item back at the end. */
static void requeue_item(zke *z, void *arg) {
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  (void)arg;
  if (bug == REQUEUE_IN_TWO) {
    if (zke_delete(z, "/items/i", -1) == ZKE_OK) make(z, "/items/j");
    return;
  }
  zke_op_delete(&ops[0], "/items/i", -1);
  zke_op_create(&ops[1], "/items/j", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_multi(z, ops, 2, results);
  zke_results_clear(results, 2);
}

static void an_item_is_there(zke *z, void *arg) {
  (void)arg;
  zke_lab_assert(zke_exists(z, "/items/i", NULL, NULL, NULL) == ZKE_OK ||
                 zke_exists(z, "/items/j", NULL, NULL, NULL) == ZKE_OK);
}

/* ---- waiting for a znode to appear, or to go ---- */

static void place_setup(zke *z, void *arg) {
  (void)arg;
  make(z, "/place");
  make(z, "/barrier");
}

static void put_one(zke *z, void *arg) {
  (void)arg;
  while (zke_create(z, "/place/one", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL) == ZKE_CONNECTIONLOSS)
    continue;
}

static void wait_for_one(zke *z, void *arg) {
  int fired = 0, rc = ZKE_OK;
  int64_t count = 0;
  (void)arg;
  while (rc == ZKE_OK && count == 0) {
    zke_stat stat;
    zke_watch_fn fn = bug == LOOK_THEN_WATCH ? NULL : fire;
    fired = 0;
    rc = zke_children(z, "/place", fn, &fired, NULL, &stat);
    if (rc == ZKE_OK) count = stat.numChildren;
    if (rc != ZKE_OK || count) break;
    if (!fn) rc = zke_children(z, "/place", fire, &fired, NULL, NULL);
    if (rc == ZKE_OK) rc = wait_fired(z, &fired, ZKE_FOREVER);
  }
  zke_forget(z, fire, &fired);
}

static void lift_barrier(zke *z, void *arg) {
  (void)arg;
  while (zke_delete(z, "/barrier", -1) == ZKE_CONNECTIONLOSS) continue;
}

static void wait_at_barrier(zke *z, void *arg) {
  int fired = 0;
  (void)arg;
  if (bug != BARRIER_LOOK_THEN_WATCH) {
    wait_gone(z, "/barrier", ZKE_FOREVER);
    return;
  }
  if (zke_exists(z, "/barrier", NULL, NULL, NULL) != ZKE_OK) return;
  zke_exists(z, "/barrier", fire, &fired, NULL);
  wait_fired(z, &fired, ZKE_FOREVER);
  zke_forget(z, fire, &fired);
}

/* ---- a double barrier for two: neither leaves before both are there ---- */

static int came; /* how many are really there */

static void gate_setup(zke *z, void *arg) {
  (void)arg;
  make(z, "/gate");
}

static void gate_pass(void) { zke_lab_assert(came >= 2); }

static void gate_wait(zke *z, int64_t deadline_ms) {
  int fired = 0, rc = ZKE_OK;
  while (rc == ZKE_OK) {
    zke_strings *names = NULL;
    int members = 0;
    fired = 0;
    rc = zke_children(z, "/gate", fire, &fired, &names, NULL);
    for (int i = 0; names && i < names->count; i++)
      members += strcmp(names->data[i], "ready") != 0 || bug == READY_IS_MEMBER;
    zke_free(names);
    if (rc == ZKE_OK && members >= 2) {
      gate_pass();
      break;
    }
    if (rc == ZKE_OK) rc = wait_fired(z, &fired, deadline_ms);
  }
  zke_forget(z, fire, &fired);
}

static void enter_gate(zke *z, void *arg) {
  (void)arg;
  if (bug == READY_IS_MEMBER) make(z, "/gate/ready");
  came++;
  int rc = ZKE_CONNECTIONLOSS;
  char path[64];
  snprintf(path, sizeof path, "/gate/%lld", (long long)zke_session_id(z));
  while (rc == ZKE_CONNECTIONLOSS)
    rc = zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_OK || rc == ZKE_NODEEXISTS) gate_wait(z, ZKE_FOREVER);
}

/* Gives up before the other one has come. */
static void try_gate(zke *z, void *arg) {
  (void)arg;
  if (zke_create(z, "/gate/me", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                 NULL) != ZKE_OK)
    return;
  came++;
  zke_lab_yield();
  came--;
  if (bug != FAILED_ENTRY_COUNTS)
    while (zke_delete(z, "/gate/me", -1) == ZKE_CONNECTIONLOSS) continue;
}

/* ---- two-phase commit: one asks, two vote ---- */

static int outcome[2]; /* 0: none yet; 1: committed; 2: aborted */

static void outcomes_agree(zke *z, void *arg) {
  (void)z, (void)arg;
  zke_lab_assert(!outcome[0] || !outcome[1] || outcome[0] == outcome[1]);
}

static void votes_setup(zke *z, void *arg) {
  (void)arg;
  make(z, "/votes");
}

/* Decides: the first process to make the znode has decided. */
static void coordinate(zke *z, void *arg) {
  int64_t votes = 0;
  (void)arg;
  zke_sleep(z, zke_now(z) + 10);
  if (zke_count(z, "/votes", &votes) != ZKE_OK) return;
  int enough = bug == DECIDED_ON_SOME ? 1 : 2;
  const char *word = votes >= enough ? "1" : "2";
  while (zke_create(z, "/decision", word, 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL) == ZKE_CONNECTIONLOSS)
    continue;
}

static void read_outcome(zke *z, int me) {
  int version, value = value_get(z, "/decision", &version);
  if (value > 0) outcome[me] = value;
}

static void participate(zke *z, void *arg) {
  int me = arg != NULL, fired = 0;
  char path[] = {'/', 'v', 'o', 't', 'e', 's', '/', (char)('0' + me), '\0'};
  while (zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL) ==
         ZKE_CONNECTIONLOSS)
    continue;
  int rc = zke_exists(z, "/decision", fire, &fired, NULL);
  if (rc == ZKE_NONODE) rc = wait_fired(z, &fired, zke_now(z) + 10);
  zke_forget(z, fire, &fired);
  if (rc == ZKE_OPERATIONTIMEOUT) {
    if (bug == PRESUMED_ABORT) {
      outcome[me] = 2;
      return;
    }
    zke_create(z, "/decision", "2", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
               NULL);
  }
  read_outcome(z, me);
}

/* A participant that votes no: it aborts alone, and does not send its vote. */
static void refuse(zke *z, void *arg) {
  int me = arg != NULL;
  zke_exists(z, "/votes", NULL, NULL, NULL);
  outcome[me] = 2;
  zke_create(z, "/decision", "2", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

/* ---- a cache of one value ---- */

static void value_setup(zke *z, void *arg) {
  (void)arg;
  if (bug == CACHE_STARTS_EMPTY) return;
  zke_create(z, "/value", "1", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void change_value(zke *z, void *arg) {
  int rc = ZKE_CONNECTIONLOSS;
  (void)arg;
  if (bug == CACHE_STOPS_AT_DELETE) zke_delete(z, "/value", -1);
  while (rc == ZKE_CONNECTIONLOSS) {
    rc = zke_set(z, "/value", "9", 1, -1, NULL);
    if (rc == ZKE_NONODE)
      rc = zke_create(z, "/value", "9", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                      NULL);
  }
}

/* Follow the value until it is 9. */
static void follow_value(zke *z, void *arg) {
  int fired = 0, rc = ZKE_OK, value = 0;
  (void)arg;
  while (rc == ZKE_OK && value != 9) {
    char *data = NULL;
    int len = 0;
    zke_watch_fn fn = bug == CACHE_WATCHES_LATE ? NULL : fire;
    fired = 0;
    rc = zke_get(z, "/value", fn, &fired, &data, &len, NULL);
    if (rc == ZKE_OK && len > 0) value = data[0] - '0';
    zke_free(data);
    int blind = bug == CACHE_STARTS_EMPTY || bug == CACHE_STOPS_AT_DELETE;
    if (!fn || (rc == ZKE_NONODE && !blind))
      rc = zke_exists(z, "/value", fire, &fired, NULL);
    if (rc == ZKE_NONODE) rc = ZKE_OK;
    if (rc == ZKE_OK && value != 9) rc = wait_fired(z, &fired, ZKE_FOREVER);
  }
  zke_forget(z, fire, &fired);
}

/* ---- the table ---- */

typedef struct test_case {
  enum bug bug;
  const char *what, *where;
  zke_lab_fn parties[3];
  zke_lab_fn setup, finally;
  enum { PLAIN, WAITS = 1, TIMEOUTS = 2, LEFTOVERS = 4, WAKES = 8 } options;
} test_case;

#define LOCKS {take_lock, take_lock, take_lock}, lock_setup, NULL

static const test_case cases[] = {
    {NONE, "a lock", "", LOCKS, PLAIN},
    {NONE,
     "a lock held twice",
     "",
     {take_lock_twice, take_lock},
     lock_setup,
     NULL,
     PLAIN},
    {NONE,
     "an election",
     "",
     {start_twice, take_lock},
     lock_setup,
     NULL,
     PLAIN},
    {NONE,
     "a question for the leader",
     "",
     {ask_for_leader, take_lock},
     lock_setup,
     NULL,
     PLAIN},
    {NONE,
     "a lock by one name",
     "",
     {take_key, take_key, take_key},
     NULL,
     NULL,
     PLAIN},
    {NONE,
     "a reader-writer lock",
     "",
     {read_share, write_alone, read_share},
     lock_setup,
     NULL,
     PLAIN},
    {NONE,
     "a semaphore",
     "",
     {take_permit, take_permit, take_permit},
     permits_setup,
     NULL,
     LEFTOVERS},
    {NONE,
     "a counter",
     "",
     {count_up, count_up},
     counter_setup,
     counter_is_right,
     PLAIN},
    {NONE,
     "a queue",
     "",
     {take_item, take_item},
     queue_setup,
     item_is_not_lost,
     LEFTOVERS},
    {NONE,
     "a requeue",
     "",
     {requeue_item, requeue_item},
     queue_setup,
     an_item_is_there,
     PLAIN},
    {NONE,
     "a consumer that waits",
     "",
     {put_one, wait_for_one},
     place_setup,
     NULL,
     WAITS},
    {NONE,
     "a barrier",
     "",
     {lift_barrier, wait_at_barrier},
     place_setup,
     NULL,
     WAITS},
    {NONE,
     "a double barrier",
     "",
     {enter_gate, enter_gate},
     gate_setup,
     NULL,
     WAITS},
    {NONE,
     "two-phase commit",
     "",
     {coordinate, participate, participate},
     votes_setup,
     outcomes_agree,
     TIMEOUTS},
    {NONE,
     "a cache",
     "",
     {change_value, follow_value},
     value_setup,
     NULL,
     WAITS},
    {LOST_REPLY_FORGOTTEN, "a create is made again after its reply was lost",
     "accumulo#1086; why Curator has protection", LOCKS, PLAIN},
    {TIMEOUT_LEAVES_NODE, "an acquire that times out leaves its znode",
     "CURATOR-79, -205", LOCKS, TIMEOUTS},
    {WHOLE_NAME_SORTED, "whole names are sorted, not their numbers",
     "ZOOKEEPER-2931", LOCKS, PLAIN},
    {FOREIGN_CHILD, "a child without a dash", "ZooKeeper's zoo_lock.c", LOCKS,
     PLAIN},
    {PREDECESSOR_VANISHED, "the predecessor goes between list and watch",
     "CURATOR-644", LOCKS, PLAIN},
    {PREDECESSOR_VANISHED_DEADLINE, "the same, and a deadline hides it",
     "CURATOR-645", LOCKS, PLAIN},
    {HERD, "everybody watches the place", "Consul, Curator's first semaphore",
     LOCKS, WAKES},
    {WAKE_IS_CONDITION, "a wake-up is taken for the condition",
     "curator GH-1290", LOCKS, PLAIN},
    {RELEASE_ONCE, "a delete that fails is not made again",
     "etcd#22123, CURATOR-486", LOCKS, PLAIN},
    {INNER_RELEASE,
     "the first of two releases drops the lock",
     "kazoo#134",
     {take_lock_twice, take_lock},
     lock_setup,
     NULL,
     PLAIN},
    {NAMES_LEAK, "the list is not freed where somebody is before",
     "ChildrenWatch of kazoo (#543)", LOCKS, PLAIN},
    {STARTED_TWICE,
     "started twice: two znodes of one participant",
     "CURATOR-3",
     {start_twice, take_lock},
     lock_setup,
     NULL,
     PLAIN},
    {LEADER_VANISHED,
     "the leader goes while it is asked for",
     "CURATOR-358",
     {ask_for_leader, take_lock},
     lock_setup,
     NULL,
     PLAIN},
    {DELETE_BY_NAME,
     "a release made again deletes another's lock",
     "etcd#22082",
     {take_key, take_key, take_key},
     NULL,
     NULL,
     PLAIN},
    {READER_WAITS_FOR_ALL,
     "a reader waits for writers behind it",
     "kazoo#649",
     {read_share, write_alone, read_share},
     lock_setup,
     NULL,
     PLAIN},
    {WRITER_SKIPS_READERS,
     "a writer does not see readers",
     "",
     {read_share, write_alone, read_share},
     lock_setup,
     NULL,
     PLAIN},
    {SEMAPHORE_LOOKS_FIRST,
     "a semaphore counts before it enters",
     "etcd#14603, CURATOR-254",
     {take_permit, take_permit, take_permit},
     permits_setup,
     NULL,
     LEFTOVERS},
    {RELEASE_COUNTS_TWICE,
     "a release made again raises a semaphore",
     "solid_queue#761",
     {take_permit, take_permit, take_permit},
     permits_setup,
     NULL,
     LEFTOVERS},
    {UPDATE_LOST,
     "read, add, write without a version",
     "",
     {count_up, count_up},
     counter_setup,
     counter_is_right,
     PLAIN},
    {UPDATE_TWICE,
     "an addition is made again after a lost reply",
     "",
     {count_up, count_up},
     counter_setup,
     counter_is_right,
     PLAIN},
    {ITEM_DELETED_FIRST,
     "an item is deleted before it is worked on",
     "Curator's and kazoo's simple queues",
     {take_item, take_item},
     queue_setup,
     item_is_not_lost,
     LEFTOVERS},
    {ITEM_TAKEN_TWICE,
     "two take an item",
     "",
     {take_item, take_item},
     queue_setup,
     NULL,
     LEFTOVERS},
    {CLAIM_LEFT,
     "the claim of an item that is gone stays",
     "kazoo#366",
     {take_item, take_item},
     queue_setup,
     item_is_not_lost,
     PLAIN},
    {LOOK_THEN_WATCH,
     "something comes between look and watch",
     "CURATOR-623",
     {put_one, wait_for_one},
     place_setup,
     NULL,
     WAITS},
    {REQUEUE_IN_TWO,
     "a requeue in two steps",
     "CURATOR-56",
     {requeue_item, requeue_item},
     queue_setup,
     an_item_is_there,
     PLAIN},
    {BARRIER_LOOK_THEN_WATCH,
     "a barrier goes between look and watch",
     "",
     {lift_barrier, wait_at_barrier},
     place_setup,
     NULL,
     WAITS},
    {READY_IS_MEMBER,
     "the ready znode counts as a member",
     "Netflix/curator#99",
     {enter_gate, enter_gate},
     gate_setup,
     NULL,
     WAITS},
    {FAILED_ENTRY_COUNTS,
     "an entry that failed counts for the others",
     "CURATOR-80",
     {enter_gate, try_gate},
     gate_setup,
     NULL,
     WAITS},
    {PRESUMED_ABORT,
     "a participant that has voted aborts by itself",
     "",
     {coordinate, participate, participate},
     votes_setup,
     outcomes_agree,
     TIMEOUTS},
    {DECIDED_ON_SOME,
     "a commit before everybody has voted",
     "",
     {coordinate, participate, refuse},
     votes_setup,
     outcomes_agree,
     TIMEOUTS},
    {CACHE_WATCHES_LATE,
     "a cache reads and then watches",
     "CURATOR-391",
     {change_value, follow_value},
     value_setup,
     NULL,
     WAITS},
    {CACHE_STARTS_EMPTY,
     "a cache that starts before its znode",
     "CURATOR-328",
     {change_value, follow_value},
     value_setup,
     NULL,
     WAITS},
    {CACHE_STOPS_AT_DELETE,
     "a cache stops when its znode is deleted",
     "kazoo#149",
     {change_value, follow_value},
     value_setup,
     NULL,
     WAITS},
};
enum { CASES = sizeof cases / sizeof cases[0], SEEDS_MOST = 101 };

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

static zke_lab *build(const test_case *c, uint64_t seed) {
  static char names[][8] = {"anna", "ben", "carla"};
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  zke_lab *lab = NULL;
  o.seed = seed;
  o.waits = (c->options & WAITS) != 0;
  o.timeouts = (c->options & TIMEOUTS) != 0;
  o.leftovers = (c->options & LEFTOVERS) != 0;
  o.wakes = c->options & WAKES ? 1 : 0;
  o.time_ms = (int64_t)(number("SECONDS", 20) * 1000);
  if (!c->bug) o.schedules = 10000 / test_stride(8);
  ck_rc(zke_lab_new(&o, &lab), ZKE_OK);
  for (int i = 0; i < 3 && c->parties[i]; i++)
    ck_rc(zke_lab_process(
              lab, names[i], c->parties[i],
              (i == 2 || c->parties[0] == count_up) && i > 0 ? names[i] : NULL),
          ZKE_OK);
  zke_lab_setup(lab, c->setup, NULL);
  zke_lab_finally(lab, c->finally, NULL);
  ck_rc(zke_lab_state(lab, told, sizeof told), ZKE_OK);
  ck_rc(zke_lab_state(lab, tried, sizeof tried), ZKE_OK);
  ck_rc(zke_lab_state(lab, outcome, sizeof outcome), ZKE_OK);
  ck_rc(zke_lab_state(lab, &worked, sizeof worked), ZKE_OK);
  ck_rc(zke_lab_state(lab, &came, sizeof came), ZKE_OK);
  return lab;
}

static int in_order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the seconds of processor time until it was found. */
static double search(const test_case *c, uint64_t seed, size_t *length) {
  zke_lab_result r;
  zke_lab *lab = build(c, seed);
  clock_t began = clock();
  ck_rc(zke_lab_run(lab, &r), ZKE_OK);
  double took = (double)(clock() - began) / CLOCKS_PER_SEC;
  if (!c->bug) {
    ck_assert_msg(!r.found, "%s: %s: %s", c->what, r.why, r.schedule);
  } else {
    ck_assert_msg(r.found, "%s: not found in %lld schedules, seed %llu",
                  c->what, (long long)r.schedules, (unsigned long long)seed);
    ck_assert_uint_le(strlen(r.schedule), 80);
    if (strlen(r.schedule) < *length) *length = strlen(r.schedule);
  }
  zke_lab_free(lab);
  return took;
}

/* Each mistake and each correct recipe, with one seed or several. */
TEST_LOOP(mistakes_are_found_and_right_ones_pass, 0, CASES) {
  double took[SEEDS_MOST];
  int seeds = (int)number("SEEDS", 1);
  const test_case *c = &cases[_i];
  size_t length = 1000;
  ck_assert_int_le(seeds, SEEDS_MOST);
  bug = c->bug;
  for (int i = 0; i < seeds; i++) took[i] = search(c, (uint64_t)i, &length);
  if (!getenv("SEEDS") && !getenv("SECONDS")) return;
  qsort(took, (size_t)seeds, sizeof took[0], in_order);
  if (c->bug)
    printf("%-54s %-36s median %6.3f s, worst %6.3f s, %zu letters\n", c->what,
           c->where, took[seeds / 2], took[seeds - 1], length);
  fflush(stdout);
}
