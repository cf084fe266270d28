#!/usr/bin/env bash
# Training on the user's data: every network on folders of color pictures and on CIFAR's files, with the same bits on
# any devices, with any number of decoding threads, and with or without the cache.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
export XDG_CACHE_HOME=$work/cache

# picture FILE SIDE SEED: writes a PPM file of SIDE x SIDE pixels that repeat.
picture()
{
    { printf 'P6\n%d %d\n255\n' "$2" "$2"; head -c $((3 * $2 * $2)) <(yes "$3 a pixel $(($3 * 7919))"); } >"$1"
}

mkdir -p "$work"/set/{train,val}/{cat,dog,newt}
for i in {1..16}; do
    picture "$work/set/train/cat/$i.ppm" 32 "$i"
    picture "$work/set/train/dog/$i.ppm" 32 $((100 + i))
    picture "$work/set/train/newt/$i.ppm" 32 $((200 + i))
done
for class in cat dog newt; do
    picture "$work/set/val/$class/1.ppm" 32 7
done

# digest_of ARGUMENT…: trains on the folder and prints the digest.
digest_of()
{
    run 0 train --data "$work/set" --epochs 1 --batch-size 24 --shards 4 --seed 3 "$@"
    grep '^digest' "$work/stdout" "$work/stderr" | awk '{ print $NF }'
}

# --- every network ---

for model in lenet keras-cnn resnet18 wrn-16-10; do
    limits=()
    [[ $model != resnet18 && $model != wrn-16-10 ]] || limits=(--limit-train 8 --batch-size 4 --limit-val 3)
    run 0 train --data "$work/set" --model "$model" --epochs 1 --batch-size 16 --devices 1xcpu "${limits[@]}"
    grep -q 'done: ' "$work/stdout" "$work/stderr" || fail "$model did not train"
done

# Images of other sizes: a size that a network cannot take is refused before training.
small=(--epochs 1 --limit-train 6 --batch-size 3 --limit-val 3 --shards 2 --devices 2xcpu)
for size in 64x64 7x5 28x33; do
    for model in lenet keras-cnn resnet18 wrn-16-10; do
        [[ $size != 64x64 || ($model != resnet18 && $model != wrn-16-10) ]] || continue
        if [[ $size != 7x5 || $model != lenet ]]; then
            run 0 train --data "$work/set" --resize "$size" --model "$model" "${small[@]}"
            grep -q 'done: ' "$work/stdout" "$work/stderr" || fail "$model did not train on $size"
        fi
    done
done
run 1 train --data "$work/set" --resize 7x5 --model lenet "${small[@]}"
complains 'lenet: conv2: a kernel of 5 does not fit into H = 2' 'the images are too small' 'larger images, as --resize makes them'
run 1 train --data "$work/set" --resize 1x1 --model wrn-16-10 "${small[@]}"
complains 'wrn-16-10: max_pool: a kernel of 2 does not fit into H = 1' 'the images are too small'

# --- the same bits ---

expected=$(digest_of --devices 1xcpu --workers 0 --data-cache none)
[[ $expected =~ ^[0-9a-f]{32}$ ]] || fail "no digest"
for arguments in "--devices 2xcpu --workers 1" "--devices 1xcpu --workers 3 --data-cache none" "--devices 2xcpu --workers 3"; do
    # shellcheck disable=SC2086 # words
    [[ $(digest_of $arguments) == "$expected" ]] || fail "$arguments: another digest"
done
[[ $(digest_of --devices 1xcpu --resize 16x16) != "$expected" ]] || fail "--resize changes nothing"
[[ $(digest_of --devices 1xcpu --channels 1) != "$expected" ]] || fail "--channels changes nothing"
[[ $(digest_of --devices 1xcpu --val-split 0.25) != "$expected" ]] || fail "--val-split changes nothing"

run 0 summary --data "$work/set/train" --model lenet
prints 'images 3x32x32, 3 classes'

# --- more classes than a byte has ---

for i in {100..399}; do
    mkdir -p "$work/many/class$i"
    for k in 1 2; do
        { printf 'P5\n28 28\n255\n'; head -c 784 <(yes "$k a row of class $i"); } >"$work/many/class$i/$k.pgm"
    done
done
many=(train --data "$work/many" --val-split 0.5 --model lenet --epochs 1 --batch-size 60 --shards 2 --top-k 5)
run 0 "${many[@]}" --devices 2xcpu --checkpoint-dir "$work/of-many"
expected_of_many=$(awk '/^digest/ { print $NF }' "$work/stderr")
run 0 "${many[@]}" --devices 1xcpu --data-on device
says "digest $expected_of_many"
run 0 evaluate "$work/of-many" --json
grep -q '"name":"class399","count":1,' "$work/stdout" || fail "no word of the last class"
run 0 predict "$work/of-many" "$work/many/class399/1.pgm"
if run_evaluation=$("$LOCKSTEP" evaluate "$work/of-many" --out "$work/drawn" 2>&1); then
    grep -q 'a square is 2 x 2 classes' "$work/drawn/confusion.svg" || fail "the matrix does not join classes"
else
    [[ $run_evaluation == *cairo* ]] || fail "evaluate --out: $run_evaluation"
fi

# --- a full disk ---

# This needs a private mount. The decoded pictures are larger than the disk.
# shellcheck disable=SC2016 # for the inner shell
on_small_disk=(unshare -rm bash -c 'mount -t tmpfs -o size=64k none "$1" && shift && "$@"' - "$work/small")
mkdir "$work/small"
if "${on_small_disk[@]}" true 2>/dev/null; then
    "${on_small_disk[@]}" "$LOCKSTEP" train --data "$work/set" --epochs 1 --batch-size 24 --shards 4 --seed 3 \
        --devices 1xcpu --data-cache "$work/small" >"$work/stdout" 2>"$work/stderr" || fail "it fails on a full disk"
    says 'cannot be written: No space left on device'
    [[ $(cat "$work/stdout" "$work/stderr" | awk '/^digest/ { print $NF }') == "$expected" ]] ||
        fail "another digest on a full disk"
else
    echo "no file system of the test's own: nothing is known of full disks"
fi

# --- a broken picture ---

head -c 900 "$work/set/train/dog/3.ppm" >"$work/cut"
mv "$work/cut" "$work/set/train/dog/3.ppm"
run 1 train --data "$work/set" --epochs 1 --devices 1xcpu
says '1 of 48 pictures cannot be used (--skip-bad leaves them out)'
says 'train/dog/3.ppm: truncated'
run 0 train --data "$work/set" --epochs 1 --devices 1xcpu --skip-bad
says 'train/dog/3.ppm'
says '1 of 48 pictures of'
says '47 training images'

# --- other data ---

run 2 train --data "$work/none" --epochs 1
complains 'must be one of' 'or the path of a folder or file'
mkdir "$work/cifar"
for i in 1 2 3 4 5; do
    for label in 00 01 02 03 04 05 06 07 08 09; do
        bytes "$label"
        head -c 3072 <(yes "$i$label")
    done >"$work/cifar/data_batch_$i.bin"
done
cp "$work/cifar/data_batch_1.bin" "$work/cifar/test_batch.bin"
run 0 train --data "$work/cifar" --epochs 1 --batch-size 10 --devices 1xcpu
says '50 training images, 10 for validation'
{ echo 'label,1x1,1x2,2x1,2x2'; for i in {0..9}; do echo "$((i % 2)),1,2,3,$i"; done; } >"$work/rows.csv"
run 2 train --data "$work/rows.csv" --epochs 1
complains 'has no validation set' '--val-split 0.1' '--limit-val 0'
run 0 train --data "$work/rows.csv" --resize 28x28 --val-split 0.2 --epochs 1 --batch-size 4 --devices 1xcpu
says '8 training images, 2 for validation'

# Labels may begin with 1, as in EMNIST's letters; otherwise no class may be missing.
tail -n +2 "$work/rows.csv" | sed 's/^0/2/' >"$work/from-one.csv"
run 0 train --data "$work/from-one.csv" --image-shape 2x2 --resize 28x28 --val-split 0.2 --epochs 1 --batch-size 4 --devices 1xcpu
says 'labels begin with 1: of 3 classes the first, 0, has no image'
sed 's/^2/3/' "$work/from-one.csv" >"$work/gap.csv"
run 1 train --data "$work/gap.csv" --image-shape 2x2 --resize 28x28 --val-split 0.2 --epochs 1 --batch-size 4 --devices 1xcpu
complains 'class 0 has no image; training needs some of each of the 4 classes'
