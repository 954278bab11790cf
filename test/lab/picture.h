/* picture.h - a schedule, drawn */
#ifndef PICTURE_H
#define PICTURE_H

#include <stdio.h>

#include "lab.h"

void picture_text(const zke_lab *lab, FILE *out);
void picture_svg(const zke_lab *lab, FILE *out);

#endif
