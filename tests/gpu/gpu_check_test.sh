#!/usr/bin/env bash
# tools/gpu_check with the plug-in that runs kernels on the CPU: its parts, its table, and a part that is broken.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
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

# row PATTERN…: the table has a line for each pattern.
row()
{
    local pattern
    for pattern in "$@"; do
        grep -qE -- "^\| $pattern" "$work/stdout" || fail "no row '$pattern'"
    done
}

check 2 --build "$build" --only none
check 1 --build "$work"
for broken in "$work/none" "$LOCKSTEP"; do
    check 1 --build "$broken" --only doctor
    grep -q "^gpu_check: --build $broken: neither a build's folder nor an archive of tools/gpu_pack: " "$work/stderr" ||
        fail "it does not say what is wrong with --build"
done
LOCKSTEP_EMULATED_GPUS=0 check 1 --build "$build" --only doctor
row 'a GPU, and the libraries for it +\| FAILED: cuda:0: no GPU: .*cudaErrorNoDevice'
status=0
"$root/tools/gpu_pack" --build "$build" --peer "$work/none" "$work/packed" 2>"$work/stderr" || status=$?
[[ $status -eq 2 ]] || fail "gpu_pack takes a peer that is not there"
grep -q -- "--peer $work/none: there is no such file" "$work/stderr" || fail "it does not say what is wrong with --peer"
mkdir "$work/bin" "$work/lost"
touch "$work/lost/lockstep"
printf '#!/bin/sh\n' >"$work/bin/strip"
printf '#!/bin/sh\necho "  liblost.so.1 => not found"\n' >"$work/bin/ldd"
chmod +x "$work/bin/strip" "$work/bin/ldd"
status=0
PATH=$work/bin:$PATH "$root/tools/gpu_pack" --build "$work/lost" "$work/packed" 2>"$work/stderr" || status=$?
[[ $status -eq 1 ]] || fail "gpu_pack packs a program that lacks a library"
grep -q "^gpu_pack: $work/lost/lockstep: liblost.so.1 is not found$" "$work/stderr" || fail "it does not name the missing library"

# --- a sound build ---------------------------------------------------------------------------------------------------

check 0 --build "$build" --only doctor,trains,contract,merged,networks,memory,kernels,shards
row 'a GPU, and the libraries for it +\| passed: emulated GPU' 'same bits, lenet, f32 +\| passed: ' \
    'same bits, keras-cnn, f32 +\| passed: ' 'lenet trains +\| passed: loss 2\.' \
    'merged shards, same bits, lenet, f32 +\| passed: 4 engines' \
    'merged shards, conv2d, emulated:1.0.0 +\| passed: same bits in lenet f32' \
    'own kernels under racecheck +\| not run: emulated' \
    'lenet, .*beside PyTorch CUDA graphs +\| not measured: emulated .*>= 1.5 x' \
    'ceilings, .*\| not measured: emulated .*>= 80%'
grep -q 'Emulated: times mean nothing, and none is given' "$work/stdout" || fail "it does not say that it is emulated"
! grep -qE 'images/s|GB/s|TFLOP' "$work/stdout" || fail "a speed is given"
diff "$work/out/table.md" "$work/stdout" || fail "table.md is another table"
[[ $(grep -c '"measured": "kernel"' "$work/out/samples.jsonl") -ge 30 ]] || fail "not every kernel was run"
grep -q 'lockstep verify --model lenet' "$work/out/output.log" || fail "output.log lacks a command"

# A folder with its own plug-in, which the programs in its subfolders do not find without help.
mkdir "$work/whole"
ln -s "$LOCKSTEP" "$build/bench" "$work/whole"
ln -s "$LOCKSTEP_CUDA_EMULATED" "$work/whole/liblockstep_cuda.so"
(unset LOCKSTEP_CUDA_PLUGIN && check 0 --build "$work/whole" --only doctor,kernels)
row 'a GPU, and the libraries for it +\| passed: emulated GPU'

# --- a broken build --------------------------------------------------------------------------------------------------

# A build with wrong gradients, failing training and a missing program: the other checks still run.
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
check 1 --build "$work/build" --only doctor,trains,contract,networks,conformance,curves,gradients,kernels
row 'a GPU, and the libraries for it +\| passed' \
    'operators .* \| not run: no tests/conformance_test in the build' \
    'lenet trains +\| FAILED: lockstep train ended without its report' \
    'same bits, lenet, f32 +\| FAILED: lockstep: lockstep: the GPU is lost' \
    'losses .*lenet, f32 +\| FAILED: lockstep train ended without its report' \
    'gradients .*\| FAILED: conformance_gradient_test: 1 FAILED TEST' \
    'lenet, .*eager +\| not measured: lockstep train ended' \
    'ceilings, .*\| not measured: no bench/bench_gpu_kernels in the build'
grep -A8 '^FAILED: lockstep: lockstep: the GPU is lost' "$work/out/output.log" | grep -q 'once more with LOCKSTEP_ENGINE=sync' ||
    fail "the log does not explain the failure"

# --- figures ---------------------------------------------------------------------------------------------------------

# Fake programs print figures that a GPU might reach, of which the table is made: 1200 images/s for ResNet-18, 300 with one
# shard, 30000 for all others; PyTorch 1000 except for WRN-16-10; a copy at 4000 GB/s.
fake=$work/fake
mkdir -p "$fake/bench"
cat >"$fake/lockstep" <<'END'
#!/bin/bash
[[ ${LD_LIBRARY_PATH:-} != *nvidia/nvrtc/lib* ]] || nvrtc=', NVRTC 13.0'
[[ $1 == train ]] || { printf '\nGPUs\n  driver 580, cuBLASLt 13.0, cuDNN 9.19%s\n  cuda:0    NVIDIA GPU\n' "${nvrtc:-}"; exit; }
[[ -z ${EXPECTED_CACHE:-} || ${XDG_CACHE_HOME:-none} == $EXPECTED_CACHE && -d $XDG_CACHE_HOME ]] || exit 1
epochs=1 speed=30000
while [[ $# -gt 0 ]]; do
    case "$1 ${2:-}" in
    '--epochs '*) epochs=$2 ;;
    '--model resnet18') speed=1200 ;;
    '--shards 1') speed=300 ;;
    esac
    shift
done
for ((i = 0; i < epochs; i++)); do
    echo '{"event":"epoch","train_loss":2.5,"seconds":0.0625}'
done
echo "{\"event\":\"done\",\"images_per_second\":$speed}"
END
cat >"$fake/bench/bench_gpu_kernels" <<'END'
#!/bin/sh
echo '{"kernel": "copy", "what": "", "dtype": "f32", "bytes": 4e9, "flops": 0, "seconds": 0.001}'
echo '{"kernel": "relu", "what": "", "dtype": "f32", "bytes": 3.9e9, "flops": 0, "seconds": 0.001}'
echo '{"kernel": "dropout", "what": "Philox", "dtype": "bf16", "bytes": 1e9, "flops": 0, "seconds": 0.001}'
echo '{"kernel": "matmul", "what": "", "dtype": "bf16", "bytes": 1, "flops": 8e11, "seconds": 0.001}'
echo '{"kernel": "matmul", "what": "", "dtype": "f32", "bytes": 1, "flops": 5e10, "seconds": 0.001}'
END
mkdir -p "$fake/nvidia/nvrtc/lib"
cat >"$fake/python" <<'END'
#!/bin/sh
case $* in
*'import nvidia'*) echo "${0%/*}/nvidia" ;;
*torch.__version__*) echo 2.11 ;;
*'wrn-16-10 --batch 256'*reduce-overhead*) yes '{"images_per_s": 1000}' | head -3; echo 'out of memory' >&2; exit 1 ;;
*'--batch 256,256,512,512'*) yes '{"images_per_s": 900}' | head -4 ;;
*'--batch 512,512'*) yes '{"images_per_s": 900}' | head -2 ;;
*wrn-16-10,wrn-16-10*) printf '{"images_per_s": %d}\n' 100 150 200; echo 'no more' >&2; exit 1 ;;
*'wrn-16-10 --batch 8 '*) echo '{"images_per_s": 300}' ;;
*'reduce-overhead'*) echo '{"images_per_s": 1000}' ;;
*) echo '{"images_per_s": 900}' ;;
esac
END
touch "$fake/torch_bench.py"
chmod +x "$fake/lockstep" "$fake/python" "$fake/bench/bench_gpu_kernels"
check 0 --build "$fake" --python "$fake/python" --only doctor,kernels,networks,sizes,shards
row 'a GPU, and the libraries for it +\| passed: NVIDIA GPU '
row 'resnet18, bf16, batch 512, beside PyTorch fastest +\| 1200 .*images/s +\| 1000 CUDA graphs, 900 eager, 900 compiled +\| 1.20 +\| >= 1.3 x +\| no' \
    'wrn-16-10, .*batch 512, beside PyTorch fastest +\| 30000 .*\| 900 eager, 900 compiled, no CUDA graphs: python: out of memory +\| 33.33 +\| >= 1.3 x +\| - ' \
    'wrn-16-10, .*batch 8, beside PyTorch fastest +\| 30000 .*\| 300 CUDA graphs, 100 eager +\| 100.00 ' \
    'wrn-16-10, .*batch 16, beside PyTorch fastest +\| 30000 .*\| 1000 CUDA graphs, 150 eager ' \
    'wrn-16-10, .*batch 64, beside PyTorch fastest +\| 30000 .*\| 1000 CUDA graphs, no eager: python: no more ' \
    'wrn-16-10, .*: of the bf16 ceiling.*\| 800 TFLOP/s .*\| 42% +\| >= 35% +\| yes' \
    'lenet, bf16, batch 256, beside PyTorch eager .*\| 33.33 +\| >= 3 x +\| yes' \
    'lenet, .* an epoch of .*\| 0.062 .*<= 0.1 +\| yes' \
    'wrn-16-10, bf16, batch 700, beside the published 1332 .*\| 22.5 +\| >= 10 x +\| yes' \
    'wrn-16-10, bf16, batch 8, beside the published 328 .*\| 91.5 ' \
    'resnet18, .*: default shards beside one .*\| 300, one shard .*\| 4.00 .*\| yes' \
    'ceiling: copy of device memory.* 4000 GB/s' 'kernel relu, f32 +\| 3900 GB/s .*\| 98% +\| >= 80% +\| yes' \
    'kernel dropout \(Philox\), bf16 +\| 1000 GB/s .*\| 25% +\| >= 80% +\| no'

# --- output that nobody expects ----------------------------------------------------------------------------------------

# Libraries print lines of their own. An event or a sample that is cut short is a row; so is one that the table cannot use.
cat >"$work/build/lockstep" <<END
#!/bin/sh
[ "\$1" = train ] || exec "$LOCKSTEP" "\$@"
case "\$*" in
*'--epochs 1 '*) echo '{"event":' ;;
*) printf 'NCCL version 2.28.9\n{"event":"epoch","train_loss":2.5}\n{"event":"done"}\n' ;;
esac
END
check 1 --build "$work/build" --only doctor,trains,merged,networks
row 'a GPU, and the libraries for it +\| passed' 'lenet trains +\| passed: loss 2\.5' \
    'merged shards, same bits, lenet, f32 +\| FAILED: JSONDecodeError: '
grep -q '^json.decoder.JSONDecodeError: ' "$work/out/output.log" || fail "the log lacks a traceback"

echo 'echo "{\"kernel\": "' >>"$fake/bench/bench_gpu_kernels"
check 1 --build "$fake" --python "$fake/python" --only kernels
row 'kernels +\| FAILED: JSONDecodeError: '
printf '#!/bin/sh\necho '\''{"kernel": "copy", "dtype": "f32"}'\''\n' >"$fake/bench/bench_gpu_kernels"
check 1 --build "$fake" --python "$fake/python" --only kernels,shards
row "kernels +\\| FAILED: KeyError: 'seconds'" 'resnet18, .*: default shards beside one .*\| 300, one shard '

# A run that is ended has its table, with the rows that are known.
cat >"$work/build/lockstep" <<END
#!/bin/sh
[ "\$1" != verify ] || exec sleep 60
exec "$LOCKSTEP" "\$@"
END
"$root/tools/gpu_check" --out "$work/out" --build "$work/build" --only doctor,contract >"$work/stdout" 2>"$work/stderr" &
until grep -q ' contract: ' "$work/stderr"; do
    kill -0 $! || fail "it ended by itself"
    sleep 0.1
done
kill $!
status=0
wait $! || status=$?
[[ $status -eq 130 ]] || fail "ended by SIGTERM: exit status $status"
row 'a GPU, and the libraries for it +\| passed' 'same bits, lenet, f32 +\| not run: out of time'
diff "$work/out/table.md" "$work/stdout" || fail "table.md is another table"

# Programs get a cache if the user has none that can be written.
only_shards=(--build "$fake" --python "$fake/python" --only shards)
(unset HOME XDG_CACHE_HOME && TMPDIR=$work EXPECTED_CACHE="$work/gpu_check.*" check 0 "${only_shards[@]}")
(unset XDG_CACHE_HOME && HOME=/proc/self TMPDIR=$work EXPECTED_CACHE="$work/gpu_check.*" check 0 "${only_shards[@]}")
XDG_CACHE_HOME=$work EXPECTED_CACHE=$work check 0 "${only_shards[@]}"
(unset HOME && XDG_CACHE_HOME=cache TMPDIR=$work EXPECTED_CACHE="$work/gpu_check.*" check 0 "${only_shards[@]}")
[[ -z $(find "$work" -maxdepth 1 -name 'gpu_check.*') ]] || fail "a cache is left behind"

# Without the interpreter, neither PyTorch nor the libraries of its packages are found.
check 1 --build "$fake" --python "$work/none" --only doctor,shards
row 'a GPU, and the libraries for it +\| FAILED: no NVRTC: driver 580, cuBLASLt 13.0, cuDNN 9.19 '
grep -q "^- PyTorch: $work/none: No such file or directory$" "$work/stdout" || fail "it does not say what is wrong with --python"

# --- no time ---------------------------------------------------------------------------------------------------------

# A check that hangs leaves no time for later checks, but takes none from the measurements.
cat >"$work/build/lockstep" <<END
#!/bin/sh
[ "\$1" != verify ] || exec sleep 60
exec "$LOCKSTEP" "\$@"
END
check 0 --build "$work/build" --only contract --minutes 0.1
row 'same bits, lenet, f32 +\| not run: out of time' 'same bits, keras-cnn, f32 +\| not run: out of time'

mkdir "$fake/tests"
printf '#!/bin/sh\nexec sleep 60\n' >"$fake/tests/conformance_test"
chmod +x "$fake/tests/conformance_test"
check 0 --build "$fake" --python "$fake/python" --only conformance,networks --minutes 0.4
row 'operators .*\| not run: out of time after ' 'resnet18, bf16, batch 512, beside PyTorch .*\| 1200 .*images/s'
