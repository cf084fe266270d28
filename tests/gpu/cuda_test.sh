#!/usr/bin/env bash
# The command line on CUDA devices, with the plug-in that runs kernels on the CPU: see tests/cuda_emulated.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

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
train_on_two()
{
    run 0 train --model lenet --data synthetic --devices 2 --epochs 1 --limit-train 32 --limit-val 16 --batch-size 16 --shards 2
}
train_on_two
if grep -q 'on the devices' "$work/stderr"; then
    fail "a number without a kind means GPUs where there are none"
fi

bytes 00 >"$work/none.so"
run 1 train --devices cuda --data synthetic
complains 'cuda:0: no CUDA: ' "$work/none.so"

export LOCKSTEP_CUDA_PLUGIN=$plugin
# A library that the plug-in needs is missing.
if [[ -f ${LOCKSTEP_CUDA_INCOMPLETE:-} ]]; then
    LOCKSTEP_CUDA_PLUGIN=$LOCKSTEP_CUDA_INCOMPLETE run 1 train --devices cuda --data synthetic
    complains 'cuda:0: no CUDA: liblockstep_absent.so: cannot open shared object file' \
        'the plug-in for CUDA needs it; install it, or name its folder in LD_LIBRARY_PATH'
fi

# So is the one by which cuDNN compiles kernels; this shows only once a GPU computes.
LOCKSTEP_EMULATED_NVRTC=no run 1 train --model lenet --devices cuda --data synthetic --epochs 1 --limit-train 32 --limit-val 16
complains 'NVRTC cannot be loaded [on cuda:0]'

export LOCKSTEP_EMULATED_GPUS=0
run 1 train --devices cuda --data synthetic
complains 'cuda:0: no GPU: '
# Messages name versions that may be the reason.
run 0 doctor
line '^  driver [0-9.]+, CUDA [0-9.]+, cuBLASLt [0-9.]+, cuDNN [0-9.]+'
line '^  cuda:0: no GPU: CUDA: .*\(cudaErrorNoDevice\): see nvidia-smi'
LOCKSTEP_EMULATED_DRIVER=0 LOCKSTEP_EMULATED_FAIL=count:2:35 run 0 doctor
line '^  no driver, CUDA [0-9.]+, '
line '^  cuda:0: no GPU: CUDA: .*: there is no driver; install '

export LOCKSTEP_EMULATED_GPUS=2
train_on_two
says ' for validation, on the devices'
run 0 verify --model lenet --data synthetic --devices 1,2 --steps 1 --batch-size 8 --shards 2
[[ $(grep -cE '^[12]xcuda +[0-9a-f]{32}$' "$work/stdout") == 2 ]] || fail "a number does not mean GPUs to verify"
run 1 train --devices cuda:2 --data synthetic
complains 'cuda:2: there is no such GPU: the last is cuda:1'
run 0 doctor
line '^  cuda:1 +emulated GPU, compute capability 9.0, .*reaches cuda:0 by a link that NVML does not tell of$'
LOCKSTEP_EMULATED_GPUS=4 LD_LIBRARY_PATH=$LOCKSTEP_EMULATED_NVML run 0 doctor
line '^  cuda:0 .*, reaches cuda:1 by NVLink \(2 links\), reaches cuda:2 by PCIe between NUMA nodes, reaches cuda:3 by a link that NVML'
line '^  cuda:2 .*, reaches cuda:0 by PCIe between NUMA nodes, reaches cuda:1 by PCIe between NUMA nodes, '

# --- training --------------------------------------------------------------------------------------------------------

# Digests must not depend on the number of devices: one GPU and two.
for model in lenet keras-cnn; do
    run 0 verify --model "$model" --data synthetic --devices 1xcuda:0,2xcuda:0,3xcuda:0,2xcuda --steps 2 --batch-size 8 \
        --shards 4
    line '^identical after 2 steps with 4 shards$'
done

# $1: the digest that is expected with the arguments that follow.
digest()
{
    run 0 train --model lenet --data synthetic --devices 2xcuda:0 --epochs 1 --limit-train 32 --limit-val 16 --batch-size 16 \
        --shards 4 "$@"
    grep '^digest' "$work/stderr"
}
plain=$(digest)
[[ $(digest --executor eager --fuse off) == "$(digest --fuse off)" ]] || fail "eager gives other bits than a program"
[[ $(LOCKSTEP_ENGINE=sync digest) == "$plain" ]] || fail "the synchronous engine gives other bits"
digest --optimizer adam --clip-norm 1 --dtype bf16 >/dev/null

# On one GPU a whole step is one program and one graph. The last batch is smaller.
cat >"$work/net.lk" <<'END'
conv2d filters=8 kernel=3 padding=1 bias=no
batch_norm
relu
max_pool kernel=2
dropout rate=0.3
flatten
dense units=10
END
step()
{
    run 0 train --model "$work/net.lk" --data synthetic --epochs 2 --limit-train 75 --limit-val 32 --batch-size 16 --shards 4 \
        --optimizer adam --clip-norm 1 "${norm[@]}" "$@"
    grep '^digest' "$work/stderr"
}
norm=(--bn-group 8)
grouped=$(step --devices 1xcuda:0)
for way in '1xcuda:0 --graphs off' '2xcuda:0 --bucket-mb 0.001' '3xcuda:0 --branches 2'; do
    # shellcheck disable=SC2086 # words of a command
    [[ $(step --devices $way) == "$grouped" ]] || fail "other bits of groups of batch-norm than in one graph"
done
norm=(--bn shard)
whole=$(step --devices 1xcuda:0)
for way in '1xcuda:0 --graphs off' '1xcuda:0 --branches 1' '1xcuda:0 --branches 16 --recompute' '2xcuda:0'; do
    # shellcheck disable=SC2086 # words of a command
    [[ $(step --devices $way) == "$whole" ]] || fail "other bits than a step in one graph"
done
# With several GPUs, or several batches for an update, the passes of a GPU are one program, cut where a bucket is finished.
for way in '2xcuda:0 --graphs off' '2xcuda:0 --branches 1 --bucket-mb 0.001' \
    '3xcuda:0 --branches 2 --bucket-mb 0.0005 --recompute' '2xcuda --bucket-mb 0'; do
    # shellcheck disable=SC2086 # words of a command
    [[ $(step --devices $way) == "$whole" ]] || fail "other bits than a step in one graph"
done
accumulated=$(step --devices 1xcuda:0 --accumulate 2 --branches 1)
[[ $accumulated != "$whole" ]] || fail "updates of two batches are those of one"
for way in '1xcuda:0' '1xcuda:0 --graphs off' '2xcuda:0 --branches 2 --bucket-mb 0.001' '3xcuda:0 --recompute'; do
    # shellcheck disable=SC2086 # words of a command
    [[ $(step --accumulate 2 --devices $way) == "$accumulated" ]] || fail "other bits of an update of two batches"
done

# Batch-norm's passes take in max pooling and the gradient of a shortcut's bias: the same bits on any devices, and resumed.
cat >"$work/pooled.lk" <<'END'
conv2d filters=8 kernel=3 stride=4 padding=1
block1: sequential
  residual
    conv2d filters=16 kernel=3 padding=1
    batch_norm
    relu
  shortcut
    conv2d filters=16 kernel=1
  end
end
block2: sequential
  residual
    conv2d filters=16 kernel=3 padding=1
    batch_norm
    relu
  end
end
max_pool kernel=2
residual
  conv2d filters=16 kernel=3 padding=1
end
relu
avg_pool kernel=3
flatten
dense units=10
END
pooled()
{
    run 0 train --model "$work/pooled.lk" --data synthetic --epochs 2 --limit-train 75 --limit-val 32 --batch-size 16 --shards 4 \
        --bn shard --dtype bf16 "$@"
    grep '^digest' "$work/stderr"
}
in_one_graph=$(pooled --devices 1xcuda:0)
for way in '1xcuda:0 --branches 4' '2xcuda:0' '4xcuda:0'; do
    # shellcheck disable=SC2086 # words of a command
    [[ $(pooled --devices $way) == "$in_one_graph" ]] || fail "other bits of pooling inside batch-norm than in one graph"
done
pooled --devices 2xcuda:0 --epochs 1 --checkpoint-dir "$work/pooled" >/dev/null
[[ $(pooled --devices 1xcuda:0 --checkpoint-dir "$work/pooled" --resume) == "$in_one_graph" ]] || fail "resumed, it gives other bits"

# If a launch fails during a capture the step runs without a graph, with the same bits.
kept=no
for launch in 115 100 130 90 80 70; do
    LOCKSTEP_EMULATED_FAIL=launch:$launch:2 "$LOCKSTEP" train --model "$work/net.lk" --data synthetic --epochs 2 --limit-train 75 \
        --limit-val 32 --batch-size 16 --shards 4 --optimizer adam --clip-norm 1 "${norm[@]}" --devices 1xcuda:0 2>"$work/stderr" || continue
    grep -q 'a program is not launched as a graph: ' "$work/stderr" || continue
    kept=yes
    [[ $(grep '^digest' "$work/stderr") == "$whole" ]] || fail "other bits where a graph could not be made"
    break
done
[[ $kept == yes ]] || fail "no launch failed while a graph was made"

# Merged shards need more memory. If it is not there, 4 are computed at a time, with the same bits.
merged()
{
    LOCKSTEP_EMULATED_MEMORY=$1 run 0 train --model "$work/net.lk" --data synthetic --epochs 1 --limit-train 512 --limit-val 0 \
        --batch-size 512 --shards 16 --bn shard --devices 1xcuda:0
    says "$2"
    grep '^digest' "$work/stderr"
}
together=$(merged 80000000 '  memory    4')
[[ $(merged 30000000 '  memory    1') == "$together" ]] || fail "other bits where merged shards do not fit"

# Prints the hash in the plan of the last run.
hash_in_plan()
{
    sed -nE 's/^  kernels .* hash ([0-9a-f]{16})$/\1/p' "$work/stderr"
}

# Training resumes from a checkpoint with whole steps as programs: on one device and on two.
digest --checkpoint-dir "$work/whole" --checkpoint-every 1 --optimizer adam >/dev/null
adam=$(grep '^digest' "$work/stderr")
for devices in 1xcuda 2xcuda:0; do
    mkdir -p "$work/half"
    cp -r "$work/whole/checkpoint-00000001" "$work/half"
    [[ $(digest --checkpoint-dir "$work/half" --optimizer adam --resume --devices $devices) == "$adam" ]] ||
        fail "a resumed run on $devices has other bits"
    rm -rf "$work/half"
done
run 2 train --model lenet --data synthetic --devices 1xcpu --epochs 1 --limit-train 32 --limit-val 16 --batch-size 16 \
    --shards 4 --checkpoint-dir "$work/whole" --optimizer adam --resume
complains 'implementations (of a device, processor and libraries) was' '--override'
digest >/dev/null
hash=$(hash_in_plan)
[[ $(digest --tf32) != "$plain" ]] || fail "--tf32 gives the bits of f32"
says '  kernels   fast, tf32, hash '
[[ $(hash_in_plan) != "$hash" ]] || fail "the hash does not tell --tf32"
# The choices of libraries are listed, hashed and required again; another version or GPU is noticed.
digest --log-dir "$work/log" >/dev/null
hash=$(hash_in_plan)
list=$(echo "$work"/log/algorithms*.txt)
holds "$list" 'GPU emulated GPU, compute capability 9.0, ' 'cuDNN 1.0.0' 'conv2d f32 x[4,1,28,28] w[20,1,3,3] ' \
    'matmul f32 a[4,800] b[800,128] bias' ' = emulated:1.0.0'
digest --algorithms "$list" >/dev/null
sed -E 's/^(matmul .*) = .*/\1 = other/' "$list" >"$work/other.txt"
run 1 train --model lenet --data synthetic --devices cuda --limit-train 64 --batch-size 16 --shards 4 \
    --algorithms "$work/other.txt"
complains "tuning $work/other.txt: matmul f32 " 'must run on other, but emulated: no engine other'
export LOCKSTEP_EMULATED_VERSION=1.0.1
run 1 train --data synthetic --devices cuda --algorithms "$list"
complains 'cuBLASLt 1.0.0' 'cuBLASLt 1.0.1'
digest >/dev/null
[[ $(hash_in_plan) != "$hash" ]] || fail "the hash does not tell versions of libraries"
unset LOCKSTEP_EMULATED_VERSION
LOCKSTEP_EMULATED_OTHER=0 digest >/dev/null
[[ $(hash_in_plan) != "$hash" ]] || fail "the hash does not tell GPUs"
LOCKSTEP_EMULATED_OTHER=1 run 0 train --model lenet --data synthetic --devices 2xcuda --epochs 1 --limit-train 32 \
    --limit-val 16 --batch-size 16 --shards 4
says 'cuda:1 is GPU other emulated GPU'
[[ $(hash_in_plan) != "$hash" ]] || fail "the hash does not tell that GPUs differ"

# tune FILE ARGUMENT…: measures the engines of convolutions and products of `digest`, the first of which is slow.
tune()
{
    LOCKSTEP_EMULATED_SLOW=8 run 0 tune --model lenet --data synthetic --devices cuda --limit-train 32 --limit-val 16 \
        --batch-size 16 --shards 4 --samples 1 --out "$@"
}
tune "$work/tuned.txt"
line '^conv2d_input_grad +emulated:1\.0\.0 +[0-9.]+ .* f32 x\[4,20,13,13\] w\[50,20,5,5\] '
line '^([1-9]|1[01]) of 11 choices are not the built-in ones\. A step takes [0-9.]+ ms with them, '
holds "$work/tuned.txt" ' bias = emulated:1.0.0_split' 'matmul f32 a[4,800] b[800,128] bias to f32 = emulated:1.0.0_split'
digest --algorithms "$work/tuned.txt" >/dev/null
# A tuning pins engines by their names: bits depend on nothing else.
pin()
{
    sed -E "/^(${2:-conv|matmul})/s/ = .*/ = emulated:1.0.0_split2/" "$1" >"$work/pinned.txt"
}
pin "$work/tuned.txt" matmul
sed -i -E '/^conv/d' "$work/pinned.txt"
[[ $(digest --algorithms "$work/pinned.txt") != "$plain" ]] || fail "other engines of products have the same bits"
pin "$work/tuned.txt"
pinned=$(digest --algorithms "$work/pinned.txt" --checkpoint-dir "$work/pins" --checkpoint-every 1 --log-dir "$work/pinned")
[[ $pinned != "$plain" ]] || fail "other engines have the same bits"
cmp "$work/pinned.txt" "$work"/pinned/algorithms*.txt || fail "the list is not the tuning"
for way in '1xcuda:0' '4xcuda:0' '2xcuda' '1xcuda:0 --branches 1' '1xcuda:0 --graphs off'; do
    # shellcheck disable=SC2086 # words of a command
    [[ $(digest --algorithms "$work/pinned.txt" --devices $way) == "$pinned" ]] || fail "other bits with a tuning on $way"
done
[[ $(digest --algorithms "$work/pinned.txt" --executor eager --fuse off) == "$(digest --algorithms "$work/pinned.txt" --fuse off)" ]] ||
    fail "eager gives other bits with a tuning"
run 0 verify --model lenet --data synthetic --devices 1xcuda:0,2xcuda:0,4xcuda:0 --steps 2 --batch-size 16 --shards 4 \
    --algorithms "$work/pinned.txt"
line '^identical after 2 steps with 4 shards, '
# The checkpoint has the tuning.
rm -r "$work/pins/checkpoint-00000002"
mv "$work/pinned.txt" "$work/gone.txt"
[[ $(digest --algorithms "$work/pinned.txt" --checkpoint-dir "$work/pins" --resume --devices 1xcuda:0) == "$pinned" ]] ||
    fail "a resumed run has other bits"
# A problem of f32 that stands for one of bf16.
export LOCKSTEP_EMULATED_BF16_CONV=no
half=$(digest --dtype bf16)
tune "$work/tuned.txt" --dtype bf16
holds "$work/tuned.txt" 'conv2d tf32 x[4,1,28,28] '
pin "$work/tuned.txt"
[[ $(digest --dtype bf16 --algorithms "$work/pinned.txt") != "$half" ]] || fail "no engine is pinned where bf16 has none"
unset LOCKSTEP_EMULATED_BF16_CONV
# An engine that is not there, a line that is none, and problems that do not occur.
cannot()
{
    run 1 train --model lenet --data synthetic --devices cuda --limit-train 64 --batch-size 16 --shards 4 --algorithms "$1"
}
sed 's/_split2$/_split9/' "$work/gone.txt" >"$work/none.txt"
cannot "$work/none.txt"
complains "tuning $work/none.txt: conv2d f32 x[4,1,28,28] w[20,1,3,3] " ': must run on emulated:1.0.0_split9, but '
grep -q ', but emulated: no engine emulated:1.0.0_split9$' "$work/stderr" || fail "the reason is not the line's end"
sed '2s/ = .*//' "$work/gone.txt" >"$work/none.txt"
cannot "$work/none.txt"
complains "tuning $work/none.txt, line 2: must be 'OPERATOR PROBLEM = IMPLEMENTATION'"
sed 's/\[4,/[5,/' "$work/gone.txt" | grep -v '^matmul' >"$work/none.txt"
digest --algorithms "$work/none.txt" >/dev/null
says "none of the 5 problems of $work/none.txt occurs in this training"

run 0 verify --model lenet --data synthetic --devices 1xcuda:0,2xcuda:0 --steps 2 --batch-size 8 --tf32
line '^identical after 2 steps with '
run 2 train --devices cuda:0,cpu:0 --data synthetic --tf32
complains '--tf32: must be with --devices cuda: cpu:0 has no such arithmetic'

# --- recordings and profiles -----------------------------------------------------------------------------------------

[[ $(digest --trace "$work/run.json") == "$plain" ]] || fail "a recording changes bits"
holds "$work/run.json" '"name":"cuda:0"' '"name":"conv'

run 0 profile --model lenet --data synthetic --devices 2xcuda:0 --steps 3 --warmup 2 --batch-size 16 --shards 2 \
    --trace "$work/profile.json"
line '^peak of a device, f32, measured: [0-9.]+ GFLOP/s .*; a copy in its memory: [0-9.]+ GB/s$'
line '^operator .* of peak  of copy  inputs'
line '^conv[a-z0-9_]+ +6 +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+% +[0-9]+%  f32\['
line '^Bound by '
sed -n '/^a step/,/^$/p' "$work/stdout" | awk 'NR > 1 && NF { sub(/%$/, "", $(NF - 2)); sum += $(NF - 2) }
    END { exit !(sum > 99.6 && sum < 100.4) }' || fail 'the parts do not add up'
# An operator's time is that on the GPU, which is most of a program's time; launching takes little of it.
awk '/^all operators/ { sub(/%/, "", $5); all = $5 } /^compute / { sub(/%/, "", $3); compute = $3 }
    END { exit !(all > compute / 3) }' "$work/stdout" || fail "operators have the times of their start"
run 0 profile --model lenet --data synthetic --devices cuda --steps 1 --warmup 1 --batch-size 8 --tf32
line '^peak of a device, tf32, measured: [0-9.]+ GFLOP/s'
run 0 profile --model lenet --data synthetic --devices cuda --steps 1 --warmup 0 --batch-size 8 --dtype bf16
line '^peak of a device, bf16, measured: [0-9.]+ GFLOP/s; a copy in its memory: [0-9.]+ GB/s$'

# --- data on the device ----------------------------------------------------------------------------------------------

prepared=(--augment 'shift=0.2,flip,crop=3,cutout=6' --normalize standard --ledger)
by_host=$(digest "${prepared[@]}" --data-on host)
[[ $(digest "${prepared[@]}") == "$by_host" ]] || fail "images that a GPU prepares have other bits"
says ' for validation, on the devices'
says '  ledger: 32 training samples used once, 0 unused, 0 more than once'
prepared=(--augment 'vflip,rotate=20,brightness=0.2,contrast=0.3,rand=9,erase=0.5,mixup=0.4' --normalize standard)
by_host=$(digest "${prepared[@]}" --data-on host)
for devices in 1xcuda:0 2xcuda:0 4xcuda:0; do
    [[ $(digest "${prepared[@]}" --data-on device --devices $devices) == "$by_host" ]] ||
        fail "images that $devices prepare have other bits"
done
digest "${prepared[@]}" --data-on device --checkpoint-dir "$work/prepared" --checkpoint-every 1 >/dev/null
rm -r "$work/prepared/checkpoint-00000002"
[[ $(digest "${prepared[@]}" --data-on device --devices 1xcuda:0 --checkpoint-dir "$work/prepared" --resume) == "$by_host" ]] ||
    fail "a resumed run prepares other images"

# --- several GPUs ----------------------------------------------------------------------------------------------------

# Every way to exchange gradients between GPUs: NCCL if it can be used, otherwise copies.
export LOCKSTEP_EMULATED_GPUS=3
verify_gpus()
{
    run 0 verify --model lenet --data synthetic --devices 1xcuda,2xcuda,3xcuda --steps 2 --batch-size 8 --shards 4 "$@"
    line '^identical after 2 steps with 4 shards$'
    grep '^1xcuda ' "$work/stdout"
}
one=$(verify_gpus)
[[ $(LOCKSTEP_EMULATED_NCCL=no verify_gpus) == "$one" ]] || fail "copies give other bits than NCCL"
[[ $(LOCKSTEP_ENGINE=sync verify_gpus) == "$one" ]] || fail "the synchronous engine gives other bits"
[[ $(verify_gpus --bucket-mb 0.01) == "$one" ]] || fail "small buckets give other bits"

train_on()
{
    run "$1" train --model lenet --data synthetic --epochs 1 --limit-train 32 --limit-val 16 --batch-size 16 --shards 4 \
        --devices "$2" "${@:3}"
}
LOCKSTEP_EMULATED_NCCL_ABORTS=no train_on 0 3xcuda
says 'strategy mirrored, exchange by NCCL 2.28.9, flat'
wanted=$(grep '^digest' "$work/stderr")
LOCKSTEP_EMULATED_NCCL_ABORTS=no train_on 0 3xcuda --exchange tree
says 'strategy mirrored, exchange by NCCL 2.28.9, along the tree'
[[ $(grep '^digest' "$work/stderr") == "$wanted" ]] || fail "the digest is not $wanted"
for devices in 3xcuda:0 4xcuda:0; do
    train_on 0 $devices --exchange tree
    says 'strategy mirrored, exchange by peer copies, along the tree'
    [[ $(grep '^digest' "$work/stderr") == "$wanted" ]] || fail "the digest is not $wanted"
done
# No context is made on a GPU that was not asked for.
for devices in cuda:1 cuda:1,cuda:2 2xcuda:2; do
    LOCKSTEP_EMULATED_CONTEXTS=1 train_on 0 $devices
    grep -qE "^emulated CUDA: process [0-9]+ has contexts on GPUs( [12])+$" "$work/stderr" || fail "other GPUs have contexts"
done
LOCKSTEP_EMULATED_NCCL=no train_on 0 3xcuda
says 'strategy mirrored, exchange by peer copies'
train_on 0 3xcuda:0
says 'strategy mirrored, exchange by peer copies'
LOCKSTEP_EMULATED_NCCL=23000 train_on 0 3xcuda:0
says 'strategy mirrored, exchange by NCCL 2.30.0'

# Sums by NCCL's own all-reduce.
hash_of()
{
    grep -o 'hash [0-9a-f]*' "$work/stderr"
}
train_on 0 2xcuda
tree=$(hash_of)
train_on 0 2xcuda --reduce nccl
says 'sums by NCCL: the bits depend on the number of devices'
two=$(hash_of)
train_on 0 3xcuda --reduce nccl
[[ $tree != "$two" && $two != "$(hash_of)" ]] || fail "the hash does not say how sums are made"
train_on 2 2xcpu --reduce nccl
complains '--reduce nccl: NCCL is for GPUs, not for cpu:0'
train_on 2 2xcuda:0 --reduce nccl
complains '--reduce nccl: cuda:0 is several devices, and NCCL 2.28.9 takes a GPU once; 2.30 and later share it'
LOCKSTEP_EMULATED_NCCL=no train_on 2 2xcuda --reduce nccl
complains '--reduce nccl: the CUDA plug-in has no NCCL: it was built without it'

# NCCL fails while GPUs are connected, and later.
for group in 1 4; do
    LOCKSTEP_EMULATED_NCCL_FAILS=$group train_on 1 2xcuda
    says 'NCCL: exchange between GPUs: unhandled cuda error: as it was asked to'
done
# An exchange hangs: the first one, a later one, and one with the synchronous engine.
export LOCKSTEP_EXCHANGE_TIMEOUT=1
stalled='the exchange between GPUs has stood still for 1 s; of 2 ranks, rank 0 on cuda:0, rank 1 on cuda:1 wait: '
for group in 2 4; do
    LOCKSTEP_EMULATED_NCCL_STALLS=$group train_on 1 2xcuda
    says "$stalled"
    LOCKSTEP_EMULATED_NCCL_BREAKS=$group train_on 1 2xcuda --reduce nccl
    says 'NCCL: exchange between GPUs: remote process exited or there was a network error'
done
LOCKSTEP_ENGINE=sync LOCKSTEP_EMULATED_NCCL_STALLS=3 train_on 1 2xcuda
says "$stalled"
LOCKSTEP_EXCHANGE_TIMEOUT=0 train_on 2 2xcuda
complains 'LOCKSTEP_EXCHANGE_TIMEOUT=0: whole seconds from 1 to 86400 are possible'
unset LOCKSTEP_EXCHANGE_TIMEOUT
export LOCKSTEP_EMULATED_GPUS=2

# --- memory ----------------------------------------------------------------------------------------------------------

# small_gpu BYTES ARGUMENT…: trains LeNet on GPUs with so little memory.
small_gpu()
{
    local bytes=$1
    shift
    LOCKSTEP_EMULATED_MEMORY=$bytes run "$expected" train --model lenet --data synthetic --epochs 1 --limit-train 64 \
        --limit-val 0 "$@"
}

# The variables alone do not fit.
expected=1
small_gpu 400000 --devices cuda --batch-size 32
says 'out of memory on GPU 0: '

# If the estimate refuses a run, the message says which settings would fit, and they do.
small_gpu 8000000 --devices cuda --batch-size 64 --shards 1
complains '--batch-size 64 does not fit on cuda:0: training needs ' ' MiB (variables and optimizer ' \
    'and 7.6 MiB are there; the largest that does is '
largest=$(sed -nE 's/.*the largest that does is ([0-9]+)$/\1/p' "$work/stderr")
expected=0
small_gpu 8000000 --devices cuda --batch-size "$largest" --shards 1
says '  memory    '
expected=1
small_gpu 8000000 --devices cuda --batch-size $((largest + 1)) --shards 1
complains "the largest that does is $largest"
# Batch norm over the batch keeps the results of all shards; more if the host is late in releasing them.
printf 'conv2d 8 kernel=3 padding=1\nbatch_norm\nrelu\nmax_pool 2\nflatten\ndense classes\n' >"$work/norm.lk"
expected=1
small_gpu 3000000 --devices cuda --batch-size 64 --shards 4 --bn sync --model "$work/norm.lk"
complains '--batch-size 64 does not fit on cuda:0: training needs ' 'and 2.9 MiB are there; the largest that does is '
largest=$(sed -nE 's/.*the largest that does is ([0-9]+)$/\1/p' "$work/stderr")
expected=0
small_gpu 3000000 --devices cuda --batch-size $((largest / 4)) --shards 4 --bn sync --model "$work/norm.lk"
says '  memory    '
expected=1
# The same figures without training.
LOCKSTEP_EMULATED_MEMORY=8000000 run 0 summary --memory --devices cuda --batch-size 16
grep -qE '^  needed +[1-7]\.[0-9]+ MiB ' "$work/stdout" || fail 'summary does not say what is needed'
grep -qE '^  there +7\.63 MiB ' "$work/stdout" || fail 'summary does not say what is there'
LOCKSTEP_EMULATED_MEMORY=8000000 run 1 summary --memory --devices cuda --batch-size 64 --shards 1
complains '--batch-size 64 does not fit on cuda:0: training needs '
# Two devices of a GPU share its memory.
small_gpu 8000000 --devices 2xcuda:0 --batch-size 64 --shards 16
complains ', for each of 2 devices (' 'does not fit on cuda:0'
# Each of two devices has 8 of 16 shards, one node of the tree: it needs its own row, half of the other's, and one of sums.
complains 'gradients 1.0, exchange 1.0, '

# A data set that would leave too little memory for training stays on the host.
printf 'flatten\ndense classes\n' >"$work/small.lk"
expected=0
small_gpu 2000000 --devices cuda --batch-size 32 --limit-val 600 --model "$work/small.lk"
says "prepared by the host: a quarter of a device's free memory does not take them"
expected=1
small_gpu 2000000 --devices 2xcuda:0 --batch-size 32 --limit-val 600 --data-on device
complains '--data-on device: the data set has 0.5 MB, and cuda:0 has 2.0 MB left, of which data may take a quarter for its 2 '

# --- errors of the runtime -------------------------------------------------------------------------------------------

# failing KIND:N:ERROR ARGUMENT…: see tests/cuda_emulated/runtime.cpp.
failing()
{
    local what=$1
    shift
    LOCKSTEP_EMULATED_FAIL=$what run 1 train --model lenet --data synthetic --devices cuda --epochs 1 --limit-train 64 \
        --limit-val 0 --batch-size 16 "$@"
    [[ $(grep -c '^lockstep: ' "$work/stderr") -eq 1 ]] || fail "not one line of error"
}

failing count:1:35
complains 'cuda:0: no GPU: CUDA: ' 'cudaErrorInsufficientDriver' 'install a newer driver'
failing device:1:46
complains 'cudaErrorDevicesUnavailable' 'exclusive mode' 'nvidia-smi -c DEFAULT'
failing launch:100:719
says 'cudaErrorLaunchFailure'
says 'dmesg | grep Xid'
failing run:100:717
says 'cudaErrorInvalidAddressSpace'
says 'dmesg | grep Xid'
failing run:100:214
says 'cudaErrorECCUncorrectable'
says 'nvidia-smi -q -d ECC'
# The synchronous engine, which waits for each operator, can name the one that failed.
LOCKSTEP_ENGINE=sync failing run:60:719
says 'cudaErrorLaunchFailure'
grep -qE '\[[a-z0-9_]+\(.* on cuda:0, called at [^;]*:[0-9]+\]$' "$work/stderr" || fail "no operator is named"
