# What the tests of asynchronous training share, after cli_testing.sh: its processes, on loopback, and what they say.
# shellcheck shell=bash disable=SC2034,SC2154 # what is set here is read there, and $work is set there

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

# start NAME ARGUMENT…: lockstep train in the background; its id is in $process, what it prints in NAME.out and NAME.err.
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

# signal NAME PROCESS: to the process that timeout watches.
signal()
{
    local child
    until child=$(pgrep -P "$2"); do
        kill -0 "$2" || show "there is nobody to send $1 to"
        sleep 0.02
    done
    kill "-$1" "$child"
}

# chief ARGUMENT…: its address is $address.
chief()
{
    start chief --role chief "$@" --json
    chief_process=$process
    wait_for chief 'the chief listens at'
    address=$(sed -n 's/.*the chief listens at //p' "$work/chief.err")
}

# ps INDEX ARGUMENT…, worker NAME ARGUMENT…
ps()
{
    local index=$1
    shift
    start "ps$index" --role ps --task-index "$index" --coordinator "$address" "$@"
}

worker()
{
    local name=$1
    shift
    start "$name" --role worker --coordinator "$address" --devices 1 "$@"
}

show()
{
    local file
    for file in "$work"/*.err "$work"/chief.out; do
        echo "--- ${file##*/}"
        tail -n 15 "$file"
    done
    fail "$1"
}

# wait_for NAME TEXT: on its stderr.
wait_for()
{
    local tries=0
    until grep -qF -- "$2" "$work/$1.err" 2>/dev/null; do
        tries=$((tries + 1))
        [[ $tries -lt 2400 ]] || show "$1 does not say '$2'"
        sleep 0.05
    done
}

# joined NAME…: these workers have. Where no server has been started yet training has not begun.
joined()
{
    local name
    for name in "$@"; do
        wait_for "$name" 'note: worker '
    done
}

# number NAME: a worker's, as the chief counts them.
number()
{
    sed -n 's/^note: worker \([0-9]*\) of.*/\1/p' "$work/$1.err"
}

# wait_for_epoch N: the chief has finished it.
wait_for_epoch()
{
    local tries=0
    until grep -q "\"event\":\"epoch\",\"epoch\":$1," "$work/chief.out"; do
        tries=$((tries + 1))
        [[ $tries -lt 3000 ]] || show "epoch $1 does not come"
        sleep 0.02
    done
}

# ends PROCESS STATUS
ends()
{
    status=0
    wait "$1" || status=$?
    [[ $status -eq $2 ]] || show "exit status $status is not $2"
}

# All processes have ended well but those given, which were killed.
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

# counted NAME: a number of the chief's last line.
counted()
{
    tail -n 1 "$work/chief.out" | sed -n "s/.*\"asynchronous\":{[^}]*\"$1\":\([0-9]*\).*/\1/p"
}

# is NAME NUMBER
is()
{
    [[ $(counted "$1") == "$2" ]] || show "$1 is $(counted "$1"), not $2"
}

digest()
{
    tail -n 1 "$1" | sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p'
}

# scaling EXPRESSION…: of `r`, the scaling report in the chief's last line.
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

# Some seconds of training: long enough for what a test does to it meanwhile.
large=("${data[@]}" --model lenet --limit-train 6000 --batch-size 120 --shards 2 --epochs 10)
