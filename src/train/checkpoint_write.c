/* A checkpoint's folder: made under another name, with the manifest last, and renamed once all of it is on disk. */
#include "train/checkpoint.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "nn/model.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct manifest {
    const char *folder; /* in which files are written */
    lk__bytes text;
} manifest;

/* --- files -------------------------------------------------------------------------------------------------------- */

static void list(manifest *m, const char *name, int64_t bytes, uint64_t hash)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    lk__json_open(&m->text, name, '{');
    lk__json_field(&m->text, LK_INT("bytes", bytes));
    lk__json_field(&m->text, LK_TEXT("xxh3", text));
    lk__json_close(&m->text, '}');
}

static lk_status write_file(manifest *m, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    lk__durable_file file;
    uint64_t hash = 0;
    LK_TRY(lk__checkpoint_path(m->folder, name, path));
    LK_TRY(lk__durable_open(&file, path));
    lk_status status = lk__durable_put(&file, data, bytes);
    if (status == LK_OK)
        status = lk__durable_finish(&file, &hash);
    lk__durable_abandon(&file);
    if (status == LK_OK && strcmp(name, "manifest.json") != 0)
        list(m, name, (int64_t)bytes, hash);
    return status;
}

static lk_status write_tensors(manifest *m, const char *name, const lk__safetensors_entry *entries, int n)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* as PyTorch's own are marked: row-major */
    char path[PATH_MAX];
    int64_t bytes;
    uint64_t hash;
    LK_TRY(lk__checkpoint_path(m->folder, name, path));
    LK_TRY(lk__safetensors_write(path, entries, n, metadata, &bytes, &hash));
    list(m, name, bytes, hash);
    return LK_OK;
}

static lk_status write_model(manifest *m, const lk__checkpoint_contents *c)
{
    int n = lk_model_variable_count(c->model);
    lk__safetensors_entry *entries = lk__calloc((size_t)n + 1, sizeof *entries);
    const float *values = c->variables;
    if (!entries)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        entries[i] =
            (lk__safetensors_entry){lk_model_variable_name(c->model, i), lk_model_variable_shape(c->model, i), values};
        values += lk_shape_count(entries[i].shape);
    }
    lk_status status = write_tensors(m, "model.safetensors", entries, n);
    lk__free(entries);
    return status;
}

/* "momentum.conv1.weight" */
static char *slot_name(const char *slot, const char *variable)
{
    size_t size = strlen(slot) + strlen(variable) + 2;
    char *name = lk__calloc(size, 1);
    if (name)
        snprintf(name, size, "%s.%s", slot, variable);
    return name;
}

static lk_status write_slots(manifest *m, const lk__checkpoint_contents *c)
{
    int parameters = lk_model_parameter_count(c->model), n = 0;
    lk__safetensors_entry *entries = lk__calloc((size_t)(c->n_slots * parameters) + 1, sizeof *entries);
    lk_status status = entries ? LK_OK : LK_ERR_MEMORY;
    for (int s = 0; s < c->n_slots && status == LK_OK; s++) {
        const float *values = c->slots[s];
        for (int i = 0; i < parameters && status == LK_OK; i++) {
            lk_shape shape = lk_model_variable_shape(c->model, i);
            char *name = slot_name(c->slot_names[s], lk_model_variable_name(c->model, i));
            status = name ? LK_OK : LK_ERR_MEMORY;
            entries[n++] = (lk__safetensors_entry){name, shape, values};
            values += lk_shape_count(shape);
        }
    }
    if (status == LK_OK)
        status = write_tensors(m, "optimizer.safetensors", entries, n);
    for (int i = 0; i < n; i++)
        lk__free((char *)entries[i].name);
    lk__free(entries);
    return status;
}

static lk_status write_files(manifest *m, const lk__checkpoint_contents *c)
{
    lk__json_open(&m->text, NULL, '{');
    lk__json_field(&m->text, LK_TEXT("format", LK_MANIFEST_FORMAT));
    lk__json_field(&m->text, LK_INT("version", LK_CHECKPOINT_VERSION));
    lk__json_open(&m->text, "files", '{');
    LK_TRY(write_model(m, c));
    LK_TRY(write_slots(m, c));
    LK_TRY(write_file(m, "state.json", c->state.data, c->state.size));
    if (c->implementations.size > 0)
        LK_TRY(write_file(m, "implementations", c->implementations.data, c->implementations.size));
    if (c->model->text)
        LK_TRY(write_file(m, "model.lk", c->model->text, strlen(c->model->text)));
    lk__json_close(&m->text, '}');
    lk__json_close(&m->text, '}');
    lk__bytes_char(&m->text, '\n');
    LK_TRY(lk__bytes_status(&m->text));
    return write_file(m, "manifest.json", m->text.data, m->text.size);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status place(const char *beside, const char *path)
{
    int swapped;
    LK_TRY(lk__durable_rename_folder(beside, path, &swapped));
    return swapped ? lk__remove_folder(beside) : LK_OK;
}

lk_status lk__checkpoint_write(const char *folder, const lk__checkpoint_contents *contents)
{
    char name[LK_CHECKPOINT_NAME], hidden[LK_CHECKPOINT_NAME + sizeof LK_UNFINISHED], path[PATH_MAX], beside[PATH_MAX];
    lk__checkpoint_name(contents->steps, name);
    snprintf(hidden, sizeof hidden, LK_UNFINISHED "%s", name);
    LK_TRY(lk__checkpoint_path(folder, name, path));
    LK_TRY(lk__checkpoint_path(folder, hidden, beside));
    LK_TRY(lk__remove_folder(beside));
    if (mkdir(beside, 0777) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be made: %s", beside, strerror(errno));
    manifest m = {.folder = beside};
    lk_status status = write_files(&m, contents);
    lk__bytes_free(&m.text);
    if (status == LK_OK)
        return place(beside, path);
    lk_error_state kept;
    lk__error_save(&kept);
    lk_error_clear();
    lk__remove_folder(beside);
    lk__error_restore(&kept);
    return status;
}

lk_status lk__checkpoint_write_alone(const char *folder, const lk__checkpoint_contents *contents, const lk__best *best)
{
    int lock;
    LK_TRY(lk__checkpoint_lock(folder, &lock));
    lk_status status = lk__checkpoint_write(folder, contents);
    if (status == LK_OK && best && *best->name)
        status = lk__checkpoint_write_best(folder, best);
    lk__checkpoint_unlock(&lock);
    return status;
}
