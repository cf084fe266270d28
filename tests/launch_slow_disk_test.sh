#!/usr/bin/env bash
# lockstep launch where the last checkpoint takes longer to be written than a rank may be without progress: writing is
# progress, and so is waiting for the rank that writes, up to the end of all.
# shellcheck source=tests/cli_testing.sh
source "$(dirname "$0")/cli_testing.sh"
# shellcheck source=tests/launch_testing.sh
source "$(dirname "$0")/launch_testing.sh"

needs_mpi

export LOCKSTEP_CHECKPOINT_SLOW=100
launch 0 -n 2 --stall-timeout 2 -- train --model lenet --data synthetic --limit-train 64 --limit-val 0 --batch-size 64 \
    --epochs 1 --shards 8 --devices cpu:0 --workers 1 --checkpoint-dir "$work/checkpoints"
[[ -n $(find "$work/checkpoints" -name manifest.json) ]] || fail "no checkpoint"
