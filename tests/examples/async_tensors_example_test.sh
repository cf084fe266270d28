#!/usr/bin/env bash
# The example prints the values that its comments show, with either engine. $EXAMPLES is the folder of the built
# examples.
set -euo pipefail

example=${EXAMPLES:-$(dirname "$LOCKSTEP")/examples}/async_tensors
expected=$'[[3. 3.]]\n[[1. 1.]]\n[[3. 3.]]\nweight:\n[[0.]\n [0.]]\n<f32[2,1] on cpu:0>\ngradient:\n[[0.]\n [0.]]\n<f32[2,1] on cpu:0>\n'
expected+=$'gradient after backward:\n[[4.]\n [6.]]\n<f32[2,1] on cpu:0>'

for engine in async sync; do
    output=$(LOCKSTEP_ENGINE=$engine "$example")
    if [[ $output != "$expected" ]]; then
        printf 'engine %s: expected:\n%s\ngot:\n%s\n' "$engine" "$expected" "$output"
        exit 1
    fi
done
