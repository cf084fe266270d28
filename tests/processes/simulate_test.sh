#!/usr/bin/env bash
# Under SimGrid's SMPI every element of the sums is right, flat and along the tree.
set -euo pipefail

if ! command -v smpirun >/dev/null || ! command -v python3 >/dev/null; then
    echo "SKIP: SimGrid or python3 is missing (Debian and Ubuntu: libsimgrid-dev, python3)"
    exit 77
fi
exec python3 "$(dirname "$0")/../../bench/simulate" --check
