/* alone.c - has another SQLite library the file open?
 *
 * The kernel drops a process's locks on a file when the process closes any
 * descriptor of it.  An SQLite library handles this by sharing its descriptors,
 * but two of them in one process do not know of each other.  Each opens the
 * WAL-index, the -shm, once for all of its connections.  So a second descriptor
 * of it belongs to another library.
 */
#include "extension.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
  ALONE_MS = 900, /* the shortest time between two checks, */
  EACH_MS = 10000 /* and if as many descriptors are open as before */
};

/* How many descriptors of the process are of this file.  Without /proc: none
 * can be seen. */
static int count_descriptors(const struct stat *file) {
  int count = 0;
  struct stat st;
  DIR *all = opendir("/proc/self/fd");
  if (!all) return 0;
  for (const struct dirent *e; (e = readdir(all)) != NULL;)
    if (fstatat(dirfd(all), e->d_name, &st, 0) == 0 &&
        st.st_dev == file->st_dev && st.st_ino == file->st_ino)
      count++;
  closedir(all);
  return count;
}

/* Are as many descriptors open as at the last check of each?  Then new ones can
 * only have replaced others.  Linux reports their number from 6.2 on. */
static bool are_as_many(ext_connection *k, int64_t now) {
  struct stat st;
  int64_t open = stat("/proc/self/fd", &st) == 0 ? st.st_size : 0;
  if (open && open == k->open && now - k->open_ms < EACH_MS) return true;
  k->open = open;
  k->open_ms = now;
  return false;
}

int ext_alone(ext_connection *k) {
  int64_t now = zke_now(k->z);
  if (k->looked_ms && now - k->looked_ms < ALONE_MS) return ZKE_OK;
  bool unchanged = k->looked_ms && are_as_many(k, now);
  k->looked_ms = now;
  if (unchanged) return ZKE_OK;
  const char *file = ext_file(k);
  struct stat st;
  char *path = file ? sqlite3_mprintf("%s-shm", file) : NULL;
  bool another = path && stat(path, &st) == 0 && count_descriptors(&st) > 1;
  sqlite3_free(path);
  if (!another) return ZKE_OK;
  k->looked_ms = k->open = 0; /* the next call checks each again */
  return zke_fail(
      ZKE_SYSTEMERROR,
      "another SQLite library of this process has %s open, and each "
      "drops the other's locks: use one library, or zkembed from "
      "another process",
      file);
}
