/* Lowers the training pass of a shard, which is recorded on a device of the processor, and compiles the module. */
#include "lockstep/compile.h"

#include "base/minmax.h"
#include "base/status.h"
#include "core/execute.h"
#include "pjrt/lower.h"
#include "pjrt/pjrt_topology.h"
#include "program/program.h"
#include "program/values.h"
#include "train/plan/choices.h"
#include "train/trainer.h"
#include "lockstep/pjrt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool compile_keeps(void *user, lk_storage *storage)
{
    const lk_program *program = user;
    int number = lk__number_of(&program->numbers, storage);
    return number >= 0 && program->values[number].kind != LK_VALUE_INSIDE;
}

static lk_status compile_lower(lk_program *program, lk_lowered *lowered)
{
    lk_lowering *lowering = lk__lowering_new();
    lk_status status = lowering ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < program->n_calls && status == LK_OK; i++)
        if (program->calls[i].op != &lk__op_plain)
            status = lk__lower_call(lowering, &program->calls[i]);
    if (status == LK_OK)
        status = lk__lowering_end(lowering, compile_keeps, program, lowered);
    lk__lowering_free(lowering);
    return status;
}

static lk_status compile_write_text(const char *path, const lk_lowered *lowered)
{
    FILE *file = fopen(path, "w");
    bool written = file && fwrite(lowered->text, 1, lowered->size, file) == lowered->size;
    written = (!file || fclose(file) == 0) && written;
    if (!written)
        LK_FAIL(LK_ERR_IO, "%s: %s", path, strerror(errno));
    return LK_OK;
}

static lk_status compile_pass(lk_trainer *trainer, const char *plugin, const lk_compile_opts *opts,
                              lk_compile_result *result)
{
    lk_program_opts separate = {.fuse = false};
    lk_lowered lowered;
    result->samples = lk__divide_up(trainer->plan.batch_size, trainer->plan.shards);
    lk_program *program = lk__record_pass(trainer, true, result->samples, &separate);
    if (!program)
        return lk_error_status();
    lk_status status = compile_lower(program, &lowered);
    result->operators = program->n_calls;
    lk_program_release(program);
    LK_TRY(status);
    result->text_bytes = lowered.size;
    if (opts->text)
        status = compile_write_text(opts->text, &lowered);
    if (status == LK_OK)
        status = lk__pjrt_compile_for(plugin, opts->topology, lowered.text, lowered.size, opts->out, result);
    lk__lowered_free(&lowered);
    return status;
}

lk_status lk_compile(const lk_train_config *config, const lk_compile_opts *opts, lk_compile_result *result)
{
    const char *plugin = opts->plugin ? opts->plugin : lk_pjrt_default_path();
    lk_train_config here = *config;
    *result = (lk_compile_result){.devices = 0};
    if (!plugin)
        LK_FAIL(LK_ERR_NOT_FOUND, "no PJRT plug-in is named: give its file, libtpu.so for TPUs, with --pjrt, "
                                  "$PJRT_PLUGIN_LIBRARY_PATH or $TPU_LIBRARY_PATH");
    here.devices.spec = "ref:0"; /* whose kernels are not run, and have no layouts of their own */
    here.devices.strategy = here.devices.pjrt = NULL;
    lk_trainer *trainer = lk_trainer_new(&here);
    if (!trainer)
        return lk_error_status();
    lk_status status = compile_pass(trainer, plugin, opts, result);
    lk_trainer_release(trainer);
    return status;
}
