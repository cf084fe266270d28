/* Requests and replies over loopback, with keys and without. */
#include "dist/service/requests.h"

#include "lockstep/build.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { SOON = 60000, A_WHILE = 300 }; /* ms; SOON: limit for messages that must come */

static lk_address loopback(int port)
{
    return (lk_address){.numeric = "127.0.0.1", .port = port, .is_loopback = true};
}

static void ok(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s", lk_error_message());
}

static lk_keys keys_of(lk_allowed_key *allowed, int n)
{
    lk_keys keys = {.allowed = allowed, .n = n};
    ok(lk__keys_generate(keys.public_key, keys.secret_key));
    return keys;
}

static void ask(lk_peer *peer, const char *text)
{
    lk_frame frames[] = {{"question", 8}, {text, strlen(text)}};
    ok(lk__peer_send(peer, frames, 2));
}

static void is_text(lk_frame frame, const char *text)
{
    assert_int_equal(frame.bytes, strlen(text));
    assert_memory_equal(frame.data, text, frame.bytes);
}

static void replies_reach_those_who_asked(void **state)
{
    (void)state;
    lk_post *post;
    lk_service *service;
    lk_peer *peers[2];
    lk_mail *requests[2], *mail;
    lk_address address = loopback(0);
    ok(lk__post_open(NULL, &post));
    ok(lk__service_open(post, &address, &service));
    address.port = lk__service_port(service);
    for (int i = 0; i < 2; i++) {
        ok(lk__peer_open(post, &address, NULL, &peers[i]));
        ask(peers[i], i ? "one" : "");
        ok(lk__service_receive(service, SOON, &requests[i]));
        assert_non_null(requests[i]);
        assert_int_equal(requests[i]->n, 2);
        is_text(requests[i]->frames[1], i ? "one" : "");
        assert_string_equal(requests[i]->key, "");
    }
    for (int i = 1; i >= 0; i--) { /* not in the order in which they came */
        lk_frame reply = {i ? "to one" : "to zero", i ? 6 : 7};
        ok(lk__service_reply(service, requests[i], &reply, 1));
        lk__mail_release(requests[i]);
    }
    for (int i = 0; i < 2; i++) {
        ok(lk__peer_receive(peers[i], SOON, &mail));
        assert_non_null(mail);
        is_text(mail->frames[0], i ? "to one" : "to zero");
        lk__mail_release(mail);
        assert_null(lk__peer_refusal(peers[i]));
        lk__peer_release(peers[i]);
    }
    ok(lk__service_receive(service, 10, &mail));
    assert_null(mail);
    lk__service_release(service);
    lk__post_release(post);
}

static void too_many_frames_are_dropped(void **state)
{
    (void)state;
    lk_post *post;
    lk_service *service;
    lk_peer *peer;
    lk_mail *mail;
    lk_frame frames[LK_MAX_FRAMES + 1];
    lk_address address = loopback(0);
    ok(lk__post_open(NULL, &post));
    ok(lk__service_open(post, &address, &service));
    address.port = lk__service_port(service);
    ok(lk__peer_open(post, &address, NULL, &peer));
    for (int i = 0; i < LK_MAX_FRAMES + 1; i++)
        frames[i] = (lk_frame){"x", 1};
    ok(lk__peer_send(peer, frames, LK_MAX_FRAMES + 1));
    ok(lk__service_receive(service, SOON, &mail));
    assert_null(mail);
    ask(peer, "next");
    ok(lk__service_receive(service, SOON, &mail));
    assert_non_null(mail);
    is_text(mail->frames[1], "next");
    lk__mail_release(mail);
    lk__peer_release(peer);
    lk__service_release(service);
    lk__post_release(post);
}

static void a_taken_port_and_open_doors_are_refused(void **state)
{
    (void)state;
    lk_post *post;
    lk_service *service, *second;
    lk_peer *peer;
    char message[128];
    lk_address address = loopback(0), elsewhere = {.numeric = "192.0.2.1", .port = 4000};
    ok(lk__post_open(NULL, &post));
    ok(lk__service_open(post, &address, &service));
    address.port = lk__service_port(service);
    assert_int_equal(lk__service_open(post, &address, &second), LK_ERR_IO);
    snprintf(message, sizeof message, "127.0.0.1:%d: cannot listen there: another process has taken the port",
             address.port);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
    assert_int_equal(lk__service_open(post, &elsewhere, &second), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(),
                        "192.0.2.1:4000 is reachable from other machines: that takes --keys, see `lockstep keys`");
    lk_error_clear();
    assert_int_equal(lk__peer_open(post, &elsewhere, NULL, &peer), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk__service_release(service);
    lk__post_release(post);
}

/* A service with keys, and a peer with different ones. */
static void try_keys(const lk_keys *of_service, const lk_keys *of_peer, const char *service_key, bool gets_through)
{
    lk_post *here, *there;
    lk_service *service;
    lk_peer *peer;
    lk_mail *mail;
    lk_address address = loopback(0);
    ok(lk__post_open(of_service, &here));
    ok(lk__post_open(of_peer, &there));
    ok(lk__service_open(here, &address, &service));
    address.port = lk__service_port(service);
    ok(lk__peer_open(there, &address, service_key, &peer));
    ask(peer, "let me in");
    ok(lk__service_receive(service, gets_through ? SOON : A_WHILE, &mail));
    assert_int_equal(mail != NULL, gets_through);
    if (mail)
        assert_string_equal(mail->key, of_peer->public_key);
    lk__mail_release(mail);
    lk__peer_release(peer);
    lk__service_release(service);
    lk__post_release(there);
    lk__post_release(here);
}

static void only_listed_keys_get_through(void **state)
{
    (void)state;
    lk_allowed_key allowed[2] = {{.name = "chief"}, {.name = "worker"}};
    lk_keys service = keys_of(allowed, 2), peer = keys_of(allowed, 2), stranger = keys_of(allowed, 2);
    strcpy(allowed[0].key, service.public_key);
    strcpy(allowed[1].key, peer.public_key);
    try_keys(&service, &peer, service.public_key, true);
    try_keys(&service, &stranger, service.public_key, false);
    try_keys(&service, &peer, stranger.public_key, false);
    try_keys(&service, NULL, NULL, false);
    assert_string_equal(lk__keys_find_name(&service, peer.public_key), "worker");
    assert_null(lk__keys_find_name(&service, stranger.public_key));
}

static void a_refused_peer_is_told(void **state)
{
    (void)state;
    lk_post *here, *there;
    lk_service *service;
    lk_peer *peer;
    const char *refusal = NULL;
    lk_keys own = keys_of(NULL, 0), stranger = keys_of(NULL, 0);
    lk_address address = loopback(0);
    ok(lk__post_open(&own, &here));
    ok(lk__post_open(&stranger, &there));
    ok(lk__service_open(here, &address, &service));
    address.port = lk__service_port(service);
    ok(lk__peer_open(there, &address, own.public_key, &peer));
    for (int looks = 0; looks < SOON / 10 && !refusal; looks++) {
        lk_mail *mail;
        ok(lk__service_receive(service, 10, &mail));
        assert_null(mail);
        refusal = lk__peer_refusal(peer);
    }
    assert_non_null(refusal);
    assert_string_equal(refusal, "it does not allow this process's key");
    lk__peer_release(peer);
    lk__service_release(service);
    lk__post_release(there);
    lk__post_release(here);
}

/* As if a process ended while somebody connects to it, and another one replaced it; or as a tunnel does while there is
 * no process behind it. */
static void a_connection_that_breaks_off_is_no_refusal(void **state)
{
    (void)state;
    lk_post *post;
    lk_service *service;
    lk_peer *peer;
    lk_mail *mail;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&where, &size), 0);
    assert_int_equal(listen(listener, 1), 0);
    lk_address address = loopback(ntohs(where.sin_port));
    ok(lk__post_open(NULL, &post));
    ok(lk__peer_open(post, &address, NULL, &peer));
    for (int tries = 0; tries < 4; tries++) {
        int connection = accept(listener, NULL, NULL);
        assert_true(connection >= 0);
        close(connection);
    }
    close(listener);
    ok(lk__service_open(post, &address, &service));
    ask(peer, "anybody there");
    ok(lk__service_receive(service, SOON, &mail));
    assert_non_null(mail);
    lk__mail_release(mail);
    assert_null(lk__peer_refusal(peer));
    lk__peer_release(peer);
    lk__service_release(service);
    lk__post_release(post);
}

/* The limit leaves no descriptor for a connection that the service would accept. */
static void a_service_says_that_it_can_accept_nothing_more(void **state)
{
    (void)state;
    lk_post *post;
    lk_service *service;
    lk_mail *mail;
    lk_address address = loopback(0);
    struct rlimit before, low;
    ok(lk__post_open(NULL, &post));
    ok(lk__service_open(post, &address, &service));
    ok(lk__service_receive(service, 0, &mail));
    int last = dup(0);
    assert_true(last >= 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)last + 1; /* it had the lowest free number */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    lk_status status = lk__service_receive(service, A_WHILE, &mail);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, LK_ERR_IO);
    assert_non_null(strstr(lk_error_message(), ": has to open 1 more file, and 0 of the "));
    lk_error_clear();
    close(last);
    ok(lk__service_receive(service, 0, &mail));
    lk__service_release(service);
    lk__post_release(post);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_reach_those_who_asked),
        cmocka_unit_test(too_many_frames_are_dropped),
        cmocka_unit_test(a_taken_port_and_open_doors_are_refused),
        cmocka_unit_test(only_listed_keys_get_through),
        cmocka_unit_test(a_refused_peer_is_told),
        cmocka_unit_test(a_connection_that_breaks_off_is_no_refusal),
        cmocka_unit_test(a_service_says_that_it_can_accept_nothing_more),
    };
    if (!lk_build_has("ZeroMQ")) {
        puts("SKIP: this build has no ZeroMQ");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
