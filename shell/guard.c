/* guard.c - a command of the user's, run while something is held
 *
 * The command ("the child") is started with the user's words as they are.
 * While it runs this thread waits, dispatching, for three things: the child's
 * end, the loss of what is held, and a cancel.  Signals are passed on by the
 * thread of signals.c.  Start with guard_run(); run_wait() is the machine:
 *
 *     RUNS     the child runs
 *      |         it has ended by itself -----------------> its exit code
 *      |         it could not be executed ---------------> 127 or 126
 *      |       it has ended, and a signal did that, or --wait-all was given:
 *     STAYS    its descendants keep what is held
 *      |         all of them are gone -------------------> its exit code, or
 *      |                                                   128 + the signal
 *      |       in RUNS or STAYS: what is held was lost (not --on-lost warn)
 *     ASKED    TERM and CONT went to the child and its descendants
 *      |         all of them have ended -----------------> 76
 *      |       --grace is over
 *     KILLED   KILL goes to them, at each look
 *      |         all of them have ended -----------------> 76
 *      |       5 s are over
 *     LEFT     some cannot be killed: another user's, or stuck in the kernel
 *                ----------------------------------------> 76
 *
 * With --on-lost warn a loss is told, and the machine stays in RUNS until the
 * child has ended; the exit code is 76 then, too.
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
 *   TERM and HUP end a script behind the command, whatever that made of them.
 * - Others, such as USR1, are for the child alone, which may expect them.
 *
 * WHEN A SIGNAL ENDS THE CHILD its work may go on: in a descendant that ignores
 * the signal, or that is in another group.  Nobody else may get in meanwhile.
 * The child and its descendants inherit two descriptors: the one that keeps
 * the session alive, and the writing end of a pipe on which nobody writes.  The
 * reading end is ours, and tells us when the last of them is gone.  They have
 * high numbers, so that a script's own 3 to 9 do not replace them.
 *
 * WHEN THIS PROCESS IS KILLED:
 *
 * - What is held stays held until the last process that has the keep-alive
 *   descriptor is gone, or has closed it.
 * - The child gets a signal: TERM, since with the descriptor there is time for
 *   it to clean up; KILL with --close, since without the descriptor the next
 *   holder is already on its way; none with --outlive.
 *
 * When the child ends by itself, what is held is given up, whatever the child
 * has left running: ending a session does not ask about descriptors.
 *
 * The descendants are read from /proc.  Orphans become our children
 * (PR_SET_CHILD_SUBREAPER), so that they are found too.  That is not done if
 * this process had children before it was executed, since their ends would be
 * taken from whoever expects them: then a process whose parent ended before
 * the loss is missed.  What a command has left running is not of the next
 * command that this process runs.  But what such a leftover forks
 * meanwhile counts as the next command's as soon as its own parent has ended,
 * and is ended with that command on a loss.
 *
 * There is one child at a time: a coprocess, whose calls run at once, runs no
 * commands.
 *
 * THREADS.  Two: the call's, which runs everything but the section "Signals,
 * on their thread", and the one of signals.c.  What both use is guarded by
 * running.m.  The order of the mutexes is signals.c's first, then running.m.
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
  LOOK_MS = 20,       /* between looks at those that are to end */
  SAY_MS = 100,       /* before a word about those that stay */
  STAYS_MS = 500,     /* between looks at those that stay for long */
  RETRY_MS = 100,     /* where the database could not be asked */
  KILL_MS = 5000      /* how long to wait for what was killed */
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
  sigset_t heard;  /* signals that came while it, or what it left, ran */
  bool asked;      /* INT, TERM, HUP or QUIT has come */
  int stop;        /* TERM or HUP has: it ends a script, too; 0: none */
  bool stays;      /* it has ended, and its descendants are waited for */
  bool tell;       /* it is to be said which these are */
  sigset_t early;  /* signals that it was given before we took ours */
  bool woken;      /* the condition variable's predicate */
  processes known; /* descendants, as last seen */

  /* the call's thread's alone */
  pthread_cond_t wake; /* with running.m: replaces the handle while deaf */
  bool deaf;           /* the handle cannot be waited on any more */
  bool adopts;         /* orphans become our children */
  bool ended;          /* the child; outcome is waitpid()'s */
  bool cancelled;      /* that was seen, and passed on */
  int outcome;
  int report;       /* a pipe: errno, if the child could not be executed */
  int alive;        /* a pipe: ends when no descendant is left; -1: none */
  processes former; /* descendants that earlier commands left behind; they are
                       not this command's */
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
 * OPTIONS_GUARD of shell.h, read once before anything is held, so that a
 * mistake in them costs nobody a lock, and a second time into the run.
 * --------------------------------------------------------------------- */

/* Only checks them, before anything is held; guard_run() reads them again.  A
 * word of the child becomes a string of C, so a NUL in it, which a script can
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
 * The words go to the child as they are. In the environment is what it may
 * want to know of its lock: the database, the session and the token.  A zke
 * inside of it also learns which process waits for it.
 * --------------------------------------------------------------------- */

/* A list of texts as execvpe() takes it. */
typedef struct texts {
  char **data;  /* ends by NULL; NULL itself before the first text */
  size_t count; /* without that NULL */
  bool failed;  /* there was no memory for one; it stays so */
} texts;

/* Adds a formatted text; the list ends by NULL at any time.  Without memory
 * failed is set, and whoever wants the list looks at it once, at the end. */
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

/* Is this variable not to be inherited?  That is so if it is set anew, and for
 * everything that an outer zke said of its own lock and session: a command that
 * is run for an event, under no lock, must not take these for ours. */
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

/* The inherited environment without what is replaced, then what the command
 * needs to find the database and the session, then more.  The file is told by
 * its whole path, since the command may work in another directory. */
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
 * This process has several threads, of which only the one that forks is in the
 * child.  A lock that another thread had at that moment stays locked there for
 * ever.  So the child takes none: it makes system calls, and calls execvpe(),
 * which in the C library neither locks nor allocates.  All memory that it needs
 * was made before the fork.
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
  int input;     /* what it gets as standard input; -1: ours */
  int report;    /* where errno is written to; closes by exec() */
} start;

/* Sets standard input: what the command is to read, nothing, or ours.  "null"
 * is 0 where standard input was closed before: then it is in its place already,
 * and must stay open; -1 leaves the child with our input. */
static void child_streams(const start *s) {
  int null = s->input < 0 && s->no_input ? open("/dev/null", O_RDONLY) : -1;
  if (s->input >= 0) dup2(s->input, STDIN_FILENO);
  if (null > 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
}

/* Lets a descriptor survive the exec(): under a high number, or, where the
 * limit is too low for that, under the one that it has. */
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
 * The parent may have died before prctl(): that signal would never come, and
 * getppid() tells.  The report's pipe closes by itself in exec(), so that the
 * parent finds errno in it, or its end. */
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
 * A list of processes from /proc, renewed at each look (process.c). It only
 * grows by marking children of what is marked, and a process is known by
 * number and time of start, so a stranger is never signalled. running.m is
 * held for all that reads or changes r->known.
 * --------------------------------------------------------------------- */

/* Is it in the list?  Its number alone does not tell, since it may be another
 * process by now: its start must be the same. */
static bool is_among(const processes *list, const process *p) {
  const process *before = processes_find(list, p->pid);
  return before && before->start == p->start;
}

/* Is it a descendant by itself, whatever its parent?  One that was known before
 * stays one when its parent ends.  Where orphans come to us, every child of
 * ours is one, but for what earlier commands have left; else only the
 * command. */
static bool is_root(const run *r, const process *p) {
  if (is_among(&r->known, p)) return true;
  if (is_among(&r->former, p)) return false;
  return r->adopts ? p->parent == getpid() : p->pid == r->pid;
}

/* Marks the descendants of the command.  The list is by number, so that a child
 * may stand before its parent: marking is repeated until nothing is added. */
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

/* Is it in our group, where the command was started, or in the group that the
 * command has moved to?  A command may move itself, as an interactive shell
 * does; its work then is in that group. */
static bool is_in_group(const run *r, const process *p) {
  const process *child = processes_find(&r->known, r->pid);
  return p->group == getpgrp() || (child && p->group == child->group);
}

/* running.m is held.  Sends a signal once to each process that descends from
 * the command at this moment.
 *
 *   group  only to those in the command's group
 *
 * The child gets it even where /proc tells nothing, unless it has it already:
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
 * What follows runs on the thread of signals.c, with its mutex and running.m.
 * It passes signals on and wakes the call's thread; it never decides that the
 * run is over.
 * --------------------------------------------------------------------- */

/* Does this signal come from the terminal?  Then the kernel has given it to all
 * processes of the foreground group, and the child has it already.  A hangup is
 * different: the leader of the terminal's session gets it alone, and if that
 * is this process, the child has not heard of it.  SI_KERNEL tells the
 * kernel's signals from those of kill(). */
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
 * GETS A SIGNAL.  After the child's end it is for all that the child has left,
 * in whatever group. */
static void run_pass(run *r, int signal) {
  if (ends_us(signal))
    family_signal_held(r, signal, r->pid != 0);
  else if (r->pid)
    kill(r->pid, signal);
}

/* running.m is held, and signals.c's mutex.  Deals with one signal; false: the
 * call is to be cancelled by it as well.
 *
 * SIGCHLD wakes the call's thread, wherever it sleeps.  A signal that comes
 * while there is no child is not for a child.  run_pass_on() has given the
 * child some signals already: it gets none of them a second time, but its
 * descendants do, if it has any by now.  A command that is run for an event
 * gets the signal, and the call that waits for the next event ends with it. */
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

/* What a cancel calls, on another thread.  zke_wake() ends zke_wait_turn();
 * the condition variable is for a run that is deaf. */
static int run_wake(void *object) {
  run *r = object;
  pthread_mutex_lock(&running.m);
  r->woken = true;
  pthread_cond_signal(&r->wake);
  pthread_mutex_unlock(&running.m);
  return zke_wake(r->c->z);
}

/* Directs signals to this run; NULL: to none.  After signals_hook() has
 * returned, the hook does not run any more, and r may go. */
static void run_install(run *r) {
  pthread_mutex_lock(&running.m);
  running.now = r;
  pthread_mutex_unlock(&running.m);
  signals_hook(r ? run_hook : NULL, NULL);
}

/* ------------------------------------------------------------------------
 * Waiting for its end
 *
 * The machine of the file's head. Each judge_…() looks at one thing and may
 * change r->phase; run_wait() calls all of them, then sleeps. Phases go
 * forward only.
 * --------------------------------------------------------------------- */

/* running.m is held.  The child has ended: do its descendants keep what is
 * held?  Not if it ended by itself, unless --wait-all says so, and not if they
 * have no descriptor of ours. */
static bool run_must_stay(const run *r) {
  return r->alive >= 0 && (r->all || r->asked || WIFSIGNALED(r->outcome));
}

/* Takes in the child's end, and, where orphans come to us, theirs, which would
 * stay zombies else.  A child's end is either seen by waitpid() here, or the
 * hook, which takes running.m too, sets woken after it was cleared: it is never
 * slept through. */
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

/* Asks the child and its descendants to end.  One that was stopped acts on TERM
 * only when it goes on, hence CONT. */
static void run_ask(run *r) {
  family_signal(r, SIGTERM);
  family_signal(r, SIGCONT);
  r->phase = ASKED;
  r->until = zke_now(r->c->z) + r->grace_ms;
}

/* Says on standard error that the lock was lost and the command goes on
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

/* What is held was lost, with this code.  Why is noted now, but told when the
 * command has ended (run_status()): another one may have the lock already, and
 * nothing may delay the end of this command. */
static void run_lose(run *r, int rc) {
  if (!r->g || !r->g->check || r->lost || r->phase > STAYS) return;
  r->lost = rc;
  loss_note(&r->loss, r->c, r->g->kind, r->g->path);
  if (r->warn)
    warn_lost(r);
  else
    run_ask(r);
}

/* Asks whether what is held is held still; if not, begins the end of the
 * command.  After the child's end nobody needs it but those that STAY. */
static void judge_loss(run *r) {
  if (!r->g || !r->g->check || r->lost) return;
  if (r->ended && r->phase != STAYS) return;
  int rc = r->g->check(r->g->object);
  if (is_loss(rc)) run_lose(r, rc);
}

/* Passes a cancel on to the child, once: it may have come while there was no
 * child that the hook could give the signal to. */
static void judge_cancel(run *r) {
  if (r->cancelled || r->ended || !cancel_came(r->c)) return;
  r->cancelled = true;
  int signal = atomic_load(&r->c->signal);
  pthread_mutex_lock(&running.m);
  if (r->pid && !sigismember(&r->heard, signal)) kill(r->pid, signal);
  pthread_mutex_unlock(&running.m);
}

/* ---- those that stay ---- */

/* Has the last descendant gone?  Then the pipe is at its end: read() returns 0.
 * While one has the writing end, the read fails with EAGAIN.  Nobody writes
 * into it on purpose; what stands there by mistake is thrown away. */
static bool stays_are_gone(const run *r) {
  char bytes[64];
  ssize_t n;
  do n = read(r->alive, bytes, sizeof bytes);
  while (n > 0);
  return n == 0;
}

/* Writes for whom the place is kept, in words or as JSON.  `list` is what
 * holders_list() has found. */
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

/* Written in one piece, since those that stay may write to standard error,
 * too. */
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

/* Begins STAYS, and tells whom it waits for: after SAY_MS, in which most of
 * what the same signal ends is gone, and again with each later signal.  With
 * --wait-all the user knows, and it is told only where the user asked, or a
 * signal came. */
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

/* Is there nothing left to wait for?  In STAYS after a loss there is nothing to
 * keep any more: with --on-lost warn the descendants are not ended either. */
static bool run_over(run *r) {
  if (r->phase == LEFT) return true;
  if (r->phase == RUNS) return r->ended;
  if (r->phase == STAYS) return r->lost || stays_are_gone(r);
  return r->ended && family_is_gone(r);
}

/* Sleeps on the condition variable until the deadline, a cancel or a child's
 * end.  Without a deadline it looks again each second, to be sure. */
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

/* When to look next.  RUNS needs no looks: events wake it.  Nothing tells of a
 * descendant's end, so the other phases look; those that STAY may do so for
 * hours, so that the pauses grow up to STAYS_MS. */
static int64_t run_pause(run *r) {
  if (r->phase == RUNS) return ZKE_FOREVER;
  if (r->phase != STAYS) return zke_now(r->c->z) + (int64_t)LOOK_MS;
  int64_t pause = r->pause;
  if (2 * pause <= STAYS_MS) r->pause = 2 * pause;
  return zke_now(r->c->z) + pause;
}

/* Sleeps until something may have changed since `turn` was read.  A handle that
 * says that its session is over is of no use any more: that is a loss, and from
 * then on the condition variable is waited on instead. */
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

/* The machine of the file's head: looks at everything, then sleeps, until it is
 * over.  The turn is read before the looks, so that no event falls between a
 * look and the sleep. */
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
 *
 * Everything that the child needs is made before the fork, and taken away in
 * the opposite order on the one way out, whatever has failed.
 * --------------------------------------------------------------------- */

/* Gives the child the terminal's signals that are pending here right after the
 * fork, while signals.c takes none.  Such a signal came either before the fork:
 * then the child has not got it, since pending signals are not inherited.  Or
 * it came after: then the child has it pending, too, since it takes none before
 * we are done (child_await()), and a second one of the same number merges with
 * it.  Either way the child gets it once, and run_hear() leaves it out when it
 * is taken here. */
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

/* Forks, while signals.c takes no signal: so each signal finds either no child,
 * and cancels the call before the fork, or a child that gets it.  Standard
 * output is flushed first, or the child would have a copy of what is in it. */
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
  if (go[1] >= 0) close(go[1]); /* the child goes on */
  pthread_mutex_unlock(&running.m);
  signals_release();
  if (late) return fail_cancelled(c);
  errno = why;
  return pid > 0 ? 0 : fail_errno(c, STATUS_SYSTEM, "cannot fork");
}

/* Lets orphans become our children, if there is a loss to be feared and this
 * process had no child before its first command: with others, waitpid(-1) would
 * take their ends, too.
 *
 * Whatever child is there later was left by a command of ours.  Nobody else
 * waits for those, so their ends are taken in here; those that live are noted,
 * with their descendants, as not of this command. */
static void run_adopt(run *r) {
  static bool alone; /* all children are of our commands; the call's thread's */
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

/* Makes the two descriptors by which descendants keep what is held; none where
 * nothing is held, or with --close.  A database in memory has no session that
 * could be kept alive, and that of an ensemble ends with this process. */
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

/* Has the child left errno in the pipe, because it could not be executed?  The
 * exit code for that, or 0. */
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

/* Has this signal, which has ended the child, come to this process, too?  The
 * kernel gives a signal to all of a group before one of them can be reaped.
 * But ours may not be taken yet: then it is pending.  Or it was taken when the
 * child was reaped already, and has cancelled the call. */
static bool run_got(const run *r, int signal) {
  sigset_t pending;
  signals_hold();
  bool got = sigismember(&r->heard, signal) == 1 ||
             atomic_load(&r->c->signal) == signal ||
             (sigpending(&pending) == 0 && sigismember(&pending, signal) == 1);
  signals_release();
  return got;
}

/* The child was ended by this signal.  If it had come to this process, too,
 * then main() ends by it as well, which is what its sender expects. */
static int run_signalled(run *r, int signal) {
  shell *sh = r->c->sh;
  if (run_got(r, signal)) {
    pthread_mutex_lock(&sh->m);
    sh->died_by = signal;
    pthread_mutex_unlock(&sh->m);
  }
  return STATUS_SIGNAL + signal;
}

/* What was held was lost: says why, now that the command has ended. */
static int fail_lost(run *r) {
  char why[512];
  loss_text(r->c, &r->loss, why, sizeof why);
  if (r->phase != LEFT) return fail_with(r->c, STATUS_LOST, "LOST", "%s", why);
  return fail_with(r->c, STATUS_LOST, "LOST",
                   "%s, and %zu of its command's processes cannot be killed",
                   why, r->known.count);
}

/* What the command has come to, as an exit code. */
static int run_status(run *r) {
  if (r->lost) return fail_lost(r);
  int status = run_unexecuted(r);
  if (status) return status;
  if (WIFSIGNALED(r->outcome)) return run_signalled(r, WTERMSIG(r->outcome));
  return WEXITSTATUS(r->outcome);
}

/* From the fork to the last process's end; the exit code.
 *
 *   status  of what was made for the child: only with 0 it is started
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

/* Makes the child's standard input, if the caller gave bytes for it.  It is a
 * file without a name: a pipe would block us where the child does not read.
 * *fd_out is to be closed also where this fails, unless it is -1. */
static int run_input(run *r, int *fd_out) {
  if (!r->g || !r->g->input) return 0;
  const char *at = r->g->input, *end = at + r->g->input_len;
  int fd = *fd_out = memfd_create("zke", MFD_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : 0;
  for (; n >= 0 && at < end; at += n) n = write(fd, at, (size_t)(end - at));
  if (n >= 0 && lseek(fd, 0, SEEK_SET) == 0) return 0;
  return fail_errno(r->c, STATUS_SYSTEM, "cannot pass on the data");
}

/* Makes everything that the child needs, runs it, and takes it all away.  After
 * the report's pipe everything is taken away at the one end below, whatever has
 * failed: -1 and NULL stand for what was not made. */
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

/* run_begin() with the condition variable around it, whose clock does not jump
 * when somebody sets the time. */
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

/* Runs the command under what the call holds, and returns when that may be
 * given up, as the file's head says; giving it up is the caller's. */
int guard_run(call *c, const guard *g) {
  run r = {.c = c, .g = g, .alive = -1};
  int status = run_options(&r);
  return status ? status : run_all(&r, g->more, g->more_count);
}

/* Runs a command for an event, under no lock: nothing can be lost. */
int guard_event(call *c, const char *const *more, int count) {
  run r = {.c = c, .alive = -1, .grace_ms = 5000};
  return run_all(&r, more, count);
}
