/* semantics.h - calls of zkembed.h as text, and their answers
 *
 * Used only by test_semantics.c, whose head describes the syntax.
 */
#ifndef ZKE_SEMANTICS_H
#define ZKE_SEMANTICS_H

#include <stdbool.h>

#include "test/test.h"

/* ---- the subject of a block ---- */

typedef enum subject {
  MEMORY,
  A_FILE,
  MODEL,
  BATCH,
  ALONE,
  SERVER,
  SUBJECTS
} subject;

/* The running line.  line_fails(): its test has failed, with this sentence;
 * must(): it has if the condition is false. */
typedef struct place {
  const char *file;
  int line;
  subject on;
} place;
extern place here;
void line_fails(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));
#define must(condition, ...)                   \
  do {                                         \
    if (!(condition)) line_fails(__VA_ARGS__); \
  } while (0)

/* A text that grows up to a limit; more is a failure. */
enum { ANSWER = 20000 };
typedef struct answer {
  char text[ANSWER];
  size_t length;
  bool refused; /* it has the code of an error */
} answer;
void say(answer *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The context of a watcher; it collects the events. */
struct session;
typedef struct listener {
  const struct session *of;
  char label[32];
  answer told;
} listener;

enum { MOST_SESSIONS = 16, MOST_LABELS = 4 };

/* A session of the block; it keeps its place when it is closed, since Stats may
 * still name it. */
typedef struct session {
  char name[32];
  zke *z;     /* NULL: closed */
  zke *spare; /* the handle opened for "w", if that is "main" itself */
  int64_t id;
  listener listeners[MOST_LABELS];
} session;

/* The state of a running block. */
typedef struct stage {
  subject on;
  session sessions[MOST_SESSIONS]; /* the first is "main" */
  int count;
  int64_t first_zxid, first_ms; /* shown values are relative to these */
  test_heap heap;
} stage;

/* The session with this name, open or closed; NULL: there is none. */
session *stage_session(stage *s, const char *name);
/* Any open session; NULL: there is none. */
session *stage_living(stage *s);
const char *stage_name(const stage *s, int64_t id);
/* Open a session by "open NAME OPTION=VALUE..."; end one.  Returns a result
 * code. */
struct call;
int stage_open(stage *s, const struct call *c);
int stage_close(stage *s, const char *name);
/* Let this time pass, and remove what expires in it. */
void stage_pass(stage *s, int64_t ms);
/* The zxid of the last change, as zke_zxid() has it. */
int64_t stage_zxid(stage *s, zke *z);
/* Close everything; zke_check() must find nothing, and all memory be freed. */
void stage_end(stage *s);

/* ---- a parsed call ---- */

enum { MOST_WORDS = 24, MOST_PARTS = 40 };

typedef struct word {
  char *text; /* without escapes */
  size_t length;
  bool quoted;
  long times;    /* from "x"*TIMES; else 1 */
  int64_t shown; /* from "x"/SHOWN; else INT64_MIN */
} word;

typedef struct call {
  char *verb;
  char *path; /* NULL if the text says NULL */
  const char *data;
  int len;
  int64_t number; /* usually a version; -1: none */
  int mode;
  bool has_ttl;
  int64_t ttl_ms;
  const zke_acls *acls;
  const char *label; /* of a watch; NULL: no watch */
  word words[MOST_WORDS];
  int word_count;
  zke_acl entries[8];
  zke_acls list;
} call;

/* Parse one call, up to the end of the text or to a ';' outside of quotes;
 * returns the rest, or NULL at the end.  call_free() releases it. */
const char *call_read(call *c, const char *text);
void call_free(call *c);
/* The value of "key=value"; NULL: no such word. */
const char *call_option(const call *c, const char *key);
bool call_has(const call *c, const char *flag);

/* ---- values as text ---- */

void say_code(answer *to, int rc);
void say_name(answer *to, const char *name); /* quoted if it has to be */
void say_data(answer *to, const char *data, int len);
void say_names(answer *to, const zke_strings *names);
void say_acls(answer *to, const zke_acls *acls);
void say_stat(answer *to, stage *s, const zke_stat *stat);

/* ---- running it ---- */

/* The watcher of all watches, and its context for a label of a session. */
void hear(zke *z, int type, int state, const char *path, void *context);
listener *label_of(session *by, const char *label);

/* Run a line as a session; false: there is no such verb. */
bool verb_run(stage *s, session *by, const char *line, answer *to);

#endif
