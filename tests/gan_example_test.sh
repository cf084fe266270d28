#!/usr/bin/env bash
# The example prints the same on one, two and three devices, every replica of both models has the same variables, and
# the samples are drawn alike.
set -euo pipefail

example=$(dirname "$LOCKSTEP")/examples/gan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for devices in 1 2 3; do
    "$example" synthetic 2 330 "${devices}xcpu" "$devices.png" >"$devices"
    [[ $(grep -c 'or: digest [0-9a-f]\{32\}$' "$devices") -eq $((2 * devices)) ]]
    grep -v -e '\.png$' -e '^no picture' "$devices" | uniq >"$devices.values"
done
cat 3
[[ $(wc -l <1.values) -eq 4 ]]
diff 1.values 2.values
diff 1.values 3.values
if grep -q '^no picture of samples: ' 1; then
    exit 0
fi
[[ $(head -c 4 1.png | tail -c 3) == PNG ]]
cmp 1.png 2.png
cmp 1.png 3.png
