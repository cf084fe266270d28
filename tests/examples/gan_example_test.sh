#!/usr/bin/env bash
# The example prints the same on one, two and three devices, with equal variables in all replicas of both models and the
# same samples, also if it is killed and resumed.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

example=$(dirname "$LOCKSTEP")/examples/gan
cd "$work"

for devices in 1 2 3; do
    "$example" synthetic 2 330 "${devices}xcpu" "$devices.png" >"$devices"
    [[ $(grep -c 'or: digest [0-9a-f]\{32\}$' "$devices") -eq $((2 * devices)) ]]
    grep -v -e '\.png$' -e '^no picture' "$devices" | uniq >"$devices.values"
done
cat 3
[[ $(wc -l <1.values) -eq 4 ]]
diff 1.values 2.values
diff 1.values 3.values
if ! grep -q '^no picture of samples: ' 1; then
    [[ $(head -c 4 1.png | tail -c 3) == PNG ]]
    cmp 1.png 2.png
    cmp 1.png 3.png
fi

newest_of()
{
    find "kept/$1" -name 'checkpoint-*' -printf '%f\n' | sort | tail -n 1
}

# The example is killed and resumed, each time on other devices. The third time it ends between the checkpoints of the
# two models.
"$example" synthetic 8 330 2xcpu whole.png >whole
grep ': digest ' whole | sort -u >whole.digests
for attempt in {1..4}; do
    LOCKSTEP_CHECKPOINT_SLOW=2 "$example" synthetic 8 330 "$((attempt % 3 + 1))xcpu" sheet.png kept >"killed.$attempt" &
    process=$!
    # When a run prints its third line, the checkpoints of its first epoch exist.
    while [[ -n $(jobs -pr) && $(grep -c '^Epoch ' "killed.$attempt") -lt 3 ]]; do
        sleep 0.02
    done
    sleep "0.0$((RANDOM % 10))"
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" || true
    if [[ $attempt -eq 3 ]]; then
        newest=$(newest_of discriminator)
        [[ $newest != "$(newest_of generator)" ]] || rm -rf "kept/discriminator/$newest"
    fi
done
"$example" synthetic 8 330 1xcpu sheet.png kept >last
cat last
grep -q '^Going on after' last
grep ': digest ' last | sort -u | diff whole.digests -
cat killed.* last | grep '^Epoch ' | sort -u | diff <(grep '^Epoch ' whole | sort -u) -
