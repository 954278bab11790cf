/* stage.c - a fresh tree and its sessions for each block: see semantics.h */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/model/model.h"
#include "test/semantics/semantics.h"

session *stage_session(stage *s, const char *name) {
  for (int i = 0; i < s->count; i++)
    if (!strcmp(s->sessions[i].name, name)) return &s->sessions[i];
  return NULL;
}

const char *stage_name(const stage *s, int64_t id) {
  for (int i = 0; i < s->count; i++)
    if (s->sessions[i].id == id) return s->sessions[i].name;
  return "unknown";
}

session *stage_living(stage *s) {
  for (int i = 0; i < s->count; i++) {
    session *one = &s->sessions[i];
    if (one->z && zke_state(one->z) == ZKE_STATE_CONNECTED) return one;
  }
  return NULL;
}

int64_t stage_zxid(stage *s, zke *z) {
  if (s->on == MODEL) return model_zxid(model_of(z));
  zke_zxid(); /* from the first call on the thread gets zxids */
  zke_exists(z, "/", NULL, NULL, NULL);
  return zke_zxid();
}

/* ---- opening ---- */

static int64_t number_of(const call *c, const char *key) {
  const char *text = call_option(c, key);
  return text ? strtoll(text, NULL, 10) : 0;
}

/* Time stands still unless a block lets it pass; a server has its own clock. */
static zke_options options_of(stage *s, const call *c, const zke_os *os) {
  zke_options o = ZKE_INIT(zke_options);
  o.data_limit = (int)number_of(c, "data_limit");
  o.event_limit = (int)number_of(c, "event_limit");
  o.container_ms = number_of(c, "container_ms");
  o.read_limit = number_of(c, "read_limit");
  o.chroot = call_option(c, "chroot");
  if (s->on != SERVER) o.os = os;
  o.allocator = (zke_allocator){test_heap_resize, &s->heap};
  return o;
}

/* The first session opens the tree, in batches a file; on A_FILE each session
 * opens the file itself. */
static int open_handle(stage *s, const zke_options *o, zke **z_out) {
  session *other = stage_living(s);
  if (s->on == A_FILE) return zke_open(test_path("file.db"), o, z_out);
  if (other) return zke_open_session(other->z, o, z_out);
  if (s->on == BATCH) return zke_open(test_path("batch.db"), o, z_out);
  return zke_open(s->on == MODEL ? "model:" : ":memory:", o, z_out);
}

/* The place of a session with this name: an earlier one's, or a new one. */
static session *place_of(stage *s, const char *name) {
  session *at = stage_session(s, name);
  if (!at) {
    must(s->count < MOST_SESSIONS, "too many sessions");
    at = &s->sessions[s->count++];
    snprintf(at->name, sizeof at->name, "%s", name);
  }
  must(!at->z, "%s is open", name);
  return at;
}

int stage_open(stage *s, const call *c) {
  static zke_os os; /* its clock starts at the first opening */
  if (!os.clock) os = test_driven_os();
  zke_options o = options_of(s, c, &os);
  session *at = place_of(s, c->path);
  const char *watcher = call_option(c, "watcher");
  bool first = s->count == 1 && !at->id;
  if (watcher) {
    o.watcher = hear;
    o.watcher_context = label_of(at, watcher);
  }
  int rc = open_handle(s, &o, &at->z);
  if (rc != ZKE_OK) return rc;
  if (s->on == ALONE && !strcmp(at->name, "w")) {
    at->spare = at->z; /* so zxids are the same as on other subjects */
    at->z = s->sessions[0].z;
  }
  at->id = zke_session_id(at->z);
  if (first) {
    s->first_zxid = stage_zxid(s, at->z);
    s->first_ms = test_clock_ns[ZKE_CLOCK_REALTIME] / 1000000;
  }
  return ZKE_OK;
}

/* ---- time, and the end ---- */

void stage_pass(stage *s, int64_t ms) {
  session *one = stage_living(s);
  test_pass_ns(NULL, ms * 1000000);
  must(one != NULL, "nobody is there to look what is due");
  if (s->on == MODEL)
    model_sweep(model_of(one->z));
  else
    ck_ok(zke_dispatch(one->z, NULL));
}

int stage_close(stage *s, const char *name) {
  session *one = stage_session(s, name);
  must(one && one->z, "no session %s is open", name);
  zke *own = one->spare ? one->spare : one->z;
  one->z = one->spare = NULL;
  return zke_close(own);
}

void stage_end(stage *s) {
  session *one = stage_living(s);
  model *m = s->on == MODEL && one ? model_of(one->z) : NULL;
  if (one && s->on != MODEL) ck_ok(zke_check(one->z, NULL, NULL));
  for (int i = s->count - 1; i >= 0; i--)
    if (s->sessions[i].z) ck_ok(stage_close(s, s->sessions[i].name));
  if (m) model_end(m);
  if (s->on != MODEL && s->on != SERVER) ck_assert_int_gt(s->heap.calls, 0);
  ck_assert_int_eq(s->heap.live, 0);
}
