/* calibrate_sides.c - plays a script on either kernel; see calibrate.h */
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/sim/calibrate.h"
#include "test/sim/os.h"
#include "test/sim/plan.h"
#include "test/sim/vfs.h"
#include "test/sim/wait.h"

/* How long a text of the real side is waited for; the simulation's time between
 * two calls, in which all that can happen does; its limit of processor time for
 * a script. */
enum { PATIENCE_MS = 10000, BETWEEN_MS = 1000, LONGEST_S = 5 };

/* sched.c swaps the engine's variables; this program has no engine. */
__attribute__((section("sim_thread"), used)) static char thread_variable;
__attribute__((section("sim_process"), used)) static char process_variable;

/* ---- a process of a script ---- */

/* Paths are made as SQLite makes them, since the VFS reads beyond their
 * ends. */
void cal_begin(cal_actor *me, int process, bool real, const char *root) {
  static zke_os own;
  char path[3][256];
  *me = (cal_actor){.process = process, .real = real, .root = root};
  own = (zke_os)ZKE_INIT(zke_os);
  zke_os_fill(&own);
  me->os = real ? &own : &os_simulated;
  me->vfs = sqlite3_vfs_find(real ? "unix" : vfs_name);
  for (int i = 0; i < CAL_FDS; i++) me->fd[i] = -1;
  snprintf(path[0], sizeof *path, "%s/v", root);
  snprintf(path[1], sizeof *path, "%s/v-journal", root);
  snprintf(path[2], sizeof *path, "%s/v-wal", root);
  me->path[0] = sqlite3_create_filename(path[0], path[1], path[2], 0, NULL);
  if (!me->path[0]) abort();
  me->path[1] = sqlite3_filename_journal(me->path[0]);
  me->path[2] = sqlite3_filename_wal(me->path[0]);
}

/* May the call be made on its first argument?  A process that has not begun has
 * nothing open. */
static bool applies(const cal_actor *me, const cal_call *c) {
  const char *on = c->kind->on;
  if (!on || !me) return !on;
  int64_t n = c->arg[0]->value;
  bool handle = c->kind->args[0] == 'h';
  bool open = handle ? me->handle[n].f != NULL : me->fd[n] >= 0;
  if (*on == '-') return !open;
  return open && (handle || strchr(on, me->kind[n]));
}

/* A call that does not apply gives no text. */
void cal_act(cal_actor *me, const cal_call *c, char *text) {
  me->text = text;
  *text = '\0';
  if (applies(me, c)) c->kind->act(me, c->arg);
}

/* A blank lies between two texts of a call. */
void cal_say(cal_actor *me, const char *format, ...) {
  size_t len = strlen(me->text);
  va_list ap;
  if (len && len < CAL_TEXT - 2) me->text[len++] = ' ';
  va_start(ap, format);
  vsnprintf(me->text + len, CAL_TEXT - len, format, ap);
  va_end(ap);
}

/* In the words of the C library, which both sides use. */
void cal_say_result(cal_actor *me, int64_t result) {
  if (result >= 0)
    cal_say(me, "%lld", (long long)result);
  else
    cal_say(me, "%s", strerror((int)-result));
}

/* Zeros are dots. */
void cal_say_bytes(cal_actor *me, const unsigned char *data, int64_t size) {
  for (int64_t at = 0, end; at < size; at = end) {
    for (end = at + 1; end < size && data[end] == data[at];) end++;
    cal_say(me, "%lld%c", (long long)(end - at), data[at] ? data[at] : '.');
  }
}

/* One letter, which depends on the process and its number of writes. */
void cal_fill(cal_actor *me, unsigned char *data, int64_t size) {
  memset(data, 'A' + (me->process * 19 + me->written++) % 58, (size_t)size);
}

/* ---- what both sides have ---- */

/* The current script, and its latest call. */
static cal_script *script;
static cal_answer *answers;
static int current;

/* A process that waits in a call can make no other. */
static int busy[CAL_PROCESSES]; /* the call, or -1 */

/* Forget the previous script's answers. */
static void play_begin(cal_script *s, cal_answer *out) {
  script = s;
  answers = out;
  for (int i = 0; i < CAL_PROCESSES; i++) busy[i] = -1;
  for (int i = 0; i < s->count; i++) {
    answers[i].text[0] = '\0';
    answers[i].after = -1;
  }
}

/* The call has given its text. */
static void note_answer(int call) {
  busy[script->call[call].process] = -1;
  answers[call].after = current;
}

/* Can the process make the current call?  If not, the call is over. */
static bool may_call(const cal_call *c) {
  if (busy[c->process] < 0) {
    busy[c->process] = current;
    return true;
  }
  snprintf(answers[current].text, CAL_TEXT, "(it waits)");
  answers[current].after = current;
  return false;
}

/* The process is dead, and its pending call never returns. */
static void note_death(const cal_call *c) {
  busy[c->process] = -1;
  snprintf(answers[current].text, CAL_TEXT, "dead");
  answers[current].after = current;
}

/* ---- the simulated kernel ---- */

static struct pollfd bell; /* waited on: a process has a call to make */
static bool told[CAL_PROCESSES];
static int64_t next_call_at;
static cal_actor *actors[CAL_PROCESSES];
static bool makes_up; /* the calls */

/* A process, which makes a call when told to. */
static void simulated_process(int slot) {
  cal_actor *me = sim_zero(sizeof *me);
  cal_begin(me, slot, false, "/sim");
  actors[slot] = me;
  for (;;) {
    sched_wait_until(SIM_NEVER, &bell, 1);
    told[slot] = false;
    int call = busy[slot];
    cal_act(me, &script->call[call], answers[call].text);
    note_answer(call);
  }
}

/* Can the call be made now? */
static bool simulated_can(const cal_call *c) {
  return busy[c->process] < 0 && applies(actors[c->process], c);
}

/* A process begins when it gets its first call, or the first one after its
 * death. */
static void simulated_call(void) {
  cal_call *c = &script->call[current];
  if (makes_up) cal_make(script, c, simulated_can);
  if (!c->kind->act) {
    sched_kill(c->process);
    note_death(c);
  } else if (may_call(c)) {
    if (sched_is_free(c->process)) sched_spawn(c->process, simulated_process);
    told[c->process] = true;
  }
}

/* After a call everything that could happen has happened: make the next one. */
static void simulated_tick(void) {
  if (sim.now < next_call_at) return;
  next_call_at = sim.now + BETWEEN_MS * SIM_MS;
  if (++current == script->count) _exit(0);
  simulated_call();
}

/* For the scheduler: when the next call is due, if nothing happens before. */
static int64_t simulated_next(void) { return next_call_at; }

/* For the scheduler: the last call ends the play, not the last process. */
static bool simulated_over(void) { return false; }

/* For the scheduler: does it have a call to make, or is a polled descriptor
 * ready? */
static bool simulated_ready(sched_process *p, struct pollfd *fds,
                            unsigned count) {
  if (fds == &bell) return told[p->slot];
  return wait_ready(p, fds, count);
}

/* For the scheduler: when is the next timer among the polled descriptors? */
static int64_t simulated_due(sched_process *p, struct pollfd *fds,
                             unsigned count) {
  return fds == &bell ? SIM_NEVER : wait_due(p, fds, count);
}

/* For the scheduler: a dead process gets no more calls. */
static void simulated_death(int slot) {
  told[slot] = false;
  actors[slot] = NULL;
}

/* Remove what it had, piece by piece. */
static bool simulated_reap(sched_process *p) {
  return file_reap_one(p->files) || vfs_reap_one(p->files);
}

/* For the scheduler: no two processes have the same pid. */
static int simulated_pid(int slot) {
  static int last = 1000;
  (void)slot;
  return ++last;
}

/* The simulation has found a mistake of its caller, or has one itself. */
void sim_report(sim_end end, const char *kind, const char *text) {
  (void)end, (void)kind;
  snprintf(answers[current].text, CAL_TEXT, "%s", text);
  answers[current].after = current;
  _exit(1);
}

/* The child that plays the simulation. */
static void simulate(void) {
  const sched_hooks hooks = {.died = simulated_death,
                             .reap = simulated_reap,
                             .pid = simulated_pid,
                             .begin = file_table_new,
                             .ready = simulated_ready,
                             .due = simulated_due,
                             .tick = simulated_tick,
                             .next = simulated_next,
                             .over = simulated_over};
  sim_begin(script->seed);
  the_plan.k.switches = 50;
  the_plan.k.steps = SIM_NEVER;
  current = -1;
  sched_begin(&hooks);
  disk_begin("/sim");
  sched_run(SIM_NEVER);
  sim_bug("the simulation stands still");
}

/* In a child, since a process can play only one simulation. */
void cal_play_simulated(cal_script *s, bool begins, cal_answer *out) {
  makes_up = begins;
  play_begin(s, out);
  pid_t pid = fork();
  if (pid == 0) {
    const struct rlimit longest = {LONGEST_S, LONGEST_S};
    setrlimit(RLIMIT_CPU, &longest);
    simulate();
  }
  int status = 0;
  waitpid(pid, &status, 0);
  while (begins && !s->call[s->count - 1].kind) s->count--;
  for (int i = 0; i < s->count && WIFSIGNALED(status); i++) {
    if (out[i].after >= 0) continue;
    snprintf(out[i].text, CAL_TEXT, "signal %d", WTERMSIG(status));
    out[i].after = i;
    break;
  }
}

/* ---- the real kernel ---- */

typedef struct worker {
  pid_t pid; /* 0: not begun */
  int fd;    /* of the socket between us and it */
} worker;

static worker workers[CAL_PROCESSES];
static const char *real_root;

/* A worker, which makes a call when told to. */
static void work(int process, int fd) {
  cal_actor me;
  int call;
  umask(022);
  cal_begin(&me, process, true, real_root);
  while (read(fd, &call, sizeof call) == sizeof call) {
    cal_act(&me, &script->call[call], answers[call].text);
    if (write(fd, &call, sizeof call) != sizeof call) break;
  }
  _exit(0);
}

/* The worker keeps no descriptor except its socket and the program's own. */
static void worker_begin(int process) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds)) abort();
  worker *w = &workers[process];
  w->fd = fds[0];
  w->pid = fork();
  if (w->pid < 0) abort();
  if (w->pid == 0) {
    for (int i = 0; i < CAL_PROCESSES; i++)
      if (workers[i].fd) close(workers[i].fd);
    work(process, fds[1]);
  }
  close(fds[1]);
}

/* When this returns, the kernel has closed all the worker's descriptors. */
static void worker_kill(int process) {
  worker *w = &workers[process];
  if (!w->pid) return;
  kill(w->pid, SIGKILL);
  waitpid(w->pid, NULL, 0);
  close(w->fd);
  *w = (worker){.pid = 0};
}

/* Read the text of a call if it comes in time, or the news that its process has
 * ended by itself. */
static void take_answer(int call, int wait_ms) {
  int process = script->call[call].process, told_call;
  struct pollfd p = {workers[process].fd, POLLIN, 0};
  if (poll(&p, 1, wait_ms) <= 0) return;
  if (read(p.fd, &told_call, sizeof told_call) != sizeof told_call)
    snprintf(answers[call].text, CAL_TEXT, "its process has ended");
  note_answer(call);
}

/* Like simulated_call(). */
static void real_call(const cal_call *c) {
  if (!c->kind->act) {
    worker_kill(c->process);
    note_death(c);
    return;
  }
  if (!may_call(c)) return;
  if (!workers[c->process].pid) worker_begin(c->process);
  if (write(workers[c->process].fd, &current, sizeof current) < 0)
    snprintf(answers[current].text, CAL_TEXT, "its process has ended");
}

/* For nftw(): directories after their contents. */
static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

/* Waits for the texts that the simulation has given by now.  No others may
 * come. */
void cal_play_real(cal_script *s, const char *root, const cal_answer *simulated,
                   cal_answer *out) {
  play_begin(s, out);
  real_root = root;
  if (mkdir(root, 0755)) {
    perror(root);
    exit(2);
  }
  for (current = 0; current < s->count; current++) {
    real_call(&s->call[current]);
    for (int i = 0; i < CAL_PROCESSES; i++) {
      if (busy[i] < 0) continue;
      bool comes =
          simulated[busy[i]].after >= 0 && simulated[busy[i]].after <= current;
      take_answer(busy[i], comes ? PATIENCE_MS : 0);
    }
  }
  for (int i = 0; i < CAL_PROCESSES; i++) worker_kill(i);
  nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
