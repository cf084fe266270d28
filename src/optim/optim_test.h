/* Shared by the tests of optimizers: a device, and a matrix and a vector with their gradients. */
#pragma once

#include "core/tensor.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A matrix [3, 4] and a vector [5]; in the packed tensor they start at 0 and at 16. */
enum { MATRIX = 12, VECTOR = 5, ELEMENTS = MATRIX + VECTOR, FLAT = 32, PARAMETERS = 2 };

#define assert_ok(expression)                                                               \
    do {                                                                                    \
        if ((expression) != LK_OK)                                                          \
            fail_msg("%s:%d: %s: %s", __FILE__, __LINE__, #expression, lk_error_message()); \
    } while (0)

typedef struct fixture {
    lk_device *device;
    lk_tensor *parameters[PARAMETERS], *packed;
    lk_optimizer *optimizer;
} fixture;

static inline void split(lk_device *device, const float values[ELEMENTS], lk_tensor *tensors[PARAMETERS])
{
    tensors[0] = lk_tensor_from(device, LK_F32, LK_SHAPE(3, 4), values);
    tensors[1] = lk_tensor_from(device, LK_F32, LK_SHAPE(VECTOR), values + MATRIX);
}

static inline void close_fixture(fixture *f)
{
    lk_optimizer_release(f->optimizer);
    for (int i = 0; i < PARAMETERS; i++)
        lk_tensor_release(f->parameters[i]);
    lk_tensor_release(f->packed);
    lk_device_release(f->device);
}

/* Members that could not be made are NULL. No scope is open: the references are the fixture's. */
static inline lk_status try_open_fixture(fixture *f, const char *kind, const lk_optimizer_opts *opts,
                                         const float values[ELEMENTS])
{
    *f = (fixture){.device = lk_device_open(kind)};
    if (!f->device)
        return lk_error_status();
    split(f->device, values, f->parameters);
    if (!f->parameters[0] || !f->parameters[1])
        return lk_error_status();
    lk_status status = lk_pack(f->parameters, PARAMETERS, &f->packed);
    if (status != LK_OK)
        return status;
    f->optimizer = lk_optimizer_new(opts, f->packed, f->parameters, PARAMETERS);
    return f->optimizer ? LK_OK : lk_error_status();
}

static inline fixture open_fixture(const char *kind, const lk_optimizer_opts *opts, const float values[ELEMENTS])
{
    fixture f;
    lk_error_clear();
    assert_ok(try_open_fixture(&f, kind, opts, values));
    return f;
}

static inline lk_status try_step(fixture *f, const float gradients[ELEMENTS], double rate)
{
    lk_tensor *g[PARAMETERS];
    lk_scope_begin();
    split(f->device, gradients, g);
    lk_status status = g[0] && g[1] ? lk_optimizer_step(f->optimizer, g, rate) : lk_error_status();
    lk_scope_end();
    return status;
}

static inline void step(fixture *f, const float gradients[ELEMENTS], double rate)
{
    assert_ok(try_step(f, gradients, rate));
}

static inline void read_parameters(const fixture *f, float values[ELEMENTS])
{
    assert_ok(lk_tensor_read(f->parameters[0], values, MATRIX * sizeof(float)));
    assert_ok(lk_tensor_read(f->parameters[1], values + MATRIX, VECTOR * sizeof(float)));
}

/* Everything that a step may change, bit for bit, gaps included. */
static inline void read_everything(const fixture *f, float values[3 * FLAT])
{
    memset(values, 0, 3 * FLAT * sizeof(float));
    assert_ok(lk_tensor_read(f->packed, values, FLAT * sizeof(float)));
    for (int i = 0; i < 2; i++) {
        lk_tensor *state = lk_optimizer_state(f->optimizer, i, NULL);
        if (state)
            assert_ok(lk_tensor_read(state, values + FLAT * (i + 1), FLAT * sizeof(float)));
    }
}

static inline double item(lk_tensor *tensor)
{
    double value = NAN;
    assert_ok(lk_tensor_item(tensor, &value));
    return value;
}

/* In [-1, 1), different for each `index`. */
static inline void random_floats(float *values, int n, uint64_t index)
{
    lk_random_key key = {.seed = 5, .purpose = lk_random_purpose("optimizer test"), .sample = index};
    uint32_t words[4];
    for (int i = 0; i < n; i++) {
        if (i % 4 == 0)
            lk_random_block(&key, (uint64_t)i / 4, words);
        values[i] = (float)(((double)words[i % 4] + 0.5) * 0x1p-31 - 1);
    }
}
