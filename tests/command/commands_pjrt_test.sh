#!/usr/bin/env bash
# lockstep profile, evaluate and predict on devices of the PJRT plug-in $LOCKSTEP_PJRT_TEST_PLUGIN.
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

# A network that was trained on such devices is evaluated and used there, and on a core too.
run 0 train --model "$work/small.lk" --data synthetic --limit-train 64 --limit-val 64 --batch-size 16 --shards 2 \
    --devices 2xpjrt --pjrt "$LOCKSTEP_PJRT_TEST_PLUGIN" --epochs 1 --checkpoint-dir "$work/run"
run 0 evaluate "$work/run" --devices 2xpjrt --pjrt "$LOCKSTEP_PJRT_TEST_PLUGIN" --limit 64
line '^accuracy [0-9.]+ \([0-9]+ of 64\), loss '
accuracy=$(grep -o '^accuracy [0-9.]*' "$work/stdout")
run 0 evaluate "$work/run" --devices 1xcpu --limit 64
grep -qF "$accuracy" "$work/stdout" || fail "another accuracy on a core than $accuracy"
printf 'P5 28 28 255\n%784s' '' >"$work/picture.pgm"
run 0 predict "$work/run" "$work/picture.pgm" --device pjrt:0 --pjrt "$LOCKSTEP_PJRT_TEST_PLUGIN"
line 'picture.pgm: [a-z]+ 0\.[0-9]+, '
