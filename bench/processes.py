"""Starts processes and measures them, and describes the machine."""
import json
import os
import platform
import signal
import subprocess
import tempfile
import time
from pathlib import Path


class NotMeasured(Exception):
    """A measurement that cannot be made here; the text says why."""


class Failed(NotMeasured):
    """A measurement that should have worked."""


# --- the machine ------------------------------------------------------------------------------------------------------

def physical_cpus():
    """One CPU of every core that this process may use."""
    cpus = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cpus.setdefault(siblings.read_text() if siblings.exists() else cpu, cpu)
    return list(cpus.values())


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def machine():
    """The machine and the software that figures depend on."""
    memory = next((line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {"processor": processor(), "cpus": len(physical_cpus()), "memory_bytes": int(memory) * 1024,
            "system": platform.platform(), "python": platform.python_version()}


def busy_seconds(cpus):
    """For how long these CPUs have computed anything, or were taken by the host."""
    ticks = 0
    for line in open("/proc/stat"):
        name, *fields = line.split()
        if name in {f"cpu{cpu}" for cpu in cpus}:
            user, nice, system, _, _, interrupt, soft_interrupt, steal = (int(field) for field in fields[:8])
            ticks += user + nice + system + interrupt + soft_interrupt + steal
    return ticks / os.sysconf("SC_CLK_TCK")


# --- processes --------------------------------------------------------------------------------------------------------

class Process:
    """A process on the given CPUs, or where this one may run; finish() gives back its output. Then `seconds`,
    `processor_seconds` and `peak_bytes` describe it, and `others` is the share of its CPUs' time that others took."""

    def __init__(self, command, cpus, limit=None, environment=None):
        """limit: seconds after which it is ended, with all that it has started. environment: None for that of this
        process."""
        self.limit, self.cpus = limit, cpus or os.sched_getaffinity(0)
        self.busy_before = busy_seconds(self.cpus)
        self.command = [str(word) for word in command]
        self.output, self.errors = (tempfile.TemporaryFile("w+", errors="replace") for _ in range(2))
        self.began = time.perf_counter()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.output, env=environment,
                                        stderr=self.errors, preexec_fn=lambda: self.prepare(cpus))

    def prepare(self, cpus):
        """A group to be ended together, but not a session of its own: Linux divides a core's time among sessions first, and
        what is compared must be in the same one."""
        if self.limit is not None:
            os.setpgrp()
        if cpus:
            os.sched_setaffinity(0, cpus)

    def wait(self):
        """Waits as wait4 does, up to the limit."""
        if self.limit is None:
            return os.wait4(self.process.pid, 0)
        try:
            while time.perf_counter() - self.began < self.limit:
                pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
                if pid:
                    return pid, status, usage
                time.sleep(0.05)
        except KeyboardInterrupt:
            self.kill()
            raise
        self.kill()
        raise Failed(f"not done after {self.limit:.0f} s")

    def kill_group(self):
        """Ends it with all processes that it has started, if it has a limit."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended
            pass

    def kill(self):
        self.kill_group()
        os.wait4(self.process.pid, 0)
        self.process.returncode = -signal.SIGKILL

    def finish(self):
        """Its output is also in `stdout` and `stderr`, even if it failed."""
        try:
            _, status, usage = self.wait()
        finally:
            self.seconds = time.perf_counter() - self.began
            self.stdout, self.stderr = self.text(self.output), self.text(self.errors)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.peak_bytes, self.processor_seconds = usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime
        busy = busy_seconds(self.cpus) - self.busy_before
        self.others = max(0, (busy - self.processor_seconds) / (self.seconds * len(self.cpus)))
        if self.process.returncode != 0:
            reason = self.stderr.strip().splitlines() or [f"exit status {self.process.returncode}"]
            raise Failed(f"{Path(self.command[0]).name}: {reason[-1].strip()}")
        return self.stdout

    @staticmethod
    def text(file):
        with file:
            file.seek(0)
            return file.read()


def done(process, timed=True):
    """Waits for the end of training and gives back its last line, the event `done`."""
    lines = process.finish().splitlines()
    event = json.loads(lines[-1]) if lines else {}
    if event.get("event") != "done" or (timed and event.get("images_per_second") is None):
        raise Failed("lockstep train ended without its report")
    return event
