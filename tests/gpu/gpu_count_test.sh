#!/usr/bin/env bash
# What a step on one GPU launches, counted by tools/gpu_count. The numbers follow from the code alone: a change that adds a
# launch or a copy to a step is noticed here.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(dirname "$LOCKSTEP")
if [[ ! -f $build/tests/liblockstep_cuda_counter.so ]]; then
    echo "SKIP: there is no plug-in that counts, which takes a C++ compiler"
    exit 77
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "SKIP: there is no Python 3.10"
    exit 77
fi

# counts KERNELS COPIES NODES ARGUMENT…
counts()
{
    local expected="$1 kernels + $2 copies, $3 of them nodes of the graph"
    shift 3
    "$root/tools/gpu_count" --build "$build" "$@" >"$work/stdout"
    grep -qF ": $expected;" "$work/stdout" || {
        cat "$work/stdout"
        echo "gpu_count $*: not $expected"
        exit 1
    }
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

counts 40 2 38 lenet 256 bf16
counts 26 3 24 keras-cnn 512 bf16
counts 338 2 336 resnet18 512 bf16
counts 263 2 261 wrn-16-10 512 bf16

# More shards are more launches, and the estimate is named after the GPU.
counts 34 2 32 lenet 256 bf16 --gpu a100 -- --shards 1
grep -qE '^estimate for one A100, not measured: [0-9.]+ ms, [0-9]+ images/s$' "$work/stdout"
# Profilers are told of operators that are launched one by one, and of each step; every range ends.
LOCKSTEP_CUDA_PLUGIN=$build/tests/liblockstep_cuda_counter.so LOCKSTEP_CUDA_COUNTS=$work/counts LOCKSTEP_EMULATED_RUNS=no \
    LOCKSTEP_CUDA_RECORDED=$build/tests/liblockstep_cuda_emulated.so "$LOCKSTEP" train --model lenet --data synthetic \
    --devices cuda:0 --batch-size 8 --limit-train 48 --limit-val 0 --epochs 1 >"$work/stdout" 2>&1
steps=$(grep -c '^range step [0-9]*, part 1 of 1$' "$work/counts") && [[ $steps -eq 6 ]]
grep -q '^range conv2d$' "$work/counts"
[[ $(grep -c '^range ' "$work/counts") -eq $(grep -c '^end$' "$work/counts") ]]

if "$root/tools/gpu_count" --build "$build" no-such-network 8 f32 2>"$work/stderr"; then
    echo "gpu_count counts a network that there is not"
    exit 1
fi
grep -q '^gpu_count: .*no-such-network' "$work/stderr"
echo passed
