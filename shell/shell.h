/* shell.h - shared by the parts of the zke command
 *
 * A line of input, a command line's words or a request of a coprocess becomes
 * words.  The first word names a command of one of the tables; the rest is
 * sorted into options, arguments and the words after "--".  The command's
 * function runs and emits rows, which are JSON objects in every format; its
 * result is an exit code.
 *
 *     main.c       the program's own options, and its four forms
 *     session.c    the store: opened when first needed, closed at the end
 *     script.c     lines from a file or from standard input
 *     edit.c       lines from a person; complete.c: their completion
 *     coprocess.c  requests from a program, several at once
 *       run.c      words into a call of a command
 *       args.c     the call's options, arguments and paths
 *       help.c     the effect of each option
 *       output.c   rows into text: for people, --json, --plain; progress
 *       signals.c  one thread takes the signals and ends waits
 *       words.c    a line into words; numbers, durations, base64
 *       input.c    files and standard input; data of a command
 *       fail.c     a call's failure
 *       clock.c    the two clocks, and that of a database in memory
 *     the commands, a table each, listed in commands.c:
 *       builtin.c, tree.c, subtree.c (by walk.c), watch.c, multi.c, acl.c,
 *       transfer.c, database.c, batch.c (shared by removing, copying and
 *       import),
 *       guard.c (runs a child), lock.c, take.c (its hold that outlives the
 *       command), queue.c, barrier.c, once.c, txn.c (they share work.c),
 *       look.c, waits.c, process.c (reads /proc), fence.c, history.c (past.c
 *       calculates past holders), metrics.c, serve/ (the protocol server;
 *       serve/serve.h lists its parts)
 *
 * Threads: a call runs on one thread; in a coprocess several calls share one
 * shell.  Members of the shell say what guards them.  Mutexes are taken in this
 * order: coprocess.c's, signals.c's, guard.c's.  The shell's own is never held
 * together with any of these.
 *
 * Read run_words() and emit_row() first: all commands start in the one, and all
 * their rows leave by the other.
 */
#ifndef ZKE_SHELL_H
#define ZKE_SHELL_H

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "../zkembed.h"

/* ------------------------------------------------------------------------
 * Exit codes
 *
 * Numbered as in sysexits.h and in shells.  zke(1) lists them for users; add a
 * new one there, too.
 * --------------------------------------------------------------------- */

enum {
  STATUS_OK = 0,
  STATUS_NO = 1,           /* a negative answer: no such node, wrong version */
  STATUS_USAGE = 64,       /* the command line, an unknown command */
  STATUS_DATA = 65,        /* malformed input: path, JSON, UTF-8 */
  STATUS_CANTOPEN = 66,    /* the database or an input file */
  STATUS_INTERNAL = 70,    /* a defect of zke */
  STATUS_SYSTEM = 71,      /* memory, processes, descriptors */
  STATUS_CANTCREATE = 73,  /* an output file */
  STATUS_IO = 74,          /* disk full, damaged, closed pipe */
  STATUS_CONFLICT = 75,    /* held by another, timeout, deadlock: try again */
  STATUS_LOST = 76,        /* the lock or the session was lost */
  STATUS_DENIED = 77,      /* permission, read-only */
  STATUS_CANNOT_RUN = 126, /* the child's program cannot be executed */
  STATUS_NOT_FOUND = 127,  /* the child's program does not exist */
  STATUS_SIGNAL = 128      /* and the signal's number */
};

/* ------------------------------------------------------------------------
 * Words (words.c)
 *
 * Text from a person and from a program both become words here, and no later
 * code asks for their source.  A word may hold any bytes, so its length counts
 * and the NUL after it does not.  Start with words_split().
 * --------------------------------------------------------------------- */

/* Bytes, with a NUL after them that is not counted. */
typedef struct word {
  const char *text;
  size_t len;
  bool literal; /* not an option, "--" or a sign, however it looks */
} word;

/* Words in their order.  The struct and the list are one block; only
 * words_split() puts the texts into it, too. */
typedef struct words {
  int count;
  word *data;
} words;

/* words_split - a line into words
 *
 * Blanks separate words.  '…' is literal; in "…" and outside quotes a backslash
 * makes the next character literal, and in "…" \n \t \r \0 and \xHH are the
 * bytes they name.  # at the start of a word begins a comment.
 *
 *   out  one block, for free(); count 0 for an empty line
 *
 * Returns NULL, or a sentence that says what is wrong (static; out untouched);
 * words_unclosed if another line may complete this one. */
extern const char words_unclosed[];
const char *words_split(const char *line, size_t len, words **out);

/* words_copy - argv or part of it, as words, for free(); the texts stay argv's.
 *              NULL without memory */
words *words_copy(int count, char *const *argv);

/* word_is - compares, NULs inside included */
bool word_is(const word *w, const char *text);

/* word_number   - a decimal number and nothing else; false if not
 * word_session  - 0x… or a decimal number
 * word_duration - "90", "1.5" seconds; "250ms", "90s", "5m", "2h", "1d"; in
 *                 ms.  Nothing below zero, nothing above a hundred years
 * word_time     - "2026-11-20T12:00:00.5Z", or only the day, in UTC; a duration
 *                 before now_ms; or ms since 1970.  In ms since 1970 */
bool word_number(const word *w, int64_t *number_out);
bool word_session(const word *w, int64_t *session_out);
bool word_duration(const word *w, int64_t *ms_out);
bool word_time(const word *w, int64_t now_ms, int64_t *ms_out);

/* ------------------------------------------------------------------------
 * Commands and calls (run.c)
 *
 * A command is a constant row of a table; a call is one run of it.  The call
 * has all state of this run: options, arguments, the first failure, how to
 * cancel it, what it has printed.  So calls can run in parallel.  A function
 * that returns a status returns 0 or has recorded its failure by fail_with();
 * its caller returns the status without looking at it.  Start with struct
 * command, then struct call.
 *
 *     words            command_asked(): the row, with a verb that of the verb
 *       |              signals_enter(): from here on it can be cancelled
 *     args_sort()      options, arguments and the child's words
 *     session_open()   as the command's flags require
 *     command.run()    emits rows, returns the exit code
 *     output_end()     prints kept rows, and checks that all was written
 *       |              signals_leave()
 *     exit code        the first failure's; its sentence by output_error()
 *
 * Once the command is found, a failed step skips those between it and
 * output_end().
 * --------------------------------------------------------------------- */

typedef struct shell shell;
typedef struct command command;
typedef struct call call;

/* For people; --json: an object a line; --plain: values between tabs. */
enum { FORMAT_HUMAN, FORMAT_JSON, FORMAT_PLAIN };

/* An option of a command. The table's last one has the letter '\0'. */
typedef struct option {
  char letter;       /* 'w' for -w; another character (a digit, or a capital
                        that is no short option): '\0' to end the table */
  const char *name;  /* "wait" for --wait; NULL: the letter alone */
  const char *value; /* "DURATION" if it takes one, else NULL */
} option;

/* A command's flags: what it needs from the file, and what its line may
 * contain.  CREATES_FILE includes the bit of NEEDS_SESSION, and NEEDS_CHILD
 * that of TAKES_CHILD. */
enum {
  NEEDS_NOTHING = 0, /* runs without a database, or opens it itself */
  NEEDS_FILE = 1,    /* only looks, without a session: the file must exist */
  NEEDS_SESSION = 2, /* registers or owns something; the file must exist */
  CREATES_FILE = 6,  /* writes: creates a missing file */
  TAKES_CHILD = 8,   /* "-- CMD ARGS…" may follow */
  NEEDS_CHILD = 24,  /* must follow */
  NOT_IN_COPROCESS = 32,
  HIDDEN = 64, /* another name of a command: not listed */
  VERBS = 128, /* "queue": the next word is a verb, and "queue push" and so on
                  are separate, hidden rows */
  OPTIONS_FIRST = 256,    /* after the first argument all words are arguments */
  PREFERS_SESSION = 1024, /* with NEEDS_FILE: a session if possible */
  NO_FORMAT = 2048,       /* multi.c's: a part of a command, without --json */
  FILE_ONLY = 4096,       /* refused on an ensemble: it needs a file */
  CAN_HAVE_VERB = 8192, /* "lock": as VERBS, but the next word is a verb only if
                             a row has it and an argument follows */
  OWN_PROCESS = 16384,  /* is forked before anything else begins (take.c) */
  CHILD_IF_EPHEMERAL = 512 /* a command may follow with -e; else "--" only ends
                              the options */
};

/* How people see the rows. */
enum {
  STYLE_LINE,   /* a row's values in one line, two blanks between */
  STYLE_TABLE,  /* columns, with a heading */
  STYLE_RECORD, /* "name = value", a line each, a blank line between rows */
  STYLE_VALUE   /* only the first value */
};

/* A row of a table; it never changes, so any number of calls share it. */
struct command {
  const char *name;      /* with its verb: "queue push" */
  const char *usage;     /* what follows the name: "[-s] PATH" */
  const char *summary;   /* one line, without a full stop */
  const option *options; /* ends by a letter 0; NULL: none */
  int least, most;       /* arguments; most -1: any number */
  unsigned flags;
  int style;
  int (*run)(call *c); /* returns an exit code */
  /* instead of the style, or NULL: prints one row to out for people; may use
   * c's options */
  void (*human)(call *c, json_t *row, FILE *out);
};

/* A table ends by a command without a name. */
extern const command builtin_commands[], tree_commands[], watch_commands[],
    multi_commands[], acl_commands[], transfer_commands[], database_commands[],
    lock_commands[], queue_commands[], barrier_commands[], once_commands[],
    txn_commands[], look_commands[], waits_commands[], serve_commands[],
    fence_commands[], history_commands[], metrics_commands[];

/* A table, and what help prints above it; NULL: it continues the group of the
 * table before. */
typedef struct command_table {
  const char *heading;
  const command *commands;
} command_table;

/* All of these tables, in the order of help's list; the last has no commands.
 * For shell.tables. */
extern const command_table commands_all[];

/* One run of one command. */
struct call {
  shell *sh;
  const command *command;
  int count; /* arguments, without options */
  const word *args;
  int child_count; /* after "--" */
  const word *child;
  int format; /* FORMAT_… */
  int style;  /* STYLE_…: the command's, unless it sets another one */
  zke *z;     /* open if the command needs it, else NULL */

  /* its result */
  int status;       /* the first failure's */
  const char *code; /* of it: "NONODE"; NULL: none, or nothing to report */
  char sentence[1024];

  /* args.c's and output.c's own */
  const word **values; /* by the option's index in the table; NULL: not given */
  words *block;        /* args, child and some of values point into it */
  json_t *table;       /* rows kept for their widths */
  size_t table_bytes;
  int64_t table_ms;      /* when they must be printed */
  struct layout *layout; /* of the printed rows */
  bool told;             /* a row was printed before */
  int output_errno;      /* the first failure to print; 0: none */
  int64_t progress_ms;   /* not shown before; 0: not yet asked for */

  /* signals.c's own: guarded by its mutex */
  int (*cancel)(void *object); /* ends its wait; NULL: it does not wait */
  void *cancel_object;
  bool unheard; /* the cancel came too early: to be repeated */
  atomic_bool cancelled;
  atomic_int signal; /* the signal; 0: cancelled without one */
  struct call *next; /* of the running calls */

  /* the coprocess's own */
  const json_t *id; /* NULL: not a coprocess's call */
  json_t *rows;     /* its rows, for the answer */
};

/* The program.  The members before the mutex do not change while calls run in
 * parallel. */
struct shell {
  const command_table *tables; /* commands_all */
  const char *file;            /* as given */
  unsigned open_flags;         /* ZKE_OPEN_READONLY for --readonly, or 0 */
  int format;                  /* FORMAT_…: of new calls */
  bool quiet;                  /* --quiet */
  bool verbose;                /* --verbose */
  bool coprocess;              /* calls run in parallel */
  /* a coprocess's: prints a row between the answers; takes the reference */
  int (*event)(call *c, json_t *row);
  bool persists; /* several commands share a session, so that their locks
                    outlive them: script, edit, coprocess */
  bool person;   /* edit */
  /* standard input has the lines, so a child must not read it */
  bool reads_input;
  zke_options options;     /* for opening */
  const char *auth;        /* "user:password", or NULL */
  pthread_mutex_t m;       /* guards what follows */
  zke *z;                  /* the session; NULL: none yet */
  zke *looker;             /* a handle without a session; NULL: not open */
  pthread_t keeper;        /* an ensemble's session: the thread that pings */
  bool keeping;            /* that thread exists */
  atomic_bool keeper_ends; /* that thread should end */
  int64_t sweep_ms;        /* no search for dead sessions before then */
  json_t *identities;      /* the identities of addauth, an array or NULL */
  char *cwd;               /* "/" or "/a/b"; replaced by cd */
  bool leaving;            /* exit was given */
  int leave_status;
  int died_by;           /* the signal that ended one of our commands, or 0 */
  struct held *held;     /* locks and the like that this session holds */
  struct server *server; /* serve's, while it runs; else NULL */
};

/* run_words - find the command, sort the words, open, run, report
 *
 *   w       the words, the command first; count 0: does nothing
 *   c       zeroed, except sh and the coprocess's members
 *
 * Errors go to standard error, or, for a coprocess's call, stay in c.  Returns
 * the exit code. */
int run_words(call *c, const words *w);

/* run_line - one line of a script or of a person, from its words to its last
 *            row.  Returns the exit code; reports failures on standard error */
int run_line(shell *sh, const char *line, size_t len);

/* run_call_free - free what run_words() left in c */
void run_call_free(call *c);

/* option_help - the effect of a command's option, in one line; NULL: not known
 *               (help.c) */
const char *option_help(const command *m, const option *o);

/* command_note - further text of help about a command, in separate lines; NULL:
 *                nothing (help.c) */
const char *command_note(const command *m);

/* command_find - by its name, with its verb if it has one; NULL if unknown
 * command_asked - the row that words name, from the first on; NULL: none.  If
 *             a verb is missing it is the row with VERBS, which cannot run
 *   used_out   how many words its name has: 2 with VERBS, even if the verb is
 *              missing or unknown, and if a verb was found
 * fail_unknown - for an unknown name: suggests commands
 * command_each - all listed commands, table by table; NULL at the end
 * command_heading - the heading above a command in the list of all; NULL if
 *                another command of its group has it */
const command *command_find(const shell *sh, const word *name);
const command *command_asked(const shell *sh, const word *data, int count,
                             int *used_out);
int fail_unknown(call *c, const word *name);
const command *command_each(const shell *sh, const command *before);
const char *command_heading(const shell *sh, const command *m);

/* The commands' interface: options (args.c) ----------------------------- */

/* args_follow - is there an argument among the words after a command, or does
 *             --help ask about it?  Their options are of two rows
 * args_sort - sort words, the command's name first, into c's options and
 *             arguments, as c->command requires, before it runs: 0, or
 *             STATUS_USAGE.  Texts are not copied
 * args_free - free what args_sort() allocated
 * option_given - was the option given?
 * option_word - its value, or NULL if it was not given */
bool args_follow(const command *m, const command *n, const word *data,
                 int count);
int args_sort(call *c, const words *given);
void args_free(call *c);
bool option_given(const call *c, char letter);
const word *option_word(const call *c, char letter);

/* The commands' interface: failing (fail.c) ----------------------------- */

/* fail_with  - report what is wrong; returns status
 * fail_usage - the same, with the command's usage line: STATUS_USAGE
 * fail_rc    - a zkembed code other than ZKE_OK, with zke_errmsg(); returns
 *              status_of(rc)
 * fail_errno - "what: strerror(errno)"
 * A call reports only its first failure. */
int fail_with(call *c, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int fail_usage(call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int fail_rc(call *c, int rc);
int fail_errno(call *c, int status, const char *what);
int status_of(int rc);

/* The commands' interface: arguments (args.c, input.c) ------------------ */

/* These return 0, or the exit code after fail_with().  Their output pointers
 * are for free(). */

/* arg_path     - argument i as a path: absolute, or relative to the working
 *                node, with "." and ".."; without that argument, the working
 *                node.  A slash at its end, which completion adds, is removed
 * path_join    - the same for any text, but keeps a slash at its end
 * path_trim    - removes that slash
 * arg_place    - a recipe's path: "/…" unchanged, else "/<base>/<name>"
 * place_path   - the same for any word
 * shell_cwd    - a copy of the working node */
int arg_path(call *c, int i, char **path_out);
int path_join(call *c, const word *text, char **path_out);
void path_trim(char *path);
int arg_place(call *c, int i, const char *base, char **path_out);
int place_path(call *c, const word *name, const char *base, char **path_out);
char *shell_cwd(shell *sh);

/* option_number   - an option's value between least and most; the default if it
 *                   was not given
 * option_deadline - zke_now() plus the option's duration; ZKE_FOREVER if it was
 *                   not given
 * option_time     - a time, in ms since 1970 */
int option_number(call *c, char letter, int64_t least, int64_t most,
                  int64_t otherwise, int64_t *out);
int option_duration(call *c, char letter, int64_t otherwise, int64_t *ms_out);
int option_deadline(call *c, char letter, int64_t *deadline_out);
int option_time(call *c, char letter, int64_t otherwise, int64_t *ms_out);

/* A znode's data in a command: argument i; or --null, --base64 TEXT, --input
 * FILE ("-": standard input).  OPTIONS_DATA goes into the table.
 *
 *   data_out  one block or NULL; len_out: its length, -1 for NULL data
 *   given_out whether any was given: else empty data */
#define OPTIONS_DATA \
  {'0', "null", NULL}, {'6', "base64", "TEXT"}, { 'i', "input", "FILE" }
int arg_data(call *c, int i, char **data_out, int *len_out, bool *given_out);

/* input_open    - a file, or standard input for "-"; a signal or a cancel of c
 *                 ends its reading with EINTR; NULL with errno
 * input_wait    - until a descriptor has something to read: false with EINTR if
 *                 a signal or a cancel came first
 * input_descriptor- the descriptor to wait for and to read, without a FILE
 * input_failed  - after ferror(): the exit code
 * input_is_free - may standard input be read as data?  0 or STATUS_USAGE
 * input_file    - a whole file, "-" for standard input */
FILE *input_open(call *c, const char *name);
int input_descriptor(const char *name);
bool input_wait(call *c, int fd);
int input_failed(call *c, const char *name);
int input_is_free(call *c);
int input_file(call *c, const char *name, char **data_out, size_t *len_out);

/* base64_encode - one block, for free()
 * base64_decode - false if it is malformed */
char *base64_encode(const void *data, size_t len);
bool base64_decode(const char *text, size_t len, char **data_out,
                   size_t *len_out);

/* clock_ms     - for pauses and limits; with any origin
 * clock_after  - so many ms from now, for pthread_cond_timedwait() on a
 *                condition variable of that clock
 * clock_wall_ms - ms since 1970, for people
 * clock_of_ticks - the same for a time in clock ticks, as /proc has it
 * clock_os     - the system calls of a database in memory: a test can move its
 *                wall clock
 * clock_move   - move that clock forward
 * clock_stand  - stop it, or start it (all: clock.c) */
int64_t clock_ms(void);
struct timespec clock_after(int64_t ms);
int64_t clock_wall_ms(void);
int64_t clock_of_ticks(uint64_t ticks);
const zke_os *clock_os(void);
void clock_move(int64_t ms);
void clock_stand(bool stands);

/* The commands' interface: waiting -------------------------------------- */

/* While a command waits, a signal or a coprocess's cancel must end the wait.
 *
 * cancel_by    - when that comes, call cancel(object) on another thread,
 *                immediately if it has already come; zke_lock_cancel and the
 *                like fit through CANCELLER.  NULL: no longer; after that
 *                cancel does not run any more
 * cancel_by_fd - a cancel() for a call that polls: writes to the eventfd
 *                *object
 * cancel_came  - has it come?  Loops over many nodes ask.
 * fail_cancelled - the exit code for it: 128 + signal, or STATUS_CONFLICT */
void cancel_by(call *c, int (*cancel)(void *object), void *object);
int cancel_by_fd(void *eventfd);
bool cancel_came(const call *c);
int fail_cancelled(call *c);

#define CANCELLER(name, type, function) \
  static int name(void *object) { return function((type *)object); }

/* ------------------------------------------------------------------------
 * Output (output.c)
 *
 * A command emits rows; this part decides their form, by the format and the
 * command's style.  Text from other processes (data, names, labels) reaches a
 * terminal only with its control characters escaped.  Start with emit_row().
 * --------------------------------------------------------------------- */

/* emit_row   - a row; takes the reference; NULL (no memory) fails
 * emit_event - a row that its reader waits for: printed immediately, in a
 *              coprocess as an event between the answers
 * Return 0 or the exit code.
 *
 * In rows: names are text (value_text() if they come from a file); data is made
 * by value_data(); times are integers, ms since 1970, in members with names
 * that end in "time" or "_at" or are "since" (people see
 * "2026-11-20T12:00:00Z"); durations end in "_ms"; sessions are made by
 * value_session(). */
int emit_row(call *c, json_t *row);
int emit_event(call *c, json_t *row);

/* value_data    - a string if the bytes are UTF-8 without NUL, else {"base64":
 *                 "…"}; null for len -1
 * value_session - "0x…"
 * value_stat    - puts the members of a Stat into a row */
json_t *value_data(const void *data, int len);
json_t *value_text(const char *text); /* as value_data() with its length */
json_t *value_session(int64_t session);
void value_stat(json_t *row, const zke_stat *stat);

/* value_to_data - the opposite: one block for free() or NULL, len -1 for null;
 * false if it is neither */
bool value_to_data(const json_t *j, char **data_out, int *len_out);

/* is_control - is it a control character of ASCII?  Those of two bytes, 0xc2
 * and 0x80 to 0x9f, are the caller's task */
static inline bool is_control(char byte) {
  return (unsigned char)byte < ' ' || byte == 0x7f;
}

/* output_text     - a value for people: text, or bytes unchanged; on a
 *                   terminal, control characters become \x1b and so on
 * output_visible  - the same for any out, and a newline becomes \n
 * output_sentence - the same for a sentence with other processes' names
 *
 *   name  of the member, for times; may be NULL
 *   out   the destination */
void output_text(const char *name, const json_t *value, FILE *out);
void output_visible(const char *name, const json_t *value, FILE *out);
void output_sentence(const char *text, FILE *out);

/* output_columns - the width of a terminal; 80 if it is unknown
 * output_wrapped - a text in lines of so many columns, and a newline; text in
 *                  brackets stays together.  column: where it begins; indent:
 *                  where its further lines begin
 * output_usage   - a usage error, on standard error, in lines as wide as the
 *                  terminal: "zke: USAGE: …", then the usage, which follows ";
 *                  usage: " */
int output_columns(int fd);
void output_wrapped(FILE *out, const char *text, int columns, int column,
                    int indent);
void output_usage(const char *sentence);

/* output_end - after a command: print the table, and check that all was
 *              written.  Returns 0 or the exit code
 * output_forget - free a table's kept rows */
int output_end(call *c);
void output_forget(call *c);

/* output_error - a failed call, to standard error */
void output_error(const call *c);

/* progress_show - only on a terminal and for people: "import: 1200 of 5000
 *                 nodes" on standard error, at most ten times a second
 *   total  0: unknown
 * progress_end  - remove the line */
void progress_show(call *c, const char *what, int64_t done, int64_t total);
void progress_end(call *c);

/* ------------------------------------------------------------------------
 * The session (session.c)
 *
 * The store is opened when the first command needs it, as far as that command
 * needs it, and is closed once, at the end.  A script, a person and a coprocess
 * keep one session for all commands.  Start with session_open().
 * --------------------------------------------------------------------- */

/* The kind of store, by its name. */
enum {
  STORE_FILE,    /* a database */
  STORE_MEMORY,  /* ":memory:": a tree that only this process has */
  STORE_ENSEMBLE /* "zk://…": a ZooKeeper ensemble (engine/zookeeper.h) */
};

/* store_of       - the kind of this shell's store
 * store_register - from now on ensembles can be opened; a zkembed code
 * store_batch    - zke_batch().  An ensemble has none: there fn's calls are
 *                  separate, and earlier ones stay if a later one fails */
int store_of(const shell *sh);
int store_register(void);
int store_batch(call *c, zke_batch_fn fn, void *context);

/* session_open - open c->z as a command needs the store: the session, which
 *                begins with the first command that needs one, and again after
 *                it expired; before that, a handle that only looks.  Opens
 *                nothing for NEEDS_NOTHING.  run.c calls this with the
 *                command's flags; if a command's options decide, it has
 *                NEEDS_NOTHING in the table and calls this itself
 *   needs  NEEDS_FILE, NEEDS_SESSION or CREATES_FILE, with or without
 *          PREFERS_SESSION and FILE_ONLY; other flags are ignored
 * session_looker - the handle that only looks; NULL: none is open
 * session_is_readonly - is there no session, and can there be none?
 * session_close - release everything, end the session; STATUS_… */
int session_open(call *c, unsigned needs);
zke *session_looker(const shell *sh);
bool session_is_readonly(const shell *sh);
int session_close(shell *sh);

/* wait_passes - is rc, the result of a wait, a temporary failure?  Then this
 *               pauses for a tenth of a second, and the wait may be repeated */
bool wait_passes(int rc);

/* session_authenticate - add all identities given so far to another session;
 *                        the shell's mutex is held */
int session_authenticate(call *c, zke *z);

/* ------------------------------------------------------------------------
 * A session's locks and the like (session.c)
 *
 * If a session outlives the command, so do the command's locks and the like.
 * All of them are in one list under the shell's mutex, with functions that
 * return the token, release and free.  A loss is reported once, before the next
 * prompt or as an event.
 * --------------------------------------------------------------------- */

typedef struct held held;

/* A class of such objects.  All three functions may run on any thread; token()
 * also with the shell's mutex held, so it must not wait for another party.  If
 * it cannot read the state, that is not a loss. */
typedef struct held_class {
  const char *kind;               /* "lock" */
  int (*release)(void *object);   /* zkembed code; NULL: destroy does */
  void (*destroy)(void *object);  /* also releases it if it is still held */
  int64_t (*token)(void *object); /* 0: it was lost */
} held_class;

/* held_add     - from now on the session holds it, under its path and kind
 * held_release - release it: 0, or STATUS_NO if nothing matches; the latest if
 *                there are several
 *   kind   or NULL: any
 *   name   a path, or its part after any first name: "backup" for
 *          "/locks/backup"
 *   token  from its acquisition; 0: any.  A lost one still has its token, so
 *          that nothing else is released instead
 *   object this very one, to which the caller has a reference, under any name
 *          and token: another call may have got a newer one of the name
 *          meanwhile.  NULL: name and token decide
 * held_lost    - losses, one at a time: the event for the coprocess's request
 *                that got it, or for the person; NULL: no more
 * held_each    - call fn for each, with the shell's mutex held */
int held_add(call *c, const held_class *class_, const char *path, void *object);
int held_release(call *c, const char *kind, const char *name, int64_t token,
                 const void *object);
json_t *held_lost(shell *sh);
void held_each(shell *sh,
               void (*fn)(void *arg, const held_class *class_, const char *path,
                          void *object),
               void *arg);

/* ------------------------------------------------------------------------
 * Signals (signals.c)
 *
 * All threads have them blocked; one thread takes them.  All but CHLD, WINCH
 * and CONT cancel the running calls; a running child gets them instead
 * (guard.c).
 * --------------------------------------------------------------------- */

/* signals_begin  - at the program's start, before any thread
 * signals_enter  - a call runs from here on; signals_leave - no longer
 * signals_cancel - cancel one call, as a signal would
 * signals_stop   - no further call begins, nothing is read: a signal that a
 *                  hook took must end the program, too
 * signals_hook   - see each signal but CONT first; the hook returns true if it
 *                  has handled the signal.  It runs on the signals' thread.
 *                  NULL: no hook; after that the old one does not run
 * signals_hold   - until signals_release() no signal is taken: earlier ones
 *                  were handled, or are pending
 * signals_settle - handles all signals that have come.  Only without a hook, as
 *                  at the prompt
 * signals_wake_fd - readable when a signal came while no call ran: for the
 *                  prompt
 * signals_stop_fd - readable when a signal came that ends calls and reading;
 *                  signals_stopped - which one, 0: none.  A person's next
 *                  command begins without it
 * signals_printing - called at the start and at the end of output: if output is
 *                  stuck (its reader is stuck, a value is enormous), a signal
 *                  that ends calls ends the program, except a person's
 * signals_child  - in a forked child: restores the state before signals_begin()
 * signals_die    - end by a signal, as its sender expects */
int signals_begin(void);
void signals_enter(call *c);
void signals_leave(call *c);
void signals_cancel(call *c, int signal);
void signals_stop(int signal);
void signals_hook(bool (*hook)(void *arg, const siginfo_t *info), void *arg);
void signals_hold(void);
void signals_release(void);
void signals_settle(void);
int signals_wake_fd(void);
int signals_stop_fd(void);
int signals_stopped(void);
void signals_printing(void);
void signals_child(void);
_Noreturn void signals_die(int signal);

/* ------------------------------------------------------------------------
 * Running a command of the user's (guard.c)
 *
 * A child runs while something is held.  It is released when the child has
 * ended; if a signal ended the child, or with --wait-all, when its descendants
 * are gone as well.  If it is lost, the child is ended.  Start with
 * guard_run().
 * --------------------------------------------------------------------- */

/* The held thing while the child runs. */
typedef struct guard {
  const char *kind, *path; /* its kind and path: "lock", "/locks/backup" */
  int64_t token;
  /* is it still held?  0, or a zkembed code; NULL: nothing is held */
  int (*check)(void *object);
  void *object;
  /* for the child: further "NAME=value" texts in its environment, and these
   * bytes as its standard input; NULL: ours */
  const char *const *more;
  int more_count;
  const char *input;
  size_t input_len;
  bool *asked; /* out, or NULL: true if a signal came that should end us */
} guard;

/* Its options, for the table. */
/* clang-format off */
#define OPTIONS_GUARD                \
  {'L', "on-lost", "kill|warn"},     \
  {'G', "grace", "DURATION"},        \
  {'o', "close", NULL},              \
  {'P', "outlive", NULL},            \
  {'W', "wait-all", NULL}
/* clang-format on */

/* guard_options - check them before anything is held: 0 or STATUS_USAGE
 * guard_run     - run c->child while g is held: the child's code, 128 + n, 126,
 *                 127, or STATUS_LOST */
int guard_options(call *c);
int guard_run(call *c, const guard *g);

/* guard_event - run c->child once for an event, with more in its environment:
 * "NAME=value" texts; waits for it.  Returns its code as guard_run() */
int guard_event(call *c, const char *const *more, int count);

/* ------------------------------------------------------------------------
 * Forms
 *
 * The sources of words: the command line, a script, a person, a program.
 * main.c decides, and calls one of these.
 * --------------------------------------------------------------------- */

/* script_run    - the commands of a file, "-" for standard input
 *   go_on  even after a failure; else the failure's exit code is the result
 * edit_run      - a person's commands, until exit, ^D or a signal
 * coprocess_run - a program's requests (doc/coprocess.md)
 * Return the program's exit code. */
int script_run(shell *sh, const char *name, bool go_on);
int edit_run(shell *sh);
int coprocess_run(shell *sh);

#endif
