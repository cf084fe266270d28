#!/usr/bin/env bash
# Exit status, texts and streams of the command itself and of help, version and doctor.
set -euo pipefail

output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

fail()
{
    echo "lockstep ${arguments[*]}: $1"
    echo "exit status $status; stdout, then stderr:"
    cat "$output/stdout" "$output/stderr"
    exit 1
}

# run STATUS [ARGUMENT…]
run()
{
    local expected=$1
    shift
    arguments=("$@")
    status=0
    "$LOCKSTEP" "$@" >"$output/stdout" 2>"$output/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
}

prints()
{
    grep -qF -- "$1" "$output/stdout" || fail "stdout lacks '$1'"
    [[ ! -s $output/stderr ]] || fail "stderr is not empty"
}

complains()
{
    [[ $(<"$output/stderr") == "lockstep: $1" ]] || fail "stderr is not 'lockstep: $1'"
    [[ ! -s $output/stdout ]] || fail "stdout is not empty"
}

run 0 help
prints 'Usage: lockstep COMMAND'
mapfile -t commands < <(awk '/^  [a-z]/ { print $1 }' "$output/stdout")
for command in "${commands[@]}"; do
    run 0 help "$command"
    prints "Usage: lockstep $command"
    cp "$output/stdout" "$output/help"
    run 0 "$command" --help
    cmp -s "$output/stdout" "$output/help" || fail "differs from 'lockstep help $command'"
    run 2 "$command" --no-such-option
done

run 0 --help
prints 'Usage: lockstep COMMAND'
run 0 -h
prints 'Usage: lockstep COMMAND'
run 0 --version
grep -qE '^lockstep [0-9]+\.[0-9]+\.[0-9]+ \(' "$output/stdout" || fail "no version"
cp "$output/stdout" "$output/version"
run 0 version
cmp -s "$output/stdout" "$output/version" || fail "differs from --version"

run 0 doctor
for library in zlib xxHash jansson oneDNN hwloc libcurl libcairo; do
    prints "  $library "
done
prints 'processors this process may use: '

run 2
complains "a command is missing: 'lockstep help' lists those there are"
run 2 docter
complains "unknown command 'docter': did you mean 'doctor'?"
run 2 help versoin
complains "unknown command 'versoin': did you mean 'version'?"
run 2 xylophone
complains "unknown command 'xylophone': 'lockstep help' lists those there are"
run 2 help version doctor
complains "unexpected argument 'doctor': help describes one command at a time"
run 2 version now
complains "unexpected argument 'now'"
run 2 version --quiet
complains "unknown option '--quiet': see --help for those there are"

# A result that could not be written is no success.
status=0
"$LOCKSTEP" doctor >/dev/full 2>"$output/stderr" || status=$?
[[ $status -eq 1 && $(<"$output/stderr") == 'lockstep: standard output could not be written' ]] ||
    { echo "a full disk gave exit status $status"; exit 1; }
status=0
"$LOCKSTEP" doctor >&- 2>"$output/stderr" || status=$?
[[ $status -eq 1 ]] || { echo "a closed stdout gave exit status $status"; exit 1; }
