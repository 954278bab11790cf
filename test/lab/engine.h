/* engine.h - what the laboratory reads of the engine's inside */
#ifndef ENGINE_H
#define ENGINE_H

#include "zkembed.h"

/* What states are compared by: words as they are, and bytes. */
typedef struct engine_sink {
  void (*word)(void *arg, uint64_t word); /* may be a pointer */
  void (*bytes)(void *arg, const void *at, size_t size);
  void *arg;
} engine_sink;

/* zxids, and nothing else, have these upper bits: so they are known for what
 * they are wherever they stand, and states that differ by how many changes
 * went before can be equal. */
#define ENGINE_ZXID_MARK UINT64_C(0x5a4b0000)
#define ENGINE_IS_ZXID(word) (((word) >> 32) == ENGINE_ZXID_MARK)

/* Make zxids so, and prepare the usual statements, before the first picture. */
int engine_begin(zke *z);

/* The words of a session's handle that decide what it will do; and those of the
 * database. */
void engine_handle_words(zke *z, const engine_sink *sink);
int engine_database_words(zke *const *handles, int count, zke *any,
                          const engine_sink *sink);

/* The engine's sentence of the last error: not a part of the state. */
const char *engine_sentence(size_t *size_out);

/* When the handle itself has to be called (ns; INT64_MAX: never). */
int64_t engine_alarm(zke *z);

/* How many ephemeral znodes a session owns; -1: cannot be read. */
int engine_owned(zke *any, int64_t session);

#endif
