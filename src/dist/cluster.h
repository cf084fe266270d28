/* The description of a cluster: which processes there are, by role, and which of them this one is, as TF_CONFIG has it:
 *
 *   {"cluster": {"chief": ["host:port"], "worker": ["host:port", "[::1]:2222"], "ps": ["host:0"]},
 *    "task": {"type": "worker", "index": 0}}
 *
 * "master" is an old name of chief. What else TensorFlow or Kubeflow write beside cluster and task is passed over. */
#ifndef LK_DIST_CLUSTER_H
#define LK_DIST_CLUSTER_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum lk_cluster_role { LK_ROLE_CHIEF, LK_ROLE_WORKER, LK_ROLE_PS, LK_ROLE_COUNT } lk_cluster_role;

enum {
    LK_CLUSTER_HOST = 254,     /* a host's name and its end */
    LK_CLUSTER_TASKS = 65536,  /* of all roles together, at most */
    LK_CLUSTER_BYTES = 8 << 20 /* of a description, at most */
};

typedef struct lk_cluster_address {
    char host[LK_CLUSTER_HOST]; /* a name, or an IP address, without brackets */
    int port;                   /* 0: whichever is free */
} lk_cluster_address;

typedef struct lk_cluster_task {
    lk_cluster_role role;
    int index;
} lk_cluster_task;

typedef struct lk_cluster lk_cluster;

/* "chief", "worker", "ps" */
const char *lk__cluster_role_name(lk_cluster_role role);

/* Reads "host:port" or "[ipv6]:port", with a port from 0 to 65535. False: it is none. */
bool lk__cluster_read_address(const char *text, lk_cluster_address *address);

/* A description in text[0 … bytes); source: what messages call it, copied. Where it has no "cluster", *cluster is NULL.
 * Errors, all with the source and the place in it: LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__cluster_parse(const char *text, size_t bytes, const char *source, lk_cluster **cluster);

/* The file's, with TF_CONFIG's task where it has none itself; file NULL: TF_CONFIG's. *cluster NULL: there is none.
 * Errors: those of lk__cluster_parse; LK_ERR_NOT_FOUND, LK_ERR_IO (the file). */
lk_status lk__cluster_open(const char *file, lk_cluster **cluster);

void lk__cluster_release(lk_cluster *cluster); /* NULL is fine */

/* "TF_CONFIG", or the file */
const char *lk__cluster_source(const lk_cluster *cluster);

/* How many processes have the role. */
int lk__cluster_count(const lk_cluster *cluster, lk_cluster_role role);

/* Of process `index` of a role; valid as long as the cluster. NULL: there is none. */
const lk_cluster_address *lk__cluster_address(const lk_cluster *cluster, lk_cluster_role role, int index);

/* Which process this one is; NULL: the description does not say. */
const lk_cluster_task *lk__cluster_task(const lk_cluster *cluster);

/* Makes this process that one, by the words of a description. place: what messages call them. Errors: LK_ERR_FORMAT. */
lk_status lk__cluster_set_task(lk_cluster *cluster, const char *place, const char *type, long long index);

/* Whether chief and workers are as many as the processes that were started. Errors: LK_ERR_ARGUMENT. */
lk_status lk__cluster_check_processes(const lk_cluster *cluster, int processes);

#endif
