/* fail.c - how a call fails: its status, its code and its sentence
 *
 * The lowest part of the command: all others may call it, and it calls none of
 * them.  A call keeps its first failure; what fails after that, while the
 * command cleans up, is not reported.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "shell.h"

/* Notes the failure, unless there was one before; the status of the first. */
static int fail_with(call *c, int status, const char *code, const char *format,
                     va_list arguments) {
  if (c->status != STATUS_OK) return c->status;
  c->status = status;
  c->code = code;
  vsnprintf(c->sentence, sizeof c->sentence, format, arguments);
  return status;
}

/* See fail_with(). */
int fail(call *c, int status, const char *code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  status = fail_with(c, status, code, format, arguments);
  va_end(arguments);
  return status;
}

/* The sentence, and behind it how the command is written. */
int fail_usage(call *c, const char *format, ...) {
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  const command *m = c->command;
  return fail(c, STATUS_USAGE, "USAGE", "%s; usage: %s%s%s", what, m->name,
              *m->usage ? " " : "", m->usage);
}

/* Which of the exit codes of zke(1) a result of the engine stands for.  A code
 * that is new in the engine ends as STATUS_INTERNAL: add it here. */
int status_of(int rc) {
  switch (rc) {
    case ZKE_OK:
      return STATUS_OK;
    case ZKE_NONODE:
    case ZKE_NODEEXISTS:
    case ZKE_NOTEMPTY:
    case ZKE_BADVERSION:
    case ZKE_NOCHILDRENFOREPHEMERALS:
    case ZKE_NOWATCHER:
      return STATUS_NO;
    case ZKE_BADARGUMENTS:
    case ZKE_INVALIDACL:
    case ZKE_MARSHALLINGERROR:
    case ZKE_OTHERKIND:
      return STATUS_DATA;
    case ZKE_CANTOPEN:
    case ZKE_NOTADB:
    case ZKE_NEWERFORMAT:
    case ZKE_NETWORKFS:
      return STATUS_CANTOPEN;
    case ZKE_NOMEM:
      return STATUS_SYSTEM;
    case ZKE_CONNECTIONLOSS:
    case ZKE_CORRUPT:
    case ZKE_DATAINCONSISTENCY:
    case ZKE_FULL:
    case ZKE_SYSTEMERROR:
      return STATUS_IO;
    case ZKE_OPERATIONTIMEOUT:
    case ZKE_HELD:
    case ZKE_DEADLOCK:
    case ZKE_LIMIT:
    case ZKE_CANCELLED:
    case ZKE_BROKEN:
      return STATUS_CONFLICT;
    case ZKE_LOST:
    case ZKE_SESSIONEXPIRED:
    case ZKE_INVALIDSTATE:
    case ZKE_CLOSING:
    case ZKE_REPLACED:
      return STATUS_LOST;
    case ZKE_NOAUTH:
    case ZKE_AUTHFAILED:
    case ZKE_READONLY:
      return STATUS_DENIED;
    default:
      return STATUS_INTERNAL;
  }
}

/* Report a result of the engine with the thread's sentence. Call it before
 * anything else of the engine, which may replace that sentence. */
int fail_rc(call *c, int rc) {
  return fail(c, status_of(rc), zke_error_name(rc) + strlen("ZKE_"), "%s",
              zke_errmsg());
}

/* The code names the few errors that scripts tell apart. */
int fail_errno(call *c, int status, const char *what) {
  const char *code = "SYSTEM";
  if (errno == ENOSPC) code = "FULL";
  if (errno == ENOENT) code = "NOENT";
  if (errno == EACCES) code = "ACCES";
  if (errno == EPIPE) code = "PIPE";
  return fail(c, status, code, "%s: %s", what, strerror(errno));
}
