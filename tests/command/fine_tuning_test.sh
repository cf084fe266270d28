#!/usr/bin/env bash
# A network goes on with a new head: --weights-skip says what it takes, --freeze trains the head alone, and the digest is
# that of any number of devices. Wrong patterns are errors before training.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
cd "$work"

settings=(--data synthetic --limit-train 96 --limit-val 32 --batch-size 32 --epochs 1 --shards 4)
body='conv1: conv2d 4 kernel=3 padding=same
bn1: batch_norm
relu
global_avg_pool'
printf '%s\nold: dense classes\n' "$body" >old.lk
printf '%s\nnew: dense 12\nrelu\nhead: dense classes\n' "$body" >new.lk
"$LOCKSTEP" train "${settings[@]}" --model old.lk --devices 1xcpu --checkpoint-dir before >/dev/null 2>&1
weights=(before/checkpoint-*/model.safetensors)

fails_with() {
    local text=$1 status=0
    shift
    "$LOCKSTEP" train "${settings[@]}" "$@" >out 2>&1 || status=$?
    [[ $status -ne 0 ]]
    grep -F -- "$text" out >/dev/null || { cat out; return 1; }
}
fails_with '--weights before: is a folder; ' --model new.lk --weights before
fails_with 'has no new.weight, which is new.weight of model new.lk, nor 3 more of its 10 variables; --weights-skip PATTERNS' \
    --model new.lk --weights "${weights[0]}"
fails_with 'has no new.bias, which is new.bias of model new.lk; --weights-skip new.bias would leave it as it is' \
    --model new.lk --weights "${weights[0]}" --weights-skip 'new.weight,head,old'
fails_with 'has a tensor old.weight, which is none of' --model new.lk --weights "${weights[0]}" --weights-skip new,head
fails_with '--weights-skip nwe: fits no variable of model new.lk and no tensor of' --model new.lk --weights "${weights[0]}" \
    --weights-skip 'nwe,head,old'
fails_with '--weights-skip new: must be with --weights' --model new.lk --weights-skip new
fails_with '--freeze conv3: fits no parameter of model new.lk' --model new.lk --freeze conv3

for devices in 1 2 4; do
    "$LOCKSTEP" train "${settings[@]}" --model new.lk --devices "${devices}xcpu" --weights "${weights[0]}" \
        --weights-skip 'new,head*,old' --freeze conv1,bn1 --checkpoint-dir "after$devices" >out 2>&1
    cat out
    grep -o 'digest [0-9a-f]*' out >"digest$devices"
done
diff digest1 digest2
diff digest1 digest4
grep -F -- '--weights: taken: conv1.weight, conv1.bias, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var' out
grep -F -- '--weights: skipped, and not in the file: new.weight, new.bias, head.weight, head.bias' out
grep -F -- '--weights: left out, because they are not in the model: old.weight, old.bias' out
grep -F ' parameters, 48 frozen)' out

# What was trained is evaluated without these options, and exported.
"$LOCKSTEP" evaluate after1 --data synthetic >out
cat out
"$LOCKSTEP" export after1 --format onnx --out net.onnx >/dev/null
