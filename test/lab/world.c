/* world.c - processes that run step by step
 *
 * A process is a fiber.  It runs until its next call of zkembed.h, until it
 * waits, or until it returns; then the search chooses the next step.
 * Everything that a step changes is in struct world, in the arena, so that a
 * picture of the arena contains it.
 *
 * The engine gets a table of system calls with a clock that stands still, pipes
 * that are counters, and a poll() that ends the step.  Death is two steps: the
 * process never runs again, and later another one ends its session, as the
 * engine ends the sessions of dead processes.  Anything may happen in between.
 *
 * Start reading at world_steps() and world_step(). */
#define _GNU_SOURCE
#include "world.h"

#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"
#include "fiber.h"
#include "keep.h"
#include "../../recipes/support.h"

/* The engine's own functions: a process does not stop before these. */
int lab_real_zke_open(const char *name, const zke_options *options, zke **out);
int lab_real_zke_open_session(zke *z, const zke_options *options, zke **out);
int lab_real_zke_expire(zke *z, int64_t session);

enum { MOST = ZKE_LAB_MOST, PIPES = 64, SESSIONS = 8, FIRST_FD = 1 << 20 };

enum life { LIFE_READY, LIFE_WAITS, LIFE_RETURNED, LIFE_DEAD, LIFE_BURIED };

typedef struct process {
  void *sp;
  char *mark; /* its caller's part of the stack is above: FIBER_MARKED() */
  enum life life;
  bool cleans; /* it clears the memory below its stack, and continues */
  zke *z;      /* its session, shared by its threads */
  int64_t session;
  zke *more[SESSIONS]; /* further sessions that it has opened */
  int64_t more_sessions[SESSIONS];
  int more_count;
  bool expired;
  bool begun;       /* it is about to make a call, or has made one */
  bool makes, made; /* it is about to make an ephemeral or sequential znode; it
                     * has tried to */
  bool in_batch;    /* and makes calls inside it, which are no steps */
  bool spare;       /* no other may wait forever because it is gone */
  const char *call; /* the next call, or the one that waits */
  char path[LAB_PATH];
  zke *handle;   /* of that call */
  lab_wait wait; /* the innermost one */
  /* waiting */
  int fd;          /* to be read from; -1 */
  const void *on;  /* a mutex or condition; NULL */
  int64_t due;     /* ns */
  bool sleeps;     /* it waits only for time to pass */
  bool woken;      /* by another; it has done nothing since */
  int vain;        /* how often it was woken in vain */
  unsigned inside; /* sections, as bits */
  unsigned drawn;  /* random numbers */
  char *thread;    /* its thread-local variables, while another runs */
} process;

typedef struct world {
  process p[MOST];
  int n;
  int current; /* -1: none runs */
  int last;
  zke *observer;
  int64_t now;
  int pipes;
  unsigned bytes[PIPES];
  int crashes, expiries, losses, pauses; /* left */
  bool hurt; /* a process that was not spare has died or lost its session */
  int step;
  bool failed;
  bool in_section, read_clock; /* set by the last step */
  char sections[LAB_SECTIONS][32];
  int section_count;
  char *thread; /* the explorer's thread-local variables */
} world;

static world *W;
zke_lab *lab_running;

/* Where to continue after a failed look. */
static jmp_buf *look_escape;

/* Each process has its own copy of these variables: the linker collects those
 * of the engine and the recipes between these symbols. */
extern char __start_lab_thread[], __stop_lab_thread[];

static size_t thread_bytes(void) {
  return (size_t)(__stop_lab_thread - __start_lab_thread);
}

static bool inside(void) { return W && W->current >= 0; }
static process *self(void) { return &W->p[W->current]; }
static const char *name_of(int i) { return lab_running->processes[i].name; }

/* ---- lines of a picture ---- */

static void line_add(int lane, char kind, const char *format, va_list ap) {
  zke_lab *lab = lab_running;
  if (!lab || !lab->lines || lab->line_count == LAB_LINES) return;
  drawing_line *line = &lab->lines[lab->line_count++];
  line->lane = lane;
  line->kind = kind;
  line->step = W->step;
  line->now = W->now;
  vsnprintf(line->text, sizeof line->text, format, ap);
}

__attribute__((format(printf, 3, 4))) static void line_say(int lane, char kind,
                                                           const char *format,
                                                           ...) {
  va_list ap;
  va_start(ap, format);
  line_add(lane, kind, format, ap);
  va_end(ap);
}

/* ---- from the explorer to a process, and back ---- */

static void go_back(enum life life) {
  process *p = self();
  p->life = life;
  p->mark = fiber_mark;
  fiber_switch(&p->sp, lab_running->main_sp);
}

/* In a process: the engine's leftovers on the stack are in the way of its
 * caller's next actions.  They can only be cleared from another stack. */
static void clean_up(void) {
  if (!keep_has_pictures) return;
  self()->cleans = true;
  fiber_switch(&self()->sp, lab_running->main_sp);
}

static void go_to(int i) {
  process *p = &W->p[i];
  keep_watch(lab_running, true);
  memcpy(W->thread, __start_lab_thread, thread_bytes());
  memcpy(__start_lab_thread, p->thread, thread_bytes());
  W->current = i;
  W->last = i;
  lab_running->doing = i;
  lab_running->doing_call = p->call;
  memcpy(lab_running->doing_path, p->path, sizeof p->path);
  arena_current = ARENA_PROCESS + i;
  do {
    p->cleans = false;
    fiber_clean(p->sp);
    fiber_switch(&lab_running->main_sp, p->sp);
  } while (p->cleans);
  keep_watch(lab_running, false);
  W->current = -1;
  lab_running->doing = -1;
  arena_current = ARENA_WORLD;
  memcpy(p->thread, __start_lab_thread, thread_bytes());
  memcpy(__start_lab_thread, W->thread, thread_bytes());
}

static void fail_as(const char *format, va_list ap) {
  if (W->failed) return;
  W->failed = true;
  vsnprintf(lab_running->why, sizeof lab_running->why, format, ap);
  line_say(W->current, 'f', "%s", lab_running->why);
}

__attribute__((format(printf, 1, 2))) static void fail(const char *format,
                                                       ...) {
  va_list ap;
  va_start(ap, format);
  fail_as(format, ap);
  va_end(ap);
}

void zke_lab_fail(const char *format, ...) {
  va_list ap;
  if (!W) return;
  va_start(ap, format);
  fail_as(format, ap);
  va_end(ap);
  if (inside()) go_back(LIFE_RETURNED);
  if (look_escape) longjmp(*look_escape, 1);
}

void zke_lab_note(const char *format, ...) {
  va_list ap;
  if (!W) return;
  va_start(ap, format);
  line_add(W->current, 'n', format, ap);
  va_end(ap);
}

void zke_lab_spare(void) {
  if (inside()) self()->spare = true;
}

void yield_marked(void);
FIBER_MARKED(zke_lab_yield, yield_marked);

void yield_marked(void) {
  if (!inside()) return;
  self()->call = "zke_lab_yield";
  self()->path[0] = '\0';
  go_back(LIFE_READY);
}

/* ---- calls of zkembed.h ---- */

static bool call_is_change(const char *call) {
  static const char *const changes[] = {
      "zke_create",  "zke_create_ttl", "zke_delete",         "zke_set",
      "zke_set_acl", "zke_multi",      "zke_raise_sequence", "zke_batch"};
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    if (call && strcmp(call, changes[i]) == 0) return true;
  }
  return false;
}

/* A hash of all calls and their results: if the program has changed, replaying
 * a schedule gives another one. */
static void trace_add(const char *text, int number) {
  uint64_t h = lab_running->trace ^ (uint64_t)(unsigned)number;
  bool outside = lab_running->has_outside;
  for (; *text; text++) {
    if (outside) text += outside_guid(text);
    if (!*text) break;
    h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  }
  lab_running->trace = h;
}

/* As much as fits.  snprintf() would be too slow for every call. */
static void text_copy(char *to, size_t size, const char *from) {
  size_t length = strnlen(from, size - 1);
  memcpy(to, from, length);
  to[length] = '\0';
}

void call_marked(const char *name, zke *z, const char *path);
FIBER_MARKED(lab_call, call_marked);

void call_marked(const char *name, zke *z, const char *path) {
  if (!inside() || self()->in_batch) return;
  process *p = self();
  p->call = name;
  p->handle = z;
  p->begun = true;
  text_copy(p->path, sizeof p->path, path ? path : "(NULL)");
  lab_running->calls++;
  go_back(LIFE_READY);
  p->made = p->made || p->makes;
  p->makes = false;
  trace_add(p->call, W->current);
  trace_add(p->path, 0);
}

void lab_batch(bool begins) {
  if (inside()) self()->in_batch = begins;
}

int lab_done(int rc) {
  if (!inside() || self()->in_batch) return rc;
  process *p = self();
  if (rc == ZKE_OK && call_is_change(p->call)) p->woken = false;
  trace_add("", rc);
  line_say(W->current, 'c', "%s %s%s%s", p->call, p->path,
           rc == ZKE_OK ? "" : "  ", rc == ZKE_OK ? "" : zke_error_name(rc));
  clean_up();
  return rc;
}

lab_wait lab_wait_begin(char *mark, int64_t turn, int64_t deadline_ms) {
  lab_wait was = {NULL, 0, INT64_MAX};
  if (!inside()) return was;
  was = self()->wait;
  int64_t until =
      deadline_ms >= INT64_MAX / 1000000 ? INT64_MAX : deadline_ms * 1000000;
  self()->wait = (lab_wait){mark, turn, until};
  return was;
}

void lab_wait_end(lab_wait was) {
  if (inside()) self()->wait = was;
}

void lab_makes(bool makes) {
  if (inside() && !self()->in_batch) self()->makes = makes;
}

void lab_zxid(void) {
  if (lab_running) lab_running->asks_zxid = true;
}

zke *lab_store(void) { return inside() ? W->observer : NULL; }

int lab_opened(int rc, zke **z) {
  if (inside() && rc == ZKE_OK) {
    process *p = self();
    if (p->more_count == SESSIONS)
      zke_lab_fail("%s has opened more than %d sessions", name_of(W->current),
                   SESSIONS);
    p->more_sessions[p->more_count] = zke_session_id(*z);
    p->more[p->more_count++] = *z;
  }
  return lab_done(rc);
}

/* ---- sections ---- */

void zke_lab_reach(const char *name) {
  for (int i = 0; W && i < lab_running->wanted_count; i++) {
    if (strcmp(lab_running->wanted[i].name, name) == 0)
      lab_running->wanted[i].reached = true;
  }
}

/* A separate function, so that its numbers stay out of the caller's stack
 * frame, where they would make equal states differ. */
__attribute__((noinline)) static void count_entry(const char *section) {
  lab_running->entries++;
  zke_lab_reach(section);
}

static int section_number(const char *name) {
  for (int i = 0; i < W->section_count; i++) {
    if (strcmp(W->sections[i], name) == 0) return i;
  }
  if (W->section_count == LAB_SECTIONS)
    zke_lab_fail("more than %d sections", LAB_SECTIONS);
  snprintf(W->sections[W->section_count], sizeof W->sections[0], "%s", name);
  return W->section_count++;
}

/* A process that is dead, or whose session has expired, holds nothing: others
 * refuse what it does. */
static bool process_counts(const process *p) {
  return p->life != LIFE_DEAD && p->life != LIFE_BURIED && !p->expired;
}

static int section_holder(int section, int but) {
  for (int i = 0; i < W->n; i++) {
    const process *p = &W->p[i];
    if (i != but && process_counts(p) && (p->inside >> section & 1)) return i;
  }
  return -1;
}

void zke_lab_enter(const char *section, int limit) {
  if (!inside()) return;
  int s = section_number(section), count = 0;
  process *p = self();
  W->in_section = true;
  count_entry(section);
  p->inside |= 1u << s;
  p->woken = false;
  line_say(W->current, '[', "%s", section);
  for (int i = 0; i < W->n; i++)
    count += process_counts(&W->p[i]) && (W->p[i].inside >> s & 1);
  if (count > limit && process_counts(p)) {
    int other = section_holder(s, W->current);
    zke_lab_fail("%s is in \"%s\" beside %s%s, and at most %d may be",
                 name_of(W->current), section, name_of(other),
                 count > 2 ? " and others" : "", limit);
  }
  zke_lab_yield();
}

void zke_lab_leave(const char *section) {
  if (!inside()) return;
  W->in_section = true;
  self()->inside &= ~(1u << section_number(section));
  line_say(W->current, ']', "%s", section);
}

void zke_lab_exclude(const char *section, const char *other) {
  if (!inside()) return;
  W->in_section = true;
  if (!process_counts(self())) return;
  int s = section_number(section), o = section_number(other);
  if (!(self()->inside >> s & 1)) return;
  int holder = section_holder(o, W->current);
  if (holder >= 0)
    zke_lab_fail("%s is in \"%s\" while %s is in \"%s\"", name_of(W->current),
                 section, name_of(holder), other);
}

/* ---- waiting ---- */

/* End the step until the process is woken, or until `due`. */
static void wait_for(int fd, const void *on, int64_t due, bool sleeps) {
  process *p = self();
  p->fd = fd;
  p->on = on;
  p->due = due;
  p->sleeps = sleeps;
  go_back(LIFE_WAITS);
  p->fd = -1;
  p->on = NULL;
  p->due = INT64_MAX;
  p->sleeps = false;
}

/* A process that changed nothing after being woken, and waits again, was woken
 * in vain. */
static void wait_count_vain(process *p) {
  int allowed = lab_running->options.wakes;
  if (!p->woken) return;
  p->woken = false;
  p->vain++;
  if (allowed > 0 && p->vain > allowed)
    zke_lab_fail("%s was woken %d times for nothing, and %d are allowed",
                 name_of(W->current), p->vain, allowed);
}

static void wake(process *p) {
  if (p->life != LIFE_WAITS) return;
  p->life = LIFE_READY;
  p->woken = true;
}

int lab_self(void) { return inside() ? W->current + 1 : 0; }

bool wait_on_marked(const void *what, int64_t due, const char *name);
FIBER_MARKED(lab_wait_on, wait_on_marked);

bool wait_on_marked(const void *what, int64_t due, const char *name) {
  self()->call = name;
  self()->path[0] = '\0';
  wait_for(-1, what, due, false);
  return W->now >= due;
}

void lab_wake_on(const void *what) {
  for (int i = 0; i < W->n; i++) {
    if (W->p[i].on == what) wake(&W->p[i]);
  }
}

/* ---- the engine's system ---- */

static int64_t os_clock(void *context, int which) {
  (void)context;
  W->read_clock = true;
  if (which == ZKE_CLOCK_REALTIME) return W->now + INT64_C(1700000000000000000);
  return W->now;
}

static int os_pipe(void *context, int fds[2]) {
  (void)context;
  if (W->pipes == PIPES) return -EMFILE;
  fds[0] = FIRST_FD + 2 * W->pipes;
  fds[1] = fds[0] + 1;
  W->bytes[W->pipes++] = 0;
  return 0;
}

static unsigned *os_bytes(int fd) { return &W->bytes[(fd - FIRST_FD) / 2]; }

static int os_close(void *context, int fd) {
  (void)context;
  return fd >= FIRST_FD ? 0 : close(fd);
}

static int64_t os_write(void *context, int fd, const void *at, size_t size) {
  (void)context;
  (void)at;
  if (fd < FIRST_FD) return -EBADF;
  *os_bytes(fd) += (unsigned)size;
  for (int i = 0; i < W->n; i++) {
    if (W->p[i].fd == fd - 1) wake(&W->p[i]);
  }
  return (int64_t)size;
}

static int64_t os_read(void *context, int fd, void *at, size_t size) {
  (void)context;
  if (fd < FIRST_FD) return -EBADF;
  unsigned *bytes = os_bytes(fd);
  if (!*bytes) return -EAGAIN;
  size_t got = *bytes < size ? *bytes : size;
  memset(at, 0, got);
  *bytes -= (unsigned)got;
  return (int64_t)got;
}

/* The time-out ignores the handle's ticks, whose repairs must not be needed
 * here. */
int os_poll(void *context, struct pollfd *fds, unsigned count, int timeout_ms);
int poll_marked(void *context, struct pollfd *fds, unsigned count,
                int timeout_ms);
FIBER_MARKED(os_poll, poll_marked);

int poll_marked(void *context, struct pollfd *fds, unsigned count,
                int timeout_ms) {
  (void)context;
  (void)count;
  if (*os_bytes(fds[0].fd)) return 1;
  if (timeout_ms == 0 || !inside()) return 0;
  process *p = self();
  int64_t alarm = engine_alarm(p->handle);
  bool sleeps = alarm < p->wait.until;
  wait_count_vain(p);
  if (p->wait.mark) fiber_mark = p->wait.mark;
  wait_for(fds[0].fd, NULL, sleeps ? alarm : p->wait.until, sleeps);
  return *os_bytes(fds[0].fd) != 0;
}

static int os_poller(void *context) {
  (void)context;
  return -ENOSYS;
}

/* Random numbers all differ, and are the same in every run. */
static void draw_bytes(unsigned char *at, size_t size) {
  uint64_t number = 7;
  if (inside())
    number = (uint64_t)++self()->drawn << 8 | (uint64_t)(W->current + 1);
  number *= UINT64_C(0x9e3779b97f4a7c15);
  for (size_t i = 0; i < size; i++)
    at[i] = (unsigned char)((number >> (i % 8 * 8)) + i / 8);
}

static int os_random(void *context, void *at, size_t size) {
  (void)context;
  draw_bytes(at, size);
  return 0;
}

static int64_t os_pid(void *context) {
  (void)context;
  return 1000;
}

static int os_name(void *context, char *at, size_t size) {
  (void)context;
  snprintf(at, size, "laboratory");
  return 0;
}

void os_sleep(void *context, int64_t ns);
void sleep_marked(void *context, int64_t ns);
FIBER_MARKED(os_sleep, sleep_marked);

void sleep_marked(void *context, int64_t ns) {
  (void)context;
  if (!inside()) {
    W->now += ns;
    return;
  }
  self()->call = "sleep";
  wait_for(-1, NULL, W->now + ns, true);
}

static void *os_resize(void *context, void *block, size_t size) {
  (void)context;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

static void os_fill(zke_os *os) {
  zke_os_default(os);
  os->clock = os_clock;
  os->pipe = os_pipe;
  os->close = os_close;
  os->write = os_write;
  os->read = os_read;
  os->poll = os_poll;
  os->poller = os_poller;
  os->random = os_random;
  os->pid = os_pid;
  os->process_name = os_name;
  os->sleep = os_sleep;
}

/* ---- the C library's clocks and random numbers ---- */

int clock_gettime(clockid_t id, struct timespec *out) {
  if (!W) return (int)syscall(SYS_clock_gettime, id, out);
  int64_t ns = os_clock(NULL, id == CLOCK_REALTIME ? ZKE_CLOCK_REALTIME : 0);
  out->tv_sec = ns / 1000000000;
  out->tv_nsec = ns % 1000000000;
  return 0;
}

int getentropy(void *at, size_t size) {
  if (!W) return syscall(SYS_getrandom, at, size, 0) == (long)size ? 0 : -1;
  draw_bytes(at, size);
  return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left) {
  if (!inside()) return (int)syscall(SYS_nanosleep, time, left);
  os_sleep(NULL, time->tv_sec * INT64_C(1000000000) + time->tv_nsec);
  return 0;
}

/* ---- what ends a process from within ---- */

void world_death_words(const zke_lab *lab, const char *how, char *out,
                       size_t size) {
  const char *call = lab->doing >= 0 ? lab->doing_call : NULL;
  snprintf(out, size, "%s: %s, after %s %s",
           lab->doing >= 0 ? lab->processes[lab->doing].name : "a check", how,
           call ? call : "nothing", call ? lab->doing_path : "");
}

void arena_misuse(const char *how) {
  char why[LAB_WHY];
  if (!inside()) {
    fprintf(stderr, "%s\n", how);
    abort();
  }
  world_death_words(lab_running, how, why, sizeof why);
  zke_lab_fail("%s", why);
}

/* assert(): its sentence becomes the finding's.  <assert.h> declares it. */
#if defined(__GLIBC__)
typedef unsigned assert_line;
#else
typedef int assert_line;
#endif

void __assert_fail(const char *expression, const char *file, assert_line line,
                   const char *function) {
  int at = (int)line;
  if (inside() || look_escape)
    zke_lab_fail("%s:%d: %s: assert(%s)", file, at, function, expression);
  fprintf(stderr, "%s:%d: %s: assert(%s)\n", file, at, function, expression);
  abort();
}

/* ---- the life of a process ---- */

static bool is_alive(const process *p) {
  return p->life == LIFE_READY || p->life == LIFE_WAITS;
}

/* All threads of a process. */
static bool same_process(const zke_lab *lab, int i, int j) {
  return lab->processes[i].leader == lab->processes[j].leader;
}

/* Does another thread of the process still run?  The znodes may belong to
 * that. */
static bool process_goes_on(int i) {
  for (int j = 0; j < W->n; j++) {
    if (j != i && same_process(lab_running, i, j) && is_alive(&W->p[j]))
      return true;
  }
  return false;
}

/* Report what a process leaves behind when it returns. */
static void process_check_leftovers(int i) {
  process *p = &W->p[i];
  size_t bytes = 0;
  if (lab_running->options.leftovers || p->expired) return;
  size_t blocks = state_leaked(lab_running, i, &bytes);
  if (blocks)
    zke_lab_fail("%s has returned and left %zu bytes of memory in %zu blocks",
                 name_of(i), bytes, blocks);
  if (process_goes_on(i)) return;
  int owned = engine_owned(W->observer, p->session);
  if (owned > 0)
    zke_lab_fail("%s has returned and left %d ephemeral znodes", name_of(i),
                 owned);
  int watchers = engine_watchers(p->z);
  if (watchers > 0)
    zke_lab_fail("%s has returned and left %d watchers", name_of(i), watchers);
}

static void process_main(void) {
  int i = W->current;
  zke_line_act_as((uint64_t)i + 1);
  lab_running->processes[i].fn(W->p[i].z, lab_running->processes[i].arg);
  W->p[i].inside = 0;
  line_say(i, 'e', "returns");
  process_check_leftovers(i);
  go_back(LIFE_RETURNED);
  abort(); /* a fiber that has returned is never resumed */
}

static int process_open(zke_lab *lab, int i) {
  process *p = &W->p[i];
  int leader = lab->processes[i].leader;
  p->fd = -1;
  p->due = p->wait.until = INT64_MAX;
  p->thread = malloc(thread_bytes());
  if (!p->thread) return ZKE_NOMEM;
  memcpy(p->thread, __start_lab_thread, thread_bytes());
  if (leader != i) {
    p->z = W->p[leader].z;
    p->session = W->p[leader].session;
  } else {
    zke_options o = ZKE_INIT(zke_options);
    o.identity = lab->processes[i].name;
    int rc = lab_real_zke_open_session(W->observer, &o, &p->z);
    if (rc != ZKE_OK) return rc;
    p->session = zke_session_id(p->z);
    engine_begin_handle(p->z, i);
  }
  p->sp = fiber_make(arena_stack(i), process_main);
  if (!p->sp) return ZKE_NOMEM;
  p->mark = p->sp;
  return ZKE_OK;
}

/* May others wait forever because this process dies, or its session ends?  Not
 * if each of its threads has returned or has called zke_lab_spare(). */
static bool process_is_missed(const zke_lab *lab, int i) {
  for (int j = 0; j < W->n; j++) {
    const process *p = &W->p[j];
    if (same_process(lab, i, j) && is_alive(p) && !p->spare) return true;
  }
  return false;
}

static void process_die(zke_lab *lab, int i) {
  W->hurt = W->hurt || process_is_missed(lab, i);
  outside_died(lab, i);
  for (int j = 0; j < W->n; j++) {
    if (same_process(lab, i, j)) W->p[j].life = LIFE_DEAD;
  }
  W->crashes--;
}

static void process_bury(zke_lab *lab, int i) {
  for (int j = 0; j < W->n; j++) {
    process *p = &W->p[j];
    if (!same_process(lab, i, j)) continue;
    for (int k = 0; k < p->more_count; k++)
      lab_real_zke_expire(W->observer, p->more_sessions[k]);
    p->life = LIFE_BURIED;
  }
  lab_real_zke_expire(W->observer, W->p[i].session);
}

/* A party outside that opens its own sessions loses these, and can open others
 * through the one that it began with. */
static void process_expire(zke_lab *lab, int i) {
  process *p = &W->p[i];
  if (lab->outside[i].party.run) {
    for (int k = 0; k < p->more_count; k++)
      lab_real_zke_expire(W->observer, p->more_sessions[k]);
  } else {
    lab_real_zke_expire(W->observer, p->session);
  }
  for (int j = 0; j < W->n; j++) {
    if (same_process(lab, i, j)) W->p[j].expired = true;
  }
  W->expiries--;
  W->hurt = W->hurt || process_is_missed(lab, i);
}

/* ---- steps ---- */

int world_kind(char step, int *process_out) {
  static const char kinds[] = {STEP_RUN,    STEP_DIE,         STEP_BURY,
                               STEP_EXPIRE, STEP_LOSE_BEFORE, STEP_LOSE_AFTER};
  *process_out = -1;
  if (step == STEP_TIME) return STEP_TIME;
  for (size_t i = 0; i < sizeof kinds; i++) {
    if (step < kinds[i] || step >= kinds[i] + MOST) continue;
    *process_out = step - kinds[i];
    return kinds[i];
  }
  return 0;
}

static int64_t next_due(void) {
  int64_t at = INT64_MAX;
  for (int i = 0; i < W->n; i++) {
    if (W->p[i].life == LIFE_WAITS && W->p[i].due < at) at = W->p[i].due;
  }
  return at;
}

/* No process can continue unless time passes. */
static void check_progress(const zke_lab *lab, int64_t due) {
  int waiting = -1;
  bool excused = lab->options.waits && W->hurt;
  for (int i = 0; i < W->n; i++) {
    const process *p = &W->p[i];
    if (p->life != LIFE_WAITS) continue;
    if (p->sleeps && p->due != INT64_MAX) return;
    waiting = i;
  }
  if (waiting < 0 || excused) return;
  const process *p = &W->p[waiting];
  const char *space = *p->path ? " " : "";
  if (due == INT64_MAX && lab->outside[waiting].party.run)
    fail("%s waits for ever, and nobody can wake it", name_of(waiting));
  else if (due == INT64_MAX)
    fail("%s waits for ever in %s%s%s, and nobody can wake it",
         name_of(waiting), p->call, space, p->path);
  else if (!lab->options.timeouts)
    fail("%s waits for its deadline in %s%s%s, and nobody can wake it before",
         name_of(waiting), p->call, space, p->path);
}

/* The faults that are possible now. */
static int fault_steps(const zke_lab *lab, char *out) {
  int n = 0;
  for (int i = 0; i < W->n; i++) {
    const process *p = &W->p[i];
    bool leads = lab->processes[i].leader == i;
    if (!is_alive(p) || !p->begun) continue;
    if (leads && W->crashes > 0) out[n++] = (char)(STEP_DIE + i);
    if (p->expired) continue;
    if (leads && W->expiries > 0) out[n++] = (char)(STEP_EXPIRE + i);
    if (p->life != LIFE_READY || W->losses <= 0 || !call_is_change(p->call))
      continue;
    out[n++] = (char)(STEP_LOSE_BEFORE + i);
    out[n++] = (char)(STEP_LOSE_AFTER + i);
  }
  return n;
}

int world_steps(zke_lab *lab, char out[STEPS_MOST]) {
  int n = 0, alive = 0;
  if (W->failed) return 0;
  for (int i = 0; i < W->n; i++) {
    const process *p = &W->p[i];
    bool leads = lab->processes[i].leader == i;
    alive += is_alive(p);
    if (p->life == LIFE_READY) out[n++] = (char)(STEP_RUN + i);
    if (p->life == LIFE_DEAD && leads) out[n++] = (char)(STEP_BURY + i);
  }
  int64_t due = next_due();
  if (alive && n == 0) check_progress(lab, due);
  if (W->failed || (alive && n == 0 && due == INT64_MAX)) return 0;
  if (due != INT64_MAX && (n == 0 || W->pauses > 0)) out[n++] = STEP_TIME;
  return n + fault_steps(lab, out + n);
}

static void pass_time(void) {
  int64_t due = next_due();
  for (int i = 0; i < W->n; i++) {
    if (W->p[i].life != LIFE_READY) continue;
    W->pauses--;
    break;
  }
  if (W->now < due) W->now = due;
  for (int i = 0; i < W->n; i++) {
    process *p = &W->p[i];
    if (p->life == LIFE_WAITS && p->due <= W->now) p->life = LIFE_READY;
  }
}

static void lose_reply(int i, int when) {
  zke_test_fail(W->p[i].handle, when, 0);
  W->losses--;
  go_to(i);
}

static void look(const lab_look *l) {
  jmp_buf escape;
  if (!l->fn) return;
  look_escape = &escape;
  if (setjmp(escape) == 0) l->fn(W->observer, l->arg);
  look_escape = NULL;
}

static void step_say(int kind, int i) {
  static const struct {
    int kind;
    const char *what;
  } words[] = {{STEP_DIE, "dies"},
               {STEP_BURY, "its death is noticed"},
               {STEP_EXPIRE, "its session expires"},
               {STEP_LOSE_BEFORE, "the next change is lost"},
               {STEP_LOSE_AFTER, "the next change's reply is lost"},
               {STEP_TIME, "time passes"}};
  for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
    if (words[k].kind == kind) line_say(i, (char)kind, "%s", words[k].what);
  }
}

void world_step(zke_lab *lab, char step) {
  int i, kind = world_kind(step, &i);
  if (lab->length < LAB_SCHEDULE) lab->taken[lab->length++] = step;
  arena_current = ARENA_WORLD;
  W->step++;
  W->in_section = W->read_clock = false;
  step_say(kind, i);
  switch (kind) {
    case STEP_RUN:
      go_to(i);
      break;
    case STEP_DIE:
      process_die(lab, i);
      break;
    case STEP_BURY:
      process_bury(lab, i);
      break;
    case STEP_EXPIRE:
      process_expire(lab, i);
      break;
    case STEP_LOSE_BEFORE:
      lose_reply(i, ZKE_TEST_FAIL_BEFORE);
      break;
    case STEP_LOSE_AFTER:
      lose_reply(i, ZKE_TEST_FAIL_AFTER);
      break;
    case STEP_TIME:
      pass_time();
      break;
    default:
      break;
  }
  if (!W->failed) look(&lab->always);
  if (!W->failed && W->step > lab->options.steps)
    fail("no end after %d steps", lab->options.steps);
  arena_current = ARENA_OUTSIDE;
}

/* ---- steps that need not be tried ----
 *
 * Assume that the next step of process p commutes with everything that the
 * others can do, now or later, and with the passing of time; and that only p
 * sees its effects.  Then any failing continuation also fails with this step
 * moved to its front: so at first only this step must be tried.  The exception
 * is p's death, which would replace the step, and which also commutes with the
 * others' actions, since it is not seen until it is noticed.  (Peled, All from
 * One, One for All: on Model Checking Using Representatives, 1993.)  A circle
 * of such steps is a loop that no other process can end, and is found as such;
 * so no step is postponed forever.
 *
 * Such a step is
 *   - the way to the first call: it uses only p's own memory, if the test has
 *     named no shared memory, and has no threads;
 *   - zke_forget() on a handle without watchers, since no other process can
 *     register one; including the way to the next call.  An expiry could change
 *     its result, and time the actions of its alarms.
 * Only afterwards is it known whether the way read the clock or used a section:
 * world_was_seen(). */

static bool step_is_own(const process *p) {
  if (p->life != LIFE_READY) return false;
  if (!p->begun) return true;
  return p->call && strcmp(p->call, "zke_forget") == 0 && p->inside == 0 &&
         engine_watchers(p->handle) == 0 && W->pauses == 0 &&
         (W->expiries == 0 || p->expired);
}

static bool can_reduce(const zke_lab *lab) {
  if (lab->options.reduction < 0 || lab->state_count > 0) return false;
  for (int i = 0; i < lab->count; i++) {
    if (lab->processes[i].leader != i) return false;
  }
  return true;
}

int world_reduce(const zke_lab *lab, char *steps, int count) {
  if (!can_reduce(lab)) return 0;
  for (int i = 0; i < W->n; i++) {
    if (!step_is_own(&W->p[i])) continue;
    int n = 0;
    for (int k = 0; k < count; k++) {
      if (steps[k] != STEP_RUN + i && steps[k] != STEP_DIE + i) continue;
      char step = steps[n];
      steps[n] = steps[k];
      steps[k] = step;
      if (steps[n] == STEP_RUN + i && n > 0) {
        steps[n] = steps[0];
        steps[0] = (char)(STEP_RUN + i);
      }
      n++;
    }
    return n;
  }
  return 0;
}

/* If no pause is left, time stands still while p can run. */
bool world_was_seen(void) {
  return W->in_section || (W->read_clock && W->pauses > 0);
}

/* Among alike processes let the first to make an ephemeral or sequential znode
 * have the first's name, the second the second's, and so on: each schedule can
 * be written with such names, is then still a schedule, and still fails.  So
 * only these must be tried. */

/* Has it not yet tried to make its first one? */
static bool is_like_new(int i) {
  const process *p = &W->p[i];
  return is_alive(p) && !p->made && !p->expired;
}

static bool comes_too_early(const zke_lab *lab, int i) {
  const lab_process *all = lab->processes;
  if (!W->p[i].makes || !is_like_new(i)) return false;
  for (int j = 0; j < i; j++) {
    if (all[j].fn == all[i].fn && all[j].arg == all[i].arg && is_like_new(j))
      return true;
  }
  return false;
}

/* If no other process can run, one runs too early: trying more than necessary
 * hides nothing. */
int world_leave_alike(const zke_lab *lab, char *steps, int count) {
  char kept[STEPS_MOST];
  int n = 0;
  for (int k = 0; k < count; k++) {
    int i, kind = world_kind(steps[k], &i);
    bool goes =
        kind == STEP_RUN || kind == STEP_LOSE_BEFORE || kind == STEP_LOSE_AFTER;
    if (!goes || !comes_too_early(lab, i)) kept[n++] = steps[k];
  }
  if (n == 0) return count;
  memcpy(steps, kept, (size_t)n);
  return n;
}

static void report_check(void *context, const char *sentence) {
  (void)context;
  if (W->failed) return;
  lab_running->by_check = true;
  fail("zke_check(): %s", sentence);
}

void world_end(zke_lab *lab, bool check) {
  arena_current = ARENA_WORLD;
  if (!W->failed && check) zke_check(W->observer, report_check, NULL);
  if (!W->failed) look(&lab->finally);
  arena_current = ARENA_OUTSIDE;
}

bool world_has_failed(void) { return W->failed; }
int world_step_count(void) { return W->step; }
int world_last(void) { return W->last; }

int world_budget(const zke_lab *lab) {
  const zke_lab_options *o = &lab->options;
  return o->crashes + o->expiries + o->losses + o->pauses;
}

/* ---- making a world, and restoring it ---- */

bool world_snapshot(picture *p) {
  char *stacks[MOST] = {NULL};
  for (int i = 0; i < W->n; i++) {
    if (is_alive(&W->p[i])) stacks[i] = W->p[i].sp;
  }
  return picture_take(p, stacks, p == &lab_running->first);
}

void world_put(const picture *p) { picture_put(p, &lab_running->first); }

/* The start of each schedule. */
static void world_begin(zke_lab *lab) {
  lab->length = 0;
  lab->trace = 0;
}

/* What is run, and with what. */
typedef struct world_trial {
  bool (*fn)(zke_lab *lab, void *arg);
  void *arg;
} world_trial;

static bool try_to_end(zke_lab *lab, void *arg) {
  const world_trial *t = arg;
  bool failed = t->fn(lab, t->arg);
  outside_end(lab);
  return failed;
}

bool world_try(zke_lab *lab, bool (*fn)(zke_lab *lab, void *arg), void *arg) {
  world_trial t = {fn, arg};
  world_begin(lab);
  return keep_try(lab, try_to_end, &t);
}

void world_again(zke_lab *lab) {
  world_begin(lab);
  world_put(&lab->first);
}

static int world_fill(zke_lab *lab) {
  zke_os os;
  os_fill(&os);
  zke_options o = ZKE_INIT(zke_options);
  o.os = &os;
  o.allocator = (zke_allocator){os_resize, NULL};
  o.durability = ZKE_DURABLE_NONE; /* nothing is guessed and repeated */
  W->current = W->last = -1;
  W->now = 1000000000;
  W->n = lab->count;
  W->crashes = lab->options.crashes;
  W->expiries = lab->options.expiries;
  W->losses = lab->options.losses;
  W->pauses = lab->options.pauses;
  W->thread = malloc(thread_bytes());
  if (!W->thread) return ZKE_NOMEM;
  int rc = keep_sqlite();
  if (rc == ZKE_OK) rc = lab_real_zke_open(":memory:", &o, &W->observer);
  if (rc == ZKE_OK) rc = engine_begin(W->observer);
  for (int i = 0; i < W->n && rc == ZKE_OK; i++) rc = process_open(lab, i);
  if (rc == ZKE_OK) look(&lab->setup);
  if (rc == ZKE_OK && !lab->on_sqlite) rc = engine_begin_tables(W->observer);
  if (rc == ZKE_OK && W->failed)
    rc = zke_fail(ZKE_SYSTEMERROR, "setup has failed: %s", lab->why);
  if (lab->on_sqlite) arena_use_sqlite();
  return rc;
}

int world_open(zke_lab *lab) {
  if (!keep_begin(lab)) return zke_fail(ZKE_NOMEM, "out of memory");
  lab_running = lab;
  arena_current = ARENA_WORLD;
  W = calloc(1, sizeof *W);
  int rc = W ? world_fill(lab) : ZKE_NOMEM;
  arena_current = ARENA_OUTSIDE;
  if (rc == ZKE_OK && keep_has_pictures && !world_snapshot(&lab->first))
    rc = ZKE_NOMEM;
  if (rc == ZKE_OK) return rc;
  char said[LAB_WHY]; /* the sentence is restored with the other variables */
  snprintf(said, sizeof said, "%s", zke_errmsg());
  world_close(lab);
  return zke_fail(rc, "%s", said);
}

void world_close(zke_lab *lab) { keep_end(lab); }

/* ---- the words by which states are compared ---- */

int world_lanes(world_lane out[ZKE_LAB_MOST]) {
  for (int i = 0; i < W->n; i++) {
    const process *p = &W->p[i];
    out[i] = (world_lane){.lives = is_alive(p),
                          .from = p->mark,
                          .to = arena_stack(i),
                          .thread = p->thread,
                          .thread_size = thread_bytes(),
                          .z = p->z};
  }
  return W->n;
}

void world_faults_left(int out[WORLD_FAULTS]) {
  out[0] = W->crashes;
  out[1] = W->expiries;
  out[2] = W->losses;
  out[3] = W->pauses;
}

/* The sessions that a process has opened matter until their ends: also when its
 * death is noticed. */
static size_t session_words(const process *p, uint64_t *out) {
  for (int k = 0; k < p->more_count; k++)
    out[k] = (uint64_t)p->more_sessions[k];
  return (size_t)p->more_count;
}

/* What a living process waits for decides which action wakes it. */
static size_t process_words(const process *p, uint64_t *out) {
  size_t n = 0;
  bool counts = lab_running->options.wakes > 0;
  out[n++] = (uint64_t)p->life;
  if (p->life == LIFE_RETURNED || p->life == LIFE_BURIED) return n;
  n += session_words(p, out + n);
  if (!is_alive(p)) return n;
  out[n++] = (uint64_t)p->expired | (uint64_t)p->begun << 1 |
             (uint64_t)(counts && p->woken) << 2 | (uint64_t)p->sleeps << 3 |
             (uint64_t)p->made << 4 | (uint64_t)p->spare << 5 |
             (uint64_t)p->inside << 8;
  out[n++] = (uint64_t)(counts ? p->vain : 0) << 32 | p->drawn;
  out[n++] = (uint64_t)p->due;
  out[n++] = (uint64_t)p->wait.until;
  out[n++] = (uint64_t)p->wait.turn;
  out[n++] = (uint64_t)(int64_t)p->fd;
  out[n++] = (uint64_t)(uintptr_t)p->on;
  out[n++] = (uint64_t)(uintptr_t)p->call;
  return n;
}

size_t world_words(uint64_t out[WORLD_WORDS]) {
  size_t n = 0;
  out[n++] = (uint64_t)W->now;
  out[n++] = W->hurt;
  for (int i = 0; i < W->n; i++) n += process_words(&W->p[i], out + n);
  for (int i = 0; i < W->pipes; i++) out[n++] = W->bytes[i] != 0;
  return n;
}
