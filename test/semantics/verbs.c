/* verbs.c - a function for each call: see semantics.h
 *
 * Each asks for all outputs and shows all of them.  If the call is refused,
 * outputs that must not change are compared with their old values.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/semantics/semantics.h"

/* ---- watchers ---- */

static const char *event_name(int type) {
  static const struct {
    int type;
    const char *name;
  } rows[] = {{ZKE_EVENT_CREATED, "CREATED"},   {ZKE_EVENT_DELETED, "DELETED"},
              {ZKE_EVENT_CHANGED, "CHANGED"},   {ZKE_EVENT_CHILD, "CHILD"},
              {ZKE_EVENT_OVERFLOW, "OVERFLOW"}, {ZKE_EVENT_ALARM, "ALARM"},
              {ZKE_EVENT_SESSION, "SESSION"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].type == type) return rows[i].name;
  return "?";
}

static const char *state_name(int state) {
  static const struct {
    int state;
    const char *name;
  } rows[] = {{ZKE_STATE_EXPIRED, "EXPIRED"},
              {ZKE_STATE_AUTH_FAILED, "AUTH_FAILED"},
              {ZKE_STATE_MOVED, "MOVED"},
              {ZKE_STATE_CONNECTED, "CONNECTED"},
              {ZKE_STATE_CLOSED, "CLOSED"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].state == state) return rows[i].name;
  return "?";
}

void hear(zke *z, int type, int state, const char *path, void *context) {
  answer *told = &((listener *)context)->told;
  must(z == ((listener *)context)->of->z, "told with another handle");
  must(type == ZKE_EVENT_SESSION || state == ZKE_STATE_CONNECTED,
       "told in the state %s", state_name(state));
  say(told, "%s%s", told->length ? "; " : "", event_name(type));
  if (type == ZKE_EVENT_SESSION) {
    say(told, " %s", state_name(state));
  } else if (*path) {
    say(told, " ");
    say_name(told, path);
  }
}

listener *label_of(session *by, const char *label) {
  for (int i = 0; i < MOST_LABELS; i++) {
    listener *l = &by->listeners[i];
    if (!l->label[0] || !strcmp(l->label + 1, label)) {
      snprintf(l->label, sizeof l->label, "=%s", label);
      l->of = by;
      return l;
    }
  }
  line_fails("too many labels: %s", label);
}

/* The watcher of a call: a function, and its context. */
static zke_watch_fn function_of(const call *c) {
  return c->label ? hear : NULL;
}

static listener *context_of(session *by, const call *c) {
  return c->label ? label_of(by, c->label) : NULL;
}

/* ---- outputs ---- */

typedef struct outputs {
  char *text;
  int len;
  int64_t count, bytes;
  zke_strings *names;
  zke_acls *acls;
  zke_stat stat;
} outputs;

enum { UNTOUCHED = 0x5a };

static void prepare(outputs *o) { memset(o, UNTOUCHED, sizeof *o); }

static bool is_untouched(const void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (((const unsigned char *)bytes)[i] != UNTOUCHED) return false;
  return true;
}

/* Did the call succeed?  If not, its code is the answer, and its outputs must
 * be unchanged. */
static bool succeeded(answer *to, int rc, const outputs *o) {
  if (rc == ZKE_OK) return true;
  must(is_untouched(o, sizeof *o), "a refused call sets an output");
  say_code(to, rc);
  return false;
}

typedef struct turn {
  stage *s;
  session *by;
  zke *z;
  const call *c;
  answer *to;
  outputs o;
} turn;

/* "ok", and the Stat. */
static void say_ok(turn *t, int rc) {
  if (!succeeded(t->to, rc, &t->o)) return;
  say(t->to, "ok");
  say_stat(t->to, t->s, &t->o.stat);
}

static void say_only_code(turn *t, int rc) { say_code(t->to, rc); }

/* ---- nodes ---- */

static void do_create(turn *t) {
  const call *c = t->c;
  outputs *o = &t->o;
  int rc = c->has_ttl ? zke_create_ttl(t->z, c->path, c->data, c->len, c->acls,
                                       c->mode, c->ttl_ms, &o->text, &o->stat)
                      : zke_create(t->z, c->path, c->data, c->len, c->acls,
                                   c->mode, &o->text, &o->stat);
  if (!succeeded(t->to, rc, o)) return;
  say_name(t->to, o->text);
  say_stat(t->to, t->s, &o->stat);
  zke_free(o->text);
}

static void do_delete(turn *t) {
  say_only_code(t, zke_delete(t->z, t->c->path, (int)t->c->number));
}

static void do_set(turn *t) {
  const call *c = t->c;
  say_ok(t,
         zke_set(t->z, c->path, c->data, c->len, (int)c->number, &t->o.stat));
}

static void do_exists(turn *t) {
  say_ok(t, zke_exists(t->z, t->c->path, function_of(t->c),
                       context_of(t->by, t->c), &t->o.stat));
}

static void do_get(turn *t) {
  outputs *o = &t->o;
  int rc = zke_get(t->z, t->c->path, function_of(t->c), context_of(t->by, t->c),
                   &o->text, &o->len, &o->stat);
  if (!succeeded(t->to, rc, o)) return;
  say_data(t->to, o->text, o->len);
  say_stat(t->to, t->s, &o->stat);
  zke_free(o->text);
}

static void do_children(turn *t) {
  outputs *o = &t->o;
  int rc = zke_children(t->z, t->c->path, function_of(t->c),
                        context_of(t->by, t->c), &o->names, &o->stat);
  if (!succeeded(t->to, rc, o)) return;
  say_names(t->to, o->names);
  say_stat(t->to, t->s, &o->stat);
  zke_free(o->names);
}

static void do_count(turn *t) {
  int rc = zke_count(t->z, t->c->path, &t->o.count);
  if (succeeded(t->to, rc, &t->o)) say(t->to, "%" PRId64, t->o.count);
}

/* The number of nodes and of bytes of data. */
static void do_usage(turn *t) {
  outputs *o = &t->o;
  int rc = zke_usage(t->z, t->c->path, &o->count, &o->bytes);
  if (succeeded(t->to, rc, o))
    say(t->to, "%" PRId64 " %" PRId64, o->count, o->bytes);
}

/* The session with a name, or a number. */
static int64_t id_of(const turn *t, const char *text) {
  const session *whose = stage_session(t->s, text);
  return whose ? whose->id : strtoll(text, NULL, 10);
}

/* ephemerals PREFIX [of=SESSION] */
static void do_ephemerals(turn *t) {
  const char *of = call_option(t->c, "of");
  int64_t id = of ? id_of(t, of) : 0;
  int rc = zke_ephemerals(t->z, id, t->c->path, &t->o.names);
  if (!succeeded(t->to, rc, &t->o)) return;
  say_names(t->to, t->o.names);
  zke_free(t->o.names);
}

static void do_sync(turn *t) { say_only_code(t, zke_sync(t->z, t->c->path)); }

static void do_raise(turn *t) {
  say_ok(t,
         zke_raise_sequence(t->z, t->c->path, (int)t->c->number, &t->o.stat));
}

/* ---- permissions ---- */

static void do_getacl(turn *t) {
  outputs *o = &t->o;
  int rc = zke_get_acl(t->z, t->c->path, &o->acls, &o->stat);
  if (!succeeded(t->to, rc, o)) return;
  say_acls(t->to, o->acls);
  say_stat(t->to, t->s, &o->stat);
  zke_free(o->acls);
}

static void do_setacl(turn *t) {
  say_ok(t, zke_set_acl(t->z, t->c->path, (int)t->c->number, t->c->acls,
                        &t->o.stat));
}

/* auth SCHEME "CERTIFICATE" */
static void do_auth(turn *t) {
  const call *c = t->c;
  say_only_code(t, zke_add_auth(t->z, c->path, c->data, c->len));
}

/* vouch SCHEME "ID" */
static void do_vouch(turn *t) {
  say_only_code(t, zke_vouch(t->z, t->c->path, t->c->data));
}

static void do_clearauth(turn *t) { say_only_code(t, zke_clear_auth(t->z)); }

/* ---- watches ---- */

/* watch PATH persistent|recursive|mode=N [watch=LABEL] */
static void do_watch(turn *t) {
  const char *label = call_option(t->c, "watch"), *number;
  int mode = call_has(t->c, "recursive") ? ZKE_WATCH_PERSISTENT_RECURSIVE
                                         : ZKE_WATCH_PERSISTENT;
  if ((number = call_option(t->c, "mode"))) mode = atoi(number);
  say_only_code(t, zke_add_watch(t->z, t->c->path, mode, hear,
                                 label_of(t->by, label ? label : "")));
}

static int watch_type(const call *c) {
  const char *number = call_option(c, "type");
  if (number) return atoi(number);
  if (call_has(c, "data")) return ZKE_WATCH_DATA;
  if (call_has(c, "child")) return ZKE_WATCH_CHILD;
  if (call_has(c, "exist")) return ZKE_WATCH_EXIST;
  return ZKE_WATCH_ANY;
}

/* unwatch PATH data|child|any [watch=LABEL|all]: without a label the usual
 * pair; "all" means any pair. */
static void take_pair(turn *t, zke_watch_fn *function, void **context) {
  const char *label = t->c->label ? t->c->label : "";
  bool all = call_has(t->c, "all");
  *function = all ? NULL : hear;
  *context = all ? NULL : label_of(t->by, label);
}

static void do_unwatch(turn *t) {
  zke_watch_fn function;
  void *context;
  take_pair(t, &function, &context);
  say_only_code(t, zke_remove_watch(t->z, t->c->path, watch_type(t->c),
                                    function, context));
}

static void do_checkwatch(turn *t) {
  zke_watch_fn function;
  void *context;
  take_pair(t, &function, &context);
  say_only_code(t, zke_check_watch(t->z, t->c->path, watch_type(t->c), function,
                                   context));
}

/* rewatch PATH data|child|exist ZXID: zke_set_watch(); the zxid is relative to
 * the block's beginning, except the lowest and the highest number. */
static void do_rewatch(turn *t) {
  const char *label = t->c->label ? t->c->label : "";
  int64_t zxid = t->c->number;
  if (zxid != INT64_MIN && zxid != INT64_MAX) zxid += t->s->first_zxid;
  say_only_code(t, zke_set_watch(t->z, t->c->path, watch_type(t->c), zxid, hear,
                                 label_of(t->by, label)));
}

/* forget LABEL; without one the usual pair. */
static void do_forget(turn *t) {
  const char *label = t->c->path ? t->c->path : "";
  say_only_code(t, zke_forget(t->z, hear, label_of(t->by, label)));
}

/* events [LABEL]: dispatch pending events; show what the pair has got since the
 * last time. */
static void do_events(turn *t) {
  listener *l = label_of(t->by, t->c->path ? t->c->path : "");
  int rc = zke_dispatch(t->z, NULL);
  if (rc != ZKE_OK && rc != ZKE_INVALIDSTATE) {
    say_code(t->to, rc);
    return;
  }
  say(t->to, "%s", l->told.length ? l->told.text : "none");
  memset(&l->told, 0, sizeof l->told);
}

/* dispatch: the number of events dispatched */
static void do_dispatch(turn *t) {
  int count = -1, rc = zke_dispatch(t->z, &count);
  if (rc == ZKE_OK)
    say(t->to, "%d", count);
  else
    say_code(t->to, rc);
}

/* watcher [LABEL]: the default watcher; none without a label. */
static void do_watcher(turn *t) {
  const char *label = t->c->path;
  say_only_code(t, zke_set_watcher(t->z, label ? hear : NULL,
                                   label ? label_of(t->by, label) : NULL));
}

static void say_watch(turn *t, const zke_watch_info *w) {
  static const char *const types[] = {"?", "child", "data", "any"};
  static const char *const modes[] = {"", " persistent", " recursive"};
  say(t->to, "%s ", stage_name(t->s, w->session));
  say_name(t->to, w->path);
  say(t->to, " %s%s", types[w->type], modes[w->mode + 1]);
  if (w->owner) say(t->to, " owner=%s", stage_name(t->s, w->owner));
}

/* watches: all that are registered, by any session. */
static void do_watches(turn *t) {
  zke_watch_list *list = NULL;
  int rc = zke_watches(t->z, &list);
  if (rc != ZKE_OK) {
    say_code(t->to, rc);
    return;
  }
  if (!list->count) say(t->to, "none");
  for (int i = 0; i < list->count; i++) {
    if (i) say(t->to, "; ");
    say_watch(t, &list->data[i]);
  }
  zke_free(list);
}

/* ---- sessions ---- */

static void do_open(turn *t) { say_only_code(t, stage_open(t->s, t->c)); }

static void do_close(turn *t) {
  say_only_code(t, stage_close(t->s, t->c->path));
}

static void do_expire(turn *t) {
  say_only_code(t, zke_expire(t->z, id_of(t, t->c->path)));
}

static void say_session(turn *t, const zke_session_info *i) {
  say(t->to, "%s", stage_name(t->s, i->id));
  if (i->ephemerals) say(t->to, " ephemerals=%d", i->ephemerals);
  if (i->watches) say(t->to, " watches=%d", i->watches);
  if (i->events) say(t->to, " events=%d", i->events);
  if (!i->alive) say(t->to, " dead");
}

/* sessions: the living ones, and what each has. */
static void do_sessions(turn *t) {
  zke_session_list *list = NULL;
  int rc = zke_sessions(t->z, -1, &list);
  if (rc != ZKE_OK) {
    say_code(t->to, rc);
    return;
  }
  for (int i = 0; i < list->count; i++) {
    if (i) say(t->to, "; ");
    say_session(t, &list->data[i]);
  }
  zke_free(list);
}

static void do_state(turn *t) { say(t->to, "%s", state_name(zke_state(t->z))); }

static void do_zxid(turn *t) {
  say(t->to, "%" PRId64, stage_zxid(t->s, t->z) - t->s->first_zxid);
}

/* ---- several at once ---- */

typedef struct parts {
  call calls[MOST_PARTS];
  zke_op ops[MOST_PARTS];
  zke_op_result results[MOST_PARTS];
  int count;
} parts;

static void part_create(zke_op *op, const call *c) {
  if (c->has_ttl)
    zke_op_create_ttl(op, c->path, c->data, c->len, c->acls, c->mode,
                      c->ttl_ms);
  else
    zke_op_create(op, c->path, c->data, c->len, c->acls, c->mode);
}

static void part_delete(zke_op *op, const call *c) {
  zke_op_delete(op, c->path, (int)c->number);
}

static void part_set(zke_op *op, const call *c) {
  zke_op_set(op, c->path, c->data, c->len, (int)c->number);
}

static void part_check(zke_op *op, const call *c) {
  zke_op_check(op, c->path, (int)c->number);
}

static void part_get(zke_op *op, const call *c) { zke_op_get(op, c->path); }

/* children PATH [after=NAME] [most=N] */
static void part_children(zke_op *op, const call *c) {
  const char *most = call_option(c, "most");
  zke_op_children(op, c->path, call_option(c, "after"), most ? atoi(most) : 0);
}

static void part_untold(zke_op *op, const call *c) {
  zke_op_untold(op, c->path, (int)c->number);
}

/* fail CODE, a name or a number */
static void part_fail(zke_op *op, const call *c) {
  int code = atoi(c->path);
  for (int i = -400; i < 0; i++) {
    const char *name = zke_error_name(i) + strlen("ZKE_");
    if (strcmp(name, "UNKNOWN") && !strcmp(name, c->path)) code = i;
  }
  zke_op_fail(op, code);
}

/* type N: an operation of a type that is not allowed there */
static void part_type(zke_op *op, const call *c) {
  *op = (zke_op){.type = atoi(c->path), .path = "/"};
}

static const struct {
  const char *verb;
  void (*fill)(zke_op *op, const call *c);
} part_verbs[] = {{"create", part_create}, {"delete", part_delete},
                  {"set", part_set},       {"check", part_check},
                  {"get", part_get},       {"children", part_children},
                  {"untold", part_untold}, {"fail", part_fail},
                  {"type", part_type}};

static void part_fill(parts *p, int i) {
  const char *verb = p->calls[i].verb;
  for (size_t k = 0; k < sizeof part_verbs / sizeof *part_verbs; k++) {
    if (strcmp(part_verbs[k].verb, verb)) continue;
    part_verbs[k].fill(&p->ops[i], &p->calls[i]);
    return;
  }
  line_fails("no operation of a multi: %s", verb);
}

static void parts_read(parts *p, const char *text) {
  while (text && text[strspn(text, " ")]) {
    ck_assert_int_lt(p->count, MOST_PARTS);
    text = call_read(&p->calls[p->count], text);
    part_fill(p, p->count++);
  }
  memset(p->results, UNTOUCHED, sizeof p->results);
}

/* How many memory blocks a result has. */
static int owned(const zke_op_result *r) {
  return (r->path != NULL) + (r->data != NULL) + (r->children != NULL);
}

/* A result, with the Stat if the operation gives one. */
static void say_part(turn *t, const zke_op *op, const zke_op_result *r) {
  if (op->type == ZKE_OP_CREATE)
    say_name(t->to, r->path);
  else if (op->type == ZKE_OP_GET)
    say_data(t->to, r->data, r->len);
  else if (r->children)
    say_names(t->to, r->children);
  else
    say(t->to, "ok");
  if (op->type == ZKE_OP_UNTOLD && r->len) say(t->to, " and %d unseen", r->len);
  if (op->type != ZKE_OP_DELETE && op->type != ZKE_OP_CHECK &&
      op->type != ZKE_OP_UNTOLD)
    say_stat(t->to, t->s, &r->stat);
}

/* An answer for each operation; if the call was refused as a whole, only the
 * code, and the results must be unchanged. */
static void say_parts(turn *t, const parts *p, int rc, bool all_or_none) {
  if (is_untouched(p->results, sizeof p->results)) {
    if (rc != ZKE_OK) say(t->to, "refused ");
    say_code(t->to, rc);
    return;
  }
  for (int i = 0; i < p->count; i++) {
    const zke_op_result *r = &p->results[i];
    bool empty = r->rc != ZKE_OK || (all_or_none && rc != ZKE_OK);
    must(owned(r) <= !empty, "a result owns more than it says");
    if (i) say(t->to, "; ");
    if (r->rc == ZKE_RUNTIMEINCONSISTENCY && all_or_none)
      say(t->to, "untried");
    else if (empty)
      say_code(t->to, r->rc);
    else
      say_part(t, &p->ops[i], r);
  }
}

/* The call's own code is the first that is not 0. */
static int first_failure(const parts *p) {
  for (int i = 0; i < p->count; i++)
    if (p->results[i].rc != ZKE_OK) return p->results[i].rc;
  return ZKE_OK;
}

static void do_parts(turn *t, const char *text, bool all_or_none) {
  static parts p;
  memset(&p, 0, sizeof p);
  parts_read(&p, text);
  int rc = (all_or_none ? zke_multi : zke_multi_read)(t->z, p.ops, p.count,
                                                      p.results);
  say_parts(t, &p, rc, all_or_none);
  if (!is_untouched(p.results, sizeof p.results)) {
    if (all_or_none) ck_assert_int_eq(rc, first_failure(&p));
    zke_results_clear(p.results, p.count);
  }
  for (int i = 0; i < p.count; i++) call_free(&p.calls[i]);
}

/* ---- all of them ---- */

static const struct {
  const char *verb;
  void (*run)(turn *t);
} verbs[] = {{"create", do_create},
             {"delete", do_delete},
             {"set", do_set},
             {"exists", do_exists},
             {"get", do_get},
             {"children", do_children},
             {"count", do_count},
             {"usage", do_usage},
             {"ephemerals", do_ephemerals},
             {"sync", do_sync},
             {"raise", do_raise},
             {"getacl", do_getacl},
             {"setacl", do_setacl},
             {"auth", do_auth},
             {"vouch", do_vouch},
             {"clearauth", do_clearauth},
             {"watch", do_watch},
             {"unwatch", do_unwatch},
             {"checkwatch", do_checkwatch},
             {"rewatch", do_rewatch},
             {"forget", do_forget},
             {"events", do_events},
             {"dispatch", do_dispatch},
             {"watcher", do_watcher},
             {"watches", do_watches},
             {"sessions", do_sessions},
             {"open", do_open},
             {"close", do_close},
             {"expire", do_expire},
             {"state", do_state},
             {"zxid", do_zxid}};

static bool run_parts(turn *t, const char *line) {
  static const char *const names[] = {"read", "multi"};
  for (int i = 0; i < 2; i++) {
    size_t length = strlen(names[i]);
    if (strncmp(line, names[i], length)) continue;
    if (line[length] && line[length] != ' ') continue;
    do_parts(t, line + length, i == 1);
    return true;
  }
  return false;
}

bool verb_run(stage *s, session *by, const char *line, answer *to) {
  turn t = {.s = s, .by = by, .z = by->z, .to = to};
  call c;
  bool found = false;
  prepare(&t.o);
  if (run_parts(&t, line)) return true;
  must(call_read(&c, line) == NULL, "a ';' outside of a multi");
  t.c = &c;
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs && !found; i++) {
    found = !strcmp(verbs[i].verb, c.verb);
    if (found) verbs[i].run(&t);
  }
  call_free(&c);
  return found;
}
