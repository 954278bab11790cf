/* known.h - what is known of the tree from the calls that have returned
 *
 * The tree has some registers, each a node whose data is a number that is
 * written only once; a pair of nodes that change together; a queue of
 * sequential nodes; and locks, ephemerals that one session at a time can have.
 * Each acknowledged change is noted here, and each answer is compared with the
 * notes: it must include what was acknowledged, or seen, before the call began
 * (P8).
 */
#ifndef ZKE_SIM_KNOWN_H
#define ZKE_SIM_KNOWN_H

#include "test/sim/notes.h"
#include "test/sim/sim.h"
#include "zkembed.h"

enum { KNOWN_REGISTERS = 3, KNOWN_LOCKS = 2, KNOWN_NUMBERS = 8192 };

/* How long a handle's calls wait for others: busy_timeout_ms. */
enum { BUSY_MS = 3000 };

/* Some values are so long that they are on other pages than the rows of their
 * nodes, so a read that mixes two states shows. */
enum { KNOWN_BYTES = 300 };

/* A call that has begun, and what was known at that time. */
typedef struct known_call {
  const char *name;
  int slot;
  int64_t at, stopped, zxid, changes;
  bool ended; /* the session was ended by zke_expire() before */
} known_call;

/* What the checks need to know of each process. */
typedef struct known_session {
  int64_t id;    /* 0: it has none */
  bool ended;    /* it was ended by another, and that was acknowledged */
  bool may_end;  /* it has a lease, or another may have ended it */
  bool leased;   /* has only a lease: see known_may_end() */
  int64_t heard; /* when its last call began that looked into the file */
  bool lost;     /* it was told that it has ended */
  int discards;  /* discards now running: if they lack memory they end it */
} known_session;
extern known_session known_of[SIM_SLOTS];

/* May a slot's session have ended?  One with a lease may not, if it has just
 * renewed that and all is calm. */
bool known_may_end(int slot);
/* The total time of all slow syncs so far, in ms; a call can take that much
 * longer. */
int64_t known_slow_ms(void);
/* The same, including stops. */
int64_t known_held_ms(void);

known_call known_begin(int slot, const char *name);
/* Check that the call may return rc (P5, P10, P11), and that it came in time.
 * Returns rc. */
int known_end(known_call c, int rc);
int64_t known_now_without_stops(const known_call *c);
/* The call was told that the file is no database, and that is true. */
bool known_is_rubbish(const known_call *c);

/* An acknowledged change has this zxid; a new session has this id. */
void known_zxid(known_call c, int64_t zxid);
void known_session_id(int64_t id);
/* The last zxid that was acknowledged. */
int64_t known_most(void);
/* When a change was acknowledged; 0: it was not. */
int64_t known_zxid_at(int64_t zxid);
/* A read saw a state of this zxid. */
void known_read(known_call c, int64_t zxid);

/* Values: a new one, and the outcome of its write. */
int known_value_new(void);
void known_value_end(int value, int rc);

/* The least version that a register can have. */
int known_version(int k);
void known_set(int k, int version, int value, int64_t mzxid);
void known_got(int k, int least, const char *data, int len,
               const zke_stat *stat);

/* When a version was set; 0: not known. */
int64_t known_mzxid(int k, int version);

int known_pair(void);
void known_pair_set(int version);

/* Numbers of the queue: at least how many were given; one is given; one that
 * exists, or -1; the outcome of its deletion; a list that was read. */
int known_given(void);
void known_give(int number, int least);
int known_pick(uint64_t random);
void known_taken(int number, int rc);
void known_listed(const zke_strings *names, const unsigned char *before);
void known_numbers(unsigned char out[KNOWN_NUMBERS]);
int known_number_of(const char *path);

/* Locks: the slot of the holder, or -1. */
int known_holder(int k, int64_t *generation);
void known_hold(int k, int slot);
void known_release(int k);
void known_release_all(int slot);

/* The nodes are made. */
extern bool known_ready;
/* Side files of the database were removed, so calls return ZKE_REPLACED. */
extern bool known_side_lost;
/* FIFOs were removed, so events come at the tick. */
extern bool known_fifos_lost;

/* known_keep - a backup is made; known_go_back - it is restored */
void known_keep(void);
void known_go_back(void);

extern int64_t known_check_began;

#endif
