#!/usr/bin/env bash
# Asynchronous training whose processes are killed or interrupted resumes from its checkpoints. Without staleness it has
# the bits of a run that was not disturbed, whichever strategy began it.
# shellcheck disable=SC2119 # the arguments of all_end_well are optional
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/parameter_server_testing.sh
source "$(dirname "$0")/../support/parameter_server_testing.sh"

# value FILE NAME: the first value of this name in the last JSON line.
value()
{
    local line
    line=$(tail -n 1 "$1")
    [[ $line == *"\"$2\":"* ]] || return 0
    line=${line#*"\"$2\":"}
    line=${line%%[,\}]*}
    echo "${line//\"/}"
}

newest()
{
    newest_checkpoint "$work/checkpoints"
}

# all_killed STEPS: kills all processes when there is a checkpoint after at least so many steps.
all_killed()
{
    local tries=0
    until [[ $(newest) -ge $1 ]]; do
        kill -0 "$chief_process" 2>/dev/null || show "it has ended before there was a checkpoint after $1 steps"
        tries=$((tries + 1))
        [[ $tries -lt 6000 ]] || show "there is no checkpoint after $1 steps"
        sleep 0.01
    done
    signal KILL "$chief_process"
    end_processes
}

# rewind STEPS: keeps only the first checkpoint after at least so many steps, as if the run had been killed after it.
rewind()
{
    local steps
    for steps in $(find "$work/all" -name 'checkpoint-*' | sed 's/.*checkpoint-0*//' | sort -n); do
        [[ -n $steps && $steps -ge $1 ]] || continue
        rm -rf "$work/checkpoints"
        mkdir "$work/checkpoints"
        cp -r "$work/all/$(printf 'checkpoint-%08d' "$steps")" "$work/checkpoints/"
        return
    done
    show "there is no checkpoint after $1 steps"
}

# ends_alike FILE: it has the digests of the run that was not disturbed.
ends_alike()
{
    [[ $(value "$1" digest) == "$wanted" ]] || show "digest $(value "$1" digest), of one device $wanted"
    [[ $(value "$1" state_digest) == "$state" ]] || show 'another state of the optimizer'
    [[ $(value "$1" samples_seen) -eq $seen ]] || show "$(value "$1" samples_seen) samples seen"
}

rows()
{
    tail -n +2 "$work/log/epochs.csv" | cut -d, -f1,2 | tr '\n' ' '
}

# --- without staleness -----------------------------------------------------------------------------------------------

# The network has batch-norm statistics, and the optimizer two kinds of state.
training=("${data[@]}" --model "$work/small.lk" --limit-train 2400 --batch-size 32 --shards 8 --epochs 6 --optimizer adam
    --augment flip)
folder=(--checkpoint-dir "$work/checkpoints" --checkpoint-every 20 --log-dir "$work/log" --keep 100)
run 0 train "${training[@]}" --devices 2 "${folder[@]}" --json
mv "$work/checkpoints" "$work/all"
rm -rf "$work/log"
wanted=$(value "$work/stdout" digest) state=$(value "$work/stdout" state_digest) seen=$((6 * 2400))
[[ -n $wanted && -n $state ]] || fail 'no digest'

# The run is killed and resumed with other numbers of servers and workers.
synchronous=("${training[@]}" --max-staleness 0)
LOCKSTEP_CHECKPOINT_SLOW=3 chief "${synchronous[@]}" "${folder[@]}" --servers 2 # too slow to finish before the kill
worker a "${training[@]}"
worker b "${training[@]}"
joined a b
ps 0 --servers 2
ps 1 --servers 2
all_killed 90
chief "${synchronous[@]}" "${folder[@]}" --resume
wait_for chief 'going on from'
worker a "${training[@]}"
ps 0
all_end_well
ends_alike "$work/chief.out"
[[ $(rows) == '1,75 2,150 3,225 4,300 5,375 6,450 ' ]] || show "the records are of epochs $(rows)"
[[ ! -e $work/log/epochs-2.csv ]] || show 'more records than of one run'
is updates 450

# The training has ended, so there is no work for workers.
run 0 train --strategy parameter-server --role chief "${synchronous[@]}" "${folder[@]}" --resume --json
ends_alike "$work/stdout"
run 2 train --strategy parameter-server --role chief "${synchronous[@]}" "${folder[@]}"
complains 'is not empty'

# Resume with another strategy.
cp -r "$work/checkpoints" "$work/others"
rewind 110
chief "${synchronous[@]}" "${folder[@]}" --resume --servers 2
worker a "${training[@]}" --devices 2
ps 0 --servers 2
ps 1 --servers 2
all_end_well
ends_alike "$work/chief.out"
rm -rf "$work/all"
mv "$work/others" "$work/all"
rewind 110
run 0 train "${training[@]}" --devices 1 "${folder[@]}" --resume --json
ends_alike "$work/stdout"

# Wrong settings are refused before the chief waits for other processes.
rewind 110
run 2 train --strategy parameter-server --role chief "${synchronous[@]}" "${folder[@]}" --resume --seed 3
says '--seed was 0 and is 3'
run 2 train --strategy parameter-server --role chief "${training[@]}" "${folder[@]}" --resume
says '--max-staleness was 0 and is unlimited'

# --- asynchronous ----------------------------------------------------------------------------------------------------

# Without --shards the checkpoint's number is used.
rm -rf "$work/checkpoints" "$work/log"
folder=(--checkpoint-dir "$work/checkpoints" --checkpoint-every 15 --log-dir "$work/log")
large=("${data[@]}" --model "$work/small.lk" --limit-train 12000 --batch-size 120 --epochs 8 --optimizer adam
    --base-lr 0.001)
LOCKSTEP_CHECKPOINT_SLOW=3 chief "${large[@]}" "${folder[@]}" --servers 2
worker a "${large[@]}"
worker b "${large[@]}"
joined a b
ps 0 --servers 2
ps 1 --servers 2 --snapshot-dir "$work/snapshots"
all_killed 120
# The snapshot is from the killed run, so it is ignored; the checkpoint counts.
LOCKSTEP_CHECKPOINT_SLOW=3 chief "${large[@]}" "${folder[@]}" --resume --servers 2
wait_for chief 'going on from'
worker a "${large[@]}"
ps 0 --servers 2
ps 1 --servers 2 --snapshot-dir "$work/snapshots"
joined a
wait_for_epoch 3
signal INT "$chief_process"
ends "$chief_process" 130
end_processes
stopped=$(value "$work/chief.out" steps)
[[ $(newest) -eq $stopped ]] || show "the last checkpoint is after $(newest) steps, and training ended after $stopped"
chief "${large[@]}" "${folder[@]}" --resume
worker a "${large[@]}"
worker b "${large[@]}"
joined a b
ps 0
all_end_well
[[ $(value "$work/chief.out" samples_seen) -eq 96000 ]] || show "$(value "$work/chief.out" samples_seen) samples seen"
[[ $(value "$work/chief.out" steps) -eq 800 ]] || show "$(value "$work/chief.out" steps) steps"
[[ $(rows) == '1,100 2,200 3,300 4,400 5,500 6,600 7,700 8,800 ' ]] || show "the records are of epochs $(rows)"
is updates 800
is lost_updates 0
accuracy=$(value "$work/chief.out" val_accuracy)
[[ $accuracy != 0.[0-6]* ]] || show "accuracy $accuracy"

# Other commands can use the checkpoint folder.
run 0 evaluate "$work/checkpoints" --data synthetic --limit 200 --json
prints "\"accuracy\":$accuracy"
run 0 export "$work/checkpoints" --format safetensors --out "$work/exported.safetensors"
run 2 train "${large[@]}" "${folder[@]}" --devices 1 --resume
says '--max-staleness was unlimited and is 0'

# The chief reads initial weights.
begun=("${large[@]}" --limit-train 1200 --epochs 1)
run 0 train "${begun[@]}" --weights "$work/exported.safetensors" --devices 1 --json
wanted=$(value "$work/stdout" digest)
chief "${begun[@]}" --weights "$work/exported.safetensors" --max-staleness 0
worker a "${begun[@]}"
ps 0
all_end_well
[[ $(value "$work/chief.out" digest) == "$wanted" ]] || show "digest $(value "$work/chief.out" digest), of one device $wanted"

# If no worker is left to finish its batches, the previous checkpoint stays the last one.
rm -rf "$work/checkpoints"
large+=(--limit-train 60000 --batch-size 6 --epochs 1)
chief "${large[@]}" --checkpoint-dir "$work/checkpoints"
ps 0
server=$process
worker a "${large[@]}"
joined a
wait_for chief 'parameter server 0 on '
signal STOP "$server"
wait_for chief 'has been silent for 2 s: training waits for it'
signal KILL "$process"
signal INT "$chief_process"
ends "$chief_process" 130
wait_for chief 'there is nothing to go on from here'
[[ $(newest) -eq 0 && -e $work/checkpoints/checkpoint-00000000 ]] || show "a checkpoint after $(newest) steps"
end_processes
