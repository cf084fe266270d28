#!/usr/bin/env bash
# Several processes train together on emulated GPUs with emulated NCCL: see tests/cuda_emulated.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/processes_testing.sh
source "$(dirname "$0")/../support/processes_testing.sh"

plugin=$(dirname "$LOCKSTEP")/tests/liblockstep_cuda_emulated.so
if [[ ! -f $plugin ]]; then
    echo "SKIP: there is no emulated plug-in: it takes a C++ compiler"
    exit 77
fi
export LOCKSTEP_CUDA_PLUGIN=$plugin LOCKSTEP_EMULATED_GPUS=4


# --- the same bits ---------------------------------------------------------------------------------------------------

# agree ARGUMENT…: one process with one GPU gives the same bits as each way to spread four or three GPUs over processes.
agree()
{
    local n wanted
    run 0 train "$@" --shards 4 --devices cuda
    wanted=$(digest)
    [[ -n $wanted ]] || fail "no digest"
    for n in 1 2 4; do
        ranks $n 0 train "$@" --shards 4 --strategy multi-worker --devices $((4 / n))xcuda
        same "$wanted"
        says "devices   4, strategy multi-worker, exchange by NCCL 2.28.9, $n process"
    done
    ranks 3 0 train "$@" --shards 4 --strategy multi-worker --devices cuda
    same "$wanted"
    ranks 3 0 train "$@" --shards 4 --strategy multi-worker --devices cuda --exchange tree
    same "$wanted"
    says ', 3 processes, along the tree'
}

small=(--model "$work/small.lk" --data synthetic --limit-train 75 --limit-val 32 --batch-size 16 --epochs 2 --workers 1)
agree "${small[@]}" --optimizer adam --clip-norm 1
# GPUs of several processes divide the optimizer's state.
state=$(grep '^state digest ' "$work/stderr")
wanted=$(digest)
for way in '2 2xcuda' '4 cuda' '3 cuda --exchange tree'; do
    # shellcheck disable=SC2086 # several words
    set -- $way
    ranks "$1" 0 train "${small[@]}" --optimizer adam --clip-norm 1 --shards 4 --strategy multi-worker --devices "${@:2}" \
        --optimizer-state sharded --audit-every 2
    same "$wanted"
    grep -qxF "$state" "$work/stderr" || fail 'another state'
done
agree "${small[@]}" --bn sync
# There are several buckets, and the host prepares the batches.
agree --model lenet --data synthetic --limit-train 32 --limit-val 16 --batch-size 16 --epochs 1 --workers 1 --bucket-mb 0.05 \
    --data-on host
# The batch is so small that some processes have no samples.
agree --model "$work/small.lk" --data synthetic --limit-train 2 --limit-val 3 --batch-size 16 --epochs 2 --workers 1
# Two processes with a GPU each.
run 0 train "${small[@]}" --shards 4 --devices 2xcuda
wanted=$(digest)
ranks 2 0 train "${small[@]}" --shards 4 --strategy multi-worker --devices cuda
same "$wanted"
LOCKSTEP_ENGINE=sync LOCKSTEP_EMULATED_NCCL_ABORTS=no ranks 2 0 train "${small[@]}" --shards 4 --strategy multi-worker --devices cuda
same "$wanted"

# NCCL adds in its own order, which depends on the number of ranks.
ranks 1 0 train "${small[@]}" --shards 4 --strategy multi-worker --devices 4xcuda --reduce nccl
by_library=$(digest)
says 'sums by NCCL: the bits depend on the number of devices'
for n in 2 4; do
    ranks $n 0 train "${small[@]}" --shards 4 --strategy multi-worker --devices $((4 / n))xcuda --reduce nccl
    same "$by_library"
done

ranks 2 2 train "${small[@]}" --shards 4 --strategy multi-worker --devices cuda --compress bf16
says 'exchange in bf16: strategy multi-worker on CPU devices has it, not multi-worker on cuda:'
LOCKSTEP_EMULATED_NCCL=no ranks 2 1 train "${small[@]}" --shards 4 --strategy multi-worker --devices cuda
says 'the CUDA plug-in has no NCCL: it was built without it'

# --- which rank has which GPU ----------------------------------------------------------------------------------------

# Two ranks cannot have the same GPU.
two=(train "${small[@]}" --shards 4 --strategy multi-worker)
export LOCKSTEP_EMULATED_GPUS=2
ranks 2 0 "${two[@]}" --devices cuda
same "$wanted"
# Ranks that are bound to different cores still see the same GPUs.
OMPI_MCA_hwloc_base_binding_policy=core:overload-allowed ranks 2 0 "${two[@]}" --devices cuda
same "$wanted"
once='and NCCL 2.28.9 takes a GPU once: start fewer processes, or leave it to them which GPUs they take'
ranks 3 1 "${two[@]}" --devices cuda
says "strategy multi-worker: rank 2 on $(uname -n) has cuda:0, which rank 0 on $(uname -n) has as cuda:0, $once"
ranks 2 1 "${two[@]}" --devices cuda:1
says "strategy multi-worker: rank 1 on $(uname -n) has cuda:1, which rank 0 on $(uname -n) has as cuda:1, $once"
LOCKSTEP_EMULATED_NCCL=23000 ranks 3 0 "${two[@]}" --devices cuda
same "$wanted"

# apart STATUS GPUS SPEC GPUS SPEC: runs two processes that each see some of four GPUs.
export LOCKSTEP_EMULATED_GPUS=4
apart()
{
    arguments=("[two processes, and their GPUs]" "${@:2}")
    status=0
    timeout -k 5 100 mpirun --quiet -n 1 -x CUDA_VISIBLE_DEVICES="$2" "$LOCKSTEP" "${two[@]}" --devices "$3" \
        : -n 1 -x CUDA_VISIBLE_DEVICES="$4" "$LOCKSTEP" "${two[@]}" --devices "$5" \
        >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $1 ]] || fail "exit status is not $1"
}
apart 0 3,1 cuda 3 cuda # the second process has only this GPU
same "$wanted"
apart 0 0,1 2xcuda 3,2 2xcuda
says 'devices   4, strategy multi-worker, exchange by NCCL 2.28.9, 2 processes'
apart 0 0,1,2,3 cuda 0,1,2,3 cuda:0 # GPUs with a given number are assigned first
same "$wanted"
apart 1 0,1 cuda:1 2,1 cuda:1
says "rank 1 on $(uname -n) has cuda:1, which rank 0 on $(uname -n) has as cuda:1, $once"

status=0
arguments=(launch)
timeout -k 5 200 "$LOCKSTEP" launch -n 2 -- train "${small[@]}" --shards 4 --devices cuda >"$work/stdout" 2>"$work/stderr" \
    </dev/null || status=$?
[[ $status -eq 0 ]] || fail "exit status is not 0"
[[ $(sed -n 's/^\[0\] digest //p' "$work/stderr") == "$wanted" ]] || fail "another digest below lockstep launch"

# --- ranks that end or hang ------------------------------------------------------------------------------------------

# NCCL hangs in the GPU of every rank; then it reports an error.
export LOCKSTEP_EXCHANGE_TIMEOUT=1
LOCKSTEP_EMULATED_NCCL_STALLS=5 ranks 2 1 train "${small[@]}" --shards 4 --strategy multi-worker --devices cuda
grep -qE 'the exchange between GPUs has stood still for 1 s; of 2 ranks, rank [01] on cuda:[01] waits: is the process of every' \
    "$work/stderr" || fail "no rank says that it waits"
LOCKSTEP_EMULATED_NCCL_BREAKS=5 ranks 2 1 train "${small[@]}" --shards 4 --strategy multi-worker --devices cuda
says 'NCCL: exchange between GPUs: remote process exited or there was a network error'

# One process fails at the launch of a kernel, which may be retried. The other one, whose GPU waits, is told.
unset LOCKSTEP_EXCHANGE_TIMEOUT
training=(train "${small[@]}" --shards 4 --epochs 4 --strategy multi-worker --devices cuda)
ranks 2 0 "${training[@]}"
wanted=$(digest) failures=0
for launch in 50 850; do
    arguments=("[two processes, one fails at launch $launch]")
    status=0
    timeout -k 5 50 mpirun --quiet -n 1 "$LOCKSTEP" "${training[@]}" : \
        -n 1 env LOCKSTEP_EMULATED_FAIL=launch:$launch:2 "$LOCKSTEP" "${training[@]}" \
        >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    if [[ $status -eq 0 ]]; then
        same "$wanted"
        continue
    fi
    failures=$((failures + 1))
    [[ $status -eq 1 ]] || fail "exit status is not 1"
    message=$(sed -n '/ gave up: /d; s/^lockstep: //p' "$work/stderr")
    [[ -n $message ]] || fail "the one that fails does not say why"
    says "lockstep: rank 1 on $(uname -n) gave up: $message"
done
[[ $failures -gt 0 ]] || fail "nothing has failed"

# killed RANK TEXT: one of two processes is killed. mpirun lets the other one continue, and its error matches TEXT.
killed()
{
    local rank=$1 text=$2 other=$((1 - $1)) both
    rm -rf "$work/log"
    arguments=("[two processes, one is killed]")
    : >"$work/stdout"
    timeout -k 5 100 mpirun --quiet --enable-recovery --output-filename "$work/log" -n 2 "$LOCKSTEP" train "${small[@]}" \
        --shards 4 --epochs 100000 --strategy multi-worker --devices 2xcuda --json >"$work/stdout" 2>"$work/stderr" </dev/null &
    process=$!
    trap 'kill -TERM "$process" 2>/dev/null || true; wait "$process" || true; rm -rf "$work"' EXIT
    until_there '"epoch":2' "$work/stdout"
    mapfile -t both < <(pgrep -P "$(pgrep -P "$process")" -f 'lockstep train')
    [[ ${#both[@]} -eq 2 ]] || fail "not two ranks below mpirun"
    if ! grep -zqx "OMPI_COMM_WORLD_RANK=$rank" "/proc/${both[$rank]}/environ"; then
        both=("${both[1]}" "${both[0]}")
    fi
    kill -KILL "${both[$rank]}"
    wait "$process" || true
    trap 'rm -rf "$work"' EXIT
    cat "$work"/log/*/rank."$other"/stderr >"$work/stderr"
    grep -qE -- "$text" "$work/stderr" || fail "rank $other does not say '$text'"
    ! pgrep -f "$work/small.lk" || fail "a process is left"
}

killed 1 'NCCL: exchange between GPUs: remote process exited or there was a network error: the process of rank 2 rank 3 has closed'
# This process created the communicator's name.
killed 0 'NCCL: exchange between GPUs: remote process exited or there was a network error: '
# If GPUs access each other's memory, NCCL does not notice that a process ended.
LOCKSTEP_EXCHANGE_TIMEOUT=5 LOCKSTEP_EMULATED_NCCL_SILENT=1 killed 1 \
    'the exchange between GPUs has stood still for 5 s; of 4 ranks, rank 0 on cuda:0, rank 1 on cuda:1 wait: '
