#!/usr/bin/env bash
# The scaling report of a run on several devices, and `lockstep report`: only its structure, because times vary.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

small=(train --model lenet --data synthetic --limit-train 92 --limit-val 0 --batch-size 8 --epochs 1 --shards 2 --workers 0)

# has_json FILE EXPRESSION…: Python expressions that hold for `r`, the object in the file.
has_json()
{
    local file=$1 expression
    shift
    command -v python3 >/dev/null || return 0
    for expression in "$@"; do
        python3 - "$file" "$expression" <<'END' || fail "$file: not $expression"
import json, sys
r = json.loads(open(sys.argv[1]).read().splitlines()[-1])
r = r.get("scaling", r)
sys.exit(not eval(sys.argv[2]))
END
    done
}

parts=(compute 'exposed exchange' 'waiting for the slowest' 'input wait' other all)

# has_parts STEPS
has_parts()
{
    local part
    for part in "${parts[@]}"; do
        line "^$part +-?[0-9.]+ +-?[0-9.]+%"
    done
    line "^all +[0-9.]+ +100.0%  $1 steps"
}

# has_exchange WHAT: latency, bandwidth, amounts per step and a prediction; or a line that they were not measured.
has_exchange()
{
    local devices
    line "^exchange: latency .* GB/s; a step's $1 to each device|^exchange: latency and bandwidth not measured"
    ! grep -q 'not measured' "$work/stdout" || return 0
    for devices in 2 4 8 16 32 64 128 256 512 1024; do
        line "^$devices +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+%"
    done
}

# ---- one process ----

run 0 "${small[@]}" --devices 1 --log-dir "$work/one"
! grep -q 'speed-up' "$work/stderr" || fail 'one device has a speed-up'
run 0 "${small[@]}" --devices 2xcpu:0 --log-dir "$work/two"
says 'speed-up '
! grep -q 'a step of ' "$work/stderr" || fail 'details without --verbose'
rm -r "$work/two"
run 0 "${small[@]}" --devices 2xcpu:0 --log-dir "$work/two" --verbose
tail -n 1 "$work/stderr" | grep -q '^digest ' || fail 'the digest is not last'
says 'a step of '
says ' waiting for the slowest (cpu:0)'
has_json "$work/two/scaling.json" 'r["devices"] == 2' 'r["steps"] == 7' 'r["strategy"] == "mirrored"' \
    'r["speedup_measured"] is False' 'r["compute"] > 0' 'r["one_device_images_per_second"] is None' \
    'abs(sum(r[p] for p in ("compute", "exchange", "slowest", "input", "other")) - r["step_seconds"]) < 1e-9'

run 0 report "$work/one"
silent_stderr
line '^lenet on synthetic, 1 cpu device, strategy one-device, batch 8 in 2 shards, f32$'
has_parts 7
run 0 report "$work/two"
silent_stderr
line '^lenet on synthetic, 2 cpu devices, strategy mirrored over inproc, batch 8 in 2 shards, f32$'
line '^speed-up ([0-9.]+ on 2 devices, efficiency [0-9]+%, against one as estimated|unclear: )'
has_parts 7
has_exchange 'gradients: 0.516 MB, 2 messages'
if ! grep -q 'not measured' "$work/stdout"; then
    line '^2 .*% +[0-9.]+ +[0-9.]+ +[0-9.]+%$'
    line '^4 .*%( +-){3}$' # of two shards
fi
run 0 report "$work/two/scaling.json"
run 0 report <(cat "$work/two/scaling.json")

run 0 report "$work/one" "$work/two"
line '^[0-9]+ images/s, on one device [0-9]+$'
line 'against a measured run on one$|^speed-up unclear: '
run 2 report "$work/two" "$work/one"
complains 'the first one is on 2 devices, and has to be on one; --html FILE compares any runs'

# A run on one device in the same folder is found.
run 0 "${small[@]}" --devices 2xcpu:0 --log-dir "$work/one" --json
prints '"speedup_measured":true'
has_json "$work/stdout" 'r["one_device_images_per_second"] > 0' 'r["devices"] == 2'
has_json "$work/one/scaling-2.json" 'r["speedup_measured"]'
holds "$work/one/epochs-2.jsonl" '"scaling":{"model":"lenet"'

run 0 "${small[@]}" --batch-size 4 --devices 2xcpu:0 --log-dir "$work/other"
run 2 report "$work/one/scaling.json" "$work/other"
complains 'the runs cannot be compared: the batch size is 8 and 4'

# Later runs that were interrupted have no report.
mkdir "$work/begun"
head -n 1 "$work/two/epochs.jsonl" >"$work/begun/epochs.jsonl"
run 1 report "$work/begun"
complains "$work/begun/epochs.jsonl: this run has not finished, so there is no scaling report of it"
cp "$work/two/scaling.json" "$work/begun"
cp "$work/begun/epochs.jsonl" "$work/begun/epochs-2.jsonl"
run 0 report "$work/begun"
says "$work/begun/epochs-2.jsonl: this run has no scaling report; the report is of run 1"
line '^all '

# The changes of processes are those of the run that is reported.
world='{"event":"world","step":3,"processes_before":2,"processes":1,"reason":"'
echo "${world}of the first\"}" >>"$work/begun/epochs.jsonl"
echo "${world}of the second\"}" >>"$work/begun/epochs-2.jsonl"
run 0 report "$work/begun"
line '^from 2 to 1 process after step 3: of the first$'
! grep -q 'of the second' "$work/stdout" || fail 'changes of another run'
cp "$work/begun/scaling.json" "$work/begun/scaling-2.json"
run 0 report "$work/begun/scaling-2.json"
line '^from 2 to 1 process after step 3: of the second$'
cd "$work/begun"
run 0 report scaling.json
line '^from 2 to 1 process after step 3: of the first$'

# Names of any length, cut between characters; those that begin alike differ.
cd "$work"
name=axxxxx$(printf 'é%.0s' {1..40})
printf 'flatten\ndense classes\n' | tee "$name.lk" >"${name}2.lk"
for file in "$name" "${name}2"; do
    run 0 "${small[@]}" --model "./$file.lk" --devices 1 --log-dir "names/$file"
    run 0 report "names/$file"
    silent_stderr
    line '^\./axxxxxé+…[0-9a-f]{16} on synthetic, '
    head -n 1 "$work/stdout" >>names/first
done
[[ $(sort -u names/first | wc -l) -eq 2 ]] || fail 'two long names are one'

# Texts of a file do not control the terminal.
sed -E 's/"(kind|strategy|transport|dtype)":"/&\\u001b[31m/g' two/scaling.json >hostile.json
run 0 report hostile.json
! grep -q $'\x1b' "$work/stdout" || fail 'a control sequence is printed'

# ---- what was not measured ----

# A worker that came late did no step that counts; nor did any in a short run.
one='{"name":"worker 0 on a","devices":1,"steps":7,"samples":56,"step_seconds":0.01,"compute":0.005,"exchange":0.001,'
one+='"slowest":0.001,"input":0.002,"other":0.001,"computing":0.005}'
late=$(sed -E 's/worker 0 on a/worker 1 on b/; s/("(steps|samples)":)[0-9]+/\10/g; s/:0\.[0-9]+/:null/g' <<<"$one")
sed -E 's/"servers":0/"servers":1/; s/"step_samples":null/"step_samples":8/
    s/"workers":0,"worker":\[\]/"workers":2,"worker":['"$one,$late"']/' two/scaling.json >late.json
run 0 report late.json
line '^ +7 +[0-9]+ +([0-9.]+|-) +10\.000 +5\.000 +1\.000 +1\.000 +2\.000 +1\.000  worker 0 on a$'
line '^ +0( +-){8}  worker 1 on b$'
sed -E 's/"steps":7/"steps":0/' late.json >none.json
run 0 report none.json
line "^a worker's step was not measured"
! grep -qE 'nan|worker 0' "$work/stdout" || fail 'something that was not measured is printed'

run 0 "${small[@]}" --devices 2xcpu:0 --limit-train 16 --log-dir "$work/short" --verbose
says "a step's time was not measured"
says 'speed-up not measured'
run 0 report "$work/short"
line "^a step's time was not measured"
run 0 "${small[@]}" --devices 2xcpu:0 --trace "$work/run.json" --log-dir "$work/traced" --verbose
says "a step's time was not measured"
holds "$work/run.json" '"cat":"exchange"'
run 0 "${small[@]}" --devices 2xcpu:0 --strategy central-storage --log-dir "$work/central" --verbose
says ' waiting for the slowest (cpu:0)'
has_json "$work/central/scaling.json" 'r["compute"] > 0' 'r["storage"] == "cpu:0"' 'r["storing_devices"] == 0' \
    'r["messages"] == 3' 'r["latency"] is None or r["whole_bytes"] == r["sliced_bytes"] > 0'
run 0 report "$work/central"
line '^lenet on synthetic, 2 cpu devices, strategy central-storage, variables on cpu:0, batch 8 in 2 shards, f32$'
has_exchange 'gradients and variables: 1.033 MB, 3 messages'
run 0 "${small[@]}" --devices 2xcpu:0 --strategy central-storage --storage cpu:1 --log-dir "$work/beside"
has_json "$work/beside/scaling.json" 'r["storage"] == "cpu:1"' 'r["storing_devices"] == 1' 'r["messages"] == 2' \
    'r["sliced_bytes"] == 0'
run 0 report "$work/beside"
has_exchange 'gradients and variables: 1.033 MB, 2 messages'

# ---- errors ----

run 2 report
complains 'name one that'
run 2 report a b c
complains "unexpected argument 'c'"
run 1 report "$work/missing"
complains "$work/missing: there is no such file or folder"
mkdir "$work/empty"
run 1 report "$work/empty"
complains "$work/empty: holds no scaling report" "\`lockstep runs $work/empty\` lists"
printf '' >"$work/nothing.json"
run 1 report "$work/nothing.json"
complains "$work/nothing.json: is empty, and no scaling report"
head -c 100 "$work/two/scaling.json" >"$work/cut.json"
run 1 report "$work/cut.json"
complains "$work/cut.json: line 1, column"
sed 's/"steps":7/"steps":"7"/' "$work/two/scaling.json" >"$work/wrong.json"
run 1 report "$work/wrong.json"
complains "$work/wrong.json: steps: must be a whole number from 0"

# ---- two processes ----

(needs_mpi) || exit 0 # the rest has passed
needs_mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl=self,vader,tcp
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
arguments=("[2 processes]" "${small[@]}")
status=0
timeout -k 5 200 mpirun --quiet -n 2 "$LOCKSTEP" "${small[@]}" --strategy multi-worker --devices cpu:0 --json \
    --log-dir "$work/processes" --verbose >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
[[ $status -eq 0 ]] || fail 'exit status is not 0'
[[ $(grep -c '^speed-up' "$work/stderr") -eq 1 ]] || fail 'not one rank alone prints'
grep -qE 'waiting for the slowest \(cpu:0 of rank [01] on .+\)' "$work/stderr" || fail 'the slowest is not named'
has_json "$work/stdout" 'r["devices"] == r["processes"] == 2' 'r["steps"] == 7' \
    'r["latency"] is None or r["messages"] == 3' 'r["latency"] is None or r["whole_bytes"] == 0 < r["message_share"] < 1' \
    'abs(sum(r[p] for p in ("compute", "exchange", "slowest", "input", "other")) - r["step_seconds"]) < 1e-9'
run 0 report "$work/processes"
line '^lenet on synthetic, 2 cpu devices, strategy multi-worker over .*, 2 processes, batch 8 in 2 shards, f32$'
has_parts 7
run 0 report "$work/one/scaling.json" "$work/processes"
line 'against a measured run on one$|^speed-up unclear: '
