#!/usr/bin/env bash
# lockstep data: list, info and previews, and errors that are found before any work.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

unset LOCKSTEP_DATA
export XDG_CACHE_HOME=$work/cache
# No server listens on this port, so downloads fail at once.
unset no_proxy NO_PROXY
export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9
export all_proxy=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9

# mnist with two samples per split: 28x28, classes 3 and 9.
make_mnist()
{
    local split
    mkdir -p "$1/mnist"
    for split in train t10k; do
        { bytes 00 00 08 03 00 00 00 02 00 00 00 1c 00 00 00 1c; head -c 1568 /dev/zero; } \
            >"$1/mnist/$split-images-idx3-ubyte"
        { bytes 00 00 08 01 00 00 00 02; bytes 03 09; } >"$1/mnist/$split-labels-idx1-ubyte"
    done
}

# --- list ---

make_mnist "$work/data"
run 0 data --data-dir "$work/data"
prints 'fashion-mnist  not found'
prints "mnist          2 + 2 images of 1x28x28, 10 classes; $work/data/mnist/train-images-idx3-ubyte"
prints 'synthetic      60000 + 10000 images of 1x28x28, 10 classes; generated'
silent_stderr
[[ ! -e $work/cache ]] || fail "it downloaded something"

bytes 00 00 08 01 00 00 00 02 03 0a >"$work/data/mnist/train-labels-idx1-ubyte"
run 1 data --data-dir "$work/data"
prints 'has label 10, expected 0 to 9'

# --- what is refused ---

sheet=(data preview --data synthetic --out "$work/sheet.png")
run 2 data preview --out sheet.svg
complains_just '--out sheet.svg: a preview is a PNG file: expected a name that ends in .png'
run 1 data preview --out "$work/no/sheet.png"
complains_just "$work/no/sheet.png: cannot be written: No such file or directory"
run 2 data show
complains_just "unknown argument 'show': expected list, fetch, info or preview, or nothing for the list"
run 2 data preview twice three
complains_just "unexpected argument 'three'"
run 2 data info synthetic --count
complains_just "unknown option '--count': see --help for those there are"
run 2 data info synthetic --sample 4
complains_just "unknown option '--sample': did you mean '--samples'?"
run 2 data list twice
complains_just "unexpected argument 'twice'"
run 2 data fetch cifar
complains_just 'fetch cifar: must be one of fashion-mnist, mnist, synthetic'
run 2 data fetch
complains_just 'fetch: give the name of a data set: one of fashion-mnist, mnist, synthetic'
run 1 data fetch mnist
complains 'data set mnist: no train-images-idx3-ubyte[.gz]'
rm -rf "$work/cache"
run 2 data --out "$work/sheet.png"
complains_just "--out belongs to 'lockstep data preview'"
run 2 data info synthetic --epoch 2
complains_just "--epoch belongs to 'lockstep data preview'"
run 2 data info synthetic --normalize standard
complains_just "--normalize belongs to 'lockstep data preview'"
run 2 data info synthetic --seed 3
complains_just "--seed belongs to 'lockstep data preview'"
run 2 data info synthetic --data mnist
complains_just "both --data mnist and 'synthetic' name a data set"
run 2 "${sheet[@]}" --augment flop
complains_just "unknown augmentation 'flop': did you mean 'flip'?"
run 2 "${sheet[@]}" --augment mixup=3
complains_just "augmentation 'mixup=3': expected mixup=ALPHA, 0 to 1"
run 2 "${sheet[@]}" --augment shift=1.5
complains_just "augmentation 'shift=1.5': expected shift=SHARE, a share of width and height of at least 0 and below 1"
run 2 "${sheet[@]}" --augment crop=-1
complains_just "augmentation 'crop=-1': expected crop=PIXELS, a padding of 0 or more"
run 2 "${sheet[@]}" --augment crop=28
complains_just '--augment crop=28: expected 0 to 27 for images of 28x28'
run 2 "${sheet[@]}" --normalize mean
complains_just '--normalize mean: must be none, center or standard'
run 2 "${sheet[@]}" --samples 20 --limit-train 10
complains_just '--samples 20: the training set holds 10'
run 2 "${sheet[@]}" --epoch 0
complains_just '--epoch 0: must be an integer from 1 to 4294967295'
run 2 "${sheet[@]}" --data cifar
complains_just "unknown data set 'cifar': expected one of fashion-mnist, mnist, synthetic, or the path of a folder or file"
run 1 "${sheet[@]}" --data mnist --data-dir "$work/data"
grep -q 'has label 10' "$work/stderr" || fail "no word of the label"
[[ ! -e $work/sheet.png ]] || fail "it left a file"

# --- info ---

# picture FILE BYTE…: a PGM file of 2x2 pixels.
picture()
{
    local file=$1
    shift
    { printf 'P5\n2 2\n255\n'; bytes "$@"; } >"$file"
}

mkdir -p "$work"/own/train/{cat,dog} "$work"/own/val/dog
picture "$work/own/train/cat/1.pgm" 00 00 00 00
picture "$work/own/train/cat/2.pgm" ff ff ff ff
picture "$work/own/train/dog/1.pgm" ff ff ff ff
picture "$work/own/val/dog/7.pgm" 00 00 00 00
run 0 data info "$work/own"
silent_stderr
lines "^train: 3 images of 1x2x2, 2 classes; $work/own/train$" \
    '^  channel 0 +mean 0.666667, deviation 0.471405 \(of bytes / 255\)$' \
    '^ +2 +66.7%  #{30} +0 cat$' '^ +1 +33.3%  #{15} +1 dog$' \
    '^  1 image is the same as an earlier one, 1 of them under another label$' \
    '^    train/cat/2.pgm is train/dog/1.pgm, as cat and dog$' \
    "^validation: 1 image of 1x2x2, 2 classes; $work/own/val$" \
    '^  channel 0 +mean 0.000000, deviation 0.000000 \(of bytes / 255\)$' \
    '^ +0 +0.0%   +0 cat$' '^ +1 +100.0%  #{30} +1 dog$' '^  0 images are the same as an earlier one$' \
    '^  1 image is in the training set too, 1 of them under another label$' \
    '^    val/dog/7.pgm is train/cat/1.pgm, as dog and cat$'
run 0 data info "$work/own" --resize 4x4 --channels 3 --val-split 0.5
prints 'train: 2 images of 3x4x4'
mv "$work/own/val" "$work/own/later"
run 0 data info "$work/own"
prints 'has no validation set: expected val/ or test/ next to train/; use'
rm -rf "$work/cache"

# A limit of file sizes acts like a full disk: data are used without the cache.
for i in {1..400}; do
    picture "$work/own/train/cat/many$i.pgm" 00 01 02 03
done
arguments=(data info "$work/own" --resize 64x64)
status=0
(ulimit -f 8 && exec "$LOCKSTEP" "${arguments[@]}") >"$work/stdout" 2>"$work/stderr" || status=$?
[[ $status -eq 0 ]] || fail "exit status is not 0"
says 'bytes cannot be written: File too large'
prints '403 images of 1x64x64'
rm -r "$work"/own/train/cat/many*
rm -rf "$work/cache"

# --- previews in the terminal ---

TERM=dumb run 0 data preview "$work/own" --samples 3
silent_stderr
[[ $(grep -c '@@' "$work/stdout") -eq 1 ]] || fail "two white images are not in one row"
line '^(ca|do) '
prints '3 samples of own'
TERM=dumb run 0 data preview "$work/own"
prints '3 samples of own'
run 2 data preview "$work/own" --samples 4
complains_just '--samples 4: the training set holds 3'
TERM=dumb run 0 data preview --data synthetic
prints '16 samples of synthetic'

# --- previews ---

status=0
"$LOCKSTEP" "${sheet[@]}" >"$work/stdout" 2>"$work/stderr" || status=$?
if [[ $status -eq 1 ]] && grep -q cairo "$work/stderr"; then
    echo "SKIP: previews need libcairo, which this build lacks"
    exit 77
fi

# preview FILE [ARGUMENT…]: a PNG file in $work
preview()
{
    local file=$work/$1
    shift
    run 0 data preview --data synthetic --limit-train 50 --samples 6 --out "$file" "$@"
    [[ $(<"$work/stdout") == "$file: 6 samples of synthetic" ]] || fail "unexpected stdout"
    silent_stderr
    [[ $(head -c 8 "$file" | od -An -tx1 | tr -d ' \n') == 89504e470d0a1a0a ]] || fail "$file is no PNG file"
}

same()
{
    cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 differ"
}

differ()
{
    ! cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 are the same"
}

all=(--augment "shift=0.2,flip,crop=4,cutout=8" --normalize standard)
preview plain.png
preview all.png "${all[@]}"
preview again.PNG "${all[@]}"
preview seed.png "${all[@]}" --seed 1
preview epoch.png "${all[@]}" --epoch 2
preview none.png --augment none
preview flip.png --augment flip
same all.png again.PNG
same plain.png none.png
differ all.png plain.png
differ all.png seed.png
differ all.png epoch.png
differ flip.png all.png

make_mnist "$work/data"
cd "$work"
run 0 data preview --data mnist --data-dir data --samples 1 --normalize center --out one.png
[[ $(<stdout) == 'one.png: 1 sample of mnist' ]] || fail "unexpected stdout"

# The default is fashion-mnist, or synthetic if that cannot be fetched.
run 0 data preview --samples 2 --out two.png
[[ $(<stdout) == 'two.png: 2 samples of synthetic' ]] || fail "unexpected stdout"
grep -q '^warning: data set fashion-mnist: ' stderr || fail "no word of fashion-mnist"
grep -q '^note: .*showing synthetic images instead$' stderr || fail "no word of synthetic images"
run 0 data info --data auto
line '^train: 60000 images of 1x28x28, 10 classes; generated'
grep -q '^note: .*showing synthetic images instead$' stderr || fail "no word of synthetic images"

# A mirror is asked first, by any command.
LOCKSTEP_MIRROR=http://127.0.0.1:9/mirror run 1 train --model lenet --data mnist --data-dir none
grep -q 'http://127.0.0.1:9/mirror/mnist/' stderr || fail "the mirror was not asked"

# Images beyond the limit are not resized: all of them would take 5 GB.
mkdir many
{ printf '\0\0\10\3\0\0\116\40\0\0\0\1\0\0\0\1' && head -c 20000 /dev/zero; } >many/train-images-idx3-ubyte
{ printf '\0\0\10\1\0\0\116\40' && head -c 19999 /dev/zero && printf '\1'; } >many/train-labels-idx1-ubyte
(
    [[ $("$LOCKSTEP" version) == *sanitizers* ]] || ulimit -v 3000000
    run 0 data preview --data many --resize 500x500 --limit-train 4 --samples 1 --out large.png
)
run 0 data info --data many --limit-train 4 --resize 2x2
line '2 classes'

# A file that becomes shorter while it is read through memory is an error, and no signal.
printf 'flatten\ndense classes\n' >dense.lk
begin train --model dense.lk --data many --batch-size 1000 --epochs 1000000 --limit-val 0 --devices 1 --workers 1 --base-lr 0.001
until_there '^epoch *2/' "$work/stderr"
truncate -s 1000 many/train-images-idx3-ubyte
ends_with 1
says "lockstep: $(pwd -P)/many/train-images-idx3-ubyte: has become shorter since it was opened, or there is no room for it"
