#!/usr/bin/env bash
# Calls of the C library that fail, at each place where the command makes them: a full disk, too many open files, no more
# threads. Whichever call of a run fails, the run ends within a minute with status 0 or 1, an error is one line that says
# what failed and why, a success has everything that was asked for or a warning that says what is missing, and the
# checkpoints can be resumed to the bits of a run that was not disturbed.
#
#     faults_test.sh [SCENARIO…]     train, checkpoint, export, evaluate (these by default), launch, roles
#
# $LOCKSTEP_TEST_FAULTS is N to inject every Nth fault only, or a fault, as fault_plan.h describes it, to try that alone.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/launch_testing.sh"

here=$(dirname "${BASH_SOURCE[0]}")
library=$(dirname "$LOCKSTEP")/tests/liblockstep_faults.so
if [[ ! -e $library ]]; then
    echo "SKIP: $library is not there"
    exit 77
fi
every=${LOCKSTEP_TEST_FAULTS:-37}

# How each call fails: once, or with + from then on.
faults=(close:EIO dup2:EMFILE execv:ENOMEM fclose:ENOSPC fdatasync:EIO fflush:ENOSPC flock:ENOLCK fopen:EMFILE fork:EAGAIN
    fsync:EIO fsync:+EIO ftruncate:EIO memfd_create:EMFILE mkdir:ENOSPC mmap:ENOMEM open:EMFILE open:+EMFILE opendir:EMFILE
    pipe:EMFILE pipe2:EMFILE posix_fallocate:ENOSPC pread:EIO pthread_create:EAGAIN pthread_create:+EAGAIN pwrite:ENOSPC
    read:EIO rename:EIO rename:+EIO renameat2:EIO rmdir:EIO unlink:EIO unlink:+EIO write:ENOSPC write:+ENOSPC write:EINTR
    write:short)
declare -A reasons=([EIO]='Input/output error' [EMFILE]='Too many open files' [ENOSPC]='No space left on device'
    [ENOMEM]='out of memory|Cannot allocate memory' [EAGAIN]='Resource temporarily unavailable' [ENOLCK]='No locks available')

cat >"$work/tiny.lk" <<'END'
conv1: conv2d 4 kernel=3 stride=2
batch_norm
relu
flatten
dense classes
END
training=(train --json --model "$work/tiny.lk" --data synthetic --limit-train 64 --limit-val 32 --batch-size 32 --shards 2
    --epochs 2 --momentum 0.9 --seed "$mark")

# --- one run ---------------------------------------------------------------------------------------------------------

mapfile -t calls < <(sed -n 's/^FAULT_CALL(\(.*\))$/\1/p' "$here/fault_calls.def")

# inject FAULT COMMAND…: runs lockstep with the fault ("": none), and sets $status.
inject()
{
    local fault=$1
    shift
    arguments=("$@")
    rm -f "$work/counts"
    status=0
    LOCKSTEP_FAULT_COUNTS=$work/counts LOCKSTEP_FAULT=$fault LD_PRELOAD=$library \
        timeout -k 5 60 "$LOCKSTEP" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
}

# count_of CALL: how often the last run made the call.
count_of()
{
    local i
    for i in "${!calls[@]}"; do
        if [[ ${calls[i]} == "$1" ]]; then
            od -An -v -tu4 -j $((4 * i)) -N 4 "$work/counts" | tr -d ' '
        fi
    done
}

# --- what must hold --------------------------------------------------------------------------------------------------

wrong=0
bad()
{
    wrong=$((wrong + 1))
    echo "$scenario with $fault: $1; status $status"
    sed 's/^/    stderr: /' "$work/stderr" | tail -n 12
}

# The lines that report errors; under launch each process may have one, with its name before it.
errors()
{
    grep -E '^(\[[a-z0-9-]+\] )?lockstep: ' "$work/stderr" || true
}

warned()
{
    grep -qE '^(\[[a-z0-9-]+\] )?(warning|note|lockstep): ' "$work/stderr"
}

# A read error in the newest checkpoint is damage, so the one before it may be used, with a warning.
uses_earlier_checkpoint()
{
    [[ $fault == read:* ]] && grep -q "^warning: .*${reasons[EIO]}; checkpoint-.* is used in its place" "$work/stderr"
}

# The end of the run itself.
check_end()
{
    local errno=${fault##*[:+]} lines
    none_left
    [[ $status -le 1 ]] || bad "neither success nor failure"
    [[ $status -ne 1 || ! $errno =~ EINTR|short ]] || bad "an interrupted call is not repeated"
    if [[ $status -eq 1 ]]; then
        lines=$(errors)
        # Of several processes each may have one: others say that they have lost the one that failed.
        [[ -n $lines && -z $(grep -v 'could not be started: ' <<<"$lines" | cut -d ' ' -f 1 | sort | uniq -d) ]] ||
            bad "not one line with an error"
        grep -qE "${reasons[$errno]}" <<<"$lines" || bad "the error lacks the reason, ${reasons[$errno]}"
    fi
}

# temporary_files FOLDER…: files that have not got their final names.
temporary_files()
{
    find "$@" \( -name '*.tmp' -o -name '.*' ! -name . \) 2>/dev/null | sort | tr '\n' ' '
}

check_nothing_temporary()
{
    local found
    [[ ! $fault =~ ^(opendir|rmdir|unlink) ]] || return 0
    found=$(temporary_files "$work/run")
    # A checkpoint that was replaced stays if it is not sure that the new one has the name on disk.
    [[ -z $found || ($found == *.unfinished-* && $(<"$work/stderr") == *'cannot be brought to disk'*) ]] ||
        bad "left behind: $found"
}

# --- scenarios -------------------------------------------------------------------------------------------------------

digests()
{
    echo "$(field digest) $(field state_digest)"
}

# Records without the columns and members that are times.
epochs_of()
{
    cut -d, -f1-9 "$1/epochs.csv" 2>/dev/null
}

begin_train()
{
    inject "$fault" "${training[@]}" --devices 2 --log-dir "$work/run/log" --trace "$work/run/trace.json"
}

check_train()
{
    check_nothing_temporary
    if [[ -z $fault ]]; then
        wanted=$(digests)
        epochs=$(epochs_of "$work/run/log")
        return
    fi
    [[ $status -eq 0 ]] || return 0
    [[ $(digests) == "$wanted" ]] || bad "other bits"
    if ! warned; then
        [[ $(epochs_of "$work/run/log") == "$epochs" ]] || bad "other records, and no warning"
        [[ -s $work/run/trace.json && -s $work/run/log/curves.svg && -s $work/run/log/scaling.json ]] ||
            bad "files are missing, and there is no warning"
    fi
}

begin_checkpoint()
{
    inject "$fault" "${training[@]}" --devices 2 --checkpoint-dir "$work/run/kept" --checkpoint-every 1 --keep 1 \
        --log-dir "$work/run/log"
}

# Resuming gives the bits of a run that was not disturbed, and removes what the disturbed one has left.
check_resumes()
{
    local ended=$status
    if [[ -z $fault ]]; then
        wanted=$(digests)
        return
    fi
    [[ $ended -ne 0 || $(digests) == "$wanted" ]] || bad "other bits"
    cp "$work/stderr" "$work/stderr-before"
    status=0
    "$LOCKSTEP" "${training[@]}" --devices 1 --resume --checkpoint-dir "$work/run/kept" --keep 1 \
        >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
    if [[ $status -ne 0 || $(digests) != "$wanted" ]]; then
        cat "$work/stderr" >>"$work/stderr-before"
        mv "$work/stderr-before" "$work/stderr"
        bad "resuming does not give the same bits"
        return
    fi
    [[ -z $(temporary_files "$work/run/kept") ]] ||
        bad "left behind after resuming: $(temporary_files "$work/run/kept")"
    mv "$work/stderr-before" "$work/stderr"
    status=$ended
}

check_checkpoint()
{
    check_nothing_temporary
    check_resumes
}

# Earlier files of these names are replaced.
begin_export()
{
    local old
    for old in "${earlier[@]}"; do
        echo old >"$work/run/$old"
    done
    rm -rf "$work/earlier"
    cp -r "$work/run" "$work/earlier"
    inject "$fault" export "$work/trained" --format "$format" --out "$work/run/$network"
}

check_export()
{
    check_nothing_temporary
    if [[ -z $fault ]]; then
        rm -rf "$work/exported"
        cp -r "$work/run" "$work/exported"
    elif ! diff -rq -x '*.tmp' "$work/exported" "$work/run" >/dev/null; then
        if [[ $status -eq 0 ]]; then
            uses_earlier_checkpoint || bad "other files"
        else
            diff -rq -x '*.tmp' "$work/earlier" "$work/run" >/dev/null || bad "neither the old files nor the new ones"
        fi
    fi
}

begin_evaluate()
{
    inject "$fault" evaluate "$work/trained" --json --devices 2 --out "$work/run/evaluated"
}

check_evaluate()
{
    check_nothing_temporary
    if [[ -z $fault ]]; then
        wanted=$(sed 's/"seconds.*//' "$work/stdout")
        names=$(find "$work/run" -type f | sort)
    elif [[ $status -eq 0 ]]; then
        [[ $(sed 's/"seconds.*//' "$work/stdout") == "$wanted" ]] || uses_earlier_checkpoint || bad "another result"
        [[ $(find "$work/run" -type f | sort) == "$names" ]] || warned || bad "files are missing, and there is no warning"
    fi
}

begin_launch_ranks()
{
    inject "$fault" launch -n 2 --log-dir "$work/run/logs" -- "${training[@]}" --devices 1 --checkpoint-dir "$work/run/kept"
}

begin_roles()
{
    inject "$fault" launch --workers 2 --servers 1 -- "${training[@]}" --devices 1 --max-staleness 0 \
        --checkpoint-dir "$work/run/kept"
}

# --- all faults ------------------------------------------------------------------------------------------------------

case_number=0
tried=0

# A run without a fault counts the calls. Then there is a run for each fault.
sweep()
{
    scenario=$1
    local begin=$2 check=$3 kind call errno stays n total made=
    try ''
    [[ $status -eq 0 ]] || fail "fails without a fault"
    declare -A total=()
    for call in "${calls[@]}"; do
        total[$call]=$(count_of "$call")
        [[ ${total[$call]} -eq 0 ]] || made+=" $call ${total[$call]}"
    done
    local before=$tried
    if [[ $every == *:* ]]; then
        try "$every"
    else
        for kind in "${faults[@]}"; do
            call=${kind%%:*} errno=${kind#*:} stays=
            if [[ $errno == +* ]]; then
                errno=${errno#+} stays=+
            fi
            for ((n = 1; n <= total[$call]; n++)); do
                case_number=$((case_number + 1))
                if [[ $((case_number % every)) -eq 0 ]]; then
                    try "$call:$n$stays:$errno"
                fi
            done
        done
    fi
    echo "$scenario: $((tried - before)) faults; calls:$made"
}

# try FAULT
try()
{
    fault=$1
    rm -rf "$work/run"
    mkdir "$work/run"
    "$begin"
    check_end
    "$check"
    tried=$((tried + 1))
}

[[ $# -gt 0 ]] || set -- train checkpoint export evaluate
run 0 "${training[@]}" --devices 1 --checkpoint-dir "$work/trained"
for name in "$@"; do
    case $name in
    train | checkpoint | evaluate) sweep "$name" "begin_$name" "check_$name" ;;
    export)
        for format in safetensors onnx c savedmodel; do
            network=network.$format earlier=("network.$format")
            case $format in
            c) earlier+=(network.h) ;;
            savedmodel) earlier=() ;;
            esac
            sweep "export to $format" begin_export check_export
        done
        ;;
    launch) sweep launch begin_launch_ranks check_resumes ;;
    roles)
        if "$LOCKSTEP" doctor | grep -E '^  ZeroMQ +[0-9]' >/dev/null; then
            sweep 'launch --workers' begin_roles check_resumes
        fi
        ;;
    *) fail "there is no scenario $name" ;;
    esac
done
echo "$tried runs, $wrong of them wrong"
[[ $wrong -eq 0 ]]
