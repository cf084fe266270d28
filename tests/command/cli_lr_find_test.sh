#!/usr/bin/env bash
# lockstep lr-find: the table, the suggestion, the chart, bad input.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

small=(lr-find --model keras-cnn --data synthetic --limit-train 640 --batch-size 32 --steps 40 --low 1e-5 --shards 4)
run 0 "${small[@]}" --devices 1 --out "$work/rates.svg"
prints 'Suggestion: --base-lr '
prints 'lowest'
grep -q '<svg' "$work/rates.svg" || fail 'draws no chart'
cp "$work/stdout" "$work/one"
run 0 "${small[@]}" --devices 2 --out "$work/rates.svg"
cmp "$work/stdout" "$work/one"
run 0 "${small[@]}" --high 2e-5
prints 'No suggestion: the loss did not fall'
run 2 "${small[@]}" --high 1e-6
complains '--low 1e-05 --high 1e-06: rates must be above 0, and the highest above the lowest'
run 2 "${small[@]}" --steps 3
complains '--steps 3: must be'
run 2 "${small[@]}" --base-lr 1
run 1 "${small[@]}" --out /nowhere/rates.svg
run 2 "${small[@]}" --out "$work/rates.txt"
complains "$work/rates.txt: a chart's file ends in .svg or .png"
run 2 "${small[@]}" --strategy parameter-server
