#!/usr/bin/env bash
# Trainings that are killed at random moments, also during a slow write of a checkpoint, and then resumed end with the
# bits of one that was not disturbed. $LOCKSTEP_TEST_KILLS is the number of kills; ./dev kills does 50.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

kills=${LOCKSTEP_TEST_KILLS:-3}
seed=${LOCKSTEP_TEST_SEED:-$$}
echo "LOCKSTEP_TEST_SEED=$seed"
RANDOM=$seed

training=(train --json --model lenet --data synthetic --limit-train 600 --limit-val 100 --batch-size 32 --shards 6
    --epochs 3 --momentum 0.9 --seed 5 --augment shift=0.1)
often=("${training[@]}" --checkpoint-dir "$work/checkpoints" --checkpoint-every 11 --log-dir "$work/log")

run 0 "${training[@]}" --devices 1
digest=$(field digest)
state=$(field state_digest)
[[ -n $digest && -n $state ]] || fail 'there is no digest'
export LOCKSTEP_CHECKPOINT_SLOW=2
began=$(now)
run 0 "${often[@]}" --devices 2
length=$(($(now) - began))
cut -d, -f1-9 "$work/log/epochs.csv" >"$work/epochs"

# killed_within MILLISECONDS ARGUMENT…: kills a training at a random moment; false if it had ended before.
killed_within()
{
    local after=$((RANDOM * $1 / 32768))
    shift
    begin "$@"
    sleep "$((after / 1000)).$(printf %03d $((after % 1000)))"
    kill -KILL "$process" 2>/dev/null || true
    status=0
    wait "$process" || status=$?
    trap 'rm -rf "$work"' EXIT
    [[ $status -eq 137 ]]
}

total=0 unfinished=0 twice=0
while [[ $total -lt $kills ]]; do
    rm -rf "$work/checkpoints" "$work/log"
    killed_within $((length * 11 / 10)) "${often[@]}" --resume --devices $((RANDOM % 3 + 1)) 2>/dev/null || continue
    total=$((total + 1))
    ! compgen -G "$work/checkpoints/.unfinished-*" >/dev/null || unfinished=$((unfinished + 1))
    if [[ $((RANDOM % 3)) -eq 0 ]]; then
        ! killed_within "$length" "${often[@]}" --resume --devices $((RANDOM % 3 + 1)) 2>/dev/null || twice=$((twice + 1))
    fi
    LOCKSTEP_CHECKPOINT_SLOW=0 run 0 "${often[@]}" --resume --devices $((RANDOM % 3 + 1))
    [[ $(field digest) == "$digest" && $(field state_digest) == "$state" ]] || fail "kill $total: other bits"
    # Records that a checkpoint names lack no row and have none twice.
    csv=$(find "$work/log" -name 'epochs*.csv' | sort -V | tail -n 1)
    cut -d, -f1-9 "$csv" | cmp -s - "$work/epochs" || fail "kill $total: other records in $csv"
    events=$(sed -n 's/^{"event":"\([a-z]*\)"\(,"epoch":\([0-9]*\)\)\{0,1\},.*/\1\3/p' "${csv%.csv}.jsonl" | tr '\n' ' ')
    # The settings of a training that goes on may come again.
    [[ $events == settings* && ${events//settings /} == 'epoch1 epoch2 epoch3 done ' ]] || fail "kill $total: $events in ${csv%.csv}.jsonl"
    ! compgen -G "$work/checkpoints/.unfinished-*" >/dev/null || fail "kill $total: something unfinished is left"
done
echo "$total killed, $unfinished of them while a checkpoint was written, $twice a second time: all have the same bits"
