#!/usr/bin/env bash
# Asynchronous training in which servers and the chief are killed, or stopped for a while.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/parameter_server_testing.sh
source "$(dirname "$0")/../support/parameter_server_testing.sh"

# --- a server is killed and restarted --------------------------------------------------------------------------------

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
is updates 500
is server_restarts 1
[[ $(counted lost_updates) -le 20 ]] || show "lost $(counted lost_updates) updates of 20 between snapshots"
[[ ! -e $work/snapshots/server-1.snapshot ]] || show "a snapshot is left"

# Without a snapshot the server's part of the variables is lost.
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

# --- the chief is killed, a server is stopped for a while ------------------------------------------------------------

chief "${large[@]}" --epochs 1000
ps 0
server=$process
stopped=$process
worker b "${large[@]}" --epochs 1000
left=$process
worker a "${large[@]}" --epochs 1000
wait_for_epoch 1
joined b # before that the worker may not handle an interrupt
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

# --- no staleness: a worker is killed when one server has its update and the other has not ---------------------------

exact=("${large[@]}" --limit-train 3000 --epochs 4 --momentum 0.9)
run 0 train "${exact[@]}" --devices 1 --json
wanted=$(digest "$work/stdout")
wanted_losses=$(losses "$work/stdout")
for _ in 1 2; do
    chief "${exact[@]}" --servers 2 --max-staleness 0
    ps 0 --servers 2
    ps 1 --servers 2
    stopped=$process
    worker a "${exact[@]}"
    gone=$process
    wait_for_epoch 1
    signal STOP "$stopped"
    sleep 1
    signal KILL "$gone"
    signal CONT "$stopped"
    worker b "${exact[@]}"
    all_end_well "$gone"
    [[ $(digest "$work/chief.out") == "$wanted" ]] || show "digest $(digest "$work/chief.out"), of one device $wanted"
    [[ $(losses "$work/chief.out") == "$wanted_losses" ]] ||
        show "$(losses "$work/chief.out"), of one device $wanted_losses"
done
