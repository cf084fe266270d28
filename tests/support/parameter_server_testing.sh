# Helpers of the tests of asynchronous training: processes on the loopback interface, and their output. Source
# cli_testing.sh first.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests read these variables, and cli_testing.sh sets $work

if ! "$LOCKSTEP" doctor 2>/dev/null | grep -E '^  ZeroMQ +[0-9]' >/dev/null; then
    echo "SKIP: this build has no ZeroMQ"
    exit 77
fi

processes=()
end_processes()
{
    local process
    for process in "${processes[@]}"; do
        pkill -KILL -P "$process" || true
        kill -KILL "$process" 2>/dev/null || true
    done
    wait
    processes=()
}
trap 'end_processes; rm -rf "$work"' EXIT

cat >"$work/small.lk" <<'EOM'
conv1: conv2d 8 kernel=3 stride=2
batch_norm
relu
flatten
dense 80
relu
dropout 0.2
dense classes
EOM

# --- processes -------------------------------------------------------------------------------------------------------

# start NAME ARGUMENT…: runs lockstep train in the background as $process, with its output in NAME.out and NAME.err.
start()
{
    local name=$1
    shift
    : >"$work/$name.out"
    : >"$work/$name.err"
    timeout -k 5 800 "$LOCKSTEP" train --strategy parameter-server --peer-timeout 2 --join-timeout 100 "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null &
    process=$!
    processes+=("$process")
}

# signal NAME PROCESS: PROCESS is timeout; its child gets the signal.
signal()
{
    local child
    until child=$(pgrep -P "$2"); do
        kill -0 "$2" || show "there is no process to send $1 to"
        sleep 0.02
    done
    kill "-$1" "$child"
}

# chief ARGUMENT…: starts a chief, as $chief_process, with address $address.
chief()
{
    start chief --role chief "$@" --json
    chief_process=$process
    wait_for chief 'the chief listens at'
    address=$(sed -n 's/.*the chief listens at //p' "$work/chief.err")
}

# ps INDEX ARGUMENT…: starts a server.
ps()
{
    local index=$1
    shift
    start "ps$index" --role ps --task-index "$index" --coordinator "$address" "$@"
}

# worker NAME ARGUMENT…: starts a worker with one device.
worker()
{
    local name=$1
    shift
    start "$name" --role worker --coordinator "$address" --devices 1 "$@"
}

# show MESSAGE: fails, with the end of each process's output.
show()
{
    local file
    for file in "$work"/*.err "$work"/chief.out; do
        echo "--- ${file##*/}"
        tail -n 15 "$file"
    done
    fail "$1"
}

# wait_until MESSAGE COMMAND…: waits until the command succeeds, for at most two minutes.
wait_until()
{
    local message=$1
    shift
    for _ in {1..6000}; do
        ! "$@" 2>/dev/null || return 0
        sleep 0.02
    done
    show "$message"
}

# wait_for NAME TEXT: waits until the process's stderr contains the text.
wait_for()
{
    wait_until "$1 does not say '$2'" grep -qF -- "$2" "$work/$1.err"
}

# joined NAME…: waits until these workers have joined. Training begins only when the servers have joined too.
joined()
{
    local name
    for name in "$@"; do
        wait_for "$name" 'note: worker '
    done
}

# number NAME: the worker's number, which the chief gave it.
number()
{
    sed -n 's/^note: worker \([0-9]*\) of.*/\1/p' "$work/$1.err"
}

# wait_for_epoch N: waits until the chief has finished the epoch.
wait_for_epoch()
{
    wait_until "epoch $1 does not come" grep -q "\"event\":\"epoch\",\"epoch\":$1," "$work/chief.out"
}

# ends PROCESS STATUS: waits for the process, which must end with this status.
ends()
{
    status=0
    wait "$1" || status=$?
    [[ $status -eq $2 ]] || show "exit status $status is not $2"
}

# all_end_well [PROCESS…]: all processes end with status 0, except those given, which were killed.
all_end_well()
{
    local process killed
    ends "$chief_process" 0
    for process in "${processes[@]}"; do
        killed=
        for other in "$@"; do
            [[ $other != "$process" ]] || killed=1
        done
        [[ $process == "$chief_process" || -n $killed ]] || ends "$process" 0
    done
    processes=()
}

# counted NAME: a number in the chief's last line.
counted()
{
    tail -n 1 "$work/chief.out" | sed -n "s/.*\"asynchronous\":{[^}]*\"$1\":\([0-9]*\).*/\1/p"
}

# is NAME NUMBER: the number in the chief's last line is this.
is()
{
    [[ $(counted "$1") == "$2" ]] || show "$1 is $(counted "$1"), not $2"
}

# digest FILE: the digest in the last JSON line.
digest()
{
    tail -n 1 "$1" | sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p'
}

# losses FILE: the loss and accuracy of training in each epoch, from the lines of --json.
losses()
{
    grep -o '"train_loss":[^,]*,"train_accuracy":[^,]*' "$1"
}

# scaling EXPRESSION…: Python expressions hold for `r`, the scaling report in the chief's last line.
scaling()
{
    local expression
    command -v python3 >/dev/null || return 0
    for expression in "$@"; do
        python3 - "$work/chief.out" "$expression" <<'END' || show "the report is not $expression"
import json, sys
r = json.loads(open(sys.argv[1]).read().splitlines()[-1])["scaling"]
parts = ("compute", "exchange", "slowest", "input", "other")
adds_up = lambda of: abs(sum(of[part] for part in parts) - of["step_seconds"]) < 1e-9
sys.exit(not eval(sys.argv[2]))
END
    done
}

data=(--data synthetic --limit-val 200)

# This training takes some seconds, long enough for tests that disturb it.
large=("${data[@]}" --model lenet --limit-train 6000 --batch-size 120 --shards 2 --epochs 10)
