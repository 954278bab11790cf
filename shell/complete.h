/* complete.h - what may come next in a line that is being typed */
#ifndef ZKE_SHELL_COMPLETE_H
#define ZKE_SHELL_COMPLETE_H

#include "shell.h"

typedef struct completion {
  char **names; /* what is possible, sorted, as it is shown in a list */
  int count;
  char *insert; /* what is certain, quoted as the line goes; may be empty */
} completion;

/* complete - at the end of a line
 *
 *   line, len  up to the cursor
 *   out        zeroed; count 0 where nothing is known; complete_free() it
 *
 * Looks at the store only where it is open. */
void complete(shell *sh, const char *line, size_t len, completion *out);
void complete_free(completion *out);

#endif
