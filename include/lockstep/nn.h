/* Networks. Layers chain and nest; a model is a tree of layers built for one size of image. It is a description: the
 * variables it needs, how they start, and its forward pass over them. Variables live with the caller, one set on each
 * device.
 *
 * Variables are parameters (trained) and, after them, buffers (batch-norm's running statistics): indices [0, parameter
 * count) and [parameter count, variable count). A name is the path of layer names and the variable's own, with dots:
 * "block2.1.conv1.weight". */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/ops.h"
#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- how a variable starts --------------------------------------------------------------------------------------- */

typedef enum lk_init_kind {
    LK_INIT_DEFAULT,        /* what the layer says */
    LK_INIT_ZEROS,          /* 0 */
    LK_INIT_ONES,           /* 1 */
    LK_INIT_NORMAL,         /* N(0, value) */
    LK_INIT_GLOROT_UNIFORM, /* U(-a, a), a = sqrt(6 / (fan_in + fan_out)): Keras' default (Glorot, Bengio 2010) */
    LK_INIT_HE_NORMAL, /* N(0, sqrt(2 / fan_in)) (He et al. 2015), with its tails as PyTorch's kaiming_normal_; Keras'
                        * he_normal cuts them at two deviations */
    LK_INIT_TORCH_UNIFORM, /* U(-a, a), a = 1 / sqrt(fan_in): the default of PyTorch's Conv2d and Linear, weight (their
                            * kaiming_uniform_ with a = sqrt(5)) and bias alike */
    LK_INIT_KIND_COUNT
} lk_init_kind;

typedef struct lk_init {
    lk_init_kind kind;
    double value; /* LK_INIT_NORMAL: the standard deviation */
} lk_init;

/* --- layers ------------------------------------------------------------------------------------------------------ */

/* A constructor gives a layer, or NULL with the error: LK_ERR_ARGUMENT (a number out of range), LK_ERR_MEMORY. Options
 * are borrowed for the call; NULL: the defaults. Who is given a layer takes it, also on failure; so a NULL layer among
 * those given releases the others and gives NULL, and constructors nest without checks in between. */
typedef struct lk_layer lk_layer;

/* Of one that no other layer and no model has taken; NULL is fine. */
LK_API void lk_layer_release(lk_layer *layer);

/* Names a layer, and gives it back; others are called after their kind and, from the second of a kind beside each other
 * on, their number: "relu", "relu2". A sequential or an add without a name adds nothing to the names of the layers in
 * it: they count as its parent's. A name has letters, digits, '_' and '-'. */
LK_API lk_layer *lk_layer_named(const char *name, lk_layer *layer);

/* One after the other. layers: n of them, taken. No layer: the identity. */
LK_API lk_layer *lk_layer_sequential(lk_layer *const *layers, int n);
#define LK_SEQUENTIAL(...)                                \
    lk_layer_sequential((lk_layer *const[]){__VA_ARGS__}, \
                        (int)(sizeof((lk_layer *const[]){__VA_ARGS__}) / sizeof(lk_layer *)))

/* body(x) + shortcut(x): a residual connection (He et al. 2016). lk_layer_identity() as the shortcut: body(x) + x.
 * Errors when built: LK_ERR_SHAPE where the two shapes differ. */
LK_API lk_layer *lk_layer_add(lk_layer *body, lk_layer *shortcut);
LK_API lk_layer *lk_layer_identity(void);

typedef struct lk_conv2d_layer_opts {
    int64_t stride;  /* 0: 1 */
    int64_t padding; /* on all sides */
    bool same;       /* padding (kernel - 1) / 2; odd kernels only */
    bool no_bias;
    lk_init weight, bias; /* default: Glorot uniform, zeros */
} lk_conv2d_layer_opts;

/* [N, C, H, W] → [N, filters, H', W']. Variables: weight [filters, C, kernel, kernel], bias [filters]. */
LK_API lk_layer *lk_layer_conv2d(int64_t filters, int64_t kernel, const lk_conv2d_layer_opts *opts);

typedef struct lk_dense_layer_opts {
    bool no_bias;
    lk_init weight, bias; /* default: Glorot uniform, zeros */
} lk_dense_layer_opts;

/* [N, K] → [N, units]. Variables: weight [K, units], bias [units]. */
LK_API lk_layer *lk_layer_dense(int64_t units, const lk_dense_layer_opts *opts);

typedef struct lk_batch_norm_layer_opts {
    double epsilon;  /* 0: 1e-5 */
    double momentum; /* share of the batch in the running statistics; 0: 0.1 (Keras' momentum m is 1 - m here) */
} lk_batch_norm_layer_opts;

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta for each channel, axis 1 (Ioffe, Szegedy 2015). Training: mean
 * and biased variance of the shard or, with sync, of the global batch; the running variance takes the unbiased one.
 * Inference: running_mean, running_var. Variables: weight (gamma, starts as 1), bias (beta, 0); buffers running_mean
 * (0), running_var (1). */
LK_API lk_layer *lk_layer_batch_norm(const lk_batch_norm_layer_opts *opts);

typedef enum lk_activation {
    LK_RELU,
    LK_LEAKY_RELU, /* alpha 0.2; formulas: lockstep/ops.h */
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
    int64_t stride;  /* 0: the kernel */
    int64_t padding; /* at most half the kernel */
} lk_pool_layer_opts;
LK_API lk_layer *lk_layer_max_pool(int64_t kernel, const lk_pool_layer_opts *opts);
LK_API lk_layer *lk_layer_avg_pool(int64_t kernel, const lk_pool_layer_opts *opts);
LK_API lk_layer *lk_layer_global_avg_pool(void); /* [N, C, H, W] → [N, C] */
LK_API lk_layer *lk_layer_global_max_pool(void);
LK_API lk_layer *lk_layer_flatten(void); /* [N, …] → [N, K] */

/* [N, K] → [N, C, H, W], K = C H W. */
LK_API lk_layer *lk_layer_reshape(int64_t channels, int64_t height, int64_t width);

/* Training: each element is 0 with probability `rate` (0 <= rate < 1), else multiplied by 1 / (1 - rate) (Srivastava et
 * al. 2014, scaled in training as frameworks do); which ones is a function of (seed, the layer's path, step, sample,
 * element): lk_dropout. Inference: the identity. */
LK_API lk_layer *lk_layer_dropout(double rate);

/* --- layers of one's own ----------------------------------------------------------------------------------------- */

/* A block made of other layers is a function that returns an lk_layer. For arithmetic of one's own there is this
 * table; every layer above is one. */
typedef struct lk_layer_builder lk_layer_builder; /* building: what a layer asks for */
typedef struct lk_layer_call lk_layer_call;       /* running: what it gets */
typedef struct lk_node lk_node;                   /* what it computes, for who writes networks down: see below */

typedef struct lk_layer_table {
    const char *kind; /* "conv2d" */
    /* Asks for variables and builds every child once; *out is the shape for `in` (dim[0], the batch, is 1). Errors:
     * LK_ERR_SHAPE with what would fit. NULL: the shape stays, nothing is asked for. */
    lk_status (*build)(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out);
    /* Of one shard, or, where no layer has statistics, a piece of one (lk_plan.micro_batch); it is number 0 of the
     * call. NULL: forward_shards is set. */
    lk_tensor *(*forward)(lk_layer_call *call, const void *config, lk_tensor *x);
    /* x[s] → y[s] for the call's shards, for layers with children and those that look at all shards; entries of y
     * belong to the open scope. */
    lk_status (*forward_shards)(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y);
    void (*release)(void *config); /* what config holds, not config itself; NULL: nothing */
    /* What the layer computes in inference, where that is one of enum lk_node_kind: sets the kind and what that needs
     * of *node, which is zeroed. NULL: none of them; a network with the layer cannot be exported. */
    void (*describe)(const void *config, lk_node *node);
} lk_layer_table;

/* A layer of `table`, which is borrowed and has to outlive it. config: `size` bytes, copied; what they point to is the
 * layer's from then on (table->release lets go of it), on failure still the caller's. children: n of them, taken, also
 * on failure; one that is part of a network already is an error, and stays there. The array itself is borrowed.
 * Errors: LK_ERR_ARGUMENT, LK_ERR_MEMORY. */
LK_API lk_layer *lk_layer_new(const lk_layer_table *table, const void *config, size_t size, lk_layer *const *children,
                              int n);

/* While building. fan_in and fan_out are for the initialisers. */
LK_API lk_status lk_layer_parameter(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init,
                                    int64_t fan_in, int64_t fan_out);
LK_API lk_status lk_layer_buffer(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init);
LK_API lk_status lk_layer_build_child(lk_layer_builder *builder, int child, lk_shape in, lk_shape *out);

/* While building: what lk_model_layer tells. flops: of one sample's forward pass, as the operators count them (unsaid:
 * 0). gradient_needs: which tensors backward reads, of enum lk_layer_needs (unsaid: input and output), and how many
 * bytes a sample beside them. */
enum lk_layer_needs {
    LK_NEEDS_INPUT = 1,
    LK_NEEDS_OUTPUT = 2,
    LK_NEEDS_NOTHING = 0,
    LK_MAKES_VIEW = 4 /* of its input */
};
LK_API void lk_layer_flops(lk_layer_builder *builder, double flops);
LK_API void lk_layer_gradient_needs(lk_layer_builder *builder, int needs, int64_t bytes);

/* While building: makes `status` the error, with where the layer is (model and path, or a model file's line) before the
 * text, and gives it back. */
LK_API lk_status lk_layer_fail(const lk_layer_builder *builder, lk_status status, const char *format, ...)
    LK_PRINTF(3, 4);

/* While running. variable: in the order of lk_layer_parameter, then of lk_layer_buffer. Borrowed. Parameters come in
 * the pass's dtype (lk_forward_opts), buffers in f32. */
LK_API int lk_layer_call_shards(const lk_layer_call *call);
LK_API bool lk_layer_call_training(const lk_layer_call *call);
LK_API lk_tensor *lk_layer_call_variable(const lk_layer_call *call, int shard, int variable);
LK_API lk_status lk_layer_call_child(lk_layer_call *call, int child, lk_tensor *const *x, lk_tensor **y);

/* --- models ------------------------------------------------------------------------------------------------------ */

typedef struct lk_model lk_model;

/* What the data look like. */
typedef struct lk_model_input {
    int64_t channels, height, width, classes;
} lk_model_input;

/* `name` is a reference model or, with a '/' or the ending ".lk", a model file (docs/model-files.md).
 *   lenet      the LeNet of Dive into Deep Learning's multi-GPU chapter: weights N(0, 0.01), biases 0; 129,068
 *   keras-cnn  TensorFlow's "Distributed training with Keras": conv 32@3x3, max pooling 2, dense 64, dense; 347,146
 *   resnet18   Dive into Deep Learning's ResNet-18 with a 3x3 first convolution and no max pooling; weights
 *              N(0, 0.01), PyTorch's defaults for biases and batch-norm; 11,175,818
 *   wrn-16-10  the WideResNet-16-10 of NVIDIA's Fashion-MNIST lab, Keras' defaults; 17,121,962
 * with the number of parameters for 28x28 grey images and 10 classes.
 * Errors: LK_ERR_ARGUMENT (unknown name, sizes out of range), LK_ERR_SHAPE (images too small, layers too large),
 * LK_ERR_IO, LK_ERR_FORMAT; those of a model file say file, line, what was found and what was expected. */
LK_API lk_model *lk_model_new(const char *name, lk_model_input input);

/* Whether lk_model_new can take `name`, as far as that can be told without the data: whether there is such a reference
 * model; of a model file, all but whether its layers fit the images and the classes. A pipe is not read. Errors: those
 * of lk_model_new. */
LK_API lk_status lk_model_check(const char *name);

/* A model of one's own: takes `root`, also on failure; its output has to be [N, classes] unless classes is 0. name: for
 * messages, copied; NULL: "model". A layer's output has at most 2^31 - 1 elements a sample, as have all variables
 * together. Errors: LK_ERR_ARGUMENT, LK_ERR_SHAPE, LK_ERR_MEMORY, and what layers of one's own fail with. */
LK_API lk_model *lk_model_build(const char *name, lk_layer *root, lk_model_input input);
LK_API void lk_model_release(lk_model *model);

/* Names that lk_model_new takes, and a line about each; NULL past the end. */
LK_API const char *lk_model_name_at(int index);
LK_API const char *lk_model_about_at(int index);

LK_API const char *lk_model_name(const lk_model *model);
LK_API lk_model_input lk_model_get_input(const lk_model *model);
LK_API int lk_model_parameter_count(const lk_model *model); /* tensors, not elements */
LK_API int lk_model_variable_count(const lk_model *model);  /* parameters and buffers */
LK_API const char *lk_model_variable_name(const lk_model *model, int index);
LK_API lk_shape lk_model_variable_shape(const lk_model *model, int index);
LK_API bool lk_model_has_batch_norm(const lk_model *model);

/* variables[i] = variable i as training starts, a function of (seed, its name); new tensors. On failure every entry is
 * NULL. */
LK_API lk_status lk_model_init(const lk_model *model, lk_device *device, uint64_t seed, lk_tensor **variables);

/* What a layer's output is, in the order of the forward pass; sequential and identity do not appear. */
typedef struct lk_layer_info {
    const char *path, *kind; /* live as long as the model */
    lk_shape output;         /* of one sample: dim[0] is 1 */
    int64_t parameters;      /* elements */
    double flops;            /* forward in training, a sample */
    int64_t bytes;           /* a sample: of its output, where backward reads it, and of what else the layer keeps */
} lk_layer_info;
LK_API int lk_model_layer_count(const lk_model *model);
LK_API lk_layer_info lk_model_layer(const lk_model *model, int index);

/* --- a model as a graph ------------------------------------------------------------------------------------------ */

/* What a node of the graph computes in inference; x: its input. Layers' variables, in their order, are the node's. */
typedef enum lk_node_kind {
    LK_NODE_INPUT,      /* the images */
    LK_NODE_IDENTITY,   /* x: only while a layer describes itself, no node of a graph */
    LK_NODE_CONV2D,     /* kernel, stride, padding; variables: weight [O, C, K, K], bias [O] or none */
    LK_NODE_DENSE,      /* variables: weight [K, units], bias [units] or none */
    LK_NODE_BATCH_NORM, /* epsilon; variables: weight, bias, running mean, running variance, of axis 1's size each */
    LK_NODE_ACTIVATION, /* activation; alpha, of those that have one */
    LK_NODE_MAX_POOL,   /* kernel, stride, padding: not looked at */
    LK_NODE_AVG_POOL,   /* kernel, stride, padding: neither summed nor counted */
    LK_NODE_GLOBAL_MAX_POOL, /* [N, C, H, W] -> [N, C] */
    LK_NODE_GLOBAL_AVG_POOL,
    LK_NODE_RESHAPE, /* to the output's shape, in row-major order */
    LK_NODE_ADD,     /* x + the second input, of equal shapes */
    LK_NODE_KIND_COUNT
} lk_node_kind;

enum { LK_NODE_INPUTS = 2, LK_NODE_VARIABLES = 4 };

struct lk_node {
    lk_node_kind kind;
    int64_t kernel, stride, padding; /* alike along H and W */
    double epsilon, alpha;
    lk_activation activation;
    /* Set by lk_model_graph. */
    const char *name;                /* the layer's path; of the images: "images" */
    int input[LK_NODE_INPUTS];       /* nodes before this one; -1: none */
    int variable[LK_NODE_VARIABLES]; /* of the model; -1: none */
    lk_shape output;                 /* of one sample: dim[0] is 1 */
};

/* The nodes in an order in which each comes behind its inputs: the images first, the logits last. */
typedef struct lk_graph {
    lk_node *nodes;
    int n;
} lk_graph;

/* Valid as long as the model; lk_graph_free lets go of it. Errors: LK_ERR_UNSUPPORTED, with the path of a layer that
 * does not describe itself; LK_ERR_MEMORY. On failure *graph is empty. */
LK_API lk_status lk_model_graph(const lk_model *model, lk_graph *graph);
LK_API void lk_graph_free(lk_graph *graph);

/* --- the forward pass -------------------------------------------------------------------------------------------- */

typedef struct lk_forward_opts {
    bool training;
    /* LK_F32; or LK_BF16: images and, once a pass and shard, the parameters that layers ask for are cast to bf16, so
     * layers compute in it and their outputs are kept in it. Batch-norm's parameters, all buffers and statistics, and
     * the logits stay f32 or wider, and so do the parameters' gradients on a tape. */
    lk_dtype dtype;
    uint64_t seed; /* of dropout */
    int64_t step;  /* of dropout: the global step, from 0, below 2^32 */
    /* Which samples these are: i64 [N] on the shard's device; [shard]. Needed in training where there is dropout. */
    lk_tensor *const *indices;
    /* Result, in training, NULL: not wanted. [shard * lk_model_statistics_count + i] = what batch-norm layer i found
     * (lk_channel_sums of its input); new tensors. They are summed over shards for lk_model_update_statistics. */
    lk_tensor **statistics;
    /* Global batch-norm: gives sums[s] = the sum of parts[0 … n) for every shard s, on parts[s]'s device,
     * differentiable on the open tape (lk_allreduce_recorded); all shards of the batch have to run in one call. NULL:
     * batch-norm looks at each shard by itself. */
    lk_status (*sync)(void *user, lk_tensor *const *parts, lk_tensor **sums, int n);
    void *sync_user;
    int64_t global_batch; /* of sync: samples over all shards */
    /* Called after every layer of lk_model_layer with the layer's path and its output for a shard. NULL: none. */
    void (*visit)(void *user, const char *path, int shard, lk_tensor *y);
    void *visit_user;
} lk_forward_opts;

/* x: [N, C, H, W] f32 → logits [N, classes]. Recorded on the open tape. opts NULL: inference. */
LK_API lk_tensor *lk_model_forward(const lk_model *model, lk_tensor *const *variables, lk_tensor *x,
                                   const lk_forward_opts *opts);

/* The same for n shards, each on its device with its own set of variables[s]; layer by layer over all of them. */
LK_API lk_status lk_model_forward_shards(const lk_model *model, int n, lk_tensor *const *const *variables,
                                         lk_tensor *const *x, const lk_forward_opts *opts, lk_tensor **logits);

/* Batch-norm layers. */
LK_API int lk_model_statistics_count(const lk_model *model);

/* running = (1 - momentum) running + momentum (statistic of the mixture), mean and unbiased variance, from sums[i] of
 * lk_forward_opts.statistics added up over shards that hold `samples` samples together. `momentum`: 0: each layer's
 * own. `skip`: f32 scalar on the variables' device; where it is not 0 nothing changes; NULL: never. In place,
 * asynchronous. Batches i = 0 … n - 1 with momentum 1 / (i + 1) and the same parameters give means over the batches. */
LK_API lk_status lk_model_update_statistics(const lk_model *model, lk_tensor *const *variables, lk_tensor *const *sums,
                                            int64_t samples, double momentum, lk_tensor *skip);

/* --- losses ------------------------------------------------------------------------------------------------------ */

/* sum(per_example) / global_batch, as tf.nn.compute_average_loss: the contribution of these examples to the mean over
 * the global batch, however many of it are here. The one place where a loss is divided. per_example: [N] float. */
LK_API lk_tensor *lk_average_loss_at(lk_place at, lk_tensor *per_example, int64_t global_batch);
#define lk_average_loss(...) lk_average_loss_at(LK_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
