/* sql.h - connections of SQLite's that have the extension, for tests */
#ifndef ZKE_TEST_SQL_H
#define ZKE_TEST_SQL_H

#include <sqlite3.h>

/* sql_library - the path of build/zkembed.so, the library that users load
 * sql_load    - load it into a connection
 * sql_ask     - a statement's result, or its error: "|" separates values,
 *               `between` separates rows, NULL is `null`.  Valid until the
 *               thread's eighth call from here on
 * sql_close   - close a connection that nothing uses any more */
const char *sql_library(void);
void sql_load(sqlite3 *db);
const char *sql_ask(sqlite3 *db, const char *sql, const char *between,
                    const char *null);
void sql_close(sqlite3 *db);

#endif
