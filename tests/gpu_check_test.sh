#!/usr/bin/env bash
# tools/gpu_check on the plug-in that runs kernels on the processor: its parts, its table, and a part that is broken.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(dirname "$LOCKSTEP")
if [[ ! -f ${LOCKSTEP_CUDA_EMULATED:-} || ! -x $build/tests/conformance_test ]]; then
    echo "SKIP: there is no emulated plug-in, which takes a C++ compiler, or no test programs, which take cmocka"
    exit 77
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "SKIP: there is no Python 3.10"
    exit 77
fi
export LOCKSTEP_CUDA_PLUGIN=$LOCKSTEP_CUDA_EMULATED
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "gpu_check: $1"
    cat "$work/stdout" "$work/stderr"
    exit 1
}

# check STATUS [OPTION…]
check()
{
    local expected=$1 status=0
    shift
    "$root/tools/gpu_check" --out "$work/out" "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
    [[ $status -eq $expected ]] || fail "$*: exit status $status, not $expected"
}

# row PATTERN…: each is of a line of the table.
row()
{
    local pattern
    for pattern in "$@"; do
        grep -qE -- "^\| $pattern" "$work/stdout" || fail "no row '$pattern'"
    done
}

check 2 --build "$build" --only none
check 1 --build "$work"

# --- what is sound ---------------------------------------------------------------------------------------------------

check 0 --build "$build" --only doctor,contract,kernels,small,shards,memory
row 'a GPU, and the libraries for it +\| passed: emulated GPU 0' 'same bits, lenet, f32 +\| passed: ' \
    'same bits, keras-cnn, f32 +\| passed: ' 'own kernels under racecheck +\| not run: emulated' \
    'lenet, .*beside PyTorch CUDA graphs +\| not measured: emulated .*>= 1.5 x' \
    'ceilings, .*\| not measured: emulated .*>= 80%'
grep -q 'Emulated: times mean nothing, and none is given' "$work/stdout" || fail "it does not say that it is emulated"
! grep -qE 'images/s|GB/s|TFLOP' "$work/stdout" || fail "a speed is given"
diff "$work/out/table.md" "$work/stdout" || fail "table.md is another table"
[[ $(grep -c '"measured": "kernel"' "$work/out/samples.jsonl") -ge 30 ]] || fail "not every kernel was run"
grep -q 'lockstep verify --model lenet' "$work/out/output.log" || fail "output.log lacks a command"

# --- what is broken --------------------------------------------------------------------------------------------------

# A build in which the gradients are wrong, training fails, and a program is not there: the rest goes on.
mkdir -p "$work/build/tests"
cat >"$work/build/lockstep" <<END
#!/bin/sh
[ "\$1" != verify ] || { echo "lockstep: the GPU is lost" >&2; exit 1; }
[ "\$1" != train ] || { echo '{"event":"epoch","train_loss":2.5}'; exit; }
exec "$LOCKSTEP" "\$@"
END
cat >"$work/build/tests/conformance_gradient_test" <<'END'
#!/bin/sh
echo ' 1 FAILED TEST(S)' >&2
exit 1
END
chmod +x "$work/build/lockstep" "$work/build/tests/conformance_gradient_test"
check 1 --build "$work/build" --only doctor,conformance,contract,curves,gradients,kernels,small
row 'a GPU, and the libraries for it +\| passed' \
    'operators .* \| not run: no tests/conformance_test in the build' \
    'same bits, lenet, f32 +\| FAILED: lockstep: lockstep: the GPU is lost' \
    'losses .*lenet, f32 +\| FAILED: lockstep train ended without its report' \
    'gradients .*\| FAILED: conformance_gradient_test: 1 FAILED TEST' \
    'lenet, .*eager +\| not measured: lockstep train ended' \
    'ceilings, .*\| not measured: no bench/bench_gpu_kernels in the build'

# --- no time ---------------------------------------------------------------------------------------------------------

check 0 --build "$build" --only contract --minutes 0.06
row 'same bits, keras-cnn, f32 +\| not run: out of time'
