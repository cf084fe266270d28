/* Prepared calls: everything about an operator on given shapes that need not be done twice. The first call on new
 * shapes makes the primitive, the memory objects and the reorders. Later calls set pointers and execute, and allocate
 * nothing. */
#pragma once

#include "core/op.h"
#include "cpu/onednn/cpu_layout.h"
#include "cpu/onednn/dnnl_compat.h"
#include "lockstep/ops.h"

struct lk_cpu;

enum {
    LK_MAX_OPERANDS = 5,
    LK_OWN_INPUTS = 6,
    LK_OWN_OUTPUTS = 4,
    LK_KEY_ATTRIBUTES = 24,
    /* The operator and whether outputs may have layouts, then inputs, outputs and attributes. */
    LK_MAX_KEY = 2 + LK_OWN_INPUTS * (3 + 2 * LK_MAX_DIMS) + LK_OWN_OUTPUTS * (2 + LK_MAX_DIMS) + LK_KEY_ATTRIBUTES,
    LK_PROBLEM_TEXT = 320,
    LK_IMPLEMENTATION_TEXT = 64
};

/* The key of a prepared call: two calls with equal keys share one. */
typedef struct lk_key {
    int n;
    int64_t words[LK_MAX_KEY];
} lk_key;

void lk__key_start(lk_key *key, int op);
void lk__key_add(lk_key *key, const int64_t *words, int n);

/* Adds dtype, sizes, and the layout or the strides. x may be NULL. */
void lk__key_tensor(lk_key *key, const lk_tensor *x);

/* Starts a key with operator, inputs, outputs, and whether outputs may have layouts. The caller adds the attributes. */
void lk__key_call(lk_key *key, const lk_call *call);

/* Adds a convolution's strides, padding and dilation. */
void lk__key_conv(lk_key *key, const lk_conv2d_opts *opts);

typedef enum lk_direction { LK_IN, LK_OUT } lk_direction;

/* One argument of a primitive. If the tensor does not lie in memory as the primitive wants it, a reorder converts
 * between the tensor and a temporary in the scratch memory. */
typedef struct lk_operand {
    int argument;
    lk_direction direction;
    dnnl_memory_t memory;  /* the layout that the primitive wants */
    dnnl_memory_t outside; /* the layout of the tensor; NULL: the same */
    dnnl_primitive_t reorder;
    size_t offset, bytes; /* of the temporary in the scratch memory */
    bool gather;          /* the tensor is first copied in row-major order to gather_offset */
    size_t gather_offset;
    const lk_layout *layout; /* layout that the output's storage gets; NULL: row-major */
} lk_operand;

typedef struct lk_prepared {
    struct lk_prepared *next;
    uint64_t hash;
    lk_key key;
    const char *op; /* the operator's name */
    char problem[LK_PROBLEM_TEXT];
    char implementation[LK_IMPLEMENTATION_TEXT];

    dnnl_primitive_t primitive;
    bool has_run;
    int n_operands;
    lk_operand operands[LK_MAX_OPERANDS];
    dnnl_memory_t scratchpad; /* NULL: none needed */
    size_t scratchpad_offset;
    size_t scratch_bytes; /* temporaries and scratchpad */

    /* If the kernel is not oneDNN's, `primitive` is NULL and these are the arguments' layouts; NULL: row-major. */
    const lk_layout *layouts_in[LK_OWN_INPUTS], *layouts_out[LK_OWN_OUTPUTS];
    int weights;         /* the input, if any, that the kernel packs in its own order */
    size_t packed_bytes; /* bytes of the packed weights; 0: there are none */
} lk_prepared;

/* Fills a new lk_prepared for `call`. On failure the caller frees what was made so far. */
typedef lk_status (*lk_prepare_fn)(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared);

/* Finds the prepared call with this key, or has `prepare` fill a new one. */
lk_status lk__prepared_get(struct lk_cpu *cpu, const lk_key *key, const lk_call *call, lk_prepare_fn prepare,
                           lk_prepared **prepared);

/* Frees a list, linked by next. */
void lk__prepared_free(lk_prepared *prepared);

/* For prepare functions: makes the primitive and reserves its scratchpad. */
lk_status lk__prepare_primitive(struct lk_cpu *cpu, lk_prepared *prepared, dnnl_primitive_desc_t pd);

/* Adds the next operand: tensor x is argument `argument`, which the primitive wants as `wanted`. If free_layout, an
 * output takes over the primitive's layout. */
lk_status lk__prepare_operand(struct lk_cpu *cpu, lk_prepared *prepared, int argument, lk_direction direction,
                              const lk_tensor *x, const lk_md *wanted, bool free_layout);

/* The same, with the descriptor that `pd` returns for `query`. */
lk_status lk__prepare_queried(struct lk_cpu *cpu, lk_prepared *prepared, int argument, lk_direction direction,
                              const lk_tensor *x, dnnl_primitive_desc_t pd, dnnl_query_t query, bool free_layout);

/* Runs the primitive on tensors in the order in which operands were added. Allocates the outputs. */
lk_status lk__prepared_run(struct lk_cpu *cpu, lk_prepared *prepared, lk_tensor *const *tensors);

/* The same for a `call` whose weights are both its input 1 and operand 1. Their reordered copy may be kept for later
 * calls. */
lk_status lk__prepared_run_weights(const lk_call *call, lk_prepared *prepared, lk_tensor *const *tensors);

/* Executes a primitive once and waits for it. `what` names it in messages. */
lk_status lk__dnnl_execute(struct lk_cpu *cpu, dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *arguments,
                           const char *what);

/* Fills the outputs with zeros, row-major: the result of sums over no elements. */
lk_status lk__cpu_zero_outputs(lk_call *call);

/* Returns whether an input or the first output has no elements. */
bool lk__cpu_is_empty(const lk_call *call);
