/* Receives messages from processes that were started one by one. The functions of dist/service/requests.h here deliver
 * what the input says, and waiting takes no time.
 *
 * The first byte is odd if the other two ranks have joined. Then come pieces; the first byte of each is
 *
 *     0: this rank begins to receive; channel, other rank, bytes
 *     1: a message; rank, channel, flags, frames, bytes of the last frame, and these bytes
 *     2: a greeting; rank, flags
 *     3: a message of other contents; bytes of its only frame, and these bytes */
#include "fuzz.h"

#include "base/clock.h"
#include "dist/service/network_messages.h"
#include "dist/service/requests.h"
#include "dist/service/wire.h"

#include <string.h>

enum { RANKS = 3, RECEIVES = 16, GREETING = 64, MESSAGE, LARGE_GREETING = 40, LARGE_HEAD = 24 };
enum { OTHER_SESSION = 1, NOT_HEARD = 2, OTHER_CLUSTER = 4, OTHER_RANKS = 8, IS_HEARD = 16, OTHER_NUMBER = 32 };

struct lk_post {
    int unused;
};
struct lk_service {
    int unused;
};
struct lk_peer {
    int unused;
};

static const uint8_t *at, *end;
static uint64_t session, cluster, numbers[RANKS]; /* of this process; of the ranks' next messages */
static int greetings;                             /* that still come by themselves */
static double now;
static int sent;

/* --- the input ---------------------------------------------------------------------------------------------------- */

static int next(void)
{
    return at < end ? *at++ : 0;
}

/* Mail that owns exact copies of its frames. */
static lk_mail *mail_new(int n)
{
    lk_mail *mail = calloc(1, sizeof *mail);
    FUZZ_CHECK(mail);
    mail->n = n;
    return mail;
}

static void mail_set(lk_mail *mail, int i, const void *first, size_t bytes, const void *rest, size_t more)
{
    char *copy = malloc(bytes + more + 1);
    FUZZ_CHECK(copy);
    if (bytes > 0)
        memcpy(copy, first, bytes);
    if (more > 0)
        memcpy(copy + bytes, rest, more);
    mail->frames[i] = (lk_frame){copy, bytes + more};
}

static lk_wire_header header_of(int kind)
{
    return (lk_wire_header){LK_WIRE_MAGIC, LK_WIRE_VERSION, (uint16_t)kind, 0};
}

static uint64_t session_of(int rank, int flags)
{
    return (uint64_t)rank + (flags & OTHER_SESSION ? 100 : 10);
}

static lk_mail *greeting_of(int rank, int flags)
{
    unsigned char body[LARGE_GREETING] = {0};
    lk_wire_header header = header_of(GREETING);
    uint64_t from = session_of(rank, flags), heard = flags & NOT_HEARD ? 0 : session,
             of = flags & OTHER_CLUSTER ? 1 : cluster;
    int32_t numbers_of[] = {(int8_t)rank, flags & OTHER_RANKS ? 7 : RANKS, (flags & IS_HEARD) != 0};
    memcpy(body, &from, 8);
    memcpy(body + 8, &heard, 8);
    memcpy(body + 16, &of, 8);
    memcpy(body + 24, numbers_of, sizeof numbers_of);
    lk_mail *mail = mail_new(1);
    mail_set(mail, 0, &header, sizeof header, body, sizeof body);
    return mail;
}

static lk_mail *message_of(int rank, int channel, int flags, int frames, size_t bytes)
{
    unsigned char body[LARGE_HEAD] = {0};
    lk_wire_header header = header_of(MESSAGE);
    uint64_t from = session_of(rank, flags), *count = rank >= 0 && rank < RANKS ? &numbers[rank] : NULL;
    uint64_t number = count ? *count + (flags & OTHER_NUMBER ? 1 : 0) : 0;
    int32_t rest[] = {rank, (int8_t)channel};
    if (count && frames % 3 == 1 && !(flags & (OTHER_SESSION | OTHER_NUMBER)) && channel < LK_CHANNELS)
        (*count)++;
    memcpy(body, &from, 8);
    memcpy(body + 8, &number, 8);
    memcpy(body + 16, rest, sizeof rest);
    bytes = bytes < (size_t)(end - at) ? bytes : (size_t)(end - at);
    lk_mail *mail = mail_new(1 + frames % 3);
    mail_set(mail, 0, &header, sizeof header, body, sizeof body);
    for (int i = 1; i < mail->n; i++)
        mail_set(mail, i, at, bytes, NULL, 0);
    at += bytes;
    return mail;
}

/* Takes the next piece, whose first byte is not 0. */
static lk_mail *next_mail(void)
{
    int kind = next() % 4, byte = next(), rank = byte < 128 ? byte : byte - 256;
    if (kind == 1) {
        int channel = next(), flags = next(), frames = next();
        return message_of(rank, channel, flags, frames, (size_t)next());
    }
    if (kind == 2)
        return greeting_of(rank, next());
    size_t bytes = byte < end - at ? (size_t)byte : (size_t)(end - at);
    lk_mail *mail = mail_new(1);
    mail_set(mail, 0, at, bytes, NULL, 0);
    at += bytes;
    return mail;
}

/* --- the network -------------------------------------------------------------------------------------------------- */

double lk__seconds(void)
{
    return now += 1e-3;
}

int64_t lk__nanoseconds(void)
{
    return (int64_t)(lk__seconds() * 1e9);
}

lk_status lk__post_open(const lk_keys *keys, lk_post **post)
{
    static lk_post it;
    FUZZ_CHECK(!keys);
    *post = &it;
    return LK_OK;
}

void lk__post_release(lk_post *post)
{
    (void)post;
}

lk_status lk__service_open(lk_post *post, const lk_address *address, lk_service **service)
{
    static lk_service it;
    FUZZ_CHECK(post && address->is_loopback);
    *service = &it;
    return LK_OK;
}

void lk__service_release(lk_service *service)
{
    (void)service;
}

lk_status lk__service_receive(lk_service *service, int milliseconds, lk_mail **mail)
{
    FUZZ_CHECK(service);
    *mail = NULL;
    if (greetings > 0) {
        *mail = greeting_of(greetings, IS_HEARD);
        greetings--;
    } else if (at < end && *at % 4 != 0) {
        *mail = next_mail();
    } else if (milliseconds > 0) {
        now += 10;
    }
    return LK_OK;
}

void lk__mail_release(lk_mail *mail)
{
    for (int i = 0; mail && i < mail->n; i++)
        free((void *)(uintptr_t)mail->frames[i].data);
    free(mail);
}

lk_status lk__peer_open(lk_post *post, const lk_address *address, const char *key, lk_peer **peer)
{
    static lk_peer it;
    FUZZ_CHECK(post && address->is_loopback && !key);
    *peer = &it;
    return LK_OK;
}

void lk__peer_release(lk_peer *peer)
{
    (void)peer;
}

lk_status lk__peer_send(lk_peer *peer, const lk_frame *frames, int n)
{
    lk_wire_header header;
    FUZZ_CHECK(peer && n >= 1 && frames[0].bytes >= sizeof header);
    for (int i = 0; i < n; i++)
        fuzz_touch(frames[i].data, frames[i].bytes);
    memcpy(&header, frames[0].data, sizeof header);
    FUZZ_CHECK(header.kind == GREETING ? n == 1 && frames[0].bytes == sizeof header + LARGE_GREETING
                                       : n == 2 && frames[0].bytes == sizeof header + LARGE_HEAD);
    if (header.kind == GREETING) {
        memcpy(&session, (const char *)frames[0].data + sizeof header, sizeof session);
        memcpy(&cluster, (const char *)frames[0].data + sizeof header + 16, sizeof cluster);
    }
    sent++;
    return LK_OK;
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

/* --- the target --------------------------------------------------------------------------------------------------- */

/* Receives into memory that ends where the message ends. */
typedef struct receiving {
    lk_message message;
    char *memory;
} receiving;

static int take_done(const lk_messages *table, receiving *list, int n, bool *is_broken)
{
    char error[LK_MESSAGES_ERROR];
    for (int i = 0; i < n && !*is_broken;) {
        bool all = false;
        *is_broken = table->done(&list[i].message, 1, &all, error) != LK_MESSAGES_OK;
        FUZZ_CHECK(!*is_broken || (*error && !all));
        if (all) {
            free(list[i].memory);
            list[i] = list[--n];
        } else {
            i++;
        }
    }
    return n;
}

static void run(const lk_messages *table)
{
    char error[LK_MESSAGES_ERROR];
    receiving list[RECEIVES];
    int n = 0;
    bool is_broken = false;
    while (at < end && !is_broken) {
        if (*at % 4 == 0 && n < RECEIVES) {
            at++;
            int channel = next() % LK_CHANNELS, other = next() % (RANKS + 1) - 1;
            size_t bytes = (size_t)next();
            list[n].memory = malloc(bytes + (bytes == 0));
            FUZZ_CHECK(list[n].memory);
            is_broken = table->begin(false, (lk_channel)channel, other == 0 ? LK_MESSAGES_ANYBODY : other,
                                     list[n].memory, bytes, &list[n].message, error) != LK_MESSAGES_OK;
            n++;
        } else if (n == RECEIVES && *at % 4 == 0) {
            at = end;
        }
        if (!is_broken)
            n = take_done(table, list, n, &is_broken);
        if (n == 0 && at < end && *at % 4 != 0 && !is_broken) { /* done is only called for messages */
            lk_message message;
            bool all;
            FUZZ_CHECK(table->begin(true, LK_CHANNEL_DATA, 1, error, 4, &message, error) == LK_MESSAGES_OK);
            is_broken = table->done(&message, 1, &all, error) != LK_MESSAGES_OK;
        }
    }
    table->close();
    for (int i = 0; i < n; i++)
        free(list[i].memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "{\"cluster\": {\"worker\": [\"127.0.0.1:1\", \"127.0.0.1:2\", \"127.0.0.1:3\"]}, "
                               "\"task\": {\"type\": \"worker\", \"index\": 0}}";
    static lk_cluster *three;
    const lk_messages *table;
    char error[LK_MESSAGES_ERROR];
    int rank, ranks;
    if (!three)
        FUZZ_CHECK(lk__cluster_parse(text, sizeof text - 1, "the test", &three) == LK_OK);
    at = data;
    end = data + size;
    memset(numbers, 0, sizeof numbers);
    greetings = next() % 2 ? RANKS - 1 : 0;
    FUZZ_CHECK(lk__network_messages_open(&(lk_network_opts){.cluster = three, .join_timeout = 5}, &table) == LK_OK);
    if (table->open(&rank, &ranks, error) == LK_MESSAGES_OK) {
        FUZZ_CHECK(rank == 0 && ranks == RANKS);
        run(table);
    } else {
        FUZZ_CHECK(*error);
    }
    FUZZ_CHECK(sent > 0 && lk_error_status() == LK_OK);
    return 0;
}
