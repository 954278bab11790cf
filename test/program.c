/* program.c - see program.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "program.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void give_up(const char *what) {
  perror(what);
  exit(2);
}

long program_setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && text[0] ? strtol(text, NULL, 0) : otherwise;
}

unsigned program_seed(void) {
  unsigned seed = (unsigned)program_setting("SEED", 0);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  if (!seed) seed = (unsigned)(t.tv_nsec / 1000 % 1000000) + 1;
  printf("SEED=%u\n", seed);
  if (fflush(stdout) != 0) give_up("standard output");
  return seed;
}

int64_t program_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void *program_share(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) give_up("mmap");
  return at;
}

void program_directory(char *out, size_t size, const char *name,
                       const char *disk, bool in_memory) {
  bool memory = in_memory && access("/dev/shm", W_OK) == 0;
  snprintf(out, size, "%s/%s-XXXXXX", memory ? "/dev/shm" : disk, name);
  if (!mkdtemp(out)) give_up(out);
}

/* Called for the deepest entries first. */
static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

int program_remove(const char *directory) {
  enum { AT_ONCE = 16 }; /* descriptors */
  return nftw(directory, remove_entry, AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

void program_clean_up(const char *directory, bool good) {
  if (!good)
    printf("kept: %s\n", directory);
  else if (program_remove(directory) != 0)
    printf("not removed: %s\n", directory);
}

pid_t program_fork(void) {
  fflush(stdout); /* or the child prints it too */
  pid_t pid = fork();
  if (pid < 0) give_up("fork");
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return pid;
}

bool program_await(pid_t child, int64_t until, int *status) {
  for (;;) {
    pid_t ended = waitpid(child, status, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) return true;
    if (program_ms() > until) return false;
    poll(NULL, 0, 5);
  }
}

void program_kill(pid_t child) {
  kill(child, SIGKILL);
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}
