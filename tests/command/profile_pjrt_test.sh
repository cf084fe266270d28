#!/usr/bin/env bash
# lockstep profile on devices of the PJRT plug-in $LOCKSTEP_PJRT_TEST_PLUGIN.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

if [[ -z ${LOCKSTEP_PJRT_TEST_PLUGIN-} ]]; then
    # shellcheck disable=SC2016 # the name of the variable
    echo 'SKIP: $LOCKSTEP_PJRT_TEST_PLUGIN names no PJRT plug-in'
    exit 77
fi
printf '%s\n' flatten 'dense classes' >"$work/small.lk"

# A step has a pass for each shard and an update for each device.
run 0 profile --model "$work/small.lk" --data synthetic --batch-size 16 --shards 4 --devices 2xpjrt \
    --pjrt "$LOCKSTEP_PJRT_TEST_PLUGIN" --warmup 1 --steps 3 --trace "$work/trace.json"
line '2 devices, batch 16 in 4 shards: 3 steps of [0-9.]+ ms after 1, '
line '^peak of a device: not known for pjrt:0$'
line '^operator +calls +ms a step +share +GFLOP/s +inputs -> outputs$'
line '^module +12 +[0-9.]+ +[0-9.]+% +[0-9.]+  i64\[4\]'
line '^module +6 +[0-9.]+ '
line '^all operators '
line '^Bound by '
grep -qF '"name":"module"' "$work/trace.json" || fail 'the recording shows no module'
