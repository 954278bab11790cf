/* top.c - top: who holds what and who waits, as it changes, on a terminal
 *
 * One thread draws.  It sleeps in poll() on the keyboard, on the session's
 * descriptor and on an eventfd, by which the signals' thread tells of a new
 * window size and of the end.  Start with top_on_terminal() and top_loop().
 *
 * A screen is made in two steps: top_look() reads the tree and makes the body,
 * a text with a line for each row; draw() shows as much of it as the window
 * has room for, with a few sequences that every terminal knows.
 *
 * The terminal is taken by terminal_take() and given back by terminal_give(),
 * and whatever ends the loop (q, a signal, a failure) goes through both.  A
 * signal is no failure here: it is noted for main() to die by after that.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include "../recipes/deadlock.h"
#include "../recipes/text.h"
#include "look.h"
#include "work.h"

enum { VIEW_LOCKS, VIEW_SESSIONS, VIEW_WAITS };
enum { REDRAW_MS = 200 }; /* not more often, whatever happens */

typedef struct top {
  call *c;

  /* what the person has chosen */
  int view;   /* VIEW_… */
  int scroll; /* rows of the body above the window; draw() bounds it */
  bool by_waiters;
  bool quit;
  int64_t interval_ms;

  /* what the last look has found, and the text of it: a line each, whose first
   * character says how it is to look */
  look l;
  zke_wait_list *waits;
  int64_t wall_ms; /* when that was */
  char *body;
  size_t body_len;

  /* when to draw: see top_next() */
  int64_t drawn_ms; /* the last time, of zke_now() */
  int64_t took_ms;  /* how long that took */
  bool dirty;       /* a key or a new size has come since then */

  /* changes of the tree, which a watch counts; without a session there is
   * none */
  bool watching;
  atomic_long changes; /* since the beginning */
  long counted;        /* those in rate, up to counted_ms */
  int64_t counted_ms;
  double rate; /* a second; below 0: not known */

  /* the terminal */
  int rows, columns;
  int wake; /* an eventfd: a signal has come */
  struct termios before;
} top;

/* ------------------------------------------------------------------------
 * Cells
 *
 * Texts of others, names and data, may have anything in them. All of them go
 * through output_visible(), so none can move the cursor.
 * --------------------------------------------------------------------- */

/* Is the byte the first of a UTF-8 character, and not a further one? */
static bool begins_character(char byte) { return (byte & 0xc0) != 0x80; }

/* Columns of a UTF-8 text, one for each character. Wide characters are not
 * known, and shift what is behind them. */
static int characters(const char *text) {
  int count = 0;
  for (; *text; text++) count += begins_character(*text);
  return count;
}

/* Prints a text in a column of that width, and two blanks.  Of one that is too
 * long the end is shown, behind a ~: paths differ there. */
static void cell(FILE *out, const char *text, int width) {
  json_t *value = json_text(text);
  char *shown = NULL;
  size_t len;
  FILE *memory = open_memstream(&shown, &len);
  if (memory) {
    output_visible(NULL, value, memory);
    (void)fclose(memory); /* without memory, shown is NULL */
  }
  json_decref(value);
  const char *at = shown ? shown : "?";
  int over = characters(at) - width;
  if (over > 0) {
    for (over++; over > 0; over--) do
        at++;
      while (!begins_character(*at));
    fputc('~', out);
    fputs(at, out);
  } else {
    fprintf(out, "%s%*s", at, -over, "");
  }
  fputs("  ", out);
  free(shown);
}

/* Prints bytes that others have written, to the end of the line. */
static void tail(FILE *out, const char *text, int len) {
  json_t *value = json_data(text, len);
  output_visible(NULL, value, out);
  json_decref(value);
}

/* "12s", "5m", "3h", "2d": how long since A time in the future is 0, as after a
 * clock was set back. */
static void ago(FILE *out, const top *t, int64_t since_ms) {
  static const struct {
    int64_t below, seconds; /* durations below, in units of so many seconds */
    char letter;
  } units[] = {{60, 1, 's'},
               {3600, 60, 'm'},
               {86400, 3600, 'h'},
               {INT64_MAX, 86400, 'd'}};
  int64_t s = (t->wall_ms - since_ms) / 1000;
  char text[32];
  int i = 0;
  if (s < 0) s = 0;
  while (s >= units[i].below) i++;
  snprintf(text, sizeof text, "%" PRId64 "%c", s / units[i].seconds,
           units[i].letter);
  fprintf(out, "%5s  ", text);
}

/* ------------------------------------------------------------------------
 * What is shown
 *
 * The body is a text whose lines begin with a letter for draw(): ' ' is a
 * plain line, 'h' a heading, 'r' one that calls for somebody.
 * --------------------------------------------------------------------- */

/* How many wait in a line. */
static int waiters(const look_line *line) {
  int count = 0;
  for (int i = 0; i < line->parties->count; i++)
    count += !line->parties->data[i].held;
  return count;
}

/* Lines with the same number keep an order, so that rows do not jump. */
static int most_waiters_first(const void *a, const void *b) {
  const look_line *x = a, *y = b;
  int by = waiters(y) - waiters(x);
  return by ? by : strcmp(x->path, y->path);
}

/* A line of the picture for each party; the path stands at the first. */
static void body_line(FILE *out, const top *t, const look_line *line) {
  for (int i = 0; i < line->parties->count; i++) {
    const zke_party *p = &line->parties->data[i];
    fputc(' ', out);
    cell(out, i ? "" : line->path, 26);
    cell(out, look_word(line, p), 8);
    ago(out, t, p->since_ms);
    fprintf(out, "%7" PRId64 "  ", p->pid);
    tail(out, p->identity, (int)strlen(p->identity));
    if (p->permits > 1) fprintf(out, " x%d", p->permits);
    if (p->len > 0) fputs(": ", out);
    if (p->len > 0) tail(out, p->data, p->len);
    fputc('\n', out);
  }
}

/* A node's children; 0 where it is missing. One that cannot be read now has
 * none: a picture is no place for a failure. */
static int children(call *c, const char *directory, const char *name) {
  zke_stat stat = {0};
  char *path = zke_recipe_path(c->z, directory, name);
  if (path) zke_exists(c->z, path, NULL, NULL, &stat);
  zke_free(path);
  return stat.numChildren;
}

/* A queue that somebody uses now. */
static void body_queue(FILE *out, const top *t, const char *path) {
  call *c = t->c;
  char *data = NULL;
  int rc = zke_get(c->z, path, NULL, NULL, &data, NULL, NULL);
  if (rc == ZKE_OK && data && strncmp(data, "zkembed queue\n", 14) == 0) {
    fputc(' ', out);
    cell(out, path, 26);
    fprintf(out, "queue     items %d, claimed %d, dead %d\n",
            children(c, path, "entries"), children(c, path, "taken"),
            children(c, path, "dead"));
  }
  zke_free(data);
}

/* The view of what is held: lines, then claims of queues. */
static void body_locks(FILE *out, top *t) {
  fprintf(out, "h%-26s  %-8s  %5s  %7s  WHO\n", "LINE", "STATE", "FOR", "PID");
  if (t->by_waiters && t->l.count)
    qsort(t->l.lines, (size_t)t->l.count, sizeof *t->l.lines,
          most_waiters_first);
  for (int i = 0; i < t->l.count; i++) body_line(out, t, &t->l.lines[i]);
  for (int i = 0; i < t->l.queues.count; i++)
    body_queue(out, t, t->l.queues.data[i]);
}

/* The view of sessions; dead ones are red. */
static void body_sessions(FILE *out, const top *t) {
  fprintf(out, "h%-14s  %7s  %5s  %6s  %6s  %6s  WHO\n", "SESSION", "PID",
          "FOR", "NODES", "WATCH", "EVENT");
  for (int i = 0; i < t->l.sessions->count; i++) {
    const zke_session_info *s = &t->l.sessions->data[i];
    char id[32];
    snprintf(id, sizeof id, "0x%" PRIx64, (uint64_t)s->id);
    fputc(s->alive ? ' ' : 'r', out);
    cell(out, id, 14);
    fprintf(out, "%7" PRId64 "  ", s->pid);
    ago(out, t, s->started_ms);
    fprintf(out, "%6d  %6d  %6d  ", s->ephemerals, s->watches, s->events);
    tail(out, s->identity, (int)strlen(s->identity));
    if (!s->alive) fputs(" (dead)", out);
    if (s->id == zke_session_id(t->c->z)) fputs(" (this one)", out);
    fputc('\n', out);
  }
}

/* A cell that names a session's process. */
static void body_who(FILE *out, const top *t, int64_t session) {
  char text[160] = "somebody";
  const zke_session_info *who = look_session(t->l.sessions, session);
  if (who)
    snprintf(text, sizeof text, "%.120s (%" PRId64 ")", who->identity,
             who->pid);
  cell(out, text, 20);
}

/* The view of who waits for whom; circles are red. */
static void body_waits(FILE *out, const top *t) {
  fprintf(out, "h%5s  %-20s  %-20s  LINE\n", "FOR", "WHO (PID)", "WAITS FOR");
  for (int i = t->waits->count - 1; i >= 0; i--) {
    const zke_wait_info *w = &t->waits->data[i];
    for (int k = 0; k < w->keeper_count; k++) {
      fputc(w->circle ? 'r' : ' ', out);
      ago(out, t, w->since_ms);
      body_who(out, t, w->session);
      body_who(out, t, w->keepers[k].session);
      tail(out, w->path, (int)(strrchr(w->path, '/') - w->path));
      if (w->circle) fprintf(out, " (deadlock %d)", w->circle);
      fputc('\n', out);
    }
  }
}

/* The two lines on top of each view: the time and the file, then the counts. */
static void body_head(FILE *out, const top *t) {
  int dead = 0, holding = 0, waiting = 0, circles = 0;
  char when[ZKE_RECIPE_WHEN];
  for (int i = 0; i < t->l.sessions->count; i++)
    dead += !t->l.sessions->data[i].alive;
  for (int i = 0; i < t->l.count; i++) {
    waiting += waiters(&t->l.lines[i]);
    holding += t->l.lines[i].parties->count - waiters(&t->l.lines[i]);
  }
  for (int i = 0; i < t->waits->count; i++)
    if (t->waits->data[i].circle > circles) circles = t->waits->data[i].circle;
  zke_recipe_when(t->wall_ms, when);
  fprintf(out, " %s  ", when);
  tail(out, t->c->sh->file, (int)strlen(t->c->sh->file));
  int sessions = t->l.sessions->count;
  fprintf(out, "\n %d session%s", sessions, sessions == 1 ? "" : "s");
  if (dead) fprintf(out, " (%d dead)", dead);
  fprintf(out, ", %d hold, %d wait", holding, waiting);
  if (t->rate >= 0) fprintf(out, ", %.1f changes/s", t->rate);
  fputc('\n', out);
  if (circles)
    fprintf(out, "r%d deadlock%s: w shows who waits for whom\n", circles,
            circles > 1 ? "s" : "");
  else
    fputs(" \n", out);
}

enum { HEAD_LINES = 4 }; /* with the table's heading: they stay in place */

/* ------------------------------------------------------------------------
 * A picture
 *
 * Each picture is read anew. Nothing of the last one is kept.
 * --------------------------------------------------------------------- */

/* Counts the changes a second since the last time.  Below half a second the
 * rate says nothing, and stays as it was. */
static void top_count(top *t) {
  int64_t now = zke_now(t->c->z), since = now - t->counted_ms;
  long changes = atomic_load(&t->changes);
  if (!t->watching || since < 500) return;
  t->rate = (double)(changes - t->counted) * 1000.0 / (double)since;
  t->counted = changes;
  t->counted_ms = now;
}

/* Frees what the last look has found. */
static void top_forget(top *t) {
  look_free(&t->l);
  zke_free(t->waits);
  free(t->body);
  t->l = (look){0};
  t->waits = NULL;
  t->body = NULL;
}

/* Look, and make the text of it. */
static int top_look(top *t) {
  call *c = t->c;
  top_forget(t);
  int status = look_take(c, &t->l);
  int rc = status ? ZKE_OK : zke_line_waits(c->z, &t->waits);
  if (rc != ZKE_OK) status = fail_rc(c, rc);
  if (status) return status;
  t->wall_ms = wall_now();
  top_count(t);
  FILE *out = open_memstream(&t->body, &t->body_len);
  if (!out) return no_memory(c);
  body_head(out, t);
  if (t->view == VIEW_LOCKS) body_locks(out, t);
  if (t->view == VIEW_SESSIONS) body_sessions(out, t);
  if (t->view == VIEW_WAITS) body_waits(out, t);
  return fclose(out) == 0 ? 0 : no_memory(c);
}

/* Draws the line of the body that begins at `at`, at most so many characters;
 * returns the next line.  A heading is inverse over all columns, an alarm
 * red. */
static const char *draw_line(FILE *out, const char *at, int columns) {
  const char *end = strchr(at, '\n'), *text = at + 1;
  if (*at == 'h') fputs("\033[7m", out);
  if (*at == 'r') fputs("\033[1;31m", out);
  for (; text < end && columns > 0; columns--) {
    do fputc(*text++, out);
    while (text < end && !begins_character(*text));
  }
  if (*at == 'h') fprintf(out, "%*s", columns, "");
  fputs(*at == ' ' ? "\033[K" : "\033[0m\033[K", out);
  return end + 1;
}

/* How many rows the body has; each ends with its newline. */
static int body_lines(const top *t) {
  int count = 0;
  for (const char *at = t->body; *at; at = strchr(at, '\n') + 1) count++;
  return count;
}

/* What has room: the head, then from where one has scrolled to, then the
 * keys. */
static void draw(top *t, FILE *out) {
  const char *at = t->body;
  int room = t->rows - HEAD_LINES - 1, below = body_lines(t) - HEAD_LINES;
  if (t->scroll > below - room) t->scroll = below - room;
  if (t->scroll < 0) t->scroll = 0;
  fputs("\033[H", out);
  for (int i = 0; *at && i < HEAD_LINES + t->scroll; i++) {
    const char *next = strchr(at, '\n') + 1;
    if (i < HEAD_LINES && i < t->rows - 1) {
      draw_line(out, at, t->columns);
      fputs("\r\n", out);
    }
    at = next;
  }
  for (; *at && room > 0; room--) {
    at = draw_line(out, at, t->columns);
    fputs("\r\n", out);
  }
  fprintf(out, "\033[J\033[%d;1H%.*s", t->rows, t->columns,
          t->by_waiters ? "l locks  s sessions  w waits  o by path  arrows "
                          "scroll  q quit"
                        : "l locks  s sessions  w waits  o by waiters  arrows "
                          "scroll  q quit");
}

/* Writes all of it to the terminal; 0 or the exit code. */
static int put(call *c, const char *text, size_t len) {
  while (len > 0) {
    ssize_t n = write(STDOUT_FILENO, text, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(c, STATUS_IO, "the terminal");
    text += n;
    len -= (size_t)n;
  }
  return 0;
}

/* Write a text to the terminal; 0 or the exit code. */
static int put_text(call *c, const char *text) {
  return put(c, text, strlen(text));
}

/* Looks and draws.  The whole picture goes out in one write, so that it does
 * not flicker.  Notes how long it took: what is slow is drawn less often. */
static int top_draw(top *t) {
  char *text = NULL;
  size_t len;
  int64_t began = zke_now(t->c->z);
  int status = top_look(t);
  if (status) return status;
  t->columns = output_columns(STDOUT_FILENO, &t->rows);
  FILE *out = open_memstream(&text, &len);
  if (!out) return no_memory(t->c);
  draw(t, out);
  status = fclose(out) == 0 ? put(t->c, text, len) : no_memory(t->c);
  free(text);
  t->drawn_ms = zke_now(t->c->z);
  t->took_ms = t->drawn_ms - began;
  t->dirty = false;
  return status;
}

/* ------------------------------------------------------------------------
 * The terminal
 *
 * Between terminal_take() and terminal_give() nothing else may print: a failure
 * is noted, and told when the terminal is as it was.
 * --------------------------------------------------------------------- */

/* Takes the terminal: keys come one by one and are not echoed; the other screen
 * is shown, without a cursor.  ^C still sends a signal.  ^Z does not: the shell
 * would get a terminal in this mode.  Restores the mode on failure. */
static int terminal_take(top *t) {
  struct termios raw;
  if (tcgetattr(STDIN_FILENO, &t->before) != 0)
    return fail_errno(t->c, STATUS_SYSTEM, "the terminal");
  raw = t->before;
  raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  raw.c_cc[VSUSP] = _POSIX_VDISABLE;
  if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0)
    return fail_errno(t->c, STATUS_SYSTEM, "the terminal");
  int status = put_text(t->c, "\033[?1049h\033[?25l\033[2J");
  if (status) tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
  return status;
}

/* Gives it back as it was.  Keys that were not read are thrown away: they were
 * not meant for the shell behind us. */
static int terminal_give(top *t) {
  int status = put_text(t->c, "\033[0m\033[?25h\033[?1049l");
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &t->before);
  return status;
}

/* Are input and output a terminal that can move the cursor? */
static bool is_terminal(void) {
  const char *kind = getenv("TERM");
  return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind && *kind &&
         strcmp(kind, "dumb") != 0;
}

/* ------------------------------------------------------------------------
 * Keys, signals, changes
 *
 * Beside the time, three things end a sleep: a key, the eventfd, and the
 * session's descriptor. Each only marks what has changed; top_loop() decides
 * when to draw.
 * --------------------------------------------------------------------- */

/* Another view begins at its top. */
static void top_view(top *t, int view) {
  t->view = view;
  t->scroll = 0;
}

/* What a key does.  Arrows and pages come as the last character of their
 * sequences: A, B, 5 and 6. */
static void top_key(top *t, char key) {
  int page = t->rows > HEAD_LINES + 2 ? t->rows - HEAD_LINES - 2 : 1;
  t->dirty = true;
  switch (key) {
    case 'q':
      t->quit = true;
      break;
    case 'l':
      top_view(t, VIEW_LOCKS);
      break;
    case 's':
      top_view(t, VIEW_SESSIONS);
      break;
    case 'w':
      top_view(t, VIEW_WAITS);
      break;
    case 'o':
      t->by_waiters = !t->by_waiters;
      break;
    case 'j':
    case 'B':
      t->scroll++;
      break;
    case 'k':
    case 'A':
      t->scroll--;
      break;
    case ' ':
    case '6':
      t->scroll += page;
      break;
    case 'b':
    case '5':
      t->scroll -= page;
      break;
  }
}

/* An arrow is ESC [ A, a page ESC [ 5 ~: what follows the bracket is the key.
 * Capitals and digits by themselves are none. */
static int top_keys(top *t) {
  char keys[64];
  ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (n < 0) return fail_errno(t->c, STATUS_IO, "the terminal");
  if (n == 0) t->quit = true; /* hung up */
  for (ssize_t i = 0; i < n; i++) {
    if (keys[i] == '\033' && i + 2 < n &&
        (keys[i + 1] == '[' || keys[i + 1] == 'O')) {
      i += 2;
      top_key(t, keys[i]);
    } else if (!(keys[i] >= 'A' && keys[i] <= 'Z') &&
               !(keys[i] >= '0' && keys[i] <= '9')) {
      top_key(t, keys[i]);
    }
  }
  return 0;
}

/* A hook, on the thread of signals: a new size wakes the loop, no more. */
static bool top_signal(void *context, const siginfo_t *info) {
  if (info->si_signo != SIGWINCH) return false;
  top *t = context;
  cancel_by_fd(&t->wake);
  return true;
}

/* The watcher of all changes: it counts, top_sleep() looks. */
static void top_changed(zke *z, int type, int state, const char *path,
                        void *context) {
  top *t = context;
  (void)z, (void)type, (void)state, (void)path;
  atomic_fetch_add(&t->changes, 1);
}

/* When to draw next.  At once after a key; after a change when a pause is over;
 * else at the interval.  The pause is REDRAW_MS, or four times as long as the
 * last drawing took, if that is more: so a large tree costs at most a fifth of
 * a processor. */
static int64_t top_next(const top *t) {
  int64_t pause = 4 * t->took_ms > REDRAW_MS ? 4 * t->took_ms : REDRAW_MS;
  if (t->dirty) return t->drawn_ms;
  if (atomic_load(&t->changes) != t->counted && pause < t->interval_ms)
    return t->drawn_ms + pause;
  return t->drawn_ms + (t->interval_ms > pause ? t->interval_ms : pause);
}

/* Sleeps until the next picture is due, a key is pressed, the window changes,
 * or the store has something to dispatch. */
static int top_sleep(top *t) {
  uint64_t woken;
  int64_t until = top_next(t), due;
  struct pollfd fds[3] = {{.fd = STDIN_FILENO, .events = POLLIN},
                          {.fd = t->wake, .events = POLLIN},
                          {.events = POLLIN}};
  int rc = zke_fd(t->c->z, &fds[2].fd);
  if (rc == ZKE_OK) rc = zke_next_deadline(t->c->z, &due);
  if (rc != ZKE_OK) return fail_rc(t->c, rc);
  int64_t ms = (due < until ? due : until) - zke_now(t->c->z);
  if (ms > 0 && poll(fds, 3, ms > INT_MAX ? INT_MAX : (int)ms) < 0 &&
      errno != EINTR)
    return fail_errno(t->c, STATUS_SYSTEM, "poll");
  if (fds[1].revents & POLLIN) {
    t->dirty = true; /* another size */
    while (read(t->wake, &woken, sizeof woken) > 0) continue;
  }
  rc = zke_dispatch(t->c->z, NULL);
  if (rc != ZKE_OK) return fail_rc(t->c, rc);
  return fds[0].revents ? top_keys(t) : 0;
}

/* Draws and sleeps until q, a signal or a failure. */
static int top_loop(top *t) {
  int status = top_draw(t);
  while (!status && !t->quit && !cancelled(t->c)) {
    status = top_sleep(t);
    if (status || cancelled(t->c)) break;
    if (zke_now(t->c->z) >= top_next(t)) status = top_draw(t);
  }
  return status;
}

/* ------------------------------------------------------------------------
 * top
 *
 * The ways in and out: on a terminal, or once as text.
 * --------------------------------------------------------------------- */

/* A signal is one of the ways to leave it, and no error to be told, whatever
 * it interrupted. */
static int top_ended(call *c) {
  c->status = STATUS_OK;
  c->code = NULL;
  pthread_mutex_lock(&c->sh->m);
  int signal = c->sh->died_by = atomic_load(&c->signal);
  pthread_mutex_unlock(&c->sh->m);
  return STATUS_SIGNAL + signal;
}

/* Takes the terminal, runs, gives it back in any case. */
static int top_on_terminal(top *t) {
  call *c = t->c;
  int status = terminal_take(t);
  if (status) return status;
  signals_hook(top_signal, t);
  cancel_by(c, cancel_by_fd, &t->wake);
  status = top_loop(t);
  cancel_by(c, NULL, NULL);
  signals_hook(NULL, NULL);
  int given = terminal_give(t);
  if (!status) status = given;
  return cancelled(c) ? top_ended(c) : status;
}

/* The eventfd, and the watch that counts changes.  A file opened for reading
 * has not. */
static int top_live(top *t) {
  call *c = t->c;
  t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (t->wake < 0) return fail_errno(c, STATUS_SYSTEM, "eventfd");
  if (zke_session_id(c->z))
    t->watching = zke_add_watch(c->z, "/", ZKE_WATCH_PERSISTENT_RECURSIVE,
                                top_changed, t) == ZKE_OK;
  t->counted_ms = zke_now(c->z);
  int status = top_on_terminal(t);
  if (t->watching) zke_forget(c->z, top_changed, t);
  close(t->wake);
  return status;
}

/* One picture, as lines of text. */
static int top_once(top *t) {
  int status = top_look(t);
  for (char *at = t->body; !status && *at;) {
    char *end = strchr(at, '\n');
    status = emit(t->c, json_pack("{s:o*}", "line",
                                  json_data(at + 1, (int)(end - at - 1))));
    at = end + 1;
  }
  return status;
}

/* top: on a terminal, or once as text. */
static int top_run(call *c) {
  top t = {.c = c, .rate = -1};
  int status = option_duration(c, 'i', 1000, &t.interval_ms);
  if (status) return status;
  if (t.interval_ms < 100)
    return fail_usage(c, "--interval is 0.1 seconds at least");
  if (c->format != FORMAT_HUMAN)
    return fail_usage(c,
                      "top is for people; locks, sessions and waits print "
                      "the same for programs");
  if (!has(c, '1') && !is_terminal())
    return fail_usage(c,
                      "top draws on a terminal, and this is none; --once "
                      "prints it once, so do locks, sessions and waits");
  status = has(c, '1') ? top_once(&t) : top_live(&t);
  top_forget(&t);
  return status;
}

static const option top_options[] = {
    {'i', "interval", "DURATION"}, {'1', "once", NULL}, {'\0', NULL, NULL}};

const command top_commands[] = {
    {"top", "[--interval DURATION] [--once]",
     "show who holds what and who waits, as it changes", top_options, 0, 0,
     NEEDS_FILE | FILE_ONLY | PREFERS_SESSION | NOT_IN_COPROCESS, STYLE_VALUE,
     top_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
