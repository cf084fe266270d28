# Helpers of the tests of the command; each of them sources this file first. $work is the test's temporary folder; its
# files stdout and stderr hold the output of the last command.
# shellcheck shell=bash disable=SC2034 # the tests read these variables
set -euo pipefail

# Numbers in the compared texts have a decimal point, which printf and awk do not accept in every locale.
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

# run STATUS [ARGUMENT…]: runs lockstep, which must end with this status.
run()
{
    local expected=$1
    shift
    arguments=("$@")
    status=0
    "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
}

# Skips the test without script, which gives a terminal.
needs_terminal()
{
    if ! command -v script >/dev/null; then
        echo "SKIP: no script, which gives a terminal"
        exit 77
    fi
}

# on_terminal COLUMNS ARGUMENT…: runs lockstep on a terminal of kind $terminal, of which $work/screen gets all output.
on_terminal()
{
    local columns=$1 command
    shift
    arguments=("$@")
    : >"$work/stdout"
    command=$(printf '%q ' "$LOCKSTEP" "$@")
    status=0
    TERM=${terminal:-xterm} NO_COLOR='' timeout -k 5 200 script -qefc "stty cols $columns rows 24; $command" /dev/null \
        >"$work/screen" 2>&1 </dev/null || status=$?
    cp "$work/screen" "$work/stderr"
    [[ $status -eq 0 ]] || fail "exit status is not 0"
}

# Skips the test without MPI.
needs_mpi()
{
    if ! command -v mpirun >/dev/null || [[ ! -e $(dirname "$LOCKSTEP")/liblockstep_mpi.so ]]; then
        echo "SKIP: no mpirun, or no plug-in for MPI in this build"
        exit 77
    fi
}

# The number of cores that lockstep may use; nproc would read $OMP_NUM_THREADS.
count_cores()
{
    "$LOCKSTEP" devices | grep -c '^cpu:'
}

# --- the last output -------------------------------------------------------------------------------------------------

silent_stdout()
{
    [[ ! -s $work/stdout ]] || fail "stdout is not empty"
}

silent_stderr()
{
    [[ ! -s $work/stderr ]] || fail "stderr is not empty"
}

# complains TEXT…: stderr is one line, an error that contains each text. On a machine with fewer cores than devices a
# warning may come before it.
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

# complains_just TEXT: stderr is exactly this error.
complains_just()
{
    silent_stdout
    [[ $(<"$work/stderr") == "lockstep: $1" ]] || fail "stderr is not 'lockstep: $1'"
}

# says TEXT: stderr contains the text.
says()
{
    grep -qF -- "$1" "$work/stderr" || fail "stderr lacks '$1'"
}

# prints TEXT: stdout contains the text.
prints()
{
    grep -qF -- "$1" "$work/stdout" || fail "stdout lacks '$1'"
}

# line PATTERN: a line of stdout matches.
line()
{
    grep -qE -- "$1" "$work/stdout" || fail "no line of stdout matches '$1'"
}

# lines PATTERN…: stdout has as many lines as there are patterns, and each matches its pattern.
lines()
{
    [[ $(wc -l <"$work/stdout") -eq $# ]] || fail "stdout has not $# lines"
    local i=0 pattern
    for pattern in "$@"; do
        i=$((i + 1))
        sed -n "${i}p" "$work/stdout" | grep -qE -- "$pattern" || fail "line $i of stdout is not $pattern"
    done
}

# holds FILE TEXT…: the file contains each text.
holds()
{
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qF -- "$text" "$file" || fail "$file lacks '$text'"
    done
}

# field NAME: a value of hexadecimal digits in the last JSON line of stdout.
field()
{
    tail -n 1 "$work/stdout" | sed -n "s/.*\"$1\":\"\([0-9a-f]*\)\".*/\1/p"
}

# newest_checkpoint FOLDER: the steps of its newest checkpoint, or 0.
newest_checkpoint()
{
    local steps
    steps=$(find "$1" -name 'checkpoint-*' 2>/dev/null | sed 's/.*checkpoint-0*//' | sort -n | tail -n 1) || true
    echo "${steps:-0}"
}

# The time in milliseconds.
now()
{
    date +%s%3N
}

# bytes HEX…: writes these bytes to stdout.
bytes()
{
    printf '%b' "$(printf '\\x%s' "$@")"
}

# --- in the background -----------------------------------------------------------------------------------------------

# begin ARGUMENT…: starts lockstep in the background, as $process.
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

# until_true WHAT COMMAND…: waits until the command succeeds; its output is dropped. Fails if $process ends before.
until_true()
{
    local what=$1 tries=0
    shift
    until "$@" &>/dev/null; do
        # The process may have done it just before it ended, after the last try.
        kill -0 "$process" 2>/dev/null || "$@" &>/dev/null || fail "ended before $what was there"
        tries=$((tries + 1))
        [[ $tries -lt 2400 ]] || fail "$what does not come"
        sleep 0.05
    done
}

# until_there PATTERN FILE: waits until a line of the file matches.
until_there()
{
    until_true "'$1'" grep -qE -- "$1" "$2"
}

# Interrupts $process once more. A signal within a tenth of a second of the first would belong to the same request.
interrupt_again()
{
    sleep 0.2
    kill -INT "$process"
}

# The processor time of $process in ticks, a hundred a second.
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

# until_in_step: waits until $process has computed for 0.2 s more. If a step of several seconds is about to begin, it is
# then in that step.
until_in_step()
{
    until_true 'its step' has_worked_until $(($(processor_time) + 20))
}

# ends_with STATUS: waits for $process, which must end with this status.
ends_with()
{
    status=0
    wait "$process" || status=$?
    trap 'rm -rf "$work"' EXIT
    [[ $status -eq $1 ]] || fail "exit status is not $1"
}
