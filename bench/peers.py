"""The frameworks that Lockstep is compared with: which are installed, how they use the cores, how to get the newest."""
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from processes import Process

FOLDER = Path(__file__).resolve().parent
WAYS = ("plain", "channels-last", "compiled")


@dataclass(frozen=True)
class Framework:
    name: str
    package: str
    program: Path
    version: str  # Python that prints it
    compiler: str
    has_channels_last: bool
    has_processes: bool


FRAMEWORKS = (
    Framework("PyTorch", "torch", FOLDER / "peer_torch.py", "import torch; print(torch.__version__)", "compiled", True, True),
    Framework("Keras", "tensorflow-cpu", FOLDER / "peer_keras.py",
              "import keras, tensorflow; print(f'{keras.__version__} (TensorFlow {tensorflow.__version__})')", "XLA", False,
              False),
)


@dataclass(frozen=True)
class Installed:
    """A framework in an interpreter."""
    framework: Framework
    version: str
    python: str

    @property
    def name(self):
        return f"{self.framework.name} {self.version}"

    def count_parameters(self, model):
        """None: its program failed."""
        command = [self.python, self.framework.program, "--model", model, "--parameters"]
        found = subprocess.run(command, capture_output=True, text=True)
        return json.loads(found.stdout)["parameters"] if found.returncode == 0 else None

    def ways(self, cores, wanted):
        """Ways to use these cores, and their options."""
        ways = {f"{cores} thread{'s' * (cores > 1)}": ["--threads", cores]}
        if cores > 1 and self.framework.has_processes:
            ways[f"{cores} DDP processes"] = ["--processes", cores]
        variants = {"plain": ("", []), "compiled": (f", {self.framework.compiler}", ["--compile"])}
        if self.framework.has_channels_last:
            variants["channels-last"] = (", channels last", ["--channels-last"])
        chosen = [variants[name] for name in WAYS if name in wanted and name in variants]
        return {way + suffix: [*options, *more] for way, options in ways.items() for suffix, more in chosen}


def find(python):
    """The frameworks of an interpreter. Raises OSError if it cannot be started."""
    installed = []
    for framework in FRAMEWORKS:
        found = subprocess.run([python, "-c", framework.version], capture_output=True, text=True)
        if found.returncode == 0:
            installed.append(Installed(framework, found.stdout.split("\n")[-2], python))
    return installed


def install_newest(folder, progress):
    """Makes a virtual environment for each framework below the folder, or reuses it, and brings it to the newest version.
    Without network an old version stays. Gives the interpreters."""
    pythons = []
    for framework in FRAMEWORKS:
        environment = folder / framework.package
        python = environment / "bin" / "python"
        progress(f"looks for the newest {framework.package} in {environment}, which may take minutes")
        if not python.exists() and subprocess.run([sys.executable, "-m", "venv", environment]).returncode != 0:
            sys.exit(f"{sys.executable} cannot make a virtual environment in {environment}")
        command = [python, "-m", "pip", "install", "--quiet", "--upgrade", framework.package]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            progress(f"{framework.package} was not brought to the newest version")
        pythons.append(str(python))
    return pythons


class Peer:
    """A framework's way to use the cores."""

    def __init__(self, installed, way, options):
        self.installed, self.options, self.name = installed, options, f"{installed.name}, {way}"

    def start(self, row, cpus, seconds, limit):
        return Process([self.installed.python, self.installed.framework.program, "--model", row.name, "--batch", row.batch,
                        "--dtype", row.dtype, "--seconds", seconds, *self.options], cpus, limit)
