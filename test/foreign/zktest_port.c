/* zktest_port.c - run the C client's tests at another port: to be preloaded
 *
 * The tests contain their server's port, 22181.  This connect() uses
 * ZKTEST_PORT instead, so several servers can be tested at the same time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>

/* If the address has the tests' port, replace it in the copy.  Both address
 * families have the port at the same place. */
static void replace(struct sockaddr_storage *a) {
  struct sockaddr_in *in = (struct sockaddr_in *)a;
  const char *port = getenv("ZKTEST_PORT");
  if (!port || (a->ss_family != AF_INET && a->ss_family != AF_INET6)) return;
  if (in->sin_port == htons(22181)) in->sin_port = htons((uint16_t)atoi(port));
}

int connect(int fd, const struct sockaddr *address, socklen_t size) {
  int (*next)(int, const struct sockaddr *, socklen_t);
  struct sockaddr_storage copy = {0};
  *(void **)&next = dlsym(RTLD_NEXT, "connect");
  if (size > sizeof copy) return next(fd, address, size);
  __builtin_memcpy(&copy, address, size);
  replace(&copy);
  return next(fd, (struct sockaddr *)&copy, size);
}
