/* phase_tree.h - for recipe authors: what the znodes of a transaction of a
 * two-phase commit say
 *
 * A view is all of a transaction as of one moment, read without an object: for
 * lists, for acknowledging, and to see what stands in the way of a new one.
 * See phase_step.h. */
#ifndef ZKEMBED_RECIPES_PHASE_TREE_H
#define ZKEMBED_RECIPES_PHASE_TREE_H

#include "phase_step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  ZKE_PHASE_BY = 96, /* bytes of "identity (pid 12)" */
  /* the flags of a form */
  ZKE_PHASE_FORMS = ZKE_TWO_PHASE_COORDINATOR | ZKE_TWO_PHASE_EPHEMERAL
};

/* zke_phase_words - the words of votes and decisions, by ZKE_TWO_PHASE_COMMIT
 *                   and _ABORT; "" for ZKE_TWO_PHASE_UNDECIDED
 * zke_phase_word  - the one on the first line of this data; NULL is fine */
extern const char *const zke_phase_words[];
int zke_phase_word(const char *data);

/* zke_phase_by - "identity (pid 12)" of this session, in one line */
void zke_phase_by(zke *z, char by[ZKE_PHASE_BY]);

/* zke_phase_tx_path - the path of base/name, in one block; base may be "/" */
char *zke_phase_tx_path(zke *z, const char *base, const char *name);

/* zke_phase_decision_text - the data of a decision, in one block, or NULL */
char *zke_phase_decision_text(zke *z, int decision, const char *why);

/* ---- the head ---- */

/* The data of the transaction's own znode. */
typedef struct zke_phase_head {
  char *text;               /* as it was read; the rest points into it */
  const char *id;           /* no other transaction has it */
  int form;                 /* ZKE_TWO_PHASE_… */
  int64_t limit_ms;         /* wall time, ms since 1970; 0: none */
  int64_t begun_ms;         /* the same */
  int count;                /* number of sites */
  const char *const *sites; /* their names, in the coordinator's order */
  const char **names;       /* the block that holds them */
  const char *payload;
  int len; /* bytes of the payload */
} zke_phase_head;

/* zke_phase_head_write - the data of a znode with this head: one block, or NULL
 * zke_phase_head_parse - read this text
 * zke_phase_head_read  - read the znode of a transaction; on failure there is
 *                        nothing to release
 * zke_phase_head_free  - release a head that was read or parsed
 *
 *   h        write: id, form, limit_ms, sites, payload.  Parse: text must be
 *            set, a block that ends with a NUL; the head owns it
 *   len      bytes of the text, without that NUL
 *   len_out  out: the same
 *
 * Parse and read return ZKE_OK, ZKE_NOMEM or ZKE_OTHERKIND.  Read also returns
 * as zke_get(), and its ZKE_OTHERKIND has a sentence. */
char *zke_phase_head_write(zke *z, const zke_phase_head *h, int *len_out);
int zke_phase_head_parse(zke *z, zke_phase_head *h, int len);
int zke_phase_head_read(zke *z, const char *path, zke_phase_head *h);
void zke_phase_head_free(zke_phase_head *h);

/* zke_phase_head_find - the index of a site, or -1: not a site of it */
int zke_phase_head_find(const zke_phase_head *h, const char *site);

/* zke_phase_check_sites - can a head have these sites?  Returns ZKE_OK or
 * ZKE_BADARGUMENTS */
int zke_phase_check_sites(const char *const *sites, int count);

/* ---- all of a transaction ---- */

/* All of a transaction; use the functions below. */
typedef struct zke_phase_view {
  zke_phase_head head;
  zke_op_result *got; /* [0] children, [1] the decision, then the votes in the
                         order of the sites */
  int count;          /* of got */
} zke_phase_view;

/* zke_phase_view_read - read all of a transaction
 * zke_phase_view_free - release it, with its head
 *
 * Read returns ZKE_OK; ZKE_NONODE: there is no whole transaction; as
 * zke_phase_head_read(); or the code of a failed read.  On failure there is
 * nothing to release. */
int zke_phase_view_read(zke *z, const char *tx, zke_phase_view *v);
void zke_phase_view_free(zke_phase_view *v);

/* zke_phase_has            - is there such a child?
 * zke_phase_decided        - the decision, or ZKE_TWO_PHASE_UNDECIDED
 * zke_phase_voted          - the vote of the site with that index
 * zke_phase_unacknowledged - how many sites have not acknowledged
 *
 *   but  the index of a site to leave out, or -1 */
bool zke_phase_has(const zke_phase_view *v, const char *prefix,
                   const char *name);
int zke_phase_decided(const zke_phase_view *v);
int zke_phase_voted(const zke_phase_view *v, int site);
int zke_phase_unacknowledged(const zke_phase_view *v, int but);

/* zke_phase_list_missing - "b, c": the sites that have not voted
 *
 *   acks  the sites that have not acknowledged instead
 *   text  out: as many as fit
 *
 * Returns text. */
const char *zke_phase_list_missing(const zke_phase_view *v, bool acks,
                                   char *text, size_t size);

/* ---- its end ---- */

/* zke_phase_is_over - have all sites acknowledged, and the coordinator, if it
 * is alive?
 *
 *   but   the index of a site to leave out, or -1
 *   over  out, always set
 *
 * Returns ZKE_OK; ZKE_LOOK_AGAIN: the coordinator was dead, and its session has
 * just been ended; or the code of a failed read. */
int zke_phase_is_over(zke *z, const char *tx, const zke_phase_view *v, int but,
                      bool *over);

/* zke_phase_remove - remove a whole transaction that is decided, in one step
 *
 *   more  operations of the site whose acknowledgement this is, or NULL
 *
 * Returns as zke_steps_do_with().  ZKE_BADVERSION: somebody has acknowledged
 * since the view; ZKE_NOTEMPTY: it contains other znodes. */
int zke_phase_remove(zke *z, const char *tx, const zke_phase_view *v,
                     zke_phase_more *more);

#ifdef __cplusplus
}
#endif

#endif
