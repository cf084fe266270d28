# Helpers of the tests of `lockstep launch`. Source cli_testing.sh first.
# shellcheck shell=bash disable=SC2154 # $work is set there

# All processes of this test have this number in their arguments.
# Trainings with this seed need a low --base-lr: with the default one, some seeds diverge after a thousand steps.
mark=$((RANDOM * 32768 + RANDOM + 1000000))
process=

clean_up()
{
    [[ -z $process ]] || kill -KILL "$process" 2>/dev/null || true
    pkill -KILL -f -- "--seed $mark" || true
    rm -rf "$work"
}
trap clean_up EXIT

# Waits until all processes of this test have ended, shortly after the launcher.
none_left()
{
    local tries=0
    while pgrep -f -- "--seed $mark" >/dev/null; do
        tries=$((tries + 1))
        [[ $tries -lt 600 ]] || fail "left behind: $(pgrep -fa -- "--seed $mark")"
        sleep 0.1
    done
}

# process_of_rank RANK COMMAND: the rank's process with this command.
process_of_rank()
{
    local id
    for id in $(pgrep -f -- "^[^ ]*$2 .*--seed $mark"); do
        if grep -zqxE "(LOCKSTEP_RANK|OMPI_COMM_WORLD_RANK)=$1" "/proc/$id/environ"; then
            echo "$id"
        fi
    done
}

# launch STATUS ARGUMENT…: runs lockstep launch, which must end with this status.
launch()
{
    local expected=$1
    shift
    arguments=(launch "$@" --seed "$mark")
    status=0
    timeout -k 5 200 "$LOCKSTEP" "${arguments[@]}" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq $expected ]] || fail "exit status is not $expected"
    none_left
}

# begin_launch ARGUMENT…: starts lockstep launch in the background, as $process.
begin_launch()
{
    begin launch "$@"
    trap clean_up EXIT
}

# ended STATUS PATTERN: the launcher ends with this status, the last line of stderr matches, and no process is left.
ended()
{
    ends_with "$1"
    process=
    trap clean_up EXIT
    tail -n 1 "$work/stderr" | grep -qE -- "$2" || fail "the last line is not $2"
    none_left
}
