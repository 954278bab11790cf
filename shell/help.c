/* help.c - what each option does, for `help COMMAND`
 *
 * A table, from which help prints; what an argument means is in the command's
 * summary and in zke(1).
 */
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* An option of one command, or of all that have one of that name. */
static const struct {
  const char *command; /* or NULL */
  const char *name;    /* the long one */
  const char *text;
} texts[] = {
    {NULL, "wait", "wait no longer than that; then the exit status is 75"},
    {NULL, "nonblock", "do not wait"},
    {NULL, "conflict-exit-code", "the exit status in place of 75; 0: silent"},
    {NULL, "verbose", "say what is waited for, and how long it took"},
    {NULL, "on-lost", "what is done to CMD where what is held is lost; kill"},
    {NULL, "grace", "between the TERM and the KILL that end CMD; 5s"},
    {NULL, "close", "keep the session's descriptor from CMD"},
    {NULL, "outlive", "CMD lives on where zke is killed"},
    {NULL, "wait-all", "hold it until all that CMD started have ended, too"},
    {NULL, "ttl", "others get it when zke was silent for so long"},
    {NULL, "null", "no data, which is not the same as empty"},
    {NULL, "base64", "the data, as base64"},
    {NULL, "input", "the file with the data, - for standard input"},
    {NULL, "stat", "and the Stat"},
    {NULL, "recursive", "and all that is below"},
    {NULL, "depth", "only so many levels"},
    {NULL, "version", "only if it has that version"},
    {NULL, "force", "also where that is there already"},
    {NULL, "token", "only what has that token"},
    {NULL, "all", "all of them"},
    {NULL, "data", "the data as well"},
    {NULL, "ephemeral", "one that goes with the session"},
    {NULL, "follow", "go on for ever"},
    {"tree", "stat", "with sizes and owners"},
    {"ls", "stat", "with version, children, bytes, time and owner"},
    {"ls", "recursive", "all that is below, as paths"},
    {"get", "raw", "the bytes and nothing else, no end of line"},
    {"set", "stat", "print the new Stat"},
    {"create", "sequential", "with a number of ten digits behind the name"},
    {"create", "container", "one that goes when its last child has gone"},
    {"create", "ttl", "one that goes after so many ms without a change"},
    {"create", "parents", "make missing parents too"},
    {"create", "acl", "who may do what; by default everybody everything"},
    {"create", "hold", "keep the session until a signal comes"},
    {"find", "name", "the name fits the pattern"},
    {"find", "data", "the data has that text in it"},
    {"find", "ephemeral", "it is ephemeral"},
    {"find", "owner", "it is that session's"},
    {"cp", "recursive", "and all below it but ephemeral nodes"},
    {"ephemerals", "mine", "of this session"},
    {"multi", "input", "the operations, a line each, - for standard input"},
    {"setacl", "version", "only if the ACL has that version"},
    {"setacl", "recursive", "of all nodes below as well"},
    {"watch", "children", "only the children's coming and going"},
    {"watch", "data", "only the node and its data"},
    {"watch", "recursive", "the node and all that is below"},
    {"watch", "exists", "until there is such a node"},
    {"watch", "gone", "until there is none"},
    {"watch", "initial", "tell of the node as it is first, or run CMD for it"},
    {"watch", "count", "until so many events have come"},
    {"import", "merge", "keep and complete what is there"},
    {"import", "replace", "remove what is there first"},
    {"dump", "no-data", "without the nodes' data"},
    {"init", "mode", "the permissions, as chmod(1) has them; 660 with a group"},
    {"init", "group", "whose file it is"},
    {"rwlock", "read", "together with others that read"},
    {"rwlock", "shared", "the same"},
    {"rwlock", "write", "alone"},
    {"rwlock", "exclusive", "the same"},
    {"sem", "limit", "how many may hold it at once"},
    {"sem", "permits", "how many of these are taken; 1"},
    {"elect", "observe", "print who leads, whenever that changes"},
    {"locks", "all", "claims of queues, too"},
    {"break", "all", "of all that hold it"},
    {"revoke", "insist", "take it away when the time is over"},
    {"waits", "dot", "as text for Graphviz"},
    {"top", "interval", "between two pictures; 1s"},
    {"top", "once", "print one picture"},
    {"queue push", "priority", "1 to 999, the lowest first; 100"},
    {"queue push", "delay", "nobody gets it before"},
    {"queue push", "key", "refused while an item with this key is there"},
    {"queue push", "lines", "an item for each line of the input"},
    {"queue push", "limit", "wait while there are so many items"},
    {"queue push", "attempts", "a dead letter after so many failures"},
    {"queue pop", "attempts", "a dead letter after so many failures"},
    {"queue claim", "attempts", "a dead letter after so many failures"},
    {"queue release", "delay", "nobody gets it before"},
    {"queue pop", "visibility", "others may have it after so long"},
    {"queue claim", "visibility", "others may have it after so long"},
    {"queue prolong", "visibility", "others may have it after so long"},
    {"queue pop", "follow", "go on until CMD fails (--go-on: for ever)"},
    {"queue pop", "go-on", "with --follow: go on though CMD failed"},
    {"queue pop", "back-off", "the pause after the first failure"},
    {"queue list", "dead", "dead letters"},
    {"barrier set", "ephemeral", "it goes with the session"},
    {NULL, "parties", "how many have to be there"},
    {"once", "every", "the period"},
    {"once", "retry-failed", "run again in the same period after a failure"},
    {"once", "retry-dead", "run again where the process died"},
    {"once", "aligned", "periods begin at whole multiples"},
    {"once", "offset", "so much later"},
    {"once", "force", "run it now, unless it runs already"},
    {"once", "done", "report the status of what was claimed"},
    {"once", "show", "print what is known of the job"},
    {"txn begin", "data", "what it is about"},
    {"txn begin", "deadline", "abort when not all have voted by then"},
    {"txn begin", "coordinator", "only the session that begins it decides"},
    {"txn begin", "ephemeral", "a vote counts as long as its session lives"},
};

/* A text of the command's own comes before one of the name. */
const char *option_help(const command *m, const option *o) {
  const char *found = NULL;
  for (size_t i = 0; o->name && i < sizeof texts / sizeof *texts; i++) {
    const char *of = texts[i].command;
    if (strcmp(texts[i].name, o->name) != 0) continue;
    if (of && strcmp(of, m->name) == 0) return texts[i].text;
    if (!of) found = texts[i].text;
  }
  return found;
}
