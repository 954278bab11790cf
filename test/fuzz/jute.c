/* jute.c - fuzz target: hostile frames of ZooKeeper's protocol
 *
 * The first byte selects a record, the others are the frame.  Records are read
 * from it one after another, as a server reads the operations of a multi.
 * Whatever the bytes are, the reader stays inside the frame, uses memory in
 * proportion to it, and leaks none.  An accepted record is written and read
 * again, and is the same.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/engine/jute.h"
#include "fuzz.h"

int fuzz_jute(const uint8_t *data, size_t size);

#define JUTE_RECORD(name) &zke_jute_of_##name,
static const zke_jute_record *const jute_records[] = {
    ZKE_JUTE_RECORDS(JUTE_RECORD)};
enum { JUTE_KINDS = sizeof jute_records / sizeof *jute_records };

/* Large enough for any of the structs. */
typedef union jute_any {
#define JUTE_MEMBER(name) zke_jute_##name name;
  ZKE_JUTE_RECORDS(JUTE_MEMBER)
#undef JUTE_MEMBER
} jute_any;

/* Write what was read from a frame, read it again, and write the same bytes. */
static void jute_again(const zke_jute_record *record, const jute_any *read) {
  zke_jute_writer one = {0}, two = {0};
  jute_any again;
  zke_jute_write(&one, record, read);
  FUZZ_EXPECT(!one.failed);
  char *copy = malloc(one.len + 1);
  FUZZ_EXPECT(copy);
  if (one.len) memcpy(copy, one.data, one.len);
  zke_jute_reader r = {.at = copy, .end = copy + one.len};
  FUZZ_EXPECT(zke_jute_read(&r, record, &again));
  FUZZ_EXPECT(r.at == r.end && !r.has_nul);
  zke_jute_write(&two, record, &again);
  FUZZ_EXPECT(two.len == one.len);
  if (one.len) FUZZ_EXPECT(memcmp(one.data, two.data, one.len) == 0);
  zke_jute_reader_free(&r);
  zke_jute_writer_free(&one);
  zke_jute_writer_free(&two);
  free(copy);
}

int fuzz_jute(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  unsigned kind = fuzz_byte(&in);
  char *frame = malloc(in.left + 1);
  FUZZ_EXPECT(frame);
  if (in.left) memcpy(frame, in.at, in.left);
  zke_jute_reader r = {.at = frame, .end = frame + in.left};
  for (; !r.failed && r.at < r.end; kind++) {
    const zke_jute_record *record = jute_records[kind % JUTE_KINDS];
    jute_any any;
    const char *before = r.at;
    if (!zke_jute_read(&r, record, &any)) break;
    FUZZ_EXPECT(r.at > before && r.at <= r.end);
    jute_again(record, &any);
  }
  zke_jute_reader_free(&r);
  free(frame);
  return 0;
}

FUZZ_TARGET(fuzz_jute)
