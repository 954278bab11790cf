/* steps.c - see steps.h */
#include "steps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/part/object.h"
#include "recipes/support.h"

static const step_recipe *recipe;
void *party[PARTIES];
char told[600];
static char said[512]; /* by the last call that failed */

/* ------------------------------------------------------------------------
 * A step
 * --------------------------------------------------------------------- */

const char *party_name(int i) {
  static const char *const seconds[] = {"ann'", "bob'", "cid'", "dan'", "eve'"};
  return i < SESSIONS ? identities[i] : seconds[i - SESSIONS];
}

int party_named(const char *name) {
  int i = PARTIES - 1;
  while (i >= 0 && strcmp(name, party_name(i)) != 0) i--;
  return i;
}

/* Cut the first word off a text; "" if there is none. */
static char *cut_word(char **text) {
  char *word = *text + strspn(*text, " ");
  char *end = word + strcspn(word, " ");
  *text = *end ? end + 1 : end;
  *end = '\0';
  return word;
}

/* Cut off and return the text after the arrow; NULL if there is no arrow. */
static char *cut_wanted(char *text) {
  char *arrow = strstr(text, " ->");
  if (!arrow) return NULL;
  *arrow = '\0';
  arrow += strlen(" ->");
  return arrow + strspn(arrow, " ");
}

/* Take a text apart.  A step points into itself: it cannot be copied. */
static void parse(step *s, const char *text, size_t len) {
  enum { WORDS = sizeof s->word / sizeof *s->word };
  memset(s, 0, sizeof *s);
  ck_assert_uint_lt(len, sizeof s->text);
  memcpy(s->text, text, len);
  strcpy(s->parts, s->text);
  char *rest = s->parts;
  s->wanted = cut_wanted(rest);
  s->verb = cut_word(&rest);
  s->who = party_named(s->verb);
  if (s->who >= 0) s->verb = cut_word(&rest);
  s->rest = rest;
  strcpy(s->words, rest);
  rest = s->words;
  for (int i = 0; i + 1 < WORDS && *rest; i++) s->word[i] = cut_word(&rest);
  s->session = z[s->who < 0 ? SESSIONS - 1 : s->who % SESSIONS];
}

/* Is the step of this verb, perhaps with another deadline? */
static bool is_verb(step *s, const char *name) {
  size_t len = strlen(name);
  if (strncmp(s->verb, name, len) != 0) return false;
  const char *when = s->verb + len;
  s->patience = *when == '_' ? atoi(when + 1) : 0;
  s->deadline = *when ? zke_now(s->session) + s->patience : soon(s->session);
  return *when == '\0' || strcmp(when, "_now") == 0 || s->patience > 0;
}

/* The row of the step's verb. */
static const step_verb *verb_of(step *s);

static void make_object(int i) {
  if (recipe->create)
    ck_ok(recipe->create(z[i % SESSIONS], party_name(i), &party[i]));
}

/* Find the object of the step; make it if it is a second one. */
static void find_object(step *s) {
  if (s->who < 0) return;
  if (s->who >= SESSIONS && !party[s->who]) make_object(s->who);
  s->object = party[s->who];
}

const char *after_word(const step *s) {
  const char *space = strchr(s->rest, ' ');
  return space ? space + 1 : "";
}

int take_by(int i, const char *verb, const char *rest) {
  step s;
  char text[sizeof s.text];
  int len = snprintf(text, sizeof text, "%s %s %s", party_name(i), verb, rest);
  parse(&s, text, (size_t)len);
  find_object(&s);
  return verb_of(&s)->take(&s);
}

void gives(step *s, const char *format, ...) {
  size_t used = strlen(s->answer);
  va_list list;
  va_start(list, format);
  vsnprintf(s->answer + used, sizeof s->answer - used, format, list);
  va_end(list);
}

int sees(step *s, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(s->answer, sizeof s->answer, format, list);
  va_end(list);
  ck_step(s, strcmp(s->answer, s->rest) == 0, "it is %s", s->answer);
  return ZKE_OK;
}

void tell(const char *format, ...) {
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  va_list list;
  pthread_mutex_lock(&one_at_a_time);
  if (*told) strncat(told, ", ", sizeof told - strlen(told) - 1);
  size_t used = strlen(told);
  va_start(list, format);
  vsnprintf(told + used, sizeof told - used, format, list);
  va_end(list);
  pthread_mutex_unlock(&one_at_a_time);
}

/* ------------------------------------------------------------------------
 * Calls on threads
 * --------------------------------------------------------------------- */

static struct begun {
  call call; /* first: run_begun() is given its address */
  const step_verb *verb;
  step step;
} begun[PARTIES];

static void act_as(const step *s) {
  zke_line_act_as(s->who < 0 ? 0 : 1000 + (uint64_t)(s->who % SESSIONS));
}

static int run_begun(call *c) {
  struct begun *b = (struct begun *)c;
  act_as(&b->step);
  return b->verb->take(&b->step);
}

int begin_by(step *s, const char *verb, const char *rest,
             bool (*waits)(const step *s)) {
  struct begun *b = &begun[s->who];
  char text[sizeof s->text];
  int len =
      snprintf(text, sizeof text, "%s %s %s", party_name(s->who), verb, rest);
  parse(&b->step, text, (size_t)len);
  b->step.object = s->object;
  b->verb = verb_of(&b->step);
  b->step.deadline = ZKE_FOREVER;
  call_begin(&b->call, run_begun, NULL, 0, 0);
  if (!waits) return ZKE_OK;
  ck_until(waits(&b->step) || call_is_done(&b->call), 5000);
  ck_step(s, !call_is_done(&b->call), "it returns: %s", b->call.sentence);
  return ZKE_OK;
}

bool sleeps(void *object) {
  zke_recipe *r = object;
  pthread_mutex_lock(&r->m);
  bool asleep = r->sleepers != NULL;
  pthread_mutex_unlock(&r->m);
  return asleep;
}

/* Begin the verb that is the first word. */
static int begin_word(step *s, bool (*waits)(const step *s)) {
  return begin_by(s, s->word[0], after_word(s), waits);
}

static bool waits_on_object(const step *s) { return sleeps(s->object); }

STEP(begins, begin_word(s, NULL))
STEP(waits, begin_word(s, recipe->waits ? recipe->waits : waits_on_object))

static int step_returns(step *s) {
  struct begun *b = &begun[s->who];
  call_end(&b->call);
  gives(s, "%s", b->step.answer);
  int rc = b->call.rc;
  return rc == ZKE_OK ? rc : zke_fail(rc, "%s", b->call.sentence);
}

STEP(cancel, recipe->cancel(s->object))

static int step_cancels(step *s) {
  ck_until(recipe->cancel(s->object) == ZKE_OK, 10000);
  return ZKE_OK;
}

/* ------------------------------------------------------------------------
 * The verbs of all
 * --------------------------------------------------------------------- */

static int step_free(step *s) {
  recipe->free(s->object);
  party[s->who] = NULL;
  return ZKE_OK;
}

static int step_renewed(step *s) {
  ck_step(s, s->who >= 0 && s->who < SESSIONS - 1,
          "not eve, and no second object");
  zke_options o = {.size = sizeof o,
                   .identity = party_name(s->who),
                   .event_limit = s->word[0] ? atoi(s->word[0]) : 0};
  if (s->object) step_free(s);
  ck_ok(zke_close(s->session));
  ck_ok(zke_open_session(z[SESSIONS - 1], &o, &z[s->who]));
  make_object(s->who);
  return ZKE_OK;
}

static int step_expires(step *s) {
  zke *another = z[(s->who + 1) % SESSIONS];
  return zke_expire(another, zke_session_id(s->session));
}

STEP(dispatches, (gives(s, "%d", dispatch_on(s->session)), ZKE_OK))

static int step_all(step *s) {
  ck_step(s, strcmp(s->rest, "dispatch") == 0, "no such step");
  dispatch_all();
  return ZKE_OK;
}

static int step_hears(step *s) {
  char what[100];
  snprintf(what, sizeof what, "%s %s", party_name(s->who), s->rest);
  while (!strstr(told, what)) ck_ok(zke_wait(s->session, s->deadline));
  return ZKE_OK;
}

static int step_still(step *s) {
  ck_step(s, !call_is_done(&begun[s->who].call), "it has returned");
  return ZKE_OK;
}

STEP(watches,
     sees(s, "%d", s->who < 0 ? all_watches(s->session) : watches(s->session)))
STEP(wakes, zke_wake(s->session))

static int step_fails(step *s) {
  static const char *const kinds[] = {
      [0] = "none",
      [ZKE_TEST_FAIL_BEFORE] = "before",
      [ZKE_TEST_FAIL_AFTER] = "after",
      [ZKE_TEST_FAIL_READ] = "read",
  };
  enum { KINDS = sizeof kinds / sizeof *kinds };
  int kind = 0;
  while (kind < KINDS && strcmp(kinds[kind], s->word[0]) != 0) kind++;
  ck_step(s, kind < KINDS, "no such kind");
  return zke_test_fail(s->session, kind, s->word[1] ? atoi(s->word[1]) : 0);
}

static int step_told(step *s) {
  sees(s, "%s", told);
  told[0] = '\0';
  return ZKE_OK;
}

STEP(news, (dispatch_all(), step_told(s)))

static int step_said(step *s) {
  ck_step(s, strstr(said, s->rest), "it said: %s", said);
  return ZKE_OK;
}

static int create(step *s, int mode) {
  const char *data = after_word(s);
  return zke_create(s->session, s->word[0], data, (int)strlen(data),
                    ZKE_OPEN_ACL, mode, NULL, NULL);
}

STEP(create, create(s, ZKE_PERSISTENT))
STEP(ephemeral, create(s, ZKE_EPHEMERAL))
STEP(delete, zke_delete(s->session, s->word[0], -1))

STEP(set, zke_set(s->session, s->word[0], after_word(s),
                  (int)strlen(after_word(s)), -1, NULL))

static int compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static int step_children(step *s) {
  zke_strings *names = NULL;
  int rc = zke_children(s->session, s->word[0], NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) return rc;
  qsort(names->data, (size_t)names->count, sizeof *names->data, compare);
  for (int i = 0; i < names->count; i++)
    gives(s, "%s%s", i ? " " : "", names->data[i]);
  if (names->count == 0) gives(s, "none");
  zke_free(names);
  return rc;
}

STEP(entries, (gives(s, "%d", entries(s->session, s->word[0])), ZKE_OK))

static int step_empty(step *s) {
  zke_strings *names = NULL;
  int rc = zke_children(s->session, s->word[0], NULL, NULL, &names, NULL);
  for (int i = 0; rc == ZKE_OK && i < names->count; i++) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", s->word[0], names->data[i]);
    rc = zke_delete(s->session, path, -1);
  }
  zke_free(names);
  return rc;
}

static int step_data(step *s) {
  char *data = NULL;
  int rc = zke_get(s->session, s->word[0], NULL, NULL, &data, NULL, NULL);
  if (rc == ZKE_OK) gives(s, "%s", data ? data : "(null)");
  zke_free(data);
  return rc;
}

static const step_verb usual[] = {
    VERB(begins),     VERB(waits),   VERB(still),   VERB(returns),
    VERB(cancels),    VERB(cancel),  VERB(free),    VERB(expires),
    VERB(fails),      VERB(renewed), VERB(wakes),   VERB(hears),
    VERB(dispatches), VERB(all),     VERB(watches), VERB(told),
    VERB(news),       VERB(said),    VERB(create),  VERB(set),
    VERB(ephemeral),  VERB(delete),  VERB(empty),   VERB(entries),
    VERB(children),   VERB(data),    {NULL, NULL}};

static const step_verb *verb_of(step *s) {
  const step_verb *v = recipe->verbs;
  while (v->name && !is_verb(s, v->name)) v++;
  if (!v->name)
    for (v = usual; v->name && !is_verb(s, v->name);) v++;
  ck_step(s, v->name, "no such step");
  return v;
}

/* ------------------------------------------------------------------------
 * A text
 * --------------------------------------------------------------------- */

/* Has this code that name? */
static bool is_code(int rc, const char *name) {
  for (int i = 0; i < 4 && recipe->codes[i].name; i++)
    if (strcmp(recipe->codes[i].name, name) == 0)
      return rc == recipe->codes[i].code;
  return strcmp(zke_error_name(rc) + strlen("ZKE_"), name) == 0;
}

/* Cut the code off the beginning of a text. */
static void cut_code(const char **text, char code[40]) {
  size_t len = strspn(*text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  strcpy(code, "OK");
  if (len < 2 || ((*text)[len] != ' ' && (*text)[len] != '\0')) return;
  snprintf(code, 40, "%.*s", (int)len, *text);
  *text += len + ((*text)[len] == ' ');
}

/* Is this what the step must give? */
static void compare_wanted(const step *s, int rc) {
  const char *wanted = s->wanted ? s->wanted : "";
  char code[40];
  cut_code(&wanted, code);
  ck_step(s, is_code(rc, code), "%s: %s", zke_error_name(rc),
          rc == ZKE_OK ? "" : said);
  if (*wanted)
    ck_step(s, strcmp(s->answer, wanted) == 0, "it is %s", s->answer);
}

static void play_step(const char *text, size_t len) {
  step s;
  parse(&s, text, len);
  const step_verb *v = verb_of(&s);
  find_object(&s);
  act_as(&s);
  int rc = v->take(&s);
  zke_line_act_as(0);
  if (rc != ZKE_OK) snprintf(said, sizeof said, "%s", zke_errmsg());
  compare_wanted(&s, rc);
  if (rc == ZKE_OPERATIONTIMEOUT && s.patience)
    ck_step(&s, zke_now(s.session) >= s.deadline, "it returns too early");
}

/* "ann,bob acks" is a step of each. */
static void play_each(const char *text, size_t len) {
  size_t names = strcspn(text, " ;");
  for (size_t at = 0; at < names;) {
    size_t name = strcspn(text + at, ", ;");
    char one[sizeof((step *)NULL)->text];
    int used = snprintf(one, sizeof one, "%.*s%.*s", (int)name, text + at,
                        (int)(len - names), text + names);
    play_step(one, (size_t)used);
    at += name + 1;
  }
}

void play(const char *script) {
  while (*script) {
    script += strspn(script, " ");
    size_t len = strcspn(script, ";");
    if (len) play_each(script, len);
    script += len + (script[len] == ';');
  }
}

void begin_steps(const step_recipe *of) {
  recipe = of;
  told[0] = said[0] = '\0';
}

static void make_objects(void) {
  for (int i = 0; i < SESSIONS; i++) make_object(i);
}

void open_steps(const step_recipe *of) {
  begin_steps(of);
  open_sessions();
  closes = close_steps;
  make_objects();
}

void open_steps_by(const step_recipe *of, const char *name, const zke_os *os) {
  zke_options o = {.size = sizeof o, .identity = identities[0], .os = os};
  ck_ok(zke_open(name, &o, &z[0]));
  for (int i = 1; i < SESSIONS; i++) {
    o = (zke_options){.size = sizeof o, .identity = identities[i]};
    ck_ok(zke_open_session(z[0], &o, &z[i]));
  }
  begin_steps(of);
  closes = close_steps;
  make_objects();
}

void free_parties(void) {
  for (int i = 0; i < PARTIES; i++) {
    if (party[i]) recipe->free(party[i]);
  }
  memset(party, 0, sizeof party);
}

void close_steps(void) {
  free_parties();
  close_sessions();
}

void play_steps(const step_recipe *of, const char *script) {
  open_steps(of);
  play(script);
  close_steps();
}
