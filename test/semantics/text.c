/* text.c - parsing calls, and showing values: see semantics.h */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/semantics/semantics.h"

/* ---- parsing ---- */

/* Take one character or escape sequence; moves *at. */
static char read_character(const char **at) {
  unsigned byte = 0;
  int length = 0;
  if (**at != '\\') return *(*at)++;
  if ((*at)[1] == 'x' && sscanf(*at + 2, "%2x%n", &byte, &length) == 1) {
    *at += 2 + length;
    return (char)byte;
  }
  *at += 2;
  return (*at)[-1];
}

/* A quoted word may be followed by "*TIMES" and "/LENGTH", NULL only by the
 * latter. */
static void read_suffix(word *w, const char **at) {
  char *end = (char *)(uintptr_t)*at;
  w->times = 1;
  w->shown = INT64_MIN;
  if (w->quoted && *end == '*') w->times = strtol(end + 1, &end, 10);
  if (w->quoted && *end == '/') w->shown = strtoll(end + 1, &end, 10);
  *at = end;
}

static void repeat_word(word *w) {
  size_t once = w->length;
  if (w->times == 1) return;
  w->length *= (size_t)w->times;
  w->text = realloc(w->text, w->length + 1);
  ck_assert_ptr_nonnull(w->text);
  for (size_t i = once; i < w->length; i++) w->text[i] = w->text[i - once];
  w->text[w->length] = '\0';
}

static bool ends_word(const word *w, const char *at) {
  if (w->quoted) return *at == '"';
  return *at == ' ' || *at == ';';
}

static void read_word(word *w, const char **at) {
  w->quoted = **at == '"';
  *at += w->quoted;
  w->text = malloc(strlen(*at) + 1);
  ck_assert_ptr_nonnull(w->text);
  w->length = 0;
  while (**at && !ends_word(w, *at)) w->text[w->length++] = read_character(at);
  w->text[w->length] = '\0';
  if (w->quoted) must(*(*at)++ == '"', "a quote is not closed");
  read_suffix(w, at);
  repeat_word(w);
}

/* The words of one call; returns the text after its ';', or NULL. */
static const char *read_words(call *c, const char *at) {
  for (;;) {
    at += strspn(at, " ");
    if (!*at) return NULL;
    if (*at == ';') return at + 1;
    ck_assert_int_lt(c->word_count, MOST_WORDS);
    read_word(&c->words[c->word_count++], &at);
  }
}

const char *call_option(const call *c, const char *key) {
  size_t length = strlen(key);
  for (int i = 1; i < c->word_count; i++) {
    const word *w = &c->words[i];
    if (!w->quoted && !strncmp(w->text, key, length) && w->text[length] == '=')
      return w->text + length + 1;
  }
  return NULL;
}

bool call_has(const call *c, const char *flag) {
  for (int i = 1; i < c->word_count; i++) {
    if (!c->words[i].quoted && !strcmp(c->words[i].text, flag)) return true;
  }
  return false;
}

/* ---- the meaning of a call's words ---- */

static bool is_null(const word *w) {
  return !w->quoted && !strncmp(w->text, "NULL", 4);
}

/* The first quoted word after the path, or NULL or NULL/LENGTH. */
static void take_data(call *c) {
  c->data = "";
  for (int i = 2; i < c->word_count; i++) {
    const word *w = &c->words[i];
    if (is_null(w)) {
      c->data = NULL;
      c->len = w->text[4] == '/' ? atoi(w->text + 5) : -1;
      return;
    }
    if (w->quoted) {
      c->data = w->text;
      c->len = w->shown == INT64_MIN ? (int)w->length : (int)w->shown;
      return;
    }
  }
}

/* The first bare number after the path. */
static void take_number(call *c) {
  c->number = -1;
  for (int i = 2; i < c->word_count; i++) {
    char *end;
    long long number = strtoll(c->words[i].text, &end, 10);
    if (c->words[i].quoted || *end || end == c->words[i].text) continue;
    c->number = number;
    return;
  }
}

static void take_mode(call *c) {
  const char *number = call_option(c, "mode"), *ttl = call_option(c, "ttl");
  bool sequential = call_has(c, "sequential");
  c->has_ttl = ttl != NULL;
  if (ttl) c->ttl_ms = strtoll(ttl, NULL, 0);
  if (number)
    c->mode = atoi(number);
  else if (ttl)
    c->mode = ZKE_PERSISTENT_WITH_TTL + sequential;
  else if (call_has(c, "container"))
    c->mode = ZKE_CONTAINER;
  else
    c->mode = call_has(c, "ephemeral") + 2 * sequential;
}

static int32_t read_perms(const char *text) {
  static const char letters[] = "rwcda";
  int32_t perms = 0;
  if (*text == '-' || (*text >= '0' && *text <= '9')) return atoi(text);
  for (; *text; text++) {
    const char *letter = strchr(letters, *text);
    must(letter != NULL, "permission '%c'", *text);
    perms |= 1 << (letter - letters);
  }
  return perms;
}

static const char *unless_null(const char *text) {
  return strcmp(text, "NULL") ? text : NULL;
}

/* "SCHEME:ID:PERMS,..."; the text is cut into these. */
static void read_entries(call *c, char *text) {
  while (text) {
    char *comma = strchr(text, ',');
    if (comma) *comma++ = '\0';
    char *id = strchr(text, ':'), *perms = strrchr(text, ':');
    must(id && perms > id, "an ACL entry: %s", text);
    *id++ = *perms++ = '\0';
    ck_assert_int_lt(c->list.count, (int)(sizeof c->entries / sizeof(zke_acl)));
    c->entries[c->list.count++] =
        (zke_acl){read_perms(perms), unless_null(text), unless_null(id)};
    text = comma;
  }
}

static void take_acls(call *c) {
  const char *text = call_option(c, "acl");
  c->list.data = c->entries;
  c->acls = &c->list;
  if (!text || !strcmp(text, "open"))
    c->acls = ZKE_OPEN_ACL;
  else if (!strcmp(text, "read"))
    c->acls = ZKE_READ_ACL;
  else if (!strcmp(text, "creator"))
    c->acls = ZKE_CREATOR_ALL_ACL;
  else if (!strcmp(text, "NULL"))
    c->acls = NULL;
  else if (strcmp(text, "none") != 0)
    read_entries(c, (char *)(uintptr_t)text);
}

const char *call_read(call *c, const char *text) {
  memset(c, 0, sizeof *c);
  const char *rest = read_words(c, text);
  must(c->word_count > 0, "no call in: %s", text);
  c->verb = c->words[0].text;
  if (c->word_count > 1 && !is_null(&c->words[1])) c->path = c->words[1].text;
  take_data(c);
  take_number(c);
  take_mode(c);
  take_acls(c);
  c->label = call_option(c, "watch");
  if (call_has(c, "watch")) c->label = "";
  return rest;
}

void call_free(call *c) {
  for (int i = 0; i < c->word_count; i++) free(c->words[i].text);
}

/* ---- values as text ---- */

void say(answer *to, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length =
      vsnprintf(to->text + to->length, ANSWER - to->length, format, arguments);
  va_end(arguments);
  to->length += (size_t)length;
  must(to->length < ANSWER, "an answer is too long");
}

void say_code(answer *to, int rc) {
  const char *name = zke_error_name(rc);
  to->refused = to->refused || rc != ZKE_OK;
  if (rc == ZKE_OK)
    say(to, "ok");
  else if (!strcmp(name, "ZKE_UNKNOWN"))
    say(to, "%d", rc);
  else
    say(to, "%s", name + strlen("ZKE_"));
}

/* A byte that is hard to see is shown as a number. */
static void say_bytes(answer *to, const char *bytes, size_t length) {
  for (size_t i = 0; i < length; i++) {
    unsigned char byte = (unsigned char)bytes[i];
    if (byte < ' ' || byte >= 0x7f)
      say(to, "\\x%02x", byte);
    else if (byte == '"' || byte == '\\')
      say(to, "\\%c", byte);
    else
      say(to, "%c", byte);
  }
}

void say_name(answer *to, const char *name) {
  const char *quote = !*name || strpbrk(name, " ;\"") ? "\"" : "";
  say(to, "%s", quote);
  say_bytes(to, name, strlen(name));
  say(to, "%s", quote);
}

void say_data(answer *to, const char *data, int len) {
  enum { LONG = 40 };
  int same = 0;
  if (!data) {
    say(to, len == -1 ? "NULL" : "NULL/%d", len);
    return;
  }
  must(data[len] == '\0', "no NUL behind the data");
  while (same < len && data[same] == data[0]) same++;
  say(to, "\"");
  say_bytes(to, data, len > LONG && same == len ? 1 : (size_t)len);
  say(to, "\"");
  if (len > LONG && same == len) say(to, "*%d", len);
}

void say_names(answer *to, const zke_strings *names) {
  if (!names->count) say(to, "none");
  for (int i = 0; i < names->count; i++) {
    if (i) say(to, " ");
    say_name(to, names->data[i]);
  }
}

static void say_perms(answer *to, int32_t perms) {
  static const struct {
    char letter;
    int bit;
  } rows[] = {{'c', ZKE_PERM_CREATE},
              {'d', ZKE_PERM_DELETE},
              {'r', ZKE_PERM_READ},
              {'w', ZKE_PERM_WRITE},
              {'a', ZKE_PERM_ADMIN}};
  if (perms <= 0 || perms > ZKE_PERM_ALL) {
    say(to, "%d", perms);
    return;
  }
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (perms & rows[i].bit) say(to, "%c", rows[i].letter);
}

void say_acls(answer *to, const zke_acls *acls) {
  for (int i = 0; i < acls->count; i++) {
    const zke_acl *entry = &acls->data[i];
    say(to, "%s%s:", i ? "," : "", entry->scheme);
    say_bytes(to, entry->id, strlen(entry->id));
    say(to, ":");
    say_perms(to, entry->perms);
  }
}

/* ---- a Stat ---- */

/* A zxid or a time, relative to the block's beginning. */
static void say_since(answer *to, const char *name, int64_t value,
                      int64_t first) {
  if (value < first)
    say(to, " %s=old", name);
  else
    say(to, " %s=%" PRId64, name, value - first);
}

static void say_number(answer *to, const char *name, int64_t value) {
  if (value) say(to, " %s=%" PRId64, name, value);
}

static void say_owner(answer *to, const stage *s, int64_t id) {
  if (id) say(to, " owner=%s", stage_name(s, id));
}

static void say_times(answer *to, const stage *s, const zke_stat *stat) {
  if (stat->ctime != s->first_ms)
    say_since(to, "ctime", stat->ctime, s->first_ms);
  if (stat->mtime != stat->ctime)
    say_since(to, "mtime", stat->mtime, s->first_ms);
}

/* Zeros are left out, and so is what is as at the node's creation: mzxid and
 * pzxid equal to czxid, ctime to the block's beginning, mtime to ctime. */
void say_stat(answer *to, stage *s, const zke_stat *stat) {
  int64_t first = s->first_zxid;
  say(to, " {");
  size_t begin = to->length;
  say_since(to, "czxid", stat->czxid, first);
  if (stat->mzxid != stat->czxid) say_since(to, "mzxid", stat->mzxid, first);
  if (stat->pzxid != stat->czxid) say_since(to, "pzxid", stat->pzxid, first);
  say_times(to, s, stat);
  say_number(to, "version", stat->version);
  say_number(to, "cversion", stat->cversion);
  say_number(to, "aversion", stat->aversion);
  say_owner(to, s, stat->ephemeralOwner);
  say_number(to, "length", stat->dataLength);
  say_number(to, "children", stat->numChildren);
  memmove(to->text + begin, to->text + begin + 1, to->length - begin);
  to->length--;
  say(to, "}");
}
