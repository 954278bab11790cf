/* keep_arena.c - a world is restored from a picture of the arena */
#define _GNU_SOURCE
#include "keep.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "world.h"

const bool keep_has_pictures = true;

void *keep_alloc(size_t size) { return calloc(1, size); }

void keep_free(void *at, size_t size) {
  (void)size;
  free(at);
}

int keep_run(zke_lab *lab, keep_run_fn fn) { return fn(lab); }

bool keep_try(zke_lab *lab, keep_try_fn fn, void *arg) {
  world_put(&lab->first);
  return fn(lab, arg);
}

/* ---- what ends a process from within ---- */

/* In a signal handler, while a process runs: a finding. */
static void fail_by(int number, const char *how) {
  char why[LAB_WHY];
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  world_death_words(lab_running, how, why, sizeof why);
  zke_lab_fail("%s", why);
}

/* A process that has run for a long time since its last stop makes no more
 * calls. */
static void on_tick(int number) {
  enum { TICKS = 20, TICKS_OF_KNOWN = 4 };
  static uint64_t turn;
  static int ticks;
  if (!lab_self()) return;
  ticks = turn == lab_running->turns ? ticks + 1 : 0;
  turn = lab_running->turns;
  if (ticks < (lab_running->known ? TICKS_OF_KNOWN : TICKS)) return;
  ticks = 0;
  fail_by(number, KEEP_NO_CALL);
}

static void on_signal(int number, siginfo_t *info, void *context) {
  (void)context;
  if (number == SIGPROF) {
    on_tick(number);
  } else if (lab_self()) {
    bool deep = number == SIGSEGV && arena_is_guard(info->si_addr);
    fail_by(number, deep ? "has used up its stack" : strsignal(number));
  } else {
    (void)signal(number, SIG_DFL);
    (void)raise(number);
  }
}

void keep_watch(zke_lab *lab, bool runs) { lab->turns += runs; }

/* Start or stop the ticks, of processor time. */
static void tick(bool on) {
  struct itimerval t = {.it_interval.tv_usec = on ? 50000 : 0};
  t.it_value = t.it_interval;
  setitimer(ITIMER_PROF, &t, NULL);
}

static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
enum { CAUGHT = sizeof caught / sizeof caught[0], SIGNAL_STACK = 64 << 10 };
static struct sigaction caught_before[CAUGHT];
static stack_t stack_before;

/* On its own stack, since the process's may be used up. */
static bool signals_catch(bool ticks) {
  void *at = mmap(NULL, SIGNAL_STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  stack_t stack = {.ss_sp = at, .ss_size = SIGNAL_STACK};
  sigaltstack(&stack, &stack_before);
  struct sigaction action = {
      .sa_sigaction = on_signal,
      .sa_flags = SA_ONSTACK | SA_NODEFER | SA_SIGINFO | SA_RESTART};
  for (int i = 0; i < CAUGHT; i++)
    sigaction(caught[i], &action, &caught_before[i]);
  if (ticks) tick(true);
  return true;
}

static void signals_release(void) {
  stack_t stack;
  tick(false);
  for (int i = 0; i < CAUGHT; i++)
    sigaction(caught[i], &caught_before[i], NULL);
  sigaltstack(&stack_before, &stack);
  munmap(stack.ss_sp, SIGNAL_STACK);
}

/* ---- a world ---- */

bool keep_begin(zke_lab *lab) {
  static char *const none[ZKE_LAB_MOST];
  return picture_take(&lab->before, none, true) &&
         signals_catch(!lab->has_outside);
}

/* The world is not closed but dropped: its state is in no picture any more. */
void keep_end(zke_lab *lab) {
  signals_release();
  picture_put(&lab->before, &lab->before);
  arena_clear();
  arena_current = ARENA_OUTSIDE;
}

/* ---- SQLite's memory ---- */

static void *sql_malloc(int size) {
  return arena_get(
      arena_current == ARENA_OUTSIDE ? ARENA_OUTSIDE : ARENA_SQLITE,
      (size_t)size);
}
static void sql_free(void *block) { free(block); }
static int sql_size(void *block) { return block ? (int)arena_size(block) : 0; }
static void *sql_realloc(void *block, int size) {
  void *other = sql_malloc(size);
  if (!other) return NULL;
  size_t old = arena_size(block);
  memcpy(other, block, old < (size_t)size ? old : (size_t)size);
  free(block);
  return other;
}
static int sql_roundup(int size) { return (size + 15) & ~15; }
static int sql_begin(void *arg) {
  (void)arg;
  return SQLITE_OK;
}
static void sql_end(void *arg) { (void)arg; }

/* SQLite takes its memory from the world, too.  Its earlier data is kept in
 * lab->before, with the program's variables. */
int keep_sqlite(void) {
  sqlite3_mem_methods methods = {sql_malloc,  sql_free,  sql_realloc, sql_size,
                                 sql_roundup, sql_begin, sql_end,     NULL};
  sqlite3_shutdown();
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK ||
      sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) != SQLITE_OK ||
      sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) != SQLITE_OK)
    return zke_fail(ZKE_MISUSE, "the laboratory: SQLite is in use already");
  return sqlite3_initialize() == SQLITE_OK ? ZKE_OK : ZKE_NOMEM;
}
