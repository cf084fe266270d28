#!/usr/bin/env python3
"""PyTorch's speed at the step that `lockstep train --model NAME` makes: forward, backward and SGD on one fixed batch
of images in [0, 1]. Prints one JSON object.

Runs on the CPUs that its caller's affinity leaves it. More than one process: DistributedDataParallel over gloo on the
loopback interface, a process on each CPU, the batch divided among them.
"""
import argparse
import json
import os
import tempfile
import time

import torch
from peer_networks import NETWORKS
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
        F.cross_entropy(net(images), labels).backward()
        sgd.step()

    return step


def measure(step, seconds, processes):
    """Steps a second. Every process makes the same number of steps, for each step waits for all of them."""
    def timed(count):
        began = time.perf_counter()
        for _ in range(count):
            step()
        return time.perf_counter() - began

    timed(3)
    count = torch.tensor(max(3, round(seconds * 3 / timed(3))))
    if processes > 1:
        torch.distributed.broadcast(count, 0)
    return count.item() / timed(count.item())


def run(rank, args, meeting):
    torch.set_num_threads(args.threads)
    if args.processes > 1:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank,
                                             world_size=args.processes)
    steps_per_second = measure(make_step(args), args.seconds, args.processes)
    if rank == 0:
        print(json.dumps({"model": args.model, "version": torch.__version__, "threads": args.threads, "processes": args.processes,
                          "channels_last": args.channels_last, "compile": args.compile, "batch": args.batch,
                          "images_per_second": steps_per_second * args.batch}))
    if args.processes > 1:
        torch.distributed.barrier()  # nobody leaves while another may still wait for it
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lenet", choices=NETWORKS)
    parser.add_argument("--batch", type=int, default=256, help="images a step, over all processes (default 256)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default 1)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile, with its default settings")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as meeting:
        if args.processes > 1:
            torch.multiprocessing.spawn(run, (args, meeting), nprocs=args.processes)
        else:
            run(0, args, meeting)


if __name__ == "__main__":
    main()
