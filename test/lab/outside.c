/* outside.c - processes whose code runs elsewhere: zke_lab_outside()
 *
 * For the scheduler such a party is a process like any other.  Its function is
 * the one below: it asks the party for its next request, while the party is
 * suspended, and makes the request's calls on the party's session.  Each call
 * stops as usual, and there the search chooses. */
#include <string.h>

#include "lab.h"
#include "world.h"

/* Has the party's session ended?  It has only one. */
static bool has_expired(zke *z, const lab_outside *o) {
  if (zke_state(z) != ZKE_STATE_EXPIRED) return false;
  o->party.drop(o->context, ZKE_LAB_EXPIRED);
  return true;
}

/* A request has been made.  Others may run between its calls and its reply:
 * they see its changes before its party does.  False: the party does not
 * continue. */
static bool serve_request(zke *z, const lab_outside *o) {
  int rc = o->party.apply(o->context, z);
  if (has_expired(z, o)) return false;
  if (rc == ZKE_CONNECTIONLOSS) {
    o->party.drop(o->context, ZKE_LAB_LOST);
    return true;
  }
  zke_lab_yield();
  o->party.reply(o->context, rc);
  return true;
}

static void serve(zke *z, void *arg) {
  const lab_outside *o = arg;
  bool goes_on = true;
  o->party.begin(o->context);
  if (o->party.run) {
    o->party.run(o->context, z);
    return;
  }
  while (goes_on) {
    int next = o->party.next(o->context);
    if (next == ZKE_LAB_ENDED) return;
    if (next == ZKE_LAB_REQUEST) {
      goes_on = serve_request(z, o);
    } else {
      zke_wait(z, ZKE_FOREVER);
      goes_on = !has_expired(z, o);
    }
  }
}

int zke_lab_outside(zke_lab *lab, const char *name, const zke_lab_party *party,
                    void *context) {
  zke_lab_party p;
  if (!lab) return zke_fail(ZKE_BADARGUMENTS, "lab is NULL");
  int rc = zke_take_options(party, &p, sizeof p, "zke_lab_party");
  if (rc != ZKE_OK) return rc;
  bool whole = p.run || (p.next && p.apply && p.reply && p.drop);
  if (!p.begin || !p.end || !whole)
    return zke_fail(ZKE_BADARGUMENTS, "a function of the party is NULL");
  if (lab->count == ZKE_LAB_MOST)
    return zke_fail(ZKE_BADARGUMENTS, "there are %d processes already",
                    ZKE_LAB_MOST);
  lab_outside *o = &lab->outside[lab->count];
  rc = zke_lab_process(lab, name, serve, o);
  if (rc != ZKE_OK) return rc;
  *o = (lab_outside){p, context, true};
  lab->has_outside = true;
  return ZKE_OK;
}

void outside_died(const zke_lab *lab, int process) {
  const lab_outside *o = &lab->outside[process];
  if (o->is_used && o->party.drop) o->party.drop(o->context, ZKE_LAB_DEAD);
}

void outside_end(const zke_lab *lab) {
  for (int i = 0; i < lab->count; i++) {
    const lab_outside *o = &lab->outside[i];
    if (o->is_used) o->party.end(o->context);
  }
}

/* 32 digits, with dashes between or after them. */
size_t outside_guid(const char *text) {
  size_t digits = 0, n = 0;
  for (; strchr("0123456789abcdef-", text[n]) && text[n]; n++)
    digits += text[n] != '-';
  return digits >= 32 ? n : 0;
}
