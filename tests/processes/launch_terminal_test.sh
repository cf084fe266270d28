#!/usr/bin/env bash
# On a terminal lockstep launch shows the progress bar of rank 0, cut to the terminal's width, below the lines of all
# ranks; logs and other streams get none of it.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

needs_terminal
escape=$(printf '\033')
# Bars that come together are drawn once, so there are many steps: some of their bars come alone even on a busy machine.
train=(-- train --data synthetic --limit-train 1600 --limit-val 60 --batch-size 64 --epochs 9 --shards 8 --workers 1
    --devices cpu:0 --seed "$mark")
for columns in 40 100; do
    on_terminal "$columns" launch -n 2 --log-dir "$work/logs" "${train[@]}"
    tr '\r' '\n' <"$work/screen" >"$work/lines"
    bars=$(grep -c "^$escape\[K\[0\] epoch [1-9]/9 " "$work/lines") || fail "there is no bar"
    [[ $bars -ge 4 ]] || fail "there are $bars bars"
    if [[ $columns -eq 100 ]]; then
        grep -q "^$escape\[K\[0\] epoch [1-9]/9 \[#*\] 25/25  loss .* images/s" "$work/lines" || fail "no full bar"
    fi
    # Without their sequences, neither bars nor lines are wider than the terminal.
    sed "s/$escape\[[0-9;]*[a-zA-Z]//g" "$work/lines" | awk -v most="$columns" '
        /^\[0\] (epoch|batch)/ && length($0) >= most { print "too wide: " $0; wide = 1 }
        END { exit wide }' || fail "a line is too wide"
    grep -q "^$escape\[K\[0\] epoch 9/9  " "$work/lines" || fail "the bar is not cleared before a line"
    grep -q "$escape\[1mdone: 225 steps" "$work/lines" || fail "the last lines are not as on a terminal"
    holds "$work/logs/rank-0.log" 'epoch 9/9' 'done: 225 steps'
    if grep -q "$escape" "$work/logs/rank-0.log" || grep -q '#' "$work/logs/rank-0.log"; then
        fail "the log holds what only a terminal shows"
    fi
    none_left
done

# Standard output that is a terminal too is not mixed with the bar.
on_terminal 100 launch -n 2 "${train[@]}" --json
tr '\r' '\n' <"$work/screen" | sed "s/^$escape\[K//" | grep -c '^{.*}$' >"$work/objects" || true
[[ $(<"$work/objects") -eq 10 ]] || fail "there are not ten objects in lines of their own"

launch 0 -n 2 "${train[@]}"
if grep -q "$escape" "$work/stderr"; then
    fail "a file gets what only a terminal shows"
fi
