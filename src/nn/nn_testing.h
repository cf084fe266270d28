/* Shared by the tests of networks. Include it after cmocka.h. */
#pragma once

#include "lockstep/nn.h"
#include "lockstep/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void assert_no_error(bool ok)
{
    if (!ok)
        fail_msg("%s", lk_error_message());
}

/* Checks that the thread has this error, with `text` in its message, and clears it. */
static inline void assert_error(lk_status status, const char *text)
{
    if (lk_error_status() != status || !strstr(lk_error_message(), text))
        fail_msg("error is %s, \"%s\"; expected %s with \"%s\"", lk_status_name(lk_error_status()), lk_error_message(),
                 lk_status_name(status), text);
    lk_error_clear();
}

static inline int64_t parameters_of(const lk_model *model)
{
    int64_t count = 0;
    for (int i = 0; i < lk_model_parameter_count(model); i++)
        count += lk_shape_count(lk_model_variable_shape(model, i));
    return count;
}

static inline int variable_index(const lk_model *model, const char *name)
{
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (strcmp(lk_model_variable_name(model, i), name) == 0)
            return i;
    return -1;
}

/* Returns the values of an f32 tensor; the caller frees them. */
static inline float *values_of(lk_tensor *tensor)
{
    assert_no_error(tensor != NULL);
    size_t bytes = (size_t)lk_tensor_count(tensor) * sizeof(float);
    float *values = malloc(bytes ? bytes : 1);
    assert_non_null(values);
    assert_no_error(lk_tensor_read(tensor, values, bytes) == LK_OK);
    return values;
}

static inline void assert_same_bits(lk_tensor *a, lk_tensor *b)
{
    float *x = values_of(a), *y = values_of(b);
    assert_int_equal(lk_tensor_count(a), lk_tensor_count(b));
    assert_memory_equal(x, y, (size_t)lk_tensor_count(a) * sizeof(float));
    free(x);
    free(y);
}

/* Checks that |a - b| <= tolerance (max |b|), element by element. */
static inline void assert_close(lk_tensor *a, lk_tensor *b, double tolerance)
{
    float *x = values_of(a), *y = values_of(b);
    double scale = 0;
    assert_int_equal(lk_tensor_count(a), lk_tensor_count(b));
    for (int64_t i = 0; i < lk_tensor_count(b); i++)
        scale = fmax(scale, fabs(y[i]));
    for (int64_t i = 0; i < lk_tensor_count(b); i++)
        if (!(fabs((double)x[i] - y[i]) <= tolerance * scale))
            fail_msg("element %lld: %.9g and %.9g", (long long)i, x[i], y[i]);
    free(x);
    free(y);
}

static inline double largest_of(lk_tensor *tensor)
{
    float *x = values_of(tensor);
    double largest = 0;
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        largest = isfinite(x[i]) ? fmax(largest, fabs(x[i])) : (double)INFINITY;
    free(x);
    return largest;
}

/* A model with a set of variables. */
typedef struct network {
    lk_device *device;
    lk_model *model;
    lk_tensor **variables;
    lk_tensor *indices[1]; /* of the samples that `images` made last */
} network;

static inline network network_of(lk_model *model)
{
    network net = {.device = lk_device_open("cpu:0"), .model = model};
    assert_no_error(net.device && model);
    net.variables = calloc((size_t)lk_model_variable_count(model) + 1, sizeof(lk_tensor *));
    assert_non_null(net.variables);
    assert_no_error(lk_model_init(model, net.device, 1, net.variables) == LK_OK);
    return net;
}

static inline network open_network(const char *name, lk_model_input input)
{
    return network_of(lk_model_new(name, input));
}

static inline network open_layers(lk_layer *root, lk_model_input input)
{
    return network_of(lk_model_build("test", root, input));
}

/* The variables are adopted by the scope that is open. */
static inline void close_network(network *net)
{
    free(net->variables);
    lk_model_release(net->model);
    lk_device_release(net->device);
}

static inline lk_tensor *images(network *net, int64_t n)
{
    lk_model_input in = lk_model_get_input(net->model);
    lk_random_key key = {.seed = 3, .purpose = lk_random_purpose("images")};
    net->indices[0] = lk_arange(net->device, LK_I64, n, 0, 1);
    return lk_uniform(net->device, LK_F32, LK_SHAPE(n, in.channels, in.height, in.width), 0, 1, key);
}

static inline lk_tensor *labels(network *net, int64_t n)
{
    return lk_arange(net->device, LK_I32, n, 0, 1);
}

/* Returns the variable "layer.name". */
static inline lk_tensor *named(network *net, const char *layer, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s.%s", layer, name);
    int index = variable_index(net->model, path);
    if (index < 0)
        fail_msg("there is no variable %s", path);
    return net->variables[index];
}
