#!/usr/bin/env bash
# If one of several processes cannot continue, no sum is wrong, the others say which one failed and why, and all end.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/processes_testing.sh
source "$(dirname "$0")/../support/processes_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

# --- an allocation fails at any point of training --------------------------------------------------------------------

program=$(dirname "$LOCKSTEP")/tests/alloc_failure_test
here=$(uname -n)

# refuse N RANK: runs three processes; the N-th allocation of RANK fails. Sets $status to the exit status.
refuse()
{
    arguments=("[alloc_failure_test, 3 processes]" rank "$2" "$1")
    status=0
    LOCKSTEP_MPI_PLUGIN=$(dirname "$LOCKSTEP")/liblockstep_mpi.so timeout -k 5 100 mpirun --quiet -n 3 "$program" rank "$2" "$1" \
        >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
}

# All steps printed the same losses as in a run without failures.
right_sums()
{
    grep '^epoch' "$work/stdout" | sort -u >"$work/steps"
    [[ -z $(comm -23 "$work/steps" "$work/wanted") ]] || fail "a step has found something else"
}

# gave_up RANK STATUS: the rank prints its error with this status, and the others print the error and the rank.
gave_up()
{
    local message
    message=$(sed -n "s/^rank $1: $2: //p" "$work/stdout")
    [[ -n $message ]] || fail "rank $1 does not say why"
    [[ $(grep -cF ": $2: rank $1 on $here gave up: $message" "$work/stdout") -eq 2 ]] ||
        fail "the others do not say that rank $1 gave up"
}

if [[ -x $program ]]; then
    refuse 1000000 0
    [[ $status -eq 0 && $(grep -c '^rank [0-2]: digest ' "$work/stdout") -eq 3 ]] || fail "does not train"
    grep '^epoch' "$work/stdout" | sort -u >"$work/wanted"
    digest=$(sed -n 's/^rank 0: //p' "$work/stdout")
    allocations=$(sed -n 's/^allocations //p' "$work/stdout")
    times=12 failures=0
    for ((i = 0; i < times; i++)); do
        refuse $((allocations * i / times)) $((i % 3))
        right_sums
        if [[ $status -eq 0 ]]; then
            [[ $(grep -cF ": $digest" "$work/stdout") -eq 3 ]] || fail "another digest"
        else
            failures=$((failures + 1))
            gave_up $((i % 3)) 'out of memory'
        fi
    done
    echo "$allocations allocations, $times of them refused: $failures trainings failed, and none was wrong"
    [[ $failures -gt 0 ]] || fail "nothing has failed"

    # No rank waits for one that a hook of its own has interrupted.
    refuse -1 1
    [[ $status -eq 1 ]] || fail "exit status is not 1"
    gave_up 1 interrupted
fi

# --- errors of the command -------------------------------------------------------------------------------------------

train=(train --model lenet --data synthetic --limit-val 0 --batch-size 64 --shards 8 --workers 1 --strategy multi-worker --devices cpu:0)

# fails TEXT N: the first of N processes printed an error with this text, the others printed that it gave up and why.
fails()
{
    local message
    [[ $status -eq 1 ]] || fail "exit status is not 1"
    message=$(sed -nE "/ gave up: /d; s/^(\[0\] )?lockstep: (.*$1)/\2/p" "$work/stderr")
    [[ -n $message ]] || fail "no error with '$1'"
    [[ $(grep -cF "lockstep: rank 0 on $here gave up: $message" "$work/stderr") -eq $(($2 - 1)) ]] ||
        fail "the others do not say that rank 0 gave up"
}

# It fails before training, in a task that only the first process has.
ranks 3 1 "${train[@]}" --limit-train 256 --log-dir /dev/null/logs
fails 'cannot be made' 3

moved=0

# It fails in the middle of training, under mpirun and under launch, which names the failed rank.
endless=("${train[@]}" --limit-train 256 --epochs 1000000 --base-lr 0.01 --log-dir "$work/logs" --seed "$mark")

arguments=("[3 processes]" --log-dir "$work/logs")
timeout -k 5 100 mpirun --quiet -n 3 "$LOCKSTEP" "${endless[@]}" >"$work/stdout" 2>"$work/stderr" </dev/null &
process=$!
until_there '^epoch *3/' "$work/stderr"
mv "$work/logs" "$work/moved-$((++moved))"
status=0
wait "$process" || status=$?
fails 'No such file or directory' 3
none_left

begin_launch -n 3 -- "${endless[@]}"
until_there '^\[0\] epoch *3/' "$work/stderr"
mv "$work/logs" "$work/moved-$((++moved))"
ended 1 '^rank 0 on [^ ]+ exited with status 1, step [1-9]'
fails 'No such file or directory' 3
