/* Segments of branches. Branches are recorded one after the other, and their outputs' sums at the end: cut like that, a
 * segment would have a piece of one branch, and no output would leave before all branches are through. Here the calls
 * of the last branches are put in such an order that all branches go on together until they have made what a segment is
 * to finish, and then the sums of it are made. How far a branch is tells the number of its calls: branches that compute
 * shards of one size are alike. */
#include "program/program.h"

#include "base/mem.h"

#include <string.h>

/* Calls [begin, end) are in branches, and what comes behind them finishes outputs. */
typedef struct branch_order {
    lk_program *program;
    int begin, end;
    int *level;    /* [n_calls]: how many calls of a branch have to come first, itself included */
    size_t *bytes; /* [n_calls + 1]: of outputs that calls of a level finish */
    int *piece;    /* [n_calls + 1]: the piece that a level belongs to */
    int pieces;
    int *latest;    /* [n_values]: the highest level of a call that uses the value */
    lk_call *calls; /* [n_calls]: in their new order */
    bool *finishes;
} branch_order;

static void find_stretch(branch_order *it)
{
    const lk_call *calls = it->program->calls;
    it->end = it->program->n_calls;
    while (it->end > 0 && calls[it->end - 1].branch == 0)
        it->end--;
    it->begin = it->end;
    while (it->begin > 0 && calls[it->begin - 1].branch > 0)
        it->begin--;
}

static bool is_followed_by_outputs_alone(const branch_order *it)
{
    for (int i = it->end; i < it->program->n_calls; i++)
        if (!it->finishes[i])
            return false;
    return it->end > it->begin;
}

static int *latest_of(const branch_order *it, const lk_tensor *tensor)
{
    const lk_value *value = lk__program_value(it->program, tensor);
    return value ? &it->latest[value - it->program->values] : NULL;
}

static void note_level(branch_order *it, int call, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        int *latest = latest_of(it, tensors[i]);
        if (latest && *latest < it->level[call])
            *latest = it->level[call];
    }
}

static int latest_among(const branch_order *it, lk_tensor *const *tensors, int n, int level)
{
    for (int i = 0; i < n; i++) {
        const int *latest = latest_of(it, tensors[i]);
        if (latest && *latest > level)
            level = *latest;
    }
    return level;
}

/* What comes behind the branches comes after all that uses its operands there. */
static void find_levels(branch_order *it)
{
    int done[LK_MAX_BRANCHES + 1] = {0};
    for (int i = it->begin; i < it->program->n_calls; i++) {
        const lk_call *call = &it->program->calls[i];
        if (i < it->end)
            it->level[i] = ++done[call->branch];
        else
            it->level[i] = latest_among(it, call->out, call->n_out, latest_among(it, call->in, call->n_in, 0));
        note_level(it, i, call->in, call->n_in);
        note_level(it, i, call->out, call->n_out);
    }
}

/* Outputs that are finished before the branches are of level 0. */
static void find_bytes(branch_order *it)
{
    const lk_program *program = it->program;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_OUTPUT)
            it->bytes[it->level[value->last]] += value->storage->bytes;
    }
}

static void find_pieces(branch_order *it, size_t segment_bytes)
{
    size_t bytes = 0;
    for (int level = 0; level <= it->program->n_calls; level++) {
        it->piece[level] = it->pieces;
        bytes += it->bytes[level];
        if (bytes < segment_bytes)
            continue;
        it->pieces++;
        bytes = 0;
    }
    it->pieces++;
}

static int take(branch_order *it, int begin, int end, int piece, int n)
{
    for (int i = begin; i < end; i++)
        if (it->piece[it->level[i]] == piece)
            it->calls[n++] = it->program->calls[i];
    return n;
}

static void reorder(branch_order *it)
{
    int n = it->begin, n_calls = it->program->n_calls;
    for (int piece = 0; piece < it->pieces; piece++) {
        n = take(it, it->begin, it->end, piece, n);
        n = take(it, it->end, n_calls, piece, n);
    }
    memcpy(it->program->calls + it->begin, it->calls + it->begin, (size_t)(n_calls - it->begin) * sizeof *it->calls);
}

static lk_status allocate(branch_order *it)
{
    size_t n = (size_t)it->program->n_calls + 1;
    it->level = lk__calloc(n, sizeof *it->level);
    it->bytes = lk__calloc(n, sizeof *it->bytes);
    it->piece = lk__calloc(n, sizeof *it->piece);
    it->calls = lk__calloc(n, sizeof *it->calls);
    it->latest = lk__calloc((size_t)it->program->n_values + 1, sizeof *it->latest);
    if (!it->level || !it->bytes || !it->piece || !it->calls || !it->latest)
        return LK_ERR_MEMORY;
    return lk__program_find_finishing(it->program, &it->finishes);
}

static void order(branch_order *it, size_t segment_bytes)
{
    find_stretch(it);
    if (!is_followed_by_outputs_alone(it))
        return;
    find_levels(it);
    find_bytes(it);
    find_pieces(it, segment_bytes);
    reorder(it);
}

lk_status lk__program_order_branches(lk_program *program, size_t segment_bytes)
{
    branch_order it = {.program = program};
    if (segment_bytes == 0 || !lk__program_has_branches(program))
        return LK_OK;
    LK_TRY(lk__program_find_values(program));
    LK_TRY(lk__program_check_branches(program));
    lk_status status = allocate(&it);
    if (status == LK_OK)
        order(&it, segment_bytes);
    lk__free(it.level);
    lk__free(it.bytes);
    lk__free(it.piece);
    lk__free(it.calls);
    lk__free(it.latest);
    lk__free(it.finishes);
    return status;
}
