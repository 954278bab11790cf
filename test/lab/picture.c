/* picture.c - a schedule, drawn: a lane for each process, time downwards
 *
 * Both drawings are made from the same lines, which world.c has written while
 * it replayed: what each process called and what came of it, who is in which
 * section, who died, and what was wrong in the end. */
#include "picture.h"

#include <string.h>

/* Is the line a fault, or another thing that the search has done? */
static bool is_event(const lab_line *line) {
  return !strchr("cn[]ef", line->kind);
}

/* ---- text ---- */

enum { WIDTH = 79, GUTTER = 5 };

static int lane_width(const zke_lab *lab) {
  return (WIDTH - GUTTER) / lab->count;
}

/* A call without what every call's name begins with.  A server dispatches
 * before it answers. */
static const char *short_text(const zke_lab *lab, const lab_line *line) {
  const char *text = line->text;
  if (line->lane >= 0 && lab->outside[line->lane].is_used &&
      strcmp(text, "zke_dispatch_to ") == 0)
    return "is answered";
  return strncmp(text, "zke_", 4) == 0 ? text + 4 : text;
}

static const char *mark_of(const lab_line *line) {
  if (line->kind == '[') return "enters ";
  if (line->kind == ']') return "leaves ";
  return is_event(line) ? "* " : "";
}

/* A lane is not wide enough for GUIDs: their first digits are. */
static void shorten_guids(char *text) {
  enum { SHOWN = 4 };
  for (; *text; text++) {
    size_t length = outside_guid(text);
    if (!length) continue;
    text += SHOWN;
    *text++ = '~';
    memmove(text, text + length - SHOWN - 1,
            strlen(text + length - SHOWN - 1) + 1);
    text--;
  }
}

/* Lanes before and behind the one that has something to say. */
static void text_lanes(const zke_lab *lab, const unsigned *inside, int from,
                       int to, FILE *out) {
  for (int i = from; i < to; i++)
    fprintf(out, "%-*s", lane_width(lab), inside[i] ? "#" : "|");
}

static void text_line(const zke_lab *lab, const lab_line *line,
                      const unsigned *inside, FILE *out) {
  int width = lane_width(lab), lane = line->lane < 0 ? 0 : line->lane;
  char cell[LAB_LINE + 16];
  snprintf(cell, sizeof cell, "%s%s", mark_of(line), short_text(lab, line));
  if (lab->has_outside) shorten_guids(cell);
  if ((int)strlen(cell) > width - 3 && line->lane >= 0 && lane + 1 < lab->count)
    strcpy(cell + width - 5, "..");
  fprintf(out, "%-*d", GUTTER, line->step);
  text_lanes(lab, inside, 0, lane, out);
  fprintf(out, "%c %-*s", inside[lane] ? '#' : '|', width - 2, cell);
  text_lanes(lab, inside, lane + 1, lab->count, out);
  fputc('\n', out);
}

/* Who is in how many sections after this line. */
static void lanes_follow(const lab_line *line, unsigned *inside) {
  if (line->lane < 0) return;
  if (line->kind == '[') inside[line->lane]++;
  if (line->kind == ']' && inside[line->lane]) inside[line->lane]--;
  if (line->kind == 'A' || line->kind == 'p' || line->kind == 'e')
    inside[line->lane] = 0;
}

void picture_text(const zke_lab *lab, FILE *out) {
  unsigned inside[ZKE_LAB_MOST] = {0};
  int width = lane_width(lab);
  fprintf(out, "%-*s", GUTTER, "");
  for (int i = 0; i < lab->count; i++)
    fprintf(out, "%-*.*s", width, width - 1, lab->processes[i].name);
  fputc('\n', out);
  for (int i = 0; i < lab->line_count; i++) {
    const lab_line *line = &lab->lines[i];
    lanes_follow(line, inside);
    if (line->kind == 'f')
      fprintf(out, "%-*d! %s\n", GUTTER, line->step, line->text);
    else
      text_line(lab, line, inside, out);
  }
}

/* ---- SVG ---- */

enum { LANE = 300, LINE = 20, TOP = 56, LEFT = 40 };

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

static void svg_label(FILE *out, const char *class_, int x, int y,
                      const char *text) {
  fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class_, x, y);
  svg_text(out, text);
  fputs("</text>\n", out);
}

static int lane_x(int lane) { return LEFT + LANE * (lane < 0 ? 0 : lane); }
static int line_y(int line) { return TOP + LINE * (line + 1); }

/* Where a lane ends: at the death of its process, or at its return. */
static int lane_end(const zke_lab *lab, int lane) {
  for (int i = 0; i < lab->line_count; i++) {
    const lab_line *line = &lab->lines[i];
    if (line->lane == lane && (line->kind == 'A' || line->kind == 'e'))
      return line_y(i);
  }
  return line_y(lab->line_count - 1);
}

/* The bar that shows a lane in a section, from line `from` on. */
static void svg_section(const zke_lab *lab, int lane, int from, FILE *out) {
  unsigned inside[ZKE_LAB_MOST] = {0};
  int to = from;
  for (; to < lab->line_count; to++) {
    if (lab->lines[to].lane == lane) lanes_follow(&lab->lines[to], inside);
    if (to > from && !inside[lane]) break;
  }
  if (to == lab->line_count) to--;
  fprintf(out,
          "<rect class=\"held\" x=\"%d\" y=\"%d\" width=\"10\" "
          "height=\"%d\"/>\n",
          lane_x(lane) - 5, line_y(from), line_y(to) - line_y(from));
}

static void svg_lanes(const zke_lab *lab, FILE *out) {
  for (int i = 0; i < lab->count; i++) {
    svg_label(out, "name", lane_x(i) - 5, TOP - 16, lab->processes[i].name);
    fprintf(out,
            "<line class=\"lane\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n",
            lane_x(i), TOP, lane_x(i), lane_end(lab, i));
  }
  for (int i = 0; i < lab->line_count; i++) {
    if (lab->lines[i].kind == '[') svg_section(lab, lab->lines[i].lane, i, out);
  }
}

static void svg_line(const zke_lab *lab, const lab_line *line, int number,
                     FILE *out) {
  char cell[LAB_LINE + 16];
  int x = lane_x(line->lane), y = line_y(number);
  snprintf(cell, sizeof cell, "%s%s", is_event(line) ? "" : mark_of(line),
           short_text(lab, line));
  if (line->kind == 'f') {
    svg_label(out, "wrong", LEFT - 5, y + 4, line->text);
  } else if (line->lane < 0) {
    fprintf(out,
            "<line class=\"time\" x1=\"0\" y1=\"%d\" x2=\"100%%\" "
            "y2=\"%d\"/>\n",
            y, y);
    svg_label(out, "event", LEFT + 8, y - 3, cell);
  } else if (is_event(line)) {
    fprintf(out, "<path class=\"fault\" d=\"M%d %dl8 8m0 -8l-8 8\"/>\n", x - 4,
            y - 4);
    svg_label(out, "event", x + 10, y + 4, cell);
  } else {
    fprintf(out, "<circle cx=\"%d\" cy=\"%d\" r=\"3\"/>\n", x, y);
    svg_label(out, "call", x + 10, y + 4, cell);
  }
}

void picture_svg(const zke_lab *lab, FILE *out) {
  int width = LEFT + LANE * lab->count, height = line_y(lab->line_count) + 10;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
          "height=\"%d\" viewBox=\"0 0 %d %d\">\n",
          width, height, width, height);
  fputs(
      "<style>text{font:13px sans-serif;fill:#222}"
      ".name{font-weight:bold;font-size:15px}"
      ".event{fill:#b00020}.wrong{fill:#b00020;font-weight:bold}"
      ".lane{stroke:#999;stroke-width:1.5}circle{fill:#456}"
      ".held{fill:#7fb069;fill-opacity:.75}"
      ".fault{stroke:#b00020;stroke-width:2.5;fill:none}"
      ".time{stroke:#999;stroke-dasharray:4 4}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      out);
  svg_lanes(lab, out);
  for (int i = 0; i < lab->line_count; i++)
    svg_line(lab, &lab->lines[i], i, out);
  fputs("</svg>\n", out);
}
