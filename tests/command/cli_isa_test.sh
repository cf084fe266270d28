#!/usr/bin/env bash
# LOCKSTEP_ISA: unknown instruction sets are refused before any work, and AVX2 can be chosen.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

if ! grep -qw avx2 /proc/cpuinfo || ! "$LOCKSTEP" doctor | grep '^  oneDNN .*[0-9]' >/dev/null; then
    echo "SKIP: this processor does not have AVX2, or this build no oneDNN"
    exit 77
fi

# One step on synthetic images.
small=(train --data synthetic --limit-train 32 --limit-val 0 --batch-size 32 --epochs 1 --devices 1)

# train_on ISA: sets $digest
train_on()
{
    LOCKSTEP_ISA=$1 run 0 "${small[@]}"
    digest=$(cat "$work/stdout" "$work/stderr" | grep '^digest ') || fail "LOCKSTEP_ISA=$1 gives no digest"
}

LOCKSTEP_ISA=avx3 run 2 "${small[@]}"
complains 'LOCKSTEP_ISA=avx3 names no instruction set'
train_on avx2
if ! grep -qw avx512f /proc/cpuinfo; then
    avx2=$digest
    train_on ''
    [[ $digest == "$avx2" ]] || fail 'it has other bits than with LOCKSTEP_ISA=avx2'
    LOCKSTEP_ISA=avx512 run 1 "${small[@]}"
    complains 'LOCKSTEP_ISA=avx512' 'this processor does not have it'
fi
