/* The kernels of this folder, a table rather than a module: a row of cpu_table.c for each. lockstep/ops.h and core/op.h
 * say what they compute. */
#pragma once

#include "core/op.h"

/* conv2d and its two gradients. */
lk_status lk__cpu_convolution(lk_call *call);

/* oneDNN's alternatives of cpu_choice.h. */
lk_status lk__cpu_onednn_conv2d(lk_call *call);
lk_status lk__cpu_onednn_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_onednn_conv2d_weight_grad(lk_call *call);

/* The operators of cpu_dense.h on processors for which dense.h has no kernels. */
lk_status lk__cpu_onednn_matmul(lk_call *call);
lk_status lk__cpu_onednn_dense_act(lk_call *call);

/* Computes dbias, output 1, from dy, input 0, of a conv2d_weight_grad. */
lk_status lk__cpu_bias_gradient(lk_call *call);

lk_status lk__cpu_max_pool2d(lk_call *call);
lk_status lk__cpu_max_pool2d_grad(lk_call *call);
lk_status lk__cpu_avg_pool2d(lk_call *call);
lk_status lk__cpu_avg_pool2d_grad(lk_call *call);
lk_status lk__cpu_conv_block(lk_call *call);
lk_status lk__cpu_conv_block_grad(lk_call *call);

/* add, sub, mul, relu and relu_grad. */
lk_status lk__cpu_elements(lk_call *call);
/* activation and activation_grad. */
lk_status lk__cpu_activation(lk_call *call);
/* Tells whether lk__cpu_elements or lk__cpu_activation takes a call: inputs of one shape, and outputs without gaps. */
bool lk__cpu_is_of_one_shape(const lk_call *call);

/* sum over the leading axes of a tensor without gaps, with a result in f32; lk__cpu_sums_rows tells whether a call is
 * one. */
lk_status lk__cpu_sum_rows(lk_call *call);
bool lk__cpu_sums_rows(const lk_call *call);

lk_status lk__cpu_dropout(lk_call *call);
lk_status lk__cpu_channel_sums(lk_call *call);
lk_status lk__cpu_channel_sums_grad(lk_call *call);
lk_status lk__cpu_batch_norm(lk_call *call);
lk_status lk__cpu_batch_norm_grad(lk_call *call);
lk_status lk__cpu_group_norm(lk_call *call);
lk_status lk__cpu_group_norm_grad(lk_call *call);
lk_status lk__cpu_batch_norm_with(lk_call *call);
lk_status lk__cpu_batch_norm_with_grad(lk_call *call);
lk_status lk__cpu_batch_norm_inference(lk_call *call);
lk_status lk__cpu_batch_norm_inference_grad(lk_call *call);
lk_status lk__cpu_batch_norm_act(lk_call *call);
/* Returns whether a call of batch_norm_grad, batch_norm_act or its gradient has only what is fused on CPUs too. */
bool lk__cpu_takes_batch_norm(const lk_call *call);
lk_status lk__cpu_batch_norm_act_grad(lk_call *call);
lk_status lk__cpu_batch_norm_inference_act(lk_call *call);
lk_status lk__cpu_momentum_update(lk_call *call);
lk_status lk__cpu_adam_update(lk_call *call);
lk_status lk__cpu_lars_update(lk_call *call);
lk_status lk__cpu_squared_norms(lk_call *call);
