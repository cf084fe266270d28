#!/usr/bin/env bash
# An interrupt of lockstep launch at any moment of its beginning, when some of its processes are not there yet or not
# ready for it, ends all of them, and nobody is called dead because of it.
# shellcheck source=tests/cli_testing.sh
source "$(dirname "$0")/cli_testing.sh"
# shellcheck source=tests/launch_testing.sh
source "$(dirname "$0")/launch_testing.sh"

needs_mpi

train=(-- train --model lenet --data synthetic --limit-train 256 --limit-val 0 --batch-size 64 --epochs 1000000 --shards 8
       --devices cpu:0 --workers 1 --seed "$mark")

# Whether process $1 has a handler for signal number $2.
catches()
{
    local mask
    mask=$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status" 2>/dev/null) || return 1
    [[ -n $mask ]] && (((16#$mask >> ($2 - 1)) & 1))
}

# The first process that is $1 in the list of processes.
first_of()
{
    pgrep -f -- "^[^ ]*$1 .*--seed $mark" | head -n 1 | grep .
}

# --- how far the beginning is -----------------------------------------------------------------------------------------

# Before it is lockstep it is a shell, which catches interrupts, too.
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

# As until_true, but that nothing is slept through.
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
        begin launch $kind --stall-timeout 60 "${train[@]}"
        trap clean_up EXIT
        until_just "$moment"
        kill -INT "$process"
        ended 130 .
        ! grep -qE 'killed by signal|no progress' "$work/stderr" || fail "$kind, $moment: a process is called dead"
        says 'a second interrupt ends at once'
        echo "$kind, $moment: $(tail -n 1 "$work/stderr")"
    done
done
