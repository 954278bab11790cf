/* guard.c - a command of the user's, run while something is held
 *
 * The command ("the child") is started with the user's words unchanged.  While
 * it runs, this thread dispatches and waits for three things: the child's end,
 * the loss of what is held, and a cancel.  The thread of signals.c passes
 * signals on.  Start with guard_run(); run_wait() is the state machine:
 *
 *     RUNS     the child runs
 *      |         it has ended by itself -----------------> its exit code
 *      |         it could not be executed ---------------> 127 or 126
 *      |       a signal ended it, or it ended with --wait-all:
 *     STAYS    its descendants keep it held
 *      |         all of them are gone -------------------> its exit code, or
 *      |                                                   128 + the signal
 *      |       in RUNS or STAYS: it was lost (not --on-lost warn)
 *     ASKED    TERM and CONT went to the child and its descendants
 *      |         all of them have ended -----------------> 76
 *      |       --grace is over
 *     KILLED   KILL goes to them, at each look
 *      |         all of them have ended -----------------> 76
 *      |       5 s are over
 *     LEFT     some cannot be killed: another user's, or stuck in the kernel
 *                ----------------------------------------> 76
 *
 * With --on-lost warn a loss is reported, and the machine stays in RUNS until
 * the child has ended; then too the exit code is 76.
 *
 * WHO GETS A SIGNAL.  The child stays in our process group.  In another group
 * it could not read from the terminal, ^Z would stop only one of us, and a
 * program that kills our group, as timeout(1) does, would miss it.
 *
 * - Signals of a terminal (^C, ^\, a new size) reach its whole foreground
 *   group, including the command, by the kernel: none is passed on.
 * - INT, TERM, HUP and QUIT that a process sends to us are passed to all
 *   processes of the command in that group, so that a script's work ends with
 *   it.  Other processes of the group, such as the script that runs us, are
 *   spared.  TERM and HUP also end a script after the command, whatever it did
 *   with them.
 * - Others, such as USR1, go only to the child, which may expect them.
 *
 * WHEN A SIGNAL ENDS THE CHILD its work may continue: in a descendant that
 * ignores the signal, or that is in another group.  Nobody else may get what is
 * held meanwhile.  The child and its descendants inherit two descriptors: the
 * one that keeps the session alive, and the writing end of a pipe that is never
 * written.  The reading end is ours, and tells us when the last of them is
 * gone.  They have high numbers, so that a script's own 3 to 9 do not replace
 * them.  Only the session of a file has the first one: in memory and on an
 * ensemble there is only the pipe, and a kill of this process ends the session.
 *
 * WHEN THIS PROCESS IS KILLED, and the session is that of a file:
 *
 * - What is held stays held until the last process that has the keep-alive
 *   descriptor is gone, or has closed it.
 * - The child gets a signal: TERM, since with the descriptor it has time to
 *   clean up; KILL with --close, since without the descriptor the next holder
 *   may already have started; none with --outlive.
 *
 * When the child ends by itself, what is held is released, even if the child
 * has left processes running: ending a session ignores their descriptors.
 *
 * The descendants are read from /proc.  Orphans become our children
 * (PR_SET_CHILD_SUBREAPER), so that they are found too.  This is not done if
 * this process had children before it was executed, since it would take their
 * ends from the program that expects them; then a process whose parent ended
 * before the loss is missed.  Processes that one command has left do not belong
 * to the next command.  But if such a process forks during the next command,
 * its child counts as the next command's once its own parent has ended, and is
 * ended with that command on a loss.
 *
 * There is one child at a time: a coprocess, with its parallel calls, runs no
 * commands.
 *
 * THREADS.  Two: the call's, which runs everything but the section "Signals, on
 * their thread", and that of signals.c.  running.m guards what both use.  Take
 * signals.c's mutex first, then running.m.
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

#include "../recipes/support.h"
#include "process.h"
#include "shell.h"
#include "work.h"

enum {
  KEEPALIVE_FD = 100, /* the least number of the child's descriptor */
  LOOK_MS = 20,       /* between looks at processes that should end */
  SAY_MS = 100,       /* before a message about those that stay */
  STAYS_MS = 500,     /* between looks at those that stay for long */
  RETRY_MS = 100,     /* if the database could not be read */
  KILL_MS = 5000      /* how long to wait after KILL */
};

/* In the order in which they are passed: a run never goes back. */
enum phase { RUNS, STAYS, ASKED, KILLED, LEFT };

/* One child, from before its fork to after its end. */
typedef struct run {
  call *c;
  const guard *g;   /* NULL: for an event */
  bool warn;        /* --on-lost warn */
  bool close;       /* --close */
  bool outlive;     /* --outlive */
  bool all;         /* --wait-all */
  int64_t grace_ms; /* --grace */

  /* guarded by running.m */
  pid_t pid;       /* 0: not started, or gone */
  sigset_t heard;  /* signals that came while it or its descendants ran */
  bool asked;      /* INT, TERM, HUP or QUIT has come */
  int stop;        /* TERM or HUP has come: ends a script, too; 0: none */
  bool stays;      /* it has ended, and we wait for its descendants */
  bool tell;       /* these should be reported */
  sigset_t early;  /* signals passed to it before we took ours */
  bool woken;      /* the condition variable's predicate */
  processes known; /* descendants, as last seen */

  /* only for the call's thread */
  pthread_cond_t wake; /* with running.m: replaces the handle while deaf */
  bool deaf;           /* the handle can no longer be waited on */
  bool adopts;         /* orphans become our children */
  bool ended;          /* the child; outcome is waitpid()'s */
  bool cancelled;      /* the cancel was seen, and passed on */
  int outcome;
  int report;       /* a pipe: errno, if the child could not be executed */
  int alive;        /* a pipe: ends when no descendant is left; -1: none */
  processes former; /* descendants of earlier commands, which are not this
                       command's */
  int lost;         /* the code of the loss, or 0 */
  loss loss;        /* with lost: the rest of it */
  enum phase phase;
  int64_t until; /* the phase's end, of zke_now() */
  int64_t pause; /* between two looks, while STAYS */
} run;

static struct {
  pthread_mutex_t m;
  run *now; /* NULL: no child runs */
} running = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* ------------------------------------------------------------------------
 * Options
 *
 * OPTIONS_GUARD of shell.h, read once before anything is held, so that an error
 * in them costs no lock, and a second time into the run.
 * --------------------------------------------------------------------- */

/* Only checks them, before anything is held; guard_run() reads them again.  A
 * word of the child becomes a C string, so a NUL in it, which a script can
 * write as "\0", is refused rather than taken for its end. */
int guard_options(call *c) {
  int64_t grace;
  const word *lost = option_word(c, 'L');
  if (lost && !word_is(lost, "kill") && !word_is(lost, "warn"))
    return fail_usage(c, "--on-lost wants kill or warn, not \"%s\"",
                      lost->text);
  if (option_given(c, 'W') && option_given(c, 'o'))
    return fail_usage(c, "--wait-all or --close, not both");
  for (int i = 0; i < c->child_count; i++)
    if (strlen(c->child[i].text) != c->child[i].len)
      return fail_usage(c, "there is a NUL in the command's words");
  return option_duration(c, 'G', 5000, &grace);
}

/* Takes the options over into the run. */
static int run_options(run *r) {
  call *c = r->c;
  int status = guard_options(c);
  const word *lost = option_word(c, 'L');
  r->warn = lost && word_is(lost, "warn");
  r->close = option_given(c, 'o');
  r->outlive = option_given(c, 'P');
  r->all = option_given(c, 'W');
  return status ? status : option_duration(c, 'G', 5000, &r->grace_ms);
}

/* ------------------------------------------------------------------------
 * The child's words and environment
 *
 * The child gets the words unchanged.  Its environment has what it may need
 * about its lock: the database, the session and the token.  A zke inside it
 * also learns which process waits for it.
 * --------------------------------------------------------------------- */

/* A list of texts as execvpe() takes it. */
typedef struct texts {
  char **data;  /* ends by NULL; NULL itself before the first text */
  size_t count; /* without that NULL */
  bool failed;  /* there was no memory for one; it stays so */
} texts;

/* Adds a formatted text; the list always ends by NULL.  Without memory this
 * sets failed, which the user of the list checks once, at the end. */
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

/* Frees the texts and the list. */
static void texts_free(texts *t) {
  for (char **text = t->data; text && *text; text++) free(*text);
  free(t->data);
}

/* Does an entry of the environment set the variable that `other` names?  The
 * latter is "NAME=value" or the name alone. */
static bool same_name(const char *entry, const char *other) {
  size_t len = strcspn(other, "=");
  return strncmp(entry, other, len) == 0 && entry[len] == '=';
}

/* Should this variable not be inherited?  That applies if it is set again, and
 * to all that an outer zke has set about its own lock and session: a command
 * that runs for an event, without a lock, must not take these for ours. */
static bool is_replaced(const char *entry, const char *const *more, int count) {
  static const char *const ours[] = {"ZKE_DB", "ZKE_SESSION", "ZKE_LOCK_KIND",
                                     "ZKE_LOCK_NAME", "ZKE_LOCK_TOKEN"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (same_name(entry, ours[i])) return true;
  for (int i = 0; i < count; i++)
    if (same_name(entry, more[i])) return true;
  return false;
}

/* What is held. */
static void environment_held(texts *t, const guard *g) {
  texts_add(t, "ZKE_LOCK_KIND=%s", g->kind);
  texts_add(t, "ZKE_LOCK_NAME=%s", g->path);
  texts_add(t, "ZKE_LOCK_TOKEN=%" PRId64, g->token);
}

/* The inherited environment without replaced variables, then what the command
 * needs to find the database and the session, then more.  The file has its
 * whole path, since the command may work in another directory. */
static texts environment_make(const run *r, const char *const *more,
                              int count) {
  texts t = {NULL, 0, false};
  const char *file = r->c->sh->file;
  char whole[PATH_MAX];
  if (store_of(r->c->sh) == STORE_FILE && realpath(file, whole)) file = whole;
  for (char **e = environ; *e; e++)
    if (!is_replaced(*e, more, count)) texts_add(&t, "%s", *e);
  texts_add(&t, "ZKE_DB=%s", file);
  texts_add(&t, "ZKE_SESSION=0x%" PRIx64, (uint64_t)zke_session_id(r->c->z));
  if (r->g) environment_held(&t, r->g);
  for (int i = 0; i < count; i++) texts_add(&t, "%s", more[i]);
  return t;
}

/* ------------------------------------------------------------------------
 * In the child, between fork() and exec()
 *
 * This process has several threads, and only the one that forks is in the
 * child.  A lock that another thread had at that moment stays locked there for
 * ever.  So the child takes no locks: it makes system calls, and calls
 * execvpe(), which in the C library neither locks nor allocates.  All its
 * memory was allocated before the fork.
 * --------------------------------------------------------------------- */

/* All that the child needs, made by the parent before the fork; the child only
 * reads it. */
typedef struct start {
  const char *program;
  texts words, environment;
  pid_t parent;
  int keepalive; /* or -1 */
  int alive;     /* the pipe's writing end, or -1 */
  int death;     /* the signal to get when the parent dies, or 0 */
  bool no_input; /* standard input has our lines, and is not for it */
  int input;     /* its standard input; -1: ours */
  int report;    /* where errno is written to; closes by exec() */
} start;

/* Sets standard input: the given bytes, nothing, or ours.  "null" is 0 if
 * standard input was closed before: then it is already in its place, and must
 * stay open; -1 leaves the child with our input. */
static void child_streams(const start *s) {
  int null = s->input < 0 && s->no_input ? open("/dev/null", O_RDONLY) : -1;
  if (s->input >= 0) dup2(s->input, STDIN_FILENO);
  if (null > 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
}

/* Lets a descriptor survive the exec(): under a high number, or, if the limit
 * is too low for that, under its own. */
static void child_keep(int fd) {
  if (fcntl(fd, F_DUPFD, KEEPALIVE_FD) < 0) fcntl(fd, F_SETFD, 0);
}

/* Waits until the parent has passed signals on (run_pass_on()), or has died:
 * then the pipe's other end is closed. */
static void child_await(const int *go) {
  char byte;
  close(go[1]);
  while (read(go[0], &byte, 1) < 0 && errno == EINTR) continue;
}

/* The child, from fork() to exec(): asks for a signal at the parent's death,
 * keeps its descriptors, undoes our signal mask.
 *
 * If the parent died before prctl(), that signal would never come; getppid()
 * detects this.  exec() closes the report's pipe, so the parent finds errno in
 * it, or its end. */
_Noreturn static void child_run(const start *s, const int *go) {
  if (s->death) {
    prctl(PR_SET_PDEATHSIG, s->death);
    if (getppid() != s->parent) _exit(STATUS_SIGNAL + s->death);
  }
  if (s->keepalive >= 0) child_keep(s->keepalive);
  if (s->alive >= 0) child_keep(s->alive);
  child_streams(s);
  child_await(go);
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
 *
 * A list of processes from /proc, renewed at each look (process.c).  It grows
 * only by marking children of marked processes, and a process is identified by
 * number and start time, so an unrelated one is never signalled.  running.m is
 * held for every access to r->known.
 * --------------------------------------------------------------------- */

/* Is it in the list?  Its number alone does not decide, since it may have been
 * reused: its start must be the same. */
static bool is_among(const processes *list, const process *p) {
  const process *before = processes_find(list, p->pid);
  return before && before->start == p->start;
}

/* Is it a descendant whatever its parent?  A process that was known before
 * stays one when its parent ends.  If orphans come to us, every child of ours
 * is one, except those of earlier commands; else only the command. */
static bool is_root(const run *r, const process *p) {
  if (is_among(&r->known, p)) return true;
  if (is_among(&r->former, p)) return false;
  return r->adopts ? p->parent == getpid() : p->pid == r->pid;
}

/* Marks the descendants of the command.  The list is sorted by number, so a
 * child may stand before its parent: marking repeats until nothing is added. */
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

/* running.m is held.  Renews r->known; returns how many of them live.  Without
 * memory some are missing. */
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

/* Is it in our group, where the command was started, or in the group to which
 * the command has moved?  An interactive shell, for example, moves itself; its
 * work then is in that group. */
static bool is_in_group(const run *r, const process *p) {
  const process *child = processes_find(&r->known, r->pid);
  return p->group == getpgrp() || (child && p->group == child->group);
}

/* running.m is held.  Sends a signal once to each current descendant of the
 * command.
 *
 *   group  only to those in the command's group
 *
 * The child gets it even if /proc shows nothing, unless it has it already:
 * run_pass_on(). */
static void family_signal_held(run *r, int signal, bool group) {
  family_look(r);
  if (r->pid && !sigismember(&r->early, signal)) kill(r->pid, signal);
  for (size_t i = 0; i < r->known.count; i++) {
    const process *p = &r->known.data[i];
    if (p->pid != r->pid && (!group || is_in_group(r, p)))
      process_signal(p, signal);
  }
}

/* The same for all of them; takes running.m. */
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
 *
 * This section runs on the thread of signals.c, with its mutex and running.m.
 * It passes signals on and wakes the call's thread; it never decides that the
 * run is over.
 * --------------------------------------------------------------------- */

/* Does this signal come from the terminal?  Then the kernel has given it to all
 * processes of the foreground group, and the child has it already.  A hangup is
 * different: only the leader of the terminal's session gets it, and if that is
 * this process, the child has not got it.  SI_KERNEL marks the kernel's
 * signals, unlike those of kill(). */
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

/* running.m is held.  Passes a signal on, as the file's head says under WHO
 * GETS A SIGNAL.  After the child's end it goes to all its descendants, in any
 * group. */
static void run_pass(run *r, int signal) {
  if (ends_us(signal))
    family_signal_held(r, signal, r->pid != 0);
  else if (r->pid)
    kill(r->pid, signal);
}

/* running.m is held, and signals.c's mutex.  Handles one signal; false: it
 * should also cancel the call.
 *
 * SIGCHLD wakes the call's thread, wherever it sleeps.  A signal without a
 * child is not for a child.  run_pass_on() has already given some signals to
 * the child: it gets none of them twice, but its descendants do, if it has any
 * by now.  A command that runs for an event gets the signal, and the call that
 * waits for the next event ends with it. */
static bool run_hear(run *r, const siginfo_t *info) {
  int signal = info->si_signo;
  if (signal == SIGCHLD) {
    r->woken = true;
    pthread_cond_signal(&r->wake);
    zke_wake(r->c->z);
    return true;
  }
  if (!r->pid && !r->stays) return false;
  if (!is_terminals(info)) run_pass(r, signal);
  sigdelset(&r->early, signal);
  sigaddset(&r->heard, signal);
  if (ends_us(signal)) r->asked = r->tell = true;
  if (signal == SIGTERM || signal == SIGHUP) r->stop = signal;
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

/* A cancel calls this, on another thread.  zke_wake() ends zke_wait_turn(); the
 * condition variable is for a deaf run. */
static int run_wake(void *object) {
  run *r = object;
  pthread_mutex_lock(&running.m);
  r->woken = true;
  pthread_cond_signal(&r->wake);
  pthread_mutex_unlock(&running.m);
  return zke_wake(r->c->z);
}

/* Directs signals to this run; NULL: to none.  After signals_hook() has
 * returned, the hook no longer runs, and r may be freed. */
static void run_install(run *r) {
  pthread_mutex_lock(&running.m);
  running.now = r;
  pthread_mutex_unlock(&running.m);
  signals_hook(r ? run_hook : NULL, NULL);
}

/* ------------------------------------------------------------------------
 * Waiting for its end
 *
 * The machine of the file's head.  Each judge_…() checks one thing and may
 * change r->phase; run_wait() calls all of them, then sleeps.  Phases only go
 * forward.
 * --------------------------------------------------------------------- */

/* running.m is held.  The child has ended: do its descendants keep what is
 * held?  Not if it ended by itself, unless with --wait-all, and not if they do
 * not have our descriptor. */
static bool run_must_stay(const run *r) {
  return r->alive >= 0 && (r->all || r->asked || WIFSIGNALED(r->outcome));
}

/* Reaps the child, and, if orphans come to us, those, which would otherwise
 * stay zombies.  No end of the child is missed: either waitpid() here sees it,
 * or the hook, which takes running.m too, sets woken after it was cleared. */
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

/* Not every failed check is a loss: a database may be busy or a disk full, and
 * the lock is still held. */
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

/* Asks the child and its descendants to end.  A stopped process acts on TERM
 * only after it continues, hence CONT. */
static void run_ask(run *r) {
  family_signal(r, SIGTERM);
  family_signal(r, SIGCONT);
  r->phase = ASKED;
  r->until = zke_now(r->c->z) + r->grace_ms;
}

/* Reports on standard error that the lock was lost and the command continues
 * (--on-lost warn). */
static void warn_lost(const run *r) {
  char why[512];
  json_t *row = json_pack("{s:s,s:s,s:s}", "event", "lost", "kind", r->g->kind,
                          "path", r->g->path);
  if (r->c->format == FORMAT_JSON && row) {
    json_dumpf(row, stderr, JSON_COMPACT);
    fputc('\n', stderr);
  } else {
    fputs("zke: LOST: ", stderr);
    loss_text(r->c, &r->loss, why, sizeof why);
    output_sentence(why, stderr);
    fputs("; ", stderr);
    output_sentence(r->c->child[0].text, stderr);
    fputs(" goes on\n", stderr);
  }
  json_decref(row);
}

/* What is held was lost, with this code.  The reason is recorded now, but
 * reported after the command has ended (run_status()): another process may
 * already have the lock, and nothing may delay the end of this command. */
static void run_lose(run *r, int rc) {
  if (!r->g || !r->g->check || r->lost || r->phase > STAYS) return;
  r->lost = rc;
  loss_note(&r->loss, r->c, r->g->kind, r->g->path);
  if (r->warn)
    warn_lost(r);
  else
    run_ask(r);
}

/* Checks whether it is still held; if not, begins the end of the command.
 * After the child's end only processes that STAY need it. */
static void judge_loss(run *r) {
  if (!r->g || !r->g->check || r->lost) return;
  if (r->ended && r->phase != STAYS) return;
  int rc = r->g->check(r->g->object);
  if (is_loss(rc)) run_lose(r, rc);
}

/* Passes a cancel on to the child, once: it may have come before there was a
 * child to which the hook could give the signal. */
static void judge_cancel(run *r) {
  if (r->cancelled || r->ended || !cancel_came(r->c)) return;
  r->cancelled = true;
  int signal = atomic_load(&r->c->signal);
  pthread_mutex_lock(&running.m);
  if (r->pid && !sigismember(&r->heard, signal)) kill(r->pid, signal);
  pthread_mutex_unlock(&running.m);
}

/* ---- processes that stay ---- */

/* Has the last descendant gone?  Then the pipe is at its end: read() returns 0.
 * While any process has the writing end, the read fails with EAGAIN.  Nothing
 * writes into it on purpose; anything written by mistake is discarded. */
static bool stays_are_gone(const run *r) {
  char bytes[64];
  ssize_t n;
  do n = read(r->alive, bytes, sizeof bytes);
  while (n > 0);
  return n == 0;
}

/* Writes which processes keep it, in words or as JSON. */
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

/* Written in one piece, since those processes may write to standard error,
 * too. */
static void stays_say(const run *r) {
  char *text = NULL;
  size_t len;
  json_t *list = holders_of_pipe(r->alive);
  FILE *out = open_memstream(&text, &len);
  if (out) stays_tell(r, list, out);
  if (out && fclose(out) == 0) fputs(text, stderr);
  free(text);
  json_decref(list);
}

/* Begins STAYS, and reports the processes that it waits for: after SAY_MS, in
 * which most processes end by the same signal, and again with each later
 * signal.  With --wait-all the user knows, so it is reported only with
 * --verbose, or after a signal. */
static void judge_stays(run *r) {
  int64_t now = zke_now(r->c->z);
  pthread_mutex_lock(&running.m);
  bool begins = r->stays && r->phase == RUNS;
  bool tells = r->tell && r->phase == STAYS && now >= r->until;
  if (begins) r->tell = !r->all || r->asked || verbose_wanted(r->c);
  if (tells) r->tell = false;
  pthread_mutex_unlock(&running.m);
  if (begins) {
    r->phase = STAYS;
    r->until = now + SAY_MS;
    r->pause = LOOK_MS;
  }
  if (tells && !stays_are_gone(r)) stays_say(r);
}

/* Goes on from asking to killing, and from killing to giving up, when the
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

/* Is there nothing left to wait for?  After a loss there is nothing to keep in
 * STAYS: with --on-lost warn the descendants are not ended either. */
static bool run_over(run *r) {
  if (r->phase == LEFT) return true;
  if (r->phase == RUNS) return r->ended;
  if (r->phase == STAYS) return r->lost || stays_are_gone(r);
  return r->ended && family_is_gone(r);
}

/* Sleeps on the condition variable until the deadline, a cancel or a child's
 * end.  Without a deadline it looks again each second, to be safe. */
static void run_sleep_deaf(run *r, int64_t deadline) {
  int64_t ms = deadline - zke_now(r->c->z);
  if (deadline == ZKE_FOREVER) ms = 1000;
  struct timespec t = clock_after(ms);
  pthread_mutex_lock(&running.m);
  while (ms > 0 && !r->woken &&
         pthread_cond_timedwait(&r->wake, &running.m, &t) == 0)
    continue;
  pthread_mutex_unlock(&running.m);
}

/* When to look next.  RUNS needs no looks: events wake it.  No event reports a
 * descendant's end, so the other phases look; processes may STAY for hours, so
 * the pauses grow up to STAYS_MS. */
static int64_t run_pause(run *r) {
  if (r->phase == RUNS) return ZKE_FOREVER;
  if (r->phase != STAYS) return zke_now(r->c->z) + (int64_t)LOOK_MS;
  int64_t pause = r->pause;
  if (2 * pause <= STAYS_MS) r->pause = 2 * pause;
  return zke_now(r->c->z) + pause;
}

/* Sleeps until something may have changed since `turn` was read.  If the
 * session is over, its handle is useless: that is a loss, and from then on this
 * waits on the condition variable instead. */
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

/* The machine of the file's head: checks everything, then sleeps, until it is
 * over.  The turn is read before the checks, so that no event is missed between
 * a check and the sleep. */
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
 * From start to end
 *
 * Everything that the child needs is made before the fork, and released in the
 * opposite order on the only way out, after any failure.
 * --------------------------------------------------------------------- */

/* Gives the child the terminal's signals that are pending here right after the
 * fork, while signals.c takes none.  If such a signal came before the fork, the
 * child does not have it, since pending signals are not inherited.  If it came
 * after, the child has it pending, too, since it takes none before we are done
 * (child_await()), and a second one of the same number merges with it.  Either
 * way the child gets it once, and run_hear() does not pass it on when it is
 * taken here. */
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

/* Forks while signals.c takes no signal: so each signal finds either no child,
 * and cancels the call before the fork, or a child that gets it.  Flushes
 * standard output first, or the child would have a copy of its buffer. */
static int run_fork(run *r, const start *s) {
  call *c = r->c;
  pid_t pid = -1;
  int go[2] = {-1, -1};
  (void)fflush(stdout);
  signals_hold();
  pthread_mutex_lock(&running.m);
  bool late = cancel_came(c);
  if (!late && pipe2(go, O_CLOEXEC) == 0) pid = fork();
  if (pid == 0) child_run(s, go);
  r->pid = pid > 0 ? pid : 0;
  int why = errno;
  if (r->pid) run_pass_on(r);
  if (go[0] >= 0) close(go[0]);
  if (go[1] >= 0) close(go[1]); /* the child continues */
  pthread_mutex_unlock(&running.m);
  signals_release();
  if (late) return fail_cancelled(c);
  errno = why;
  return pid > 0 ? 0 : fail_errno(c, STATUS_SYSTEM, "cannot fork");
}

/* Lets orphans become our children, if a loss is possible and this process had
 * no child before its first command: with others, waitpid(-1) would take their
 * ends, too.
 *
 * Any later child was left by a command of ours.  No other code waits for
 * those, so this reaps them; the living ones are recorded, with their
 * descendants, as not of this command. */
static void run_adopt(run *r) {
  static bool alone; /* all children are our commands'; call's thread */
  siginfo_t info;
  if (!alone) alone = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0;
  while (alone && waitpid(-1, NULL, WNOHANG) > 0) continue;
  if (!alone || !r->g || !r->g->check) return;
  r->adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  pthread_mutex_lock(&running.m);
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    family_look(r);
    r->former = r->known;
    r->known = (processes){NULL, 0};
  }
  pthread_mutex_unlock(&running.m);
}

/* Makes the two descriptors by which descendants keep what is held; none if
 * nothing is held, or with --close.  Only the session of a file can outlive
 * this process; in memory and on an ensemble the pipe is the only one. */
static int run_keepalive(run *r, start *s) {
  int ends[2];
  if (!r->g || r->close) return 0;
  int rc = zke_keepalive_fd(r->c->z, &s->keepalive);
  if (rc != ZKE_OK && rc != ZKE_UNIMPLEMENTED) return fail_rc(r->c, rc);
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return fail_errno(r->c, STATUS_SYSTEM, "cannot make a pipe");
  r->alive = ends[0];
  s->alive = ends[1];
  return 0;
}

/* If the child left errno in the pipe, because it could not be executed,
 * returns the exit code for that; otherwise 0. */
static int run_unexecuted(run *r) {
  call *c = r->c;
  int why;
  if (read(r->report, &why, sizeof why) != sizeof why) return 0;
  int status = STATUS_CANNOT_RUN;
  const char *code = "CANNOTRUN";
  if (why == ENOENT) {
    status = STATUS_NOT_FOUND;
    code = "NOTFOUND";
  }
  return fail_with(c, status, code, "cannot run \"%s\": %s", c->child[0].text,
                   strerror(why));
}

/* Has the signal that ended the child come to this process, too?  The kernel
 * gives a signal to all of a group before one of them can be reaped.  But ours
 * may not be taken yet: then it is pending.  Or it was taken after the child
 * was reaped, and has cancelled the call. */
static bool run_got(const run *r, int signal) {
  sigset_t pending;
  signals_hold();
  bool got = sigismember(&r->heard, signal) == 1 ||
             atomic_load(&r->c->signal) == signal ||
             (sigpending(&pending) == 0 && sigismember(&pending, signal) == 1);
  signals_release();
  return got;
}

/* This signal ended the child.  If it had come to this process, too, then
 * main() also ends by it, as its sender expects. */
static int run_signalled(run *r, int signal) {
  shell *sh = r->c->sh;
  if (run_got(r, signal)) {
    pthread_mutex_lock(&sh->m);
    sh->died_by = signal;
    pthread_mutex_unlock(&sh->m);
  }
  return STATUS_SIGNAL + signal;
}

/* What is held was lost: reports why, now that the command has ended. */
static int fail_lost(run *r) {
  char why[512];
  loss_text(r->c, &r->loss, why, sizeof why);
  if (r->phase != LEFT) return fail_with(r->c, STATUS_LOST, "LOST", "%s", why);
  return fail_with(r->c, STATUS_LOST, "LOST",
                   "%s, and %zu of its command's processes cannot be killed",
                   why, r->known.count);
}

/* The command's result as an exit code. */
static int run_status(run *r) {
  if (r->lost) return fail_lost(r);
  int status = run_unexecuted(r);
  if (status) return status;
  if (WIFSIGNALED(r->outcome)) return run_signalled(r, WTERMSIG(r->outcome));
  return WEXITSTATUS(r->outcome);
}

/* From the fork to the last process's end; the exit code.
 *
 *   status  of the preparations: the child starts only with 0
 *
 * The child's ends of the pipes are closed in any case, so that the other ends
 * see when the child's copies are gone.  A command on the command line ends as
 * its child does, however it took the signal; but a script that was asked to
 * end does not begin the next line.  INT may be meant for the child alone, as
 * in other shells. */
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
  if (r->stop && r->c->sh->persists && !r->c->sh->person) signals_stop(r->stop);
  free(r->known.data);
  free(r->former.data);
  return status;
}

/* Makes the child's standard input, if the caller gave bytes for it.  It is an
 * unnamed file: a pipe would block us if the child does not read.  Close
 * *fd_out even on failure, unless it is -1. */
static int run_input(run *r, int *fd_out) {
  if (!r->g || !r->g->input) return 0;
  const char *at = r->g->input, *end = at + r->g->input_len;
  int fd = *fd_out = memfd_create("zke", MFD_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : 0;
  for (; n >= 0 && at < end; at += n) n = write(fd, at, (size_t)(end - at));
  if (n >= 0 && lseek(fd, 0, SEEK_SET) == 0) return 0;
  return fail_errno(r->c, STATUS_SYSTEM, "cannot pass on the data");
}

/* Makes everything that the child needs, runs it, and releases everything.
 * After the report's pipe is made, the end below releases all, after any
 * failure: -1 and NULL mean that something was not made. */
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
                   ? fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory")
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

/* run_begin() with a condition variable, whose clock does not jump when the
 * time is set. */
static int run_all(run *r, const char *const *more, int count) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&r->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  sigemptyset(&r->heard);
  int status = run_begin(r, more, count);
  pthread_cond_destroy(&r->wake);
  if (r->g && r->g->asked) *r->g->asked = r->asked;
  return status;
}

/* Runs the command while the call holds something, and returns when that may be
 * released, as the file's head says; the caller releases it. */
int guard_run(call *c, const guard *g) {
  run r = {.c = c, .g = g, .alive = -1};
  int status = run_options(&r);
  return status ? status : run_all(&r, g->more, g->more_count);
}

/* Runs a command for an event, without a lock: nothing can be lost. */
int guard_event(call *c, const char *const *more, int count) {
  run r = {.c = c, .alive = -1, .grace_ms = 5000};
  return run_all(&r, more, count);
}
