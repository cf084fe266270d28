/* Messages between processes that were started one by one, over ZeroMQ. A description of the cluster says where each of
 * them listens: the chief is rank 0, and the workers follow in their order. With keys, connections are encrypted, and a
 * rank is only taken from the process that has its key: "chief", "worker-0", …. Without keys all must be on loopback.
 *
 * Nobody supervises these processes, so each notices by itself that another has ended: see lk__peer_losses. */
#pragma once

#include "dist/process/messages.h"
#include "dist/service/cluster.h"
#include "dist/service/keys.h"

#include <stdbool.h>

typedef struct lk_network_opts {
    const lk_cluster *cluster;        /* its task is this process's */
    const lk_cluster_address *listen; /* NULL: as the cluster says */
    const lk_keys *keys;              /* NULL: none */
    double join_timeout;              /* seconds for which a process waits for the others to come */
    bool has_options;                 /* messages may name the option --join-timeout */
} lk_network_opts;

/* Listens, and connects to all others; *table is then for lk__group_use. What opts names may be released afterwards.
 * Errors: LK_ERR_ARGUMENT (the task is that of a parameter server; the cluster has no port for somebody; not loopback,
 * and no keys), LK_ERR_FORMAT (a process without a key), LK_ERR_MEMORY, those of lk__address_resolve, lk__post_open and
 * lk__service_open. */
lk_status lk__network_messages_open(const lk_network_opts *opts, const lk_messages **table);

typedef struct lk_network_place {
    const char *listen;  /* "host:port"; NULL: as the cluster says */
    const char *keys;    /* file; NULL: none */
    double join_timeout; /* seconds; 0: 60 */
    bool has_options;    /* a trainer's settings, which options of the command set */
} lk_network_place;

/* If nothing has started this process together with others, but the cluster has its task, lk__group_open will join them
 * by these messages. cluster NULL: there is none. Errors: those of lk__network_messages_open and lk__keys_read;
 * LK_ERR_ARGUMENT (`listen`). */
lk_status lk__network_use_cluster(const lk_cluster *cluster, const lk_network_place *place);
