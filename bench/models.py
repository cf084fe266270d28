"""Compares speed and memory of networks with PyTorch, in turns, on one and on two cores, in f32 and bf16."""
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from processes import Failed, NotMeasured, Process, done
from table import print_cells, summary

FILES = Path(__file__).resolve().parent / "networks"


@dataclass
class Network:
    batch: int
    goals: dict = field(default_factory=dict)  # (dtype, cores): the ratio to PyTorch that is to be reached
    memory_goal: float = 0  # ours / PyTorch's on one core, at most
    model: str = ""  # what --model is; its name


def reference(batch, f32, f32_on_two, bf16, memory):
    return Network(batch, {("f32", 1): f32, ("f32", 2): f32_on_two, ("bf16", 1): bf16}, memory)


REFERENCES = {
    "lenet": reference(256, 3.5, 4.0, 3.5, 1 / 3),
    "keras-cnn": reference(256, 3.0, 3.0, 3.0, 1 / 3),
    "resnet18": reference(64, 1.75, 1.75, 1.3, 1 / 2),
    "wrn-16-10": reference(32, 1.9, 1.9, 1.3, 1 / 2),
}
OTHERS = {
    "mlp": Network(256, model=FILES / "mlp.lk"),
    "vgg": Network(64, model=FILES / "vgg.lk"),
    "resnet20": Network(128, model=FILES / "resnet20.lk"),
}
NETWORKS = {**REFERENCES, **OTHERS}
DTYPES = ("f32", "bf16")
CORES = (1, 2)

SPEED = ["network", "dtype", "batch", "cores", "V", "images/s", "GFLOP/s", "of peak", "PyTorch, images/s", "its fastest",
         "ratio", "goal", "reached"]
WAYS = ["network", "dtype", "batch", "cores", "PyTorch", "images/s", "samples", "ratio"]
MEMORY = ["network", "dtype", "batch", "cores", "peak MB", "PyTorch", "ratio", "goal", "reached", "above start, MB",
          "PyTorch", "ratio"]


def add_options(parser):
    group = parser.add_argument_group("of --only models (--models: of pair too)")
    group.add_argument("--models", metavar="NAME,…", type=lambda text: text.split(","),
                       help=f"of {', '.join(NETWORKS)} (default: the first four; of pair lenet)")
    group.add_argument("--dtypes", metavar="NAME,…", type=lambda text: text.split(","), default=list(DTYPES),
                       help=f"of {', '.join(DTYPES)}")
    group.add_argument("--cores", metavar="N,…", type=lambda text: [int(n) for n in text.split(",")],
                       default=list(CORES), help="1 and 2")
    group.add_argument("--batch-sizes", metavar="N,…", type=lambda text: [int(n) for n in text.split(",")],
                       help="instead of the networks' own")
    group.add_argument("--patience", metavar="SECONDS", type=float, default=60,
                       help="what takes PyTorch longer is sampled once, and ended after ten times that (default 60)")


def check_options(args):
    """What is wrong with them, or None."""
    for names, known, option in ((args.models or [], NETWORKS, "models"), (args.dtypes, DTYPES, "dtypes"),
                                 (args.cores, CORES, "cores")):
        for name in names:
            if name not in known:
                return f"--{option} {name}: there are {', '.join(str(k) for k in known)}"
    if args.batch_sizes and min(args.batch_sizes) < 2:
        return "--batch-sizes: two devices need two images"
    return "--patience must be more than 0" if args.patience <= 0 else None


def ways_to_use(bench, cores):
    """PyTorch's ways to use these cores, and their options."""
    ways = {f"{cores} thread{'s' * (cores > 1)}": ["--threads", cores]}
    if cores > 1:
        ways[f"{cores} DDP processes"] = ["--processes", cores]
    if bench.args.all_peers:
        for way, options in list(ways.items()):
            ways[f"{way}, channels last"] = [*options, "--channels-last"]
            ways[f"{way}, compiled"] = [*options, "--compile"]
    return ways


class Samples:
    """What each process of one side has reported."""

    def __init__(self):
        self.samples, self.failure = [], None

    def take(self, read):
        """Whether there is one more."""
        try:
            self.samples.append(read())
        except Failed as failure:
            self.failure = failure
        return not self.failure

    def values(self, key):
        return [sample[key] for sample in self.samples]

    def median(self, key):
        return statistics.median(self.values(key))


class Peer:
    """A version of PyTorch, and a way for it to use the cores; the fastest counts."""

    def __init__(self, version, way, options):
        self.version, self.options, self.name, self.samples = version, options, f"{version}, {way}", Samples()


def make_peers(bench, cores):
    return [Peer(version, way, options) for version in bench.peers
            for way, options in ways_to_use(bench, cores).items()]


def read_peak(bench, cpus):
    """Measures the current peak of a core."""
    program = bench.args.lockstep.parent / "bench" / "bench_peak"
    if not program.exists():
        raise NotMeasured(f"there is no {program}")
    return json.loads(Process([program], {min(cpus)}).finish())


def read_ours(process):
    event = done(process)
    return {**event, "peak_bytes": process.peak_bytes}


class Row:
    """A network, a dtype, a batch size and a number of cores. Ours trains for two epochs: the first is to warm up."""

    def __init__(self, network, dtype, batch, cores):
        self.name, self.network, self.dtype, self.cores = network, NETWORKS[network], dtype, cores
        self.batch = batch or self.network.batch
        self.what = f"{network}, {dtype}, batch {self.batch}, {cores} core{'s' * (cores > 1)}"
        self.ours, self.peaks, self.peers, self.reason = Samples(), Samples(), [], None

    def measure(self, bench):
        cpus, devices = bench.cores(self.cores), f"{self.cores}xcpu"
        model = self.network.model or self.name
        setting = {"model": model, "batch": self.batch, "dtype": self.dtype}
        images = bench.images_for(devices, cpus, **setting)
        self.peers = make_peers(bench, self.cores)
        for number in range(bench.args.samples):
            bench.progress(f"{self.what}: sample {number + 1} of {bench.args.samples}")
            self.take_ours(bench, bench.ours(devices, images, cpus, "--epochs", 2, **setting), cpus)
            for peer in self.peers:
                self.take_peer(bench, peer, cpus)

    def take_ours(self, bench, process, cpus):
        if not self.peaks.take(lambda: read_peak(bench, cpus)):
            raise self.peaks.failure
        if not self.ours.take(lambda: read_ours(process)):
            raise self.ours.failure
        bench.record(self.what, "peak of a core", self.peaks.samples[-1])
        bench.record(self.what, "lockstep", self.ours.samples[-1], process)

    def take_peer(self, bench, peer, cpus):
        samples, patience = peer.samples, bench.args.patience
        if samples.failure or any(seconds > patience for seconds in samples.values("life_seconds")):
            return
        process = bench.peer(peer.version, cpus, *peer.options, model=self.name, batch=self.batch, dtype=self.dtype,
                             limit=10 * patience)
        if samples.take(lambda: {**json.loads(process.finish()), "life_seconds": process.seconds}):
            bench.record(f"{self.what}, {peer.name}", "torch", samples.samples[-1], process)
        else:
            bench.record(f"{self.what}, {peer.name}", "torch", {"failure": str(samples.failure)}, process)

    def head(self):
        return [self.name, self.dtype, self.batch, self.cores]

    def best_peer(self):
        """The fastest; None: nothing was measured."""
        measured = [peer for peer in self.peers if peer.samples.samples]
        return max(measured, key=lambda peer: peer.samples.median("images_per_second"), default=None)

    def why_no_peer(self, bench):
        failures = (str(peer.samples.failure) for peer in self.peers if peer.samples.failure)
        return bench.peer_missing or next(failures, "not measured")

    def ratio(self, peer):
        return self.ours.median("images_per_second") / peer.samples.median("images_per_second")

    def peer_speed(self, peer):
        """One sample may be a single long step, so it gets two digits."""
        speeds = peer.samples.values("images_per_second")
        return summary(speeds, 0 if statistics.median(speeds) >= 100 else 1 if len(speeds) > 1 else 2)

    def speed_cells(self, bench):
        if self.reason:
            return self.head() + ["-", f"not measured: {self.reason}"] + ["-"] * 7
        ours, goal = self.ours.median("images_per_second"), self.network.goals.get((self.dtype, self.cores), "-")
        last = self.ours.samples[-1]
        flops = last["flops_per_second"] / last["images_per_second"] * ours
        share = flops / (self.cores * self.peaks.median("flops"))
        digits = 1 if ours < 100 else 0
        cells = self.head() + [last["shards"], summary(self.ours.values("images_per_second"), digits),
                               f"{flops / 1e9:.0f}", f"{share:.0%}"]
        peer = self.best_peer()
        if not peer:
            return cells + [f"not measured: {self.why_no_peer(bench)}", "-", "-", goal, "-"]
        few = f", {len(peer.samples.samples)} sample" if len(peer.samples.samples) < len(self.ours.samples) else ""
        return cells + [self.peer_speed(peer), peer.name + few, f"{self.ratio(peer):.2f}", goal,
                        "-" if goal == "-" else "yes" if self.ratio(peer) >= goal else "no"]

    def way_cells(self):
        """A line for each of PyTorch's ways."""
        for peer in self.peers:
            cells = self.head() + [peer.name]
            if peer.samples.samples:
                yield cells + [self.peer_speed(peer), len(peer.samples.samples), f"{self.ratio(peer):.2f}"]
            else:
                yield cells + [f"not measured: {peer.samples.failure}", 0, "-"]

    def memory_cells(self):
        ours, start = self.ours.median("peak_bytes"), self.peaks.median("start_bytes")
        goal = self.network.memory_goal if self.cores == 1 else 0
        peer = self.best_peer()
        cells, above = self.head() + [f"{ours / 1e6:.0f}"], [f"{(ours - start) / 1e6:.0f}"]
        if not peer:
            return cells + ["-"] * 4 + above + ["-"] * 2
        theirs, their_start = peer.samples.median("peak_bytes"), peer.samples.median("start_bytes")
        return cells + [f"{theirs / 1e6:.0f}", f"{ours / theirs:.2f}", f"{goal:.2f}" if goal else "-",
                        "-" if not goal else "yes" if ours <= goal * theirs else "no", *above,
                        f"{(theirs - their_start) / 1e6:.0f}", f"{(ours - start) / (theirs - their_start):.2f}"]


def find_difference(bench, name):
    """Why ours and some PyTorch's are not the same network: their numbers of parameters differ; None: they are equal."""
    model = NETWORKS[name].model or name
    text = subprocess.run([bench.args.lockstep, "summary", "--model", model], capture_output=True, text=True).stdout
    ours = re.search(r"^total\s+(\d+)", text, re.MULTILINE)
    for version, python in bench.peers.items():
        theirs = subprocess.run([python, FILES.parent / "peer_torch.py", "--model", name, "--parameters"],
                                capture_output=True, text=True).stdout
        if not ours or int(ours[1]) != json.loads(theirs or "{}").get("parameters"):
            return f"{name}: the network of PyTorch {version} has not as many parameters as ours"
    return None


def about(seconds):
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} s"


def estimate(bench, rows):
    """Seconds, if a step is short compared with a sample: starting PyTorch takes about 4 s, ours half a second."""
    length = bench.args.seconds
    ways = sum(len(make_peers(bench, row.cores)) for row in rows)
    return bench.args.samples * (len(rows) * (2 * length + 1) + ways * (length + 5)) + len(rows) * 3


def measure(bench):
    """Prints the tables. False: something failed."""
    args, good, began = bench.args, True, time.monotonic()
    rows = [Row(name, dtype, batch, cores) for name in args.models or REFERENCES for batch in args.batch_sizes or [None]
            for dtype in args.dtypes for cores in args.cores]
    bench.progress(f"{len(rows)} rows of {args.samples} samples: {about(estimate(bench, rows))}, and longer where a step "
                   f"takes more than {args.seconds:g} s")
    different = {row.name: None if bench.peer_missing else find_difference(bench, row.name) for row in rows}
    for number, row in enumerate(rows):
        try:
            if different[row.name]:
                raise Failed(different[row.name])
            row.measure(bench)
        except NotMeasured as reason:
            row.reason = reason
            good = good and not isinstance(reason, Failed)
        passed = time.monotonic() - began
        bench.progress(f"{number + 1} of {len(rows)} rows in {about(passed)}; "
                       f"{about(passed / (number + 1) * (len(rows) - number - 1))} more at this pace")
    print_cells([SPEED] + [row.speed_cells(bench) for row in rows])
    measured = [row for row in rows if not row.reason]
    if any(len(row.peers) > 1 for row in measured):
        print("\nPyTorch's ways, each beside ours:\n")
        print_cells([WAYS] + [cells for row in measured for cells in row.way_cells()])
    if measured:
        peak = statistics.median(value for row in measured for value in row.peaks.values("flops"))
        print(f"\nPeak of a core, f32, measured before each sample: {peak / 1e9:.0f} GFLOP/s (median). bf16 is computed in "
              f"f32, so its share is of the same.\n")
        print_cells([MEMORY] + [row.memory_cells() for row in measured])
        print("\nPeak: the most resident memory of a process (VmHWM), of PyTorch's DDP the sum of its processes. Above start: "
              "less what the process\nhad with its library loaded and, of ours, a device open. Ours holds its training images "
              "too.")
    return good
