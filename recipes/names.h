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
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * names.c has the algorithm.  ZooKeeper's page mentions a name service as a use
 * of its tree, but has no recipe.  This library adds binding once, tokens, and
 * unbinding one exact binding.
 *
 * LAYOUT:
 *
 *     /names                    container, data "zkembed names"
 *       printer                 "<id> <session> <pid> <identity>", and on the
 *                               next line the value
 *       _c_<id>                 its twin: unbinding deletes both, so it cannot
 *                               unbind a later binding
 *
 * A child that was made by other means is a name as well.  Its value is all of
 * its data, and it has no binder.
 *
 * IF THE PROCESS DIES: both nodes come and go in one step, so a name is bound
 * or not.  A plain binding stays until it is unbound; an ephemeral one goes
 * with its session.
 *
 * WHO IS WOKEN: objects that wait in zke_names_wait() for exactly that name.
 * To hear of every change, watch the directory with config.h.
 *
 * COSTS: a lookup is one read, a list four.  A binding is four reads and one
 * write, a rebinding five and one, an unbinding four and one.  Writes are
 * synced to the disk unless the binding is ephemeral.
 *
 * LOSING THE SESSION removes its ephemeral bindings.
 *
 * FENCING: a binding's token is the zxid at which it was made, greater than
 * those of all earlier bindings.
 *
 * ON AN ENSEMBLE (zookeeper.h): an ephemeral binding stays for the session's
 * timeout after its process has died; everything else is the same.
 *
 * MISTAKES, and their results:
 * - Binding a bound name: ZKE_HELD, and the sentence names the binder.  To
 *   replace the binding use zke_names_rebind().
 * - Unbinding with token 0: it removes any binding, even a new one of another
 *   process.  Keep the token.
 * - Looking up once and keeping the value: the name may get another value a
 *   moment later.  The token tells whether it is still the same binding.
 * - Two threads that wait with one object: the second gets ZKE_MISUSE.
 */
#ifndef ZKEMBED_RECIPES_NAMES_H
#define ZKEMBED_RECIPES_NAMES_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_names zke_names;

/* A name and its value.  Its strings are in its block, or the list's. */
typedef struct zke_binding {
  const char *name;
  const char *value; /* followed by a NUL that is not counted */
  int len;           /* bytes of value */
  int64_t token;     /* of this binding */
  int64_t since_ms;  /* when it was made, ms since 1970 */
  int ephemeral;     /* 1: it goes with the session */
  int64_t session;   /* the binder's; a plain binding's may have ended */
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

/* There are no options yet. */
typedef struct zke_names_options {
  size_t size;
} zke_names_options;

/* zke_names_new - an object for one directory of names; writes nothing
 *
 *   path       of the directory; made as a container by the first binding
 *   options    NULL for the defaults
 *   names_out  out; for zke_names_free() */
ZKE_API int zke_names_new(zke *z, const char *path,
                          const zke_names_options *options,
                          zke_names **names_out);

/* zke_names_free - release the object.  Its bindings stay. */
ZKE_API void zke_names_free(zke_names *names);

/* ------------------------------------------------------------------------
 * Binding
 *
 * Example: a service that has a name as long as its process lives.
 *
 *     int64_t token;
 *     rc = zke_names_bind(names, "printer", "10.0.0.7:631", 12, 1, deadline,
 *                         &token);
 *     if (rc == ZKE_HELD) fprintf(stderr, "%s\n", zke_errmsg());
 *
 * Example: move it to another address.  If somebody else has bound the name
 * since, that binding stays, and the call returns ZKE_HELD.
 *
 *     int64_t token = 4711, newer;
 *     rc = zke_names_rebind(names, "printer", token, "10.0.0.8:631", 12, 1,
 *                           deadline, &newer);
 * --------------------------------------------------------------------- */

/* zke_names_bind - bind a free name to a value
 *
 * Makes the directory if it is missing.
 *
 *   name         a znode's name: without '/', not beginning with "_c_"
 *   value,len    NULL and 0 for nothing
 *   ephemeral    1: until the session ends; 0: until it is unbound
 *   deadline_ms  for repeating calls that got no reply
 *   token_out    out: this binding's token
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD          the name is bound; the sentence says by whom, since when
 *   ZKE_OTHERKIND     the path is not a directory of names
 *   ZKE_BADARGUMENTS  the name, or len is negative
 *
 * If the reply was lost, the call recognises its own binding and returns
 * ZKE_OK.
 *
 * ZKE_CONNECTIONLOSS, also with ZKE_FOREVER: the reply was lost, the name is
 * free, and this name or others were changed meanwhile.  Then either the
 * binding was never made, or it was made and another process has unbound it.
 * Bind again if it does not matter which.  If the deadline has passed and the
 * call could not look at the name any more, the binding may also exist;
 * zke_names_lookup() tells who bound the name. */
ZKE_API int zke_names_bind(zke_names *names, const char *name,
                           const void *value, int len, int ephemeral,
                           int64_t deadline_ms, int64_t *token_out);

/* zke_names_rebind - replace a binding by another, in one step
 *
 * At no moment is the name free.
 *
 *   token  of the binding to replace; 0: any
 *
 * The rest is as for zke_names_bind().  Returns ZKE_OK, or
 *   ZKE_NONODE  the name is not bound
 *   ZKE_HELD    it is bound, but not by that token; the sentence says by whom,
 *               since when
 *
 * If the reply was lost, and another process replaced the new binding before
 * the call could look: with a token the call returns ZKE_HELD; with token 0 it
 * rebinds once more. */
ZKE_API int zke_names_rebind(zke_names *names, const char *name, int64_t token,
                             const void *value, int len, int ephemeral,
                             int64_t deadline_ms, int64_t *token_out);

/* zke_names_unbind - free a name
 *
 *   token        of the binding to end; 0: any
 *   deadline_ms  as for zke_names_bind()
 *
 * Returns ZKE_OK; ZKE_NONODE if it is not bound; ZKE_HELD if it is bound, but
 * not by that token; or ZKE_OTHERKIND.  If the reply was lost and no time is
 * left to try again, the call looks once more: if the binding has gone, it
 * returns ZKE_OK.  ZKE_CONNECTIONLOSS: the binding was still there, or the call
 * could not look at the name. */
ZKE_API int zke_names_unbind(zke_names *names, const char *name, int64_t token,
                             int64_t deadline_ms);

/* ------------------------------------------------------------------------
 * Looking
 *
 * Example: wait a minute for the printer; then show who has bound it.
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

/* zke_names_lookup - the value of a name
 *
 *   binding_out  out, not NULL: one block, for zke_free()
 *
 * Returns ZKE_OK; ZKE_NONODE if it is not bound; ZKE_BADARGUMENTS if it is not
 * a name; or as zke_get(). */
ZKE_API int zke_names_lookup(zke_names *names, const char *name,
                             zke_binding **binding_out);

/* zke_names_resolve - the data of the znode whose path a name has as its value
 *
 * Name and znode are read in one snapshot.  The value of that znode is not
 * followed further.
 *
 * Example: a name for the present version of a catalog.
 *
 *     char *data = NULL;
 *     int len;
 *     rc = zke_names_resolve(names, "catalog", &data, &len, NULL);
 *     if (rc == ZKE_OK) printf("%d bytes\n", len);
 *     zke_free(data);
 *
 *   data_out, len_out, stat_out  out: as for zke_get()
 *
 * Returns ZKE_OK, or
 *   ZKE_NONODE        the name is not bound, or the znode is missing
 *   ZKE_BADARGUMENTS  the value is not a path */
ZKE_API int zke_names_resolve(zke_names *names, const char *name,
                              char **data_out, int *len_out,
                              zke_stat *stat_out);

/* zke_names_list - all bindings, in one snapshot
 *
 *   list_out  count 0 if the directory is missing
 *
 * Returns ZKE_OK, or ZKE_OTHERKIND. */
ZKE_API int zke_names_list(zke_names *names, zke_binding_list **list_out);

/* zke_names_wait - wait until a name is bound
 *
 *   binding_out  out: one block; may be NULL
 *
 * Returns ZKE_OK, or ZKE_OPERATIONTIMEOUT, ZKE_CANCELLED, ZKE_OTHERKIND,
 * ZKE_MISUSE, ZKE_INVALIDSTATE. */
ZKE_API int zke_names_wait(zke_names *names, const char *name,
                           int64_t deadline_ms, zke_binding **binding_out);

/* zke_names_cancel - another thread's call with a deadline returns
 * ZKE_CANCELLED, if it waits; ZKE_IDLE if none runs */
ZKE_API int zke_names_cancel(zke_names *names);

#ifdef __cplusplus
}
#endif

#endif
