#!/usr/bin/env bash
# A loss of power at any moment leaves the old checkpoint or the new one, whole, and the records that it counts on:
# power_loss.c replays what a training has written.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

tests=$(dirname "$LOCKSTEP")/tests
if [[ ! -e $tests/liblockstep_faults.so ]]; then
    echo "SKIP: $tests/liblockstep_faults.so is not there"
    exit 77
fi
work=$(realpath "$work")
cat >"$work/tiny.lk" <<'END'
flatten
dense 4
relu
dense classes
END

# record ARGUMENT…: trains, and records what that changes.
record()
{
    mkdir -p "$work/root"
    export LOCKSTEP_FAULT_LOG=$work/log LOCKSTEP_FAULT_ROOT=$work/root
    LD_PRELOAD=$tests/liblockstep_faults.so run 0 train --model "$work/tiny.lk" --data synthetic --limit-train 64 \
        --limit-val 32 --batch-size 32 --shards 2 --momentum 0.9 --seed 5 --devices 2 --checkpoint-dir "$work/root/kept" \
        --checkpoint-every 1 --log-dir "$work/root/log" "$@"
    unset LOCKSTEP_FAULT_LOG LOCKSTEP_FAULT_ROOT
}

record --epochs 2 --keep 1
# Thousands of states are built, so memory is better than a disk.
if [[ -w /dev/shm ]]; then
    memory=$(mktemp -d -p /dev/shm)
    trap 'rm -rf "$work" "$memory"' EXIT
fi
"$tests/power_loss" "$work/log" "${memory:-$work}/scratch" kept log
