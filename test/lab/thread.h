/* thread.h - what comes before the engine and the recipes in the laboratory
 *
 * Their variables of a thread lie in one section, which is exchanged when
 * another process goes on.  A program's own code may be compiled with it, too
 * (-include), where it has such variables. */
#ifndef THREAD_H
#define THREAD_H

#define _Thread_local __attribute__((section("lab_thread")))

#endif
