#!/usr/bin/env bash
# tools/check_layers accepts a correct tree and reports each kind of wrong include or call with a line that names it.
set -euo pipefail

check=$(cd "$(dirname "$0")/.." && pwd)/tools/check_layers
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# put FILE: writes a file of the tree from standard input.
put()
{
    mkdir -p "$tree/$(dirname "$1")"
    cat >"$tree/$1"
}

reset_tree()
{
    rm -rf "${tree:?}"/*
    put include/lockstep/status.h <<<'#include <stddef.h>'
    put src/base/mem.h <<<'#include "lockstep/status.h"'
    put src/core/queue.c <<<'#include "base/mem.h"'
    put src/ops/matmul.h <<<'#include "base/mem.h"'
    printf '#include "%s"\n' base/mem.h ops/matmul.h ref/kernels.h | put src/ref/ref_matmul.c
    printf '#include "%s"\n' ops/matmul.h base/mem.h lockstep/status.h | put src/train/fit.c
    put cli/cli.h <<<'#include "lockstep/status.h"'
    put cli/main.c <<<'#include "cli/cli.h"'
}

refused()
{
    local expected=$1 output
    if output=$("$check" "$tree"); then
        echo "accepted, but should have been refused: $expected"
        exit 1
    fi
    if [[ $output != "$expected"* || $(wc -l <<<"$output") -ne 1 ]]; then
        printf 'expected: %s\ngot:      %s\n' "$expected" "$output"
        exit 1
    fi
    reset_tree
}

# refused_line FILE LINE MESSAGE: a file of this line alone is refused.
refused_line()
{
    put "$1" <<<"$2"
    refused "$1:1: $3"
}

reset_tree
"$check" "$tree"

refused_line src/base/log.c '#include "core/queue.h"' \
    'includes "core/queue.h": base comes before core'
refused_line src/cpu/kernels.c '#include "ref/tables.h"' \
    'includes "ref/tables.h": cpu and ref must not know each other'
refused_line src/io/onnx.c '#  include "data/formats/idx.h"' \
    'includes "data/formats/idx.h": io and data must not know each other'
refused_line src/dist/sum/tree.c '#include "dist/collectives/exchange.h"' \
    'includes "dist/collectives/exchange.h": dist/sum comes before dist/collectives'

put src/train/fit.c <<<'lk_status lk_trainer_fit(void)'
refused_line src/io/report.c '    lk_trainer_fit();' \
    'calls lk_trainer_fit, which train defines: io comes before it'

put src/dist/strategies/central.c <<<'#include "dist/strategies/central.h"'
"$check" "$tree"

refused_line src/core/event.c '#include "queue.h"' \
    'includes "queue.h", which names no layer'

put src/extra/thing.c <<<'#include <stddef.h>'
refused 'src/extra/thing.c: lies in no layer'

refused_line cli/commands/cmd_train.c '#include "core/queue.h"' \
    'includes "core/queue.h", which is not public'
refused_line examples/lenet.c '#include "mem.h"' \
    'includes "mem.h", which is not public'
refused_line include/lockstep/tensor.h '#include "core/tensor.h"' \
    'includes "core/tensor.h", which is not public'
refused_line src/nn/linear.c '#include <oneapi/dnnl/dnnl.h>' \
    'includes <oneapi/dnnl/dnnl.h> outside'
refused_line src/train/plan/plan.c '#include <cairo.h>' \
    'includes <cairo.h> outside'
refused_line src/core/device.c '#ifdef LK_HAVE_HWLOC' \
    'asks for an optional library outside'

put src/core/topology.c <<<'#if defined(LK_HAVE_HWLOC)'
"$check" "$tree"

put src/ops/queue.c </dev/null
refused 'src/ops/queue.c: has the name of src/core/queue.c'

printf 'int x%s;\n' {1..801} | put src/base/long.c
refused 'src/base/long.c: has 801 lines; 800 is the limit'
