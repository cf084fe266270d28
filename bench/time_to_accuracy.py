"""Compares the time in which a recipe and the same training in PyTorch reach an accuracy on Fashion-MNIST: same network,
initialization, augmentation, schedule, batch and dtype, a training for each seed, in turns, on two cores."""
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import chart
import models
from peers import Peer
from processes import Failed, NotMeasured, Process
from table import print_cells, summary

NAME = "time-to-accuracy"
RECIPE = "fashion-mnist-fast"
GOALS = (0.92, 0.94)
PROGRAM = Path(__file__).resolve().parent / "peer_torch_accuracy.py"
LOCKSTEP = "lockstep"


def add_options(parser):
    group = parser.add_argument_group(f"of --only {NAME} (--samples: seeds; --ways: PyTorch's, of which the fastest trains)")
    group.add_argument("--minutes", type=float, default=60, metavar="N",
                       help="for all trainings, of which ours come first: a peer's is not begun, or ended, if there is less "
                            "time (default 60)")
    group.add_argument("--first-seed", type=int, default=0, metavar="N", help="of the seeds (default 0)")


def read_settings(bench):
    """The options of the recipe, by name."""
    found = subprocess.run([bench.args.lockstep, "recipes", RECIPE], capture_output=True, text=True)
    options = [line.split() for line in found.stdout.splitlines()[1:]]
    if found.returncode != 0 or not options:
        raise Failed(f"lockstep has no recipe {RECIPE}")
    return dict((option + [None])[:2] for option in options)


def train(bench, who, command, seed, cpus, limit=None):
    """Runs a training and keeps its epochs, those until the limit if it takes longer. Gives the line that it became."""
    process = Process(command, cpus, limit)
    try:
        process.finish()
    except Failed as failure:
        if limit is None or process.seconds < limit:
            raise
        bench.progress(f"{who}: {failure}")
    events = [json.loads(line) for line in process.stdout.splitlines()]
    epochs = [{key: event[key] for key in ("epoch", "val_accuracy", "total_seconds")} for event in events
              if event["event"] == "epoch"]
    if not epochs:
        raise Failed(f"{who} reported no epoch")
    sample = {"seed": seed, "epochs": epochs, "dtype": events[-1].get("dtype")}
    ended = not hasattr(process, "others")
    return bench.record(NAME, who, sample | ({"life_seconds": process.seconds} if ended else {}), None if ended else process)


def our_command(bench, seed):
    return [bench.args.lockstep, "train", "--recipe", RECIPE, "--devices", "2xcpu", "--seed", seed, "--json"]


def peer_command(bench, peer, settings, ours):
    """The training with the seed, and in the dtype, of one of ours."""
    settings = settings | {"--data": Path(os.environ["LOCKSTEP_DATA"]) / bench.data, "--dtype": ours["dtype"]}
    words = [word for option in settings.items() for word in option if word is not None]
    return [peer.installed.python, PROGRAM, *words, "--seed", ours["seed"], *peer.options]


def fastest(bench, installed, settings, ours, cpus):
    """PyTorch's way on two cores that makes most steps of this network in --seconds."""
    speeds = {}
    for way, options in installed.ways(len(cpus), bench.args.ways).items():
        peer = Peer(installed, way, options)
        process = Process([installed.python, installed.framework.program, "--model", settings["--model"], "--batch",
                           settings["--batch-size"], "--dtype", ours["dtype"], "--seconds", bench.args.seconds, *options], cpus,
                          limit=10 * bench.args.patience)
        try:
            speeds[peer] = json.loads(process.finish())["images_per_second"]
        except Failed as failure:
            bench.progress(f"{peer.name}: {failure}")
            continue
        bench.progress(f"{peer.name}: {speeds[peer]:.0f} images/s")
        bench.record(f"{NAME}, ways", peer.name, {"images_per_second": speeds[peer]}, process)
    return max(speeds, key=speeds.get, default=None)


def measure(bench):
    """Prints the table and draws the chart. False: something failed."""
    try:
        lines = collect(bench)
    except NotMeasured as reason:
        print(f"{NAME}: not measured: {reason}")
        return not isinstance(reason, Failed)
    report(lines, bench.args.out)
    return True


def collect(bench):
    if bench.data == "synthetic":
        raise NotMeasured("LOCKSTEP_DATA names no folder with fashion-mnist")
    cpus, settings, quick = bench.cores(2), read_settings(bench), ["--epochs", 1] * bench.args.quick
    installed = [framework for framework in bench.peers if framework.framework.name == "PyTorch"]
    different = models.find_difference(bench, settings["--model"], settings["--model"], installed)
    if different:
        raise Failed(different)
    began, lines, longest, peers = time.monotonic(), [], {}, None

    def left():
        return 60 * bench.args.minutes - (time.monotonic() - began)

    for seed in range(bench.args.first_seed, bench.args.first_seed + bench.args.samples):
        ours = train(bench, LOCKSTEP, our_command(bench, seed) + quick, seed, cpus)
        lines.append(ours)
        if peers is None:
            peers = [peer for one in installed if (peer := fastest(bench, one, settings, ours, cpus))]
        ours_to_come = (bench.args.first_seed + bench.args.samples - 1 - seed) * ours["life_seconds"]
        for peer in peers:
            if left() > longest.get(peer.name, 0) + ours_to_come:
                lines.append(train(bench, peer.name, peer_command(bench, peer, settings, ours) + quick, seed, cpus,
                                   left() - ours_to_come))
                longest[peer.name] = max(longest.get(peer.name, 0), lines[-1]["life_seconds"])
        bench.progress(f"{NAME}: seed {seed} done, {left():.0f} s left")
    return lines


def seconds_to(line, goal):
    """None: the training never reached the accuracy."""
    return next((epoch["total_seconds"] for epoch in line["epochs"] if epoch["val_accuracy"] >= goal), None)


def cells(line):
    reached = [seconds_to(line, goal) for goal in GOALS]
    last = line["epochs"][-1]
    return [line["who"], line["seed"], *("-" if value is None else f"{value:.1f}" for value in reached),
            f"{last['val_accuracy']:.4f}", f"{last['total_seconds']:.1f}", f"{line['others']:.0%}" if "others" in line else "ended"]


def summary_cells(who, lines):
    reached = [[value for line in lines if (value := seconds_to(line, goal)) is not None] for goal in GOALS]
    texts = [summary(values, 1) + f", {len(values)} of {len(lines)}" * (len(values) < len(lines)) if values else "-"
             for values in reached]
    ends = [line["epochs"][-1] for line in lines]
    return [who, len(lines), *texts, summary([end["val_accuracy"] for end in ends], 4),
            summary([end["total_seconds"] for end in ends], 1)]


def report(lines, out):
    """lines: of the file of samples."""
    lines = [line for line in lines if line["what"] == NAME]
    if not lines:
        return
    goals = [f"s to {goal:.0%}" for goal in GOALS]
    print_cells([["who", "seed", *goals, "accuracy at the end", "s", "others"]] + [cells(line) for line in lines])
    by_who = {}
    for line in lines:
        by_who.setdefault(line["who"], []).append(line)
    print()
    print_cells([["who", "seeds", *goals, "accuracy at the end", "s"]] + [summary_cells(*item) for item in by_who.items()])
    ours = by_who.get(LOCKSTEP, [])
    for who, theirs in by_who.items():
        values = [[seconds_to(line, goal) for line in side] for goal in GOALS for side in (ours, theirs)]
        if who != LOCKSTEP and all(values) and None not in sum(values, []):
            middles = [statistics.median(side) for side in values]
            ratios = ", ".join(f"{middles[2 * i + 1] / middles[2 * i]:.2f} to {goal:.0%}" for i, goal in enumerate(GOALS))
            print(f"\n{who}: its time by ours is {ratios}")
    curves = {who: [[(epoch["total_seconds"], epoch["val_accuracy"]) for epoch in line["epochs"]] for line in theirs]
              for who, theirs in by_who.items()}
    path = out.with_name(f"{out.stem}-{NAME}.svg")
    path.write_text(chart.draw_times("Validation accuracy on Fashion-MNIST over time, two cores",
                                     f"lockstep train --recipe {RECIPE}; a line is a seed, a point an epoch", curves, GOALS))
    print(f"\nchart: {path}")
