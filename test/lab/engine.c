/* engine.c - zkembed.c, compiled for the laboratory
 *
 * The engine is unchanged, except that its public functions have other names
 * for the linker, its statements can run on plain tables (tables.h), and its
 * thread-local variables are in their own section, which is swapped when
 * another process runs (world.c).  The functions after it only read its
 * internals. */
#define _GNU_SOURCE
#define ZKE_KEPT_PART 0 /* rows read earlier make no new states */
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
#define sqlite3_total_changes tables_total_changes
#define sqlite3_last_insert_rowid tables_last_insert_rowid
#define sqlite3_get_autocommit tables_get_autocommit

/* The tables have no code for these: if the engine begins to call one, linking
 * fails until tables.c has it. */
#define sqlite3_bind_double tables_c_lacks_sqlite3_bind_double
#define sqlite3_bind_int tables_c_lacks_sqlite3_bind_int
#define sqlite3_bind_text64 tables_c_lacks_sqlite3_bind_text64
#define sqlite3_bind_blob64 tables_c_lacks_sqlite3_bind_blob64
#define sqlite3_bind_zeroblob tables_c_lacks_sqlite3_bind_zeroblob
#define sqlite3_clear_bindings tables_c_lacks_sqlite3_clear_bindings
#define sqlite3_column_count tables_c_lacks_sqlite3_column_count
#define sqlite3_column_double tables_c_lacks_sqlite3_column_double
#define sqlite3_column_value tables_c_lacks_sqlite3_column_value
#define sqlite3_data_count tables_c_lacks_sqlite3_data_count
#define sqlite3_stmt_busy tables_c_lacks_sqlite3_stmt_busy
#define sqlite3_stmt_readonly tables_c_lacks_sqlite3_stmt_readonly
#define sqlite3_changes64 tables_c_lacks_sqlite3_changes64
#define sqlite3_txn_state tables_c_lacks_sqlite3_txn_state

/* In a child that the laboratory forks, the engine continues (keep_fork.c). */
static int engine_atfork(void (*prepare)(void), void (*parent)(void),
                         void (*child)(void)) {
  (void)prepare, (void)parent, (void)child;
  return 0;
}
#include <pthread.h>
#define pthread_atfork engine_atfork

/* The linker knows zke_sync() as lab_real_zke_sync() here, since the zke_sync()
 * in calls.c calls it; the same holds for all functions that stop. */
#include "zkembed.h"
#define FUNCTION(name, path, parameters, arguments, samples) \
  int name parameters __asm__("lab_real_" #name);
#define BY_HAND FUNCTION
#define QUIET(name, path, parameters, arguments, samples)
#include "function_list.h"
int zke_open(const char *name, const zke_options *options,
             zke **z_out) __asm__("lab_real_zke_open");
int64_t zke_zxid(void) __asm__("lab_real_zke_zxid");

#include "../../zkembed.c"

#include "engine.h"

int engine_begin(zke *z) {
  char sql[96];
  sqlite3_snprintf(sizeof sql, sql, "UPDATE zkembed_meta SET zxid=%lld",
                   (long long)ENGINE_COUNTER_KIND(0));
  store *s = z->s;
  if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
    return base_fail(ZKE_SYSTEMERROR, "the laboratory: %s",
                     sqlite3_errmsg(s->db));
  return ZKE_OK;
}

/* Tell what to do about a statement that tables.c was not written for. */
static int engine_statement_is_new(const char *name, const char *text) {
  if (!tables_has(name))
    return base_fail(ZKE_SYSTEMERROR,
                     "the laboratory: the engine's statement %s is new: add a "
                     "function and a line {\"%s\", 0x%08x, ...} to "
                     "`statements` in test/lab/tables.c",
                     name, name, tables_hash(text));
  return base_fail(ZKE_SYSTEMERROR,
                   "the laboratory: the text of the engine's statement %s has "
                   "changed: let its function in test/lab/tables.c do the "
                   "same, then write the new hash 0x%08x beside it",
                   name, tables_hash(text));
}

/* Statements that are already prepared belong to SQLite. */
#define ENGINE_STATEMENT(name) {#name, SQL_##name},

int engine_begin_tables(zke *z) {
  static const struct {
    const char *name;
    const sql_text *sql;
  } all[] = {SQL_NAMES(ENGINE_STATEMENT)};
  store *s = z->s;
  for (int i = 0; i < SQL_COUNT; i++) {
    if (!tables_know(all[i].name, all[i].sql->text))
      return engine_statement_is_new(all[i].name, all[i].sql->text);
    sqlite3_finalize(s->statement[i]);
    s->statement[i] = NULL;
  }
  const char *other = NULL;
  int rc = tables_begin(s->db, &other);
  if (other)
    return base_fail(ZKE_SYSTEMERROR,
                     "the laboratory: the table %s is new, or has other "
                     "columns than before: mend `shapes` and the statements "
                     "that use it in test/lab/tables.c",
                     other);
  return rc == SQLITE_OK ? db_prepare_ends(s)
                         : sql_error(s, rc, "the laboratory");
}

void engine_begin_handle(zke *z, int number) {
  atomic_store(&z->turn, ENGINE_COUNTER_KIND(1 + number));
}

/* Times, and counters that only show whether something has changed since, are
 * in the stack frames of their users. */
void engine_handle_words(zke *z, const engine_sink *sink) {
  const uint64_t words[] = {(uint64_t)z->state,
                            (uint64_t)z->end_untold,
                            (uint64_t)z->c->dispatching,
                            (uint64_t)z->c->due_count,
                            (uint64_t)(uintptr_t)z->c->ready,
                            (uint64_t)(uintptr_t)z->ready_next,
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
                            (uint64_t)(uintptr_t)z->fired,
                            (uint64_t)(uintptr_t)z->who.texts.data,
                            (uint64_t)z->who.count,
                            (uint64_t)(uintptr_t)z->calling,
                            (uint64_t)(uintptr_t)z->watcher,
                            (uint64_t)(uintptr_t)z->watcher_context};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    sink->word(sink->arg, words[i]);
}

/* The handles of all sessions, to ask what one has read. */
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

const char *engine_unread(int which, size_t *size_out) {
  *size_out = which == ENGINE_ZXID ? sizeof base_zxid : sizeof base_sentence;
  return which == ENGINE_ZXID ? (const char *)&base_zxid : base_sentence;
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
