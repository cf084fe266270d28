/* --weights: parameters and buffers from a safetensors file, under their names here or under those that PyTorch gives
 * them in the programs that the reference models come from. docs/checkpoints.md has the table. */
#include "train/checkpoint.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "nn/model.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* Ours, then theirs. */
typedef const char *const name_pair[2];

typedef struct naming {
    const char *model;
    name_pair *layers; /* whole paths of layers; so ended: {NULL, NULL} */
    name_pair *blocks; /* beginnings of paths, with the dot */
    name_pair *inner;  /* what follows a block's */
} naming;

static name_pair lenet[] = {{"conv1", "0"}, {"conv2", "3"}, {"dense1", "7"}, {"dense2", "9"}, {NULL, NULL}};
static name_pair keras_cnn[] = {{"conv1", "0"}, {"dense1", "4"}, {"dense2", "6"}, {NULL, NULL}};
static name_pair none[] = {{NULL, NULL}};

/* nn.Sequential throughout. */
static name_pair stem[] = {{"conv1", "0"}, {"bn1", "1"}, {"dense", "13"}, {NULL, NULL}};
static name_pair resnet_blocks[] = {{"block1.1.", "3."}, {"block1.2.", "4."},  {"block2.1.", "5."},
                                    {"block2.2.", "6."}, {"block3.1.", "7."},  {"block3.2.", "8."},
                                    {"block4.1.", "9."}, {"block4.2.", "10."}, {NULL, NULL}};
static name_pair resnet_inner[] = {{"conv1", "c1"}, {"conv2", "c2"}, {"conv3", "c3"},
                                   {"bn1", "b1"},   {"bn2", "b2"},   {NULL, NULL}};
static name_pair wrn_blocks[] = {{"block1.1.", "3."}, {"block1.2.", "4."},  {"block2.1.", "6."}, {"block2.2.", "7."},
                                 {"block3.1.", "9."}, {"block3.2.", "10."}, {NULL, NULL}};
static name_pair wrn_inner[] = {{"conv1", "body.0"}, {"bn1", "body.1"}, {"conv2", "body.4"},
                                {"bn2", "body.5"},   {"conv3", "skip"}, {NULL, NULL}};

/* As Dive into Deep Learning names the modules. */
static name_pair book_stem[] = {{"conv1", "0"}, {"bn1", "1"}, {"dense", "fc.1"}, {NULL, NULL}};
static name_pair book_blocks[] = {
    {"block1.1.", "resnet_block1.0."}, {"block1.2.", "resnet_block1.1."}, {"block2.1.", "resnet_block2.0."},
    {"block2.2.", "resnet_block2.1."}, {"block3.1.", "resnet_block3.0."}, {"block3.2.", "resnet_block3.1."},
    {"block4.1.", "resnet_block4.0."}, {"block4.2.", "resnet_block4.1."}, {NULL, NULL}};
static name_pair book_inner[] = {{"conv1", "conv1"}, {"conv2", "conv2"}, {"conv3", "conv3"},
                                 {"bn1", "bn1"},     {"bn2", "bn2"},     {NULL, NULL}};

static const naming namings[] = {
    {"lenet", lenet, none, none},
    {"keras-cnn", keras_cnn, none, none},
    {"resnet18", stem, resnet_blocks, resnet_inner},
    {"resnet18", book_stem, book_blocks, book_inner},
    {"wrn-16-10", stem, wrn_blocks, wrn_inner},
};

enum { NAME = 64 }; /* of a variable of a reference model */

/* --- names -------------------------------------------------------------------------------------------------------- */

static const char *find(name_pair *pairs, const char *name, size_t length)
{
    for (; (*pairs)[0]; pairs++)
        if (strlen((*pairs)[0]) == length && memcmp((*pairs)[0], name, length) == 0)
            return (*pairs)[1];
    return NULL;
}

/* Their name of our variable: the layer's, and the variable's own behind it. */
static bool translate(const naming *n, const char *ours, char theirs[NAME])
{
    const char *own = strrchr(ours, '.'), *layer = own ? find(n->layers, ours, (size_t)(own - ours)) : NULL;
    if (layer) {
        snprintf(theirs, NAME, "%s%s", layer, own);
        return true;
    }
    for (name_pair *block = n->blocks; own && (*block)[0]; block++) {
        size_t length = strlen((*block)[0]);
        if (strncmp(ours, (*block)[0], length) != 0 || ours + length > own)
            continue;
        const char *inner = find(n->inner, ours + length, (size_t)(own - ours) - length);
        if (inner)
            snprintf(theirs, NAME, "%s%s%s", (*block)[1], inner, own);
        return inner;
    }
    return false;
}

/* Our variable's name by a file's naming, in `theirs` where that is another; n NULL: our own. */
static const char *name_in_file(const naming *n, const char *ours, char theirs[NAME])
{
    return n && translate(n, ours, theirs) ? theirs : ours;
}

/* A tensor's name without what those that hold a network put before it: DistributedDataParallel, torch.compile, and a
 * LightningModule that calls it `model`. */
static const char *unwrapped(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod.", "model."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return unwrapped(name + strlen(wrappers[i]));
    return name;
}

static const lk__safetensor *find_variable(const lk__safetensors *file, const naming *n, const char *ours)
{
    char theirs[NAME];
    const char *name = name_in_file(n, ours, theirs);
    const lk__safetensor *found = lk__safetensors_find(file, name);
    for (int i = 0; !found && i < lk__safetensors_count(file); i++)
        if (strcmp(unwrapped(lk__safetensors_at(file, i)->name), name) == 0)
            found = lk__safetensors_at(file, i);
    return found;
}

static int count_variables(const lk__safetensors *file, const naming *n, const lk_model *model)
{
    int count = 0;
    for (int i = 0; i < lk_model_variable_count(model); i++)
        count += find_variable(file, n, lk_model_variable_name(model, i)) != NULL;
    return count;
}

/* The naming that most of the file's tensors follow, so that what is missing can be named. NULL: our own. */
static lk_status recognize(const char *path, const lk__safetensors *file, const lk_model *model, const naming **found)
{
    int most = count_variables(file, NULL, model);
    *found = NULL;
    for (size_t i = 0; model->reference && i < sizeof namings / sizeof *namings; i++) {
        bool is_of_model = strcmp(namings[i].model, lk_model_name(model)) == 0;
        int count = is_of_model ? count_variables(file, &namings[i], model) : 0;
        if (count > most) {
            most = count;
            *found = &namings[i];
        }
    }
    if (most > 0)
        return LK_OK;
    const lk__safetensor *first = lk__safetensors_at(file, 0);
    LK_FAIL(LK_ERR_FORMAT,
            "--weights %s: its tensors, like %.60s, are neither called as the %d variables of model %s are, like %s, "
            "nor as PyTorch calls them",
            path, first ? first->name : "none", lk_model_variable_count(model), lk_model_name(model),
            lk_model_variable_name(model, 0));
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* PyTorch's Linear keeps [units, K], and ours is [K, units]. */
static bool is_transposed(const naming *n, const char *ours, lk_shape shape)
{
    return n && shape.ndim == 2 && strstr(ours, "dense");
}

/* want: as it is in the file. */
static lk_status check_shape(const char *path, const lk__safetensor *tensor, const char *ours, lk_shape want,
                             const lk_model *model)
{
    char needed[128], there[128];
    if (lk__shape_equal(tensor->shape, want))
        return LK_OK;
    lk__shape_text(want, needed, sizeof needed);
    lk__shape_text(tensor->shape, there, sizeof there);
    LK_FAIL(LK_ERR_FORMAT, "--weights %s: %s has shape %s, and as %s of model %s it must have %s", path, tensor->name,
            there, ours, lk_model_name(model), needed);
}

static lk_status transpose(float *values, lk_shape shape)
{
    int64_t rows = shape.dim[0], columns = shape.dim[1];
    float *copy = lk__calloc((size_t)(rows * columns), sizeof *copy);
    if (!copy)
        return LK_ERR_MEMORY;
    memcpy(copy, values, (size_t)(rows * columns) * sizeof *copy);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            values[r * columns + c] = copy[c * rows + r];
    lk__free(copy);
    return LK_OK;
}

static lk_status read_variable(const char *path, const lk__safetensors *file, const naming *n, const lk_model *model,
                               int index, float *values)
{
    char theirs[NAME];
    const char *ours = lk_model_variable_name(model, index);
    lk_shape shape = lk_model_variable_shape(model, index);
    bool transposed = is_transposed(n, ours, shape);
    lk_shape in_file = transposed ? LK_SHAPE(shape.dim[1], shape.dim[0]) : shape;
    const lk__safetensor *tensor = find_variable(file, n, ours);
    if (!tensor)
        LK_FAIL(LK_ERR_FORMAT, "--weights %s: has no %s, which is %s of model %s", path, name_in_file(n, ours, theirs),
                ours, lk_model_name(model));
    LK_TRY(check_shape(path, tensor, ours, in_file, model));
    LK_TRY(lk__safetensors_read(file, tensor, values));
    return transposed ? transpose(values, shape) : LK_OK;
}

static bool is_asked_for(const lk__safetensors *file, const naming *n, const lk_model *model,
                         const lk__safetensor *tensor)
{
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (find_variable(file, n, lk_model_variable_name(model, i)) == tensor)
            return true;
    return false;
}

/* What nobody asks for is of another network; PyTorch's counts of batches are not. */
static lk_status check_rest(const char *path, const lk__safetensors *file, const naming *n, const lk_model *model)
{
    for (int i = 0; i < lk__safetensors_count(file); i++) {
        const lk__safetensor *tensor = lk__safetensors_at(file, i);
        if (!strstr(tensor->name, "num_batches_tracked") && !is_asked_for(file, n, model, tensor))
            LK_FAIL(LK_ERR_FORMAT, "--weights %s: has a tensor %.60s, which is none of the %d variables of model %s",
                    path, tensor->name, lk_model_variable_count(model), lk_model_name(model));
    }
    return LK_OK;
}

static lk_status read_all(const char *path, const lk__safetensors *file, lk_replicas *replicas)
{
    const lk_model *model = lk__replicas_model(replicas);
    const naming *n;
    int count = lk_model_variable_count(model);
    LK_TRY(recognize(path, file, model, &n));
    float **values = lk__calloc((size_t)count, sizeof *values);
    lk_status status = values ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < count && status == LK_OK; i++) {
        values[i] = lk__calloc((size_t)lk_shape_count(lk_model_variable_shape(model, i)) + 1, sizeof **values);
        status = values[i] ? read_variable(path, file, n, model, i, values[i]) : LK_ERR_MEMORY;
    }
    if (status == LK_OK)
        status = check_rest(path, file, n, model);
    if (status == LK_OK)
        status = lk__replicas_write(replicas, (const float *const *)values);
    for (int i = 0; values && i < count; i++)
        lk__free(values[i]);
    lk__free(values);
    return status;
}

lk_status lk_replicas_load_weights(lk_replicas *replicas, const char *path)
{
    lk__safetensors *file;
    LK_TRY(lk__safetensors_open(path, &file));
    lk_status status = read_all(path, file, replicas);
    lk__safetensors_close(file);
    return status;
}
