/* fail.c - a call's failure: its status, its code and its sentence
 *
 * The lowest part of the command: all others may call it, and it calls none of
 * them.  A call keeps its first failure; later ones, while the command cleans
 * up, are not reported.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "shell.h"

/* Records the failure, unless there was one before; returns the status of the
 * first.  So a command may fail again while it cleans up, and the user reads
 * the original cause. */
static int fail_first(call *c, int status, const char *code, const char *format,
                      va_list arguments) {
  if (c->status != STATUS_OK) return c->status;
  c->status = status;
  c->code = code;
  vsnprintf(c->sentence, sizeof c->sentence, format, arguments);
  return status;
}

/* Records why the call fails, unless it has failed before; the status to
 * return. */
int fail_with(call *c, int status, const char *code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  status = fail_first(c, status, code, format, arguments);
  va_end(arguments);
  return status;
}

/* The sentence, followed by the command's usage. */
int fail_usage(call *c, const char *format, ...) {
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  const command *m = c->command;
  return fail_with(c, STATUS_USAGE, "USAGE", "%s; usage: %s%s%s", what, m->name,
                   *m->usage ? " " : "", m->usage);
}

/* The exit code of zke(1) for each result of the engine.  A new code of the
 * engine becomes STATUS_INTERNAL: add it here. */
static const struct {
  int rc, status;
} statuses[] = {{ZKE_OK, STATUS_OK},
                {ZKE_NONODE, STATUS_NO},
                {ZKE_NODEEXISTS, STATUS_NO},
                {ZKE_NOTEMPTY, STATUS_NO},
                {ZKE_BADVERSION, STATUS_NO},
                {ZKE_NOCHILDRENFOREPHEMERALS, STATUS_NO},
                {ZKE_NOWATCHER, STATUS_NO},
                {ZKE_BADARGUMENTS, STATUS_DATA},
                {ZKE_INVALIDACL, STATUS_DATA},
                {ZKE_MARSHALLINGERROR, STATUS_DATA},
                {ZKE_OTHERKIND, STATUS_DATA},
                {ZKE_SQL, STATUS_DATA},
                {ZKE_CANTOPEN, STATUS_CANTOPEN},
                {ZKE_NOTADB, STATUS_CANTOPEN},
                {ZKE_NEWERFORMAT, STATUS_CANTOPEN},
                {ZKE_NETWORKFS, STATUS_CANTOPEN},
                {ZKE_NOMEM, STATUS_SYSTEM},
                {ZKE_CONNECTIONLOSS, STATUS_IO},
                {ZKE_CORRUPT, STATUS_IO},
                {ZKE_DATAINCONSISTENCY, STATUS_IO},
                {ZKE_FULL, STATUS_IO},
                {ZKE_SYSTEMERROR, STATUS_IO},
                {ZKE_OPERATIONTIMEOUT, STATUS_CONFLICT},
                {ZKE_HELD, STATUS_CONFLICT},
                {ZKE_DEADLOCK, STATUS_CONFLICT},
                {ZKE_LIMIT, STATUS_CONFLICT},
                {ZKE_CANCELLED, STATUS_CONFLICT},
                {ZKE_BROKEN, STATUS_CONFLICT},
                {ZKE_LOST, STATUS_LOST},
                {ZKE_SESSIONEXPIRED, STATUS_LOST},
                {ZKE_INVALIDSTATE, STATUS_LOST},
                {ZKE_CLOSING, STATUS_LOST},
                {ZKE_REPLACED, STATUS_LOST},
                {ZKE_NOAUTH, STATUS_DENIED},
                {ZKE_AUTHFAILED, STATUS_DENIED},
                {ZKE_READONLY, STATUS_DENIED}};

int status_of(int rc) {
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    if (statuses[i].rc == rc) return statuses[i].status;
  return STATUS_INTERNAL;
}

/* Reports a result of the engine with the thread's sentence.  Call it before
 * any other call of the engine, which may replace that sentence. */
int fail_rc(call *c, int rc) {
  return fail_with(c, status_of(rc), zke_error_name(rc) + strlen("ZKE_"), "%s",
                   zke_errmsg());
}

/* The code names the few errors that scripts distinguish. */
int fail_errno(call *c, int status, const char *what) {
  const char *code = "SYSTEM";
  if (errno == ENOSPC) code = "FULL";
  if (errno == ENOENT) code = "NOENT";
  if (errno == EACCES) code = "ACCES";
  if (errno == EPIPE) code = "PIPE";
  return fail_with(c, status, code, "%s: %s", what, strerror(errno));
}
