/* --weights: parameters and buffers from a safetensors file, under Lockstep's or PyTorch's names. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "nn/name_patterns.h"
#include "nn/torch_names.h"
#include "train/checkpoint/replicas_state.h"
#include "train/replicas.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Returns a tensor's name without the prefixes of modules that wrap a network: DistributedDataParallel, torch.compile,
 * and a LightningModule whose network is called `model`. */
static const char *weights_unwrapped_name(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod.", "model."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return weights_unwrapped_name(name + strlen(wrappers[i]));
    return name;
}

static const lk_safetensor *weights_find(const lk_safetensors *file, const lk_torch_naming *n, const char *ours)
{
    char theirs[LK__TORCH_NAME];
    const char *name = lk__torch_name(n, ours, theirs);
    const lk_safetensor *found = lk__safetensors_find(file, name);
    for (int i = 0; !found && i < lk__safetensors_count(file); i++)
        if (strcmp(weights_unwrapped_name(lk__safetensors_at(file, i)->name), name) == 0)
            found = lk__safetensors_at(file, i);
    return found;
}

static int weights_count_found(const lk_safetensors *file, const lk_torch_naming *n, const lk_model *model)
{
    int count = 0;
    for (int i = 0; i < lk_model_variable_count(model); i++)
        count += weights_find(file, n, lk_model_variable_name(model, i)) != NULL;
    return count;
}

/* *found: the naming that most of the file's tensors follow; messages name missing tensors by it. NULL: Lockstep's. */
static lk_status weights_recognize_naming(const char *path, const lk_safetensors *file, const lk_model *model,
                                          const lk_torch_naming **found)
{
    int most = weights_count_found(file, NULL, model);
    *found = NULL;
    const lk_torch_naming *naming;
    for (int i = 0; (naming = lk__torch_naming_at(model, i)); i++) {
        int count = weights_count_found(file, naming, model);
        if (count > most) {
            most = count;
            *found = naming;
        }
    }
    if (most > 0)
        return LK_OK;
    const lk_safetensor *first = lk__safetensors_at(file, 0);
    LK_FAIL(LK_ERR_FORMAT,
            "--weights %s: its tensors, like %.60s, are neither called as the %d variables of model %s are, like %s, "
            "nor as PyTorch calls them",
            path, first ? first->name : "none", lk_model_variable_count(model), lk_model_name(model),
            lk_model_variable_name(model, 0));
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* A file, the names of its tensors, and the patterns of names that are left out (NULL: none). */
typedef struct weights_source {
    const char *path;
    const lk_safetensors *file;
    const lk_torch_naming *naming; /* NULL: Lockstep's names */
    bool transposes;               /* the weights of dense layers are PyTorch's */
    const char *skip;
} weights_source;

/* Either name may be given, since PyTorch's may differ. */
static bool weights_skips(const weights_source *from, const char *ours)
{
    const lk_safetensor *tensor = weights_find(from->file, from->naming, ours);
    return lk__name_patterns_fit(from->skip, ours) || (tensor && lk__name_patterns_fit(from->skip, tensor->name));
}

/* PyTorch's layers may have Lockstep's names, as a model file can give them. Lockstep's files have no counts of
 * batches, and none of their weights has the transposed shape. */
static bool weights_are_transposed(const weights_source *from, const lk_model *model)
{
    for (int i = 0; i < lk__safetensors_count(from->file); i++)
        if (strstr(lk__safetensors_at(from->file, i)->name, "num_batches_tracked"))
            return true;
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        lk_shape shape = lk_model_variable_shape(model, i);
        const lk_safetensor *tensor = weights_find(from->file, NULL, lk_model_variable_name(model, i));
        if (tensor && shape.ndim == 2 && shape.dim[0] != shape.dim[1] &&
            lk__shape_equal(tensor->shape, LK_SHAPE(shape.dim[1], shape.dim[0])))
            return true;
    }
    return false;
}

/* want: the shape that the tensor must have in the file. */
static lk_status weights_check_shape(const char *path, const lk_safetensor *tensor, const char *ours, lk_shape want,
                                     const lk_model *model)
{
    char needed[128], found[128];
    if (lk__shape_equal(tensor->shape, want))
        return LK_OK;
    lk__shape_text(want, needed, sizeof needed);
    lk__shape_text(tensor->shape, found, sizeof found);
    LK_FAIL(LK_ERR_FORMAT, "--weights %s: %s has shape %s, and as %s of model %s it must have %s", path, tensor->name,
            found, ours, lk_model_name(model), needed);
}

/* index: of the first variable that is not in the file. */
static lk_status weights_fail_missing(const weights_source *from, const lk_model *model, int index)
{
    char theirs[LK__TORCH_NAME], others[64] = "";
    const char *ours = lk_model_variable_name(model, index);
    int count = lk_model_variable_count(model), more = 0;
    for (int i = index + 1; i < count; i++) {
        const char *name = lk_model_variable_name(model, i);
        more += !weights_skips(from, name) && !weights_find(from->file, from->naming, name);
    }
    if (more > 0)
        snprintf(others, sizeof others, ", nor %d more of its %d variables", more, count);
    LK_FAIL(LK_ERR_FORMAT, "--weights %s: has no %s, which is %s of model %s%s; --weights-skip %s would leave %s",
            from->path, lk__torch_name(from->naming, ours, theirs), ours, lk_model_name(model), others,
            more > 0 ? "PATTERNS" : ours, more > 0 ? "them as they are" : "it as it is");
}

/* Without this check, the first loss would not be finite, and its message would name the samples. */
static lk_status weights_check_finite(const char *path, const lk_safetensor *tensor, const float *values)
{
    for (int64_t i = 0; i < tensor->count; i++)
        if (!isfinite(values[i]))
            LK_FAIL(LK_ERR_FORMAT, "--weights %s: %s has the value %g at %lld as f32; training needs finite ones", path,
                    tensor->name, (double)values[i], (long long)i);
    return LK_OK;
}

static lk_status weights_read_variable(const weights_source *from, const lk_model *model, int index, float *values)
{
    const char *ours = lk_model_variable_name(model, index);
    lk_shape shape = lk_model_variable_shape(model, index);
    bool transposed =
        from->naming ? lk__torch_transposes(from->naming, ours, shape) : from->transposes && shape.ndim == 2;
    lk_shape in_file = transposed ? LK_SHAPE(shape.dim[1], shape.dim[0]) : shape;
    const lk_safetensor *tensor = weights_find(from->file, from->naming, ours);
    if (!tensor)
        return weights_fail_missing(from, model, index);
    LK_TRY(weights_check_shape(from->path, tensor, ours, in_file, model));
    float *stored = transposed ? lk__calloc((size_t)tensor->count, sizeof *stored) : values;
    lk_status status = stored ? lk__safetensors_read(from->file, tensor, stored) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = weights_check_finite(from->path, tensor, stored);
    if (status == LK_OK && transposed)
        lk__transpose(stored, tensor->shape.dim[0], tensor->shape.dim[1], values);
    if (transposed)
        lk__free(stored);
    return status;
}

static bool weights_is_used(const lk_safetensors *file, const lk_torch_naming *n, const lk_model *model,
                            const lk_safetensor *tensor)
{
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (weights_find(file, n, lk_model_variable_name(model, i)) == tensor)
            return true;
    return false;
}

/* A tensor that no variable uses belongs to another network, unless it is one of PyTorch's counts of batches. */
static lk_status weights_check_unused(const weights_source *from, const lk_model *model)
{
    for (int i = 0; i < lk__safetensors_count(from->file); i++) {
        const lk_safetensor *tensor = lk__safetensors_at(from->file, i);
        if (!strstr(tensor->name, "num_batches_tracked") && !lk__name_patterns_fit(from->skip, tensor->name) &&
            !weights_is_used(from->file, from->naming, model, tensor))
            LK_FAIL(
                LK_ERR_FORMAT,
                "--weights %s: has a tensor %.60s, which is none of the %d variables of model %s; --weights-skip would "
                "leave it out",
                from->path, tensor->name, lk_model_variable_count(model), lk_model_name(model));
    }
    return LK_OK;
}

/* --- skipping ----------------------------------------------------------------------------------------------------- */

static lk_status weights_check_pattern(const weights_source *from, const lk_model *model, lk_name_pattern pattern)
{
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (lk__name_pattern_fits(pattern, lk_model_variable_name(model, i)))
            return LK_OK;
    for (int i = 0; i < lk__safetensors_count(from->file); i++)
        if (lk__name_pattern_fits(pattern, lk__safetensors_at(from->file, i)->name))
            return LK_OK;
    LK_FAIL(LK_ERR_ARGUMENT, "--weights-skip %.*s: fits no variable of model %s and no tensor of %s", pattern.length,
            pattern.text, lk_model_name(model), from->path);
}

static lk_status weights_check_skip(const weights_source *from, const lk_model *model)
{
    const char *rest = from->skip;
    lk_name_pattern pattern;
    int taken = 0;
    while (rest && lk__name_pattern_next(&rest, &pattern))
        LK_TRY(weights_check_pattern(from, model, pattern));
    for (int i = 0; i < lk_model_variable_count(model); i++)
        taken += !weights_skips(from, lk_model_variable_name(model, i));
    if (taken == 0)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--weights-skip %s: skips all %d variables of model %s; nothing is left to take from %s", from->skip,
                lk_model_variable_count(model), lk_model_name(model), from->path);
    return LK_OK;
}

typedef enum weights_fate { TAKEN, SKIPPED, NOT_IN_FILE, NOT_IN_MODEL, FATE_COUNT } weights_fate;

/* The fate of variable i of the model or, from there on, of a tensor of the file. FATE_COUNT: it has none of its own.
 */
static weights_fate weights_fate_of(const weights_source *from, const lk_model *model, int i, const char **name)
{
    int variables = lk_model_variable_count(model);
    if (i >= variables) {
        const lk_safetensor *tensor = lk__safetensors_at(from->file, i - variables);
        bool shown = lk__name_patterns_fit(from->skip, tensor->name) &&
                     !weights_is_used(from->file, from->naming, model, tensor);
        *name = tensor->name;
        return shown ? NOT_IN_MODEL : FATE_COUNT;
    }
    *name = lk_model_variable_name(model, i);
    if (!weights_skips(from, *name))
        return TAKEN;
    return weights_find(from->file, from->naming, *name) ? SKIPPED : NOT_IN_FILE;
}

/* Lists names by their fate, in as many messages as they need. */
static void weights_tell(const weights_source *from, const lk_model *model)
{
    static const char *const texts[] = {"taken", "skipped", "skipped, and not in the file",
                                        "left out, because they are not in the model"};
    int n = lk_model_variable_count(model) + lk__safetensors_count(from->file);
    for (weights_fate fate = TAKEN; fate < FATE_COUNT; fate++) {
        char list[700] = "";
        const char *name;
        size_t used = 0;
        for (int i = 0; i < n; i++) {
            if (weights_fate_of(from, model, i, &name) != fate)
                continue;
            if (used > 0 && used + strlen(name) + 3 > sizeof list) {
                lk__log(LK_LOG_INFO, "--weights: %s: %s", texts[fate], list);
                used = 0;
            }
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.500s", used ? ", " : "", name);
        }
        if (used > 0)
            lk__log(LK_LOG_INFO, "--weights: %s: %s", texts[fate], list);
    }
}

static lk_status weights_read_all(weights_source *from, lk_replicas *replicas)
{
    const lk_model *model = lk__replicas_model(replicas);
    int count = lk_model_variable_count(model);
    LK_TRY(weights_recognize_naming(from->path, from->file, model, &from->naming));
    from->transposes = weights_are_transposed(from, model);
    LK_TRY(weights_check_skip(from, model));
    float **values = lk__calloc((size_t)count, sizeof *values);
    lk_status status = values ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < count && status == LK_OK; i++) {
        if (weights_skips(from, lk_model_variable_name(model, i)))
            continue;
        values[i] = lk__calloc((size_t)lk_shape_count(lk_model_variable_shape(model, i)) + 1, sizeof **values);
        status = values[i] ? weights_read_variable(from, model, i, values[i]) : LK_ERR_MEMORY;
    }
    if (status == LK_OK)
        status = weights_check_unused(from, model);
    if (status == LK_OK)
        status = lk__replicas_write(replicas, (const float *const *)values);
    if (status == LK_OK && from->skip)
        weights_tell(from, model);
    for (int i = 0; values && i < count; i++)
        lk__free(values[i]);
    lk__free(values);
    return status;
}

lk_status lk_replicas_load_weights(lk_replicas *replicas, const char *path, const char *skip)
{
    lk_safetensors *file;
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        LK_FAIL(LK_ERR_FORMAT, "--weights %s: is a folder; a checkpoint's weights are its model.safetensors", path);
    LK_TRY(lk__safetensors_open(path, &file));
    weights_source from = {.path = path, .file = file, .skip = skip && *skip ? skip : NULL};
    lk_status status = weights_read_all(&from, replicas);
    lk__safetensors_close(file);
    return status;
}
