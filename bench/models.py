"""The four reference networks on one and on two cores, ours beside PyTorch in turns."""
import json
import statistics

from processes import Failed, NotMeasured, done
from table import print_cells, summary

# Network: batch, and what the ratio to PyTorch should reach on one core and on two.
NETWORKS = {
    "lenet": (256, 3.5, 4.0),
    "keras-cnn": (256, 3.0, 3.0),
    "resnet18": (64, 1.75, 1.75),
    "wrn-16-10": (32, 1.9, 1.9),
}
HEADER = ["network", "batch", "cores", "V", "images/s", "GFLOP/s", "peak MB", "peer, images/s", "peak MB", "ratio", "goal",
          "reached"]


def peer_ways(bench, cores):
    """PyTorch's ways to use these cores; the fastest counts."""
    ways = {f"{cores} thread{'s' * (cores > 1)}": ["--threads", cores]}
    if cores > 1:
        ways[f"{cores} DDP processes"] = ["--processes", cores]
    if bench.args.all_peers:
        for way, options in list(ways.items()):
            ways[f"{way}, channels last"] = [*options, "--channels-last"]
            ways[f"{way}, compiled"] = [*options, "--compile"]
    return ways


class Samples:
    """Of one side: images a second, and the most memory of its main process."""

    def __init__(self):
        self.speeds, self.bytes, self.failure, self.last = [], [], None, None

    def take(self, process, read):
        try:
            self.last = read(process)
        except Failed as failure:
            self.failure = failure
            return
        self.speeds.append(self.last["images_per_second"])
        self.bytes.append(process.peak_bytes)

    def median(self):
        return statistics.median(self.speeds)

    def megabytes(self):
        return f"{statistics.median(self.bytes) / 1e6:.0f}"


def read_peer(process):
    return json.loads(process.finish())


def measure_row(bench, network, cores):
    batch, *goals = NETWORKS[network]
    cpus, devices, goal = bench.cores(cores), f"{cores}xcpu", goals[cores - 1]
    ways = {} if bench.peer_missing else peer_ways(bench, cores)
    ours, peers = Samples(), {way: Samples() for way in ways}
    images = bench.images_for(devices, cpus, network, batch)
    for _ in range(bench.args.samples):
        ours.take(bench.ours(devices, images, cpus, model=network, batch=batch), done)
        if ours.failure:
            raise ours.failure
        bench.record(f"{network}, {cores} cores", "lockstep", ours.last)
        for way, options in ways.items():
            peers[way].take(bench.peer(cpus, *options, model=network, batch=batch), read_peer)
            if not peers[way].failure:
                bench.record(f"{network}, {cores} cores, {way}", "torch", peers[way].last)
    cells = [network, batch, cores, ours.last["shards"], summary(ours.speeds, 1 if ours.median() < 100 else 0),
             f"{ours.last['flops_per_second'] / ours.last['images_per_second'] * ours.median() / 1e9:.0f}", ours.megabytes()]
    peers = {way: samples for way, samples in peers.items() if not samples.failure}
    if not peers:
        return cells + [f"not measured: {bench.peer_missing or 'it failed'}", "-", "-", goal, "-"]
    best = max(peers, key=lambda way: peers[way].median())
    ratio = ours.median() / peers[best].median()
    return cells + [f"{summary(peers[best].speeds, 1 if ours.median() < 100 else 0)}, {best}", peers[best].megabytes(),
                    f"{ratio:.2f}", goal, "yes" if ratio >= goal else "no"]


def measure(bench):
    """Prints the table. False where something failed."""
    rows, good = [], True
    for network in NETWORKS:
        for cores in (1, 2):
            try:
                rows.append(measure_row(bench, network, cores))
            except NotMeasured as reason:
                rows.append([network, NETWORKS[network][0], cores, "-", f"not measured: {reason}"] + ["-"] * 7)
                good = good and not isinstance(reason, Failed)
    print_cells([HEADER] + rows)
    return good
