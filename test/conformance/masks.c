/* masks.c - how often each mask was needed, and printing */
#include "masks.h"

#include <inttypes.h>
#include <stdio.h>

static const struct mask {
  const char *name, *how, *why;
} masks[] = {
#define MASK_ROW(name, how, why) {#name, how, why},
    CF_MASKS(MASK_ROW)
#undef MASK_ROW
};

int64_t cf_mask_used[CF_MASK_COUNT];

void cf_masks_print(bool counts) {
  for (int i = 0; i < CF_MASK_COUNT; i++) {
    if (counts && cf_mask_used[i] == 0) continue;
    if (counts)
      printf("  %-12s %12" PRId64 "  %s\n", masks[i].name, cf_mask_used[i],
             masks[i].how);
    else
      printf("%s: %s\n    since %s\n", masks[i].name, masks[i].how,
             masks[i].why);
  }
}
