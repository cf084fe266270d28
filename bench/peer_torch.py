#!/usr/bin/env python3
"""PyTorch's speed at the step that `lockstep train --model NAME` makes: forward, backward and SGD on one fixed batch
of images in [0, 1]. Prints one JSON object, with the memory of all its processes: at most, and when they had started.
bf16 is autocast: f32 parameters, as in `lockstep train --dtype bf16`.

Runs on the CPUs that its caller's affinity leaves it. More than one process: DistributedDataParallel over gloo on the
loopback interface, a process on each CPU, the batch divided among them.
"""
import json
import sys

import peer
import torch
from peer_torch_networks import NETWORKS
from peer_torch_processes import join, leave, run_all
from torch import nn
from torch.nn import functional as F


def make_step(args):
    torch.manual_seed(0)
    images = torch.rand(args.batch // args.processes, 1, 28, 28)
    labels = torch.randint(0, 10, (len(images),))
    net = NETWORKS[args.model]()
    if args.channels_last:
        net, images = (x.to(memory_format=torch.channels_last) for x in (net, images))
    if args.processes > 1:
        net = nn.parallel.DistributedDataParallel(net)
    if args.compile:
        net = torch.compile(net)
    sgd = torch.optim.SGD(net.parameters(), lr=0.2)

    def step():
        sgd.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = F.cross_entropy(net(images), labels)
        loss.backward()
        sgd.step()

    return step, sum(p.numel() for p in net.parameters())


def agree(count):
    """Gives the first process's count."""
    shared = torch.tensor(count)
    torch.distributed.broadcast(shared, 0)
    return shared.item()


def total(value, processes):
    sum_of_all = torch.tensor(value, dtype=torch.float64)
    if processes > 1:
        torch.distributed.all_reduce(sum_of_all)
    return sum_of_all.item()


def run(rank, args, meeting):
    """Runs one of the processes. Errors are one line on standard error."""
    try:
        report(rank, args, meeting)
    except Exception as error:
        peer.fail(error)


def report(rank, args, meeting):
    at_start = peer.memory("VmRSS")
    join(rank, args, meeting)
    step, parameters = make_step(args)
    measured = peer.measure(step, args, *[agree] * (args.processes > 1))
    sums = [total(value, args.processes) for value in (measured[2], peer.memory("VmHWM"), at_start)]
    if rank == 0:
        peer.print_report(args, torch.__version__, parameters, measured, *sums)
    leave(args)


def main():
    parser = peer.make_parser(__doc__, NETWORKS, "torch.compile")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    if args.parameters:
        print(json.dumps({"parameters": sum(p.numel() for p in NETWORKS[args.model]().parameters())}))
        return
    if args.compile and not hasattr(torch, "compile"):
        sys.exit(f"PyTorch {torch.__version__} has no torch.compile")
    run_all(run, args)


if __name__ == "__main__":
    main()
