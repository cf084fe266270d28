#!/usr/bin/env bash
# The clock that the soak preloads jumps, once its moment has come.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

if [[ $("$LOCKSTEP" version) == *sanitizers* ]]; then
    echo 'SKIP: other programs cannot load what a sanitizer is built into'
    exit 77
fi

# seconds JUMP: the time of day that another program sees.
seconds()
{
    LD_PRELOAD=$(dirname "$LOCKSTEP")/tests/libsoak_clock_jump.so LOCKSTEP_SOAK_JUMP=$1 date +%s
}

begun=$(date +%s)
[[ $(seconds 0:1000000) -ge $((begun + 1000000)) ]] || fail 'no jump forward'
[[ $(seconds 0:-1000000) -lt $begun ]] || fail 'no jump back'
[[ $(seconds 100000:1000000) -lt $((begun + 1000000)) ]] || fail 'a jump before its moment'
