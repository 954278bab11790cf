/* queue.c - items that processes pass to each other
 *
 *   items    producers and consumers pass a number of them
 *   take     the cost of a take with so many items in the queue and so many
 *            other consumers, with a put before each or none; not synced, to
 *            measure the work and not the disk
 *   put      the cost of a put while so many consumers wait, the time until one
 *            of them has the item, and how often they are woken for it
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes/queue.h"

enum { PROCESSES_MOST = 16, WAITING_MOST = 100, FILL = 500 };

/* ---- items ---- */

/* SUBJECT PLACE put|take COUNT */
void role_queue(char **argv) {
  const subject *s = subject_named(argv[0]);
  void *self = s->open(argv[1], FOR_WORK);
  action a = strcmp(argv[2], "put") == 0 ? ACT_PUT : ACT_TAKE;
  say(0);
  await_command();
  for (int i = atoi(argv[3]); i > 0; i--) s->act[a](self, NULL, 0);
  say(now_ns());
  await_command();
}

/* Items a second from pairs producers to as many consumers. */
static double pass_items(const subject *s, int pairs, int each) {
  worker w[PROCESSES_MOST];
  static int places;
  char place[32], count[24];
  int64_t start, end = 0;
  snprintf(place, sizeof place, "queue-%d", ++places);
  snprintf(count, sizeof count, "%d", each);
  for (int i = 0; i < 2 * pairs; i++) {
    w[i] = worker_start("queue", run.cpu[i % 2], s->name, place,
                        i % 2 ? "take" : "put", count, NULL);
    worker_ready(&w[i]);
  }
  start = now_ns();
  for (int i = 0; i < 2 * pairs; i++) worker_go(&w[i], 'g');
  for (int i = 0; i < 2 * pairs; i++) {
    int64_t at = worker_word(&w[i]);
    if (at > end) end = at;
  }
  for (int i = 0; i < 2 * pairs; i++) worker_end(&w[i]);
  return (double)pairs * each * 1e9 / (double)(end - start);
}

/* The subject's consumers wait for items: raw's do not. */
static bool queues(const subject *s) {
  return s->act[ACT_PUT] && s->act[ACT_TAKE] && s != &subject_raw;
}

static void compare_items(void) {
  for (int pairs = 1; pairs <= times(4, 1); pairs *= 2) {
    samples rate[SUBJECTS_MOST] = {{0}};
    for (int pass = 0; pass < times(5, 1); pass++) {
      for (int i = 0; i < subject_count; i++) {
        if (queues(subjects[i]))
          add(&rate[i], pass_items(subjects[i], pairs, times(500, 20)));
      }
    }
    for (int i = 0; i < subject_count; i++) {
      report("items, producers and consumers", pairs, subjects[i]->name, "1/s",
             &rate[i], NULL, NULL);
      forget(&rate[i]);
    }
  }
}

/* ---- a take, by the queue's length ---- */

typedef struct consumer {
  zke *z;
  zke_queue *queue;
} consumer;

static consumer consume(const char *file) {
  consumer c;
  zke_options o = {.size = sizeof o, .durability = ZKE_DURABLE_NONE};
  must(zke_open(file, &o, &c.z), "zke_open");
  must(zke_queue_new(c.z, "/queue", NULL, &c.queue), "zke_queue_new");
  return c;
}

static void consume_end(consumer *c) {
  zke_queue_free(c->queue);
  must(zke_close(c->z), "zke_close");
}

static void put_one(consumer *c) {
  must(zke_queue_put(c->queue, data, DATA_BYTES, NULL, 0), "zke_queue_put");
}

static void take_one(consumer *c) {
  zke_queue_item *item;
  must(zke_queue_take(c->queue, ZKE_FOREVER, &item), "zke_queue_take");
  zke_free(item);
}

/* FILE COUNT put|-: takes COUNT items on order, and reports the end. */
void role_take(char **argv) {
  consumer c = consume(argv[0]);
  take_one(&c);
  say(0);
  await_command();
  for (int i = atoi(argv[1]); i > 0; i--) {
    if (*argv[2] == 'p') put_one(&c);
    take_one(&c);
  }
  say(now_ns());
  await_command();
  consume_end(&c);
}

static void fill(consumer *c, int count) {
  static zke_queue_value values[FILL];
  for (int i = 0; i < FILL; i++)
    values[i] = (zke_queue_value){data, DATA_BYTES};
  for (; count > 0; count -= FILL)
    must(zke_queue_put_all(c->queue, values, count < FILL ? count : FILL, NULL,
                           0),
         "zke_queue_put_all");
}

/* The time of each take, us, with so many consumers at once. */
static double take_all(const char *file, int consumers, int each, bool puts) {
  worker w[PROCESSES_MOST];
  char count[24];
  int64_t start, end = 0;
  snprintf(count, sizeof count, "%d", each);
  for (int i = 0; i < consumers; i++) {
    w[i] = worker_start("take", run.cpu[i % 2], file, count, puts ? "put" : "-",
                        NULL);
    worker_ready(&w[i]);
  }
  start = now_ns();
  for (int i = 0; i < consumers; i++) worker_go(&w[i], 'g');
  for (int i = 0; i < consumers; i++) {
    int64_t at = worker_word(&w[i]);
    if (at > end) end = at;
  }
  for (int i = 0; i < consumers; i++) worker_end(&w[i]);
  return (double)(end - start) / 1000 / consumers / each;
}

static void measure_takes(int length) {
  static const int consumers[] = {1, 2, 8};
  char file[PATH_BYTES], base[40], name[60];
  snprintf(base, sizeof base, "take-%d.db", length);
  file_in(file, sizeof file, base);
  consumer c = consume(file);
  fill(&c, length);
  for (int puts = 0; puts < 2; puts++) {
    for (int i = 0; i < 3; i++) {
      int each = times(400, 4) / consumers[i];
      samples s = {0};
      for (int pass = 0; pass < times(3, 1); pass++) {
        add(&s, take_all(file, consumers[i], each, puts));
        fill(&c, consumers[i] * (puts ? 1 : each + 1));
      }
      snprintf(name, sizeof name, "%s, %d consumers",
               puts ? "put and take" : "take", consumers[i]);
      report(name, length, "zkembed", "us", &s, NULL, NULL);
      forget(&s);
    }
  }
  consume_end(&c);
}

/* ---- a put, by the number of waiters ---- */

/* FILE: reports when it has an item, and waits for the next. */
void role_await(char **argv) {
  consumer c = consume(argv[0]);
  say(0);
  for (;;) {
    take_one(&c);
    say(now_ns());
  }
}

static double sleeps_of_all(const worker *w, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += worker_sleeps(&w[i]);
  return sum;
}

static void measure_puts(int waiting) {
  worker w[WAITING_MOST];
  char file[PATH_BYTES], base[40];
  samples put = {0}, taken = {0};
  int rounds = times(100, 5);
  int64_t pause_us = 10000 + 500 * waiting;
  snprintf(base, sizeof base, "wait-%d.db", waiting);
  file_in(file, sizeof file, base);
  consumer c = consume(file);
  put_one(&c);
  take_one(&c);
  for (int i = 0; i < waiting; i++) {
    w[i] = worker_start("await", run.cpu[i % 2], file, NULL);
    worker_ready(&w[i]);
  }
  sleep_us(10 * pause_us);
  double before = sleeps_of_all(w, waiting);
  for (int round = 0; round < rounds; round++) {
    int64_t start = now_ns();
    put_one(&c);
    add(&put, (double)(now_ns() - start) / 1000);
    int who = worker_first(w, waiting);
    add(&taken, (double)(worker_word(&w[who]) - start) / 1000);
    sleep_us(pause_us);
  }
  double woken = (sleeps_of_all(w, waiting) - before) / rounds;
  report("put", waiting, "zkembed", "us", &put, NULL, NULL);
  report("from put to taken", waiting, "zkembed", "us", &taken, NULL, NULL);
  report_one("sleeps a put", waiting, "zkembed", "", woken);
  for (int i = 0; i < waiting; i++) worker_kill(&w[i]);
  forget(&put);
  forget(&taken);
  consume_end(&c);
}

void part_queue(void) {
  static const int waiting[] = {1, 10, WAITING_MOST};
  compare_items();
  for (int length = 1000; length <= times(100000, 1000); length *= 10)
    measure_takes(length);
  for (int i = 0; i < times(3, 2); i++) measure_puts(waiting[i]);
}
