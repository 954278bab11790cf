/* complete.h - what may come next in a line that is being typed
 *
 * The line is not changed here: whoever edits it inserts completion.insert at
 * the cursor, and shows the names where that decides nothing.
 */
#ifndef ZKE_SHELL_COMPLETE_H
#define ZKE_SHELL_COMPLETE_H

#include "shell.h"

typedef struct completion {
  char **names; /* what is possible, sorted, as it is shown in a list */
  int count;
  char *insert; /* what is certain, quoted as the line goes; may be empty */
} completion;

/* complete_line - at the end of a line
 *
 *   line, len  up to the cursor; what stands behind it does not count
 *   out        zeroed; count 0 where nothing is known, or without memory, and
 *              insert is NULL then; complete_free() it
 *
 * Looks at the store only where it is open: a key that a person presses begins
 * no session and makes no file. */
void complete_line(shell *sh, const char *line, size_t len, completion *out);
void complete_free(completion *out);

#endif
