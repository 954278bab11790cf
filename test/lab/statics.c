/* statics.c - static variables that change and are not named
 *
 * states are compared by the memory named to zke_lab_state(), so a static
 * variable that a process changes must be named.  Every picture has all of
 * them.  So at the end of a schedule this can report, by their names in the
 * program's symbol table, those that differ from its beginning. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "world.h"

extern char __data_start[], _end[];

/* The linker collects the laboratory's own variables, the engine's and the
 * recipes' in these sections. */
extern char __start_lab_data[] __attribute__((weak));
extern char __stop_lab_data[] __attribute__((weak));
extern char __start_lab_thread[], __stop_lab_thread[];

/* If an address is in a range that need not be named, the end of that; NULL: it
 * is the test's. */
static const char *range_end(const zke_lab *lab, const char *at) {
  if (at >= __start_lab_data && at < __stop_lab_data) return __stop_lab_data;
  if (at >= __start_lab_thread && at < __stop_lab_thread)
    return __stop_lab_thread;
  for (int i = 0; i < lab->state_count; i++) {
    const lab_memory *m = &lab->states[i];
    if (at >= m->at && at < m->at + m->size) return m->at + m->size;
  }
  return NULL;
}

/* The first byte from `at` on that differs; _end: none. */
static const char *find_changed(const char *was, const char *at) {
  enum { BLOCK = 256 };
  while (_end - at > BLOCK && memcmp(at, was + (at - __data_start), BLOCK) == 0)
    at += BLOCK;
  while (at < _end && *at == was[at - __data_start]) at++;
  return at;
}

/* The variable at an address, from a symbol table in memory. */
static const char *table_find(const char *file, const Elf64_Shdr *table,
                              const Elf64_Shdr *names, const char *at) {
  const Elf64_Sym *s = (const void *)(file + table->sh_offset);
  size_t count = table->sh_size / sizeof *s;
  const char *text = file + names->sh_offset, *base = NULL;
  for (size_t i = 0; i < count && !base; i++) {
    if (strcmp(text + s[i].st_name, "_end") == 0) base = _end - s[i].st_value;
  }
  for (size_t i = 0; i < count && base; i++) {
    bool is_object = ELF64_ST_TYPE(s[i].st_info) == STT_OBJECT;
    size_t offset = (size_t)(at - base) - s[i].st_value;
    if (is_object && offset < s[i].st_size) return text + s[i].st_name;
  }
  return NULL;
}

/* Its name, from the program's file; NULL: the file has no symbols. */
static const char *file_find(const char *file, const char *at) {
  const Elf64_Ehdr *head = (const void *)file;
  const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
  for (int i = 0; i < head->e_shnum; i++) {
    if (sections[i].sh_type == SHT_SYMTAB)
      return table_find(file, &sections[i], &sections[sections[i].sh_link], at);
  }
  return NULL;
}

static void name_it(const char *at, char *out, size_t size) {
  struct stat stat = {0};
  int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  snprintf(out, size, "%ld bytes behind __data_start", at - __data_start);
  if (fd < 0) return;
  (void)fstat(fd, &stat);
  void *file = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  (void)close(fd);
  if (file == MAP_FAILED) return;
  const char *name = file_find(file, at);
  if (name) snprintf(out, size, "%s", name);
  munmap(file, (size_t)stat.st_size);
}

void statics_check(zke_lab *lab) {
  const char *was = arena_statics(&lab->first);
  const char *at = __data_start;
  if (!was || lab->unnamed[0]) return;
  while ((at = find_changed(was, at)) < _end) {
    const char *end = range_end(lab, at);
    if (!end) {
      name_it(at, lab->unnamed, sizeof lab->unnamed);
      return;
    }
    at = end;
  }
}
