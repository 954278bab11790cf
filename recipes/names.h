/* names.h - a name service: names that stand for values, or for znodes
 *
 *     zke_names *names;
 *     zke_binding *b;
 *     int64_t token;
 *     zke_names_new(z, "/names", NULL, &names);
 *     if (zke_names_bind(names, "printer", "10.0.0.7:631", 12, 0, deadline,
 *                        &token) != ZKE_OK)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // bound by whom
 *     if (zke_names_lookup(names, "printer", &b) == ZKE_OK) {
 *       printf("%s\n", b->value);
 *       zke_free(b);
 *     }
 *     zke_names_unbind(names, "printer", token, deadline);
 *     zke_names_free(names);
 *
 * The rules that every recipe keeps stand in support.h, the algorithm in
 * names.c.  ZooKeeper's page names a name service as a use of its tree, without
 * a recipe; binding once, tokens and exact unbinding are this library's.
 *
 * LAYOUT:
 *
 *     /names                    container, data "zkembed names"
 *       printer                 "<id> <session> <pid> <identity>", and on the
 *                               next line the value
 *       _c_<id>                 the same binding, so that what was meant to
 *                               unbind it hits no later one
 *
 * A child that was made by other means is a name as well, with all of its data
 * for the value and nobody for the binder.
 *
 * IF THE PROCESS DIES: both nodes come and go in one step, so a name is bound
 * or not.  A plain binding stays until it is unbound; an ephemeral one goes
 * with its session.
 *
 * WHO IS WOKEN: those in zke_names_wait() for that very name.  To be told of
 * every change, watch the directory with config.h.
 *
 * COSTS: a lookup is one read, a list four.  A binding is four reads and one
 * write, a rebinding five and one, an unbinding four and one.  Writes are
 * synced to the disk unless the binding is ephemeral.
 *
 * LOSING THE SESSION unbinds what it bound as ephemeral.
 *
 * FENCING: a binding's token is the zxid of its making, greater than those of
 * all bindings before.
 *
 * ON AN ENSEMBLE (zookeeper.h): an ephemeral binding stays for the session's
 * timeout after its process has died; all else is the same.
 *
 * MISTAKES, and what they come to:
 * - Binding what is bound: ZKE_HELD, and the sentence names the binder.  To
 *   replace it use zke_names_rebind().
 * - Unbinding with token 0: whatever is bound then goes, also if another
 *   process has bound it meanwhile.  Keep the token.
 * - Looking up once and keeping the value: it may be bound otherwise a moment
 *   later.  The token tells whether it is still the same binding.
 * - Two threads that wait with one object: the second gets ZKE_MISUSE.
 * - fork(), closing the handle first: as for every recipe (support.h).
 */
#ifndef ZKEMBED_RECIPES_NAMES_H
#define ZKEMBED_RECIPES_NAMES_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_names zke_names;

/* What a name stands for.  Its strings are in its block, or the list's. */
typedef struct zke_binding {
  const char *name;
  const char *value; /* followed by a NUL that is not counted */
  int len;           /* bytes of value */
  int64_t token;     /* of this binding */
  int64_t since_ms;  /* when it was made, ms since 1970 */
  int ephemeral;     /* 1: it goes with the session */
  int64_t session;   /* whose it is; of a plain one: whose it was */
  int64_t pid;       /* in its own PID namespace; for display; 0: bound by other
                       means */
  const char *identity; /* the binder's; "": bound by other means */
  int64_t reserved[4];
} zke_binding;

/* One block, released by zke_free(); sorted by name. */
typedef struct zke_binding_list {
  int count;
  const zke_binding *data;
} zke_binding_list;

/* Nothing can be chosen yet: a place for what may come. */
typedef struct zke_names_options {
  size_t size;
} zke_names_options;

/* zke_names_new - an object for one directory of names; writes nothing
 *
 *   path       of the directory; made as a container by the first binding
 *   options    NULL for the defaults
 *   names_out  out, not NULL; NULL on failure.  For zke_names_free()
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, ZKE_NOMEM, or what the handle's state asks
 * for.
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_names_new(zke *z, const char *path,
                          const zke_names_options *options,
                          zke_names **names_out);

/* zke_names_free - release the object; NULL is fine.  What was bound stays.
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_names_free(zke_names *names);

/* ------------------------------------------------------------------------
 * Binding
 *
 * Example: a service that is named for as long as its process lives.
 *
 *     int64_t token;
 *     rc = zke_names_bind(names, "printer", "10.0.0.7:631", 12, 1, deadline,
 *                         &token);
 *     if (rc == ZKE_HELD) fprintf(stderr, "%s\n", zke_errmsg());
 *
 * Example: move it to another address.  If somebody else has bound it since,
 * that binding stays, and this is ZKE_HELD.
 *
 *     int64_t token = 4711, newer;
 *     rc = zke_names_rebind(names, "printer", token, "10.0.0.8:631", 12, 1,
 *                           deadline, &newer);
 * --------------------------------------------------------------------- */

/* zke_names_bind - let a free name stand for a value
 *
 * Makes the directory where it is missing.
 *
 *   name         a znode's name: without '/', not beginning with "_c_"
 *   value,len    NULL and 0 for nothing
 *   ephemeral    1: until the session ends; 0: until it is unbound
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *   token_out    out: this binding's token
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD          the name is bound; the sentence says by whom, since when
 *   ZKE_OTHERKIND     the path is no directory of names
 *   ZKE_BADARGUMENTS  the name, or len is negative
 * or what stood in the way.  A binding whose reply was lost is recognised, and
 * is ZKE_OK.
 *
 * ZKE_CONNECTIONLOSS, also with ZKE_FOREVER: the reply was lost, the name is
 * free, and this name or others were changed meanwhile.  Then nobody can tell
 * whether the binding was never made, or was made and another process has
 * unbound it.  Bind again if it does not matter which.  If the deadline is over
 * and the name could not be looked at any more, the binding may also be there;
 * zke_names_lookup() tells by whom the name is bound.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_names_bind(zke_names *names, const char *name,
                           const void *value, int len, int ephemeral,
                           int64_t deadline_ms, int64_t *token_out);

/* zke_names_rebind - put another binding in the place of one, in one step
 *
 * There is no moment without a binding.
 *
 *   token  of the binding to replace; 0: whichever there is
 *
 * The rest is as for zke_names_bind().  Returns ZKE_OK, or
 *   ZKE_NONODE  the name is not bound
 *   ZKE_HELD    it is bound, but not by that token; the sentence says by whom,
 *               since when
 * A rebinding whose reply was lost, and which another process has replaced
 * before it was repeated, is ZKE_HELD with a token, and is repeated with token
 * 0.  Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_names_rebind(zke_names *names, const char *name, int64_t token,
                             const void *value, int len, int ephemeral,
                             int64_t deadline_ms, int64_t *token_out);

/* zke_names_unbind - free a name
 *
 *   token        of the binding to end; 0: whichever there is
 *   deadline_ms  as for zke_names_bind()
 *
 * Returns ZKE_OK; ZKE_NONODE where it is not bound; ZKE_HELD where it is bound,
 * but not by that token; ZKE_OTHERKIND; or what stood in the way.  Where the
 * reply was lost and no time was left to try again, a last look tells an
 * unbinding that was made, which is ZKE_OK.  ZKE_CONNECTIONLOSS: that binding
 * was still there, or the name could not be looked at.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_names_unbind(zke_names *names, const char *name, int64_t token,
                             int64_t deadline_ms);

/* ------------------------------------------------------------------------
 * Looking
 *
 * Example: a minute for the printer to appear; then who has bound it.
 *
 *     zke_binding *b = NULL;
 *     rc = zke_names_wait(names, "printer", zke_now(z) + 60000, &b);
 *     if (rc == ZKE_OK)
 *       printf("%s, bound by %s\n", b->value, b->identity);
 *     else
 *       b = NULL;
 *     zke_free(b);
 *
 * Example: all names.
 *
 *     zke_binding_list *list = NULL;
 *     rc = zke_names_list(names, &list);
 *     for (int i = 0; rc == ZKE_OK && i < list->count; i++)
 *       printf("%s %s\n", list->data[i].name, list->data[i].value);
 *     zke_free(list);
 * --------------------------------------------------------------------- */

/* zke_names_lookup - what a name stands for
 *
 *   binding_out  out, not NULL: one block, for zke_free()
 *
 * Returns ZKE_OK; ZKE_NONODE where it is not bound; ZKE_BADARGUMENTS for a name
 * that is none; or as zke_get().
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_names_lookup(zke_names *names, const char *name,
                             zke_binding **binding_out);

/* zke_names_resolve - the znode whose path the name stands for
 *
 * Name and znode are read in one snapshot: so what is returned was true at one
 * moment.  It does not follow the value of that znode further.
 *
 * Example: a name that stands for the present version of a catalog.
 *
 *     char *data = NULL;
 *     int len;
 *     rc = zke_names_resolve(names, "catalog", &data, &len, NULL);
 *     if (rc == ZKE_OK) printf("%d bytes\n", len);
 *     zke_free(data);
 *
 *   data_out, len_out, stat_out  out: as of zke_get()
 *
 * Returns ZKE_OK, or
 *   ZKE_NONODE        the name is not bound, or the znode is missing
 *   ZKE_BADARGUMENTS  the value is not a path
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_names_resolve(zke_names *names, const char *name,
                              char **data_out, int *len_out,
                              zke_stat *stat_out);

/* zke_names_list - all bindings, of one moment
 *
 *   list_out  out, not NULL: one block, for zke_free(); count 0 where the
 *             directory is missing
 *
 * Returns ZKE_OK, ZKE_OTHERKIND, ZKE_BADARGUMENTS, or ZKE_NOMEM.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_names_list(zke_names *names, zke_binding_list **list_out);

/* zke_names_wait - until a name is bound
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *   binding_out  out: one block; may be NULL
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline
 *   ZKE_CANCELLED         zke_names_cancel()
 *   ZKE_OTHERKIND         the path is no directory of names
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_names_wait(zke_names *names, const char *name,
                           int64_t deadline_ms, zke_binding **binding_out);

/* zke_names_cancel - another thread's call with a deadline returns
 * ZKE_CANCELLED, if it waits
 *
 * Returns ZKE_OK, or ZKE_IDLE where none runs.
 * Threads: any.  In a callback: yes.  Blocks: no. */
ZKE_API int zke_names_cancel(zke_names *names);

#ifdef __cplusplus
}
#endif

#endif
