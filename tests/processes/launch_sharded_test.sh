#!/usr/bin/env bash
# Processes that divide the optimizer's state are killed, restarted and interrupted, and end with the bits of a run that is
# not disturbed: a checkpoint, in which all take part, is made at the same step everywhere.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

training=(train --model lenet --data synthetic --limit-train 256 --limit-val 40 --batch-size 64 --epochs 40 --shards 4
    --devices cpu:0 --workers 1 --seed "$mark" --optimizer adam --base-lr 0.001)
run 0 "${training[@]}"
wanted=$(sed -n 's/^digest //p' "$work/stderr")
state=$(sed -n 's/^state digest //p' "$work/stderr")
training+=(--optimizer-state sharded --checkpoint-dir "$work/checkpoints")

ends_alike()
{
    grep -qxF "[0] digest $wanted" "$work/stderr" || fail "not the digest $wanted"
    grep -qxF "[0] state digest $state" "$work/stderr" || fail "not the state digest $state"
}

checkpoint_is_after()
{
    [[ $(newest_checkpoint "$work/checkpoints") -gt $1 ]]
}

# Writing checkpoints is so slow that no machine finishes before a rank is killed.
LOCKSTEP_CHECKPOINT_SLOW=3 begin_launch -n 3 --max-restarts 1 -- "${training[@]}"
until_true 'a checkpoint after step 7' checkpoint_is_after 7
kill -KILL "$(process_of_rank 1 'lockstep train')"
ended 0 .
says 'restart 1 of at most 1'
ends_alike

# A rank that is interrupted ends the others after the same step, and all give their part to the last checkpoint.
rm -rf "$work/checkpoints"
resume=()
for every in 1 3 0.0001m epoch; do
    before=$(newest_checkpoint "$work/checkpoints")
    LOCKSTEP_CHECKPOINT_SLOW=3 begin_launch -n 2 -- "${training[@]}" --checkpoint-every $every "${resume[@]}"
    until_true "a checkpoint after step $before" checkpoint_is_after "$before"
    kill -TERM "$(process_of_rank 1 'lockstep train')"
    ended 130 '^\[[01]\] lockstep: training: interrupted in epoch'
    resume=(--resume)
done
begin_launch -n 4 -- "${training[@]}" "${resume[@]}"
ended 0 .
says 'going on from'
ends_alike
