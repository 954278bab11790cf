/* edit.c - lines from a person at a terminal
 *
 * The prompt: reads lines, turns them into commands, runs these, and keeps the
 * history.  libedit edits the line if it was present at compilation (ZKE_EDIT)
 * and the terminal can do more than print.  Otherwise e->el is NULL, and the
 * terminal itself edits the line.  Start with edit_run(), then edit_lines() and
 * edit_wait().
 *
 *     edit_lines --> edit_read --> edited_read --> el_gets (libedit)
 *         |              |                            | for each key
 *         |              |                         keys_read --> edit_wait
 *         |              \-------> plain_read -----------------> edit_wait
 *         \-> edit_run_text --> run_words (run.c)
 *
 * While a line is typed, edit_wait() waits for three things:
 *
 *     a key     goes to the line
 *     a signal  INT gives up the line, TERM and HUP end the prompt; the line is
 *               drawn again after WINCH and CONT.  Signals come as bytes of a
 *               pipe (signals_wake_fd()), never as an interrupted call.
 *     the store prints watch events and losses immediately, above the line,
 *               which is removed and drawn again
 *
 * To end a line early keys_read() tells libedit that the input has ended;
 * e->ended says why.
 *
 * The terminal is in libedit's mode only while a line is typed: libedit sets
 * the mode at the start of each line and restores it at the end.  So a running
 * command, and the shell after ^Z, find the terminal as it was before.
 */
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#ifdef ZKE_EDIT
#include <histedit.h>
#endif

#include "complete.h"

enum { END_OF_INPUT = -1 };

typedef struct edit {
  shell *sh;
  FILE *terminal;  /* for prompts, and for messages meanwhile */
  char *text;      /* the command: lines, while a quotation mark is open */
  size_t len;      /* of it */
  int ended;       /* what ended the reading: a signal, END_OF_INPUT, or 0 */
  bool deaf;       /* the store failed; until the next command */
  bool expired;    /* the session's end was reported */
  char prompt[80]; /* as last shown; screen_hide() needs its width */
#ifdef ZKE_EDIT
  EditLine *el; /* NULL: plain lines */
  History *history;
  char *history_file; /* NULL: none */
  bool raw;           /* keys_raw() was called for this line */
  bool stopped;       /* by ^Z, after which stop_pressed() draws the line: the
                         SIGCONT that follows needs nothing more */
#endif
} edit;

/* ------------------------------------------------------------------------
 * The line on the screen
 *
 * All output during the editing of a line is printed between edit_hide() and
 * edit_show(), so that the line is never torn.  The widths of the text give the
 * cursor's position, since libedit does not report it.
 * --------------------------------------------------------------------- */

/* Does the terminal alone edit the line? */
static bool edit_is_plain(const edit *e) {
#ifdef ZKE_EDIT
  return e->el == NULL;
#else
  (void)e;
  return true;
#endif
}

/* Ignores an error: a terminal that is gone also ends the input, and so the
 * prompt. */
static void edit_flush(edit *e) { (void)fflush(e->terminal); }

#ifdef ZKE_EDIT
/* Columns of a text as libedit shows it on a screen of that width: a control
 * character as two, ^A, and a newline filling up its row.  Invalid bytes end
 * the count. */
static int screen_width(const char *text, size_t len, int columns) {
  mbstate_t state = {0};
  int width = 0;
  while (len > 0) {
    wchar_t c;
    size_t size = mbrtowc(&c, text, len, &state);
    if (size == 0 || size > len) break;
    int more = wcwidth(c);
    if (c == L'\n')
      width += columns - width % columns;
    else
      width += more < 0 ? 2 : more;
    text += size;
    len -= size;
  }
  return width;
}

/* Moves to the start of the prompt, which may be rows above the cursor, and
 * erases from there on.  libedit does not report the cursor's row: it follows
 * from the width of the text before it. */
static void screen_hide(edit *e) {
  const LineInfo *line = el_line(e->el);
  int columns = output_columns(STDOUT_FILENO);
  int width = screen_width(e->prompt, strlen(e->prompt), columns) +
              screen_width(line->buffer, (size_t)(line->cursor - line->buffer),
                           columns);
  if (width >= columns) fprintf(e->terminal, "\033[%dA", width / columns);
  fputs("\r\033[J", e->terminal);
}
#endif

/* Removes the line, so that something can be printed; edit_show() restores it.
 * A plain line cannot be removed: output begins below it. */
static void edit_hide(edit *e) {
#ifdef ZKE_EDIT
  if (e->el) {
    screen_hide(e);
    return;
  }
#endif
  fputc('\n', e->terminal);
}

/* Shows the prompt, and the line as it was. */
static void edit_show(edit *e) {
  edit_flush(e);
#ifdef ZKE_EDIT
  if (e->el) {
    el_set(e->el, EL_REFRESH);
    return;
  }
#endif
  fputs(e->prompt, e->terminal);
  edit_flush(e);
}

/* Makes the prompt: "zke app.db:/a> ", or "...> " for a command's further
 * lines.  A prompt that is too long loses the file and path.  This replaces
 * control characters: those of ASCII, and U+0080 to U+009F, which begin with
 * 0xc2 in UTF-8. */
static void edit_prompt(edit *e) {
  shell *sh = e->sh;
  char *cwd = shell_cwd(sh);
  const char *name = strrchr(sh->file, '/'), *state = "";
  if (sh->z && zke_state(sh->z) == ZKE_STATE_EXPIRED) state = " (expired)";
  if (session_is_readonly(sh)) state = " (read-only)";
  name = name && name[1] ? name + 1 : sh->file;
  if (e->len)
    snprintf(e->prompt, sizeof e->prompt, "...> ");
  else if ((size_t)snprintf(e->prompt, sizeof e->prompt, "zke %s:%s%s> ", name,
                            cwd ? cwd : "", state) >= sizeof e->prompt)
    snprintf(e->prompt, sizeof e->prompt, "zke%s> ", state);
  for (char *at = e->prompt; *at; at++) {
    bool eight = (unsigned char)at[0] == 0xc2 && (unsigned char)at[1] < 0xa0;
    if (is_control(*at) || eight) *at = '?';
  }
  free(cwd);
}

/* ------------------------------------------------------------------------
 * Events while a line is typed
 *
 * Only edit_wait() sleeps.  It returns for a key.  It handles all other events
 * itself; they may end the line by e->ended.
 * --------------------------------------------------------------------- */

/* Writes a sentence for each lock or the like that was lost since the last
 * call. */
static void tell_lost(edit *e, FILE *out) {
  json_t *lost;
  while ((lost = held_lost(e->sh)) != NULL) {
    const char *kind, *path;
    if (json_unpack(lost, "{s:{s:s,s:s}}", "event", "kind", &kind, "path",
                    &path) == 0) {
      fprintf(out, "zke: LOST: the %s ", kind);
      output_sentence(path, out);
      fputs(" was lost\n", out);
    }
    json_decref(lost);
  }
}

/* Writes that the session has ended, once for each session. */
static void tell_expired(edit *e, FILE *out) {
  if (e->expired || zke_state(e->sh->z) != ZKE_STATE_EXPIRED) return;
  e->expired = true;
  fputs(
      "zke: SESSIONEXPIRED: the session has expired; the next command begins "
      "another\n",
      out);
}

/* Runs the store's callbacks, and shows their messages above the line.  It
 * collects them first: mostly there are none, and then the line is not touched.
 * A store that fails is not asked again before the next command, or it would
 * fail at each turn of edit_wait(). */
static void edit_listen(edit *e) {
  char *text = NULL;
  size_t len = 0;
  FILE *out = open_memstream(&text, &len);
  if (!out) return;
  int rc = zke_dispatch(e->sh->z, NULL);
  e->deaf = rc != ZKE_OK;
  if (e->deaf) {
    fprintf(out, "zke: %s: ", zke_error_name(rc) + strlen("ZKE_"));
    output_sentence(zke_errmsg(), out);
    fputc('\n', out);
  }
  tell_lost(e, out);
  tell_expired(e, out);
  if (fclose(out) == 0 && len > 0) {
    edit_hide(e);
    (void)fwrite(text, 1, len, e->terminal);
    edit_prompt(e);
    edit_show(e);
  }
  free(text);
}

#ifdef ZKE_EDIT
/* libedit leaves ^Z to the terminal, which would stop us in libedit's mode.
 * This makes it a key, for stop_pressed(). */
static void keys_raw(edit *e) {
  struct termios mode;
  if (tcgetattr(STDIN_FILENO, &mode) == 0) {
    mode.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  }
  e->raw = true;
}

/* Takes the terminal back after the process was stopped: the shell has set a
 * mode that libedit does not know.  libedit sets its mode only if it believes
 * the mode is off, hence first 0, then 1. */
static void keys_continue(edit *e) {
  el_set(e->el, EL_PREP_TERM, 0);
  el_set(e->el, EL_PREP_TERM, 1);
  keys_raw(e);
  edit_show(e);
}
#endif

/* SIGCONT: another process had stopped us (kill -STOP), and the shell had the
 * terminal meanwhile.  After ^Z stop_pressed() has done this. */
static void edit_continued(edit *e) {
#ifdef ZKE_EDIT
  bool seen = e->stopped;
  e->stopped = false;
  if (e->el && !seen) keys_continue(e);
  if (e->el) return;
#endif
  edit_show(e);
}

/* The window has a new size: draws the line again from its first row. */
static void edit_resized(edit *e) {
#ifdef ZKE_EDIT
  if (!e->el) return;
  screen_hide(e);
  edit_flush(e);
  el_resize(e->el);
  el_set(e->el, EL_REFRESH);
#else
  (void)e;
#endif
}

/* Handles signals that have come, up to the first that ends the line. */
static void edit_signals(edit *e) {
  unsigned char signal;
  while (!e->ended && read(signals_wake_fd(), &signal, 1) == 1) {
    if (signal == SIGWINCH)
      edit_resized(e);
    else if (signal == SIGCONT)
      edit_continued(e);
    else if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
      e->ended = signal;
  }
}

/* What poll() should wait for: the store's descriptor, or -1; and the longest
 * time, in ms, -1 for ever.  A distant deadline is cut to a minute, since it
 * has to fit into an int. */
static int store_fd(const edit *e, int *timeout) {
  zke *z = e->sh->z;
  int fd;
  int64_t deadline;
  *timeout = -1;
  if (!z || e->deaf || e->expired || zke_fd(z, &fd) != ZKE_OK ||
      zke_next_deadline(z, &deadline) != ZKE_OK)
    return -1;
  if (deadline != ZKE_FOREVER) {
    int64_t left = deadline - zke_now(z);
    if (left > 60000) left = 60000;
    *timeout = left < 0 ? 0 : (int)left;
  }
  return fd;
}

/* Waits for a key and handles all other events: true for a key, false if a
 * signal ended the line.  The end of the input counts as a key. */
static bool edit_wait(edit *e) {
  enum { KEYS, SIGNALS, STORE, ALL };
  while (!e->ended) {
    int timeout, fd = store_fd(e, &timeout);
    struct pollfd fds[ALL] = {
        [KEYS] = {.fd = STDIN_FILENO, .events = POLLIN},
        [SIGNALS] = {.fd = signals_wake_fd(), .events = POLLIN},
        [STORE] = {.fd = fd, .events = POLLIN}};
    int ready = poll(fds, ALL, timeout);
    if (ready < 0 && errno != EINTR) return true; /* read() tells the error */
    if (ready > 0 && fds[SIGNALS].revents)
      edit_signals(e);
    else if (ready > 0 && fds[KEYS].revents)
      return true;
    else if (fd >= 0)
      edit_listen(e);
  }
  return false;
}

/* ------------------------------------------------------------------------
 * Lines
 *
 * A command may have several lines, as long as a quotation mark is open.  Both
 * ways of reading, libedit's and the terminal's, append one line to e->text.
 * --------------------------------------------------------------------- */

/* Adds to the command's text; false without memory. */
static bool edit_append(edit *e, const char *text, size_t len) {
  char *larger = realloc(e->text, e->len + len + 1);
  if (!larger) return false;
  e->text = larger;
  memcpy(e->text + e->len, text, len);
  e->len += len;
  e->text[e->len] = '\0';
  return true;
}

/* Reads a line that the terminal edited.  It comes as a whole unless ^D ended
 * it or it exceeds the terminal's buffer; then this reads on to the end of the
 * line.  False if a signal came first, or nothing was read. */
static bool plain_read(edit *e) {
  char buffer[4096];
  size_t before = e->len;
  do {
    if (!edit_wait(e)) return false;
    ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      e->ended = END_OF_INPUT;
      return e->len > before;
    }
    if (!edit_append(e, buffer, (size_t)n)) return false;
  } while (e->text[e->len - 1] != '\n');
  return true;
}

#ifdef ZKE_EDIT

/* libedit's source of characters: 1, or 0 for the end of the input.  Leaves out
 * bytes that are not UTF-8. */
static int keys_read(EditLine *el, wchar_t *c) {
  edit *e;
  mbstate_t state = {0};
  el_get(el, EL_CLIENTDATA, (void **)&e);
  if (!e->raw) keys_raw(e);
  for (;;) {
    char byte;
    edit_flush(e);
    if (!edit_wait(e)) return 0;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      e->ended = END_OF_INPUT;
      return 0;
    }
    size_t size = mbrtowc(c, &byte, 1, &state);
    if (size == 0) *c = L'\0';
    if (size <= 1) return 1;
    if (size == (size_t)-1) state = (mbstate_t){0}; /* not UTF-8: left out */
  }
}

/* One line from libedit: false at the end of input, or if a signal ended it. */
static bool edited_read(edit *e) {
  int len;
  e->raw = e->stopped = false;
  const char *line = el_gets(e->el, &len);
  if (line && len > 0) return edit_append(e, line, (size_t)len);
  if (!e->ended) e->ended = END_OF_INPUT; /* ^D */
  return false;
}

#endif

/* Adds one line to the command's text; false if the reading ended without one,
 * and e->ended says why. */
static bool edit_read(edit *e) {
  e->ended = 0;
  edit_prompt(e);
#ifdef ZKE_EDIT
  if (e->el) return edited_read(e);
#endif
  fputs(e->prompt, e->terminal);
  edit_flush(e);
  return plain_read(e);
}

/* ------------------------------------------------------------------------
 * Tab
 *
 * libedit calls this, and complete.c answers.  The typed keys stay unchanged.
 * --------------------------------------------------------------------- */

#ifdef ZKE_EDIT

enum { LIST_ROWS = 20 };

/* Lists the candidates below the line in columns, downwards as ls does; if
 * there are very many, only the first rows. */
static void list_names(edit *e, const completion *k) {
  int columns = output_columns(STDOUT_FILENO), widest = 0;
  for (int i = 0; i < k->count; i++) {
    int width = screen_width(k->names[i], strlen(k->names[i]), columns);
    if (width > widest) widest = width;
  }
  int across = columns / (widest + 2) > 0 ? columns / (widest + 2) : 1;
  int rows = (k->count + across - 1) / across;
  int shown = rows < LIST_ROWS ? rows : LIST_ROWS;
  fputs("\033[J\n", e->terminal);
  for (int row = 0; row < shown; row++) {
    for (int i = row; i < k->count; i += rows) {
      const char *name = k->names[i];
      bool last = i + rows >= k->count;
      int pad = widest + 2 - screen_width(name, strlen(name), columns);
      fprintf(e->terminal, "%s%*s", name, last ? 0 : pad, "");
    }
    fputc('\n', e->terminal);
  }
  if (shown < rows) fprintf(e->terminal, "(%d names in all)\n", k->count);
}

/* libedit calls this for Tab: inserts the common beginning of all candidates;
 * if there is none, lists them.  libedit knows only the last line of a command
 * of several, so nothing is completed there. */
static unsigned char tab_pressed(EditLine *el, int key) {
  edit *e;
  completion k = {NULL, 0, NULL};
  unsigned char result = CC_ERROR;
  (void)key;
  el_get(el, EL_CLIENTDATA, (void **)&e);
  const LineInfo *line = el_line(el);
  if (e->len == 0)
    complete_line(e->sh, line->buffer, (size_t)(line->cursor - line->buffer),
                  &k);
  if (k.count && *k.insert) {
    if (el_insertstr(el, k.insert) == 0) result = CC_REFRESH;
  } else if (k.count) {
    list_names(e, &k);
    edit_show(e);
    result = CC_NORM;
  }
  complete_free(&k);
  return result;
}

#endif

/* ------------------------------------------------------------------------
 * ^Z
 *
 * Here it is a key, not a signal of the terminal: libedit's mode must be undone
 * before the process stops, so that the shell gets its terminal back unchanged.
 * --------------------------------------------------------------------- */

#ifdef ZKE_EDIT

/* libedit calls this for ^Z: restores the terminal, then stops the whole
 * process group, as the terminal itself would.  It uses TSTP, not STOP: the
 * kernel does not stop a group that no shell could continue.  kill() returns
 * when SIGCONT continues the process; edit_wait() must see that SIGCONT before
 * the next key, or it would count for a later stop. */
static unsigned char stop_pressed(EditLine *el, int key) {
  edit *e;
  (void)key;
  el_get(el, EL_CLIENTDATA, (void **)&e);
  el_set(el, EL_PREP_TERM, 0);
  fputc('\n', e->terminal);
  edit_flush(e);
  e->stopped = true;
  kill(0, SIGTSTP);
  signals_settle();
  keys_continue(e);
  return CC_NORM;
}

#endif

/* ------------------------------------------------------------------------
 * History
 *
 * A file of lines, to which several prompts may append at the same time: each
 * line is one write(), and a file that has become long is replaced as a whole.
 * Failures are not reported, since the prompt works without a history.
 * --------------------------------------------------------------------- */

#ifdef ZKE_EDIT

enum { HISTORY_MOST = 1000 };

/* ZKE_HISTORY (empty means none), or ~/.zke_history; for free(). */
static char *history_name(void) {
  const char *name = getenv("ZKE_HISTORY"), *home = getenv("HOME");
  char *path = NULL;
  if (name) return *name ? strdup(name) : NULL;
  if (!home || !*home || asprintf(&path, "%s/.zke_history", home) < 0)
    return NULL;
  return path;
}

/* Adds a line to libedit's history; false if it repeats the last one. */
static bool history_enter(edit *e, const char *line) {
  HistEvent event;
  return history(e->history, &event, H_ENTER, line) > 0;
}

/* Leaves out the first `skip` lines of the file: the rest goes into a new file,
 * which replaces the old one as a whole, so that another prompt never reads
 * half a history. */
static void history_shorten(edit *e, FILE *in, long skip) {
  char *line = NULL, *name = NULL;
  size_t room = 0;
  if (asprintf(&name, "%s.%ld", e->history_file, (long)getpid()) < 0) return;
  int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
  if (out) {
    rewind(in);
    for (long i = 0; getline(&line, &room, in) >= 0; i++)
      if (i >= skip) fputs(line, out);
    if (fclose(out) != 0 || rename(name, e->history_file) != 0) unlink(name);
    free(line);
  }
  free(name);
}

/* Opens only a regular file: a device may have no end, and a FIFO no writer.
 * This ignores the file's mode: we create it with 0600, and a user who
 * changes that does so on purpose. */
static FILE *history_open(const char *name) {
  struct stat st;
  int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return NULL;
  FILE *in =
      fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
  if (!in) close(fd);
  return in;
}

/* Reads the lines of earlier prompts.  If there are more than twice as many as
 * are kept, it shortens the file, so that this is rare. */
static void history_load(edit *e) {
  char *line = NULL;
  size_t room = 0;
  long count = 0;
  ssize_t len;
  FILE *in = e->history_file ? history_open(e->history_file) : NULL;
  if (!in) return;
  for (; (len = getline(&line, &room, in)) > 0; count++) {
    if (line[len - 1] == '\n') line[len - 1] = '\0';
    history_enter(e, line);
  }
  if (count > 2 * HISTORY_MOST) history_shorten(e, in, count - HISTORY_MOST);
  free(line);
  (void)fclose(in); /* nothing was written */
}

/* Is the line not for the history: with a password, or after a blank? */
static bool is_secret(const char *line) {
  return *line == ' ' || strstr(line, "addauth") || strstr(line, "--auth");
}

/* Keeps a command: in memory, and in the file unless it has several lines,
 * which would come back as several commands.  One write() appends the line, so
 * that lines of several prompts do not mix.  An error is not reported, since it
 * would repeat at each command. */
static void history_add(edit *e) {
  size_t len = strcspn(e->text, "\n");
  if (e->text[strspn(e->text, " \t\n")] == '\0' || is_secret(e->text)) return;
  if (!history_enter(e, e->text)) return;
  if (!e->history_file || len + 1 < e->len) return;
  int fd = open(e->history_file,
                O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd >= 0 && write(fd, e->text, e->len) < 0) errno = 0;
  if (fd >= 0) close(fd);
}

/* ------------------------------------------------------------------------
 * libedit, from start to end
 *
 * All that is done once: the terminal's kind, the locale, keys, callbacks.
 * Without libedit, or on a terminal that can only print, e->el stays NULL,
 * which the sections above check.
 * --------------------------------------------------------------------- */

/* libedit's callback: it asks for the prompt at each redraw. */
static char *show_prompt(EditLine *el) {
  edit *e;
  el_get(el, EL_CLIENTDATA, (void **)&e);
  return e->prompt;
}

/* Binds keys as other shells do and libedit does not.  This adds the functions
 * by el_wset(): el_set() would convert the narrow strings into copies that
 * libedit never frees. */
static void keys_bind(EditLine *el) {
  static const char *const keys[][2] = {{"^I", "zke-complete"},
                                        {"^Z", "zke-stop"},
                                        {"^R", "em-inc-search-prev"},
                                        {"^W", "ed-delete-prev-word"},
                                        {"^U", "vi-kill-line-prev"},
                                        {"^L", "ed-clear-screen"},
                                        {"\\e[H", "ed-move-to-beg"},
                                        {"\\e[F", "ed-move-to-end"},
                                        {"\\e[1~", "ed-move-to-beg"},
                                        {"\\e[4~", "ed-move-to-end"},
                                        {"\\e[3~", "ed-delete-next-char"},
                                        {"\\e[1;5C", "em-next-word"},
                                        {"\\e[1;5D", "ed-prev-word"}};
  el_wset(el, EL_ADDFN, L"zke-complete", L"Complete the word", tab_pressed);
  el_wset(el, EL_ADDFN, L"zke-stop", L"Stop the process", stop_pressed);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

/* Paths are UTF-8, so the line must be too, whatever the environment says. */
static void locale_set(void) {
  if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
    setlocale(LC_CTYPE, "C.UTF-8");
}

/* Starts libedit if the terminal can do more than print; else e->el stays
 * NULL. */
static void edited_begin(edit *e) {
  const char *term = getenv("TERM");
  HistEvent event;
  if (!isatty(STDOUT_FILENO) || !term || !*term || strcmp(term, "dumb") == 0)
    return;
  locale_set();
  e->history = history_init();
  e->el = e->history ? el_init("zke", stdin, stdout, stderr) : NULL;
  if (!e->el) return;
  history(e->history, &event, H_SETSIZE, HISTORY_MOST);
  history(e->history, &event, H_SETUNIQUE, 1);
  e->history_file = history_name();
  history_load(e);
  el_set(e->el, EL_CLIENTDATA, e);
  el_set(e->el, EL_PROMPT, show_prompt);
  el_set(e->el, EL_EDITOR, "emacs");
  el_set(e->el, EL_HIST, history, e->history);
  el_set(e->el, EL_GETCFN, keys_read);
  keys_bind(e->el);
  el_source(e->el, NULL);
}

/* Releases everything that edited_begin() set up. */
static void edited_end(edit *e) {
  if (e->el) el_end(e->el);
  if (e->history) history_end(e->history);
  free(e->history_file);
}

#endif

/* ------------------------------------------------------------------------
 * Commands
 *
 * A text becomes words and a call of run.c.  This section decides what ends the
 * prompt: exit, the end of input, or a signal other than INT.
 * --------------------------------------------------------------------- */

/* Runs a command.  INT ends only the command; TERM and HUP end the prompt, too.
 * died_by is reset, since this process continues after the signal. */
static void edit_run_words(edit *e, const words *w) {
  shell *sh = e->sh;
  call c = {.sh = sh, .format = sh->format};
  e->deaf = false;
  int status = run_words(&c, w);
  int signal = atomic_load(&c.signal);
  if (status == STATUS_SIGNAL + SIGINT && !c.code)
    fputc('\n', e->terminal); /* after ^C */
  if (signal == SIGTERM || signal == SIGHUP) e->ended = signal;
  run_call_free(&c);
  sh->died_by = 0;
  if (sh->z && zke_state(sh->z) != ZKE_STATE_EXPIRED) e->expired = false;
}

/* Reports a line that could not be split.  It belongs to no call, so this makes
 * one to report it. */
static void edit_fail(edit *e, const char *wrong) {
  call c = {.sh = e->sh, .format = e->sh->format};
  fail_with(&c, STATUS_USAGE, "USAGE", "%s", wrong);
  output_error(&c);
}

/* Runs the text, unless a quotation mark is open: then it is kept, and the next
 * line is appended to it. */
static void edit_run_text(edit *e) {
  words *w;
  size_t len = e->len - (e->len > 0 && e->text[e->len - 1] == '\n');
  const char *wrong = memchr(e->text, '\0', e->len)
                          ? "there is a NUL in the line"
                          : words_split(e->text, len, &w);
  if (wrong == words_unclosed) return;
#ifdef ZKE_EDIT
  if (e->el) history_add(e);
#endif
  e->len = 0;
  if (wrong) {
    edit_fail(e, wrong);
    return;
  }
  edit_run_words(e, w);
  free(w);
}

/* Acts on what ended the reading: ^C gives up the line, ^D inside a quotation
 * mark the command; another signal, or ^D elsewhere, ends the prompt.  True:
 * continue with a new line. */
static bool edit_ended(edit *e) {
  if (e->ended == SIGINT) {
    fputs(edit_is_plain(e) ? "\n" : "^C\033[J\n", e->terminal);
    e->ended = 0;
  } else if (e->ended == END_OF_INPUT && e->len > 0) {
    fputc('\n', e->terminal);
    edit_fail(e, words_unclosed);
    e->ended = 0;
  }
  e->len = 0;
  return e->ended == 0;
}

/* Reads and runs commands until exit, the end of input, or a signal. */
static void edit_lines(edit *e) {
  while (!e->sh->leaving) {
    if (edit_read(e)) edit_run_text(e);
    if (e->ended && !edit_ended(e)) break;
  }
  if (e->ended) fputc('\n', e->terminal);
  edit_flush(e);
}

/* ------------------------------------------------------------------------
 * From the greeting to the end
 *
 * An existing file is opened before the first prompt, so that its errors are
 * reported before anything is typed.  main() closes the session.
 * --------------------------------------------------------------------- */

/* Opens an existing file, so that its faults are reported before anything is
 * typed; 0 or the exit code.
 *
 *   what  out: the greeting's words after the file's name */
static int edit_open(edit *e, const char **what) {
  static const command opening = {.name = "zke"};
  shell *sh = e->sh;
  call c = {.sh = sh, .command = &opening, .format = sh->format};
  int store = store_of(sh);
  if (store == STORE_FILE && access(sh->file, F_OK) != 0 && errno == ENOENT) {
    *what = " (new)";
    return 0;
  }
  int status = session_open(&c, NEEDS_FILE);
  if (status) output_error(&c);
  *what = "";
  if (store == STORE_MEMORY)
    *what = " (gone when you leave)";
  else if (session_is_readonly(sh))
    *what = " (read-only)";
  return status;
}

/* Opens an existing file, sets up the editor, and greets. */
static int edit_begin(edit *e) {
  const char *what;
  int status = edit_open(e, &what);
  if (status) return status;
#ifdef ZKE_EDIT
  edited_begin(e);
#endif
  if (!e->sh->quiet)
    fprintf(e->terminal, "zke %s on %s%s; help lists the commands\n",
            zke_version(), e->sh->file, what);
  return 0;
}

/* Runs the whole dialogue; returns the exit code of `exit`, or 128 + the signal
 * that ended it. */
int edit_run(shell *sh) {
  edit e = {.sh = sh, .terminal = isatty(STDOUT_FILENO) ? stdout : stderr};
  sh->person = sh->persists = true;
  int status = edit_begin(&e);
  if (status) return status;
  edit_lines(&e);
#ifdef ZKE_EDIT
  edited_end(&e);
#endif
  free(e.text);
  if (e.ended <= 0) return sh->leave_status;
  sh->died_by = e.ended;
  return STATUS_SIGNAL + e.ended;
}
