/* Requests and replies between processes that come and go: a service answers whoever asks, a peer asks one service.
 * Messages are a few frames of bytes and arrive whole or not at all; what was sent to a process that has died is lost,
 * so whoever asks waits with a time limit and asks again.
 *
 * With keys every connection is encrypted, and only those whose public keys are listed get through (CurveZMQ,
 * rfc.zeromq.org/spec/26). Without them a service is reachable on the loopback interface alone.
 *
 * Services and peers belong to one thread at a time; a post may be shared. */
#ifndef LK_DIST_REQUESTS_H
#define LK_DIST_REQUESTS_H

#include "dist/address.h"
#include "dist/keys.h"

#include <stddef.h>

enum { LK_MAX_FRAMES = 8 };

typedef struct lk_frame {
    const void *data;
    size_t bytes;
} lk_frame;

/* A message that has arrived. */
typedef struct lk_mail {
    int n;
    lk_frame frames[LK_MAX_FRAMES];
    char key[LK_KEY_TEXT]; /* the sender's public key; "" without keys */
} lk_mail;

void lk__mail_release(lk_mail *mail); /* NULL is fine */

/* What services and peers of a process have in common: threads that send and receive, and who may connect. */
typedef struct lk_post lk_post;

/* keys NULL: none. Keeps a copy. Errors: LK_ERR_UNSUPPORTED (a build without ZeroMQ), LK_ERR_BACKEND. */
lk_status lk__post_open(const lk_keys *keys, lk_post **post);

/* Its services and peers have gone before. Waits a second at most for what is still to be sent. */
void lk__post_release(lk_post *post);

/* A new pair of keys. Errors: LK_ERR_UNSUPPORTED (no ZeroMQ, or one without CURVE). */
lk_status lk__keys_generate(char public_key[LK_KEY_TEXT], char secret_key[LK_KEY_TEXT]);

typedef struct lk_service lk_service;

/* Listens at the address; port 0: at any free one. Errors: LK_ERR_IO (the port is taken, the host is not this machine),
 * LK_ERR_ARGUMENT (not loopback, and no keys). */
lk_status lk__service_open(lk_post *post, const lk_address *address, lk_service **service);
void lk__service_release(lk_service *service);
int lk__service_port(const lk_service *service);

/* The next request, to be released; *mail NULL: none within the time. Messages that no peer of this project sends are
 * dropped. */
lk_status lk__service_receive(lk_service *service, int milliseconds, lk_mail **mail);

/* Answers a request, now or later. One whose sender has gone is lost without an error. Frames are copied. */
lk_status lk__service_reply(lk_service *service, const lk_mail *request, const lk_frame *frames, int n);

typedef struct lk_peer lk_peer;

/* Connects, now or once somebody listens there. key: the service's public key; NULL without keys. Errors:
 * LK_ERR_ARGUMENT (not loopback, and no keys). */
lk_status lk__peer_open(lk_post *post, const lk_address *address, const char *key, lk_peer **peer);
void lk__peer_release(lk_peer *peer);

lk_status lk__peer_send(lk_peer *peer, const lk_frame *frames, int n);
lk_status lk__peer_receive(lk_peer *peer, int milliseconds, lk_mail **mail);

/* Why the service does not let this peer in, as far as it says so; NULL: it has not refused. */
const char *lk__peer_refusal(lk_peer *peer);

#endif
