/* path.c - fuzz target: path rules, keys, ACL texts, identities
 *
 * Includes zkembed.c to reach its statics.  The path rules are compared with a
 * second implementation of semantics.md 1, written differently: it first
 * decodes the whole text, then checks each rule in one loop.  If a function has
 * an inverse (split and join, encode and decode) this must return the input.
 */
#ifndef FUZZ_TOGETHER
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "zkembed.c"
#endif
#include "fuzz.h"

/* ---- paths ---- */

/* How many bytes of UTF-8 follow a character's first byte; -1: it is
 * invalid. */
static int path_model_more(unsigned char first) {
  if (first < 0x80) return 0;
  if ((first >> 5) == 0x06) return 1;
  if ((first >> 4) == 0x0e) return 2;
  return (first >> 3) == 0x1e ? 3 : -1;
}

/* The code points of a UTF-8 text; false if it is malformed.  at has room for
 * as many as there are bytes. */
static bool path_model_decode(const char *text, uint32_t *at, size_t *count) {
  const unsigned char *s = (const unsigned char *)text;
  static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  for (*count = 0; *s; ++*count) {
    int more = path_model_more(*s);
    if (more < 0) return false;
    uint32_t c = more ? *s & (0x3fu >> more) : *s;
    s++;
    for (int i = 0; i < more; i++, s++) {
      if (*s >> 6 != 2) return false;
      c = c << 6 | (*s & 0x3f);
    }
    if (c < least[more]) return false;
    at[*count] = c;
  }
  return true;
}

/* Does the client refuse this component text[from..to)? */
static bool path_model_bad_part(const char *text, size_t from, size_t to) {
  size_t len = to - from;
  return len == 0 || strncmp(text + from, ".", len) == 0 ||
         strncmp(text + from, "..", len) == 0;
}

static bool path_model_client(const char *text, bool sequential) {
  size_t len = strlen(text), from = 1;
  if (len == 0 || text[0] != '/') return false;
  if (len == 1) return true;
  for (size_t i = 0; i < len; i++) {
    if ((unsigned char)text[i] < 0x1f) return false;
  }
  for (size_t i = 1; i < len; i++) {
    if (text[i] != '/') continue;
    if (path_model_bad_part(text, from, i)) return false;
    from = i + 1;
  }
  return sequential || !path_model_bad_part(text, from, len);
}

static bool path_model_server(const char *text) {
  size_t count;
  uint32_t *at = malloc((strlen(text) + 1) * sizeof *at);
  FUZZ_EXPECT(at);
  bool good =
      path_model_client(text, false) && path_model_decode(text, at, &count);
  for (size_t i = 0; good && i < count; i++) {
    good = at[i] > 0x1f && !(at[i] > 0x7e && at[i] < 0xa0) &&
           !(at[i] >= 0xd800 && at[i] <= 0xf8ff) && at[i] < 0xfff0;
  }
  free(at);
  return good;
}

static void path_fuzz_rules(fuzz_input *in) {
  char *path = fuzz_text(in, in->left);
  FUZZ_EXPECT(path_check(path, false) == path_model_client(path, false));
  FUZZ_EXPECT(path_check(path, true) == path_model_client(path, true));
  FUZZ_EXPECT(path_check_new(path) == path_model_server(path));
  if (path_check(path, false)) FUZZ_EXPECT(path_check(path, true));
  free(path);
}

/* A path that is split at its last '/' is joined to the same path. */
static void path_fuzz_split(fuzz_input *in) {
  zke_allocator a = {mem_default_resize, NULL};
  buf joined = {.a = &a};
  char *path = fuzz_text(in, in->left);
  if (path_check(path, false) && path[1]) {
    path_key k = path_split(path, strlen(path));
    FUZZ_EXPECT(k.name_len > 0 && k.parent_len > 0);
    FUZZ_EXPECT(!memchr(k.name, '/', (size_t)k.name_len));
    path_join(&joined, k);
    FUZZ_EXPECT(joined.len == strlen(path));
    FUZZ_EXPECT(memcmp(joined.data, path, joined.len) == 0);
  }
  path_is_reserved(path);
  buf_free(&joined);
  free(path);
}

/* ---- ACLs ---- */

/* Identities from the input's texts. */
static void path_fuzz_identities(fuzz_input *in, const zke_allocator *a,
                                 acl_identities *who) {
  memset(who, 0, sizeof *who);
  who->texts.a = a;
  for (unsigned i = fuzz_byte(in) % 3; i; i--) {
    char *cert = fuzz_text(in, fuzz_byte(in));
    char *id = auth_identity(a, cert, strlen(cert));
    FUZZ_EXPECT(id && strlen(id) >= 29);
    FUZZ_EXPECT(acl_add_identity(who, "digest", id) == ZKE_OK);
    mem_free(id);
    free(cert);
  }
}

/* An ACL text from a damaged file: read it every way. */
static void path_fuzz_acl_text(fuzz_input *in) {
  zke_allocator a = {mem_default_resize, NULL};
  acl_identities who;
  path_fuzz_identities(in, &a, &who);
  int32_t needed = (int32_t)fuzz_byte(in);
  char *text = fuzz_text(in, in->left);
  bool allowed = acl_allows(&who, text, needed);
  if (!needed) FUZZ_EXPECT(!allowed);
  view_acl_valid(text);
  for (int masked = 0; masked < 2; masked++) {
    zke_acls *list = acl_decode(&a, text, masked);
    FUZZ_EXPECT(list && list->count >= 0);
    if (view_acl_valid(text)) FUZZ_EXPECT(list->count > 0);
    for (int i = 0; i < list->count; i++)
      FUZZ_EXPECT(strlen(list->data[i].scheme) < 16 && list->data[i].id);
    mem_free(list);
  }
  buf_free(&who.texts);
  free(text);
}

/* Does the list have an equal entry? */
static bool path_fuzz_has_entry(const zke_acls *list, const zke_acl *e) {
  for (int i = 0; i < list->count; i++) {
    const zke_acl *f = &list->data[i];
    if (e->perms == f->perms && strcmp(e->scheme, f->scheme) == 0 &&
        strcmp(e->id, f->id) == 0)
      return true;
  }
  return false;
}

/* A caller's list is encoded; the result must be readable to its end, and must
 * decode to entries of the list. */
static void path_fuzz_acl_list(fuzz_input *in) {
  zke_allocator a = {mem_default_resize, NULL};
  static const char *const schemes[] = {"digest", "world", "auth",
                                        "ip",     "sasl",  "super"};
  acl_schemes known = {.names = {.a = &a}};
  acl_identities who;
  zke_acl entries[8];
  buf text = {.a = &a};
  bool open = false;
  path_fuzz_identities(in, &a, &who);
  if (fuzz_byte(in) % 2) {
    FUZZ_EXPECT(acl_add_scheme(&known, "ip") == ZKE_OK);
    FUZZ_EXPECT(acl_add_scheme(&known, "sasl") == ZKE_OK);
  }
  int count = (int)(fuzz_byte(in) % 8);
  for (int i = 0; i < count; i++) {
    entries[i].perms = (int32_t)fuzz_int(in);
    entries[i].scheme = schemes[fuzz_byte(in) % 6];
    entries[i].id = fuzz_text(in, fuzz_byte(in) % 64);
  }
  zke_acls acls = {count, entries};
  int rc = fuzz_rc(acl_encode(&who, &known, &acls, &text, &open));
  if (rc == ZKE_OK && !open) {
    FUZZ_EXPECT(view_acl_valid(text.data));
    zke_acls *list = acl_decode(&a, text.data, false);
    FUZZ_EXPECT(list);
    for (int i = 0; i < count; i++) {
      if (strcmp(entries[i].scheme, "auth") != 0)
        FUZZ_EXPECT(path_fuzz_has_entry(list, &entries[i]));
    }
    mem_free(list);
  }
  for (int i = 0; i < count; i++) free((char *)(uintptr_t)entries[i].id);
  buf_free(&text);
  buf_free(&known.names);
  buf_free(&who.texts);
}

static int fuzz_path(const uint8_t *data, size_t size) {
  static void (*const parts[])(fuzz_input *) = {
      path_fuzz_rules, path_fuzz_split, path_fuzz_acl_text, path_fuzz_acl_list};
  fuzz_input in = {data, size};
  parts[fuzz_byte(&in) % 4](&in);
  return 0;
}

FUZZ_TARGET(fuzz_path)
