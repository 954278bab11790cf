/* guard.c - a command of the user's, run while something is held
 *
 * The child is started with the user's words as they are.  While it runs this
 * thread waits, dispatching, for three things: the child's end, the loss of
 * what is held, and a cancel.  Signals are passed on by the signals' thread.
 *
 *     RUNS --- the child has ended by itself --------------------> its code
 *      |  \--- ended by a signal, or --wait-all --- STAYS
 *      |          until all who keep it alive are gone ----------> its code
 *      | lost (--on-lost kill), in RUNS or STAYS
 *     ASKED    TERM and CONT to the child and its descendants
 *      |       when all have ended -------------------------------> LOST
 *      | --grace is over
 *     KILLED   KILL, again and again
 *      |       when all have ended -------------------------------> LOST
 *     LEFT     what cannot be killed (another user's, stuck in the kernel)
 *
 * WHO GETS A SIGNAL.  The child stays in our process group.  In a group of its
 * own it could not read from the terminal, ^Z would stop one of the two, and
 * whoever kills our group, as timeout(1) does, would miss it.
 *
 * - What a terminal sends (^C, ^\, a new size) the kernel gives to all of its
 *   foreground group, the command included: none of it is passed on.
 * - INT, TERM, HUP and QUIT that a process sends to us go on to all processes
 *   of the command in that group, so that a script's work ends with it.
 *   Strangers in the group, such as the script that runs us, are spared.
 * - Others, such as USR1, are for the child alone, which may expect them.
 *
 * WHEN A SIGNAL ENDS THE CHILD its work may go on: what ignores the signal, or
 * is in another group.  Nobody else may get in meanwhile.  The child and its
 * descendants have two descriptors of us: the session's keep-alive descriptor,
 * and the end of a pipe on which nobody writes.  Its other end tells us when
 * the last of them is gone.  They have high numbers, so that a script's own 3
 * to 9 do not replace them.
 *
 * WHEN WE ARE KILLED ourselves:
 *
 * - What is held stays held until the last process that has the keep-alive
 *   descriptor is gone, or has closed it.
 * - The child gets a signal: TERM, since with the descriptor there is time for
 *   it to clean up; KILL with --close, since without the descriptor the next
 *   holder is already on its way; none with --outlive.
 * When the child ends by itself, what is held is given up, whatever it has left
 * running: the session's end does not ask for descriptors.
 *
 * Who the descendants are is read from /proc.  Orphans become our children
 * (PR_SET_CHILD_SUBREAPER), so that they are found too; not where we had
 * children before we were executed: there a process whose parent ended before
 * the loss is missed.
 *
 * There is one child at a time: a coprocess, whose calls run at once, runs no
 * commands.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../recipes/deadlock.h"
#include "../recipes/support.h"
#include "process.h"
#include "shell.h"
#include "work.h"

enum {
  KEEPALIVE_FD = 100, /* the least number of the child's descriptor */
  LOOK_MS = 20,       /* between looks at those that are to end */
  SAY_MS = 100,       /* before a word about those that stay */
  STAYS_MS = 500,     /* between looks at those that stay for long */
  RETRY_MS = 100,     /* where the database could not be asked */
  KILL_MS = 5000      /* how long to wait for what was killed */
};

enum phase { RUNS, STAYS, ASKED, KILLED, LEFT };

typedef struct run {
  call *c;
  const guard *g; /* NULL: for an event */
  bool warn, close, outlive, all;
  int64_t grace_ms;

  /* guarded by running.m */
  pid_t pid;      /* 0: not started, or gone */
  int heard;      /* the last signal that came for it */
  bool asked;     /* one that is to end it was among them */
  bool stays;     /* it has ended, and what it has left is waited for */
  bool tell;      /* say for whom */
  sigset_t early; /* those that it has had before they were taken */
  bool woken;

  /* this thread's */
  pthread_cond_t
      wake;    /* with running.m, where the handle cannot be waited on */
  bool deaf;   /* it cannot any more */
  bool adopts; /* orphans become our children */
  bool ended, cancelled;
  int outcome; /* waitpid()'s */
  int report;  /* to read errno from, where it could not be executed */
  int alive;   /* ends when nobody has what keeps the session alive; or -1 */
  int lost;    /* the code of the loss, or 0 */
  char why[512];
  enum phase phase;
  int64_t until;   /* the phase's end, of zke_now() */
  int64_t pause;   /* between two looks, while STAYS */
  processes known; /* guarded by running.m: descendants, as last seen */
} run;

static struct {
  pthread_mutex_t m; /* signals.c's may be held before it, never after */
  run *now;
} running = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* ------------------------------------------------------------------------
 * Options
 * --------------------------------------------------------------------- */

/* Checks them; guard_run() reads them again. */
int guard_options(call *c) {
  int64_t grace;
  const word *lost = value_of(c, 'L');
  if (lost && !word_is(lost, "kill") && !word_is(lost, "warn"))
    return fail_usage(c, "--on-lost wants kill or warn, not \"%s\"",
                      lost->text);
  if (has(c, 'W') && has(c, 'o'))
    return fail_usage(c, "--wait-all or --close, not both");
  for (int i = 0; i < c->child_count; i++)
    if (strlen(c->child[i].text) != c->child[i].len)
      return fail_usage(c, "a NUL in the command's words");
  return option_duration(c, 'G', 5000, &grace);
}

/* Takes the options over into the run. */
static int run_options(run *r) {
  call *c = r->c;
  int status = guard_options(c);
  const word *lost = value_of(c, 'L');
  r->warn = lost && word_is(lost, "warn");
  r->close = has(c, 'o');
  r->outlive = has(c, 'P');
  r->all = has(c, 'W');
  return status ? status : option_duration(c, 'G', 5000, &r->grace_ms);
}

/* ------------------------------------------------------------------------
 * The child's words and environment
 * --------------------------------------------------------------------- */

typedef struct texts {
  char **data; /* ends by NULL */
  size_t count;
  bool failed;
} texts;

/* Adds a formatted text; the list ends by NULL at any time.  Without memory
 * failed is set, and stays so. */
__attribute__((format(printf, 2, 3))) static void texts_add(texts *t,
                                                            const char *format,
                                                            ...) {
  char *text, **more = realloc(t->data, (t->count + 2) * sizeof *more);
  va_list arguments;
  if (!more) {
    t->failed = true;
    return;
  }
  t->data = more;
  va_start(arguments, format);
  if (vasprintf(&text, format, arguments) < 0) {
    text = NULL;
    t->failed = true;
  }
  va_end(arguments);
  t->data[t->count] = text;
  if (text) t->data[++t->count] = NULL;
}

/* Only the texts that are ours; the list ends with NULL. */
static void texts_free(texts *t) {
  for (char **text = t->data; text && *text; text++) free(*text);
  free(t->data);
}

/* Whether two entries of the environment set the same variable. */
static bool same_name(const char *entry, const char *other) {
  size_t len = strcspn(other, "=");
  return strncmp(entry, other, len) == 0 && entry[len] == '=';
}

/* Is it set anew, so that the inherited one is not to be passed on?  What an
 * outer zke said of its lock goes too: it would not fit to our session. */
static bool is_replaced(const char *entry, const char *const *more, int count) {
  static const char *const ours[] = {"ZKE_DB",         "ZKE_SESSION",
                                     "ZKE_LOCK_KIND",  "ZKE_LOCK_NAME",
                                     "ZKE_LOCK_TOKEN", "ZKE_LOCK_ACTOR"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (same_name(entry, ours[i])) return true;
  for (int i = 0; i < count; i++)
    if (same_name(entry, more[i])) return true;
  return false;
}

/* What is held, and for a zke that the command runs: as whom we hold it, and
 * which process will wait for the command. */
static void environment_held(texts *t, const guard *g) {
  process self = {0};
  process_read(getpid(), &self);
  texts_add(t, "ZKE_LOCK_KIND=%s", g->kind);
  texts_add(t, "ZKE_LOCK_NAME=%s", g->path);
  texts_add(t, "ZKE_LOCK_TOKEN=%" PRId64, g->token);
  texts_add(t, "ZKE_LOCK_ACTOR=0x%" PRIx64 "/%d/%" PRIu64, zke_line_actor(),
            (int)getpid(), self.start);
}

/* Ours, but for what is replaced, then what the command needs to find the
 * session, then more. */
static texts environment_make(const run *r, const char *const *more,
                              int count) {
  texts t = {NULL, 0, false};
  const char *file = r->c->sh->file;
  char whole[PATH_MAX];
  if (strcmp(file, ":memory:") != 0 && realpath(file, whole)) file = whole;
  for (char **e = environ; *e; e++)
    if (!is_replaced(*e, more, count)) texts_add(&t, "%s", *e);
  texts_add(&t, "ZKE_DB=%s", file);
  texts_add(&t, "ZKE_SESSION=0x%" PRIx64, (uint64_t)zke_session_id(r->c->z));
  if (r->g) environment_held(&t, r->g);
  for (int i = 0; i < count; i++) texts_add(&t, "%s", more[i]);
  return t;
}

/* ------------------------------------------------------------------------
 * In the child, until it is another program: nothing that could take a lock
 * --------------------------------------------------------------------- */

typedef struct start {
  const char *program;
  texts words, environment;
  pid_t parent;
  int keepalive; /* or -1 */
  int alive;     /* the pipe's end, or -1 */
  int death;     /* the signal for our death, or 0 */
  bool no_input; /* standard input has our lines */
  int input;     /* what it gets as standard input; -1: ours */
  int report;    /* to write errno to */
} start;

/* In the child: standard input is what the command is to read, or nothing. */
static void child_streams(const start *s) {
  int null = s->input < 0 && s->no_input ? open("/dev/null", O_RDONLY) : -1;
  if (s->input >= 0) dup2(s->input, STDIN_FILENO);
  if (null > 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
}

/* Any number where the limit is too low for a high one. */
static void child_keep(int fd) {
  if (fcntl(fd, F_DUPFD, KEEPALIVE_FD) < 0) fcntl(fd, F_SETFD, 0);
}

/* The child, from fork() to exec(): asks for the signal at the parent's death,
 * keeps its descriptors, undoes our signal mask.  An exec that fails is
 * reported by a pipe. */
_Noreturn static void child_run(const start *s) {
  if (s->death) {
    prctl(PR_SET_PDEATHSIG, s->death);
    /* Died before that was said? */
    if (getppid() != s->parent) _exit(STATUS_SIGNAL + s->death);
  }
  if (s->keepalive >= 0) child_keep(s->keepalive);
  if (s->alive >= 0) child_keep(s->alive);
  child_streams(s);
  signals_child();
  if (!s->words.data) _exit(STATUS_INTERNAL); /* not without a program */
  execvpe(s->program, s->words.data, s->environment.data);
  int why = errno;
  ssize_t ignored = write(s->report, &why, sizeof why);
  (void)ignored;
  _exit(why == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

/* ------------------------------------------------------------------------
 * Descendants
 * --------------------------------------------------------------------- */

/* Known from before; the child, or when orphans are ours any child of ours. */
static bool is_root(const run *r, const process *p) {
  const process *before = processes_find(&r->known, p->pid);
  if (before && before->start == p->start) return true;
  return r->adopts ? p->parent == getpid() : p->pid == r->pid;
}

/* Marks the descendants of the command, in rounds, since a child may stand
 * before its parent. */
static void family_mark(const run *r, processes *f) {
  bool more = true;
  for (size_t i = 0; i < f->count; i++)
    f->data[i].member = is_root(r, &f->data[i]);
  while (more) {
    more = false;
    for (size_t i = 0; i < f->count; i++) {
      const process *parent = processes_find(f, f->data[i].parent);
      if (f->data[i].member || !parent || !parent->member) continue;
      f->data[i].member = more = true;
    }
  }
}

/* running.m is held.  Look who there is; returns how many of them live. */
static size_t family_look(run *r) {
  processes all = processes_all();
  processes members = {NULL, 0};
  size_t live = 0;
  family_mark(r, &all);
  for (size_t i = 0; i < all.count; i++) {
    if (!all.data[i].member || !all.data[i].live) continue;
    if (processes_add(&members, &all.data[i])) live++;
  }
  free(all.data);
  free(r->known.data);
  r->known = members;
  return live;
}

/* Is it in the group that the command was started in, or in the one that it
 * has chosen? */
static bool is_in_group(const run *r, const process *p) {
  const process *child = processes_find(&r->known, r->pid);
  return p->group == getpgrp() || (child && p->group == child->group);
}

/* running.m is held.  A signal for all descendants, or only for those in the
 * command's group: each that there is at this moment gets it once.  The child
 * itself is found without /proc. */
static void family_signal_held(run *r, int signal, bool group) {
  family_look(r);
  if (r->pid) kill(r->pid, signal);
  for (size_t i = 0; i < r->known.count; i++) {
    const process *p = &r->known.data[i];
    if (p->pid != r->pid && (!group || is_in_group(r, p)))
      process_signal(p, signal);
  }
}

/* Send a signal to the child and its descendants. Takes running.m. */
static void family_signal(run *r, int signal) {
  pthread_mutex_lock(&running.m);
  family_signal_held(r, signal, false);
  pthread_mutex_unlock(&running.m);
}

/* Have all descendants ended? */
static bool family_is_gone(run *r) {
  pthread_mutex_lock(&running.m);
  size_t live = family_look(r);
  pthread_mutex_unlock(&running.m);
  return live == 0;
}

/* ------------------------------------------------------------------------
 * Signals, on their thread
 * --------------------------------------------------------------------- */

/* The terminal's go to all of its foreground processes: the child has had it
 * from there.  But for a hangup, of which the kernel tells the session's
 * leader alone. */
static bool is_terminals(const siginfo_t *info) {
  if (info->si_code != SI_KERNEL) return false;
  switch (info->si_signo) {
    case SIGINT:
    case SIGQUIT:
    case SIGWINCH:
      return true;
    case SIGHUP:
      return getsid(0) != getpid();
    default: /* an alarm set before we were executed */
      return false;
  }
}

/* Signals that end zke itself. */
static bool ends_us(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP ||
         signal == SIGQUIT;
}

/* running.m is held.  Where the child has ended, the next signal is for all
 * that it has left, in whatever group. */
static void run_pass(run *r, int signal) {
  if (ends_us(signal))
    family_signal_held(r, signal, r->pid != 0);
  else if (r->pid)
    kill(r->pid, signal);
}

/* running.m is held.  A command run for an event ends, and so does what waits
 * for the next. */
static bool run_hear(run *r, const siginfo_t *info) {
  int signal = info->si_signo;
  if (signal == SIGCHLD) {
    r->woken = true;
    pthread_cond_signal(&r->wake);
    zke_wake(r->c->z);
    return true;
  }
  if (!r->pid && !r->stays) return false;
  if (sigismember(&r->early, signal))
    sigdelset(&r->early, signal);
  else if (!is_terminals(info))
    run_pass(r, signal);
  if (r->pid) r->heard = signal;
  if (ends_us(signal)) r->asked = r->tell = true;
  return r->g || !ends_us(signal);
}

/* Runs on the signals' thread: gives the signal to the child that runs. */
static bool run_hook(void *unused, const siginfo_t *info) {
  (void)unused;
  pthread_mutex_lock(&running.m);
  bool all = running.now && run_hear(running.now, info);
  pthread_mutex_unlock(&running.m);
  return all;
}

/* What is called on cancelling.  zke_wake() suffices unless the handle is of
 * no use any more. */
static int run_wake(void *object) {
  run *r = object;
  pthread_mutex_lock(&running.m);
  r->woken = true;
  pthread_cond_signal(&r->wake);
  pthread_mutex_unlock(&running.m);
  return zke_wake(r->c->z);
}

/* The one that signals are for; NULL: none. */
static void run_install(run *r) {
  pthread_mutex_lock(&running.m);
  running.now = r;
  pthread_mutex_unlock(&running.m);
  signals_hook(r ? run_hook : NULL, NULL);
}

/* ------------------------------------------------------------------------
 * Waiting for its end
 * --------------------------------------------------------------------- */

/* running.m is held.  Does the end of the child leave what is held to those
 * that it has left?  Not where it ended by itself, nor where none of them has
 * a descriptor of us. */
static bool run_must_stay(const run *r) {
  return r->alive >= 0 && (r->all || r->asked || WIFSIGNALED(r->outcome));
}

/* Where orphans are ours all that ends is taken in. */
static void run_reap(run *r) {
  int outcome;
  pid_t pid;
  pthread_mutex_lock(&running.m);
  while ((r->adopts || r->pid) &&
         (pid = waitpid(r->adopts ? -1 : r->pid, &outcome, WNOHANG)) > 0) {
    if (pid != r->pid) continue;
    r->pid = 0;
    r->ended = true;
    r->outcome = outcome;
    r->stays = run_must_stay(r);
  }
  r->woken = false;
  pthread_mutex_unlock(&running.m);
}

/* Not every failure to ask is a loss: a database may be busy or a disk full,
 * and the lock is held all the same. */
static bool is_loss(int rc) {
  switch (rc) {
    case ZKE_LOST:
    case ZKE_NONODE:
    case ZKE_BROKEN:
    case ZKE_INVALIDSTATE:
    case ZKE_SESSIONEXPIRED:
    case ZKE_REPLACED:
      return true;
    default:
      return false;
  }
}

/* A descendant that was stopped can follow only when it goes on. */
static void run_ask(run *r) {
  family_signal(r, SIGTERM);
  family_signal(r, SIGCONT);
  r->phase = ASKED;
  r->until = zke_now(r->c->z) + r->grace_ms;
}

/* Says on standard error that the lock was lost and the command goes on
 * (--on-lost warn). */
static void warn_lost(const run *r) {
  json_t *row = json_pack("{s:s,s:s,s:s}", "event", "lost", "kind", r->g->kind,
                          "path", r->g->path);
  if (r->c->format == FORMAT_JSON && row) {
    json_dumpf(row, stderr, JSON_COMPACT);
    fputc('\n', stderr);
  } else {
    fputs("zke: LOST: ", stderr);
    output_sentence(r->why, stderr);
    fputs("; ", stderr);
    output_sentence(r->c->child[0].text, stderr);
    fputs(" goes on\n", stderr);
  }
  json_decref(row);
}

/* Keep the sentence: at the end others may have failed. */
static void run_lose(run *r, int rc) {
  if (!r->g || !r->g->check || r->lost || r->phase > STAYS) return;
  r->lost = rc;
  snprintf(r->why, sizeof r->why, "the %s %s was lost (%s)", r->g->kind,
           r->g->path, zke_errmsg());
  if (r->warn)
    warn_lost(r);
  else
    run_ask(r);
}

/* Asks whether what is held is held still, and begins the end of the command
 * where it is not. */
static void judge_loss(run *r) {
  if (!r->g || !r->g->check || r->lost) return;
  if (r->ended && r->phase != STAYS) return;
  int rc = r->g->check(r->g->object);
  if (is_loss(rc)) run_lose(r, rc);
}

/* The signal may have come just before there was a child. */
static void judge_cancel(run *r) {
  if (r->cancelled || r->ended || !cancelled(r->c)) return;
  r->cancelled = true;
  pthread_mutex_lock(&running.m);
  if (!r->heard && r->pid) kill(r->pid, atomic_load(&r->c->signal));
  pthread_mutex_unlock(&running.m);
}

/* ---- those that stay ---- */

/* Has the last of them gone?  Nobody writes into the pipe on purpose. */
static bool stays_are_gone(const run *r) {
  char bytes[64];
  ssize_t n;
  do n = read(r->alive, bytes, sizeof bytes);
  while (n > 0);
  return n == 0;
}

/* Says on standard error for whom the place is kept. */
static void stays_tell(const run *r, json_t *list, FILE *out) {
  if (r->c->format == FORMAT_JSON) {
    json_t *row = json_pack("{s:s,s:s,s:s,s:O}", "event", "waiting", "kind",
                            r->g->kind, "path", r->g->path, "for", list);
    json_dumpf(row, out, JSON_COMPACT);
    json_decref(row);
  } else {
    fprintf(out, "zke: WAITING: %s has ended; the %s %s stays held by ",
            r->c->child[0].text, r->g->kind, r->g->path);
    holders_human(list, out);
  }
  fputc('\n', out);
}

/* In one piece: what stays may write to standard error, too. */
static void stays_say(const run *r) {
  char *text = NULL;
  size_t len;
  holders h = holders_begin(r->c->sh->file);
  json_t *list = holders_list(&h, zke_session_id(r->c->z), getpid());
  FILE *out = open_memstream(&text, &len);
  if (out) stays_tell(r, list, out);
  if (out && fclose(out) == 0) fputs(text, stderr);
  free(text);
  json_decref(list);
  holders_free(&h);
}

/* After a moment, in which what was ended by the same signal goes; and again
 * with each signal.  --wait-all has asked for it. */
static void judge_stays(run *r) {
  int64_t now = zke_now(r->c->z);
  pthread_mutex_lock(&running.m);
  bool begins = r->stays && r->phase == RUNS;
  bool tells = r->tell && r->phase == STAYS && now >= r->until;
  if (begins) r->tell = !r->all || r->asked || talks(r->c);
  if (tells) r->tell = false;
  pthread_mutex_unlock(&running.m);
  if (begins) {
    r->phase = STAYS;
    r->until = now + SAY_MS;
    r->pause = LOOK_MS;
  }
  if (tells && !stays_are_gone(r)) stays_say(r);
}

/* Moves on from asking to killing, and from killing to giving up, when the
 * phase's time is over. */
static void judge_phase(run *r) {
  bool over = zke_now(r->c->z) >= r->until;
  if (r->phase == ASKED && over) {
    r->phase = KILLED;
    r->until = zke_now(r->c->z) + KILL_MS;
    over = false;
  }
  if (r->phase == KILLED) {
    family_signal(r, SIGKILL);
    if (over) r->phase = LEFT;
  }
}

/* What was lost, and is not to be ended, need not be kept any more. */
static bool run_over(run *r) {
  if (r->phase == LEFT) return true;
  if (r->phase == RUNS) return r->ended;
  if (r->phase == STAYS) return r->lost || stays_are_gone(r);
  return r->ended && family_is_gone(r);
}

/* Until the deadline, or until run_wake() or a child's end. */
static void run_sleep_deaf(run *r, int64_t deadline) {
  struct timespec t;
  int64_t ms = deadline - zke_now(r->c->z);
  if (deadline == ZKE_FOREVER) ms = 1000; /* looks again, that is all */
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += ms / 1000;
  t.tv_nsec += ms % 1000 * 1000000;
  if (t.tv_nsec >= 1000000000) {
    t.tv_sec++;
    t.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&running.m);
  while (ms > 0 && !r->woken &&
         pthread_cond_timedwait(&r->wake, &running.m, &t) == 0)
    continue;
  pthread_mutex_unlock(&running.m);
}

/* Until the next look.  Those that stay may do so for hours. */
static int64_t run_pause(run *r) {
  if (r->phase == RUNS) return ZKE_FOREVER;
  if (r->phase != STAYS) return zke_now(r->c->z) + (int64_t)LOOK_MS;
  int64_t pause = r->pause;
  if (2 * pause <= STAYS_MS) r->pause = 2 * pause;
  return zke_now(r->c->z) + pause;
}

/* Sleeps until something may have changed.  A handle that is of no use any more
 * is replaced by a condition variable. */
static void run_sleep(run *r, int64_t turn) {
  call *c = r->c;
  int64_t deadline = run_pause(r);
  if (!r->deaf) {
    int rc = zke_wait_turn(c->z, turn, deadline);
    if (rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT) return;
    r->deaf = is_loss(rc);
    if (r->deaf) run_lose(r, rc);
    deadline = zke_now(c->z) + RETRY_MS;
  }
  run_sleep_deaf(r, deadline);
}

/* The state machine of the file's head: looks at everything, then sleeps, until
 * it is over. */
static void run_wait(run *r) {
  cancel_by(r->c, run_wake, r);
  for (;;) {
    int64_t turn = zke_turn(r->c->z);
    run_reap(r);
    judge_loss(r);
    judge_cancel(r);
    judge_stays(r);
    judge_phase(r);
    if (run_over(r)) break;
    run_sleep(r, turn);
  }
  cancel_by(r->c, NULL, NULL);
}

/* ------------------------------------------------------------------------
 * From the beginning to the end
 * --------------------------------------------------------------------- */

/* The child has the terminal's signals from there, unless they came before it
 * was: then they are pending still, or it has them pending too, and they are
 * one. */
static void run_pass_on(run *r) {
  static const int terminals[] = {SIGINT, SIGQUIT, SIGHUP};
  sigset_t pending;
  sigemptyset(&r->early);
  if (sigpending(&pending) != 0) return;
  for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++) {
    if (!sigismember(&pending, terminals[i])) continue;
    sigaddset(&r->early, terminals[i]);
    kill(r->pid, terminals[i]);
  }
}

/* All in one, while signals wait: one finds either no child, and then cancels,
 * or a child that gets it. */
static int run_fork(run *r, const start *s) {
  call *c = r->c;
  pid_t pid = -1;
  (void)fflush(stdout);
  signals_hold();
  pthread_mutex_lock(&running.m);
  bool late = cancelled(c);
  if (!late) pid = fork();
  if (pid == 0) child_run(s);
  r->pid = pid > 0 ? pid : 0;
  int why = errno;
  if (r->pid) run_pass_on(r);
  pthread_mutex_unlock(&running.m);
  signals_release();
  if (late) return fail_cancelled(c);
  errno = why;
  return pid > 0 ? 0 : fail_errno(c, STATUS_SYSTEM, "cannot fork");
}

/* Only where no child is anybody else's. */
static void run_adopt(run *r) {
  siginfo_t info;
  if (!r->g || !r->g->check) return;
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) return;
  r->adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

/* Nothing that is held: nothing to keep alive. */
static int run_keepalive(run *r, start *s) {
  int ends[2];
  if (!r->g || r->close) return 0;
  int rc = zke_keepalive_fd(r->c->z, &s->keepalive);
  if (rc == ZKE_UNIMPLEMENTED) return 0;
  if (rc != ZKE_OK) return fail_rc(r->c, rc);
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return fail_errno(r->c, STATUS_SYSTEM, "cannot make a pipe");
  r->alive = ends[0];
  s->alive = ends[1];
  return 0;
}

/* It could not be executed: the child has left errno in the pipe. */
static int run_unexecuted(run *r) {
  call *c = r->c;
  int why;
  if (read(r->report, &why, sizeof why) != sizeof why) return 0;
  bool missing = why == ENOENT;
  return fail(c, missing ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN,
              missing ? "NOTFOUND" : "CANNOTRUN", "cannot run \"%s\": %s",
              c->child[0].text, strerror(why));
}

/* Who sent the signal to us expects that it ends us too. */
static int run_signalled(run *r, int signal) {
  shell *sh = r->c->sh;
  if (r->heard == signal) {
    pthread_mutex_lock(&sh->m);
    sh->died_by = signal;
    pthread_mutex_unlock(&sh->m);
  }
  return STATUS_SIGNAL + signal;
}

/* What the command has come to, as an exit code. */
static int run_status(run *r) {
  call *c = r->c;
  if (r->phase == LEFT)
    return fail(c, STATUS_LOST, "LOST",
                "%s, and %zu of its command's processes cannot be killed",
                r->why, r->known.count);
  if (r->lost) return fail(c, STATUS_LOST, "LOST", "%s", r->why);
  int status = run_unexecuted(r);
  if (status) return status;
  if (WIFSIGNALED(r->outcome)) return run_signalled(r, WTERMSIG(r->outcome));
  return WEXITSTATUS(r->outcome);
}

/* status: of what was made for the child, which is started if that is 0; the
 * child's ends are closed in any case. */
static int run_through(run *r, const start *s, int status) {
  run_install(r);
  run_adopt(r);
  if (!status) status = run_fork(r, s);
  close(s->report);
  if (s->alive >= 0) close(s->alive);
  if (!status) {
    run_wait(r);
    status = run_status(r);
  }
  if (r->adopts) prctl(PR_SET_CHILD_SUBREAPER, 0);
  run_install(NULL);
  free(r->known.data);
  return status;
}

/* A file without a name, so that a child that does not read is no trouble. */
static int run_input(run *r, int *fd_out) {
  if (!r->g || !r->g->input) return 0;
  const char *at = r->g->input, *end = at + r->g->input_len;
  int fd = *fd_out = memfd_create("zke", MFD_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : 0;
  for (; n >= 0 && at < end; at += n) n = write(fd, at, (size_t)(end - at));
  if (n >= 0 && lseek(fd, 0, SEEK_SET) == 0) return 0;
  return fail_errno(r->c, STATUS_SYSTEM, "cannot pass on the data");
}

/* What the child needs is made before there is one. */
static int run_begin(run *r, const char *const *more, int count) {
  call *c = r->c;
  int ends[2];
  start s = {.program = c->child[0].text,
             .parent = getpid(),
             .keepalive = -1,
             .alive = -1,
             .input = -1,
             .no_input = c->sh->reads_input};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return fail_errno(c, STATUS_SYSTEM, "cannot make a pipe");
  r->report = ends[0];
  s.report = ends[1];
  if (!r->outlive) s.death = r->close ? SIGKILL : SIGTERM;
  s.words = (texts){NULL, 0, false};
  for (int i = 0; i < c->child_count; i++)
    texts_add(&s.words, "%s", c->child[i].text);
  s.environment = environment_make(r, more, count);
  int status = !s.words.data || s.words.failed || s.environment.failed
                   ? fail(c, STATUS_SYSTEM, "NOMEM", "out of memory")
                   : run_keepalive(r, &s);
  if (!status) status = run_input(r, &s.input);
  status = run_through(r, &s, status);
  if (s.keepalive >= 0) close(s.keepalive);
  if (s.input >= 0) close(s.input);
  if (r->alive >= 0) close(r->alive);
  close(r->report);
  texts_free(&s.words);
  texts_free(&s.environment);
  return status;
}

/* From the fork to the end; the exit code. */
static int run_all(run *r, const char *const *more, int count) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&r->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  int status = run_begin(r, more, count);
  pthread_cond_destroy(&r->wake);
  if (r->g && r->g->asked) *r->g->asked = r->asked;
  return status;
}

/* Run the child of the call under what it holds. Returns its exit status, or
 * STATUS_LOST where what it held was lost. */
int guard_run(call *c, const guard *g) {
  run r = {.c = c, .g = g, .alive = -1};
  int status = run_options(&r);
  return status ? status : run_all(&r, g->more, g->more_count);
}

/* Run a program for an event, under no lock: nothing can be lost. */
int guard_event(call *c, const char *const *more, int count) {
  run r = {.c = c, .alive = -1, .grace_ms = 5000};
  return run_all(&r, more, count);
}
