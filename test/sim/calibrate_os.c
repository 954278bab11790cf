/* calibrate_os.c - the calls of zke_os that a script makes; see calibrate.h */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/sim/calibrate.h"

/* Room of a FIFO in the simulation; a call's bytes; listed names. */
enum { FIFO_ROOM = 4096, BYTES = 4096, NAMES = 16, LOCKED_BYTES = 9 };

#define CALL(me, member, ...) (me)->os->member((me)->os->context, __VA_ARGS__)

/* ---- descriptors ---- */

/* The path that a word stands for. */
static const char *path_of(const cal_actor *me, const cal_word *w) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", me->root, w->text);
  return path;
}

/* The descriptor that a word stands for; it is open. */
static int fd_of(const cal_actor *me, const cal_word *w) {
  return me->fd[w->value];
}

/* Keep a new descriptor, or say why there is none. */
static void keep(cal_actor *me, const cal_word *w, int fd, char kind) {
  if (fd < 0) {
    cal_say_result(me, fd);
    return;
  }
  me->fd[w->value] = fd;
  me->kind[w->value] = kind;
  if (kind == 'p' && me->real) fcntl(fd, F_SETPIPE_SZ, FIFO_ROOM);
  cal_say(me, "ok");
}

/* The kind of file that an open by name gave. */
static char kind_of(const cal_actor *me, int fd) {
  zke_file is = {.type = 0};
  if (fd >= 0) CALL(me, fstat, fd, &is);
  if (is.type == ZKE_FILE_FIFO) return 'p';
  return is.type == ZKE_FILE_DIRECTORY ? 'd' : 'f';
}

/* Never blocks: the name may be a FIFO's. */
static void act_open(cal_actor *me, const cal_word *const *w) {
  int fd =
      CALL(me, open, path_of(me, w[1]), (int)w[2]->value | O_NONBLOCK, 0666);
  keep(me, w[0], fd, kind_of(me, fd));
}

/* Afterwards the word has no descriptor. */
static void act_close(cal_actor *me, const cal_word *const *w) {
  int fd = fd_of(me, w[0]);
  me->fd[w[0]->value] = -1;
  cal_say_result(me, CALL(me, close, fd));
}

/* A second descriptor of the same description. */
static void act_dup(cal_actor *me, const cal_word *const *w) {
  int fd = fd_of(me, w[0]);
  char kind = me->kind[w[0]->value];
  if (fd_of(me, w[1]) >= 0) return;
  keep(me, w[1], CALL(me, dup, fd), kind);
}

/* Gives both ends. */
static void act_pipe(cal_actor *me, const cal_word *const *w) {
  int fds[2];
  if (w[0]->value == w[1]->value || fd_of(me, w[1]) >= 0) return;
  int rc = CALL(me, pipe, fds);
  keep(me, w[0], rc < 0 ? rc : fds[0], 'p');
  keep(me, w[1], rc < 0 ? rc : fds[1], 'p');
}

/* A poller; poller_add tells it what to watch. */
static void act_poller(cal_actor *me, const cal_word *const *w) {
  keep(me, w[0], me->os->poller(me->os->context), 'e');
}

/* A timer; it is off until timer_set. */
static void act_timer(cal_actor *me, const cal_word *const *w) {
  keep(me, w[0], me->os->timer(me->os->context), 't');
}

/* ---- contents ---- */

/* A timer's number of expirations is ignored: the engine ignores it, too. */
static void act_read(cal_actor *me, const cal_word *const *w) {
  unsigned char data[BYTES];
  int64_t n = CALL(me, read, fd_of(me, w[0]), data, (size_t)w[1]->value);
  cal_say_result(me, n);
  if (me->kind[w[0]->value] == 'p') cal_say_bytes(me, data, n);
}

/* At most a page, so it is written completely or not at all. */
static void act_write(cal_actor *me, const cal_word *const *w) {
  unsigned char data[BYTES];
  cal_fill(me, data, w[1]->value);
  cal_say_result(me,
                 CALL(me, write, fd_of(me, w[0]), data, (size_t)w[1]->value));
}

/* Write until there is no room. */
static void act_stuff(cal_actor *me, const cal_word *const *w) {
  unsigned char data[64];
  int64_t n, sum = 0;
  cal_fill(me, data, sizeof data);
  while ((n = CALL(me, write, fd_of(me, w[0]), data, sizeof data)) > 0)
    sum += n;
  cal_say_result(me, n);
  cal_say(me, "after %lld", (long long)sum);
}

/* Read all that is there, as the engine does. */
static void act_drain(cal_actor *me, const cal_word *const *w) {
  unsigned char data[64];
  int64_t n, sum = 0;
  while ((n = CALL(me, read, fd_of(me, w[0]), data, sizeof data)) > 0) sum += n;
  cal_say_result(me, n);
  cal_say(me, "after %lld", (long long)sum);
}

/* Less at the end of the file. */
static void act_pread(cal_actor *me, const cal_word *const *w) {
  unsigned char data[BYTES];
  int64_t n =
      CALL(me, pread, fd_of(me, w[0]), data, (size_t)w[2]->value, w[1]->value);
  cal_say_result(me, n);
  cal_say_bytes(me, data, n);
}

/* Also beyond the end of the file. */
static void act_pwrite(cal_actor *me, const cal_word *const *w) {
  unsigned char data[BYTES];
  cal_fill(me, data, w[2]->value);
  cal_say_result(me, CALL(me, pwrite, fd_of(me, w[0]), data,
                          (size_t)w[2]->value, w[1]->value));
}

/* Of a file or a directory. */
static void act_fsync(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, fsync, fd_of(me, w[0])));
}

/* ---- what files are ---- */

/* The members that are equal on all file systems.  Owners are compared with
 * ours: the simulation's processes are root. */
static void say_file(cal_actor *me, int rc, const zke_file *is) {
  cal_say_result(me, rc);
  if (rc < 0) return;
  unsigned uid = me->real ? geteuid() : 0, gid = me->real ? getegid() : 0;
  cal_say(me, "type %d, mode %o%s", is->type, is->mode,
          is->uid == uid && is->gid == gid ? "" : ", another's");
  if (is->type == ZKE_FILE_DIRECTORY) return;
  cal_say(me, "size %lld, links %u", (long long)is->size, is->links);
}

/* What a path leads to. */
static void act_stat(cal_actor *me, const cal_word *const *w) {
  zke_file is = {.type = 0};
  say_file(me, CALL(me, stat, path_of(me, w[0]), &is), &is);
}

/* The file that is open, even if its name is gone. */
static void act_fstat(cal_actor *me, const cal_word *const *w) {
  zke_file is = {.type = 0};
  say_file(me, CALL(me, fstat, fd_of(me, w[0]), &is), &is);
}

/* Is the open file still the one that the name leads to? */
static void act_same(cal_actor *me, const cal_word *const *w) {
  zke_file a = {.type = 0}, b = {.type = 0};
  cal_say_result(me, CALL(me, fstat, fd_of(me, w[0]), &a));
  cal_say_result(me, CALL(me, stat, path_of(me, w[1]), &b));
  bool same = a.device == b.device && a.inode == b.inode;
  cal_say(me, "%s", same ? "the same" : "another");
}

/* With our own owner and group: not everybody who runs this may set others. */
static void act_adopt(cal_actor *me, const cal_word *const *w) {
  unsigned uid = me->real ? geteuid() : 0, gid = me->real ? getegid() : 0;
  cal_say_result(
      me, CALL(me, adopt, fd_of(me, w[0]), (unsigned)w[1]->value, uid, gid));
}

/* Like adopt, but by name. */
static void act_share(cal_actor *me, const cal_word *const *w) {
  unsigned gid = me->real ? getegid() : 0;
  cal_say_result(
      me, CALL(me, share, path_of(me, w[0]), (unsigned)w[1]->value, gid));
}

/* ---- names ---- */

/* The umask of both sides is 022. */
static void act_mkdir(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, mkdir, path_of(me, w[0]), 0777));
}

/* Like mkdir. */
static void act_mkfifo(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, mkfifo, path_of(me, w[0]), 0666));
}

/* Like mkdir. */
static void act_mkfile(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, mkfile, path_of(me, w[0]), 0664));
}

/* Not of a directory: unlink() refuses that. */
static void act_unlink(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, unlink, path_of(me, w[0])));
}

typedef struct names {
  int count;
  char name[NAMES][16];
} names;

/* Called by list: note a name. */
static void note_name(void *arg, const char *name) {
  names *all = arg;
  if (all->count < NAMES)
    snprintf(all->name[all->count++], sizeof *all->name, "%s", name);
}

/* For qsort(). */
static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Sorted, since no file system promises an order. */
static void act_list(cal_actor *me, const cal_word *const *w) {
  names all = {.count = 0};
  cal_say_result(me, CALL(me, list, path_of(me, w[0]), note_name, &all));
  qsort(all.name, (size_t)all.count, sizeof *all.name, by_text);
  for (int i = 0; i < all.count; i++) cal_say(me, "%s", all.name[i]);
}

/* ---- locks ---- */

/* Ranges may touch, overlap or split others of the same owner. */
static void act_lock(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, lock_range, fd_of(me, w[0]), w[1]->value,
                          w[2]->value, (int)w[3]->value));
}

/* One byte, like the one for the life of a session. */
static void act_lock_one(cal_actor *me, const cal_word *const *w) {
  cal_say_result(
      me, CALL(me, lock, fd_of(me, w[0]), w[1]->value, (int)w[2]->value));
}

/* Others' locks on each byte: exclusive ones, so there is at most one. */
static void act_locks(cal_actor *me, const cal_word *const *w) {
  int64_t last = -1;
  for (int64_t at = 0; at < LOCKED_BYTES; at++) {
    int64_t count = 0;
    int64_t from = CALL(me, find_lock, fd_of(me, w[0]), at, 1, &count);
    if (from == -ENOENT || from == last) continue;
    cal_say_result(me, last = from);
    cal_say(me, "+%lld", (long long)count);
  }
}

/* Any of several locks in a range may be reported: is it one of them? */
static void act_find(cal_actor *me, const cal_word *const *w) {
  int fd = fd_of(me, w[0]);
  int64_t count = 0, other = 0;
  int64_t from = CALL(me, find_lock, fd, w[1]->value, w[2]->value, &count);
  if (from < 0) {
    cal_say_result(me, from);
    return;
  }
  int64_t at = from < w[1]->value ? w[1]->value : from;
  bool known = CALL(me, find_lock, fd, at, 1, &other) == from;
  cal_say(me, known && count == other ? "one of them" : "none of them");
}

/* Does another description have a lock on the byte? */
static void act_probe(cal_actor *me, const cal_word *const *w) {
  cal_say_result(me, CALL(me, probe, fd_of(me, w[0]), w[1]->value));
}

/* ---- waiting ---- */

/* What poll() reports about one descriptor. */
static void say_events(cal_actor *me, const struct pollfd *p) {
  cal_say(me, "[%s%s%s%s]", p->revents & POLLIN ? "in " : "",
          p->revents & POLLHUP ? "hup " : "",
          p->revents & POLLERR ? "err " : "",
          p->revents & POLLNVAL ? "nval " : "");
}

/* Poll two descriptors, leaving out any that is not open. */
static void poll_two(cal_actor *me, const cal_word *const *w, int timeout_ms) {
  short events = (short)w[2]->value;
  struct pollfd two[2] = {{fd_of(me, w[0]), events, 0},
                          {fd_of(me, w[1]), events, 0}};
  cal_say_result(me, CALL(me, poll, two, 2, timeout_ms));
  say_events(me, &two[0]);
  say_events(me, &two[1]);
}

/* Without waiting. */
static void act_poll(cal_actor *me, const cal_word *const *w) {
  poll_two(me, w, 0);
}

/* With a deadline, which a poll that finds nothing reaches. */
static void act_poll_a_while(cal_actor *me, const cal_word *const *w) {
  poll_two(me, w, 2);
}

/* Until another process makes it ready. */
static void act_wait(cal_actor *me, const cal_word *const *w) {
  poll_two(me, w, -1);
}

/* Not of another poller: that would be one of the host's. */
static void act_add(cal_actor *me, const cal_word *const *w) {
  int fd = fd_of(me, w[1]);
  if (fd < 0 || !strchr("ptf", me->kind[w[1]->value])) return;
  cal_say_result(me,
                 CALL(me, poller_add, fd_of(me, w[0]), fd, (int)w[2]->value));
}

/* Also of a descriptor that was not added. */
static void act_remove(cal_actor *me, const cal_word *const *w) {
  int fd = fd_of(me, w[1]);
  if (fd < 0 || me->kind[w[1]->value] == 'e') return;
  cal_say_result(me, CALL(me, poller_remove, fd_of(me, w[0]), fd));
}

/* To a time that has passed, will soon, or never will. */
static void act_set(cal_actor *me, const cal_word *const *w) {
  int64_t when = w[1]->value;
  if (when > 1) when += CALL(me, clock, ZKE_CLOCK_MONOTONIC);
  cal_say_result(me, CALL(me, timer_set, fd_of(me, w[0]), when));
  if (w[1]->value < 100000000) CALL(me, sleep, 3000000);
}

/* No clock goes back, and no sleep is too short. */
static void act_clock(cal_actor *me, const cal_word *const *w) {
  int64_t from = CALL(me, clock, ZKE_CLOCK_MONOTONIC);
  int64_t wall = CALL(me, clock, ZKE_CLOCK_REALTIME);
  (void)w;
  cal_say(me, from >= me->clock ? "on" : "back");
  CALL(me, sleep, 200000);
  me->clock = CALL(me, clock, ZKE_CLOCK_MONOTONIC);
  cal_say(me, me->clock - from >= 200000 ? "slept" : "short");
  cal_say(me, CALL(me, clock, ZKE_CLOCK_REALTIME) > wall ? "on" : "back");
  cal_say(me, CALL(me, clock, ZKE_CLOCK_BOOTTIME) >= from ? "on" : "back");
}

/* What a process can learn about itself. */
static void act_self(cal_actor *me, const cal_word *const *w) {
  unsigned char one[16] = {0}, two[16] = {0};
  char text[64] = "", again[64] = "";
  int64_t offset;
  (void)w;
  cal_say_result(me, CALL(me, random, one, sizeof one));
  cal_say_result(me, CALL(me, random, two, sizeof two));
  cal_say(me, memcmp(one, two, sizeof one) ? "random" : "the same");
  cal_say_result(me, CALL(me, boot_id, text, sizeof text));
  cal_say_result(me, CALL(me, boot_id, again, sizeof again));
  cal_say(me, *text && strcmp(text, again) == 0 ? "a boot" : "no boot");
  cal_say_result(me, CALL(me, process_name, text, sizeof text));
  cal_say_result(me, CALL(me, boot_offset, &offset));
  cal_say_result(me, CALL(me, network, me->root));
  int64_t pid = me->os->pid(me->os->context);
  cal_say(me,
          pid > 0 && pid == me->os->pid(me->os->context) ? "a pid" : "none");
}

const cal_kind cal_os_kinds[] = {
    {"open", 16, "fpo", "-", act_open},
    {"close", 6, "f", "fdpet", act_close},
    {"dup", 3, "fg", "fdpet", act_dup},
    {"pipe", 2, "fg", "-", act_pipe},
    {"poller", 2, "f", "-", act_poller},
    {"timer", 2, "f", "-", act_timer},
    {"read", 8, "fn", "pt", act_read},
    {"write", 10, "fn", "p", act_write},
    {"stuff", 1, "f", "p", act_stuff},
    {"drain", 2, "f", "p", act_drain},
    {"pread", 3, "fan", "f", act_pread},
    {"pwrite", 4, "fan", "f", act_pwrite},
    {"fsync", 1, "f", "fd", act_fsync},
    {"stat", 3, "p", NULL, act_stat},
    {"fstat", 3, "f", "fdp", act_fstat},
    {"same", 2, "fp", "fdp", act_same},
    {"adopt", 1, "fm", "fdp", act_adopt},
    {"share", 1, "pm", NULL, act_share},
    {"mkdir", 2, "p", NULL, act_mkdir},
    {"mkfifo", 5, "p", NULL, act_mkfifo},
    {"mkfile", 3, "p", NULL, act_mkfile},
    {"unlink", 3, "p", NULL, act_unlink},
    {"list", 2, "p", NULL, act_list},
    {"lock_range", 14, "fblw", "f", act_lock},
    {"lock", 3, "fbw", "f", act_lock_one},
    {"locks", 5, "f", "f", act_locks},
    {"find_lock", 5, "fbl", "f", act_find},
    {"probe", 3, "fb", "f", act_probe},
    {"poll", 8, "fge", "pet", act_poll},
    {"poll 2ms", 1, "fge", "pet", act_poll_a_while},
    {"wait", 1, "fge", "pet", act_wait},
    {"poller_add", 6, "fgr", "e", act_add},
    {"poller_remove", 4, "fg", "e", act_remove},
    {"timer_set", 4, "ft", "t", act_set},
    {"clock", 1, "", NULL, act_clock},
    {"self", 1, "", NULL, act_self},
    {"die", 1, "", NULL, NULL},
    {NULL, 0, NULL, NULL, NULL}};
