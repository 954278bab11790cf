/* process.c - other processes, as far as /proc shows them
 *
 * This file answers two questions:
 *
 * - Which processes exist, and what are their parents?  guard.c asks, to signal
 *   the descendants of a command.
 *
 * - Which processes keep a session alive?  Commands that look ask (holders_…).
 *   A session's life is a lock on one byte, at the offset of the session's
 *   number, in a file of the database's directory.  The lock belongs to an open
 *   file description, and lasts until the last process with a descriptor of it
 *   has ended or closed it.  /proc/PID/fdinfo lists the locks of each
 *   description.
 *   guard.c asks which processes have the pipe that keeps what it holds.
 *
 * All answers describe a past moment: processes come and go while /proc is
 * read, and numbers are reused.  So a process is identified by its number and
 * its start time together.
 */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * One process
 *
 * Its line of /proc/PID/stat, and a signal that reaches it and no other.
 * --------------------------------------------------------------------- */

/* Reads the start of a file of /proc/PID as text; returns its length, 0 if the
 * process is gone or hides the file. */
static size_t proc_text(pid_t pid, const char *what, char *text, size_t size) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/%s", (int)pid, what);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  ssize_t len = fd < 0 ? 0 : read(fd, text, size - 1);
  if (fd >= 0) close(fd);
  if (len < 0) len = 0;
  text[len] = '\0';
  return (size_t)len;
}

/* Takes one field of /proc/PID/stat, if it is wanted. */
static void process_field(process *p, int field, const char *at) {
  enum { STATE = 3, PARENT = 4, GROUP = 5, THREADS = 20, START = 22 };
  if (field == STATE) p->state = *at;
  if (field == PARENT) p->parent = (pid_t)strtol(at, NULL, 10);
  if (field == GROUP) p->group = (pid_t)strtol(at, NULL, 10);
  if (field == THREADS) p->threads = (int)strtol(at, NULL, 10);
  if (field == START) p->start = strtoull(at, NULL, 10);
}

/* Reads /proc/PID/stat; fields are numbered as in proc(5).  The second is the
 * program's name, which may have blanks and parentheses in it: so the later
 * fields are counted from the last parenthesis.  The state is that of the first
 * thread, which may have ended before the others. */
bool process_read(pid_t pid, process *p) {
  enum { NAME = 2, LAST = 22 };
  char text[1024];
  if (!proc_text(pid, "stat", text, sizeof text)) return false;
  char *at = strrchr(text, ')'), *name = strchr(text, '(');
  *p = (process){.pid = pid};
  if (at && name)
    snprintf(p->name, sizeof p->name, "%.*s", (int)(at - name - 1), name + 1);
  for (int field = NAME; at && field < LAST; field++) {
    at = strchr(at, ' ');
    if (at) process_field(p, field + 1, ++at);
  }
  p->live = p->threads > 1 || (p->state != 'Z' && p->state != 'X');
  return at != NULL;
}

/* Old kernels have none, and a container may refuse the call. */
int process_open(pid_t pid) {
#ifdef SYS_pidfd_open
  return (int)syscall(SYS_pidfd_open, pid, 0);
#else
  errno = ENOSYS;
  return -1;
#endif
}

/* A pidfd always means one process.  The start time is compared after the pidfd
 * was opened: if it matches then, no other process can get the signal.  Without
 * a pidfd, in an old kernel, in a container that refuses the call, or for lack
 * of descriptors, a small gap is left. */
void process_signal(const process *p, int signal) {
  process now;
#ifdef SYS_pidfd_send_signal
  int fd = process_open(p->pid);
  if (fd >= 0) {
    if (process_read(p->pid, &now) && now.start == p->start)
      syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
    close(fd);
    return;
  }
  if (errno == ESRCH) return;
#endif
  if (!process_read(p->pid, &now) || now.start == p->start)
    kill(p->pid, signal);
}

/* ------------------------------------------------------------------------
 * All of them
 *
 * A list by number, made in one pass over /proc.
 * --------------------------------------------------------------------- */

/* Makes room for one more element: doubles the room whenever the count is a
 * power of two, so that no size has to be stored.  NULL without memory; then
 * data is unchanged. */
static void *room_for_one(void *data, size_t count, size_t size) {
  if (count & (count - 1)) return data;
  return realloc(data, (count ? 2 * count : 1) * size);
}

/* Appends without sorting; processes_find() needs them sorted. */
bool processes_add(processes *all, const process *p) {
  process *data = room_for_one(all->data, all->count, sizeof *p);
  if (!data) return false;
  all->data = data;
  data[all->count++] = *p;
  return true;
}

static int process_compare(const void *a, const void *b) {
  const process *p = a, *q = b;
  return (p->pid > q->pid) - (p->pid < q->pid);
}

/* A process that cannot be read has gone meanwhile, or is hidden from this
 * user. */
processes processes_all(void) {
  processes all = {NULL, 0};
  process p;
  struct dirent *entry;
  DIR *proc = opendir("/proc");
  while (proc && (entry = readdir(proc)) != NULL) {
    pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (pid > 0 && process_read(pid, &p) && !processes_add(&all, &p)) break;
  }
  if (proc) closedir(proc);
  if (all.count) qsort(all.data, all.count, sizeof p, process_compare);
  return all;
}

/* Binary search, since the list is sorted by number. */
process *processes_find(const processes *all, pid_t pid) {
  process wanted = {.pid = pid};
  if (!all->count) return NULL;
  return bsearch(&wanted, all->data, all->count, sizeof wanted,
                 process_compare);
}

/* ------------------------------------------------------------------------
 * Processes that keep a session alive
 *
 * Descriptors are compared by the locks in fdinfo.  A command looks at all
 * processes once, at the first question that needs it, and later answers use
 * that result.
 * --------------------------------------------------------------------- */

/* Is it a descriptor of a file with the lives?  /proc's path may belong to
 * another mount namespace, so this uses only its name: the file of that name in
 * our directory must be the same one. */
static bool is_live_file(const char *directory, const char *link) {
  char target[PATH_MAX], ours[PATH_MAX + 64];
  struct stat there, here;
  ssize_t len = readlink(link, target, sizeof target - 1);
  if (len <= 0) return false;
  target[len] = '\0';
  const char *name = strrchr(target, '/');
  if (!name || strncmp(name, "/live", 5) != 0) return false;
  snprintf(ours, sizeof ours, "%s%s", directory, name);
  return stat(link, &there) == 0 && stat(ours, &here) == 0 &&
         there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

/* A process's words with blanks between them, or its name if it shows none.
 * Cut words do not end in half a character. */
static void command_of(pid_t pid, char *text, size_t size) {
  size_t len = proc_text(pid, "cmdline", text, size);
  if (len == size - 1)
    while (len > 0 && (text[--len] & 0xc0) == 0x80) continue;
  text[len] = '\0';
  while (len > 0 && text[len - 1] == '\0') len--;
  for (size_t i = 0; i < len; i++)
    if (!text[i]) text[i] = ' ';
  if (!len) len = proc_text(pid, "comm", text, size);
  if (len > 0 && text[len - 1] == '\n') text[len - 1] = '\0';
}

/* Records that a process has a session's descriptor; with session 0, that it
 * was examined.  Without memory it is left out. */
static void holders_add(holders *h, int64_t session, pid_t pid) {
  holder *data = room_for_one(h->data, h->count, sizeof *data);
  if (!data) return;
  h->data = data;
  data += h->count++;
  *data = (holder){.session = session, .pid = pid};
  if (session) command_of(pid, data->command, sizeof data->command);
}

/* Does the process have that session's descriptor, as far as it was
 * examined? */
static bool holders_found(const holders *h, int64_t session, pid_t pid) {
  for (size_t i = 0; i < h->count; i++)
    if (h->data[i].pid == pid && h->data[i].session == session) return true;
  return false;
}

/* Records the lives in one descriptor.  fdinfo has a line for each lock: "lock:
 * 1: OFDLCK ADVISORY WRITE -1 08:01:12 FIRST LAST"; FIRST is the session. */
static void holders_of_descriptor(holders *h, pid_t pid, const char *fd) {
  char what[300], text[2048];
  snprintf(what, sizeof what, "fdinfo/%s", fd);
  proc_text(pid, what, text, sizeof text);
  for (const char *at = text; (at = strstr(at, "lock:")) != NULL; at++) {
    int before = 0;
    char *end;
    (void)sscanf(at, "lock: %*s OFDLCK %*s WRITE %*s %*s %n", &before);
    int64_t first = strtoll(at + before, &end, 10);
    if (before && end > at + before && !holders_found(h, first, pid))
      holders_add(h, first, pid);
  }
}

/* Records the sessions whose descriptors a process has, at the first
 * request. */
static void holders_look_at(holders *h, pid_t pid) {
  char name[400];
  struct dirent *e;
  if (holders_found(h, 0, pid)) return;
  holders_add(h, 0, pid);
  snprintf(name, sizeof name, "/proc/%d/fd", (int)pid);
  DIR *fds = h->directory ? opendir(name) : NULL;
  while (fds && (e = readdir(fds)) != NULL) {
    snprintf(name, sizeof name, "/proc/%d/fd/%s", (int)pid, e->d_name);
    if (is_live_file(h->directory, name))
      holders_of_descriptor(h, pid, e->d_name);
  }
  if (fds) closedir(fds);
}

/* The same for each visible process, once. */
static void holders_look_at_all(holders *h) {
  struct dirent *entry;
  DIR *proc = h->all ? NULL : opendir("/proc");
  while (proc && (entry = readdir(proc)) != NULL) {
    pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (pid > 0) holders_look_at(h, pid);
  }
  if (proc) closedir(proc);
  h->all = true;
}

/* Only records the directory of the files with the lives. */
holders holders_begin(const char *file) {
  holders h = {.directory = NULL};
  char *real = realpath(file, NULL);
  if (real && asprintf(&h.directory, "%s-zke", real) < 0) h.directory = NULL;
  free(real);
  return h;
}

void holders_free(holders *h) {
  free(h->directory);
  free(h->data);
}

/* Examines only that process, at most once. */
bool holders_have(holders *h, int64_t session, int64_t pid) {
  holders_look_at(h, (pid_t)pid);
  return holders_found(h, session, (pid_t)pid);
}

/* An ensemble has no directory, and a server's clients have light sessions. */
enum sight holders_sight(holders *h, const zke_session_info *s) {
  if (!h->directory || !s || s->carrier) return ELSEWHERE;
  return holders_have(h, s->id, s->pid) ? VISIBLE : ON_HOST;
}

/* A process in a list of those that keep something. */
static json_t *keeper_row(pid_t pid, const char *text) {
  return json_pack("{s:i,s:o}", "pid", (int)pid, "command", value_text(text));
}

/* The processes with a session's descriptor; null: none is visible.  The first
 * call examines all processes; later calls search the result. */
static json_t *holders_list(holders *h, int64_t session) {
  json_t *list = NULL;
  holders_look_at_all(h);
  for (size_t i = 0; i < h->count; i++) {
    const holder *one = &h->data[i];
    if (one->session != session) continue;
    if (!list) list = json_array();
    json_array_append_new(list, keeper_row(one->pid, one->command));
  }
  return list ? list : json_null();
}

/* The session whose descriptor keeps this one alive: a light session lives by
 * its carrier's. */
int64_t holders_life(const zke_session_info *s) {
  return s->carrier ? s->carrier : s->id;
}

/* JSON null if the process of the session's row has its descriptor; else the
 * list of those that have it. */
json_t *holders_instead(holders *h, int64_t session, int64_t pid) {
  if (holders_have(h, session, pid)) return json_null();
  return holders_list(h, session);
}

/* Does the process have a descriptor with that text in /proc?  The files
 * themselves are not looked at, since one on a network may not answer. */
static bool has_descriptor(pid_t pid, const char *text) {
  char name[400], target[64];
  struct dirent *e;
  bool has = false;
  snprintf(name, sizeof name, "/proc/%d/fd", (int)pid);
  DIR *fds = opendir(name);
  while (fds && !has && (e = readdir(fds)) != NULL) {
    snprintf(name, sizeof name, "/proc/%d/fd/%s", (int)pid, e->d_name);
    ssize_t len = readlink(name, target, sizeof target - 1);
    target[len < 0 ? 0 : len] = '\0';
    has = strcmp(target, text) == 0;
  }
  if (fds) closedir(fds);
  return has;
}

/* /proc shows a pipe by its number: "pipe:[123]". */
json_t *holders_of_pipe(int fd) {
  char name[64], text[sizeof((holder *)0)->command];
  struct stat of = {0};
  json_t *list = json_array();
  processes all = processes_all();
  fstat(fd, &of);
  snprintf(name, sizeof name, "pipe:[%ju]", (uintmax_t)of.st_ino);
  for (size_t i = 0; i < all.count; i++) {
    pid_t pid = all.data[i].pid;
    if (pid == getpid() || !has_descriptor(pid, name)) continue;
    command_of(pid, text, sizeof text);
    json_array_append_new(list, keeper_row(pid, text));
  }
  free(all.data);
  return list;
}

/* Other users chose the words, so control characters are escaped. */
void holders_human(const json_t *list, FILE *out) {
  size_t i;
  json_t *one;
  if (json_array_size(list) == 0)
    fputs("processes that cannot be seen from here", out);
  json_array_foreach(list, i, one) {
    fputs(i ? ", " : "", out);
    output_visible(NULL, json_object_get(one, "command"), out);
    fprintf(out, " (pid %" JSON_INTEGER_FORMAT ")",
            json_integer_value(json_object_get(one, "pid")));
  }
}
