#!/usr/bin/env bash
# Asynchronous training in several processes: the bits of one device, and workers that are killed, stopped, and join.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/parameter_server_testing.sh
source "$(dirname "$0")/../support/parameter_server_testing.sh"

# --- no staleness: the bits of one device ----------------------------------------------------------------------------

small=("${data[@]}" --model "$work/small.lk" --limit-train 700 --batch-size 64 --shards 8 --epochs 2 --optimizer adam)
run 0 train "${small[@]}" --devices 1 --json
wanted=$(digest "$work/stdout")
[[ -n $wanted ]] || fail "no digest"
wanted_losses=$(losses "$work/stdout")
chief "${small[@]}" --servers 2 --max-staleness 0
worker a "${small[@]}"
worker b "${small[@]}"
worker c "${small[@]}" --devices 2
joined a b c
ps 0 --servers 2
ps 1 --servers 2
all_end_well
[[ $(digest "$work/chief.out") == "$wanted" ]] || show "digest $(digest "$work/chief.out"), of one device $wanted"
[[ $(losses "$work/chief.out") == "$wanted_losses" ]] ||
    show "$(losses "$work/chief.out"), of one device $wanted_losses"
is updates 22
is max_staleness 0
wait_for chief 'speed-up '
scaling 'r["servers"] == 2' 'r["max_staleness"] == 0' '1 <= r["workers"] <= r["devices"] <= 4' 'adds_up(r)' \
    'r["batch_size"] >= r["step_samples"] > 0' 'r["messages"] == 6' 'r["compute"] > 0' 'r["exchange"] > 0' \
    'r["input"] > 0' 'r["server_bytes"] < r["whole_bytes"] < 2 * r["server_bytes"] + 4096' 'r["update"] > 0'

# --- roles from the description of a cluster; norms of whole variables -----------------------------------------------

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

# The sum over a batch is not finite, though that of each worker's half is.
printf 'flatten\ndense classes\n' >"$work/dense.lk"
weights=$(printf '%s:2.35e36,' {0..9})
small=("${data[@]}" --model "$work/dense.lk" --limit-train 300 --batch-size 64 --shards 4 --epochs 2 --base-lr 1e-12)
small+=(--class-weights "${weights%,}" --nan-guard skip)
run 0 train "${small[@]}" --devices 1 --json
says 'loss or gradients are not finite, the update is skipped'
wanted=$(digest "$work/stdout")
chief "${small[@]}" --max-staleness 0
worker a "${small[@]}"
worker b "${small[@]}"
joined a b
ps 0
all_end_well
[[ $(digest "$work/chief.out") == "$wanted" ]] || show "digest $(digest "$work/chief.out"), of one device $wanted"
is updates 10
[[ $(counted handed_again) -ge 1 ]] || show "no batch was computed as a whole"

# --- a limit of staleness; workers that are killed, stopped, and join ------------------------------------------------

# While the server is stopped, training waits, so it cannot end too early for this test.
chief "${large[@]}" --max-staleness 1 --verbose --log-dir "$work/logs"
worker b "${large[@]}"
stopped=$process
joined b
ps 0
server=$process
killed=()
# Between two epochs a worker has no batch that could be handed out again.
until grep -q 'has been silent for 2 s: its batch is handed out again' "$work/chief.err"; do
    [[ ${#killed[@]} -lt 4 ]] || show "no worker that was killed had a batch"
    signal CONT "$server"
    worker a "${large[@]}"
    joined a
    wait_for_epoch $((2 * ${#killed[@]} + 1))
    signal STOP "$server"
    signal KILL "$process"
    killed+=("$process")
    wait_for chief "worker $(number a) on $(uname -n) has been silent for 2 s"
done
worker c "${large[@]}"
joined c
signal STOP "$stopped"
wait_for chief "worker $(number b) on $(uname -n) has been silent for 2 s"
signal CONT "$stopped"
wait_for chief "worker $(number b) on $(uname -n) is back"
signal CONT "$server"
all_end_well "${killed[@]}"
is updates 500
is handed_out 500
[[ $(counted workers_lost) -gt ${#killed[@]} ]] || show "$(counted workers_lost) workers lost"
is lost_updates 0
[[ $(counted max_staleness) -le 1 ]] || show "staleness $(counted max_staleness)"
[[ $(counted handed_again) -ge 1 ]] || show "nothing was handed out again"

# The report has the times of all workers, also of killed ones.
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
line '^ +[0-9]+ +[0-9]+ +([0-9]+\.[0-9]{2}|-)( +[0-9.]+){6}  worker [0-9] on .*, the slowest$'
line '^servers: latency .* GB/s, an update takes [0-9.]+ ms, at most [0-9]+ a second; .*: 1.033 MB, 8 messages to and fro$'
for workers in 2 4 8 16 32 64 128 256 512 1024; do
    line "^$workers( +[0-9.]+){3} +[0-9.]+%( +-){3}$"
done
run 0 train "${large[@]}" --epochs 1 --devices 1 --log-dir "$work/one"
run 0 report "$work/one" "$work/logs"
line 'against a measured run on one$|^speed-up unclear: '
run 2 report "$work/logs" "$work/one"
complains 'the first one is on'
