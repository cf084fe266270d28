/* Runs a worker of a parameter-server training: it is answered by the chief (peers 1, and 2 when it joins), hears
 * pulses (peer 3), and is answered by a server (peer 4). See fuzz_post.h for the format of inputs. */
#include "fuzz_post.h"

#include "lockstep/parameter_server.h"
#include "train/parameter_server/ps_protocol.h"

#include <string.h>
#include <sys/stat.h>

enum { IMAGES = 8, BATCH_SIZE = 4, SHARDS = 4 };

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    FUZZ_CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void interrupt(void *trainer)
{
    if (trainer)
        lk_trainer_interrupt(trainer);
}

/* A trainer of a network so small that its variables fit into an input. */
static lk_trainer *make(void)
{
    static const uint8_t seated[] = {1, 0, LK_PS_SEATED, 0, 1, 0, 0, 0, 0};
    static char folder[64], data[96], model[96]; /* the trainer keeps these names */
    char rows[512] = "label,a,b,c,d\n";
    lk_train_config config;
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(data, sizeof data, "%s/data.csv", folder);
    snprintf(model, sizeof model, "%s/model.lk", folder);
    for (int i = 0; i < IMAGES; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%d,%d,2,3,4\n", i % 2, 10 * i);
    put(data, rows);
    put(model, "batch_norm\nflatten\ndense classes\n");
    FUZZ_CHECK(lk_train_defaults(NULL, &config) == LK_OK);
    config.model = model;
    config.data.name = data;
    config.data.image_shape = "1x2x2";
    config.data.limit_val = 0;
    config.data.workers = 0;
    config.batch_size = BATCH_SIZE;
    config.devices.spec = "cpu:0";
    config.devices.shards = SHARDS;
    config.devices.strategy = "parameter-server";
    config.servers.role = LK_TRAIN_WORKER;
    config.servers.coordinator = "127.0.0.1:1";
    fuzz_post_load(seated, sizeof seated, interrupt, NULL);
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        fprintf(stderr, "%s\n", lk_error_message());
    FUZZ_CHECK(trainer && remove(data) == 0 && remove(model) == 0 && rmdir(folder) == 0);
    return trainer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lk_trainer *trainer;
    lk_train_result result;
    if (!trainer)
        trainer = make();
    fuzz_post_load(data, size, interrupt, trainer);
    fuzz_went_well(lk_trainer_work(trainer, &result));
    FUZZ_CHECK(result.steps >= 0 && result.samples_seen >= 0);
    return 0;
}
