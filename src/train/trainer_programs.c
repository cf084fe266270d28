#include "train/trainer_programs.h"

#include "base/status.h"
#include "core/backend.h"
#include "optim/optimizer_step.h"
#include "train/step/cut_programs.h"
#include "train/step/shard_programs.h"
#include "train/step/step_program.h"
#include "train/trainer.h"

lk_status lk__trainer_programs_new(lk_trainer *trainer)
{
    if (trainer->config.execution.executor == LK_EXECUTOR_PROGRAM)
        LK_TRY(lk__shard_programs_new(&trainer->programs.shard));
    if (trainer->programs.shard && trainer->devices[0]->backend->modules)
        LK_TRY(lk__cut_programs_new(&trainer->programs.cut));
    LK_TRY(lk__step_programs_find_merging(trainer));
    if (lk__step_programs_fit(trainer))
        LK_TRY(lk__step_programs_new(&trainer->programs.step));
    if (lk__step_is_one_program(trainer))
        return lk__optimizer_prepare_recording(lk_replicas_optimizer(trainer->replicas, 0));
    return LK_OK;
}

void lk__trainer_programs_release(lk_trainer_programs *programs)
{
    lk__shard_programs_release(programs->shard);
    lk__cut_programs_release(programs->cut);
    lk__step_programs_release(programs->step);
}
