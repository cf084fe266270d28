/* The functions of the operators, which lower.c lists: each appends one call to a module. A function may rely on what
 * the operator's `infer` checked. */
#pragma once

#include "ops/geometry.h"
#include "pjrt/lower_values.h"

typedef void (*lk_lower_fn)(lk_lowering *l, const lk_call *call);

/* --- parts of several operators ----------------------------------------------------------------------------------- */

/* lower_elementwise.c. where_positive: y > 0 ? dy : 0. */
lk_hlo lk__hlo_relu(lk_lowering *l, lk_hlo x);
lk_hlo lk__hlo_where_positive(lk_lowering *l, lk_hlo y, lk_hlo dy);
lk_hlo lk__hlo_sigmoid(lk_lowering *l, lk_hlo x);
lk_hlo lk__hlo_softplus(lk_lowering *l, lk_hlo x);

/* lower_tensors.c. is_inside: 0 <= index < count. select_rows: condition [N] chooses rows of yes [N, …]; no is a scalar
 * or like yes. gather: x[indices]; an index out of range is moved inside. */
lk_hlo lk__hlo_is_inside(lk_lowering *l, lk_hlo index, int64_t count);
lk_hlo lk__hlo_select_rows(lk_lowering *l, lk_hlo condition, lk_hlo yes, lk_hlo no);
lk_hlo lk__hlo_gather(lk_lowering *l, lk_hlo x, lk_hlo indices);

/* lower_conv.c. The results have the type that products are added up in; lk_shape y, x and w are theirs. */
lk_hlo lk__hlo_conv2d(lk_lowering *l, lk_hlo x, lk_hlo w, const lk_tensor *bias, const lk_conv2d_opts *opts,
                      lk_shape y);
lk_hlo lk__hlo_conv2d_input_grad(lk_lowering *l, lk_hlo dy, lk_hlo w, const lk_conv2d_opts *opts, lk_shape x);
lk_hlo lk__hlo_conv2d_weight_grad(lk_lowering *l, lk_hlo dy, lk_hlo x, const lk_conv2d_opts *opts, lk_shape w);
lk_hlo lk__hlo_conv2d_bias_grad(lk_lowering *l, lk_hlo dy);

/* lower_pool.c. `where`, i32, is the number in x's plane of each window's maximum. pool_shares divides dy as the mean's
 * gradient does, and pool_spread adds each window's share to all of its places. */
lk_hlo lk__hlo_max_pool(lk_lowering *l, const lk_geometry *g, lk_hlo x, lk_hlo *where);
lk_hlo lk__hlo_max_pool_grad(lk_lowering *l, const lk_geometry *g, lk_hlo dy, lk_hlo where);
lk_hlo lk__hlo_avg_pool(lk_lowering *l, const lk_geometry *g, lk_hlo x);
lk_hlo lk__hlo_pool_shares(lk_lowering *l, const lk_geometry *g, lk_hlo dy);
lk_hlo lk__hlo_pool_spread(lk_lowering *l, const lk_geometry *g, lk_hlo shares);

/* lower_reduce.c, along an axis. below_max: x - max x. The others take that: exp / Σ exp, and ln Σ exp, of size 1. */
lk_hlo lk__hlo_below_max(lk_lowering *l, lk_hlo x, int axis);
lk_hlo lk__hlo_softmax(lk_lowering *l, lk_hlo below, int axis);
lk_hlo lk__hlo_log_sum(lk_lowering *l, lk_hlo below, int axis);

/* lower_random.c. Sets words to Philox' of blocks, any integers, of the streams (key, sample, epoch): 64-bit integers.
 * The key gives only seed and purpose. */
/* x dropped out, in f64. */
lk_hlo lk__hlo_dropout(lk_lowering *l, lk_hlo x, lk_hlo indices, const lk_dropout_attrs *attrs);
void lk__hlo_random_block(lk_lowering *l, const lk_random_key *key, lk_hlo block, lk_hlo sample, lk_hlo epoch,
                          lk_hlo words[4]);

/* lower_update.c. `old` if the flag `skip` is set; `skip` may be NULL. */
lk_hlo lk__hlo_unless_skipped(lk_lowering *l, const lk_tensor *skip, lk_hlo updated, lk_hlo old);

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* lower_elementwise.c */
void lk__lower_arithmetic(lk_lowering *l, const lk_call *call);
void lk__lower_pairwise_sum(lk_lowering *l, const lk_call *call);
void lk__lower_relu(lk_lowering *l, const lk_call *call);
void lk__lower_relu_grad(lk_lowering *l, const lk_call *call);
void lk__lower_activation(lk_lowering *l, const lk_call *call);
void lk__lower_activation_grad(lk_lowering *l, const lk_call *call);

/* lower_tensors.c */
void lk__lower_full(lk_lowering *l, const lk_call *call);
void lk__lower_arange(lk_lowering *l, const lk_call *call);
void lk__lower_copy(lk_lowering *l, const lk_call *call);
void lk__lower_concat(lk_lowering *l, const lk_call *call);
void lk__lower_gather(lk_lowering *l, const lk_call *call);

/* lower_random.c */
void lk__lower_uniform(lk_lowering *l, const lk_call *call);
void lk__lower_normal(lk_lowering *l, const lk_call *call);
void lk__lower_dropout(lk_lowering *l, const lk_call *call);

/* lower_images.c */
void lk__lower_prepare_images(lk_lowering *l, const lk_call *call);

/* lower_conv.c */
void lk__lower_matmul(lk_lowering *l, const lk_call *call);
void lk__lower_dense_act(lk_lowering *l, const lk_call *call);
void lk__lower_conv2d(lk_lowering *l, const lk_call *call);
void lk__lower_conv2d_input_grad(lk_lowering *l, const lk_call *call);
void lk__lower_conv2d_weight_grad(lk_lowering *l, const lk_call *call);

/* lower_conv_block.c */
void lk__lower_conv_block(lk_lowering *l, const lk_call *call);
void lk__lower_conv_block_grad(lk_lowering *l, const lk_call *call);

/* lower_pool.c */
void lk__lower_max_pool2d(lk_lowering *l, const lk_call *call);
void lk__lower_max_pool2d_grad(lk_lowering *l, const lk_call *call);
void lk__lower_avg_pool2d(lk_lowering *l, const lk_call *call);
void lk__lower_avg_pool2d_grad(lk_lowering *l, const lk_call *call);

/* lower_batch_norm.c */
void lk__lower_channel_sums(lk_lowering *l, const lk_call *call);
void lk__lower_channel_sums_grad(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_grad(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_with(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_with_grad(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_inference(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_inference_grad(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_update(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_act_grad(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_drop(lk_lowering *l, const lk_call *call);
void lk__lower_batch_norm_drop_grad(lk_lowering *l, const lk_call *call);

/* lower_group_norm.c */
void lk__lower_group_norm(lk_lowering *l, const lk_call *call);
void lk__lower_group_norm_grad(lk_lowering *l, const lk_call *call);

/* lower_reduce.c */
void lk__lower_sum(lk_lowering *l, const lk_call *call);
void lk__lower_mean(lk_lowering *l, const lk_call *call);
void lk__lower_max(lk_lowering *l, const lk_call *call);
void lk__lower_max_grad(lk_lowering *l, const lk_call *call);
void lk__lower_argmax(lk_lowering *l, const lk_call *call);
void lk__lower_softmax(lk_lowering *l, const lk_call *call);
void lk__lower_softmax_grad(lk_lowering *l, const lk_call *call);
void lk__lower_log_softmax(lk_lowering *l, const lk_call *call);
void lk__lower_log_softmax_grad(lk_lowering *l, const lk_call *call);

/* lower_loss.c */
void lk__lower_cross_entropy(lk_lowering *l, const lk_call *call);
void lk__lower_cross_entropy_grad(lk_lowering *l, const lk_call *call);
void lk__lower_cross_entropy_step(lk_lowering *l, const lk_call *call);
void lk__lower_sigmoid_cross_entropy(lk_lowering *l, const lk_call *call);
void lk__lower_sigmoid_cross_entropy_grad(lk_lowering *l, const lk_call *call);
void lk__lower_in_top_k(lk_lowering *l, const lk_call *call);

/* lower_update.c */
void lk__lower_sgd_update(lk_lowering *l, const lk_call *call);
void lk__lower_momentum_update(lk_lowering *l, const lk_call *call);
void lk__lower_adam_update(lk_lowering *l, const lk_call *call);
void lk__lower_lars_update(lk_lowering *l, const lk_call *call);

/* lower_scales.c */
void lk__lower_squared_norms(lk_lowering *l, const lk_call *call);
void lk__lower_update_scales(lk_lowering *l, const lk_call *call);
