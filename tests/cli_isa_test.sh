#!/usr/bin/env bash
# LOCKSTEP_ISA from outside: what is no instruction set is refused before any work, AVX2 can be asked for.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# train ISA: a step on generated images; sets `status`
train()
{
    status=0
    LOCKSTEP_ISA=$1 "$LOCKSTEP" train --data synthetic --limit-train 32 --limit-val 0 --batch-size 32 --epochs 1 \
        --devices 1 >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
}

fail()
{
    echo "LOCKSTEP_ISA=$1: $2 (exit status $status); stdout, then stderr:"
    cat "$work/stdout" "$work/stderr"
    exit 1
}

if ! grep -qw avx2 /proc/cpuinfo || ! "$LOCKSTEP" doctor | grep -q '^  oneDNN .*[0-9]'; then
    echo "SKIP: this processor does not have AVX2, or this build no oneDNN"
    exit 77
fi

train avx3
[[ $status -ne 0 ]] || fail avx3 "was not refused"
grep -q 'LOCKSTEP_ISA=avx3 names no instruction set' "$work/stderr" || fail avx3 "was not named"
[[ $(wc -l <"$work/stderr") -eq 1 && ! -s $work/stdout ]] || fail avx3 "the error is not one line"

if ! grep -qw avx512f /proc/cpuinfo; then
    train avx512
    [[ $status -ne 0 ]] || fail avx512 "was not refused"
    grep -q 'this processor does not have it' "$work/stderr" || fail avx512 "was not explained"
fi

train avx2
[[ $status -eq 0 ]] || fail avx2 "did not train"
digest=$(cat "$work/stdout" "$work/stderr" | grep '^digest ') || fail avx2 "printed no digest"

if ! grep -qw avx512f /proc/cpuinfo; then
    train ''
    [[ $(cat "$work/stdout" "$work/stderr" | grep '^digest ') == "$digest" ]] || fail '' "has other bits than avx2"
fi
