/* Reads descriptions of clusters. */
#include "fuzz.h"

#include "dist/service/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_cluster *cluster = NULL;
    if (fuzz_went_well(lk__cluster_parse((const char *)data, size, "input", &cluster)) && cluster) {
        for (int role = 0; role < LK_ROLE_COUNT; role++)
            for (int i = 0; i < lk__cluster_count(cluster, (lk_cluster_role)role); i++) {
                const lk_cluster_address *address = lk__cluster_address(cluster, (lk_cluster_role)role, i);
                FUZZ_CHECK(address && address->host[0] && address->port >= 0 && address->port <= 65535);
            }
        const lk_cluster_task *task = lk__cluster_task(cluster);
        FUZZ_CHECK(!task || lk__cluster_address(cluster, task->role, task->index));
    }
    lk__cluster_release(cluster);
    return 0;
}
