# What the tests of `lockstep launch` share, after cli_testing.sh.
# shellcheck shell=bash disable=SC2154 # $work is set there

# Every process of this test has this in its arguments.
mark=$((RANDOM * 32768 + RANDOM + 1000000))
process=

clean_up()
{
    [[ -z $process ]] || kill -KILL "$process" 2>/dev/null || true
    pkill -KILL -f -- "--seed $mark" || true
    rm -rf "$work"
}
trap clean_up EXIT

# None of the processes may be there for long after the launcher.
none_left()
{
    local tries=0
    while pgrep -f -- "--seed $mark" >/dev/null; do
        tries=$((tries + 1))
        [[ $tries -lt 600 ]] || fail "left behind: $(pgrep -fa -- "--seed $mark")"
        sleep 0.1
    done
}

# launch STATUS ARGUMENT…
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

# ended STATUS PATTERN: the launcher ends so, and the last line is that.
ended()
{
    ends_with "$1"
    process=
    trap clean_up EXIT
    tail -n 1 "$work/stderr" | grep -qE -- "$2" || fail "the last line is not $2"
    none_left
}

now()
{
    date +%s%3N
}
