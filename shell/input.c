/* input.c - files and standard input, read so that a signal ends the reading */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * Streams
 *
 * Signals are taken by a thread of their own and interrupt no read(): so what
 * reads waits for the signals' descriptor as well.
 * --------------------------------------------------------------------- */

static ssize_t stream_read(void *cookie, char *buffer, size_t size) {
  int fd = *(int *)cookie;
  struct pollfd fds[2] = {{.fd = signals_stop_fd(), .events = POLLIN},
                          {.fd = fd, .events = POLLIN}};
  if (poll(fds, 2, -1) > 0 && !fds[0].revents) return read(fd, buffer, size);
  errno = EINTR;
  return -1;
}

static int stream_close(void *cookie) {
  int fd = *(int *)cookie;
  free(cookie);
  return fd == STDIN_FILENO ? 0 : close(fd);
}

FILE *input_open(const char *name) {
  static const cookie_io_functions_t functions = {.read = stream_read,
                                                  .close = stream_close};
  int *fd = malloc(sizeof *fd);
  if (!fd) return NULL;
  /* Opening a FIFO must not wait for its other end: reading does that. */
  *fd = strcmp(name, "-") == 0 ? STDIN_FILENO
                               : open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  FILE *in = *fd < 0 ? NULL : fopencookie(fd, "r", functions);
  if (in) return in;
  int why = errno;
  if (*fd > STDIN_FILENO) close(*fd);
  free(fd);
  errno = why;
  return NULL;
}

int input_failed(call *c, const char *name) {
  if (errno == EINTR && signals_stopped()) {
    signals_cancel(c, signals_stopped());
    return fail_cancelled(c);
  }
  return fail_errno(c, STATUS_IO, name);
}

/* ------------------------------------------------------------------------
 * Data
 * --------------------------------------------------------------------- */

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
  if (!data) return fail(c, STATUS_SYSTEM, "NOMEM", "out of memory");
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

int input_is_free(call *c) {
  if (c->id)
    return fail(c, STATUS_USAGE, "USAGE",
                "a coprocess's input is its requests");
  if (c->sh->reads_input)
    return fail(c, STATUS_USAGE, "USAGE", "standard input has the commands");
  return 0;
}

int read_file(call *c, const char *name, char **data_out, size_t *len_out) {
  bool input = strcmp(name, "-") == 0;
  int status = input ? input_is_free(c) : 0;
  if (status) return status;
  FILE *in = input_open(name);
  if (!in) return fail_errno(c, STATUS_CANTOPEN, name);
  status =
      read_stream(c, input ? "standard input" : name, in, data_out, len_out);
  (void)fclose(in); /* nothing was written */
  return status;
}

static int data_too_long(call *c) {
  return fail(c, STATUS_DATA, "BADARGUMENTS", "more than two gigabytes");
}

int arg_data(call *c, int i, char **data_out, int *len_out, bool *given_out) {
  const word *text = value_of(c, '6'), *file = value_of(c, 'i');
  int ways = (i < c->count) + (text != NULL) + (file != NULL) + has(c, '0');
  size_t len = 0;
  char *data = NULL;
  int status = 0;
  if (ways > 1)
    return fail_usage(c, "one of DATA, --null, --base64 and --input");
  if (text && !base64_decode(text->text, text->len, &data, &len))
    return fail(c, STATUS_DATA, "DATA", "\"%s\" is not base64", text->text);
  if (file) status = read_file(c, file->text, &data, &len);
  if (i < c->count) {
    len = c->args[i].len;
    data = malloc(len + 1);
    if (!data) return fail(c, STATUS_SYSTEM, "NOMEM", "out of memory");
    memcpy(data, c->args[i].text, len + 1);
  }
  if (status) return status;
  if (len > INT32_MAX) {
    free(data);
    return data_too_long(c);
  }
  *data_out = data;
  *len_out = has(c, '0') ? -1 : (int)len;
  if (given_out) *given_out = ways > 0;
  return 0;
}
