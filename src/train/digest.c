#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* One parameter's elements, plain row-major f32; free with lk__free. Digests are of little-endian bytes. */
static float *read_parameter(const lk_trainer *trainer, int replica, int index, size_t *bytes)
{
    lk_tensor *parameter = trainer->parameters[(int64_t)replica * trainer->n_parameters + index];
    size_t count = (size_t)lk_tensor_count(parameter);
    float *values = lk__calloc(count, sizeof *values);
    *bytes = count * sizeof *values;
    if (values && lk_tensor_read(parameter, values, *bytes) != LK_OK) {
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

/* order[] = parameter indices by name. */
static void sort_by_name(const lk_trainer *trainer, int *order)
{
    for (int i = 0; i < trainer->n_parameters; i++) {
        int place = i;
        const char *name = lk_trainer_parameter_name(trainer, i);
        while (place > 0 && strcmp(lk_trainer_parameter_name(trainer, order[place - 1]), name) > 0) {
            order[place] = order[place - 1];
            place--;
        }
        order[place] = i;
    }
}

static lk_status update_all(lk_trainer *trainer, int replica, XXH3_state_t *state)
{
    int *order = lk__calloc((size_t)trainer->n_parameters, sizeof *order);
    if (!order)
        return LK_ERR_MEMORY;
    sort_by_name(trainer, order);
    lk_status status = LK_OK;
    for (int i = 0; i < trainer->n_parameters && status == LK_OK; i++) {
        size_t bytes;
        float *values = read_parameter(trainer, replica, order[i], &bytes);
        status = values ? LK_OK : lk_error_status();
        if (values)
            XXH3_128bits_update(state, values, bytes);
        lk__free(values);
    }
    lk__free(order);
    return status;
}

lk_status lk_trainer_digest(lk_trainer *trainer, int replica, char digest[33])
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: the digest's state");
    XXH3_128bits_reset(state);
    lk_status status = update_all(trainer, replica, state);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(digest + 2 * i, 3, "%02x", canonical.digest[i]);
    return status;
}

lk_status lk_trainer_parameter_hash(lk_trainer *trainer, int replica, int index, uint64_t *hash)
{
    size_t bytes;
    float *values = read_parameter(trainer, replica, index, &bytes);
    if (!values)
        return lk_error_status();
    *hash = XXH3_64bits(values, bytes);
    lk__free(values);
    return LK_OK;
}
