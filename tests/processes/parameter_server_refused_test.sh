#!/usr/bin/env bash
# Asynchronous training refuses processes without a key and wrong options before it starts.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/parameter_server_testing.sh
source "$(dirname "$0")/../support/parameter_server_testing.sh"

# --- keys ------------------------------------------------------------------------------------------------------------

# A long comment, whose line an editor has not ended.
run 0 keys "$work/keys" chief
printf '# %0300d' 0 >>"$work/keys/allowed"
run 0 keys "$work/keys" ps worker
[ "$(wc -l <"$work/keys/allowed")" = 4 ] || fail 'the comment and the next key share a line'
lines "$work/keys/ps.key" "$work/keys/worker.key"
run 2 keys "$work/keys" worker
complains 'worker.key: is there already'
rm "$work/keys/worker.key"
run 2 keys "$work/keys" worker
says "$work/keys/allowed: lists a key called worker already; another name, or remove its line"
sed -i '/ worker$/d' "$work/keys/allowed"
run 0 keys "$work/keys" worker
run 2 keys "$work/keys" ../x
complains "'../x' is no name"
mkdir -p "$work/broken/allowed" # a key without its line there would be of no use
run 1 keys "$work/broken" chief
[[ ! -e $work/broken/chief.key ]] || fail 'a key was left'
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

# --- wrong options ---------------------------------------------------------------------------------------------------

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
# Bytes that are no message do no harm.
(echo 'GET / HTTP/1.0' >"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null || true
signal INT "$chief_process"
ends "$chief_process" 130
end_processes

# Two kinds of processors cannot share a batch: they round differently.
if grep -qw avx512dq /proc/cpuinfo && "$LOCKSTEP" doctor | grep '^  oneDNN .*[0-9]' >/dev/null; then
    chief "${small[@]}" --max-staleness 0
    LOCKSTEP_ISA=avx2 worker a "${small[@]}" --max-staleness 0
    ends "$process" 2
    wait_for a 'has another kind of kernels: instruction set avx2, '
    wait_for a ', where the chief has instruction set avx512'
    [[ $(grep -c . "$work/a.err") -eq 1 ]] || fail "not one line: $(<"$work/a.err")"
    signal INT "$chief_process"
    ends "$chief_process" 130
    end_processes
fi

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
