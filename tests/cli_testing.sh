# What the tests of the command share; cli_*_test.sh source it first. $work is a folder of the test's own, in which stdout
# and stderr are what the command printed last.
# shellcheck shell=bash disable=SC2034 # what is set here is read there
set -euo pipefail

# What is compared here has a point in its numbers, which printf and awk would not take in every language.
if [[ -n ${LC_ALL-} ]]; then
    export LANG=$LC_ALL
    unset LC_ALL
fi
export LC_NUMERIC=C

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ulimit -c 0
arguments=()
status=-

fail()
{
    echo "lockstep ${arguments[*]}: $1"
    echo "exit status $status; the last lines of stdout and stderr:"
    tail -n 40 "$work/stdout" "$work/stderr"
    exit 1
}

# run STATUS [ARGUMENT…]
run()
{
    local expected=$1
    shift
    arguments=("$@")
    status=0
    "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
}

# For tests of several processes. Open MPI loses sight of memory of modules that it unloads, which is no leak of ours.
needs_mpi()
{
    if ! command -v mpirun >/dev/null || [[ ! -e $(dirname "$LOCKSTEP")/liblockstep_mpi.so ]]; then
        echo "SKIP: no mpirun, or no plug-in for MPI in this build"
        exit 77
    fi
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}

# How many cores it may use; nproc would go by $OMP_NUM_THREADS.
count_cores()
{
    "$LOCKSTEP" devices | grep -c '^cpu:'
}

# --- what it printed -------------------------------------------------------------------------------------------------

silent_stdout()
{
    [[ ! -s $work/stdout ]] || fail "stdout is not empty"
}

silent_stderr()
{
    [[ ! -s $work/stderr ]] || fail "stderr is not empty"
}

# An error: one line, in which each of the texts stands. A machine with fewer cores than devices says that before.
complains()
{
    local text lines
    silent_stdout
    lines=$(grep -vE '^warning: ([0-9]+ [a-z]+ devices share|[a-z]+:[0-9]+ is beyond)' "$work/stderr" || true)
    [[ $lines == 'lockstep: '* && $lines != *$'\n'* && -z $(tail -c 1 "$work/stderr") ]] ||
        fail "not one line on stderr"
    for text in "$@"; do
        says "$text"
    done
}

# An error of this text and no other.
complains_just()
{
    silent_stdout
    [[ $(<"$work/stderr") == "lockstep: $1" ]] || fail "stderr is not 'lockstep: $1'"
}

# says TEXT: on stderr.
says()
{
    grep -qF -- "$1" "$work/stderr" || fail "stderr lacks '$1'"
}

# prints TEXT: on stdout.
prints()
{
    grep -qF -- "$1" "$work/stdout" || fail "stdout lacks '$1'"
}

# line PATTERN: of stdout.
line()
{
    grep -qE -- "$1" "$work/stdout" || fail "no line of stdout matches '$1'"
}

# lines PATTERN…: stdout has exactly these.
lines()
{
    [[ $(wc -l <"$work/stdout") -eq $# ]] || fail "stdout has not $# lines"
    local i=0 pattern
    for pattern in "$@"; do
        i=$((i + 1))
        sed -n "${i}p" "$work/stdout" | grep -qE -- "$pattern" || fail "line $i of stdout is not $pattern"
    done
}

# holds FILE TEXT…
holds()
{
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qF -- "$text" "$file" || fail "$file lacks '$text'"
    done
}

# bytes HEX…: writes them to stdout.
bytes()
{
    printf '%b' "$(printf '\\x%s' "$@")"
}

# --- in the background -----------------------------------------------------------------------------------------------

# begin ARGUMENT…: its process is $process.
begin()
{
    arguments=("$@")
    status=-
    : >"$work/stdout"
    : >"$work/stderr"
    "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null &
    process=$!
    trap 'kill -KILL "$process" 2>/dev/null || true; rm -rf "$work"' EXIT
}

# until_true WHAT COMMAND…: waits until the command, which prints nothing that counts, succeeds.
until_true()
{
    local what=$1 tries=0
    shift
    until "$@" &>/dev/null; do
        # It may have come, as the last thing, since it was looked for.
        kill -0 "$process" 2>/dev/null || "$@" &>/dev/null || fail "ended before $what was there"
        tries=$((tries + 1))
        [[ $tries -lt 2400 ]] || fail "$what does not come"
        sleep 0.05
    done
}

# until_there PATTERN FILE
until_there()
{
    until_true "'$1'" grep -qE -- "$1" "$2"
}

# In ticks, of which there are a hundred a second.
processor_time()
{
    local fields
    fields=$(<"/proc/$process/stat")
    read -ra fields <<<"${fields##*) }"
    echo $((fields[11] + fields[12]))
}

has_worked_until()
{
    [[ $(processor_time) -ge $1 ]]
}

# until_in_step: it has computed for longer than anything takes but a step of seconds, which is about to begin.
until_in_step()
{
    until_true 'its step' has_worked_until $(($(processor_time) + 20))
}

# ends_with STATUS
ends_with()
{
    status=0
    wait "$process" || status=$?
    trap 'rm -rf "$work"' EXIT
    [[ $status -eq $1 ]] || fail "exit status is not $1"
}
