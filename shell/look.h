/* look.h - shared by the commands that list sessions */
#ifndef ZKE_SHELL_LOOK_H
#define ZKE_SHELL_LOOK_H

#include "shell.h"

/* look_kept_human - after a pid: "; kept by …" if other processes keep the
 *                   session alive, as a row's member says */
void look_kept_human(json_t *row, const char *member, FILE *out);

/* look_session - the entry of a session, or NULL if it has ended */
const zke_session_info *look_session(const zke_session_list *list,
                                     int64_t session);

#endif
