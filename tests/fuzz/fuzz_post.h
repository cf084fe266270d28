/* A post office for targets of the parameter server. It takes the place of dist/transports/zmq.c: the functions of
 * dist/service/requests.h deliver the messages of the input, each to the service or to one of the process's peers. It
 * also takes the place of the clock, so that waiting takes no time.
 *
 * An input is a sequence of messages:
 *
 *     to      1 byte     0: the service; 1 … 7: the peer opened as number `to`; FUZZ_WAIT: no message, time passes
 *     flags   1 byte     FUZZ_RAW, FUZZ_OWN_NUMBER
 *     kind    1 byte     lk_ps_kind
 *     number  1 byte     number of the request
 *     n       1 byte     frames
 *     n times:
 *       given 2 bytes    little-endian; bytes that follow
 *       size  2 bytes    little-endian; the frame's size: bytes are cut, or zeros appended
 *       bytes
 *
 * Unless a message is raw, its first frame is the structure of its kind: it gets a valid header, and its size is made
 * right. The answer to a peer gets the number of the peer's last request, unless the message has its own. */
#pragma once

#include "fuzz.h"

enum { FUZZ_WAIT = 255, FUZZ_RAW = 1, FUZZ_OWN_NUMBER = 2 };

/* Begins an input. The calling thread is the main one. on_dry: called on this thread, with `user`, when it waits for a
 * message and none is left for it. */
void fuzz_post_load(const uint8_t *data, size_t size, void (*on_dry)(void *user), void *user);

/* Frames of this input that are `text` become data[0 … bytes), which must stay valid. Such data are too long for
 * inputs.
 */
void fuzz_post_replace(const char *text, const void *data, size_t bytes);

/* Waits until another thread has received all messages to the service. */
void fuzz_post_wait_until_dry(void);
