/* A program's parts. record.c makes the list of calls, weights.c adds those that lay weights out, share.c makes once
 * what branches have in common, fuse.c puts fused operators in the place of sequences (rewrite.h and a file for each
 * pattern), order.c moves up what finishes outputs, recompute.c makes calls run again (remake.c) instead of keeping
 * what they made, branch_order.c orders branches that are to be cut, layouts.c tells calls what their neighbours want,
 * values.c finds out who writes and who reads what (numbers.c finds them), keep.c lets kernels keep what they make of
 * variables, branches.c knows what runs beside what, segments.c cuts, memory_plan.c gives tensors their places,
 * in_place.c says where a result may take an operand's, run.c replays, and launch.c starts the calls of a replay. */
#ifndef LK_PROGRAM_PROGRAM_H
#define LK_PROGRAM_PROGRAM_H

#include "base/refcount.h"
#include "core/engine.h"
#include "lockstep/program.h"
#include "program/numbers.h"

#include <stdatomic.h>

typedef enum lk_value_kind {
    LK_VALUE_INPUT,   /* given to a replay */
    LK_VALUE_OUTPUT,  /* given by a replay */
    LK_VALUE_OUTSIDE, /* was there before: a variable */
    LK_VALUE_INSIDE,  /* made and needed within the program alone */
} lk_value_kind;

enum { LK_SEVERAL_BRANCHES = -1 };

/* A storage that calls use. `first` and `last`: calls that write it first, and use it last; an output is ready then. */
typedef struct lk_value {
    lk_storage *storage;
    lk_value_kind kind;
    int index; /* of an input or output */
    int first, last;
    int branch; /* of the call that makes it; LK_SEVERAL_BRANCHES: others use it too */
    bool written;
    uint64_t version;     /* outside and not written: how often it was when a replay last read it */
    const void *address;  /* outside: where graphs find it */
    size_t bytes, offset; /* inside: of its place */
    int place;            /* inside: which one; values that lie there after each other have the same */
} lk_value;

/* Calls [begin, end), which finish the outputs lk_program.ready[first_ready … first_ready + n_ready). */
typedef struct lk_segment {
    int begin, end;
    int first_ready, n_ready;
    bool is_warm; /* its calls have run in their branches */
    void *graph;  /* of the backend's lk_graphs; NULL: there is none */
} lk_segment;

struct lk_program {
    lk_refcount references;
    lk_device *device;
    lk_tensor **in, **out; /* stand for those of a replay; out[i] may be NULL */
    int n_in, n_out;

    lk_call *calls; /* with references to their tensors */
    int n_calls, calls_capacity;
    double flops;

    lk_value *values;
    int n_values;
    lk_numbers numbers;       /* of the values' storages: their places in values[] */
    int n_shared;             /* of them, those that are not inside */
    struct lk_kept *kept;     /* [n_calls]: see keep.c; NULL: nothing is kept */
    size_t may_keep;          /* bytes left to keep */
    int *dying, *first_dying; /* values whose last use is call i: dying[first_dying[i] … first_dying[i + 1]) */

    lk_segment *segments; /* one at least */
    int n_segments;
    int *ready;               /* [n_out]: outputs as they are finished */
    atomic_bool being_pushed; /* a replay in several segments has some left to push */

    bool graphs; /* segments may become graphs, where the device has such a thing */

    bool planned; /* once recorded, where the device works by itself; else after the first replay */

    /* On the device's thread, after the first replay. */
    struct lk_hold *hold; /* what its calls take for themselves where they run in branches or as a graph */
    const char *base;     /* where graphs find the plan's memory */
    size_t plan_bytes, peak_bytes, sum_bytes;
};

/* --- record.c ----------------------------------------------------------------------------------------------------- */

/* Adds a call at the end, with references of its own. */
lk_status lk__program_append(lk_program *program, const lk_call *call);

/* --- weights.c ---------------------------------------------------------------------------------------------------- */

/* Puts a cast before each call in a branch that would lay a variable out for itself: LK_KERNEL_LAYS_OUT_WEIGHTS. */
lk_status lk__program_lay_out_weights(lk_program *program);

/* --- share.c ------------------------------------------------------------------------------------------------------ */

/* Makes once what several calls in branches make of variables alone. */
lk_status lk__program_share(lk_program *program);

/* --- fuse.c ------------------------------------------------------------------------------------------------------- */

/* Of what is fused, and of how fused operators round: another number wherever programs give other bits. */
enum { LK_FUSION_VERSION = 2 };

lk_status lk__program_fuse(lk_program *program);

/* --- order.c ------------------------------------------------------------------------------------------------------ */

/* Moves what makes nothing but outputs up to where all that it needs is there. */
lk_status lk__program_finish_outputs_early(lk_program *program);

/* *finishes: [n_calls], whether a call makes nothing but outputs, or sums that only such sums need; the caller's. */
lk_status lk__program_find_finishing(const lk_program *program, bool **finishes);

/* --- branch_order.c ----------------------------------------------------------------------------------------------- */

/* Orders the calls of branches by what segments of so many bytes are to finish. */
lk_status lk__program_order_branches(lk_program *program, size_t segment_bytes);

/* --- recompute.c -------------------------------------------------------------------------------------------------- */

/* See lk_program_opts. */
lk_status lk__program_recompute(lk_program *program);

/* --- layouts.c ---------------------------------------------------------------------------------------------------- */

/* Sets lk_call.plain_next, which no result depends on. After values are known. */
lk_status lk__program_choose_layouts(lk_program *program);

/* --- values.c ----------------------------------------------------------------------------------------------------- */

/* Gives all storages that calls use a number. */
lk_status lk__program_number(const lk_program *program, lk_numbers *numbers);

/* Of the calls as they are now. */
lk_status lk__program_find_values(lk_program *program);

/* The value that a tensor's storage is; NULL: none, or no tensor. */
lk_value *lk__program_value(const lk_program *program, const lk_tensor *tensor);

/* --- keep.c ------------------------------------------------------------------------------------------------------- */

/* Lets kernels keep at most `bytes`: see lk_program_opts. After values are known. */
lk_status lk__program_keep(lk_program *program, size_t bytes);

/* A variable has changed. */
void lk__program_forget_kept(lk_program *program);

/* That are kept now. */
size_t lk__program_kept_bytes(const lk_program *program);

void lk__program_drop_kept(lk_program *program);

/* --- segments.c --------------------------------------------------------------------------------------------------- */

/* Cuts the program; see lk_program_opts. After values are known. */
lk_status lk__program_cut(lk_program *program, size_t segment_bytes);

/* --- branches.c --------------------------------------------------------------------------------------------------- */

/* Whether calls are in branches. */
bool lk__program_has_branches(const lk_program *program);

/* Takes all calls out of their branches where one needs what another one makes beside it. After values are known. */
lk_status lk__program_check_branches(lk_program *program);

/* Of each call: the first and the last one that may run while it does. */
void lk__program_find_beside(const lk_program *program, int *first, int *last);

/* --- memory_plan.c ------------------------------------------------------------------------------------------------ */

/* Gives the values inside a place, by the bytes that the replay before has used. */
lk_status lk__program_plan_memory(lk_program *program);

/* The same before the first replay, on a device whose layouts take no more than plain tensors: one that works by
 * itself.
 */
lk_status lk__program_plan_by_shapes(lk_program *program);

/* --- in_place.c --------------------------------------------------------------------------------------------------- */

/* Whether the call's kernel may write what it makes in `to` where its operand in `from` lies: a function of the kernel,
 * dtypes, shapes and views. */
bool lk__call_may_replace(const lk_call *call, const lk_storage *from, const lk_storage *to);

/* --- launch.c ----------------------------------------------------------------------------------------------------- */

/* Gives the value its place in the memory at `base`; NULL: none. */
void lk__value_place(lk_value *value, const char *base);

/* Gives back the memory that a value got besides its place, if any. */
void lk__value_give_back(const lk_program *program, lk_value *value);

/* Runs a segment's calls. base: where the plan's memory is, with inputs and outputs in it; NULL: these are the
 * caller's. On the device's thread. */
lk_status lk__program_launch(lk_program *program, lk_segment *segment, uint64_t step, const char *base);

/* From any thread, when no replay is left. */
void lk__program_drop_graphs(lk_program *program);

#endif
