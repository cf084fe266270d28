#!/usr/bin/env bash
# --resume compares model files by their text, data by their bytes, and every other setting by its value. --override
# allows some changes.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
export XDG_CACHE_HOME=$work/cache

digests()
{
    sed -n 's/^\(state \)\{0,1\}digest //p' "$work/stderr" | tr '\n' ' '
}

# ends_alike DIGESTS: the last run has these digests.
ends_alike()
{
    [[ $(digests) == "$1" ]] || fail "ends with $(digests), not $1"
}

# keep_until STEPS ARGUMENT…: trains, and then keeps only the checkpoints up to STEPS in $work/kept, as if the run had
# been killed there.
keep_until()
{
    local name steps=$1
    shift
    rm -rf "$work/kept"
    run 0 "$@" --checkpoint-dir "$work/kept" --checkpoint-every 1 --keep 100
    for name in "$work"/kept/checkpoint-*; do
        [[ $((10#${name##*-})) -le $steps ]] || rm -rf "$name"
    done
    rm -rf "$work/again"
    cp -r "$work/kept" "$work/again"
}

rewind()
{
    rm -rf "$work/kept"
    cp -r "$work/again" "$work/kept"
}

# ---- model files ----

network()
{
    printf 'conv2d 4 kernel=5 # of %s\nrelu\nmax_pool 4\nflatten\ndropout %s\ndense classes\n' "$1" "$2" >"$1"
}

network "$work/a net.lk" 0.5
training=(train --data synthetic --limit-train 96 --limit-val 32 --batch-size 16 --epochs 4 --base-lr 0.1 --devices 1
    --shards 2)
here=("${training[@]}" --model "$work/a net.lk")
run 0 "${here[@]}"
wanted=$(digests)

# After it is read, the model file is no longer needed.
begin "${here[@]}" --epochs 60 --checkpoint-dir "$work/kept" --keep 100
until_there '^epoch *3/' "$work/stderr"
network "$work/a net.lk" 0.1
until_there '^epoch *10/' "$work/stderr"
rm "$work/a net.lk"
ends_with 0
for name in "$work"/kept/checkpoint-*; do
    holds "$name/model.lk" 'dropout 0.5'
done

# A file with other text is another network, even if all variables are the same. The same text may be in another file.
network "$work/a net.lk" 0.5
keep_until 9 "${here[@]}"
network "$work/a net.lk" 0.1
run 2 "${here[@]}" --checkpoint-dir "$work/kept" --resume
complains "--model was $work/kept/checkpoint-00000009/model.lk and is $work/a net.lk" '--override'
run 0 "${here[@]}" --checkpoint-dir "$work/kept" --resume --override
[[ $(digests) != "$wanted" ]] || fail 'another network has the same bits'
rewind
rm "$work/a net.lk"
run 0 "${training[@]}" --model "$work/kept/checkpoint-00000009/model.lk" --checkpoint-dir "$work/kept" --resume
ends_alike "$wanted"

# Nested names may have the maximal length of model files.
long=$(printf 'n%.0s' {1..500})
printf 'flatten\na%s: sequential\nb%s: sequential\nc%s: dense 4\nend\nend\ndense classes\n' "$long" "$long" "$long" \
    >"$work/long.lk"
keep_until 9 "${training[@]}" --model "$work/long.lk" --momentum 0.9
wanted=$(digests)
run 0 "${training[@]}" --model "$work/long.lk" --momentum 0.9 --checkpoint-dir "$work/kept" --resume
ends_alike "$wanted"
run 0 "${training[@]}" --model "$work/long.lk" --weights "$work/kept/checkpoint-00000024/model.safetensors"

# A file that the manifest does not list does not belong to the checkpoint.
keep_until 9 "${training[@]}" --model lenet
lenet=$(digests)
echo 'flatten' >"$work/kept/checkpoint-00000009/model.lk"
run 0 "${training[@]}" --model lenet --checkpoint-dir "$work/kept" --resume
ends_alike "$lenet"

# ---- data ----

mkdir -p "$work"/set/{train,val}/{cat,dog}
for i in {1..24}; do
    for class in cat dog; do
        { printf 'P5\n28 28\n255\n'; head -c 784 <(yes "$class $i"); } >"$work/set/train/$class/$i.pgm"
        [[ $i -gt 4 ]] || cp "$work/set/train/$class/$i.pgm" "$work/set/val/$class/"
    done
done
own=(train --model lenet --batch-size 16 --epochs 4 --base-lr 0.1 --devices 1 --shards 2 --checkpoint-dir "$work/kept")
keep_until 4 "${own[@]}" --data "$work/set"
wanted=$(digests)
mv "$work/set" "$work/moved"
run 0 "${own[@]}" --data "$work/moved" --resume
ends_alike "$wanted"
rewind
rm "$work/moved/val/dog/4.pgm"
run 2 "${own[@]}" --data "$work/moved" --resume
says "--data was $work/set and is $work/moved"
rewind
cp "$work/moved/val/dog/3.pgm" "$work/moved/val/dog/4.pgm"
run 2 "${own[@]}" --data "$work/moved" --resume
says "--data was $work/set and is $work/moved"
run 0 "${own[@]}" --data "$work/moved" --resume --override # in the middle of an epoch: the training data are the same
ends_alike "$wanted"
rewind
cp "$work/moved/train/cat/1.pgm" "$work/moved/train/cat/2.pgm"
mv "$work/moved" "$work/set"
run 2 "${own[@]}" --data "$work/set" --resume
says 'the training set (its hash) was'
run 2 "${own[@]}" --data "$work/set" --resume --override
complains '--override: training set cannot be changed in the middle of an epoch'

# Factors belong to classes, whose names move when folders are renamed; other names may change.
own+=(--data "$work/set" --class-weights dog:3)
keep_until 4 "${own[@]}"
wanted=$(digests)
for part in train val; do
    mv "$work/set/$part/cat" "$work/set/$part/ape"
done
run 0 "${own[@]}" --resume
ends_alike "$wanted"
rewind
run 0 "${own[@]}" --class-weights ape:1,1:3 --resume
ends_alike "$wanted"
rewind
for part in train val; do
    mv "$work/set/$part/dog" "$work/set/$part/fox"
    mv "$work/set/$part/ape" "$work/set/$part/dog"
done
run 2 "${own[@]}" --resume
says 'the name of class 0 (see --class-weights) was cat and is dog; give the options of the first time again, or --override to go on with these'
run 2 "${own[@]}" --class-weights 0:3 --resume
says '--class-weights was dog:3 and is 0:3'
run 0 "${own[@]}" --class-weights fox:3 --resume
ends_alike "$wanted"

# ---- lists ----

# Words and patterns come in any order, and may ask for nothing.
lists=(train --model lenet --data synthetic --limit-train 96 --limit-val 32 --batch-size 16 --epochs 4 --devices 1 --shards 2
    --checkpoint-dir "$work/kept")
keep_until 9 "${lists[@]}" --augment flip,crop=4 --freeze conv1,conv2
wanted=$(digests)
run 0 "${lists[@]}" --augment crop=4,flip,mixup=0 --freeze 'conv2,conv*' --resume
ends_alike "$wanted"
rewind
run 2 "${lists[@]}" --augment crop=4,flip --freeze conv1 --resume
complains '--freeze was conv1,conv2 and is conv1'
run 2 "${lists[@]}" --augment crop=3,flip --freeze conv1,conv2 --resume
complains '--augment was flip,crop=4 and is crop=3,flip'

# ---- every other setting ----

# Settings change in the middle of the second epoch, then at its beginning.
usual=(train --model lenet --data synthetic --limit-train 96 --limit-val 32 --batch-size 16 --epochs 4 --base-lr 0.1
    --devices 1 --shards 2)
for steps in 9 6; do
    keep_until "$steps" "${usual[@]}"
    while read -r option value; do
        rewind
        run 2 "${usual[@]}" --checkpoint-dir "$work/kept" --resume "$option" "$value"
        complains "$option was " '--override'
        ! grep -qE 'samples was|rate in use was|implementations' "$work/stderr" || fail 'what only follows is named'
        expected=0
        [[ $steps -eq 6 || ! $option =~ ^--(batch-size|accumulate|seed|limit-train)$ ]] || expected=2
        run "$expected" "${usual[@]}" --checkpoint-dir "$work/kept" --resume --override "$option" "$value"
        [[ $expected -eq 0 ]] || complains '--override' 'in the middle of an epoch'
    done <<'END'
--batch-size 32
--accumulate 2
--seed 7
--limit-train 80
--limit-val 16
--shards 4
--base-lr 0.01
--momentum 0.9
--optimizer adam
--wd 0.001
--clip-norm 1
--schedule cosine
--warmup-epochs 1
--label-smoothing 0.1
--augment flip
--normalize standard
--bn sync
--dtype bf16
--executor eager
--early-stop 2
--target-accuracy 0.99
--nan-guard skip
--val-batch-size 8
END
done

# A training with another optimizer, whose state starts new, can be interrupted and resumed as well.
keep_until 9 "${usual[@]}" --momentum 0.9
other=("${usual[@]}" --optimizer adam --checkpoint-dir "$work/kept" --checkpoint-every 1 --keep 100)
run 0 "${other[@]}" --resume --override
wanted=$(digests)
rm -rf "$work"/kept/checkpoint-0000001[4-9] "$work"/kept/checkpoint-0000002*
run 0 "${other[@]}" --resume
says 'going on from'
ends_alike "$wanted"

# The rate that --scale-lr makes depends on the recipe as well.
scaled=(train --model lenet --data synthetic --limit-train 64 --limit-val 0 --epochs 1 --batch-size 32 --devices 1
    --optimizer sgd --base-lr 0.1 --schedule constant --scale-lr --checkpoint-dir "$work/scaled")
run 0 "${scaled[@]}"
run 2 "${scaled[@]}" --resume --recipe keras-mnist
complains 'other settings: rate in use was 0.0125 and is 0.05; give the options of the first time again'

# ---- what stopped a training ----

stopping=("${usual[@]}" --base-lr 0.000001 --epochs 6 --checkpoint-dir "$work/kept")
rm -rf "$work/kept"
run 0 "${stopping[@]}" --target-accuracy 0 --patience 1
prints 'Early stopping after epoch 1'
run 0 "${stopping[@]}" --target-accuracy 0 --patience 1 --resume
prints 'Early stopping after epoch 1'
run 0 "${stopping[@]}" --target-accuracy 0 --patience 3 --resume --override
prints 'Early stopping after epoch 3'
run 0 "${stopping[@]}" --target-accuracy -1 --resume --override
says 'epoch 6/6'
! grep -q 'Early stopping' "$work/stdout" || fail 'says that what went on was stopped'

# ---- averages, and weights to be taken back, with another optimizer ----

few=(train --model lenet --data synthetic --limit-train 96 --limit-val 32 --batch-size 16 --devices 1 --base-lr 0.05)
later=(--epochs 3 --override --resume)
run 0 "${few[@]}" --epochs 2 --checkpoint-dir "$work/plain"
run 0 "${few[@]}" --epochs 2 --ema 0.9 --checkpoint-dir "$work/averaged"
for optimizer in sgd adam; do
    for folder in plain averaged; do
        rm -rf "$work/kept"
        cp -r "$work/$folder" "$work/kept"
        run 0 "${few[@]}" --optimizer $optimizer "${later[@]}" --checkpoint-dir "$work/kept"
        [[ $folder == averaged ]] && ends_alike "$wanted"
        wanted=$(digests)
    done
done

keep_until 12 "${few[@]}" --epochs 4 --restore-best
run 0 "${few[@]}" --epochs 4 --restore-best --checkpoint-dir "$work/kept" --resume --override --optimizer adam --base-lr 9
line '^Took back the weights of epoch [12],'

# ---- a training that is over ----

# Nothing is trained, and its records keep what was measured, whatever devices are named.
run 0 "${few[@]}" --epochs 2 --checkpoint-dir "$work/over" --log-dir "$work/records"
cp -r "$work/records" "$work/before"
for devices in 1 2; do
    run 0 "${few[@]}" --epochs 2 --checkpoint-dir "$work/over" --log-dir "$work/records" --resume --devices $devices
    diff -r "$work/before" "$work/records" || fail "records of a finished training change with --devices $devices"
done
# But a last line that was never written is.
sed -i '$d' "$work/records/epochs.jsonl"
run 0 "${few[@]}" --epochs 2 --checkpoint-dir "$work/over" --log-dir "$work/records" --resume
grep -q '"event":"done"' "$work/records/epochs.jsonl" || fail 'the last line is missing'
run 0 "${few[@]}" --epochs 3 --checkpoint-dir "$work/over" --log-dir "$work/records" --resume
[[ $(grep -c '"event":"epoch"' "$work/records/epochs.jsonl") -eq 3 ]] || fail 'a third epoch is not recorded'
run 0 "${few[@]}" --epochs 2 --checkpoint-dir "$work/over" --resume
says 'has 3 epochs already, and --epochs 2 leaves nothing to train'

# ---- texts ----

# A text of any length and in any encoding is recorded, and is the same afterwards.
long=0:1.$(printf '%05000d' 0)
run 0 "${few[@]}" --epochs 1 --class-weights "$long" --checkpoint-dir "$work/long"
run 0 "${few[@]}" --epochs 2 --class-weights "$long" --checkpoint-dir "$work/long" --resume
column=$(printf 'k\xe4t')
for i in {1..40}; do
    echo "$((i % 2)),$i,2,3,$((255 - i))"
done | LC_ALL=C sed "1i $column,a,b,c,d" >"$work/latin.csv"
latin=(train --model "$work/latin.lk" --data "$work/latin.csv" --label-column "$column" --image-shape 2x2 --val-split 0.5
    --batch-size 8 --shards 2 --devices 1 --checkpoint-dir "$work/latin")
printf 'flatten\ndense classes\n' >"$work/latin.lk"
run 0 "${latin[@]}" --epochs 1
run 0 "${latin[@]}" --epochs 2 --resume
