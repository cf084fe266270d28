/* The calls of a segment run one after the other or, on an offload device, in their branches and later as a graph. On
 * such a device every value has its slot before the first replay. The first replay runs the calls in their branches, so
 * that libraries do their first-call setup; the second one captures the calls in a graph. A graph contains addresses:
 * if memory has moved, a new graph is made. */
#include "program/launch.h"
#include "base/log.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/hold.h"
#include "core/stamps.h"
#include "core/trace.h"
#include "program/keep.h"
#include "program/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- calls -------------------------------------------------------------------------------------------------------- */

void lk__value_use_slot(lk_value *value, const char *base)
{
    value->storage->data = base && value->bytes > 0 ? (char *)(uintptr_t)base + value->offset : NULL;
    value->storage->planned = value->storage->data ? value->bytes : 0;
    value->storage->layout = NULL;
}

void lk__value_give_back(const lk_program *program, lk_value *value)
{
    lk_storage *storage = value->storage;
    if (program->planned)
        lk__allocator_put(storage->device->allocator, storage->block);
    else
        lk__allocator_drop(storage->device->allocator, storage->block);
    storage->block = NULL;
    storage->data = NULL;
    storage->planned = 0;
}

static lk_status program_launch_call(lk_program *program, int i, uint64_t step)
{
    lk_call *call = &program->calls[i];
    if (call->op->set_step)
        call->op->set_step(call, step);
    if (!lk__program_leaves_out(program, i))
        LK_TRY(lk__run_call(program->device, call));
    for (int d = program->first_dying[i]; d < program->first_dying[i + 1]; d++)
        lk__value_give_back(program, &program->values[program->dying[d]]);
    return LK_OK;
}

/* --- branches ----------------------------------------------------------------------------------------------------- */

/* Ends the group before call i, and begins that of call i. */
static lk_status program_launch_change_group(const lk_program *program, const lk_segment *segment, int i)
{
    lk_status (*together)(lk_device *, bool) = program->device->backend->graphs->together;
    int before = i > segment->begin ? program->calls[i - 1].group : 0, group = program->calls[i].group;
    if (group == before)
        return LK_OK;
    if (before > 0)
        LK_TRY(together(program->device, false));
    return group > 0 ? together(program->device, true) : LK_OK;
}

static lk_status program_launch_in_branches(lk_program *program, const lk_segment *segment, uint64_t step)
{
    lk_status status = program->hold ? LK_OK : lk__hold_new(&program->hold);
    int branch = 0;
    lk__hold_use(program->device, program->hold, branch);
    for (int i = segment->begin; i < segment->end && status == LK_OK; i++) {
        status = program_launch_change_group(program, segment, i);
        if (status == LK_OK && program->calls[i].branch != branch) {
            branch = program->calls[i].branch;
            lk__hold_use(program->device, program->hold, branch);
            status = program->device->backend->graphs->branch(program->device, branch);
        }
        if (status == LK_OK)
            status = program_launch_call(program, i, step);
    }
    lk_status started = program->device->backend->graphs->together(program->device, false);
    status = status == LK_OK ? started : status;
    lk_status joined = program->device->backend->graphs->branch(program->device, 0);
    lk__hold_use(program->device, NULL, 0);
    return status == LK_OK ? joined : status;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static bool program_launch_is_variable(const lk_value *value)
{
    return value->kind == LK_VALUE_OUTSIDE;
}

static bool program_launch_has_moved(const lk_program *program, const char *base)
{
    bool moved = program->base != base;
    for (int i = 0; i < program->n_values && !moved; i++)
        moved = program_launch_is_variable(&program->values[i]) &&
                program->values[i].address != program->values[i].storage->data;
    return moved;
}

static void program_launch_free_graphs(lk_program *program)
{
    for (int s = 0; s < program->n_segments; s++) {
        if (program->segments[s].graph)
            program->device->backend->graphs->free(program->device, program->segments[s].graph);
        program->segments[s].graph = NULL;
    }
}

static void program_launch_note_addresses(lk_program *program, const char *base)
{
    program->base = base;
    for (int i = 0; i < program->n_values; i++)
        if (program_launch_is_variable(&program->values[i]))
            program->values[i].address = program->values[i].storage->data;
}

static lk_status program_launch_make_graph(lk_program *program, lk_segment *segment, uint64_t step)
{
    const lk_graphs *graphs = program->device->backend->graphs;
    lk_status status = graphs->begin(program->device);
    if (status == LK_OK)
        status = program_launch_in_branches(program, segment, step);
    lk_error_state kept;
    lk__error_save(&kept);
    lk_status ended = graphs->end(program->device, &segment->graph);
    if (status == LK_OK)
        return ended;
    graphs->free(program->device, segment->graph); /* it is incomplete */
    segment->graph = NULL;
    lk__error_restore(&kept);
    return status;
}

/* Some kernels of libraries run, but not inside a graph. The failed attempt has taken the memory of the values inside
 * the segment, the only one: they get their slots back. */
static lk_status program_launch_without_graph(lk_program *program, lk_segment *segment, uint64_t step, const char *base)
{
    lk__log(LK_LOG_WARNING, "%s: a program is not launched as a graph: %s", program->device->name, lk_error_message());
    lk_error_clear();
    program->graphs = false;
    for (int i = 0; i < program->n_values; i++)
        if (program->values[i].kind == LK_VALUE_INSIDE)
            lk__value_use_slot(&program->values[i], base);
    return program_launch_in_branches(program, segment, step);
}

static lk_status program_launch_graph(lk_program *program, lk_segment *segment, uint64_t step, const char *base)
{
    if (program_launch_has_moved(program, base)) {
        program_launch_free_graphs(program);
        program_launch_note_addresses(program, base);
    }
    lk_status status = segment->graph ? LK_OK : program_launch_make_graph(program, segment, step);
    if (status != LK_OK && status != LK_ERR_DEVICE && program->n_segments == 1)
        return program_launch_without_graph(program, segment, step, base);
    LK_TRY(status);
    return program->device->backend->graphs->launch(program->device, segment->graph);
}

/* --- modules ------------------------------------------------------------------------------------------------------ */

bool lk__program_keeps(void *user, lk_storage *storage)
{
    const lk_program *program = user;
    int number = lk__number_of(&program->numbers, storage);
    return number >= 0 && program->values[number].kind != LK_VALUE_INSIDE;
}

/* Stands for a module in recordings, with the program's first inputs. */
typedef struct module_attrs {
    double flops;
} module_attrs;

static double program_module_flops(const lk_call *call)
{
    return LK_ATTRS(call, module_attrs)->flops;
}

static const lk_op module_op = {.name = "module", .id = -1, .flops = program_module_flops};

static lk_call program_module_call(const lk_program *program, const lk_segment *segment)
{
    enum { SHOWN = 3 };
    module_attrs attrs = {0};
    lk_call call = {.op = &module_op, .device = program->device};
    for (int i = segment->begin; i < segment->end; i++)
        if (program->calls[i].op->flops)
            attrs.flops += program->calls[i].op->flops(&program->calls[i]);
    call.n_in = program->n_in < SHOWN ? program->n_in : SHOWN;
    memcpy(call.in, program->in, (size_t)call.n_in * sizeof(lk_tensor *));
    memcpy(call.attrs.bytes, &attrs, sizeof attrs);
    return call;
}

typedef struct segment_of {
    const lk_program *program;
    const lk_segment *segment;
} segment_of;

/* Later segments use values inside too. */
static bool program_launch_keeps(void *user, lk_storage *storage)
{
    const segment_of *s = user;
    int number = lk__number_of(&s->program->numbers, storage);
    return lk__program_keeps((void *)(uintptr_t)s->program, storage) ||
           (number >= 0 && s->program->values[number].last >= s->segment->end);
}

static lk_status program_launch_compile(lk_program *program, lk_segment *segment)
{
    segment_of s = {program, segment};
    return program->device->backend->modules->compile(program->device, program->calls + segment->begin,
                                                      segment->end - segment->begin, program_launch_keeps, &s,
                                                      &segment->module);
}

static lk_status program_launch_run_module(lk_program *program, const lk_segment *segment, uint64_t step)
{
    lk_device *device = program->device;
    const lk_modules *modules = device->backend->modules;
    int64_t began = lk__trace_begin();
    if (!began || !lk__stamps_are_used(device))
        return modules->run(device, segment->module, step);
    lk_call call = program_module_call(program, segment);
    LK_TRY(lk__stamps_begin(device));
    LK_TRY(modules->run(device, segment->module, step));
    return lk__stamps_end(device, &call, began);
}

/* Between segments values keep their memory until their last use. */
static lk_status program_launch_module(lk_program *program, lk_segment *segment, uint64_t step)
{
    if (!segment->module)
        LK_TRY(program_launch_compile(program, segment));
    LK_TRY(program_launch_run_module(program, segment, step));
    for (int d = program->first_dying[segment->begin]; d < program->first_dying[segment->end]; d++)
        lk__value_give_back(program, &program->values[program->dying[d]]);
    return LK_OK;
}

/* A recording shows single calls, and the synchronous engine waits for each: neither uses graphs. */
static lk_status program_launch_segment(lk_program *program, lk_segment *segment, uint64_t step, const char *base)
{
    if (program->device->backend->modules)
        return program_launch_module(program, segment, step);
    if (!base || lk__trace_is_on() || lk__engine_is_sync()) {
        for (int i = segment->begin; i < segment->end; i++)
            LK_TRY(program_launch_call(program, i, step));
        return LK_OK;
    }
    if (segment->is_warm && program->graphs)
        return program_launch_graph(program, segment, step, base);
    LK_TRY(program_launch_in_branches(program, segment, step));
    segment->is_warm = true;
    return LK_OK;
}

lk_status lk__program_launch(lk_program *program, lk_segment *segment, uint64_t step, const char *base)
{
    const lk_offload *offload = program->device->backend->offload;
    char name[64];
    if (!offload || !offload->range)
        return program_launch_segment(program, segment, step, base);
    snprintf(name, sizeof name, "step %" PRIu64 ", part %d of %d", step, (int)(segment - program->segments) + 1,
             program->n_segments);
    offload->range(program->device, name);
    lk_status status = program_launch_segment(program, segment, step, base);
    offload->range(program->device, NULL);
    return status;
}

void lk__program_drop_graphs(lk_program *program)
{
    if (!program->segments)
        return;
    for (int s = 0; s < program->n_segments; s++)
        if (program->segments[s].module)
            program->device->backend->modules->free(program->segments[s].module);
    program_launch_free_graphs(program);
    lk__hold_free(program->device, program->hold);
    program->hold = NULL;
}
