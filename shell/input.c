/* input.c - files and standard input, with reads that a signal can end
 *
 * Every read first waits in input_wait() for bytes, a signal or a cancel of the
 * call, and so ends with EINTR even if read() itself would continue.  Standard
 * input is data only if it does not bring commands.  Start at input_open();
 * arg_data() is for commands with DATA.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * Streams
 *
 * One thread takes the signals, which interrupt no read(): so a read also waits
 * for the signals' descriptor, and for that of a cancel.
 * --------------------------------------------------------------------- */

typedef struct stream {
  call *c;
  int fd;
} stream;

/* Waits until the descriptor can be read: true.  False with EINTR for a signal
 * that ends the program or a cancel of this call; or with another errno if no
 * eventfd can be made.  A signal before this call counts, too, since its pipe
 * stays readable. */
bool input_wait(call *c, int fd) {
  int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), ready;
  struct pollfd fds[3] = {{.fd = signals_stop_fd(), .events = POLLIN},
                          {.fd = wake, .events = POLLIN},
                          {.fd = fd, .events = POLLIN}};
  if (wake < 0) return false;
  cancel_by(c, cancel_by_fd, &wake);
  do ready = poll(fds, 3, -1);
  while (ready < 0 && errno == EINTR);
  cancel_by(c, NULL, NULL);
  close(wake);
  errno = EINTR;
  return ready > 0 && !fds[0].revents && !fds[1].revents;
}

/* For a stream: reads as read() does, but a signal or a cancel ends it with
 * EINTR. */
static ssize_t stream_read(void *cookie, char *buffer, size_t size) {
  const stream *s = cookie;
  for (;;) {
    if (!input_wait(s->c, s->fd)) return -1;
    ssize_t n = read(s->fd, buffer, size);
    if (n >= 0 || errno != EAGAIN) return n;
  }
}

/* For a stream: leaves standard input open. */
static int stream_close(void *cookie) {
  stream *s = cookie;
  int fd = s->fd;
  free(s);
  return fd == STDIN_FILENO ? 0 : close(fd);
}

/* O_NONBLOCK, since opening a FIFO would wait for its other end, and no signal
 * could end that; input_wait() waits instead. */
int input_descriptor(const char *name) {
  return strcmp(name, "-") == 0 ? STDIN_FILENO
                                : open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* A stdio stream whose reads wait in input_wait(), so that getline() and
 * fread() can be ended, too. */
FILE *input_open(call *c, const char *name) {
  static const cookie_io_functions_t functions = {.read = stream_read,
                                                  .close = stream_close};
  stream *s = malloc(sizeof *s);
  if (!s) return NULL;
  *s = (stream){c, input_descriptor(name)};
  FILE *in = s->fd < 0 ? NULL : fopencookie(s, "r", functions);
  if (in) return in;
  int why = errno;
  if (s->fd > STDIN_FILENO) close(s->fd);
  free(s);
  errno = why;
  return NULL;
}

/* Reports why reading ended.  EINTR comes from input_wait(): a signal or a
 * cancel, which have their own sentences.  A signal may have come before this
 * call began; then it cancels the call here. */
int input_failed(call *c, const char *name) {
  if (errno == EINTR && signals_stopped()) signals_cancel(c, signals_stopped());
  if (errno == EINTR && cancel_came(c)) return fail_cancelled(c);
  return fail_errno(c, STATUS_IO, name);
}

/* ------------------------------------------------------------------------
 * Data
 *
 * The DATA of a command may be an argument, text, base64, or a file.  In each
 * case it becomes one block for free(); standard input is refused while it
 * brings commands.
 * --------------------------------------------------------------------- */

/* The whole stream, with a NUL after it that is not counted; one block, for
 * free(). */
static int read_stream(call *c, const char *name, FILE *in, char **data_out,
                       size_t *len_out) {
  size_t len = 0, room = 4096, more;
  char *data = malloc(room);
  while (data && (more = fread(data + len, 1, room - len - 1, in)) > 0) {
    len += more;
    if (len < room - 1) continue;
    char *larger = realloc(data, room *= 2);
    if (!larger) free(data);
    data = larger;
  }
  if (!data) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  if (ferror(in)) {
    int status = input_failed(c, name);
    free(data);
    return status;
  }
  data[len] = '\0';
  *data_out = data;
  *len_out = len;
  return 0;
}

/* Refuses standard input as data while it has requests or commands. */
int input_is_free(call *c) {
  if (c->id)
    return fail_with(
        c, STATUS_USAGE, "USAGE",
        "the standard input of a coprocess has the requests, not data");
  if (c->sh->reads_input)
    return fail_with(c, STATUS_USAGE, "USAGE",
                     "standard input has the commands, not data");
  return 0;
}

/* Reads a file, or standard input for "-", which must be free; 0, or a status
 * after fail_with().  The data is for free(). */
int input_file(call *c, const char *name, char **data_out, size_t *len_out) {
  bool input = strcmp(name, "-") == 0;
  int status = input ? input_is_free(c) : 0;
  if (status) return status;
  FILE *in = input_open(c, name);
  if (!in) return fail_errno(c, STATUS_CANTOPEN, name);
  status =
      read_stream(c, input ? "standard input" : name, in, data_out, len_out);
  (void)fclose(in); /* nothing was written */
  return status;
}

static int data_too_long(call *c) {
  return fail_with(c, STATUS_DATA, "BADARGUMENTS",
                   "the data has more than two gigabytes");
}

/* The data can be given in one of four ways; without any it is empty. */
int arg_data(call *c, int i, char **data_out, int *len_out, bool *given_out) {
  const word *text = option_word(c, '6'), *file = option_word(c, 'i');
  int ways =
      (i < c->count) + (text != NULL) + (file != NULL) + option_given(c, '0');
  size_t len = 0;
  char *data = NULL;
  int status = 0;
  if (ways > 1)
    return fail_usage(
        c, "only one of DATA, --null, --base64 and --input can be given");
  if (file) {
    status = input_file(c, file->text, &data, &len);
  } else if (text) {
    if (!base64_decode(text->text, text->len, &data, &len))
      return fail_with(c, STATUS_DATA, "DATA", "\"%s\" is not base64",
                       text->text);
  } else if (i < c->count) {
    len = c->args[i].len;
    data = malloc(len + 1);
    if (!data) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
    memcpy(data, c->args[i].text, len + 1);
  }
  if (status) return status;
  if (len > INT32_MAX) {
    free(data);
    return data_too_long(c);
  }
  *data_out = data;
  *len_out = option_given(c, '0') ? -1 : (int)len;
  if (given_out) *given_out = ways > 0;
  return 0;
}
