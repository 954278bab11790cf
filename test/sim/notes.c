/* notes.c - see notes.h */
#define NOTES_PLAIN
#include "test/sim/notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/known.h"
#include "test/sim/sched.h"
#include "test/sim/wait.h"

noted **notes_all;
int notes_count;

/* The batch that a thread is in. */
static noted *batch_of[SIM_SLOTS][SIM_THREADS];

/* ---- each kind of call, on any engine ---- */

/* The outputs of a call.  This file frees all except `results`. */
typedef struct answer {
  int rc;
  zke_stat stat;
  char *path, *data;
  int len;
  zke_strings *names;
  zke_acls *acls;
  int64_t count;
  zke_op_result *results;
} answer;

/* zkembed.c's functions. */
static const zke_engine plain;

#define KIND(name) \
  static int do_##name(const zke_engine *e, zke *z, const noted *c, answer *a)

/* For both functions that create: one has a TTL. */
KIND(create) {
  if (!c->wide)
    return e->create(z, c->path, c->data, c->len, c->acls, c->number, &a->path,
                     &a->stat);
  return e->create_ttl(z, c->path, c->data, c->len, c->acls, c->number, c->wide,
                       &a->path, &a->stat);
}

/* Like the other kinds: the arguments of a call of this name, from its note. */
KIND(remove) {
  (void)a;
  return e->remove(z, c->path, c->number);
}

KIND(set) { return e->set(z, c->path, c->data, c->len, c->number, &a->stat); }

KIND(set_acl) { return e->set_acl(z, c->path, c->number, c->acls, &a->stat); }

/* The caller owns the results that it wants. */
KIND(multi) { return e->multi(z, c->ops, c->len, a->results); }

/* The least next number is the note's number. */
KIND(raise_sequence) {
  return e->raise_sequence(z, c->path, c->number, &a->stat);
}

/* Its czxid is the note's wide number. */
KIND(discard) {
  (void)a;
  return e->discard(z, c->path, c->number, c->wide);
}

KIND(exists) { return e->exists(z, c->path, c->fn, c->context, &a->stat); }

/* With the note's watch, if there is one. */
KIND(get) {
  return e->get(z, c->path, c->fn, c->context, &a->data, &a->len, &a->stat);
}

/* Likewise. */
KIND(children) {
  return e->children(z, c->path, c->fn, c->context, &a->names, &a->stat);
}

KIND(get_acl) { return e->get_acl(z, c->path, &a->acls, &a->stat); }

KIND(count) { return e->count(z, c->path, &a->count); }

KIND(ephemerals) { return e->ephemerals(z, c->wide, c->path, &a->names); }

KIND(multi_read) { return e->multi_read(z, c->ops, c->len, a->results); }

/* The path is the scheme. */
KIND(add_auth) {
  (void)a;
  return e->add_auth(z, c->path, c->data, c->len);
}

/* The mode is the note's number. */
KIND(add_watch) {
  (void)a;
  return e->add_watch(z, c->path, c->number, c->fn, c->context);
}

/* The type is the note's number, the state's zxid its wide one. */
KIND(set_watch) {
  (void)a;
  return e->set_watch(z, c->path, c->number, c->wide, c->fn, c->context);
}

/* The type is the note's number. */
KIND(remove_watch) {
  (void)a;
  return e->remove_watch(z, c->path, c->number, c->fn, c->context);
}

KIND(forget) {
  (void)a;
  return e->forget(z, c->fn, c->context);
}

/* Only the calls inside it are played. */
KIND(batch) {
  (void)e, (void)z, (void)c, (void)a;
  return ZKE_OK;
}

#undef KIND

static const struct {
  const char *name;
  char does;
  int (*fn)(const zke_engine *e, zke *z, const noted *c, answer *a);
} kinds[] = {
#define ROW(name, does) {#name, does, do_##name},
    NOTES_KIND_LIST(ROW)
#undef ROW
};

const char *notes_name(notes_kind kind) { return kinds[kind].name; }
char notes_does(notes_kind kind) { return kinds[kind].does; }

static const zke_engine plain = {.create = zke_create,
                                 .create_ttl = zke_create_ttl,
                                 .remove = zke_delete,
                                 .set = zke_set,
                                 .set_acl = zke_set_acl,
                                 .multi = zke_multi,
                                 .raise_sequence = zke_raise_sequence,
                                 .discard = zke_discard,
                                 .exists = zke_exists,
                                 .get = zke_get,
                                 .children = zke_children,
                                 .get_acl = zke_get_acl,
                                 .count = zke_count,
                                 .ephemerals = zke_ephemerals,
                                 .multi_read = zke_multi_read,
                                 .add_auth = zke_add_auth,
                                 .add_watch = zke_add_watch,
                                 .set_watch = zke_set_watch,
                                 .remove_watch = zke_remove_watch,
                                 .forget = zke_forget};

/* ---- answers as text ---- */

/* All members, so that no difference is missed. */
static void print_stat(FILE *out, const zke_stat *s) {
  fprintf(out, " c%llx m%llx p%llx t%lld,%lld v%d,%d,%d o%llx l%d n%d",
          (long long)s->czxid, (long long)s->mzxid, (long long)s->pzxid,
          (long long)s->ctime, (long long)s->mtime, s->version, s->cversion,
          s->aversion, (long long)s->ephemeralOwner, s->dataLength,
          s->numChildren);
}

/* NULL and no bytes differ. */
static void print_data(FILE *out, const char *data, int len) {
  fprintf(out, " %d\"", len);
  if (data && len > 0) fwrite(data, 1, (size_t)len, out);
  fputc('"', out);
}

const char *notes_corner(const char *path) {
  bool theirs = path[0] == '/' && (path[1] == 'o' || path[1] == 'p');
  return theirs && path[2] && strchr("/", path[3]) ? path + 3 : NULL;
}

/* In the order returned, which is promised. */
static void print_names(FILE *out, const zke_strings *names) {
  fputs(" {", out);
  for (int i = 0; i < names->count; i++)
    if (!notes_corner(names->data[i])) fprintf(out, " %s", names->data[i]);
  fputs(" }", out);
}

/* The entries of an ACL, likewise. */
static void print_acls(FILE *out, const zke_acls *acls) {
  for (int i = 0; i < acls->count; i++)
    fprintf(out, " %d:%s:%s", (int)acls->data[i].perms, acls->data[i].scheme,
            acls->data[i].id);
}

/* One of several operations; only a get has data. */
static void print_result(FILE *out, const zke_op *op, const zke_op_result *r) {
  fprintf(out, "; %s %s", zke_error_name(r->rc), r->path ? r->path : "");
  print_stat(out, &r->stat);
  if (op->type == ZKE_OP_GET) print_data(out, r->data, r->len);
  if (r->children) print_names(out, r->children);
}

/* Everything in an answer; only the code, if the call failed. */
static char *answer_text(const noted *c, const answer *a) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out) sim_bug("out of memory");
  fputs(zke_error_name(a->rc), out);
  for (int i = 0; a->results && i < c->len; i++)
    print_result(out, &c->ops[i], &a->results[i]);
  if (a->rc == ZKE_OK && !a->results) {
    fprintf(out, " %s", a->path ? a->path : "");
    print_stat(out, &a->stat);
    print_data(out, a->data, a->len);
    fprintf(out, " %lld", (long long)a->count);
    if (a->names) print_names(out, a->names);
    if (a->acls) print_acls(out, a->acls);
  }
  fclose(out);
  return text;
}

/* Release an answer, except its results. */
static void answer_free(answer *a) {
  zke_free(a->path);
  zke_free(a->data);
  zke_free(a->names);
  zke_free(a->acls);
}

/* The results of a multi are made and released here. */
char *notes_make(const zke_engine *engine, zke *z, const noted *c, int *rc_out,
                 zke_stat *stat_out) {
  answer a = {.rc = ZKE_OK};
  zke_op_result *results = NULL;
  if (c->ops) a.results = results = sim_zero(sizeof *results * (size_t)c->len);
  *rc_out = a.rc = kinds[c->kind].fn(engine, z, c, &a);
  *stat_out = a.stat;
  char *text = answer_text(c, &a);
  zke_results_clear(results, results ? c->len : 0);
  free(results);
  answer_free(&a);
  return text;
}

/* ---- notes ---- */

/* A copy of a block, followed by a zero; NULL for NULL. */
static void *copy(const void *bytes, size_t size) {
  return bytes ? memcpy(sim_zero(size + 1), bytes, size) : NULL;
}

/* A copy of a string; NULL for NULL. */
static char *copy_text(const char *text) {
  return text ? copy(text, strlen(text)) : NULL;
}

/* A copy, since the caller may release its list after the call. */
static zke_acls *copy_acls(const zke_acls *from) {
  if (!from) return NULL;
  zke_acls *to = sim_zero(sizeof *to);
  zke_acl *at = sim_zero(sizeof *at * (size_t)(from->count + 1));
  for (int i = 0; i < from->count; i++)
    at[i] = (zke_acl){from->data[i].perms, copy_text(from->data[i].scheme),
                      copy_text(from->data[i].id)};
  *to = (zke_acls){from->count, at};
  return to;
}

/* Also copy the operations of a multi, and all that they point to. */
static zke_op *copy_ops(const zke_op *from, int count) {
  zke_op *to = sim_zero(sizeof *to * (size_t)(count + 1));
  for (int i = 0; i < count; i++) {
    to[i] = from[i];
    to[i].path = copy_text(from[i].path);
    to[i].acls = copy_acls(from[i].acls);
    if (from[i].len >= 0) to[i].data = copy(from[i].data, (size_t)from[i].len);
  }
  return to;
}

static int64_t wall_ms(void) { return wait_clock(ZKE_CLOCK_REALTIME) / SIM_MS; }

/* By how much the wall clock has been changed so far. */
static int64_t wall_set(void) { return sim.wall + sim.suspended; }

/* A new note for a call on a handle. */
static noted *begin(zke *z, notes_kind kind, const char *path) {
  noted *c = sim_zero(sizeof *c), *b = batch_of[sched_slot()][sched_thread()];
  c->kind = kind;
  c->session = zke_session_id(z);
  c->path = copy_text(path);
  c->batch = b && b->session == c->session ? b : NULL; /* b may be a dead one */
  c->from = known_most();
  c->wall_begin = wall_ms();
  c->wall_set = wall_set();
  if (notes_count % 256 == 0)
    notes_all =
        sim_resize(notes_all, sizeof *notes_all * (size_t)(notes_count + 256));
  notes_all[notes_count++] = c;
  return c;
}

/* Add a copy of the data; a length below 0 stands for NULL. */
static noted *with_data(noted *c, const void *data, int len) {
  c->len = len;
  if (len >= 0) c->data = copy(data, (size_t)len);
  return c;
}

/* Add a watch. */
static noted *with_watch(noted *c, zke_watch_fn fn, void *context) {
  c->fn = fn;
  c->context = context;
  return c;
}

/* The pzxids in the results of a multi_read. */
static int64_t *pzxids_of(const noted *c, const zke_op_result *results) {
  int64_t *all = sim_zero(sizeof *all * (size_t)(c->len + 1));
  for (int i = 0; i < c->len; i++) all[i] = results[i].stat.pzxid;
  return all;
}

/* The call has returned: note its answer (P8). */
static void end(noted *c, const answer *a) {
  c->zxid = c->kind == NOTES_forget ? 0 : zke_zxid(); /* it sees no state */
  c->rc = a->rc;
  c->stat = a->stat;
  c->text = answer_text(c, a);
  c->wall_end = wall_ms();
  if (c->wall_set != wall_set()) c->wall_end = 0;
  c->done = true;
  if (c->zxid && c->zxid < c->from && c->kind != NOTES_add_auth)
    sim_found("P8: %s of %s saw zxid %llx, after %llx was acknowledged",
              notes_name(c->kind), c->path ? c->path : "", (long long)c->zxid,
              (long long)c->from);
}

/* Make the call, and note it. */
static answer make(zke *z, noted *c) {
  answer a = {.rc = ZKE_OK};
  a.rc = kinds[c->kind].fn(&plain, z, c, &a);
  end(c, &a);
  return a;
}

/* Give the caller the outputs that it wants. */
static int give(answer *a, zke_stat *stat_out, char **path_out,
                zke_strings **names_out) {
  if (a->rc == ZKE_OK && stat_out) *stat_out = a->stat;
  if (a->rc == ZKE_OK && path_out) {
    *path_out = a->path;
    a->path = NULL;
  }
  if (a->rc == ZKE_OK && names_out) {
    *names_out = a->names;
    a->names = NULL;
  }
  answer_free(a);
  return a->rc;
}

/* Make a call with no output except possibly a Stat; its result. */
static int make_and_give(zke *z, noted *c, zke_stat *stat_out) {
  answer a = make(z, c);
  return give(&a, stat_out, NULL, NULL);
}

/* ---- zkembed.h's functions ---- */

int notes_zke_create(zke *z, const char *path, const void *data, int len,
                     const zke_acls *acls, int mode, char **path_out,
                     zke_stat *stat_out) {
  return notes_zke_create_ttl(z, path, data, len, acls, mode, 0, path_out,
                              stat_out);
}

int notes_zke_create_ttl(zke *z, const char *path, const void *data, int len,
                         const zke_acls *acls, int mode, int64_t ttl_ms,
                         char **path_out, zke_stat *stat_out) {
  noted *c = with_data(begin(z, NOTES_create, path), data, len);
  c->acls = copy_acls(acls);
  c->number = mode;
  c->wide = ttl_ms;
  answer a = make(z, c);
  return give(&a, stat_out, path_out, NULL);
}

/* Each function notes its arguments under their names in notes.h. */
int notes_zke_delete(zke *z, const char *path, int version) {
  noted *c = begin(z, NOTES_remove, path);
  c->number = version;
  return make_and_give(z, c, NULL);
}

/* See notes_zke_delete(). */
int notes_zke_discard(zke *z, const char *path, int mode, int64_t czxid) {
  noted *c = begin(z, NOTES_discard, path);
  c->number = mode;
  c->wide = czxid;
  return make_and_give(z, c, NULL);
}

/* See notes_zke_delete(). */
int notes_zke_raise_sequence(zke *z, const char *path, int next,
                             zke_stat *stat_out) {
  noted *c = begin(z, NOTES_raise_sequence, path);
  c->number = next;
  return make_and_give(z, c, stat_out);
}

/* See notes_zke_delete(). */
int notes_zke_set(zke *z, const char *path, const void *data, int len,
                  int version, zke_stat *stat_out) {
  noted *c = with_data(begin(z, NOTES_set, path), data, len);
  c->number = version;
  return make_and_give(z, c, stat_out);
}

/* See notes_zke_delete(). */
int notes_zke_set_acl(zke *z, const char *path, int version,
                      const zke_acls *acls, zke_stat *stat_out) {
  noted *c = begin(z, NOTES_set_acl, path);
  c->acls = copy_acls(acls);
  c->number = version;
  return make_and_give(z, c, stat_out);
}

/* Several operations in one call. */
static int several(zke *z, notes_kind kind, const zke_op *ops, int count,
                   zke_op_result *results) {
  noted *c = begin(z, kind, NULL);
  c->ops = copy_ops(ops, count);
  c->len = count;
  answer a = {.results = results};
  a.rc = kinds[kind].fn(&plain, z, c, &a);
  if (kind == NOTES_multi_read && a.rc == ZKE_OK)
    c->pzxids = pzxids_of(c, results);
  end(c, &a);
  return a.rc;
}

/* See several(). */
int notes_zke_multi(zke *z, const zke_op *ops, int count,
                    zke_op_result *results) {
  return several(z, NOTES_multi, ops, count, results);
}

/* See several(). */
int notes_zke_multi_read(zke *z, const zke_op *ops, int count,
                         zke_op_result *results) {
  return several(z, NOTES_multi_read, ops, count, results);
}

/* See notes_zke_delete(). */
int notes_zke_exists(zke *z, const char *path, zke_watch_fn fn, void *context,
                     zke_stat *stat_out) {
  noted *c = with_watch(begin(z, NOTES_exists, path), fn, context);
  return make_and_give(z, c, stat_out);
}

/* The caller gets the data if it wants it. */
int notes_zke_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                  char **data_out, int *len_out, zke_stat *stat_out) {
  noted *c = with_watch(begin(z, NOTES_get, path), fn, context);
  answer a = make(z, c);
  if (a.rc == ZKE_OK && data_out) {
    *data_out = a.data;
    a.data = NULL;
  }
  if (a.rc == ZKE_OK && len_out) *len_out = a.len;
  return give(&a, stat_out, NULL, NULL);
}

/* The caller gets the names if it wants them. */
int notes_zke_children(zke *z, const char *path, zke_watch_fn fn, void *context,
                       zke_strings **names_out, zke_stat *stat_out) {
  answer a = make(z, with_watch(begin(z, NOTES_children, path), fn, context));
  return give(&a, stat_out, NULL, names_out);
}

/* The caller gets the list if it wants it. */
int notes_zke_get_acl(zke *z, const char *path, zke_acls **acls_out,
                      zke_stat *stat_out) {
  answer a = make(z, begin(z, NOTES_get_acl, path));
  if (a.rc == ZKE_OK && acls_out) {
    *acls_out = a.acls;
    a.acls = NULL;
  }
  return give(&a, stat_out, NULL, NULL);
}

/* See notes_zke_delete(). */
int notes_zke_count(zke *z, const char *path, int64_t *count_out) {
  answer a = make(z, begin(z, NOTES_count, path));
  if (a.rc == ZKE_OK && count_out) *count_out = a.count;
  return give(&a, NULL, NULL, NULL);
}

/* The session is always given, since the model may ask as another one. */
int notes_zke_ephemerals(zke *z, int64_t session, const char *prefix,
                         zke_strings **paths_out) {
  noted *c = begin(z, NOTES_ephemerals, prefix);
  c->wide = session ? session : c->session;
  answer a = make(z, c);
  return give(&a, NULL, NULL, paths_out);
}

/* The calls of its function belong to it. */
int notes_zke_batch(zke *z, zke_batch_fn fn, void *context) {
  noted *c = begin(z, NOTES_batch, NULL);
  noted **in = &batch_of[sched_slot()][sched_thread()];
  *in = c;
  answer a = {.rc = zke_batch(z, fn, context)};
  *in = NULL;
  end(c, &a);
  return a.rc;
}

/* The path is the scheme. */
int notes_zke_add_auth(zke *z, const char *scheme, const char *cert, int len) {
  return make_and_give(
      z, with_data(begin(z, NOTES_add_auth, scheme), cert, len), NULL);
}

/* A call that sets a watch, with this mode or type, and from this zxid on. */
static int watch_and_give(zke *z, noted *c, int how, int64_t zxid,
                          zke_watch_fn fn, void *context) {
  with_watch(c, fn, context);
  c->number = how;
  c->wide = zxid;
  return make_and_give(z, c, NULL);
}

/* See notes_zke_delete(). */
int notes_zke_add_watch(zke *z, const char *path, int mode, zke_watch_fn fn,
                        void *context) {
  noted *c = begin(z, NOTES_add_watch, path);
  return watch_and_give(z, c, mode, 0, fn, context);
}

/* See notes_zke_delete(). */
int notes_zke_set_watch(zke *z, const char *path, int type, int64_t zxid,
                        zke_watch_fn fn, void *context) {
  noted *c = begin(z, NOTES_set_watch, path);
  return watch_and_give(z, c, type, zxid, fn, context);
}

/* ---- events ---- */

/* Does the call remove watches? */
static bool takes_back(const noted *c) {
  return c->kind == NOTES_remove_watch || c->kind == NOTES_forget;
}

/* The last call that set a watch with this context. */
static noted *watch_of(const void *context) {
  for (int i = notes_count; i-- > 0;) {
    noted *c = notes_all[i];
    if (c->context == context && c->fn && !takes_back(c)) return c;
  }
  return NULL;
}

/* The note refers to the call that set the watch. */
int notes_zke_remove_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                           void *context) {
  noted *c = with_watch(begin(z, NOTES_remove_watch, path), fn, context);
  c->number = type;
  c->target = watch_of(context);
  return make_and_give(z, c, NULL);
}

/* The note refers to the call that set the watch; to none for an alarm. */
int notes_zke_forget(zke *z, zke_watch_fn fn, void *context) {
  noted *c = with_watch(begin(z, NOTES_forget, NULL), fn, context);
  noted *watch = watch_of(context);
  if (watch && watch->fn == fn) c->target = watch;
  return make_and_give(z, c, NULL);
}

/* Append to a growing list. */
void notes_event_add(notes_events *list, int type, const char *path,
                     int64_t zxid) {
  if (list->count == list->room) {
    list->room = 2 * list->room + 2;
    list->at = sim_resize(list->at, sizeof *list->at * (size_t)list->room);
  }
  list->at[list->count++] =
      (notes_event){type, zxid, copy_text(path), notes_count};
}

/* The event is added to the note of the call that set the watch. */
void notes_told(const void *context, int type, const char *path, int64_t zxid) {
  noted *c = watch_of(context);
  if (c) notes_event_add(&c->told, type, path, zxid);
}

/* Watches that were set after the last dropped event are not affected. */
void notes_cut(int64_t session, int64_t zxid) {
  for (int i = 0; i < notes_count; i++) {
    noted *c = notes_all[i];
    if (c->session == session && c->zxid <= zxid) c->cut = zxid;
  }
}
