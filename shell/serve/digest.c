/* digest.c - the SASL mechanism DIGEST-MD5 (RFC 2831), as text
 *
 * digest.h describes its purpose.  MD5 first, then the tokens.  Begin with
 * digest_parse() and digest_response().
 */
#include "digest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------------
 * MD5 (RFC 1321)
 *
 * Only for DIGEST-MD5, which requires it.  Nothing here relies on its strength.
 * --------------------------------------------------------------------- */

enum { BLOCK = 64 };

/* floor(2^32 * abs(sin(i + 1))), section 3.4. */
static const uint32_t md5_table[BLOCK] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a,
    0xa8304613, 0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be,
    0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340,
    0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8,
    0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
    0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
    0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1,
    0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

/* How far each step of a round rotates; they repeat after four. */
static const int md5_shift[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

/* The function of a step, and the word of the block that it uses. */
static uint32_t md5_mix(int step, const uint32_t v[4], int *word_out) {
  if (step < 16) {
    *word_out = step;
    return (v[1] & v[2]) | (~v[1] & v[3]);
  }
  if (step < 32) {
    *word_out = (5 * step + 1) % 16;
    return (v[1] & v[3]) | (v[2] & ~v[3]);
  }
  if (step < 48) {
    *word_out = (3 * step + 5) % 16;
    return v[1] ^ v[2] ^ v[3];
  }
  *word_out = 7 * step % 16;
  return v[2] ^ (v[1] | ~v[3]);
}

/* Mixes one block into the sum, by the 64 steps of RFC 1321. */
static void md5_block(uint32_t h[4], const unsigned char *p) {
  uint32_t v[4], word[16];
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 16; i++)
    word[i] = (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 |
              (uint32_t)p[4 * i + 2] << 16 | (uint32_t)p[4 * i + 3] << 24;
  for (int i = 0; i < BLOCK; i++) {
    int from, by = md5_shift[i / 16][i % 4];
    uint32_t mixed = md5_mix(i, v, &from);
    uint32_t sum = v[0] + mixed + md5_table[i] + word[from];
    v[0] = v[3];
    v[3] = v[2];
    v[2] = v[1];
    v[1] += sum << by | sum >> (32 - by);
  }
  for (int i = 0; i < 4; i++) h[i] += v[i];
}

/* After the last whole block come a bit, zeros and the number of bits. */
void digest_md5(const void *data, size_t len, unsigned char out[MD5_BYTES]) {
  uint32_t h[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  unsigned char tail[2 * BLOCK] = {0};
  const unsigned char *bytes = data;
  size_t whole = len / BLOCK * BLOCK, rest = len - whole;
  size_t tail_len = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;
  for (size_t i = 0; i < whole; i += BLOCK) md5_block(h, bytes + i);
  if (rest) memcpy(tail, bytes + whole, rest);
  tail[rest] = 0x80;
  for (size_t i = 0; i < 8; i++)
    tail[tail_len - 8 + i] = (unsigned char)((uint64_t)len * 8 >> 8 * i);
  for (size_t i = 0; i < tail_len; i += BLOCK) md5_block(h, tail + i);
  for (int i = 0; i < MD5_BYTES; i++)
    out[i] = (unsigned char)(h[i / 4] >> 8 * (i % 4));
}

/* ------------------------------------------------------------------------
 * A client's token
 *
 * A token is a list of name=value, with values that may be quoted.  A known
 * name may occur once, others are ignored; a malformed token is refused as a
 * whole.
 * --------------------------------------------------------------------- */

/* The answer's member for a directive; NULL if it is unknown. */
static const char **directive(digest_answer *a, const char *name) {
  const struct {
    const char *name, **value;
  } known[] = {{"username", &a->username},
               {"realm", &a->realm},
               {"nonce", &a->nonce},
               {"cnonce", &a->cnonce},
               {"nc", &a->nc},
               {"qop", &a->qop},
               {"digest-uri", &a->uri},
               {"response", &a->response},
               {"authzid", &a->authzid},
               {"charset", &a->charset}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcasecmp(known[i].name, name) == 0) return known[i].value;
  return NULL;
}

static char *pass_blanks(char *at) { return at + strspn(at, " \t\r\n"); }

/* Reads a quoted value in place, from after its first quote; returns the end,
 * after the last quote, or NULL.  A backslash makes the next character
 * literal. */
static char *read_quoted(char *at, const char **value_out) {
  char *to = at;
  *value_out = at;
  while (*at && *at != '"') {
    if (*at == '\\') at++;
    if (!*at) return NULL;
    *to++ = *at++;
  }
  if (!*at) return NULL;
  *to = '\0';
  return at + 1;
}

/* Reads a directive's value; sets *end_out to what follows: a comma, or the
 * end.  The value ends in a NUL. */
static bool read_value(char *at, const char **value_out, char **end_out) {
  if (*at == '"') {
    at = read_quoted(at + 1, value_out);
    if (!at) return false;
    *end_out = pass_blanks(at);
    return **end_out == ',' || !**end_out;
  }
  size_t len = strcspn(at, " \t\r\n,\"");
  *value_out = at;
  *end_out = pass_blanks(at + len);
  if (**end_out != ',' && **end_out) return false;
  if (*end_out == at + len) return true; /* its NUL comes with the comma */
  at[len] = '\0';
  return true;
}

/* Reads one directive, and keeps it unless it is unknown. */
static bool read_directive(char *at, digest_answer *out, char **end_out) {
  const char *value;
  size_t len = strcspn(at, " \t\r\n=,\"");
  char *equals = pass_blanks(at + len);
  if (len == 0 || *equals != '=') return false;
  at[len] = '\0';
  if (!read_value(pass_blanks(equals + 1), &value, end_out)) return false;
  const char **known = directive(out, at);
  if (known && *known) return false;
  if (known) *known = value;
  return true;
}

/* Commas without anything between them are allowed (RFC 2831, 7.1). */
bool digest_parse(const char *token, size_t len, digest_answer *out) {
  memset(out, 0, sizeof *out);
  if (len >= sizeof out->text || memchr(token, '\0', len)) return false;
  memcpy(out->text, token, len);
  for (char *at = pass_blanks(out->text), *end; *at; at = pass_blanks(end)) {
    end = at;
    if (*at != ',' && !read_directive(at, out, &end)) return false;
    if (*end) *end++ = '\0';
  }
  return true;
}

/* ------------------------------------------------------------------------
 * The expected answers
 *
 * The hash that proves a password, in the two forms that client and server
 * send.  The server knows user and password, and compares its result with the
 * client's.
 * --------------------------------------------------------------------- */

static void to_hex(const unsigned char bytes[MD5_BYTES], char out[DIGEST_HEX]) {
  for (int i = 0; i < MD5_BYTES; i++)
    snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Joins parts with colons, up to a NULL; returns the length.  Text that does
 * not fit is left out: all parts but the password come from one token. */
static size_t join(char *out, size_t size, const char *const *parts) {
  size_t len = 0;
  for (int i = 0; parts[i]; i++) {
    size_t part = strlen(parts[i]);
    if (i > 0 && len < size) out[len++] = ':';
    if (part > size - len) part = size - len;
    memcpy(out + len, parts[i], part);
    len += part;
  }
  return len;
}

enum { JOINED_MOST = 2 * DIGEST_TOKEN_MOST };

/* The digits of H(A1): the hash of user, realm and password, and the nonces. */
static void hash_who(const digest_answer *a, const char *password,
                     char out[DIGEST_HEX]) {
  const char *const who[] = {a->username, a->realm, password, NULL};
  const char *const nonces[] = {"", a->nonce, a->cnonce, a->authzid, NULL};
  char text[JOINED_MOST];
  unsigned char hash[MD5_BYTES];
  digest_md5(text, join(text, sizeof text, who), hash);
  memcpy(text, hash, MD5_BYTES);
  size_t len = MD5_BYTES;
  len += join(text + len, sizeof text - len, nonces);
  digest_md5(text, len, hash);
  to_hex(hash, out);
}

/* RFC 2831, 2.1.2.1. */
void digest_response(const digest_answer *a, const char *password,
                     const char *method, char out[DIGEST_HEX]) {
  char text[JOINED_MOST], who[DIGEST_HEX], what[DIGEST_HEX];
  unsigned char hash[MD5_BYTES];
  const char *const where[] = {method, a->uri, NULL};
  hash_who(a, password, who);
  digest_md5(text, join(text, sizeof text, where), hash);
  to_hex(hash, what);
  const char *const all[] = {who,
                             a->nonce,
                             a->nc ? a->nc : "00000001",
                             a->cnonce,
                             a->qop ? a->qop : "auth",
                             what,
                             NULL};
  digest_md5(text, join(text, sizeof text, all), hash);
  to_hex(hash, out);
}
