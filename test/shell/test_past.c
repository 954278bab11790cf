/* test_past.c - the past holders of a lock, from its history; includes past.c
 * to reach its statics */
#include <stdio.h>

#include "shell/past.c"
#include "test/test.h"

/* A history that a test writes: changes with their zxids and times. */
static past_change changes[64];
static past_changes history = {.data = changes};

static void change(int type, const char *path, int64_t owner, int64_t time) {
  changes[history.count] = (past_change){.zxid = 100 + history.count,
                                         .time_ms = time,
                                         .type = type,
                                         .path = path,
                                         .session = owner,
                                         .owner = owner,
                                         .identity = ""};
  history.count++;
}

static void comes(const char *path, int64_t owner, int64_t time) {
  change(ZKE_EVENT_CREATED, path, owner, time);
}

static void goes(const char *path, int64_t owner, int64_t time) {
  change(ZKE_EVENT_DELETED, path, owner, time);
}

/* The holders of a path at a time: "7 from 10 until 20; …", by session, in the
 * order of the line; 0 if a time is unknown or a hold has not ended. */
static const char *held(const char *path, int64_t at, const past_node *now,
                        int count) {
  static char text[400];
  char *to = text;
  past_life *lives;
  past_holder *holders;
  int n = past_lives(&history, path, now, count, &lives);
  ck_assert_int_ge(n, 0);
  n = past_holders(&history, path, lives, n, at, &holders);
  ck_assert_int_ge(n, 0);
  *to = '\0';
  for (int i = 0; i < n; i++)
    to += sprintf(to, "%s%d from %d until %d", i ? "; " : "",
                  (int)holders[i].life->owner, (int)holders[i].since_ms,
                  (int)holders[i].until_ms);
  free(holders);
  free(lives);
  return text;
}

#define ck_held(path, at, expected) \
  ck_assert_str_eq(held(path, at, NULL, 0), expected)

/* A lock: each holds from the previous holder's end to its own. */
TEST(a_line_is_held_in_turn) {
  comes("/l", 0, 5);
  comes("/l/_c_g-lock-0000000000", 7, 10);
  comes("/l/_c_g-lock-0000000001", 8, 20);
  comes("/l/_c_g-lock-0000000002", 9, 21);
  goes("/l/_c_g-lock-0000000000", 7, 30);
  goes("/l/_c_g-lock-0000000001", 8, 40);
  ck_held("/l", 9, "");
  ck_held("/l", 10, "7 from 10 until 30");
  ck_held("/l", 29, "7 from 10 until 30");
  ck_held("/l", 30, "8 from 30 until 40");
  ck_held("/l", 41, "9 from 40 until 0");
  ck_held("/", 25, "");
}

/* A process that waited and left never held; one that left between two others
 * is passed over. */
TEST(who_gave_up_never_held) {
  comes("/l/lock-0000000000", 7, 10);
  comes("/l/lock-0000000001", 8, 20);
  comes("/l/lock-0000000002", 9, 21);
  goes("/l/lock-0000000001", 8, 25);
  goes("/l/lock-0000000000", 7, 30);
  ck_held("/l", 27, "7 from 10 until 30");
  ck_held("/l", 35, "9 from 30 until 0");
}

/* A thief goes before all others, and ends the first one's hold even before its
 * node is deleted. */
TEST(a_thief_goes_before_all) {
  comes("/l/_c_a-lock-0000000000", 7, 10);
  comes("/l/_c_b-front-0000000001", 8, 20);
  goes("/l/_c_a-lock-0000000000", 7, 25);
  ck_held("/l", 15, "7 from 10 until 20");
  ck_held("/l", 20, "8 from 20 until 0");
  ck_held("/l", 30, "8 from 20 until 0");
}

/* Readers hold together until a writer comes; a writer holds alone. */
TEST(readers_hold_together) {
  comes("/r/_c_a-__READ__0000000000", 1, 10);
  comes("/r/_c_b-__READ__0000000001", 2, 11);
  comes("/r/_c_c-__WRIT__0000000002", 3, 12);
  comes("/r/_c_d-__READ__0000000003", 4, 13);
  goes("/r/_c_a-__READ__0000000000", 1, 20);
  goes("/r/_c_b-__READ__0000000001", 2, 30);
  goes("/r/_c_c-__WRIT__0000000002", 3, 40);
  ck_held("/r", 15, "1 from 10 until 20; 2 from 11 until 30");
  ck_held("/r", 25, "2 from 11 until 30");
  ck_held("/r", 35, "3 from 30 until 40");
  ck_held("/r", 45, "4 from 40 until 0");
}

/* All entries of a semaphore's line are shown: its past limit is not known. */
TEST(a_semaphores_whole_line_is_told) {
  comes("/s/_c_a-lease-0000000000", 1, 10);
  comes("/s/_c_b-lease-0000000001", 2, 11);
  ck_held("/s", 15, "1 from 10 until 0; 2 from 11 until 0");
}

/* The node itself, each time it existed; nobody holds a persistent one. */
TEST(an_ephemeral_node_is_its_owners) {
  comes("/e", 7, 10);
  goes("/e", 7, 20);
  comes("/e", 8, 30);
  comes("/p", 0, 31);
  ck_held("/e", 15, "7 from 10 until 20");
  ck_held("/e", 25, "");
  ck_held("/e", 30, "8 from 30 until 0");
  ck_held("/p", 40, "");
}

/* Nodes older than the history appear by their deletion, by a change, or
 * because they still exist; when the hold began is unknown. */
TEST(what_was_before_the_history) {
  static const past_node now[] = {{"/l/lock-0000000002", 9},
                                  {"/l/lock-0000000003", 5}};
  change(ZKE_EVENT_CHANGED, "/l/lock-0000000001", 8, 10);
  goes("/l/lock-0000000000", 7, 20);
  goes("/l/lock-0000000001", 8, 30);
  comes("/l/lock-0000000003", 5, 35);
  ck_assert_str_eq(held("/l", 5, now, 2), "7 from 0 until 20");
  ck_assert_str_eq(held("/l", 25, now, 2), "8 from 20 until 30");
  ck_assert_str_eq(held("/l", 35, now, 2), "9 from 30 until 0");
}

/* Other children, marks and deeper nodes are no entries of a line. */
TEST(other_children_hold_nothing) {
  comes("/l/leader", 1, 10);
  comes("/l/_c_x-next-0000000000", 2, 11);
  comes("/l/deeper/lock-0000000000", 3, 12);
  comes("/lx/lock-0000000000", 4, 13);
  comes("/l/short-00001", 5, 14);
  ck_held("/l", 20, "");
  comes("/l/_c_x-latch-0000000005", 6, 15);
  ck_held("/l", 20, "6 from 15 until 0");
}

/* After the clock was set back the zxids give the order. */
TEST(clocks_may_go_back) {
  comes("/l/lock-0000000000", 7, 1000);
  goes("/l/lock-0000000000", 7, 400);
  comes("/l/lock-0000000001", 8, 500);
  ck_held("/l", 1000, "8 from 500 until 0");
  ck_held("/l", 450, "");
}

/* A line at the top of the tree. */
TEST(a_line_of_the_root) {
  comes("/lock-0000000000", 7, 10);
  comes("/lock-0000000001", 8, 20);
  ck_held("/", 25, "7 from 10 until 0");
}
