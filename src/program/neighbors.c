#include "program/neighbors.h"

#include "core/backend.h"
#include "core/execute.h"
#include "program/branches.h"
#include "program/values.h"

enum { KINDS = 5 };

/* The last group of a kind: calls [begin, end). */
typedef struct group {
    int begin, end; /* equal: there is none yet */
    int bucket;     /* of the outputs that it makes; -1: none */
    size_t bytes;   /* of the results */
} group;

typedef struct grouping {
    lk_program *program;
    const lk_program_opts *opts;
    group last[KINDS]; /* by kind */
    int n_groups;
} grouping;

/* --- which calls may change places -------------------------------------------------------------------------------- */

/* Returns whether one of the n tensors may have elements of `made`. `wholly`: storages count as a whole. */
static bool neighbors_meets(lk_tensor *const *tensors, int n, const lk_tensor *made, bool wholly)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && (wholly ? tensors[i]->storage == made->storage : lk__tensors_may_overlap(tensors[i], made)))
            return true;
    return false;
}

/* Returns whether either order of the calls gives the same, and both may run at once. A call that makes a storage plain
 * moves all of it. A call outside branches waits for all of them, and calls of different branches stay in their order.
 */
static bool neighbors_are_apart(const lk_call *a, const lk_call *b)
{
    bool wholly = a->op == &lk__op_plain || b->op == &lk__op_plain;
    if (a->branch != b->branch)
        return false;
    for (int i = 0; i < a->n_out; i++)
        if (a->out[i] && (neighbors_meets(b->in, b->n_in, a->out[i], wholly) ||
                          neighbors_meets(b->out, b->n_out, a->out[i], wholly)))
            return false;
    for (int i = 0; i < b->n_out; i++)
        if (b->out[i] && neighbors_meets(a->in, a->n_in, b->out[i], wholly))
            return false;
    return true;
}

static bool neighbors_is_apart_from_all(const lk_program *program, int i, int begin, int end)
{
    for (int j = begin; j < end; j++)
        if (!neighbors_are_apart(&program->calls[i], &program->calls[j]))
            return false;
    return true;
}

/* Returns whether inputs that a caller gives only later, or outputs that it waits for, keep calls in their order. */
static bool neighbors_is_cut(const lk_program *program)
{
    return program->cuts > 0;
}

/* --- moving ------------------------------------------------------------------------------------------------------- */

static void neighbors_reverse(lk_call *calls, int begin, int end)
{
    for (; begin < --end; begin++) {
        lk_call first = calls[begin];
        calls[begin] = calls[end];
        calls[end] = first;
    }
}

/* Exchanges the calls [begin, middle) and [middle, end). */
static void neighbors_exchange(lk_call *calls, int begin, int middle, int end)
{
    neighbors_reverse(calls, begin, middle);
    neighbors_reverse(calls, middle, end);
    neighbors_reverse(calls, begin, end);
}

/* Groups in [begin, end) are `by` further down now. */
static void neighbors_shift(grouping *g, int begin, int end, int by)
{
    for (int kind = 0; kind < KINDS; kind++) {
        group *other = &g->last[kind];
        if (other->begin < begin || other->begin >= end || other->begin == other->end)
            continue;
        other->begin += by;
        other->end += by;
    }
}

/* Makes call i the last of the group, if the calls between permit it: the call moves up, or the group moves down. */
static bool neighbors_take(grouping *g, group *its, int i)
{
    lk_program *program = g->program;
    int size = its->end - its->begin;
    if (!neighbors_is_apart_from_all(program, i, its->begin, its->end))
        return false;
    if (neighbors_is_apart_from_all(program, i, its->end, i)) {
        neighbors_exchange(program->calls, its->end, i, i + 1);
        neighbors_shift(g, its->end, i, 1);
        its->end++;
        return true;
    }
    for (int member = its->begin; member < its->end; member++)
        if (!neighbors_is_apart_from_all(program, member, its->end, i))
            return false;
    neighbors_exchange(program->calls, its->begin, its->end, i);
    neighbors_shift(g, its->end, i, -size);
    *its = (group){i - size, i + 1, its->bucket, its->bytes};
    return true;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

static size_t neighbors_bytes(const lk_call *call)
{
    size_t bytes = 0;
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            bytes += (size_t)lk_tensor_count(call->out[i]) * lk_dtype_size(call->out[i]->dtype);
    return bytes;
}

/* Returns the bucket of the first output of the program that the call makes; -1: it makes none, or there are no
 * buckets. */
static int neighbors_bucket(const grouping *g, const lk_call *call)
{
    const lk_program *program = g->program;
    for (int i = 0; i < program->n_out && g->opts->buckets; i++)
        if (program->out[i] && lk__lists_storage(call->out, call->n_out, program->out[i]->storage))
            return g->opts->buckets[i % g->opts->n_quantities];
    return -1;
}

static void neighbors_add(grouping *g, int i, int kind)
{
    lk_call *calls = g->program->calls;
    group *its = &g->last[kind];
    size_t bytes = neighbors_bytes(&calls[i]), most = g->opts->segment_bytes;
    int bucket = neighbors_bucket(g, &calls[i]);
    bool is_full = most > 0 && its->bytes >= most;
    if (its->begin < its->end && !is_full && bucket == its->bucket && neighbors_take(g, its, i)) {
        calls[its->end - 1].group = calls[its->begin].group;
        its->bytes += bytes;
        return;
    }
    *its = (group){i, i + 1, bucket, bytes};
    calls[i].group = ++g->n_groups;
}

static void neighbors_forget_single_calls(lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++) {
        bool before = i > 0 && lk__program_is_grouped(program, i);
        bool after = i + 1 < program->n_calls && lk__program_is_grouped(program, i + 1);
        if (!before && !after)
            program->calls[i].group = 0;
    }
}

/* Gives the calls of each group of that kind branches in turn. */
static void neighbors_spread(lk_program *program)
{
    int at = 0;
    for (int i = 0; i < program->n_calls; i++) {
        lk_call *call = &program->calls[i];
        if (call->group == 0 || program->device->backend->graphs->kind(call) != LK_KIND_ASIDE)
            continue;
        at = i > 0 && lk__program_is_grouped(program, i) ? at + 1 : 0;
        call->branch = 1 + at % (LK_PARTS_AT_ONCE - 1);
    }
    for (int i = 0; i < program->n_calls; i++)
        if (program->calls[i].branch > 0)
            program->calls[i].group = 0;
}

void lk__program_join_neighbors(lk_program *program, const lk_program_opts *opts)
{
    const lk_graphs *graphs = program->device->backend->graphs;
    grouping g = {.program = program, .opts = opts};
    if (!graphs || neighbors_is_cut(program))
        return;
    for (int i = 0; i < program->n_calls; i++) {
        int kind = graphs->kind(&program->calls[i]);
        if (kind > 0 && kind < KINDS && lk__program_is_only_branch(program, program->calls[i].branch))
            neighbors_add(&g, i, kind);
    }
    neighbors_forget_single_calls(program);
    if (!lk__program_has_branches(program))
        neighbors_spread(program);
}
