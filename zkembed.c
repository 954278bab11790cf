/* zkembed.c - ZooKeeper's tree of znodes in one SQLite file
 *
 * The whole library.  zkembed.h says what it does; doc/design.md says why it is
 * built this way; doc/format.md lists the tables and their invariants.  A
 * handle (struct zke) is a session.  The sessions of one zke_open() share a
 * store: a SQLite connection, its statements and a lock.  Processes meet in the
 * database file and in a directory next to it.  That directory holds the gate
 * file and the liveness files, with locks that the kernel drops when a process
 * dies, and one FIFO per session, by which a committer wakes a sleeper.  The
 * library starts no thread.
 *
 * WORDS that are not ZooKeeper's:
 *
 * Store, gate, line.  A store is one connection of one process; its lock lets
 *   one thread at a time use it.  The gate is a kernel lock: its holder is the
 *   only writer among all processes.  The line is the order in which writers
 *   get the gate, and a place in it is a locked byte.
 * Carrier, light.  A carrier is what keeps a session alive and reachable: a
 *   lock that the kernel drops, a FIFO, a poller and a timer.  A light session
 *   shares the carrier of another session.
 * Kept, cached.  A kept session has a timeout, and outlives its process.  A
 *   node that was read is cached (ZKE_KEPT_PART limits how many are).
 * Duty, sweep, tick.  One of the waiting processes has the duty.  It sweeps: it
 *   ends what no other process will end.  A tick is the time between two looks.
 * Full, normal; durable, lazy.  The COMMIT of a full transaction syncs, that of
 *   a normal one does not (P8).  A change that must survive a power cut marks
 *   its transaction as durable.  Any other COMMIT is lazy: wal_ leaves out its
 *   sync.
 * Doubt, trusted, broken.  A log is in doubt after a sync that failed, or that
 *   its process did not survive.  A word in the liveness file says so until the
 *   log has been rewritten; then it is trusted again.  A store is broken while
 *   the outcome of one of its COMMITs is unknown (health_).
 * Era.  A counter that rises when a session may have ended.  A session whose
 *   row was found in an era (row_era) need not be looked up again in that era.
 * Latest.  The latest state that this store knows of (index.latest).  If nobody
 *   has committed since, the next transaction need not read the meta row.
 * Lost.  Said of a light session that another handle has ended or taken;
 *   meta.lost counts them.  A reply is lost if the change may have been made
 *   although the call failed (ZKE_CONNECTIONLOSS).
 * Guest.  The program's own connection while it has the gate.
 * Spot, pair.  The watchers of one path, and those of one function and context.
 * Untold.  An event, in the file or in memory, for which no watcher has been
 *   called yet; likewise a session's end (end_untold).
 * Charged.  Time that counts towards the timeouts of detached sessions.
 *
 * CONTENTS.  A function may call its own section and those above it in this
 * list, never one below; no static function is declared ahead.
 *
 *   configuration  tunables and feature tests
 *   base_          results, sentences, small arithmetic
 *   mem_           allocation through the handle's allocator
 *   buf_           growing buffer, lists in one block
 *   os_            every system call of the library: the default table
 *   path_          path rules and keys
 *   auth_          SHA-1, base64, digest identities
 *   acl_           access control lists as text
 *   (types)        the store, the session, the transaction
 *   health_        how far a store can be relied on
 *   host_          the host as a store sees it: clocks, logger, files
 *   lock_          the store's lock
 *   fork_          the process's list of stores: for a forked child
 *   fd_            descriptors: noted for a forked child
 *   sql_           statements: errors, parameters and rows
 *   file_          files of SQLite with methods of ours
 *   wal_           the write-ahead log's file: one write for a transaction
 *   shm_           the WAL-index: reading without locks
 *   vfs_           the VFS of each store
 *   app_           the program's own SQL on this connection
 *   schema_        the tables; recognising a file
 *   db_            the connection: reads, writes, syncs, checkpoints
 *   side_          the directory next to the database: its files
 *   carrier_       what sessions share: the ready ones, and when each is due
 *   life_          which sessions live
 *   wake_          waking a session: FIFOs
 *   equip_         making and closing carriers
 *   guard_         are the files still the store's own?
 *   lease_         sessions with a lease: their stamps
 *   line_          the line of writers: their order before the gate
 *   gate_          the one writer
 *   recover_       repairing a broken store
 *   txn_           one transaction: gate, class, zxid, commit, wake
 *   compact_       rewriting the file
 *   watch_         registering, firing, queueing events
 *   history_       the history of nodes, if it is kept
 *   node_          rows of the tree: load, add, remove, change
 *   op_            create, delete, set, check, reads: ZooKeeper's checks
 *   sess_          the rows of sessions, and which of them live
 *   kept_          kept sessions: detaching, attaching, timeouts
 *   end_           ending sessions
 *   judge_         what the sessions in the file are
 *   begin_         beginning a session
 *   discard_       nodes that a session has yet to remove
 *   sweep_         duty: dead sessions, leases, TTL, containers
 *   watcher_       a session's watchers in memory
 *   alarm_         timed calls
 *   role_          which thread dispatches
 *   notice_        notices of death
 *   event_         events, from the file into the session's queue
 *   deliver_       calling watchers
 *   untold_        what the watchers have not been told
 *   light_         light sessions that have something to be told
 *   dispatch_      one dispatch, and when the next is due
 *   wait_          waiting for something to dispatch
 *   view_          lists for inspection, zke_check
 *   store_         making and ending a store
 *   engine_        handles of other engines behind this interface
 *   api_           how a call begins and ends
 *   zke_, api_     the public functions
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_OFD_SETLK, pipe2, CLOCK_BOOTTIME */
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64 /* lock bytes lie at session ids */
#endif
#ifndef _TIME_BITS
#define _TIME_BITS 64 /* on 32 bits: ctime and mtime go on after 2037 */
#endif

#if !defined(__linux__)
#error "zkembed needs Linux: open file description locks, epoll and timerfd"
#endif

#include "zkembed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

/* ======================================================================
 * configuration (private)
 *
 * A program may change the macros under #ifndef when it compiles this file, by
 * -DNAME=value.  None of them changes the file format or a promise, only speed
 * and the memory of a store.  The values were measured.
 * ==================================================================== */

#define ZKE_SQLITE_OLDEST 3037002 /* STRICT tables, and the fixes since */
#if SQLITE_VERSION_NUMBER < ZKE_SQLITE_OLDEST
#error "zkembed needs SQLite 3.37.2 or later: this sqlite3.h is older"
#endif

/* Largest value stored in the node's own row.  Rows of WITHOUT ROWID tables
 * that are longer than about 200 bytes make the B-tree deep.  Larger values go
 * to a separate table. */
#ifndef ZKE_INLINE_BYTES
#define ZKE_INLINE_BYTES 200
#endif

/* Pages in the write-ahead log that make a writer checkpoint (8 MiB), and by
 * how many it grows before the next try if a reader was in the way. */
#ifndef ZKE_CHECKPOINT_PAGES
#define ZKE_CHECKPOINT_PAGES 2048
#endif
#ifndef ZKE_CHECKPOINT_RETRY_PAGES
#define ZKE_CHECKPOINT_RETRY_PAGES 512
#endif
#ifndef ZKE_CHECKPOINT_WAIT_MS
#define ZKE_CHECKPOINT_WAIT_MS 50
#endif

/* The cache of nodes that a store has read may take 1/ZKE_KEPT_PART of the size
 * of SQLite's page cache; 0: it caches none. */
#ifndef ZKE_KEPT_PART
#define ZKE_KEPT_PART 4
#endif
#if ZKE_KEPT_PART < 0
#error "ZKE_KEPT_PART is out of range"
#endif

/* Bytes of a transaction that are gathered before they are written to the
 * write-ahead log: eight frames of 4 KiB pages.  Memory of each store. */
#ifndef ZKE_LOG_BYTES
#define ZKE_LOG_BYTES (8 * (24 + 4096) + 32)
#endif
#if ZKE_LOG_BYTES < 1
#error "ZKE_LOG_BYTES is out of range"
#endif

/* Each of these, set to 1, turns off a short cut around SQLite.  A short cut is
 * used only after a connection's first commit has shown that this SQLite
 * behaves as required; if it does not, the logger is told once (doc/design.md
 * 8).
 *
 * ZKE_READ_LOCKS: each read takes SQLite's locks.  A get then costs three times
 * as much, and a process that is stopped during a read holds up checkpoints.
 *
 * ZKE_PLAIN_LOG: pages are written to the log one at a time, as SQLite does it.
 * An ephemeral change then costs a seventh more.  This is always so if the name
 * of the VFS does not begin with "unix", as the names of SQLite's own do: a VFS
 * that encrypts pages or adds checksums must see each page alone. */
#ifndef ZKE_READ_LOCKS
#define ZKE_READ_LOCKS 0
#endif
#ifndef ZKE_PLAIN_LOG
#define ZKE_PLAIN_LOG 0
#endif

/* The safety tick of a session that waits, and of the one with the duty. */
#ifndef ZKE_TICK_MS
#define ZKE_TICK_MS 1000
#endif
#ifndef ZKE_DUTY_TICK_MS
#define ZKE_DUTY_TICK_MS 250
#endif
#if ZKE_DUTY_TICK_MS < 1 || ZKE_TICK_MS < ZKE_DUTY_TICK_MS
#error "ZKE_TICK_MS must not be below ZKE_DUTY_TICK_MS"
#endif

/* The line of writers.  Tries before a writer sleeps; how long a writer whose
 * transaction is not synced keeps trying before it takes a place in the
 * line, and how long it sleeps between tries. */
#ifndef ZKE_GATE_SPINS
#define ZKE_GATE_SPINS 24
#endif
#ifndef ZKE_GATE_PATIENCE_US
#define ZKE_GATE_PATIENCE_US 5000
#endif
#ifndef ZKE_GATE_PAUSE_US
#define ZKE_GATE_PAUSE_US 50
#endif
#ifndef ZKE_GATE_LONGEST_PAUSE_US
#define ZKE_GATE_LONGEST_PAUSE_US 4000
#endif

/* How often a writer in the line looks without being woken: the first in line,
 * and the others; and how long the gate must be free before the first is passed
 * over. */
#ifndef ZKE_LINE_FIRST_MS
#define ZKE_LINE_FIRST_MS 10
#endif
#ifndef ZKE_LINE_LOOK_MS
#define ZKE_LINE_LOOK_MS 30
#endif
#ifndef ZKE_LINE_OVER_MS
#define ZKE_LINE_OVER_MS 30
#endif

/* Descriptors that stay open to other sessions' FIFOs. */
#ifndef ZKE_WAKE_CACHE
#define ZKE_WAKE_CACHE 32
#endif

/* How many delivered events a session leaves in the file before it trims them
 * in a separate write. */
#ifndef ZKE_TRIM_EVENTS
#define ZKE_TRIM_EVENTS 256
#endif

#define ZKE_APPLICATION_ID 0x7a6b656d /* "zkem" */
#define ZKE_FORMAT 4
#define ZKE_MS INT64_C(1000000) /* nanoseconds */

/* In nanoseconds: the time between two looks of a session without the duty, and
 * between two sweeps of the process that has it.  The sessions of a store tick
 * at multiples of TICK_INSTANT, plus the store's phase, so one wake-up of the
 * process serves them all. */
#define TICK_PLAIN (ZKE_TICK_MS * ZKE_MS)
#define TICK_DUTY (ZKE_DUTY_TICK_MS * ZKE_MS)
#define TICK_INSTANT (TICK_PLAIN / 20)

/* A lease's stamp is renewed when a quarter of the lease has passed, which
 * leaves three more chances before it expires.  A sixteenth of it is how long a
 * call may hold up the store's other sessions before it extends their leases,
 * and the pause after a stamp that could not be written. */
enum { LEASE_RENEWALS = 4, LEASE_STEPS = 16 };

#if defined(__GNUC__)
#define ZKE_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define ZKE_PRINTF(a, b)
#endif

_Static_assert(sizeof(off_t) == 8, "session ids are file offsets");

/* ======================================================================
 * base_: results, sentences, small arithmetic (private)
 *
 * Knows only results, texts and numbers.  Every function that can fail returns
 * a result of the API.  The function that makes a failing result also sets the
 * thread's sentence, and its callers pass both on: an error is described once,
 * where it arises.
 *
 * The arithmetic here never overflows in the sense of C.  Deadlines stop at
 * INT64_MAX; numbers that come from a file may be anything and wrap.
 *
 * Start reading at base_fail() and base_take().
 * ==================================================================== */

/* Will COMMIT sync (FULL) or not, as far as can be told beforehand?  Only the
 * line uses this forecast: COMMIT itself decides by what was changed.  Nothing
 * is known before a handle's first change of a node: it is FULL. */
enum txn_class { TXN_FULL, TXN_NORMAL };

/* A thread's last sentence.  It is per thread because another thread could
 * replace a text in the handle before it is read, and because a failed
 * zke_open() has no handle. */
enum { BASE_SENTENCE = 512 };
static _Thread_local char base_sentence[BASE_SENTENCE];

/* Set the thread's sentence for an error, where the error arises. */
ZKE_PRINTF(1, 2)
static void base_say(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  vsnprintf(base_sentence, sizeof base_sentence, format, ap);
  va_end(ap);
}

/* The same, with rc as its value.  It is a macro because compilers and
 * analyzers do not look into variadic functions: this shows them that it is an
 * error. */
#define base_fail(rc, ...) (base_say(__VA_ARGS__), (rc))

/* Save the sentence of a failure, since the clean-up after it may set another.
 * base_restore() sets it again, so the caller is told the cause and not what
 * went wrong in the clean-up. */
static void base_save(char saved[BASE_SENTENCE]) {
  memcpy(saved, base_sentence, BASE_SENTENCE);
}

/* Set the sentence that base_save() has saved. */
static void base_restore(const char saved[BASE_SENTENCE]) {
  memcpy(base_sentence, saved, BASE_SENTENCE);
}

/* A condition that holds (never holds) unless another part of this file is
 * wrong; the branch after it stays as a safe answer.  A debug build aborts
 * instead.  A coverage build leaves the branch out, since no test can reach it.
 * Each use says why. */
#if defined(ZKE_COVERAGE)
#define ALWAYS(x) true
#define NEVER(x) false
#elif defined(ZKE_DEBUG)
#define ALWAYS(x) base_believe((x) != 0, #x, __LINE__)
#define NEVER(x) (!base_believe((x) == 0, "!(" #x ")", __LINE__))
static bool base_believe(bool holds, const char *text, int line) {
  if (holds) return true;
  fprintf(stderr, "zkembed.c:%d: not believed possible: %s\n", line, text);
  abort();
}
#else
#define ALWAYS(x) (x)
#define NEVER(x) (x)
#endif

/* A precondition, at the top of a function: its comment tells the reader, and
 * this tells the machine.  There is no safe answer if it does not hold.  A
 * debug build aborts; other builds do not check.  What can be required is
 * listed after the types (LOCK_HELD and the like). */
#if defined(ZKE_DEBUG) && !defined(ZKE_COVERAGE)
#define REQUIRE(x) ((void)ALWAYS(x))
#else
#define REQUIRE(x) ((void)0)
#endif

/* The answer of zke_zxid(): set by each call that reads or changes the tree, 0
 * while such a call has not seen a state of it.  A read looks it up only on a
 * thread that has asked for it before: if others write, that costs reading one
 * more page. */
static _Thread_local int64_t base_zxid;
static _Thread_local bool base_zxid_wanted;

/* Fail because memory ran out: the one sentence that every caller needs. */
static int base_nomem(void) { return base_fail(ZKE_NOMEM, "out of memory"); }

static int64_t base_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t base_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* a + b, or INT64_MAX if that overflows; for deadlines. */
static int64_t base_later(int64_t a, int64_t b) {
  return b > 0 && a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* a + b of numbers from a file, which may be anything: wraps. */
static int64_t base_wrap(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* No version's struct is longer, so in most cases a size that was not set is
 * noticed before anything is read by it. */
enum { BASE_MOST_OPTIONS = 4096 };

/* The one rule for structs that begin with their size (zkembed.h, How this
 * interface may grow): copy the caller's, or NULL, into this version's. */
static int base_take(const void *given, void *out, size_t size,
                     const char *name) {
  size_t theirs = size;
  if (given) memcpy(&theirs, given, sizeof theirs);
  if (theirs < sizeof theirs || theirs % sizeof theirs ||
      theirs > BASE_MOST_OPTIONS) {
    return base_fail(ZKE_BADARGUMENTS,
                     "%s.size is %zu, which no version has: begin with "
                     "ZKE_INIT(%s)",
                     name, theirs, name);
  }
  /* a newer header may have members that this library lacks: they must be 0 */
  const unsigned char *bytes = given;
  size_t known = size;
  while (known < theirs && !bytes[known]) known++;
  if (known < theirs) {
    return base_fail(ZKE_BADARGUMENTS,
                     "%s asks for something that zkembed " ZKE_VERSION
                     " does not have: the library is older than the header",
                     name);
  }
  memset(out, 0, size);
  if (given) memcpy(out, given, theirs < size ? theirs : size);
  memcpy(out, &size, sizeof size);
  return ZKE_OK;
}

/* A number from a SQLite file, which stores numbers in big-endian order. */
static uint32_t base_big_endian(const unsigned char *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
         p[3];
}

/* The low 32 bits as Java's int: ZooKeeper's counters wrap. */
static int32_t base_int32(int64_t n) {
  uint32_t low = (uint32_t)((uint64_t)n & 0xffffffffu);
  return low > INT32_MAX ? (int32_t)(low - INT32_MAX - 1) + INT32_MIN
                         : (int32_t)low;
}

/* The version after one change.  -1 is skipped, since a check of -1 means any
 * version: every version that was read can be checked. */
static int32_t base_next_version(int32_t version) {
  return version == -2 ? 0 : base_int32((int64_t)version + 1);
}

/* ======================================================================
 * mem_: allocation through the handle's allocator (private)
 *
 * Knows the handle's allocator.  Every block begins with a hidden head that
 * holds the allocator that made it.  So mem_free() needs no handle, and the
 * caller can free a result by zke_free() after zke_close().
 *
 * The default allocator is the C library's.  An allocator is one function that
 * makes, grows and frees; only this section calls it.  A failure is NULL; the
 * caller turns it into base_nomem().
 * ==================================================================== */

typedef union mem_head {
  zke_allocator by;
  max_align_t align;
} mem_head;

/* The allocator of a handle that sets none: see zke_allocator. */
static void *mem_default_resize(void *context, void *block, size_t size) {
  (void)context;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

/* Grow a block, or make one if block is NULL; NULL if memory ran out, and then
 * the old block stays. */
static void *mem_resize(const zke_allocator *a, void *block, size_t size) {
  mem_head *head = block ? (mem_head *)block - 1 : NULL;
  /* sizes come from lengths and counts that are ints */
  if (NEVER(size > SIZE_MAX - sizeof *head)) return NULL;
  head = a->resize(a->context, head, size + sizeof *head);
  if (!head) return NULL;
  head->by = *a;
  return head + 1;
}

/* A new block of zeros. */
static void *mem_zero(const zke_allocator *a, size_t size) {
  void *block = mem_resize(a, NULL, size);
  if (block) memset(block, 0, size);
  return block;
}

/* Free a block by the allocator that made it; NULL is fine. */
static void mem_free(void *block) {
  if (!block) return;
  mem_head *head = (mem_head *)block - 1;
  zke_allocator by = head->by;
  by.resize(by.context, head, 0);
}

/* A copy of n bytes, followed by a NUL. */
static char *mem_copy(const zke_allocator *a, const void *bytes, size_t n) {
  char *copy = mem_resize(a, NULL, n + 1);
  if (!copy) return NULL;
  if (n) memcpy(copy, bytes, n);
  copy[n] = '\0';
  return copy;
}

/* A text as printf() makes it, in a new block.  It is formatted twice, first to
 * learn its length. */
ZKE_PRINTF(2, 3)
static char *mem_format(const zke_allocator *a, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  int len = vsnprintf(NULL, 0, format, ap);
  va_end(ap);
  /* the formats here have numbers and texts, which cannot fail */
  char *text = ALWAYS(len >= 0) ? mem_resize(a, NULL, (size_t)len + 1) : NULL;
  if (!text) return NULL;
  va_start(ap, format);
  vsnprintf(text, (size_t)len + 1, format, ap);
  va_end(ap);
  return text;
}

/* ======================================================================
 * buf_: growing buffer, lists in one block (private)
 *
 * A buffer grows as bytes are added to it.  When it runs out of memory it
 * remembers that, and ignores what is added later; so a builder checks `failed`
 * once, at its end.  Arrays of int64_t (session ids, rows of numbers) are
 * buffers too.
 *
 * A list that the caller gets is one block: a head, the records, the texts that
 * the records point to.  buf_block() makes all of them, so one zke_free() frees
 * the list, and no list can be half built.
 * ==================================================================== */

typedef struct buf {
  const zke_allocator *a;
  char *data;
  size_t len, cap;
  bool failed;
} buf;

/* Free what a buffer holds and make it empty; it keeps its allocator and can
 * be used again. */
static void buf_free(buf *b) {
  mem_free(b->data);
  b->data = NULL;
  b->len = b->cap = 0;
  b->failed = false;
}

/* Append n bytes; nothing happens after a failure. */
static void buf_add(buf *b, const void *bytes, size_t n) {
  if (b->failed) return;
  if (b->cap - b->len < n) {
    size_t cap = b->cap < 64 ? 64 : b->cap;
    /* an allocation has failed before a buffer gets that long */
    if (NEVER(n > SIZE_MAX / 2 - cap)) {
      b->failed = true;
      return;
    }
    while (cap - b->len < n) cap *= 2;
    char *data = mem_resize(b->a, b->data, cap);
    if (!data) {
      b->failed = true;
      return;
    }
    b->data = data;
    b->cap = cap;
  }
  if (n) memcpy(b->data + b->len, bytes, n);
  b->len += n;
}

/* Append a string with its NUL. */
static void buf_add_string(buf *b, const char *s) {
  buf_add(b, s, strlen(s) + 1);
}

/* Append a number, for buffers that are read by buf_ints(). */
static void buf_add_int(buf *b, int64_t n) { buf_add(b, &n, sizeof n); }

/* A buffer of int64_t as an array.  It is valid until more is added. */
static int64_t *buf_ints(const buf *b, size_t *count) {
  *count = b->len / sizeof(int64_t);
  return (int64_t *)(void *)b->data;
}

/* For qsort().  Not a subtraction, which could overflow. */
static int buf_compare_int(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* Sort a buffer of int64_t and keep one of each. */
static void buf_sort_ints(buf *b) {
  size_t n, unique = 0;
  int64_t *at = buf_ints(b, &n);
  if (n < 2) return;
  qsort(at, n, sizeof *at, buf_compare_int);
  for (size_t i = 0; i < n; i++) {
    if (!unique || at[unique - 1] != at[i]) at[unique++] = at[i];
  }
  b->len = unique * sizeof *at;
}

/* Put a list into one block, so zke_free() frees all of it: a head, then
 * records, then the texts that the records point to.  Returns the block, and
 * where records and texts begin in it; NULL if memory ran out, now or while a
 * buffer was built. */
static void *buf_block(const zke_allocator *a, size_t head, const buf *records,
                       const buf *texts, char **records_out, char **texts_out) {
  if (records->failed || texts->failed) return NULL;
  char *block = mem_resize(a, NULL, head + records->len + texts->len);
  if (!block) return NULL;
  *records_out = block + head;
  *texts_out = *records_out + records->len;
  if (records->len) memcpy(*records_out, records->data, records->len);
  if (texts->len) memcpy(*texts_out, texts->data, texts->len);
  return block;
}

/* Take the next of several consecutive texts. */
static char *buf_next_text(char **at) {
  char *text = *at;
  *at += strlen(text) + 1;
  return text;
}

/* Make a zke_strings of the NUL-terminated texts in a buffer. */
static zke_strings *buf_strings(const buf *texts, int count) {
  size_t head = sizeof(zke_strings) + ((size_t)count + 1) * sizeof(char *);
  const buf none = {.a = texts->a};
  char *at, *text;
  zke_strings *list = buf_block(texts->a, head, &none, texts, &at, &text);
  if (!list) return NULL;
  list->count = count;
  list->data = (char **)(void *)(list + 1);
  for (int i = 0; i < count; i++) list->data[i] = buf_next_text(&text);
  list->data[count] = NULL;
  return list;
}

/* ======================================================================
 * os_: every system call of the library (private)
 *
 * Only this section makes system calls (`make check-layers` checks).  The rest
 * of the file calls through the store's copy of the table, so a test can stand
 * between the library and the kernel, let the n-th call fail, or kill the
 * process inside it.
 *
 * Each function of the default table returns a value >= 0 or -errno.  Functions
 * that read, write, sync, lock or open a file, or ask for its file system, call
 * again after EINTR.  A poll ends with EINTR, and the caller looks at its
 * deadline.  zkembed.h says at zke_os what each member must do.  The defaults
 * are for Linux.  A program's own table may leave out the poller and the timer
 * (-ENOSYS), and os_fill() sets each NULL member to our function.
 *
 * Two kinds of thread calls are here but not in the table, since no program
 * replaces them: waiting on condition variables, and holding off cancellation.
 * ==================================================================== */

/* What a system call returned, or -errno if it failed. */
static int os_result(int r) { return r < 0 ? -errno : r; }

/* Every descriptor closes on exec: no child program inherits a lock (P9). */
static int os_open(void *context, const char *path, int flags, unsigned mode) {
  int fd;
  (void)context;
  do fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
  while (fd < 0 && errno == EINTR);
  return os_result(fd);
}

/* Close once, whatever it returns: on Linux the descriptor is closed even after
 * EINTR, and another thread may have the number by then. */
static int os_close(void *context, int fd) {
  (void)context;
  return os_result(close(fd)); /* EINTR: closed, too */
}

/* Duplicate a descriptor; the duplicate shares the locks of the open file
 * description.  Never below 3: a program may have closed its standard
 * descriptors, and still write to 1 and 2. */
static int os_dup(void *context, int fd) {
  (void)context;
  return os_result(fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

/* Read what is there; the caller must handle a short read. */
static int64_t os_read(void *context, int fd, void *buffer, size_t size) {
  ssize_t n;
  (void)context;
  do n = read(fd, buffer, size);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

/* Write without ever raising SIGPIPE in the program (P9): the signal is blocked
 * for this thread during the write, and if the write left one pending it is
 * consumed. */
static int64_t os_write(void *context, int fd, const void *buffer,
                        size_t size) {
  sigset_t pipe_only, before, pending;
  struct timespec none = {0, 0};
  (void)context;
  sigemptyset(&pipe_only);
  sigemptyset(&pending);
  sigaddset(&pipe_only, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  if (sigismember(&before, SIGPIPE)) sigpending(&pending);
  ssize_t n;
  do n = write(fd, buffer, size);
  while (n < 0 && errno == EINTR);
  int error = errno;
  if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
    sigtimedwait(&pipe_only, NULL, &none);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return n < 0 ? -error : n;
}

/* Read at an offset without moving the descriptor's position, which the
 * sessions of a store share. */
static int64_t os_pread(void *context, int fd, void *buffer, size_t size,
                        int64_t at) {
  ssize_t n;
  (void)context;
  do n = pread(fd, buffer, size, (off_t)at);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

/* Write at an offset, likewise.  Never a pipe, so there is no SIGPIPE. */
static int64_t os_pwrite(void *context, int fd, const void *buffer, size_t size,
                         int64_t at) {
  ssize_t n;
  (void)context;
  do n = pwrite(fd, buffer, size, (off_t)at);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

/* The type of a file as zke_file has it, by the mode that stat() gives. */
static int os_file_type(unsigned mode) {
  if (S_ISREG(mode)) return ZKE_FILE_REGULAR;
  if (S_ISDIR(mode)) return ZKE_FILE_DIRECTORY;
  return S_ISFIFO(mode) ? ZKE_FILE_FIFO : ZKE_FILE_OTHER;
}

#if defined(STATX_MNT_ID)
enum { OS_MOUNT = STATX_MNT_ID };

/* The number of the mount by which the file was reached; 0 if this kernel does
 * not tell. */
static uint64_t os_mount(const struct statx *x) {
  return x->stx_mask & STATX_MNT_ID ? x->stx_mnt_id : 0;
}
#elif defined(STATX_TYPE)
enum { OS_MOUNT = 0 }; /* headers older than Linux 5.8 */
static uint64_t os_mount(const struct statx *x) {
  (void)x;
  return 0;
}
#endif

/* What a descriptor, or with -1 a path, is.  Linux is not asked for the times:
 * since 6.13 a file gets new times at its next write after they were asked for,
 * and syncing them costs a journal commit (durable create 1.35 of raw). */
static int os_look(int fd, const char *path, zke_file *out) {
  struct stat st;
#if defined(STATX_TYPE)
  struct statx x;
  unsigned what = STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_UID |
                  STATX_GID | STATX_NLINK | OS_MOUNT;
  int at = fd, flags = AT_EMPTY_PATH;
  if (fd < 0) at = AT_FDCWD, flags = 0;
  if (statx(at, path, flags, what, &x) == 0) {
    *out = (zke_file){.device = makedev(x.stx_dev_major, x.stx_dev_minor),
                      .inode = x.stx_ino,
                      .size = (int64_t)x.stx_size,
                      .mode = x.stx_mode & 0777u,
                      .uid = x.stx_uid,
                      .gid = x.stx_gid,
                      .type = os_file_type(x.stx_mode),
                      .links = x.stx_nlink,
                      .mount = os_mount(&x)};
    return 0;
  }
  if (errno != ENOSYS && errno != EPERM) return -errno; /* old, or a sandbox */
#endif
  if ((fd < 0 ? stat(path, &st) : fstat(fd, &st)) < 0) return -errno;
  *out = (zke_file){.device = (uint64_t)st.st_dev,
                    .inode = (uint64_t)st.st_ino,
                    .size = (int64_t)st.st_size,
                    .mode = st.st_mode & 0777u,
                    .uid = st.st_uid,
                    .gid = st.st_gid,
                    .type = os_file_type(st.st_mode),
                    .links = (unsigned)st.st_nlink};
  return 0;
}

/* What a path leads to, following links. */
static int os_stat(void *context, const char *path, zke_file *out) {
  (void)context;
  return os_look(-1, path, out);
}

/* What a descriptor is.  os_look() would take one below 0 as a path. */
static int os_fstat(void *context, int fd, zke_file *out) {
  (void)context;
  if (fd < 0) return -EBADF;
  return os_look(fd, "", out);
}

/* Make a file durable, or, for a directory, the names in it. */
static int os_fsync(void *context, int fd) {
  int rc;
  (void)context;
  do rc = fsync(fd);
  while (rc < 0 && errno == EINTR);
  return os_result(rc);
}

/* Give a new side file the database's mode, whatever the umask, and its owner
 * as far as this process is allowed to. */
static int os_adopt(void *context, int fd, unsigned mode, unsigned uid,
                    unsigned gid) {
  (void)context;
  uid_t owner = geteuid() == 0 ? (uid_t)uid : (uid_t)-1;
  int given = fchown(fd, owner, (gid_t)gid);
  (void)given; /* not a member of the group: the mode still counts */
  return os_result(fchmod(fd, (mode_t)mode));
}

/* The umask applies; os_adopt() sets the intended mode. */
static int os_mkdir(void *context, const char *path, unsigned mode) {
  (void)context;
  return os_result(mkdir(path, (mode_t)mode));
}

/* As os_mkdir(). */
static int os_mkfifo(void *context, const char *path, unsigned mode) {
  (void)context;
  return os_result(mkfifo(path, (mode_t)mode));
}

/* Make an empty file if there is none, with a mode according to the umask.  It
 * is not opened: closing it again would drop SQLite's locks on it if another
 * thread had opened it meanwhile. */
static int os_mkfile(void *context, const char *path, unsigned mode) {
  (void)context;
  return os_result(mknod(path, S_IFREG | (mode_t)mode, 0));
}

/* Give an existing file this mode and this group, without opening it; never the
 * target of a symbolic link.  The mode may be meant for the group alone, so it
 * is not set if the group cannot be.  glibc before 2.32, and later versions
 * without /proc, cannot set a mode in this way; setting only the group does no
 * harm. */
static int os_share(void *context, const char *path, unsigned mode,
                    unsigned gid) {
  (void)context;
  if (lchown(path, (uid_t)-1, (gid_t)gid) < 0) return -errno;
  return os_result(fchmodat(AT_FDCWD, path, (mode_t)mode, AT_SYMLINK_NOFOLLOW));
}

/* Remove a name.  Processes that have the file open keep it. */
static int os_unlink(void *context, const char *path) {
  (void)context;
  return os_result(unlink(path));
}

/* Call entry() for each name in a directory, including "." and "..". */
static int os_list(void *context, const char *path,
                   void (*entry)(void *arg, const char *name), void *arg) {
  (void)context;
  DIR *d = opendir(path);
  if (!d) return -errno;
  for (struct dirent *e; (e = readdir(d)) != NULL;) entry(arg, e->d_name);
  closedir(d);
  return 0;
}

/* Is this a file system that several kernels share, by its statfs() magic?  A
 * shared -shm and a FIFO do not work there. */
static int os_network(void *context, const char *path) {
  (void)context;
  static const uint32_t network[] = {
      0x00006969 /* nfs */,    0x0000517b /* smb */,    0xff534d42 /* cifs */,
      0xfe534d42 /* smb2 */,   0x5346414f /* afs */,    0x6b414653 /* kafs */,
      0x73757245 /* coda */,   0x0000564c /* ncp */,    0x01021997 /* 9p */,
      0x00c36400 /* ceph */,   0x0bd00bd0 /* lustre */, 0x7461636f /* ocfs2 */,
      0x786f4256 /* vboxsf */, 0x01161970 /* gfs2 */,   0x47504653 /* gpfs */,
      0x19830326 /* fhgfs */,
  };
  struct statfs fs;
  int rc;
  do rc = statfs(path, &fs);
  while (rc < 0 && errno == EINTR);
  if (rc < 0) return -errno;
  for (size_t i = 0; i < sizeof network / sizeof *network; i++) {
    if (((uint64_t)fs.f_type & 0xffffffffu) == network[i]) return 1;
  }
  return 0;
}

/* A lock on a range of bytes as fcntl() takes it.  For locks of an open file
 * description the pid must be 0, hence the memset. */
static struct flock os_flock(int64_t from, int64_t count, short type) {
  struct flock l;
  memset(&l, 0, sizeof l);
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = (off_t)from;
  l.l_len = (off_t)count;
  return l;
}

/* Take (or drop) the lock on a range of bytes, without waiting.  It belongs to
 * the open file description and not to the process: two stores of a process
 * exclude each other, and closing another descriptor of the file does not drop
 * it, unlike the POSIX locks that SQLite uses. */
static int os_lock_range(void *context, int fd, int64_t from, int64_t count,
                         int how) {
  (void)context;
  struct flock l = os_flock(from, count, how ? F_WRLCK : F_UNLCK);
  int rc;
  do rc = fcntl(fd, F_OFD_SETLK, &l);
  while (rc < 0 && errno == EINTR);
  if (rc == 0) return 0;
  return errno == EACCES ? -EAGAIN : -errno; /* POSIX allows either */
}

/* The same for one byte, such as a session's life. */
static int os_lock(void *context, int fd, int64_t offset, int how) {
  return os_lock_range(context, fd, offset, 1, how);
}

/* Find a lock in the range that another open file description holds: where it
 * begins and how long it is, or -ENOENT.  If there are several, any of them. */
static int64_t os_find_lock(void *context, int fd, int64_t from, int64_t count,
                            int64_t *count_out) {
  (void)context;
  struct flock l = os_flock(from, count, F_WRLCK);
  if (fcntl(fd, F_OFD_GETLK, &l) < 0) return -errno;
  if (l.l_type == F_UNLCK) return -ENOENT;
  *count_out = (int64_t)l.l_len;
  return (int64_t)l.l_start;
}

/* Is the byte locked through another open file description? */
static int os_probe(void *context, int fd, int64_t offset) {
  int64_t count, at = os_find_lock(context, fd, offset, 1, &count);
  if (at < 0) return at == -ENOENT ? 0 : (int)at;
  return 1;
}

/* Not called again after EINTR, unlike the others: after a signal the caller
 * looks at the clock and at what it waits for. */
static int os_poll(void *context, struct pollfd *fds, unsigned count,
                   int timeout_ms) {
  (void)context;
  return os_result(poll(fds, count, timeout_ms)); /* EINTR: the caller looks */
}

/* Neither end blocks: if the pipe has no room for a byte, there is already one
 * in it, and no other is needed. */
static int os_pipe(void *context, int fds[2]) {
  (void)context;
  return os_result(pipe2(fds, O_NONBLOCK | O_CLOEXEC));
}

/* What a program polls to wait for everything of a session. */
static int os_poller(void *context) {
  (void)context;
  return os_result(epoll_create1(EPOLL_CLOEXEC));
}

/* Without for_reading only errors and hang-ups are reported. */
static int os_poller_add(void *context, int poller, int fd, int for_reading) {
  (void)context;
  struct epoll_event e;
  memset(&e, 0, sizeof e);
  e.events = for_reading ? EPOLLIN : 0;
  e.data.fd = fd;
  return os_result(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
}

/* Linux before 2.6.9 wants an event here, though it is not used. */
static int os_poller_remove(void *context, int poller, int fd) {
  (void)context;
  struct epoll_event e;
  memset(&e, 0, sizeof e);
  return os_result(epoll_ctl(poller, EPOLL_CTL_DEL, fd, &e));
}

/* Nanoseconds as the kernel takes them.  In a time_t of 32 bits its greatest
 * value stands for all greater ones: 68 years, by a clock that begins with the
 * host. */
static struct timespec os_timespec(int64_t ns) {
  int64_t most = sizeof(time_t) < sizeof ns ? INT32_MAX : INT64_MAX;
  return (struct timespec){
      .tv_sec = (time_t)base_min(ns / 1000000000, most),
      .tv_nsec = (long)(ns % 1000000000),
  };
}

/* CLOCK_MONOTONIC, since deadlines are in the time of zke_now(). */
static int os_timer(void *context) {
  (void)context;
  return os_result(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

/* Set the timer to a time of CLOCK_MONOTONIC; 0 turns it off. */
static int os_timer_set(void *context, int fd, int64_t when_ns) {
  (void)context;
  struct itimerspec t;
  memset(&t, 0, sizeof t);
  t.it_value = os_timespec(when_ns);
  return os_result(timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL));
}

/* The time in ns.  Deadlines are CLOCK_MONOTONIC; leases are CLOCK_BOOTTIME,
 * which keeps running while the host is suspended; ctime and mtime are
 * CLOCK_REALTIME. */
static int64_t os_clock(void *context, int which) {
  struct timespec t = {0, 0};
  clockid_t clock = CLOCK_MONOTONIC;
  (void)context;
  if (which == ZKE_CLOCK_REALTIME) clock = CLOCK_REALTIME;
  if (which == ZKE_CLOCK_BOOTTIME) clock = CLOCK_BOOTTIME;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleep for the whole time, even if a signal comes. */
static void os_sleep(void *context, int64_t ns) {
  (void)context;
  struct timespec t = os_timespec(ns);
  while (nanosleep(&t, &t) < 0 && errno == EINTR) continue;
}

/* Read a small file of /proc into a string without its newline.  One read gets
 * all of such a file; a longer one is cut. */
static int os_slurp(const char *path, char *buffer, size_t size) {
  int fd = os_open(NULL, path, O_RDONLY, 0);
  if (fd < 0) return fd;
  int64_t n = os_read(NULL, fd, buffer, size - 1);
  os_close(NULL, fd);
  if (n < 0) return (int)n;
  buffer[n] = '\0';
  buffer[strcspn(buffer, "\n")] = '\0';
  return 0;
}

/* Random bytes for the phase of a store's ticks: nothing secret. */
static int os_random(void *context, void *buffer, size_t size) {
  (void)context;
  int fd = os_open(NULL, "/dev/urandom", O_RDONLY, 0);
  if (fd < 0) return fd;
  int64_t n = os_read(NULL, fd, buffer, size);
  os_close(NULL, fd);
  return n == (int64_t)size ? 0 : -EIO;
}

/* A new text at each boot of the host: sessions of another boot are dead. */
static int os_boot_id(void *context, char *buffer, size_t size) {
  (void)context;
  return os_slurp("/proc/sys/kernel/random/boot_id", buffer, size);
}

/* The inode of the host's initial time namespace (Linux's PROC_TIME_INIT_INO).
 */
#define OS_FIRST_TIME UINT64_C(0xeffffffa)

/* By how many ns this process's CLOCK_BOOTTIME is ahead of the host's: in a
 * time namespace it can be anything.  An error if it cannot be told.  The
 * thread's namespace is read, because /proc/self is the main thread, which may
 * have ended.  If it has, timens_offsets cannot be read either.  That is an
 * error, except in the initial namespace, whose inode is fixed and whose offset
 * is 0.  A kernel without time namespaces has no such file: then only the
 * presence of /proc is checked. */
static int os_boot_offset(void *context, int64_t *out) {
  *out = 0;
  char text[256];
  zke_file own = {.inode = 0}, given = {.inode = 0};
  int rc = os_stat(context, "/proc/thread-self/ns/time", &own);
  if (rc == -ENOENT) return os_stat(context, "/proc/self/ns", &own);
  if (rc < 0 || own.inode == OS_FIRST_TIME) return rc;
  rc = os_stat(context, "/proc/thread-self/ns/time_for_children", &given);
  if (rc == 0 && given.inode != own.inode) rc = -EXDEV; /* the children's */
  int fd = rc < 0 ? rc : os_open(context, "/proc/self/timens_offsets", 0, 0);
  if (fd < 0) return fd;
  int64_t n = os_read(context, fd, text, sizeof text - 1);
  os_close(context, fd);
  if (n < 0) return (int)n;
  text[n] = '\0';
  char *at = strstr(text, "boottime");
  if (!at) return -EINVAL;
  int64_t seconds = strtoll(at + strlen("boottime"), &at, 10);
  *out = seconds * 1000000000 + strtoll(at, NULL, 10);
  return 0;
}

/* Asks the kernel each time: a forked child has another pid. */
static int64_t os_pid(void *context) {
  (void)context;
  return (int64_t)getpid();
}

/* The default name of a session; the kernel cuts it to 15 bytes. */
static int os_process_name(void *context, char *buffer, size_t size) {
  (void)context;
  return os_slurp("/proc/self/comm", buffer, size);
}

static const zke_os os_own = {
    sizeof(zke_os),   NULL,           os_open,       os_close,
    os_dup,           os_read,        os_write,      os_pread,
    os_pwrite,        os_stat,        os_fstat,      os_fsync,
    os_adopt,         os_mkdir,       os_mkfifo,     os_unlink,
    os_list,          os_network,     os_pipe,       os_lock,
    os_probe,         os_poll,        os_poller,     os_poller_add,
    os_poller_remove, os_timer,       os_timer_set,  os_clock,
    os_sleep,         os_random,      os_boot_id,    os_pid,
    os_process_name,  os_boot_offset, os_lock_range, os_find_lock,
    os_mkfile,        os_share,
};

/* After size and context a table has only function pointers, so it is filled as
 * an array of them. */
static void os_fill(zke_os *os, size_t size) {
  typedef void (*function)(void);
  unsigned char *to = (unsigned char *)os;
  const unsigned char *own = (const unsigned char *)&os_own;
  for (size_t at = offsetof(zke_os, open); at + sizeof(function) <= size;
       at += sizeof(function)) {
    function f;
    memcpy(&f, to + at, sizeof f);
    if (!f) memcpy(to + at, own + at, sizeof f);
  }
}

/* Wait on a condition variable of CLOCK_MONOTONIC for at most ns nanoseconds.
 * Not in the table, since no program replaces it. */
static void os_condition_wait(pthread_cond_t *c, pthread_mutex_t *m,
                              int64_t ns) {
  if (ns == INT64_MAX) {
    pthread_cond_wait(c, m);
    return;
  }
  int64_t until = base_later(os_clock(NULL, ZKE_CLOCK_MONOTONIC), ns);
  struct timespec t = os_timespec(until);
  pthread_cond_timedwait(c, m, &t);
}

/* Make a condition variable whose timed waits use CLOCK_MONOTONIC: setting the
 * clock must not shorten or lengthen a deadline. */
static void os_condition_init(pthread_cond_t *c) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(c, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* Thread cancellation is held off while a call is inside the library: a thread
 * that ended there would keep locks, and the gate of all processes.  depth
 * counts the calls that this thread is in: more than one if callbacks make
 * calls.  state and type are what the outermost call found. */
static _Thread_local struct { int depth, state, type; } os_cancel;

/* Hold cancellation off until os_cancel_back().  Setting the state is not
 * enough: an asynchronous cancellation may have been decided on before the
 * state was set, and its signal may come afterwards.  Some versions of the C
 * library then look only at the type (glibc 2.36 does). */
static void os_cancel_off(void) {
  if (os_cancel.depth++ > 0) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &os_cancel.state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &os_cancel.type);
}

/* The end of a call: restore the caller's settings.  A cancellation that came
 * meanwhile takes effect here if it is asynchronous, else at the caller's next
 * cancellation point. */
static void os_cancel_back(void) {
  if (--os_cancel.depth > 0) return;
  pthread_setcanceltype(os_cancel.type, NULL);
  pthread_setcancelstate(os_cancel.state, NULL);
}

/* Let this thread be cancelled in the sleep that follows, until
 * os_cancel_forbid(); for a caller with a cleanup handler, which ends with
 * os_cancel_back().  Not inside a callback: that would abandon the program's
 * code.  The type stays deferred: a condition variable cannot be left at an
 * arbitrary instruction. */
static void os_cancel_allow(void) {
  if (os_cancel.depth == 1) pthread_setcancelstate(os_cancel.state, NULL);
}

/* Hold cancellation off again, when the sleep is over. */
static void os_cancel_forbid(void) {
  if (os_cancel.depth == 1)
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* ======================================================================
 * path_: path rules and keys (private)
 *
 * Knows what a path may look like (semantics.md 1), but not whether a node
 * exists.  zkembed applies what ZooKeeper's C client checks before it sends
 * (path_check), then what the server checks for paths that are made or changed
 * (path_check_new).  In other calls a path that only the server would refuse is
 * simply not found.
 *
 * Nodes are found by a key, the parent's path and the name, so a parent's
 * children are next to each other in the table and a listing is one range.  A
 * key points into the path from which it was made.
 * ==================================================================== */

/* A node's key: its parent's path and its name.  The root is ("", ""). */
typedef struct path_key {
  const char *parent, *name;
  int parent_len, name_len;
} path_key;

/* Bytes of a path.  A request to a ZooKeeper with the usual jute.maxbuffer has
 * no room for more.  SQLite's texts end at 10^9 bytes, and a length is an int
 * in many places. */
enum { PATH_MOST = 1024 * 1024 };

/* Is the component at s, len bytes, "." or ".."? */
static bool path_is_dots(const char *s, size_t len) {
  return (len == 1 || len == 2) && s[0] == '.' && s[len - 1] == '.';
}

/* The C client's check (1.3), and the length.  The path of a sequential create
 * may end in '/', "/." or "/..", since digits follow. */
static bool path_check(const char *path, bool sequential) {
  if (!path || path[0] != '/') return false;
  if (path[1] == '\0') return true;
  for (const char *at = path + 1;;) {
    size_t len = strcspn(at, "/");
    bool last = at[len] == '\0';
    if ((len == 0 || path_is_dots(at, len)) && !(last && sequential))
      return false;
    for (size_t i = 0; i < len; i++) {
      if ((unsigned char)at[i] < 0x1f) return false;
    }
    if (last) return (size_t)(at + len - path) <= PATH_MOST;
    at += len + 1;
  }
}

/* Decode one UTF-8 character of the Basic Multilingual Plane; 0 for anything
 * malformed or outside it (ZooKeeper refuses both). */
static unsigned path_decode(const unsigned char **at) {
  const unsigned char *s = *at;
  unsigned c = s[0];
  if (c < 0x80) {
    *at = s + 1;
    return c;
  }
  if (c >= 0xc2 && c <= 0xdf && (s[1] & 0xc0) == 0x80) {
    *at = s + 2;
    return (c & 0x1fu) << 6 | (s[1] & 0x3fu);
  }
  if ((c & 0xf0) == 0xe0 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80) {
    *at = s + 3;
    c = (c & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    return c >= 0x800 ? c : 0;
  }
  return 0;
}

/* The server's full rule (1.1), for paths that are created or changed. */
static bool path_check_new(const char *path) {
  if (!path_check(path, false)) return false;
  for (const unsigned char *at = (const unsigned char *)path; *at;) {
    unsigned c = path_decode(&at);
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0xd800 && c <= 0xf8ff) ||
        c >= 0xfff0) {
      return false;
    }
  }
  return true;
}

/* Does a UTF-8 character outside the Basic Multilingual Plane begin here?  It
 * has four bytes. */
static bool path_is_outside(const unsigned char *s) {
  unsigned least = s[0] == 0xf0 ? 0x90 : 0x80;
  unsigned most = s[0] == 0xf4 ? 0x8f : 0xbf;
  return s[0] >= 0xf0 && s[0] <= 0xf4 && s[1] >= least && s[1] <= most &&
         (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80;
}

/* Why path_check() or path_check_new() has refused a path.  Those two only say
 * yes or no: all calls use them, and few need the reason.  "/" is never
 * refused.  If the names are right, a character is wrong: the last loop refuses
 * all that path_check_new() refuses. */
static const char *path_fault(const char *path, bool sequential) {
  if (!path) return "it is NULL";
  if (!*path) return "it is empty";
  if (*path != '/') return "it does not begin with /";
  if (strlen(path) > PATH_MOST) return "it has more than 1 MiB";
  for (const char *name = path + 1; name;) {
    size_t len = strcspn(name, "/");
    bool last = name[len] == '\0';
    bool prefix = last && sequential;
    if (len == 0 && !prefix)
      return last ? "it ends with /" : "a name in it is empty";
    if (path_is_dots(name, len) && !prefix)
      return len == 1 ? "a name in it is ." : "a name in it is ..";
    name = last ? NULL : name + len + 1;
  }
  for (const unsigned char *at = (const unsigned char *)path; ALWAYS(*at);) {
    bool outside = path_is_outside(at);
    unsigned c = path_decode(&at);
    if (c == 0)
      return outside ? "it has a character above U+FFFF" : "it is not UTF-8";
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
      return "it has a control character";
    if (c >= 0xd800 && c <= 0xdfff) return "it is not UTF-8";
    if (c >= 0xe000 && c <= 0xf8ff) return "it has a character for private use";
    if (c >= 0xfff0) return "it has a character from U+FFF0 to U+FFFF";
  }
  return "it is not allowed";
}

/* How many bytes of a path to show if text follows it: all of them, or at most
 * `most`, and then no part of a character. */
static int path_shown(const char *path, size_t most) {
  size_t len = strlen(path);
  if (len <= most) return (int)len;
  len = most;
  while (len > most - 4 && ((unsigned char)path[len] & 0xc0) == 0x80) len--;
  return (int)len;
}

/* Fail with that reason.  Only some printf()s print NULL.  The reason comes
 * last, so a long path is cut.
 *
 *   what  "path" or "chroot" */
static int path_refuse(const char *what, const char *path, bool sequential) {
  enum { SHOWN = 400 }; /* bytes; a sentence has 512 */
  const char *fault = path_fault(path, sequential);
  if (!path) path = "(NULL)";
  int shown = path_shown(path, SHOWN);
  return base_fail(ZKE_BADARGUMENTS, "malformed %s %.*s%s: %s", what, shown,
                   path, path[shown] ? "..." : "", fault);
}

/* The key of a path of len bytes, pointing into it.  The root has no parent:
 * its key is two empty texts.  The parent of a node below the root is "/";
 * other parents have no '/' at the end. */
static path_key path_split(const char *path, size_t len) {
  path_key k = {path, path + len, 0, 0};
  if (len <= 1) return (path_key){"", "", 0, 0};
  while (k.name > path && k.name[-1] != '/') k.name--;
  k.name_len = (int)(path + len - k.name);
  k.parent_len = k.name > path ? (int)(k.name - path) - 1 : 0;
  if (k.name == path + 1) k.parent_len = 1; /* below the root: "/" */
  return k;
}

/* FNV-1a: continue a hash with more bytes.  PATH_HASH is the hash of none. */
#define PATH_HASH UINT64_C(14695981039346656037)
static uint64_t path_hash(uint64_t hash, const char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
  return hash;
}

/* The hash of a node's key.  The NUL between its texts distinguishes "a","bc"
 * from "ab","c". */
static uint64_t path_hash_key(path_key k) {
  uint64_t hash = path_hash(PATH_HASH, k.parent, (size_t)k.parent_len);
  hash = path_hash(hash, "", 1);
  return path_hash(hash, k.name, (size_t)k.name_len);
}

/* Cut a path's length down to that of its parent; false at the root. */
static bool path_climb(const char *path, size_t *len) {
  if (*len <= 1) return false;
  while (--*len && path[*len] != '/') continue;
  if (*len == 0) *len = 1; /* the root keeps its '/' */
  return true;
}

/* Append the path that a key stands for, without a NUL. */
static void path_join(buf *out, path_key k) {
  buf_add(out, k.parent, (size_t)k.parent_len);
  if (k.parent_len != 1) buf_add(out, "/", 1);
  buf_add(out, k.name, (size_t)k.name_len);
}

/* Nodes that cannot be deleted (1.2). */
static bool path_is_reserved(const char *path) {
  return strcmp(path, "/") == 0 || strcmp(path, "/zookeeper") == 0 ||
         strcmp(path, "/zookeeper/quota") == 0 ||
         strcmp(path, "/zookeeper/config") == 0;
}

/* ======================================================================
 * auth_: SHA-1, base64, digest identities (private)
 *
 * ZooKeeper's digest scheme names an identity "user:" followed by the base64
 * of the SHA-1 of "user:password".  This section computes that text from a
 * certificate; it knows nothing of ACLs.
 *
 * Nothing here protects a secret: whoever may write the database file may do
 * anything (doc/security.md).  SHA-1 is what ZooKeeper uses.
 * ==================================================================== */

/* Rotate to the left by n bits, 0 < n < 32: a shift by 32 is undefined. */
static uint32_t auth_rotate(uint32_t x, int n) {
  return x << n | x >> (32 - n);
}

/* A round's function and constant, 20 rounds each (FIPS 180-4, 4.1.1 and
 * 4.2.1). */
static uint32_t auth_mix(int round, const uint32_t v[5]) {
  uint32_t parity = v[1] ^ v[2] ^ v[3];
  if (round < 20) return ((v[1] & v[2]) | (~v[1] & v[3])) + 0x5a827999u;
  if (round < 40) return parity + 0x6ed9eba1u;
  if (round >= 60) return parity + 0xca62c1d6u;
  return ((v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3])) + 0x8f1bbcdcu;
}

/* One block of 64 bytes (FIPS 180-4, 6.1.2). */
static void auth_sha1_block(uint32_t h[5], const unsigned char *p) {
  uint32_t w[80], v[5];
  for (int i = 0; i < 16; i++) {
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
           (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  }
  for (int i = 16; i < 80; i++) {
    w[i] = auth_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  }
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 80; i++) {
    uint32_t next = auth_rotate(v[0], 5) + auth_mix(i, v) + v[4] + w[i];
    v[4] = v[3];
    v[3] = v[2];
    v[2] = auth_rotate(v[1], 30);
    v[1] = v[0];
    v[0] = next;
  }
  for (int i = 0; i < 5; i++) h[i] += v[i];
}

/* The SHA-1 of a whole text.  It names identities as ZooKeeper does; nothing
 * here relies on its strength.  The text is followed by a one bit, zeros, and
 * its length in bits, to fill one block or two. */
static void auth_sha1(const unsigned char *data, size_t len,
                      unsigned char out[20]) {
  uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  unsigned char tail[128] = {0};
  size_t whole = len / 64 * 64, rest = len - whole;
  size_t tail_len = rest < 56 ? 64 : 128;
  for (size_t i = 0; i < whole; i += 64) auth_sha1_block(h, data + i);
  if (rest) memcpy(tail, data + whole, rest);
  tail[rest] = 0x80;
  for (size_t i = 0; i < 8; i++) {
    tail[tail_len - 1 - i] = (unsigned char)((uint64_t)len * 8 >> 8 * i);
  }
  for (size_t i = 0; i < tail_len; i += 64) auth_sha1_block(h, tail + i);
  for (int i = 0; i < 20; i++)
    out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* The hash of "user:password" in base64: 27 digits and a '=', since the last
 * group has only two of the 20 bytes. */
static void auth_digest(const char *cert, size_t len,
                        char out[ZKE_DIGEST_SIZE]) {
  static const char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  unsigned char hash[20];
  auth_sha1((const unsigned char *)cert, len, hash);
  for (int i = 0, o = 0; i < 20; i += 3) {
    uint32_t v = (uint32_t)hash[i] << 16 | (uint32_t)hash[i + 1] << 8 |
                 (i + 2 < 20 ? hash[i + 2] : 0u);
    for (int k = 0; k < 4; k++) out[o++] = digits[v >> (18 - 6 * k) & 63];
  }
  out[27] = '=';
  out[28] = '\0';
}

/* The identity of "user:password"; without a colon the whole text is the user.
 */
static char *auth_identity(const zke_allocator *a, const char *cert,
                           size_t len) {
  char text[ZKE_DIGEST_SIZE];
  const char *colon = len ? memchr(cert, ':', len) : NULL;
  size_t user_len = colon ? (size_t)(colon - cert) : len;
  auth_digest(cert, len, text);
  char *id = mem_resize(a, NULL, user_len + 1 + sizeof text);
  if (!id) return NULL;
  if (user_len) memcpy(id, cert, user_len);
  id[user_len] = ':';
  memcpy(id + user_len + 1, text, sizeof text);
  return id;
}

/* ======================================================================
 * acl_: access control lists as text (private)
 *
 * Knows access control lists and the identities of a session, but not nodes.
 * In the file an ACL is one line per entry, "perms:scheme:id", with '\' and
 * newline escaped in the id.  NULL is the open ACL (world:anyone, all), so the
 * usual case costs nothing.  semantics.md 8.
 *
 * acl_encode() is the only way in: it checks a caller's list as the server does
 * and replaces entries of scheme auth by the session's identities.  So the file
 * holds world, digest, and the schemes that some program has vouched for.  What
 * those mean is up to that program: here an entry matches an identity with the
 * same scheme and the same text.  In a process that does not know the scheme it
 * therefore matches nobody.  Only ids of ip are compared as addresses.
 * acl_allows() decides, acl_decode() returns a list.  A damaged text allows
 * nothing from the damage on.
 * ==================================================================== */

/* Bytes of an encoded ACL.  A request to a ZooKeeper with the usual
 * jute.maxbuffer has no room for more.  Each entry of scheme auth becomes all
 * identities of the session: without a limit one short list could fill the
 * memory and the file, and so could many short lists in one multi. */
enum {
  ACL_MOST = 1024 * 1024,
  ACL_MULTI_MOST = 16 * ACL_MOST /* of the creates of a multi together */
};

static const zke_acl acl_open_data[] = {{ZKE_PERM_ALL, "world", "anyone"}};
static const zke_acl acl_read_data[] = {{ZKE_PERM_READ, "world", "anyone"}};
static const zke_acl acl_creator_data[] = {{ZKE_PERM_ALL, "auth", ""}};
const zke_acls zke_open_acl = {1, acl_open_data};
const zke_acls zke_read_acl = {1, acl_read_data};
const zke_acls zke_creator_all_acl = {1, acl_creator_data};

/* A session's identities: the scheme and the id of each, NUL-terminated, one
 * after the other. */
typedef struct acl_identities {
  buf texts;
  int count;
} acl_identities;

/* The schemes that a store's program has vouched for, NUL-terminated, one after
 * the other. */
typedef struct acl_schemes {
  buf names;
  int count;
} acl_schemes;

/* The text after one of these.  Nothing points to them, so they can move. */
static const char *acl_after(const char *text) {
  return text + strlen(text) + 1;
}

/* Append one text or two, both or none, and count them as one: half an identity
 * would be read as a whole one. */
static int acl_add_texts(buf *row, int *count, const char *first,
                         const char *second) {
  size_t len = row->len;
  buf_add_string(row, first);
  if (second) buf_add_string(row, second);
  if (!row->failed) {
    ++*count;
    return ZKE_OK;
  }
  row->failed = false;
  row->len = len;
  return base_nomem();
}

/* Give a session an identity; an identity given twice counts once. */
static int acl_add_identity(acl_identities *who, const char *scheme,
                            const char *id) {
  const char *at = who->texts.data;
  for (int i = 0; i < who->count; i++, at = acl_after(acl_after(at))) {
    if (strcmp(at, scheme) == 0 && strcmp(acl_after(at), id) == 0)
      return ZKE_OK;
  }
  return acl_add_texts(&who->texts, &who->count, scheme, id);
}

/* Remove all identities of a session. */
static void acl_clear(acl_identities *who) {
  who->texts.len = 0;
  who->count = 0;
}

/* Has the store's program vouched for a scheme? */
static bool acl_is_known(const acl_schemes *known, const char *scheme) {
  const char *at = known->names.data;
  for (int i = 0; i < known->count; i++, at = acl_after(at)) {
    if (strcmp(at, scheme) == 0) return true;
  }
  return false;
}

/* Make a scheme valid in lists. */
static int acl_add_scheme(acl_schemes *known, const char *scheme) {
  if (acl_is_known(known, scheme)) return ZKE_OK;
  return acl_add_texts(&known->names, &known->count, scheme, NULL);
}

/* Read a decimal number up to `most`; -1 if there is none. */
static int acl_number(const char **at, const char *end, int most) {
  int n = -1;
  for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
    n = 10 * (n < 0 ? 0 : n) + (**at - '0');
    if (n > most) return -1;
  }
  return n;
}

/* An address of scheme ip, and how many of its leading bits count. */
typedef struct acl_net {
  uint32_t address;
  int bits;
} acl_net;

/* Read "a.b.c.d", followed by "/bits" if may_mask is set.  Like ZooKeeper's
 * provider, it knows only IPv4. */
static bool acl_read_net(const char *at, size_t len, bool may_mask,
                         acl_net *out) {
  const char *end = at + len;
  *out = (acl_net){0, 32};
  for (int i = 0; i < 4; i++) {
    if (i && (at == end || *at++ != '.')) return false;
    int part = acl_number(&at, end, 255);
    if (part < 0) return false;
    out->address = out->address << 8 | (uint32_t)part;
  }
  if (at == end) return true;
  if (!may_mask || *at++ != '/') return false;
  out->bits = acl_number(&at, end, 32);
  return out->bits >= 0 && at == end;
}

/* Is an address in the net of an entry's id?  An id that cannot be read matches
 * nothing. */
static bool acl_in_net(const char *net_text, size_t len, const char *id) {
  acl_net net, from;
  if (!acl_read_net(net_text, len, true, &net) ||
      !acl_read_net(id, strlen(id), false, &from)) {
    return false;
  }
  uint32_t mask = net.bits ? UINT32_MAX << (32 - net.bits) : 0;
  return ((net.address ^ from.address) & mask) == 0;
}

/* Is this a digest id as the server accepts it: two parts separated by one
 * colon?  Colons at the end do not count. */
static bool acl_digest_valid(const char *id) {
  size_t len = strlen(id), colons = 0;
  while (len && id[len - 1] == ':') len--;
  for (size_t i = 0; i < len; i++) colons += id[i] == ':';
  return colons == 1;
}

/* Append one entry's line, its id escaped, if the list has room for it. */
static int acl_add_entry(buf *out, int32_t perms, const char *scheme,
                         const char *id) {
  char head[64];
  int n = snprintf(head, sizeof head, "%d:%s:", (int)perms, scheme);
  size_t size = (size_t)n + 1; /* stop counting when no list has room for it */
  for (const char *at = id; *at && size <= ACL_MOST; at++)
    size += *at == '\\' || *at == '\n' ? 2 : 1;
  if (out->len + size > ACL_MOST) {
    return base_fail(ZKE_INVALIDACL, "the ACL has more than %d bytes",
                     (int)ACL_MOST);
  }
  buf_add(out, head, (size_t)n);
  for (;; id++) {
    size_t len = strcspn(id, "\\\n");
    buf_add(out, id, len);
    id += len;
    if (!*id) break;
    buf_add(out, *id == '\n' ? "\\n" : "\\\\", 2);
  }
  buf_add(out, "\n", 1);
  return ZKE_OK;
}

/* For qsort() of pointers to entries: by perms, scheme and id. */
static int acl_compare(const void *a, const void *b) {
  const zke_acl *e = *(const zke_acl *const *)a;
  const zke_acl *f = *(const zke_acl *const *)b;
  if (e->perms != f->perms) return e->perms < f->perms ? -1 : 1;
  int by = strcmp(e->scheme, f->scheme);
  if (by) return by;
  return strcmp(e->id ? e->id : "", f->id ? f->id : "");
}

/* The same by their positions in the list. */
static int acl_compare_place(const void *a, const void *b) {
  const zke_acl *e = *(const zke_acl *const *)a;
  const zke_acl *f = *(const zke_acl *const *)b;
  return e < f ? -1 : e > f;
}

/* The same by perms, scheme and id, then by their positions. */
static int acl_compare_all(const void *a, const void *b) {
  int by = acl_compare(a, b);
  return by ? by : acl_compare_place(a, b);
}

/* Collect pointers to a list's entries in their order, to the first of equal
 * ones.  The server removes duplicates, so a list that is read back is the same
 * here and there.  A list may be long, so the entries are sorted to find the
 * duplicates and then sorted back. */
static void acl_collect(const zke_acls *acls, buf *out) {
  for (int i = 0; i < acls->count; i++) {
    const zke_acl *e = &acls->data[i];
    buf_add(out, &e, sizeof(zke_acl *));
  }
  if (out->failed || acls->count < 2) return;
  const zke_acl **at = (const zke_acl **)(void *)out->data;
  size_t unique = 1;
  qsort(at, (size_t)acls->count, sizeof(zke_acl *), acl_compare_all);
  for (int i = 1; i < acls->count; i++)
    if (acl_compare(&at[i], &at[unique - 1]) != 0) at[unique++] = at[i];
  qsort(at, unique, sizeof(zke_acl *), acl_compare_place);
  out->len = unique * sizeof(zke_acl *);
}

/* Append the entries that an entry of scheme auth stands for: the session's
 * identities, except the address that it comes from, and super, which needs no
 * entry. */
static int acl_encode_auth(const acl_identities *who, int32_t perms, buf *out) {
  const char *at = who->texts.data;
  size_t len = out->len;
  int rc = ZKE_OK;
  for (int i = 0; i < who->count && rc == ZKE_OK; i++) {
    if (strcmp(at, "ip") != 0 && strcmp(at, "super") != 0)
      rc = acl_add_entry(out, perms, at, acl_after(at));
    at = acl_after(acl_after(at));
  }
  if (rc != ZKE_OK || out->len > len || out->failed) return rc;
  return base_fail(ZKE_INVALIDACL,
                   "ACL of scheme auth, but the session has no identity");
}

/* Why a list may not have this entry, which is not of scheme auth; NULL if it
 * may. */
static const char *acl_fault(const acl_schemes *known, const zke_acl *e) {
  acl_net net;
  if (!e->id) return "its id is NULL";
  if (strcmp(e->scheme, "world") == 0)
    return strcmp(e->id, "anyone") == 0 ? NULL : "the id of world is anyone";
  if (strcmp(e->scheme, "digest") == 0)
    return acl_digest_valid(e->id) ? NULL : "an id of digest is USER:HASH";
  if (strcmp(e->scheme, "super") == 0)
    return "super needs no entry, and can have none";
  if (!acl_is_known(known, e->scheme))
    return "that scheme is valid only after zke_vouch()";
  if (strcmp(e->scheme, "ip") != 0 ||
      acl_read_net(e->id, strlen(e->id), true, &net))
    return NULL;
  return "an id of ip is an IPv4 address, with or without /BITS";
}

/* Append one entry of a caller's list, expanded if its scheme is auth. */
static int acl_encode_entry(const acl_identities *who, const acl_schemes *known,
                            const zke_acl *e, buf *out) {
  if (strcmp(e->scheme, "auth") == 0)
    return acl_encode_auth(who, e->perms, out);
  if (strcmp(e->scheme, "world") == 0 && !e->id)
    return base_fail(ZKE_MARSHALLINGERROR, "ACL of scheme world: id is NULL");
  const char *why = acl_fault(known, e);
  if (why) {
    return base_fail(ZKE_INVALIDACL, "ACL entry %s:%s is not valid: %s",
                     e->scheme, e->id ? e->id : "(null)", why);
  }
  return acl_add_entry(out, e->perms, e->scheme, e->id);
}

/* Encode a caller's list.  *open_out is set if it is the open ACL, which most
 * lists are; it is stored as NULL, so no text is made. */
static int acl_encode(const acl_identities *who, const acl_schemes *known,
                      const zke_acls *acls, buf *out, bool *open_out) {
  if (!acls || acls->count <= 0 || !acls->data)
    return base_fail(ZKE_INVALIDACL, "the ACL has no entry");
  for (int i = 0; i < acls->count; i++) {
    if (!acls->data[i].scheme)
      return base_fail(ZKE_INVALIDACL, "ACL entry %d has no scheme", i);
  }
  const zke_acl *e = acls->data;
  *open_out = acls->count == 1 && e->perms == ZKE_PERM_ALL && e->id &&
              strcmp(e->scheme, "world") == 0 && strcmp(e->id, "anyone") == 0;
  if (*open_out) return ZKE_OK;
  buf entries = {.a = out->a};
  int rc = ZKE_OK;
  acl_collect(acls, &entries);
  const zke_acl **at = (const zke_acl **)(void *)entries.data;
  size_t count = entries.failed ? 0 : entries.len / sizeof(zke_acl *);
  for (size_t i = 0; i < count && rc == ZKE_OK; i++)
    rc = acl_encode_entry(who, known, at[i], out);
  buf_add(out, "", 1);
  if (rc == ZKE_OK && (entries.failed || out->failed)) rc = base_nomem();
  buf_free(&entries);
  return rc;
}

enum { ACL_SCHEME = 16 }; /* bytes of a scheme's name, with its NUL */

/* One entry of an encoded ACL, pointing into its text. */
typedef struct acl_entry {
  int32_t perms;
  char scheme[ACL_SCHEME];
  const char *id; /* escaped */
  size_t id_len;
} acl_entry;

/* Read the entry at *at and move past it; false at the end or at damaged text.
 * **at tells the two apart: it is NUL at the end. */
static bool acl_next(const char **at, acl_entry *e) {
  char *end;
  if (!**at) return false;
  long perms = strtol(*at, &end, 10);
  size_t len = *end == ':' ? strcspn(end + 1, ":\n") : 0;
  if (len == 0 || len >= ACL_SCHEME || end[1 + len] != ':') return false;
  e->perms = (int32_t)perms;
  memcpy(e->scheme, end + 1, len);
  e->scheme[len] = '\0';
  e->id = end + len + 2;
  e->id_len = strcspn(e->id, "\n");
  *at = e->id + e->id_len + (e->id[e->id_len] == '\n');
  return true;
}

/* The next character of an escaped id; a lone '\\' at its end is itself. */
static char acl_unescape(const char **at, const char *end) {
  char c = *(*at)++;
  if (c != '\\' || *at == end) return c;
  c = *(*at)++;
  return c == 'n' ? '\n' : c;
}

/* Does an entry name this identity?  Compared without unescaping a copy. */
static bool acl_id_equals(const acl_entry *e, const char *id) {
  const char *at = e->id, *end = e->id + e->id_len;
  while (at < end && *id && acl_unescape(&at, end) == *id) id++;
  return at == end && !*id;
}

/* Does an entry match one of the session's identities? */
static bool acl_has_entry(const acl_identities *who, const acl_entry *e) {
  const char *at = who->texts.data;
  bool net = strcmp(e->scheme, "ip") == 0;
  for (int i = 0; i < who->count; i++, at = acl_after(acl_after(at))) {
    const char *id = acl_after(at);
    if (strcmp(at, e->scheme) != 0) continue;
    if (net ? acl_in_net(e->id, e->id_len, id) : acl_id_equals(e, id))
      return true;
  }
  return false;
}

/* Do these identities have at least one of the permissions `needed`?  text is
 * an encoded ACL, NULL for the open one.  The identity super always passes. */
static bool acl_allows(const acl_identities *who, const char *text,
                       int32_t needed) {
  acl_entry e;
  if (!text) return true;
  const char *at = who->texts.data;
  for (int i = 0; i < who->count; i++, at = acl_after(acl_after(at))) {
    if (strcmp(at, "super") == 0) return true;
  }
  while (acl_next(&text, &e)) {
    if ((e.perms & needed) &&
        (strcmp(e.scheme, "world") == 0 || acl_has_entry(who, &e))) {
      return true;
    }
  }
  return false;
}

/* Append an entry's id, unescaped, or "user:x" for a masked digest. */
static void acl_add_id(buf *out, const acl_entry *e, bool masked) {
  const char *at = e->id, *end = e->id + e->id_len;
  bool mask = masked && strcmp(e->scheme, "digest") == 0;
  while (at < end) {
    char c = acl_unescape(&at, end);
    buf_add(out, &c, 1);
    if (!mask || c != ':') continue;
    buf_add(out, "x", 1);
    break;
  }
  buf_add(out, "", 1);
}

/* Decode into one block; if masked, digests are shown as "user:x". */
static zke_acls *acl_decode(const zke_allocator *a, const char *text,
                            bool masked) {
  buf entries = {.a = a}, texts = {.a = a};
  acl_entry entry;
  int count = 0;
  char *at, *strings;
  if (!text) text = "31:world:anyone\n";
  for (; acl_next(&text, &entry); count++) {
    zke_acl e = {.perms = entry.perms};
    buf_add(&entries, &e, sizeof e);
    buf_add_string(&texts, entry.scheme);
    acl_add_id(&texts, &entry, masked);
  }
  zke_acls *list = buf_block(a, sizeof *list, &entries, &texts, &at, &strings);
  if (list) {
    zke_acl *e = (zke_acl *)(void *)at;
    *list = (zke_acls){.count = count, .data = e};
    for (int i = 0; i < count; i++, e++) {
      e->scheme = buf_next_text(&strings);
      e->id = buf_next_text(&strings);
    }
  }
  buf_free(&entries);
  buf_free(&texts);
  return list;
}

/* ======================================================================
 * types: the store, the session, the transaction (private)
 *
 * The structs that several sections share.  A struct that only one section uses
 * is defined there.
 *
 * A handle (struct zke) is one session; a store is what the sessions of one
 * zke_open() share.  Members are grouped by what guards them: fixed at open,
 * atomic, or guarded by the store's lock.  doc/design.md 11 explains the
 * threads.
 * ==================================================================== */

/* Every statement of the library by its name.  Its text is before the function
 * that binds it: see SQL_STATEMENT(). */
/* clang-format off */
#define SQL_NAMES(X)                                                          \
  X(BEGIN_READ) X(BEGIN_WRITE) X(COMMIT) X(ROLLBACK) X(JOIN) X(JOIN_END)      \
  X(JOIN_UNDO) X(APP_BEGIN) X(APP_END) X(META) X(META_SET)                    \
  X(META_FILES) X(META_FILES_SET) X(NODE_ROW) X(NODE_DATA) X(NODE_ADD)        \
  X(NODE_CHILD_ADDED) X(NODE_CHILD_GONE) X(NODE_RAISE) X(NODE_SET_DUE)        \
  X(NODE_REMOVE) X(NODE_SET) X(NODE_SET_ACL) X(NODE_NAMES) X(NODE_COUNT)      \
  X(NODE_BYTES)                                                               \
  X(NODE_COUNT_ALL) X(NODE_OWNED_ALL) X(NODE_OWNED) X(NODE_DUE)               \
  X(NODE_DISCARD) X(BLOB_ADD) X(BLOB_REMOVE) X(WATCH_AT) X(WATCH_BELOW)       \
  X(WATCH_DROP) X(WATCH_ADD) X(WATCH_REMOVE) X(WATCH_RECURSIVE) X(WATCH_END)  \
  X(WATCH_SPEND) X(EVENT_BOUNDS) X(EVENT_ADD) X(EVENT_NEXT) X(EVENT_TRIM)     \
  X(SESSION_SEEN) X(EVENT_END) X(SESSION_ADD) X(SESSION_HAS) X(SESSION_PID)   \
  X(SESSION_END) X(SESSION_ANY) X(SESSION_FEW) X(SESSION_PART) X(SLOT_LAST)   \
  X(SLOT_TAKEN) X(SESSION_CARRIED) X(SESSION_CARRIED_BY) X(SESSION_DETACH)    \
  X(SESSION_PASSWORD) X(SESSION_ATTACH) X(SESSION_REARM) X(EVENT_CARRIED)     \
  X(HISTORY_ADD) X(HISTORY_PRUNE) X(HISTORY_LIMITS) X(HISTORY_KEPT)
/* clang-format on */

#define SQL_NAME_ID(name) SQL_ID_##name,
enum { SQL_NAMES(SQL_NAME_ID) SQL_COUNT };

/* node.kind */
enum { NODE_PLAIN = 0, NODE_CONTAINER = 1, NODE_TTL = 2 };

/* watch.kind: 2 * mode + table.  A persistent watch has a row in each table, as
 * in the server, since each row can be removed separately. */
enum { WATCH_TABLE_DATA = 0, WATCH_TABLE_CHILD = 1 };
enum { WATCH_ONE_SHOT = 0, WATCH_PERSISTENT = 1, WATCH_RECURSIVE = 2 };

/* The known state of a session.  EXPIRED: the database said so, or the session
 * concluded it because its files are gone.  CLOSED is set while zke_close()
 * runs.  The edges are in doc/design.md 5. */
enum sess_state {
  SESS_ALIVE,
  SESS_EXPIRED,
  SESS_MOVED, /* another handle has attached it */
  SESS_AUTH_FAILED,
  SESS_CLOSED
};

enum { SESS_PASSWORD = 16 }; /* bytes */

/* An item of a hash table; it is the first member of a larger struct. */
typedef struct watcher_item {
  struct watcher_item *next; /* in the chain */
  uint64_t hash;
} watcher_item;

/* Such a table: chains of items by their hash.  It grows and never shrinks. */
typedef struct watcher_table {
  watcher_item **at;
  size_t cap, count; /* cap: 0 or a power of two */
} watcher_table;

/* An event that was read from the file and is not delivered yet.  Delivery
 * decides whether the session may see it; if not, the event is spent without a
 * call. */
typedef struct event {
  struct event *next;
  int type;
  int64_t zxid;
  const char *acl; /* of the node, encoded, in the same block; NULL: open */
  char path[];
} event;

/* The notice of a dead owner: a writing end of the owner's FIFO.  It reports an
 * error when the last reader is gone, that is, when the owner's process has
 * ended.  There is one for each carrier with owners that watchers wait for. */
typedef struct notice {
  int64_t owner;           /* the carrier's id */
  int fd;                  /* -1: the notice came, probe from time to time */
  int refs;                /* watchers that wait for the owner's node */
  int64_t probe_at, pause; /* ns */
  bool busy;               /* the last probe did not get the gate */
} notice;

/* What a session needs of the system: a lock that is its life, a FIFO by which
 * it is woken, a poller and a timer.  Each session that is not light has its
 * own; a light one shares those of the session that carries it.  The lock byte
 * and the FIFO have the number of that session.  They stay after its handle was
 * closed, until the last light session is gone.  The sessions of a carrier are
 * dispatched together, by one thread at a time. */
struct carrier {
  /* fixed at open */
  struct store *s;
  int64_t id;   /* of the session that it was made for */
  char *fifo;   /* path, NULL in memory */
  int live_fd;  /* holds the lock that is the life of its sessions */
  int64_t life; /* inode of the file that it is a lock of */
  int wake_rfd, wake_wfd;
  int poller, timer; /* -1 if the table has none */
  /* guarded by the store's lock */
  struct carrier *next; /* of the store's carriers without a handle */
  zke *own;             /* the session of that id; NULL: its handle is closed */
  size_t users;         /* handles, `own` among them */
  size_t kept_count;    /* of these, sessions with a timeout */
  size_t watcher_count; /* of all its sessions */
  int64_t looked;       /* zxid of the state in which light sessions with
                           events were looked for */
  int64_t fetched;      /* the store's read that did so */
  int64_t lost;         /* meta.lost at that time */
  notice *notices;
  size_t notice_count, notice_cap;
  int64_t tick_at;     /* monotonic ns */
  int64_t timer_at;    /* what the timer is set to, 0: off */
  bool dispatching;    /* a thread has the role */
  pthread_cond_t done; /* a watcher has run, or the role is free */
  /* The carrier's time, for the timeouts of kept sessions: ns during which it
   * was seen to dispatch, as of clock_at (monotonic ns). */
  atomic_int_fast64_t clock, clock_at;
  /* changed with the lock's mutex held: light sessions to look at now, in
   * order, and all of them in a heap by the time of their next look */
  zke *ready, **ready_end;
  zke **due;
  size_t due_count, due_cap;
};

/* A handle, which is one session.  Members are grouped by what guards them.
 * Any thread may read a member that is fixed at open, or an atomic one, at any
 * time.  All others belong to the thread that holds the store's lock. */
struct zke {
  const zke_engine *engine; /* NULL: this file's own; see zke_handle */
  /* fixed at open */
  struct store *s;
  struct carrier *c;
  uint64_t serial;    /* of this handle, unique in the process: lock_limit */
  int64_t id;         /* 0: read-only */
  int64_t carrier_id; /* of its row: a light one's carrier, else 0 */
  char *chroot;       /* "" or "/a/b" */
  size_t chroot_len;
  int64_t lease, slot; /* ns or 0; slot in the liveness file */
  int event_limit;
  int64_t read_limit;                    /* 0: none */
  int64_t timeout;                       /* ns; 0: it is not kept */
  unsigned char password[SESS_PASSWORD]; /* of a kept one */
  /* any thread; a call adds itself to `calls` before it looks at `closing` */
  atomic_bool closing;
  atomic_int calls;
  atomic_int_fast64_t heard; /* carrier_clock() when a kept one was touched */
  /* guarded by the store's lock */
  bool listed; /* among the store's sessions */
  enum sess_state state;
  bool end_untold; /* the watchers have yet to be told of the session's end */
  bool row_gone;   /* the session's row is gone, or now another handle's */
  zke_watch_fn watcher;
  void *watcher_context;
  acl_identities who;
  buf path; /* chroot + path of the running call */
  int fail_when, fail_skip;
  enum txn_class last; /* the class of the last change of an old node */
  int64_t lease_at;    /* boottime ns of the last stamp */
  int64_t lease_late;  /* … a later one, perhaps not in its own slot; or 0 */
  int64_t lease_retry; /* … do not wake anybody for the next one before */
  int64_t row_era;     /* an era of the index in which its row was found */
  int64_t joined;      /* number of the last batch that it joined */
  int64_t sync_next;   /* monotonic ns: zke_sync() reads nothing before */
  int64_t discard_at, discard_pause; /* monotonic ns: the next try; ns */
  /* changed with the lock's mutex held: what must still be discarded, newest
   * first, and whether there is anything */
  struct discard *discards;
  atomic_bool owes;
  atomic_bool doomed; /* no memory to note it: the session must end */
  /* the same for timed calls: all, those that are set, the time of the first
   * (monotonic ns; INT64_MAX: none is set) */
  watcher_table alarms;
  struct alarm_call *alarm_first;
  atomic_int_fast64_t alarm_at;
  /* watchers in memory */
  watcher_table spots, pairs;
  size_t watcher_count, recursive_count;
  struct watcher_fired *fired, *fired_last; /* in the order of their zxids */
  uint64_t listing; /* how often calls have been collected */
  /* events */
  int64_t cursor, trimmed; /* last number read; last one trimmed */
  int64_t fetched;         /* the store's read that found no more */
  bool unread; /* before the next event, look for more in the file */
  event *queue, **queue_end;
  int32_t silent; /* events that it may not see: spent without a call */
  /* waiting */
  struct deliver_calls *calling; /* calls being made, innermost first */
  atomic_uint_fast64_t turn;     /* watchers called and zke_wake()s, ever */
  pthread_cond_t no_calls;       /* the last call has left a closing handle */
  /* of a light one, with the lock's mutex held: its places in the carrier's
   * list (ready_at NULL: not in it) and heap */
  zke *ready_next, **ready_at;
  size_t due_place;
  int64_t due_at; /* monotonic ns */
};

/* A SQLite file in which some methods are ours.  It is the first member of the
 * struct that belongs to the file; SQLite's pMethods point to `own`, and so to
 * that struct. */
typedef struct file_wrapped {
  sqlite3_io_methods own;
  const sqlite3_io_methods *real;
  sqlite3_file *f; /* NULL: not open */
  int unread;      /* SQLite's code of the last failed read: file_read() */
} file_wrapped;

/* The write-ahead log (SQLite's file format, section 4): a header, then frames,
 * each a header and a page. */
enum { WAL_HEAD = 32, WAL_FRAME = 24 };

/* What wal_ knows of the log's file and of the running transaction.  `len`
 * gathered bytes belong at offset `at`.  The transaction has written up to
 * `end`, in this buffer or in the file.  Guarded by the store's lock, and
 * against other processes by SQLite's writers' lock. */
typedef struct wal_log {
  file_wrapped file;
  struct store *s;
  char *bytes;        /* ZKE_LOG_BYTES, or NULL: nothing is ever gathered */
  bool gather;        /* SQLite is known to write the log as required */
  bool strange;       /* … but has since written otherwise: gather no more */
  bool lazy;          /* the COMMIT that is running need not be synced */
  bool head;          /* the last write was the log's header */
  bool written;       /* a commit's frame was written since COMMIT began */
  bool named;         /* the file's name survives a power cut */
  bool trusted;       /* with the writers' lock: no word puts it in doubt */
  int len;            /* bytes gathered */
  int64_t at;         /* where they belong */
  int64_t end;        /* of what the transaction has written; 0: nothing yet */
  int64_t commit;     /* end of its commit frame, below `end` if a savepoint
                     was undone after pages were spilled; or 0 */
  int64_t page;       /* bytes of a page; 0: not known */
  int64_t salt;       /* of the header last written or asked for; 0: none */
  int64_t named_salt; /* the salt in the note for other stores; or 0 */
  unsigned char last[WAL_FRAME]; /* header of the transaction's last frame */
} wal_log;

/* The header of the WAL-index (SQLite's "WAL-mode file format", 2.1).  The -shm
 * begins with two copies of it.  Its numbers are in this machine's byte order.
 */
enum { SHM_WORDS = 12, SHM_SUMMED = 10, SHM_VERSION = 3007000 };

typedef struct shm_head {
  uint32_t version, unused;
  uint32_t changes;         /* goes up by one with each commit */
  unsigned char ready;      /* 1: the rest is set */
  unsigned char big_endian; /* of checksums in the log */
  uint16_t page;            /* bytes of a page; 1: 65536 */
  uint32_t frames, pages;   /* in the log; in the database */
  uint32_t frame_sum[2];    /* checksum of the log's last frame */
  unsigned char salt[8];    /* of the log's frames */
  uint32_t sum[2];          /* checksum of all before */
} shm_head;

_Static_assert(sizeof(shm_head) == SHM_WORDS * sizeof(uint32_t),
               "the WAL-index's header has no gaps");

/* Does this SQLite's WAL-index work as required?  Unknown before the
 * connection's first commit, then KNOWN or STRANGE until the next connection.
 */
enum shm_trust { SHM_UNTRIED, SHM_KNOWN, SHM_STRANGE };

/* What shm_ knows of the WAL-index, of the open read, and of the locks that
 * SQLite has or believes it has.  Guarded by the store's lock.  The header
 * itself is shared with other processes, and read as described at the head of
 * shm_. */
typedef struct shm_index {
  file_wrapped file; /* the database's */
  struct store *s;
  wal_log *log;
  const volatile uint32_t *head; /* of the -shm; NULL: not mapped */
  enum shm_trust trust;
  uint32_t changes; /* in the header, before the transaction */
  int frames;       /* in the header, after it; 0: not what was written */
  unsigned held;    /* read locks that SQLite has */
  bool alone;       /* it has the writers' lock */
  bool copying;     /* and that of a checkpoint, */
  unsigned missed;  /* and waited in vain for these read locks (bits) */
  uint32_t began[SHM_WORDS];  /* the header when the open read began */
  bool lockless;              /* SQLite's read locks are not taken */
  bool fence;                 /* a barrier is a fence: shm_barrier() */
  bool open;                  /* a read that the next one may continue */
  int64_t number;             /* of that read; 0: there was none yet */
  uint32_t latest[SHM_WORDS]; /* of the latest known state */
  int64_t era;                /* rises when a session may have ended */
  int64_t latest_zxid;        /* of that state; 0: not known */
  bool latest_meta;           /* … and store.meta is of that state */
  bool kin;                   /* the COMMIT that is running ends no session */
  unsigned granted;           /* locks that SQLite only believes it has */
  bool serving;               /* the store is open: see shm_recover() */
  int refused;                /* how many marks it was kept from setting */
  int distrust;               /* how many reads must be made under locks */
} shm_index;

/* How far a store can be relied on, from best to worst; see health_. */
enum store_health {
  HEALTH_GOOD,
  HEALTH_IN_DOUBT, /* connected; a part of the log may not be on the disk */
  HEALTH_BROKEN,   /* not connected: the outcome of a COMMIT is unknown */
  HEALTH_REPLACED  /* a file of the store is gone, or is another one now */
};

/* Is a function of the program running, and what may its SQL do? */
enum app_mode { APP_NONE, APP_READS, APP_WRITES };

/* What the sessions of one zke_open() share: the connection, the files, the
 * lock.  Members are grouped by what guards them, like those of struct zke.  A
 * struct in it that is named after a section is for that section only, and for
 * store_, which makes and ends it.  `make check-layers` checks that, and knows
 * the exceptions. */
typedef struct store {
  /* fixed at open */
  zke_os os;
  zke_allocator a;
  zke_log_fn log;
  void *log_context;
  bool memory, readonly;
  bool host;                  /* make the tables in a program's database */
  bool foreign_keys;          /* the program's SQL enforces them */
  bool read_locks, plain_log; /* ZKE_READ_LOCKS, ZKE_PLAIN_LOG */
  int durability, data_limit, cache_kib, notice_limit;
  int64_t busy, container;        /* ns, ms */
  int64_t boot_offset;            /* ns; see host_boottime() */
  bool strange_clock;             /* that offset is not known */
  char *name, *vfs;               /* as given; vfs may be NULL */
  char *file, *dir;               /* database, side directory */
  char *gate, *line, *live;       /* gate file, line file, liveness file */
  char *wal, *shm;                /* SQLite's files next to it */
  sqlite3_vfs vfs_own, *vfs_base; /* see vfs_connect() */
  char vfs_name[40];
  wal_log wal_log; /* the write-ahead log's file, see there */
  shm_index index; /* reads without locks, see there */
  zke_file file_id, gate_id, line_id, live_id, wal_id, shm_id;
  int gate_fd; /* gate and duty bytes; -1 in a read-only store */
  int line_fd; /* places before the gate; -1 in a read-only store */
  int live_fd; /* hints; probes of the lives that are in this file */
  /* the lock */
  pthread_mutex_t m;
  struct {
    struct lock_waiter *first, **end; /* the waiting threads, in order */
    bool taken;
    bool passed; /* the first was woken in vain: its turn is next */
  } lock;
  /* guarded by the lock */
  int64_t deadline; /* of the running call, monotonic ns */
  zke *caller;      /* whose call it is; NULL: it renews no lease */
  int64_t since;    /* boottime ns since when the call has kept the store's
                       sessions from calling in, and their leases are not yet
                       extended for that; INT64_MAX: they need not be */
  sqlite3 *db;
  sqlite3_stmt *statement[SQL_COUNT];
  enum app_mode app; /* what a function of the program may do now */
  bool gated;        /* it has the gate, or is in memory and needs none */
  bool writing;      /* a transaction is open that only its COMMIT may commit */
  struct {
    sqlite3 *db; /* the program's connection that has the gate, or NULL */
    sqlite3_stmt *commit, *rollback; /* its ends, prepared */
    zke *by;                         /* by which handle */
    pthread_key_t key; /* ends it with its thread: zke_sql_begin() */
  } guest;
  enum store_health health; /* changed by health_ alone */
  int wal_pages;            /* after the last commit */
  int wal_limit;            /* checkpoint when it is reached */
  int64_t line_from;        /* the line's first place, as far as known */
  int64_t sweep_began; /* boottime ns, of the running sweep; 0: none runs */
  struct {
    bool duty;             /* we hold the duty byte */
    int64_t next;          /* monotonic ns of the next look by a caller */
    int64_t at;            /* none of our sessions looks for a sweep before */
    int64_t by;            /* the carrier that did last */
    int64_t ended;         /* the last sweep that was completed, or 0 */
    int64_t charged_until; /* boottime ns: detached sessions are charged the
                              time until then; see the head of sweep_ */
    int64_t phase;         /* of its ticks among those of other stores, ns */
    unsigned count;        /* completed sweeps */
  } sweep;
  int64_t recover_at;  /* not before: see dispatch_recover() */
  acl_schemes schemes; /* that this process vouches for */
  struct {
    buf put_off; /* dead sessions, and when to retry: end_put_off() */
    bool owes;   /* the end of a light one could not be written: sweep */
    buf owed;    /* the kept ones among them, and their carriers */
  } sess;
  int64_t lease; /* the shortest that a session has had, ns, or 0 */
  struct {       /* the contents of the meta row, see index.latest_meta */
    int64_t recursive, lost;
    bool history, watched;
  } meta;
  struct node_cached
      *cached;             /* nodes that were read: see node_place(); or NULL */
  struct txn_batch *batch; /* the running one, or NULL */
  int64_t batches;         /* how many there have been */
  zke **sessions;          /* of this store, by id */
  size_t session_count, session_cap;
  size_t handles;           /* these, and handles whose sessions have moved */
  struct carrier *carriers; /* those whose own handle is closed */
  int notices;              /* descriptors that tell of the deaths of others */
  struct {
    int fd;         /* of the file in which lives were last probed; or -1 */
    unsigned shard; /* its shard */
    int64_t inode;  /* … */
    int blind;      /* the last error that gave no answer: life_look() */
  } life;
  struct {
    struct {
      int64_t session;
      int fd;
    } fifos[ZKE_WAKE_CACHE];
    int count;
  } wake;
  /* guarded by the fork mutex: every descriptor of ours, for the child */
  struct {
    int *list;
    int count, cap;
  } fd;
  struct {
    atomic_bool child; /* this is a copy, in a forked child */
    struct store *next;
  } fork;
} store;

/* One transaction that changes the file, from txn_begin() to txn_commit() or
 * txn_abort().  It lies on the stack of the thread that runs it, which holds
 * the store's lock and the gate.  It collects what to tell after the COMMIT, so
 * nobody hears of a change that is rolled back. */
typedef struct txn {
  store *s;
  zke *z;            /* the acting session; NULL for the sweep */
  bool durable;      /* COMMIT must sync; see txn_syncs() */
  bool numbered;     /* a zxid has been used */
  int64_t zxid, now; /* ms since 1970 */
  int64_t zxid_was;  /* of the state in which it began */
  int64_t recursive, recursive_was;
  int64_t lost, lost_was; /* meta.lost */
  bool history;           /* changes must be noted */
  bool watched;           /* there may be a watch, of any session */
  bool kin;               /* no session ends or moves to another carrier */
  bool saved;             /* a batch's operation has a savepoint */
  bool unheard;           /* nobody watches what it is about to change */
  int64_t joins;          /* operations of the batch so far, with this one */
  int64_t parent_by;      /* which of them has filled … */
  buf parent;             /* … this, for the next: see node_cache_parent() */
  int64_t ending;         /* the session being ended, with its nodes; or 0 */
  size_t acl_bytes;       /* encoded by creates; a multi begins at 0 */
  buf wake;               /* sessions to wake after COMMIT */
  buf overflowed; /* parents whose counter is at its end: key hash, used */
  buf ended;      /* sessions whose FIFO is removed after COMMIT */
} txn;

/* A batch: one transaction that is joined by the calls that a function of the
 * program makes; see txn_.  It lies on the stack of the thread that runs the
 * function, which holds the store's lock and the gate throughout.  It collects
 * what to do once it is known whether all of it was committed. */
typedef struct txn_batch {
  txn t;  /* its z is the session of the running operation */
  zke *z; /* the handle of the zke_batch() call */
  int rc; /* what has broken the transaction, or ZKE_OK */
  char why[BASE_SENTENCE];
  buf members; /* each zke * that has joined, once */
  buf watches; /* registrations, for the api_ section */
} txn_batch;

/* The conditions for REQUIRE(), and the functions that make them true:
 * lock_take_m() and lock_drop_m(), gate_enter() and gate_leave(),
 * db_begin_write() and COMMIT or db_end().  MUTEX_HELD is for functions with
 * names that end in _m. */
#define LOCK_HELD(s) ((s)->lock.taken)
#define GATE_HELD(s) ((s)->gated)
#define WRITING(s) ((s)->writing)
#define MUTEX_HELD(s) (pthread_mutex_trylock(&(s)->m) == EBUSY)

/* ======================================================================
 * health_: how far a store can be relied on (private)
 *
 * One state of the store, guarded by its lock:
 *
 *            failed COMMIT, compaction or sync of a found log
 *            (txn_outcome, app_end_guest, compact_vacuum, shm_recover)
 *     GOOD ------------------------------------------------> BROKEN
 *      ^ |                                                   |    ^
 *      | | checkpoint is synced     log is rewritten         |    | the same
 *      | | (recover_log)         (recover_store)            v    | failures
 *      +-|------------------------------------------------ IN_DOUBT
 *        |                                                   ^
 *        +---------------------------------------------------+
 *            failed sync of the log at any other time, as in a
 *            checkpoint (wal_make_durable)
 *
 *     any of these three -- a file was removed or replaced (guard_give_up) -->
 *     REPLACED
 *
 * The first three are steps of one recovery.  A commit that failed with an I/O
 * error may have reached the log or not, and after a failed sync it is unknown
 * what part of the log is on the disk.  The connection is reopened, which shows
 * whether the commit happened.  The log is overwritten with its own contents
 * and synced; if the commit did not happen, its frames in the log are made void
 * (BROKEN to IN_DOUBT).  Then the log is copied into the database file, which
 * is synced.  From then on nothing depends on a log that once could not be
 * synced (IN_DOUBT to GOOD).  A read may run in between, but not a change: what
 * it acknowledges would depend on that log (P2).
 *
 * A checkpoint syncs the log first, and commits that were not synced may be in
 * it.  If that sync fails, the system considers the log's pages written, and
 * the next sync succeeds although a part of the log never reached the disk.  So
 * it is as serious as a failed sync in a COMMIT.  But what the connection knows
 * is right, and it need not be reopened (GOOD to IN_DOUBT).  A checkpoint that
 * fails in the database's file is no reason for doubt: the log still has
 * everything, and the next checkpoint writes the pages again.
 *
 * REPLACED is final.  It ends all sessions of the store, so it no longer
 * matters whether the log was in doubt before, and that is forgotten.
 *
 * What a call does:
 *
 *                    GOOD   IN_DOUBT        BROKEN          REPLACED
 *   a read           works  works           recovers first  ZKE_REPLACED
 *   a change         works  recovers first  recovers first  ZKE_REPLACED
 *   zke_wait()       works  tries recovery  recovers first  tells the end
 *   zke_dispatch()   works  tries recovery  tries recovery  tells the end
 *   zke_close()      works  recovers first  recovers first  writes nothing
 *   a sweep          works  left to others  left to others  none
 *
 * "Recovers first": if recovery fails, the call fails, with ZKE_CONNECTIONLOSS
 * or because others keep the gate; zke_close() continues.  "Tries recovery":
 * without waiting, once a duty tick (dispatch_recover()).  "Tells the end":
 * watchers are called with the session's end.  Calls that look only at the
 * handle (API_LIGHT) work in the first three states.  Those that work in any
 * state (API_ANY_STATE) work in all four.
 * ==================================================================== */

/* Make the store's health worse.  Only health_mend() makes it better. */
static void health_worsen(store *s, enum store_health to) {
  if (s->health < to) s->health = to;
}

/* One step of a recovery has succeeded: note it, unless the store's health has
 * changed since the step began. */
static void health_mend(store *s, enum store_health from,
                        enum store_health to) {
  if (s->health == from) s->health = to;
}

/* Is the store not connected, though recovery may reconnect it? */
static bool health_is_broken(const store *s) {
  return s->health == HEALTH_BROKEN;
}

/* Must a change recover the store first? */
static bool health_needs_recovery(const store *s) {
  return s->health == HEALTH_IN_DOUBT || s->health == HEALTH_BROKEN;
}

/* Was the store given up, since a file of it was removed or replaced? */
static bool health_is_replaced(const store *s) {
  return s->health == HEALTH_REPLACED;
}

/* The result and the sentence of every call on a store that was given up. */
static int health_say_replaced(const store *s) {
  return base_fail(ZKE_REPLACED,
                   "%s or a file beside it was removed or replaced", s->name);
}

/* ======================================================================
 * host_: the host as a store sees it (private)
 *
 * Clocks, the kind of a file, the meaning of a failed call and the program's
 * logger, all through the store's own table of system calls.  Knows only that
 * table, and never fails for a reason that is not in it.
 *
 * Deadlines and ticks are host_now(), monotonic.  Stamps that other processes
 * compare are host_boottime().
 * ==================================================================== */

/* Monotonic ns, the unit of all deadlines and ticks of this process. */
static int64_t host_now(const store *s) {
  return s->os.clock(s->os.context, ZKE_CLOCK_MONOTONIC);
}

/* The host's CLOCK_BOOTTIME, even in a time namespace.  If the namespace's
 * offset is not known (`strange_clock`), it can be compared only with what this
 * store has read from it. */
static int64_t host_boottime(const store *s) {
  return s->os.clock(s->os.context, ZKE_CLOCK_BOOTTIME) - s->boot_offset;
}

/* What a path is.  A program's table may leave out members that it does not
 * know, and the table of an older header lacks some: they are 0. */
static int host_stat(const store *s, const char *path, zke_file *out) {
  *out = (zke_file){.inode = 0};
  return s->os.stat(s->os.context, path, out);
}

/* What an open descriptor of the store is.  After a failure the inode in *out
 * is 0, which no file has. */
static int host_fstat(const store *s, int fd, zke_file *out) {
  *out = (zke_file){.inode = 0};
  return s->os.fstat(s->os.context, fd, out);
}

/* Are these two the same file?  Names cannot tell, since files can be moved. */
static bool host_same_file(const zke_file *a, const zke_file *b) {
  return a->device == b->device && a->inode == b->inode;
}

/* Fail because of a system call: "cannot lock PATH: why".  `what` begins the
 * sentence.  Only errors on which a caller can act have a code of their own: no
 * permission, no room, no memory. */
static int host_fail(int error, const char *what, const char *path) {
  int rc = ZKE_SYSTEMERROR;
  switch (-error) {
    case EACCES:
    case EPERM:
    case EROFS:
      rc = ZKE_READONLY;
      break;
    case ENOSPC:
    case EDQUOT:
      rc = ZKE_FULL;
      break;
    case ENOMEM:
      rc = ZKE_NOMEM;
      break;
    default:
      break;
  }
  return base_fail(rc, "%s %s: %s", what, path, strerror(-error));
}

/* Tell the program's logger, if it has one.  Only what no call's result can say
 * goes here: what was noticed on the way, or outside any call. */
ZKE_PRINTF(3, 4)
static void host_log(store *s, int level, const char *format, ...) {
  char text[512];
  if (!s->log) return;
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  s->log(s->log_context, level, text);
}

/* ======================================================================
 * lock_: the store's lock (private)
 *
 * One thread at a time works on a store, for whichever session: it calls
 * lock_take() with the call's deadline, then lock_drop().  What is "guarded by
 * the lock" in struct store is read and written only in between.
 *
 * The lock is a flag under a mutex, so a thread can give up at its own deadline
 * while another waits for the disk.  The mutex itself is held for a few
 * instructions, never while a file is read or written.  A function with a name
 * that ends in _m must be called with it held.  Two of the program's functions
 * run under it: the clock, to compute a wait in the queue or the next time of a
 * light session; and the allocator, for the alarms of pairs, when one is set
 * for the first time or forgotten, and when the session's end collects them.
 *
 * Order: a thread that comes while the lock is free takes it, although others
 * may be waking up for it.  That saves most thread switches.  Once the first of
 * the queue has been woken in vain (`passed`), no thread passes it any more.
 * So the first of the queue is woken in vain at most once.
 *
 * Callbacks run without the lock.
 * ==================================================================== */

/* A thread in the queue; it lies on that thread's stack while it waits. */
typedef struct lock_waiter {
  struct lock_waiter *next;
  pthread_cond_t come;
} lock_waiter;

/* Until when this thread's calls on a handle wait for others, ms: zke_limit().
 * z is NULL if there is no limit but the busy timeout.  Another thread may
 * close the handle, and the next one may get its address: so the serial number
 * must be the same, too. */
typedef struct lock_bound {
  const zke *z;
  uint64_t serial;
  int64_t until;
} lock_bound;

static _Thread_local lock_bound lock_limit;

/* Does this thread have a limit for the handle? */
static bool lock_is_limited(const zke *z) {
  return lock_limit.z == z && lock_limit.serial == z->serial;
}

/* The deadline of a call that begins now, monotonic ns. */
static int64_t lock_deadline(const zke *z, int64_t now) {
  int64_t at = base_later(now, z->s->busy);
  if (!lock_is_limited(z) || lock_limit.until >= INT64_MAX / ZKE_MS) return at;
  return base_min(at, base_max(lock_limit.until, 0) * ZKE_MS);
}

/* Wait in the queue, with the mutex held, until this thread is the first and
 * the lock is free, or until the deadline.  True: both hold, and since the
 * mutex is held, no thread can come between.
 *
 * No wake-up is lost by a thread that gives up: the first gives up only while
 * the lock is taken, and the thread that drops it wakes whichever is first by
 * then.  A thread that leaves as the first clears `passed`, which was about
 * itself.  The entry leaves the queue before this returns, as it is on the
 * stack. */
static bool lock_queue(store *s, int64_t deadline) {
  lock_waiter own = {.next = NULL};
  os_condition_init(&own.come);
  *s->lock.end = &own;
  s->lock.end = &own.next;
  while (s->lock.taken || s->lock.first != &own) {
    int64_t left = deadline == INT64_MAX ? INT64_MAX : deadline - host_now(s);
    if (left <= 0) break;
    os_condition_wait(&own.come, &s->m, left);
    if (s->lock.taken && s->lock.first == &own) s->lock.passed = true;
  }
  bool got = !s->lock.taken && s->lock.first == &own;
  if (s->lock.first == &own) s->lock.passed = false;
  lock_waiter **at = &s->lock.first;
  while (*at != &own) at = &(*at)->next;
  *at = own.next;
  if (!*at) s->lock.end = at;
  pthread_cond_destroy(&own.come);
  return got;
}

/* Take the lock with the mutex held; false: the deadline came first. */
static bool lock_take_m(store *s, int64_t deadline) {
  REQUIRE(MUTEX_HELD(s));
  bool got = (!s->lock.taken && !s->lock.passed) || lock_queue(s, deadline);
  if (got) s->lock.taken = true;
  return got;
}

/* Drop the lock with the mutex held, and wake the first of the queue.  `caller`
 * and `since` are reset. */
static void lock_drop_m(store *s) {
  REQUIRE(MUTEX_HELD(s));
  REQUIRE(LOCK_HELD(s));
  s->lock.taken = false;
  s->caller = NULL;
  s->since = INT64_MAX;
  if (s->lock.first) pthread_cond_signal(&s->lock.first->come);
}

/* Take the lock until the deadline (monotonic ns); false: not taken. */
static bool lock_take(store *s, int64_t deadline) {
  pthread_mutex_lock(&s->m);
  bool got = lock_take_m(s, deadline);
  pthread_mutex_unlock(&s->m);
  return got;
}

/* Drop the lock. */
static void lock_drop(store *s) {
  pthread_mutex_lock(&s->m);
  lock_drop_m(s);
  pthread_mutex_unlock(&s->m);
}

/* Leave the API: drop the lock and lower the count of calls in one step, since
 * a closing thread may then free everything. */
static void lock_drop_call(store *s, zke *z) {
  pthread_mutex_lock(&s->m);
  lock_drop_m(s);
  atomic_fetch_sub(&z->calls, 1);
  if (atomic_load(&z->closing)) pthread_cond_broadcast(&z->no_calls);
  pthread_mutex_unlock(&s->m);
}

/* The same for a call that does not hold the lock. */
static void lock_uncount_call(store *s, zke *z) {
  pthread_mutex_lock(&s->m);
  atomic_fetch_sub(&z->calls, 1);
  if (atomic_load(&z->closing)) pthread_cond_broadcast(&z->no_calls);
  pthread_mutex_unlock(&s->m);
}

/* With the mutex held: drop the lock, wait for a session's condition, take the
 * lock again.  No signal is lost if the caller decides to wait while it holds
 * the mutex. */
static void lock_wait_m(store *s, pthread_cond_t *c) {
  REQUIRE(MUTEX_HELD(s));
  lock_drop_m(s);
  os_condition_wait(c, &s->m, INT64_MAX);
  lock_take_m(s, INT64_MAX);
}

/* Drop the lock until no call is left inside the handle, then take it again.
 * The count is read under the mutex under which it is lowered, so the last call
 * to leave cannot be missed. */
static void lock_await_calls(store *s, zke *z) {
  REQUIRE(LOCK_HELD(s));
  pthread_mutex_lock(&s->m);
  lock_drop_m(s);
  while (atomic_load(&z->calls)) pthread_cond_wait(&z->no_calls, &s->m);
  lock_take_m(s, INT64_MAX);
  pthread_mutex_unlock(&s->m);
}

/* Wake all threads that wait for the condition; the lock is held. */
static void lock_signal(store *s, pthread_cond_t *c) {
  REQUIRE(LOCK_HELD(s));
  pthread_mutex_lock(&s->m);
  pthread_cond_broadcast(c);
  pthread_mutex_unlock(&s->m);
}

/* ======================================================================
 * fork_: the process's list of stores (private)
 *
 * A forked child has copies of all handles.  It must neither use them nor keep
 * the parent's sessions alive (P9): locks and FIFOs belong to open file
 * descriptions, which the child shares.
 *
 * The child's atfork handler finds the stores through this list, which belongs
 * to the process.  It and every store's list of descriptors are guarded by the
 * fork mutex, which the handlers hold across fork(), so a child always finds
 * both complete.
 *
 * A store leaves the list when it ends.  In a child the parent's stores move to
 * a list of orphans, where store_ finds their SQLite connections.
 * doc/design.md 12.
 * ==================================================================== */

/* Is this a child's copy, which refuses every call?  True also for a thread
 * that forked inside a call, in a callback: it must no longer touch anything,
 * least of all the locks. */
static bool fork_is_copy(const store *s) { return atomic_load(&s->fork.child); }

/* Held by the handlers across fork(), and while a descriptor is made and noted,
 * or closed and forgotten: see fd_. */
static pthread_mutex_t fork_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static store *fork_stores;
static store *fork_orphans; /* in a child: the parent's */
static int fork_error;

static void fork_prepare(void) { pthread_mutex_lock(&fork_mutex); }
static void fork_parent(void) { pthread_mutex_unlock(&fork_mutex); }

/* In the child: refuse every call, and close what keeps the parent's sessions
 * alive.  Closing does not unlock; the parent's copies stay open. */
static void fork_child(void) {
  for (store *s = fork_stores, *next; s; s = next) {
    next = s->fork.next;
    s->fork.next = fork_orphans;
    fork_orphans = s;
    atomic_store(&s->fork.child, true);
    for (int i = 0; i < s->fd.count; i++)
      s->os.close(s->os.context, s->fd.list[i]);
    s->fd.count = 0;
  }
  fork_stores = NULL;
  pthread_mutex_unlock(&fork_mutex);
}

/* Called once in a process, however many handles there are, and again only if
 * it failed; see fork_child(). */
static void fork_register(void) {
  fork_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* Note a new store.  The handlers are registered with the first one and stay:
 * they cannot be removed, and they do nothing for an empty list. */
static int fork_add(store *s) {
  pthread_once(&fork_once, fork_register);
  pthread_mutex_lock(&fork_mutex);
  if (fork_error) fork_register(); /* there may be memory for it now */
  if (fork_error) {
    pthread_mutex_unlock(&fork_mutex);
    return base_nomem();
  }
  s->fork.next = fork_stores;
  fork_stores = s;
  pthread_mutex_unlock(&fork_mutex);
  return ZKE_OK;
}

/* Forget a store that ends, if it is in the list; a child's copy is not. */
static void fork_remove(store *s) {
  pthread_mutex_lock(&fork_mutex);
  for (store **at = &fork_stores; *at; at = &(*at)->fork.next) {
    if (*at == s) {
      *at = s->fork.next;
      break;
    }
  }
  pthread_mutex_unlock(&fork_mutex);
}

/* ======================================================================
 * fd_: descriptors (private)
 *
 * Every descriptor of a store is made, noted and closed here, under the fork
 * mutex.  So a fork in another thread never sees a descriptor that is open but
 * not noted: the child would keep it open, and the parent's session alive.
 * Only SQLite opens other descriptors; a child does not inherit its locks.
 * ==================================================================== */

/* Take the fork mutex with room to note n more descriptors; false if memory ran
 * out, and then it is not taken.  The program's allocator is called without it:
 * a fork() in the allocator would wait for the mutex for ever, and an allocator
 * with a fork handler and a lock of its own could deadlock, too. */
static bool fd_lock_room(store *s, int n) {
  pthread_mutex_lock(&fork_mutex);
  while (s->fd.cap - s->fd.count < n) {
    int cap = s->fd.cap + 16;
    pthread_mutex_unlock(&fork_mutex);
    int *fds = mem_resize(&s->a, NULL, (size_t)cap * sizeof *fds);
    if (!fds) return false;
    pthread_mutex_lock(&fork_mutex);
    int *old = fds; /* not needed if another thread was first */
    if (cap > s->fd.cap) {
      old = s->fd.list;
      if (old) memcpy(fds, old, (size_t)s->fd.count * sizeof *fds);
      s->fd.list = fds;
      s->fd.cap = cap;
    }
    pthread_mutex_unlock(&fork_mutex);
    mem_free(old);
    pthread_mutex_lock(&fork_mutex);
  }
  return true;
}

/* How fd_make() makes a descriptor. */
enum fd_kind { FD_FILE, FD_PIPE, FD_POLLER, FD_TIMER };

/* Ask the system for one descriptor, or for a pipe's two: fds; >= 0 or -errno.
 */
static int fd_ask(store *s, enum fd_kind kind, const char *path, int flags,
                  unsigned mode, int fds[2]) {
  void *c = s->os.context;
  switch (kind) {
    case FD_FILE:
      return fds[0] = s->os.open(c, path, flags, mode);
    case FD_PIPE:
      return s->os.pipe(c, fds);
    case FD_POLLER:
      return fds[0] = s->os.poller(c);
    case FD_TIMER:
      break;
  }
  return fds[0] = s->os.timer(c);
}

/* Make one descriptor (two for a pipe) and note it; 0 or -errno.  Room for the
 * note is made first, so a descriptor is never without its note: no fork()
 * comes between the two, and nothing has to be undone. */
static int fd_make(store *s, enum fd_kind kind, const char *path, int flags,
                   unsigned mode, int fds[2]) {
  int n = kind == FD_PIPE ? 2 : 1;
  if (!fd_lock_room(s, n)) return -ENOMEM;
  int rc = fd_ask(s, kind, path, flags, mode, fds);
  for (int i = 0; rc >= 0 && i < n; i++) s->fd.list[s->fd.count++] = fds[i];
  pthread_mutex_unlock(&fork_mutex);
  return rc < 0 ? rc : 0;
}

/* Open a file; the descriptor or -errno. */
static int fd_open(store *s, const char *path, int flags, unsigned mode) {
  int fd[2] = {-1, -1};
  int rc = fd_make(s, FD_FILE, path, flags, mode, fd);
  return rc < 0 ? rc : fd[0];
}

/* Close a descriptor and forget it; -1 is fine. */
static void fd_close(store *s, int *fd) {
  if (*fd < 0) return;
  pthread_mutex_lock(&fork_mutex);
  /* fd_make() has noted it, probably a moment ago */
  for (int i = s->fd.count - 1; ALWAYS(i >= 0); i--) {
    if (s->fd.list[i] == *fd) {
      s->fd.list[i] = s->fd.list[--s->fd.count];
      break;
    }
  }
  s->os.close(s->os.context, *fd);
  pthread_mutex_unlock(&fork_mutex);
  *fd = -1;
}

/* ======================================================================
 * sql_: statements (private)
 *
 * SQLite's errors as results of the API, prepared statements, parameters in and
 * rows out.  Knows nothing of what the tables mean.
 *
 * A statement is defined by SQL_STATEMENT() before the function that uses it,
 * and prepared at its first use on a connection.  A statement that has returned
 * a row holds a read of the database.  So a function that got a row from
 * sql_step() resets the statement before the call returns.  After an error, or
 * without a row, it is already reset.
 *
 * Start reading at SQL_STATEMENT() and sql_step().
 * ==================================================================== */

/* The result for a failed SQLite call.  Errors on which a caller can act have a
 * code of their own. */
static int sql_code(int sqlite_rc) {
  /* app_on_commit(): SQLite undid the transaction because memory ran out */
  if (sqlite_rc == SQLITE_CONSTRAINT_COMMITHOOK) return ZKE_NOMEM;
  switch (sqlite_rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: /* a writer was stopped while it published a commit */
      return ZKE_OPERATIONTIMEOUT;
    case SQLITE_NOMEM:
      return ZKE_NOMEM;
    case SQLITE_FULL:
      return ZKE_FULL;
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return ZKE_READONLY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ZKE_CORRUPT;
    case SQLITE_CANTOPEN:
      return ZKE_CANTOPEN;
    default:
      return ZKE_SYSTEMERROR;
  }
}

/* Turn a failed SQLite call into a result with its sentence: what was being
 * done, and SQLite's text. */
static int sql_error(store *s, int sqlite_rc, const char *doing) {
  int rc = sql_code(sqlite_rc);
  int error = s->db && rc == ZKE_CANTOPEN ? sqlite3_system_errno(s->db) : 0;
  return base_fail(rc, "%s: %s: %s%s%s (SQLite %d)", s->name, doing,
                   s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(sqlite_rc),
                   error ? ": " : "", error ? strerror(error) : "", sqlite_rc);
}

/* A statement: its index in the store's list, and its text. */
typedef struct sql_text {
  int id;
  const char *text;
} sql_text;

/* Define the statement SQL_name, before the function that binds its parameters
 * in the order of the text.  Each parameter is given by its number and, for the
 * reader, by its name.  A debug build compares the two, so a test that runs the
 * statement finds parameters that were mixed up.  If all parameters are
 * integers in an array, they are ?1, ?2 and so on. */
#define SQL_STATEMENT(name, text) \
  static const sql_text SQL_##name[] = {{SQL_ID_##name, text}}

/* How many rows one statement reads, or removes, at most. */
#define SQL_BATCH "64"
#define SQL_REMOVAL "128"

/* The statement, prepared at its first use; NULL with *rc set. */
static sqlite3_stmt *sql_statement(store *s, const sql_text *sql, int *rc) {
  sqlite3_stmt *st = s->statement[sql->id];
  *rc = ZKE_OK;
  if (st) return st;
  int sqlite_rc = sqlite3_prepare_v3(s->db, sql->text, -1,
                                     SQLITE_PREPARE_PERSISTENT, &st, NULL);
  if (!st) *rc = sql_error(s, sqlite_rc, "preparing");
  s->statement[sql->id] = st;
  return st;
}

/* In a debug build: does the parameter have this name (NULL: not checked)? */
static void sql_check_name(sqlite3_stmt *st, int at, const char *name) {
#if defined(ZKE_DEBUG) && !defined(ZKE_COVERAGE)
  const char *is = sqlite3_bind_parameter_name(st, at);
  base_believe(!name || (is && strcmp(is, name) == 0), name, __LINE__);
#else
  (void)st, (void)at, (void)name;
#endif
}

/* SQLite's error for a parameter that it refused, or SQLITE_OK.  SQLite then
 * binds NULL, and a node without an ACL would be open to all; so the statement
 * is not run (sql_step). */
static _Thread_local int sql_unbound;

/* Bind a number. */
static void sql_bind_int(sqlite3_stmt *st, int at, const char *name,
                         int64_t n) {
  sql_check_name(st, at, name);
  sqlite3_bind_int64(st, at, n);
}

/* Bind a text to parameter `at`; debug builds compare the name.  SQLITE_STATIC:
 * the caller's bytes are not copied but read while the statement runs, so they
 * must stay until sql_run() or the last sql_step().  NULL binds NULL. */
static void sql_bind_text(sqlite3_stmt *st, int at, const char *name,
                          const char *text, int len) {
  sql_check_name(st, at, name);
  int rc = sqlite3_bind_text(st, at, text, len, SQLITE_STATIC);
  if (rc != SQLITE_OK) sql_unbound = rc;
}

/* The same for bytes that are not a text. */
static void sql_bind_blob(sqlite3_stmt *st, int at, const char *name,
                          const void *data, int len) {
  sql_check_name(st, at, name);
  int rc = sqlite3_bind_blob(st, at, data, len, SQLITE_STATIC);
  if (rc != SQLITE_OK) sql_unbound = rc;
}

/* Bind a node's key to parameters `at` and at + 1. */
static void sql_bind_key(sqlite3_stmt *st, int at, path_key k) {
  sql_bind_text(st, at, ":parent", k.parent, k.parent_len);
  sql_bind_text(st, at + 1, ":name", k.name, k.name_len);
}

/* Do not run a statement with a parameter that was refused. */
static int sql_refuse(const store *s, sqlite3_stmt *st) {
  int rc = sql_unbound;
  sql_unbound = SQLITE_OK;
  sqlite3_reset(st);
  if (rc != SQLITE_TOOBIG) return base_nomem();
  return base_fail(ZKE_BADARGUMENTS, "%s: a value is longer than SQLite allows",
                   s->name);
}

/* Step to a row: ZKE_OK, and *row tells whether there is one.  Without a row,
 * or on error, the statement is reset; with one, the caller resets it. */
static int sql_step(store *s, sqlite3_stmt *st, bool *row) {
  *row = false;
  if (sql_unbound != SQLITE_OK) return sql_refuse(s, st);
  int rc = sqlite3_step(st);
  *row = rc == SQLITE_ROW;
  if (*row) return ZKE_OK;
  sqlite3_reset(st);
  return rc == SQLITE_DONE ? ZKE_OK : sql_error(s, rc, "reading or writing");
}

/* Run a bound statement that gives no row. */
static int sql_run(store *s, sqlite3_stmt *st) {
  bool row;
  return sql_step(s, st, &row);
}

/* A text of the statement's current row.  NULL: the column is NULL, or SQLite
 * had no memory for the text, and then *whole is cleared.  The column's type
 * does not distinguish the two: without memory SQLite makes the value NULL. */
static const char *sql_read_text(sqlite3_stmt *st, int column, bool *whole) {
  const char *text = (const char *)sqlite3_column_text(st, column);
  if (!text && sqlite3_errcode(sqlite3_db_handle(st)) == SQLITE_NOMEM)
    *whole = false;
  return text;
}

/* Run a statement without parameters. */
static int sql_do(store *s, const sql_text *sql) {
  int rc;
  sqlite3_stmt *st = sql_statement(s, sql, &rc);
  return st ? sql_run(s, st) : rc;
}

/* Run a statement with only integer parameters: ?1, ?2 and so on. */
static int sql_do_ints(store *s, const sql_text *sql, int count,
                       const int64_t *values) {
  int rc;
  sqlite3_stmt *st = sql_statement(s, sql, &rc);
  if (!st) return rc;
  for (int i = 0; i < count; i++) sql_bind_int(st, i + 1, NULL, values[i]);
  return sql_run(s, st);
}

/* Run a statement with one parameter, a number. */
static int sql_do_int(store *s, const sql_text *sql, int64_t value) {
  return sql_do_ints(s, sql, 1, &value);
}

/* Fetch one row's columns as integers (NULL: 0).  The parameter is ?1, if the
 * statement has one.  Only for statements that always return a row, or if the
 * row must exist: ZKE_CORRUPT without one. */
static int sql_fetch_ints(store *s, const sql_text *sql, int64_t parameter,
                          int count, int64_t *out) {
  int rc;
  bool row;
  sqlite3_stmt *st = sql_statement(s, sql, &rc);
  if (!st) return rc;
  if (sqlite3_bind_parameter_count(st)) sql_bind_int(st, 1, NULL, parameter);
  rc = sql_step(s, st, &row);
  if (rc != ZKE_OK) return rc;
  if (!row) return base_fail(ZKE_CORRUPT, "%s: a row is missing", s->name);
  for (int i = 0; i < count; i++) out[i] = sqlite3_column_int64(st, i);
  sqlite3_reset(st);
  return ZKE_OK;
}

/* Collect the rows of a query for parent and name as paths, each with its NUL;
 * *count is set to how many. */
static int sql_collect_paths(store *s, sqlite3_stmt *st, buf *out, int *count) {
  for (*count = 0;; ++*count) {
    bool row;
    int rc = sql_step(s, st, &row);
    if (rc == ZKE_OK && out->failed) rc = base_nomem();
    if (row && rc != ZKE_OK) sqlite3_reset(st);
    if (rc != ZKE_OK || !row) return rc;
    const char *parent = (const char *)sqlite3_column_text(st, 0);
    const char *name = (const char *)sqlite3_column_text(st, 1);
    path_key k = {parent ? parent : "", name ? name : "",
                  sqlite3_column_bytes(st, 0), sqlite3_column_bytes(st, 1)};
    path_join(out, k);
    buf_add(out, "", 1);
  }
}

/* Collect the first column of a query's rows. */
static int sql_collect_ints(store *s, sqlite3_stmt *st, buf *out) {
  int rc;
  bool row = true;
  do {
    rc = sql_step(s, st, &row);
    if (rc == ZKE_OK && row) buf_add_int(out, sqlite3_column_int64(st, 0));
  } while (rc == ZKE_OK && row);
  return rc == ZKE_OK && out->failed ? base_nomem() : rc;
}

/* Run SQL that is needed once, such as a pragma; `doing` names it. */
static int sql_exec(store *s, const char *sql, const char *doing) {
  int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? ZKE_OK : sql_error(s, rc, doing);
}

/* Choose whether closing the connection leaves the log as it is.  Otherwise
 * SQLite copies it into the database and deletes it, if nobody else has it
 * open. */
static void sql_keep_log(sqlite3 *db, bool keep) {
  int persist = keep;
  sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, persist, (int *)NULL);
  sqlite3_file_control(db, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
}

/* SQLite cannot get a lock, and asks what to do.  Until the running call's
 * deadline, sleep for a moment and tell SQLite to retry; a deadline of 0 never
 * waits.  The first sleeps are short: most locks are held for less than a
 * transaction. */
static int sql_busy(void *arg, int tries) {
  store *s = arg;
  int64_t left = s->deadline - host_now(s);
  if (left <= 0) return 0;
  int64_t pause = tries < 10 ? 50000 : ZKE_MS;
  s->os.sleep(s->os.context, base_min(left, pause));
  return 1;
}

/* ======================================================================
 * file_: files of SQLite with methods of ours (private)
 *
 * SQLite calls an open file through a table of methods.  Here a file gets its
 * own table, a copy of the VFS's, in which wal_ and shm_ replace some methods
 * and leave the others.  The struct that belongs to a file begins with the
 * table, so a method finds it by file_owner().
 *
 * The copy has only as many methods as the VFS's table says it has (iVersion).
 * ==================================================================== */

/* The struct to which a file's replaced methods belong. */
static void *file_owner(sqlite3_file *f) {
  return (void *)(uintptr_t)f->pMethods;
}

/* Read, and note a failure: SQLite's quick_check reports a page that it could
 * not read as damaged.  The end of the file is not a failure. */
static int file_read(sqlite3_file *f, void *to, int len, sqlite3_int64 at) {
  file_wrapped *d = file_owner(f);
  int rc = d->real->xRead(f, to, len, at);
  if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ) d->unread = rc;
  return rc;
}

/* Give an open file its own table, at first with the methods that it had.  `d`
 * is the first member of the struct that belongs to the file, and lives until
 * file_close(). */
static void file_wrap(file_wrapped *d, sqlite3_file *f) {
  static const size_t sizes[] = {offsetof(sqlite3_io_methods, xShmMap),
                                 offsetof(sqlite3_io_methods, xFetch),
                                 sizeof(sqlite3_io_methods)};
  const sqlite3_io_methods *real = f->pMethods;
  int version = real->iVersion < 3 ? real->iVersion : 3;
  memset(d, 0, sizeof *d);
  memcpy(&d->own, real, sizes[version - 1]);
  d->own.iVersion = version;
  d->own.xRead = file_read;
  d->real = real;
  d->f = f;
  f->pMethods = &d->own;
}

/* Close the file by the method that it had. */
static int file_close(file_wrapped *d) {
  sqlite3_file *f = d->f;
  d->f = NULL;
  return d->real->xClose(f);
}

/* ======================================================================
 * wal_: the write-ahead log's file (private)
 *
 * The write-ahead log has a header and then frames; a frame is a header of 24
 * bytes and a page.  SQLite writes the two in two calls.  Here consecutive
 * writes are gathered, so most transactions are one call of write().  That
 * saves a seventh of the processor time of an ephemeral create.
 *
 * Why nobody can see the difference.  Only the WAL-index leads another process
 * to a frame, and SQLite writes that after the last frame of a commit.  So
 * gathered bytes must be written before SQLite does so:
 *
 * - The call that writes the end of a commit's last page writes everything that
 *   is gathered.  It can still report an error, and then nothing was committed.
 * - A write that does not continue the last one is not gathered: first the
 *   gathered bytes are written, then this write.  SQLite goes back to correct
 *   checksums, to overwrite a page that it has spilled, and to continue after a
 *   savepoint that was undone.
 * - A read of gathered bytes is answered from the buffer.  Before the file is
 *   synced, truncated or measured, everything is written.
 * - When the writers' lock is dropped, gathered bytes are forgotten.  They were
 *   rolled back, and the next frames at that place may be another process's.
 *
 * So no other process ever knows of gathered bytes, and a process that dies
 * before they are written has not committed.
 *
 * What is relied on.  The format is SQLite's published one; the order of its
 * calls is not.  So gathering starts only after a commit was seen to be written
 * in this way (shm_on_commit), and stops for good after an unexpected write
 * (`strange`): one that crosses the border of a header or page, leaves a gap,
 * or belongs to a log of another version.  Nothing is gathered over a VFS that
 * is not SQLite's own: a VFS that encrypts pages, or adds checksums to them,
 * recognises a page by the length of the write.
 *
 * Start reading at wal_write().
 * ==================================================================== */

enum { WAL_MAGIC = 0x377f0682, WAL_VERSION = 3007000, WAL_SALT_AT = 16 };

/* The offset within its frame of a byte of the log. */
static int64_t wal_offset(const wal_log *l, int64_t at) {
  return (at - WAL_HEAD) % (WAL_FRAME + l->page);
}

/* Is a commit's frame complete?  Its header has the database's size. */
static bool wal_is_commit(const wal_log *l) {
  return l->end > WAL_HEAD && wal_offset(l, l->end) == 0 &&
         base_big_endian(l->last + 4) != 0;
}

/* Does the file have these bytes?  True if it cannot be read: it may. */
static bool wal_is_there(const wal_log *l, const unsigned char *data, int len,
                         int64_t at) {
  unsigned char there[512];
  int n = 0;
  for (int i = 0; i < len; i += n) {
    n = len - i < (int)sizeof there ? len - i : (int)sizeof there;
    int rc = l->file.real->xRead(l->file.f, there, n, at + i);
    if (rc == SQLITE_IOERR_SHORT_READ) return false;
    if (rc != SQLITE_OK) return true;
    if (memcmp(there, data + i, (size_t)n) != 0) return false;
  }
  return true;
}

/* Write to the file.  A full disk is SQLITE_FULL, for which a transaction is
 * undone.  A user quota that is used up is an I/O error to SQLite; it is made
 * SQLITE_FULL here, or a COMMIT's outcome would seem unknown.  The outcome is
 * unknown if the write failed but the commit's frame is completely there, as is
 * possible over an older frame with the same end.  Then a power cut may leave
 * this commit, but not the later one that replaced it. */
static int wal_put(wal_log *l, const void *data, int len, int64_t at) {
  const sqlite3_io_methods *real = l->file.real;
  int error = 0;
  int rc = real->xWrite(l->file.f, data, len, at);
  bool ends =
      l->strange || wal_is_commit(l) || (l->commit && at + len >= l->commit);
  if (ends && (rc == SQLITE_OK || wal_is_there(l, data, len, at)))
    l->written = true;
  if (rc != SQLITE_IOERR_WRITE) return rc;
  real->xFileControl(l->file.f, SQLITE_FCNTL_LAST_ERRNO, &error);
  return error == EDQUOT ? SQLITE_FULL : rc;
}

/* Write what is gathered.  If that fails, the bytes are dropped: the
 * transaction cannot commit any more, and SQLite writes them again from `at` or
 * rolls back. */
static int wal_flush(wal_log *l) {
  int len = l->len;
  l->len = 0;
  if (len == 0) return SQLITE_OK;
  int rc = wal_put(l, l->bytes, len, l->at);
  if (rc != SQLITE_OK) l->end = l->at; /* it is written again, or not at all */
  return rc;
}

/* The writers' lock is being dropped: bytes that are not written never will be.
 */
static void wal_forget(wal_log *l) {
  l->len = 0;
  l->end = l->commit = 0;
  l->trusted = false;
}

/* Learn the log's version and page size from its header, which is being written
 * now or was written by another process.  If the header is not known, nothing
 * is gathered. */
static void wal_learn(wal_log *l, const void *data, int64_t at) {
  unsigned char head[WAL_HEAD];
  int rc = SQLITE_OK;
  if (at == 0)
    memcpy(head, data, sizeof head);
  else
    rc = l->file.real->xRead(l->file.f, head, sizeof head, 0);
  if (rc == SQLITE_OK && (base_big_endian(head) & ~1u) == WAL_MAGIC &&
      base_big_endian(head + 4) == WAL_VERSION)
    l->page = base_big_endian(head + 8);
  else
    l->strange = true;
}

/* Is this a write that SQLite is known to make?  That is, the log's header, or
 * all or a part of a frame's header or page: after what the transaction has
 * written, within it, or as its first write, at the beginning of a frame. */
static bool wal_expects(const wal_log *l, int len, int64_t at) {
  if (at < WAL_HEAD) return at == 0 && len == WAL_HEAD && l->end == 0;
  int64_t in = wal_offset(l, at), end = WAL_FRAME; /* of the frame's header */
  if (in >= WAL_FRAME) end += l->page;
  if (in + len > end) return false;
  if (l->end == 0) return in == 0;
  return at == l->end || at + len <= l->end;
}

/* Note how far the transaction has come, and keep the header of its last frame
 * for wal_is_commit().  It may be written in pieces and more than once. */
static void wal_note(wal_log *l, const void *data, int len, int64_t at) {
  l->end = base_max(l->end, at + len);
  int64_t in = wal_offset(l, at);
  bool last = at >= WAL_HEAD && at - in + WAL_FRAME + l->page >= l->end;
  if (last && in < WAL_FRAME) memcpy(l->last + in, data, (size_t)len);
  bool head = at >= WAL_HEAD && in == 0 && len == WAL_FRAME;
  if (head && base_big_endian((const unsigned char *)data + 4) != 0)
    l->commit = at + WAL_FRAME + l->page;
}

/* SQLite writes to the log.  Learns the log's page size if it is not known,
 * checks that SQLite writes as expected, and gathers the bytes or writes them.
 * The last write of a commit goes out with all that is gathered before it. */
static int wal_write(sqlite3_file *f, const void *data, int len,
                     sqlite3_int64 at) {
  wal_log *l = file_owner(f);
  l->head = at == 0 && len == WAL_HEAD;
  if (l->head)
    memcpy(&l->salt, (const char *)data + WAL_SALT_AT, sizeof l->salt);
  if (!l->strange && (l->page == 0 || l->head)) wal_learn(l, data, at);
  if (!l->strange && !wal_expects(l, len, at)) l->strange = true;
  bool behind = l->end == 0 || at == l->end;
  bool gather = l->gather && !l->strange && behind && len <= ZKE_LOG_BYTES;
  bool room = gather && len <= ZKE_LOG_BYTES - l->len;
  int rc = room ? SQLITE_OK : wal_flush(l);
  if (rc != SQLITE_OK) return rc;
  if (!gather) {
    if (!l->strange) wal_note(l, data, len, at);
    return wal_put(l, data, len, at);
  }
  if (l->len == 0) l->at = at;
  memcpy(l->bytes + l->len, data, (size_t)len);
  l->len += len;
  wal_note(l, data, len, at);
  return wal_is_commit(l) ? wal_flush(l) : SQLITE_OK;
}

/* Close the log. */
static int wal_close(sqlite3_file *f) {
  wal_log *l = file_owner(f);
  mem_free(l->bytes); /* gathered bytes were never committed */
  l->bytes = NULL;
  l->gather = false;
  wal_forget(l);
  return file_close(&l->file);
}

/* SQLite reads the log.  A transaction reads its own writes if the cache was
 * too small.  If only a part of the bytes is in the buffer, the buffer is
 * written first. */
static int wal_read(sqlite3_file *f, void *to, int len, sqlite3_int64 at) {
  wal_log *l = file_owner(f);
  bool apart = at + len <= l->at || at >= l->at + l->len;
  if (!apart && at >= l->at && at + len <= l->at + l->len) {
    memcpy(to, l->bytes + (at - l->at), (size_t)len);
    return SQLITE_OK;
  }
  int rc = apart ? SQLITE_OK : wal_flush(l);
  return rc ? rc : file_read(f, to, len, at);
}

/* SQLite truncates the log after a checkpoint.  A reader without locks in
 * another process must not see the shorter file together with the old header of
 * the WAL-index, hence the fence: the header was written before. */
static int wal_truncate(sqlite3_file *f, sqlite3_int64 size) {
  wal_log *l = file_owner(f);
  int rc = wal_flush(l);
  atomic_thread_fence(memory_order_seq_cst); /* after the index's header */
  return rc ? rc : l->file.real->xTruncate(f, size);
}

/* Offset in the liveness file of the salts of the log whose name is durable. */
enum { WAL_NAME_AT = 104 };

/* Sync the database's directory, which must be readable for that.  A file
 * system that cannot sync directories returns EINVAL. */
static int wal_sync_directory(store *s) {
  const char *slash = strrchr(s->file, '/');
  char *dir = mem_copy(&s->a, s->file, slash ? (size_t)(slash - s->file) : 0);
  if (!dir) return base_nomem();
  const char *path = dir[0] ? dir : "/";
  int fd = fd_open(s, slash ? path : ".", O_RDONLY | O_DIRECTORY, 0);
  int rc = fd < 0 ? fd : s->os.fsync(s->os.context, fd);
  fd_close(s, &fd);
  bool done = rc >= 0 || rc == -EINVAL;
  rc = done ? ZKE_OK : host_fail(rc, "cannot sync directory", path);
  mem_free(dir);
  return rc;
}

/* If the log's name is known to be durable and its header has changed, leave a
 * note for other stores. */
static void wal_note_name(store *s) {
  int64_t salt = s->wal_log.salt;
  if (!s->wal_log.named || s->wal_log.named_salt == salt) return;
  s->os.pwrite(s->os.context, s->live_fd, &salt, sizeof salt, WAL_NAME_AT);
  s->wal_log.named_salt = salt;
}

/* Make the log's name durable, once per connection, or a power cut could remove
 * the log with everything in it.
 *
 * Another store may have done it, and left a note with the salts of that log.
 * A new file has other salts, whoever creates it.  If a log restarts in the
 * same file it gets other salts, too, and the store that restarts it leaves a
 * new note.  So a note that matches is about this file. */
static int wal_make_name(store *s) {
  wal_log *l = &s->wal_log;
  unsigned char head[WAL_HEAD];
  int64_t named = 0;
  if (l->named || s->memory) return ZKE_OK;
  l->salt = 0; /* stays 0 if the log has no header, or an unknown one */
  if (l->file.f && wal_read(l->file.f, head, sizeof head, 0) == SQLITE_OK &&
      (base_big_endian(head) & ~1u) == WAL_MAGIC)
    memcpy(&l->salt, head + WAL_SALT_AT, sizeof l->salt);
  int64_t salt = l->salt;
  s->os.pread(s->os.context, s->live_fd, &named, sizeof named, WAL_NAME_AT);
  int rc = salt && salt == named ? ZKE_OK : wal_sync_directory(s);
  l->named = rc == ZKE_OK;
  wal_note_name(s);
  return rc;
}

/* Offset in the liveness file of the word that the log is in doubt; 0: it is
 * not. */
enum { WAL_DOUBT_AT = 0 };

/* Set or clear the word that a sync of the log has failed, or that its process
 * may die during one.  While it is set, nobody relies on the log before it is
 * rewritten.  Needs SQLite's writers' lock or the gate. */
static void wal_note_doubt(store *s, bool doubt) {
  REQUIRE(s->memory || s->readonly || GATE_HELD(s) || s->index.alone);
  int64_t word = doubt;
  if (!s->memory && !s->readonly)
    s->os.pwrite(s->os.context, s->live_fd, &word, sizeof word, WAL_DOUBT_AT);
}

/* Is there such a word, or can it not be read? */
static bool wal_read_doubt(const store *s) {
  int64_t word = 0;
  if (s->memory) return false;
  int64_t n = s->live_fd < 0 ? -1
                             : s->os.pread(s->os.context, s->live_fd, &word,
                                           sizeof word, WAL_DOUBT_AT);
  return n != (int64_t)sizeof word || word != 0;
}

/* Make the log's file and its name durable.  If the directory cannot be synced
 * this continues, as SQLite does; a durable COMMIT checks the name before.
 *
 * After a failed sync no change may be acknowledged by this log (health_).  The
 * system then considers bytes written that are not on the disk, and does not
 * report the error if the file is opened later.  So the word is written before
 * the sync, in case the process dies before it can react, and it stays if the
 * sync fails.  A sync does not clear a word that was there before
 * (db_trust_log()). */
static int wal_make_durable(wal_log *l, int flags) {
  bool before = !l->trusted && wal_read_doubt(l->s);
  wal_make_name(l->s);
  if (!before) wal_note_doubt(l->s, true);
  int rc = l->file.real->xSync(l->file.f, flags);
  l->trusted = l->trusted && rc == SQLITE_OK;
  if (rc != SQLITE_OK) health_worsen(l->s, HEALTH_IN_DOUBT);
  if (rc == SQLITE_OK && !before) wal_note_doubt(l->s, false);
  return rc;
}

/* A sync covers what was written before it, so gathered bytes are written
 * first.  SQLite asks for a sync at each COMMIT.  It is left out if the changes
 * need not be durable (txn_syncs()).  The sync of a new header, for which
 * SQLite asks at any level, is always made. */
static int wal_sync(sqlite3_file *f, int flags) {
  wal_log *l = file_owner(f);
  int rc = wal_flush(l);
  if (rc != SQLITE_OK || (l->lazy && !l->head)) return rc;
  return wal_make_durable(l, flags);
}

/* Overwrite a piece of the log with its own bytes. */
static int wal_renew_piece(const wal_log *l, void *to, int64_t len,
                           int64_t at) {
  const sqlite3_io_methods *real = l->file.real;
  int rc = real->xRead(l->file.f, to, (int)len, at);
  return rc ? rc : real->xWrite(l->file.f, to, (int)len, at);
}

/* Overwrite the log with its own bytes, in the sizes that SQLite writes, by
 * which some VFSs recognise pages.  After a failed sync the system considers
 * bytes written that are not on the disk, and would never write them.  After
 * this it writes all of them at the next sync.  The bytes are the same, so
 * readers see no difference, and a power cut in between does no harm.
 *
 * After `end` the log may have a commit that failed.  Nobody sees it, and the
 * next commit takes its place; but if all processes died before, SQLite would
 * find it and take it as made.  So its frames are made void.  One frame is not
 * enough: the next commit may begin with the same page, and if a power cut left
 * only that new frame, the old ones after it would be valid again.
 *
 * What is before them is synced first.  A process that died while it restarted
 * the log may have left a header that is not on the disk.  The disk then still
 * has the older log, which was copied into the database; its frames are the
 * ones that are made void.  If a power cut left its header and the first of
 * those frames, SQLite would take them for newer than the database.
 *
 * Requires SQLite's writers' lock, before the transaction has written. */
static int wal_renew(const wal_log *l, int64_t end) {
  REQUIRE(l->s->index.alone);
  static const char none[WAL_FRAME];
  unsigned char head[WAL_HEAD];
  sqlite3_int64 size = 0;
  if (!l->file.f) return SQLITE_OK;
  int rc = l->file.real->xFileSize(l->file.f, &size);
  if (rc != SQLITE_OK || size < WAL_HEAD) return rc;
  rc = wal_renew_piece(l, head, WAL_HEAD, 0);
  int64_t page = base_big_endian(head + 8);
  bool known = (base_big_endian(head) & ~1u) == WAL_MAGIC && page <= 65536;
  if (rc != SQLITE_OK || !known) return rc; /* it has no frames */
  char *to = mem_resize(&l->s->a, NULL, (size_t)page);
  if (!to) return SQLITE_NOMEM;
  int64_t frame = WAL_FRAME + page, at = WAL_HEAD;
  for (; at < end && at + frame <= size && rc == SQLITE_OK; at += frame) {
    rc = wal_renew_piece(l, to, WAL_FRAME, at);
    if (rc == SQLITE_OK) rc = wal_renew_piece(l, to, page, at + WAL_FRAME);
  }
  if (rc == SQLITE_OK && at + frame <= size)
    rc = l->file.real->xSync(l->file.f, SQLITE_SYNC_NORMAL);
  for (; at + frame <= size && rc == SQLITE_OK; at += frame)
    rc = l->file.real->xWrite(l->file.f, none, WAL_FRAME, at);
  mem_free(to);
  return rc;
}

/* The file's size as SQLite expects it, including the gathered bytes. */
static int wal_size(sqlite3_file *f, sqlite3_int64 *out) {
  wal_log *l = file_owner(f);
  int rc = wal_flush(l);
  return rc ? rc : l->file.real->xFileSize(f, out);
}

/* The log was opened: give it the methods above.  Without memory for the
 * buffer, or if nothing may be gathered, they pass everything on and only
 * watch. */
static void wal_wrap(store *s, sqlite3_file *f) {
  wal_log *l = &s->wal_log;
  memset(l, 0, sizeof *l); /* even its name may belong to another file by now */
  l->s = s;
  file_wrap(&l->file, f);
  /* SQLite's own VFSs for Unix are named so; they write what they are given */
  bool own_vfs = strncmp(s->vfs_base->zName, "unix", 4) == 0;
  if (!s->readonly && !s->plain_log && own_vfs)
    l->bytes = mem_resize(&s->a, NULL, ZKE_LOG_BYTES);
  l->file.own.xClose = wal_close;
  l->file.own.xRead = wal_read;
  l->file.own.xWrite = wal_write;
  l->file.own.xTruncate = wal_truncate;
  l->file.own.xSync = wal_sync;
  l->file.own.xFileSize = wal_size;
}

/* ======================================================================
 * shm_: the WAL-index: reading without locks (private)
 *
 * The WAL-index, in the -shm file, tells readers where the pages of the log
 * are.  Its header tells which state of the database is current.  This section
 * watches how SQLite uses it, and lets SQLite read without the locks that it
 * would take.
 *
 * What the locks cost and do.  SQLite brackets a read with two kernel locks, a
 * third of the cost of a get, and sets a mark with two more if somebody has
 * written.  They keep off processes that would overwrite what is being read: a
 * checkpoint, and the writer that restarts the log after one.
 *
 * Why a read without them is right.  A process may die at any instant, and its
 * locks with it.  So at any instant the state in the header must be there for
 * the process that reads next.  Hence
 *
 *   1. a commit is in the log before the header tells of it;
 *   2. only pages of finished commits are copied into the database;
 *   3. before a frame of the log is overwritten, the header has changed;
 *   4. the header's checksums, salt and count of changes do not come back
 *      (doc/design.md 8 names the one exception).
 *
 * So a reader that looks at the header, reads, and finds the header unchanged
 * has read one committed state, the current one.  If the header has changed,
 * the result of the read, rows or an error, is discarded, and the read is
 * repeated under SQLite's locks; so are the next SHM_DISTRUST reads.  (Since
 * SQLite 3.34, recovery by another process rebuilds the WAL-index while there
 * are readers.)
 *
 * What else follows.  Nobody waits for a reader without locks.  So its
 * transaction stays open, and the next read continues it if the header is still
 * the same, at half the cost.  Before anything else is done with the
 * connection, db_end() ends it.  A writing transaction needs no read lock
 * either, once it has begun: SQLite compares the header when it has the
 * writers' lock, and meanwhile nobody else can commit or restart the log.
 *
 * What is relied on.  The header's format and place are verified before they
 * are used: a connection makes its first commit under SQLite's locks, and reads
 * without locks only if that commit has changed the header as expected
 * (shm_on_commit).  A header of another version, at any time, means SQLite's
 * locks.
 *
 * Start reading at shm_lock(), by which SQLite asks for its locks, then
 * shm_grant() and shm_is_current().
 * ==================================================================== */

/* How many reads are made under locks after one that had to be repeated: a
 * writer is busy, and reading twice would cost more than the locks. */
enum { SHM_DISTRUST = 16 };

/* The -shm's locks: the writers' lock; the lock of a checkpoint; that of a
 * recovery, which is taken with others; the read locks, the first for readers
 * that need nothing from the log, then one for each mark. */
enum { SHM_WRITE, SHM_COPY, SHM_RECOVER, SHM_READ, SHM_MARKS = 4 };
_Static_assert(SHM_READ + 1 + SHM_MARKS == SQLITE_SHM_NLOCK,
               "the -shm has as many locks as we know");

/* The memory barrier that SQLite uses around the WAL-index.  Its VFS "unix"
 * makes a fence and then briefly takes a mutex of the whole process; only the
 * fence matters.  Another VFS may do more. */
static void shm_barrier(const shm_index *x) {
  if (x->fence)
    atomic_thread_fence(memory_order_seq_cst);
  else
    x->file.real->xShmBarrier(x->file.f);
}

/* Copy the header, or its second copy (1).  The barriers keep the compiler and
 * the processor from moving other reads into or out of the comparison.  A copy
 * that is torn by a concurrent write differs from the one that it is compared
 * with, or has a wrong checksum.  The length is fixed: this is a tenth of a
 * get. */
static void shm_look(const shm_index *x, int copy, uint32_t *words) {
  shm_barrier(x);
  const volatile uint32_t *head = x->head + copy * SHM_WORDS;
  for (int i = 0; i < SHM_WORDS; i++) words[i] = head[i];
  shm_barrier(x);
}

/* Is the state in which the open read began still the current one?  Then
 * everything read so far is of that state: see the head of this section. */
static bool shm_is_current(const store *s) {
  uint32_t now[SHM_WORDS];
  if (s->memory) return true;
  shm_look(&s->index, 0, now);
  return memcmp(now, s->index.began, sizeof now) == 0;
}

/* Both copies of the header; zeros while the -shm is not mapped. */
static void shm_read_heads(const shm_index *x, shm_head copy[2]) {
  uint32_t words[2 * SHM_WORDS] = {0};
  for (int i = 0; x->head && i < 2; i++) shm_look(x, i, words + i * SHM_WORDS);
  memcpy(copy, words, sizeof words);
}

/* Is a header filled in, and of the version that we know? */
static bool shm_is_ready(const shm_head *head) {
  return head->version == SHM_VERSION && head->ready == 1;
}

/* Is a header's checksum right (SQLite's file format, 4.2)?  Needed for the
 * commit by which a connection is judged, and for the log's end; reads compare
 * whole headers instead. */
static bool shm_is_whole(const shm_head *head) {
  uint32_t words[SHM_WORDS], sum[2] = {0, 0};
  memcpy(words, head, sizeof words);
  for (int i = 0; i < SHM_SUMMED; i += 2) {
    sum[0] += words[i] + sum[1];
    sum[1] += words[i + 1] + sum[0];
  }
  return sum[0] == head->sum[0] && sum[1] == head->sum[1];
}

/* Bytes of a page. */
static int64_t shm_page(const shm_head *head) {
  return (head->page & 0xfe00) | (head->page & 1) << 16;
}

/* Does a header describe the log's last frame as wal_ saw it written: its
 * place, the size of the database, salt and checksum? */
static bool shm_ends_log(const shm_head *head, const wal_log *l) {
  return l->end == WAL_HEAD + head->frames * (WAL_FRAME + shm_page(head)) &&
         head->pages == base_big_endian(l->last + 4) &&
         memcmp(head->salt, l->last + 8, sizeof head->salt) == 0 &&
         head->frame_sum[0] == base_big_endian(l->last + 16) &&
         head->frame_sum[1] == base_big_endian(l->last + 20);
}

/* Where the log ends for its readers; INT64_MAX if that is not known, or is the
 * end of another log.  If the header counts no frames, nobody reads the log,
 * and its salt says nothing: a connection that has done no checkpoint restarts
 * the log with another salt than the header has.  Requires SQLite's writers'
 * lock. */
static int64_t shm_log_end(const store *s) {
  REQUIRE(s->index.alone);
  shm_head copy[2];
  unsigned char salt[sizeof copy->salt];
  const wal_log *l = &s->wal_log;
  shm_read_heads(&s->index, copy);
  bool known = shm_is_ready(copy) && shm_is_whole(copy);
  if (known && copy->frames == 0) return WAL_HEAD;
  if (!known ||
      wal_read(l->file.f, salt, sizeof salt, WAL_SALT_AT) != SQLITE_OK ||
      memcmp(salt, copy->salt, sizeof salt) != 0)
    return INT64_MAX;
  return WAL_HEAD + copy->frames * (WAL_FRAME + shm_page(copy));
}

/* Forget the latest state: the next read is of an unknown one. */
static void shm_lose_track(shm_index *x) {
  memset(x->latest, 0, sizeof x->latest);
  x->latest_zxid = 0;
  x->latest_meta = false;
  x->era++;
}

/* If this header is not the last known one, somebody else has committed, and
 * what was known of sessions is forgotten.  Headers do not come back (see the
 * head of this section). */
static void shm_follow(shm_index *x, const uint32_t *header) {
  if (memcmp(x->latest, header, sizeof x->latest) == 0) return;
  shm_lose_track(x);
  memcpy(x->latest, header, sizeof x->latest);
}

/* In a writing transaction: does our knowledge of the latest state apply?  The
 * header was read under the writers' lock. */
static bool shm_knows_latest(const store *s) {
  REQUIRE(s->memory || s->index.alone);
  return !s->memory && s->index.trust == SHM_KNOWN;
}

/* Follow the header while nobody else can write. */
static void shm_follow_now(shm_index *x) {
  uint32_t now[SHM_WORDS] = {0};
  if (x->head) shm_look(x, 0, now);
  shm_follow(x, now);
}

/* SQLite has got the writers' lock: note the header's count, for
 * shm_end_write() to tell whether it rose by one. */
static void shm_begin_write(shm_index *x) {
  shm_head copy[2];
  x->frames = 0;
  shm_follow_now(x);
  if (x->trust != SHM_UNTRIED) return;
  shm_read_heads(x, copy);
  x->changes = copy[0].changes;
}

/* The writers' lock is about to be dropped.  If this is the transaction by
 * which SQLite is judged: has it written a commit into the log, do both copies
 * of the header tell of exactly that, and did SQLite have one read lock?  Then
 * `frames` tells shm_on_commit() so.  Nobody else can have changed the header
 * meanwhile, so its new contents are those of this COMMIT.  If it ends no
 * session, those that were found before still exist. */
static void shm_end_write(shm_index *x) {
  shm_head copy[2];
  int64_t era = x->era;
  const wal_log *l = x->log;
  bool one_lock = x->held && (x->held & (x->held - 1)) == 0;
  if (x->trust == SHM_UNTRIED && !l->strange && wal_is_commit(l)) {
    shm_read_heads(x, copy);
    if (one_lock && shm_is_ready(copy) && shm_is_whole(copy) &&
        memcmp(copy, copy + 1, sizeof *copy) == 0 &&
        copy->changes == x->changes + 1 && shm_ends_log(copy, l))
      x->frames = (int)copy->frames;
  }
  shm_follow_now(x);
  if (x->kin) x->era = era;
  wal_forget(x->log);
}

/* Grant a read lock without taking it; false: ask the kernel.
 *
 * SQLite believes that it has a shared lock until it drops it; `granted` notes
 * it, so the drop is not passed to the kernel either.  To set a mark, SQLite
 * briefly takes a read lock exclusively; if refused, it uses another's mark.
 * But there must be one that it can use, so after as many refusals as there are
 * marks the kernel is asked. */
static bool shm_grant(shm_index *x, int lock, int flags, int *rc) {
  unsigned bit = 1u << lock;
  bool shared = flags & SQLITE_SHM_SHARED;
  *rc = SQLITE_OK;
  if (flags & SQLITE_SHM_UNLOCK) {
    bool granted = shared && (x->granted & bit);
    if (granted) x->granted &= ~bit;
    return granted;
  }
  if (!x->lockless) return false;
  if (shared) {
    x->granted |= bit;
    return true;
  }
  *rc = SQLITE_BUSY;
  return lock > SHM_READ && x->refused++ < SHM_MARKS;
}

/* SQLite has the locks to rebuild the WAL-index from the log: first make the
 * log durable.
 *
 * A process that was killed inside the sync of its COMMIT has left a complete
 * commit in the log, and another, killed while it wrote the header, has left
 * the need to recover.  A process that reads after that takes the commit as
 * made, so it must be durable first (P8).  While the store is being opened,
 * judge_sync_log() does this; then `serving` is set.  A log that could not be
 * synced is not trusted again, so the store is then as after a failed COMMIT.
 * The gate is not held here, so the log is not rewritten, whatever its word
 * says (P12). */
static int shm_recover(const shm_index *x) {
  store *s = x->s;
  if (!x->serving || !x->log->file.f) return SQLITE_OK;
  int rc = wal_make_durable(x->log, SQLITE_SYNC_NORMAL);
  if (rc != SQLITE_OK) health_worsen(s, HEALTH_BROKEN);
  return rc;
}

/* The writers' lock: header and log are looked at just after it is taken and
 * just before it is dropped, while nobody else can change them. */
static int shm_lock_writers(shm_index *x, int flags) {
  bool lock = flags & SQLITE_SHM_LOCK;
  if (!lock) shm_end_write(x);
  int rc = x->file.real->xShmLock(x->file.f, SHM_WRITE, 1, flags);
  if (rc != SQLITE_OK) return rc;
  x->alone = lock;
  if (lock) shm_begin_write(x);
  return SQLITE_OK;
}

/* Must a checkpoint be kept from copying pages now?  Without the first read
 * lock it copies none, and notes none as copied.
 *
 * It must not copy while there is a foreign writer, which is so if it has
 * waited in vain for the writers' lock: in SQLite up to 3.51.2 that can drop
 * commits (P12).  It must not copy only a part of the log, as it would after
 * waiting in vain for a reader.  SQLite notes that part as copied without a
 * sync, and only the sync of the next checkpoint could tell that these pages
 * were lost.  If it fails, they are never written again, and the log that has
 * them is given up (P8). */
static bool shm_must_not_copy(const shm_index *x, int lock) {
  return x->copying && (!x->alone || (lock == SHM_READ && x->missed));
}

/* SQLite takes or drops locks of the -shm.  Read locks may be granted without
 * the kernel, the writers' lock is watched, a checkpoint copies all or nothing.
 * A recovery that has got its locks first makes the log durable; if that fails,
 * the locks are dropped again and SQLite gets the error. */
static int shm_lock(sqlite3_file *f, int first, int n, int flags) {
  shm_index *x = file_owner(f);
  unsigned bit = 1u << first;
  bool lock = flags & SQLITE_SHM_LOCK;
  bool read = n == 1 && first >= SHM_READ;
  bool wanted = read && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE);
  int rc;
  if (read && shm_grant(x, first, flags, &rc)) return rc;
  if (wanted && shm_must_not_copy(x, first)) return SQLITE_BUSY;
  if (n == 1 && first == SHM_WRITE) return shm_lock_writers(x, flags);
  rc = x->file.real->xShmLock(f, first, n, flags);
  if (wanted) { /* if refused, SQLite retries, then continues without */
    x->missed &= ~bit;
    if (rc == SQLITE_BUSY && first > SHM_READ) x->missed |= bit;
  }
  if (rc != SQLITE_OK) return rc;
  if (read && (flags & SQLITE_SHM_SHARED)) {
    x->held &= ~bit;
    if (lock) x->held |= bit;
  }
  if (n == 1 && first == SHM_COPY) { /* a checkpoint begins or ends */
    x->copying = lock;
    x->missed = 0;
  }
  /* the locks of a recovery are exclusive and include its own */
  bool recovers = lock && (flags & SQLITE_SHM_EXCLUSIVE) &&
                  first <= SHM_RECOVER && first + n > SHM_RECOVER;
  if (recovers) rc = shm_recover(x);
  if (rc != SQLITE_OK)
    x->file.real->xShmLock(f, first, n,
                           SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
  return rc;
}

/* SQLite maps the WAL-index: note where its header is. */
static int shm_map(sqlite3_file *f, int region, int size, int extend,
                   void volatile **out) {
  shm_index *x = file_owner(f);
  int rc = x->file.real->xShmMap(f, region, size, extend, out);
  if (region == 0) x->head = rc == SQLITE_OK ? *out : NULL;
  return rc;
}

/* SQLite unmaps the WAL-index, and the header with it. */
static int shm_unmap(sqlite3_file *f, int remove) {
  shm_index *x = file_owner(f);
  x->head = NULL;
  return x->file.real->xShmUnmap(f, remove);
}

/* The database is closed: no read is open any more. */
static int shm_close(sqlite3_file *f) {
  shm_index *x = file_owner(f);
  x->head = NULL;
  x->lockless = x->open = false;
  return file_close(&x->file);
}

/* The database's file was opened: give it the methods above.  The numbers of
 * reads and eras continue, so none is used twice, and `serving` stays.
 * Everything else starts over, above all the trust in this SQLite.  A VFS
 * without a WAL-index has no such methods. */
static void shm_wrap(store *s, sqlite3_file *f) {
  shm_index *x = &s->index;
  int64_t number = x->number;
  int64_t era = x->era + 1;
  bool serving = x->serving;
  *x = (shm_index){.number = number,
                   .era = era,
                   .serving = serving,
                   .fence = strcmp(s->vfs_base->zName, "unix") == 0,
                   .s = s,
                   .log = &s->wal_log};
  file_wrap(&x->file, f);
  x->file.own.xClose = shm_close;
  if (x->file.own.iVersion < 2) return;
  x->file.own.xShmLock = shm_lock;
  x->file.own.xShmMap = shm_map;
  x->file.own.xShmUnmap = shm_unmap;
}

/* SQLite does not behave as required: say so once. */
static void shm_tell_strange(store *s, const char *what) {
  host_log(s, ZKE_LOG_WARN, "%s: SQLite %s %s: a short cut is off from now on",
           s->name, sqlite3_libversion(), what);
}

/* After a commit the log has `pages` pages.  If that is fewer than before,
 * somebody has restarted it, so whatever was in the way of our own checkpoint
 * is gone. */
static void shm_note_pages(store *s, int pages) {
  if (pages < s->wal_pages) s->wal_limit = ZKE_CHECKPOINT_PAGES;
  s->wal_pages = pages;
}

/* SQLite has committed, and the log has `pages` pages.  A connection's first
 * commit tells whether its reads may go without locks and its frames may be
 * gathered.  If it was not as expected, they never are. */
static int shm_on_commit(void *arg, sqlite3 *db, const char *name, int pages) {
  store *s = arg;
  shm_index *x = &s->index;
  wal_log *l = &s->wal_log;
  (void)db, (void)name;
  shm_note_pages(s, pages);
  if (x->trust == SHM_UNTRIED) {
    x->trust = x->frames == pages ? SHM_KNOWN : SHM_STRANGE;
    l->gather = x->trust == SHM_KNOWN && l->bytes;
    if (x->trust == SHM_STRANGE)
      shm_tell_strange(s, "keeps an unknown kind of WAL-index");
  }
  if (l->gather && l->strange) {
    l->gather = false;
    shm_tell_strange(s, "writes its log in an unknown way");
  }
  return SQLITE_OK;
}

/* Let the next transaction do without read locks, if SQLite's first commit was
 * as expected and the header is of the known version.  The header as it is now
 * is what shm_is_current() compares with. */
static void shm_go_lockless(store *s) {
  shm_index *x = &s->index;
  shm_head head;
  x->lockless = false;
  x->refused = 0;
  if (s->read_locks || x->trust != SHM_KNOWN || !x->head) return;
  shm_look(x, 0, x->began);
  memcpy(&head, x->began, sizeof head);
  x->lockless = shm_is_ready(&head);
}

/* ======================================================================
 * vfs_: the VFS of each store (private)
 *
 * SQLite reaches the system through a VFS.  Each store puts its own VFS before
 * the one that the program chose.  It does two things and passes everything
 * else on:
 *
 * - The log gets the methods of wal_, the database's file those of shm_.
 * - In one place SQLite sleeps without asking the busy handler.  A reader that
 *   finds a writer stopped while it publishes its commit tries a hundred times,
 *   ten seconds in all.  Here the sleeps end at the running call's deadline
 *   (P10).
 *
 * SQLite finds a VFS by its name.  So ours is in its list while a connection is
 * opened or compacted, under a name that nobody else asks for.
 * ==================================================================== */

/* The VFS to which everything is passed on. */
static sqlite3_vfs *vfs_base_of(sqlite3_vfs *v) {
  return ((const store *)v->pAppData)->vfs_base;
}

/* Open a file by the VFS below, and give it our methods if it is the log or the
 * database.  A file that could not be opened has no methods.  SQLite syncs the
 * directory with the first sync of a log that it may create.  An existing log
 * need not be created, and wal_make_name() makes its name durable. */
static int vfs_open(sqlite3_vfs *v, const char *name, sqlite3_file *file,
                    int flags, int *out_flags) {
  sqlite3_vfs *base = vfs_base_of(v);
  int there = 0;
  if (flags & SQLITE_OPEN_WAL)
    base->xAccess(base, name, SQLITE_ACCESS_EXISTS, &there);
  if (there) flags &= ~SQLITE_OPEN_CREATE;
  int rc = base->xOpen(base, name, file, flags, out_flags);
  if (!file->pMethods) return rc;
  if (flags & SQLITE_OPEN_WAL) wal_wrap(v->pAppData, file);
  if (flags & SQLITE_OPEN_MAIN_DB) shm_wrap(v->pAppData, file);
  return rc;
}

/* The functions that only pass calls on: SQLite calls them for names,
 * extensions, the time and random numbers, none of which this section changes.
 */
static int vfs_delete(sqlite3_vfs *v, const char *name, int sync) {
  return vfs_base_of(v)->xDelete(vfs_base_of(v), name, sync);
}

static int vfs_access(sqlite3_vfs *v, const char *name, int flags, int *out) {
  return vfs_base_of(v)->xAccess(vfs_base_of(v), name, flags, out);
}

static int vfs_full_path(sqlite3_vfs *v, const char *name, int size,
                         char *out) {
  return vfs_base_of(v)->xFullPathname(vfs_base_of(v), name, size, out);
}

static int vfs_random(sqlite3_vfs *v, int size, char *out) {
  return vfs_base_of(v)->xRandomness(vfs_base_of(v), size, out);
}

/* A program's function may load extensions, if its SQLite can.  A VFS may have
 * no loader, and SQLite does not check that before it calls one. */
static void *vfs_dl_open(sqlite3_vfs *v, const char *name) {
  sqlite3_vfs *base = vfs_base_of(v);
  return base->xDlOpen ? base->xDlOpen(base, name) : NULL;
}

/* A VFS without a loader cannot say why it failed, so this does. */
static void vfs_dl_error(sqlite3_vfs *v, int size, char *out) {
  sqlite3_vfs *base = vfs_base_of(v);
  if (base->xDlError)
    base->xDlError(base, size, out);
  else
    sqlite3_snprintf(size, out, "the VFS loads no extensions");
}

typedef void (*vfs_symbol)(void);

static vfs_symbol vfs_dl_sym(sqlite3_vfs *v, void *from, const char *name) {
  return vfs_base_of(v)->xDlSym(vfs_base_of(v), from, name);
}

static void vfs_dl_close(sqlite3_vfs *v, void *what) {
  vfs_base_of(v)->xDlClose(vfs_base_of(v), what);
}

/* Sleep, but not past the running call's deadline. */
static int vfs_sleep(sqlite3_vfs *v, int us) {
  store *s = v->pAppData;
  int64_t left = base_max(s->deadline - host_now(s), 0);
  if (left) s->os.sleep(s->os.context, base_min(left, us * INT64_C(1000)));
  return us;
}

static int vfs_time(sqlite3_vfs *v, double *out) {
  return vfs_base_of(v)->xCurrentTime(vfs_base_of(v), out);
}

static int vfs_last_error(sqlite3_vfs *v, int size, char *out) {
  return vfs_base_of(v)->xGetLastError(vfs_base_of(v), size, out);
}

/* Open the connection through the store's VFS.  SQLite finds a VFS only by its
 * name, so ours is in its list for just this moment.  Version 1 is enough:
 * later versions add a finer clock and the replacement of system calls. */
static int vfs_connect(store *s, int flags) {
  s->vfs_base = sqlite3_vfs_find(s->vfs);
  if (!s->vfs_base) {
    return base_fail(ZKE_CANTOPEN, "%s: no SQLite VFS is named %s", s->name,
                     s->vfs ? s->vfs : "(default)");
  }
  snprintf(s->vfs_name, sizeof s->vfs_name, "zkembed-%p", (void *)s);
  s->vfs_own = (sqlite3_vfs){.iVersion = 1,
                             .szOsFile = s->vfs_base->szOsFile,
                             .mxPathname = s->vfs_base->mxPathname,
                             .zName = s->vfs_name,
                             .pAppData = s,
                             .xOpen = vfs_open,
                             .xDelete = vfs_delete,
                             .xAccess = vfs_access,
                             .xFullPathname = vfs_full_path,
                             .xDlOpen = vfs_dl_open,
                             .xDlError = vfs_dl_error,
                             .xDlSym = vfs_dl_sym,
                             .xDlClose = vfs_dl_close,
                             .xRandomness = vfs_random,
                             .xSleep = vfs_sleep,
                             .xCurrentTime = vfs_time,
                             .xGetLastError = vfs_last_error};
  int rc = sqlite3_vfs_register(&s->vfs_own, 0);
  /* it fails only before SQLite is initialized; but a VFS was found */
  if (ALWAYS(rc == SQLITE_OK))
    rc = sqlite3_open_v2(s->file ? s->file : s->name, &s->db, flags,
                         s->vfs_name);
  sqlite3_vfs_unregister(&s->vfs_own);
  if (rc == SQLITE_OK) return ZKE_OK;
  /* SQLite has then tried to open for reading the file that it could not
   * create, and its message says why that failed. */
  if (flags & SQLITE_OPEN_CREATE && sqlite3_system_errno(s->db) == ENOENT)
    return base_fail(ZKE_CANTOPEN,
                     "%s does not exist, and cannot be made there", s->name);
  return sql_error(s, rc, "opening");
}

/* ======================================================================
 * app_: the program's own SQL on this connection (private)
 *
 * A program may have tables of its own in the file.  A function of the program
 * (zke_sql_fn) runs statements on them on the engine's connection, inside the
 * engine's transaction.  This section enforces what such a function must not
 * do:
 *
 * - The authorizer refuses statements that begin or end transactions, attach
 *   files, set pragmas, or write into our tables.  It is set once, with the
 *   connection: to set it later would make SQLite prepare each statement again.
 *   While no function runs, it allows everything.
 * - SQLite ends a transaction on its own if the disk is full or memory is
 *   short.  A statement after that would be a transaction by itself, and
 *   permanent.  So the commit hook refuses every commit but our own COMMIT, in
 *   every transaction that writes, even if no function runs: SQLite may undo
 *   everything at a statement's end and yet report the statement as done.
 * - A statement that is left open would hold its read of the database, and the
 *   log could no longer be emptied.  So it is ended, and the function fails.
 *
 * A function runs with the store's lock held, and in most cases with the gate.
 * A library call in it would wait for what its own thread holds: app_here makes
 * the api_ section refuse it.
 *
 * Start reading at app_run().
 * ==================================================================== */

/* The store, if this thread is in a function of the program, or between
 * zke_sql_begin() and its end; else NULL.  A child that was forked there is in
 * neither: the transaction is its parent's (app_is_inside()). */
static _Thread_local store *app_here;

static bool app_is_inside(void) { return app_here && !fork_is_copy(app_here); }

/* Is it a name of ours, in upper or lower case?  Tables and indices begin with
 * "zkembed_", views with "zke_".  Everybody may write to the outbox. */
static bool app_is_ours(const char *name) {
  if (!name || sqlite3_strnicmp(name, "zkembed_outbox", 14) == 0) return false;
  return sqlite3_strnicmp(name, "zkembed_", 8) == 0 ||
         sqlite3_strnicmp(name, "zke_", 4) == 0;
}

/* Does a writing statement touch anything of ours?  The arguments are those of
 * SQLite's authorizer.  A trigger counts by the table that it is on; when it
 * runs, SQLite asks for each of its actions.  A temporary table with a name of
 * ours would hide our table from the engine. */
static bool app_touches_ours(int action, const char *a, const char *b) {
  switch (action) {
    case SQLITE_CREATE_INDEX:
    case SQLITE_CREATE_TEMP_INDEX:
    case SQLITE_DROP_INDEX:
    case SQLITE_DROP_TEMP_INDEX:
      return app_is_ours(a) || app_is_ours(b);
    case SQLITE_CREATE_TRIGGER:
    case SQLITE_CREATE_TEMP_TRIGGER:
    case SQLITE_DROP_TRIGGER:
    case SQLITE_DROP_TEMP_TRIGGER:
      return app_is_ours(b);
    case SQLITE_ALTER_TABLE: /* SQLite does not tell the new name */
      return app_is_ours(b) || sqlite3_stricmp(a, "temp") == 0;
    default:
      return app_is_ours(a);
  }
}

/* The authorizer's last refusal in the function that runs on this thread:
 * SQLite's own sentence is only "not authorized". */
static _Thread_local char app_denied[128];

static int app_deny(const char *what, const char *name) {
  snprintf(app_denied, sizeof app_denied, "%s%s%s", what, name ? " " : "",
           name ? name : "");
  return SQLITE_DENY;
}

/* A function may only read, but would change something: deny it, with SQLite's
 * name for that thing.  For ALTER TABLE, SQLite gives the database first.
 *
 * If a statement makes or drops something, SQLite first asks for its schema
 * table, and then for the thing by name: only the second is refused.  With
 * writable_schema a statement may change the schema table itself. */
static int app_deny_change(const store *s, int action, const char *a,
                           const char *b) {
  bool schema = a && (strcmp(a, "sqlite_master") == 0 ||
                      strcmp(a, "sqlite_temp_master") == 0);
  int writable = 1;
  if (schema)
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, -1, &writable);
  if (!writable) return SQLITE_OK;
  return app_deny("fn may only read, but would change",
                  action == SQLITE_ALTER_TABLE ? b : a);
}

/* SQLite asks, while it prepares a statement, about each thing that it does. */
static int app_authorize(void *arg, int action, const char *a, const char *b,
                         const char *database, const char *trigger) {
  const store *s = arg;
  (void)database, (void)trigger;
  if (s->app == APP_NONE) return SQLITE_OK;
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_FUNCTION:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_TRANSACTION:
      return app_deny(a, NULL); /* "BEGIN" and the like */
    case SQLITE_ATTACH:
      return app_deny("ATTACH", a);
    case SQLITE_DETACH:
      return app_deny("DETACH", a);
    case SQLITE_PRAGMA:
      return app_deny("PRAGMA", a);
    case SQLITE_SAVEPOINT: /* a batch has one of ours */
      return app_is_ours(b) ? app_deny("SAVEPOINT", b) : SQLITE_OK;
    default:
      if (s->app == APP_READS) return app_deny_change(s, action, a, b);
      if (!app_touches_ours(action, a, b)) return SQLITE_OK;
      return app_deny("a change of", app_is_ours(a) ? a : b);
  }
}

/* SQLite asks before each commit; nonzero turns it into a rollback. */
static int app_on_commit(void *arg) {
  const store *s = arg;
  return s->app != APP_NONE || s->writing;
}

/* The SQL function zke_claim(path, token): 1 if the token is in office at the
 * path, in the snapshot that the statement reads, else an error.  A reader of a
 * read/write lock may not write: it is recognised by its node's name, which
 * other clients of ZooKeeper use, too. */
static void app_claim(sqlite3_context *c, int count, sqlite3_value **values) {
  sqlite3_stmt *st = NULL;
  (void)count;
  int rc = sqlite3_prepare_v2(sqlite3_context_db_handle(c),
                              "SELECT 1 FROM main.zkembed_node WHERE parent=?1 "
                              "AND mzxid=?2 AND owner<>0 "
                              "AND instr(name,'-__READ__')=0",
                              -1, &st, NULL);
  if (rc == SQLITE_OK) {
    sqlite3_bind_value(st, 1, values[0]);
    sqlite3_bind_value(st, 2, values[1]);
    rc = sqlite3_step(st);
  }
  sqlite3_finalize(st);
  if (rc == SQLITE_ROW) {
    sqlite3_result_int(c, 1);
  } else if (rc == SQLITE_DONE) {
    char *why = sqlite3_mprintf("fenced: that token does not hold %s",
                                sqlite3_value_text(values[0]));
    sqlite3_result_error(c, why ? why : "fenced", -1);
    sqlite3_free(why);
  } else {
    sqlite3_result_error_code(c, rc);
  }
}

/* Give a connection, ours or the program's, the function zke_claim().  Returns
 * a SQLite code. */
static int app_add_claim(sqlite3 *db) {
  return sqlite3_create_function_v2(db, "zke_claim", 2,
                                    SQLITE_UTF8 | SQLITE_INNOCUOUS, NULL,
                                    app_claim, NULL, NULL, NULL);
}

/* Pages in the log after the last commit on a connection of the program. */
static _Thread_local int app_pages;

static int app_note_pages(void *arg, sqlite3 *db, const char *name, int pages) {
  (void)arg, (void)db, (void)name;
  app_pages = pages;
  return SQLITE_OK;
}

/* The result of a failure on a connection of the program. */
static int app_guest_error(store *s, sqlite3 *db, int sqlite_rc,
                           const char *doing) {
  int rc = sql_code(sqlite_rc);
  bool told = (sqlite3_errcode(db) & 0xff) == (sqlite_rc & 0xff);
  if ((sqlite_rc & 0xff) == SQLITE_CONSTRAINT) rc = ZKE_SQL;
  return base_fail(rc, "%s: %s: %s (SQLite %d)", s->name, doing,
                   told ? sqlite3_errmsg(db) : sqlite3_errstr(sqlite_rc),
                   sqlite_rc);
}

/* SQLite reports a setting of a connection, which is a number. */
static int app_note_setting(void *arg, int columns, char **values,
                            char **names) {
  (void)columns, (void)names;
  *(int *)arg = ALWAYS(values[0]) ? (int)strtol(values[0], NULL, 10) : 0;
  return 0;
}

/* Make a connection of the program sync its commits, as the engine does for a
 * change of persistent state (P8): SQLite can be built with a lower default.  A
 * connection that syncs more keeps its level.
 *
 * The level is set even if it is high enough.  A level that no PRAGMA has set
 * is a default, and SQLite can be built with a lower one for files with a log.
 * A connection that read the schema before the file got its log would take that
 * lower one at its next transaction.  Inside a transaction SQLite sets no
 * level; the level reported there stays, once the transaction has read.
 * Returns a SQLite code. */
static int app_sync_commits(const store *s, sqlite3 *db) {
  int level = 0, rc = SQLITE_OK;
  if (s->durability == ZKE_DURABLE_NONE) return SQLITE_OK;
  bool inside = !sqlite3_get_autocommit(db);
  if (inside)
    rc = sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL,
                      NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_exec(db, "PRAGMA synchronous", app_note_setting, &level, NULL);
  bool enough = level >= 2 && inside;
  if (rc != SQLITE_OK || enough) return rc;
  return sqlite3_exec(
      db, level == 3 ? "PRAGMA synchronous=EXTRA" : "PRAGMA synchronous=FULL",
      NULL, NULL, NULL);
}

/* Make a connection of the program sync its commits and do no checkpoints,
 * neither after a commit nor when it is closed (P12).  The log is left to the
 * engine's writers, and to zke_sql_commit(). */
static int app_adopt(store *s, sqlite3 *db) {
  sqlite3_wal_autocheckpoint(db, 0);
  sql_keep_log(db, true);
  sqlite3_busy_timeout(db, (int)base_min(s->busy / ZKE_MS, INT_MAX));
  int rc = app_sync_commits(s, db);
  if (rc == SQLITE_OK) rc = app_add_claim(db);
  return rc == SQLITE_OK ? ZKE_OK : app_guest_error(s, db, rc, "adopting");
}

/* The transaction has ended, or did not begin. */
static void app_forget_ends(store *s) {
  sqlite3_finalize(s->guest.commit);
  sqlite3_finalize(s->guest.rollback);
  s->guest.commit = s->guest.rollback = NULL;
}

/* Begin to write on a connection of the program.  The line may have taken most
 * of the call's time, so SQLite waits only for the rest.  If the program has
 * its own busy handler, the timeout reads as 0; the handler could not be
 * restored, so it stays.  The WAL hook is set here since the program may have
 * set another, as PRAGMA wal_autocheckpoint also does.
 *
 * The statements that end the transaction are prepared before it begins.  If
 * memory ran out later, the connection would keep SQLite's writers' lock after
 * the gate was left.  Returns a SQLite code. */
static int app_begin_guest(store *s, sqlite3 *db) {
  int usual = 0;
  sqlite3_exec(db, "PRAGMA busy_timeout", app_note_setting, &usual, NULL);
  int64_t left = base_max(s->deadline - host_now(s), 0) / ZKE_MS;
  bool less = left < usual;
  sqlite3_wal_hook(db, app_note_pages, NULL);
  if (less) sqlite3_busy_timeout(db, (int)left);
  int rc = sqlite3_prepare_v2(db, "COMMIT", -1, &s->guest.commit, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_prepare_v2(db, "ROLLBACK", -1, &s->guest.rollback, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  if (less) sqlite3_busy_timeout(db, usual);
  return rc;
}

/* Run a prepared statement once.  Returns a SQLite code. */
static int app_run_end(sqlite3_stmt *st) {
  sqlite3_step(st);
  return sqlite3_reset(st);
}

/* COMMIT of the program's connection; returns a SQLite code.  A user quota that
 * is used up is a full disk, as in wal_put(); only the log's file knows. */
static int app_run_commit(sqlite3 *db, sqlite3_stmt *st) {
  int rc = app_run_end(st), error = 0;
  sqlite3_file *log = NULL;
  if (rc == SQLITE_OK || sqlite3_extended_errcode(db) != SQLITE_IOERR_WRITE)
    return rc;
  sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  if (log && log->pMethods)
    log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
  return error == EDQUOT ? SQLITE_FULL : rc;
}

/* Does SQLite fill the sector after a commit's last frame, since a write may
 * damage the rest of its sector?  It asks the file of the database. */
static bool app_fills_sectors(sqlite3 *db) {
  sqlite3_file *f = NULL;
  sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f);
  return !f || !f->pMethods ||
         !(f->pMethods->xDeviceCharacteristics(f) &
           SQLITE_IOCAP_POWERSAFE_OVERWRITE);
}

/* Is the outcome of the COMMIT of the program's connection unknown?  After a
 * full disk it is if the last frame may already be in the log. */
static bool app_is_open(sqlite3 *db, int rc) {
  int primary = sqlite3_extended_errcode(db) & 0xff;
  if (rc == ZKE_FULL) return app_fills_sectors(db);
  return rc == ZKE_NOMEM || (rc == ZKE_SYSTEMERROR && primary == SQLITE_IOERR);
}

/* End the transaction of a connection of the program.  ZKE_OK also if there is
 * nothing to roll back.  An I/O error at COMMIT leaves the log in doubt for the
 * engine, too: whichever connection could not sync it, a later commit after it
 * could be lost with it (P2).  So does a lack of memory (txn_is_open()): it is
 * unknown here how far this connection's COMMIT came. */
static int app_end_guest(store *s, sqlite3 *db, bool commit) {
  int rc = SQLITE_OK;
  bool undone = sqlite3_get_autocommit(db);
  if (commit && undone) {
    return base_fail(ZKE_SYSTEMERROR,
                     "%s: the transaction has ended before zke_sql_commit()",
                     s->name);
  }
  if (commit) rc = app_run_commit(db, s->guest.commit);
  if (rc != SQLITE_OK) rc = app_guest_error(s, db, rc, "COMMIT");
  bool unknown = commit && app_is_open(db, rc);
  if (unknown) {
    health_worsen(s, HEALTH_BROKEN);
    host_log(s, ZKE_LOG_ERROR, "%s", base_sentence);
    rc = ZKE_CONNECTIONLOSS;
  }
  if (!sqlite3_get_autocommit(db)) app_run_end(s->guest.rollback);
  return rc;
}

/* Prepare the store's connection for functions of the program. */
static int app_configure(store *s) {
  sqlite3_set_authorizer(s->db, app_authorize, s);
  sqlite3_commit_hook(s->db, app_on_commit, s);
  sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_FKEY, (int)s->foreign_keys,
                    (int *)NULL);
  int rc = app_add_claim(s->db);
  return rc == SQLITE_OK ? ZKE_OK : sql_error(s, rc, "connecting");
}

/* End the statements that a function has left open, which is ZKE_MISUSE.  If
 * the function has refused (rc), that and its sentence stay the result. */
static int app_end_statements(store *s, int rc) {
  sqlite3_stmt *st = NULL;
  while ((st = sqlite3_next_stmt(s->db, st))) {
    bool own = false; /* it is one of the engine's */
    for (int i = 0; i < SQL_COUNT; i++) own |= s->statement[i] == st;
    if (own) continue;
    sqlite3_reset(st);
    if (rc != ZKE_OK) continue;
    const char *text = sqlite3_sql(st);
    rc = base_fail(ZKE_MISUSE, "a function has not finalized its statement: %s",
                   text ? text : "(a blob)");
  }
  return rc;
}

/* The result of a function that has refused.  *code has the code for the
 * caller.  The library's own codes describe the database's state, which the
 * function cannot know: they are replaced by ZKE_SQL.  The sentence is the one
 * that the function has set by zke_fail(), or else SQLite's. */
static int app_refused(store *s, int *code) {
  bool allowed = *code > 0 || (*code <= -100 && *code > -200) || *code <= -300;
  if (!allowed) *code = ZKE_SQL;
  if (base_sentence[0]) return ZKE_SQL;
  if (*code > 0 && sqlite3_errcode(s->db) != SQLITE_OK) {
    bool denied = sqlite3_errcode(s->db) == SQLITE_AUTH && app_denied[0];
    return base_fail(ZKE_SQL, "a function has refused: %s%s%s (SQLite %d)",
                     sqlite3_errmsg(s->db), denied ? ": " : "",
                     denied ? app_denied : "", *code);
  }
  return base_fail(ZKE_SQL, "a function has refused with the code %d", *code);
}

SQL_STATEMENT(APP_BEGIN, "SAVEPOINT zkembed_function");
SQL_STATEMENT(APP_END, "RELEASE zkembed_function");

/* Is the transaction still the one in which the function was called?  SQLite
 * may have undone it, which a function can overlook, and then the function can
 * begin another by a savepoint.  So in a writing transaction (guarded) our
 * savepoint surrounds a function.  It vanishes with its transaction.  Releasing
 * the savepoint also ends those that the function has left open; otherwise a
 * later function could go back to them and undo what was done since.  If there
 * is no such savepoint, SQLite returns SQLITE_ERROR; any other error is that of
 * the RELEASE. */
static int app_end_savepoint(store *s, bool guarded) {
  if (!sqlite3_get_autocommit(s->db)) {
    int rc = guarded ? sql_do(s, SQL_APP_END) : ZKE_OK;
    if (rc == ZKE_OK || sqlite3_errcode(s->db) != SQLITE_ERROR) return rc;
  }
  return base_fail(ZKE_SYSTEMERROR,
                   "%s: SQLite has undone the transaction in a function",
                   s->name);
}

/* Limits of a connection, by number.  SQLite 3.54 has 13, a later one may have
 * more; a number that it does not know is -1, and setting that changes nothing.
 * They are restored after a function, which may have set some by
 * sqlite3_limit(): the engine's statements must not fail because of them. */
enum { APP_LIMITS = 32 };

/* Call a function of the program in the open transaction.  Returns ZKE_OK, or
 * an error for which the transaction must be undone.  ZKE_SQL means that the
 * function refuses.  Then *code is the function's own code, which may be any
 * number: returned here, it could be mistaken for one of ours.  A function that
 * reads in a batch may refuse and the batch continues, so its savepoints are
 * ended, too. */
static int app_run(store *s, enum app_mode mode, zke_sql_fn fn, void *context,
                   int64_t zxid, int *code) {
  bool guarded = mode == APP_WRITES || s->writing;
  int rc = guarded ? sql_do(s, SQL_APP_BEGIN) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  int limits[APP_LIMITS];
  for (int i = 0; i < APP_LIMITS; i++) limits[i] = sqlite3_limit(s->db, i, -1);
  base_sentence[0] = '\0';
  app_denied[0] = '\0';
  s->app = mode;
  app_here = s;
  int64_t number = base_zxid; /* a call that is refused in fn sets it */
  *code = fn(s->db, zxid, context);
  base_zxid = number;
  if (app_here == s) app_here = NULL;     /* a child may be in one of its own */
  if (fork_is_copy(s)) return ZKE_FORKED; /* the connection is the parent's */
  s->app = APP_NONE;
  for (int i = 0; i < APP_LIMITS; i++) sqlite3_limit(s->db, i, limits[i]);
  rc = *code ? app_refused(s, code) : ZKE_OK;
  rc = app_end_statements(s, rc);
  if (rc != ZKE_OK && (mode == APP_WRITES || !guarded)) return rc;
  int open = app_end_savepoint(s, guarded);
  return open == ZKE_OK ? rc : open;
}

/* ======================================================================
 * schema_: the tables; recognising a file (private)
 *
 * What a database of zkembed consists of, how it is made, and how the header of
 * a file tells whose it is.  doc/format.md explains the columns and lists the
 * invariants; zke_check() tests those.
 *
 * A file that is not ours is never written to.  So opening reads the header
 * before SQLite reads anything (schema_recognise), decides (schema_accept), and
 * makes tables only in an empty file, in one transaction with the header's
 * fields.  So an interrupted creation leaves an empty file, or one with a
 * journal that says that it was empty.
 * ==================================================================== */

/* The tables.  doc/format.md explains them column by column, and lists the
 * invariants that zke_check() verifies. */
static const char schema_tables[] =
    "CREATE TABLE zkembed_meta(one INTEGER PRIMARY KEY CHECK(one=1),"
    "zxid INTEGER NOT NULL,recursive INTEGER NOT NULL,"
    "lost INTEGER NOT NULL,boot TEXT NOT NULL,"
    "db_device INTEGER NOT NULL,db_inode INTEGER NOT NULL,"
    "live_device INTEGER NOT NULL,live_inode INTEGER NOT NULL,"
    "gate_device INTEGER NOT NULL,gate_inode INTEGER NOT NULL,"
    "format INTEGER NOT NULL,history_rows INTEGER NOT NULL,"
    "history_ms INTEGER NOT NULL)STRICT;"
    "CREATE TABLE zkembed_node(parent TEXT NOT NULL,name TEXT NOT NULL,"
    "czxid INTEGER NOT NULL,mzxid INTEGER NOT NULL,pzxid INTEGER NOT NULL,"
    "ctime INTEGER NOT NULL,mtime INTEGER NOT NULL,version INTEGER NOT NULL,"
    "aversion INTEGER NOT NULL,creates INTEGER NOT NULL,"
    "nchild INTEGER NOT NULL,owner INTEGER NOT NULL,kind INTEGER NOT NULL,"
    "ttl INTEGER NOT NULL,due INTEGER NOT NULL,acl TEXT,"
    "len INTEGER NOT NULL,blob INTEGER,data BLOB,"
    "PRIMARY KEY(parent,name))STRICT,WITHOUT ROWID;"
    "CREATE INDEX zkembed_node_owner ON zkembed_node(owner)WHERE owner<>0;"
    "CREATE INDEX zkembed_node_due ON zkembed_node(kind,due)WHERE due<>0;"
    "CREATE TABLE zkembed_blob(id INTEGER PRIMARY KEY,data BLOB NOT "
    "NULL)STRICT;"
    "CREATE TABLE zkembed_session(id INTEGER PRIMARY KEY,identity TEXT NOT "
    "NULL,"
    "pid INTEGER NOT NULL,started INTEGER NOT NULL,lease INTEGER NOT NULL,"
    "slot INTEGER NOT NULL,life INTEGER NOT NULL,"
    "carrier INTEGER NOT NULL,event_limit INTEGER NOT NULL,"
    "seen INTEGER NOT NULL,timeout INTEGER NOT NULL,"
    "heard INTEGER NOT NULL,password BLOB)STRICT;"
    "CREATE UNIQUE INDEX zkembed_session_slot ON zkembed_session(slot)WHERE "
    "slot>=0;"
    "CREATE INDEX zkembed_session_carrier ON zkembed_session(carrier)WHERE "
    "carrier<>0;"
    "CREATE TABLE zkembed_watch(path TEXT NOT NULL,kind INTEGER NOT NULL,"
    "session INTEGER NOT NULL,PRIMARY KEY(path,kind,session))"
    "STRICT,WITHOUT ROWID;"
    "CREATE INDEX zkembed_watch_session ON zkembed_watch(session);"
    "CREATE TABLE zkembed_event(session INTEGER NOT NULL,seq INTEGER NOT NULL,"
    "type INTEGER NOT NULL,path TEXT NOT NULL,zxid INTEGER NOT NULL,acl TEXT,"
    "carrier INTEGER NOT NULL,PRIMARY KEY(session,seq))STRICT,WITHOUT ROWID;"
    "CREATE INDEX zkembed_event_carrier ON zkembed_event(carrier,zxid)WHERE "
    "carrier<>0;";

#define SCHEMA_DIGITS(number) #number
#define SCHEMA_TEXT(number) SCHEMA_DIGITS(number)
#define SCHEMA_FORMAT SCHEMA_TEXT(ZKE_FORMAT)

/* The reserved nodes as a fresh server has them (semantics.md 7), and the first
 * epoch: session ids are above every other lock byte. */
static const char schema_rows[] =
    "INSERT INTO zkembed_meta "
    "VALUES(1,4294967296,0,0,'',0,0,0,0,0,0," SCHEMA_FORMAT
    ",0,0);"
    "INSERT INTO zkembed_node VALUES"
    "('','',0,0,0,0,0,0,0,0,1,0,0,0,0,NULL,0,NULL,NULL),"
    "('/','zookeeper',0,0,0,0,0,0,0,0,2,0,0,0,0,NULL,0,NULL,NULL),"
    "('/zookeeper','config',0,0,0,0,0,0,-1,0,0,0,0,0,0,"
    "'1:world:anyone'||char(10),0,NULL,NULL),"
    "('/zookeeper','quota',0,0,0,0,0,0,0,0,0,0,0,0,0,NULL,0,NULL,NULL);";

/* In SQL: w is a watch of node n.  The key of the watched path is made by
 * cutting the path at its last '/'. */
#define SCHEMA_WATCHED                                             \
  "n.parent=CASE WHEN "                                            \
  "length(rtrim(w.path,replace(w.path,'/','')))=1 THEN '/' ELSE "  \
  "rtrim(rtrim(w.path,replace(w.path,'/','')),'/')END AND n.name=" \
  "substr(w.path,length(rtrim(w.path,replace(w.path,'/','')))+1)"

/* Views for the sqlite3 shell to read while processes work. */
static const char schema_views[] =
    "CREATE VIEW zke_nodes AS SELECT CASE parent WHEN '' THEN '/' WHEN '/' "
    "THEN '/'||name ELSE parent||'/'||name END AS path,CASE WHEN len<0 THEN "
    "NULL WHEN blob IS NOT NULL THEN(SELECT b.data FROM zkembed_blob b WHERE "
    "b.id=zkembed_node.blob)ELSE coalesce(data,x'')END AS "
    "data,czxid,mzxid,ctime,"
    "mtime,version,2*creates-nchild AS cversion,aversion,owner AS "
    "ephemeralOwner,max(len,0)AS dataLength,nchild AS numChildren,pzxid,"
    "CASE kind WHEN 1 THEN 'container' WHEN 2 THEN 'ttl' ELSE CASE owner "
    "WHEN 0 THEN 'persistent' ELSE 'ephemeral' END END AS kind,ttl,"
    "coalesce(acl,'31:world:anyone'||char(10))AS acl FROM zkembed_node;"
    "CREATE VIEW zke_sessions AS SELECT id,identity,pid,"
    "strftime('%Y-%m-%d %H:%M:%f',started/1000.0,'unixepoch')AS started,"
    "lease/1000000 AS lease_ms,(SELECT count(*)FROM zkembed_node WHERE owner="
    "zkembed_session.id AND owner<>0)AS ephemerals,(SELECT count(*)FROM "
    "zkembed_watch WHERE "
    "zkembed_watch.session=zkembed_session.id)AS watches,(SELECT count(*)FROM "
    "zkembed_event WHERE "
    "zkembed_event.session=zkembed_session.id)AS "
    "events,carrier,timeout/1000000 AS timeout_ms "
    "FROM zkembed_session;"
    "CREATE VIEW zke_watches AS SELECT path,session,CASE kind&1 WHEN 0 THEN "
    "'data' ELSE 'child' END AS type,CASE kind/2 WHEN 0 THEN 'one-shot' WHEN "
    "1 THEN 'persistent' ELSE 'recursive' END AS mode FROM zkembed_watch;"
    "CREATE VIEW zke_events AS SELECT session,seq,CASE type WHEN 1 THEN "
    "'created' WHEN 2 THEN 'deleted' WHEN 3 THEN 'changed' WHEN 4 THEN "
    "'child' ELSE 'overflow' END AS type,path,zxid FROM zkembed_event;"
    "CREATE VIEW zke_waiters AS SELECT w.session AS waiter,w.path AS path,"
    "n.owner AS owner FROM zkembed_watch w JOIN zkembed_node n "
    "ON " SCHEMA_WATCHED
    "WHERE n.owner<>0 AND n.owner<>w.session;"
    "CREATE VIEW zke_tokens AS SELECT parent AS path,mzxid AS token,owner AS "
    "session,name FROM zkembed_node WHERE owner<>0;";

/* Drops all of the above, in a program's database that should be rid of it.
 * What belongs to a table goes with it. */
static const char schema_drop[] =
    "DROP VIEW zke_nodes;DROP VIEW zke_sessions;DROP VIEW zke_watches;"
    "DROP VIEW zke_events;DROP VIEW zke_waiters;DROP VIEW zke_tokens;"
    "DROP TABLE zkembed_event;DROP TABLE zkembed_watch;"
    "DROP TABLE zkembed_session;DROP TABLE zkembed_blob;"
    "DROP TABLE zkembed_node;DROP TABLE zkembed_meta;";

/* Drops what history_begin() has made. */
static const char schema_drop_history[] =
    "DROP VIEW zke_history;DROP TABLE zkembed_history;";

/* In a program's database the header's fields are the program's, and only the
 * meta row says which format this is.  The row also names an inode that no file
 * has, so the file is taken for a copy: the first session begins an epoch by
 * the clock, above any number that the program's tables may have from earlier
 * tables of ours. */
static const char schema_hosted[] = "UPDATE zkembed_meta SET db_inode=-1";

/* Make the tables in one transaction; if hosted, in a program's database.  If
 * SQLite undoes the transaction on the way, the rest must not be committed
 * statement by statement: app_on_commit() prevents that. */
static int schema_create(store *s, bool hosted) {
  char head[96];
  snprintf(head, sizeof head,
           "PRAGMA application_id=%d;PRAGMA user_version=%d;",
           ZKE_APPLICATION_ID, ZKE_FORMAT);
  int rc = sql_exec(s, "BEGIN EXCLUSIVE", "creating");
  if (rc != ZKE_OK) return rc;
  s->writing = true;
  if (!hosted) rc = sql_exec(s, head, "creating");
  if (rc == ZKE_OK) rc = sql_exec(s, schema_tables, "creating");
  if (rc == ZKE_OK) rc = sql_exec(s, schema_rows, "creating");
  if (rc == ZKE_OK && hosted) rc = sql_exec(s, schema_hosted, "creating");
  if (rc == ZKE_OK && !s->memory) rc = sql_exec(s, schema_views, "creating");
  s->writing = false;
  if (rc == ZKE_OK) rc = sql_exec(s, "COMMIT", "creating");
  if (rc != ZKE_OK && !sqlite3_get_autocommit(s->db)) {
    char cause[BASE_SENTENCE];
    base_save(cause);
    sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    base_restore(cause);
  }
  return rc;
}

/* What a file is, by its first bytes and, if these are another program's, by
 * its tables. */
enum schema_kind {
  SCHEMA_EMPTY,
  SCHEMA_UNFINISHED,
  SCHEMA_OURS,
  SCHEMA_HOSTED,   /* a program's database that has our tables, too */
  SCHEMA_STRANGER, /* a program's database */
  SCHEMA_NO_DATABASE,
  SCHEMA_OLDER,
  SCHEMA_NEWER
};

/* Was a creation interrupted?  Then the rollback journal next to the file says
 * that there was no page; it was synced before the first page was written.  If
 * the journal exists and cannot be read, this fails: the file may be ours. */
static int schema_is_unfinished(store *s, bool *yes) {
  static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9,
                                         0x20, 0xa1, 0x63, 0xd7};
  unsigned char head[20];
  const char *name = sqlite3_db_filename(s->db, "main");
  const char *journal = sqlite3_filename_journal(name);
  *yes = false;
  int fd = fd_open(s, journal, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd == -ENOENT) return ZKE_OK;
  if (fd < 0) return host_fail(fd, "cannot open", journal);
  int64_t n = s->os.pread(s->os.context, fd, head, sizeof head, 0);
  fd_close(s, &fd);
  if (n < 0) return host_fail((int)n, "cannot read", journal);
  *yes = n == (int64_t)sizeof head && memcmp(head, magic, sizeof magic) == 0 &&
         base_big_endian(head + 16) == 0;
  return ZKE_OK;
}

/* Read our meta row in a database with another program's header, as any program
 * that reads it would.  *format is the format, or 0 if there is no such row.
 * Only an answer of SQLite says so, not an error that any read may meet. */
static int schema_read_format(store *s, int *format) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(s->db, "SELECT format FROM zkembed_meta", -1, &st,
                              NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  *format = rc == SQLITE_ROW ? sqlite3_column_int(st, 0) : 0;
  sqlite3_finalize(st);
  switch (rc & 0xff) {
    case SQLITE_ROW:
    case SQLITE_DONE:
    case SQLITE_ERROR: /* no such table, or no such column */
    case SQLITE_NOTADB:
      return ZKE_OK;
    default:
      return sql_error(s, rc, "looking for the tables");
  }
}

/* Look into a database with another program's header: does it have our tables?
 * To read one in WAL mode SQLite makes a log, which it must delete again if the
 * database is refused.  A log that a crash has left stays. */
static int schema_look_inside(store *s, enum schema_kind *kind) {
  zke_file log;
  int format;
  const char *name = sqlite3_db_filename(s->db, "main");
  bool alone = host_stat(s, sqlite3_filename_wal(name), &log) == -ENOENT;
  int rc = schema_read_format(s, &format);
  if (format > 0) {
    *kind = SCHEMA_HOSTED;
    if (format != ZKE_FORMAT)
      *kind = format > ZKE_FORMAT ? SCHEMA_NEWER : SCHEMA_OLDER;
  } else if (alone && rc == ZKE_OK) {
    sql_keep_log(s->db, false);
  }
  return rc;
}

/* Look at the file's header once.  If the file is truncated between the reading
 * of its length and of its header, the answer is SCHEMA_NO_DATABASE.
 *
 * A power cut during a creation can leave anything there, zeros or what the
 * disk had before.  So if a header is not SQLite's, the journal decides. */
static int schema_look_at_header(store *s, sqlite3_file *file,
                                 enum schema_kind *kind) {
  sqlite3_int64 size = 0;
  unsigned char head[100];
  int rc = file->pMethods->xFileSize(file, &size);
  if (rc != SQLITE_OK) return sql_error(s, rc, "reading the header");
  *kind = size == 0 ? SCHEMA_EMPTY : SCHEMA_NO_DATABASE;
  if (size < (sqlite3_int64)sizeof head) return ZKE_OK;
  rc = file->pMethods->xRead(file, head, sizeof head, 0);
  if (rc == SQLITE_IOERR_SHORT_READ) return ZKE_OK;
  if (rc != SQLITE_OK) return sql_error(s, rc, "reading the header");
  uint32_t format = base_big_endian(head + 60);
  if (memcmp(head, "SQLite format 3", 16) != 0) {
    bool unfinished;
    rc = schema_is_unfinished(s, &unfinished);
    *kind = unfinished ? SCHEMA_UNFINISHED : SCHEMA_NO_DATABASE;
    return rc;
  }
  if (base_big_endian(head + 68) != ZKE_APPLICATION_ID)
    *kind = SCHEMA_STRANGER;
  else if (format != ZKE_FORMAT)
    *kind = format > ZKE_FORMAT ? SCHEMA_NEWER : SCHEMA_OLDER;
  else
    *kind = SCHEMA_OURS;
  return ZKE_OK;
}

/* Look at the file's header through SQLite's own descriptor.  Reading the
 * database in another way would make a -shm next to a foreign file, or drop
 * SQLite's locks when the descriptor is closed.  If a file is only ours, its
 * header is never in the write-ahead log: the identifying fields are written
 * before WAL mode is switched on, and do not change.
 *
 * A file that seems to be no database gets a second look.  Another process may
 * have rolled back a creation during the first one: it truncates the file, and
 * then deletes the journal. */
static int schema_read_header(store *s, enum schema_kind *kind) {
  sqlite3_file *file = NULL;
  int rc =
      sqlite3_file_control(s->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  /* every connection has a "main"; but a URI may have named no file */
  if (NEVER(rc != SQLITE_OK) || !file->pMethods)
    return sql_error(s, SQLITE_CANTOPEN, "opening");
  rc = schema_look_at_header(s, file, kind);
  if (rc != ZKE_OK || *kind != SCHEMA_NO_DATABASE) return rc;
  return schema_look_at_header(s, file, kind);
}

/* Find out what the file is, without writing to it. */
static int schema_recognise(store *s, enum schema_kind *kind) {
  int rc = schema_read_header(s, kind);
  if (rc != ZKE_OK || *kind != SCHEMA_STRANGER) return rc;
  return schema_look_inside(s, kind);
}

/* The outbox: tables and triggers that move a program's rows to the tree after
 * their commit.  Others make and write them (format.md).  Here only their names
 * are known: they are no obstacle, and are dropped with our tables. */
#define SCHEMA_OUTBOX "name LIKE 'zkembed!_outbox%' ESCAPE '!'"

/* How many triggers and views of the program refer to names of ours? */
static int schema_count_triggers(store *s, int64_t *count) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(
      s->db,
      "SELECT count(*)FROM sqlite_schema WHERE(type='trigger' AND "
      "NOT " SCHEMA_OUTBOX
      " OR type='view' AND name NOT LIKE 'zke!_%' ESCAPE '!')"
      "AND(sql LIKE '%zkembed!_%' ESCAPE '!' OR sql LIKE '%zke!_%' ESCAPE '!')",
      -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  *count = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
  sqlite3_finalize(st);
  return rc == SQLITE_ROW ? ZKE_OK : sql_error(s, rc, "looking for triggers");
}

/* Drop the outbox, its triggers first. */
static int schema_drop_outbox(store *s) {
  sqlite3_stmt *st = NULL;
  char *drop = NULL;
  int rc = sqlite3_prepare_v2(
      s->db,
      "SELECT group_concat('DROP '||type||' \"'||replace(name,'\"','\"\"')||"
      "'\"',';')FROM(SELECT type,name FROM sqlite_schema WHERE type IN("
      "'trigger','table')AND " SCHEMA_OUTBOX "ORDER BY type DESC)",
      -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  if (rc == SQLITE_ROW)
    drop = sqlite3_mprintf("%s", sqlite3_column_text(st, 0));
  sqlite3_finalize(st);
  if (rc != SQLITE_ROW) return sql_error(s, rc, "looking for the outbox");
  rc = drop ? sql_exec(s, drop, "dropping the outbox") : base_nomem();
  sqlite3_free(drop);
  return rc;
}

/* Are the texts of the database UTF-8?  Paths are compared byte by byte. */
static int schema_is_utf8(store *s, bool *yes) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(s->db, "PRAGMA encoding", -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  const char *name =
      rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
  *yes = name && strcmp(name, "UTF-8") == 0;
  sqlite3_finalize(st);
  return rc == SQLITE_ROW ? ZKE_OK : sql_error(s, rc, "reading the encoding");
}

/* Refuse a database with a table, an index or a view that has a name like ours.
 */
static int schema_refuse_names(store *s) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(
      s->db,
      "SELECT type||' '||name FROM sqlite_schema WHERE type<>'trigger'AND(name "
      "LIKE 'zkembed!_%' ESCAPE '!' OR name LIKE 'zke!_%' ESCAPE '!')AND "
      "NOT " SCHEMA_OUTBOX " LIMIT 1",
      -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  if (rc == SQLITE_ROW) {
    const char *what = (const char *)sqlite3_column_text(st, 0);
    base_say(
        "%s: the program's %s already exists, and names that begin like "
        "that are zkembed's",
        s->name, what ? what : "table");
  }
  sqlite3_finalize(st);
  if (rc == SQLITE_ROW) return ZKE_NOTADB;
  return rc == SQLITE_DONE ? ZKE_OK : sql_error(s, rc, "looking for names");
}

/* Refuse a program's database that cannot hold our tables.  Without the gate,
 * another process may have made them since the look at the file: then the names
 * are ours, and *kind says so. */
static int schema_accept_host(store *s, enum schema_kind *kind) {
  char cause[BASE_SENTENCE];
  bool utf8 = false;
  int rc = schema_is_utf8(s, &utf8);
  if (rc != ZKE_OK) return rc;
  if (!utf8) {
    return base_fail(ZKE_NOTADB,
                     "%s stores its texts as UTF-16, but zkembed needs UTF-8",
                     s->name);
  }
  rc = schema_refuse_names(s);
  if (rc != ZKE_NOTADB) return rc;
  base_save(cause);
  rc = schema_look_inside(s, kind);
  if (rc != ZKE_OK || *kind != SCHEMA_STRANGER) return rc;
  base_restore(cause);
  return ZKE_NOTADB;
}

/* Refuse a file that is not ours and cannot become ours.  Others may use an
 * accepted file, too: from here on SQLite must not copy its log without the
 * gate when it closes. */
static int schema_accept(store *s, enum schema_kind kind) {
  if (kind == SCHEMA_NO_DATABASE)
    return base_fail(ZKE_NOTADB, "%s is not a zkembed database", s->name);
  if (kind == SCHEMA_STRANGER && !s->host) {
    return base_fail(ZKE_NOTADB,
                     "%s is another program's database, without the tables of "
                     "zkembed, which ZKE_OPEN_HOST would put there",
                     s->name);
  }
  int rc = kind == SCHEMA_STRANGER ? schema_accept_host(s, &kind) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  if (kind == SCHEMA_OLDER) {
    return base_fail(
        ZKE_NOTADB,
        "%s was written by an older zkembed (format below %d), from "
        "before the first release: export it with that one, and import it",
        s->name, ZKE_FORMAT);
  }
  if (kind == SCHEMA_NEWER) {
    return base_fail(ZKE_NEWERFORMAT,
                     "%s was written by a newer zkembed (format above %d): "
                     "open it with that version or a later one",
                     s->name, ZKE_FORMAT);
  }
  /* by the header, which has been read now; BEGIN IMMEDIATE would only read */
  if (!s->readonly && sqlite3_db_readonly(s->db, "main") == 1) {
    return base_fail(ZKE_READONLY,
                     "%s cannot be written: its header asks for a later SQLite",
                     s->name);
  }
  sql_keep_log(s->db, true);
  return ZKE_OK;
}

/* ======================================================================
 * db_: the connection (private)
 *
 * The connection to the database: opening it, beginning to read and to write,
 * what a COMMIT relies on, checkpoints, compaction.  It knows no rule of the
 * tree.
 *
 * At most one transaction is open on a store's connection.  Three states:
 *
 *   none     autocommit; a statement would be a transaction by itself
 *   reading  after db_begin_read(); may stay open after the call (index.open)
 *   writing  after db_begin_write(), with the gate held; ended by txn_
 *
 * To change the state, call db_end() first; it costs nothing if nothing is
 * open.  Checkpoints and compaction are made only with the gate held (P12).
 *
 * Start reading at db_begin_read() and db_read_stands().
 * ==================================================================== */

SQL_STATEMENT(BEGIN_READ, "BEGIN");
SQL_STATEMENT(BEGIN_WRITE, "BEGIN IMMEDIATE");
SQL_STATEMENT(COMMIT, "COMMIT");
SQL_STATEMENT(ROLLBACK, "ROLLBACK");

/* End the open transaction, either ours that failed or a read that was kept.
 * The statement is prepared with the connection, so it needs no memory.  If it
 * still fails, the next call tries again before anything else. */
static int db_end(store *s) {
  s->index.lockless = s->index.open = s->writing = false;
  if (!s->db || sqlite3_get_autocommit(s->db)) return ZKE_OK;
  int rc = sql_do(s, SQL_ROLLBACK);
  return sqlite3_get_autocommit(s->db) ? ZKE_OK : rc;
}

/* Begin to read one state of the database, the current one.  When everything is
 * read, call db_read_stands(); if it returns false, do both again.
 *
 * If a read is already open and nothing was committed since, this costs a look
 * at the header and no call of SQLite: the usual case of a process that reads
 * much.  Otherwise the old read is ended, and the new one takes no locks if
 * that is possible. */
static int db_begin_read(store *s) {
  REQUIRE(LOCK_HELD(s));
  shm_index *x = &s->index;
  if (x->open && shm_is_current(s)) return ZKE_OK;
  int rc = db_end(s);
  if (rc != ZKE_OK) return rc;
  if (x->distrust)
    x->distrust--;
  else
    shm_go_lockless(s);
  if (x->lockless)
    shm_follow(x, x->began);
  else
    shm_lose_track(x);
  rc = sql_do(s, SQL_BEGIN_READ);
  x->open = rc == ZKE_OK && (x->lockless || s->memory);
  x->number++;
  return rc;
}

/* Make SQLite read the tables' definitions again, if a read that must be
 * repeated may have read them.  A foreign program may have changed them in
 * between: SQLite would then have the new schema number with the old text, and
 * never look again.  They can have been read only if a statement was
 * re-prepared, or failed. */
static void db_forget_schema(store *s) {
  int rc = sqlite3_errcode(s->db) & 0xff;
  bool read = rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE;
  for (int i = 0; i < SQL_COUNT; i++) {
    sqlite3_stmt *st = s->statement[i];
    read |= st && sqlite3_stmt_status(st, SQLITE_STMTSTATUS_REPREPARE, true);
  }
  if (read)
    sqlite3_exec(s->db, "PRAGMA writable_schema=RESET", NULL, NULL, NULL);
}

/* Begin to write.  SQLite reads a page before it has the writers' lock.  If
 * this fails and a foreign program has changed the database meanwhile, begin
 * again under SQLite's read lock. */
static int db_begin_write(store *s) {
  REQUIRE(LOCK_HELD(s));
  shm_go_lockless(s);
  int rc = sql_do(s, SQL_BEGIN_WRITE);
  if (rc != ZKE_OK && s->index.lockless && !shm_is_current(s)) {
    db_forget_schema(s);
    rc = db_end(s);
    if (rc == ZKE_OK) rc = sql_do(s, SQL_BEGIN_WRITE);
  }
  s->writing = rc == ZKE_OK;
  return rc;
}

/* Is the read of that number still open, and what it reads current?  Then
 * whatever was found out in it still holds, such as that the session's row
 * existed. */
static bool db_read_holds(const store *s, int64_t number) {
  return s->index.open && s->index.number == number && shm_is_current(s);
}

/* Does everything that was read belong to one state?  Under locks it always is.
 * Without, the header must be the one with which the read began.  Then the read
 * stays open for the next one.  If this returns false, the read is ended,
 * nothing of it may be used, and the caller begins again, under locks. */
static bool db_read_stands(store *s) {
  bool lockless = s->index.open;
  if (lockless && shm_is_current(s)) return true;
  if (lockless) {
    s->index.distrust = SHM_DISTRUST;
    db_forget_schema(s);
  }
  db_end(s);
  return !lockless;
}

/* Bytes of a row besides a value, at most: SQLite's limit is for both. */
enum { DB_ROW_MORE = 100 };

/* Connect, without reading or writing anything yet.  It is not known yet what
 * the file is, so the log stays when the connection is closed, whoever owns it.
 * The limit of values is lowered to what SQLite accepts. */
static int db_connect(store *s, bool create) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
              (s->readonly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
  if (create) flags |= SQLITE_OPEN_CREATE;
  int rc = ZKE_OK;
  if (!s->memory)
    rc = vfs_connect(s, flags);
  else if (sqlite3_open_v2(":memory:", &s->db, flags, NULL) != SQLITE_OK)
    rc = sql_error(s, SQLITE_NOMEM, "opening");
  if (rc != ZKE_OK) return rc;
  int most = sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, -1) - DB_ROW_MORE;
  s->data_limit = (int)base_max(0, base_min(s->data_limit, most));
  sqlite3_extended_result_codes(s->db, 1);
  sql_keep_log(s->db, true);
  sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
  if (!s->readonly && sqlite3_db_readonly(s->db, "main") == 1)
    return base_fail(ZKE_READONLY, "%s cannot be written", s->name);
  sqlite3_busy_handler(s->db, sql_busy, s);
  return app_configure(s);
}

/* Ending a transaction must not need memory at that moment: prepare the
 * statements as soon as the schema exists. */
static int db_prepare_ends(store *s) {
  int rc;
  if (sql_statement(s, SQL_COMMIT, &rc)) sql_statement(s, SQL_ROLLBACK, &rc);
  return rc;
}

/* Set up every connection (doc/design.md 8).  Only we make checkpoints, since
 * SQLite would make them without the gate.  synchronous is FULL, and stays so:
 * wal_sync() leaves out what need not be synced. */
static int db_configure(store *s) {
  char sql[320];
  sqlite3_wal_autocheckpoint(s->db, 0);
  sqlite3_wal_hook(s->db, shm_on_commit, s);
  snprintf(sql, sizeof sql,
           "PRAGMA cache_size=-%d;PRAGMA temp_store=MEMORY;"
           "PRAGMA secure_delete=OFF;PRAGMA mmap_size=0;"
           "PRAGMA synchronous=FULL;",
           s->cache_kib);
  return sql_exec(s, sql, "configuring");
}

/* SQLite reports the journal mode that it has set. */
static int db_note_mode(void *arg, int columns, char **values, char **names) {
  (void)columns, (void)names;
  /* the pragma returns the mode, a text */
  *(bool *)arg = ALWAYS(values[0]) && strcmp(values[0], "wal") == 0;
  return 0;
}

/* Switch to write-ahead logging.  SQLite may return SQLITE_BUSY without asking
 * the handler, so retry until the deadline.  The log stays when the last
 * connection closes, since SQLite would empty it without the gate. */
static int db_enter_wal(store *s) {
  sql_keep_log(s->db, true);
  for (int tries = 0;; tries++) {
    bool wal = false;
    int rc = sqlite3_exec(s->db, "PRAGMA journal_mode=WAL", db_note_mode, &wal,
                          NULL);
    if (rc == SQLITE_OK && wal) return ZKE_OK;
    if (rc == SQLITE_OK) {
      return base_fail(ZKE_CANTOPEN,
                       "%s: its SQLite VFS cannot do write-ahead logging",
                       s->name);
    }
    if ((rc & 0xff) != SQLITE_BUSY || !sql_busy(s, tries))
      return sql_error(s, rc, "switching to write-ahead logging");
  }
}

/* Finalize all statements; each is prepared again at its next use. */
static void db_finalize(store *s) {
  for (int i = 0; i < SQL_COUNT; i++) {
    sqlite3_finalize(s->statement[i]);
    s->statement[i] = NULL;
  }
}

/* Close the connection.  What was not committed is lost.  The next connection
 * prepares its statements again. */
static void db_disconnect(store *s) {
  db_finalize(s);
  sqlite3_close(s->db);
  s->db = NULL;
}

/* Sync the log as it is, through SQLite's own descriptor.  An empty log has
 * nothing to lose: its contents are in the database. */
static int db_sync_log(store *s) {
  sqlite3_file *f = s->wal_log.file.f; /* open since the first read */
  sqlite3_int64 size = 0;
  int rc = f ? f->pMethods->xFileSize(f, &size) : SQLITE_OK;
  if (rc == SQLITE_OK && size > 0)
    rc = f->pMethods->xSync(f, SQLITE_SYNC_NORMAL);
  if (rc == SQLITE_OK) return ZKE_OK;
  return base_fail(ZKE_SYSTEMERROR, "%s: syncing the log: %s (SQLite %d)",
                   s->name, sqlite3_errstr(rc), rc);
}

/* The same for a log whose sync may have failed before, here or in a process
 * that has ended: all of it is rewritten, and then everybody can rely on it
 * again.  In a transaction that has written nothing yet: meanwhile nobody else
 * syncs the log or changes the word. */
static int db_renew_log(store *s) {
  REQUIRE(WRITING(s));
  int sqlite_rc = wal_renew(&s->wal_log, shm_log_end(s));
  if (sqlite_rc != SQLITE_OK)
    return base_fail(sql_code(sqlite_rc),
                     "%s: renewing the log: %s (SQLite %d)", s->name,
                     sqlite3_errstr(sqlite_rc), sqlite_rc);
  int rc = db_sync_log(s);
  if (rc == ZKE_OK) wal_note_doubt(s, false);
  return rc;
}

/* A transaction only for that, with the gate held. */
static int db_renew_log_apart(store *s) {
  REQUIRE(GATE_HELD(s));
  int rc = db_begin_write(s);
  if (rc == ZKE_OK) rc = db_renew_log(s);
  int ended = db_end(s);
  return rc == ZKE_OK ? ended : rc;
}

/* Before a commit relies on the log, rewrite it if a process has died in a sync
 * of it, which may have failed, or if another store must still recover from a
 * failed one.  The transaction must have written nothing yet. */
static int db_trust_log(store *s) {
  REQUIRE(WRITING(s));
  int rc = wal_read_doubt(s) ? db_renew_log(s) : ZKE_OK;
  s->wal_log.trusted = rc == ZKE_OK;
  return rc;
}

/* The same before an operation outside a transaction of this connection. */
static int db_trust_log_apart(store *s) {
  return wal_read_doubt(s) ? db_renew_log_apart(s) : ZKE_OK;
}

/* Copy the log into the database, so the next writer restarts the log.  Only
 * with the gate held: in SQLite up to 3.51.2 a checkpoint that races a writer
 * can drop commits (P12).  shm_must_not_copy() keeps it apart from writers that
 * do not use the gate.
 *
 * The log keeps its length, since the sync of a growing file costs another
 * journal commit of the file system.  It is truncated if it has become too long
 * or the caller asks for it.  If a reader or a foreign writer is in the way,
 * this waits for a moment, if the call may wait at all (not with a deadline of
 * 0).  If that does not help, the log is left to grow and the result is
 * ZKE_OPERATIONTIMEOUT. */
static int db_checkpoint(store *s, bool truncate) {
  REQUIRE(GATE_HELD(s));
  int64_t deadline = s->deadline;
  bool late = s->wal_pages > ZKE_CHECKPOINT_PAGES + ZKE_CHECKPOINT_RETRY_PAGES;
  int64_t patience = ZKE_CHECKPOINT_WAIT_MS * (late ? 4 : 1);
  if (s->deadline)
    s->deadline = host_now(s) + base_min(patience * ZKE_MS, s->busy);
  truncate = truncate || s->wal_pages > 2 * ZKE_CHECKPOINT_PAGES;
  int trusted = db_trust_log_apart(s), rc = SQLITE_OK;
  if (trusted == ZKE_OK)
    rc = sqlite3_wal_checkpoint_v2(
        s->db, "main",
        truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART, NULL,
        NULL);
  s->deadline = deadline;
  if (trusted == ZKE_OK && rc == SQLITE_OK) {
    s->wal_pages = 0;
    s->wal_limit = ZKE_CHECKPOINT_PAGES;
    return ZKE_OK;
  }
  s->wal_limit = s->wal_pages +
                 (int)base_max(ZKE_CHECKPOINT_RETRY_PAGES, s->wal_pages / 8);
  if (trusted != ZKE_OK) return trusted;
  if ((rc & 0xff) != SQLITE_BUSY) return sql_error(s, rc, "checkpointing");
  host_log(s, ZKE_LOG_WARN,
           "%s: a reader, or a writer that is not zkembed's, keeps the "
           "write-ahead log at %d pages",
           s->name, s->wal_pages);
  return base_fail(ZKE_OPERATIONTIMEOUT,
                   "%s: a reader, or a writer that is not zkembed's, is in the "
                   "way of a checkpoint",
                   s->name);
}

/* Rewrite the database, without the pages that removed rows have left: a
 * transaction of SQLite's own, which puts each page into the log.  It builds
 * the new content in a temporary file, not in memory.  It opens that file
 * through a VFS that it looks up by name, so ours is in its list meanwhile.
 * Afterwards temp_store must be set back, and each statement is prepared again.
 * Only with the gate held.  Returns a SQLite code; a quota that is used up
 * counts as a full disk, as for the log (wal_put()). */
static int db_vacuum(store *s) {
  REQUIRE(GATE_HELD(s));
  db_finalize(s);
  int rc = sqlite3_exec(s->db, "PRAGMA temp_store=FILE", NULL, NULL, NULL);
  if (rc != SQLITE_OK) return rc;
  sqlite3_vfs_register(&s->vfs_own, 0);
  rc = sqlite3_exec(s->db, "VACUUM", NULL, NULL, NULL);
  sqlite3_vfs_unregister(&s->vfs_own);
  bool unwritten = sqlite3_extended_errcode(s->db) == SQLITE_IOERR_WRITE;
  if (rc != SQLITE_OK && unwritten && sqlite3_system_errno(s->db) == EDQUOT)
    return SQLITE_FULL;
  return rc;
}

/* ======================================================================
 * side_: the directory next to the database (private)
 *
 * The directory next to the database, <name>-zke/, and the files in it.  None
 * holds what a database needs: they tell which sessions live, and wake
 * sleepers.  After the host's next boot only numbers in `live` have a meaning.
 *
 *   gate     lock bytes: the gate (from SIDE_GATE), the duty (SIDE_DUTY)
 *   line     lock bytes: places of processes that wait for the gate; see line_
 *   live     numbers: last sweep, last zxid, leases' stamps; also lives, if no
 *            other file can hold them
 *   live.XX  lock bytes: lives of sessions, at offset = session id; see life_
 *   (16 hex digits)  the FIFO of that session; see wake_
 *
 * A lock byte is only locked, never written: the files stay empty there.  There
 * are so many files because at each call the kernel looks through all locks of
 * a file, and places and lives are many.
 *
 * The numbers in the liveness file are hints and never synced: the time of the
 * last sweep, the highest zxid so far (a database that is behind was restored
 * from a backup), when a session with a lease last called in.  A process that
 * cannot write one continues without.  Two numbers are more than hints: whether
 * the log is in doubt (wal_note_doubt()), and where the last epoch begins,
 * which is synced (side_note_epoch()).
 *
 * Nobody can redirect the files: links are not followed, and an existing file
 * is never recreated.  They have the database's mode and, as far as this
 * process is allowed to set them, its owner and group.
 * ==================================================================== */

/* The gate is the bytes before the duty's.  Its holder locks as many of them,
 * from the first on, as its number says, so the lock tells whose it is. */
enum { SIDE_GATE = 0 };
#define SIDE_DUTY (INT64_C(1) << 62)

/* Where the hints are in the liveness file; WAL_DOUBT_AT and WAL_NAME_AT are
 * there, too. */
enum {
  SIDE_SWEEP_AT = 8,   /* boottime of the last sweep, ns */
  SIDE_ZXID_AT = 16,   /* zxid of the last change */
  SIDE_FILES_AT = 24,  /* which files that sweep has checked */
  SIDE_EPOCH_AT = 112, /* zxid at which the last epoch begins; 0: the first */
  SIDE_SLOTS_AT = 4096 /* leases' stamps: see lease_ */
};

/* Add search permission for everybody with read permission. */
static unsigned side_directory_mode(unsigned mode) {
  return mode | (mode & 0444u) >> 2;
}

/* Give a side file that was just made the database's mode and owner. */
static int side_adopt(store *s, int fd, unsigned mode) {
  return s->os.adopt(s->os.context, fd, mode, s->file_id.uid, s->file_id.gid);
}

/* Open an existing path, even if its mode locks out its owner: a umask has
 * reduced the mode, or its maker died before setting it.  Then the owner's
 * permission is added; the rest is left to side_adopt() and life_follow_mode().
 * Returns a descriptor or -errno. */
static int side_enter(store *s, const char *path, int flags) {
  zke_file is;
  int fd = fd_open(s, path, flags | O_NOFOLLOW, 0);
  if (fd != -EACCES || host_stat(s, path, &is) < 0) return fd;
  unsigned mode = is.mode | (is.type == ZKE_FILE_DIRECTORY ? 0700u : 0600u);
  if (mode == is.mode || s->os.share(s->os.context, path, mode, is.gid) < 0)
    return fd;
  return fd_open(s, path, flags | O_NOFOLLOW, 0);
}

/* Open a side file, making it if it is missing.  It is opened first without
 * O_CREAT, and made with O_EXCL only if there is none: so we know whether we
 * have made it and must set its mode.  A symbolic link is not followed.  If
 * another process makes or removes the file between the two calls, both are
 * tried again. */
static int side_open_file(store *s, const char *path, int *fd, zke_file *id) {
  int flags = O_RDWR | O_NOFOLLOW | O_CREAT | O_EXCL;
  for (int tries = 0; tries < 3; tries++) {
    *fd = side_enter(s, path, O_RDWR);
    if (*fd != -ENOENT) break;
    *fd = fd_open(s, path, flags, s->file_id.mode);
    if (*fd >= 0) side_adopt(s, *fd, s->file_id.mode);
    if (*fd != -EEXIST) break;
  }
  int rc = *fd < 0 ? *fd : host_fstat(s, *fd, id);
  if (rc < 0) return host_fail(rc, "cannot open", path);
  if (id->type == ZKE_FILE_REGULAR) return ZKE_OK;
  return base_fail(ZKE_CANTOPEN, "%s is not a file", path);
}

/* Open the side directory, making it if it is missing, and the files in it.  A
 * link to a directory is refused: its owner could redirect the files.  If
 * several processes come at the same time, only the one that made it sets its
 * mode. */
static int side_open(store *s) {
  unsigned mode = side_directory_mode(s->file_id.mode);
  int made = s->os.mkdir(s->os.context, s->dir, mode);
  bool there = made >= 0 || made == -EEXIST;
  int fd = there ? side_enter(s, s->dir, O_RDONLY | O_DIRECTORY) : made;
  int rc = fd < 0 ? fd : 0;
  if (fd >= 0 && made == 0) rc = side_adopt(s, fd, mode);
  fd_close(s, &fd);
  if (rc == -ENOTDIR || rc == -ELOOP)
    return base_fail(ZKE_CANTOPEN, "%s is not a directory", s->dir);
  if (rc < 0)
    return host_fail(rc, there ? "cannot open" : "cannot make", s->dir);
  rc = side_open_file(s, s->gate, &s->gate_fd, &s->gate_id);
  if (rc == ZKE_OK) rc = side_open_file(s, s->line, &s->line_fd, &s->line_id);
  if (rc == ZKE_OK) rc = side_open_file(s, s->live, &s->live_fd, &s->live_id);
  return rc;
}

/* Take or drop a lock byte of the gate file without waiting: 0, -EAGAIN if
 * another process has it, or another -errno. */
static int side_lock_byte(store *s, int64_t byte, bool on) {
  return s->os.lock_range(s->os.context, s->gate_fd, byte, 1,
                          on ? ZKE_LOCK_EXCLUSIVE : ZKE_LOCK_NONE);
}

/* Is the liveness file still the one that was opened? */
static bool side_live_is_ours(const store *s) {
  zke_file now;
  return host_stat(s, s->live, &now) == 0 && host_same_file(&now, &s->live_id);
}

/* If a file next to the database does not have the mode or group that it should
 * have, set them, as far as this process is allowed to.  True if that was done.
 */
static bool side_follow_mode(store *s, const char *path, unsigned mode) {
  void *c = s->os.context;
  zke_file is;
  if (host_stat(s, path, &is) < 0) return false;
  bool shared = !(mode & 0070u) || is.gid == s->file_id.gid;
  if (is.mode == mode && shared) return false;
  return s->os.share(c, path, mode, s->file_id.gid) == 0;
}

/* Read from the liveness file, as pread(); a read-only handle may have none. */
static int64_t side_read(store *s, void *out, size_t size, int64_t at) {
  if (s->live_fd < 0) return -EBADF;
  return s->os.pread(s->os.context, s->live_fd, out, size, at);
}

/* A hint in the liveness file, a number at an offset; -1 if it cannot be read.
 */
static int64_t side_read_hint(store *s, int64_t at) {
  int64_t stamp = 0;
  int64_t n = side_read(s, &stamp, sizeof stamp, at);
  return n == (int64_t)sizeof stamp ? stamp : -1;
}

/* Write such a number.  False if that failed; the caller continues without it,
 * since these numbers are only hints. */
static bool side_write_hint(store *s, int64_t at, int64_t stamp) {
  return s->os.pwrite(s->os.context, s->live_fd, &stamp, sizeof stamp, at) ==
         (int64_t)sizeof stamp;
}

/* Read the highest zxid so far, and where the last epoch begins; 0: the file is
 * new and does not know. */
static int side_read_known(store *s, int64_t *known, int64_t *epoch) {
  *known = *epoch = 0;
  int64_t n = side_read(s, known, sizeof *known, SIDE_ZXID_AT);
  if (n >= 0) n = side_read(s, epoch, sizeof *epoch, SIDE_EPOCH_AT);
  return n < 0 ? host_fail((int)n, "cannot read", s->live) : ZKE_OK;
}

/* Note an epoch in the file before it gives its first zxid.  A power cut can
 * undo the note of the highest zxid, but not this one; so a backup that is
 * restored afterwards begins a later epoch. */
static int side_note_epoch(store *s, int64_t zxid) {
  int64_t n = s->os.pwrite(s->os.context, s->live_fd, &zxid, sizeof zxid,
                           SIDE_EPOCH_AT);
  int rc = n < 0 ? (int)n : n < (int64_t)sizeof zxid ? -EIO : 0;
  if (rc == 0) rc = s->os.fsync(s->os.context, s->live_fd);
  return rc < 0 ? host_fail(rc, "cannot write", s->live) : ZKE_OK;
}

/* ======================================================================
 * carrier_: what sessions share (private)
 *
 * A carrier has the lock, the FIFO, the poller and the timer of one session or,
 * with light sessions, of many.  This section keeps three things: a list of the
 * light sessions at which the next dispatch looks (the ready list), a heap of
 * all of them by the time of their next look, and the clock for the timeouts of
 * kept sessions.  So a dispatch spends no time on a session that has nothing to
 * do.
 *
 * List and heap are guarded by the lock's mutex, because an alarm or a discard
 * enters them without the store's lock.  A function with a name that ends in _m
 * must be called with the mutex held.  The session for which a carrier was made
 * is in neither: each dispatch looks at it.
 *
 * A time in the heap may be too early, never too late.  If a session's time is
 * put off, its place in the heap stays: the look at the old time finds that it
 * is not due yet, and gives it its new place.
 * ==================================================================== */

/* Does a session live by the lock of another, and share its descriptors? */
static bool carrier_is_light(const zke *z) { return z->carrier_id != 0; }

/* Take a session out of the ready list, if it is in it. */
static void carrier_unready_m(zke *z) {
  REQUIRE(MUTEX_HELD(z->s));
  if (!z->ready_at) return;
  *z->ready_at = z->ready_next;
  if (z->ready_next)
    z->ready_next->ready_at = z->ready_at;
  else
    z->c->ready_end = z->ready_at;
  z->ready_at = NULL;
}

/* A light session must be looked at: put it at the list's end. */
static void carrier_ready(zke *z) {
  if (!carrier_is_light(z)) return;
  pthread_mutex_lock(&z->s->m);
  if (!z->ready_at) {
    z->ready_next = NULL;
    z->ready_at = z->c->ready_end;
    *z->ready_at = z;
    z->c->ready_end = &z->ready_next;
  }
  pthread_mutex_unlock(&z->s->m);
}

/* Take the first of the list; NULL: it is empty. */
static zke *carrier_take_ready(struct carrier *c) {
  pthread_mutex_lock(&c->s->m);
  zke *z = c->ready;
  if (z) carrier_unready_m(z);
  pthread_mutex_unlock(&c->s->m);
  return z;
}

/* How many are in the list. */
static size_t carrier_count_ready(struct carrier *c) {
  size_t n = 0;
  pthread_mutex_lock(&c->s->m);
  for (const zke *z = c->ready; z; z = z->ready_next) n++;
  pthread_mutex_unlock(&c->s->m);
  return n;
}

/* ---- the heap ---- */

/* Put a session at a place of the heap. */
static void carrier_place_m(struct carrier *c, size_t at, zke *z) {
  REQUIRE(MUTEX_HELD(c->s));
  c->due[at] = z;
  z->due_place = at;
}

/* Move a session to its place in the heap, after its time was changed. */
static void carrier_sift_m(struct carrier *c, zke *z) {
  REQUIRE(MUTEX_HELD(c->s));
  size_t at = z->due_place;
  while (at && c->due[(at - 1) / 2]->due_at > z->due_at) {
    carrier_place_m(c, at, c->due[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (size_t child; (child = 2 * at + 1) < c->due_count; at = child) {
    if (child + 1 < c->due_count &&
        c->due[child + 1]->due_at < c->due[child]->due_at)
      child++;
    if (c->due[child]->due_at >= z->due_at) break;
    carrier_place_m(c, at, c->due[child]);
  }
  carrier_place_m(c, at, z);
}

/* Make room in the heap for one more; false if memory ran out.  Threads that
 * hold only the mutex, not the store's lock, move sessions in the heap, so the
 * new block replaces the old one under the mutex. */
static bool carrier_room(struct carrier *c) {
  if (c->due_count < c->due_cap) return true;
  size_t cap = c->due_cap ? c->due_cap * 2 : 16;
  zke **due = mem_zero(&c->s->a, cap * sizeof(zke *));
  if (!due) return false;
  pthread_mutex_lock(&c->s->m);
  zke **before = c->due;
  for (size_t i = 0; i < c->due_count; i++) due[i] = before[i];
  c->due = due;
  c->due_cap = cap;
  pthread_mutex_unlock(&c->s->m);
  mem_free(before);
  return true;
}

/* ---- the carrier's time ---- */

/* The carrier's time, ns: it advances while the carrier dispatches.  A gap of
 * more than `longest` between two dispatches means that the carrier stood
 * still; the rest of the gap does not count for its kept sessions.  A waiting
 * carrier looks once a tick. */
static int64_t carrier_clock(const struct carrier *c, int64_t now) {
  int64_t longest = TICK_PLAIN * 3 / 2;
  int64_t passed = now - atomic_load(&c->clock_at);
  return atomic_load(&c->clock) + base_max(base_min(passed, longest), 0);
}

/* The carrier dispatches: let its time advance.  With this order of writes, a
 * concurrent zke_touch() of another thread gets a time that is too late, never
 * too early: it must not shorten a timeout. */
static void carrier_advance(struct carrier *c, int64_t now) {
  int64_t clock = carrier_clock(c, now);
  atomic_store(&c->clock, clock);
  atomic_store(&c->clock_at, now);
}

/* A kept session has been heard from.  If several threads do this, the latest
 * time counts, not the last write. */
static void carrier_touch(zke *z) {
  if (!z->timeout) return;
  int64_t at = carrier_clock(z->c, host_now(z->s));
  int_fast64_t was = atomic_load(&z->heard);
  while (was < at && !atomic_compare_exchange_weak(&z->heard, &was, at)) {
  }
}

/* How long until a kept session expires unless it is heard from, ns; below 0:
 * it has expired. */
static int64_t carrier_time_left(const zke *z, int64_t now) {
  return atomic_load(&z->heard) + z->timeout - carrier_clock(z->c, now);
}

/* Can this handle's kept session be ended by its timeout?  A failed
 * authentication ends what the handle can do, but not the session. */
static bool carrier_is_timed(const zke *z) {
  if (!z->timeout || z->row_gone) return false;
  return z->state == SESS_ALIVE || z->state == SESS_AUTH_FAILED;
}

enum { CARRIER_RETRY_MS = 10 }; /* after a failure */

/* When a session itself needs the next look, monotonic ns. */
static int64_t carrier_due_at(const zke *z) {
  int64_t at = INT64_MAX, now = host_now(z->s);
  if (carrier_is_timed(z)) {
    int64_t left = carrier_time_left(z, now);
    if (left < 0) left = CARRIER_RETRY_MS * ZKE_MS; /* its end failed */
    at = base_later(now, base_later(left, 1));
  }
  if (z->state != SESS_ALIVE) return at;
  at = base_min(at, atomic_load(&z->alarm_at));
  if (atomic_load(&z->owes)) at = base_min(at, z->discard_at);
  if (z->lease) {
    int64_t due =
        base_max(z->lease_at + z->lease / LEASE_RENEWALS, z->lease_retry);
    at = base_min(at, now + base_max(due - host_boottime(z->s), 0));
  }
  return at;
}

#define CARRIER_NO_PLACE SIZE_MAX /* zke.due_place: not in the heap */

/* Look at a light session at this time, or sooner. */
static void carrier_sooner_m(zke *z, int64_t at) {
  REQUIRE(MUTEX_HELD(z->s));
  if (z->due_place == CARRIER_NO_PLACE || z->due_at <= at) return;
  z->due_at = at;
  carrier_sift_m(z->c, z);
}

/* A light session has been looked at: compute the time of the next look. */
static void carrier_schedule(zke *z) {
  pthread_mutex_lock(&z->s->m);
  if (z->due_place != CARRIER_NO_PLACE) {
    z->due_at = carrier_due_at(z);
    carrier_sift_m(z->c, z);
  }
  pthread_mutex_unlock(&z->s->m);
}

/* Serving a light session has failed: try again soon.  A session that has left
 * the heap only has to be told its end, and is put into the ready list. */
static void carrier_retry(zke *z, int64_t now) {
  pthread_mutex_lock(&z->s->m);
  bool left = z->due_place == CARRIER_NO_PLACE;
  carrier_sooner_m(z, now + CARRIER_RETRY_MS * ZKE_MS);
  pthread_mutex_unlock(&z->s->m);
  if (left && z->end_untold) carrier_ready(z);
}

/* When the first light session is due, monotonic ns; 0: now. */
static int64_t carrier_first_due(struct carrier *c) {
  pthread_mutex_lock(&c->s->m);
  int64_t at = c->due_count ? c->due[0]->due_at : INT64_MAX;
  if (c->ready) at = 0;
  pthread_mutex_unlock(&c->s->m);
  return at;
}

/* Make all sessions that are due ready.  Each then stays in the heap as never
 * due until it was looked at.  Nothing is lost by that: while it is in the
 * ready list a dispatch is due immediately, and the look gives it its next time
 * (carrier_schedule()). */
static void carrier_ready_due(struct carrier *c, int64_t now) {
  for (;;) {
    pthread_mutex_lock(&c->s->m);
    zke *z = c->due_count ? c->due[0] : NULL;
    bool due = z && z->due_at <= now;
    if (due) {
      z->due_at = INT64_MAX;
      carrier_sift_m(c, z);
    }
    pthread_mutex_unlock(&c->s->m);
    if (!due) return;
    carrier_ready(z);
  }
}

/* A light session joins its carrier, with room in the heap. */
static void carrier_enter(zke *z) {
  struct carrier *c = z->c;
  c->kept_count += z->timeout > 0;
  if (!carrier_is_light(z)) return;
  pthread_mutex_lock(&z->s->m);
  z->due_at = carrier_due_at(z);
  carrier_place_m(c, c->due_count++, z);
  carrier_sift_m(c, z);
  pthread_mutex_unlock(&z->s->m);
}

/* … and leaves it.  It may still be in the list, to be told its end. */
static void carrier_leave(zke *z) {
  struct carrier *c = z->c;
  c->kept_count -= z->timeout > 0;
  if (!carrier_is_light(z)) return;
  pthread_mutex_lock(&z->s->m);
  zke *last = c->due[--c->due_count];
  if (last != z) {
    carrier_place_m(c, z->due_place, last);
    carrier_sift_m(c, last);
  }
  z->due_place = CARRIER_NO_PLACE;
  pthread_mutex_unlock(&z->s->m);
}

/* Does a session of the carrier live?  Then there is somebody to do a store's
 * duties for. */
static bool carrier_lives(const struct carrier *c) {
  return (c->own && c->own->state == SESS_ALIVE) || c->due_count > 0;
}

/* ======================================================================
 * life_: which sessions live (private)
 *
 * A session lives as long as it holds a lock: on the byte at offset = session
 * id, in one of LIFE_SHARDS files, by an open file description that no other
 * session uses.  A light session lives by its carrier's lock, at the carrier's
 * byte.  The kernel drops the lock when the process ends, in whatever way, so
 * no timeout is needed (P5).
 *
 * A session's row has the inode of the file.  While the session lives the file
 * is open, so no other file can have that inode, and a replacement of the file
 * is always recognised.
 *
 * A look at a life has one of five results: see enum life_state.  A session is
 * dead only if the kernel says that its lock is free (P5).  An error means
 * neither dead nor alive (LIFE_BLIND).  Then, and if a lock was lost together
 * with its file (LIFE_REMOVED), the caller does nothing now, or fails.
 *
 * For sessions of this store the kernel is not asked: the store has a list of
 * them, ordered by id.
 * ==================================================================== */

enum { LIFE_SHARDS = 64 };

/* The index of a session in the store's list, or where it would be inserted. */
static size_t life_place(const store *s, int64_t session) {
  size_t from = 0, to = s->session_count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (s->sessions[middle]->id < session)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

/* The handle of a session of this store, or NULL. */
static zke *life_find_own(const store *s, int64_t session) {
  size_t at = life_place(s, session);
  bool found = at < s->session_count && s->sessions[at]->id == session;
  return found ? s->sessions[at] : NULL;
}

/* The carrier of this store with an id, or NULL. */
static struct carrier *life_find_carrier(const store *s, int64_t id) {
  const zke *own = life_find_own(s, id);
  if (own) return own->c;
  struct carrier *c = s->carriers;
  while (c && c->id != id) c = c->next;
  return c;
}

/* Which of the files is for a session.  The bits are mixed because the distance
 * between ids depends on what is written between two sessions, and may be a
 * multiple of anything. */
static unsigned life_shard(int64_t session) {
  _Static_assert(LIFE_SHARDS == 1 << (64 - 58), "the shift gives the number");
  return (unsigned)((uint64_t)session * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

/* The path of a file that carries lives; NULL without memory. */
static char *life_shard_path(store *s, unsigned shard) {
  return mem_format(&s->a, "%s.%02x", s->live, shard);
}

/* The path of the file that carries a session's life. */
static char *life_path(store *s, int64_t session) {
  return life_shard_path(s, life_shard(session));
}

/* Let the side files follow a chmod or chgrp of the database, at the next open
 * by their owner.  This also gives SQLite's files the database's group, which a
 * user other than root cannot get for them otherwise.  There are many files
 * that carry lives.  They are checked only if another file had to be changed,
 * and when a session takes its lock in one. */
static void life_follow_mode(store *s) {
  const char *files[] = {s->gate, s->line, s->live, s->wal, s->shm};
  unsigned mode = s->file_id.mode;
  bool changed = side_follow_mode(s, s->dir, side_directory_mode(mode));
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    changed |= side_follow_mode(s, files[i], mode);
  for (unsigned i = 0; changed && i < LIFE_SHARDS; i++) {
    char *path = life_shard_path(s, i);
    if (path) side_follow_mode(s, path, mode);
    mem_free(path);
  }
}

/* Open the file that will carry the life of a new session, with the gate held.
 * The first session that needs the file makes it.  *life is its inode, for the
 * session's row.
 *
 * If the file could not be given the database's group, that group could not see
 * this life; if another user made such a file, it cannot be opened here.  Then
 * the liveness file itself carries the life.  It is opened once more, since the
 * lock needs its own description. */
static int life_open(store *s, int64_t session, int *fd, int64_t *life) {
  zke_file id = {.mode = 0};
  char *path = life_path(s, session);
  if (!path) return base_nomem();
  int rc = side_open_file(s, path, fd, &id);
  mem_free(path);
  if (rc == ZKE_OK && id.mode != s->file_id.mode)
    side_adopt(s, *fd, s->file_id.mode); /* its maker died before it could */
  bool shared = !(s->file_id.mode & 0070u) || id.gid == s->file_id.gid;
  *life = (int64_t)id.inode;
  if (rc != ZKE_READONLY && (rc != ZKE_OK || shared)) return rc;
  fd_close(s, fd);
  *life = (int64_t)s->live_id.inode;
  *fd = fd_open(s, s->live, O_RDWR | O_NOFOLLOW, 0);
  rc = *fd < 0 ? *fd : host_fstat(s, *fd, &id);
  if (rc < 0) return host_fail(rc, "cannot open", s->live);
  if (host_same_file(&id, &s->live_id)) return ZKE_OK;
  return base_fail(ZKE_REPLACED, "%s was replaced", s->live);
}

/* Close the file in which lives were last probed. */
static void life_forget(store *s) { fd_close(s, &s->life.fd); }

/* A descriptor of the file that carries a session's life, or -errno; -ENOENT:
 * the file was removed, and perhaps replaced by another.  The descriptor stays
 * open for the next session of the same file until life_forget(), since a sweep
 * looks at the sessions file by file. */
static int life_find(store *s, int64_t session, int64_t life) {
  zke_file id;
  unsigned shard = life_shard(session);
  if (life == (int64_t)s->live_id.inode) return s->live_fd;
  if (s->life.fd >= 0 && s->life.shard == shard && s->life.inode == life)
    return s->life.fd;
  life_forget(s);
  char *path = life_path(s, session);
  int fd = path ? fd_open(s, path, O_RDONLY | O_NOFOLLOW, 0) : -ENOMEM;
  mem_free(path);
  if (fd < 0) return fd == -ELOOP ? -ENOENT : fd;
  s->life.fd = fd;
  int rc = host_fstat(s, fd, &id);
  if (rc == 0 && life && id.inode != (uint64_t)life) rc = -ENOENT;
  if (rc < 0) {
    life_forget(s);
    return rc;
  }
  s->life.shard = shard;
  s->life.inode = (int64_t)id.inode;
  return fd;
}

/* What is known of a session's life. */
enum life_state {
  LIFE_HELD,    /* it lives */
  LIFE_FREE,    /* it is dead */
  LIFE_REMOVED, /* the file with its lock was removed: unknown */
  LIFE_BLIND,   /* the kernel gave no answer: see life_say_blind() */
  LIFE_NONE     /* no lock: it is detached */
};

/* Is a session alive, or its carrier?  `life` is from the session's row; 0 if
 * the caller does not have the row, and then the answer is a hint. */
static enum life_state life_look(store *s, int64_t session, int64_t life) {
  void *c = s->os.context;
  if (life_find_carrier(s, session)) return LIFE_HELD;
  if (s->memory) return LIFE_FREE; /* its close could not be written */
  int held = life ? 0 : s->os.probe(c, s->live_fd, session);
  if (held == 0) {
    int fd = life_find(s, session, life);
    if (fd == -ENOENT) return LIFE_REMOVED;
    held = fd < 0 ? fd : s->os.probe(c, fd, session);
  }
  if (held < 0) s->life.blind = held;
  if (held < 0) return LIFE_BLIND;
  return held ? LIFE_HELD : LIFE_FREE;
}

/* Fail a call that needs to know who lives, after LIFE_BLIND. */
static int life_say_blind(store *s) {
  return host_fail(s->life.blind, "cannot check for live sessions in", s->live);
}

/* ======================================================================
 * wake_: waking a session (private)
 *
 * A session sleeps on a FIFO in the side directory; the FIFO's name is the
 * session's id.  A process that has committed something for the session writes
 * a byte into it.  The byte says only that there is something; the database
 * says what.  The sleeper has both ends open, so while it lives a write always
 * finds a reader, and the reader never sees the end of the file.  When its
 * process dies, the last reading end is closed, and every process with a
 * writing end sees an error: that is the notice of death (notice_).
 *
 * A wake-up may be lost: the FIFO is full, no descriptor is left, or a process
 * dies between COMMIT and the byte.  The sleeper's tick makes up for it (P7).
 * A spurious wake-up costs one look.
 *
 * Sessions of the same store are woken through their carrier's descriptor,
 * without opening the FIFO.
 * ==================================================================== */

/* What a byte in a session's FIFO says. */
#define WAKE_EVENT "e" /* there may be events */
#define WAKE_GATE "t"  /* the gate is free: it is the first in the line */

/* Write the byte; false: the FIFO has no reader. */
static bool wake_write(const store *s, int fd, const char *byte) {
  int64_t n = s->os.write(s->os.context, fd, byte, 1);
  return n >= 0 || n == -EAGAIN; /* full: it will wake anyway */
}

/* Wake the thread that sleeps for this session of ours. */
static void wake_self(zke *z) {
  carrier_ready(z);
  wake_write(z->s, z->c->wake_wfd, WAKE_EVENT);
}

/* Wake the session's thread without the store's lock, which that thread may
 * hold itself while it sleeps at the gate.  So only members that are fixed at
 * open are read. */
static void wake_sleeper(const zke *z) {
  if (!z->s->readonly) wake_write(z->s, z->c->wake_wfd, WAKE_EVENT);
}

/* The path of a session's FIFO; NULL without memory. */
static char *wake_path(store *s, int64_t session) {
  return mem_format(&s->a, "%s/%016llx", s->dir, (unsigned long long)session);
}

/* A writing end of another session's FIFO: a descriptor or -errno (-ENXIO: no
 * reader; -ENOENT: the session has ended).  The open does not block, since a
 * FIFO without a reader must not delay a committer. */
static int wake_open(store *s, int64_t session) {
  char *path = wake_path(s, session);
  if (!path) return -ENOMEM;
  int fd = fd_open(s, path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW, 0);
  mem_free(path);
  zke_file f;
  if (fd >= 0 && (host_fstat(s, fd, &f) < 0 || f.type != ZKE_FILE_FIFO)) {
    fd_close(s, &fd);
    return -ENXIO;
  }
  return fd;
}

/* Wake the sessions of one carrier by this byte.  Up to ZKE_WAKE_CACHE writing
 * ends stay open, the most recently used first; beyond that the least recently
 * used is closed.  A failure means that the session is gone, or that its tick
 * will notice (P7). */
static void wake_session(store *s, int64_t session, const char *byte) {
  const struct carrier *own = life_find_carrier(s, session);
  if (own) wake_write(s, own->wake_wfd, WAKE_EVENT);
  if (own || s->memory) return;
  int i = 0;
  while (i < s->wake.count && s->wake.fifos[i].session != session) i++;
  if (i == s->wake.count) {
    int fd = wake_open(s, session);
    if (fd < 0) return;
    if (s->wake.count < ZKE_WAKE_CACHE) {
      s->wake.count++;
    } else {
      fd_close(s, &s->wake.fifos[--i].fd); /* the one least recently used */
    }
    s->wake.fifos[i].session = session;
    s->wake.fifos[i].fd = fd;
  }
  int fd = s->wake.fifos[i].fd;
  memmove(s->wake.fifos + 1, s->wake.fifos, (size_t)i * sizeof *s->wake.fifos);
  s->wake.fifos[0].session = session;
  s->wake.fifos[0].fd = fd;
  if (wake_write(s, fd, byte)) return;
  fd_close(s, &s->wake.fifos[0].fd);
  s->wake.count--;
  memmove(s->wake.fifos, s->wake.fifos + 1,
          (size_t)s->wake.count * sizeof *s->wake.fifos);
}

/* Close all open writing ends. */
static void wake_forget(store *s) {
  while (s->wake.count) fd_close(s, &s->wake.fifos[--s->wake.count].fd);
}

/* ======================================================================
 * equip_: making and closing carriers (private)
 *
 * A carrier has a lock, a FIFO, a poller and a timer.  The lock is the life of
 * its sessions, and is taken before the first session's row is visible to
 * others.  Handles share a carrier, and the last handle that releases it closes
 * it.
 *
 * Start reading at equip_take_life() and equip_release().
 * ==================================================================== */

/* A carrier for a new session; NULL without memory. */
static struct carrier *equip_new(store *s) {
  struct carrier *c = mem_zero(&s->a, sizeof *c);
  if (!c) return NULL;
  c->s = s;
  c->live_fd = c->wake_rfd = c->wake_wfd = c->poller = c->timer = -1;
  c->ready_end = &c->ready;
  atomic_init(&c->clock, 0);
  atomic_init(&c->clock_at, host_now(s));
  os_condition_init(&c->done);
  return c;
}

/* Take the lock byte that is the session's life, through a new open file
 * description.  If the byte is locked already, it belongs to a session of an
 * earlier database at this path: skip its number. */
static int equip_take_life(txn *t, struct carrier *c) {
  REQUIRE(WRITING(t->s));
  store *s = t->s;
  int rc = -EAGAIN;
  for (int tries = 0; tries < 10000 && rc == -EAGAIN; tries++) {
    t->zxid += tries > 0;
    fd_close(s, &c->live_fd);
    rc = life_open(s, t->zxid, &c->live_fd, &c->life);
    if (rc != ZKE_OK) return rc;
    rc = s->os.lock(s->os.context, c->live_fd, t->zxid, ZKE_LOCK_EXCLUSIVE);
  }
  if (rc < 0) return host_fail(rc, "cannot lock", s->live);
  zke_file now; /* if replaced, others look for this life elsewhere */
  rc = host_stat(s, s->live, &now);
  if (rc == -ENOENT || (rc == 0 && !host_same_file(&now, &s->live_id)))
    return base_fail(ZKE_REPLACED, "%s was replaced", s->live);
  return rc < 0 ? host_fail(rc, "cannot stat", s->live) : ZKE_OK;
}

/* Make the session's FIFO and open both ends: with its own writing end, no
 * hang-up occurs when another writer leaves.  Other users may only write, since
 * a foreign reader would hide a death. */
static int equip_make_fifo(struct carrier *c) {
  store *s = c->s;
  c->fifo = wake_path(s, c->id);
  if (!c->fifo) return base_nomem();
  s->os.unlink(s->os.context, c->fifo); /* left by a death before COMMIT */
  int rc = s->os.mkfifo(s->os.context, c->fifo, s->file_id.mode | 0600u);
  if (rc < 0) return host_fail(rc, "cannot make", c->fifo);
  int flags = O_NONBLOCK | O_NOFOLLOW;
  c->wake_rfd = rc = side_enter(s, c->fifo, O_RDONLY | flags);
  if (rc >= 0) c->wake_wfd = rc = fd_open(s, c->fifo, O_WRONLY | flags, 0);
  if (rc >= 0) rc = side_adopt(s, c->wake_rfd, s->file_id.mode & 0222u);
  return rc < 0 ? host_fail(rc, "cannot open", c->fifo) : ZKE_OK;
}

/* In memory a pipe wakes the session, since no other process can. */
static int equip_make_pipe(struct carrier *c) {
  int fds[2];
  int rc = fd_make(c->s, FD_PIPE, NULL, 0, 0, fds);
  if (rc < 0) return host_fail(rc, "cannot open", "a pipe");
  c->wake_rfd = fds[0];
  c->wake_wfd = fds[1];
  return ZKE_OK;
}

/* The descriptor of zke_fd(): a poller over FIFO, timer and notices, if the
 * system has pollers. */
static int equip_make_poller(struct carrier *c) {
  store *s = c->s;
  void *os = s->os.context;
  int fd[2];
  int rc = fd_make(s, FD_POLLER, NULL, 0, 0, fd);
  if (rc == -ENOSYS) return ZKE_OK;
  if (rc == 0) {
    c->poller = fd[0];
    rc = fd_make(s, FD_TIMER, NULL, 0, 0, fd);
  }
  if (rc == 0) {
    c->timer = fd[0];
    rc = s->os.poller_add(os, c->poller, c->wake_rfd, 1);
  }
  if (rc == 0) rc = s->os.poller_add(os, c->poller, c->timer, 1);
  return rc < 0 ? host_fail(rc, "cannot make", "a poller") : ZKE_OK;
}

/* Unlink a carrier's FIFO and close its descriptors.  The life lock is dropped
 * explicitly, since a child may share its description (zke_keepalive_fd). */
static void equip_close(struct carrier *c) {
  store *s = c->s;
  zke_file named, ours;
  /* only if the name still refers to it: a stale handle must not unlink the
   * FIFO of a newer database */
  if (c->fifo && c->wake_rfd >= 0 && host_stat(s, c->fifo, &named) == 0 &&
      host_fstat(s, c->wake_rfd, &ours) == 0 && host_same_file(&named, &ours)) {
    s->os.unlink(s->os.context, c->fifo);
  }
  if (c->live_fd >= 0 && c->id)
    s->os.lock(s->os.context, c->live_fd, c->id, ZKE_LOCK_NONE);
  for (size_t i = 0; i < c->notice_count; i++) {
    s->notices -= c->notices[i].fd >= 0;
    fd_close(s, &c->notices[i].fd);
  }
  c->notice_count = 0;
  fd_close(s, &c->poller);
  fd_close(s, &c->timer);
  fd_close(s, &c->wake_rfd);
  fd_close(s, &c->wake_wfd);
  fd_close(s, &c->live_fd);
}

/* Release a handle's carrier, which stays while another handle uses it. */
static void equip_release(zke *z) {
  struct carrier *c = z->c;
  if (!c) return;
  pthread_mutex_lock(&z->s->m);
  carrier_unready_m(z);
  pthread_mutex_unlock(&z->s->m);
  z->c = NULL;
  if (--c->users) {
    if (c->own != z) return;
    c->own = NULL;
    c->next = z->s->carriers;
    z->s->carriers = c;
    return;
  }
  struct carrier **at = &c->s->carriers; /* carriers without a handle */
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  equip_close(c);
  mem_free(c->fifo);
  mem_free(c->notices);
  mem_free(c->due);
  pthread_cond_destroy(&c->done);
  mem_free(c);
}

/* ======================================================================
 * guard_: are the files still the store's own? (private)
 *
 * The files of a store may be removed or replaced from outside.  Then its locks
 * are on files that no other process looks at, and so are worth nothing.  The
 * store is given up for good, and each of its sessions expires as at the end of
 * a lease.  The tick checks for it (sweep_verify_files()).
 * ==================================================================== */

/* Remember the inodes of SQLite's side files, for the tick.  If these names
 * later refer to other files, the files were replaced. */
static void guard_note_files(store *s) {
  if (s->memory || s->readonly) return;
  if (host_stat(s, s->wal, &s->wal_id) < 0) s->wal_id.inode = 0;
  if (host_stat(s, s->shm, &s->shm_id) < 0) s->shm_id.inode = 0;
}

/* Forget those inodes: without a connection the files may come and go. */
static void guard_forget_files(store *s) {
  s->wal_id.inode = s->shm_id.inode = 0;
}

/* The store is unusable: expire its sessions and wake them, so that each tells
 * its watcher. */
static void guard_end_store(store *s) {
  health_worsen(s, HEALTH_REPLACED);
  for (size_t i = 0; i < s->session_count; i++) {
    zke *z = s->sessions[i];
    if (z->state != SESS_ALIVE) continue;
    z->state = SESS_EXPIRED;
    z->end_untold = true;
    wake_self(z);
  }
}

/* The store's files are not the ones that it opened. */
static void guard_give_up(store *s, const char *path) {
  host_log(s, ZKE_LOG_ERROR, "%s was removed or replaced", path);
  guard_end_store(s);
}

/* ======================================================================
 * lease_: sessions with a lease (private)
 *
 * A session may have a lease.  Then it must also call in to stay alive, so that
 * a program that hangs does not keep what it holds.  It writes the time of its
 * calls into a slot of the liveness file, at most every quarter of the lease.
 * Any process that sweeps ends the session when this stamp is older than the
 * lease (sweep_).
 *
 * A stamp is the host's CLOCK_BOOTTIME, which all processes share and which
 * advances while the host is suspended.  A session with the stamp 0 is not
 * ended by its lease.
 *
 * A lease does not run while another call of the same store keeps the session
 * from calling in: lease_extend() moves the stamp forward by that time.
 * ==================================================================== */

enum {
  LEASE_SLOTS_AT = SIDE_SLOTS_AT,
  LEASE_SLOT_SIZE = 8,
  LEASE_SLOTS_MOST = 1 << 24
};

/* The offset of a slot in the liveness file. */
static int64_t lease_slot_at(int64_t slot) {
  return LEASE_SLOTS_AT + slot * LEASE_SLOT_SIZE;
}

/* Write a lease's stamp; 0, which ends no session, if others could not compare
 * the time.  Returns 0 or -errno. */
static int lease_write(store *s, int64_t slot, int64_t now) {
  int64_t stamp = s->strange_clock ? 0 : now;
  int64_t n = s->os.pwrite(s->os.context, s->live_fd, &stamp, sizeof stamp,
                           lease_slot_at(slot));
  if (n < 0) return (int)n;
  return n == (int64_t)sizeof stamp ? 0 : -ENOSPC; /* the disk is full */
}

/* Is the slot still the session's?  Then it has the stamp that the session
 * wrote last, or an older one that a former owner of the slot wrote too late.
 * A newer stamp, or 0, means that this session was ended and another now owns
 * the slot; 0 is written by a session whose time others cannot compare.  A slot
 * that cannot be read counts as the session's, so that its lease does not run
 * out because of that. */
static bool lease_has_slot(const zke *z) {
  int64_t wrote = z->s->strange_clock ? 0 : z->lease_at;
  int64_t stamp = side_read_hint(z->s, lease_slot_at(z->slot));
  return stamp == wrote || (stamp != 0 && stamp < wrote);
}

/* Write this stamp into the session's slot, if it is still the session's.  Only
 * then does it become z->lease_at.
 *
 * One race remains: the process may be stopped between the check, or reading
 * the clock, and the write.  The late write can shorten the lease of the slot's
 * new owner, until that calls in.  If the process was stopped for longer than
 * this session's lease, the slot is left alone until a call finds out whether
 * the session lives; only that call counts the stamp as the session's
 * (lease_trust()). */
static void lease_renew(zke *z, int64_t at) {
  store *s = z->s;
  int64_t began = host_boottime(s);
  if (s->memory) {
    z->lease_at = at;
    return;
  }
  if (!lease_has_slot(z) || lease_write(s, z->slot, at) != 0) return;
  if (host_boottime(s) - began > z->lease)
    z->lease_late = at;
  else
    z->lease_at = at;
}

/* At the start of a call that reads the session's row: count a late stamp as
 * written to the session's own slot.  If the slot had a new owner, the call
 * finds that the session has ended, and has written at most one stamp too many.
 */
static void lease_trust(zke *z) {
  if (!z->lease_late) return;
  z->lease_at = z->lease_late;
  z->lease_late = 0;
}

/* The session has called in: renew its stamp if a quarter of the lease has
 * passed.  If the stamp cannot be written, as on a full disk, a waiting session
 * is woken earlier to try again. */
static void lease_stamp(zke *z) {
  if (!z->lease || z->state != SESS_ALIVE) return;
  int64_t now = host_boottime(z->s);
  if (now - z->lease_at < z->lease / LEASE_RENEWALS) return;
  lease_renew(z, now);
  if (z->lease_at != now)
    z->lease_retry = now + base_max(z->lease / LEASE_STEPS, ZKE_MS);
}

/* At the start of a call that has the lock: note its session and its deadline,
 * and, if the store has leases, since when it keeps the other sessions from
 * calling in. */
static void lease_begin_call(store *s, zke *z, int64_t deadline) {
  s->deadline = deadline;
  s->caller = z;
  if (s->lease) s->since = host_boottime(s);
}

/* The running call has kept the lock for a while, so the other sessions of the
 * store could not call in.  That time does not count for their leases: it is
 * added to their stamps.  A fresh stamp would keep a hanging session alive.
 * Short calls cost nothing.
 *
 * Called while waiting for the gate, and before leaving it.  No other process
 * can end those sessions while this one holds the gate.  While it waits,
 * another can, if this one was stopped, and the slot may belong to another
 * session by now; so lease_renew() checks first.  A stamp that cannot be
 * written is left as it is. */
static void lease_extend(store *s) {
  int64_t now = s->lease ? host_boottime(s) : 0, held = now - s->since;
  if (!s->lease || held < s->lease / LEASE_STEPS) return;
  s->since = now;
  for (size_t i = 0; i < s->session_count; i++) {
    zke *z = s->sessions[i];
    int64_t at = base_min(z->lease_at + held, now);
    if (!z->lease || z->state != SESS_ALIVE) continue;
    lease_renew(z, at);
  }
}

/* ======================================================================
 * line_: the line of writers (private)
 *
 * The line decides in which order processes try for the gate, so that none
 * starves (P10).  It decides nothing else: whatever goes wrong in it costs
 * time or fairness, never safety.
 *
 * A place in the line is a byte of the line file, locked by the process that
 * stands there.  Places are taken in ascending order; a process that finds no
 * lock before its own is the first.  The kernel drops the locks of dead
 * processes, so nothing has to be repaired.
 *
 * The process that leaves the gate wakes the first, by a byte in the FIFO of
 * its session.  The first also looks by itself every few milliseconds, the
 * others less often, so a lost wake-up or a death only costs a pause.
 *
 * If the gate is free and the first does not take it, its process is stopped.
 * Another process that sees this notes in the file that the line now begins
 * after that place (line_pass_over).  When the stopped process continues, it
 * takes a new place at the end.
 *
 * The file's words (the last place, where the line begins, the session of each
 * place) are written without a lock and are hints: the locks are the line.
 * Each is one write of at most 16 bytes.  An impossible value is read as the
 * very beginning of the line.
 *
 * Start reading at line_join(), then gate_look() below.
 * ==================================================================== */

/* The line file: a lock byte for each place, another at LINE_INSIST + place if
 * it insists, and hints as data. */
#define LINE_LAST_PLACE (INT64_C(1) << 61)
#define LINE_INSIST LINE_LAST_PLACE
enum {
  LINE_FIRST_PLACE = 1,
  LINE_LAST_AT = 0,   /* the place taken last */
  LINE_FROM_AT = 8,   /* the line begins here: earlier places are passed over */
  LINE_SLOTS_AT = 16, /* by place: place and session */
  LINE_SLOT_SIZE = 16,
  LINE_SLOTS = 4096
};

/* One wait for the gate; times are monotonic ns. */
typedef struct line_stay {
  zke *sleeper; /* sleep on its FIFO; or NULL */
  int64_t start, now;
  int64_t place;      /* 0: none yet */
  int64_t first;      /* a place before ours, 0: there is none */
  int64_t free_since; /* the gate was seen free, 0: it was not … */
  int64_t free_first; /* … while this was the first */
  bool full;          /* the transaction will probably be synced */
  bool insists;       /* it was the first in vain: must not be passed again */
  bool took_event;    /* a byte was read that was not for the line */
} line_stay;

/* A place that another process holds, at least `from` and less than `below`; 0:
 * there is none.  Of several it need not be the lowest. */
static int64_t line_any(store *s, int64_t from, int64_t below) {
  int64_t count;
  if (from >= below) return 0;
  int64_t at =
      s->os.find_lock(s->os.context, s->line_fd, from, below - from, &count);
  return at < 0 ? 0 : at;
}

/* The first in the line, which is the lowest place that counts; 0: the line is
 * empty.  The kernel tells any lock of a range, so the range is narrowed until
 * none is left. */
static int64_t line_first(store *s, int64_t below) {
  int64_t first = 0;
  for (int64_t at; (at = line_any(s, s->line_from, below)) != 0; below = at)
    first = at;
  return first;
}

/* Read where the line begins; returns the place taken last.  An impossible
 * value counts as the very first place.  The beginning never moves back: a
 * value that this process could not write stays in s->line_from. */
static int64_t line_read(store *s) {
  int64_t word[2] = {0, 0};
  s->os.pread(s->os.context, s->line_fd, word, sizeof word, LINE_LAST_AT);
  for (int i = 0; i < 2; i++) {
    if (word[i] < LINE_FIRST_PLACE || word[i] >= LINE_LAST_PLACE)
      word[i] = LINE_FIRST_PLACE;
  }
  s->line_from = base_max(s->line_from, word[1]);
  return base_max(word[0], s->line_from);
}

/* If this fails, as on a full disk, the others do without the hint. */
static void line_write(store *s, const int64_t *words, size_t count,
                       int64_t at) {
  s->os.pwrite(s->os.context, s->line_fd, words, count * sizeof *words, at);
}

/* The offset of a place's slot; places far apart share a slot. */
static int64_t line_slot_at(int64_t place) {
  return LINE_SLOTS_AT + place % LINE_SLOTS * LINE_SLOT_SIZE;
}

/* Lock or unlock a place, or the byte by which it insists: 0 or -errno. */
static int line_lock_place(store *s, int64_t place, bool on) {
  return s->os.lock_range(s->os.context, s->line_fd, place, 1,
                          on ? ZKE_LOCK_EXCLUSIVE : ZKE_LOCK_NONE);
}

/* Must a process without a place wait?  If its transaction will be synced, it
 * waits for any place in the line; else only for one that insists.  The first
 * place found may have been passed over already, so the line's beginning is
 * read again before the answer is yes. */
static bool line_bars(store *s, bool full) {
  int64_t by = full ? 0 : LINE_INSIST;
  if (!line_any(s, by + s->line_from, by + LINE_LAST_PLACE)) return false;
  line_read(s); /* it may have been passed over */
  return line_any(s, by + s->line_from, by + LINE_LAST_PLACE) != 0;
}

/* Wake the first in the line, if there is one.  Its session is in the place's
 * slot.  If another place uses the slot by now, or it was never written, the
 * first has to find out by its own look. */
static void line_wake_first(store *s) {
  int64_t slot[2] = {0, 0};
  line_read(s);
  int64_t first = line_first(s, LINE_LAST_PLACE);
  if (!first) return;
  s->os.pread(s->os.context, s->line_fd, slot, sizeof slot,
              line_slot_at(first));
  if (slot[0] == first && slot[1]) wake_session(s, slot[1], WAKE_GATE);
}

enum { LINE_AHEAD = 256, LINE_TRIES = 1024 };

/* Take the place after the last.
 *
 * The file's word of the last place is a hint.  It is too low if a process was
 * stopped before it wrote; hence the look for a place taken far ahead.  Two
 * processes that come at the same time may swap their order; each still has a
 * place, and P10 needs no more.
 *
 * If an error keeps a process from getting a place, it continues without one
 * and waits as line_bars() says. */
static void line_join(store *s, line_stay *at) {
  int64_t place = line_read(s) + 1;
  for (int i = 0; i < LINE_TRIES && place < LINE_LAST_PLACE; i++) {
    int rc = line_lock_place(s, place, true);
    if (rc != 0 && rc != -EAGAIN) return;
    int64_t ahead =
        rc ? place : line_any(s, place + LINE_AHEAD, LINE_LAST_PLACE);
    if (!ahead) {
      int64_t slot[2] = {place, at->sleeper ? at->sleeper->c->id : 0};
      line_write(s, slot, 2, line_slot_at(place));
      line_write(s, &place, 1, LINE_LAST_AT);
      at->place = place;
      return;
    }
    if (rc == 0) line_lock_place(s, place, false);
    place = ahead + 1;
  }
}

/* Unlock the place, and the byte by which it insists. */
static void line_leave(store *s, line_stay *at) {
  if (at->insists) line_lock_place(s, LINE_INSIST + at->place, false);
  if (at->place) line_lock_place(s, at->place, false);
  at->place = at->free_since = 0;
  at->insists = false;
}

/* The gate is free, and the first in the line does not take it: it was not
 * woken, or its process is stopped.  The first time, only note the time.  The
 * next time, wake it again.  When the gate has been free for ZKE_LINE_OVER_MS
 * with the same first, let the line begin after it: it loses its place, and
 * nothing else. */
static void line_pass_over(store *s, line_stay *at) {
  if (!at->free_since || at->free_first != at->first) {
    at->free_since = at->now;
    at->free_first = at->first;
    return;
  }
  if (at->now - at->free_since >= ZKE_LINE_OVER_MS * ZKE_MS) {
    s->line_from = at->first + 1;
    line_write(s, &s->line_from, 1, LINE_FROM_AT);
    at->free_since = 0;
  }
  line_wake_first(s);
}

/* ======================================================================
 * gate_: the one writer (private)
 *
 * The gate is a lock of the kernel.  The process that holds it is the only
 * writer among all processes, and P12 depends on that alone.  gate_enter()
 * waits for it within the call's deadline; gate_leave() lets the next process
 * in.
 *
 * The length of the lock in bytes is its holder's number: the session's id or
 * the process id.  So another process can tell which one kept it waiting.
 *
 * A call that waits for the gate keeps the store's lock, even while it sleeps.
 * So the other threads of the store wait with it.
 *
 * A transaction that will be synced takes a place in the line immediately.
 * Other transactions are shorter than a context switch.  So they first try for
 * ZKE_GATE_PATIENCE_US without a place, and may pass the line while its first
 * wakes up.  If the first then finds the gate taken, it locks a second byte,
 * which says that it insists.  From then on no process may pass it.
 *
 * A store in memory has no other processes, and no gate.
 *
 * Start reading at gate_enter() and gate_wait().
 * ==================================================================== */

/* Try to lock the gate; *held: another process has it.  The length of the lock
 * tells others the holder: the session that writes, or another session of the
 * store.  A store that has no session yet gives the process id, which is
 * smaller than any session's id. */
static int gate_lock(store *s, const zke *z, bool *held) {
  if (!z && s->session_count) z = s->sessions[0];
  int64_t number = z && z->id ? z->id : s->os.pid(s->os.context);
  int rc = s->os.lock_range(s->os.context, s->gate_fd, SIDE_GATE,
                            base_min(base_max(number, 1), SIDE_DUTY),
                            ZKE_LOCK_EXCLUSIVE);
  *held = rc == -EAGAIN;
  s->gated = rc == 0;
  return rc == 0 || *held ? ZKE_OK : host_fail(rc, "cannot lock", s->gate);
}

/* The number of the gate's holder; 0: the gate is free. */
static int64_t gate_holder(store *s) {
  int64_t count = 0;
  int64_t at =
      s->os.find_lock(s->os.context, s->gate_fd, SIDE_GATE, SIDE_DUTY, &count);
  return at < 0 ? 0 : base_max(count, 1);
}

/* Try the gate a few times, since most transactions are shorter than a sleep.
 * If the first in the line finds it taken, it insists from then on, so that
 * processes without a place stop overtaking it. */
static int gate_try(store *s, const zke *z, line_stay *at, bool *held) {
  int rc = ZKE_OK;
  for (int i = 0; i < ZKE_GATE_SPINS && *held && rc == ZKE_OK; i++) {
    if (!at->place && line_bars(s, at->full)) break;
    rc = gate_lock(s, z, held);
    if (*held && at->place && !at->insists)
      at->insists = line_lock_place(s, LINE_INSIST + at->place, true) == 0;
  }
  return rc;
}

/* One look: try the gate if no process is before us; *held: another process
 * still has it.
 *
 * A process in the line asks the kernel for any place before its own.  If there
 * is one and the gate is taken, it is simply not our turn.  If the gate is
 * free, find the first, and wake it or pass it over.  A process that was passed
 * over has lost its place, and begins again at the end. */
static int gate_look(store *s, zke *z, line_stay *at, bool *held) {
  *held = true;
  if (!at->place) return gate_try(s, z, at, held);
  line_read(s);
  if (at->place < s->line_from) { /* passed over */
    line_leave(s, at);
    return ZKE_OK;
  }
  at->first = line_any(s, s->line_from, at->place);
  if (at->first) {
    if (gate_holder(s)) { /* whichever place is the first, it is not ours */
      at->free_since = 0;
      return ZKE_OK;
    }
    at->first = line_first(s, at->first + 1);
  }
  if (!at->first) return gate_try(s, z, at, held);
  line_pass_over(s, at);
  return ZKE_OK;
}

/* How long to sleep until the next look.  Without a place, the pauses grow with
 * the time already waited.  The first in the line looks soon; the others look
 * less often the farther back they stand.  The looks are spread by the place's
 * number, so that they do not coincide. */
static int64_t gate_pause(const line_stay *at) {
  if (!at->place) {
    return base_min(
        base_max((at->now - at->start) / 4, ZKE_GATE_PAUSE_US * INT64_C(1000)),
        ZKE_GATE_LONGEST_PAUSE_US * INT64_C(1000));
  }
  if (!at->first) return ZKE_LINE_FIRST_MS * ZKE_MS;
  if (at->free_since) return ZKE_LINE_OVER_MS * ZKE_MS / 3;
  int64_t behind = base_min(at->place - at->first, 100) - 1;
  return (ZKE_LINE_LOOK_MS * (1 + behind) - at->place % 16) * ZKE_MS;
}

/* Sleep until we are woken as the first, at most ns nanoseconds.  Without a
 * place, or without a session with a FIFO, we cannot be woken.  A byte in the
 * FIFO may also mean events; it is noted, and gate_enter() puts it back for the
 * thread that waits for them. */
static void gate_sleep(store *s, line_stay *at, int64_t ns) {
  char bytes[256];
  zke *z = at->sleeper;
  if (!z || !at->place || ns < ZKE_MS) {
    int64_t most = ZKE_GATE_LONGEST_PAUSE_US * INT64_C(1000);
    s->os.sleep(s->os.context, base_min(ns, most));
    return;
  }
  struct pollfd fd = {z->c->wake_rfd, POLLIN, 0};
  int ms = (int)(ns / ZKE_MS);
  if (s->os.poll(s->os.context, &fd, 1, ms) <= 0) return;
  int64_t n = s->os.read(s->os.context, z->c->wake_rfd, bytes, sizeof bytes);
  if (n <= 0) s->os.sleep(s->os.context, ZKE_MS); /* it is not ours any more */
  for (int64_t i = 0; i < n; i++) at->took_event |= bytes[i] != *WAKE_GATE;
}

SQL_STATEMENT(SESSION_PID, "SELECT pid FROM zkembed_session WHERE id=?1");

/* Fail because of the deadline, and name the process that was waited for: by
 * the number that the gate's lock gives, with the process id from the session's
 * row if that can be read now. */
static int gate_say_late(store *s, const line_stay *at) {
  int64_t pid = 0, holder = s->deadline ? gate_holder(s) : 0;
  char who[80] = "other processes are before this one and did";
  if (!s->deadline)
    snprintf(who, sizeof who, "another process is writing and did");
  else if (holder && holder <= UINT32_MAX)
    snprintf(who, sizeof who, "process %lld is writing and did",
             (long long)holder);
  else if (holder && (!s->session_count || health_is_broken(s) ||
                      sql_fetch_ints(s, SQL_SESSION_PID, holder, 1, &pid)))
    snprintf(who, sizeof who, "session 0x%llx is writing and did",
             (unsigned long long)holder);
  else if (holder)
    snprintf(who, sizeof who,
             "process %lld (session 0x%llx) is writing and did", (long long)pid,
             (unsigned long long)holder);
  return base_fail(ZKE_OPERATIONTIMEOUT, "%s: %s not finish within %lld ms",
                   s->name, who, (long long)((at->now - at->start) / ZKE_MS));
}

/* Wait for the gate until the deadline.
 *
 * Meanwhile the call renews its own session's lease, even if it writes for no
 * session (z is NULL), and extends the leases of the store's other sessions,
 * which cannot call in.  It gives up if its handle is being closed.  After the
 * deadline it still looks once, so a call without time succeeds if the gate is
 * free. */
static int gate_wait(store *s, zke *z, line_stay *at) {
  int64_t patience = at->full ? 0 : ZKE_GATE_PATIENCE_US * INT64_C(1000);
  zke *caller = z ? z : s->caller;
  for (;; at->now = host_now(s)) {
    bool held;
    if (!at->place && at->now < s->deadline && at->now - at->start >= patience)
      line_join(s, at);
    int rc = gate_look(s, z, at, &held);
    if (rc != ZKE_OK || !held) return rc;
    if (caller && atomic_load(&caller->closing))
      return base_fail(ZKE_CLOSING, "the handle is being closed");
    if (caller) lease_stamp(caller);
    lease_extend(s);
    if (at->now >= s->deadline) return gate_say_late(s, at);
    int64_t pause = base_min(gate_pause(at), s->deadline - at->now);
    if (s->lease) pause = base_min(pause, s->lease / LEASE_STEPS + 1);
    gate_sleep(s, at, pause);
  }
}

/* Become the one writer.  `z` (or NULL): give up if this handle is being
 * closed.  `full`: the transaction will be synced.  The usual case is one lock
 * and no sleep.
 *
 * A process that gives up its place may just have been woken as the first.  So
 * it checks whether the gate is free, and passes the wake-up on. */
static int gate_enter(store *s, zke *z, bool full) {
  REQUIRE(LOCK_HELD(s) && !GATE_HELD(s));
  bool held = true;
  s->gated = s->memory;
  if (s->memory) return ZKE_OK;
  line_stay at = {.sleeper = z && z->id ? z : s->caller, .full = full};
  if (!at.sleeper && s->session_count) at.sleeper = s->sessions[0];
  int rc = gate_try(s, z, &at, &held);
  if (rc != ZKE_OK || !held) return rc;
  at.start = at.now = host_now(s);
  rc = gate_wait(s, z, &at);
  bool left = rc != ZKE_OK && at.place;
  line_leave(s, &at);
  if (left && !gate_holder(s))
    line_wake_first(s); /* our place may have been the first */
  if (at.took_event) wake_self(at.sleeper);
  return rc;
}

/* Let the next process write, and wake the first in the line.  The leases of
 * the other sessions are extended before, since other processes may end them
 * after that.  A log in doubt is noted for the process that opens the file
 * next, in case this one ends before it has recovered the log. */
static void gate_leave(store *s) {
  REQUIRE(GATE_HELD(s));
  lease_extend(s);
  if (!s->memory && health_needs_recovery(s)) wal_note_doubt(s, true);
  s->gated = false;
  if (s->memory) return;
  s->os.lock_range(s->os.context, s->gate_fd, SIDE_GATE, SIDE_DUTY,
                   ZKE_LOCK_NONE);
  if (line_any(s, s->line_from, LINE_LAST_PLACE)) line_wake_first(s);
}

/* ======================================================================
 * recover_: repairing a broken store (private)
 *
 * A failed COMMIT leaves a store broken, and a failed sync leaves its log in
 * doubt (health_).  With the gate held, a broken store connects to its database
 * again.  Then the log is written and synced once more, moved into the database
 * and synced there.  Only then does the store acknowledge anything again (P2).
 *
 * If the file was removed or replaced meanwhile, the store is given up
 * (guard_).
 *
 * Start reading at recover_store().
 * ==================================================================== */

/* Is the database still the file that was opened? */
static int recover_verify_file(store *s) {
  zke_file now;
  int rc = host_stat(s, s->file, &now);
  if (rc == -ENOENT || (rc == 0 && !host_same_file(&now, &s->file_id))) {
    guard_give_up(s, s->file);
    return base_fail(ZKE_REPLACED, "%s was removed or replaced", s->file);
  }
  return rc < 0 ? host_fail(rc, "cannot stat", s->file) : ZKE_OK;
}

SQL_STATEMENT(
    META,
    "SELECT zxid,recursive,lost,coalesce((SELECT carrier FROM zkembed_session "
    "WHERE id=?1),-1),history_rows>0 OR history_ms>0,EXISTS(SELECT 1 FROM "
    "zkembed_watch)FROM zkembed_meta");

/* While the store was not connected, another program may have been the last to
 * close the file.  Then SQLite has removed the log, and there may be another
 * log now.  But if an acknowledged change is missing, the log was not removed
 * by SQLite. */
static int recover_note_files(store *s) {
  int64_t zxid = 0, known = side_read_hint(s, SIDE_ZXID_AT);
  int rc = sql_fetch_ints(s, SQL_META, 0, 1, &zxid);
  if (rc != ZKE_OK) return rc;
  if (zxid < known) {
    guard_give_up(s, s->wal);
    return health_say_replaced(s);
  }
  guard_note_files(s);
  return ZKE_OK;
}

/* Reopen the database by its path, which must still be the same file. */
static int recover_connect(store *s) {
  db_disconnect(s);
  guard_forget_files(s);
  int rc = recover_verify_file(s);
  if (rc == ZKE_OK) rc = db_connect(s, false);
  if (rc == ZKE_OK) rc = recover_verify_file(s);
  if (rc == ZKE_OK) rc = db_configure(s);
  if (rc == ZKE_OK) rc = db_enter_wal(s);
  if (rc == ZKE_OK) rc = db_prepare_ends(s);
  return rc == ZKE_OK ? recover_note_files(s) : rc;
}

/* Fail a call while the store cannot be recovered; see health_. */
static int recover_not_usable(const store *s) {
  return base_fail(ZKE_CONNECTIONLOSS,
                   "%s: not usable since a COMMIT, a sync or a recovery failed",
                   s->name);
}

/* With the gate held, before anything else is acknowledged: write and sync the
 * log once more, move it into the database file and sync that, since a log that
 * failed to sync once cannot be trusted again (P2).  Without the first step, a
 * power cut in the second could leave some pages of the database new, and only
 * the part of the log before the loss. */
static int recover_log(store *s) {
  REQUIRE(GATE_HELD(s));
  int rc = db_renew_log_apart(s);
  if (rc == ZKE_OK) health_mend(s, HEALTH_BROKEN, HEALTH_IN_DOUBT);
  if (rc == ZKE_OK) rc = db_checkpoint(s, true);
  if (rc == ZKE_OK) health_mend(s, HEALTH_IN_DOUBT, HEALTH_GOOD);
  return rc;
}

/* Recover after a failure.  If the outcome of a COMMIT is unknown, reopen the
 * database, which finds out; then make the log good.  A read-only store can do
 * neither: the program must open the file again. */
static int recover_store(store *s) {
  REQUIRE(LOCK_HELD(s));
  if (s->readonly) return recover_not_usable(s);
  int rc = health_is_broken(s) ? ZKE_OK : db_end(s);
  if (rc == ZKE_OK) rc = gate_enter(s, NULL, true);
  if (rc != ZKE_OK) return rc;
  if (health_is_replaced(s)) rc = health_say_replaced(s); /* at the gate */
  if (health_is_broken(s)) rc = recover_connect(s);
  if (rc == ZKE_OK) rc = recover_log(s);
  gate_leave(s);
  return rc == ZKE_OK || rc == ZKE_REPLACED ? rc : recover_not_usable(s);
}

/* ======================================================================
 * txn_: one transaction (private)
 *
 * Every change of the file is one call of txn_run(): lock the gate, BEGIN
 * IMMEDIATE, the body, COMMIT, unlock the gate, wake.  Waking comes last, so
 * that no woken process finds the gate still held by its waker.  A body that
 * returns an error leaves nothing in the file.
 *
 * A transaction has one of two classes.  A full one is on the disk when COMMIT
 * returns.  A normal one touches only ephemeral state and need not be, since a
 * power cut ends its sessions anyway (P8).  The body finds out while it changes
 * things (txn.durable), and COMMIT skips the sync if it may (wal_sync()).
 *
 * A transaction begins by reading the meta row and the session's row.  If the
 * header of the WAL-index is as this store's last transaction left it, the
 * values known then still hold, and neither row is read (txn_recall_meta()).
 *
 * If the process dies before COMMIT, nothing is left: SQLite rolls back, and
 * the kernel frees the gate.  If it dies between COMMIT and txn_note_zxid(), it
 * leaves a commit that the next store to open makes durable (judge_sync_log()).
 * After that only the wake-ups are missing; the ticks make up for them (P7).
 *
 * A batch is one transaction for several bodies.  While a batch is open on the
 * store, txn_run() begins no transaction: txn_join() runs the body in the
 * batch's, as an operation with its own zxid.  If the operation fails, it is
 * undone alone, by a savepoint of SQLite's.  A savepoint costs a fifth of a
 * create, so a body may set it itself (txn_run_guarded()): a body that can be
 * refused only before its first write needs none.
 *
 * Start reading at txn_run(), then txn_commit().  A compaction (compact_) is
 * the one change that is no transaction of a body.
 * ==================================================================== */

/* Beyond any possible epoch; a larger zxid means a damaged file. */
#define TXN_LAST_ZXID (INT64_MAX - INT64_C(0xffffffffff))

typedef int (*txn_body)(txn *t, void *arg);

/* txn_run() and txn_run_guarded(). */
typedef int (*txn_runner)(store *s, zke *z, enum txn_class hint, txn_body body,
                          void *arg);

/* The session has ended for this handle: tell its watchers at the next
 * dispatch. */
static void txn_lose_session(zke *z, enum sess_state state) {
  z->row_gone = true;
  if (z->state != SESS_ALIVE) return;
  z->state = state;
  z->end_untold = true;
  wake_self(z);
}

/* Fail a call because the session's row is gone: the session was expired. */
static int txn_session_gone(zke *z) {
  txn_lose_session(z, SESS_EXPIRED);
  return base_fail(ZKE_SESSIONEXPIRED, "session 0x%llx has expired",
                   (unsigned long long)z->id);
}

/* Fail a call because another handle has attached the session. */
static int txn_session_moved(zke *z) {
  txn_lose_session(z, SESS_MOVED);
  return base_fail(ZKE_SESSIONMOVED,
                   "session 0x%llx was attached by another handle",
                   (unsigned long long)z->id);
}

enum { TXN_NO_ROW = -1 };

/* Is the session's row, which has this value in its column `carrier`, still
 * this handle's?  TXN_NO_ROW: there is no row. */
static int txn_session_stands(zke *z, int64_t carrier) {
  if (carrier == z->carrier_id) return ZKE_OK;
  return carrier == TXN_NO_ROW ? txn_session_gone(z) : txn_session_moved(z);
}

/* Free what a transaction has noted for its end. */
static void txn_release(txn *t) {
  buf_free(&t->wake);
  buf_free(&t->overflowed);
  buf_free(&t->ended);
  buf_free(&t->parent);
}

/* Roll a transaction back and leave the gate.  The failure's sentence survives
 * the rollback. */
static void txn_abort(txn *t) {
  REQUIRE(GATE_HELD(t->s));
  char cause[BASE_SENTENCE];
  base_save(cause);
  db_end(t->s);
  base_restore(cause);
  txn_release(t);
  gate_leave(t->s);
}

/* Was the session's row found in the state in which this transaction began or
 * an earlier one, and has no session ended since? */
static bool txn_knows_row(const zke *z) {
  return shm_knows_latest(z->s) && z->row_era == z->s->index.era;
}

/* If no process has committed since this store's last transaction, reuse the
 * meta row known from it.  Returns whether it did. */
static bool txn_recall_meta(txn *t) {
  const store *s = t->s;
  if (!shm_knows_latest(s) || !s->index.latest_meta) return false;
  if (t->z && !txn_knows_row(t->z)) return false;
  t->lost = s->meta.lost;
  t->zxid = s->index.latest_zxid;
  t->recursive = s->meta.recursive;
  t->history = s->meta.history;
  t->watched = s->meta.watched;
  return true;
}

/* Keep the meta row that this transaction has committed, for the next one. */
static void txn_note_meta(const txn *t) {
  store *s = t->s;
  s->meta.lost = t->lost;
  s->meta.recursive = t->recursive;
  s->meta.history = t->history;
  s->meta.watched = t->watched;
  s->index.latest_zxid = t->zxid;
  s->index.latest_meta = true;
}

/* Get the values of the meta row.  Fails if the acting session has ended or
 * moved. */
static int txn_read_meta(txn *t) {
  if (!txn_recall_meta(t)) {
    int64_t meta[6] = {0};
    int64_t id = t->z ? t->z->id : 0;
    int rc = sql_fetch_ints(t->s, SQL_META, id, 6, meta);
    if (rc == ZKE_OK && t->z) rc = txn_session_stands(t->z, meta[3]);
    if (rc != ZKE_OK) return rc;
    t->lost = meta[2];
    t->zxid = meta[0];
    t->recursive = meta[1];
    t->history = meta[4] != 0;
    t->watched = meta[5] != 0;
    if (t->z) t->z->row_era = t->s->index.era;
  }
  t->lost_was = t->lost;
  t->zxid_was = t->zxid;
  t->recursive_was = t->recursive;
  t->now = t->s->os.clock(t->s->os.context, ZKE_CLOCK_REALTIME) / ZKE_MS;
  return ZKE_OK;
}

/* Does COMMIT sync?  The durability option may decide for all commits; else it
 * syncs if the change must be durable, or probably must. */
static bool txn_syncs(const store *s, bool durable) {
  if (s->durability == ZKE_DURABLE_BY_KIND) return durable;
  return s->durability == ZKE_DURABLE_ALL;
}

/* Wait for the gate and begin.  On failure nothing is held, the gate is left,
 * and t needs no txn_abort(). */
static int txn_begin(txn *t, store *s, zke *z, enum txn_class hint) {
  REQUIRE(LOCK_HELD(s));
  if (health_needs_recovery(s)) {
    return base_fail(ZKE_CONNECTIONLOSS, "%s: a COMMIT or a sync failed before",
                     s->name);
  }
  int rc = db_end(s);
  if (rc == ZKE_OK) rc = gate_enter(s, z, txn_syncs(s, hint == TXN_FULL));
  if (rc != ZKE_OK) return rc;
  memset(t, 0, sizeof *t);
  t->s = s;
  t->z = z;
  t->kin = z != NULL; /* without a session it may end or attach one */
  t->wake.a = t->overflowed.a = t->ended.a = t->parent.a = &s->a;
  rc = db_begin_write(s);
  if (rc == ZKE_OK) rc = db_trust_log(s);
  if (rc == ZKE_OK) rc = txn_read_meta(t);
  if (rc != ZKE_OK) txn_abort(t);
  return rc;
}

/* Use a zxid: one per transaction, however often this is called.  If the
 * counter overflows into the epoch, the change must be durable, or the same
 * epoch could come again after a power cut. */
static int txn_number(txn *t) {
  REQUIRE(WRITING(t->s));
  if (t->numbered) return ZKE_OK;
  if (t->zxid >= TXN_LAST_ZXID || t->zxid < 0)
    return base_fail(ZKE_CORRUPT, "%s: the zxids are used up", t->s->name);
  t->numbered = true;
  t->zxid++;
  t->durable |= (t->zxid & INT64_C(0xffffffff)) == 0;
  return ZKE_OK;
}

/* Use a further zxid, for the next of several changes in one transaction. */
static int txn_number_again(txn *t) {
  t->numbered = false;
  return txn_number(t);
}

SQL_STATEMENT(EVENT_TRIM,
              "DELETE FROM zkembed_event WHERE session=?1 AND seq<=?2");

SQL_STATEMENT(SESSION_SEEN, "UPDATE zkembed_session SET seen=?2 WHERE id=?1");

/* Drop the acting session's delivered events as part of its change, and note
 * the last one's number: the next is greater. */
static int txn_trim(txn *t) {
  REQUIRE(WRITING(t->s));
  zke *z = t->z;
  if (!z || z->cursor <= z->trimmed) return ZKE_OK;
  int64_t values[] = {z->id, z->cursor};
  int rc = sql_do_ints(t->s, SQL_EVENT_TRIM, 2, values);
  return rc == ZKE_OK ? sql_do_ints(t->s, SQL_SESSION_SEEN, 2, values) : rc;
}

/* The result of a COMMIT or a compaction, from its SQLite code.  `written`: it
 * may have left a commit in the log.
 *
 * After an I/O error the outcome is unknown.  It is also unknown after a
 * failure that follows the write of the commit's frame.  SQLite may need memory
 * then, to enter the frames in the WAL-index.  If the VFS does not promise
 * powersafe overwriting, it also fills the sector with more frames, and the
 * disk may be full.  SQLite takes the commit back, but its frames are in the
 * log.  A process that recovers the log before they are overwritten finds the
 * commit. */
static int txn_outcome(store *s, int sqlite_rc, bool written,
                       const char *doing) {
  if (sqlite_rc == SQLITE_OK) return ZKE_OK;
  int rc = sql_error(s, sqlite_rc, doing);
  int primary = sqlite_rc & 0xff;
  if (primary == SQLITE_CONSTRAINT) rc = ZKE_SQL; /* a deferred one */
  bool late = primary == SQLITE_NOMEM || primary == SQLITE_FULL;
  if (primary == SQLITE_IOERR || (late && written)) {
    health_worsen(s, HEALTH_BROKEN);
    host_log(s, ZKE_LOG_ERROR, "%s", base_sentence);
    rc = ZKE_CONNECTIONLOSS;
  }
  return rc;
}

/* COMMIT itself, synced or not. */
static int txn_commit_sqlite(store *s, bool sync) {
  sqlite3_stmt *st = s->statement[SQL_COMMIT->id]; /* by db_prepare_ends() */
  s->wal_log.lazy = !sync;
  s->wal_log.written = false;
  s->writing = false;
  int sqlite_rc = sqlite3_step(st);
  s->wal_log.lazy = false;
  sqlite3_reset(st);
  s->index.lockless = false;
  return txn_outcome(s, sqlite_rc == SQLITE_DONE ? SQLITE_OK : sqlite_rc,
                     s->wal_log.written, "COMMIT");
}

/* After COMMIT: unlink the FIFOs of ended sessions, wake the watchers. */
static void txn_tell(txn *t) {
  store *s = t->s;
  size_t n;
  buf_sort_ints(&t->wake);
  const int64_t *session = buf_ints(&t->wake, &n);
  for (size_t i = 0; i < n; i++) wake_session(s, session[i], WAKE_EVENT);
  session = buf_ints(&t->ended, &n);
  if (!n || s->memory || !side_live_is_ours(s)) return;
  for (size_t i = 0; i < n; i++) {
    char *path = wake_path(s, session[i]);
    if (path) s->os.unlink(s->os.context, path);
    mem_free(path);
  }
}

/* Note the last zxid in the liveness file, after COMMIT and before the gate is
 * left.  A database with a smaller zxid was restored from a backup.  One with a
 * greater zxid has a commit by a process that died before this note. */
static void txn_note_zxid(const txn *t) {
  if (!t->s->memory) side_write_hint(t->s, SIDE_ZXID_AT, t->zxid);
}

SQL_STATEMENT(META_SET, "UPDATE zkembed_meta SET zxid=?1,recursive=?2,lost=?3");

/* Write what every transaction adds to its body's changes: the zxid, if one was
 * used, the numbers of recursive watches and of lost sessions, and the trim of
 * delivered events. */
static int txn_finish_rows(txn *t) {
  int rc = ZKE_OK;
  if (t->wake.failed || t->ended.failed) return base_nomem();
  if (t->numbered || t->recursive != t->recursive_was || t->lost != t->lost_was)
    rc = sql_do_ints(t->s, SQL_META_SET, 3,
                     (int64_t[]){t->zxid, t->recursive, t->lost});
  return rc == ZKE_OK ? txn_trim(t) : rc;
}

/* Checkpoint if the log has grown long, with the gate held, since this is a
 * write like any other (P12).  A failure does not affect the commit before it:
 * it is logged, and the next commit tries again.  If the log could not be
 * synced, it is recovered immediately, before others rely on it. */
static void txn_shorten_log(store *s) {
  REQUIRE(GATE_HELD(s));
  if (s->wal_pages < s->wal_limit) return; /* in memory: no log, 0 pages */
  int rc = db_checkpoint(s, false);
  if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT)
    host_log(s, ZKE_LOG_ERROR, "%s", base_sentence);
  if (s->health == HEALTH_IN_DOUBT && recover_log(s) != ZKE_OK)
    host_log(s, ZKE_LOG_ERROR, "%s", base_sentence);
}

/* Commit, then tell the sessions concerned.  Why this order is right:
 *
 *   - Everything that can still fail for lack of memory or space is done before
 *     COMMIT, so a failure rolls everything back.  Only COMMIT itself can leave
 *     the outcome unknown (txn_outcome()).
 *   - A synced commit is durable only if the log's name is in the directory, so
 *     the directory is synced before.
 *   - The session's `trimmed` is set after the commit.  Trimming twice costs
 *     nothing; rows wrongly believed trimmed would count as pending.
 *   - The zxid is noted before the gate is left, so notes never go backwards.
 *   - No session is woken before the gate is left. */
static int txn_commit(txn *t) {
  REQUIRE(WRITING(t->s) && GATE_HELD(t->s));
  store *s = t->s;
  int rc = txn_finish_rows(t);
  /* if memory runs out at a statement's end, SQLite rolls everything back but
   * reports the statement as done */
  if (rc == ZKE_OK && sqlite3_get_autocommit(s->db)) rc = base_nomem();
  bool sync = txn_syncs(s, t->durable);
  if (rc == ZKE_OK && sync) rc = wal_make_name(s);
  s->index.kin = t->kin;
  if (rc == ZKE_OK) rc = txn_commit_sqlite(s, sync);
  s->index.kin = false;
  if (rc != ZKE_OK) {
    txn_abort(t);
    return rc;
  }
  txn_note_meta(t);
  if (t->z) t->z->trimmed = t->z->cursor;
  if (t->numbered) txn_note_zxid(t);
  wal_note_name(s);
  txn_shorten_log(s);
  gate_leave(s);
  txn_tell(t);
  txn_release(t);
  return ZKE_OK;
}

/* ---- batches ----
 *
 * The thread that runs a batch's function is alone in the store meanwhile.  It
 * is in one batch at a time, among all stores: `txn_here`. */

static _Thread_local txn_batch *txn_here;

/* The batch of the function that this thread is in, or NULL.  A child forked in
 * the function is in no batch: the transaction is its parent's. */
static txn_batch *txn_batch_here(void) {
  return txn_here && !fork_is_copy(txn_here->t.s) ? txn_here : NULL;
}

/* Break the batch: no more calls, and all of it will be undone.  Keep the first
 * reason.  Returns rc. */
static int txn_break(txn_batch *b, int rc) {
  if (b->rc != ZKE_OK) return rc;
  b->rc = rc;
  base_save(b->why);
  return rc;
}

/* The result of every call in a broken batch, and of the batch itself. */
static int txn_say_broken(const txn_batch *b) {
  if (b->rc != ZKE_OK) base_restore(b->why);
  return b->rc;
}

/* Decide whether a failed call breaks the batch.  A refusal or a lack of memory
 * does not, since only that operation was undone: the caller decides.  If the
 * file cannot be read or written, or SQLite has rolled the transaction back by
 * itself, the earlier operations may be lost, so no later call may continue. */
static int txn_judge(txn_batch *b, int rc) {
  switch (rc) {
    case ZKE_SYSTEMERROR:
    case ZKE_CONNECTIONLOSS:
    case ZKE_OPERATIONTIMEOUT:
    case ZKE_NOTADB:
    case ZKE_CORRUPT:
    case ZKE_FULL:
    case ZKE_CANTOPEN:
      return txn_break(b, rc);
    default:
      return sqlite3_get_autocommit(b->t.s->db) ? txn_break(b, rc) : rc;
  }
}

/* What is restored when an operation is undone. */
typedef struct txn_mark {
  bool durable, history;
  int changes; /* rows that SQLite has changed before it */
  int64_t zxid, recursive;
  size_t wake, ended, watches;
} txn_mark;

/* The state before an operation, to which it can be undone. */
static txn_mark txn_set_mark(const txn_batch *b) {
  const txn *t = &b->t;
  return (txn_mark){.durable = t->durable,
                    .history = t->history,
                    .changes = sqlite3_total_changes(t->s->db),
                    .zxid = t->zxid,
                    .recursive = t->recursive,
                    .wake = t->wake.len,
                    .ended = t->ended.len,
                    .watches = b->watches.len};
}

SQL_STATEMENT(JOIN_END, "RELEASE zkembed_operation");

SQL_STATEMENT(JOIN_UNDO, "ROLLBACK TO zkembed_operation");

/* Undo the rows of an operation that failed with rc.  An operation without a
 * savepoint has usually changed none.  If it has, only the whole batch can be
 * undone, and rc breaks it.  SQLite itself undoes the statement that failed. */
static int txn_undo_rows(txn_batch *b, const txn_mark *to, int rc) {
  store *s = b->t.s;
  if (sqlite3_get_autocommit(s->db)) return ZKE_OK; /* SQLite has undone all */
  if (!b->t.saved)
    return sqlite3_total_changes(s->db) == to->changes ? ZKE_OK : rc;
  int undone = sql_do(s, SQL_JOIN_UNDO);
  if (undone == ZKE_OK && !sqlite3_get_autocommit(s->db))
    undone = sql_do(s, SQL_JOIN_END);
  return undone;
}

/* Undo an operation that failed with rc, which is returned: its rows by SQLite,
 * the rest by the mark.  If the rows cannot be undone, the batch is broken. */
static int txn_undo_join(txn_batch *b, const txn_mark *to, int rc) {
  txn *t = &b->t;
  char cause[BASE_SENTENCE];
  base_save(cause);
  t->durable = to->durable;
  t->history = to->history;
  t->zxid = to->zxid;
  t->recursive = to->recursive;
  t->wake.len = to->wake;
  t->ended.len = to->ended;
  b->watches.len = to->watches;
  t->wake.failed = t->ended.failed = b->watches.failed = false;
  t->parent_by = 0;
  int undone = txn_undo_rows(b, to, rc);
  if (undone != ZKE_OK) return txn_break(b, undone);
  base_restore(cause);
  return txn_judge(b, rc);
}

SQL_STATEMENT(JOIN, "SAVEPOINT zkembed_operation");

/* Set the savepoint: from here on the rows of the batch's running operation can
 * be undone alone.  Outside of a batch there is nothing to do, since the whole
 * transaction is undone. */
static int txn_save(txn *t) {
  REQUIRE(WRITING(t->s));
  if (!t->s->batch || t->saved) return ZKE_OK;
  int rc = sql_do(t->s, SQL_JOIN);
  t->saved = rc == ZKE_OK;
  return rc;
}

/* Run a body as one operation of the batch.  First reset what each transaction
 * begins with.  A guarded body calls txn_save() itself if it must.  The list of
 * wake-ups must be complete before the next operation: without memory for it
 * this operation is undone. */
static int txn_join(txn_batch *b, zke *z, bool guarded, txn_body body,
                    void *arg) {
  txn *t = &b->t;
  txn_mark mark = txn_set_mark(b);
  t->saved = t->unheard = false;
  t->joins++;
  int rc = guarded ? ZKE_OK : txn_save(t);
  if (rc != ZKE_OK) return txn_break(b, rc);
  t->z = z;
  t->now = t->s->os.clock(t->s->os.context, ZKE_CLOCK_REALTIME) / ZKE_MS;
  t->numbered = false;
  t->overflowed.len = 0;
  rc = body(t, arg);
  if (rc == ZKE_FORKED) return rc; /* the transaction is the parent's */
  bool failed = t->wake.failed || t->ended.failed || b->watches.failed;
  /* as in txn_commit(): SQLite may have undone all */
  failed = failed || sqlite3_get_autocommit(t->s->db);
  if (rc == ZKE_OK && failed) rc = base_nomem();
  if (rc == ZKE_OK && t->saved) rc = sql_do(t->s, SQL_JOIN_END);
  if (rc != ZKE_OK) rc = txn_undo_join(b, &mark, rc);
  base_zxid = t->zxid;
  return rc;
}

/* At a session's first call in the batch that needs the file: check that the
 * session exists.  No process can end it until the batch ends.  Drop its
 * delivered events, as with any change (txn_trim()). */
static int txn_join_session(txn_batch *b, zke *z) {
  store *s = b->t.s;
  int64_t meta[4] = {0};
  int rc = ZKE_OK;
  if (z->joined == s->batches) return ZKE_OK;
  if (!txn_knows_row(z)) {
    rc = sql_fetch_ints(s, SQL_META, z->id, 4, meta);
    if (rc == ZKE_OK) rc = txn_session_stands(z, meta[3]);
    if (rc != ZKE_OK) return rc;
    z->row_era = s->index.era;
  }
  buf_add(&b->members, &z, sizeof(zke *));
  if (rc == ZKE_OK && b->members.failed) rc = base_nomem();
  b->members.failed = false;
  if (rc != ZKE_OK) return rc;
  z->joined = s->batches;
  b->t.z = z;
  rc = txn_trim(&b->t);
  return rc == ZKE_OK ? ZKE_OK : txn_break(b, rc);
}

/* Begin a batch: as txn_begin() does, with a place in the line, since the
 * function may take any time. */
static int txn_begin_batch(txn_batch *b, zke *z) {
  store *s = z->s;
  memset(b, 0, sizeof *b);
  b->z = z;
  b->members.a = b->watches.a = &s->a;
  int rc = txn_begin(&b->t, s, z, TXN_FULL);
  if (rc != ZKE_OK) return rc;
  s->batches++;
  s->batch = txn_here = b;
  rc = txn_join_session(b, z);
  if (rc == ZKE_OK) return ZKE_OK;
  s->batch = txn_here = NULL;
  txn_abort(&b->t);
  buf_free(&b->members);
  return rc;
}

/* End a batch with its function's result rc: commit, or undo all of it.  The
 * caller handles what the batch has collected, and frees it. */
static int txn_end_batch(txn_batch *b, int rc) {
  txn *t = &b->t;
  store *s = t->s;
  size_t count = b->members.len / sizeof(zke *);
  s->batch = txn_here = NULL;
  if (b->rc != ZKE_OK) rc = txn_say_broken(b);
  base_zxid = rc == ZKE_OK ? t->zxid : t->zxid_was;
  if (rc != ZKE_OK) {
    txn_abort(t);
    return rc;
  }
  t->z = NULL; /* its members' events have been trimmed */
  t->numbered = t->zxid != t->zxid_was;
  rc = txn_commit(t);
  if (rc != ZKE_OK) base_zxid = 0;
  for (size_t i = 0; i < count && rc == ZKE_OK; i++) {
    zke *z = ((zke **)(void *)b->members.data)[i];
    z->trimmed = z->cursor;
  }
  return rc;
}

/* ---- a transaction ---- */

/* Run a body in a transaction, or as an operation of the open batch.  A
 * session's transaction sets base_zxid for zke_zxid(): to its own zxid or, if
 * it is refused, to that of the state that it found. */
static int txn_run(store *s, zke *z, enum txn_class hint, txn_body body,
                   void *arg) {
  txn t;
  if (s->batch) return txn_join(s->batch, z, false, body, arg);
  int rc = txn_begin(&t, s, z, hint);
  if (rc != ZKE_OK) return rc;
  rc = body(&t, arg);
  if (rc == ZKE_FORKED) return rc; /* the transaction is the parent's */
  if (rc == ZKE_OK) {
    rc = txn_commit(&t);
    if (z) base_zxid = rc == ZKE_OK ? t.zxid : 0; /* not that of a discard */
  } else {
    if (z) base_zxid = t.zxid_was;
    txn_abort(&t);
  }
  return rc;
}

/* The same for a body that in a batch calls txn_save() before its first write.
 * It need not if only SQLite's own failures can stop it after that write. */
static int txn_run_guarded(store *s, zke *z, enum txn_class hint, txn_body body,
                           void *arg) {
  if (s->batch) return txn_join(s->batch, z, true, body, arg);
  return txn_run(s, z, hint, body, arg);
}

/* txn_run() without waiting: ZKE_OPERATIONTIMEOUT if the gate is taken. */
static int txn_try(store *s, zke *z, enum txn_class hint, txn_body body,
                   void *arg) {
  int64_t deadline = s->deadline;
  s->deadline = 0;
  int rc = txn_run(s, z, hint, body, arg);
  s->deadline = deadline;
  return rc;
}

/* ---- commits without a zxid ----
 *
 * If a process dies between the last write of its COMMIT and the note of its
 * sync, the next process to open the file knows this by the zxid
 * (judge_sync_log()).  Three commits use no zxid: a compaction, the removal of
 * the tables, and a transaction of the program's own connection, whose sync
 * does not pass wal_ either.  For these a doubt about the log is noted before
 * the COMMIT. */

/* Call before such a COMMIT. */
static void txn_expect_death(store *s) { wal_note_doubt(s, true); }

/* Call after it. */
static void txn_outlive(store *s) {
  if (s->health == HEALTH_GOOD) wal_note_doubt(s, false);
}

/* ======================================================================
 * compact_: rewriting the file (private)
 *
 * The file is rewritten in one transaction of SQLite's, like any other except
 * for its length: first into the log, then by a checkpoint into the database,
 * which is truncated to its new length.  The gate is held throughout, so no
 * other process writes or checkpoints meanwhile (P12).  A process that reads
 * without locks sees that the header of the WAL-index has changed before a page
 * of the database is overwritten or cut off.
 *
 * Start reading at compact_file().
 * ==================================================================== */

enum {
  COMPACT_STEPS = 10000
}; /* of SQLite's, between two looks at the clock */

/* Should the compaction stop?  SQLite asks while it copies the content. */
static int compact_is_late(void *arg) {
  const zke *z = arg;
  return atomic_load(&z->closing) || host_now(z->s) >= z->s->deadline;
}

/* The result of a compaction that was stopped, with the reason. */
static int compact_give_up(const zke *z) {
  if (atomic_load(&z->closing))
    return base_fail(ZKE_CLOSING, "the handle is being closed");
  return base_fail(ZKE_OPERATIONTIMEOUT,
                   "%s: there was not enough time to compact it; nothing was "
                   "changed",
                   z->s->name);
}

/* Rewrite the database, with the gate held and the log empty.  Then checkpoint
 * the log, even after a failure, which may have left frames in it.  If a reader
 * is in the way, a later checkpoint does this. */
static int compact_vacuum(store *s, zke *z) {
  REQUIRE(GATE_HELD(s));
  txn_expect_death(s);
  sqlite3_progress_handler(s->db, COMPACT_STEPS, compact_is_late, z);
  int sqlite_rc = db_vacuum(s);
  sqlite3_progress_handler(s->db, 0, NULL, NULL);
  int rc = sqlite_rc == SQLITE_INTERRUPT
               ? compact_give_up(z)
               : txn_outcome(s, sqlite_rc, false, "compacting");
  txn_outlive(s);
  if (health_is_broken(s)) return rc;
  char cause[BASE_SENTENCE];
  base_save(cause);
  int after = sql_exec(s, "PRAGMA temp_store=MEMORY", "configuring");
  if (after == ZKE_OK) after = db_prepare_ends(s);
  if (after != ZKE_OK)
    health_worsen(s, HEALTH_BROKEN); /* the next call reconnects */
  else
    after = db_checkpoint(s, true);
  if (rc != ZKE_OK) base_restore(cause);
  return rc == ZKE_OK ? after : rc;
}

/* Compact the file.  The log is checkpointed before, so that after a failure
 * the database file has everything.  The deadline is checked again after the
 * gate is locked, since waiting for it may have taken all the time.  A death
 * before SQLite's COMMIT at the end of its VACUUM leaves the old database. */
static int compact_file(store *s, zke *z) {
  REQUIRE(LOCK_HELD(s));
  int rc = db_end(s);
  if (rc == ZKE_OK) rc = gate_enter(s, z, true);
  if (rc != ZKE_OK) return rc;
  if (compact_is_late(z)) rc = compact_give_up(z);
  if (rc == ZKE_OK) rc = wal_make_name(s);
  if (rc == ZKE_OK) rc = db_checkpoint(s, true);
  if (rc == ZKE_OK) rc = compact_vacuum(s, z);
  if (s->health == HEALTH_IN_DOUBT) recover_log(s);
  gate_leave(s);
  return rc;
}

/* ======================================================================
 * watch_: registering, firing, queueing events (private)
 *
 * A watch is a row: path, kind, session.  An event is also a row, in the queue
 * of its session, written in the transaction of the change itself.  So a change
 * is committed together with its events or not at all (P3).  If the process
 * dies, only the wake-up can be lost, and the tick makes up for it (P7).  The
 * function to call is not in the rows: that is watcher_.
 *
 * A watch's mode says how long it stays and how far it sees: one-shot,
 * persistent, or recursive, which is persistent and also sees the nodes below
 * its path.  Its table says which changes it sees, as in ZooKeeper's server:
 * the data and existence of the node, or its children.  A row's kind combines
 * both (watch_kind()).
 *
 * Invariants: a one-shot row is removed in the transaction that fires it (P3);
 * a session gets one event for a change of a path, however many of its rows
 * match; event numbers of a session grow by one (P4).
 *
 * Start reading at watch_fire_found().
 * ==================================================================== */

/* The kind of a row; kind / 2 and kind % 2 are the mode and the table.  The
 * numbers are in files and must not change. */
static int watch_kind(int mode, int table) { return 2 * mode + table; }

SQL_STATEMENT(WATCH_ADD,
              "INSERT OR IGNORE INTO zkembed_watch(path,kind,session)"
              "VALUES(:path,:kind,:session)");

SQL_STATEMENT(WATCH_REMOVE,
              "DELETE FROM zkembed_watch WHERE path=:path AND kind=:kind "
              "AND session=:session");

/* Run one of these two statements for this session's row of a path and a kind.
 * The meta row counts the recursive rows of all sessions (I12): while it is 0,
 * no change looks for watches above its own path.
 *
 *   by  1 if the statement adds a row, -1 if it removes one */
static int watch_change(txn *t, const sql_text *sql, int by, const char *path,
                        int kind) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, sql, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, ":path", path, -1);
  sql_bind_int(st, 2, ":kind", kind);
  sql_bind_int(st, 3, ":session", t->z->id);
  rc = sql_run(t->s, st);
  if (rc == ZKE_OK && kind >= watch_kind(WATCH_RECURSIVE, 0))
    t->recursive = base_wrap(t->recursive, by * sqlite3_changes(t->s->db));
  return rc;
}

/* Add a row; no effect if it exists. */
static int watch_add(txn *t, const char *path, int kind) {
  t->watched = true;
  return watch_change(t, SQL_WATCH_ADD, 1, path, kind);
}

/* Remove this session's row of a path and a kind, if there is one.  The caller
 * removes the watcher in memory. */
static int watch_remove(txn *t, const char *path, int kind) {
  return watch_change(t, SQL_WATCH_REMOVE, -1, path, kind);
}

SQL_STATEMENT(WATCH_RECURSIVE,
              "SELECT count(*)FROM zkembed_watch WHERE session=?1 AND kind>=4");

SQL_STATEMENT(WATCH_END, "DELETE FROM zkembed_watch WHERE session=?1");

/* Remove all rows of a session, and subtract the recursive ones from the meta
 * row's count. */
static int watch_end(txn *t, int64_t session) {
  REQUIRE(WRITING(t->s));
  int64_t recursive = 0;
  int rc = ZKE_OK;
  if (t->recursive)
    rc = sql_fetch_ints(t->s, SQL_WATCH_RECURSIVE, session, 1, &recursive);
  if (rc != ZKE_OK) return rc;
  t->recursive = base_wrap(t->recursive, -recursive);
  return sql_do_int(t->s, SQL_WATCH_END, session);
}

SQL_STATEMENT(
    EVENT_BOUNDS,
    "SELECT(SELECT min(seq)FROM zkembed_event WHERE session=?1),"
    "(SELECT max(seq)FROM zkembed_event WHERE session=?1),seen,event_limit,"
    "carrier FROM zkembed_meta LEFT JOIN zkembed_session ON id=?1");

SQL_STATEMENT(WATCH_SPEND,
              "DELETE FROM zkembed_watch WHERE session=?1 AND kind<2");

SQL_STATEMENT(
    EVENT_ADD,
    "INSERT INTO zkembed_event(session,seq,type,path,zxid,acl,carrier)"
    "VALUES(:session,:seq,:type,:path,:zxid,:acl,:carrier)");

SQL_STATEMENT(EVENT_END, "DELETE FROM zkembed_event WHERE session=?1");

/* Queue an event of the transaction's change for a session.  If its queue is
 * full, replace all its events by an overflow, which also removes the session's
 * one-shots (P4).  The session's carrier is noted, to be woken after COMMIT.
 * If the session has ended meanwhile, nothing is queued, and this is no
 * failure. */
static int watch_queue(txn *t, int64_t session, int type, const char *path,
                       size_t len, const char *acl) {
  REQUIRE(WRITING(t->s));
  /* least and greatest number, last one seen, limit, carrier */
  int64_t b[5] = {0};
  int rc = sql_fetch_ints(t->s, SQL_EVENT_BOUNDS, session, 5, b);
  if (rc != ZKE_OK) return rc;
  /* Numbers are never reused: this one exceeds the last one seen, even if all
   * rows are trimmed. */
  int64_t seq = b[3] ? base_wrap(base_max(b[1], b[2]), 1) : 0;
  int64_t carrier = b[4];
  if (!seq) return ZKE_OK; /* there is no such session */
  /* rows that were seen but are not trimmed yet count as waiting */
  int64_t waiting = base_wrap(b[1], (int64_t)(1 - (uint64_t)b[0]));
  if (b[1] && waiting >= b[3]) {
    rc = sql_do_int(t->s, SQL_EVENT_END, session);
    if (rc == ZKE_OK) rc = sql_do_int(t->s, SQL_WATCH_SPEND, session);
    type = ZKE_EVENT_OVERFLOW;
    len = 0;
    acl = NULL;
  }
  sqlite3_stmt *st =
      rc == ZKE_OK ? sql_statement(t->s, SQL_EVENT_ADD, &rc) : NULL;
  if (!st) return rc;
  sql_bind_int(st, 1, ":session", session);
  sql_bind_int(st, 2, ":seq", seq);
  sql_bind_int(st, 3, ":type", type);
  sql_bind_text(st, 4, ":path", path, (int)len);
  sql_bind_int(st, 5, ":zxid", t->zxid);
  sql_bind_text(st, 6, ":acl", acl, -1);
  sql_bind_int(st, 7, ":carrier", carrier);
  buf_add_int(&t->wake, carrier ? carrier : session);
  return sql_run(t->s, st);
}

/* Does an event match a watch?  The same rule decides in the file, when a
 * change is made, and in memory, when its event is dispatched.
 *
 *   mode   WATCH_ONE_SHOT and the like
 *   table  of the watch: data and existence, or children
 *   below  the event is of a node below the watched path */
static bool watch_matches(int mode, int table, int type, bool below) {
  if (mode == WATCH_RECURSIVE) {
    if (type == ZKE_EVENT_CHILD) return false; /* the child has its own event */
  } else if (below) {
    return false;
  }
  if (type == ZKE_EVENT_DELETED) return true; /* matches both tables */
  return table ==
         (type == ZKE_EVENT_CHILD ? WATCH_TABLE_CHILD : WATCH_TABLE_DATA);
}

SQL_STATEMENT(WATCH_AT,
              "SELECT kind,session FROM zkembed_watch WHERE path=:path");

/* Collect the sessions that watch a path for an event of this type, on the path
 * itself or below it; fired[] tells which one-shot tables have rows.  A session
 * with several such rows is in the buffer several times; watch_fire_found()
 * removes the duplicates.  Skips the search if the file has no watch at all, or
 * none for the running operation. */
static int watch_collect(txn *t, const char *path, size_t len, int type,
                         bool below, buf *sessions, bool fired[2]) {
  int rc;
  if (!t->watched || t->unheard) return ZKE_OK;
  sqlite3_stmt *st = sql_statement(t->s, SQL_WATCH_AT, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, ":path", path, (int)len);
  for (;;) {
    bool row;
    rc = sql_step(t->s, st, &row);
    if (rc != ZKE_OK || !row) return rc;
    int kind = sqlite3_column_int(st, 0);
    if (kind < 0 || !watch_matches(kind / 2, kind % 2, type, below)) continue;
    buf_add_int(sessions, sqlite3_column_int64(st, 1));
    if (kind / 2 == WATCH_ONE_SHOT) fired[kind % 2] = true;
  }
}

/* Collect the recursive watches of all ancestors; no lookup while the file has
 * none.  One-shots of an ancestor see nothing below it, so `none` is not set.
 */
static int watch_collect_ancestors(txn *t, const char *path, size_t len,
                                   int type, buf *sessions) {
  bool none[2];
  int rc = ZKE_OK;
  while (rc == ZKE_OK && t->recursive && path_climb(path, &len))
    rc = watch_collect(t, path, len, type, true, sessions, none);
  return rc;
}

SQL_STATEMENT(WATCH_DROP,
              "DELETE FROM zkembed_watch WHERE path=:path AND kind=:kind");

/* Remove the rows of all sessions for a path and a kind after they have fired:
 * one change fires all of them. */
static int watch_drop(txn *t, const char *path, size_t len, int kind) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_WATCH_DROP, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, ":path", path, (int)len);
  sql_bind_int(st, 2, ":kind", kind);
  return sql_run(t->s, st);
}

/* Collect the sessions with any watch that a change of a path fires. */
static int watch_collect_all(txn *t, const char *path, size_t len, int type,
                             buf *sessions, bool fired[2]) {
  int rc = watch_collect(t, path, len, type, false, sessions, fired);
  if (rc == ZKE_OK && type != ZKE_EVENT_CHILD)
    rc = watch_collect_ancestors(t, path, len, type, sessions);
  return rc == ZKE_OK && sessions->failed ? base_nomem() : rc;
}

/* *found: would a change of this type fire a watch? */
static int watch_find(txn *t, const char *path, size_t len, int type,
                      bool *found) {
  buf sessions = {.a = &t->s->a};
  bool fired[2] = {false, false};
  int rc = watch_collect_all(t, path, len, type, &sessions, fired);
  *found = sessions.len > 0;
  buf_free(&sessions);
  return rc;
}

/* Fire the watches of one path: queue an event for each session, consume the
 * one-shots.  `acl` is the node's ACL, to check the reader's permission at
 * delivery (semantics.md 5.8).  *found: was there a watch? */
static int watch_fire_found(txn *t, const char *path, size_t len, int type,
                            const char *acl, bool *found) {
  buf sessions = {.a = &t->s->a};
  bool fired[2] = {false, false};
  int rc = watch_collect_all(t, path, len, type, &sessions, fired);
  buf_sort_ints(&sessions);
  size_t n;
  const int64_t *session = buf_ints(&sessions, &n);
  *found = n > 0;
  for (size_t i = 0; i < n && rc == ZKE_OK; i++)
    rc = watch_queue(t, session[i], type, path, len, acl);
  for (int table = 0; table < 2 && rc == ZKE_OK; table++) {
    if (fired[table])
      rc = watch_drop(t, path, len, watch_kind(WATCH_ONE_SHOT, table));
  }
  buf_free(&sessions);
  return rc;
}

/* The same, without telling whether there was a watch. */
static int watch_fire(txn *t, const char *path, size_t len, int type,
                      const char *acl) {
  bool found;
  return watch_fire_found(t, path, len, type, acl, &found);
}

SQL_STATEMENT(
    WATCH_BELOW,
    "SELECT 1 FROM zkembed_watch WHERE path>:path||'/' AND path<:path||'0' "
    "LIMIT 1");

/* Is there a watch of any path below a parent?  These paths are one range of
 * the key, from "parent/" to "parent0". */
static int watch_any_below(txn *t, const char *parent, size_t len, bool *any) {
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_WATCH_BELOW, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, ":path", parent, len == 1 ? 0 : (int)len); /* the root */
  rc = sql_step(t->s, st, any);
  if (*any) sqlite3_reset(st);
  return rc;
}

/* *quiet: no watch sees DELETED of a child of this parent; `path` is any such
 * child.  Watches for CHILD of the parent are not considered.  While nodes are
 * being removed no watch is added, so the answer holds for all children of the
 * parent until the transaction ends. */
static int watch_is_quiet(txn *t, const char *path, size_t len,
                          size_t parent_len, bool *quiet) {
  bool any = false;
  buf sessions = {.a = &t->s->a};
  int rc = watch_any_below(t, path, parent_len, &any);
  if (rc == ZKE_OK && !any)
    rc = watch_collect_ancestors(t, path, len, ZKE_EVENT_DELETED, &sessions);
  *quiet = !any && !sessions.len && !sessions.failed;
  buf_free(&sessions);
  return rc;
}

/* ======================================================================
 * history_: the history of nodes, if it is kept (private)
 *
 * If the database keeps a history, each transaction adds a row to it for each
 * node that it creates, changes or deletes.  The rows are in the order of the
 * changes: `seq` and `zxid` rise together, and several rows may have one zxid.
 * The oldest are removed first, so the history has no gap: it is complete after
 * the first row's zxid.  The very first row only says when the history began.
 *
 * The limits are in the meta row, so each transaction knows from its start
 * whether there is a history (txn_read_meta()).  The table is made when the
 * history is turned on, and dropped when it is turned off.
 *
 * Rows that are too old are removed a few at a time, when rows are added.
 *
 * The library never reads the rows: programs do so by SQL (doc/format.md).
 *
 * Start reading at history_note().
 * ==================================================================== */

enum {
  HISTORY_BEGINS = 0, /* instead of an event's type */
  HISTORY_EVERY = 8,  /* rows added between two prunings */
  HISTORY_GOES = 64   /* rows a pruning removes at most: more than are added */
};

SQL_STATEMENT(
    HISTORY_ADD,
    "INSERT INTO zkembed_history(zxid,time,type,path,session,owner,acl,"
    "identity,pid)SELECT :zxid,:time,:type,:path,:session,:owner,:acl,"
    "coalesce(identity,''),coalesce(pid,0)FROM(SELECT 1)LEFT JOIN "
    "zkembed_session ON id=:session");

/* Finds the first row to keep, starting at the oldest.  So no row is removed
 * before an older one, even if a clock was set back between them. */
SQL_STATEMENT(
    HISTORY_PRUNE,
    "DELETE FROM zkembed_history WHERE seq<(SELECT h.seq FROM zkembed_meta "
    "CROSS JOIN zkembed_history AS h WHERE one=1 AND(h.seq>=?3+(SELECT "
    "min(seq)FROM zkembed_history)OR NOT((history_rows>0 AND "
    "h.seq<=?1-history_rows)OR(history_ms>0 AND h.time<?2-history_ms)))"
    "ORDER BY h.seq LIMIT 1)");

/* Prepare the statements of history_note(), for op_prepare(). */
static int history_prepare(store *s) {
  int rc;
  sql_statement(s, SQL_HISTORY_ADD, &rc);
  if (rc == ZKE_OK) sql_statement(s, SQL_HISTORY_PRUNE, &rc);
  return rc;
}

/* Note a change of a node in its transaction, if a history is kept.  `owner`:
 * of an ephemeral node, if known; `acl`: the node's. */
static int history_note(txn *t, const char *path, size_t len, int type,
                        int64_t owner, const char *acl) {
  REQUIRE(WRITING(t->s));
  int rc;
  if (!t->history) return ZKE_OK;
  sqlite3_stmt *st = sql_statement(t->s, SQL_HISTORY_ADD, &rc);
  if (!st) return rc;
  int64_t session = t->z ? t->z->id : 0;
  if (t->ending) session = t->ending;
  sql_bind_int(st, 1, ":zxid", t->zxid);
  sql_bind_int(st, 2, ":time", t->now);
  sql_bind_int(st, 3, ":type", type);
  sql_bind_text(st, 4, ":path", path, (int)len);
  sql_bind_int(st, 5, ":session", session);
  sql_bind_int(st, 6, ":owner", owner);
  sql_bind_text(st, 7, ":acl", acl, -1);
  rc = sql_run(t->s, st);
  if (rc != ZKE_OK) return rc;
  int64_t seq = sqlite3_last_insert_rowid(t->s->db);
  if (seq % HISTORY_EVERY) return ZKE_OK;
  return sql_do_ints(t->s, SQL_HISTORY_PRUNE, 3,
                     (int64_t[]){seq, t->now, HISTORY_GOES});
}

/* Make the table, with the row that says when it began. */
static int history_begin(txn *t) {
  int rc = sql_exec(
      t->s,
      "CREATE TABLE zkembed_history(seq INTEGER PRIMARY KEY,"
      "zxid INTEGER NOT NULL,time INTEGER NOT NULL,type INTEGER NOT NULL,"
      "path TEXT NOT NULL,session INTEGER NOT NULL,owner INTEGER NOT NULL,"
      "acl TEXT,identity TEXT NOT NULL,pid INTEGER NOT NULL)STRICT;"
      "CREATE VIEW zke_history AS SELECT seq,zxid,"
      "strftime('%Y-%m-%d %H:%M:%f',time/1000.0,'unixepoch')AS time,"
      "CASE type WHEN 0 THEN 'begins' WHEN 1 THEN 'created' WHEN 2 THEN "
      "'deleted' ELSE 'changed' END AS type,path,session,owner,identity,pid "
      "FROM zkembed_history",
      "making the history");
  t->history = true;
  return rc == ZKE_OK ? history_note(t, "", 0, HISTORY_BEGINS, 0, NULL) : rc;
}

SQL_STATEMENT(HISTORY_LIMITS,
              "UPDATE zkembed_meta SET history_rows=?1,history_ms=?2");

/* Keep a history with these limits; 0 and 0: stop keeping one. */
static int history_keep(txn *t, int64_t rows, int64_t ms) {
  REQUIRE(WRITING(t->s));
  bool keep = rows > 0 || ms > 0;
  t->durable = true;
  int rc = txn_number(t);
  if (rc == ZKE_OK && keep && !t->history) rc = history_begin(t);
  if (rc == ZKE_OK && !keep && t->history) {
    rc = sql_exec(t->s, schema_drop_history, "dropping the history");
    t->history = false;
  }
  if (rc != ZKE_OK) return rc;
  return sql_do_ints(t->s, SQL_HISTORY_LIMITS, 2, (int64_t[]){rows, ms});
}

/* ======================================================================
 * node_: rows of the tree (private)
 *
 * Loading, adding, removing and changing rows, with the parent's counters and
 * the events.  Permissions are checked by op_, not here.
 *
 * A row's key is the parent's path and the name (path_key), so the children of
 * a node are neighbours in the table.  A value of up to ZKE_INLINE_BYTES is in
 * the row, a larger one in a table of its own, to keep reading rows cheap.
 * cversion is not stored: it is 2 * creates - nchild (semantics.md 0).
 *
 * Rows are cached in two places.  A store caches the rows that it reads, as
 * long as it reads the same state (node_place()).  A batch caches the parent of
 * the node that an operation has created or deleted, only for the next
 * operation (node_cache_parent()).
 * ==================================================================== */

/* A node's row without its path and its data.  It is a copy, valid in the
 * transaction that it was read in.  The functions below write a row by its key;
 * their comments say if they update the copy. */
typedef struct node {
  int64_t czxid, mzxid, pzxid, ctime, mtime;
  int32_t version, aversion;
  /* creates: children ever made, and so the number of the next sequential one;
   * blob: 0, or the id of the row with the data; due: see node_set_due() */
  int64_t creates, nchild, owner, ttl, len, blob, due; /* len -1: NULL */
  int kind;
  char *acl; /* NULL: open */
} node;

/* Free the ACL that node_load() has read.  The node's numbers stay. */
static void node_free(node *n) {
  mem_free(n->acl);
  n->acl = NULL;
}

/* A node's Stat, as the caller sees it.  ZooKeeper's counters have 32 bits and
 * wrap, so cversion is computed unsigned and truncated. */
static void node_stat(const node *n, zke_stat *out) {
  out->czxid = n->czxid;
  out->mzxid = n->mzxid;
  out->ctime = n->ctime;
  out->mtime = n->mtime;
  out->version = n->version;
  out->cversion =
      base_int32((int64_t)(2 * (uint64_t)n->creates - (uint64_t)n->nchild));
  out->aversion = n->aversion;
  out->ephemeralOwner = n->owner;
  out->dataLength = (int32_t)base_max(n->len, 0);
  out->numChildren = (int32_t)n->nchild;
  out->pzxid = n->pzxid;
}

/* The columns of a node's row, in the order in which they are read; if the data
 * is read, it comes last. */
/* clang-format off */
#define NODE_COLUMNS(X)                                                       \
  X(CZXID, "czxid,") X(MZXID, "mzxid,") X(PZXID, "pzxid,")                    \
  X(CTIME, "ctime,") X(MTIME, "mtime,") X(VERSION, "version,")                \
  X(AVERSION, "aversion,") X(CREATES, "creates,") X(NCHILD, "nchild,")        \
  X(OWNER, "owner,") X(KIND, "kind,") X(TTL, "ttl,") X(ACL, "acl,")           \
  X(LEN, "len,") X(BLOB, "blob,") X(DUE, "due")
/* clang-format on */
#define NODE_COLUMN_AT(name, text) NODE_AT_##name,
#define NODE_COLUMN_TEXT(name, text) text
enum { NODE_COLUMNS(NODE_COLUMN_AT) NODE_AT_DATA };
#define NODE_COLUMNS_TEXT NODE_COLUMNS(NODE_COLUMN_TEXT)

/* Read a row's columns except its data; the ACL is a copy that node_free()
 * frees.  A length that zkembed cannot have written is refused. */
static int node_read_columns(store *s, sqlite3_stmt *st, node *n) {
  n->czxid = sqlite3_column_int64(st, NODE_AT_CZXID);
  n->mzxid = sqlite3_column_int64(st, NODE_AT_MZXID);
  n->pzxid = sqlite3_column_int64(st, NODE_AT_PZXID);
  n->ctime = sqlite3_column_int64(st, NODE_AT_CTIME);
  n->mtime = sqlite3_column_int64(st, NODE_AT_MTIME);
  n->version = base_int32(sqlite3_column_int64(st, NODE_AT_VERSION));
  n->aversion = base_int32(sqlite3_column_int64(st, NODE_AT_AVERSION));
  n->creates = sqlite3_column_int64(st, NODE_AT_CREATES);
  n->nchild = sqlite3_column_int64(st, NODE_AT_NCHILD);
  n->owner = sqlite3_column_int64(st, NODE_AT_OWNER);
  n->kind = sqlite3_column_int(st, NODE_AT_KIND);
  n->ttl = sqlite3_column_int64(st, NODE_AT_TTL);
  n->len = sqlite3_column_int64(st, NODE_AT_LEN);
  n->blob = sqlite3_column_int64(st, NODE_AT_BLOB);
  n->due = sqlite3_column_int64(st, NODE_AT_DUE);
  if (n->len < -1 || n->len > INT_MAX)
    return base_fail(ZKE_CORRUPT, "%s: a node has an impossible length",
                     s->name);
  bool whole = true;
  const char *acl = sql_read_text(st, NODE_AT_ACL, &whole);
  if (!acl) return whole ? ZKE_OK : base_nomem();
  n->acl = mem_copy(&s->a, acl, (size_t)sqlite3_column_bytes(st, NODE_AT_ACL));
  return n->acl ? ZKE_OK : base_nomem();
}

/* Copy the data column into a block of the caller's; NULL stays NULL.  If it
 * does not have the row's length, fail with ZKE_CORRUPT: a caller must not take
 * a part for the whole. */
static int node_read_data(store *s, sqlite3_stmt *st, const node *n,
                          char **data) {
  *data = NULL;
  if (n->len < 0) return ZKE_OK;
  const void *bytes = sqlite3_column_blob(st, NODE_AT_DATA);
  if (sqlite3_column_bytes(st, NODE_AT_DATA) != n->len)
    return base_fail(ZKE_CORRUPT, "%s: a node's data is missing", s->name);
  *data = mem_copy(&s->a, bytes, (size_t)n->len);
  return *data ? ZKE_OK : base_nomem();
}

SQL_STATEMENT(NODE_ROW,
              "SELECT " NODE_COLUMNS_TEXT
              " FROM zkembed_node WHERE parent=:parent AND name=:name");

SQL_STATEMENT(
    NODE_DATA,
    "SELECT " NODE_COLUMNS_TEXT
    ",CASE WHEN blob IS NULL THEN data ELSE (SELECT b.data FROM zkembed_blob b "
    "WHERE b.id=zkembed_node.blob) END FROM zkembed_node WHERE parent=:parent "
    "AND name=:name");

/* Read a node's row, and its data if data is not NULL.  The statement is reset
 * before this returns, so no SQLite statement stays open after a call. */
static int node_select(store *s, path_key k, node *n, char **data) {
  int rc;
  bool row;
  sqlite3_stmt *st = sql_statement(s, data ? SQL_NODE_DATA : SQL_NODE_ROW, &rc);
  if (!st) return rc;
  sql_bind_key(st, 1, k);
  rc = sql_step(s, st, &row);
  if (rc != ZKE_OK) return rc;
  if (!row) return ZKE_NONODE;
  rc = node_read_columns(s, st, n);
  if (rc == ZKE_OK && data) rc = node_read_data(s, st, n, data);
  sqlite3_reset(st);
  if (rc != ZKE_OK) node_free(n);
  return rc;
}

/* Total bytes of one cached node, and how many a store caches at most, even
 * with a large page cache, since all places are allocated together. */
enum { NODE_CACHED_BYTES = 512, NODE_CACHED_MOST = 4096 };

/* A cached node: the row, and in `text`, one after the other, the two parts of
 * its key, its ACL and its data.  A node that does not fit is not cached.  All
 * of it is in this struct, so nothing is freed separately. */
typedef struct node_cached {
  int64_t stamp; /* valid only for this stamp; 0: empty */
  node n;        /* without the ACL */
  int parent_len, name_len;
  int acl_len;  /* with its NUL; 0: open */
  int data_len; /* -1: the data was not read */
  char text[NODE_CACHED_BYTES - sizeof(int64_t) - sizeof(node) -
            4 * sizeof(int)];
} node_cached;
_Static_assert(sizeof(node_cached) == NODE_CACHED_BYTES, "no gap");

/* How many nodes a store caches. */
static size_t node_cached_most(const store *s) {
  int64_t bytes = ZKE_KEPT_PART ? s->cache_kib * INT64_C(1024) : 0;
  int64_t places = bytes / base_max(ZKE_KEPT_PART, 1) / NODE_CACHED_BYTES;
  return (size_t)base_min(places, NODE_CACHED_MOST);
}

/* The place in which a node is cached, or NULL: it cannot be.  Of the nodes
 * with its hash a place holds the one that was read last.
 *
 * A cached row is valid as long as the read that loaded it stays open.  That
 * read continues across calls until some process commits (db_begin_read()).
 * Its number, which is never reused, is the stamp here, so a change of a node
 * needs no invalidation.  A row that was read during a commit may be wrong,
 * like everything that is read without locks.  So a caller that reads while
 * index.open is true must check db_read_stands() before it uses the result; if
 * the check fails, the read has ended. */
static node_cached *node_place(store *s, path_key k) {
  size_t most = node_cached_most(s);
  size_t len = (size_t)k.parent_len + (size_t)k.name_len;
  if (!s->index.open || !most || len > sizeof s->cached->text) return NULL;
  if (!s->cached) s->cached = mem_zero(&s->a, most * sizeof *s->cached);
  return s->cached ? &s->cached[path_hash_key(k) % most] : NULL;
}

/* The place in which a batch caches a parent, or NULL without memory. */
static node_cached *node_place_of_parent(txn *t) {
  static const node_cached none;
  if (!t->parent.len) buf_add(&t->parent, &none, sizeof none);
  bool failed = t->parent.failed;
  t->parent.failed = false;
  return failed ? NULL : (node_cached *)(void *)t->parent.data;
}

/* Copy bytes to `at`; returns their end. */
static char *node_cache_bytes(char *at, const char *bytes, int len) {
  if (len > 0) memcpy(at, bytes, (size_t)len);
  return at + base_max(len, 0);
}

/* Cache a node, if it fits; returns whether it did.  `read`: its data was read;
 * `data`: that, or NULL. */
static bool node_cache(node_cached *at, int64_t stamp, path_key k,
                       const node *n, const char *data, bool read) {
  size_t acl = n->acl ? strlen(n->acl) + 1 : 0;
  int64_t len = read && data ? n->len : 0;
  if (k.parent_len + k.name_len + (int64_t)acl + len > (int64_t)sizeof at->text)
    return false;
  at->stamp = stamp;
  at->n = *n;
  at->n.acl = NULL;
  at->parent_len = k.parent_len;
  at->name_len = k.name_len;
  at->acl_len = (int)acl;
  at->data_len = read ? (int)len : -1;
  char *end = node_cache_bytes(at->text, k.parent, k.parent_len);
  end = node_cache_bytes(end, k.name, k.name_len);
  end = node_cache_bytes(end, n->acl, at->acl_len);
  node_cache_bytes(end, data, at->data_len);
  return true;
}

/* Is this node cached there, with this stamp? */
static bool node_is_cached(const node_cached *at, int64_t stamp, path_key k) {
  return at->stamp == stamp && at->parent_len == k.parent_len &&
         at->name_len == k.name_len &&
         memcmp(at->text, k.parent, (size_t)k.parent_len) == 0 &&
         memcmp(at->text + k.parent_len, k.name, (size_t)k.name_len) == 0;
}

/* Return a cached node as node_load() does.  If data is not NULL, the cached
 * node must have its data. */
static int node_recall(store *s, const node_cached *at, node *n, char **data) {
  const char *acl = at->text + at->parent_len + at->name_len;
  *n = at->n;
  if (at->acl_len) n->acl = mem_copy(&s->a, acl, (size_t)at->acl_len - 1);
  if (at->acl_len && !n->acl) return base_nomem();
  if (!data) return ZKE_OK;
  *data = NULL;
  if (n->len < 0) return ZKE_OK;
  *data = mem_copy(&s->a, acl + at->acl_len, (size_t)at->data_len);
  if (*data) return ZKE_OK;
  node_free(n);
  return base_nomem();
}

/* Load a node, and its data if data is not NULL.  ZKE_NONODE without a
 * sentence, since the caller knows the path.  After success the caller must
 * call node_free(). */
static int node_load(store *s, path_key k, node *n, char **data) {
  node_cached *at = node_place(s, k);
  int64_t stamp = s->index.number;
  if (at && node_is_cached(at, stamp, k) && (!data || at->data_len >= 0))
    return node_recall(s, at, n, data);
  memset(n, 0, sizeof *n);
  int rc = node_select(s, k, n, data);
  if (at && rc == ZKE_OK)
    node_cache(at, stamp, k, n, data ? *data : NULL, data != NULL);
  return rc;
}

/* Cache the parent of a node that this operation has created or deleted, as it
 * is now, for the next operation of the batch.  Clients that stand in line, or
 * fill a queue, create node after node in one directory.  An operation with a
 * savepoint caches nothing: it may be a multi, which has more to do.  A parent
 * with a path and ACL too long to cache is read again by each operation. */
static void node_cache_parent(txn *t, path_key k, const node *n) {
  if (!t->s->batch || t->saved) return;
  node_cached *at = node_place_of_parent(t);
  bool fits = at && node_cache(at, t->joins, k, n, NULL, false);
  t->parent_by = fits ? t->joins : 0;
}

/* node_load() for the parent of a node to be created or deleted, from the
 * batch's cache if the operation just before this one has left it there.  Only
 * create and delete call this, before their first change, so the cached row is
 * current. */
static int node_load_parent(txn *t, path_key k, node *n) {
  store *s = t->s;
  bool known =
      s->batch && !t->saved && t->parent_by && t->parent_by == t->joins - 1;
  const node_cached *at = known ? node_place_of_parent(t) : NULL;
  if (at && node_is_cached(at, t->parent_by, k))
    return node_recall(s, at, n, NULL);
  return node_load(s, k, n, NULL);
}

/* Large values are in a separate table, by id.  So a node's row stays short,
 * and a search by path reads no data. */
SQL_STATEMENT(BLOB_ADD, "INSERT INTO zkembed_blob(data)VALUES(:data)");

/* Store a value: in the row (bound at `at`) or, if large, in the other table
 * (its id bound at `at_blob`).  Both parameters are always set.  The caller
 * gives their numbers, since two statements use this. */
static int node_bind_data(txn *t, sqlite3_stmt *st, int at, int at_blob,
                          const void *data, int len) {
  int rc = ZKE_OK;
  sqlite3_bind_null(st, at);
  sqlite3_bind_null(st, at_blob);
  if (len <= 0) return ZKE_OK;
  if (len <= ZKE_INLINE_BYTES) {
    sql_bind_blob(st, at, ":data", data, len);
    return ZKE_OK;
  }
  sqlite3_stmt *add = sql_statement(t->s, SQL_BLOB_ADD, &rc);
  if (!add) return rc;
  sql_bind_blob(add, 1, ":data", data, len);
  rc = sql_run(t->s, add);
  if (rc == ZKE_OK)
    sql_bind_int(st, at_blob, ":blob", sqlite3_last_insert_rowid(t->s->db));
  return rc;
}

SQL_STATEMENT(BLOB_REMOVE, "DELETE FROM zkembed_blob WHERE id=?1");

/* Remove a value from the other table; blob 0: there is none.  Every function
 * that replaces or deletes a row must call this, since no trigger does: a value
 * without a row would stay forever (I9). */
static int node_drop_blob(txn *t, int64_t blob) {
  REQUIRE(WRITING(t->s));
  return blob ? sql_do_int(t->s, SQL_BLOB_REMOVE, blob) : ZKE_OK;
}

SQL_STATEMENT(
    NODE_ADD,
    "INSERT INTO zkembed_node(parent,name,czxid,mzxid,pzxid,ctime,mtime,"
    "version,aversion,creates,nchild,owner,kind,ttl,acl,len,blob,due,data)"
    "VALUES(:parent,:name,:zxid,:zxid,:zxid,:now,:now,"
    "0,0,0,0,:owner,:kind,:ttl,:acl,:len,:blob,:due,:data)"
    "ON CONFLICT DO NOTHING");

/* Insert the row of a new node; ZKE_NODEEXISTS without a sentence, since the
 * caller knows the path.  The table's key finds a duplicate, so no lookup is
 * needed before the insert. */
static int node_insert(txn *t, path_key k, const node *n, const void *data) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_ADD, &rc);
  if (!st) return rc;
  rc = node_bind_data(t, st, 12, 10, data, (int)n->len);
  if (rc != ZKE_OK) return rc;
  sql_bind_key(st, 1, k);
  sql_bind_int(st, 3, ":zxid", n->czxid);
  sql_bind_int(st, 4, ":now", n->ctime);
  sql_bind_int(st, 5, ":owner", n->owner);
  sql_bind_int(st, 6, ":kind", n->kind);
  sql_bind_int(st, 7, ":ttl", n->ttl);
  sql_bind_text(st, 8, ":acl", n->acl, -1);
  sql_bind_int(st, 9, ":len", n->len);
  sql_bind_int(st, 11, ":due", n->kind == NODE_TTL ? n->mtime + n->ttl : 0);
  rc = sql_run(t->s, st);
  if (rc == ZKE_OK && sqlite3_changes(t->s->db) == 0) rc = ZKE_NODEEXISTS;
  return rc;
}

SQL_STATEMENT(
    NODE_SET_DUE,
    "UPDATE zkembed_node SET due=:due WHERE parent=:parent AND name=:name");

/* Set when a node is due to be removed.  A node with children is never due, and
 * is not in the index that the sweep reads.  This is a separate statement that
 * runs only if the time changes, so updating the counters of plain nodes
 * touches no index. */
static int node_set_due(txn *t, path_key k, node *n, int64_t due) {
  REQUIRE(WRITING(t->s));
  int rc;
  if (n->due == due) return ZKE_OK;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_SET_DUE, &rc);
  if (!st) return rc;
  n->due = due;
  sql_bind_int(st, 1, ":due", due);
  sql_bind_key(st, 2, k);
  return sql_run(t->s, st);
}

SQL_STATEMENT(
    NODE_CHILD_ADDED,
    "UPDATE zkembed_node SET creates=:creates,nchild=nchild+1,pzxid=:pzxid "
    "WHERE parent=:parent AND name=:name");

/* Count a child in its parent.  A counter at its maximum stays there, and then
 * pzxid stays too (semantics.md 2.3).  A parent with a child is not due any
 * more.  The copy gets the new numbers. */
static int node_count_child(txn *t, path_key k, node *parent) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_CHILD_ADDED, &rc);
  if (!st) return rc;
  if (parent->creates < INT32_MAX) {
    parent->creates++;
    parent->pzxid = t->zxid;
  }
  parent->nchild = base_wrap(parent->nchild, 1);
  sql_bind_int(st, 1, ":creates", parent->creates);
  sql_bind_int(st, 2, ":pzxid", parent->pzxid);
  sql_bind_key(st, 3, k);
  rc = sql_run(t->s, st);
  return rc == ZKE_OK ? node_set_due(t, k, parent, 0) : rc;
}

SQL_STATEMENT(NODE_RAISE,
              "UPDATE zkembed_node SET creates=:creates,pzxid=:pzxid "
              "WHERE parent=:parent AND name=:name");

/* Raise a node's counter of children made to this number.  The copy gets the
 * new numbers, since the caller returns its Stat. */
static int node_raise(txn *t, path_key k, node *n, int64_t creates) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_RAISE, &rc);
  if (!st) return rc;
  n->creates = creates;
  n->pzxid = t->zxid;
  sql_bind_int(st, 1, ":creates", n->creates);
  sql_bind_int(st, 2, ":pzxid", n->pzxid);
  sql_bind_key(st, 3, k);
  return sql_run(t->s, st);
}

SQL_STATEMENT(NODE_CHILD_GONE,
              "UPDATE zkembed_node SET nchild=nchild-:count,pzxid=:pzxid "
              "WHERE parent=:parent AND name=:name");

/* Subtract this many children from their parent, and from its copy.  If they
 * were its last, a container is due now, and a TTL node at mtime + ttl. */
static int node_uncount_children(txn *t, path_key k, node *parent,
                                 int64_t count) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_CHILD_GONE, &rc);
  if (!st) return rc;
  parent->nchild = base_wrap(parent->nchild, -count);
  parent->pzxid = t->zxid;
  sql_bind_int(st, 1, ":count", count);
  sql_bind_int(st, 2, ":pzxid", parent->pzxid);
  sql_bind_key(st, 3, k);
  rc = sql_run(t->s, st);
  if (rc != ZKE_OK || parent->nchild > 0) return rc;
  int64_t due = 0;
  if (parent->kind == NODE_CONTAINER) due = t->now;
  if (parent->kind == NODE_TTL) due = base_wrap(parent->mtime, parent->ttl);
  return node_set_due(t, k, parent, due);
}

SQL_STATEMENT(NODE_REMOVE,
              "DELETE FROM zkembed_node WHERE parent=:parent AND name=:name");

/* Delete a node's row and its data.  A missing row means a damaged file, since
 * the caller has just read it in the same transaction. */
static int node_delete_row(txn *t, path_key k, int64_t blob) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_REMOVE, &rc);
  if (!st) return rc;
  sql_bind_key(st, 1, k);
  rc = sql_run(t->s, st);
  if (rc == ZKE_OK && sqlite3_changes(t->s->db) != 1)
    rc = base_fail(ZKE_CORRUPT, "%s: a node's row is missing", t->s->name);
  return rc == ZKE_OK ? node_drop_blob(t, blob) : rc;
}

/* Remove a childless node: row, data, the parent's counters, events. The events
 * come in ZooKeeper's order, the node's own before its parent's. */
static int node_remove(txn *t, const char *path, const node *n, node *parent) {
  size_t len = strlen(path);
  path_key k = path_split(path, len);
  int rc = node_delete_row(t, k, n->blob);
  if (rc == ZKE_OK) {
    rc = node_uncount_children(t, path_split(k.parent, (size_t)k.parent_len),
                               parent, 1);
  }
  if (rc == ZKE_OK) rc = watch_fire(t, path, len, ZKE_EVENT_DELETED, n->acl);
  if (rc == ZKE_OK)
    rc = history_note(t, path, len, ZKE_EVENT_DELETED, n->owner, n->acl);
  if (rc != ZKE_OK) return rc;
  return watch_fire(t, k.parent, (size_t)k.parent_len, ZKE_EVENT_CHILD,
                    parent->acl);
}

/* ---- the removal of many nodes ----
 *
 * Each node's row is deleted and its events are queued as by node_remove(), in
 * the same order.  But for consecutive nodes with the same parent some work is
 * done once: loading the parent, looking for its watches and for watches below
 * it, and writing its counters.  All this is one transaction, so the counters
 * between two nodes are never visible. */

enum { NODE_REMOVAL = 128 }; /* SQL_REMOVAL: nodes at a time */

/* A node to be removed. */
typedef struct node_goer {
  int64_t blob;
  bool has_acl; /* else its ACL is the open one, and its text is empty */
} node_goer;

/* The nodes to be removed, in order, and two texts for each: path, ACL. */
typedef struct node_goers {
  buf nodes, texts;
} node_goers;

/* A removal of many nodes. */
typedef struct node_removal {
  int64_t owner; /* of the nodes; 0: not ephemeral */
  bool each;     /* a zxid for each; a node without a parent stays */
  int count;     /* out: nodes found */
  int orphans;   /* out: of these, left without a parent */
} node_removal;

/* The parent of the nodes that are being removed. */
typedef struct node_family {
  int64_t owner; /* of the nodes */
  const char *path;
  size_t len;
  node parent;
  int64_t gone;    /* children removed, not yet subtracted */
  bool quiet;      /* no watch sees the end of a child */
  bool child_told; /* no watch is left for CHILD of the parent */
} node_family;

/* Append the node in the statement's current row: parent, name, acl, blob.  A
 * text that is missing for lack of memory must not count as empty, which would
 * be another node's path.  Both texts of a node are appended one after the
 * other, to be read by buf_next_text(). */
static int node_collect_row(sqlite3_stmt *st, node_goers *out) {
  const char *text[3]; /* parent, name, ACL */
  int len[3];
  bool whole = true;
  for (int i = 0; i < 3; i++) {
    text[i] = sql_read_text(st, i, &whole);
    len[i] = sqlite3_column_bytes(st, i);
  }
  if (!whole) return base_nomem();
  node_goer n;
  memset(&n, 0, sizeof n);
  n.blob = sqlite3_column_int64(st, 3);
  n.has_acl = text[2] != NULL;
  buf_add(&out->nodes, &n, sizeof n);
  path_join(&out->texts, (path_key){text[0], text[1], len[0], len[1]});
  buf_add(&out->texts, "", 1);
  buf_add_string(&out->texts, n.has_acl ? text[2] : "");
  return out->nodes.failed || out->texts.failed ? base_nomem() : ZKE_OK;
}

/* Collect all nodes that a bound statement returns, at most NODE_REMOVAL.  All
 * are collected before any is removed, since no row may be deleted under a
 * statement that is still reading. */
static int node_collect(store *s, sqlite3_stmt *st, node_goers *out,
                        int *count) {
  for (*count = 0;; ++*count) {
    bool row;
    int rc = sql_step(s, st, &row);
    if (rc != ZKE_OK || !row) return rc;
    rc = node_collect_row(st, out);
    if (rc != ZKE_OK) {
      sqlite3_reset(st);
      return rc;
    }
  }
}

/* Subtract the removed children from the parent, and forget it. */
static int node_family_end(txn *t, node_family *f) {
  int rc = ZKE_OK;
  if (f->gone)
    rc = node_uncount_children(t, path_split(f->path, f->len), &f->parent,
                               f->gone);
  node_free(&f->parent);
  *f = (node_family){.owner = f->owner};
  return rc;
}

/* Make the parent of this node the family's parent.  ZKE_NONODE if it does not
 * exist; then nothing was changed for this node, and *f is empty. */
static int node_family_enter(txn *t, node_family *f, const char *path,
                             size_t len) {
  path_key k = path_split(path, len);
  size_t parent_len = (size_t)k.parent_len;
  if (f->path && f->len == parent_len && !memcmp(f->path, path, parent_len))
    return ZKE_OK;
  int rc = node_family_end(t, f);
  if (rc == ZKE_OK)
    rc = node_load(t->s, path_split(path, parent_len), &f->parent, NULL);
  if (rc == ZKE_NONODE)
    base_say("%s: no parent of %.*s", t->s->name, (int)len, path);
  if (rc != ZKE_OK) return rc;
  f->path = path;
  f->len = parent_len;
  return watch_is_quiet(t, path, len, parent_len, &f->quiet);
}

/* Remove a child of the family's parent, and queue its events.  Once no watch
 * for the parent's children was found, none is looked for again: the
 * transaction adds no watch in between. */
static int node_family_remove(txn *t, node_family *f, const node_goer *n,
                              const char *path, const char *acl) {
  size_t len = strlen(path);
  bool found = false;
  int rc = node_delete_row(t, path_split(path, len), n->blob);
  f->gone++;
  if (!n->has_acl) acl = NULL;
  if (rc == ZKE_OK && !f->quiet)
    rc = watch_fire(t, path, len, ZKE_EVENT_DELETED, acl);
  if (rc == ZKE_OK)
    rc = history_note(t, path, len, ZKE_EVENT_DELETED, f->owner, acl);
  if (rc != ZKE_OK || f->child_told) return rc;
  rc = watch_fire_found(t, f->path, f->len, ZKE_EVENT_CHILD, f->parent.acl,
                        &found);
  f->child_told = !found;
  return rc;
}

/* Remove the nodes that a bound statement returns, in its order.  They share
 * one zxid of the transaction, and use none if there are no nodes.  With
 * `each`, every node gets its own zxid, and a node without a parent stays and
 * is counted; otherwise that is an error. */
static int node_remove_all(txn *t, sqlite3_stmt *st, node_removal *r) {
  node_goers goers = {{.a = &t->s->a}, {.a = &t->s->a}};
  node_family f = {.owner = r->owner};
  r->orphans = 0;
  int rc = node_collect(t->s, st, &goers, &r->count);
  const node_goer *n = (const node_goer *)(void *)goers.nodes.data;
  char *text = goers.texts.data;
  for (int i = 0; i < r->count && rc == ZKE_OK; i++, n++) {
    const char *path = buf_next_text(&text);
    const char *acl = buf_next_text(&text);
    rc = node_family_enter(t, &f, path, strlen(path));
    if (rc == ZKE_NONODE) {
      r->orphans++;
      rc = r->each ? ZKE_OK : ZKE_CORRUPT;
      continue;
    }
    if (rc == ZKE_OK) rc = r->each ? txn_number_again(t) : txn_number(t);
    if (rc == ZKE_OK) rc = node_family_remove(t, &f, n, path, acl);
  }
  if (rc == ZKE_OK) rc = node_family_end(t, &f);
  node_free(&f.parent);
  buf_free(&goers.nodes);
  buf_free(&goers.texts);
  return rc;
}

SQL_STATEMENT(
    NODE_SET,
    "UPDATE zkembed_node SET data=:data,blob=:blob,len=:len,mzxid=:mzxid,"
    "mtime=:mtime,version=:version,due=CASE WHEN kind=2 "
    "AND nchild=0 THEN :mtime+ttl ELSE due END WHERE parent=:parent "
    "AND name=:name");

/* Replace a node's data.  The old value is removed first, so a large one does
 * not need its space twice.  The same statement restarts a TTL node's time.  *n
 * is updated, except for `blob` and a TTL node's `due`. */
static int node_set(txn *t, path_key k, node *n, const void *data, int len) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_SET, &rc);
  if (!st) return rc;
  rc = node_drop_blob(t, n->blob);
  if (rc == ZKE_OK) rc = node_bind_data(t, st, 1, 2, data, len);
  if (rc != ZKE_OK) return rc;
  n->len = len;
  n->mzxid = t->zxid;
  n->mtime = t->now;
  n->version = base_next_version(n->version);
  sql_bind_int(st, 3, ":len", n->len);
  sql_bind_int(st, 4, ":mzxid", n->mzxid);
  sql_bind_int(st, 5, ":mtime", n->mtime);
  sql_bind_int(st, 6, ":version", n->version);
  sql_bind_key(st, 7, k);
  return sql_run(t->s, st);
}

SQL_STATEMENT(
    NODE_SET_ACL,
    "UPDATE zkembed_node SET acl=:acl,aversion=:aversion WHERE parent=:parent "
    "AND name=:name");

/* Replace a node's ACL; NULL: the open one.  Of *n only aversion is updated. */
static int node_set_acl(txn *t, path_key k, node *n, const char *acl) {
  REQUIRE(WRITING(t->s));
  int rc;
  sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_SET_ACL, &rc);
  if (!st) return rc;
  n->aversion = base_next_version(n->aversion);
  sql_bind_text(st, 1, ":acl", acl, -1);
  sql_bind_int(st, 2, ":aversion", n->aversion);
  sql_bind_key(st, 3, k);
  return sql_run(t->s, st);
}

/* Which children: the first `most` after a name; most 0: no limit.  The table's
 * key is searched, so other children cost nothing. */
typedef struct node_range {
  const char *after;
  int most;
} node_range;

static const node_range node_range_all = {"", 0};

SQL_STATEMENT(
    NODE_NAMES,
    "SELECT name FROM zkembed_node WHERE parent=:parent AND name>:after "
    "ORDER BY name LIMIT :most");

/* The sorted names of a node's children, or of a range of them, in the order of
 * the key, which is by bytes. */
static int node_names(store *s, const char *path, const node_range *range,
                      zke_strings **out) {
  int rc, count = 0;
  buf names = {.a = &s->a};
  sqlite3_stmt *st = sql_statement(s, SQL_NODE_NAMES, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, ":parent", path, -1);
  sql_bind_text(st, 2, ":after", range->after, -1);
  sql_bind_int(st, 3, ":most", range->most ? range->most : -1);
  for (;;) {
    bool row;
    rc = sql_step(s, st, &row);
    if (rc != ZKE_OK || !row) break;
    buf_add(&names, sqlite3_column_text(st, 0),
            (size_t)sqlite3_column_bytes(st, 0));
    buf_add(&names, "", 1);
    count++;
  }
  if (rc == ZKE_OK) {
    *out = names.failed ? NULL : buf_strings(&names, count);
    if (!*out) rc = base_nomem();
  }
  buf_free(&names);
  return rc;
}

SQL_STATEMENT(
    NODE_COUNT,
    "SELECT(SELECT count(*)FROM zkembed_node WHERE parent=:path)+"
    "(SELECT count(*)FROM zkembed_node WHERE parent>:from AND parent<:to)");

SQL_STATEMENT(NODE_COUNT_ALL, "SELECT count(*)-1 FROM zkembed_node");

/* A node without data has the length -1. */
SQL_STATEMENT(
    NODE_BYTES,
    "SELECT ifnull((SELECT sum(max(len,0))FROM zkembed_node WHERE "
    "parent=:path),0)+ifnull((SELECT sum(max(len,0))FROM zkembed_node WHERE "
    "parent>:from AND parent<:to),0)");

/* Run a statement about the descendants of a full path.  They are one range of
 * the table's key, from "path/" up to "path0", since '0' follows '/'. */
static int node_below(store *s, const sql_text *statement, const char *path,
                      int64_t *out) {
  int rc;
  bool row;
  size_t len = strlen(path), stem = len == 1 ? 0 : len;
  sqlite3_stmt *st = sql_statement(s, statement, &rc);
  char *range = st ? mem_resize(&s->a, NULL, 2 * (stem + 1)) : NULL;
  if (!st) return rc;
  if (!range) return base_nomem();
  memcpy(range, path, stem);
  memcpy(range + stem + 1, path, stem);
  range[stem] = '/';
  range[2 * stem + 1] = '/' + 1;
  sql_bind_text(st, 1, ":path", path, (int)len);
  sql_bind_text(st, 2, ":from", range, (int)stem + 1);
  sql_bind_text(st, 3, ":to", range + stem + 1, (int)stem + 1);
  rc = sql_step(s, st, &row);
  if (rc == ZKE_OK) *out = sqlite3_column_int64(st, 0);
  sqlite3_reset(st);
  mem_free(range);
  return rc;
}

/* Count the descendants of a full path. */
static int node_count(store *s, const char *path, int64_t *count) {
  if (!path[1]) return sql_fetch_ints(s, SQL_NODE_COUNT_ALL, 0, 1, count);
  return node_below(s, SQL_NODE_COUNT, path, count);
}

/* ======================================================================
 * op_: create, delete, set, check, reads (private)
 *
 * These functions do what ZooKeeper's server does with a request.  Each makes
 * its checks in the server's order, since the caller sees the first failure
 * (semantics.md 2.2, 3, 4).  Then it says what class of transaction the change
 * needs, takes the transaction's zxid, changes the rows by node_, and fires the
 * watches.
 *
 * In a batch a failed operation must be undone alone, which needs a savepoint.
 * A savepoint costs time.  So a create, a delete or a set calls op_guard()
 * before its first write.  That sets a savepoint only if something other than
 * SQLite's own failures can stop the operation after that write.
 *
 * Paths are full, with the chroot, and have passed path_check().  The acting
 * session's identities count.  Start reading at op_set().
 * ==================================================================== */

/* Is the parent's counter of children appended to the name? */
static bool op_mode_is_sequential(int mode) {
  return mode == ZKE_PERSISTENT_SEQUENTIAL ||
         mode == ZKE_EPHEMERAL_SEQUENTIAL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* Does the node belong to the session that creates it? */
static bool op_mode_is_ephemeral(int mode) {
  return mode == ZKE_EPHEMERAL || mode == ZKE_EPHEMERAL_SEQUENTIAL;
}

/* Does the node have a TTL? */
static bool op_mode_has_ttl(int mode) {
  return mode == ZKE_PERSISTENT_WITH_TTL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* Refusals that several operations share, each with its sentence: the node does
 * not exist. */
static int op_no_node(const char *path) {
  return base_fail(ZKE_NONODE, "no node at %s", path);
}

/* Refuse, and name the action.  The path need not end after len bytes. */
static int op_no_permission(const char *what, const char *path, int len) {
  return base_fail(ZKE_NOAUTH, "no permission to %s %.*s", what, len, path);
}

/* Refuse a change that expects another version. */
static int op_bad_version(const char *path, int32_t has, int wanted) {
  return base_fail(ZKE_BADVERSION, "%s has version %d, not %d", path, (int)has,
                   wanted);
}

/* Does the session have one of these permissions for the node?  The handle's
 * identities now and the node's ACL in this transaction decide. */
static bool op_allows(const zke *acting, const node *n, int32_t needed) {
  return acl_allows(&acting->who, n->acl, needed);
}

/* Load a node for an operation; if it is missing, set the sentence. */
static int op_load(store *s, const char *path, node *n, char **data) {
  int rc = node_load(s, path_split(path, strlen(path)), n, data);
  return rc == ZKE_NONODE ? op_no_node(path) : rc;
}

/* Note the class of a change of an existing node: COMMIT must sync it, unless
 * the node is ephemeral and so does not outlive a power cut (P8). */
static void op_class(txn *t, const node *n) {
  t->durable |= !n->owner;
  t->z->last = n->owner ? TXN_NORMAL : TXN_FULL;
}

/* Prepare, if not yet done, the statements that a change of one node runs after
 * its first write.  If memory runs out here, nothing has been written yet. */
static int op_prepare(store *s, int type, bool history) {
  static const sql_text *const later[][3] = {
      {SQL_NODE_CHILD_ADDED, SQL_NODE_SET_DUE},
      {SQL_NODE_CHILD_GONE, SQL_NODE_SET_DUE, SQL_BLOB_REMOVE},
      {SQL_BLOB_ADD}};
  int rc = ZKE_OK, at = type == ZKE_EVENT_CREATED ? 0 : 2;
  if (type == ZKE_EVENT_DELETED) at = 1;
  for (int i = 0; i < 3 && later[at][i] && rc == ZKE_OK; i++)
    sql_statement(s, later[at][i], &rc);
  if (rc == ZKE_OK && history) rc = history_prepare(s);
  return rc;
}

/* Call before the first write of a change of one node that will have events of
 * this type.  In a batch, sets a savepoint if something can stop the change
 * after that write.  That is a refusal (may_refuse), or a lack of memory for
 * the watches that fire; so the watches are looked for now.  All other steps
 * are statements that only SQLite's own failures stop, and most of these undo
 * the whole transaction anyway. */
static int op_guard(txn *t, const char *path, int type, bool may_refuse) {
  size_t len = strlen(path);
  bool heard = false;
  if (!t->s->batch || t->saved) return ZKE_OK;
  if (may_refuse) return txn_save(t);
  int rc = op_prepare(t->s, type, t->history);
  if (rc == ZKE_OK) rc = watch_find(t, path, len, type, &heard);
  if (rc == ZKE_OK && !heard && type != ZKE_EVENT_CHANGED) {
    path_key k = path_split(path, len);
    rc = watch_find(t, k.parent, (size_t)k.parent_len, ZKE_EVENT_CHILD, &heard);
  }
  if (rc != ZKE_OK) return rc;
  t->unheard = !heard;
  return heard ? txn_save(t) : ZKE_OK;
}

enum { OP_DIGITS = 10 }; /* of a sequential node's number */

/* How many earlier creates this transaction made below a parent whose counter
 * is at its maximum; counts this one for the next.  The counter itself cannot
 * rise any more, so without this two creates of one multi would get the same
 * name.  Parents are told apart by a hash: if two share one, a number is
 * skipped. */
static int64_t op_overflow(txn *t, path_key parent) {
  size_t n;
  uint64_t hash = path_hash_key(parent);
  int64_t *at = buf_ints(&t->overflowed, &n);
  for (size_t i = 0; i + 1 < n; i += 2) {
    if (at[i] == (int64_t)hash) return at[i + 1]++;
  }
  buf_add_int(&t->overflowed, (int64_t)hash);
  buf_add_int(&t->overflowed, 1);
  return 0;
}

/* The path to create, in a block of the caller's: as given, or with the
 * parent's counter appended in ten digits. */
static char *op_created_path(txn *t, const char *path, int mode,
                             path_key parent_key, const node *parent) {
  size_t len = strlen(path);
  int64_t number = parent->creates;
  if (number >= INT32_MAX) number += op_overflow(t, parent_key);
  if (!op_mode_is_sequential(mode)) return mem_copy(&t->s->a, path, len);
  int32_t shown = base_int32(number);
  if (shown < 0) return mem_format(&t->s->a, "%s%010d", path, (int)shown);
  /* not by mem_format(), which would take twenty times as long */
  char *made = mem_resize(&t->s->a, NULL, len + OP_DIGITS + 1);
  if (!made) return NULL;
  memcpy(made, path, len);
  for (int i = OP_DIGITS - 1; i >= 0; i--, shown /= 10)
    made[len + (size_t)i] = (char)('0' + shown % 10);
  made[len + OP_DIGITS] = '\0';
  return made;
}

/* Fill in the row of a new node.  The caller sets and frees its ACL. */
static void op_new_node(txn *t, const zke_op *op, node *n) {
  memset(n, 0, sizeof *n);
  n->czxid = n->mzxid = n->pzxid = t->zxid;
  n->ctime = n->mtime = t->now;
  n->owner = op_mode_is_ephemeral(op->mode) ? t->z->id : 0;
  n->kind = NODE_PLAIN;
  if (op->mode == ZKE_CONTAINER) n->kind = NODE_CONTAINER;
  if (op_mode_has_ttl(op->mode)) {
    n->kind = NODE_TTL;
    n->ttl = op->ttl_ms;
  }
  n->len = op->len;
}

static int op_node_exists(const char *path) {
  return base_fail(ZKE_NODEEXISTS, "there is a node at %s already", path);
}

/* Call before a large value is stored, which happens before its node's row is
 * inserted.  In a batch, refuse if the node exists already. */
static int op_room_for_large(txn *t, path_key k, const zke_op *op,
                             const char *made) {
  node n;
  if (!t->s->batch || t->saved || op->len <= ZKE_INLINE_BYTES) return ZKE_OK;
  int rc = node_load(t->s, k, &n, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  node_free(&n);
  return op_node_exists(made);
}

/* The second half of a create: the parent is loaded and may be written.  As in
 * the server, the row is inserted before the parent is checked.  So if the node
 * exists and the parent is ephemeral, ZKE_NODEEXISTS is reported. */
static int op_create_below(txn *t, const zke_op *op, const char *made,
                           path_key parent_key, node *parent, char *acl,
                           zke_stat *stat) {
  node n;
  size_t len = strlen(made);
  path_key k = path_split(made, len);
  int rc = txn_number(t);
  if (rc == ZKE_OK) rc = op_room_for_large(t, k, op, made);
  if (rc == ZKE_OK)
    rc = op_guard(t, made, ZKE_EVENT_CREATED, parent->owner != 0);
  if (rc != ZKE_OK) return rc;
  op_new_node(t, op, &n);
  n.acl = acl;
  rc = node_insert(t, k, &n, op->data);
  if (rc == ZKE_NODEEXISTS) return op_node_exists(made);
  if (rc == ZKE_OK && parent->owner) {
    return base_fail(ZKE_NOCHILDRENFOREPHEMERALS, "%s: the parent is ephemeral",
                     made);
  }
  if (rc == ZKE_OK) rc = node_count_child(t, parent_key, parent);
  if (rc == ZKE_OK) rc = watch_fire(t, made, len, ZKE_EVENT_CREATED, acl);
  if (rc == ZKE_OK)
    rc = history_note(t, made, len, ZKE_EVENT_CREATED, n.owner, acl);
  if (rc != ZKE_OK) return rc;
  node_stat(&n, stat);
  return watch_fire(t, k.parent, (size_t)k.parent_len, ZKE_EVENT_CHILD,
                    parent->acl);
}

/* Create a node.  *made is its path, with the number if it is sequential, in a
 * block that the caller frees; NULL after a failure. */
static int op_create(txn *t, const char *path, const zke_op *op, char **made,
                     zke_stat *stat) {
  REQUIRE(WRITING(t->s));
  buf acl = {.a = &t->s->a};
  bool open = false;
  node parent;
  *made = NULL;
  int rc = acl_encode(&t->z->who, &t->s->schemes, op->acls, &acl, &open);
  t->acl_bytes += acl.len;
  t->durable |= !op_mode_is_ephemeral(op->mode);
  /* the parent is everything before the last '/', even in "/c/" */
  size_t slash = (size_t)(strrchr(path, '/') - path);
  path_key up = path_split(path, slash ? slash : 1);
  if (rc == ZKE_OK) rc = node_load_parent(t, up, &parent);
  if (rc != ZKE_OK) {
    buf_free(&acl);
    return rc == ZKE_NONODE ? base_fail(rc, "no parent for %s", path) : rc;
  }
  if (!op_allows(t->z, &parent, ZKE_PERM_CREATE)) {
    rc = op_no_permission("create below", path, (int)(slash ? slash : 1));
  } else if (!(*made = op_created_path(t, path, op->mode, up, &parent))) {
    rc = base_nomem();
  } else if (!path_check_new(*made)) {
    rc = path_refuse("path", *made, false);
  } else {
    rc = op_create_below(t, op, *made, up, &parent, open ? NULL : acl.data,
                         stat);
  }
  if (rc == ZKE_OK) {
    node_cache_parent(t, up, &parent);
  } else {
    mem_free(*made);
    *made = NULL;
  }
  node_free(&parent);
  buf_free(&acl);
  return rc;
}

/* The second half of a delete: the parent is loaded and may be written. */
static int op_delete_below(txn *t, const char *path, int version,
                           node *parent) {
  REQUIRE(WRITING(t->s));
  node n;
  int rc = op_load(t->s, path, &n, NULL);
  if (rc != ZKE_OK) return rc;
  if (version != -1 && version != n.version) {
    rc = op_bad_version(path, n.version, version);
  } else if (n.nchild) {
    rc = base_fail(ZKE_NOTEMPTY, "%s has %lld %s", path, (long long)n.nchild,
                   n.nchild == 1 ? "child" : "children");
  } else {
    op_class(t, &n);
    rc = txn_number(t);
    if (rc == ZKE_OK) rc = op_guard(t, path, ZKE_EVENT_DELETED, false);
    if (rc == ZKE_OK) rc = node_remove(t, path, &n, parent);
  }
  node_free(&n);
  return rc;
}

/* Delete a node.  The parent's ACL gives the permission and is checked first: a
 * caller without it does not learn whether the node exists.  Reserved nodes
 * cannot be deleted. */
static int op_delete(txn *t, const char *path, int version) {
  node parent;
  if (path_is_reserved(path))
    return base_fail(ZKE_BADARGUMENTS, "%s cannot be deleted", path);
  path_key k = path_split(path, strlen(path));
  path_key up = path_split(k.parent, (size_t)k.parent_len);
  int rc = node_load_parent(t, up, &parent);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? op_no_node(path) : rc;
  if (op_allows(t->z, &parent, ZKE_PERM_DELETE))
    rc = op_delete_below(t, path, version, &parent);
  else
    rc = op_no_permission("delete below", k.parent, k.parent_len);
  if (rc == ZKE_OK) node_cache_parent(t, up, &parent);
  node_free(&parent);
  return rc;
}

/* Replace a node's value; *stat is its Stat afterwards.  Most changes of one
 * node have this form: load, check, class, zxid, row, events.  The class is set
 * only after the checks, so a refused change does not make its transaction a
 * synced one. */
static int op_set(txn *t, const char *path, const zke_op *op, zke_stat *stat) {
  REQUIRE(WRITING(t->s));
  node n;
  if (!path_check_new(path)) return path_refuse("path", path, false);
  int rc = op_load(t->s, path, &n, NULL);
  if (rc != ZKE_OK) return rc;
  if (!op_allows(t->z, &n, ZKE_PERM_WRITE)) {
    rc = op_no_permission("write", path, (int)strlen(path));
  } else if (op->version != -1 && op->version != n.version) {
    rc = op_bad_version(path, n.version, op->version);
  } else {
    op_class(t, &n);
    rc = txn_number(t);
    if (rc == ZKE_OK) rc = op_guard(t, path, ZKE_EVENT_CHANGED, false);
    if (rc == ZKE_OK)
      rc = node_set(t, path_split(path, strlen(path)), &n, op->data, op->len);
    if (rc == ZKE_OK)
      rc = watch_fire(t, path, strlen(path), ZKE_EVENT_CHANGED, n.acl);
    if (rc == ZKE_OK)
      rc = history_note(t, path, strlen(path), ZKE_EVENT_CHANGED, n.owner,
                        n.acl);
    if (rc == ZKE_OK) node_stat(&n, stat);
  }
  node_free(&n);
  return rc;
}

/* Raise the counter of a node's children.  It never falls: a number that a
 * child may have had is not reused. */
static int op_raise_sequence(txn *t, const char *path, int next,
                             zke_stat *stat) {
  REQUIRE(WRITING(t->s));
  node n;
  if (!path_check_new(path)) return path_refuse("path", path, false);
  int rc = op_load(t->s, path, &n, NULL);
  if (rc != ZKE_OK) return rc;
  if (!op_allows(t->z, &n, ZKE_PERM_CREATE)) {
    rc = op_no_permission("create below", path, (int)strlen(path));
  } else if (n.owner) {
    rc = base_fail(ZKE_NOCHILDRENFOREPHEMERALS, "%s is ephemeral", path);
  } else if (n.creates < next) {
    t->durable = true;
    rc = txn_number(t);
    if (rc == ZKE_OK)
      rc = node_raise(t, path_split(path, strlen(path)), &n, next);
  }
  if (rc == ZKE_OK) node_stat(&n, stat);
  node_free(&n);
  return rc;
}

/* The check of a multi.  It changes nothing, so it takes no zxid and sets no
 * class. */
static int op_check(txn *t, const char *path, int version) {
  node n;
  if (!path_check_new(path)) return path_refuse("path", path, false);
  int rc = op_load(t->s, path, &n, NULL);
  if (rc != ZKE_OK) return rc;
  if (!op_allows(t->z, &n, ZKE_PERM_READ)) {
    rc = op_no_permission("read", path, (int)strlen(path));
  } else if (version != -1 && version != n.version) {
    rc = op_bad_version(path, n.version, version);
  }
  node_free(&n);
  return rc;
}

/* Replace a node's ACL; *stat is its Stat afterwards.  The list is checked
 * before the node is loaded, so a malformed one is refused for any path. */
static int op_set_acl(txn *t, const char *path, int version,
                      const zke_acls *acls, zke_stat *stat) {
  REQUIRE(WRITING(t->s));
  node n;
  buf acl = {.a = &t->s->a};
  bool open = false;
  if (!path_check_new(path)) return path_refuse("path", path, false);
  int rc = acl_encode(&t->z->who, &t->s->schemes, acls, &acl, &open);
  if (rc == ZKE_OK) rc = op_load(t->s, path, &n, NULL);
  if (rc != ZKE_OK) {
    buf_free(&acl);
    return rc;
  }
  if (!op_allows(t->z, &n, ZKE_PERM_ADMIN)) {
    rc = op_no_permission("administer", path, (int)strlen(path));
  } else if (version != -1 && version != n.aversion) {
    rc = op_bad_version(path, n.aversion, version);
  } else {
    op_class(t, &n);
    rc = txn_number(t);
    if (rc == ZKE_OK)
      rc = node_set_acl(t, path_split(path, strlen(path)), &n,
                        open ? NULL : acl.data);
    if (rc == ZKE_OK) node_stat(&n, stat);
  }
  node_free(&n);
  buf_free(&acl);
  return rc;
}

/* The result of a read.  The caller owns the blocks in it, until it hands them
 * on or frees them. */
typedef struct op_answer {
  zke_stat stat;
  char *data;
  int len;
  zke_strings *names;
  zke_acls *acls;
  int64_t owner; /* of the node, for the notice of death */
} op_answer;

/* Free a read's result that is not handed on. */
static void op_answer_free(op_answer *a) {
  mem_free(a->data);
  mem_free(a->names);
  mem_free(a->acls);
}

/* What a read asks for.  Only OP_EXISTS needs no permission, as in ZooKeeper;
 * OP_STAT is the same with read permission. */
enum op_wish { OP_EXISTS, OP_STAT, OP_GET, OP_CHILDREN, OP_ACL };

/* Read a node inside any transaction.  `range`: which children to list, for
 * OP_CHILDREN only.  The caller frees *out by op_answer_free(); it is empty
 * after a failure. */
static int op_read(const zke *acting, enum op_wish wish, const char *path,
                   const node_range *range, op_answer *out) {
  node n;
  store *s = acting->s;
  memset(out, 0, sizeof *out);
  int rc = op_load(s, path, &n, wish == OP_GET ? &out->data : NULL);
  if (rc != ZKE_OK) return rc;
  bool acl = wish == OP_ACL;
  /* reading the ACL takes permission to read the node or to set its ACL */
  int32_t needed = acl ? ZKE_PERM_READ | ZKE_PERM_ADMIN : ZKE_PERM_READ;
  if (wish != OP_EXISTS && !op_allows(acting, &n, needed))
    rc = op_no_permission(acl ? "read the ACL of" : "read", path,
                          (int)strlen(path));
  if (rc == ZKE_OK && wish == OP_CHILDREN)
    rc = node_names(s, path, range, &out->names);
  if (rc == ZKE_OK && acl) {
    /* Digests, against which passwords are checked, are shown only to a session
     * that may administer the node. */
    bool masked = !op_allows(acting, &n, ZKE_PERM_ADMIN);
    out->acls = acl_decode(&s->a, n.acl, masked);
    if (!out->acls) rc = base_nomem();
  }
  node_stat(&n, &out->stat);
  out->len = (int)n.len;
  out->owner = n.owner;
  node_free(&n);
  if (rc != ZKE_OK) {
    op_answer_free(out);
    memset(out, 0, sizeof *out);
  }
  return rc;
}

/* ======================================================================
 * sess_: the rows of sessions, and which of them live (private)
 *
 * A session is a row, a lock and a FIFO.  The row owns nodes, watches and
 * events.  The lock is its life (life_): the kernel drops it when the process
 * dies, and then any other process may end the session.  The session sleeps on
 * the FIFO (wake_).  A light session uses the lock and the FIFO of its carrier.
 *
 * This section reads the rows, and finds out whether a session lives and
 * whether its lease is over.  It takes a session for dead only if the kernel
 * says that its lock is free, and a lease for over only if a stamp was read and
 * is too old; never because of an error (P5).
 *
 * A session begins in begin_ and ends in end_.  kept_ is for kept sessions
 * only.  judge_ decides about the rows of an earlier boot, or of a copy of the
 * file.
 *
 * Start reading at sess_life().
 * ==================================================================== */

/* Why a session ends.  If the carrier of a kept session is dead, the session is
 * detached instead, and ends when its timeout is over. */
enum sess_why {
  SESS_CLOSE,   /* zke_close() */
  SESS_DEAD,    /* found by a sweep, or by a notice of death */
  SESS_LEASE,   /* found by a sweep */
  SESS_EXPIRE,  /* zke_expire() */
  SESS_TIMEOUT, /* found by its carrier, or by a sweep */
  SESS_DETACH   /* zke_detach() */
};

/* The columns of a session's row that decide about its life. */
typedef struct sess_row {
  int64_t id, lease, slot, life, carrier, timeout, heard;
} sess_row;

enum { SESS_COLUMNS = 7 };

/* Is it a kept session that no handle has attached? */
static bool sess_is_detached(const sess_row *r) {
  return r->timeout > 0 && !r->carrier;
}

/* The id that gives the lock byte of the session's life, and the name of its
 * FIFO. */
static int64_t sess_carrier(const sess_row *r) {
  return r->carrier ? r->carrier : r->id;
}

/* The handle of this store that has the session of a row, or NULL.  If another
 * handle has taken over a kept session, the old handle stays in the store's
 * list until it is closed, but no longer has the session. */
static zke *sess_find_own(const store *s, const sess_row *r) {
  zke *own = life_find_own(s, r->id);
  return own && own->carrier_id == r->carrier ? own : NULL;
}

/* Is the session of a row alive?  A light session with a carrier of this store,
 * but without a handle, is dead: its end could not be written.  A detached
 * session has no life (LIFE_NONE). */
static enum life_state sess_life(store *s, const sess_row *r) {
  if (sess_find_own(s, r)) return LIFE_HELD;
  if (sess_is_detached(r)) return LIFE_NONE;
  if (r->carrier && life_find_carrier(s, r->carrier)) return LIFE_FREE;
  return life_look(s, sess_carrier(r), r->life);
}

/* Has the lease run out?  False if unknown.  For a session of this store the
 * stamp is in memory.  The clock is read before the stamp: if this process is
 * stopped between the two, the stamp seems too young, never too old (P5). */
static bool sess_lease_is_over(store *s, const sess_row *r) {
  if (r->lease <= 0 || r->slot < 0 || r->slot > LEASE_SLOTS_MOST) return false;
  zke *own = life_find_own(s, r->id);
  if (!own && s->strange_clock) return false;
  int64_t now = host_boottime(s);
  int64_t at = own ? own->lease_at : side_read_hint(s, lease_slot_at(r->slot));
  return at > 0 && now - at > r->lease; /* 0: unknown */
}

/* Fail a call because its session is over. */
static int sess_say_ended(const zke *z) {
  if (z->state == SESS_AUTH_FAILED)
    return base_fail(ZKE_INVALIDSTATE, "authentication failed");
  if (z->state == SESS_MOVED)
    return base_fail(ZKE_SESSIONMOVED,
                     "the session was attached by another handle");
  return base_fail(ZKE_INVALIDSTATE, "the session has expired");
}

SQL_STATEMENT(
    SESSION_HAS,
    "SELECT id,lease,slot,life,carrier,timeout,heard FROM zkembed_session "
    "WHERE id=:session");

/* Read a session's row; *found: is there one? */
static int sess_read_row(store *s, int64_t session, sess_row *out,
                         bool *found) {
  int rc;
  int64_t column[SESS_COLUMNS];
  _Static_assert(sizeof column == sizeof *out, "a member for each column");
  *found = false;
  sqlite3_stmt *st = sql_statement(s, SQL_SESSION_HAS, &rc);
  if (!st) return rc;
  sql_bind_int(st, 1, ":session", session);
  rc = sql_step(s, st, found);
  if (rc != ZKE_OK || !*found) return rc;
  for (int i = 0; i < SESS_COLUMNS; i++)
    column[i] = sqlite3_column_int64(st, i);
  memcpy(out, column, sizeof column);
  sqlite3_reset(st);
  return ZKE_OK;
}

/* The column `carrier` of a session's row; TXN_NO_ROW: there is no row. */
static int sess_read_carrier(store *s, int64_t session, int64_t *carrier) {
  sess_row row;
  bool found;
  int rc = sess_read_row(s, session, &row, &found);
  *carrier = rc == ZKE_OK && found ? row.carrier : TXN_NO_ROW;
  return rc;
}

/* Order rows by the files that carry their lives. */
static int sess_compare_rows(const void *a, const void *b) {
  unsigned x = life_shard(sess_carrier(a)), y = life_shard(sess_carrier(b));
  return x < y ? -1 : x > y;
}

/* The rows in a buffer that sess_list() has filled. */
static sess_row *sess_rows(const buf *list, size_t *count) {
  *count = list->len / sizeof(sess_row);
  return (sess_row *)(void *)list->data;
}

SQL_STATEMENT(
    SESSION_PART,
    "SELECT id,lease,slot,life,carrier,timeout,heard FROM zkembed_session "
    "WHERE id%:parts=:part");

/* The session rows of part `part` of `parts`, grouped by the files that carry
 * their lives; with one part, all rows. */
static int sess_list(store *s, int64_t parts, int64_t part, buf *out) {
  size_t n;
  int rc;
  sqlite3_stmt *st = sql_statement(s, SQL_SESSION_PART, &rc);
  if (!st) return rc;
  sql_bind_int(st, 1, ":parts", parts);
  sql_bind_int(st, 2, ":part", part);
  for (;;) {
    bool more;
    rc = sql_step(s, st, &more);
    if (rc != ZKE_OK || !more) break;
    for (int i = 0; i < SESS_COLUMNS; i++)
      buf_add_int(out, sqlite3_column_int64(st, i));
  }
  sess_row *row = sess_rows(out, &n);
  if (n > 1) qsort(row, n, sizeof *row, sess_compare_rows);
  return rc == ZKE_OK && out->failed ? base_nomem() : rc;
}

SQL_STATEMENT(
    SESSION_CARRIED_BY,
    "SELECT id FROM zkembed_session WHERE carrier=?1 AND carrier<>0 UNION "
    "ALL SELECT id FROM zkembed_session WHERE id=?1 AND carrier=0 ORDER BY "
    "1");

/* The sorted ids of the sessions that share a life: the carrier's own session
 * and the light ones. */
static int sess_list_carried(store *s, int64_t carrier, buf *out) {
  int rc;
  sqlite3_stmt *st = sql_statement(s, SQL_SESSION_CARRIED_BY, &rc);
  if (!st) return rc;
  sql_bind_int(st, 1, NULL, carrier);
  return sql_collect_ints(s, st, out);
}

/* Tell a carrier that a session was taken from it, since it may be alive.  The
 * number in the meta row makes the carriers of light sessions find out which
 * session it is. */
static void sess_wake_carrier(txn *t, const sess_row *r) {
  if (sess_is_detached(r)) return;
  buf_add_int(&t->wake, sess_carrier(r));
  if (r->carrier) t->lost = base_wrap(t->lost, 1);
}

SQL_STATEMENT(
    SESSION_CARRIED,
    "SELECT EXISTS(SELECT 1 FROM zkembed_session WHERE carrier=?1 AND "
    "carrier<>0)OR EXISTS(SELECT 1 FROM zkembed_session WHERE id=?1)");

/* After the end of a dead process's session: if it was the carrier's last, the
 * FIFO goes too.  A live process unlinks its own FIFO. */
static int sess_forget_fifo(txn *t, const sess_row *r) {
  int64_t any = 1, carrier = sess_carrier(r);
  int rc = sql_fetch_ints(t->s, SQL_SESSION_CARRIED, carrier, 1, &any);
  if (rc == ZKE_OK && !any && !life_find_carrier(t->s, carrier))
    buf_add_int(&t->ended, carrier);
  return rc;
}

/* ======================================================================
 * kept_: kept sessions: detaching, attaching, timeouts (private)
 *
 * A kept session outlives its process.  It has a timeout and a password.  While
 * a handle has it attached, that handle's process decides whether the timeout
 * is over, by the time in which it was seen to dispatch (carrier_clock()).
 * After a detachment the timeout counts from then; when it is over, any process
 * may end the session.
 *
 * Watches and events end when the session is detached or attached elsewhere;
 * nodes stay.
 *
 * If a kept session was closed here but its end could not be written, its end
 * is owed: a sweep of this store ends it, and does not detach it (kept_owe()).
 *
 * Start reading at kept_detach(), then kept_attach().
 * ==================================================================== */

/* Is a kept session's timeout over, and may this store decide that?  While the
 * carrier lives, only the carrier decides, by its own time.  For a detached
 * session any process may, by the stamp of its detachment.  A sweep uses the
 * time of its start, also in its transactions, so that a time in which it is
 * stopped does not count. */
static bool kept_is_over(store *s, const sess_row *r) {
  zke *own = sess_find_own(s, r);
  if (own)
    return carrier_is_timed(own) && carrier_time_left(own, host_now(s)) < 0;
  if (!sess_is_detached(r) || s->strange_clock) return false;
  int64_t now = s->sweep_began ? s->sweep_began : host_boottime(s);
  return r->heard >= 0 && r->heard < now && now - r->heard > r->timeout;
}

/* The detach time if the detaching process does not know the host's clock.  The
 * next sweep of a process that knows it sets the time. */
#define KEPT_UNSTAMPED INT64_MAX

/* The current time, as other processes compare it. */
static int64_t kept_stamp(const store *s) {
  return s->strange_clock ? KEPT_UNSTAMPED : host_boottime(s);
}

SQL_STATEMENT(
    SESSION_DETACH,
    "UPDATE zkembed_session SET carrier=0,life=0,heard=?2 WHERE id=?1");

/* Detach a kept session from its carrier: from now on it has its whole timeout
 * to be attached.  Its watches and events end, its nodes stay. */
static int kept_detach(txn *t, const sess_row *r, enum sess_why why) {
  REQUIRE(WRITING(t->s));
  int64_t values[] = {r->id, kept_stamp(t->s)};
  int rc = watch_end(t, r->id);
  if (rc == ZKE_OK) rc = sql_do_int(t->s, SQL_EVENT_END, r->id);
  t->kin = false;
  if (rc == ZKE_OK) rc = sql_do_ints(t->s, SQL_SESSION_DETACH, 2, values);
  if (rc == ZKE_OK && why == SESS_DEAD) rc = sess_forget_fifo(t, r);
  return rc;
}

/* Note that the end of a handle's session could not be written, for
 * kept_is_owed().  Without memory for this the session is detached, as if its
 * carrier had died. */
static void kept_owe(store *s, const zke *z) {
  if (!z->timeout) return;
  buf_add_int(&s->sess.owed, z->id);
  buf_add_int(&s->sess.owed, z->carrier_id);
  if (s->sess.owed.failed) buf_free(&s->sess.owed);
}

/* Was a kept session closed here, and not attached elsewhere since?  Then it
 * must be ended, not detached. */
static bool kept_is_owed(store *s, const sess_row *r) {
  size_t n;
  const int64_t *at = buf_ints(&s->sess.owed, &n);
  bool found = false;
  for (size_t i = 0; i < n && !found; i += 2)
    found = at[i] == r->id && at[i + 1] == r->carrier;
  return found;
}

/* A session that was closed here is, or may be, attached again: its end is no
 * longer owed.  No session has the id 0. */
static void kept_owe_no_more(store *s, int64_t session) {
  size_t n;
  int64_t *at = buf_ints(&s->sess.owed, &n);
  for (size_t i = 0; i < n; i += 2)
    if (at[i] == session) at[i] = 0;
}

/* Make a kept session's password.  It gives access to the session, so it must
 * be hard to guess. */
static int kept_make_password(zke *z) {
  store *s = z->s;
  int rc = s->os.random(s->os.context, z->password, SESS_PASSWORD);
  return rc < 0 ? host_fail(rc, "cannot make", "a password") : ZKE_OK;
}

typedef struct kept_attach_arg {
  zke *z;
  int64_t session;
  const unsigned char *password;
  const char *identity;
} kept_attach_arg;

SQL_STATEMENT(SESSION_PASSWORD,
              "SELECT password FROM zkembed_session WHERE id=:session");

/* Compare the password of an existing session, in constant time. */
static int kept_check_password(store *s, const kept_attach_arg *a) {
  int rc;
  bool row;
  unsigned differs = 0;
  sqlite3_stmt *st = sql_statement(s, SQL_SESSION_PASSWORD, &rc);
  if (!st) return rc;
  sql_bind_int(st, 1, ":session", a->session);
  rc = sql_step(s, st, &row);
  if (rc != ZKE_OK || !row) return rc;
  const unsigned char *has = sqlite3_column_blob(st, 0);
  bool whole = has && sqlite3_column_bytes(st, 0) == SESS_PASSWORD;
  for (int i = 0; i < SESS_PASSWORD && whole; i++)
    differs |= (unsigned)(has[i] ^ a->password[i]);
  if (!whole) differs = 1;
  sqlite3_reset(st);
  if (!differs) return ZKE_OK;
  return base_fail(ZKE_AUTHFAILED, "session 0x%llx has another password",
                   (unsigned long long)a->session);
}

SQL_STATEMENT(
    SESSION_ATTACH,
    "UPDATE zkembed_session SET identity=:identity,pid=:pid,life=:life,"
    "carrier=:carrier,event_limit=:event_limit,seen=:seen,"
    "timeout=:timeout WHERE id=:id");

/* Take over a kept session from any carrier.  The watches and events of the
 * former attachment end; its carrier is told. */
static int kept_attach_body(txn *t, void *arg) {
  REQUIRE(WRITING(t->s));
  kept_attach_arg *a = arg;
  zke *z = a->z;
  sess_row row;
  bool found;
  int rc = sess_read_row(t->s, a->session, &row, &found);
  if (rc != ZKE_OK) return rc;
  if (!found)
    return base_fail(ZKE_SESSIONEXPIRED, "session 0x%llx has ended",
                     (unsigned long long)a->session);
  int64_t b[5] = {0};
  rc = kept_check_password(t->s, a);
  if (rc == ZKE_OK) rc = sql_fetch_ints(t->s, SQL_EVENT_BOUNDS, row.id, 5, b);
  if (rc != ZKE_OK) return rc;
  z->id = row.id;
  z->cursor = z->trimmed = base_max(b[1], b[2]); /* the last number given */
  if (!z->timeout)
    z->timeout = base_min(base_max(row.timeout, 1), ZKE_MAX_TIMEOUT * ZKE_MS);
  memcpy(z->password, a->password, SESS_PASSWORD);
  sess_wake_carrier(t, &row);
  rc = watch_end(t, z->id);
  if (rc == ZKE_OK) rc = sql_do_int(t->s, SQL_EVENT_END, z->id);
  if (rc != ZKE_OK) return rc;
  t->kin = false;
  sqlite3_stmt *st = sql_statement(t->s, SQL_SESSION_ATTACH, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, ":identity", a->identity, -1);
  sql_bind_int(st, 2, ":pid", t->s->os.pid(t->s->os.context));
  sql_bind_int(st, 3, ":life", z->c->life);
  sql_bind_int(st, 4, ":carrier", z->carrier_id);
  sql_bind_int(st, 5, ":event_limit", z->event_limit);
  sql_bind_int(st, 6, ":seen", z->cursor);
  sql_bind_int(st, 7, ":timeout", z->timeout);
  sql_bind_int(st, 8, ":id", z->id);
  return sql_run(t->s, st);
}

/* Attach a kept session to a prepared handle.  If the outcome of the COMMIT is
 * unknown, a sweep of this store handles the row, which no handle has. */
static int kept_attach(zke *z, int64_t session, const unsigned char *password,
                       const char *identity) {
  kept_attach_arg a = {z, session, password, identity};
  int rc = txn_run(z->s, NULL, TXN_NORMAL, kept_attach_body, &a);
  if (rc == ZKE_CONNECTIONLOSS) z->s->sess.owes = true;
  if (rc == ZKE_OK || rc == ZKE_CONNECTIONLOSS) kept_owe_no_more(z->s, session);
  return rc;
}

SQL_STATEMENT(
    SESSION_REARM,
    "UPDATE zkembed_session SET heard=CASE WHEN heard<?2-?1 THEN heard+?1 "
    "ELSE ?2 END WHERE timeout>0 AND carrier=0");

static int kept_rearm_body(txn *t, void *arg) {
  int64_t now = kept_stamp(t->s);
  int64_t by = base_max(base_min(*(int64_t *)arg, now), 0);
  return sql_do_ints(t->s, SQL_SESSION_REARM, 2, (int64_t[]){by, now});
}

/* Do not count `by` ns for the timeouts of detached sessions: move their stamps
 * forward, at most to now.  Sessions without a stamp get one, even if `by` is
 * 0. */
static int kept_rearm(store *s, int64_t by) {
  return txn_run(s, NULL, TXN_NORMAL, kept_rearm_body, &by);
}

/* ======================================================================
 * end_: ending sessions (private)
 *
 * A session ends in one transaction with everything that it owns
 * (end_remove()).  Its FIFO is unlinked after the commit; a death in between
 * leaves only the FIFO.
 *
 * Several processes may notice the same death.  The reason is checked again
 * inside the transaction, so the first process ends the session and the others
 * find no row (end_body()).
 *
 * An end that fails is put off: it is not tried again for a while
 * (end_put_off()).
 *
 * Start reading at end_session().
 * ==================================================================== */

typedef struct end_arg {
  int64_t session;
  enum sess_why why;
  zke *z;          /* the handle that ends it, or NULL */
  txn_body before; /* done first, or NULL */
  void *before_arg;
  bool ended;
  bool died;       /* its process has died */
  int64_t carrier; /* of the session */
  int64_t began;   /* when the gate was locked and work began; 0: not yet */
} end_arg;

SQL_STATEMENT(
    NODE_OWNED,
    "SELECT parent,name,acl,blob FROM zkembed_node WHERE owner=:owner "
    "AND owner<>0 AND nchild=0 ORDER BY parent,name LIMIT " SQL_REMOVAL);

/* Delete the nodes that a session owns, with their events. */
static int end_remove_nodes(txn *t, int64_t session) {
  int rc;
  node_removal r = {.owner = session};
  do {
    sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_OWNED, &rc);
    if (!st) return rc;
    sql_bind_int(st, 1, ":owner", session);
    rc = node_remove_all(t, st, &r);
  } while (rc == ZKE_OK && r.count == NODE_REMOVAL);
  return rc;
}

SQL_STATEMENT(SESSION_END, "DELETE FROM zkembed_session WHERE id=?1");

/* Remove a session and all it owns.  Its watches are removed first, so that it
 * gets no event for its own end. */
static int end_remove(txn *t, const sess_row *r, enum sess_why why) {
  REQUIRE(WRITING(t->s));
  int rc = txn_number(t);
  t->ending = r->id;
  if (rc == ZKE_OK) rc = watch_end(t, r->id);
  if (rc == ZKE_OK) rc = end_remove_nodes(t, r->id);
  t->ending = 0;
  if (rc == ZKE_OK) rc = sql_do_int(t->s, SQL_EVENT_END, r->id);
  t->kin = false;
  if (rc == ZKE_OK) rc = sql_do_int(t->s, SQL_SESSION_END, r->id);
  if (why == SESS_LEASE || why == SESS_EXPIRE) sess_wake_carrier(t, r);
  if (rc == ZKE_OK && why == SESS_DEAD) rc = sess_forget_fifo(t, r);
  return rc;
}

/* Was the gate not free in time, or was the calling handle being closed?  Then
 * nothing is wrong, and the next try may succeed. */
static bool end_is_delayed(int rc) {
  return rc == ZKE_OPERATIONTIMEOUT || rc == ZKE_CLOSING;
}

/* If ending a session fails after much work, as for a hundred thousand nodes on
 * a full disk, it would fail again and again with the gate held.  So the next
 * try is put off for 16 times as long as the work took: the tries take at most
 * a seventeenth of the time.  The limit is half a minute, since the process may
 * have been stopped during the work.  Without memory to note this, each sweep
 * tries again. */
enum { END_REST = 16, END_REST_MOST_MS = 30000 };

/* Note that ending a session has failed after `took` ns. */
static void end_put_off(store *s, int64_t session, int64_t now, int64_t took) {
  size_t n, stay = 0;
  int64_t rest = base_min(took, END_REST_MOST_MS * ZKE_MS / END_REST);
  int64_t *at = buf_ints(&s->sess.put_off, &n);
  for (size_t i = 0; i < n; i += 2) { /* drop the entries that are over */
    if (at[i] == session || at[i + 1] <= now) continue;
    at[stay++] = at[i];
    at[stay++] = at[i + 1];
  }
  s->sess.put_off.len = stay * sizeof *at;
  buf_add_int(&s->sess.put_off, session);
  buf_add_int(&s->sess.put_off, base_later(now, rest * END_REST));
  if (s->sess.put_off.failed) buf_free(&s->sess.put_off);
}

/* Is the end of this session put off, or (0) of any session? */
static bool end_is_put_off(store *s, int64_t session) {
  size_t n;
  const int64_t *at = buf_ints(&s->sess.put_off, &n);
  bool found = false;
  for (size_t i = 0; i < n && !found; i += 2)
    found = (!session || at[i] == session) && host_now(s) < at[i + 1];
  return found;
}

/* Did this store fail to write the session's end, though it is alive?  Then no
 * process has died. */
static bool end_host_lives(const store *s, const sess_row *r) {
  return s->memory || (r->carrier && life_find_carrier(s, r->carrier));
}

/* Does the reason to end a session hold in the state that the transaction sees?
 * A handle may end a session only if the row still says that it is the
 * handle's.  Notes whether the session's process has died.  A batch ends no
 * session for any of these reasons. */
static bool end_reason_holds(store *s, const sess_row *r, end_arg *end) {
  if (end->z && end->z->carrier_id != r->carrier) return false;
  switch (end->why) {
    case SESS_DEAD:
      if (sess_life(s, r) != LIFE_FREE) return false;
      end->died = !end_host_lives(s, r);
      return true;
    case SESS_LEASE:
      return sess_lease_is_over(s, r);
    case SESS_TIMEOUT:
      return kept_is_over(s, r);
    case SESS_EXPIRE:
      end->died = sess_life(s, r) == LIFE_FREE && !end_host_lives(s, r);
      return true;
    case SESS_CLOSE:
    case SESS_DETACH:
      break;
  }
  return true;
}

/* Check the reason again inside the transaction, since another process may have
 * found it first; then end or detach the session. */
static int end_body(txn *t, void *arg) {
  end_arg *end = arg;
  sess_row row;
  bool found;
  end->began = host_now(t->s);
  int rc = sess_read_row(t->s, end->session, &row, &found);
  if (rc != ZKE_OK || !found) return rc;
  life_forget(t->s); /* look at the file that is there now */
  if (!end_reason_holds(t->s, &row, end)) return ZKE_OK;
  end->ended = true;
  end->carrier = row.carrier;
  t->ending = row.id;
  if (end->before) rc = end->before(t, end->before_arg);
  t->ending = 0;
  if (rc != ZKE_OK) return rc;
  bool stays =
      end->why == SESS_DETACH ||
      (end->why == SESS_DEAD && row.timeout > 0 && !kept_is_owed(t->s, &row));
  return stays ? kept_detach(t, &row, end->why)
               : end_remove(t, &row, end->died ? SESS_DEAD : end->why);
}

/* End a session as *end says; end->ended: this call did it.  `trying`: do not
 * wait for the gate. */
static int end_as(store *s, end_arg *end, bool trying) {
  static const char *const reason[] = {"closed",  "dead",    "lease over",
                                       "expired", "timeout", "detached"};
  int rc = (trying ? txn_try : txn_run)(s, NULL, TXN_NORMAL, end_body, end);
  end->ended = rc == ZKE_OK && end->ended;
  if (rc != ZKE_OK && !end_is_delayed(rc)) {
    int64_t now = host_now(s);
    end_put_off(s, end->session, now, end->began ? now - end->began : 0);
  }
  if (!end->ended || end->why == SESS_CLOSE || end->why == SESS_DETACH)
    return rc;
  /* The session's handle did not close it, so the handle must be told, unless
   * another handle had the session. */
  zke *own = life_find_own(s, end->session);
  bool closed = end->why == SESS_DEAD && !end->died;
  if (own && own->carrier_id == end->carrier) txn_session_gone(own);
  host_log(s, ZKE_LOG_INFO, "%s: session 0x%llx ended: %s", s->name,
           (unsigned long long)end->session,
           reason[closed ? SESS_CLOSE : end->why]);
  return rc;
}

/* The same.  `z`: the handle that ends its own session, else NULL. */
static int end_session(store *s, int64_t session, zke *z, enum sess_why why,
                       bool trying, bool *ended) {
  end_arg end = {.session = session, .why = why, .z = z};
  int rc = end_as(s, &end, trying);
  *ended = end.ended;
  return rc;
}

/* ======================================================================
 * judge_: what the sessions in the file are (private)
 *
 * The first session of a store decides what the rows in the file mean: they may
 * be of an earlier boot, or the file may be a copy or a backup.  The meta row
 * has the boot and the files that the sessions used, and the liveness file has
 * the largest zxid that was given.  They are compared with the present boot,
 * files and zxid; the table of doc/design.md 7 has the cases.
 *
 * After a new boot, and in another file, no session lives: all are ended, and
 * the epoch rises above all zxids ever given, so that none is given twice (P8).
 * It also rises in a restored file with live sessions.
 *
 * Start reading at judge_files().
 * ==================================================================== */

/* The wall clock as a zxid: seconds since 2020 in the high half, their fraction
 * in the low half.  Returns 0 if the clock is implausible. */
static int64_t judge_clock_zxid(const store *s) {
  const int64_t second = 1000 * ZKE_MS, from = INT64_C(1577836800);
  int64_t now = s->os.clock(s->os.context, ZKE_CLOCK_REALTIME);
  int64_t seconds = now / second - from;
  if (seconds <= 0 || seconds >= INT64_C(1) << 30) return 0;
  return seconds * (INT64_C(1) << 32) +
         now % second * (INT64_C(1) << 32) / second;
}

/* Raise the epoch above all zxids ever given here, so that no zxid or session
 * id that a power cut or a restore took back is given again (P8).  Then end
 * these sessions.  If the liveness file has no last zxid, the epoch also rises
 * to the clock: zxids grow more slowly than the clock, so it exceeds those
 * given after an earlier restore of the same backup. */
static int judge_new_epoch(txn *t, int64_t known, const buf *sessions) {
  REQUIRE(WRITING(t->s));
  size_t n;
  t->durable = true;
  if (base_max(t->zxid, known) >= TXN_LAST_ZXID)
    return base_fail(ZKE_CORRUPT, "%s: the zxids are used up", t->s->name);
  t->zxid = ((base_max(t->zxid, known) >> 32) + 1) * (INT64_C(1) << 32);
  if (known <= 0) t->zxid = base_max(t->zxid, judge_clock_zxid(t->s));
  t->numbered = true;
  int rc = side_note_epoch(t->s, t->zxid);
  const sess_row *row = sess_rows(sessions, &n);
  for (size_t i = 0; i < n && rc == ZKE_OK; i++)
    rc = end_remove(t, &row[i], SESS_DEAD);
  return rc;
}

/* The boot and the files, as in the meta row. */
typedef struct judge_facts {
  char boot[64];
  int64_t n[6]; /* device and inode: database, liveness file, gate file */
} judge_facts;

SQL_STATEMENT(
    META_FILES,
    "SELECT boot,db_device,db_inode,live_device,live_inode,gate_device,"
    "gate_inode FROM zkembed_meta");

/* Read the boot and the files of the last sessions from the meta row.  The
 * comparison with the present ones tells a new boot, a copy of the file and a
 * replaced side directory from each other. */
static int judge_read_facts(store *s, judge_facts *out) {
  int rc;
  bool row;
  sqlite3_stmt *st = sql_statement(s, SQL_META_FILES, &rc);
  if (!st) return rc;
  rc = sql_step(s, st, &row);
  if (rc != ZKE_OK) return rc;
  /* txn_read_meta() has just seen the row */
  if (NEVER(!row)) return base_fail(ZKE_CORRUPT, "%s: no meta row", s->name);
  const char *boot = (const char *)sqlite3_column_text(st, 0);
  snprintf(out->boot, sizeof out->boot, "%s", boot ? boot : "");
  for (int i = 0; i < 6; i++) out->n[i] = sqlite3_column_int64(st, i + 1);
  sqlite3_reset(st);
  return ZKE_OK;
}

SQL_STATEMENT(
    META_FILES_SET,
    "UPDATE zkembed_meta SET boot=?1,db_device=?2,db_inode=?3,live_device=?4,"
    "live_inode=?5,gate_device=?6,gate_inode=?7");

/* Note that the sessions use these files from now on. */
static int judge_write_facts(store *s, const judge_facts *f) {
  int rc;
  sqlite3_stmt *st = sql_statement(s, SQL_META_FILES_SET, &rc);
  if (!st) return rc;
  sql_bind_text(st, 1, NULL, f->boot, -1);
  for (int i = 0; i < 6; i++) sql_bind_int(st, i + 2, NULL, f->n[i]);
  return sql_run(s, st);
}

/* The same file?  Device numbers may change at a reboot. */
static bool judge_same_file(const int64_t *a, const int64_t *b,
                            bool same_boot) {
  return a[1] == b[1] && (a[0] == b[0] || !same_boot);
}

/* The boot and the files as they are now.  One of these errors means that the
 * system has no boot id, or does not show it; any other is a failure. */
static int judge_find_facts(store *s, judge_facts *now) {
  memset(now, 0, sizeof *now);
  int rc = s->os.boot_id(s->os.context, now->boot, sizeof now->boot);
  if (rc == -ENOENT || rc == -ENOSYS || rc == -EACCES || rc == -EPERM)
    now->boot[0] = '\0';
  else if (rc < 0)
    return host_fail(rc, "cannot read the boot id for", s->name);
  now->n[0] = (int64_t)s->file_id.device;
  now->n[1] = (int64_t)s->file_id.inode;
  now->n[2] = (int64_t)s->live_id.device;
  now->n[3] = (int64_t)s->live_id.inode;
  now->n[4] = (int64_t)s->gate_id.device;
  now->n[5] = (int64_t)s->gate_id.inode;
  return ZKE_OK;
}

/* Is any session not detached? */
static bool judge_any_hosted(const buf *sessions) {
  size_t n;
  bool any = false;
  const sess_row *row = sess_rows(sessions, &n);
  for (size_t i = 0; i < n && !any; i++) any = !sess_is_detached(&row[i]);
  return any;
}

/* Is any of the sessions alive?  Fails if none is known to be alive and the
 * kernel did not answer for all. */
static int judge_any_alive(store *s, const buf *sessions, bool *alive) {
  size_t n;
  bool blind = false;
  *alive = false;
  const sess_row *row = sess_rows(sessions, &n);
  for (size_t i = 0; i < n && !*alive; i++) {
    enum life_state life = sess_life(s, &row[i]);
    *alive = life == LIFE_HELD;
    blind |= life == LIFE_BLIND;
  }
  life_forget(s);
  return blind && !*alive ? life_say_blind(s) : ZKE_OK;
}

/* What has happened to the files since the meta row was written. */
enum judge_past {
  JUDGE_SAME,
  JUDGE_MADE,
  JUDGE_NO_FILES,
  JUDGE_CONTAINER,
  JUDGE_RESTORED,
  JUDGE_NEW_EPOCH
};

/* The facts for the decision about the file's sessions. */
typedef struct judge_case {
  judge_facts was, now;
  int64_t known; /* the liveness file's last zxid; 0: it is new */
  int64_t any;   /* does any process have sessions in the file? */
  buf sessions;  /* their rows, if they are needed */
  enum judge_past past;
} judge_case;

/* Is everything as it was left?  Then no session need be checked. */
static bool judge_is_plain(const txn *t, const judge_case *j) {
  return j->now.boot[0] && strcmp(j->now.boot, j->was.boot) == 0 &&
         memcmp(j->now.n, j->was.n, sizeof j->now.n) == 0 && j->known > 0 &&
         t->zxid >= j->known;
}

/* Set j->past by the table of doc/design.md 7, in its order.  The gate is held,
 * so no session can begin meanwhile, and each answer is the kernel's. */
static int judge_compare_files(const txn *t, judge_case *j) {
  const judge_facts *was = &j->was, *now = &j->now;
  bool same_boot = now->boot[0] && strcmp(now->boot, was->boot) == 0;
  bool same_db = judge_same_file(was->n, now->n, same_boot);
  bool same_side = judge_same_file(was->n + 2, now->n + 2, same_boot) &&
                   judge_same_file(was->n + 4, now->n + 4, same_boot);
  bool alive;
  j->past = JUDGE_MADE;
  if (was->n[1] == 0 && t->zxid >= j->known) return ZKE_OK;
  j->past = JUDGE_NEW_EPOCH;
  if (!same_db) return ZKE_OK; /* a copy: nobody lives in it */
  j->past = JUDGE_NO_FILES;
  if (!same_side && same_boot && judge_any_hosted(&j->sessions)) return ZKE_OK;
  int rc = judge_any_alive(t->s, &j->sessions, &alive);
  bool restored = !same_side || j->known <= 0 || t->zxid < j->known;
  if (!alive && (!same_boot || restored))
    j->past = JUDGE_NEW_EPOCH;
  else if (restored)
    j->past = JUDGE_RESTORED;
  else
    j->past = same_boot ? JUDGE_SAME : JUDGE_CONTAINER;
  return rc;
}

/* Unlink a FIFO of the side directory, which has a name of 16 digits, unless
 * the process that made it lives.  If others have ended all its sessions, it
 * may still begin light ones, which sleep on this FIFO. */
static void judge_unlink_orphan(void *arg, const char *name) {
  store *s = arg;
  size_t len = strlen(name);
  if (len != 16 || strspn(name, "0123456789abcdef") != len) return;
  int64_t session = (int64_t)strtoull(name, NULL, 16);
  enum life_state life = life_look(s, session, 0);
  if (life != LIFE_FREE && life != LIFE_REMOVED) return;
  char *path = mem_format(&s->a, "%s/%s", s->dir, name);
  if (path) s->os.unlink(s->os.context, path);
  mem_free(path);
}

/* Make the log durable before a store shows its contents (P8).  A process that
 * is killed inside the sync of its COMMIT leaves a whole commit in the log.
 * While any process has the database open, that commit is not visible.  The
 * next process to open the database recovers the log, and the commit becomes
 * visible.  Its zxid is greater than the noted one, and the note about its sync
 * is still there (wal_note_doubt()).  For a commit without a zxid, that note is
 * made before the COMMIT (txn_expect_death()).  The process that recovers the
 * log may be using SQLite without zkembed, so every store compares when it
 * opens.
 *
 * Another store may have tried to sync the log before, and failed.  So the log
 * is written again (db_renew_log), which a read-only store cannot do. */
static int judge_sync_log(store *s, int64_t zxid, int64_t known) {
  int rc = ZKE_OK;
  if (wal_read_doubt(s) || zxid > known)
    rc = s->readonly ? db_sync_log(s) : db_renew_log(s);
  s->index.serving = rc == ZKE_OK; /* from here on see shm_recover() */
  return rc;
}

/* Is there any session that is not detached? */
SQL_STATEMENT(SESSION_ANY,
              "SELECT EXISTS(SELECT 1 FROM zkembed_session WHERE timeout=0 OR "
              "carrier<>0)");

/* Act on j->past. */
static int judge_conclude(txn *t, const judge_case *j) {
  REQUIRE(WRITING(t->s));
  const store *s = t->s;
  const buf nobody = {.a = &s->a};
  switch (j->past) {
    case JUDGE_SAME:
      break;
    case JUDGE_MADE:
    case JUDGE_CONTAINER:
      t->durable = true;
      break;
    case JUDGE_NO_FILES:
      return base_fail(
          ZKE_REPLACED,
          "files in %s were removed while %s has sessions.  End every process "
          "that uses it; then replace the database by a copy of "
          "itself",
          s->dir, s->name);
    case JUDGE_RESTORED: /* the sessions live; the epoch rises */
      return judge_new_epoch(t, j->known, &nobody);
    case JUDGE_NEW_EPOCH:
      return judge_new_epoch(t, j->known, &j->sessions);
  }
  return ZKE_OK;
}

/* Decide, with the gate held, whether the file's sessions are of this boot, of
 * an earlier one, or of another file (doc/design.md 7). */
static int judge_files(txn *t) {
  REQUIRE(WRITING(t->s));
  store *s = t->s;
  judge_case j = {.sessions = {.a = &s->a}, .past = JUDGE_SAME};
  int64_t epoch;
  int rc = side_read_known(s, &j.known, &epoch);
  if (rc == ZKE_OK) rc = judge_find_facts(s, &j.now);
  if (rc == ZKE_OK) rc = judge_read_facts(s, &j.was);
  if (rc == ZKE_OK) rc = judge_sync_log(s, t->zxid, j.known);
  j.known = base_max(j.known, epoch);
  if (rc == ZKE_OK) rc = sql_fetch_ints(s, SQL_SESSION_ANY, 0, 1, &j.any);
  if (rc == ZKE_OK && !judge_is_plain(t, &j)) {
    rc = sess_list(s, 1, 0, &j.sessions);
    if (rc == ZKE_OK) rc = judge_compare_files(t, &j);
  }
  if (rc == ZKE_OK) rc = judge_conclude(t, &j);
  /* in a container with another boot id, keep the first one */
  if (j.past == JUDGE_CONTAINER)
    memcpy(j.now.boot, j.was.boot, sizeof j.now.boot);
  if (rc == ZKE_OK && j.past != JUDGE_SAME) rc = judge_write_facts(s, &j.now);
  /* unlink the FIFOs of killed processes, if no process has sessions */
  if (rc == ZKE_OK && (j.past == JUDGE_NEW_EPOCH || !j.any))
    s->os.list(s->os.context, s->dir, judge_unlink_orphan, s);
  life_forget(s);
  buf_free(&j.sessions);
  return rc;
}

/* ======================================================================
 * begin_: beginning a session (private)
 *
 * Lock and FIFO exist before the row is committed, so the row of a living
 * session is never visible without its lock.  A death in between leaves a FIFO
 * without a row.  The next store that opens the file when no process has
 * sessions in it unlinks that FIFO.
 *
 * Start reading at begin_body().
 * ==================================================================== */

SQL_STATEMENT(
    SLOT_LAST,
    "SELECT coalesce(max(slot),-1)FROM zkembed_session WHERE slot>=0");

SQL_STATEMENT(
    SLOT_TAKEN,
    "SELECT EXISTS(SELECT 1 FROM zkembed_session WHERE slot=?1 AND slot>=0)");

/* Choose a free slot for a lease's stamp: try a few random slots up to the last
 * one in use, else take the next one.  So a few lookups in an index suffice for
 * any number of sessions, and the file grows only while most slots are in use.
 */
static int begin_choose_slot(txn *t, int64_t *slot) {
  int64_t last = -1, taken = 1;
  uint64_t mixed = (uint64_t)t->zxid;
  int rc = sql_fetch_ints(t->s, SQL_SLOT_LAST, 0, 1, &last);
  for (int i = 0; i < 4 && taken && last >= 0 && rc == ZKE_OK; i++) {
    mixed = (mixed ^ mixed >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    *slot = (int64_t)((mixed >> 16) % ((uint64_t)last + 1));
    rc = sql_fetch_ints(t->s, SQL_SLOT_TAKEN, *slot, 1, &taken);
  }
  if (taken) *slot = last + 1;
  return rc;
}

SQL_STATEMENT(
    SESSION_ADD,
    "INSERT INTO zkembed_session(id,identity,pid,started,lease,slot,life,"
    "carrier,event_limit,seen,timeout,heard,password)"
    "VALUES(:id,:identity,:pid,:started,:lease,:slot,:life,:carrier,"
    ":event_limit,0,:timeout,:heard,:password)");

/* Add the session's row, and take a slot for its stamps if it has a lease.  The
 * stamp is written before the row is visible, so that a sweep that finds the
 * row does not find the stamp of the slot's former owner. */
static int begin_insert(txn *t, zke *z, const char *identity) {
  REQUIRE(WRITING(t->s));
  int rc = ZKE_OK;
  z->slot = -1;
  if (z->lease) rc = begin_choose_slot(t, &z->slot);
  sqlite3_stmt *st =
      rc == ZKE_OK ? sql_statement(t->s, SQL_SESSION_ADD, &rc) : NULL;
  if (!st) return rc;
  z->lease_at = host_boottime(t->s);
  if (z->lease && !t->s->memory) {
    rc = lease_write(t->s, z->slot, z->lease_at);
    if (rc < 0)
      return host_fail(rc, "cannot write the lease's stamp into", t->s->live);
  }
  sql_bind_int(st, 1, ":id", z->id);
  sql_bind_text(st, 2, ":identity", identity, -1);
  sql_bind_int(st, 3, ":pid", t->s->os.pid(t->s->os.context));
  sql_bind_int(st, 4, ":started", t->now);
  sql_bind_int(st, 5, ":lease", z->lease);
  sql_bind_int(st, 6, ":slot", z->slot);
  sql_bind_int(st, 7, ":life", z->c->life);
  sql_bind_int(st, 8, ":carrier", z->carrier_id);
  sql_bind_int(st, 9, ":event_limit", z->event_limit);
  sql_bind_int(st, 10, ":timeout", z->timeout);
  sql_bind_int(st, 11, ":heard", z->timeout ? z->lease_at : 0);
  sql_bind_blob(st, 12, ":password", z->timeout ? z->password : NULL,
                SESS_PASSWORD);
  return sql_run(t->s, st);
}

typedef struct begin_arg {
  zke *z;
  const char *identity;
  bool first; /* it is the store's first session */
} begin_arg;

/* The session's id is the zxid of its creation: it is unique, and contains the
 * epoch.  The lock is taken before the row is visible; a light session uses its
 * carrier's. */
static int begin_body(txn *t, void *arg) {
  begin_arg *b = arg;
  zke *z = b->z;
  int rc = ZKE_OK;
  if (b->first && !t->s->memory) rc = judge_files(t);
  if (rc != ZKE_OK) return rc;
  if (t->numbered) {
    t->zxid++; /* after the one that raised the epoch */
  } else {
    rc = txn_number(t);
  }
  bool own = !carrier_is_light(z);
  if (rc == ZKE_OK && own && !t->s->memory) rc = equip_take_life(t, z->c);
  if (rc != ZKE_OK) return rc;
  z->id = t->zxid;
  if (own) z->c->id = z->id;
  if (own && !t->s->memory) rc = equip_make_fifo(z->c);
  return rc == ZKE_OK ? begin_insert(t, z, b->identity) : rc;
}

/* Begin a session on a prepared handle; after a failure the caller calls
 * equip_release(). */
static int begin_session(zke *z, const char *identity, bool first) {
  begin_arg b = {z, identity, first};
  bool own = !carrier_is_light(z);
  int rc = own && z->s->memory ? equip_make_pipe(z->c) : ZKE_OK;
  if (rc == ZKE_OK && z->timeout) rc = kept_make_password(z);
  if (rc == ZKE_OK) rc = txn_run(z->s, NULL, TXN_NORMAL, begin_body, &b);
  if (rc == ZKE_CONNECTIONLOSS && !own) z->s->sess.owes = true;
  return rc == ZKE_OK && own ? equip_make_poller(z->c) : rc;
}

/* ======================================================================
 * discard_: nodes that a session has yet to remove (private)
 *
 * The nodes given to zke_discard() stay in a list until they are removed.  A
 * call of the session that changes anything removes them first, or fails.  So a
 * later node of the session cannot be mistaken for a discarded one, and no
 * later change of the session precedes the removal.  Reads and dispatches also
 * try, but do not fail for it.  When the session ends, its nodes are removed
 * anyway, and the list is dropped.  As at the session's end, only its own nodes
 * are removed, and permissions are not checked.
 * ==================================================================== */

/* One node, or all nodes that one sequential create may have made. */
typedef struct discard {
  struct discard *next;
  int64_t session;  /* the owner */
  int64_t czxid;    /* 0: any node of the session at the path */
  bool sequential;  /* digits follow the name */
  int64_t batch;    /* the number of the last batch that has removed it */
  const char *path; /* full; in a list entry's own block */
} discard;

enum {
  DISCARD_PAUSE_MS = 250,   /* until the next try by a dispatch, at most */
  DISCARD_PATIENCE_MS = 20, /* longest wait in a dispatch that may wait */
  DISCARD_DIGITS = 10       /* of a sequence number, at least */
};

SQL_STATEMENT(
    NODE_DISCARD,
    "SELECT parent,name,acl,blob FROM zkembed_node WHERE parent=:parent "
    "AND name>=:name AND name<=:name||CASE WHEN :digits>0 THEN "
    "'9999999999' ELSE '' END AND(:digits=0 "
    "OR(length(name)-length(:name)BETWEEN :digits "
    "AND :digits+(substr(name,length(:name)+1)GLOB'-[12]*')"
    "AND substr(name,length(:name)+1,1)GLOB'[-0-9]'AND substr(name,"
    "length(:name)+2)NOT GLOB'*[^0-9]*'))"
    "AND owner=:owner AND(:czxid=0 OR czxid=:czxid)LIMIT " SQL_REMOVAL);

/* Remove the nodes of an entry that the session owns, without checking
 * permissions, as at the session's end.  They are removed in portions, since
 * each portion is collected before it is removed. */
static int discard_remove(txn *t, const discard *d) {
  REQUIRE(WRITING(t->s));
  int rc;
  node_removal r = {.owner = d->session};
  do {
    sqlite3_stmt *st = sql_statement(t->s, SQL_NODE_DISCARD, &rc);
    if (!st) return rc;
    sql_bind_key(st, 1, path_split(d->path, strlen(d->path)));
    sql_bind_int(st, 3, ":digits", d->sequential ? DISCARD_DIGITS : 0);
    sql_bind_int(st, 4, ":owner", d->session);
    sql_bind_int(st, 5, ":czxid", d->czxid);
    rc = node_remove_all(t, st, &r);
  } while (rc == ZKE_OK && r.count == NODE_REMOVAL);
  return rc;
}

/* Has the running batch removed it already?  A node that exists under the name
 * now was made later.  Batches are numbered, so a mark of an earlier batch has
 * no effect. */
static bool discard_is_done(const store *s, const discard *d) {
  return s->batch && d->batch == s->batches;
}

/* Remove the nodes of all entries of a list, in one transaction with one zxid.
 * Writes nothing if there is nothing to remove. */
static int discard_body(txn *t, void *arg) {
  int rc = ZKE_OK;
  for (const discard *d = arg; d && rc == ZKE_OK; d = d->next) {
    if (!discard_is_done(t->s, d)) rc = discard_remove(t, d);
  }
  return rc;
}

/* The list's present entries.  Other threads may add entries before them; only
 * a thread with the store's lock removes entries. */
static discard *discard_first(zke *z) {
  pthread_mutex_lock(&z->s->m);
  discard *first = z->discards;
  pthread_mutex_unlock(&z->s->m);
  return first;
}

/* Put an entry into the list.  The store's lock need not be held, so this waits
 * for no other call. */
static void discard_push(zke *z, discard *d) {
  pthread_mutex_lock(&z->s->m);
  d->next = z->discards;
  z->discards = d;
  atomic_store(&z->owes, true);
  carrier_sooner_m(z, 0);
  pthread_mutex_unlock(&z->s->m);
}

/* Free the entries from this one on. */
static void discard_free(discard *d) {
  for (discard *next; d; d = next) {
    next = d->next;
    mem_free(d);
  }
}

/* After a try to remove these entries: drop them, or, after a failure, set the
 * time for a dispatch to try again, unless a set time is still to come.  In a
 * batch only mark them, since it may still be undone: discard_end_batch().
 * Returns rc. */
static int discard_conclude(zke *z, discard *first, int rc) {
  REQUIRE(LOCK_HELD(z->s));
  if (rc == ZKE_OK && z->s->batch) {
    for (discard *d = first; d; d = d->next) d->batch = z->s->batches;
    return ZKE_OK;
  }
  if (rc != ZKE_OK) {
    int64_t now = host_now(z->s);
    if (now < z->discard_at) return rc;
    z->discard_pause = base_min(base_max(2 * z->discard_pause, ZKE_MS),
                                DISCARD_PAUSE_MS * ZKE_MS);
    z->discard_at = now + z->discard_pause;
    return rc;
  }
  pthread_mutex_lock(&z->s->m);
  discard **at = &z->discards;
  while (*at != first) at = &(*at)->next;
  *at = NULL;
  atomic_store(&z->owes, z->discards || atomic_load(&z->doomed));
  pthread_mutex_unlock(&z->s->m);
  z->discard_at = z->discard_pause = 0;
  discard_free(first);
  return ZKE_OK;
}

/* After a batch that the session was part of: drop the entries that the batch
 * has removed if it was committed; else they stay.  Later entries are before
 * them in the list. */
static void discard_end_batch(zke *z, int rc) {
  discard *d = discard_first(z);
  while (d && d->batch != z->s->batches) d = d->next;
  if (d) discard_conclude(z, d, rc);
}

/* There was no memory to note a node: end the session, which removes all its
 * nodes.  This cannot be part of a batch. */
static int discard_session(zke *z) {
  bool ended;
  if (z->s->batch) return base_nomem();
  int rc = end_session(z->s, z->id, z, SESS_EXPIRE, false, &ended);
  return rc == ZKE_OK ? txn_session_gone(z) : rc;
}

/* Remove all discarded nodes, by the store's deadline. */
static int discard_all(zke *z) {
  discard *first = discard_first(z);
  int rc = ZKE_OK;
  if (first && discard_is_done(z->s, first)) return ZKE_OK; /* so are all */
  if (atomic_load(&z->doomed))
    rc = discard_session(z);
  else if (first)
    rc = txn_run(z->s, z, TXN_NORMAL, discard_body, first);
  return discard_conclude(z, first, rc);
}

/* The same, as a side job of a call.  Waits for other processes at most `ms`,
 * and not at all until the pause after a failure is over.  Restores the store's
 * deadline, which is that of the call. */
static void discard_try(zke *z, int64_t now, int64_t ms) {
  store *s = z->s;
  if (!atomic_load(&z->owes)) return;
  if (now < z->discard_at) ms = 0;
  int64_t deadline = s->deadline;
  s->deadline = ms ? base_min(deadline, now + ms * ZKE_MS) : 0;
  discard_all(z);
  s->deadline = deadline;
}

/* ======================================================================
 * sweep_: duty (private)
 *
 * A sweep ends the sessions of dead processes, ends leases that are over, and
 * removes containers and TTL nodes that are due.  A notice of death ends a
 * session sooner (notice_); the sweep finds the deaths without a notice.
 *
 * One of the waiting processes has the duty, a lock byte that the kernel frees
 * when the process dies.  It sweeps once a duty tick and stamps the liveness
 * file.  The others look at the stamp once a tick.  If it is old, they sweep
 * themselves, whoever has the lock, so a process that is stopped with the duty
 * delays no other (P6).  Concurrent sweeps do no harm, since each reason to end
 * a session is checked again in the transaction.
 *
 * A sweep waits for the gate only a short time, and stops removing nodes after
 * a while.  The next sweep does the rest.
 *
 * A sweep's note is a stamp, the time at which it began (SIDE_SWEEP_AT), and
 * the identity of the files that it has checked (SIDE_FILES_AT).  Both tell
 * others whether they have to sweep (sweep_age()).  The stamp alone tells how
 * long there was no sweep (sweep_idle()).  So a failed sweep keeps its stamp,
 * since it has swept, and clears the files, so that the next process that looks
 * also sweeps:
 *
 *   result                   stamp         files    duty        ended
 *   done                     its own       its own  stays       its own
 *   done, an end put off     its own       0        given away  its own
 *   the gate was busy        one before    its own  stays       as it was
 *   another failure          its own       0        given away  as it was
 *   timeouts not extended    as it was     as was   as above    as it was
 *   sessions not looked at   one before    0        given away  as it was
 *
 * "One before": the previous stamp is put back, but at most a tick old, since
 * earlier time is already charged to the detached sessions.  After extending
 * the timeouts of these by the time without a sweep, a sweep sets charged_until
 * to its start: they are charged the time until then, even if the sweep fails
 * later.
 *
 * Start reading at sweep_tick(), then sweep_run().
 * ==================================================================== */

/* Give the store up if the path does not lead to this file any more.  An error
 * other than "does not exist" proves nothing. */
static void sweep_verify_file(store *s, const char *path, const zke_file *id) {
  zke_file now;
  if (health_is_replaced(s) || !id->inode) return;
  int rc = host_stat(s, path, &now);
  if (rc == -ENOENT || (rc == 0 && !host_same_file(&now, id)))
    guard_give_up(s, path);
}

/* Check whether the six files are still the store's. */
static void sweep_verify_files(store *s) {
  if (s->memory) return;
  sweep_verify_file(s, s->file, &s->file_id);
  sweep_verify_file(s, s->gate, &s->gate_id);
  sweep_verify_file(s, s->line, &s->line_id);
  sweep_verify_file(s, s->live, &s->live_id);
  sweep_verify_file(s, s->wal, &s->wal_id);
  sweep_verify_file(s, s->shm, &s->shm_id);
}

/* SWEEP_PATIENCE: how long a sweep waits for the gate in a call that need not
 * write.  SWEEP_REMOVAL_MS: for how long it removes nodes that are due.
 * SWEEP_FEW: up to this number each sweep probes all sessions, else a part. */
enum { SWEEP_FEW = 64, SWEEP_REMOVAL_MS = 20 };
#define SWEEP_PATIENCE (20 * ZKE_MS) /* ns */

/* The state of a running sweep. */
typedef struct sweep {
  int rc;       /* its first failure */
  bool over;    /* stop: the gate is busy, or this store cannot write */
  bool all;     /* it looks at all sessions, not only at a part */
  bool skipped; /* … except one whose end is put off */
  int64_t idle; /* ns before it without the sweeps that were due */
  bool charged; /* detached sessions are charged the time until it began */
  bool noted;   /* the liveness file has its note */
} sweep;

/* A hash of the files that a sweep checks: equal in two stores only if they
 * have the same files. */
static int64_t sweep_files(const store *s) {
  const zke_file *files[] = {&s->file_id, &s->gate_id, &s->line_id, &s->wal_id,
                             &s->shm_id};
  uint64_t hash = 0;
  for (int i = 0; i < 5; i++) {
    hash = (hash ^ files[i]->device) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ files[i]->inode) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return (int64_t)hash;
}

/* Write the note: when this sweep began, and which files were checked.  A later
 * time would hide from the next sweep how long this one was stopped.  If
 * another process has swept since, its note stays. */
static void sweep_note(store *s, sweep *w) {
  int64_t at = s->memory ? 0 : side_read_hint(s, SIDE_SWEEP_AT);
  bool newer = at > s->sweep_began && at <= host_boottime(s);
  w->noted = !s->memory && (!newer || s->strange_clock);
  if (!w->noted) return;
  side_write_hint(s, SIDE_FILES_AT, sweep_files(s));
  side_write_hint(s, SIDE_SWEEP_AT, s->strange_clock ? -1 : s->sweep_began);
}

/* Note the result of a step.  The first failure counts and is logged.  Later
 * steps are made all the same, since a session that cannot be ended must not
 * delay the others. */
static void sweep_note_step(store *s, sweep *w, int rc) {
  w->over = end_is_delayed(rc) || health_needs_recovery(s);
  if (w->rc != ZKE_OK) return;
  w->rc = rc;
  if (rc != ZKE_OK && !end_is_delayed(rc))
    host_log(s, ZKE_LOG_ERROR, "%s", base_sentence);
}

SQL_STATEMENT(
    SESSION_FEW,
    "SELECT count(*)<=?1 FROM(SELECT 1 FROM zkembed_session LIMIT ?1+1)");

/* Does a detached session need a new stamp?  After a time without a sweep each
 * does, else one that has none. */
static bool sweep_must_stamp(const store *s, const sweep *w,
                             const sess_row *row, size_t count) {
  bool must = false;
  for (size_t i = 0; i < count && !must && !s->strange_clock; i++) {
    must = sess_is_detached(&row[i]) &&
           (w->idle || row[i].heard == KEPT_UNSTAMPED);
  }
  return must;
}

/* End a session if its process is dead, or its lease or timeout is over.
 * Timeouts are checked only if the stamps are known to be right (`judges`). */
static int sweep_session(store *s, const sess_row *row, bool judges) {
  bool ended;
  enum life_state life = sess_life(s, row);
  if (life == LIFE_FREE)
    return end_session(s, row->id, NULL, SESS_DEAD, false, &ended);
  if (sess_lease_is_over(s, row))
    return end_session(s, row->id, NULL, SESS_LEASE, false, &ended);
  if (judges && life == LIFE_NONE && kept_is_over(s, row))
    return end_session(s, row->id, NULL, SESS_TIMEOUT, false, &ended);
  return life == LIFE_BLIND ? life_say_blind(s) : ZKE_OK;
}

/* End dead sessions, and those whose lease or timeout is over.  If there are
 * many sessions, each sweep looks at a part of them, unless the last sweep is
 * too long ago.
 *
 * First the timeouts of detached sessions are extended by any time without a
 * sweep.  Only then is the note of this sweep written: a process that reads a
 * note relies on that.  If the timeouts cannot be extended, none is checked. */
static void sweep_sessions(store *s, sweep *w) {
  buf sessions = {.a = &s->a};
  int64_t few = 1, parts = ZKE_TICK_MS / ZKE_DUTY_TICK_MS;
  size_t n = 0;
  int rc = sql_fetch_ints(s, SQL_SESSION_FEW, SWEEP_FEW, 1, &few);
  if (w->all || few) parts = 1;
  if (rc == ZKE_OK) rc = sess_list(s, parts, s->sweep.count % parts, &sessions);
  const sess_row *row = rc == ZKE_OK ? sess_rows(&sessions, &n) : NULL;
  if (sweep_must_stamp(s, w, row, n)) rc = kept_rearm(s, w->idle);
  w->charged = rc == ZKE_OK;
  if (w->charged && w->idle) sweep_note(s, w);
  if (w->charged && !s->strange_clock) s->sweep.charged_until = s->sweep_began;
  sweep_note_step(s, w, rc);
  for (size_t i = 0; i < n && !w->over; i++) {
    bool rests = end_is_put_off(s, row[i].id);
    w->skipped |= rests;
    if (!rests) sweep_note_step(s, w, sweep_session(s, &row[i], w->charged));
  }
  life_forget(s);
  buf_free(&sessions);
}

/* Containers that have been empty long enough, or TTL nodes. */
typedef struct sweep_nodes_arg {
  int kind;
  node_removal removal; /* of one transaction */
} sweep_nodes_arg;

SQL_STATEMENT(
    NODE_DUE,
    "SELECT parent,name,acl,blob FROM zkembed_node WHERE kind=:kind AND due<>0 "
    "AND due<=:now AND nchild=0 AND ttl>=0 ORDER BY due,parent,name "
    "LIMIT " SQL_REMOVAL);

/* Bind the statement that finds the nodes due at this time. */
static sqlite3_stmt *sweep_find(store *s, int kind, int64_t now, int *rc) {
  sqlite3_stmt *st = sql_statement(s, SQL_NODE_DUE, rc);
  int64_t latest = kind == NODE_CONTAINER ? now - s->container : now - 1;
  if (!st) return NULL;
  sql_bind_int(st, 1, ":kind", kind);
  sql_bind_int(st, 2, ":now", latest);
  return st;
}

/* Remove one portion of nodes that are due.  They are looked for again in the
 * transaction, since a child may have been created meanwhile. */
static int sweep_remove_body(txn *t, void *arg) {
  sweep_nodes_arg *a = arg;
  int rc;
  sqlite3_stmt *st = sweep_find(t->s, a->kind, t->now, &rc);
  return st ? node_remove_all(t, st, &a->removal) : rc;
}

/* Remove the nodes of a kind that are due, NODE_REMOVAL in a transaction, until
 * there are no more or the time is over; the next sweep does the rest.  The
 * transactions are not synced: if a power cut brings nodes back, they are still
 * due and are removed again (doc/design.md 7). */
static int sweep_nodes(store *s, int kind, int64_t until) {
  int64_t now = s->os.clock(s->os.context, ZKE_CLOCK_REALTIME) / ZKE_MS;
  sweep_nodes_arg a = {.kind = kind, .removal = {.each = true}};
  const node_removal *r = &a.removal;
  bool any = false;
  int rc;
  sqlite3_stmt *st = sweep_find(s, kind, now, &rc);
  if (st) rc = sql_step(s, st, &any);
  if (any) sqlite3_reset(st);
  if (rc != ZKE_OK || !any) return rc;
  do {
    rc = txn_run(s, NULL, TXN_NORMAL, sweep_remove_body, &a);
  } while (rc == ZKE_OK && r->count == NODE_REMOVAL && r->orphans < r->count &&
           host_now(s) < until);
  if (rc != ZKE_OK || !r->orphans) return rc;
  return base_fail(ZKE_CORRUPT, "%s: %d nodes without a parent are due",
                   s->name, r->orphans);
}

/* One sweep, of all sessions or of one part of them.  If the gate is busy until
 * the deadline, the next sweep does the rest. */
static void sweep_run(store *s, sweep *w) {
  sweep_note_step(s, w, db_end(s));
  if (w->rc != ZKE_OK) return;
  sweep_sessions(s, w);
  int64_t until = host_now(s) + SWEEP_REMOVAL_MS * ZKE_MS;
  if (!w->over) sweep_note_step(s, w, sweep_nodes(s, NODE_CONTAINER, until));
  if (!w->over) sweep_note_step(s, w, sweep_nodes(s, NODE_TTL, until));
}

/* *found: is there anything that a sweep would remove? */
static int sweep_overdue(store *s, bool *found) {
  static const int kinds[] = {NODE_CONTAINER, NODE_TTL};
  int64_t now = s->os.clock(s->os.context, ZKE_CLOCK_REALTIME) / ZKE_MS;
  buf sessions = {.a = &s->a};
  size_t n;
  *found = false;
  int rc = sess_list(s, 1, 0, &sessions);
  const sess_row *row = sess_rows(&sessions, &n);
  for (size_t i = 0; rc == ZKE_OK && i < n && !*found; i++)
    *found = sess_life(s, &row[i]) == LIFE_FREE ||
             sess_lease_is_over(s, &row[i]) ||
             (sess_is_detached(&row[i]) && kept_is_over(s, &row[i]));
  life_forget(s);
  buf_free(&sessions);
  for (int i = 0; rc == ZKE_OK && i < 2 && !*found; i++) {
    sqlite3_stmt *st = sweep_find(s, kinds[i], now, &rc);
    if (st) rc = sql_step(s, st, found);
    if (*found) sqlite3_reset(st);
  }
  return rc;
}

/* How long ago a process with the same files swept, in ns; INT64_MAX if
 * unknown, or if that sweep has left something undone. */
static int64_t sweep_age(store *s) {
  int64_t word[3] = {-1, 0, 0}; /* the stamp, the zxid, the files */
  int64_t now = host_boottime(s);
  int64_t n =
      s->os.pread(s->os.context, s->live_fd, word, sizeof word, SIDE_SWEEP_AT);
  bool known = n == (int64_t)sizeof word && word[2] == sweep_files(s) &&
               !s->strange_clock;
  return known && word[0] >= 0 && word[0] <= now ? now - word[0] : INT64_MAX;
}

/* Give up the duty, for another process to take. */
static void sweep_yield(store *s) {
  if (s->sweep.duty) side_lock_byte(s, SIDE_DUTY, false);
  s->sweep.duty = false;
}

/* For how long due sweeps were missed before the one that begins now, in ns:
 * all processes were stopped, or had ended, or the host was suspended.
 * INT64_MAX: unknown.  That time does not count for the timeouts of detached
 * sessions.  `before` is the stamp in the note; what this store's own sweeps
 * have charged is in charged_until. */
static int64_t sweep_idle(const store *s, int64_t before) {
  int64_t at = s->sweep_began, swept = s->sweep.charged_until;
  if (s->strange_clock) return 0; /* it checks no timeouts */
  if (before <= at) swept = base_max(swept, before);
  if (swept <= 0) return s->memory ? 0 : INT64_MAX;
  int64_t idle = at - swept - TICK_PLAIN;
  return idle > TICK_DUTY ? idle : 0;
}

/* After a sweep that has left something undone: change its note by the table
 * above, so that another process sweeps.  `before` is the stamp that it found.
 */
static void sweep_unnote(store *s, const sweep *w, int64_t before) {
  bool busy = end_is_delayed(w->rc);
  if (!w->noted) return;
  before = base_max(before, s->sweep.charged_until - TICK_PLAIN);
  if (busy || !w->charged) side_write_hint(s, SIDE_SWEEP_AT, before);
  if (!busy) side_write_hint(s, SIDE_FILES_AT, 0);
}

/* Sweep, and wait for the gate at most `patience` ns.  The note keeps others
 * from sweeping meanwhile.  It is written at the start, or, after a time
 * without a sweep, by sweep_sessions() when the timeouts are extended.  If the
 * gate is busy, the store keeps the duty, if it has it, and tries again soon.
 * If the sweep fails otherwise, or the end of a session is put off after a
 * failure, the store gives up the duty, since the cause may be in this process.
 */
static void sweep_now(store *s, int64_t patience) {
  REQUIRE(LOCK_HELD(s));
  int64_t now = host_now(s), deadline = s->deadline;
  int64_t before = s->memory ? 0 : side_read_hint(s, SIDE_SWEEP_AT);
  s->sweep_began = host_boottime(s);
  sweep w = {.idle = sweep_idle(s, before)};
  if (!w.idle) sweep_note(s, &w);
  s->deadline = patience ? base_min(deadline, base_later(now, patience)) : 0;
  /* after a longer pause a part of the sessions was missed */
  w.all = w.idle || !s->sweep.ended || s->sess.owes ||
          now - s->sweep.ended > TICK_DUTY * 3 / 2;
  sweep_run(s, &w);
  s->deadline = deadline;
  s->sweep_began = 0;
  if (w.rc == ZKE_OK) {
    /* the owed ends are written, unless a session was left out */
    bool left = w.skipped || w.over;
    s->sess.owes = end_is_put_off(s, 0) || (s->sess.owes && left);
    if (!s->sess.owes) buf_free(&s->sess.owed);
    s->sweep.ended = now;
    s->sweep.count++;
  }
  if (w.rc == ZKE_OK && !end_is_put_off(s, 0)) return;
  sweep_unnote(s, &w, before);
  if (!end_is_delayed(w.rc)) sweep_yield(s);
}

/* The tick, in three steps:
 *
 *   1. If another process has just swept, stop: it has checked these files, and
 *      a thousand waiting processes need not all do it.
 *   2. Verify the files.  Stop if they were replaced, or if this store cannot
 *      write.
 *   3. Try to take the duty, if wants_duty.  Sweep with the duty, or without it
 *      if the last sweep is too old.  The sweep waits for the gate at most
 *      `patience` ns. */
static void sweep_tick(store *s, bool wants_duty, int64_t patience) {
  /* A sweep older than `late` is overdue: the process with the duty may be
   * scheduled late by a quarter of its tick.  If it is older than `missed`, any
   * process sweeps.  That is less than a whole tick, because a session may look
   * again up to TICK_INSTANT before the tick has passed. */
  const int64_t late = TICK_DUTY * 5 / 4, missed = TICK_PLAIN * 9 / 10;
  bool alone = s->sweep.duty || s->memory || s->readonly;
  int64_t age = alone || s->sess.owes ? INT64_MAX : sweep_age(s);
  if (age < late) return;
  sweep_verify_files(s);
  if (health_is_replaced(s) || s->readonly) return;
  if (health_needs_recovery(s)) {
    sweep_yield(s); /* it cannot end any session */
    return;
  }
  if (wants_duty && !s->sweep.duty && !s->memory)
    s->sweep.duty = side_lock_byte(s, SIDE_DUTY, true) == 0;
  if (s->sweep.duty || age >= missed) sweep_now(s, patience);
}

/* When the next tick of a session is due; `sweeps`: it sweeps for its store.  A
 * store's sessions tick together, on one of twenty instants of a second, since
 * waking the process is the main cost.  Different stores tick at different
 * instants. */
static int64_t sweep_next_tick(store *s, int64_t now, bool sweeps) {
  if (sweeps && (s->sweep.duty || s->memory)) return now + TICK_DUTY;
  int64_t at = now + TICK_PLAIN;
  return at - (at - s->sweep.phase) % TICK_INSTANT;
}

/* The tick of a session that waits, or that has told its program a deadline.
 * One carrier sweeps for its whole store, four times a second while the store
 * has the duty.  The program may neglect any carrier, so each of the others
 * wakes once a second, and takes over if that one is late.  Even without the
 * duty, one carrier's recent check counts for the others. */
static void sweep_in_turn(struct carrier *c, int64_t now, bool waiting) {
  if (now < c->tick_at) return;
  store *s = c->s;
  bool wants = waiting || c->watcher_count > 0;
  bool sweeps_for_store = s->sweep.duty || s->memory;
  bool stands_by = sweeps_for_store && s->sweep.by != c->id;
  if (now >= s->sweep.at + (stands_by ? TICK_DUTY : 0)) {
    sweep_tick(s, wants, waiting ? SWEEP_PATIENCE : 0);
    s->sweep.by = c->id;
    /* if a dispatch found the gate busy, a call that may wait must try */
    bool done = waiting || !s->sweep.duty || s->sweep.ended >= now;
    /* half of the time between sweeps: the next regular one may come early, but
     * carriers that tick at the same instant do not all sweep */
    if ((wants || sweeps_for_store) && done) s->sweep.at = now + TICK_DUTY / 2;
  }
  s->sweep.next = now + TICK_PLAIN;
  c->tick_at = sweep_next_tick(s, now, s->sweep.by == c->id);
  c->timer_at = -1; /* it has expired: set it again */
}

/* Is no tick due yet, in a call that does not wait? */
static bool sweep_rests(const store *s, int64_t now) {
  return now < s->sweep.next;
}

/* The tick of a process that makes any calls: from time to time check whether
 * its files are still those that it opened, and sweep if it must.  The sweep
 * waits for the gate at most `patience` ns. */
static void sweep_in_call(store *s, int64_t now, int64_t patience) {
  if (sweep_rests(s, now)) return;
  s->sweep.next = base_later(now, TICK_PLAIN);
  sweep_tick(s, false, patience);
}

/* Must the store look at the sessions of others in any call? */
static bool sweep_is_ours(const store *s) {
  return s->sweep.duty || s->sess.owes;
}

/* ======================================================================
 * watcher_: a session's watchers in memory (private)
 *
 * The file says that a session watches a path; this section knows what to call.
 * A watcher is in two lists: the list of its path (a spot), through which an
 * event finds it, and the list of its function and context (a pair), through
 * which zke_forget() does.
 *
 * Invariants:
 *
 *   - Each watcher has the zxid that its registration saw.  An event is only
 *     for watchers that were registered before it, even if it is dispatched
 *     after a newer registration.
 *   - Rows and watchers agree after each call: memory is allocated inside the
 *     transaction, and watcher_conclude() links it only after COMMIT.  If the
 *     outcome of the COMMIT is unknown, there may be a row without a watcher
 *     until the path is registered again.  In that case the path's older
 *     watchers are marked (`unsure`), since the row may be newer than they are.
 *   - A watcher that was set too late (zke_set_watch()) is in both lists like
 *     any other, but has no row and gets only the one event that it is owed.
 *   - A spot without watchers, and a pair without, does not exist.
 *   - kinds[] of a spot counts its watchers by the rows that they were
 *     registered for, so that the row is removed with the last of them.  If a
 *     row has fired and was added again before the event was dispatched,
 *     stale[] counts the watchers that do not need the new row.  A registration
 *     that found no row (`fresh`) sets since[] once it is committed: older
 *     one-shot watchers of that kind have fired, even if their event was not
 *     read yet.
 *
 * Start reading at watcher_prepare(), then watcher_collect().
 * ==================================================================== */

/* One registration: a pair on a path, with a mode and tables.  It lives from
 * the COMMIT that added its rows to its event, or to its removal. */
typedef struct watcher {
  struct watcher *prev, *next;   /* of the spot, in order of registration */
  struct watcher *older, *newer; /* of the pair, in the same order */
  struct watcher_spot *spot;
  struct watcher_pair *pair;
  int mode;        /* WATCH_… */
  unsigned tables; /* 1 << WATCH_TABLE_… */
  /* of the state that its registration saw: it gets later changes */
  int64_t zxid;
  struct watcher_fired *fired; /* the event that it is owed; NULL: armed */
  int64_t owner;               /* the carrier whose death it waits for */
  bool unsure; /* a later registration was in doubt: it may have fired */
} watcher;

/* The event owed to a watcher that was set after its node had changed.  Its
 * zxid is the watcher's. */
typedef struct watcher_fired {
  struct watcher_fired *prev, *next; /* of the session */
  watcher *w;
  int type;
} watcher_fired;

/* All watchers of one path. */
typedef struct watcher_spot {
  watcher_item item;
  watcher *first, *last;
  size_t count, kinds[6]; /* watchers; of each watch_kind() */
  size_t stale[6];        /* of these, not registered for the present row */
  size_t pending;         /* registrations that point here */
  int64_t since[6];       /* by watch_kind(): the zxid that added its row */
  char path[];
} watcher_spot;

/* An item with a function and a context as its key, for watcher_find_keyed();
 * pairs and alarms begin with one. */
typedef struct watcher_keyed {
  watcher_item item;
  zke_watch_fn fn;
  void *context;
} watcher_keyed;

/* All watchers of one function and context. */
typedef struct watcher_pair {
  watcher_keyed key;
  watcher *newest;
  size_t count, pending;
  uint64_t listed; /* the last collection of calls that it is in */
} watcher_pair;

/* One call to make.  It is a copy, since the watcher may be gone by then. */
typedef struct watcher_call {
  zke_watch_fn fn;
  void *context;
} watcher_call;

/* ---- tables ---- */

/* The chain of a hash; NULL for an empty table. The number of chains is a power
 * of two. */
static watcher_item **watcher_chain(const watcher_table *table, uint64_t hash) {
  return table->cap ? &table->at[hash & (table->cap - 1)] : NULL;
}

/* Double the table if it is full; false without memory.  Only links change,
 * items do not move: pointers to spots and pairs stay valid. */
static bool watcher_grow(zke *z, watcher_table *table) {
  if (table->count < table->cap) return true;
  watcher_table more = {.cap = table->cap ? table->cap * 2 : 16};
  more.at = mem_zero(&z->s->a, more.cap * sizeof(watcher_item *));
  if (!more.at) return false;
  for (size_t i = 0; i < table->cap; i++) {
    for (watcher_item *item = table->at[i], *next; item; item = next) {
      watcher_item **chain = watcher_chain(&more, item->hash);
      next = item->next;
      item->next = *chain;
      *chain = item;
    }
  }
  mem_free(table->at);
  table->at = more.at;
  table->cap = more.cap;
  return true;
}

/* Put a new item of `size` bytes into the table; NULL without memory. */
static void *watcher_make_item(zke *z, watcher_table *table, uint64_t hash,
                               size_t size) {
  if (!watcher_grow(z, table)) return NULL;
  watcher_item *item = mem_zero(&z->s->a, size);
  if (!item) return NULL;
  watcher_item **chain = watcher_chain(table, hash);
  item->hash = hash;
  item->next = *chain;
  *chain = item;
  table->count++;
  return item;
}

/* Take an item out of the table and free it. */
static void watcher_free_item(watcher_table *table, watcher_item *item) {
  watcher_item **at = watcher_chain(table, item->hash);
  if (NEVER(!at)) return; /* the item is in the table, so it is not empty */
  while (*at != item) at = &(*at)->next;
  *at = item->next;
  table->count--;
  mem_free(item);
}

/* ---- spots and pairs ---- */

/* The spot of a path, which need not end after len bytes; NULL: it has no
 * watcher. */
static watcher_spot *watcher_find_spot(const zke *z, const char *path,
                                       size_t len) {
  uint64_t hash = path_hash(PATH_HASH, path, len);
  watcher_item **chain = watcher_chain(&z->spots, hash);
  for (watcher_item *item = chain ? *chain : NULL; item; item = item->next) {
    watcher_spot *spot = (watcher_spot *)item;
    if (item->hash == hash && strncmp(spot->path, path, len) == 0 &&
        spot->path[len] == '\0') {
      return spot;
    }
  }
  return NULL;
}

/* The spot of a path, made if necessary; NULL without memory.  The caller must
 * give a new one a watcher, or pass it to watcher_drop_spot(). */
static watcher_spot *watcher_need_spot(zke *z, const char *path) {
  size_t len = strlen(path);
  watcher_spot *spot = watcher_find_spot(z, path, len);
  if (spot) return spot;
  spot = watcher_make_item(z, &z->spots, path_hash(PATH_HASH, path, len),
                           sizeof *spot + len + 1);
  if (spot) memcpy(spot->path, path, len);
  return spot;
}

/* Free a spot if it has no watchers, and no pending registration. */
static void watcher_drop_spot(zke *z, watcher_spot *spot) {
  if (spot && !spot->first && !spot->pending)
    watcher_free_item(&z->spots, &spot->item);
}

/* Hash a pair.  Functions and contexts are addresses with similar low bits, so
 * both are multiplied and the high bits are folded down. */
static uint64_t watcher_hash_pair(zke_watch_fn fn, const void *context) {
  uint64_t hash = (uintptr_t)fn * UINT64_C(0x9e3779b97f4a7c15);
  hash = (hash ^ (uintptr_t)context) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 32;
}

/* The item of a table for a function and a context; NULL: there is none. */
static void *watcher_find_keyed(const watcher_table *table, zke_watch_fn fn,
                                const void *context) {
  watcher_item **chain = watcher_chain(table, watcher_hash_pair(fn, context));
  for (watcher_item *item = chain ? *chain : NULL; item; item = item->next) {
    watcher_keyed *key = (watcher_keyed *)item;
    if (key->fn == fn && key->context == context) return key;
  }
  return NULL;
}

/* The same; if there is none, a new one of `size` bytes, zero except for its
 * key.  NULL without memory. */
static void *watcher_need_keyed(zke *z, watcher_table *table, zke_watch_fn fn,
                                void *context, size_t size) {
  watcher_keyed *key = watcher_find_keyed(table, fn, context);
  if (key) return key;
  key = watcher_make_item(z, table, watcher_hash_pair(fn, context), size);
  if (!key) return NULL;
  key->fn = fn;
  key->context = context;
  return key;
}

/* The pair of a function and a context; NULL: it watches nothing. */
static watcher_pair *watcher_find_pair(const zke *z, zke_watch_fn fn,
                                       const void *context) {
  return watcher_find_keyed(&z->pairs, fn, context);
}

/* Free a pair if it has no watchers, and no pending registration. */
static void watcher_drop_pair(zke *z, watcher_pair *pair) {
  if (pair && !pair->newest && !pair->pending)
    watcher_free_item(&z->pairs, &pair->key.item);
}

/* Iterate over the watchers of a pair at a spot (pair NULL: of all pairs),
 * newest first: the next older one than w, or the newest if w is NULL.  Walks
 * the shorter of the two lists, so it is fast for many pairs at one spot and
 * for one pair at many spots. */
static watcher *watcher_older(const watcher_spot *spot,
                              const watcher_pair *pair, const watcher *w) {
  bool by_pair = pair && pair->count < spot->count;
  watcher *at = by_pair ? pair->newest : spot->last;
  if (w) at = by_pair ? w->older : w->prev;
  while (at && (at->spot != spot || (pair && at->pair != pair)))
    at = by_pair ? at->older : at->prev;
  return at;
}

/* Add `by` to the watchers of the notice of an owner's death.  A notice without
 * watchers is dropped at the next dispatch (notice_take_all()). */
static void watcher_count_notice(zke *z, int64_t owner, int by) {
  struct carrier *c = z->c;
  for (size_t i = 0; owner && i < c->notice_count; i++) {
    if (c->notices[i].owner == owner) c->notices[i].refs += by;
  }
}

/* Has an event that is not dispatched yet fired the watcher in this table, and
 * has a later registration added the row again? */
static bool watcher_is_stale(const watcher_spot *spot, const watcher *w,
                             int table) {
  return w->mode == WATCH_ONE_SHOT &&
         w->zxid < spot->since[watch_kind(w->mode, table)];
}

/* Add a watcher to the counts of its spot and session, or (by -1) subtract it,
 * by its present tables and mode.  Call it before and after a change of these,
 * to keep the counts right. */
static void watcher_count_kinds(zke *z, const watcher *w, int by) {
  if (w->fired) return; /* it needs no row */
  for (int table = 0; table < 2; table++) {
    int kind = watch_kind(w->mode, table);
    if (!(w->tables & 1u << table)) continue;
    w->spot->kinds[kind] += (size_t)by;
    if (watcher_is_stale(w->spot, w, table)) w->spot->stale[kind] += (size_t)by;
  }
  if (w->mode == WATCH_RECURSIVE) z->recursive_count += (size_t)by;
}

/* Note that a registration that saw this zxid has added the row of a kind.  So
 * all earlier one-shot watchers of that kind have fired. */
static void watcher_note_row(watcher_spot *spot, int mode, int table,
                             int64_t zxid) {
  int kind = watch_kind(mode, table);
  spot->since[kind] = zxid;
  if (mode != WATCH_ONE_SHOT) return;
  spot->stale[kind] = 0;
  if (!spot->kinds[kind]) return;
  for (const watcher *w = spot->first; w; w = w->next) {
    if (!w->fired && w->tables & 1u << table)
      spot->stale[kind] += watcher_is_stale(spot, w, table);
  }
}

/* Append the event that a watcher is owed.  A running dispatch may have read
 * the file before, so z->unread makes it look again: events of earlier changes
 * may have been added since. */
static void watcher_link_fired(zke *z, watcher_fired *f) {
  z->unread = true;
  f->prev = z->fired_last;
  if (f->prev)
    f->prev->next = f;
  else
    z->fired = f;
  z->fired_last = f;
}

/* Unlink and free the event that a watcher is owed. */
static void watcher_drop_fired(zke *z, watcher_fired *f) {
  if (f->prev)
    f->prev->next = f->next;
  else
    z->fired = f->next;
  if (f->next)
    f->next->prev = f->prev;
  else
    z->fired_last = f->prev;
  mem_free(f);
}

/* Append a watcher to both lists as the newest, after its COMMIT.  This needs
 * no memory, and so cannot fail. */
static void watcher_link(zke *z, watcher *w) {
  watcher_spot *spot = w->spot;
  watcher_pair *pair = w->pair;
  w->prev = spot->last;
  if (w->prev)
    w->prev->next = w;
  else
    spot->first = w;
  spot->last = w;
  spot->count++;
  w->older = pair->newest;
  if (w->older) w->older->newer = w;
  pair->newest = w;
  pair->count++;
  z->watcher_count++;
  z->c->watcher_count++;
  watcher_count_kinds(z, w, 1);
  watcher_count_notice(z, w->owner, 1);
  if (w->fired) watcher_link_fired(z, w->fired);
}

/* Unlink and free a watcher, and its pair if it was the last one; the spot
 * stays. */
static void watcher_remove(zke *z, watcher *w) {
  watcher_spot *spot = w->spot;
  watcher_pair *pair = w->pair;
  watcher_count_kinds(z, w, -1);
  watcher_count_notice(z, w->owner, -1);
  if (w->prev)
    w->prev->next = w->next;
  else
    spot->first = w->next;
  if (w->next)
    w->next->prev = w->prev;
  else
    spot->last = w->prev;
  spot->count--;
  if (w->newer)
    w->newer->older = w->older;
  else
    pair->newest = w->older;
  if (w->older) w->older->newer = w->newer;
  pair->count--;
  z->watcher_count--;
  if (w->fired) watcher_drop_fired(z, w->fired);
  z->c->watcher_count--;
  mem_free(w);
  watcher_drop_pair(z, pair);
}

/* Has no later registration added this watcher's row again?  If one has, it
 * found the row gone: an event has fired the watcher, but is not dispatched
 * yet.  Call it after watcher_note_row(). */
static bool watcher_is_current(const watcher_spot *spot, const watcher *w) {
  if (w->unsure) return false;
  for (int table = 0; table < 2; table++) {
    if (w->tables & 1u << table && watcher_is_stale(spot, w, table))
      return false;
  }
  return true;
}

/* An older watcher of the same pair, path, mode and tables that has not fired;
 * NULL: there is none.  Only the newest such watcher is checked: if its rows
 * have fired, so have the rows of the older ones. */
static watcher *watcher_same(const watcher *like) {
  watcher *w = watcher_older(like->spot, like->pair, NULL);
  while (w && (w->fired || w->mode != like->mode || w->tables != like->tables))
    w = watcher_older(like->spot, like->pair, w);
  return w && watcher_is_current(like->spot, w) ? w : NULL;
}

/* Note a call. */
static void watcher_add_call(buf *calls, zke_watch_fn fn, void *context) {
  watcher_call call;
  memset(&call, 0, sizeof call);
  call.fn = fn;
  call.context = context;
  buf_add(calls, &call, sizeof call);
}

/* Note the call of a pair, once per collection: as in ZooKeeper, one event
 * calls a pair once, however many of its watchers match. */
static void watcher_list(zke *z, watcher_pair *pair, buf *calls) {
  if (pair->listed == z->listing) return;
  pair->listed = z->listing;
  watcher_add_call(calls, pair->key.fn, pair->key.context);
}

/* Does an event, on the watcher's path itself or below it, match the watcher?
 * Not if the watcher was registered after the change, or is owed its event
 * already. */
static bool watcher_hears(const watcher *w, const event *e, bool below) {
  if (w->fired || w->zxid >= e->zxid) return false;
  for (int table = 0; table < 2; table++) {
    if ((w->tables & 1u << table) &&
        watch_matches(w->mode, table, e->type, below)) {
      return true;
    }
  }
  return false;
}

/* Collect the calls of all watchers, the default watcher last: for an overflow,
 * and for the session's end.  If the default watcher is also a pair, it is
 * called once. */
static void watcher_collect_all(zke *z, buf *calls) {
  z->listing++;
  for (size_t i = 0; i < z->spots.cap; i++) {
    for (watcher_item *item = z->spots.at[i]; item; item = item->next) {
      const watcher_spot *spot = (const watcher_spot *)item;
      for (const watcher *w = spot->first; w; w = w->next)
        watcher_list(z, w->pair, calls);
    }
  }
  const watcher_pair *pair =
      watcher_find_pair(z, z->watcher, z->watcher_context);
  if (z->watcher && (!pair || pair->listed != z->listing))
    watcher_add_call(calls, z->watcher, z->watcher_context);
}

/* Collect the calls for an event; an overflow is for all watchers.  Ancestors
 * are searched only if there are recursive watchers.  This consumes no watcher,
 * so if memory is short the event can be delivered later. */
static void watcher_collect(zke *z, const event *e, buf *calls) {
  size_t len = strlen(e->path);
  bool below = false;
  if (e->type == ZKE_EVENT_OVERFLOW) {
    watcher_collect_all(z, calls);
    return;
  }
  z->listing++;
  do {
    const watcher_spot *spot = watcher_find_spot(z, e->path, len);
    const watcher *w = spot ? spot->first : NULL;
    for (; w; w = w->next) {
      if (watcher_hears(w, e, below)) watcher_list(z, w->pair, calls);
    }
    below = true;
  } while (z->recursive_count && path_climb(e->path, &len));
}

/* Remove the one-shots of a spot that match an event; for an overflow, all that
 * were registered before it. */
static void watcher_consume_spot(zke *z, watcher_spot *spot, const event *e) {
  bool all = e->type == ZKE_EVENT_OVERFLOW;
  for (watcher *w = spot->first, *next; w; w = next) {
    next = w->next;
    if (w->mode != WATCH_ONE_SHOT) continue;
    if (all ? w->zxid < e->zxid : watcher_hears(w, e, false))
      watcher_remove(z, w);
  }
  watcher_drop_spot(z, spot);
}

/* Consume the one-shots that match an event.  They are at the event's own path,
 * since a one-shot does not see below its path. */
static void watcher_consume(zke *z, const event *e) {
  if (e->type != ZKE_EVENT_OVERFLOW) {
    watcher_spot *spot = watcher_find_spot(z, e->path, strlen(e->path));
    if (spot) watcher_consume_spot(z, spot, e);
    return;
  }
  for (size_t i = 0; i < z->spots.cap; i++) {
    for (watcher_item *item = z->spots.at[i], *next; item; item = next) {
      next = item->next;
      watcher_consume_spot(z, (watcher_spot *)item, e);
    }
  }
}

/* Free all watchers of a session that ends.  Its rows are removed with the
 * session. */
static void watcher_free(zke *z) {
  for (size_t i = 0; i < z->spots.cap; i++) {
    for (watcher_item *item = z->spots.at[i], *next; item; item = next) {
      watcher_spot *spot = (watcher_spot *)item;
      next = item->next;
      while (spot->first) watcher_remove(z, spot->first);
      mem_free(spot);
    }
  }
  mem_free(z->spots.at);
  mem_free(z->pairs.at);
  z->spots = z->pairs = (watcher_table){.at = NULL};
}

/* A pending registration: rows and memory before COMMIT, links after it.  In a
 * batch several may be pending for the same spot or pair. */
typedef struct watcher_pending {
  watcher_spot *spot;
  watcher_pair *pair;
  watcher *w;
  unsigned fresh; /* tables in which it has added a row */
} watcher_pending;

/* Allocate a watcher inside the transaction.  Allocated blocks are in *out even
 * after a failure; watcher_conclude() frees them then. */
static int watcher_make(txn *t, const char *path, int mode, unsigned tables,
                        zke_watch_fn fn, void *context, watcher_pending *out) {
  out->spot = watcher_need_spot(t->z, path);
  if (out->spot) out->spot->pending++;
  out->pair =
      watcher_need_keyed(t->z, &t->z->pairs, fn, context, sizeof(watcher_pair));
  if (out->pair) out->pair->pending++;
  out->w = mem_zero(&t->s->a, sizeof *out->w);
  if (!out->spot || !out->pair || !out->w) return base_nomem();
  *out->w = (watcher){.spot = out->spot,
                      .pair = out->pair,
                      .mode = mode,
                      .tables = tables,
                      .zxid = t->zxid};
  return ZKE_OK;
}

/* Inside the transaction: add the rows and allocate the memory.  A row that
 * exists already belongs to another watcher of this session, and serves both.
 */
static int watcher_prepare(txn *t, const char *path, int mode, unsigned tables,
                           zke_watch_fn fn, void *context,
                           watcher_pending *out) {
  for (int table = 0; table < 2; table++) {
    if (!(tables & 1u << table)) continue;
    int rc = watch_add(t, path, watch_kind(mode, table));
    if (rc != ZKE_OK) return rc;
    if (sqlite3_changes(t->s->db) > 0) out->fresh |= 1u << table;
  }
  return watcher_make(t, path, mode, tables, fn, context, out);
}

/* The same for a one-shot watcher if its node has changed already: it gets no
 * row, but an event of this type, with the zxid that the transaction sees. */
static int watcher_prepare_fired(txn *t, const char *path, unsigned tables,
                                 zke_watch_fn fn, void *context, int type,
                                 watcher_pending *out) {
  int rc = watcher_make(t, path, WATCH_ONE_SHOT, tables, fn, context, out);
  if (rc != ZKE_OK) return rc;
  watcher_fired *f = mem_zero(&t->s->a, sizeof *f);
  if (!f) return base_nomem();
  f->w = out->w;
  f->type = type;
  out->w->fired = f;
  return ZKE_OK;
}

/* Call if it is unknown whether a registration at this spot was committed.  If
 * it was, its row may be new, and the older one-shot watchers have fired: the
 * next registration must not rely on them. */
static void watcher_doubt(watcher_spot *spot) {
  for (watcher *w = spot ? spot->first : NULL; w; w = w->next)
    w->unsure = w->mode == WATCH_ONE_SHOT;
}

/* After the transaction, which has ended with rc: link or free the
 * registration.  If an equal watcher is still armed, no second one is linked.
 * The old watcher takes the new one's notice of death if it has none. */
static void watcher_conclude(zke *z, watcher_pending *entry, int rc) {
  bool committed = rc == ZKE_OK;
  watcher_spot *spot = entry->spot;
  watcher *w = entry->w;
  if (rc == ZKE_CONNECTIONLOSS) watcher_doubt(spot);
  for (int table = 0; table < 2 && committed; table++) {
    if (entry->fresh & 1u << table)
      watcher_note_row(spot, w->mode, table, w->zxid);
  }
  watcher *same = committed && !w->fired ? watcher_same(w) : NULL;
  if (same && !same->owner) {
    same->owner = w->owner;
    watcher_count_notice(z, w->owner, 1);
  }
  if (committed && !same) {
    watcher_link(z, w);
  } else {
    if (w) mem_free(w->fired);
    mem_free(w);
  }
  if (spot) spot->pending--;
  if (entry->pair) entry->pair->pending--;
  watcher_drop_pair(z, entry->pair);
  watcher_drop_spot(z, spot);
}

/* Change the mode of a spot's watchers, after their rows have changed from one
 * persistent mode to the other. */
static void watcher_change_mode(zke *z, watcher_spot *spot, int from, int to) {
  const size_t *count = &spot->kinds[watch_kind(from, 0)]; /* of two tables */
  if (!count[0] && !count[1]) return;
  for (watcher *w = spot->first; w; w = w->next) {
    if (w->mode != from) continue;
    watcher_count_kinds(z, w, -1);
    w->mode = to;
    watcher_count_kinds(z, w, 1);
  }
}

/* Has the pair (NULL: any) a watcher at the spot in one of the tables?  A
 * watcher that has fired but was not called yet counts, since for the caller it
 * still exists. */
static bool watcher_exists(const watcher_spot *spot, unsigned tables,
                           const watcher_pair *pair) {
  const watcher *w = watcher_older(spot, pair, NULL);
  while (w && !(w->tables & tables)) w = watcher_older(spot, pair, w);
  return w != NULL;
}

/* Which rows of a path no watcher would need after the pair (NULL: all) is
 * removed from these tables: bit watch_kind() of the result.  This changes
 * nothing, since the rows must be removed first. */
static unsigned watcher_unneeded(const watcher_spot *spot, unsigned tables,
                                 const watcher_pair *pair) {
  size_t gone[6] = {0};
  unsigned rows = 0;
  const watcher *w = watcher_older(spot, pair, NULL);
  for (; w; w = watcher_older(spot, pair, w)) {
    for (int table = 0; table < 2 && !w->fired; table++) {
      if (w->tables & tables & 1u << table && !watcher_is_stale(spot, w, table))
        gone[watch_kind(w->mode, table)]++;
    }
  }
  for (int kind = 0; kind < 6; kind++) {
    if (gone[kind] && gone[kind] == spot->kinds[kind] - spot->stale[kind])
      rows |= 1u << kind;
  }
  return rows;
}

/* Remove the watchers of a pair (NULL: all) from the spot.  A watcher in both
 * tables that is removed from one stays in the other. */
static void watcher_take(zke *z, watcher_spot *spot, unsigned tables,
                         const watcher_pair *pair) {
  for (watcher *w = watcher_older(spot, pair, NULL), *next; w; w = next) {
    next = watcher_older(spot, pair, w);
    if ((w->tables & ~tables) == 0) {
      watcher_remove(z, w); /* frees the pair with its last watcher */
      continue;
    }
    watcher_count_kinds(z, w, -1);
    w->tables &= ~tables;
    watcher_count_kinds(z, w, 1);
  }
  watcher_drop_spot(z, spot);
}

/* Which rows at a watcher's spot only its pair needs; 0 for all but the newest
 * watcher of the pair there, so that each spot counts once. */
static unsigned watcher_unneeded_rows(const watcher *w) {
  if (watcher_older(w->spot, w->pair, NULL) != w) return 0;
  return watcher_unneeded(w->spot, 3, w->pair);
}

/* Remove every watcher of a pair, on all paths, and so the pair. */
static void watcher_take_pair(zke *z, const watcher_pair *pair) {
  for (watcher *w = pair ? pair->newest : NULL, *older; w; w = older) {
    watcher_spot *spot = w->spot;
    older = w->older;
    watcher_remove(z, w);
    watcher_drop_spot(z, spot);
  }
}

/* ======================================================================
 * alarm_: timed calls (private)
 *
 * An alarm is what zke_call_at() sets: a function and its context, and a time.
 * A pair has at most one alarm.  The alarms that are set stand in a list, the
 * earliest first, and alarm_at is the time of the first: a check costs one
 * atomic read.
 *
 * The mutex alone guards the alarms, not the store's lock, so setting a time
 * waits for no other call.  The thread that dispatches rings them one by one,
 * and holds nothing while it calls.
 * ==================================================================== */

/* One pair's alarm.  It stays when it has rung, unset: setting it again needs
 * no memory. */
typedef struct alarm_call {
  watcher_keyed key;
  int64_t at;              /* monotonic ns; INT64_MAX: not set */
  struct alarm_call *next; /* the next alarm that is set, by time */
} alarm_call;

/* Set an alarm to another time, monotonic ns (INT64_MAX: unset it).  Alarms
 * with the same time ring in the order in which they were set. */
static void alarm_move(zke *z, alarm_call *a, int64_t at) {
  alarm_call **link = &z->alarm_first;
  while (*link && *link != a) link = &(*link)->next;
  if (*link) *link = a->next;
  a->at = at;
  link = &z->alarm_first;
  while (*link && (*link)->at <= at) link = &(*link)->next;
  if (at != INT64_MAX) {
    a->next = *link;
    *link = a;
  }
  atomic_store(&z->alarm_at, z->alarm_first ? z->alarm_first->at : INT64_MAX);
  carrier_sooner_m(z, atomic_load(&z->alarm_at));
}

/* Set the alarm of a pair.  *sooner: the first alarm of all is now earlier than
 * it was.  A time in the past becomes now.  Otherwise an alarm that is set
 * again and again would stand before the ones already due, and they would never
 * ring. */
static int alarm_set(zke *z, zke_watch_fn fn, void *context, int64_t at,
                     bool *sooner) {
  at = base_max(at, host_now(z->s));
  pthread_mutex_lock(&z->s->m);
  alarm_call *a = watcher_need_keyed(z, &z->alarms, fn, context, sizeof *a);
  int64_t before = atomic_load(&z->alarm_at);
  if (a) alarm_move(z, a, at);
  *sooner = atomic_load(&z->alarm_at) < before;
  pthread_mutex_unlock(&z->s->m);
  return a ? ZKE_OK : base_nomem();
}

/* Count the due alarms.  Usually there are none, and then no lock is taken. */
static int alarm_count_due(zke *z, int64_t now) {
  int count = 0;
  if (atomic_load(&z->alarm_at) > now) return 0;
  pthread_mutex_lock(&z->s->m);
  for (const alarm_call *a = z->alarm_first; a && a->at <= now; a = a->next)
    count++;
  pthread_mutex_unlock(&z->s->m);
  return count;
}

/* Get the call of the first alarm that is due; false: none is.  The alarm is
 * unset before the call, so that the call may set it again. */
static bool alarm_take(zke *z, int64_t now, watcher_call *call) {
  pthread_mutex_lock(&z->s->m);
  alarm_call *a = z->alarm_first;
  bool due = a && a->at <= now;
  if (due) {
    call->fn = a->key.fn;
    call->context = a->key.context;
    alarm_move(z, a, INT64_MAX);
  }
  pthread_mutex_unlock(&z->s->m);
  return due;
}

/* Add the calls of the alarms that are set to what watcher_collect_all() has
 * collected, each call once.  A pair with an alarm is told of the session's
 * end, like a pair with a watch. */
static void alarm_list(zke *z, buf *calls) {
  pthread_mutex_lock(&z->s->m);
  for (const alarm_call *a = z->alarm_first; a; a = a->next) {
    const watcher_pair *pair = watcher_find_pair(z, a->key.fn, a->key.context);
    bool listed = pair && pair->listed == z->listing;
    bool own = a->key.fn == z->watcher && a->key.context == z->watcher_context;
    if (!listed && !own) watcher_add_call(calls, a->key.fn, a->key.context);
  }
  pthread_mutex_unlock(&z->s->m);
}

/* Remove the alarm of a pair, set or not. */
static void alarm_forget(zke *z, zke_watch_fn fn, const void *context) {
  pthread_mutex_lock(&z->s->m);
  alarm_call *a = watcher_find_keyed(&z->alarms, fn, context);
  if (a) {
    alarm_move(z, a, INT64_MAX);
    watcher_free_item(&z->alarms, &a->key.item);
  }
  pthread_mutex_unlock(&z->s->m);
}

/* Free all alarms of a session.  All calls on it have ended. */
static void alarm_free(zke *z) {
  for (size_t i = 0; i < z->alarms.cap; i++) {
    while (z->alarms.at[i]) watcher_free_item(&z->alarms, z->alarms.at[i]);
  }
  mem_free(z->alarms.at);
}

/* ======================================================================
 * role_: which thread dispatches (private)
 *
 * One thread at a time has the dispatcher role of a carrier, and dispatches all
 * of its sessions.  Other threads that wait for one of these sessions sleep
 * until that thread has called a watcher of their session, or until they can
 * take over the role.
 *
 * A frame on the thread's stack says which session's watchers run.  A watcher
 * may make calls that dispatch again, so a thread may have several frames.  The
 * role is free when the thread has no frame of the carrier left.
 *
 * Start reading at role_take().
 * ==================================================================== */

/* The sessions that this thread is dispatching, innermost first: a callback may
 * dispatch again but not close.  The frames lie on the stacks of the calls that
 * dispatch. */
typedef struct role_frame {
  struct role_frame *outer;
  zke *z;
  bool served; /* by a call on another handle: counts as one on z */
} role_frame;

static _Thread_local role_frame *role_frames;

/* Is this thread inside a callback of the session? */
static bool role_is_inside(const zke *z) {
  const role_frame *f = role_frames;
  while (f && f->z != z) f = f->outer;
  return f != NULL;
}

/* Does this thread have the role of the carrier?  A frame of any session of the
 * carrier will do: the role is the carrier's. */
static bool role_is_ours(const struct carrier *c) {
  const role_frame *f = role_frames;
  while (f && f->z->c != c) f = f->outer;
  return f != NULL;
}

/* Take the role unless another thread has it.  A thread in a callback has it
 * already, and takes it once more. */
static bool role_take(zke *z, role_frame *frame) {
  if (z->c->dispatching && !role_is_ours(z->c)) return false;
  z->c->dispatching = true;
  frame->outer = role_frames;
  frame->z = z;
  frame->served = false;
  role_frames = frame;
  return true;
}

/* Give the role back, and wake the threads that wait for it.  In a child forked
 * in a callback only the frame goes: lock and role are the parent's. */
static void role_release(zke *z, const role_frame *frame) {
  role_frames = frame->outer;
  if (fork_is_copy(z->s)) return;
  if (!role_is_ours(z->c)) z->c->dispatching = false;
  lock_signal(z->s, &z->c->done);
}

/* ======================================================================
 * notice_: notices of death (private)
 *
 * If a watcher waits for the death of an owner, the watcher's carrier keeps a
 * writing end of the owner's FIFO.  When the owner's process has ended, the
 * kernel reports that the FIFO has no reader, and the owner is probed (P6).  If
 * it is dead, its sessions are ended here.
 *
 * A notice may be lost, or there may be no room for it.  The sweep finds the
 * dead session all the same, but later.
 *
 * Start reading at notice_watch_owner(), then notice_take_all().
 * ==================================================================== */

/* Close a notice's descriptor.  The notice stays, so its owner is probed. */
static void notice_close(struct carrier *c, notice *n) {
  if (n->fd < 0) return;
  if (c->poller >= 0)
    c->s->os.poller_remove(c->s->os.context, c->poller, n->fd);
  fd_close(c->s, &n->fd);
  c->s->notices--;
}

/* Make room for one more notice.  Without memory (NULL) the sweep finds the
 * death. */
static notice *notice_new(struct carrier *c) {
  if (c->notice_count == c->notice_cap) {
    size_t cap = c->notice_cap ? c->notice_cap * 2 : 4;
    notice *at = mem_resize(&c->s->a, c->notices, cap * sizeof *at);
    if (!at) return NULL;
    c->notices = at;
    c->notice_cap = cap;
  }
  return &c->notices[c->notice_count++];
}

/* Is there a notice of this owner already? One serves all sessions of the
 * carrier. */
static bool notice_exists(const struct carrier *c, int64_t owner) {
  for (size_t i = 0; i < c->notice_count; i++) {
    if (c->notices[i].owner == owner) return true;
  }
  return false;
}

/* Have the kernel report the death of an owner, which is named by its carrier:
 * a writing end of the FIFO gets an error when its reader is gone (P6).  The
 * caller has put the watch into the file; an owner that has died before is
 * probed at the next dispatch.  False: there is no notice.  Either none is
 * needed, as the owner belongs to this store, or the store has as many as it
 * may, or this failed; then the sweep finds the death. */
static bool notice_watch_owner(zke *z, int64_t owner) {
  store *s = z->s;
  struct carrier *c = z->c;
  if (s->memory || life_find_carrier(s, owner)) return false;
  if (notice_exists(c, owner)) return true;
  if (s->notices >= s->notice_limit) return false;
  int fd = wake_open(s, owner);
  bool gone = fd == -ENXIO || fd == -ENOENT;
  if (fd < 0 && !gone) return false;
  notice *n = notice_new(c);
  if (!n) {
    fd_close(s, &fd);
    return false;
  }
  *n = (notice){.owner = owner, .fd = -1, .pause = ZKE_MS};
  if (!gone) {
    n->fd = fd;
    n->probe_at = INT64_MAX; /* until the kernel tells */
    s->notices++;
    if (c->poller >= 0) s->os.poller_add(s->os.context, c->poller, fd, 0);
  }
  if (gone || c->poller < 0) wake_self(z);
  return true;
}

enum { NOTICE_FAILING_MS = 20 }; /* for a dispatch, once an end fails */

/* End the sessions of a dead process's carrier, or detach the kept ones,
 * without waiting for the gate.  A session that fails, or is put off since it
 * failed before, does not stop the others, unless they would fail for the same
 * reason.  Once one has failed, this stops after NOTICE_FAILING_MS.  The next
 * call does the rest, with the failed ones put off.  *left: some have not
 * ended.  Returns the last failure. */
static int notice_end_carried(store *s, int64_t carrier, bool *left) {
  buf sessions = {.a = &s->a};
  size_t n;
  bool ended;
  int rc = sess_list_carried(s, carrier, &sessions);
  const int64_t *session = buf_ints(&sessions, &n);
  int64_t until = base_later(host_now(s), NOTICE_FAILING_MS * ZKE_MS);
  *left = rc != ZKE_OK;
  if (rc != ZKE_OK) n = 0;
  for (size_t i = 0; i < n; i++) {
    bool waits = end_is_put_off(s, session[i]);
    int one = ZKE_OK;
    if (!waits) one = end_session(s, session[i], NULL, SESS_DEAD, true, &ended);
    if (waits || one != ZKE_OK) *left = true;
    if (one != ZKE_OK) rc = one;
    if (end_is_delayed(one) || health_needs_recovery(s)) break;
    if (rc != ZKE_OK && host_now(s) >= until) break;
  }
  buf_free(&sessions);
  return rc;
}

enum { NOTICE_BUSY_MS = 16 }; /* longest pause between tries for the gate */

/* The owner's FIFO has hung up, or there was none: is the owner dead?  If not
 * yet (the kernel releases files one by one), probe it again, with longer and
 * longer pauses.  If only the gate was busy, try again soon; these pauses grow
 * slowly, since the gate's holder may be stopped.  True: the notice has done
 * its work. */
static bool notice_probe_owner(store *s, notice *n, int64_t now) {
  bool busy = false, left;
  enum life_state life = life_look(s, n->owner, 0);
  life_forget(s);
  bool dead = life == LIFE_FREE || life == LIFE_REMOVED;
  if (dead) {
    int rc = notice_end_carried(s, n->owner, &left);
    if (!left) return true;
    busy = end_is_delayed(rc);
  }
  if (busy && !n->busy) n->pause = ZKE_MS;
  n->busy = busy;
  n->probe_at = now + n->pause;
  n->pause = busy ? base_min(n->pause + n->pause / 8, NOTICE_BUSY_MS * ZKE_MS)
                  : base_min(n->pause * 2, TICK_PLAIN);
  return false;
}

/* Poll for notices that have come, and make each of these due. */
static void notice_poll(struct carrier *c) {
  struct pollfd fds[32];
  for (size_t from = 0; from < c->notice_count; from += 32) {
    size_t n = c->notice_count - from < 32 ? c->notice_count - from : 32;
    for (size_t i = 0; i < n; i++)
      fds[i] = (struct pollfd){c->notices[from + i].fd, 0, 0};
    if (c->s->os.poll(c->s->os.context, fds, (unsigned)n, 0) <= 0) continue;
    for (size_t i = 0; i < n; i++) {
      if (fds[i].fd < 0 || !fds[i].revents) continue;
      notice_close(c, &c->notices[from + i]);
      c->notices[from + i].probe_at = 0;
    }
  }
}

/* Probe the owners of notices that have come or are due again, and drop the
 * notices that are done or not needed any more.  From the last to the first,
 * since the last one takes the place of a dropped one. */
static void notice_take_all(struct carrier *c, int64_t now) {
  notice_poll(c);
  for (size_t i = c->notice_count; i-- > 0;) {
    notice *n = &c->notices[i];
    if (n->refs <= 0 ||
        (n->probe_at <= now && notice_probe_owner(c->s, n, now))) {
      notice_close(c, n);
      *n = c->notices[--c->notice_count];
    }
  }
}

/* ======================================================================
 * event_: events, from the file into the session's queue (private)
 *
 * An event is a row that the transaction of a change has added for each session
 * that watches.  A dispatch copies the rows after the session's cursor into the
 * queue in memory, in their order.  The rows stay in the file until the session
 * removes them: with its next change, or by event_trim().
 *
 * A read without locks may see half of a commit.  Then the queue is emptied,
 * the cursor is set back, and the read is repeated (db_read_stands()).
 *
 * Start reading at event_fetch().
 * ==================================================================== */

enum { EVENT_BATCH = 64 }; /* SQL_BATCH */

/* May the session see an event of a node that had this ACL?  Its present
 * identities decide: a session that has lost an identity is not told of earlier
 * changes, either. */
static bool event_may_see(const zke *z, const char *acl) {
  return acl_allows(&z->who, acl, ZKE_PERM_READ);
}

/* The event's path without the handle's chroot.  A path outside of the chroot
 * is shown in full: then the argument itself is returned. */
static const char *event_visible_path(const zke *z, const char *path) {
  const char *below = path + z->chroot_len;
  if (!z->chroot_len || strncmp(path, z->chroot, z->chroot_len) != 0 ||
      (*below && *below != '/')) {
    return path;
  }
  return *below ? below : "/";
}

/* Read the texts of a row of SQL_EVENT_NEXT: the path, and the ACL or NULL.
 * False if memory ran out: a missing text must not pass for the root, or for
 * the open ACL. */
static bool event_texts(sqlite3_stmt *st, const char **path, const char **acl) {
  bool whole = true;
  *path = sql_read_text(st, 2, &whole);
  *acl = sql_read_text(st, 4, &whole);
  return whole && *path;
}

/* Make an event, with its path and its ACL (which may be NULL), in one block of
 * its own.  NULL without memory. */
static event *event_make(const zke *z, int type, int64_t zxid, const char *path,
                         const char *acl) {
  size_t len = strlen(path) + 1, acl_len = acl ? strlen(acl) + 1 : 0;
  event *e = mem_zero(&z->s->a, sizeof *e + len + acl_len);
  if (!e) return NULL;
  e->type = type;
  e->zxid = zxid;
  memcpy(e->path, path, len);
  if (acl) e->acl = memcpy(e->path + len, acl, acl_len);
  return e;
}

/* Copy the statement's row into the queue, and move the cursor past it.  This
 * is why a read that must be repeated sets the cursor back. */
static int event_read(zke *z, sqlite3_stmt *st) {
  const char *path, *acl;
  if (!event_texts(st, &path, &acl)) return base_nomem();
  event *e = event_make(z, sqlite3_column_int(st, 1),
                        sqlite3_column_int64(st, 3), path, acl);
  if (!e) return base_nomem();
  *z->queue_end = e;
  z->queue_end = &e->next;
  z->cursor = sqlite3_column_int64(st, 0);
  return ZKE_OK;
}

/* Drop the events that were read but not delivered.  Their rows stay, unless
 * the session has ended. */
static void event_clear_queue(zke *z) {
  for (event *e = z->queue, *next; e; e = next) {
    next = e->next;
    mem_free(e);
  }
  z->queue = NULL;
  z->queue_end = &z->queue;
}

SQL_STATEMENT(
    EVENT_NEXT,
    "SELECT seq,type,path,zxid,acl FROM zkembed_event WHERE session=:session "
    "AND seq>:seen ORDER BY seq LIMIT " SQL_BATCH);

/* Read the next events into the queue, at most EVENT_BATCH.  Then read the
 * session's carrier, which tells whether the session is still this handle's: an
 * end removes the events, too. */
static int event_read_batch(zke *z, int *count, int64_t *carrier) {
  int rc;
  bool row = true;
  sqlite3_stmt *st = sql_statement(z->s, SQL_EVENT_NEXT, &rc);
  *count = 0;
  if (!st) return rc;
  sql_bind_int(st, 1, ":session", z->id);
  sql_bind_int(st, 2, ":seen", z->cursor);
  while (rc == ZKE_OK && row) {
    rc = sql_step(z->s, st, &row);
    if (rc == ZKE_OK && row) rc = event_read(z, st);
    *count += row;
  }
  if (row) sqlite3_reset(st);
  return rc == ZKE_OK ? sess_read_carrier(z->s, z->id, carrier) : rc;
}

/* Fill the queue, which is empty.  *full: there may be more.  If nothing was
 * committed since all was read, there are no events, and the file is not read.
 * A read without locks that has seen half of a commit is discarded and
 * repeated. */
static int event_fetch(zke *z, bool *full) {
  REQUIRE(LOCK_HELD(z->s));
  int rc, count;
  int64_t from = z->cursor, carrier = TXN_NO_ROW;
  *full = false;
  if (db_read_holds(z->s, z->fetched)) return ZKE_OK;
  for (;;) {
    rc = db_begin_read(z->s);
    if (rc != ZKE_OK) return rc;
    rc = event_read_batch(z, &count, &carrier);
    if (db_read_stands(z->s)) break;
    event_clear_queue(z);
    z->cursor = from;
  }
  if (rc != ZKE_OK) return rc;
  bool stands = txn_session_stands(z, carrier) == ZKE_OK;
  *full = count >= EVENT_BATCH;
  z->fetched = *full ? 0 : z->s->index.number;
  if (stands) z->row_era = z->s->index.era;
  return ZKE_OK;
}

/* Changes nothing: the transaction itself removes the delivered events.  A
 * session that only reads needs this, since they count as pending. */
static int event_trim_body(txn *t, void *arg) {
  (void)t, (void)arg;
  return ZKE_OK;
}

/* Remove delivered events from the file, unless a change of the session has
 * removed them already.  Never waits for the gate.  A failure does not matter:
 * the next dispatch tries again.  Delivered rows count as pending for
 * event_limit, so the bound is at most half of that. */
static void event_trim(zke *z) {
  int64_t most = base_min(ZKE_TRIM_EVENTS, z->event_limit / 2);
  if (z->cursor - z->trimmed > most)
    txn_try(z->s, z, TXN_NORMAL, event_trim_body, NULL);
}

/* ======================================================================
 * deliver_: calling watchers (private)
 *
 * Calls the watchers of a session: about its events in the order of their
 * zxids, about its end, and at the time of its alarms.  No lock is held in the
 * calls.  The store's mutex guards the list of calls that are still to be made,
 * so that zke_forget() can cancel one.
 *
 * An event leaves the queue, and its one-shot watchers are removed, before the
 * calls are made.  Without memory for the calls, everything stays for the next
 * dispatch.
 *
 * A watcher may do anything but close the handle.  If it forks, the child
 * leaves the call immediately.  If it ends its thread, deliver_leave_callback()
 * releases what the call holds.
 *
 * Start reading at deliver_all(), then deliver_call().
 * ==================================================================== */

/* The session's state for callers: ZKE_STATE_… */
static int deliver_state(const zke *z) {
  if (z->s->readonly) return ZKE_STATE_READONLY;
  if (z->state == SESS_ALIVE) return ZKE_STATE_CONNECTED;
  if (z->state == SESS_MOVED) return ZKE_STATE_MOVED;
  return z->state == SESS_AUTH_FAILED ? ZKE_STATE_AUTH_FAILED
                                      : ZKE_STATE_EXPIRED;
}

/* The calls about one event, on the stack of the thread that makes them;
 * changed under the store's mutex.  A call that was made or cancelled has no
 * fn. */
typedef struct deliver_calls {
  struct deliver_calls *outer;
  zke *z;
  event *e; /* what they are about; NULL: the session's end */
  watcher_call *calls;
  size_t count, next; /* calls[next - 1] is running */
  int type, state;    /* what they are told */
  const char *path;
  int made;
} deliver_calls;

/* A watcher has run: make every zke_wait() of the handle return.  The caller
 * holds the store's mutex. */
static void deliver_count_turn(zke *z) {
  atomic_fetch_add(&z->turn, 1);
  pthread_cond_broadcast(&z->c->done);
}

/* Make the next call, unless it was cancelled.  zke_forget() of another thread
 * looks under the same mutex: it either cancels the call, or finds it running
 * and waits for it. */
static void deliver_call_next(deliver_calls *b) {
  zke *z = b->z;
  pthread_mutex_lock(&z->s->m);
  watcher_call call = b->calls[b->next++];
  pthread_mutex_unlock(&z->s->m);
  if (!call.fn) return;
  call.fn(z, b->type, b->state, b->path, call.context);
  if (fork_is_copy(z->s)) return;
  pthread_mutex_lock(&z->s->m);
  b->calls[b->next - 1].fn = NULL;
  deliver_count_turn(z);
  pthread_mutex_unlock(&z->s->m);
  b->made++;
}

/* A callback has ended its thread instead of returning: release what its call
 * holds, above all the role.  The other calls about the event are not made. */
static void deliver_leave_callback(void *arg) {
  deliver_calls *b = arg;
  zke *z = b->z;
  if (fork_is_copy(z->s)) return;
  lock_take(z->s, INT64_MAX);
  if (b->e && b->next < b->count) /* some watcher will not be told of it */
    z->silent = base_int32((int64_t)z->silent + 1);
  z->calling = b->outer;
  mem_free(b->e);
  mem_free(b->calls);
  pthread_mutex_lock(&z->s->m);
  deliver_count_turn(z);
  pthread_mutex_unlock(&z->s->m);
  wake_self(z); /* for what is not delivered yet */
  if (role_frames->served) {
    role_frames = role_frames->outer;
    lock_uncount_call(z->s, z);
  }
  z = role_frames->z; /* the handle of the call that dispatches */
  role_release(z, role_frames);
  lock_drop_call(z->s, z);
  os_cancel_back();
}

/* Make the calls, with no lock held.  None is made once the handle is being
 * closed; a forked child makes none of its parent's. */
static void deliver_call_all(deliver_calls *b) {
  pthread_cleanup_push(deliver_leave_callback, b);
  while (b->next < b->count && !atomic_load(&b->z->closing) &&
         !fork_is_copy(b->z->s)) {
    deliver_call_next(b);
  }
  pthread_cleanup_pop(0);
}

/* Make the calls about an event, or about the session's end if e is NULL.  The
 * thread's limit (zke_limit()) does not apply in them.  ZKE_FORKED: a call has
 * forked, and this is the child.  Then the lock is not held, and nothing of the
 * handle may be touched. */
static int deliver_call(zke *z, const buf *calls, event *e, int *count) {
  deliver_calls b = {.outer = z->calling,
                     .z = z,
                     .e = e,
                     .calls = (watcher_call *)(void *)calls->data,
                     .count = calls->len / sizeof(watcher_call),
                     .type = e ? e->type : ZKE_EVENT_SESSION,
                     .state = deliver_state(z),
                     .path = e ? event_visible_path(z, e->path) : ""};
  if (!b.count) return ZKE_OK;
  lock_bound bound = lock_limit;
  lock_limit.z = NULL; /* it limits the call, not the callbacks */
  z->calling = &b;
  lock_drop(z->s);
  deliver_call_all(&b);
  lock_limit = bound;
  if (fork_is_copy(z->s)) return ZKE_FORKED;
  lock_take(z->s, INT64_MAX);
  z->calling = b.outer;
  *count += b.made;
  return ZKE_OK;
}

/* Cancel the calls of a pair that are still to be made.  True: none is running
 * on another thread.  False: one was, and this has waited, without the lock,
 * until a call of the carrier ended.  The check and the start of the wait are
 * one step under the mutex, and a call ends under it.  So the wait cannot miss
 * the end of the last call. */
static bool deliver_take_back(zke *z, zke_watch_fn fn, const void *context) {
  bool quiet = true;
  pthread_mutex_lock(&z->s->m);
  for (const deliver_calls *b = z->calling; b; b = b->outer) {
    for (size_t i = b->next ? b->next - 1 : 0; i < b->count; i++) {
      if (b->calls[i].fn != fn || b->calls[i].context != context) continue;
      if (i + 1 == b->next)
        quiet = role_is_inside(z);
      else
        b->calls[i].fn = NULL;
    }
  }
  if (!quiet) lock_wait_m(z->s, &z->c->done);
  pthread_mutex_unlock(&z->s->m);
  return quiet;
}

/* Deliver the first event of the queue; ZKE_NOMEM leaves it there, with its
 * watchers.  One-shots are removed before the calls, so that a callback may set
 * the same watch again. */
static int deliver_event(zke *z, int *count) {
  buf calls = {.a = &z->s->a};
  event *e = z->queue;
  watcher_collect(z, e, &calls);
  if (calls.failed) {
    buf_free(&calls);
    return base_nomem();
  }
  watcher_consume(z, e);
  if (!event_may_see(z, e->acl)) { /* used up silently (semantics.md 5.8) */
    calls.len = 0;
    z->silent = base_int32((int64_t)z->silent + 1);
  }
  z->queue = e->next;
  if (!z->queue) z->queue_end = &z->queue;
  int rc = deliver_call(z, &calls, e, count);
  mem_free(e);
  buf_free(&calls);
  return rc;
}

/* Deliver the first event of z->fired, which a watcher had missed when it was
 * set; ZKE_NOMEM leaves it there.  As in ZooKeeper, permissions are not
 * checked. */
static int deliver_fired(zke *z, int *count) {
  const watcher_fired *f = z->fired;
  watcher *w = f->w;
  watcher_spot *spot = w->spot;
  buf calls = {.a = &z->s->a};
  int rc = ZKE_OK;
  event *e = event_make(z, f->type, w->zxid, spot->path, NULL);
  watcher_add_call(&calls, w->pair->key.fn, w->pair->key.context);
  if (!e || calls.failed) {
    rc = base_nomem();
  } else {
    watcher_remove(z, w);
    watcher_drop_spot(z, spot);
    rc = deliver_call(z, &calls, e, count);
  }
  mem_free(e);
  buf_free(&calls);
  return rc;
}

/* Tell all watchers, once, that the session has ended.  Events that were not
 * delivered are dropped: if they stayed, the session would seem to have work
 * forever.  Without memory no watcher is called, and the next dispatch tries
 * again. */
static int deliver_end(zke *z, int *count) {
  buf calls = {.a = &z->s->a};
  event_clear_queue(z);
  watcher_collect_all(z, &calls);
  alarm_list(z, &calls);
  if (calls.failed) {
    buf_free(&calls);
    return base_nomem();
  }
  /* drop these events with their watchers, which wait for nothing else */
  while (z->fired) {
    watcher *w = z->fired->w;
    watcher_spot *spot = w->spot;
    watcher_remove(z, w);
    watcher_drop_spot(z, spot);
  }
  z->end_untold = false;
  int rc = deliver_call(z, &calls, NULL, count);
  buf_free(&calls);
  return rc;
}

/* Make the call of the first alarm that is due.  Memory is allocated first, so
 * ZKE_NOMEM leaves the alarm set. */
static int deliver_alarm(zke *z, int64_t now, int *count) {
  buf calls = {.a = &z->s->a};
  event *e = event_make(z, ZKE_EVENT_ALARM, 0, "", NULL);
  int rc = ZKE_OK;
  watcher_add_call(&calls, NULL, NULL);
  if (!e || calls.failed) {
    rc = base_nomem();
  } else if (alarm_take(z, now, (watcher_call *)(void *)calls.data)) {
    rc = deliver_call(z, &calls, e, count);
  }
  mem_free(e);
  buf_free(&calls);
  return rc;
}

/* Make the calls of the alarms that are due now.  An alarm that is set again
 * meanwhile, even to a past time, waits for the next dispatch. */
static int deliver_alarms(zke *z, int64_t now, int *count) {
  int rc = ZKE_OK;
  for (int left = alarm_count_due(z, now); left > 0 && rc == ZKE_OK; left--) {
    if (z->state != SESS_ALIVE || atomic_load(&z->closing)) break;
    rc = deliver_alarm(z, now, count);
  }
  return rc;
}

enum { DELIVER_BATCHES = 16 }; /* of events, in one dispatch */

/* What a dispatch should deliver, and its results. */
typedef struct deliver_progress {
  int64_t zxid; /* deliver events up to this one; INT64_MAX: all */
  int count;    /* watchers called */
  bool more;    /* an event is left */
  int batches;  /* of events that were read for this session */
  int rc;       /* the first failure, and its sentence */
  char why[BASE_SENTENCE];
} deliver_progress;

/* Do the next step of a delivery: tell the session's end, read a batch of
 * events from the file, or deliver one event.  False: nothing is left, or, with
 * p->more, the rest waits for another dispatch.  Unless a zxid bounds it, a
 * dispatch reads at most DELIVER_BATCHES batches, lest a fast writer keep the
 * caller here. */
static bool deliver_next(zke *z, deliver_progress *p, int *rc) {
  if (z->end_untold) {
    *rc = deliver_end(z, &p->count);
    return true;
  }
  if (!z->queue && z->unread && z->state == SESS_ALIVE) {
    p->more = p->zxid == INT64_MAX && p->batches++ == DELIVER_BATCHES;
    if (!p->more) *rc = event_fetch(z, &z->unread);
    return !p->more;
  }
  /* events come from two places: the list z->fired, which zke_set_watch()
   * fills, and the queue */
  int64_t queued = z->queue ? z->queue->zxid : INT64_MAX;
  /* an overflow replaced older events, perhaps of changes up to the bound */
  if (z->queue && z->queue->type == ZKE_EVENT_OVERFLOW)
    queued = base_min(queued, p->zxid);
  bool fired = z->fired && z->state == SESS_ALIVE && z->fired->w->zxid < queued;
  int64_t next = fired ? z->fired->w->zxid : queued;
  p->more = next > p->zxid && next < INT64_MAX;
  if (p->more || next == INT64_MAX) return false;
  *rc = fired ? deliver_fired(z, &p->count) : deliver_event(z, &p->count);
  return true;
}

/* Deliver the events of a session.  If a zxid bounds them, all events up to it
 * are delivered, as the caller relies on that.  The session's end is told
 * whatever the bound is: no event follows it. */
static int deliver_all(zke *z, deliver_progress *p) {
  int rc = ZKE_OK;
  bool before = p->more; /* set for another session */
  p->more = false;
  p->batches = 0;
  z->unread = true;
  while (!atomic_load(&z->closing) && deliver_next(z, p, &rc) && rc == ZKE_OK) {
    continue;
  }
  /* for the next dispatch */
  if (p->more && rc != ZKE_FORKED && z->state == SESS_ALIVE) wake_self(z);
  p->more |= before;
  return rc;
}

/* ======================================================================
 * untold_: what the watchers have not been told (private)
 *
 * Lists the events of a path and its descendants that no watcher has been told
 * yet, as of the open transaction: events in running calls, in memory and in
 * the file.  zke_op_untold() asks for them.
 *
 * Start reading at untold_all().
 * ==================================================================== */

/* The events of a path and its descendants that the session's watchers have not
 * been told, in their order, and how many the session may not see. */
typedef struct untold_list {
  zke *z;
  const char *path;
  int most, count;
  bool unknown; /* there are more, or some were dropped */
  int32_t silent;
  buf paths;
} untold_list;

/* Add an event to the answer, if it is at or below the path and may be seen.
 * An overflow makes the answer unknown: it does not say what was dropped. */
static void untold_add(untold_list *u, int type, const char *path,
                       bool readable) {
  size_t len = strlen(u->path);
  bool below = strncmp(path, u->path, len) == 0 &&
               (len == 1 || !path[len] || path[len] == '/');
  if (type == ZKE_EVENT_OVERFLOW) u->unknown = true;
  if (!readable) u->silent = base_int32((int64_t)u->silent + 1);
  if (!below || !readable || type == ZKE_EVENT_OVERFLOW) return;
  if (u->count == u->most) {
    u->unknown = true;
    return;
  }
  buf_add_string(&u->paths, event_visible_path(u->z, path));
  u->count++;
}

/* Add a batch of the events after *cursor, as the open transaction sees them.
 * *rows: how many it has read. */
static int untold_batch(untold_list *u, int64_t *cursor, int *rows) {
  int rc;
  bool row = true;
  store *s = u->z->s;
  sqlite3_stmt *st = sql_statement(s, SQL_EVENT_NEXT, &rc);
  *rows = 0;
  if (!st) return rc;
  sql_bind_int(st, 1, ":session", u->z->id);
  sql_bind_int(st, 2, ":seen", *cursor);
  for (;;) {
    rc = sql_step(s, st, &row);
    if (rc != ZKE_OK || !row) return rc;
    const char *path, *acl;
    bool whole = event_texts(st, &path, &acl);
    *cursor = sqlite3_column_int64(st, 0);
    if (!whole) u->paths.failed = true; /* reported at the end */
    untold_add(u, sqlite3_column_int(st, 1), path ? path : "",
               whole && event_may_see(u->z, acl));
    ++*rows;
  }
}

/* Collect all untold events, as of the open transaction: in running calls, in
 * memory, in the file.  An event in a running call counts, since its watcher
 * may not have noted it yet. */
static int untold_all(untold_list *u) {
  int rc = ZKE_OK, rows = EVENT_BATCH;
  int64_t cursor = u->z->cursor;
  u->silent = u->z->silent;
  for (const deliver_calls *b = u->z->calling; b; b = b->outer) {
    if (b->e) untold_add(u, b->e->type, b->e->path, true);
  }
  for (const watcher_fired *f = u->z->fired; f; f = f->next)
    untold_add(u, f->type, f->w->spot->path, true);
  for (const event *e = u->z->queue; e; e = e->next)
    untold_add(u, e->type, e->path, event_may_see(u->z, e->acl));
  while (rc == ZKE_OK && rows >= EVENT_BATCH && !u->unknown)
    rc = untold_batch(u, &cursor, &rows);
  return rc == ZKE_OK && u->paths.failed ? base_nomem() : rc;
}

/* ======================================================================
 * light_: light sessions that have something to be told (private)
 *
 * A dispatch does not look at each light session of its carrier.  One statement
 * finds the sessions with events since the last look, and a counter in the meta
 * row tells whether another process has ended or taken one.  These sessions
 * become ready (carrier_ready()), and the dispatch serves the ready ones.
 *
 * Start reading at light_find().
 * ==================================================================== */

SQL_STATEMENT(
    EVENT_CARRIED,
    "SELECT DISTINCT session FROM zkembed_event WHERE carrier=:carrier AND "
    "carrier<>0 AND zxid>:looked");

/* Collect the carrier's sessions that have events of changes after the last
 * look.  Events are indexed by carrier and zxid, so sessions without new events
 * cost nothing. */
static int light_read_told(const struct carrier *c, buf *out) {
  int rc;
  sqlite3_stmt *st = sql_statement(c->s, SQL_EVENT_CARRIED, &rc);
  if (!st) return rc;
  sql_bind_int(st, 1, ":carrier", c->id);
  sql_bind_int(st, 2, ":looked", c->looked);
  return sql_collect_ints(c->s, st, out);
}

/* Light sessions were ended, or attached elsewhere: find those of this carrier
 * whose handles do not know it yet.  They learn it when they are served, since
 * each reads its row then. */
static int light_read_lost(const struct carrier *c, buf *out) {
  buf rows = {.a = &c->s->a};
  size_t n, at = 0;
  int rc = sess_list_carried(c->s, c->id, &rows);
  const int64_t *row = buf_ints(&rows, &n);
  for (size_t i = 0; i < c->s->session_count && rc == ZKE_OK; i++) {
    const zke *z = c->s->sessions[i];
    if (z->c != c || z->state != SESS_ALIVE) continue;
    while (at < n && row[at] < z->id) at++;
    if (at == n || row[at] != z->id) buf_add_int(out, z->id);
  }
  buf_free(&rows);
  return rc == ZKE_OK && out->failed ? base_nomem() : rc;
}

/* Make the light sessions ready that have events, or were lost, since the last
 * look.  If nothing was committed since then, the file is not read. */
static int light_find(struct carrier *c) {
  store *s = c->s;
  int64_t meta[3] = {0};
  buf found = {.a = &s->a};
  size_t n;
  int rc;
  if (!c->due_count || health_is_broken(s)) return ZKE_OK;
  if (health_is_replaced(s)) return ZKE_OK; /* its files may be the program's */
  if (db_read_holds(s, c->fetched)) return ZKE_OK;
  do {
    found.len = 0;
    rc = db_begin_read(s);
    if (rc != ZKE_OK) break;
    rc = sql_fetch_ints(s, SQL_META, 0, 3, meta);
    if (rc == ZKE_OK) rc = light_read_told(c, &found);
    if (rc == ZKE_OK && meta[2] != c->lost) rc = light_read_lost(c, &found);
  } while (!db_read_stands(s));
  const int64_t *session = buf_ints(&found, &n);
  for (size_t i = 0; i < n && rc == ZKE_OK; i++) {
    zke *z = life_find_own(s, session[i]);
    if (z) carrier_ready(z);
  }
  buf_free(&found);
  if (rc != ZKE_OK) return rc;
  c->looked = meta[0];
  c->lost = meta[2];
  c->fetched = s->index.number;
  return ZKE_OK;
}

/* ======================================================================
 * dispatch_: one dispatch, and when the next is due (private)
 *
 * A dispatch looks after the store first: recovery, notices of death, the
 * sweep.  Then it serves the session that the carrier was made for, and the
 * light sessions that are ready.  Each gets its events before its alarms.
 * Serving a session in a call on another handle counts as a call on its own
 * handle (`served`, role_).  A failure is noted and does not stop the dispatch,
 * which returns the first one.
 *
 * Watchers make calls, which set the store's deadline and its caller.  So code
 * after a watcher must set its own deadline.
 *
 * dispatch_deadline() says when a carrier must be dispatched next.  The timer
 * behind zke_fd() is set to that time (dispatch_arm()).
 *
 * Start reading at dispatch_carrier().
 * ==================================================================== */

/* ---- deadlines ---- */

/* When must a carrier be dispatched next, in monotonic ns?  INT64_MAX: never.
 * This is the earliest time of what its sessions need, of the tick if something
 * relies on it, of the notices to probe, and of a recovery that is due.  A
 * session inside zke_wait() always ticks. */
static int64_t dispatch_deadline(struct carrier *c, bool waiting) {
  store *s = c->s;
  const zke *own = c->own;
  int64_t at = INT64_MAX;
  if (own) at = own->end_untold ? 0 : carrier_due_at(own);
  at = base_min(at, carrier_first_due(c));
  if (!carrier_lives(c)) return at;
  bool lease = own && own->lease;
  if (waiting || c->watcher_count || c->kept_count || lease || sweep_is_ours(s))
    at = base_min(at, c->tick_at);
  for (size_t i = 0; i < c->notice_count; i++)
    at = base_min(at, c->notices[i].probe_at);
  if (health_needs_recovery(s)) at = base_min(at, s->recover_at);
  return at;
}

/* Set the timer behind zke_fd(), unless it has that time already.  0 would
 * disarm it, so a time in the past becomes 1. */
static void dispatch_arm_carrier(struct carrier *c) {
  if (c->timer < 0) return;
  int64_t at = dispatch_deadline(c, false);
  if (at == INT64_MAX)
    at = 0;
  else if (at <= 0)
    at = 1;
  if (at == c->timer_at) return;
  c->timer_at = at;
  c->s->os.timer_set(c->s->os.context, c->timer, at);
}

/* The same for the carrier of a session. */
static void dispatch_arm(const zke *z) { dispatch_arm_carrier(z->c); }

/* The store owes a sweep: set the timers of all its carriers, as any of their
 * descriptors may be the one that the program polls. */
static void dispatch_arm_all(const store *s) {
  for (size_t i = 0; i < s->session_count; i++) {
    const zke *z = s->sessions[i];
    if (z->c->own == z) dispatch_arm(z);
  }
  for (struct carrier *c = s->carriers; c; c = c->next) dispatch_arm_carrier(c);
}

/* ---- a dispatch ---- */

/* Note the first failure of a dispatch, with its sentence: the steps and
 * watchers that follow may set other sentences.  Returns rc. */
static int dispatch_note(deliver_progress *p, int rc) {
  if (rc == ZKE_OK || p->rc != ZKE_OK) return rc;
  p->rc = rc;
  base_save(p->why);
  return rc;
}

/* The result of a dispatch: its first failure, with its sentence. */
static int dispatch_outcome(const deliver_progress *p) {
  if (p->rc != ZKE_OK) base_restore(p->why);
  return p->rc;
}

/* Empty the FIFO before the events are read: a byte that comes later wakes the
 * session again. */
static void dispatch_drain(struct carrier *c) {
  char bytes[256];
  while (c->s->os.read(c->s->os.context, c->wake_rfd, bytes, sizeof bytes) ==
         (int64_t)sizeof bytes) {
    continue;
  }
}

/* Retry recovery without waiting, at most once per duty tick, since the others'
 * changes wait meanwhile.  A session that only waits needs this, too: it has to
 * end the dead sessions that it waits for. */
static void dispatch_recover(store *s, int64_t now) {
  int64_t deadline = s->deadline;
  if (!health_needs_recovery(s) || now < s->recover_at) return;
  s->recover_at = now + TICK_DUTY;
  s->deadline = 0;
  recover_store(s);
  s->deadline = deadline;
}

/* End a kept session if its timeout is over, unless an end has failed and is
 * put off.  If the transaction found nothing to end, and zke_touch() was not
 * called meanwhile, then the row is gone, or another handle has the session.  A
 * session in AUTH_FAILED learns this only here, since it reads no more. */
static void dispatch_end_overdue(zke *z, int64_t now) {
  bool ended;
  if (!carrier_is_timed(z) || carrier_time_left(z, now) >= 0) return;
  if (health_is_broken(z->s) || end_is_put_off(z->s, z->id)) return;
  int rc = end_session(z->s, z->id, z, SESS_TIMEOUT, true, &ended);
  if (rc == ZKE_OK && z->state == SESS_AUTH_FAILED)
    z->row_gone |= carrier_time_left(z, now) < 0;
}

/* Do the upkeep of one session.  This comes before its events, since a watcher
 * may run for long. */
static void dispatch_look_after(zke *z, int64_t now, bool waiting) {
  if (z->state == SESS_ALIVE) {
    lease_stamp(z);
    discard_try(z, now, waiting ? DISCARD_PATIENCE_MS : 0);
  }
  dispatch_end_overdue(z, now);
}

/* Deliver the events of one session, and ring its alarms.  A broken store
 * delivers the session's end, too, since nothing is read for that.  A failure
 * is noted, and returned. */
static int dispatch_serve(zke *z, int64_t now, deliver_progress *p) {
  int rc = ZKE_OK;
  if (z->end_untold || !health_is_broken(z->s))
    rc = dispatch_note(p, deliver_all(z, p));
  if (rc == ZKE_FORKED) return rc;
  int rung = dispatch_note(p, deliver_alarms(z, now, &p->count));
  if (rung == ZKE_FORKED) return rung;
  if (rc == ZKE_OK) rc = rung;
  if (z->state == SESS_ALIVE && rc == ZKE_OK && !atomic_load(&z->closing))
    event_trim(z);
  return rc;
}

/* Serve a session in a dispatch that was called on another handle.  This counts
 * as a call on the session's own handle, so that a thread that closes that
 * handle waits for it. */
static int dispatch_serve_other(zke *z, int64_t now, bool waiting,
                                deliver_progress *p) {
  store *s = z->s;
  role_frame frame = {.outer = role_frames, .z = z, .served = true};
  if (atomic_load(&z->closing)) return ZKE_OK;
  atomic_fetch_add(&z->calls, 1);
  role_frames = &frame;
  dispatch_look_after(z, now, waiting);
  int rc = dispatch_serve(z, now, p);
  role_frames = frame.outer;
  if (rc == ZKE_FORKED) return rc;
  carrier_schedule(z);
  if (rc != ZKE_OK || health_is_broken(s))
    carrier_retry(z, now);
  else if (z->end_untold || z->queue || z->fired)
    carrier_ready(z);
  lock_uncount_call(s, z);
  return rc;
}

/* Serve the light sessions that are ready now.  One that fails is tried again
 * soon, and does not stop the others.  ZKE_FORKED ends this; other failures are
 * noted. */
static int dispatch_serve_ready(struct carrier *c, int64_t now, bool waiting,
                                deliver_progress *p) {
  dispatch_note(p, light_find(c));
  carrier_ready_due(c, now);
  for (size_t left = carrier_count_ready(c); left > 0; left--) {
    zke *z = carrier_take_ready(c);
    if (!z) break;
    if (dispatch_serve_other(z, now, waiting, p) == ZKE_FORKED)
      return ZKE_FORKED;
  }
  return ZKE_OK;
}

/* Deliver the events of one light session up to a zxid, and serve no other:
 * events of the others stay, and so does what wakes them. */
static int dispatch_alone(zke *z, deliver_progress *p) {
  int64_t now = host_now(z->s);
  dispatch_recover(z->s, now);
  dispatch_look_after(z, now, false);
  if (dispatch_serve(z, now, p) == ZKE_FORKED) return ZKE_FORKED;
  carrier_schedule(z);
  dispatch_arm(z);
  return health_is_broken(z->s) ? recover_not_usable(z->s)
                                : dispatch_outcome(p);
}

/* Dispatch all sessions of the carrier of z.  The caller's thread has the role.
 * If z is not the session that the carrier was made for, that session is served
 * like a light one.  If the store is broken after dispatch_recover(), this is
 * noted, and events stay in the file.  Returns the first failure. */
static int dispatch_carrier(zke *z, bool waiting, deliver_progress *p) {
  store *s = z->s;
  struct carrier *c = z->c;
  int64_t now = host_now(s);
  int rc = ZKE_OK;
  dispatch_recover(s, now);
  if (health_is_broken(s)) dispatch_note(p, recover_not_usable(s));
  dispatch_drain(c);
  carrier_advance(c, now);
  if (c->own == z) dispatch_look_after(z, now, waiting);
  if (carrier_lives(c)) {
    notice_take_all(c, now);
    sweep_in_turn(c, now, waiting);
  }
  if (c->own == z)
    rc = dispatch_serve(z, now, p);
  else if (c->own)
    rc = dispatch_serve_other(c->own, now, waiting, p);
  if (rc != ZKE_FORKED && (c->ready || c->due_count))
    rc = dispatch_serve_ready(c, now, waiting, p);
  if (rc == ZKE_FORKED) return rc;
  dispatch_arm(z);
  return dispatch_outcome(p);
}

/* ======================================================================
 * wait_: waiting for something to dispatch (private)
 *
 * A thread that waits takes the role, then dispatches and sleeps in a loop,
 * until a watcher of the session was called (a turn) or the deadline has
 * passed.  While another thread has the role, it sleeps until that thread has
 * called a watcher or gives the role back.
 *
 * Three things wake a sleeping session: a byte in its FIFO, written by a
 * process that queues an event for it; an owner's FIFO that hangs up (notice_);
 * and its own deadline (dispatch_deadline()).  A byte or a notice may be lost.
 * They only save time: what they report is in the file, and the tick finds it
 * (P7).
 *
 * Start reading at wait_until().
 * ==================================================================== */

/* Prepare the statements that end a dead session, before a sleep: most sessions
 * run them only once, and preparing takes longer than running.  A statement
 * that fails here is prepared when it is needed. */
static void wait_prepare(store *s) {
  static const sql_text *const sql[] = {
      SQL_NODE_OWNED,         SQL_NODE_ROW,       SQL_NODE_REMOVE,
      SQL_NODE_CHILD_GONE,    SQL_NODE_SET_DUE,   SQL_NODE_NAMES,
      SQL_NODE_SET,           SQL_META_SET,       SQL_WATCH_AT,
      SQL_WATCH_DROP,         SQL_WATCH_END,      SQL_WATCH_BELOW,
      SQL_EVENT_BOUNDS,       SQL_EVENT_ADD,      SQL_EVENT_TRIM,
      SQL_EVENT_END,          SQL_SESSION_SEEN,   SQL_SESSION_END,
      SQL_SESSION_CARRIED_BY, SQL_SESSION_CARRIED};
  enum { COUNT = sizeof sql / sizeof sql[0] };
  int rc;
  for (int i = 0; i < COUNT; i++) sql_statement(s, sql[i], &rc);
}

/* A thread's sleep for a session, with the role and without the lock: all that
 * is needed to undo it when the thread is cancelled. */
typedef struct wait_sleeper {
  zke *z;
  struct pollfd *fds;
  struct pollfd few[8];
} wait_sleeper;

/* Release what wait_fds() has allocated for many descriptors. */
static void wait_free_fds(wait_sleeper *sleeper) {
  if (sleeper->fds != sleeper->few) mem_free(sleeper->fds);
}

/* The thread was cancelled in the sleep: leave the call as api_leave() does.
 * No event has been taken from the file, and another thread gets the role. */
static void wait_leave_sleep(void *arg) {
  wait_sleeper *sleeper = arg;
  zke *z = sleeper->z;
  lock_take(z->s, INT64_MAX);
  wait_free_fds(sleeper);
  role_release(z, role_frames);
  lock_drop_call(z->s, z);
  os_cancel_back();
}

/* The sleep itself, which is a cancellation point. */
static void wait_poll(wait_sleeper *sleeper, unsigned n, int timeout) {
  zke_os *os = &sleeper->z->s->os;
  pthread_cleanup_push(wait_leave_sleep, sleeper);
  os_cancel_allow();
  os->poll(os->context, sleeper->fds, n, timeout);
  os_cancel_forbid();
  pthread_cleanup_pop(0);
}

/* Fill the sleeper's fds with what wakes the session; returns how many. */
static unsigned wait_fds(zke *z, wait_sleeper *sleeper) {
  struct pollfd *fds = sleeper->few;
  size_t n = 1;
  const struct carrier *c = z->c;
  fds[0] = (struct pollfd){c->poller >= 0 ? c->poller : c->wake_rfd, POLLIN, 0};
  if (c->poller < 0 && c->notice_count) {
    size_t all = c->notice_count + 1;
    if (all > 8) fds = mem_resize(&z->s->a, NULL, all * sizeof *fds);
    if (!fds) {
      fds = sleeper->few; /* the sweep finds the deaths */
    } else {
      fds[0] = sleeper->few[0];
      for (; n < all; n++) fds[n] = (struct pollfd){c->notices[n - 1].fd, 0, 0};
    }
  }
  sleeper->fds = fds;
  return (unsigned)n;
}

/* Sleep in the kernel, with the lock dropped, until something comes or until
 * the deadline (monotonic ns).  Milliseconds are rounded up: a sleep that ended
 * just before its time would need another round. */
static void wait_sleep(zke *z, int64_t deadline) {
  store *s = z->s;
  if (z->c->notice_count) wait_prepare(s);
  wait_sleeper sleeper = {.z = z};
  unsigned n = wait_fds(z, &sleeper);
  int64_t left =
      base_min(deadline, dispatch_deadline(z->c, true)) - host_now(s);
  int timeout = left <= 0 ? 0 : (int)base_min((left - 1) / ZKE_MS + 1, INT_MAX);
  lock_drop(s);
  if (timeout) wait_poll(&sleeper, n, timeout);
  lock_take(s, INT64_MAX);
  wait_free_fds(&sleeper);
}

/* Does a dispatch have work: is it due, or has something come?  Polls what a
 * sleep would poll, and does not read the file. */
static bool wait_has_work(zke *z) {
  zke_os *os = &z->s->os;
  if (z->queue || z->fired || dispatch_deadline(z->c, false) <= host_now(z->s))
    return true;
  wait_sleeper sleeper = {.z = z};
  unsigned n = wait_fds(z, &sleeper);
  bool come = os->poll(os->context, sleeper.fds, n, 0) > 0;
  wait_free_fds(&sleeper);
  return come;
}

/* The thread was cancelled while another had the role: it only leaves its call.
 * pthread_cond_wait() has taken the mutex. */
static void wait_leave_queue(void *arg) {
  zke *z = arg;
  pthread_mutex_unlock(&z->s->m);
  lock_uncount_call(z->s, z);
  os_cancel_back();
}

/* Wait for the thread that has the role, for at most ns nanoseconds; a
 * cancellation point.  If the turn is not `before` any more, this does not
 * wait.  zke_wake() counts turns without the lock, but under the mutex, which
 * is held from this check to the wait. */
static void wait_for_leader(zke *z, uint64_t before, int64_t ns) {
  store *s = z->s;
  pthread_mutex_lock(&s->m);
  lock_drop_m(s);
  pthread_cleanup_push(wait_leave_queue, z);
  os_cancel_allow();
  if (atomic_load(&z->turn) == before)
    os_condition_wait(&z->c->done, &s->m, ns);
  os_cancel_forbid();
  pthread_cleanup_pop(0);
  lock_take_m(s, INT64_MAX);
  pthread_mutex_unlock(&s->m);
}

/* Is a wait over?  Then *rc is its result.  `late` is never set in the first
 * round, so that a deadline that has passed still gets one dispatch. */
static bool wait_is_over(const zke *z, uint64_t before, bool late, int *rc) {
  *rc = ZKE_OK;
  if (atomic_load(&z->closing)) {
    *rc = base_fail(ZKE_CLOSING, "the handle is being closed");
  } else if (atomic_load(&z->turn) != before) {
    return true; /* what was waited for */
  } else if (z->state != SESS_ALIVE && !z->end_untold) {
    *rc = sess_say_ended(z);
  } else if (late) {
    *rc = base_fail(ZKE_OPERATIONTIMEOUT, "nothing came before the deadline");
  }
  return *rc != ZKE_OK;
}

/* May the thread with the role sleep?  Not if something was delivered, and not
 * if nothing would wake it: after the session's end, after a close, or in a
 * broken store, which must be recovered first. */
static bool wait_may_sleep(const zke *z, uint64_t before) {
  return atomic_load(&z->turn) == before && !health_is_broken(z->s) &&
         !atomic_load(&z->closing) && z->state == SESS_ALIVE;
}

/* One round of a wait by the thread with the role: recover, dispatch, sleep.
 * No event is missed between the dispatch and the sleep, since a writer commits
 * the event before it writes its byte into the FIFO.  Either the dispatch has
 * read the event, or the byte came after the FIFO was drained, and ends the
 * sleep. */
static int wait_round(zke *z, uint64_t before, int64_t now, int64_t deadline) {
  store *s = z->s;
  deliver_progress progress = {.zxid = INT64_MAX};
  lease_begin_call(s, z, base_min(deadline, base_later(now, s->busy)));
  int rc = s->index.open ? ZKE_OK : db_end(s); /* an end that failed */
  if (rc == ZKE_OK && health_is_broken(s)) rc = recover_store(s);
  if (health_is_replaced(s)) rc = ZKE_OK; /* still tell the session's end */
  if (rc == ZKE_OK) rc = dispatch_carrier(z, true, &progress);
  if (rc == ZKE_OK && wait_may_sleep(z, before)) wait_sleep(z, deadline);
  return rc;
}

/* Wait as the thread with the role, or for the thread that has it, until a
 * watcher has been called since the turn was `before`.  Each round checks
 * everything again, because the lock was dropped in the sleep. */
static int wait_until(zke *z, uint64_t before, int64_t deadline) {
  for (bool first = true;; first = false) {
    int rc;
    role_frame frame;
    int64_t now = host_now(z->s);
    if (wait_is_over(z, before, now >= deadline && !first, &rc)) return rc;
    if (role_take(z, &frame)) {
      rc = wait_round(z, before, now, deadline);
      role_release(z, &frame);
      if (rc != ZKE_OK) return rc;
    } else {
      wait_for_leader(
          z, before,
          deadline == INT64_MAX ? INT64_MAX : base_max(deadline - now, 1));
    }
  }
}

/* ======================================================================
 * view_: lists for inspection, zke_check (private)
 *
 * Queries about a database as a whole.  They are rare, so they are plain SQL
 * that is prepared each time.  Each list is one statement, and so of one
 * moment.
 *
 * A list is returned as one block, which zke_free() frees: head, records,
 * texts.  There is one text for each record, in the same order.
 *
 * zke_check() tests the invariants I0 to I19 of doc/format.md: most of them by
 * a query that returns a row for each violation, names and ACLs by the
 * functions with which the engine itself reads them.
 * ==================================================================== */

/* A list under construction: view_collect() fills it, and buf_block() makes one
 * block of it. */
typedef struct view_list {
  buf records, texts; /* one text a record */
  int count;
} view_list;

/* Add a column as the text of the current record; NULL becomes "". */
static void view_add_text(view_list *l, sqlite3_stmt *st, int column) {
  const char *text = (const char *)sqlite3_column_text(st, column);
  buf_add_string(&l->texts, text ? text : "");
}

/* Run a query of the views, and let add() make a record of each row.  A query
 * with two parameters gets `from` and `to`.  If memory runs out, the buffers
 * note it, and no block is made. */
static int view_collect(store *s, const char *sql, int64_t from, int64_t to,
                        void (*add)(store *s, sqlite3_stmt *st, view_list *l),
                        view_list *l) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
  if (rc == SQLITE_OK && sqlite3_bind_parameter_count(st) == 2) {
    sqlite3_bind_int64(st, 1, from);
    sqlite3_bind_int64(st, 2, to);
  }
  memset(l, 0, sizeof *l);
  l->records.a = l->texts.a = &s->a;
  while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
    add(s, st, l);
    l->count++;
    rc = SQLITE_OK;
  }
  sqlite3_finalize(st);
  return rc == SQLITE_DONE ? ZKE_OK : sql_error(s, rc, "listing");
}

/* Make a record of a session's row.  The kernel is asked whether the session is
 * alive, since the file does not say. */
static void view_read_session(store *s, sqlite3_stmt *st, view_list *l) {
  zke_session_info r;
  memset(&r, 0, sizeof r);
  r.id = sqlite3_column_int64(st, 0);
  r.pid = sqlite3_column_int64(st, 2);
  r.started_ms = sqlite3_column_int64(st, 3);
  r.lease_ms = sqlite3_column_int64(st, 4) / ZKE_MS;
  sess_row row = {.id = r.id,
                  .life = sqlite3_column_int64(st, 8),
                  .carrier = sqlite3_column_int64(st, 9),
                  .timeout = sqlite3_column_int64(st, 10)};
  enum life_state life = sess_life(s, &row);
  r.alive = life != LIFE_FREE && life != LIFE_NONE;
  r.carrier = row.carrier;
  r.timeout_ms = row.timeout / ZKE_MS;
  r.ephemerals = sqlite3_column_int(st, 5);
  r.watches = sqlite3_column_int(st, 6);
  r.events = sqlite3_column_int(st, 7);
  buf_add(&l->records, &r, sizeof r);
  view_add_text(l, st, 1);
}

/* List the sessions with ids in a range, by id.  Rows and counts are of one
 * moment; whether a session lives is asked while its row is read. */
static int view_sessions(store *s, int64_t from, int64_t to,
                         zke_session_list **out) {
  view_list l;
  char *records = NULL, *text = NULL;
  int rc = view_collect(s,
                        "SELECT id,identity,pid,started,lease,(SELECT "
                        "count(*)FROM zkembed_node WHERE "
                        "owner=zkembed_session.id AND owner<>0),(SELECT "
                        "count(*)FROM zkembed_watch WHERE "
                        "zkembed_watch.session=zkembed_session.id),(SELECT "
                        "count(*)FROM zkembed_event WHERE "
                        "zkembed_event.session=zkembed_session.id),life,"
                        "carrier,timeout FROM zkembed_session WHERE id "
                        "BETWEEN ?1 AND ?2 ORDER BY id",
                        from, to, view_read_session, &l);
  life_forget(s);
  zke_session_list *list = NULL;
  if (rc == ZKE_OK)
    list =
        buf_block(&s->a, sizeof *list, &l.records, &l.texts, &records, &text);
  if (list) {
    zke_session_info *r = (zke_session_info *)(void *)records;
    for (int i = 0; i < l.count; i++) r[i].identity = buf_next_text(&text);
    *list = (zke_session_list){l.count, r};
    *out = list;
  }
  buf_free(&l.records);
  buf_free(&l.texts);
  return rc == ZKE_OK && !list ? base_nomem() : rc;
}

/* Make a record of a watch's row.  Its kind is made of the mode and the table
 * (watch_kind()). */
static void view_read_watch(store *s, sqlite3_stmt *st, view_list *l) {
  zke_watch_info r;
  (void)s;
  memset(&r, 0, sizeof r);
  int kind = sqlite3_column_int(st, 1);
  r.type = kind % 2 == WATCH_TABLE_DATA ? ZKE_WATCH_DATA : ZKE_WATCH_CHILD;
  r.mode = kind / 2 - 1;
  r.session = sqlite3_column_int64(st, 2);
  r.owner = sqlite3_column_int64(st, 3);
  buf_add(&l->records, &r, sizeof r);
  view_add_text(l, st, 0);
}

/* List all watches.  A watch on an ephemeral node of another session has the
 * owner.  In the other rows the join gives NULL, which is read as 0. */
static int view_watches(store *s, zke_watch_list **out) {
  view_list l;
  char *records = NULL, *text = NULL;
  const char *sql =
      "SELECT w.path,w.kind,w.session,n.owner FROM zkembed_watch w LEFT JOIN "
      "zkembed_node n ON " SCHEMA_WATCHED
      "AND n.owner<>w.session ORDER BY 1,3,2";
  int rc = view_collect(s, sql, 0, 0, view_read_watch, &l);
  zke_watch_list *list = NULL;
  if (rc == ZKE_OK)
    list =
        buf_block(&s->a, sizeof *list, &l.records, &l.texts, &records, &text);
  if (list) {
    zke_watch_info *r = (zke_watch_info *)(void *)records;
    for (int i = 0; i < l.count; i++) r[i].path = buf_next_text(&text);
    *list = (zke_watch_list){l.count, r};
    *out = list;
  }
  buf_free(&l.records);
  buf_free(&l.texts);
  return rc == ZKE_OK && !list ? base_nomem() : rc;
}

/* In SQL: the path of a node's row, and a path up to its last '/'. */
#define VIEW_PATH                                                  \
  "CASE n.parent WHEN '' THEN '/' WHEN '/' THEN '/'||n.name ELSE " \
  "n.parent||'/'||n.name END"
#define VIEW_HEAD(p) "rtrim(" p ",replace(" p ",'/',''))"

/* Select the nodes for which a condition holds. */
#define VIEW_NODES "SELECT " VIEW_PATH " FROM zkembed_node n WHERE "

/* The invariants of doc/format.md that SQL can test.  Each query returns a row
 * for each violation. */
/* clang-format off */
static const struct {
  const char *name, *sql;
} view_invariants[] = {
    {"I1 root",
     "SELECT '/'WHERE NOT EXISTS(SELECT 1 FROM zkembed_node WHERE "
     "parent=''AND name='')OR(SELECT count(*)FROM zkembed_node WHERE "
     "parent='')<>1"},
    {"I2 parent exists",
     VIEW_NODES "n.parent NOT IN('','/')AND NOT EXISTS(SELECT 1 FROM "
     "zkembed_node p WHERE p.parent=CASE length(" VIEW_HEAD("n.parent")
     ")WHEN 1 THEN '/'ELSE rtrim(" VIEW_HEAD("n.parent") ",'/')END AND "
     "p.name=substr(n.parent,length(" VIEW_HEAD("n.parent") ")+1))"},
    {"I3 nchild is the number of children",
     VIEW_NODES "n.nchild<>(SELECT count(*)FROM zkembed_node c WHERE "
     "c.parent=" VIEW_PATH ")"},
    {"I4 creates counts at least the children",
     VIEW_NODES "n.creates<0 OR n.creates>2147483647 OR n.creates+CASE "
     VIEW_PATH " WHEN '/'THEN 1 WHEN '/zookeeper'THEN 2 ELSE 0 END<n.nchild"},
    {"I5 an owner is a session",
     VIEW_NODES "n.owner<>0 AND NOT EXISTS(SELECT 1 FROM zkembed_session "
     "WHERE id=n.owner)"},
    {"I6 ephemerals have no children and are plain",
     VIEW_NODES "n.owner<>0 AND(n.nchild<>0 OR n.kind<>0)"},
    {"I7 zxids are ordered",
     "SELECT " VIEW_PATH " FROM zkembed_node n,zkembed_meta m WHERE "
     "n.czxid>n.mzxid OR n.czxid>n.pzxid OR n.mzxid>m.zxid OR n.pzxid>m.zxid"},
    {"I8 data is where its length says",
     "SELECT " VIEW_PATH " FROM zkembed_node n LEFT JOIN zkembed_blob b ON "
     "b.id=n.blob WHERE CASE WHEN n.len<-1 THEN 1 WHEN n.len<=0 THEN n.data "
     "IS NOT NULL OR n.blob IS NOT NULL WHEN n.blob IS NULL THEN n.data IS "
     "NULL OR length(n.data)<>n.len ELSE n.data IS NOT NULL OR b.data IS "
     "NULL OR length(b.data)<>n.len END"},
    {"I9 every blob has one node",
     "SELECT 'blob '||id FROM zkembed_blob WHERE(SELECT count(*)FROM "
     "zkembed_node n WHERE n.blob=id)<>1"},
    {"I10 watches are of a session and a known kind",
     "SELECT path FROM zkembed_watch w WHERE w.kind NOT BETWEEN 0 AND 5 OR "
     "NOT EXISTS(SELECT 1 FROM zkembed_session WHERE id=w.session)"},
    {"I11 events are of a session",
     "SELECT path FROM zkembed_event e WHERE NOT EXISTS(SELECT 1 FROM "
     "zkembed_session WHERE id=e.session)"},
    {"I12 meta.recursive counts the recursive watches",
     "SELECT 'meta'FROM zkembed_meta WHERE recursive<>(SELECT count(*)FROM "
     "zkembed_watch WHERE kind>=4)"},
    {"I13 kind, ttl and due agree",
     VIEW_NODES "n.kind NOT BETWEEN 0 AND 2 OR n.due<>CASE WHEN n.nchild<>0 "
     "THEN 0 WHEN n.kind=2 THEN n.mtime+n.ttl WHEN n.kind=1 THEN n.due ELSE "
     "0 END OR(n.kind<>2 AND n.ttl<>0)"},
    {"I14 session ids are zxids given",
     "SELECT 'session '||id FROM zkembed_session,zkembed_meta WHERE id>zxid "
     "OR id<=4294967296"},
    {"I17 a kept session has a password",
     "SELECT 'session '||id FROM zkembed_session WHERE timeout<0 OR("
     "timeout>0)<>(password IS NOT NULL)OR coalesce(length(password),16)"
     "<>16 OR (timeout>0 AND lease>0)"},
    {"I18 events are for their session's carrier",
     "SELECT e.path FROM zkembed_event e JOIN zkembed_session s ON "
     "s.id=e.session WHERE e.carrier<>s.carrier OR s.carrier<0"},
    {"I19 detached sessions neither watch nor wait",
     "SELECT 'session '||id FROM zkembed_session s WHERE timeout>0 AND "
     "carrier=0 AND(EXISTS(SELECT 1 FROM zkembed_watch WHERE session=s.id)"
     "OR EXISTS(SELECT 1 FROM zkembed_event WHERE session=s.id)OR life<>0)"}};
/* clang-format on */

/* What zke_check() has found, and the function that it tells. */
typedef struct view_report {
  zke_check_fn fn;
  void *context;
  int found;
} view_report;

/* Count a violation, and tell the caller's function, if there is one. */
ZKE_PRINTF(2, 3)
static void view_tell(view_report *r, const char *format, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  r->found++;
  if (r->fn) r->fn(r->context, text);
}

/* Run one query.  Each row is a violation, except quick_check's "ok".  A
 * failure of the query itself, as in a damaged file, is returned, and is not a
 * violation.  The same holds for what quick_check says of a page that it could
 * not read. */
static int view_check_query(store *s, const char *name, const char *sql,
                            view_report *r) {
  int *db = &s->index.file.unread, *log = &s->wal_log.file.unread;
  sqlite3_stmt *st = NULL;
  *db = *log = SQLITE_OK;
  int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
  while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
    const char *text = (const char *)sqlite3_column_text(st, 0);
    rc = *db ? *db : *log;
    if (rc == SQLITE_OK && text && strcmp(text, "ok") != 0)
      view_tell(r, "%s: %s", name, text);
  }
  sqlite3_finalize(st);
  int unread = *db ? *db : *log;
  if (unread)
    return base_fail(sql_code(unread), "%s: %s: %s (SQLite %d)", s->name, name,
                     sqlite3_errstr(unread), unread);
  return rc == SQLITE_DONE ? ZKE_OK : sql_error(s, rc, name);
}

/* Is the text an ACL that acl_next() reads to its end?  A damaged ACL allows
 * nothing from the damage on: it locks users out, but lets nobody in. */
static bool view_acl_valid(const char *text) {
  acl_entry e;
  int entries = 0;
  while (acl_next(&text, &e)) entries++;
  return entries > 0 && !*text;
}

/* Check what SQL cannot test: names and ACLs.  Names were checked when they
 * were created, so a bad name was written by something else. */
static int view_check_texts(store *s, view_report *r) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(
      s->db, "SELECT " VIEW_PATH ",n.name,n.acl FROM zkembed_node n", -1, &st,
      NULL);
  while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
    const char *path = (const char *)sqlite3_column_text(st, 0);
    const char *name = (const char *)sqlite3_column_text(st, 1);
    const char *acl = (const char *)sqlite3_column_text(st, 2);
    if (!path || !name || !path_check_new(path) || strchr(name, '/'))
      view_tell(r, "I15 names are valid: %s", path ? path : "(null)");
    if (acl && !view_acl_valid(acl))
      view_tell(r, "I16 ACLs are readable: %s", path ? path : "(null)");
    rc = SQLITE_OK;
  }
  sqlite3_finalize(st);
  return rc == SQLITE_DONE ? ZKE_OK : sql_error(s, rc, "checking names");
}

/* Test all invariants in one snapshot.  If fn is NULL, the caller learns only
 * the number.  Corruption that SQLite finds is reported like a violation, and
 * the result is ZKE_CORRUPT. */
static int view_check(store *s, zke_check_fn fn, void *context) {
  REQUIRE(LOCK_HELD(s));
  view_report r = {fn, context, 0};
  size_t n = sizeof view_invariants / sizeof *view_invariants;
  int rc = sql_do(s, SQL_BEGIN_READ);
  if (rc != ZKE_OK) return rc;
  rc = view_check_query(s, "I0 SQLite", "PRAGMA quick_check(20)", &r);
  for (size_t i = 0; i < n && rc == ZKE_OK; i++)
    rc = view_check_query(s, view_invariants[i].name, view_invariants[i].sql,
                          &r);
  if (rc == ZKE_OK) rc = view_check_texts(s, &r);
  if (rc == ZKE_CORRUPT) view_tell(&r, "I0 SQLite: %s", base_sentence);
  char cause[BASE_SENTENCE];
  base_save(cause);
  db_end(s);
  base_restore(cause);
  if (rc != ZKE_OK || !r.found) return rc;
  return base_fail(ZKE_DATAINCONSISTENCY, "%s: %d invariants violated", s->name,
                   r.found);
}

/* ======================================================================
 * store_: making and ending a store (private)
 *
 * A store is what the sessions of one zke_open() share: a SQLite connection,
 * the locks, the side files.  Opening checks the options, the name and the kind
 * of the file before it creates anything.  A file that is refused is not
 * touched, and nothing is created beside it.
 *
 * A session gets its own carrier, or joins another session's.  In a forked
 * child the parent's connections (orphans) must be closed before anything is
 * opened.  The last session of all processes leaves the whole database in its
 * file (store_finish()).
 *
 * Start reading at store_open().
 * ==================================================================== */

/* An option's value: the given one, or its default if that is 0.  ZKE_AT_ONCE
 * means 0. */
static int64_t store_default(int64_t given, int64_t otherwise) {
  if (given == ZKE_AT_ONCE) return 0;
  return given ? given : otherwise;
}

/* A numeric option, and its bounds. */
typedef struct store_number {
  const char *name;
  int64_t value, least, most;
} store_number;

/* Are the numeric options within their bounds?  Times must not overflow as
 * nanoseconds.  A session has a lease or a timeout, not both. */
static int store_check_numbers(const zke_options *o) {
  const store_number numbers[] = {
      {"data_limit", o->data_limit, 0, INT_MAX},
      {"cache_kib", o->cache_kib, 0, INT_MAX},
      {"event_limit", o->event_limit, 0, INT_MAX},
      {"notice_limit", o->notice_limit, 0, INT_MAX},
      {"read_limit", o->read_limit, 0, INT64_MAX},
      {"container_ms", o->container_ms, ZKE_AT_ONCE, INT64_MAX},
      {"lease_ms", o->lease_ms, 0, INT64_MAX / ZKE_MS},
      {"timeout_ms", o->timeout_ms, 0, ZKE_MAX_TIMEOUT},
      {"busy_timeout_ms", o->busy_timeout_ms, ZKE_AT_ONCE, INT64_MAX / ZKE_MS}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const store_number *n = &numbers[i];
    if (n->value >= n->least && n->value <= n->most) continue;
    return base_fail(ZKE_BADARGUMENTS, "options.%s is %lld, not %lld to %lld",
                     n->name, (long long)n->value, (long long)n->least,
                     (long long)n->most);
  }
  if (!o->timeout_ms || !o->lease_ms) return ZKE_OK;
  return base_fail(ZKE_BADARGUMENTS,
                   "options.timeout_ms is %lld and options.lease_ms %lld: a "
                   "session has one of them",
                   (long long)o->timeout_ms, (long long)o->lease_ms);
}

/* Copy the caller's options as this version knows them, with a complete table
 * of system calls in *os.  A caller that uses an older header has shorter
 * structs: missing members are zero, which means the default. */
static int store_options(const zke_options *given, zke_options *out,
                         zke_os *os) {
  const unsigned known = ZKE_OPEN_READONLY | ZKE_OPEN_EXISTING |
                         ZKE_OPEN_LIGHT | ZKE_OPEN_HOST | ZKE_OPEN_FOREIGN_KEYS;
  int rc = base_take(given, out, sizeof *out, "zke_options");
  if (rc == ZKE_OK) rc = base_take(out->os, os, sizeof *os, "zke_os");
  if (rc != ZKE_OK) return rc;
  os_fill(os, sizeof *os);
  out->os = os;
  rc = store_check_numbers(out);
  if (rc != ZKE_OK) return rc;
  if (out->durability < ZKE_DURABLE_BY_KIND ||
      out->durability > ZKE_DURABLE_NONE) {
    return base_fail(ZKE_BADARGUMENTS,
                     "options.durability is %d, which is no ZKE_DURABLE_...",
                     out->durability);
  }
  /* an unknown flag asks for something that this version does not do */
  if (out->flags & ~known) {
    return base_fail(ZKE_BADARGUMENTS,
                     "options.flags has 0x%x, which this version does not know",
                     out->flags & ~known);
  }
  if (out->chroot && *out->chroot && !path_check(out->chroot, false))
    return path_refuse("chroot", out->chroot, false);
  return ZKE_OK;
}

/* Free a store, and close all that it has open, however far its opening got.
 * No other thread uses it. */
static void store_free(store *s) {
  wake_forget(s);
  life_forget(s);
  if (s->db) db_disconnect(s);
  sweep_yield(s);
  fd_close(s, &s->gate_fd);
  fd_close(s, &s->line_fd);
  fd_close(s, &s->live_fd);
  fork_remove(s);
  pthread_mutex_destroy(&s->m);
  char *names[] = {s->name, s->vfs,  s->file, s->dir, s->gate,
                   s->line, s->live, s->wal,  s->shm};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) mem_free(names[i]);
  buf_free(&s->sess.put_off);
  buf_free(&s->sess.owed);
  buf_free(&s->schemes.names);
  mem_free(s->fd.list);
  mem_free(s->sessions);
  mem_free(s->cached);
  mem_free(s);
}

/* Set the store's options, with defaults for zeros.  They are fixed from here
 * on, so no lock is needed to read them. */
static void store_set_options(store *s, const zke_options *o) {
  s->os = *o->os;
  s->log = o->log;
  s->log_context = o->log_context;
  s->readonly = (o->flags & ZKE_OPEN_READONLY) != 0;
  s->read_locks = ZKE_READ_LOCKS;
  s->plain_log = ZKE_PLAIN_LOG;
  s->host = (o->flags & ZKE_OPEN_HOST) != 0;
  s->foreign_keys = (o->flags & ZKE_OPEN_FOREIGN_KEYS) != 0;
  s->durability = o->durability;
  s->data_limit = (int)store_default(o->data_limit, 1048576);
  s->cache_kib = (int)store_default(o->cache_kib, 256);
  s->notice_limit = (int)store_default(o->notice_limit, 128);
  s->busy = store_default(o->busy_timeout_ms, 5000) * ZKE_MS;
  s->container = store_default(o->container_ms, 60000);
}

/* Make a store with its settings and nothing open.  The opening thread holds
 * its lock.  The phase spreads the ticks of processes that were started
 * together. */
static int store_new(const char *name, const zke_options *o, store **out) {
  zke_allocator a = o->allocator;
  if (!a.resize) a.resize = mem_default_resize;
  store *s = mem_zero(&a, sizeof *s);
  if (!s) return base_nomem();
  s->a = a;
  s->gate_fd = s->line_fd = s->live_fd = s->life.fd = -1;
  s->line_from = LINE_FIRST_PLACE;
  s->memory = strcmp(name, ":memory:") == 0;
  store_set_options(s, o);
  s->wal_limit = ZKE_CHECKPOINT_PAGES;
  s->lock.taken = true; /* by the thread that opens */
  s->since = INT64_MAX;
  atomic_init(&s->fork.child, false);
  pthread_mutex_init(&s->m, NULL);
  s->lock.end = &s->lock.first;
  s->sess.put_off.a = s->schemes.names.a = s->sess.owed.a = &s->a;
  s->name = mem_copy(&s->a, name, strlen(name));
  if (o->vfs) s->vfs = mem_copy(&s->a, o->vfs, strlen(o->vfs));
  uint32_t random = 0;
  s->os.random(s->os.context, &random, sizeof random);
  s->sweep.phase = random % TICK_INSTANT;
  s->strange_clock = s->os.boot_offset(s->os.context, &s->boot_offset) < 0;
  int64_t now = host_now(s);
  s->deadline = base_later(now, s->busy);
  s->sweep.next = base_later(now, TICK_PLAIN);
  int rc = s->name && (s->vfs || !o->vfs) ? fork_add(s) : base_nomem();
  if (rc == ZKE_OK) {
    *out = s;
    return ZKE_OK;
  }
  store_free(s);
  return rc;
}

/* The directory of the file that SQLite would open, for questions about it.
 * Symbolic links are resolved if SQLite can do that. */
static char *store_directory(store *s) {
  sqlite3_vfs *v = sqlite3_vfs_find(s->vfs);
  char *full = v ? mem_zero(&s->a, (size_t)v->mxPathname + 1) : NULL;
  int rc = full ? v->xFullPathname(v, s->name, v->mxPathname, full) : -1;
  bool resolved = (rc & 0xff) == SQLITE_OK; /* also SQLITE_OK_SYMLINK */
  const char *name = resolved ? full : s->name;
  const char *slash = strrchr(name, '/');
  size_t len = 1; /* "." or "/" */
  if (slash > name) len = (size_t)(slash - name);
  char *dir = mem_copy(&s->a, slash ? name : ".", len);
  mem_free(full);
  return dir;
}

/* Is the path short enough for SQLite?  The caller knows that it is not a
 * directory, and that its parent directory exists.  So if SQLite cannot make it
 * absolute, it is too long.  SQLite also needs room for a suffix. */
static int store_check_length(store *s) {
  enum { SUFFIX = 8 }; /* "-journal" */
  sqlite3_vfs *v = sqlite3_vfs_find(s->vfs);
  if (!v) return ZKE_OK; /* connecting reports it */
  char *full = mem_zero(&s->a, (size_t)v->mxPathname + 1);
  if (!full) return base_nomem();
  int rc = v->xFullPathname(v, s->name, v->mxPathname, full) & 0xff;
  bool fits = strlen(full) + SUFFIX <= (size_t)v->mxPathname;
  mem_free(full);
  if (rc == SQLITE_OK && fits) return ZKE_OK;
  if (rc == SQLITE_NOMEM) return base_nomem();
  return base_fail(ZKE_CANTOPEN,
                   "the database's path, made absolute, is longer than the "
                   "%d bytes that SQLite allows: %s",
                   v->mxPathname - SUFFIX, s->name);
}

/* Can processes share the file?  They find the files beside it by its name, so
 * all must reach it by one name in one directory.  Each refusal says what would
 * go wrong, and what to do. */
static int store_inspect_file(store *s, const zke_file *f,
                              const zke_file *dir) {
  if (f->type != ZKE_FILE_REGULAR) {
    return base_fail(ZKE_CANTOPEN, "%s is %s, not a file", s->name,
                     f->type == ZKE_FILE_DIRECTORY ? "a directory" : "special");
  }
  if (f->links > 1) {
    return base_fail(ZKE_CANTOPEN,
                     "%s has %u hard links: processes that use different names "
                     "would not see each other.  Remove the others.  To back "
                     "it up use \"zke %s backup COPY\": cp may damage the copy "
                     "of a file in use",
                     s->name, f->links, s->name);
  }
  if (f->mount && dir->mount && f->mount != dir->mount) {
    return base_fail(ZKE_CANTOPEN,
                     "%s is mounted by itself: processes outside of the mount "
                     "would not be seen.  Mount the directory that it lies in",
                     s->name);
  }
  return ZKE_OK;
}

/* Refuse a network file system.  If the system call fails, refuse the file,
 * too, unless the system lacks the call or a sandbox forbids it. */
static int store_check_network(store *s, const char *path) {
  int network = s->os.network(s->os.context, path);
  if (network == 1) {
    return base_fail(ZKE_NETWORKFS,
                     "%s is on a network file system, where processes of "
                     "different hosts cannot share a write-ahead log",
                     s->name);
  }
  if (network >= 0 || network == -ENOSYS || network == -EPERM) return ZKE_OK;
  return host_fail(network, "cannot see which file system has", s->name);
}

/* Check the name before anything is opened or created, so that a file that is
 * refused is not touched.  *exists: there is a file. */
static int store_inspect_name(store *s, unsigned flags, bool *exists) {
  zke_file f, above;
  char *dir = store_directory(s);
  if (!dir) return base_nomem();
  int rc = host_stat(s, s->name, &f);
  int up = host_stat(s, dir, &above);
  *exists = rc == 0;
  int local = up < 0 ? ZKE_OK : store_check_network(s, *exists ? s->name : dir);
  mem_free(dir);
  if (up < 0) {
    return base_fail(ZKE_CANTOPEN, "%s: its directory: %s", s->name,
                     strerror(-up));
  }
  if (rc < 0 && rc != -ENOENT)
    return base_fail(ZKE_CANTOPEN, "%s: %s", s->name, strerror(-rc));
  if (!*exists && (flags & (ZKE_OPEN_EXISTING | ZKE_OPEN_READONLY)))
    return base_fail(ZKE_CANTOPEN, "%s does not exist", s->name);
  if (local != ZKE_OK) return local;
  rc = *exists ? store_inspect_file(s, &f, &above) : ZKE_OK;
  return rc == ZKE_OK ? store_check_length(s) : rc;
}

/* The path of a side file, beside the file that a symbolic link leads to.  NULL
 * without memory. */
static char *store_beside(store *s, const char *suffix) {
  return mem_format(&s->a, "%s%s", s->file, suffix);
}

/* Name the side files after the database's name in SQLite, in which symbolic
 * links are resolved. */
static int store_name_files(store *s) {
  const char *file = sqlite3_db_filename(s->db, "main");
  s->file = mem_copy(&s->a, file, strlen(file));
  if (!s->file) return base_nomem();
  s->dir = store_beside(s, "-zke");
  s->gate = store_beside(s, "-zke/gate");
  s->line = store_beside(s, "-zke/line");
  s->live = store_beside(s, "-zke/live");
  s->wal = store_beside(s, "-wal");
  s->shm = store_beside(s, "-shm");
  if (!s->dir || !s->gate || !s->line || !s->live || !s->wal || !s->shm)
    return base_nomem();
  int rc = host_stat(s, s->file, &s->file_id);
  if (rc < 0) return base_fail(ZKE_CANTOPEN, "%s: %s", s->name, strerror(-rc));
  return ZKE_OK;
}

/* Make a first read, which rolls back an interrupted creation and so leaves an
 * empty file.  Then recognise the file again. */
static int store_roll_back(store *s, enum schema_kind *kind) {
  int rc = sql_exec(s, "SELECT 1 FROM sqlite_schema LIMIT 1", "reading");
  if (rc == ZKE_CORRUPT && *kind == SCHEMA_UNFINISHED) rc = ZKE_OK;
  if (rc == ZKE_OK) rc = schema_recognise(s, kind);
  if (rc == ZKE_OK && *kind == SCHEMA_UNFINISHED) *kind = SCHEMA_NO_DATABASE;
  return rc == ZKE_OK ? schema_accept(s, *kind) : rc;
}

/* Create the tables in a program's database, with the gate held.  It may have
 * been in use for years: so write-ahead logging comes first, and the COMMIT and
 * the directory are synced as for any durable commit (db_configure()).  It is
 * known that the database can hold the tables, unless the file was empty: a
 * program may just have filled it. */
static int store_create_hosted(store *s) {
  REQUIRE(GATE_HELD(s));
  enum schema_kind kind = SCHEMA_STRANGER;
  int rc = db_enter_wal(s);
  if (rc == ZKE_OK) rc = schema_accept_host(s, &kind);
  if (rc == ZKE_OK) rc = wal_make_name(s);
  if (rc == ZKE_OK) rc = schema_create(s, true);
  return rc == ZKE_OK ? db_prepare_ends(s) : rc;
}

/* Sync an empty file.  A process may have rolled back a creation and died
 * before the sync.  SQLite removes the journal of an empty file when it first
 * reads the file.  A power cut could then bring back the pages, without a
 * journal to roll them back. */
static int store_sync_empty(store *s) {
  const file_wrapped *db = &s->index.file;
  int rc = db->real->xSync(db->f, SQLITE_SYNC_NORMAL);
  return rc == SQLITE_OK ? ZKE_OK : sql_error(s, rc, "creating");
}

/* With the gate held: create the tables, or accept what is there now. */
static int store_ensure_schema(store *s) {
  REQUIRE(GATE_HELD(s));
  enum schema_kind kind = SCHEMA_STRANGER;
  int rc = schema_recognise(s, &kind);
  if (rc == ZKE_OK) rc = schema_accept(s, kind);
  if (rc == ZKE_OK && kind == SCHEMA_EMPTY) rc = store_sync_empty(s);
  if (rc == ZKE_OK) rc = db_configure(s);
  if (rc == ZKE_OK && kind != SCHEMA_EMPTY) rc = store_roll_back(s, &kind);
  bool hosted = kind == SCHEMA_STRANGER || (kind == SCHEMA_EMPTY && s->host);
  if (rc == ZKE_OK && hosted) return store_create_hosted(s);
  if (rc == ZKE_OK && kind == SCHEMA_EMPTY) rc = schema_create(s, false);
  if (rc == ZKE_OK) rc = db_enter_wal(s);
  return rc == ZKE_OK ? db_prepare_ends(s) : rc;
}

/* Is a file of SQLite's still open?  Asks the VFS below ours. */
static bool store_has_open(const file_wrapped *w) {
  sqlite3_int64 size = 0;
  return w->real->xFileSize(w->f, &size) == SQLITE_OK;
}

/* In a forked child: has the program closed the descriptors of the parent's
 * connection, and opened files of its own under their numbers?  SQLite does not
 * tell the numbers.  But a read of the database must find the head of a
 * database, and the log must be closed if the database is, and open if it is
 * open. */
static bool store_is_taken(const store *o) {
  const file_wrapped *db = &o->index.file, *log = &o->wal_log.file;
  char head[16];
  if (!o->db || o->memory || !db->f) return false;
  bool open = store_has_open(db);
  if (log->f && store_has_open(log) != open) return true;
  if (!open) return false;
  return db->real->xRead(db->f, head, sizeof head, 0) != SQLITE_OK ||
         memcmp(head, "SQLite format 3", sizeof head) != 0;
}

/* In a forked child: close the parent's connections.  Otherwise SQLite would
 * take them for this process's own, and share their locks.  All are checked
 * before any is closed.  If another thread of the parent was using one,
 * SQLite's own locks may be held forever, and nothing can be opened or closed
 * here.  If the program has taken the numbers of their descriptors, closing one
 * would close files of the program, and a new connection would lock by their
 * numbers. */
static int store_drop_orphans(store *s) {
  bool in_use = false, taken = false;
  pthread_mutex_lock(&fork_mutex);
  for (const store *o = fork_orphans; o; o = o->fork.next) {
    in_use = in_use || o->lock.taken;
    taken = taken || (!in_use && store_is_taken(o));
  }
  bool keeps = in_use || taken;
  for (; fork_orphans && !keeps; fork_orphans = fork_orphans->fork.next)
    db_disconnect(fork_orphans);
  pthread_mutex_unlock(&fork_mutex);
  if (!keeps) return ZKE_OK;
  if (!in_use)
    return base_fail(ZKE_FORKED,
                     "%s: the descriptors of the parent's handle were closed, "
                     "and other files have their numbers now; only a new "
                     "program (exec) can open it",
                     s->name);
  return base_fail(ZKE_FORKED,
                   "%s: a thread of the parent was inside SQLite at the fork; "
                   "only a new program (exec) can open it",
                   s->name);
}

/* Open a file for work: recognise it before anything is created beside it, then
 * open the liveness file, then do the rest under the gate. */
static int store_open_file(store *s, bool exists) {
  enum schema_kind kind = SCHEMA_EMPTY;
  /* SQLite would create it without write permission for the group, whatever the
   * umask is.  Others may not write even if the umask is careless. */
  if (!exists) s->os.mkfile(s->os.context, s->name, 0664);
  int rc = db_connect(s, !exists);
  if (rc == ZKE_OK) rc = schema_recognise(s, &kind);
  if (rc == ZKE_OK) rc = schema_accept(s, kind);
  if (rc == ZKE_OK) rc = store_name_files(s);
  if (rc == ZKE_OK) rc = side_open(s);
  if (rc == ZKE_OK) rc = gate_enter(s, NULL, false);
  if (rc != ZKE_OK) return rc;
  rc = store_ensure_schema(s);
  if (rc == ZKE_OK) life_follow_mode(s);
  gate_leave(s);
  return rc;
}

/* Turn the rc of a read-only handle's first reads into its result.  If they
 * failed because something would have to be written, that was the -shm file. */
static int store_tell_shm(store *s, int rc) {
  if (rc != ZKE_CANTOPEN && rc != ZKE_READONLY) return rc;
  return base_fail(ZKE_CANTOPEN,
                   "%s: reading needs its -shm file, which cannot be made or "
                   "used here (%s); let a user who may write there run \"zke "
                   "%s backup COPY\", and read the copy",
                   s->name, sqlite3_errmsg(s->db), s->name);
}

/* Make the first reads of a read-only handle. */
static int store_begin_reading(store *s) {
  int rc = db_configure(s);
  if (rc == ZKE_OK) rc = sql_exec(s, "PRAGMA query_only=1", "configuring");
  if (rc == ZKE_OK) rc = db_prepare_ends(s);
  int64_t meta[3] = {0}, known = side_read_hint(s, SIDE_ZXID_AT);
  if (rc == ZKE_OK) rc = sql_fetch_ints(s, SQL_META, 0, 3, meta);
  return rc == ZKE_OK ? judge_sync_log(s, meta[0], known) : rc;
}

/* Open a file for inspection: nothing is created or changed.  SQLite still
 * needs the -shm file: its locks keep checkpoints away from a read. */
static int store_open_readonly(store *s) {
  enum schema_kind kind = SCHEMA_STRANGER;
  int rc = db_connect(s, false);
  if (rc != ZKE_OK) return rc;
  rc = schema_recognise(s, &kind);
  if (rc != ZKE_OK) return store_tell_shm(s, rc);
  /* refuse what is not ours, and what would have to be created first */
  if (kind <= SCHEMA_UNFINISHED)
    return base_fail(ZKE_NOTADB, "%s is empty: there is no tree in it",
                     s->name);
  bool nothing = kind == SCHEMA_STRANGER && s->host;
  rc = schema_accept(s, nothing ? SCHEMA_NO_DATABASE : kind);
  if (rc == ZKE_OK) rc = store_name_files(s);
  if (rc != ZKE_OK) return rc;
  /* the liveness file, only to probe the lives in it; it may be missing */
  s->live_fd = fd_open(s, s->live, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  if (s->live_fd >= 0 && host_fstat(s, s->live_fd, &s->live_id) < 0)
    fd_close(s, &s->live_fd);
  if (s->live_fd < 0) s->live_fd = -1;
  return store_tell_shm(s, store_begin_reading(s));
}

/* Open a database in memory, which no other process can reach: no gate, no
 * lives, no log.  The tables are the same, but there are no views, since no
 * other program could read them. */
static int store_open_memory(store *s) {
  int rc = db_connect(s, true);
  if (rc == ZKE_OK) rc = db_configure(s);
  if (rc == ZKE_OK) rc = schema_create(s, false);
  return rc == ZKE_OK ? db_prepare_ends(s) : rc;
}

/* Open the store's database in one of the three ways: in memory, for
 * inspection, for work. */
static int store_open(store *s, unsigned flags) {
  bool exists = false;
  if (s->memory && s->readonly) {
    return base_fail(ZKE_BADARGUMENTS,
                     "a database in memory cannot be opened read-only");
  }
  int rc = store_drop_orphans(s);
  if (rc != ZKE_OK) return rc;
  if (s->memory) return store_open_memory(s);
  rc = store_inspect_name(s, flags, &exists);
  if (rc != ZKE_OK) return rc;
  return s->readonly ? store_open_readonly(s) : store_open_file(s, exists);
}

/* Is the linked SQLite new enough, and safe with threads?  It may be of another
 * version than the header that this was compiled with. */
static int store_check_sqlite(void) {
  if (sqlite3_libversion_number() < ZKE_SQLITE_OLDEST) {
    return base_fail(ZKE_SQLITEVERSION, "SQLite %s is older than 3.37.2",
                     sqlite3_libversion());
  }
  if (!sqlite3_threadsafe())
    return base_fail(ZKE_SQLITEVERSION, "SQLite was built without threads");
  return ZKE_OK;
}

/* Give a new handle its carrier: c, or a new one if c is NULL.  From here on
 * the handle counts as a user of the carrier, even if no session begins. */
static int store_give_carrier(zke *z, struct carrier *c) {
  if (c) {
    z->carrier_id = c->id;
    if (!carrier_room(c)) return base_nomem();
  } else {
    c = equip_new(z->s);
    if (!c) return base_nomem();
    c->own = z;
  }
  z->c = c;
  c->users++;
  return ZKE_OK;
}

/* The number of handles that the process has made. */
static atomic_uint_fast64_t store_serials;

/* Make a handle; its session has not begun.  c: its carrier, or NULL for a new
 * one.  After a failure *out is a handle that the caller must free, or NULL. */
static int store_new_session(store *s, const zke_options *o, struct carrier *c,
                             zke **out) {
  zke *z = mem_zero(&s->a, sizeof *z);
  if (!z) return base_nomem();
  const char *chroot =
      o->chroot && strcmp(o->chroot, "/") != 0 ? o->chroot : "";
  z->s = s;
  z->serial = atomic_fetch_add(&store_serials, 1) + 1;
  z->due_place = CARRIER_NO_PLACE;
  z->lease = o->lease_ms * ZKE_MS;
  z->timeout = o->timeout_ms * ZKE_MS;
  z->event_limit = (int)store_default(o->event_limit, 10000);
  z->read_limit = o->read_limit;
  z->watcher = o->watcher;
  z->watcher_context = o->watcher_context;
  z->who.texts.a = z->path.a = &s->a;
  z->queue_end = &z->queue;
  z->chroot_len = strlen(chroot);
  z->chroot = mem_copy(&s->a, chroot, z->chroot_len);
  atomic_init(&z->closing, false);
  atomic_init(&z->calls, 0);
  atomic_init(&z->owes, false);
  atomic_init(&z->doomed, false);
  atomic_init(&z->alarm_at, INT64_MAX);
  os_condition_init(&z->no_calls);
  *out = z;
  return z->chroot ? store_give_carrier(z, c) : base_nomem();
}

/* Free a handle that is in no list and has no session, with its notes, its
 * queue, its alarms and its watchers.  No thread is inside. */
static void store_free_session(zke *z) {
  discard_free(z->discards);
  event_clear_queue(z);
  alarm_free(z);
  watcher_free(z);
  equip_release(z);
  buf_free(&z->who.texts);
  buf_free(&z->path);
  mem_free(z->chroot);
  pthread_cond_destroy(&z->no_calls);
  mem_free(z);
}

/* Make room for one more session in the store's list; false without memory.
 * This is done before the session begins, since listing it must not fail. */
static bool store_session_room(store *s) {
  if (s->session_count < s->session_cap) return true;
  size_t cap = s->session_cap ? s->session_cap * 2 : 4;
  zke **list = mem_resize(&s->a, s->sessions, cap * sizeof(zke *));
  if (!list) return false;
  s->sessions = list;
  s->session_cap = cap;
  return true;
}

/* Put a session into the list, which is sorted by id.  Ids mostly rise, so the
 * move is short. */
static void store_list_session(store *s, zke *z) {
  size_t at = life_place(s, z->id);
  memmove(s->sessions + at + 1, s->sessions + at,
          (s->session_count++ - at) * sizeof(zke *));
  s->sessions[at] = z;
  z->listed = true;
  carrier_touch(z);
  carrier_enter(z);
  if (z->lease && (!s->lease || z->lease < s->lease)) s->lease = z->lease;
}

/* Take a handle out of the store's list: its session has ended, or another
 * handle has attached it. */
static void store_unlist_session(zke *z) {
  store *s = z->s;
  if (!z->listed) return;
  size_t at = life_place(s, z->id);
  memmove(s->sessions + at, s->sessions + at + 1,
          (--s->session_count - at) * sizeof(zke *));
  z->listed = false;
  carrier_leave(z);
}

/* How a new handle gets its session.  Only this differs between zke_open(),
 * zke_open_session() and zke_attach(). */
typedef struct store_adding {
  const zke_options *o;
  struct carrier *c; /* of a light session; NULL: it gets its own */
  bool first;        /* it is the store's first session */
  int64_t session;   /* the one to attach; 0: a new one */
  const unsigned char *password;
} store_adding;

/* Begin a session on a new handle, or attach one.  If another handle of this
 * store had the session, that handle immediately counts as SESS_MOVED, even if
 * the outcome of the COMMIT is unknown: if it was made, the old handle's
 * watches are gone, and the session's row does not show that. */
static int store_begin_session(zke *z, const store_adding *a) {
  store *s = z->s;
  const zke_options *o = a->o;
  char name[64] = "";
  if (s->readonly) return ZKE_OK;
  if (!o->identity) s->os.process_name(s->os.context, name, sizeof name);
  const char *identity = o->identity ? o->identity : name;
  if (!a->session) return begin_session(z, identity, a->first);
  int rc = kept_attach(z, a->session, a->password, identity);
  bool moved = rc == ZKE_OK || (rc == ZKE_CONNECTIONLOSS && z->id);
  zke *before = moved ? life_find_own(s, z->id) : NULL;
  if (before) {
    txn_lose_session(before, SESS_MOVED);
    store_unlist_session(before);
  }
  return rc;
}

/* Make a handle with a session, and put it into the store's list.  On failure
 * the handle is freed.  The timer is set from the start, since the program may
 * poll the descriptor alone and never ask for a deadline. */
static int store_add_session(store *s, const store_adding *a, zke **out) {
  zke *z = NULL;
  int rc = store_new_session(s, a->o, a->c, &z);
  if (rc == ZKE_OK && !store_session_room(s)) rc = base_nomem();
  if (rc == ZKE_OK) rc = store_begin_session(z, a);
  if (rc != ZKE_OK) {
    if (z) store_free_session(z);
    if (s->sess.owes) dispatch_arm_all(s); /* the row may be there */
    return rc;
  }
  if (!a->c) z->c->tick_at = sweep_next_tick(s, host_now(s), true);
  store_list_session(s, z);
  s->handles++;
  dispatch_arm(z);
  *out = z;
  return ZKE_OK;
}

/* Are the tables in the program's own database?  Otherwise the file is ours. */
static int store_is_hosted(store *s) {
  enum schema_kind kind = SCHEMA_OURS;
  int rc = s->memory ? ZKE_OK : schema_read_header(s, &kind);
  if (rc != ZKE_OK || kind == SCHEMA_STRANGER) return rc;
  return base_fail(ZKE_BADARGUMENTS,
                   "%s is zkembed's own: to be rid of it, delete the file",
                   s->name);
}

/* May the tables be dropped?  Not while another session uses them, nor while a
 * view or a trigger of the program does: the trigger's table could not be
 * written any more. */
static int store_may_drop(store *s) {
  buf sessions = {.a = &s->a};
  size_t n;
  bool used = s->handles > 1;
  int rc = sess_list(s, 1, 0, &sessions);
  const sess_row *row = sess_rows(&sessions, &n);
  for (size_t i = 0; i < n && rc == ZKE_OK && !used; i++) {
    enum life_state life = sess_life(s, &row[i]);
    used =
        !sess_find_own(s, &row[i]) && life != LIFE_FREE && life != LIFE_REMOVED;
  }
  life_forget(s);
  buf_free(&sessions);
  if (rc == ZKE_OK && used)
    rc = base_fail(ZKE_NOTEMPTY, "%s: other sessions use it", s->name);
  if (rc != ZKE_OK) return rc;
  int64_t triggers = 0; /* and views */
  rc = schema_count_triggers(s, &triggers);
  if (rc != ZKE_OK || !triggers) return rc;
  return base_fail(ZKE_NOTEMPTY,
                   "%s: %lld triggers or views of the program's use the tables "
                   "of zkembed, and have to be dropped first",
                   s->name, (long long)triggers);
}

/* After the last session of all processes, empty the log into the database
 * file, and sync it.  So a database that is not in use can be copied as one
 * file.  A failure does not matter: the next opening reads the log.  But a log
 * in doubt is recovered, if that is possible. */
static void store_finish(store *s) {
  REQUIRE(LOCK_HELD(s));
  int64_t any = 1;
  if (s->memory || s->readonly || s->health >= HEALTH_BROKEN) return;
  if (db_end(s) == ZKE_OK &&
      sql_fetch_ints(s, SQL_SESSION_ANY, 0, 1, &any) == ZKE_OK && !any &&
      gate_enter(s, NULL, true) == ZKE_OK) {
    if (s->health == HEALTH_GOOD) db_checkpoint(s, true);
    if (s->health == HEALTH_IN_DOUBT) recover_log(s);
    gate_leave(s);
  }
}

/* ======================================================================
 * engine_: handles of other engines behind this interface (private)
 *
 * Knows the tables of functions that were registered, but not what they do.
 * The first member of a handle is its engine's table, or NULL for a file.  Each
 * public function that gets a handle looks there first, and passes the call on.
 *
 * Tables are never removed, so a table that was found stays.  Readers need no
 * lock: a slot is filled before it is marked as ready.
 *
 * Start reading at ENGINE_IS_OTHER().
 * ==================================================================== */

enum { ENGINE_MOST = 8 };

typedef struct engine_slot {
  zke_engine engine;
  atomic_bool ready;
} engine_slot;

static engine_slot engine_slots[ENGINE_MOST];
static atomic_int engine_taken;

/* Is the handle another engine's?  Then one line of the public function makes
 * the call by the engine's table, or refuses it if the engine does not have it.
 * Functions that only a file can have are refused directly (engine_lacks()). */
#define ENGINE_IS_OTHER(z) ((z) && (z)->engine)
#define ENGINE_CALL(z, call, ...)                     \
  ((z)->engine->call ? (z)->engine->call(__VA_ARGS__) \
                     : engine_lacks((z)->engine, __func__))
#define ENGINE_ASK(z, call, ...) ((z)->engine->call(__VA_ARGS__)) /* required */

/* Refuse a call that an engine does not have. */
static int engine_lacks(const zke_engine *engine, const char *call) {
  return base_fail(ZKE_UNIMPLEMENTED, "%s() is not offered on %s", call,
                   *engine->prefix ? engine->prefix : "this engine");
}

/* The table with the longest prefix of the name; NULL: it is a file. */
static const zke_engine *engine_find(const char *name) {
  const zke_engine *best = NULL;
  for (int i = 0; i < ENGINE_MOST; i++) {
    const zke_engine *e = &engine_slots[i].engine;
    if (!atomic_load(&engine_slots[i].ready)) continue;
    if (strncmp(name, e->prefix, strlen(e->prefix)) != 0) continue;
    if (!best || strlen(e->prefix) > strlen(best->prefix)) best = e;
  }
  return best;
}

/* Is it a name that only an engine can open: letters and "://"?  As a file it
 * would fail because of a missing directory, which misleads. */
static bool engine_is_name(const char *name) {
  size_t letters = strspn(name, "abcdefghijklmnopqrstuvwxyz");
  return letters && strncmp(name + letters, "://", 3) == 0;
}

/* Are the required members set?  Except for the first three, these are
 * functions whose result has no room for an error. */
static bool engine_is_complete(const zke_engine *e) {
  return e->prefix && e->open && e->close && e->session_id && e->state &&
         e->now && e->wall && e->busy_timeout && e->limit && e->event_zxid &&
         e->turn;
}

/* Open a name by its engine, which gets all options of this version, and always
 * an allocator. */
static int engine_open(const zke_engine *engine, const char *name,
                       const zke_options *options, zke **z_out) {
  zke_options o;
  int rc = base_take(options, &o, sizeof o, "zke_options");
  if (rc != ZKE_OK) return rc;
  if (!o.allocator.resize)
    o.allocator = (zke_allocator){mem_default_resize, NULL};
  return engine->open(engine, name, &o, z_out);
}

/* Put a table into a slot.  If there is a table with the same prefix, that one
 * stays: registering an engine twice does no harm. */
static int engine_register(const zke_engine *e) {
  for (int i = 0; i < ENGINE_MOST; i++) {
    if (atomic_load(&engine_slots[i].ready) &&
        strcmp(engine_slots[i].engine.prefix, e->prefix) == 0)
      return ZKE_OK;
  }
  int slot = atomic_fetch_add(&engine_taken, 1);
  if (slot >= ENGINE_MOST) {
    atomic_store(&engine_taken, ENGINE_MOST);
    return base_fail(ZKE_MISUSE, "there are %d engines already", ENGINE_MOST);
  }
  engine_slots[slot].engine = *e;
  atomic_store(&engine_slots[slot].ready, true);
  return ZKE_OK;
}

/* ======================================================================
 * api_: how a call begins and ends (private)
 *
 * api_enter() disables the thread's cancellation, takes the store's lock and
 * calls api_admit(), which checks the path, the handle's rights, the health of
 * the store and the state of the session, in this order.  Flags say what a call
 * needs.  Between api_enter() and api_leave() the thread is alone in the store.
 * The lock is dropped only in the sleep of a wait, around watchers, and while
 * zke_close() and zke_forget() wait for calls.  A thread that waits for the
 * gate keeps the lock.
 *
 * Calls that must not wait for calls of other threads do without the lock:
 * zke_touch(), zke_wake() and zke_call_at().  Like zke_sleep() and
 * zke_discard(), they count themselves in and out (api_count_in(),
 * api_count_out()), so that the handle is not freed meanwhile.
 *
 * A change runs by api_change(), and a read calls api_lose_read(), so that
 * tests can lose their replies.
 *
 * Start reading at api_enter().
 * ==================================================================== */

/* What a call needs, or can do without. */
enum {
  API_CHANGE = 1,     /* a handle that may write; its transaction checks whether
                         the session still exists */
  API_SEQUENTIAL = 2, /* the path may end like a prefix */
  API_LOOK = 4,       /* a change that may do without such a transaction: the
                         session is checked before it begins */
  API_ANY_STATE = 8,  /* works on a session that has ended, too */
  API_LIGHT = 16,     /* looks at the handle only, does no I/O, and so waits
                         for other threads' calls however long they take;
                         but zke_sql_adopt() and zke_forget() do some I/O */
  API_READ = 32,      /* begins its read itself, and checks there whether
                         the session still exists */
  API_DISPATCH = 64,  /* ticks and recovers itself */
  API_DISCARD = 128,  /* removes what the session has discarded */
  API_BATCH = 256     /* can be part of a batch */
};

/* Check a path, and put the chroot before it.  *full is valid until the
 * handle's next call; without a chroot it is the caller's own pointer.  Below a
 * chroot, "/" is the chroot's node, so no full path ends in a slash.  A
 * sequential create of "/" is refused, as it would make a sibling of the
 * chroot. */
static int api_path(zke *z, const char *path, unsigned flags,
                    const char **full) {
  bool sequential = (flags & API_SEQUENTIAL) != 0;
  if (!path_check(path, sequential)) {
    size_t len = path ? strlen(path) : 0;
    if (len <= PATH_MOST) return path_refuse("path", path, sequential);
    /* a longer one would fill the sentence */
    return base_fail(ZKE_BADARGUMENTS, "a path of %zu bytes, the limit is %d",
                     len, (int)PATH_MOST);
  }
  *full = path;
  if (!z->chroot_len) return ZKE_OK;
  bool root = path[1] == '\0';
  if (root && sequential) {
    return base_fail(ZKE_BADARGUMENTS,
                     "a sequential create of / would leave the chroot %s",
                     z->chroot);
  }
  z->path.len = 0;
  buf_add(&z->path, z->chroot, z->chroot_len);
  buf_add_string(&z->path, root ? "" : path);
  if (z->path.failed) {
    z->path.failed = false;
    return base_nomem();
  }
  *full = z->path.data;
  return ZKE_OK;
}

/* Is the session alive, as this handle knows it?  Others may have ended it. */
static int api_state(const zke *z) {
  return z->state == SESS_ALIVE ? ZKE_OK : sess_say_ended(z);
}

/* Read the session's row in the open snapshot, for txn_session_stands().  A
 * read-only handle has no session.  In memory, only a kept session's row is
 * read: another handle may have taken it over, but the store knows of all other
 * ends.  If the thread wants zxids, *zxid becomes the snapshot's. */
static int api_look(const zke *z, int64_t *zxid, int64_t *carrier) {
  bool unowned = z->s->readonly || (z->s->memory && !z->timeout);
  int64_t meta[4] = {0}, found = z->carrier_id;
  int rc = ZKE_OK;
  if (base_zxid_wanted) {
    rc = sql_fetch_ints(z->s, SQL_META, z->id, 4, meta);
    if (rc == ZKE_OK) *zxid = meta[0];
    found = meta[3];
  } else if (!unowned) {
    rc = sess_read_carrier(z->s, z->id, &found);
  }
  /* a failed read does not show an end */
  *carrier = rc == ZKE_OK && !unowned ? found : z->carrier_id;
  return rc;
}

/* Is the session alive, by what the handle knows and by the file?  A call that
 * begins after the session's end is refused.  Not under db_begin_read(), since
 * that read may have to be repeated. */
static int api_session(zke *z) {
  int64_t zxid = 0, carrier = z->carrier_id;
  int rc = api_state(z);
  if (rc == ZKE_OK) rc = api_look(z, &zxid, &carrier);
  base_zxid = zxid;
  int stands = txn_session_stands(z, carrier);
  return rc == ZKE_OK ? stands : rc;
}

/* Remove what the session has discarded, before it changes anything else.  If
 * that fails, a change fails; a call that only reads goes on. */
static int api_discard_first(zke *z, unsigned flags, int64_t now) {
  if (!atomic_load(&z->owes) || (flags & API_DISCARD)) return ZKE_OK;
  if (flags & API_CHANGE) return discard_all(z);
  discard_try(z, now, 0);
  return api_state(z);
}

/* May a read use the snapshot that the read before it has left open?  Yes, if
 * nothing is known to be wrong and no tick is due.  Then only the handle's own
 * state is checked, which makes reads cheap. */
static bool api_reads_on(const zke *z, unsigned flags, int64_t now) {
  const store *s = z->s;
  return (flags & API_READ) && s->index.open && !health_is_broken(s) &&
         sweep_rests(s, now) && !atomic_load(&z->owes);
}

/* End a read that was left open, and recover the store as health_ says: a
 * broken store before anything, a store in doubt before a change.  A call that
 * works in any state tolerates the doubt. */
static int api_recover(store *s, unsigned flags) {
  int rc = db_end(s);
  bool change = (flags & API_CHANGE) && !(flags & API_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  bool first = change ? health_needs_recovery(s) : health_is_broken(s);
  return first ? recover_store(s) : ZKE_OK;
}

/* Recover the database if that is needed, do a tick if it is due, and check
 * that the session lives.  The recovery and the tick may find that the files
 * were replaced, so that is checked again.  A change checks the session's row
 * in its transaction (API_CHANGE), a read in its snapshot.  For all other calls
 * it is checked here. */
static int api_admit_to_database(zke *z, unsigned flags, int64_t now) {
  store *s = z->s;
  bool any_state = (flags & API_ANY_STATE) != 0;
  int rc = api_recover(s, flags);
  if (health_is_replaced(s) && any_state) return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  /* If many write without pause, standing in line is the only way to the gate.
   * A change stands there anyway, so the sweep gets half of its time. */
  int64_t half = flags & API_CHANGE ? (s->deadline - now) / 2 : 0;
  sweep_in_call(s, now, base_max(half, SWEEP_PATIENCE));
  if (any_state) return ZKE_OK;
  if (health_is_replaced(s)) return health_say_replaced(s);
  bool later = flags & (API_READ | API_CHANGE) && !(flags & API_LOOK);
  rc = later ? api_state(z) : api_session(z);
  return rc == ZKE_OK ? api_discard_first(z, flags, now) : rc;
}

/* Check whether a call may run; the lock is held.  Callers see the order of the
 * checks: a malformed path comes before a handle that may not write, this
 * before replaced files, and these before a session that has ended.
 *
 * The early returns miss no check.  A light call does no I/O and so depends on
 * the handle alone.  A dispatch does the rest itself, since it has more to do
 * in a broken store.  A read that uses an open snapshot was checked when the
 * snapshot was opened.  It cannot miss the session's end, because every commit
 * ends the snapshot, including the commit of that end. */
static int api_admit(zke *z, const char *path, unsigned flags,
                     const char **full, int64_t now) {
  store *s = z->s;
  int rc = full ? api_path(z, path, flags, full) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  if ((flags & API_CHANGE) && s->readonly)
    return base_fail(ZKE_READONLY, "%s was opened read-only", s->name);
  /* a call that works in any state is admitted, since it has to report that */
  if (health_is_replaced(s) && !(flags & API_ANY_STATE))
    return health_say_replaced(s);
  if (!(flags & API_LIGHT)) lease_trust(z);
  lease_stamp(z);
  if (!(flags & (API_LIGHT | API_DISPATCH))) carrier_touch(z);
  if (flags & API_LIGHT) return flags & API_ANY_STATE ? ZKE_OK : api_state(z);
  if (flags & API_DISPATCH) return s->index.open ? ZKE_OK : db_end(s);
  if (api_reads_on(z, flags, now)) return api_state(z);
  return api_admit_to_database(z, flags, now);
}

/* The result and the sentence of every call on a parent's handle in a child. */
static int api_forked(const store *s) {
  return base_fail(ZKE_FORKED,
                   "%s: the handle belongs to the parent process; open one "
                   "of your own after fork()",
                   s->name);
}

/* Check a call that the function of a batch makes, and that becomes a part of
 * the batch's transaction.  The checks come in the order of api_admit().
 * Before a change, the nodes that the session has discarded are removed.  A
 * read tries nothing, since a failure would break the batch. */
static int api_admit_to_batch(txn_batch *b, zke *z, const char *path,
                              unsigned flags, const char **full) {
  if (!(flags & (API_BATCH | API_LIGHT)))
    return base_fail(ZKE_MISUSE, "a call that a batch does not allow");
  if (z->s != b->t.s) {
    return base_fail(ZKE_MISUSE,
                     "%s: a call on a store that is not the batch's",
                     z->s->name);
  }
  int rc = full ? api_path(z, path, flags, full) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  lease_stamp(z);
  if (flags & API_LIGHT) return flags & API_ANY_STATE ? ZKE_OK : api_state(z);
  carrier_touch(z);
  rc = txn_say_broken(b);
  if (rc == ZKE_OK) rc = api_state(z);
  if (rc == ZKE_OK) rc = txn_join_session(b, z);
  bool owes =
      (flags & API_CHANGE) && !(flags & API_DISCARD) && atomic_load(&z->owes);
  return rc == ZKE_OK && owes ? discard_all(z) : rc;
}

/* End a call that api_enter() has admitted; returns rc.  In a child that a
 * watcher has forked, no lock is dropped, since it is the parent's, and the
 * result is ZKE_FORKED.  In a batch the lock is kept.  Another thread may have
 * the store as soon as the lock is dropped, so nothing of the store is touched
 * after that. */
static int api_leave(zke *z, int rc) {
  txn_batch *b = txn_batch_here();
  if (fork_is_copy(z->s)) {
    rc = api_forked(z->s);
  } else if (b) {
    if (rc != ZKE_OK) txn_judge(b, rc);
    lock_uncount_call(z->s, z);
  } else {
    lease_stamp(z);
    lock_drop_call(z->s, z);
  }
  os_cancel_back();
  return rc;
}

/* End a call that api_enter() has admitted with API_LIGHT.  A failure has
 * nothing to do with the database: in a batch it says nothing about the
 * transaction. */
static int api_leave_light(zke *z, int rc) {
  int left = api_leave(z, ZKE_OK);
  return left == ZKE_OK ? rc : left;
}

/* End a call that api_count_in() has admitted and that does not hold the lock;
 * returns rc. */
static int api_count_out(zke *z, int rc) {
  lock_uncount_call(z->s, z);
  os_cancel_back();
  return rc;
}

/* Refuse a call of a thread that already holds a store's lock and gate: in a
 * function of the program, or in a transaction of the program's connection. */
static int api_not_here(void) {
  return base_fail(ZKE_MISUSE,
                   "%s: a call in a function of zke_op_sql(), or between "
                   "zke_sql_begin() and its end",
                   app_here->name);
}

/* Count in a call that does without the lock, or takes it later.  On ZKE_OK
 * api_count_out() must follow, otherwise nothing.  The order matters.  The fork
 * flag is checked before any lock is touched, since a child may have inherited
 * a locked one.  The call counts itself before it checks whether the handle is
 * being closed.  zke_close() sets that flag before it reads the count, so one
 * of the two sees the other. */
static int api_count_in(zke *z) {
  if (!z) return base_fail(ZKE_BADARGUMENTS, "the handle is NULL");
  if (fork_is_copy(z->s)) return api_forked(z->s);
  os_cancel_off();
  atomic_fetch_add(&z->calls, 1);
  if (!atomic_load(&z->closing)) return ZKE_OK;
  return api_count_out(z, base_fail(ZKE_CLOSING, "the handle is being closed"));
}

/* Begin a call.  On ZKE_OK the lock is held, and api_leave() must follow;
 * otherwise nothing is held.  The call's deadline is set before it waits for
 * the lock.  It waits until that deadline, or until `until` if that is later.
 * In a batch the lock is held already. */
static int api_enter_until(zke *z, const char *path, unsigned flags,
                           const char **full, int64_t until) {
  if (!(flags & (API_LIGHT | API_DISPATCH))) base_zxid = 0;
  int rc = api_count_in(z);
  if (rc != ZKE_OK) return rc;
  if (app_is_inside()) return api_count_out(z, api_not_here());
  txn_batch *b = txn_batch_here();
  if (b) {
    rc = api_admit_to_batch(b, z, path, flags, full);
    return rc == ZKE_OK ? ZKE_OK : api_leave(z, rc);
  }
  store *s = z->s;
  int64_t now = host_now(s);
  int64_t deadline = lock_deadline(z, now);
  if (flags & API_LIGHT) until = INT64_MAX;
  if (!lock_take(s, base_max(deadline, until))) {
    return api_count_out(
        z, base_fail(ZKE_OPERATIONTIMEOUT,
                     "another thread has used the handle for too long"));
  }
  lease_begin_call(s, z, deadline);
  rc = api_admit(z, path, flags, full, now);
  return rc == ZKE_OK ? ZKE_OK : api_leave(z, rc);
}

/* Begin a call that waits for the lock only until its deadline. */
static int api_enter(zke *z, const char *path, unsigned flags,
                     const char **full) {
  return api_enter_until(z, path, flags, full, 0);
}

/* Count a change of the session, for zke_test_fail().  Returns
 * ZKE_TEST_FAIL_BEFORE or _AFTER if this change must lose its reply, else 0.
 * Calls in a batch do not count, since only the batch has a reply. */
static int api_count_change(zke *z) {
  int fail = z->fail_when;
  if (!fail || fail == ZKE_TEST_FAIL_READ || z->s->batch) return 0;
  if (z->fail_skip-- > 0) return 0;
  z->fail_when = 0;
  return fail;
}

/* The result of a call that loses its reply for a test. */
static int api_lose_reply(void) {
  base_zxid = 0; /* it was in the reply */
  return base_fail(ZKE_CONNECTIONLOSS, "the reply was lost for a test");
}

/* Run a change as one transaction.  If zke_test_fail() asked for it, the reply
 * is lost, before or after the change is made. */
static int api_change_by(txn_runner run, zke *z, enum txn_class hint,
                         txn_body body, void *arg) {
  int fail = api_count_change(z);
  int rc =
      fail == ZKE_TEST_FAIL_BEFORE ? ZKE_OK : run(z->s, z, hint, body, arg);
  return fail ? api_lose_reply() : rc;
}

static int api_change(zke *z, enum txn_class hint, txn_body body, void *arg) {
  return api_change_by(txn_run, z, hint, body, arg);
}

/* The same for the bodies that call op_guard(). */
static int api_change_one(zke *z, enum txn_class hint, txn_body body,
                          void *arg) {
  return api_change_by(txn_run_guarded, z, hint, body, arg);
}

/* Fail if zke_test_fail() wants this read to lose its reply. */
static int api_lose_read(zke *z) {
  if (z->fail_when != ZKE_TEST_FAIL_READ || z->s->batch || z->fail_skip-- > 0)
    return ZKE_OK;
  z->fail_when = 0;
  return api_lose_reply();
}

/* Refuse a call of the tree for its arguments, before api_enter().  The call
 * has seen no state, so its zke_zxid() is 0. */
#define api_refuse_arguments(...) \
  (base_zxid = 0, base_fail(ZKE_BADARGUMENTS, __VA_ARGS__))

/* Refuse a call that must not be made in the function of a batch. */
static int api_misuse(const char *call) {
  return base_fail(ZKE_MISUSE, "%s in the function of a batch", call);
}

/* Refuse a negative length other than -1, and NULL with a length.  This is
 * checked before the handle, since it is the caller's mistake in any state. */
static int api_length(const void *data, int len) {
  if (len >= -1 && (data || len <= 0)) return ZKE_OK;
  return api_refuse_arguments("data of length %d", len);
}

/* Refuse a value over the store's limit.  This is checked after the session's
 * state, as in ZooKeeper, where the server has the limit. */
static int api_limit(const zke *z, int len) {
  if (len <= z->s->data_limit) return ZKE_OK;
  return base_fail(ZKE_BADARGUMENTS, "data of %d bytes, the limit is %d", len,
                   z->s->data_limit);
}

/* ======================================================================
 * zke_, api_: the public functions (public)
 *
 * zkembed.h says what each function promises; comments here say only what the
 * header does not.  The functions stand in the header's order, under a line for
 * each of its groups.  What only one function needs stands before it.
 *
 * Each has the same shape: check the arguments, api_enter(), one call into the
 * layers above, api_leave().  Results are complete before api_leave(), and the
 * caller gets them only if the call has succeeded.  A call that fails writes no
 * out parameter, unless zkembed.h says so.
 *
 * Start reading at zke_set() for a change and at zke_get() for a read.
 * ==================================================================== */

/* ---- version, results ---- */

const char *zke_version(void) { return ZKE_VERSION; }
int zke_version_number(void) { return ZKE_VERSION_NUMBER; }

/* Names and texts come from the list in zkembed.h, so none can be missing. */
const char *zke_error_name(int rc) {
  switch (rc) {
#define ZKE_RESULT_NAME(name, number, text) \
  case number:                              \
    return "ZKE_" #name;
    ZKE_RESULT_LIST(ZKE_RESULT_NAME)
    default:
      return "ZKE_UNKNOWN";
  }
}

/* The text of a code, if the call itself has left no sentence. */
const char *zke_error_text(int rc) {
  switch (rc) {
#define ZKE_RESULT_TEXT(name, number, text) \
  case number:                              \
    return text;
    ZKE_RESULT_LIST(ZKE_RESULT_TEXT)
    default:
      return "unknown error";
  }
}

/* A pointer to the thread's own text, so it needs no lock and no handle. */
const char *zke_errmsg(void) { return base_sentence; }

/* ---- opening and closing ---- */

/* zke_open(), with checked arguments and cancellation disabled. */
static int api_open(const char *name, const zke_options *options, zke **z_out) {
  zke_options o;
  zke_os os;
  store *s = NULL;
  int rc = store_check_sqlite();
  if (rc == ZKE_OK) rc = store_options(options, &o, &os);
  if (rc == ZKE_OK) rc = store_new(name, &o, &s);
  if (rc != ZKE_OK) return rc;
  zke *z = NULL;
  if (o.flags & ZKE_OPEN_LIGHT || o.timeout_ms)
    rc = base_fail(ZKE_BADARGUMENTS,
                   "a light or a kept session needs zke_open_session()");
  store_adding a = {.o = &o, .first = true};
  if (rc == ZKE_OK) rc = store_open(s, o.flags);
  if (rc == ZKE_OK) rc = store_add_session(s, &a, &z);
  if (rc != ZKE_OK) {
    store_free(s);
    return rc;
  }
  guard_note_files(s);
  if (!s->readonly)
    sweep_tick(s, false, SWEEP_PATIENCE); /* what died unnoticed */
  lock_drop(s);
  *z_out = z;
  return ZKE_OK;
}

/* The opening thread holds the lock of its new store from the start: the
 * functions that are called here require it, though no other thread can know
 * the store yet. */
int zke_open(const char *name, const zke_options *options, zke **z_out) {
  if (!z_out) return base_fail(ZKE_BADARGUMENTS, "z_out is NULL");
  *z_out = NULL;
  if (!name || !*name)
    return base_fail(ZKE_BADARGUMENTS, "the database's name is %s",
                     name ? "empty" : "NULL");
  if (txn_batch_here()) return api_misuse("zke_open()");
  if (app_is_inside()) return api_not_here();
  const zke_engine *engine = engine_find(name);
  if (engine) return engine_open(engine, name, options, z_out);
  if (engine_is_name(name)) {
    return base_fail(ZKE_CANTOPEN, "%s: no engine for such names is registered",
                     name);
  }
  os_cancel_off();
  int rc = api_open(name, options, z_out);
  os_cancel_back();
  return rc;
}

/* Begin or attach a session on the store of a handle.  The handle's own session
 * may have ended: that may be why the caller wants a new one.  API_ANY_STATE
 * skips the recovery that a change needs, so it is done here. */
static int api_add_session(zke *z, store_adding a, zke **z_out) {
  zke_options o;
  zke_os os;
  if (!z_out) return base_fail(ZKE_BADARGUMENTS, "z_out is NULL");
  *z_out = NULL;
  int rc = store_options(a.o, &o, &os);
  if (rc == ZKE_OK) rc = api_enter(z, NULL, API_CHANGE | API_ANY_STATE, NULL);
  if (rc != ZKE_OK) return rc;
  a.o = &o;
  if (a.session || o.timeout_ms || o.flags & ZKE_OPEN_LIGHT) a.c = z->c;
  if (health_needs_recovery(z->s)) rc = recover_store(z->s);
  if (health_is_replaced(z->s))
    rc = health_say_replaced(z->s);
  else if (rc != ZKE_OK)
    return api_leave(z, rc);
  else if (a.session && o.lease_ms)
    rc = base_fail(ZKE_BADARGUMENTS, "a kept session has no lease");
  else
    rc = store_add_session(z->s, &a, z_out);
  return api_leave(z, rc);
}

/* Only a light or a kept session shares the handle's carrier: see
 * api_add_session(). */
int zke_open_session(zke *z, const zke_options *options, zke **z_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, open_session, z, options, z_out);
  store_adding a = {.o = options};
  return api_add_session(z, a, z_out);
}

/* End or detach the session of a handle that is being closed.  The step that
 * detaches it removes what it has discarded, since nobody else knows of that.
 * If there was no memory to note a discarded node, the session ends. */
static int api_end_session(zke *z, enum sess_why why) {
  bool detaches = why == SESS_DETACH;
  bool doomed = detaches && atomic_load(&z->doomed);
  end_arg end = {.session = z->id,
                 .why = doomed ? SESS_CLOSE : why,
                 .z = z,
                 .before = detaches && !doomed ? discard_body : NULL,
                 .before_arg = discard_first(z)};
  int rc = end_as(z->s, &end, false);
  if (rc == ZKE_OK && detaches && !end.ended) return api_session(z);
  if (rc != ZKE_OK || !doomed) return rc;
  return base_fail(ZKE_SESSIONEXPIRED,
                   "there was no memory to note what was discarded: the "
                   "session has ended");
}

/* The same, if the handle still has the session.  If the session has ended, or
 * another handle has it, there is nothing to end; but detaching it fails. */
static int api_give_up_session(zke *z, enum sess_why why) {
  bool own = z->state == SESS_ALIVE || z->state == SESS_AUTH_FAILED;
  bool replaced = health_is_replaced(z->s);
  if (z->id && own && !z->row_gone && !replaced) return api_end_session(z, why);
  z->row_gone = true;
  if (why != SESS_DETACH) return ZKE_OK;
  return replaced ? health_say_replaced(z->s) : sess_say_ended(z);
}

/* zke_close(), with the handle marked as closing and cancellation disabled.
 * First the calls of other threads end: those that sleep are woken, and see the
 * mark.  Then the session ends.  If that fails, the handle is freed all the
 * same, and others find the session dead by its lock.  A light session's lock
 * stays, so this store ends that session later.  The last handle of a store
 * frees the store.  why: SESS_CLOSE or SESS_DETACH. */
static int api_close(zke *z, enum sess_why why) {
  store *s = z->s;
  wake_sleeper(z);
  lock_take(s, INT64_MAX);
  lock_signal(s, &z->c->done);
  lock_await_calls(s, z);
  lease_begin_call(s, NULL, lock_deadline(z, host_now(s)));
  if (health_needs_recovery(s)) recover_store(s);
  int rc = api_give_up_session(z, why);
  bool owes = rc != ZKE_OK && !z->row_gone && carrier_is_light(z);
  if (owes && why == SESS_CLOSE) kept_owe(s, z);
  if (owes) s->sess.owes = true;
  z->state = SESS_CLOSED;
  store_unlist_session(z);
  store_free_session(z);
  if (owes) dispatch_arm_all(s);
  if (--s->handles == 0) {
    store_finish(s);
    store_free(s);
  } else {
    lock_drop(s);
  }
  return rc;
}

/* Only one thread may close: it sets the flag, and a second thread finds it
 * set.  A callback of the handle may not close, since the dispatch that it runs
 * in uses the handle afterwards. */
static int api_close_once(zke *z, enum sess_why why) {
  if (fork_is_copy(z->s))
    return base_fail(ZKE_FORKED, "the handle belongs to the parent process");
  if (txn_batch_here()) return api_misuse("zke_close()");
  if (app_is_inside()) return api_not_here();
  if (role_is_inside(z))
    return base_fail(ZKE_MISUSE, "closing from a callback of the handle");
  bool limited = lock_is_limited(z);
  os_cancel_off();
  int rc;
  if (atomic_exchange(&z->closing, true))
    rc = base_fail(ZKE_CLOSING, "another thread is closing the handle");
  else
    rc = api_close(z, why);
  if (limited) lock_limit.z = NULL; /* a new handle may get the address */
  os_cancel_back();
  return rc;
}

int zke_close(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, close, z);
  return z ? api_close_once(z, SESS_CLOSE) : ZKE_OK;
}

/* Fixed for the handle's life, so it is read without the lock; also after the
 * session's end, for messages. */
int64_t zke_session_id(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, session_id, z);
  return z ? z->id : 0;
}

/* If api_enter() fails, the handle is of no use, at least to this call: that is
 * what ZKE_STATE_CLOSED says. */
int zke_state(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, state, z);
  if (api_enter(z, NULL, API_ANY_STATE | API_LIGHT, NULL) != ZKE_OK)
    return ZKE_STATE_CLOSED;
  int state = deliver_state(z);
  api_leave(z, ZKE_OK);
  return state;
}

/* The session may be this handle's own: end_session() then marks it as gone,
 * and the next dispatch tells the watchers. */
int zke_expire(zke *z, int64_t session) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, expire, z, session);
  bool ended;
  int rc = api_enter(z, NULL, API_CHANGE | API_LOOK, NULL);
  if (rc != ZKE_OK) return rc;
  rc = end_session(z->s, session, NULL, SESS_EXPIRE, false, &ended);
  if (rc == ZKE_OK && !ended) {
    rc =
        base_fail(ZKE_NONODE, "no session 0x%llx", (unsigned long long)session);
  }
  return api_leave(z, rc);
}

void zke_free(void *block) { mem_free(block); }

/* At least one byte, so that NULL always means that memory has run out. */
void *zke_alloc(zke *z, size_t size) {
  if (!size) size = 1;
  const zke_allocator *a = NULL;
  if (ENGINE_IS_OTHER(z))
    a = &((const zke_handle *)(const void *)z)->allocator;
  else if (z)
    a = &z->s->a;
  void *block = a ? mem_zero(a, size) : NULL;
  if (!block) base_nomem();
  return block;
}

/* ---- nodes ---- */

/* A change of one node: the arguments and results of its transaction's body.
 * It lies on the stack of the call, and outlives that body. */
typedef struct api_single {
  const char *path;
  const zke_op *op;
  char *made;
  zke_stat stat;
} api_single;

/* The bodies of changes of one node, for api_change_one(). */
static int api_create_body(txn *t, void *arg) {
  api_single *c = arg;
  return op_create(t, c->path, c->op, &c->made, &c->stat);
}

static int api_delete_body(txn *t, void *arg) {
  api_single *c = arg;
  return op_delete(t, c->path, c->op->version);
}

static int api_set_body(txn *t, void *arg) {
  api_single *c = arg;
  return op_set(t, c->path, c->op, &c->stat);
}

/* Refuse an unknown mode, a TTL for a mode that has none, and a TTL out of
 * bounds for a mode that has one. */
static int api_mode(const zke_op *op) {
  if (op->mode < ZKE_PERSISTENT ||
      op->mode > ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL)
    return api_refuse_arguments("unknown mode %d", op->mode);
  bool bad = op->ttl_ms != 0;
  if (op_mode_has_ttl(op->mode))
    bad = op->ttl_ms < 1 || op->ttl_ms > ZKE_MAX_TTL;
  if (bad) {
    return api_refuse_arguments("mode %d with a ttl of %lld ms", op->mode,
                                (long long)op->ttl_ms);
  }
  return ZKE_OK;
}

/* zke_create() and zke_create_ttl().  The created path is returned without the
 * chroot.  If there is no memory to return it, the znode exists all the same.
 * So the result is that of a lost reply: the caller has to look. */
static int api_create(zke *z, const zke_op *op, char **path_out,
                      zke_stat *stat_out) {
  api_single c = {NULL, op, NULL, {0}};
  unsigned flags = API_CHANGE | API_BATCH;
  if (op_mode_is_sequential(op->mode)) flags |= API_SEQUENTIAL;
  int rc = api_mode(op);
  if (rc == ZKE_OK) rc = api_length(op->data, op->len);
  if (rc == ZKE_OK) rc = api_enter(z, op->path, flags, &c.path);
  if (rc != ZKE_OK) return rc;
  rc = api_limit(z, op->len);
  if (rc == ZKE_OK) {
    enum txn_class want =
        op_mode_is_ephemeral(op->mode) ? TXN_NORMAL : TXN_FULL;
    rc = api_change_one(z, want, api_create_body, &c);
  }
  char *shown = NULL;
  if (rc == ZKE_OK && path_out) {
    const char *visible = event_visible_path(z, c.made);
    if (visible == c.made) {
      shown = c.made;
      c.made = NULL;
    } else {
      shown = mem_copy(&z->s->a, visible, strlen(visible));
    }
    if (!shown) rc = base_fail(ZKE_CONNECTIONLOSS, "made, but out of memory");
  }
  mem_free(c.made);
  if (rc == ZKE_OK && path_out) *path_out = shown;
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return api_leave(z, rc);
}

/* Uses the struct of an operation of a multi, so that both take one path
 * through the engine. */
int zke_create(zke *z, const char *path, const void *data, int len,
               const zke_acls *acls, int mode, char **path_out,
               zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, create, z, path, data, len, acls, mode, path_out,
                       stat_out);
  zke_op op;
  zke_op_create(&op, path, data, len, acls, mode);
  return api_create(z, &op, path_out, stat_out);
}

/* A mode without a TTL is refused here, since zke_op_create_ttl() with 0 ms
 * would pass for a plain create. */
int zke_create_ttl(zke *z, const char *path, const void *data, int len,
                   const zke_acls *acls, int mode, int64_t ttl_ms,
                   char **path_out, zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, create_ttl, z, path, data, len, acls, mode, ttl_ms,
                       path_out, stat_out);
  zke_op op;
  if (!op_mode_has_ttl(mode))
    return api_refuse_arguments("mode %d has no ttl", mode);
  zke_op_create_ttl(&op, path, data, len, acls, mode, ttl_ms);
  return api_create(z, &op, path_out, stat_out);
}

int zke_delete(zke *z, const char *path, int version) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, remove, z, path, version);
  zke_op op;
  zke_op_delete(&op, path, version);
  api_single c = {NULL, &op, NULL, {0}};
  int rc = api_enter(z, path, API_CHANGE | API_BATCH, &c.path);
  if (rc != ZKE_OK) return rc;
  return api_leave(z, api_change_one(z, z->last, api_delete_body, &c));
}

/* A read, with or without a watch. */
typedef struct api_reading {
  enum op_wish wish;
  const char *path;
  zke_watch_fn fn;
  void *context;
  op_answer answer;
  watcher_pending entry;
  bool missing;
  int64_t owner; /* the carrier of the node's owner, another session; or 0 */
  int type;      /* zke_set_watch(): ZKE_WATCH_… */
  int64_t since; /* … and the zxid after which a change counts */
} api_reading;

/* A registration that is completed or undone when its transaction has ended.  A
 * batch keeps them in the order of the calls. */
typedef struct api_pending {
  zke *z;
  watcher_pending entry;
  int64_t owner; /* the carrier whose death it waits for, or 0 */
  int other;     /* mode that this one replaces, or -1 */
} api_pending;

/* The last step of a registration's body: in a batch, keep the registration
 * until the batch ends.  If there is no memory for that, txn_join() fails. */
static void api_register(txn *t, const watcher_pending *entry, int64_t owner,
                         int other) {
  txn_batch *b = t->s->batch;
  api_pending p;
  if (!b) return;
  memset(&p, 0, sizeof p);
  p.z = t->z;
  p.entry = *entry;
  p.owner = owner;
  p.other = other;
  buf_add(&b->watches, &p, sizeof p);
}

/* Note the carrier of the node's owner, for a notice of death.  0 if none is
 * needed: there is no owner; or it is a session of this store, which knows when
 * that ends; or it is detached, so that only its timeout ends it. */
static int api_find_owner(txn *t, api_reading *r) {
  sess_row row;
  bool found;
  r->owner = 0;
  int64_t owner = r->answer.owner;
  if (!owner || owner == t->z->id) return ZKE_OK;
  const zke *own = life_find_own(t->s, owner);
  if (own && !own->timeout) return ZKE_OK; /* it cannot have moved */
  int rc = sess_read_row(t->s, owner, &row, &found);
  if (rc != ZKE_OK || !found || sess_is_detached(&row)) return rc;
  if (!sess_find_own(t->s, &row)) r->owner = sess_carrier(&row);
  return rc;
}

/* Read and register in one transaction (P3).  exists registers on a missing
 * node, too; the others only if they succeed (semantics.md 5.1). */
static int api_watch_body(txn *t, void *arg) {
  api_reading *r = arg;
  int rc = op_read(t->z, r->wish, r->path, &node_range_all, &r->answer);
  r->missing = rc == ZKE_NONODE && r->wish == OP_EXISTS;
  if (rc != ZKE_OK && !r->missing) return rc;
  rc = api_find_owner(t, r);
  if (rc != ZKE_OK) return rc;
  unsigned table =
      r->wish == OP_CHILDREN ? WATCH_TABLE_CHILD : WATCH_TABLE_DATA;
  rc = watcher_prepare(t, r->path, WATCH_ONE_SHOT, 1u << table, r->fn,
                       r->context, &r->entry);
  if (rc == ZKE_OK) api_register(t, &r->entry, r->owner, -1);
  return rc;
}

/* A registration's transaction has ended with rc: complete it, or undo it in
 * memory.  If the watcher has an event already, a byte is written into the
 * FIFO, and the next dispatch calls the watcher. */
static void api_conclude(api_pending *p, int rc) {
  zke *z = p->z;
  bool committed = rc == ZKE_OK;
  watcher *w = p->entry.w;
  if (committed && p->owner && notice_watch_owner(z, p->owner))
    w->owner = p->owner;
  if (committed && p->other >= 0)
    watcher_change_mode(z, p->entry.spot, p->other, w->mode);
  if (committed && w->fired) wake_self(z);
  watcher_conclude(z, &p->entry, rc);
}

/* Is the outcome of a registration known when its call ends with rc? */
static bool api_is_settled(const zke *z, int rc) {
  return rc != ZKE_OK || !z->s->batch;
}

/* Read and set a watch, by one of two bodies.  A watch on an ephemeral znode of
 * another session also notes the owner, so that the kernel can report the
 * owner's death.  The watcher is allocated inside the transaction, and linked
 * after the commit. */
static int api_watch_by(zke *z, txn_body body, api_reading *r) {
  int rc = txn_run(z->s, z, TXN_NORMAL, body, r);
  api_pending p = {z, r->entry, r->owner, -1};
  if (api_is_settled(z, rc)) api_conclude(&p, rc);
  if (rc != ZKE_OK) {
    op_answer_free(&r->answer);
    return rc;
  }
  dispatch_arm(z);
  return ZKE_OK;
}

/* One try of api_read_plain(), outside of a batch.  False: what was read may
 * not be of one state, and r->answer must be discarded. */
static bool api_try_read(zke *z, api_reading *r, int *rc) {
  store *s = z->s;
  int64_t carrier = z->carrier_id;
  *rc = db_begin_read(s);
  if (*rc != ZKE_OK) return true;
  int64_t era = s->index.era, zxid = s->index.latest_zxid;
  if (z->row_era != era || (base_zxid_wanted && !zxid))
    *rc = api_look(z, &zxid, &carrier);
  bool looked = *rc == ZKE_OK;
  if (r && looked && carrier == z->carrier_id)
    *rc = op_read(z, r->wish, r->path, &node_range_all, &r->answer);
  if (!db_read_stands(s)) return false;
  int stands = txn_session_stands(z, carrier);
  if (stands != ZKE_OK) {
    *rc = stands;
  } else if (looked) {
    z->row_era = era;
    base_zxid = base_zxid_wanted ? zxid : 0;
    s->index.latest_zxid = zxid;
  }
  return true;
}

/* Read without a watch; children and Stat come from one snapshot.  If a session
 * may have ended since the last check, the session's row is checked in that
 * snapshot.  The snapshot's zxid is read if it is wanted and not known.  If r
 * is NULL, only this is done.  In a batch the batch's transaction is read, and
 * the session was checked when it joined. */
static int api_read_plain(zke *z, api_reading *r) {
  int rc;
  if (z->s->batch) {
    base_zxid = z->s->batch->t.zxid;
    if (!r) return ZKE_OK;
    return op_read(z, r->wish, r->path, &node_range_all, &r->answer);
  }
  while (!api_try_read(z, r, &rc)) {
    if (!r) continue;
    op_answer_free(&r->answer);
    memset(&r->answer, 0, sizeof r->answer);
  }
  return rc;
}

/* The body of zke_exists(), zke_get(), zke_children() and zke_get_acl().  On
 * ZKE_OK api_leave() must follow. */
static int api_read(zke *z, const char *path, api_reading *r) {
  unsigned flags = API_BATCH | (r->fn ? API_CHANGE : API_READ);
  int rc = api_enter(z, path, flags, &r->path);
  if (rc != ZKE_OK) return rc;
  rc = api_lose_read(z);
  if (rc == ZKE_OK)
    rc = r->fn ? api_watch_by(z, api_watch_body, r) : api_read_plain(z, r);
  if (rc == ZKE_OK && r->missing) rc = op_no_node(r->path);
  return rc == ZKE_OK ? ZKE_OK : api_leave(z, rc);
}

/* A missing node is an answer (ZKE_NONODE), and the watch is registered. */
int zke_exists(zke *z, const char *path, zke_watch_fn fn, void *context,
               zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, exists, z, path, fn, context, stat_out);
  api_reading r = {.wish = OP_EXISTS, .fn = fn, .context = context};
  int rc = api_read(z, path, &r);
  if (rc != ZKE_OK) return rc;
  if (stat_out) *stat_out = r.answer.stat;
  return api_leave(z, ZKE_OK);
}

/* api_read() returns everything: free what the caller does not want. */
int zke_get(zke *z, const char *path, zke_watch_fn fn, void *context,
            char **data_out, int *len_out, zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, get, z, path, fn, context, data_out, len_out,
                       stat_out);
  api_reading r = {.wish = OP_GET, .fn = fn, .context = context};
  int rc = api_read(z, path, &r);
  if (rc != ZKE_OK) return rc;
  if (data_out)
    *data_out = r.answer.data;
  else
    mem_free(r.answer.data);
  if (len_out) *len_out = r.answer.len;
  if (stat_out) *stat_out = r.answer.stat;
  return api_leave(z, ZKE_OK);
}

int zke_set(zke *z, const char *path, const void *data, int len, int version,
            zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, set, z, path, data, len, version, stat_out);
  zke_op op;
  zke_op_set(&op, path, data, len, version);
  api_single c = {NULL, &op, NULL, {0}};
  int rc = api_length(data, len);
  if (rc == ZKE_OK) rc = api_enter(z, path, API_CHANGE | API_BATCH, &c.path);
  if (rc != ZKE_OK) return rc;
  rc = api_limit(z, len);
  if (rc == ZKE_OK) rc = api_change_one(z, z->last, api_set_body, &c);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return api_leave(z, rc);
}

/* A copy of all names in one block, in the order of the key. */
int zke_children(zke *z, const char *path, zke_watch_fn fn, void *context,
                 zke_strings **names_out, zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, children, z, path, fn, context, names_out, stat_out);
  api_reading r = {.wish = OP_CHILDREN, .fn = fn, .context = context};
  int rc = api_read(z, path, &r);
  if (rc != ZKE_OK) return rc;
  if (names_out)
    *names_out = r.answer.names;
  else
    mem_free(r.answer.names);
  if (stat_out) *stat_out = r.answer.stat;
  return api_leave(z, ZKE_OK);
}

/* Begin a read under SQLite's lock, in a state in which the session exists, for
 * a call that has entered with API_READ.  On ZKE_OK api_end_locked() must
 * follow.  In a batch its transaction is read, with its changes. */
static int api_begin_locked(zke *z) {
  if (z->s->batch) {
    base_zxid = z->s->batch->t.zxid;
    return ZKE_OK;
  }
  int rc = db_end(z->s);
  if (rc == ZKE_OK) rc = sql_do(z->s, SQL_BEGIN_READ);
  if (rc != ZKE_OK) return rc;
  rc = api_session(z);
  if (rc != ZKE_OK) db_end(z->s);
  return rc;
}

/* The other half of api_begin_locked(). */
static void api_end_locked(zke *z) {
  if (!z->s->batch) db_end(z->s);
}

/* Two statements under SQLite's read lock, so that the node and its descendants
 * are of one state. */
int zke_count(zke *z, const char *path, int64_t *count_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, count, z, path, count_out);
  op_answer a;
  const char *full;
  int64_t count = 0;
  int rc = api_enter(z, path, API_READ | API_BATCH, &full);
  if (rc != ZKE_OK) return rc;
  rc = api_lose_read(z);
  if (rc == ZKE_OK) rc = api_begin_locked(z);
  if (rc == ZKE_OK) {
    rc = op_read(z, OP_STAT, full, &node_range_all, &a);
    if (rc == ZKE_OK) rc = node_count(z->s, full, &count);
    api_end_locked(z);
  }
  if (rc == ZKE_OK && count_out) *count_out = count;
  return api_leave(z, rc);
}

/* For qsort(): by bytes, like SQLite's BINARY order. */
static int api_compare_strings(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keep the paths that begin with chroot + prefix, sorted, without the chroot.
 * The key's order differs from that of full paths, as it compares the parent
 * first. */
static int api_filter(const zke *z, const buf *paths, int count,
                      const char *prefix, zke_strings **out) {
  buf matches = {.a = &z->s->a};
  int n = 0;
  const char *path = paths->data;
  for (int i = 0; i < count; i++, path += strlen(path) + 1) {
    const char *shown = event_visible_path(z, path);
    if ((z->chroot_len && shown == path) ||
        strncmp(shown, prefix, strlen(prefix)) != 0) {
      continue;
    }
    buf_add_string(&matches, shown);
    n++;
  }
  *out = matches.failed ? NULL : buf_strings(&matches, n);
  buf_free(&matches);
  if (!*out) return base_nomem();
  qsort((*out)->data, (size_t)n, sizeof(char *), api_compare_strings);
  return ZKE_OK;
}

SQL_STATEMENT(
    NODE_OWNED_ALL,
    "SELECT parent,name FROM zkembed_node WHERE owner=:owner AND owner<>0 "
    "ORDER BY parent,name");

/* One statement, but under SQLite's read lock: its zxid must be of the same
 * state. */
int zke_ephemerals(zke *z, int64_t session, const char *prefix,
                   zke_strings **paths_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, ephemerals, z, session, prefix, paths_out);
  zke_strings *list = NULL;
  int count = 0;
  int rc = api_enter(z, NULL, API_READ | API_BATCH, NULL);
  if (rc != ZKE_OK) return rc;
  buf paths = {.a = &z->s->a};
  rc = api_lose_read(z);
  if (rc == ZKE_OK) rc = api_begin_locked(z);
  if (rc != ZKE_OK) return api_leave(z, rc);
  sqlite3_stmt *st = sql_statement(z->s, SQL_NODE_OWNED_ALL, &rc);
  if (st) {
    sql_bind_int(st, 1, ":owner", session ? session : z->id);
    rc = sql_collect_paths(z->s, st, &paths, &count);
  }
  api_end_locked(z);
  if (rc == ZKE_OK)
    rc = api_filter(z, &paths, count, prefix ? prefix : "", &list);
  buf_free(&paths);
  if (rc == ZKE_OK && paths_out)
    *paths_out = list;
  else
    mem_free(list);
  return api_leave(z, rc);
}

/* Reads are linearizable without it.  It finds the session's end in a process
 * that does nothing else.  Recipes begin each call with it, so they are refused
 * in a batch: the batch may be undone after they have said what they hold. */
int zke_sync(zke *z, const char *path) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, sync, z, path);
  (void)path;
  if (txn_batch_here()) return api_misuse("zke_sync(), or a recipe,");
  int rc = api_enter(z, NULL, API_READ, NULL);
  if (rc != ZKE_OK) return rc;
  int64_t now = host_now(z->s);
  if (now >= z->sync_next) { /* recipes ask often: do not always read */
    rc = api_read_plain(z, NULL);
    if (rc == ZKE_OK) z->sync_next = base_later(now, TICK_PLAIN);
  }
  return api_leave(z, rc);
}

/* ---- watches ---- */

/* What the functions for watches pass to their transactions. */
typedef struct api_watch {
  const char *path;
  int mode, other; /* the mode asked for, the mode that it replaces */
  zke_watch_fn fn;
  void *context;
  watcher_pending entry;
  unsigned rows; /* to be removed, bit watch_kind() */
} api_watch;

/* The later mode on a path replaces the earlier (semantics.md 5.7); one-shots
 * stay, unlike in 3.8.0. */
static int api_add_watch_body(txn *t, void *arg) {
  api_watch *w = arg;
  int rc = ZKE_OK;
  for (int table = 0; table < 2 && rc == ZKE_OK; table++)
    rc = watch_remove(t, w->path, watch_kind(w->other, table));
  if (rc != ZKE_OK) return rc;
  rc = watcher_prepare(t, w->path, w->mode, 3, w->fn, w->context, &w->entry);
  if (rc == ZKE_OK) api_register(t, &w->entry, 0, w->other);
  return rc;
}

/* The mode is checked after the handle's state, since in ZooKeeper the server
 * checks it.  mode + 1: WATCH_PERSISTENT and WATCH_RECURSIVE follow
 * WATCH_ONE_SHOT, which this cannot set.  The rows are changed first, then the
 * watchers in memory.  No event can be dispatched between the two, as the lock
 * is held. */
int zke_add_watch(zke *z, const char *path, int mode, zke_watch_fn fn,
                  void *context) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, add_watch, z, path, mode, fn, context);
  api_watch w = {.mode = mode + 1, .fn = fn, .context = context};
  if (!fn) return api_refuse_arguments("fn is NULL");
  int rc = api_enter(z, path, API_CHANGE | API_BATCH, &w.path);
  if (rc != ZKE_OK) return rc;
  if (mode != ZKE_WATCH_PERSISTENT && mode != ZKE_WATCH_PERSISTENT_RECURSIVE) {
    return api_leave(
        z, base_fail(ZKE_MARSHALLINGERROR, "unknown watch mode %d", mode));
  }
  w.other = w.mode == WATCH_PERSISTENT ? WATCH_RECURSIVE : WATCH_PERSISTENT;
  rc = txn_run(z->s, z, TXN_NORMAL, api_add_watch_body, &w);
  api_pending p = {z, w.entry, 0, w.other};
  if (api_is_settled(z, rc)) api_conclude(&p, rc);
  dispatch_arm(z);
  return api_leave(z, rc);
}

/* Remove the rows of one path that are not needed any more. */
static int api_remove_watch_body(txn *t, void *arg) {
  api_watch *w = arg;
  int rc = ZKE_OK;
  for (int kind = 0; kind < 6 && rc == ZKE_OK; kind++) {
    if (w->rows & 1u << kind) rc = watch_remove(t, w->path, kind);
  }
  return rc;
}

/* A selection of the watchers of a path. */
typedef struct api_watchers {
  watcher_spot *spot;
  const watcher_pair *pair; /* NULL: all */
  unsigned tables;
} api_watchers;

/* Find the watchers of a pair (fn NULL: of all) on a path; ZKE_NOWATCHER if
 * there is none.  The handle's memory is searched, since rows in the file name
 * sessions but not pairs. */
static int api_find_watchers(const zke *z, const char *path, int type,
                             zke_watch_fn fn, const void *context,
                             api_watchers *out) {
  if (type < ZKE_WATCH_CHILD || type > ZKE_WATCH_ANY)
    return base_fail(ZKE_BADARGUMENTS, "unknown watch type %d", type);
  *out = (api_watchers){.tables = 0};
  if (type & ZKE_WATCH_DATA) out->tables |= 1u << WATCH_TABLE_DATA;
  if (type & ZKE_WATCH_CHILD) out->tables |= 1u << WATCH_TABLE_CHILD;
  out->spot = watcher_find_spot(z, path, strlen(path));
  out->pair = fn ? watcher_find_pair(z, fn, context) : NULL;
  if (out->spot && (out->pair || !fn) &&
      watcher_exists(out->spot, out->tables, out->pair)) {
    return ZKE_OK;
  }
  return base_fail(ZKE_NOWATCHER, "no such watcher of %s", path);
}

/* A row in the file stands for all watchers of one kind on the path, so it is
 * removed only with the last of them. */
int zke_remove_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                     void *context) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, remove_watch, z, path, type, fn, context);
  api_watch w = {.mode = 0};
  api_watchers of;
  int rc = api_enter(z, path, API_CHANGE | API_LOOK, &w.path);
  if (rc != ZKE_OK) return rc;
  rc = api_find_watchers(z, w.path, type, fn, context, &of);
  if (rc != ZKE_OK) return api_leave(z, rc);
  w.rows = watcher_unneeded(of.spot, of.tables, of.pair);
  if (w.rows) rc = txn_run(z->s, z, TXN_NORMAL, api_remove_watch_body, &w);
  if (rc == ZKE_OK) watcher_take(z, of.spot, of.tables, of.pair);
  dispatch_arm(z);
  return api_leave(z, rc);
}

/* Remove the rows that only this pair needs, on all paths. */
static int api_forget_body(txn *t, void *arg) {
  api_watch *w = arg;
  int rc = ZKE_OK;
  const watcher *at = watcher_find_pair(t->z, w->fn, w->context)->newest;
  for (; at && rc == ZKE_OK; at = at->older) {
    w->path = at->spot->path;
    w->rows = watcher_unneeded_rows(at);
    if (w->rows) rc = api_remove_watch_body(t, w);
  }
  return rc;
}

/* Remove the rows that only this pair needs.  Then take the pair out of memory,
 * even if the rows could not be removed.  A row that stays makes events that
 * find no watcher. */
static int api_forget_pair(zke *z, zke_watch_fn fn, void *context) {
  REQUIRE(LOCK_HELD(z->s));
  api_watch w = {.fn = fn, .context = context};
  const watcher_pair *pair = watcher_find_pair(z, fn, context);
  const watcher *at = NULL; /* has rows that only this pair needs */
  int rc = ZKE_OK;
  if (z->state == SESS_ALIVE && pair) at = pair->newest;
  while (at && !watcher_unneeded_rows(at)) at = at->older;
  if (at) {
    rc = db_end(z->s);
    if (rc == ZKE_OK && health_needs_recovery(z->s)) rc = recover_store(z->s);
    if (rc == ZKE_OK) rc = txn_run(z->s, z, TXN_NORMAL, api_forget_body, &w);
  }
  watcher_take_pair(z, pair);
  return rc;
}

/* After this returns, the pair is not called, even if its rows could not be
 * removed.  It is taken out of memory and out of the running dispatch, and this
 * waits for a call of it that runs in another thread.  That call may set
 * watches again, which are removed, too.  At the end the pair is in no list and
 * not running; both are checked without dropping the lock in between.  Each
 * wait has dropped it, so what follows is done like a new call, with its own
 * deadline. */
int zke_forget(zke *z, zke_watch_fn fn, void *context) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, forget, z, fn, context);
  if (!fn) return base_fail(ZKE_BADARGUMENTS, "fn is NULL");
  if (txn_batch_here()) return api_misuse("zke_forget()");
  int rc = api_enter(z, NULL, API_CHANGE | API_ANY_STATE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  rc = api_forget_pair(z, fn, context);
  while (!deliver_take_back(z, fn, context)) {
    lease_begin_call(z->s, z, lock_deadline(z, host_now(z->s)));
    int again = api_forget_pair(z, fn, context);
    if (rc == ZKE_OK) rc = again;
  }
  alarm_forget(z, fn, context); /* also one that the last call has set */
  dispatch_arm(z);
  return api_leave(z, rc);
}

/* ---- waiting ---- */

/* The store's clock, which a program may have replaced (options.os). */
int64_t zke_now(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, now, z);
  return z ? host_now(z->s) / ZKE_MS : 0;
}

/* The clock of ctime and mtime.  It may be set, so nothing waits by it. */
int64_t zke_wall(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, wall, z);
  return z ? z->s->os.clock(z->s->os.context, ZKE_CLOCK_REALTIME) / ZKE_MS : 0;
}

/* The poller shows everything that ends a sleep.  Without a poller (options.os)
 * the descriptor is the FIFO, and zke_next_deadline() covers the rest. */
int zke_fd(zke *z, int *fd_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, fd, z, fd_out);
  if (!fd_out) return base_fail(ZKE_BADARGUMENTS, "fd_out is NULL");
  int rc = api_enter(z, NULL, API_CHANGE | API_ANY_STATE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  *fd_out = z->c->poller >= 0 ? z->c->poller : z->c->wake_rfd;
  return api_leave(z, ZKE_OK);
}

/* The time that the timer behind the descriptor is set to, for programs whose
 * options.os has no timer. */
int zke_next_deadline(zke *z, int64_t *deadline_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, next_deadline, z, deadline_out);
  if (!deadline_out) return base_fail(ZKE_BADARGUMENTS, "deadline_out is NULL");
  int rc = api_enter(z, NULL, API_CHANGE | API_ANY_STATE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  int64_t at = dispatch_deadline(z->c, false);
  if (z->c->poller < 0 && z->c->notice_count) {
    /* the descriptor does not show a notice of death here: poll for it */
    at = base_min(at, host_now(z->s) + TICK_DUTY);
  }
  /* Rounded up: a caller that comes at that millisecond finds it due. */
  *deadline_out =
      at > INT64_MAX - ZKE_MS ? ZKE_FOREVER : (at + ZKE_MS - 1) / ZKE_MS;
  return api_leave(z, ZKE_OK);
}

/* Fail if the session has ended and the watchers have been told. */
static int api_waitable(const zke *z) {
  bool over = z->state != SESS_ALIVE && !z->end_untold;
  return over ? sess_say_ended(z) : ZKE_OK;
}

/* Only one thread dispatches at a time, the leader.  Another thread returns
 * immediately with a count of 0, and with p->more, as it does not know what is
 * left. */
static int api_dispatch(zke *z, deliver_progress *p) {
  role_frame frame;
  int rc = api_enter(z, NULL, API_CHANGE | API_ANY_STATE | API_DISPATCH, NULL);
  if (rc != ZKE_OK) return rc;
  if (!z->c->due_count) rc = api_waitable(z); /* else others may have events */
  if (rc == ZKE_OK && role_take(z, &frame)) {
    bool alone = p->zxid < INT64_MAX && carrier_is_light(z);
    rc = alone ? dispatch_alone(z, p) : dispatch_carrier(z, false, p);
    role_release(z, &frame);
  } else {
    p->more = true;
  }
  return api_leave(z, rc);
}

/* Delivers what there is, but reads at most DELIVER_BATCHES batches of events.
 */
int zke_dispatch(zke *z, int *count_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, dispatch, z, count_out);
  deliver_progress progress = {.zxid = INT64_MAX};
  int rc = api_dispatch(z, &progress);
  if (rc == ZKE_OK && count_out) *count_out = progress.count;
  return rc;
}

/* Begins at the present turn, so only a watcher that runs from here on ends the
 * sleep. */
int zke_wait(zke *z, int64_t deadline_ms) {
  return zke_wait_turn(z, zke_turn(z), deadline_ms);
}

/* Without the lock: a turn that is read too early only ends the wait sooner. */
int64_t zke_turn(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, turn, z);
  return z ? (int64_t)atomic_load(&z->turn) : 0;
}

/* Convert a deadline by zke_now() to the store's ns.  ZKE_FOREVER, and what
 * would overflow, is never. */
static int64_t api_deadline(int64_t deadline_ms) {
  if (deadline_ms >= INT64_MAX / ZKE_MS) return INT64_MAX;
  return base_max(deadline_ms, 0) * ZKE_MS;
}

/* Waits for the lock until the deadline, even beyond the busy timeout: a wait
 * must not fail because another thread's call takes long. */
int zke_wait_turn(zke *z, int64_t turn, int64_t deadline_ms) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, wait_turn, z, turn, deadline_ms);
  int64_t until = api_deadline(deadline_ms);
  int rc = api_enter_until(z, NULL, API_CHANGE | API_ANY_STATE | API_DISPATCH,
                           NULL, until);
  if (rc != ZKE_OK) return rc;
  rc = api_waitable(z);
  if (rc == ZKE_OK) rc = wait_until(z, (uint64_t)turn, until);
  return api_leave(z, rc);
}

/* The turn wakes threads of this process that wait for the leader; the byte
 * wakes the leader, which may sleep in poll().
 *
 * This does not take the store's lock: another thread may hold it while it
 * waits for the gate or the disk.  So this uses only what is fixed at open, and
 * the carrier, which stays while the call is counted in.  No wake-up is missed.
 * The byte comes after the turn, and a leader drains the FIFO before it checks
 * the turn and sleeps.  wait_for_leader() checks the turn under the mutex. */
int zke_wake(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, wake, z);
  int rc = api_count_in(z);
  if (rc != ZKE_OK) return rc;
  const txn_batch *b = txn_batch_here();
  if (z->s->readonly)
    return api_count_out(
        z, base_fail(ZKE_READONLY, "%s was opened read-only", z->s->name));
  if (b && b->t.s != z->s)
    return api_count_out(z, api_misuse("zke_wake() on another store"));
  pthread_mutex_lock(&z->s->m);
  deliver_count_turn(z);
  pthread_mutex_unlock(&z->s->m);
  carrier_ready(z);
  wake_sleeper(z);
  return api_count_out(z, ZKE_OK);
}

/* ---- several operations: what is asked ---- */

/* The functions zke_op_…() set all members, so that members of a later version
 * are zero, as api_op_reserved() requires.  The operation points to the
 * caller's data, which must stay until the multi has returned. */
void zke_op_create(zke_op *op, const char *path, const void *data, int len,
                   const zke_acls *acls, int mode) {
  *op = (zke_op){.type = ZKE_OP_CREATE,
                 .path = path,
                 .data = data,
                 .len = len,
                 .acls = acls,
                 .mode = mode};
}

/* For a mode with a TTL.  A TTL with another mode is refused when the multi
 * runs. */
void zke_op_create_ttl(zke_op *op, const char *path, const void *data, int len,
                       const zke_acls *acls, int mode, int64_t ttl_ms) {
  *op = (zke_op){.type = ZKE_OP_CREATE,
                 .path = path,
                 .data = data,
                 .len = len,
                 .acls = acls,
                 .mode = mode,
                 .ttl_ms = ttl_ms};
}

void zke_op_delete(zke_op *op, const char *path, int version) {
  *op = (zke_op){.type = ZKE_OP_DELETE, .path = path, .version = version};
}

/* len -1 is NULL data, as in zke_set(). */
void zke_op_set(zke_op *op, const char *path, const void *data, int len,
                int version) {
  *op = (zke_op){.type = ZKE_OP_SET,
                 .path = path,
                 .data = data,
                 .len = len,
                 .version = version};
}

void zke_op_check(zke_op *op, const char *path, int version) {
  *op = (zke_op){.type = ZKE_OP_CHECK, .path = path, .version = version};
}

void zke_op_get(zke_op *op, const char *path) {
  *op = (zke_op){.type = ZKE_OP_GET, .path = path};
}

/* Its two values use members of other operations: data is the name after which
 * it begins, len the maximum number of names. */
void zke_op_children(zke_op *op, const char *path, const char *after,
                     int most) {
  *op = (zke_op){
      .type = ZKE_OP_CHILDREN, .path = path, .data = after, .len = most};
}

/* ---- several operations: what each kind does ----
 *
 * A kind of operation is one function and one line of api_op_kind().  A change
 * runs in the transaction of zke_multi(), a read in the snapshot of
 * zke_multi_read().  Their paths are full, and have been checked. */

typedef int (*api_op_change)(txn *t, const char *path, const zke_op *op,
                             zke_op_result *r);
typedef int (*api_op_read)(zke *z, const char *path, const zke_op *op,
                           zke_op_result *r);

/* What an operation does in each of the two calls; NULL: it is not allowed
 * there. */
typedef struct api_kind {
  api_op_change change;
  api_op_read read;
} api_kind;

/* The operations of zke_multi(): the checks and rows of the single calls, in
 * the transaction that all operations share.  A path is returned without the
 * chroot, as the caller gave it. */
static int api_op_create(txn *t, const char *path, const zke_op *op,
                         zke_op_result *r) {
  char *made;
  int rc = op_create(t, path, op, &made, &r->stat);
  if (rc != ZKE_OK) return rc;
  const char *visible = event_visible_path(t->z, made);
  r->path = mem_copy(&t->s->a, visible, strlen(visible));
  mem_free(made);
  return r->path ? ZKE_OK : base_nomem();
}

static int api_op_delete(txn *t, const char *path, const zke_op *op,
                         zke_op_result *r) {
  (void)r;
  return op_delete(t, path, op->version);
}

static int api_op_set(txn *t, const char *path, const zke_op *op,
                      zke_op_result *r) {
  return op_set(t, path, op, &r->stat);
}

static int api_op_check(txn *t, const char *path, const zke_op *op,
                        zke_op_result *r) {
  (void)r;
  return op_check(t, path, op->version);
}

/* The caller has decided to refuse this operation, with this code. */
static int api_op_refuse(txn *t, const char *path, const zke_op *op,
                         zke_op_result *r) {
  (void)t, (void)path, (void)r;
  return base_fail(op->version, "refused by its caller: %s",
                   zke_error_text(op->version));
}

/* The same in zke_multi_read(), where only this operation fails. */
static int api_op_refuse_read(zke *z, const char *path, const zke_op *op,
                              zke_op_result *r) {
  (void)z, (void)path;
  r->rc = op->version;
  return ZKE_OK;
}

/* Read one node.  ZKE_NONODE and ZKE_NOAUTH are answers, too, and only stand in
 * the result.  Any other failure is returned, and ends the whole call. */
static int api_op_look(zke *z, enum op_wish wish, const char *path,
                       const node_range *range, zke_op_result *r) {
  op_answer a;
  int rc = op_read(z, wish, path, range, &a);
  r->rc = rc;
  if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  r->stat = a.stat;
  r->data = a.data;
  r->len = a.len;
  r->children = a.names;
  return ZKE_OK;
}

/* The operations of zke_multi_read(). */
static int api_op_get(zke *z, const char *path, const zke_op *op,
                      zke_op_result *r) {
  (void)op;
  return api_op_look(z, OP_GET, path, &node_range_all, r);
}

static int api_op_children(zke *z, const char *path, const zke_op *op,
                           zke_op_result *r) {
  node_range range = {op->data ? op->data : "", op->len};
  return api_op_look(z, OP_CHILDREN, path, &range, r);
}

/* List what the session has not been told yet of a path.  If that is not known,
 * the result says so, and the call does not fail. */
static int api_op_untold(zke *z, const char *path, const zke_op *op,
                         zke_op_result *r) {
  untold_list u = {
      .z = z, .path = path, .most = op->len, .paths = {.a = &z->s->a}};
  int rc = untold_all(&u);
  if (rc == ZKE_OK && !u.unknown) {
    r->children = buf_strings(&u.paths, u.count);
    if (!r->children) rc = base_nomem();
  }
  buf_free(&u.paths);
  r->rc = u.unknown && rc == ZKE_OK ? ZKE_RUNTIMEINCONSISTENCY : rc;
  r->len = u.silent;
  return rc;
}

/* SQL in a multi.  The result gets the function's own code, for zke_multi(). */
static int api_op_sql(txn *t, const char *path, const zke_op *op,
                      zke_op_result *r) {
  (void)path;
  t->durable = true;
  return app_run(t->s, APP_WRITES, op->sql, op->context, t->zxid, &r->rc);
}

/* SQL in a snapshot.  If the function refuses, only this operation fails; a
 * failure that is returned ends the whole call.  In a batch it sees the batch's
 * changes, so it gets the batch's zxid: the meta row has that only at the end.
 */
static int api_op_sql_read(zke *z, const char *path, const zke_op *op,
                           zke_op_result *r) {
  const txn_batch *b = z->s->batch;
  int64_t meta[4] = {b ? b->t.zxid : 0};
  (void)path;
  int rc = b ? ZKE_OK : sql_fetch_ints(z->s, SQL_META, z->id, 4, meta);
  if (rc != ZKE_OK) return rc;
  rc = app_run(z->s, APP_READS, op->sql, op->context, meta[0], &r->rc);
  return rc == ZKE_SQL ? ZKE_OK : rc;
}

/* The kind of an operation; NULL: there is no such type.  No `default`: the
 * compiler names a type of zkembed.h that is missing here. */
static const api_kind *api_op_kind(int type) {
  static const api_kind creates = {api_op_create, NULL},
                        deletes = {api_op_delete, NULL},
                        sets = {api_op_set, NULL},
                        checks = {api_op_check, NULL},
                        gets = {NULL, api_op_get},
                        lists = {NULL, api_op_children},
                        asks = {NULL, api_op_untold},
                        queries = {api_op_sql, api_op_sql_read},
                        fails = {api_op_refuse, api_op_refuse_read};
  switch ((enum zke_op_type)type) {
    case ZKE_OP_CREATE:
      return &creates;
    case ZKE_OP_DELETE:
      return &deletes;
    case ZKE_OP_SET:
      return &sets;
    case ZKE_OP_CHECK:
      return &checks;
    case ZKE_OP_GET:
      return &gets;
    case ZKE_OP_CHILDREN:
      return &lists;
    case ZKE_OP_UNTOLD:
      return &asks;
    case ZKE_OP_FAIL:
      return &fails;
    case ZKE_OP_SQL:
      return &queries;
  }
  return NULL;
}

/* ---- several operations: the calls ---- */

/* A running multi.  Results are its own until the end: the caller's array is
 * written once, or not at all. */
typedef struct api_multi {
  const zke_op *ops;
  int count, refused; /* index of the refused operation, or -1 */
  int code;           /* the code of a function that has refused */
  zke_op_result *results;
} api_multi;

/* Only a sequential create may have a path that ends like a prefix. */
static unsigned api_op_flags(const zke_op *op) {
  bool sequential =
      op->type == ZKE_OP_CREATE && op_mode_is_sequential(op->mode);
  return API_CHANGE | (sequential ? API_SEQUENTIAL : 0u);
}

/* Do one operation of a multi inside its transaction. */
static int api_multi_step(txn *t, const zke_op *op, zke_op_result *r) {
  const char *path;
  const api_kind *kind = api_op_kind(op->type);
  int rc = api_path(t->z, op->path, api_op_flags(op), &path);
  /* api_multi_check() has checked both, and made room for the longest */
  if (NEVER(!kind || !kind->change))
    return base_fail(ZKE_BADARGUMENTS, "type %d", op->type);
  if (NEVER(rc != ZKE_OK)) return rc;
  rc = kind->change(t, path, op, r);
  if (rc != ZKE_OK || t->acl_bytes <= ACL_MULTI_MOST) return rc;
  return base_fail(ZKE_INVALIDACL,
                   "the ACLs of a multi have more than %d bytes together",
                   (int)ACL_MULTI_MOST);
}

/* Do all operations of a multi, up to the first that is refused. */
static int api_multi_body(txn *t, void *arg) {
  api_multi *m = arg;
  int rc = txn_number(t); /* an empty multi has its zxid too */
  t->acl_bytes = 0;       /* a batch may have others' */
  for (int i = 0; i < m->count && rc == ZKE_OK; i++) {
    rc = api_multi_step(t, &m->ops[i], &m->results[i]);
    if (rc != ZKE_OK) m->refused = i;
    if (rc == ZKE_SQL) m->code = m->results[i].rc;
  }
  return rc;
}

/* Can an operation be refused with this code?  Only if the code is about the
 * operation, and not about the outcome of the whole transaction. */
static bool api_is_refusal(int rc) {
  return rc == ZKE_BADARGUMENTS || rc == ZKE_MARSHALLINGERROR ||
         rc == ZKE_UNIMPLEMENTED || (rc <= -100 && rc > -200);
}

/* Refuse what only a later version knows (zkembed.h), a refusal with a code for
 * which api_is_refusal() is false, and SQL without a function. */
static int api_op_reserved(const zke_op *op, int i) {
  if (op->type == ZKE_OP_FAIL && !api_is_refusal(op->version)) {
    return base_fail(ZKE_BADARGUMENTS,
                     "operation %d cannot be refused with the code %d", i,
                     op->version);
  }
  if (op->type == ZKE_OP_SQL && !op->sql)
    return base_fail(ZKE_BADARGUMENTS, "operation %d: fn is NULL", i);
  int64_t set = op->reserved_int;
  for (size_t k = 0; k < sizeof op->reserved / sizeof *op->reserved; k++)
    set |= op->reserved[k];
  if (!set) return ZKE_OK;
  return base_fail(ZKE_BADARGUMENTS,
                   "operation %d: a reserved member is not zero: fill it by "
                   "zke_op_create() and the like, or the library is older "
                   "than the header",
                   i);
}

/* Check the i-th operation of a multi, as far as that is possible without the
 * tree.  A malformed path is ZKE_MARSHALLINGERROR here, as in ZooKeeper's
 * client. */
static int api_multi_check_op(zke *z, const zke_op *op, int i) {
  const char *path;
  const api_kind *kind = api_op_kind(op->type);
  if (!kind || !kind->change)
    return base_fail(ZKE_BADARGUMENTS, "operation %d: type %d", i, op->type);
  int rc = api_op_reserved(op, i);
  if (rc != ZKE_OK) return rc;
  rc = api_path(z, op->path, api_op_flags(op), &path);
  if (rc == ZKE_NOMEM) return rc;
  if (rc != ZKE_OK) return ZKE_MARSHALLINGERROR;
  if (op->type == ZKE_OP_CREATE) rc = api_mode(op);
  if (rc == ZKE_OK) rc = api_length(op->data, op->len);
  return rc == ZKE_OK ? api_limit(z, op->len) : rc;
}

/* Check all operations before anything is done.  *hint: the class of the
 * transaction, as far as it can be known. */
static int api_multi_check(zke *z, const zke_op *ops, int count,
                           enum txn_class *hint) {
  int64_t sum = 0;
  *hint = TXN_NORMAL;
  for (int i = 0; i < count; i++) {
    const zke_op *op = &ops[i];
    int rc = api_multi_check_op(z, op, i);
    if (rc != ZKE_OK) return rc;
    sum += base_max(op->len, 0);
    if (op->type == ZKE_OP_CREATE && !op_mode_is_ephemeral(op->mode))
      *hint = TXN_FULL;
    if (op->type == ZKE_OP_SQL) *hint = TXN_FULL;
    bool old = op->type == ZKE_OP_SET || op->type == ZKE_OP_DELETE;
    if (old && z->last == TXN_FULL) *hint = TXN_FULL;
  }
  if (sum > z->s->data_limit) {
    return base_fail(ZKE_BADARGUMENTS,
                     "%lld bytes in one multi, the limit is %d", (long long)sum,
                     z->s->data_limit);
  }
  return ZKE_OK;
}

/* Enter for a multi.  If the session has ended, the result is
 * ZKE_MARSHALLINGERROR, as in ZooKeeper's client. */
static int api_enter_multi(zke *z, const zke_op *ops, int count,
                           unsigned flags) {
  if (count < 0 || (count && !ops))
    return api_refuse_arguments("%d operations%s", count,
                                count < 0 ? "" : ", but ops is NULL");
  int rc = api_enter(z, NULL, flags, NULL);
  bool ended = rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED;
  return ended ? ZKE_MARSHALLINGERROR : rc;
}

int zke_multi(zke *z, const zke_op *ops, int count, zke_op_result *results) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, multi, z, ops, count, results);
  enum txn_class hint;
  int rc = api_enter_multi(z, ops, count, API_CHANGE | API_BATCH);
  if (rc != ZKE_OK) return rc;
  rc = api_multi_check(z, ops, count, &hint);
  if (rc != ZKE_OK) return api_leave(z, rc);
  api_multi m = {ops, count, -1, ZKE_OK, NULL};
  m.results = mem_zero(&z->s->a, ((size_t)count + 1) * sizeof(zke_op_result));
  if (!m.results) return api_leave(z, base_nomem());
  rc = api_change(z, hint, api_multi_body, &m);
  if (rc == ZKE_SQL && m.code) rc = m.code;
  bool refused = rc != ZKE_OK && rc != ZKE_CONNECTIONLOSS && m.refused >= 0;
  if (refused) {
    /* those before the refused one get 0: they would have succeeded
     * (semantics.md 4) */
    zke_results_clear(m.results, count);
    for (int i = m.refused; i < count; i++)
      m.results[i].rc = i == m.refused ? rc : ZKE_RUNTIMEINCONSISTENCY;
  }
  if (results && (rc == ZKE_OK || refused)) {
    if (count) memcpy(results, m.results, (size_t)count * sizeof *results);
  } else {
    zke_results_clear(m.results, count);
  }
  mem_free(m.results);
  return api_leave(z, rc);
}

/* Check all operations before anything is read, as ZooKeeper's client does: one
 * malformed operation fails the whole call. */
static int api_multi_read_check(zke *z, const zke_op *ops, int count) {
  for (int i = 0; i < count; i++) {
    const char *path;
    const api_kind *kind = api_op_kind(ops[i].type);
    if (!kind || !kind->read) {
      return base_fail(ZKE_MARSHALLINGERROR, "operation %d: type %d", i,
                       ops[i].type);
    }
    int rc = api_op_reserved(&ops[i], i);
    if (rc != ZKE_OK) return rc;
    if (ops[i].len < 0)
      return base_fail(ZKE_BADARGUMENTS, "operation %d: at most %d", i,
                       ops[i].len);
    rc = api_path(z, ops[i].path, 0, &path);
    if (rc == ZKE_BADARGUMENTS) rc = ZKE_MARSHALLINGERROR;
    if (rc != ZKE_OK) return rc;
  }
  return ZKE_OK;
}

/* Do one operation of a multi_read inside its snapshot. */
static int api_multi_read_step(zke *z, const zke_op *op, zke_op_result *r) {
  const char *path;
  const api_kind *kind = api_op_kind(op->type);
  int rc = api_path(z, op->path, 0, &path);
  /* api_multi_read_check() has checked both, and made room */
  if (NEVER(!kind || !kind->read))
    return base_fail(ZKE_BADARGUMENTS, "type %d", op->type);
  if (NEVER(rc != ZKE_OK)) return rc;
  return kind->read(z, path, op, r);
}

/* The memory of a result: of its value, or of its names and the pointers to
 * them. */
static int64_t api_result_bytes(const zke_op_result *r) {
  int64_t bytes = r->data ? r->len : 0;
  for (int i = 0; r->children && i < r->children->count; i++)
    bytes += (int64_t)(strlen(r->children->data[i]) + 1 + sizeof(char *));
  return bytes;
}

/* Do the operations of a multi_read in its snapshot.  Results beyond the limit
 * fail the call. */
static int api_multi_read_all(zke *z, const zke_op *ops, int count,
                              zke_op_result *made) {
  int64_t bytes = 0;
  int rc = ZKE_OK;
  for (int i = 0; i < count && rc == ZKE_OK; i++) {
    rc = api_multi_read_step(z, &ops[i], &made[i]);
    if (!z->read_limit || rc != ZKE_OK) continue;
    bytes += api_result_bytes(&made[i]);
    if (bytes > z->read_limit) {
      rc = base_fail(ZKE_BADARGUMENTS,
                     "results of more than %lld bytes in one multi_read",
                     (long long)z->read_limit);
    }
  }
  return rc;
}

/* All operations are answered from one snapshot, under SQLite's read lock: a
 * read without locks cannot span several. */
int zke_multi_read(zke *z, const zke_op *ops, int count,
                   zke_op_result *results) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, multi_read, z, ops, count, results);
  if (count > 0 && !results) return api_refuse_arguments("results is NULL");
  int rc = api_enter_multi(z, ops, count, API_READ | API_BATCH);
  if (rc != ZKE_OK) return rc;
  rc = api_multi_read_check(z, ops, count);
  if (rc == ZKE_OK) rc = api_lose_read(z);
  if (rc == ZKE_OK) rc = api_begin_locked(z);
  if (rc == ZKE_SESSIONEXPIRED) rc = ZKE_MARSHALLINGERROR;
  if (rc != ZKE_OK) return api_leave(z, rc);
  zke_op_result *made = mem_zero(&z->s->a, ((size_t)count + 1) * sizeof *made);
  rc = made ? api_multi_read_all(z, ops, count, made) : base_nomem();
  api_end_locked(z);
  if (rc == ZKE_OK && count)
    memcpy(results, made, (size_t)count * sizeof *results);
  else
    zke_results_clear(made, made ? count : 0);
  mem_free(made);
  return api_leave(z, rc);
}

/* Also zeroes every result, so that clearing twice does no harm. */
void zke_results_clear(zke_op_result *results, int count) {
  for (int i = 0; results && i < count; i++) {
    mem_free(results[i].path);
    mem_free(results[i].data);
    mem_free(results[i].children);
    memset(&results[i], 0, sizeof results[i]);
  }
}

/* ---- access control lists ---- */

/* Add the digest identity of "user:password", once.  A name with a NUL is
 * refused, since it could not be told from a shorter one later. */
static int api_add_digest(zke *z, const char *cert, size_t len) {
  const char *colon = memchr(cert, ':', len);
  if (memchr(cert, '\0', colon ? (size_t)(colon - cert) : len))
    return base_fail(ZKE_BADARGUMENTS, "a NUL in the user's name");
  char *id = auth_identity(&z->s->a, cert, len);
  if (!id) return base_nomem();
  int rc = acl_add_identity(&z->who, "digest", id);
  mem_free(id);
  return rc;
}

/* Only the handle has the identities, like a connection of ZooKeeper.  An
 * unknown scheme fails the session for good, as in ZooKeeper. */
int zke_add_auth(zke *z, const char *scheme, const char *cert, int len) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, add_auth, z, scheme, cert, len);
  if (!scheme) return base_fail(ZKE_BADARGUMENTS, "scheme is NULL");
  if (len < 0 || (len && !cert))
    return base_fail(ZKE_BADARGUMENTS, "cert of length %d", len);
  int rc = api_enter(z, NULL, API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  if (strcmp(scheme, "digest") != 0) {
    z->state = SESS_AUTH_FAILED;
    z->end_untold = true;
    if (!z->s->readonly) wake_self(z);
    return api_leave(z, base_fail(ZKE_AUTHFAILED,
                                  "unknown authentication scheme %s", scheme));
  }
  return api_leave(z, api_add_digest(z, cert ? cert : "", (size_t)len));
}

/* A read like any other: list and Stat are of one moment. */
int zke_get_acl(zke *z, const char *path, zke_acls **acls_out,
                zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, get_acl, z, path, acls_out, stat_out);
  api_reading r = {.wish = OP_ACL};
  int rc = api_read(z, path, &r);
  if (rc != ZKE_OK) return rc;
  if (acls_out)
    *acls_out = r.answer.acls;
  else
    mem_free(r.answer.acls);
  if (stat_out) *stat_out = r.answer.stat;
  return api_leave(z, ZKE_OK);
}

typedef struct api_set_acl {
  const char *path;
  int version;
  const zke_acls *acls;
  zke_stat stat;
} api_set_acl;

/* The body of zke_set_acl()'s transaction. */
static int api_set_acl_body(txn *t, void *arg) {
  api_set_acl *c = arg;
  return op_set_acl(t, c->path, c->version, c->acls, &c->stat);
}

/* The class is guessed as for zke_set(): an ephemeral node's ACL need not be
 * synced. */
int zke_set_acl(zke *z, const char *path, int version, const zke_acls *acls,
                zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, set_acl, z, path, version, acls, stat_out);
  api_set_acl c = {NULL, version, acls, {0}};
  int rc = api_enter(z, path, API_CHANGE | API_BATCH, &c.path);
  if (rc != ZKE_OK) return rc;
  rc = api_change(z, z->last, api_set_acl_body, &c);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return api_leave(z, rc);
}

/* ---- for layers between a program and the library ---- */

/* A batch has ended, with rc: finish what waited for that, and free it.
 * Registrations are finished in the order of their calls, so that a later mode
 * on a path replaces an earlier one. */
static void api_conclude_batch(txn_batch *b, int rc) {
  size_t count = b->watches.len / sizeof(api_pending);
  api_pending *pending = (api_pending *)(void *)b->watches.data;
  for (size_t i = 0; i < count; i++) api_conclude(&pending[i], rc);
  zke **members = (zke **)(void *)b->members.data;
  for (size_t i = 0; i < b->members.len / sizeof(zke *); i++) {
    discard_end_batch(members[i], rc);
    dispatch_arm(members[i]);
  }
  buf_free(&b->watches);
  buf_free(&b->members);
}

/* The function has ended its thread instead of returning: undo the batch, and
 * release what its call holds. */
static void api_leave_batch(void *arg) {
  txn_batch *b = arg;
  if (fork_is_copy(b->t.s)) return;
  int rc = txn_end_batch(b, ZKE_CANCELLED);
  api_conclude_batch(b, rc);
  api_leave(b->z, rc);
}

/* Call the function, and return its result.  Its calls find this thread's batch
 * by txn_batch_here(). */
static int api_call_batch(txn_batch *b, zke_batch_fn fn, void *context) {
  int rc;
  pthread_cleanup_push(api_leave_batch, b);
  rc = fn(b->z, context);
  pthread_cleanup_pop(0);
  return rc;
}

/* zke_batch() with the lock held.  If a test wants the reply lost before the
 * change, the function runs, but its changes are undone. */
static int api_batch(zke *z, zke_batch_fn fn, void *context) {
  txn_batch b;
  int fail = api_count_change(z);
  int rc = txn_begin_batch(&b, z);
  if (rc != ZKE_OK) return fail ? api_lose_reply() : rc;
  rc = api_call_batch(&b, fn, context);
  if (fork_is_copy(z->s)) { /* the transaction is the parent's */
    txn_here = NULL;
    return ZKE_FORKED;
  }
  if (fail == ZKE_TEST_FAIL_BEFORE) txn_break(&b, api_lose_reply());
  rc = txn_end_batch(&b, rc);
  api_conclude_batch(&b, rc);
  return fail ? api_lose_reply() : rc;
}

/* The store's lock and the gate are held while the function runs, so other
 * threads and processes see the state before it or after it, never one in
 * between. */
int zke_batch(zke *z, zke_batch_fn fn, void *context) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, batch, z, fn, context);
  if (!fn) return api_refuse_arguments("fn is NULL");
  int rc = api_enter(z, NULL, API_CHANGE, NULL);
  return rc == ZKE_OK ? api_leave(z, api_batch(z, fn, context)) : rc;
}

/* A thread that asks once will ask again: from here on its reads look up their
 * zxid. */
int64_t zke_zxid(void) {
  base_zxid_wanted = true;
  return base_zxid;
}

/* The sentence is first made in a buffer: zke_errmsg(), which it replaces, may
 * be among the arguments. */
int zke_fail(int rc, const char *format, ...) {
  char sentence[BASE_SENTENCE];
  va_list ap;
  va_start(ap, format);
  vsnprintf(sentence, sizeof sentence, format, ap);
  va_end(ap);
  base_restore(sentence);
  return rc;
}

/* For the recipes' options, which grow by the same rule as the library's. */
int zke_take_options(const void *given, void *out, size_t size,
                     const char *name) {
  return base_take(given, out, size, name);
}

/* Note a node that must be discarded, in any state of the handle.  The chroot
 * is added here and not by api_path(): that uses a buffer of the call that has
 * the store's lock, which this call does not have yet.  As there, "/" below a
 * chroot is the chroot's node.  Note and path are one block, so that one
 * allocation decides whether there is a note. */
static int api_note_discard(zke *z, const char *path, bool sequential,
                            int64_t czxid) {
  size_t size = z->chroot_len + strlen(path) + 1;
  discard *d = mem_zero(&z->s->a, sizeof *d + size);
  if (!d) return base_nomem();
  char *whole = (char *)(d + 1);
  bool root = z->chroot_len && !sequential && path[1] == '\0';
  snprintf(whole, size, "%s%s", z->chroot, root ? "" : path);
  d->session = z->id;
  d->czxid = czxid;
  d->sequential = sequential;
  d->path = whole;
  discard_push(z, d);
  return ZKE_OK;
}

/* There is no memory for a note: remove the node immediately.  If that fails,
 * too, the session must end, with all that it owns.  In a batch the removal is
 * not tried, since the batch may be undone, and the session must end. */
static int api_discard_now(zke *z, const char *path, bool sequential,
                           int64_t czxid) {
  discard d = {.session = z->id, .czxid = czxid, .sequential = sequential};
  unsigned flags = API_CHANGE | (sequential ? API_SEQUENTIAL : 0u);
  int rc = base_nomem();
  if (!txn_batch_here()) rc = api_enter(z, path, flags, &d.path);
  if (rc == ZKE_OK)
    rc = api_leave(z, api_change(z, TXN_NORMAL, discard_body, &d));
  if (rc != ZKE_OK) {
    atomic_store(&z->doomed, true);
    atomic_store(&z->owes, true);
  }
  return rc;
}

/* Remove the nodes that have been noted. */
static int api_discard_noted(zke *z) {
  int rc = api_enter(z, NULL, API_CHANGE | API_DISCARD | API_BATCH, NULL);
  if (rc != ZKE_OK) return rc;
  discard *first = discard_first(z);
  if (first) /* else another thread's call has removed it */
    rc = api_change(z, TXN_NORMAL, discard_body, first);
  return api_leave(z, discard_conclude(z, first, rc));
}

/* The note comes first, and no error of the file can make it fail.  Then the
 * removal is tried.  If anything stops it, later calls act on the note.  If the
 * process dies, its session ends, and the nodes with it. */
int zke_discard(zke *z, const char *path, int mode, int64_t czxid) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, discard, z, path, mode, czxid);
  bool sequential = mode == ZKE_EPHEMERAL_SEQUENTIAL;
  base_zxid = 0;
  if (!z) return base_fail(ZKE_BADARGUMENTS, "the handle is NULL");
  if (fork_is_copy(z->s)) return api_forked(z->s);
  if (z->s->readonly)
    return base_fail(ZKE_READONLY, "%s was opened read-only", z->s->name);
  if (!op_mode_is_ephemeral(mode) || !path_check(path, sequential)) {
    return base_fail(ZKE_BADARGUMENTS, "mode %d, path %s", mode,
                     path ? path : "(NULL)");
  }
  txn_batch *b = txn_batch_here();
  if (b && b->t.s != z->s) return api_misuse("zke_discard() on another store");
  os_cancel_off();
  atomic_fetch_add(&z->calls, 1);
  if (atomic_load(&z->closing)) {
    return api_count_out(z,
                         base_fail(ZKE_CLOSING, "the handle is being closed"));
  }
  int rc = api_note_discard(z, path, sequential, czxid);
  rc = rc == ZKE_OK ? api_discard_noted(z)
                    : api_discard_now(z, path, sequential, czxid);
  if (rc != ZKE_OK && rc != ZKE_FORKED)
    wake_sleeper(z); /* so that a sleeping thread tries again */
  return api_count_out(z, rc);
}

/* The arguments and the result of zke_raise_sequence(). */
typedef struct api_raise {
  const char *path;
  int next;
  zke_stat stat;
} api_raise;

/* The body of zke_raise_sequence()'s transaction. */
static int api_raise_body(txn *t, void *arg) {
  api_raise *c = arg;
  return op_raise_sequence(t, c->path, c->next, &c->stat);
}

/* A raise is synced: otherwise a number that a power cut takes back could be
 * given again. */
int zke_raise_sequence(zke *z, const char *path, int next, zke_stat *stat_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, raise_sequence, z, path, next, stat_out);
  api_raise c = {NULL, next, {0}};
  if (next < 0) return api_refuse_arguments("the number %d", next);
  int rc = api_enter(z, path, API_CHANGE | API_BATCH, &c.path);
  if (rc != ZKE_OK) return rc;
  rc = api_change(z, TXN_FULL, api_raise_body, &c);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return api_leave(z, rc);
}

void zke_op_untold(zke_op *op, const char *path, int most) {
  *op = (zke_op){.type = ZKE_OP_UNTOLD, .path = path, .len = most};
}

/* The path is the root, which every check of paths accepts. */
void zke_op_fail(zke_op *op, int rc) {
  *op = (zke_op){.type = ZKE_OP_FAIL, .path = "/", .version = rc};
}

/* If the first alarm is now earlier, this wakes a thread that sleeps, or a
 * program that polls only the descriptor: the next dispatch sets the timer.  A
 * thread that is dispatching sets it at the end. */
int zke_call_at(zke *z, int64_t when_ms, zke_watch_fn fn, void *context) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, call_at, z, when_ms, fn, context);
  bool sooner;
  if (!fn) return base_fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = api_count_in(z);
  if (rc != ZKE_OK) return rc;
  if (z->s->readonly)
    rc = base_fail(ZKE_READONLY, "%s was opened read-only", z->s->name);
  if (rc == ZKE_OK)
    rc = alarm_set(z, fn, context, api_deadline(when_ms), &sooner);
  if (rc == ZKE_OK && sooner && !role_is_ours(z->c)) wake_sleeper(z);
  return api_count_out(z, rc);
}

/* The lock is not held in the sleep, so other threads may use the handle.  A
 * long call of theirs keeps the lease meanwhile, and does not delay this call
 * beyond its deadline. */
int zke_sleep(zke *z, int64_t deadline_ms) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, sleep, z, deadline_ms);
  if (txn_batch_here()) return api_misuse("zke_sleep()");
  int rc = api_count_in(z);
  if (rc != ZKE_OK) return rc;
  if (app_is_inside()) return api_count_out(z, api_not_here());
  store *s = z->s;
  int64_t until = api_deadline(deadline_ms), left;
  while ((left = until - host_now(s)) > 0) {
    if (z->lease) {
      if (lock_take(s, until)) {
        lease_stamp(z);
        lock_drop(s);
      }
      /* the wait for the lock may have taken some time, or all */
      left = base_min(until - host_now(s), z->lease / LEASE_RENEWALS + 1);
    }
    if (left > 0) s->os.sleep(s->os.context, left);
  }
  return api_count_out(z, ZKE_OK);
}

/* The limit is the thread's, not the handle's: other threads have their own. */
int64_t zke_limit(zke *z, int64_t deadline_ms) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, limit, z, deadline_ms);
  int64_t was = z && lock_is_limited(z) ? lock_limit.until : ZKE_FOREVER;
  lock_limit.z = deadline_ms == ZKE_FOREVER ? NULL : z;
  lock_limit.serial = z ? z->serial : 0;
  lock_limit.until = deadline_ms;
  return was;
}

/* Fixed at open, so no lock is needed. */
int64_t zke_busy_timeout(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, busy_timeout, z);
  return z ? z->s->busy / ZKE_MS : 0;
}

/* ---- for servers ---- */

/* Like zke_open_session(), but the session has a row already. */
int zke_attach(zke *z, int64_t session, const unsigned char password[16],
               const zke_options *options, zke **z_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, attach, z, session, password, options, z_out);
  store_adding a = {.o = options, .session = session, .password = password};
  if (!z_out) return base_fail(ZKE_BADARGUMENTS, "z_out is NULL");
  *z_out = NULL;
  if (session <= 0 || !password)
    return base_fail(ZKE_BADARGUMENTS, "no session or no password");
  return api_add_session(z, a, z_out);
}

/* The row keeps the present time, from which the timeout counts. */
int zke_detach(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, detach, z);
  if (!z) return base_fail(ZKE_BADARGUMENTS, "the handle is NULL");
  if (!z->timeout)
    return base_fail(ZKE_BADARGUMENTS, "the session is not a kept one");
  return api_close_once(z, SESS_DETACH);
}

/* Fixed at open. */
int zke_password(zke *z, unsigned char out[16]) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, password, z, out);
  if (!z || !out)
    return base_fail(ZKE_BADARGUMENTS, "the handle or out is NULL");
  if (!z->timeout)
    return base_fail(ZKE_BADARGUMENTS, "the session is not a kept one");
  memcpy(out, z->password, SESS_PASSWORD);
  return ZKE_OK;
}

/* Does not take the store's lock: a server that touches one client's session
 * never waits for another client's change. */
int zke_touch(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, touch, z);
  int rc = api_count_in(z);
  if (rc != ZKE_OK) return rc;
  carrier_touch(z);
  return api_count_out(z, ZKE_OK);
}

/* INT64_MAX: no time that has passed counts for a detached session any more. */
int zke_rearm(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, rearm, z);
  int rc = api_enter(z, NULL, API_CHANGE | API_LOOK, NULL);
  if (rc != ZKE_OK) return rc;
  return api_leave(z, kept_rearm(z->s, INT64_MAX));
}

/* A duplicate shares the open file description, and with it the lock that keeps
 * the session alive.  The session lasts until both descriptors are closed. */
int zke_keepalive_fd(zke *z, int *fd_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, keepalive_fd, z, fd_out);
  if (!fd_out) return base_fail(ZKE_BADARGUMENTS, "fd_out is NULL");
  int rc = api_enter(z, NULL, API_CHANGE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  if (z->s->memory) {
    rc = base_fail(ZKE_UNIMPLEMENTED,
                   "a session in memory cannot outlive its process");
  } else if (carrier_is_light(z)) {
    rc = base_fail(ZKE_UNIMPLEMENTED, "a light session has no lock of its own");
  } else {
    int fd = z->s->os.dup(z->s->os.context, z->c->live_fd);
    if (fd >= 0)
      *fd_out = fd;
    else
      rc = host_fail(fd, "cannot duplicate", z->s->live);
  }
  return api_leave_light(z, rc);
}

/* Can a program vouch for this?  A scheme's name must fit into an entry's line
 * (acl_next()).  The schemes world and auth name no user. */
static int api_check_vouch(const char *scheme, const char *id) {
  size_t len = strlen(scheme);
  if (!len || len >= ACL_SCHEME || strpbrk(scheme, ":\n") ||
      strcmp(scheme, "world") == 0 || strcmp(scheme, "auth") == 0) {
    return base_fail(ZKE_BADARGUMENTS, "nobody can vouch for the scheme \"%s\"",
                     scheme);
  }
  if (!id || strcmp(scheme, "digest") != 0 || acl_digest_valid(id))
    return ZKE_OK;
  return base_fail(ZKE_BADARGUMENTS, "%s is no id of scheme digest", id);
}

/* The scheme is noted first: it must be valid in lists before scheme auth can
 * stand for the identity. */
int zke_vouch(zke *z, const char *scheme, const char *id) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, vouch, z, scheme, id);
  if (!scheme) return base_fail(ZKE_BADARGUMENTS, "scheme is NULL");
  int rc = api_check_vouch(scheme, id);
  if (rc == ZKE_OK) rc = api_enter(z, NULL, API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  rc = acl_add_scheme(&z->s->schemes, scheme);
  if (rc == ZKE_OK && id) rc = acl_add_identity(&z->who, scheme, id);
  return api_leave(z, rc);
}

void zke_digest(const char *cert, int len, char out[ZKE_DIGEST_SIZE]) {
  auth_digest(cert && len > 0 ? cert : "", cert && len > 0 ? (size_t)len : 0,
              out);
}

/* Each check uses the identities that the handle has at that moment, so nothing
 * else must be cleared. */
int zke_clear_auth(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, clear_auth, z);
  int rc = api_enter(z, NULL, API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  acl_clear(&z->who);
  return api_leave(z, ZKE_OK);
}

/* Under SQLite's read lock, like zke_count().  node_count() and node_below()
 * count what is below the node; the node itself is added here. */
int zke_usage(zke *z, const char *path, int64_t *count_out,
              int64_t *bytes_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, usage, z, path, count_out, bytes_out);
  op_answer a = {0};
  const char *full;
  int64_t count = 0, bytes = 0;
  int rc = api_enter(z, path, API_READ | API_BATCH, &full);
  if (rc != ZKE_OK) return rc;
  rc = api_lose_read(z);
  if (rc == ZKE_OK) rc = api_begin_locked(z);
  if (rc == ZKE_OK) {
    rc = op_read(z, OP_STAT, full, &node_range_all, &a);
    if (rc == ZKE_OK) rc = node_count(z->s, full, &count);
    if (rc == ZKE_OK) rc = node_below(z->s, SQL_NODE_BYTES, full, &bytes);
    api_end_locked(z);
  }
  if (rc == ZKE_OK && count_out) *count_out = count + 1;
  if (rc == ZKE_OK && bytes_out) *bytes_out = bytes + a.stat.dataLength;
  return api_leave(z, rc);
}

/* The event that a watch set at an earlier zxid would have had; 0: none.  Only
 * the present state is known: a node that was deleted and created again counts
 * as changed (semantics.md 5.9). */
static int api_missed(const api_reading *r) {
  if (r->type == ZKE_WATCH_EXIST) return r->missing ? 0 : ZKE_EVENT_CREATED;
  if (r->missing) return ZKE_EVENT_DELETED;
  const zke_stat *stat = &r->answer.stat;
  if (r->type == ZKE_WATCH_DATA)
    return stat->mzxid > r->since ? ZKE_EVENT_CHANGED : 0;
  return stat->pzxid > r->since ? ZKE_EVENT_CHILD : 0;
}

/* Find what was missed, and register the watcher or give it its event, in one
 * transaction: later changes find the row. */
static int api_set_watch_body(txn *t, void *arg) {
  api_reading *r = arg;
  unsigned tables =
      1u << (r->type == ZKE_WATCH_CHILD ? WATCH_TABLE_CHILD : WATCH_TABLE_DATA);
  int rc = op_read(t->z, OP_EXISTS, r->path, &node_range_all, &r->answer);
  r->missing = rc == ZKE_NONODE;
  if (rc != ZKE_OK && !r->missing) return rc;
  int type = api_missed(r);
  if (type) {
    r->owner = 0; /* it needs no notice of death */
    rc = watcher_prepare_fired(t, r->path, tables, r->fn, r->context, type,
                               &r->entry);
  } else {
    rc = api_find_owner(t, r);
    if (rc == ZKE_OK)
      rc = watcher_prepare(t, r->path, WATCH_ONE_SHOT, tables, r->fn,
                           r->context, &r->entry);
  }
  if (rc == ZKE_OK) api_register(t, &r->entry, r->owner, -1);
  return rc;
}

/* One transaction, as for a read with a watch. */
int zke_set_watch(zke *z, const char *path, int type, int64_t zxid,
                  zke_watch_fn fn, void *context) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, set_watch, z, path, type, zxid, fn, context);
  api_reading r = {.fn = fn, .context = context, .type = type, .since = zxid};
  if (!fn) return api_refuse_arguments("fn is NULL");
  int rc = api_enter(z, path, API_CHANGE | API_BATCH, &r.path);
  if (rc != ZKE_OK) return rc;
  if (type != ZKE_WATCH_DATA && type != ZKE_WATCH_CHILD &&
      type != ZKE_WATCH_EXIST) {
    return api_leave(
        z, base_fail(ZKE_BADARGUMENTS, "unknown watch type %d", type));
  }
  return api_leave(z, api_watch_by(z, api_set_watch_body, &r));
}

/* Asks the handle's memory.  An event that has fired the watch, but is not
 * dispatched yet, has not ended the watch for the caller. */
int zke_check_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                    void *context) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, check_watch, z, path, type, fn, context);
  api_watchers of;
  const char *full;
  int rc = api_enter(z, path, API_CHANGE | API_LIGHT, &full);
  if (rc != ZKE_OK) return rc;
  return api_leave(z, api_find_watchers(z, full, type, fn, context, &of));
}

/* Under the store's lock, so that a dispatch reads the two together. */
int zke_set_watcher(zke *z, zke_watch_fn fn, void *context) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, set_watcher, z, fn, context);
  int rc = api_enter(z, NULL, API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  z->watcher = fn;
  z->watcher_context = context;
  return api_leave(z, ZKE_OK);
}

/* Looks at the clock, and polls what a sleep would, but does not read the file.
 * So it may say yes though there is nothing to call. */
int zke_pending(zke *z, int *pending_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, pending, z, pending_out);
  if (!pending_out) return base_fail(ZKE_BADARGUMENTS, "pending_out is NULL");
  int rc = api_enter(z, NULL, API_CHANGE | API_ANY_STATE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  *pending_out = wait_has_work(z);
  return api_leave(z, ZKE_OK);
}

/* A light session is dispatched alone, since the bound is for its events. */
int zke_dispatch_to(zke *z, int64_t zxid, int *count_out, int *more_out) {
  if (ENGINE_IS_OTHER(z))
    return ENGINE_CALL(z, dispatch_to, z, zxid, count_out, more_out);
  deliver_progress progress = {.zxid = zxid};
  int rc = api_dispatch(z, &progress);
  if (rc == ZKE_OK && count_out) *count_out = progress.count;
  if (rc == ZKE_OK && more_out) *more_out = progress.more;
  return rc;
}

/* The innermost calls are about the event of the watcher that runs: only the
 * thread with the role makes calls, and that thread is asking. */
int64_t zke_event_zxid(zke *z) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_ASK(z, event_zxid, z);
  if (!z || !role_is_inside(z) || !z->calling || !z->calling->e) return 0;
  return z->calling->e->zxid;
}

/* ---- the program's own data ---- */

/* The path is the root, as in zke_op_fail(). */
void zke_op_sql(zke_op *op, zke_sql_fn fn, void *context) {
  *op =
      (zke_op){.type = ZKE_OP_SQL, .path = "/", .sql = fn, .context = context};
}

/* Refuse a connection that is zkembed's own, or to another file than the
 * store's.  If the system does not say which file it is, return that error. */
static int api_check_guest(store *s, sqlite3 *db) {
  const char *file = db ? sqlite3_db_filename(db, "main") : NULL;
  zke_file f;
  if (!db) return base_fail(ZKE_BADARGUMENTS, "the connection is NULL");
  if (db == s->db)
    return base_fail(ZKE_BADARGUMENTS, "the connection is zkembed's own");
  int rc = s->memory || !file ? -ENOENT : host_stat(s, file, &f);
  if (rc == 0 && host_same_file(&f, &s->file_id)) return ZKE_OK;
  if (rc < 0 && rc != -ENOENT) return host_fail(rc, "cannot stat", file);
  return base_fail(ZKE_BADARGUMENTS,
                   "%s: the connection is to another file: %s", s->name,
                   file && *file ? file : "in memory");
}

/* Begins no transaction; zke_sql_begin() does.  The call is light, since it
 * works in a batch and does not use the store's connection.  But it does I/O
 * for the program's connection: the stat of its file, and its PRAGMA may read
 * the schema.  If another connection has locked the file, that waits for the
 * busy timeout, with the store's lock held. */
int zke_sql_adopt(zke *z, struct sqlite3 *db) {
  if (ENGINE_IS_OTHER(z)) return engine_lacks(z->engine, __func__);
  int rc = api_enter(z, NULL, API_CHANGE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  rc = api_check_guest(z->s, db);
  if (rc == ZKE_OK) rc = app_adopt(z->s, db);
  return api_leave_light(z, rc);
}

/* The guest's transaction now keeps all other writers out.  Has the session
 * ended in the wait for the gate, which may have been long?  Has a reader just
 * recovered the log, and left it in doubt?  Then roll back. */
static int api_guest_may_go_on(zke *z, sqlite3 *db) {
  char cause[BASE_SENTENCE];
  int rc = api_session(z);
  if (rc == ZKE_OK && wal_read_doubt(z->s)) rc = recover_not_usable(z->s);
  if (rc == ZKE_OK) return rc;
  base_save(cause);
  if (!sqlite3_get_autocommit(db)) app_run_end(z->s->guest.rollback);
  base_restore(cause);
  return rc;
}

/* Take the gate as for a batch, and begin on the program's connection.  With
 * the gate held, only a foreign program can be in the way.  As before a full
 * commit of ours, the log's name is made durable before the program commits. */
static int api_begin_guest(zke *z, sqlite3 *db) {
  store *s = z->s;
  int rc = api_check_guest(s, db);
  if (rc == ZKE_OK) rc = db_end(s);
  if (rc == ZKE_OK) rc = gate_enter(s, z, true);
  if (rc != ZKE_OK) return rc;
  if (s->durability != ZKE_DURABLE_NONE) rc = wal_make_name(s);
  if (rc == ZKE_OK && sqlite3_get_autocommit(db)) rc = db_trust_log_apart(s);
  int sqlite_rc = rc == ZKE_OK ? app_begin_guest(s, db) : SQLITE_OK;
  if (sqlite_rc != SQLITE_OK)
    rc = app_guest_error(s, db, sqlite_rc, "BEGIN");
  else if (rc == ZKE_OK)
    rc = api_guest_may_go_on(z, db);
  if (rc != ZKE_OK) {
    app_forget_ends(s);
    gate_leave(s);
  }
  return rc;
}

/* Commit or roll back.  On success the log is shortened with the gate held, as
 * after any commit. */
static int api_end_guest(zke *z, sqlite3 *db, bool commit, const char *call) {
  if (z && fork_is_copy(z->s)) return api_forked(z->s);
  store *s = app_here;
  if (!z || !s || z->s != s || s->guest.by != z || s->guest.db != db || s->app)
    return base_fail(ZKE_MISUSE,
                     "%s() without zke_sql_begin() by this thread, for this "
                     "handle and connection",
                     call);
  if (commit) txn_expect_death(s);
  int rc = app_end_guest(s, db, commit);
  if (commit) txn_outlive(s);
  char cause[BASE_SENTENCE];
  base_save(cause);
  app_forget_ends(s);
  if (app_pages) shm_note_pages(s, app_pages);
  if (rc == ZKE_OK) txn_shorten_log(s);
  s->guest.db = NULL;
  s->guest.by = NULL;
  app_here = NULL;
  pthread_key_delete(s->guest.key);
  gate_leave(s);
  base_restore(cause);
  return api_leave(z, rc);
}

/* The thread has ended without ending its transaction: roll that back, and
 * release what the thread holds. */
static void api_leave_guest(void *arg) {
  zke *z = arg;
  api_end_guest(z, z->s->guest.db, false, "zke_sql_rollback");
}

/* On success the lock and the gate stay held until api_end_guest().  If the
 * thread ends before, the destructor of a key calls that; the key lives only as
 * long as the transaction. */
int zke_sql_begin(zke *z, struct sqlite3 *db) {
  if (ENGINE_IS_OTHER(z)) return engine_lacks(z->engine, __func__);
  if (txn_batch_here()) return api_misuse("zke_sql_begin()");
  int rc = api_enter(z, NULL, API_CHANGE | API_LOOK, NULL);
  if (rc != ZKE_OK) return rc;
  pthread_key_t *key = &z->s->guest.key;
  if (pthread_key_create(key, api_leave_guest) != 0)
    return api_leave(z, base_nomem());
  rc =
      pthread_setspecific(*key, z) == 0 ? api_begin_guest(z, db) : base_nomem();
  if (rc != ZKE_OK) {
    pthread_key_delete(*key);
    return api_leave(z, rc);
  }
  z->s->guest.db = db;
  z->s->guest.by = z;
  app_here = z->s;
  app_pages = 0;
  return ZKE_OK;
}

int zke_sql_commit(zke *z, struct sqlite3 *db) {
  if (ENGINE_IS_OTHER(z)) return engine_lacks(z->engine, __func__);
  return api_end_guest(z, db, true, __func__);
}

int zke_sql_rollback(zke *z, struct sqlite3 *db) {
  if (ENGINE_IS_OTHER(z)) return engine_lacks(z->engine, __func__);
  return api_end_guest(z, db, false, __func__);
}

SQL_STATEMENT(HISTORY_KEPT,
              "SELECT history_rows>0 OR history_ms>0 FROM zkembed_meta");

/* Drop the history, if one is kept.  Otherwise a table of that name is the
 * program's: SQLite lets a table be renamed to any name. */
static int api_drop_history(store *s) {
  int64_t has = 0;
  int rc = sql_fetch_ints(s, SQL_HISTORY_KEPT, 0, 1, &has);
  if (rc != ZKE_OK || !has) return rc;
  return sql_exec(s, schema_drop_history, "dropping the history");
}

/* Drop the tables, with the gate held.  Not by txn_, which ends a transaction
 * by writing the meta row. */
static int api_drop_tables(store *s) {
  REQUIRE(GATE_HELD(s));
  int rc = wal_make_name(s);
  if (rc == ZKE_OK) rc = db_begin_write(s);
  if (rc == ZKE_OK) rc = db_trust_log(s);
  if (rc == ZKE_OK) rc = store_may_drop(s);
  if (rc == ZKE_OK) rc = api_drop_history(s);
  if (rc == ZKE_OK) rc = schema_drop_outbox(s);
  if (rc == ZKE_OK) rc = sql_exec(s, schema_drop, "dropping the tables");
  if (rc == ZKE_OK) {
    txn_expect_death(s);
    rc = txn_commit_sqlite(s, true);
    txn_outlive(s);
  }
  if (rc == ZKE_OK) {
    db_checkpoint(s, true);
    return rc;
  }
  char cause[BASE_SENTENCE];
  base_save(cause);
  db_end(s);
  base_restore(cause);
  return rc;
}

/* From then on the store is treated as if its files were replaced: the file
 * that it has open is the program's.  Not from a callback: the dispatch around
 * it would continue with that store. */
int zke_remove_tables(zke *z) {
  if (ENGINE_IS_OTHER(z)) return engine_lacks(z->engine, __func__);
  if (z && role_is_inside(z))
    return base_fail(ZKE_MISUSE, "%s() from a callback of the handle",
                     __func__);
  int rc = api_enter(z, NULL, API_CHANGE | API_LOOK, NULL);
  if (rc != ZKE_OK) return rc;
  store *s = z->s;
  rc = store_is_hosted(s);
  if (rc == ZKE_OK) rc = db_end(s);
  if (rc == ZKE_OK) rc = gate_enter(s, z, true);
  if (rc != ZKE_OK) return api_leave(z, rc);
  rc = api_drop_tables(s);
  gate_leave(s);
  if (rc == ZKE_OK) guard_end_store(s);
  return api_leave(z, rc);
}

/* ---- inspection ---- */

/* Does not end dead sessions first: `alive` says whether each one lives. */
int zke_sessions(zke *z, int64_t session, zke_session_list **list_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, sessions, z, session, list_out);
  zke_session_list *list = NULL;
  bool all = session == -1;
  if (!list_out) return base_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = api_enter(z, NULL, API_BATCH, NULL);
  if (rc != ZKE_OK) return rc;
  rc = view_sessions(z->s, all ? INT64_MIN : session, all ? INT64_MAX : session,
                     &list);
  if (rc == ZKE_OK && !all && list->count == 0) {
    mem_free(list);
    rc = base_fail(ZKE_NONODE, "there is no session 0x%llx",
                   (unsigned long long)session);
  }
  if (rc == ZKE_OK) *list_out = list;
  return api_leave(z, rc);
}

/* One statement, and so of one moment. */
int zke_watches(zke *z, zke_watch_list **list_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, watches, z, list_out);
  if (!list_out) return base_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = api_enter(z, NULL, API_BATCH, NULL);
  return rc == ZKE_OK ? api_leave(z, view_watches(z->s, list_out)) : rc;
}

/* ---- history ---- */

typedef struct api_keeping {
  int64_t rows, ms;
} api_keeping;

static int api_keep_body(txn *t, void *arg) {
  const api_keeping *k = arg;
  return history_keep(t, k->rows, k->ms);
}

/* Synced to the disk: a history that has begun must not be undone by a power
 * cut. */
int zke_history_keep(zke *z, int64_t rows, int64_t ms) {
  if (ENGINE_IS_OTHER(z)) return engine_lacks(z->engine, __func__);
  if (rows < 0 || ms < 0) {
    return api_refuse_arguments("a history of %lld rows, %lld ms",
                                (long long)rows, (long long)ms);
  }
  api_keeping k = {rows, ms};
  int rc = api_enter(z, NULL, API_CHANGE | API_BATCH, NULL);
  if (rc != ZKE_OK) return rc;
  return api_leave(z, api_change(z, TXN_FULL, api_keep_body, &k));
}

/* ---- upkeep ---- */

/* For a handle that may not sweep: the same search, without the removal. */
int zke_overdue(zke *z, int *overdue_out) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, overdue, z, overdue_out);
  bool found;
  if (!overdue_out) return base_fail(ZKE_BADARGUMENTS, "overdue_out is NULL");
  int rc = api_enter(z, NULL, API_BATCH, NULL);
  if (rc != ZKE_OK) return rc;
  rc = sweep_overdue(z->s, &found);
  if (rc == ZKE_OK) *overdue_out = found;
  return api_leave(z, rc);
}

/* Under the store's lock throughout, so fn must not call the library. */
int zke_check(zke *z, zke_check_fn fn, void *context) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, check, z, fn, context);
  int rc = api_enter(z, NULL, 0, NULL);
  return rc == ZKE_OK ? api_leave(z, view_check(z->s, fn, context)) : rc;
}

/* Not from a callback: it takes long, and its thread has the dispatcher role,
 * so no other watcher could be called meanwhile. */
int zke_compact(zke *z, int64_t deadline_ms) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, compact, z, deadline_ms);
  if (z && role_is_inside(z))
    return base_fail(ZKE_MISUSE, "zke_compact() from a callback of the handle");
  int rc = api_enter(z, NULL, API_CHANGE | API_LOOK, NULL);
  if (rc != ZKE_OK) return rc;
  z->s->deadline = api_deadline(deadline_ms);
  if (z->s->memory)
    rc = base_fail(ZKE_UNIMPLEMENTED,
                   "a database in memory has no file to compact");
  else
    rc = compact_file(z->s, z);
  return api_leave(z, rc);
}

/* ---- tests, the system, engines ---- */

/* A light call: it sets two numbers, and does no I/O that a test's own table of
 * system calls would count. */
int zke_test_fail(zke *z, int when, int skip) {
  if (ENGINE_IS_OTHER(z)) return ENGINE_CALL(z, test_fail, z, when, skip);
  if (when < 0 || when > ZKE_TEST_FAIL_READ || skip < 0)
    return base_fail(ZKE_BADARGUMENTS, "when %d, skip %d", when, skip);
  int rc = api_enter(z, NULL, API_CHANGE | API_LIGHT, NULL);
  if (rc != ZKE_OK) return rc;
  z->fail_when = when;
  z->fail_skip = skip;
  return api_leave(z, ZKE_OK);
}

/* A caller that uses an older header has a shorter struct: nothing is written
 * past its end. */
void zke_os_fill(zke_os *os) {
  os_fill(os, os->size < sizeof *os ? os->size : sizeof *os);
}

/* Accepts tables compiled with another version's header: base_take() knows the
 * sizes. */
int zke_register_engine(const zke_engine *engine) {
  zke_engine e;
  if (!engine) return base_fail(ZKE_BADARGUMENTS, "the engine is NULL");
  int rc = base_take(engine, &e, sizeof e, "zke_engine");
  if (rc != ZKE_OK) return rc;
  if (!engine_is_complete(&e)) {
    return base_fail(ZKE_BADARGUMENTS,
                     "an engine without a prefix or a required function");
  }
  return engine_register(&e);
}

/* For an engine: its calls see states that this file does not know. */
void zke_set_zxid(int64_t zxid) { base_zxid = zxid; }
