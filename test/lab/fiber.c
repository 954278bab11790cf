/* fiber.c - switching stacks: what a call must preserve is pushed, the stack
 * is exchanged, and the other's is popped
 *
 * A library function would do (swapcontext()), but it calls the system to keep
 * the signal mask, which costs more than everything else in a step. */
#include "fiber.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

char *fiber_mark;

#if defined(__x86_64__)
__asm__(
    ".text\n"
    ".globl fiber_switch\n"
    ".type fiber_switch,@function\n"
    "fiber_switch:\n"
    "  push %rbp\n"
    "  push %rbx\n"
    "  push %r12\n"
    "  push %r13\n"
    "  push %r14\n"
    "  push %r15\n"
    "  mov %rsp,(%rdi)\n"
    "  mov %rsi,%rsp\n"
    "  pop %r15\n"
    "  pop %r14\n"
    "  pop %r13\n"
    "  pop %r12\n"
    "  pop %rbx\n"
    "  pop %rbp\n"
    "  ret\n"
    ".size fiber_switch,.-fiber_switch\n");

enum { SAVED = 6 };

/* fn begins as if it had been called: with a return address (none) on a stack
 * that was aligned to 16 before it. */
void *fiber_make(char *stack_end, void (*fn)(void)) {
  void **sp = (void **)(void *)(stack_end - 64);
  *--sp = NULL;
  *--sp = (void *)(uintptr_t)fn;
  for (int i = 0; i < SAVED; i++) *--sp = NULL;
  return sp;
}
#else
#error "the laboratory switches stacks on x86-64 only"
#endif

void fiber_clean(char *sp) {
  enum { BLOCK = 512 };
  static const char zeros[BLOCK];
  for (int clean = 0; clean < 2;) {
    sp -= BLOCK;
    clean = memcmp(sp, zeros, BLOCK) == 0 ? clean + 1 : 0;
    if (clean == 0) memset(sp, 0, BLOCK);
  }
}
