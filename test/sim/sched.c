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
  int64_t until;       /* WAITING: no longer than that, */
  struct pollfd *fds;  /* or until one of these is ready, */
  unsigned count;      /* */
  const void *address; /* or this is woken */
  bool woken;
  int64_t priority;
  int torn;        /* it dies inside the call that it makes; else -1 */
  char *variables; /* of the thread, while another runs */
} fiber;

typedef struct slot {
  sched_process *p;
  fiber *thread[SIM_THREADS];
  char *variables;         /* of the process, while another runs */
  int64_t calls;           /* of all its processes */
  int64_t count[CALL_any]; /* the same by name */
  bool aimed[CALL_any];    /* a fault is at calls of that name */
  int64_t next_fault;      /* and the first at any call */
} slot;

static sched_hooks hooks;
static slot slots[SIM_SLOTS];
static fiber *running;
static void *main_sp;
static bool cut;
static int64_t host_fault_at; /* the step of the next one of the host's */
static int pids;
static int64_t lowest; /* priority given so far */
static char *free_stack[FREE_STACKS];
static int free_stacks;

/* ---- variables of the engine ---- */

/* zkembed.c's own: a copy of each section for those that do not run (engine.c).
 * What lies in the sections now is that of `in_process` and `in_thread`. */
extern char __start_sim_thread[], __stop_sim_thread[];
extern char __start_sim_process[], __stop_sim_process[];

static char *clean_thread, *clean_process;
static fiber *in_thread;
static slot *in_process;

static size_t thread_size(void) {
  return (size_t)(__stop_sim_thread - __start_sim_thread);
}

static size_t process_size(void) {
  return (size_t)(__stop_sim_process - __start_sim_process);
}

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

/* Has the running process, or had it, more than one thread? */
bool sched_has_threads(void) {
  const slot *s = &slots[running->p->slot];
  for (int i = 1; i < SIM_THREADS; i++)
    if (s->thread[i]) return true;
  return false;
}

sched_process *sched_process_of(int number) { return slots[number].p; }

bool sched_lives(int number) {
  const sched_process *p = slots[number].p;
  return p && !p->dying && !p->gone;
}

bool sched_is_free(int number) {
  return !slots[number].p || slots[number].p->gone;
}

int64_t sched_stopped_ns(int number) {
  const sched_process *p = slots[number].p;
  if (!p) return 0;
  return p->stopped_ns + (p->stopped ? sim.now - p->stopped : 0);
}

static void leave(void) {
  fiber *f = running;
  fiber_switch(&f->sp, main_sp);
}

/* What each fiber begins with. */
static void fiber_main(void) {
  fiber *f = running;
  f->fn(f->p->slot);
  f->state = OVER;
  sim_tell('e', "returns");
  if (f->number == 0) {
    hooks.returned(f->p);
    f->p->dying = true;
  }
  for (;;) leave();
}

static void fiber_begin(sched_process *p, int number, void (*fn)(int)) {
  fiber *f = sim_zero(sizeof *f);
  *f = (fiber){.p = p, .number = number, .fn = fn, .torn = -1};
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

/* The fibers of a process are over. */
static void fibers_end(slot *s) {
  for (int i = 0; i < SIM_THREADS; i++) {
    fiber *f = s->thread[i];
    s->thread[i] = NULL;
    if (!f) continue;
    if (in_thread == f) in_thread = NULL;
    if (free_stacks < FREE_STACKS) free_stack[free_stacks++] = f->stack;
    free(f->variables);
    free(f);
  }
}

/* When must a slot look for faults?  At a call that is aimed at, or from the
 * first fault on that is at any call. */
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

/* A fault has struck: another may follow it. */
static void faults_note_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++) faults_note(&slots[i], i);
  host_fault_at = plan_next_host();
}

static int64_t count_of(int number, sim_call call) {
  if (number < 0) return sim.steps;
  const slot *s = &slots[number];
  return call == CALL_any ? s->calls : s->count[call];
}

void sched_begin(const sched_hooks *given) {
  hooks = *given;
  plan_count = count_of;
  clean_thread = copy_of(__start_sim_thread, thread_size());
  clean_process = copy_of(__start_sim_process, process_size());
  faults_note_all();
}

void sched_spawn(int number, void (*fn)(int)) {
  slot *s = &slots[number];
  if (!sched_is_free(number)) sim_bug("slot %d is taken", number);
  free(s->p);
  free(s->variables);
  s->variables = copy_of(clean_process, process_size());
  if (in_process == s) in_process = NULL;
  s->p = sim_zero(sizeof *s->p);
  s->p->slot = number;
  s->p->pid = 1000 + ++pids;
  s->p->files = hooks.begin();
  fiber_begin(s->p, 0, fn);
}

void sched_start_thread(void (*fn)(int), int number) {
  fiber_begin(running->p, number, fn);
}

void sched_join(void) {
  slot *s = &slots[running->p->slot];
  for (int i = 1; i < SIM_THREADS; i++)
    while (s->thread[i] && s->thread[i]->state != OVER) sched_pause(SIM_MS);
}

/* ---- faults of a process ---- */

void sched_kill(int number) {
  sched_process *p = slots[number].p;
  if (!sched_lives(number)) return;
  sim.kills++;
  sim.last_fault = sim.now;
  p->dying = true;
  for (int i = 0; i < SIM_THREADS; i++) {
    fiber *f = slots[number].thread[i];
    if (!f) continue;
    if (f->state != OVER) story_tell('A', number, i, "dies");
    f->state = OVER;
  }
  hooks.died(number);
}

void sched_die(void) {
  sched_kill(running->p->slot);
  leave();
  abort();
}

static void stop(int64_t ms) {
  sched_process *p = running->p;
  sim.stops++;
  sim.last_fault = sim.now;
  if (!p->stopped) p->stopped = sim.now;
  p->stop_until = sim.now + ms * SIM_MS;
  leave();
}

void sched_go_on_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++)
    if (slots[i].p) slots[i].p->stop_until = 0;
}

/* A fault strikes at this call; the errno that it has to report, or 0. */
static int strike(const plan_fault *f, sim_call call) {
  char text[128];
  plan_fault_words(f, text);
  sim_tell('!', "%s, in %s", text, sim_call_name(call));
  sim.last_fault = sim.now;
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
    default:
      sim.errors++;
      sim.last_error = sim.now;
      return (int)f->arg;
  }
}

static int faults_strike(sim_call call) {
  slot *s = &slots[running->p->slot];
  int error = 0;
  if (sim.ending || (s->calls < s->next_fault && !s->aimed[call])) return 0;
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

/* May another fiber run now?  It must if a fault of the host's is due, since
 * those strike between two. */
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

int sched_step(sim_call call) {
  if (!running) return 0; /* the world itself looks */
  slot *s = &slots[running->p->slot];
  sim.steps++;
  sim.now += 300 + (int64_t)sim_random(SIM_ORDER, 1500);
  s->calls++;
  s->count[call]++;
  sim_trace((uint64_t)call << 8 | (uint64_t)running->p->slot);
  sim_trace((uint64_t)sim.now);
  if (sim.verbose) story_step(call);
  int error = faults_strike(call);
  if (!error) maybe_switch();
  return error;
}

int sched_fails(sim_call call) {
  if (!running) return 0;
  slots[running->p->slot].count[call]++;
  return faults_strike(call);
}

/* ---- waiting ---- */

static void wait_here(int64_t until) {
  running->until = until;
  running->state = WAITING;
  leave();
  running->state = READY;
}

void sched_wait_until(int64_t until, struct pollfd *fds, unsigned count) {
  if (!running) return;
  running->fds = fds;
  running->count = count;
  wait_here(until);
  running->count = 0;
}

bool sched_wait_on(const void *address, int64_t until) {
  running->address = address;
  running->woken = false;
  wait_here(until);
  running->address = NULL;
  return running->woken;
}

void sched_wake(const void *address) {
  slot *s = &slots[running->p->slot];
  for (int i = 0; i < SIM_THREADS; i++)
    if (s->thread[i] && s->thread[i]->address == address)
      s->thread[i]->woken = true;
}

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
  int processes; /* that are not gone */
  int64_t next;  /* when something is to be done if nothing is now */
} choice;

static void not_before(choice *c, int64_t at) {
  if (at < c->next) c->next = at;
}

/* Can it run now?  If not, when. */
static bool can_run(fiber *f, choice *c) {
  if (f->state == READY) return true;
  if (f->state == OVER) return false;
  if (sim.now >= f->until || (f->address && f->woken)) return true;
  if (f->count) {
    if (hooks.ready(f->p, f->fds, f->count)) return true;
    not_before(c, hooks.due(f->p, f->fds, f->count));
  }
  not_before(c, f->until);
  return false;
}

/* Does the process stand still?  The end of that is a fault, too: others have
 * gone on. */
static bool stands_still(sched_process *p, choice *c) {
  if (!p->stopped) return false;
  if (sim.now < p->stop_until) {
    not_before(c, p->stop_until);
    return true;
  }
  p->stopped_ns += sim.now - p->stopped;
  p->stopped = 0;
  sim.last_fault = sim.now;
  return false;
}

static void look(choice *c) {
  *c = (choice){.next = hooks.next()};
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

/* One piece of a dead process is taken. */
static void reap(sched_process *p) {
  slot *s = &slots[p->slot];
  fibers_end(s);
  if (in_process == s) in_process = NULL;
  if (hooks.reap(p)) return;
  p->gone = true;
  story_tell('n', p->slot, 0, "is taken apart");
}

static fiber *choose(const choice *c, int n) {
  fiber *f = c->fiber[n];
  if (the_plan.k.switches) return f;
  for (int i = 0; i < c->fibers; i++)
    if (c->fiber[i]->priority > f->priority) f = c->fiber[i];
  return f;
}

static void run(fiber *f) {
  sim.switches++;
  running = f;
  variables_load(f);
  fiber_switch(&main_sp, f->sp);
  running = NULL;
}

sched_end sched_run(int64_t limit) {
  for (;;) {
    choice c;
    if (cut) {
      cut = false;
      return SCHED_CUT;
    }
    if (sim.steps >= limit) return SCHED_LIMIT;
    hooks.tick();
    if (cut) continue;
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

void sched_forget_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++) {
    fibers_end(&slots[i]);
    free(slots[i].p);
    slots[i].p = NULL;
  }
  in_process = NULL;
  in_thread = NULL;
}
