/* history.h - what several processes did, and whether it can be so
 *
 * A history is an array of operations, each with the times of its call and of
 * its return, as many processes recorded them.  The checkers below know
 * nothing of zkembed but its rules: they look at what was answered.  Each
 * returns the number of violations and tells every one as a sentence.
 */
#ifndef ZKE_TORTURE_HISTORY_H
#define ZKE_TORTURE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

enum { HIST_PATH = 56 };

typedef enum hist_kind {
  HIST_NONE = 0, /* an empty record: ignored */
  HIST_CREATE,
  HIST_SEQUENCE, /* a sequential create; path: the one made, or the prefix */
  HIST_DELETE,
  HIST_SET,
  HIST_READ,    /* saw value and version */
  HIST_STAT,    /* saw the version only */
  HIST_SAME,    /* a watch on `value` had not fired: it is still there */
  HIST_CHANGED, /* it had fired: `value` is gone for ever */
  HIST_OPEN,    /* a session began; zxid: its id */
  HIST_END,     /* a session ended; its ephemerals go */
  HIST_PAIR,    /* two things seen in one snapshot that must be equal */
  HIST_LOOK,    /* a watch fired `fired` times, at least `least`, at most
                    `most` times it should have */
  HIST_KINDS
} hist_kind;

/* Results beside the ZKE_ codes that the rules know. */
enum { HIST_NO_EFFECT = -1000 }; /* refused for reasons that do not matter */

/* The value of the nodes that exist before the history; others' are higher. */
enum { HIST_GIVEN = 1, HIST_FIRST_VALUE = 16 };

typedef struct hist_op {
  int64_t called, returned; /* ns; returned 0: its process died before */
  int64_t zxid;             /* of the change, or of the one seen; 0: unknown */
  int64_t session;          /* who did it, or whose end it is */
  uint64_t value, other;    /* each value is written once; 0: no node */
  uint32_t group;           /* of a multi: equal for its parts; else 0 */
  int32_t rc;
  int32_t wanted;  /* the version asked for, or -1 */
  int32_t version; /* the one after the change or seen; -1: unknown */
  int32_t least, most, fired;
  uint8_t kind;
  uint8_t process; /* who recorded it, for the reports */
  bool ephemeral;  /* goes with its session */
  bool fleeting;   /* container or TTL: may go by itself */
  bool final;      /* seen when all was over */
  char path[HIST_PATH];
} hist_op;

/* An event as a watcher got it. */
enum { HIST_RECURSIVE = 0, HIST_PERSISTENT = 1 };
typedef struct hist_event {
  int32_t type;  /* ZKE_EVENT_… */
  uint8_t watch; /* HIST_RECURSIVE on all, or HIST_PERSISTENT on one path */
  char path[HIST_PATH];
} hist_event;

typedef struct hist {
  const hist_op *op;
  int count;
  const hist_event *event; /* all there were since before the first change */
  int events;
  const char *watched; /* path of the persistent watch */
  void (*complain)(void *context, const char *sentence);
  void *context;
} hist;

/* An operation in words; returns text. */
enum { HIST_TEXT = 320 };
const char *hist_tell(const hist_op *o, char text[HIST_TEXT]);

/* Each node by itself is linearizable, versions and compare-and-set included:
 * there is an order of the operations that agrees with their times and in
 * which every answer is right.  An operation without return happened at any
 * time after its call, or never. */
int hist_check_nodes(const hist *h);

/* No zxid is given to two changes, and who comes later has the higher one. */
int hist_check_zxids(const hist *h);

/* The same for the numbers of sequential nodes of a parent. */
int hist_check_sequences(const hist *h);

/* What was seen in one snapshot is equal; a watch fired as often as it should
 * have; each result is one that the operation can have. */
int hist_check_records(const hist *h);

/* A surviving watcher got each change of each node once, in the order of the
 * zxids, and knows at the end what is there. */
int hist_check_events(const hist *h);

/* All of these. */
int hist_check(const hist *h);

#endif
