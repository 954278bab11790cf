/* phase_list.c - looking from outside: one transaction, and all pending ones
 *
 * This file describes a transaction to people, and finds transactions that a
 * site has not acknowledged yet.  It takes no part, and decides nothing; it
 * removes finished transactions.  It promises: a status is of one moment.  A
 * list of pending transactions is not: each of them is read separately.
 *
 * Start reading at zke_phase_status(), then pending_try(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "phase_list.h"

#include <stdlib.h>
#include <string.h>

#include "limit.h"
#include "object.h"

/* ---- one transaction ---- */

/* Take one line from a decision's data: "<word>\n<why>\n<by>\n". */
static char *status_line(char **at) {
  char *line = *at, *end = strchr(line, '\n');
  *at = end ? end + 1 : line + strlen(line);
  if (end) *end = '\0';
  return line;
}

/* Fill in the members that are not texts.  The view's second result is the
 * decision's znode. */
static void status_fill(zke_two_phase_status *st, const zke_phase_view *v) {
  const zke_stat *decided = &v->got[1].stat;
  st->form = v->head.form;
  st->decision = zke_phase_decided(v);
  st->begun_ms = v->head.begun_ms;
  st->limit_ms = v->head.limit_ms;
  st->token = st->decision ? decided->czxid : 0;
  st->decided_ms = st->decision ? decided->ctime : 0;
  st->coordinator = zke_phase_has(v, "coordinator", "");
  st->len = v->head.len;
  st->count = v->head.count;
}

/* Votes follow the decision, in the order of the sites. */
static void status_fill_site(zke_two_phase_site *site, const zke_phase_view *v,
                             int i) {
  site->vote = zke_phase_voted(v, i);
  site->present = v->got[2 + i].rc == ZKE_OK;
  site->acknowledged = zke_phase_has(v, "ack-", v->head.sites[i]);
  site->voted_ms = site->vote ? v->got[2 + i].stat.mtime : 0;
}

/* All of it in one block. */
static zke_two_phase_status *status_make(zke *z, const zke_phase_view *v) {
  const char *decision = zke_phase_decided(v) ? v->got[1].data : "";
  size_t sites = (size_t)v->head.count * sizeof(zke_two_phase_site);
  size_t decided = strlen(decision) + 1;
  size_t size =
      sizeof(zke_two_phase_status) + sites + (size_t)v->head.len + 1 + decided;
  for (int i = 0; i < v->head.count; i++) size += strlen(v->head.sites[i]) + 1;
  zke_two_phase_status *st = zke_alloc(z, size);
  if (!st) return NULL;
  zke_two_phase_site *site = (zke_two_phase_site *)(void *)(st + 1);
  char *text = (char *)(site + v->head.count);
  status_fill(st, v);
  st->sites = site;
  for (int i = 0; i < v->head.count; i++) {
    status_fill_site(&site[i], v, i);
    site[i].name = text;
    text = stpcpy(text, v->head.sites[i]) + 1;
  }
  st->payload = memcpy(text, v->head.payload, (size_t)v->head.len);
  text = memcpy(text + v->head.len + 1, decision, decided);
  status_line(&text);
  st->why = status_line(&text);
  st->by = status_line(&text);
  return st;
}

int zke_phase_status(zke *z, const char *tx,
                     zke_two_phase_status **status_out) {
  zke_phase_view v;
  int rc = zke_phase_view_read(z, tx, &v);
  if (rc != ZKE_OK) return rc;
  zke_two_phase_status *st = status_make(z, &v);
  zke_phase_view_free(&v);
  if (!st) return ZKE_NOMEM;
  *status_out = st;
  return ZKE_OK;
}

/* ---- pending transactions ---- */

/* A transaction that may wait for a site. */
typedef struct pending_look {
  char *tx;
  const char *site; /* NULL: any */
  bool pending;     /* out */
} pending_look;

/* Is it pending?  Removes it if it is over; ignores what is not a transaction.
 */
static int pending_try(zke *z, void *arg) {
  pending_look *p = arg;
  zke_phase_view v;
  bool over;
  int rc = zke_phase_view_read(z, p->tx, &v);
  p->pending = false;
  if (rc == ZKE_NONODE || rc == ZKE_OTHERKIND || rc == ZKE_NOAUTH)
    return ZKE_OK;
  if (rc != ZKE_OK) return rc;
  rc = zke_phase_is_over(z, p->tx, &v, -1, &over);
  if (over) {
    rc = zke_phase_remove(z, p->tx, &v, NULL);
    if (rc == ZKE_NONODE || rc == ZKE_BADVERSION || rc == ZKE_NOTEMPTY)
      rc = ZKE_OK;
  } else if (rc == ZKE_OK) {
    p->pending = !p->site || (zke_phase_head_find(&v.head, p->site) >= 0 &&
                              !zke_phase_has(&v, "ack-", p->site));
  }
  zke_phase_view_free(&v);
  return rc;
}

/* Move the pending names to the front, and leave out the others.  The list is
 * one block, so names are exchanged, not freed.  All reads together have the
 * default time of one call. */
static int pending_select(zke *z, const char *base, const char *site,
                          zke_strings *names) {
  pending_look p = {.site = site};
  int64_t deadline = zke_recipe_patience(z);
  char **name = names->data;
  int rc = ZKE_OK, kept = 0;
  for (int i = 0; i < names->count && rc == ZKE_OK; i++) {
    p.tx = zke_phase_tx_path(z, base, name[i]);
    rc = p.tx ? zke_recipe_do(z, pending_try, &p, deadline) : ZKE_NOMEM;
    zke_free(p.tx);
    if (rc != ZKE_OK || !p.pending) continue;
    char *other = name[kept];
    name[kept++] = name[i];
    name[i] = other;
  }
  names->count = kept;
  return rc;
}

/* For qsort(): names by their bytes. */
static int pending_order(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

int zke_phase_pending(zke *z, const char *base, const char *site,
                      zke_strings *names) {
  int rc = pending_select(z, base, site, names);
  if (rc == ZKE_OK && names->count > 1)
    qsort(names->data, (size_t)names->count, sizeof(char *), pending_order);
  return rc;
}
