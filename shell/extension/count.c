/* count.c - counters in SQL */
#include "extension.h"

#include "../../recipes/counter.h"

/* An object for one call: it keeps nothing beyond the call. */
static int get(ext_call *c, zke_counter **counter) {
  char *path;
  int rc = ext_path(c, 0, "counters", &path);
  if (rc == ZKE_OK) rc = zke_counter_new(c->k->z, path, NULL, counter);
  sqlite3_free(path);
  return rc;
}

/* Returns the number after the change. */
static int finish(ext_call *c, zke_counter *counter, int rc, int64_t value) {
  zke_counter_free(counter);
  if (rc == ZKE_OK) sqlite3_result_int64(c->sql, value);
  return rc;
}

/* zke_counter(name): its number; 0 if it does not exist. */
static int run_counter(ext_call *c) {
  zke_counter *counter = NULL;
  int64_t value = 0;
  int rc = get(c, &counter);
  if (rc == ZKE_OK) rc = zke_counter_get(counter, &value, NULL);
  return finish(c, counter, rc, value);
}

/* zke_counter_add(name, delta): the number after the addition. */
static int run_add(ext_call *c) {
  zke_counter *counter = NULL;
  int64_t value = 0, delta = ext_int(c, 1, 1);
  int rc = get(c, &counter);
  if (rc == ZKE_OK)
    rc = zke_counter_add_and_get(counter, delta, ZKE_FOREVER, &value, NULL);
  return finish(c, counter, rc, value);
}

/* zke_counter_set(name, value): the value. */
static int run_set(ext_call *c) {
  zke_counter *counter = NULL;
  int64_t value = ext_int(c, 1, 0);
  int rc = get(c, &counter);
  if (rc == ZKE_OK) rc = zke_counter_set(counter, value, ZKE_FOREVER, NULL);
  return finish(c, counter, rc, value);
}

const ext_function ext_counters[] = {
    {"zke_counter", 1, "t", EXT_READS, run_counter},
    {"zke_counter_add", 1, "tn", EXT_CHANGES, run_add},
    {"zke_counter_set", 2, "tn", EXT_CHANGES, run_set},
    {0}};
