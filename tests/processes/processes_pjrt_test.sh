#!/usr/bin/env bash
# Several processes train together, each with devices of the PJRT plug-in $LOCKSTEP_PJRT_TEST_PLUGIN.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/processes_testing.sh
source "$(dirname "$0")/../support/processes_testing.sh"

if [[ -z ${LOCKSTEP_PJRT_TEST_PLUGIN-} ]]; then
    # shellcheck disable=SC2016 # the name of the variable
    echo 'SKIP: $LOCKSTEP_PJRT_TEST_PLUGIN names no PJRT plug-in'
    exit 77
fi

small=(train --model "$work/small.lk" --data synthetic --limit-train 43 --limit-val 20 --batch-size 16 --epochs 2 --workers 1
    --shards 4 --pjrt "$LOCKSTEP_PJRT_TEST_PLUGIN")

# one ARGUMENT…: trains on one device in one process. Sets $wanted and $state to the digests.
one()
{
    run 0 "${small[@]}" --devices 1xpjrt "$@"
    wanted=$(digest)
    state=$(grep '^state digest ' "$work/stderr")
    [[ -n $wanted ]] || fail "no digest"
}

# several N DEVICES ARGUMENT…: N processes with devices each have the same digests.
several()
{
    ranks "$1" 0 "${small[@]}" --strategy multi-worker --devices "$2xpjrt" "${@:3}"
    same "$wanted"
    grep -qxF "$state" "$work/stderr" || fail 'another state'
}

# --- the same bits ---------------------------------------------------------------------------------------------------

one --bn sync --clip-norm 1 --momentum 0.9
several 1 2 --bn sync --clip-norm 1 --momentum 0.9
several 2 2 --bn sync --clip-norm 1 --momentum 0.9 --verbose
says 'devices   4, strategy multi-worker, exchange by '
says 'exchange: not measured: its model does not fit devices of a plug-in, which send whole tensors'
several 3 1 --bn sync --clip-norm 1 --momentum 0.9

# Updates of two batches each; then the processes divide the optimizer's state.
lars=(--bn shard --optimizer lars --accumulate 2 --audit-every 2)
one "${lars[@]}"
several 2 1 "${lars[@]}"
several 2 2 "${lars[@]}" --optimizer-state sharded
says 'audit: replicas compared 4 times, no difference'

# An update is skipped.
skip=(--bn shard --nan-guard skip --base-lr 1e6 --momentum 0.9)
one "${skip[@]}"
several 2 1 "${skip[@]}"
says 'loss or gradients are not finite, the update is skipped'

# The batch is so small that a process has no samples.
few=(--bn sync --limit-train 2 --limit-val 3 --data-on host)
one "${few[@]}"
several 3 1 "${few[@]}"

# --- checkpoints -----------------------------------------------------------------------------------------------------

adam=(--bn shard --optimizer adam)
one "${adam[@]}"
ranks 2 0 "${small[@]}" "${adam[@]}" --strategy multi-worker --devices pjrt:1 --optimizer-state sharded --epochs 1 \
    --checkpoint-dir "$work/checkpoints"
several 2 2 "${adam[@]}" --checkpoint-dir "$work/checkpoints" --resume --override

# --- lockstep launch -------------------------------------------------------------------------------------------------

run 0 launch -n 2 -- "${small[@]}" "${adam[@]}" --devices 1xpjrt
[[ $(sed -n 's/^\[0\] digest //p' "$work/stderr") == "$wanted" ]] || fail "another digest below lockstep launch"

ranks 2 2 "${small[@]}" --strategy multi-worker --devices 1xpjrt --compress bf16
says 'exchange in bf16: strategy multi-worker on CPU devices has it, not multi-worker on pjrt:0'
