#!/usr/bin/env bash
# lockstep models and lockstep summary, with reference models and model files.
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"


run 0 models
line '^lenet +129068 '
line '^keras-cnn +347146 '
line '^resnet18 +11175818 '
line '^wrn-16-10 +17121962 '
line '^fast-cnn +686314 '

run 0 summary
line '^lenet: images 1x28x28, 10 classes$'
line '^conv1 +conv2d +20x26x26 +200 +243\.36 k$'
line '^total +129068 +4\.54 M$'
line 'training step +13\.[0-9]+ M +counted'
line '^memory of a device for a batch of 256 in 8 shards on 1 device$'

# Adam's state has two numbers per parameter: 2 x 129,068 x 4 bytes.
run 0 summary --optimizer adam --devices 2
line '^ +optimizer +0\.98 MiB +adam$'
line 'in 8 shards on 2 devices$'

# The last of three devices runs shards 5, 6 and 7 of 8. No node of the tree covers just 5 and 6, so two sums wait while 7
# runs. With four devices one waits.
run 0 summary --devices 3
line '^ +gradients +2\.46 MiB'
run 0 summary --devices 4
line '^ +gradients +1\.97 MiB'

# With sync all shards of a device are in memory at once.
run 0 summary --model resnet18 --batch-size 64 --shards 2 --bn sync
line 'for 64 samples: 2 shards at once$'
run 0 summary --model resnet18 --batch-size 64 --shards 2
line 'for 32 samples: 1 shard at once$'

# Shards of dense layers are merged, where there are own kernels.
run 0 ops
merged='for 32 samples: 1 shard at once$'
if grep -qE '^matmul +cpu +cpu ' "$work/stdout"; then
    merged='for 128 samples: 4 shards at once$'
fi
printf 'flatten\ndense 32\nrelu\ndense classes\n' >dense.lk
run 0 summary --model dense.lk --memory --batch-size 256 --devices 2
line "$merged"

# The plan is at least the peak, and smaller than the sum.
run 0 summary --memory --batch-size 64
awk '/^memory inside/ { inside = 1 } inside && $1 ~ /^(planned|peak|sum)$/ { bytes[$1] = $2 }
     END { exit !(bytes["peak"] > 0 && bytes["peak"] <= bytes["planned"] && bytes["planned"] < bytes["sum"]) }' \
    "$work/stdout" || fail "the plan's rows are wrong"

# With --recompute it is smaller.
planned()
{
    run 0 summary --model resnet18 --batch-size 4 --shards 1 --memory "$@"
    awk '$1 == "planned" { print $2 }' "$work/stdout"
}
kept=$(planned)
remade=$(planned --recompute)
awk "BEGIN { exit !($remade > 0 && $remade < 0.8 * $kept) }" || fail "$remade MiB with --recompute, $kept without"
run 2 summary --recompute
complains '--recompute: must be with --memory'

# The step as training runs it: in pieces, in bf16.
cat >"$work/wide.lk" <<'EOF'
conv2d 16 kernel=3
relu
conv2d 16 kernel=3
relu
global_avg_pool
dense classes
EOF
wide()
{
    run 0 summary --model "$work/wide.lk" --batch-size 64 --shards 1 --memory "$@"
    awk '$1 == "planned" { print $2 }' "$work/stdout"
}
pieces=$(wide)
line '^memory inside a training step of a shard of 64 samples in pieces of 16 in f32, [0-9]+ operators, as one ran$'
whole=$(wide --micro-batch 0)
awk "BEGIN { exit !($pieces > 0 && $pieces < 0.5 * $whole) }" || fail "$pieces MiB in pieces of 16, $whole whole"
halves=$(wide --micro-batch 0 --dtype bf16)
awk "BEGIN { exit !($halves > 0 && $halves < 0.7 * $whole) }" || fail "$halves MiB in bf16, $whole in f32"

# Each piece is recomputed.
printf 'conv2d 8 kernel=3\nrepeat 12\nconv2d 8 kernel=3 padding=same\ntanh\nend\nglobal_avg_pool\ndense classes\n' \
    >"$work/deep.lk"
deep()
{
    run 0 summary --model "$work/deep.lk" --batch-size 32 --shards 1 --memory --micro-batch 8 "$@"
    awk '$1 == "planned" { print $2 }' "$work/stdout"
}
kept=$(deep)
remade=$(deep --recompute)
awk "BEGIN { exit !($remade > 0 && $remade < 0.6 * $kept) }" || fail "$remade MiB with --recompute, $kept without"
run 2 summary --memory --model resnet18 --micro-batch 4
[[ ! -s $work/stdout ]] || fail 'refused after work'
complains '--micro-batch 4: model resnet18 has batch-norm, which looks at a whole shard'
run 2 summary --micro-batch 4
complains '--micro-batch: must be with --memory'
run 2 summary --dtype bf16
complains '--dtype: must be with --memory'

for data in synthetic auto; do
    run 0 summary --data "$data" --data-dir "$work/none" --model keras-cnn
    line '^keras-cnn: images 1x28x28, 10 classes$'
done

# The images as training prepares them: here those of a folder of pictures of two sizes, one of them in color.
printf 'P5 6 4 255\n%024d' 0 >"$work/gray.pgm"
printf 'P6 5 8 255\n%0120d' 0 >"$work/color.ppm"
for split in train test; do
    mkdir -p "$work/own/$split/"{one,two,three}
    cp "$work/gray.pgm" "$work/own/$split/one"
    cp "$work/color.ppm" "$work/own/$split/two"
    cp "$work/color.ppm" "$work/own/$split/three"
done
printf 'conv2d 4 kernel=3\nglobal_avg_pool\ndense classes\n' >"$work/small.lk"
run 0 summary --data "$work/own" --resize 12x16 --model "$work/small.lk"
line '/small.lk: images 3x12x16, 3 classes$'
prepared=(--data "$work/own" --resize 12x16 --channels 1 --model "$work/small.lk")
run 0 summary "${prepared[@]}"
line '/small.lk: images 1x12x16, 3 classes$'
parameters=$(awk '$1 == "total" { print $2; exit }' "$work/stdout")
run 0 train "${prepared[@]}" --devices 1xcpu --batch-size 3 --epochs 1
says "small.lk ($parameters parameters) on "
run 2 summary --resize 12x16
complains_just '--resize 12x16: must be with --data; --height and --width are without'
run 2 summary "${prepared[@]}" --width 16
complains_just '--width: must be without --data, whose images and classes count'

printf 'hidden: sequential\n  flatten\n  dense 32\nend\nrelu\ndense classes\n' >"$work/net.lk"
run 0 summary --model "$work/net.lk" --channels 3 --height 4 --width 5 --classes 7
line '^hidden\.dense +dense +32 +1952 '
line '^total +2183 '
run 0 summary --channels 4
line '^lenet: images 4x28x28, 10 classes$'
run 2 summary --batch-size 16777217
complains '--batch-size 16777217: must be an integer from 1 to 16777216'
run 2 summary --shards 65537
complains '--shards 65537: must be an integer from 1 to 65536'

printf '\xef\xbb\xbfflatten\ndense classes\n' >"$work/marked.lk" # with a byte-order mark
run 0 summary --model "$work/marked.lk"

printf 'flatten\ndens 10\n' >"$work/wrong.lk"
run 1 summary --model "$work/wrong.lk"
complains "$work/wrong.lk:2: unknown layer 'dens'; expected a layer: did you mean 'dense'?"
# Errors in the model are reported before data are searched.
run 1 summary --model "$work/wrong.lk" --data-dir "$work" --data mnist
complains "$work/wrong.lk:2: unknown layer"
wrong=(--data mnist --data-dir "$work/empty" --model "$work/wrong.lk")
export LOCKSTEP_DATA=/nowhere
for command in train verify; do
    run 1 "$command" "${wrong[@]}"
    complains "$work/wrong.lk:2: unknown layer 'dens'; expected a layer: did you mean 'dense'?"
done
run 1 sweep --over batch-size=32,64 --measure throughput "${wrong[@]}"
complains "--over batch-size=32: $work/wrong.lk:2: unknown layer 'dens'"
printf 'conv2d 1000000000 kernel=3\nflatten\ndense classes\n' >"$work/huge.lk"
run 1 summary --model "$work/huge.lk"
complains "$work/huge.lk:1: filters is '1000000000'; expected classes or a whole number from 1 to 16777216"
printf 'flatten\ndense 1000000\ndense classes\n' >"$work/large.lk"
run 0 summary --model "$work/large.lk"
line 'training step +4\.77 G +estimated: the model is too large'
printf 'global_avg_pool\ndense classes\n' >"$work/pool.lk" # a small model, but not its images
run 0 summary --model "$work/pool.lk" --height 20000 --width 20000 --batch-size 2
line 'training step +1\.20 G +estimated: the model is too large'

# A step that takes more than a minute is announced, with an estimate of its time.
printf 'conv2d 8 kernel=1023 padding=same\nflatten\ndense classes\n' >"$work/slow.lk"
begin train --model "$work/slow.lk" --data synthetic --limit-train 4096 --batch-size 4096 --limit-val 0 --epochs 1 --devices cpu:0
until_there 'warning: ' "$work/stderr"
kill -KILL "$process"
ends_with 137
says 'warning: a step is about 1.6e+14 flops, which take 53.8 minutes at 50 GFLOP/s a device;'
printf 'flatten\nrelu\ndense 11\n' >"$work/eleven.lk"
run 1 summary --model "$work/eleven.lk"
complains "$work/eleven.lk:3: dense: the output is [1,11]; expected [N,10], one number a class"
run 1 summary --model "$work/none.lk"
complains "$work/none.lk: cannot be opened: No such file or directory"
run 2 summary --model lent
complains "unknown model 'lent': did you mean 'lenet'?"
run 2 summary --shards 300
complains '--shards 300: must be at most the batch size, 256'
run 2 summary --devices cuda
complains '--devices cuda: must be with --memory'
run 2 summary --devices 2xcpu
complains '--devices 2xcpu: must be a number of devices, or GPUs'
run 2 summary --memory --devices cuda --channels 3
complains '--devices cuda: images of another size must come from --data'
run 2 summary --shards 2 --devices 3
complains '--devices 3: must be at most the number of shards, 2'
run 1 summary --height 8
grep -q 'lockstep: lenet: conv2: a kernel of 5 does not fit into ' "$work/stderr" || fail 'no such error'
