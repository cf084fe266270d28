#include "train/digest.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/replicas_state.h"
#include "train/replicas.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* A variable, or the state that an optimizer has for a parameter. */
typedef struct digest_source {
    lk_tensor *variable;
    lk_replicas *replicas; /* NULL: the variable's own elements */
    int slot, parameter;
} digest_source;

/* Reads elements in row-major order, as f32 with little-endian bytes, because digests must not depend on the processor.
 * All NaN are one: their sign depends on the order of operands, which the compiler chooses. The caller frees the
 * elements with lk__free. */
static float *digest_read(digest_source from, size_t *bytes)
{
    size_t count = (size_t)lk_tensor_count(from.variable);
    float *values = lk__calloc(count, sizeof *values);
    *bytes = count * sizeof *values;
    if (!values)
        return NULL;
    lk_status status = from.replicas ? lk__replicas_read_state(from.replicas, from.slot, from.parameter, values)
                                     : lk_tensor_read(from.variable, values, *bytes);
    if (status != LK_OK) {
        lk__free(values);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        values[i] = isnan(values[i]) ? NAN : values[i];
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &values[i], sizeof word);
        word = __builtin_bswap32(word);
        memcpy(&values[i], &word, sizeof word);
    }
#endif
    return values;
}

/* order[]: the indices of the variables, sorted by name. */
static void digest_sort_variables_by_name(const lk_model *model, int *order)
{
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        int position = i;
        const char *name = lk_model_variable_name(model, i);
        while (position > 0 && strcmp(lk_model_variable_name(model, order[position - 1]), name) > 0) {
            order[position] = order[position - 1];
            position--;
        }
        order[position] = i; /* NOLINT(clang-analyzer-core.NullDereference): order[variables] */
    }
}

/* Adds the tensors with an index below `end`, in the order of order[0 … n). With `replicas`, adds what the optimizer's
 * slot has for each of them instead. */
static lk_status digest_add(XXH3_state_t *state, lk_tensor *const *tensors, const int *order, int n, int end,
                            lk_replicas *replicas, int slot)
{
    for (int i = 0; i < n; i++) {
        if (order[i] >= end) /* NOLINT(clang-analyzer-core.NullDereference): order[n] */
            continue;
        size_t bytes;
        float *values = digest_read((digest_source){tensors[order[i]], replicas, slot, order[i]}, &bytes);
        if (!values)
            return lk_error_status();
        XXH3_128bits_update(state, values, bytes);
        lk__free(values);
    }
    return LK_OK;
}

/* Adds the optimizer's slots, and the number of its steps. */
static lk_status digest_add_optimizer(XXH3_state_t *state, lk_replicas *replicas, const int *order, int n)
{
    int parameters = lk_model_parameter_count(lk__replicas_model(replicas));
    lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    for (int s = 0; optimizer && lk_optimizer_state(optimizer, s, NULL); s++)
        LK_TRY(digest_add(state, lk__replicas_owned(replicas, 0), order, n, parameters, replicas, s));
    unsigned char steps[8];
    for (int i = 0; i < 8; i++)
        steps[i] = (unsigned char)((uint64_t)(optimizer ? lk_optimizer_steps(optimizer) : 0) >> (8 * i));
    XXH3_128bits_update(state, steps, sizeof steps);
    return LK_OK;
}

static lk_status digest_of(lk_replicas *replicas, lk_tensor *const *variables, bool optimizer, char digest[33])
{
    const lk_model *model = lk__replicas_model(replicas);
    int n = lk_model_variable_count(model), *order = lk__calloc((size_t)n, sizeof *order);
    XXH3_state_t *state = XXH3_createState();
    lk_status status = order ? LK_OK : LK_ERR_MEMORY;
    if (!state)
        status = lk__fail(LK_ERR_MEMORY, "out of memory: the digest's state");
    if (status == LK_OK) {
        XXH3_128bits_reset(state);
        digest_sort_variables_by_name(model, order);
        status = digest_add(state, variables, order, n, n, NULL, 0);
    }
    if (status == LK_OK && optimizer)
        status = digest_add_optimizer(state, replicas, order, n);
    if (status == LK_OK) {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
        for (size_t i = 0; i < sizeof canonical.digest; i++)
            snprintf(digest + 2 * i, 3, "%02x", canonical.digest[i]);
    }
    XXH3_freeState(state);
    lk__free(order);
    return status;
}

lk_status lk_replicas_digest(lk_replicas *replicas, int replica, char digest[33])
{
    lk_tensor *const *variables = lk_replicas_variables(replicas, replica);
    if (!variables)
        LK_FAIL(LK_ERR_ARGUMENT, "digest: there is no replica %d", replica);
    return digest_of(replicas, variables, false, digest);
}

lk_status lk_trainer_state_digest(lk_trainer *trainer, char digest[33])
{
    return digest_of(trainer->replicas, lk_trainer_variables(trainer, 0), true, digest);
}

lk_status lk_trainer_digest(lk_trainer *trainer, int replica, char digest[33])
{
    return lk_replicas_digest(trainer->replicas, replica, digest);
}

lk_status lk__hash_tensor(lk_tensor *tensor, uint64_t *hash)
{
    size_t bytes;
    float *values = digest_read((digest_source){.variable = tensor}, &bytes);
    if (!values)
        return lk_error_status();
    *hash = XXH3_64bits(values, bytes);
    lk__free(values);
    return LK_OK;
}

lk_status lk_trainer_variable_hash(lk_trainer *trainer, int replica, int index, uint64_t *hash)
{
    lk_tensor *const *variables = lk_trainer_variables(trainer, replica);
    if (!variables)
        LK_FAIL(LK_ERR_ARGUMENT, "variable hash: there is no replica %d", replica);
    if (index < 0 || index >= trainer->n_variables)
        LK_FAIL(LK_ERR_ARGUMENT, "variable hash: there is no variable %d; there are %d", index, trainer->n_variables);
    return lk__hash_tensor(variables[index], hash);
}
