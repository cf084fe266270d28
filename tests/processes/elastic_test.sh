#!/usr/bin/env bash
# lockstep launch --elastic on one machine: training goes on without ranks that are lost or leave, computes no finished
# step again, and ends with the bits of a run that is not disturbed. $LOCKSTEP_TEST_KILLS is the number of ranks that are
# killed at random moments; with more than 3, nothing else is tested: ./dev elastic 100.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"
# shellcheck source=tests/support/launch_testing.sh
source "$(dirname "$0")/../support/launch_testing.sh"

training=(train --model lenet --data synthetic --limit-train 256 --limit-val 40 --batch-size 32 --epochs 12 --shards 8
    --devices cpu:0 --workers 1 --seed "$mark" --momentum 0.9 --base-lr 0.01)

host=$(uname -n)

# begin_job ARGUMENT…: launches an elastic training. Sets $memory to the beginning of the path of its states.
begin_job()
{
    begin_launch --elastic "$@"
    memory=/dev/shm/lockstep-$host-$process
}

# begin_elastic ARGUMENT…: each epoch's row and event are recorded.
begin_elastic()
{
    rm -rf "$work/log"
    begin_job "$@" -- "${training[@]}" --json --log-dir "$work/log"
    runs=1
}

# states: the numbers of the states that are in the memory of the job, twice the step, and 1 more after an evaluation.
states()
{
    find /dev/shm -path "$memory-*" -name 'checkpoint-*' 2>/dev/null | sed 's/.*checkpoint-0*//'
}

newest_state()
{
    states | sort -n | tail -n 1 | grep .
}

state_is_after()
{
    [[ $(newest_state) -gt $((2 * $1 + 1)) ]]
}

# goes_on N: waits until the job starts with other ranks for the N-th time, and sets $finished to the last finished step.
goes_on()
{
    until_true "change $1" has_gone_on "$1"
    look_at_states
}

# look_at_states: sets $finished to the last finished step, and $runs to the number of the records that go on. If a rank is
# killed before there is any state, empty records stay, and others begin.
look_at_states()
{
    local newest
    newest=$(newest_state) || true # a folder may go while it is listed
    finished=$((${newest:-0} / 2))
    if [[ -z $(states) && -e $work/log ]]; then
        runs=$(($(find "$work/log" -name 'epochs*.csv' | wc -l) + 1))
    fi
}

has_gone_on()
{
    [[ $(grep -c '^lockstep: going on with' "$work/stderr") -ge $1 ]]
}

# ends_alike CHANGES: it ends with the digest and the records of one run, which tell of so many changes.
ends_alike()
{
    ended 0 .
    check_end
    [[ $(grep -c '"event":"world"' "$work/log/epochs.jsonl") -eq $1 ]] || fail "the records do not tell of $1 changes"
    [[ $(grep -c '"event":"world"' "$work/stdout") -eq $1 ]] || fail "--json does not tell of $1 changes"
}

# check_end: the digest and the records are those of one run, and nothing is left in memory.
check_end()
{
    local records
    records=$work/log/epochs$([[ $runs -eq 1 ]] || echo "-$runs")
    prints "\"digest\":\"$wanted\""
    ! compgen -G "$memory-*" >/dev/null || fail 'it has left files in memory'
    [[ $(cut -d, -f1,2 "$records.csv" | tail -n +2 | tr '\n' ' ') == "$epochs" ]] || fail 'other records'
    [[ ! -e $work/log/epochs-$((runs + 1)).csv ]] || fail 'more records than there are runs'
}

# went_on_after STEP: the last change says that this was the last step before it, so that none was done twice.
went_on_after()
{
    grep '"event":"world"' "$work/stdout" | tail -n 1 | grep -q "\"step\":$1," ||
        fail "it did not go on after step $1"
}

run 0 "${training[@]}" --log-dir "$work/log"
wanted=$(sed -n 's/^digest //p' "$work/stderr")
epochs=$(cut -d, -f1,2 "$work/log/epochs.csv" | tail -n +2 | tr '\n' ' ')

has_gone_on_or_ended()
{
    has_gone_on "$1" || ! kill -0 "$process"
}

process_of_rank_is_there()
{
    process_of_rank "$1" 'lockstep train' | grep .
}

# kill_at_random MOST: trains with five ranks, and kills at most so many of them one after the other, each at a random
# moment: also before the first step, and after the last. Sets $changes to how often training went on with other ranks.
kill_at_random()
{
    local left=5 victim steps=()
    changes=0
    begin_elastic -n $left
    while [[ $left -gt 1 && $changes -lt $1 ]]; do
        victim=$((RANDOM % left))
        until_true "rank $victim, or the end" rank_is_there_or_ended "$victim"
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        kill -KILL "$(process_of_rank "$victim" 'lockstep train')" 2>/dev/null || true
        until_true 'the next start, or the end' has_gone_on_or_ended $((changes + 1))
        has_gone_on $((changes + 1)) || break
        look_at_states
        changes=$((changes + 1))
        left=$((left - 1))
        steps+=("$finished")
    done
    ended 0 .
    check_end
    # Changes before a first step are told together.
    sed -n 's/.*"event":"world","step":\([0-9]*\),.*/\1/p' "$work/stdout" >"$work/told"
    printf '%s\n' "${steps[@]}" >"$work/steps"
    awk 'NR == FNR { step[++n] = $1; next } { while (++i <= n && step[i] != $1); if (i > n) exit 1 }
        END { if (i > n || (n && step[n] != $1)) exit 1 }' "$work/steps" "$work/told" ||
        fail "finished $(tr '\n' ' ' <"$work/steps"), and it went on after $(tr '\n' ' ' <"$work/told")"
}

rank_is_there_or_ended()
{
    process_of_rank_is_there "$1" || ! kill -0 "$process"
}

kills=${LOCKSTEP_TEST_KILLS:-3}
for ((killed = 0; killed < kills; killed += changes)); do
    kill_at_random $((kills - killed))
    [[ $kills -le 3 ]] || echo "$((killed + changes)) of $kills"
done
echo "$kills ranks killed at random moments: the same digest each time, no finished step done twice"
[[ $kills -le 3 ]] || exit 0

# --- options ---------------------------------------------------------------------------------------------------------

run 2 launch -n 2 --min-ranks 2 -- train
complains '--min-ranks: must be with --elastic'
run 2 launch --hosts-file "$work/hosts" -- train
complains '--hosts-file: must be with --elastic'
run 2 launch -n 2 --elastic --min-ranks 3 -- train
complains '--min-ranks 3: there are 2 processes'
run 2 launch --workers 2 --elastic -- train
complains '--elastic: --workers may be lost without it'
run 2 launch -n 2 --elastic --max-restarts 1 -- train --checkpoint-dir "$work/checkpoints"
complains '--elastic: cannot be with --max-restarts'
run 2 launch --elastic --hosts-file "$work/hosts" -- train
complains "$work/hosts: cannot be read"
wrong_hosts()
{
    printf '%b' "$1" >"$work/hosts"
    run 2 launch --elastic --hosts-file "$work/hosts" -- train
    complains "$work/hosts$2"
}
for option in '--compress bf16' '--reduce nccl' '--cluster cluster.json'; do
    # shellcheck disable=SC2086 # two words
    run 2 launch -n 2 --elastic -- train $option
    complains '--elastic: cannot be with' "${option%% *}"
done
wrong_hosts '' ': names no machine'
wrong_hosts 'localhost:2\n\n# no slots\nhost.invalid\n' ", line 4: there is no machine 'host.invalid'"
wrong_hosts "#$(printf '%2000s' '')\\nhost.invalid\\n" ", line 2: there is no machine 'host.invalid'"
wrong_hosts 'localhost slots=0\n' ", line 1: must be a machine and its slots"
wrong_hosts 'localhost slots=\n' ", line 1: must be a machine and its slots"
wrong_hosts 'localhost:2 other\n' ", line 1: must be a machine and its slots"
wrong_hosts 'localhost\nlocalhost:3\n' ', line 2: names localhost a second time'
run 2 launch --elastic --hosts "$(printf 'localhost,%.0s' {1..5461})localhost:4" -- train
complains 'launch: --elastic: --hosts with the places of each machine has 65543 bytes; must be at most 65535'
run 2 launch --elastic --hosts-file "$work" -- train
complains "$work: cannot be read: Is a directory"
run 2 launch -n 2 --elastic --hosts-file "$work/hosts" -- train
complains '--hosts-file: cannot be with -n'

# --- lost ranks ------------------------------------------------------------------------------------------------------

# Two of four ranks are killed, one after the other; the second is rank 0, which writes the records. A description of four
# processes, such as Kubeflow gives to every pod, does not forbid the rest to go on.
TF_CONFIG='{"cluster": {"worker": ["a:1", "b:1", "c:1", "d:1"]}, "task": {"type": "worker", "index": 0}}' begin_elastic -n 4
until_true 'step 5' state_is_after 5
kill -KILL "$(process_of_rank 3 'lockstep train')"
began=$(now)
goes_on 1
first=$finished
until_true 'a step of three ranks' state_is_after "$first"
echo "the next step was finished $(($(now) - began)) ms after the death"
until_true 'four more steps' state_is_after $((first + 4))
kill -KILL "$(process_of_rank 0 'lockstep train')"
goes_on 2
ends_alike 2
went_on_after "$finished"
says 'rank 3 on'
says 'going on with 3 ranks'
says 'going on with 2 ranks'
holds "$work/log/epochs.jsonl" "\"step\":$first,\"processes_before\":4,\"processes\":3"
run 0 report "$work/log"
prints "from 4 to 3 processes after step $first: rank 3 on"
prints 'from 3 to 2 processes after step'

# A rank that stands still, and one whose supervisor is killed; ranks divide the optimizer's state.
training+=(--optimizer-state sharded)
begin_elastic -n 3 --stall-timeout 3
until_true 'step 5' state_is_after 5
kill -STOP "$(process_of_rank 1 'lockstep train')"
goes_on 1
until_true 'a step of two ranks' state_is_after "$finished"
kill -KILL "$(process_of_rank 1 'lockstep rank')"
goes_on 2
ends_alike 2
went_on_after "$finished"
says 'no progress for'
unset 'training[-1]' 'training[-1]'

# A rank that is asked to leave ends after its step, and the others go on.
for command in 'lockstep train' 'lockstep rank'; do
    begin_elastic -n 3
    until_true 'step 5' state_is_after 5
    kill -TERM "$(process_of_rank 2 "$command")"
    goes_on 1
    ends_alike 1
    went_on_after "$finished"
    says '1 rank was asked to leave'
done

# So it does while ranks start.
supervisor_is_there()
{
    [[ -n $(process_of_rank 2 'lockstep rank') ]]
}
for pause in 0.05 0.2; do
    begin_job -n 3 -- "${training[@]}"
    until_true 'a supervisor' supervisor_is_there
    sleep "$pause"
    kill -TERM "$(process_of_rank 2 'lockstep rank')"
    ended 0 .
    says "digest $wanted"
    says 'going on with 2 ranks'
done

# So it does if all are asked to end just before, as after a change of the machines.
begin_elastic -n 3
until_true 'step 5' state_is_after 5
supervisor=$(process_of_rank 2 'lockstep rank')
kill -USR1 "$supervisor"
kill -TERM "$supervisor"
goes_on 1
ends_alike 1
went_on_after "$finished"
says '1 rank was asked to leave'

# If they are asked afterwards, it still ends after its step, which is long here, as do the others.
LOCKSTEP_CHECKPOINT_SLOW=20 begin_elastic -n 3
until_true 'step 2' state_is_after 2
supervisor=$(process_of_rank 2 'lockstep rank')
kill -TERM "$supervisor"
sleep 0.3 # what comes sooner is the same request
kill -USR1 "$supervisor"
goes_on 1
says '[0] lockstep: training: interrupted in epoch'
says '1 rank was asked to leave'
kill -TERM "$process"
ended 130 .

# If memory is full, training goes on from the last state that fitted.
if unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
    cat >"$work/small" <<END
#!/usr/bin/env bash
exec unshare -m sh -c 'mount -t tmpfs -o size=5m none /dev/shm && exec "$LOCKSTEP" "\$@"' - "\$@"
END
    chmod +x "$work/small"
    LOCKSTEP=$work/small begin_job -n 3 -- "${training[@]}"
    until_there 'training goes on, but could not go on from here' "$work/stderr"
    kill -KILL "$(process_of_rank 2 'lockstep train')"
    ended 0 .
    says "digest $wanted"
    says 'going on with 2 ranks'
fi

# There have to be --min-ranks.
begin_elastic -n 2 --min-ranks 2
until_true 'step 5' state_is_after 5
kill -KILL "$(process_of_rank 1 'lockstep train')"
ended 1 '1 rank is left, and --min-ranks is 2'
! compgen -G "$memory-*" >/dev/null || fail 'it has left files in memory'

# With the launcher all ends.
begin_elastic -n 2
until_true 'step 5' state_is_after 5
kill -KILL "$process"
wait "$process" 2>/dev/null || true
none_left
! compgen -G "$memory-*" >/dev/null || fail 'it has left files in memory'

# An interrupt ends all; they can be resumed from the usual checkpoint.
begin_job -n 2 -- "${training[@]}" --checkpoint-dir "$work/checkpoints"
until_true 'step 5' state_is_after 5
kill -TERM "$process"
ended 130 .
! compgen -G "$memory-*" >/dev/null || fail 'it has left files in memory'
run 0 "${training[@]}" --checkpoint-dir "$work/checkpoints" --resume
says "digest $wanted"

# With checkpoints, which are written in the background, a rank is lost.
rm -rf "$work/checkpoints"
begin_job -n 3 -- "${training[@]}" --checkpoint-dir "$work/checkpoints" --checkpoint-every 1
until_true 'step 9' state_is_after 9
kill -KILL "$(process_of_rank 0 'lockstep train')"
ended 0 .
says "digest $wanted"
[[ $(newest_checkpoint "$work/checkpoints") -eq 96 ]] || fail 'the last checkpoint is not that of the end'

# Where it goes on it writes one: the first and the last are too far apart.
rm -rf "$work/checkpoints"
begin_job -n 3 -- "${training[@]}" --checkpoint-dir "$work/checkpoints" --checkpoint-every 100000 --checkpoint-best none
until_true 'step 9' state_is_after 9
kill -KILL "$(process_of_rank 0 'lockstep train')"
ended 0 .
says "digest $wanted"
[[ $(find "$work/checkpoints" -name 'checkpoint-*' | wc -l) -eq 3 ]] || fail 'there is no checkpoint from where it went on'
