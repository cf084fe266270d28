"""The machine with the GPU: the build to check, its environment, and the time that is left."""
import json
import lzma
import math
import os
import re
import shlex
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path

from processes import Failed, NotMeasured, Process, processor

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = ("cuBLASLt", "cuDNN", "NVRTC")  # without one of them products or convolutions fail
DATA_FILE = "fashion-mnist/train-images-idx3-ubyte"
KEPT_OUTPUT = 256 << 10  # bytes of a process's output that are logged
EXPLAINED = 30  # seconds, at the most, for a failed program's second run
SHORTEST = 3  # with fewer seconds left nothing is begun

# Runs the program that measures PyTorch with its fastest algorithms for a shape, and without TF32 in place of f32.
PEER_SETTINGS = """import runpy, sys, torch
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def read_json_lines(text):
    """The objects that a program has printed, one a line. Libraries print other lines in between."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def probe(*command, seconds=60):
    """The output of a program that is not ours and may be missing, and why it failed, or None."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except OSError as error:
        return "", f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", f"{command[0]}: not done after {seconds} s"
    reason = (found.stderr.strip().splitlines() or [f"exit status {found.returncode}"])[-1]
    return found.stdout.strip(), reason if found.returncode else None


def can_keep_plans(environment):
    """Whether lockstep can write into the user's cache (src/base/cache.c)."""
    cache, home = environment.get("XDG_CACHE_HOME", ""), environment.get("HOME")
    folder = Path(cache if cache.startswith("/") else f"{home}/.cache" if home else "/dev/null", "lockstep")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


class Clock:
    """The time that is left in all, and for the calling thread's current item."""

    def __init__(self, seconds):
        self.began = time.monotonic()
        self.end = self.began + seconds
        self.thread = threading.local()

    def begin(self, end, limit=math.inf):
        """The calling thread has until `end`, and `limit` seconds at the most."""
        self.thread.end = min(end, self.end)
        self.thread.limit = min(self.thread.end, time.monotonic() + limit)

    def stop(self):
        """No thread has any time left."""
        self.end = 0

    def left(self):
        left = min(getattr(self.thread, "limit", self.end), self.end) - time.monotonic()
        if left < SHORTEST:
            raise NotMeasured("out of time")
        return left

    def is_over(self):
        """Whether `end` has come, not the limit alone."""
        return time.monotonic() >= min(getattr(self.thread, "end", self.end), self.end)

    def passed(self):
        return time.monotonic() - self.began


class Machine:
    """The build that is checked, and the files of its output."""

    def __init__(self, args):
        self.python, self.temporary, self.compiling = args.python, None, None
        self.running, self.lock = set(), threading.Lock()
        self.engines = {}  # of libraries, by operator and name: what ran with it, and whether bits were equal
        args.out.mkdir(parents=True, exist_ok=True)
        self.out = args.out
        self.log, self.samples = open(args.out / "output.log", "w"), open(args.out / "samples.jsonl", "w")
        if args.build is None:
            self.make_build()
        self.clock = Clock(60 * args.minutes)
        self.build = self.find_build(args.build)
        self.lockstep = self.build / "lockstep"
        if not self.lockstep.exists():
            raise NotMeasured(f"there is no {self.lockstep}")
        self.environment = self.make_environment(args.data)
        self.data = self.find_data()
        self.peer = args.peer or self.build / "torch_bench.py"
        self.doctor = self.run(self.lockstep, "doctor").stdout
        if self.missing_libraries():
            self.find_cuda()
        self.emulated = "emulated GPU" in self.doctor
        self.peer_missing = self.find_peer()

    # --- setup ---

    @staticmethod
    def make_build():
        if subprocess.run([ROOT / "dev", "build"]).returncode != 0:
            raise NotMeasured("./dev build failed")

    def find_build(self, build):
        """The build's folder: `build` itself, an archive of tools/gpu_pack unpacked, or the build that was just made."""
        if build is None:
            return ROOT / "build"
        if build.is_dir():
            return build.resolve()
        self.temporary = tempfile.TemporaryDirectory(prefix="gpu_check.")
        try:
            with tarfile.open(build) as archive:
                archive.extractall(self.temporary.name)
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
            raise NotMeasured(f"--build {build}: neither a build's folder nor an archive of tools/gpu_pack: {error}")
        return Path(self.temporary.name)

    def make_environment(self, data):
        """The environment of our programs. Tests and benchmarks do not find the plug-in by themselves, as the command does.
        A packed build brings libraries, which only our programs must use. Without a cache each of them would compile the
        convolutions' plans again, which takes longer than most parts have."""
        environment = dict(os.environ)
        if not can_keep_plans(environment):
            self.cache = tempfile.TemporaryDirectory(prefix="gpu_check.")
            environment["XDG_CACHE_HOME"] = self.cache.name
        plugin = self.build / "liblockstep_cuda.so"
        if plugin.exists():
            environment.setdefault("LOCKSTEP_CUDA_PLUGIN", str(plugin))
        packed = self.build / "data"
        if data or packed.is_dir():
            environment["LOCKSTEP_DATA"] = str(data or packed)
        if (self.build / "lib").is_dir():
            self.add_libraries(environment, [self.build / "lib"])
        return environment

    @staticmethod
    def add_libraries(environment, folders):
        known = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = ":".join([*([known] if known else []), *(str(folder) for folder in folders)])

    def find_data(self):
        folder = Path(self.environment.get("LOCKSTEP_DATA", "/nowhere"))
        there = any((folder / (DATA_FILE + end)).exists() for end in ("", ".gz"))
        return "fashion-mnist" if there else "synthetic"

    def find_cuda(self):
        """Looks for CUDA's libraries in the toolkit and in Python packages, and asks `doctor` again."""
        found, _ = probe(self.python, "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')")
        wheels = [lib for path in found.splitlines() for lib in sorted(Path(path).glob("*/lib"))]
        toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
        self.add_libraries(self.environment, [toolkit, *wheels])
        self.doctor = self.run(self.lockstep, "doctor").stdout

    def find_peer(self):
        """Why PyTorch cannot be measured here, or None."""
        if self.emulated:
            return "emulated"
        if not self.peer.exists():
            return f"no {self.peer}: --peer names it"
        code = "import sys, torch; print(torch.__version__); torch.cuda.is_available() or sys.exit('torch sees no GPU')"
        self.torch, reason = probe(self.python, "-c", code)
        return reason

    def commit(self):
        """The build's commit. A packed build has it in a file, because it is used without the repository."""
        packed = self.build / "commit"
        if packed.exists():
            return packed.read_text().strip()
        return probe("git", "-C", ROOT, "describe", "--always", "--dirty")[0] or "unknown"

    def libraries(self):
        """Driver, CUDA and libraries, as `doctor` says."""
        lines = self.doctor.partition("\nGPUs\n")[2].strip().splitlines()
        return lines[0].strip() if lines else "no GPU"

    def missing_libraries(self):
        return [name for name in LIBRARIES if f"{name} " not in self.libraries()]

    def gpu(self):
        found = re.search(r"^ +cuda:0 +(.*)$", self.doctor, re.MULTILINE)
        return found[1] if found else "none"

    def gpu_name(self):
        return self.gpu().split(",")[0]

    def describe(self):
        """Lines on everything on which the figures depend."""
        driver, _ = probe("nvidia-smi", "--query-gpu=driver_version,memory.total,clocks.max.sm,power.limit",
                          "--format=csv,noheader", seconds=10)
        return [f"Date: {time.strftime('%Y-%m-%d %H:%M %z')}", f"Commit: {self.commit()}", f"GPU: {self.gpu()}",
                f"Driver, memory, clock, power: {'; '.join(driver.splitlines()) or 'no nvidia-smi'}",
                f"Libraries: {self.libraries()}",
                f"Processor: {processor()}, {len(os.sched_getaffinity(0))} CPUs",
                f"PyTorch: {self.peer_missing or self.torch}", f"Data: {self.data}"]

    # --- running ---

    def run(self, *command, environment=None):
        """Runs one of our programs, which must succeed within the time that is left; returns its process."""
        environment = {**self.environment, **(environment or {})}
        try:
            return self.finish(Process(command, None, self.clock.left(), environment))
        except Failed as reason:
            self.explain(command, environment, reason)
            raise

    def explain(self, command, environment, reason):
        """Logs what helps to understand a failure: the GPU's state, and the output of the program with the synchronous engine,
        which waits for each operator and so names the one that fails."""
        state, missing = probe("nvidia-smi", seconds=10)
        self.write_log(f"FAILED: {reason}\n{state or missing}\nonce more with LOCKSTEP_ENGINE=sync:\n")
        try:
            self.finish(Process(command, None, min(EXPLAINED, self.clock.left()), {**environment, "LOCKSTEP_ENGINE": "sync"}))
        except NotMeasured as told:
            self.write_log(f"{told}\n\n")

    def write_log(self, text):
        with self.lock:
            self.log.write(text)
            self.log.flush()

    def peer_command(self, options):
        return [self.python, "-c", PEER_SETTINGS, self.peer, *options]

    def run_peer(self, *options):
        """The samples of PyTorch's measurements, and the reason why any are missing, or None."""
        if self.peer_missing:
            return [], self.peer_missing
        process = reason = None
        try:
            process = Process(self.peer_command(options), None, self.clock.left())
            self.finish(process)
        except NotMeasured as told:
            reason = told
        return read_json_lines(process.stdout) if process else [], reason

    def finish(self, process):
        with self.lock:
            self.running.add(process)
            if self.clock.is_over():  # end() did not know it yet
                process.kill_group()
        try:
            process.finish()
        except Failed:
            if self.clock.is_over():
                raise NotMeasured(f"out of time after {process.seconds:.0f} s")
            raise
        finally:
            with self.lock:
                self.running.discard(process)
                self.keep(process)
        return process

    def end(self):
        """Kills the processes of other threads, whose calls then fail, and lets none begin."""
        self.clock.stop()
        with self.lock:
            for process in self.running:
                process.kill_group()

    # --- compiling in the background ---

    def begin_compiling(self, lanes):
        """Lets PyTorch compile in the background while nothing is timed; it keeps the results on disk. A lane is a list of
        options of the peer, which run one after the other. Lanes run in parallel."""
        if self.peer_missing:
            return
        lanes = ["; ".join(shlex.join(str(word) for word in self.peer_command(options)) for options in lane) for lane in lanes]
        self.compiling = subprocess.Popen(["sh", "-c", " & ".join(f"({lane})" for lane in lanes) + " & wait"],
                                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                          start_new_session=True)

    def end_compiling(self, until):
        """Waits for the compilation until `until`, because measurements would have to wait for it; then ends it."""
        if not self.compiling:
            return
        try:
            self.compiling.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.compiling.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.compiling.wait()
        self.compiling = None

    def keep(self, process):
        for text in ("$ " + " ".join(process.command) + "\n", process.stdout, process.stderr):
            cut = len(text) - KEPT_OUTPUT
            self.log.write(text if cut <= 0 else f"[{cut} characters left out]\n{text[cut:]}")
        self.log.write(f"[{process.seconds:.1f} s]\n\n")
        self.log.flush()

    def program(self, name):
        """The path of a program of the build."""
        path = self.build / name
        if not path.exists():
            raise NotMeasured(f"no {name} in the build")
        return path

    def record(self, what, sample):
        with self.lock:
            json.dump({"measured": what, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **sample}, self.samples)
            self.samples.write("\n")
            self.samples.flush()

    def train(self, *options):
        """The events of a run of `lockstep train`."""
        output = self.run(self.lockstep, "train", "--json", "--data", self.data, "--limit-val", 0, *options).stdout
        events = read_json_lines(output)
        if not events or events[-1]["event"] != "done":
            raise Failed("lockstep train ended without its report")
        return events
