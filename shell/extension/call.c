/* call.c - arguments and errors of a function */
#include "extension.h"

#include <limits.h>
#include <string.h>

/* Is it a number of so many bits, perhaps as a double or a text? */
static bool is_number(sqlite3_value *value, int bits) {
  const double end = 9223372036854775808.0; /* of 64 bits: 2 to the 63rd */
  int type = sqlite3_value_numeric_type(value);
  double d = sqlite3_value_double(value);
  if (type != SQLITE_INTEGER && type != SQLITE_FLOAT) return false;
  if (bits == 32) return d >= INT_MIN && d <= INT_MAX;
  return type == SQLITE_INTEGER || (d >= -end && d < end);
}

static int check_number(const char *function, int at, int bits,
                        sqlite3_value *value) {
  if (is_number(value, bits)) return ZKE_OK;
  return zke_fail(ZKE_BADARGUMENTS,
                  "%s(): argument %d is \"%.40s\", not a number of %d bits",
                  function, at + 1, (const char *)sqlite3_value_text(value),
                  bits);
}

int ext_check(const char *function, int at, char sort, sqlite3_value *value) {
  if (sqlite3_value_type(value) == SQLITE_NULL) return ZKE_OK;
  if (sort == 'i') return check_number(function, at, 32, value);
  if (sort == 'n') return check_number(function, at, 64, value);
  if (sort == 'd') return ZKE_OK;
  const char *text = (const char *)sqlite3_value_text(value);
  if (!text) return ext_nomem();
  if (strlen(text) == (size_t)sqlite3_value_bytes(value)) return ZKE_OK;
  return zke_fail(ZKE_BADARGUMENTS, "%s(): argument %d has a zero byte",
                  function, at + 1);
}

const char *ext_text(const ext_call *c, int at) {
  if (at >= c->count) return NULL;
  return (const char *)sqlite3_value_text(c->value[at]);
}

int ext_path(const ext_call *c, int at, const char *base, char **path_out) {
  const char *name = ext_text(c, at);
  *path_out = NULL;
  if (!name || !*name)
    return zke_fail(ZKE_BADARGUMENTS, "%s(): a name is missing",
                    c->function->name);
  *path_out = strchr(name, '/') ? sqlite3_mprintf("%s", name)
                                : sqlite3_mprintf("/%s/%s", base, name);
  return *path_out ? ZKE_OK : ext_nomem();
}

int ext_znode(const ext_call *c, const char **path_out) {
  const char *path = *path_out = ext_text(c, 0);
  if (!path)
    return zke_fail(ZKE_BADARGUMENTS, "%s(): the path is NULL",
                    c->function->name);
  return ZKE_OK;
}

/* A blob of no bytes has no address, but it is data, not NULL. */
ext_data ext_bytes(const ext_call *c, int at) {
  int type = at < c->count ? sqlite3_value_type(c->value[at]) : SQLITE_NULL;
  if (type == SQLITE_NULL) return (ext_data){NULL, -1};
  const void *data = type == SQLITE_BLOB ? sqlite3_value_blob(c->value[at])
                                         : sqlite3_value_text(c->value[at]);
  return (ext_data){data ? data : "", sqlite3_value_bytes(c->value[at])};
}

int64_t ext_int(const ext_call *c, int at, int64_t without) {
  if (at >= c->count || sqlite3_value_type(c->value[at]) == SQLITE_NULL)
    return without;
  return sqlite3_value_int64(c->value[at]);
}

int64_t ext_until(const ext_call *c, int at) {
  int64_t ms = ext_int(c, at, -1);
  if (ms < 0) return ZKE_FOREVER;
  int64_t now = zke_now(c->k->z);
  return ms < ZKE_FOREVER - now ? now + ms : ZKE_FOREVER;
}

int ext_done(ext_call *c, int rc) {
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, 1);
  return rc;
}

void ext_wake(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

const char *ext_file(const ext_connection *k) {
  const char *file = sqlite3_db_filename(k->db, "main");
  return file && *file ? file : NULL;
}

char *ext_error_text(int rc) {
  return sqlite3_mprintf("%s: %s", zke_error_name(rc), zke_errmsg());
}
