/* picture.c - a schedule, drawn (drawing.h)
 *
 * The lines come from world.c, which writes them while it replays: the calls of
 * each process and their results, who is in which section, who died, and what
 * was wrong in the end. */
#include "picture.h"

#include <string.h>

/* A lane is not wide enough for GUIDs: show their first digits. */
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

/* A call without the common prefix.  A server's dispatch before an answer is
 * left out. */
static void shorten(const void *context, const drawing_line *line, char *text) {
  const zke_lab *lab = context;
  if (line->lane >= 0 && lab->outside[line->lane].is_used &&
      strcmp(text, "zke_dispatch_to ") == 0)
    strcpy(text, "is answered");
  if (strncmp(text, "zke_", 4) == 0) memmove(text, text + 4, strlen(text) - 3);
  if (lab->has_outside) shorten_guids(text);
}

enum { WIDTH = 79, LANE_LEAST = 37 }; /* for a call with its result */

/* A drawing of the lab's lines.  Many lanes are wider than a terminal: a result
 * that is cut off would be useless. */
static drawing drawing_of(const zke_lab *lab) {
  int least = LANE_LEAST * lab->count + 5;
  drawing d = {.lanes = lab->count,
               .lines = lab->lines,
               .count = lab->line_count,
               .width = least > WIDTH ? least : WIDTH,
               .lane = 300,
               .shorten = shorten,
               .context = lab};
  for (int i = 0; i < lab->count; i++) d.name[i] = lab->processes[i].name;
  return d;
}

/* For a terminal. */
void picture_text(const zke_lab *lab, FILE *out) {
  drawing d = drawing_of(lab);
  drawing_text(&d, out);
}

/* For a browser. */
void picture_svg(const zke_lab *lab, FILE *out) {
  drawing d = drawing_of(lab);
  drawing_svg(&d, out);
}
