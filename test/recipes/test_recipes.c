/* test_recipes.c - do the tests of the recipes notice anything?
 *
 * A lock made of plain calls: once correct, and once with each mistake that the
 * loops of recipes.h and the checker of recipe_history.h should find.  The
 * mistakes are planted in a separate test, which this program runs in a process
 * (`PLANTED=n test_recipes`) to see it fail for the right reason.
 */
#include "test/torture/recipe_history.c"
#include "recipes.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- a lock, and what can be wrong with it ---- */

enum mistake {
  NONE,
  STAYS,         /* its node is persistent: a death keeps it */
  RETRIES_BLIND, /* after a lost reply it queues behind itself */
  GIVES_UP,      /* a lost reply is a failure */
  LEAKS_NODE,    /* what fails after the create leaves the node */
  LEAKS_BLOCK,   /* … or memory */
  HANGS          /* … and the next waits for it without a limit */
};

static enum mistake mistake;

static bool stays(void) { return mistake == STAYS || mistake == HANGS; }

#define LOCKS "/locks"

static void lock_prepare(zke *z) {
  ck_ok(zke_create(z, LOCKS, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

/* Does this session own the node of the name? */
static bool owned(zke *z, const char *path) {
  zke_stat stat;
  return zke_exists(z, path, NULL, NULL, &stat) == ZKE_OK &&
         stat.ephemeralOwner == zke_session_id(z);
}

/* Queue: make a sequential node.  After a lost reply look for it: a session
 * uses this lock only once, so the node's owner identifies it. */
static int queue(zke *z, char **path_out) {
  int mode = stays() ? ZKE_PERSISTENT_SEQUENTIAL : ZKE_EPHEMERAL_SEQUENTIAL;
  int rc = zke_create(z, LOCKS "/n", "", 0, ZKE_OPEN_ACL, mode, path_out, NULL);
  if (rc != ZKE_CONNECTIONLOSS || mistake == GIVES_UP) return rc;
  if (mistake != RETRIES_BLIND) {
    zke_strings *mine;
    rc = zke_ephemerals(z, 0, LOCKS "/n", &mine);
    if (rc != ZKE_OK) return rc;
    if (mine->count) {
      size_t size = strlen(mine->data[0]) + 1;
      *path_out = zke_alloc(z, size);
      if (*path_out) memcpy(*path_out, mine->data[0], size);
      zke_free(mine);
      return *path_out ? ZKE_OK : zke_fail(ZKE_NOMEM, "no memory");
    }
    zke_free(mine);
  }
  return zke_create(z, LOCKS "/n", "", 0, ZKE_OPEN_ACL, mode, path_out, NULL);
}

/* Wake up the waiter. */
static void changed(zke *z, int type, int state, const char *path,
                    void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

/* Is mine the first?  If not, watch the first one. */
static int look(zke *z, const char *mine, bool *first) {
  char path[200];
  zke_strings *names;
  int rc = zke_children(z, LOCKS, NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) return rc;
  snprintf(path, sizeof path, LOCKS "/%s", names->count ? names->data[0] : "");
  zke_free(names);
  *first = strcmp(path, mine) == 0;
  return *first ? ZKE_OK : zke_get(z, path, changed, NULL, NULL, NULL, NULL);
}

/* Wait until the own znode is first; with a mistake, without a deadline. */
static int wait_for_turn(zke *z, const char *mine, int64_t deadline) {
  for (;;) {
    bool first = false;
    int rc = look(z, mine, &first);
    if (rc == ZKE_NONODE) continue; /* it is just gone */
    if (rc != ZKE_OK || first) return rc;
    rc = zke_wait(z, mistake == HANGS ? ZKE_FOREVER : deadline);
    if (rc != ZKE_OK) return rc;
  }
}

/* Delete, whatever went wrong the first time. */
static int leave(zke *z, const char *mine) {
  int rc = ZKE_OK;
  for (int i = 0; i < 3; i++) {
    rc = zke_delete(z, mine, -1);
    if (rc == ZKE_OK || rc == ZKE_NONODE) return ZKE_OK;
  }
  return rc;
}

/* Delete all nodes of the session by their owner, even one whose path could not
 * be returned because memory ran out. */
static void leave_all(zke *z) {
  zke_strings *mine = NULL;
  for (int i = 0; i < 3 && !mine; i++) {
    if (zke_ephemerals(z, 0, LOCKS "/n", &mine) != ZKE_OK) mine = NULL;
  }
  for (int i = 0; mine && i < mine->count; i++) leave(z, mine->data[i]);
  zke_free(mine);
}

/* A lock written for this test, with a mistake planted at each place that the
 * loops should notice. */
static int lock_use(zke *z) {
  char *mine = NULL;
  int64_t limit = mistake == RETRIES_BLIND ? 100 : 1000;
  int rc = queue(z, &mine);
  if (rc == ZKE_OK) rc = wait_for_turn(z, mine, zke_now(z) + limit);
  if (rc == ZKE_OK && !stays() && !owned(z, mine)) rc = ZKE_LOST;
  if (rc == ZKE_OK) rc = leave(z, mine);
  if (rc != ZKE_OK) {
    char kept[400];
    snprintf(kept, sizeof kept, "%s", zke_errmsg());
    if (mistake != LEAKS_NODE) leave_all(z);
    zke_fail(rc, "%s", kept);
  }
  if (rc == ZKE_OK || mistake != LEAKS_BLOCK) zke_free(mine);
  return rc;
}

/* Another gets the lock. */
static void lock_check(zke *z, int rc) {
  char *mine;
  enum mistake kept = mistake;
  (void)rc;
  if (kept != HANGS) mistake = NONE;
  ck_ok(queue(z, &mine));
  ck_ok(wait_for_turn(z, mine, zke_now(z) + 5000));
  ck_ok(leave(z, mine));
  zke_free(mine);
  mistake = kept;
}

static const recipe_use plain_lock = {"plain lock", lock_prepare, lock_use,
                                      lock_check};

/* ---- the lock without a mistake ---- */

/* The loop of deaths ends, and has the promised places. */
TEST(a_death_anywhere_is_survived) {
  int deaths = recipe_deaths(&plain_lock);
  ck_assert_int_ge(deaths, 13); /* the third place, with a stride of 6 */
}

/* The loop of lost replies ends with a use that survives them. */
TEST(a_lost_reply_is_survived) { recipe_lost_replies(&plain_lock); }

/* A use may make fewer changes than before, by chance or by the time of day:
 * the round after its last change is still the last. */
static int uses_made;

/* A use that first makes three changes, and later one. */
static int use_less(zke *z) {
  int rc = ZKE_OK;
  for (int i = uses_made++ < 2 ? 3 : 1; i > 0; i--) do
      rc = zke_set(z, "/", "", 0, -1, NULL);
    while (rc == ZKE_CONNECTIONLOSS);
  ck_assert_int_lt(uses_made, 20);
  return rc;
}

static void check_nothing(zke *z, int rc) {
  (void)z;
  (void)rc;
}

/* A use that makes fewer changes each time does not keep the loop running
 * forever. */
TEST(lost_replies_end_where_changes_become_fewer) {
  static const recipe_use u = {"fewer", NULL, use_less, check_nothing};
  uses_made = 0;
  recipe_lost_replies(&u);
  ck_assert_int_gt(uses_made, 2);
}

/* The loop of faults ends with a use that survives them. */
TEST(a_fault_is_survived) { recipe_faults(&plain_lock); }

/* A death comes between any two changes: after some deaths the node exists,
 * after others it does not. */
static int with_node, without_node;

/* Count the deaths that left the node, and those before it was made. */
static void count_node(zke *z, int rc) {
  zke_stat stat;
  ck_ok(zke_exists(z, LOCKS, NULL, NULL, &stat));
  if (rc == 1) {
    with_node += stat.numChildren == 1;
    without_node += stat.numChildren == 0 && stat.cversion == 0;
  }
}

/* Deaths come before a change and after it: some leave the node, some do
 * not. */
TEST(deaths_come_between_changes) {
  static const recipe_use u = {"counted", lock_prepare, lock_use, count_node};
  mistake = STAYS;
  recipe_deaths(&u);
  ck_assert_int_gt(with_node, 0);
  ck_assert_int_gt(without_node, 0);
}

/* ---- the planted mistakes ---- */

static void after_a_death(void) { recipe_deaths(&plain_lock); }
static void after_a_lost_reply(void) { recipe_lost_replies(&plain_lock); }
static void after_a_fault(void) { recipe_faults(&plain_lock); }

static const struct planted {
  const char *name;
  enum mistake mistake;
  void (*run)(void);
  const char *says; /* how it is noticed */
} planted[] = {
    {"stays", STAYS, after_a_death, "ZKE_OPERATIONTIMEOUT"},
    {"hangs", HANGS, after_a_death, "does not end"},
    {"blind", RETRIES_BLIND, after_a_lost_reply,
     "lost reply of 1: ZKE_OPERATIONTIMEOUT"},
    {"gives-up", GIVES_UP, after_a_lost_reply,
     "lost before change 1: ZKE_CONNECTIONLOSS"},
    {"leaks-node", LEAKS_NODE, after_a_fault, "ephemerals are left"},
    {"leaks-block", LEAKS_BLOCK, after_a_fault, "blocks are left"},
};

enum { PLANTED = sizeof planted / sizeof *planted };

/* The mistake that this process was started for; none in a normal run. */
static int planted_first(void) {
  const char *number = getenv("PLANTED");
  return number ? atoi(number) : PLANTED;
}

static int planted_end(void) {
  int first = planted_first();
  return first < PLANTED ? first + 1 : first;
}

/* Must fail, as the test below expects. */
TEST_LOOP(planted_mistake, planted_first(), planted_end()) {
  mistake = planted[_i].mistake;
  planted[_i].run();
}

/* Each planted mistake makes the loops fail, with the expected sentence. */
TEST_LOOP(a_planted_mistake_is_noticed, 0, PLANTED) {
  char command[4200], output[8000];
  int round = strstr(planted[_i].name, "hangs") ? 2 : RECIPE_ROUND_S;
  snprintf(command, sizeof command,
           "FULL=1 PLANTED=%d RECIPE_ROUND=%d '%s' planted_mistake 2>&1", _i,
           round, test_program());
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(output, 1, sizeof output - 1, f);
  output[n] = '\0';
  int status = pclose(f);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1,
                "%s goes unnoticed: %s", planted[_i].name, output);
  ck_assert_msg(strstr(output, planted[_i].says), "%s: %s", planted[_i].name,
                output);
}

/* ---- histories: each check finds its mistakes ---- */

/* A record of process `who`, a millisecond after the last. */
static void tell(history *h, int who, int event, int64_t number, int weight) {
  history_add(h, (history_record){.when = (h->count + 1) * INT64_C(1000000),
                                  .number = number,
                                  .who = who,
                                  .weight = weight,
                                  .event = event});
}

/* A history in a line: for each record "<who><event>[number[:weight]]" with
 * w wanted, t taken, l leaving, u gave up, P putting, p put, g got, K acking,
 * k acked, x left, e entering, b passed, v voting, d decided, S stopped,
 * C continued, D dying, f failed, and "+n" for n ms that pass. */
static history history_of(const char *text) {
  static const char events[] = "wtluPpgKkxebvdfSCD";
  history h = {0};
  int64_t later = 0;
  while (*text) {
    char *end;
    if (*text == '+') {
      later += strtol(text + 1, &end, 10) * 1000000;
    } else {
      int who = (int)strtol(text, &end, 10);
      const char *event = strchr(events, *end);
      ck_assert_msg(event && *event, "history: %s", text);
      bool numbered = *++end != '\0' && *end != ' ';
      int64_t number = numbered ? strtol(end, &end, 10) : 0;
      int weight = *end == ':' ? (int)strtol(end + 1, &end, 10) : 0;
      tell(&h, who, (int)(event - events), number, weight);
      h.at[h.count - 1].when += later;
    }
    text = end + strspn(end, " ");
  }
  return h;
}

static bool one_holder(history_case *c) { return history_exclusive(c, 1); }
static bool three_leases(history_case *c) { return history_exclusive(c, 3); }
static bool in_time(history_case *c) { return history_progress(c, 100000000); }
static bool at_most_once(history_case *c) { return history_queue(c, false); }
static bool with_acks(history_case *c) { return history_queue(c, true); }
static bool two_parties(history_case *c) { return history_barrier(c, 2); }
static bool two_sites(history_case *c) { return history_decisions(c, 2); }

static const struct story {
  bool (*check)(history_case *c);
  const char *history, *problem; /* NULL: it is good */
} stories[] = {
    {one_holder, "", NULL},
    {one_holder, "1w 2w 1t5 1l 2t7 2l", NULL},
    {one_holder, "1t5 2t7 1l 2l", "process 2 took 1 while 1 of 1"},
    {one_holder, "1t5 1D 2t7", NULL},
    {one_holder, "1w 1D 1t5 2t7", NULL},
    {one_holder, "1t5 1S 2t7", "process 2 took 1 while 1 of 1"},
    {one_holder, "1t5 3D 2t7", "process 2 took 1 while 1 of 1"},
    {one_holder, "1t7 1l 2t5", "fencing value 5 after 7"},
    {one_holder, "1t7 1l 2t7", "fencing value 7 after 7"},
    {three_leases, "1t1 2t2 3t3 1l 4t4", NULL},
    {three_leases, "1t1 2t2 3t3 4t4", "process 4 took 1 while 3 of 3"},
    {three_leases, "1t1:1 2t2:1 3t3:3", "process 3 took 3 while 2 of 3"},
    {three_leases, "1t1:1 2t2:1 2l 1l 3t3:3 3l 1t4:1", NULL},
    {three_leases, "1t3:1 2t2:1 1l 2l", NULL},
    {three_leases, "1t5:1 1l 2t4:1", NULL},
    {three_leases, "1t5:1 1l 2t4:3", "fencing value 4 after 5"},
    {three_leases, "1t5:3 1l 2t4:1", "fencing value 4 after 5"},
    {in_time, "1w 1t 2w +500 1l 2t", NULL},
    {in_time, "1w 1t 2w 1l +500 2t", "free for 501 ms while 1 waited"},
    {in_time, "1w 1t 2w 1D +500 2t", "free for 501 ms"},
    {in_time, "1w 1t 1l +500 2w 2t", NULL},
    {in_time, "1w 1t 2w 1l +90 3w +90 3t", "free for 182 ms"},
    {in_time, "1w 1t 2w 1l 2S +500 2C 2t", NULL},
    {in_time, "1w 1t 2w 1l 2S +500 2C +101 2t", "free for 103 ms"},
    {in_time, "1w 1t 2w 1l 2S 2D +500 3w 3t", NULL},
    {in_time, "1w 1t 2w 1l 2D 2t 3w +500 3t", "free for 501 ms"},
    {in_time, "1w 1t 2w 1l 2u +500 3w 3t", NULL},
    {in_time, "1w 1t 2w 1l 3S 3D +101 2t", "free for 10"},
    {at_most_once, "1P8 1p8 2g8 1P9 1p9 1x9", NULL},
    {at_most_once, "1P8 1p8 2g8 3g8", "item 8 was got 2 times"},
    {at_most_once, "1P8 1p8 2g8 1x8", "item 8 is done with and still there"},
    {at_most_once, "1P8 1p8 1x8 1x8", "item 8 is there 2 times"},
    {at_most_once, "1P8 1p8", "1 items were lost by 0 deaths"},
    {at_most_once, "1P8 1p8 2D", NULL},
    {at_most_once, "1P8 1p8 1P9 1p9 2D", "2 items were lost by 1 deaths"},
    {at_most_once, "1P8 1D", NULL},
    {at_most_once, "1P8 1D 2g8", NULL},
    {at_most_once, "2g8", "item 8 was never put"},
    {with_acks, "1P8 1p8 2K8 2k8", NULL},
    {with_acks, "1P8 1p8 2K8 2k8 3K8 3k8", "item 8 was acknowledged 2 times"},
    {with_acks, "1P8 1p8 2K8 2D 3K8 3k8", NULL},
    {with_acks, "1P8 1p8 2K8 2D", NULL},
    {with_acks, "1P8 1p8 2D", "item 8 was lost"},
    {with_acks, "1P8 1p8 2K8 2k8 1x8", "done with and still there"},
    {two_parties, "1e 2e 1b1 2b1 1e 2e 2b2 1b2", NULL},
    {two_parties, "1e 1b1 2e 2b1", "process 1 passed when 1 of 2 had come"},
    {two_parties, "1e 2e 2u 1b1", "process 1 passed when 1 of 2"},
    {two_parties, "1e 2e 1b1 2b1 1e 1b2", "passed when 1 of 2"},
    {two_sites, "1v4:1 2v4:1 1d4:1 2d4:1", NULL},
    {two_sites, "1v4:1 2v4:0 1d4:0 2d4:0", NULL},
    {two_sites, "1v4:1 1d4:1", "transaction 4 committed by 1 votes of 2"},
    {two_sites, "1v4:1 2v4:1 1d4:1 2d4:0", "4 was decided both ways"},
    {two_sites, "1v4:1 2v5:1 1d4:1", "committed by 1 votes"},
    {history_no_failure, "1w 1t 1l", NULL},
    {history_no_failure, "1w 1f-101", "a call of process 1 returned -101"},
};

enum { STORIES = sizeof stories / sizeof *stories };

/* The checks tell good histories from bad ones, and name the problem. */
TEST_LOOP(a_check_finds_what_is_wrong, 0, STORIES) {
  const struct story *s = &stories[_i];
  history h = history_of(s->history);
  history_case c = {.h = &h};
  bool good = s->check(&c);
  ck_assert_msg(good == (s->problem == NULL), "'%s' is %s: %s", s->history,
                good ? "good" : "bad", c.problem);
  ck_assert_msg(!s->problem || strstr(c.problem, s->problem), "'%s': %s",
                s->history, c.problem);
  history_free(&h);
}

/* Records are read in order of time, without those of other recipes. */
TEST(a_history_is_read_as_it_was_written) {
  history h;
  const char *path = test_path("history");
  ck_assert(!history_read(path, &h));
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  for (int i = 0; i < 100; i++)
    history_write(
        fd,
        (history_record){.number = i, .recipe = i % 2, .event = HISTORY_TAKEN});
  close(fd);
  ck_assert(history_read(path, &h));
  ck_assert_int_eq(h.count, 100);
  for (int i = 0; i < 100; i++) ck_assert_int_eq(h.at[i].number, i);
  history_case c = {.h = &h, .recipe = 2};
  ck_assert(history_exclusive(&c, 1)); /* nothing happened there */
  c.recipe = 1;
  ck_assert(!history_exclusive(&c, 1));
  history_free(&h);
}
