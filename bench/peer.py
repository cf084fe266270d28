"""The parts that the programs of all peers share: their options, and how steps, processor time and memory are measured."""
import argparse
import json
import sys
import time


def make_parser(description, networks, compiler):
    """compiler: what --compile uses."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lenet", choices=networks)
    parser.add_argument("--batch", type=int, default=256, help="images a step, over all processes (default 256)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default 1)")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--parameters", action="store_true", help="only print how many the network has")
    parser.add_argument("--compile", action="store_true", help=f"{compiler}, with its default settings")
    return parser


def measure(step, args, agree=lambda count: count):
    """Gives the number of steps, their seconds, and this process's processor seconds. All processes make the same number of
    steps, because each step waits for all of them: agree(count) gives every process the first one's count. The first
    step is to warm up, unless it takes so long that nothing else in it counts, as compiling does."""
    def timed(count):
        began, processor_began = time.perf_counter(), time.process_time()
        for _ in range(count):
            step()
        return count, time.perf_counter() - began, time.process_time() - processor_began

    first = timed(1)
    if args.compile or first[1] < 10 * args.seconds:
        first = timed(1)
    seconds = first[1]
    count = agree(1 if seconds >= args.seconds / 3 else max(3, round(args.seconds / seconds)))
    if count == 1:
        return first
    timed(2)
    return timed(count)


def memory(key):
    """Memory of this process in bytes: VmHWM is the peak, VmRSS the current size."""
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def print_report(args, version, parameters, measured, processor_seconds, peak_bytes, start_bytes):
    """Prints a JSON object. measured: from measure(); the other figures are sums over the processes."""
    steps, seconds, _ = measured
    images = steps * args.batch
    print(json.dumps({"version": version, "parameters": parameters, "steps": steps, "seconds": seconds,
                      "images_per_second": images / seconds, "processor_seconds_per_image": processor_seconds / images,
                      "peak_bytes": peak_bytes, "start_bytes": start_bytes}))


def fail(error):
    sys.exit(f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}")
