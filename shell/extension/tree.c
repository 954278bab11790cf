/* tree.c - znodes in SQL */
#include "extension.h"

/* ---- arguments ---- */

/* The kinds of znodes, with the names of ZooKeeper's clients. */
static const struct {
  const char *name;
  int mode;
} modes[] = {{"persistent", ZKE_PERSISTENT},
             {"ephemeral", ZKE_EPHEMERAL},
             {"persistent_sequential", ZKE_PERSISTENT_SEQUENTIAL},
             {"ephemeral_sequential", ZKE_EPHEMERAL_SEQUENTIAL},
             {"container", ZKE_CONTAINER}};

static int mode_at(const ext_call *c, int at, int *out) {
  const char *name = ext_text(c, at);
  *out = ZKE_PERSISTENT;
  if (!name) return ZKE_OK;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    *out = modes[i].mode;
    if (sqlite3_stricmp(name, modes[i].name) == 0) return ZKE_OK;
  }
  return zke_fail(ZKE_BADARGUMENTS,
                  "%s(): the mode \"%s\" is none of persistent, ephemeral, "
                  "persistent_sequential, ephemeral_sequential, container",
                  c->function->name, name);
}

/* ---- functions ---- */

/* zke_create(path [, data [, mode]]): the path of the new znode. */
static int run_create(ext_call *c) {
  const char *path;
  char *made = NULL;
  int mode, rc = ext_znode(c, &path);
  if (rc == ZKE_OK) rc = mode_at(c, 2, &mode);
  if (rc != ZKE_OK) return rc;
  ext_data v = ext_bytes(c, 1);
  rc =
      zke_create(c->k->z, path, v.data, v.len, ZKE_OPEN_ACL, mode, &made, NULL);
  if (rc == ZKE_OK) sqlite3_result_text(c->sql, made, -1, SQLITE_TRANSIENT);
  zke_free(made);
  return rc;
}

/* zke_get(path): its data as a blob; NULL also if there is no znode. */
static int run_get(ext_call *c) {
  const char *path;
  char *data = NULL;
  int len = 0, rc = ext_znode(c, &path);
  if (rc != ZKE_OK) return rc;
  rc = zke_get(c->k->z, path, NULL, NULL, &data, &len, NULL);
  if (rc == ZKE_OK && data)
    sqlite3_result_blob(c->sql, data, len, SQLITE_TRANSIENT);
  zke_free(data);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* zke_set(path, data [, version]): the new version. */
static int run_set(ext_call *c) {
  const char *path;
  zke_stat stat;
  int rc = ext_znode(c, &path);
  if (rc != ZKE_OK) return rc;
  ext_data v = ext_bytes(c, 1);
  int version = (int)ext_int(c, 2, -1);
  rc = zke_set(c->k->z, path, v.data, v.len, version, &stat);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, stat.version);
  return rc;
}

/* zke_delete(path [, version]): 1. */
static int run_delete(ext_call *c) {
  const char *path;
  int rc = ext_znode(c, &path);
  if (rc == ZKE_OK) rc = zke_delete(c->k->z, path, (int)ext_int(c, 1, -1));
  return ext_done(c, rc);
}

/* zke_exists(path): 1 or 0.  zke_version(path): its version, NULL without. */
static int look(ext_call *c, bool exists) {
  const char *path;
  zke_stat stat;
  int rc = ext_znode(c, &path);
  if (rc == ZKE_OK) rc = zke_exists(c->k->z, path, NULL, NULL, &stat);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  if (exists)
    sqlite3_result_int(c->sql, rc == ZKE_OK);
  else if (rc == ZKE_OK)
    sqlite3_result_int(c->sql, stat.version);
  return ZKE_OK;
}

static int run_exists(ext_call *c) { return look(c, true); }
static int run_version(ext_call *c) { return look(c, false); }

const ext_function ext_tree[] = {
    {"zke_create", 1, "tdt", EXT_CHANGES, run_create},
    {"zke_get", 1, "t", EXT_READS, run_get},
    {"zke_set", 2, "tdi", EXT_CHANGES, run_set},
    {"zke_delete", 1, "ti", EXT_CHANGES, run_delete},
    {"zke_exists", 1, "t", EXT_READS, run_exists},
    {"zke_version", 1, "t", EXT_READS, run_version},
    {0}};
