/* one_order.c - see one_order.h */
#include "one_order.h"

#include <stdlib.h>

/* Must step j come after step i? */
static bool is_before(const order_step *steps, int i, int j) {
  const order_step *a = &steps[i], *b = &steps[j];
  if (a->client == b->client && i < j) return true;
  if (a->service != b->service) return false;
  if (a->kind == STEP_WRITE && b->kind == STEP_WRITE)
    return a->value < b->value;
  if (a->kind == STEP_WRITE) return a->value <= b->value;
  return a->kind == STEP_READ && b->kind == STEP_WRITE && b->value > a->value;
}

/* Remove steps without predecessors until none is left, or only a cycle. */
bool one_order_fits(const order_step *steps, int count) {
  bool gone[ONE_ORDER_MOST] = {false};
  if (count > ONE_ORDER_MOST) abort();
  for (int left = count; left > 0;) {
    int taken = 0;
    for (int j = 0; j < count; j++) {
      bool free_ = !gone[j];
      for (int i = 0; i < count && free_; i++)
        free_ = gone[i] || i == j || !is_before(steps, i, j);
      if (!free_) continue;
      gone[j] = true;
      taken++;
    }
    if (taken == 0) return false;
    left -= taken;
  }
  return true;
}
