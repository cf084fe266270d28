#!/usr/bin/env bash
# The command on CUDA devices, with the plug-in that runs kernels on the processor: see tests/cuda_emulated.
# shellcheck source=tests/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/cli_testing.sh"

plugin=${LOCKSTEP_CUDA_EMULATED:-}
if [[ ! -f $plugin ]]; then
    echo "SKIP: there is no emulated plug-in: it takes a C++ compiler"
    exit 77
fi

# --- without a plug-in, or a GPU -------------------------------------------------------------------------------------

export LOCKSTEP_CUDA_PLUGIN=$work/none.so
run 1 train --devices cuda --data synthetic
complains 'cuda:0: no CUDA: ' "$work/none.so"
run 0 doctor
prints '  no CUDA: '

bytes 00 >"$work/none.so"
run 1 train --devices cuda --data synthetic
complains 'cuda:0: no CUDA: ' "$work/none.so"

export LOCKSTEP_CUDA_PLUGIN=$plugin
export LOCKSTEP_EMULATED_GPUS=0
run 1 train --devices cuda --data synthetic
complains 'cuda:0: no GPU: '

export LOCKSTEP_EMULATED_GPUS=2
run 1 train --devices cuda:2 --data synthetic
complains 'cuda:2: there is no such GPU: the last is cuda:1'
run 0 doctor
line '^  cuda:1 +emulated GPU 1, compute capability 9.0, .*reaches cuda:0$'

# --- training --------------------------------------------------------------------------------------------------------

# What the number of devices must not change, on one GPU and on two.
for model in lenet keras-cnn; do
    run 0 verify --model "$model" --data synthetic --devices 1xcuda:0,2xcuda:0,3xcuda:0,2xcuda --steps 2 --batch-size 8 \
        --shards 4
    line '^identical after 2 steps with 4 shards$'
done

# $1: its digest with what follows.
digest()
{
    run 0 train --model lenet --data synthetic --devices 2xcuda:0 --epochs 1 --limit-train 64 --limit-val 32 --batch-size 16 \
        --shards 4 "$@"
    grep '^digest' "$work/stderr"
}
plain=$(digest)
[[ $(digest --executor eager --fuse off) == "$(digest --fuse off)" ]] || fail "eager gives other bits than a program"
[[ $(LOCKSTEP_ENGINE=sync digest) == "$plain" ]] || fail "the synchronous engine gives other bits"
digest --optimizer adam --clip-norm 1 --dtype bf16 >/dev/null

# The hash in the plan of the last run.
hash_in_plan()
{
    sed -nE 's/^  kernels .* hash ([0-9a-f]{16})$/\1/p' "$work/stderr"
}

digest >/dev/null
hash=$(hash_in_plan)
[[ $(digest --tf32) != "$plain" ]] || fail "--tf32 gives the bits of f32"
says '  kernels   fast, tf32, hash '
[[ $(hash_in_plan) != "$hash" ]] || fail "the hash does not tell --tf32"
run 0 verify --model lenet --data synthetic --devices 1xcuda:0,2xcuda:0 --steps 2 --batch-size 8 --tf32
line '^identical after 2 steps with '
run 2 train --devices cuda:0,cpu:0 --data synthetic --tf32
complains '--tf32: must be with --devices cuda: cpu:0 has no such arithmetic'

# --- memory ----------------------------------------------------------------------------------------------------------

export LOCKSTEP_EMULATED_MEMORY=2000000
run 1 train --model lenet --data synthetic --devices cuda --epochs 1 --limit-train 64 --batch-size 32
says 'out of memory on GPU 0: '
