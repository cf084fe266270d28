#!/usr/bin/env bash
# Training goes on from one process in several, from several in one, and in other numbers of them.
# shellcheck source=tests/cli_testing.sh
source "$(dirname "$0")/cli_testing.sh"

# shellcheck source=tests/processes_testing.sh
source "$(dirname "$0")/processes_testing.sh"

training=(train --model lenet --data synthetic --limit-train 300 --limit-val 60 --batch-size 64 --shards 8 --epochs 3
    --momentum 0.9 --augment flip --workers 1)
folder=(--checkpoint-dir "$work/checkpoints" --checkpoint-every 3 --log-dir "$work/log")

run 0 "${training[@]}" --devices 2
wanted=$(digest)
state=$(sed -n 's/^state digest //p' "$work/stderr")
[[ -n $wanted && -n $state ]] || fail 'no digest'

# Keeps the checkpoint after step $1 alone, as if the run had been killed behind it.
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

# From two to one, on one that has ended too, and to four.
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

# What is refused is refused in all of them, and said.
ranks 2 2 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}"
says 'is not empty'
ranks 2 2 "${training[@]}" --strategy multi-worker --devices cpu:0 "${folder[@]}" --resume --seed 4
says '--seed was 0 and is 4'
