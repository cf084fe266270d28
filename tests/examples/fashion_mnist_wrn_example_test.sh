#!/usr/bin/env bash
# The example gives the same result on one device, on two, and as the command's recipe, and its callbacks print and stop
# as in the original lab.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

example=$(dirname "$LOCKSTEP")/examples/fashion_mnist_wrn
cd "$work"

settings=(--data synthetic --limit-train 2 --limit-val 8 --batch-size 2 --val-batch-size 8 --epochs 2 --base-lr 0.001
    --target-accuracy 0 --patience 1 --shards 2)

run() # NAME OPTION...
{
    "$example" "${settings[@]}" --log-dir "logs-$1" "${@:2}" >"$1"
    ls "logs-$1"/*tfevents*
    grep -Eq '^Images/sec: [0-9]+\.[0-9]{2}$' "$1"
    grep -Eq '^Cumulative training time after epoch 1: [0-9]+\.[0-9]{2}$' "$1"
    grep -Eq '^Cumulative training time: [0-9]+\.[0-9]{2}$' "$1"
    grep -v -e '^Images/sec' -e '^Cumulative' "$1" >"$1.timeless"
}

run 1 --devices 1xcpu
run 2 --devices 2xcpu
cat 1
diff 1.timeless 2.timeless
grep -q '^Epoch 1/2 - loss: ' 1

# Training stops after the first epoch whose accuracy is above 0.
above=$(sed -n 's/^Epoch \([12]\)\/2 .* val_accuracy: [0.]*[1-9][0-9.]*$/\1/p' 1)
stopped=$(sed -n 's/^Early stopping after epoch //p' 1)
[[ $above == "$stopped" && $(grep -c '^Epoch ' 1) -eq ${stopped:-2} ]]

grep -Eq '^Test accuracy: 0\.[0-9]+$' 1
digest=$(sed -n 's/^digest \([0-9a-f]\{32\}\)$/\1/p' 1)
[[ -n $digest ]]

"$LOCKSTEP" train --recipe fashion-mnist-wrn "${settings[@]}" --epochs "$(grep -c '^Epoch ' 1)" --devices 2xcpu \
    --log-dir log >recipe 2>&1
grep -q "$digest" recipe

"$example" --help >help
grep -q -- '--patience X ' help
status=0
"$example" --target-accuracy 1.5 2>stderr || status=$?
[[ $status -eq 1 && $(<stderr) == *'--target-accuracy 1.5: must be a number from 0 to 1' ]]
