/* Each process has a service, which all others send to, and a connection to the service of each other process. Both
 * ends of a connection count its messages, so that none is missed if it breaks off and is made again.
 *
 * Joining: a process sends a greeting to all others until each of them has answered that it heard it. Processes begin
 * in any order, and may end and be started again before all are there, so a greeting names the process by a number of
 * its own, and the number that it knows of the receiver. */
#include "dist/service/network_messages.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "dist/process/group.h"
#include "dist/service/requests.h"
#include "dist/service/wire.h"
#include "lockstep/dist.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { NETWORK_NAME = LK_CLUSTER_HOST + 64 };

typedef enum network_kind { NETWORK_GREETING = 64, NETWORK_MESSAGE } network_kind; /* of a wire header */

typedef struct network_greeting {
    uint64_t session, heard; /* the sender's number, and the receiver's as the sender knows it, else 0 */
    uint64_t cluster;        /* hash of the addresses of all ranks */
    int32_t rank, ranks;
    int32_t is_heard; /* the sender knows that the receiver knows its number */
    int32_t unused;
} network_greeting;

/* A frame with the data follows. */
typedef struct network_head {
    uint64_t session, number; /* of the sender; number of the message from it to this receiver */
    int32_t rank, channel;
} network_head;

/* A process that takes part. */
typedef struct network_rank {
    char name[NETWORK_NAME]; /* "worker 1 at host:2222" */
    lk_peer *peer;           /* NULL: this process */
    char key_name[LK_KEY_NAME];
    uint64_t session;        /* 0: nobody has come */
    bool is_heard;           /* it knows this process's session */
    int losses;              /* lk__peer_losses when it came */
    double lost_at;          /* when its connection was seen to have ended; 0: it stands */
    uint64_t sent, received; /* messages */
} network_rank;

/* A receive in flight. */
typedef struct network_receive {
    struct network_receive *next;
    lk_channel channel;
    int other;
    void *data;
    size_t bytes;
    bool is_done;
} network_receive;

/* A message that has come before its receive. */
typedef struct network_parcel {
    struct network_parcel *next;
    lk_mail *mail;
    lk_channel channel;
    int from;
} network_parcel;

static struct {
    lk_post *post;
    lk_service *service;
    bool has_keys;
    lk_keys keys;
    network_rank *all; /* [ranks] */
    int rank, ranks;
    uint64_t session, cluster;
    double join_timeout, looked_at; /* looked_at: when connections were last looked at */
    const char *join_option;        /* for messages: " (--join-timeout)", or "" */
    bool has_joined;
    network_receive *receives, **receives_end;
    network_parcel *parcels, **parcels_end;
    char broken[LK_MESSAGES_ERROR]; /* why no message can be received any more; empty: they can */
    pthread_mutex_t lock;
} net = {.receives_end = &net.receives, .parcels_end = &net.parcels, .lock = PTHREAD_MUTEX_INITIALIZER};

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static void network_break(const char *format, ...) LK_PRINTF(1, 2);

/* The first reason stays. */
static void network_break(const char *format, ...)
{
    va_list arguments;
    if (*net.broken)
        return;
    va_start(arguments, format);
    vsnprintf(net.broken, sizeof net.broken, format, arguments);
    va_end(arguments);
}

static bool network_matches(lk_channel channel, int other, lk_channel its_channel, int its_sender)
{
    return channel == its_channel && (other == its_sender || other == LK_MESSAGES_ANYBODY);
}

static void network_receive_finish(network_receive *r, lk_mail *mail, int from)
{
    if (mail->frames[1].bytes == r->bytes) {
        if (r->bytes > 0)
            memcpy(r->data, mail->frames[1].data, r->bytes);
        r->is_done = true;
    } else {
        network_break("a message of %s has %zu bytes, and not the %zu that are expected", net.all[from].name,
                      mail->frames[1].bytes, r->bytes);
    }
    lk__mail_release(mail);
}

/* Takes the mail. */
static void network_keep(lk_mail *mail, lk_channel channel, int from)
{
    network_parcel *p = lk__calloc(1, sizeof *p);
    if (!p) {
        network_break("no memory for a message of %s", net.all[from].name);
        lk__mail_release(mail);
        return;
    }
    *p = (network_parcel){.mail = mail, .channel = channel, .from = from};
    *net.parcels_end = p;
    net.parcels_end = &p->next;
}

/* Returns whether the sender has the rank's key. */
static bool network_is_from(const lk_mail *mail, int rank)
{
    const char *name = net.has_keys ? lk__keys_find_name(&net.keys, mail->key) : NULL;
    return rank >= 0 && rank < net.ranks && rank != net.rank &&
           (!net.has_keys || (name && strcmp(name, net.all[rank].key_name) == 0));
}

/* Takes the mail. A process that is not one of the group cannot stop it. */
static void network_take_message(lk_mail *mail)
{
    network_head head;
    bool is_whole = lk__wire_body(mail, NETWORK_MESSAGE, "of a group", &head, sizeof head, 1, 1) == LK_OK;
    if (!is_whole || !network_is_from(mail, head.rank) || head.session != net.all[head.rank].session ||
        head.channel < 0 || head.channel >= LK_CHANNELS) {
        lk__mail_release(mail);
        return;
    }
    network_rank *from = &net.all[head.rank];
    if (head.number != from->received) {
        network_break("%s: messages were lost", from->name);
        lk__mail_release(mail);
        return;
    }
    from->received++;
    for (network_receive *r = net.receives; r; r = r->next) {
        if (!r->is_done && network_matches(r->channel, r->other, (lk_channel)head.channel, head.rank)) {
            network_receive_finish(r, mail, head.rank);
            return;
        }
    }
    network_keep(mail, (lk_channel)head.channel, head.rank);
}

static void network_greet(network_rank *to)
{
    lk_wire_first first;
    network_greeting greeting = {.session = net.session,
                                 .heard = to->session,
                                 .cluster = net.cluster,
                                 .rank = net.rank,
                                 .ranks = net.ranks,
                                 .is_heard = to->is_heard};
    lk_frame frame = lk__wire_first(&first, NETWORK_GREETING, 0, &greeting, sizeof greeting);
    if (lk__peer_send(to->peer, &frame, 1) != LK_OK)
        network_break("%s: %s", to->name, lk_error_message());
}

/* Until its connection ends, a process that has heard this one keeps its place. */
static void network_take_greeting(const lk_mail *mail)
{
    network_greeting g;
    if (lk__wire_body(mail, NETWORK_GREETING, "of a group", &g, sizeof g, 0, 0) != LK_OK)
        return;
    if (!network_is_from(mail, g.rank) || g.session == 0)
        return;
    network_rank *from = &net.all[g.rank];
    bool is_alike = g.cluster == net.cluster && g.ranks == net.ranks;
    if (!is_alike && !net.has_joined) {
        network_greet(from); /* it has to learn of this as well */
        network_break("%s was started with another description of the cluster", from->name);
    }
    if (!is_alike)
        return;
    if (from->session != g.session) {
        if (net.has_joined || (from->is_heard && from->lost_at == 0))
            return;
        from->session = g.session;
        from->is_heard = false;
        from->losses = lk__peer_losses(from->peer);
        from->lost_at = 0;
    }
    from->is_heard |= g.heard == net.session;
    if (!g.is_heard)
        network_greet(from);
}

/* Takes the mail. Errors are not the caller's: others may send anything. */
static void network_take(lk_mail *mail)
{
    lk_error_state caller;
    lk_wire_header header;
    lk__error_save(&caller);
    lk_error_clear();
    bool is_ours = lk__wire_header(mail, &header) == LK_OK;
    if (is_ours && header.kind == NETWORK_MESSAGE) {
        network_take_message(mail);
    } else {
        if (is_ours && header.kind == NETWORK_GREETING)
            network_take_greeting(mail);
        lk__mail_release(mail);
    }
    lk__error_restore(&caller);
}

/* Takes what has come, and waits for something at most so many milliseconds. */
static void network_read(int milliseconds)
{
    lk_mail *mail;
    do {
        if (lk__service_receive(net.service, milliseconds, &mail) != LK_OK)
            network_break("%s", lk_error_message());
        else if (mail)
            network_take(mail);
        milliseconds = 0;
    } while (mail && !*net.broken);
}

/* --- lost processes ----------------------------------------------------------------------------------------------- */

static void network_look_at_connections(double now)
{
    const double pause = 0.05; /* seconds */
    if (now - net.looked_at < pause)
        return;
    net.looked_at = now;
    for (int i = 0; i < net.ranks; i++)
        if (net.all[i].peer && net.all[i].lost_at == 0 && lk__peer_losses(net.all[i].peer) != net.all[i].losses)
            net.all[i].lost_at = now;
}

/* Messages of a process may still come for a moment after it has ended. */
static void network_check_senders(double now)
{
    const double patience = 1; /* seconds */
    network_look_at_connections(now);
    for (const network_receive *r = net.receives; r; r = r->next) {
        if (r->is_done || r->other == LK_MESSAGES_ANYBODY)
            continue;
        const network_rank *from = &net.all[r->other];
        if (from->lost_at > 0 && now - from->lost_at > patience)
            network_break("%s has ended, or its machine cannot be reached", from->name);
    }
}

/* --- the end -------------------------------------------------------------------------------------------------------
 */

static void network_receive_end(network_receive *r)
{
    network_receive **at = &net.receives;
    while (*at && *at != r)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = r->next;
    if (!*at)
        net.receives_end = at;
    lk__free(r);
}

/* Waits at most a second for messages still to be sent. */
static void network_close(void)
{
    while (net.parcels) {
        network_parcel *p = net.parcels;
        net.parcels = p->next;
        lk__mail_release(p->mail);
        lk__free(p);
    }
    net.parcels_end = &net.parcels;
    while (net.receives)
        network_receive_end(net.receives);
    for (int i = 0; i < net.ranks && net.all; i++)
        lk__peer_release(net.all[i].peer);
    lk__free(net.all);
    lk__service_release(net.service);
    lk__post_release(net.post);
    lk__keys_free(&net.keys);
    net.all = NULL;
    net.service = NULL;
    net.post = NULL;
    net.cluster = 0;
    net.has_joined = false;
    *net.broken = '\0';
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static bool network_has_come(const network_rank *r)
{
    return r->session != 0 && r->is_heard;
}

/* One that has ended is not: it may be started again. */
static bool network_is_there(const network_rank *r)
{
    return !r->peer || (network_has_come(r) && r->lost_at == 0);
}

/* Returns the first process that has not come. If all have come, returns the one that has ended first: the others may
 * have ended because of it. NULL: all are there. */
static const network_rank *network_find_missing(void)
{
    const network_rank *ended = NULL;
    for (int i = 0; i < net.ranks; i++) {
        const network_rank *r = &net.all[i];
        if (network_is_there(r))
            continue;
        if (!network_has_come(r))
            return r;
        if (!ended || r->lost_at < ended->lost_at)
            ended = r;
    }
    return ended;
}

static void network_greet_missing(void)
{
    for (int i = 0; i < net.ranks && !*net.broken; i++) {
        network_rank *r = &net.all[i];
        const char *refusal = network_is_there(r) ? NULL : lk__peer_refusal(r->peer);
        if (refusal)
            network_break("%s: %s", r->name, refusal);
        else if (!network_is_there(r))
            network_greet(r);
    }
}

static lk_messages_status network_messages_join(int *rank, int *ranks, char error[LK_MESSAGES_ERROR])
{
    const double between = 0.2; /* seconds */
    double began = lk__seconds(), greet_at = began;
    const network_rank *missing;
    pthread_mutex_lock(&net.lock);
    while ((missing = network_find_missing()) && !*net.broken) {
        double now = lk__seconds();
        if (now - began > net.join_timeout)
            network_break("%s%s within %g s%s", missing->name,
                          network_has_come(missing) ? " came and ended, and has not come again" : " has not come",
                          net.join_timeout, net.join_option);
        if (now >= greet_at) {
            network_greet_missing();
            greet_at = now + between;
        }
        network_read(50);
        network_look_at_connections(now);
    }
    net.has_joined = !missing;
    snprintf(error, LK_MESSAGES_ERROR, "%s", net.broken);
    if (*error)
        network_close();
    pthread_mutex_unlock(&net.lock);
    *rank = net.rank;
    *ranks = net.ranks;
    return *error ? LK_MESSAGES_FAILED : LK_MESSAGES_OK;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const char *network_messages_version(void)
{
    return "TCP";
}

static void network_messages_host(char name[LK_MESSAGES_HOST])
{
    if (gethostname(name, LK_MESSAGES_HOST) != 0)
        snprintf(name, LK_MESSAGES_HOST, "localhost");
    name[LK_MESSAGES_HOST - 1] = '\0';
}

/* ZeroMQ copies the data, so the message is done. */
static void network_send(lk_channel channel, network_rank *to, const void *data, size_t bytes)
{
    lk_wire_first first;
    network_head head = {.session = net.session, .number = to->sent++, .rank = net.rank, .channel = (int32_t)channel};
    lk_frame frames[] = {lk__wire_first(&first, NETWORK_MESSAGE, 0, &head, sizeof head), {data, bytes}};
    if (lk__peer_send(to->peer, frames, 2) != LK_OK)
        network_break("%s: %s", to->name, lk_error_message());
}

/* Begins a receive, which a message that came earlier may end at once. NULL: no memory. */
static network_receive *network_receive_begin(lk_channel channel, int other, void *data, size_t bytes)
{
    network_receive *r = lk__calloc(1, sizeof *r);
    network_parcel **at = &net.parcels;
    if (!r)
        return NULL;
    *r = (network_receive){.channel = channel, .other = other, .data = data, .bytes = bytes};
    while (*at && !network_matches(channel, other, (*at)->channel, (*at)->from))
        at = &(*at)->next;
    if (*at) {
        network_parcel *p = *at;
        *at = p->next;
        if (!*at)
            net.parcels_end = at;
        network_receive_finish(r, p->mail, p->from);
        lk__free(p);
    }
    *net.receives_end = r;
    net.receives_end = &r->next;
    return r;
}

static network_receive *network_receive_of(const lk_message *message)
{
    network_receive *r;
    memcpy(&r, message->bytes, sizeof r);
    return r;
}

static lk_messages_status network_messages_begin(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                                 lk_message *message, char error[LK_MESSAGES_ERROR])
{
    pthread_mutex_lock(&net.lock);
    network_receive *r = NULL;
    if (is_sent)
        network_send(channel, &net.all[other], data, bytes);
    else if (!(r = network_receive_begin(channel, other, data, bytes)))
        network_break("no memory for a message");
    memcpy(message->bytes, &r, sizeof r);
    snprintf(error, LK_MESSAGES_ERROR, "%s", net.broken);
    pthread_mutex_unlock(&net.lock);
    return *error ? LK_MESSAGES_FAILED : LK_MESSAGES_OK;
}

static lk_messages_status network_messages_done(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR])
{
    pthread_mutex_lock(&net.lock);
    network_read(0);
    network_check_senders(lk__seconds());
    *all = !*net.broken;
    for (int i = 0; i < n && *all; i++) {
        const network_receive *r = network_receive_of(&messages[i]);
        *all = !r || r->is_done;
    }
    for (int i = 0; i < n && *all; i++)
        network_receive_end(network_receive_of(&messages[i]));
    snprintf(error, LK_MESSAGES_ERROR, "%s", net.broken);
    pthread_mutex_unlock(&net.lock);
    return *error ? LK_MESSAGES_FAILED : LK_MESSAGES_OK;
}

static void network_messages_cancel(lk_message *message)
{
    pthread_mutex_lock(&net.lock);
    network_receive_end(network_receive_of(message));
    pthread_mutex_unlock(&net.lock);
}

static void network_messages_leave(void)
{
    pthread_mutex_lock(&net.lock);
    network_close();
    pthread_mutex_unlock(&net.lock);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Sets rank i's name, and gives its address. Errors: LK_ERR_ARGUMENT (a port that others cannot know). */
static lk_status network_name_rank(const lk_cluster *cluster, int i, const lk_cluster_address **address)
{
    network_rank *r = &net.all[i];
    int chiefs = lk__cluster_count(cluster, LK_ROLE_CHIEF);
    bool is_chief = i < chiefs;
    int index = is_chief ? i : i - chiefs;
    *address = lk__cluster_address(cluster, is_chief ? LK_ROLE_CHIEF : LK_ROLE_WORKER, index);
    if (is_chief && index == 0)
        snprintf(r->key_name, sizeof r->key_name, "chief");
    else
        snprintf(r->key_name, sizeof r->key_name, "%s-%d", is_chief ? "chief" : "worker", index);
    snprintf(r->name, sizeof r->name, "%s %d at %s:%d", is_chief ? "chief" : "worker", index, (*address)->host,
             (*address)->port);
    if ((*address)->port == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %s: the others have to know the port, so it cannot be 0",
                lk__cluster_source(cluster), r->name);
    net.cluster = XXH3_64bits_withSeed(r->name, strlen(r->name), net.cluster);
    return LK_OK;
}

static lk_status network_connect(const lk_network_opts *opts, int i, const lk_cluster_address *named)
{
    network_rank *r = &net.all[i];
    lk_address address;
    const char *key = opts->keys ? lk__keys_find_key(opts->keys, r->key_name) : NULL;
    if (opts->keys && !key)
        LK_FAIL(LK_ERR_FORMAT, "--keys: `allowed` lists no key under the name %s", r->key_name);
    LK_TRY(lk__address_resolve(r->name, named, &address));
    return lk__peer_open(net.post, &address, key, &r->peer);
}

static lk_status network_listen(const lk_network_opts *opts, const lk_cluster_address *named)
{
    lk_address address;
    LK_TRY(lk__address_resolve("the address to listen on", opts->listen ? opts->listen : named, &address));
    return lk__service_open(net.post, &address, &net.service);
}

static lk_status network_open(const lk_network_opts *opts)
{
    enum { OWN_FILES = 12, PEER_FILES = 5 };
    const lk_cluster *cluster = opts->cluster;
    const lk_cluster_address *address;
    LK_TRY(lk_check_open_files("strategy multi-worker", OWN_FILES + PEER_FILES * net.ranks));
    net.all = lk__calloc((size_t)net.ranks, sizeof *net.all);
    if (!net.all)
        return LK_ERR_MEMORY;
    net.has_keys = opts->keys != NULL;
    if (net.has_keys)
        LK_TRY(lk__keys_copy(opts->keys, &net.keys));
    LK_TRY(lk__post_open(opts->keys, &net.post));
    for (int i = 0; i < net.ranks; i++) {
        LK_TRY(network_name_rank(cluster, i, &address));
        LK_TRY(i == net.rank ? network_listen(opts, address) : network_connect(opts, i, address));
    }
    return LK_OK;
}

lk_status lk__network_messages_open(const lk_network_opts *opts, const lk_messages **table)
{
    static const lk_messages messages = {
        .interface = LK_MESSAGES_INTERFACE,
        .size = sizeof messages,
        .open = network_messages_join,
        .version = network_messages_version,
        .host = network_messages_host,
        .begin = network_messages_begin,
        .done = network_messages_done,
        .cancel = network_messages_cancel,
        .close = network_messages_leave,
    };
    const lk_cluster_task *task = lk__cluster_task(opts->cluster);
    int chiefs = lk__cluster_count(opts->cluster, LK_ROLE_CHIEF);
    if (task->role == LK_ROLE_PS)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: this process is ps %d, and strategy multi-worker has no parameter servers",
                lk__cluster_source(opts->cluster), task->index);
    net.rank = task->role == LK_ROLE_CHIEF ? task->index : chiefs + task->index;
    net.ranks = chiefs + lk__cluster_count(opts->cluster, LK_ROLE_WORKER);
    net.session = lk__wire_nonce();
    net.join_timeout = opts->join_timeout;
    net.join_option = opts->has_options ? " (--join-timeout)" : "";
    lk_status status = network_open(opts);
    if (status != LK_OK)
        network_close();
    *table = &messages;
    return status;
}

static lk_status network_use(const lk_cluster *cluster, const lk_network_place *place, const lk_keys *keys)
{
    enum { JOIN_TIMEOUT = 60 };
    lk_cluster_address listen;
    const lk_messages *table;
    lk_network_opts opts = {.cluster = cluster,
                            .keys = keys,
                            .join_timeout = place->join_timeout > 0 ? place->join_timeout : JOIN_TIMEOUT,
                            .has_options = place->has_options};
    if (place->listen) {
        LK_TRY(lk__cluster_parse_address("--listen", place->listen, &listen));
        opts.listen = &listen;
    }
    LK_TRY(lk__network_messages_open(&opts, &table));
    lk__group_use(table);
    return LK_OK;
}

lk_status lk__network_use_cluster(const lk_cluster *cluster, const lk_network_place *place)
{
    lk_keys keys;
    if (!cluster || !lk__cluster_task(cluster) || !lk__group_is_unknown())
        return LK_OK;
    if (!place->keys)
        return network_use(cluster, place, NULL);
    LK_TRY(lk__keys_read(place->keys, &keys));
    lk_status status = network_use(cluster, place, &keys);
    lk__keys_free(&keys);
    return status;
}
