/* recipe_torture.c - recipes in processes that are stopped and killed
 *
 * Some workers use each recipe of the table below in a loop, on a few paths,
 * while this program stops them (SIGSTOP), lets them go on and kills them with
 * SIGKILL at random instants, and starts others in the place of the dead.
 * They append what they do to a file; in the end an inspector uses each recipe
 * once more, empties the queues, runs zke_check(), and the history is checked
 * (recipe_history.h).
 *
 *   KILLS=n     how many; 2000
 *   SEED=n      printed; who is killed when, and what the workers do, follows
 *               from it as far as the scheduler lets it
 *   SECONDS=n   end after so many, whatever KILLS says; without limit
 *   RECIPE=s    only the recipes whose name contains it
 *
 * Arguments: a directory for the database; /dev/shm where that is there.
 *
 * A recipe joins by a function that does one round of it and a line in the
 * table, and where it knows a new kind of rule, by a check of the history.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipe_history.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"

enum {
  WORKERS = 6,
  RESOURCES = 2,     /* paths of each recipe */
  WAIT_MS = 20000,   /* a worker's deadline */
  SETTLE_MS = 60000, /* for the workers to end by themselves */
  READERS = 1 << 20, /* capacity of a read/write lock: a writer takes all */
  PARTIES = 3        /* of a barrier */
};
#define PROGRESS_NS INT64_C(5000000000)

/* ---- a worker ---- */

typedef struct worker {
  zke *z;
  int history; /* descriptor */
  int32_t who;
  unsigned random;
  int16_t recipe, resource; /* of the present round */
  int64_t items;            /* put so far */
  char path[64];
} worker;

static void note(const worker *w, int event, int64_t number, int weight) {
  history_write(w->history, (history_record){.number = number,
                                             .who = w->who,
                                             .recipe = w->recipe,
                                             .resource = w->resource,
                                             .weight = weight,
                                             .event = event});
}

static int chance(worker *w, int of) { return rand_r(&w->random) % of; }

static int64_t deadline(const worker *w) { return zke_now(w->z) + WAIT_MS; }

/* Hold something for a while: mostly not, sometimes some milliseconds. */
static void linger(worker *w) {
  if (chance(w, 4) == 0) poll(NULL, 0, chance(w, 4));
}

/* What came of asking: true when it was had. */
static bool judge(const worker *w, int rc, int64_t number, int weight) {
  if (rc == ZKE_OK) {
    note(w, HISTORY_TAKEN, number, weight);
  } else {
    note(w, HISTORY_GAVE_UP, 0, 0);
    if (rc != ZKE_OPERATIONTIMEOUT && rc != ZKE_HELD)
      note(w, HISTORY_FAILED, rc, 0);
  }
  return rc == ZKE_OK;
}

/* A call that has to work. */
static void must(const worker *w, int rc) {
  if (rc == ZKE_OK) return;
  note(w, HISTORY_FAILED, rc, 0);
  fprintf(stderr, "%s: %s\n", w->path, zke_errmsg());
}

/* ---- one round of each recipe ---- */

static void do_lock(worker *w) {
  zke_lock *lock = NULL;
  must(w, zke_lock_new(w->z, w->path, NULL, &lock));
  note(w, HISTORY_WANTED, 0, 0);
  int rc =
      chance(w, 8) ? zke_lock_acquire(lock, deadline(w)) : zke_lock_try(lock);
  if (judge(w, rc, zke_lock_token(lock), 1)) {
    linger(w);
    must(w, zke_lock_check(lock));
    note(w, HISTORY_LEAVING, 0, 0);
    if (chance(w, 4)) must(w, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

static void do_rwlock(worker *w) {
  zke_rwlock *lock = NULL;
  bool writes = chance(w, 3) == 0;
  must(w, zke_rwlock_new(w->z, w->path, NULL, &lock));
  note(w, HISTORY_WANTED, 0, 0);
  int rc = zke_rwlock_acquire(lock, writes ? ZKE_RWLOCK_WRITE : ZKE_RWLOCK_READ,
                              deadline(w));
  if (judge(w, rc, zke_rwlock_token(lock), writes ? READERS : 1)) {
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    must(w, zke_rwlock_release(lock));
  }
  zke_rwlock_free(lock);
}

static void do_election(worker *w) {
  zke_election *e = NULL;
  must(w, zke_election_new(w->z, w->path, NULL, &e));
  note(w, HISTORY_WANTED, 0, 0);
  int rc = zke_election_lead(e, deadline(w));
  if (judge(w, rc, zke_election_token(e), 1)) {
    if (chance(w, 2)) must(w, zke_election_ready(e));
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    must(w, zke_election_resign(e));
  }
  zke_election_free(e);
}

static void put(worker *w, zke_queue *queue) {
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  note(w, HISTORY_PUTTING, number, 0);
  int rc = zke_queue_put(queue, &number, sizeof number, NULL, deadline(w));
  if (rc == ZKE_OK) note(w, HISTORY_PUT, number, 0);
  must(w, rc);
}

static int64_t number_of(const zke_queue_item *item) {
  int64_t number = -1;
  if (item->len == sizeof number) memcpy(&number, item->data, sizeof number);
  return number;
}

/* At most once. */
static void take(worker *w, zke_queue *queue) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_take(queue, zke_now(w->z) + chance(w, 50), &item);
  if (rc == ZKE_OK)
    note(w, HISTORY_GOT, number_of(item), 0);
  else if (rc != ZKE_OPERATIONTIMEOUT)
    must(w, rc);
  zke_free(item);
}

/* At least once: done with it only by the acknowledgement. */
static void claim(worker *w, zke_queue *queue) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_claim(queue, zke_now(w->z) + chance(w, 50), &item);
  if (rc == ZKE_OK) {
    linger(w);
    if (chance(w, 5)) {
      note(w, HISTORY_ACKING, number_of(item), 0);
      must(w, zke_queue_ack(queue, item, NULL, 0, NULL));
      note(w, HISTORY_ACKED, number_of(item), 0);
    } else {
      must(w, zke_queue_release(queue, item));
    }
  } else if (rc != ZKE_OPERATIONTIMEOUT) {
    must(w, rc);
  }
  zke_free(item);
}

static void use_queue(worker *w, void (*out)(worker *, zke_queue *)) {
  zke_queue *queue = NULL;
  must(w, zke_queue_new(w->z, w->path, NULL, &queue));
  if (chance(w, 2))
    put(w, queue);
  else
    out(w, queue);
  zke_queue_free(queue);
}

static void do_queue(worker *w) { use_queue(w, take); }
static void do_claims(worker *w) { use_queue(w, claim); }

static void do_barrier(worker *w) {
  zke_double_barrier *barrier = NULL;
  int64_t round = 0;
  must(w, zke_double_barrier_new(w->z, w->path, PARTIES, NULL, &barrier));
  note(w, HISTORY_ENTERING, 0, 0);
  int rc = zke_double_barrier_enter(barrier, NULL, 0,
                                    zke_now(w->z) + chance(w, 100), &round);
  if (rc == ZKE_OK) {
    note(w, HISTORY_PASSED, round, 0);
    rc = zke_double_barrier_leave(barrier, deadline(w));
    if (rc != ZKE_BROKEN) must(w, rc);
  } else {
    note(w, HISTORY_GAVE_UP, 0, 0);
    if (rc != ZKE_OPERATIONTIMEOUT) must(w, rc);
  }
  zke_double_barrier_free(barrier);
}

/* ---- the checks of each recipe ---- */

static bool check_one_holder(history_case *c) {
  return history_exclusive(c, 1) && history_progress(c, PROGRESS_NS);
}

static bool check_readers(history_case *c) {
  return history_exclusive(c, READERS) && history_progress(c, PROGRESS_NS);
}

static bool check_queue(history_case *c) { return history_queue(c, false); }
static bool check_claims(history_case *c) { return history_queue(c, true); }
static bool check_barrier(history_case *c) {
  return history_barrier(c, PARTIES);
}

/* ---- the table ---- */

typedef struct torture_recipe {
  const char *name; /* of its directory, too */
  void (*round)(worker *w);
  bool (*check)(history_case *c);
  bool queue; /* to be emptied in the end, else used once more */
} torture_recipe;

static const torture_recipe recipes[] = {
    {"lock", do_lock, check_one_holder, false},
    {"rwlock", do_rwlock, check_readers, false},
    {"election", do_election, check_one_holder, false},
    {"queue", do_queue, check_queue, true},
    {"claims", do_claims, check_claims, true},
    {"barrier", do_barrier, check_barrier, false},
};

enum { RECIPES = sizeof recipes / sizeof *recipes };

static bool is_wanted(int recipe) {
  const char *only = getenv("RECIPE");
  return !only || !only[0] || strstr(recipes[recipe].name, only);
}

/* ---- workers as processes ---- */

static char directory[4000], database[4100], history_path[4100];
static volatile int *stop; /* shared */

static void choose_path(worker *w, int recipe, int resource) {
  w->recipe = (int16_t)recipe;
  w->resource = (int16_t)resource;
  snprintf(w->path, sizeof w->path, "/%s/%d", recipes[recipe].name, resource);
}

static void open_worker(worker *w) {
  w->history = open(history_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (w->history < 0) abort();
  must(w, zke_open(database, NULL, &w->z));
  if (!w->z) _exit(1);
}

static void work(int32_t who, unsigned seed) {
  worker w = {.who = who, .random = seed * 2654435761u + (unsigned)who};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  open_worker(&w);
  while (!*stop) {
    int recipe = chance(&w, RECIPES);
    if (!is_wanted(recipe)) continue;
    choose_path(&w, recipe, chance(&w, RESOURCES));
    recipes[recipe].round(&w);
  }
  must(&w, zke_close(w.z));
  _exit(0);
}

typedef struct slot {
  pid_t pid;
  int32_t who;
  bool stopped;
  int64_t go_on; /* ns: when */
} slot;

static slot slots[WORKERS];
static int32_t people;
static worker killer = {.recipe = -1}; /* for its notes */

static void note_about(const slot *s, int event) {
  killer.who = s->who;
  note(&killer, event, 0, 0);
}

static void start(slot *s, unsigned seed) {
  *s = (slot){.who = ++people};
  s->pid = fork();
  if (s->pid < 0) abort();
  if (s->pid == 0) work(s->who, seed);
}

static void kill_one(slot *s) {
  note_about(s, HISTORY_DYING);
  kill(s->pid, SIGKILL);
  while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) continue;
}

static void stop_one(slot *s, int64_t ns) {
  if (s->stopped) return;
  note_about(s, HISTORY_STOPPED);
  kill(s->pid, SIGSTOP);
  s->stopped = true;
  s->go_on = history_now() + ns;
}

static void continue_one(slot *s) {
  if (!s->stopped) return;
  kill(s->pid, SIGCONT);
  note_about(s, HISTORY_CONTINUED);
  s->stopped = false;
}

/* Did one end by itself?  Then something is wrong with it. */
static bool has_ended(slot *s) {
  int status;
  if (waitpid(s->pid, &status, WNOHANG) != s->pid) return false;
  fprintf(stderr, "process %d ended by itself: %x\n", s->who, (unsigned)status);
  return true;
}

static long number_from(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && text[0] ? strtol(text, NULL, 0) : otherwise;
}

/* Stop, continue and kill until it is enough.  Returns the kills, or -1. */
static long torment(unsigned seed, long kills) {
  unsigned random = seed;
  long done = 0, seconds = number_from("SECONDS", 0);
  int64_t began = history_now();
  for (int i = 0; i < WORKERS; i++) start(&slots[i], seed);
  while (done < kills) {
    poll(NULL, 0, rand_r(&random) % 8);
    int64_t now = history_now();
    if (seconds && now - began > seconds * INT64_C(1000000000)) break;
    for (int i = 0; i < WORKERS; i++) {
      if (has_ended(&slots[i])) return -1;
      if (slots[i].stopped && slots[i].go_on < now) continue_one(&slots[i]);
    }
    slot *s = &slots[rand_r(&random) % WORKERS];
    if (rand_r(&random) % 3 == 0) {
      stop_one(s, rand_r(&random) % 30 * INT64_C(1000000));
    } else {
      kill_one(s);
      start(s, seed);
      done++;
    }
  }
  return done;
}

/* Let all end by themselves.  False: one does not. */
static bool settle(void) {
  int64_t end = history_now() + SETTLE_MS * INT64_C(1000000);
  bool good = true;
  *stop = 1;
  for (int i = 0; i < WORKERS; i++) continue_one(&slots[i]);
  for (int i = 0; i < WORKERS; i++) {
    pid_t gone = 0;
    while ((gone = waitpid(slots[i].pid, NULL, WNOHANG)) == 0 &&
           history_now() < end)
      poll(NULL, 0, 5);
    if (gone) continue;
    fprintf(stderr, "process %d does not end\n", slots[i].who);
    good = false;
    kill_one(&slots[i]);
  }
  return good;
}

/* ---- the end ---- */

/* What is left of a queue. */
static void empty_queue(worker *w) {
  zke_queue *queue = NULL;
  zke_queue_item *item;
  must(w, zke_queue_new(w->z, w->path, NULL, &queue));
  while (zke_queue_take(queue, zke_now(w->z) + 300, &item) == ZKE_OK) {
    note(w, HISTORY_LEFT, number_of(item), 0);
    zke_free(item);
  }
  zke_queue_free(queue);
}

static void complain(void *context, const char *sentence) {
  (void)context;
  fprintf(stderr, "zke_check: %s\n", sentence);
}

/* In a process of its own, so that the next run may fork. */
static void inspect(void) {
  worker w = {.who = ++people};
  open_worker(&w);
  for (int i = 0; i < RECIPES; i++) {
    for (int j = 0; j < RESOURCES && is_wanted(i); j++) {
      choose_path(&w, i, j);
      if (recipes[i].queue)
        empty_queue(&w);
      else
        recipes[i].round(&w);
    }
  }
  must(&w, zke_check(w.z, complain, NULL));
  must(&w, zke_close(w.z));
}

static bool check_all(void) {
  history h;
  bool good = history_read(history_path, &h);
  for (int i = 0; i < RECIPES; i++) {
    for (int j = 0; j < RESOURCES; j++) {
      history_case c = {.h = &h, .recipe = i, .resource = j};
      if (recipes[i].check(&c) && history_no_failure(&c)) continue;
      printf("%s/%d: %s\n", recipes[i].name, j, c.problem);
      good = false;
    }
  }
  printf("%d records by %d processes\n", h.count, people);
  history_free(&h);
  return good;
}

static void choose_directory(const char *given) {
  const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : given;
  snprintf(directory, sizeof directory, "%s/zke-recipes-XXXXXX", base);
  if (!mkdtemp(directory)) abort();
  snprintf(database, sizeof database, "%s/db", directory);
  snprintf(history_path, sizeof history_path, "%s/history", directory);
}

/* What a run leaves is kept where it failed. */
static void clean_up(bool good) {
  char command[4200];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (!good)
    printf("kept: %s\n", directory);
  else if (system(command) != 0)
    printf("not removed: %s\n", directory);
}

int main(int argc, char **argv) {
  unsigned seed = (unsigned)number_from("SEED", 0);
  while (!seed) seed = (unsigned)history_now() * 2654435761u % 1000000;
  choose_directory(argc > 1 ? argv[1] : "/tmp");
  stop = mmap(NULL, sizeof *stop, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (stop == MAP_FAILED) return 1;
  killer.history = open(history_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  printf("SEED=%u\n", seed);
  fflush(stdout);
  long kills = torment(seed, number_from("KILLS", 2000));
  bool good = kills >= 0;
  if (!settle()) good = false;
  inspect();
  if (!check_all()) good = false;
  printf("recipe_torture: %ld kills, %s\n", kills, good ? "good" : "BAD");
  clean_up(good);
  return good ? 0 : 1;
}
