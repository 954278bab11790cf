/* test_digest.c - DIGEST-MD5: MD5 by the vectors of RFC 1321, the tokens and
 * their hashes by the example of RFC 2831, and malformed tokens
 */
#include <stdlib.h>
#include <string.h>

#include "shell/serve/digest.c"
#include "test/test.h"

/* RFC 1321, A.5, and lengths near a block's end. */
TEST(md5_has_the_vectors_of_its_rfc) {
  static const char *const vectors[][2] = {
      {"", "d41d8cd98f00b204e9800998ecf8427e"},
      {"a", "0cc175b9c0f1b6a831c399e269772661"},
      {"abc", "900150983cd24fb0d6963f7d28e17f72"},
      {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
      {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
      {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
       "d174ab98d277d9f5a5611c2c9f419d9f"},
      {"1234567890123456789012345678901234567890"
       "1234567890123456789012345678901234567890",
       "57edf4a22be3c955ac49da2e2107b67a"}};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    unsigned char hash[MD5_BYTES];
    char hex[DIGEST_HEX];
    digest_md5(vectors[i][0], strlen(vectors[i][0]), hash);
    to_hex(hash, hex);
    ck_assert_str_eq(hex, vectors[i][1]);
  }
}

/* MD5 is right if the padding just fits into a block, and if it does not. */
TEST(md5_is_right_around_the_end_of_a_block) {
  static const char *const of_as[] = {
      "ef1772b6dff9a122358552954ad0df65", /* 55 of "a" */
      "3b0c8ac703f828b04c6c197006d17218", "652b906d60af96844ebd21b674f35e93",
      "b06521f39153d618550606be297466d5", "014842d480b571495a4a0363793f7367",
      "c743a45e0d2e6a95cb859adae0248435"};
  static const size_t lengths[] = {55, 56, 57, 63, 64, 65};
  char as[65];
  memset(as, 'a', sizeof as);
  for (int i = 0; i < 6; i++) {
    unsigned char hash[MD5_BYTES];
    char hex[DIGEST_HEX];
    digest_md5(as, lengths[i], hash);
    to_hex(hash, hex);
    ck_assert_str_eq(hex, of_as[i]);
  }
}

/* RFC 2831, section 4: the IMAP example, whose user is "chris" and whose
 * password is "secret". */
TEST(the_example_of_the_rfc) {
  static const char token[] =
      "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\","
      "nonce=\"OA6MG9tEQGm2hh\",nc=00000001,cnonce=\"OA6MHXh6VqTrRk\","
      "digest-uri=\"imap/elwood.innosoft.com\","
      "response=d388dad90d4bbd760a152321f2143af7,qop=auth";
  digest_answer a;
  char hex[DIGEST_HEX];
  ck_assert(digest_parse(token, strlen(token), &a));
  ck_assert_str_eq(a.username, "chris");
  ck_assert_str_eq(a.realm, "elwood.innosoft.com");
  ck_assert_str_eq(a.charset, "utf-8");
  ck_assert_str_eq(a.qop, "auth");
  ck_assert_ptr_null(a.authzid);
  digest_response(&a, "secret", "AUTHENTICATE", hex);
  ck_assert_str_eq(hex, a.response);
  digest_response(&a, "secret", "", hex);
  ck_assert_str_eq(hex, "ea40f60335c427b5527b84dbabcdfffd");
  digest_response(&a, "Secret", "AUTHENTICATE", hex);
  ck_assert_str_ne(hex, a.response);
}

/* Its other example, ACAP, without blanks and with them. */
TEST(blanks_quotes_and_the_case_of_names_do_not_matter) {
  static const char *const tokens[] = {
      "username=\"chris\",realm=\"elwood.innosoft.com\","
      "nonce=\"OA9BSXrbuRhWay\",nc=00000001,cnonce=\"OA9BSuZWMSpW8m\","
      "digest-uri=\"acap/elwood.innosoft.com\","
      "response=6084c6db3fede7352c551284490fd0fc,qop=auth",
      " ,, USERNAME = chris ,\trealm=\"elwood\\.innosoft.com\",,"
      "nonce=\"OA9BSXrbuRhWay\",nc=\"00000001\" ,cnonce=OA9BSuZWMSpW8m,"
      "Digest-URI=acap/elwood.innosoft.com,strange=\"a,b=\\\"\","
      "response=\"6084c6db3fede7352c551284490fd0fc\"\r\n, qop=auth,"};
  for (int i = 0; i < 2; i++) {
    digest_answer a;
    char hex[DIGEST_HEX];
    ck_assert(digest_parse(tokens[i], strlen(tokens[i]), &a));
    digest_response(&a, "secret", "AUTHENTICATE", hex);
    ck_assert_str_eq(hex, a.response);
    ck_assert_str_eq(hex, "6084c6db3fede7352c551284490fd0fc");
    digest_response(&a, "secret", "", hex);
    ck_assert_str_eq(hex, "2f0b3d7c3c2e486600ef710726aa2eae");
  }
}

/* A token that is malformed, or repeats a member, is refused as a whole; an
 * empty one has no members. */
TEST(a_malformed_token_is_refused) {
  static const char *const tokens[] = {"username",        "=x",
                                       "username=\"x",    "username=\"x\\",
                                       "username=\"x\"y", "a b=c",
                                       "username=a b",    "\"x\"=y",
                                       "nc=1,nc=1",       "qop=auth,QOP=auth",
                                       "x=\"\"\"\"",      "username=\"x\" y"};
  digest_answer a;
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    ck_assert_msg(!digest_parse(tokens[i], strlen(tokens[i]), &a), "%s",
                  tokens[i]);
  ck_assert(!digest_parse("nc=1\0", 5, &a));
  ck_assert(digest_parse("", 0, &a));
  ck_assert_ptr_null(a.username);
}

/* The longest token has 4,095 bytes, whatever its directives are. */
TEST(a_token_is_bounded) {
  static char token[DIGEST_TOKEN_MOST + 1];
  digest_answer a;
  char hex[DIGEST_HEX];
  memset(token, 'x', sizeof token);
  memcpy(token, "username=", 9);
  ck_assert(!digest_parse(token, DIGEST_TOKEN_MOST, &a));
  ck_assert(digest_parse(token, DIGEST_TOKEN_MOST - 1, &a));
  ck_assert_uint_eq(strlen(a.username), DIGEST_TOKEN_MOST - 1 - 9);
  a.realm = a.nonce = a.cnonce = a.uri = a.authzid = a.username;
  digest_response(&a, a.username, "AUTHENTICATE", hex);
  ck_assert_uint_eq(strlen(hex), DIGEST_HEX - 1);
}

/* Random bytes: nothing outside is read or written (AddressSanitizer would
 * notice), and texts lie within the answer. */
TEST(chance_is_no_token) {
  static const char letters[] = "\"\\,= \tusernamepqco-di1\377";
  srand(test_seed());
  for (int round = 0; round < 20000; round++) {
    size_t len = (size_t)rand() % 60;
    char *token = malloc(len + 1); /* exact, to notice a byte too far */
    digest_answer a;
    for (size_t i = 0; i < len; i++)
      token[i] = letters[(size_t)rand() % (sizeof letters - 1)];
    if (digest_parse(token, len, &a) && a.username)
      ck_assert(a.username >= a.text && a.username < a.text + sizeof a.text);
    free(token);
  }
}
