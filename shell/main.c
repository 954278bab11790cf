/* main.c - the zke command: its own options, and its four forms
 *
 * parse() makes a request from the command line, run_form() runs it.  Exit
 * codes are those of the commands (shell.h).  If a signal has ended a command
 * or its child, the program also ends by it, after it has closed the session.
 *
 *     zke FILE                     lines from a person, or standard input
 *     zke FILE COMMAND ARGS…       one command
 *     zke FILE -f SCRIPT           lines from a file
 *     zke FILE --coprocess         requests from a program
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "database.h"
#include "shell.h"
#include "take.h"

static const char usage[] =
    "usage: zke [OPTION…] FILE                  commands from the terminal, "
    "or\n"
    "                                           from standard input\n"
    "       zke [OPTION…] FILE COMMAND ARGS…    one command\n"
    "       zke [OPTION…] FILE -f SCRIPT        commands from a file\n"
    "       zke [OPTION…] FILE --coprocess      JSON requests, a line each\n"
    "\n"
    "FILE is a database, created by the first command that writes, or "
    ":memory:,\n"
    "or a ZooKeeper ensemble: zk://HOST:PORT,HOST:PORT/CHROOT.\n"
    "\n"
    "  --json, --plain, --human  how results are printed\n"
    "  -f, --file SCRIPT         run the commands in SCRIPT (-: standard "
    "input)\n"
    "  --go-on                   go on after an error in a script\n"
    "  --readonly                open without a session, change nothing\n"
    "  --chroot PATH             every path is below PATH\n"
    "  --auth USER:PASSWORD      add a digest identity (or by ZKE_AUTH)\n"
    "  --identity NAME           shown to others; \"zke\"\n"
    "  --timeout DURATION        longest wait for other writers; 5s\n"
    "  -q, --quiet               no progress\n"
    "  -v, --verbose             say what it waits for, and for how long\n"
    "  --version, --help\n"
    "\n"
    "zke FILE help lists the commands; zke(1) explains them.\n";

/* The request of the command line. */
typedef struct request {
  shell sh;
  const char *script; /* -f; NULL: none */
  bool go_on;         /* --go-on */
  bool coprocess;     /* --coprocess */
  char **rest;        /* the command and its words, or NULL */
  int rest_count;
  words *words; /* the same, or NULL */
  int file_at;  /* the index of sh.file among the words */
} request;

/* ------------------------------------------------------------------------
 * The command line
 *
 * The program's own options are read without a database, before one is opened:
 * their errors are reported whatever FILE is.  Words after the command belong
 * to it (args.c).
 *
 * args.c does not read them, since its rules and sentences are those of a
 * command: it accepts combined letters, takes "-5" for a number, and ends a
 * refusal with the command's usage.  Here an error refers to zke --help, or
 * explains that FILE was forgotten.
 * --------------------------------------------------------------------- */

/* Reports an error in the program's own words; STATUS_USAGE. */
static int wrong(const char *what, const char *which) {
  char sentence[1024];
  snprintf(sentence, sizeof sentence, "%s%s; zke --help explains", what, which);
  output_usage(sentence);
  return STATUS_USAGE;
}

/* --timeout; 0 is refused, since SQLite would not wait at all. */
static int set_timeout(request *r, const char *value) {
  word w = {value, strlen(value), false};
  if (!word_duration(&w, &r->sh.options.busy_timeout_ms) ||
      r->sh.options.busy_timeout_ms < 1)
    return wrong("--timeout wants a duration, not ", value);
  return 0;
}

/* -f: the script to run; "-" is standard input. */
static int set_script(request *r, const char *value) {
  r->script = value;
  return 0;
}

/* --chroot: passed on unchanged, since the engine checks it when the file is
 * opened. */
static int set_chroot(request *r, const char *value) {
  r->sh.options.chroot = value;
  return 0;
}

/* --auth, instead of ZKE_AUTH.  Other users of the host can see it in the list
 * of processes, which is why ZKE_AUTH exists. */
static int set_auth(request *r, const char *value) {
  r->sh.auth = value;
  return 0;
}

/* --identity: the name that others see for this session. */
static int set_identity(request *r, const char *value) {
  r->sh.options.identity = value;
  return 0;
}

static const struct {
  const char *letter, *name;
  int (*set)(request *r, const char *value);
} valued[] = {{"-f", "--file", set_script},
              {NULL, "--chroot", set_chroot},
              {NULL, "--auth", set_auth},
              {NULL, "--identity", set_identity},
              {NULL, "--timeout", set_timeout}};

/* An option without a value; false if the word is not one. */
static bool set_flag(request *r, const char *name) {
  if (strcmp(name, "--json") == 0)
    r->sh.format = FORMAT_JSON;
  else if (strcmp(name, "--plain") == 0)
    r->sh.format = FORMAT_PLAIN;
  else if (strcmp(name, "--human") == 0)
    r->sh.format = FORMAT_HUMAN;
  else if (strcmp(name, "--go-on") == 0)
    r->go_on = true;
  else if (strcmp(name, "--readonly") == 0)
    r->sh.open_flags |= ZKE_OPEN_READONLY;
  else if (strcmp(name, "--quiet") == 0 || strcmp(name, "-q") == 0)
    r->sh.quiet = true;
  else if (strcmp(name, "--verbose") == 0 || strcmp(name, "-v") == 0)
    r->sh.verbose = true;
  else if (strcmp(name, "--coprocess") == 0)
    r->coprocess = true;
  else
    return false;
  return true;
}

/* Is FILE a command's name?  If there is a file of that name, the file is
 * meant.  This only serves an error message: no guess runs anything. */
static bool is_command(const shell *sh, const char *file) {
  word name = {file, file ? strlen(file) : 0, false};
  return file && command_find(sh, &name) && access(file, F_OK) != 0;
}

/* Reports where FILE belongs. */
static int fail_forgotten(const char *file) {
  char sentence[256];
  snprintf(sentence, sizeof sentence,
           "no database was named: \"%s\" is a command, and FILE comes before "
           "it: zke FILE %s …",
           file, file);
  output_usage(sentence);
  return STATUS_USAGE;
}

/* An option with a value, at argv[*i]: --name VALUE, --name=VALUE, -l VALUE. */
static int set_valued(request *r, int argc, char **argv, int *i) {
  const char *given = argv[*i], *equals = strchr(given, '=');
  size_t len = equals ? (size_t)(equals - given) : strlen(given);
  for (size_t k = 0; k < sizeof valued / sizeof *valued; k++) {
    const char *letter = valued[k].letter, *name = valued[k].name;
    bool is_letter = letter && strcmp(given, letter) == 0;
    if (!is_letter && (strlen(name) != len || memcmp(given, name, len) != 0))
      continue;
    if (equals && !is_letter) return valued[k].set(r, equals + 1);
    if (*i + 1 == argc || strcmp(argv[*i + 1], "--") == 0)
      return wrong(given, " wants a value");
    return valued[k].set(r, argv[++*i]);
  }
  if (is_command(&r->sh, r->sh.file)) return fail_forgotten(r->sh.file);
  return wrong("there is no option ", given);
}

/* `zke help get` and `zke queue push --help` need no database, unless there is
 * a file named help or queue. */
static bool asks_for_help(const request *r) {
  const char *file = r->sh.file;
  if (r->script || r->coprocess || !is_command(&r->sh, file)) return false;
  if (strcmp(file, "help") == 0) return true;
  word asked[3] = {{file, strlen(file), false}};
  int count = 1, used;
  for (; count < 3 && count <= r->rest_count; count++)
    asked[count] =
        (word){r->rest[count - 1], strlen(r->rest[count - 1]), false};
  command_asked(&r->sh, asked, count, &used);
  return r->rest && r->rest_count <= used &&
         strcmp(r->rest[r->rest_count - 1], "--help") == 0;
}

/* Options may stand before and after FILE; the command ends them, or "--".  The
 * following words go into rest.  Returns 0 or STATUS_USAGE. */
static int parse_words(request *r, int argc, char **argv) {
  bool ended = false;
  for (int i = 1; i < argc; i++) {
    int status = 0;
    if (strcmp(argv[i], "--") == 0 && !ended) {
      ended = true;
    } else if (strcmp(argv[i], "--help") == 0 &&
               is_command(&r->sh, r->sh.file)) {
      r->rest = argv + i;
      r->rest_count = 1;
      break;
    } else if (argv[i][0] == '-' && argv[i][1] && !ended) {
      if (!set_flag(r, argv[i])) status = set_valued(r, argc, argv, &i);
    } else if (!r->sh.file) {
      r->sh.file = argv[i];
      r->file_at = i;
    } else {
      r->rest = argv + i;
      r->rest_count = argc - i;
      break;
    }
    if (status) return status;
  }
  return 0;
}

/* Makes a request from the command line: a file and one of the forms. */
static int parse(request *r, int argc, char **argv) {
  int status = parse_words(r, argc, argv);
  if (status) return status;
  if (asks_for_help(r)) { /* it is the command, with what follows it */
    r->rest = argv + r->file_at;
    r->rest_count = argc - r->file_at;
  }
  if (r->rest && (r->script || r->coprocess))
    return wrong("a command, -f and --coprocess exclude each other", "");
  if (r->script && r->coprocess)
    return wrong("-f and --coprocess exclude each other", "");
  return r->sh.file ? 0 : wrong("no database was named", "");
}

/* Was FILE forgotten, as in `zke serve` or `zke lock nightly -- job`?  The
 * first word is a command's name, and nothing follows it, or the next words can
 * only be that command's: "--", or a word that is not a command. */
static bool forgets_file(const request *r) {
  if (!is_command(&r->sh, r->sh.file)) return false;
  if (!r->rest) return !r->script && !r->coprocess;
  bool has_child = false;
  for (int i = 0; i < r->rest_count; i++)
    has_child = has_child || strcmp(r->rest[i], "--") == 0;
  word first = {r->rest[0], strlen(r->rest[0]), false};
  return has_child || !command_find(&r->sh, &first);
}

/* --help and --version, with or without a FILE.  After a command's name --help
 * is about that command. */
static bool told_about_itself(const shell *sh, int argc, char **argv) {
  if (argc < 2 || argc > 3 || (argc == 3 && is_command(sh, argv[1])))
    return false;
  if (strcmp(argv[argc - 1], "--help") == 0)
    fputs(usage, stdout);
  else if (strcmp(argv[argc - 1], "--version") == 0)
    printf("zke %s\n", zke_version());
  else
    return false;
  return true;
}

/* ------------------------------------------------------------------------
 * The forms
 *
 * Each form opens the database itself, when it first needs it: `help` and
 * refused words need none.
 * --------------------------------------------------------------------- */

/* One command from the command line. */
static int run_one(request *r) {
  call c = {.sh = &r->sh};
  int status = run_words(&c, r->words);
  run_call_free(&c);
  return status;
}

/* Does the command want a process of its own?  That has to be forked before
 * anything else is begun. */
static bool wants_own_process(const request *r) {
  int used;
  const command *m =
      r->words ? command_asked(&r->sh, r->words->data, r->words->count, &used)
               : NULL;
  return m && m->flags & OWN_PROCESS;
}

/* Runs one of the four forms; its exit code. */
static int run_form(request *r) {
  if (r->words) return run_one(r);
  if (r->coprocess) return coprocess_run(&r->sh);
  if (r->script) return script_run(&r->sh, r->script, r->go_on);
  if (isatty(STDIN_FILENO)) return edit_run(&r->sh);
  return script_run(&r->sh, "-", r->go_on);
}

/* Opens standard streams that are closed.  Otherwise a file of ours, even the
 * database, could get such a number and receive output.  Their use still fails:
 * input that is open for writing cannot be read, and so on. */
static void fill_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 &&
        open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
      _exit(STATUS_SYSTEM);
}

/* Signals are blocked before any thread begins.  The session's locks and the
 * like are released before the exit code is known, since that may fail too. */
static int run(request *r) {
  if (signals_begin() != 0) {
    perror("zke: SYSTEM");
    return STATUS_SYSTEM;
  }
  int status = run_form(r);
  int closed = session_close(&r->sh);
  if (status == STATUS_OK) status = closed;
  signals_printing();
  if (fflush(stdout) != 0 && status == STATUS_OK) status = STATUS_IO;
  signals_printing();
  return status;
}

int main(int argc, char **argv) {
  request r = {
      .sh = {.tables = commands_all,
             .m = PTHREAD_MUTEX_INITIALIZER,
             .auth = getenv("ZKE_AUTH"),
             .options = {.size = sizeof(zke_options), .identity = "zke"}}};
  fill_streams();
  database_uncounted();
  if (told_about_itself(&r.sh, argc, argv))
    return fflush(stdout) ? STATUS_IO : STATUS_OK;
  int status = parse(&r, argc, argv);
  if (status) return status;
  if (store_register() != ZKE_OK) return STATUS_INTERNAL;
  if (forgets_file(&r)) return fail_forgotten(r.sh.file);
  if (r.rest && !(r.words = words_copy(r.rest_count, r.rest)))
    return STATUS_SYSTEM;
  status = wants_own_process(&r) ? take_fork(&r.sh) : -1;
  if (status < 0) status = run(&r);
  free(r.words);
  if (status > STATUS_SIGNAL && r.sh.died_by == status - STATUS_SIGNAL)
    signals_die(r.sh.died_by);
  return status;
}
