/* owned.c - a connection's locks, queues and the like, by their paths */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

ext_owned **ext_owned_find(ext_connection *k, const ext_sort *is,
                           const char *path) {
  ext_owned **at = &k->owned;
  while (*at && !((*at)->is == is && strcmp((*at)->path, path) == 0))
    at = &(*at)->next;
  return at;
}

int ext_owned_get(ext_call *c, const ext_sort *is, const char *path,
                  ext_owned ***out) {
  ext_owned **at = *out = ext_owned_find(c->k, is, path);
  if (*at) return ZKE_OK;
  size_t size = strlen(path) + 1;
  ext_owned *o = calloc(1, sizeof *o + size);
  if (!o) return ext_nomem();
  o->is = is;
  memcpy(o->path, path, size);
  int rc = is->make(c, path, &o->object);
  if (rc == ZKE_OK)
    *at = o;
  else
    free(o);
  return rc;
}

void ext_owned_remove(ext_owned **at) {
  ext_owned *o = *at;
  *at = o->next;
  o->is->free_(o->object);
  free(o);
}

void ext_owned_free(ext_connection *k) {
  while (k->owned) ext_owned_remove(&k->owned);
}
