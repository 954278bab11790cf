/* jute.c - ZooKeeper's records on the wire
 *
 * A record is a table of fields; a vector has a table for its elements.  The
 * reader and the writer each have one function for a record, one for a field
 * and one for a vector.  Only Stats, ACL entries and texts are elements or
 * parts of others, so nothing here nests deeper than that, whatever a frame
 * contains.
 *
 * Invariants of the reader, which make hostile frames harmless:
 *   1. `at` never passes `end`: each step first checks that enough bytes are
 *      left, by a subtraction that cannot overflow.
 *   2. A vector is allocated only if its elements could fit into the remaining
 *      bytes.
 *   3. A text's NUL is written into the text's own length, which was read. */
#include "jute.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------
 * Tables
 *
 * They are made from the lists in jute.h, so the C structs, the reader and the
 * writer cannot disagree.  The elements of a vector have a table as well.
 * --------------------------------------------------------------------- */

/* The forms of a field, as jute.h lists them. */
enum form {
  FORM_BOOL,
  FORM_INT,
  FORM_LONG,
  FORM_BYTES,
  FORM_TEXT,
  FORM_TEXTS,
  FORM_ACLS,
  FORM_IDS,
  FORM_STAT
};

/* A field of a record: its form on the wire, and its offset in the C struct. */
typedef struct field {
  enum form form;
  size_t offset;
} field;

/* A record as a table, in the order of the wire. */
struct zke_jute_record {
  int count;
  const field *fields;
};

/* zke_stat has the order of the wire. */
static const field stat_fields[] = {
    {FORM_LONG, offsetof(zke_stat, czxid)},
    {FORM_LONG, offsetof(zke_stat, mzxid)},
    {FORM_LONG, offsetof(zke_stat, ctime)},
    {FORM_LONG, offsetof(zke_stat, mtime)},
    {FORM_INT, offsetof(zke_stat, version)},
    {FORM_INT, offsetof(zke_stat, cversion)},
    {FORM_INT, offsetof(zke_stat, aversion)},
    {FORM_LONG, offsetof(zke_stat, ephemeralOwner)},
    {FORM_INT, offsetof(zke_stat, dataLength)},
    {FORM_INT, offsetof(zke_stat, numChildren)},
    {FORM_LONG, offsetof(zke_stat, pzxid)}};
static const field acl_fields[] = {{FORM_INT, offsetof(zke_acl, perms)},
                                   {FORM_TEXT, offsetof(zke_acl, scheme)},
                                   {FORM_TEXT, offsetof(zke_acl, id)}};
static const field text_fields[] = {{FORM_TEXT, 0}};

static const zke_jute_record stat_record = {11, stat_fields};

/* The elements of a vector: their table, their size in C, and the fewest bytes
 * of one on the wire. */
typedef struct element {
  zke_jute_record record;
  size_t size, least;
} element;

static const element elements[] = {
    [FORM_TEXTS] = {{1, text_fields}, sizeof(char *), 4},
    [FORM_ACLS] = {{3, acl_fields}, sizeof(zke_acl), 12},
    [FORM_IDS] = {{2, acl_fields + 1}, sizeof(zke_acl), 8}};

#define FIELD(record, form, name) \
  {FORM_##form, offsetof(zke_jute_##record, name)},
#define DEFINE(name)                                                          \
  static const field name##_fields[] = {ZKE_JUTE_FIELDS_##name(FIELD, name)}; \
  const zke_jute_record zke_jute_of_##name = {                                \
      sizeof name##_fields / sizeof *name##_fields, name##_fields};
ZKE_JUTE_RECORDS(DEFINE)
#undef DEFINE
#undef FIELD

/* The common layout of zke_strings and zke_acls. */
typedef struct vector {
  int count;
  void *data;
} vector;

_Static_assert(sizeof(vector) == sizeof(zke_strings), "a vector's layout");
_Static_assert(offsetof(vector, data) == offsetof(zke_strings, data), "");
_Static_assert(sizeof(vector) == sizeof(zke_acls), "a vector's layout");
_Static_assert(offsetof(vector, data) == offsetof(zke_acls, data), "");

/* ------------------------------------------------------------------------
 * Reading
 *
 * A failure is kept in `failed`, and nothing is taken from the frame after it:
 * so a caller checks once, at the end of a record.  The blocks of vectors are
 * released with the reader.
 * --------------------------------------------------------------------- */

/* Take size bytes of the frame; NULL if fewer are left. */
static char *take(zke_jute_reader *r, size_t size) {
  if (r->failed || (size_t)(r->end - r->at) < size) {
    r->failed = true;
    return NULL;
  }
  r->at += size;
  return r->at - size;
}

/* A big-endian number of so many bytes; 0 at the frame's end. */
static uint64_t take_number(zke_jute_reader *r, size_t size) {
  const char *at = take(r, size);
  uint64_t number = 0;
  for (size_t i = 0; at && i < size; i++)
    number = number << 8 | (unsigned char)at[i];
  return number;
}

/* Numbers with a sign: a value that does not fit wraps, as everywhere here. */
static int32_t take_int(zke_jute_reader *r) {
  return (int32_t)(uint32_t)take_number(r, 4);
}

/* A length or count, from -1 on; -2 and below are malformed. */
static int take_length(zke_jute_reader *r) {
  int32_t length = take_int(r);
  if (length < -1) r->failed = true;
  return r->failed ? -1 : length;
}

/* A length and so many bytes, which stay in the frame; NULL for a length of -1,
 * and after a failure. */
static void read_bytes(zke_jute_reader *r, zke_jute_bytes *out) {
  out->len = take_length(r);
  out->data = out->len < 0 ? NULL : take(r, (size_t)out->len);
  if (!out->data) out->len = -1;
}

/* Read a text.  It is moved over the last byte of its length, to make room for
 * a NUL after it without a copy (invariant 3).  A NUL inside is recorded and
 * not refused: the caller decides what it means. */
static const char *read_text(zke_jute_reader *r) {
  zke_jute_bytes bytes;
  char *text;
  read_bytes(r, &bytes);
  if (!bytes.data) return NULL;
  size_t len = (size_t)bytes.len;
  text = r->at - len - 1;
  memmove(text, text + 1, len);
  text[len] = '\0';
  if (memchr(text, '\0', len)) r->has_nul = true;
  return text;
}

/* A block of zeros that lives as long as the reader. */
static void *take_block(zke_jute_reader *r, size_t size) {
  void **block = calloc(1, sizeof(max_align_t) + size);
  if (!block) {
    r->failed = true;
    return NULL;
  }
  *block = r->blocks;
  r->blocks = block;
  return (char *)block + sizeof(max_align_t);
}

/* Room for a vector's elements and their count; false if there is nothing to
 * read: a null vector, or one that cannot be in the frame.  A count below -1 is
 * an empty vector, as ZooKeeper reads it. */
static bool begin_vector(zke_jute_reader *r, const element *e, vector *out) {
  out->count = take_int(r);
  out->data = NULL;
  if (r->failed) out->count = -1;
  if (out->count == -1) return false;
  if (out->count < 0) out->count = 0;
  if ((size_t)out->count > (size_t)(r->end - r->at) / e->least)
    r->failed = true;
  if (!r->failed) out->data = take_block(r, e->size * ((size_t)out->count + 1));
  if (!out->data) out->count = 0;
  return out->data != NULL;
}

/* A field that is a number or bytes, such as those in elements of vectors. */
static void read_plain(zke_jute_reader *r, enum form form, void *out) {
  if (form == FORM_BOOL) *(int *)out = take_number(r, 1) != 0;
  if (form == FORM_INT) *(int32_t *)out = take_int(r);
  if (form == FORM_LONG) *(int64_t *)out = (int64_t)take_number(r, 8);
  if (form == FORM_BYTES) read_bytes(r, out);
  if (form == FORM_TEXT) *(const char **)out = read_text(r);
}

/* A table of plain fields: a Stat, or an element of a vector. */
static void read_part(zke_jute_reader *r, const zke_jute_record *record,
                      char *out) {
  for (int i = 0; i < record->count; i++)
    read_plain(r, record->fields[i].form, out + record->fields[i].offset);
}

/* Read a vector, element by element.  After a failure its rest is zeros:
 * begin_vector() has cleared the block. */
static void read_vector(zke_jute_reader *r, const element *e, void *out) {
  vector v;
  if (begin_vector(r, e, &v)) {
    for (int i = 0; i < v.count && !r->failed; i++)
      read_part(r, &e->record, (char *)v.data + (size_t)i * e->size);
  }
  memcpy(out, &v, sizeof v);
}

/* Read one record, field by field.  After a failure the rest of *out is
 * unchanged, and the reader stays failed. */
bool zke_jute_read(zke_jute_reader *r, const zke_jute_record *record,
                   void *out) {
  for (int i = 0; i < record->count && !r->failed; i++) {
    const field *f = &record->fields[i];
    char *at = (char *)out + f->offset;
    if (f->form == FORM_STAT)
      read_part(r, &stat_record, at);
    else if (f->form == FORM_TEXTS || f->form == FORM_ACLS ||
             f->form == FORM_IDS)
      read_vector(r, &elements[f->form], at);
    else
      read_plain(r, f->form, at);
  }
  return !r->failed;
}

/* Release the blocks of vectors.  Texts and bytes are in the frame, which
 * belongs to the caller. */
void zke_jute_reader_free(zke_jute_reader *r) {
  while (r->blocks) {
    void *block = r->blocks;
    r->blocks = *(void **)block;
    free(block);
  }
}

/* The bytes are copied, since a reader may change its input. */
int32_t zke_jute_length(const char bytes[4]) {
  char copy[4];
  zke_jute_reader r = {.at = copy, .end = copy + 4};
  memcpy(copy, bytes, 4);
  return take_int(&r);
}

/* ------------------------------------------------------------------------
 * Writing
 *
 * A lack of memory, or a text that is too long, is kept in `failed`, and
 * nothing is appended after it.  So only the sender of the frame must check.
 * --------------------------------------------------------------------- */

/* Room for size more bytes; NULL without memory. */
static char *room(zke_jute_writer *w, size_t size) {
  if (w->failed) return NULL;
  if (w->size - w->len < size) {
    size_t wanted = w->len + size + w->size / 2 + 64;
    char *grown = wanted < size ? NULL : realloc(w->data, wanted);
    if (!grown) {
      w->failed = true;
      return NULL;
    }
    w->data = grown;
    w->size = wanted;
  }
  w->len += size;
  return w->data + w->len - size;
}

/* Write a big-endian number.  A compiler turns this into one store, unlike a
 * loop. */
static void store_int(char *at, uint32_t number) {
  at[0] = (char)(number >> 24);
  at[1] = (char)(number >> 16);
  at[2] = (char)(number >> 8);
  at[3] = (char)number;
}

/* Append a number; without memory the writer remembers that it has failed. */
static void put_int(zke_jute_writer *w, uint32_t number) {
  char *at = room(w, 4);
  if (at) store_int(at, number);
}

/* Append a number of eight bytes, the higher half first. */
static void put_long(zke_jute_writer *w, uint64_t number) {
  char *at = room(w, 8);
  if (!at) return;
  store_int(at, (uint32_t)(number >> 32));
  store_int(at + 4, (uint32_t)number);
}

static void put_bool(zke_jute_writer *w, bool value) {
  char *at = room(w, 1);
  if (at) *at = value;
}

/* A length below 0 is null. */
static void put_bytes(zke_jute_writer *w, const void *data, int len) {
  put_int(w, (uint32_t)(len < 0 ? -1 : len));
  char *at = len > 0 ? room(w, (size_t)len) : NULL;
  if (at) memcpy(at, data, (size_t)len);
}

/* Append a text; NULL is null on the wire. */
static void put_text(zke_jute_writer *w, const char *text) {
  size_t len = text ? strlen(text) : 0;
  if (len > INT_MAX) w->failed = true;
  put_bytes(w, text, text && !w->failed ? (int)len : -1);
}

/* As read_plain(). */
static void write_plain(zke_jute_writer *w, enum form form, const void *in) {
  if (form == FORM_BOOL) put_bool(w, *(const int *)in != 0);
  if (form == FORM_INT) put_int(w, (uint32_t) * (const int32_t *)in);
  if (form == FORM_LONG) put_long(w, (uint64_t) * (const int64_t *)in);
  if (form == FORM_TEXT) put_text(w, *(const char *const *)in);
  if (form == FORM_BYTES) {
    const zke_jute_bytes *bytes = in;
    put_bytes(w, bytes->data, bytes->len);
  }
}

/* Append a table of plain fields: a Stat, or an element of a vector. */
static void write_part(zke_jute_writer *w, const zke_jute_record *record,
                       const char *in) {
  for (int i = 0; i < record->count; i++)
    write_plain(w, record->fields[i].form, in + record->fields[i].offset);
}

/* Append a vector: its count, then its elements. A count of -1 is null, and has
 * none. */
static void write_vector(zke_jute_writer *w, const element *e, const void *in) {
  vector v;
  memcpy(&v, in, sizeof v);
  put_int(w, (uint32_t)v.count);
  for (int i = 0; i < v.count && !w->failed; i++)
    write_part(w, &e->record, (const char *)v.data + (size_t)i * e->size);
}

/* Append one record, field by field, in the order of its table. */
void zke_jute_write(zke_jute_writer *w, const zke_jute_record *record,
                    const void *in) {
  for (int i = 0; i < record->count; i++) {
    const field *f = &record->fields[i];
    const char *at = (const char *)in + f->offset;
    if (f->form == FORM_STAT)
      write_part(w, &stat_record, at);
    else if (f->form == FORM_TEXTS || f->form == FORM_ACLS ||
             f->form == FORM_IDS)
      write_vector(w, &elements[f->form], at);
    else
      write_plain(w, f->form, at);
  }
}

/* A failed writer makes this one fail, too, so half a frame is never sent. */
void zke_jute_append(zke_jute_writer *w, const zke_jute_writer *more) {
  char *at = more->failed ? NULL : room(w, more->len);
  if (more->failed) w->failed = true;
  if (at && more->len) memcpy(at, more->data, more->len);
}

/* Leave room for the length; it is known at the end. */
size_t zke_jute_begin(zke_jute_writer *w) {
  size_t at = w->len;
  room(w, 4);
  return at;
}

/* Write the length of everything appended since zke_jute_begin(). */
void zke_jute_end(zke_jute_writer *w, size_t begin) {
  if (w->failed) return;
  size_t len = w->len - begin - 4;
  if (len > INT_MAX)
    w->failed = true;
  else
    store_int(w->data + begin, (uint32_t)len);
}

void zke_jute_writer_free(zke_jute_writer *w) {
  free(w->data);
  *w = (zke_jute_writer){0};
}
