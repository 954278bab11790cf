/* drawing.h - drawings of what happened: a lane for each process, time
 * downwards
 *
 * The laboratory (picture.c) and the simulated host (test/sim/story.c) keep
 * lines of what happened while they replay a finding.  Both kinds of drawing,
 * text and SVG, are made from them. */
#ifndef DRAWING_H
#define DRAWING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { DRAWING_TEXT = 240, DRAWING_LANES = 64 };

/* Kinds of lines:
 *
 *   c    a call with its result       n    a note
 *   ( )  a call begins, and ends      [ ]  a section is entered, and left
 *   b    a lane begins                e    it ends by itself
 *   A    its process dies             X    all die
 *   .    some lines are left out      f    what is wrong
 *   -    from here on it is inevitable
 *
 * Any other letter is a fault, or another action of the world. */
typedef struct drawing_line {
  int lane; /* -1: all */
  int step;
  char kind;
  int64_t now; /* nanoseconds */
  char text[DRAWING_TEXT];
} drawing_line;

typedef struct drawing {
  const char *name[DRAWING_LANES];
  int lanes;
  const drawing_line *lines;
  int count;
  int width;  /* characters in a line of text */
  int lane;   /* pixels between two lanes */
  bool timed; /* with the time of each line */
  /* Shorten a line's text, in place; NULL: it stays as it is. */
  void (*shorten)(const void *context, const drawing_line *line, char *text);
  const void *context;
} drawing;

void drawing_text(const drawing *d, FILE *out);
void drawing_svg(const drawing *d, FILE *out);

#endif
