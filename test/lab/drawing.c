/* drawing.c - see drawing.h */
#include "drawing.h"

#include <stdlib.h>
#include <string.h>

/* Is the line a fault, or another event of the world? */
static bool is_event(const drawing_line *line) {
  return !strchr("cn()[]bef.-", line->kind);
}

/* Does the line end a lane? */
static bool is_end(const drawing_line *line) {
  return line->kind == 'A' || line->kind == 'e' || line->kind == 'X';
}

/* Is the line about this lane? */
static bool is_of(const drawing_line *line, int lane) {
  return line->lane == lane || line->kind == 'X';
}

/* A lane's state after some lines. */
typedef struct lane_state {
  bool alive;
  int sections, calls; /* how many it is in */
} lane_state;

/* A lane exists from the first line on, unless a line begins it. */
static lane_state lane_first(const drawing *d, int lane) {
  for (int i = 0; i < d->count; i++)
    if (d->lines[i].lane == lane && d->lines[i].kind == 'b')
      return (lane_state){.alive = false};
  return (lane_state){.alive = true};
}

/* How a line changes the state of a lane. */
static void lane_follow(lane_state *s, const drawing_line *line, int lane) {
  if (!is_of(line, lane)) return;
  if (line->kind == 'b') *s = (lane_state){.alive = true};
  if (line->kind == '[') s->sections++;
  if (line->kind == ']' && s->sections) s->sections--;
  if (line->kind == '(') s->calls++;
  if (line->kind == ')' && s->calls) s->calls--;
  if (line->kind == 'p') s->sections = s->calls = 0;
  if (is_end(line)) *s = (lane_state){.alive = false};
}

/* The text of a line, after a mark for its kind. */
static void cell_of(const drawing *d, const drawing_line *line, bool marked,
                    char out[DRAWING_TEXT + 16]) {
  char text[DRAWING_TEXT];
  const char *mark = "";
  snprintf(text, sizeof text, "%s", line->text);
  if (d->shorten) d->shorten(d->context, line, text);
  if (line->kind == '[') mark = "enters ";
  if (line->kind == ']') mark = "leaves ";
  if (marked && is_event(line)) mark = "* ";
  snprintf(out, DRAWING_TEXT + 15, "%s%s", mark, text);
}

/* ---- text ---- */

/* A line's step and time. */
static int text_gutter(const drawing *d, const drawing_line *line, char *out,
                       size_t size) {
  if (!d->timed) return snprintf(out, size, "%-5d", line->step);
  return snprintf(out, size, "%7d %10.6f  ", line->step,
                  (double)line->now / 1e9);
}

/* Characters from one lane to the next. */
static int lane_width(const drawing *d) {
  char gutter[64];
  int left = text_gutter(d, &d->lines[0], gutter, sizeof gutter);
  return d->lanes ? (d->width - left) / d->lanes : d->width;
}

/* Rows are made in memory: text that is too long for its lane continues in the
 * next rows. */
enum { ROW = 2048 };

/* Put a text into the row. */
static void row_put(char row[ROW], int at, const char *text) {
  size_t length = strlen(text);
  if (at + (int)length < ROW) memcpy(row + at, text, length);
}

/* Print the row without trailing blanks. */
static void row_print(const char row[ROW], FILE *out) {
  int end = ROW;
  while (end > 0 && row[end - 1] == ' ') end--;
  fprintf(out, "%.*s\n", end, row);
}

/* One line of the story. */
static void text_line(const drawing *d, const drawing_line *line,
                      const lane_state *states, FILE *out) {
  char row[ROW], cell[DRAWING_TEXT + 16], gutter[64];
  int left = text_gutter(d, line, gutter, sizeof gutter);
  int lane = line->lane < 0 ? 0 : line->lane;
  memset(row, ' ', ROW);
  if (line->kind != '-') row_put(row, 0, gutter);
  for (int i = 0; i < d->lanes && !strchr("f-", line->kind); i++) {
    const lane_state *s = &states[i];
    if (s->alive || (is_end(line) && is_of(line, i)))
      row_put(row, left + i * lane_width(d),
              s->sections || s->calls ? "#" : "|");
  }
  cell_of(d, line, true, cell);
  if (line->kind == 'f') {
    row_put(row, left, "! ");
    row_put(row, left + 2, cell);
  } else if (line->kind == '-') {
    row_put(row, left, "- - ");
    row_put(row, left + 4, strcat(cell, " - -"));
  } else {
    strcat(cell, " ");
    row_put(row, left + lane * lane_width(d) + 2, cell);
  }
  row_print(row, out);
}

/* The names, then one or more rows for each line. */
void drawing_text(const drawing *d, FILE *out) {
  lane_state states[DRAWING_LANES];
  char row[ROW], gutter[64];
  if (!d->count) return;
  int left = text_gutter(d, &d->lines[0], gutter, sizeof gutter);
  memset(row, ' ', ROW);
  for (int i = 0; i < d->lanes; i++) {
    states[i] = lane_first(d, i);
    row_put(row, left + i * lane_width(d), d->name[i]);
  }
  row_print(row, out);
  for (int i = 0; i < d->count; i++) {
    for (int k = 0; k < d->lanes; k++) lane_follow(&states[k], &d->lines[i], k);
    text_line(d, &d->lines[i], states, out);
  }
}

/* ---- SVG ---- */

enum { LINE = 20, TOP = 56 };

/* Text escaped for XML. */
static void svg_text(FILE *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      fputs("&lt;", out);
    else if (*text == '&')
      fputs("&amp;", out);
    else if ((unsigned char)*text >= ' ')
      fputc(*text, out);
  }
}

/* A text at a position, in the style of a class. */
static void svg_label(FILE *out, const char *class_, int x, int y,
                      const char *text) {
  fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class_, x, y);
  svg_text(out, text);
  fputs("</text>\n", out);
}

/* Pixels before the first lane. */
static int svg_left(const drawing *d) { return d->timed ? 150 : 40; }

/* The x of a lane.  Lines without a lane are drawn in the first. */
static int lane_x(const drawing *d, int lane) {
  return svg_left(d) + d->lane * (lane < 0 ? 0 : lane);
}

/* The y of a line. */
static int line_y(int line) { return TOP + LINE * (line + 1); }

/* A piece of a lane, from one line to another. */
static void svg_piece(const drawing *d, const char *class_, int lane, int width,
                      int from, int to, FILE *out) {
  fprintf(out,
          "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
          class_, lane_x(d, lane) - width / 2, from, width, to - from);
}

/* The parts of a lane: while it lives, is in a call, and in a section. */
static void svg_lane(const drawing *d, int lane, FILE *out) {
  static const struct {
    const char *class_;
    int width;
  } kinds[] = {{"lane", 2}, {"call", 6}, {"held", 10}};
  enum { KINDS = 3 };
  lane_state s = lane_first(d, lane);
  int since[KINDS] = {s.alive ? TOP : -1, -1, -1};
  for (int i = 0; i <= d->count; i++) {
    bool last = i == d->count;
    if (!last) lane_follow(&s, &d->lines[i], lane);
    bool is[KINDS] = {s.alive, s.calls > 0, s.sections > 0};
    int y = line_y(last ? i - 1 : i);
    for (int k = 0; k < KINDS; k++) {
      bool ends = since[k] >= 0 && (last || !is[k]);
      if (ends)
        svg_piece(d, kinds[k].class_, lane, kinds[k].width, since[k], y, out);
      if (ends) since[k] = -1;
      if (!last && is[k] && since[k] < 0) since[k] = y;
    }
  }
}

/* The text of a line, drawn by its kind. */
static void svg_line(const drawing *d, int number, FILE *out) {
  const drawing_line *line = &d->lines[number];
  char cell[DRAWING_TEXT + 16], gutter[64];
  int x = lane_x(d, line->lane), y = line_y(number);
  cell_of(d, line, false, cell);
  text_gutter(d, line, gutter, sizeof gutter);
  if (d->timed) svg_label(out, "step", svg_left(d) - 20, y + 4, gutter);
  if (line->kind == 'f') {
    svg_label(out, "wrong", svg_left(d) + 10, y + 4, line->text);
  } else if (line->kind == '.') {
    svg_label(out, "less", svg_left(d) + 8, y + 4, cell);
  } else if (line->lane < 0) {
    bool bound = line->kind == '-';
    fprintf(out,
            "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"100%%\" "
            "y2=\"%d\"/>\n",
            bound ? "bound" : "time", svg_left(d) - 10, y, y);
    svg_label(out, bound ? "wrong" : "event", svg_left(d) + 8, y + 4, cell);
  } else if (is_event(line)) {
    fprintf(out, "<path class=\"fault\" d=\"M%d %dl8 8m0 -8l-8 8\"/>\n", x - 4,
            y - 4);
    svg_label(out, "event", x + 10, y + 4, cell);
  } else {
    fprintf(out, "<circle cx=\"%d\" cy=\"%d\" r=\"3\"/>\n", x, y);
    svg_label(out, "said", x + 10, y + 4, cell);
  }
}

/* All lanes, with all lines on top of them. */
void drawing_svg(const drawing *d, FILE *out) {
  int width = svg_left(d) + d->lane * d->lanes + (d->timed ? d->lane : 0);
  int height = line_y(d->count) + 10;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
          "height=\"%d\" viewBox=\"0 0 %d %d\">\n",
          width, height, width, height);
  fputs(
      "<style>text{font:13px sans-serif;fill:#222;stroke:#fff;stroke-width:4;"
      "paint-order:stroke}"
      ".name{font-weight:bold;font-size:15px}"
      ".event{fill:#b00020}.wrong{fill:#b00020;font-weight:bold}"
      ".step{fill:#888;text-anchor:end}.less{fill:#888}.lane{fill:#999}circle{"
      "fill:#456}"
      ".call{fill:#9bb7d4}.held{fill:#7fb069;fill-opacity:.75}"
      ".fault{stroke:#b00020;stroke-width:2.5;fill:none}"
      ".time{stroke:#999;stroke-dasharray:4 4}"
      ".bound{stroke:#b00020;stroke-dasharray:8 4}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      out);
  for (int i = 0; i < d->lanes; i++) {
    svg_label(out, "name", lane_x(d, i) - 5, TOP - 16, d->name[i]);
    svg_lane(d, i, out);
  }
  for (int i = 0; i < d->count; i++) {
    svg_line(d, i, out);
    if (d->lines[i].kind == 'f') /* the result is also at the top */
      svg_label(out, "wrong", svg_left(d) - 5, TOP - 38, d->lines[i].text);
  }
  fputs("</svg>\n", out);
}
