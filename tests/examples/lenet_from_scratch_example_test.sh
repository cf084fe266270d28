#!/usr/bin/env bash
# The example trains on one device and on two, and ends with the same accuracy.
set -euo pipefail

output=$("$(dirname "$LOCKSTEP")/examples/lenet_from_scratch" synthetic 2 1024)
echo "$output"
mapfile -t accuracies < <(sed -n 's/^test acc: \([0-9.]*\), [0-9.]* sec\/epoch on cpu:0.*/\1/p' <<<"$output")
[[ ${#accuracies[@]} -eq 2 && ${accuracies[0]} == "${accuracies[1]}" ]]
grep -q ' sec/epoch on cpu:0$' <<<"$output"
grep -q ' sec/epoch on cpu:0 cpu:1$' <<<"$output"
