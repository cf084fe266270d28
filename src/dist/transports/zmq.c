/* Requests and replies over ZeroMQ: a service is a ROUTER, a peer a DEALER. */
#include "dist/service/requests.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "lockstep/dist.h"

#ifdef LK_HAVE_ZMQ

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

/* LINGER: milliseconds. MOST_BROKEN_OFF: when this many connections of a peer with keys ended during the handshake the
 * keys are to blame; fewer may have ended because the service's process exits. */
enum { LINGER = 1000, KEY_BYTES = 32, MONITOR_TEXT = 64, MOST_BROKEN_OFF = 3 };

/* A longer frame is no request of this project. CurveZMQ adds some bytes. */
static const int64_t most_bytes = LK_MAX_FRAME_BYTES + 64;

struct lk_post {
    void *context;
    bool has_keys;
    lk_keys keys;
    pthread_t zap_thread_id; /* with keys: the thread that authenticates peers */
    void *zap_socket;
    atomic_int peers; /* peers so far, to name their monitors */
};

struct lk_service {
    void *socket;
    int port;
};

struct lk_peer {
    void *socket, *monitor;
    const char *refusal; /* NULL: none known */
    bool has_keys;
    int broken_off; /* connections that ended during the handshake */
    bool is_connected;
    int losses;
};

/* A received message; its lk_mail must come first. */
typedef struct parcel {
    lk_mail mail;
    zmq_msg_t sender; /* the sender of a request */
    zmq_msg_t frames[LK_MAX_FRAMES];
    bool has_sender;
} parcel;

static lk_status zmq_fail(const char *what)
{
    LK_FAIL(LK_ERR_BACKEND, "ZeroMQ: %s: %s", what, zmq_strerror(zmq_errno()));
}

/* --- authentication ----------------------------------------------------------------------------------------------- */

/* A request of ZAP (rfc.zeromq.org/spec/27): version, id, domain, address, identity, mechanism, credentials. */
enum { ZAP_VERSION, ZAP_ID, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_CREDENTIALS, ZAP_FRAMES };

/* Receives a request into frames[ZAP_FRAMES], all of which are then initialized; false: it has more or fewer frames. */
static bool zmq_zap_receive(void *zap_socket, zmq_msg_t *frames)
{
    int n = 0;
    for (bool more = true; more; n++) {
        zmq_msg_t ignored, *frame = n < ZAP_FRAMES ? &frames[n] : &ignored;
        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, zap_socket, 0) < 0) {
            zmq_msg_close(frame);
            break;
        }
        more = zmq_msg_more(frame);
        if (n >= ZAP_FRAMES)
            zmq_msg_close(frame);
    }
    for (int i = n; i < ZAP_FRAMES; i++)
        zmq_msg_init(&frames[i]);
    return n == ZAP_FRAMES;
}

static bool zmq_zap_is_allowed(const lk_post *post, zmq_msg_t *frames, char key[LK_KEY_TEXT])
{
    bool is_curve =
        zmq_msg_size(&frames[ZAP_MECHANISM]) == 5 && memcmp(zmq_msg_data(&frames[ZAP_MECHANISM]), "CURVE", 5) == 0;
    strcpy(key, "none");
    if (!is_curve || zmq_msg_size(&frames[ZAP_CREDENTIALS]) != KEY_BYTES)
        return false;
    zmq_z85_encode(key, zmq_msg_data(&frames[ZAP_CREDENTIALS]), KEY_BYTES);
    return lk__keys_find_name(&post->keys, key) != NULL;
}

static void zmq_zap_answer(void *zap_socket, zmq_msg_t *id, bool allowed, const char *key)
{
    const char *code = allowed ? "200" : "400", *text = allowed ? "" : "this key is not allowed",
               *user = allowed ? key : "";
    zmq_send(zap_socket, "1.0", 3, ZMQ_SNDMORE);
    zmq_msg_send(id, zap_socket, ZMQ_SNDMORE);
    zmq_send(zap_socket, code, 3, ZMQ_SNDMORE);
    zmq_send(zap_socket, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(zap_socket, user, strlen(user), ZMQ_SNDMORE);
    zmq_send(zap_socket, "", 0, 0);
}

static void *zmq_zap_thread(void *argument)
{
    lk_post *post = argument;
    for (;;) {
        zmq_msg_t frames[ZAP_FRAMES];
        char key[LK_KEY_TEXT];
        bool whole = zmq_zap_receive(post->zap_socket, frames);
        if (whole) {
            bool allowed = zmq_zap_is_allowed(post, frames, key);
            if (!allowed)
                lk__log(LK_LOG_WARNING, "a connection from %.*s was refused: its key, %s, is not allowed",
                        (int)zmq_msg_size(&frames[ZAP_ADDRESS]), (const char *)zmq_msg_data(&frames[ZAP_ADDRESS]), key);
            zmq_zap_answer(post->zap_socket, &frames[ZAP_ID], allowed, key);
        }
        bool ended = !whole && zmq_errno() == ETERM;
        for (int i = 0; i < ZAP_FRAMES; i++)
            zmq_msg_close(&frames[i]);
        if (ended)
            break;
    }
    zmq_close(post->zap_socket);
    return NULL;
}

static lk_status zmq_zap_start(lk_post *post)
{
    post->zap_socket = zmq_socket(post->context, ZMQ_REP);
    if (!post->zap_socket || zmq_bind(post->zap_socket, "inproc://zeromq.zap.01") != 0)
        return zmq_fail("who may connect cannot be looked at");
    int error = lk__thread_start(&post->zap_thread_id, zmq_zap_thread, post);
    if (error)
        LK_FAIL(LK_ERR_MEMORY, "ZeroMQ: no thread to look at who connects: %s", strerror(error));
    return LK_OK;
}

/* --- post --------------------------------------------------------------------------------------------------------- */

lk_status lk__post_open(const lk_keys *keys, lk_post **post)
{
    lk_post *made = lk__calloc(1, sizeof *made);
    *post = NULL;
    if (!made)
        return LK_ERR_MEMORY;
    lk_status status = LK_OK;
    atomic_init(&made->peers, 0);
    made->context = zmq_ctx_new();
    if (!made->context)
        status = zmq_fail("no context");
    if (status == LK_OK && keys && !zmq_has("curve"))
        status = lk__fail(LK_ERR_UNSUPPORTED, "this ZeroMQ was built without CURVE: keys cannot be used");
    if (status == LK_OK && keys)
        status = lk__keys_copy(keys, &made->keys);
    if (status == LK_OK && keys)
        status = zmq_zap_start(made);
    made->has_keys = keys && status == LK_OK;
    if (status == LK_OK) {
        *post = made;
        return LK_OK;
    }
    if (made->zap_socket)
        zmq_close(made->zap_socket);
    if (made->context)
        zmq_ctx_term(made->context);
    lk__keys_free(&made->keys);
    lk__free(made);
    return status;
}

void lk__post_release(lk_post *post)
{
    if (!post)
        return;
    if (post->has_keys) {
        zmq_ctx_shutdown(post->context);
        pthread_join(post->zap_thread_id, NULL);
    }
    while (zmq_ctx_term(post->context) != 0 && zmq_errno() == EINTR)
        continue;
    lk__keys_free(&post->keys);
    lk__free(post);
}

lk_status lk__keys_generate(char public_key[LK_KEY_TEXT], char secret_key[LK_KEY_TEXT])
{
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        LK_FAIL(LK_ERR_UNSUPPORTED, "this ZeroMQ was built without CURVE: it makes no keys");
    return LK_OK;
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static lk_status zmq_check_loopback(const lk_post *post, const lk_address *address)
{
    char text[LK_ADDRESS_TEXT];
    lk__address_print(address, text);
    if (!post->has_keys && !address->is_loopback)
        LK_FAIL(LK_ERR_ARGUMENT, "%s is reachable from other machines: that takes --keys, see `lockstep keys`", text);
    return LK_OK;
}

static bool zmq_socket_set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/* Opens a socket without a limit on queued messages: an asker has only one request in flight. */
static lk_status zmq_socket_open(const lk_post *post, const lk_address *address, int type, void **socket)
{
    *socket = zmq_socket(post->context, type);
    bool set = *socket && zmq_socket_set_int(*socket, ZMQ_LINGER, LINGER) &&
               zmq_socket_set_int(*socket, ZMQ_SNDHWM, 0) && zmq_socket_set_int(*socket, ZMQ_RCVHWM, 0) &&
               zmq_socket_set_int(*socket, ZMQ_IPV6, address->is_ipv6) &&
               zmq_socket_set_int(*socket, ZMQ_HEARTBEAT_IVL, 1000 * LK_SILENCE_SECONDS / 6) &&
               zmq_socket_set_int(*socket, ZMQ_HEARTBEAT_TIMEOUT, 1000 * LK_SILENCE_SECONDS) &&
               zmq_setsockopt(*socket, ZMQ_MAXMSGSIZE, &most_bytes, sizeof most_bytes) == 0;
    if (set && post->has_keys)
        set = zmq_setsockopt(*socket, ZMQ_CURVE_SECRETKEY, post->keys.secret_key, LK_KEY_TEXT) == 0;
    return set ? LK_OK : zmq_fail("no socket");
}

/* --- receiving and sending ---------------------------------------------------------------------------------------- */

static void zmq_socket_discard_rest(void *socket)
{
    zmq_msg_t frame;
    for (bool more = true; more;) {
        zmq_msg_init(&frame);
        more = zmq_msg_recv(&frame, socket, 0) >= 0 && zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
}

void lk__mail_release(lk_mail *mail)
{
    parcel *p = (parcel *)mail;
    if (!p)
        return;
    for (int i = 0; i < p->mail.n; i++)
        zmq_msg_close(&p->frames[i]);
    if (p->has_sender)
        zmq_msg_close(&p->sender);
    lk__free(p);
}

static bool zmq_parcel_receive(void *socket, parcel *p)
{
    bool more = true;
    while (more && p->mail.n < LK_MAX_FRAMES) {
        zmq_msg_t *frame = &p->frames[p->mail.n];
        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, socket, 0) < 0) {
            zmq_msg_close(frame);
            return false;
        }
        p->mail.frames[p->mail.n++] = (lk_frame){zmq_msg_data(frame), zmq_msg_size(frame)};
        more = zmq_msg_more(frame);
    }
    if (more)
        zmq_socket_discard_rest(socket);
    return !more;
}

/* Receives a waiting message. A malformed one is dropped: *mail stays NULL. */
static lk_status zmq_socket_take(void *socket, bool has_sender, lk_mail **mail)
{
    parcel *p = lk__calloc(1, sizeof *p);
    if (!p)
        return LK_ERR_MEMORY;
    bool whole = true;
    if (has_sender) {
        zmq_msg_init(&p->sender);
        p->has_sender = true;
        whole = zmq_msg_recv(&p->sender, socket, 0) >= 0 && zmq_msg_more(&p->sender);
    }
    if (whole && zmq_parcel_receive(socket, p)) {
        const char *key = p->mail.n > 0 ? zmq_msg_gets(&p->frames[0], "User-Id") : NULL;
        snprintf(p->mail.key, sizeof p->mail.key, "%s", key ? key : "");
        *mail = &p->mail;
        return LK_OK;
    }
    lk__mail_release(&p->mail);
    return LK_OK;
}

static lk_status zmq_socket_receive(void *socket, int milliseconds, bool has_sender, lk_mail **mail)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    *mail = NULL;
    int n = zmq_poll(&item, 1, milliseconds);
    if (n < 0 && zmq_errno() != EINTR)
        return zmq_fail("nothing can be received");
    return n > 0 ? zmq_socket_take(socket, has_sender, mail) : LK_OK;
}

/* Sends a message. If the receiver has gone it counts as lost on its way, which is no error. */
static lk_status zmq_socket_send(void *socket, const lk_frame *frames, int n)
{
    for (int i = 0; i < n; i++) {
        int sent;
        do
            sent = zmq_send(socket, frames[i].data, frames[i].bytes, i + 1 < n ? ZMQ_SNDMORE : 0);
        while (sent < 0 && zmq_errno() == EINTR);
        if (sent < 0)
            return zmq_errno() == EHOSTUNREACH ? LK_OK : zmq_fail("nothing can be sent");
    }
    return LK_OK;
}

/* --- service ------------------------------------------------------------------------------------------------------ */

static lk_status zmq_service_bind(const lk_post *post, const lk_address *address, lk_service *service)
{
    char text[LK_ADDRESS_TEXT], endpoint[LK_ADDRESS_TEXT + 16];
    size_t size = sizeof endpoint;
    lk__address_print(address, text);
    LK_TRY(zmq_socket_open(post, address, ZMQ_ROUTER, &service->socket));
    if (post->has_keys && !zmq_socket_set_int(service->socket, ZMQ_CURVE_SERVER, 1))
        return zmq_fail("keys cannot be used");
    snprintf(endpoint, sizeof endpoint, "tcp://%s", text);
    if (zmq_bind(service->socket, endpoint) != 0) {
        int error = zmq_errno();
        LK_FAIL(LK_ERR_IO, "%s: cannot listen there: %s", text,
                error == EADDRINUSE ? "another process has taken the port" : zmq_strerror(error));
    }
    if (zmq_getsockopt(service->socket, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0)
        return zmq_fail("a port's number");
    const char *colon = strrchr(endpoint, ':');
    service->port = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    return service->port > 0 ? LK_OK : zmq_fail("a port's number");
}

lk_status lk__service_open(lk_post *post, const lk_address *address, lk_service **service)
{
    *service = NULL;
    LK_TRY(zmq_check_loopback(post, address));
    lk_service *made = lk__calloc(1, sizeof *made);
    if (!made)
        return LK_ERR_MEMORY;
    lk_status status = zmq_service_bind(post, address, made);
    if (status == LK_OK)
        *service = made;
    else
        lk__service_release(made);
    return status;
}

void lk__service_release(lk_service *service)
{
    if (!service)
        return;
    if (service->socket)
        zmq_close(service->socket);
    lk__free(service);
}

int lk__service_port(const lk_service *service)
{
    return service->port;
}

/* Without a free descriptor ZeroMQ accepts nothing more, and those who ask would wait without an answer. */
static lk_status zmq_service_check(const lk_service *service)
{
    char text[32];
    snprintf(text, sizeof text, "port %d", service->port);
    return lk_check_open_files(text, 1);
}

lk_status lk__service_receive(lk_service *service, int milliseconds, lk_mail **mail)
{
    LK_TRY(zmq_socket_receive(service->socket, milliseconds, true, mail));
    return *mail || milliseconds == 0 ? LK_OK : zmq_service_check(service);
}

lk_status lk__service_reply(lk_service *service, const lk_mail *request, const lk_frame *frames, int n)
{
    const parcel *p = (const parcel *)request;
    lk_frame all[LK_MAX_FRAMES + 1] = {{zmq_msg_data((zmq_msg_t *)&p->sender), zmq_msg_size(&p->sender)}};
    memcpy(all + 1, frames, (size_t)n * sizeof *frames);
    return zmq_socket_send(service->socket, all, n + 1);
}

/* --- peer --------------------------------------------------------------------------------------------------------- */

static lk_status zmq_peer_watch(lk_post *post, lk_peer *peer)
{
    char name[MONITOR_TEXT];
    snprintf(name, sizeof name, "inproc://peer-%d", atomic_fetch_add(&post->peers, 1));
    int events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    if (zmq_socket_monitor(peer->socket, name, events) != 0)
        return zmq_fail("a connection cannot be watched");
    peer->monitor = zmq_socket(post->context, ZMQ_PAIR);
    return peer->monitor && zmq_connect(peer->monitor, name) == 0 ? LK_OK : zmq_fail("a connection cannot be watched");
}

static lk_status zmq_peer_connect(lk_post *post, const lk_address *address, const char *key, lk_peer *peer)
{
    char text[LK_ADDRESS_TEXT], endpoint[LK_ADDRESS_TEXT + 16];
    LK_TRY(zmq_socket_open(post, address, ZMQ_DEALER, &peer->socket));
    if (post->has_keys) {
        bool set = key && zmq_setsockopt(peer->socket, ZMQ_CURVE_PUBLICKEY, post->keys.public_key, LK_KEY_TEXT) == 0 &&
                   zmq_setsockopt(peer->socket, ZMQ_CURVE_SERVERKEY, key, LK_KEY_TEXT) == 0;
        if (!set)
            return zmq_fail("keys cannot be used");
    }
    LK_TRY(zmq_peer_watch(post, peer));
    lk__address_print(address, text);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", text);
    return zmq_connect(peer->socket, endpoint) == 0 ? LK_OK : zmq_fail(endpoint);
}

lk_status lk__peer_open(lk_post *post, const lk_address *address, const char *key, lk_peer **peer)
{
    *peer = NULL;
    LK_TRY(zmq_check_loopback(post, address));
    lk_peer *made = lk__calloc(1, sizeof *made);
    if (!made)
        return LK_ERR_MEMORY;
    made->has_keys = post->has_keys;
    lk_status status = zmq_peer_connect(post, address, key, made);
    if (status == LK_OK)
        *peer = made;
    else
        lk__peer_release(made);
    return status;
}

void lk__peer_release(lk_peer *peer)
{
    if (!peer)
        return;
    if (peer->socket) {
        zmq_socket_monitor(peer->socket, NULL, 0);
        zmq_close(peer->socket);
    }
    if (peer->monitor)
        zmq_close(peer->monitor);
    lk__free(peer);
}

lk_status lk__peer_send(lk_peer *peer, const lk_frame *frames, int n)
{
    return zmq_socket_send(peer->socket, frames, n);
}

lk_status lk__peer_receive(lk_peer *peer, int milliseconds, lk_mail **mail)
{
    return zmq_socket_receive(peer->socket, milliseconds, false, mail);
}

static void zmq_peer_take_event(lk_peer *peer, uint16_t event)
{
    bool is_final = event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH || event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
    peer->losses += event == ZMQ_EVENT_DISCONNECTED && peer->is_connected;
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED || event == ZMQ_EVENT_DISCONNECTED)
        peer->is_connected = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    /* A service with keys tells a peer without them. One that only breaks off may be a tunnel without a service yet. */
    peer->broken_off += event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL && peer->has_keys;
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        peer->refusal = "it does not allow this process's key";
    else if (!peer->refusal && (is_final || peer->broken_off >= MOST_BROKEN_OFF))
        peer->refusal = "the two do not agree on keys: its key is another one, or one of them has none";
}

static void zmq_peer_take_events(lk_peer *peer)
{
    lk_mail *mail;
    while (zmq_socket_receive(peer->monitor, 0, false, &mail) == LK_OK && mail) {
        uint16_t event = 0;
        if (mail->n > 0 && mail->frames[0].bytes >= sizeof event)
            memcpy(&event, mail->frames[0].data, sizeof event);
        zmq_peer_take_event(peer, event);
        lk__mail_release(mail);
    }
}

const char *lk__peer_refusal(lk_peer *peer)
{
    zmq_peer_take_events(peer);
    return peer->refusal;
}

int lk__peer_losses(lk_peer *peer)
{
    zmq_peer_take_events(peer);
    return peer->losses;
}

#else

static lk_status zmq_unsupported(void)
{
    LK_FAIL(LK_ERR_UNSUPPORTED, "this build has no ZeroMQ: install libzmq3-dev and build again");
}

lk_status lk__post_open(const lk_keys *keys, lk_post **post)
{
    (void)keys;
    *post = NULL;
    return zmq_unsupported();
}

lk_status lk__keys_generate(char public_key[LK_KEY_TEXT], char secret_key[LK_KEY_TEXT])
{
    *public_key = *secret_key = '\0';
    return zmq_unsupported();
}

/* Never called, since there is no post. */

void lk__post_release(lk_post *post)
{
    (void)post;
}

void lk__mail_release(lk_mail *mail)
{
    (void)mail;
}

lk_status lk__service_open(lk_post *post, const lk_address *address, lk_service **service)
{
    (void)post, (void)address, (void)service;
    return zmq_unsupported();
}

void lk__service_release(lk_service *service)
{
    (void)service;
}

int lk__service_port(const lk_service *service)
{
    (void)service;
    return 0;
}

lk_status lk__service_receive(lk_service *service, int milliseconds, lk_mail **mail)
{
    (void)service, (void)milliseconds, (void)mail;
    return zmq_unsupported();
}

lk_status lk__service_reply(lk_service *service, const lk_mail *request, const lk_frame *frames, int n)
{
    (void)service, (void)request, (void)frames, (void)n;
    return zmq_unsupported();
}

lk_status lk__peer_open(lk_post *post, const lk_address *address, const char *key, lk_peer **peer)
{
    (void)post, (void)address, (void)key, (void)peer;
    return zmq_unsupported();
}

void lk__peer_release(lk_peer *peer)
{
    (void)peer;
}

lk_status lk__peer_send(lk_peer *peer, const lk_frame *frames, int n)
{
    (void)peer, (void)frames, (void)n;
    return zmq_unsupported();
}

lk_status lk__peer_receive(lk_peer *peer, int milliseconds, lk_mail **mail)
{
    (void)peer, (void)milliseconds, (void)mail;
    return zmq_unsupported();
}

const char *lk__peer_refusal(lk_peer *peer)
{
    (void)peer;
    return NULL;
}

int lk__peer_losses(lk_peer *peer)
{
    (void)peer;
    return 0;
}

#endif
