/* The kernel functions of the operators, which cuda_table.c lists. Each is an lk_kernel_fn that accepts layouts, and
 * turns a call into launches of the plug-in's kernels. */
#pragma once

#include "core/op.h"
#include "cuda/driver.h"
#include "lockstep/ops.h"

/* cuda_tensors.c */
lk_status lk__cuda_full(lk_call *call);
lk_status lk__cuda_arange(lk_call *call);
lk_status lk__cuda_uniform(lk_call *call);
lk_status lk__cuda_normal(lk_call *call);
lk_status lk__cuda_copy(lk_call *call);
lk_status lk__cuda_cast(lk_call *call);
lk_status lk__cuda_concat(lk_call *call);
lk_status lk__cuda_gather(lk_call *call);
lk_status lk__cuda_pairwise_sum(lk_call *call);

/* cuda_images.c */
lk_status lk__cuda_prepare_images(lk_call *call);

/* cuda_elementwise.c */
lk_status lk__cuda_arithmetic(lk_call *call);
lk_status lk__cuda_relu(lk_call *call);
lk_status lk__cuda_relu_grad(lk_call *call);
lk_status lk__cuda_activation(lk_call *call);
lk_status lk__cuda_activation_grad(lk_call *call);
lk_status lk__cuda_dropout(lk_call *call);

/* cuda_reduce.c */
lk_status lk__cuda_sum(lk_call *call);
lk_status lk__cuda_mean(lk_call *call);
lk_status lk__cuda_max(lk_call *call);
lk_status lk__cuda_max_grad(lk_call *call);
lk_status lk__cuda_argmax(lk_call *call);
lk_status lk__cuda_softmax(lk_call *call);
lk_status lk__cuda_softmax_grad(lk_call *call);
lk_status lk__cuda_log_softmax(lk_call *call);
lk_status lk__cuda_log_softmax_grad(lk_call *call);

/* cuda_loss.c */
lk_status lk__cuda_sparse_softmax_cross_entropy(lk_call *call);
lk_status lk__cuda_sparse_softmax_cross_entropy_grad(lk_call *call);
lk_status lk__cuda_cross_entropy_step(lk_call *call);
lk_status lk__cuda_sigmoid_cross_entropy(lk_call *call);
lk_status lk__cuda_sigmoid_cross_entropy_grad(lk_call *call);
lk_status lk__cuda_in_top_k(lk_call *call);

/* cuda_batch_norm.c */
lk_status lk__cuda_channel_sums(lk_call *call);
lk_status lk__cuda_channel_sums_grad(lk_call *call);
lk_status lk__cuda_batch_norm(lk_call *call);
lk_status lk__cuda_batch_norm_grad(lk_call *call);
lk_status lk__cuda_batch_norm_with(lk_call *call);
lk_status lk__cuda_batch_norm_with_grad(lk_call *call);
lk_status lk__cuda_batch_norm_inference(lk_call *call);
lk_status lk__cuda_batch_norm_inference_grad(lk_call *call);
lk_status lk__cuda_batch_norm_update(lk_call *call);
lk_status lk__cuda_batch_norm_act(lk_call *call);
lk_status lk__cuda_batch_norm_act_grad(lk_call *call);
lk_status lk__cuda_batch_norm_drop(lk_call *call);
lk_status lk__cuda_batch_norm_drop_grad(lk_call *call);
lk_status lk__cuda_batch_norm_pool(lk_call *call);
lk_status lk__cuda_batch_norm_pool_grad(lk_call *call);
lk_status lk__cuda_batch_norm_inference_act(lk_call *call);

/* cuda_group_norm.c */
lk_status lk__cuda_group_norm(lk_call *call);
lk_status lk__cuda_group_norm_grad(lk_call *call);

/* cuda_pool.c */
lk_status lk__cuda_max_pool2d(lk_call *call);
lk_status lk__cuda_max_pool2d_grad(lk_call *call);
lk_status lk__cuda_avg_pool2d(lk_call *call);
lk_status lk__cuda_avg_pool2d_grad(lk_call *call);
lk_status lk__cuda_relu_avg_pool2d(lk_call *call);
lk_status lk__cuda_relu_avg_pool2d_grad(lk_call *call);
lk_status lk__cuda_relu_max_pool2d(lk_call *call);
lk_status lk__cuda_relu_max_pool2d_grad(lk_call *call);

/* cuda_conv.c, cuda_matmul.c */
lk_status lk__cuda_conv2d(lk_call *call);
lk_status lk__cuda_conv2d_input_grad(lk_call *call);
lk_status lk__cuda_conv2d_weight_grad(lk_call *call);
lk_status lk__cuda_conv_block(lk_call *call);
lk_status lk__cuda_conv_block_grad(lk_call *call);
lk_status lk__cuda_matmul(lk_call *call);
lk_status lk__cuda_dense_act(lk_call *call);

/* Set *choice to the problem that cuBLASLt gets for a call of matmul or dense_act, and cuDNN for a convolution that is
 * computed in `dtype`, with the engine that the call's tuning names. False: the call needs no library, because it is
 * empty. */
bool lk__cuda_matmul_choice(const lk_call *call, lk_gpu_choice *choice);
bool lk__cuda_conv_choice(const lk_call *call, lk_dtype dtype, lk_gpu_choice *choice);

/* cuda_choices.c: the engine that the tuning names for a convolution; NULL: none. */
const char *lk__cuda_tuned_engine(const lk_tuning *tuning, const lk_gpu_choice *choice);

/* cuda_update.c */
lk_status lk__cuda_sgd_update(lk_call *call);
lk_status lk__cuda_momentum_update(lk_call *call);
lk_status lk__cuda_adam_update(lk_call *call);
lk_status lk__cuda_lars_update(lk_call *call);
lk_status lk__cuda_squared_norms(lk_call *call);
lk_status lk__cuda_update_scales(lk_call *call);
