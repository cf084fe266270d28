#!/usr/bin/env bash
# lockstep sweep: errors before the first run, the table, the files, runs that do not count, and interrupts.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

cd "$work"
small=(sweep --data synthetic --limit-train 20 --batch-size 8 --devices 1)
soon=("${small[@]}" --measure time-to-accuracy --limit-val 100 --epochs 3)

# ---- refused before any work ----

run 2 "${small[@]}"
complains '--over is missing'
run 2 "${small[@]}" --over batch-size
complains '--over batch-size' 'batch-size=8,16,32'
run 2 "${small[@]}" --over batchsize=8
complains "'--batchsize'" "'--batch-size'"
run 2 "${small[@]}" --ovre batch-size=8
complains "'--ovre'" "'--over'"
run 2 "${small[@]}" --over batch-size=8,0
complains '--batch-size 0' 'must be'
run 2 "${small[@]}" --over batch-size=8,4,8
complains '--over batch-size' '8 is given twice'
run 2 "${small[@]}" --over batch-size=8,4 --shards 8
complains '--over batch-size=4' '--shards 8' 'batch size, 4'
run 2 "${small[@]}" --over devices=1,1xnpu
complains '--over devices=1xnpu' "'npu'"
run 2 "${small[@]}" --over ledger=true
complains '--over ledger'
for seeds in 0 -1 1001 x; do
    run 2 "${small[@]}" --over batch-size=8 --seeds "$seeds"
    complains "--seeds $seeds" 'must be an integer from 1 to 1000'
done
for target in 1.01 -0.1 x; do
    run 2 "${soon[@]}" --over batch-size=8 --target "$target"
    complains "--target $target" 'from 0 to 1'
done
run 2 "${soon[@]}" --over batch-size=8
complains '--target' 'missing'
run 2 "${soon[@]}" --over batch-size=8 --target 0.5 --limit-val 0
complains '--limit-val 0' 'evaluation'
run 2 "${small[@]}" --over batch-size=8 --target 0.5
complains '--target 0.5' 'time-to-accuracy'
run 2 "${small[@]}" --over batch-size=8 --patience 3
complains '--patience 3' 'time-to-accuracy'
run 2 "${small[@]}" --over batch-size=8 --measure speed
complains '--measure speed' 'throughput or time-to-accuracy'
run 2 "${small[@]}" --over batch-size=8 --out ''
complains '--out'
echo '[network]' >bad.lk
run 1 "${small[@]}" --over "model=lenet,./bad.lk"
complains '--over model=./bad.lk' 'bad.lk'
echo >file
run 1 "${small[@]}" --over batch-size=8 --out file/below
complains 'file'
for over in batch-size=8 epochs=2,1; do
    run 2 "${small[@]}" --over "$over" --epochs 1
    complains '--epochs 1' 'at least 2'
done
[[ -z $(find . -name 'study*') ]] || fail "it left files"

# ---- throughput ----

number='[0-9]+(\.[0-9]+)?'
drawn=svg
if "$LOCKSTEP" doctor 2>/dev/null | grep -E '^  libcairo +[0-9]' >/dev/null; then
    drawn='svg png'
fi

run 0 "${small[@]}" --over batch-size=4,20
lines '^batch-size +images/s$' "^4 +$number\$" "^20 +$number\$"
says 'run 1 of 2: batch-size 4, seed 0'
says 'run 2 of 2: batch-size 20, seed 0'
says 'epoch 3/3'
[[ $(grep -c 'lenet (129068 parameters)' stderr) -eq 1 ]] || fail "not one plan"
! grep -q 'val loss' stderr || fail "it evaluates"
! grep -q $'[\r\033]' stderr || fail "a bar was drawn where there is no terminal"
holds study-batch-size/study.json '"measure": "throughput"' '"complete": true' '"status": "ok"'
for extension in $drawn; do
    [[ -s study-batch-size/study.$extension ]] || fail "no study.$extension"
done
holds study-batch-size/study.svg '</svg>' '>batch size<' '>20<'

# An earlier study's files stay; --json prints the contents of the file.
cp study-batch-size/study.json first.json
run 0 "${small[@]}" --over batch-size=4 --json
cmp -s study-batch-size/study.json first.json || fail "the first study was changed"
cmp -s stdout study-batch-size/study-2.json || fail "--json does not print the file"
[[ -s study-batch-size/study-2.svg ]] || fail "no second chart"

run 0 "${small[@]}" --over 'augment=flip;shift=0.2,crop=2' --seeds 3 --seed 5 --out below/deep --limit-val 10 --epochs 2
lines '^augment +images/s +95% interval +val accuracy$' "^flip +$number +$number … $number +$number\$" \
      "^shift=0\.2,crop=2 +$number +$number … $number +$number\$"
says 'run 6 of 6: augment shift=0.2,crop=2, seed 7'
[[ -s below/deep/study.json ]] || fail "no study in --out"

# Another number of devices, the same shards, in settings, rows and runs, and the same digests.
run 0 "${small[@]}" --over devices=1xcpu,3xcpu --json
[[ $(grep -c '"shards": 4' stdout) -eq 5 ]] || fail "not the shards of three devices"
[[ $(grep '"digest"' stdout | sort -u | wc -l) -eq 1 ]] || fail "different digests"

# Only the batch size varies, as far as batches have shards: devices stay the same.
small_no_devices=(sweep --data synthetic --limit-train 128)
run 0 "${small_no_devices[@]}" --over batch-size=128,64 --json
[[ $(count_cores) -gt 2 || $(grep '"devices": ' stdout | sort -u | wc -l) -eq 1 ]] || fail "other devices for the smaller batch"
if [[ $(count_cores) -gt 1 ]]; then
    run 0 "${small_no_devices[@]}" --over batch-size=128,1
    lines '^batch-size +images/s +devices +shards$' "^128 +$number +[2-9] +4\$" "^1 +$number +1 +1\$"
fi

# A recipe gives the settings, except for its target, records and epochs.
run 0 sweep --recipe fashion-mnist-wrn --over batch-size=8 --model lenet --data synthetic --limit-train 16 --devices 1 \
      --out recipe
says 'images    shifted'
says 'epoch 3/3'
[[ ! -e logs ]] || fail "a log folder that nobody asked for"
holds recipe/study.json '"recipe": "fashion-mnist-wrn"' '"wd": 5e-6' '"nesterov": false' '"parameters": 129068'

run 0 "${small[@]}" --over batch-size=4,8 --epochs 2 --log-dir logs --out logged
for size in 4 8; do
    [[ -s logs/batch-size=$size,seed=0/epochs.csv ]] || fail "no records of batch-size $size"
done

# ---- time to accuracy ----

run 0 "${soon[@]}" --over target-accuracy=0,1 --seeds 2 --out soon
lines '^target-accuracy +seconds +95% interval +epochs +val accuracy$' \
      "^0 +$number +$number … $number +2\.0 +$number\$" '^1 +- +- +- +[01]\.[0-9]{4}  not reached \(2 of 2\)$'
says ': the target was passed after epoch 2, '
says ': the target was not reached by epoch 3'
holds soon/study.json '"measure": "time-to-accuracy"' '"not_reached": 2' '"seconds_to_accuracy": null'
holds soon/study.json '"target": null' '"patience": 2'
holds soon/study.svg 'not reached (2 of 2)'
run 0 "${soon[@]}" --over batch-size=8 --target 0 --patience 1 --out patience
lines '^batch-size +seconds +epochs +val accuracy$' "^8 +$number +1 +$number\$"

# ---- a run that fails ----

# Weights that grow a thousandfold in every step are not finite before the last epoch.
run 1 "${small[@]}" --over wd=1e3,0 --base-lr 1 --epochs 6 --out failing
says 'run 1 of 2: wd 1e3, seed 0: failed: epoch '
lines '^wd +images/s$' '^1e3 +-  failed \(1 of 1\)$' "^0 +$number\$"
holds failing/study.json '"failed": 1' '"status": "ok"' '"message": "epoch '

# ---- cores that others use ----

if [[ $(count_cores) -le 8 ]]; then
    devices=$((4 * $(count_cores))) # each has a shard whose operators last long enough to lose the core
    run 0 sweep --data synthetic --limit-train $((64 * 29 * devices)) --limit-val 0 --batch-size $((64 * devices)) \
        --shards "$devices" --epochs 2 --over "devices=${devices}xcpu" --out busy
    line "^[0-9]+xcpu +$number\$"
    says '  other processes, or more devices than cores, took the cores for '
    says "warning: in 1 of 1 run other processes, or more devices than cores, took more than a tenth of the cores' time"
fi

# ---- interrupts ----

begin sweep --data synthetic --batch-size 64 --devices 1 --over epochs=2,100000 --limit-train 128 --out interrupted
until_there '^run 2 of 2: epochs 100000, seed 0$' stderr
until_there '^epoch +1/100000' stderr
kill -INT "$process"
ends_with 130
says 'finishing this step'
says 'run 2 of 2: epochs 100000, seed 0: interrupted'
says 'lockstep: study: interrupted after 1 of 2 runs'
lines '^epochs +images/s$' "^2 +$number\$" '^100000 +-  not run \(1 of 1\)$' '^incomplete: 1 of 2 runs$'
holds interrupted/study.json '"complete": false' '"status": "ok"' '"status": "not run"'
holds interrupted/study.svg 'not run (1 of 1)'

# A second interrupt does not wait for a step that takes seconds; the first run is kept.
begin sweep --data synthetic --limit-train 512 --devices 1 --epochs 2 --over 'model=lenet,resnet18' --batch-size 512 \
      --out at-once
until_there '^run 2 of 2: model resnet18, seed 0$' stderr
until_in_step
kill -INT "$process"
until_there 'finishing this step' stderr
interrupt_again
ends_with 130
[[ ! -s stdout ]] || fail "the second interrupt waited"
holds at-once/study.json '"complete": false' '"status": "ok"' '"status": "not run"'
