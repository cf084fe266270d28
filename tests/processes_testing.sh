# What the tests of processes that train together share, after cli_testing.sh.
# shellcheck shell=bash disable=SC2034,SC2154 # what cli_testing.sh has

needs_mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl=self,vader,tcp
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo

# ranks N STATUS ARGUMENT…: lockstep in N processes.
ranks()
{
    local n=$1 expected=$2
    shift 2
    arguments=("[$n processes]" "$@")
    status=0
    timeout -k 5 200 mpirun --quiet -n "$n" "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
}

digest()
{
    sed -n 's/^digest //p' "$work/stderr" "$work/stdout" | tail -n 1
}

# same WANTED: what was run has this digest, which it has told once.
same()
{
    [[ $(digest) == "$1" ]] || fail "digest $(digest), and not $1"
    [[ $(grep -c '^digest' "$work/stderr") -eq 1 ]] || fail "not one rank alone prints"
}
