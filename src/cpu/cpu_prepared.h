/* Prepared calls: everything about an operator on given shapes that need not be done twice. The first call on new
 * shapes makes the primitive, the memory objects and the reorders; later ones set pointers and execute. Nothing is
 * allocated then. */
#ifndef LK_CPU_CPU_PREPARED_H
#define LK_CPU_CPU_PREPARED_H

#include "core/op.h"
#include "cpu/cpu_layout.h"
#include "cpu/dnnl_compat.h"

struct lk_cpu;

enum {
    LK_MAX_KEY = 80,
    LK_MAX_OPERANDS = 5,
    LK_OWN_INPUTS = 6,
    LK_OWN_OUTPUTS = 4,
    LK_PROBLEM_TEXT = 320,
    LK_IMPLEMENTATION_TEXT = 64
};

/* What tells one prepared call from another. */
typedef struct lk_key {
    int n;
    int64_t words[LK_MAX_KEY];
} lk_key;

void lk__key_start(lk_key *key, int op);
void lk__key_add(lk_key *key, const int64_t *words, int n);

/* dtype, sizes, and the layout or strides. x may be NULL. */
void lk__key_tensor(lk_key *key, const lk_tensor *x);

/* Operator, inputs, outputs, and whether outputs may have layouts. Attributes are added by the caller. */
void lk__key_call(lk_key *key, const lk_call *call);

typedef enum lk_direction { LK_IN, LK_OUT } lk_direction;

/* One argument of a primitive. Where the tensor does not lie in memory as the primitive wants it, a reorder goes
 * between the tensor and a temporary in the scratch memory. */
typedef struct lk_operand {
    int argument;
    lk_direction direction;
    dnnl_memory_t memory;  /* as the primitive wants it */
    dnnl_memory_t outside; /* as the tensor is; NULL: the same */
    dnnl_primitive_t reorder;
    size_t offset, bytes; /* of the temporary */
    bool gather;          /* the tensor is first copied to gather_offset, row-major */
    size_t gather_offset;
    const lk_layout *layout; /* what an output's storage gets; NULL: plain */
} lk_operand;

typedef struct lk_prepared {
    struct lk_prepared *next;
    uint64_t hash;
    lk_key key;
    const char *op; /* the operator's name */
    char problem[LK_PROBLEM_TEXT];
    char implementation[LK_IMPLEMENTATION_TEXT];

    dnnl_primitive_t primitive;
    int n_operands;
    lk_operand operands[LK_MAX_OPERANDS];
    dnnl_memory_t scratchpad; /* NULL: none needed */
    size_t scratchpad_offset;
    size_t scratch_bytes; /* temporaries and scratchpad */

    /* Where the kernel is not oneDNN's but our own: primitive is NULL, and these are the layouts of its arguments. */
    const lk_layout *layouts_in[LK_OWN_INPUTS], *layouts_out[LK_OWN_OUTPUTS];
    int weights;         /* its input that the kernel brings into an order of its own, if any */
    size_t packed_bytes; /* in that order; 0: there is none */
} lk_prepared;

/* Fills a new lk_prepared for `call`. What was made before a failure is freed by the caller. */
typedef lk_status (*lk_prepare_fn)(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared);

/* The one prepared for `key`, or a new one filled by `prepare`. */
lk_status lk__prepared_get(struct lk_cpu *cpu, const lk_key *key, const lk_call *call, lk_prepare_fn prepare,
                           lk_prepared **prepared);

/* A list, linked by next. */
void lk__prepared_free(lk_prepared *prepared);

/* For prepare functions. Makes the primitive; what is next to it is its scratchpad. */
lk_status lk__prepare_primitive(struct lk_cpu *cpu, lk_prepared *prepared, dnnl_primitive_desc_t pd);

/* Adds the next operand: x is argument `argument`, which the primitive wants as `wanted`. An output of a call that
 * leaves layouts free takes over the primitive's. */
lk_status lk__prepare_operand(struct lk_cpu *cpu, lk_prepared *prepared, int argument, lk_direction direction,
                              const lk_tensor *x, const lk_md *wanted, bool free_layout);

/* The same with what `pd` answers to `query`. */
lk_status lk__prepare_queried(struct lk_cpu *cpu, lk_prepared *prepared, int argument, lk_direction direction,
                              const lk_tensor *x, dnnl_primitive_desc_t pd, dnnl_query_t query, bool free_layout);

/* Runs it on tensors in the order in which operands were added. Allocates outputs. */
lk_status lk__prepared_run(struct lk_cpu *cpu, lk_prepared *prepared, lk_tensor *const *tensors);

/* The same for `call`, whose input 1, and operand 1, are weights that may be kept as the primitive wants them. */
lk_status lk__prepared_run_weights(const lk_call *call, lk_prepared *prepared, lk_tensor *const *tensors);

/* One execution, with its status checked. */
lk_status lk__dnnl_execute(struct lk_cpu *cpu, dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *arguments,
                           const char *what);

/* Fills outputs with zeros, plain: what an operator gives that sums over nothing. */
lk_status lk__cpu_zero_outputs(lk_call *call);

/* Whether an input or the first output has no elements. */
bool lk__cpu_is_empty(const lk_call *call);

#endif
