#!/usr/bin/env bash
# train --trace and profile from outside: what the recording holds, also after an interrupt, and what profile prints.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ulimit -c 0

fail()
{
    echo "lockstep ${arguments[*]}: $1"
    echo "exit status $status; stdout, then stderr:"
    cat "$work/stdout" "$work/stderr"
    exit 1
}

# run STATUS [ARGUMENT…]
run()
{
    local expected=$1
    shift
    arguments=("$@")
    status=0
    "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
}

complains()
{
    [[ ! -s $work/stdout ]] || fail "stdout is not empty"
    local text
    for text in "$@"; do
        grep -qF -- "$text" "$work/stderr" || fail "stderr lacks '$text'"
    done
}

prints()
{
    grep -qE -- "$1" "$work/stdout" || fail "stdout lacks '$1'"
}

# holds FILE TEXT…: a whole JSON object in which each of the texts stands.
holds()
{
    local file=$1 text
    shift
    [[ $(head -c 1 "$file") == '{' && $(tail -c 3 "$file") == ']}' ]] || fail "$file is not whole"
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$file" /dev/null || fail "$file is no JSON"
    fi
    for text in "$@"; do
        grep -qF -- "$text" "$file" || fail "$file lacks '$text'"
    done
}

small=(--data synthetic --limit-train 40 --batch-size 16 --devices 2xcpu)

# ---- train --trace ----

run 0 train "${small[@]}" --limit-val 10 --epochs 1 --trace "$work/run.json"
holds "$work/run.json" '"name":"cpu:0"' '"name":"cpu:1"' '"name":"loader 0"' '"cat":"exchange"' '"cat":"operator"' \
      '"name":"push a step"' '"name":"prepare a batch"' '"flops":' '"inputs":["f32[' '"dropped_events":0'
[[ $(find "$work" -name 'run.json*') == "$work/run.json" ]] || fail 'something was left beside the trace'

run 1 train "${small[@]}" --epochs 1 --trace "$work/missing/run.json"
complains "--trace $work/missing/run.json: cannot be written: No such file"
! grep -q 'epoch 1' "$work/stderr" || fail 'it was trained before'
run 1 train "${small[@]}" --epochs 1 --trace ''
complains 'without a name'
run 2 train "${small[@]}" --trace
complains '--trace' 'missing'

# ---- an interrupt ----

arguments=(train --data synthetic --limit-train 64 --limit-val 0 --batch-size 16 --epochs 100000 --devices 1 --json
           --trace "$work/interrupted.json")
status=0
"$LOCKSTEP" "${arguments[@]}" >"$work/stdout" 2>"$work/stderr" </dev/null &
process=$!
trap 'kill -KILL "$process" 2>/dev/null || true; rm -rf "$work"' EXIT
for ((tries = 0; tries < 1200; tries++)); do
    ! grep -q '"epoch":2,' "$work/stdout" || break
    sleep 0.05
done
holds "$work/interrupted.json" '"traceEvents":[' # before the end one without events
kill -INT "$process"
wait "$process" || status=$?
[[ $status -eq 130 ]] || fail 'exit status is not 130'
trap 'rm -rf "$work"' EXIT
holds "$work/interrupted.json" '"name":"cpu:0"' '"name":"conv'

# ---- profile ----

run 0 profile "${small[@]}" --steps 4 --warmup 2 --rows 3 --trace "$work/profile.json"
prints '^lenet on synthetic, 2 devices, batch 16 in 2 shards: 4 steps of [0-9.]+ ms after 2, [0-9]+ images/s$'
prints '^peak of a device, f32, measured: [0-9.]+ GFLOP/s'
prints '^conv[a-z0-9_]+ +[0-9]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+%  f32\['
prints '^[0-9]+ others '
prints '^all operators '
for part in compute 'sums over own shards' 'exposed exchange' 'waiting for the slowest device' 'input wait' other; do
    prints "^$part +-?[0-9.]+ +-?[0-9.]+%( +-?[0-9.]+%){2}\$"
done
tail -n 1 "$work/stdout" | grep -qE '^Bound by .+ [0-9]+% of the .*time: .+\.$' || fail 'no last sentence'
# The parts are all of the time, but for their rounding.
sed -n '/^a step/,/^$/p' "$work/stdout" | awk 'NR > 1 && NF { sub(/%$/, "", $(NF - 2)); sum += $(NF - 2) }
    END { exit !(sum > 99.6 && sum < 100.4) }' || fail 'the parts do not add up'
# So many steps were recorded.
[[ $(grep -oF '"name":"push a step"' "$work/profile.json" | wc -l) -eq 4 ]] || fail 'not 4 steps'

# What is about evaluation is taken and does not matter.
run 0 profile "${small[@]}" --steps 1 --warmup 0 --rows 0 --target-accuracy 0.9 --early-stop 2 --devices 1
prints '^Bound by '

run 1 profile "${small[@]}" --steps 1 --trace "$work/missing/run.json"
complains "--trace $work/missing/run.json: cannot be written: No such file"
run 2 profile "${small[@]}" --steps 0
complains '--steps 0' 'from 1 to'
run 2 profile "${small[@]}" --plot
complains '--plot'
LOCKSTEP_ENGINE=sync run 2 profile "${small[@]}" --steps 1
complains 'LOCKSTEP_ENGINE'
