/* Networks to export, with random variables, and the logits that the library computes for them. Include it after
 * cmocka.h. */
#pragma once

#include "base/folder_testing.h"

#include "lockstep/export.h"
#include "nn/nn_testing.h"

/* All kinds of layers and blocks of model files, one after the other on small images. */
static const char every_layer[] = "first: conv2d 6 kernel=3 padding=same init=he_normal\n"
                                  "batch_norm\n"
                                  "leaky_relu\n"
                                  "block: sequential\n"
                                  "  residual\n"
                                  "    conv2d 20 kernel=5 padding=2 bias=no\n"
                                  "    batch_norm epsilon=1e-3\n"
                                  "    elu\n"
                                  "  shortcut\n"
                                  "    conv2d 20 kernel=1\n"
                                  "    silu\n"
                                  "  end\n"
                                  "  gelu\n"
                                  "end\n"
                                  "max_pool 3 stride=2 padding=1\n"
                                  "repeat 2\n"
                                  "  residual\n"
                                  "    conv2d 20 kernel=3 padding=1\n"
                                  "    tanh\n"
                                  "    dropout 0.3\n"
                                  "  end\n"
                                  "end\n"
                                  "avg_pool 3 stride=2 padding=1\n"
                                  "conv2d 9 kernel=2 stride=2 padding=3\n"
                                  "softplus\n"
                                  "avg_pool 2\n"
                                  "flatten\n"
                                  "dense 48 bias=no\n"
                                  "batch_norm\n"
                                  "sigmoid\n"
                                  "reshape channels=3 height=4 width=4\n"
                                  "max_pool 2 stride=1\n"
                                  "flatten\n"
                                  "reshape channels=27 height=1 width=1\n"
                                  "residual\n"
                                  "end\n"
                                  "conv2d 17 kernel=1\n"
                                  "relu\n"
                                  "global_max_pool\n"
                                  "dense classes\n";

/* Every kind of node and every activation once, in a few kilobytes. Its exported files are kept in tests/data/export.
 */
static const char every_kind[] = "first: conv2d 2 kernel=3 padding=1\n"
                                 "batch_norm\n"
                                 "leaky_relu\n"
                                 "block: sequential\n"
                                 "  residual\n"
                                 "    conv2d 3 kernel=1 bias=no\n"
                                 "    elu\n"
                                 "  shortcut\n"
                                 "    conv2d 3 kernel=1\n"
                                 "    silu\n"
                                 "  end\n"
                                 "  gelu\n"
                                 "end\n"
                                 "max_pool 3 stride=2 padding=1\n"
                                 "avg_pool 3 stride=1 padding=1\n"
                                 "softplus\n"
                                 "flatten\n"
                                 "dense 12 bias=no\n"
                                 "batch_norm epsilon=1e-3\n"
                                 "sigmoid\n"
                                 "reshape channels=3 height=2 width=2\n"
                                 "residual\n"
                                 "  max_pool 2\n"
                                 "  tanh\n"
                                 "shortcut\n"
                                 "  avg_pool 2\n"
                                 "  relu\n"
                                 "end\n"
                                 "dropout 0.5\n"
                                 "residual\n"
                                 "  global_max_pool\n"
                                 "shortcut\n"
                                 "  global_avg_pool\n"
                                 "end\n"
                                 "dense classes\n";

/* Layers that all formats have, but which are not in every_kind. */
static const char concatenation[] = "conv2d 5 kernel=3 padding=1\n"
                                    "concat\n"
                                    "  tanh\n"
                                    "  conv2d 3 kernel=3 padding=1\n"
                                    "end\n"
                                    "concat\n"
                                    "  max_pool 2\n"
                                    "with\n"
                                    "  avg_pool 2\n"
                                    "  relu\n"
                                    "end\n"
                                    "concat\n"
                                    "  global_avg_pool\n"
                                    "with\n"
                                    "  flatten\n"
                                    "  dense 7\n"
                                    "end\n"
                                    "dense classes\n";

/* Convolutions with groups or dilation, and sizes that differ along height and width. */
static const char windows[] = "conv2d 6 kernel=3 padding=1 groups=3\n"
                              "relu\n"
                              "conv2d 6 kernel=3x5 padding=same groups=6\n"
                              "conv2d 12 kernel=3 padding=2 dilation=2 groups=6 bias=no\n"
                              "tanh\n"
                              "conv2d 20 kernel=3x1 stride=2x1 padding=1x0 dilation=1x2\n"
                              "max_pool 1x3 stride=1x2 padding=0x1\n"
                              "conv2d 19 kernel=3 padding=same dilation=3x2\n"
                              "avg_pool 3x2 stride=2x1 padding=1x0\n"
                              "global_avg_pool\n"
                              "dense classes\n";

/* Norms of each sample, and factors. */
static const char sample_norms[] = "conv2d 6 kernel=3\n"
                                   "group_norm 3\n"
                                   "relu\n"
                                   "layer_norm epsilon=1e-3\n"
                                   "residual\n"
                                   "  group_norm 1\n"
                                   "  tanh\n"
                                   "  scale 0.7\n"
                                   "  drop_path 0.5\n"
                                   "end\n"
                                   "multiply\n"
                                   "by\n"
                                   "  global_avg_pool\n"
                                   "  dense 6\n"
                                   "  sigmoid\n"
                                   "end\n"
                                   "multiply\n"
                                   "  conv2d 6 kernel=1\n"
                                   "by\n"
                                   "  tanh\n"
                                   "end\n"
                                   "global_max_pool\n"
                                   "layer_norm\n"
                                   "scale -0.5\n"
                                   "multiply\n"
                                   "by\n"
                                   "  sigmoid\n"
                                   "end\n"
                                   "dense classes\n";

/* Names that a format may reserve or not allow. */
static const char odd_names[] = "-a: conv2d 2 kernel=1\n"
                                "_b: gelu\n"
                                "images: layer_norm\n"
                                "logits: gelu\n"
                                "probabilities: conv2d 3 kernel=1\n"
                                "network: flatten\n"
                                "weights: dense 5\n"
                                "scratch: sequential\n"
                                "  weight: dense classes\n"
                                "end\n";

typedef struct export_case {
    const char *name; /* of the model: the part before a ':' */
    const char *text; /* a model file; NULL: none */
    lk_model_input input;
    bool center, standardize;
    int images;
} export_case;

static const export_case export_cases[] = {
    {"lenet", NULL, {1, 28, 28, 10}, false, false, 5},
    {"lenet:color", NULL, {3, 37, 32, 7}, true, true, 3},
    {"keras-cnn", NULL, {1, 28, 28, 10}, true, false, 3},
    {"resnet18", NULL, {1, 28, 28, 10}, false, true, 2},
    {"wrn-16-10", NULL, {3, 24, 28, 10}, true, true, 2},
    {"fast-cnn", NULL, {1, 28, 28, 10}, true, true, 3},
    {"every-layer", every_layer, {3, 29, 23, 4}, true, true, 4},
    {"every-kind", every_kind, {2, 5, 4, 3}, true, true, 3},
    {"concatenation", concatenation, {2, 9, 8, 4}, true, true, 3},
    {"windows", windows, {3, 13, 15, 4}, true, true, 3},
    {"sample-norms", sample_norms, {3, 13, 15, 4}, true, false, 3},
    {"odd-names", odd_names, {1, 3, 3, 3}, true, true, 2},
    {"global-average", "conv2d 5 kernel=3\nglobal_avg_pool\ndense classes\n", {2, 9, 11, 3}, false, false, 3},
};
enum { EXPORT_CASES = sizeof export_cases / sizeof export_cases[0], EXPORT_CHANNELS = 3 };

static inline const export_case *export_case_of(const char *name)
{
    for (int i = 0; i < EXPORT_CASES; i++)
        if (strcmp(export_cases[i].name, name) == 0)
            return &export_cases[i];
    fail_msg("there is no network %s", name);
    return NULL;
}

typedef struct exported {
    network net;
    lk_export_network source;
    float **values;
    float *images, *logits; /* [N, C, H, W] in [0, 1]; [N, classes] */
    int64_t n;
} exported;

static const double export_mean[EXPORT_CHANNELS] = {0.47, 0.33, 0.61};
static const double export_deviation[EXPORT_CHANNELS] = {0.29, 0.21, 0.4};

static inline lk_model *export_model(const export_case *c)
{
    char name[64], path[700];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(c->name, ":"), c->name);
    if (!c->text)
        return lk_model_new(name, c->input);
    snprintf(path, sizeof path, "%s", path_of("%s.lk", name));
    put_bytes(path, c->text, strlen(c->text));
    lk_model *model = lk_model_new(path, c->input);
    unlink(path);
    return model;
}

/* Changes the initial values: with biases of 0 and batch-norm's first statistics an error in their use would not show,
 * and with small weights the logits would hardly depend on the images. */
static inline void perturb(float *values, int64_t count, const char *name)
{
    const char *dot = strrchr(name, '.');
    bool positive = dot && (strcmp(dot, ".running_var") == 0);
    bool vector = dot && (positive || strcmp(dot, ".running_mean") == 0 || strcmp(dot, ".bias") == 0);
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)values[i] * values[i];
    if (!vector && squares < 1e-3 * (double)count) /* N(0, 0.01) */
        for (int64_t i = 0; i < count; i++)
            values[i] *= 8;
    lk_random_key key = {.seed = 11, .purpose = lk_random_purpose(name)};
    for (int64_t i = 0; vector && i < count; i++) {
        uint32_t words[4];
        lk_random_block(&key, (uint64_t)i, words);
        float uniform = (float)words[0] * 0x1p-32f;
        values[i] = positive ? 0.5f + uniform : values[i] + 0.4f * (uniform - 0.5f);
    }
}

static inline lk_tensor *prepared(const exported *e)
{
    lk_model_input in = lk_model_get_input(e->net.model);
    int64_t plane = in.height * in.width, count = e->n * in.channels * plane;
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = i / plane % in.channels;
        x[i] = e->images[i] - (e->source.center ? (float)export_mean[c] : 0.0f);
        if (e->source.standardize)
            x[i] /= (float)(export_deviation[c] + 1e-6);
    }
    lk_tensor *tensor = lk_tensor_from(e->net.device, LK_F32, LK_SHAPE(e->n, in.channels, in.height, in.width), x);
    free(x);
    return tensor;
}

/* Needs an open scope, which then owns the tensors. */
static inline exported open_exported(const export_case *c)
{
    exported e = {.net = network_of(export_model(c)), .n = c->images};
    int count = lk_model_variable_count(e.net.model);
    e.values = calloc((size_t)count, sizeof *e.values);
    assert_non_null(e.values);
    for (int v = 0; v < count; v++) {
        e.values[v] = values_of(e.net.variables[v]);
        perturb(e.values[v], lk_tensor_count(e.net.variables[v]), lk_model_variable_name(e.net.model, v));
        assert_no_error(lk_tensor_write(e.net.variables[v], e.values[v],
                                        (size_t)lk_tensor_count(e.net.variables[v]) * sizeof(float)) == LK_OK);
    }
    e.source = (lk_export_network){.model = e.net.model,
                                   .variables = (const float *const *)e.values,
                                   .center = c->center,
                                   .standardize = c->standardize,
                                   .mean = export_mean,
                                   .deviation = export_deviation};
    e.images = values_of(images(&e.net, e.n));
    e.logits = values_of(lk_model_forward(e.net.model, e.net.variables, prepared(&e), NULL));
    double difference = 0, scale = 0;
    for (int64_t i = 0; i < c->input.classes; i++) {
        scale = fmax(scale, fabs(e.logits[i]));
        difference = fmax(difference, fabs(e.logits[i] - e.logits[c->input.classes + i]));
    }
    assert_true(difference > 1e-2 * scale);
    return e;
}

static inline void close_exported(exported *e)
{
    for (int v = 0; v < lk_model_variable_count(e->net.model); v++)
        free(e->values[v]);
    free(e->values);
    free(e->images);
    free(e->logits);
    close_network(&e->net);
}
