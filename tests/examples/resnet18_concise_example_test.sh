#!/usr/bin/env bash
# The example trains on one device and on two, with the same variables at the end, and on two at twice the rate. Its
# plot ends with the last epoch.
set -euo pipefail

output=$("$(dirname "$LOCKSTEP")/examples/resnet18_concise" synthetic 1 8)
echo "$output"
mapfile -t accuracies < <(sed -n 's/^test acc: \([0-9.]*\), [0-9.]* sec\/epoch on cpu:0.*/\1/p' <<<"$output")
mapfile -t digests < <(sed -n 's/^digest: \([0-9a-f]\{32\}\)$/\1/p' <<<"$output")
[[ ${#accuracies[@]} -eq 3 && ${accuracies[0]} == "${accuracies[1]}" ]]
[[ ${#digests[@]} -eq 3 && ${digests[0]} == "${digests[1]}" && ${digests[1]} != "${digests[2]}" ]]
grep -q ' sec/epoch on cpu:0$' <<<"$output"
[[ $(grep -c ' sec/epoch on cpu:0 cpu:1$' <<<"$output") -eq 2 ]]
[[ $(grep -c 'val accuracy' <<<"$output") -eq 3 ]]
