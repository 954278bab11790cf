/* complete.h - completion of a line that is being typed
 *
 * This does not change the line: its editor inserts completion.insert at the
 * cursor, and shows the names if that does not decide.
 */
#ifndef ZKE_SHELL_COMPLETE_H
#define ZKE_SHELL_COMPLETE_H

#include "shell.h"

typedef struct completion {
  char **names; /* the candidates, sorted, as a list shows them */
  int count;
  char *insert; /* the certain part, with quotation; may be empty */
} completion;

/* complete_line - at the end of a line
 *
 *   line, len  up to the cursor; text after it does not count
 *   out        zeroed; if nothing is known, or without memory, count is 0 and
 *              insert is NULL; free it by complete_free()
 *
 * Uses the store only if it is open: pressing Tab begins no session and creates
 * no file. */
void complete_line(shell *sh, const char *line, size_t len, completion *out);
void complete_free(completion *out);

#endif
