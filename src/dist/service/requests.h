/* Requests and replies between processes that come and go: a service answers anyone who asks, a peer asks one service.
 * A message is a few frames of bytes and arrives complete or not at all; a frame that is too long breaks its connection
 * off. Messages to a process that has died are lost, so askers wait with a time limit and ask again.
 *
 * With keys every connection is encrypted, and only peers whose public keys are listed may connect (CurveZMQ,
 * rfc.zeromq.org/spec/26). Without keys a service is reachable only on the loopback interface.
 *
 * A service or peer belongs to one thread at a time; a post may be shared. */
#pragma once

#include "dist/service/address.h"
#include "dist/service/keys.h"

#include <stddef.h>

enum { LK_MAX_FRAMES = 8 };
#define LK_MAX_FRAME_BYTES (INT64_C(1) << 32)

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

/* The context that all services and peers of a process share: the threads that send and receive, and the allowed keys.
 */
typedef struct lk_post lk_post;

/* keys NULL: no keys; else they are copied. Errors: LK_ERR_UNSUPPORTED (a build without ZeroMQ), LK_ERR_BACKEND. */
lk_status lk__post_open(const lk_keys *keys, lk_post **post);

/* Release its services and peers first. Waits at most a second for messages still to be sent. */
void lk__post_release(lk_post *post);

/* Makes a new pair of keys. Errors: LK_ERR_UNSUPPORTED (no ZeroMQ, or one without CURVE). */
lk_status lk__keys_generate(char public_key[LK_KEY_TEXT], char secret_key[LK_KEY_TEXT]);

typedef struct lk_service lk_service;

/* Listens at the address; port 0: any free port. Errors: LK_ERR_IO (the port is taken, or the host is not this
 * machine), LK_ERR_ARGUMENT (not loopback, and no keys). */
lk_status lk__service_open(lk_post *post, const lk_address *address, lk_service **service);
void lk__service_release(lk_service *service);
int lk__service_port(const lk_service *service);

/* Receives the next request, for the caller to release; *mail NULL: none came in time. Messages that are not from a
 * peer of this project are dropped. Errors: LK_ERR_IO (too many files are open to accept another connection), not if
 * milliseconds is 0. */
lk_status lk__service_receive(lk_service *service, int milliseconds, lk_mail **mail);

/* Answers a request, at any time. The answer is dropped without an error if the sender has gone. Frames are copied. */
lk_status lk__service_reply(lk_service *service, const lk_mail *request, const lk_frame *frames, int n);

typedef struct lk_peer lk_peer;

/* Connects, now or as soon as somebody listens there. key: the service's public key; NULL without keys. Errors:
 * LK_ERR_ARGUMENT (not loopback, and no keys). */
lk_status lk__peer_open(lk_post *post, const lk_address *address, const char *key, lk_peer **peer);
void lk__peer_release(lk_peer *peer);

lk_status lk__peer_send(lk_peer *peer, const lk_frame *frames, int n);
lk_status lk__peer_receive(lk_peer *peer, int milliseconds, lk_mail **mail);

/* The reason why the service refuses this peer's connection, as far as it is known; NULL: it has not refused. */
const char *lk__peer_refusal(lk_peer *peer);

/* How often a connection has ended, because the other process has, or nothing has come from its machine for
 * LK_SILENCE_SECONDS. It is made again if somebody listens there. */
int lk__peer_losses(lk_peer *peer);
enum { LK_SILENCE_SECONDS = 60 };
