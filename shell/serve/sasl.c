/* sasl.c - the users of the protocol server
 *
 * The users of SASL come from a file of lines "name:password", --users.  They
 * are few, and read once, at the start.  A client proves by DIGEST-MD5
 * (digest.h) that it knows a password: it sends any token, gets a challenge
 * with a new nonce, and answers that.  Its session then has the identity
 * sasl:name.  Realm, service and host are the fixed ones of ZooKeeper's clients
 * and server.
 *
 * A super user passes every check of an ACL: the SASL user that --super-user
 * names, or any client that adds the digest identity of --super-digest.
 *
 * Begin with users_load() and sasl_token().
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"
#include "serve.h"
#include "../work.h"

#define REALM "zk-sasl-md5"
#define URI "zookeeper/" REALM

enum { LINE_MOST = 1000, NONCE_BYTES = 30 };

struct user {
  user *next;
  const char *password;
  char name[]; /* and the password after it */
};

/* The server's state of an exchange. */
struct sasl {
  char *nonce; /* for free() */
  bool over;   /* answered, correctly or not */
};

/* ------------------------------------------------------------------------
 * The file of users
 *
 * The file is read once, before the server listens: a change of it needs a
 * restart.
 * --------------------------------------------------------------------- */

/* The user with that name; NULL: there is none. */
static const user *find_user(const server *s, const char *name) {
  for (const user *at = s->users; at; at = at->next)
    if (strcmp(at->name, name) == 0) return at;
  return NULL;
}

/* Do all clients send a name or a password as the same bytes?  Other characters
 * than ASCII differ between them. */
static bool is_ascii(const char *text) {
  for (; *text; text++)
    if (*text < ' ' || *text > '~') return false;
  return true;
}

/* Adds the user of one line, without its newline. */
static int add_user(server *s, const char *path, int number, const char *line) {
  const char *colon = strchr(line, ':');
  if (strlen(line) > LINE_MOST || !colon || colon == line || !colon[1])
    return fail_with(s->c, STATUS_DATA, "DATA",
                     "%s, line %d is not NAME:PASSWORD of at most %d bytes",
                     path, number, LINE_MOST);
  if (!is_ascii(line))
    return fail_with(s->c, STATUS_DATA, "DATA",
                     "%s, line %d has a character outside ASCII: clients send "
                     "it in different ways",
                     path, number);
  size_t size = strlen(line) + 1;
  user *new = malloc(sizeof *new + size);
  if (!new) return no_memory(s->c);
  memcpy(new->name, line, size);
  new->name[colon - line] = '\0';
  new->password = new->name + (colon - line) + 1;
  if (find_user(s, new->name)) {
    int status =
        fail_with(s->c, STATUS_DATA, "DATA", "%s, line %d: %s is there twice",
                  path, number, new->name);
    free(new);
    return status;
  }
  new->next = s->users;
  s->users = new;
  return 0;
}

/* Adds the users of all lines.  Skips empty lines and those that begin with
 * '#'. */
static int read_users(server *s, FILE *f, const char *path) {
  char *line = NULL;
  size_t size = 0;
  ssize_t len;
  int status = 0;
  for (int i = 1; !status && (len = getline(&line, &size, f)) >= 0; i++) {
    if (len > 0 && line[len - 1] == '\n') line[--len] = '\0';
    if (strlen(line) != (size_t)len)
      status = fail_with(s->c, STATUS_DATA, "DATA", "%s, line %d has a NUL",
                         path, i);
    else if (*line && *line != '#')
      status = add_user(s, path, i, line);
  }
  if (!status && ferror(f)) status = fail_errno(s->c, STATUS_IO, path);
  free(line);
  return status;
}

/* Opens the file of passwords; 0 or the exit code.  Refuses a file that
 * everybody can read or write: a reader of it could be any of its users.  This
 * checks the open file, not its path, so that it cannot be exchanged in
 * between. */
static int open_users(server *s, const char *path, FILE **f_out) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(s->c, STATUS_CANTOPEN, path);
  int status = fstat(fd, &st) != 0 ? fail_errno(s->c, STATUS_IO, path) : 0;
  if (!status && st.st_mode & S_IRWXO)
    status =
        fail_with(s->c, STATUS_DENIED, "DENIED",
                  "everybody can read or write %s, which has passwords: chmod "
                  "o= it",
                  path);
  *f_out = status ? NULL : fdopen(fd, "r");
  if (!status && !*f_out) status = fail_errno(s->c, STATUS_SYSTEM, path);
  if (status) close(fd);
  return status;
}

/* Reads the users.  From now on the scheme sasl is valid in the ACLs that
 * clients write, even before any user has logged in. */
static int load_users(server *s, const char *path) {
  FILE *f = NULL;
  int status = open_users(s, path, &f);
  if (status) return status;
  status = read_users(s, f, path);
  if (fclose(f) != 0 && !status) status = fail_errno(s->c, STATUS_IO, path);
  if (!status && !s->users)
    status = fail_with(s->c, STATUS_DATA, "DATA", "%s has no users", path);
  if (status) return status;
  int rc = zke_vouch(s->z, "sasl", NULL);
  return rc == ZKE_OK ? 0 : fail_rc(s->c, rc);
}

/* Is it a name, a colon and the base64 of a SHA-1?  A mistyped one would match
 * no client and be noticed late. */
static bool is_super_digest(const char *text) {
  char *hash;
  size_t len;
  const char *colon = strrchr(text, ':');
  if (!colon || colon == text ||
      !base64_decode(colon + 1, strlen(colon + 1), &hash, &len))
    return false;
  free(hash);
  return len == 20;
}

/* Do the options about users have a users file?  0 or STATUS_USAGE. */
static int check_users(server *s) {
  if (option_given(s->c, 'U')) return 0;
  if (option_given(s->c, 'S'))
    return fail_usage(s->c,
                      "--super-user names one of --users, which is not "
                      "given");
  if (option_given(s->c, 'R'))
    return fail_usage(s->c,
                      "--require-sasl wants --users: without them no "
                      "client could log in");
  return 0;
}

/* The super user must be one of the users.  Any other name is a mistake and is
 * refused, since no client could log in by it. */
int users_load(server *s) {
  const word *path = option_word(s->c, 'U'), *super = option_word(s->c, 'S'),
             *digest = option_word(s->c, 'D');
  int status = check_users(s);
  if (!status && path) status = load_users(s, path->text);
  if (!status && super && !find_user(s, super->text))
    status =
        fail_usage(s->c, "--super-user %s is none of --users", super->text);
  if (!status && digest && !is_super_digest(digest->text))
    status = fail_usage(s->c,
                        "--super-digest wants USER:HASH, where HASH is the "
                        "base64 of the SHA-1 of USER:PASSWORD");
  s->require_sasl = option_given(s->c, 'R');
  s->super_user = super ? super->text : NULL;
  s->super_digest = digest ? digest->text : NULL;
  return status;
}

/* Frees the list of users, with their passwords. */
void users_free(server *s) {
  while (s->users) {
    user *first = s->users;
    s->users = first->next;
    free(first);
  }
}

/* ------------------------------------------------------------------------
 * Identities
 *
 * A client's identities are kept twice: by the library, which checks ACLs with
 * them, and by the connection, for whoAmI.  The library comes first, so whoAmI
 * never shows an identity that does not count.
 * --------------------------------------------------------------------- */

/* Has the client already proven this on this connection? */
static bool is_noted(const conn *c, const char *scheme, const char *proof,
                     const char *name, size_t len) {
  for (const identity *at = c->identities; at; at = at->next)
    if (strcmp(at->scheme, scheme) == 0 && strcmp(at->proof, proof) == 0 &&
        strlen(at->user) == len && memcmp(at->user, name, len) == 0)
      return true;
  return false;
}

/* Records an identity of a connection's client for whoAmI, once.  One name with
 * two passwords is two identities. */
static int note_identity(conn *c, const char *scheme, const char *proof,
                         const char *name, size_t len) {
  if (is_noted(c, scheme, proof, name, len)) return ZKE_OK;
  identity *new = malloc(sizeof *new + len + 1);
  if (!new) return zke_fail(ZKE_NOMEM, "out of memory");
  new->scheme = scheme;
  snprintf(new->proof, sizeof new->proof, "%s", proof);
  memcpy(new->user, name, len);
  new->user[len] = '\0';
  new->next = c->identities;
  c->identities = new;
  return ZKE_OK;
}

/* Lets the session pass every check of an ACL, as ZooKeeper's super user does.
 */
static int make_super(conn *c) {
  int rc = zke_vouch(c->session->z, "super", "");
  return rc == ZKE_OK ? note_identity(c, "super", "", "", 0) : rc;
}

/* Does the certificate, "user:password", match --super-digest? */
static bool is_super(const server *s, const char *cert, size_t name,
                     const char *hash) {
  if (!s->super_digest || strlen(s->super_digest) != name + ZKE_DIGEST_SIZE ||
      memcmp(s->super_digest, cert, name) != 0)
    return false;
  return strcmp(s->super_digest + name + 1, hash) == 0;
}

/* May a connection have another identity with a name of so many bytes?  They
 * are kept as long as it lasts, and whoAmI sends them all. */
static bool has_room_for(const conn *c, size_t len) {
  enum { EACH = sizeof(identity), MOST = 64 * 1024 };
  size_t sum = EACH + len;
  for (const identity *at = c->identities; at; at = at->next)
    sum += EACH + strlen(at->user);
  return sum <= MOST;
}

/* The name is the part before the colon; it may be shown, the password not.  If
 * a connection's identities take too much memory, each new one is refused as
 * not proven. */
int users_digest(server *s, conn *c, const char *cert, int len) {
  const char *colon = memchr(cert, ':', (size_t)len);
  size_t name = colon ? (size_t)(colon - cert) : (size_t)len;
  char hash[ZKE_DIGEST_SIZE] = "";
  zke_digest(cert, len, hash);
  if (!is_noted(c, "digest", hash, cert, name) && !has_room_for(c, name))
    return zke_fail(ZKE_AUTHFAILED, "too many identities");
  int rc = zke_add_auth(c->session->z, "digest", cert, len);
  if (rc == ZKE_OK) rc = note_identity(c, "digest", hash, cert, name);
  if (rc == ZKE_OK && is_super(s, cert, name, hash)) rc = make_super(c);
  return rc;
}

/* ------------------------------------------------------------------------
 * The exchange
 *
 * DIGEST-MD5 in two steps, as ZooKeeper's clients do it. Neither side sends a
 * password.
 * --------------------------------------------------------------------- */

/* An unpredictable nonce that no other connection has. */
static char *make_nonce(void) {
  unsigned char bytes[NONCE_BYTES];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return NULL;
  return base64_encode(bytes, sizeof bytes);
}

/* Answers the first token, whatever it says: DIGEST-MD5 begins with the
 * server's challenge. */
static int challenge(conn *c, char **token_out) {
  sasl *new = calloc(1, sizeof *new);
  if (!new) return ZKE_NOMEM;
  c->sasl = new;
  new->nonce = make_nonce();
  if (!new->nonce) return ZKE_SYSTEMERROR;
  return asprintf(token_out,
                  "realm=\"" REALM
                  "\",nonce=\"%s\",charset=utf-8,algorithm=md5-sess",
                  new->nonce) < 0
             ? ZKE_NOMEM
             : ZKE_OK;
}

/* Is the value there, and the expected one? */
static bool is_same(const char *value, const char *expected) {
  return value && strcmp(value, expected) == 0;
}

/* Does the answer belong to this connection's challenge?  An answer from
 * elsewhere, or a repeated one, does not. */
static bool answers(const digest_answer *a, const char *nonce) {
  return a->username && a->cnonce && a->response && is_same(a->nonce, nonce) &&
         is_same(a->realm, REALM) && a->uri && strcasecmp(a->uri, URI) == 0 &&
         (!a->nc || is_same(a->nc, "00000001")) &&
         (!a->qop || is_same(a->qop, "auth")) &&
         (!a->charset || strcasecmp(a->charset, "utf-8") == 0);
}

/* The user whose password the answer proves; NULL: none.  For an unknown name
 * this calculates the same, so that the time of a refusal does not reveal the
 * names. */
static const user *prove(const server *s, const digest_answer *a) {
  char expected[DIGEST_HEX];
  const user *who = find_user(s, a->username);
  digest_response(a, who ? who->password : "", "AUTHENTICATE", expected);
  return who && strcmp(a->response, expected) == 0 ? who : NULL;
}

/* Checks the answer; the server's last token shows that it knows the password,
 * too. */
static int conclude(server *s, conn *c, const char *token, size_t len,
                    char **token_out) {
  digest_answer a;
  char proof[DIGEST_HEX];
  c->sasl->over = true;
  if (!digest_parse(token, len, &a) || !answers(&a, c->sasl->nonce))
    return ZKE_AUTHFAILED;
  const user *who = prove(s, &a);
  if (!who) return ZKE_AUTHFAILED;
  int rc = zke_vouch(c->session->z, "sasl", who->name);
  if (rc == ZKE_OK)
    rc = note_identity(c, "sasl", "", who->name, strlen(who->name));
  if (rc == ZKE_OK && s->super_user && strcmp(who->name, s->super_user) == 0)
    rc = make_super(c);
  if (rc != ZKE_OK) return rc;
  c->is_user = true;
  digest_response(&a, who->password, "", proof);
  return asprintf(token_out, "rspauth=%s", proof) < 0 ? ZKE_NOMEM : ZKE_OK;
}

/* Answers a token of SASL: the first with a challenge, the second with the
 * proof that the server knows the password, too.  A connection has one try:
 * after the second token all others are refused. */
int sasl_token(server *s, conn *c, const char *token, size_t len,
               char **token_out) {
  if (!s->users || (c->sasl && c->sasl->over)) return ZKE_AUTHFAILED;
  return c->sasl ? conclude(s, c, token, len, token_out)
                 : challenge(c, token_out);
}

void sasl_free(conn *c) {
  if (c->sasl) free(c->sasl->nonce);
  free(c->sasl);
  c->sasl = NULL;
}
