#include "train/ps_place.h"

#include "base/status.h"
#include "dist/cluster.h"

#include <string.h>

bool lk__ps_is_asked_for(const lk_train_config *config)
{
    return config->strategy && strcmp(config->strategy, "parameter-server") == 0;
}

static lk_status read_address(const char *option, const char *text, lk_cluster_address *address)
{
    if (!lk__cluster_read_address(text, address))
        LK_FAIL(LK_ERR_ARGUMENT, "--%s %s: must be host:port or [ipv6]:port, with a port from 0 to 65535", option,
                text);
    return LK_OK;
}

/* What the description says, where there is one. */
typedef struct described {
    lk_cluster *cluster;
    const lk_cluster_task *task;
} described;

static lk_status find_role(const lk_train_config *config, const described *d, ps_place *place)
{
    if (config->role == LK_TRAIN_ROLE_AUTO && !d->task)
        LK_FAIL(LK_ERR_ARGUMENT,
                "strategy parameter-server: this process has to be told its place: --role chief, worker or ps, or a "
                "task in the description of the cluster");
    place->role = (lk_train_role)config->role;
    place->index = config->task_index >= 0 ? (int)config->task_index : 0;
    if (config->role == LK_TRAIN_ROLE_AUTO) {
        static const lk_train_role roles[] = {
            [LK_ROLE_CHIEF] = LK_TRAIN_CHIEF, [LK_ROLE_WORKER] = LK_TRAIN_WORKER, [LK_ROLE_PS] = LK_TRAIN_PS};
        place->role = roles[d->task->role];
        place->index = d->task->index;
    }
    int listed = d->cluster ? lk__cluster_count(d->cluster, LK_ROLE_PS) : 0;
    place->servers = config->servers > 0 ? (int)config->servers : listed > 0 ? listed : 1;
    if (place->role == LK_TRAIN_PS && place->index >= place->servers)
        LK_FAIL(LK_ERR_ARGUMENT, "--task-index %d: there are %d parameter servers, from 0 on (--servers)", place->index,
                place->servers);
    return LK_OK;
}

static lk_status find_chief(const lk_train_config *config, const described *d, ps_place *place)
{
    lk_cluster_address named;
    const lk_cluster_address *listed = d->cluster ? lk__cluster_address(d->cluster, LK_ROLE_CHIEF, 0) : NULL;
    const char *what = config->coordinator ? "--coordinator" : "the cluster's chief";
    if (config->coordinator)
        LK_TRY(read_address("coordinator", config->coordinator, &named));
    else if (listed)
        named = *listed;
    else if (place->role == LK_TRAIN_CHIEF)
        named = (lk_cluster_address){.host = "127.0.0.1", .port = 0};
    else
        LK_FAIL(LK_ERR_ARGUMENT, "strategy parameter-server: where is the chief? --coordinator HOST:PORT, or a chief "
                                 "in the description of the cluster");
    if (named.port == 0 && place->role != LK_TRAIN_CHIEF)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: port 0 is the chief's to choose; this process has to be told which it is", what);
    return lk__address_resolve(what, &named, &place->chief);
}

/* Without a description servers listen where they reach the chief: on loopback, or at the host that --listen names. */
static lk_status find_own(const lk_train_config *config, const described *d, ps_place *place)
{
    lk_cluster_address named = {.host = "127.0.0.1", .port = 0};
    const lk_cluster_address *listed = d->cluster ? lk__cluster_address(d->cluster, LK_ROLE_PS, place->index) : NULL;
    if (place->role != LK_TRAIN_PS)
        return LK_OK;
    if (config->listen)
        LK_TRY(read_address("listen", config->listen, &named));
    else if (listed)
        named = *listed;
    else if (!place->chief.is_loopback)
        LK_FAIL(LK_ERR_ARGUMENT, "strategy parameter-server: --listen HOST:PORT has to say where this server can be "
                                 "reached, as the chief is not on this machine's loopback");
    LK_TRY(lk__address_resolve(config->listen ? "--listen" : "the cluster's ps", &named, &place->own));
    if (place->own.is_unspecified)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--listen %s:%d: others are told to come there, so it has to be one of this machine's "
                "addresses",
                place->own.numeric, place->own.port);
    return LK_OK;
}

static lk_status find_keys(const lk_train_config *config, ps_place *place)
{
    if (!config->keys)
        return LK_OK;
    LK_TRY(lk__keys_read(config->keys, &place->keys));
    place->has_keys = true;
    place->chief_key = lk__keys_named(&place->keys, "chief");
    if (!place->chief_key)
        LK_FAIL(LK_ERR_FORMAT, "--keys %s: `allowed` beside it lists no key under the name chief", config->keys);
    return LK_OK;
}

static lk_status find(const lk_train_config *config, const described *d, ps_place *place)
{
    enum { PEER_TIMEOUT = 5, JOIN_TIMEOUT = 60 };
    place->timeout = config->peer_timeout > 0 ? config->peer_timeout : PEER_TIMEOUT;
    place->join_timeout = config->join_timeout > 0 ? config->join_timeout : JOIN_TIMEOUT;
    LK_TRY(find_role(config, d, place));
    LK_TRY(find_chief(config, d, place));
    LK_TRY(find_own(config, d, place));
    lk__address_print(&place->chief, place->chief_text);
    lk__address_print(&place->own, place->own_text);
    return find_keys(config, place);
}

lk_status lk__ps_place_find(const lk_train_config *config, ps_place *place)
{
    described d = {NULL, NULL};
    memset(place, 0, sizeof *place);
    LK_TRY(lk__cluster_open(config->cluster, &d.cluster));
    d.task = d.cluster ? lk__cluster_task(d.cluster) : NULL;
    lk_status status = find(config, &d, place);
    lk__cluster_release(d.cluster);
    if (status != LK_OK)
        lk__ps_place_free(place);
    return status;
}

void lk__ps_place_free(ps_place *place)
{
    lk__keys_free(&place->keys);
    place->chief_key = NULL;
}
