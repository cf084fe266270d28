/* Reads CIFAR's binary files. The first byte of the input is the version, 10 or 100; the second says how many of the
 * next bytes are the class names. The rest is the test set, which repeats one image so that inputs stay short. */
#include "fuzz.h"

#include "data/catalog/own_data.h"
#include "data/formats/cifar.h"

#include <string.h>
#include <sys/stat.h>

enum { VALUES = 3 * 32 * 32 };

static char folder[64];

static const char *const files[] = {"data_batch_1.bin", "test_batch.bin", "batches.meta.txt",
                                    "train.bin",        "test.bin",       "fine_label_names.txt"};

static void put(const char *name, const void *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void remove_files(void)
{
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        remove(path);
    }
}

static void remove_all(void)
{
    remove_files();
    rmdir(folder);
}

static void make(void)
{
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    atexit(remove_all);
}

/* Each byte of the input becomes the labels of a record. The last byte says how many bytes to cut from the last record.
 */
static void put_records(const char *name, const uint8_t *data, size_t size, size_t labels)
{
    size_t bytes = labels + VALUES, whole = size > 64 ? 64 : size;
    uint8_t *records = calloc(whole + 1, bytes);
    FUZZ_CHECK(records);
    for (size_t i = 0; i < whole; i++)
        memset(records + i * bytes, data[i], bytes);
    size_t cut = whole > 0 && data[whole - 1] >= 200 ? data[whole - 1] - 199u : 0;
    put(name, records, whole * bytes - cut);
    free(records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_samples samples;
    char source[PATH_MAX];
    if (!*folder)
        make();
    if (size < 2)
        return 0;
    bool is_hundred = data[0] == 100;
    size_t names = data[1] < size - 2 ? data[1] : size - 2;
    remove_files();
    put(is_hundred ? "train.bin" : "data_batch_1.bin", "", 0);
    put(is_hundred ? "fine_label_names.txt" : "batches.meta.txt", data + 2, names);
    put_records(is_hundred ? "test.bin" : "test_batch.bin", data + 2 + names, size - 2 - names, is_hundred ? 2 : 1);
    FUZZ_CHECK(lk__is_cifar(folder));
    if (!fuzz_went_well(lk__cifar_read(folder, LK_SPLIT_TEST, source, &samples)))
        return 0;
    FUZZ_CHECK(samples.classes == (is_hundred ? 100 : 10) && samples.channels == 3);
    for (int64_t i = 0; i < samples.count; i++)
        FUZZ_CHECK(samples.labels[i] >= 0 && samples.labels[i] < samples.classes);
    fuzz_touch(samples.images, (size_t)samples.count * VALUES);
    lk__samples_free(&samples);
    return 0;
}
