/* peer.h - a server and a connection to it, for programs that outlive failures
 *
 * Like wire.h, but nothing here fails a test: the caller is told that a server
 * is gone, closed the connection or is silent, and decides.
 *
 *     peer p;
 *     if (peer_dial(&p, port)) {
 *       peer_begin(&p);
 *       zke_jute_write(&p.out, &zke_jute_of_request_header, &head);
 *       peer_end(&p);
 *       peer_send(&p);
 *       zke_jute_reader frame;
 *       if (peer_next(&p, 1000, &frame) == PEER_FRAME) …
 *     }
 *     peer_hang_up(&p);
 */
#ifndef ZKE_TEST_PEER_H
#define ZKE_TEST_PEER_H

#include <stdbool.h>
#include <sys/types.h>

#include "recipes/engine/jute.h"

/* Start "zke FILE serve --port 0 --print-port OPTION…", which dies with the
 * caller; NULL ends the options.  Returns its process, and its port as soon as
 * it listens; 0: it did not start. */
pid_t peer_serve(const char *program, const char *file,
                 const char *const options[], int *port);

/* One connection.  Write requests to `out`. */
typedef struct peer {
  int fd;
  zke_jute_writer out;
  size_t begun; /* start of the frame that is being written */
  char *in;     /* received bytes; frames up to `at` were given away */
  size_t at, len, size;
} peer;

/* Connect, and send nothing; false: nobody listens. */
bool peer_dial(peer *p, int port);
void peer_hang_up(peer *p); /* a second call does nothing */

void peer_begin(peer *p); /* a frame */
void peer_end(peer *p);   /* of the frame */
bool peer_send(peer *p);  /* all frames; false: the server is gone */

enum { PEER_FRAME, PEER_CLOSED, PEER_SILENT };

/* The next frame within the time.  It is valid until the next call; the caller
 * frees its reader. */
int peer_next(peer *p, int timeout_ms, zke_jute_reader *frame);

#endif
