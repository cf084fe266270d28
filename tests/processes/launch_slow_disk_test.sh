#!/usr/bin/env bash
# The last checkpoint takes longer to write than the stall timeout of lockstep launch. Writing counts as progress, and
# so does waiting for the rank that writes, until all have ended.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

export LOCKSTEP_CHECKPOINT_SLOW=100
launch 0 -n 2 --stall-timeout 2 -- train --model lenet --data synthetic --limit-train 64 --limit-val 0 --batch-size 64 \
    --epochs 1 --shards 8 --devices cpu:0 --workers 1 --checkpoint-dir "$work/checkpoints"
[[ -n $(find "$work/checkpoints" -name manifest.json) ]] || fail "no checkpoint"
