/* disk.c - see disk.h */
#include "test/sim/disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTOR = 512, BUCKETS = 128, SPARE = 64 };

/* A write, or a truncation to `at`. */
typedef struct disk_change {
  struct disk_change *next;
  int64_t number; /* counted over all changes of the disk */
  bool truncation;
  int64_t at, size;
  unsigned char data[];
} change;

/* The file that a path stands for. */
typedef struct name {
  struct name *next;
  char path[DISK_PATH];
  disk_node *now, *durable;
  int64_t number; /* of its last change */
} name;

static struct {
  disk_node *nodes;
  name *bucket[BUCKETS];
  uint64_t inodes;
  uint64_t spare[SPARE]; /* inodes that may be used again */
  int spares;
  int64_t number; /* the last change's */
} disk;

/* The disk's own random numbers, so that it does not disturb other
 * sequences. */
static uint64_t disk_random(uint64_t below) {
  return sim_random(SIM_DISK, below);
}

/* ---- contents ---- */

/* Cut it, or extend it with zeros. */
static void content_resize(disk_content *c, int64_t size) {
  if (size > c->room) {
    c->room = size * 2;
    c->data = sim_resize(c->data, (size_t)c->room);
  }
  if (size > c->size) memset(c->data + c->size, 0, (size_t)(size - c->size));
  c->size = size;
}

/* Write; a gap before it is filled with zeros. */
static void content_write(disk_content *c, const unsigned char *data,
                          int64_t at, int64_t size) {
  if (size <= 0) return;
  if (at + size > c->size) content_resize(c, at + size);
  memcpy(c->data + at, data, (size_t)size);
}

/* ---- files ---- */

/* May use the number of an inode that was freed, as file systems do. */
disk_node *disk_anonymous(disk_type type, unsigned mode) {
  disk_node *n = sim_zero(sizeof *n);
  n->type = type;
  n->mode = mode;
  n->last = &n->first;
  n->inode = 100 + ++disk.inodes;
  if (disk.spares && sim_chance(SIM_KERNEL, 1, 2))
    n->inode = disk.spare[--disk.spares];
  n->next = disk.nodes;
  disk.nodes = n;
  return n;
}

/* Has it a durable name? */
static bool is_named_durably(const disk_node *n) {
  for (int i = 0; i < BUCKETS; i++)
    for (const name *m = disk.bucket[i]; m; m = m->next)
      if (m->durable == n) return true;
  return false;
}

/* Call this after anything that may have removed the last reason to keep the
 * file. */
void disk_settle(disk_node *n) {
  if (n->links || n->opens || n->handles || n->shm || !n->inode) return;
  if (is_named_durably(n)) return;
  if (disk.spares < SPARE) disk.spare[disk.spares++] = n->inode;
  n->inode = 0;
}

/* ---- changes ---- */

/* Apply the part of a change that is in a range.  A truncation has no parts. */
static void change_apply(const change *c, disk_content *to, int64_t from,
                         int64_t end) {
  if (c->truncation)
    content_resize(to, c->at);
  else
    content_write(to, c->data + (from - c->at), from, end - from);
}

/* Apply a whole change. */
static void change_apply_all(const change *c, disk_content *to) {
  change_apply(c, to, c->at, c->at + c->size);
}

/* Record a change, which all processes see immediately. */
static void node_change(disk_node *n, bool truncation, int64_t at,
                        const void *data, int64_t size) {
  change *c = sim_resize(NULL, sizeof *c + (size_t)size);
  *c = (change){.number = ++disk.number,
                .truncation = truncation,
                .at = at,
                .size = size};
  if (size) memcpy(c->data, data, (size_t)size);
  *n->last = c;
  n->last = &c->next;
  n->changes++;
  change_apply_all(c, &n->now);
}

/* What processes see; less at the end of the file. */
int64_t disk_read(const disk_node *n, void *out, int64_t at, int64_t size) {
  if (at >= n->now.size) return 0;
  if (size > n->now.size - at) size = n->now.size - at;
  memcpy(out, n->now.data + at, (size_t)size);
  return size;
}

/* Processes see it immediately; a power cut may lose it. */
void disk_write(disk_node *n, const void *data, int64_t at, int64_t size) {
  if (size <= 0) return;
  sim_trace((uint64_t)at);
  sim_trace_bytes(data, (size_t)size);
  node_change(n, false, at, data, size);
}

/* Like disk_write(). */
void disk_truncate(disk_node *n, int64_t size) {
  node_change(n, true, size, NULL, 0);
}

/* For a -shm: its content is memory, and a power cut destroys all of it. */
void disk_set_size(disk_node *n, int64_t size) {
  content_resize(&n->now, size);
}

/* Faults make the disk full for a while (plan.h). */
int disk_no_room(int64_t bytes) {
  if (bytes <= 0) return 0;
  if (sim.now < sim.full_until) return ENOSPC;
  if (sim.now >= sim.quota_until) return 0;
  if (bytes > sim.quota_left) return EDQUOT;
  sim.quota_left -= bytes;
  return 0;
}

/* ---- syncs ---- */

/* Called when a sync begins.  It promises nothing for later writes. */
int64_t disk_mark(void) { return disk.number; }

/* The oldest change is durable, or forgotten. */
static void change_drop(disk_node *n) {
  change *c = n->first;
  n->first = c->next;
  if (!n->first) n->last = &n->first;
  n->changes--;
  free(c);
}

/* A failed sync writes any part.  The rest counts as written from then on: the
 * next sync neither writes it nor reports it. */
void disk_sync(disk_node *n, int64_t mark, bool fails) {
  while (n->first && n->first->number <= mark) {
    if (!fails || disk_random(2)) change_apply_all(n->first, &n->durable);
    change_drop(n);
  }
}

/* The changes that it has not reached stay pending: another sync, by a living
 * process, writes them. */
void disk_sync_part(disk_node *n, int64_t mark, int thousandths) {
  int left = n->changes * thousandths / 1000;
  while (left-- > 0 && n->first && n->first->number <= mark) {
    change_apply_all(n->first, &n->durable);
    change_drop(n);
  }
}

bool disk_is_durable(const disk_node *n) {
  return n->now.size == n->durable.size &&
         (!n->now.size ||
          memcmp(n->now.data, n->durable.data, (size_t)n->now.size) == 0);
}

/* Random, from a fast disk to a slow one. */
int64_t disk_sync_ns(void) { return 50000 + (int64_t)disk_random(3000000); }

/* ---- names ---- */

/* The list for a path's name. */
static name **bucket_of(const char *path) {
  uint32_t hash = 2166136261u;
  for (; *path; path++) hash = (hash ^ (unsigned char)*path) * 16777619u;
  return &disk.bucket[hash % BUCKETS];
}

/* The name, or NULL; it may stand for nothing now. */
static name *name_find(const char *path) {
  for (name *m = *bucket_of(path); m; m = m->next)
    if (strcmp(m->path, path) == 0) return m;
  return NULL;
}

/* The directory of a path. */
static void parent_of(const char *path, char out[DISK_PATH]) {
  snprintf(out, DISK_PATH, "%s", path);
  char *slash = strrchr(out, '/');
  if (slash) *slash = '\0';
}

/* Is a path directly in the directory? */
static bool is_below(const char *path, const char *directory) {
  size_t len = strlen(directory);
  return strncmp(path, directory, len) == 0 && path[len] == '/' &&
         !strchr(path + len + 1, '/');
}

/* From now on the path stands for n, or for nothing. */
static void name_set(const char *path, disk_node *n) {
  name *m = name_find(path);
  if (!m) {
    name **at = bucket_of(path);
    m = sim_zero(sizeof *m);
    snprintf(m->path, sizeof m->path, "%s", path);
    m->next = *at;
    *at = m;
  }
  disk_node *old = m->now;
  m->now = n;
  m->number = ++disk.number;
  if (n) n->links++;
  if (!old) return;
  old->links--;
  disk_settle(old);
}

/* Forget the names that stand for nothing, now and durably. */
static void names_tidy(void) {
  for (int i = 0; i < BUCKETS; i++) {
    for (name **at = &disk.bucket[i]; *at;) {
      name *m = *at;
      if (m->now || m->durable) {
        at = &m->next;
        continue;
      }
      *at = m->next;
      free(m);
    }
  }
}

/* See disk.h; a name without a file does not count. */
disk_node *disk_find(const char *path) {
  const name *m = name_find(path);
  return m ? m->now : NULL;
}

/* Can a file be made there? */
bool disk_parent_exists(const char *path) {
  char parent[DISK_PATH];
  parent_of(path, parent);
  const disk_node *n = disk_find(parent);
  return n && n->type == DISK_DIRECTORY;
}

/* Does its directory exist, and is it one? */
int disk_missing(const char *path) {
  char parent[DISK_PATH];
  parent_of(path, parent);
  const disk_node *n = disk_find(parent);
  return n && n->type != DISK_DIRECTORY ? -ENOTDIR : -ENOENT;
}

/* The name becomes durable when its directory is synced. */
disk_node *disk_add(const char *path, disk_type type, unsigned mode) {
  if (strlen(path) >= DISK_PATH) sim_bug("a long path: %s", path);
  disk_node *n = disk_anonymous(type, mode);
  name_set(path, n);
  return n;
}

/* Also not durable yet: after a power cut the file may exist again. */
void disk_remove(const char *path) {
  name_set(path, NULL);
  names_tidy();
}

/* For qsort(): compare names. */
void disk_rename(const char *from, const char *to) {
  name_set(to, disk_find(from));
  disk_remove(from);
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Sorted, so independent of the order of the buckets. */
int disk_list(const char *path, char (**out)[DISK_PATH]) {
  int count = 0;
  size_t skip = strlen(path) + 1;
  *out = NULL;
  for (int i = 0; i < BUCKETS; i++) {
    for (const name *m = disk.bucket[i]; m; m = m->next) {
      if (!m->now || !is_below(m->path, path)) continue;
      *out = sim_resize(*out, (size_t)(count + 1) * sizeof **out);
      snprintf((*out)[count++], DISK_PATH, "%s", m->path + skip);
    }
  }
  if (count) qsort(*out, (size_t)count, sizeof **out, by_text);
  return count;
}

/* The names in a directory become durable as they are now. */
static void sync_below(const char *directory) {
  for (int i = 0; i < BUCKETS; i++)
    for (name *m = disk.bucket[i]; m; m = m->next)
      if (is_below(m->path, directory)) m->durable = m->now;
  names_tidy();
}

/* The directory is given by its file, like in a descriptor; it has one name. */
void disk_sync_names(const disk_node *directory) {
  for (int i = 0; i < BUCKETS; i++) {
    for (const name *m = disk.bucket[i]; m; m = m->next) {
      if (m->now != directory) continue;
      sync_below(m->path);
      return;
    }
  }
}

/* Like SQLite after it has made or deleted a journal. */
void disk_sync_parent(const char *path) {
  char parent[DISK_PATH];
  parent_of(path, parent);
  sync_below(parent);
}

/* The directory is durable, and empty. */
void disk_begin(const char *directory) {
  disk_add(directory, DISK_DIRECTORY, 0755);
  name_find(directory)->durable = disk_find(directory);
}

/* ---- a power cut ---- */

disk_figures disk_count;

typedef struct cut {
  disk_cut style;
  int64_t stop; /* the change that is torn: of all, or of this file */
} cut;

enum fate { KEPT, LOST, TORN };

/* Decided by the style, and at random. */
static enum fate cut_fate(const cut *k, const change *c) {
  switch (k->style) {
    case CUT_NONE:
    case CUT_ZEROS:
    case CUT_RUBBISH:
      return LOST;
    case CUT_ALL:
      return KEPT;
    case CUT_PREFIX:
    case CUT_FILES:
      if (c->number == k->stop) return TORN;
      return c->number < k->stop ? KEPT : LOST;
    default:
      return (enum fate)disk_random(3);
  }
}

/* Apply the first or the last sectors of a write. */
static void cut_tear(const cut *k, const change *c, disk_content *to) {
  int64_t end = c->at + c->size, first = c->at / SECTOR + 1;
  int64_t inside = (end - 1) / SECTOR - first + 1; /* boundaries within */
  if (c->truncation || inside < 1) return;
  int64_t at = (first + (int64_t)disk_random((uint64_t)inside)) * SECTOR;
  disk_count.torn++;
  if (k->style == CUT_PREFIX || disk_random(2))
    change_apply(c, to, c->at, at);
  else
    change_apply(c, to, at, end);
}

/* Each sector of a write arrives or not. */
static void cut_sectors(const change *c, disk_content *to) {
  int64_t end = c->at + c->size;
  for (int64_t at = c->at, next; at < end; at = next) {
    next = (at / SECTOR + 1) * SECTOR;
    if (next > end) next = end;
    if (disk_random(2)) change_apply(c, to, at, next);
  }
}

/* Apply to the durable content what the style leaves of a change. */
static void cut_change(const cut *k, const change *c, disk_content *to) {
  if (k->style == CUT_SECTORS && !c->truncation) {
    cut_sectors(c, to);
    return;
  }
  enum fate f = cut_fate(k, c);
  if (f == KEPT) change_apply_all(c, to);
  if (f == TORN) cut_tear(k, c, to);
}

/* A file's length can reach the disk before its new bytes. */
static void cut_grow(const cut *k, const disk_node *n, disk_content *to) {
  int64_t end = 0, from = to->size;
  bool any = k->style >= CUT_SUBSET && disk_random(2);
  bool rubbish = k->style == CUT_RUBBISH || (any && disk_random(2));
  for (const change *c = n->first; c; c = c->next)
    if (!c->truncation && c->at + c->size > end) end = c->at + c->size;
  if (end <= from || (!any && !rubbish && k->style != CUT_ZEROS)) return;
  content_resize(to, end);
  for (int64_t at = from; at < end && rubbish; at++)
    to->data[at] = (unsigned char)disk_random(256);
}

/* For a style in which each file stops at its own moment: choose any of its
 * changes, or one after the last. */
static void cut_choose(cut *k, const disk_node *n) {
  const change *c = n->first;
  if (k->style != CUT_FILES || !c) return;
  uint64_t skip = disk_random((uint64_t)n->changes + 1);
  while (c && skip-- > 0) c = c->next;
  k->stop = c ? c->number : INT64_MAX;
}

/* What is left of a file becomes its content for everyone. */
static void cut_node(cut *k, disk_node *n) {
  int count = 0;
  const change **order = sim_zero(((size_t)n->changes + 1) * sizeof *order);
  for (const change *c = n->first; c; c = c->next) order[count++] = c;
  for (int i = count - 1; i > 0 && k->style == CUT_SHUFFLE; i--) {
    int other = (int)disk_random((uint64_t)i + 1);
    const change *c = order[i];
    order[i] = order[other];
    order[other] = c;
  }
  cut_choose(k, n);
  for (int i = 0; i < count; i++) cut_change(k, order[i], &n->durable);
  cut_grow(k, n, &n->durable);
  free(order);
  while (n->first) change_drop(n);
  content_resize(&n->now, 0);
  content_write(&n->now, n->durable.data, 0, n->durable.size);
  n->links = n->opens = n->readers = n->writers = n->length = n->locks = 0;
  n->handles = n->shm = NULL;
  n->regions = 0; /* dead processes keep the memory */
}

/* What a name stands for after the cut. */
static disk_node *cut_name(const cut *k, const name *m) {
  if (m->now == m->durable || k->style == CUT_ALL) return m->now;
  if (k->style == CUT_NONE) return m->durable;
  if (k->style == CUT_PREFIX) return m->number <= k->stop ? m->now : m->durable;
  return disk_random(2) ? m->now : m->durable;
}

/* A name stands for another file after the cut. */
static void cut_name_set(const cut *k, name *m) {
  disk_node *left = cut_name(k, m);
  disk_count.names += left != m->now;
  m->now = m->durable = left;
}

/* The number of the oldest change that is not durable. */
static int64_t oldest_change(void) {
  int64_t oldest = disk.number;
  for (const disk_node *n = disk.nodes; n; n = n->next)
    if (n->first && n->first->number < oldest) oldest = n->first->number;
  return oldest;
}

/* Drop the names in directories that no longer exist. */
static void names_without_directory(void) {
  for (int i = 0; i < BUCKETS; i++)
    for (name *m = disk.bucket[i]; m; m = m->next)
      if (m->now && strchr(m->path + 1, '/') && !disk_parent_exists(m->path))
        m->now = m->durable = NULL;
}

/* Decide for each file and name what is left.  That then becomes the durable
 * state, and the visible one. */
void disk_power_cut(disk_cut style) {
  cut k = {.style = style};
  int64_t oldest = oldest_change();
  disk_count.cuts[style] += oldest < disk.number;
  k.stop = oldest + (int64_t)disk_random((uint64_t)(disk.number - oldest) + 2);
  for (disk_node *n = disk.nodes; n; n = n->next) cut_node(&k, n);
  for (int i = 0; i < BUCKETS; i++)
    for (name *m = disk.bucket[i]; m; m = m->next) cut_name_set(&k, m);
  names_without_directory();
  for (int i = 0; i < BUCKETS; i++)
    for (name *m = disk.bucket[i]; m; m = m->next)
      if (m->now) m->now->links++;
  names_tidy();
  for (disk_node *n = disk.nodes; n; n = n->next) disk_settle(n);
}
