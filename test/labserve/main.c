/* main.c - zke-lab-serve: programs in any language in the laboratory
 *
 *     zke-lab-serve anna ben -- python3 locks.py
 *
 * Each name is a client, played by a process of the command, or all by one
 * process (--together).  The program is unchanged: it connects to a ZooKeeper.
 * The laboratory is this ZooKeeper, and tries the orders of requests, lost
 * replies, expiries and deaths.  See doc/laboratory.md. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labserve.h"

static const char usage[] =
    "usage: zke-lab-serve [OPTION]... NAME... -- COMMAND [ARGUMENT]...\n"
    "Run clients of a ZooKeeper in every order of their requests, with lost\n"
    "replies, ended sessions and deaths, until one of them fails.\n"
    "\n"
    "Each NAME is a client, at most %d.  COMMAND is run once for each, with "
    "its\n"
    "ZooKeeper's address in ZKE_LAB_HOSTS.\n"
    "\n"
    "  --together           one process of COMMAND plays all clients\n"
    "  --deaths N           of clients, in one schedule; 1\n"
    "  --expiries N         of sessions; 1\n"
    "  --losses N           of replies; 1\n"
    "  --pauses N           times at which time passes although somebody "
    "could\n"
    "                       go on; 0\n"
    "  --waits              after a death or an expiry, clients may wait for\n"
    "                       ever, unless that client was spare\n"
    "  --steps N            a schedule that takes more makes no progress; "
    "2000\n"
    "  --schedules N        at most so many; any number\n"
    "  --seconds N          search for so long; 20\n"
    "  --seed N             of the choices\n"
    "  --strategy NAME      random or pct; again for the other\n"
    "  --replay SCHEDULE    run one schedule, and draw it\n"
    "  --picture FILE       draw what was found; SVG where FILE ends in .svg\n"
    "  --show               show what the programs print\n"
    "  --help               this\n"
    "\n"
    "It is a finding when COMMAND ends with another status than 0 or says that "
    "it\n"
    "fails, when clients wait for ever, and when too many are in a section.\n"
    "\n"
    "COMMAND's environment, with --together words for all clients in each:\n"
    "  ZKE_LAB_NAME         the client's NAME\n"
    "  ZKE_LAB_HOSTS        its ZooKeeper\n"
    "  ZKE_LAB_CONTROL      an address that takes lines, each answered by "
    "one:\n"
    "                       enter SECTION MOST: at most so many are in it;\n"
    "                       leave SECTION; exclude SECTION SECTION; fail "
    "TEXT;\n"
    "                       note TEXT, for the picture; sleep "
    "MILLISECONDS;\n"
    "                       spare: from here on nobody may miss it\n"
    "A Python program that imports zkelab has functions for all of this.\n"
    "\n"
    "A SCHEDULE has a letter for each step, and a number that repeats the one "
    "before:\n"
    "  a to e   the first to fifth client's next step\n"
    "  K to O   the same, but the reply to its request is lost\n"
    "  u to y   its connection drops before the request is done\n"
    "  p to t   its session ends\n"
    "  A to E   it dies; F to J: then its session ends\n"
    "  ~        time passes\n"
    "\n"
    "Exit status: 0 nothing was found, 1 something, 2 a wrong option or "
    "another\n"
    "error.  doc/laboratory.md tells the whole story, with examples.\n";

enum { WORDS_MOST = 64 };

/* The command line. */
typedef struct wishes {
  zke_lab_options options;
  bool together, shows;
  char *names[PARTIES_MOST];
  int count;
  char **command;
  char *rest[WORDS_MOST]; /* those of zke_lab_main() */
  int rest_count;
} wishes;

static program programs[PARTIES_MOST];
static int program_count;

static int refuse(const char *text, const char *why) {
  fprintf(stderr, "zke-lab-serve: %s: %s\n", text, why);
  return 2;
}

/* A number of faults, or another one that is at least `least`; the laboratory
 * takes -1 for 0 faults. */
static bool take_number(const char *text, int64_t least, int64_t most,
                        int64_t *out) {
  char *end;
  *out = strtoll(text, &end, 10);
  return *text && !*end && *out >= least && *out <= most;
}

/* An option with a number; false: it is another option, or the number is
 * wrong. */
static bool take_count(wishes *w, const char *text, const char *value) {
  const struct {
    const char *name;
    int *at;
    int most;
    bool is_fault;
  } all[] = {{"--deaths", &w->options.crashes, ZKE_LAB_MOST, true},
             {"--expiries", &w->options.expiries, ZKE_LAB_MOST, true},
             {"--losses", &w->options.losses, 6, true},
             {"--pauses", &w->options.pauses, 8, true},
             {"--steps", &w->options.steps, 4000, false}};
  int64_t number;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (strcmp(text, all[i].name) != 0) continue;
    if (!take_number(value, all[i].is_fault ? 0 : 1, all[i].most, &number))
      return false;
    *all[i].at = number == 0 ? -1 : (int)number;
    return true;
  }
  return strcmp(text, "--schedules") == 0 &&
         take_number(value, 1, INT64_MAX, &w->options.schedules);
}

/* Is it an option of zke_lab_main()? */
static bool is_for_lab(const char *text) {
  static const char *const all[] = {"--seconds", "--seed", "--strategy",
                                    "--replay", "--picture"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(text, all[i]) == 0) return true;
  return false;
}

/* The option at argv[*at], which becomes its last word.  False: it is wrong. */
static bool take_option(wishes *w, int argc, char **argv, int *at) {
  char *text = argv[*at];
  if (strcmp(text, "--together") == 0) {
    w->together = true;
  } else if (strcmp(text, "--show") == 0) {
    w->shows = true;
  } else if (strcmp(text, "--waits") == 0) {
    w->options.waits = 1;
  } else if (*at + 1 == argc) {
    return false;
  } else if (is_for_lab(text) && w->rest_count + 2 < WORDS_MOST) {
    w->rest[w->rest_count++] = text;
    w->rest[w->rest_count++] = argv[++*at];
  } else {
    return take_count(w, text, argv[++*at]);
  }
  return true;
}

/* 0, or the exit status. */
static int take_words(wishes *w, int argc, char **argv) {
  int i = 1;
  for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (argv[i][0] == '-') {
      const char *text = argv[i];
      if (!take_option(w, argc, argv, &i))
        return refuse(text, "unknown, or without a value that it can have");
    } else if (w->count == PARTIES_MOST) {
      return refuse(argv[i], "so many clients cannot be had");
    } else {
      w->names[w->count++] = argv[i];
    }
  }
  if (w->count == 0 || i + 1 >= argc) {
    fprintf(stderr, usage, PARTIES_MOST);
    return 2;
  }
  w->command = argv + i + 1;
  return 0;
}

/* ------------------------------------------------------------------------
 * Clients and their programs
 * --------------------------------------------------------------------- */

/* Adds a word to a list. */
static void list_add(char *list, size_t size, const char *text) {
  size_t at = strlen(list);
  snprintf(list + at, size - at, "%s%s", at ? " " : "", text);
}

/* Gives a client its ports and its program; 0, or the exit status. */
static int prepare_party(const wishes *w, int number) {
  char hosts[PORT_BYTES], lines[PORT_BYTES];
  party *p = &parties[number];
  bool first = number == 0 || !w->together;
  if (strlen(w->names[number]) >= NAME_BYTES || strchr(w->names[number], ' '))
    return refuse(w->names[number],
                  "a name has at most 15 bytes, and no space among them");
  strcpy(p->name, w->names[number]);
  if (!party_listen(p, hosts, lines))
    return refuse(p->name, "there is no port for it");
  p->program = &programs[first ? program_count++ : program_count - 1];
  p->starts = first;
  p->program->command = w->command;
  p->program->shows = w->shows;
  list_add(p->program->names, sizeof p->program->names, p->name);
  list_add(p->program->hosts, sizeof p->program->hosts, hosts);
  list_add(p->program->controls, sizeof p->program->controls, lines);
  party_count++;
  return 0;
}

/* Starts the programs for the first time.  Each then says whether it must be
 * started again for each schedule. */
static int prepare_all(const wishes *w) {
  for (int i = 0; i < w->count; i++) {
    int status = prepare_party(w, i);
    if (status) return status;
  }
  for (int i = 0; i < party_count; i++) {
    const party *p = &parties[i];
    const char *why =
        p->starts ? program_try(p->program, p->hosts, p->control) : NULL;
    if (why) return refuse(w->command[0], why);
    party_forget(p);
  }
  return 0;
}

static void leave_all(void) {
  for (int i = 0; i < program_count; i++) program_leave(&programs[i]);
}

int main(int argc, char **argv) {
  wishes w = {.options = ZKE_INIT(zke_lab_options)};
  zke_lab *lab = NULL;
  w.options.time_ms = 20000;
  w.options.pauses = -1;
  w.options.leftovers = 1; /* a client may close and leave watches */
  w.options.strategies = ZKE_LAB_RANDOM | ZKE_LAB_PCT;
  w.rest[w.rest_count++] = argv[0];
  if (argc > 1 && strcmp(argv[1], "--help") == 0)
    return printf(usage, PARTIES_MOST) < 0 ? 2 : 0;
  int status = take_words(&w, argc, argv);
  if (status) return status;
  signal(SIGPIPE, SIG_IGN);
  if (!quiet_begin()) return refuse("processor", "it cannot be had alone");
  if (zke_lab_new(&w.options, &lab) != ZKE_OK)
    return refuse("laboratory", zke_errmsg());
  status = prepare_all(&w);
  for (int i = 0; i < party_count && !status; i++)
    if (party_add(lab, &parties[i]) != ZKE_OK)
      status = refuse(parties[i].name, zke_errmsg());
  if (!status) status = zke_lab_main(lab, w.rest_count, w.rest);
  leave_all();
  zke_lab_free(lab);
  return status;
}
