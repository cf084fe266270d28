#!/usr/bin/env bash
# Several processes on one machine train together: the bits do not depend on how devices are spread over them.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

# shellcheck source=tests/support/processes_testing.sh
source "$(dirname "$0")/../support/processes_testing.sh"

cat >"$work/small.lk" <<'EOF'
conv1: conv2d 8 kernel=3 stride=2
batch_norm
relu
flatten
dropout 0.2
dense classes
EOF

# agree ARGUMENT…: one process gives the same bits as several, which spread four devices and exchange in different ways.
agree()
{
    local wanted
    run 0 train "$@" --shards 8 --devices 1
    wanted=$(digest)
    [[ -n $wanted ]] || fail "no digest"
    ranks 2 0 train "$@" --shards 8 --strategy multi-worker --devices 2xcpu:0 --exchange flat
    same "$wanted"
    ranks 4 0 train "$@" --shards 8 --strategy multi-worker --devices cpu:0 --exchange tree
    same "$wanted"
    ranks 3 0 train "$@" --shards 8 --strategy multi-worker --devices cpu:0
    same "$wanted"
}

small=(--data synthetic --limit-train 200 --limit-val 60 --batch-size 64 --epochs 2 --workers 1)
agree --model lenet "${small[@]}"
lenet=$(digest)
# spread PROCESSES DEVICES WAY: spreads the same training over other devices.
spread()
{
    ranks "$1" 0 train --model lenet "${small[@]}" --shards 8 --strategy multi-worker --devices "$2" --exchange "$3"
    same "$lenet"
}
spread 1 4xcpu:0 flat
spread 2 2xcpu:0 tree
spread 4 cpu:0 flat
spread 3 cpu:0 flat
spread 3 cpu:0 tree
says ', 3 processes, along the tree'
for devices in 4 5 7 8; do
    spread 1 ${devices}xcpu:0 tree
done
# More devices than a flat exchange takes, which ignores that it is asked for.
many=(--model lenet --data synthetic --limit-train 160 --limit-val 0 --batch-size 80 --epochs 1 --workers 1 --shards 80)
run 0 train "${many[@]}" --devices 1
lenet=$(digest)
ranks 3 0 train "${many[@]}" --strategy multi-worker --devices 23xcpu:0 --exchange flat
same "$lenet"
says ', 3 processes, along the tree'
# First several buckets, with different numbers of shards in the processes; then a batch so small that some processes
# have no samples.
agree --model lenet "${small[@]}" --bucket-mb 0.05
agree --model lenet --data synthetic --limit-train 2 --limit-val 3 --batch-size 64 --epochs 2 --workers 1
# Batch-norm statistics are sums in double, updates have two batches, and the last batch has fewer samples than shards.
agree --model "$work/small.lk" --data synthetic --limit-train 133 --limit-val 67 --batch-size 64 --epochs 2 \
    --optimizer adam --clip-norm 1 --accumulate 2 --augment flip,crop=2

# divides ARGUMENT…: the devices of all processes divide the optimizer's state, and parameters and the whole state are
# those of one device.
divides()
{
    local wanted state way training=(train --data synthetic --limit-train 133 --limit-val 20 --batch-size 64 --epochs 2
        --workers 1 --shards 8 "$@")
    run 0 "${training[@]}" --devices 1
    wanted=$(digest)
    state=$(grep '^state digest ' "$work/stderr")
    for way in '2 cpu:0' '2 3xcpu:0 --exchange flat' '3 cpu:0' '4 cpu:0 --exchange tree'; do
        # shellcheck disable=SC2086 # several words
        set -- $way
        ranks "$1" 0 "${training[@]}" --strategy multi-worker --devices "${@:2}" --optimizer-state sharded --audit-every 2
        same "$wanted"
        grep -qxF "$state" "$work/stderr" || fail 'another state'
    done
}

divides --model "$work/small.lk" --optimizer adam --clip-norm 1
divides --model "$work/small.lk" --optimizer adamw --accumulate 2 --dtype bf16
divides --model "$work/small.lk" --optimizer lars --clip-norm 0.1 --bn sync --precise-bn 2
divides --model lenet --momentum 0.9 --nesterov --base-lr 1e6 --nan-guard skip
says 'the update is skipped'

# --- a description of the cluster ------------------------------------------------------------------------------------

two='{"cluster": {"chief": ["localhost:0"], "worker": ["localhost:0"]}}'
short=(--model lenet --data synthetic --limit-train 64 --limit-val 0 --epochs 1 --workers 0 --devices cpu:0)
TF_CONFIG=$two ranks 2 0 train "${short[@]}" --strategy multi-worker
TF_CONFIG=$two run 2 train "${short[@]}" --strategy multi-worker
says 'TF_CONFIG: chief and workers are 2, but 1 process was started; start 2 (lockstep launch -n 2)'
ranks 2 0 train "${short[@]}"
says 'warning: mpirun has started 2 processes, and each of them trains by itself; they train together with --strategy multi-worker'
echo '{"cluster": {"worker": ["localhost"]}}' >"$work/cluster.json"
TF_CONFIG=$two run 1 train "${short[@]}" --strategy multi-worker --cluster "$work/cluster.json"
says "cluster.json: cluster.worker[0]: 'localhost' is no address; must be host:port"
# Sums in the middle of a pass.
agree --model "$work/small.lk" --data synthetic --limit-train 170 --limit-val 0 --batch-size 64 --epochs 1 --bn sync
# One sample in the last batch; some processes have none.
agree --model "$work/small.lk" --data synthetic --limit-train 65 --limit-val 0 --batch-size 64 --epochs 2 --bn sync \
    --precise-bn 2

# With --compress bf16 the bits depend on the number of devices but not on how processes share them.
ranks 1 0 train --model lenet "${small[@]}" --shards 8 --strategy multi-worker --devices 2xcpu:0 --compress bf16
wanted=$(digest)
says "gradients exchanged as bf16"
ranks 2 0 train --model lenet "${small[@]}" --shards 8 --strategy multi-worker --devices cpu:0 --compress bf16
[[ -n $wanted && $(digest) == "$wanted" ]] || fail "digest $(digest), of one process $wanted"
# They depend on the buckets too, which a resumed training compares.
buckets=(train --model lenet "${small[@]}" --shards 8 --strategy multi-worker --devices cpu:0 --checkpoint-dir "$work/buckets")
ranks 1 0 "${buckets[@]}" --compress bf16
ranks 1 2 "${buckets[@]}" --compress bf16 --resume --epochs 3 --bucket-mb 0.05
says '--bucket-mb was 25 and is 0.05; give the options of the first time again, or --override'
rm -r "$work/buckets"
ranks 1 0 "${buckets[@]}"
ranks 1 0 "${buckets[@]}" --resume --epochs 3 --bucket-mb 0.05

# The tree would round sums in every step; and ranks must agree on the way.
run 2 train --model lenet "${small[@]}" --strategy multi-worker --devices 3xcpu:0 --compress bf16 --exchange tree
says 'exchange along the tree: not in bf16, because every step would round the sums'

# --- replicas that differ --------------------------------------------------------------------------------------------

ranks 2 0 train --model lenet "${small[@]}" --strategy multi-worker --devices 1 --audit-every 3
says 'audit: replicas compared 3 times, no difference' # after steps 3 and 6, and at the end

# audits N RANK: runs audit_test in N processes with two devices each; RANK damages a tensor on one device.
audits()
{
    arguments=("[audit_test, $1 processes]" rank "$2")
    status=0
    LOCKSTEP_MPI_PLUGIN=$(dirname "$LOCKSTEP")/liblockstep_mpi.so timeout -k 5 100 mpirun --quiet -n "$1" "$audit_test" rank "$2" \
        >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq 0 ]] || fail "exit status is not 0"
}

audit_test=$(dirname "$LOCKSTEP")/tests/audit_test
if [[ -x $audit_test ]]; then
    audits 2 9
    [[ $(grep -c '^audits 4, equal$' "$work/stdout") -eq 2 ]] || fail "equal replicas are not"
    audits 2 1
    [[ $(grep -c '^audits 1, audit after step 6: dense.bias of replica 1 of rank 1 on .* differs' "$work/stdout") -eq 2 ]] ||
        fail "not each rank names tensor and rank"
    audits 3 0
    [[ $(grep -c '^audits 1, audit after step 6: dense.bias of replica 1 of rank 0 on ' "$work/stdout") -eq 3 ]] ||
        fail "not each rank names tensor and rank"
fi

# --- processes with different settings -------------------------------------------------------------------------------

# differ TEXT ARGUMENT…: runs two processes, the second one with additional arguments; both end with an error.
differ()
{
    local text=$1
    shift
    arguments=("[second process]" "$@")
    status=0
    timeout -k 5 100 mpirun --quiet -n 1 "$LOCKSTEP" train "${alike[@]}" : -n 1 "$LOCKSTEP" train "${alike[@]}" "$@" \
        >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -ne 0 && $status -ne 124 ]] || fail "they train"
    says "lockstep: rank 1 on "
    says "$text; all processes have to be started alike"
}

alike=(--model lenet "${small[@]}" --strategy multi-worker --devices 1)
differ "has another --seed: 1, where rank 0 has 0" --seed 1
differ "has another --batch-size: 32, where rank 0 has 64" --batch-size 32
differ "has another --model: keras-cnn, where rank 0 has lenet" --model keras-cnn
differ "has another --dtype: bf16, where rank 0 has f32" --dtype bf16
differ "has another --exchange: tree, where rank 0 has auto" --exchange tree
differ "has another --optimizer-state: sharded, where rank 0 has mirrored" --optimizer-state sharded

# Processes that divide the optimizer's state all take part in a checkpoint.
alike+=(--optimizer-state sharded)
differ "has another --checkpoint-dir: a folder, where rank 0 has none" --checkpoint-dir "$work/a"
alike+=(--checkpoint-dir "$work/a")
differ "has another --checkpoint-every: 3, where rank 0 has epoch" --checkpoint-every 3
differ "has another --checkpoint-best: train-loss, where rank 0 has auto" --checkpoint-best train-loss
unset 'alike[-1]' 'alike[-1]' 'alike[-1]' 'alike[-1]'

# apart TEXT ARGUMENT…: runs two processes in folders whose files differ; both end with an error.
apart()
{
    local text=$1
    shift
    arguments=("[in two folders]" "$@")
    status=0
    timeout -k 5 100 mpirun --quiet -n 1 -wdir "$work/one" "$LOCKSTEP" train "${alike[@]}" "$@" : -n 1 -wdir "$work/two" \
        "$LOCKSTEP" train "${alike[@]}" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -ne 0 && $status -ne 124 ]] || fail "they train"
    says "lockstep: rank 1 on "
    says "$text"
    says '; all processes have to be started alike'
}

# Each folder has other initial weights, a checkpoint of the same steps that came of them, and pictures whose classes have
# other names.
classes=(a b c)
for folder in one two; do
    mkdir -p "$work/$folder/set/train"
    run 0 train --model lenet --data synthetic --limit-train 64 --limit-val 0 --epochs 1 --devices 1 --seed "${#classes[@]}" \
        --checkpoint-dir "$work/$folder/first"
    cp "$work/$folder"/first/checkpoint-*1/model.safetensors "$work/$folder/w.safetensors"
    run 0 train --model lenet "${small[@]}" --epochs 1 --devices 1 --weights "$work/$folder/w.safetensors" \
        --checkpoint-dir "$work/$folder/kept"
    for class in 0 1; do
        mkdir "$work/$folder/set/train/${classes[class]}"
        for i in {1..16}; do
            { printf 'P5\n28 28\n255\n'; head -c 784 <(yes "$class $i"); } \
                >"$work/$folder/set/train/${classes[class]}/$i.pgm"
        done
    done
    classes=("${classes[@]:1}")
done
apart 'has another set of starting values: ' --weights w.safetensors
apart 'has another checkpoint to go on from: checkpoint-00000004 with hash ' --checkpoint-dir kept --resume
apart 'has another set of class weights: ' --data set --limit-val 0 --class-weights b:3

# Two kinds of processors in one job.
if grep -qw avx512dq /proc/cpuinfo && "$LOCKSTEP" doctor | grep '^  oneDNN .*[0-9]' >/dev/null; then
    arguments=("[second process with AVX2]")
    status=0
    timeout -k 5 100 mpirun --quiet -n 1 "$LOCKSTEP" train "${alike[@]}" : -n 1 -x LOCKSTEP_ISA=avx2 "$LOCKSTEP" train \
        "${alike[@]}" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -ne 0 && $status -ne 124 ]] || fail "they train"
    says 'has another kind of kernels: instruction set avx2, '
    says ', where rank 0 has instruction set avx512'
fi
# If only one process has GPUs, either of them, the error must come before they wait for each other.
emulated=$(dirname "$LOCKSTEP")/tests/liblockstep_cuda_emulated.so
if [[ -f $emulated ]]; then
    export LOCKSTEP_CUDA_PLUGIN=$emulated
    alike+=(--devices cpu:0)
    differ "has another kind of devices: cuda, where rank 0 has cpu" --devices cuda:0
    alike+=(--devices cuda:0)
    differ "has another kind of devices: cpu, where rank 0 has cuda" --devices cpu:0
    unset LOCKSTEP_CUDA_PLUGIN
fi

# --- an interrupt ----------------------------------------------------------------------------------------------------

# If one process is interrupted, both end at the same step.
mpirun --quiet -n 2 "$LOCKSTEP" train --model lenet --data synthetic --limit-train 2560 --limit-val 0 --batch-size 64 \
    --epochs 1000000 --strategy multi-worker --devices 1 --json >"$work/stdout" 2>"$work/stderr" </dev/null &
process=$!
trap 'pkill -KILL -P "$process" || true; kill -KILL "$process" 2>/dev/null || true; rm -rf "$work"' EXIT
arguments=("[two processes, interrupted]")
until_there '"epoch":1' "$work/stdout"
mapfile -t ranks < <(pgrep -P "$process" -f 'lockstep train')
[[ ${#ranks[@]} -eq 2 ]] || fail "not two ranks below mpirun"
kill -INT "${ranks[1]}"
ends_with 130
says "training: interrupted in epoch"

# --- commands that run in one process --------------------------------------------------------------------------------

for command in profile sweep; do
    run 2 $command --strategy multi-worker
    complains "--strategy multi-worker: is for \`lockstep train\`"
done
