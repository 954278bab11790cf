/* main.c - `make model`: runs of many seeds, in memory
 *
 *     model [OPS=50000] [SEED=1]
 *
 * by the environment. */
#include <inttypes.h>
#include <stdio.h>

#include "test/model/run.h"
#include "test/program.h"

enum { A_SEED = 1000 };

int main(void) {
  int64_t ops = program_setting("OPS", 50000);
  int64_t first = program_setting("SEED", 1);
  int64_t seeds = (ops + A_SEED - 1) / A_SEED, bad = 0;
  int64_t began = cf_now_ms();
  for (int64_t i = 0; i < seeds && bad < 3; i++)
    bad += !run_seed((uint64_t)(first + i), (int)((ops + seeds - 1) / seeds));
  printf("%" PRId64 " operations of %" PRId64 " seeds from %" PRId64
         ", %" PRId64 " events, %" PRId64 " ms\n",
         run_steps_done, seeds, first, run_events_compared,
         cf_now_ms() - began);
  printf("%" PRId64 " passed, %" PRId64 " failed\n", seeds - bad, bad);
  return bad ? 1 : 0;
}
