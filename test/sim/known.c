/* known.c - see known.h */
#include "test/sim/known.h"

#include <stdlib.h>
#include <string.h>

#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"

enum { VALUES = 1 << 17, VERSIONS = 1 << 14, ZXIDS = 1 << 18, IDS = 1 << 15 };

/* How long a call waits for others, and by how much it may be late (P10). */
enum { ADRIFT_MS = 2000, SLACK_MS = 1500 };

/* After this time since the last fault calls no longer fail, unless another
 * fault strikes: a wait may take that long (P11). */
enum { FELT_MS = 3000 };

/* While a call waits each other process makes at most this many changes: one
 * ahead of it in the line, and a few small ones that may overtake (P10). */
enum { TURNS = 8 };

/* If a lease was renewed shortly before a call begins, it lasts at least this
 * long (LEASE_MS of ops.c). */
enum { LEASE_SAFE_MS = 1000 };

known_session known_of[SIM_SLOTS];
bool known_ready, known_side_lost, known_fifos_lost;
int64_t known_check_began;

static int64_t zxid_most, changes;

/* ---- calls ---- */

/* Note what is known when a call begins: its answer must not be older. */
known_call known_begin(int slot, const char *name) {
  load_count.calls++;
  return (known_call){.name = name,
                      .slot = slot,
                      .at = sim.now,
                      .stopped = sched_stopped_ns(slot),
                      .zxid = zxid_most,
                      .changes = changes,
                      .ended = known_of[slot].ended};
}

/* How long it took, without the time for which its process was stopped. */
int64_t known_now_without_stops(const known_call *c) {
  return sim.now - c->at - (sched_stopped_ns(c->slot) - c->stopped);
}

bool known_may_end(int slot) {
  const known_session *s = &known_of[slot];
  const int64_t safe = LEASE_SAFE_MS * SIM_MS;
  bool calm = sim.last_fault < s->heard - 2 * safe;
  if (s->discards && sim.last_error >= 0) return true;
  if (known_side_lost) return true;
  return s->may_end && !(s->leased && calm && sim.now - s->heard < safe);
}

/* For how many ms faults of a kind that struck have lasted. */
static int64_t sum_of(char kind) {
  int64_t ms = 0;
  for (int i = 0; i < the_plan.faults; i++)
    if (the_plan.fault[i].kind == kind && the_plan.fault[i].done)
      ms += the_plan.fault[i].arg;
  return ms;
}

int64_t known_slow_ms(void) { return sum_of('l'); }

int64_t known_held_ms(void) { return sum_of('l') + sum_of('s'); }

/* Does the call's name begin with this? */
static bool begins_with(const known_call *c, const char *name) {
  return strncmp(c->name, name, strlen(name)) == 0;
}

/* By how many ms a call may be late because of other threads' calls: a wait and
 * a close return after them, before their watchers and after; and
 * zke_sql_adopt() begins after them. */
static int64_t behind_ms(const known_call *c) {
  bool is = begins_with(c, "wait") || begins_with(c, "dispatch") ||
            strstr(c->name, "close") || strstr(c->name, "sql_adopt");
  return is ? 2 * BUSY_MS * (the_plan.k.threads - 1) : 0;
}

/* P10: a call must return in time.  It must not be overtaken by many changes of
 * others, or time out long after the last fault. */
static void check_time(const known_call *c, int rc) {
  int64_t took = known_now_without_stops(c) / SIM_MS;
  int64_t most = BUSY_MS + SLACK_MS + known_slow_ms() + behind_ms(c);
  bool several = begins_with(c, "corner") || begins_with(c, "get_acl, ");
  if (several) most += 2 * BUSY_MS; /* it consists of several calls */
  if (the_plan.k.switches && took > most)
    sim_found("P10: %s took %lld ms: %s", c->name, (long long)took,
              zke_error_name(rc));
  bool whole = sim.full_until < c->at && sim.quota_until < c->at &&
               sim.bad_until < c->at;    /* if not, there is no line */
  bool calm = !begins_with(c, "wait") && /* others may go on meanwhile */
              whole && sim.last_fault < c->at && the_plan.k.switches;
  if (calm && took > 50 && changes - c->changes > TURNS * the_plan.k.processes)
    sim_found("P10: %s took %lld ms, others made %lld changes meanwhile",
              c->name, (long long)took, (long long)(changes - c->changes));
  if (rc == ZKE_OPERATIONTIMEOUT && sim.ending &&
      sim.now > sim.ending + 12000 * SIM_MS)
    sim_found("P10: %s timed out though faults are over: %s", c->name,
              zke_errmsg());
}

/* A power cut while SQLite creates the file can leave rubbish, in which nothing
 * was acknowledged: after a failed sync, or if the journal's name is not
 * synced.  A file created by another program stays intact. */
bool known_is_rubbish(const known_call *c) {
  bool failed = sim.last_error >= 0 && sim.last_error < c->at;
  if (the_plan.k.pages) return false;
  return !zxid_most && sim.cuts && (failed || the_plan.k.medium & 1);
}

/* Known faults of the engine that are not fixed yet, by a result and words of
 * its sentence.  So others can be found in the meantime. */
static const struct {
  int rc;
  const char *words;
} unmended[] = {{ZKE_OK, NULL}};

/* Does a result belong to a fault in this table? */
static bool is_unmended(int rc) {
  for (size_t i = 0; unmended[i].words; i++)
    if (rc == unmended[i].rc && strstr(zke_errmsg(), unmended[i].words))
      return true;
  return false;
}

/* A handle ends at its next tick after its files were removed.  Ticks come once
 * a second, but not while a call has the store.  A call that began before the
 * removal may end later, possibly with no tick before its end. */
static void check_adrift(const known_call *c, int rc) {
  sched_process *p = sched_self();
  if (!p->adrift || p->unsure || strstr(c->name, "close")) return;
  if (c->at <= p->adrift) {
    p->felt = sim.now;
    p->felt_stopped_ns = p->stopped_ns;
  }
  if (rc != ZKE_OK) return;
  int64_t at = c->at < sim.now ? c->at : sim.now; /* a wait's is its end */
  bool felt = p->felt > p->adrift;
  int64_t since = felt ? p->felt : p->adrift;
  int64_t stopped = p->stopped_ns - (felt ? p->felt_stopped_ns : 0);
  int64_t ms = (at - since - stopped) / SIM_MS;
  if (ms > ADRIFT_MS + known_slow_ms() + behind_ms(c))
    sim_found("P5: %s goes on %lld ms after files of the handle were removed%s",
              c->name, (long long)ms,
              felt ? ", and the call that ran then had ended" : "");
}

/* Was a process stopped after that time?  It may have blocked all others with a
 * lock of SQLite's. */
static bool was_stopped(int64_t since) {
  for (int i = 0; i < the_plan.k.processes; i++)
    if (sched_lives(i) && sched_process_of(i)->stop_until > since) return true;
  return false;
}

/* Has nothing failed that the call could still feel?  A store's log may be
 * unresolved for a while, and for longer if more faults come. */
static bool is_calm(const known_call *c) {
  const int64_t felt = c->at - FELT_MS * SIM_MS;
  if (sim.last_error < 0) return true;
  return sim.last_error < felt && sim.last_fault < felt && !was_stopped(felt);
}

/* P2: a change for which there was no room was not made, and its caller is told
 * so.  But SQLite may pad a commit when its frame is already written. */
static void check_room(const known_call *c, int rc) {
  bool padded = the_plan.k.medium & 2;
  if (rc == ZKE_CONNECTIONLOSS && !sim.failed && !padded)
    sim_found("P2: %s may have been made, though only room was missing: %s",
              c->name, zke_errmsg());
}

/* May the call return this now?  A session may only end if it is allowed to
 * (P5).  Some results are never right here, and system errors need a fault
 * (P11). */
static void check_result(const known_call *c, int rc) {
  check_adrift(c, rc);
  check_room(c, rc);
  if (is_unmended(rc)) return;
  known_session *s = &known_of[c->slot];
  switch (rc) {
    case ZKE_SESSIONEXPIRED:
    case ZKE_INVALIDSTATE:
    case ZKE_SESSIONMOVED:
    case ZKE_REPLACED:
      if (!known_may_end(c->slot))
        sim_found("P5: %s of a living session: %s, %s", c->name,
                  zke_error_name(rc), zke_errmsg());
      s->lost = true;
      return;
    case ZKE_FORKED:
      if (sched_self()->was_inside) return;
      sim_found("P9: %s: %s", c->name, zke_errmsg());
    case ZKE_NOTADB:
    case ZKE_CORRUPT:
      if (known_is_rubbish(c)) return;
      sim_found("P11: %s: %s", c->name, zke_errmsg());
    case ZKE_MISUSE:
    case ZKE_BADARGUMENTS:
      sim_found("P11: %s: %s, %s", c->name, zke_error_name(rc), zke_errmsg());
    case ZKE_CONNECTIONLOSS:
    case ZKE_FULL:
    case ZKE_SYSTEMERROR:
    case ZKE_CANTOPEN:
    case ZKE_NOMEM:
      if (is_calm(c))
        sim_found("P11: %s failed though nothing did: %s, %s", c->name,
                  zke_error_name(rc), zke_errmsg());
      return;
    default:
      return;
  }
}

/* Judge a call by its result and its time, and return the result. */
int known_end(known_call c, int rc) {
  sim_trace((uint64_t)(unsigned)rc);
  load_count.ok += rc == ZKE_OK;
  load_count.loss += rc == ZKE_CONNECTIONLOSS;
  load_count.late += rc == ZKE_OPERATIONTIMEOUT;
  load_count.other +=
      rc != ZKE_OK && rc != ZKE_CONNECTIONLOSS && rc != ZKE_OPERATIONTIMEOUT;
  check_time(&c, rc);
  check_result(&c, rc);
  return rc;
}

/* ---- zxids and sessions ---- */

static struct { int64_t zxid, at; } zxids[ZXIDS];

/* Where a zxid is noted; those of an epoch are together. */
static size_t zxid_place(int64_t zxid) {
  size_t i = (size_t)(zxid + (zxid >> 32 << 12)) % ZXIDS;
  while (zxids[i].zxid && zxids[i].zxid != zxid) i = (i + 1) % ZXIDS;
  return i;
}

/* A change was acknowledged with this zxid: it is higher than all known when
 * the call began, and was never used before (P8). */
void known_zxid(known_call c, int64_t zxid) {
  if (zxid <= c.zxid)
    sim_found("P8: %s has the zxid %llx, after %llx was acknowledged", c.name,
              (long long)zxid, (long long)c.zxid);
  size_t i = zxid_place(zxid);
  if (zxids[i].zxid)
    sim_found("P8: %s has the zxid %llx, which was given before", c.name,
              (long long)zxid);
  zxids[i].zxid = zxid;
  zxids[i].at = sim.now;
  if (++changes > ZXIDS / 2) sim_bug("too many changes");
  if (zxid > zxid_most) zxid_most = zxid;
  known_of[c.slot].heard = c.at;
  if (c.ended) sim_found("P5: %s by a session that was ended before", c.name);
}

/* The last zxid that was acknowledged. */
int64_t known_most(void) { return zxid_most; }

/* When the change with this zxid was acknowledged; 0: it was not. */
int64_t known_zxid_at(int64_t zxid) {
  size_t i = zxid_place(zxid);
  return zxids[i].zxid ? zxids[i].at : 0;
}

/* A read saw the state of this zxid: none older than known when it began
 * (P8). */
void known_read(known_call c, int64_t zxid) {
  if (zxid && zxid < c.zxid)
    sim_found("P8: %s saw the state of zxid %llx, after %llx was acknowledged",
              c.name, (long long)zxid, (long long)c.zxid);
  if (c.ended) sim_found("P5: %s by a session that was ended before", c.name);
  known_of[c.slot].heard = c.at;
}

/* No session id is used twice, not even after a power cut (P8). */
void known_session_id(int64_t id) {
  static int64_t ids[IDS];
  static int count;
  for (int i = 0; i < count; i++)
    if (ids[i] == id)
      sim_found("P8: the session id %llx was given twice", (long long)id);
  if (count < IDS) ids[count++] = id;
}

/* ---- values and registers ---- */

enum fate { NEVER, TRIED, ACKNOWLEDGED, REFUSED, SEEN };
static unsigned char values[VALUES];
static int value_count;

/* A new value, for a set that is about to be tried. */
int known_value_new(void) {
  if (++value_count >= VALUES) sim_bug("too many values");
  values[value_count] = TRIED;
  return value_count;
}

/* The outcome of a set of a value.  A refused value must never be seen (P2). */
void known_value_end(int value, int rc) {
  if (rc == ZKE_OK) {
    values[value] = ACKNOWLEDGED;
  } else if (rc != ZKE_CONNECTIONLOSS) {
    if (values[value] == SEEN)
      sim_found("P2: a change was refused (%s), and seen all the same",
                zke_error_name(rc));
    values[value] = REFUSED;
  }
}

/* The part that a backup has.  Values, zxids and session ids are never used
 * again. */
static struct known_tree {
  struct {
    int most; /* the highest version */
    int value[VERSIONS];
    int64_t mzxid[VERSIONS];
  } registers[KNOWN_REGISTERS];
  int pair_most;
  unsigned char numbers[KNOWN_NUMBERS];
  int given; /* one more than the highest */
} tree, kept;

void known_keep(void) { kept = tree; }
void known_go_back(void) { tree = kept; }

/* The highest known version of a register. */
int known_version(int k) { return tree.registers[k].most; }

/* A version of a register has one value and one zxid, whichever call returns
 * them. */
void known_set(int k, int version, int value, int64_t mzxid) {
  if (version < 0 || version >= VERSIONS)
    sim_found("/r%d: version %d", k, version);
  int *have = &tree.registers[k].value[version];
  int64_t *zxid = &tree.registers[k].mzxid[version];
  if (*zxid && (*have != value || *zxid != mzxid))
    sim_found("P2: version %d of /r%d was %d of zxid %llx and is %d of %llx",
              version, k, *have, (long long)*zxid, value, (long long)mzxid);
  *have = value;
  *zxid = mzxid;
  if (version > tree.registers[k].most) tree.registers[k].most = version;
}

/* A read of a register returned this.  It must be a value that was written and
 * not refused (P2), in a version not older than what was known (P8). */
void known_got(int k, int least, const char *data, int len,
               const zke_stat *stat) {
  char text[24] = "";
  if (len < 0 || len > KNOWN_BYTES) sim_found("/r%d has %d bytes", k, len);
  memcpy(text, data, (size_t)(len < 20 ? len : 20));
  int value = atoi(text);
  if (stat->version < least)
    sim_found("P8: /r%d has version %d (value %d), after %d was known", k,
              stat->version, value, least);
  if (value < 0 || value > value_count || (value && values[value] == NEVER))
    sim_found("P2: /r%d is %d, which nobody wrote", k, value);
  if (value && values[value] == REFUSED)
    sim_found("P2: /r%d is %d, whose set was refused", k, value);
  if (value && values[value] == TRIED) values[value] = SEEN;
  known_set(k, stat->version, value, stat->mzxid);
}

/* The zxid of a version, or 0 if it is unknown. */
int64_t known_mzxid(int k, int version) {
  bool known = k >= 0 && k < KNOWN_REGISTERS && version < VERSIONS;
  return known ? tree.registers[k].mzxid[version] : 0;
}

/* The highest known version of the pair. */
int known_pair(void) { return tree.pair_most; }

/* The pair has reached this version. */
void known_pair_set(int version) {
  if (version > tree.pair_most) tree.pair_most = version;
}

/* ---- the queue ---- */

enum number { UNKNOWN, THERE, LEAVING, GONE };

/* One more than the queue's highest known number. */
int known_given(void) { return tree.given; }

/* A create in the queue got this number: a new one, above all that were known
 * when the call began (P8). */
void known_give(int number, int least) {
  if (number < 0 || number >= KNOWN_NUMBERS) sim_bug("number %d", number);
  if (tree.numbers[number])
    sim_found("P8: the number %d was given twice", number);
  if (number < least)
    sim_found("P8: the number %d was given after %d", number, least - 1);
  tree.numbers[number] = THERE;
  if (number >= tree.given) tree.given = number + 1;
}

/* An existing number, for a delete that is about to be tried; or -1. */
int known_pick(uint64_t random) {
  if (!tree.given) return -1;
  int n = (int)(random % (uint64_t)tree.given);
  if (tree.numbers[n] != THERE) return -1;
  tree.numbers[n] = LEAVING;
  return n;
}

/* The outcome of that delete, which cannot have found the number missing. */
void known_taken(int number, int rc) {
  if (rc == ZKE_OK) tree.numbers[number] = GONE;
  if (rc == ZKE_NONODE) sim_found("P8: number %d of /q is lost", number);
  if (rc != ZKE_OK && rc != ZKE_CONNECTIONLOSS) tree.numbers[number] = THERE;
}

/* What is known of all numbers now, for known_listed() after a read. */
void known_numbers(unsigned char out[KNOWN_NUMBERS]) {
  memcpy(out, tree.numbers, sizeof tree.numbers);
}

/* The number at the end of a name that the engine chose; or -1. */
int known_number_of(const char *path) {
  size_t len = strlen(path);
  return len > 10 ? atoi(path + len - 10) : -1;
}

/* A read of the queue has all numbers that existed from before it began until
 * now, and none that were gone before (P8). */
void known_listed(const zke_strings *names, const unsigned char *before) {
  static unsigned char has[KNOWN_NUMBERS];
  memset(has, 0, sizeof has);
  for (int i = 0; i < names->count; i++) {
    int n = known_number_of(names->data[i]);
    if (n < 0 || n >= KNOWN_NUMBERS) sim_found("/q has %s", names->data[i]);
    has[n] = 1;
    if (before[n] == GONE)
      sim_found("P8: number %d of /q was deleted, and is there", n);
  }
  for (int n = 0; n < tree.given; n++)
    if (before[n] == THERE && tree.numbers[n] == THERE && !has[n])
      sim_found("P8: number %d of /q is lost", n);
}

/* ---- locks ---- */

static struct {
  int holder; /* slot + 1 */
  int64_t session, generation;
} locks[KNOWN_LOCKS];

/* The holder of a lock, if its session surely lives; or -1.  The generation
 * tells later whether it is still the same hold. */
int known_holder(int k, int64_t *generation) {
  int slot = locks[k].holder - 1;
  *generation = locks[k].generation;
  bool holds = slot >= 0 && sched_lives(slot) &&
               known_of[slot].id == locks[k].session && !known_of[slot].may_end;
  return holds ? slot : -1;
}

/* A process has got the lock. */
void known_hold(int k, int slot) {
  locks[k].holder = slot + 1;
  locks[k].session = known_of[slot].id;
  locks[k].generation++;
}

/* It releases the lock, before it asks the engine to. */
void known_release(int k) {
  locks[k].holder = 0;
  locks[k].generation++;
}

/* A process no longer holds anything: it has died, or closes its session. */
void known_release_all(int slot) {
  for (int k = 0; k < KNOWN_LOCKS; k++)
    if (locks[k].holder == slot + 1) known_release(k);
}
