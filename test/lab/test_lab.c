/* test_lab: the laboratory finds what is there, and nothing else */
#include "test/test.h"
#include "test/lab/zkembed-lab.h"

#include "recipes/lock.h"

/* ---- the recipe as it is ---- */

static void take_lock(zke *z, void *arg) {
  zke_lock *lock = NULL;
  (void)arg;
  if (zke_lock_new(z, "/lock", NULL, &lock) != ZKE_OK) return;
  if (zke_lock_acquire(lock, ZKE_FOREVER) == ZKE_OK) {
    zke_lab_enter("held", 1);
    zke_lab_leave("held");
    zke_lock_release(lock);
  }
  zke_lock_free(lock);
}

TEST(lock_is_held_by_one) {
  zke_lab *lab = NULL;
  zke_lab_result r;
  ck_assert_int_eq(zke_lab_new(NULL, &lab), ZKE_OK);
  ck_assert_int_eq(zke_lab_process(lab, "a", take_lock, NULL), ZKE_OK);
  ck_assert_int_eq(zke_lab_process(lab, "b", take_lock, NULL), ZKE_OK);
  ck_assert_int_eq(zke_lab_state(lab, NULL, 0), ZKE_OK);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_msg(!r.found, "%s: %s", r.why, r.schedule);
  ck_assert_int_gt(r.schedules, 100);
  zke_lab_free(lab);
}
