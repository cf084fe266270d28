#include "nn/torch_names.h"
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

/* Our name, then PyTorch's. */
typedef const char *const name_pair[2];

struct lk_torch_naming {
    const char *model;
    name_pair *layers; /* whole paths of layers; ends with {NULL, NULL}, as the others do */
    name_pair *blocks; /* beginnings of paths, with the dot */
    name_pair *inner;  /* the rest of a path after a block's */
};

static name_pair lenet[] = {{"conv1", "0"}, {"conv2", "3"}, {"dense1", "7"}, {"dense2", "9"}, {NULL, NULL}};
static name_pair keras_cnn[] = {{"conv1", "0"}, {"dense1", "4"}, {"dense2", "6"}, {NULL, NULL}};
static name_pair fast_cnn[] = {{"conv1", "0"}, {"bn1", "1"},    {"conv2", "3"}, {"bn2", "5"},    {"conv3", "7"},
                               {"bn3", "9"},   {"conv4", "12"}, {"bn4", "14"},  {"dense", "18"}, {NULL, NULL}};
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
static name_pair fast_blocks[] = {{"block3.", "11."}, {NULL, NULL}};
static name_pair fast_inner[] = {
    {"conv1", "body.0"}, {"bn1", "body.1"}, {"conv2", "body.3"}, {"bn2", "body.4"}, {NULL, NULL}};

/* The modules' names in Dive into Deep Learning. */
static name_pair book_stem[] = {{"conv1", "0"}, {"bn1", "1"}, {"dense", "fc.1"}, {NULL, NULL}};
static name_pair book_blocks[] = {
    {"block1.1.", "resnet_block1.0."}, {"block1.2.", "resnet_block1.1."}, {"block2.1.", "resnet_block2.0."},
    {"block2.2.", "resnet_block2.1."}, {"block3.1.", "resnet_block3.0."}, {"block3.2.", "resnet_block3.1."},
    {"block4.1.", "resnet_block4.0."}, {"block4.2.", "resnet_block4.1."}, {NULL, NULL}};
static name_pair book_inner[] = {{"conv1", "conv1"}, {"conv2", "conv2"}, {"conv3", "conv3"},
                                 {"bn1", "bn1"},     {"bn2", "bn2"},     {NULL, NULL}};

/* The namings of a model are in the order of lk__torch_naming_at. */
static const lk_torch_naming namings[] = {
    {"lenet", lenet, none, none},
    {"keras-cnn", keras_cnn, none, none},
    {"resnet18", stem, resnet_blocks, resnet_inner},
    {"resnet18", book_stem, book_blocks, book_inner},
    {"wrn-16-10", stem, wrn_blocks, wrn_inner},
    {"fast-cnn", fast_cnn, fast_blocks, fast_inner},
};

/* --- names -------------------------------------------------------------------------------------------------------- */

const lk_torch_naming *lk__torch_naming_at(const lk_model *model, int index)
{
    for (size_t i = 0; model->reference && i < sizeof namings / sizeof *namings; i++)
        if (strcmp(namings[i].model, lk_model_name(model)) == 0 && index-- == 0)
            return &namings[i];
    return NULL;
}

static const char *torch_find_name(name_pair *pairs, const char *name, size_t length)
{
    for (; (*pairs)[0]; pairs++)
        if (strlen((*pairs)[0]) == length && memcmp((*pairs)[0], name, length) == 0)
            return (*pairs)[1];
    return NULL;
}

/* Translates the name of our variable: the layer's path, followed by the variable's own name. */
static bool torch_translate(const lk_torch_naming *n, const char *ours, char theirs[LK__TORCH_NAME])
{
    const char *own = strrchr(ours, '.'), *layer = own ? torch_find_name(n->layers, ours, (size_t)(own - ours)) : NULL;
    if (layer) {
        snprintf(theirs, LK__TORCH_NAME, "%s%s", layer, own);
        return true;
    }
    for (name_pair *block = n->blocks; own && (*block)[0]; block++) {
        size_t length = strlen((*block)[0]);
        if (strncmp(ours, (*block)[0], length) != 0 || ours + length > own)
            continue;
        const char *inner = torch_find_name(n->inner, ours + length, (size_t)(own - ours) - length);
        if (inner)
            snprintf(theirs, LK__TORCH_NAME, "%s%s%s", (*block)[1], inner, own);
        return inner;
    }
    return false;
}

const char *lk__torch_name(const lk_torch_naming *n, const char *ours, char theirs[LK__TORCH_NAME])
{
    return n && torch_translate(n, ours, theirs) ? theirs : ours;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

bool lk__torch_transposes(const lk_torch_naming *n, const char *ours, lk_shape shape)
{
    return n && shape.ndim == 2 && strstr(ours, "dense");
}

void lk__transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}
