#!/usr/bin/env bash
# Asynchronous training in real processes on loopback: workers that are killed, stopped and join, servers that are killed
# and come back, keys, and everything that may be wrong from the start.
# shellcheck source=tests/cli_testing.sh
source "$(dirname "$0")/cli_testing.sh"

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
    timeout -k 5 240 "$LOCKSTEP" train --strategy parameter-server --peer-timeout 2 --join-timeout 100 "$@" \
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

# --- no staleness: the bits of one device ----------------------------------------------------------------------------

small=("${data[@]}" --model "$work/small.lk" --limit-train 700 --batch-size 64 --shards 8 --epochs 2 --optimizer adam)
run 0 train "${small[@]}" --devices 1 --json
wanted=$(digest "$work/stdout")
[[ -n $wanted ]] || fail "no digest"
chief "${small[@]}" --servers 2 --max-staleness 0
worker a "${small[@]}"
worker b "${small[@]}"
worker c "${small[@]}" --devices 2
joined a b c
ps 0 --servers 2
ps 1 --servers 2
all_end_well
[[ $(digest "$work/chief.out") == "$wanted" ]] || show "digest $(digest "$work/chief.out"), of one device $wanted"
is updates 22
is max_staleness 0
wait_for chief "against one as estimated from the workers' computing time"
scaling 'r["servers"] == 2' 'r["max_staleness"] == 0' '1 <= r["workers"] <= r["devices"] <= 4' 'adds_up(r)' \
    'r["batch_size"] >= r["step_samples"] > 0' 'r["messages"] == 6' 'r["compute"] > 0' 'r["exchange"] > 0' \
    'r["input"] > 0' 'r["server_bytes"] < r["whole_bytes"] < 2 * r["server_bytes"] + 4096' 'r["update"] > 0'

# --- the description of a cluster says who is who; norms of whole variables ------------------------------------------

small=("${data[@]}" --model lenet --limit-train 300 --batch-size 64 --shards 4 --epochs 2)
small+=(--optimizer lars --momentum 0.9 --wd 0.001 --clip-norm 1)
run 0 train "${small[@]}" --devices 1 --json
wanted=$(digest "$work/stdout")
chief "${small[@]}" --max-staleness 0
cluster="{\"cluster\": {\"chief\": [\"$address\"], \"worker\": [\"127.0.0.1:0\"], \"ps\": [\"127.0.0.1:0\"]}"
TF_CONFIG="$cluster, \"task\": {\"type\": \"ps\", \"index\": 0}}" start ps0
echo "$cluster, \"task\": {\"type\": \"worker\", \"index\": 0}}" >"$work/cluster.json"
start a --cluster "$work/cluster.json" "${small[@]}"
all_end_well
[[ $(digest "$work/chief.out") == "$wanted" ]] || show "digest $(digest "$work/chief.out"), of one device $wanted"
is updates 10

# --- numbers that are not finite -------------------------------------------------------------------------------------

small=("${data[@]}" --model keras-cnn --limit-train 300 --batch-size 64 --epochs 2 --optimizer sgd --base-lr 1e6)
chief "${small[@]}"
ps 0
worker a "${small[@]}"
ends "$process" 1
ends "$chief_process" 1
wait_for chief 'loss or gradients are not finite, found by worker 0'
end_processes
chief "${small[@]}" --nan-guard skip
ps 0
worker a "${small[@]}" --nan-guard skip
all_end_well
is updates 10

# --- a limit that holds, workers that are killed, stopped, and join --------------------------------------------------

# While its server is stopped training waits, and does not end before what is tried here has come about.
large=("${data[@]}" --model lenet --limit-train 6000 --batch-size 120 --shards 2 --epochs 16)
chief "${large[@]}" --max-staleness 1 --log-dir "$work/logs"
worker b "${large[@]}"
stopped=$process
joined b
ps 0
server=$process
killed=()
# Between two epochs a worker has nothing that could be handed out again.
until grep -q 'has been silent for 2 s: its batch is handed out again' "$work/chief.err"; do
    [[ ${#killed[@]} -lt 5 ]] || show "no worker that was killed had a batch"
    signal CONT "$server"
    worker a "${large[@]}"
    joined a
    wait_for_epoch $((2 * ${#killed[@]} + 1))
    signal STOP "$server"
    signal KILL "$process"
    killed+=("$process")
    wait_for chief "worker $(number a) on $(hostname) has been silent for 2 s"
done
worker c "${large[@]}"
joined c
signal STOP "$stopped"
wait_for chief "worker $(number b) on $(hostname) has been silent for 2 s"
signal CONT "$stopped"
wait_for chief "worker $(number b) on $(hostname) is back"
signal CONT "$server"
all_end_well "${killed[@]}"
is updates 800
is handed_out 800
[[ $(counted workers_lost) -gt ${#killed[@]} ]] || show "$(counted workers_lost) workers lost"
is lost_updates 0
[[ $(counted max_staleness) -le 1 ]] || show "staleness $(counted max_staleness)"
[[ $(counted handed_again) -ge 1 ]] || show "nothing was handed out again"

# What each worker told of its time, also one that was killed.
scaling '2 <= r["workers"] == r["devices"] == len(r["worker"])' 'r["max_staleness"] == 1' 'r["messages"] == 8' \
    'r["steps"] == sum(w["steps"] for w in r["worker"]) > 300' 'r["slowest"] > 0' 'adds_up(r)' \
    'all(adds_up(w) and w["compute"] > 0 and w["exchange"] > 0 for w in r["worker"])' \
    'r["slowest_device"] in [w["name"] for w in r["worker"]]' 'r["strategy"] == "parameter-server"' \
    'r["computing"] > r["update"] > 0' 'r["speedup"] > 0 and not r["speedup_measured"]' 'r["bandwidth"] > 0'
[[ $(grep -c '^speed-up' "$work/chief.err") -eq 1 ]] || show "there is no speed-up"
wait_for chief 'waiting because of --max-staleness'
wait_for chief 'the slowest is worker '
run 0 report "$work/logs"
silent_stderr
line '^lenet on synthetic, [2-9] cpu devices of [2-9] workers, 1 server, strategy parameter-server over ZeroMQ, batch 120 in 2 shards, f32$'
for part in compute 'pulling and pushing' 'waiting because of --max-staleness' 'waiting for work or input' other all; do
    line "^$part +-?[0-9.]+ +-?[0-9.]+%"
done
line '^ +[0-9]+( +[0-9.]+){6}  worker [0-9] on .*, the slowest$'
line '^servers: latency .* GB/s, an update takes [0-9.]+ ms, at most [0-9]+ a second; .*: 1.033 MB, 8 messages to and fro$'
for workers in 2 4 8 16 32 64 128 256 512 1024; do
    line "^$workers( +[0-9.]+){3} +[0-9.]+%( +-){3}$"
done
run 0 train "${large[@]}" --epochs 1 --devices 1 --log-dir "$work/one"
run 0 report "$work/one" "$work/logs"
line 'against a measured run on one$'
run 2 report "$work/logs" "$work/one"
complains 'the first one is on'

# --- a server that is killed, and comes back -------------------------------------------------------------------------

chief "${large[@]}" --servers 2
worker a "${large[@]}"
worker b "${large[@]}"
joined a b
ps 0 --servers 2
ps 1 --servers 2 --snapshot-dir "$work/snapshots" --snapshot-every 20
gone=$process
wait_for_epoch 2
signal KILL "$gone"
ps 1 --servers 2 --snapshot-dir "$work/snapshots" --snapshot-every 20
wait_for ps1 'as its snapshot has them'
all_end_well "$gone"
is updates 800
is server_restarts 1
[[ $(counted lost_updates) -le 20 ]] || show "lost $(counted lost_updates) updates of 20 between snapshots"
[[ ! -e $work/snapshots/server-1.snapshot ]] || show "a snapshot is left"

# Without a snapshot its part of the variables is gone.
chief "${large[@]}"
ps 0
gone=$process
worker a "${large[@]}"
wait_for_epoch 1
signal KILL "$gone"
ps 0
ends "$chief_process" 1
wait_for chief 'parameter server 0 came back without a snapshot of this training'
wait_for a 'the chief has ended training: parameter server 0 came back'
end_processes

# --- a chief that is killed, a server that is stopped for a while ----------------------------------------------------

chief "${large[@]}" --epochs 1000
ps 0
server=$process
stopped=$process
worker b "${large[@]}" --epochs 1000
left=$process
worker a "${large[@]}" --epochs 1000
wait_for_epoch 1
joined b # before that an interrupt may find nobody who listens
signal INT "$left"
ends "$left" 130
wait_for chief 'has left'
signal STOP "$stopped"
wait_for chief 'has been silent for 2 s: training waits for it'
signal CONT "$stopped"
wait_for chief 'parameter server 0 answers again'
signal KILL "$chief_process"
ends "$process" 1
ends "$server" 1
wait_for a "the chief at $address has not answered for 2 s"
wait_for ps0 "the chief at $address has not answered for 2 s"
end_processes

# --- keys ------------------------------------------------------------------------------------------------------------

run 0 keys "$work/keys" chief ps worker
lines "$work/keys/chief.key" "$work/keys/ps.key" "$work/keys/worker.key"
run 2 keys "$work/keys" worker
complains 'worker.key: is there already'
run 2 keys "$work/keys" ../x
complains "'../x' is no name"
run 0 keys "$work/others" chief worker
cp "$work/keys/allowed" "$work/others/allowed"
small=("${data[@]}" --model "$work/small.lk" --limit-train 700 --batch-size 64 --epochs 2)
chief "${small[@]}" --keys "$work/keys/chief.key"
ps 0 --keys "$work/keys/ps.key"
worker stranger "${small[@]}" --keys "$work/others/worker.key"
ends "$process" 1
wait_for stranger "does not allow this process's key"
wait_for chief 'a connection from 127.0.0.1 was refused: its key,'
worker open "${small[@]}" --join-timeout 1
ends "$process" 1
wait_for open "lockstep: the chief at $address"
worker a "${small[@]}" --keys "$work/keys/worker.key"
ends "$chief_process" 0
is updates 22
end_processes

# --- what is wrong from the start ------------------------------------------------------------------------------------

chief "${small[@]}"
worker a "${small[@]}" --seed 1
ends "$process" 2
wait_for a 'has another --seed: 1, where the chief has 0'
ps 3
ends "$process" 2
wait_for ps3 '--task-index 3: there are 1 parameter servers'
ps 0 --listen "$address"
ends "$process" 1
wait_for ps0 "$address: cannot listen there: another process has taken the port"
ps 0 --listen "$address"0000
ends "$process" 2
ps 0 --listen 0.0.0.0:0
ends "$process" 2
wait_for ps0 'it has to be one of this machine'
ps 0 --listen 192.0.2.1:0
ends "$process" 2
wait_for ps0 'that takes --keys'
# Bytes that are no message at all.
(echo 'GET / HTTP/1.0' >"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null || true
signal INT "$chief_process"
ends "$chief_process" 130
end_processes

strategy=(train --strategy parameter-server "${small[@]}")
run 2 "${strategy[@]}"
complains '--role chief, worker or ps'
run 2 "${strategy[@]}" --role worker
complains 'where is the chief?'
run 1 "${strategy[@]}" --role worker --coordinator no-such-host.invalid:5000
complains "host 'no-such-host.invalid' does not resolve"
run 1 "${strategy[@]}" --role worker --devices 1 --coordinator "$address" --join-timeout 0.5
complains "the chief at $address does not answer"
run 2 "${strategy[@]}" --role chief --bn sync
complains '--bn sync: needs all shards'
run 2 "${strategy[@]}" --role chief --accumulate 2
complains '--accumulate 2: strategy parameter-server'
run 2 "${strategy[@]}" --role chief --clip-norm 1 --servers 2
complains '--clip-norm: needs the norm of all gradients'
run 2 "${strategy[@]}" --role chief --optimizer lars --servers 2
says '--optimizer lars: needs the norm of each variable, and dense.weight is split over 2 servers'
