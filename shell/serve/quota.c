/* quota.c - quotas, as ZooKeeper keeps them below /zookeeper/quota
 *
 *     /zookeeper/quota/PATH/zookeeper_limits   the limits of PATH
 *     /zookeeper/quota/PATH/zookeeper_stats    its size
 *
 * Both are texts, "count=5,bytes=-1=;countHardLimit=9"; -1 means no limit, and
 * so does a missing name.  ZooKeeper's server writes the statistics at each
 * change.  Here they are calculated when a client reads them, so they are right
 * whichever program changes the tree, and cost nothing unless they are read.
 *
 * Limits count only with --enforce-quota, as with ZooKeeper's enforceQuota:
 * before each create and set, this finds the path's quota, if there is one, and
 * counts its subtree.  A hard limit refuses the change.  A soft one, which
 * counts if there is no hard one, is only reported.  Of nested quotas the
 * deepest counts.
 *
 * A count takes time in proportion to the subtree, and no other client is
 * served meanwhile.  So a request, which may be a multi of thousands of
 * operations, counts each subtree once: all its operations are judged by the
 * state before it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

#define QUOTA "/zookeeper/quota"

/* ------------------------------------------------------------------------
 * The two nodes
 *
 * Reads and makes their texts.  Counting a subtree is expensive: quota_counts
 * keeps the result for one request.
 * --------------------------------------------------------------------- */

/* Two limits of one thing; -1: none. */
typedef struct limit {
  int64_t soft, hard;
} limit;

/* The limits of a quota. */
typedef struct limits {
  limit count, bytes;
} limits;

/* Reads one "name=number", up to a separator. */
static void read_limit(limits *out, const char *text) {
  const struct {
    const char *name;
    int64_t *value;
  } known[] = {{"count=", &out->count.soft},
               {"bytes=", &out->bytes.soft},
               {"countHardLimit=", &out->count.hard},
               {"byteHardLimit=", &out->bytes.hard}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    size_t len = strlen(known[i].name);
    char *end;
    if (strncmp(text, known[i].name, len) != 0) continue;
    long long value = strtoll(text + len, &end, 10);
    *known[i].value = end == text + len ? -1 : value;
  }
}

/* A text of limits; it ends in a NUL. */
static limits read_limits(const char *text) {
  limits out = {{-1, -1}, {-1, -1}};
  while (*text) {
    read_limit(&out, text);
    text += strcspn(text, ",;");
    text += strspn(text, ",;");
  }
  return out;
}

/* The limits of a path's first len bytes.  ZKE_NONODE: it has no quota; if
 * *deeper becomes false, nothing below it has one. */
static int find_limits(server *s, const char *path, size_t len, limits *out,
                       bool *deeper) {
  char *node = NULL, *data = NULL;
  int rc = ZKE_NOMEM, bytes;
  if (asprintf(&node, QUOTA "%.*s/zookeeper_limits", (int)len, path) < 0)
    return rc;
  rc = zke_get(s->z, node, NULL, NULL, &data, &bytes, NULL);
  if (rc == ZKE_OK) {
    char *text = strndup(data ? data : "", bytes > 0 ? (size_t)bytes : 0);
    if (text)
      *out = read_limits(text);
    else
      rc = ZKE_NOMEM;
    free(text);
    zke_free(data);
  }
  node[strlen(QUOTA) + len] = '\0';
  *deeper = rc == ZKE_OK || zke_exists(s->z, node, NULL, NULL, NULL) == ZKE_OK;
  free(node);
  return rc;
}

/* The path that a node has statistics of: its length, and *path_out; 0: none.
 * "/" has no quota, as in ZooKeeper. */
static size_t stats_of(const char *node, const char **path_out) {
  static const char leaf[] = "/zookeeper_stats";
  size_t root = strlen(QUOTA), len = strlen(node), end = strlen(leaf);
  if (strncmp(node, QUOTA "/", root + 1) != 0 || len <= root + end) return 0;
  if (strcmp(node + len - end, leaf) != 0) return 0;
  *path_out = node + root;
  return len - root - end;
}

/* A soft limit that the request exceeds, and the count after it. */
typedef struct passed {
  int64_t now, most; /* now 0: none is exceeded */
} passed;

/* The contents of a path's subtree, if rc is ZKE_OK. */
struct quota_counts {
  quota_counts *next;
  int rc;
  int64_t count, bytes;
  passed soft_nodes, soft_bytes;
  char path[];
};

/* Counts the subtree, unless the request has done so; NULL without memory.  A
 * missing path holds nothing. */
static quota_counts *count_once(server *s, quota_counts **counted,
                                const char *path, size_t len) {
  for (quota_counts *at = *counted; at; at = at->next)
    if (strncmp(at->path, path, len) == 0 && !at->path[len]) return at;
  quota_counts *new = calloc(1, sizeof *new + len + 1);
  if (!new) return NULL;
  memcpy(new->path, path, len);
  new->rc = zke_usage(s->z, new->path, &new->count, &new->bytes);
  if (new->rc == ZKE_NONODE) new->rc = ZKE_OK;
  new->next = *counted;
  *counted = new;
  return new;
}

/* At a request's end: the next one counts again, since others change the tree
 * meanwhile. */
void quota_forget(quota_counts **counted) {
  while (*counted) {
    quota_counts *first = *counted;
    *counted = first->next;
    free(first);
  }
}

/* ZooKeeper keeps this node's data up to date; here it is counted at each read.
 * Returns NULL also if it cannot be counted: then the client sees the stored
 * data. */
char *quota_stats(server *s, quota_counts **counted, const char *node) {
  limits unused;
  bool deeper;
  const char *path = NULL;
  size_t len = stats_of(node, &path);
  if (len == 0 || find_limits(s, path, len, &unused, &deeper) != ZKE_OK)
    return NULL;
  const quota_counts *used = count_once(s, counted, path, len);
  char *text;
  if (!used || used->rc != ZKE_OK) return NULL;
  if (asprintf(&text, "count=%" PRId64 ",bytes=%" PRId64, used->count,
               used->bytes) < 0)
    return NULL;
  return text;
}

/* ------------------------------------------------------------------------
 * Enforcement
 *
 * Called before each create and set.  It refuses only changes that it knows to
 * exceed a limit.  A soft limit is reported after the change has been made.
 * --------------------------------------------------------------------- */

/* Finds the deepest quota over a path: returns how much of the path it covers;
 * 0: there is none.  It goes down from the top, and stops where no quotas are
 * below: so a path without one costs one or two reads. */
static size_t find_quota(server *s, const char *path, limits *out) {
  size_t found = 0;
  bool deeper =
      strncmp(path, "/zookeeper", 10) != 0 || (path[10] && path[10] != '/');
  for (size_t len = 1; deeper && path[len - 1]; len++) {
    limits here;
    len += strcspn(path + len, "/");
    if (find_limits(s, path, len, &here, &deeper) != ZKE_OK) continue;
    *out = here;
    found = len;
  }
  return found;
}

/* The effective limit, or -1.  ZooKeeper ignores the soft one if there is a
 * hard one. */
static int64_t limit_of(limit l) { return l.hard > -1 ? l.hard : l.soft; }

static void tell(server *s, int kind, const char *path, const char *what,
                 int64_t now, int64_t most) {
  server_tell(s, kind, path, "%" PRId64 " %s, %s limit %" PRId64, now, what,
              kind == TELL_QUOTA ? "hard" : "soft", most);
}

/* Must the change be refused, since it would exceed a hard limit?  Reports
 * that.  Notes a soft one. */
static bool is_refused(server *s, const char *path, const char *what,
                       int64_t now, limit l, passed *soft) {
  int64_t most = limit_of(l);
  if (most < 0 || now <= most) return false;
  if (l.hard > -1)
    tell(s, TELL_QUOTA, path, what, now, most);
  else
    *soft = (passed){now, most};
  return l.hard > -1;
}

void quota_tell_passed(server *s, const quota_counts *counted) {
  for (const quota_counts *at = counted; at; at = at->next) {
    const passed *nodes = &at->soft_nodes, *bytes = &at->soft_bytes;
    if (nodes->now)
      tell(s, TELL_SOFT_QUOTA, at->path, "nodes", nodes->now, nodes->most);
    if (bytes->now)
      tell(s, TELL_SOFT_QUOTA, at->path, "bytes", bytes->now, bytes->most);
  }
}

/* How many bytes of data a node has; 0 if it does not exist. */
static int64_t bytes_at(server *s, const char *path) {
  zke_stat stat;
  return zke_exists(s->z, path, NULL, NULL, &stat) == ZKE_OK ? stat.dataLength
                                                             : 0;
}

/* If the count fails, this does not refuse: the change itself fails then. */
bool quota_refuses(server *s, quota_counts **counted, const char *path,
                   bool is_create, int len) {
  limits l = {{0, 0}, {0, 0}};
  size_t found = s->enforce_quota && *path == '/' ? find_quota(s, path, &l) : 0;
  if (!found || (limit_of(l.count) < 0 && limit_of(l.bytes) < 0)) return false;
  quota_counts *used = count_once(s, counted, path, found);
  if (!used || used->rc != ZKE_OK) return false;
  int64_t more = (len > 0 ? len : 0) - (is_create ? 0 : bytes_at(s, path));
  return (is_create && is_refused(s, used->path, "nodes", used->count + 1,
                                  l.count, &used->soft_nodes)) ||
         (more != 0 && is_refused(s, used->path, "bytes", used->bytes + more,
                                  l.bytes, &used->soft_bytes));
}
