/* test_corpus.c - hostile input: the fuzz targets' corpora, and flipped bytes
 *
 *   test_corpus                    everything
 *   test_corpus TARGET FILE...     run these inputs through a fuzz target
 *                                  (path, ops, file, lines, import, jute,
 *                                  client, server) in this process: for
 *                                  findings of `make fuzz`, under a debugger
 *
 * FLIP_STRIDE=n in the environment flips every n-th byte: 53 by default, and 1
 * for the full test; FLIP_AT=offset flips only that one.
 */
#include "zkembed.c"

#define FUZZ_TOGETHER
#include "file.c"
#include "ops.c"
#include "path.c"
#include "test/program.h"
#include "test/test.h"

/* Linked: some names of the command are also statics of zkembed.c. */
int fuzz_lines(const uint8_t *data, size_t size);
int fuzz_import(const uint8_t *data, size_t size);
int fuzz_jute(const uint8_t *data, size_t size);
int fuzz_client(const uint8_t *data, size_t size);
int fuzz_server(const uint8_t *data, size_t size);

static const struct {
  const char *name;
  int (*run)(const uint8_t *data, size_t size);
  int least; /* inputs that the corpus must have */
} corpus_targets[] = {
    {"path", fuzz_path, 50},     {"ops", fuzz_ops, 50},
    {"file", fuzz_file, 50},
#ifdef CORPUS_COMMAND
    {"lines", fuzz_lines, 50},   {"import", fuzz_import, 50},
    {"jute", fuzz_jute, 50},     {"client", fuzz_client, 50},
    {"server", fuzz_server, 50},
#endif
};
enum { CORPUS_TARGETS = sizeof corpus_targets / sizeof *corpus_targets };

/* ---- replay ---- */

/* Report the input that broke something. */
static char corpus_input[900];
static void corpus_tell(int signal_number) {
  ssize_t n = write(2, corpus_input, strlen(corpus_input));
  n += write(2, " broke it\n", 10);
  (void)n;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/* Run one input, from a block of exactly its size. */
static bool corpus_replay_file(int target, const char *name) {
  snprintf(corpus_input, sizeof corpus_input, "%s", name);
  FILE *f = fopen(name, "rb");
  if (!f) return false;
  uint8_t *data = NULL;
  size_t size = 0, n = 1;
  while (n) {
    data = realloc(data, size + 4096);
    FUZZ_EXPECT(data);
    size += n = fread(data + size, 1, 4096, f);
  }
  fclose(f);
  data = realloc(data, size ? size : 1);
  corpus_targets[target].run(data, size);
  free(data);
  return true;
}

/* The tests run from the top of the tree, or from anywhere with the corpus next
 * to this file's source. */
static const char *corpus_directory(int target) {
  static char path[600];
  const char *slash = strrchr(__FILE__, '/');
  snprintf(path, sizeof path, "%.*s/corpus/%s",
           slash ? (int)(slash - __FILE__) : 1, slash ? __FILE__ : ".",
           corpus_targets[target].name);
  return path;
}

/* No input that was ever interesting to a target breaks it now; a finding
 * aborts and so fails the test. */
TEST_LOOP(every_input_of_the_corpus_is_survived, 0, CORPUS_TARGETS) {
  const char *directory = corpus_directory(_i);
  DIR *d = opendir(directory);
  struct dirent *e;
  int count = 0;
  ck_assert_msg(d != NULL, "cannot open %s", directory);
  signal(SIGABRT, corpus_tell);
  while ((e = readdir(d)) != NULL) {
    char name[900];
    snprintf(name, sizeof name, "%s/%s", directory, e->d_name);
    if (e->d_name[0] != '.') count += corpus_replay_file(_i, name);
  }
  closedir(d);
  ck_assert_int_ge(count, corpus_targets[_i].least);
}

/* The oracle works: it classifies inputs with known results. */
TEST(the_path_model_refuses_what_it_should) {
  ck_assert(path_model_server("/a/\xc3\xa9"));
  ck_assert(!path_model_server("/a/\xc3"));
  ck_assert(!path_model_server("/a//b"));
  ck_assert(!path_model_server("/\xf0\x9f\x98\x80"));
  ck_assert(path_model_client("/a/", true));
  ck_assert(!path_model_client("/a/", false));
  ck_assert(!path_model_client("/a/../b", true));
}

/* ---- flipped bytes ----
 *
 * The database is small and has pages of 512 bytes, so few of its bytes are
 * unused.  What is read from it is kept as text, a line for each node or row,
 * and compared with the undamaged file's.
 */

typedef struct flip_base {
  unsigned char *image;
  long size;
  char *answers;
} flip_base;

/* Describe a node in one line. */
static void flip_describe(buf *out, const char *path, const char *data, int len,
                          const zke_stat *t, const zke_acls *acls) {
  char line[700];
  int n = snprintf(line, sizeof line,
                   "%s czxid %lld mzxid %lld pzxid %lld %lld %lld v%d c%d "
                   "a%d owner %lld children %d data %d ",
                   path, (long long)t->czxid, (long long)t->mzxid,
                   (long long)t->pzxid, (long long)t->ctime,
                   (long long)t->mtime, t->version, t->cversion, t->aversion,
                   (long long)t->ephemeralOwner, t->numChildren, len);
  buf_add(out, line, (size_t)n);
  for (int i = 0; i < len; i++)
    buf_add(out, data[i] == '\n' || !data[i] ? " " : data + i, 1);
  for (int i = 0; i < acls->count; i++) {
    const zke_acl *e = &acls->data[i];
    n = snprintf(line, sizeof line, " %d:%s:%.300s", e->perms, e->scheme,
                 e->id);
    buf_add(out, line, (size_t)n);
  }
  buf_add(out, "\n", 1);
}

/* Read a node and all below it; the first code that is not ZKE_OK. */
static int flip_read_tree(zke *z, const char *path, buf *out) {
  zke_strings *names = NULL;
  zke_acls *acls = NULL;
  zke_stat stat;
  char *data = NULL;
  int len = 0;
  int rc = zke_get(z, path, NULL, NULL, &data, &len, &stat);
  if (rc == ZKE_OK) rc = zke_get_acl(z, path, &acls, NULL);
  if (rc == ZKE_OK) flip_describe(out, path, data, len, &stat, acls);
  if (rc == ZKE_OK) rc = zke_children(z, path, NULL, NULL, &names, NULL);
  for (int i = 0; rc == ZKE_OK && i < names->count; i++) {
    char child[300];
    snprintf(child, sizeof child, "%s/%s", path[1] ? path : "", names->data[i]);
    /* no node has an empty name: "/" would be its own child */
    rc = names->data[i][0] ? flip_read_tree(z, child, out) : ZKE_CORRUPT;
  }
  zke_free(data);
  zke_free(acls);
  zke_free(names);
  return rc;
}

/* The sessions, with their nodes and watches, one line each. */
static int flip_read_rest(zke *z, buf *out) {
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  char line[700];
  int rc = zke_sessions(z, -1, &sessions);
  for (int i = 0; rc == ZKE_OK && i < sessions->count; i++) {
    const zke_session_info *s = &sessions->data[i];
    zke_strings *own = NULL;
    int n = snprintf(line, sizeof line, "session %llx %.60s %lld\n",
                     (unsigned long long)s->id, s->identity,
                     (long long)s->started_ms);
    buf_add(out, line, (size_t)n);
    rc = zke_ephemerals(z, s->id, NULL, &own);
    for (int k = 0; rc == ZKE_OK && k < own->count; k++) {
      n = snprintf(line, sizeof line, "owned %s\n", own->data[k]);
      buf_add(out, line, (size_t)n);
    }
    zke_free(own);
  }
  if (rc == ZKE_OK) rc = zke_watches(z, &watches);
  for (int i = 0; rc == ZKE_OK && i < watches->count; i++) {
    const zke_watch_info *w = &watches->data[i];
    int n = snprintf(line, sizeof line, "watch %llx %.300s %d %d\n",
                     (unsigned long long)w->session, w->path, w->type, w->mode);
    buf_add(out, line, (size_t)n);
  }
  zke_free(sessions);
  zke_free(watches);
  return rc;
}

/* Everything that a read-only handle returns, as text; NULL if it was
 * refused. */
static char *flip_answers(const char *name, int *checked) {
  static const zke_allocator a = {mem_default_resize, NULL};
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_READONLY};
  buf out = {.a = &a};
  zke *z = NULL;
  int rc = zke_open(name, &o, &z);
  if (rc == ZKE_OK) rc = flip_read_tree(z, "/", &out);
  if (rc == ZKE_OK) rc = flip_read_rest(z, &out);
  *checked = z ? zke_check(z, NULL, NULL) : rc;
  fuzz_rc(rc);
  fuzz_rc(*checked);
  zke_close(z);
  buf_add(&out, "", 1);
  char *text = rc == ZKE_OK ? strdup(out.data) : NULL;
  buf_free(&out);
  return text;
}

/* Lines of a that b does not have. */
static int flip_missing(const char *a, const char *b) {
  int count = 0;
  for (const char *line = a; *line;) {
    size_t len = strcspn(line, "\n") + 1;
    const char *at = b;
    while (*at && strncmp(at, line, len) != 0) at += strcspn(at, "\n") + 1;
    count += !*at;
    line += len;
  }
  return count;
}

/* The template of file.c, made with living sessions, in small pages. */
static void flip_make_small(void) {
  sqlite3 *db = NULL;
  file_template[18] = file_template[19] = 1; /* no write-ahead log */
  file_unlink_log();
  file_write(file_name, file_template, (size_t)file_template_size);
  ck_assert_int_eq(sqlite3_open(file_name, &db), SQLITE_OK);
  ck_assert_int_eq(
      sqlite3_exec(db, "PRAGMA page_size=512;VACUUM", NULL, NULL, NULL),
      SQLITE_OK);
  sqlite3_close(db);
}

static flip_base flip_begin(void) {
  flip_base b = {NULL, 0, NULL};
  int checked;
  file_make_template();
  flip_make_small();
  FILE *f = fopen(file_name, "rb");
  ck_assert_ptr_nonnull(f);
  b.image = calloc(1, 1 << 20);
  b.size = (long)fread(b.image, 1, 1 << 20, f);
  fclose(f);
  b.image[18] = b.image[19] = 2; /* write-ahead logging */
  file_write(file_name, b.image, (size_t)b.size);
  b.answers = flip_answers(file_name, &checked);
  ck_ok(checked);
  ck_assert_ptr_nonnull(b.answers);
  ck_assert_msg(flip_missing(b.answers, "") >= 20, "too little to read: %s",
                b.answers);
  return b;
}

static void flip_end(flip_base *b) {
  free(b->image);
  free(b->answers);
}

/* Write to the damaged file, too: whatever the results, it ends well. */
static void flip_write(const char *name) {
  zke_options o = {.size = sizeof o, .durability = ZKE_DURABLE_NONE};
  zke *z = NULL;
  if (fuzz_rc(zke_open(name, &o, &z)) != ZKE_OK) return;
  fuzz_rc(
      zke_create(z, "/a/new", "n", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  fuzz_rc(zke_set(z, "/a", "changed", 7, -1, NULL));
  fuzz_rc(zke_delete(z, "/a/acl", -1));
  fuzz_rc(zke_dispatch(z, NULL));
  fuzz_rc(zke_close(z));
}

/* Flip one byte: it is reported, harmless, or the value of one node or row that
 * nothing else in the file repeats. */
static void flip_at(const flip_base *b, long at, int mask, int counts[4]) {
  int checked;
  b->image[at] ^= (unsigned char)mask;
  file_unlink_log();
  file_clean_side(false);
  file_write(file_name, b->image, (size_t)b->size);
  char *answers = flip_answers(file_name, &checked);
  bool same = answers && strcmp(answers, b->answers) == 0;
  int what = same ? 2 : 3;
  if (answers && checked != ZKE_OK) what = 1;
  counts[answers ? what : 0]++;
  if (answers && checked == ZKE_OK && !same) {
    int lost = flip_missing(b->answers, answers);
    int made = flip_missing(answers, b->answers);
    /* Check cuts off long messages */
    bool one = lost <= 1 && made <= 1;
    if (!one) printf("%s---- for\n%s", answers, b->answers);
    ck_assert_msg(one,
                  "byte %ld ^ 0x%02x: %d answers lost, %d made up, and "
                  "zke_check() is content",
                  at, mask, lost, made);
  }
  free(answers);
  flip_write(file_name);
  b->image[at] ^= (unsigned char)mask;
}

LIMIT(1000);
/* Each of FLIP_PARTS tests takes its share of the bytes. */
enum { FLIP_PARTS = 8 };
/* P11: bytes of a small database are flipped, one at a time: it is refused, or
 * zke_check() finds it, or it reads the same or as another value. Nothing
 * crashes. */
TEST_LOOP(a_flipped_byte_is_reported_or_harmless, 0, FLIP_PARTS) {
  flip_base b = flip_begin();
  long stride = program_setting("FLIP_STRIDE", 53);
  long only = program_setting("FLIP_AT", -1);
  int counts[4] = {0};
  for (long at = _i * stride; at < b.size; at += FLIP_PARTS * stride) {
    if (only >= 0) at = only;
    flip_at(&b, at, 0xff, counts);
    flip_at(&b, at, 1 << at % 7, counts);
    if (only >= 0) break;
  }
  printf(
      "of %ld bytes: %d flips refused, %d found by zke_check, %d unread, "
      "%d another value\n",
      b.size, counts[0], counts[1], counts[2], counts[3]);
  ck_assert_int_gt(counts[0] + counts[1], 0);
  flip_end(&b);
}

int main(int argc, char **argv) {
  for (int t = 0; argc > 2 && t < CORPUS_TARGETS; t++) {
    if (strcmp(argv[1], corpus_targets[t].name) != 0) continue;
    for (int i = 2; i < argc; i++) {
      printf("%s\n", argv[i]);
      if (!corpus_replay_file(t, argv[i])) return 2;
    }
    return 0;
  }
  return test_main(argc, argv);
}
