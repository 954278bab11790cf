/* sqlite.h - SQLite as an extension sees it
 *
 * Each file of the extension is compiled with this before its first line, the
 * engine and the recipes too (-include): so their calls go to the SQLite of the
 * program that loads them, by the table that it gives to the init function.
 * What is linked statically, with SQLite itself in the program (SQLITE_CORE),
 * calls it directly.
 */
#ifndef ZKE_EXTENSION_SQLITE_H
#define ZKE_EXTENSION_SQLITE_H

#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT3

#endif
