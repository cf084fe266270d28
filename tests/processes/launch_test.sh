#!/usr/bin/env bash
# lockstep launch gives the same bits as one process, marks each rank's output, and names a rank that ends or hangs.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

train=(-- train --data synthetic)

# --- refused options, which need no MPI ------------------------------------------------------------------------------

refused()
{
    local text=$1
    shift
    run 2 launch "$@"
    complains "$text"
}

refused '--processes 0: must be an integer from 1 to 4096' -n 0 "${train[@]}"
refused 'how many processes? -n N, --hosts with places, or --workers N' "${train[@]}"
refused "'-- train' and its options are missing" -n 2 train
refused "'-- train' and its options are missing" -n 2 --
refused "'verify' cannot be run by several processes; 'train' can, and mpirun starts programs" -n 2 -- verify
refused '--epochs many: must be an integer' -n 2 "${train[@]}" --epochs many
refused '--strategy mirrored trains in one process' -n 2 "${train[@]}" --strategy mirrored
refused "lockstep: unknown strategy 'bogus': one-device, " -n 2 "${train[@]}" --strategy bogus
refused "lockstep: unknown strategy 'bogus': one-device, " --workers 2 "${train[@]}" --strategy bogus
refused '--stall-timeout 1.5: must be 0, or at least 2' -n 2 --stall-timeout 1.5 "${train[@]}"
refused '--workers: is for --strategy parameter-server, not multi-worker' --workers 2 "${train[@]}" --strategy multi-worker
refused '--workers is for processes of --strategy parameter-server on this machine, -n' -n 2 --workers 2 "${train[@]}"
refused '--strategy parameter-server is started by --workers N' -n 2 "${train[@]}" --strategy parameter-server
refused '--max-staleness: is for --strategy parameter-server, not multi-worker' -n 2 "${train[@]}" --max-staleness 1
for option in "--keys $work/none.key" '--listen 127.0.0.1:0' '--join-timeout 60'; do
    read -ra words <<<"$option"
    refused "launch: train's ${words[0]}: is for processes that a cluster description brings together" -n 2 "${train[@]}" "${words[@]}"
done
for option in '--role chief' '--task-index 0' '--servers 2' '--coordinator 127.0.0.1:0'; do
    read -ra words <<<"$option"
    refused "launch: train's ${words[0]}: is set by launch for each process" --workers 2 "${train[@]}" "${words[@]}"
done
refused '--hosts a:0: has to be of the form a:2,b:2' --hosts a:0 "${train[@]}"
refused 'launch: --interfaces: must be with --hosts' -n 2 --interfaces eth0 "${train[@]}"
refused '--hosts localhost,: has to be of the form' --hosts localhost, "${train[@]}"
refused "there is no machine 'host.invalid'" --hosts localhost:2,host.invalid:2 "${train[@]}"

run 2 rank "${train[@]}"
complains "'rank' is what 'lockstep launch' starts"

status=0
arguments=(launch without mpirun)
PATH=/nowhere "$LOCKSTEP" launch --hosts localhost:2 "${train[@]}" >"$work/stdout" 2>"$work/stderr" </dev/null ||
    status=$?
[[ $status -eq 1 ]] || fail "exit status is not 1"
complains 'there is no mpirun' openmpi-bin

# begin_long ARGUMENT…: starts a training without end in the background.
begin_long()
{
    begin_launch "$@" "${train[@]}" --limit-train 256 --limit-val 0 --batch-size 64 --epochs 1000000 --shards 8 \
        --devices cpu:0 --workers 1 --base-lr 0.01 --seed "$mark"
}

# launch_long ARGUMENT…: the same, and waits until it trains.
launch_long()
{
    begin_long "$@"
    until_there '^\[0\] epoch *3/' "$work/stderr"
}

rank_process()
{
    process_of_rank "$1" 'lockstep train'
}

# --- the same bits ---------------------------------------------------------------------------------------------------

small=("${train[@]}" --limit-train 200 --limit-val 60 --batch-size 64 --epochs 2 --shards 8 --workers 1)
run 0 "${small[@]:1}" --devices 1 --json --seed "$mark"
wanted=$(grep -o '"digest":"[0-9a-f]*"' "$work/stdout")
[[ -n $wanted ]] || fail "no digest"
for n in 1 2 4; do
    launch 0 -n $n --log-dir "$work/logs" "${small[@]}" --devices cpu:0 --json
    prints "$wanted"
    [[ $(grep -c . "$work/stdout") -eq 3 ]] || fail "stdout is not that of one rank" # two epochs, done
    if grep -v '^{.*}$' "$work/stdout"; then
        fail "not JSON alone"
    fi
    if grep -v '^\[[0-3]\] ' "$work/stderr"; then
        fail "a line without a rank's number"
    fi
    says '[0] epoch 2/2'
done
holds "$work/logs/rank-0.log" 'epoch 2/2'
[[ -e $work/logs/rank-3.log ]] || fail "no log of rank 3"
mkdir "$work/full"
ln -s /dev/full "$work/full/rank-0.log"
launch 1 -n 2 --log-dir "$work/full" "${small[@]}" --devices cpu:0
says 'lockstep: --log-dir: the log of [0] cannot be written: No space left on device'
[[ $(grep -c 'cannot be written' "$work/stderr") -eq 1 ]] || fail 'not said once'

# Ranks of one machine use shared memory: nobody can reach them, and nothing of them has a name.
launch_long -n 2
for id in "$process" $(pgrep -f -- "^[^ ]*lockstep .*--seed $mark"); do
    if readlink "/proc/$id/fd/"* | grep socket; then
        fail "process $id has a socket"
    fi
done
kill -INT "$process"
ended 130 .

# --- a rank that ends ------------------------------------------------------------------------------------------------

launch_long -n 3
[[ $(pgrep -cf -- "lockstep train .*--seed $mark") -eq 3 ]] || fail "not three ranks in the list of processes"
began=$(now)
kill -KILL "$(rank_process 1)"
ended 1 '^rank 1 on [^ ]+ killed by signal 9, step [1-9][0-9]*, in [a-z]'
echo "a killed rank was named, and all was over, after $(($(now) - began)) ms"

launch_long -n 2 --stall-timeout 2
began=$(now)
kill -STOP "$(rank_process 0)"
ended 1 '^rank 0 on [^ ]+: no progress for [0-9]+ s, step [1-9][0-9]*, in [a-z]'
echo "a stopped rank was named after $(($(now) - began)) ms, of a stall timeout of 2 s"

# A stopped supervisor is silent.
launch_long -n 2 --stall-timeout 2
kill -STOP "$(pgrep -f -- "^[^ ]*lockstep rank .*--seed $mark" | head -n 1)"
ended 1 '^rank [01] on [^ ]+: no progress for [0-9]+ s, and no word from its supervisor \(lockstep rank\), step [0-9]'

# So is one that is stopped before it has said a word.
supervisor()
{
    pgrep -f -P "$process" -- "^[^ ]*lockstep rank .*--seed $mark" | head -n 1 | grep .
}
for _ in 1 2; do
    begin_long -n 2 --stall-timeout 2
    until first=$(supervisor); do
        kill -0 "$process" || fail "the launcher has ended"
    done
    kill -STOP "$first"
    ended 1 '^rank [01]( on [^ ]+)?: no progress for [0-9]+ s, and no word from its supervisor'
done

# An error in every rank, then one in a single rank.
launch 2 -n 2 -- train --model none-such
rank=$(tail -n 1 "$work/stderr" | sed -nE 's/^rank ([01]) on [^ ]+ exited with status 2, step 0, in start$/\1/p')
[[ -n $rank ]] || fail "the last line names no rank"
says "[$rank] lockstep: unknown model 'none-such'" # the other rank may have been ended before it printed this

launch_long -n 2
kill -TERM "$(rank_process 1)" # one rank is interrupted: all end at the same step
ended 130 '^\[[01]\] lockstep: training: interrupted in epoch'

# --- interrupts, and the end of the launcher ------------------------------------------------------------------------

launch_long -n 2
kill -INT "$process"
ended 130 '^\[[01]\] lockstep: training: interrupted in epoch'
[[ $(grep -c 'a second interrupt ends at once' "$work/stderr") -eq 1 ]] || fail "not said once"
[[ $(grep -c 'interrupted in epoch' "$work/stderr") -eq 2 ]] || fail "not both ranks ended in good order"
[[ $(sed -n 's/.*interrupted in epoch//p' "$work/stderr" | sort -u | wc -l) -eq 1 ]] || fail "not at the same step"

launch_long -n 2
kill -STOP "$(rank_process 0)"
kill -INT "$process"
until_there 'a second interrupt ends at once' "$work/stderr"
interrupt_again
ended 130 .

# Variables of another job name no files that are removed.
mkdir -p "$work/other/inner"
touch "$work/other/vader_segment.host.$(id -u).abcd12.0"
LOCKSTEP_MEMORY=$work/other OMPI_MCA_btl_vader_backing_directory=$work/other PMIX_NAMESPACE=$((0xabcd12)) \
    OMPI_COMM_WORLD_LOCAL_RANK=0 launch_long -n 2
kill -KILL "$process"
ended 137 .
[[ -d $work/other/inner ]] || fail 'it removed the folder of another job'
[[ -e $work/other/vader_segment.host.$(id -u).abcd12.0 ]] || fail 'it removed the shared memory of another job'

# A shell that becomes the launcher leaves it its own children, which go on.
arguments=(launch in place of a shell)
bash -c 'sleep 120 & echo $! >"$0"; exec "$@"' "$work/child" "$LOCKSTEP" launch -n 2 -- train --model none-such \
    --seed "$mark" >"$work/stdout" 2>"$work/stderr" </dev/null || true
none_left
kill "$(<"$work/child")" || fail "the child of the shell was ended"

# If a rank's supervisor ends, the rank ends with it, and the rank is named.
for name in KILL TERM; do
    launch_long -n 3
    began=$(now)
    kill -s $name "$(process_of_rank 1 'lockstep rank')"
    ended 1 "^rank 1 on [^ ]+: its supervisor \(lockstep rank\) was killed by signal $(kill -l $name), step [0-9]+, in [a-z]"
    echo "a rank whose supervisor was killed was named, and all was over, after $(($(now) - began)) ms"
done

# --- mpirun, which starts the ranks of --hosts -----------------------------------------------------------------------

(needs_mpi) || exit 0 # the rest has passed
needs_mpi

export OMPI_MCA_btl_vader_backing_directory=$work/memory OMPI_MCA_orte_tmpdir_base=$work/temporary
mkdir "$work/memory" "$work/temporary"
launch 0 --hosts localhost:2 "${small[@]}" --devices cpu:0 --json --strategy multi-worker
prints "$wanted"
launch 0 --elastic --min-ranks 2 --hosts localhost:1,localhost:1 "${small[@]}" --devices cpu:0
says ' 2 processes' # the host is listed twice

# listens PROCESS: prints its sockets that wait for connections.
listens()
{
    local inodes
    inodes=$(readlink "/proc/$1/fd/"* | sed -n 's/^socket:\[\([0-9]*\)\]$/\1/p' | xargs)
    awk -v inodes=" $inodes " '$4 == "0A" && index(inodes, " " $10 " ")' "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}

# On this machine alone, ranks exchange messages through shared memory and listen nowhere; mpirun listens.
launch_long --hosts localhost:3
for i in 0 1 2; do
    for command in rank train; do
        id=$(process_of_rank "$i" "lockstep $command")
        [[ -n $id && -z $(listens "$id") ]] || fail "rank $i: 'lockstep $command' listens: $(listens "$id")"
    done
done
[[ -n $(listens "$(pgrep -f -P "$process" mpirun)") ]] || fail "mpirun listens nowhere, so this does not look well"
kill -KILL "$(rank_process 1)"
ended 1 '^rank 1 on [^ ]+ killed by signal 9, step [1-9][0-9]*, in [a-z]'

launch_long --hosts localhost:2
kill -INT "$process"
ended 130 '^\[[01]\] lockstep: training: interrupted in epoch'

for name in KILL TERM; do
    launch_long --hosts localhost:2
    kill -s $name "$(pgrep -f -P "$process" mpirun)"
    ended 1 '^lockstep: mpirun '
    launch_long --hosts localhost:3
    kill -s $name "$(process_of_rank 1 'lockstep rank')"
    ended 1 "^rank 1 on [^ ]+: its supervisor \(lockstep rank\) was killed by signal $(kill -l $name), step [0-9]+, in [a-z]"
done

# A stopped mpirun passes nothing on.
launch_long --hosts localhost:2 --stall-timeout 6 # mpirun takes a while to start
kill -STOP "$(pgrep -f -P "$process" mpirun)"
ended 1 '^rank [01] on [^ ]+: no progress for [0-9]+ s'
left=$(find "$work/memory" "$work/temporary" -mindepth 1)
[[ -z $left ]] || fail "left behind: $left"
