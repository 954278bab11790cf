/* fiber.h - a process of the laboratory: code on a stack of its own */
#ifndef FIBER_H
#define FIBER_H

/* Lay out a stack so that the first switch to it calls fn, which must not
 * return; returns the stack pointer.  NULL: out of memory (baton.c). */
void *fiber_make(char *stack_end, void (*fn)(void));

/* Define name() so that it calls target() with the same arguments, and
 * fiber_mark tells where its caller's part of the stack ends: the registers
 * that a call preserves lie there, and everything above.  What is below belongs
 * to target(), and says nothing of the caller. */
extern char *fiber_mark;
#if defined(LAB_FORKED)
/* Stacks are not compared, so the two are one. */
#define FIBER_MARKED(name, target) \
  __asm__(".globl " #name "\n.set " #name "," #target)
#else
#define FIBER_MARKED(name, target)        \
  __asm__(                                \
      ".text\n"                           \
      ".globl " #name                     \
      "\n"                                \
      ".type " #name ",@function\n" #name \
      ":\n"                               \
      "  push %rbp\n"                     \
      "  push %rbx\n"                     \
      "  push %r12\n"                     \
      "  push %r13\n"                     \
      "  push %r14\n"                     \
      "  push %r15\n"                     \
      "  push $0\n"                       \
      "  mov %rsp,fiber_mark(%rip)\n"     \
      "  call " #target                   \
      "\n"                                \
      "  add $8,%rsp\n"                   \
      "  pop %r15\n"                      \
      "  pop %r14\n"                      \
      "  pop %r13\n"                      \
      "  pop %r12\n"                      \
      "  pop %rbx\n"                      \
      "  pop %rbp\n"                      \
      "  ret\n"                           \
      ".size " #name ",.-" #name "\n")

#endif

/* Go on where `to` stopped; *from is where this stops. */
void fiber_switch(void **from, void *to);

/* Fill with zeros what earlier calls have left below the end of a stack, as the
 * next call's frame lies there: what a function never sets would make worlds
 * different that are equal. */
void fiber_clean(char *sp);

#endif
