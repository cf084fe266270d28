/* A checkpoint is written into a folder with a temporary name, the manifest last. Once everything is on disk the folder
 * is renamed. */
#include "train/checkpoint/checkpoint_write.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/durable.h"
#include "io/json.h"
#include "io/safetensors_write.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/replicas_state.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct manifest {
    const char *folder; /* the files are written here */
    lk_bytes text;
} manifest;

/* --- files -------------------------------------------------------------------------------------------------------- */

static void checkpoint_manifest_add(manifest *m, const char *name, int64_t bytes, uint64_t hash)
{
    lk__json_open(&m->text, name, '{');
    lk__json_field(&m->text, LK_INT("bytes", bytes));
    lk__json_hash(&m->text, "xxh3", hash);
    lk__json_close(&m->text, '}');
}

static lk_status checkpoint_write_file(manifest *m, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    uint64_t hash;
    LK_TRY(lk__checkpoint_path(m->folder, name, path));
    LK_TRY(lk__durable_create(path, data, bytes, &hash));
    if (strcmp(name, "manifest.json") != 0)
        checkpoint_manifest_add(m, name, (int64_t)bytes, hash);
    return LK_OK;
}

static lk_status checkpoint_write_tensors(manifest *m, const char *name, const lk_safetensors_entry *entries, int n)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* as PyTorch's own files: row-major */
    char path[PATH_MAX];
    int64_t bytes;
    uint64_t hash;
    LK_TRY(lk__checkpoint_path(m->folder, name, path));
    LK_TRY(lk__safetensors_write(path, entries, n, metadata, &bytes, &hash));
    checkpoint_manifest_add(m, name, bytes, hash);
    return LK_OK;
}

static lk_status checkpoint_write_model(manifest *m, const lk_checkpoint_contents *c)
{
    int n = lk_model_variable_count(c->model);
    lk_safetensors_entry *entries = lk__calloc((size_t)n + 1, sizeof *entries);
    const float *values = c->variables;
    if (!entries)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        entries[i] =
            (lk_safetensors_entry){lk_model_variable_name(c->model, i), lk_model_variable_shape(c->model, i), values};
        values += lk_shape_count(entries[i].shape);
    }
    lk_status status = checkpoint_write_tensors(m, "model.safetensors", entries, n);
    lk__free(entries);
    return status;
}

/* Returns "SLOT.VARIABLE", such as "momentum.conv1.weight"; free it with lk__free. */
static char *checkpoint_write_slot_name(const char *slot, const char *variable)
{
    size_t size = strlen(slot) + strlen(variable) + 2;
    char *name = lk__calloc(size, 1);
    if (name)
        snprintf(name, size, "%s.%s", slot, variable);
    return name;
}

static lk_status checkpoint_write_optimizer(manifest *m, const lk_checkpoint_contents *c)
{
    int parameters = lk_model_parameter_count(c->model), variables = lk_model_variable_count(c->model), n = 0;
    lk_safetensors_entry *entries = lk__calloc((size_t)(c->n_slots + 1) * (size_t)variables + 1, sizeof *entries);
    lk_status status = entries ? LK_OK : LK_ERR_MEMORY;
    for (int s = 0; s < c->n_slots + (c->kept != NULL) && status == LK_OK; s++) {
        bool is_slot = s < c->n_slots;
        const float *values = is_slot ? c->slots[s] : c->kept;
        const char *slot = is_slot ? c->slot_names[s] : LK_KEPT;
        for (int i = 0; i < (is_slot ? parameters : variables) && status == LK_OK; i++) {
            lk_shape shape = lk_model_variable_shape(c->model, i);
            char *name = checkpoint_write_slot_name(slot, lk_model_variable_name(c->model, i));
            status = name ? LK_OK : LK_ERR_MEMORY;
            entries[n++] = (lk_safetensors_entry){name, shape, values};
            values += lk_shape_count(shape);
        }
    }
    if (status == LK_OK)
        status = checkpoint_write_tensors(m, "optimizer.safetensors", entries, n);
    for (int i = 0; i < n; i++)
        lk__free((char *)entries[i].name);
    lk__free(entries);
    return status;
}

static lk_status checkpoint_write_files(manifest *m, const lk_checkpoint_contents *c)
{
    lk__json_open(&m->text, NULL, '{');
    lk__json_field(&m->text, LK_TEXT("format", LK_MANIFEST_FORMAT));
    lk__json_field(&m->text, LK_INT("version", LK_CHECKPOINT_VERSION));
    lk__json_open(&m->text, "files", '{');
    LK_TRY(checkpoint_write_model(m, c));
    LK_TRY(checkpoint_write_optimizer(m, c));
    LK_TRY(checkpoint_write_file(m, "state.json", c->state.data, c->state.size));
    if (c->implementations.size > 0)
        LK_TRY(checkpoint_write_file(m, "implementations", c->implementations.data, c->implementations.size));
    if (c->model->text)
        LK_TRY(checkpoint_write_file(m, "model.lk", c->model->text, strlen(c->model->text)));
    lk__json_close(&m->text, '}');
    lk__json_close(&m->text, '}');
    lk__bytes_char(&m->text, '\n');
    LK_TRY(lk__bytes_status(&m->text));
    return checkpoint_write_file(m, "manifest.json", m->text.data, m->text.size);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

lk_status lk__checkpoint_write(const char *folder, const lk_checkpoint_contents *contents, const char *spare)
{
    char name[LK_CHECKPOINT_NAME], path[PATH_MAX], temporary[PATH_MAX];
    lk__checkpoint_name(contents->steps, name);
    LK_TRY(lk__checkpoint_path(folder, name, path));
    LK_TRY(lk__checkpoint_prefixed_path(folder, LK_UNFINISHED, name, temporary));
    LK_TRY(lk__remove_folder(temporary));
    if ((!spare || rename(spare, temporary) != 0) && mkdir(temporary, 0777) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be made: %s", temporary, strerror(errno));
    manifest m = {.folder = temporary};
    lk_status status = checkpoint_write_files(&m, contents);
    lk__bytes_free(&m.text);
    bool swapped = false; /* an older checkpoint of this name is now the temporary folder */
    if (status == LK_OK)
        status = lk__durable_rename_folder(temporary, path, &swapped);
    if (status == LK_OK)
        return swapped ? lk__remove_folder(temporary) : LK_OK;
    if (swapped) /* it may still have its name on disk, so it stays until the next checkpoint is written */
        return status;
    lk_error_state kept;
    lk__error_save(&kept);
    lk_error_clear();
    lk__remove_folder(temporary);
    lk__error_restore(&kept);
    return status;
}

lk_status lk__checkpoint_write_alone(const char *folder, const lk_checkpoint_contents *contents, const lk_best *best)
{
    int lock;
    LK_TRY(lk__checkpoint_lock(folder, &lock));
    lk_status status = lk__checkpoint_write(folder, contents, NULL);
    if (status == LK_OK && best && *best->name)
        status = lk__checkpoint_write_best(folder, best);
    lk__checkpoint_unlock(&lock);
    return status;
}
