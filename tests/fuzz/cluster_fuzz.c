/* Reads descriptions of clusters: a text, which is also given as $TF_CONFIG. With a zero byte in the input, what is
 * before it is a file, and what comes after is $TF_CONFIG, from which the task is taken. */
#include "fuzz.h"

#include "dist/service/cluster.h"

#include <string.h>

static void check(lk_status status, lk_cluster *cluster)
{
    if (fuzz_went_well(status) && cluster) {
        for (int role = 0; role < LK_ROLE_COUNT; role++)
            for (int i = 0; i < lk__cluster_count(cluster, (lk_cluster_role)role); i++) {
                const lk_cluster_address *address = lk__cluster_address(cluster, (lk_cluster_role)role, i);
                FUZZ_CHECK(address && address->host[0] && address->port >= 0 && address->port <= 65535);
            }
        const lk_cluster_task *task = lk__cluster_task(cluster);
        FUZZ_CHECK(!task || lk__cluster_address(cluster, task->role, task->index));
        fuzz_went_well(lk__cluster_check_processes(cluster, 2));
        fuzz_touch(lk__cluster_source(cluster), strlen(lk__cluster_source(cluster)));
    }
    lk__cluster_release(cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_cluster *cluster = NULL;
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : 0, begin = zero ? first + 1 : 0;
    char *variable = strndup((const char *)data + begin, size - begin);
    FUZZ_CHECK(variable && setenv("TF_CONFIG", variable, 1) == 0);
    free(variable);
    if (!zero) {
        lk_status status = lk__cluster_parse((const char *)data, size, "input", &cluster);
        check(status, cluster);
    }
    lk_status status = lk__cluster_open(zero ? fuzz_file(data, first) : NULL, &cluster);
    check(status, cluster);
    return 0;
}
