/* transfer.c - export, import and dump: trees as lines of JSON
 *
 * An export is a line that identifies it, a line for each node, parents first,
 * and a line with the number of nodes, without which the export is incomplete:
 *
 *     {"format":"zkembed-tree","version":1,"path":"/app","exported_at":…,…}
 *     {"path":"","data":"x"}
 *     {"path":"queue","data":null,"sequence":12}
 *     {"path":"queue/key","data":{"base64":"AAE="},"kind":"ttl","ttl_ms":500}
 *     {"nodes":3}
 *
 * Defaults are left out: kind "persistent", an ACL that allows everybody
 * everything, sequence 0.  Versions, times and zxids are a tree's history, and
 * are not exported: they start again.
 *
 * EXPORT and DUMP read one snapshot of the file (database.c), so their output
 * is the tree at one moment, while others continue to change it.
 *
 * EXPORT of an ensemble walks the tree instead: each node is as it is when it
 * is read.  No request tells a container or a TTL node from a persistent one,
 * so both are written as persistent.
 *
 * IMPORT reads its file three times, and first copies a pipe to a temporary
 * file.  Start with import_all():
 *
 *     import_check      examines every line.  When it refuses the file, nothing
 *                       has been changed.  It refuses a malformed line, a node
 *                       before its parent, a node that the engine would refuse
 *                       (tried in a database in memory), and one that exists
 *     import_remove     --replace: deletes the existing nodes
 *     import_nodes      creates and sets the nodes, in batches (batch.c)
 *     import_finishing  raises sequence numbers and sets ACLs.  They come last,
 *                       since children raise their parent's number, and an ACL
 *                       might forbid the creation of nodes below
 *
 * If others change the tree meanwhile, or the disk is full, an import ends
 * partway.  Its message says how much was written; the same import with --merge
 * completes it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../recipes/support.h"
#include "../recipes/part/znode.h"
#include "batch.h"
#include "database.h"
#include "tree.h"
#include "walk.h"
#include "work.h"

#define FORMAT_NAME "zkembed-tree"
enum { FORMAT_VERSION = 1 };

/* ------------------------------------------------------------------------
 * ACLs
 *
 * The file's text and the library's structure both become the same JSON, so
 * that an export does not depend on its source.
 * --------------------------------------------------------------------- */

/* The id of a line "perms:scheme:id" of the file.  There a newline is written
 * \n, and a backslash \\. */
static json_t *acl_id(const char *text, size_t len) {
  char *id = malloc(len + 1), *to = id;
  if (!id) return NULL;
  for (size_t i = 0; i < len; i++) {
    if (text[i] == '\\' && i + 1 < len)
      *to++ = text[++i] == 'n' ? '\n' : text[i];
    else
      *to++ = text[i];
  }
  json_t *j = value_data(id, (int)(to - id));
  free(id);
  return j;
}

/* Marks an entry as another program's scheme, so that import does not take it
 * for a mistake. */
static void acl_mark_foreign(json_t *entry) {
  zke_acl acl = {.scheme = json_string_value(json_object_get(entry, "scheme"))};
  if (acl.scheme && acl_is_foreign(&acl))
    json_object_set_new(entry, "foreign", json_true());
}

/* The file's ACL (doc/format.md), a line for each entry, as an array of
 * objects.  It ends at the first malformed line, as in a damaged file. */
static json_t *acl_to_json(const char *text) {
  json_t *list = json_array();
  while (list && *text) {
    char *scheme;
    size_t line = strcspn(text, "\n");
    int value = (int)strtol(text, &scheme, 10);
    size_t left = line - (size_t)(scheme - text);
    if (*scheme != ':' || left < 2) break;
    scheme++;
    size_t len = strcspn(scheme, ":\n");
    const char *id = scheme + len + (scheme[len] == ':');
    json_t *entry = json_pack("{s:s%,s:o*,s:o*}", "scheme", scheme, len, "id",
                              acl_id(id, line - (size_t)(id - text)), "perms",
                              perms_json(value));
    acl_mark_foreign(entry);
    if (json_array_append_new(list, entry) != 0) {
      json_decref(list);
      return NULL;
    }
    text += line + (text[line] == '\n');
  }
  return list;
}

/* ------------------------------------------------------------------------
 * export
 *
 * No failure leaves a partial export: a file appears only when it is complete,
 * and import refuses a stream without its last line.
 * --------------------------------------------------------------------- */

/* One call of export. */
typedef struct export {
  call *c;
  const char *top;  /* the exported node's path from the file's root (with
                       --chroot); "" for the root */
  const char *name; /* of the file to write; NULL: rows to the output */
  FILE *out;        /* that file; NULL: rows */
  int64_t nodes, ephemerals; /* written so far */
  int64_t total;             /* for the progress, counted in advance */
}
export;

/* A line of the export; takes the reference.  0 or the exit code. */
static int export_line(export *x, json_t *row) {
  if (!x->out) return emit_row(x->c, row);
  if (!row) return no_memory(x->c);
  errno = 0;
  int rc = json_dumpf(row, x->out, JSON_COMPACT);
  json_decref(row);
  if (rc != 0 || putc('\n', x->out) == EOF) {
    if (!errno) errno = EIO;
    return fail_errno(x->c, STATUS_IO, x->name);
  }
  return 0;
}

/* A path relative to the top; "" for the top itself. */
static const char *export_relative(const export *x, const char *path) {
  const char *rest = path + strlen(x->top);
  return rest + (*rest == '/');
}

/* A node's line; takes the ACL, NULL for the default one.  NULL without
 * memory. */
static json_t *export_node(const export *x, const snapshot_node *n,
                           json_t *acl) {
  json_t *row = json_object();
  int bad =
      json_object_set_new(row, "path", value_text(export_relative(x, n->path)));
  bad |= json_object_set_new(row, "data", value_data(n->data, n->len));
  if (strcmp(n->kind, "persistent") != 0)
    bad |= json_object_set_new(row, "kind", json_string(n->kind));
  if (n->ttl_ms)
    bad |= json_object_set_new(row, "ttl_ms", json_integer(n->ttl_ms));
  if (n->stat.ephemeralOwner)
    bad |= json_object_set_new(row, "owner",
                               value_session(n->stat.ephemeralOwner));
  if (n->sequence)
    bad |= json_object_set_new(row, "sequence", json_integer(n->sequence));
  if (acl) bad |= json_object_set_new(row, "acl", acl);
  if (!bad) return row;
  json_decref(row);
  return NULL;
}

/* Writes one node, and counts it; takes the ACL. */
static int export_count(export *x, const snapshot_node *n, json_t *acl) {
  x->nodes++;
  x->ephemerals += n->stat.ephemeralOwner != 0;
  progress_show(x->c, "export, nodes", x->nodes, x->total);
  return export_line(x, export_node(x, n, acl));
}

/* For snapshot_read(): one node. */
static int export_one(void *arg, const snapshot_node *n) {
  return export_count(arg, n, n->acl ? acl_to_json(n->acl) : NULL);
}

/* The number of the next sequential child, which is the number of children
 * created so far.  cversion counts creations and deletions, numChildren
 * creations less deletions: half of the sum is the creations, in 32 bits. */
static int64_t next_sequence(const zke_stat *stat) {
  return ((uint32_t)stat->cversion + (uint32_t)stat->numChildren) / 2;
}

/* An ACL as JSON; NULL for the default one, which is left out. */
static json_t *acls_to_json(const zke_acls *acls) {
  const zke_acl *a = acls->data;
  if (acls->count == 1 && a->perms == ZKE_PERM_ALL &&
      strcmp(a->scheme, "world") == 0)
    return NULL;
  json_t *list = json_array();
  for (int i = 0; i < acls->count; i++, a++) {
    json_t *entry = json_pack("{s:s,s:o*,s:o*}", "scheme", a->scheme, "id",
                              value_text(a->id), "perms", perms_json(a->perms));
    acl_mark_foreign(entry);
    json_array_append_new(list, entry);
  }
  return list;
}

/* One node of an ensemble; leaves out a node that has gone meanwhile.  A node
 * that this session may not read ends the export, which would be incomplete. */
static int export_read(export *x, const char *path) {
  call *c = x->c;
  char *data = NULL;
  zke_acls *acls = NULL;
  snapshot_node n = {.path = path, .kind = "persistent"};
  int rc = zke_get(c->z, path, NULL, NULL, &data, &n.len, &n.stat);
  if (rc == ZKE_OK) rc = zke_get_acl(c->z, path, &acls, NULL);
  if (rc == ZKE_OK && acls_are_masked(acls))
    rc = zke_fail(
        ZKE_NOAUTH,
        "the ACL of %s is shown in full only to users who may change it", path);
  int status = 0;
  if (rc == ZKE_OK) {
    n.data = data;
    n.sequence = next_sequence(&n.stat);
    if (n.stat.ephemeralOwner) n.kind = "ephemeral";
    status = export_count(x, &n, acls_to_json(acls));
  } else if (rc != ZKE_NONODE) {
    status = fail_rc(c, rc);
  }
  zke_free(data);
  zke_free(acls);
  return status;
}

/* The nodes of an ensemble, parents first. */
static int export_walk(export *x, const char *path) {
  walk w;
  int status = 0;
  walk_begin(&w, x->c, path, -1, false);
  while (!status && walk_next(&w))
    if (!path_is_reserved(x->c, w.path)) status = export_read(x, w.path);
  return walk_end(&w, status);
}

/* All nodes of the snapshot or the ensemble. */
static int export_nodes(export *x, snapshot *s, const char *path) {
  return s ? snapshot_read(s, path, export_one, x) : export_walk(x, path);
}

/* The whole export: its head, its nodes, its end. */
static int export_tree(export *x, const char *path) {
  snapshot *s = NULL;
  int status = 0;
  if (store_of(x->c->sh) != STORE_ENSEMBLE) status = snapshot_open(x->c, &s);
  if (!status)
    status = export_line(
        x, json_pack("{s:s,s:i,s:o*,s:I,s:s}", "format", FORMAT_NAME, "version",
                     FORMAT_VERSION, "path", value_text(path), "exported_at",
                     (json_int_t)clock_wall_ms(), "zkembed", zke_version()));
  if (!status) status = export_nodes(x, s, path);
  if (!status)
    status = export_line(x, json_pack("{s:I}", "nodes", (json_int_t)x->nodes));
  snapshot_close(s);
  return status;
}

/* Writes the export to a file, which appears under its name when it is complete
 * (target_done()); then emits a row that reports it. */
static int export_to_file(export *x, const char *path) {
  call *c = x->c;
  target t = {.fd = -1};
  int status = target_open(c, x->name, true, &t);
  int fd = status ? -1 : dup(t.fd);
  if (!status && (fd < 0 || (x->out = fdopen(fd, "w")) == NULL)) {
    if (fd >= 0) close(fd);
    status = fail_errno(c, STATUS_SYSTEM, x->name);
  }
  if (!status) status = export_tree(x, path);
  if (x->out && fclose(x->out) != 0 && !status)
    status = fail_errno(c, STATUS_IO, x->name);
  if (!status) status = target_done(c, &t);
  target_close(&t);
  if (status) return status;
  return emit_row(
      c, json_pack("{s:o*,s:o*,s:I,s:I}", "file", value_text(x->name), "path",
                   value_text(path), "nodes", (json_int_t)x->nodes,
                   "ephemerals", (json_int_t)x->ephemerals));
}

/* "file: 3 nodes of /app" */
static void export_human(call *c, json_t *row, FILE *out) {
  json_int_t n = json_integer_value(json_object_get(row, "nodes"));
  (void)c;
  output_text(NULL, json_object_get(row, "file"), out);
  fprintf(out, ": %" JSON_INTEGER_FORMAT " node%s of ", n, n == 1 ? "" : "s");
  output_text(NULL, json_object_get(row, "path"), out);
  fputc('\n', out);
}

/* Prints the export.  It is JSON in every format, since import reads JSON. */
static int export_to_output(export *x, const char *path) {
  int format = x->c->format;
  x->c->format = FORMAT_JSON;
  int status = export_tree(x, path);
  x->c->format = format;
  return status;
}

/* The first argument as a path; without one, the root.  Other commands then use
 * the working node.  But whether `export` means the whole tree must not depend
 * on an earlier cd. */
static int arg_top(call *c, char **path_out) {
  static const word root = {"/", 1, false};
  return c->count ? arg_path(c, 0, path_out) : path_join(c, &root, path_out);
}

/* Refuses a path below /zookeeper; STATUS_DATA. */
static int fail_reserved(call *c, const char *path) {
  return fail_with(
      c, STATUS_DATA, "BADARGUMENTS",
      "%s is reserved for ZooKeeper, and is neither exported nor imported",
      path);
}

/* The path from the file's root, for struct export: --chroot and the path; on
 * an ensemble the handle's path.  For free(); NULL without memory. */
static char *top_of(call *c, const char *path) {
  const char *chroot = c->sh->options.chroot ? c->sh->options.chroot : "";
  if (strcmp(chroot, "/") == 0 || store_of(c->sh) == STORE_ENSEMBLE)
    chroot = "";
  size_t room = strlen(chroot) + strlen(path) + 1;
  char *top = malloc(room);
  if (top) snprintf(top, room, "%s%s", chroot, path[1] ? path : "");
  return top;
}

/* export [PATH [FILE]].  The count is only for the progress: a session that may
 * not read the top gets none, but may still export it. */
static int export_run(call *c) {
  char *path, *top;
  export x = {.c = c};
  int status = arg_top(c, &path);
  if (status) return status;
  if (c->count > 1 && !word_is(&c->args[1], "-")) x.name = c->args[1].text;
  int rc = zke_count(c->z, path, &x.total);
  x.top = top = top_of(c, path);
  if (path_is_reserved(c, path))
    status = fail_reserved(c, path);
  else if (rc != ZKE_OK && rc != ZKE_NOAUTH)
    status = fail_rc(c, rc);
  else if (!top)
    status = no_memory(c);
  else
    status = x.name ? export_to_file(&x, path) : export_to_output(&x, path);
  free(top);
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * import: the lines
 *
 * A reading goes from the header to the line with the number of nodes.  All
 * three readings use the same functions, so they see the same nodes.
 * --------------------------------------------------------------------- */

enum { KIND_PERSISTENT, KIND_CONTAINER, KIND_TTL, KIND_EPHEMERAL };
enum { EXISTING_REFUSE, EXISTING_MERGE, EXISTING_REPLACE };
enum { IMPORT_MOST = 256 }; /* nodes in a batch */

/* One call of import. */
typedef struct import {
  call *c;
  char *top;    /* the destination, "" for the root */
  int existing; /* EXISTING_…: how to treat existing nodes */

  /* the file; line, text and room belong to the line that was read last */
  FILE *in;
  const char *name; /* for sentences */
  long line;        /* its number, from 1 on */
  char *text;
  size_t room;

  /* results of import_check() */
  json_t *seen;  /* an object: relative path to the number of its children in
                    the file, or to null for an ephemeral node */
  int64_t total; /* nodes in the file */
  int largest;   /* bytes of the longest value */
  zke *scratch;  /* in memory: refuses what the engine would refuse */

  /* values larger than a session may write by default */
  int data_limit; /* of a value, and of a batch's values together */
  zke *own;       /* a session that may write the largest; or NULL */
  zke *shared;    /* the call's session, which returns to c->z at the end */

  int64_t nodes;   /* in this reading */
  int64_t same;    /* --merge: existed already, with this data */
  int64_t skipped; /* ephemeral */
  batch batch;     /* owns records */
} import;

/* A node, parsed from its line. */
typedef struct record {
  char *path;     /* whole */
  char *relative; /* points to the end of path */
  char *data;     /* NULL for null data: len is -1 */
  int len;
  int kind; /* KIND_… */
  int64_t ttl_ms, sequence;
  zke_acl *entries; /* NULL: everybody may do everything */
  zke_acls acls;    /* their list, or that for everybody */
  json_t *row;      /* the line: the ACL's texts are in it */
} record;

static int bad_line(import *im, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fails with the place in the file, so that users can correct it;
 * STATUS_DATA. */
static int bad_line(import *im, const char *format, ...) {
  char what[700];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return fail_with(im->c, STATUS_DATA, "DATA", "%s: line %ld: %s", im->name,
                   im->line, what);
}

/* Frees a record and its contents; NULL is fine. */
static void record_free(void *owned) {
  record *r = owned;
  if (!r) return;
  free(r->path);
  free(r->data);
  free(r->entries);
  json_decref(r->row);
  free(r);
}

/* Reads the next line into im->text: its length, without the end of line; -1 at
 * the end of the file, -2 after fail_with(). */
static long import_line(import *im) {
  size_t len = 0, most = INT32_MAX;
  int byte;
  while ((byte = getc(im->in)) != EOF && byte != '\n') {
    if (len + 1 >= im->room) {
      size_t room = im->room ? im->room * 2 : 4096;
      char *larger = len < most ? realloc(im->text, room) : NULL;
      if (!larger && len < most) return no_memory(im->c), -2;
      if (!larger) return bad_line(im, "it is too long"), -2;
      im->text = larger;
      im->room = room;
    }
    im->text[len++] = (char)byte;
  }
  if (byte == EOF && ferror(im->in))
    return fail_errno(im->c, STATUS_IO, im->name), -2;
  if (byte == EOF && len == 0) return -1;
  im->line++;
  return (long)len;
}

/* The next line as an object; NULL at the end, with *status_out 0, and for a
 * line that is not an object, with the exit code there. */
static json_t *import_object(import *im, int *status_out) {
  json_error_t error;
  long len = import_line(im);
  *status_out = len == -2 ? im->c->status : 0;
  if (len < 0) return NULL;
  json_t *j = json_loadb(im->text ? im->text : "", (size_t)len,
                         JSON_REJECT_DUPLICATES, &error);
  if (json_is_object(j)) return j;
  *status_out = j ? bad_line(im, "this is not a JSON object")
                  : bad_line(im, "%s", error.text);
  json_decref(j);
  return NULL;
}

/* The first line must identify an export of a known version. */
static int import_header(import *im) {
  int status;
  json_t *head = import_object(im, &status);
  if (status) return status;
  if (!head)
    return fail_with(im->c, STATUS_DATA, "DATA", "%s is empty", im->name);
  const char *format = json_string_value(json_object_get(head, "format"));
  json_t *version = json_object_get(head, "version");
  if (!format || strcmp(format, FORMAT_NAME) != 0)
    status = bad_line(im, "this is not the first line of an export");
  else if (!json_is_integer(version) || json_integer_value(version) < 1)
    status = bad_line(im, "\"version\" is not a number");
  else if (json_integer_value(version) > FORMAT_VERSION)
    status = bad_line(im,
                      "version %" JSON_INTEGER_FORMAT
                      " is of a later zke; this one reads %d",
                      json_integer_value(version), FORMAT_VERSION);
  json_decref(head);
  return status;
}

/* ------------------------------------------------------------------------
 * import: a node's line
 *
 * These functions check only the form, without the database.  A record owns
 * everything that was read from its line.
 * --------------------------------------------------------------------- */

/* Refuses an unknown member: its meaning would be lost. */
static int record_members(import *im, const json_t *row) {
  static const char known[] = " path data kind ttl_ms owner sequence acl ";
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)row, name, value) {
    char word_[32];
    snprintf(word_, sizeof word_, " %.24s ", name);
    if (!strstr(known, word_) || strchr(name, ' '))
      return bad_line(im, "a node has no member \"%s\"", name);
  }
  return 0;
}

/* The path relative to the top, and the whole path.  Refuses a slash at the
 * start and a NUL; check_engine() asks the engine about the rest. */
static int record_path(import *im, record *r) {
  char *text = NULL;
  int len = -1;
  if (!value_to_data(json_object_get(r->row, "path"), &text, &len) || len < 0)
    return bad_line(im, "\"path\" is missing, or is not text");
  size_t top = strlen(im->top), room = top + (size_t)len + 2;
  r->path = malloc(room);
  int status = 0;
  if (!r->path)
    status = no_memory(im->c);
  else if (strlen(text) != (size_t)len || *text == '/')
    status = bad_line(im, "\"%s\" is not a path below the top", text);
  else
    snprintf(r->path, room, "%s%s%s", im->top, *text || !top ? "/" : "", text);
  if (!status) r->relative = r->path + top + (*text || !top);
  free(text);
  return status;
}

/* The node's data, null included. */
static int record_data(import *im, record *r) {
  const json_t *data = json_object_get(r->row, "data");
  if (!data) return bad_line(im, "\"data\" is missing");
  if (!value_to_data(data, &r->data, &r->len))
    return bad_line(im, "\"data\" is neither text, null nor {\"base64\": …}");
  return 0;
}

/* The kind by its name; only kind ttl has a TTL.  The default is
 * "persistent". */
static int record_kind(import *im, record *r) {
  static const char *const names[] = {"persistent", "container", "ttl",
                                      "ephemeral"};
  const json_t *kind = json_object_get(r->row, "kind");
  const json_t *ttl = json_object_get(r->row, "ttl_ms");
  if (kind && !json_is_string(kind))
    return bad_line(im, "\"kind\" is not text");
  while (kind && r->kind < 4 &&
         strcmp(json_string_value(kind), names[r->kind]) != 0)
    r->kind++;
  if (r->kind == 4)
    return bad_line(im, "there is no kind \"%s\"", json_string_value(kind));
  if ((r->kind == KIND_TTL) != (ttl != NULL) || (ttl && !json_is_integer(ttl)))
    return bad_line(
        im,
        "a node of kind ttl has a number \"ttl_ms\", and no other node has");
  r->ttl_ms = json_integer_value(ttl);
  return 0;
}

/* The number for the next sequential child. */
static int record_sequence(import *im, record *r) {
  const json_t *sequence = json_object_get(r->row, "sequence");
  r->sequence = json_integer_value(sequence);
  if (sequence && (!json_is_integer(sequence) || r->sequence < 0 ||
                   r->sequence > INT32_MAX))
    return bad_line(im, "\"sequence\" is not a number from 0 to %d", INT32_MAX);
  return 0;
}

/* If an entry is marked as another program's, makes its scheme valid: in the
 * session that writes, and in the database that tries each node. */
static int record_accept(import *im, const zke_acl *entry) {
  int rc = acl_accept(im->c->z, entry);
  if (rc == ZKE_OK && im->scratch) rc = acl_accept(im->scratch, entry);
  return rc == ZKE_OK ? 0 : bad_line(im, "%s", zke_errmsg());
}

/* One entry of an ACL; its texts are the row's. */
static int record_acl_entry(import *im, const json_t *j, zke_acl *entry) {
  const json_t *foreign = json_object_get(j, "foreign");
  entry->scheme = json_string_value(json_object_get(j, "scheme"));
  entry->id = json_string_value(json_object_get(j, "id"));
  const char *perms = json_string_value(json_object_get(j, "perms"));
  if (!entry->scheme || !entry->id || !perms ||
      json_object_size(j) != 3 + (size_t)json_is_true(foreign) ||
      !perms_parse(perms, &entry->perms))
    return bad_line(im,
                    "an ACL's entry has a scheme, an id, and perms of "
                    "\"cdrwa\"");
  return foreign ? record_accept(im, entry) : 0;
}

/* The list of entries; without one, everybody may do everything.  There is room
 * for one more entry, which record_open() may add. */
static int record_acl(import *im, record *r) {
  const json_t *list = json_object_get(r->row, "acl");
  size_t n = json_array_size(list);
  int status = 0;
  r->acls = zke_open_acl;
  if (!list) return 0;
  if (n == 0) return bad_line(im, "\"acl\" is not a list of entries");
  r->entries = calloc(n + 1, sizeof *r->entries);
  if (!r->entries) return no_memory(im->c);
  for (size_t i = 0; !status && i < n; i++)
    status = record_acl_entry(im, json_array_get(list, i), &r->entries[i]);
  r->acls = (zke_acls){(int)n, r->entries};
  return status;
}

/* Makes a record from a line; takes the row.  Checks only the form. */
static int record_read(import *im, json_t *row, record **out) {
  record *r = calloc(1, sizeof *r);
  if (!r) {
    json_decref(row);
    return no_memory(im->c);
  }
  r->row = row;
  int status = record_members(im, row);
  if (!status) status = record_path(im, r);
  if (!status) status = record_data(im, r);
  if (!status) status = record_kind(im, r);
  if (!status) status = record_sequence(im, r);
  if (!status) status = record_acl(im, r);
  if (!status) *out = r;
  if (status) record_free(r);
  return status;
}

/* Has anything been written?  Before that a failure needs no advice. */
static bool import_changed(const import *im) {
  return im->batch.created + im->batch.changed + im->batch.deleted > 0;
}

/* How many nodes of the file are done: written, found unchanged, or left out
 * because they are ephemeral. */
static int64_t import_written(const import *im) {
  return im->batch.created + im->batch.changed + im->same + im->skipped;
}

/* A failure of the engine.  If something was changed already, the sentence says
 * how much, and how to complete it. */
static int import_fail(import *im, int rc) {
  const char *code = zke_error_name(rc) + strlen("ZKE_");
  if (!import_changed(im)) return fail_rc(im->c, rc);
  return fail_with(im->c, status_of(rc), code,
                   "%s; %" PRId64 " of %" PRId64
                   " nodes were written, and import --merge completes them",
                   zke_errmsg(), import_written(im), im->total);
}

/* For struct batch: any refusal ends the import. */
static int import_refused(void *owner, const zke_op *op, int rc) {
  (void)op;
  return import_fail(owner, rc);
}

/* Fails for a signal or a cancel, and says how far the import came; the exit
 * code.  Always calls fail_cancelled(), since it records the signal by which
 * main() ends; its sentence counts only if there is none yet. */
static int import_cancelled(import *im) {
  int number = atomic_load(&im->c->signal), status = STATUS_CONFLICT;
  const char *code = "CANCELLED";
  if (number) {
    status = STATUS_SIGNAL + number;
    code = "INTERRUPTED";
  }
  if (import_changed(im))
    fail_with(im->c, status, code,
              "import was ended when %" PRId64 " of %" PRId64
              " nodes were written; import --merge completes them",
              import_written(im), im->total);
  return fail_cancelled(im->c);
}

/* The next node into *out; NULL after the last one, if the line with the number
 * of nodes is right and nothing follows it.  Returns 0 or the exit code. */
static int import_next(import *im, record **out) {
  int status;
  *out = NULL;
  if (cancel_came(im->c)) return import_cancelled(im);
  json_t *row = import_object(im, &status), *nodes;
  if (status) return status;
  if (!row)
    return bad_line(im, "the file ends early: no line counts its nodes");
  if ((nodes = json_object_get(row, "nodes")) == NULL)
    return record_read(im, row, out);
  if (json_integer_value(nodes) != im->nodes)
    status = bad_line(
        im, "\"nodes\" is %" JSON_INTEGER_FORMAT ", but the file has %" PRId64,
        json_integer_value(nodes), im->nodes);
  json_decref(row);
  if (!status && import_line(im) != -1 && !im->c->status)
    status = bad_line(im, "nothing may follow the line that counts the nodes");
  return status ? status : im->c->status;
}

/* ------------------------------------------------------------------------
 * import: every check before the first change
 *
 * Everything that can be known in advance is refused here, so that a mistake in
 * line 90,000 does not leave 89,999 nodes.  Others may change the tree between
 * this check and the writing; --merge handles that.
 * --------------------------------------------------------------------- */

/* The operation that makes the node of a record, at that path. */
static void record_create(const record *r, zke_op *op, const char *path) {
  if (r->kind == KIND_TTL)
    zke_op_create_ttl(op, path, r->data, r->len, &r->acls,
                      ZKE_PERSISTENT_WITH_TTL, r->ttl_ms);
  else
    zke_op_create(op, path, r->data, r->len, &r->acls,
                  r->kind == KIND_CONTAINER ? ZKE_CONTAINER : ZKE_PERSISTENT);
}

/* Would the engine create this node?  This creates it in the database in
 * memory, at the root, and removes it in the same multi: so a name, an ACL or a
 * TTL that the engine refuses is found before anything is changed.  At the root
 * the name zookeeper is reserved, but it may be used further below. */
static int check_engine(import *im, const record *r) {
  const char *slash = strrchr(r->relative, '/');
  const char *name = slash ? slash + 1 : r->relative;
  size_t room = strlen(name) + 2;
  char *path = malloc(room);
  zke_op ops[2];
  if (!path) return no_memory(im->c);
  snprintf(path, room, "/%s", strcmp(name, "zookeeper") ? name : "z");
  record_create(r, &ops[0], path);
  zke_op_delete(&ops[1], path, -1);
  int rc = zke_recipe_multi(im->scratch, ops, 2, NULL);
  free(path);
  if (rc == ZKE_OK) return 0;
  if (rc == ZKE_NOMEM) return fail_rc(im->c, rc);
  return bad_line(im, "\"%s\" cannot be created: %s", r->relative,
                  zke_errmsg());
}

/* Has the parent come, and may it have children?  Is the node new?  Records it,
 * and counts it as a child unless it is left out.  A parent is always before
 * its children, so one pass is enough. */
static int check_place(import *im, const record *r) {
  char *slash = strrchr(r->relative, '/');
  if (json_object_get(im->seen, r->relative))
    return bad_line(im, "\"%s\" comes a second time", r->relative);
  if (*r->relative) {
    if (slash) *slash = '\0';
    json_t *parent = json_object_get(im->seen, slash ? r->relative : "");
    if (slash) *slash = '/';
    if (!parent)
      return bad_line(im, "\"%s\" comes before its parent", r->relative);
    if (json_is_null(parent))
      return bad_line(im, "the parent of \"%s\" is ephemeral", r->relative);
    if (r->kind != KIND_EPHEMERAL)
      json_integer_set(parent, json_integer_value(parent) + 1);
  }
  json_t *entry = r->kind == KIND_EPHEMERAL ? json_null() : json_integer(0);
  return json_object_set_new(im->seen, r->relative, entry) == 0
             ? 0
             : no_memory(im->c);
}

/* A masked digest cannot be written back: the user who exported it did not see
 * the password's hash. */
static int check_acl(import *im, const record *r) {
  for (int i = 0; i < r->acls.count; i++)
    if (acl_is_masked(&r->acls.data[i]))
      return bad_line(im, "the id \"%s\" is masked, and cannot be written back",
                      r->acls.data[i].id);
  return 0;
}

/* Does the node exist already?  Without --merge this asks only about the top
 * and its children: below a missing node all others are missing, too, and the
 * root is never missing. */
static int check_existing(import *im, const record *r) {
  zke_stat stat;
  bool may_exist = im->existing == EXISTING_MERGE || !strchr(r->relative, '/');
  if (!may_exist || im->existing == EXISTING_REPLACE) return 0;
  int rc = zke_exists(im->c->z, r->path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return 0;
  if (rc != ZKE_OK) return fail_rc(im->c, rc);
  if (stat.ephemeralOwner)
    return fail_with(im->c, STATUS_NO, "NODEEXISTS",
                     "%s exists and is an ephemeral node of session 0x%" PRIx64,
                     r->path, (uint64_t)stat.ephemeralOwner);
  if (im->existing == EXISTING_MERGE || !r->path[1]) return 0;
  return fail_with(
      im->c, STATUS_NO, "NODEEXISTS",
      "%s exists: --merge keeps and completes what is there, --replace "
      "removes it first",
      r->path);
}

/* Is the value small enough?  Records the largest size. */
static int check_size(import *im, const record *r) {
  bool memory = store_of(im->c->sh) == STORE_MEMORY;
  if (r->len > im->largest) im->largest = r->len;
  if (r->len <= im->data_limit || (option_given(im->c, 'l') && !memory))
    return 0;
  return bad_line(im, "\"%s\" has %d bytes, and %d are the most%s", r->relative,
                  r->len, im->data_limit,
                  memory ? " in memory" : "; --large takes it");
}

/* All that can be known of a node before the first change.  The top itself is
 * not tried: the call gives its name. */
static int check_record(import *im, const record *r) {
  int status = check_place(im, r);
  if (!status && path_is_reserved(im->c, r->path))
    status = bad_line(im, "\"%s\" is reserved for ZooKeeper", r->relative);
  if (!status && !*r->relative && r->kind == KIND_EPHEMERAL)
    status = bad_line(im, "the top node cannot be ephemeral");
  if (!status && !r->path[1] && r->kind != KIND_PERSISTENT)
    status = bad_line(im, "the root can only be persistent");
  if (!status) status = check_size(im, r);
  if (!status && *r->relative) status = check_engine(im, r);
  if (!status) status = check_acl(im, r);
  if (!status) status = check_existing(im, r);
  return status;
}

/* The top's parent must exist, and may have children. */
static int check_parent(import *im) {
  char *slash = strrchr(im->top, '/');
  zke_stat stat;
  if (!slash || slash == im->top) return 0;
  *slash = '\0';
  int rc = zke_exists(im->c->z, im->top, NULL, NULL, &stat);
  int status = rc == ZKE_OK ? 0 : fail_rc(im->c, rc);
  if (!status && stat.ephemeralOwner)
    status = fail_with(im->c, STATUS_NO, "NOCHILDRENFOREPHEMERALS",
                       "%s is ephemeral", im->top);
  *slash = '/';
  return status;
}

/* Opens the database in memory that tries the nodes.  It accepts values of any
 * size: import_large() handles those too large for a session. */
static int check_scratch(import *im) {
  zke_options o = {.size = sizeof o,
                   .data_limit = INT32_MAX,
                   .allocator = im->c->sh->options.allocator,
                   .os = im->c->sh->options.os};
  int rc = zke_open(":memory:", &o, &im->scratch);
  return rc == ZKE_OK ? 0 : fail_rc(im->c, rc);
}

/* Reads the whole file, and refuses it before anything has changed; records the
 * number of nodes and the largest value. */
static int import_check(import *im) {
  record *r = NULL;
  int status = check_parent(im);
  if (!status) status = check_scratch(im);
  if (!status) status = import_header(im);
  while (!status && (status = import_next(im, &r)) == 0 && r) {
    status = check_record(im, r);
    record_free(r);
    im->nodes++;
    progress_show(im->c, "import, lines checked", im->line, 0);
  }
  if (!status && im->nodes == 0) status = bad_line(im, "the file has no node");
  im->total = im->nodes;
  return status;
}

/* ------------------------------------------------------------------------
 * import --replace: removing the existing nodes
 *
 * The whole tree is checked before any of it is deleted, since half a
 * tree helps nobody.
 * --------------------------------------------------------------------- */

/* Puts the deletion of a node into the batch. */
static int remove_one(import *im, const char *path) {
  record *r = calloc(1, sizeof *r);
  zke_op op;
  if (!r || (r->path = strdup(path)) == NULL) {
    free(r);
    return no_memory(im->c);
  }
  zke_op_delete(&op, r->path, -1);
  return batch_add(&im->batch, &op, r);
}

/* Calls fn for each child of a node, by its path, up to the first failure. */
static int each_child(import *im, const char *path, bool really,
                      int (*fn)(import *, const char *, bool)) {
  zke_strings *names = NULL;
  int rc = zke_children(im->c->z, path, NULL, NULL, &names, NULL);
  if (rc == ZKE_NONODE) return 0;
  if (rc != ZKE_OK) return fail_rc(im->c, rc);
  int status = 0;
  for (int i = 0; !status && i < names->count; i++) {
    size_t room = strlen(path) + strlen(names->data[i]) + 2;
    bool is_name = walk_is_name(names->data[i]);
    char *child = is_name ? malloc(room) : NULL;
    if (!child) {
      status = is_name ? no_memory(im->c) : walk_fail_name(im->c, path);
      break;
    }
    snprintf(child, room, "%s/%s", path[1] ? path : "", names->data[i]);
    if (!path_is_reserved(im->c, child)) status = fn(im, child, really);
    free(child);
  }
  zke_free(names);
  return status;
}

/* May this session delete this node?  Asks by a multi of two, with a second
 * operation that is always refused, so that nothing is changed.  NOTEMPTY only
 * means that the children still exist; NONODE comes from the second operation,
 * or means that the node has already gone. */
static int remove_may(import *im, const char *path) {
  zke_op ops[2];
  if (!path[1]) return 0;
  zke_op_delete(&ops[0], path, -1);
  zke_op_delete(&ops[1], "/zookeeper/no/such/node", -1);
  int rc = zke_recipe_multi(im->c->z, ops, 2, NULL);
  return rc == ZKE_NOTEMPTY || rc == ZKE_NONODE ? 0 : fail_rc(im->c, rc);
}

/* One node and all below it, deepest first.
 *
 *   really  delete them; else check whether all can be deleted: refuse nodes
 *           that this session may not delete, and nodes that a session owns */
static int remove_tree(import *im, const char *path, bool really) {
  zke_stat stat;
  if (cancel_came(im->c)) return import_cancelled(im);
  int rc = zke_exists(im->c->z, path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return 0;
  if (rc != ZKE_OK) return fail_rc(im->c, rc);
  if (stat.ephemeralOwner)
    return fail_with(im->c, STATUS_CONFLICT, "HELD",
                     "%s is an ephemeral node of session 0x%" PRIx64
                     ", which --replace does not remove",
                     path, (uint64_t)stat.ephemeralOwner);
  int status = really ? 0 : remove_may(im, path);
  if (!status && stat.numChildren)
    status = each_child(im, path, really, remove_tree);
  if (!status && really && path[1]) status = remove_one(im, path);
  return status;
}

/* Removes the tree.  Checks all of it first: one node that may not be deleted
 * keeps all others. */
static int import_remove(import *im) {
  const char *top = *im->top ? im->top : "/";
  int status = remove_tree(im, top, false);
  return status ? status : remove_tree(im, top, true);
}

/* ------------------------------------------------------------------------
 * import: the nodes
 *
 * Parents come before children in the file, and so in the batches.  If
 * something still has to be done for a node, it gets an ACL that allows this
 * session to do it (record_open()).
 * --------------------------------------------------------------------- */

/* Does everybody have these permissions? */
static bool allows_all(const zke_acls *acls, int what) {
  for (int i = 0; i < acls->count; i++)
    if (strcmp(acls->data[i].scheme, "world") == 0 &&
        (acls->data[i].perms & what) == what)
      return true;
  return false;
}

/* Should this node's ACL be set later?  Yes, if the ACL might forbid remaining
 * work: creating its children, or raising its sequence number. */
static bool acl_waits(const import *im, const record *r) {
  const json_t *children = json_object_get(im->seen, r->relative);
  return (json_integer_value(children) || r->sequence) &&
         !allows_all(&r->acls, ZKE_PERM_CREATE | ZKE_PERM_DELETE);
}

/* For a node whose ACL waits: adds an entry that lets everybody create and
 * delete children, and set the ACL, until finish_acl() sets the right one.
 * Reading and changing the data follow the final ACL from the start. */
static void record_open(record *r) {
  r->entries[r->acls.count++] = (zke_acl){
      ZKE_PERM_CREATE | ZKE_PERM_DELETE | ZKE_PERM_ADMIN, "world", "anyone"};
}

/* Adds the creation of a node to the batch; takes the record. */
static int write_new(import *im, record *r) {
  zke_op op;
  if (acl_waits(im, r)) record_open(r);
  record_create(r, &op, r->path);
  return batch_add(&im->batch, &op, r);
}

/* Writes a node that may exist: creates it, sets its data, or leaves it alone.
 * Takes the record.  If a node is still in the batch, neither it nor anything
 * below it exists, so both are created. */
static int write_over(import *im, record *r) {
  char *data = NULL;
  int len = -1;
  zke_stat stat;
  zke_op op;
  int rc = zke_get(im->c->z, r->path, NULL, NULL, &data, &len, &stat);
  bool equal = rc == ZKE_OK && len == r->len &&
               (len <= 0 || memcmp(data, r->data, (size_t)len) == 0);
  zke_free(data);
  if (rc == ZKE_NONODE) return write_new(im, r);
  if (rc == ZKE_OK && !equal) {
    zke_op_set(&op, r->path, r->data, r->len, stat.version);
    return batch_add(&im->batch, &op, r);
  }
  record_free(r);
  if (rc != ZKE_OK) return import_fail(im, rc);
  im->same++;
  return 0;
}

/* Can the node already exist?  Only with --merge; and the root always does. */
static bool may_exist(const import *im, const record *r) {
  return im->existing == EXISTING_MERGE || !r->path[1];
}

/* Writes a node, or leaves out an ephemeral one; takes the record. */
static int import_write(import *im, record *r) {
  if (r->kind == KIND_EPHEMERAL) {
    im->skipped++;
    record_free(r);
    return 0;
  }
  return may_exist(im, r) ? write_over(im, r) : write_new(im, r);
}

/* ------------------------------------------------------------------------
 * import: sequence numbers and ACLs, after all nodes
 *
 * Both are set only if they differ, so this can be repeated: after an import
 * that ended partway, --merge does this again for all nodes.
 * --------------------------------------------------------------------- */

/* Raises the number on an ensemble, which has no request for it: each child
 * that is created raises it by one, and is deleted immediately.  One request
 * has some hundred of them. */
static int raise_by_children(import *im, const record *r, int64_t count) {
  enum { AT_ONCE = 250 };
  zke_op ops[2 * AT_ONCE];
  size_t room = strlen(r->path) + sizeof "/zke-import";
  char *child = malloc(room);
  int rc = child ? ZKE_OK : zke_fail(ZKE_NOMEM, "out of memory");
  if (child) snprintf(child, room, "%s/zke-import", r->path[1] ? r->path : "");
  while (rc == ZKE_OK && count > 0 && !cancel_came(im->c)) {
    int n = count < AT_ONCE ? (int)count : AT_ONCE;
    for (int i = 0; i < n; i++) {
      zke_op_create(&ops[2 * i], child, NULL, 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
      zke_op_delete(&ops[2 * i + 1], child, -1);
    }
    rc = zke_multi(im->c->z, ops, 2 * n, NULL);
    count -= n;
  }
  free(child);
  return rc;
}

/* Raises the sequence number to that of the file; a higher one stays.  A node
 * that has expired meanwhile, by a TTL or as an empty container, is gone, which
 * is not a failure. */
static int finish_sequence(import *im, const record *r) {
  zke_stat stat;
  int rc = zke_exists(im->c->z, r->path, NULL, NULL, &stat);
  bool ensemble = store_of(im->c->sh) == STORE_ENSEMBLE;
  int64_t missing = rc == ZKE_OK ? r->sequence - next_sequence(&stat) : 0;
  if (missing > 0 && ensemble)
    rc = raise_by_children(im, r, missing);
  else if (missing > 0)
    rc = zke_raise_sequence(im->c->z, r->path, (int)r->sequence, NULL);
  if (ensemble && cancel_came(im->c)) return import_cancelled(im);
  if (rc == ZKE_NONODE && r->kind != KIND_PERSISTENT) return 0;
  return rc == ZKE_OK ? 0 : import_fail(im, rc);
}

/* Compares two ids.  Of a masked digest only the user is known. */
static bool ids_equal(const zke_acl *a, const zke_acl *b) {
  size_t user = strcspn(a->id, ":");
  if (strcmp(a->id, b->id) == 0) return true;
  return acl_is_masked(a) && strncmp(a->id, b->id, user + 1) == 0;
}

/* Is a node's ACL that of the file, as far as it is visible? */
static bool acls_equal(const zke_acls *a, const zke_acls *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count; i++)
    if (a->data[i].perms != b->data[i].perms ||
        strcmp(a->data[i].scheme, b->data[i].scheme) != 0 ||
        !ids_equal(&a->data[i], &b->data[i]))
      return false;
  return true;
}

/* Sets the ACL if it differs.  A session that sees masked digests may not set
 * the ACL either, so nothing is lost by treating these as equal. */
static int finish_acl(import *im, const record *r) {
  zke_acls *now = NULL;
  int rc = zke_get_acl(im->c->z, r->path, &now, NULL);
  if (rc == ZKE_NONODE && r->kind != KIND_PERSISTENT) return 0;
  bool equal = rc == ZKE_OK && acls_equal(now, &r->acls);
  zke_free(now);
  if (rc == ZKE_OK && !equal)
    rc = zke_set_acl(im->c->z, r->path, -1, &r->acls, NULL);
  return rc == ZKE_OK ? 0 : import_fail(im, rc);
}

/* Must something be done for a node after all below it is created? */
static bool finish_due(const import *im, const record *r) {
  return r->kind != KIND_EPHEMERAL &&
         (r->sequence || may_exist(im, r) || acl_waits(im, r));
}

/* Sets what a node can have only after all below it is created. */
static int finish_one(import *im, const record *r) {
  int status = 0;
  if (r->sequence) status = finish_sequence(im, r);
  if (!status && (may_exist(im, r) || acl_waits(im, r)))
    status = finish_acl(im, r);
  return status;
}

/* Nodes that one zke_batch() finishes together. */
typedef struct finishing {
  import *im;
  int count, status;
  int64_t bytes; /* of their values */
  record *at[BATCH_MOST];
} finishing;

/* The function of zke_batch(): finishes each node by separate calls, which
 * become one transaction if the store has batches (store_batch()).  A failure
 * ends it. */
static int finish_all(zke *z, void *context) {
  finishing *f = context;
  (void)z;
  for (int i = 0; i < f->count && !f->status; i++)
    f->status = finish_one(f->im, f->at[i]);
  return f->status ? ZKE_CANCELLED : ZKE_OK;
}

/* Finishes the collected nodes, and frees them; after a failure it only frees
 * them. */
static int finish_run(finishing *f, int status) {
  int rc = ZKE_OK;
  f->status = status;
  if (!status && f->count) rc = store_batch(f->im->c, finish_all, f);
  if (rc != ZKE_OK && !f->status) f->status = import_fail(f->im, rc);
  while (f->count > 0) record_free(f->at[--f->count]);
  f->bytes = 0;
  return f->status;
}

/* Takes a record, and finishes it now or together with later ones. */
static int finish_add(finishing *f, record *r) {
  bool full = f->count == BATCH_MOST || f->bytes > f->im->batch.most_bytes;
  int status = full ? finish_run(f, 0) : 0;
  if (status || !finish_due(f->im, r)) {
    record_free(r);
    return status;
  }
  f->at[f->count++] = r;
  f->bytes += r->len > 0 ? r->len : 0;
  return 0;
}

/* ------------------------------------------------------------------------
 * import
 *
 * The three readings, in the order of the file's head.  The function that finds
 * a failure reports it, once; import_free() then releases everything but the
 * tree.
 * --------------------------------------------------------------------- */

/* Starts another reading of the file.  The header was valid before, so only the
 * file itself can fail now. */
static int import_rewind(import *im) {
  rewind(im->in);
  im->line = 0;
  im->nodes = 0;
  return import_header(im);
}

/* The second reading: makes or changes the nodes, in batches. */
static int import_nodes(import *im) {
  record *r = NULL;
  int status = import_rewind(im);
  while (!status && (status = import_next(im, &r)) == 0 && r) {
    im->nodes++;
    progress_show(im->c, "import, nodes", im->nodes, im->total);
    status = import_write(im, r);
  }
  if (!status && cancel_came(im->c)) status = import_cancelled(im);
  if (!status) status = batch_run(&im->batch);
  batch_clear(&im->batch);
  return status;
}

/* The third reading: sequence numbers and ACLs. */
static int import_finishing(import *im) {
  record *r = NULL;
  finishing *f = malloc(sizeof *f); /* too large for a thread's stack */
  if (!f) return no_memory(im->c);
  f->im = im;
  f->count = 0;
  f->bytes = 0;
  int status = import_rewind(im);
  while (!status && (status = import_next(im, &r)) == 0 && r) {
    im->nodes++;
    progress_show(im->c, "import, nodes finished", im->nodes, im->total);
    status = finish_add(f, r);
  }
  status = finish_run(f, status);
  free(f);
  return status;
}

/* Copies a file that can be read only once; NULL after fail_with(). */
static FILE *import_spool(import *im, FILE *from) {
  char buffer[65536];
  size_t n;
  FILE *to = tmpfile();
  while (to && !cancel_came(im->c) &&
         (n = fread(buffer, 1, sizeof buffer, from)))
    if (fwrite(buffer, 1, n, to) != n) break;
  if (cancel_came(im->c))
    fail_cancelled(im->c);
  else if (!to || ferror(from) || fflush(to) != 0 || ferror(to))
    fail_errno(im->c, STATUS_IO, ferror(from) ? im->name : "temporary file");
  if (!im->c->status) {
    rewind(to);
    return to;
  }
  if (to) (void)fclose(to);
  return NULL;
}

/* Reads a regular file in place; a file that cannot be read twice is first
 * copied to a temporary file. */
static int import_open(import *im) {
  call *c = im->c;
  bool input = c->count < 2 || word_is(&c->args[1], "-");
  struct stat st;
  int status = input ? input_is_free(c) : 0;
  if (status) return status;
  im->name = input ? "standard input" : c->args[1].text;
  if (!input && stat(im->name, &st) == 0 && S_ISREG(st.st_mode)) {
    im->in = fopen(im->name, "rbe");
    return im->in ? 0 : fail_errno(c, STATUS_CANTOPEN, im->name);
  }
  FILE *in = input_open(c, input ? "-" : im->name);
  if (!in) return fail_errno(c, STATUS_CANTOPEN, im->name);
  im->in = import_spool(im, in);
  (void)fclose(in); /* nothing was written */
  return c->status;
}

/* Reports the result. */
static int import_emit(import *im) {
  return emit_row(
      im->c,
      json_pack("{s:o*,s:I,s:I,s:I,s:I,s:I,s:I}", "path",
                value_text(*im->top ? im->top : "/"), "nodes",
                (json_int_t)im->total, "created", (json_int_t)im->batch.created,
                "changed", (json_int_t)im->batch.changed, "same",
                (json_int_t)im->same, "deleted", (json_int_t)im->batch.deleted,
                "ephemerals_skipped", (json_int_t)im->skipped));
}

/* With --large the export may have values that a program with a larger data
 * limit has written.  A separate session with such a limit writes them, and the
 * call's session, which other commands of a script use, stays unchanged. */
static int import_large(import *im) {
  shell *sh = im->c->sh;
  zke_options o = sh->options;
  if (im->largest <= im->data_limit) return 0;
  o.flags = ZKE_OPEN_EXISTING;
  o.data_limit = im->data_limit = im->largest;
  im->batch.most_bytes = im->largest;
  int rc = zke_open(sh->file, &o, &im->own);
  if (rc != ZKE_OK) return fail_rc(im->c, rc);
  im->shared = im->c->z;
  im->c->z = im->own;
  pthread_mutex_lock(&sh->m);
  int status = session_authenticate(im->c, im->own);
  pthread_mutex_unlock(&sh->m);
  return status;
}

/* A whole import, as the file's head describes it. */
static int import_all(import *im) {
  int status = import_open(im);
  if (!status) status = import_check(im);
  if (!status) status = import_large(im);
  if (!status && im->existing == EXISTING_REPLACE) status = import_remove(im);
  if (!status) status = import_nodes(im);
  if (!status) status = import_finishing(im);
  return status ? status : import_emit(im);
}

/* Frees an import in any state; the call gets its own session back. */
static void import_free(import *im) {
  batch_clear(&im->batch);
  if (im->in) (void)fclose(im->in);
  if (im->own) im->c->z = im->shared;
  zke_close(im->own);
  zke_close(im->scratch);
  json_decref(im->seen);
  free(im->text);
  free(im->top);
  free(im);
}

/* import: refuses existing nodes, completes them (--merge), or removes them
 * first (--replace). */
static int import_run(call *c) {
  if (option_given(c, 'r') && option_given(c, 'm'))
    return fail_usage(c, "--merge and --replace exclude each other");
  import *im = calloc(1, sizeof *im);
  if (!im) return no_memory(c);
  im->c = c;
  im->data_limit = c->sh->options.data_limit;
  if (!im->data_limit) im->data_limit = 1048576;
  im->batch.c = c;
  im->batch.most = IMPORT_MOST;
  im->batch.most_bytes = im->data_limit;
  im->batch.release = record_free;
  im->batch.refused = import_refused;
  im->batch.owner = im;
  im->existing = EXISTING_REFUSE;
  if (option_given(c, 'm')) im->existing = EXISTING_MERGE;
  if (option_given(c, 'r')) im->existing = EXISTING_REPLACE;
  im->seen = json_object();
  int status = arg_top(c, &im->top);
  if (!status && !im->seen) status = no_memory(c);
  if (!status && path_is_reserved(c, im->top))
    status = fail_reserved(c, im->top);
  if (!status && !im->top[1]) *im->top = '\0';
  if (!status) status = import_all(im);
  import_free(im);
  return status;
}

/* "/app: 3 created, 2 as they were": leaves out zeros. */
static void import_human(call *c, json_t *row, FILE *out) {
  static const struct {
    const char *name, *text;
  } counts[] = {{"created", "created"},
                {"changed", "changed"},
                {"same", "as they were"},
                {"deleted", "deleted"},
                {"ephemerals_skipped", "ephemeral and left out"}};
  (void)c;
  output_text(NULL, json_object_get(row, "path"), out);
  const char *before = ":";
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    json_int_t n = json_integer_value(json_object_get(row, counts[i].name));
    if (n == 0) continue;
    fprintf(out, "%s %" JSON_INTEGER_FORMAT " %s", before, n, counts[i].text);
    before = ",";
  }
  fputc('\n', out);
}

/* ------------------------------------------------------------------------
 * dump
 *
 * One snapshot, so that the parts of a report agree: a watch's session is among
 * the sessions.
 * --------------------------------------------------------------------- */

/* A node with its Stat, its kind and its ACL. */
static int dump_node(void *arg, const snapshot_node *n) {
  call *c = arg;
  json_t *row =
      json_pack("{s:s,s:o*,s:s,s:I,s:I}", "type", "node", "path",
                value_text(n->path), "kind", n->kind, "ttl_ms",
                (json_int_t)n->ttl_ms, "sequence", (json_int_t)n->sequence);
  if (!row) return no_memory(c);
  value_stat(row, &n->stat);
  json_object_set_new(row, "acl",
                      acl_to_json(n->acl ? n->acl : "31:world:anyone\n"));
  if (!option_given(c, 'd'))
    json_object_set_new(row, "data", value_data(n->data, n->len));
  return emit_row(c, row);
}

/* A session's row.  The snapshot does not show whether it lives, since that is
 * a lock on another file: this asks the engine.  A session that has ended since
 * the snapshot is not alive. */
static int dump_session(void *arg, const zke_session_info *s) {
  call *c = arg;
  zke_session_list *now = NULL;
  int rc = zke_sessions(c->z, s->id, &now);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return fail_rc(c, rc);
  bool alive = rc == ZKE_OK && now->data[0].alive;
  zke_free(now);
  return emit_row(
      c, json_pack("{s:s,s:o*,s:o*,s:I,s:I,s:I,s:b,s:i,s:i,s:i}", "type",
                   "session", "session", value_session(s->id), "identity",
                   value_text(s->identity), "pid", (json_int_t)s->pid,
                   "started_at", (json_int_t)s->started_ms, "lease_ms",
                   (json_int_t)s->lease_ms, "alive", alive, "ephemerals",
                   s->ephemerals, "watches", s->watches, "events", s->events));
}

/* A watch's row; type "waiter" if another session owns the node. */
static int dump_watch(void *arg, const snapshot_watch *w) {
  json_t *row = json_pack(
      "{s:s,s:o*,s:o*,s:s,s:s}", "type", w->owner ? "waiter" : "watch",
      "session", value_session(w->session), "path", value_text(w->path),
      "watch", w->type, "mode", w->mode);
  if (row && w->owner)
    json_object_set_new(row, "owner", value_session(w->owner));
  return emit_row(arg, row);
}

/* dump: sessions, watches, waiters and nodes, of one snapshot. */
static int dump_run(call *c) {
  static const word root = {"/", 1, false};
  char *path;
  snapshot *s = NULL;
  int status = path_join(c, &root, &path);
  if (status) return status;
  status = snapshot_open(c, &s);
  if (!status)
    status =
        emit_row(c, json_pack("{s:s,s:s,s:o*,s:I}", "type", "dump", "zkembed",
                              zke_version(), "file", value_text(c->sh->file),
                              "dumped_at", (json_int_t)clock_wall_ms()));
  if (!status) status = snapshot_sessions(s, dump_session, c);
  if (!status) status = snapshot_watches(s, false, dump_watch, c);
  if (!status) status = snapshot_watches(s, true, dump_watch, c);
  if (!status) status = snapshot_read(s, path, dump_node, c);
  snapshot_close(s);
  free(path);
  return status;
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option import_options[] = {
    {'m', "merge", NULL}, {'r', "replace", NULL}, {'l', "large", NULL}, {0}};
static const option dump_options[] = {{'d', "no-data", NULL}, {0}};

const command transfer_commands[] = {
    {"export", "[PATH] [FILE]", "write a node and all below it as JSON lines",
     NULL, 0, 2, NEEDS_FILE, STYLE_RECORD, export_run, export_human},
    {"import", "[--merge | --replace] [--large] [PATH] [FILE]",
     "create the nodes of an export", import_options, 0, 2, CREATES_FILE,
     STYLE_RECORD, import_run, import_human},
    {"dump", "[--no-data]", "print everything there is, for a report",
     dump_options, 0, 0, NEEDS_FILE | FILE_ONLY, STYLE_LINE, dump_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
