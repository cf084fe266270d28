/* Reads checkpoints. The first byte of the input says which file the rest is: 'm' manifest.json; 's' state.json and 'w'
 * model.safetensors, with a matching manifest; 'b' best.json. The other files are valid. */
#include "fuzz_safetensors.h"

#include "io/safetensors.h"
#include "lockstep/checkpoint.h"
#include "io/safetensors_write.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static char folder[64], one[96];
static unsigned char whole_model[1024];
static size_t whole_model_bytes;

static const char whole_state[] =
    "{\"format\":\"lockstep checkpoint\",\"version\":2,\"model\":{\"kind\":\"built\",\"name\":\"n\",\"channels\":1,"
    "\"height\":2,\"width\":2,\"classes\":2,\"variables\":[\"w\"]},\"data\":{\"name\":\"d\"},\"dtype\":\"f32\","
    "\"seed\":\"1\",\"position\":{\"epoch\":1,\"batch\":0,\"steps\":1,\"updates\":1,\"samples_seen\":4}}";

static void put(const char *in, const char *name, const void *data, size_t size)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", in, name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void put_manifest(size_t model_bytes, uint64_t model_hash, const void *state, size_t bytes)
{
    char text[512];
    int length =
        snprintf(text, sizeof text,
                 "{\"format\":\"lockstep manifest\",\"version\":2,\"files\":{\"model.safetensors\":{\"bytes\":"
                 "%zu,\"xxh3\":\"%016" PRIx64 "\"},\"state.json\":{\"bytes\":%zu,\"xxh3\":\"%016" PRIx64 "\"}}}",
                 model_bytes, model_hash, bytes, (uint64_t)XXH3_64bits(state, bytes));
    put(one, "manifest.json", text, (size_t)length);
}

static void remove_all(void)
{
    static const char *const names[] = {"model.safetensors", "state.json", "manifest.json", "../best.json"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", one, names[i]);
        remove(path);
    }
    rmdir(one);
    rmdir(folder);
}

static void put_both(const void *model, size_t model_bytes, const void *state, size_t bytes)
{
    put(one, "model.safetensors", model, model_bytes);
    put(one, "state.json", state, bytes);
    put_manifest(model_bytes, XXH3_64bits(model, model_bytes), state, bytes);
}

static void put_whole(void)
{
    put_both(whole_model, whole_model_bytes, whole_state, sizeof whole_state - 1);
}

/* Writes the file once to learn its content. */
static void make_model(void)
{
    static const float values[] = {1, 2, 3};
    char path[160];
    int64_t bytes;
    uint64_t hash;
    lk_safetensors_entry entry = {.name = "w", .shape = LK_SHAPE(3), .values = values};
    snprintf(path, sizeof path, "%s/model.safetensors", one);
    FUZZ_CHECK(lk__safetensors_write(path, &entry, 1, NULL, &bytes, &hash) == LK_OK);
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file);
    whole_model_bytes = fread(whole_model, 1, sizeof whole_model, file);
    FUZZ_CHECK(fclose(file) == 0 && whole_model_bytes == (size_t)bytes);
}

static void make(void)
{
    /* Every input writes a few files: keep them in memory if possible. */
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(one, sizeof one, "%s/checkpoint-00000001", folder);
    FUZZ_CHECK(mkdir(one, 0700) == 0);
    atexit(remove_all);
    make_model();
    put_whole();
    lk_checkpoint *checkpoint;
    FUZZ_CHECK(lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &checkpoint) == LK_OK);
    lk_checkpoint_release(checkpoint);
}

static void look_at(const lk_checkpoint *checkpoint)
{
    const lk_checkpoint_info *info = lk_checkpoint_get_info(checkpoint);
    FUZZ_CHECK(info->model && info->channels >= 1 && info->height >= 1 && info->width >= 1 && info->classes >= 0);
    for (int64_t c = 0; info->class_names && c < info->classes; c++)
        fuzz_touch(info->class_names[c], strlen(info->class_names[c]));
    if (info->mean)
        fuzz_touch(info->mean, (size_t)info->channels * sizeof *info->mean);
    if (info->deviation)
        fuzz_touch(info->deviation, (size_t)info->channels * sizeof *info->deviation);
    for (int i = 0; i < info->n_settings; i++)
        FUZZ_CHECK(lk_checkpoint_get_setting(checkpoint, info->settings[i].name));
    for (int i = 0; i < lk_checkpoint_variable_count(checkpoint); i++) {
        lk_shape shape;
        const float *values = lk_checkpoint_variable(checkpoint, i, NULL, &shape);
        fuzz_touch(values, (size_t)lk_shape_count(shape) * sizeof *values);
    }
    /* A changed state may ask for a model file, and the checkpoint has none. */
    lk_model *model = lk_checkpoint_model(checkpoint);
    fuzz_went_well(model ? LK_OK : lk_error_status());
    lk_model_release(model);
}

/* Keeps the kind of most inputs. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    if (size < 2 || seed % 64 == 0)
        return LLVMFuzzerMutate(data, size, most);
    return 1 + (data[0] == 'w' ? fuzz_safetensors_mutate(data + 1, size - 1, most - 1, seed / 64)
                               : LLVMFuzzerMutate(data + 1, size - 1, most - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_checkpoint *checkpoint = NULL;
    if (!*folder)
        make();
    if (size < 1 || !strchr("mswb", data[0]) || !data[0])
        return 0;
    if (data[0] == 'm') {
        put(one, "manifest.json", data + 1, size - 1);
    } else if (data[0] == 's') {
        put_both(whole_model, whole_model_bytes, data + 1, size - 1);
    } else if (data[0] == 'w') {
        put_both(data + 1, size - 1, whole_state, sizeof whole_state - 1);
    } else {
        put(folder, "best.json", data + 1, size - 1);
    }
    lk_checkpoint_which which = data[0] == 'b' ? LK_CHECKPOINT_BEST : LK_CHECKPOINT_LAST;
    if (fuzz_went_well(lk_checkpoint_open(folder, which, &checkpoint)))
        look_at(checkpoint);
    lk_checkpoint_release(checkpoint);
    put_whole();
    return 0;
}
