#!/usr/bin/env bash
# Manual pages are well-formed and name every command and option, and shells complete what help lists.
# shellcheck source=tests/support/cli_testing.sh
. "$(dirname "$0")/../support/cli_testing.sh"

mkdir "$work/man"
run 0 manual "$work/man"
for shell in bash zsh fish; do
    run 0 completion $shell
    cp "$work/stdout" "$work/$shell"
done

# --- manual pages ----------------------------------------------------------------------------------------------------

run 0 help
mapfile -t commands < <(sed -nE 's/^  ([a-z-]+) +.*/\1/p' "$work/stdout")
[[ ${#commands[@]} -gt 10 ]] || fail "help lists ${#commands[@]} commands"
for name in lockstep "${commands[@]/#/lockstep-}"; do
    [[ -s $work/man/$name.1 ]] || fail "no manual page $name"
    text=$(<"$work/man/$name.1")
    ! LC_ALL=C grep -q '[^[:print:][:space:]]' <<<"$text" || fail "$name.1 is not in ASCII"
    if command -v groff >/dev/null; then
        warnings=$(groff -man -Kutf8 -Tutf8 -ww <<<"$text" 2>&1 >/dev/null)
        [[ -z $warnings ]] || fail "$name.1: $warnings"
    fi
    if command -v mandoc >/dev/null; then
        warnings=$(mandoc -Tlint -Wwarning <<<"$text" | grep -v 'missing date' || true)
        [[ -z $warnings ]] || fail "$name.1: $warnings"
    fi
    [[ $name != lockstep ]] || continue
    run 0 help "${name#lockstep-}"
    while read -r option; do
        grep -qF -- "\\fB${option//-/\\-}\\fR" <<<"$text" || fail "$name.1 lacks $option"
    done < <(sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' "$work/stdout")
done

# Every option of train is under the heading of its group, in help and in the manual page, and a heading comes once.
run 0 help train
sed -n '/^Examples:$/,/^$/s/^  //p' "$work/stdout" >"$work/examples"
[[ $(wc -l <"$work/examples") -ge 3 ]] || fail 'no examples'
awk '/^$/ { heading = 0 } /^[A-Z][a-z ]*:$/ { heading = 1 } /^  --/ && !heading { print; bad = 1 } END { exit bad }' \
    "$work/stdout" || fail 'options without a group'
mapfile -t headings < <(sed -n 's/^\([A-Z][a-z ]*\):$/\1/p' "$work/stdout" | grep -v '^Examples$')
[[ ${#headings[@]} -ge 5 && -z $(printf '%s\n' "${headings[@]}" | sort | uniq -d) ]] || fail "headings: ${headings[*]}"
[[ $(sed -n 's/^\.SS //p' "$work/man/lockstep-train.1") == "$(printf '%s\n' "${headings[@]}")" ]] ||
    fail 'the manual page has other groups than help'

# --- completion ------------------------------------------------------------------------------------------------------

completes()
{
    local expected=$1
    shift
    found=$(bash --norc -c '. "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep
        echo "${COMPREPLY[*]}"' bash "$work/bash" "$@")
    [[ $found == "$expected" ]] || fail "'$*' is completed to '$found', not '$expected'"
}
completes "train" lockstep tra
completes "--dtype" lockstep train --dt
completes "f32 bf16 auto" lockstep train --dtype ""
completes "bf16" lockstep train --dtype = b
completes "--optimizer-state" lockstep launch -n 2 -- train --optimizer-
completes "--workers" lockstep launch --wor
completes "profile" lockstep help prof
completes "" lockstep train --seed ""
mkdir -p "$work/folders/logs-1"
cd "$work/folders"
completes "logs-1" lockstep train --log-dir lo
completes "logs-1" lockstep export ""

# Names that the library knows, and files that may be given instead.
mkdir "$work/files"
cd "$work/files"
touch net.lk
mapfile -t models < <("$LOCKSTEP" models | awk 'NR > 1 { print $1 }')
mapfile -t data < <("$LOCKSTEP" data list | awk '{ print $1 }')
mapfile -t recipes < <("$LOCKSTEP" recipes | awk '{ print $1 }')
completes "${models[*]} net.lk" lockstep train --model ""
completes "lenet" lockstep summary --model le
completes "net.lk" lockstep launch -- train --model ne
completes "${data[*]} net.lk" lockstep evaluate --data ""
completes "mnist" lockstep data fetch mn
completes "parameter-server" lockstep train --strategy par
completes "adam adamw" lockstep train --optimizer ad
completes "${recipes[*]}" lockstep recipes ""
completes "net.lk" lockstep train --weights ne
completes "compare" lockstep runs comp
if command -v fish >/dev/null; then
    found=$(HOME=$work fish --no-config -c "source '$work/fish'; complete -C 'lockstep train --model '" | cut -f 1 | sort)
    [[ $found == "$(printf '%s\n' "${models[@]}" net.lk | sort)" ]] || fail "fish completes models to '$found'"
    found=$(HOME=$work fish --no-config -c "source '$work/fish'; complete -C 'lockstep launch -'" | cut -f 1)
    [[ $found == *-n* && $found == *--processes* ]] || fail "fish completes options of launch to '$found'"
fi
grep -qF "'-n[the same as --processes]:N: '" "$work/zsh" || fail "zsh takes what follows -n of launch for a command"
for shell in zsh fish; do
    ! command -v $shell >/dev/null || $shell -n "$work/$shell" || fail "$shell cannot read its completion"
done
run 2 completion tcsh
complains_just "unknown shell 'tcsh': expected bash, zsh or fish"
