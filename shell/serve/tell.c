/* tell.c - the protocol server's messages on standard error
 *
 * A refused client often sees only that its connection ends.  So the server
 * tells its operator: each kind of refusal has a line, with the client's
 * address if it concerns one client, what was refused, and the option that
 * changes it, if there is one.
 *
 * Clients decide how often something is refused.  So each kind is reported once
 * in a while, and its next line says how many were left out: a client cannot
 * fill a disk with lines.
 *
 * Standard error may be a pipe without a reader, which must stop neither the
 * server nor others.  So a line that would block is left out.  Nothing is
 * written while the library holds a lock that others wait for: messages in a
 * batch, and those of the library's logger, are kept until server_print().
 * Begin with server_tell().
 */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

/* The start of a line, and how long its kind is silent after it. */
static const struct {
  const char *name;
  int64_t silent_ms;
} kinds[TELL_KINDS] = {[TELL_CONNECTIONS] = {"too many connections", 10000},
                       [TELL_DESCRIPTORS] = {"no descriptor left", 10000},
                       [TELL_FRAME] = {"bad frame", 10000},
                       [TELL_ZXID] = {"wrong server", 10000},
                       [TELL_PASSWORD] = {"wrong password", 10000},
                       [TELL_AUTH] = {"auth failed", 10000},
                       [TELL_SASL] = {"SASL failed", 10000},
                       [TELL_STRANGER] = {"SASL missing", 10000},
                       [TELL_OPERATION] = {"unknown operation", 10000},
                       [TELL_SILENT] = {"silent client", 10000},
                       [TELL_UNREAD] = {"client does not read", 10000},
                       [TELL_FAILED] = {"system error", 10000},
                       [TELL_BUSY] = {"database busy", 10000},
                       [TELL_QUOTA] = {"quota exceeded", 60000},
                       [TELL_SOFT_QUOTA] = {"quota exceeded", 60000}};

/* The record of when the kind was last reported.  Each path with a quota has
 * its own.  A new path takes over a record whose silence is over; NULL: there
 * is none. */
static told *find_place(server *s, int kind, const char *path) {
  told *found = NULL;
  if (kind < TELL_QUOTA) return &s->told[kind];
  for (int i = TELL_QUOTA; i < TOLD_MOST; i++) {
    told *at = &s->told[i];
    if (at->path && at->kind == kind && strcmp(at->path, path) == 0) return at;
    if (!found && s->now_ms >= at->again_ms) found = at;
  }
  if (!found) return NULL;
  free(found->path);
  *found = (told){kind, strdup(path), 0, 0};
  return found;
}

/* Cuts a line to the length that can_print() checks; a quota's path may be
 * longer. */
static void shorten(char *line, size_t len) {
  static const char end[] = "...\n";
  if (len > PIPE_BUF) memcpy(line + PIPE_BUF - strlen(end), end, sizeof end);
}

/* Keeps a line, which is freed later.  If there is no room, it is only
 * counted. */
static void keep_line(server *s, char *line) {
  if (s->line_count < LINES_MOST) {
    s->lines[s->line_count++] = line;
    return;
  }
  s->lines_left_out++;
  free(line);
}

/* Can standard error take a line of at most PIPE_BUF bytes without blocking?  A
 * pipe can while it is ready for writing. */
static bool can_print(void) {
  struct pollfd to = {.fd = fileno(stderr), .events = POLLOUT};
  return poll(&to, 1, 0) == 1 && to.revents & POLLOUT;
}

/* A line that would block is counted and not printed: a reader that stops
 * reading cannot stop the server. */
void server_print(server *s) {
  for (int i = 0; i < s->line_count; i++) {
    if (can_print())
      fputs(s->lines[i], stderr); /* in one call */
    else
      s->lines_left_out++;
    free(s->lines[i]);
  }
  s->line_count = 0;
  if (!s->lines_left_out || !can_print()) return;
  fprintf(stderr, "zke: serve: %" PRId64 " lines were left out\n",
          s->lines_left_out);
  s->lines_left_out = 0;
}

/* Keeps a line of these texts, except empty ones, and of how many lines were
 * left out before it.  It may contain a client's text, so control characters
 * are escaped. */
static void make_line(server *s, const char *name, const char *about,
                      const char *sentence, int64_t left_out) {
  char *line = NULL;
  size_t len;
  FILE *out = open_memstream(&line, &len);
  if (!out) return;
  fprintf(out, "zke: serve: %s%s", name, *name ? ": " : "");
  output_sentence(about, out);
  fputs(*about ? ": " : "", out);
  output_sentence(sentence, out);
  if (left_out) fprintf(out, "; %" PRId64 " more were left out", left_out);
  fputc('\n', out);
  if (fclose(out) == 0) {
    shorten(line, len);
    keep_line(s, line);
  } else {
    free(line);
  }
}

/* Keeps a warning of the library's.  Errors are left out: the failing requests
 * report most of them.  The logger may be called after the server has ended;
 * then it keeps nothing. */
void server_log(void *context, int level, const char *text) {
  const shell *sh = context;
  if (level == ZKE_LOG_WARN && sh->server)
    make_line(sh->server, "", "", text, 0);
}

/* Reports a line, unless its kind must be silent; immediately if no process
 * waits. */
static void tell(server *s, int kind, const char *about, const char *format,
                 va_list arguments) {
  char *sentence;
  told *place = find_place(s, kind, about);
  if (!place) return;
  if (s->now_ms < place->again_ms) {
    place->left_out++;
    return;
  }
  if (vasprintf(&sentence, format, arguments) < 0) return;
  make_line(s, kinds[kind].name, about, sentence, place->left_out);
  free(sentence);
  if (!s->in_batch) server_print(s);
  place->again_ms = s->now_ms + kinds[kind].silent_ms;
  place->left_out = 0;
}

/* For messages about no client, or about one without a connection. */
void server_tell(server *s, int kind, const char *about, const char *format,
                 ...) {
  va_list arguments;
  va_start(arguments, format);
  tell(s, kind, about, format, arguments);
  va_end(arguments);
}

/* A client at the Unix socket has no address. */
void conn_tell(const conn *c, int kind, const char *format, ...) {
  char about[CONN_ADDRESS + 16];
  bool is_six = strchr(c->address, ':');
  va_list arguments;
  if (c->is_unix)
    snprintf(about, sizeof about, "a client at the Unix socket");
  else
    snprintf(about, sizeof about, is_six ? "[%s]:%d" : "%s:%d", c->address,
             c->port);
  va_start(arguments, format);
  tell(c->server, kind, about, format, arguments);
  va_end(arguments);
}

/* The sentence is the library's, so ask for it before another call fails. */
void server_tell_failed(server *s, const conn *c, int rc) {
  bool is_lost = rc == ZKE_CONNECTIONLOSS; /* perhaps during a commit */
  if (rc > -200 && rc != ZKE_SYSTEMERROR && !is_lost) return;
  const char *why = rc == ZKE_NOMEM ? "out of memory" : zke_errmsg();
  if (c)
    conn_tell(c, TELL_FAILED, "its request failed: %s", why);
  else
    server_tell(s, TELL_FAILED, "", "changes failed: %s", why);
}

void server_tell_free(server *s) {
  for (int i = 0; i < TOLD_MOST; i++) free(s->told[i].path);
}
