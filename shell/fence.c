/* fence.c - the command fence: recipes/fence.h for files
 *
 *     fence                     which tables are fenced, and by which lock
 *     fence TABLE --lock PATH   rows need the token of the lock's holder
 *     fence TABLE --off         rows need no token any more
 *
 * A name without a slash is a lock's name below /locks, as for the command
 * lock.
 */
#include <stdlib.h>
#include <string.h>

#include "../recipes/fence.h"
#include "database.h"
#include "work.h"

/* A row: a table's fence, or the change to it. */
static json_t *fence_row(const char *table, const char *path,
                         const char *column, const char *state) {
  return json_pack("{s:o*,s:o*,s:o*,s:s}", "table", value_text(table), "lock",
                   path ? value_text(path) : json_null(), "column",
                   column ? value_text(column) : json_null(), "state", state);
}

/* Emits the database's fences, a row each. */
static int fence_rows(call *c) {
  zke_fence_infos *list = NULL;
  int status = session_open(c, NEEDS_FILE | FILE_ONLY);
  if (status) return status;
  int rc = zke_fence_list(c->z, &list);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; i < list->count && !status; i++)
    status = emit_row(c, fence_row(list->data[i].table, list->data[i].path,
                                   list->data[i].column, "on"));
  zke_free(list);
  return status;
}

/* fence TABLE --off */
static int fence_remove(call *c, const char *table) {
  if (option_given(c, 'l') || option_given(c, 'c') || option_given(c, 'r'))
    return fail_usage(c, "--off goes with no other option");
  int status = session_open(c, NEEDS_SESSION | FILE_ONLY);
  if (status) return status;
  int rc = zke_fence_remove(c->z, table);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  return emit_row(c, fence_row(table, NULL, NULL, "off"));
}

/* fence TABLE --lock PATH.  The trigger needs the path in the database. */
static int fence_set(call *c, const char *table) {
  char *path = NULL, *whole = NULL;
  const word *column = option_word(c, 'c');
  zke_fence_options o = {.size = sizeof o,
                         .column = column ? column->text : "fence",
                         .replace = option_given(c, 'r')};
  int status = session_open(c, NEEDS_SESSION | FILE_ONLY);
  if (!status) status = place_path(c, option_word(c, 'l'), "locks", &path);
  if (status) return status;
  whole = path_whole(c, path);
  int rc = whole ? zke_fence_set(c->z, table, whole, &o) : ZKE_OK;
  if (!whole)
    status = no_memory(c);
  else if (rc != ZKE_OK)
    status = fail_rc(c, rc);
  else
    status = emit_row(c, fence_row(table, whole, o.column, "on"));
  free(whole);
  free(path);
  return status;
}

/* fence: decides which of the three it is. */
static int fence_run(call *c) {
  if (store_of(c->sh) == STORE_MEMORY)
    return fail_with(c, STATUS_DENIED, "MEMORY",
                     "fence is about tables of a file, and :memory: has none");
  if (c->count == 0 && (option_given(c, 'l') || option_given(c, 'o') ||
                        option_given(c, 'c') || option_given(c, 'r')))
    return fail_usage(c, "which TABLE?");
  if (c->count == 0) return fence_rows(c);
  const word *table = &c->args[0];
  if (strlen(table->text) != table->len)
    return fail_with(c, STATUS_DATA, "BADARGUMENTS",
                     "there is a NUL in the name");
  if (option_given(c, 'o')) return fence_remove(c, table->text);
  if (!option_given(c, 'l'))
    return fail_usage(c, "--lock PATH sets a fence, --off removes it");
  return fence_set(c, table->text);
}

/* "payments: rows want the token of /locks/pay in the column fence" */
static void fence_human(call *c, json_t *row, FILE *out) {
  const json_t *lock = json_object_get(row, "lock");
  (void)c;
  output_visible(NULL, json_object_get(row, "table"), out);
  if (json_is_null(lock)) {
    fputs(": rows want no token any more\n", out);
    return;
  }
  fputs(": rows want the token of ", out);
  output_visible(NULL, lock, out);
  fputs(" in the column ", out);
  output_visible(NULL, json_object_get(row, "column"), out);
  fputc('\n', out);
}

static const option fence_options[] = {{'l', "lock", "PATH"},
                                       {'c', "column", "COLUMN"},
                                       {'r', "replace", NULL},
                                       {'o', "off", NULL},
                                       {'\0', NULL, NULL}};

const command fence_commands[] = {
    {"fence", "[TABLE --lock PATH [--column COLUMN] [--replace] | TABLE --off]",
     "refuse rows of a table without a lock's token; or list such tables",
     fence_options, 0, 1, NEEDS_NOTHING | FILE_ONLY, STYLE_LINE, fence_run,
     fence_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
