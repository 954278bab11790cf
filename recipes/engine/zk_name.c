/* zk_name.c - parsing the name of an ensemble
 *
 * The text is copied once and cut in place: first the options after '?', then
 * the chroot from the first '/', then the servers between commas.  All texts of
 * a zk_name point into its one block, so one free() releases a name.  Nothing
 * is looked up here: a name that cannot be resolved is not malformed. */
#include "zk_name.h"

#include <stdlib.h>
#include <string.h>

#include "zkembed.h"

/* Is the component at s, len bytes, "." or ".."? */
static bool is_dots(const char *s, size_t len) {
  return (len == 1 || len == 2) && s[0] == '.' && s[len - 1] == '.';
}

/* Check a path as ZooKeeper's C client does before it sends one: no component
 * is empty, "." or "..", and none has a control character.  The last component
 * may be anything if a number will follow it.  A server refuses other wrong
 * paths. */
bool zke_ensemble_path_check(const char *path, bool sequential) {
  if (!path || path[0] != '/') return false;
  if (path[1] == '\0') return true;
  for (const char *at = path + 1;;) {
    size_t len = strcspn(at, "/");
    bool last = at[len] == '\0';
    if ((len == 0 || is_dots(at, len)) && !(last && sequential)) return false;
    for (size_t i = 0; i < len; i++) {
      if ((unsigned char)at[i] < 0x1f) return false;
    }
    if (last) return true;
    at += len + 1;
  }
}

/* The failure for a malformed name.  The error comes first: a name may be
 * longer than a sentence, and then its end is cut off. */
static int bad(const char *text, const char *what, const char *where) {
  return zke_fail(ZKE_BADARGUMENTS, "%s \"%s\" in %s", what, where, text);
}

/* Cut a text at the first such character; returns the rest, or NULL. */
static char *cut(char *text, char at) {
  char *found = strchr(text, at);
  if (found) *found++ = '\0';
  return found;
}

/* A number from `least` to `most`, and nothing after it; -1: it is none.
 * strtoll() would accept signs, blanks and other bases.  It cannot overflow, as
 * it stops above `most`. */
static int64_t number(const char *text, int64_t least, int64_t most) {
  int64_t n = 0;
  if (!*text) return -1;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return -1;
    n = n * 10 + (*text - '0');
    if (n > most) return -1;
  }
  return n < least ? -1 : n;
}

/* Read the value of an option that is on or off: only "0" or "1". */
static int parse_switch(const char *text, const char *option, const char *value,
                        bool *out) {
  int64_t on = number(value, 0, 1);
  *out = on == 1;
  return on >= 0 ? ZKE_OK
                 : zke_fail(ZKE_BADARGUMENTS, "%s=%s is neither 0 nor 1 in %s",
                            option, value, text);
}

/* Parse one of the options after '?'; cuts it at its '='.  An unknown one is
 * refused: ignoring it would hide a misspelling. */
static int parse_option(const char *text, char *option, zk_name *out) {
  char *value = cut(option, '=');
  if (value && strcmp(option, "timeout") == 0) {
    out->timeout_ms = number(value, 1, INT32_MAX);
    return out->timeout_ms > 0 ? ZKE_OK
                               : bad(text, "no number of ms, timeout", value);
  }
  if (value && strcmp(option, "sync") == 0)
    return parse_switch(text, option, value, &out->sync);
  if (value && strcmp(option, "thread") == 0)
    return parse_switch(text, option, value, &out->thread);
  return bad(text, "unknown option", option);
}

/* The options after '?', separated by '&'.  If one is given twice, the last
 * counts. */
static int parse_options(const char *text, char *options, zk_name *out) {
  while (options) {
    char *next = cut(options, '&');
    int rc = parse_option(text, options, out);
    if (rc != ZKE_OK) return rc;
    options = next;
  }
  return ZKE_OK;
}

/* "host", "host:port", "[::1]" or "[::1]:port". */
static int parse_server(const char *text, char *server, zk_server *out) {
  char *port;
  out->host = server;
  out->port = "2181";
  if (*server == '[') {
    char *behind = cut(++server, ']');
    out->host = server;
    if (!behind) return bad(text, "no ] behind", server);
    if (*behind && *behind != ':') return bad(text, "neither : nor ,", behind);
    port = *behind ? behind + 1 : NULL;
  } else {
    port = cut(server, ':');
  }
  if (!*server) return bad(text, "no host before", port ? port : "");
  if (!port) return ZKE_OK;
  out->port = port;
  return number(port, 1, 65535) > 0 ? ZKE_OK : bad(text, "no port", port);
}

/* The servers, separated by commas.  The block is cut into their texts, and
 * keeps them. */
static int parse_servers(const char *text, char *servers, zk_name *out) {
  while (servers) {
    char *next = cut(servers, ',');
    if (out->count == ZK_NAME_SERVERS)
      return bad(text, "too many servers from", servers);
    int rc = parse_server(text, servers, &out->servers[out->count]);
    if (rc != ZKE_OK) return rc;
    out->count++;
    servers = next;
  }
  return ZKE_OK;
}

/* The chroot keeps its '/': the servers were copied before. */
static int parse_chroot(const char *text, const char *chroot, zk_name *out) {
  if (!zke_ensemble_path_check(chroot, false))
    return bad(text, "no path", chroot);
  out->chroot = chroot[1] ? chroot : "";
  return ZKE_OK;
}

/* The options and the chroot are cut off first, in one copy; the servers are
 * cut in a second one, since the chroot keeps the '/' that ends them. */
int zke_ensemble_name_parse(const char *text, zk_name *out) {
  size_t prefix = strlen(ZK_NAME_PREFIX), len = strlen(text);
  memset(out, 0, sizeof *out);
  out->sync = true;
  out->chroot = "";
  if (strncmp(text, ZK_NAME_PREFIX, prefix) != 0)
    return bad(text, "does not begin with", ZK_NAME_PREFIX);
  out->block = calloc(2, len + 1);
  if (!out->block) return zke_fail(ZKE_NOMEM, "%s: out of memory", text);
  char *servers = out->block, *whole = out->block + len + 1;
  memcpy(whole, text + prefix, len - prefix);
  int rc = parse_options(text, cut(whole, '?'), out);
  size_t hosts = strcspn(whole, "/");
  if (rc == ZKE_OK && whole[hosts]) rc = parse_chroot(text, whole + hosts, out);
  memcpy(servers, whole, hosts);
  if (rc == ZKE_OK) rc = parse_servers(text, servers, out);
  return rc;
}

void zke_ensemble_name_free(zk_name *name) {
  free(name->block);
  memset(name, 0, sizeof *name);
}
