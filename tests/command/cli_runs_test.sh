#!/usr/bin/env bash
# lockstep runs, on records of trainings just made.
# shellcheck source=tests/support/cli_testing.sh
. "$(dirname "$0")/../support/cli_testing.sh"

small=(train --model lenet --data synthetic --limit-train 64 --limit-val 32 --batch-size 32 --shards 1)
export LC_ALL=C.UTF-8

# last_rate FILE: the images a second of the run's last line.
last_rate()
{
    tail -n 1 "$1" | sed -E 's/.*"images_per_second":([0-9.]+).*/\1/'
}

run 0 "${small[@]}" --epochs 2 --devices 1xcpu --log-dir "$work/logs/a"
run 0 "${small[@]}" --epochs 3 --devices 2xcpu --shards 2 --base-lr 0.05 --log-dir "$work/logs/b"
run 0 "${small[@]}" --epochs 1 --limit-val 0 --devices 1xcpu --log-dir "$work/logs/b"
digest=$(awk '/^digest/ { print $2 }' "$work/stdout" "$work/stderr")

run 0 runs "$work/logs"
silent_stderr
lines '^run +model +data +devices +epochs +best accuracy +time' \
    '^a +lenet +synthetic +cpu:0 +2 +[01]\.[0-9]{4} \(epoch [12]\) +[0-9.]+ s$' \
    '^b/epochs\.jsonl +lenet +synthetic +cpu:0,cpu:1 +3 +[01]\.[0-9]{4} \(epoch [1-3]\) ' \
    '^b/epochs-2\.jsonl +lenet +synthetic +cpu:0 +1 +[01]\.[0-9]{4} \(training, epoch 1\) '
run 0 runs --json "$work/logs/"
lines '"path":".*/a/epochs.jsonl".*"best_of":"validation".*"finished":true' '"devices":"cpu:0,cpu:1","epochs":3,' \
    "\"best_epoch\":1,\"best_of\":\"training\".*\"digest\":\"$digest\""

# Epochs whose records are in another folder count.
run 0 "${small[@]}" --epochs 1 --devices 1xcpu --checkpoint-dir "$work/earlier"
run 0 "${small[@]}" --epochs 2 --devices 1xcpu --checkpoint-dir "$work/earlier" --resume --log-dir "$work/resumed"
run 0 runs "$work/resumed"
line '^\. +lenet +synthetic +cpu:0 +2 +[01]\.[0-9]{4} \(epoch 2\) '
run 0 runs --json "$work/resumed"
line '"epochs":2,'
run 0 runs compare "$work/resumed" "$work/logs/a"
line '^  epochs +2 +2$'

# A folder stands for its last run.
run 0 runs compare "$work/logs/b/epochs.jsonl" "$work/logs/b" --out "$work/curves.svg"
line '^  base-lr +0\.05 +[0-9.]+$'
line '^  shards +2 '
line '^  strategy in use +mirrored +one-device$'
line '^  devices in use +cpu:0,cpu:1 +cpu:0$'
line "^  digest +[0-9a-f]{32} +$digest\$"
line "$(printf '^  images a second +%.0f +%.0f$' "$(last_rate "$work/logs/b/epochs.jsonl")" "$(last_rate "$work/logs/b/epochs-2.jsonl")")"
line '^  best accuracy +[01]\.[0-9]{4} \(epoch [1-3]\) +[01]\.[0-9]{4} \(training, epoch 1\)$'
line 'training accuracy' # only one of them was evaluated
line 'training loss'
line '● .*b/epochs\.jsonl$'
line '▲ .*b/epochs-2\.jsonl$'
if grep -q '^  model' "$work/stdout"; then
    fail "the model is said to differ"
fi
! grep -qE '^  [a-z]+ +- +-$' "$work/stdout" || fail "a setting that neither has is said to differ"
holds "$work/curves.svg" '<svg' 'training accuracy'
run 0 runs compare "$work/logs/a" "$work/logs/b/epochs.jsonl"
line 'validation accuracy'
line 'validation loss'
LC_ALL=C run 0 runs compare "$work/logs/a" "$work/logs/a"
prints 'no setting differs'
if LC_ALL=C grep -q '[^ -~]' "$work/stdout"; then
    fail "more than ASCII where the locale has no more"
fi

# A run that was resumed with other settings is shown with those.
run 0 "${small[@]}" --epochs 1 --devices 1xcpu --log-dir "$work/on" --checkpoint-dir "$work/kept"
run 0 "${small[@]}" --epochs 2 --devices 1xcpu --log-dir "$work/on" --checkpoint-dir "$work/kept" --resume --override
run 0 runs compare "$work/on" "$work/logs/a"
if grep -q '^  epochs .*1' "$work/stdout"; then
    fail "the settings are those that the run began with"
fi

# Control characters in records, even in names of settings, do not reach the terminal.
mkdir "$work/hostile"
sed 's/"model":/"\\u001b[31mmodel":/' "$work/logs/a/epochs.jsonl" >"$work/hostile/epochs.jsonl"
run 0 runs compare "$work/hostile" "$work/logs/a"
line '^  \?\[31mmodel +lenet +-$'
! grep -q $'\033' "$work/stdout" || fail "an escape sequence comes through"

# Records that a dying program left, and files that are not records.
head -c -20 "$work/logs/a/epochs.jsonl" >"$work/cut"
mv "$work/cut" "$work/logs/a/epochs.jsonl"
run 0 runs "$work/logs/a"
line '^\. .* interrupted$'
begin "${small[@]}" --epochs 1000 --devices 1xcpu --log-dir "$work/now"
until_there '"event":"epoch"' "$work/now/epochs.jsonl"
"$LOCKSTEP" runs "$work/now" | grep -q ' trains$' || fail 'a run that trains is not seen to train'
kill -KILL "$process"
ends_with 137
run 0 runs "$work/now"
line '^\. .* interrupted$'
echo nonsense >>"$work/logs/b/epochs.jsonl"
run 1 runs "$work/logs"
line '^a '
says 'b/epochs.jsonl:'

# A folder without permission does not hide the others. Root may read all folders, unless it gives that up.
mkdir -p "$work/shared/closed"
cp -r "$work/logs/a" "$work/shared/open"
chmod 0 "$work/shared/closed"
printf '#!/bin/sh\nexec %s "%s" "$@"\n' \
    "$([[ $(id -u) -ne 0 ]] || echo setpriv --bounding-set=-dac_override,-dac_read_search)" "$LOCKSTEP" >"$work/user"
chmod +x "$work/user"
if "$work/user" version >/dev/null 2>&1; then
    LOCKSTEP=$work/user run 1 runs "$work/shared"
    line '^open +lenet '
    says 'shared/closed: cannot be read: Permission denied'
else
    echo "SKIP: no setpriv; folders that may not be read were not tried"
fi
chmod 700 "$work/shared/closed"

run 1 runs "$work/nowhere"
complains "$work/nowhere: cannot be read"
mkdir "$work/empty"
run 0 runs "$work/empty"
silent_stdout
says 'no runs in'
mkdir "$work/odd"
mkfifo "$work/odd/epochs.jsonl"
run 1 runs compare "$work/logs/a" "$work/odd"
complains 'odd/epochs.jsonl: is no file'
run 1 runs compare "$work/logs/a" "$work/empty"
complains 'holds no records of a run'

# Two runs that were asked for a picture before their first epoch was over.
mkdir "$work/begun"
: >"$work/begun/epochs.jsonl"
run 1 runs compare "$work/begun" "$work/begun" --out "$work/nothing.svg"
prints 'no setting differs'
says 'nothing.svg: not written: neither run has an epoch to draw'
[[ ! -e $work/nothing.svg ]] || fail "a picture of nothing"
run 0 runs compare "$work/begun" "$work/begun"

run 2 runs compare "$work/logs/a"
complains 'two runs are needed'
run 2 runs a b
complains "unexpected argument 'b'"
