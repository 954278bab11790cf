/* program.h - what programs share that run for as long as one likes: settings,
 * a clock, a directory, children that die with them
 *
 * It needs no Check.  What cannot be had (memory, a process) ends the program.
 */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A number of the environment: KILLS=100.  Not set, or empty: `otherwise`. */
long program_setting(const char *name, long otherwise);

/* SEED, or another one each time; it is printed. */
unsigned program_seed(void);

/* A monotonic clock, in milliseconds. */
int64_t program_ms(void);

/* Memory that children share; it is zero. */
void *program_share(size_t size);

/* A directory of its own: in memory, if that is there and wanted, else on the
 * disk, below `disk`. */
void program_directory(char *out, size_t size, const char *name,
                       const char *disk, bool in_memory);

/* Remove a directory with all that is in it; 0, or -1 if something stays. */
int program_remove(const char *directory);

/* At the end of a run: remove its directory; if it has failed, print where that
 * is and leave it. */
void program_clean_up(const char *directory, bool good);

/* As fork(); the child dies with its parent. */
pid_t program_fork(void);

/* Wait until a child ends; false: it has not by this time (program_ms()). */
bool program_await(pid_t child, int64_t until, int *status);

/* Kill a child, and wait for its end. */
void program_kill(pid_t child);

#endif
