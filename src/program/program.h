/* A recorded program. record.c captures the calls and then compiles them, in this order: weights.c adds calls that lay
 * out weights, share.c makes what branches have in common once, fuse.c fuses and leaves out copies (rewrite.h, and
 * fuse_*.c for each pattern), merge.c replaces equal calls of several passes by one, order.c moves up what finishes
 * outputs, recompute.c and remake.c repeat calls instead of keeping their results, branch_order.c orders branches that
 * will be cut, neighbors.c moves together what the device can start together, values.c finds who reads and writes each
 * storage (numbers.c), layouts.c tells calls what their successors want, branches.c checks branches, keep.c lets
 * kernels keep what they derive from variables, segments.c cuts, and memory_plan.c plans memory (in_place.c says which
 * result may overwrite an operand). run.c replays a program, and launch.c starts the calls of a replay. */
#pragma once

#include "base/refcount.h"
#include "core/engine.h"
#include "program/numbers.h"
#include "lockstep/program.h"

#include <stdatomic.h>

typedef enum lk_value_kind {
    LK_VALUE_INPUT,   /* given to a replay */
    LK_VALUE_OUTPUT,  /* returned by a replay */
    LK_VALUE_OUTSIDE, /* existed before: a variable */
    LK_VALUE_INSIDE,  /* made and used only inside the program */
} lk_value_kind;

enum { LK_SEVERAL_BRANCHES = -1 };

/* A storage that calls use. `first` is the first call that writes it and `last` the last that uses it; after `last` an
 * output is ready. */
typedef struct lk_value {
    lk_storage *storage;
    lk_value_kind kind;
    int index; /* among the inputs or outputs */
    int first, last;
    int branch; /* of the call that makes it; LK_SEVERAL_BRANCHES: several use it */
    bool written;
    uint64_t version;     /* outside and never written: how often it had been written when a replay last read it */
    const void *address;  /* outside: the address that graphs contain */
    size_t bytes, offset; /* of the value's slot in the memory plan */
    int slot;             /* inside: index of that slot; values that follow each other there have the same */
} lk_value;

/* Calls [begin, end). They finish the outputs lk_program.ready[first_ready … first_ready + n_ready). */
typedef struct lk_segment {
    int begin, end;
    int first_ready, n_ready;
    bool is_warm; /* true: its calls have run in their branches */
    void *graph;  /* the backend's (lk_graphs); NULL: none */
    void *module; /* the backend's (lk_modules); NULL: none */
} lk_segment;

struct lk_program {
    lk_refcount references;
    lk_device *device;
    lk_tensor **in, **out; /* stand for those of a replay; out[i] may be NULL */
    int n_in, n_out;
    int cuts; /* the last inputs and outputs between which segments end: see lk_program_opts */

    lk_call *calls; /* with references to their tensors */
    int n_calls;
    int64_t calls_capacity;
    double flops;

    lk_value *values;
    int n_values;
    lk_numbers numbers;       /* of the values' storages: their positions in values[] */
    int n_shared;             /* how many values are not inside */
    struct lk_kept *kept;     /* [n_calls]: see keep.c; NULL: nothing is kept */
    size_t may_keep;          /* bytes that may still be kept */
    int *dying, *first_dying; /* values whose last use is call i: dying[first_dying[i] … first_dying[i + 1]) */

    lk_segment *segments; /* at least one */
    int n_segments;
    int *ready;               /* [n_out]: outputs in the order in which they are finished */
    atomic_bool being_pushed; /* a replay in several segments has some left to push */

    bool graphs; /* segments may become graphs, if the device can make them */

    bool planned; /* memory is planned: at once on an offload device, else after the first replay */

    /* On the device's thread, after the first replay. */
    struct lk_hold *hold; /* temporary memory of calls that run in branches or as a graph */
    const char *base;     /* address of the plan's memory that graphs contain */
    size_t plan_bytes, peak_bytes, sum_bytes;
};
