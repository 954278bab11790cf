/* wordcount.c - several processes count the words of a checkout's text files
 *
 *   wordcount DATABASE    the demo, run in the checkout; makes DATABASE
 *
 * The demo puts the names of the files into a queue and starts four workers:
 * processes of this same program ("wordcount DATABASE worker") that have
 * nothing in common but the database file.  In the midst of their work it
 * kills a worker and then the leader with kill -9.  The others notice and take
 * over what the dead had begun, and the total must be what `wc -w` says.
 *
 *   /rule             how this machine's wc tells words from other bytes
 *   /queue/item-…     the name of a file whose words are not counted yet
 *   /claims/item-…    ephemeral: the worker that is counting it
 *   /results/item-…   its words, when they were begun and by whom
 *   /workers/w-…      ephemeral: a worker; the lowest one leads and reports
 *   /leader           ephemeral: the worker that has taken office
 *   /deaths/w-…       when a worker's death was first noticed, and by whom
 *   /total            the leader's report; whoever sees it goes home
 *   /stage/w-…        ephemeral of the demo: tells a worker to start
 *   /timeline/t-…     what happened, and when, for the demo to print
 *
 * No item is lost: a claim is ephemeral, so it goes with a worker that dies,
 * and the item is free again.  No item is counted twice: the result comes in
 * the same transaction that removes item and claim, and only while the claim
 * stands.
 *
 * All waiting is done in zke_wait().  What a watcher is told is not used: to
 * be woken means to look again, so a wake-up too many does no harm.
 */
#define _XOPEN_SOURCE 700 /* posix_spawn, popen, opendir, kill */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "zkembed.h"

extern char **environ;

enum {
  WORKERS = 4,
  PATIENCE_MS = 60000, /* so long without any event: something is wrong */
  NAME_SIZE = 32,      /* of an item, of a worker */
  PATH_SIZE = 64,      /* of their znodes */
  LINE_SIZE = 1024     /* of the timeline */
};

/* ---- small things ---- */

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "wordcount: %s: %s\n", what, why);
  exit(1); /* for a worker a death like any other: its ephemerals go */
}

/* For calls that fail only when the disk or the demo itself is broken. */
static void must(int rc, const char *what) {
  if (rc != ZKE_OK) give_up(what, zke_errmsg());
}

static void *must_have(void *thing, const char *what) {
  if (!thing) give_up(what, strerror(errno));
  return thing;
}

/* One clock for all processes, finer than zke_now(). */
static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static double ms(int64_t us) { return (double)us / 1000; }

/* A directory and a name make a path, in a buffer of the caller's. */
static const char *path_to(char buffer[PATH_SIZE], const char *directory,
                           const char *name) {
  snprintf(buffer, PATH_SIZE, "%s/%s", directory, name);
  return buffer;
}

/* ---- znodes ---- */

/* identity is what zke_sessions shows of us. */
static zke *open_tree(const char *database, const char *identity) {
  zke *z;
  zke_options options = {.size = sizeof options,
                         .busy_timeout_ms = PATIENCE_MS,
                         .identity = identity};
  must(zke_open(database, &options, &z), "opening");
  return z;
}

static void woken(zke *z, int type, int state, const char *path,
                  void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

static void sleep_until_woken(zke *z) {
  must(zke_wait(z, zke_now(z) + PATIENCE_MS), "waiting");
}

/* Whether a znode exists; we are woken when that changes. */
static bool exists(zke *z, const char *path) {
  int rc = zke_exists(z, path, woken, NULL, NULL);
  if (rc != ZKE_NONODE) must(rc, path);
  return rc == ZKE_OK;
}

/* A znode's text, for zke_free(), or NULL where there is no such znode. */
static char *get(zke *z, const char *path, zke_watch_fn watcher) {
  char *text = NULL;
  int rc = zke_get(z, path, watcher, NULL, &text, NULL, NULL);
  if (rc != ZKE_NONODE) must(rc, path);
  return text;
}

static char *text_of(zke *z, const char *path) { return get(z, path, NULL); }

/* We are woken when the znode changes or goes; false if it has gone. */
static bool watch(zke *z, const char *path) {
  char *text = get(z, path, woken);
  zke_free(text);
  return text != NULL;
}

/* The text of a znode that is still to come. */
static char *await(zke *z, const char *path) {
  while (!exists(z, path)) sleep_until_woken(z);
  char *text = text_of(z, path);
  if (!text) give_up(path, "came and went");
  return text;
}

/* How many children a znode has. */
static int children_of(zke *z, const char *path, zke_watch_fn watcher) {
  zke_stat stat;
  must(zke_children(z, path, watcher, NULL, NULL, &stat), path);
  return stat.numChildren;
}

/* The names of its children, for zke_free(). */
static zke_strings *list(zke *z, const char *path) {
  zke_strings *names;
  must(zke_children(z, path, NULL, NULL, &names, NULL), path);
  return names;
}

static int create(zke *z, const char *path, const char *text, int mode) {
  return zke_create(z, path, text, (int)strlen(text), ZKE_OPEN_ACL, mode, NULL,
                    NULL);
}

/* Put a line on the timeline: when, who, what. */
static void say(zke *z, int64_t us, const char *who, const char *format, ...) {
  char line[LINE_SIZE];
  int n = snprintf(line, sizeof line, "%" PRId64 " %-14s", us, who);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + n, sizeof line - (size_t)n, format, arguments);
  va_end(arguments);
  must(create(z, "/timeline/t-", line, ZKE_PERSISTENT_SEQUENTIAL), "timeline");
}

/* What a worker leaves in /results. */
typedef struct result {
  long words;
  int64_t begun_us;
  char worker[NAME_SIZE];
} result;

static result result_of(zke *z, const char *item) {
  char path[PATH_SIZE];
  result r = {0};
  char *text = text_of(z, path_to(path, "/results", item));
  if (!text || sscanf(text, "%ld %" SCNd64 " %31s", &r.words, &r.begun_us,
                      r.worker) != 3)
    give_up(path, "holds no result");
  zke_free(text);
  return r;
}

/* ---- words ---- */

/* The wc's of this world agree on ASCII and not beyond: to some a word must
 * have a printing byte, to some the byte 0240 is a no-break space.  The demo
 * asks the one at hand (ask_wc) and puts the answer into /rule. */
enum { RULE_ANY_BYTE = 1, RULE_NO_BREAK_SPACE = 2 };

typedef struct counter {
  int rule;
  bool in_word; /* a byte that makes a word has come since the last space */
  long words;
} counter;

static void count(counter *c, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    int byte = (unsigned char)text[i];
    if (isspace(byte) || (byte == 0240 && c->rule & RULE_NO_BREAK_SPACE)) {
      c->in_word = false;
    } else if (!c->in_word && (isprint(byte) || c->rule & RULE_ANY_BYTE)) {
      c->in_word = true;
      c->words++;
    }
  }
}

/* All of a regular file, for free(), or NULL. */
static char *read_file(const char *name, size_t *size) {
  struct stat s;
  if (lstat(name, &s) != 0 || !S_ISREG(s.st_mode)) return NULL;
  FILE *f = fopen(name, "rb");
  if (!f) return NULL;
  char *text = must_have(malloc((size_t)s.st_size + 1), name);
  *size = fread(text, 1, (size_t)s.st_size, f);
  fclose(f);
  return text;
}

/* ---- a worker: the others ---- */

typedef struct worker {
  zke *z;
  int rule;
  char name[NAME_SIZE];
  zke_strings *workers; /* who was there when we last looked, us too */
  bool leads;           /* we are the lowest */
  bool halts;           /* to be killed in the middle of its first item */
} worker;

static void sign_on(worker *w) {
  char pid[16], *path;
  int64_t us = now_us();
  snprintf(pid, sizeof pid, "%ld", (long)getpid());
  must(zke_create(w->z, "/workers/w-", pid, (int)strlen(pid), ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL_SEQUENTIAL, &path, NULL),
       "/workers");
  snprintf(w->name, NAME_SIZE, "%s", strrchr(path, '/') + 1);
  zke_free(path);
  w->workers = list(w->z, "/workers"); /* all lower ones, so none is missed */
  say(w->z, us, w->name, "joins, process %s", pid);
}

/* What the demo wants of us, and the rule of counting. */
static void learn_part(worker *w) {
  char path[PATH_SIZE];
  char *part = await(w->z, path_to(path, "/stage", w->name));
  w->halts = strcmp(part, "halt") == 0;
  zke_free(part);
  char *rule = await(w->z, "/rule");
  w->rule = atoi(rule);
  zke_free(rule);
}

static bool all_done(worker *w) { return exists(w->z, "/total"); }

static bool is_in(const zke_strings *names, const char *name) {
  for (int i = 0; i < names->count; i++)
    if (strcmp(names->data[i], name) == 0) return true;
  return false;
}

/* Who registers a death first has noticed it; the others are refused. */
static void register_death(worker *w, const char *dead) {
  char path[PATH_SIZE], text[64];
  snprintf(text, sizeof text, "%" PRId64 " %s", now_us(), w->name);
  int rc = create(w->z, path_to(path, "/deaths", dead), text, ZKE_PERSISTENT);
  if (rc != ZKE_NODEEXISTS) must(rc, path);
}

/* Be woken when the worker ahead of us goes.  Each is watched by the one behind
 * it alone, so that a death wakes one worker and not the herd.  False if it
 * has gone since it was listed. */
static bool watch_ahead(worker *w) {
  char path[PATH_SIZE];
  int i = 0;
  while (strcmp(w->workers->data[i], w->name) != 0) i++;
  if (i == 0) return true;
  return watch(w->z, path_to(path, "/workers", w->workers->data[i - 1]));
}

static void take_the_lead(worker *w) {
  w->leads = true;
  must(create(w->z, "/leader", w->name, ZKE_EPHEMERAL), "/leader");
  say(w->z, now_us(), w->name, "leads; files counted: %d, still to do: %d",
      children_of(w->z, "/results", NULL), children_of(w->z, "/queue", NULL));
}

/* The leader's report ends the work. */
static void report(worker *w) {
  zke_strings *items = list(w->z, "/results");
  long words = 0;
  for (int i = 0; i < items->count; i++)
    words += result_of(w->z, items->data[i]).words;
  say(w->z, now_us(), w->name, "reports %ld words in %d files", words,
      items->count);
  zke_free(items);
  char text[32];
  snprintf(text, sizeof text, "%ld", words);
  must(create(w->z, "/total", text, ZKE_PERSISTENT), "/total");
}

/* Take note of who is there now; the list becomes ours.  Those who are no
 * longer there have died, unless all is done and they went home.  Returns false
 * if the list is out of date already. */
static bool meet(worker *w, zke_strings *now) {
  zke_strings *before = w->workers;
  w->workers = now;
  for (int i = 0; i < before->count; i++)
    if (!is_in(now, before->data[i]) && !all_done(w))
      register_death(w, before->data[i]);
  zke_free(before);
  if (!w->leads && strcmp(now->data[0], w->name) == 0) take_the_lead(w);
  return watch_ahead(w);
}

/* ---- a worker: items ---- */

/* If this worker is the victim: tell the demo what we are at, and wait for
 * the end.  The znode on the stage is the demo's ephemeral; should the demo
 * itself die, it goes, and so do we. */
static void halt(worker *w, const char *item, const char *file) {
  char path[PATH_SIZE];
  path_to(path, "/stage", w->name);
  say(w->z, now_us(), w->name, "is in the middle of %s, %s", item, file);
  must(zke_set(w->z, path, item, (int)strlen(item), -1, NULL), path);
  while (exists(w->z, path)) sleep_until_woken(w->z);
  give_up(w->name, "the demo is gone");
}

static long count_file(worker *w, const char *item, const char *file) {
  counter c = {.rule = w->rule};
  size_t size;
  char *text = read_file(file, &size);
  if (!text) give_up(file, "cannot be read");
  count(&c, text, size / 2);
  if (w->halts) halt(w, item, file);
  count(&c, text + size / 2, size - size / 2);
  free(text);
  return c.words;
}

/* Item and claim become a result, all at once; or nothing changes, should the
 * claim be gone, for then the item may be another's. */
static void finish(worker *w, const char *item, const char *claim,
                   const result *r) {
  char from[PATH_SIZE], to[PATH_SIZE], text[128];
  snprintf(text, sizeof text, "%ld %" PRId64 " %s", r->words, r->begun_us,
           w->name);
  zke_op ops[4];
  zke_op_check(&ops[0], claim, 0);
  zke_op_create(&ops[1], path_to(to, "/results", item), text, (int)strlen(text),
                ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[2], path_to(from, "/queue", item), -1);
  zke_op_delete(&ops[3], claim, -1);
  must(zke_multi(w->z, ops, 4, NULL), item);
}

/* Claim an item and count it, unless another is quicker. */
static void work_on(worker *w, const char *item) {
  char claim[PATH_SIZE], path[PATH_SIZE];
  int rc =
      create(w->z, path_to(claim, "/claims", item), w->name, ZKE_EPHEMERAL);
  if (rc == ZKE_NODEEXISTS) return;
  must(rc, claim);
  result r = {.begun_us = now_us()};
  char *file = text_of(w->z, path_to(path, "/queue", item));
  if (file) {
    r.words = count_file(w, item, file);
    finish(w, item, claim, &r);
  } else { /* it was finished after we had listed it, so our claim is void */
    must(zke_delete(w->z, claim, -1), claim);
  }
  zke_free(file);
}

/* The first item without a claim, or NULL; both lists are sorted. */
static const char *find_free(const zke_strings *items,
                             const zke_strings *claims) {
  int c = 0;
  for (int i = 0; i < items->count; i++) {
    while (c < claims->count && strcmp(claims->data[c], items->data[i]) < 0)
      c++;
    if (c == claims->count || strcmp(claims->data[c], items->data[i]) != 0)
      return items->data[i];
  }
  return NULL;
}

/* Do what there is to do; false when that is nothing but to wait.  Where all
 * items are claimed we are woken when the first claim goes, be it that the item
 * is finished or that its worker is dead. */
static bool do_something(worker *w, const zke_strings *items,
                         const zke_strings *claims) {
  char path[PATH_SIZE];
  const char *item = find_free(items, claims);
  if (item) {
    work_on(w, item);
    return true;
  }
  if (items->count > 0)
    return !watch(w->z, path_to(path, "/claims", items->data[0]));
  if (w->leads) report(w);
  return w->leads;
}

/* Look around, at one moment for all, and act on it; false to wait. */
static bool step(worker *w) {
  enum { WORKERS_NOW, ITEMS_NOW, CLAIMS_NOW, LISTS };
  zke_op ops[LISTS];
  zke_op_result now[LISTS];
  zke_op_children(&ops[WORKERS_NOW], "/workers");
  zke_op_children(&ops[ITEMS_NOW], "/queue");
  zke_op_children(&ops[CLAIMS_NOW], "/claims");
  must(zke_multi_read(w->z, ops, LISTS, now), "looking around");
  bool again = !meet(w, now[WORKERS_NOW].children);
  now[WORKERS_NOW].children = NULL; /* it is the worker's now */
  if (!again)
    again = do_something(w, now[ITEMS_NOW].children, now[CLAIMS_NOW].children);
  zke_results_clear(now, LISTS);
  return again;
}

/* The events are taken first, by zke_dispatch() or zke_wait(), and then all is
 * looked at: what changes after that look comes as an event again. */
static int work(const char *database) {
  worker w = {.z = open_tree(database, "wordcount worker")};
  sign_on(&w);
  learn_part(&w);
  while (!all_done(&w)) {
    if (!step(&w))
      sleep_until_woken(w.z);
    else
      must(zke_dispatch(w.z, NULL), "dispatching");
  }
  zke_free(w.workers);
  must(zke_close(w.z), "closing");
  return 0;
}

/* ---- the demo: the list of files ---- */

typedef struct file_list {
  char **name;
  int count;
} file_list;

/* Text is what has no NUL. */
static bool is_text(const char *name) {
  size_t size;
  char *text = read_file(name, &size);
  bool is = text && !memchr(text, '\0', size);
  free(text);
  return is;
}

static void add_text_file(file_list *files, const char *name) {
  if (strncmp(name, "build/", 6) == 0 || !is_text(name)) return;
  size_t bytes = (size_t)(files->count + 1) * sizeof *files->name;
  files->name = must_have(realloc(files->name, bytes), name);
  files->name[files->count++] = must_have(strdup(name), name);
}

/* What git tracks; nothing where there is no git or no checkout of it. */
static void list_git(file_list *files) {
  char *name = NULL;
  size_t size = 0;
  FILE *f = must_have(popen("git ls-files -z 2>/dev/null", "r"), "git");
  while (getdelim(&name, &size, '\0', f) > 0) add_text_file(files, name);
  free(name);
  pclose(f);
}

/* Everything below a directory ("" is this one) but what is hidden. */
static void list_directory(file_list *files, const char *prefix) {
  DIR *directory = opendir(*prefix ? prefix : ".");
  if (!directory) return;
  for (struct dirent *e; (e = readdir(directory)) != NULL;) {
    char name[LINE_SIZE];
    struct stat s;
    int n = snprintf(name, sizeof name, "%s%s", prefix, e->d_name);
    if (e->d_name[0] == '.' || n > LINE_SIZE - 2) continue;
    if (lstat(name, &s) == 0 && S_ISDIR(s.st_mode)) {
      strcat(name, "/");
      if (strcmp(name, "build/") != 0) list_directory(files, name);
    } else {
      add_text_file(files, name);
    }
  }
  closedir(directory);
}

static file_list list_files(void) {
  file_list files = {0};
  list_git(&files);
  if (files.count == 0) list_directory(&files, "");
  if (files.count == 0) give_up(".", "no text file here");
  return files;
}

static void free_list(file_list *files) {
  for (int i = 0; i < files->count; i++) free(files->name[i]);
  free(files->name);
}

/* ---- the demo: wc ---- */

/* The rule by which wc counts words beyond ASCII, see RULE_…: it gets a word
 * without a printing byte (an ellipsis in UTF-8), and twice one with a 0240 in
 * the middle (an a with grave). */
static int ask_wc(void) {
  int words = 0;
  static const char command[] =
      "printf '\\342\\200\\246 x\\303\\240y x\\303\\240y' | LC_ALL=C wc -w";
  FILE *f = must_have(popen(command, "r"), "wc");
  if (fscanf(f, "%d", &words) != 1) give_up("wc", "does not count");
  pclose(f);
  return words - 2;
}

/* Start a wc on each file; they print numbers, in our order.  The list is left
 * beside the database for whoever wants to do the same by hand. */
static FILE *start_wc(const file_list *files, const char *database) {
  size_t size = strlen(database) + sizeof ".files";
  char *name = must_have(malloc(size), database);
  snprintf(name, size, "%s.files", database);
  FILE *f = must_have(fopen(name, "wb"), name);
  for (int i = 0; i < files->count; i++)
    fwrite(files->name[i], 1, strlen(files->name[i]) + 1, f);
  fclose(f);
  setenv("FILES", name, 1);
  free(name);
  static const char command[] =
      "LC_ALL=C xargs -0 -n 1 sh -c 'wc -w <\"$0\"' <\"$FILES\"";
  return must_have(popen(command, "r"), "wc");
}

/* Compare file by file, so that one that differs can be named.  Returns whether
 * all agree; adds up what wc says. */
static bool compare(zke *z, const file_list *files, const char *database,
                    long *total) {
  char line[LINE_SIZE], item[NAME_SIZE];
  bool agree = true;
  FILE *f = start_wc(files, database);
  for (int i = 0; i < files->count; i++) {
    if (!fgets(line, sizeof line, f)) give_up(files->name[i], "wc fails");
    snprintf(item, sizeof item, "item-%010d", i);
    long words = atol(line), ours = result_of(z, item).words;
    if (words != ours)
      printf("%s: %ld words, by wc %ld (changed meanwhile?)\n", files->name[i],
             ours, words);
    agree = agree && words == ours;
    *total += words;
  }
  pclose(f);
  return agree;
}

/* ---- the demo: the play ---- */

typedef struct demo {
  zke *z;
  file_list files;
  char name[WORKERS][NAME_SIZE]; /* "w-0000000000", and so on */
  pid_t pid[WORKERS];
  int64_t killed_us[WORKERS];
} demo;

/* The whole queue in one transaction: a worker sees all of it or none. */
static void fill_queue(demo *d) {
  size_t count = (size_t)d->files.count;
  zke_op *ops = must_have(calloc(count, sizeof *ops), "/queue");
  for (size_t i = 0; i < count; i++) {
    const char *file = d->files.name[i];
    zke_op_create(&ops[i], "/queue/item-", file, (int)strlen(file),
                  ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL);
  }
  must(zke_multi(d->z, ops, d->files.count, NULL), "/queue");
  free(ops);
}

static void lay_out(demo *d) {
  static const char *const directories[] = {"/queue",   "/claims", "/results",
                                            "/workers", "/deaths", "/stage",
                                            "/timeline"};
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
    must(create(d->z, directories[i], "", ZKE_PERSISTENT), directories[i]);
  char rule[16];
  snprintf(rule, sizeof rule, "%d", ask_wc());
  must(create(d->z, "/rule", rule, ZKE_PERSISTENT), "/rule");
  fill_queue(d);
}

/* Start the workers, and learn which process got which name. */
static void start_workers(demo *d, char *self, char *database) {
  char role[] = "worker";
  char *arguments[] = {self, database, role, NULL};
  char path[PATH_SIZE];
  pid_t pid;
  for (int i = 0; i < WORKERS; i++)
    if (posix_spawn(&pid, self, NULL, NULL, arguments, environ) != 0)
      give_up(self, "cannot be started");
  for (int i = 0; i < WORKERS; i++) {
    snprintf(d->name[i], NAME_SIZE, "w-%010d", i);
    char *text = await(d->z, path_to(path, "/workers", d->name[i]));
    d->pid[i] = (pid_t)atol(text);
    zke_free(text);
  }
}

/* Give a worker its part: "work" or "halt". */
static void direct(demo *d, int i, const char *part) {
  char path[PATH_SIZE];
  path_to(path, "/stage", d->name[i]);
  must(create(d->z, path, part, ZKE_EPHEMERAL), path);
}

/* The item in whose middle a worker stands, for zke_free(), or NULL; we are
 * woken when that changes. */
static char *halted_in(demo *d, int i) {
  char path[PATH_SIZE];
  char *text = get(d->z, path_to(path, "/stage", d->name[i]), woken);
  if (text && strncmp(text, "item-", 5) == 0) return text;
  zke_free(text);
  return NULL;
}

static void wait_for_halt(demo *d, int i) {
  char *item;
  while (!(item = halted_in(d, i))) sleep_until_woken(d->z);
  zke_free(item);
}

static void wait_for_results(demo *d, int count) {
  while (children_of(d->z, "/results", woken) < count) sleep_until_woken(d->z);
}

/* kill -9, and wait for another worker to notice. */
static void kill_worker(demo *d, int i, const char *as) {
  char path[PATH_SIZE], who[NAME_SIZE];
  int64_t noticed_us;
  int status;
  d->killed_us[i] = now_us();
  kill(d->pid[i], SIGKILL);
  char *text = await(d->z, path_to(path, "/deaths", d->name[i]));
  say(d->z, d->killed_us[i], "demo", "kill -9 %s, %s", d->name[i], as);
  if (sscanf(text, "%" SCNd64 " %31s", &noticed_us, who) == 2)
    say(d->z, noticed_us, who, "notices the death of %s after %.2f ms",
        d->name[i], ms(noticed_us - d->killed_us[i]));
  zke_free(text);
  if (waitpid(d->pid[i], &status, 0) != d->pid[i] || !WIFSIGNALED(status))
    give_up(d->name[i], "was not killed");
  d->pid[i] = 0;
}

static void direct_others(demo *d) {
  for (int i = 2; i < WORKERS; i++) direct(d, i, "work");
}

/* The victims begin, so that each gets an item, and stop in the middle of it.
 * The first dies while the others are at work, the leader when they have
 * nothing left but to wait for its item.  Of a single file the leader must have
 * its turn before the others come. */
static void kill_two(demo *d) {
  enum { LEADER = 0, VICTIM = 1 };
  int files = d->files.count;
  direct(d, VICTIM, "halt");
  wait_for_halt(d, VICTIM);
  direct(d, LEADER, "halt");
  zke_free(await(d->z, "/leader"));
  if (files > 1) {
    wait_for_halt(d, LEADER);
    direct_others(d);
    wait_for_results(d, (files - 2) / 2);
  }
  kill_worker(d, VICTIM, "a worker");
  if (files == 1) {
    wait_for_halt(d, LEADER);
    direct_others(d);
  }
  wait_for_results(d, files - 1);
  kill_worker(d, LEADER, "the leader");
}

/* The survivors go home by themselves. */
static void join_survivors(demo *d) {
  int status;
  zke_free(await(d->z, "/total"));
  for (int i = 0; i < WORKERS; i++)
    if (d->pid[i] &&
        (waitpid(d->pid[i], &status, 0) != d->pid[i] || status != 0))
      give_up(d->name[i], "failed");
}

/* Who finished what a dead worker had begun. */
static void tell_takeover(demo *d, int i) {
  char *item = halted_in(d, i);
  if (!item) return;
  result r = result_of(d->z, item);
  say(d->z, r.begun_us, r.worker, "takes over %s of %s after %.2f ms", item,
      d->name[i], ms(r.begun_us - d->killed_us[i]));
  zke_free(item);
}

/* ---- the demo: the end ---- */

typedef struct entry {
  int64_t us;
  char *text;
} entry;

static int earlier(const void *a, const void *b) {
  int64_t x = ((const entry *)a)->us, y = ((const entry *)b)->us;
  return (x > y) - (x < y);
}

/* The timeline, sorted by time: the order of writing is that of the commits,
 * and some lines were written after the fact. */
static void print_timeline(zke *z, int64_t start_us) {
  zke_strings *names = list(z, "/timeline");
  size_t count = (size_t)names->count;
  entry *entries = must_have(calloc(count, sizeof *entries), "/timeline");
  for (size_t i = 0; i < count; i++) {
    char path[PATH_SIZE];
    entries[i].text = text_of(z, path_to(path, "/timeline", names->data[i]));
    entries[i].us = atoll(entries[i].text);
  }
  qsort(entries, count, sizeof *entries, earlier);
  for (size_t i = 0; i < count; i++) {
    printf("%8.2f  %s\n", ms(entries[i].us - start_us),
           strchr(entries[i].text, ' ') + 1);
    zke_free(entries[i].text);
  }
  free(entries);
  zke_free(names);
}

/* What the workers, dead or gone home, have left: znodes, and sessions. */
static bool nothing_left(zke *z) {
  zke_session_list *sessions;
  int znodes = children_of(z, "/workers", NULL) +
               children_of(z, "/claims", NULL) +
               children_of(z, "/queue", NULL) + exists(z, "/leader");
  must(zke_sessions(z, &sessions), "sessions");
  int others = sessions->count - 1; /* one is the demo's own */
  zke_free(sessions);
  printf("left behind by workers: %d znodes, %d sessions\n", znodes, others);
  return znodes == 0 && others == 0;
}

static bool verify(demo *d, const char *database) {
  long ours, wcs = 0;
  char *total = text_of(d->z, "/total");
  ours = atol(total);
  zke_free(total);
  bool right = compare(d->z, &d->files, database, &wcs) && ours == wcs;
  printf("\nthe workers say %ld words, wc -w says %ld\n", ours, wcs);
  bool clean = nothing_left(d->z);
  must(zke_check(d->z, NULL, NULL), "database");
  return right && clean;
}

static int play(char *self, char *database) {
  int64_t start_us = now_us();
  demo d = {.files = list_files(), .z = open_tree(database, "wordcount demo")};
  printf("files: %d, workers: %d; milliseconds since the start:\n\n",
         d.files.count, WORKERS);
  lay_out(&d);
  start_workers(&d, self, database);
  kill_two(&d);
  join_survivors(&d);
  tell_takeover(&d, 1);
  tell_takeover(&d, 0);
  print_timeline(d.z, start_us);
  bool good = verify(&d, database);
  puts(good ? "all is well" : "FAILED");
  free_list(&d.files);
  must(zke_close(d.z), "closing");
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[2], "worker") == 0) return work(argv[1]);
  if (argc == 2) return play(argv[0], argv[1]);
  fprintf(stderr, "usage: %s DATABASE\n", argv[0]);
  return 2;
}
