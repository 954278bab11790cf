/* import.c - fuzz target: the input of import
 *
 * The input is a file, or, if it does not begin with '{', its nodes' lines,
 * which get a first and a last line.  It is imported into a tree in memory: no
 * crash, no leak, a documented exit code, and an unchanged tree unless that is
 * 0.  Accepted input is imported into a file and exported from there: that
 * export can be imported, too, and then gives the same export.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shell/shell.h"
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

int fuzz_import(const uint8_t *data, size_t size);

static char import_directory[256];
static pid_t import_owner;

static const char *import_path(const char *name, char path[400]) {
  snprintf(path, 400, "%s/%s", import_directory, name);
  return path;
}

/* Remove a database with its side files, or a file. */
static void import_remove(const char *name) {
  static const char *const ends[] = {"", "-wal", "-shm"};
  char path[400], side[700];
  for (int i = 0; i < 3; i++) {
    import_path(name, path);
    snprintf(side, sizeof side, "%s%s", path, ends[i]);
    unlink(side);
  }
  snprintf(side, sizeof side, "%s-zke", path);
  DIR *d = opendir(side);
  struct dirent *e;
  while (d && (e = readdir(d)) != NULL) {
    snprintf(side, sizeof side, "%s-zke/%.255s", path, e->d_name);
    if (e->d_name[0] != '.') unlink(side);
  }
  if (d) closedir(d);
  snprintf(side, sizeof side, "%s-zke", path);
  rmdir(side);
}

static void import_remove_all(void) {
  static const char *const names[] = {"in", "one", "two", "a", "b"};
  if (getpid() != import_owner) return;
  for (int i = 0; i < 5; i++) import_remove(names[i]);
  rmdir(import_directory);
}

static void import_make_directory(void) {
  if (import_owner == getpid()) return;
  fuzz_directory(import_directory, sizeof import_directory);
  import_owner = getpid();
  atexit(import_remove_all);
}

/* ---- the input as a file ---- */

static void import_write(const uint8_t *data, size_t size) {
  static const char head[] = "{\"format\":\"zkembed-tree\",\"version\":1}\n";
  char path[400];
  FILE *f = fopen(import_path("in", path), "wb");
  FUZZ_EXPECT(f);
  bool wrapped = size && data[0] != '{';
  size_t lines = 0;
  if (wrapped) fputs(head, f);
  if (size > wrapped) fwrite(data + wrapped, 1, size - wrapped, f);
  for (size_t i = wrapped; i < size; i++) lines += data[i] == '\n';
  if (wrapped && size > 1 && data[size - 1] != '\n') {
    putc('\n', f);
    lines++;
  }
  if (wrapped) fprintf(f, "{\"nodes\":%zu}\n", lines);
  FUZZ_EXPECT(fclose(f) == 0);
}

/* Numbers that would only take long: a sequence counts up to them, a short TTL
 * expires between two steps. */
static bool import_takes_long(bool *short_lived_out) {
  char path[400], *line = NULL;
  size_t room = 0;
  ssize_t len;
  bool takes_long = false;
  FILE *f = fopen(import_path("in", path), "rb");
  FUZZ_EXPECT(f);
  while ((len = getline(&line, &room, f)) > 0) {
    json_t *j = json_loadb(line, (size_t)len, 0, NULL);
    const json_t *ttl = json_object_get(j, "ttl_ms");
    if (json_integer_value(json_object_get(j, "sequence")) > 5000)
      takes_long = true;
    if (ttl && json_integer_value(ttl) < 3600000) *short_lived_out = true;
    json_decref(j);
  }
  free(line);
  fclose(f);
  return takes_long;
}

/* ---- the command ---- */

static void import_begin(shell *sh, const char *file) {
  memset(sh, 0, sizeof *sh);
  sh->tables = commands_all;
  pthread_mutex_init(&sh->m, NULL);
  sh->file = file;
  sh->quiet = true;
  sh->options.size = sizeof sh->options;
  sh->options.durability = ZKE_DURABLE_NONE;
}

/* Like a coprocess's call, which keeps its error's code and sentence. */
static int import_command(shell *sh, const char *name, const char *path,
                          const char *file) {
  word list[3] = {{name, strlen(name), false},
                  {path, strlen(path), true},
                  {file, strlen(file), true}};
  words w = {3, list};
  json_t *id = json_integer(1);
  call c = {.sh = sh, .id = id, .rows = json_array()};
  int status = run_words(&c, &w);
  FUZZ_EXPECT(status == c.status);
  FUZZ_EXPECT(!status || (c.code && *c.sentence));
  json_decref(c.rows);
  run_call_free(&c);
  json_decref(id);
  return status;
}

static int64_t import_count(shell *sh) {
  int64_t count = -1;
  if (sh->z) FUZZ_EXPECT(zke_count(sh->z, "/", &count) == ZKE_OK);
  return count;
}

/* In memory: accepted, or nothing changed. */
static bool import_accepted(void) {
  char in[400];
  shell sh;
  import_begin(&sh, ":memory:");
  int status = import_command(&sh, "import", "/", import_path("in", in));
  FUZZ_EXPECT(status == STATUS_OK || status == STATUS_DATA ||
              status == STATUS_NO);
  if (status) FUZZ_EXPECT(import_count(&sh) == 3);
  FUZZ_EXPECT(session_close(&sh) == STATUS_OK);
  return status == STATUS_OK;
}

/* From a file into a new database, and from there into another file. */
static void import_through(const char *from, const char *db, const char *to) {
  char from_path[400], db_path[400], to_path[400];
  shell sh;
  import_remove(db);
  import_begin(&sh, import_path(db, db_path));
  FUZZ_EXPECT(import_command(&sh, "import", "/",
                             import_path(from, from_path)) == STATUS_OK);
  FUZZ_EXPECT(zke_check(sh.z, NULL, NULL) == ZKE_OK);
  FUZZ_EXPECT(import_command(&sh, "export", "/", import_path(to, to_path)) ==
              STATUS_OK);
  FUZZ_EXPECT(session_close(&sh) == STATUS_OK);
}

/* All but the first line, which has the time. */
static char *import_read(const char *name) {
  char path[400], *text = NULL;
  size_t len = 0;
  FILE *f = fopen(import_path(name, path), "rb"),
       *to = open_memstream(&text, &len);
  FUZZ_EXPECT(f && to);
  bool behind = false;
  for (int byte; (byte = getc(f)) != EOF; behind = behind || byte == '\n')
    if (behind) putc(byte, to);
  FUZZ_EXPECT(fclose(to) == 0);
  fclose(f);
  return text;
}

int fuzz_import(const uint8_t *data, size_t size) {
  bool short_lived = false;
  import_make_directory();
  import_write(data, size);
  if (import_takes_long(&short_lived)) return 0;
  if (!import_accepted() || short_lived) return 0;
  import_through("in", "one", "a");
  import_through("a", "two", "b");
  char *a = import_read("a"), *b = import_read("b");
  FUZZ_EXPECT(strcmp(a, b) == 0);
  free(a);
  free(b);
  return 0;
}

FUZZ_TARGET(fuzz_import)
