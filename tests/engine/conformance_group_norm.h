/* The cases of group normalization. */
#pragma once

#include "conformance_layers.h"

typedef struct group_norm_parameters {
    norm_parameters norm;
    int64_t groups;
    bool each_pixel;
} group_norm_parameters;

static inline lk_group_norm_opts group_norm_opts(const group_norm_parameters *p)
{
    return (lk_group_norm_opts){.groups = p->groups, .each_pixel = p->each_pixel, .epsilon = p->norm.epsilon};
}

/* A set of few elements may have a small deviation, so errors of x are divided by the root of epsilon. */
static inline void group_norm_scale(trial *t, const group_norm_parameters *p)
{
    t->scale = SCALE_ONE;
    t->terms = 32 + (int64_t)((4 + fabs(p->norm.offset)) * 4 / sqrt(p->norm.epsilon));
}

static inline lk_tensor *group_norm_case(trial *t, const void *parameters)
{
    const group_norm_parameters *p = parameters;
    lk_group_norm_opts opts = group_norm_opts(p);
    norm_operands o = operands_of_norm(t, &p->norm);
    group_norm_scale(t, p);
    return lk_group_norm(o.x, o.gamma, o.beta, &opts);
}

static inline lk_tensor *group_norm_grad_case(trial *t, const void *parameters)
{
    const group_norm_parameters *p = parameters;
    lk_group_norm_opts opts = group_norm_opts(p);
    lk_tensor *dy = floats(t, p->norm.shape);
    norm_operands o = operands_of_norm(t, &p->norm);
    group_norm_scale(t, p);
    t->terms = 4 * t->terms + 4 * channel_elements(p->norm.shape);
    if (t->dtype == LK_BF16)
        t->terms += 1 << 16; /* 2^-8 in units of 2^-24: dx is rounded once more */
    return all_results(t, &lk__op_group_norm_grad, (lk_tensor *[]){dy, o.x, o.gamma}, 3, 3, &opts, sizeof opts);
}

/* Activations in the layout of a convolution. */
static inline lk_tensor *group_norm_conv_case(trial *t, const void *parameters)
{
    const group_norm_parameters *p = parameters;
    int64_t channels = p->norm.shape.dim[1];
    lk_group_norm_opts opts = group_norm_opts(p);
    t->scale = SCALE_ONE;
    t->terms = 9 * channels * 16;
    t->roundings = 32;
    lk_tensor *x = floats(t, p->norm.shape), *w = floats(t, LK_SHAPE(channels, channels, 3, 3));
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5), *beta = channel_vector(t, channels, -1, 1);
    x = lk_group_norm(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {1, 1}}), gamma, beta, &opts);
    return lk_add(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {1, 1}}), x);
}
