/* look.h - the lines of a database, as those see them who look from outside
 *
 *     look l;
 *     int status = look_take(c, &l);
 *     for (int i = 0; !status && i < l.count; i++)
 *       status = look_at(&l.lines[i]);
 *     look_free(&l);
 *
 * What is taken is not of one moment: a line may have parties whose sessions
 * are not in the list, since they came later, and sessions may have gone.
 */
#ifndef ZKE_SHELL_LOOK_H
#define ZKE_SHELL_LOOK_H

#include "../recipes/support.h"
#include "process.h"
#include "shell.h"

/* Texts in a growing array, which owns them. */
typedef struct look_names {
  char **data;
  int count, room;
} look_names;

/* Where sessions stand in a line: a lock, a semaphore, an election … */
typedef struct look_line {
  char *path;
  char kind[32]; /* "lock", as the directory's data says */
  zke_party_list *parties;
} look_line;

/* All that was taken; look_free() releases every part of it. */
typedef struct look {
  zke_session_list *sessions; /* read first */
  look_names places;          /* the lines' directories, sorted */
  look_names claims;  /* ephemerals that may be claims of a queue's items */
  look_names queues;  /* directories that may be queues in use, sorted */
  look_names foreign; /* ephemerals of other libraries' lines, sorted */
  look_line *lines;   /* by path */
  int count;
  holders holders; /* who keeps the sessions alive */
} look;

/* look_take - everything, by way of the sessions' ephemerals: what it costs
 *             follows from what is held and waited for, not from the tree
 * look_free - of what was taken, also where that failed */
int look_take(call *c, look *l);
void look_free(look *l);

/* look_kept_human - behind a pid: "; kept by …" where other processes than that
 *                   one keep the session alive, as a row's member says */
void look_kept_human(json_t *row, const char *member, FILE *out);

/* look_session - the entry of a session, or NULL where it has ended */
const zke_session_info *look_session(const zke_session_list *list,
                                     int64_t session);

#endif
