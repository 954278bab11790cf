/* conformance.c - the same random operations on ZooKeeper and on zkembed
 *
 *     make conformance                     50,000 operations, a random seed
 *     make conformance OPS=1000000         more; 5,000 a seed
 *     make conformance SEED=7 SEEDS=1 OPS=5000   repeat one seed
 *     make conformance SHRINK=600 …        seconds to shrink a mismatch; 120
 *     make conformance MASKS=1             what is not compared, and why
 *     make conformance WIRE=1 …            `zke FILE serve` instead of the
 *                                          library, frame by frame (wire.c)
 *     make conformance ENGINE=zookeeper …  zkembed on a second server instead
 *                                          of a file (ensemble.c)
 *
 * test/conformance/conformance.sh starts the server and this program:
 *
 *     conformance PORT DIRECTORY   with OPS, SEED and SEEDS in the environment;
 *                                  ENSEMBLE: the port of a second server
 *     conformance --free-port      prints one
 *     conformance --is-up PORT     exit status 0: a server answers there
 *     conformance --masks
 *
 * Each seed is a run from an empty tree.  A mismatch ends its run.  It is
 * shrunk by repeating the run with operations left out, as long as the same
 * kind of mismatch remains, and printed with its seed.  Exit status: 0 no
 * mismatch, 1 some, anything else: the program died, in the seed that
 * DIRECTORY/seed names.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "conformance.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OPS = 50000, OPS_A_SEED = 5000, SHRINK = 120 };
enum { MOST_SHRUNK = 20, MOST_PRINTED = 300 };

static int64_t asked(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text) return otherwise;
  int64_t value = strtoll(text, &end, 10);
  if (*end || value < 0) cf_die("%s=%s is not a number", name, text);
  return value;
}

/* ---- the two ways ---- */

static bool is_wire(void) { return asked("WIRE", 0) != 0; }

static bool run_ops(const cf_plan *plan, const int *indices, int count,
                    bool verbose, cf_mismatch *out) {
  return plan->wire ? cf_wire_run(plan, indices, count, verbose, out)
                    : cf_run(plan, indices, count, verbose, out);
}

/* ---- shrinking ---- */

typedef struct shrinker {
  const cf_plan *plan;
  int *kept, *trial;
  int count;
  char field[64];
  int64_t until;
} shrinker;

/* Does the mismatch remain with the trial?  If so, keep the trial. */
static bool keeps(shrinker *s, int count) {
  cf_mismatch m = {0};
  if (count == s->count) return false;
  bool found = run_ops(s->plan, s->trial, count, false, &m);
  bool same = found && strcmp(m.field, s->field) == 0;
  if (same && m.at + 1 < count) count = m.at + 1;
  free(m.text);
  if (!same) return false;
  memcpy(s->kept, s->trial, (size_t)count * sizeof *s->kept);
  s->count = count;
  return true;
}

/* Try without kept[from .. from + len). */
static bool keeps_without(shrinker *s, int from, int len) {
  int count = s->count - len;
  memcpy(s->trial, s->kept, (size_t)from * sizeof *s->trial);
  memcpy(s->trial + from, s->kept + from + len,
         (size_t)(count - from) * sizeof *s->trial);
  return keeps(s, count);
}

/* Try without all operations of a kind, or of a session; -1: any. */
static void drop_alike(shrinker *s, int kind, int seat) {
  int count = 0;
  for (int i = 0; i < s->count; i++) {
    cf_op op;
    cf_generate(s->plan, s->kept[i], &op);
    cf_reset();
    if ((kind >= 0 && (int)op.kind != kind) || (seat >= 0 && op.seat != seat))
      s->trial[count++] = s->kept[i];
  }
  if (cf_now_ms() < s->until) keeps(s, count);
}

/* Drop pieces of this length, late ones first; true: some were not needed. */
static bool drop_pieces(shrinker *s, int len) {
  bool dropped = false;
  for (int from = s->count; from > 0 && cf_now_ms() < s->until;) {
    if (from > s->count) from = s->count;
    int piece = len < from ? len : from;
    from -= piece;
    dropped |= keeps_without(s, from, piece);
  }
  return dropped;
}

/* First whole kinds, beginning with the slow ones, and sessions; then smaller
 * and smaller pieces, until every operation is needed or the time is over. */
static void shrink(shrinker *s) {
  for (int kind = CF_KINDS; kind-- > 0;) drop_alike(s, kind, -1);
  for (int seat = 0; seat < s->plan->seats; seat++) drop_alike(s, -1, seat);
  for (int len = (s->count + 1) / 2; len > 1; len /= 2) drop_pieces(s, len);
  while (drop_pieces(s, 1)) continue;
}

/* ---- seeds ---- */

/* zkembed's side of a run. */
static const char *place(const cf_plan *plan) {
  if (plan->wire) return plan->servers > 1 ? "two servers" : "one server";
  if (cf_ensemble) return "on a second server";
  return plan->file ? "on a file" : "in memory";
}

static void announce(const cf_plan *plan, const char *text) {
  printf("\nMISMATCH in seed %" PRIu64 " (%s, %d sessions): %s\n", plan->seed,
         place(plan), plan->seats, text);
  fflush(stdout);
}

/* Print a difference: its operations, both replies, and the command that
 * repeats it. */
static void report(const cf_plan *plan, shrinker *s, int length) {
  cf_mismatch m = {0};
  printf("  shrunk to %d operations:\n", s->count);
  if (s->count > MOST_PRINTED) printf("  (too many to show)\n");
  if (run_ops(plan, s->kept, s->count, s->count <= MOST_PRINTED, &m))
    printf("  mismatch: %s\n", m.text);
  else
    printf("  (it does not come back: it depends on timing)\n");
  free(m.text);
  const char *way = cf_ensemble ? " ENGINE=zookeeper" : "";
  if (plan->wire) way = " WIRE=1";
  printf("  again: make conformance%s SEED=%" PRIu64 " SEEDS=1 OPS=%d\n\n", way,
         plan->seed, length);
  fflush(stdout);
}

/* Note the seed, in case this process dies. */
static void note_seed(uint64_t seed) {
  FILE *f = fopen(cf_text("%s/seed", cf_directory), "w");
  if (!f || fprintf(f, "%" PRIu64 "\n", seed) < 0 || fclose(f) != 0)
    cf_die("cannot write in %s", cf_directory);
}

/* Run one seed; true: no mismatch. */
static bool run_seed(uint64_t seed, int length, bool quiet) {
  cf_plan plan;
  cf_mismatch m = {0};
  shrinker s = {.plan = &plan, .count = length};
  note_seed(seed);
  if (is_wire())
    cf_plan_wire(seed, &plan);
  else
    cf_plan_make(seed, &plan);
  s.kept = calloc((size_t)length + 1, sizeof *s.kept);
  s.trial = calloc((size_t)length + 1, sizeof *s.trial);
  if (!s.kept || !s.trial) cf_die("out of memory");
  for (int i = 0; i < length; i++) s.kept[i] = i;
  bool found = run_ops(&plan, s.kept, length, false, &m);
  if (found) announce(&plan, m.text);
  if (found && !quiet) {
    if (m.at + 1 < s.count) s.count = m.at + 1;
    memcpy(s.field, m.field, sizeof s.field);
    s.until = cf_now_ms() + 1000 * asked("SHRINK", SHRINK);
    shrink(&s);
    report(&plan, &s, length);
  }
  free(m.text);
  free(s.kept);
  free(s.trial);
  return !found;
}

/* Run all seeds; the exit status. */
static int run_all(void) {
  int64_t ops = asked("OPS", OPS),
          chance = (int64_t)time(NULL) % 1000000 * 1000;
  int64_t seeds = asked("SEEDS", (ops + OPS_A_SEED - 1) / OPS_A_SEED);
  int64_t first = asked("SEED", chance);
  if (seeds < 1) seeds = 1;
  int length = (int)((ops + seeds - 1) / seeds), bad = 0;
  printf("conformance: %d operations with each of %" PRId64
         " seeds from %" PRId64 "\n",
         length, seeds, first);
  int64_t began = cf_now_ms();
  for (int64_t i = 0; i < seeds; i++) {
    bad += !run_seed((uint64_t)(first + i), length, bad >= MOST_SHRUNK);
    if ((i + 1) % 10 == 0 || i + 1 == seeds)
      printf("%" PRId64 " seeds, %d with a mismatch, %" PRId64 " s\n", i + 1,
             bad, (cf_now_ms() - began) / 1000);
    fflush(stdout);
  }
  printf("%" PRId64 " replies and %" PRId64 " events were equal but for\n",
         cf_replies_compared, cf_events_compared);
  cf_masks_print(true);
  printf("ZooKeeper's codes, parts of multis included:\n");
  cf_seen_print();
  printf("%" PRId64 " passed, %d failed\n", seeds - bad, bad);
  return bad ? 1 : 0;
}

/* A port that was free a moment ago. */
static int free_port(void) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 ||
      getsockname(fd, (struct sockaddr *)&at, &len) != 0)
    cf_die("no free port");
  close(fd);
  return ntohs(at.sin_port);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--free-port") == 0)
    return printf("%d\n", free_port()) < 0;
  if (argc == 2 && strcmp(argv[1], "--masks") == 0) {
    cf_masks_print(false);
    return 0;
  }
  if (argc == 3 && strcmp(argv[1], "--is-up") == 0) {
    cf_port = atoi(argv[2]);
    return cf_raw_is_up() ? 0 : 1;
  }
  if (argc != 3) cf_die("usage: conformance PORT DIRECTORY");
  cf_port = atoi(argv[1]);
  cf_directory = argv[2];
  if (asked("ENSEMBLE", 0)) cf_ensemble_use((int)asked("ENSEMBLE", 0));
  cf_zke_program = getenv("ZKE") ? getenv("ZKE") : "build/zke";
  return run_all();
}
