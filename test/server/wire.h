/* wire.h - a server and a raw client of it, for tests
 *
 * serve() starts `zke FILE serve`.  The client sends only what the test tells
 * it to send, and waits for one frame at a time:
 *
 *     serving s = serve(":memory:", "");
 *     wire *w = begin(s);
 *     ck_assert_int_eq(create(w, "/a", "x", 0), 0);
 *     ck_call(w, ZKE_JUTE_DELETE, delete_request, "/a", -1);
 *
 * A test need not close what it opens.  At its end each connection hangs up,
 * and each server that is still running is told to end, and must end well.
 * What takes longer than SOON fails the test.
 */
#ifndef ZKE_TEST_WIRE_H
#define ZKE_TEST_WIRE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "recipes/engine/jute.h"
#include "test/test.h"

enum { SOON = 20000 }; /* ms: what takes longer never comes */

/* ---- the server ---- */

typedef struct serving {
  pid_t pid;
  int port;
} serving;

/* Start "zke FILE serve --port 0 --print-port OPTIONS…", and wait for the
 * port. */
serving serve(const char *file, const char *options);
/* The same with the options by a format. */
serving serve_with(const char *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same by "zke --timeout TIMEOUT FILE serve …". */
serving serve_within(const char *timeout, const char *file,
                     const char *options);
/* Wait for its end, for a limited time; the exit code. */
int ended(serving s);
/* End it by a signal; it must end well. */
void stop(serving s);

/* Its memory in KiB; 0 if a sanitizer keeps freed memory. */
long memory_of(serving s);

/* Copy a text with # for each number; `to` is as large as it. */
void mask_numbers(char *to, const char *text);

/* The server's whole answer to a text, such as a four-letter word; valid until
 * the next call. */
const char *says(serving s, const char *asked);

/* A request for /control with this order. */
const char *post_text(const char *line);
/* Send an order, by a format, which must succeed; the answer's body. */
const char *order(serving s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ck_word(s, word, part)                                       \
  do {                                                               \
    const char *got_ = says(s, word);                                \
    ck_assert_msg(strstr(got_, part) != NULL, "%s: %s", word, got_); \
  } while (0)

/* ---- around the server ---- */

/* Write the test's file of users, which only its owner can read; its path. */
const char *users_file(const char *text);
/* A file's content, "" if it is missing; valid until the next call. */
const char *file_text(const char *path);

/* Another program writes to the file, until release(). */
sqlite3 *hold(const char *file);
void release(sqlite3 *db);

/* ---- a connection ---- */

/* One connection.  `in` has the latest frame, and `r` reads it.  After its end
 * the session's id and password stay here until the end of the test. */
typedef struct wire {
  int fd, xid;
  int64_t id; /* the session's */
  int timeout_ms;
  char password[16];
  char *in;
  zke_jute_reader r;
  zke_jute_reply_header head;
  zke_jute_writer out;
  size_t begun;        /* start of the frame that is being written */
  struct wire *before; /* the one that was opened before it */
} wire;

/* Connect to the port, and send nothing. */
wire *dial(int port);
void hang_up(wire *w); /* a second call does nothing */
void send_bytes(wire *w, const void *bytes, size_t len);
/* Send the written requests. */
void send_out(wire *w);
/* Fill len bytes; false at the connection's end. */
bool receive(wire *w, char *to, size_t len);
/* All bytes up to the connection's end, as a text that is valid until the next
 * call. */
const char *receive_rest(wire *w);
/* Take the next frame; false at the connection's end. */
bool next_frame(wire *w);
/* The server closes; what it still sends is skipped. */
void ck_closed(wire *w);

/* Write a record, its members in order; read one of the latest frame. */
#define PUT(w, name, ...)                        \
  zke_jute_write(&(w)->out, &zke_jute_of_##name, \
                 &(zke_jute_##name){__VA_ARGS__})
#define GET(w, name, to) \
  ck_assert(zke_jute_read(&(w)->r, &zke_jute_of_##name, to))

/* ---- sessions ---- */

/* Send the first frame of a connection; password: NULL for zeros. */
void send_connect(wire *w, int64_t id, const char *password, int timeout_ms,
                  int64_t seen);
/* The answer to send_connect(): the id, 0 if there is no such session. */
int64_t take_connected(wire *w);
/* A connection with a new session. */
wire *begin_with(serving s, int timeout_ms);
wire *begin(serving s);
/* Another connection for the same session: its id, 0 if it is over. */
int64_t attach(serving s, wire **w, const wire *before);
/* A server that also listens at a Unix socket, and its client. */
serving serve_unix(wire **w);
/* Another connection to that socket; one with a new session. */
wire *dial_unix(void);
wire *begin_unix(void);
wire *begin_unix_with(int timeout_ms);
/* The error of a server that does not start with these options, a format. */
const char *refusal(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* ---- requests ---- */

/* Begin a request; its record is written next. */
void request(wire *w, int type);
/* End it; ask() also sends it, with all that were added before. */
void add(wire *w);
void ask(wire *w);
/* The next answer must have this xid; its error.  Its record is ready for
 * GET(). */
int answer_to(wire *w, int xid);
/* The answer to the latest request. */
int answer(wire *w);
/* A request with one record: add it, or send it, or also take the answer, and
 * return its error. */
#define ADD(w, type, ...) (request(w, type), PUT(w, __VA_ARGS__), add(w))
#define ASK(w, type, ...) (request(w, type), PUT(w, __VA_ARGS__), ask(w))
#define CALL(w, type, ...) (ASK(w, type, __VA_ARGS__), answer(w))
#define ck_call(w, ...) ck_assert_int_eq(CALL(w, __VA_ARGS__), 0)
/* A request without a record, and its answer. */
int call(wire *w, int type);

/* One operation of a multi, between request() and end_multi(), which returns
 * the answer's error.  Then read each result's header, and its record unless it
 * is an error; and the end. */
#define PART(w, type, ...) \
  (PUT(w, multi_header, type, 0, -1), PUT(w, __VA_ARGS__))
int end_multi(wire *w);
void ck_result(wire *w, int type, int err);
void ck_results_end(wire *w);

/* The next frame is this event. */
void ck_event(wire *w, int type, const char *path);

/* Frequent requests: ask_… sends one; the others also take its answer, and
 * return its error. */
void ask_create(wire *w, const char *path, const char *data, int flags);
int create(wire *w, const char *path, const char *data, int flags);
void ask_read(wire *w, int type, const char *path, int watch);
int look(wire *w, int type, const char *path, int watch);
void ask_set(wire *w, const char *path, const char *data, int version);
int set(wire *w, const char *path, const char *data, int version);
void ask_delete(wire *w, const char *path);
int erase(wire *w, const char *path);
int ping(wire *w);
int add_auth(wire *w, const char *scheme, const char *cert);
/* Is there a node? */
bool is_there(wire *w, const char *path);
/* The data at a path, as a text that is valid until the next call. */
const char *data_at(wire *w, const char *path);

#endif
