#!/usr/bin/env bash
# The small MobileNetV2 learns, with one digest on any number of devices, resumed or not, in f32 and in bf16, and goes to
# every format of export.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

model=$(cd "$(dirname "$0")/../.." && pwd)/examples/models/mobilenet-v2.lk
data=synthetic
[[ ! -e ${LOCKSTEP_DATA:-}/fashion-mnist ]] || data=fashion-mnist
cd "$work"

digest() { # NAME OPTION…
    local name=$1
    shift
    "$LOCKSTEP" train --model "$model" --data "$data" --limit-train 256 --limit-val 64 --batch-size 32 --shards 4 \
        --optimizer adam --base-lr 0.003 "$@" >"$name" 2>&1 || { cat "$name"; return 1; }
    grep '^digest ' "$name"
}
one=$(digest one --devices 1xcpu --epochs 2 --checkpoint-dir whole)
cat one
for devices in 2 4; do
    [[ $(digest "$devices" --devices "${devices}xcpu" --epochs 2) == "$one" ]]
done
[[ $(digest eager --devices 2xcpu --epochs 2 --executor eager) =~ ^digest ]]
digest half --devices 2xcpu --epochs 1 --checkpoint-dir parts >/dev/null
[[ $(digest resumed --devices 1xcpu --epochs 2 --checkpoint-dir parts --resume) == "$one" ]]
[[ $(digest half1 --devices 1xcpu --epochs 1 --dtype bf16) == "$(digest half2 --devices 2xcpu --epochs 1 --dtype bf16)" ]]

# The loss falls.
losses=$(sed -n 's/^epoch [12]\/2  loss \([0-9.]*\) .*/\1/p' one)
awk -v a="${losses%%$'\n'*}" -v b="${losses##*$'\n'}" 'BEGIN { exit !(b < a) }'

for format in onnx c savedmodel; do
    "$LOCKSTEP" export whole --format "$format" --out "net.$format" >/dev/null
done
