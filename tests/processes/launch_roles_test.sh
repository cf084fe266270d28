#!/usr/bin/env bash
# lockstep launch --workers: the processes of a parameter-server training, some of which may end early.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

if ! "$LOCKSTEP" doctor | grep -iE 'zeromq +(yes|[0-9])' >/dev/null; then
    echo "SKIP: this build has no ZeroMQ"
    exit 77
fi

train=(-- train --model lenet --data synthetic --limit-val 0 --batch-size 32 --base-lr 0.01 --workers 1)

# begin_roles ARGUMENT…: starts a training in the background and waits until it trains.
begin_roles()
{
    begin_launch "$@" --seed "$mark"
    until_there '^\[chief\] epoch *3/' "$work/stderr"
}

# role_process ROLE [INDEX]: the process with this role and index.
role_process()
{
    pgrep -f -- "lockstep train .*--seed $mark .*--role $1 --task-index ${2:-0} "
}

# The training finishes, although not all of its processes reached the end.
finished()
{
    ended 0 .
    says '[chief] done: '
}

# --- the same bits as one process ------------------------------------------------------------------------------------

settings=(--limit-train 200 --epochs 2 --shards 4)
run 0 "${train[@]:1}" "${settings[@]}" --devices 1 --json --seed "$mark"
wanted=$(grep -o '"digest":"[0-9a-f]*"' "$work/stdout")
run 2 launch -n 2 --servers 3 "${train[@]}"
complains "launch: --servers 3: must be with --workers"
launch 0 --workers 2 --servers 2 --log-dir "$work/logs" "${train[@]}" "${settings[@]}" --max-staleness 0 --devices 1 --json
prints "$wanted"
if grep -v '^{.*}$' "$work/stdout"; then
    fail "not JSON alone"
fi
if grep -vE '^\[(chief|ps-[01]|worker-[01])\] ' "$work/stderr"; then
    fail "a line without a role"
fi
# One worker may do all the work before the other one joins.
grep -qF 'steps with' "$work/logs/worker-0.log" "$work/logs/worker-1.log" || fail "no worker says what it did"
[[ -e $work/logs/chief.log && -e $work/logs/ps-1.log ]] || fail "logs are missing"
run 0 launch --workers 1 "${train[@]}" "${settings[@]}" --devices 1 --seed "$mark" -- # options of roles follow

# Workers on one machine take different GPUs.
plugin=$(dirname "$LOCKSTEP")/tests/liblockstep_cuda_emulated.so
if [[ -f $plugin ]]; then
    export LOCKSTEP_CUDA_PLUGIN=$plugin LOCKSTEP_EMULATED_GPUS=2 LOCKSTEP_EMULATED_CONTEXTS=1
    settings=(--limit-train 64 --epochs 1 --shards 2 --devices cuda)
    run 0 "${train[@]:1}" "${settings[@]}" --json --seed "$mark"
    wanted=$(grep -o '"digest":"[0-9a-f]*"' "$work/stdout")
    launch 0 --workers 2 "${train[@]}" "${settings[@]}" --max-staleness 0 --json
    prints "$wanted"
    # The training is long enough that both workers join.
    begin_launch --workers 2 "${train[@]}" "${settings[@]}" --epochs 1000000 --seed "$mark"
    for worker in 0 1; do
        until_there "^\[worker-$worker\] note: worker [01] of the chief" "$work/stderr"
    done
    kill -INT "$process"
    ended 130 .
    used=$(sed -nE 's/^\[worker-[01]\] emulated CUDA: process [0-9]+ has contexts on GPUs //p' "$work/stderr" | sort | xargs)
    [[ $used == '0 1' ]] || fail "workers have GPUs $used"
    unset LOCKSTEP_CUDA_PLUGIN LOCKSTEP_EMULATED_GPUS LOCKSTEP_EMULATED_CONTEXTS
fi

# --- exit statuses ---------------------------------------------------------------------------------------------------

# A limit on open files is no fault of the command line, so the status is 1. It is found before a process is started: the
# chief needs 21 files, 5 for the server, 2 for each worker.
for limit in 7 14 30; do
    (
        ulimit -n "$limit"
        launch 1 --workers 8 "${train[@]}" --limit-train 64
    )
    complains "launch: a process: has to open 42 more files, and " " of the $limit that a process may open are free"
done

# A process that is started by itself finds it too.
for role in chief ps worker; do
    (
        ulimit -n 14
        run 1 train --strategy parameter-server --role "$role" --coordinator 127.0.0.1:5500 --devices 1 --data synthetic
    )
    grep -qE '^lockstep: strategy parameter-server: has to open [0-9]+ more files, and [0-9]+ of the 14 ' "$work/stderr" ||
        fail "no line says how many files may be open"
done

# If the chief refuses the settings, it is named, although others are ended while they start.
for _ in {1..5}; do
    launch 2 --workers 24 "${train[@]}" --resume
    says '[chief] lockstep: --resume: must be with --checkpoint-dir'
    tail -n 1 "$work/stderr" | grep -qE '^chief on [^ ]+ exited with status 2, ' || fail "the chief is not named"
done

# --- processes that end early ----------------------------------------------------------------------------------------

many=(--limit-train 1024 --epochs 60)
short=(--peer-timeout 2 --devices cpu:0)

begin_roles --workers 2 "${train[@]}" "${many[@]}" "${short[@]}"
kill -KILL "$(role_process worker | head -n 1)" # this worker may not have trained yet
finished
grep -qE '^worker-[01] on [^ ]+ killed by signal 9, step [0-9]+, in [a-z]' "$work/stderr" || fail "the worker is not named"

# The chief decides when training ends, also if a worker is asked to leave.
begin_roles --workers 2 --max-restarts 1 "${train[@]}" "${many[@]}" "${short[@]}" --checkpoint-dir "$work/kept"
kill -TERM "$(role_process worker | head -n 1)"
finished
! grep -qF 'starting all ranks again' "$work/stderr" || fail 'it starts again'

begin_roles --workers 1 --servers 2 "${train[@]}" "${many[@]}" "${short[@]}" --snapshot-dir "$work/snapshots"
"$LOCKSTEP" launch --workers 1 "${train[@]}" "${short[@]}" --snapshot-dir "$work/snapshots" >"$work/second" 2>&1 </dev/null &&
    fail 'a second training uses the snapshots'
grep -q "a server of another training writes $work/snapshots/server-0.snapshot\$" "$work/second" ||
    fail "it does not say why: $(<"$work/second")"
kill -KILL "$(role_process ps 1)"
finished
[[ -z $(ls "$work/snapshots") ]] || fail "left behind: $(ls "$work/snapshots")"
grep -qE '^ps-1 on [^ ]+ killed by signal 9' "$work/stderr" || fail "the server is not named"
says '1 server restart,'

# A server waits for one that was killed and still holds the lock.
(
    flock 4
    touch "$work/is-locked"
    sleep 2
) 4>"$work/snapshots/server-0.snapshot.lock" &
until [[ -e $work/is-locked ]]; do
    sleep 0.05
done
launch 0 --workers 1 "${train[@]}" "${short[@]}" --limit-train 64 --epochs 1 --snapshot-dir "$work/snapshots"
wait

# A server that is asked to end, as by a program that frees memory, is started again too. Nothing of one that was killed
# while it wrote stays.
begin_roles --workers 1 "${train[@]}" "${many[@]}" "${short[@]}" --snapshot-dir "$work/snapshots" --snapshot-every 1000000
touch "$work/snapshots/server-0.snapshot.tmp"
kill -TERM "$(role_process ps)"
finished
[[ -z $(ls "$work/snapshots") ]] || fail "left behind: $(ls "$work/snapshots")"
grep -qE '^ps-0 on [^ ]+ exited with status 130' "$work/stderr" || fail "the server is not named"
says '1 server restart,'

# A server that cannot write its snapshot is not started again: it would end with the same error.
(
    ulimit -f 100
    launch 1 --workers 1 "${train[@]}" "${short[@]}" --limit-train 64 --snapshot-dir "$work/too-small"
)
[[ $(grep -c '^\[ps-0\] lockstep: .*/server-0\.snapshot\.tmp: cannot be written: File too large$' "$work/stderr") -eq 1 ]] ||
    fail "the server does not end once, with the reason"
tail -n 1 "$work/stderr" | grep -qE '^ps-0 on [^ ]+ exited with status 1, ' || fail "the server is not named last"

# If all processes are restarted from the last checkpoint, the bits are those of a training that was not disturbed.
again=(--limit-train 1024 --epochs 30 --shards 4)
run 0 "${train[@]:1}" "${again[@]}" --devices 1 --seed "$mark"
wanted=$(sed -n 's/^digest //p' "$work/stderr")
LOCKSTEP_CHECKPOINT_SLOW=3 begin_roles --workers 2 --servers 2 --max-restarts 2 "${train[@]}" "${again[@]}" "${short[@]}" --max-staleness 0 \
    --checkpoint-dir "$work/checkpoints"
kill -KILL "$(role_process chief)"
until_there 'restart 1 of at most 2' "$work/stderr"
until_there 'going on from' "$work/stderr"
until_true 'the restarted server' role_process ps 1
kill -KILL "$(role_process ps 1)"
until_there 'restart 2 of at most 2' "$work/stderr"
finished
says "[chief] digest $wanted"

long=(--limit-train 1024 --epochs 1000000)

begin_roles --workers 2 "${train[@]}" "${long[@]}" "${short[@]}"
kill -KILL "$(role_process ps)"
ended 1 '^ps-0 on [^ ]+ killed by signal 9'

begin_roles --workers 2 "${train[@]}" "${long[@]}" "${short[@]}"
kill -TERM "$(role_process ps)"
ended 130 '^ps-0 on [^ ]+ exited with status 130'

begin_roles --workers 1 "${train[@]}" "${long[@]}" "${short[@]}"
kill -TERM "$(role_process worker)"
ended 130 '^worker-0 on [^ ]+ exited with status 130'

begin_roles --workers 2 "${train[@]}" "${long[@]}" "${short[@]}"
kill -KILL "$(role_process chief)"
ended 1 '^chief on [^ ]+ killed by signal 9, step [1-9]'

begin_roles --workers 2 "${train[@]}" "${long[@]}" "${short[@]}"
kill -STOP "$(role_process chief)"
ended 1 '^chief on [^ ]+: no progress for [1-9][0-9]* s, step [1-9]'

begin_roles --workers 2 --stall-timeout 2 "${train[@]}" "${long[@]}" --peer-timeout 30 --devices cpu:0
kill -STOP "$(role_process ps)"
ended 1 '^ps-0 on [^ ]+: no progress for [0-9]+ s'

# If a supervisor ends, that is noticed like the end of its process.
begin_roles --workers 1 "${train[@]}" "${long[@]}" "${short[@]}"
kill -KILL "$(pgrep -f -- "^[^ ]*lockstep rank .*--seed $mark --role worker ")"
ended 1 '^worker-0 on [^ ]+: its supervisor \(lockstep rank\) was killed by signal 9'

# A stopped supervisor, whose process may go on, is ended after the stall timeout.
begin_roles --workers 2 --stall-timeout 5 "${train[@]}" "${many[@]}" "${short[@]}" --max-staleness 0
kill -STOP "$(pgrep -f -- "^[^ ]*lockstep rank .*--seed $mark --role worker " | head -n 1)"
finished
grep -qE 'the supervisor of worker-[01] has not been heard for [0-9]+ s, and is ended$' "$work/stderr" ||
    fail "the supervisor is not named"

begin_roles --workers 2 --stall-timeout 2 "${train[@]}" "${long[@]}" "${short[@]}"
kill -STOP "$(pgrep -f -- "^[^ ]*lockstep rank .*--seed $mark --role chief ")"
ended 1 '^chief on [^ ]+: its supervisor \(lockstep rank\) was killed by signal 9'
says 'lockstep: the supervisor of chief has not been heard for '

begin_roles --workers 1 "${train[@]}" "${long[@]}" "${short[@]}"
kill -KILL "$process"
ended 137 .

begin_roles --workers 2 "${train[@]}" "${long[@]}" "${short[@]}"
kill -INT "$process"
ended 130 '^\[.*'
says '[chief] lockstep: training: interrupted in epoch'
