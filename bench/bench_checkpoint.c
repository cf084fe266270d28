/* Measures how long a checkpoint delays training, and how fast checkpoints are written and read compared with plain
 * files of the same size. bench_checkpoint FOLDER [MODEL]: the folder is on the disk to measure, and is left as it was.
 *
 * Prints milliseconds for which a step waits while state is copied, and their share of a minute; megabytes per second
 * of writing (until everything is on disk) and of reading (with nothing cached), for checkpoints and for plain files.
 */
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 4, PIECE = 1 << 22 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(lk_status status, const char *what)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "bench_checkpoint: %s: %s\n", what, lk_error_message());
    exit(1);
}

/* --- the wait ----------------------------------------------------------------------------------------------------- */

/* The library's callback, with a clock around the part that training waits for. */
typedef struct timed {
    lk_callback inner;
    const char *folder;
    double seconds, saving; /* saving: the shortest time from the beginning of the copy until it is on disk */
    int count;
} timed;

static lk_status begin(void *self, lk_trainer *trainer)
{
    timed *t = self;
    return t->inner.train_begin(t->inner.self, trainer);
}

static bool wants_rest(void *self, lk_trainer *trainer, int64_t steps)
{
    (void)self, (void)trainer, (void)steps;
    return true;
}

static lk_status rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    timed *t = self;
    double began = now();
    lk_status status = t->inner.rest(t->inner.self, trainer, report);
    t->seconds += now() - began;
    t->count++;
    /* It is on disk once the one before it is removed. */
    char before[4200];
    snprintf(before, sizeof before, "%s/checkpoint-%08lld", t->folder, (long long)report->steps - 1);
    while (status == LK_OK && access(before, F_OK) == 0 && now() - began < 60)
        nanosleep(&(struct timespec){0, 200000}, NULL);
    double saving = now() - began;
    t->saving = t->saving == 0 || saving < t->saving ? saving : t->saving;
    return status;
}

static lk_status end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    timed *t = self;
    return t->inner.train_end(t->inner.self, trainer, result, status);
}

static void release(void *self)
{
    timed *t = self;
    t->inner.release(t->inner.self);
}

/* Gives the seconds until a checkpoint is saved. */
static double measure_wait(const char *folder, const char *model)
{
    static timed t;
    lk_train_config config;
    lk_train_result result;
    t.folder = folder;
    check(lk_train_defaults(NULL, &config), "options");
    config.model = model;
    config.data.name = "synthetic";
    config.batch_size = 8;
    config.data.limit_train = 8 * STEPS;
    config.data.limit_val = 0;
    config.epochs = 1;
    config.optimizer.momentum = 0.9;
    config.devices.spec = "1xcpu";
    lk_trainer *trainer = lk_trainer_new(&config);
    check(trainer ? LK_OK : lk_error_status(), "trainer");
    t.inner = lk_callback_checkpoint(folder, &(lk_checkpoint_opts){.every_steps = 1, .keep = 1, .best = LK_BEST_NONE});
    check(lk_trainer_add(trainer, (lk_callback){.name = "timed",
                                                .train_begin = begin,
                                                .wants_rest = wants_rest,
                                                .rest = rest,
                                                .train_end = end,
                                                .release = release,
                                                .self = &t}),
          "callback");
    check(lk_trainer_fit(trainer, &result), "training");
    printf("%s: a step waits %.1f ms, %.3f %% of a minute\n", model, 1e3 * t.seconds / t.count,
           100 * t.seconds / t.count / 60);
    lk_trainer_release(trainer);
    return t.saving;
}

/* --- the disk ----------------------------------------------------------------------------------------------------- */

static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void forget_checkpoint(const char *folder)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"};
    char path[4200];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-00000001/%s", folder, files[i]);
        forget(path);
    }
}

static void plain_file(const char *folder, double bytes, double *written, double *read_back)
{
    char path[4200];
    static char piece[PIECE];
    snprintf(path, sizeof path, "%s/plain", folder);
    double began = now();
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (double at = 0; at < bytes; at += PIECE)
        if (write(fd, piece, PIECE) != PIECE)
            check(LK_ERR_IO, path);
    fsync(fd);
    close(fd);
    *written = bytes / (now() - began);
    forget(path);
    began = now();
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (read(fd, piece, PIECE) > 0)
        continue;
    close(fd);
    *read_back = bytes / (now() - began);
    unlink(path);
}

static void measure_disk(const char *folder, const char *model, double saving)
{
    lk_device *device = lk_device_open("cpu");
    lk_strategy *strategy = lk_strategy_new("one-device", &device, 1);
    lk_model *network = lk_model_new(model, (lk_model_input){1, 28, 28, 10});
    lk_replicas *replicas =
        lk_replicas_new(strategy, network, &(lk_optimizer_opts){.kind = LK_SGD, .momentum = 0.9}, 1);
    check(replicas ? LK_OK : lk_error_status(), "replicas");
    double bytes = 0;
    for (int i = 0; i < lk_model_variable_count(network); i++)
        bytes += 4.0 * (double)lk_shape_count(lk_model_variable_shape(network, i)) *
                 (i < lk_model_parameter_count(network) ? 2 : 1);
    double loading = 1e9, plain_write = 0, plain_read = 0;
    for (int i = 0; i < 3; i++) {
        double written, read_back;
        check(lk_replicas_save(replicas, folder, &(lk_checkpoint_info){.steps = 1}), "save");
        forget_checkpoint(folder);
        lk_checkpoint *checkpoint;
        double began = now();
        check(lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &checkpoint), "open");
        check(lk_replicas_restore(replicas, checkpoint), "restore");
        double seconds = now() - began;
        loading = seconds < loading ? seconds : loading;
        lk_checkpoint_release(checkpoint);
        plain_file(folder, bytes, &written, &read_back);
        plain_write = written > plain_write ? written : plain_write;
        plain_read = read_back > plain_read ? read_back : plain_read;
    }
    printf("%s: %.1f MB: written at %.0f MB/s (a plain file %.0f: %.0f %%), read at %.0f MB/s (%.0f: %.0f %%)\n", model,
           bytes / 1e6, bytes / saving / 1e6, plain_write / 1e6, 100 * bytes / saving / plain_write,
           bytes / loading / 1e6, plain_read / 1e6, 100 * bytes / loading / plain_read);
    lk_replicas_release(replicas);
    lk_model_release(network);
    lk_strategy_release(strategy);
    lk_device_release(device);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    char folder[4096], command[4200];
    if (argc < 2) {
        fprintf(stderr, "bench_checkpoint FOLDER [MODEL]\n");
        return 2;
    }
    const char *model = argc > 2 ? argv[2] : "resnet18";
    snprintf(folder, sizeof folder, "%s/bench-XXXXXX", argv[1]);
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    double saving = measure_wait(folder, model);
    snprintf(command, sizeof command, "rm -rf '%s'/*", folder);
    if (system(command) == 0)
        measure_disk(folder, model, saving);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
