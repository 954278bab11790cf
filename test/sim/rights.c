/* rights.c - see rights.h */
#define NOTES_PLAIN /* it judges its answers by itself */
#include "test/sim/rights.h"

#include <stdio.h>
#include <string.h>

#include "test/sim/expect.h"

enum { ENTRIES = 3 };

/* A kind of identity: as a session presents it, and as a list names it.  Those
 * with the same letter match. */
static const struct {
  char letter;
  const char *scheme, *shown, *named; /* NULL: not possible */
} kinds[] = {
    {'w', "world", NULL, "anyone"},
    {'a', "digest", "ann:secret", "ann:H"}, /* H: its hash */
    {'b', "digest", "bob:other", NULL},
    {'i', "ip", "10.1.2.3", "10.1.0.0/16"},
    {'i', "ip", "10.1.200.3", "10.1.192.0/1"},
    {'j', "ip", "192.168.0.1", "192.168.0.1"},
    {'x', "x509", "CN=ann", "CN=ann"},
    {'s', "super", "admin", NULL},
};
enum { KINDS = (int)(sizeof kinds / sizeof *kinds) };

/* Lists that are refused. */
static const struct {
  zke_acl entry;
  int rc;
} refused[] = {{{ZKE_PERM_ALL, "ip", "10.1.2.300"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "ip", "10.1.2.3/33"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "ip", "10.1.2"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "digest", "ann"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "auth", ""}, ZKE_INVALIDACL}, /* has none */
               {{ZKE_PERM_ALL, "super", "admin"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "nobody", "x"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "world", "some"}, ZKE_INVALIDACL},
               {{ZKE_PERM_ALL, "world", NULL}, ZKE_MARSHALLINGERROR}};
enum { REFUSED = (int)(sizeof refused / sizeof *refused) };

/* A trial: the node, its list, and the identities of the session. */
typedef struct trial {
  const ops_actor *a;
  zke *z, *super; /* the session on trial, and one that may do all */
  char path[16], child[20];
  char hash[ZKE_DIGEST_SIZE + 8];
  zke_acl entry[ENTRIES];
  char letter[ENTRIES]; /* the letter of the identities that an entry is for */
  int entries;
  char has[4]; /* letters */
} trial;

/* A call that must answer this; false: a fault has prevented it. */
static bool answers(const trial *t, const char *name,
                    int (*call)(const trial *t), int wanted) {
  known_call c = known_begin(t->a->slot, name);
  return expect(c, call(t), wanted);
}

/* What the list permits the session. */
static int perms_of(const trial *t) {
  int perms = strchr(t->has, 's') ? ZKE_PERM_ALL : 0;
  for (int i = 0; i < t->entries; i++)
    if (t->letter[i] == 'w' || strchr(t->has, t->letter[i]))
      perms |= t->entry[i].perms;
  return perms;
}

/* An entry that the list has twice is stored once. */
static bool has_entry(const trial *t, const zke_acl *e) {
  for (int i = 0; i < t->entries; i++)
    if (t->entry[i].id == e->id && t->entry[i].perms == e->perms) return true;
  return false;
}

/* A random list. */
static void list_any(trial *t) {
  char digest[ZKE_DIGEST_SIZE];
  zke_digest("ann:secret", 10, digest);
  snprintf(t->hash, sizeof t->hash, "ann:%s", digest);
  for (int i = 1 + (int)sim_load(t->a->slot, ENTRIES); i > 0; i--) {
    int k = (int)sim_load(t->a->slot, KINDS);
    if (!kinds[k].named) k = 0;
    zke_acl e = {.perms = 1 + (int)sim_load(t->a->slot, ZKE_PERM_ALL),
                 .scheme = kinds[k].scheme,
                 .id = k == 1 ? t->hash : kinds[k].named};
    if (has_entry(t, &e)) continue;
    t->letter[t->entries] = kinds[k].letter;
    t->entry[t->entries++] = e;
  }
}

/* The session presents up to three identities. */
static bool show_any(trial *t) {
  size_t count = 0;
  for (int i = (int)sim_load(t->a->slot, 4); i > 0; i--) {
    int k = (int)sim_load(t->a->slot, KINDS);
    const char *scheme = kinds[k].scheme, *id = kinds[k].shown;
    if (!id) continue;
    known_call c = known_begin(t->a->slot, "rights: identity");
    int rc = strcmp(scheme, "digest") == 0
                 ? zke_add_auth(t->z, scheme, id, (int)strlen(id))
                 : zke_vouch(t->z, scheme, id);
    if (!expect(c, rc, ZKE_OK)) return false;
    t->has[count++] = kinds[k].letter;
  }
  return true;
}

/* ---- by the session that may do all ---- */

static int do_vouch(const trial *t) {
  int rc = zke_vouch(t->super, "super", "root");
  if (rc == ZKE_OK) rc = zke_vouch(t->super, "ip", NULL);
  return rc == ZKE_OK ? zke_vouch(t->super, "x509", NULL) : rc;
}

static int do_make(const trial *t) {
  const zke_acls acls = {t->entries, t->entry};
  int rc =
      zke_create(t->super, t->path, "x", 1, &acls, ZKE_PERSISTENT, NULL, NULL);
  return rc == ZKE_NODEEXISTS ? ZKE_OK : rc;
}

static int do_give(const trial *t) {
  const zke_acls acls = {t->entries, t->entry};
  return zke_set_acl(t->super, t->path, -1, &acls, NULL);
}

static int do_clear(const trial *t) {
  int rc = zke_delete(t->super, t->child, -1);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* The node exists, has the list, and has no children. */
static bool prepare(const trial *t) {
  return answers(t, "rights: make", do_make, ZKE_OK) &&
         answers(t, "rights: give", do_give, ZKE_OK) &&
         answers(t, "rights: clear", do_clear, ZKE_OK);
}

/* An invalid list, or an empty one. */
static bool try_refused(const trial *t) {
  int i = (int)sim_load(t->a->slot, REFUSED + 1);
  zke_acls acls = {0, NULL};
  if (i < REFUSED) acls = (zke_acls){1, &refused[i].entry};
  known_call c = known_begin(t->a->slot, "rights: no list");
  int rc = zke_create(t->super, "/norights", NULL, -1, &acls, ZKE_PERSISTENT,
                      NULL, NULL);
  return expect(c, rc, i < REFUSED ? refused[i].rc : ZKE_INVALIDACL);
}

/* ---- by the session that tries ---- */

static int do_get(const trial *t) {
  return zke_get(t->z, t->path, NULL, NULL, NULL, NULL, NULL);
}

static int do_children(const trial *t) {
  return zke_children(t->z, t->path, NULL, NULL, NULL, NULL);
}

static int do_count(const trial *t) {
  int64_t count;
  return zke_count(t->z, t->path, &count);
}

static int do_set(const trial *t) {
  return zke_set(t->z, t->path, "y", 1, -1, NULL);
}

static int do_check(const trial *t) {
  zke_op op;
  zke_op_check(&op, t->path, -1);
  return zke_multi(t->z, &op, 1, NULL);
}

static int do_create(const trial *t) {
  return zke_create(t->z, t->child, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                    NULL, NULL);
}

/* The child may exist or not. */
static int do_delete(const trial *t) {
  int rc = zke_delete(t->z, t->child, -1);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

static int do_set_acl(const trial *t) {
  const zke_acls acls = {t->entries, t->entry};
  return zke_set_acl(t->z, t->path, -1, &acls, NULL);
}

/* The list is the one that was set. */
static int do_get_acl(const trial *t) {
  zke_acls *acls = NULL;
  int rc = zke_get_acl(t->z, t->path, &acls, NULL);
  for (int i = 0; rc == ZKE_OK && i < t->entries; i++)
    if (acls->count != t->entries || acls->data[i].perms != t->entry[i].perms)
      sim_found("P1: the list of %s is not the one that was set", t->path);
  zke_free(acls);
  return rc;
}

/* The calls, and the permissions of which each needs one. */
static const struct {
  const char *name;
  int (*call)(const trial *t);
  int needs;
} calls[] = {{"rights: get", do_get, ZKE_PERM_READ},
             {"rights: children", do_children, ZKE_PERM_READ},
             {"rights: count", do_count, ZKE_PERM_READ},
             {"rights: check", do_check, ZKE_PERM_READ},
             {"rights: set", do_set, ZKE_PERM_WRITE},
             {"rights: create", do_create, ZKE_PERM_CREATE},
             {"rights: delete", do_delete, ZKE_PERM_DELETE},
             {"rights: set_acl", do_set_acl, ZKE_PERM_ADMIN},
             {"rights: get_acl", do_get_acl, ZKE_PERM_READ | ZKE_PERM_ADMIN}};

/* All calls, until a fault prevents one. */
static bool try_all(const trial *t) {
  int perms = perms_of(t);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (!answers(t, calls[i].name, calls[i].call,
                 perms & calls[i].needs ? ZKE_OK : ZKE_NOAUTH))
      return false;
  return true;
}

/* ---- a trial ---- */

/* A session of the process; NULL: opening failed. */
static zke *open_one(const trial *t) {
  zke *z = NULL;
  zke_options o = ZKE_INIT(zke_options);
  o.flags = ZKE_OPEN_LIGHT;
  known_call c = known_begin(t->a->slot, "rights: open_session");
  return expect(c, zke_open_session(t->a->z, &o, &z), ZKE_OK) ? z : NULL;
}

/* The whole trial, and again without the identities. */
static void try_with(trial *t) {
  if (!answers(t, "rights: vouch", do_vouch, ZKE_OK) || !try_refused(t)) return;
  list_any(t);
  if (!prepare(t) || !show_any(t) || !try_all(t)) return;
  known_call c = known_begin(t->a->slot, "rights: clear_auth");
  if (!expect(c, zke_clear_auth(t->z), ZKE_OK)) return;
  t->has[0] = '\0';
  if (prepare(t)) try_all(t);
}

void rights_any(const ops_actor *a) {
  trial t = {.a = a};
  snprintf(t.path, sizeof t.path, "/p%c",
           'A' + a->slot * SIM_THREADS + a->thread);
  snprintf(t.child, sizeof t.child, "%s/c", t.path);
  t.super = open_one(&t);
  if (t.super) t.z = open_one(&t);
  if (t.z) try_with(&t);
  known_call c = known_begin(a->slot, "rights: close");
  known_end(c, zke_close(t.z));
  c = known_begin(a->slot, "rights: close");
  known_end(c, zke_close(t.super));
}
