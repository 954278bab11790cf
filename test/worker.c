/* worker.c - the other process of the tests that need several
 *
 * test_spawn(ROLE, ARGS…) starts it.  It reads commands from its input, one a
 * line, and answers each with one line: "ok" and a value, or the result code
 * and zke_errmsg().  At the end of its input it exits without zke_close(), so
 * the others see its process die.
 *
 *   talk                 commands only
 *   hold DB PATH         opens DB, makes PATH an ephemeral, says "ready ID"
 *   namespace ROLE ARGS  runs ROLE as the first process of a new PID namespace
 *                        and says "child PID" (or "skip" where not permitted)
 *
 * A table at the end lists the commands.  All system calls of the library, and
 * all calls of SQLite to its VFS, pass through a seam.  So the process can die
 * at the n-th of them ("arm"), and syncs can be made to fail.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "seam.h"

extern char **environ;

/* ---- faults ---- */

/* Which calls are fault points: those with an effect that other processes see,
 * or a later one that opens the file.  Dying before a call that only reads is
 * the same as dying before the next change. */
static const bool is_point[SEAM_KINDS] = {
    [SEAM_open] = true,        [SEAM_close] = true,      [SEAM_write] = true,
    [SEAM_pwrite] = true,      [SEAM_fsync] = true,      [SEAM_adopt] = true,
    [SEAM_mkdir] = true,       [SEAM_mkfifo] = true,     [SEAM_unlink] = true,
    [SEAM_lock] = true,        [SEAM_lock_range] = true, [SEAM_xOpen] = true,
    [SEAM_xDelete] = true,     [SEAM_xClose] = true,     [SEAM_xWrite] = true,
    [SEAM_xTruncate] = true,   [SEAM_xSync] = true,      [SEAM_xLock] = true,
    [SEAM_xUnlock] = true,     [SEAM_xShmMap] = true,    [SEAM_xShmLock] = true,
    [SEAM_xShmBarrier] = true, [SEAM_xShmUnmap] = true};

static long countdown;   /* points until it is killed; 0: off */
static char os_boot[64]; /* the boot id to report; "": the real one */

static void pass_point(seam_call *c) {
  if (is_point[c->kind] && countdown > 0 && --countdown == 0) raise(SIGKILL);
}

static void pretend_boot(seam_call *c) {
  if (os_boot[0]) seam_refuse(c, snprintf(c->data, c->size, "%s", os_boot));
}

static seam host = {.vfs = "unix-shim",
                    .each = pass_point,
                    .before = {[SEAM_boot_id] = pretend_boot},
                    .fail = {[SEAM_xSync] = {.result = SQLITE_IOERR_FSYNC}}};

/* ---- answers and events ---- */

static zke *handle;

/* Answer a command in one line: "ok" and a text, or the code and its
 * sentence. */
static void answer(int rc, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void answer(int rc, const char *format, ...) {
  static char text[70000];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  if (rc == ZKE_OK) {
    printf("ok%s%s\n", text[0] ? " " : "", text);
  } else {
    printf("%d %s\n", rc, zke_errmsg());
  }
  fflush(stdout);
}

static void answer_code(int rc) { answer(rc, "%s", ""); }

static char events[65536]; /* "CHANGED /a;CHILD /", since the last answer */

/* An event's type as the answers print it. */
static const char *event_name(int type) {
  switch (type) {
    case ZKE_EVENT_CREATED:
      return "CREATED";
    case ZKE_EVENT_DELETED:
      return "DELETED";
    case ZKE_EVENT_CHANGED:
      return "CHANGED";
    case ZKE_EVENT_CHILD:
      return "CHILD";
    case ZKE_EVENT_OVERFLOW:
      return "OVERFLOW";
    default:
      return "SESSION";
  }
}

/* The worker's watcher: records each event for the command "events". */
static void note(zke *z, int type, int state, const char *path, void *context) {
  size_t used = strlen(events);
  (void)z, (void)state, (void)context;
  snprintf(events + used, sizeof events - used, "%s%s %s", used ? ";" : "",
           event_name(type), path);
}

static void answer_events(int rc) {
  answer(events[0] ? ZKE_OK : rc, "%s", events);
  events[0] = '\0';
}

static int number(const char *word) { return word ? atoi(word) : 0; }

static int length(const char *data) { return data ? (int)strlen(data) : -1; }

/* ---- commands on the handle ---- */

/* If a word is "NAMEvalue" with this name, find its value. */
static bool has_value(const char *word, const char *name, const char **value) {
  size_t n = strlen(name);
  if (strncmp(word, name, n) != 0) return false;
  *value = word + n;
  return true;
}

/* open DB [busy=MS] [boot=ID] [lease=MS] [durable=N] [readonly] [existing] */
static void cmd_open(char **word) {
  zke_options o = {.size = sizeof o,
                   .vfs = seam_vfs(&host),
                   .os = seam_os(&host),
                   .watcher = note};
  const char *value;
  char *rest = word[1] ? word[1] : (char[]){""};
  for (char *w = strtok(rest, " "); w; w = strtok(NULL, " ")) {
    if (has_value(w, "busy=", &value)) o.busy_timeout_ms = atoi(value);
    if (has_value(w, "lease=", &value)) o.lease_ms = atoi(value);
    if (has_value(w, "durable=", &value)) o.durability = atoi(value);
    if (has_value(w, "boot=", &value)) {
      snprintf(os_boot, sizeof os_boot, "%s", value);
    }
    if (has_value(w, "readonly", &value)) o.flags |= ZKE_OPEN_READONLY;
    if (has_value(w, "existing", &value)) o.flags |= ZKE_OPEN_EXISTING;
    if (has_value(w, "host", &value)) o.flags |= ZKE_OPEN_HOST;
  }
  int rc = zke_open(word[0], &o, &handle);
  answer(rc, "%lld", (long long)zke_session_id(handle));
}

static void cmd_close(char **word) {
  (void)word;
  int rc = zke_close(handle);
  handle = NULL;
  answer_code(rc);
}

static void cmd_id(char **word) {
  (void)word;
  answer(ZKE_OK, "%lld", (long long)zke_session_id(handle));
}

/* expire [ID]: by default this handle's own session */
static void cmd_expire(char **word) {
  int64_t id = word[0] ? atoll(word[0]) : zke_session_id(handle);
  answer_code(zke_expire(handle, id));
}

/* create PATH DATA [MODE] */
static void cmd_create(char **word) {
  char *path = NULL;
  int mode = number(word[2]), rc;
  if (mode == ZKE_PERSISTENT_WITH_TTL ||
      mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL) {
    rc = zke_create_ttl(handle, word[0], word[1], length(word[1]), ZKE_OPEN_ACL,
                        mode, 3600000, &path, NULL);
  } else {
    rc = zke_create(handle, word[0], word[1], length(word[1]), ZKE_OPEN_ACL,
                    mode, &path, NULL);
  }
  answer(rc, "%s", path);
  zke_free(path);
}

/* set PATH DATA [VERSION] */
static void cmd_set(char **word) {
  zke_stat stat = {0};
  int version = word[2] ? atoi(word[2]) : -1;
  int rc = zke_set(handle, word[0], word[1], length(word[1]), version, &stat);
  answer(rc, "%d", (int)stat.version);
}

static void cmd_delete(char **word) {
  answer_code(zke_delete(handle, word[0], -1));
}

static void cmd_get(char **word) {
  char *data = NULL;
  int rc = zke_get(handle, word[0], NULL, NULL, &data, NULL, NULL);
  answer(rc, "%s", data ? data : "");
  zke_free(data);
}

static void cmd_exists(char **word) {
  zke_stat stat = {0};
  int rc = zke_exists(handle, word[0], NULL, NULL, &stat);
  answer(rc, "%lld", (long long)stat.ephemeralOwner);
}

/* multi SET CREATE DELETE: three operations, all or nothing */
static void cmd_multi(char **word) {
  zke_op op[3];
  zke_op_set(&op[0], word[0], "multi", 5, -1);
  zke_op_create(&op[1], word[1], "multi", 5, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&op[2], word[2], -1);
  answer_code(zke_multi(handle, op, 3, NULL));
}

/* The calls of a batch, from its words. */
static int batch_words(zke *z, void *context) {
  char **word = context;
  int rc = zke_set(z, word[0], "multi", 5, -1, NULL);
  if (rc == ZKE_OK)
    rc = zke_create(z, word[1], "multi", 5, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL);
  return rc == ZKE_OK ? zke_delete(z, word[2], -1) : rc;
}

/* batch SET CREATE DELETE: the same as three calls in a batch */
static void cmd_batch(char **word) {
  answer_code(zke_batch(handle, batch_words, word));
}

static int batch_light(zke *z, void *context) {
  char **word = context;
  int rc =
      zke_create(z, word[0], "x", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
  if (rc == ZKE_OK) rc = zke_exists(z, word[0], note, NULL, NULL);
  if (rc == ZKE_OK) rc = zke_set(z, word[0], "y", 1, -1, NULL);
  if (zke_create(z, "/none/p", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                 NULL) != ZKE_NONODE)
    rc = ZKE_BROKEN;
  return rc == ZKE_OK ? zke_delete(z, word[0], -1) : rc;
}

/* light PATH: an ephemeral's life, in a batch; a durable create is refused */
static void cmd_light(char **word) {
  answer_code(zke_batch(handle, batch_light, word));
}

/* guard CHECK SET: set one node if another exists */
static void cmd_guard(char **word) {
  zke_op op[2];
  zke_op_check(&op[0], word[0], -1);
  zke_op_set(&op[1], word[1], "guard", 5, -1);
  answer_code(zke_multi(handle, op, 2, NULL));
}

/* pass SET DELETE: set one node and delete another */
static void cmd_pass(char **word) {
  zke_op op[2];
  zke_op_set(&op[0], word[0], "pass", 4, -1);
  zke_op_delete(&op[1], word[1], -1);
  answer_code(zke_multi(handle, op, 2, NULL));
}

/* watch PATH: a data watch, whether the node exists or not */
static void cmd_watch(char **word) {
  int rc = zke_exists(handle, word[0], note, NULL, NULL);
  answer_code(rc == ZKE_NONODE ? ZKE_OK : rc);
}

static void cmd_watch_tree(char **word) {
  answer_code(zke_add_watch(handle, word[0], ZKE_WATCH_PERSISTENT_RECURSIVE,
                            note, NULL));
}

/* wait MS: the events, or -7 if none came */
static void cmd_wait(char **word) {
  answer_events(zke_wait(handle, zke_now(handle) + number(word[0])));
}

static void cmd_dispatch(char **word) {
  (void)word;
  answer_events(zke_dispatch(handle, NULL));
}

/* Add one to the node's number, by compare and swap. */
static int increment(const char *path) {
  int rc;
  do {
    char *data = NULL, next[32];
    zke_stat stat;
    rc = zke_get(handle, path, NULL, NULL, &data, NULL, &stat);
    if (rc != ZKE_OK) return rc;
    int n = snprintf(next, sizeof next, "%d", number(data) + 1);
    zke_free(data);
    rc = zke_set(handle, path, next, n, stat.version, NULL);
  } while (rc == ZKE_BADVERSION);
  return rc;
}

/* add PATH TIMES */
static void cmd_add(char **word) {
  int rc = ZKE_OK;
  for (int i = 0; rc == ZKE_OK && i < number(word[1]); i++) {
    rc = increment(word[0]);
  }
  answer_code(rc);
}

static void cmd_check(char **word) {
  (void)word;
  answer_code(zke_check(handle, NULL, NULL));
}

static void cmd_compact(char **word) {
  (void)word;
  answer_code(zke_compact(handle, ZKE_FOREVER));
}

/* ---- commands about processes ---- */

static pid_t start(char **argv) {
  pid_t pid = -1;
  int rc = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
  return rc ? -rc : pid;
}

static char *sleeper[] = {(char[]){"sleep"}, (char[]){"1000"}, NULL};

/* pause MS: so that another process can fall asleep first */
static void cmd_pause(char **word) {
  answer_code(ZKE_OK);
  poll(NULL, 0, number(word[0]));
}

/* spawn: a child that shares nothing on purpose */
static void cmd_spawn(char **word) {
  (void)word;
  answer(ZKE_OK, "%d", (int)start(sleeper));
}

/* keepalive: a child that keeps the session alive */
static void cmd_keepalive(char **word) {
  int fd = -1, rc = zke_keepalive_fd(handle, &fd);
  (void)word;
  if (rc != ZKE_OK) {
    answer_code(rc);
    return;
  }
  fcntl(fd, F_SETFD, 0);
  answer(ZKE_OK, "%d", (int)start(sleeper));
  close(fd);
}

/* fork: a child that continues with a copy of everything */
static void cmd_fork(char **word) {
  (void)word;
  pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  answer(ZKE_OK, "%d", (int)pid);
}

static void cmd_exit(char **word) { exit(number(word[0])); }

/* ---- commands about faults ---- */

/* arm N: die at the n-th point from now on */
static void cmd_arm(char **word) {
  answer_code(ZKE_OK);
  countdown = number(word[0]);
}

/* failsync SKIP COUNT: fail this many of SQLite's syncs */
static void cmd_failsync(char **word) {
  host.fail[SEAM_xSync].skip = number(word[0]);
  host.fail[SEAM_xSync].times = number(word[1]);
  answer_code(ZKE_OK);
}

/* syncs: how many SQLite has made since this was last asked */
static void cmd_syncs(char **word) {
  (void)word;
  answer(ZKE_OK, "%ld", host.calls[SEAM_xSync]);
  host.calls[SEAM_xSync] = 0;
}

/* ---- plain SQLite ---- */

static sqlite3 *plain; /* open from the first "sql" to "sqlclose" */

/* Appends the first column of a row to the answer. */
static int sql_row(void *text, int count, char **value, char **name) {
  size_t used = strlen(text);
  (void)name;
  if (count > 0) {
    snprintf((char *)text + used, 4096 - used, "%s%s", used ? " " : "",
             value[0] ? value[0] : "NULL");
  }
  return 0;
}

/* sql DB TEXT: the first column of all rows, on one connection */
static void cmd_sql(char **word) {
  char text[4096] = "";
  int rc = SQLITE_OK;
  if (!plain) {
    rc = sqlite3_open(word[0], &plain);
    sqlite3_busy_timeout(plain, 5000);
    sqlite3_wal_autocheckpoint(plain, 0);
  }
  if (rc == SQLITE_OK) rc = sqlite3_exec(plain, word[1], sql_row, text, NULL);
  if (rc == SQLITE_OK) {
    answer(ZKE_OK, "%s", text);
  } else {
    printf("%d %s\n", -rc, sqlite3_errmsg(plain));
    fflush(stdout);
  }
}

static void cmd_sqlclose(char **word) {
  (void)word;
  int rc = sqlite3_close(plain);
  plain = NULL;
  answer_code(rc ? ZKE_SYSTEMERROR : ZKE_OK);
}

/* ---- the interpreter ---- */

enum { WORDS = 4 };

static const struct command {
  const char *name;
  int words; /* arguments; the last one takes the rest of the line */
  int needed;
  void (*run)(char **word);
} commands[] = {
    {"open", 2, 1, cmd_open},
    {"close", 0, 0, cmd_close},
    {"id", 0, 0, cmd_id},
    {"expire", 1, 0, cmd_expire},
    {"create", 3, 1, cmd_create},
    {"set", 3, 1, cmd_set},
    {"delete", 1, 1, cmd_delete},
    {"get", 1, 1, cmd_get},
    {"exists", 1, 1, cmd_exists},
    {"multi", 3, 3, cmd_multi},
    {"batch", 3, 3, cmd_batch},
    {"light", 1, 1, cmd_light},
    {"guard", 2, 2, cmd_guard},
    {"pass", 2, 2, cmd_pass},
    {"watch", 1, 1, cmd_watch},
    {"watchtree", 1, 1, cmd_watch_tree},
    {"wait", 1, 1, cmd_wait},
    {"dispatch", 0, 0, cmd_dispatch},
    {"add", 2, 2, cmd_add},
    {"check", 0, 0, cmd_check},
    {"compact", 0, 0, cmd_compact},
    {"pause", 1, 1, cmd_pause},
    {"spawn", 0, 0, cmd_spawn},
    {"keepalive", 0, 0, cmd_keepalive},
    {"fork", 0, 0, cmd_fork},
    {"exit", 1, 0, cmd_exit},
    {"arm", 1, 1, cmd_arm},
    {"failsync", 2, 2, cmd_failsync},
    {"syncs", 0, 0, cmd_syncs},
    {"sql", 2, 2, cmd_sql},
    {"sqlclose", 0, 0, cmd_sqlclose},
};

static const struct command *command_named(const char *name) {
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    if (strcmp(name, commands[i].name) == 0) return &commands[i];
  }
  return NULL;
}

/* Run one line: a command's name and its words, the last of which may have
 * blanks.  An unknown command ends the worker, since the test is wrong. */
static void obey(char *line) {
  char *word[WORDS] = {NULL}, *save = NULL, *name = strtok_r(line, " ", &save);
  const struct command *c = name ? command_named(name) : NULL;
  int count = 0;
  for (; c && count < c->words && save && *save; count++) {
    bool last = count + 1 == c->words;
    word[count] = strtok_r(NULL, last ? "" : " ", &save);
  }
  if (!c || count < c->needed) {
    fprintf(stderr, "worker: what is '%s'?\n", name ? name : "");
    exit(64);
  }
  c->run(word);
}

/* ---- roles ---- */

/* The role that reads commands until its input ends. */
static int talk(char **args) {
  char *line = NULL;
  size_t size = 0;
  ssize_t n;
  (void)args;
  while ((n = getline(&line, &size, stdin)) > 0) {
    if (line[n - 1] == '\n') line[n - 1] = '\0';
    obey(line);
  }
  free(line);
  return 0;
}

/* The role that opens the database with an ephemeral node, says so, and then
 * talks. */
static int hold(char **args) {
  zke_options o = {.size = sizeof o,
                   .vfs = seam_vfs(&host),
                   .os = seam_os(&host),
                   .watcher = note};
  if (zke_open(args[0], &o, &handle) != ZKE_OK ||
      zke_create(handle, args[1], "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                 NULL) != ZKE_OK) {
    printf("failed: %s\n", zke_errmsg());
    return 1;
  }
  printf("ready %lld\n", (long long)zke_session_id(handle));
  fflush(stdout);
  return talk(NULL);
}

/* The child talks with the test; this process only passes on its result.  It
 * runs no exit handlers: those of sanitizers start processes, which cannot be
 * in a namespace after its first process has died. */
static int namespace(char **args) {
  char *argv[16] = {(char[]){"/proc/self/exe"}};
  int status = 0;
  for (int i = 0; i < 14 && args[i]; i++) argv[i + 1] = args[i];
  const char *emulator = getenv("ZKE_TEST_EMULATOR");
  bool emulated = emulator && *emulator; /* /proc/self/exe is the emulator */
  if (emulated || unshare(CLONE_NEWPID) != 0) {
    printf("skip %s\n", emulated ? emulator : strerror(errno));
    return 0;
  }
  pid_t pid = start(argv);
  printf("child %d\n", (int)pid);
  fflush(stdout);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static const struct {
  const char *name;
  int args;
  int (*run)(char **args);
} roles[] = {{"talk", 0, talk}, {"hold", 2, hold}, {"namespace", 1, namespace}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc > 1 && i < sizeof roles / sizeof roles[0]; i++) {
    if (strcmp(argv[1], roles[i].name) == 0 && argc - 2 >= roles[i].args) {
      return roles[i].run(argv + 2);
    }
  }
  fprintf(stderr, "worker: no such role\n");
  return 64;
}
