#!/usr/bin/env bash
# The example prints the same on one, two and three devices, lowers its rate as the tutorial does, and writes records.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

example=$(dirname "$LOCKSTEP")/examples/keras_mnist
cd "$work"

for devices in 1 2 3; do
    "$example" synthetic 8 128 "${devices}xcpu" >"$devices"
    [[ $(head -n 1 "$devices") == "Number of devices: $devices" ]]
    sed -i 1d "$devices"
done
cat 1
diff 1 2
diff 1 3
grep -Eq '^digest [0-9a-f]{32}$' 1
mapfile -t rates < <(sed -n 's/^Learning rate for epoch [0-9]* is //p' 1)
[[ ${rates[*]} == '0.001 0.001 0.001 0.0001 0.0001 0.0001 0.0001 1e-05' ]]
[[ $(grep -c '^Image [0-9]: class ' 1) -eq 8 ]]
ls logs/*tfevents*

status=0
"$example" synthetic 0 >/dev/null 2>stderr || status=$?
[[ $status -eq 2 && $(<stderr) == "keras_mnist: '0': a number from 1 to 1000 is needed" ]]
