/* The words for layers in a model file, and their settings. */
#include "nn/model_words.h"
#include "base/number.h"
#include "base/status.h"
#include "nn/init.h"
#include "nn/model_file.h"
#include "lockstep/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer_values {
    int64_t size; /* filters, units or groups: the setting that needs no name */
    int64_t kernel[2], stride[2], padding[2], dilation[2]; /* along H and W */
    int64_t groups, channels, height, width;
    bool same, no_bias, frozen;
    double rate, epsilon, momentum, initial;
    lk_init init, bias_init;
} layer_values;

typedef enum setting_type { INTEGER, SIZE, PAIR, PADDING, REAL, SHARE, BIAS, FROZEN, INITIALIZER } setting_type;

/* A SIZE may also be "classes", a PAIR of sizes one for both, a PADDING, which is a PAIR otherwise, "same". A SHARE is
 * at least 0 and below 1. */
typedef struct setting {
    const char *name;
    setting_type type;
    size_t offset;
    double low, high; /* of other numbers, inclusive */
    bool required;
} setting;

enum { MAX_SETTINGS = 10 };

/* The first setting needs no name if it is required. */
typedef struct layer_word {
    const char *name;
    lk_layer *(*make)(const lk_model_line *line, const layer_values *values, int variant);
    int variant;
    setting settings[MAX_SETTINGS + 1]; /* ends with a setting without a name */
} layer_word;

/* --- layers ------------------------------------------------------------------------------------------------------- */

static lk_layer *model_word_make_conv2d(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)variant;
    for (int i = 0; i < 2; i++)
        if (v->same && v->kernel[i] % 2 == 0) {
            lk__model_line_fail(line, "padding=same with kernel=%lld; expected an odd kernel", (long long)v->kernel[i]);
            return NULL;
        }
    bool may_be_classes = line->classes == LK_ANY_CLASSES && v->size == 1;
    int64_t filters = may_be_classes && v->groups > 0 ? v->groups : v->size;
    if (v->groups > 0 && filters % v->groups != 0) {
        lk__model_line_fail(line, "groups=%lld with %lld filters; expected a divisor of the filters",
                            (long long)v->groups, (long long)filters);
        return NULL;
    }
    return lk_layer_conv2d(filters, v->kernel[0],
                           &(lk_conv2d_layer_opts){.stride = v->stride[0],
                                                   .padding = v->padding[0],
                                                   .same = v->same,
                                                   .dilation = v->dilation[0],
                                                   .rectangular = true,
                                                   .kernel_width = v->kernel[1],
                                                   .stride_width = v->stride[1],
                                                   .padding_width = v->padding[1],
                                                   .dilation_width = v->dilation[1],
                                                   .groups = v->groups,
                                                   .no_bias = v->no_bias,
                                                   .weight = v->init,
                                                   .bias = v->bias_init});
}

static lk_layer *model_word_make_dense(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    (void)variant;
    const lk_dense_layer_opts opts = {.no_bias = v->no_bias, .weight = v->init, .bias = v->bias_init};
    return lk_layer_dense(v->size, &opts);
}

static lk_layer *model_word_make_batch_norm(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    (void)variant;
    return lk_layer_batch_norm(&(lk_batch_norm_layer_opts){.epsilon = v->epsilon, .momentum = v->momentum});
}

enum { GROUP_NORM, LAYER_NORM };

static lk_layer *model_word_make_norm(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    const lk_norm_layer_opts opts = {.epsilon = v->epsilon};
    return variant == GROUP_NORM ? lk_layer_group_norm(v->size, &opts) : lk_layer_layer_norm(&opts);
}

static lk_layer *model_word_make_scale(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    (void)variant;
    return lk_layer_scale(v->initial);
}

static lk_layer *model_word_make_activation(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    (void)v;
    return lk_layer_activation((lk_activation)variant);
}

enum { MAX_POOL, AVG_POOL };

static lk_layer *model_word_make_pool(const lk_model_line *line, const layer_values *v, int variant)
{
    const lk_pool_layer_opts opts = {.stride = v->stride[0],
                                     .padding = v->padding[0],
                                     .rectangular = true,
                                     .kernel_width = v->kernel[1],
                                     .stride_width = v->stride[1],
                                     .padding_width = v->padding[1]};
    for (int i = 0; i < 2; i++)
        if (v->padding[i] > v->kernel[i] / 2) {
            lk__model_line_fail(line, "padding=%lld with a kernel of %lld; expected at most half the kernel, %lld",
                                (long long)v->padding[i], (long long)v->kernel[i], (long long)(v->kernel[i] / 2));
            return NULL;
        }
    return variant == MAX_POOL ? lk_layer_max_pool(v->kernel[0], &opts) : lk_layer_avg_pool(v->kernel[0], &opts);
}

enum { FLATTEN, GLOBAL_AVG_POOL, GLOBAL_MAX_POOL };

static lk_layer *model_word_make_no_settings(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    (void)v;
    switch (variant) {
    case FLATTEN:
        return lk_layer_flatten();
    case GLOBAL_AVG_POOL:
        return lk_layer_global_avg_pool();
    default:
        return lk_layer_global_max_pool();
    }
}

static lk_layer *model_word_make_reshape(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    (void)variant;
    return lk_layer_reshape(v->channels, v->height, v->width);
}

enum { DROPOUT, DROP_PATH };

static lk_layer *model_word_make_dropout(const lk_model_line *line, const layer_values *v, int variant)
{
    (void)line;
    return variant == DROPOUT ? lk_layer_dropout(v->rate) : lk_layer_drop_path(v->rate);
}

/* clang-format off */
#define AT(field) offsetof(layer_values, field)
#define MAX_SIZE (double)LK_LAYER_MAX_SIZE
#define MAX_KERNEL (double)LK_LAYER_MAX_KERNEL
#define FROZEN_SETTING {"frozen", FROZEN, AT(frozen), 0, 0, false}
#define BIAS_SETTINGS                           \
    {"bias", BIAS, AT(no_bias), 0, 0, false},   \
    {"init", INITIALIZER, AT(init), 0, 0, false}, \
    {"bias_init", INITIALIZER, AT(bias_init), 0, 0, false}, \
    FROZEN_SETTING
#define EPSILON_SETTING {"epsilon", REAL, AT(epsilon), LK_LAYER_LEAST_REAL, LK_LAYER_MAX_REAL, false}
#define POOL_SETTINGS                                     \
    {"kernel", PAIR, AT(kernel), 1, MAX_KERNEL, true},   \
    {"stride", PAIR, AT(stride), 1, MAX_KERNEL, false}, \
    {"padding", PAIR, AT(padding), 0, MAX_KERNEL, false}

static const layer_word words[] = {
    {"conv2d", model_word_make_conv2d, 0, {
        {"filters", SIZE, AT(size), 1, MAX_SIZE, true},
        {"kernel", PAIR, AT(kernel), 1, MAX_KERNEL, true},
        {"stride", PAIR, AT(stride), 1, MAX_KERNEL, false},
        {"padding", PADDING, AT(padding), 0, MAX_KERNEL, false},
        {"dilation", PAIR, AT(dilation), 1, MAX_KERNEL, false},
        {"groups", INTEGER, AT(groups), 1, MAX_SIZE, false},
        BIAS_SETTINGS}},
    {"dense", model_word_make_dense, 0, {{"units", SIZE, AT(size), 1, MAX_SIZE, true}, BIAS_SETTINGS}},
    {"batch_norm", model_word_make_batch_norm, 0, {
        EPSILON_SETTING,
        {"momentum", REAL, AT(momentum), LK_LAYER_LEAST_REAL, 1, false},
        FROZEN_SETTING}},
    {"group_norm", model_word_make_norm, GROUP_NORM, {
        {"groups", INTEGER, AT(size), 1, MAX_SIZE, true},
        EPSILON_SETTING,
        FROZEN_SETTING}},
    {"layer_norm", model_word_make_norm, LAYER_NORM, {EPSILON_SETTING, FROZEN_SETTING}},
    {"scale", model_word_make_scale, 0, {{"initial", REAL, AT(initial), -LK_LAYER_MAX_REAL, LK_LAYER_MAX_REAL, true}, FROZEN_SETTING}},
    {"relu", model_word_make_activation, LK_RELU, {{0}}},
    {"leaky_relu", model_word_make_activation, LK_LEAKY_RELU, {{0}}},
    {"elu", model_word_make_activation, LK_ELU, {{0}}},
    {"sigmoid", model_word_make_activation, LK_SIGMOID, {{0}}},
    {"tanh", model_word_make_activation, LK_TANH, {{0}}},
    {"silu", model_word_make_activation, LK_SILU, {{0}}},
    {"gelu", model_word_make_activation, LK_GELU, {{0}}},
    {"softplus", model_word_make_activation, LK_SOFTPLUS, {{0}}},
    {"max_pool", model_word_make_pool, MAX_POOL, {POOL_SETTINGS}},
    {"avg_pool", model_word_make_pool, AVG_POOL, {POOL_SETTINGS}},
    {"global_avg_pool", model_word_make_no_settings, GLOBAL_AVG_POOL, {{0}}},
    {"global_max_pool", model_word_make_no_settings, GLOBAL_MAX_POOL, {{0}}},
    {"flatten", model_word_make_no_settings, FLATTEN, {{0}}},
    {"reshape", model_word_make_reshape, 0, {
        {"channels", INTEGER, AT(channels), 1, MAX_SIZE, true},
        {"height", INTEGER, AT(height), 1, MAX_SIZE, true},
        {"width", INTEGER, AT(width), 1, MAX_SIZE, true}}},
    {"dropout", model_word_make_dropout, DROPOUT, {{"rate", SHARE, AT(rate), 0, 0, true}}},
    {"drop_path", model_word_make_dropout, DROP_PATH, {{"rate", SHARE, AT(rate), 0, 0, true}}},
};
/* clang-format on */
enum { WORD_COUNT = sizeof words / sizeof words[0] };

static lk_status model_word_find(const lk_model_line *line, const char *const *blocks, const layer_word **found)
{
    const char *names[WORD_COUNT + 16];
    size_t n = 0;
    for (size_t i = 0; i < WORD_COUNT; i++) {
        *found = &words[i];
        if (strcmp(line->word, words[i].name) == 0)
            return LK_OK;
        names[n++] = words[i].name;
    }
    for (size_t i = 0; blocks[i] && n < sizeof names / sizeof names[0]; i++)
        names[n++] = blocks[i];
    const char *near = lk_nearest_word(line->word, names, n, sizeof names[0]);
    if (near)
        return lk__model_line_fail(line, "unknown layer '%.60s'; expected a layer: did you mean '%s'?", line->word,
                                   near);
    return lk__model_line_fail(
        line, "unknown layer '%.60s'; expected one like 'conv2d 32 kernel=3', 'relu' or 'dense 10'", line->word);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

lk_status lk__model_line_integer(const lk_model_line *line, const char *what, const char *alternative, const char *text,
                                 int64_t low, int64_t high, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    long long number = lk__number_starts(text) ? strtoll(text, &end, 10) : 0;
    if (!end || *end || errno || number < low || number > high)
        return lk__model_line_fail(line, "%s is '%.40s'; expected %sa whole number from %lld to %lld", what, text,
                                   alternative, (long long)low, (long long)high);
    *value = number;
    return LK_OK;
}

static lk_status model_setting_read_real(const lk_model_line *line, const setting *s, const char *text, double *value)
{
    char *end = NULL;
    double number = lk__number_starts(text) ? lk__number_parse(text, &end) : 0;
    if (s->type == SHARE && (!end || *end || !(number >= 0 && number < 1)))
        return lk__model_line_fail(line, "%s is '%.40s'; expected a number of at least 0 and below 1", s->name, text);
    if (s->type == REAL && (!end || *end || !(number >= s->low && number <= s->high)))
        return lk__model_line_fail(line, "%s is '%.40s'; expected a number from %g to %g", s->name, text, s->low,
                                   s->high);
    *value = number;
    return LK_OK;
}

lk_status lk__model_line_yes(const lk_model_line *line, const char *what, const char *text, bool *yes)
{
    *yes = strcmp(text, "yes") == 0;
    if (!*yes && strcmp(text, "no") != 0)
        return lk__model_line_fail(line, "%s is '%.40s'; expected yes or no", what, text);
    return LK_OK;
}

static lk_status model_setting_read_bias(const lk_model_line *line, const char *text, bool *no_bias)
{
    bool bias;
    LK_TRY(lk__model_line_yes(line, "bias", text, &bias));
    *no_bias = !bias;
    return LK_OK;
}

/* Reads "normal(0.01)" if `begin` is "normal(". Returns false for any other text. */
static bool model_setting_read_call(const char *text, const char *begin, double *value)
{
    size_t length = strlen(begin);
    char *end = NULL;
    if (strncmp(text, begin, length) != 0 || !lk__number_starts(text + length))
        return false;
    *value = lk__number_parse(text + length, &end);
    return strcmp(end, ")") == 0;
}

static lk_status model_setting_read_init(const lk_model_line *line, const char *what, const char *text, lk_init *init)
{
    for (lk_init_kind kind = LK_INIT_DEFAULT; kind < LK_INIT_KIND_COUNT; kind++) {
        const char *name = lk__init_name(kind);
        if (name && strcmp(text, name) == 0) {
            *init = (lk_init){.kind = kind};
            return LK_OK;
        }
    }
    init->kind = LK_INIT_NORMAL;
    if (model_setting_read_call(text, "normal(", &init->value) && lk__init_is_deviation(init->value))
        return LK_OK;
    init->kind = LK_INIT_CONSTANT;
    if (model_setting_read_call(text, "constant(", &init->value) && lk__init_is_deviation(fabs(init->value)))
        return LK_OK;
    return lk__model_line_fail(
        line,
        "%s is '%.40s'; expected zeros, ones, constant(VALUE), normal(DEVIATION) with a deviation from 0 to 1e37, "
        "glorot_uniform, he_normal or torch_uniform",
        what, text);
}

/* Reads "3", or "3x1": along H and W. */
static lk_status model_setting_read_pair(const lk_model_line *line, const setting *s, char *text, int64_t pair[2])
{
    const char *alternative =
        s->type == PADDING ? "same, two numbers such as 1x0, or " : "two numbers such as 3x1, or ";
    char name[40], *second = strchr(text, 'x');
    int64_t low = (int64_t)s->low, high = (int64_t)s->high;
    if (!second) {
        LK_TRY(lk__model_line_integer(line, s->name, alternative, text, low, high, &pair[0]));
        pair[1] = pair[0];
        return LK_OK;
    }
    *second++ = '\0';
    snprintf(name, sizeof name, "%s along H", s->name);
    LK_TRY(lk__model_line_integer(line, name, "", text, low, high, &pair[0]));
    snprintf(name, sizeof name, "%s along W", s->name);
    return lk__model_line_integer(line, name, "", second, low, high, &pair[1]);
}

static lk_status model_setting_read(const lk_model_line *line, const setting *s, char *text, layer_values *values)
{
    void *value = (char *)values + s->offset;
    const char *alternative = "";
    switch (s->type) {
    case REAL:
    case SHARE:
        return model_setting_read_real(line, s, text, value);
    case BIAS:
        return model_setting_read_bias(line, text, value);
    case FROZEN:
        return lk__model_line_yes(line, s->name, text, value);
    case INITIALIZER:
        return model_setting_read_init(line, s->name, text, value);
    case SIZE:
        if (line->classes == 0)
            break;
        alternative = "classes or ";
        if (strcmp(text, "classes") != 0)
            break;
        *(int64_t *)value = line->classes == LK_ANY_CLASSES ? 1 : line->classes;
        return LK_OK;
    case PADDING:
        values->same = strcmp(text, "same") == 0;
        return values->same ? LK_OK : model_setting_read_pair(line, s, text, value);
    case PAIR:
        return model_setting_read_pair(line, s, text, value);
    case INTEGER:
        break;
    }
    return lk__model_line_integer(line, s->name, alternative, text, (int64_t)s->low, (int64_t)s->high, value);
}

/* --- a line ------------------------------------------------------------------------------------------------------- */

static int model_word_count_settings(const layer_word *word)
{
    int n = 0;
    while (word->settings[n].name)
        n++;
    return n;
}

static lk_status model_word_unknown_setting(const lk_model_line *line, const layer_word *word, const char *name)
{
    size_t n = (size_t)model_word_count_settings(word);
    char list[200] = "none";
    for (size_t i = 0, used = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", word->settings[i].name);
    const char *near = n ? lk_nearest_word(name, word->settings, n, sizeof *word->settings) : NULL;
    if (near)
        return lk__model_line_fail(line, "%s has no setting '%.40s'; expected one of %s: did you mean '%s'?",
                                   word->name, name, list, near);
    return lk__model_line_fail(line, "%s has no setting '%.40s'; expected %s%s", word->name, name,
                               n > 1 ? "one of " : "", list);
}

/* Finds the setting of "kernel=3"; the first argument may be just the value of a required first setting. */
static lk_status model_word_find_setting(const lk_model_line *line, const layer_word *word, int argument, int *index,
                                         char **value)
{
    char *text = line->arguments[argument], *equals = strchr(text, '=');
    int n = model_word_count_settings(word);
    *value = text;
    *index = 0;
    if (!equals && argument == 0 && n > 0 && word->settings[0].required)
        return LK_OK;
    if (!equals && n == 0)
        return lk__model_line_fail(line, "'%.60s' follows %s, which has no settings", text, line->word);
    if (!equals)
        return lk__model_line_fail(line, "'%.60s' is no setting; expected NAME=VALUE", text);
    *equals = '\0';
    *value = equals + 1;
    for (; *index < n; ++*index)
        if (strcmp(text, word->settings[*index].name) == 0)
            return LK_OK;
    return model_word_unknown_setting(line, word, text);
}

static lk_status model_word_read_settings(const lk_model_line *line, const layer_word *word, layer_values *values)
{
    unsigned given = 0;
    for (int a = 0; a < line->n_arguments; a++) {
        int index;
        char *text;
        LK_TRY(model_word_find_setting(line, word, a, &index, &text));
        if (given & 1u << index)
            return lk__model_line_fail(line, "%s is given twice; expected it once", word->settings[index].name);
        given |= 1u << index;
        LK_TRY(model_setting_read(line, &word->settings[index], text, values));
    }
    for (int i = 0; i < model_word_count_settings(word); i++)
        if (word->settings[i].required && !(given & 1u << i))
            return lk__model_line_fail(line, "%s without %s; expected %s=VALUE", word->name, word->settings[i].name,
                                       word->settings[i].name);
    return LK_OK;
}

lk_layer *lk__model_line_layer(const lk_model_line *line, const char *const *blocks)
{
    layer_values values = {0};
    const layer_word *word;
    if (model_word_find(line, blocks, &word) != LK_OK || model_word_read_settings(line, word, &values) != LK_OK)
        return NULL;
    lk_layer *layer = word->make(line, &values, word->variant);
    if (layer) {
        layer->line = line->number;
        layer->frozen = values.frozen;
    }
    return layer; /* cppcheck-suppress returnDanglingLifetime; a layer copies its config */
}
