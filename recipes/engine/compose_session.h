/* compose_session.h - for compose.c: calls on a composed handle as a whole
 *
 * It stands on compose_handle.h; compose_part.h says how the files fit
 * together.  This pair of files has the calls that are not about a path:
 * identities, sessions and what they watch, time, and further sessions on
 * the same parts.
 *
 * All functions here are in the engine's table: zke_compose_x() does what
 * zkembed.h says of zke_x(), on several services as in compose.h.  Each of
 * them begins one call and ends it, or does not count in at all.
 */
#ifndef ZKEMBED_RECIPES_COMPOSE_SESSION_H
#define ZKEMBED_RECIPES_COMPOSE_SESSION_H

#include <stdint.h>

#include "compose_handle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The same call on all parts. */
int zke_compose_add_auth(zke *z, const char *scheme, const char *cert, int len);
int zke_compose_vouch(zke *z, const char *scheme, const char *id);
int zke_compose_clear_auth(zke *z);
int zke_compose_check(zke *z, zke_check_fn fn, void *context);
int zke_compose_compact(zke *z, int64_t deadline_ms);
int zke_compose_test_fail(zke *z, int when, int skip);

/* The session, and other sessions. */
int64_t zke_compose_session_id(zke *z);
int zke_compose_state(zke *z);
int zke_compose_expire(zke *z, int64_t session);
int zke_compose_keepalive_fd(zke *z, int *fd_out);
int zke_compose_sessions(zke *z, int64_t session, zke_session_list **list_out);
int zke_compose_watches(zke *z, zke_watch_list **list_out);
int zke_compose_overdue(zke *z, int *overdue_out);

/* Sessions that outlive their process: refused.  zke_compose_no_session() is
 * for zke_detach(), zke_touch() and zke_rearm(). */
int zke_compose_attach(zke *z, int64_t session,
                       const unsigned char password[16],
                       const zke_options *options, zke **z_out);
int zke_compose_password(zke *z, unsigned char out[16]);
int zke_compose_no_session(zke *z);

/* Time. */
int64_t zke_compose_now(zke *z);
int64_t zke_compose_wall(zke *z);
int64_t zke_compose_busy_timeout(zke *z);
int zke_compose_sleep(zke *z, int64_t deadline_ms);
int64_t zke_compose_event_zxid(zke *z);

/* A session on each part, in a new order. */
int zke_compose_open_session(zke *z, const zke_options *options, zke **z_out);

#ifdef __cplusplus
}
#endif

#endif
