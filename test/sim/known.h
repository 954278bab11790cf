/* known.h - what is known of the tree by the calls that came back
 *
 * The tree has some registers, each a node whose data is a number that nobody
 * writes twice; a pair of nodes that change together; a queue of sequential
 * nodes; and locks, ephemerals that one session can have.  Each acknowledged
 * change is noted here, and each answer is compared with the notes: what was
 * acknowledged, or seen, before the call began must be in it (P8).
 */
#ifndef ZKE_SIM_KNOWN_H
#define ZKE_SIM_KNOWN_H

#include "test/sim/notes.h"
#include "test/sim/sim.h"
#include "zkembed.h"

enum { KNOWN_REGISTERS = 3, KNOWN_LOCKS = 2, KNOWN_NUMBERS = 8192 };

/* How long a handle's calls wait for the others: busy_timeout_ms. */
enum { BUSY_MS = 3000 };

/* Some values are so long that they lie on other pages than the rows of their
 * nodes: a read that is not of one state shows. */
enum { KNOWN_BYTES = 300 };

/* A call that has begun: what was known then. */
typedef struct known_call {
  const char *name;
  int slot;
  int64_t at, stopped, zxid, changes;
  bool ended; /* the session was ended by zke_expire() before */
} known_call;

/* Of each process, as far as the checks need it. */
typedef struct known_session {
  int64_t id;    /* 0: it has none */
  bool ended;    /* another has ended it, and that was acknowledged */
  bool may_end;  /* it has a lease, or another may have ended it */
  bool leased;   /* only for its lease: see known_may_end() */
  int64_t heard; /* when the last call began that has looked into the file */
  bool lost;     /* it was told that it is over */
  int discards;  /* that run: without memory they end it */
} known_session;
extern known_session known_of[SIM_SLOTS];

/* May a slot's session be over?  One with a lease may not, if it has just
 * called in and all is calm. */
bool known_may_end(int slot);
/* For how many ms the slow syncs have lasted that struck, in all: a call can
 * take as long. */
int64_t known_slow_ms(void);
/* The same of those and of the stops. */
int64_t known_held_ms(void);

known_call known_begin(int slot, const char *name);
/* Returns rc.  Is it one that the call may give (P5, P10, P11), and did it come
 * in time? */
int known_end(known_call c, int rc);
int64_t known_now_without_stops(const known_call *c);
/* The call was told that the file is no database, and so it is. */
bool known_is_rubbish(const known_call *c);

/* An acknowledged change has this zxid; a session that began has this id. */
void known_zxid(known_call c, int64_t zxid);
void known_session_id(int64_t id);
/* The last zxid that was acknowledged. */
int64_t known_most(void);
/* When a change was acknowledged; 0: it was not. */
int64_t known_zxid_at(int64_t zxid);
/* A read saw a state of this zxid. */
void known_read(known_call c, int64_t zxid);

/* Values: a new one, and what became of its write. */
int known_value_new(void);
void known_value_end(int value, int rc);

/* The version that a register is known to have at least. */
int known_version(int k);
void known_set(int k, int version, int value, int64_t mzxid);
void known_got(int k, int least, const char *data, int len,
               const zke_stat *stat);

/* When a version was set; 0: not known. */
int64_t known_mzxid(int k, int version);

int known_pair(void);
void known_pair_set(int version);

/* Numbers of the queue: how many were given at least; one is given; one that is
 * there, or -1; what became of its deletion; the list as it is found. */
int known_given(void);
void known_give(int number, int least);
int known_pick(uint64_t random);
void known_taken(int number, int rc);
void known_listed(const zke_strings *names, const unsigned char *before);
void known_numbers(unsigned char out[KNOWN_NUMBERS]);
int known_number_of(const char *path);

/* Locks: the slot that holds it, or -1. */
int known_holder(int k, int64_t *generation);
void known_hold(int k, int slot);
void known_release(int k);
void known_release_all(int slot);

/* All is ready: the nodes are made. */
extern bool known_ready;
/* Files beside the database were removed: ZKE_REPLACED is the answer. */
extern bool known_side_lost;
/* FIFOs were removed: events come by the tick. */
extern bool known_fifos_lost;

/* known_keep - a backup is made; known_go_back - it is what there is now */
void known_keep(void);
void known_go_back(void);

extern int64_t known_check_began;

#endif
