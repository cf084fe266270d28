#!/usr/bin/env bash
# tune, and training with its file: the same bits on any number of devices, and errors before any work.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"


trained=(--data synthetic --limit-train 48 --batch-size 24 --shards 2)
small=("${trained[@]}" --limit-val 16)
tuned=$work/tuned.txt

run 0 doctor
if ! grep -qE 'oneDNN +[0-9]' "$work/stdout"; then
    echo 'SKIP: this build has one implementation for every problem'
    exit 77
fi

# ---- tune ----

run 0 tune "${small[@]}" --samples 1 --out "$tuned"
line '^operator +built-in +ms +fastest +ms +times +problem$'
line '^conv2d +[a-z0-9:-]+ +[0-9.]+ +.* f32 x\[12,1,28,28\] w\[20,1,3,3\] stride 1x1 padding 0x0 dilation 1x1$'
line "^$tuned written: hash [0-9a-f]{16}$"
head -n 1 "$tuned" | grep -qE '^lockstep [0-9.]+, device cpu, instruction set [a-z0-9_]+, oneDNN [0-9.]+$' ||
    fail 'the first line does not say what the file is for'
grep -qE '^conv2d_weight_grad f32 x\[12,20,13,13\] w\[50,20,5,5\] .* = [a-z0-9:-]+$' "$tuned" || fail 'no second layer'
[[ $(find "$work" -name 'tuned.txt*') == "$tuned" ]] || fail 'something was left beside the file'

run 2 tune "${small[@]}"
complains '--out is missing'
run 1 tune "${small[@]}" --out "$work/missing/tuned.txt"
complains "--out $work/missing/tuned.txt: cannot be written: No such file"
run 2 tune "${small[@]}" --samples 0 --out "$work/other.txt"
complains '--samples'
run 1 tune "${small[@]}" --devices 1xref --out "$work/other.txt"
complains 'devices of kind ref have one implementation for every problem'
[[ ! -e $work/other.txt ]] || fail 'a file was left'

# ---- train with the file ----

run 1 train "${small[@]}" --algorithms /dev/zero
complains 'tuning /dev/zero: has more than 1048576 bytes'

# digest DEVICES ALGORITHMS
digest()
{
    run 0 train "${small[@]}" --epochs 1 --devices "$1" --algorithms "$2" --json --log-dir "$work/logs"
    grep -qF -- "  kernels   $2, hash " "$work/stderr" || fail 'the plan does not say which algorithms'
    sed -n 's/.*"event":"done".*"digest":"\([0-9a-f]*\)".*/\1/p' "$work/stdout"
}

one=$(digest 1 "$tuned")
two=$(digest 2 "$tuned")
[[ -n $one && $one == "$two" ]] || fail "digests differ: $one and $two"
line "\"algorithms\":\"$tuned\",\"implementations\":\"[0-9a-f]{16}\""
grep -qE '"implementations":"[0-9a-f]{16}"' "$work/logs/epochs.jsonl" || fail 'the settings lack the implementations'
cmp -s "$work/logs/algorithms.txt" "$work/logs/algorithms-2.txt" || fail 'two devices run something else than one'

usual=$(digest 1 fast)
[[ $(digest 2 "$work/logs/algorithms-3.txt") == "$usual" ]] || fail 'what ran does not repeat the run'

run 0 verify "${trained[@]}" --steps 2 --devices 1,2 --algorithms "$tuned"
line "^identical after 2 steps with 2 shards, algorithms $tuned\$"
run 0 profile "${trained[@]}" --steps 1 --warmup 0 --devices 1 --algorithms "$tuned"
line "^algorithms $tuned, hash [0-9a-f]{16}\$"
run 2 verify "${trained[@]}" --steps 1 --devices 1
complains_just '--devices 1: must name at least two sets of devices, such as 1,2'
run 1 verify "${trained[@]}" --steps 1 --devices 1,1xref
line '^ +other implementations than on 1xcpu: lockstep [0-9.]+, device ref, hash [0-9a-f]{16} in place of [0-9a-f]{16}$'

# A tuning for other sizes of shards is accepted, with a warning that none of its problems occurs.
run 0 train --data synthetic --limit-train 40 --batch-size 20 --shards 2 --limit-val 18 --epochs 1 --algorithms "$tuned"
grep -qF -- "problems of $tuned occurs in this training" "$work/stderr" || fail 'no warning of other shards'

# ---- files that are refused ----

# refuse TEXT…: train and other commands that train refuse $work/bad.txt
refuse()
{
    run 1 train "${small[@]}" --algorithms "$work/bad.txt"
    complains "tuning $work/bad.txt" "$@"
    run 1 profile "${trained[@]}" --algorithms "$work/bad.txt"
    complains "tuning $work/bad.txt" "$@"
}

refuse 'cannot be read: No such file' 'must be fast, direct or the file of a tuning'
sed '2s/= .*/= fastest/' "$tuned" >"$work/bad.txt"
refuse "line 2: 'fastest' does not run conv2d"
{ cat "$tuned"; echo 'conv2d f32 x[1] = onednn'; } >"$work/bad.txt"
refuse "line $(($(wc -l <"$tuned") + 1)): 'conv2d f32 x[1]' is no problem"
sed '1s/oneDNN .*/oneDNN 0.1.2/' "$tuned" >"$work/bad.txt"
refuse 'is for oneDNN 0.1.2, this is oneDNN'
sed '1s/instruction set [a-z0-9_]*/instruction set vax/' "$tuned" >"$work/bad.txt"
refuse 'is for instruction set vax, this is instruction set'
run 2 train "${small[@]}" --algorithms ''
complains "--algorithms '': must be a text that is not empty"
