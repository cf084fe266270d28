"""The processes of a PyTorch program: one alone, or several that train together over gloo on the loopback interface."""
import os
import sys
import tempfile

import torch


def join(rank, args, meeting):
    """Takes the threads of args, and with several processes a CPU and the group."""
    torch.set_num_threads(args.threads)
    if args.processes > 1:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank,
                                             world_size=args.processes)


def leave(args):
    if args.processes > 1:
        torch.distributed.barrier()  # nobody leaves while another may still wait for it
        sys.stdout.flush()
        os._exit(0)  # PyTorch 1.13 may wait for ever when it takes down its process group


def run_all(run, args):
    """Calls run(rank, args, meeting) in each of args.processes processes."""
    with tempfile.TemporaryDirectory() as meeting:
        if args.processes == 1:
            run(0, args, meeting)
            return
        try:
            torch.multiprocessing.spawn(run, (args, meeting), nprocs=args.processes)
        except torch.multiprocessing.ProcessExitedException:
            sys.exit(1)
