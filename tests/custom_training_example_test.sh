#!/usr/bin/env bash
# The example prints the same on one, two and three devices, and every replica has the same variables.
set -euo pipefail

example=$(dirname "$LOCKSTEP")/examples/custom_training
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
# 330 samples are six batches: the loop by batches ends with the epoch.
grep -q '^Epoch 2, 6 steps, Loss: ' 1

# The test loss is the mean over samples, also where they are not whole batches.
sed 's/.*, Test Loss/Test Loss/' 1.epochs | grep '^Test Loss' >loss-64
for batch in 7 100 330; do
    "$example" synthetic 2 330 2xcpu "$batch" | sed -n 's/^Epoch .*, \(Test Loss.*\)/\1/p' | diff loss-64 -
done
