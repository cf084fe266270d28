#!/usr/bin/env bash
# Without --shards and --bn, results do not depend on the devices: 1 to 4 devices and two processes end with the same
# digest, also where devices have no shard, or share a group of batch-norm.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

digest()
{
    sed -nE 's/^(\[[a-z0-9]+\] )?digest ([0-9a-f]{32})$/\2/p' "$work/stderr" "$work/stdout"
}

# same MODEL BATCH SHARDS: trains a step, and one with a smaller batch.
same()
{
    local options=(train --model "$1" --data synthetic --batch-size "$2" --limit-train $(($2 + 3)) --limit-val 2 --epochs 1)
    local devices expected
    run 0 "${options[@]}" --devices 1
    says "$3 shard"
    expected=$(digest)
    [[ -n $expected ]] || fail 'no digest was printed'
    for devices in 2 3 4; do
        run 0 "${options[@]}" --devices "$devices"
        [[ $(digest) == "$expected" ]] || fail 'another digest than on one device'
        [[ $devices -le $3 ]] || says "$((devices - $3)) of $devices devices stay"
    done
    run 0 launch -n 2 -- "${options[@]}" --devices 2
    [[ $(digest) == "$expected" ]] || fail 'another digest in two processes'
}

same lenet 32 2
same lenet 64 2
same lenet 256 8
same resnet18 32 2
same resnet18 64 2
same resnet18 256 8
