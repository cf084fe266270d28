/* Networks.
 *
 *     lk_layer *net = LK_SEQUENTIAL(lk_layer_conv2d(20, 5, NULL), lk_layer_activation(LK_RELU),
 *                                   lk_layer_max_pool(2, NULL), lk_layer_flatten(), lk_layer_dense(10, NULL));
 *     lk_model *model = lk_model_build("small", net, (lk_model_input){1, 28, 28, 10});
 *     lk_model_init(model, device, seed, variables);
 *     lk_tensor *logits = lk_model_forward(model, variables, images, NULL);
 *
 * A model is a tree of layers built for one size of image. It describes the variables that it needs, their initial
 * values, and its forward pass; the caller owns the variables, one set per device. Variables are parameters, which are
 * trained, and then buffers (batch-norm's running statistics): indices [0, parameter count) and [parameter count,
 * variable count). A variable's name is the path of its layers and its own name, with dots: "block2.1.conv1.weight". */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/ops.h"
#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
#include <initializer_list>

extern "C" {
#endif

/* --- initial values ----------------------------------------------------------------------------------------------- */

typedef enum lk_init_kind {
    LK_INIT_DEFAULT,        /* the layer's default */
    LK_INIT_ZEROS,          /* 0 */
    LK_INIT_ONES,           /* 1 */
    LK_INIT_NORMAL,         /* N(0, value) */
    LK_INIT_GLOROT_UNIFORM, /* U(-a, a), a = sqrt(6 / (fan_in + fan_out)): Keras' default (Glorot, Bengio 2010) */
    LK_INIT_HE_NORMAL,      /* N(0, sqrt(2 / fan_in)) (He et al. 2015), as PyTorch's kaiming_normal_; Keras' he_normal
                             * truncates it at two deviations */
    LK_INIT_TORCH_UNIFORM,  /* U(-a, a), a = 1 / sqrt(fan_in): PyTorch's default for weights (kaiming_uniform_ with a =
                             * sqrt(5)) and biases of Conv2d and Linear */
    LK_INIT_CONSTANT,       /* value */
    LK_INIT_KIND_COUNT
} lk_init_kind;

typedef struct lk_init {
    lk_init_kind kind;
    double value; /* of LK_INIT_NORMAL: the standard deviation, from 0 to 1e37, so that all numbers are finite; of
                   * LK_INIT_CONSTANT: a number from -1e37 to 1e37 */
} lk_init;

/* --- layers ------------------------------------------------------------------------------------------------------- */

/* A constructor gives a layer, or NULL with an error: LK_ERR_ARGUMENT (a number out of range), LK_ERR_MEMORY. Options
 * are borrowed for the call; NULL: defaults. A function that is given layers takes them, also on failure; a NULL layer
 * releases the others and gives NULL. So constructors nest without checks in between. */
typedef struct lk_layer lk_layer;

/* Releases a layer that no other layer or model has taken. NULL is fine. */
LK_API void lk_layer_release(lk_layer *layer);

/* Names a layer and returns it. Other layers are named after their kind, with a number from the second of a kind among
 * siblings on: "relu", "relu2". A sequential, add, multiply or concat without a name adds nothing to the paths of its
 * layers, which count as those of its parent. Names consist of letters, digits, '_' and '-'. */
LK_API lk_layer *lk_layer_named(const char *name, lk_layer *layer);

/* Freezes a layer and all layers in it, before a model is built of it, and returns it: training leaves its parameters
 * as they are. See lk_model_freeze. */
LK_API lk_layer *lk_layer_frozen(lk_layer *layer);

/* n layers, taken, one after the other. n 0: the identity. */
LK_API lk_layer *lk_layer_sequential(lk_layer *const *layers, int n);
#ifdef __cplusplus
extern "C++" inline lk_layer *lk_layer_sequential_of(std::initializer_list<lk_layer *> layers)
{
    return lk_layer_sequential(layers.begin(), (int)layers.size());
}
#define LK_SEQUENTIAL(...) lk_layer_sequential_of({__VA_ARGS__})
#else
#define LK_SEQUENTIAL(...)                                \
    lk_layer_sequential((lk_layer *const[]){__VA_ARGS__}, \
                        (int)(sizeof((lk_layer *const[]){__VA_ARGS__}) / sizeof(lk_layer *)))
#endif

/* body(x) + shortcut(x), a residual connection (He et al. 2016); with lk_layer_identity() as the shortcut, body(x) + x.
 * Errors when the model is built: LK_ERR_SHAPE (the shapes differ). */
LK_API lk_layer *lk_layer_add(lk_layer *body, lk_layer *shortcut);
LK_API lk_layer *lk_layer_identity(void);

/* body(x) * factors(x), element by element, or, for factors [N, C] and a body that gives [N, C, H, W], all pixels of a
 * channel by its factor. With lk_layer_identity() as the body, and a global average pooling, two dense layers and a
 * sigmoid as the factors, this is squeeze-and-excitation (Hu et al. 2018). Errors when the model is built: LK_ERR_SHAPE
 * (other shapes). */
LK_API lk_layer *lk_layer_multiply(lk_layer *body, lk_layer *factors);

/* The channels of first(x), then those of second(x), as in DenseNet (Huang et al. 2017), whose layers have
 * lk_layer_identity() as `first`. Both give [N, C, H, W] of one H and W, or both [N, K]; lk_layer_concat in another
 * joins more. Errors when the model is built: LK_ERR_SHAPE (other sizes differ). */
LK_API lk_layer *lk_layer_concat(lk_layer *first, lk_layer *second);

typedef struct lk_conv2d_layer_opts {
    int64_t stride;  /* 0: 1 */
    int64_t padding; /* pixels of 0 on all sides */
    bool same;       /* pad by dilation (kernel - 1) / 2; for odd kernels */
    bool no_bias;
    lk_init weight, bias; /* default: Glorot uniform, zeros */
    int64_t dilation;     /* steps between the pixels that a kernel reads; 0: 1 */
    /* Channels and filters are cut into so many groups, and each group of filters reads its group of channels; 0: 1. As
     * many as channels: a depthwise convolution. */
    int64_t groups;
    /* True: the sizes above are those along H, and these are those along W. False: both are alike. kernel_width must be
     * given; for the others 0 is 1, no padding, and 1. */
    bool rectangular;
    int64_t kernel_width, stride_width, padding_width, dilation_width;
} lk_conv2d_layer_opts;

/* [N, C, H, W] → [N, filters, H', W']. Variables: weight [filters, C / groups, kernel, kernel or kernel_width], bias
 * [filters]. Errors when the model is built: LK_ERR_SHAPE (a kernel that does not fit, groups that do not divide C). */
LK_API lk_layer *lk_layer_conv2d(int64_t filters, int64_t kernel, const lk_conv2d_layer_opts *opts);

typedef struct lk_dense_layer_opts {
    bool no_bias;
    lk_init weight, bias; /* default: Glorot uniform, zeros */
} lk_dense_layer_opts;

/* [N, K] → [N, units]. Variables: weight [K, units], bias [units]. */
LK_API lk_layer *lk_layer_dense(int64_t units, const lk_dense_layer_opts *opts);

typedef struct lk_batch_norm_layer_opts {
    double epsilon; /* 1e-37 to 1e37; 0: 1e-5 */
    /* 1e-37 to 1: share of a new batch in the running statistics; 0: 0.1 (Keras' momentum is 1 minus this) */
    double momentum;
} lk_batch_norm_layer_opts;

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta for each channel, axis 1 (Ioffe, Szegedy 2015). Training uses
 * mean and biased variance of the shard or, with lk_forward_opts.sync, of a group of shards, and the unbiased variance
 * for the running one. Inference, and training if it is frozen, use the running statistics. Variables: weight (gamma,
 * initially 1) and bias (beta, 0); buffers running_mean (0) and running_var (1). */
LK_API lk_layer *lk_layer_batch_norm(const lk_batch_norm_layer_opts *opts);

typedef struct lk_norm_layer_opts {
    double epsilon; /* 1e-37 to 1e37; 0: 1e-5 */
} lk_norm_layer_opts;

/* Group normalization (Wu, He 2018): y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with mean and biased
 * variance of each sample and group of neighboring channels. A sample's result does not depend on others, and training
 * and inference are alike. Variables: weight (gamma, initially 1) and bias (beta, 0), [C] each. Errors when the model
 * is built: LK_ERR_SHAPE (groups that do not divide C). */
LK_API lk_layer *lk_layer_group_norm(int64_t groups, const lk_norm_layer_opts *opts);

/* Layer normalization (Ba et al. 2016) over the channels of each pixel of [N, C, H, W], as in ConvNeXt and as Keras'
 * for channels-last images, or over K of [N, K]. Otherwise like group normalization. */
LK_API lk_layer *lk_layer_layer_norm(const lk_norm_layer_opts *opts);

/* y = factor x, with a factor for each channel, axis 1, that is trained: the layer scale of ConvNeXt and CaiT (Touvron
 * et al. 2021), where it ends the layers of a residual and begins at 1e-6. Variable: weight (the factors, initially
 * `initial`), [C]. */
LK_API lk_layer *lk_layer_scale(double initial);

typedef enum lk_activation {
    LK_RELU,
    LK_LEAKY_RELU, /* alpha 0.2; lockstep/ops.h has the formulas */
    LK_ELU,        /* alpha 1 */
    LK_SIGMOID,
    LK_TANH,
    LK_SILU,
    LK_GELU, /* x Phi(x), with erf */
    LK_SOFTPLUS,
    LK_ACTIVATION_COUNT
} lk_activation;
LK_API lk_layer *lk_layer_activation(lk_activation activation);

typedef struct lk_pool_layer_opts {
    int64_t stride;  /* 0: the size of the kernel */
    int64_t padding; /* at most half the kernel */
    /* True: the sizes above are those along H, and these are those along W, with the same defaults. */
    bool rectangular;
    int64_t kernel_width, stride_width, padding_width;
} lk_pool_layer_opts;
LK_API lk_layer *lk_layer_max_pool(int64_t kernel, const lk_pool_layer_opts *opts);
LK_API lk_layer *lk_layer_avg_pool(int64_t kernel, const lk_pool_layer_opts *opts);
LK_API lk_layer *lk_layer_global_avg_pool(void); /* [N, C, H, W] → [N, C] */
LK_API lk_layer *lk_layer_global_max_pool(void);
LK_API lk_layer *lk_layer_flatten(void); /* [N, …] → [N, K] */

/* [N, K] → [N, C, H, W], K = C H W. */
LK_API lk_layer *lk_layer_reshape(int64_t channels, int64_t height, int64_t width);

/* Training sets each element to 0 with probability `rate` (0 <= rate < 1), and multiplies the others by 1 / (1 - rate)
 * (Srivastava et al. 2014, scaled in training as frameworks do). The choice depends on (seed, the layer's path, step,
 * sample, element) alone: see lk_dropout. Inference is the identity. */
LK_API lk_layer *lk_layer_dropout(double rate);

/* Stochastic depth (Huang et al. 2016): training sets a sample to 0 with probability `rate` (0 <= rate < 1), and
 * multiplies the others by 1 / (1 - rate). At the end of the body of lk_layer_add it skips that body. The choice
 * depends on (seed, the layer's path, step, sample) alone. Inference is the identity. */
LK_API lk_layer *lk_layer_drop_path(double rate);

/* --- models ------------------------------------------------------------------------------------------------------- */

typedef struct lk_model lk_model;

/* The size of images, and the number of classes. */
typedef struct lk_model_input {
    int64_t channels, height, width, classes;
} lk_model_input;

/* Makes a reference model or, if `name` contains '/' or ends in ".lk", that of a model file (docs/model-files.md). NULL
 * on failure. Reference models, with their number of parameters for 28x28 gray images and 10 classes:
 *   lenet      the LeNet of Dive into Deep Learning's multi-GPU chapter: weights N(0, 0.01), biases 0; 129,068
 *   keras-cnn  TensorFlow's "Distributed training with Keras": conv 32@3x3, max pooling 2, dense 64, dense; 347,146
 *   resnet18   Dive into Deep Learning's ResNet-18 with a 3x3 first convolution and no max pooling; weights
 *              N(0, 0.01), PyTorch's defaults for biases and batch-norm; 11,175,818
 *   wrn-16-10  the WideResNet-16-10 of NVIDIA's Fashion-MNIST lab, Keras' defaults; 17,121,962
 *   fast-cnn   six convolutions with batch-norm, one residual and max pooling, for a high accuracy in little time;
 *              convolutions He-normal, without biases; 686,314
 * Errors: LK_ERR_ARGUMENT (unknown name, sizes out of range), LK_ERR_SHAPE (images too small, layers too large),
 * LK_ERR_IO, LK_ERR_FORMAT; messages about a model file name file and line, what was found and what was expected. */
LK_API lk_model *lk_model_new(const char *name, lk_model_input input);

/* Checks `name` for lk_model_new as far as is possible without the data: that there is such a reference model, or that
 * a model file is correct, except for whether its layers fit the images and classes. A pipe is not read. Errors: those
 * of lk_model_new. */
LK_API lk_status lk_model_check(const char *name);

/* Makes a model of `root`, which it takes, also on failure. The output must be [N, classes], unless classes is 0. name:
 * for messages, copied; NULL: "model". A layer's output may have at most 2^31 - 1 elements per sample, and so may all
 * variables together. NULL on failure. Errors: LK_ERR_ARGUMENT, LK_ERR_SHAPE, LK_ERR_MEMORY, those of `build` of
 * layers. */
LK_API lk_model *lk_model_build(const char *name, lk_layer *root, lk_model_input input);
LK_API void lk_model_release(lk_model *model);

/* Names of reference models, and a line about each; NULL past the end. Static. */
LK_API const char *lk_model_name_at(int index);
LK_API const char *lk_model_about_at(int index);

LK_API const char *lk_model_name(const lk_model *model);
LK_API lk_model_input lk_model_get_input(const lk_model *model);
LK_API int lk_model_parameter_count(const lk_model *model); /* trainable tensors, not elements */
LK_API int lk_model_variable_count(const lk_model *model);  /* trainable parameters, frozen ones, then buffers */
LK_API const char *lk_model_variable_name(const lk_model *model, int index);
LK_API lk_shape lk_model_variable_shape(const lk_model *model, int index);
LK_API bool lk_model_has_batch_norm(const lk_model *model);

/* Freezes the parameters whose names fit one of the patterns, "conv1,block1*": '*' stands for any characters, dots too,
 * and '?' for one; a pattern that fits the path of a layer fits all parameters in it. A frozen parameter gets no
 * gradient and no update, optimizers keep no state of it, and backward ends at the lowest layer that is trained. It is
 * a variable behind the trainable parameters, of which lk_model_parameter_count are left, so it must be frozen before
 * variables are made. A batch-norm whose parameters are all frozen takes its running statistics in training too, and
 * keeps them, as Keras' does with trainable = False. (PyTorch's does so after eval(), not after requires_grad_(False)
 * alone.) NULL freezes nothing more. Errors: LK_ERR_ARGUMENT (a pattern that fits no parameter: then nothing is
 * frozen), LK_ERR_MEMORY. */
LK_API lk_status lk_model_freeze(lk_model *model, const char *patterns);
LK_API bool lk_model_variable_is_frozen(const lk_model *model, int index);

/* Sets variables[i] to a new tensor with the initial values of variable i, which depend on (seed, its name) alone. On
 * failure every entry is NULL. */
LK_API lk_status lk_model_init(const lk_model *model, lk_device *device, uint64_t seed, lk_tensor **variables);

/* A layer of a model. Layers are in the order of the forward pass, without sequential and identity. */
typedef struct lk_layer_info {
    const char *path, *kind; /* valid as long as the model */
    lk_shape output;         /* for one sample: dim[0] is 1 */
    int64_t parameters;      /* elements */
    double flops;            /* floating-point operations per sample, in training's forward pass */
    int64_t bytes;           /* kept per sample for backward: the output, if backward reads it, and other tensors */
} lk_layer_info;
LK_API int lk_model_layer_count(const lk_model *model);
LK_API lk_layer_info lk_model_layer(const lk_model *model, int index);

/* --- the forward pass --------------------------------------------------------------------------------------------- */

typedef struct lk_forward_opts {
    bool training; /* false: inference */
    /* The dtype that layers compute in: LK_F32 or LK_BF16. For bf16, images and parameters are cast once per pass and
     * shard, and layers keep their outputs in bf16. Batch-norm's parameters, all buffers and statistics, the logits,
     * and gradients of parameters on a tape stay f32 or wider. */
    lk_dtype dtype;
    uint64_t seed; /* for dropout */
    int64_t step;  /* for dropout: number of the training step, from 0, below 2^32 */
    /* [shard]: numbers of the samples in the data set, i64 [N] on the shard's device; for training with dropout. */
    lk_tensor *const *indices;
    /* Output of training; NULL: not wanted. statistics[shard * lk_model_statistics_count + i] becomes lk_channel_sums
     * of the input of batch-norm layer i, a new tensor. Sum them over shards for lk_model_update_statistics. */
    lk_tensor **statistics;
    /* For batch-norm over groups of shards: sets sums[s], for every shard s of n, to the sum of the parts of its group,
     * on parts[s]'s device, recorded on the open tape (lk_allreduce_recorded, if all shards are one group). The shards
     * of a group must then run in one call. NULL: batch-norm takes the statistics of each shard alone. */
    lk_status (*sync)(void *user, lk_tensor *const *parts, lk_tensor **sums, int n);
    void *sync_user;
    const int64_t *group_samples; /* [shard], for sync: samples of the shard's group */
    /* Called with the path and the output of every layer of lk_model_layer, for each shard. NULL: none. */
    void (*visit)(void *user, const char *path, int shard, lk_tensor *y);
    void *visit_user;
} lk_forward_opts;

/* x: [N, C, H, W] f32 → logits [N, classes], a new tensor. Recorded on the open tape. opts NULL: inference.
 * Asynchronous. NULL on failure. */
LK_API lk_tensor *lk_model_forward(const lk_model *model, lk_tensor *const *variables, lk_tensor *x,
                                   const lk_forward_opts *opts);

/* The same for n shards, each on a device with variables[s] of its own, layer by layer over all shards. */
LK_API lk_status lk_model_forward_shards(const lk_model *model, int n, lk_tensor *const *const *variables,
                                         lk_tensor *const *x, const lk_forward_opts *opts, lk_tensor **logits);

/* The number of batch-norm layers that are not frozen. */
LK_API int lk_model_statistics_count(const lk_model *model);

/* Updates running statistics: running = (1 - momentum) running + momentum statistic, for mean and unbiased variance
 * over all shards. sums[i]: lk_forward_opts.statistics of batch-norm layer i, summed over shards with `samples` samples
 * in all. momentum 0: each layer's own. skip: f32 scalar on the variables' device; if it is not 0 nothing changes;
 * NULL: never. In place, asynchronous. With momentum 1 / (i + 1) for batches i = 0 … n - 1 and constant parameters,
 * statistics become means over the batches. Errors: those of lk_batch_norm_update. */
LK_API lk_status lk_model_update_statistics(const lk_model *model, lk_tensor *const *variables, lk_tensor *const *sums,
                                            int64_t samples, double momentum, lk_tensor *skip);

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* sum(per_example) / global_batch, as tf.nn.compute_average_loss: the contribution of these samples to the mean over
 * the global batch. Training loops divide the loss here and nowhere else. per_example: [N] float. */
LK_API lk_tensor *lk_average_loss_at(lk_call_site at, lk_tensor *per_example, int64_t global_batch);
#define lk_average_loss(...) lk_average_loss_at(LK_HERE, __VA_ARGS__)

/* --- advanced: layers of your own --------------------------------------------------------------------------------- */

/* A block of existing layers is just a function that returns an lk_layer. A layer with arithmetic of its own is
 * described by this table, as all layers above are. */
typedef struct lk_layer_builder lk_layer_builder; /* for `build`: takes a layer's requests */
typedef struct lk_layer_call lk_layer_call;       /* for `forward`: gives a layer its variables */
typedef struct lk_node lk_node;                   /* for `describe`: a node of lk_graph, see below */

typedef struct lk_layer_table {
    const char *kind; /* "conv2d" */
    /* Requests variables, builds every child once, and sets *out to the output's shape for the input's shape `in`;
     * dim[0], the batch, is 1. Errors: LK_ERR_SHAPE; the message says what would fit. NULL: no variables, and the shape
     * stays. */
    lk_status (*build)(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out);
    /* Gives the output for one shard, or for a piece of one (lk_plan.micro_batch) if no layer has statistics. It gets
     * its variables as shard 0 of the call. NULL: forward_shards must be set. */
    lk_tensor *(*forward)(lk_layer_call *call, const void *config, lk_tensor *x);
    /* Sets y[s] to the output for x[s], for all shards of the call: for layers with children, and for those that need
     * all shards together. Entries of y belong to the open scope. */
    lk_status (*forward_shards)(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y);
    void (*release)(void *config); /* frees what config points to, not config itself; NULL: nothing */
    /* Describes what the layer computes in inference, for lk_model_graph and export: sets the kind of *node, which is
     * zeroed before, and the members that the kind needs. NULL: no lk_node_kind fits, and networks with the layer have
     * no graph. */
    void (*describe)(const void *config, lk_node *node);
} lk_layer_table;

/* Makes a layer of `table`, which must outlive it. config: `size` bytes, which are copied; the layer takes what they
 * point to and frees it with table->release, but on failure it stays the caller's. children: n layers, taken, also on
 * failure; it is an error if one is part of a network already, and that one stays there. The array is borrowed. NULL on
 * failure. Errors: LK_ERR_ARGUMENT, LK_ERR_MEMORY. */
LK_API lk_layer *lk_layer_new(const lk_layer_table *table, const void *config, size_t size, lk_layer *const *children,
                              int n);

/* For `build`: requests a parameter or buffer, or builds child `child`. fan_in, fan_out: for the initializers. */
LK_API lk_status lk_layer_parameter(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init,
                                    int64_t fan_in, int64_t fan_out);
LK_API lk_status lk_layer_buffer(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init);
LK_API lk_status lk_layer_build_child(lk_layer_builder *builder, int child, lk_shape in, lk_shape *out);

/* Tensors that the backward pass of a layer reads; they can be combined. */
enum lk_layer_needs {
    LK_NEEDS_INPUT = 1,
    LK_NEEDS_OUTPUT = 2,
    LK_NEEDS_NOTHING = 0,
    LK_MAKES_VIEW = 4 /* the output is a view of the input */
};

/* For `build`: says how many floating-point operations the forward pass of one sample takes, as operators count them,
 * for lk_layer_info. Default: 0. */
LK_API void lk_layer_flops(lk_layer_builder *builder, double flops);

/* For `build`: says which tensors the backward pass reads, of enum lk_layer_needs, and how many other bytes per sample
 * it keeps, for lk_layer_info. Default: input and output. */
LK_API void lk_layer_gradient_needs(lk_layer_builder *builder, int needs, int64_t bytes);

/* For `build`: sets the error `status`, with the layer's position (model and path, or line of a model file) in front of
 * the text, and returns it. */
LK_API lk_status lk_layer_fail(const lk_layer_builder *builder, lk_status status, const char *format, ...)
    LK_PRINTF(3, 4);

/* For `forward`: the number of shards, and whether the pass is for training. */
LK_API int lk_layer_call_shards(const lk_layer_call *call);
LK_API bool lk_layer_call_training(const lk_layer_call *call);

/* For `forward`: a variable of the layer for a shard, borrowed. variable: counts in the order of lk_layer_parameter,
 * then of lk_layer_buffer. Parameters have the dtype of the pass (lk_forward_opts), buffers f32. */
LK_API lk_tensor *lk_layer_call_variable(const lk_layer_call *call, int shard, int variable);

/* For `forward`: runs child number `child` on x[s] of all shards; sets y[s]. y must be another array than x. */
LK_API lk_status lk_layer_call_child(lk_layer_call *call, int child, lk_tensor *const *x, lk_tensor **y);

/* --- advanced: a model as a graph --------------------------------------------------------------------------------- */

/* The operation of a node in inference. x: its input. Its variables are those of the layer, in their order. */
typedef enum lk_node_kind {
    LK_NODE_INPUT,    /* the images */
    LK_NODE_IDENTITY, /* x; only for lk_layer_table.describe, graphs have no such node */
    LK_NODE_CONV2D,   /* kernel, stride, padding, dilation, groups; variables: weight [O, C / groups, kernel], bias [O]
                       * or none */
    LK_NODE_DENSE,    /* variables: weight [K, units], bias [units] or none */
    LK_NODE_BATCH_NORM, /* epsilon; variables: weight, bias, running mean, running variance, each [size of axis 1] */
    LK_NODE_ACTIVATION, /* activation; alpha, for those that have one */
    LK_NODE_MAX_POOL,   /* kernel, stride, padding; padding is never the maximum */
    LK_NODE_AVG_POOL,   /* kernel, stride, padding; padding is not counted */
    LK_NODE_GLOBAL_MAX_POOL, /* [N, C, H, W] -> [N, C] */
    LK_NODE_GLOBAL_AVG_POOL,
    LK_NODE_RESHAPE,    /* to the output's shape, in row-major order */
    LK_NODE_ADD,        /* x + the second input, of equal shapes */
    LK_NODE_CONCAT,     /* x and then the second input, along axis 1 */
    LK_NODE_GROUP_NORM, /* groups, epsilon, each_pixel; variables: weight, bias, each [size of axis 1] */
    LK_NODE_SCALE,      /* x times variable weight [size of axis 1] */
    LK_NODE_MULTIPLY,   /* x times the second input, of equal shape, or [N, C] for x [N, C, H, W] */
    LK_NODE_KIND_COUNT
} lk_node_kind;

enum { LK_NODE_INPUTS = 2, LK_NODE_VARIABLES = 4 };

struct lk_node {
    lk_node_kind kind;
    int64_t kernel[2], stride[2], padding[2]; /* along H and W */
    int64_t dilation[2], groups;              /* of a convolution; 0: 1 */
    bool each_pixel; /* of a group normalization: statistics of each pixel alone, otherwise of all of a sample */
    double epsilon, alpha;
    lk_activation activation;
    /* Set by lk_model_graph. */
    const char *name;                /* path of the layer; "images" for the input */
    int input[LK_NODE_INPUTS];       /* numbers of earlier nodes; -1: none */
    int variable[LK_NODE_VARIABLES]; /* numbers of the model's variables; -1: none */
    lk_shape output;                 /* for one sample: dim[0] is 1 */
};

/* Nodes in an order in which each comes after its inputs: the images first, the logits last. */
typedef struct lk_graph {
    lk_node *nodes;
    int n;
} lk_graph;

/* Sets *graph, which is valid as long as the model; lk_graph_free frees it. On failure it is empty. Errors:
 * LK_ERR_UNSUPPORTED (a layer without `describe`; the message names its path), LK_ERR_MEMORY. */
LK_API lk_status lk_model_graph(const lk_model *model, lk_graph *graph);
LK_API void lk_graph_free(lk_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
