/* Hashes of what training has come to, by which runs are compared. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* One variable's elements, plain row-major f32; free with lk__free. Digests are of little-endian bytes. */
static float *read_variable(lk_tensor *variable, size_t *bytes)
{
    size_t count = (size_t)lk_tensor_count(variable);
    float *values = lk__calloc(count, sizeof *values);
    *bytes = count * sizeof *values;
    if (values && lk_tensor_read(variable, values, *bytes) != LK_OK) {
        lk__free(values);
        return NULL;
    }
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; values && i < count; i++) {
        uint32_t word;
        memcpy(&word, &values[i], sizeof word);
        word = __builtin_bswap32(word);
        memcpy(&values[i], &word, sizeof word);
    }
#endif
    return values;
}

/* order[] = variable indices by name. */
static void sort_by_name(const lk_model *model, int *order)
{
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        int place = i;
        const char *name = lk_model_variable_name(model, i);
        while (place > 0 && strcmp(lk_model_variable_name(model, order[place - 1]), name) > 0) {
            order[place] = order[place - 1];
            place--;
        }
        order[place] = i;
    }
}

static lk_status update_all(const lk_model *model, lk_tensor *const *variables, XXH3_state_t *state)
{
    int n = lk_model_variable_count(model), *order = lk__calloc((size_t)n, sizeof *order);
    if (!order)
        return LK_ERR_MEMORY;
    sort_by_name(model, order);
    lk_status status = LK_OK;
    for (int i = 0; i < n && status == LK_OK; i++) {
        size_t bytes;
        float *values = read_variable(variables[order[i]], &bytes);
        status = values ? LK_OK : lk_error_status();
        if (values)
            XXH3_128bits_update(state, values, bytes);
        lk__free(values);
    }
    lk__free(order);
    return status;
}

static lk_status update_state(lk_replicas *replicas, lk_tensor *slot, const int *order, XXH3_state_t *state)
{
    const lk_model *model = lk__replicas_model(replicas);
    lk_tensor *const *parameters = lk__replicas_owned(replicas, 0);
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        if (order[i] >= lk_model_parameter_count(model))
            continue;
        lk_tensor *part = lk__tensor_over(slot->storage, parameters[order[i]]);
        size_t bytes;
        float *values = part ? read_variable(part, &bytes) : NULL;
        lk_tensor_release(part);
        if (!values)
            return lk_error_status();
        XXH3_128bits_update(state, values, bytes);
        lk__free(values);
    }
    return LK_OK;
}

static lk_status update_optimizer(lk_replicas *replicas, XXH3_state_t *state)
{
    const lk_model *model = lk__replicas_model(replicas);
    lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    int *order = lk__calloc((size_t)lk_model_variable_count(model), sizeof *order);
    if (!order)
        return LK_ERR_MEMORY;
    sort_by_name(model, order);
    lk_status status = LK_OK;
    lk_tensor *slot;
    for (int s = 0; status == LK_OK && optimizer && (slot = lk_optimizer_state(optimizer, s, NULL)); s++)
        status = update_state(replicas, slot, order, state);
    lk__free(order);
    unsigned char steps[8];
    for (int i = 0; i < 8; i++)
        steps[i] = (unsigned char)((uint64_t)(optimizer ? lk_optimizer_steps(optimizer) : 0) >> (8 * i));
    XXH3_128bits_update(state, steps, sizeof steps);
    return status;
}

static lk_status digest_of(lk_replicas *replicas, lk_tensor *const *variables, bool optimizer, char digest[33])
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: the digest's state");
    XXH3_128bits_reset(state);
    lk_status status = update_all(lk__replicas_model(replicas), variables, state);
    if (status == LK_OK && optimizer)
        status = update_optimizer(replicas, state);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(digest + 2 * i, 3, "%02x", canonical.digest[i]);
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
    float *values = read_variable(tensor, &bytes);
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
