# A server of pages for tests. Source this after cli_testing.sh.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests and cli_testing.sh share these variables

# Whether this build has `lockstep serve`.
serves_pages()
{
    "$LOCKSTEP" doctor 2>/dev/null | grep -E '^  libmicrohttpd +[0-9]' >/dev/null
}

# Skips the rest of the test without curl.
needs_curl()
{
    if ! command -v curl >/dev/null; then
        echo 'SKIP: no curl'
        exit 77
    fi
}

# Processes in the background besides $process, which end with the test.
others=()

# begin_server FOLDER [OPTION…]: starts a server on a free port, as $process; $url is its address without the last slash.
begin_server()
{
    begin serve "$@" --port 0
    trap 'kill -KILL "$process" "${others[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
    until_there '^http://' "$work/stdout"
    url=$(<"$work/stdout")
    url=${url%/}
}

# run_beside STATUS ARGUMENT…: runs lockstep while $process runs; what it prints becomes the file beside.
run_beside()
{
    local expected=$1 got=0
    shift
    "$LOCKSTEP" "$@" >"$work/beside" 2>&1 </dev/null || got=$?
    [[ $got -eq $expected ]] || fail "$*: exit status $got, not $expected: $(<"$work/beside")"
}
