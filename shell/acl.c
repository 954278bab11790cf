/* acl.c - access control lists and identities
 *
 * An entry is written SCHEME:ID:PERMS.  acls_parse() and perms_json() convert
 * it to zkembed's structs and back; getacl, setacl, create and import use them.
 * setacl accepts getacl's output, with two exceptions: an id that the engine
 * has masked is lost (acl_is_masked()), and an entry of another program's
 * scheme is refused (acl_is_foreign()).  Only the engine decides who may do
 * what: this file checks only the form, not whether a scheme exists.
 */
#include <stdlib.h>
#include <string.h>

#include "tree.h"
#include "walk.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * SCHEME:ID:PERMS
 *
 * From the text of an entry to zkembed's struct, and back.  This refuses only a
 * wrong form: too few colons, or a letter that is not a permission.  The engine
 * decides which schemes and ids are valid.
 * --------------------------------------------------------------------- */

/* Each permission's letter, in the order of ZooKeeper's shell. */
static const struct {
  char letter;
  int32_t perm;
} perms[] = {{'c', ZKE_PERM_CREATE},
             {'d', ZKE_PERM_DELETE},
             {'r', ZKE_PERM_READ},
             {'w', ZKE_PERM_WRITE},
             {'a', ZKE_PERM_ADMIN}};
enum { PERMS = sizeof perms / sizeof *perms };

/* A set of letters, each at most once.  A number is accepted with any bits,
 * since perms_json() writes one for bits without letters: the engine decides
 * whether it is valid.  An empty text is refused. */
bool perms_parse(const char *text, int32_t *perms_out) {
  const word w = {text, strlen(text), false};
  int64_t number;
  int32_t sum = 0;
  if (word_number(&w, &number) && number == (int32_t)number) {
    *perms_out = (int32_t)number;
    return true;
  }
  for (; *text; text++) {
    int i = 0;
    while (i < PERMS && perms[i].letter != *text) i++;
    if (i == PERMS || sum & perms[i].perm) return false;
    sum |= perms[i].perm;
  }
  *perms_out = sum;
  return sum != 0;
}

/* Letters if every bit has one, else the number as text; also for 0, since no
 * letters would look like an empty member. */
json_t *perms_json(int32_t value) {
  char text[PERMS + 1], *at = text;
  if (value <= 0 || value > ZKE_PERM_ALL) return json_sprintf("%d", value);
  for (int i = 0; i < PERMS; i++)
    if (value & perms[i].perm) *at++ = perms[i].letter;
  *at = '\0';
  return json_string(text);
}

/* A digest of "user:x": zke_get_acl() shows this instead of the hash to a
 * caller without ADMIN.  Copying and import refuse such an entry: no password
 * has the hash "x", so the user would lose the permission. */
bool acl_is_masked(const zke_acl *entry) {
  size_t len = strlen(entry->id);
  return strcmp(entry->scheme, "digest") == 0 && len >= 2 &&
         strcmp(entry->id + len - 2, ":x") == 0;
}

bool acls_are_masked(const zke_acls *acls) {
  for (int i = 0; i < acls->count; i++)
    if (acl_is_masked(&acls->data[i])) return true;
  return false;
}

/* An entry of such a scheme was written by a program that vouches for it,
 * usually a server.  It matches nobody here, but copies, exports and imports
 * keep it.  If it is typed, it is refused, since it is more likely a
 * mistake. */
bool acl_is_foreign(const zke_acl *entry) {
  return strcmp(entry->scheme, "world") != 0 &&
         strcmp(entry->scheme, "digest") != 0 &&
         strcmp(entry->scheme, "auth") != 0;
}

/* An ensemble's servers decide themselves which schemes are valid. */
int acl_accept(zke *z, const zke_acl *entry) {
  if (!acl_is_foreign(entry)) return ZKE_OK;
  int rc = zke_vouch(z, entry->scheme, NULL);
  return rc == ZKE_UNIMPLEMENTED ? ZKE_OK : rc;
}

/* Cuts one entry in place: *out points into text.  The scheme ends at the first
 * colon and the permissions begin after the last, since the id of a digest has
 * a colon inside.  False if it is not an entry; then text is unchanged, for the
 * sentence that shows it. */
static bool acl_parse(char *text, zke_acl *out) {
  char *first = strchr(text, ':'), *last = strrchr(text, ':');
  if (!first || first == last || !perms_parse(last + 1, &out->perms))
    return false;
  *first = *last = '\0';
  out->scheme = text;
  out->id = first + 1;
  return true;
}

/* Refuses an entry, with examples of valid ones; STATUS_DATA. */
static int acls_refuse(call *c, const char *text) {
  return fail_with(c, STATUS_DATA, "INVALIDACL",
                   "\"%s\" is not SCHEME:ID:PERMS, as world:anyone:cdrwa, "
                   "digest:USER:HASH:r or auth::cdrwa",
                   text);
}

/* How many entries the words have, and how many bytes their texts and NULs
 * need: the size for acls_parse().  A comma separates two entries, so a word
 * has one more than it has commas. */
static int acls_measure(const word *texts, int count, size_t *size_out) {
  int entries = 0;
  *size_out = 0;
  for (int i = 0; i < count; i++) {
    *size_out += texts[i].len + 1;
    entries++;
    for (const char *at = texts[i].text; *at; at++) entries += *at == ',';
  }
  return entries;
}

/* One block has all entries and their texts; acls_measure() gives its size.
 * The texts are copied after the entries and cut there. */
int acls_parse(call *c, const word *texts, int count, zke_acls **acls_out) {
  size_t size;
  int entries = acls_measure(texts, count, &size), n = 0;
  zke_acls *list =
      malloc(sizeof *list + (size_t)entries * sizeof(zke_acl) + size);
  if (!list) return no_memory(c);
  zke_acl *acls = (zke_acl *)(list + 1);
  char *text = (char *)(acls + entries);
  for (int i = 0; i < count; i++) {
    char *end;
    memcpy(text, texts[i].text, texts[i].len + 1);
    for (char *at = text; at; at = end, n++) {
      if ((end = strchr(at, ',')) != NULL) *end++ = '\0';
      if (!acl_parse(at, &acls[n])) {
        int status = acls_refuse(c, at);
        free(list);
        return status;
      }
    }
    text += texts[i].len + 1;
  }
  *list = (zke_acls){n, acls};
  *acls_out = list;
  return 0;
}

/* ------------------------------------------------------------------------
 * getacl, setacl
 *
 * A row has the three members of an entry in their order, as setacl takes them.
 * A version belongs to one node, so it is allowed for one node only.
 * --------------------------------------------------------------------- */

/* getacl: a row for each entry of the node's list, in the list's order. */
static int getacl_run(call *c) {
  char *path;
  zke_acls *acls;
  int status = arg_path(c, 0, &path);
  if (status) return status;
  int rc = zke_get_acl(c->z, path, &acls, NULL);
  free(path);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; !status && i < acls->count; i++) {
    const zke_acl *a = &acls->data[i];
    status = emit_row(
        c, json_pack("{s:o,s:o,s:o}", "scheme", value_text(a->scheme), "id",
                     value_text(a->id), "perms", perms_json(a->perms)));
  }
  zke_free(acls);
  return status;
}

/* The row as setacl takes it: the members in the order of SCHEME:ID:PERMS, with
 * colons between them. */
static void getacl_human(call *c, json_t *row, FILE *out) {
  const char *name;
  json_t *value;
  (void)c;
  json_object_foreach(row, name, value) {
    output_text(NULL, value, out);
    fputc(strcmp(name, "perms") == 0 ? '\n' : ':', out);
  }
}

/* Replaces the ACL of one node, if it has this version (-1: any). */
static int setacl_one(call *c, const char *path, int version,
                      const zke_acls *acls) {
  int rc = zke_set_acl(c->z, path, version, acls, NULL);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* Gives the node and all below it the same ACL, parents first; stops at the
 * first node that refuses.  Each node is a separate step: earlier ones keep
 * their new ACL.  An ACL without READ does not stop the walk, which reads the
 * names of a node's children before the node gets its ACL. */
static int setacl_all(call *c, const char *path, const zke_acls *acls) {
  walk w;
  int status = 0;
  walk_begin(&w, c, path, -1, false);
  while (!status && walk_next(&w)) {
    status = setacl_one(c, w.path, -1, acls);
    progress_show(c, "setacl", w.count, 0);
  }
  return walk_end(&w, status);
}

/* setacl: for one node, perhaps with a version, or with -R for all below it
 * too. */
static int setacl_run(call *c) {
  char *path;
  zke_acls *acls = NULL;
  int64_t version;
  int status = option_number(c, 'v', INT32_MIN, INT32_MAX, -1, &version);
  if (!status && option_given(c, 'R') && option_given(c, 'v'))
    status =
        fail_usage(c, "-v and -R exclude each other: a version is one node's");
  if (!status) status = arg_path(c, 0, &path);
  if (status) return status;
  status = acls_parse(c, c->args + 1, c->count - 1, &acls);
  if (!status) {
    status = option_given(c, 'R') ? setacl_all(c, path, acls)
                                  : setacl_one(c, path, (int)version, acls);
    free(acls);
  }
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * addauth
 *
 * An identity belongs to a handle, and a shell may open several, one after the
 * other.  So the shell keeps it, too, and session.c gives it to each.
 * --------------------------------------------------------------------- */

/* Keeps an identity that the engine has accepted, for the sessions and handles
 * that this shell opens later.  value_data() preserves bytes that are not
 * UTF-8.  If memory runs out, appending fails, which is reported. */
static int addauth_keep(call *c, const word *text) {
  shell *sh = c->sh;
  json_t *identity = value_data(text->text, (int)text->len);
  pthread_mutex_lock(&sh->m);
  if (!sh->identities) sh->identities = json_array();
  int failed = json_array_append_new(sh->identities, identity);
  pthread_mutex_unlock(&sh->m);
  return failed ? no_memory(c) : 0;
}

/* addauth: this session has the identity from now on, and so has every session
 * that this shell opens later. */
static int addauth_run(call *c) {
  const word *text = &c->args[1];
  if (!word_is(&c->args[0], "digest"))
    return fail_with(c, STATUS_DATA, "AUTHFAILED",
                     "the scheme is digest, not \"%s\"", c->args[0].text);
  if (!c->sh->persists)
    return fail_usage(
        c,
        "an identity lasts as long as its session, which ends with this "
        "command: give --auth USER:PASSWORD to the command that needs it");
  int rc = zke_add_auth(c->z, "digest", text->text, (int)text->len);
  return rc == ZKE_OK ? addauth_keep(c, text) : fail_rc(c, rc);
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option setacl_options[] = {
    {'v', "version", "VERSION"}, {'R', "recursive", NULL}, {'\0', NULL, NULL}};

static const char
    setacl_usage[] = "[-v VERSION | -R] PATH ACL…",
    getacl_summary[] = "print who may do what with a node",
    setacl_summary[] =
        "set who may do what with a node; -R: and with all nodes below";

const command acl_commands[] = {
    {"getacl", "[PATH]", getacl_summary, NULL, 0, 1, NEEDS_FILE, STYLE_LINE,
     getacl_run, getacl_human},
    {"getAcl", "[PATH]", getacl_summary, NULL, 0, 1, NEEDS_FILE | HIDDEN,
     STYLE_LINE, getacl_run, getacl_human},
    {"setacl", setacl_usage, setacl_summary, setacl_options, 2, -1,
     NEEDS_SESSION, STYLE_LINE, setacl_run, NULL},
    {"setAcl", setacl_usage, setacl_summary, setacl_options, 2, -1,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, setacl_run, NULL},
    {"addauth", "digest USER:PASSWORD", "add an identity to this session", NULL,
     2, 2, NEEDS_FILE, STYLE_LINE, addauth_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
