#!/usr/bin/env bash
# A network with squeeze-and-excitation and a gate of two convolutions has one digest on any number of devices, resumed or
# not, and is exported in every format.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
cp "$(dirname "$0")/../data/networks/squeeze-excite.lk" "$work/net.lk"
cd "$work"

digest() {
    "$LOCKSTEP" train --model net.lk --data synthetic --limit-train 96 --limit-val 32 --batch-size 32 --shards 4 "$@" \
        >out 2>&1 || { cat out; return 1; }
    grep '^digest ' out
}
one=$(digest --devices 1xcpu --epochs 2 --checkpoint-dir whole)
[[ $(digest --devices 2xcpu --epochs 2) == "$one" ]]
[[ $(digest --devices 4xcpu --epochs 2 --bn sync --recompute) =~ ^digest ]]
[[ $(digest --devices 3xcpu --epochs 2 --recompute) == "$one" ]]
digest --devices 2xcpu --epochs 1 --checkpoint-dir parts >/dev/null
[[ $(digest --devices 1xcpu --epochs 2 --checkpoint-dir parts --resume) == "$one" ]]

for format in onnx savedmodel c safetensors; do
    "$LOCKSTEP" export whole --format "$format" --out "net.$format" >/dev/null
done
