#!/usr/bin/env bash
# A training of one process resumes in several, one of several in one, and in other numbers of processes.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

# shellcheck source=tests/support/processes_testing.sh
source "$(dirname "$0")/../support/processes_testing.sh"

training=(train --model lenet --data synthetic --limit-train 300 --limit-val 60 --batch-size 64 --shards 8 --epochs 3
    --momentum 0.9 --augment flip --workers 1)
folder=(--checkpoint-dir "$work/checkpoints" --checkpoint-every 3 --log-dir "$work/log")

run 0 "${training[@]}" --devices 2
wanted=$(digest)
state=$(sed -n 's/^state digest //p' "$work/stderr")
[[ -n $wanted && -n $state ]] || fail 'no digest'

# rewind STEPS: keeps only the checkpoint after so many steps, as if the run had been killed after it.
rewind()
{
    local name
    name=$(printf 'checkpoint-%08d' "$1")
    [[ -e $work/all/$name ]] || fail "there is no $name"
    rm -rf "$work/checkpoints" "$work/log"
    mkdir "$work/checkpoints"
    cp -r "$work/records" "$work/log"
    cp -r "$work/all/$name" "$work/checkpoints/"
}

ends_alike()
{
    same "$wanted"
    grep -qxF "state digest $state" "$work/stderr" || fail 'another state'
    [[ $(cut -d, -f1,2 "$work/log/epochs.csv" | tail -n +2 | tr '\n' ' ') == '1,5 2,10 3,15 ' ]] || fail 'other records'
    [[ ! -e $work/log/epochs-2.csv ]] || fail 'more records than of one run'
}

# From one process to two and three.
run 0 "${training[@]}" --devices 2 "${folder[@]}" --keep 100
cp -r "$work/checkpoints" "$work/all"
cp -r "$work/log" "$work/records"
rewind 6
ranks 2 0 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --resume
ends_alike
rewind 12
ranks 3 0 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --resume --accumulate 1
ends_alike

# To three processes that divide the optimizer's state, from there to two that divide it among other devices, and to one.
# Each reads what the one before has written.
divided=(--strategy multi-worker --optimizer-state sharded "${folder[@]}" --keep 100 --resume)
goes_on_from()
{
    rm -rf "$work/all" "$work/records"
    cp -r "$work/checkpoints" "$work/all"
    cp -r "$work/log" "$work/records"
    rewind "$1"
}
rewind 3
ranks 3 0 "${training[@]}" --devices cpu:0 "${divided[@]}"
ends_alike
goes_on_from 6
ranks 2 0 "${training[@]}" --devices 2xcpu:0 "${divided[@]}"
ends_alike
goes_on_from 12
run 0 "${training[@]}" --devices 2 "${folder[@]}" --resume
ends_alike

# Processes vote when a checkpoint is due by time; all take part in it. It is due at the first step after the last one,
# however soon that is pushed, for a vote counts some steps later and an epoch has five.
rm -rf "$work/checkpoints" "$work/log"
ranks 2 0 "${training[@]}" --strategy multi-worker --devices cpu:0 --optimizer-state sharded "${folder[@]}" \
    --checkpoint-every 0.0000001m --keep 100
ends_alike
compgen -G "$work/checkpoints/checkpoint-*[!05]" >/dev/null || fail 'no checkpoint but those of epochs'

# Programs save in other ways, and all their processes take part.
sharded_test=$(dirname "$LOCKSTEP")/tests/sharded_state_test
if [[ -x $sharded_test ]]; then
    mkdir "$work/saved"
    arguments=('[sharded_state_test, 3 processes]' save)
    status=0
    LOCKSTEP_MPI_PLUGIN=$(dirname "$LOCKSTEP")/liblockstep_mpi.so timeout -k 5 100 mpirun --quiet -n 3 "$sharded_test" save \
        "$work/saved" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq 0 ]] || fail 'exit status is not 0'
    [[ $(grep -c '^3 restored$' "$work/stdout") -eq 3 ]] || fail 'another state was restored'
fi

# From two to one, from a finished training, and to four.
rm -rf "$work/checkpoints" "$work/all" "$work/log" "$work/records"
ranks 2 0 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --keep 100
ends_alike
cp -r "$work/checkpoints" "$work/all"
cp -r "$work/log" "$work/records"
ranks 2 0 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --resume
ends_alike
rewind 9
run 0 "${training[@]}" --devices 1 "${folder[@]}" --resume
ends_alike
rewind 3
ranks 4 0 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --resume
ends_alike

# All processes refuse a wrong folder, and say why.
ranks 2 2 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}"
says 'is not empty'
ranks 2 2 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --resume --seed 4
says '--seed was 0 and is 4'
