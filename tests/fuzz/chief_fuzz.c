/* Lets the chief of a parameter-server training answer requests, all of them to the service. See fuzz_post.h for the
 * format of inputs. A frame with the text AGREEMENT stands for the settings that a worker must share. */
#include "fuzz_post.h"

#include "base/mem.h"
#include "lockstep/dist.h"
#include "train/parameter_server/ps_coordinator.h"
#include "train/parameter_server/ps_report.h"
#include "train/plan/agreement.h"

#include <string.h>

enum { RUN = 77, SHARDS = 4, BATCHES = 8, BATCH_SIZE = 16, SERVERS = 2 };

static struct {
    lk_trainer *trainer;
    lk_post *post;
    lk_ps_layout layout;
    void *fields; /* the settings to share */
    size_t bytes;
} made;

static void make(void)
{
    lk_train_config config;
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    FUZZ_CHECK(lk_train_defaults(NULL, &config) == LK_OK);
    config.model = "lenet";
    config.data.name = "synthetic";
    config.data.limit_train = BATCHES * BATCH_SIZE;
    config.data.limit_val = 0;
    config.devices.spec = "cpu:0";
    config.devices.shards = SHARDS;
    config.batch_size = BATCH_SIZE;
    made.trainer = lk_trainer_new(&config);
    FUZZ_CHECK(made.trainer);
    made.trainer->server.has_optimizer = true; /* as in a chief */
    FUZZ_CHECK(lk__post_open(NULL, &made.post) == LK_OK);
    FUZZ_CHECK(lk__ps_layout_new(made.trainer->model, SERVERS, 0, &made.layout) == LK_OK);
    FUZZ_CHECK(lk__agreement_list(made.trainer, &made.fields, &made.bytes) == LK_OK);
}

static void begin(lk_ps_coordinator *coordinator, int64_t max_staleness)
{
    const double rates[BATCHES] = {0.01};
    lk_ps_training training = {
        .setup = {.run = RUN, .batches = BATCHES, .shards = SHARDS, .max_staleness = max_staleness},
        .most_nodes = SHARDS,
        .layout = &made.layout,
        .variables = lk_trainer_variables(made.trainer, 0),
        .agreement = made.fields,
        .agreement_bytes = made.bytes};
    lk_ps_epoch epoch = {.count = BATCHES, .batch_size = BATCH_SIZE, .samples = BATCHES * BATCH_SIZE, .rates = rates};
    FUZZ_CHECK(lk__ps_coordinator_start(coordinator, &training) == LK_OK);
    FUZZ_CHECK(lk__ps_coordinator_begin(coordinator, &epoch) == LK_OK);
}

/* No message may finish a batch twice, or one that does not exist. */
static void check_finished(lk_ps_coordinator *coordinator)
{
    bool is_finished[BATCHES] = {false}, any = true;
    while (any) {
        lk_ps_finished finished;
        if (!fuzz_went_well(lk__ps_coordinator_next(coordinator, 0, &finished, &any)))
            break;
        FUZZ_CHECK(!any || (finished.index >= 0 && finished.index < BATCHES && !is_finished[finished.index]));
        if (any)
            is_finished[finished.index] = true;
    }
}

static void report(lk_ps_coordinator *coordinator)
{
    lk_ps_worker_record *workers;
    lk_scaling_report report = {0};
    const double updates[SERVERS] = {0};
    lk_async_report counts;
    int n;
    FUZZ_CHECK(lk__ps_coordinator_workers(coordinator, &workers, &n) == LK_OK);
    lk__ps_put_workers(workers, n, &report);
    lk__ps_put_servers(workers, n, &made.layout, updates, -1, &report);
    lk__ps_coordinator_report(coordinator, &counts);
    lk__free(workers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_ps_coordinator *coordinator = NULL;
    lk_ps_identity identity = {.servers = SERVERS, .timeout = 0.25, .join_timeout = 1};
    if (!made.trainer)
        make();
    if (size < 1)
        return 0;
    fuzz_post_load(data + 1, size - 1, NULL, NULL);
    fuzz_post_replace("AGREEMENT", made.fields, made.bytes);
    FUZZ_CHECK(lk__ps_coordinator_open(made.post, &identity, &coordinator) == LK_OK);
    begin(coordinator, data[0] % 4 - 1);
    fuzz_post_wait_until_dry();
    check_finished(coordinator);
    report(coordinator);
    lk__ps_coordinator_release(coordinator);
    lk_error_clear();
    return 0;
}
