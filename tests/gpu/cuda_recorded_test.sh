#!/usr/bin/env bash
# Trains on emulated GPUs under the recorder, which finds work that nothing orders even if the run went well: see
# tests/cuda_recorder.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

if [[ ! -f ${LOCKSTEP_CUDA_PLUGIN:-} || ! -f ${LOCKSTEP_CUDA_RECORDED:-} ]]; then
    echo "SKIP: there is no recorder over an emulated plug-in: it takes a C++ compiler"
    exit 77
fi

# orderly STATUS ARGUMENT…: as `run`, and checks that GPUs were used and nothing was reported.
orderly()
{
    run "$@"
    grep -qE '^cuda recorder: [1-9][0-9]* operations on [1-9][0-9]* streams, 0 reports$' "$work/stderr" ||
        fail "the recorder has seen nothing, or something wrong"
}

cat >"$work/net.lk" <<'END'
conv2d 4 kernel=3 padding=same bias=no
batch_norm
relu
max_pool 4
conv2d 8 kernel=3 padding=same
batch_norm
relu
global_avg_pool
dropout 0.2
dense classes
END

# On one GPU and on two, with evaluation and a last batch that is not full.
small=(--data synthetic --epochs 1 --limit-train 44 --limit-val 16 --batch-size 16 --shards 4)
grouped=(--model "$work/net.lk" "${small[@]}")
normalized=("${grouped[@]}" --bn shard)
for devices in cuda 2xcuda:0 3xcuda:0 2xcuda; do
    orderly 0 train --model lenet "${small[@]}" --devices "$devices"
    orderly 0 train "${normalized[@]}" --devices "$devices"
    orderly 0 train "${grouped[@]}" --bn-group 8 --devices "$devices" --bucket-mb 0.001
done
orderly 0 verify --model "$work/net.lk" --data synthetic --devices 1xcuda:0,2xcuda:0,3xcuda:0,2xcuda --steps 2 \
    --batch-size 8 --shards 4
line '^identical after 2 steps with 4 shards$'

for devices in 2xcuda:0 2xcuda; do
    orderly 0 train "${grouped[@]}" --devices "$devices" --bn sync
    orderly 0 train "${normalized[@]}" --devices "$devices" --recompute --optimizer lars
    orderly 0 train "${normalized[@]}" --devices "$devices" --optimizer adam --clip-norm 1 --dtype bf16
    orderly 0 train "${normalized[@]}" --devices "$devices" --executor eager --bucket-mb 0.001
    orderly 0 train "${normalized[@]}" --devices "$devices" --accumulate 2 --branches 2 --bucket-mb 0.001
done
for devices in cuda 2xcuda:0; do
    orderly 0 train "${normalized[@]}" --devices "$devices" --augment rotate=20,contrast=0.3,rand=9,mixup=0.4
done
orderly 0 train "${normalized[@]}" --devices cuda --accumulate 2
orderly 0 train "${normalized[@]}" --devices cuda:0,cuda:1,cuda:0 --bucket-mb 0.001
orderly 0 train "${normalized[@]}" --devices 2xcuda --reduce nccl
LOCKSTEP_ENGINE=sync orderly 0 train "${normalized[@]}" --devices 2xcuda
orderly 0 train "${normalized[@]}" --devices 2xcuda --strategy central-storage
orderly 0 train "${normalized[@]}" --devices 2xcuda --strategy central-storage --storage cuda:1 --optimizer adam

# Exchanges gradients by copies; above NCCL did it.
export LOCKSTEP_EMULATED_GPUS=3
LOCKSTEP_EMULATED_NCCL=no orderly 0 train "${normalized[@]}" --devices 3xcuda --bucket-mb 0.001
orderly 0 train "${normalized[@]}" --devices 3xcuda --reduce nccl
unset LOCKSTEP_EMULATED_GPUS

# Runs so many steps that events are reused.
orderly 0 train --model "$work/net.lk" --data synthetic --epochs 2 --limit-train 240 --limit-val 8 --batch-size 8 \
    --devices 2xcuda:0

# After a failure, too, everything is released in order.
LOCKSTEP_EMULATED_MEMORY=2000000 orderly 1 train --model lenet "${small[@]}" --devices 2xcuda
says 'out of memory on GPU '

LOCKSTEP_EXCHANGE_TIMEOUT=1 LOCKSTEP_EMULATED_NCCL_STALLS=4 orderly 1 train --model lenet "${small[@]}" --devices 2xcuda
says 'the exchange between GPUs has stood still for 1 s'

for given in 5 200 400; do
    LOCKSTEP_EMULATED_LOST=$given orderly 1 train --model lenet "${small[@]}" --devices 2xcuda:0
    says 'unspecified launch failure (cudaErrorLaunchFailure)'
done
