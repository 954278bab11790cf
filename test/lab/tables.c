/* tables.c - the engine's statements on plain tables, instead of SQLite
 *
 * A schedule is about twenty calls, and SQLite took most of its time: to run
 * their statements, and to have all its memory copied whenever a world is
 * restored.  Here a table is an array of rows, sorted by key, and a statement
 * is a function.  The engine above is unchanged, and every finding is replayed
 * on SQLite before it is reported.
 *
 * A row is never changed but replaced, so that rolling back a transaction puts
 * the old one back (journal).  Tables are small, so a search that is not by key
 * goes through all rows.
 *
 * Each row of `statements` was written for one text of SQL, and has its hash;
 * if zkembed.c has another text, nothing runs.
 *
 * Start reading at `statements`, then tables_step(). */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"

enum {
  COLUMNS_MOST = 19,
  PARAMETERS_MOST = 12,
  COMPUTED_MOST = 6,
  TERMS_MOST = 5,
  LIMIT_NAMES = 128, /* of the statements with a limit */
  LIMIT_EVENTS = 64
};

/* The value of a column or a parameter. */
typedef struct value {
  int type; /* SQLITE_INTEGER, _TEXT, _BLOB, _NULL */
  int size;
  int64_t number;
  const char *at;
  uint64_t hash; /* of text or blob, in a row */
} value;

/* A value for each column of the table; then their bytes. */
typedef struct row {
  int table;
  value v[];
} row;

struct table {
  row **rows;
  int count, cap;
};

enum { META, NODE, BLOB, SESSION, WATCH, EVENT, TABLES };

enum { META_ONE, META_ZXID, META_RECURSIVE, META_LOST, META_BOOT };
enum {
  NODE_PARENT,
  NODE_NAME,
  NODE_CZXID,
  NODE_MZXID,
  NODE_PZXID,
  NODE_CTIME,
  NODE_MTIME,
  NODE_VERSION,
  NODE_AVERSION,
  NODE_CREATES,
  NODE_NCHILD,
  NODE_OWNER,
  NODE_KIND,
  NODE_TTL,
  NODE_DUE,
  NODE_ACL,
  NODE_LEN,
  NODE_BLOB,
  NODE_DATA
};
enum { BLOB_ID, BLOB_DATA };
enum {
  SESSION_ID,
  SESSION_IDENTITY,
  SESSION_PID,
  SESSION_STARTED,
  SESSION_LEASE,
  SESSION_SLOT,
  SESSION_LIFE,
  SESSION_CARRIER,
  SESSION_LIMIT,
  SESSION_SEEN,
  SESSION_TIMEOUT,
  SESSION_HEARD,
  SESSION_PASSWORD
};
enum { WATCH_PATH, WATCH_KIND, WATCH_SESSION };
enum {
  EVENT_SESSION,
  EVENT_SEQ,
  EVENT_TYPE,
  EVENT_PATH,
  EVENT_ZXID,
  EVENT_ACL,
  EVENT_CARRIER
};

/* Instead of a column of a session's row: its number of these. */
enum { COUNT_OWNED = 64, COUNT_WATCHES, COUNT_EVENTS };

/* The tables of doc/format.md, beginning with the columns of the key. */
static const struct {
  const char *name, *columns;
  int count, keys;
} shapes[TABLES] = {
    [META] = {"zkembed_meta",
              "one,zxid,recursive,lost,boot,db_device,db_inode,live_device,"
              "live_inode,gate_device,gate_inode,format,history_rows,"
              "history_ms",
              14, 1},
    [NODE] = {"zkembed_node",
              "parent,name,czxid,mzxid,pzxid,ctime,mtime,version,aversion,"
              "creates,nchild,owner,kind,ttl,due,acl,len,blob,data",
              19, 2},
    [BLOB] = {"zkembed_blob", "id,data", 2, 1},
    [SESSION] = {"zkembed_session",
                 "id,identity,pid,started,lease,slot,life,carrier,event_limit,"
                 "seen,timeout,heard,password",
                 13, 1},
    [WATCH] = {"zkembed_watch", "path,kind,session", 3, 3},
    [EVENT] = {"zkembed_event", "session,seq,type,path,zxid,acl,carrier", 7,
               2}};

/* A change by a statement of a transaction: `was` was replaced by `is`; NULL:
 * there was none, or is none. */
typedef struct change {
  row *was, *is;
} change;

/* A prepared statement.  It returns rows of one table, with some of the
 * columns; or one row of computed numbers. */
typedef struct statement {
  const struct known *is;
  value p[PARAMETERS_MOST + 1]; /* ?1 is p[1] */
  bool begun, computes;
  row **found;
  int found_count, found_cap, at;
  value computed[COMPUTED_MOST];
} statement;

/* A comparison in a WHERE: the allowed results of comparing a column with a
 * parameter or a number.  kind<=?2 is {WATCH_KIND, LESS | SAME, 2}, and kind<2
 * is {WATCH_KIND, LESS, NUMBER + 2}. */
enum { LESS = 1, SAME = 2, MORE = 4, NUMBER = 100 };
typedef struct term {
  unsigned char column, order, to;
} term;

/* The properties of a statement. */
typedef struct known {
  const char *name;
  uint32_t hash;
  int parameters;
  void (*run)(statement *s);
  int table; /* it returns or changes rows of this table, with these columns */
  unsigned char columns[COLUMNS_MOST];
  term where[TERMS_MOST + 1]; /* its rows satisfy all of them, and `also` */
  bool (*also)(const row *r, const value *p);
  int limit; /* of the rows; 0: none */
} known;

static struct tables {
  sqlite3 *db;
  struct table t[TABLES];
  change *journal;
  int journal_count, journal_cap;
  int journal_mark; /* the start of the batch's current operation */
  bool inside;      /* in a transaction */
  bool failed;      /* there was no memory */
  int changes;
  int64_t blob;
} * T;

/* ---- memory ---- */

/* Make room for one more in an array of the world. */
static bool array_grow(void **at, int count, int *cap, size_t size) {
  if (count < *cap) return true;
  int more = *cap ? 2 * *cap : 16;
  void *array = arena_get(ARENA_TABLES, size * (size_t)more);
  if (!array) {
    T->failed = true;
    return false;
  }
  if (*at) {
    memcpy(array, *at, size * (size_t)count);
    arena_put(*at);
  }
  *at = array;
  *cap = more;
  return true;
}

/* ---- values and rows ---- */

static value of_int(int64_t number) {
  return (value){.type = SQLITE_INTEGER, .number = number};
}

static int64_t int_of(const row *r, int column) { return r->v[column].number; }

static bool has_bytes(const value *v) {
  return v->type == SQLITE_TEXT || v->type == SQLITE_BLOB;
}

static uint64_t hash_of(const char *at, int size) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (int i = 0; i < size; i++)
    h = (h ^ (unsigned char)at[i]) * UINT64_C(0x100000001b3);
  return h;
}

/* A row with these values, and copies of their bytes. */
static row *row_make(int table, const value *values) {
  int count = shapes[table].count;
  size_t head = sizeof(row) + sizeof(value) * (size_t)count, size = head;
  for (int i = 0; i < count; i++)
    size += has_bytes(&values[i]) ? (size_t)values[i].size + 1 : 0;
  row *r = arena_get(ARENA_TABLES, size);
  if (!r) {
    T->failed = true;
    return NULL;
  }
  r->table = table;
  char *bytes = (char *)r + head;
  for (int i = 0; i < count; i++) {
    r->v[i] = values[i];
    if (!has_bytes(&values[i])) continue;
    memcpy(bytes, values[i].at, (size_t)values[i].size);
    r->v[i].at = bytes;
    r->v[i].hash = hash_of(bytes, values[i].size);
    bytes += values[i].size + 1; /* it already ends with a zero */
  }
  return r;
}

static int compare_bytes(const value *a, const value *b) {
  int shorter = a->size < b->size ? a->size : b->size;
  int order = memcmp(a->at, b->at, (size_t)shorter);
  return order ? order : a->size - b->size;
}

/* Each of the key's columns has one type, so compared values are of the same
 * type. */
static int compare(const value *a, const value *b) {
  if (has_bytes(a)) return compare_bytes(a, b);
  return (a->number > b->number) - (a->number < b->number);
}

static int compare_key(const row *r, const value *key, int count) {
  int order = 0;
  for (int i = 0; i < count && order == 0; i++)
    order = compare(&r->v[i], &key[i]);
  return order;
}

/* The place of the first row that is not before the key. */
static int place_of(int table, const value *key) {
  int low = 0, high = T->t[table].count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (compare_key(T->t[table].rows[middle], key, shapes[table].keys) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static row *find(int table, const value *key) {
  int at = place_of(table, key);
  if (at == T->t[table].count) return NULL;
  row *r = T->t[table].rows[at];
  return compare_key(r, key, shapes[table].keys) == 0 ? r : NULL;
}

/* ---- changes, and undoing them ---- */

/* Replace `from` with `to`, without recording it; NULL as in struct change. */
static bool put(row *from, row *to) {
  const row *key = from ? from : to;
  if (!key) return true;
  struct table *t = &T->t[key->table];
  int at = place_of(key->table, key->v);
  if (from && to) {
    t->rows[at] = to;
  } else if (from) {
    t->count--;
    memmove(&t->rows[at], &t->rows[at + 1],
            sizeof(row *) * (size_t)(t->count - at));
  } else {
    void *rows = t->rows;
    if (!array_grow(&rows, t->count, &t->cap, sizeof(row *))) return false;
    t->rows = rows;
    memmove(&t->rows[at + 1], &t->rows[at],
            sizeof(row *) * (size_t)(t->count - at));
    t->rows[at] = to;
    t->count++;
  }
  return true;
}

/* Keep the transaction's changes from one on, or undo them in reverse order. */
static void end_from(int from, bool undo) {
  for (int i = T->journal_count - 1; i >= from; i--) {
    change *c = &T->journal[i];
    if (undo) put(c->is, c->was);
    row *gone = undo ? c->is : c->was;
    if (gone) arena_put(gone);
  }
  T->journal_count = from;
}

static void end(bool undo) {
  end_from(0, undo);
  T->inside = false;
}

static void replace(row *from, row *to) {
  void *journal = T->journal;
  if (!array_grow(&journal, T->journal_count, &T->journal_cap, sizeof(change)))
    return;
  T->journal = journal;
  if (!put(from, to)) return;
  T->journal[T->journal_count++] = (change){from, to};
  T->changes++;
}

static void insert(int table, const value *values) {
  row *r = row_make(table, values);
  if (r) replace(NULL, r);
}

/* Sets columns one by one in a copy of a row. */
typedef struct edit {
  row *from;
  value v[COLUMNS_MOST];
} edit;

static edit edit_begin(row *from) {
  edit e = {.from = from};
  memcpy(e.v, from->v, sizeof(value) * (size_t)shapes[from->table].count);
  return e;
}

static void edit_end(edit *e) {
  row *r = row_make(e->from->table, e->v);
  if (r) replace(e->from, r);
}

/* ---- looking for rows ---- */

static void give(statement *s, row *r) {
  void *found = s->found;
  if (!array_grow(&found, s->found_count, &s->found_cap, sizeof(row *))) return;
  s->found = found;
  s->found[s->found_count++] = r;
}

/* Compare a column with the term's parameter or number, like memcmp(); 1 if an
 * equality has different lengths. */
static int compare_term(const statement *s, const row *r, const term *t) {
  const value *is = &r->v[t->column];
  if (has_bytes(is)) {
    bool same = is->size == s->p[t->to].size;
    return t->order == SAME && !same ? 1 : compare_bytes(is, &s->p[t->to]);
  }
  int64_t to = t->to < NUMBER ? s->p[t->to].number : t->to - NUMBER;
  return (is->number > to) - (is->number < to);
}

/* Does a row satisfy the statement's condition? */
static bool meets(const statement *s, const row *r) {
  for (const term *t = s->is->where; t->order; t++) {
    int order = compare_term(s, r, t);
    int is = order < 0 ? LESS : MORE;
    if (order == 0) is = SAME;
    if (!(t->order & is)) return false;
  }
  return !s->is->also || s->is->also(r, s->p);
}

static int count_all(const statement *s) {
  const struct table *t = &T->t[s->is->table];
  int count = 0;
  for (int i = 0; i < t->count; i++) count += meets(s, t->rows[i]);
  return count;
}

static void compute(statement *s, int column, int64_t number) {
  s->computes = true;
  s->computed[column] = of_int(number);
}

/* ---- common kinds of statements ---- */

/* The row with the key in the first parameters. */
static void run_find(statement *s) {
  row *r = find(s->is->table, &s->p[1]);
  if (r) give(s, r);
}

static void run_take(statement *s) {
  row *r = find(s->is->table, &s->p[1]);
  if (r) replace(r, NULL);
}

static void run_insert(statement *s) { insert(s->is->table, &s->p[1]); }

/* All rows that satisfy the condition. */
static void run_give(statement *s) {
  const struct table *t = &T->t[s->is->table];
  int limit = s->is->limit ? s->is->limit : INT32_MAX;
  for (int i = 0; i < t->count && s->found_count < limit; i++) {
    if (meets(s, t->rows[i])) give(s, t->rows[i]);
  }
}

static void run_remove(statement *s) {
  struct table *t = &T->t[s->is->table];
  for (int i = 0; i < t->count;) {
    int count = t->count;
    if (meets(s, t->rows[i])) replace(t->rows[i], NULL);
    i += t->count == count; /* the next one is here now */
  }
}

static void run_count(statement *s) { compute(s, 0, count_all(s)); }
static void run_any(statement *s) { compute(s, 0, count_all(s) > 0); }

/* Begin to change a row: the first parameters are the values of the statement's
 * columns, followed by the key; false: there is no such row. */
static bool assign(statement *s, edit *out) {
  int table = s->is->table;
  int count = s->is->parameters - shapes[table].keys;
  row *r = find(table, &s->p[1 + count]);
  if (!r) return false;
  *out = edit_begin(r);
  for (int i = 0; i < count; i++) out->v[s->is->columns[i]] = s->p[1 + i];
  return true;
}

static void run_assign(statement *s) {
  edit e;
  if (assign(s, &e)) edit_end(&e);
}

/* ---- transactions and the meta row ---- */

static row *meta_row(void) { return T->t[META].rows[0]; }

static void run_begin(statement *s) {
  (void)s;
  T->inside = true;
}

static void run_commit(statement *s) {
  (void)s;
  end(false);
}

static void run_rollback(statement *s) {
  (void)s;
  end(true);
}

/* A savepoint: there is at most one. */
static void run_join(statement *s) {
  (void)s;
  T->journal_mark = T->journal_count;
}

static void run_join_undo(statement *s) {
  (void)s;
  end_from(T->journal_mark, true);
}

/* The changes since then stand if the transaction does. */
static void run_join_end(statement *s) { (void)s; }

static void run_meta(statement *s) {
  compute(s, 0, int_of(meta_row(), META_ZXID));
  compute(s, 1, int_of(meta_row(), META_RECURSIVE));
  compute(s, 2, int_of(meta_row(), META_LOST));
  const row *session = find(SESSION, &s->p[1]);
  compute(s, 3, session ? int_of(session, SESSION_CARRIER) : -1);
  compute(s, 4, 0); /* no history is kept */
  compute(s, 5, T->t[WATCH].count > 0);
}

static void run_history_kept(statement *s) { compute(s, 0, 0); }

/* There is no history table here, and programs' SQL does not run: beginning
 * either fails, as without memory. */
static void run_foreign(statement *s) {
  (void)s;
  T->failed = true;
}

/* The parameters are the columns' values. */
static void run_meta_assign(statement *s) {
  edit e = edit_begin(meta_row());
  for (int i = 0; i < s->is->parameters; i++)
    e.v[s->is->columns[i]] = s->p[1 + i];
  edit_end(&e);
}

/* ---- znodes ---- */

static void run_node_add(statement *s) {
  const value *p = s->p;
  if (find(NODE, &p[1])) return;
  insert(NODE, (value[]){[NODE_PARENT] = p[1],
                         [NODE_NAME] = p[2],
                         [NODE_CZXID] = p[3],
                         [NODE_MZXID] = p[3],
                         [NODE_PZXID] = p[3],
                         [NODE_CTIME] = p[4],
                         [NODE_MTIME] = p[4],
                         [NODE_VERSION] = of_int(0),
                         [NODE_AVERSION] = of_int(0),
                         [NODE_CREATES] = of_int(0),
                         [NODE_NCHILD] = of_int(0),
                         [NODE_OWNER] = p[5],
                         [NODE_KIND] = p[6],
                         [NODE_TTL] = p[7],
                         [NODE_DUE] = p[11],
                         [NODE_ACL] = p[8],
                         [NODE_LEN] = p[9],
                         [NODE_BLOB] = p[10],
                         [NODE_DATA] = p[12]});
}

static void run_node_child_added(statement *s) {
  edit e;
  if (!assign(s, &e)) return;
  e.v[NODE_NCHILD].number++;
  edit_end(&e);
}

static void run_node_child_gone(statement *s) {
  row *r = find(NODE, &s->p[3]);
  if (!r) return;
  edit e = edit_begin(r);
  e.v[NODE_NCHILD].number -= s->p[1].number;
  e.v[NODE_PZXID] = s->p[2];
  edit_end(&e);
}

static void run_node_set(statement *s) {
  edit e;
  if (!assign(s, &e)) return;
  if (e.v[NODE_KIND].number == 2 && e.v[NODE_NCHILD].number == 0)
    e.v[NODE_DUE] = of_int(e.v[NODE_MTIME].number + e.v[NODE_TTL].number);
  edit_end(&e);
}

/* The third parameter is the limit; -1: all. */
static void run_node_names(statement *s) {
  int64_t most = s->p[3].number;
  run_give(s);
  if (most >= 0 && most < s->found_count) s->found_count = (int)most;
}

/* Below a path are its children, and all with a parent between two values. */
static bool is_below(const row *r, const value *p) {
  const value *parent = &r->v[NODE_PARENT];
  return compare(parent, &p[1]) == 0 ||
         (compare(parent, &p[2]) > 0 && compare(parent, &p[3]) < 0);
}

/* The number of bytes of data; -1: none. */
static void run_node_bytes(statement *s) {
  int64_t sum = 0;
  run_give(s);
  for (int i = 0; i < s->found_count; i++) {
    int64_t len = int_of(s->found[i], NODE_LEN);
    sum += len > 0 ? len : 0;
  }
  compute(s, 0, sum);
}

static void run_node_count_all(statement *s) {
  compute(s, 0, T->t[NODE].count - 1);
}

static int by_due(const void *a, const void *b) {
  const row *x = *(row *const *)a, *y = *(row *const *)b;
  int order = compare(&x->v[NODE_DUE], &y->v[NODE_DUE]);
  return order ? order : compare_key(x, y->v, 2);
}

static void run_node_due(statement *s) {
  run_give(s);
  if (s->found_count)
    qsort(s->found, (size_t)s->found_count, sizeof(row *), by_due);
  if (s->found_count > LIMIT_NAMES) s->found_count = LIMIT_NAMES;
}

/* Is the rest of a name a sequence number with at least this many digits?  One
 * below -999,999,999 has one more. */
static bool is_sequence(const char *rest, int size, int64_t digits) {
  if (size < digits) return false;
  bool wide = rest[0] == '-' && (rest[1] == '1' || rest[1] == '2');
  if (size > digits + wide) return false;
  for (int i = 0; i < size; i++) {
    bool minus = i == 0 && rest[i] == '-';
    if (!minus && (rest[i] < '0' || rest[i] > '9')) return false;
  }
  return true;
}

static bool is_discarded(const row *r, const value *p) {
  const value *name = &r->v[NODE_NAME];
  int64_t digits = p[3].number;
  if (p[5].number != 0 && int_of(r, NODE_CZXID) != p[5].number) return false;
  if (digits <= 0) return compare(name, &p[2]) == 0;
  int size = name->size - p[2].size;
  return size > 0 && memcmp(name->at, p[2].at, (size_t)p[2].size) == 0 &&
         is_sequence(name->at + p[2].size, size, digits);
}

static void run_blob_add(statement *s) {
  const struct table *t = &T->t[BLOB];
  T->blob = t->count ? int_of(t->rows[t->count - 1], BLOB_ID) + 1 : 1;
  insert(BLOB, (value[]){of_int(T->blob), s->p[1]});
}

/* ---- watches and events ---- */

static void run_watch_add(statement *s) {
  if (!find(WATCH, &s->p[1])) insert(WATCH, &s->p[1]);
}

/* Below "/a" are the paths that begin with "/a/". */
static bool is_watched_below(const row *r, const value *p) {
  const value *path = &r->v[WATCH_PATH];
  int size = p[1].size;
  return path->size > size + 1 && path->at[size] == '/' &&
         memcmp(path->at, p[1].at, (size_t)size) == 0;
}

/* Returns no row if there is no watch. */
static void run_watch_below(statement *s) {
  if (count_all(s)) compute(s, 0, 1);
}

/* A missing value is NULL in SQL; its readers take it for 0. */
static void run_event_bounds(statement *s) {
  const row *session = find(SESSION, &s->p[1]);
  int64_t first = 0, last = 0;
  for (int i = 0; i < T->t[EVENT].count; i++) {
    const row *r = T->t[EVENT].rows[i];
    if (int_of(r, EVENT_SESSION) != s->p[1].number) continue;
    last = int_of(r, EVENT_SEQ);
    if (!first) first = last;
  }
  compute(s, 0, first);
  compute(s, 1, last);
  compute(s, 2, session ? int_of(session, SESSION_SEEN) : 0);
  compute(s, 3, session ? int_of(session, SESSION_LIMIT) : 0);
  compute(s, 4, session ? int_of(session, SESSION_CARRIER) : 0);
}

/* ---- sessions ---- */

static void run_session_seen(statement *s) {
  row *r = find(SESSION, &s->p[1]);
  if (!r) return;
  edit e = edit_begin(r);
  e.v[SESSION_SEEN] = s->p[2];
  edit_end(&e);
}

static void run_session_add(statement *s) {
  value v[COLUMNS_MOST];
  memcpy(v, &s->p[1], sizeof(value) * SESSION_SEEN);
  v[SESSION_SEEN] = of_int(0);
  memcpy(v + SESSION_TIMEOUT, &s->p[1 + SESSION_SEEN],
         sizeof(value) * (1 + SESSION_PASSWORD - SESSION_TIMEOUT));
  insert(SESSION, v);
}

static bool is_attached(const row *r, const value *p) {
  (void)p;
  return !int_of(r, SESSION_TIMEOUT) || int_of(r, SESSION_CARRIER);
}

/* ---- light sessions, and kept ones ---- */

static bool is_carried(const row *r, const value *p) {
  int64_t carrier = int_of(r, SESSION_CARRIER);
  return (carrier ? carrier : int_of(r, SESSION_ID)) == p[1].number;
}

/* Its light sessions, or the session itself. */
static bool is_carried_or_carries(const row *r, const value *p) {
  return int_of(r, SESSION_ID) == p[1].number || is_carried(r, p);
}

static void run_session_detach(statement *s) {
  row *r = find(SESSION, &s->p[1]);
  if (!r) return;
  edit e = edit_begin(r);
  e.v[SESSION_CARRIER] = e.v[SESSION_LIFE] = of_int(0);
  e.v[SESSION_HEARD] = s->p[2];
  edit_end(&e);
}

static void run_session_rearm(statement *s) {
  for (int i = 0; i < T->t[SESSION].count; i++) {
    row *r = T->t[SESSION].rows[i];
    if (is_attached(r, s->p)) continue;
    int64_t by = s->p[1].number, now = s->p[2].number;
    int64_t heard = int_of(r, SESSION_HEARD);
    edit e = edit_begin(r);
    e.v[SESSION_HEARD] = of_int(heard < now - by ? heard + by : now);
    edit_end(&e);
  }
}

static void run_session_few(statement *s) {
  compute(s, 0, T->t[SESSION].count <= s->p[1].number);
}

static bool is_of_part(const row *r, const value *p) {
  return int_of(r, SESSION_ID) % p[1].number == p[2].number;
}

static void run_slot_last(statement *s) {
  int64_t last = -1;
  for (int i = 0; i < T->t[SESSION].count; i++) {
    int64_t slot = int_of(T->t[SESSION].rows[i], SESSION_SLOT);
    if (slot > last) last = slot;
  }
  compute(s, 0, last);
}

/* ---- statements, and SQLite's functions for them ---- */

#define NODE_COLUMNS                                                        \
  NODE_CZXID, NODE_MZXID, NODE_PZXID, NODE_CTIME, NODE_MTIME, NODE_VERSION, \
      NODE_AVERSION, NODE_CREATES, NODE_NCHILD, NODE_OWNER, NODE_KIND,      \
      NODE_TTL, NODE_ACL, NODE_LEN, NODE_BLOB, NODE_DUE
#define NODE_REMOVAL NODE_PARENT, NODE_NAME, NODE_ACL, NODE_BLOB
#define SESSION_JUDGED                                                    \
  SESSION_ID, SESSION_LEASE, SESSION_SLOT, SESSION_LIFE, SESSION_CARRIER, \
      SESSION_TIMEOUT, SESSION_HEARD

/* The hash is of the text that the row was written for: after a change of the
 * text read both, change the row and its functions, then the hash. */
/* clang-format off */
static const known statements[] = {
    {"BEGIN_READ", 0x39bb217e, 0, run_begin, .columns = {0}},
    {"BEGIN_WRITE", 0xa72bae3b, 0, run_begin, .columns = {0}},
    {"COMMIT", 0xa869911c, 0, run_commit, .columns = {0}},
    {"ROLLBACK", 0xb8bf437d, 0, run_rollback, .columns = {0}},
    {"JOIN", 0xb09d80a4, 0, run_join, .columns = {0}},
    {"JOIN_END", 0x3d8f8ac4, 0, run_join_end, .columns = {0}},
    {"JOIN_UNDO", 0x50e002c8, 0, run_join_undo, .columns = {0}},
    {"APP_BEGIN", 0x0a9f4e77, 0, run_foreign, .columns = {0}},
    {"APP_END", 0x3d8ecc17, 0, run_foreign, .columns = {0}},
    {"META", 0xb31a2601, 1, run_meta, .columns = {0}},
    {"META_SET", 0x84e37477, 3, run_meta_assign, .table = META,
     .columns = {META_ZXID, META_RECURSIVE, META_LOST}},
    {"META_FILES", 0xd14806c2, 0, run_give, .table = META,
     .columns = {4, 5, 6, 7, 8, 9, 10}},
    {"META_FILES_SET", 0xcf624bb5, 7, run_meta_assign, .table = META,
     .columns = {4, 5, 6, 7, 8, 9, 10}},
    {"NODE_ROW", 0xd11449ac, 2, run_find, .table = NODE,
     .columns = {NODE_COLUMNS}},
    {"NODE_DATA", 0xf2779dfd, 2, run_find, .table = NODE,
     .columns = {NODE_COLUMNS, NODE_DATA}},
    {"NODE_ADD", 0xba1ff780, 12, run_node_add, .columns = {0}},
    {"NODE_CHILD_ADDED", 0x1d88e360, 4, run_node_child_added, .table = NODE,
     .columns = {NODE_CREATES, NODE_PZXID}},
    {"NODE_CHILD_GONE", 0x89a49f21, 4, run_node_child_gone, .columns = {0}},
    {"NODE_RAISE", 0x21226bad, 4, run_assign, .table = NODE,
     .columns = {NODE_CREATES, NODE_PZXID}},
    {"NODE_SET_DUE", 0x75f2868c, 3, run_assign, .table = NODE,
     .columns = {NODE_DUE}},
    {"NODE_REMOVE", 0x2a804c15, 2, run_take, .table = NODE},
    {"NODE_SET", 0xc4ed20c3, 8, run_node_set, .table = NODE,
     .columns = {NODE_DATA, NODE_BLOB, NODE_LEN, NODE_MZXID, NODE_MTIME,
                 NODE_VERSION}},
    {"NODE_SET_ACL", 0xc2299eff, 4, run_assign, .table = NODE,
     .columns = {NODE_ACL, NODE_AVERSION}},
    {"NODE_NAMES", 0x6f05effd, 3, run_node_names, .table = NODE,
     .columns = {NODE_NAME},
     .where = {{NODE_PARENT, SAME, 1}, {NODE_NAME, MORE, 2}}},
    {"NODE_COUNT", 0xd7f86c16, 3, run_count, .table = NODE, .also = is_below},
    {"NODE_BYTES", 0x21a65764, 3, run_node_bytes, .table = NODE,
     .also = is_below},
    {"NODE_COUNT_ALL", 0xf008c034, 0, run_node_count_all, .columns = {0}},
    {"NODE_OWNED_ALL", 0x9c5c86c1, 1, run_give, .table = NODE,
     .columns = {NODE_PARENT, NODE_NAME},
     .where = {{NODE_OWNER, SAME, 1}, {NODE_OWNER, LESS | MORE, NUMBER}}},
    {"NODE_OWNED", 0x072ec2a8, 1, run_give, .table = NODE,
     .columns = {NODE_REMOVAL},
     .where = {{NODE_OWNER, SAME, 1}, {NODE_OWNER, LESS | MORE, NUMBER},
               {NODE_NCHILD, SAME, NUMBER}}, .limit = LIMIT_NAMES},
    {"NODE_DUE", 0xfe3a8441, 2, run_node_due, .table = NODE,
     .columns = {NODE_REMOVAL},
     .where = {{NODE_KIND, SAME, 1}, {NODE_DUE, LESS | MORE, NUMBER},
               {NODE_DUE, LESS | SAME, 2}, {NODE_NCHILD, SAME, NUMBER},
               {NODE_TTL, SAME | MORE, NUMBER}}},
    {"NODE_DISCARD", 0xbe692dee, 5, run_give, .table = NODE,
     .columns = {NODE_REMOVAL},
     .where = {{NODE_PARENT, SAME, 1}, {NODE_OWNER, SAME, 4}},
     .also = is_discarded, .limit = LIMIT_NAMES},
    {"BLOB_ADD", 0x02d54a52, 1, run_blob_add, .columns = {0}},
    {"BLOB_REMOVE", 0xff43f7c3, 1, run_take, .table = BLOB},
    {"WATCH_AT", 0xb9966ef3, 1, run_give, .table = WATCH,
     .columns = {WATCH_KIND, WATCH_SESSION}, .where = {{WATCH_PATH, SAME, 1}}},
    {"WATCH_BELOW", 0x390f2ccd, 1, run_watch_below, .table = WATCH,
     .also = is_watched_below},
    {"WATCH_DROP", 0x913e228c, 2, run_remove, .table = WATCH,
     .where = {{WATCH_PATH, SAME, 1}, {WATCH_KIND, SAME, 2}}},
    {"WATCH_ADD", 0x231898a7, 3, run_watch_add, .columns = {0}},
    {"WATCH_REMOVE", 0xdb0e16d6, 3, run_take, .table = WATCH},
    {"WATCH_RECURSIVE", 0xa17dc1e3, 1, run_count, .table = WATCH,
     .where = {{WATCH_SESSION, SAME, 1},
               {WATCH_KIND, SAME | MORE, NUMBER + 4}}},
    {"WATCH_END", 0x5a5afa80, 1, run_remove, .table = WATCH,
     .where = {{WATCH_SESSION, SAME, 1}}},
    {"WATCH_SPEND", 0x3a42beff, 1, run_remove, .table = WATCH,
     .where = {{WATCH_SESSION, SAME, 1}, {WATCH_KIND, LESS, NUMBER + 2}}},
    {"EVENT_BOUNDS", 0xafdcc2d5, 1, run_event_bounds, .columns = {0}},
    {"EVENT_ADD", 0x040b555b, 7, run_insert, .table = EVENT},
    {"EVENT_NEXT", 0x041c19b5, 2, run_give, .table = EVENT,
     .columns = {1, 2, 3, 4, 5},
     .where = {{EVENT_SESSION, SAME, 1}, {EVENT_SEQ, MORE, 2}},
     .limit = LIMIT_EVENTS},
    {"EVENT_TRIM", 0x4a7a6d89, 2, run_remove, .table = EVENT,
     .where = {{EVENT_SESSION, SAME, 1}, {EVENT_SEQ, LESS | SAME, 2}}},
    {"SESSION_SEEN", 0x4c03b08b, 2, run_session_seen, .columns = {0}},
    {"EVENT_END", 0x5ffc1ba5, 1, run_remove, .table = EVENT,
     .where = {{EVENT_SESSION, SAME, 1}}},
    {"SESSION_ADD", 0x7d518c50, 12, run_session_add, .columns = {0}},
    {"SESSION_HAS", 0x2c96b29d, 1, run_find, .table = SESSION,
     .columns = {SESSION_JUDGED}},
    {"SESSION_CARRIED", 0x694e38c0, 1, run_any, .table = SESSION,
     .also = is_carried_or_carries},
    {"SESSION_CARRIED_BY", 0x3d7b89b5, 1, run_give, .table = SESSION,
     .columns = {SESSION_ID}, .also = is_carried},
    {"SESSION_DETACH", 0x7acbeaf2, 2, run_session_detach, .columns = {0}},
    {"SESSION_PASSWORD", 0x876cfbbc, 1, run_find, .table = SESSION,
     .columns = {SESSION_PASSWORD}},
    {"SESSION_ATTACH", 0x9365d22a, 8, run_assign, .table = SESSION,
     .columns = {SESSION_IDENTITY, SESSION_PID, SESSION_LIFE,
                 SESSION_CARRIER, SESSION_LIMIT, SESSION_SEEN,
                 SESSION_TIMEOUT}},
    {"SESSION_REARM", 0xff4d560b, 2, run_session_rearm, .columns = {0}},
    {"EVENT_CARRIED", 0xd2fff5a7, 2, run_give, .table = EVENT,
     .columns = {EVENT_SESSION},
     .where = {{EVENT_CARRIER, SAME, 1},
               {EVENT_CARRIER, LESS | MORE, NUMBER}, {EVENT_ZXID, MORE, 2}}},
    {"SESSION_PID", 0x405f03dc, 1, run_find, .table = SESSION,
     .columns = {SESSION_PID}},
    {"SESSION_END", 0xd5824d36, 1, run_take, .table = SESSION},
    {"SESSION_ANY", 0x7f482e44, 0, run_any, .table = SESSION,
     .also = is_attached},
    {"SESSION_FEW", 0xf304c11a, 1, run_session_few, .columns = {0}},
    {"SESSION_PART", 0xbb95dfc1, 2, run_give, .table = SESSION,
     .columns = {SESSION_JUDGED}, .also = is_of_part},
    {"SLOT_LAST", 0x853d82ff, 0, run_slot_last, .columns = {0}},
    {"HISTORY_ADD", 0x0d9ed4c7, 7, run_foreign, .columns = {0}},
    {"HISTORY_PRUNE", 0x00c173b6, 3, run_foreign, .columns = {0}},
    {"HISTORY_LIMITS", 0xcc8880de, 2, run_foreign, .columns = {0}},
    {"HISTORY_KEPT", 0x99ba3b91, 0, run_history_kept, .columns = {0}},
    {"SLOT_TAKEN", 0xe4dfa3ea, 1, run_any, .table = SESSION,
     .where = {{SESSION_SLOT, SAME, 1}, {SESSION_SLOT, SAME | MORE, NUMBER}}}};
/* clang-format on */

/* The view of sessions, which recipes read.  It is prepared each time, and
 * recognised by its hash alone: another text goes to SQLite. */
static const known session_view = {
    "zke_sessions",
    0x26ad6b77,
    2,
    run_give,
    .table = SESSION,
    .columns = {SESSION_ID, SESSION_IDENTITY, SESSION_PID, SESSION_STARTED,
                SESSION_LEASE, COUNT_OWNED, COUNT_WATCHES, COUNT_EVENTS,
                SESSION_LIFE, SESSION_CARRIER, SESSION_TIMEOUT},
    .where = {{SESSION_ID, SAME | MORE, 1}, {SESSION_ID, LESS | SAME, 2}}};

enum { STATEMENTS = sizeof statements / sizeof statements[0] };

/* Indexed by number; outside of the world. */
static const char *texts[STATEMENTS];

uint32_t tables_hash(const char *text) {
  return (uint32_t)hash_of(text, (int)strlen(text));
}

bool tables_know(const char *name, const char *text) {
  for (int i = 0; i < STATEMENTS; i++) {
    if (strcmp(statements[i].name, name) != 0) continue;
    texts[i] = text;
    return statements[i].hash == tables_hash(text);
  }
  return false;
}

bool tables_has(const char *name) {
  for (int i = 0; i < STATEMENTS; i++) {
    if (strcmp(statements[i].name, name) == 0) return true;
  }
  return false;
}

/* A statement of the tables, or NULL if it is one of SQLite's, which has its
 * own region. */
static statement *ours(sqlite3_stmt *st) {
  uint64_t at = (uint64_t)(uintptr_t)st;
  return arena_region_of(at) == ARENA_TABLES ? (statement *)(void *)st : NULL;
}

static int prepare(const known *is, sqlite3_stmt **out) {
  statement *s = arena_get(ARENA_TABLES, sizeof *s);
  *out = (sqlite3_stmt *)(void *)s;
  if (!s) return SQLITE_NOMEM;
  s->is = is;
  for (int i = 0; i <= PARAMETERS_MOST; i++) s->p[i].type = SQLITE_NULL;
  return SQLITE_OK;
}

int tables_prepare_v3(sqlite3 *db, const char *text, int size, unsigned flags,
                      sqlite3_stmt **out, const char **tail) {
  for (int i = 0; T && i < STATEMENTS; i++) {
    if (texts[i] == text) return prepare(&statements[i], out);
  }
  return sqlite3_prepare_v3(db, text, size, flags, out, tail);
}

int tables_finalize(sqlite3_stmt *st) {
  statement *s = ours(st);
  if (!s) return sqlite3_finalize(st);
  if (s->found) arena_put(s->found);
  arena_put(s);
  return SQLITE_OK;
}

int tables_bind_parameter_count(sqlite3_stmt *st) {
  const statement *s = ours(st);
  return s ? s->is->parameters : sqlite3_bind_parameter_count(st);
}

int tables_bind_null(sqlite3_stmt *st, int at) {
  statement *s = ours(st);
  if (!s) return sqlite3_bind_null(st, at);
  s->p[at] = (value){.type = SQLITE_NULL};
  return SQLITE_OK;
}

int tables_bind_int64(sqlite3_stmt *st, int at, sqlite3_int64 number) {
  statement *s = ours(st);
  if (!s) return sqlite3_bind_int64(st, at, number);
  s->p[at] = of_int(number);
  return SQLITE_OK;
}

/* The bytes are not copied (SQLITE_STATIC). */
static int bind(statement *s, int at, int type, const char *bytes, int size) {
  s->p[at] = (value){.type = SQLITE_NULL};
  if (bytes) s->p[at] = (value){.type = type, .at = bytes, .size = size};
  return SQLITE_OK;
}

int tables_bind_text(sqlite3_stmt *st, int at, const char *text, int size,
                     void (*destroy)(void *)) {
  statement *s = ours(st);
  if (!s) return sqlite3_bind_text(st, at, text, size, destroy);
  if (text && size < 0) size = (int)strlen(text);
  return bind(s, at, SQLITE_TEXT, text, size);
}

int tables_bind_blob(sqlite3_stmt *st, int at, const void *data, int size,
                     void (*destroy)(void *)) {
  statement *s = ours(st);
  if (!s) return sqlite3_bind_blob(st, at, data, size, destroy);
  return bind(s, at, SQLITE_BLOB, data, size);
}

static int step(statement *s) {
  if (!s->begun) {
    s->begun = true;
    T->changes = 0;
    s->is->run(s);
    if (!T->inside) end(T->failed);
  } else {
    s->at++;
  }
  if (T->failed) {
    T->failed = false;
    return SQLITE_NOMEM;
  }
  return s->at < (s->computes ? 1 : s->found_count) ? SQLITE_ROW : SQLITE_DONE;
}

int tables_step(sqlite3_stmt *st) {
  statement *s = ours(st);
  return s ? step(s) : sqlite3_step(st);
}

int tables_reset(sqlite3_stmt *st) {
  statement *s = ours(st);
  if (!s) return sqlite3_reset(st);
  s->begun = s->computes = false;
  s->found_count = s->at = 0;
  return SQLITE_OK;
}

static const value *count_of(statement *s, const row *session, int what) {
  static const struct {
    int table, column;
  } whose[] = {
      {NODE, NODE_OWNER}, {WATCH, WATCH_SESSION}, {EVENT, EVENT_SESSION}};
  const struct table *t = &T->t[whose[what - COUNT_OWNED].table];
  int64_t id = int_of(session, SESSION_ID), count = 0;
  for (int i = 0; i < t->count; i++)
    count += int_of(t->rows[i], whose[what - COUNT_OWNED].column) == id;
  s->computed[0] = of_int(count);
  return &s->computed[0];
}

/* The value of a column of the current row.  Data in a separate table is in the
 * row with its number. */
static const value *column_of(statement *s, int column) {
  if (s->computes) return &s->computed[column];
  const row *r = s->found[s->at];
  int at = s->is->columns[column];
  if (at >= COUNT_OWNED) return count_of(s, r, at);
  if (s->is->table == NODE && at == NODE_DATA &&
      r->v[NODE_BLOB].type == SQLITE_INTEGER) {
    const row *blob = find(BLOB, &r->v[NODE_BLOB]);
    if (blob) return &blob->v[BLOB_DATA];
  }
  return &r->v[at];
}

int tables_column_type(sqlite3_stmt *st, int column) {
  statement *s = ours(st);
  return s ? column_of(s, column)->type : sqlite3_column_type(st, column);
}

sqlite3_int64 tables_column_int64(sqlite3_stmt *st, int column) {
  statement *s = ours(st);
  return s ? column_of(s, column)->number : sqlite3_column_int64(st, column);
}

int tables_column_int(sqlite3_stmt *st, int column) {
  return (int)tables_column_int64(st, column);
}

const void *tables_column_blob(sqlite3_stmt *st, int column) {
  statement *s = ours(st);
  if (!s) return sqlite3_column_blob(st, column);
  const value *v = column_of(s, column);
  return v->type == SQLITE_BLOB && v->size == 0 ? NULL : v->at;
}

const unsigned char *tables_column_text(sqlite3_stmt *st, int column) {
  statement *s = ours(st);
  if (!s) return sqlite3_column_text(st, column);
  return (const unsigned char *)column_of(s, column)->at;
}

int tables_column_bytes(sqlite3_stmt *st, int column) {
  statement *s = ours(st);
  return s ? column_of(s, column)->size : sqlite3_column_bytes(st, column);
}

int tables_stmt_status(sqlite3_stmt *st, int which, int reset) {
  return ours(st) ? 0 : sqlite3_stmt_status(st, which, reset);
}

int tables_changes(sqlite3 *db) { return T ? T->changes : sqlite3_changes(db); }

/* The changes of the current transaction; the engine asks for nothing else. */
int tables_total_changes(sqlite3 *db) {
  return T ? T->journal_count : sqlite3_total_changes(db);
}

sqlite3_int64 tables_last_insert_rowid(sqlite3 *db) {
  return T ? T->blob : sqlite3_last_insert_rowid(db);
}

int tables_get_autocommit(sqlite3 *db) {
  return T ? !T->inside : sqlite3_get_autocommit(db);
}

/* ---- from SQLite, and back ---- */

static value value_of(sqlite3_stmt *st, int column) {
  value v = {.type = sqlite3_column_type(st, column)};
  if (v.type == SQLITE_INTEGER) v.number = sqlite3_column_int64(st, column);
  if (!has_bytes(&v)) return v;
  v.at = sqlite3_column_blob(st, column);
  v.size = sqlite3_column_bytes(st, column);
  return v;
}

static int take_table(sqlite3 *db, int table) {
  char sql[256];
  sqlite3_stmt *st = NULL;
  sqlite3_snprintf(sizeof sql, sql, "SELECT %s FROM %s", shapes[table].columns,
                   shapes[table].name);
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
    value v[COLUMNS_MOST];
    for (int i = 0; i < shapes[table].count; i++) v[i] = value_of(st, i);
    insert(table, v);
    rc = SQLITE_OK;
  }
  sqlite3_finalize(st);
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Has the table exactly the columns of its shape? */
static bool has_shape(sqlite3 *db, int table) {
  char sql[256];
  sqlite3_stmt *st = NULL;
  sqlite3_snprintf(sizeof sql, sql, "SELECT * FROM %s", shapes[table].name);
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  bool same =
      rc == SQLITE_OK && sqlite3_column_count(st) == shapes[table].count;
  sqlite3_finalize(st);
  return same;
}

/* The first table of the database with no shape here, or with another one. */
static int find_other(sqlite3 *db, const char **other_out) {
  static char name[64]; /* outside of the world */
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db,
                              "SELECT name FROM sqlite_schema WHERE "
                              "type='table' AND name NOT LIKE 'sqlite%'",
                              -1, &st, NULL);
  while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
    int table = 0;
    sqlite3_snprintf(sizeof name, name, "%s", sqlite3_column_text(st, 0));
    while (table < TABLES && strcmp(shapes[table].name, name) != 0) table++;
    if (table == TABLES || !has_shape(db, table)) *other_out = name;
    rc = *other_out ? SQLITE_ERROR : SQLITE_OK;
  }
  sqlite3_finalize(st);
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int tables_begin(sqlite3 *db, const char **other_out) {
  int rc = find_other(db, other_out);
  if (rc != SQLITE_OK) return rc;
  T = arena_get(ARENA_TABLES, sizeof *T);
  if (!T) return SQLITE_NOMEM;
  T->db = db;
  /* The engine's own hook would refuse to write back in a batch. */
  sqlite3_commit_hook(db, NULL, NULL);
  for (int i = 0; i < TABLES && rc == SQLITE_OK; i++) rc = take_table(db, i);
  end(false);
  return T->failed ? SQLITE_NOMEM : rc;
}

static void bind_value(sqlite3_stmt *st, int at, const value *v) {
  if (v->type == SQLITE_INTEGER)
    sqlite3_bind_int64(st, at, v->number);
  else if (v->type == SQLITE_TEXT)
    sqlite3_bind_text(st, at, v->at, v->size, SQLITE_STATIC);
  else if (v->type == SQLITE_BLOB)
    sqlite3_bind_blob(st, at, v->at, v->size, SQLITE_STATIC);
  else
    sqlite3_bind_null(st, at);
}

static int write_table(int table) {
  char sql[256];
  sqlite3_stmt *st = NULL;
  sqlite3_snprintf(sizeof sql, sql, "DELETE FROM %s", shapes[table].name);
  int rc = sqlite3_exec(T->db, sql, NULL, NULL, NULL);
  if (rc != SQLITE_OK) return rc;
  sqlite3_snprintf(sizeof sql, sql, "INSERT INTO %s(%s)VALUES(?%.*s)",
                   shapes[table].name, shapes[table].columns,
                   2 * (shapes[table].count - 1),
                   ",?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?");
  rc = sqlite3_prepare_v2(T->db, sql, -1, &st, NULL);
  for (int i = 0; i < T->t[table].count && rc == SQLITE_OK; i++) {
    for (int k = 0; k < shapes[table].count; k++)
      bind_value(st, k + 1, &T->t[table].rows[i]->v[k]);
    rc = sqlite3_step(st) == SQLITE_DONE ? sqlite3_reset(st) : SQLITE_ERROR;
  }
  sqlite3_finalize(st);
  return rc;
}

/* Copy the current rows to SQLite. */
static int write_back(void) {
  int rc = sqlite3_exec(T->db, "SAVEPOINT tables", NULL, NULL, NULL);
  for (int i = 0; i < TABLES && rc == SQLITE_OK; i++) rc = write_table(i);
  int released = sqlite3_exec(T->db, "RELEASE tables", NULL, NULL, NULL);
  arena_use_sqlite();
  return rc == SQLITE_OK ? released : rc;
}

int tables_prepare_v2(sqlite3 *db, const char *text, int size,
                      sqlite3_stmt **out, const char **tail) {
  if (T && tables_hash(text) == session_view.hash)
    return prepare(&session_view, out);
  int rc = T ? write_back() : SQLITE_OK;
  if (rc == SQLITE_OK) return sqlite3_prepare_v2(db, text, size, out, tail);
  *out = NULL;
  return rc;
}

/* ---- for comparing worlds ---- */

static void value_words(const value *v, const engine_sink *sink) {
  if (has_bytes(v)) sink->word(sink->arg, v->hash >> 8); /* is no counter */
  sink->word(sink->arg, has_bytes(v) ? (uint64_t)v->size : (uint64_t)v->number);
}

static void row_words(const row *r, const engine_sink *sink) {
  for (int i = 0; i < shapes[r->table].count; i++) {
    const row *blob = NULL;
    bool is_blob = r->table == NODE && i == NODE_BLOB;
    if (r->table == EVENT && i == EVENT_SEQ) continue;
    if (is_blob && r->v[i].type == SQLITE_INTEGER) blob = find(BLOB, &r->v[i]);
    if (is_blob && !blob) continue;
    value_words(blob ? &blob->v[BLOB_DATA] : &r->v[i], sink);
  }
}

/* A blob counts as a part of its node, and what a session has seen follows from
 * its handle. */
void tables_words(bool (*is_read)(void *arg, int64_t session, int64_t seq),
                  void *arg, const engine_sink *sink) {
  static const int compared[] = {NODE, WATCH, EVENT, SESSION};
  for (size_t i = 0; i < sizeof compared / sizeof compared[0]; i++) {
    const struct table *t = &T->t[compared[i]];
    for (int k = 0; k < t->count; k++) {
      const row *r = t->rows[k];
      if (compared[i] == SESSION) {
        value_words(&r->v[SESSION_ID], sink);
        continue;
      }
      if (compared[i] == EVENT &&
          is_read(arg, int_of(r, EVENT_SESSION), int_of(r, EVENT_SEQ)))
        continue;
      row_words(r, sink);
    }
    sink->word(sink->arg, i);
  }
}
