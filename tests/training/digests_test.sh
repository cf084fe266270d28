#!/usr/bin/env bash
# Short runs of every model, strategy, dtype, optimizer and device kind, stopped and resumed as well, end with the
# digests kept in tests/data/digests. A change that is meant to keep every bit is checked by this test.
#
# Digests of CPU devices depend on oneDNN's version and on the instruction set, so each is kept under both. AVX2 runs on
# every processor this project supports. With AVX-512 oneDNN's loops also depend on the caches, so those digests are
# kept for one processor. The reference device and the emulated GPU depend on none of this. LOCKSTEP_KEEP_DIGESTS=1 adds
# the digests that are missing from the file.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

kept=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/data/digests
onednn=$("$LOCKSTEP" doctor 2>/dev/null | sed -n 's/^  oneDNN *\([0-9][0-9.]*\).*/\1/p' || true)
failures=0 compared=0 unknown=0

# check KIND NAME: the last run printed the two kept digests.
check()
{
    local key="$2 $1" found expected
    found=$(sed -nE 's/^(\[[a-z0-9]+\] )?(state )?digest ([0-9a-f]{32})$/\3/p' "$work/stdout" "$work/stderr" | tr '\n' ' ')
    [[ -n $found ]] || fail 'no digest was printed'
    expected=$(sed -n "s/^$key //p" "$kept")
    if [[ -z $expected ]]; then
        unknown=$((unknown + 1))
        [[ -z ${LOCKSTEP_KEEP_DIGESTS:-} ]] || echo "$key ${found% }" >>"$kept"
    elif [[ $expected != "${found% }" ]]; then
        echo "$key: found ${found% }, kept $expected"
        failures=$((failures + 1))
    else
        compared=$((compared + 1))
    fi
}

small=(--data synthetic --limit-train 64 --limit-val 16 --batch-size 32 --epochs 2 --seed 7)

# short KIND NAME ARGUMENT…: trains a few steps and checks the digests.
short()
{
    local kind=$1 name=$2
    shift 2
    run 0 train "${small[@]}" "$@"
    check "$kind" "$name"
}

# resumed KIND NAME ARGUMENT…: trains on two devices, removes the second epoch's checkpoints and trains it again on one.
resumed()
{
    local kind=$1 name=$2
    shift 2
    rm -rf "$work/checkpoints"
    run 0 train "${small[@]}" "$@" --shards 4 --devices 2 --checkpoint-dir "$work/checkpoints" --checkpoint-every 1
    check "$kind" "$name"
    rm -rf "$work/checkpoints/checkpoint-00000004" "$work/checkpoints/checkpoint-00000003"
    run 0 train "${small[@]}" "$@" --shards 4 --devices 1 --checkpoint-dir "$work/checkpoints" --checkpoint-every 1 --resume
    check "$kind" "$name"
}

# The cases with batch-norm name its groups, so that they stay what they are if a default changes.
cat >"$work/net.lk" <<'EOM'
conv2d 8 kernel=3
batch_norm
relu
max_pool 2
flatten
dense 32
relu
dropout 0.3
dense classes
EOM

# every_model KIND DEVICES: networks and dtypes.
every_model()
{
    local model dtype
    for dtype in f32 bf16; do
        for model in lenet keras-cnn resnet18 wrn-16-10; do
            short "$1" "$model-$dtype" --model "$model" --dtype "$dtype" --devices "$2" --shards 2 --bn shard --epochs 1
        done
        short "$1" "model-file-$dtype" --model "$work/net.lk" --dtype "$dtype" --devices "$2" --shards 2 --bn shard
    done
}

# every_setting KIND DEVICES: settings that change the result, one at a time.
every_setting()
{
    local groups=(--model "$work/net.lk" --devices "$2" --shards 4)
    local net=("${groups[@]}" --bn shard) optimizer
    for optimizer in sgd adam adamw lars; do
        short "$1" "$optimizer" "${net[@]}" --optimizer "$optimizer" --base-lr 0.01 --wd 0.001 --clip-norm 1
    done
    short "$1" nesterov "${net[@]}" --momentum 0.9 --nesterov --schedule cosine --warmup-epochs 1
    short "$1" accumulate "${net[@]}" --batch-size 16 --accumulate 2
    short "$1" last-batch "${net[@]}" --batch-size 24 --limit-train 61
    short "$1" bn-sync "${groups[@]}" --bn sync
    short "$1" bn-group "${groups[@]}" --bn-group 16
    short "$1" eager "${net[@]}" --executor eager
    short "$1" unfused "${net[@]}" --fuse off
    short "$1" recompute "${net[@]}" --recompute
    short "$1" augment "${net[@]}" --augment flip,shift=0.1 --label-smoothing 0.1
    short "$1" micro-batch --model lenet --devices "$2" --shards 2 --micro-batch 4
    short "$1" fast --recipe fashion-mnist-fast --devices "$2" --shards 2
    short "$1" direct --model keras-cnn --devices "$2" --shards 2 --algorithms direct
    resumed "$1" resumed-f32 --model "$work/net.lk" --bn shard --optimizer adam --base-lr 0.01
    resumed "$1" resumed-bf16 --model "$work/net.lk" --bn shard --dtype bf16 --momentum 0.9
}

# every_strategy KIND NAME ARGUMENT…: all synchronous strategies have the same digest, on any devices.
every_strategy()
{
    local net=(--model "$work/net.lk" --shards 4 "${@:3}")
    short "$1" "$2" "${net[@]}" --devices 1 --strategy one-device
    short "$1" "$2" "${net[@]}" --devices 2 --strategy mirrored
    short "$1" "$2" "${net[@]}" --devices 3 --strategy mirrored
    short "$1" "$2" "${net[@]}" --devices 2 --strategy central-storage
    if command -v mpirun >/dev/null && [[ -e $(dirname "$LOCKSTEP")/liblockstep_mpi.so ]]; then
        run 0 launch -n 2 -- train "${small[@]}" "${net[@]}" --devices 1
        check "$1" "$2"
    fi
    if "$LOCKSTEP" doctor 2>/dev/null | grep -E '^  ZeroMQ +[0-9]' >/dev/null; then
        run 0 launch --workers 2 --servers 1 -- train --strategy parameter-server --max-staleness 0 "${small[@]}" "${net[@]}"
        check "$1" "$2"
    fi
}

if [[ $onednn == [0-9]* ]]; then
    export LOCKSTEP_ISA=avx2
    every_model "avx2 $onednn" 2
    every_setting "avx2 $onednn" 2
    every_strategy "avx2 $onednn" strategies --bn shard
    every_strategy "avx2 $onednn" strategies-bn-group --bn-group 16
    every_strategy "avx2 $onednn" strategies-default
    if grep -qw avx512f /proc/cpuinfo && grep -qw avx512vl /proc/cpuinfo; then
        export LOCKSTEP_ISA=avx512
        processor=$(sed -nE 's/^(vendor_id|cpu family|model)[[:space:]]*: //p' /proc/cpuinfo | head -n 3 | paste -s -d -)
        every_model "avx512-$processor $onednn" 2
    fi
    unset LOCKSTEP_ISA
fi

short 'ref -' reference --model "$work/net.lk" --devices 2xref --shards 4 --bn shard --limit-train 32 --epochs 1
short 'ref -' reference-bf16 --model "$work/net.lk" --devices 2xref --shards 4 --bn shard --limit-train 32 --epochs 1 --dtype bf16

if [[ -f ${LOCKSTEP_CUDA_EMULATED:-} ]]; then
    export LOCKSTEP_CUDA_PLUGIN=$LOCKSTEP_CUDA_EMULATED
    short 'cuda -' emulated --model "$work/net.lk" --devices 2xcuda:0 --shards 4 --bn shard --limit-train 32
    for devices in 1xcuda:0 2xcuda:0 3xcuda:0; do
        short 'cuda -' emulated-bn-group --model "$work/net.lk" --devices $devices --shards 4 --bn-group 16
    done
    short 'cuda -' emulated-bf16 --model lenet --devices 2xcuda:0 --shards 4 --limit-train 32 --epochs 1 --dtype bf16
fi

echo "$compared digests compared, $unknown not in $kept, $failures differ"
[[ $failures -eq 0 ]] || exit 1
if [[ $compared -eq 0 ]]; then
    echo "SKIP: no digest is kept for oneDNN $onednn"
    exit 77
fi
