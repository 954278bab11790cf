/* process.c - other processes: bench --role NAME PARENT CPU ARGUMENT...
 *
 * Each writes 8-byte words to its standard output, 0 when it is ready or about
 * to sleep, and reads commands of one byte.  It dies with its parent.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ARGUMENTS = 16 };

/* ---- in the process itself ---- */

void say(int64_t word) {
  if (write(STDOUT_FILENO, &word, sizeof word) != sizeof word) exit(1);
}

void await_bytes(void *bytes, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = read(STDIN_FILENO, (char *)bytes + got, size - got);
    if (n <= 0) exit(1);
    got += (size_t)n;
  }
}

char await_command(void) {
  char byte;
  await_bytes(&byte, 1);
  return byte;
}

int role_main(int argc, char **argv) {
  static const struct {
    const char *name;
    role_fn run;
  } roles[] = {{"contend", role_contend}, {"watch", role_watch},
               {"session", role_session}, {"enter", role_enter},
               {"load", role_load},       {"write", role_write},
               {"queue", role_queue},     {"crowd", role_crowd},
               {"line", role_line},       {"take", role_take},
               {"await", role_await},     {"host", role_host}};
  if (argc < 5) return 1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != (pid_t)atol(argv[3])) return 1; /* it died before that */
  pin(atoi(argv[4]));
  for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
    if (strcmp(argv[2], roles[i].name) != 0) continue;
    roles[i].run(argv + 5);
    return 0;
  }
  return 1;
}

/* ---- in the parent ---- */

worker worker_run(char **argv) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
    die("pipe: %s", strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  worker w = {.in = in[1], .out = out[0]};
  int rc = posix_spawnp(&w.pid, argv[0], &actions, NULL, argv, environ);
  if (rc) die("cannot start %s: %s", argv[0], strerror(rc));
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  return w;
}

worker worker_start(const char *role, int cpu, ...) {
  char us[24], where[24];
  const char *argument;
  char *argv[ARGUMENTS] = {strdup("/proc/self/exe"), strdup("--role"),
                           strdup(role), us, where};
  int count = 5;
  va_list ap;
  snprintf(us, sizeof us, "%ld", (long)getpid());
  snprintf(where, sizeof where, "%d", cpu);
  va_start(ap, cpu);
  while ((argument = va_arg(ap, const char *)) != NULL) {
    if (count == ARGUMENTS - 1) die("too many arguments");
    argv[count++] = strdup(argument);
  }
  va_end(ap);
  worker w = worker_run(argv);
  for (int i = 0; i < count; i++) {
    if (i != 3 && i != 4) free(argv[i]);
  }
  return w;
}

void worker_tell(worker *w, const void *bytes, size_t size) {
  if (write(w->in, bytes, size) != (ssize_t)size) {
    die("a process does not listen");
  }
}

void worker_go(worker *w, char command) { worker_tell(w, &command, 1); }

void worker_words(worker *w, int64_t *words, int64_t count) {
  size_t size = (size_t)count * sizeof *words;
  for (size_t got = 0; got < size;) {
    ssize_t n = read(w->out, (char *)words + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) die("a process ended");
    got += (size_t)n;
  }
}

int64_t worker_word(worker *w) {
  int64_t word;
  worker_words(w, &word, 1);
  return word;
}

void worker_ready(worker *w) {
  if (worker_word(w) != 0) die("a process is out of step");
}

int worker_first(worker *w, int count) {
  struct pollfd *fds = allocate((size_t)count * sizeof *fds);
  int first = -1;
  for (int i = 0; i < count; i++) {
    fds[i] = (struct pollfd){.fd = w[i].out, .events = POLLIN};
  }
  while (poll(fds, (nfds_t)count, -1) < 0 && errno == EINTR) {
  }
  for (int i = 0; i < count && first < 0; i++) {
    if (fds[i].revents) first = i;
  }
  free(fds);
  return first;
}

void worker_end(worker *w) {
  close(w->in);
  close(w->out);
  waitpid(w->pid, NULL, 0);
  w->pid = 0;
}

void worker_kill(worker *w) {
  kill(w->pid, SIGKILL);
  worker_end(w);
}

/* ---- its cost, with threads and children ---- */

static double cpu_of_thread(const char *directory) {
  char path[400], line[100] = "";
  snprintf(path, sizeof path, "%s/schedstat", directory);
  FILE *f = fopen(path, "r");
  if (!f || !fgets(line, sizeof line, f)) die("cannot read %s", path);
  fclose(f);
  return strtod(line, NULL);
}

static double sleeps_of_thread(const char *directory) {
  char path[400];
  snprintf(path, sizeof path, "%s/status", directory);
  return atof(proc_value(path, "voluntary_ctxt_switches"));
}

static double of_process(long pid, double (*value)(const char *));

/* The children that a thread has started, such as zkembed's coprocess in
 * Python. */
static double of_children(const char *thread, double (*value)(const char *)) {
  char path[400];
  double sum = 0;
  long pid;
  snprintf(path, sizeof path, "%s/children", thread);
  FILE *f = fopen(path, "r");
  while (f && fscanf(f, "%ld", &pid) == 1) sum += of_process(pid, value);
  if (f) fclose(f);
  return sum;
}

static double of_process(long pid, double (*value)(const char *)) {
  char tasks[64], path[330];
  double sum = 0;
  snprintf(tasks, sizeof tasks, "/proc/%ld/task", pid);
  DIR *d = opendir(tasks);
  if (!d) die("cannot read %s", tasks);
  for (const struct dirent *e; (e = readdir(d)) != NULL;) {
    if (e->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", tasks, e->d_name);
    sum += value(path) + of_children(path, value);
  }
  closedir(d);
  return sum;
}

double worker_cpu_ns(const worker *w) {
  return of_process(w->pid, cpu_of_thread);
}

double worker_sleeps(const worker *w) {
  return of_process(w->pid, sleeps_of_thread);
}
