#!/usr/bin/env bash
# lockstep export: each format of the last and the best checkpoint, and errors.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

cd "$work"
run 0 train --model lenet --data synthetic --limit-train 128 --limit-val 64 --batch-size 32 --epochs 2 \
    --normalize standard --checkpoint-dir run

# --- formats ---------------------------------------------------------------------------------------------------------

run 0 export run --out net.onnx
silent_stderr
lines '^net\.onnx: lenet for images of 1x28x28 in 10 classes, 129068 values, after 8 steps$'
[[ $(stat -c %s net.onnx) -gt $((129068 * 4)) ]] || fail "net.onnx is too small for its weights"
holds net.onnx conv1.weight images//divisor probabilities

chmod 600 net.onnx
run 0 export run --out net.onnx
[[ $(stat -c %a net.onnx) == 600 ]] || fail "a private file became public"

run 0 export run --out beside.onnx --external-data
[[ $(stat -c %s beside.onnx.data) -ge $((129068 * 4)) && $(stat -c %s beside.onnx) -lt 10000 ]] ||
    fail "the weights are not in beside.onnx.data"

run 1 export --format savedmodel --out served/1 run
complains 'served/1' 'No such file or directory'
mkdir served
run 0 export --format savedmodel --out served/1 run
holds served/1/saved_model.pb serving_default network/conv1
run 1 export --format savedmodel --out served/1 run
complains_just "served/1: is there already; a SavedModel is written to a new folder"

run 0 export run --format savedmodel --channels-last --signature classify --out served/2
holds served/2/saved_model.pb classify network/conv1
if grep -q 'serving_default\|channels_last_raw' served/2/saved_model.pb; then
    fail 'the other signature, or a transposition, is there'
fi

run 0 export run --best --out net.safetensors
holds net.safetensors '"conv1.weight"'
cmp -s net.safetensors run/checkpoint-00000008/model.safetensors ||
    cmp -s net.safetensors run/checkpoint-00000004/model.safetensors ||
    fail "net.safetensors is no checkpoint's"
run 2 export run/checkpoint-00000008 --best --out net.safetensors
complains_just "run/checkpoint-00000008: is a checkpoint itself; the best is one of the folder that holds it"

run 0 export run --names pytorch --out torch.safetensors
holds torch.safetensors '"9.weight":{"dtype":"F32","shape":[10,128]'
run 1 export run --names book --out book.safetensors
complains_just 'lenet: has no names of Dive into Deep Learning; resnet18 has'

run 0 export run --out net.c
holds net.h 'int net_classify(const float *image, float *scratch, float *probabilities);' '#define NET_CLASSES 10'
[[ ! -e net.weights ]] || fail "weights are beside net.c"
if command -v gcc >/dev/null; then
    gcc -std=c11 -Wall -Wextra -pedantic -Werror -c net.c || fail "net.c does not compile"
fi

# --- command lines that make no sense --------------------------------------------------------------------------------

run 2 export
complains 'a checkpoint folder is missing' '--checkpoint-dir'
run 2 export run run --out x.onnx
complains "unexpected argument 'run'"
run 2 export run
complains '--out is missing'
run 2 export run --out net
complains '--out net: its ending does not say what to write' '.safetensors, .onnx or .c' '--format'
run 2 export run --out net.c --external-data
complains '--external-data: must be with --format onnx'
run 2 export run --out net.onnx --channels-last
complains_just '--channels-last: must be with --format savedmodel'
run 2 export run --out net.c --signature classify
complains_just '--signature: must be with --format savedmodel'
for name in 3d 'a b' "$(printf 'x%.0s' {1..129})"; do
    run 2 export run --format savedmodel --out served/3 --signature "$name"
    complains "the signature '${name:0:40}' has no name that TensorFlow takes; expected letters, digits and '_'"
    [[ ! -e served/3 ]] || fail 'a refused export left a folder'
done
run 2 export run --out net.c --names pytorch
complains_just '--names: must be with --format safetensors'
run 2 export run --format c --out net.onnx
complains "net.onnx: C is written to a file whose name ends in '.c'"
run 2 export run --out - --format onnx
complains_just '--out -: an export is a file that takes its place when it is whole; expected a path'
run 2 export run --out x.onnx --format onx
complains '--format onx: must be'

# --- checkpoints stay as they are ------------------------------------------------------------------------------------

sums=$(cksum run/*/*)
for out in model.safetensors served; do
    run 2 export run --format onnx --out "run/checkpoint-00000008/$out"
    complains "run/checkpoint-00000008/$out: lies in the checkpoint $work/run/checkpoint-00000008, which stays as it is"
done
(cd run/checkpoint-00000008 && run 2 export .. --out here.onnx && complains 'here.onnx: lies in the checkpoint')
run 2 export run --format savedmodel --out run/checkpoint-00000008/served//
complains 'lies in the checkpoint'
run 2 export run --out run/checkpoint-00000004/net.c
complains 'lies in the checkpoint' checkpoint-00000004
ln -s run/checkpoint-00000004/state.json link
run 2 export run --format onnx --out link
complains 'link: lies in the checkpoint' checkpoint-00000004
[[ $(cksum run/*/*) == "$sums" ]] || fail "an export changed a checkpoint"
run 0 export run/checkpoint-00000004 --out one.onnx
line 'after 4 steps$'

# --- folders without runs ---------------------------------------------------------------------------------------------

run 1 export missing --out x.onnx
complains missing
mkdir empty
run 1 export empty --out x.onnx
complains 'empty: there is no checkpoint'
run 1 export net.onnx --out x.onnx
complains net.onnx

# A byte of the last checkpoint has changed: a warning says so, and the one before is exported.
before=$(cksum <net.onnx)
printf '\125' | dd of=run/checkpoint-00000008/model.safetensors bs=1 seek=5000 conv=notrunc status=none
run 0 export run --out net.onnx
says checkpoint-00000008
line 'after 4 steps$'
[[ $(cksum <net.onnx) != "$before" ]] || fail "net.onnx has not changed"

# All checkpoints are damaged: an error, and an existing file stays as it is.
before=$(cksum <net.onnx)
for file in run/checkpoint-*/model.safetensors; do
    truncate -s 1000 "$file"
done
run 1 export run --out net.onnx
silent_stdout
says model.safetensors
[[ $(cksum <net.onnx) == "$before" ]] || fail "a failed export changed net.onnx"
[[ ! -e x.onnx && -z $(ls -d ./*.tmp 2>/dev/null) ]] || fail "something was left behind"
