#!/usr/bin/env bash
# Processes that nobody starts together, and that find each other by a description of the cluster: the bits of one process,
# processes that do not come, or end, or do not belong there, and keys.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

if ! "$LOCKSTEP" doctor 2>/dev/null | grep -E '^  ZeroMQ +[0-9]' >/dev/null; then
    echo "SKIP: this build has no ZeroMQ"
    exit 77
fi
unset TF_CONFIG "${!OMPI_COMM_WORLD@}" "${!PMI@}"

processes=()
end_processes()
{
    [[ ${#processes[@]} -eq 0 ]] || kill -KILL "${processes[@]}" 2>/dev/null || true
    wait
    processes=()
}
trap 'end_processes; rm -rf "$work"' EXIT

# describe N: sets $cluster to a description of a chief and N - 1 workers, at free ports of this machine, and $ports.
describe()
{
    read -ra ports < <(python3 - "$1" <<'END'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
END
    )
    local workers
    workers=$(printf ', "127.0.0.1:%s"' "${ports[@]:1}")
    cluster="{\"cluster\": {\"chief\": [\"127.0.0.1:${ports[0]}\"], \"worker\": [${workers:2}]}"
}

# start NAME TASK INDEX ARGUMENT…: trains in the background as $process, with its output in NAME.out and NAME.err.
start()
{
    local name=$1 task="\"task\": {\"type\": \"$2\", \"index\": $3}}"
    shift 3
    TF_CONFIG="$cluster, $task" "$LOCKSTEP" train --strategy multi-worker --devices cpu:0 "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null &
    process=$!
    processes+=("$process")
}

show()
{
    tail -n 15 "$work"/*.err
    fail "$1"
}

# ends PROCESS STATUS: waits for the process, which must end with this status.
ends()
{
    local status=0
    wait "$1" || status=$?
    [[ $status -eq $2 ]] || show "process $1 ended with status $status, and not $2"
}

# all_end STATUS: waits for all processes.
all_end()
{
    local process
    for process in "${processes[@]}"; do
        ends "$process" "$1"
    done
    processes=()
}

# has NAME TEXT: the process's stderr contains the text.
has()
{
    grep -qF -- "$2" "$work/$1.err" || show "stderr of $1 lacks '$2'"
}

# waits_for NAME TEXT: waits until it does.
waits_for()
{
    local tries=0
    until grep -qF -- "$2" "$work/$1.err"; do
        tries=$((tries + 1))
        [[ $tries -lt 2400 ]] || show "stderr of $1 does not get '$2'"
        sleep 0.05
    done
}

cat >"$work/small.lk" <<'END'
conv1: conv2d 4 kernel=3 stride=2
batch_norm
relu
flatten
dropout 0.2
dense classes
END
small=(--model "$work/small.lk" --data synthetic --batch-size 64 --shards 8 --workers 0)
whole=("${small[@]}" --limit-train 300 --limit-val 50 --epochs 2 --optimizer adam --clip-norm 1)
endless=("${small[@]}" --limit-train 512 --limit-val 0 --epochs 100000)

# --- the bits of one process -----------------------------------------------------------------------------------------

run 0 train "${whole[@]}" --devices 1
wanted=$(grep '^digest ' "$work/stderr")
for n in 2 3; do
    describe "$n"
    for ((i = n - 2; i >= 0; i--)); do
        start "worker$i" worker "$i" "${whole[@]}"
    done
    start chief chief 0 "${whole[@]}"
    all_end 0
    has chief "strategy multi-worker, exchange by TCP, $n processes"
    grep -qxF "$wanted" "$work/chief.err" || show "not one process's $wanted"
    [[ ! -s $work/worker0.err ]] || show 'a worker prints what the chief prints'
done
# Long messages, slices of the optimizer's state, and one process that listens to nobody for a while.
describe 2
big=(--model lenet --data synthetic --limit-train 128 --limit-val 0 --batch-size 64 --shards 4 --epochs 1 --workers 0)
run 0 train "${big[@]}" --devices 1
wanted=$(grep '^digest ' "$work/stderr")
start worker0 worker 0 "${big[@]}" --optimizer-state sharded
sleep 0.3
start chief chief 0 "${big[@]}" --optimizer-state sharded
all_end 0
grep -qxF "$wanted" "$work/chief.err" || show "not one process's $wanted"

# --- processes that do not come, or end ------------------------------------------------------------------------------

describe 2
start chief chief 0 "${small[@]}" --join-timeout 1
all_end 1
has chief "lockstep: worker 0 at 127.0.0.1:${ports[1]} has not come within 1 s (--join-timeout)"

# One that is started again before all are there is taken; the others wait for it.
describe 3
start chief chief 0 "${whole[@]}"
start early worker 0 "${whole[@]}"
sleep 0.5
kill -KILL "$process"
wait "$process" 2>/dev/null || true
processes=("${processes[0]}")
start worker0 worker 0 "${whole[@]}"
start worker1 worker 1 "${whole[@]}"
all_end 0

for signal in KILL TERM; do
    describe 3
    start chief chief 0 "${endless[@]}"
    start worker0 worker 0 "${endless[@]}"
    start worker1 worker 1 "${endless[@]}"
    waits_for chief 'epoch 10/'
    kill "-$signal" "$process"
    if [[ $signal == KILL ]]; then
        ends "${processes[0]}" 1
        ends "${processes[1]}" 1
        has chief "worker 1 at 127.0.0.1:${ports[2]} has ended, or its machine cannot be reached"
        ends "$process" 137
        processes=()
    else
        all_end 130 # at one step
    fi
done

# --- processes that do not belong there ------------------------------------------------------------------------------

describe 2
start chief chief 0 "${small[@]}" --base-lr 0.1
start worker0 worker 0 "${small[@]}" --base-lr 0.2
all_end 2
has chief ' has another --base-lr: 0.2, where rank 0 has 0.1'

describe 2
start chief chief 0 "${whole[@]}"
first=$cluster
cluster="{\"cluster\": {\"chief\": [\"127.0.0.1:${ports[0]}\"], \"worker\": [\"127.0.0.1:${ports[1]}\", \"127.0.0.1:9\"]}"
start other worker 0 "${whole[@]}"
all_end 1
has chief "worker 0 at 127.0.0.1:${ports[1]} was started with another description of the cluster"
has other "chief 0 at 127.0.0.1:${ports[0]} was started with another description of the cluster"

# Bytes of other programs are dropped, and a port is taken by one process.
cluster=$first
start worker0 worker 0 "${whole[@]}"
for _ in {1..100}; do
    ! { exec 3<>"/dev/tcp/127.0.0.1/${ports[1]}"; } 2>/dev/null || break
    sleep 0.05
done
printf 'GET / HTTP/1.0\r\n\r\n' >&3
exec 3>&-
start again worker 0 "${whole[@]}"
ends "$process" 1
has again "127.0.0.1:${ports[1]}: cannot listen there: another process has taken the port"
processes=("${processes[0]}")
start chief chief 0 "${whole[@]}"
all_end 0

# --- the description ---------------------------------------------------------------------------------------------------

# refuses TEXT TASK INDEX ARGUMENT…: ends at once with one line.
refuses()
{
    local text=$1
    shift
    start refused "$@"
    all_end "$expected"
    [[ $(<"$work/refused.err") == "lockstep: "*"$text"* && $(wc -l <"$work/refused.err") -eq 1 ]] || show "not just '$text'"
}

expected=2
cluster='{"cluster": {"worker": ["127.0.0.1:0", "127.0.0.1:1"], "ps": ["127.0.0.1:2"]}'
refuses 'TF_CONFIG: worker 0 at 127.0.0.1:0: the others have to know the port, so it cannot be 0' worker 1 "${small[@]}"
refuses 'TF_CONFIG: this process is ps 0, and strategy multi-worker has no parameter servers' ps 0 "${small[@]}"
cluster='{"cluster": {"worker": ["192.0.2.1:7000", "127.0.0.1:7001"]}'
refuses '192.0.2.1:7000 is reachable from other machines: that takes --keys' worker 1 "${small[@]}"
describe 2
refuses '--listen here: must be host:port' chief 0 "${small[@]}" --listen here
expected=1
refuses 'no.key' chief 0 "${small[@]}" --keys "$work/no.key"

# --- keys --------------------------------------------------------------------------------------------------------------

run 0 keys "$work/keys" chief worker-0 stranger
describe 2
start worker0 worker 0 "${whole[@]}" --keys "$work/keys/worker-0.key"
start chief chief 0 "${whole[@]}" --keys "$work/keys/chief.key"
all_end 0
# A process with another's key, one without, and one whose key is not listed.
start worker0 worker 0 "${whole[@]}" --keys "$work/keys/stranger.key" --join-timeout 3
start chief chief 0 "${whole[@]}" --keys "$work/keys/chief.key" --join-timeout 3
all_end 1
has chief 'worker 0'
start worker0 worker 0 "${whole[@]}" --join-timeout 5
start chief chief 0 "${whole[@]}" --keys "$work/keys/chief.key" --join-timeout 5
all_end 1
cat "$work/chief.err" >>"$work/worker0.err" # the first one to notice says so
has worker0 ': the two do not agree on keys'
run 0 keys "$work/others" chief
start chief chief 0 "${whole[@]}" --keys "$work/others/chief.key"
all_end 1
has chief 'lists no key under the name worker-0'
