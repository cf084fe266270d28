#include "program/segments.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "program/program.h"
#include "program/values.h"

static const lk_value *segments_output_value(const lk_program *program, int output)
{
    return lk__program_value(program, program->out[output]);
}

/* Lists absent outputs, which are ready from the start. Returns how many there are. */
static int segments_list_absent(lk_program *program)
{
    int n = 0;
    for (int i = 0; i < program->n_out; i++)
        if (!program->out[i])
            program->ready[n++] = i;
    return n;
}

/* Lists all others after the first n, ordered by their last use; those of one call, in the order of their values. */
static void segments_list_present(lk_program *program, int n)
{
    int *ready = program->ready + n, count = 0;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind != LK_VALUE_OUTPUT)
            continue;
        int position = count++;
        for (; position > 0 && segments_output_value(program, ready[position - 1])->last > value->last; position--)
            ready[position] = ready[position - 1];
        ready[position] = value->index;
    }
}

/* Advances *n past the outputs whose last use is `call`. Returns their bytes. */
static size_t segments_pass_ready(const lk_program *program, int call, int *n)
{
    size_t bytes = 0;
    for (; *n < program->n_out && segments_output_value(program, program->ready[*n])->last == call; ++*n)
        bytes += program->out[program->ready[*n]]->storage->bytes;
    return bytes;
}

/* Ends the present segment before `call`; it finishes outputs up to ready[n - 1]. */
static void segments_close(lk_program *program, int call, int n)
{
    lk_segment *segment = &program->segments[program->n_segments++];
    segment->end = call;
    segment->n_ready = n - segment->first_ready;
    segment[1] = (lk_segment){.begin = call, .first_ready = n};
}

/* Returns whether a segment has to end after `call`. */
static bool segments_is_cut(const lk_program *program, int call)
{
    for (int k = 1; k <= program->cuts; k++) {
        const lk_value *value = segments_output_value(program, program->n_out - k);
        if (value && value->last == call)
            return true;
    }
    return false;
}

/* Checks that each of the last outputs ends a segment, in order, after which its input is used first. */
static lk_status segments_check_cuts(const lk_program *program)
{
    int before = -1, first_in = program->n_in - program->cuts, first_out = program->n_out - program->cuts;
    for (int k = 0; k < program->cuts; k++) {
        const lk_value *value = segments_output_value(program, first_out + k);
        const lk_storage *given = program->in[first_in + k]->storage;
        bool is_right = value && value->last > before;
        for (int call = 0; is_right && call <= value->last; call++)
            is_right = !lk__lists_storage(program->calls[call].in, program->calls[call].n_in, given);
        if (!is_right)
            LK_FAIL(LK_ERR_STATE, "program: cannot be cut where output %d is finished", first_out + k);
        before = value->last;
    }
    return LK_OK;
}

lk_status lk__program_find_bucket_ends(const lk_program *program, const lk_program_opts *opts, const int *level,
                                       bool *ends)
{
    int n_buckets = 0, latest = -1;
    for (int i = 0; i < opts->n_quantities && opts->buckets; i++)
        n_buckets = (int)lk__max(n_buckets, opts->buckets[i] + 1);
    int *finished = lk__calloc((size_t)n_buckets + 1, sizeof *finished);
    if (!finished)
        return LK_ERR_MEMORY;
    for (int b = 0; b < n_buckets; b++)
        finished[b] = -1;
    for (int i = 0; i < program->n_out && n_buckets > 0; i++) {
        const lk_value *value = segments_output_value(program, i);
        int *bucket = &finished[opts->buckets[i % opts->n_quantities]];
        if (value)
            *bucket = (int)lk__max(*bucket, level ? level[value->last] : value->last);
    }
    for (int b = 0; b + 1 < n_buckets; b++) {
        latest = (int)lk__max(latest, finished[b]);
        if (latest >= 0)
            ends[latest] = true;
    }
    lk__free(finished);
    return LK_OK;
}

static void segments_close_all(lk_program *program, size_t segment_bytes, const bool *ends)
{
    size_t bytes = 0;
    int n = segments_list_absent(program);
    segments_list_present(program, n);
    for (int call = 0; call < program->n_calls; call++) {
        bytes += segments_pass_ready(program, call, &n);
        bool is_full = segment_bytes > 0 && bytes >= segment_bytes;
        if ((is_full || ends[call] || segments_is_cut(program, call)) && call + 1 < program->n_calls) {
            segments_close(program, call + 1, n);
            bytes = 0;
        }
    }
    segments_close(program, program->n_calls, n);
}

lk_status lk__program_cut(lk_program *program, const lk_program_opts *opts)
{
    LK_TRY(segments_check_cuts(program));
    /* Each segment but the last finishes an output, and one more is begun after the last. */
    program->segments = lk__calloc((size_t)program->n_out + 2, sizeof *program->segments);
    program->ready = lk__calloc((size_t)program->n_out + 1, sizeof *program->ready);
    bool *ends = lk__calloc((size_t)program->n_calls + 1, sizeof *ends);
    bool has_memory = program->segments && program->ready && ends;
    lk_status status = has_memory ? lk__program_find_bucket_ends(program, opts, NULL, ends) : LK_ERR_MEMORY;
    if (status == LK_OK)
        segments_close_all(program, opts->segment_bytes, ends);
    lk__free(ends);
    return status;
}
