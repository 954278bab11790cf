/* phase_tree.c - what the znodes of a transaction say
 *
 * This file knows their names and their data: the head, votes, the decision,
 * acknowledgements.  It reads all of a transaction as of one moment, and
 * removes it.  It needs no object, and sets no watch.  It promises its callers:
 *
 *   - A view is of one transaction and of one moment.
 *   - zke_phase_remove() removes a transaction only if it has not changed since
 *     the view.
 *
 * The head is the data of the transaction's own znode: a mark, lines of a word
 * and its value, an empty line, and the payload.  It never changes.
 *
 *     zkembed transaction
 *     id 00000001-0000-0007-8000-00000000002a
 *     form 0
 *     limit 0
 *     sites bank shop
 *
 *     sell 1 tea
 *
 * A vote is one word, a decision three lines: the word, the reason, and the
 * author.
 *
 * Start reading at zke_phase_head_parse(), then zke_phase_view_read(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "phase_tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"
#include "text.h"

#define PHASE_MARK "zkembed transaction\n"

const char *const zke_phase_words[] = {"", "commit", "abort"};

/* A decision has more lines; the first one has the word. */
int zke_phase_word(const char *data) {
  size_t len = data ? strcspn(data, "\n") : 0;
  for (int i = ZKE_TWO_PHASE_COMMIT; i <= ZKE_TWO_PHASE_ABORT; i++) {
    if (strlen(zke_phase_words[i]) == len &&
        strncmp(data, zke_phase_words[i], len) == 0)
      return i;
  }
  return ZKE_TWO_PHASE_UNDECIDED;
}

/* Make one line of a text. */
static void phase_flatten(char *text) {
  for (; *text; text++) {
    if (*text == '\n') *text = ' ';
  }
}

/* If the session cannot be read, its number is used. */
void zke_phase_by(zke *z, char by[ZKE_PHASE_BY]) {
  zke_session_list *who = NULL;
  snprintf(by, ZKE_PHASE_BY, "session %" PRIx64, (uint64_t)zke_session_id(z));
  if (zke_sessions(z, zke_session_id(z), &who) == ZKE_OK) {
    snprintf(by, ZKE_PHASE_BY, "%.60s (pid %" PRId64 ")", who->data[0].identity,
             who->data[0].pid);
  }
  phase_flatten(by);
  zke_free(who);
}

char *zke_phase_tx_path(zke *z, const char *base, const char *name) {
  return zke_recipe_path(z, strcmp(base, "/") == 0 ? "" : base, name);
}

/* ---- the head ---- */

void zke_phase_head_free(zke_phase_head *h) {
  zke_free(h->text);
  zke_free(h->names);
  *h = (zke_phase_head){0};
}

/* Take a line "key value\n" from the text: its value, or NULL. */
static char *phase_head_line(char **at, const char *key) {
  size_t len = strlen(key);
  char *end = strchr(*at, '\n'), *value = *at + len;
  if (!end || strncmp(*at, key, len) != 0) return NULL;
  *end = '\0';
  *at = end + 1;
  return value;
}

/* Cut the line of sites at its spaces. */
static int phase_head_sites(zke *z, zke_phase_head *h, char *line) {
  int most = 1;
  for (char *at = line; *at; at++) most += *at == ' ';
  h->sites = h->names = zke_alloc(z, (size_t)most * sizeof *h->names);
  if (!h->names) return ZKE_NOMEM;
  for (char *save, *at = strtok_r(line, " ", &save); at;
       at = strtok_r(NULL, " ", &save)) {
    h->names[h->count++] = at;
  }
  return ZKE_OK;
}

/* 160 bytes are enough for the lines before the sites. */
char *zke_phase_head_write(zke *z, const zke_phase_head *h, int *len_out) {
  size_t size = 160 + (size_t)h->len;
  for (int i = 0; i < h->count; i++) size += strlen(h->sites[i]) + 1;
  char *text = zke_alloc(z, size);
  if (!text) return NULL;
  int used = snprintf(text, size,
                      PHASE_MARK "id %s\nform %d\nlimit %" PRId64 "\nsites",
                      h->id, h->form, h->limit_ms);
  for (int i = 0; i < h->count; i++)
    used += snprintf(text + used, size - (size_t)used, " %s", h->sites[i]);
  used += snprintf(text + used, size - (size_t)used, "\n\n");
  if (h->len) memcpy(text + used, h->payload, (size_t)h->len);
  *len_out = used + h->len;
  return text;
}

/* Ends each line with a NUL; the head points into the text. */
int zke_phase_head_parse(zke *z, zke_phase_head *h, int len) {
  char *at = h->text;
  if (len < 0 || strncmp(at, PHASE_MARK, strlen(PHASE_MARK)) != 0)
    return ZKE_OTHERKIND;
  at += strlen(PHASE_MARK);
  h->id = phase_head_line(&at, "id ");
  const char *form = phase_head_line(&at, "form ");
  const char *limit = phase_head_line(&at, "limit ");
  char *sites = phase_head_line(&at, "sites ");
  if (!h->id || !form || !limit || !sites || !phase_head_line(&at, ""))
    return ZKE_OTHERKIND;
  h->form = (int)strtol(form, NULL, 10) & ZKE_PHASE_FORMS;
  h->limit_ms = strtoll(limit, NULL, 10);
  h->payload = at;
  h->len = len - (int)(at - h->text);
  return phase_head_sites(z, h, sites);
}

int zke_phase_head_read(zke *z, const char *path, zke_phase_head *h) {
  zke_stat stat;
  int len;
  *h = (zke_phase_head){0};
  int rc = zke_get(z, path, NULL, NULL, &h->text, &len, &stat);
  if (rc == ZKE_OK) rc = zke_phase_head_parse(z, h, len);
  if (rc == ZKE_OK) {
    h->begun_ms = stat.ctime;
    return ZKE_OK;
  }
  zke_phase_head_free(h);
  if (rc == ZKE_OTHERKIND)
    rc = zke_recipe_fail(rc, "%s is not a transaction of a two-phase commit",
                         path);
  return rc;
}

int zke_phase_head_find(const zke_phase_head *h, const char *site) {
  for (int i = 0; i < h->count; i++) {
    if (strcmp(h->sites[i], site) == 0) return i;
  }
  return -1;
}

/* The names are written in one line of the data, and into znodes' names. */
int zke_phase_check_sites(const char *const *sites, int count) {
  if (!sites || count < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a transaction needs sites");
  for (int i = 0; i < count; i++) {
    if (!sites[i] || !*sites[i] || strpbrk(sites[i], "/ \n"))
      return zke_recipe_fail(ZKE_BADARGUMENTS, "'%s' cannot name a site",
                             sites[i] ? sites[i] : "NULL");
    for (int j = 0; j < i; j++) {
      if (strcmp(sites[i], sites[j]) == 0)
        return zke_recipe_fail(ZKE_BADARGUMENTS, "two sites are named %s",
                               sites[i]);
    }
  }
  return ZKE_OK;
}

/* ---- the decision ---- */

/* The reason is one line: its newlines become spaces. */
char *zke_phase_decision_text(zke *z, int decision, const char *why) {
  char by[ZKE_PHASE_BY];
  zke_phase_by(z, by);
  const char *word = zke_phase_words[decision];
  size_t size = strlen(word) + strlen(why) + strlen(by) + 4;
  char *text = zke_alloc(z, size);
  if (!text) return NULL;
  snprintf(text, size, "%s\n%s", word, why);
  phase_flatten(text + strlen(word) + 1);
  snprintf(text + strlen(text), size - strlen(text), "\n%s\n", by);
  return text;
}

/* ---- all of a transaction ---- */

void zke_phase_view_free(zke_phase_view *v) {
  if (v->got) zke_results_clear(v->got, v->count);
  zke_free(v->got);
  zke_phase_head_free(&v->head);
}

bool zke_phase_has(const zke_phase_view *v, const char *prefix,
                   const char *name) {
  const zke_strings *children = v->got[0].children;
  size_t len = strlen(prefix);
  for (int i = 0; i < children->count; i++) {
    const char *child = children->data[i];
    if (strncmp(child, prefix, len) == 0 && strcmp(child + len, name) == 0)
      return true;
  }
  return false;
}

int zke_phase_decided(const zke_phase_view *v) {
  return v->got[1].rc == ZKE_OK ? zke_phase_word(v->got[1].data)
                                : ZKE_TWO_PHASE_UNDECIDED;
}

/* A vote counts if its znode has version 1 (T2). */
int zke_phase_voted(const zke_phase_view *v, int site) {
  const zke_op_result *got = &v->got[2 + site];
  return got->rc == ZKE_OK && got->stat.version == 1 ? zke_phase_word(got->data)
                                                     : ZKE_TWO_PHASE_UNDECIDED;
}

int zke_phase_unacknowledged(const zke_phase_view *v, int but) {
  int count = 0;
  for (int i = 0; i < v->head.count; i++)
    count += i != but && !zke_phase_has(v, "ack-", v->head.sites[i]);
  return count;
}

/* One look at all of it; ZKE_NONODE: there is no whole transaction. */
static int phase_read_once(zke *z, const char *tx, zke_phase_view *v) {
  zke_phase_steps s;
  *v = (zke_phase_view){0};
  int rc = zke_phase_head_read(z, tx, &v->head);
  if (rc != ZKE_OK) return rc;
  v->count = v->head.count + 2;
  v->got = zke_alloc(z, (size_t)v->count * sizeof *v->got);
  zke_steps_begin(&s, z, tx, v->count);
  zke_op *names = zke_steps_next(&s);
  if (names) zke_op_children(names, tx, NULL, 0);
  zke_steps_get(&s, "decision", "");
  for (int i = 0; i < v->head.count; i++)
    zke_steps_get(&s, "vote-", v->head.sites[i]);
  rc = zke_steps_read(&s, v->got);
  if (rc == ZKE_OK) rc = v->got[0].rc;
  if (rc == ZKE_OK && !zke_phase_has(v, "id-", v->head.id)) rc = ZKE_NONODE;
  if (rc != ZKE_OK) zke_phase_view_free(v);
  return rc;
}

/* Between the reading of the head and of the rest, the transaction may have
 * been replaced by one of the same name.  The id shows this; then it is read
 * once more. */
int zke_phase_view_read(zke *z, const char *tx, zke_phase_view *v) {
  int rc = phase_read_once(z, tx, v);
  if (rc == ZKE_NONODE && zke_exists(z, tx, NULL, NULL, NULL) == ZKE_OK)
    rc = phase_read_once(z, tx, v);
  if (rc == ZKE_NONODE) zke_fail(rc, "there is no transaction %s", tx);
  return rc;
}

const char *zke_phase_list_missing(const zke_phase_view *v, bool acks,
                                   char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < v->head.count && used < size; i++) {
    const char *site = v->head.sites[i];
    if (acks ? zke_phase_has(v, "ack-", site) : zke_phase_voted(v, i) != 0)
      continue;
    used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                             site);
  }
  return text;
}

/* ---- its end ---- */

/* The check of the decision's version proves that no acknowledgement has come
 * since the view (T4), so its list of children is complete. */
int zke_phase_remove(zke *z, const char *tx, const zke_phase_view *v,
                     zke_phase_more *more) {
  static const char *const kinds[] = {"vote-", "came-", "work-", "ack-"};
  const zke_phase_head *h = &v->head;
  zke_phase_steps s;
  zke_steps_begin(&s, z, tx, 4 * h->count + 5 + zke_more_count(more));
  zke_steps_check(&s, "decision", "", v->got[1].stat.version);
  for (int i = 0; i < 4 * h->count; i++) {
    const char *site = h->sites[i / 4];
    if (zke_phase_has(v, kinds[i % 4], site))
      zke_steps_delete(&s, kinds[i % 4], site);
  }
  if (zke_phase_has(v, "coordinator", ""))
    zke_steps_delete(&s, "coordinator", "");
  zke_steps_delete(&s, "decision", "");
  zke_steps_delete(&s, "id-", h->id);
  zke_op *own = zke_steps_next(&s);
  if (own) zke_op_delete(own, tx, -1);
  return zke_steps_do_with(&s, more);
}

/* End the session that owns an ephemeral if its process is dead, without
 * waiting until that is noticed.  ZKE_OK: it lives; ZKE_LOOK_AGAIN: it has
 * ended. */
static int phase_bury(zke *z, const char *path) {
  zke_stat stat;
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  if (rc == ZKE_OK) rc = zke_recipe_bury(z, path, stat.ephemeralOwner);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* A coordinator acknowledges by deleting its znode.  The znode may still exist
 * because the coordinator's death was not noticed yet. */
int zke_phase_is_over(zke *z, const char *tx, const zke_phase_view *v, int but,
                      bool *over) {
  *over = zke_phase_decided(v) && zke_phase_unacknowledged(v, but) == 0;
  if (!*over || !zke_phase_has(v, "coordinator", "")) return ZKE_OK;
  *over = false;
  char *path = zke_phase_path(z, tx, "coordinator", "");
  int rc = path ? phase_bury(z, path) : ZKE_NOMEM;
  zke_free(path);
  return rc;
}
