#!/usr/bin/env bash
# `lockstep report --html`: what the page holds, that texts of files stay texts, and that a damaged file loses nothing.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
# shellcheck source=tests/support/report_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/report_testing.sh"
cd "$work"

# lacks FILE TEXT…: the file contains none of these texts.
lacks()
{
    local file=$1 text
    shift
    for text in "$@"; do
        ! grep -qF -- "$text" "$file" || fail "$file has '$text'"
    done
}

# stands_alone FILE: nothing in it is fetched, and its only script is the page's own.
stands_alone()
{
    [[ $(grep -o '<script' "$1" | wc -l) -eq 1 && $(grep -o '<h1' "$1" | wc -l) -eq 1 ]] || fail "$1 has other scripts or headings"
    ! sed 's#http://www.w3.org/2000/svg##g; s#data:image/png;base64,[^"]*##g' "$1" | grep -qE '(https?:)?//[a-z]|@import|url\(' || fail "$1 refers to another place"
    ! grep -oE ' (src|href)="[^"]{0,8}' "$1" | grep -qvE '"data:' || fail "$1 refers to another file"
}

# --- a run ---

small=(train --model lenet --data synthetic --limit-train 64 --limit-val 32 --batch-size 16 --epochs 2 --shards 2)
run 0 "${small[@]}" --seed 5 --devices 2xcpu:0 --log-dir logs --checkpoint-dir kept
digest=$(grep -h '^digest' "$work/stdout" "$work/stderr" | awk '{ print $NF }')
run 0 evaluate kept --out logs
run 0 report logs --html page.html
silent_stdout
silent_stderr
run 2 report --html logs/epochs.jsonl logs
complains 'logs/epochs.jsonl: is no page'
run 2 report --html logs/curves.svg logs
complains 'logs/curves.svg: is no page'
grep -q '"event":"done"' logs/epochs.jsonl || fail 'a page has replaced the records'
"$LOCKSTEP" report logs --html /dev/stdout | cmp - page.html || fail 'a pipe got another page'
stands_alone page.html
holds page.html '<title>lenet on synthetic</title>' "$digest" 'best validation accuracy, epoch&nbsp;' \
    'lenet on synthetic: training loss by step' 'lenet on synthetic: accuracy by epoch' 'What it confuses' \
    '<th scope="row">batch-size</th><td>16</td>' '<th scope="row">training samples</th><td>64</td>' '</html>'
[[ ! -e logs/mistakes.png ]] || holds page.html 'Worst mistakes' 'src="data:image/png;base64,iVBOR'
lacks page.html 'Left out'

# digest_of FOLDER: of the run whose records it has.
digest_of()
{
    sed -n 's/.*"event":"done".*"digest":"\([0-9a-f]*\)".*/\1/p' "$1/epochs.jsonl"
}

# repeats PAGE DIGEST: the command of the page gives this digest, on other devices too.
repeats()
{
    local words
    sed -n '/<h3>Command/,/<\/pre>/p' "$1" | sed 's/.*<pre>//; s/<.*//; s/\\$//' | { tr -d '\n'; echo; } >command.txt
    read -ra words <command.txt
    [[ ${words[0]} == lockstep ]] || fail "the command is $(<command.txt)"
    run 0 "${words[@]:1}" --devices 1 --verbose
    [[ $(grep -h '^digest' "$work/stdout" "$work/stderr" | awk '{ print $NF }') == "$2" ]] || fail "other bits: $(<command.txt)"
}

repeats page.html "$digest"
grep -qF ' --seed 5' command.txt || fail 'the command lacks the seed'

# So does the command of a run that was resumed with more epochs, on other devices.
run 0 "${small[@]}" --devices 2xcpu:0 --log-dir longer --checkpoint-dir more
run 0 "${small[@]}" --epochs 3 --devices 1 --log-dir longer --checkpoint-dir more --resume
run 0 report longer --html longer.html
holds longer.html '<th scope="row">epochs</th><td>3</td>' '<th scope="row">devices in use</th><td>cpu:0</td>'
repeats longer.html "$(digest_of longer)"

# No command repeats a run that was resumed with other settings, or whose bits depend on the number of devices.
run 0 "${small[@]}" --epochs 4 --batch-size 32 --devices 1 --log-dir longer --checkpoint-dir more --resume --override
run 0 report longer --html mixed.html
holds mixed.html '<h2>Digests</h2>' 'Equal digests mean equal bits.' '<th scope="row">batch-size</th><td>32</td>'
lacks mixed.html '<h3>Command' 'on any number'
lacks mixed.html 'Left out' # steps go on from those of the other batch size
cut -d, -f1 longer/steps.csv | tail -n +2 | diff - <(seq 14) || fail 'steps are not numbered from the beginning of training'
# Nor does one if the records begin with that, or after it.
run 0 "${small[@]}" --epochs 5 --batch-size 32 --devices 1 --log-dir later --checkpoint-dir more --resume
run 0 report later --html later.html
lacks later.html '<h3>Command'
run 0 "${small[@]}" --seed 6 --epochs 3 --devices 1 --log-dir after --checkpoint-dir kept --resume --override
run 0 report after --html after.html
lacks after.html '<h3>Command'
run 0 report logs longer --html both.html
holds both.html 'How to repeat them' 'Equal digests mean equal bits.'

# With a recipe the command also says what was switched off.
run 0 "${small[@]}" --recipe fashion-mnist-fast --no-nesterov --model lenet --schedule constant --devices 1 --log-dir slow
run 0 report slow --html slow.html
holds slow.html '--no-nesterov'
repeats slow.html "$(digest_of slow)"
run 0 "${small[@]}" --recipe fashion-mnist-wrn --target-accuracy -1 --model lenet --devices 1 --log-dir whole
run 0 report whole --html whole.html
holds whole.html '--target-accuracy -1'

# The folder of the data belongs to the command. A path that is no UTF-8 cannot be given.
run 0 "${small[@]}" --data-dir . --devices 1 --log-dir found
run 0 report found --html found.html
holds found.html '--data-dir .'
for i in {1..16}; do
    echo "$((i % 2)),$i,2,3,4"
done | tee $'\xff.csv' >'<h1 id=injected>.csv'
printf 'flatten\ndense classes\n' >two.lk
run 0 "${small[@]}" --data $'\xff.csv' --model two.lk --val-split 0.25 --image-shape 2x2 --limit-train 8 --limit-val 4 --batch-size 4 \
    --devices 1 --log-dir bytes
run 0 report bytes --html bytes.html
lacks bytes.html '<h3>Command'

# A speed-up is not given if others used the cores.
run 0 "${small[@]}" --limit-train 256 --devices 2xcpu:0 --log-dir disturbed
sed -i -E 's/"core_share":[0-9.]+/"core_share":0.25/' disturbed/scaling.json
run 0 report disturbed --html disturbed.html
holds disturbed.html "The speed-up is unclear: other programs, or more devices than cores, took 75 % of the cores' time."
lacks disturbed.html 'Speed-up <b>'

# --- several runs ---

run 0 "${small[@]}" --seed 6 --base-lr 0.05 --devices 1 --log-dir other
run 0 report logs other --html both.html
stands_alone both.html
holds both.html '2 runs compared' 'Settings that differ' '<th scope="row">seed</th><td>5</td><td>6</td>' \
    '<th scope="row">base-lr</th><td>0.2</td><td>0.05</td>' 'loss by epoch'
lacks both.html '<th scope="row">batch-size</th>'
run 2 report logs logs logs logs logs logs logs logs logs --html both.html
complains 'at most 8 runs'
run 2 report logs logs logs
complains 'without --html'

# --- texts of files ---

hostile_run hostile
run 0 report hostile --html hostile.html
stands_alone hostile.html
lacks hostile.html '<h1 id' '<img src=x' 'alert(1)>' '<script>alert'
holds hostile.html '&lt;/script&gt;&lt;/title&gt;&lt;h1 id=injected&gt;' 'Processes that came and went' 'A step over time'
run 0 report hostile logs hostile --html hostile.html
stands_alone hostile.html
lacks hostile.html '<h1 id' '<img src=x' '<script>alert'
mkdir '<h1 id=injected>'
cp -r logs '<h1 id=injected>/logs'
run 0 report '<h1 id=injected>/logs' logs --html hostile.html
lacks hostile.html '<h1 id'

# Names of model files, and of CSV files, come through a training.
printf 'flatten\ndense classes\n' >'<h1 id=injected>.lk'
run 0 train --model '<h1 id=injected>.lk' --data '<h1 id=injected>.csv' --val-split 0.25 --image-shape 2x2 --epochs 1 \
    --batch-size 4 --devices 1 --log-dir marked
run 0 report marked --html marked.html
stands_alone marked.html
lacks marked.html '<h1 id'
holds marked.html '&lt;h1 id=injected&gt;.lk' '&lt;h1 id=injected&gt;.csv'

# --- damaged files ---

cp -r logs damaged
for name in steps.jsonl scaling.json evaluation.json trace.json; do
    echo 'x' >"damaged/$name"
    run 0 report damaged --html damaged.html
    silent_stdout
    [[ $(wc -l <"$work/stderr") -eq 1 ]] || fail "not one line about $name"
    says "damaged/$name:"
    holds damaged.html "Left out: damaged/$name" "$digest"
    rm "damaged/$name"
done
[[ ! -e damaged/mistakes.png ]] || echo 'x' >damaged/mistakes.png
run 0 report damaged --html damaged.html
[[ ! -e damaged/mistakes.png ]] || says 'damaged/mistakes.png: is no PNG picture'
cp damaged.html before.html
sed -i '2s/.*/{"event":/' damaged/epochs.jsonl
run 1 report damaged --html damaged.html
complains 'damaged/epochs.jsonl:2: is not JSON'
cmp -s before.html damaged.html || fail 'the page before is lost'
run 1 report logs --html nowhere/page.html
complains 'nowhere/page.html'
mkdir empty
run 1 report empty --html page.html
complains 'holds no records of a run'

# More classes than a table has squares: the picture of the matrix, if there is one.
mkdir many
cp logs/epochs.jsonl many
awk 'BEGIN { printf "{\"count\":900,\"accuracy\":1,\"classes\":["
    for (i = 0; i < 30; i++) printf "%s{\"name\":\"class %d\"}", i ? "," : "", i
    printf "],\"confusion\":["
    for (i = 0; i < 30; i++) {
        printf i ? ",[" : "["
        for (k = 0; k < 30; k++) printf "%s%d", k ? "," : "", i == k ? 29 : k == 7
        printf "]"
    }
    print "]}" }' >many/evaluation.json
run 0 report many --html many.html
silent_stderr
holds many.html '<td>class 7</td>'
lacks many.html 'class="confusion"' 'data:image'
if [[ -e logs/confusion.png ]]; then
    cp logs/confusion.png many
    run 0 report many --html many.html
    holds many.html 'alt="the confusion matrix" src="data:image/png'
fi

# A run that did not end its first epoch.
head -n 1 logs/epochs.jsonl >young.jsonl
run 0 report young.jsonl --html young.html
holds young.html 'no epoch is complete' 'not finished'
