# Helpers of the tests of processes that train together. Source cli_testing.sh first.
# shellcheck shell=bash disable=SC2034,SC2154 # cli_testing.sh sets or reads these variables

needs_mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl=self,vader,tcp
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo

# A network with batch-norm and dropout, for which several ranks must agree on more than gradients.
cat >"$work/small.lk" <<'END'
conv1: conv2d 4 kernel=3 stride=2
batch_norm
relu
flatten
dropout 0.2
dense classes
END

# ranks N STATUS ARGUMENT…: runs lockstep in N processes, which must end with this status.
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

# same WANTED: the last run has this digest and printed it once.
same()
{
    [[ $(digest) == "$1" ]] || fail "digest $(digest), and not $1"
    [[ $(grep -c '^digest' "$work/stderr") -eq 1 ]] || fail "not one rank alone prints"
}
