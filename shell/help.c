/* help.c - the effect of each option, for `help COMMAND`, and what else a user
 * must know before using a command
 *
 * These are tables, from which help prints; the command's summary and zke(1)
 * explain its arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* An option of one command, or of all commands with an option of that name.  A
 * default stands after a semicolon.  The text must fit after the option in a
 * line of a terminal. */
static const struct {
  const char *command; /* or NULL */
  const char *name;    /* the long one */
  const char *text;
} texts[] = {
    {NULL, "wait", "wait no longer than that; then the exit status is 75"},
    {NULL, "nonblock", "do not wait"},
    {NULL, "conflict-exit-code",
     "exit status instead of 75; 0 prints no error"},
    {NULL, "verbose", "say what it waits for, and how long it took"},
    {NULL, "on-lost", "if it is lost, end CMD or only say so; kill"},
    {NULL, "grace", "time between the TERM and the KILL that end CMD; 5s"},
    {NULL, "close", "do not let CMD inherit the session's descriptor"},
    {NULL, "outlive", "let CMD go on when zke is killed"},
    {NULL, "wait-all",
     "hold it until all processes that CMD started have ended"},
    {NULL, "ttl", "give it to others if zke does nothing for so long"},
    {NULL, "null", "no data, which is not the same as empty data"},
    {NULL, "base64", "the data, as base64"},
    {NULL, "input", "the file with the data; - for standard input"},
    {NULL, "stat", "print the Stat, too"},
    {NULL, "recursive", "with all nodes below"},
    {NULL, "depth", "at most so many levels"},
    {NULL, "version", "only if it has that version"},
    {NULL, "force", "even if it exists already"},
    {NULL, "token", "only the one held with that token"},
    {NULL, "all", "all of them"},
    {NULL, "data", "print the data, too"},
    {NULL, "ephemeral", "remove it when the session ends"},
    {NULL, "follow", "continue until a signal arrives"},
    {"tree", "stat", "with sizes and owners"},
    {"ls", "stat", "with version, children, bytes, time and owner"},
    {"ls", "recursive", "all nodes below, as paths"},
    {"get", "raw", "print only the bytes, without a newline"},
    {"set", "stat", "print the new Stat"},
    {"create", "sequential", "append a number of ten digits to the name"},
    {"create", "container", "remove it after its last child"},
    {"create", "ttl", "remove it after so many ms without a child or a change"},
    {"create", "parents", "create missing parents, too"},
    {"create", "acl",
     "who may do what; by default everybody may do everything"},
    {"create", "hold", "keep the session until a signal arrives"},
    {"find", "name", "nodes with a name that matches the pattern"},
    {"find", "data", "nodes with that text in their data"},
    {"find", "ephemeral", "ephemeral nodes"},
    {"find", "owner", "nodes that belong to that session"},
    {"cp", "recursive", "with all nodes below, except ephemeral nodes"},
    {"ephemerals", "mine", "only those of this session"},
    {"multi", "input",
     "the file with the operations, a line each; - for standard input"},
    {"setacl", "version", "only if the ACL has that version"},
    {"setacl", "recursive", "set the ACL of all nodes below, too"},
    {"watch", "children", "only when children come or go"},
    {"watch", "data", "only when the node or its data changes"},
    {"watch", "recursive", "the node and all nodes below"},
    {"watch", "exists", "wait until the node exists"},
    {"watch", "gone", "wait until the node does not exist"},
    {"watch", "initial", "first print the node as it is, or run CMD for it"},
    {"watch", "count", "end after so many events"},
    {"import", "merge", "keep existing nodes; change or add those in the file"},
    {"import", "replace", "remove existing nodes first"},
    {"import", "large", "take values of more than 1 MiB, too"},
    {"dump", "no-data", "without the nodes' data"},
    {"init", "mode", "permissions as for chmod(1), in octal; 660 with a group"},
    {"init", "group", "the group of the file, by name or number"},
    {"init", "host", "make the tables in the database of another program"},
    {"init", "remove", "remove these tables, with the tree"},
    {"fence", "lock", "the path of the lock, or its name below /locks"},
    {"fence", "column", "the table's column with the token; fence"},
    {"fence", "off", "remove the table's fence"},
    {"fence", "replace", "replace the fence of another lock"},
    {"history", "keep", "about so many changes; any number"},
    {"history", "for", "changes of about so long, such as 30d; for ever"},
    {"log", "since", "after that zxid, or from that time on"},
    {"log", "limit", "only the latest so many"},
    {"held", "at", "a time, or how long ago that was; now"},
    {"lock take", "while-pid", "until that process has ended"},
    {"lock take", "for", "at most so long, from when it is held"},
    {"rwlock", "read", "hold it together with other readers"},
    {"rwlock", "shared", "the same as --read"},
    {"rwlock", "write", "hold it alone"},
    {"rwlock", "exclusive", "the same as --write"},
    {"sem", "limit", "how many permits there are in all"},
    {"sem", "permits", "how many of them to take; 1"},
    {"elect", "observe", "print who leads, now and at each change"},
    {"locks", "all", "list claims of queue items, too"},
    {"break", "all", "take it from all holders"},
    {"revoke", "insist", "take it away after that time"},
    {"waits", "dot", "print a graph as text for Graphviz"},
    {"queue push", "priority", "from 1 to 999, the lowest goes first; 100"},
    {"queue push", "delay", "keep it back for that time"},
    {"queue push", "key", "fail while an item with this key is in the queue"},
    {"queue push", "lines", "push an item for each line of input"},
    {"queue push", "limit", "wait while the queue has so many items"},
    {"queue push", "attempts",
     "it becomes a dead letter after so many attempts"},
    {"queue pop", "attempts",
     "it becomes a dead letter after so many attempts"},
    {"queue claim", "attempts",
     "it becomes a dead letter after so many attempts"},
    {"queue release", "delay", "keep it back for that time"},
    {"queue release", "token", "only the claim that was made with it"},
    {"queue ack", "token", "only the claim that was made with it"},
    {"queue prolong", "token", "only the claim that was made with it"},
    {"queue pop", "visibility", "others may claim it after that time"},
    {"queue claim", "visibility", "others may claim it after that time"},
    {"queue prolong", "visibility", "others may claim it after that time"},
    {"queue pop", "follow", "repeat until CMD fails; with --go-on, for ever"},
    {"queue pop", "go-on", "with --follow: continue if CMD fails"},
    {"queue pop", "back-off", "the pause after the first failure; 1s"},
    {"queue list", "dead", "list the dead letters"},
    {"queue rm", "force", "even if it has items or dead letters"},
    {"barrier set", "ephemeral", "remove it when the session ends"},
    {NULL, "parties", "how many parties must arrive"},
    {"once", "every", "the period"},
    {"once", "retry-failed", "run again in the same period after a failure"},
    {"once", "retry-dead", "run again in the same period if the process died"},
    {"once", "aligned", "periods begin at whole multiples since 1970, UTC"},
    {"once", "offset", "begin the periods so much later"},
    {"once", "force", "run it now, unless it is running"},
    {"once", "done", "report that the claimed job ended with this status"},
    {"once", "show", "print what is known about the job"},
    {"serve", "port", "the TCP port, 0 for a free one; 2181"},
    {"serve", "host", "the address to listen at; 127.0.0.1"},
    {"serve", "unix",
     "listen at a Unix socket; without --port and --host at that alone"},
    {"serve", "timeout-min", "the shortest timeout of a session; 4s"},
    {"serve", "timeout-max", "the longest timeout of a session; 40s"},
    {"serve", "connections", "limit for one address, 0: no limit; 60"},
    {"serve", "container-ms",
     "remove a container that is empty so long; 60000"},
    {"serve", "enforce-quota", "refuse changes above hard quotas, report soft"},
    {"serve", "users", "NAME:PASSWORD lines: the users of SASL"},
    {"serve", "require-sasl", "refuse clients that are none of the users"},
    {"serve", "super-user", "the user who passes every check"},
    {"serve", "super-digest", "USER:HASH; adding it passes every check"},
    {"serve", "print-port", "print the port when clients can connect"},
    {"serve", "control", "for tests: accept orders for faults at the port"},
    {"txn begin", "data", "its description"},
    {"txn begin", "deadline", "abort unless all have voted in that time"},
    {"txn begin", "coordinator",
     "only the session that begins it decides, while it lives"},
    {"txn begin", "ephemeral", "a vote counts as long as its session lives"},
};

/* Two passes in one: a text for this command returns immediately, one for all
 * commands only if the table has no better one. */
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

/* Text after a command's options, in separate lines. */
static const struct {
  const char *command;
  const char *text;
} notes[] = {
    {"serve",
     "Locks of Curator, go-zookeeper and zkembed on one path are one line.\n"
     "kazoo's have other names: zkembed refuses a path on which one stands,\n"
     "and kazoo does not see zkembed's.  With Curator's names it does:\n"
     "\n"
     "  lock = zk.Lock(path, extra_lock_patterns=[\"-lock-\"])\n"
     "  lock.prefix = \"_c_%s-lock-\" % uuid.uuid4()\n"
     "  lock.create_path = lock.path + \"/\" + lock.prefix\n"
     "\n"
     "An election has \"-latch-\" for \"-lock-\".\n"}};

/* The note of a command; NULL for most. */
const char *command_note(const command *m) {
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
    if (strcmp(notes[i].command, m->name) == 0) return notes[i].text;
  return NULL;
}
