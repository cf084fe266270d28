#!/usr/bin/env bash
# The example prints the same on one, two and four devices, and learns its drawings.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

example=$(dirname "$LOCKSTEP")/examples/own_images
for devices in 1 2 4; do
    "$example" "${devices}xcpu" >"$work/$devices"
done
cat "$work/1"
diff "$work/1" "$work/2"
diff "$work/1" "$work/4"
[[ $(<"$work/1") =~ ^accuracy\ 0\.([0-9]{4})\ after\ 3\ epochs,\ digest\ [0-9a-f]{32}$ ]]
((10#${BASH_REMATCH[1]} > 4000)) # by chance it were 0.2

status=0
"$example" 0xcpu >/dev/null 2>"$work/stderr" || status=$?
[[ $status -eq 1 && $(<"$work/stderr") == own_images:* ]]
