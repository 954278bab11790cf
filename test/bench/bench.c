/* bench.c - zkembed, the floor, and the alternatives, side by side
 *
 *     make bench            everything that is installed; build/bench.json
 *     make bench-peers      fetches the peers first
 *     make bench-plots      doc/performance/ from bench.json
 *     QUICK=1 make bench    a smoke run: its figures mean nothing
 *     ONLY=lock,death       only these parts
 *     BENCH_DIR=/mnt/x      directory of the databases; default: the program's
 *
 *     bench --loop NAME SUBJECT COUNT
 *                           repeat one operation, for perf and strace
 *
 * doc/performance.md says how it is measured; bench.h lists the files.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct {
  const char *name;
  void (*run)(void);
} parts[] = {{"ops", part_ops},           {"open", part_open},
             {"watch", part_watch},       {"lock", part_lock},
             {"death", part_death},       {"contention", part_contention},
             {"election", part_election}, {"barrier", part_barrier},
             {"queue", part_queue},       {"mixed", part_mixed},
             {"reader", part_reader},     {"memory", part_memory},
             {"idle", part_idle},         {"scale", part_scale},
             {"removal", part_removal},   {"sessions", part_sessions},
             {"line", part_line},         {"cache", part_cache},
             {"served", part_served},     {"host", part_host},
             {"zoonet", part_zoonet},     {"connections", part_connections}};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* ---- subjects ---- */

const subject *subjects[SUBJECTS_MOST];
int subject_count;

/* All subjects, available or not; NULL if the client was not linked. */
static const struct {
  const char *name;
  const subject *is;
} known[] = {{"zkembed", &subject_zke},      {"raw", &subject_raw},
             {"flock", &subject_flock},      {"zookeeper", &subject_zookeeper},
             {"etcd", &subject_etcd},        {"redis", &subject_redis},
             {"election", &subject_election}};
enum { KNOWN = sizeof known / sizeof known[0], COMPARED = KNOWN - 1 };

static const char *absent[SUBJECTS_MOST][2]; /* name and reason */
static int absent_count;

static void subject_add(const char *name, const subject *s) {
  const char *why = s ? s->absent() : "no C client when this was compiled";
  if (!why) {
    subjects[subject_count++] = s;
    return;
  }
  absent[absent_count][0] = name;
  absent[absent_count++][1] = why;
}

/* Find the available subjects. */
static void subjects_find(void) {
  for (int i = 0; i < COMPARED; i++) subject_add(known[i].name, known[i].is);
}

void subjects_describe(void) {
  for (int i = 0; i < subject_count; i++) {
    char version[400];
    subjects[i]->version(version, sizeof version);
    report_setting(subjects[i]->name, "%s", version);
  }
  for (int i = 0; i < absent_count; i++) {
    report_setting(absent[i][0], "not here: %s", absent[i][1]);
  }
  printf("\nWhat each promises that others do not:\n");
  for (int i = 0; i < subject_count; i++) {
    printf("  %-12s %s\n", subjects[i]->name, subjects[i]->promise);
  }
}

const subject *subject_named(const char *name) {
  for (int i = 0; i < KNOWN; i++) {
    if (known[i].is && strcmp(known[i].name, name) == 0) return known[i].is;
  }
  die("nothing is named %s", name);
}

bool subject_can(const subject *s, action wanted) {
  return wanted == ACT_NONE || s->act[wanted] != NULL;
}

/* ---- parts ---- */

/* Is a name in a list with commas? */
static bool listed(const char *list, const char *name) {
  size_t size = strlen(name);
  for (const char *at = list; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, name, size) == 0 && (!at[size] || at[size] == ','))
      return true;
  }
  return false;
}

static void run_parts(void) {
  const char *only = getenv("ONLY");
  for (int i = 0; i < PARTS; i++) {
    if (only && *only && !listed(only, parts[i].name)) continue;
    report_part(parts[i].name);
    parts[i].run();
  }
}

/* ---- for test/bench/peers.sh ---- */

static int listening(int port, bool bind_it) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int rc = bind_it ? bind(fd, (struct sockaddr *)&at, size)
                   : connect(fd, (struct sockaddr *)&at, size);
  if (rc == 0 && bind_it) rc = getsockname(fd, (struct sockaddr *)&at, &size);
  close(fd);
  return rc ? -1 : ntohs(at.sin_port);
}

/* --free-port prints one; --answers PORT: does a server listen there? */
static int port_main(int argc, char **argv) {
  if (argc == 3) return listening(atoi(argv[2]), false) < 0;
  printf("%d\n", listening(0, true));
  return 0;
}

static bool asked(const char *variable) {
  const char *value = getenv(variable);
  return value && *value && strcmp(value, "0") != 0;
}

int main(int argc, char **argv) {
  memset(data, 'x', sizeof data);
  signal(SIGPIPE, SIG_IGN); /* the floor may write to a dead process */
  if (argc > 1 && (strcmp(argv[1], "--free-port") == 0 ||
                   strcmp(argv[1], "--answers") == 0))
    return port_main(argc, argv);
  run.quick = asked("QUICK");
  choose_cpus();
  make_directory(argv[0]);
  if (argc > 1 && strcmp(argv[1], "--role") == 0) return role_main(argc, argv);
  pin(run.cpu[0]);
  more_descriptors();
  if (argc == 5 && strcmp(argv[1], "--loop") == 0) {
    return measure_loop(argv[2], argv[3], atoi(argv[4]));
  }
  if (argc > 1) die("it takes no arguments but those that its head tells of");
  subjects_find();
  report_begin();
  run_parts();
  report_end();
  return 0;
}
