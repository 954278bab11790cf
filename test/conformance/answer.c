/* answer.c - compare the frames of both sides, byte by byte
 *
 * Each frame of zkembed is parsed into records.  Values that cannot be equal
 * (zxids, times, session ids, the order in hash tables) are replaced by
 * ZooKeeper's if they correspond (map.c); then the records must be written as
 * ZooKeeper's frame.  Before the replacement each frame must equal what its own
 * records write.
 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

/* ---- frames as records ---- */

typedef struct part {
  const zke_jute_record *record;
  cf_body is;
} part;

/* A parsed reply; the reader holds its vectors. */
typedef struct reply {
  zke_jute_reader in;
  zke_jute_reply_header head;
  part *parts;
  int count, cap;
  bool refused; /* a multi, because of one of its operations */
} reply;

static part *read_part(reply *r, const zke_jute_record *record) {
  if (r->count == r->cap) return NULL;
  part *p = &r->parts[r->count];
  p->record = record;
  if (!zke_jute_read(&r->in, record, &p->is)) return NULL;
  r->count++;
  return p;
}

const zke_jute_record *cf_record_of(int type) {
  switch (type) {
    case ZKE_JUTE_CREATE:
    case ZKE_JUTE_SYNC:
      return &zke_jute_of_path_response;
    case ZKE_JUTE_CREATE2:
    case ZKE_JUTE_CREATE_CONTAINER:
    case ZKE_JUTE_CREATE_TTL:
      return &zke_jute_of_create2_response;
    case ZKE_JUTE_EXISTS:
    case ZKE_JUTE_SET_DATA:
    case ZKE_JUTE_SET_ACL:
      return &zke_jute_of_stat_response;
    case ZKE_JUTE_GET_DATA:
      return &zke_jute_of_get_data_response;
    case ZKE_JUTE_GET_CHILDREN:
    case ZKE_JUTE_GET_EPHEMERALS:
      return &zke_jute_of_children_response;
    case ZKE_JUTE_GET_CHILDREN2:
      return &zke_jute_of_children2_response;
    case ZKE_JUTE_GET_ACL:
      return &zke_jute_of_acl_response;
    case ZKE_JUTE_COUNT:
      return &zke_jute_of_count_response;
    case ZKE_JUTE_ADD_WATCH:
    case ZKE_JUTE_ERROR:
      return &zke_jute_of_error_response;
    case ZKE_JUTE_WHO_AM_I:
      return &zke_jute_of_who_am_i_response;
    default:
      return NULL;
  }
}

/* The results of a multi of either kind. */
static bool read_results(reply *r) {
  for (;;) {
    const part *head = read_part(r, &zke_jute_of_multi_header);
    if (!head || head->is.multi.done) return head != NULL;
    r->refused |= head->is.multi.type == ZKE_JUTE_ERROR;
    const zke_jute_record *record = cf_record_of(head->is.multi.type);
    if (record && !read_part(r, record)) return false;
  }
}

/* true: the frame consists of its records, with nothing after them. */
static bool read_reply(reply *r, const cf_frame *frame, int type) {
  char *copy = cf_copy(frame->at, frame->len); /* the reader changes it */
  *r = (reply){.in = {.at = copy, .end = copy + frame->len}};
  r->cap = (int)(frame->len / 4) + 1;
  r->parts = cf_alloc((size_t)r->cap * sizeof *r->parts);
  if (!zke_jute_read(&r->in, &zke_jute_of_reply_header, &r->head)) return false;
  bool several = type == ZKE_JUTE_MULTI || type == ZKE_JUTE_MULTI_READ;
  const zke_jute_record *record = cf_record_of(type);
  if (r->head.err != 0) record = NULL;
  if (several && r->head.err == 0 && !read_results(r)) return false;
  if (record && !read_part(r, record)) return false;
  return r->in.at == r->in.end;
}

/* The records as a frame; the writer must be freed. */
static zke_jute_writer written(const reply *r) {
  zke_jute_writer w = {0};
  zke_jute_write(&w, &zke_jute_of_reply_header, &r->head);
  for (int i = 0; i < r->count; i++)
    zke_jute_write(&w, r->parts[i].record, &r->parts[i].is);
  return w;
}

/* Does the frame have these bytes? */
static bool writes(const reply *r, const cf_frame *frame) {
  zke_jute_writer w = written(r);
  bool same = w.len == frame->len && memcmp(w.data, frame->at, w.len) == 0;
  zke_jute_writer_free(&w);
  return same;
}

/* ---- making both alike ---- */

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sort both, since they are sets. */
static void sort_names(zke_strings *a, zke_strings *b) {
  cf_mask_used[CF_MASK_NAMES]++;
  if (a->count > 0) qsort(a->data, (size_t)a->count, sizeof *a->data, by_text);
  if (b->count > 0) qsort(b->data, (size_t)b->count, sizeof *b->data, by_text);
}

static int by_id(const void *a, const void *b) {
  const zke_acl *x = a, *y = b;
  int order = strcmp(x->scheme, y->scheme);
  return order ? order : strcmp(x->id, y->id);
}

static void sort_ids(zke_acls *list) {
  zke_acl *copy = cf_alloc((size_t)(list->count + 1) * sizeof *copy);
  for (int i = 0; i < list->count; i++) copy[i] = list->data[i];
  if (list->count > 0) qsort(copy, (size_t)list->count, sizeof *copy, by_id);
  list->data = copy;
}

static void sort_acls(zke_acls *list) {
  if (list->count > 0) list->data = cf_sorted_acls(list);
}

/* Replace zkembed's Stat by ZooKeeper's if both are of the same changes. */
static const char *match_stat(cf_compare *c, const zke_stat *a, zke_stat *b) {
  const char *why = cf_compare_stat(c, a, b);
  if (!why) *b = *a;
  return why;
}

static const char *match_part(cf_compare *c, part *a, part *b) {
  if (a->record != b->record) return "record: is another one";
  if (a->record == &zke_jute_of_create2_response)
    return match_stat(c, &a->is.create2.stat, &b->is.create2.stat);
  if (a->record == &zke_jute_of_stat_response)
    return match_stat(c, &a->is.stat.stat, &b->is.stat.stat);
  if (a->record == &zke_jute_of_get_data_response)
    return match_stat(c, &a->is.data.stat, &b->is.data.stat);
  if (a->record == &zke_jute_of_children_response)
    sort_names(&a->is.children.children, &b->is.children.children);
  if (a->record == &zke_jute_of_children2_response) {
    sort_names(&a->is.children2.children, &b->is.children2.children);
    return match_stat(c, &a->is.children2.stat, &b->is.children2.stat);
  }
  if (a->record == &zke_jute_of_acl_response) {
    sort_acls(&a->is.acl.acl);
    sort_acls(&b->is.acl.acl);
    return match_stat(c, &a->is.acl.stat, &b->is.acl.stat);
  }
  if (a->record == &zke_jute_of_who_am_i_response) {
    sort_ids(&a->is.ids.ids);
    sort_ids(&b->is.ids.ids);
  }
  return NULL;
}

/* ---- a reply ---- */

/* Is the answer's zxid that of its own change? */
static bool made_change(const cf_op *op, const reply *r) {
  if (r->head.err != 0 || r->refused) return false;
  for (int i = 0; op->kind == CF_MULTI && i < op->count; i++)
    if (op->subs[i].kind != CF_CHECK) return true;
  return op->kind == CF_CREATE || op->kind == CF_DELETE || op->kind == CF_SET ||
         op->kind == CF_SET_ACL;
}

/* If both refuse a create or delete, zkembed for the path and ZooKeeper for
 * what it checks before, replace zkembed's code by ZooKeeper's. */
static void match_bad_path(const cf_op *op, bool damaged, int a, int32_t *b) {
  bool late = op->kind == CF_CREATE || op->kind == CF_DELETE;
  if (a == *b || a == ZKE_OK || *b != ZKE_BADARGUMENTS) return;
  if (!damaged && (!late || cf_client_passes(op))) return;
  cf_mask_used[CF_MASK_BAD_PATH]++;
  *b = a;
}

/* Replace zkembed's header by ZooKeeper's if both may report the same state. */
static const char *match_head(cf_compare *c, const cf_op *op, const reply *a,
                              reply *b) {
  int64_t x = a->head.zxid, y = b->head.zxid;
  if (a->head.xid != b->head.xid)
    return cf_text("xid: ZooKeeper %d, zkembed %d", a->head.xid, b->head.xid);
  match_bad_path(op, op->kind == CF_MALFORMED, a->head.err, &b->head.err);
  if (a->head.err != b->head.err)
    return cf_text("err: ZooKeeper %d, zkembed %d", a->head.err, b->head.err);
  bool same = made_change(op, a) ? cf_same_change(c, x, y) != NULL
                                 : x == y || cf_same_moment(c, x, y);
  if (!same)
    return cf_text("zxid: ZooKeeper %lld, zkembed %lld", (long long)x,
                   (long long)y);
  b->head.zxid = x;
  return NULL;
}

static void note(const cf_op *op, const reply *r) {
  int at = 0;
  cf_note_code(op, r->head.err);
  for (int i = 0; op->kind == CF_MULTI && i < r->count; i++) {
    const part *p = &r->parts[i];
    if (p->record != &zke_jute_of_multi_header || p->is.multi.done) continue;
    if (at < op->count) cf_note_code(&op->subs[at++], p->is.multi.err);
  }
}

/* The message about two different frames. */
static const char *differ(const char *why, const cf_frame *a,
                          const cf_frame *b) {
  return cf_text("%s\n    ZooKeeper %s\n    zkembed   %s", why,
                 cf_quote(a->at, (int)a->len), cf_quote(b->at, (int)b->len));
}

/* Match the codes of a multi's operations, each of which occurs twice. */
static void match_results(const cf_op *op, bool damaged, const reply *a,
                          reply *b) {
  int at = 0;
  for (int i = 0; i + 1 < a->count && at < op->count; i++) {
    part *x = &a->parts[i], *y = &b->parts[i];
    if (x->record != &zke_jute_of_multi_header) continue;
    if (x->is.multi.type == ZKE_JUTE_ERROR && y->record == x->record &&
        y[1].record == &zke_jute_of_error_response) {
      match_bad_path(&op->subs[at], damaged, x->is.multi.err, &y->is.multi.err);
      match_bad_path(&op->subs[at], damaged, x->is.multi.err,
                     &y[1].is.error.err);
    }
    at++;
  }
}

static const char *match_replies(cf_compare *c, const cf_op *op, reply *a,
                                 reply *b) {
  const char *why = match_head(c, op, a, b);
  if (!why && a->count != b->count) why = "records: not as many";
  const cf_op *real = op->kind == CF_MALFORMED ? op->subs : op;
  if (!why && real->kind == CF_MULTI) match_results(real, real != op, a, b);
  for (int i = 0; !why && i < a->count; i++) {
    why = match_part(c, &a->parts[i], &b->parts[i]);
    if (why && a->count > 1) why = cf_text("part-%s (record %d)", why, i);
  }
  return why;
}

/* Write both sides' records again, with sorted lists and replaced values, and
 * compare; NULL: equal. */
static const char *compare_written(const reply *a, const reply *b) {
  zke_jute_writer x = written(a), y = written(b);
  const char *why = NULL;
  size_t at = 0;
  while (at < x.len && at < y.len && x.data[at] == y.data[at]) at++;
  if (at < x.len || at < y.len)
    why = cf_text("bytes: differ from byte %zu on: %s, not %s", at,
                  cf_quote(y.data + at, (int)(y.len - at)),
                  cf_quote(x.data + at, (int)(x.len - at)));
  zke_jute_writer_free(&x);
  zke_jute_writer_free(&y);
  return why;
}

/* checkWatches of 3.8.0 also finds the watches of other connections, and both
 * it and removeWatches have a special code for an invalid path. */
static bool is_other_watch(const cf_op *op, const reply *a, const reply *b) {
  const cf_op *real = op->kind == CF_MALFORMED ? op->subs : op;
  bool bad = !cf_client_passes(real), check = real->kind == CF_CHECK_WATCH;
  if (!check && real->kind != CF_REMOVE_WATCH) return false;
  if (a->head.err == b->head.err || b->head.err != ZKE_NOWATCHER) return false;
  if (!bad && !(check && a->head.err == ZKE_OK)) return false;
  cf_mask_used[bad ? CF_MASK_BAD_PATH : CF_MASK_OTHER_WATCH]++;
  return true;
}

/* ZooKeeper's answer without the results that it sends after the error if a
 * multiRead has an operation of another type. */
static cf_frame without_rest(const cf_op *op, const cf_frame *x) {
  enum { HEADER = 16, ERR = 12 };
  cf_frame cut = *x;
  bool damaged = op->kind == CF_MALFORMED && op->subs->kind == CF_MULTI_READ;
  if (!damaged || x->len <= HEADER) return cut;
  if (zke_jute_length(x->at + ERR) != ZKE_MARSHALLINGERROR) return cut;
  cf_mask_used[CF_MASK_BEHIND_ERROR]++;
  cut.len = HEADER;
  return cut;
}

/* Compare one answer; also note its zxids. */
static const char *compare_reply(cf_compare *c, cf_pair *p, const cf_op *op,
                                 const cf_frame *came, const cf_frame *y) {
  reply a, b;
  cf_frame cut = without_rest(op, came), *x = &cut;
  const char *why = NULL;
  int type = cf_wire_type(op);
  bool whole = read_reply(&a, x, type);
  whole &= read_reply(&b, y, type);
  bool other = whole && is_other_watch(op, &a, &b);
  if (!whole)
    why = "record: is not what belongs to the request";
  else if (!writes(&a, x) || !writes(&b, y))
    why = "bytes: are not what the record writes";
  else if (!other)
    why = match_replies(c, op, &a, &b);
  if (whole && !why && !other) why = compare_written(&a, &b);
  if (whole) note(op, &a);
  p->end[CF_ZOOKEEPER].zxid = a.head.zxid;
  zke_jute_reader head = {.at = y->at, .end = y->at + y->len};
  zke_jute_reply_header told = {0};
  zke_jute_read(&head, &zke_jute_of_reply_header, &told);
  p->end[CF_ZKEMBED].zxid = told.zxid;
  zke_jute_reader_free(&a.in);
  zke_jute_reader_free(&b.in);
  return why ? differ(why, x, y) : NULL;
}

/* ---- all frames ---- */

static int by_bytes(const void *a, const void *b) {
  const cf_frame *x = a, *y = b;
  int order = memcmp(x->at, y->at, x->len < y->len ? x->len : y->len);
  return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* A copy with the events between two answers sorted, or left out. */
static cf_answers arranged(const cf_answers *from, unsigned how) {
  cf_answers a = *from;
  a.count = 0;
  a.frames = cf_alloc((size_t)(from->count + 1) * sizeof *a.frames);
  for (int i = 0; i < from->count; i++) {
    bool dropped = how & CF_OWN_END && cf_is_event(&from->frames[i]);
    cf_mask_used[CF_MASK_OWN_END] += dropped;
    if (!dropped) a.frames[a.count++] = from->frames[i];
  }
  for (int i = 0, end; i < a.count && how & CF_UNORDERED; i = end + 1) {
    for (end = i; end < a.count && cf_is_event(&a.frames[end]);) end++;
    cf_mask_used[CF_MASK_END_ORDER] += end > i + 1;
    qsort(a.frames + i, (size_t)(end - i), sizeof *a.frames, by_bytes);
  }
  return a;
}

/* Events must be equal in all fields. */
static const char *compare_event(const cf_frame *x, const cf_frame *y) {
  zke_jute_reply_header head;
  zke_jute_watcher_event event = {0};
  char *copy = cf_copy(x->at, x->len);
  zke_jute_reader in = {.at = copy, .end = copy + x->len};
  if (zke_jute_read(&in, &zke_jute_of_reply_header, &head) &&
      zke_jute_read(&in, &zke_jute_of_watcher_event, &event))
    cf_note_event(event.type);
  cf_events_compared++;
  return by_bytes(x, y) == 0 ? NULL : differ("events: differ", x, y);
}

/* The events and the first bytes of the answers, for a report. */
static const char *describe(const cf_answers *a) {
  const char *text = "";
  if (a->outcome == PEER_CLOSED) text = "(closed behind)";
  if (a->outcome == PEER_SILENT) text = "(silent behind)";
  for (int i = a->count; i-- > 0;)
    text = cf_text("%s %s", cf_quote(a->frames[i].at, (int)a->frames[i].len),
                   text);
  return text;
}

static const char *all_differ(const char *why, const cf_answers *a,
                              const cf_answers *b) {
  return cf_text("%s\n    ZooKeeper %s\n    zkembed   %s", why, describe(a),
                 describe(b));
}

const char *cf_compare_answers(cf_compare *c, cf_pair *p, const cf_op *ops,
                               int count, unsigned how,
                               const cf_answers both[CF_SIDES], int *bad) {
  cf_answers a = arranged(&both[CF_ZOOKEEPER], how),
             b = arranged(&both[CF_ZKEMBED], how);
  int at = 0;
  *bad = 0;
  for (int i = 0; i < a.count && i < b.count; i++) {
    bool event = cf_is_event(&a.frames[i]);
    while (!event && at < count && !cf_is_answered(&ops[at])) at++;
    if (event != cf_is_event(&b.frames[i]))
      return all_differ("events: not at the same place", &a, &b);
    if (!event && at == count) return all_differ("answers: too many", &a, &b);
    const char *why =
        event ? compare_event(&a.frames[i], &b.frames[i])
              : compare_reply(c, p, &ops[at], &a.frames[i], &b.frames[i]);
    if (why) {
      *bad = at < count ? at : 0;
      return why;
    }
    if (!event) at++;
    cf_replies_compared += !event;
  }
  if (a.count != b.count) return all_differ("answers: not as many", &a, &b);
  return a.outcome == b.outcome ? NULL : all_differ("end: differs", &a, &b);
}

bool cf_was_refused_auth(const cf_answers *a) {
  if (a->count == 0) return false;
  const cf_frame *last = &a->frames[a->count - 1];
  return last->len >= 16 && zke_jute_length(last->at) == ZKE_JUTE_XID_AUTH &&
         zke_jute_length(last->at + 12) != 0;
}

/* ---- the first frame ---- */

/* Timeout and form are equal; a session's id corresponds. */
static const char *compare_greeting(cf_compare *c, cf_pair *p, cf_frame *x,
                                    cf_frame *y) {
  cf_frame *frames[CF_SIDES] = {x, y};
  zke_jute_connect_response got[CF_SIDES];
  for (int i = 0; i < CF_SIDES; i++) {
    char *copy = cf_copy(frames[i]->at, frames[i]->len);
    zke_jute_reader in = {.at = copy, .end = copy + frames[i]->len};
    if (!zke_jute_read(&in, &zke_jute_of_connect_response, &got[i]) ||
        got[i].passwd.len != sizeof p->end[i].password)
      return differ("greeting: malformed", x, y);
  }
  int64_t a = got[CF_ZOOKEEPER].session_id, b = got[CF_ZKEMBED].session_id;
  if (x->len != y->len || got[0].time_out != got[1].time_out ||
      got[0].protocol_version != got[1].protocol_version || !a != !b)
    return differ("greeting: differs", x, y);
  if (!a) return by_bytes(x, y) == 0 ? NULL : differ("greeting: no", x, y);
  if (!p->end[0].id) cf_compare_session(c, a, b);
  if (!cf_same_owner(c, a, b)) return differ("greeting: another session", x, y);
  for (int i = 0; i < CF_SIDES; i++) {
    p->end[i].id = got[i].session_id;
    memcpy(p->end[i].password, got[i].passwd.data, sizeof p->end[i].password);
  }
  return NULL;
}

const char *cf_compare_greetings(cf_compare *c, cf_pair *p,
                                 const cf_answers both[CF_SIDES]) {
  const cf_answers *a = &both[CF_ZOOKEEPER], *b = &both[CF_ZKEMBED];
  if (a->count != b->count || a->outcome != b->outcome)
    return all_differ("greeting: not answered alike", a, b);
  return a->count ? compare_greeting(c, p, &a->frames[0], &b->frames[0]) : NULL;
}
