/* look.h - what the commands that list sessions share */
#ifndef ZKE_SHELL_LOOK_H
#define ZKE_SHELL_LOOK_H

#include "shell.h"

/* look_kept_human - behind a pid: "; kept by …" where other processes than that
 *                   one keep the session alive, as a row's member says */
void look_kept_human(json_t *row, const char *member, FILE *out);

/* look_session - the entry of a session, or NULL where it has ended */
const zke_session_info *look_session(const zke_session_list *list,
                                     int64_t session);

#endif
