#!/usr/bin/env bash
# Exit status, texts and streams of the command itself and of help, version and doctor.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"


# A text on stdout, and nothing on stderr.
shows()
{
    prints "$1"
    silent_stderr
}

run 0 help
shows 'Usage: lockstep COMMAND'
mapfile -t commands < <(awk '/^  [a-z]/ { print $1 }' "$work/stdout")
for command in "${commands[@]}"; do
    run 0 help "$command"
    shows "Usage: lockstep $command"
    cp "$work/stdout" "$work/help"
    run 0 "$command" --help
    cmp -s "$work/stdout" "$work/help" || fail "differs from 'lockstep help $command'"
    run 2 "$command" --no-such-option
done

run 0 --help
shows 'Usage: lockstep COMMAND'
run 0
shows 'Usage: lockstep COMMAND'
run 0 -h
shows 'Usage: lockstep COMMAND'
run 0 --version
grep -qE '^lockstep [0-9]+\.[0-9]+\.[0-9]+ \(' "$work/stdout" || fail "no version"
cp "$work/stdout" "$work/version"
run 0 version
cmp -s "$work/stdout" "$work/version" || fail "differs from --version"

run 0 doctor --pjrt /nowhere/libtpu.so
prints '  PJRT plug-in: /nowhere/libtpu.so: '
pjrt=$(dirname "$LOCKSTEP")/tests/liblockstep_pjrt_test.so
if [[ -e $pjrt ]]; then
    run 0 doctor --pjrt "$pjrt"
    prints "  $pjrt: platform test, PJRT 0.81"
    prints '  first line second line'
    prints '  TEST_0(process=0)'
    LOCKSTEP_TEST_PJRT='no answer' run 0 doctor --pjrt "$pjrt" --pjrt-timeout 0.2
    prints "  $pjrt: has not listed its devices within 0.2 s"
    LOCKSTEP_TEST_PJRT=crash run 0 doctor --pjrt "$pjrt"
    prints "  $pjrt: ended by signal 6 while it looked for devices"
    run 1 compile --pjrt "$pjrt" --topology v5e:2x2 --data synthetic --limit-train 20 --batch-size 8
    complains "$pjrt: a topology: no topology is known"
    mkdir -p "$work"/pictures/train/{a,b} # it needs no validation set
    for class in a b; do
        printf 'P5 28 28 255\n%784s' '' >"$work/pictures/train/$class/1.pgm"
    done
    run 1 compile --pjrt "$pjrt" --topology v5e:2x2 --data "$work/pictures" --batch-size 2
    complains "$pjrt: a topology: no topology is known"
fi
run 2 compile --data synthetic --limit-train 20
complains '--topology is missing'
run 2 compile --topology v5e:2x2 --text "$work/both" --out "$work/both"
complains "--out $work/both: is the file of --text"
run 1 compile --topology v5e:2x2 --pjrt /nonexistent --data "$work/nowhere" # data may be far away
complains 'PJRT plug-in: /nonexistent'
PJRT_PLUGIN_LIBRARY_PATH='' TPU_LIBRARY_PATH='' run 1 compile --topology v5e:2x2 --data synthetic --limit-train 20
complains 'no PJRT plug-in is named'

run 0 doctor
for library in zlib xxHash jansson oneDNN hwloc libcurl libcairo libpng libjpeg ZeroMQ libmicrohttpd; do
    shows "  $library "
done
shows 'processors this process may use: '

run 2 docter
complains_just "unknown command 'docter': did you mean 'doctor'?"
run 2 help versoin
complains_just "unknown command 'versoin': did you mean 'version'?"
run 2 xylophone
complains_just "unknown command 'xylophone': see 'lockstep help' for a list"
run 2 help version doctor
complains_just "unexpected argument 'doctor': help describes one command at a time"
run 2 version now
complains_just "unexpected argument 'now'"
run 2 version --quiet
complains_just "unknown option '--quiet': see --help for those there are"

# A result that could not be written is a failure.
arguments=(doctor '>/dev/full')
status=0
"$LOCKSTEP" doctor >/dev/full 2>"$work/stderr" || status=$?
[[ $status -eq 1 && $(<"$work/stderr") == 'lockstep: standard output could not be written: No space left on device' ]] || fail "a full disk"
arguments=(doctor '>&-')
status=0
"$LOCKSTEP" doctor >&- 2>"$work/stderr" || status=$?
[[ $status -eq 1 ]] || fail "a closed stdout is no failure"
# A reader that has read enough is no reason for a message.
arguments=(ops '|' true)
("$LOCKSTEP" ops 2>"$work/stderr" || true) | true
[[ ! -s $work/stderr ]] || fail "a pipe that nobody reads"

# The main thread and the others need more stack than this.
if [[ $("$LOCKSTEP" version) != *sanitizers* ]]; then
    (ulimit -s 64 && run 0 train --data synthetic --limit-train 64 --limit-val 0 --epochs 1 --devices 2 &&
        says 'digest ')
fi
