/* test_jute.c - the codec of ZooKeeper's records
 *
 * Reading returns what was written.  A frame with wrong lengths is never read
 * beyond its end.
 */
#include <stdlib.h>
#include <string.h>

#include "recipes/engine/jute.h"
#include "test/test.h"

/* ------------------------------------------------------------------------
 * Bytes
 * --------------------------------------------------------------------- */

/* A copy in a block of exactly that size: a sanitizer or valgrind sees the
 * first access after its end. */
static char *copy_of(const void *bytes, size_t len) {
  char *copy = malloc(len ? len : 1);
  ck_assert_ptr_nonnull(copy);
  if (len) memcpy(copy, bytes, len);
  return copy;
}

/* Read one record from these bytes, and check that its reader stays inside. */
static bool reads(const void *bytes, size_t len, const zke_jute_record *record,
                  void *out, bool *has_nul) {
  char *copy = copy_of(bytes, len);
  zke_jute_reader r = {.at = copy, .end = copy + len};
  bool done = zke_jute_read(&r, record, out);
  ck_assert(r.at >= copy && r.at <= r.end);
  ck_assert_int_eq(done, !r.failed);
  if (has_nul) *has_nul = r.has_nul;
  zke_jute_reader_free(&r);
  free(copy);
  return done;
}

#define READS(literal, record, out) \
  reads(literal, sizeof literal - 1, &zke_jute_of_##record, out, NULL)

/* ------------------------------------------------------------------------
 * What is written is read again
 * --------------------------------------------------------------------- */

/* As ZooKeeper's own client sends it: create("/a", "xy", open ACL, ephemeral),
 * captured from the wire. */
static const char create_frame[] =
    "\0\0\0\2/a"
    "\0\0\0\2xy"
    "\0\0\0\1\0\0\0\37\0\0\0\5world\0\0\0\6anyone"
    "\0\0\0\1";

/* The written bytes are those of ZooKeeper's client. */
TEST(a_record_has_zookeepers_bytes) {
  zke_jute_writer w = {0};
  zke_jute_create_request out = {"/a", {2, "xy"}, zke_open_acl, ZKE_EPHEMERAL};
  size_t frame = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_create_request, &out);
  zke_jute_end(&w, frame);
  ck_assert(!w.failed);
  ck_assert_uint_eq(w.len, 4 + sizeof create_frame - 1);
  ck_assert_int_eq(zke_jute_length(w.data), (int)sizeof create_frame - 1);
  ck_assert_mem_eq(w.data + 4, create_frame, sizeof create_frame - 1);
  zke_jute_writer_free(&w);
  ck_assert_ptr_null(w.data);
}

/* The bytes of ZooKeeper's client give the record back, with its texts as C
 * strings. */
TEST(a_record_is_read_with_its_texts_ended_by_nuls) {
  char *copy = copy_of(create_frame, sizeof create_frame - 1);
  zke_jute_reader r = {.at = copy, .end = copy + sizeof create_frame - 1};
  zke_jute_create_request in;
  ck_assert(zke_jute_read(&r, &zke_jute_of_create_request, &in));
  ck_assert_str_eq(in.path, "/a");
  ck_assert_int_eq(in.data.len, 2);
  ck_assert_mem_eq(in.data.data, "xy", 2);
  ck_assert_int_eq(in.acl.count, 1);
  ck_assert_int_eq(in.acl.data[0].perms, ZKE_PERM_ALL);
  ck_assert_str_eq(in.acl.data[0].scheme, "world");
  ck_assert_str_eq(in.acl.data[0].id, "anyone");
  ck_assert_int_eq(in.flags, ZKE_EPHEMERAL);
  ck_assert_ptr_eq(r.at, r.end);
  ck_assert(!r.has_nul);
  zke_jute_reader_free(&r);
  free(copy);
}

/* Null and empty differ, in texts, bytes and vectors. */
TEST(null_and_empty_are_two_things) {
  zke_jute_create_request in;
  ck_assert(
      READS("\377\377\377\377"
            "\377\377\377\377"
            "\377\377\377\377"
            "\0\0\0\0",
            create_request, &in));
  ck_assert_ptr_null(in.path);
  ck_assert_int_eq(in.data.len, -1);
  ck_assert_ptr_null(in.data.data);
  ck_assert_int_eq(in.acl.count, -1);
  ck_assert(
      READS("\0\0\0\0"
            "\0\0\0\0"
            "\0\0\0\0"
            "\0\0\0\0",
            create_request, &in));
  ck_assert_ptr_nonnull(in.path);
  ck_assert_int_eq(in.data.len, 0);
  ck_assert_int_eq(in.acl.count, 0);
}

/* Numbers of four and eight bytes keep their signs, also at the ends of their
 * ranges. */
TEST(numbers_keep_their_signs_and_all_their_bits) {
  zke_jute_reply_header in;
  ck_assert(
      READS("\377\377\377\376"
            "\200\0\0\0\0\0\0\1"
            "\177\377\377\377",
            reply_header, &in));
  ck_assert_int_eq(in.xid, -2);
  ck_assert_int_eq(in.zxid, INT64_MIN + 1);
  ck_assert_int_eq(in.err, INT32_MAX);
}

/* The Stat has ZooKeeper's order, and is the last field of many responses. */
TEST(a_stat_is_read_as_it_was_written) {
  const zke_stat stat = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  zke_jute_get_data_response out = {{3, "abc"}, stat}, in;
  zke_jute_writer w = {0};
  zke_jute_write(&w, &zke_jute_of_get_data_response, &out);
  ck_assert_uint_eq(w.len, 7 + 68);
  ck_assert_mem_eq(w.data + 7, "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2", 16);
  ck_assert(reads(w.data, w.len, &zke_jute_of_get_data_response, &in, NULL));
  ck_assert_int_eq(in.stat.czxid, 1);
  ck_assert_int_eq(in.stat.mtime, 4);
  ck_assert_int_eq(in.stat.aversion, 7);
  ck_assert_int_eq(in.stat.ephemeralOwner, 8);
  ck_assert_int_eq(in.stat.numChildren, 10);
  ck_assert_int_eq(in.stat.pzxid, 11);
  zke_jute_writer_free(&w);
}

/* Each record, read from zero bytes: it is written as the same bytes, and every
 * shorter frame is refused. */
typedef struct known {
  const char *name;
  const zke_jute_record *record;
} known;

#define KNOWN(name) {#name, &zke_jute_of_##name},
static const known records[] = {ZKE_JUTE_RECORDS(KNOWN)};
enum { RECORDS = sizeof records / sizeof *records };

/* Any record of zeros is read only if it is complete, and is written as the
 * same bytes. */
TEST_LOOP(each_record_is_refused_where_it_is_cut, 0, RECORDS) {
  const zke_jute_record *record = records[_i].record;
  static const char zeros[256];
  union {
    int64_t align;
    char bytes[512];
  } out;
  size_t len = 0;
  while (len < sizeof zeros && !reads(zeros, len, record, &out, NULL)) len++;
  ck_assert_msg(len > 0 && len < sizeof zeros, "%s: %zu", records[_i].name,
                len);
  char *copy = copy_of(zeros, len);
  zke_jute_reader r = {.at = copy, .end = copy + len};
  zke_jute_writer w = {0};
  ck_assert(zke_jute_read(&r, record, &out));
  zke_jute_write(&w, record, &out);
  ck_assert_uint_eq(w.len, len);
  ck_assert_mem_eq(w.data, zeros, len);
  zke_jute_writer_free(&w);
  zke_jute_reader_free(&r);
  free(copy);
}

/* ------------------------------------------------------------------------
 * Frames that lie
 * --------------------------------------------------------------------- */

/* A text with a length beyond the frame, or below -1, is refused. */
TEST(a_length_beyond_the_frame_is_refused) {
  zke_jute_path_request in;
  ck_assert(!READS("\0\0\0\3/a", path_request, &in));
  ck_assert(!READS("\177\377\377\377/a", path_request, &in));
  ck_assert(!READS("\200\0\0\0/a", path_request, &in));
  ck_assert(!READS("\377\377\377\376/a", path_request, &in));
  ck_assert(READS("\0\0\0\2/a", path_request, &in));
}

/* A vector is not allocated for a count that the frame cannot hold: 2 GiB of
 * entries would be 48 GiB of memory. */
TEST(a_count_beyond_the_frame_is_refused) {
  zke_jute_acl_response acl;
  zke_jute_children_response names;
  ck_assert(!READS("\177\377\377\377\0\0\0\0", children_response, &names));
  ck_assert(!READS("\0\0\0\3\0\0\0\0\0\0\0\0", children_response, &names));
  ck_assert(READS("\0\0\0\2\0\0\0\0\0\0\0\0", children_response, &names));
  ck_assert(!READS("\177\377\377\377\0\0\0\37", acl_response, &acl));
}

/* A count below -1 gives an empty vector, as in ZooKeeper. */
TEST(a_negative_count_is_an_empty_vector) {
  zke_jute_children_response in;
  ck_assert(READS("\377\377\377\376", children_response, &in));
  ck_assert_int_eq(in.children.count, 0);
  ck_assert(READS("\377\377\377\377", children_response, &in));
  ck_assert_int_eq(in.children.count, -1);
}

/* A NUL, which would end a path in C, is reported. */
TEST(a_text_with_a_nul_inside_is_told) {
  zke_jute_path_request in;
  bool has_nul = false;
  ck_assert(
      reads("\0\0\0\4/a\0b", 8, &zke_jute_of_path_request, &in, &has_nul));
  ck_assert(has_nul);
  ck_assert(reads("\0\0\0\2/a", 6, &zke_jute_of_path_request, &in, &has_nul));
  ck_assert(!has_nul);
}

/* After a failure nothing more is read, though bytes are left. */
TEST(a_reader_that_has_failed_stays_so) {
  char bytes[] = "\377\377\377\376\0\0\0\2/a";
  zke_jute_reader r = {.at = bytes, .end = bytes + sizeof bytes - 1};
  zke_jute_path_request in;
  ck_assert(!zke_jute_read(&r, &zke_jute_of_path_request, &in));
  ck_assert(!zke_jute_read(&r, &zke_jute_of_path_request, &in));
  zke_jute_reader_free(&r);
}
