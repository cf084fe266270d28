#!/usr/bin/env bash
# train --trace and profile: the contents of the recording, also after an interrupt, and the output of profile.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

# is_whole FILE: it holds a complete JSON object.
is_whole()
{
    [[ $(head -c 1 "$1") == '{' && $(tail -c 3 "$1") == ']}' ]] || fail "$1 is not whole"
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$1" /dev/null || fail "$1 is no JSON"
    fi
}

small=(--data synthetic --limit-train 40 --batch-size 16 --devices 2xcpu --shards 2)

# ---- train --trace ----

run 0 train "${small[@]}" --limit-val 10 --epochs 1 --trace "$work/run.json"
is_whole "$work/run.json"
holds "$work/run.json" '"name":"cpu:0"' '"name":"cpu:1"' '"name":"loader 0"' '"cat":"exchange"' '"cat":"operator"' \
      '"name":"push a step"' '"name":"prepare a batch"' '"flops":' '"inputs":["f32[' '"dropped_events":0'
[[ $(find "$work" -name 'run.json*') == "$work/run.json" ]] || fail 'something was left beside the trace'

run 1 train "${small[@]}" --epochs 1 --trace "$work/missing/run.json"
complains "--trace $work/missing/run.json: cannot be written: No such file"
! grep -q 'epoch 1' "$work/stderr" || fail 'it was trained before'
# A pipe gets one recording, however large.
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/piped.json" &
run 0 train "${small[@]}" --epochs 4 --trace "$work/pipe"
wait
[[ -p $work/pipe && $(stat -c %s "$work/piped.json") -gt 65536 ]] || fail 'a pipe gets no recording'
is_whole "$work/piped.json"
run 1 train "${small[@]}" --epochs 1 --trace "$work/pipe"
says "lockstep: trace $work/pipe: cannot be written: No such device or address" # nobody reads it
ln -s run.json "$work/link.json"
run 0 train "${small[@]}" --epochs 1 --trace "$work/link.json"
[[ -L $work/link.json ]] || fail 'a link was replaced'
is_whole "$work/run.json"
mkdir "$work/big"
ln -s big/run.json "$work/lost.json"
run 1 train "${small[@]}" --epochs 1 --trace "$work/lost.json"
complains "--trace $work/lost.json: leads nowhere: No such file"
[[ -L $work/lost.json && -z $(ls "$work/big") ]] || fail 'the link was replaced, or a file made where it leads'

run 2 train "${small[@]}" --epochs 1 --trace ''
complains "--trace '': must be a text that is not empty"
run 2 train "${small[@]}" --trace
complains '--trace' 'missing'

# ---- an interrupt ----

begin train --data synthetic --limit-train 64 --limit-val 0 --batch-size 16 --epochs 100000 --devices 1 --json \
      --trace "$work/interrupted.json"
until_there '"epoch":2,' "$work/stdout"
is_whole "$work/interrupted.json"
holds "$work/interrupted.json" '"traceEvents":[' # before the end one without events
kill -INT "$process"
ends_with 130
is_whole "$work/interrupted.json"
holds "$work/interrupted.json" '"name":"cpu:0"' '"name":"conv'

# ---- profile ----

run 0 profile "${small[@]}" --steps 4 --warmup 2 --rows 3 --trace "$work/profile.json"
line '^lenet on synthetic, 2 devices, batch 16 in 2 shards: 4 steps of [0-9.]+ ms after 2, [0-9]+ images/s$'
line '^peak of a device, f32, measured: [0-9.]+ GFLOP/s'
line '^[a-z0-9_ ]+ +[0-9]+ +[0-9.]+ +[0-9.]+% .*  f32\['
line '^[0-9]+ others '
line '^all operators '
for part in compute 'sums over own shards' 'exposed exchange' 'waiting for the slowest device' 'input wait' other; do
    line "^$part +-?[0-9.]+ +-?[0-9.]+%( +-?[0-9.]+%){2}\$"
done
tail -n 1 "$work/stdout" | grep -qE '^Bound by .+ [0-9]+% of the .*time: .+\.$' || fail 'no last sentence'
# adds_up DEVICES: the parts add up to the whole time, except for rounding.
adds_up()
{
    sed -n '/^a step/,/^$/p' "$work/stdout" | awk -v n="$1" 'NR > 1 && NF { sub(/%$/, "", $(NF - n)); sum += $(NF - n) }
        END { exit !(sum > 99.6 && sum < 100.4) }' || fail 'the parts do not add up'
}
adds_up 2
# That many steps were recorded.
[[ $(grep -oF '"name":"push a step"' "$work/profile.json" | wc -l) -eq 4 ]] || fail 'not 4 steps'

# Which operators take longest depends on the machine, so all of them are listed.
run 0 profile "${small[@]}" --steps 2 --warmup 1 --rows 100
line '^conv[a-z0-9_]+ +[0-9]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+%  f32\['

# A note says how a share can exceed 100%, if one does. Wide convolutions of 3x3 take Winograd's algorithm.
cat >"$work/wide.lk" <<'EOF'
conv2d 64 kernel=3 padding=1
conv2d 128 kernel=3 padding=1
conv2d 128 kernel=3 padding=1
global_avg_pool
dense classes
EOF
run 0 profile "${small[@]}" --model "$work/wide.lk" --steps 1 --warmup 1 --rows 100
above=$(awk '$6 ~ /^[0-9]+%$/ && $6 + 0 > 100 && !/^all / { above = 1 } END { print above + 0 }' "$work/stdout")
[[ $(grep -c "^Above 100% of peak: Winograd's convolution " "$work/stdout") -eq $above ]] ||
    fail 'the note about shares above 100% does not fit the shares'

# A device that only stores has a part of the time.
run 0 profile "${small[@]}" --strategy central-storage --storage ref:0 --steps 2 --warmup 1 --rows 3
line "^compute +[0-9.]+ +[0-9.]+%( +[0-9.]+%){3}\$"
adds_up 3

# Nothing is evaluated, whatever a recipe asks for.
run 0 profile "${small[@]}" --recipe keras-mnist --steps 1 --warmup 0 --rows 0 --devices 1
line '^Bound by '
run 2 profile "${small[@]}" --early-stop 2
complains "unknown option '--early-stop'"

run 1 profile "${small[@]}" --steps 1 --trace "$work/missing/run.json"
complains "--trace $work/missing/run.json: cannot be written: No such file"
run 2 profile "${small[@]}" --steps 0
complains '--steps 0' 'from 1 to'
run 2 profile "${small[@]}" --plot
complains '--plot'
LOCKSTEP_ENGINE=sync run 2 profile "${small[@]}" --steps 1
complains 'LOCKSTEP_ENGINE'
