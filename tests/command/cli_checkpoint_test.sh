#!/usr/bin/env bash
# Checkpoints of the command: options, which checkpoints are kept, interrupts, and messages when training resumes.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

training=(train --model lenet --data synthetic --limit-train 96 --limit-val 32 --batch-size 16 --epochs 4 --momentum 0.9
    --devices 1 --shards 2)
folder=$work/runs/a

digests()
{
    sed -n 's/^\(state \)\{0,1\}digest //p' "$work/stderr" | tr '\n' ' '
}

kept()
{
    (cd "$folder" && echo checkpoint-*)
}

run 2 "${training[@]}" --resume
complains '--resume' '--checkpoint-dir'
run 2 "${training[@]}" --checkpoint-dir "$folder" --override
complains '--override' '--resume'
for every in 0 -3 5s m 1e3 epochs; do
    run 2 "${training[@]}" --checkpoint-dir "$folder" "--checkpoint-every=$every"
    complains '--checkpoint-every' 'must be a number of steps'
done
run 2 "${training[@]}" --checkpoint-dir "$folder" --keep 0
complains '--keep 0' 'must be'
run 2 "${training[@]}" --checkpoint-dir "$folder" --checkpoint-best loss
complains '--checkpoint-best loss' 'val-loss'
run 2 "${training[@]}" --checkpoint-dir "$folder" --limit-val 0 --checkpoint-best val-loss
complains '--checkpoint-best' 'no evaluation'
rm -rf "$folder"

# ---- which are kept ----

run 0 "${training[@]}"
wanted=$(digests)
# The first checkpoint stays the best: with such a small rate no later one is better.
run 0 "${training[@]}" --checkpoint-dir "$folder" --keep 2 --checkpoint-every 5 --checkpoint-best train-accuracy
[[ $(digests) == "$wanted" ]] || fail "checkpoints change bits: $(digests), not $wanted"
best=$(sed -n 's/.*"checkpoint":"\(checkpoint-[0-9]*\)","metric":"train_accuracy".*/\1/p' "$folder/best.json")
[[ -d $folder/$best ]] || fail "the best, '$best', is not there"
for name in checkpoint-00000020 checkpoint-00000024; do
    [[ -d $folder/$name ]] || fail "$name is not there, but $(kept)"
done
[[ $(kept | wc -w) -le 3 ]] || fail "more are kept: $(kept)"
run 2 "${training[@]}" --checkpoint-dir "$folder"
complains 'is not empty; --resume'
rm -rf "$folder"
run 0 "${training[@]}" --checkpoint-dir "$folder" --keep 1 --checkpoint-every 0.0001m --checkpoint-best none
[[ $(kept) == checkpoint-00000024 && ! -e $folder/best.json ]] || fail "not the last alone is kept: $(kept)"

run 2 "${training[@]}" --checkpoint-dir "$work/$(printf '%04050d' 0 | sed 's/.\{200\}/&\//g')"
complains 'the path is too long for checkpoints below it'

# ---- a training that has ended ----

run 0 "${training[@]}" --checkpoint-dir "$folder" --resume --json
line '^\{"event":"done","steps":24,.*"samples_seen":384,"epochs":4,'
[[ $(wc -l <"$work/stdout") -eq 1 ]] || fail 'more than the last line is printed again'
[[ $(digests) == "$wanted" ]] || fail 'other digests than when it ended'
run 2 "${training[@]}" --checkpoint-dir "$folder" --resume --momentum 0.8 --base-lr 0.1
complains '--momentum was 0.9 and is 0.8' '--base-lr was 0.2 and is 0.1' '--override'
run 0 "${training[@]}" --checkpoint-dir "$work/steps" --epochs 1 --lr-steps 1:0.123456789
run 2 "${training[@]}" --checkpoint-dir "$work/steps" --epochs 2 --lr-steps 1:0.12345654321 --resume
complains '--lr-steps was 1:0.123456789 and is 1:0.12345654321'
run 0 "${training[@]}" --checkpoint-dir "$folder" --resume --epochs 5 --base-lr 0.1 --override
says 'warning: going on with other settings than those of'
says 'epoch 5/5'

# A checkpoint is not a checkpoint folder, but training resumes from a folder that holds only it.
one=$(cd "$folder" && echo checkpoint-*24)
for resume in '' --resume; do
    run 2 "${training[@]}" --checkpoint-dir "$folder/$one" $resume
    complains "$folder/$one: is a checkpoint itself" 'with a copy of it'
done
mkdir "$work/one"
cp -r "$folder/$one" "$work/one/"
run 0 "${training[@]}" --checkpoint-dir "$work/one/" --resume
[[ $(digests) == "$wanted" ]] || fail 'other digests than where it was copied from'
rm -rf "$folder"

# ---- an interrupt ----

long=("${training[@]}" --epochs 150)
run 0 "${long[@]}"
wanted=$(digests)
LOCKSTEP_CHECKPOINT_SLOW=10 begin "${long[@]}" --checkpoint-dir "$folder" --log-dir "$work/records" # as long as it has to be for what follows
until_there '^epoch *4/' "$work/stderr"
other_status=0
"$LOCKSTEP" "${long[@]}" --checkpoint-dir "$folder" --log-dir "$work/records" --resume >"$work/other" 2>&1 </dev/null || other_status=$?
[[ $other_status -eq 1 && $(<"$work/other") == *'another training writes its checkpoints there' ]] ||
    fail "a second training in the folder: $other_status, $(<"$work/other")"
kill -TERM "$process"
ends_with 130
[[ $(kept | wc -w) -ge 2 ]] || fail "an interrupt leaves $(kept)"
run 0 "${long[@]}" --checkpoint-dir "$folder" --log-dir "$work/records" --resume --devices 2
says 'note: going on from'
[[ $(grep -c '"event":"epoch"' "$work/records/epochs.jsonl") -eq 150 ]] || fail 'the second training changed the records'
says ' images/s since it was resumed, val accuracy '
[[ $(digests) == "$wanted" ]] || fail 'interrupted it ends with other bits'
run 0 "${long[@]}" --checkpoint-dir "$folder" --resume
says ' images/s, val accuracy ' # of the run that ended it
