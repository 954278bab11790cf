/* vfs.h - SQLite's VFS over the simulated disk
 *
 * It is named "unix-simulated", since zkembed.c trusts a VFS with a name that
 * begins with "unix" to write what it is given.  Handles of one process share a
 * file's locks as those of SQLite's own VFS do, so each is an owner by itself.
 */
#ifndef ZKE_SIM_VFS_H
#define ZKE_SIM_VFS_H

#include "test/sim/file.h"

extern const char *const vfs_name;
/* The same for other programs. */
extern const char *const vfs_foreign_name;

void vfs_register(void);

/* Would closing one more descriptor of the file drop locks of SQLite's in the
 * running process?  POSIX locks belong to the process. */
bool vfs_would_lose_locks(const disk_node *n);

/* A process is forked.  SQLite's memory goes to the child, and the locks stay
 * with the parent, since POSIX locks are not inherited. */
void vfs_forked(file_table *parent, file_table *child);
/* Has a forked process still a connection of zkembed.c's from before the
 * fork? */
bool vfs_has_inherited(const file_table *t);

/* Remove one of a dead process's handles; false: it has none. */
bool vfs_reap_one(file_table *t);

#endif
