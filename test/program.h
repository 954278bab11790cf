/* program.h - what long-running programs share: settings, a clock, a directory,
 * children that die with them
 *
 * It does not need Check.  If memory, a process or the like cannot be had, the
 * program ends.
 */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A number from the environment: KILLS=100; unset or empty: `otherwise`. */
long program_setting(const char *name, long otherwise);

/* SEED, or a new one each time; it is printed. */
unsigned program_seed(void);

/* A monotonic clock, in milliseconds. */
int64_t program_ms(void);

/* Zeroed memory that children share. */
void *program_share(size_t size);

/* A directory for this run: in memory, if that is there and wanted, else on the
 * disk, below `disk`. */
void program_directory(char *out, size_t size, const char *name,
                       const char *disk, bool in_memory);

/* Remove a directory with its contents; 0, or -1 if something remains. */
int program_remove(const char *directory);

/* At the end of a run: remove its directory, or if the run has failed, print
 * where it is and keep it. */
void program_clean_up(const char *directory, bool good);

/* Like fork(), but the child dies with its parent. */
pid_t program_fork(void);

/* Wait until a child ends; false if it has not by this time (program_ms()). */
bool program_await(pid_t child, int64_t until, int *status);

/* Kill a child, and wait for it to end. */
void program_kill(pid_t child);

#endif
