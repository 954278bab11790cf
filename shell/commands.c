/* commands.c - which commands there are
 *
 * The list stands above the files of the commands, and below main.c: run.c
 * finds a command by it without knowing any, and whatever else runs lines (the
 * fuzz targets) has the same commands.
 */
#include "shell.h"

const command *const commands_all[] = {
    builtin_commands, tree_commands,     watch_commands,    multi_commands,
    acl_commands,     transfer_commands, database_commands, fence_commands,
    history_commands, metrics_commands,  lock_commands,     queue_commands,
    barrier_commands, once_commands,     txn_commands,      look_commands,
    waits_commands,   top_commands,      serve_commands,    NULL};
