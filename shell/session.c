/* session.c - the store, the session, and what the session holds */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * What is held
 * --------------------------------------------------------------------- */

struct held {
  const held_class *class_;
  void *object;
  int64_t token; /* as it was got with */
  json_t *id;    /* of the coprocess's request that got it, or NULL */
  bool told;     /* its loss was */
  struct held *next;
  char path[];
};

/* Not what it stands for. */
static void held_drop(struct held *h) {
  json_decref(h->id);
  free(h);
}

int held_add(call *c, const held_class *class_, const char *path,
             void *object) {
  shell *sh = c->sh;
  size_t len = strlen(path);
  struct held *h = calloc(1, sizeof *h + len + 1);
  if (!h) return fail(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  h->class_ = class_;
  h->object = object;
  h->token = class_->token(object);
  h->id = json_deep_copy(c->id);
  memcpy(h->path, path, len + 1);
  pthread_mutex_lock(&sh->m);
  h->next = sh->held;
  sh->held = h;
  pthread_mutex_unlock(&sh->m);
  if (c->id && c->z) zke_wake(c->z); /* the keeper: look at this one, too */
  return 0;
}

/* A name is looked for wherever it is below. */
static bool held_is(const struct held *h, const char *kind, const char *name,
                    int64_t token) {
  const char *below = strchr(h->path + 1, '/');
  if (kind && strcmp(h->class_->kind, kind) != 0) return false;
  if (token && h->token != token) return false;
  if (*name == '/') return strcmp(h->path, name) == 0;
  return below && strcmp(below + 1, name) == 0;
}

/* Takes it out of the list, so that nobody else finds it meanwhile. */
static struct held *held_take(shell *sh, const char *kind, const char *name,
                              int64_t token) {
  pthread_mutex_lock(&sh->m);
  struct held **at = &sh->held;
  while (*at && !held_is(*at, kind, name, token)) at = &(*at)->next;
  struct held *h = *at;
  if (h) *at = h->next;
  pthread_mutex_unlock(&sh->m);
  return h;
}

static int fail_not_held(call *c, const char *kind, const char *name,
                         int64_t token) {
  const char *what = kind ? kind : "lock or the like at";
  if (!token)
    return fail(c, STATUS_NO, "NOTHELD", "this session holds no %s %s", what,
                name);
  return fail(c, STATUS_NO, "NOTHELD",
              "this session holds no %s %s with the token %" PRId64, what, name,
              token);
}

int held_release(call *c, const char *kind, const char *name, int64_t token) {
  struct held *h = held_take(c->sh, kind, name, token);
  if (!h) return fail_not_held(c, kind, name, token);
  int (*release)(void *) = h->class_->release;
  int rc = release ? release(h->object) : ZKE_OK;
  int status = rc == ZKE_OK ? 0 : fail_rc(c, rc);
  h->class_->destroy(h->object);
  held_drop(h);
  return status;
}

static bool held_is_lost(const struct held *h) {
  return h->class_->token(h->object) == 0;
}

json_t *held_lost(shell *sh) {
  json_t *event = NULL;
  pthread_mutex_lock(&sh->m);
  struct held *h = sh->held;
  while (h && (!(h->id || sh->person) || h->told || !held_is_lost(h)))
    h = h->next;
  if (h) {
    h->told = true;
    event =
        json_pack("{s:O?,s:{s:s,s:s,s:o*}}", "id", h->id, "event", "event",
                  "lost", "kind", h->class_->kind, "path", json_text(h->path));
  }
  pthread_mutex_unlock(&sh->m);
  return event;
}

void held_each(shell *sh,
               void (*fn)(void *arg, const held_class *class_, const char *path,
                          void *object),
               void *arg) {
  pthread_mutex_lock(&sh->m);
  for (struct held *h = sh->held; h; h = h->next)
    fn(arg, h->class_, h->path, h->object);
  pthread_mutex_unlock(&sh->m);
}

void held_free(shell *sh) {
  while (sh->held) {
    struct held *h = sh->held;
    sh->held = h->next;
    h->class_->destroy(h->object);
    held_drop(h);
  }
}

/* ------------------------------------------------------------------------
 * The store
 * --------------------------------------------------------------------- */

/* One that addauth was given: any bytes. */
static int identity_add(zke *z, const json_t *identity) {
  char *text;
  int len;
  if (!data_of_json(identity, &text, &len))
    return zke_fail(ZKE_NOMEM, "out of memory");
  int rc = zke_add_auth(z, "digest", text, len);
  free(text);
  return rc;
}

int session_authenticate(call *c, zke *z) {
  const char *auth = c->sh->auth;
  size_t i;
  json_t *identity;
  int rc = ZKE_OK;
  if (auth) rc = zke_add_auth(z, "digest", auth, (int)strlen(auth));
  json_array_foreach(c->sh->identities, i, identity) {
    if (rc == ZKE_OK) rc = identity_add(z, identity);
  }
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* A file that may not be written can still be read, without a session. */
static int session_begin(call *c, zke **z_out) {
  shell *sh = c->sh;
  zke_options o = sh->options;
  unsigned needs = c->command->flags & CREATES_FILE;
  o.flags = sh->open_flags;
  if (needs != CREATES_FILE) o.flags |= ZKE_OPEN_EXISTING;
  int rc = zke_open(sh->file, &o, z_out);
  if (rc == ZKE_READONLY && needs == NEEDS_FILE) {
    o.flags |= ZKE_OPEN_READONLY;
    rc = zke_open(sh->file, &o, z_out);
  }
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* The shell's mutex is held.  A person goes on after the session expired. */
static int session_again(call *c) {
  shell *sh = c->sh;
  if (!sh->person || zke_state(sh->z) != ZKE_STATE_EXPIRED) return 0;
  held_free(sh);
  zke_close(sh->z);
  sh->z = NULL;
  fprintf(stderr, "zke: the session had expired; this is a new one\n");
  return 0;
}

static int session_open_locked(call *c) {
  shell *sh = c->sh;
  if (sh->z) session_again(c);
  if (!sh->z) {
    zke *z = NULL;
    int status = session_begin(c, &z);
    if (!status) status = session_authenticate(c, z);
    if (status) {
      zke_close(z);
      return status;
    }
    sh->z = z;
  }
  c->z = sh->z;
  return 0;
}

/* --ttl: the lease of the session that is to be opened. */
static int session_lease(call *c) {
  shell *sh = c->sh;
  const option *o = c->command->options;
  while (o && o->letter && (!o->name || strcmp(o->name, "ttl") != 0)) o++;
  if (!o || !o->letter || strcmp(o->value, "DURATION") != 0) return 0;
  if (!has(c, o->letter)) return 0;
  if (sh->persists)
    return fail_usage(c,
                      "--ttl is for a session of its own, which one command "
                      "on the command line has");
  int status = option_duration(c, o->letter, 0, &sh->options.lease_ms);
  if (!status && sh->options.lease_ms == 0)
    status = fail_usage(c, "--ttl wants a duration above 0");
  return status;
}

int session_open(call *c) {
  shell *sh = c->sh;
  if (!(c->command->flags & NEEDS_FILE) && !(c->command->flags & CREATES_FILE))
    return 0;
  if (!sh->file) return fail(c, STATUS_USAGE, "USAGE", "no database was named");
  int status = session_lease(c);
  if (status) return status;
  pthread_mutex_lock(&sh->m);
  status = session_open_locked(c);
  pthread_mutex_unlock(&sh->m);
  if (status) return status;
  if ((c->command->flags & NEEDS_SESSION) && zke_session_id(c->z) == 0)
    return fail(c, STATUS_DENIED, "READONLY",
                "%s was opened for reading; %s needs a session", sh->file,
                c->command->name);
  return 0;
}

int session_close(shell *sh) {
  held_free(sh);
  int rc = zke_close(sh->z);
  sh->z = NULL;
  free(sh->cwd);
  sh->cwd = NULL;
  json_decref(sh->identities);
  sh->identities = NULL;
  if (rc == ZKE_OK) return STATUS_OK;
  call c = {.sh = sh, .format = sh->format};
  fail_rc(&c, rc);
  output_error(&c);
  return c.status;
}

char *session_cwd(shell *sh) {
  pthread_mutex_lock(&sh->m);
  char *cwd = strdup(sh->cwd ? sh->cwd : "/");
  pthread_mutex_unlock(&sh->m);
  return cwd;
}
