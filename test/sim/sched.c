/* sched.c - see sched.h */
#include "test/sim/sched.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/lab/fiber.h"
#include "test/sim/plan.h"
#include "test/sim/story.h"

enum { STACK = 512 * 1024, FREE_STACKS = SIM_SLOTS * SIM_THREADS };

enum state { READY, WAITING, OVER };

typedef struct fiber {
  void *sp;
  char *stack;
  sched_process *p;
  int number; /* of the thread in its process; 0: the first */
  void (*fn)(int slot);
  enum state state;
  int64_t until;       /* WAITING: at most until then, */
  struct pollfd *fds;  /* or until one of these is ready, */
  unsigned count;      /* */
  const void *address; /* or until this is woken */
  bool woken;
  int64_t priority;
  int torn;        /* it dies inside its current call; else -1 */
  char *variables; /* the thread's variables while another one runs */
  bool first;      /* its end is the process's end */
  bool rests;      /* its last call was a pause by the program */
  bool leaves;     /* a cancellation ends its sleep */
  sched_cancel cancel;
} fiber;

typedef struct slot {
  sched_process *p;
  fiber *thread[SIM_THREADS];
  char *variables;         /* the process's variables while another one runs */
  int64_t calls;           /* of all processes in the slot */
  int64_t count[CALL_any]; /* the same by name */
  bool aimed[CALL_any];    /* there is a fault for calls of that name */
  int64_t next_fault;      /* and the first fault for any call */
} slot;

static sched_hooks hooks;
static slot slots[SIM_SLOTS];
static fiber *running;
static void *main_sp;
static bool cut;
static int64_t host_fault_at; /* the step of the next fault of the host */
static fiber *urgent;         /* it must fork now, before any other runs */
static int64_t lowest;        /* the lowest priority so far */
static char *free_stack[FREE_STACKS];
static int free_stacks;

/* ---- variables of the engine ---- */

/* zkembed.c's variables: a copy of each section for those that do not run
 * (engine.c).  The sections themselves belong to `in_process` and
 * `in_thread`. */
extern char __start_sim_thread[], __stop_sim_thread[];
extern char __start_sim_process[], __stop_sim_process[];

static char *clean_thread, *clean_process;
static fiber *in_thread;
static slot *in_process;

/* The sizes of the two sections. */
static size_t thread_size(void) {
  return (size_t)(__stop_sim_thread - __start_sim_thread);
}

static size_t process_size(void) {
  return (size_t)(__stop_sim_process - __start_sim_process);
}

/* A copy of a section, for a new thread or process. */
static char *copy_of(const char *from, size_t size) {
  char *copy = sim_zero(size);
  memcpy(copy, from, size);
  return copy;
}

/* Put a fiber's variables into the sections. */
static void variables_load(fiber *f) {
  slot *s = &slots[f->p->slot];
  if (in_thread != f) {
    if (in_thread)
      memcpy(in_thread->variables, __start_sim_thread, thread_size());
    memcpy(__start_sim_thread, f->variables, thread_size());
    in_thread = f;
  }
  if (in_process != s) {
    if (in_process)
      memcpy(in_process->variables, __start_sim_process, process_size());
    memcpy(__start_sim_process, s->variables, process_size());
    in_process = s;
  }
}

/* ---- who runs ---- */

sched_process *sched_self(void) { return running ? running->p : NULL; }
int sched_slot(void) { return running ? running->p->slot : -1; }
int sched_thread(void) { return running ? running->number : 0; }

/* Has the running process more than one thread, or had it? */
bool sched_has_threads(void) {
  const slot *s = &slots[running->p->slot];
  for (int i = 1; i < SIM_THREADS; i++)
    if (s->thread[i]) return true;
  return false;
}

sched_process *sched_process_of(int number) { return slots[number].p; }

/* Does a process run or stand still in the slot? */
bool sched_lives(int number) {
  const sched_process *p = slots[number].p;
  return p && !p->dying && !p->gone;
}

/* Can a process begin in the slot? */
bool sched_is_free(int number) {
  return !slots[number].p || slots[number].p->gone;
}

/* For how long a slot's process has stood still in total. */
int64_t sched_stopped_ns(int number) {
  const sched_process *p = slots[number].p;
  if (!p) return 0;
  return p->stopped_ns + (p->stopped ? sim.now - p->stopped : 0);
}

/* Return to the scheduler; it continues here by run(). */
static void leave(void) {
  fiber *f = running;
  fiber_switch(&f->sp, main_sp);
}

/* The running fiber ends; with the first one, its process. */
static void fiber_return(void) {
  fiber *f = running;
  f->state = OVER;
  sim_tell('e', "returns");
  if (f->first) {
    hooks.returned(f->p);
    f->p->dying = true;
  }
  for (;;) leave();
}

/* The process ends in the middle of its stack frames. */
void sched_return(void) {
  fiber_return();
  abort();
}

/* Each fiber begins here. */
static void fiber_main(void) {
  running->fn(running->p->slot);
  fiber_return();
}

/* A thread is made, with fresh variables; it does not run yet. */
static void fiber_begin(sched_process *p, int number, void (*fn)(int)) {
  fiber *f = sim_zero(sizeof *f);
  *f =
      (fiber){.p = p, .number = number, .fn = fn, .torn = -1, .first = !number};
  f->priority = (int64_t)sim_random(SIM_ORDER, 1000000) + 1000000;
  f->variables = copy_of(clean_thread, thread_size());
  if (free_stacks) {
    f->stack = free_stack[--free_stacks];
  } else {
    f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->stack == MAP_FAILED) sim_bug("out of memory");
  }
  f->sp = fiber_make(f->stack + STACK, fiber_main);
  slots[p->slot].thread[number] = f;
  story_tell('b', p->slot, number, "begins");
}

/* A fiber ends, or vanishes with its process. */
static void fiber_end(slot *s, int number) {
  fiber *f = s->thread[number];
  s->thread[number] = NULL;
  if (!f) return;
  if (in_thread == f) in_thread = NULL;
  if (urgent == f) urgent = NULL;
  if (free_stacks < FREE_STACKS) free_stack[free_stacks++] = f->stack;
  free(f->variables);
  free(f);
}

/* All fibers of a process end. */
static void fibers_end(slot *s) {
  for (int i = 0; i < SIM_THREADS; i++) fiber_end(s, i);
}

/* When must a slot look for faults?  At calls with names that have faults, and
 * from the first fault for any call on. */
static void faults_note(slot *s, int number) {
  s->next_fault = SIM_NEVER;
  memset(s->aimed, 0, sizeof s->aimed);
  for (int i = 0; i < the_plan.faults; i++) {
    const plan_fault *f = &the_plan.fault[i];
    if (f->done || f->follows || f->slot != number) continue;
    if (f->call != CALL_any)
      s->aimed[f->call] = true;
    else if (f->at < s->next_fault)
      s->next_fault = f->at;
  }
}

/* A fault has struck: others may follow it. */
static void faults_note_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++) faults_note(&slots[i], i);
  host_fault_at = plan_next_host();
}

/* The running thread, or the n-th after it, if it may be cancelled. */
static fiber *cancel_target(int64_t n) {
  const slot *s = &slots[running->p->slot];
  fiber *f = s->thread[(running->number + n) % SIM_FORKER];
  return f && f->cancel.back ? f : NULL;
}

static bool may_cancel(int64_t n) { return cancel_target(n) != NULL; }

/* What plan.c counts: calls of a slot, or steps. */
static int64_t count_of(int number, sim_call call) {
  if (number < 0) return sim.steps;
  const slot *s = &slots[number];
  return call == CALL_any ? s->calls : s->count[call];
}

/* The run begins: keep the sections as each new process finds them. */
void sched_begin(const sched_hooks *given) {
  hooks = *given;
  plan_count = count_of;
  plan_may_cancel = may_cancel;
  clean_thread = copy_of(__start_sim_thread, thread_size());
  clean_process = copy_of(__start_sim_process, process_size());
  faults_note_all();
}

/* A new process in a free slot, with the parent's descriptors if it is forked;
 * it has no thread yet. */
static sched_process *process_new(int number, const sched_process *parent) {
  slot *s = &slots[number];
  if (!sched_is_free(number)) sim_bug("slot %d is taken", number);
  int pid = s->p && s->p->execs ? s->p->pid : hooks.pid(number);
  free(s->p);
  free(s->variables);
  s->variables = NULL;
  if (in_process == s) in_process = NULL;
  s->p = sim_zero(sizeof *s->p);
  s->p->slot = number;
  s->p->pid = pid;
  s->p->files = hooks.begin(parent ? parent->files : NULL);
  return s->p;
}

/* A process begins with its first thread. */
void sched_spawn(int number, void (*fn)(int)) {
  sched_process *p = process_new(number, NULL);
  slots[number].variables = copy_of(clean_process, process_size());
  fiber_begin(p, 0, fn);
}

/* Another thread of the running process begins. */
void sched_start_thread(void (*fn)(int), int number) {
  fiber_begin(running->p, number, fn);
}

/* ---- fork ---- */

/* A child that never runs, and has the descriptors until it ends. */
static void copy_begins(int64_t ms) {
  if (!sched_is_free(SIM_COPY)) return;
  sched_process *p = process_new(SIM_COPY, running->p);
  p->is_shadow = true;
  p->stopped = sim.now;
  p->stop_until = sim.now + ms * SIM_MS;
  sim_say("process %c has its descriptors, pid %d", 'A' + SIM_COPY, p->pid);
}

/* Start a thread that is in no call, and forks before anything else happens,
 * unless it must wait for another thread.  If the number is odd, the process's
 * next callback forks instead. */
static void forker_begins(int64_t ms) {
  slot *s = &slots[running->p->slot];
  const fiber *f = s->thread[SIM_FORKER];
  if (f && f->state != OVER) return;
  running->p->fork_ms = ms;
  running->p->forks_in_callback = ms % 2;
  if (ms % 2) return;
  fiber_end(s, SIM_FORKER);
  fiber_begin(running->p, SIM_FORKER, hooks.forks);
  urgent = s->thread[SIM_FORKER];
}

/* Is any thread except the running one in a call? */
static bool others_are_inside(const slot *s) {
  for (int i = 0; i < SIM_THREADS; i++) {
    const fiber *f = s->thread[i];
    if (f && f != running && f->state != OVER && !f->rests) return true;
  }
  return false;
}

/* The running fiber moves to the new process, and the old one's other fibers
 * vanish. */
bool sched_fork(void) {
  fiber *f = running;
  sched_process *parent = f->p;
  slot *from = &slots[parent->slot], *to = &slots[SIM_CHILD];
  if (urgent == f) urgent = NULL;
  if (!sched_is_free(SIM_CHILD)) return false;
  sched_process *child = process_new(SIM_CHILD, parent);
  hooks.forked(parent, child);
  child->was_inside = others_are_inside(from);
  memcpy(child->at_fork, parent->at_fork, sizeof child->at_fork);
  to->variables = sim_zero(process_size());
  in_process = to; /* the child gets the memory */
  from->thread[f->number] = NULL;
  fibers_end(from);
  to->thread[f->number] = f;
  f->p = child;
  f->first = true;
  parent->is_shadow = true;
  if (!parent->stopped) parent->stopped = sim.now;
  parent->stop_until = sim.now + parent->fork_ms * SIM_MS;
  story_tell('b', SIM_CHILD, f->number, "is forked");
  return true;
}

/* Wait until the running thread is the only one of its process. */
void sched_join(void) {
  slot *s = &slots[running->p->slot];
  for (int i = 1; i < SIM_THREADS; i++)
    while (s->thread[i] && s->thread[i]->state != OVER) sched_pause(SIM_MS);
}

/* ---- faults of a process ---- */

/* No fiber of the process runs any more; what it had is removed piece by
 * piece. */
void sched_kill(int number) {
  sched_process *p = slots[number].p;
  if (!sched_lives(number)) return;
  sim.kills++;
  sim_fault(sim.now);
  p->dying = true;
  for (int i = 0; i < SIM_THREADS; i++) {
    fiber *f = slots[number].thread[i];
    if (!f) continue;
    if (f->state != OVER) story_tell('A', number, i, "dies");
    f->state = OVER;
  }
  hooks.died(number);
}

/* The running process is killed here. */
void sched_die(void) {
  sched_kill(running->p->slot);
  leave();
  abort();
}

/* The running process stands still for a while. */
static void stop(int64_t ms) {
  sched_process *p = running->p;
  sim.stops++;
  sim_fault(sim.now);
  if (!p->stopped) p->stopped = sim.now;
  p->stop_until = sim.now + ms * SIM_MS;
  leave();
}

/* Faults are over: stops end, and shadows die. */
void sched_go_on_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++) {
    if (!slots[i].p) continue;
    slots[i].p->stop_until = 0;
    if (slots[i].p->is_shadow) sched_kill(i);
  }
}

/* ---- cancellation ---- */

/* The running thread's. */
sched_cancel *sched_cancel_of(void) {
  return running ? &running->cancel : NULL;
}

/* Can the running thread be cancelled now? */
static bool is_cancelled(void) {
  const sched_cancel *c = &running->cancel;
  return c->pending && c->back && !c->off;
}

/* Cancel the running thread now if that was requested and is possible. */
void sched_test_cancel(void) {
  if (running && is_cancelled()) hooks.cancelled();
}

/* Reset the variables to those of a new thread. */
void sched_renew_thread(void) {
  memcpy(__start_sim_thread, clean_thread, thread_size());
}

/* ---- a fault strikes ---- */

/* A fault strikes at this call.  Returns the errno to report, or 0. */
static int strike(const plan_fault *f, sim_call call) {
  char text[128];
  plan_fault_words(f, text);
  sim_tell('!', "%s, in %s", text, sim_call_name(call));
  sim_fault(sim.now);
  switch (f->kind) {
    case 'k':
      running->torn = (int)f->arg;
      if (!f->arg || (call != CALL_dwrite && !sim_call_syncs(call)))
        sched_die();
      return 0;
    case 's':
      stop(f->arg);
      return 0;
    case 'l':
      sched_wait_until(sim.now + f->arg * SIM_MS, NULL, 0);
      return 0;
    case 'x':
      running->p->execs = true;
      sched_die();
    case 'd':
      copy_begins(f->arg);
      return 0;
    case 'f':
      forker_begins(f->arg);
      leave();
      return 0;
    case 'c':
      cancel_target(f->arg)->cancel.pending = true;
      return 0;
    default:
      sim.errors++;
      sim_error(sim.now);
      return (int)f->arg;
  }
}

/* All faults for this call strike.  Returns the errno to report, or 0. */
static int faults_strike(sim_call call) {
  slot *s = in_process;
  int error = 0;
  if ((s->calls < s->next_fault && !s->aimed[call]) || sim.ending) return 0;
  for (plan_fault *f;
       !error && !sim.ending &&
       (f = plan_strikes(running->p->slot, call, s->calls, s->count[call]));) {
    faults_note_all();
    error = strike(f, call);
  }
  return error;
}

int sched_torn(void) { return running ? running->torn : -1; }

/* ---- steps ---- */

/* Maybe let another fiber run.  This is needed if a fault of the host is due,
 * since these strike between steps. */
static void maybe_switch(void) {
  if (sim.steps >= host_fault_at) {
    leave();
    return;
  }
  if (!the_plan.k.switches) {
    if (sim_chance(SIM_ORDER, (uint64_t)the_plan.k.changes,
                   (uint64_t)the_plan.k.steps))
      running->priority = --lowest;
    leave();
  } else if (sim_chance(SIM_ORDER, (uint64_t)the_plan.k.switches, 100)) {
    leave();
  }
}

/* Each call begins here: time passes, a fault may strike, another fiber may
 * run. */
int sched_step(sim_call call) {
  if (!running) return 0; /* the simulation itself reads */
  slot *s = in_process;
  sim.steps++;
  sim.now += 300 + (int64_t)sim_random(SIM_ORDER, 1500);
  s->calls++;
  s->count[call]++;
  sim_trace((uint64_t)call << 8 | (uint64_t)running->p->slot);
  sim_trace((uint64_t)sim.now);
  if (sim.verbose) story_step(call);
  running->rests = call == CALL_pause;
  if (running->p->watched) hooks.judge(running->p, call);
  int error = faults_strike(call);
  if (!error) maybe_switch();
  if (call != CALL_mutex) sched_test_cancel();
  return error;
}

/* Does a fault make a call fail that is not a step? */
int sched_fails(sim_call call) {
  if (!running) return 0;
  in_process->count[call]++;
  return faults_strike(call);
}

/* ---- waiting ---- */

/* Sleep until can_run() finds a reason to continue. */
static void wait_here(int64_t until) {
  running->until = until;
  running->state = WAITING;
  leave();
  running->state = READY;
}

/* Sleep in the kernel; a cancellation may end that. */
void sched_wait_until(int64_t until, struct pollfd *fds, unsigned count) {
  if (!running) return;
  running->fds = fds;
  running->count = count;
  running->leaves = true;
  wait_here(until);
  running->count = 0;
  running->leaves = false;
  sched_test_cancel();
}

/* Sleep on a mutex or a condition; the caller checks for a cancellation. */
bool sched_wait_on(const void *address, int64_t until, bool leaves) {
  running->address = address;
  running->woken = false;
  running->leaves = leaves;
  wait_here(until);
  running->address = NULL;
  running->leaves = false;
  return running->woken;
}

/* Wake the running process's threads that sleep on the address. */
void sched_wake(const void *address) {
  slot *s = &slots[running->p->slot];
  for (int i = 0; i < SIM_THREADS; i++)
    if (s->thread[i] && s->thread[i]->address == address)
      s->thread[i]->woken = true;
}

/* A sleep by the program, in no call of the engine. */
void sched_pause(int64_t ns) {
  sched_step(CALL_pause);
  sched_wait_until(sim.now + ns, NULL, 0);
}

/* ---- the scheduler ---- */

typedef struct choice {
  fiber *fiber[SIM_SLOTS * SIM_THREADS];
  int fibers;
  sched_process *dead[SIM_SLOTS];
  int deaths;
  int processes; /* that still exist */
  int64_t next;  /* when the next thing is due, if nothing is now */
} choice;

/* Something is due at that time. */
static void not_before(choice *c, int64_t at) {
  if (at < c->next) c->next = at;
}

/* Can it run now?  If not, note when. */
static bool can_run(fiber *f, choice *c) {
  if (f->state == READY) return true;
  if (f->state == OVER) return false;
  if (sim.now >= f->until || (f->address && f->woken)) return true;
  if (f->leaves && f->cancel.pending && !f->cancel.off) return true;
  if (f->count) {
    if (hooks.ready(f->p, f->fds, f->count)) return true;
    not_before(c, hooks.due(f->p, f->fds, f->count));
  }
  not_before(c, f->until);
  return false;
}

/* Does the process stand still?  The end of a stop counts as a fault, since
 * others have run.  A shadow then dies. */
static bool stands_still(sched_process *p, choice *c) {
  if (!p->stopped) return false;
  if (sim.now < p->stop_until) {
    not_before(c, p->stop_until);
    return true;
  }
  if (p->is_shadow) {
    sched_kill(p->slot);
    not_before(c, sim.now);
    return true;
  }
  p->stopped_ns += sim.now - p->stopped;
  p->stopped = 0;
  sim_fault(sim.now);
  return false;
}

/* Find what could be done now, or when the next thing is due. */
static void look(choice *c) {
  c->next = hooks.next();
  c->fibers = c->deaths = c->processes = 0;
  for (int i = 0; i < SIM_SLOTS; i++) {
    sched_process *p = slots[i].p;
    if (!p || p->gone) continue;
    c->processes++;
    if (p->dying) {
      c->dead[c->deaths++] = p;
      continue;
    }
    if (stands_still(p, c)) continue;
    for (int k = 0; k < SIM_THREADS; k++)
      if (slots[i].thread[k] && can_run(slots[i].thread[k], c))
        c->fiber[c->fibers++] = slots[i].thread[k];
  }
}

/* Remove one piece of a dead process. */
static void reap(sched_process *p) {
  slot *s = &slots[p->slot];
  fibers_end(s);
  if (in_process == s) in_process = NULL;
  if (hooks.reap(p)) return;
  p->gone = true;
  story_tell('n', p->slot, 0, "is taken apart");
}

/* The n-th that can run, or the one with the highest priority. */
static fiber *choose(const choice *c, int n) {
  fiber *f = c->fiber[n];
  if (the_plan.k.switches) return f;
  for (int i = 0; i < c->fibers; i++)
    if (c->fiber[i]->priority > f->priority) f = c->fiber[i];
  return f;
}

/* Run a fiber until it returns to the scheduler. */
static void run(fiber *f) {
  sim.switches++;
  running = f;
  variables_load(f);
  fiber_switch(&main_sp, f->sp);
  running = NULL;
}

/* Do one thing after the other, in the order that the seed determines. */
sched_end sched_run(int64_t limit) {
  for (;;) {
    choice c;
    if (cut) {
      cut = false;
      return SCHED_CUT;
    }
    if (sim.steps >= limit) return SCHED_LIMIT;
    if (sim.steps >= host_fault_at) hooks.strike();
    if (cut) continue;
    hooks.tick();
    if (urgent && urgent->state == READY) {
      run(urgent);
      continue;
    }
    look(&c);
    int all = c.deaths + c.fibers;
    if (all == 0) {
      if (!c.processes && hooks.over()) return SCHED_OVER;
      if (c.next == SIM_NEVER) return SCHED_STUCK;
      if (c.next > sim.now) sim.now = c.next;
      continue;
    }
    int n = (int)sim_random(SIM_ORDER, (uint64_t)all);
    if (n < c.deaths)
      reap(c.dead[n]);
    else
      run(choose(&c, n - c.deaths));
  }
}

void sched_cut(void) { cut = true; }

void sched_note_faults(void) { faults_note_all(); }

/* The power is gone: all processes vanish, and are not told. */
void sched_forget_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++) {
    fibers_end(&slots[i]);
    free(slots[i].p);
    slots[i].p = NULL;
  }
  in_process = NULL;
  in_thread = NULL;
}
