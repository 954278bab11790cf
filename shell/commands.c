/* commands.c - the list of commands
 *
 * The list is above the files of the commands, and below main.c: run.c finds a
 * command by it without knowing any, and other programs that run lines (the
 * fuzz targets) have the same commands.
 */
#include "shell.h"

const command_table commands_all[] = {
    {"The shell", builtin_commands},
    {"Nodes", tree_commands},
    {NULL, watch_commands},
    {NULL, multi_commands},
    {"Permissions", acl_commands},
    {"The database", transfer_commands},
    {NULL, database_commands},
    {NULL, history_commands},
    {NULL, metrics_commands},
    {"Locks, queues and the like", lock_commands},
    {NULL, queue_commands},
    {NULL, barrier_commands},
    {NULL, once_commands},
    {NULL, txn_commands},
    {NULL, fence_commands},
    {"Who holds what", look_commands},
    {NULL, waits_commands},
    {"ZooKeeper's clients", serve_commands},
    {NULL, NULL}};
