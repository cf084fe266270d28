#!/usr/bin/env bash
# lockstep evaluate and lockstep predict, on a run that was just trained.
# shellcheck source=tests/support/cli_testing.sh
. "$(dirname "$0")/../support/cli_testing.sh"

pictures=$(cd "$(dirname "$0")/../data/pictures" && pwd)
trained=$work/run
export XDG_CACHE_HOME=$work/cache

run 0 train --model lenet --data synthetic --limit-train 512 --limit-val 200 --batch-size 32 --epochs 3 --base-lr 0.5 \
    --normalize standard --devices 1xcpu --checkpoint-dir "$trained" --json
accuracy=$(grep -o '"val_accuracy":[0-9.]*' "$work/stdout" | tail -n 1 | cut -d: -f2)
[[ -n $accuracy ]] || fail "no validation accuracy"

# --- evaluate --------------------------------------------------------------------------------------------------------

# The result is that of training, whatever the devices and batches.
run 0 evaluate "$trained" --limit 200 --json
silent_stderr
line "^\{\"count\":200,\"loss\":[0-9.]+,\"accuracy\":$accuracy,\"classes\":\[\{\"class\":0,"
cp "$work/stdout" "$work/first"
run 0 evaluate "$trained" --limit 200 --json --devices 2xcpu --batch-size 7
line "\"accuracy\":$accuracy,"
run 0 evaluate "$trained" --limit 200 --out "$work/out"
prints "accuracy $(printf %.4f "$accuracy") ("
line '^class +images +precision +recall +F1$'
prints 'label (row) predicted as (column)'
holds "$work/out/confusion.svg" 'lenet on synthetic: accuracy'
cmp "$work/first" "$work/out/evaluation.json" || fail "evaluation.json is not what --json prints"
matrix=$(grep -o '"confusion":\[\[[^a-z]*\]\]' "$work/first" | tr -c '0-9\n' ' ')
sum=0
for count in $matrix; do
    sum=$((sum + count))
done
[[ $sum -eq 200 ]] || fail "the confusion matrix counts $sum samples"
if "$LOCKSTEP" doctor | grep 'libcairo  [0-9]' >/dev/null; then
    for picture in confusion mistakes; do
        [[ $(head -c 4 "$work/out/$picture.png" | tail -c 3) == PNG ]] || fail "$picture.png is no PNG"
    done
fi
run 0 evaluate "$trained" --best --split train --limit 32
prints '(train: '
# A folder that cannot be made is reported before any work, and a full disk is an error.
: >"$work/taken"
run 1 evaluate "$trained" --limit 8 --out "$work/taken"
silent_stdout
complains "$work/taken cannot be made"
mkdir "$work/small"
ln -s /dev/full "$work/small/evaluation.json"
run 1 evaluate "$trained" --limit 8 --out "$work/small"
says 'evaluation.json: cannot be written: No space left on device'
# The file is replaced as a whole.
mkdir "$work/replaced"
echo old >"$work/replaced/evaluation.json"
ln "$work/replaced/evaluation.json" "$work/replaced/old"
run 0 evaluate "$trained" --limit 8 --out "$work/replaced"
[[ $(cat "$work/replaced/old") == old ]] || fail "evaluation.json was written over"
holds "$work/replaced/evaluation.json" '"count":8'
# The numbers are written also if a picture cannot be.
mkdir -p "$work/undrawn/confusion.svg"
run 1 evaluate "$trained" --limit 8 --out "$work/undrawn"
[[ -s $work/undrawn/evaluation.json ]] || fail "no evaluation.json"
run 1 evaluate "$work"
complains "$work: there is no checkpoint"
run 2 evaluate
complains 'one checkpoint folder is needed'
run 2 evaluate "$trained" --data nowhere
complains nowhere

# A folder of pictures of any size. Its classes are matched with the network's by name, whatever their numbers.
mkdir -p "$work/own/test/"{ring,cross} "$work/own/train/"{ring,cross}
for split in train test; do
    cp "$pictures/gray.png" "$work/own/$split/cross/1.png"
    cp "$pictures/color.png" "$work/own/$split/ring/1.png"
done
if "$LOCKSTEP" doctor | grep 'libpng  *[0-9]' >/dev/null; then
    run 0 evaluate "$trained" --data "$work/own"
    prints '(test: '
    line '^ring +1 '
    line '^cross +1 '
    mkdir "$work/split"
    cp -r "$work/own/train" "$work/split/"
    for n in 2 3 4; do
        cp "$pictures/gray.png" "$work/split/train/cross/$n.png"
        cp "$pictures/gray.png" "$work/split/train/ring/$n.png"
    done
    cp -r "$work/split/train/ring" "$work/split/train/"$'no UTF-8 \377' # its name in a checkpoint is another
    run 0 train --model lenet --data "$work/split" --resize 28x28 --channels 1 --val-split 0.5 --batch-size 4 \
        --epochs 1 --checkpoint-dir "$work/halves"
    mv "$work/split" "$work/moved"
    run 2 evaluate "$work/halves"
    complains_just "the run's data, '$work/split', are not there: say where they are with --data"
    mv "$work/moved" "$work/split"
    run 0 evaluate "$work/halves"
    line '^ring +2 '
    line '^no UTF-8 .+ +2 '
    run 0 evaluate "$work/halves" --data "$work/own"
    line '^ring +1 '
    run 0 evaluate "$work/halves" --data "$work/split" --split train
    line '^ring +4 '
    prints 'worst mistakes'
    file=$(sed -nE 's/^  (train\/(ring|cross)\/[1-4]\.png): (ring|cross) as .* [01]\.[0-9]{4}$/\1/p' "$work/stdout" | head -n 1)
    [[ -e $work/split/$file && -n $file ]] || fail "no file of a mistake"
    run 0 evaluate "$work/halves" --data "$work/split" --split train --json
    prints "\"file\":\"$file\",\"label\":"
    mv "$work/own/test/ring" "$work/own/test/wheel"
    mv "$work/own/train/ring" "$work/own/train/wheel"
    run 1 evaluate "$trained" --data "$work/own"
    says "own: its class 'wheel' is none of the network's 10, 'disc' to 'cross'"
fi

# --- predict ---------------------------------------------------------------------------------------------------------

printf 'P5 28 28 255\n' >"$work/black.pgm"
head -c 784 /dev/zero >>"$work/black.pgm"
run 0 predict "$trained" "$work/black.pgm"
silent_stderr
line "^$work/black.pgm: [^,]+ [01]\.[0-9]{4}, [^,]+ 0\.[0-9]{4}, [^,]+ 0\.[0-9]{4}$"
best=$(sed -E 's/.*: (.*) [01]\.[0-9]{4},.*,.*/\1/' "$work/stdout")
run 0 predict "$trained" "$work/black.pgm" "$work/black.pgm" --top 1
lines ": $best [01]\.[0-9]{4}$" ": $best [01]\.[0-9]{4}$"
run 0 predict "$trained" "$work/black.pgm" --top 99 --json
line "^\{\"file\":\"$work/black.pgm\",\"predictions\":\[\{\"class\":[0-9],\"name\":\"$best\",\"probability\":[0-9.e-]+\}"
[[ $(grep -o '"class":' "$work/stdout" | wc -l) -eq 10 ]] || fail "not ten classes"
"$LOCKSTEP" predict "$trained" - --top 1 <"$work/black.pgm" >"$work/stdout" 2>"$work/stderr" || fail "standard input"
line "^-: $best "
mkdir "$work/there" "$work/there/-"
(cd "$work/there" && "$LOCKSTEP" predict "$trained" - --top 1 <"$work/black.pgm" >"$work/stdout") || fail "a folder named -"
line "^-: $best "
status=0
"$LOCKSTEP" predict "$trained" - <"$work" >"$work/stdout" 2>"$work/stderr" || status=$?
[[ $status -eq 1 ]] || fail "exit status $status where standard input is a folder"
complains_just 'standard input cannot be read: Is a directory'

# A folder: its pictures by name, without its folders and other files. Several files in one call give the same lines.
mkdir -p "$work/folder/below.pgm" "$work/folder/nested"
cp "$work/black.pgm" "$work/folder/b.pgm"
cp "$work/black.pgm" "$work/folder/B.PGM"
cp "$work/black.pgm" "$work/folder/a.ppm" # the first bytes decide the format
cp "$work/black.pgm" "$work/folder/nested/c.pgm"
cp "$work/black.pgm" "$work/folder/.hidden.pgm"
echo none >"$work/folder/labels.txt"
for option in --top=2 --json; do
    run 0 predict "$trained" "$work/folder/B.PGM" "$work/folder/a.ppm" "$work/folder/b.pgm" "$option"
    cp "$work/stdout" "$work/files_given"
    for folder in "$work/folder" "$work/folder/"; do
        run 0 predict "$trained" "$folder" "$option"
        silent_stderr
        cmp "$work/stdout" "$work/files_given" || fail "not the lines of its three files"
    done
done
run 1 predict "$trained" "$work/folder/below.pgm" "$work/black.pgm" --top 1
lines "^$work/black.pgm: "
says "$work/folder/below.pgm: there are no pictures (.png, .jpg, .jpeg, .pgm, .ppm, .pnm) directly in this folder"

for file in color.png:libpng gray.jpg:libjpeg; do
    if "$LOCKSTEP" doctor | grep "${file#*:}  *[0-9]" >/dev/null; then
        run 0 predict "$trained" "$pictures/${file%:*}"
        line "${file%:*}: "
    fi
done

# Tall images, more than fit one below the other.
printf 'conv2d 2 kernel=1\nglobal_avg_pool\ndense classes\n' >"$work/tall.lk"
run 0 train --model "$work/tall.lk" --data synthetic --resize 1500x100 --limit-train 8 --limit-val 0 --batch-size 8 \
    --epochs 1 --checkpoint-dir "$work/tall"
run 0 evaluate "$work/tall" --limit 48 --out "$work/out"
run 0 evaluate "$work/tall" --limit 2 --batch-size 1048576 # memory is taken for two

# Images as large as a contact sheet, and larger pictures, which the network was trained on as they are.
run 0 train --model "$work/tall.lk" --data synthetic --resize 8100x2 --limit-train 8 --limit-val 0 --batch-size 8 \
    --epochs 1 --checkpoint-dir "$work/taller"
run 0 evaluate "$work/taller" --limit 32 --out "$work/out"
mkdir -p "$work/wide/"{a,b}
for class in a b; do
    for n in 1 2 3; do
        { printf 'P5\n9000 2\n255\n'; head -c 18000 <(yes "$class$n"); } >"$work/wide/$class/$n.pgm"
    done
done
run 0 train --model "$work/tall.lk" --data "$work/wide" --val-split 0.3 --batch-size 4 --epochs 1 --checkpoint-dir "$work/wider"
run 0 evaluate "$work/wider"
run 0 predict "$work/wider" "$work/wide/a/1.pgm" "$work/black.pgm"
lines '/a/1.pgm: ' 'black.pgm: '

# No picture has two channels.
printf 'flatten\ndense classes\n' >"$work/two.lk"
mkdir "$work/two"
{ printf '\0\0\10\4\0\0\0\4\0\0\0\2\0\0\0\3\0\0\0\3' && printf '%072d' 0; } >"$work/two/train-images-idx4-ubyte"
printf '\0\0\10\1\0\0\0\4\0\1\0\1' >"$work/two/train-labels-idx1-ubyte"
run 0 train --model "$work/two.lk" --data "$work/two" --limit-val 0 --batch-size 4 --epochs 1 --checkpoint-dir "$work/flat"
run 1 predict "$work/flat" "$work/black.pgm"
complains "black.pgm: the network takes images of 2 channels; a picture has 1 or 3"
touch "$work/out/mistakes.png" "$work/out/confusion.png" # of another evaluation
run 0 evaluate "$work/flat" --split train --out "$work/out"
[[ ! -e $work/out/mistakes.png ]] || fail "there are mistakes of another evaluation"
[[ ! -e $work/out/confusion.png || -s $work/out/confusion.png ]] || fail "there is a matrix of another evaluation"

# The run's --image-shape is for its own data, and for other CSV.
for i in 0 1 2 3; do echo "$((i % 2)),1,2,3,$i"; done >"$work/rows.csv"
run 0 train --model "$work/two.lk" --data "$work/rows.csv" --image-shape 2x2 --val-split 0.5 --batch-size 2 --epochs 1 \
    --checkpoint-dir "$work/of-rows"
run 0 evaluate "$work/of-rows"
cp "$work/rows.csv" "$work/others.csv"
run 0 evaluate "$work/of-rows" --data "$work/others.csv" --split train
run 0 evaluate "$work/of-rows" --data "$work/wide" --split train
run 2 evaluate "$work/of-rows" --data "$work/wide" --split train --image-shape 2x2
complains '--image-shape 2x2: must be with CSV data, and wide is none'

# A picture that cannot be read is reported, and the others are classified.
head -c 300 "$work/black.pgm" >"$work/cut.pgm"
run 1 predict "$trained" "$work/none.png" "$work/cut.pgm" "$work/black.pgm"
lines "black.pgm: "
says "$work/none.png: cannot be opened"
says "$work/cut.pgm: "
run 2 predict "$trained"
complains 'at least one picture'
run 2 predict "$trained" "$work/black.pgm" --pjrt /nowhere/plugin.so
complains_just '--pjrt: cpu:0 has no use for a plug-in; devices pjrt:0 and tpu:0 have'
run 2 predict "$trained" "$work/black.pgm" --device 2xcpu
complains_just '--device 2xcpu: must name one device'
run 1 predict "$work/nowhere" "$work/black.pgm"
complains "$work/nowhere: there is no checkpoint"

# While training runs, and removes checkpoints that are being read.
"$LOCKSTEP" train --model "$work/two.lk" --data "$work/two" --limit-val 0 --batch-size 1 --epochs 1000000 --devices 1xcpu \
    --checkpoint-every 1 --keep 1 --checkpoint-best train-loss --checkpoint-dir "$work/live" >"$work/trained" 2>&1 &
training=$!
trap 'kill -9 $training; wait $training || rm -rf "$work"' EXIT
until [[ -e $work/live/best.json ]]; do
    kill -0 $training || { cat "$work/trained"; exit 1; }
    sleep 0.1
done
for _ in {1..25}; do
    run 0 export "$work/live" --out "$work/live.safetensors"
    silent_stderr
    run 0 export "$work/live" --best --out "$work/live.safetensors"
    silent_stderr
done
