/* http.c - HTTP at the port of the protocol server
 *
 * A program without a session asks the server by HTTP: input that begins with
 * "GET " or "POST" instead of a frame is such a request.  It has one answer,
 * and then the connection is closed.  This file knows the form of requests and
 * answers; the caller's table (serve.c) has the pages.
 *
 * The sentence of a refusal is the answer's body, and also in its first line:
 * most HTTP clients show one of the two by default.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve.h"

enum { HEAD_MOST = 16 * 1024, BODY_MOST = 16 * 1024 };

/* ------------------------------------------------------------------------
 * Answers
 *
 * Each ends the connection, and says so in its head; there is no second
 * request.
 * --------------------------------------------------------------------- */

/* The first line's text for a status.  Refusals do not use this: they have
 * their sentence. */
static const char *reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Refused";
  }
}

/* Puts an answer into the connection's output. */
static void answer(conn *c, int status, const char *reason, const char *type,
                   const char *body) {
  zke_jute_writer text = {0};
  FILE *out = open_memstream(&text.data, &text.len);
  if (!out) {
    conn_drop(c);
    return;
  }
  fprintf(out,
          "HTTP/1.1 %d %s\r\nContent-Type: %s; charset=utf-8\r\n"
          "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
          status, reason, type, strlen(body), body);
  if (fclose(out) == 0) zke_jute_append(&c->out, &text);
  free(text.data);
  conn_end(c);
}

/* Answers the one request of the connection, which ends after the answer was
 * sent. */
void http_answer(conn *c, int status, const char *type, const char *body) {
  answer(c, status, reason_of(status), type, body);
}

/* Removes control characters, which a line of a head must not have. */
static void make_line(char *text) {
  for (; *text; text++)
    if (is_control(*text)) *text = ' ';
}

/* Refuses a request by a sentence, in the body and in the first line.
 * Characters that would end that line become spaces: the sentence may quote the
 * peer's text. */
void http_refuse(conn *c, int status, const char *format, ...) {
  char sentence[500], body[sizeof sentence + 1];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  make_line(sentence);
  snprintf(body, sizeof body, "%s\n", sentence);
  answer(c, status, sentence, "text/plain", body);
}

/* ------------------------------------------------------------------------
 * Requests
 *
 * A request is taken when its head and its body are complete.  Both are
 * bounded, and requests from a page of another origin can be told from those of
 * programs.
 * --------------------------------------------------------------------- */

/* Finds a line of the head by its name, which ends with a colon; returns the
 * value, up to its line's end.  NULL: there is none. */
static const char *head_line(const char *head, const char *name) {
  size_t len = strlen(name);
  for (const char *at = strchr(head, '\n'); at; at = strchr(at + 1, '\n'))
    if (strncasecmp(at + 1, name, len) == 0)
      return at + 1 + len + strspn(at + 1 + len, " \t");
  return NULL;
}

/* Is a Host: an address, or the usual name of this host? */
static bool is_address(const char *host) {
  static const char here[] = "localhost";
  size_t len = strcspn(host, ": \t\r\n");
  if (*host == '[') return true;
  if (len == strlen(here) && strncasecmp(host, here, len) == 0) return true;
  return len > 0 && strspn(host, "0123456789.") >= len;
}

/* A page sends its origin with its data.  After DNS rebinding a page reads
 * without an origin, but with its own host name. */
bool http_is_from_page(const http_request *r) {
  const char *host = head_line(r->head, "Host:");
  if (head_line(r->head, "Origin:")) return true;
  return host && !is_address(host);
}

/* The head's length of the body; -1: none that is valid. */
static int64_t body_length(const char *head) {
  const char *value = head_line(head, "Content-Length:");
  if (head_line(head, "Transfer-Encoding:")) return -1;
  if (!value) return 0;
  char *end;
  long long len = strtoll(value, &end, 10);
  return end == value || len < 0 ? -1 : len;
}

/* Divides the first line, "GET /path?query HTTP/1.1", and drops the query;
 * false if it has another form. */
static bool read_first_line(http_request *r, char *line) {
  line[strcspn(line, "\r\n")] = '\0';
  char *path = strchr(line, ' ');
  char *end = path ? strchr(path + 1, ' ') : NULL;
  if (!end || path[1] != '/') return false;
  *path++ = *end = '\0';
  r->method = line;
  r->path = path;
  path[strcspn(path, "?")] = '\0';
  return true;
}

/* Runs the page of the path. */
static void run_page(server *s, conn *c, const http_request *r,
                     const http_page *pages) {
  bool known = false;
  for (const http_page *page = pages; page->path; page++) {
    if (strcmp(page->path, r->path) != 0) continue;
    known = true;
    if (strcmp(page->method, r->method) != 0) continue;
    page->run(s, c, r);
    return;
  }
  if (known)
    http_refuse(c, 405, "%s cannot be used by %s", r->path, r->method);
  else
    http_refuse(c, 404, "there is no %s", r->path);
}

/* If the request is complete, takes a copy of it. */
static void take_whole(server *s, conn *c, size_t head_len,
                       const http_page *pages) {
  size_t there = c->in_len - c->in_at;
  char *text = malloc(there + 1);
  if (!text) {
    conn_drop(c);
    return;
  }
  memcpy(text, c->in + c->in_at, there);
  text[there] = text[head_len - 1] = '\0';
  http_request r = {.head = strchr(text, '\n'), .body = text + head_len};
  int64_t len = body_length(text);
  if (memchr(text, '\0', head_len - 1)) {
    http_refuse(c, 400, "the head has a NUL");
  } else if (len < 0 || len > BODY_MOST) {
    http_refuse(c, len < 0 ? 411 : 413,
                "the head tells the length of the body, at most %d", BODY_MOST);
  } else if (there - head_len >= (size_t)len) {
    text[head_len + (size_t)len] = '\0';
    c->greeted = true;
    if (!read_first_line(&r, text))
      http_refuse(c, 400, "the first line is not an HTTP request");
    else
      run_page(s, c, &r, pages);
  }
  free(text);
}

/* Is this an HTTP connection?  Then its request runs as soon as it is complete,
 * and its input is never read as frames.  pages ends by one without a path. */
bool http_take(server *s, conn *c, const http_page *pages) {
  size_t there = c->in_len - c->in_at;
  if (there < 4) return false;
  const char *at = c->in + c->in_at;
  if (memcmp(at, "GET ", 4) != 0 && memcmp(at, "POST", 4) != 0) return false;
  c->is_text = true;
  if (c->greeted || c->ended) return true;
  const char *end = memmem(at, there, "\r\n\r\n", 4);
  if (end)
    take_whole(s, c, (size_t)(end - at) + 4, pages);
  else if (there > HEAD_MOST)
    http_refuse(c, 431, "the head is longer than %d bytes", HEAD_MOST);
  return true;
}
