/* Segments: pieces of a program that are pushed one by one, so that outputs leave while the rest is computed. */
#include "program/program.h"

#include "base/mem.h"
#include "base/status.h"

static const lk_value *value_of(const lk_program *program, int output)
{
    return lk__program_value(program, program->out[output]);
}

/* Absent outputs are ready from the start. */
static int list_absent(lk_program *program)
{
    int n = 0;
    for (int i = 0; i < program->n_out; i++)
        if (!program->out[i])
            program->ready[n++] = i;
    return n;
}

/* Adds all others behind the first n, by their last use; of one call, in the order in which they came up. */
static void list_present(lk_program *program, int n)
{
    int *ready = program->ready + n, count = 0;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind != LK_VALUE_OUTPUT)
            continue;
        int place = count++;
        for (; place > 0 && value_of(program, ready[place - 1])->last > value->last; place--)
            ready[place] = ready[place - 1];
        ready[place] = value->index;
    }
}

/* Goes on behind the outputs whose last use is `call`; gives their bytes. */
static size_t pass_ready(const lk_program *program, int call, int *n)
{
    size_t bytes = 0;
    for (; *n < program->n_out && value_of(program, program->ready[*n])->last == call; ++*n)
        bytes += program->out[program->ready[*n]]->storage->bytes;
    return bytes;
}

/* Ends the segment at hand before `call`, where outputs ready[… n) are finished. */
static void end_segment(lk_program *program, int call, int n)
{
    lk_segment *segment = &program->segments[program->n_segments++];
    segment->end = call;
    segment->n_ready = n - segment->first_ready;
    segment[1] = (lk_segment){.begin = call, .first_ready = n};
}

lk_status lk__program_cut(lk_program *program, size_t segment_bytes)
{
    size_t bytes = 0;
    /* A segment but the last finishes an output; one more is begun behind the last. */
    program->segments = lk__calloc((size_t)program->n_out + 2, sizeof *program->segments);
    program->ready = lk__calloc((size_t)program->n_out + 1, sizeof *program->ready);
    if (!program->segments || !program->ready)
        return LK_ERR_MEMORY;
    int n = list_absent(program);
    list_present(program, n);
    for (int call = 0; call < program->n_calls; call++) {
        bytes += pass_ready(program, call, &n);
        if (segment_bytes > 0 && bytes >= segment_bytes && call + 1 < program->n_calls) {
            end_segment(program, call + 1, n);
            bytes = 0;
        }
    }
    end_segment(program, program->n_calls, n);
    return LK_OK;
}
