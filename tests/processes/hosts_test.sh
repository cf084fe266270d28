#!/usr/bin/env bash
# Three hosts that train together. They are network namespaces of this machine, with slow links that, if the kernel has
# netem, also have latency.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

skip()
{
    echo "SKIP: $1"
    exit 77
}

needs_mpi
command -v ip >/dev/null || skip "no ip (Debian and Ubuntu: iproute2)"

id=lk$$
hosts=(one two three)

remove_hosts()
{
    local name
    for name in hub "${hosts[@]}"; do
        ip netns pids "$id-$name" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        ip netns del "$id-$name" 2>/dev/null || true
    done
    rm -rf "$work"
}

# The bridge has its own namespace, so the machine's network does not change.
make_hosts()
{
    local i=0 name
    ip netns add "$id-hub" && ip -n "$id-hub" link add bridge0 type bridge && ip -n "$id-hub" link set bridge0 up || return
    for name in "${hosts[@]}"; do
        i=$((i + 1))
        ip netns add "$id-$name" || return
        ip -n "$id-hub" link add "port$i" type veth peer name eth0 netns "$id-$name" || return
        ip -n "$id-hub" link set "port$i" master bridge0 up || return
        ip -n "$id-$name" link set lo up || return
        ip -n "$id-$name" link set eth0 up || return
        ip -n "$id-$name" addr add "10.77.0.$i/24" dev eth0 || return
        # A second network, by which the hosts do not reach each other.
        ip -n "$id-$name" link add eth1 type veth peer name nowhere || return
        ip -n "$id-$name" link set nowhere up || return
        ip -n "$id-$name" link set eth1 up || return
        ip -n "$id-$name" addr add "10.78.0.$i/24" dev eth1 || return
    done
}

slow_links()
{
    local name
    for name in "${hosts[@]}"; do
        if tc -n "$id-$name" qdisc add dev eth0 root netem delay 1ms rate 400mbit 2>/dev/null; then
            links="1 ms late, 400 Mbit/s"
        elif tc -n "$id-$name" qdisc add dev eth0 root tbf rate 400mbit burst 64k latency 50ms 2>/dev/null; then
            links="400 Mbit/s; not late, for this kernel has no netem"
        else
            links="as they are, for this kernel can slow down none"
        fi
    done
}

trap remove_hosts EXIT
make_hosts 2>"$work/stderr" || skip "no network namespaces here: $(tail -n 1 "$work/stderr")"
slow_links
echo "links: $links"

# mpirun calls this instead of ssh: agent HOST COMMAND…
cat >"$work/agent" <<EOF
#!/usr/bin/env bash
names=(${hosts[*]})
name=\${names[\${1##*.} - 1]}
shift
exec ip netns exec "$id-\$name" unshare --uts sh -c "hostname \$name; \$*"
EOF
chmod +x "$work/agent"

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

none_left()
{
    local tries=0 name
    for name in "${hosts[@]}"; do
        while [[ -n $(ip netns pids "$id-$name") ]]; do
            tries=$((tries + 1))
            [[ $tries -lt 600 ]] || fail "processes are left on host $name"
            sleep 0.1
        done
    done
}
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

ended()
{
    status=0
    wait "$process" || status=$?
    [[ $status -eq $1 ]] || fail "exit status is not $1"
}

# Without a choice of the user, launch chooses the network that the hosts' addresses are in.
unset OMPI_MCA_oob_tcp_if_include OMPI_MCA_btl_tcp_if_include

launch_on_hosts -- "${settings[@]}" --devices 1 --json
ended 0
prints "\"digest\":\"$wanted\""
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
tail -n 1 "$work/stderr" | grep -qE '^rank 2 on three: no progress for [0-9]+ s, step [1-9]' ||
    fail "the last line does not name it"
