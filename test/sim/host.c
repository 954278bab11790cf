/* host.c - see host.h */
#include "test/sim/host.h"

#include "test/sim/admin.h"
#include "test/sim/container.h"
#include "test/sim/forked.h"
#include "test/sim/load.h"
#include "test/sim/memory.h"
#include "test/sim/plan.h"
#include "test/sim/threads.h"
#include "test/sim/vfs.h"
#include "test/sim/wait.h"

/* How many steps the processes have to come to rest, once faults have ended. */
enum { REST_STEPS = 600000, REST_FACTOR = 20 };

/* An almost exhausted quota has fewer bytes left than this. */
enum { QUOTA = 1 << 17 };

static disk_cut cut_style; /* of the coming power cut */

static void died(int slot) {
  memory_forget(slot);
  load_died(slot);
}

static bool reap(sched_process *p) {
  bool handles = p->files->handles != NULL;
  if (handles && sim_chance(SIM_KERNEL, 1, 2)) return vfs_reap_one(p->files);
  return file_reap_one(p->files) || vfs_reap_one(p->files);
}

/* A process was copied. */
static void forked(sched_process *parent, sched_process *child) {
  vfs_forked(parent->files, child->files);
  child->handle = load_handle(parent->slot);
}

/* A process that has closed everything has nothing left; a child may still have
 * its parent's connections. */
static void returned(sched_process *p) {
  int64_t blocks = memory_blocks(p->slot);
  int fds = file_count(p->files);
  if (blocks)
    sim_found("P9: %lld blocks of memory are left at the end",
              (long long)blocks);
  if (fds) sim_found("P9: %d descriptors are left at the end", fds);
  if (p->files->handles && p->slot != SIM_CHILD)
    sim_found("P9: SQLite has files open at the end");
}

static void kill_all(void) {
  for (int i = 0; i < SIM_SLOTS; i++) sched_kill(i);
  load_all_died();
}

/* A fault of the host strikes. */
static void strike(const plan_fault *f) {
  char text[128];
  plan_fault_words(f, text);
  sim_tell(f->kind == 'C' ? 'X' : '!', "%s", text);
  sim_fault(sim.now);
  sched_note_faults();
  switch (f->kind) {
    case 'C':
      sim.cuts++;
      cut_style = (disk_cut)(f->arg % CUT_STYLES);
      sched_cut();
      break;
    case 'M':
      kill_all();
      break;
    case 'A':
      admin_strike((int)f->arg, kill_all);
      break;
    case 'F':
      sim.full_until = sim.now + f->arg * SIM_MS;
      sim_no_room(sim.full_until);
      break;
    case 'Q':
      sim.quota_until = sim.now + f->arg * SIM_MS;
      sim.quota_left = (int64_t)sim_random(SIM_DISK, QUOTA);
      sim_no_room(sim.quota_until);
      break;
    case 'B':
      sim.bad_until = sim.now + f->arg * SIM_MS;
      sim_error(sim.bad_until);
      break;
    case 'W':
      sim.wall += f->arg * SIM_MS;
      break;
    case 'Y':
      sim_another_future(f->arg);
      plan_move_later();
      sched_note_faults();
      break;
    default: /* Z */
      sim.suspended += f->arg * SIM_MS;
  }
}

/* Faults are over: restore the host, and let the processes come to rest. */
static void faults_end(void) {
  sim_tell('.', "no more faults; the processes come to rest");
  sim.ending = sim.now;
  sim_fault(sim.now);
  sim.full_until = sim.quota_until = sim.bad_until = 0;
  sched_note_faults();
  sched_go_on_all();
  admin_end(kill_all);
  load_rest();
}

/* All faults that are due strike, but none after a power cut. */
static void strike_all(void) {
  for (plan_fault *f; !sim.ending && (f = plan_strikes_host(sim.steps));) {
    strike(f);
    if (f->kind == 'C') return;
  }
  if (!sim.ending && sim.steps >= the_plan.k.steps) faults_end();
}

/* Processes begin, unless an act on the files waits until all have ended. */
static void tick(void) {
  if (!admin_tick()) load_tick();
}

/* The power is gone, and comes back. */
static void power_cut(disk_cut style) {
  sim.boots++;
  sim.full_until = sim.quota_until = sim.bad_until = 0;
  sim.wall += sim.suspended;
  sim.suspended = 0;
  sim.now += 20000 * SIM_MS;
  sim.booted = sim.now - 3000 * SIM_MS;
  sim_fault(sim.now);
  for (int i = 0; i < SIM_SLOTS; i++) memory_forget(i);
  sched_forget_all();
  disk_power_cut(style);
  admin_cut();
  load_cut();
}

void host_run(void) {
  const sched_hooks hooks = {.died = died,
                             .returned = returned,
                             .reap = reap,
                             .begin = file_table_new,
                             .pid = container_pid,
                             .forks = forked_main,
                             .forked = forked,
                             .judge = forked_judge,
                             .cancelled = threads_leave,
                             .ready = wait_ready,
                             .due = wait_due,
                             .strike = strike_all,
                             .tick = tick,
                             .next = load_next,
                             .over = load_over};
  int64_t limit = the_plan.k.steps * REST_FACTOR + REST_STEPS;
  if (the_plan.k.order) sim_another_future(the_plan.k.order);
  sched_begin(&hooks);
  disk_begin("/sim");
  admin_begin();
  load_begin();
  for (;;) {
    switch (sched_run(limit)) {
      case SCHED_OVER:
        return;
      case SCHED_CUT:
        power_cut(cut_style);
        break;
      case SCHED_STUCK:
        sim_found("P10: all processes wait for ever");
      case SCHED_LIMIT:
        sim_found("P10: no end after %lld steps", (long long)sim.steps);
    }
  }
}
