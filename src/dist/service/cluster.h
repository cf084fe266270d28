/* The description of a cluster: the processes by role, and which of them this one is, in the form of TF_CONFIG:
 *
 *   {"cluster": {"chief": ["host:port"], "worker": ["host:port", "[::1]:2222"], "ps": ["host:0"]},
 *    "task": {"type": "worker", "index": 0}}
 *
 * "master" is an old name of chief. Other fields that TensorFlow or Kubeflow write next to cluster and task are
 * ignored.
 */
#pragma once

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum lk_cluster_role { LK_ROLE_CHIEF, LK_ROLE_WORKER, LK_ROLE_PS, LK_ROLE_COUNT } lk_cluster_role;

enum {
    LK_CLUSTER_HOST = 254,     /* bytes of a host name with its terminator */
    LK_CLUSTER_TASKS = 65536,  /* most tasks of all roles together */
    LK_CLUSTER_BYTES = 8 << 20 /* most bytes of a description */
};

typedef struct lk_cluster_address {
    char host[LK_CLUSTER_HOST]; /* a name, or an IP address, without brackets */
    int port;                   /* 0: any free port */
} lk_cluster_address;

typedef struct lk_cluster_task {
    lk_cluster_role role;
    int index;
} lk_cluster_task;

typedef struct lk_cluster lk_cluster;

/* Parses "host:port" or "[ipv6]:port", with a port from 0 to 65535. False: the text is not of this form. */
bool lk__cluster_read_address(const char *text, lk_cluster_address *address);

/* The same with an error: LK_ERR_ARGUMENT. what: "--listen" */
lk_status lk__cluster_parse_address(const char *what, const char *text, lk_cluster_address *address);

/* Parses a description in text[0 … bytes). source: its name in messages, copied. *cluster is NULL if it has no
 * "cluster". Errors, which name the source and the position in it: LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__cluster_parse(const char *text, size_t bytes, const char *source, lk_cluster **cluster);

/* Reads the description in a file, and takes the task from TF_CONFIG if the file has none. file NULL: reads TF_CONFIG.
 * *cluster NULL: there is no description. Errors: those of lk__cluster_parse; LK_ERR_NOT_FOUND, LK_ERR_IO (the file).
 */
lk_status lk__cluster_open(const char *file, lk_cluster **cluster);

void lk__cluster_release(lk_cluster *cluster); /* NULL is fine */

/* "TF_CONFIG", or the file */
const char *lk__cluster_source(const lk_cluster *cluster);

/* The number of processes with a role. */
int lk__cluster_count(const lk_cluster *cluster, lk_cluster_role role);

/* The address of process `index` of a role, valid as long as the cluster. NULL: there is none. */
const lk_cluster_address *lk__cluster_address(const lk_cluster *cluster, lk_cluster_role role, int index);

/* The task of this process; NULL: the description does not say. */
const lk_cluster_task *lk__cluster_task(const lk_cluster *cluster);

/* Sets the task of this process; type: "worker". where: the name of the field in messages. Errors: LK_ERR_FORMAT. */
lk_status lk__cluster_set_task(lk_cluster *cluster, const char *where, const char *type, long long index);

/* Checks that there are as many chiefs and workers as processes that were started. Errors: LK_ERR_ARGUMENT. */
lk_status lk__cluster_check_processes(const lk_cluster *cluster, int processes);
