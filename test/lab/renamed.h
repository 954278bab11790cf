/* renamed.h - the engine's own functions, under other names
 *
 * calls.c has functions of the public names, which stop before each call and
 * then call these.  Whatever is compiled with this header, the engine first,
 * means the engine's own.  A function that is not listed is never stopped
 * before: it does not look at what others change.  Those are in the file
 * `quiet`; `make check-symbols` finds a function that is in neither. */
#ifndef RENAMED_H
#define RENAMED_H

#define zke_open lab_real_zke_open
#define zke_open_session lab_real_zke_open_session
#define zke_close lab_real_zke_close
#define zke_attach lab_real_zke_attach
#define zke_detach lab_real_zke_detach
#define zke_rearm lab_real_zke_rearm
#define zke_expire lab_real_zke_expire
#define zke_create lab_real_zke_create
#define zke_create_ttl lab_real_zke_create_ttl
#define zke_delete lab_real_zke_delete
#define zke_discard lab_real_zke_discard
#define zke_raise_sequence lab_real_zke_raise_sequence
#define zke_exists lab_real_zke_exists
#define zke_get lab_real_zke_get
#define zke_set lab_real_zke_set
#define zke_children lab_real_zke_children
#define zke_count lab_real_zke_count
#define zke_usage lab_real_zke_usage
#define zke_ephemerals lab_real_zke_ephemerals
#define zke_multi lab_real_zke_multi
#define zke_multi_read lab_real_zke_multi_read
#define zke_batch lab_real_zke_batch
#define zke_get_acl lab_real_zke_get_acl
#define zke_set_acl lab_real_zke_set_acl
#define zke_add_watch lab_real_zke_add_watch
#define zke_set_watch lab_real_zke_set_watch
#define zke_remove_watch lab_real_zke_remove_watch
#define zke_remove_all_watches lab_real_zke_remove_all_watches
#define zke_forget lab_real_zke_forget
#define zke_sync lab_real_zke_sync
#define zke_sleep lab_real_zke_sleep
#define zke_dispatch lab_real_zke_dispatch
#define zke_dispatch_to lab_real_zke_dispatch_to
#define zke_wait lab_real_zke_wait
#define zke_wait_turn lab_real_zke_wait_turn
#define zke_wake lab_real_zke_wake
#define zke_sessions lab_real_zke_sessions
#define zke_session lab_real_zke_session
#define zke_watches lab_real_zke_watches
#define zke_waiters lab_real_zke_waiters
#define zke_overdue lab_real_zke_overdue
#define zke_history_keep lab_real_zke_history_keep
#define zke_history lab_real_zke_history
#define zke_watch_since lab_real_zke_watch_since
#define zke_zxid lab_real_zke_zxid

#endif
