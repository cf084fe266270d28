#!/usr/bin/env bash
# lockstep launch --max-restarts: ranks that are killed are started again and end with the bits of a run that was left alone.
# shellcheck source=tests/cli_testing.sh
source "$(dirname "$0")/cli_testing.sh"
# shellcheck source=tests/launch_testing.sh
source "$(dirname "$0")/launch_testing.sh"

run 2 launch -n 2 --max-restarts 1 -- train
complains '--max-restarts' '--checkpoint-dir'
run 2 launch --workers 1 --max-restarts 1 -- train
complains '--max-restarts' '--checkpoint-dir'

needs_mpi

training=(train --data synthetic --limit-train 256 --limit-val 40 --batch-size 64 --epochs 60 --shards 4 --devices cpu:0
    --workers 1 --seed "$mark" --momentum 0.9)

# begin_launch RESTARTS: until there is a checkpoint of its own.
begin_launch()
{
    rm -rf "$work/checkpoints"
    # On no machine it is through before it is killed.
    LOCKSTEP_CHECKPOINT_SLOW=3 begin launch -n 2 --max-restarts "$1" --log-dir "$work/ranks" -- "${training[@]}" --checkpoint-dir "$work/checkpoints"
    trap clean_up EXIT
}

# The steps of the last checkpoint.
newest()
{
    local steps
    steps=$(find "$work/checkpoints" -name 'checkpoint-*' 2>/dev/null | sed 's/.*checkpoint-0*//' | sort -n | tail -n 1) || true
    echo "${steps:-0}"
}

# kill_rank AFTER: rank 1, once there is a checkpoint after more than so many steps.
kill_rank()
{
    local tries=0 id
    until [[ $(newest) -gt $1 ]]; do
        sleep 0.05
        tries=$((tries + 1))
        [[ $tries -lt 1200 ]] || fail "there is no checkpoint after step $1"
        kill -0 "$process" 2>/dev/null || fail "ended before there was a checkpoint after step $1"
    done
    for id in $(pgrep -f -- "^[^ ]*lockstep train .*--seed $mark"); do
        if tr '\0' '\n' <"/proc/$id/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1'; then
            kill -KILL "$id"
        fi
    done
}

run 0 "${training[@]}"
wanted=$(sed -n 's/^digest //p' "$work/stderr")

begin_launch 2
kill_rank 7
until_there 'restart 1 of at most 2' "$work/stderr"
# Those ranks are gone by now, so the next checkpoints are of ranks that have gone on.
kill_rank "$(($(newest) + 4))"
ends_with 0
trap clean_up EXIT
process=
says 'starting all ranks again, from the last checkpoint: restart 2 of at most 2'
says 'going on from'
grep -qF "digest $wanted" "$work/stderr" || fail "not the digest $wanted"
[[ $(grep -c 'kernels' "$work/ranks/rank-0.log") -eq 3 ]] || fail 'the log of rank 0 is not of three starts'
none_left

begin_launch 0
kill_rank 7
ends_with 1
trap clean_up EXIT
process=
says 'rank 1'
none_left
