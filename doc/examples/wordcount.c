/* wordcount.c - several processes count the words of a checkout's text files
 *
 *   wordcount DATABASE    the demo, run in the checkout; makes DATABASE
 *
 * The demo puts the names of the files into a queue and starts four workers:
 * processes of this same program ("wordcount DATABASE worker-0 ...") that have
 * nothing in common but the database file.  In the midst of their work it
 * kills a worker and then the leader with kill -9.  The others notice and take
 * over what the dead had begun, and the total must be what `wc -w` says.
 *
 * Three recipes do the work:
 *
 *   /queue      (queue.h) the files whose words are not counted yet.  A worker
 *               claims one, so that it is free again if the worker dies, and
 *               acknowledges it in one step with the result: nothing is lost,
 *               nothing is counted twice
 *   /workers    (group.h) who is there, and what each is at; who hears first
 *               that one has gone registers its death
 *   /election   (election.h) one of them reports when all is done
 *
 * and the rest are plain znodes:
 *
 *   /job            how many files, and how this machine's wc tells words
 *   /results/entry-…  the words of a file, when they were begun and by whom
 *   /deaths/worker-…  when a worker's death was first noticed, and by whom
 *   /total          the leader's report; whoever sees it goes home
 *   /demo           ephemeral: the demo; a worker that halts waits for its end
 *   /timeline/t-…   what happened, and when, for the demo to print
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

#include "recipes/election.h"
#include "recipes/group.h"
#include "recipes/queue.h"
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

/* identity is what others are shown of us. */
static zke *open_tree(const char *database, const char *identity) {
  zke *z;
  zke_options options = ZKE_INIT(zke_options);
  options.busy_timeout_ms = PATIENCE_MS;
  options.identity = identity;
  must(zke_open(database, &options, &z), "opening");
  return z;
}

static int64_t patience(zke *z) { return zke_now(z) + PATIENCE_MS; }

static void woken(zke *z, int type, int state, const char *path,
                  void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

static void sleep_until_woken(zke *z) {
  must(zke_wait(z, patience(z)), "waiting");
}

/* Whether a znode exists; we are woken when that changes. */
static bool exists(zke *z, const char *path) {
  int rc = zke_exists(z, path, woken, NULL, NULL);
  if (rc != ZKE_NONODE) must(rc, path);
  return rc == ZKE_OK;
}

/* A znode's text, for zke_free(), as soon as there is one. */
static char *await(zke *z, const char *path) {
  char *text;
  while (!exists(z, path)) sleep_until_woken(z);
  must(zke_get(z, path, NULL, NULL, &text, NULL, NULL), path);
  return text;
}

/* How many children a znode has. */
static int children_of(zke *z, const char *path, zke_watch_fn watcher,
                       void *context) {
  zke_stat stat;
  must(zke_children(z, path, watcher, context, NULL, &stat), path);
  return stat.numChildren;
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
  char path[PATH_SIZE], *text;
  result r = {0};
  must(zke_get(z, path_to(path, "/results", item), NULL, NULL, &text, NULL,
               NULL),
       path);
  if (sscanf(text, "%ld %" SCNd64 " %31s", &r.words, &r.begun_us, r.worker) !=
      3)
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
  const char *name;
  bool halts; /* to be killed in the middle of its first item */
  int files, rule;
  zke_queue *queue;
  zke_group *group;
  zke_election *election;
} worker;

/* Somebody has gone.  Before the end it can only have died; who registers that
 * first has noticed it, the others are refused. */
static void heard_of(zke_group *group, int event, const zke_party *who,
                     void *context) {
  worker *w = context;
  char path[PATH_SIZE], text[64];
  (void)group;
  if (event != ZKE_GROUP_LEFT || exists(w->z, "/total")) return;
  snprintf(text, sizeof text, "%" PRId64 " %s", now_us(), w->name);
  int rc = create(w->z, path_to(path, "/deaths", who->identity), text,
                  ZKE_PERSISTENT);
  if (rc != ZKE_NODEEXISTS) must(rc, path);
}

/* The leader's report ends the work. */
static void report(worker *w) {
  zke_strings *items;
  char text[32];
  long words = 0;
  must(zke_children(w->z, "/results", NULL, NULL, &items, NULL), "/results");
  for (int i = 0; i < items->count; i++)
    words += result_of(w->z, items->data[i]).words;
  say(w->z, now_us(), w->name, "reports %ld words in %d files", words,
      items->count);
  zke_free(items);
  snprintf(text, sizeof text, "%ld", words);
  must(create(w->z, "/total", text, ZKE_PERSISTENT), "/total");
}

/* Called for each new result, where this worker leads. */
static void progress(zke *z, int type, int state, const char *path,
                     void *context) {
  worker *w = context;
  (void)type, (void)state, (void)path;
  if (exists(z, "/total")) return;
  if (children_of(z, "/results", progress, w) == w->files) report(w);
}

/* Elected: take office, and see how far the work has come.  Who inherits the
 * office from a leader gone home has nothing to do. */
static void elected(zke_election *e, int event, int64_t token, void *context) {
  worker *w = context;
  (void)token;
  if (event != ZKE_ELECTION_ELECTED_COMPLETE || exists(w->z, "/total")) return;
  must(zke_election_ready(e), "taking office");
  say(w->z, now_us(), w->name, "leads; files counted: %d of %d",
      children_of(w->z, "/results", NULL, NULL), w->files);
  progress(w->z, 0, 0, NULL, w);
}

/* The total is there: whoever waits for an item waits no more. */
static void go_home(zke *z, int type, int state, const char *path,
                    void *context) {
  worker *w = context;
  (void)z, (void)type, (void)state, (void)path;
  zke_queue_cancel(w->queue);
}

/* ---- a worker: items ---- */

/* If this worker is the victim: tell the others what it is at, and wait for
 * the end.  Should the demo itself die, so do we. */
static void halt(worker *w, const zke_queue_item *item) {
  say(w->z, now_us(), w->name, "is in the middle of %s, %s", item->name,
      item->data);
  must(zke_group_update(w->group, item->name, (int)strlen(item->name),
                        patience(w->z)),
       "/workers");
  while (exists(w->z, "/demo")) sleep_until_woken(w->z);
  give_up(w->name, "the demo is gone");
}

static long count_file(worker *w, const zke_queue_item *item) {
  counter c = {.rule = w->rule};
  size_t size;
  char *text = read_file(item->data, &size);
  if (!text) give_up(item->data, "cannot be read");
  count(&c, text, size / 2);
  if (w->halts) halt(w, item);
  count(&c, text + size / 2, size - size / 2);
  free(text);
  return c.words;
}

/* Count a file.  Its item becomes a result, all at once, or nothing changes:
 * then the claim is lost, and the item another's. */
static void work_on(worker *w, const zke_queue_item *item) {
  char path[PATH_SIZE], text[128];
  zke_op op;
  int64_t begun_us = now_us();
  long words = count_file(w, item);
  snprintf(text, sizeof text, "%ld %" PRId64 " %s", words, begun_us, w->name);
  zke_op_create(&op, path_to(path, "/results", item->name), text,
                (int)strlen(text), ZKE_OPEN_ACL, ZKE_PERSISTENT);
  must(zke_queue_ack(w->queue, item, &op, 1, NULL), item->name);
}

static void begin(worker *w) {
  zke_group_options in = ZKE_INIT(zke_group_options);
  in.listener = heard_of;
  in.context = w;
  zke_election_options candidate = ZKE_INIT(zke_election_options);
  candidate.name = w->name;
  candidate.listener = elected;
  candidate.context = w;
  say(w->z, now_us(), w->name, "joins, process %ld", (long)getpid());
  char *job = await(w->z, "/job");
  if (sscanf(job, "%d %d", &w->files, &w->rule) != 2) give_up("/job", job);
  zke_free(job);
  must(zke_queue_new(w->z, "/queue", NULL, &w->queue), "/queue");
  must(zke_group_new(w->z, "/workers", &in, &w->group), "/workers");
  must(zke_group_join(w->group, "", 0, patience(w->z)), "/workers");
  must(zke_group_start(w->group), "/workers");
  must(zke_election_new(w->z, "/election", &candidate, &w->election),
       "/election");
  must(zke_election_start(w->election), "/election");
  int rc = zke_exists(w->z, "/total", go_home, w, NULL);
  if (rc != ZKE_NONODE) must(rc, "/total");
}

/* All that is heard of the others is heard inside zke_dispatch() and while we
 * wait for an item. */
static int work(const char *database, const char *name, const char *part) {
  worker w = {.name = name, .halts = strcmp(part, "halt") == 0};
  zke_queue_item *item;
  int rc;
  w.z = open_tree(database, name);
  begin(&w);
  while ((rc = zke_queue_claim(w.queue, patience(w.z), &item)) == ZKE_OK) {
    work_on(&w, item);
    zke_free(item);
    must(zke_dispatch(w.z, NULL), "dispatching");
  }
  if (rc != ZKE_CANCELLED) must(rc, "/queue");
  zke_election_free(w.election);
  zke_group_free(w.group);
  zke_queue_free(w.queue);
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
  if (files.count < 2) give_up(".", "there are no two text files here");
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
    snprintf(item, sizeof item, "entry-100-%010d", i + 1); /* from 1 */
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

/* The first two workers halt in the middle of their first items, and are
 * killed there. */
enum { LEADER, VICTIM };

typedef struct demo {
  zke *z;
  char *self, *database;
  file_list files;
  zke_group *group;
  pid_t pid[WORKERS];
  int64_t killed_us[WORKERS];
  char halted_in[WORKERS][NAME_SIZE]; /* the item, or "" */
} demo;

static void name_of(char name[NAME_SIZE], int i) {
  snprintf(name, NAME_SIZE, "worker-%d", i);
}

/* Which worker a member is; -1: none. */
static int number_of(const zke_party *who) {
  char name[NAME_SIZE];
  for (int i = 0; who && i < WORKERS; i++) {
    name_of(name, i);
    if (strcmp(who->identity, name) == 0) return i;
  }
  return -1;
}

/* A worker has come, or has said what it is at: both at once, perhaps. */
static void look_on(zke_group *group, int event, const zke_party *who,
                    void *context) {
  demo *d = context;
  int i = number_of(who);
  (void)group;
  if ((event == ZKE_GROUP_JOINED || event == ZKE_GROUP_CHANGED) && i >= 0)
    snprintf(d->halted_in[i], NAME_SIZE, "%s", who->len > 0 ? who->data : "");
}

/* The whole queue in one step. */
static void fill_queue(demo *d) {
  zke_queue *queue;
  size_t count = (size_t)d->files.count;
  zke_queue_value *values = must_have(calloc(count, sizeof *values), "/queue");
  for (size_t i = 0; i < count; i++) {
    const char *file = d->files.name[i];
    values[i] = (zke_queue_value){file, (int)strlen(file)};
  }
  must(zke_queue_new(d->z, "/queue", NULL, &queue), "/queue");
  must(zke_queue_put_all(queue, values, d->files.count, NULL, patience(d->z)),
       "/queue");
  zke_queue_free(queue);
  free(values);
}

static void lay_out(demo *d) {
  static const char *const directories[] = {"/results", "/deaths", "/timeline"};
  zke_group_options o = ZKE_INIT(zke_group_options);
  o.listener = look_on;
  o.context = d;
  char job[32];
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
    must(create(d->z, directories[i], "", ZKE_PERSISTENT), directories[i]);
  snprintf(job, sizeof job, "%d %d", d->files.count, ask_wc());
  must(create(d->z, "/job", job, ZKE_PERSISTENT), "/job");
  must(create(d->z, "/demo", "", ZKE_EPHEMERAL), "/demo");
  must(zke_group_new(d->z, "/workers", &o, &d->group), "/workers");
  must(zke_group_start(d->group), "/workers");
  fill_queue(d);
}

static void start_worker(demo *d, int i, const char *as) {
  char name[NAME_SIZE], part[NAME_SIZE];
  name_of(name, i);
  snprintf(part, sizeof part, "%s", as);
  char *arguments[] = {d->self, d->database, name, part, NULL};
  if (posix_spawn(&d->pid[i], d->self, NULL, NULL, arguments, environ) != 0)
    give_up(d->self, "cannot be started");
}

static void wait_for_halt(demo *d, int i) {
  while (!*d->halted_in[i]) sleep_until_woken(d->z);
}

static void wait_for_results(demo *d, int count) {
  while (children_of(d->z, "/results", woken, NULL) < count)
    sleep_until_woken(d->z);
}

/* kill -9, and wait for another worker to notice. */
static void kill_worker(demo *d, int i, const char *as) {
  char name[NAME_SIZE], path[PATH_SIZE], who[NAME_SIZE];
  int64_t noticed_us;
  int status;
  name_of(name, i);
  d->killed_us[i] = now_us();
  kill(d->pid[i], SIGKILL);
  char *text = await(d->z, path_to(path, "/deaths", name));
  say(d->z, d->killed_us[i], "demo", "kill -9 %s, %s", name, as);
  if (sscanf(text, "%" SCNd64 " %31s", &noticed_us, who) == 2)
    say(d->z, noticed_us, who, "notices the death of %s after %.2f ms", name,
        ms(noticed_us - d->killed_us[i]));
  zke_free(text);
  if (waitpid(d->pid[i], &status, 0) != d->pid[i] || !WIFSIGNALED(status))
    give_up(name, "was not killed");
  d->pid[i] = 0;
}

/* The first worker leads, and each of the first two has an item before the
 * next one comes.  The victim dies while the others are at work, the leader
 * when they have nothing left but to wait for its item. */
static void kill_two(demo *d) {
  int files = d->files.count;
  for (int i = 0; i <= VICTIM; i++) {
    start_worker(d, i, "halt");
    wait_for_halt(d, i);
  }
  for (int i = VICTIM + 1; i < WORKERS; i++) start_worker(d, i, "work");
  wait_for_results(d, (files - 2) / 2);
  kill_worker(d, VICTIM, "a worker");
  wait_for_results(d, files - 1);
  kill_worker(d, LEADER, "the leader");
}

/* The survivors go home by themselves. */
static void join_survivors(demo *d) {
  int status;
  zke_free(await(d->z, "/total"));
  for (int i = VICTIM + 1; i < WORKERS; i++)
    if (waitpid(d->pid[i], &status, 0) != d->pid[i] || status != 0)
      give_up("a worker", "failed");
}

/* Who finished what a dead worker had begun. */
static void tell_takeover(demo *d, int i) {
  char name[NAME_SIZE];
  result r = result_of(d->z, d->halted_in[i]);
  name_of(name, i);
  say(d->z, r.begun_us, r.worker, "takes over %s of %s after %.2f ms",
      d->halted_in[i], name, ms(r.begun_us - d->killed_us[i]));
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
  zke_strings *names;
  must(zke_children(z, "/timeline", NULL, NULL, &names, NULL), "/timeline");
  size_t count = (size_t)names->count;
  entry *entries = must_have(calloc(count, sizeof *entries), "/timeline");
  for (size_t i = 0; i < count; i++) {
    char path[PATH_SIZE];
    entries[i].text = await(z, path_to(path, "/timeline", names->data[i]));
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

/* What the workers, dead or gone home, have left. */
static bool nothing_left(demo *d) {
  zke_queue *queue;
  zke_queue_counts left;
  zke_party_list *members, *candidates;
  zke_session_list *sessions;
  must(zke_queue_new(d->z, "/queue", NULL, &queue), "/queue");
  must(zke_queue_size(queue, &left), "/queue");
  zke_queue_free(queue);
  must(zke_dispatch(d->z, NULL), "dispatching"); /* hear of those gone home */
  must(zke_group_list(d->group, &members), "/workers");
  must(zke_election_parties(d->z, "/election", &candidates), "/election");
  must(zke_sessions(d->z, -1, &sessions), "sessions");
  int others = sessions->count - 1; /* one is the demo's own */
  printf(
      "left behind: %d items, %d claims, %d members, %d candidates, "
      "%d sessions\n",
      left.items, left.claimed, members->count, candidates->count, others);
  bool nothing = left.items + left.dead + left.claimed + members->count +
                     candidates->count + others ==
                 0;
  zke_free(members);
  zke_free(candidates);
  zke_free(sessions);
  return nothing;
}

static bool verify(demo *d) {
  long ours, wcs = 0;
  char *total = await(d->z, "/total");
  ours = atol(total);
  zke_free(total);
  bool right = compare(d->z, &d->files, d->database, &wcs) && ours == wcs;
  printf("\nthe workers say %ld words, wc -w says %ld\n", ours, wcs);
  bool clean = nothing_left(d);
  must(zke_check(d->z, NULL, NULL), "database");
  return right && clean;
}

static int play(char *self, char *database) {
  int64_t start_us = now_us();
  demo d = {.self = self, .database = database, .files = list_files()};
  d.z = open_tree(database, "the demo");
  printf("files: %d, workers: %d; milliseconds since the start:\n\n",
         d.files.count, WORKERS);
  lay_out(&d);
  kill_two(&d);
  join_survivors(&d);
  tell_takeover(&d, VICTIM);
  tell_takeover(&d, LEADER);
  print_timeline(d.z, start_us);
  bool good = verify(&d);
  puts(good ? "all is well" : "FAILED");
  zke_group_free(d.group);
  free_list(&d.files);
  must(zke_close(d.z), "closing");
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc == 4) return work(argv[1], argv[2], argv[3]);
  if (argc == 2) return play(argv[0], argv[1]);
  fprintf(stderr, "usage: %s DATABASE\n", argv[0]);
  return 2;
}
