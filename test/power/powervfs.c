/* powervfs.c - see powervfs.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "powervfs.h"
#include "test/seam.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES = 8, MOVES = 16, SECTOR = 512 };

uint64_t power_random(uint64_t *state, uint64_t limit) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (x ^ (x >> 31)) % limit;
}

/* A broken model gives no valid findings: stop. */
static void insist(bool sound, const char *what) {
  if (sound) return;
  fprintf(stderr, "powervfs: %s\n", what);
  abort();
}

/* ---- contents ---- */

typedef struct content {
  unsigned char *data;
  int64_t size, room;
} content;

/* Set the length; new bytes are zero. */
static void content_resize(content *c, int64_t size) {
  if (size > c->room) {
    c->room = size * 2;
    c->data = realloc(c->data, (size_t)c->room);
    insist(c->data != NULL, "out of memory");
  }
  if (size > c->size) memset(c->data + c->size, 0, (size_t)(size - c->size));
  c->size = size;
}

static void content_write(content *c, const unsigned char *data, int64_t at,
                          int64_t size) {
  if (size <= 0) return;
  if (at + size > c->size) content_resize(c, at + size);
  memcpy(c->data + at, data, (size_t)size);
}

static content content_copy(const content *from) {
  content c = {0};
  content_write(&c, from->data, 0, from->size);
  return c;
}

/* Read a file that already existed. */
static void content_load(content *c, const char *path) {
  struct stat s;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  insist(fd >= 0 && fstat(fd, &s) == 0, "cannot read a file");
  content_resize(c, s.st_size);
  insist(!s.st_size || read(fd, c->data, (size_t)s.st_size) == s.st_size,
         "cannot read a file");
  close(fd);
}

static void content_store(const content *c, const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  insist(fd >= 0, "cannot make a file");
  insist(!c->size || write(fd, c->data, (size_t)c->size) == c->size,
         "cannot write a file");
  close(fd);
}

/* ---- the disk ---- */

/* A write, or a truncation to `at`. */
typedef struct change {
  struct change *next;
  int64_t number; /* of all the disk's changes, in order */
  bool truncation;
  int64_t at;
  int size;
  unsigned char data[];
} change;

typedef struct inode {
  struct inode *next; /* the next of all */
  content durable;
  change *first, **last; /* since the last sync */
  int count, writes;     /* all, and those that are no truncations */
} inode;

/* A name and the inodes it had since the last sync; NULL: none. */
typedef struct name {
  char name[64];
  inode *durable;
  int moves; /* since the directory's last sync */
  struct {
    int64_t number;
    inode *to;
  } move[MOVES];
} name;

static struct {
  char directory[PATH_MAX];
  power_hook hook;
  const char *bad;  /* the name whose syncs fail, or NULL */
  int fail, failed; /* how many will, and did */
  int64_t number;   /* of the last change */
  inode *inodes;
  int names;
  name name[NAMES];
} disk;

static void tell(power_event event) {
  if (disk.hook) disk.hook(event);
}

static inode *inode_new(void) {
  inode *i = calloc(1, sizeof *i);
  insist(i != NULL, "out of memory");
  i->last = &i->first;
  i->next = disk.inodes;
  return disk.inodes = i;
}

/* All changes have become durable, or are lost. */
static void inode_forget_changes(inode *i) {
  while (i->first) {
    change *c = i->first;
    i->first = c->next;
    free(c);
  }
  i->last = &i->first;
  i->count = i->writes = 0;
}

/* Note a write or a truncation, not yet synced. */
static void inode_change(inode *i, bool truncation, int64_t at,
                         const void *data, int size) {
  change *c = malloc(sizeof *c + (size_t)size);
  insist(c != NULL, "out of memory");
  *c = (change){.number = ++disk.number,
                .truncation = truncation,
                .at = at,
                .size = size};
  if (size) memcpy(c->data, data, (size_t)size);
  *i->last = c;
  i->last = &c->next;
  i->count++;
  i->writes += !truncation;
}

/* Apply the part of a change that reached the disk. */
static void change_apply(const change *c, content *to, int64_t from,
                         int64_t end) {
  if (c->truncation) {
    content_resize(to, c->at);
  } else {
    content_write(to, c->data + (from - c->at), from, end - from);
  }
}

static void inode_sync(inode *i) {
  for (const change *c = i->first; c; c = c->next) {
    change_apply(c, &i->durable, c->at, c->at + c->size);
  }
  inode_forget_changes(i);
}

static inode *name_now(const name *n) {
  return n->moves ? n->move[n->moves - 1].to : n->durable;
}

static void name_move(name *n, inode *to) {
  insist(n->moves < MOVES, "a directory is never synced");
  n->move[n->moves].number = ++disk.number;
  n->move[n->moves++].to = to;
}

/* The name of a file in the modelled directory, or NULL. */
static const char *name_within(const char *path) {
  size_t len = strlen(disk.directory);
  if (!path || strncmp(path, disk.directory, len) != 0 || path[len] != '/')
    return NULL;
  return strchr(path + len + 1, '/') ? NULL : path + len + 1;
}

static name *name_find(const char *text) {
  for (int i = 0; i < disk.names; i++) {
    if (strcmp(disk.name[i].name, text) == 0) return &disk.name[i];
  }
  return NULL;
}

/* The directory's entry of a name, made if it is missing. */
static name *name_make(const char *text) {
  name *n = name_find(text);
  if (n) return n;
  insist(disk.names < NAMES, "too many names");
  n = &disk.name[disk.names++];
  *n = (name){.durable = NULL};
  snprintf(n->name, sizeof n->name, "%s", text);
  return n;
}

/* The directory is synced. */
static void sync_names(void) {
  tell(POWER_SYNC_NAMES);
  for (int i = 0; i < disk.names; i++) {
    disk.name[i].durable = name_now(&disk.name[i]);
    disk.name[i].moves = 0;
  }
}

void power_fail(const char *text, int syncs) {
  disk.bad = text;
  disk.fail = syncs;
  disk.failed = 0;
}

int power_failed(void) { return disk.failed; }

int power_unsynced(const char *text) {
  const name *n = name_find(text);
  const inode *i = n ? name_now(n) : NULL;
  return i ? i->writes : 0;
}

int power_unsynced_names(void) {
  int count = 0;
  for (int i = 0; i < disk.names; i++) {
    count += name_now(&disk.name[i]) != disk.name[i].durable;
  }
  return count;
}

/* ---- what a cut leaves ---- */

typedef struct cut {
  power_style style;
  uint64_t *random;
  int64_t stop; /* POWER_PREFIX: the change that is torn */
  power_loss *loss;
} cut;

static bool cut_chance(const cut *k, uint64_t one_in) {
  return power_random(k->random, one_in) == 0;
}

/* Apply the first or the last sectors of a write. */
static void cut_tear(const cut *k, const change *c, content *to) {
  int64_t end = c->at + c->size, first = c->at / SECTOR + 1;
  int64_t inside = (end - 1) / SECTOR - first + 1; /* boundaries within */
  k->loss->torn++;
  if (c->truncation || inside < 1) return;
  int64_t at = first + (int64_t)power_random(k->random, (uint64_t)inside);
  if (cut_chance(k, 2) || k->style == POWER_PREFIX) {
    change_apply(c, to, c->at, at * SECTOR);
  } else {
    change_apply(c, to, at * SECTOR, end);
  }
}

/* Each sector of a write either arrives or does not. */
static void cut_sectors(const cut *k, const change *c, content *to) {
  int64_t end = c->at + c->size;
  for (int64_t at = c->at; at < end;) {
    int64_t next = (at / SECTOR + 1) * SECTOR;
    if (next > end) next = end;
    if (cut_chance(k, 2)) change_apply(c, to, at, next);
    at = next;
  }
  k->loss->torn++;
}

/* What happens to a change. */
enum fate { KEPT, LOST, TORN };

/* Is a change kept, lost or torn?  The style decides, and chance. */
static enum fate cut_fate(const cut *k, const change *c) {
  switch (k->style) {
    case POWER_NONE:
    case POWER_ZEROS:
    case POWER_RUBBISH:
      return LOST;
    case POWER_ALL:
      return KEPT;
    case POWER_PREFIX:
      if (c->number == k->stop) return TORN;
      return c->number < k->stop ? KEPT : LOST;
    default:
      return (enum fate)power_random(k->random, 3);
  }
}

/* Apply a change according to its fate. */
static void cut_change(const cut *k, const change *c, content *to) {
  if (k->style == POWER_SECTORS && !c->truncation) {
    cut_sectors(k, c, to);
    return;
  }
  switch (cut_fate(k, c)) {
    case KEPT:
      change_apply(c, to, c->at, c->at + c->size);
      k->loss->kept++;
      break;
    case LOST:
      k->loss->lost++;
      break;
    default:
      cut_tear(k, c, to);
  }
}

/* A file's new length can reach the disk before its new bytes; then these are
 * zeros or the disk's old bytes. */
static void cut_grow(const cut *k, const inode *i, content *to) {
  int64_t end = 0, from = to->size;
  bool any = k->style >= POWER_SUBSET && cut_chance(k, 2);
  bool rubbish = k->style == POWER_RUBBISH || (any && cut_chance(k, 2));
  for (const change *c = i->first; c; c = c->next) {
    if (!c->truncation && c->at + c->size > end) end = c->at + c->size;
  }
  if (end <= from || (!any && !rubbish && k->style != POWER_ZEROS)) return;
  content_resize(to, end);
  for (int64_t at = from; at < end && rubbish; at++) {
    to->data[at] = (unsigned char)power_random(k->random, 256);
  }
}

/* A possible content of a file after a cut: its durable content and those of
 * the changes that arrived. */
static content cut_inode(const cut *k, const inode *i) {
  content result = content_copy(&i->durable);
  int n = 0;
  const change **order = calloc((size_t)i->count + 1, sizeof *order);
  insist(order != NULL, "out of memory");
  for (const change *c = i->first; c; c = c->next) order[n++] = c;
  for (int at = n - 1; at > 0 && k->style == POWER_SHUFFLE; at--) {
    int other = (int)power_random(k->random, (uint64_t)at + 1);
    const change *c = order[at];
    order[at] = order[other];
    order[other] = c;
    k->loss->reordered += other != at;
  }
  for (int at = 0; at < n; at++) cut_change(k, order[at], &result);
  cut_grow(k, i, &result);
  free(order);
  return result;
}

/* The inode of a name after the cut. */
static const inode *cut_name(const cut *k, const name *n) {
  int kept = 0;
  if (k->style == POWER_ALL) {
    kept = n->moves;
  } else if (k->style == POWER_PREFIX) {
    while (kept < n->moves && n->move[kept].number < k->stop) kept++;
  } else if (k->style != POWER_NONE) {
    kept = (int)power_random(k->random, (uint64_t)n->moves + 1);
  }
  k->loss->kept += kept;
  k->loss->lost += n->moves - kept;
  return kept ? n->move[kept - 1].to : n->durable;
}

/* The number of the oldest unsynced change. */
static int64_t oldest_change(void) {
  int64_t oldest = disk.number;
  for (const inode *i = disk.inodes; i; i = i->next) {
    if (i->first && i->first->number < oldest) oldest = i->first->number;
  }
  return oldest;
}

void power_image(const char *directory, power_style style, uint64_t *random,
                 power_loss *loss) {
  int64_t oldest = oldest_change(), span = disk.number - oldest + 1;
  cut k = {.style = style, .random = random, .loss = loss};
  k.stop = oldest + (int64_t)power_random(random, (uint64_t)span + 1);
  for (int i = 0; i < disk.names; i++) {
    char path[PATH_MAX + 80];
    const inode *file = cut_name(&k, &disk.name[i]);
    if (!file) continue;
    content c = cut_inode(&k, file);
    snprintf(path, sizeof path, "%s/%s", directory, disk.name[i].name);
    content_store(&c, path);
    free(c.data);
  }
}

/* ---- the VFS ---- */

/* The record of an open file; empty if the file is not modelled. */
typedef struct power_file {
  inode *inode;
  bool syncs_names; /* its next sync also syncs the directory */
} power_file;

static void before_write(seam_call *c) {
  if (*c->own) tell(c->kind == SEAM_xWrite ? POWER_WRITE : POWER_TRUNCATE);
}

static void after_write(seam_call *c) {
  const power_file *file = *c->own;
  if (file && c->result == SQLITE_OK)
    inode_change(file->inode, c->kind == SEAM_xTruncate, c->at, c->data,
                 (int)c->size);
}

/* Must this sync fail?  Then the disk loses the changes. */
static bool fails_for(inode *i) {
  const name *n = disk.bad ? name_find(disk.bad) : NULL;
  if (!disk.fail || !n || name_now(n) != i) return false;
  disk.fail--;
  disk.failed++;
  inode_forget_changes(i);
  return true;
}

/* With the first sync of a journal or log that it may have made, the unix VFS
 * also syncs the directory. */
static void before_sync(seam_call *c) {
  power_file *file = *c->own;
  if (!file) return;
  tell(POWER_SYNC);
  seam_refuse(c, fails_for(file->inode) ? SQLITE_IOERR_FSYNC : SQLITE_OK);
  if (c->result != SQLITE_OK) return;
  inode_sync(file->inode);
  if (file->syncs_names) sync_names();
  file->syncs_names = false;
}

static void before_lock(seam_call *c) {
  int unlock = SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE;
  if (c->at == 0 && c->how == unlock) tell(POWER_PUBLISH);
}

/* Does this open make a file in the directory? */
static bool makes(const seam_call *c) {
  const char *text = name_within(c->path);
  return text && !name_now(name_make(text)) && (c->how & SQLITE_OPEN_CREATE);
}

static void before_open(seam_call *c) {
  if (makes(c)) tell(POWER_CREATE);
}

/* Note an opened file of the directory. */
static void after_open(seam_call *c) {
  const char *text = name_within(c->path);
  int logs = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
  if (c->result != SQLITE_OK || !text) return;
  if (makes(c)) name_move(name_make(text), inode_new());
  inode *i = name_now(name_make(text));
  if (!i) return;
  power_file *file = malloc(sizeof *file);
  insist(file != NULL, "out of memory");
  file->inode = i;
  file->syncs_names = (c->how & SQLITE_OPEN_CREATE) && (c->how & logs);
  *c->own = file;
}

static void before_close(seam_call *c) { free(*c->own); }

/* The name of a file that is being deleted: it disappears, but can come back
 * until the directory is synced. */
static name *name_to_delete(const seam_call *c) {
  const char *text = name_within(c->path);
  name *n = text ? name_find(text) : NULL;
  return n && name_now(n) ? n : NULL;
}

static void before_delete(seam_call *c) {
  if (name_to_delete(c)) tell(POWER_DELETE);
}

static void after_delete(seam_call *c) {
  name *n = name_to_delete(c);
  if (!n || c->result != SQLITE_OK) return;
  name_move(n, NULL);
  if (c->how) sync_names();
}

/* ---- the machine ---- */

static uint64_t side_inode = 2000; /* the side directory's first one */

static bool ends_with(const char *text, const char *end) {
  size_t len = strlen(text), tail = strlen(end);
  return len >= tail && strcmp(text + len - tail, end) == 0;
}

/* Files outside the side directory keep their inodes through a cut, even though
 * the child makes the disk's files anew. */
static uint64_t inode_of(const char *path) {
  const char *shard = strstr(path, "/live.");
  if (shard) return side_inode + 100 + strtoul(shard + 6, NULL, 16);
  if (ends_with(path, "/live")) return side_inode;
  if (ends_with(path, "/gate")) return side_inode + 1;
  if (ends_with(path, "-wal")) return 3;
  return ends_with(path, "-shm") ? 4 : 1;
}

static void tell_inode(seam_call *c) {
  char link[64], path[4096] = "";
  if (c->result < 0 || c->out->type != ZKE_FILE_REGULAR) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", c->fd);
  if (!c->path && readlink(link, path, sizeof path - 1) < 0) abort();
  c->out->device = 1;
  c->out->inode = inode_of(c->path ? c->path : path);
}

static void sync_directory(seam_call *c) {
  if (seam_type(c->fd) == ZKE_FILE_DIRECTORY) sync_names();
  seam_refuse(c, 0);
}

static void tell_pid(seam_call *c) { seam_refuse(c, 1000); }

/* The real function reads /proc/thread-self.  That is slow when a thread and
 * then its process end immediately, as children do here: the parent's waitpid()
 * spins in the kernel while the thread's part of /proc is removed. */
static void no_offset(seam_call *c) {
  *(int64_t *)c->data = 0;
  seam_refuse(c, 0);
}

static seam machine = {.vfs = "unix-power",
                       .before = {[SEAM_pid] = tell_pid,
                                  [SEAM_fsync] = sync_directory,
                                  [SEAM_boot_offset] = no_offset,
                                  [SEAM_xOpen] = before_open,
                                  [SEAM_xDelete] = before_delete,
                                  [SEAM_xClose] = before_close,
                                  [SEAM_xWrite] = before_write,
                                  [SEAM_xTruncate] = before_write,
                                  [SEAM_xSync] = before_sync,
                                  [SEAM_xShmLock] = before_lock},
                       .after = {[SEAM_stat] = tell_inode,
                                 [SEAM_fstat] = tell_inode,
                                 [SEAM_xOpen] = after_open,
                                 [SEAM_xDelete] = after_delete,
                                 [SEAM_xWrite] = after_write,
                                 [SEAM_xTruncate] = after_write}};

void power_machine(zke_os *os) { *os = *seam_os(&machine); }

void power_lose_side(void) { side_inode += 1000; }

/* ---- beginning ---- */

/* Forget all files. */
static void disk_clear(void) {
  while (disk.inodes) {
    inode *i = disk.inodes;
    disk.inodes = i->next;
    inode_forget_changes(i);
    free(i->durable.data);
    free(i);
  }
  memset(&disk, 0, sizeof disk);
}

static bool is_modelled(const struct dirent *e) {
  size_t len = strlen(e->d_name);
  bool shared = len > 4 && strcmp(e->d_name + len - 4, "-shm") == 0;
  return e->d_type == DT_REG && !shared;
}

void power_begin(const char *directory, power_hook hook) {
  const struct dirent *e;
  disk_clear();
  seam_vfs(&machine);
  insist(realpath(directory, disk.directory) != NULL, "no such directory");
  DIR *d = opendir(directory);
  insist(d != NULL, "no such directory");
  while ((e = readdir(d))) {
    char path[PATH_MAX + 256];
    if (!is_modelled(e)) continue;
    snprintf(path, sizeof path, "%s/%s", disk.directory, e->d_name);
    name *n = name_make(e->d_name);
    n->durable = inode_new();
    content_load(&n->durable->durable, path);
  }
  closedir(d);
  disk.hook = hook;
}

void power_doubt(const char *text) {
  const name *n = name_find(text);
  insist(n && n->durable, "no such file");
  content all = n->durable->durable;
  n->durable->durable = (content){0};
  inode_change(n->durable, false, 0, all.data, (int)all.size);
  free(all.data);
}
