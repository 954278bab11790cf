/* quiet.c - does a program only wait to be told something?
 *
 * To know this without waiting for luck, its threads are checked twice.  A
 * thread that sleeps both times and was not switched to in between has slept
 * from its first check to its second.  All these spans include the time between
 * the two rounds: then all slept, and no thread can have woken another.  Now
 * only the system can wake one: by its own timer, or by a message that is under
 * way.
 *
 * So between the two rounds all messages must arrive.  What is sent on this
 * host goes through a queue of the sending processor, first in, first out.
 * Everything here runs on one processor (quiet_begin()), so when a message to
 * ourselves has arrived, all earlier ones have.  A message can make the system
 * send another: the three at a connection's start are the longest such
 * sequence.  So this is done three times.
 *
 * If all sleep in the second round, too, no message has woken a thread: there
 * was none, or none that a thread waits for. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "labserve.h"

/* ------------------------------------------------------------------------
 * Threads
 * --------------------------------------------------------------------- */

enum { TASKS_MOST = 256, PATH_BYTES = 96, TEXT_BYTES = 4096 };

/* A thread, and how often the system has switched away from it. */
typedef struct task {
  pid_t pid, tid;
  uint64_t switches;
} task;

typedef struct tasks {
  task at[TASKS_MOST];
  int count;
  bool awake; /* a thread is not asleep; or there are too many */
} tasks;

/* Reads a small file of /proc; false if its process is gone. */
static bool read_text(const char *path, char text[TEXT_BYTES]) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, TEXT_BYTES - 1);
  close(fd);
  if (n < 0) return false;
  text[n] = '\0';
  return true;
}

/* The number after a word at the beginning of a line. */
static uint64_t number_of(const char *text, const char *key) {
  const char *at = strstr(text, key);
  return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* How often was it switched away from?  False if it does not sleep.  A thread
 * that has ended counts as asleep. */
static bool task_sleeps(pid_t pid, pid_t tid, uint64_t *out) {
  char path[PATH_BYTES], text[TEXT_BYTES];
  *out = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
  if (!read_text(path, text)) return true;
  const char *state = strstr(text, "\nState:\t");
  char letter = 'R';
  if (state) letter = state[strlen("\nState:\t")];
  *out = number_of(text, "\nvoluntary_ctxt_switches:") +
         number_of(text, "\nnonvoluntary_ctxt_switches:");
  return letter == 'S' || letter == 'Z' || letter == 'X';
}

static void tasks_of(tasks *all, pid_t pid);

/* The processes that a thread has forked. */
static void children_of(tasks *all, pid_t pid, pid_t tid) {
  char path[PATH_BYTES], text[TEXT_BYTES], *end;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
  if (!read_text(path, text)) return;
  for (char *at = text;; at = end) {
    long child = strtol(at, &end, 10);
    if (end == at) return;
    tasks_of(all, (pid_t)child);
  }
}

static void task_add(tasks *all, pid_t pid, pid_t tid) {
  uint64_t switches;
  bool sleeps = task_sleeps(pid, tid, &switches);
  if (!sleeps || all->count == TASKS_MOST) {
    all->awake = true;
    return;
  }
  all->at[all->count++] = (task){pid, tid, switches};
  children_of(all, pid, tid);
}

/* Adds a process's threads, and its children's, until one is awake. */
static void tasks_of(tasks *all, pid_t pid) {
  char path[PATH_BYTES];
  struct dirent *entry;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *dir = opendir(path);
  if (!dir) return;
  while (!all->awake && (entry = readdir(dir))) {
    long tid = strtol(entry->d_name, NULL, 10);
    if (tid > 0) task_add(all, pid, (pid_t)tid);
  }
  closedir(dir);
}

/* ------------------------------------------------------------------------
 * Messages
 * --------------------------------------------------------------------- */

static int echo = -1; /* a UDP socket that is connected to itself */

bool quiet_begin(void) {
  cpu_set_t one;
  struct sockaddr_in in = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof in;
  int cpu = sched_getcpu();
  if (cpu < 0) return false;
  CPU_ZERO(&one);
  CPU_SET((size_t)cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
  echo = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return echo >= 0 && bind(echo, (struct sockaddr *)&in, len) == 0 &&
         getsockname(echo, (struct sockaddr *)&in, &len) == 0 &&
         connect(echo, (struct sockaddr *)&in, len) == 0;
}

/* Returns when all that was sent has arrived. */
static void let_arrive(void) {
  char byte = 0;
  while (send(echo, &byte, 1, 0) < 0 && errno == EINTR) continue;
  while (recv(echo, &byte, 1, 0) < 0 && errno == EINTR) continue;
}

/* The list of threads is read in both rounds, since a thread made during the
 * first may be missing in that. */
bool quiet_tasks(pid_t root) {
  enum { MESSAGES_IN_A_ROW = 3 };
  tasks first = {.count = 0}, second = {.count = 0};
  tasks_of(&first, root);
  if (first.awake) return false;
  for (int i = 0; i < MESSAGES_IN_A_ROW; i++) let_arrive();
  tasks_of(&second, root);
  if (second.awake || first.count != second.count) return false;
  return memcmp(first.at, second.at,
                sizeof first.at[0] * (size_t)first.count) == 0;
}
