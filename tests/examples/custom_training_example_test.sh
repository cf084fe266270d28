#!/usr/bin/env bash
# The example prints the same on one, two and three devices, with equal variables in all replicas, also if it is killed
# and resumed.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

example=$(dirname "$LOCKSTEP")/examples/custom_training
cd "$work"

for devices in 1 2 3; do
    "$example" synthetic 2 330 "${devices}xcpu" >"$devices"
    [[ $(head -n 1 "$devices") == "Number of devices: $devices" ]]
    [[ $(grep -c '^digest ' "$devices") -eq $devices ]]
    sed -n 's/^\(digest [0-9a-f]*\) on cpu:[0-9]$/\1/p' "$devices" | sort -u >"$devices.digests"
    grep '^Epoch ' "$devices" >"$devices.epochs"
done
cat 3
[[ $(wc -l <1.digests) -eq 1 && $(wc -l <1.epochs) -eq 4 ]]
cat {1,2,3}.digests | uniq | diff 1.digests -
diff 1.epochs 2.epochs
diff 1.epochs 3.epochs
# 330 samples are six batches: the loop over batches ends with the epoch.
grep -q '^Epoch 2, 6 steps, Loss: ' 1

# The test loss is the mean over samples, also if the last batch is smaller.
sed 's/.*, Test Loss/Test Loss/' 1.epochs | grep '^Test Loss' >loss-64
for batch in 7 100 330; do
    "$example" synthetic 2 330 2xcpu "$batch" | sed -n 's/^Epoch .*, \(Test Loss.*\)/\1/p' | diff loss-64 -
done

# The example is killed at random moments, also while it writes a checkpoint, and resumed on other devices.
"$example" synthetic 6 330 2xcpu >whole
grep '^Epoch ' whole >whole.epochs
"$example" synthetic 6 330 2xcpu 64 unhurt >/dev/null
digest=$(sed -n 's/^digest \([0-9a-f]*\) .*/\1/p' whole | head -n 1)
seed=${LOCKSTEP_TEST_SEED:-$$}
echo "LOCKSTEP_TEST_SEED=$seed"
RANDOM=$seed
newest()
{
    find kept -maxdepth 1 -name 'checkpoint-*' | sort | tail -n 1
}

mkdir kept
for attempt in {1..8}; do
    LOCKSTEP_CHECKPOINT_SLOW=2 "$example" synthetic 6 330 "$((RANDOM % 3 + 1))xcpu" 64 kept >"killed.$attempt" &
    process=$!
    before=$(newest)
    while [[ -n $(jobs -pr) && $(newest) == "$before" ]]; do
        sleep 0.02
    done
    sleep "0.0$((RANDOM % 10))"
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" || true
done
"$example" synthetic 6 330 1xcpu 64 kept >last
cat last
grep -q "^digest $digest on" last
grep -q '^Going on after' last
# The records have each row of the undisturbed run once, and the killed runs printed only its lines.
diff unhurt.csv kept.csv
cat killed.* last | grep '^Epoch ' | sort -u | diff <(sort -u whole.epochs) -
status=0
"$example" synthetic 6 200 1xcpu 64 kept 2>refused || status=$?
[[ $status -eq 1 ]] && grep -q 'is of a training on other data' refused
