/* changes.h - the changes of a history, as SQL for statements that read them
 * (doc/format.md, "history")
 *
 * Used after a SELECT with its columns:
 *
 *   ?1  a zxid: only later changes; 0: all
 *   ?2  a whole path, "" for the root: this node and those below it
 *
 * The rows are in the order of the changes.  zxid and seq rise together, so the
 * search for the last row that is not later starts at the end of the table. */
#ifndef ZKE_SHELL_CHANGES_H
#define ZKE_SHELL_CHANGES_H

#define CHANGES_SINCE                                                   \
  " FROM main.zkembed_history WHERE type<>0 AND seq>coalesce((SELECT "  \
  "seq FROM main.zkembed_history WHERE ?1>0 AND zxid<=?1 ORDER BY seq " \
  "DESC LIMIT 1),0) AND(path=?2 OR path>=?2||'/' AND path<?2||'0')"     \
  "ORDER BY seq"

#endif
