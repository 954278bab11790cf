/* program.c - clients' programs: started for each schedule, and killed
 *
 * A program is started for each schedule, unless it says "warm" at its control
 * port when it is started for the first time: then it stays, and for each
 * "begin" that it reads it forks a process and writes back its number.
 * zkelab.py does so, since starting Python takes longer than most schedules.
 * Either way a process has nothing of the previous schedule.
 *
 * A process leads its own process group, so that its children are killed with
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "labserve.h"

/* The directory of zkelab.py: that of this program, or share/zkembed next to
 * it. */
static void find_modules(char *out, size_t size) {
  char file[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", out, size - 1);
  out[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(out, '/');
  if (!slash) return;
  *slash = '\0';
  snprintf(file, sizeof file, "%s/zkelab.py", out);
  if (access(file, R_OK) == 0) return;
  size_t at = strlen(out);
  snprintf(out + at, size - at, "/../share/zkembed");
}

/* In the child: set the client's environment, and run the command. */
static void become(const program *g) {
  char modules[PATH_MAX / 2], path[PATH_MAX];
  const char *given = getenv("PYTHONPATH");
  if (!given) given = "";
  find_modules(modules, sizeof modules);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("ZKE_LAB_NAME", g->names, 1);
  setenv("ZKE_LAB_HOSTS", g->hosts, 1);
  setenv("ZKE_LAB_CONTROL", g->controls, 1);
  snprintf(path, sizeof path, "%s%s%s", modules, *given ? ":" : "", given);
  setenv("PYTHONPATH", path, 1);
  setenv("PYTHONHASHSEED", "0", 1); /* sets in the same order each time */
  if (!g->shows) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  execvp(g->command[0], g->command);
  _exit(127);
}

/* Starts the command; 0: that failed. */
static pid_t start(const program *g) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) become(g);
  if (pid > 0) setpgid(pid, pid);
  return pid > 0 ? pid : 0;
}

static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

/* ------------------------------------------------------------------------
 * One that forks
 * --------------------------------------------------------------------- */

/* Reads a line from it, without its end; false if it is gone. */
static bool keeper_line(int fd, char *line, size_t size) {
  size_t n = 0;
  for (;;) {
    ssize_t got = recv(fd, line + n, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || n + 1 == size) return false;
    if (line[n] == '\n') break;
    n++;
  }
  line[n] = '\0';
  return true;
}

enum { FIRST_MS = 60 * 1000 };

/* Has it said "warm", as its first line?  Waits for its first action: that,
 * something else, or its end.  If it does nothing for too long, it is started
 * for each schedule, which will find that it waits. */
static bool is_warm(program *g, int pidfd, int hosts, int lines) {
  struct pollfd fds[] = {
      {hosts, POLLIN, 0}, {lines, POLLIN, 0}, {pidfd, POLLIN, 0}};
  char line[16];
  while (poll(fds, 3, FIRST_MS) < 0 && errno == EINTR) continue;
  if (!(fds[1].revents & POLLIN)) return false;
  g->keeper = accept4(lines, NULL, NULL, SOCK_CLOEXEC);
  if (g->keeper < 0) return false;
  if (keeper_line(g->keeper, line, sizeof line) && strcmp(line, "warm") == 0)
    return true;
  close(g->keeper);
  g->keeper = -1;
  return false;
}

/* The message for a program that has ended before it did anything. */
static const char *try_failed(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return "cannot be started";
  return "has ended before it connected; --show shows what it prints";
}

const char *program_try(program *g, int hosts, int lines) {
  int status = 0;
  g->keeper = -1;
  pid_t pid = start(g);
  int pidfd = pid ? pidfd_of(pid) : -1;
  if (pidfd < 0) return "cannot be started";
  bool warm = is_warm(g, pidfd, hosts, lines);
  close(pidfd);
  g->keeper_pid = warm ? pid : 0;
  if (warm) return NULL;
  bool ended = waitpid(pid, &status, WNOHANG) == pid;
  kill(-pid, SIGKILL);
  if (!ended) waitpid(pid, NULL, 0);
  return ended ? try_failed(status) : NULL;
}

void program_leave(program *g) {
  if (!g->keeper_pid) return;
  close(g->keeper);
  kill(g->keeper_pid, SIGKILL);
  waitpid(g->keeper_pid, NULL, 0);
  g->keeper_pid = 0;
}

/* Makes it fork; the number of the new process, or 0. */
static pid_t fork_off(const program *g) {
  char line[16];
  if (send(g->keeper, "begin\n", 6, MSG_NOSIGNAL) != 6) return 0;
  if (!keeper_line(g->keeper, line, sizeof line)) return 0;
  return (pid_t)strtol(line, NULL, 10);
}

/* ------------------------------------------------------------------------
 * A schedule's process
 * --------------------------------------------------------------------- */

/* A process that has already ended has no descriptor, which is as good as one
 * that reports its end. */
bool program_begin(program *g) {
  g->pid = g->keeper_pid ? fork_off(g) : start(g);
  if (!g->pid) return false;
  g->pidfd = pidfd_of(g->pid);
  return true;
}

/* How a child of ours has ended; it stays a zombie. */
static int how_ended(pid_t pid) {
  siginfo_t info = {0};
  if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0)
    return 0;
  return info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
}

bool program_ended(const program *g, int *status_out) {
  struct pollfd end = {g->pidfd, POLLIN, 0};
  *status_out = 0;
  if (g->pidfd >= 0 && poll(&end, 1, 0) != 1) return false;
  if (!g->keeper_pid) *status_out = how_ended(g->pid);
  return true;
}

void program_end(program *g) {
  struct pollfd end = {g->pidfd, POLLIN, 0};
  if (!g->pid) return;
  kill(-g->pid, SIGKILL);
  if (g->pidfd >= 0) {
    while (poll(&end, 1, -1) < 0 && errno == EINTR) continue;
    close(g->pidfd);
  }
  if (!g->keeper_pid) waitpid(g->pid, NULL, 0);
  g->pid = 0;
}
