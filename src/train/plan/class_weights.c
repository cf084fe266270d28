#include "train/plan/class_weights.h"

#include "base/mem.h"
#include "base/number.h"
#include "base/status.h"
#include "lockstep/ops.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Each class that has samples gets the same sum of factors, and the mean over all samples is 1. */
static lk_status class_weights_balance(const lk_dataset *data, double *weights)
{
    const int32_t *labels = lk_dataset_labels(data);
    int64_t n = lk_dataset_count(data), classes = lk_dataset_classes(data), present = 0;
    int64_t *counts = lk__calloc((size_t)classes, sizeof *counts);
    if (!counts)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        present += counts[labels[i]]++ == 0;
    for (int64_t c = 0; c < classes; c++)
        weights[c] = counts[c] > 0 ? (double)n / ((double)present * (double)counts[c]) : 1;
    lk__free(counts);
    return LK_OK;
}

/* Returns the class that text[0 … length) names, by number or name; -1: none. names: [classes]; NULL: the data set's.
 */
static int64_t class_weights_find(const lk_dataset *data, const char *const *names, const char *text, size_t length)
{
    int64_t classes = lk_dataset_classes(data);
    for (int64_t c = 0; c < classes; c++) {
        const char *name = names ? names[c] : lk_dataset_class_name(data, c);
        if (name && strlen(name) == length && memcmp(name, text, length) == 0)
            return c;
    }
    if (length == 0 || length > 9 || strspn(text, "0123456789") < length)
        return -1;
    int64_t number = strtoll(text, NULL, 10);
    return number < classes ? number : -1;
}

/* Reads "CLASS:FACTOR" in text[0 … length). The last colon counts: names may have some. */
static lk_status class_weights_read(const lk_dataset *data, const char *const *names, const char *text, size_t length,
                                    double *weights, bool *given)
{
    size_t name = length;
    char *end;
    while (name > 0 && text[name - 1] != ':')
        name--;
    double factor = name > 0 && lk__number_starts(text + name) ? lk__number_parse(text + name, &end) : -1;
    if (!(factor >= 0 && factor <= (double)FLT_MAX) || end != text + length)
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "--class-weights '%.*s': must be balanced, or CLASS:FACTOR,… with factors from 0 to %g, as in 3:2,5:0.5",
            (int)length, text, (double)FLT_MAX);
    int64_t c = class_weights_find(data, names, text, name - 1);
    if (c < 0)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--class-weights '%.*s': the data have no such class: numbers are 0 to %lld, `lockstep data info` "
                "lists names",
                (int)length, text, (long long)lk_dataset_classes(data) - 1);
    if (given[c])
        LK_FAIL(LK_ERR_ARGUMENT, "--class-weights '%.*s': class %lld has a factor already", (int)length, text,
                (long long)c);
    given[c] = true;
    weights[c] = factor;
    return LK_OK;
}

static lk_status class_weights_parse(const lk_dataset *data, const char *const *names, const char *text,
                                     double *weights)
{
    bool *given = lk__calloc((size_t)lk_dataset_classes(data), sizeof *given);
    lk_status status = given ? LK_OK : LK_ERR_MEMORY;
    for (const char *item = text; item && status == LK_OK;) {
        size_t length = strcspn(item, ",");
        status = class_weights_read(data, names, item, length, weights, given);
        item = item[length] ? item + length + 1 : NULL;
    }
    lk__free(given);
    return status;
}

/* *weights: [classes]; the caller frees it, also after an error. */
static lk_status class_weights_resolve(const lk_dataset *data, const char *const *names, const char *text,
                                       double **weights)
{
    int64_t classes = lk_dataset_classes(data);
    *weights = lk__calloc((size_t)classes, sizeof **weights);
    if (!*weights)
        return LK_ERR_MEMORY;
    for (int64_t c = 0; c < classes; c++)
        (*weights)[c] = 1;
    return strcmp(text, "balanced") == 0 ? class_weights_balance(data, *weights)
                                         : class_weights_parse(data, names, text, *weights);
}

lk_status lk__class_weights_plan(lk_trainer *trainer)
{
    const char *text = trainer->config.optimizer.class_weights;
    if (!text || !*text)
        return LK_OK;
    lk_status status = class_weights_resolve(trainer->data.train_set, NULL, text, &trainer->data.class_weights);
    trainer->plan.class_weights = trainer->data.class_weights;
    return status;
}

lk_status lk__class_weights_compare(const lk_trainer *trainer, const char *text, const char *const *names, bool *same)
{
    double *weights;
    size_t bytes = (size_t)lk_dataset_classes(trainer->data.train_set) * sizeof *weights;
    lk_status status = class_weights_resolve(trainer->data.train_set, names, text, &weights);
    *same = status == LK_OK && memcmp(weights, trainer->data.class_weights, bytes) == 0;
    lk__free(weights);
    if (status != LK_ERR_ARGUMENT)
        return status;
    lk_error_clear();
    return LK_OK;
}

lk_status lk__class_weights_place(lk_trainer *trainer)
{
    const double *weights = trainer->data.class_weights;
    const int32_t *labels = lk_dataset_labels(trainer->data.train_set);
    int64_t n = lk_dataset_count(trainer->data.train_set);
    if (!weights)
        return LK_OK;
    float *factors = lk__calloc((size_t)n, sizeof *factors);
    lk_status status = factors ? LK_OK : LK_ERR_MEMORY;
    for (int64_t i = 0; i < n && status == LK_OK; i++)
        factors[i] = (float)weights[labels[i]];
    lk_scope_begin();
    for (int d = 0; d < trainer->n_devices && status == LK_OK; d++) {
        trainer->sums.weights[d] = lk_tensor_retain(lk_tensor_from(trainer->devices[d], LK_F32, LK_SHAPE(n), factors));
        status = trainer->sums.weights[d] ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    lk__free(factors);
    return status;
}
