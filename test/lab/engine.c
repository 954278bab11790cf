/* engine.c - zkembed.c, compiled for the laboratory
 *
 * The engine is the same as everywhere; only its public functions have other
 * names (renamed.h), and its variables of a thread lie in a section of their
 * own, which is exchanged when another process goes on (world.c).  What follows
 * it reads its inside: no function here changes what the engine does. */
#include "renamed.h"
#include "thread.h"

#include "../../zkembed.c"

#include "engine.h"

/* The tables, in the order of their keys.  An event counts until its session
 * has read it; its number does not count, as only the order matters. */
enum {
  ENGINE_NODES,
  ENGINE_WATCHES,
  ENGINE_EVENTS,
  ENGINE_SESSIONS,
  ENGINE_OWNED,
  ENGINE_TABLES
};

static const char *const engine_sql[ENGINE_TABLES] = {
    ("SELECT parent,name,czxid,mzxid,pzxid,version,aversion,creates,nchild,"
     "owner,kind,ttl,due,ctime,mtime,acl,data FROM node"),
    "SELECT path,kind,session FROM watch",
    "SELECT session,type,path,zxid,seq FROM event", "SELECT id FROM session",
    "SELECT count(*) FROM node WHERE owner=?1"};

static sqlite3_stmt *engine_statements[ENGINE_TABLES];

/* Every statement is prepared once, and is then a part of every picture: what
 * a schedule prepares, the next one would have to prepare again. */
#define ENGINE_TEXT(name) SQL_##name,

static int engine_prepare(store *s) {
  static const sql_text *const all[] = {SQL_NAMES(ENGINE_TEXT)};
  int rc = ZKE_OK;
  for (size_t i = 0; i < sizeof all / sizeof all[0] && rc == ZKE_OK; i++)
    sql_statement(s, all[i], &rc);
  for (int i = 0; i < ENGINE_TABLES && rc == ZKE_OK; i++) {
    if (sqlite3_prepare_v2(s->db, engine_sql[i], -1, &engine_statements[i],
                           NULL) != SQLITE_OK)
      rc = base_fail(ZKE_SYSTEMERROR, "the laboratory: %s",
                     sqlite3_errmsg(s->db));
  }
  return rc;
}

int engine_begin(zke *z) {
  char sql[96];
  sqlite3_snprintf(sizeof sql, sql, "UPDATE meta SET zxid=%lld",
                   (long long)ENGINE_COUNTER_KIND(0));
  store *s = z->s;
  if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
    return base_fail(ZKE_SYSTEMERROR, "the laboratory: %s",
                     sqlite3_errmsg(s->db));
  return engine_prepare(s);
}

void engine_begin_handle(zke *z, int number) {
  atomic_store(&z->turn, ENGINE_COUNTER_KIND(1 + number));
}

/* Times, and counters that only show that something has changed since, are in
 * the frames of whoever compares them. */
void engine_handle_words(zke *z, const engine_sink *sink) {
  const uint64_t words[] = {(uint64_t)z->state,
                            (uint64_t)z->lost_notice,
                            (uint64_t)z->dispatching,
                            (uint64_t)z->fail_when,
                            (uint64_t)atomic_load(&z->closing),
                            (uint64_t)atomic_load(&z->calls),
                            (uint64_t)atomic_load(&z->owes),
                            (uint64_t)atomic_load(&z->doomed),
                            (uint64_t)atomic_load(&z->alarm_at),
                            (uint64_t)atomic_load(&z->turn),
                            (uint64_t)z->silent,
                            (uint64_t)z->watcher_count,
                            (uint64_t)z->recursive_count,
                            (uint64_t)(uintptr_t)z->discards,
                            (uint64_t)(uintptr_t)z->alarms.at,
                            (uint64_t)(uintptr_t)z->alarm_first,
                            (uint64_t)(uintptr_t)z->spots.at,
                            (uint64_t)(uintptr_t)z->pairs.at,
                            (uint64_t)(uintptr_t)z->queue,
                            (uint64_t)(uintptr_t)z->batch,
                            (uint64_t)(uintptr_t)z->watcher,
                            (uint64_t)(uintptr_t)z->watcher_context};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    sink->word(sink->arg, words[i]);
}

static void engine_row_words(sqlite3_stmt *st, int columns,
                             const engine_sink *sink) {
  for (int i = 0; i < columns; i++) {
    if (sqlite3_column_type(st, i) == SQLITE_INTEGER) {
      sink->word(sink->arg, (uint64_t)sqlite3_column_int64(st, i));
      continue;
    }
    const void *at = sqlite3_column_blob(st, i);
    sink->bytes(sink->arg, at ? at : "", (size_t)sqlite3_column_bytes(st, i));
  }
}

static bool engine_has_read(zke *const *handles, int count, sqlite3_stmt *st) {
  for (int i = 0; i < count; i++) {
    if (handles[i] && handles[i]->id == sqlite3_column_int64(st, 0))
      return sqlite3_column_int64(st, 4) <= handles[i]->cursor;
  }
  return false;
}

void engine_database_words(zke *const *handles, int count,
                           const engine_sink *sink) {
  for (int which = 0; which < ENGINE_OWNED; which++) {
    sqlite3_stmt *st = engine_statements[which];
    int columns = sqlite3_column_count(st) - (which == ENGINE_EVENTS);
    while (sqlite3_step(st) == SQLITE_ROW) {
      if (which == ENGINE_EVENTS && engine_has_read(handles, count, st))
        continue;
      engine_row_words(st, columns, sink);
    }
    sqlite3_reset(st);
    sink->word(sink->arg, (uint64_t)which);
  }
}

const char *engine_sentence(size_t *size_out) {
  *size_out = sizeof base_sentence;
  return base_sentence;
}

int64_t engine_alarm(zke *z) {
  int64_t at = atomic_load(&z->alarm_at);
  return atomic_load(&z->owes) ? base_min(at, z->discard_at) : at;
}

int engine_owned(int64_t session) {
  sqlite3_stmt *st = engine_statements[ENGINE_OWNED];
  sqlite3_bind_int64(st, 1, session);
  int count = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int(st, 0) : -1;
  sqlite3_reset(st);
  return count;
}
