/* digest.h - the SASL mechanism DIGEST-MD5 (RFC 2831), as text
 *
 * A server sends a challenge with a nonce.  A client answers with a value that
 * only a holder of the password can calculate, and the server's last token
 * shows that it knows the password as well.  These two files know the tokens
 * and MD5 (RFC 1321), but no connections and no list of users.  The only
 * quality of protection is "auth": nothing is signed or encrypted afterwards.
 *
 * MD5 is weak, and a listener can use the tokens to try passwords.  It is what
 * ZooKeeper's clients support.
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

/* The contents of a client's token.  A missing directive is NULL. */
typedef struct digest_answer {
  const char *username, *realm, *nonce, *cnonce, *nc, *qop, *uri, *response,
      *authzid, *charset;
  char text[DIGEST_TOKEN_MOST]; /* contains them */
} digest_answer;

/* digest_parse - take a token apart: "name=value,name=\"value\",…"
 *
 * Names in any case; unknown ones are ignored.  Returns false if the token is
 * too long or malformed, has a NUL inside, or has one of the directives twice.
 */
bool digest_parse(const char *token, size_t len, digest_answer *out);

/* digest_response - the response that proves the password
 *
 *   method  "AUTHENTICATE" for the client's response; "" for the server's
 *
 * The answer must have username, realm, nonce, cnonce and uri. */
void digest_response(const digest_answer *a, const char *password,
                     const char *method, char out[DIGEST_HEX]);

#endif
