#!/usr/bin/env bash
# TensorBoard's own reader finds all records in event files. $PYTHON is a Python that has TensorBoard.
set -euo pipefail

python=${PYTHON:-python3}
writer=${EVENTS:-$(dirname "$LOCKSTEP")/tests/events_test}
if ! "$python" -c 'import tensorboard' 2>/dev/null; then
    echo "SKIP: $python has no TensorBoard (pip install tensorboard)"
    exit 77
fi
if [[ ! -x $writer ]]; then
    echo "SKIP: the tests that need cmocka were not built"
    exit 77
fi
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

"$writer" "$logs"
"$python" - "$logs" <<'END'
import math
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()
tags = events.Tags()
assert sorted(tags["scalars"]) == ["train/accuracy", "train/loss"], tags
assert sorted(tags["histograms"]) == ["weights/conv1", "weights/equal", "weights/none"], tags
assert tags["tensors"] == ["settings"], tags

loss = events.Scalars("train/loss")
assert [(e.step, e.wall_time, e.value) for e in loss[:3]] == [(0, 1000, 2.5), (1, 1001, 1.5), (2, 1002, 0.5)], loss
assert loss[3].step == 3 and math.isnan(loss[3].value) and loss[3].wall_time > 1.6e9, loss

h = events.Histograms("weights/conv1")[0].histogram_value
assert (h.min, h.max, h.num, h.sum, h.sum_squares) == (-1, 2, 7, 1.75, 6.3125), h
assert len(h.bucket_limit) == len(h.bucket) == 30 and sum(h.bucket) == 7 and h.bucket_limit[-1] == 2, h
assert events.Histograms("weights/equal")[0].histogram_value.bucket == [3]
assert events.Histograms("weights/none")[0].histogram_value.num == 0

text = events.Tensors("settings")[0].tensor_proto
assert text.string_val[0].decode() == "| a | b |\n|---|---|\n| 1 | ä |\n", text
assert events.SummaryMetadata("settings").plugin_data.plugin_name == "text"

# The records as the web page gets them: all kinds are tensors of their plugins.
plugins = PluginEventAccumulator(sys.argv[1]).Reload()
for tag, plugin in (("train/loss", "scalars"), ("weights/conv1", "histograms"), ("weights/none", "histograms"),
                    ("settings", "text")):
    assert plugins.SummaryMetadata(tag).plugin_data.plugin_name == plugin, tag
    assert plugins.Tensors(tag), tag
END

# The records that training writes by default.
"$LOCKSTEP" train --model lenet --data synthetic --limit-train 128 --limit-val 64 --epochs 2 --batch-size 32 \
    --devices cpu:0 --log-dir "$logs/run" >"$logs/output"
"$python" - "$logs/run" <<'END'
import csv
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()
with open(sys.argv[1] + "/epochs.csv", newline="") as file:
    rows = list(csv.DictReader(file))
assert len(rows) == 2, rows
for tag, column in (("loss/train", "train_loss"), ("loss/val", "val_loss"), ("accuracy/train", "train_accuracy"),
                    ("accuracy/val", "val_accuracy"), ("learning_rate", "rate"),
                    ("images_per_second", "images_per_second")):
    curve = [(e.step, e.value) for e in events.Scalars(tag)]
    assert [step for step, _ in curve] == [1, 2], (tag, curve)
    for (_, value), row in zip(curve, rows):
        assert abs(value - float(row[column])) <= 1e-6 * abs(value), (tag, value, row)
assert events.Histograms("weights/conv1.weight")[-1].histogram_value.num == 180
assert events.Histograms("gradients/conv1.weight")[-1].histogram_value.num == 180
assert "| model | lenet |" in events.Tensors("settings")[0].tensor_proto.string_val[0].decode()
END

# The records of a training that was killed in the middle of an epoch and resumed: each epoch once, the settings once, and
# the values of an uninterrupted training.
training=(train --model lenet --data synthetic --limit-train 64 --limit-val 32 --batch-size 16 --epochs 5 --base-lr 0.05
    --devices 1 --shards 2)
"$LOCKSTEP" "${training[@]}" --log-dir "$logs/alone" >"$logs/output" 2>&1
"$LOCKSTEP" "${training[@]}" --log-dir "$logs/resumed" --checkpoint-dir "$logs/kept" --checkpoint-every 3 --keep 100 \
    >"$logs/output" 2>&1
rm -rf "$logs"/kept/checkpoint-0000001[2-9] "$logs"/kept/checkpoint-0000002*
# A killed process may have written a part of its last record.
cp "$logs"/resumed/events.* "$logs/torn"
head -c $(($(stat -c %s "$logs/torn") - 7)) "$logs/torn" >"$(echo "$logs"/resumed/events.*)"
"$LOCKSTEP" "${training[@]}" --log-dir "$logs/resumed" --checkpoint-dir "$logs/kept" --resume >"$logs/output" 2>&1
"$python" - "$logs/alone" "$logs/resumed" <<'END'
import glob
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

alone, resumed = [EventAccumulator(path, size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()
                  for path in sys.argv[1:]]
files = glob.glob(sys.argv[2] + "/events.*")
assert len(files) == 1, files
assert alone.Tags() == resumed.Tags(), (alone.Tags(), resumed.Tags())
for tag in alone.Tags()["scalars"]:
    curves = [[(e.step, e.value) for e in run.Scalars(tag)] for run in (alone, resumed)]
    assert [step for step, _ in curves[1]] == [1, 2, 3, 4, 5], (tag, curves[1])
    assert tag == "images_per_second" or curves[0] == curves[1], (tag, curves)
for tag in alone.Tags()["histograms"]:
    values = [[(e.step, e.histogram_value) for e in run.Histograms(tag)] for run in (alone, resumed)]
    assert values[0] == values[1] and len(values[1]) == 5, tag
assert len(resumed.Tensors("settings")) == 1
# All records of the file; nothing unreadable may follow them.
counts = [len(list(EventFileLoader(glob.glob(path + "/events.*")[0]).Load())) for path in sys.argv[1:]]
assert counts[0] == counts[1], counts
END
