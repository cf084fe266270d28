/* Segments of branches. Branches are recorded one after the other, and the sums of their outputs at the end. If
 * segments were cut in that order, each would hold a part of one branch, and no output would be ready before all
 * branches are done. This file reorders the calls of the last branches: all of them advance together to where the sums
 * of a segment have their operands, and then come those sums. Progress is measured in calls of a branch, because
 * branches that compute shards of one size are alike. */
#include "program/branch_order.h"
#include "base/mem.h"
#include "program/branches.h"
#include "program/order.h"
#include "program/program.h"
#include "program/segments.h"
#include "program/values.h"

#include <string.h>

/* Calls [begin, end) are in branches, and the calls after them finish outputs. */
typedef struct branch_order {
    lk_program *program;
    int begin, end;
    int *level;    /* [n_calls]: how many calls of a branch must come first, including this one */
    size_t *bytes; /* [n_calls + 1]: bytes of outputs that the calls of a level finish */
    int *piece;    /* [n_calls + 1]: the piece that a level belongs to */
    bool *ends;    /* [n_calls + 1]: whether a bucket is complete after a level */
    int pieces;
    int *latest;    /* [n_values]: the highest level of a call that uses the value */
    lk_call *calls; /* [n_calls]: in their new order */
    bool *finishes; /* [n_calls]: see lk__program_find_finishing */
} branch_order;

/* Finds the last stretch of calls in branches. */
static void branch_order_find_stretch(branch_order *it)
{
    const lk_call *calls = it->program->calls;
    it->end = it->program->n_calls;
    while (it->end > 0 && calls[it->end - 1].branch == 0)
        it->end--;
    it->begin = it->end;
    while (it->begin > 0 && calls[it->begin - 1].branch > 0)
        it->begin--;
}

static bool branch_order_ends_in_outputs(const branch_order *it)
{
    for (int i = it->end; i < it->program->n_calls; i++)
        if (!it->finishes[i])
            return false;
    return it->end > it->begin;
}

static int *branch_order_latest(const branch_order *it, const lk_tensor *tensor)
{
    const lk_value *value = lk__program_value(it->program, tensor);
    return value ? &it->latest[value - it->program->values] : NULL;
}

static void branch_order_note_level(branch_order *it, int call, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        int *latest = branch_order_latest(it, tensors[i]);
        if (latest && *latest < it->level[call])
            *latest = it->level[call];
    }
}

/* Returns the highest level of a call so far that uses one of the tensors, but at least `level`. */
static int branch_order_latest_among(const branch_order *it, lk_tensor *const *tensors, int n, int level)
{
    for (int i = 0; i < n; i++) {
        const int *latest = branch_order_latest(it, tensors[i]);
        if (latest && *latest > level)
            level = *latest;
    }
    return level;
}

/* A call after the branches comes after every call there that uses one of its operands. */
static void branch_order_find_levels(branch_order *it)
{
    int done[LK_MAX_BRANCHES + 1] = {0};
    for (int i = it->begin; i < it->program->n_calls; i++) {
        const lk_call *call = &it->program->calls[i];
        if (i < it->end)
            it->level[i] = ++done[call->branch];
        else
            it->level[i] = branch_order_latest_among(it, call->out, call->n_out,
                                                     branch_order_latest_among(it, call->in, call->n_in, 0));
        branch_order_note_level(it, i, call->in, call->n_in);
        branch_order_note_level(it, i, call->out, call->n_out);
    }
}

/* Outputs that are finished before the branches belong to level 0. */
static void branch_order_find_bytes(branch_order *it)
{
    const lk_program *program = it->program;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_OUTPUT)
            it->bytes[it->level[value->last]] += value->storage->bytes;
    }
}

static void branch_order_find_pieces(branch_order *it, size_t segment_bytes)
{
    size_t bytes = 0;
    for (int level = 0; level <= it->program->n_calls; level++) {
        it->piece[level] = it->pieces;
        bytes += it->bytes[level];
        if (!it->ends[level] && (segment_bytes == 0 || bytes < segment_bytes))
            continue;
        it->pieces++;
        bytes = 0;
    }
    it->pieces++;
}

/* Appends the calls of the piece among calls [begin, end) to the new order, which has n calls. Returns the new n. */
static int branch_order_take(branch_order *it, int begin, int end, int piece, int n)
{
    for (int i = begin; i < end; i++)
        if (it->piece[it->level[i]] == piece)
            it->calls[n++] = it->program->calls[i];
    return n;
}

static lk_status branch_order_allocate(branch_order *it)
{
    size_t n = (size_t)it->program->n_calls + 1;
    it->level = lk__calloc(n, sizeof *it->level);
    it->bytes = lk__calloc(n, sizeof *it->bytes);
    it->piece = lk__calloc(n, sizeof *it->piece);
    it->ends = lk__calloc(n, sizeof *it->ends);
    it->calls = lk__calloc(n, sizeof *it->calls);
    it->latest = lk__calloc((size_t)it->program->n_values + 1, sizeof *it->latest);
    if (!it->level || !it->bytes || !it->piece || !it->ends || !it->calls || !it->latest)
        return LK_ERR_MEMORY;
    return lk__program_find_finishing(it->program, &it->finishes);
}

static lk_status branch_order_apply(branch_order *it, const lk_program_opts *opts)
{
    branch_order_find_stretch(it);
    if (!branch_order_ends_in_outputs(it))
        return LK_OK;
    branch_order_find_levels(it);
    branch_order_find_bytes(it);
    LK_TRY(lk__program_find_bucket_ends(it->program, opts, it->level, it->ends));
    branch_order_find_pieces(it, opts->segment_bytes);
    int n = it->begin, n_calls = it->program->n_calls;
    for (int piece = 0; piece < it->pieces; piece++) {
        n = branch_order_take(it, it->begin, it->end, piece, n);
        n = branch_order_take(it, it->end, n_calls, piece, n);
    }
    memcpy(it->program->calls + it->begin, it->calls + it->begin, (size_t)(n_calls - it->begin) * sizeof *it->calls);
    return LK_OK;
}

lk_status lk__program_order_branches(lk_program *program, const lk_program_opts *opts)
{
    branch_order it = {.program = program};
    if ((opts->segment_bytes == 0 && !opts->buckets) || !lk__program_has_branches(program))
        return LK_OK;
    LK_TRY(lk__program_find_values(program));
    LK_TRY(lk__program_check_branches(program));
    lk_status status = branch_order_allocate(&it);
    if (status == LK_OK)
        status = branch_order_apply(&it, opts);
    LK_FREE_ALL(it.level, it.bytes, it.piece, it.ends, it.calls, it.latest, it.finishes);
    return status;
}
