#!/usr/bin/env bash
# --recipe fashion-mnist-fast has the same bits on one, two and four devices and when resumed, trains all its epochs, or
# until a target is passed, and takes data in the format of MNIST, of another size too.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

recipe=(train --recipe fashion-mnist-fast --seed 3)
small=("${recipe[@]}" --data synthetic --limit-train 70 --limit-val 20 --batch-size 64 --shards 4)

digest()
{
    sed -nE 's/^digest ([0-9a-f]{32})$/\1/p' "$work/stderr" "$work/stdout"
}

run 0 "${small[@]}" --epochs 2 --devices 1
expected=$(digest)
[[ -n $expected ]] || fail 'no digest was printed'
says 'epoch 2/2'
for devices in 2 4; do
    run 0 "${small[@]}" --epochs 2 --devices "$devices" --checkpoint-dir "$work/$devices"
    [[ $(digest) == "$expected" ]] || fail 'another digest than on one device'
done

# Each epoch has two steps. Without the second one's checkpoint it is trained again.
rm -r "$work/4/checkpoint-00000004"
run 0 "${small[@]}" --epochs 2 --devices 2 --checkpoint-dir "$work/4" --resume
[[ $(digest) == "$expected" ]] || fail 'another digest than without a stop'

run 0 "${small[@]}" --target-accuracy 0 --patience 2 --devices 2
says 'epoch  2/'
grep -q 'epoch  3/' "$work/stderr" && fail 'the target does not stop it'

# As files of MNIST's format, here of one gray image in two classes, and of 30x26 pixels.
idx()
{
    mkdir -p "$work/idx"
    printf '%b' "\\x00\\x00\\x08\\x03\\x00\\x00\\x00\\x20\\x00\\x00\\x00\\x$1\\x00\\x00\\x00\\x$2" >"$work/idx/$3-images-idx3-ubyte"
    head -c $((32 * 0x$1 * 0x$2)) "$LOCKSTEP" >>"$work/idx/$3-images-idx3-ubyte"
    printf '\x00\x00\x08\x01\x00\x00\x00\x20' >"$work/idx/$3-labels-idx1-ubyte"
    printf '\x00\x01%.0s' {1..16} >>"$work/idx/$3-labels-idx1-ubyte"
}
idx 1e 1a train
idx 1e 1a t10k
run 0 "${recipe[@]}" --data "$work/idx" --batch-size 16 --epochs 1 --devices 2
says '32 training images'
