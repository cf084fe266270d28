/* Resumes trainings. The input is the state.json of a checkpoint that is otherwise whole, taken in the middle of the
 * first epoch. The resumed training ends with its second epoch. */
#include "fuzz.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/trainer.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { IMAGES = 16, BATCH_SIZE = 4, MOST_FILES = 8, MOST_BYTES = 1 << 14 };

typedef struct file {
    char name[64];
    char bytes[MOST_BYTES];
    size_t size;
} file;

static char folder[64], run[80], one[160], data_path[96], model_path[96], csv_path[96], lines_path[96], svg_path[96];
static file files[MOST_FILES]; /* of the checkpoint */
static int n_files;
static bool is_made;

static void put(const char *in, const char *name, const void *bytes, size_t size)
{
    char path[256];
    FUZZ_CHECK(snprintf(path, sizeof path, "%s/%s", in, name) < (int)sizeof path);
    FILE *to = fopen(path, "wb");
    FUZZ_CHECK(to && fwrite(bytes, 1, size, to) == size && fclose(to) == 0);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *position)
{
    (void)status, (void)type, (void)position;
    return remove(path);
}

static void remove_all(void)
{
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static lk_train_config config_of(int64_t epochs, bool resume)
{
    lk_train_config config;
    FUZZ_CHECK(lk_train_defaults(NULL, &config) == LK_OK);
    config.model = model_path;
    config.data.name = data_path;
    config.data.image_shape = "1x2x2";
    config.data.val_split = 0.5;
    config.data.workers = 0;
    config.batch_size = BATCH_SIZE;
    config.epochs = epochs;
    config.devices.spec = "cpu:0";
    config.devices.shards = 2;
    config.optimizer.momentum = 0.9;
    config.checkpoints.dir = run;
    config.checkpoints.every = resume ? "1000" : "1";
    config.checkpoints.resume = config.checkpoints.override = resume;
    return config;
}

static lk_status train(const lk_train_config *config)
{
    lk_train_result result;
    lk_trainer *trainer = lk_trainer_new(config);
    if (!trainer)
        return lk_error_status();
    FUZZ_CHECK(lk_trainer_add(trainer, lk_callback_stop_on_plateau(5, 0, NULL)) == LK_OK);
    FUZZ_CHECK(lk_trainer_add(trainer, lk_callback_stop_at_accuracy(1, 5, NULL)) == LK_OK);
    FUZZ_CHECK(lk_trainer_add(trainer, lk_callback_csv(csv_path)) == LK_OK);
    FUZZ_CHECK(lk_trainer_add(trainer, lk_callback_json_lines(lines_path, NULL)) == LK_OK);
    FUZZ_CHECK(lk_trainer_add(trainer, lk_callback_curves(svg_path, NULL)) == LK_OK);
    lk_status status = lk_trainer_fit(trainer, &result);
    lk_trainer_release(trainer);
    return status;
}

/* --- the checkpoint ----------------------------------------------------------------------------------------------- */

static void read_file(const char *in, const char *name)
{
    char path[300];
    file *f = &files[n_files++];
    FUZZ_CHECK(n_files <= MOST_FILES && strlen(name) < sizeof f->name);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", in, name);
    FILE *from = fopen(path, "rb");
    FUZZ_CHECK(from);
    f->size = fread(f->bytes, 1, MOST_BYTES - 1, from);
    fclose(from);
}

/* Keeps the content of the checkpoint that was taken in the middle of the first epoch. */
static void read_checkpoint(void)
{
    snprintf(one, sizeof one, "%s/checkpoint-00000001", run);
    DIR *entries = opendir(one);
    FUZZ_CHECK(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            read_file(one, entry->d_name);
    closedir(entries);
}

static void make(void)
{
    char rows[512] = "label,a,b,c,d\n";
    static const char model[] = "batch_norm\nflatten\ndense classes\n";
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    atexit(remove_all);
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(data_path, sizeof data_path, "%s/data.csv", folder);
    snprintf(model_path, sizeof model_path, "%s/model.lk", folder);
    snprintf(csv_path, sizeof csv_path, "%s/epochs.csv", folder);
    snprintf(lines_path, sizeof lines_path, "%s/lines.jsonl", folder);
    snprintf(svg_path, sizeof svg_path, "%s/curves.svg", folder);
    for (int i = 0; i < IMAGES; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%d,%d,2,3,4\n", i % 2, 10 * i);
    put(folder, "data.csv", rows, strlen(rows));
    put(folder, "model.lk", model, sizeof model - 1);
    lk_train_config config = config_of(1, false);
    lk_status status = train(&config);
    if (status != LK_OK)
        fprintf(stderr, "%s\n", lk_error_message());
    FUZZ_CHECK(status == LK_OK);
    read_checkpoint();
    is_made = true;
}

/* Writes a manifest with the state's size and digest. */
static void put_manifest(file *manifest, const void *state, size_t size)
{
    static const char before[] = "\"state.json\":{";
    char text[MOST_BYTES];
    manifest->bytes[manifest->size] = '\0';
    char *begin = strstr(manifest->bytes, before), *end = begin ? strchr(begin, '}') : NULL;
    FUZZ_CHECK(end);
    int n = snprintf(text, sizeof text, "%.*s\"bytes\":%zu,\"xxh3\":\"%016" PRIx64 "\"%s",
                     (int)(begin - manifest->bytes) + (int)sizeof before - 1, manifest->bytes, size,
                     (uint64_t)XXH3_64bits(state, size), end);
    put(one, manifest->name, text, (size_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!is_made)
        make();
    lk_train_config config = config_of(2, true);
    nftw(run, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    FUZZ_CHECK(mkdir(run, 0700) == 0 && mkdir(one, 0700) == 0);
    for (int i = 0; i < n_files; i++) {
        if (strcmp(files[i].name, "state.json") == 0)
            put(one, files[i].name, data, size);
        else if (strcmp(files[i].name, "manifest.json") == 0)
            put_manifest(&files[i], data, size);
        else
            put(one, files[i].name, files[i].bytes, files[i].size);
    }
    fuzz_went_well(train(&config));
    return 0;
}
