/* engine.c - zkembed.c, compiled for the laboratory
 *
 * The engine is the same as everywhere; only its public functions have other
 * names (renamed.h), its statements can run on plain tables (tables.h), and its
 * variables of a thread lie in a section of their own, which is exchanged when
 * another process goes on (world.c).  What follows it reads its inside: no
 * function here changes what the engine does. */
#define _GNU_SOURCE
#include "renamed.h"
#include "tables.h"
#include "thread.h"

#define sqlite3_prepare_v2 tables_prepare_v2
#define sqlite3_prepare_v3 tables_prepare_v3
#define sqlite3_finalize tables_finalize
#define sqlite3_bind_parameter_count tables_bind_parameter_count
#define sqlite3_bind_null tables_bind_null
#define sqlite3_bind_int64 tables_bind_int64
#define sqlite3_bind_text tables_bind_text
#define sqlite3_bind_blob tables_bind_blob
#define sqlite3_step tables_step
#define sqlite3_reset tables_reset
#define sqlite3_column_type tables_column_type
#define sqlite3_column_int tables_column_int
#define sqlite3_column_int64 tables_column_int64
#define sqlite3_column_text tables_column_text
#define sqlite3_column_blob tables_column_blob
#define sqlite3_column_bytes tables_column_bytes
#define sqlite3_stmt_status tables_stmt_status
#define sqlite3_changes tables_changes
#define sqlite3_last_insert_rowid tables_last_insert_rowid
#define sqlite3_get_autocommit tables_get_autocommit

#include "../../zkembed.c"

#include "engine.h"

int engine_begin(zke *z) {
  char sql[96];
  sqlite3_snprintf(sizeof sql, sql, "UPDATE meta SET zxid=%lld",
                   (long long)ENGINE_COUNTER_KIND(0));
  store *s = z->s;
  if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
    return base_fail(ZKE_SYSTEMERROR, "the laboratory: %s",
                     sqlite3_errmsg(s->db));
  return ZKE_OK;
}

/* Statements that are prepared already are SQLite's. */
#define ENGINE_STATEMENT(name) {#name, SQL_##name},

int engine_begin_tables(zke *z) {
  static const struct {
    const char *name;
    const sql_text *sql;
  } all[] = {SQL_NAMES(ENGINE_STATEMENT)};
  store *s = z->s;
  for (int i = 0; i < SQL_COUNT; i++) {
    if (!tables_know(all[i].name, all[i].sql->text))
      return base_fail(ZKE_SYSTEMERROR,
                       "the laboratory's tables have no code for the statement "
                       "%s as it is now, with the hash 0x%08x",
                       all[i].name, tables_hash(all[i].sql->text));
    sqlite3_finalize(s->statement[i]);
    s->statement[i] = NULL;
  }
  int rc = tables_begin(s->db);
  return rc == SQLITE_OK ? db_prepare_ends(s)
                         : sql_error(s, rc, "the laboratory");
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

/* The handles of all sessions, for whoever asks what one has read. */
typedef struct engine_readers {
  zke *const *handles;
  int count;
} engine_readers;

static bool engine_has_read(void *arg, int64_t session, int64_t seq) {
  const engine_readers *r = arg;
  for (int i = 0; i < r->count; i++) {
    if (r->handles[i] && r->handles[i]->id == session)
      return seq <= r->handles[i]->cursor;
  }
  return false;
}

void engine_database_words(zke *const *handles, int count,
                           const engine_sink *sink) {
  engine_readers readers = {handles, count};
  tables_words(engine_has_read, &readers, sink);
}

const char *engine_sentence(size_t *size_out) {
  *size_out = sizeof base_sentence;
  return base_sentence;
}

int64_t engine_alarm(zke *z) {
  int64_t at = atomic_load(&z->alarm_at);
  return atomic_load(&z->owes) ? base_min(at, z->discard_at) : at;
}

int engine_watchers(const zke *z) { return (int)z->watcher_count; }

int engine_owned(zke *any, int64_t session) {
  zke_strings *paths = NULL;
  if (zke_ephemerals(any, session, "/", &paths) != ZKE_OK) return -1;
  int count = paths->count;
  zke_free(paths);
  return count;
}
