/* check_twice.c - two copies of zkembed in one process on one file
 *
 *     twice FIRST.so SECOND.so DATABASE
 *
 * The copies are loaded privately, so they share only SQLite.  They must see
 * each other's changes, and wake each other; and when one closes files, the
 * other's locks must remain (its session stays alive).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zkembed.h"

/* A loaded copy: the functions that this test uses.  Each member has the name
 * and the type of its function. */
#define FUNCTIONS(X) \
  X(open)            \
  X(close)           \
  X(create)          \
  X(set)             \
  X(get)             \
  X(exists)          \
  X(now)             \
  X(wait)            \
  X(session_id)      \
  X(sessions)        \
  X(check)           \
  X(errmsg)          \
  X(free)
typedef struct copy {
#define MEMBER(name) __typeof__(&zke_##name) name;
  FUNCTIONS(MEMBER)
#undef MEMBER
} copy;

static int passed, failed;

static void expect(bool condition, const char *what) {
  condition ? passed++ : failed++;
  if (!condition) printf("FAILED: %s\n", what);
}

static void *find(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return symbol;
}

static copy load(const char *path) {
  copy c;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
#define LOAD(name) *(void **)&c.name = find(library, "zke_" #name);
  FUNCTIONS(LOAD)
#undef LOAD
  return c;
}

static zke *open_with(const copy *c, const char *name) {
  zke *z = NULL;
  if (c->open(name, NULL, &z) != ZKE_OK) {
    fprintf(stderr, "%s: %s\n", name, c->errmsg());
    exit(2);
  }
  return z;
}

/* What a watcher saw last. */
static int seen_type;
static char seen_path[64];

static void watcher(zke *z, int type, int state, const char *path,
                    void *context) {
  (void)z, (void)state, (void)context;
  seen_type = type;
  snprintf(seen_path, sizeof seen_path, "%s", path);
}

static bool told(const copy *c, zke *z, int type, const char *path) {
  seen_type = 0;
  int rc = c->wait(z, c->now(z) + 5000);
  return rc == ZKE_OK && seen_type == type && strcmp(seen_path, path) == 0;
}

static bool create(const copy *c, zke *z, const char *path, int mode) {
  static const zke_acl anyone = {ZKE_PERM_ALL, "world", "anyone"};
  static const zke_acls open_acl = {1, &anyone};
  return c->create(z, path, "one", 3, &open_acl, mode, NULL, NULL) == ZKE_OK;
}

static bool holds(const copy *c, zke *z, const char *path, const char *value) {
  char *data = NULL;
  int rc = c->get(z, path, NULL, NULL, &data, NULL, NULL);
  bool same = rc == ZKE_OK && strcmp(data, value) == 0;
  c->free(data);
  return same;
}

/* How many sessions the file has, all alive; -1 if one is not. */
static int living(const copy *c, zke *z) {
  zke_session_list *list = NULL;
  if (c->sessions(z, -1, &list) != ZKE_OK) return -1;
  int count = list->count;
  for (int i = 0; i < list->count; i++) {
    if (!list->data[i].alive) count = -1;
  }
  c->free(list);
  return count;
}

/* Both handles are closed to the child, whichever copy's handler ran. */
static bool refused_in_child(const copy *a, zke *za, const copy *b, zke *zb) {
  pid_t child = fork();
  if (child == 0) {
    bool refused = a->exists(za, "/", NULL, NULL, NULL) == ZKE_FORKED &&
                   b->exists(zb, "/", NULL, NULL, NULL) == ZKE_FORKED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  copy a = load(argv[1]), b = load(argv[2]);
  expect(a.open != b.open, "the copies are two");
  zke *za = open_with(&a, argv[3]), *zb = open_with(&b, argv[3]);
  expect(a.session_id(za) != b.session_id(zb), "two sessions");

  expect(create(&a, za, "/n", ZKE_PERSISTENT), "create through the first");
  expect(holds(&b, zb, "/n", "one"), "get through the second");
  b.exists(zb, "/n", watcher, NULL, NULL);
  expect(a.set(za, "/n", "two", 3, -1, NULL) == ZKE_OK, "set");
  expect(told(&b, zb, ZKE_EVENT_CHANGED, "/n"), "the second is told");
  expect(holds(&b, zb, "/n", "two"), "the second reads the new value");
  a.exists(za, "/m", watcher, NULL, NULL);
  expect(create(&b, zb, "/m", ZKE_EPHEMERAL), "create through the second");
  expect(told(&a, za, ZKE_EVENT_CREATED, "/m"), "the first is told");
  expect(refused_in_child(&a, za, &b, zb), "a forked child is refused");

  expect(create(&a, za, "/e", ZKE_EPHEMERAL), "an ephemeral of the first");
  b.exists(zb, "/e", watcher, NULL, NULL);
  expect(living(&b, zb) == 2, "two living sessions");
  expect(a.close(za) == ZKE_OK, "close the first");
  expect(told(&b, zb, ZKE_EVENT_DELETED, "/e"), "the second is told of it");
  za = open_with(&a, argv[3]);
  expect(living(&a, za) == 2, "the second lost no lock by the first's closing");
  expect(holds(&a, za, "/m", "one"), "nor its ephemeral");
  expect(a.check(za, NULL, NULL) == ZKE_OK, "the database is sound");
  expect(b.close(zb) == ZKE_OK && a.close(za) == ZKE_OK, "close both");
  printf("copies: %d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
