/* disk.h - files and names of the simulated host, and what of them is durable
 *
 * A file has the content that processes see, in the page cache, and the durable
 * content, with the changes since the last sync in between.  A name also stands
 * for one file now and durably for another, or none; a sync of its directory
 * makes it durable.  A power cut leaves the durable content and any part of the
 * changes that a disk may have written.
 *
 * What is assumed of Linux, its file systems and disks, and on whose word.  A
 * cut may leave whatever any of them allows, so it destroys more than any
 * single one would.
 *
 *     a sync that succeeds has made durable all that was     fsync(2)
 *     written before it, and the size
 *     it does not do so for the name: its directory has      fsync(2), ALICE
 *     to be synced, too
 *     names that are made and removed without that may       ALICE
 *     exist or not, each by itself, whatever its content
 *     writes without a sync reach the disk in any order,     ALICE
 *     or do not
 *     of a write any sectors of 512 bytes may arrive, but    SQLite (atomic
 *     each as a whole                                        commit)
 *     no byte outside of a write's range changes             SQLite (psow)
 *     a file's size may arrive before its bytes: there are   ALICE, ext4.rst
 *     zeros, or the old content of the blocks                (data=writeback)
 *     what a failed sync should have written counts as       FSYNC
 *     written: it may have arrived or not, processes see
 *     it, and no later sync writes it
 *     each open description is told of that once, by its     vfs.rst (errors
 *     own sync                                               in writeback)
 *     descriptions that are opened later are not told        errseq.rst
 *     an inode's number may be used again                    stat(2) does not
 *                                                            promise more
 *     locks and the bytes in FIFOs are gone                  fifo(7)
 *
 * ALICE: Pillai and others, All File Systems Are Not Created Equal, OSDI 2014.
 * FSYNC: Rebello and others, Can Applications Recover from fsync Failures?,
 * USENIX ATC 2020; they saw it on ext4, XFS and Btrfs.  The .rst files are the
 * kernel's documentation, in admin-guide/, filesystems/ and core-api/.  SQLite:
 * its documents atomiccommit.html and psow.html; test/power/powervfs.h assumes
 * the same.
 *
 * Not assumed, though a file system may promise it: an order between files
 * (ext4's data=ordered); that a sync of one file makes others durable; that a
 * replaced name has the new content.  Not simulated: a file system that becomes
 * read-only after an error, a failed sync after which processes no longer see
 * the bytes (Btrfs, by FSYNC), disks that lie.
 */
#ifndef ZKE_SIM_DISK_H
#define ZKE_SIM_DISK_H

#include "test/sim/sim.h"

enum { DISK_PATH = 112, DISK_FIFO = 4096, DISK_REGIONS = 32 };

typedef enum disk_type { DISK_FILE = 1, DISK_DIRECTORY, DISK_PIPE } disk_type;

typedef struct disk_content {
  unsigned char *data;
  int64_t size, room;
} disk_content;

struct disk_change; /* a write or truncation since the last sync */
struct file_open;   /* an open file description: file.h */
struct vfs_file;    /* SQLite's handle: vfs.c */

/* A lock of an open file description. */
typedef struct disk_lock {
  int64_t from, end;
  const struct file_open *owner;
} disk_lock;

typedef struct disk_node {
  struct disk_node *next; /* of all */
  disk_type type;
  uint64_t inode; /* 0: it is free again */
  unsigned mode, uid, gid;
  int links, opens;
  disk_content now, durable;
  struct disk_change *first, **last;
  int changes;
  unsigned char bytes[DISK_FIFO]; /* in a FIFO: a page of Linux's */
  int first_byte, length, readers, writers;
  int writings; /* how often it was opened for writing */
  disk_lock *lock;
  int locks, lock_room;
  struct vfs_file *handles;   /* SQLite's handles of the file */
  struct vfs_file *shm;       /* and those that use it as a WAL-index, */
  void *region[DISK_REGIONS]; /* with these regions */
  int regions;
} disk_node;

/* Make the disk, with one directory. */
void disk_begin(const char *directory);

/* disk_find   - the file that a path leads to, or NULL
 * disk_add    - make a file and give it a name; its directory exists
 * disk_anonymous - make one without a name
 * disk_remove - remove the name
 * disk_rename - give the file another name, and take that from its old file
 * disk_list   - how many names a directory has; the caller frees *out
 * disk_settle - free the file if it has no name, is not open and not in use */
disk_node *disk_find(const char *path);
disk_node *disk_add(const char *path, disk_type type, unsigned mode);
disk_node *disk_anonymous(disk_type type, unsigned mode);
void disk_remove(const char *path);
void disk_rename(const char *from, const char *to);
int disk_list(const char *path, char (**out)[DISK_PATH]);
void disk_settle(disk_node *n);
bool disk_parent_exists(const char *path);
/* Why a path leads to nothing: a negative errno. */
int disk_missing(const char *path);

/* disk_read  - returns how many bytes there were
 * disk_write, disk_truncate - make changes that are not durable yet */
int64_t disk_read(const disk_node *n, void *out, int64_t at, int64_t size);
void disk_write(disk_node *n, const void *data, int64_t at, int64_t size);
void disk_truncate(disk_node *n, int64_t size);
/* Set the size without a change, for what is not on the disk at all, such as a
 * -shm. */
void disk_set_size(disk_node *n, int64_t size);

/* Returns the errno for a lack of room for that many bytes, or for another
 * name; or 0 after taking them from the quota. */
enum { DISK_NAME = 4096 };
int disk_no_room(int64_t bytes);

/* The number of the last change. */
int64_t disk_mark(void);
/* What was changed up to a mark is durable.  If the sync fails, some of it is,
 * and the rest never will be, as on Linux. */
void disk_sync(disk_node *n, int64_t mark, bool fails);
/* A process was killed inside a sync: part of it is durable, the rest still
 * waits. */
void disk_sync_part(disk_node *n, int64_t mark, int thousandths);
/* Make the names of this directory durable, or of the one that has the path. */
void disk_sync_names(const disk_node *directory);
void disk_sync_parent(const char *path);
/* Is a file's content fully durable? */
bool disk_is_durable(const disk_node *n);
/* How long a sync takes. */
int64_t disk_sync_ns(void);

/* What a power cut does to the changes that are not durable.  Names are lost or
 * kept independently of contents. */
#define DISK_CUT_LIST(X)                                                   \
  X(NONE, none)       /* all are lost */                                   \
  X(ALL, all)         /* all are there */                                  \
  X(PREFIX, prefix)   /* all files stop at one moment, inside a change */  \
  X(ZEROS, zeros)     /* all are lost, but files have grown, over zeros */ \
  X(RUBBISH, rubbish) /* or over rubbish */                                \
  X(SUBSET, subset)   /* each is there, lost or torn */                    \
  X(SHUFFLE, shuffle) /* the same in any order */                          \
  X(SECTORS, sectors) /* each sector of each is there or lost */           \
  X(FILES, files)     /* each file stops at its own moment, or has all */

#define DISK_CUT_ENUM(name, text) CUT_##name,
typedef enum disk_cut { DISK_CUT_LIST(DISK_CUT_ENUM) CUT_STYLES } disk_cut;
#undef DISK_CUT_ENUM

/* Figures: cuts of each style that met changes that were not durable, writes
 * that they tore, names that they took back. */
typedef struct disk_figures {
  int64_t cuts[CUT_STYLES], torn, names;
} disk_figures;
extern disk_figures disk_count;

/* The power goes: all processes, locks and bytes in FIFOs are lost. */
void disk_power_cut(disk_cut style);

#endif
