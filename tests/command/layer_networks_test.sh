#!/usr/bin/env bash
# Networks with group and layer normalization, layer scale, concatenation, stochastic depth and sizes that differ along
# height and width have one digest on any number of devices and processes, resumed or not, and go through evaluation,
# prediction, fine-tuning and export in every format.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

models=$(cd "$(dirname "$0")/../.." && pwd)/examples/models
cp "$(dirname "$0")/../data/networks/kinds.lk" "$work"
data=synthetic
[[ ! -e ${LOCKSTEP_DATA:-}/fashion-mnist ]] || data=fashion-mnist
cd "$work"

train() { # MODEL NAME OPTION…
    local model=$1 name=$2
    shift 2
    "$LOCKSTEP" train --model "$model" --data "$data" --limit-train 128 --limit-val 64 --batch-size 32 --shards 4 \
        --optimizer adam --base-lr 0.003 "$@" >"$name" 2>&1 || { cat "$name"; return 1; }
    grep '^digest ' "$name"
}
for model in kinds.lk "$models/densenet.lk" "$models/convnext.lk"; do
    name=$(basename "$model" .lk)
    one=$(train "$model" one --devices 1xcpu --epochs 2 --checkpoint-dir "$name-whole")
    echo "$name: $one"
    for devices in 2 4; do
        [[ $(train "$model" "$devices" --devices "${devices}xcpu" --epochs 2) == "$one" ]]
    done
    train "$model" half --devices 2xcpu --epochs 1 --checkpoint-dir "$name-parts" >/dev/null
    [[ $(train "$model" resumed --devices 1xcpu --epochs 2 --checkpoint-dir "$name-parts" --resume) == "$one" ]]
done

# Recomputation and processes change no bit; eager calls and bf16 give the same on any number of devices.
one=$(train kinds.lk one --devices 1xcpu --epochs 1)
[[ $(train kinds.lk recomputed --devices 2xcpu --epochs 1 --recompute) == "$one" ]]
"$LOCKSTEP" launch -n 2 -- train --model kinds.lk --data "$data" --limit-train 128 --limit-val 64 --batch-size 32 \
    --shards 4 --optimizer adam --base-lr 0.003 --devices 1xcpu --epochs 1 >ranks 2>&1 || { cat ranks; exit 1; }
[[ $(sed -n 's|^\[0\] digest|digest|p' ranks) == "$one" ]]
for option in "--executor eager" "--dtype bf16"; do
    # shellcheck disable=SC2086 # an option and its value
    [[ $(train kinds.lk a --devices 1xcpu --epochs 1 $option) == "$(train kinds.lk b --devices 4xcpu --epochs 1 $option)" ]]
done

# Weights of one training begin another, in which frozen layers keep theirs.
"$LOCKSTEP" export kinds-whole --format safetensors --out kinds.safetensors >/dev/null
train kinds.lk tuned --devices 2xcpu --epochs 1 --weights kinds.safetensors --freeze 'norm,branch,stem' \
    --checkpoint-dir tuned-run >/dev/null
"$LOCKSTEP" export tuned-run --format safetensors --out tuned.safetensors >/dev/null
if cmp -s kinds.safetensors tuned.safetensors; then exit 1; fi
"$LOCKSTEP" evaluate kinds-whole >evaluated 2>&1 || { cat evaluated; exit 1; }
{ printf 'P5 28 28 255\n' && head -c 784 /dev/zero; } >black.pgm
"$LOCKSTEP" predict kinds-whole black.pgm
"$LOCKSTEP" summary --model kinds.lk >layers
cat layers
grep -E '^branch.layer_norm +layer_norm ' layers
grep -E '^branch +concat +10x' layers
grep -E '^branch.drop_path +drop_path ' layers

for name in kinds densenet convnext; do
    for format in onnx c savedmodel; do
        "$LOCKSTEP" export "$name-whole" --format "$format" --out "$name.$format" >/dev/null
    done
done
