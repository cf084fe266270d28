/* Operators, calls of them, and kernels. The operators themselves are in ops/. */
#pragma once

#include "core/storage.h"
#include "lockstep/device.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK_MAX_INPUTS 16
#define LK_MAX_OUTPUTS 6
#define LK_MAX_ATTRS 128

/* Pushing counts references up, and running a call counts them down on another core. The count therefore lies behind
 * the two cache lines that both read. */
struct lk_tensor {
    lk_dtype dtype;
    lk_shape shape;
    int64_t strides[LK_MAX_DIMS]; /* in elements; meaningless while storage->layout is set */
    int64_t offset;               /* of the first element, in elements */
    lk_storage *storage;
    lk_tensor *gradient; /* attached: see lockstep/autograd.h; NULL: none */
    lk_refcount references;
};

typedef struct lk_op lk_op;
typedef struct lk_kernel lk_kernel;

/* One call of an operator, as it is pushed, recorded on a tape, and handed to a kernel. */
typedef struct lk_call {
    const lk_op *op;
    lk_call_site place;
    lk_device *device; /* where it runs; set by callers whose inputs may live on other devices, else the inputs' own */
    lk_dtype dtype;    /* selects the kernel: the first input's; for creation, the output's */
    const lk_kernel *kernel;
    lk_algorithms algorithms; /* the device's at the time of the push; so is `tuning` */
    const lk_tuning *tuning;
    bool tf32;            /* the device's too: f32 products may use operands with 10 bits of mantissa */
    const void *choice;   /* the backend's: which of its alternatives runs this, once chosen */
    struct lk_kept *kept; /* of a call in a program: see core/kept.h; NULL: nothing is kept */
    bool free_layout;     /* the outputs are new and have no views: the kernel may choose their layout */
    bool plain_next; /* the first output is made plain before anything reads it: the kernel should write it plain if
                        that is no more work and gives the same bits */
    int branch;      /* of a call in a program: see lk_program_branch … */
    int pass;        /* … and how often that was called before */
    int piece;       /* likewise for lk__program_next_piece */
    int parts;       /* the calls that this one replaces: see program/merge.h; 0: it is an ordinary call */
    int group; /* neighbors of one number need nothing of each other: see program/neighbors.h; 0: it has no group */
    int n_in, n_out;
    int attrs_unused; /* unused bytes at the end of `attrs` */
    lk_tensor *out[LK_MAX_OUTPUTS];
    lk_tensor *in[LK_MAX_INPUTS]; /* an optional input may be NULL; a pushed call has only the first n_in */
    union {
        max_align_t align;
        unsigned char bytes[LK_MAX_ATTRS];
    } attrs; /* the operator's own struct: see LK_ATTRS */
} lk_call;

/* const relu_attrs *attrs = LK_ATTRS(call, relu_attrs); */
#define LK_ATTRS(call, type) ((const type *)(const void *)(call)->attrs.bytes)

typedef struct lk_meta {
    lk_dtype dtype;
    lk_shape shape;
} lk_meta;

/* The arguments and results of a gradient rule. */
typedef struct lk_gradient {
    const lk_call *call;             /* the forward call */
    lk_tensor *dout[LK_MAX_OUTPUTS]; /* of each output; NULL: the output did not contribute */
    bool need[LK_MAX_INPUTS];        /* true: din[i] is wanted */
    bool f32[LK_MAX_INPUTS]; /* din[i] of a bf16 input is accumulated in f32; a rule may return it in either dtype */
    lk_tensor *din[LK_MAX_INPUTS]; /* result: new tensors, adopted by the open scope; NULL where not wanted or zero */
} lk_gradient;

enum {
    LK_OP_VIEW = 1,        /* shares its input's storage; has no kernel */
    LK_OP_FREE_LAYOUT = 2, /* a backend may give the outputs a private layout */
    LK_OP_PICKS = 4,       /* reads only as many elements of its first input as it writes */
};

struct lk_op {
    const char *name;
    int id;
    unsigned flags;
    /* Checks the call's inputs and attributes, sets out[0 … call->n_out). Runs in the caller's thread. */
    lk_status (*infer)(const lk_call *call, lk_meta *out);
    /* Calls other operators to make din[] from dout[]. NULL: not differentiable. */
    lk_status (*gradient)(lk_gradient *gradient);
    /* Floating-point operations of one call; NULL: none worth counting. */
    double (*flops)(const lk_call *call);
    /* Keys the call's random numbers by another training step, for replays. NULL: it has none. */
    void (*set_step)(lk_call *call, uint64_t step);
};

/* Runs on the device's thread, with the inputs written and the outputs' storage allocated (not with
 * LK_KERNEL_LAYOUTS). */
typedef lk_status (*lk_kernel_fn)(lk_call *call);

#define LK_DTYPE_BIT(dtype) (1u << (dtype))
#define LK_FLOATS (LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_BF16) | LK_DTYPE_BIT(LK_F64))
#define LK_INTS (LK_DTYPE_BIT(LK_I32) | LK_DTYPE_BIT(LK_I64) | LK_DTYPE_BIT(LK_U8))
#define LK_ALL_DTYPES (LK_FLOATS | LK_INTS)

static inline bool lk__dtype_is_float(lk_dtype dtype)
{
    return (LK_DTYPE_BIT(dtype) & LK_FLOATS) != 0;
}

enum {
    /* The kernel reads and writes storage with a backend-private layout, and allocates its outputs itself with
     * lk__output_plain or lk__storage_allocate. Without this flag inputs and outputs are plain and allocated. */
    LK_KERNEL_LAYOUTS = 1,
    /* Correct, but slower than the operators that it combines: nothing should choose it for speed. */
    LK_KERNEL_ORACLE = 2,
    /* The kernel reorders its weights, in[1], in each call, unless a cast to their own dtype has reordered them before.
     * Such a cast lets several calls share one reordering. */
    LK_KERNEL_LAYS_OUT_WEIGHTS = 4,
};

/* More flags: out[o] may be written into in[i]'s memory if both are whole storages of lk_call.dtype and of one shape,
 * and no other operand shares that memory. The kernel then reads each element of in[i] for the last time before it
 * writes that element of out[o], whatever the layouts, and has no `restrict` pointer to either. If a row has several of
 * these flags, one call may use them all, as long as no two write the same output or overwrite the same input. There
 * are bits for the first four outputs. */
#define LK_KERNEL_IN_PLACE(o, i) (1u << (8 + LK_KERNEL_IN_PLACE_INPUTS * (o) + (i)))
#define LK_KERNEL_IN_PLACE_INPUTS 6
#define LK_KERNEL_IN_PLACE_OUTPUTS 4

struct lk_kernel {
    lk_kernel_fn run;
    unsigned dtypes; /* values of lk_call.dtype: LK_DTYPE_BIT(LK_F32) | … */
    unsigned flags;  /* LK_KERNEL_… */
    /* Returns whether the kernel takes this call, whose device, dtype, inputs, attributes and given outputs are set: a
     * function of shapes, strides of outputs, attributes and the processor. A call that it declines goes to the next
     * table's kernel. NULL: it takes every call. */
    bool (*takes)(const lk_call *call);
};

/* Every operator call starts here. The functions of ops/ call it with op, place, n_in, n_out, in[] and attrs set; out[]
 * is NULL for new tensors, or holds existing ones to write into. It sets device and dtype if they are not set (creation
 * sets them), infers, makes the outputs, pushes, and records on the open tape. On failure, out[] that were NULL are
 * NULL again. */
lk_status lk__call(lk_call *call);

/* lk__call for the usual operator with one new output. `attrs` may be NULL. Returns NULL if one of the first
 * `n_required` inputs is NULL. */
lk_tensor *lk__call_simple(lk_call_site at, const lk_op *op, lk_tensor *const *in, int n_in, int n_required,
                           const void *attrs, size_t attrs_size);

/* A view of x's storage, recorded on the open tape as a call of `op` (flag LK_OP_VIEW). `attrs` is what op's gradient
 * needs. The storage is made plain first, so that strides mean something. */
lk_tensor *lk__view(lk_call_site at, const lk_op *op, lk_tensor *x, lk_shape shape, const int64_t *strides,
                    int64_t offset, const void *attrs, size_t attrs_size);

/* A computation that takes n tensors to n tensors and is no operator, such as a reduction over shards. */
typedef struct lk_function {
    const char *name;
    lk_call_site place;
    int n;
    lk_tensor *const *in, *const *out; /* out: new tensors, each a distinct object */
    /* Makes din[0 … n) from dout[0 … n), none of them NULL: new tensors, adopted by the open scope. */
    lk_status (*gradient)(void *user, lk_call_site at, lk_tensor *const *dout, lk_tensor **din, int n);
    void *user; /* must live as long as the tape */
} lk_function;

/* A tape, as this layer sees it. A thread's open recorder gets every differentiable call made on the thread, after it
 * was pushed, and every function. */
typedef struct lk_recorder {
    lk_status (*record)(void *self, const lk_call *call);
    lk_status (*record_function)(void *self, const lk_function *function);
    void *self;
} lk_recorder;

/* Sets the calling thread's recorder and returns the previous one. {NULL} is none. */
lk_recorder lk__recorder_set(lk_recorder recorder);

/* Sets the operator's attributes; `attrs` may be NULL if there are none. */
void lk__call_set_attrs(lk_call *call, const void *attrs, size_t size);

/* Copies only the used parts of `from`. */
void lk__call_copy(lk_call *to, const lk_call *from);

/* Sets in[n_in …] and out[n_out …] to NULL, so that a call that gets more operands finds none left over there. */
void lk__call_clear_unused(lk_call *call);

/* References to all of a call's tensors. */
void lk__call_retain(const lk_call *call);
void lk__call_release(const lk_call *call);

/* "conv2d(f32[32,1,28,28], f32[20,1,3,3])": for messages. */
void lk__call_describe(const lk_call *call, char *text, size_t size);
