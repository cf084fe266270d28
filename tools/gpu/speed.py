"""The measurements of tools/gpu_check, lockstep and PyTorch in turn, and their goals."""
import statistics

from machine import read_json_lines
from processes import Failed, NotMeasured
from table import summary

TRAINING_SAMPLES = 60000
SECONDS = 1.5  # of a sample
SHARE_GOAL = 0.8  # of the copy's bandwidth, of each own kernel
LIBRARIES = ("copy", "matmul")  # kernels that are not ours

# Images a second for wrn-16-10 on one GPU, by batch size, as published by the authors of another program.
PUBLISHED = {8: 328, 16: 551, 32: 808, 64: 1002, 128: 1165, 256: 1273, 512: 1329, 700: 1332}
PUBLISHED_GOAL = 10
WRN_FLOPS = 11.1e9  # an image, forward and backward

# Ways to run PyTorch. max-autotune uses CUDA graphs, too, and takes minutes to choose kernels.
WAYS = {"eager": ["--channels-last"],
        "compiled": ["--channels-last", "--compile"],
        "CUDA graphs": ["--channels-last", "--compile", "--compile-mode", "reduce-overhead"],
        "max-autotune": ["--channels-last", "--compile", "--compile-mode", "max-autotune"]}
BIG_WAYS = ("eager", "compiled", "CUDA graphs")
SMALL_WAYS = ("eager", "CUDA graphs")  # the smaller networks have a goal for each of these

FASTEST = "fastest"


class Line:
    """A row of the table."""

    def __init__(self, what, result="-", peer="-", ratio="-", goal="-", reached="-"):
        self.cells = [what, result, peer, ratio, goal, reached]


def lacking(what, reason, goal="-"):
    return Line(what, f"not measured: {reason}", goal=goal)


class Ours:
    """Samples of lockstep's images a second with one setting."""

    def __init__(self, model, batch, dtype, *options, whole=False):
        """whole: epochs cover the whole training set, so that their last batch is smaller."""
        self.whole = whole
        self.setting = ["--model", model, "--batch-size", batch, "--dtype", dtype, *options]
        self.what = f"{model}, {dtype}, batch {batch}" + "".join(f" {option}" for option in options)
        self.batch, self.speeds, self.epochs, self.reason = batch, [], [], None

    def train(self, machine, images, epochs):
        events = machine.train("--devices", "cuda:0", *self.setting, "--limit-train", images, "--epochs", epochs)
        machine.record(self.what, {"who": "lockstep", "images": images, "events": events})
        return events

    def sample(self, machine):
        """Takes a sample: whole epochs of about SECONDS, after a first one that does not count."""
        if machine.emulated:
            self.train(machine, self.batch, 2)
            return
        if self.speeds:
            speed = self.speeds[-1]
        else:
            speed = self.train(machine, 8 * self.batch, 2)[-1]["images_per_second"]
        wanted = SECONDS * speed
        images = int(max(8, min(TRAINING_SAMPLES, wanted) // self.batch)) * self.batch
        if self.whole:
            images = TRAINING_SAMPLES
        events = self.train(machine, images, 1 + max(1, round(wanted / images)))
        self.speeds.append(events[-1]["images_per_second"])
        self.epochs += [event["seconds"] for event in events[1:] if event["event"] == "epoch"]

    def try_sample(self, machine):
        try:
            self.sample(machine)
        except NotMeasured as reason:
            self.reason = self.reason or reason
            raise

    def median(self):
        return statistics.median(self.speeds)

    def text(self):
        return f"{summary(self.speeds, 0)} images/s"


def peer_options(comparisons, seconds, way):
    """Options of PyTorch's program for several networks of one dtype, one after the other."""
    return ["--models", ",".join(c.model for c in comparisons), "--batch", ",".join(str(c.ours.batch) for c in comparisons),
            "--device", "cuda", "--dtype", comparisons[0].dtype, "--seconds", seconds, *WAYS[way]]


def measure_peers(machine, comparisons, way):
    """Measures PyTorch in one process. If it ends early, the networks that are left get the reason."""
    samples, reason = machine.run_peer(*peer_options(comparisons, SECONDS, way))
    for comparison, sample in zip(comparisons, samples):
        comparison.keep(machine, way, sample)
    for comparison in comparisons[len(samples):]:
        comparison.reasons[way] = reason or "it said nothing"


class Comparison:
    """Compares one setting with PyTorch. goals: the ratio to be reached, by way; FASTEST: the fastest way measured."""

    def __init__(self, model, batch, dtype, goals):
        self.model, self.dtype, self.goals = model, dtype, goals
        self.ours, self.peers, self.reasons = Ours(model, batch, dtype), {}, {}

    def keep(self, machine, way, sample):
        self.peers[way] = sample["images_per_s"]
        machine.record(f"{self.ours.what}, {way}", {"who": "torch", **sample})

    def measure(self, machine, ways):
        """Samples lockstep before and after each way of PyTorch."""
        self.ours.try_sample(machine)
        for way in ways:
            measure_peers(machine, [self], way)
            if not machine.peer_missing:
                self.ours.try_sample(machine)

    def lines(self, machine):
        return [self.line(machine, way, goal) for way, goal in self.goals.items()]

    def line(self, machine, way, goal):
        what, told = f"{self.ours.what}, beside PyTorch {way}", f">= {goal} x" if goal else "-"
        if not self.ours.speeds:
            return lacking(what, self.ours.reason or ("emulated" if machine.emulated else "not begun"), told)
        chosen = max(self.peers, key=self.peers.get, default=None) if way == FASTEST else way
        if chosen not in self.peers:
            reason = machine.peer_missing or self.reasons.get(way) or next(iter(self.reasons.values()), "not begun")
            return Line(what, self.ours.text(), f"not measured: {reason}", goal=told)
        ratio = self.ours.median() / self.peers[chosen]
        peer, missing = f"{self.peers[chosen]:.0f}", []
        if way == FASTEST:
            missing = [f"no {other}: {reason}" for other, reason in self.reasons.items() if other not in self.peers]
            slower = [f"{self.peers[other]:.0f} {other}" for other in self.peers if other != chosen]
            peer = ", ".join([f"{peer} {chosen}", *slower, *missing])
        # a missing way might have been faster, so the goal does not count as reached
        reached = "-" if not goal or (missing and ratio >= goal) else "yes" if ratio >= goal else "no"
        return Line(what, self.ours.text(), peer, f"{ratio:.2f}", told, reached)


class Kernels:
    """The bandwidth of each own kernel as a share of a device copy's, and the libraries' ceilings."""

    def __init__(self):
        self.samples, self.reason = [], None

    def measure(self, machine):
        quick = ["--quick"] if machine.emulated else []
        try:
            process = machine.run(machine.program("bench/bench_gpu_kernels"), *quick)
            self.samples = read_json_lines(process.stdout)
        except NotMeasured as reason:
            self.reason = reason
            raise
        for sample in self.samples:
            machine.record("kernel", sample)
        if machine.emulated:
            self.reason = "emulated"

    def rates(self, kernel, dtype, key):
        return [s[key] / s["seconds"] for s in self.samples if s["kernel"] == kernel and s["dtype"] == dtype and s["seconds"]]

    def matmul(self, dtype):
        """Flops a second, or None."""
        rates = self.rates("matmul", dtype, "flops")
        return rates[0] if rates else None

    def lines(self):
        if self.reason or not self.samples:
            yield lacking("ceilings, and the own kernels' shares of them", self.reason or "not begun", f">= {SHARE_GOAL:.0%}")
            return
        copies = self.rates("copy", "f32", "bytes")
        copy = statistics.median(copies)
        yield Line("ceiling: copy of device memory, read and written", f"{summary([c / 1e9 for c in copies], 0)} GB/s")
        for dtype in ("bf16", "f32"):
            what, rate = f"ceiling: matrix product, {dtype}", self.matmul(dtype)
            yield Line(what, f"{rate / 1e12:.0f} TFLOP/s") if rate else lacking(what, "no sample")
        for sample in self.samples:
            if sample["kernel"] in LIBRARIES:
                continue
            rate = sample["bytes"] / sample["seconds"]
            name = sample["kernel"] + (f" ({sample['what']})" if sample["what"] else "")
            yield Line(f"kernel {name}, {sample['dtype']}", f"{rate / 1e9:.0f} GB/s", ratio=f"{rate / copy:.0%}",
                       goal=f">= {SHARE_GOAL:.0%}", reached="yes" if rate >= SHARE_GOAL * copy else "no")


class Speeds:
    """All measurements. The parts take samples; at the end sources() make the table of those that there are."""

    def __init__(self, machine):
        self.machine, self.kernels = machine, Kernels()
        self.big = [Comparison(model, 512, "bf16", {FASTEST: 1.3}) for model in ("resnet18", "wrn-16-10")]
        self.small = [Comparison(model, 256, "bf16", {"eager": 3, "CUDA graphs": 1.5}) for model in ("lenet", "keras-cnn")]
        self.f32 = [Comparison(model, 256 if i < 2 else 512, "f32", {FASTEST: None})
                    for i, model in enumerate(("lenet", "keras-cnn", "resnet18", "wrn-16-10"))]
        self.epoch = Ours("lenet", 256, "bf16", whole=True)
        self.sizes = [Comparison("wrn-16-10", batch, "bf16", {FASTEST: None}) for batch in PUBLISHED]
        self.one_shard = Ours("resnet18", 512, "bf16", "--shards", 1)
        self.default_shards = Ours("resnet18", 512, "bf16")
        if machine.emulated:  # just enough to show that each part works
            self.small = [Comparison("lenet", 16, "f32", {"eager": 3, "CUDA graphs": 1.5})]
            self.big, self.f32, self.sizes = [], [], []
            self.one_shard, self.default_shards = Ours("lenet", 16, "f32", "--shards", 1), Ours("lenet", 16, "f32")
            self.epoch = Ours("lenet", 16, "f32")

    def compilations(self):
        """Options that make the peer compile what it will measure, in two lanes: see Machine.begin_compiling."""
        each = [[peer_options([comparison], 0, way) for way in ways if "--compile" in WAYS[way]]
                for comparisons, ways in ((self.big, BIG_WAYS), (self.small, SMALL_WAYS)) for comparison in comparisons]
        return [lane for lane in (sum(each[0::2], []), sum(each[1::2], [])) if lane]

    # --- parts ---

    def measure_kernels(self):
        yield "kernels", lambda: self.kernels.measure(self.machine)

    def compare(self, comparisons, ways):
        for comparison in comparisons:
            yield comparison.ours.what, lambda comparison=comparison: comparison.measure(self.machine, ways)

    def measure_networks(self):
        """Lockstep before and after each way of PyTorch, which runs all networks in one process."""
        networks = self.small + self.big
        ours = [(c.ours.what, lambda c=c: c.ours.try_sample(self.machine)) for c in networks]
        yield from ours
        for way in [] if self.machine.peer_missing else BIG_WAYS:
            some = [c for c in networks if c in self.big or way in SMALL_WAYS]
            yield f"PyTorch {way}", lambda some=some, way=way: measure_peers(self.machine, some, way)
            yield from ours
        yield "LeNet's epoch", lambda: self.epoch.try_sample(self.machine)

    def measure_tuned(self):
        yield from self.compare(self.small, ["compiled"])
        yield from self.compare(self.small + self.big, ["max-autotune"])

    def measure_f32(self):
        yield from self.compare(self.f32, SMALL_WAYS)

    def measure_sizes(self):
        """Measures lockstep first, then PyTorch while time is left: eager in one process, then compiled, largest first."""
        for size in self.sizes:
            yield size.ours.what, lambda size=size: size.ours.try_sample(self.machine)
        if self.sizes:
            yield "PyTorch eager at these sizes", lambda: measure_peers(self.machine, self.sizes, "eager")
        for size in reversed(self.sizes):
            yield f"PyTorch with CUDA graphs, batch {size.ours.batch}", (
                lambda size=size: measure_peers(self.machine, [size], "CUDA graphs"))

    def measure_shards(self):
        for ours in 2 * [self.default_shards, self.one_shard]:
            yield ours.what, lambda ours=ours: ours.try_sample(self.machine)

    # --- the table ---

    def why(self, ours):
        return ours.reason or ("emulated" if self.machine.emulated else "not begun")

    def size_line(self, ours):
        published, what = PUBLISHED[ours.batch], f"{ours.what}, beside the published {PUBLISHED[ours.batch]}"
        if not ours.speeds:
            return lacking(what, self.why(ours), f">= {PUBLISHED_GOAL} x")
        ratio = ours.median() / published
        return Line(what, ours.text(), published, f"{ratio:.1f}", f">= {PUBLISHED_GOAL} x",
                    "yes" if ratio >= PUBLISHED_GOAL else "no")

    def ceiling_line(self):
        goal, ours, ceiling = 0.35, self.big[1].ours, self.kernels.matmul("bf16")
        what = f"{ours.what}: of the bf16 ceiling, at 11.1 GFLOP an image"
        if not ours.speeds or not ceiling:
            return lacking(what, self.why(ours), f">= {goal:.0%}")
        share = ours.median() * WRN_FLOPS / ceiling
        return Line(what, ours.text(), f"{ceiling / 1e12:.0f} TFLOP/s", f"{share:.0%}", f">= {goal:.0%}",
                    "yes" if share >= goal else "no")

    def shards_line(self):
        what = f"{self.default_shards.what}: default shards beside one"
        if not self.default_shards.speeds or not self.one_shard.speeds:
            return lacking(what, self.why(self.default_shards), "<= 15% slower")
        ratio = self.default_shards.median() / self.one_shard.median()
        return Line(what, self.default_shards.text(), f"{self.one_shard.median():.0f}, one shard", f"{ratio:.2f}",
                    "<= 15% slower", "yes" if ratio >= 1 / 1.15 else "no")

    def epoch_line(self):
        what = f"{self.epoch.what}: an epoch of {self.machine.data}, s"
        if not self.epoch.epochs:
            return lacking(what, self.why(self.epoch), "<= 0.1")
        return Line(what, summary(self.epoch.epochs, 3), goal="<= 0.1",
                    reached="yes" if statistics.median(self.epoch.epochs) <= 0.1 else "no")

    def sources(self):
        """Functions that return rows, each with a name: if one fails, the others still make theirs."""
        def of(comparisons):
            for comparison in comparisons:
                yield comparison.ours.what, lambda comparison=comparison: comparison.lines(self.machine)

        yield from of(self.big + self.small)
        if self.big:
            yield "the bf16 ceiling", lambda: [self.ceiling_line()]
        yield "LeNet's epoch", lambda: [self.epoch_line()]
        for size in self.sizes:
            yield size.ours.what, lambda size=size: [self.size_line(size.ours), *size.lines(self.machine)]
        yield "shards", lambda: [self.shards_line()]
        yield "kernels", self.kernels.lines
        yield from of(self.f32)
