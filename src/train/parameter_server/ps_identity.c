#include "train/parameter_server/ps_identity.h"

#include "base/status.h"
#include "dist/service/cluster.h"

#include "lockstep/dist.h"

#include <string.h>

bool lk__ps_is_asked_for(const lk_train_config *config)
{
    return lk_strategy_kind_of(config->devices.strategy) == LK_STRATEGY_ASYNCHRONOUS;
}

/* The description of the cluster; NULL members: there is none. */
typedef struct described {
    lk_cluster *cluster;
    const lk_cluster_task *task;
} described;

static lk_status ps_identity_find_role(const lk_train_config *config, const described *d, lk_ps_identity *identity)
{
    if (config->servers.role == LK_TRAIN_ROLE_AUTO && !d->task)
        LK_FAIL(LK_ERR_ARGUMENT,
                "strategy parameter-server: this process has to be told its place: --role chief, worker or ps, or a "
                "task in the description of the cluster");
    identity->role = (lk_train_role)config->servers.role;
    identity->index = config->servers.task_index >= 0 ? (int)config->servers.task_index : 0;
    if (config->servers.role == LK_TRAIN_ROLE_AUTO) {
        static const lk_train_role roles[] = {
            [LK_ROLE_CHIEF] = LK_TRAIN_CHIEF, [LK_ROLE_WORKER] = LK_TRAIN_WORKER, [LK_ROLE_PS] = LK_TRAIN_PS};
        identity->role = roles[d->task->role];
        identity->index = d->task->index;
    }
    int listed = d->cluster ? lk__cluster_count(d->cluster, LK_ROLE_PS) : 0;
    identity->servers = config->servers.count > 0 ? (int)config->servers.count : listed > 0 ? listed : 1;
    if (identity->role == LK_TRAIN_PS && identity->index >= identity->servers)
        LK_FAIL(LK_ERR_ARGUMENT, "--task-index %d: there are %d parameter servers, from 0 on (--servers)",
                identity->index, identity->servers);
    return LK_OK;
}

static lk_status ps_identity_find_chief(const lk_train_config *config, const described *d, lk_ps_identity *identity)
{
    lk_cluster_address named;
    const lk_cluster_address *listed = d->cluster ? lk__cluster_address(d->cluster, LK_ROLE_CHIEF, 0) : NULL;
    const char *what = config->servers.coordinator ? "--coordinator" : "the cluster's chief";
    if (config->servers.coordinator)
        LK_TRY(lk__cluster_parse_address("--coordinator", config->servers.coordinator, &named));
    else if (listed)
        named = *listed;
    else if (identity->role == LK_TRAIN_CHIEF)
        named = (lk_cluster_address){.host = "127.0.0.1", .port = 0};
    else
        LK_FAIL(LK_ERR_ARGUMENT, "strategy parameter-server: where is the chief? --coordinator HOST:PORT, or a chief "
                                 "in the description of the cluster");
    if (named.port == 0 && identity->role != LK_TRAIN_CHIEF)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: port 0 is the chief's to choose; this process has to be told which it is", what);
    return lk__address_resolve(what, &named, &identity->chief);
}

/* Without a description servers listen on loopback, like the chief, or at the host that --listen names. */
static lk_status ps_identity_find_own(const lk_train_config *config, const described *d, lk_ps_identity *identity)
{
    lk_cluster_address named = {.host = "127.0.0.1", .port = 0};
    const lk_cluster_address *listed = d->cluster ? lk__cluster_address(d->cluster, LK_ROLE_PS, identity->index) : NULL;
    if (identity->role != LK_TRAIN_PS)
        return LK_OK;
    if (config->servers.listen)
        LK_TRY(lk__cluster_parse_address("--listen", config->servers.listen, &named));
    else if (listed)
        named = *listed;
    else if (!identity->chief.is_loopback)
        LK_FAIL(LK_ERR_ARGUMENT, "strategy parameter-server: --listen HOST:PORT has to say where this server can be "
                                 "reached, as the chief is not on this machine's loopback");
    LK_TRY(lk__address_resolve(config->servers.listen ? "--listen" : "the cluster's ps", &named, &identity->own));
    if (identity->own.is_unspecified)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--listen %s:%d: others are told to come there, so it has to be one of this machine's "
                "addresses",
                identity->own.numeric, identity->own.port);
    return LK_OK;
}

static lk_status ps_identity_find_keys(const lk_train_config *config, lk_ps_identity *identity)
{
    if (!config->servers.keys)
        return LK_OK;
    LK_TRY(lk__keys_read(config->servers.keys, &identity->keys));
    identity->has_keys = true;
    identity->chief_key = lk__keys_find_key(&identity->keys, "chief");
    if (!identity->chief_key)
        LK_FAIL(LK_ERR_FORMAT, "--keys %s: `allowed` beside it lists no key under the name chief",
                config->servers.keys);
    return LK_OK;
}

static lk_status ps_identity_find(const lk_train_config *config, const described *d, lk_ps_identity *identity)
{
    enum { PEER_TIMEOUT = 5, JOIN_TIMEOUT = 60 };
    identity->timeout = config->servers.peer_timeout > 0 ? config->servers.peer_timeout : PEER_TIMEOUT;
    identity->join_timeout = config->servers.join_timeout > 0 ? config->servers.join_timeout : JOIN_TIMEOUT;
    LK_TRY(ps_identity_find_role(config, d, identity));
    LK_TRY(ps_identity_find_chief(config, d, identity));
    LK_TRY(ps_identity_find_own(config, d, identity));
    lk__address_print(&identity->chief, identity->chief_text);
    lk__address_print(&identity->own, identity->own_text);
    return ps_identity_find_keys(config, identity);
}

lk_status lk__ps_identity_find(const lk_train_config *config, lk_ps_identity *identity)
{
    described d = {NULL, NULL};
    memset(identity, 0, sizeof *identity);
    LK_TRY(lk__cluster_open(config->devices.cluster, &d.cluster));
    d.task = d.cluster ? lk__cluster_task(d.cluster) : NULL;
    lk_status status = ps_identity_find(config, &d, identity);
    lk__cluster_release(d.cluster);
    if (status != LK_OK)
        lk__ps_identity_free(identity);
    return status;
}

void lk__ps_identity_free(lk_ps_identity *identity)
{
    lk__keys_free(&identity->keys);
    identity->chief_key = NULL;
}

/* --- files that a process opens ----------------------------------------------------------------------------------- */

/* PEER: of a connection to a service; the service opens one. LAUNCHED: by lockstep rank, which starts the process. */
enum { PEER = 4, LAUNCHED = 4 };

/* The first number of each sum: ZeroMQ's threads and service, and the role's logs, checkpoints or snapshot. */
static int ps_identity_count_files(lk_train_role role, int servers, int workers)
{
    switch (role) {
    case LK_TRAIN_CHIEF: /* every server connects to it, and every worker twice */
        return 17 + (PEER + 1) * servers + 2 * workers;
    case LK_TRAIN_WORKER:
        return 8 + PEER * (servers + 2);
    default: /* the chief and every worker connect to a server */
        return 10 + PEER + 1 + workers;
    }
}

int lk_parameter_server_files(int servers, int workers)
{
    return LAUNCHED + ps_identity_count_files(LK_TRAIN_CHIEF, servers, workers); /* the others open fewer */
}

lk_status lk__ps_open_post(const lk_ps_identity *identity, lk_post **post)
{
    *post = NULL;
    LK_TRY(lk_check_open_files("strategy parameter-server",
                               ps_identity_count_files(identity->role, identity->servers, 1)));
    return lk__post_open(identity->has_keys ? &identity->keys : NULL, post);
}
