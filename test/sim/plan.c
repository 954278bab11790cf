/* plan.c - see plan.h */
#include "test/sim/plan.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/admin.h"
#include "test/sim/container.h"
#include "test/sim/disk.h"
#include "test/sim/sched.h"

plan the_plan;
int64_t (*plan_count)(int slot, sim_call call);
bool (*plan_may_cancel)(int64_t n);

/* The errors that a fault can cause, by their names in a string. */
static const struct {
  const char *name;
  int error;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},
              {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM}, {"EACCES", EACCES}};
enum { ERRORS = (int)(sizeof errors / sizeof *errors) };

#define KNOB(letter, name, least, most) \
  {letter, least, most, offsetof(plan_knobs, name)},
const plan_knob plan_knob_of[PLAN_KNOBS] = {PLAN_KNOB_LIST(KNOB)};
#undef KNOB

/* All members of plan_knobs have one type. */
int64_t *plan_knob_at(plan_knobs *k, int knob) {
  return (int64_t *)(void *)((char *)k + plan_knob_of[knob].member);
}

/* ---- a plan from a seed ---- */

/* A random number below n. */
static int64_t below(int64_t n) {
  return (int64_t)sim_random(SIM_PLAN, (uint64_t)n);
}

/* True in one of n plans. */
static bool one_in(int64_t n) { return below(n) == 0; }

/* Small numbers as often as large ones: uniform by the logarithm. */
static int64_t some(int64_t most) {
  int bits = 0;
  while (most >> bits > 1) bits++;
  int64_t n = 1 + below(INT64_C(1) << below(bits + 1));
  return n < most ? n : most;
}

/* Add a fault to the list, if it has room. */
static void add(plan *p, plan_fault f) {
  if (p->faults < PLAN_FAULTS) p->fault[p->faults++] = f;
}

/* A fault of a process at a random place: at any of its calls, or at one of a
 * kind. */
static plan_fault somewhere(const plan *p, char kind, const sim_call *calls,
                            int count) {
  plan_fault f = {.kind = kind, .call = CALL_any};
  f.slot = (int)below(p->k.processes);
  f.at = 1 + below(p->k.steps / p->k.processes);
  if (count && one_in(2)) {
    f.call = calls[below(count)];
    f.at = some(f.at / 8 + 2);
  }
  return f;
}

/* Kills: at any call, or where most is at stake; inside a write or a sync, part
 * of it is done. */
static void plan_kills(plan *p) {
  static const sim_call calls[] = {
      CALL_dwrite,    CALL_dsync, CALL_dsynced, CALL_barrier, CALL_pwrite,
      CALL_write,     CALL_lock,  CALL_unlock,  CALL_shmlock, CALL_shmunlock,
      CALL_dtruncate, CALL_fsync, CALL_mkfifo,  CALL_mkdir,   CALL_mutex};
  int64_t n = one_in(4) ? 0 : some(40);
  while (n-- > 0) {
    plan_fault f =
        somewhere(p, 'k', calls, (int)(sizeof calls / sizeof *calls));
    if (f.call == CALL_dwrite || f.call == CALL_dsync) f.arg = 1 + below(999);
    add(p, f);
  }
}

/* Stops, most of them short, some during a read. */
static void plan_stops(plan *p) {
  static const sim_call calls[] = {CALL_dread,  CALL_barrier, CALL_pread,
                                   CALL_pwrite, CALL_dsynced, CALL_findlock};
  int64_t longest = one_in(4) ? INT64_C(3600000) : INT64_C(10000);
  int64_t n = one_in(3) ? some(60) : 0;
  while (n-- > 0) {
    plan_fault f =
        somewhere(p, 's', calls, (int)(sizeof calls / sizeof *calls));
    f.arg = some(longest);
    add(p, f);
  }
}

/* Forks, execs, and threads that are cancelled. */
static void plan_copies(plan *p) {
  static const sim_call calls[] = {CALL_poll,   CALL_dread, CALL_dsync,
                                   CALL_open,   CALL_pipe,  CALL_barrier,
                                   CALL_mkfifo, CALL_lock,  CALL_dclose};
  static const struct {
    char kind;
    int rare;
    int64_t longest; /* its number */
  } all[] = {{'f', 5, 2000}, {'d', 6, 2000}, {'x', 8, 0}, {'c', 6, 2}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int64_t n = one_in(all[i].rare) ? some(10) : 0;
    while (n-- > 0) {
      plan_fault f =
          somewhere(p, all[i].kind, calls, (int)(sizeof calls / sizeof *calls));
      f.arg = all[i].longest ? below(all[i].longest) : 0;
      add(p, f);
    }
  }
}

/* An error of any call, or of a rare one. */
static plan_fault any_error(const plan *p) {
  static const sim_call calls[] = {
      CALL_findlock, CALL_open,    CALL_pread,   CALL_write, CALL_list,
      CALL_mkfifo,   CALL_shmmap,  CALL_shmlock, CALL_dlock, CALL_dread,
      CALL_lread,    CALL_ddelete, CALL_stat,    CALL_fsync, CALL_pwrite,
      CALL_dopen,    CALL_lock,    CALL_probe,   CALL_poll,  CALL_unlink,
      CALL_alloc};
  enum { COUNT = (int)(sizeof calls / sizeof *calls) };
  plan_fault f = somewhere(p, 'e', calls, COUNT);
  do f.arg = errors[below(ERRORS)].error;
  while (f.call != CALL_any && !sim_call_reports(f.call, (int)f.arg));
  return f;
}

/* One of the first calls of a kind fails, for kinds that any_error() would
 * rarely hit, since there are few calls, or since only some of them count. */
static void plan_one(plan *p, sim_call call, int64_t first) {
  plan_fault f = {.kind = 'e', .call = call, .arg = EIO};
  f.slot = (int)below(p->k.processes);
  f.at = some(first);
  add(p, f);
}

/* Calls that fail. */
static void plan_errors(plan *p) {
  static const sim_call syncs[] = {CALL_dsync, CALL_dbsync, CALL_cksync};
  static const sim_call writes[] = {CALL_dwrite};
  int64_t n = one_in(5) ? some(12) : 0;
  while (n-- > 0) {
    plan_fault f = somewhere(p, 'e', syncs, 3);
    if (f.call == CALL_any) f = somewhere(p, 'e', writes, 1);
    f.arg = EIO;
    add(p, f);
  }
  n = one_in(6) ? some(30) : 0;
  while (n-- > 0) add(p, any_error(p));
  n = one_in(8) ? some(40) : 0;
  while (n-- > 0) {
    static const sim_call allocations[] = {CALL_alloc, CALL_sqlalloc};
    plan_fault f = somewhere(p, 'e', allocations, 2);
    f.call = allocations[below(2)];
    f.at = some(p->k.steps);
    f.arg = ENOMEM;
    add(p, f);
  }
  n = one_in(5) ? some(40) : 0;
  while (n-- > 0) {
    plan_fault f = somewhere(p, 'l', syncs, 3);
    f.arg = some(8000);
    add(p, f);
  }
}

/* Faults of the whole host. */
static void plan_host(plan *p) {
  struct {
    char kind;
    int64_t n;
  } all[] = {
      {'C', one_in(3) ? 1 + below(3) : 0}, {'M', one_in(4) ? 1 + below(3) : 0},
      {'F', one_in(6) ? 1 + below(3) : 0}, {'B', one_in(8) ? 1 + below(2) : 0},
      {'W', one_in(8) ? 1 + below(3) : 0}, {'Z', one_in(8) ? 1 + below(3) : 0}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    while (all[i].n-- > 0) {
      plan_fault f = {.kind = all[i].kind, .slot = -1, .call = CALL_any};
      f.at = 1 + below(p->k.steps);
      if (f.kind == 'C') f.arg = below(CUT_STYLES);
      if (f.kind == 'F' || f.kind == 'B') f.arg = some(3000);
      if (f.kind == 'W') f.arg = below(7200000) - 3600000;
      if (f.kind == 'Z') f.arg = some(3600000);
      add(p, f);
    }
  }
}

/* The first fault of a chain has its own place; each other comes this many
 * steps or calls after the previous one. */
static void add_then(plan *p, char kind, int slot, int64_t at, int64_t arg) {
  add(p, (plan_fault){.kind = kind,
                      .slot = slot,
                      .call = CALL_any,
                      .at = at,
                      .arg = arg,
                      .follows = true});
}

/* Soon after the previous one. */
static void add_after(plan *p, char kind, int slot, int64_t most, int64_t arg) {
  add_then(p, kind, slot, some(most), arg);
}

/* A fault of the host at a random step. */
static void add_at_step(plan *p, char kind, int64_t arg) {
  add(p, (plan_fault){.kind = kind,
                      .slot = -1,
                      .call = CALL_any,
                      .at = 1 + below(p->k.steps),
                      .arg = arg});
}

/* A failed sync, often that of the log before a checkpoint, maybe a death, and
 * a power cut. */
static void chain_failed_sync(plan *p, plan_fault f, int slot, int64_t style) {
  f.kind = 'e';
  f.arg = EIO;
  if (f.call == CALL_any || one_in(2)) {
    f.call = CALL_cksync;
    f.at = some(100);
  }
  add(p, f);
  if (one_in(2)) add_after(p, 'k', slot, 400, 0);
  add_after(p, 'C', -1, 3000, style);
}

/* The sync of a commit fails, and its process dies before it can react.  Other
 * processes live, and most are not told.  Then a power cut, when some of them
 * have committed after it. */
static void chain_unheard(plan *p) {
  plan_fault f = somewhere(p, 'e', NULL, 0);
  f.call = CALL_dsync;
  f.at = 2 + below(20);
  f.arg = EIO;
  if (!one_in(4)) p->k.medium |= 4;
  add(p, f);
  add_then(p, 'k', f.slot, 2 + below(3), 0);
  int64_t at = 300 + below(1500);
  add_then(p, 'C', -1, at, below(CUT_STYLES));
}

/* A death inside a sync or a write, maybe of all processes, so that no one has
 * the file open, and a power cut: at any time, or about when the next process
 * has opened the file and read it, but has not made anything yet. */
static void chain_death(plan *p, int64_t style) {
  static const sim_call rare[] = {CALL_dbsync, CALL_cksync, CALL_dwrite};
  plan_fault f = somewhere(p, 'k', NULL, 0);
  f.call = one_in(3) ? rare[below(3)] : CALL_dsync;
  f.at = some(f.call == CALL_dwrite ? 500 : 50);
  f.arg = 1 + below(999);
  add(p, f);
  if (!one_in(4)) add_after(p, 'M', -1, 4, 0);
  add_then(p, 'C', -1, one_in(4) ? some(3000) : 150 + below(450), style);
}

/* A power cut, and an error or a death while the file is opened: at any call,
 * or while it checks which processes live. */
static void chain_boot(plan *p, int slot, int64_t style) {
  static const sim_call looks[] = {CALL_open, CALL_probe, CALL_pread};
  add_at_step(p, 'C', style);
  if (one_in(3)) {
    add_after(p, 'k', slot, 600, 0);
  } else if (one_in(2)) {
    add_after(p, 'e', slot, 600, errors[below(ERRORS)].error);
  } else {
    sim_call look = looks[below(3)];
    add(p, (plan_fault){.kind = 'e',
                        .slot = slot,
                        .call = look,
                        .at = some(16),
                        .arg = EIO,
                        .follows = true});
  }
}

/* A lasting error: repeating the call gives it again. */
static void chain_lasting(plan *p) {
  plan_fault f = any_error(p);
  while (f.call == CALL_any) f = any_error(p);
  add(p, f);
  f.follows = true;
  f.at = 1;
  for (int64_t n = 1 + below(3); n > 0; n--) add(p, f);
}

/* Stops during reads without locks, so long that other processes restart the
 * log. */
static void chain_reads(plan *p) {
  static const sim_call calls[] = {CALL_lread};
  for (int64_t n = 4 + below(12); n > 0; n--) {
    plan_fault f = somewhere(p, 's', calls, 1);
    while (f.call == CALL_any) f = somewhere(p, 's', calls, 1);
    f.arg = 200 + below(1000);
    add(p, f);
  }
}

/* The disk is bad for a while, and some time later the power goes. */
static void chain_bad_disk(plan *p, int64_t style) {
  add_at_step(p, 'B', some(300));
  add_after(p, 'C', -1, 6000, style);
}

/* Faults soon after what the previous fault has begun, the first one at a
 * slot. */
static void add_blows(plan *p, int slot) {
  static const sim_call calls[] = {CALL_findlock, CALL_unlink, CALL_dwrite,
                                   CALL_dsync,    CALL_list,   CALL_probe,
                                   CALL_barrier,  CALL_pread,  CALL_pwrite};
  static const char blows[] = "kkksfdxc";
  for (int64_t n = 1 + below(3); n > 0; n--) {
    char kind = blows[below((int64_t)sizeof blows - 1)];
    add_after(p, kind, slot, 300, kind == 's' ? some(3600000) : below(3));
    if (one_in(2)) {
      plan_fault *last = &p->fault[p->faults - 1];
      last->call = calls[below((int64_t)(sizeof calls / sizeof *calls))];
      last->at = 1 + below(6);
    }
    slot = one_in(3) ? SIM_CHILD : (int)below(p->k.processes);
  }
}

/* Faults soon after a boot, a failed sync, a checkpoint (with a sync that takes
 * a millisecond longer), a fork, or the clean-up of a dead process by another
 * one. */
static void chain_aimed(plan *p, int slot) {
  static const struct {
    char kind;
    sim_call call;
    int64_t arg;
  } begins[] = {{'C', CALL_any, 1},    {'k', CALL_any, 0},
                {'k', CALL_any, 0},    {'e', CALL_dsync, EIO},
                {'l', CALL_dbsync, 1}, {'l', CALL_cksync, 1},
                {'f', CALL_any, 1000}, {'d', CALL_any, 1500}};
  size_t i = (size_t)below((int64_t)(sizeof begins / sizeof *begins));
  plan_fault f = somewhere(p, begins[i].kind, NULL, 0);
  f.call = begins[i].call;
  f.arg = begins[i].arg;
  if (f.call != CALL_any) f.at = some(f.at / 200 + 2);
  if (f.kind == 'C') f.slot = -1;
  add(p, f);
  add_blows(p, slot);
}

/* A sync of the database fails, while another program's reads interrupt
 * checkpoints; then a power cut when the log has restarted. */
static void chain_failed_checkpoint(plan *p, int64_t style) {
  p->k.foreign = 1;
  plan_one(p, CALL_dbsync, 30);
  add_after(p, 'C', -1, 1, style);
  p->fault[p->faults - 1].at = 500 + below(6000);
}

/* A backup is made and later restored; or files are removed, mostly a single
 * one, and later the file is replaced by a copy of itself.  Other faults follow
 * soon. */
static void chain_administrator(plan *p) {
  static const int removals[] = {ADMIN_SIDE, ADMIN_SIDE_OPEN, ADMIN_FIFOS_OPEN};
  bool backup = one_in(2);
  int removal = one_in(3) ? removals[below(3)] : ADMIN_FILE_OPEN;
  add_at_step(p, 'A', backup ? ADMIN_BACKUP : removal);
  if (backup)
    add_after(p, 'A', -1, 8000, one_in(2) ? ADMIN_RESTORE : ADMIN_MOVE);
  else if (one_in(2)) /* or when faults are over */
    add_after(p, 'A', -1, 8000, ADMIN_COPY);
  if (one_in(2)) add_blows(p, (int)below(p->k.processes));
}

/* Faults that meet: one aimed at what another has begun. */
static void plan_chain(plan *p) {
  static const sim_call calls[] = {CALL_dsync, CALL_dbsync, CALL_cksync};
  plan_fault f = somewhere(p, 'k', calls, 3);
  int slot = one_in(2) ? f.slot : (int)below(p->k.processes);
  int64_t style = below(CUT_STYLES);
  switch (below(11)) {
    case 0:
      chain_failed_sync(p, f, slot, style);
      break;
    case 1:
      chain_death(p, style);
      break;
    case 2:
      chain_boot(p, slot, style);
      break;
    case 3: /* two deaths, and an error */
      add(p, f);
      add_after(p, 'k', slot, 300, 0);
      add_after(p, 'e', (int)below(p->k.processes), 300, EIO);
      break;
    case 4:
      chain_lasting(p);
      break;
    case 5:
      chain_reads(p);
      break;
    case 6:
      chain_bad_disk(p, style);
      break;
    case 7:
    case 8:
      chain_aimed(p, slot);
      break;
    case 9:
      chain_failed_checkpoint(p, style);
      break;
    default: /* all die, and a cut or none */
      add_at_step(p, 'M', 0);
      if (one_in(2)) add_after(p, 'C', -1, 2000, style);
  }
}

/* Choose the knobs, then each sort of faults, with SIM_PLAN. */
void plan_make(plan *p, uint64_t seed, int processes) {
  static const int switches[] = {100, 100, 50, 20, 5, 0};
  static const int pages[] = {1, 2, 2, 3, 5, 8};
  *p = (plan){.seed = seed};
  plan_knobs *k = &p->k;
  k->processes = one_in(8) ? 1 : 2 + below(4);
  if (processes) k->processes = processes;
  k->threads = one_in(4) ? 2 + below(2) : 1;
  k->steps = 3000 + below(25000);
  k->switches = switches[below(6)];
  k->changes = 20 + below(300);
  k->busy = one_in(8);
  k->leases = one_in(5);
  k->kept = !k->leases && one_in(4);
  k->readlocks = one_in(12);
  k->plainlog = one_in(12);
  k->cache = one_in(6) ? 1 + below(64) : 0;
  k->history = !one_in(3);
  k->devices = one_in(2);
  k->container = one_in(5) ? 1 + below(9) : 0;
  if (k->kept && one_in(2))
    k->container = one_in(2) ? CONTAINER_AHEAD : CONTAINER_STRANGE;
  plan_kills(p);
  plan_stops(p);
  plan_copies(p);
  plan_errors(p);
  plan_host(p);
  for (int64_t n = one_in(3) ? 0 : 1 + below(3); n > 0; n--) plan_chain(p);
  if (one_in(16)) plan_one(p, CALL_commit, 3);
  if (one_in(5)) k->foreign = 1;
  if (one_in(6)) chain_administrator(p);
  if (one_in(4)) k->medium = 1 + below(3);
  k->hosted = one_in(4);
  k->notices = one_in(8) ? 1 + below(2) : 0;
  k->uses = k->processes > 1 && sim_chance(SIM_USES, 1, 5);
  k->pages = one_in(6) ? pages[below(6)] : 0;
  for (int64_t n = one_in(6) ? 1 + below(3) : 0; n > 0; n--)
    add_at_step(p, 'Q', some(3000));
  /* later additions are last, so that old seeds keep what is above */
  if (one_in(6)) plan_one(p, CALL_probe, 200);
  if (one_in(6)) k->notices = 1;
  if (one_in(3)) chain_unheard(p);
}

/* ---- as a string ---- */

/* The name of an error in a string. */
static const char *error_name(int64_t error) {
  for (int i = 0; i < ERRORS; i++)
    if (errors[i].error == error) return errors[i].name;
  return "EIO";
}

/* The meanings of the letters. */
static const struct {
  char letter;
  const char *words, *unit;
} kinds[] = {
#define KIND(letter, words, unit) {letter, words, unit},
    PLAN_FAULT_LIST(KIND)
#undef KIND
};
enum { KINDS = (int)(sizeof kinds / sizeof *kinds) };

/* The index of a letter; KINDS: no fault has it. */
static int kind_of(char letter) {
  int i = 0;
  while (i < KINDS && kinds[i].letter != letter) i++;
  return i;
}

/* For the story. */
void plan_fault_words(const plan_fault *f, char out[128]) {
  char text[64];
  int i = kind_of(f->kind);
  plan_print_fault(f, text);
  int n = snprintf(out, 128, "%s: %s", text, kinds[i].words);
  if (f->arg && *kinds[i].unit)
    snprintf(out + n, 128 - (size_t)n, ", %lld %s", (long long)f->arg,
             kinds[i].unit);
}

/* In the form that take_fault() reads. */
void plan_print_fault(const plan_fault *f, char out[64]) {
  int n = snprintf(out, 64, "%c", f->kind);
  if (f->slot >= 0) n += snprintf(out + n, 64 - (size_t)n, "%d", f->slot);
  n += snprintf(out + n, 64 - (size_t)n, "%c%s%lld", f->follows ? '+' : '@',
                f->call == CALL_any ? "" : sim_call_name(f->call),
                (long long)f->at);
  if (f->kind == 'e')
    snprintf(out + n, 64 - (size_t)n, ":%s", error_name(f->arg));
  else if (f->arg)
    snprintf(out + n, 64 - (size_t)n, ":%lld", (long long)f->arg);
}

/* In the form that plan_parse() reads. */
void plan_print(const plan *p, char out[PLAN_TEXT]) {
  int n = snprintf(out, PLAN_TEXT, "%llu/", (unsigned long long)p->seed);
#define PRINT(letter, name, least, most)                    \
  n += snprintf(out + n, PLAN_TEXT - (size_t)n, "%s%c%lld", \
                out[n - 1] == '/' ? "" : ",", letter, (long long)p->k.name);
  PLAN_KNOB_LIST(PRINT)
#undef PRINT
  out[n++] = '/';
  out[n] = '\0';
  for (int i = 0; i < p->faults && n < PLAN_TEXT - 80; i++) {
    char text[64];
    plan_print_fault(&p->fault[i], text);
    n += snprintf(out + n, PLAN_TEXT - (size_t)n, "%s%s", i ? "," : "", text);
  }
}

/* Each of these reads a part of the text from *at on, and moves *at beyond it.
 * They return what is wrong at *at, or NULL. */

/* A number. */
static const char *take_number(const char **at, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(*at, &end, 10);
  if (end == *at) return "a number is missing";
  if (errno) return "this number is too large";
  *at = end;
  return NULL;
}

/* One knob, "p3". */
static const char *take_knob(plan_knobs *k, const char **at) {
  static char limits[64];
  const char *number = *at + 1, *wrong;
  int64_t value;
  int i = 0;
  while (i < PLAN_KNOBS && plan_knob_of[i].letter != **at) i++;
  if (i == PLAN_KNOBS) return "no knob has this letter";
  const plan_knob *knob = &plan_knob_of[i];
  *at = number;
  if ((wrong = take_number(&number, &value))) return wrong;
  snprintf(limits, sizeof limits, "this knob is from %lld to %lld",
           (long long)knob->least, (long long)knob->most);
  if (value < knob->least || value > knob->most) return limits;
  *plan_knob_at(k, i) = value;
  *at = number;
  return NULL;
}

/* The name of a call; without one, any call. */
static const char *take_call(const char **at, sim_call *out) {
  size_t len = strspn(*at, "abcdefghijklmnopqrstuvwxyz");
  *out = CALL_any;
  for (int i = 0; len && i < CALL_any; i++) {
    const char *name = sim_call_name((sim_call)i);
    if (strlen(name) == len && strncmp(name, *at, len) == 0) {
      *out = (sim_call)i;
      *at += len;
      return NULL;
    }
  }
  return len ? "no call has this name" : NULL;
}

/* An error's name, or a number. */
static const char *take_argument(const char **at, int64_t *out) {
  for (int i = 0; i < ERRORS; i++) {
    size_t len = strlen(errors[i].name);
    if (strncmp(errors[i].name, *at, len) != 0) continue;
    *out = errors[i].error;
    *at += len;
    return NULL;
  }
  return take_number(at, out);
}

/* The process that a fault strikes; none for a fault of the host. */
static const char *take_slot(const plan *p, plan_fault *f, const char **at) {
  int64_t slot = -1;
  const char *from = *at, *wrong;
  if (f->kind >= 'a') {
    if ((wrong = take_number(at, &slot))) return wrong;
    if ((slot < 0 || slot >= p->k.processes) && slot != SIM_CHILD) {
      *at = from;
      return "there is no such process";
    }
  }
  f->slot = (int)slot;
  return NULL;
}

/* One fault, "k1@dwrite7:500". */
static const char *take_fault(const plan *p, plan_fault *f, const char **at) {
  const char *wrong;
  *f = (plan_fault){.kind = **at, .slot = -1};
  if (kind_of(f->kind) == KINDS) return "no fault has this letter";
  ++*at;
  if ((wrong = take_slot(p, f, at))) return wrong;
  if (**at != '@' && **at != '+') return "@ or + is missing";
  f->follows = *(*at)++ == '+';
  if ((wrong = take_call(at, &f->call))) return wrong;
  if ((wrong = take_number(at, &f->at))) return wrong;
  if (**at != ':') return f->kind == 'e' ? "its error is missing" : NULL;
  ++*at;
  return take_argument(at, &f->arg);
}

/* A list of knobs or faults ends at a slash or at the end of the text. */
static bool take_more(const char **at) {
  if (**at == ',') ++*at;
  return **at && **at != '/';
}

/* SEED/KNOBS/FAULTS; missing parts have their defaults. */
const char *plan_parse(plan *p, const char *text, const char **at) {
  int64_t seed;
  const char *wrong;
  *p = (plan){.k = {.processes = 1, .threads = 1, .steps = 1000}};
  *at = text;
  if ((wrong = take_number(at, &seed))) return wrong;
  p->seed = (uint64_t)seed;
  if (**at != '/') return "a / is missing after the seed";
  ++*at;
  while (take_more(at))
    if ((wrong = take_knob(&p->k, at))) return wrong;
  if (**at == '/') ++*at;
  while (take_more(at)) {
    if (p->faults == PLAN_FAULTS) return "there are too many faults";
    if ((wrong = take_fault(p, &p->fault[p->faults++], at))) return wrong;
  }
  return **at ? "this is a third /" : NULL;
}

/* ---- what strikes ---- */

/* Can a fault strike at this call at all? */
static bool fits(const plan_fault *f, sim_call call) {
  if (f->kind == 'e') return sim_call_reports(call, (int)f->arg);
  if (f->kind == 'l') return sim_call_syncs(call) || call == CALL_fsync;
  return f->kind != 'c' || plan_may_cancel(f->arg);
}

/* It strikes now; the next fault's place is relative to this one. */
static void strikes(int i) {
  plan_fault *next = &the_plan.fault[i + 1];
  the_plan.fault[i].done = true;
  sim.faults++;
  if (i + 1 == the_plan.faults || !next->follows) return;
  next->follows = false;
  next->at += plan_count(next->slot, next->call);
}

/* In the order of the list.  A fault that follows another waits for it. */
plan_fault *plan_strikes(int slot, sim_call call, int64_t number,
                         int64_t count) {
  for (int i = 0; i < the_plan.faults; i++) {
    plan_fault *f = &the_plan.fault[i];
    if (f->done || f->follows || f->slot != slot) continue;
    bool here = f->call == CALL_any ? number >= f->at
                                    : f->call == call && count >= f->at;
    if (!here || !fits(f, call)) continue;
    strikes(i);
    return f;
  }
  return NULL;
}

/* The same for faults of the host. */
plan_fault *plan_strikes_host(int64_t step) {
  for (int i = 0; i < the_plan.faults; i++) {
    plan_fault *f = &the_plan.fault[i];
    if (f->done || f->follows || f->slot >= 0 || step < f->at) continue;
    strikes(i);
    return f;
  }
  return NULL;
}

/* No step before this one needs to look for a fault. */
int64_t plan_next_host(void) {
  int64_t next = the_plan.k.steps;
  if (sim.ending) return SIM_NEVER;
  for (int i = 0; i < the_plan.faults; i++) {
    const plan_fault *f = &the_plan.fault[i];
    if (!f->done && !f->follows && f->slot < 0 && f->at < next) next = f->at;
  }
  return next;
}

/* The mean distance of each fault stays as it was. */
void plan_move_later(void) {
  for (int i = 0; i < the_plan.faults; i++) {
    plan_fault *f = &the_plan.fault[i];
    if (f->done) continue;
    int64_t from = f->follows ? 0 : plan_count(f->slot, f->call);
    if (f->at > from) f->at = from + 1 + below(2 * (f->at - from));
  }
}
