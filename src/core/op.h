/* What an operator is, what a call of it is, and what a kernel gets. The operators themselves are in ops/. */
#ifndef LK_CORE_OP_H
#define LK_CORE_OP_H

#include "core/storage.h"
#include "lockstep/device.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK_MAX_INPUTS 16
#define LK_MAX_OUTPUTS 4
#define LK_MAX_ATTRS 128

/* Pushing counts references up, and running a call counts them down on another core: the count lies behind the two
 * lines of the cache that both read. */
struct lk_tensor {
    lk_dtype dtype;
    lk_shape shape;
    int64_t strides[LK_MAX_DIMS]; /* in elements; meaningless while storage->layout is set */
    int64_t offset;               /* of the first element, in elements */
    lk_storage *storage;
    lk_refcount references;
};

typedef struct lk_op lk_op;
typedef struct lk_kernel lk_kernel;

/* One call of an operator, as it is pushed, recorded on a tape, and handed to a kernel. */
typedef struct lk_call {
    const lk_op *op;
    lk_place place;
    lk_device *device; /* where it runs. Set by whoever calls, inputs may live on other devices; else the inputs' own */
    lk_dtype dtype;    /* what selects the kernel: the first input's; of creation, the output's */
    const lk_kernel *kernel;
    lk_algorithms algorithms; /* the device's, when it was pushed; likewise `tuning` */
    const lk_tuning *tuning;
    bool tf32;            /* likewise: f32 products may be of operands with 10 bits of mantissa */
    const void *choice;   /* the backend's: which of its alternatives runs this, once it has chosen */
    struct lk_kept *kept; /* of a call of a program: see core/kept.h; NULL: nothing is kept */
    bool free_layout;     /* the outputs are new and nobody holds a view of them: the kernel may choose their layout */
    bool plain_next;      /* before anything reads the first output it is made plain: better written so, where that is
                             no more work; with the same bits */
    int branch;           /* of a call of a program: see lk_program_branch … */
    int pass;             /* … and how often that was called before */
    int n_in, n_out;
    int attrs_unused; /* bytes at the end of `attrs` that say nothing */
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

/* What a gradient rule gets and gives. */
typedef struct lk_gradient {
    const lk_call *call;             /* the forward call */
    lk_tensor *dout[LK_MAX_OUTPUTS]; /* of each output; NULL: it did not contribute */
    bool need[LK_MAX_INPUTS];        /* whether din[i] is wanted */
    bool f32[LK_MAX_INPUTS];         /* din[i] of a bf16 input is added up in f32; a rule may give it in either */
    lk_tensor *din[LK_MAX_INPUTS];   /* result: new tensors, adopted by the open scope; NULL where not wanted or none */
} lk_gradient;

enum {
    LK_OP_VIEW = 1,        /* shares its input's storage; has no kernel */
    LK_OP_FREE_LAYOUT = 2, /* a backend may give the outputs a layout of its own */
    LK_OP_PICKS = 4,       /* reads of its first input as many elements as it writes, not all */
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
    /* Keys the call's random numbers by another training step: for replays. NULL: it has none. */
    void (*set_step)(lk_call *call, uint64_t step);
};

/* Runs on the device's thread with the outputs' storage allocated (LK_KERNEL_LAYOUTS: not allocated) and inputs
 * written. */
typedef lk_status (*lk_kernel_fn)(lk_call *call);

#define LK_DTYPE_BIT(dtype) (1u << (dtype))
#define LK_FLOATS (LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_BF16) | LK_DTYPE_BIT(LK_F64))
#define LK_INTS (LK_DTYPE_BIT(LK_I32) | LK_DTYPE_BIT(LK_I64) | LK_DTYPE_BIT(LK_U8))
#define LK_ALL_DTYPES (LK_FLOATS | LK_INTS)

enum {
    /* The kernel reads and writes storage with a backend-private layout, and allocates its outputs itself with
     * lk__output_plain or lk__storage_allocate. Without this flag inputs and outputs are plain and allocated. */
    LK_KERNEL_LAYOUTS = 1,
    /* Correct, and slower than the operators that this one stands for: nobody should choose it for speed. */
    LK_KERNEL_ORACLE = 2,
    /* in[1] is weights that the kernel lays out anew each time it runs, where a cast to their own dtype has not laid
     * them out so. Made apart, what several calls need can be made once. */
    LK_KERNEL_LAYS_OUT_WEIGHTS = 4,
};

/* Flags too: out[o] may be written where in[i] lies, if both are whole storages of lk_call.dtype and of one shape, and
 * no other operand shares in[i]'s. Then the kernel, whatever layouts it finds, reads an element of in[i] for the last
 * time before it writes that element of out[o], and no pointer to either is `restrict`. Where a row has several of
 * these, they hold together, for different outputs on different inputs. */
#define LK_KERNEL_IN_PLACE(o, i) (1u << (8 + LK_KERNEL_IN_PLACE_INPUTS * (o) + (i)))
#define LK_KERNEL_IN_PLACE_INPUTS 6
#define LK_KERNEL_IN_PLACE_ANY (~0u << 8)

struct lk_kernel {
    lk_kernel_fn run;
    unsigned dtypes; /* of lk_call.dtype: LK_DTYPE_BIT(LK_F32) | … */
    unsigned flags;  /* LK_KERNEL_… */
    /* Whether it takes this call, of which device, dtype, inputs, attributes and given outputs are set: a function of
     * shapes, strides of outputs, attributes and the processor. What it declines goes to the next table's kernel. NULL:
     * it takes every call. */
    bool (*takes)(const lk_call *call);
};

/* Where every operator call starts. Called by the functions of ops/ with op, place, n_in, n_out, in[] and attrs set;
 * out[] NULL for new tensors, or existing ones to write into. Sets device and dtype where they are not set (creation
 * sets them), infers, makes outputs, records on the open tape, pushes. On failure out[] that were NULL are NULL again.
 */
lk_status lk__call(lk_call *call);

/* lk__call for the usual operator: one new output. `attrs` may be NULL. NULL among the first `n_required` inputs gives
 * NULL. */
lk_tensor *lk__call_simple(lk_place at, const lk_op *op, lk_tensor *const *in, int n_in, int n_required,
                           const void *attrs, size_t attrs_size);

/* A view of x's storage, recorded on the open tape as a call of `op` (flag LK_OP_VIEW). `attrs` is what op's gradient
 * needs. The storage is made plain first, so strides mean something. */
lk_tensor *lk__view(lk_place at, const lk_op *op, lk_tensor *x, lk_shape shape, const int64_t *strides, int64_t offset,
                    const void *attrs, size_t attrs_size);

/* Something that takes n tensors to as many and is no operator, a reduction over shards for instance. */
typedef struct lk_function {
    const char *name;
    lk_place place;
    int n;
    lk_tensor *const *in, *const *out; /* out: new tensors, each an object of its own */
    /* din[0 … n) from dout[0 … n), none of them NULL: new tensors, adopted by the open scope. */
    lk_status (*gradient)(void *user, lk_place at, lk_tensor *const *dout, lk_tensor **din, int n);
    void *user; /* as long as the tape */
} lk_function;

/* A tape. The open one of a thread is told of every differentiable call made there, after it was pushed, and of every
 * function. */
typedef struct lk_recorder {
    lk_status (*record)(void *self, const lk_call *call);
    lk_status (*record_function)(void *self, const lk_function *function);
    void *self;
} lk_recorder;

/* Sets the calling thread's recorder and gives back the one before. {NULL} is none. */
lk_recorder lk__recorder_set(lk_recorder recorder);

/* The operator's attributes; `attrs` may be NULL where there are none. */
void lk__call_set_attrs(lk_call *call, const void *attrs, size_t size);

/* What is used of `from`. */
void lk__call_copy(lk_call *to, const lk_call *from);

/* References to all of a call's tensors. */
void lk__call_retain(const lk_call *call);
void lk__call_release(const lk_call *call);

/* "conv2d(f32[32,1,28,28], f32[20,1,3,3])": for messages. */
void lk__call_describe(const lk_call *call, char *text, size_t size);

#endif
