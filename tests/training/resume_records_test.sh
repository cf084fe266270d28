#!/usr/bin/env bash
# A resumed training continues its records, whatever the path of their folder, and leaves those of other runs alone.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

training=(train --model lenet --data synthetic --limit-train 64 --limit-val 32 --batch-size 16 --epochs 5 --base-lr 0.05
    --momentum 0.9 --devices 1 --shards 2)
often=("${training[@]}" --checkpoint-every 3 --keep 100)

# rows FOLDER: the columns without times.
rows()
{
    cut -d, -f1-9 "$1/epochs.csv"
}

# events FILE: the events in a file of JSON lines, without the settings that a resume adds.
events()
{
    sed -n 's/^{"event":"\([a-z]*\)"\(,"epoch":\([0-9]*\)\)\{0,1\},.*/\1\3/p' "$1" | sed '2,${ /^settings$/d }' | tr '\n' ' '
}

# goes_on_in FOLDER: its records are those of a run that was not disturbed.
goes_on_in()
{
    cmp -s <(rows "$1") "$work/wanted-rows" || fail "other rows in $1"
    cmp -s "$1/steps.csv" "$work/whole/logs/steps.csv" || fail "other rows in $1/steps.csv"
    cmp -s "$1/steps.jsonl" "$work/whole/logs/steps.jsonl" || fail "other rows in $1/steps.jsonl"
    [[ $(events "$1/epochs.jsonl") == 'settings epoch1 epoch2 epoch3 epoch4 epoch5 done ' ]] ||
        fail "$1/epochs.jsonl: $(events "$1/epochs.jsonl")"
    [[ $(find "$1" -name 'events.*' | wc -l) -eq 1 && ! -e $1/epochs-2.csv ]] || fail "records began anew in $1"
}

# Restores the state after a kill: checkpoints up to step 11, in the middle of the third epoch, and all records.
rewind()
{
    rm -rf "$work/kept" "$work/logs"
    cp -r "$work/whole/kept" "$work/whole/logs" "$work/"
    rm -rf "$work"/kept/checkpoint-0000001[2-9] "$work"/kept/checkpoint-0000002*
}

mkdir "$work/whole" "$work/elsewhere"
cd "$work"
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs
rows logs >wanted-rows
mv kept logs whole/

rewind
head -n 2 logs/epochs.csv >rows-of-one
events_file=$(find logs -name 'events.*')
size=$(stat -c %s "$events_file")
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
goes_on_in logs
[[ $(stat -c %s "$events_file") -eq $size ]] || fail "$events_file has another length"

# The folders have other names, are reached from another folder, or were moved.
rewind
run 0 "${often[@]}" --checkpoint-dir kept/ --log-dir ./logs/ --resume
goes_on_in logs
rewind
(cd elsewhere && run 0 "${often[@]}" --checkpoint-dir ../kept --log-dir ../logs --resume)
goes_on_in logs
rewind
mv logs 'moved löge'
run 0 "${often[@]}" --checkpoint-dir kept --log-dir 'moved löge' --resume
goes_on_in 'moved löge'

# New folders begin new records; a folder with records of other runs keeps them.
rewind
run 0 "${often[@]}" --checkpoint-dir kept --log-dir fresh --resume
[[ $(events fresh/epochs.jsonl) == 'settings epoch3 epoch4 epoch5 done ' ]] || fail "$(events fresh/epochs.jsonl)"
rewind
rm -rf logs
run 0 "${training[@]}" --epochs 2 --log-dir logs
cp -r logs before
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
says 'warning: logs/epochs.csv: is not the file that was there when the checkpoint was made; records begin anew'
for name in before/*; do
    cmp -s "$name" "logs/$(basename "$name")" || fail "$name of another run was changed"
done
[[ $(events logs/epochs-2.jsonl) == 'settings epoch3 epoch4 epoch5 done ' ]] || fail 'no records of this run'

# Records with missing rows are not continued.
rewind
cp rows-of-one logs/epochs.csv
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
says 'records begin anew'
cmp -s rows-of-one logs/epochs.csv || fail 'what was edited was changed'

rewind
sed -i 's/"rate":0.05/"rate":0.5/' logs/epochs.jsonl
cp logs/epochs.jsonl edited
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
says 'warning: logs/epochs.jsonl: is not the file'
cmp -s edited logs/epochs.jsonl || fail 'what was edited was changed'
[[ -e logs/epochs-2.csv && -e logs/epochs-2.jsonl ]] || fail 'records do not begin anew'

for name in steps.csv steps.jsonl; do
    rewind
    sed -i '1s/step/Step/' "logs/$name"
    cp -r logs "before-$name"
    run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
    says "warning: logs/$name: is not the file"
    for kept in "before-$name"/*; do
        cmp -s "$kept" "logs/$(basename "$kept")" || fail "$kept was changed where $name was edited"
    done
    [[ $(events logs/epochs-2.jsonl) == 'settings epoch3 epoch4 epoch5 done ' ]] || fail 'no records of this run'
done

rewind
rm logs/steps.csv
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
[[ $(wc -l <logs/steps.csv) -eq 12 && ! -e logs/epochs-2.csv ]] || fail 'a run does not go on without its steps'

rewind
rm logs/epochs.csv
cp -r logs before-that
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
for name in before-that/*; do
    cmp -s "$name" "logs/$(basename "$name")" || fail "$name was changed where the table was gone"
done
[[ $(events logs/epochs-2.jsonl) == 'settings epoch3 epoch4 epoch5 done ' ]] || fail 'no records of this run'

# Resuming a finished training prints its end again but records it only once.
rewind
rm -rf kept
cp -r whole/kept .
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
goes_on_in logs
run 0 "${often[@]}" --checkpoint-dir kept --log-dir logs --resume
goes_on_in logs

# An interrupt leaves no line in the records that continue.
rm -rf kept logs
long=("${training[@]}" --epochs 150 --checkpoint-dir kept --log-dir logs)
LOCKSTEP_CHECKPOINT_SLOW=10 begin "${long[@]}" # slow enough for the interrupt
until_there '^epoch *4/' "$work/stderr"
kill -TERM "$process"
ends_with 130
[[ $(events logs/epochs.jsonl) == *'stopped ' ]] || fail 'no line of the interrupt'
run 0 "${long[@]}" --resume
want=$(seq -f 'epoch%.0f' 1 150 | tr '\n' ' ')
[[ $(events logs/epochs.jsonl) == "settings ${want}done " ]] || fail "$(events logs/epochs.jsonl)"
[[ $(wc -l <logs/steps.csv) -eq 601 ]] || fail "steps.csv has $(wc -l <logs/steps.csv) lines"

# Points of several steps go on where an interrupt in the middle of one left them.
rm -rf kept logs
thinned=(train --model lenet --data synthetic --limit-train 520 --limit-val 0 --batch-size 1 --epochs 3 --devices 1 --shards 1
    --checkpoint-every 1037 --keep 100)
run 0 "${thinned[@]}" --checkpoint-dir kept --log-dir logs
mv logs undisturbed
cp -r undisturbed logs
rm -rf kept/checkpoint-00001[1-9]*
[[ $(newest_checkpoint kept) -eq 1037 ]] || fail "resumes from step $(newest_checkpoint kept)"
run 0 "${thinned[@]}" --checkpoint-dir kept --log-dir logs --resume
cmp -s undisturbed/steps.csv logs/steps.csv || fail 'other points after a resumption'
[[ $(wc -l <logs/steps.csv) -eq 1293 ]] || fail "steps.csv has $(wc -l <logs/steps.csv) lines"
