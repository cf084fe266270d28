#!/usr/bin/env bash
# `lockstep serve`: pages of real runs by HTTP, events while one trains, who is refused, and how it ends.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
# shellcheck source=tests/support/report_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/report_testing.sh"
# shellcheck source=tests/support/serve_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/serve_testing.sh"
cd "$work"

run 2 serve
complains 'a folder is missing'
run 2 serve a b
complains "unexpected argument 'b'"
mkdir runs
run 2 serve runs --port 65536
complains '65535'
if ! serves_pages; then
    run 1 serve runs
    complains 'this build has no libmicrohttpd'
    exit 0
fi
run 1 serve nowhere
complains_just 'nowhere: cannot be read: No such file or directory'
touch file
run 1 serve file
complains_just 'file: cannot be read: Not a directory'
run 1 serve runs --host no-such-host.invalid
complains '--host'
run 1 serve runs --host 198.51.100.7
complains '--host'
if [[ -w /dev/full ]]; then # nobody knows the address
    arguments=(serve runs --port 0)
    status=0
    timeout -k 5 100 "$LOCKSTEP" "${arguments[@]}" >/dev/full 2>"$work/stderr" </dev/null || status=$?
    [[ $status -eq 1 ]] || fail 'it serves, or ends otherwise'
    says 'lockstep: standard output could not be written: '
fi
needs_curl

# gets STATUS PATH [OPTION…]: the answer's body becomes the file body, its headers the file headers.
gets()
{
    local expected=$1 path=$2 got
    shift 2
    got=$(curl -s --max-time 20 --path-as-is -o body -D headers -w '%{http_code}' "$@" "$url$path") || fail "$path: curl fails"
    [[ $got == "$expected" ]] || fail "$path: status $got, not $expected: $(head -c 300 body)"
}

# --- pages ---

small=(train --model lenet --data synthetic --limit-train 64 --limit-val 32 --batch-size 16 --epochs 2 --shards 2)
run 0 "${small[@]}" --log-dir runs/a
hostile_run runs/hostile
cp -r runs/a 'runs/<h1 id=injected>'
echo '{"event":' >runs/a/epochs-2.jsonl
begin_server runs
gets 200 /
holds body '4 runs' '>a</a>' '>finished</span>' 'a/epochs-2.jsonl' 'is not JSON' '&lt;h1 id=injected&gt;' 'data-events="/events?since='
! grep -qE '<h1 id|<img|<script[^>]*>[^<]' body || fail 'markup of a run is markup of the list'
holds headers "Content-Security-Policy: default-src 'none'; script-src 'self';" 'X-Content-Type-Options: nosniff' \
    'X-Frame-Options: DENY' 'Referrer-Policy: no-referrer' 'Cache-Control: no-store'
! grep -qi '^Access-Control' headers || fail 'other sites may read the page'
gets 200 /run/a/epochs.jsonl
holds body 'lenet on synthetic' 'accuracy by epoch' 'Digests, and how to repeat it' '--batch-size 16' '<a href="/">'
! grep -q '<style' body || fail 'the page has a style sheet inside'
gets 200 /run/%3Ch1%20id=injected%3E/epochs.jsonl
gets 200 /run/hostile/epochs.jsonl
! grep -qE '<h1 id|<img src=x|<script>' body || fail 'markup of a run is markup of its page'
gets 200 /page.css
holds headers 'Content-Type: text/css'
gets 200 /page.js
holds headers 'Content-Type: text/javascript'
gets 200 / --head
[[ ! -s body || $(head -c 5 body) == HTTP/ ]] || fail 'HEAD gives a body'

# --- refused ---

gets 422 /run/a/epochs-2.jsonl
for path in /nowhere /run/ /run/a /run/nowhere/epochs.jsonl /run/../file /run/a/../../file /run/%2e%2e/file \
    /run/a%2f..%2f..%2ffile /run//etc/passwd /../../etc/passwd /run/a/steps.jsonl /run/a/epochs.jsonl%00.html/x /events/nowhere; do
    gets 404 "$path"
done
gets 200 / -X GET -d x # nobody needs the body
for method in POST PUT DELETE PATCH OPTIONS TRACE; do
    gets 405 / -X "$method" -d x
    holds headers 'Allow: GET, HEAD'
done
for name in evil.example localhost.evil.example 198.51.100.7 ''; do
    gets 403 / -H "Host: $name"
done
gets 200 / -H 'Host: localhost:9'
gets 200 / --request-target "$url/" # as to a proxy
gets 403 / --request-target http://evil.example/
ln -s /etc runs/etc
ln -s "$work/file" runs/hostile/scaling.json
gets 200 /run/hostile/epochs.jsonl
holds body 'scaling.json: leads out of the folder'
if curl -s --max-time 5 -o body "http://127.0.0.2:${url##*:}/"; then
    fail 'it listens on other addresses too'
fi

# --- it follows a run ---

curl -sN --max-time 300 -o list "$url/events?since=0" &
listener=$!
others+=("$listener")
arguments=("${small[@]}" --limit-train 1600 --epochs 10000 --log-dir runs/now)
"$LOCKSTEP" "${arguments[@]}" >train.out 2>&1 </dev/null &
trainer=$!
others+=("$trainer")
until_true 'the run in the list' grep -qE 'now/epochs.jsonl">now</a></td><td class="mark"><span class="state trains">' list
curl -sN --max-time 300 -o progress "$url/events/now/epochs.jsonl?since=$(sed -n 's/^id: //p' list | tail -n 1)" &
follower=$!
others+=("$follower")
until_true 'a step' grep -qE '^data: .*Step [0-9]+, loss' progress
until_true 'the next step' bash -c "[[ \$(grep -oE 'Step [0-9]+' progress | sort -u | wc -l) -gt 1 ]]"
until_true 'an epoch' grep -qE '^data: .*best validation accuracy, epoch&nbsp;1' progress
until_true 'its row' bash -c "grep -F '>now</a>' list | grep -q '[0-9] %'"
gets 200 /run/now/epochs.jsonl
holds body ' · trains' '<progress'
kill -KILL "$trainer"
wait "$trainer" || true
until_true 'the end of the run' grep -q '^event: reload' progress
until_true 'its end in the list' bash -c "grep -F '>now</a>' list | tail -n 1 | grep -q '>interrupted<'"
gets 200 /run/now/epochs.jsonl
holds body ' · interrupted'

# --- a port in use, and the end ---

run_beside 1 serve runs --port "${url##*:}"
grep -qxF "lockstep: 127.0.0.1:${url##*:}: the port is in use: choose another by --port, or any free one by --port 0" beside ||
    fail "not told that the port is in use: $(<beside)"
mv runs gone
until_there '^warning: .*/runs: cannot be read: No such file or directory' "$work/stderr"
gets 200 /
holds body 'cannot be read: No such file'
gets 404 /run/a/epochs.jsonl
mv gone runs
until_true 'the folder again' bash -c "curl -s '$url/' | grep -q '>a</a>'"
[[ $(grep -c '^warning' "$work/stderr") -eq 1 ]] || fail 'not one warning'
kill -TERM "$process"
ends_with 0
wait "$listener" || fail 'the stream of the list does not end'
wait "$follower" || fail 'the stream of the run does not end'
others=()
begin_server runs
kill -INT "$process"
ends_with 0

# --- with a token ---

begin_server runs --host 0.0.0.0
token=${url##*token=}
[[ ${#token} -eq 64 && $token != *[^0-9a-f]* ]] || fail "the token is '$token'"
url=http://127.0.0.1:$(sed -E 's#.*:([0-9]+)/.*#\1#' <<<"$url")
for path in / /page.css /page.js /events /run/a/epochs.jsonl /nowhere "/?token=${token%?}" "/?token=${token}0" '/?token='; do
    gets 401 "$path"
done
gets 401 / -H "Authorization: Bearer ${token%?}g"
gets 401 / -b "lockstep-${url##*:}=${token%?}"
gets 200 /run/a/epochs.jsonl -H "Authorization: Bearer $token"
gets 303 "/?token=$token" -c cookies
grep -qi '^Location: /.$' headers || fail 'the address still has the token'
grep -qi '^Set-Cookie: .*HttpOnly; SameSite=Strict' headers || fail 'the cookie is for scripts and other sites too'
gets 200 / -b cookies
! grep -q "$token" body || fail 'the page has the token'
gets 403 / -b cookies -H 'Host: evil.example'
first=$token
kill -TERM "$process"
ends_with 0
[[ $(grep -c "$first" "$work/stdout" "$work/stderr" | awk -F: '{ n += $2 } END { print n }') -eq 1 ]] || fail 'the token is not printed once'
begin_server runs --host 0.0.0.0
[[ ${url##*token=} != "$first" ]] || fail 'two servers have one token'
kill -TERM "$process"
ends_with 0
