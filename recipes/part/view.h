/* view.h - for recipe authors: a tree kept current in memory
 *
 * Configurations and groups are made of this.  A recipe's struct begins with a
 * zke_view, and its class's functions call the ones below.  The mutex is held
 * in all but zke_view_read() and zke_view_deliver().
 *
 * config.h says what a node is, and which nodes are read. */
#ifndef ZKEMBED_RECIPES_VIEW_H
#define ZKEMBED_RECIPES_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "../config.h"
#include "object.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ZKE_VIEW_NEWS = 100 }; /* for the listener: the tree has changed */

/* The part of a tree that is in the view. */
typedef struct zke_view_scope {
  int levels; /* as in the options */
  zke_config_select_fn select;
  void *context;
} zke_view_scope;

typedef struct zke_view zke_view;
struct zke_view {
  zke_recipe r;
  zke_view_scope scope;
  bool listens; /* zke_view_deliver() will be called */
  /* a node has just come (before NULL), gone (now NULL) or changed in memory,
     for a recipe that counts; the mutex is held; or NULL */
  void (*edit)(zke_view *v, const zke_config_node *before,
               const zke_config_node *now);
  /* the rest belongs to the view; only read it */
  bool watching;
  bool owing; /* memory was short for telling the news */
  bool moved; /* the picture has changed since the last revision */
  bool more;  /* a look has found more to read */
  int due;    /* work for the next step */
  int silent; /* as of the last look, zke_op_untold()'s len */
  int64_t revision;
  struct view_node **nodes; /* the picture, sorted by name */
  int count, room;
  struct view_news *news; /* news for the listener, by name */
  int news_count, news_room;
  struct view_path *paths; /* paths to read at the next step, by name */
  int path_count, path_room;
};

/* zke_view_read    - read a tree from the file, as of one moment
 *                      tree_out  out, not NULL: one block
 * zke_view_find    - a node of the picture by its name, or NULL
 * zke_view_list    - a node of the picture and all below it, in one block
 * zke_view_start   - watch and look
 * zke_view_event   - a class's event() calls it
 * zke_view_step    - look again; a class's step() calls it first
 * zke_view_refresh - memory may be out of date: the next step looks
 * zke_view_deliver - for deliver() on ZKE_VIEW_NEWS: calls fn for each node
 *                    that came (before NULL), went (now NULL) or changed since
 *                    last time, until the object is freed; false: it was freed
 * zke_view_free    - a class's destroy() calls it */
typedef void (*zke_view_fn)(zke_view *v, const zke_config_node *before,
                            const zke_config_node *now);
int zke_view_read(zke *z, const char *path, int levels,
                  zke_config_tree **tree_out);
const zke_config_node *zke_view_find(const zke_view *v, const char *name);
int zke_view_list(const zke_view *v, const char *name,
                  zke_config_tree **tree_out);
int zke_view_start(zke_view *v);
void zke_view_event(zke_view *v, int type, const char *path);
int zke_view_step(zke_view *v);
void zke_view_refresh(zke_view *v);
bool zke_view_deliver(zke_view *v, zke_view_fn fn);
void zke_view_free(zke_view *v);

#ifdef __cplusplus
}
#endif

#endif
