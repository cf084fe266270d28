#!/usr/bin/env bash
# Interrupts while data are opened: commands end soon with status 130, and leave nothing half-written.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
export XDG_CACHE_HOME=$work/cache
packed=$XDG_CACHE_HOME/lockstep/packed

# With many cores all pictures would be decoded before the interrupt.
allowed=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
if command -v taskset >/dev/null; then
    taskset -cp "$allowed" $$ >/dev/null
fi

# Pictures that take long to decode but no disk space: one sparse file of zeroes under many names.
mkdir -p "$work"/slow/{a,b}
printf 'P5\n8000 8000\n255\n' >"$work/slow/a/0.pgm"
truncate -s $((64000000 + $(stat -c %s "$work/slow/a/0.pgm"))) "$work/slow/a/0.pgm"
for i in {1..40}; do
    ln "$work/slow/a/0.pgm" "$work/slow/a/$i.pgm"
    ln "$work/slow/a/0.pgm" "$work/slow/b/$i.pgm"
done

# leaves_nothing: the cache holds no decoded pictures, complete or not.
leaves_nothing()
{
    ! compgen -G "$packed/*.pack*" >/dev/null || fail "it left $(ls "$packed")"
}

# interrupted SIGNAL ARGUMENT…
interrupted()
{
    local signal=$1
    shift
    begin "$@"
    until_true "the cache's file" compgen -G "$packed/*.pack.tmp"
    kill -"$signal" "$process"
    ends_with 130
    silent_stdout
    says 'stopping; a second interrupt ends at once'
    grep -qE '^lockstep: .*slow: interrupted after [0-9]+ of [0-9]+ pictures were decoded$' "$work/stderr" ||
        fail "it does not say where it was"
    leaves_nothing
}

interrupted INT train --data "$work/slow" --resize 28x28 --val-split 0.2 --devices 1xcpu --checkpoint-dir "$work/ck"
[[ -z $(ls "$work/ck") ]] || fail "it left something among checkpoints"
interrupted TERM train --data "$work/slow" --resize 28x28 --val-split 0.2 --devices 1xcpu --workers 0 --json
interrupted INT data info "$work/slow" --resize 28x28
interrupted TERM data preview "$work/slow" --resize 28x28
interrupted INT verify --data "$work/slow" --resize 28x28
interrupted INT profile --data "$work/slow" --resize 28x28 --devices 1xcpu
interrupted INT summary --data "$work/slow" --resize 28x28

# A process that waits for another one shows that on a terminal, and can be interrupted.
if command -v flock >/dev/null && command -v script >/dev/null; then
    locks=0 # which the process has from here, and one more of its own where it waits
    for lock in "$packed"/*.lock; do
        exec {held}>"$lock"
        flock "$held"
        locks=$((locks + 1))
    done
    waits_for_lock()
    {
        [[ $(find "/proc/$process/fd" -lname '*.lock' | wc -l) -gt $locks ]] &&
            grep -q '^State:.*sleeping' "/proc/$process/status"
    }
    begin data info "$work/slow" --resize 28x28
    until_true 'its wait' waits_for_lock
    kill -INT "$process"
    ends_with 130
    says 'slow: interrupted while another process decodes its pictures'
    : >"$work/terminal"
    script -qefc "'$LOCKSTEP' data info '$work/slow' --resize 28x28" "$work/terminal" >"$work/stdout" 2>&1 </dev/null &
    process=$!
    trap 'kill -TERM "$process" 2>/dev/null || true; rm -rf "$work"' EXIT
    until_there 'waiting for another process that prepares .*slow' "$work/terminal"
    kill -TERM "$process"
    wait "$process" || true
else
    echo "no flock or no script: nothing is known of terminals"
fi
