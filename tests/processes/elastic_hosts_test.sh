#!/usr/bin/env bash
# lockstep launch --elastic on several hosts: hosts join, leave, are lost, are refused and flap, and training ends with the
# bits of a run that is not disturbed.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/hosts_testing.sh
source "$(dirname "$0")/../support/hosts_testing.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_plm_rsh_args='-p 2222'
touch "$work/down-one" # launch's own host is reached without an agent

training=(train --model lenet --data synthetic --limit-train 256 --limit-val 40 --batch-size 32 --epochs 10 --shards 6
    --devices cpu:0 --workers 1 --momentum 0.9 --base-lr 0.01)
one=10.77.0.1 two=10.77.0.2 three=10.77.0.3

# begin_elastic OPTION…: writing a state is so slow that no machine finishes before hosts change. The launcher comes from a
# program that ignores SIGCHLD, as services may.
begin_elastic()
{
    arguments=("[three hosts]" launch --elastic --hosts-file "$work/hosts" "$@")
    : >"$work/stderr"
    rm -rf "$work/log"
    (LOCKSTEP_CHECKPOINT_SLOW=4 on_one timeout -k 5 400 env --ignore-signal=CHLD "$LOCKSTEP" launch --elastic --hosts-file "$work/hosts" "$@" -- \
        "${training[@]}" --log-dir "$work/log" --json) >"$work/stdout" 2>"$work/stderr" </dev/null &
    process=$!
}

list_hosts()
{
    printf '%s\n' "$@" >"$work/hosts.new"
    mv "$work/hosts.new" "$work/hosts"
}

# newest_state: the number of the newest state in the memory of host one, twice the step; 0: there is none.
newest_state()
{
    newest_checkpoint "$work/shm-one"
}

steps_are()
{
    [[ $(newest_state) -gt $((2 * $1 + 1)) ]]
}

# trains_on: waits for three more steps.
trains_on()
{
    until_true 'three more steps' steps_are $(($(newest_state) / 2 + 3))
}

goes_on()
{
    until_true "change $1" has_gone_on "$1"
    trains_on
}

has_gone_on()
{
    [[ $(grep -c '^lockstep: going on with' "$work/stderr") -ge $1 ]]
}

# kill_on HOST COMMAND: kills the processes of this command on the host.
kill_on()
{
    local id_of_process
    for id_of_process in $(ip netns pids "$id-$1"); do
        if tr '\0' ' ' <"/proc/$id_of_process/cmdline" | grep -q "^[^ ]*$2 "; then
            kill -KILL "$id_of_process"
        fi
    done
}

nothing_left()
{
    none_left
    [[ -z $(find "$work"/shm-* -name 'lockstep-*') ]] || fail "left in memory: $(find "$work"/shm-* -name 'lockstep-*')"
}

run 0 "${training[@]}"
wanted=$(sed -n 's/^digest //p' "$work/stderr")

list_hosts "$one slots=1" "$two:1"
begin_elastic --stall-timeout 15
trains_on

# A wrong file changes nothing. Then a host joins; it has no state, and gets it from the others.
list_hosts "$one slots=1" "$two slots=x"
until_there 'hosts, line 2: must be a machine' "$work/stderr"
list_hosts "$one slots=1" "$two:1" "$three"
goes_on 1
says 'going on with 3 ranks'
[[ -n $(find "$work/shm-three" -name 'checkpoint-*') ]] || fail 'host three keeps no state'

# A rank is killed; then a host leaves and the other comes back.
kill_on two 'lockstep train'
goes_on 2
says 'going on with 2 ranks'
list_hosts "$one slots=1" "$two"
goes_on 3

# A host that cannot train as the others do is refused, and training goes on without it.
echo 'export LOCKSTEP_ISA=generic' >"$work/host-three"
list_hosts "$one slots=1" "$two" "$three"
goes_on 5
says 'rank 2 on three gave up: LOCKSTEP_ISA=generic'
says "$three is refused"

# A host is cut off, and the last one finishes alone.
touch "$work/down-two"
ip -n "$id-two" link set eth0 down
goes_on 6
says 'going on with 1 rank'
ended 0
prints "\"digest\":\"$wanted\""
[[ $(grep -c '"event":"world"' "$work/log/epochs.jsonl") -eq 5 ]] || fail 'the records do not tell of 5 changes'
ip netns pids "$id-two" | xargs -r kill -KILL # what the cut has left there
rm "$work/down-two"
rm -rf "$work"/shm-two/*
ip -n "$id-two" link set eth0 up
nothing_left

# A host that joins again and again, and is lost each time, is left out.
rm "$work/host-three"
list_hosts "$one"
begin_elastic
trains_on
for ((i = 1; i <= 3; i++)); do
    list_hosts "$three" "$one" "# $i"
    goes_on $((2 * i - 1))
    kill_on three 'lockstep train'
    goes_on $((2 * i))
done
says "$three has joined and was lost 3 times and is left out"
list_hosts "$one" "$three" '# 4'
ended 0
prints "\"digest\":\"$wanted\""
[[ $(grep -c '^lockstep: going on with' "$work/stderr") -eq 6 ]] || fail 'other than six changes'
nothing_left

# --min-ranks counts all hosts; a killed daemon of mpirun is no lost host. If mpirun itself is killed, the states stay.
list_hosts "$one" "$two"
begin_elastic --min-ranks 2
trains_on
kill_on two orted
goes_on 1
before=$(newest_state)
kill_on one mpirun
until_true 'change 2' has_gone_on 2
[[ $(newest_state) -ge $before ]] || fail "of state $before only $(newest_state) is left"
trains_on
kill_on two 'lockstep rank'
ended 1
says '1 rank is left, and --min-ranks is 2'
nothing_left

# The hosts file changes while launch reads it.
mkfifo "$work/hosts.new"
mv "$work/hosts.new" "$work/hosts"
begin_elastic
exec 3>"$work/hosts" # once launch has opened it
list_hosts "$one" "$two"
echo "$one" >&3
exec 3>&-
goes_on 1
says 'going on with 2 ranks'
ended 0
prints "\"digest\":\"$wanted\""
nothing_left

# A host is gone, and its name with it, when training goes on without another one.
printf '%s\n' '127.0.0.1 localhost' "$one host.1" "$two host.2" "$three host.3" >"$work/names"
list_hosts host.3 host.2 host.1
begin_elastic
trains_on
grep -v host.3 "$work/names" >"$work/fewer"
cat "$work/fewer" >"$work/names" # the same file, which is mounted
touch "$work/down-three"
kill_on two 'lockstep train'
goes_on 1
says "there is no machine 'host.3'"
says 'host.3 cannot be reached'
says 'going on with 1 rank'
ended 0
prints "\"digest\":\"$wanted\""
rm -rf "$work/names" "$work/down-three" "$work"/shm-three/*
nothing_left

# A host that joins with another data set, another model file or another version of lockstep is refused in the same way.
mkdir "$work/data" "$work/other"
awk 'BEGIN { for (i = 0; i < 256; i++) {
    printf "%d", i % 10
    for (j = 0; j < 784; j++) printf ",%d", (i % 10 * j + i) % 256
    print "" } }' >"$work/data/train.csv"
head -n 40 "$work/data/train.csv" >"$work/data/val.csv"
cp "$(dirname "$0")/../../examples/models/lenet.lk" "$work/net.lk"
training=(train --model "$work/net.lk" --data "$work/data" --image-shape 28x28 --batch-size 32 --epochs 4 --shards 6
    --devices cpu:0 --workers 1 --momentum 0.9 --base-lr 0.01)
run 0 "${training[@]}"
wanted=$(sed -n 's/^digest //p' "$work/stderr")

# is_refused_with FILE SCRIPT REASON: host three has another FILE than the others, which sed makes of it by SCRIPT.
is_refused_with()
{
    sed "$2" "$1" >"$work/other/file"
    chmod +x "$work/other/file"
    echo "before='mount --bind $work/other/file $1;'" >"$work/host-three"
    list_hosts "$one" "$two"
    begin_elastic
    trains_on
    list_hosts "$one" "$two" "$three"
    goes_on 2
    says 'rank 2 on three'
    says "$3"
    ! grep -qF -- --override "$work/stderr" || fail 'it names an option that does not help'
    says "$three is refused"
    ended 0
    prints "\"digest\":\"$wanted\""
    [[ $(grep -c '^lockstep: going on with' "$work/stderr") -eq 2 ]] || fail 'other than two changes'
    nothing_left
}

revision=$("$LOCKSTEP" --version | sed 's/^[^(]*(\([^;]*\);.*/\1/')
is_refused_with "$work/data/train.csv" '200s/^9/8/' 'the training set (its hash) was '
is_refused_with "$work/data/val.csv" '1s/^0/1/' 'the validation set (its hash) was '
is_refused_with "$work/data/train.csv" '200s/^9/x/' "$work/data/train.csv:200: "
is_refused_with "$work/net.lk" '1s/^/# another\n/' '--model was '
says 'a rank needs the same options and files as the others'
is_refused_with "$LOCKSTEP" "s/$revision/${revision//[0-9a-z]/x}/g" 'rank 2 on three has another version of lockstep: '
