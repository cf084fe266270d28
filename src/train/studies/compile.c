/* Lowers the training pass of a shard, which is recorded on a device of the processor, and compiles the module. */
#include "lockstep/compile.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/durable.h"
#include "pjrt/pjrt.h"
#include "pjrt/pjrt_topology.h"
#include "program/launch.h"
#include "program/program.h"
#include "train/plan/choices.h"
#include "train/plan/plan.h"
#include "train/resume.h"
#include "train/trainer.h"

static lk_status compile_pass(lk_trainer *trainer, const lk_pjrt_plugin *plugin, const lk_compile_opts *opts,
                              lk_compile_result *result)
{
    lk_program_opts separate = {.fuse = false};
    lk_lowered lowered;
    result->samples = lk__divide_up(trainer->plan.batch_size, trainer->plan.shards);
    lk_program *program = lk__record_pass(trainer, true, result->samples, &separate);
    if (!program)
        return lk_error_status();
    lk_status status = lk__pjrt_lower(program->calls, program->n_calls, lk__program_keeps, program, &lowered);
    result->operators = program->n_calls;
    lk_program_release(program);
    LK_TRY(status);
    result->text_bytes = lowered.size;
    if (opts->text)
        status = lk__durable_write(opts->text, lowered.text, lowered.size);
    char *executable = NULL;
    if (status == LK_OK)
        status = lk__pjrt_compile_for(plugin, opts->topology, lowered.text, lowered.size,
                                      opts->out ? &executable : NULL, result);
    if (status == LK_OK && opts->out)
        status = lk__durable_write(opts->out, executable, result->out_bytes);
    lk__free(executable);
    lk__lowered_free(&lowered);
    return status;
}

lk_status lk_compile(const lk_train_config *config, const lk_compile_opts *opts, lk_compile_result *result)
{
    lk_pjrt_plugin plugin;
    lk_train_config here = *config;
    *result = (lk_compile_result){.devices = 0};
    LK_TRY(lk__pjrt_file(opts->plugin, &plugin.path));
    LK_TRY(lk__pjrt_load(&plugin)); /* before data are looked for, which may be far away */
    /* Kernels of ref are not run, and have no layouts of their own. */
    here.devices = (lk_device_config){.spec = "ref:0", .shards = config->devices.shards};
    here.servers = (lk_server_config){.task_index = -1, .max_staleness = -1};
    lk__leave_out_evaluation(&here);
    lk__leave_out_checkpoints(&here);
    lk_trainer *trainer = lk_trainer_new(&here);
    if (!trainer)
        return lk_error_status();
    lk_status status = compile_pass(trainer, &plugin, opts, result);
    lk_trainer_release(trainer);
    return status;
}
