#!/usr/bin/env bash
# Compiles training passes for a TPU that is not there, with the compiler for TPUs: of $LOCKSTEP_TPU_TEST_MODELS, by default
# of those that take it seconds. ResNet-18 and wrn-16-10 take half an hour of processor time.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

if [[ ! -f ${LOCKSTEP_TPU_TEST_PLUGIN:-} ]]; then
    echo "SKIP: \$LOCKSTEP_TPU_TEST_PLUGIN names no PJRT plug-in for TPUs"
    exit 77
fi

# Without these libtpu.so asks a cloud machine's metadata which TPUs there are, and lets one process at a time load it.
export TPU_SKIP_MDS_QUERY=1 TPU_WORKER_HOSTNAMES=localhost TPU_ACCELERATOR_TYPE=v5litepod-4 ALLOW_MULTIPLE_LIBTPU_LOAD=1

for model in ${LOCKSTEP_TPU_TEST_MODELS:-lenet keras-cnn}; do
    for dtype in bf16 f32; do
        run 0 compile --pjrt "$LOCKSTEP_TPU_TEST_PLUGIN" --topology v5e:2x2 --model "$model" --dtype "$dtype" \
            --data synthetic --batch-size 16 --shards 1 --out "$work/executable"
        prints 'compiled   for one of 4 devices of v5e:2x2, in '
        prints 'predicted  '
        [[ -s $work/executable ]] || fail "the executable is empty"
        echo "$model $dtype: $(grep -E '^(compiled|predicted)' "$work/stdout" | tr '\n' ' ')"
    done
done
