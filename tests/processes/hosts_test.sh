#!/usr/bin/env bash
# Three hosts that train together. They are network namespaces of this machine, with slow links that, if the kernel has
# netem, also have latency.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

# shellcheck source=tests/support/hosts_testing.sh
source "$(dirname "$0")/../support/hosts_testing.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=$work/agent
export OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=eth0

# on_hosts STATUS ARGUMENT…: runs lockstep on the three hosts, started from the first one.
on_hosts()
{
    local expected=$1
    shift
    arguments=("[three hosts]" "$@")
    status=0
    ip netns exec "$id-one" unshare --uts sh -c 'hostname one; exec "$@"' sh timeout -k 5 200 mpirun --quiet \
        -H 10.77.0.1:1,10.77.0.2:1,10.77.0.3:1 -n 3 "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
}

settings=(train --model lenet --data synthetic --limit-train 512 --limit-val 100 --epochs 2 --shards 8)
run 0 "${settings[@]}" --devices 1
wanted=$(sed -n 's/^digest //p' "$work/stderr")
on_hosts 0 "${settings[@]}" --devices 1 --strategy multi-worker
digest=$(sed -n 's/^digest //p' "$work/stderr")
[[ -n $wanted && $digest == "$wanted" ]] || fail "digest $digest, of one device $wanted"
says "devices   3, strategy multi-worker"

none_left

# --- lockstep launch -------------------------------------------------------------------------------------------------

# launch_on_hosts ARGUMENT…: runs lockstep launch in the background, started from the first host.
launch_on_hosts()
{
    arguments=("[three hosts]" launch "$@")
    : >"$work/stderr" # so that no wait sees the previous output
    ip netns exec "$id-one" unshare --uts sh -c 'hostname one; exec "$@"' sh timeout -k 5 200 "$LOCKSTEP" launch \
        --hosts 10.77.0.1,10.77.0.2:1,10.77.0.3:1 "$@" >"$work/stdout" 2>"$work/stderr" </dev/null &
    process=$!
}

# Without a choice of the user, launch chooses the network that the hosts' addresses are in.
unset OMPI_MCA_oob_tcp_if_include OMPI_MCA_btl_tcp_if_include

# The text of the second network is a part of the first one's.
mkdir "$work/instead"
printf '#!/bin/sh\necho "$@" >"%s"\nexit 3\n' "$work/given" >"$work/instead/mpirun"
chmod +x "$work/instead/mpirun"
ip -n "$id-one" addr add 110.9.0.1/16 dev lo
ip -n "$id-one" addr add 10.9.0.1/16 dev lo
LOCKSTEP_RANK=1 LOCKSTEP_SHARED_MEMORY=7 LOCKSTEP_DATA=/none PATH=$work/instead:$PATH ip netns exec "$id-one" "$LOCKSTEP" launch --hosts 110.9.0.2,10.9.0.2 -- "${settings[@]}" \
    >"$work/stdout" 2>"$work/stderr" </dev/null || true
holds "$work/given" '--mca btl_tcp_if_include 110.9.0.0/16,10.9.0.0/16 '
ip -n "$id-one" addr flush dev lo

# Ranks get the environment of the launcher without what its own job has left there.
holds "$work/given" '-x LOCKSTEP_DATA=/none '
! grep -qE 'LOCKSTEP_(RANK|SHARED_MEMORY)' "$work/given" || fail "ranks get variables of another job: $(<"$work/given")"

# Names are looked for as they are written. This machine's own ones need no agent, also one that stands for loopback.
printf '%s\n' '127.0.0.1 localhost' '127.0.1.1 host.1' '10.77.0.2 host.2' >"$work/names"
touch "$work/down-one" "$work/down-three"
arguments=("[two hosts]" launch --hosts 'host.2,host.1')
(on_one timeout -k 5 200 "$LOCKSTEP" "${arguments[@]:1}" -- "${settings[@]}" --devices 1 --json) \
    >"$work/stdout" 2>"$work/stderr" </dev/null || fail 'it does not train'
prints "\"digest\":\"$wanted\""
rm "$work"/down-* "$work/names"

launch_on_hosts -- "${settings[@]}" --devices 1 --json
ended 0
prints "\"digest\":\"$wanted\""
none_left

# Between machines LeNet has three buckets, so that backward hides what is large; on one machine it has one. Each is two
# messages, and a vote on whether to end is another.
buckets=(train --model lenet --data synthetic --limit-train 2048 --limit-val 0 --batch-size 64 --epochs 1 --shards 8 --devices 1)
run 0 "${buckets[@]}"
wanted=$(sed -n 's/^digest //p' "$work/stderr")
run 0 launch -n 3 -- "${buckets[@]}" --log-dir "$work/one-machine" --json
prints "\"digest\":\"$wanted\""
grep -qE '"messages": ?3\b' "$work/one-machine/scaling.json" || fail "on one machine there is not one bucket"
launch_on_hosts -- "${buckets[@]}" --log-dir "$work/machines" --json
ended 0
prints "\"digest\":\"$wanted\""
grep -qE '"messages": ?7\b' "$work/machines/scaling.json" || fail "between machines there are not three buckets"
none_left

long=(-- train --model lenet --data synthetic --limit-train 256 --limit-val 0 --batch-size 64 --epochs 1000000 --shards 8
    --devices cpu:0 --workers 1 --base-lr 0.01)

# connections: prints the local addresses of all connections on the hosts, also of those that are attempted.
connections()
{
    local name
    for name in "${hosts[@]}"; do
        ip netns exec "$id-$name" cat /proc/net/tcp |
            awk 'NR > 1 && $4 != "0A" { print substr($2, 7, 2) substr($2, 5, 2) substr($2, 3, 2) substr($2, 1, 2) }'
    done | sort -u
}

for choice in '' '--interfaces eth0'; do
    # shellcheck disable=SC2086 # two words
    launch_on_hosts $choice "${long[@]}"
    until_there '^\[0\] epoch *3/' "$work/stderr"
    used=$(connections)
    grep -q '^0A4D' <<<"$used" || fail "no connection of 10.77.0.0/16, but $used"
    ! grep -q '^0A4E' <<<"$used" || fail "connections of 10.78.0.0/16: $used"
    kill -INT "$process"
    ended 130
    none_left
done

# killed_on_two COMMAND PATTERN: if the process with this name on the second host is killed, the last line matches.
killed_on_two()
{
    local id_of_process
    launch_on_hosts "${long[@]}"
    until_there '^\[0\] epoch *3/' "$work/stderr"
    began=$(now)
    for id_of_process in $(ip netns pids "$id-two"); do
        if tr '\0' ' ' <"/proc/$id_of_process/cmdline" | grep -q "^[^ ]*$1 "; then
            kill -KILL "$id_of_process"
        fi
    done
    ended 1
    echo "$1 was killed on another host, and all was over, after $(($(now) - began)) ms"
    tail -n 1 "$work/stderr" | grep -qE "$2" || fail "the last line is not $2"
    none_left
}

# A rank that ends on another host is named with its host, and all ranks end.
killed_on_two 'lockstep train' '^rank 1 on two killed by signal 9, step [1-9]'
killed_on_two 'lockstep rank' '^rank 1 on two: its supervisor \(lockstep rank\) was killed by signal 9, step [0-9]'
# Only mpirun notices that its daemon on the other host ended.
killed_on_two orted '^lockstep: mpirun ended with status [0-9]+ before all ranks had ended'

# A host is cut off: nothing reports that, but its rank makes no progress.
launch_on_hosts --stall-timeout 3 "${long[@]}"
until_there '^\[0\] epoch *3/' "$work/stderr"
ip -n "$id-three" link set eth0 down
began=$(now)
ended 1
echo "a host that was cut off was named after $(($(now) - began)) ms, of a stall timeout of 3 s"
unheard='and no word from its supervisor \(lockstep rank\)'
tail -n 1 "$work/stderr" | grep -qE "^rank 2 on three: no progress for [0-9]+ s, $unheard, step [1-9]" ||
    fail "the last line does not name it"
