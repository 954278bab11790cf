/* digest.h - the SASL mechanism DIGEST-MD5 (RFC 2831), as text
 *
 * A server sends a challenge with a nonce, a client answers with what can be
 * calculated only by who knows the password, and the server's last token shows
 * that it knows the password as well.  This pair of files knows the tokens and
 * MD5 (RFC 1321); it knows no connection and no list of users.  Only quality of
 * protection "auth" is there: nothing is signed or encrypted afterwards.
 *
 * MD5 is weak, and whoever hears the tokens can try passwords.  It is what
 * ZooKeeper's clients have.
 *
 *     digest_answer a;
 *     char expected[DIGEST_HEX];
 *     if (digest_parse(token, len, &a)) {
 *       digest_response(&a, password, "AUTHENTICATE", expected);
 *       ...strcmp(a.response, expected)...
 *     }
 */
#ifndef ZKE_DIGEST_H
#define ZKE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

enum {
  MD5_BYTES = 16,
  DIGEST_HEX = 33,         /* 32 digits and a NUL */
  DIGEST_TOKEN_MOST = 4096 /* a token is shorter, RFC 2831, 2.1.2 */
};

/* digest_md5 - the digest of some bytes */
void digest_md5(const void *data, size_t len, unsigned char out[MD5_BYTES]);

/* What a client's token says.  A directive that it does not have is NULL. */
typedef struct digest_answer {
  const char *username, *realm, *nonce, *cnonce, *nc, *qop, *uri, *response,
      *authzid, *charset;
  char text[DIGEST_TOKEN_MOST]; /* where they lie */
} digest_answer;

/* digest_parse - take a token apart: "name=value,name=\"value\",…"
 *
 * Names in any case; unknown ones are passed over.  Returns false where it is
 * too long or malformed, has a NUL inside, or has one of the directives twice.
 */
bool digest_parse(const char *token, size_t len, digest_answer *out);

/* digest_response - what who knows the password has to say
 *
 *   method  "AUTHENTICATE" for the client's response; "" for the server's
 *
 * Of the answer, username, realm, nonce, cnonce and uri must be there. */
void digest_response(const digest_answer *a, const char *password,
                     const char *method, char out[DIGEST_HEX]);

#endif
