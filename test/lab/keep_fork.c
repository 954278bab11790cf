/* keep_fork.c - each schedule runs in its own process
 *
 * A run is a child of the program, which makes the world and calls setup; each
 * schedule is a child of that.  So whatever a schedule changes or leaves behind
 * ends with its process, and the program itself stays as it was.  What lasts is
 * in memory that they share, struct zke_lab above all.
 *
 * A schedule that ends the program, by a signal or as a sanitizer does, ends
 * only its own process, and is a finding. */
#define _GNU_SOURCE
#include "keep.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

const bool keep_has_pictures = false;

void *keep_alloc(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

void keep_free(void *at, size_t size) {
  if (at) munmap(at, size);
}

/* ---- a separate process ---- */

/* In a child: it does not print its parent's buffered output, and does not
 * outlive its parent. */
static pid_t child_begin(void) {
  (void)fflush(NULL);
  pid_t child = fork();
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return child;
}

/* Exit without the exit handlers of the program or of a sanitizer; one of the
 * latter waits a second for reports. */
static void child_end(void) {
  (void)fflush(NULL);
  syscall(SYS_exit_group, 0);
}

static int child_wait(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

/* By default the timer's signal ends the program.  So a sanitizer cannot delay
 * it, as it delays handlers. */
void keep_watch(zke_lab *lab, bool runs) {
  struct itimerval t = {.it_value.tv_sec = runs && !lab->known,
                        .it_value.tv_usec = runs && lab->known ? 200000 : 0};
  if (!lab->has_outside) setitimer(ITIMER_PROF, &t, NULL);
}

/* How a process has ended unexpectedly. */
static const char *status_words(int status, char *at, size_t size) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) return KEEP_NO_CALL;
  if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
  snprintf(at, size, "has ended the program with status %d",
           WEXITSTATUS(status));
  return at;
}

static int fork_failed(void) {
  return zke_fail(ZKE_SYSTEMERROR, "the laboratory: fork: %s", strerror(errno));
}

int keep_run(zke_lab *lab, keep_run_fn fn) {
  char words[64];
  lab->ended = false;
  pid_t child = child_begin();
  if (child < 0) return fork_failed();
  if (child == 0) {
    lab->rc = fn(lab);
    snprintf(lab->said, sizeof lab->said, "%s", zke_errmsg());
    lab->ended = true;
    child_end();
  }
  int status = child_wait(child);
  if (!lab->ended)
    return zke_fail(ZKE_SYSTEMERROR, "the laboratory, or setup: %s",
                    status_words(status, words, sizeof words));
  return lab->rc == ZKE_OK ? ZKE_OK : zke_fail(lab->rc, "%s", lab->said);
}

/* A sanitizer's report is worth reading once, not for each schedule tried while
 * the finding is shortened. */
static void be_quiet(void) {
  if (!freopen("/dev/null", "w", stderr)) return;
}

/* The schedule has ended its process: a finding, and a line of the picture. */
static void tell_death(zke_lab *lab, const char *how) {
  world_death_words(lab, how, lab->why, sizeof lab->why);
  if (!lab->lines || lab->line_count == LAB_LINES) return;
  drawing_line *line = &lab->lines[lab->line_count++];
  *line = (drawing_line){.lane = lab->doing, .kind = 'f', .step = lab->length};
  if (lab->line_count > 1) line->now = line[-1].now;
  snprintf(line->text, sizeof line->text, "%.*s", LAB_LINE - 1, lab->why);
}

bool keep_try(zke_lab *lab, keep_try_fn fn, void *arg) {
  char words[64];
  lab->ended = lab->tried = false;
  lab->doing = -1;
  pid_t child = child_begin();
  if (child < 0) {
    fork_failed();
    return false;
  }
  if (child == 0) {
    if (lab->known) be_quiet();
    lab->tried = fn(lab, arg);
    lab->ended = true;
    child_end();
  }
  int status = child_wait(child);
  if (lab->ended) return lab->tried;
  tell_death(lab, status_words(status, words, sizeof words));
  return true;
}

/* ---- functions that only the arena needs ---- */

bool keep_begin(zke_lab *lab) {
  (void)lab;
  return true;
}

void keep_end(zke_lab *lab) { (void)lab; }

int keep_sqlite(void) { return ZKE_OK; }

/* An address that no program uses. */
char *arena_base = (char *)(UINTPTR_MAX - ARENA_BYTES);
int arena_current = ARENA_OUTSIDE;

void *arena_get(int region, size_t size) {
  (void)region;
  return calloc(1, size);
}

void arena_put(void *block) { free(block); }

char *arena_stack(int process) {
  (void)process;
  return NULL;
}

void arena_use_sqlite(void) {}

/* Worlds are not compared. */
void statics_check(zke_lab *lab) { (void)lab; }

bool picture_take(picture *p, char *const stacks[ARENA_MOST], bool first) {
  (void)p, (void)stacks, (void)first;
  return false;
}

void picture_put(const picture *p, const picture *first) {
  (void)p, (void)first;
}

void picture_free(picture *p) { (void)p; }

/* Worlds are never equal. */
uint64_t state_hash(zke_lab *lab) {
  (void)lab;
  return 0;
}

bool state_begin(void) { return true; }

/* Left to a sanitizer or valgrind. */
size_t state_leaked(zke_lab *lab, int process, size_t *bytes_out) {
  (void)lab, (void)process, (void)bytes_out;
  return 0;
}
