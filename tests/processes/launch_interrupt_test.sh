#!/usr/bin/env bash
# If lockstep launch is interrupted while it starts, when some of its processes do not exist yet or do not handle
# signals yet, all processes end, and none is reported as killed.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

train=(-- train --model lenet --data synthetic --limit-train 256 --limit-val 0 --batch-size 64 --epochs 1000000 --shards 8
       --devices cpu:0 --workers 1 --base-lr 0.01 --seed "$mark")

# catches PROCESS NUMBER: the process has a handler for this signal.
catches()
{
    local mask
    mask=$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status" 2>/dev/null) || return 1
    [[ -n $mask ]] && (((16#$mask >> ($2 - 1)) & 1))
}

# first_of COMMAND: the first process with this command.
first_of()
{
    pgrep -f -- "^[^ ]*$1 .*--seed $mark" | head -n 1 | grep .
}

# --- stages of the start ---------------------------------------------------------------------------------------------

# Before it becomes lockstep, the process is a shell, which also handles interrupts.
launcher_is_ready()
{
    [[ $(cat "/proc/$process/comm") == lockstep ]] && catches "$process" 2
}

supervisor_is_there()
{
    first_of 'lockstep rank'
}

supervisor_is_ready()
{
    local id
    id=$(first_of 'lockstep rank') && catches "$id" 10
}

rank_is_there()
{
    first_of 'lockstep train'
}

rank_is_ready()
{
    local id
    id=$(first_of 'lockstep train') && catches "$id" 2
}

rank_trains()
{
    grep -q 'epoch *1/' "$work/stderr"
}

# until_just STAGE: like until_true, but without a sleep, so as not to miss the moment.
until_just()
{
    local began=$SECONDS
    until "$1" &>/dev/null; do
        kill -0 "$process" 2>/dev/null || fail "ended before $1"
        ((SECONDS - began < 120)) || fail "$1 does not come"
    done
}

for kind in '-n 2' '--workers 2'; do
    for moment in launcher_is_ready supervisor_is_there supervisor_is_ready rank_is_there rank_is_ready rank_trains; do
        # shellcheck disable=SC2086 # two words
        begin_launch $kind --stall-timeout 60 "${train[@]}"
        until_just "$moment"
        kill -INT "$process"
        ended 130 .
        ! grep -qE 'killed by signal|no progress' "$work/stderr" || fail "$kind, $moment: a process is called dead"
        says 'a second interrupt ends at once'
        echo "$kind, $moment: $(tail -n 1 "$work/stderr")"
    done
done

# One rank is interrupted while all wait for steps to make checkpoints.
for i in 1 2 3; do
    begin_launch -n 2 --stall-timeout 20 "${train[@]}" --checkpoint-dir "$work/checkpoints-$i" --checkpoint-every 1
    until_just rank_trains
    kill -TERM "$(process_of_rank 1 'lockstep train')"
    ended 130 '^\[[01]\] lockstep: training: interrupted in epoch'
done
