#!/usr/bin/env bash
# Options that only some strategies take are refused with the others, in every role and command.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "$0")/../support/cli_testing.sh"

small=(--model lenet --data synthetic --limit-train 64 --limit-val 0 --epochs 1 --devices cpu:0)

# refused 'STRATEGY…' TEXT OPTION VALUE: the option is refused with these strategies and with the default one.
refused()
{
    local strategies strategy text=$2
    read -ra strategies <<<"$1"
    shift 2
    for strategy in "${strategies[@]}"; do
        run 2 train "${small[@]}" --strategy "$strategy" "$@"
        complains_just "$1: is for --strategy $text, not $strategy"
    done
    run 2 train "${small[@]}" "$@"
    complains_just "$1: is for --strategy $text"
}

alone='one-device mirrored'

# An option with its default value is refused too: it was given.
asynchronous=('--role chief' '--task-index 0' '--servers 1' '--coordinator 127.0.0.1:0'
    '--max-staleness 0' "--snapshot-dir $work/snapshots" '--snapshot-every 100' '--peer-timeout 5')
for option in "${asynchronous[@]}"; do
    read -ra words <<<"$option"
    refused "$alone central-storage multi-worker tpu" parameter-server "${words[@]}"
done
processes=("--cluster $work/cluster.json" '--listen 127.0.0.1:0' "--keys $work/chief.key" '--join-timeout 60')
for option in "${processes[@]}"; do
    read -ra words <<<"$option"
    refused "$alone central-storage tpu" 'multi-worker and parameter-server' "${words[@]}"
done
refused "$alone multi-worker parameter-server tpu" central-storage --storage cpu:0
refused "$alone central-storage parameter-server tpu" multi-worker --compress bf16
# Too many nodes of the tree are found before training begins.
run 2 launch -n 1 -- train "${small[@]}" --shards 1024 --batch-size 1024 --devices 15xcpu:0 --compress bf16
says '--compress bf16: 1024 shards on 15 devices are 89 nodes of the tree, and sums in bf16 take at most 64'

# The default strategy takes this one.
for strategy in central-storage parameter-server; do
    run 2 train "${small[@]}" --strategy $strategy --optimizer-state sharded
    complains_just "--optimizer-state: is for --strategy one-device, mirrored, multi-worker and tpu, not $strategy"
done

# A server or a worker refuses these as well.
for role in ps worker; do
    run 2 train "${small[@]}" --strategy parameter-server --role $role --coordinator 127.0.0.1:1 --storage cpu:0
    complains_just '--storage: is for --strategy central-storage, not parameter-server'
done

for command in compile lr-find profile sweep tune verify; do
    run 2 $command --peer-timeout 5
    complains "unknown option '--peer-timeout'"
done

# Strategies that read no cluster description ignore one in the environment.
TF_CONFIG='{"cluster": {"chief": ["localhost:0"], "ps": ["localhost:0"]}, "task": {"type": "ps", "index": 0}}' \
    run 0 train "${small[@]}"
