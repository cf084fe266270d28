/* Sends messages over ZeroMQ to a service, or to a peer if the first byte of the input is odd, and decodes them. The
 * rest of the input is messages: a byte with the number of frames, and for each frame a byte with its size and its
 * bytes. */
#include "fuzz.h"

#include "dist/service/wire.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

enum { MOST_FRAMES = 12, SOON = 10000 /* ms: time limit for a message that must come */ };

static struct {
    lk_post *post;
    lk_service *service;
    lk_peer *peer;
    void *to_service, *to_peer; /* sockets that know nothing of lk_mail */
    zmq_msg_t name;             /* by which to_peer knows the peer */
} net;

static void make(void)
{
    static const char hello[] = "hello";
    const lk_frame greeting = {hello, sizeof hello};
    lk_address address = {.numeric = "127.0.0.1", .is_loopback = true};
    char endpoint[64];
    size_t size = sizeof endpoint;
    void *context = zmq_ctx_new();
    FUZZ_CHECK(lk__post_open(NULL, &net.post) == LK_OK && lk__service_open(net.post, &address, &net.service) == LK_OK);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", lk__service_port(net.service));
    net.to_service = zmq_socket(context, ZMQ_DEALER);
    FUZZ_CHECK(zmq_connect(net.to_service, endpoint) == 0);
    net.to_peer = zmq_socket(context, ZMQ_ROUTER);
    FUZZ_CHECK(zmq_bind(net.to_peer, "tcp://127.0.0.1:*") == 0);
    FUZZ_CHECK(zmq_getsockopt(net.to_peer, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0);
    address.port = (int)strtol(strrchr(endpoint, ':') + 1, NULL, 10);
    FUZZ_CHECK(lk__peer_open(net.post, &address, NULL, &net.peer) == LK_OK);
    FUZZ_CHECK(lk__peer_send(net.peer, &greeting, 1) == LK_OK);
    zmq_msg_init(&net.name);
    FUZZ_CHECK(zmq_msg_recv(&net.name, net.to_peer, 0) >= 0);
    FUZZ_CHECK(zmq_recv(net.to_peer, endpoint, sizeof endpoint, 0) == sizeof hello);
}

static void send_frames(bool to_peer, const lk_frame *frames, int n)
{
    void *socket = to_peer ? net.to_peer : net.to_service;
    if (to_peer)
        FUZZ_CHECK(zmq_send(socket, zmq_msg_data(&net.name), zmq_msg_size(&net.name), ZMQ_SNDMORE) >= 0);
    for (int i = 0; i < n; i++)
        FUZZ_CHECK(zmq_send(socket, frames[i].data, frames[i].bytes, i + 1 < n ? ZMQ_SNDMORE : 0) >= 0);
}

static void decode(const lk_mail *mail)
{
    static const size_t sizes[] = {0, 8, 24, 40, 64, 80, 184, 200};
    lk_wire_header header;
    unsigned char body[256];
    char text[16];
    if (!fuzz_went_well(lk__wire_header(mail, &header)))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fuzz_went_well(lk__wire_body(mail, header.kind, "any", body, sizes[i], 0, (int)i));
    for (int i = 0; i < LK_MAX_FRAMES; i++) {
        const void *data;
        size_t bytes = i + 1 < mail->n ? mail->frames[i + 1].bytes : 0;
        FUZZ_CHECK(fuzz_went_well(lk__wire_frame(mail, i, "any", bytes, &data)) == (i + 1 < mail->n));
        lk__wire_text(mail, i, text, sizeof text);
        FUZZ_CHECK(strlen(text) <= bytes && strlen(text) < sizeof text && !strpbrk(text, "\n\033\177"));
    }
}

/* Messages come as they were sent, but for those of too many frames. A signal, such as libFuzzer's clock, ends a wait
 * early.
 */
static void receive(bool to_peer, const lk_frame *frames, int n)
{
    lk_mail *mail = NULL;
    for (int waits = n > LK_MAX_FRAMES ? 1 : 3; waits > 0 && !mail; waits--) {
        lk_status status =
            to_peer ? lk__peer_receive(net.peer, SOON, &mail) : lk__service_receive(net.service, SOON, &mail);
        FUZZ_CHECK(fuzz_went_well(status));
    }
    FUZZ_CHECK(!mail == (n > LK_MAX_FRAMES));
    if (!mail)
        return;
    FUZZ_CHECK(mail->n == n);
    for (int i = 0; i < n; i++)
        FUZZ_CHECK(mail->frames[i].bytes == frames[i].bytes &&
                   (frames[i].bytes == 0 || memcmp(mail->frames[i].data, frames[i].data, frames[i].bytes) == 0));
    decode(mail);
    if (!to_peer) {
        FUZZ_CHECK(lk__service_reply(net.service, mail, mail->frames, mail->n) == LK_OK);
        for (int i = 0, more = 1; more; i++) {
            char bytes[256];
            size_t size = sizeof more;
            int got;
            do /* a signal, again */
                got = zmq_recv(net.to_service, bytes, sizeof bytes, 0);
            while (got < 0 && errno == EINTR);
            FUZZ_CHECK(i < n && got == (int)frames[i].bytes);
            FUZZ_CHECK(zmq_getsockopt(net.to_service, ZMQ_RCVMORE, &more, &size) == 0 && more == (i + 1 < n));
        }
    }
    lk__mail_release(mail);
}

/* Reads the frames of a message; returns where the next one begins, or NULL. */
static const uint8_t *take(const uint8_t *at, const uint8_t *end, lk_frame *frames, int *n)
{
    if (at == end)
        return NULL;
    *n = *at++ % MOST_FRAMES + 1;
    for (int i = 0; i < *n; i++) {
        if (at == end || end - at - 1 < *at)
            return NULL;
        frames[i] = (lk_frame){at + 1, *at};
        at += 1 + *at;
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_frame frames[MOST_FRAMES];
    int n;
    if (!net.service)
        make();
    if (size < 1)
        return 0;
    bool to_peer = data[0] % 2;
    for (const uint8_t *at = data + 1; (at = take(at, data + size, frames, &n));) {
        send_frames(to_peer, frames, n);
        receive(to_peer, frames, n);
    }
    return 0;
}
