/* jute.h - for recipe authors: ZooKeeper's records on the wire
 *
 * ZooKeeper's clients and servers send each other frames: four bytes of length,
 * then records.  A record is a sequence of fields in a fixed order; each field
 * has one of a few forms.  Numbers are big-endian.  This pair of files knows
 * the records and nothing else: no connection, no operation, no handle.
 *
 * Each record is described once, by its list ZKE_JUTE_FIELDS_… below.  The list
 * makes the C struct and the table for the one reader and the one writer, so
 * the two sides of a connection cannot disagree.
 *
 *     zke_jute_writer w = {0};
 *     zke_jute_delete_request del = {"/a", -1};
 *     size_t frame = zke_jute_begin(&w);
 *     zke_jute_write(&w, &zke_jute_of_delete_request, &del);
 *     zke_jute_end(&w, frame);  // send w.data, w.len
 *     zke_jute_reader r = {w.data + 4, w.data + w.len};
 *     if (zke_jute_read(&r, &zke_jute_of_delete_request, &del))
 *       puts(del.path);
 *     zke_jute_reader_free(&r);
 *     zke_jute_writer_free(&w);
 *
 * The input is not trusted: lengths and counts are checked against the
 * available bytes before anything is read or allocated, so memory is at most a
 * few times the frame's.
 */
#ifndef ZKE_JUTE_H
#define ZKE_JUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * Numbers
 * --------------------------------------------------------------------- */

/* Operations: the type in the header of a request, and in that of one operation
 * of a multi. */
enum zke_jute_type {
  ZKE_JUTE_CREATE = 1,
  ZKE_JUTE_DELETE = 2,
  ZKE_JUTE_EXISTS = 3,
  ZKE_JUTE_GET_DATA = 4,
  ZKE_JUTE_SET_DATA = 5,
  ZKE_JUTE_GET_ACL = 6,
  ZKE_JUTE_SET_ACL = 7,
  ZKE_JUTE_GET_CHILDREN = 8,
  ZKE_JUTE_SYNC = 9,
  ZKE_JUTE_PING = 11,
  ZKE_JUTE_GET_CHILDREN2 = 12,
  ZKE_JUTE_CHECK = 13,
  ZKE_JUTE_MULTI = 14,
  ZKE_JUTE_CREATE2 = 15,
  ZKE_JUTE_RECONFIG = 16,
  ZKE_JUTE_CHECK_WATCHES = 17,
  ZKE_JUTE_REMOVE_WATCHES = 18,
  ZKE_JUTE_CREATE_CONTAINER = 19,
  ZKE_JUTE_DELETE_CONTAINER = 20,
  ZKE_JUTE_CREATE_TTL = 21,
  ZKE_JUTE_MULTI_READ = 22,
  ZKE_JUTE_AUTH = 100,
  ZKE_JUTE_SET_WATCHES = 101,
  ZKE_JUTE_SASL = 102,
  ZKE_JUTE_GET_EPHEMERALS = 103,
  ZKE_JUTE_COUNT = 104, /* getAllChildrenNumber */
  ZKE_JUTE_SET_WATCHES2 = 105,
  ZKE_JUTE_ADD_WATCH = 106,
  ZKE_JUTE_WHO_AM_I = 107,
  ZKE_JUTE_CLOSE = -11,
  ZKE_JUTE_ERROR = -1 /* a refused operation in the answer to a multi */
};

/* The xid of frames that do not answer a numbered request. */
enum {
  ZKE_JUTE_XID_EVENT = -1,
  ZKE_JUTE_XID_PING = -2,
  ZKE_JUTE_XID_AUTH = -4
};

/* Errors on the wire without a name in the library. */
enum {
  ZKE_JUTE_RECONFIGDISABLED = -123,
  ZKE_JUTE_SESSIONCLOSEDREQUIRESASLAUTH = -124,
  ZKE_JUTE_QUOTAEXCEEDED = -125
};

/* The longest frame that a server accepts, ZooKeeper's jute.maxbuffer. */
enum { ZKE_JUTE_FRAME_LIMIT = 0xfffff };

/* ------------------------------------------------------------------------
 * Records
 *
 * The forms of a field, and their types in C:
 *
 *   BOOL   a byte, 0 or 1        int
 *   INT    4 bytes               int32_t
 *   LONG   8 bytes               int64_t
 *   BYTES  length, bytes         zke_jute_bytes; length -1: null
 *   TEXT   length, UTF-8         const char *; NULL: null
 *   TEXTS  count, TEXTs          zke_strings; count -1: null
 *   ACLS   count, entries        zke_acls; count -1: null
 *   IDS    count, schemes, ids   zke_acls; their perms are not sent
 *   STAT   a Stat                zke_stat
 * --------------------------------------------------------------------- */

typedef struct zke_jute_bytes {
  int len; /* -1: null */
  const char *data;
} zke_jute_bytes;

/* clang-format off */
#define ZKE_JUTE_RECORDS(R)                                               \
  R(request_header) R(reply_header) R(connect_request)                    \
  R(connect_response) R(read_only) R(auth_packet) R(multi_header)         \
  R(create_request) R(create_ttl_request) R(delete_request)               \
  R(read_request) R(path_request) R(set_data_request) R(set_acl_request)  \
  R(set_watches) R(set_watches2) R(add_watch_request) R(watches_request)  \
  R(watcher_event) R(path_response) R(create2_response) R(stat_response)  \
  R(get_data_response) R(children_response) R(children2_response)         \
  R(acl_response) R(count_response) R(error_response) R(who_am_i_response) \
  R(sasl_token)

#define ZKE_JUTE_FIELDS_request_header(F, R) F(R, INT, xid) F(R, INT, type)
#define ZKE_JUTE_FIELDS_reply_header(F, R)                                \
  F(R, INT, xid) F(R, LONG, zxid) F(R, INT, err)
#define ZKE_JUTE_FIELDS_connect_request(F, R)                                \
  F(R, INT, protocol_version) F(R, LONG, last_zxid_seen) F(R, INT, time_out) \
  F(R, LONG, session_id) F(R, BYTES, passwd)
#define ZKE_JUTE_FIELDS_connect_response(F, R)                               \
  F(R, INT, protocol_version) F(R, INT, time_out) F(R, LONG, session_id) \
  F(R, BYTES, passwd)
/* After both of these, unless the client is from before 3.4. */
#define ZKE_JUTE_FIELDS_read_only(F, R) F(R, BOOL, read_only)
#define ZKE_JUTE_FIELDS_auth_packet(F, R)                                    \
  F(R, INT, type) F(R, TEXT, scheme) F(R, BYTES, auth)
#define ZKE_JUTE_FIELDS_multi_header(F, R)                                \
  F(R, INT, type) F(R, BOOL, done) F(R, INT, err)
#define ZKE_JUTE_FIELDS_create_request(F, R)                                 \
  F(R, TEXT, path) F(R, BYTES, data) F(R, ACLS, acl) F(R, INT, flags)
#define ZKE_JUTE_FIELDS_create_ttl_request(F, R)                             \
  ZKE_JUTE_FIELDS_create_request(F, R) F(R, LONG, ttl)
/* delete and check */
#define ZKE_JUTE_FIELDS_delete_request(F, R) F(R, TEXT, path) F(R, INT, version)
/* exists, getData, getChildren and getChildren2 */
#define ZKE_JUTE_FIELDS_read_request(F, R) F(R, TEXT, path) F(R, BOOL, watch)
/* sync, getACL, getAllChildrenNumber, getEphemerals */
#define ZKE_JUTE_FIELDS_path_request(F, R) F(R, TEXT, path)
#define ZKE_JUTE_FIELDS_set_data_request(F, R)                               \
  F(R, TEXT, path) F(R, BYTES, data) F(R, INT, version)
#define ZKE_JUTE_FIELDS_set_acl_request(F, R)                                \
  F(R, TEXT, path) F(R, ACLS, acl) F(R, INT, version)
#define ZKE_JUTE_FIELDS_set_watches(F, R)                                    \
  F(R, LONG, relative_zxid) F(R, TEXTS, data) F(R, TEXTS, exist)          \
  F(R, TEXTS, child)
#define ZKE_JUTE_FIELDS_set_watches2(F, R)                                   \
  ZKE_JUTE_FIELDS_set_watches(F, R)                                       \
  F(R, TEXTS, persistent) F(R, TEXTS, recursive)
#define ZKE_JUTE_FIELDS_add_watch_request(F, R) F(R, TEXT, path) F(R, INT, mode)
/* checkWatches and removeWatches */
#define ZKE_JUTE_FIELDS_watches_request(F, R) F(R, TEXT, path) F(R, INT, type)
#define ZKE_JUTE_FIELDS_watcher_event(F, R)                                  \
  F(R, INT, type) F(R, INT, state) F(R, TEXT, path)
/* create, sync */
#define ZKE_JUTE_FIELDS_path_response(F, R) F(R, TEXT, path)
#define ZKE_JUTE_FIELDS_create2_response(F, R) F(R, TEXT, path) F(R, STAT, stat)
/* exists, setData, setACL */
#define ZKE_JUTE_FIELDS_stat_response(F, R) F(R, STAT, stat)
#define ZKE_JUTE_FIELDS_get_data_response(F, R)                           \
  F(R, BYTES, data) F(R, STAT, stat)
#define ZKE_JUTE_FIELDS_children_response(F, R) F(R, TEXTS, children)
#define ZKE_JUTE_FIELDS_children2_response(F, R)                          \
  F(R, TEXTS, children) F(R, STAT, stat)
#define ZKE_JUTE_FIELDS_acl_response(F, R) F(R, ACLS, acl) F(R, STAT, stat)
#define ZKE_JUTE_FIELDS_count_response(F, R) F(R, INT, count)
#define ZKE_JUTE_FIELDS_error_response(F, R) F(R, INT, err)
#define ZKE_JUTE_FIELDS_who_am_i_response(F, R) F(R, IDS, ids)
/* SASL, in both directions */
#define ZKE_JUTE_FIELDS_sasl_token(F, R) F(R, BYTES, token)
/* clang-format on */

#define ZKE_JUTE_TYPE_BOOL int
#define ZKE_JUTE_TYPE_INT int32_t
#define ZKE_JUTE_TYPE_LONG int64_t
#define ZKE_JUTE_TYPE_BYTES zke_jute_bytes
#define ZKE_JUTE_TYPE_TEXT const char *
#define ZKE_JUTE_TYPE_TEXTS zke_strings
#define ZKE_JUTE_TYPE_ACLS zke_acls
#define ZKE_JUTE_TYPE_IDS zke_acls
#define ZKE_JUTE_TYPE_STAT zke_stat

/* The table of a record: the offsets of its fields in the struct, and their
 * forms. */
typedef struct zke_jute_record zke_jute_record;

/* For each: zke_jute_NAME, the struct, and zke_jute_of_NAME, the table. */
#define ZKE_JUTE_MEMBER_(record, form, name) ZKE_JUTE_TYPE_##form name;
#define ZKE_JUTE_DECLARE_(name)                    \
  typedef struct zke_jute_##name {                 \
    ZKE_JUTE_FIELDS_##name(ZKE_JUTE_MEMBER_, name) \
  } zke_jute_##name;                               \
  extern const zke_jute_record zke_jute_of_##name;
ZKE_JUTE_RECORDS(ZKE_JUTE_DECLARE_)
#undef ZKE_JUTE_DECLARE_
#undef ZKE_JUTE_MEMBER_

/* ------------------------------------------------------------------------
 * Reading
 * --------------------------------------------------------------------- */

/* The rest of a frame.  Begin with {first byte, past the last}; the other
 * members are zero.  The bytes are changed: a text is moved over its length, to
 * make room for a NUL after it. */
typedef struct zke_jute_reader {
  char *at, *end;
  void *blocks; /* the vectors that were read */
  bool failed;  /* malformed, or no memory: nothing more is read */
  bool has_nul; /* a text had a NUL inside; it was cut there */
} zke_jute_reader;

/* zke_jute_read - the next record
 *
 *   out  its struct.  Its texts and bytes point into the frame, its vectors
 *        into the reader.  After a failure some members are set
 *
 * Returns true, or false if the record is malformed or longer than the frame,
 * or there is no memory. */
bool zke_jute_read(zke_jute_reader *r, const zke_jute_record *record,
                   void *out);

/* zke_jute_reader_free - release the vectors that were read */
void zke_jute_reader_free(zke_jute_reader *r);

/* zke_jute_length - four bytes as a number: a frame's length, or a word that a
 *                   person sent instead */
int32_t zke_jute_length(const char bytes[4]);

/* ------------------------------------------------------------------------
 * Writing
 * --------------------------------------------------------------------- */

/* The bytes to send.  Begin with zeros. */
typedef struct zke_jute_writer {
  char *data;
  size_t len, size;
  bool failed; /* no memory, or a frame of 2 GiB: nothing more is written */
} zke_jute_writer;

/* zke_jute_begin - leave room for a frame's length; returns its position
 * zke_jute_write - write one more record
 * zke_jute_append - append what another writer holds
 * zke_jute_end   - write the length of the frame that began there
 * zke_jute_writer_free - release all; the writer can be used again */
size_t zke_jute_begin(zke_jute_writer *w);
void zke_jute_write(zke_jute_writer *w, const zke_jute_record *record,
                    const void *in);
void zke_jute_append(zke_jute_writer *w, const zke_jute_writer *more);
void zke_jute_end(zke_jute_writer *w, size_t begin);
void zke_jute_writer_free(zke_jute_writer *w);

#ifdef __cplusplus
}
#endif

#endif
