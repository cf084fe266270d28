#!/usr/bin/env bash
# lockstep launch --max-restarts: killed ranks are restarted and end with the same bits as a run that is not disturbed.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

run 2 launch -n 2 --max-restarts 1 -- train
complains '--max-restarts' '--checkpoint-dir'
run 2 launch --workers 1 --max-restarts 1 -- train
complains '--max-restarts' '--checkpoint-dir'

training=(train --data synthetic --limit-train 256 --limit-val 40 --batch-size 64 --epochs 60 --shards 4 --devices cpu:0
    --workers 1 --seed "$mark" --momentum 0.9 --base-lr 0.01)

# begin_training RESTARTS: writing checkpoints is so slow that no machine finishes before ranks are killed. The last `--` must
# not part the options from the --resume that a restart adds.
begin_training()
{
    rm -rf "$work/checkpoints"
    LOCKSTEP_CHECKPOINT_SLOW=3 begin_launch -n 2 --max-restarts "$1" --log-dir "$work/ranks" -- "${training[@]}" \
        --checkpoint-dir "$work/checkpoints" --
}

checkpoint_is_after()
{
    [[ $(newest_checkpoint "$work/checkpoints") -gt $1 ]]
}

# kill_rank AFTER: kills rank 1 when there is a checkpoint after more steps than this.
kill_rank()
{
    until_true "a checkpoint after step $1" checkpoint_is_after "$1"
    kill -KILL "$(process_of_rank 1 'lockstep train')"
}

run 0 "${training[@]}"
wanted=$(sed -n 's/^digest //p' "$work/stderr")

begin_training 2
kill_rank 7
until_there 'restart 1 of at most 2' "$work/stderr"
# The killed ranks have ended, so the next checkpoints are those of the restarted ones.
kill_rank "$(($(newest_checkpoint "$work/checkpoints") + 4))"
ended 0 .
says 'starting all ranks again, from the last checkpoint: restart 2 of at most 2'
says 'going on from'
grep -qF "digest $wanted" "$work/stderr" || fail "not the digest $wanted"
[[ $(grep -c 'kernels' "$work/ranks/rank-0.log") -eq 3 ]] || fail 'the log of rank 0 is not of three starts'

begin_training 0
kill_rank 7
ended 1 .
says 'rank 1'

# A rank that is asked to end ends training, which does not restart.
begin_training 1
until_true 'a checkpoint after step 7' checkpoint_is_after 7
kill -TERM "$(process_of_rank 1 'lockstep train')"
ended 130 .
! grep -qF 'starting all ranks again' "$work/stderr" || fail 'it starts again after an interrupt'
