/* forked.c - see forked.h */
#include "test/sim/forked.h"

#include "test/sim/file.h"
#include "test/sim/foreign.h"
#include "test/sim/known.h"
#include "test/sim/ops.h"
#include "test/sim/threads.h"
#include "test/sim/vfs.h"

enum { OPENS = 5, WORK = 40 };

/* ---- what it may call ---- */

/* What a child may call after ZKE_FORKED.  Until it has opened a file, it may
 * also look, and close its parent's connections.  Once it opens or makes a
 * file, it is a process like others. */
void forked_judge(sched_process *child, sim_call call) {
  switch (call) {
    case CALL_close:
    case CALL_fstat:
    case CALL_mutex:
    case CALL_pause:
      return;
    case CALL_random:
    case CALL_stat:
    case CALL_dread:
    case CALL_lread:
    case CALL_dsize:
    case CALL_dunlock:
    case CALL_dclose:
    case CALL_shmunlock:
    case CALL_barrier:
    case CALL_shmunmap:
      if (child->watched == SCHED_OPENS) return;
      break;
    case CALL_dopen:
    case CALL_open:
    case CALL_mkfile:
      if (child->watched != SCHED_OPENS) break;
      /* a thread in a call may have had a connection of the program */
      if (!child->was_inside && vfs_has_inherited(child->files))
        sim_found("P9: a child opens a file beside its parent's connection");
      child->watched = SCHED_FREE;
      return;
    default:
      break;
  }
  sim_found("P9: a forked child calls %s before it has opened a handle",
            sim_call_name(call));
}

/* ---- its parent's handle ---- */

/* The watcher and the function of the child's calls; never called in a
 * child. */
static void no_event(zke *z, int type, int state, const char *path,
                     void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  sim_found("P9: a callback runs in a forked child");
}
/* The function of a batch, likewise. */
static int no_body(zke *z, void *context) {
  no_event(z, 0, 0, "", context);
  return ZKE_OK;
}

static int call_set(zke *z) { return zke_set(z, "/r0", "0", 1, -1, NULL); }
/* Calls of all kinds: reads, changes, waits, sessions, watches. */
static int call_get(zke *z) {
  char *data = NULL;
  return zke_get(z, "/r0", no_event, NULL, &data, NULL, NULL);
}
static int call_create(zke *z) {
  return zke_create(z, "/q/n-", NULL, -1, ZKE_OPEN_ACL,
                    ZKE_PERSISTENT_SEQUENTIAL, NULL, NULL);
}
static int call_delete(zke *z) { return zke_delete(z, "/r0", -1); }
static int call_children(zke *z) {
  zke_strings *names = NULL;
  return zke_children(z, "/", NULL, NULL, &names, NULL);
}
static int call_batch(zke *z) { return zke_batch(z, no_body, NULL); }
static int call_wait(zke *z) { return zke_wait(z, zke_now(z) + 1000); }
static int call_dispatch(zke *z) { return zke_dispatch(z, NULL); }
static int call_session(zke *z) { return zke_open_session(z, NULL, &z); }
static int call_expire(zke *z) { return zke_expire(z, zke_session_id(z)); }
static int call_watch(zke *z) {
  return zke_add_watch(z, "/q", ZKE_WATCH_PERSISTENT, no_event, NULL);
}
static int call_check(zke *z) { return zke_check(z, NULL, NULL); }
static int call_fd(zke *z) {
  int fd;
  return zke_fd(z, &fd);
}

static int (*const calls[])(zke *z) = {
    call_set,   call_get,   call_create,   call_delete,  call_children,
    call_batch, call_wait,  call_dispatch, call_session, call_expire,
    call_watch, call_check, call_fd,       zke_touch,    zke_close};
enum { CALLS = (int)(sizeof calls / sizeof *calls) };

/* Make some calls on the parent's handle: each is refused. */
static void be_refused(zke *z) {
  for (uint64_t n = sim_load(SIM_CHILD, 6); z && n > 0; n--) {
    int rc = calls[sim_load(SIM_CHILD, CALLS)](z);
    sim_say("a child's call: %s", zke_error_name(rc));
    if (rc != ZKE_FORKED)
      sim_found("P9: a forked child's call gives %s", zke_error_name(rc));
    if (sim_load(SIM_CHILD, 2))
      sched_pause((int64_t)sim_load(SIM_CHILD, 20) * SIM_MS);
  }
}

/* ---- a handle of its own ---- */

/* Open it; NULL: it is refused, or fails too often. */
static zke *open_own(void) {
  for (int tries = 0; tries < OPENS; tries++) {
    zke *z = NULL;
    int rc = ops_open(SIM_CHILD, &z);
    if (rc == ZKE_OK) return z;
    if (z) ops_close(SIM_CHILD, z);
    if (rc == ZKE_FORKED || rc == ZKE_NOTADB) return NULL;
    sched_pause((int64_t)sim_load(SIM_CHILD, 200) * SIM_MS);
  }
  return NULL;
}

/* Act like any other process for a while. */
static void work(zke *z) {
  ops_actor a = {.slot = SIM_CHILD, .thread = sched_thread(), .z = z};
  int64_t n = (int64_t)sim_load(SIM_CHILD, WORK);
  while (known_ready && n-- > 0 && !sim.ending && !known_of[SIM_CHILD].lost)
    ops_any(&a);
  ops_close(SIM_CHILD, z);
}

/* ---- its life ---- */

/* From fork() on.  Returns only at the process's end, since a child has copies
 * of all its parent's stack frames and handles. */
static void be_child(zke *z) {
  sched_process *p = sched_self();
  int left = file_count(p->files);
  if (left)
    sim_found("P9: a forked child keeps %d descriptors of its parent", left);
  be_refused(z);
  if (sim_load(SIM_CHILD, 3) == 0) sched_die(); /* it execs or exits */
  p->watched = SCHED_OPENS;
  zke *own = open_own();
  p->watched = SCHED_FREE;
  if (own && p->in_batch)
    sim_found("P9: a child that a batch has forked opens the file");
  if (own) work(own);
}

/* If the parent survives, it continues without this thread.  Another program
 * has no handle, and does not fork. */
void forked_main(int slot) {
  if (!foreign_is(slot) && threads_fork()) be_child(sched_self()->handle);
}

/* In a child, only the callback that has forked runs. */
bool forked_in_callback(void) {
  sched_process *p = sched_self();
  if (p->watched) sim_found("P9: a callback runs in a forked child");
  if (!p->forks_in_callback) return false;
  p->forks_in_callback = false;
  return threads_fork();
}

/* Here the child is still in its parent's transaction. */
bool forked_in_batch(zke *z) {
  if (!forked_in_callback()) return false;
  sched_self()->was_inside = sched_self()->in_batch = true;
  be_refused(z);
  return true;
}

/* The child returns from its callback to here. */
void forked_returned(int slot, zke *z, int rc) {
  if (sched_slot() == slot) return;
  if (rc != ZKE_FORKED)
    sim_found("P9: a call that has become a child's gives %s",
              zke_error_name(rc));
  if (!sched_self()->watched) sched_die(); /* cancelled in its own life */
  be_child(z);
  sched_return();
}
