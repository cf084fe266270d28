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

reset_tree
"$check" "$tree"

put src/base/log.c <<<'#include "core/queue.h"'
refused 'src/base/log.c:1: includes "core/queue.h": base comes before core'

put src/cpu/kernels.c <<<'#include "ref/tables.h"'
refused 'src/cpu/kernels.c:1: includes "ref/tables.h": cpu and ref must not know each other'

put src/io/onnx.c <<<'#  include "data/formats/idx.h"'
refused 'src/io/onnx.c:1: includes "data/formats/idx.h": io and data must not know each other'

put src/dist/sum/tree.c <<<'#include "dist/collectives/exchange.h"'
refused 'src/dist/sum/tree.c:1: includes "dist/collectives/exchange.h": dist/sum comes before dist/collectives'

put src/train/fit.c <<<'lk_status lk_trainer_fit(void)'
put src/io/report.c <<<'    lk_trainer_fit();'
refused 'src/io/report.c:1: calls lk_trainer_fit, which train defines: io comes before it'

put src/dist/strategies/central.c <<<'#include "dist/strategies/central.h"'
"$check" "$tree"
reset_tree

put src/core/event.c <<<'#include "queue.h"'
refused 'src/core/event.c:1: includes "queue.h", which names no layer'

put src/extra/thing.c <<<'#include <stddef.h>'
refused 'src/extra/thing.c: lies in no layer'

put cli/commands/cmd_train.c <<<'#include "core/queue.h"'
refused 'cli/commands/cmd_train.c:1: includes "core/queue.h", which is not public'

put examples/lenet.c <<<'#include "mem.h"'
refused 'examples/lenet.c:1: includes "mem.h", which is not public'

put include/lockstep/tensor.h <<<'#include "core/tensor.h"'
refused 'include/lockstep/tensor.h:1: includes "core/tensor.h", which is not public'

put src/nn/linear.c <<<'#include <oneapi/dnnl/dnnl.h>'
refused 'src/nn/linear.c:1: includes <oneapi/dnnl/dnnl.h> outside'

put src/train/plan/plan.c <<<'#include <cairo.h>'
refused 'src/train/plan/plan.c:1: includes <cairo.h> outside'

put src/core/device.c <<<'#ifdef LK_HAVE_HWLOC'
refused 'src/core/device.c:1: asks for an optional library outside'

put src/core/topology.c <<<'#if defined(LK_HAVE_HWLOC)'
"$check" "$tree"
reset_tree

put src/ops/queue.c </dev/null
refused 'src/ops/queue.c: has the name of src/core/queue.c'

printf 'int x%s;\n' {1..801} | put src/base/long.c
refused 'src/base/long.c: has 801 lines; 800 is the limit'
