/* CIFAR-10 and CIFAR-100 in their authors' binary version: each record is one or two labels, then the planes of red,
 * green and blue. See https://www.cs.toronto.edu/~kriz/cifar.html. */
#include "data/formats/cifar.h"

#include "base/status.h"
#include "data/formats/byte_source.h"
#include "data/formats/format_files.h"
#include "data/names.h"

#include <inttypes.h>
#include <string.h>

enum { SIDE = 32, VALUES = 3 * SIDE * SIDE };

typedef struct version {
    const char *files[2][6]; /* [lk_split] */
    const char *names;       /* file with the classes' names, one a line */
    int labels;              /* bytes before the pixels of a record; the last of them is the class */
    int classes;
} version;

static const version versions[] = {
    {.files = {[LK_SPLIT_TRAIN] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                   "data_batch_5.bin"},
               [LK_SPLIT_TEST] = {"test_batch.bin"}},
     .names = "batches.meta.txt",
     .labels = 1,
     .classes = 10},
    {.files = {[LK_SPLIT_TRAIN] = {"train.bin"}, [LK_SPLIT_TEST] = {"test.bin"}},
     .names = "fine_label_names.txt",
     .labels = 2,
     .classes = 100},
};

static const version *cifar_find_version(const char *folder)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (lk__find_file(folder, versions[i].files[LK_SPLIT_TRAIN][0], path))
            return &versions[i];
    return NULL;
}

bool lk__is_cifar(const char *folder)
{
    return cifar_find_version(folder) != NULL;
}

/* --- images ------------------------------------------------------------------------------------------------------- */

typedef struct reading {
    const version *version;
    lk_samples *samples;
    int64_t capacity; /* of `samples` */
} reading;

static lk_status cifar_read_record(reading *r, lk_byte_source *source, const char *path, bool *ended)
{
    uint8_t record[VALUES + 2];
    size_t got, bytes = VALUES + (size_t)r->version->labels, offset = source->position;
    lk_status status = lk__byte_source_read(source, record, bytes, &got);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, source->problem);
    *ended = got == 0;
    if (got == 0)
        return LK_OK;
    if (got < bytes)
        LK_FAIL(LK_ERR_FORMAT, "%s: truncated: record at offset %zu has %zu bytes, expected %zu", path, offset, got,
                bytes);
    int label = record[r->version->labels - 1];
    if (label >= r->version->classes)
        LK_FAIL(LK_ERR_FORMAT, "%s: record at offset %zu has label %d, expected 0 to %d", path, offset, label,
                r->version->classes - 1);
    LK_TRY(lk__samples_reserve(r->samples, &r->capacity));
    memcpy(r->samples->memory + r->samples->count * VALUES, record + r->version->labels, VALUES);
    r->samples->labels[r->samples->count++] = label;
    return LK_OK;
}

static lk_status cifar_read_records(reading *r, lk_byte_source *source, const char *path)
{
    int64_t before = r->samples->count;
    for (bool ended = false; !ended;)
        LK_TRY(cifar_read_record(r, source, path, &ended));
    if (r->samples->count == before)
        LK_FAIL(LK_ERR_FORMAT, "%s: is empty, expected records of %d bytes", path, VALUES + r->version->labels);
    return LK_OK;
}

static lk_status cifar_read_file(reading *r, const char *path)
{
    lk_byte_source source;
    lk_status status = lk__byte_source_open(path, &source);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, source.problem);
    status = cifar_read_records(r, &source, path);
    lk__byte_source_close(&source);
    return status;
}

/* --- names of classes --------------------------------------------------------------------------------------------- */

static lk_status cifar_read_text(const char *path, char *text, size_t size)
{
    lk_byte_source source;
    size_t got = 0;
    lk_status status = lk__byte_source_open(path, &source);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, source.problem);
    status = lk__byte_source_read(&source, text, size - 1, &got);
    text[got] = '\0';
    if (status != LK_OK)
        lk__fail(status, "%s: %s", path, source.problem);
    lk__byte_source_close(&source);
    return status;
}

/* Reads the file of names if there is one. One with a wrong number of names is ignored. */
static lk_status cifar_read_names(const version *v, const char *folder, lk_names *names)
{
    char path[PATH_MAX], text[16384], *rest = text;
    if (!lk__find_file(folder, v->names, path))
        return LK_OK;
    LK_TRY(cifar_read_text(path, text, sizeof text));
    lk_status status = LK_OK;
    for (char *line; status == LK_OK && (line = strtok_r(rest, "\r\n", &rest));)
        status = lk__names_add(names, line);
    if (names->count != v->classes)
        lk__names_free(names);
    return status;
}

/* --- the split ---------------------------------------------------------------------------------------------------- */

static lk_status cifar_read_split(reading *r, const char *folder, lk_split split, char source[PATH_MAX])
{
    if (!r->version)
        LK_FAIL(LK_ERR_IO, "%s: CIFAR's files are gone", folder);
    const char *const *files = r->version->files[split];
    for (int i = 0; files[i]; i++) {
        char path[PATH_MAX];
        bool is_there = lk__find_file(folder, files[i], path);
        if (!is_there && split == LK_SPLIT_TEST)
            return lk__no_test_set(folder, files[i]);
        if (!is_there)
            LK_FAIL(LK_ERR_FORMAT, "%s: there is no %s, which belongs to CIFAR-%d", folder, files[i],
                    r->version->classes);
        if (i == 0)
            memcpy(source, path, PATH_MAX);
        LK_TRY(cifar_read_file(r, path));
    }
    r->samples->classes = r->version->classes;
    return cifar_read_names(r->version, folder, &r->samples->class_names);
}

lk_status lk__cifar_read(const char *folder, lk_split split, char source[PATH_MAX], lk_samples *samples)
{
    *samples = (lk_samples){0};
    reading r = {.version = cifar_find_version(folder), .samples = samples};
    samples->channels = 3;
    samples->height = samples->width = SIDE;
    lk_status status = cifar_read_split(&r, folder, split, source);
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}
