"""Compares speed and memory of networks with other frameworks, in turns, on one and on two cores, in f32 and bf16."""
import json
import re
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import chart
from peers import WAYS as PEER_WAYS, Peer
from processes import Failed, NotMeasured, Process, done
from table import print_cells, summary

FILES = Path(__file__).resolve().parent / "networks"
MODELS = "models"  # what these lines are called in the file of samples


@dataclass
class Network:
    batch: int
    goals: dict = field(default_factory=dict)  # (dtype, cores): the ratio to the fastest peer that is to be reached
    memory_goal: float = 0  # ours / the fastest peer's on one core, at most
    model: str = ""  # argument of --model; empty: the name of the network


def reference(batch, f32, f32_on_two, bf16, memory):
    return Network(batch, {("f32", 1): f32, ("f32", 2): f32_on_two, ("bf16", 1): bf16}, memory)


NETWORKS = {
    "lenet": reference(256, 4.0, 5.5, 3.5, 1 / 3),
    "keras-cnn": reference(256, 5.5, 6.0, 4.5, 1 / 3),
    "resnet18": reference(64, 2.0, 2.0, 1.3, 1 / 2),
    "wrn-16-10": reference(32, 2.1, 2.1, 1.3, 1 / 2),
    "mlp": Network(256, {("f32", 1): 1.6, ("f32", 2): 1.6, ("bf16", 1): 1.6}, model=FILES / "mlp.lk"),
    "vgg": Network(64, model=FILES / "vgg.lk"),
    "resnet20": Network(128, model=FILES / "resnet20.lk"),
}
DEFAULTS = ("lenet", "keras-cnn", "resnet18", "wrn-16-10", "mlp")
DTYPES = ("f32", "bf16")
CORES = (1, 2)
# A peer that reaches less of the fastest one's speed, in one sample or in the best of several, is not sampled again.
TOO_SLOW, TOO_SLOW_IN_SEVERAL = 0.5, 0.75

SPEED = ["network", "dtype", "batch", "cores", "V", "images/s", "GFLOP/s", "of peak", "peer, images/s", "the fastest peer",
         "ratio", "of processor time", "others", "goal", "reached"]
WAYS = ["network", "dtype", "batch", "cores", "peer", "images/s", "samples", "ratio", "of processor time"]
MEMORY = ["network", "dtype", "batch", "cores", "peak MB", "peer", "ratio", "goal", "reached", "above start, MB", "peer",
          "ratio"]


def add_options(parser):
    group = parser.add_argument_group("of --only models (--models: of pair too)")
    group.add_argument("--models", metavar="NAME,…", type=lambda text: text.split(","),
                       help=f"of {', '.join(NETWORKS)} (default: the first five; of pair lenet)")
    group.add_argument("--dtypes", metavar="NAME,…", type=lambda text: text.split(","), default=list(DTYPES),
                       help=f"of {', '.join(DTYPES)}")
    group.add_argument("--cores", metavar="N,…", type=lambda text: [int(n) for n in text.split(",")],
                       default=list(CORES), help="1 and 2")
    group.add_argument("--batch-sizes", metavar="N,…", type=lambda text: [int(n) for n in text.split(",")],
                       help="instead of the networks' own")
    group.add_argument("--ways", metavar="NAME,…", type=lambda text: text.split(","), default=list(PEER_WAYS),
                       help=f"in which the peers run: of {', '.join(PEER_WAYS)}; the last is torch.compile and Keras's XLA "
                            "(default: all)")
    group.add_argument("--patience", metavar="SECONDS", type=float, default=60,
                       help="what takes a peer longer is sampled once, and ended after ten times that (default 60)")


def check_options(args):
    """Returns what is wrong with the options; None: nothing."""
    for names, known, option in ((args.models or [], NETWORKS, "models"), (args.dtypes, DTYPES, "dtypes"),
                                 (args.cores, CORES, "cores"), (args.ways, PEER_WAYS, "ways")):
        for name in names:
            if name not in known:
                return f"--{option} {name}: there are {', '.join(str(k) for k in known)}"
    if args.batch_sizes and min(args.batch_sizes) < 2:
        return "--batch-sizes: two devices need two images"
    return "--patience must be more than 0" if args.patience <= 0 else None


class Samples:
    """What the processes of one side have reported: lines of the file of samples."""

    def __init__(self):
        self.samples, self.failure = [], None

    def add(self, line):
        if "failure" in line:
            self.failure = line["failure"]
        else:
            self.samples.append(line)

    def values(self, key):
        return [sample[key] for sample in self.samples]

    def median(self, key):
        return statistics.median(self.values(key))


def make_peers(bench, cores):
    return [Peer(installed, way, options) for installed in bench.peers
            for way, options in installed.ways(cores, bench.args.ways).items()]


def read_peak(bench, cpus):
    """Measures the current peak of a core."""
    program = bench.args.lockstep.parent / "bench" / "bench_peak"
    if not program.exists():
        raise NotMeasured(f"there is no {program}")
    return json.loads(Process([program], {min(cpus)}).finish())


class Row:
    """A network, a dtype, a batch size and a number of cores, with samples by the name of who gave them."""

    def __init__(self, name, dtype, batch, cores):
        self.name, self.dtype, self.batch, self.cores = name, dtype, batch, cores
        self.network = NETWORKS[name]
        self.what = f"{name}, {dtype}, batch {batch}, {cores} core{'s' * (cores > 1)}"
        self.ours, self.peaks, self.peers, self.reason = Samples(), Samples(), {}, None

    def key(self):
        return {"network": self.name, "dtype": self.dtype, "batch": self.batch, "cores": self.cores}

    def add(self, line):
        """Takes a line of the file of samples."""
        known = {"lockstep": self.ours, "peak of a core": self.peaks}
        (known.get(line["who"]) or self.peers.setdefault(line["who"], Samples())).add(line)

    def measure(self, bench):
        cpus, devices = bench.cores(self.cores), f"{self.cores}xcpu"
        model = self.network.model or self.name
        setting = {"model": model, "batch": self.batch, "dtype": self.dtype}
        images, start = bench.calibrate(devices, cpus, **setting)
        peers = make_peers(bench, self.cores)
        for number in range(bench.args.samples):
            bench.progress(f"{self.what}: sample {number + 1} of {bench.args.samples}")
            self.take_ours(bench, bench.ours(devices, images, cpus, "--epochs", 2, **setting), cpus, start)
            for peer in peers:
                if not self.is_enough(peer, bench.args.patience):
                    self.take_peer(bench, peer, cpus)

    def take_ours(self, bench, process, cpus, start):
        """Samples a core's peak and our training, which has two epochs, the first to warm up. Processor time an image is that
        of both epochs; start-up is left out by subtracting the short training `start`."""
        peak, event = read_peak(bench, cpus), done(process)
        self.add(bench.record(MODELS, "peak of a core", {**self.key(), **peak}))
        self.add(bench.record(MODELS, "lockstep", {
            **self.key(), **event, "peak_bytes": process.peak_bytes,
            "processor_seconds_per_image": (process.processor_seconds - start[0]) / (event["samples_seen"] - start[1])},
            process))

    def is_enough(self, peer, patience):
        """Whether the peer needs no further sample: it failed, takes too long, or is far from being the fastest."""
        samples = self.peers.get(peer.name, Samples())
        if samples.failure or any(seconds > patience for seconds in samples.values("life_seconds")):
            return True
        speeds = samples.values("images_per_second")
        share = TOO_SLOW if len(speeds) == 1 else TOO_SLOW_IN_SEVERAL
        return bool(speeds) and max(speeds) < share * self.peers[self.best_peer()].median("images_per_second")

    def take_peer(self, bench, peer, cpus):
        process = peer.start(self, cpus, bench.args.seconds, 10 * bench.args.patience)
        try:
            report = json.loads(process.finish())
        except Failed as failure:
            report = {"failure": str(failure)}
        self.add(bench.record(MODELS, peer.name, {**self.key(), **report}, process))

    def head(self):
        return [self.name, self.dtype, self.batch, self.cores]

    def best_peer(self):
        """Returns the name of the fastest; None: no peer was measured."""
        measured = [name for name, samples in self.peers.items() if samples.samples]
        return max(measured, key=lambda name: self.peers[name].median("images_per_second"), default=None)

    def why_no_peer(self):
        return next((samples.failure for samples in self.peers.values()), "there is no peer")

    def ratio(self, peer):
        return self.ours.median("images_per_second") / self.peers[peer].median("images_per_second")

    def processor_ratio(self, peer):
        key = "processor_seconds_per_image"
        return self.peers[peer].median(key) / self.ours.median(key)

    def our_speed(self):
        speeds = self.ours.values("images_per_second")
        return summary(speeds, 1 if statistics.median(speeds) < 100 else 0)

    def peer_speed(self, peer):
        """A single sample may be one long step, of less than an image a second, so it gets two digits."""
        speeds = self.peers[peer].values("images_per_second")
        return summary(speeds, 0 if statistics.median(speeds) >= 100 else 1 if len(speeds) > 1 else 2)

    def speed_cells(self):
        if self.reason:
            return self.head() + ["-", f"not measured: {self.reason}"] + ["-"] * 9
        ours, goal = self.ours.median("images_per_second"), self.network.goals.get((self.dtype, self.cores), "-")
        last = self.ours.samples[-1]
        flops = last["flops_per_second"] / last["images_per_second"] * ours
        share = flops / (self.cores * self.peaks.median("flops"))
        cells = self.head() + [last["shards"], self.our_speed(), f"{flops / 1e9:.0f}", f"{share:.0%}"]
        peer, others = self.best_peer(), f"{self.ours.median('others'):.0%}"
        if not peer:
            return cells + [f"not measured: {self.why_no_peer()}", "-", "-", "-", others, goal, "-"]
        samples = self.peers[peer]
        count = len(samples.samples)
        few = f", {count} sample{'s' * (count > 1)}" if count < len(self.ours.samples) else ""
        return cells + [self.peer_speed(peer), peer + few, f"{self.ratio(peer):.2f}", f"{self.processor_ratio(peer):.2f}",
                        others, goal, "-" if goal == "-" else "yes" if self.ratio(peer) >= goal else "no"]

    def way_cells(self):
        """A line for each way of each peer."""
        for name, samples in self.peers.items():
            cells = self.head() + [name]
            if samples.samples:
                yield cells + [self.peer_speed(name), len(samples.samples), f"{self.ratio(name):.2f}",
                               f"{self.processor_ratio(name):.2f}"]
            else:
                yield cells + [f"not measured: {samples.failure}", 0, "-", "-"]

    def memory_cells(self):
        ours, start = self.ours.median("peak_bytes"), self.peaks.median("start_bytes")
        goal = self.network.memory_goal if self.cores == 1 else 0
        peer = self.best_peer()
        cells, above = self.head() + [f"{ours / 1e6:.0f}"], [f"{(ours - start) / 1e6:.0f}"]
        if not peer:
            return cells + ["-"] * 4 + above + ["-"] * 2
        theirs, their_start = self.peers[peer].median("peak_bytes"), self.peers[peer].median("start_bytes")
        return cells + [f"{theirs / 1e6:.0f}", f"{ours / theirs:.2f}", f"{goal:.2f}" if goal else "-",
                        "-" if not goal else "yes" if ours <= goal * theirs else "no", *above,
                        f"{(theirs - their_start) / 1e6:.0f}", f"{(ours - start) / (theirs - their_start):.2f}"]

    def bar(self):
        """For the chart."""
        peer, own_batch = self.best_peer(), self.batch == self.network.batch
        speeds = [statistics.median(samples.values("images_per_second")) for samples in (self.ours, self.peers[peer])]
        ours, theirs = (f"{speed:.{1 if speed < 100 else 0}f}" for speed in speeds)
        return (self.name if own_batch else f"{self.name}, {self.batch}", self.cores, self.ratio(peer),
                f"{ours} vs {theirs} images/s")


def find_difference(bench, name, model, peers):
    """Returns why ours and some peer's are not the same network: their numbers of parameters differ; None: they are equal."""
    text = subprocess.run([bench.args.lockstep, "summary", "--model", model], capture_output=True, text=True).stdout
    ours = re.search(r"^total\s+(\d+)", text, re.MULTILINE)
    for installed in peers:
        if not ours or int(ours[1]) != installed.count_parameters(name):
            return f"{name}: the network of {installed.name} has not as many parameters as ours"
    return None


def about(seconds):
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} s"


def estimate(bench, rows):
    """Seconds, if a step is short compared with a sample: starting a peer takes about 5 s, ours half a second."""
    length = bench.args.seconds
    ways = sum(len(make_peers(bench, row.cores)) for row in rows)
    return bench.args.samples * (len(rows) * (2 * length + 1) + ways * (length + 5)) + len(rows) * 3


def measure(bench):
    """Prints the tables and draws the charts. False: something failed."""
    args, good, began = bench.args, True, time.monotonic()
    names = args.models or DEFAULTS
    rows = [Row(name, dtype, batch, cores) for name in names for batch in args.batch_sizes or [NETWORKS[name].batch]
            for dtype in args.dtypes for cores in args.cores]
    bench.progress(f"{len(rows)} rows of {args.samples} samples: {about(estimate(bench, rows))}, and longer where a step "
                   f"takes more than {args.seconds:g} s")
    different = {name: find_difference(bench, name, NETWORKS[name].model or name, bench.peers) for name in names}
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
    report(rows, args.out)
    return good


def read_rows(lines):
    """Rows of the lines of files of samples."""
    rows = {}
    for line in lines:
        if line["what"] == MODELS:
            key = (line["network"], line["dtype"], line["batch"], line["cores"])
            rows.setdefault(key, Row(*key)).add(line)
    return [row for row in rows.values() if row.ours.samples]


def report(rows, out):
    print_cells([SPEED] + [row.speed_cells() for row in rows])
    measured = [row for row in rows if not row.reason]
    if any(len(row.peers) > 1 for row in measured):
        print("\nThe peers' ways, each compared with ours:\n")
        print_cells([WAYS] + [cells for row in measured for cells in row.way_cells()])
    if measured:
        peak = statistics.median(value for row in measured for value in row.peaks.values("flops"))
        print(f"\nPeak of a core, f32, measured before each sample: {peak / 1e9:.0f} GFLOP/s (median). bf16 is computed in "
              f"f32, so its share is of the same.\nOf processor time: the peer's for an image, divided by ours. Others: the "
              f"share of the cores' time that went to other programs while ours ran.\n")
        print_cells([MEMORY] + [row.memory_cells() for row in measured])
        print("\nPeak: the most resident memory of a process (VmHWM), of PyTorch's DDP the sum of its processes. Above start: "
              "less what the process\nhad with its library loaded and, of ours, a device open. Ours holds its training images "
              "too.")
    draw([row for row in measured if row.best_peer()], out)


def draw(rows, out):
    """Draws a chart for each dtype, next to the file of samples."""
    for dtype in DTYPES:
        chosen = [row for row in rows if row.dtype == dtype]
        if chosen:
            peers = dict.fromkeys(name.split(",")[0] for row in chosen for name in row.peers)
            path = out.with_name(f"{out.stem}-{dtype}.svg")
            path.write_text(chart.draw(f"Training speed in {dtype}, times that of the fastest peer",
                                       f"the fastest way of {' and '.join(peers)}", [row.bar() for row in chosen]))
            print(f"\nchart: {path}")
