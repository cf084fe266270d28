#!/usr/bin/env bash
# On a narrow terminal no line is broken in a word: columns are left out, and texts are wrapped between words. On a wide
# one, lines are as in a file.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
needs_terminal
cd "$work"
export LC_ALL=C # so that awk counts characters

escape=$(printf '\033')
# shows COLUMNS ARGUMENT…: $work/lines gets the lines of a command, without sequences; none is wider than the terminal.
shows()
{
    on_terminal "$@"
    tr '\r' '\n' <screen | sed "s/$escape\[[0-9;]*[a-zA-Z]//g" | sed '/^$/d' >lines
    [[ -s lines ]] || fail 'there are no lines'
    awk -v most="$1" 'length($0) > most { print "too wide: " $0; wide = 1 } END { exit wide }' lines ||
        fail "a line is wider than $1 columns"
}

train=(train --model lenet --data synthetic --limit-train 256 --limit-val 32 --batch-size 32 --devices 2xcpu:0)
shows 60 "${train[@]}" --epochs 10 --log-dir logs/first --checkpoint-dir kept
grep -qE '^epoch 10/10 .*val accuracy' lines || fail 'an epoch has no accuracy'
grep -qE '^done: 80 steps in .*, val accuracy [01]\.[0-9]{4}$' lines || fail 'the last line has no accuracy'
digest=$(awk '/^digest/ { print $2 }' lines)
run 0 "${train[@]}" --epochs 1 --optimizer adam --log-dir logs/another-with-a-long-name

shows 60 runs logs
grep -qE '^run +model +epochs +best accuracy$' lines || fail 'the heads are others'
shows 60 runs compare logs/another-with-a-long-name logs/first
# The digest is whole, in two lines.
awk '/^  digest/ { print $3; getline; print $2 }' lines | tr -d '\n' >digest
[[ $(<digest) == "$digest" ]] || fail "the digest $(<digest) is not $digest"
shows 60 runs compare logs/first logs/first
grep -q 'no setting differs' lines || fail 'a setting differs'
shows 60 summary
grep -qE '^layer +output +parameters +flops$' lines || fail 'the heads are others'
shows 60 summary --model resnet18 --memory --batch-size 8
grep -qE '^ +peak +[0-9.]+ MiB +needed at the same time:$' lines || fail 'a note is not wrapped'
shows 60 summary --devices 2 --batch-size 64
shows 60 models
grep -qE '^ +layers, of Dive into Deep$' lines || fail 'a text is not wrapped'
shows 60 recipes
shows 60 help
shows 60 doctor
shows 60 devices
shows 60 evaluate kept --data synthetic
grep -qF 'label (row) predicted as (column)' lines || fail 'there is no confusion matrix'
shows 54 evaluate kept --data synthetic

# same ARGUMENT…: a wide terminal shows what a file gets.
same()
{
    shows 200 "$@"
    cp lines wide
    run 0 "$@"
    sed '/^$/d' stdout | diff - wide >differences || fail "a wide terminal shows other lines: $(<differences)"
}
same runs logs
same summary --model resnet18 --memory --batch-size 8
same models
same help
same doctor
same evaluate kept --data synthetic
shows 140 runs compare logs/first logs/another-with-a-long-name
awk '/ accuracy$/ && !/best/ { exit } { print }' lines >wide
run 0 runs compare logs/first logs/another-with-a-long-name
sed '/^$/d' stdout | awk '/ accuracy$/ && !/best/ { exit } { print }' | diff - wide >differences ||
    fail "a wide terminal shows other lines: $(<differences)"

# A terminal without escape sequences gets none.
for command in "${train[*]} --epochs 2" 'runs compare logs/first logs/first' 'verify --model lenet --data synthetic --steps 1'; do
    # shellcheck disable=SC2086
    terminal=dumb on_terminal 80 $command
    ! grep -q "$escape" screen || fail 'an escape sequence on a dumb terminal'
done
