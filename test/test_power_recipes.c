/* test_power_recipes.c - power cuts while recipes are used
 *
 * P8, with the recipes' own promises: what a queue has acknowledged as put is
 * there after the cut, what was acknowledged as done does not come back, a
 * decision stays, a counter has counted, and what was held by a session is
 * free.  One process with two sessions works on the disk that forgets
 * (powervfs.h); before every n-th event a forked child, which has all that this
 * process knows, opens what a cut could leave, under a new boot id, and goes
 * on with it.
 *
 *   SEED=n   the first seed, printed
 *   EVERY=n  cut before each n-th event on the disk
 *   CUTS=n   a twentieth of so many cuts, the seeds running on
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "powervfs.h"
#include "recipes/counter.h"
#include "recipes/lock.h"
#include "recipes/queue.h"
#include "recipes/semaphore.h"
#include "recipes/two_phase.h"
#include "test.h"

enum {
  ITEMS = 2000,
  BATCH = 3,
  DEALS = 300,
  OPEN = 3, /* transactions at a time */
  SITES = 2,
  IMAGES = 4, /* disks looked at for each cut */
  NAME = 24
};

/* ---- what is known ---- */

enum item_state { ABSENT, PUTTING, PUT, TAKING, DONE };

/* A transaction; its steps follow each other. */
enum step {
  BEGIN,
  OPEN_ANN,
  OPEN_BOB,
  VOTE_ANN,
  VOTE_BOB,
  DECIDE,
  SEEN,
  ACK_ANN,
  ACK_BOB,
  OVER
};

typedef struct deal {
  enum step done; /* the next one to do, or under way */
  bool under_way;
  int form;
  int vote[SITES];
  int decision;        /* as it was told, or ZKE_TWO_PHASE_UNDECIDED */
  zke_two_phase *t[3]; /* the coordinator's, the sites' */
} deal;

typedef struct tally { /* shared with the children */
  long cuts, images, violations;
  long kept, lost; /* changes that were not synced */
} tally;

static struct {
  uint64_t random, seed;
  long every, event;
  bool quiet;
  int durability;
  char base[PATH_MAX], database[PATH_MAX];
  zke_os real, os;
  int64_t clock; /* ms */
  int boot;
  zke *z[2];
  zke_queue *queue;
  zke_counter *counter;
  enum item_state item[ITEMS];
  int items;
  int64_t begun, counted;
  deal deal[DEALS];
  int deals;
} run;

static tally *sum;
static const char *const sites[SITES] = {"ann", "bob"};

static uint64_t chance(uint64_t limit) {
  return power_random(&run.random, limit);
}

__attribute__((format(printf, 1, 2))) static void found(const char *format,
                                                        ...) {
  va_list ap;
  __atomic_fetch_add(&sum->violations, 1, __ATOMIC_RELAXED);
  if (run.quiet) return;
  printf("SEED=%llu, cut at event %ld: ", (unsigned long long)run.seed,
         run.event);
  va_start(ap, format);
  vprintf(format, ap);
  va_end(ap);
  printf("\n");
}

/* What has to work, wherever the power fails; a child ends here if not. */
static void demand(int rc, const char *what) {
  if (rc == ZKE_OK) return;
  found("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
  fflush(stdout);
  if (run.boot) _exit(0);
  ck_abort_msg("%s: %s", what, zke_error_name(rc));
}

/* ---- the machine ---- */

static int64_t os_clock(void *c, int which) {
  (void)c;
  return ((which == ZKE_CLOCK_REALTIME ? 1700000000000 : 0) + ++run.clock) *
         1000000;
}

static int os_random(void *c, void *buffer, size_t size) {
  (void)c;
  for (size_t i = 0; i < size; i++) ((char *)buffer)[i] = (char)chance(256);
  return 0;
}

static int os_boot_id(void *c, char *buffer, size_t size) {
  (void)c;
  return snprintf(buffer, size, "boot-%d", run.boot);
}

static bool ends_with(const char *text, const char *end) {
  size_t len = strlen(text), tail = strlen(end);
  return len >= tail && strcmp(text + len - tail, end) == 0;
}

/* Files but the one in the side directory, which was never synced and is gone,
 * keep their inodes through a cut. */
static int os_stat(void *c, const char *path, zke_file *out) {
  int rc = run.real.stat(c, path, out);
  if (rc < 0 || out->type != ZKE_FILE_REGULAR) return rc;
  out->device = 1;
  out->inode = ends_with(path, "/live")  ? 1000 + (uint64_t)run.boot
               : ends_with(path, "-wal") ? 3
               : ends_with(path, "-shm") ? 4
                                         : 1;
  return rc;
}

/* Of a regular file only the liveness file is open. */
static int os_fstat(void *c, int fd, zke_file *out) {
  int rc = run.real.fstat(c, fd, out);
  if (rc < 0 || out->type != ZKE_FILE_REGULAR) return rc;
  out->device = 1;
  out->inode = 1000 + (uint64_t)run.boot;
  return rc;
}

static int os_fsync(void *c, int fd) {
  zke_file f;
  int rc = run.real.fstat(c, fd, &f);
  if (rc >= 0 && f.type == ZKE_FILE_DIRECTORY) power_sync_names();
  return rc;
}

static int64_t os_pid(void *c) {
  (void)c;
  return 1000;
}

static void make_machine(void) {
  zke_os_default(&run.real);
  run.os = run.real;
  run.os.clock = os_clock;
  run.os.random = os_random;
  run.os.boot_id = os_boot_id;
  run.os.pid = os_pid;
  run.os.stat = os_stat;
  run.os.fstat = os_fstat;
  run.os.fsync = os_fsync;
}

static zke *start(void) {
  zke *z = NULL;
  zke_options o = {.size = sizeof o,
                   .vfs = "power",
                   .os = &run.os,
                   .identity = "power",
                   .durability = run.durability,
                   .container_ms = 1 << 30};
  demand(zke_open(run.database, &o, &z), "open");
  return z;
}

/* ---- after a cut ---- */

static void complain(void *context, const char *sentence) {
  (void)context;
  found("zke_check: %s", sentence);
}

/* Nobody holds anything any more. */
static void look_at_holders(zke *z) {
  zke_party_list *who[2] = {NULL};
  zke_session_list *sessions = NULL;
  zke_lock *lock = NULL;
  demand(zke_lock_parties(z, "/lock", &who[0]), "who holds the lock");
  demand(zke_semaphore_parties(z, "/permits", &who[1]), "who has permits");
  demand(zke_sessions(z, &sessions), "sessions");
  if (who[0]->count || who[1]->count || sessions->count != 1)
    found("%d at the lock, %d at the semaphore, %d sessions of before",
          who[0]->count, who[1]->count, sessions->count - 1);
  demand(zke_lock_new(z, "/lock", NULL, &lock), "a lock");
  demand(zke_lock_try(lock), "the lock");
  zke_lock_free(lock);
  zke_free(sessions);
  for (int i = 0; i < 2; i++) zke_free(who[i]);
}

static int number_of(const zke_queue_item *item) {
  int number = -1;
  if (item->len == sizeof number) memcpy(&number, item->data, sizeof number);
  return number >= 0 && number < run.items ? number : -1;
}

/* Items were put together: all of them are there, or none. */
static void look_at_batches(const bool *there) {
  for (int i = 0; i + 1 < run.items; i++) {
    bool both = run.item[i] == PUTTING && run.item[i + 1] == PUTTING;
    if (both && there[i] != there[i + 1]) found("half of a batch at %d", i);
  }
}

static void look_at_items(const bool *there) {
  for (int i = 0; i < run.items; i++) {
    if (run.item[i] == PUT && !there[i]) found("item %d was lost", i);
    if (run.item[i] == DONE && there[i]) found("item %d came back", i);
  }
  look_at_batches(there);
}

/* Take all that is there, in its order. */
static void look_at_queue(zke *z) {
  static bool there[ITEMS];
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  zke_queue_counts counts = {0};
  int last = -1, rc;
  demand(zke_queue_new(z, "/queue", NULL, &queue), "the queue");
  demand(zke_queue_size(queue, &counts), "its size");
  if (counts.claimed) found("%d claims of before", counts.claimed);
  while ((rc = zke_queue_take(queue, 0, &item)) == ZKE_OK) {
    int number = number_of(item);
    if (number <= last) found("item %d after %d", number, last);
    if (number >= 0) there[last = number] = true;
    zke_free(item);
  }
  if (rc != ZKE_OPERATIONTIMEOUT) demand(rc, "take");
  look_at_items(there);
  zke_queue_free(queue);
}

static void look_at_counter(zke *z) {
  zke_counter *counter = NULL;
  int64_t value = 0;
  demand(zke_counter_new(z, "/counter", NULL, &counter), "a counter");
  demand(zke_counter_get(counter, &value, NULL), "the counter");
  if (value < run.counted || value > run.begun)
    found("counted %lld, found %lld", (long long)run.counted, (long long)value);
  zke_counter_free(counter);
}

static void name_deal(char name[NAME], int number) {
  snprintf(name, NAME, "deal-%d", number);
}

/* What must come out of it; in the ephemeral form a site's end may abort. */
static bool may_come_out(const deal *d, int decision) {
  bool all = true;
  for (int i = 0; i < SITES; i++) {
    if (d->vote[i] == ZKE_TWO_PHASE_ABORT) all = false;
  }
  if (decision == ZKE_TWO_PHASE_COMMIT) return all;
  return !all || (d->form & ZKE_TWO_PHASE_EPHEMERAL);
}

/* Is it as it was acknowledged?  False where it is over. */
static bool look_at_deal(zke *z, int number) {
  const deal *d = &run.deal[number];
  zke_two_phase_status *status = NULL;
  char name[NAME];
  name_deal(name, number);
  int rc = zke_two_phase_status_of(z, "/deals", name, &status);
  if (rc != ZKE_OK && rc != ZKE_NONODE) demand(rc, name);
  bool there = rc == ZKE_OK;
  bool begun = d->done > BEGIN, ends = d->done == ACK_BOB && d->under_way;
  if (begun && d->done < OVER && !ends && !there) found("%s was lost", name);
  if (d->done == OVER && there) found("%s came back", name);
  if (there && d->decision && status->decision != d->decision)
    found("%s was decided as %d, is %d", name, d->decision, status->decision);
  zke_free(status);
  return there;
}

/* Its sites come back, vote as they had resolved, and see it decided. */
static void finish_deal(zke *z, int number) {
  deal *d = &run.deal[number];
  zke_two_phase *t[SITES] = {NULL};
  char name[NAME];
  int decision[SITES] = {0};
  name_deal(name, number);
  for (int i = 0; i < SITES; i++) {
    demand(zke_two_phase_open(z, "/deals", name, sites[i], NULL, &t[i]),
           "a site comes back");
  }
  for (int i = 0; i < SITES; i++)
    demand(zke_two_phase_vote(t[i], d->vote[i]), "and votes");
  for (int i = 0; i < SITES; i++)
    demand(zke_two_phase_wait(t[i], zke_now(z) + 5000, &decision[i]), "decide");
  if (decision[0] != decision[1]) found("%s was decided both ways", name);
  if (d->decision && decision[0] != d->decision)
    found("%s changed its outcome", name);
  if (!may_come_out(d, decision[0]))
    found("%s came out as %d", name, decision[0]);
  for (int i = 0; i < SITES; i++) {
    demand(zke_two_phase_acknowledge(t[i]), "acknowledge");
    zke_two_phase_free(t[i]);
  }
}

static void look_at_deals(zke *z) {
  zke_strings *left = NULL;
  for (int i = 0; i < run.deals; i++) {
    if (look_at_deal(z, i)) finish_deal(z, i);
  }
  demand(zke_two_phase_pending(z, "/deals", NULL, NULL, NULL, &left),
         "what is pending");
  if (left->count) found("%d transactions without an end", left->count);
  zke_free(left);
}

/* ---- cuts ---- */

static void ignore(power_event event) { (void)event; }

/* The child's work. */
static void look(int image) {
  power_loss loss = {0};
  char directory[PATH_MAX];
  alarm(60);
  run.boot = 1;
  run.random = run.seed * 1000003 + (uint64_t)(run.event * 31 + image);
  snprintf(directory, sizeof directory, "%.3900s/%d", run.base, (int)getpid());
  if (mkdir(directory, 0700) != 0) abort();
  power_image(directory, (power_style)chance(POWER_STYLES), &run.random, &loss);
  __atomic_fetch_add(&sum->images, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sum->kept, loss.kept, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sum->lost, loss.lost, __ATOMIC_RELAXED);
  snprintf(run.database, sizeof run.database, "%.4000s/a.db", directory);
  power_begin(directory, ignore);
  zke *z = start();
  demand(zke_check(z, complain, NULL), "check");
  look_at_holders(z);
  look_at_queue(z);
  look_at_counter(z);
  look_at_deals(z);
  demand(zke_check(z, complain, NULL), "check at the end");
  demand(zke_close(z), "close");
  test_remove(directory);
}

static void cut(void) {
  sum->cuts++;
  fflush(stdout);
  for (int image = 0; image < IMAGES; image++) {
    int status = 0;
    pid_t pid = _Fork(); /* in the middle of a call: no atfork handlers */
    if (pid < 0) abort();
    if (pid == 0) {
      look(image);
      fflush(stdout);
      _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0) {
      if (errno != EINTR) abort();
    }
    if (status) found("the child ended as 0x%x", (unsigned)status);
  }
}

static void at_event(power_event event) {
  if (event == POWER_PUBLISH || !run.z[1]) return;
  run.event++;
  if (run.every && (run.event + (long)run.seed) % run.every == 0) cut();
}

/* ---- the work ---- */

static void mark(int first, int count, enum item_state state) {
  for (int i = first; i < first + count; i++) run.item[i] = state;
}

static void put(void) {
  int numbers[BATCH], count = 1 + (int)chance(BATCH), first = run.items;
  zke_queue_value values[BATCH];
  for (int i = 0; i < count; i++) {
    numbers[i] = first + i;
    values[i] = (zke_queue_value){&numbers[i], sizeof numbers[i]};
  }
  run.items += count;
  mark(first, count, PUTTING);
  demand(zke_queue_put_all(run.queue, values, count, NULL, ZKE_FOREVER), "put");
  mark(first, count, PUT);
}

static void take(void) {
  zke_queue_item *item = NULL;
  bool claims = chance(3) > 0;
  int first = 0;
  while (first < run.items && run.item[first] != PUT) first++;
  if (first == run.items) return;
  if (!claims) run.item[first] = TAKING;
  demand((claims ? zke_queue_claim : zke_queue_take)(run.queue, 0, &item),
         "take or claim");
  ck_assert_int_eq(number_of(item), first);
  if (claims && chance(4) == 0) {
    demand(zke_queue_release(run.queue, item), "release");
  } else {
    run.item[first] = TAKING;
    if (claims) demand(zke_queue_ack(run.queue, item, NULL, 0, NULL), "ack");
    run.item[first] = DONE;
  }
  zke_free(item);
}

static void count(void) {
  run.begun++;
  demand(zke_counter_add_and_get(run.counter, 1, ZKE_FOREVER, NULL, NULL),
         "count");
  run.counted++;
}

static void begin_deal(deal *d) {
  zke_two_phase_options o = {.size = sizeof o, .form = d->form};
  char name[NAME];
  name_deal(name, (int)(d - run.deal));
  demand(zke_two_phase_begin(run.z[0], "/deals", name, "tea", 3, sites, SITES,
                             &o, &d->t[0]),
         "begin");
}

static void open_deal(deal *d, int site) {
  char name[NAME];
  name_deal(name, (int)(d - run.deal));
  demand(zke_two_phase_open(run.z[site], "/deals", name, sites[site], NULL,
                            &d->t[1 + site]),
         "a site takes part");
}

static void end_deal(deal *d) {
  for (int i = 0; i < 3; i++) {
    zke_two_phase_free(d->t[i]);
    d->t[i] = NULL;
  }
}

/* The next step of a transaction. */
static void step_deal(deal *d) {
  int decision = ZKE_TWO_PHASE_UNDECIDED, rc = ZKE_OK;
  d->under_way = true;
  if (d->done == BEGIN) begin_deal(d);
  if (d->done == OPEN_ANN || d->done == OPEN_BOB)
    open_deal(d, d->done - OPEN_ANN);
  if (d->done == VOTE_ANN || d->done == VOTE_BOB) {
    int site = (int)d->done - VOTE_ANN;
    rc = zke_two_phase_vote(d->t[1 + site], d->vote[site]);
  }
  if (d->done == DECIDE) rc = zke_two_phase_wait(d->t[0], 0, &decision);
  if (d->done >= SEEN) rc = zke_two_phase_acknowledge(d->t[d->done - SEEN]);
  demand(rc, "a step of a transaction");
  if (d->done == DECIDE) {
    d->decision = decision;
    if (!may_come_out(d, decision)) found("came out as %d", decision);
  }
  d->under_way = false;
  if (++d->done == OVER) end_deal(d);
}

static void add_deal(void) {
  deal *d = &run.deal[run.deals++];
  d->form = (int)chance(4);
  for (int i = 0; i < SITES; i++)
    d->vote[i] = chance(5) ? ZKE_TWO_PHASE_COMMIT : ZKE_TWO_PHASE_ABORT;
}

/* One of those that are not over, or a new one. */
static void deal_on(void) {
  int first = 0;
  while (first < run.deals && run.deal[first].done == OVER) first++;
  int chosen = first + (int)chance(OPEN);
  if (chosen >= run.deals) {
    add_deal();
    chosen = run.deals - 1;
  }
  if (run.deal[chosen].done < OVER) step_deal(&run.deal[chosen]);
}

/* Take something, hold it or not while other things happen. */
static void hold(void *held, int (*try_it)(void *), int (*release)(void *),
                 int state) {
  if (state == ZKE_LINE_HELD)
    demand(release(held), "release");
  else
    demand(try_it(held), "take");
}

static int try_lock(void *l) { return zke_lock_try(l); }
static int release_lock(void *l) { return zke_lock_release(l); }
static int try_permits(void *s) { return zke_semaphore_try(s, 2); }
static int release_permits(void *s) { return zke_semaphore_release(s); }

static void act(zke_lock *lock, zke_semaphore *permits) {
  switch (chance(8)) {
    case 0:
    case 1:
      put();
      break;
    case 2:
    case 3:
      take();
      break;
    case 4:
      count();
      break;
    case 5:
      hold(lock, try_lock, release_lock, zke_lock_state(lock));
      hold(permits, try_permits, release_permits, zke_semaphore_state(permits));
      break;
    default:
      deal_on();
  }
}

static void work(int operations) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 3};
  zke_lock *lock = NULL;
  zke_semaphore *permits = NULL;
  zke *z = run.z[0] = start();
  demand(zke_open_session(z, NULL, &run.z[1]), "a second session");
  demand(zke_lock_new(z, "/lock", NULL, &lock), "a lock");
  demand(zke_semaphore_new(run.z[1], "/permits", &o, &permits), "a semaphore");
  demand(zke_queue_new(z, "/queue", NULL, &run.queue), "a queue");
  demand(zke_counter_new(run.z[1], "/counter", NULL, &run.counter),
         "a counter");
  for (int i = 0; i < operations; i++) act(lock, permits);
  for (int i = 0; i < run.deals; i++) end_deal(&run.deal[i]);
  zke_counter_free(run.counter);
  zke_queue_free(run.queue);
  zke_semaphore_free(permits);
  zke_lock_free(lock);
  demand(zke_close(run.z[1]), "close");
  demand(zke_close(z), "close");
}

/* One run; counts add up in *sum. */
static void run_once(uint64_t seed, long every, int durability, bool quiet) {
  char directory[PATH_MAX];
  memset(&run, 0, sizeof run);
  run.seed = run.random = seed;
  run.every = every;
  run.durability = durability;
  run.quiet = quiet;
  snprintf(run.base, sizeof run.base, "%s", test_path("cuts"));
  mkdir(run.base, 0700);
  snprintf(directory, sizeof directory, "%.4000s/work", run.base);
  if (mkdir(directory, 0700) != 0) abort();
  snprintf(run.database, sizeof run.database, "%.4000s/a.db", directory);
  make_machine();
  power_begin(directory, at_event);
  work(150);
  test_remove(directory);
}

static void begin_tally(void) {
  sum = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(sum != MAP_FAILED);
}

static long setting(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}

/* ---- the tests ---- */

/* P8, in the recipes' own words: see above. */
START_TEST(what_recipes_acknowledged_survives) {
  uint64_t seed = (uint64_t)setting("SEED", 1);
  long cuts = getenv("CUTS") ? setting("CUTS", 0) / 20 : 60;
  long every = setting("EVERY", 29);
  begin_tally();
  printf("recipes: SEED=%llu EVERY=%ld\n", (unsigned long long)seed, every);
  do run_once(seed++, every, ZKE_DURABLE_BY_KIND, false);
  while (sum->cuts < cuts);
  printf(
      "%ld cuts, %ld disks looked at; changes not synced: %ld kept, %ld "
      "lost; violations: %ld\n",
      sum->cuts, sum->images, sum->kept, sum->lost, sum->violations);
  ck_assert_int_eq(sum->violations, 0);
  ck_assert_int_gt(sum->lost, 0);
  ck_assert_int_gt(sum->kept, 0);
}
END_TEST

/* The same finds what there is to be found where nothing is synced. */
START_TEST(finds_losses_without_durability) {
  begin_tally();
  run_once(5, 30, ZKE_DURABLE_NONE, true);
  ck_assert_int_gt(sum->cuts, 3);
  ck_assert_int_gt(sum->violations, 0);
}
END_TEST

static Suite *power_suite(void) {
  Suite *s = suite_create("power_recipes");
  TCase *c = tcase_create("cuts");
  tcase_set_timeout(c, getenv("CUTS") ? 0 : 60);
  tcase_add_test(c, what_recipes_acknowledged_survives);
  tcase_add_test(c, finds_losses_without_durability);
  suite_add_tcase(s, c);
  return s;
}

int main(int argc, char **argv) { return test_main(argc, argv, power_suite()); }
