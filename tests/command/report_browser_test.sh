#!/usr/bin/env bash
# Pages in a browser, at the widths of a phone and of a desktop: no error, nothing fetched, nothing cut off.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
# shellcheck source=tests/support/report_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/report_testing.sh"
# shellcheck source=tests/support/serve_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/serve_testing.sh"
look=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../support/look_at_page.py

browser=$(command -v chromium-headless-shell || command -v chromium || true)
if [[ ! $browser ]] || ! command -v python3 >/dev/null; then
    echo 'SKIP: no Chromium (package chromium-headless-shell), or no python3'
    exit 77
fi
cd "$work"

# looks_well PAGE [COMMAND CONDITION]: a file or a URL; the page must fulfill the condition after the command
looks_well()
{
    python3 "$look" "$browser" "$1" '' "${@:2}" >"$work/look" 2>&1 || fail "$1 does not look well: $(<"$work/look")"
}

run 0 train --model lenet --data synthetic --limit-train 64 --limit-val 32 --batch-size 16 --epochs 2 --devices 2xcpu:0 \
    --log-dir logs --checkpoint-dir kept --trace trace.json
cp trace.json logs
run 0 evaluate kept --out logs
run 0 report logs --html page.html
looks_well page.html

long_run long
run 0 report long --html long.html
[[ $(wc -l <long/steps.jsonl) -eq 6097 ]] || fail "$(wc -l <long/steps.jsonl) points"
[[ $(stat -c %s long.html) -lt 1000000 ]] || fail "the page of a million steps has $(stat -c %s long.html) bytes"
looks_well long.html

hostile_run hostile
run 0 report hostile long logs --html compared.html
looks_well compared.html
run 0 report hostile --html hostile.html
looks_well hostile.html

# The same from a server, and a run that trains meanwhile.
if serves_pages; then
    mkdir runs 'runs/<h1 id=injected>'
    mv logs long hostile runs
    cp runs/logs/*.jsonl 'runs/<h1 id=injected>'
    echo '<h1 id=injected>' >runs/epochs.jsonl
    "$LOCKSTEP" train --model lenet --data synthetic --limit-train 1600 --batch-size 16 --epochs 10000 --devices 1 \
        --log-dir runs/now >train.out 2>&1 </dev/null &
    others=($!)
    begin_server runs
    until_true 'a step' grep -q step runs/now/steps.jsonl
    for path in / /run/now/epochs.jsonl /run/logs/epochs.jsonl /run/long/epochs.jsonl /run/hostile/epochs.jsonl; do
        looks_well "$url$path"
    done
    looks_well "$url/" 'mkdir runs/new && cp runs/logs/epochs.jsonl runs/new' \
        "[...document.querySelectorAll('#runs tr')].some(row => row.cells[0].textContent == 'new')"
    looks_well "$url/" "kill -KILL ${others[0]}" "!document.querySelector('#runs .trains')"
    wait "${others[@]}" || true
    others=()
    kill -TERM "$process"
    ends_with 0
fi
