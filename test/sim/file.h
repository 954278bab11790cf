/* file.h - descriptors, open file descriptions, their locks, and FIFOs
 *
 * Functions that make a descriptor return it, or a negative errno.
 */
#ifndef ZKE_SIM_FILE_H
#define ZKE_SIM_FILE_H

#include "test/sim/disk.h"
#include "test/sim/sched.h"

enum { FILE_DESCRIPTORS = 256, FILE_MEMBERS = 160 };

typedef enum file_kind { FILE_DISK, FILE_POLLER, FILE_TIMER } file_kind;

/* A descriptor that a poller watches. */
typedef struct file_member {
  struct file_open *o;
  int fd;
  bool for_reading;
} file_member;

/* An open file description. */
typedef struct file_open {
  file_kind kind;
  int refs; /* descriptors */
  disk_node *n;
  bool reads, writes;
  int writings; /* of its FIFO, when it was opened */
  int64_t due;  /* a timer's; 0: never */
  file_member *member;
  int members;
  struct file_open *next_poller;
} file_open;

/* The kernel's data of a process. */
typedef struct file_table {
  file_open *fd[FILE_DESCRIPTORS];
  struct vfs_file *handles; /* SQLite's: vfs.c */
} file_table;

/* For a new process: empty, or with another process's descriptors. */
file_table *file_table_new(const file_table *from);
/* Close one of a dead process's descriptors, in random order; false: none is
 * left. */
bool file_reap_one(file_table *t);
/* A process's number of descriptors. */
int file_count(const file_table *t);

/* The running process's description; a number that is not open is a finding. */
file_open *file_get(int fd);

int file_open_node(disk_node *n, bool reads, bool writes);
int file_open_kind(file_kind kind);
int file_dup(int fd);
void file_close(int fd);

/* FIFOs: a number of bytes, or a negative errno. */
int64_t file_fifo_read(disk_node *n, void *out, size_t size);
int64_t file_fifo_write(disk_node *n, const void *data, size_t size);

/* file_lock - take or drop a range: false: another description has some of it
 * file_find_lock - any lock of another description in the range, or NULL */
bool file_lock(file_open *o, int64_t from, int64_t count, bool take);
const disk_lock *file_find_lock(const file_open *o, int64_t from,
                                int64_t count);
/* Does a process hold a lock on a byte of a file? */
bool file_process_has_lock(const sched_process *p, const disk_node *n,
                           int64_t at);

#endif
