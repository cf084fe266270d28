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

# Another process decodes the pictures, for longer than the stall timeout.
export XDG_CACHE_HOME=$work/cache
for class in a b; do
    mkdir -p "$work/pictures/$class"
    for i in {1..4}; do
        printf 'P5\n4 4\n255\n0123456789abcdef' >"$work/pictures/$class/$i.pgm"
    done
done
waiting=(-n 2 --stall-timeout 2 -- train --model lenet --data "$work/pictures" --resize 28x28 --limit-val 0 --epochs 1
    --shards 8 --devices cpu:0 --workers 1)
launch 0 "${waiting[@]}"
rm "$work"/cache/lockstep/packed/*.pack
for lock in "$work"/cache/lockstep/packed/*.lock; do
    flock "$lock" sleep 6 &
done
launch 0 "${waiting[@]}"
wait
