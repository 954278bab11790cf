/* engine.h - what the laboratory reads of the engine's internals */
#ifndef ENGINE_H
#define ENGINE_H

#include "zkembed.h"

/* Receives the words by which states are compared. */
typedef struct engine_sink {
  void (*word)(void *arg, uint64_t word); /* may be a pointer */
  void *arg;
} engine_sink;

/* zxids and the turns of handles only count up, and are only compared with
 * their own kind.  Each kind begins at a value with upper 32 bits that nothing
 * else has.  So they can be recognised anywhere, and states can be equal
 * although more has happened before one of them.  Kind 0 is for zxids, kind 1 +
 * i for the turns of handle i. */
#define ENGINE_COUNTER UINT64_C(0x5a4b000000000000)
#define ENGINE_IS_COUNTER(word) (((word) >> 48) == ENGINE_COUNTER >> 48)
#define ENGINE_COUNTER_KIND(kind) (ENGINE_COUNTER + ((uint64_t)(kind) << 32))

/* Start zxids at such a value, before the first picture. */
int engine_begin(zke *z);

/* From now on the engine's statements run on plain tables (tables.h). */
int engine_begin_tables(zke *z);

/* The same for the turns of a new handle. */
void engine_begin_handle(zke *z, int number);

/* The words of a session's handle that decide its further actions; and those of
 * the tables. */
void engine_handle_words(zke *z, const engine_sink *sink);
void engine_database_words(zke *const *handles, int count,
                           const engine_sink *sink);

/* Thread-local variables that are not part of the state: the last error's
 * sentence; the last call's zxid, as long as no code asks for it. */
enum { ENGINE_UNREAD = 2, ENGINE_ZXID = 1 };
const char *engine_unread(int which, size_t *size_out);

/* When the handle itself must be called (ns; INT64_MAX: never). */
int64_t engine_alarm(zke *z);

/* How many ephemeral znodes a session owns; -1: unreadable. */
int engine_owned(zke *any, int64_t session);

/* How many watchers are registered with a handle. */
int engine_watchers(const zke *z);

#endif
