/* vfs.h - SQLite's VFS over the simulated disk
 *
 * It is named "unix-simulated", since zkembed.c takes a VFS whose name begins
 * so for one that writes what it is given.  Handles of one process share a
 * file's locks as those of SQLite's own VFS do, so each is an owner by itself.
 */
#ifndef ZKE_SIM_VFS_H
#define ZKE_SIM_VFS_H

#include "test/sim/file.h"

extern const char *const vfs_name;
/* The same for other programs. */
extern const char *const vfs_foreign_name;

void vfs_register(void);

/* Would close() of one more descriptor of the file, in the running process,
 * drop locks of SQLite's?  POSIX locks are the process's. */
bool vfs_would_lose_locks(const disk_node *n);

/* A process is forked, and SQLite's memory goes with the child: the parent's
 * locks stay with the parent, since POSIX locks are not inherited. */
void vfs_forked(file_table *parent, file_table *child);
/* Has a process a connection of zkembed.c's that it was forked with? */
bool vfs_has_inherited(const file_table *t);

/* One of a dead process's handles is taken; false: it has none. */
bool vfs_reap_one(file_table *t);

#endif
