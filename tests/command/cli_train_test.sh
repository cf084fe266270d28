#!/usr/bin/env bash
# train, verify, recipes, ops and devices: errors for bad input, streams, and the contents of lines and records.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"


# A short training, to which wrong options are added; the last of two equal options wins.
small=(train --data synthetic --limit-train 20 --limit-val 10 --batch-size 8 --epochs 2 --devices 1)

# ---- a command line that makes no sense: exit status 2 ----

run 2 trian
complains "'trian'" "'train'"
run 2 "${small[@]}" --modle lenet
complains '--modle' '--model'
run 2 "${small[@]}" extra
complains "'extra'"
run 2 "${small[@]}" -j
complains "'-j'" 'two hyphens'
run 2 "${small[@]}" --json=yes
complains '--json' 'takes no value'
run 2 "${small[@]}" --epochs
complains '--epochs' 'missing'
run 2 "${small[@]}" --model vgg
complains "'vgg'" 'lenet'
run 2 "${small[@]}" --data cifar
complains '--data cifar' 'fashion-mnist' 'mnist' 'synthetic' 'auto'
run 2 "${small[@]}" --momentum 1
complains '--momentum 1' 'below 1'
run 2 "${small[@]}" --strategy ring
complains "'ring'" 'one-device' 'mirrored'
run 2 "${small[@]}" --strategy one-device --devices 2 --shards 2
complains 'one-device' '2 devices' 'mirrored'
run 2 "${small[@]}" --strategy central-storage --storage 2xcpu
complains '--storage 2xcpu' '2 devices' 'cpu:0'
run 2 "${small[@]}" --strategy central-storage --devices cpu,ref --shards 2
complains 'cpu:0' 'ref:0' 'one kind'
run 2 "${small[@]}" --strategy central-storage --reduce nccl
complains '--reduce nccl' 'central-storage'

run 2 "${small[@]}" --devices cpu,ref --shards 2
complains 'cpu:0' 'ref:0' 'one kind'
LOCKSTEP_ENGINE=snyc run 2 "${small[@]}"
complains 'LOCKSTEP_ENGINE=snyc' 'sync or async'

for spec in 2xnpu npu:0 cpu:x cpu: 'cpu:-1' x 2x 0 0xcpu 300 -1 99999999999999999999 '' ',' 'cpu,' '2 xcpu' '*'; do
    run 2 "${small[@]}" "--devices=$spec"
    complains 'device'
done
run 2 "${small[@]}" --devices $'2\nxcpu\033[2J'
complains '2?xcpu?[2J'

for option in shards epochs batch-size limit-train base-lr; do
    for value in 0 -1 x '' 1x 99999999999999999999999 0x10 ' 1' nan; do
        run 2 "${small[@]}" "--$option=$value"
        complains "--$option" 'must be'
    done
done
for option in seed limit-val workers; do
    for value in -1 1.5 x 99999999999999999999999; do
        run 2 "${small[@]}" "--$option=$value"
        complains "--$option $value" 'must be an integer'
    done
done
run 2 "${small[@]}" --base-lr inf
complains '--base-lr inf' 'must be a number'

run 2 "${small[@]}" --shards 9
complains '--shards 9' 'batch size' '8'
run 2 "${small[@]}" --shards 2 --devices 3
complains '--shards 2' '3 devices'
run 2 "${small[@]}" --batch-size 4 --shards 4 --devices 7
complains '7 devices' 'batch size' '4'

verify=(verify --data synthetic --limit-train 20 --batch-size 8 --steps 2)
for list in '' 0 1,,2 1,2xnpu 1,x; do
    run 2 "${verify[@]}" "--devices=$list"
    complains 'device'
done
run 2 "${verify[@]}" --devices 1,64
complains '--devices' '64 devices' 'batch size, 8'
run 2 "${verify[@]}" --devices "$(printf '1,%.0s' {1..64})1"
complains '65' '64'
run 2 "${verify[@]}" --devices 1,3 --shards 2
complains '--shards 2' '3 devices'
run 2 "${verify[@]}" --steps 0
complains '--steps 0' 'must be'
for option in json servers=1 role=worker cluster=a compress=bf16 storage=cpu:0 peer-timeout=9; do
    run 2 "${verify[@]}" "--$option"
    complains "unknown option '--${option%%=*}'"
done

# ---- bad files: exit status 1 ----

zeros()
{
    head -c "$1" /dev/zero
}

# Ten images of 28x28, one of each class, both splits.
good_files()
{
    rm -rf "$work/data"
    mkdir -p "$work/data/mnist"
    local split
    for split in train t10k; do
        { bytes 00 00 08 03 00 00 00 0a 00 00 00 1c 00 00 00 1c; zeros 7840; } >"$work/data/mnist/$split-images-idx3-ubyte"
        { bytes 00 00 08 01 00 00 00 0a; bytes 03 09 00 01 02 04 05 06 07 08; } >"$work/data/mnist/$split-labels-idx1-ubyte"
    done
    images=$work/data/mnist/train-images-idx3-ubyte
    labels=$work/data/mnist/train-labels-idx1-ubyte
}
of_files=(train --data mnist --data-dir "$work/data" --batch-size 2 --epochs 1 --devices 1)

good_files
run 0 "${of_files[@]}"
says "$images"

# refuses PATH TEXT…: with the current contents of the file.
refuses()
{
    run 1 "${of_files[@]}"
    complains "$@"
}

zeros 0 >"$images"
refuses "$images" truncated
zeros 9 >"$images"
refuses "$images" type
bytes 00 00 08 03 00 00 >"$images"
refuses "$images" truncated
{ bytes 00 00 08 03 00 00 00 0a 00 00 00 1c 00 00 00 1c; zeros 7839; } >"$images"
refuses "$images" truncated 7840 7839
{ bytes 00 00 08 03 00 00 00 0a 00 00 00 1c 00 00 00 1c; zeros 7841; } >"$images"
refuses "$images" over-long 7841 7840
bytes 00 00 08 03 ff ff ff ff ff ff ff ff ff ff ff ff >"$images"
refuses "$images" 'address space'
bytes 00 00 08 03 00 00 00 02 00 00 00 00 00 00 00 1c >"$images"
refuses "$images" zero
{ bytes 00 00 08 03 40 00 00 00 00 00 00 1c 00 00 00 1c; zeros 1568; } >"$images"
refuses "$images" truncated
echo '<html>not found</html>' >"$images"
refuses "$images" 'not an IDX file'
good_files
{ bytes 00 00 08 01 00 00 00 0a; bytes 03 09 00 01 02 04 05 06 07 0a; } >"$labels"
refuses "$labels" 10
{ bytes 00 00 08 01 00 00 00 03; bytes 03 01 02; } >"$labels"
refuses "$labels" 3 10
# A class without an image is an error if the files lack it, and a warning if --limit-train leaves it out.
{ bytes 00 00 08 01 00 00 00 0a; bytes 03 09 00 01 02 04 05 06 07 07; } >"$labels"
refuses "$images" 'class 8 (8) has no image' '10 classes'
run 1 "${of_files[@]}" --limit-train 3 --log-dir "$work/unwanted"
complains 'class 8'
good_files
run 0 "${of_files[@]}" --limit-train 3 --limit-val 4
says '3 training images, 4 for validation'
says 'warning: 7 of 10 classes have no training image, and will not be learned: --limit-train 3 is too small'
run 0 "${of_files[@]}" --limit-train 10 --limit-val 11
says '10 training images, 10 for validation (all there are, fewer than 11)'
! grep -q 'warning' "$work/stderr" || fail "a class is missed that is there"
run 0 "${of_files[@]}" --limit-train 11
says '10 training images (all there are, fewer than 11), 10 for validation'
{ bytes 00 00 08 03 00 00 00 02 00 00 00 01 00 00 00 01; bytes 03 01; } >"$labels"
refuses "$labels" dimensions
rm "$labels"
refuses "$images" train-labels-idx1-ubyte
mkdir "$labels"
refuses "$labels"
good_files
gzip "$images"
head -c 20 "$images.gz" >"$work/cut"
cp "$work/cut" "$images.gz"
refuses "$images.gz"
echo 'no gzip' >"$images.gz"
refuses "$images.gz"
good_files
{ bytes 00 00 08 03 00 00 00 0a 00 00 00 0e 00 00 00 0e; zeros 1960; } >"$work/data/mnist/t10k-images-idx3-ubyte"
refuses "$work/data/mnist/t10k-images-idx3-ubyte" 1x14x14 1x28x28
run 0 "${of_files[@]}" --limit-val 0
{ bytes 00 00 08 03 00 00 00 0a 00 00 00 04 00 00 00 04; zeros 160; } >"$images"
run 1 "${of_files[@]}" --limit-val 0
complains 'conv2' 'too small'
if [[ $(id -u) -ne 0 ]]; then
    good_files
    chmod 000 "$images"
    refuses "$images"
fi

# With a damaged file training does not fall back to other data.
good_files
mv "$work/data/mnist" "$work/data/fashion-mnist"
echo damaged >"$work/data/fashion-mnist/train-images-idx3-ubyte"
run 1 "${of_files[@]}" --data auto
complains "$work/data/fashion-mnist/train-images-idx3-ubyte"
rm "$work/data/fashion-mnist/train-images-idx3-ubyte"
run 1 "${of_files[@]}" --data auto
complains "$work/data/fashion-mnist/train-labels-idx1-ubyte is there" 'train-images-idx3-ubyte'
mkdir "$work/data/fashion-mnist/train-images-idx3-ubyte"
run 1 "${of_files[@]}" --data auto
complains "$work/data/fashion-mnist/train-images-idx3-ubyte" 'regular file'

# ---- no data, and no way to fetch them: every address is behind a closed port of this machine ----

offline=(env -u LOCKSTEP_DATA -u no_proxy -u NO_PROXY HOME="$work/home" XDG_CACHE_HOME="$work/home/cache")
for variable in http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY; do
    offline+=("$variable=http://127.0.0.1:9")
done
lockstep=$LOCKSTEP
cat >"$work/offline" <<SCRIPT
#!/usr/bin/env bash
exec $(printf '%q ' "${offline[@]}" "$lockstep") "\$@"
SCRIPT
chmod +x "$work/offline"
mkdir "$work/home"
LOCKSTEP=$work/offline
run 0 "${small[@]}" --data auto --epochs 1
silent_stdout
says 'note: fashion-mnist is neither here nor could it be fetched; training on synthetic images instead'
says 'on synthetic (generated)'
run 0 "${verify[@]}" --data auto --devices 1,2
says 'training on synthetic images instead'
run 1 "${small[@]}" --data fashion-mnist
complains 'fashion-mnist' 'train-images-idx3-ubyte' "$work/home/cache/lockstep/fashion-mnist"
[[ -z $(find "$work/home" -name '*-ubyte') ]] || fail "half a download has the name of a data file"

# Errors in settings are reported before anything is searched or written.
# early TEXT… -- ARGUMENT…
early()
{
    local texts=()
    while [[ $1 != -- ]]; do
        texts+=("$1")
        shift
    done
    shift
    run "$expected" train --data mnist --data-dir "$work/nowhere" --log-dir "$work/unwanted" "$@"
    complains "${texts[@]}"
}
expected=2
for settings in --model=lenet --recipe=lenet; do
    early '--lr-steps 3:0.1' '--schedule step' '--schedule constant' -- "$settings" --schedule constant --lr-steps 3:0.1
    early '--lr-steps 3:0.1' '--schedule step' '--schedule cosine' -- "$settings" --lr-steps 3:0.1 --schedule cosine
    early '--min-lr 0.01' '--schedule cosine' '--schedule constant' -- "$settings" --min-lr 0.01
    early '--schedule step' '--lr-steps' -- "$settings" --schedule step
done
early '--target-accuracy 0.5' '--limit-val 0' -- --target-accuracy 0.5 --limit-val 0
early '--target-accuracy 0:' '--limit-val 0' -- --target-accuracy 0 --limit-val 0
early '--patience 3' '--target-accuracy' -- --patience 3
early '--patience 3' '--target-accuracy' -- --recipe fashion-mnist-wrn --target-accuracy -1 --patience 3
early '--data nope' 'fashion-mnist, mnist, synthetic, auto' -- --data nope
early '--target-accuracy 0.85' '--limit-val 0' '--target-accuracy -1' -- --recipe fashion-mnist-wrn --limit-val 0
early '--early-stop 2' '--limit-val 0' -- --early-stop 2 --limit-val 0
early "'flap'" 'flip' -- --augment flap
printf 'conv1: conv2d 8 kernel=3\nrleu\n' >"$work/bad.lk"
expected=1
early "$work/bad.lk:2" 'rleu' 'relu' -- --model "$work/bad.lk"
early "$work/none.lk" 'opened' -- --model "$work/none.lk"
[[ ! -e $work/unwanted ]] || fail "records of a training that was refused"
LOCKSTEP=$lockstep
# Errors that depend on the images are reported before records are written.
for wrong in --top-k=11 --augment=crop=28 --augment=cutout=29; do
    run 2 "${small[@]}" --log-dir "$work/unwanted" "$wrong"
    complains "$(sed -E 's/^.*[-=]([a-z]+)=[0-9]+$/\1/; s/^k$/top-k/' <<<"$wrong")" "${wrong##*=}"
    [[ ! -e $work/unwanted ]] || fail "records of a training that was refused"
done

# ---- what a training prints ----

number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
epoch_line()
{
    echo "^\{\"event\":\"epoch\",\"epoch\":$1,\"train_loss\":$number,\"train_accuracy\":$number,\"val_loss\":$2,\
\"val_accuracy\":$2,\"seconds\":$number,\"images_per_second\":$number,\"steps\":[0-9]+,\"rate\":$number,\
\"total_seconds\":$number,\"skipped_steps\":0$3\}\$"
}
# done_line STEPS VAL_ACCURACY DEVICES SHARDS SAMPLES
done_line()
{
    echo "^\{\"event\":\"done\",\"steps\":$1,\"seconds\":$number,\"images_per_second\":$number,\"val_accuracy\":$2,\
\"digest\":\"[0-9a-f]{32}\",\"state_digest\":\"[0-9a-f]{32}\",\"devices\":\[$3\],\"shards\":$4,\"samples_seen\":$5,\"epochs\":[0-9]+,\
\"total_seconds\":$number,\"val_loss\":$2,\"flops_per_second\":$number,\"stopped_by\":(null|\"[a-z ]+\"),\
\"dtype\":\"f32\",\"tf32\":false,\"micro_batch\":0,\"executor\":\"program\",\"fuse\":\"on\",\
\"algorithms\":\"fast\",\"implementations\":\"[0-9a-f]{16}\",\"transport\":\"(inproc)?\",\"reduce\":\"tree\"(,\"scaling\":\{.+\})?\}\$"
}
digest_of()
{
    sed -nE 's/.*"digest":"([0-9a-f]{32})".*/\1/p' "$work/stdout"
}

run 0 "${small[@]}"
silent_stdout
says 'lenet (129068 parameters) on synthetic (generated)'
says '20 training images, 10 for validation'
says 'epoch 1/2'
says 'epoch 2/2'
says 'digest '
! grep -q $'[\r\033]' "$work/stderr" || fail "a bar was drawn where there is no terminal"
digest=$(sed -nE 's/^digest ([0-9a-f]{32})$/\1/p' "$work/stderr")

run 0 "${small[@]}" --json
lines "$(epoch_line 1 "$number" '')" "$(epoch_line 2 "$number" '')" \
      "$(done_line 6 "$number" '"cpu:0"' 1 40)"
[[ $(digest_of) == "$digest" && -n $digest ]] || fail "the digest depends on --json"

run 0 "${small[@]}" --json --shards 4 --devices 1
first=$(digest_of)
run 0 "${small[@]}" --json --shards 4 --devices 3xcpu --workers 0
lines "$(epoch_line 1 "$number" '')" "$(epoch_line 2 "$number" '')" \
      "$(done_line 6 "$number" '"cpu:0","cpu:1","cpu:2"' 4 40)"
[[ $(digest_of) == "$first" ]] || fail "three devices have another digest than one"
[[ $first != "$digest" ]] || fail "four shards have the digest of one"
run 0 "${small[@]}" --json --seed 1
[[ $(digest_of) != "$digest" ]] || fail "seed 1 has the digest of seed 0"

run 0 "${small[@]}" --json --limit-val 0 --epochs 1 --limit-train 100
lines "$(epoch_line 1 null '')" "$(done_line 13 null '"cpu:0"' 1 100)"
! grep -qE 'val (loss|accuracy)' "$work/stderr" || fail "an evaluation that was not"

counts='\{"used_once":20,"unused":0,"repeated":0\}'
run 0 "${small[@]}" --json --ledger --epochs 1
lines "$(epoch_line 1 "$number" ",\"train_ledger\":$counts,\"val_ledger\":${counts/20/10}")" \
      "$(done_line 3 "$number" '"cpu:0"' 1 20)"
says '20 training samples used once, 0 unused, 0 more than once'
says '10 validation samples used once, 0 unused, 0 more than once'

run 0 "${small[@]}" --data-dir "$work/nowhere" --epochs 1 # synthetic needs none

# ---- recipes ----

run 0 recipes
for recipe in lenet keras-mnist custom-training resnet18 fashion-mnist-wrn fashion-mnist-fast; do
    grep -qE "^$recipe +[^ ]" "$work/stdout" || fail "recipe $recipe is not listed"
done
run 0 recipes fashion-mnist-wrn
for setting in '--model wrn-16-10' '--base-lr 0.01' '--batch-size 32' '--epochs 40' '--limit-train 10000' --throughput; do
    grep -qxF -- "  $setting" "$work/stdout" || fail "stdout lacks '$setting'"
done
run 2 recipes fashion-mnist-wm
complains "'fashion-mnist-wm'" 'fashion-mnist-wrn'
run 2 recipes xylophone
complains "'xylophone'" 'for a list'
run 2 recipes lenet resnet18
complains 'one recipe'
run 2 "${small[@]}" --recipe lennet
complains 'lennet' 'lenet'

# Flags override the settings of a recipe, before or after --recipe.
tiny=(--data synthetic --limit-train 64 --limit-val 10 --epochs 1 --devices 1)
run 0 train --recipe lenet "${tiny[@]}" --base-lr 0.05 --json
says 'sgd, rate 0.05'
says 'batch     256 '
first=$(digest_of)
run 0 train --base-lr 0.05 "${tiny[@]}" --json --recipe lenet
says 'sgd, rate 0.05'
[[ $(digest_of) == "$first" ]] || fail "the order of --recipe and --base-lr matters"
run 0 train --recipe lenet "${tiny[@]}" --json
says 'sgd, rate 0.2'
[[ $(digest_of) != "$first" ]] || fail "--base-lr has no effect"
run 0 train --recipe lenet "${tiny[@]}" --lr-steps 1:0.1
says 'sgd, rate 0.2 in steps'
for base in '--model lenet' '--recipe lenet'; do
    # shellcheck disable=SC2086 # two words
    run 0 train $base "${tiny[@]}" --limit-train 512 --scale-lr --batch-size 512 --log-dir "$work/scaled"
    grep -qE '"base-lr":0\.2,.*"rate in use":0\.4,' "$work/scaled/epochs.jsonl" || fail "not both rates in the settings"
    rm -r "$work/scaled"
done
says 'rate 0.4 with 5 epochs of warm-up from 0.2'
run 0 train --recipe lenet "${tiny[@]}" --batch-size 64 --epochs 2 --schedule cosine --warmup-epochs 2
says 'rate 0.2 falling to 0 with 2 epochs of warm-up from 0'
says 'rate 0.1  ' # half of it in the first of two updates
[[ $(grep -c 'the network still guesses: 2.3026 is ' "$work/stderr") -eq 1 ]] || fail 'not one note on guessing'
run 0 train --model keras-cnn "${tiny[@]}" --epochs 2
grep -q 'still guesses' "$work/stderr" && fail 'a note on guessing where the loss is not that of guessing'
run 0 train --recipe lenet "${tiny[@]}" --limit-train 512 --scale-lr --batch-size 512 --warmup-epochs 0
says 'rate 0.4, seed'
run 0 train --recipe lenet "${tiny[@]}" --limit-train 128 --scale-lr --batch-size 128
says 'rate 0.1, seed'
run 0 train --recipe lenet "${tiny[@]}" --scale-lr --accumulate 100 # an update has 64 samples
says 'rate 0.05, seed'
run 0 train --recipe lenet "${tiny[@]}" --scale-lr --batch-size 16 --warmup-epochs 1
says 'rate 0.0125 with 1 epoch of warm-up from 0,'
says 'rate 0.0125  ' # the last update's

# Without --devices, idle cores of a small batch are reported.
cores=$(count_cores)
if [[ $cores -gt 1 ]]; then
    few=(train --data synthetic --limit-train 64 --limit-val 0 --epochs 1)
    run 0 "${few[@]}" --batch-size 16
    grep -qxE " +1 of $cores cores: a batch of 16 is 1 shard; more --shards or a larger --batch-size uses more" \
        "$work/stderr" || fail "idle cores are not pointed out"
    run 0 "${few[@]}" --batch-size 1
    grep -qxE " +1 of $cores cores: a batch of 1 is 1 shard; a larger --batch-size uses more" "$work/stderr" ||
        fail "one image for two devices"
    run 0 "${few[@]}" --batch-size 16 --devices 1
    ! grep -q ' cores: ' "$work/stderr" || fail "devices that were asked for are explained"
fi

# The default number of shards depends on the batch alone, so results do not depend on the devices. Devices without a
# shard stay idle, and a warning says so.
by_default=(train --data synthetic --limit-train 64 --limit-val 0 --batch-size 32 --epochs 1)
run 0 "${by_default[@]}" --devices 2xcpu:0
says '32 in 2 shards, 16 samples a device'
! grep -q 'idle' "$work/stderr" || fail "idle devices, where there are none"
digest=$(grep '^digest ' "$work/stderr")
for devices in 1 cpu:0,cpu:1,cpu:0 5xcpu; do
    run 0 "${by_default[@]}" --devices $devices
    grep -qxF "$digest" "$work/stderr" || fail "other bits with --devices $devices"
done
says 'warning: 3 of 5 devices stay idle, from cpu:2 on: a batch of 32 has 2 shards, and a device needs one; use a larger --batch-size or more --shards'
says 'devices   2, strategy mirrored'
! grep -q 'batch-norm' "$work/stderr" || fail "groups of batch-norm, which the network has not"
run 0 "${by_default[@]}" --model resnet18 --limit-train 32 --devices 2xcpu:0
says 'batch-norm over 1 group of shards'
digest=$(grep '^digest ' "$work/stderr")
run 0 "${by_default[@]}" --model resnet18 --limit-train 32 --devices 1
grep -qxF "$digest" "$work/stderr" || fail "other bits where one device has a group of batch-norm"
run 2 "${by_default[@]}" --bn shard --bn-group 16
complains '--bn-group 16: must be with --bn group'

# ---- records ----

logs=$work/logs/below
run 0 "${small[@]}" --log-dir "$logs" --json --top-k 2
for name in epochs.csv epochs.jsonl; do
    [[ -s $logs/$name ]] || fail "no $name in the log folder"
done
[[ $(find "$logs" -name '*tfevents*' -size +0 | wc -l) -eq 1 ]] || fail "not one event file"
grep -qF '</svg>' "$logs/curves.svg" || fail "curves.svg is no whole SVG"
drawn=1
if "$LOCKSTEP" doctor 2>/dev/null | grep -E '^  libcairo +[0-9]' >/dev/null; then
    [[ $(head -c 4 "$logs/curves.png") == $'\x89PNG' ]] || fail "curves.png is no PNG"
    drawn=2
else
    says 'note: this build has no libcairo'
    [[ ! -e $logs/curves.png ]] || fail "a PNG without libcairo"
fi
[[ $(head -n 1 "$logs/epochs.csv") == 'epoch,step,train_loss,train_accuracy,train_top_k,val_loss,val_accuracy,'* ]] ||
    fail "epochs.csv has no heading"
[[ $(grep -cE "^[12],[36](,$number){10},0\$" "$logs/epochs.csv") -eq 2 && $(wc -l <"$logs/epochs.csv") -eq 3 ]] ||
    fail "epochs.csv has not two rows"
head -n 1 "$logs/epochs.jsonl" | grep -qF '"event":"settings"' || fail "no settings in epochs.jsonl"
head -n 1 "$logs/epochs.jsonl" | grep -qE '"batch-size":8[,}]' || fail "no batch size in the settings"
[[ $(grep -cE '"event":"epoch".*"train_top_k":.*"val_ledger":' "$logs/epochs.jsonl") -eq 2 ]] || fail "not two epochs"
[[ $(tail -n 1 "$logs/epochs.jsonl") == "$(tail -n 1 "$work/stdout")" ]] || fail "another last line than --json"
says 'top-2'

# An earlier run's files stay.
cp "$logs/epochs.csv" "$work/first.csv"
run 0 "${small[@]}" --log-dir "$logs" --epochs 1
cmp -s "$logs/epochs.csv" "$work/first.csv" || fail "the first run's CSV was changed"
[[ $(wc -l <"$logs/epochs-2.csv") -eq 2 && $(wc -l <"$logs/epochs-2.jsonl") -eq 3 ]] || fail "no records of the second run"
[[ $(find "$logs" -name '*tfevents*' | wc -l) -eq 2 ]] || fail "not two event files"
[[ $(find "$logs" -name 'curves*' | wc -l) -eq $((2 * drawn)) ]] || fail "not every run has its curves"

echo >"$work/file"
for folder in "$work/file" "$work/file/below"; do
    run 1 "${small[@]}" --log-dir "$folder"
    complains "$work/file"
done
if [[ $(id -u) -ne 0 ]]; then
    mkdir "$work/closed"
    chmod 500 "$work/closed"
    for folder in "$work/closed" "$work/closed/below"; do
        run 1 "${small[@]}" --log-dir "$folder"
        complains "$work/closed"
    done
fi
run 2 "${small[@]}" --log-dir "$(printf 'x%.0s' {1..5000})"
complains

# ---- lines of Keras scripts, and stopping ----

lasting=(train --data synthetic --limit-train 20 --limit-val 100 --batch-size 8 --epochs 9 --devices 1)
for value in 1.01 -1.01 nan x; do
    run 2 "${lasting[@]}" --target-accuracy "$value"
    complains '--target-accuracy' "$value" 'from -1 to 1'
done

run 0 "${lasting[@]}" --target-accuracy 1e-9 --patience 3 --throughput --total-time
lines '^Images/sec: [0-9]+\.[0-9][0-9]$' '^Cumulative training time after epoch 1: [0-9]+\.[0-9][0-9]$' \
      '^Images/sec: ' '^Cumulative training time after epoch 2: ' \
      '^Images/sec: ' '^Cumulative training time after epoch 3: ' \
      '^Early stopping after epoch 3$' '^Cumulative training time: [0-9]+\.[0-9][0-9]$' \
      '^Test loss: [0-9]+\.[0-9]+$' '^Test accuracy: [01]\.[0-9]+$'
run 0 "${lasting[@]}" --target-accuracy 1e-9 --patience 1 --throughput --json
lines "$(epoch_line 1 "$number" '')" "$(done_line 3 "$number" '"cpu:0"' 1 20)"
tail -n 1 "$work/stdout" | grep -qF '"stopped_by":"stop at accuracy"' || fail "who stopped is not said"
says 'Images/sec: '
says 'Early stopping after epoch 1'
says 'note: the validation accuracy was above 1e-09 in 1 epoch'
run 0 "${lasting[@]}" --target-accuracy 1 --patience 1 --epochs 2
! grep -q 'Early stopping' "$work/stdout" || fail "stopped above 1"
run 0 "${lasting[@]}" --target-accuracy 0 --patience 0.5
lines '^Early stopping after epoch 1$' '^Test loss: ' '^Test accuracy: '
for never in '--target-accuracy=-1' '--target-accuracy -1'; do
    # shellcheck disable=SC2086 # two words
    run 0 "${lasting[@]}" $never --epochs 2
    silent_stdout
    says 'epoch 2/2'
done
run 0 train --recipe fashion-mnist-wrn --model lenet "${lasting[@]:1}" --target-accuracy -1 --epochs 1 --log-dir "$work/recipe"
for option in --log-dir --checkpoint-dir; do
    run 2 train $option '' --epochs 1
    complains "$option '': must be a text that is not empty"
done
# With this rate nothing improves.
run 0 "${lasting[@]}" --early-stop 2 --base-lr 1e-12
lines '^Early stopping after epoch [34]: the best validation loss, '

run 0 "${lasting[@]}" --epochs 2 --plot
silent_stdout
! grep -q $'[\r\033]' "$work/stderr" || fail "drawn in place where there is no terminal"
says 'train loss'

one=(train --data synthetic --limit-train 16 --limit-val 0 --epochs 1 --devices 1)
TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}}' run 0 "${one[@]}"
says 'warning: TF_CONFIG names a task of a cluster, but this process trains by itself'
for option in '--checkpoint-every 5' '--keep 2' '--checkpoint-best none'; do
    # shellcheck disable=SC2086
    run 2 "${one[@]}" $option
    complains "${option% *}: must be with --checkpoint-dir"
done
run 0 "${one[@]}" --keep 3 --checkpoint-every epoch # the defaults

# If all steps of an epoch were skipped, nothing was measured.
run 0 train --data synthetic --limit-train 64 --limit-val 0 --batch-size 16 --base-lr 1e6 --nan-guard skip --epochs 2 --devices 1
grep -qE '^epoch 2/2  rate 1e\+06  .*  4 steps skipped$' "$work/stderr" || fail "a line of what was not measured"

# ---- interrupts ----

for signal in INT TERM; do
    logs=$work/interrupted-$signal
    begin train --data synthetic --limit-train 128 --limit-val 10 --batch-size 16 --epochs 100000 --devices 1 \
          --log-dir "$logs" --json --throughput
    until_there '"epoch":2,' "$work/stdout"
    kill -"$signal" "$process" "$process" # as timeout sends it: to the process, and to its group
    ends_with 130
    [[ $(grep -c 'finishing this step' "$work/stderr") -eq 1 ]] || fail "not said once"
    tail -n 1 "$work/stdout" | grep -qE '^\{"event":"stopped","status":"[a-z ]+","message":".+","epochs":[0-9]+,"steps":[0-9]+,.*\}$' ||
        fail "no last line"
    [[ $(tail -n 1 "$logs/epochs.jsonl") == "$(tail -n 1 "$work/stdout")" ]] || fail "epochs.jsonl has no last line"
    epochs=$(grep -c '"event":"epoch"' "$work/stdout")
    [[ $epochs -ge 2 && $(wc -l <"$logs/epochs.csv") -eq $((epochs + 1)) ]] || fail "epochs.csv lacks epochs"
    [[ $(grep -c '"event":"epoch"' "$logs/epochs.jsonl") -eq $epochs ]] || fail "epochs.jsonl lacks epochs"
    [[ $(grep -c '^Images/sec: ' "$work/stderr") -eq $epochs ]] || fail "lines are missing"
    [[ -n $(find "$logs" -name '*tfevents*' -size +0) ]] || fail "no event file"
done

# A second interrupt does not wait for a step that takes seconds.
begin train --model resnet18 --data synthetic --limit-train 512 --limit-val 10 --batch-size 512 --epochs 2 --devices 1 \
      --log-dir "$work/at-once"
until_there 'resnet18 \(' "$work/stderr"
until_in_step
kill -INT "$process"
until_there 'finishing this step' "$work/stderr"
interrupt_again
ends_with 130
! grep -q '"event":"stopped"' "$work/at-once/epochs.jsonl" || fail "the second interrupt waited for the end of training"

begin "${verify[@]}" --devices "$(printf '1,%.0s' {1..50})2" --steps 50
until_there '^1xcpu ' "$work/stdout"
kill -INT "$process"
ends_with 130
says 'finishing this step'
says 'lockstep: verify: interrupted on 1xcpu after step '

# ---- streams that cannot be written ----

for target in /dev/full '&-'; do
    arguments=("${small[@]}" --json ">$target")
    status=0
    if [[ $target == '&-' ]]; then
        "$LOCKSTEP" "${small[@]}" --json >&- 2>"$work/stderr" </dev/null || status=$?
    else
        "$LOCKSTEP" "${small[@]}" --json >"$target" 2>"$work/stderr" </dev/null || status=$?
    fi
    : >"$work/stdout"
    [[ $status -eq 1 ]] || fail "exit status is not 1"
    [[ $(grep -c '^lockstep: .*standard output' "$work/stderr") -eq 1 && $(grep -c '^lockstep: ' "$work/stderr") -eq 1 ]] ||
        fail "not one error line"
done
arguments=("${small[@]}" '2>&-')
status=0
"$LOCKSTEP" "${small[@]}" --json >"$work/stdout" 2>&- </dev/null || status=$?
: >"$work/stderr"
[[ $status -eq 0 ]] || fail "a closed stderr is a failure"
lines "$(epoch_line 1 "$number" '')" "$(epoch_line 2 "$number" '')" "$(done_line 6 "$number" '"cpu:0"' 1 40)"

# ---- devices and operators ----

run 0 devices
silent_stderr
cores=$(grep -cE '^cpu:[0-9]+ +.+' "$work/stdout")
[[ $cores -ge 1 && $(grep -cE '^ref:[0-9]+ +.+' "$work/stdout") -eq $cores ]] || fail "cpu and ref differ in number"

run 0 "${small[@]}" --limit-train $((2 * cores + 2)) --batch-size $((2 * cores + 2)) --shards $((cores + 1)) --devices $((cores + 1))
silent_stdout
says "warning: $((cores + 1)) cpu devices share $cores core"
run 0 "${small[@]}" --devices "cpu:$cores"
says "warning: cpu:$cores is beyond the last core, cpu:$((cores - 1))"

run 0 ops
silent_stderr
head -n 1 "$work/stdout" | grep -qE '^operator +device +f32 +bf16 +f64 +i32 +i64 +u8 +gradient$' || fail "no heading"
for operator in conv2d matmul relu avg_pool2d sparse_softmax_cross_entropy add; do
    grep -qE "^$operator +cpu +[a-z]+ .* yes\$" "$work/stdout" || fail "no differentiable $operator in f32 on cpu"
done
grep -qE '^sgd_update +cpu +[a-z]+ ' "$work/stdout" || fail "no sgd_update in f32 on cpu"
[[ -z $(tail -n +2 "$work/stdout" | grep -vE '^[a-z0-9_]+ +(cpu|ref|cuda|tpu|pjrt) +([a-z]+|-)( +([a-z]+|-)){6}$' || true) ]] ||
    fail "a row that is none"
convolution=$(sed -nE 's/^conv2d +cpu +([a-z]+) .*/\1/p' "$work/stdout")

# ---- verify ----

run 0 "${verify[@]}" --devices 1,2,cpu:0
[[ $(sed -nE 's/^(1xcpu|2xcpu|cpu:0) +([0-9a-f]{32})$/\2/p' "$work/stdout" | sort | uniq -c | awk '{ print $1 }') == 3 ]] ||
    fail "not three equal digests"
[[ $(tail -n 1 "$work/stdout") == 'identical after 2 steps with 2 shards' ]] || fail "no verdict"
run 0 "${verify[@]}" --devices 1,3 --shards 5
[[ $(tail -n 1 "$work/stdout") == 'identical after 2 steps with 5 shards' ]] || fail "no verdict"

run 0 "${verify[@]}" --devices 1,2 --steps 1 --base-lr 0.002 --recipe keras-mnist --augment shift=0.2,flip
[[ $(tail -n 1 "$work/stdout") == 'identical after 1 step with 2 shards' ]] || fail "no verdict"
# Settings that may change bits and are not at their defaults are in the plan, and in the records.
few=(train --data synthetic --limit-train 20 --limit-val 0 --batch-size 8 --epochs 1 --devices 1)
run 0 "${few[@]}" --fuse off --dtype bf16 --micro-batch 2 --recompute --json --log-dir "$work/unusual"
grep -qE '^  kernels   fast, fuse off, hash [0-9a-f]{16}$' "$work/stderr" || fail "no --fuse off in the plan"
grep -qF '"dtype":"bf16","tf32":false,"micro_batch":2,"executor":"program","fuse":"off",' "$work/stdout" || fail "not what ran"
head -n 1 "$work/unusual/epochs.jsonl" | grep -qF '"recompute":true' || fail "no --recompute in the settings"
run 0 "${few[@]}" --executor eager
grep -qE '^  kernels   fast, executor eager, hash [0-9a-f]{16}$' "$work/stderr" || fail "no --executor eager in the plan"

run 2 "${few[@]}" --tf32
complains '--tf32: must be with --devices cuda: cpu:0 has no such arithmetic'

# Options that must not change a bit are accepted.
run 0 "${verify[@]}" --devices 1,2
plain=$(grep -E '^1xcpu' "$work/stdout")
run 0 "${verify[@]}" --devices 1,2 --recompute --bucket-mb 0.01
[[ $(grep -E '^1xcpu' "$work/stdout") == "$plain" ]] || fail "other bits than without"
run 2 "${verify[@]}" --limit-val 5
complains "'--limit-val'"

# oneDNN and plain C add in different orders.
if [[ $convolution != c ]]; then
    run 1 "${verify[@]}" --devices 1xcpu,1xref
    grep -qE '^different: after step [12] [a-z0-9.]+ on 1xref \(replica 0\) is not what it is on 1xcpu$' "$work/stdout" ||
        fail "no difference is named"
    silent_stderr
fi

# What is larger than the machine's memory is refused before anything is made.
if [[ $("$LOCKSTEP" version) != *sanitizers* ]]; then
    printf 'flatten\ndense 40000\ndense 1000\ndense classes\n' >"$work/wide.lk"
    (
        ulimit -v 900000
        run 1 train --model "$work/wide.lk" --data synthetic --optimizer adam --devices 1
        complains 'wide.lk does not fit' 'the limit of addresses (ulimit -v) allows 878.9 MiB'
    )
    # Wherever memory runs out, an error says so. Status 127: the program's libraries do not fit.
    failures=0
    status=1
    arguments=("${small[@]}" --limit-val 0)
    for ((limit = 6000; status != 0 && limit < 2000000; limit += limit / 32)); do
        status=0
        (ulimit -v "$limit" && exec "$LOCKSTEP" "${arguments[@]}") >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
        [[ $status -eq 0 || $status -eq 1 || $status -eq 127 ]] || fail "exit status $status with ulimit -v $limit"
        [[ $status -ne 1 ]] || failures=$((failures + 1))
    done
    [[ $status -eq 0 && $failures -gt 0 ]] || fail "$failures failures for want of memory"
fi
