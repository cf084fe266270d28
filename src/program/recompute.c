/* Recomputation trades time for memory (Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost",
 * 2016). Backward reads most of what forward makes, so all of that would be kept until then. Instead the forward calls
 * are cut into stretches, at points that few bytes cross. Only those bytes are kept, and a stretch runs a second time
 * just before backward first needs one of its results.
 *
 * A call's results are a function of its operands (random ones are keyed), so the second run gives the same bits. It
 * writes to new storages: the program's outputs, including the sums for running statistics, are written once.
 *
 * A program may have several passes (lk_call.pass), and a pass several pieces (lk_call.piece), each with forward and
 * backward; they are treated one by one. A piece is called a pass below.
 * Nothing marks the beginning of backward. A pass turns where the most bytes are held for later. */
#include "program/recompute.h"
#include "base/mem.h"
#include "base/status.h"
#include "program/remake.h"
#include "program/values.h"

#include <string.h>

/* --- uses --------------------------------------------------------------------------------------------------------- */

static int recompute_value_of(const lk_program *program, const lk_tensor *tensor)
{
    const lk_value *value = lk__program_value(program, tensor);
    return value ? (int)(value - program->values) : -1;
}

/* Returns whether the value is used in this pass only. One that later calls need counts as an output of the pass. */
static bool recompute_is_inside(const lk_recomputation *r, int value)
{
    const lk_value *v = &r->program->values[value];
    return v->kind == LK_VALUE_INSIDE && v->first >= r->begin && v->last < r->begin + r->n_calls;
}

static size_t recompute_bytes_of(const lk_recomputation *r, int value)
{
    return r->program->values[value].storage->bytes;
}

static void recompute_number_operands(lk_recomputation *r)
{
    const lk_program *program = r->program;
    for (int c = 0; c < r->n_calls; c++) {
        const lk_call *call = &program->calls[r->begin + c];
        for (int i = 0; i < LK_MAX_INPUTS; i++)
            r->in[c * LK_MAX_INPUTS + i] = i < call->n_in ? recompute_value_of(program, call->in[i]) : -1;
        for (int i = 0; i < LK_MAX_OUTPUTS; i++)
            r->out[c * LK_MAX_OUTPUTS + i] = i < call->n_out ? recompute_value_of(program, call->out[i]) : -1;
    }
}

/* Returns the first call at which the most bytes, made earlier, are still needed. `change` is scratch: [calls + 1]. */
static int recompute_find_turn(const lk_recomputation *r, int64_t *change)
{
    const lk_program *program = r->program;
    size_t held = 0, most = 0;
    int turn = 0;
    memset(change, 0, ((size_t)r->n_calls + 1) * sizeof *change);
    for (int v = r->first_value; v < r->end_value; v++) {
        const lk_value *value = &program->values[v];
        if (!recompute_is_inside(r, v))
            continue;
        change[value->first - r->begin + 1] += (int64_t)recompute_bytes_of(r, v);
        change[value->last - r->begin + 1] -= (int64_t)recompute_bytes_of(r, v);
    }
    for (int c = 0; c < r->n_calls; c++) {
        held += (size_t)change[c];
        if (held > most) {
            most = held;
            turn = c;
        }
    }
    return turn;
}

static void recompute_note_use(lk_recomputation *r, int value, int call, bool write)
{
    if (value < 0)
        return;
    lk_value_uses *uses = &r->uses[value];
    if (write && uses->first_write < 0)
        uses->first_write = call;
    if (write)
        uses->last_write = call;
    if (call < r->turn)
        uses->last_early = call;
    else if (uses->first_late < 0)
        uses->first_late = call;
}

static void recompute_find_uses(lk_recomputation *r)
{
    for (int v = 0; v < r->program->n_values; v++)
        r->uses[v] = (lk_value_uses){-1, -1, -1, -1};
    for (int c = 0; c < r->n_calls; c++) {
        for (int i = 0; i < LK_MAX_INPUTS; i++)
            recompute_note_use(r, r->in[c * LK_MAX_INPUTS + i], c, false);
        for (int i = 0; i < LK_MAX_OUTPUTS; i++)
            recompute_note_use(r, r->out[c * LK_MAX_OUTPUTS + i], c, true);
    }
}

/* Adds up, for each forward call, the bytes that a cut before it would keep. */
static void recompute_find_crossings(lk_recomputation *r)
{
    for (int v = r->first_value; v < r->end_value; v++)
        for (int c = r->uses[v].first_write + 1; recompute_is_inside(r, v) && c <= r->uses[v].last_early; c++)
            r->crossing[c] += recompute_bytes_of(r, v);
}

/* --- what a stretch recomputes ------------------------------------------------------------------------------------ */

/* Returns whether the value is made in the stretch and forward uses it nowhere else: then it can be freed when the
 * stretch ends. */
static bool recompute_is_local(const lk_recomputation *r, int value, const lk_stretch *s)
{
    const lk_value_uses *uses = &r->uses[value];
    return recompute_is_inside(r, value) && uses->first_write >= s->begin && uses->last_write < s->end &&
           uses->last_early < s->end;
}

/* Marks the value as remade, and the calls before `end` that write it as needed. */
static void recompute_mark_value(lk_recomputation *r, int value, int end)
{
    r->remade[value] = true;
    for (int c = r->uses[value].first_write; c < end; c++)
        for (int i = 0; i < LK_MAX_OUTPUTS; i++)
            r->needed[c] |= r->out[c * LK_MAX_OUTPUTS + i] == value;
}

/* Marks the operands of a call that runs again. Returns false if the call cannot: an operand is overwritten later, or
 * the call writes to a variable or an input. */
static bool recompute_mark_operands(lk_recomputation *r, int call, const lk_stretch *s)
{
    for (int i = 0; i < LK_MAX_INPUTS; i++) {
        int value = r->in[call * LK_MAX_INPUTS + i];
        if (value < 0 || r->remade[value])
            continue;
        if (recompute_is_local(r, value, s))
            recompute_mark_value(r, value, call);
        else if (r->uses[value].last_write >= call)
            return false;
    }
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) {
        int value = r->out[call * LK_MAX_OUTPUTS + i];
        lk_value_kind kind = value < 0 ? LK_VALUE_INSIDE : r->program->values[value].kind;
        if (kind == LK_VALUE_OUTSIDE || kind == LK_VALUE_INPUT)
            return false;
    }
    return true;
}

static void recompute_unmark(lk_recomputation *r, const lk_stretch *s)
{
    for (int c = s->begin; c < s->end; c++)
        r->needed[c] = false;
    for (int v = r->first_value; v < r->end_value; v++)
        if (recompute_is_local(r, v, s))
            r->remade[v] = false;
}

/* Marks the calls and values that the stretch recomputes, and finds the call before which it must run again. Returns
 * false, with nothing marked, if the stretch cannot run again, and false also if no later call needs its results. */
static bool recompute_mark(lk_recomputation *r, lk_stretch *s)
{
    int none = r->n_calls;
    s->before = none;
    for (int v = r->first_value; v < r->end_value; v++) {
        int late = r->uses[v].first_late;
        if (!recompute_is_local(r, v, s) || late < 0)
            continue;
        recompute_mark_value(r, v, s->end);
        s->before = late < s->before ? late : s->before;
    }
    for (int c = s->end - 1; c >= s->begin; c--)
        if (r->needed[c] && !recompute_mark_operands(r, c, s)) {
            recompute_unmark(r, s);
            return false;
        }
    return s->before < none;
}

/* --- the steps and their cost ------------------------------------------------------------------------------------- */

bool lk__reads_second_life(const lk_recomputation *r, lk_step step, int value)
{
    return r->remade[value] && (step.again || step.call >= r->turn);
}

static void recompute_add_step(lk_recomputation *r, int call, bool again)
{
    r->steps[r->n_steps++] = (lk_step){call, again};
}

static void recompute_make_steps(lk_recomputation *r)
{
    memset(r->needed, 0, (size_t)r->n_calls * sizeof *r->needed);
    memset(r->remade, 0, (size_t)r->program->n_values * sizeof *r->remade);
    r->n_steps = 0;
    for (int s = 0; s < r->n_stretches; s++)
        r->stretches[s].again = r->stretches[s].again && recompute_mark(r, &r->stretches[s]);
    for (int call = 0; call < r->n_calls; call++) {
        for (int s = 0; s < r->n_stretches; s++) {
            const lk_stretch *stretch = &r->stretches[s];
            for (int c = stretch->begin; stretch->again && stretch->before == call && c < stretch->end; c++)
                if (r->needed[c])
                    recompute_add_step(r, c, true);
        }
        recompute_add_step(r, call, false);
    }
}

typedef struct cost {
    size_t peak;
    double work; /* of what runs again: its floating-point operations, and ten for each byte written */
} cost;

static double recompute_work(const lk_recomputation *r, int call)
{
    const lk_call *c = &r->program->calls[r->begin + call];
    double work = c->op->flops ? c->op->flops(c) : 0;
    for (int i = 0; i < c->n_out; i++)
        work += c->out[i] ? 10.0 * (double)c->out[i]->storage->bytes : 0;
    return work;
}

/* The steps in which a life of a value begins and ends. */
typedef struct life {
    int first, last; /* -1: none */
} life;

static void recompute_extend_life(life *lives, int step)
{
    if (lives->first < 0)
        lives->first = step;
    lives->last = step;
}

/* Sets lives[value], and lives[n_values + value] for second lives. */
static void recompute_find_lives(const lk_recomputation *r, life *lives)
{
    int n = r->program->n_values;
    for (int i = 0; i < 2 * n; i++)
        lives[i] = (life){-1, -1};
    for (int s = 0; s < r->n_steps; s++) {
        lk_step step = r->steps[s];
        for (int i = 0; i < LK_MAX_INPUTS; i++) {
            int value = r->in[step.call * LK_MAX_INPUTS + i];
            if (value >= 0)
                recompute_extend_life(&lives[lk__reads_second_life(r, step, value) ? n + value : value], s);
        }
        for (int i = 0; i < LK_MAX_OUTPUTS; i++) {
            int value = r->out[step.call * LK_MAX_OUTPUTS + i];
            if (value >= 0)
                recompute_extend_life(&lives[step.again ? n + value : value], s);
        }
    }
}

/* Returns the cost of the present stretches. Scratch: lives [2 * values], change [2 * calls + 1]. */
static cost recompute_cost(lk_recomputation *r, life *lives, int64_t *change)
{
    cost found = {0};
    int n = r->program->n_values;
    int64_t now = 0;
    recompute_make_steps(r);
    recompute_find_lives(r, lives);
    memset(change, 0, ((size_t)r->n_steps + 1) * sizeof *change);
    for (int i = 0; i < 2 * n; i++) {
        int value = i < n ? i : i - n;
        if (lives[i].first < 0 || (i < n && !recompute_is_inside(r, value)))
            continue;
        change[lives[i].first] += (int64_t)recompute_bytes_of(r, value);
        change[lives[i].last + 1] -= (int64_t)recompute_bytes_of(r, value);
    }
    for (int s = 0; s < r->n_steps; s++) {
        now += change[s];
        found.peak = (size_t)now > found.peak ? (size_t)now : found.peak;
        found.work += r->steps[s].again ? recompute_work(r, r->steps[s].call) : 0;
    }
    return found;
}

/* --- where to cut ------------------------------------------------------------------------------------------------- */

/* Sets kept[call] to the bytes that a forward call makes for backward. Returns their sum. */
static size_t recompute_find_kept(const lk_recomputation *r, size_t *kept)
{
    size_t total = 0;
    for (int v = r->first_value; v < r->end_value; v++) {
        const lk_value_uses *uses = &r->uses[v];
        if (!recompute_is_inside(r, v) || uses->first_late < 0 || uses->first_write < 0 || uses->first_write >= r->turn)
            continue;
        kept[uses->first_write] += recompute_bytes_of(r, v);
        total += recompute_bytes_of(r, v);
    }
    return total;
}

/* The cheapest cut in the second half of [begin, end]; ties go to the later call. */
static int recompute_best_cut(const lk_recomputation *r, int begin, int end)
{
    int best = end;
    for (int c = end; c > begin + (end - begin) / 2; c--)
        if (r->crossing[c] < r->crossing[best])
            best = c;
    return best;
}

/* Cuts forward into stretches that make about `budget` bytes for backward each. The calls between the last cut and the
 * turn are no stretch: running them again would gain nothing. */
static void recompute_cut(lk_recomputation *r, const size_t *kept, size_t budget)
{
    int begin = 0;
    size_t bytes = 0;
    r->n_stretches = 0;
    for (int c = 0; c + 1 < r->turn && r->n_stretches < LK_MAX_STRETCHES; c++) {
        bytes += kept[c];
        if (bytes <= budget)
            continue;
        int end = recompute_best_cut(r, begin, c + 1);
        r->stretches[r->n_stretches++] = (lk_stretch){.begin = begin, .end = end, .again = true};
        begin = end;
        bytes = 0;
        for (int i = begin; i <= c; i++)
            bytes += kept[i];
    }
}

typedef struct search {
    size_t *kept;
    life *lives;
    int64_t *change;
    lk_stretch best[LK_MAX_STRETCHES];
    int n_best;
    cost cost;
} search;

static void recompute_keep_if_better(lk_recomputation *r, search *s)
{
    cost found = recompute_cost(r, s->lives, s->change);
    if (found.peak > s->cost.peak || (found.peak == s->cost.peak && found.work >= s->cost.work))
        return;
    s->cost = found;
    s->n_best = r->n_stretches;
    memcpy(s->best, r->stretches, sizeof s->best);
}

static void recompute_restore_best(lk_recomputation *r, const search *s)
{
    r->n_stretches = s->n_best;
    memcpy(r->stretches, s->best, sizeof s->best);
}

/* Finds the stretches that need the least memory and, with that memory, the least work. The last loop tries for each
 * stretch to keep its results after all. */
static void recompute_choose(lk_recomputation *r, search *s)
{
    size_t total = recompute_find_kept(r, s->kept);
    s->cost = recompute_cost(r, s->lives, s->change);
    for (size_t parts = 2; parts <= LK_MAX_STRETCHES / 2; parts++) {
        recompute_cut(r, s->kept, total / parts);
        recompute_keep_if_better(r, s);
    }
    for (int i = s->n_best - 1; i >= 0; i--) {
        recompute_restore_best(r, s);
        r->stretches[i].again = false;
        recompute_keep_if_better(r, s);
    }
    recompute_restore_best(r, s);
    recompute_make_steps(r);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static lk_status recompute_prepare(lk_recomputation *r, search *s)
{
    size_t calls = (size_t)r->n_calls, values = (size_t)r->program->n_values;
    r->in = lk__calloc(calls * LK_MAX_INPUTS + 1, sizeof *r->in);
    r->out = lk__calloc(calls * LK_MAX_OUTPUTS + 1, sizeof *r->out);
    r->uses = lk__calloc(values + 1, sizeof *r->uses);
    r->crossing = lk__calloc(calls + 1, sizeof *r->crossing);
    r->needed = lk__calloc(calls + 1, sizeof *r->needed);
    r->remade = lk__calloc(values + 1, sizeof *r->remade);
    r->steps = lk__calloc(2 * calls + 1, sizeof *r->steps);
    s->kept = lk__calloc(calls + 1, sizeof *s->kept);
    s->lives = lk__calloc(2 * values + 1, sizeof *s->lives);
    s->change = lk__calloc(2 * calls + 1, sizeof *s->change);
    if (!r->in || !r->out || !r->uses || !r->crossing || !r->needed || !r->remade || !r->steps || !s->kept ||
        !s->lives || !s->change)
        return LK_ERR_MEMORY;
    recompute_number_operands(r);
    r->turn = recompute_find_turn(r, s->change);
    recompute_find_uses(r);
    recompute_find_crossings(r);
    return LK_OK;
}

static void recompute_free(lk_recomputation *r, search *s)
{
    LK_FREE_ALL(r->in, r->out, r->uses, r->crossing, r->needed, r->remade, r->steps, s->kept, s->lives, s->change);
}

/* Values are numbered in the order in which calls use them. */
static void recompute_find_values(lk_recomputation *r)
{
    const lk_program *program = r->program;
    while (r->first_value < program->n_values && program->values[r->first_value].first < r->begin)
        r->first_value++;
    r->end_value = r->first_value;
    while (r->end_value < program->n_values && program->values[r->end_value].first < r->begin + r->n_calls)
        r->end_value++;
}

static lk_status recompute_pass(lk_program *program, int begin, int end)
{
    lk_recomputation r = {.program = program, .begin = begin, .n_calls = end - begin};
    search s = {0};
    recompute_find_values(&r);
    lk_status status = recompute_prepare(&r, &s);
    if (status == LK_OK) {
        recompute_choose(&r, &s);
        status = s.n_best > 0 ? lk__program_remake(&r) : LK_OK;
    }
    recompute_free(&r, &s);
    return status;
}

static bool recompute_is_same_pass(const lk_call *a, const lk_call *b)
{
    return a->pass == b->pass && a->piece == b->piece;
}

/* The passes are treated from the last to the first: inserting calls into a later pass does not move an earlier one, so
 * the values found at the beginning stay valid for the passes that are left. */
lk_status lk__program_recompute(lk_program *program)
{
    int end = program->n_calls;
    LK_TRY(lk__program_find_values(program));
    while (end > 0) {
        int begin = end - 1;
        while (begin > 0 && recompute_is_same_pass(&program->calls[begin - 1], &program->calls[end - 1]))
            begin--;
        LK_TRY(recompute_pass(program, begin, end));
        end = begin;
    }
    return LK_OK;
}
