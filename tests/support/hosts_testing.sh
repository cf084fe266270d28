# Three hosts, which are network namespaces of this machine, each with memory for files of its own. Their links are slow
# and, if the kernel has netem, have latency. Source cli_testing.sh first. A host NAME for which there is a file
# $work/down-NAME starts no process; a file $work/host-NAME is read by its shell first, and may set before='COMMAND;',
# which runs in front of every command that is started there. A file $work/names replaces /etc/hosts of on_one; "any.2" is
# a name of the second host.
# shellcheck shell=bash disable=SC2154 # $work is set there

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
        mkdir "$work/shm-$name"
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

# mpirun calls this instead of ssh: agent ARGUMENT… HOST COMMAND…
cat >"$work/agent" <<EOF
#!/usr/bin/env bash
for argument in \$OMPI_MCA_plm_rsh_args; do
    [[ \$1 == "\$argument" ]] || exit 255
    shift
done
names=(${hosts[*]})
name=\${names[\${1##*.} - 1]}
shift
[[ ! -e $work/down-\$name ]] || exit 255
[[ ! -e $work/host-\$name ]] || source $work/host-\$name
exec ip netns exec "$id-\$name" unshare --uts --mount sh -c \
    "mount --bind $work/shm-\$name /dev/shm; hostname \$name; \$before \$*"
EOF
chmod +x "$work/agent"

# on_one COMMAND ARGUMENT…: runs a command on the first host, in place of this shell.
on_one()
{
    exec ip netns exec "$id-one" unshare --uts --mount sh -c \
        "mount --bind $work/shm-one /dev/shm; [ ! -e $work/names ] || mount --bind $work/names /etc/hosts; hostname one
        exec \"\$@\"" sh "$@"
}

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

ended()
{
    status=0
    wait "$process" || status=$?
    [[ $status -eq $1 ]] || fail "exit status is not $1"
}
