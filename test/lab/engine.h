/* engine.h - what the laboratory reads of the engine's inside */
#ifndef ENGINE_H
#define ENGINE_H

#include "zkembed.h"

/* What states are compared by. */
typedef struct engine_sink {
  void (*word)(void *arg, uint64_t word); /* may be a pointer */
  void *arg;
} engine_sink;

/* zxids and the turns of handles only count up, and are compared with their
 * like.  Each kind begins at a value whose upper 32 bits nothing else has, so
 * that they are known for what they are wherever they stand, and states can be
 * equal although more has happened before one of them.  Kind 0 is zxids', kind
 * 1 + i is the turns' of handle i. */
#define ENGINE_COUNTER UINT64_C(0x5a4b000000000000)
#define ENGINE_IS_COUNTER(word) (((word) >> 48) == ENGINE_COUNTER >> 48)
#define ENGINE_COUNTER_KIND(kind) (ENGINE_COUNTER + ((uint64_t)(kind) << 32))

/* Make zxids so, before the first picture. */
int engine_begin(zke *z);

/* From now on the engine's statements run on plain tables (tables.h). */
int engine_begin_tables(zke *z);

/* Make the turns of a new handle so. */
void engine_begin_handle(zke *z, int number);

/* The words of a session's handle that decide what it will do; and those of the
 * tables. */
void engine_handle_words(zke *z, const engine_sink *sink);
void engine_database_words(zke *const *handles, int count,
                           const engine_sink *sink);

/* The variables of a thread that are no part of the state: the sentence of the
 * last error; the zxid of the last call, while nobody asks for it. */
enum { ENGINE_UNREAD = 2, ENGINE_ZXID = 1 };
const char *engine_unread(int which, size_t *size_out);

/* When the handle itself has to be called (ns; INT64_MAX: never). */
int64_t engine_alarm(zke *z);

/* How many ephemeral znodes a session owns; -1: cannot be read. */
int engine_owned(zke *any, int64_t session);

/* How many watchers are registered with a handle. */
int engine_watchers(const zke *z);

#endif
