/* script.c - commands from a file or from standard input, line by line
 *
 * All lines share one session.  An error is reported with the number of its
 * line and ends the script, unless --go-on was given.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* The source of an error, for people: printed after the error itself. */
static void script_say(const shell *sh, const char *name, long line) {
  (void)fflush(stdout); /* for the order; each command has checked */
  if (sh->format == FORMAT_JSON) return;
  fprintf(stderr, "zke: that was line %ld of ", line);
  output_sentence(name, stderr);
  fputc('\n', stderr);
}

/* Runs line by line.  An error ends it without --go-on.  A signal always ends
 * it; but a command's exit code that only looks like one (ssh returns 255) does
 * not.  The last error's status, or that of exit. */
static int script_lines(shell *sh, const char *name, FILE *in, bool go_on) {
  char *line = NULL;
  size_t room = 0;
  int status = STATUS_OK;
  ssize_t len;
  for (long n = 1; !sh->leaving && !signals_stopped() &&
                   (len = getline(&line, &room, in)) >= 0;
       n++) {
    if (len > 0 && line[len - 1] == '\n') len--;
    int one = run_line(sh, line, (size_t)len);
    if (one == STATUS_OK || sh->leaving) continue;
    status = one;
    bool signalled = sh->died_by && one == STATUS_SIGNAL + sh->died_by;
    if (sh->died_by != SIGPIPE) script_say(sh, name, n);
    if (!go_on || signalled) break;
  }
  free(line);
  return sh->leaving ? sh->leave_status : status;
}

/* Opens the input, and marks it as commands, so that no command reads it as
 * data. */
int script_run(shell *sh, const char *name, bool go_on) {
  bool input = strcmp(name, "-") == 0;
  static const command self = {.name = "the script"};
  call c = {.sh = sh, .format = sh->format, .command = &self};
  FILE *in = input_open(&c, name);
  int status;
  if (!in) {
    status = fail_errno(&c, STATUS_CANTOPEN, name);
    output_error(&c);
    return status;
  }
  sh->persists = true;
  sh->reads_input = input;
  status = script_lines(sh, input ? "standard input" : name, in, go_on);
  int signal = sh->leaving ? 0 : signals_stopped();
  bool stopped = signal && status != STATUS_SIGNAL + signal;
  if (stopped) errno = EINTR; /* between two lines, or after a child */
  if (stopped || ferror(in)) {
    status = input_failed(&c, input ? "standard input" : name);
    output_error(&c);
  }
  (void)fclose(in); /* nothing was written */
  return status;
}
