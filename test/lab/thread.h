/* thread.h - comes before the engine and the recipes in the laboratory
 *
 * Their thread-local variables are in one section, which is swapped when
 * another process runs.  A program's own code that has such variables may be
 * compiled with it, too (-include). */
#ifndef THREAD_H
#define THREAD_H

#define _Thread_local __attribute__((section("lab_thread")))

#endif
