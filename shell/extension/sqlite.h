/* sqlite.h - SQLite for an extension
 *
 * Each file of the extension, the engine and the recipes included, is compiled
 * with this before its first line (-include).  So their calls use the SQLite of
 * the program that loads them, by the table that it gives to the init function.
 * Static code, with SQLite itself in the program (SQLITE_CORE), calls it
 * directly.
 */
#ifndef ZKE_EXTENSION_SQLITE_H
#define ZKE_EXTENSION_SQLITE_H

#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT3

#endif
