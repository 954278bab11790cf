/* fiber.h - a process of the laboratory: code on a stack of its own */
#ifndef FIBER_H
#define FIBER_H

/* Lay out a stack so that the first switch to it calls fn, which must not
 * return; returns the stack pointer. */
void *fiber_make(char *stack_end, void (*fn)(void));

/* Go on where `to` stopped; *from is where this stops. */
void fiber_switch(void **from, void *to);

#endif
