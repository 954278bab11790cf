/* session.c - the store, the session, and its locks and the like
 *
 * A command that only looks gets a handle without a session; the first command
 * that needs a session begins one, and all later ones share it.  Start at
 * session_open():
 *
 *     nothing open --- a command that looks ---> looker
 *          |                                        |
 *          | a command that needs a session         | the same
 *          v                                        v
 *       session <-----------------------------------/
 *          |  ^ expired, and a person enters another command
 *          \--/
 *
 * In memory and on an ensemble there are no lookers: every command gets the
 * session.  An ensemble ends a silent session, so a separate thread, the
 * keeper, waits in the handle, which pings there.
 *
 * A looker makes no change and waits for no writer, so that looking works on a
 * full disk, without permission to write, and beside a stuck writer.
 *
 * What a session holds beyond one command, such as a lock of a script, is in
 * one list under the shell's mutex (held_add() and its neighbours).  From there
 * it is released, reported as lost, or destroyed at the session's end.  The
 * list owns its entries; held_take() removes an entry before anything slow is
 * done with it, so that no two calls use the same one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../recipes/engine/zookeeper.h"
#include "shell.h"

/* ------------------------------------------------------------------------
 * What is held
 *
 * The session's list.  An entry is a path, an object and the functions of its
 * class.  The function that removes an entry owns it; nothing slow is done
 * under the mutex.
 * --------------------------------------------------------------------- */

struct held {
  const held_class *class_;
  void *object;
  int64_t token; /* from its acquisition: a lost lock has none any more */
  json_t *id;    /* of the coprocess's request that got it, or NULL */
  bool told;     /* its loss was reported */
  struct held *next;
  char path[];
};

/* Frees the entry, but not the object. */
static void held_drop(struct held *h) {
  json_decref(h->id);
  free(h);
}

/* In a coprocess one thread, the keeper, looks for losses: this wakes it, so
 * that it looks at the new entry, too. */
int held_add(call *c, const held_class *class_, const char *path,
             void *object) {
  shell *sh = c->sh;
  size_t len = strlen(path);
  struct held *h = calloc(1, sizeof *h + len + 1);
  if (!h) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  h->class_ = class_;
  h->object = object;
  h->token = class_->token(object);
  h->id = json_deep_copy(c->id);
  memcpy(h->path, path, len + 1);
  pthread_mutex_lock(&sh->m);
  h->next = sh->held;
  sh->held = h;
  pthread_mutex_unlock(&sh->m);
  if (c->id && c->z) zke_wake(c->z);
  return 0;
}

/* Does the entry match?  NULL and 0 match all.  A name without a slash is the
 * path after its first part: "backup" is /locks/backup and /queues/backup. */
static bool held_is(const struct held *h, const char *kind, const char *name,
                    int64_t token) {
  const char *below = strchr(h->path + 1, '/');
  if (kind && strcmp(h->class_->kind, kind) != 0) return false;
  if (token && h->token != token) return false;
  if (*name == '/') return strcmp(h->path, name) == 0;
  return below && strcmp(below + 1, name) == 0;
}

/* Removes the newest matching entry, or that of the object, from the list, for
 * the caller; NULL: there is none. */
static struct held *held_take(shell *sh, const char *kind, const char *name,
                              int64_t token, const void *object) {
  pthread_mutex_lock(&sh->m);
  struct held **at = &sh->held;
  while (*at &&
         !(object ? (*at)->object == object : held_is(*at, kind, name, token)))
    at = &(*at)->next;
  struct held *h = *at;
  if (h) *at = h->next;
  pthread_mutex_unlock(&sh->m);
  return h;
}

/* Reports what was not found; STATUS_NO. */
static int fail_not_held(call *c, const char *kind, const char *name,
                         int64_t token) {
  const char *what = kind ? kind : "lock or the like at";
  if (!token)
    return fail_with(c, STATUS_NO, "NOTHELD", "this session holds no %s %s",
                     what, name);
  return fail_with(c, STATUS_NO, "NOTHELD",
                   "this session holds no %s %s with the token %" PRId64, what,
                   name, token);
}

/* Releases it and destroys the object, even if the release failed.  Then the
 * engine removes its znode later, or the session's end does; the failure's
 * sentence says so. */
int held_release(call *c, const char *kind, const char *name, int64_t token,
                 const void *object) {
  struct held *h = held_take(c->sh, kind, name, token, object);
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

/* The event of a loss; NULL without memory.  It shares nothing with the entry:
 * another thread may release that meanwhile, and JSON reference counts have no
 * lock. */
static json_t *lost_event(const struct held *h) {
  json_t *id = json_deep_copy(h->id);
  if (h->id && !id) return NULL;
  return json_pack("{s:o?,s:{s:s,s:s,s:o*}}", "id", id, "event", "event",
                   "lost", "kind", h->class_->kind, "path",
                   value_text(h->path));
}

/* A loss is reported once: to the request that got it, or to a person.  A
 * script has nobody to tell. */
json_t *held_lost(shell *sh) {
  json_t *event = NULL;
  pthread_mutex_lock(&sh->m);
  struct held *h = sh->held;
  while (h && (!(h->id || sh->person) || h->told || !held_is_lost(h)))
    h = h->next;
  if (h) {
    event = lost_event(h);
    h->told = event != NULL;
  }
  pthread_mutex_unlock(&sh->m);
  return event;
}

/* Newest first. */
void held_each(shell *sh,
               void (*fn)(void *arg, const held_class *class_, const char *path,
                          void *object),
               void *arg) {
  pthread_mutex_lock(&sh->m);
  for (struct held *h = sh->held; h; h = h->next)
    fn(arg, h->class_, h->path, h->object);
  pthread_mutex_unlock(&sh->m);
}

/* Frees all entries, at the end.  It does not take the mutex: either no other
 * thread is left, or the caller has it. */
static void held_free(shell *sh) {
  while (sh->held) {
    struct held *h = sh->held;
    sh->held = h->next;
    h->class_->destroy(h->object);
    held_drop(h);
  }
}

/* ------------------------------------------------------------------------
 * The store
 *
 * Handles are opened when the first command needs one, and closed at the end.
 * Some functions need the shell's mutex held, as their comments say.  The
 * session is begun once even if several calls need it together.
 * --------------------------------------------------------------------- */

/* Adds an identity of addauth, stored as JSON, since it may have any bytes. */
static int identity_add(zke *z, const json_t *identity) {
  char *text;
  int len;
  if (!value_to_data(identity, &text, &len))
    return zke_fail(ZKE_NOMEM, "out of memory");
  int rc = zke_add_auth(z, "digest", text, len);
  free(text);
  return rc;
}

/* The identity of --auth first, then those of addauth. */
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

/* Decides by the name alone: this opens nothing, so the name may be wrong. */
int store_of(const shell *sh) {
  const char *prefix = zke_zookeeper.prefix;
  if (strcmp(sh->file, ":memory:") == 0) return STORE_MEMORY;
  if (strncmp(sh->file, prefix, strlen(prefix)) == 0) return STORE_ENSEMBLE;
  return STORE_FILE;
}

int store_register(void) { return zke_register_engine(&zke_zookeeper); }

int store_batch(call *c, zke_batch_fn fn, void *context) {
  if (store_of(c->sh) == STORE_ENSEMBLE) return fn(c->z, context);
  return zke_batch(c->z, fn, context);
}

/* Failures that say nothing about the session: the disk or the server may
 * recover. */
bool wait_passes(int rc) {
  static const struct timespec pause = {0, 100000000};
  bool passes = rc == ZKE_CONNECTIONLOSS || rc == ZKE_OPERATIONTIMEOUT ||
                rc == ZKE_SYSTEMERROR || rc == ZKE_NOMEM || rc == ZKE_FULL;
  if (passes) nanosleep(&pause, NULL);
  return passes;
}

/* The keeper of an ensemble's session.  It takes the turn before it checks for
 * its end, so that it cannot miss the wake-up in keeper_end(). */
static void *keeper_run(void *shell_) {
  shell *sh = shell_;
  int rc = ZKE_OK;
  while (rc == ZKE_OK || wait_passes(rc)) {
    int64_t turn = zke_turn(sh->z);
    if (atomic_load(&sh->keeper_ends)) break;
    rc = zke_wait_turn(sh->z, turn, ZKE_FOREVER);
  }
  return NULL;
}

/* The shell's mutex is held.  If no thread can be created, the session lives as
 * long as commands come often enough. */
static void keeper_begin(shell *sh) {
  atomic_store(&sh->keeper_ends, false);
  sh->keeping = pthread_create(&sh->keeper, NULL, keeper_run, sh) == 0;
}

/* Before the session's handle is closed. */
static void keeper_end(shell *sh) {
  if (!sh->keeping) return;
  atomic_store(&sh->keeper_ends, true);
  zke_wake(sh->z);
  pthread_join(sh->keeper, NULL);
  sh->keeping = false;
}

zke *session_looker(const shell *sh) { return sh->z ? sh->z : sh->looker; }

/* Before the store is open, the file's permissions decide; a file that does not
 * exist yet can be written. */
bool session_is_readonly(const shell *sh) {
  int store = store_of(sh);
  if (store == STORE_ENSEMBLE) return sh->open_flags & ZKE_OPEN_READONLY;
  if (sh->z || store == STORE_MEMORY) return false;
  if (sh->open_flags & ZKE_OPEN_READONLY) return true;
  return access(sh->file, W_OK) != 0 && errno != ENOENT;
}

/* Can the file be read, if it cannot be written? */
static bool can_look(const shell *sh) {
  zke *z = NULL;
  zke_options o = sh->options;
  o.flags = ZKE_OPEN_READONLY | ZKE_OPEN_EXISTING;
  int rc = zke_open(sh->file, &o, &z);
  zke_close(z);
  return rc == ZKE_OK;
}

/* Reports why the store cannot be opened.  If permission to write is missing,
 * the sentence also says what works without it; and how a program's database
 * can get our tables. */
static int fail_open(call *c, unsigned needs, int rc) {
  if (rc == ZKE_NOTADB && strstr(zke_errmsg(), "ZKE_OPEN_HOST"))
    return fail_with(
        c, status_of(rc), "NOTADB",
        "%s is another program's database; \"init --host\" makes the "
        "tables of zkembed in it",
        c->sh->file);
  fail_rc(c, rc);
  if (rc == ZKE_READONLY && !(needs & NEEDS_FILE) && can_look(c->sh))
    strncat(c->sentence, "; only commands that read work",
            sizeof c->sentence - strlen(c->sentence) - 1);
  return c->status;
}

/* Opens a handle on the store, with all identities; 0 or the exit code.
 *
 *   needs  only a command that writes makes the file
 *   flags  ZKE_OPEN_READONLY: without a session; or 0 */
static int session_begin(call *c, unsigned needs, unsigned flags, zke **out) {
  shell *sh = c->sh;
  zke *z = NULL;
  zke_options o = sh->options;
  o.flags = flags;
  if (store_of(sh) == STORE_MEMORY) o.os = clock_os();
  if ((needs & CREATES_FILE) != CREATES_FILE) o.flags |= ZKE_OPEN_EXISTING;
  int rc = zke_open(sh->file, &o, &z);
  int status =
      rc == ZKE_OK ? session_authenticate(c, z) : fail_open(c, needs, rc);
  if (status)
    zke_close(z);
  else
    *out = z;
  return status;
}

/* A looker sees a dead process's nodes until some session removes them.  If no
 * other process uses the database, none does: so this opens and closes a
 * session, which removes them, at most once a second.  If that fails, for lack
 * of permission for example, the command shows the file's contents. */
static void session_sweep(shell *sh) {
  enum { EVERY_MS = 1000, PATIENCE_MS = 200 };
  zke *z = NULL;
  zke_options o = sh->options;
  int overdue = 0;
  int64_t now = zke_now(sh->looker);
  if (sh->open_flags & ZKE_OPEN_READONLY || now < sh->sweep_ms) return;
  sh->sweep_ms = now + EVERY_MS;
  if (zke_overdue(sh->looker, &overdue) != ZKE_OK || !overdue) return;
  o.flags = ZKE_OPEN_EXISTING;
  o.busy_timeout_ms = PATIENCE_MS;
  if (zke_open(sh->file, &o, &z) == ZKE_OK) zke_close(z);
}

/* The shell's mutex is held.  After the session has expired, a person continues
 * with a new one.  Scripts and programs do not get one unasked: they would
 * continue as if they still held what ended with the old one. */
static int session_again(call *c) {
  shell *sh = c->sh;
  if (!sh->person || zke_state(sh->z) != ZKE_STATE_EXPIRED) return 0;
  held_free(sh);
  keeper_end(sh);
  zke_close(sh->z);
  sh->z = NULL;
  fprintf(stderr, "zke: the session had expired; this is a new one\n");
  return 0;
}

/* The shell's mutex is held.  Makes the looker the call's handle. */
static int session_look(call *c, unsigned needs) {
  shell *sh = c->sh;
  int status = 0;
  if (!sh->looker)
    status = session_begin(c, needs, ZKE_OPEN_READONLY, &sh->looker);
  if (!status) session_sweep(sh);
  c->z = sh->looker;
  return status;
}

/* The shell's mutex is held.  Begins the session of a tree in memory or of an
 * ensemble.  Each further handle would be another tree in memory, or another
 * session of an ensemble. */
static int session_without_file(call *c, unsigned needs) {
  shell *sh = c->sh;
  bool ensemble = store_of(sh) == STORE_ENSEMBLE;
  int status = 0;
  if (!sh->z) {
    unsigned flags = ensemble ? sh->open_flags : 0;
    status = session_begin(c, needs, flags, &sh->z);
    if (!status && ensemble) keeper_begin(sh);
  }
  c->z = sh->z;
  return status;
}

/* The shell's mutex is held.  Gives the call its handle.  A command that only
 * looks uses the session if there is one, to have the session's permissions.  A
 * command that prefers a session, but cannot have it, looks without. */
static int session_open_locked(call *c, unsigned needs) {
  shell *sh = c->sh;
  unsigned session = needs & (CREATES_FILE | PREFERS_SESSION);
  bool readonly = sh->open_flags & ZKE_OPEN_READONLY;
  int status = 0;
  if (sh->z) session_again(c);
  if (store_of(sh) != STORE_FILE) return session_without_file(c, needs);
  if (!sh->z && (readonly || !session)) return session_look(c, needs);
  if (!sh->z) status = session_begin(c, needs, 0, &sh->z);
  if (status && session == PREFERS_SESSION && c->code) {
    c->status = STATUS_OK;
    c->code = NULL;
    return session_look(c, needs);
  }
  c->z = sh->z;
  return status;
}

/* Takes --ttl DURATION, if the command has that option, as the lease of the
 * session that will be opened.  Another --ttl (create's, in ms) has a different
 * meaning, which the name of its value shows. */
static int session_lease(call *c) {
  shell *sh = c->sh;
  const option *o = c->command->options;
  while (o && o->letter && (!o->name || strcmp(o->name, "ttl") != 0)) o++;
  if (!o || !o->letter || strcmp(o->value, "DURATION") != 0) return 0;
  if (!option_given(c, o->letter)) return 0;
  if (sh->persists)
    return fail_usage(c,
                      "--ttl needs a session of its own: give it to one "
                      "command on the command line");
  int status = option_duration(c, o->letter, 0, &sh->options.lease_ms);
  if (!status && sh->options.lease_ms == 0)
    status = fail_usage(c, "--ttl wants a duration above 0");
  return status;
}

/* Refuses commands that an ensemble cannot do; 0 or the exit code. */
static int refuse_ensemble(call *c, unsigned needs) {
  shell *sh = c->sh;
  if (!(needs & FILE_ONLY) || !sh->file || store_of(sh) != STORE_ENSEMBLE)
    return 0;
  return fail_with(c, STATUS_DENIED, "ENSEMBLE",
                   "%s is for a database in a file, and %s is an ensemble",
                   c->command->name, sh->file);
}

/* Opens under the shell's mutex, so that calls of a coprocess that begin
 * together share one session. */
int session_open(call *c, unsigned needs) {
  shell *sh = c->sh;
  int status = refuse_ensemble(c, needs);
  if (status || !(needs & (NEEDS_FILE | CREATES_FILE))) return status;
  if (!sh->file)
    return fail_with(c, STATUS_USAGE, "USAGE", "no database was named");
  status = session_lease(c);
  if (status) return status;
  pthread_mutex_lock(&sh->m);
  status = session_open_locked(c, needs);
  pthread_mutex_unlock(&sh->m);
  if (status) return status;
  if ((needs & NEEDS_SESSION) && zke_session_id(c->z) == 0)
    return fail_with(c, STATUS_DENIED, "READONLY",
                     "%s was opened for reading; %s needs a session", sh->file,
                     c->command->name);
  return 0;
}

/* Releases everything first, while there is still a session.  A failure of the
 * close becomes the exit code only if there is no other: main() does this. */
int session_close(shell *sh) {
  held_free(sh);
  keeper_end(sh);
  int rc = zke_close(sh->z);
  zke_close(sh->looker);
  sh->z = sh->looker = NULL;
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
