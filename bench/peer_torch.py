#!/usr/bin/env python3
"""PyTorch's speed at the step that `lockstep train --model NAME` makes: forward, backward and SGD on one fixed batch
of images in [0, 1]. Prints one JSON object, with the memory of all its processes: at most, and when they had started.
bf16 is autocast: f32 parameters, as in `lockstep train --dtype bf16`.

Runs on the CPUs that its caller's affinity leaves it. More than one process: DistributedDataParallel over gloo on the
loopback interface, a process on each CPU, the batch divided among them.
"""
import argparse
import json
import os
import sys
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
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = F.cross_entropy(net(images), labels)
        loss.backward()
        sgd.step()

    return step, sum(p.numel() for p in net.parameters())


def measure(step, args):
    """Steps and the seconds that they took. Every process makes the same number of steps, for each step waits for all of
    them. The first is to warm up, unless it takes so long that nothing else in it counts, as compiling does."""
    def timed(count):
        began = time.perf_counter()
        for _ in range(count):
            step()
        return time.perf_counter() - began

    taken = timed(1)
    if args.compile or taken < 10 * args.seconds:
        taken = timed(1)
    count = torch.tensor(1 if taken >= args.seconds / 3 else max(3, round(args.seconds / taken)))
    if args.processes > 1:
        torch.distributed.broadcast(count, 0)
    count = count.item()
    if count == 1:
        return 1, taken
    timed(2)
    return count, timed(count)


def memory(key):
    """Memory of this process in bytes: VmHWM is the peak, VmRSS the current size."""
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def total(bytes_of_process, processes):
    bytes_of_all = torch.tensor(bytes_of_process)
    if processes > 1:
        torch.distributed.all_reduce(bytes_of_all)
    return bytes_of_all.item()


def run(rank, args, meeting):
    """Runs one of the processes. Errors are one line on standard error."""
    try:
        report(rank, args, meeting)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}")


def report(rank, args, meeting):
    at_start = memory("VmRSS")
    torch.set_num_threads(args.threads)
    if args.processes > 1:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank,
                                             world_size=args.processes)
    step, parameters = make_step(args)
    steps, seconds = measure(step, args)
    peak, at_start = total(memory("VmHWM"), args.processes), total(at_start, args.processes)
    if rank == 0:
        print(json.dumps({"model": args.model, "version": torch.__version__, "dtype": args.dtype, "threads": args.threads,
                          "processes": args.processes, "channels_last": args.channels_last, "compile": args.compile,
                          "batch": args.batch, "parameters": parameters, "steps": steps, "seconds": seconds,
                          "images_per_second": steps * args.batch / seconds, "peak_bytes": peak,
                          "start_bytes": at_start}))
    if args.processes > 1:
        torch.distributed.barrier()  # nobody leaves while another may still wait for it
        sys.stdout.flush()
        os._exit(0)  # PyTorch 1.13 may wait for ever when it takes down its process group


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lenet", choices=NETWORKS)
    parser.add_argument("--batch", type=int, default=256, help="images a step, over all processes (default 256)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default 1)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--parameters", action="store_true", help="only say how many the network has")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile, with its default settings")
    args = parser.parse_args()
    if args.parameters:
        print(json.dumps({"parameters": sum(p.numel() for p in NETWORKS[args.model]().parameters())}))
        return
    if args.compile and not hasattr(torch, "compile"):
        sys.exit(f"PyTorch {torch.__version__} has no torch.compile")
    with tempfile.TemporaryDirectory() as meeting:
        if args.processes == 1:
            run(0, args, meeting)
            return
        try:
            torch.multiprocessing.spawn(run, (args, meeting), nprocs=args.processes)
        except torch.multiprocessing.ProcessExitedException:
            sys.exit(1)


if __name__ == "__main__":
    main()
