"""The checks of tools/gpu_check. A check returns a few words on what it has checked, or raises Failed."""
import math
import os
import re
import shutil
import tempfile
from pathlib import Path

from processes import Failed, NotMeasured
from speed import Line

MODELS = ("lenet", "keras-cnn", "resnet18", "wrn-16-10")
DEVICES = "1xcuda:0,2xcuda:0,4xcuda:0"
TESTED = {"LOCKSTEP_TEST_DEVICES": "2xcuda:0"}

# Operators that run only the plug-in's own kernels, none of a library. Together they run all of them except those of the
# exchange, of a bias's gradient and of the convolution without a library.
OWN_OPERATORS = ("full", "arange", "uniform", "copy", "add", "cast", "relu", "relu_grad", "activation", "activation_grad",
                 "dropout", "max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad", "channel_sums",
                 "channel_sums_grad", "batch_norm", "batch_norm_grad", "batch_norm_act", "batch_norm_act_grad",
                 "batch_norm_drop", "batch_norm_drop_grad", "batch_norm_update", "sum", "max", "max_grad", "softmax",
                 "softmax_grad", "cross_entropy_step", "sigmoid_cross_entropy",
                 "sigmoid_cross_entropy_grad", "sgd_update", "momentum_update", "adam_update", "lars_update", "squared_norms",
                 "update_scales", "gather", "prepare_images", "pairwise_sum")

# Bounds on the relative difference between losses on the GPU and on the CPU, in the first epoch and in later ones, of two
# steps each. Both start from the same weights and draw the same samples and dropout masks, so only rounding differs; the CPU
# runs its direct algorithms, which round least. Without batch norm nothing amplifies the difference: f32 losses of LeNet
# stay 1e-7 apart, and bf16's are 2e-3 from f32's. Batch norm of small shards divides by small variances, and ReLUs flip:
# ResNet-18's f32 losses with two sets of algorithms on one CPU are 3e-5 apart in the first epoch and 2e-3 in the third, its
# bf16 losses 2e-4 and 8e-4, while WRN-16-10's in f32 are 1e-6 and 6e-6. The bounds are at least about ten times as large,
# because a GPU adds in other orders everywhere. Whether gradients are right is checked separately.
CURVE_BOUNDS = {
    ("without batch-norm", "f32"): (1e-4, 1e-4),
    ("without batch-norm", "bf16"): (5e-3, 5e-3),
    ("with batch-norm", "f32"): (1e-3, 1e-2),
    ("with batch-norm", "bf16"): (1e-2, 2e-2),
}
WITH_BATCH_NORM = ("resnet18", "wrn-16-10")
CURVE_EPOCHS = 3
SHARDS = 8


def last_line(text, pattern):
    found = re.findall(pattern, text, re.MULTILINE)
    return found[-1] if found else None


def check_doctor(machine):
    if "\n  cuda:0 " not in machine.doctor:
        raise Failed(last_line(machine.doctor, r"^ +(cuda:0: .*)$") or machine.libraries())
    if machine.missing_libraries():
        raise Failed(f"no {', '.join(machine.missing_libraries())}: {machine.libraries()}")
    return machine.gpu()


def run_tests(machine, name, operators=(), before=()):
    """Runs a test program on the GPU, of which all tests must pass; returns how many did."""
    process = machine.run(*before, machine.program(f"tests/{name}"), *operators, environment=TESTED)
    said = process.stdout + process.stderr
    passed = last_line(said, r"PASSED.*?(\d+) test")
    if not passed:
        raise Failed(f"{name} did not say that it passed")
    missing = sorted(set(re.findall(r"^(\w+) .*SKIP: unsupported", said, re.MULTILINE)))
    skipped = last_line(said, r"^\[ +SKIPPED +\] (\d+) test")
    told = [f"{passed} tests"] + ([f"{skipped} skipped"] if skipped else [])
    return ", ".join(told + ([f"of which unsupported: {' '.join(missing)}"] if missing else []))


def check_contract(machine, model, dtype):
    """Training gives the same bits on 1, 2 and 4 logical devices of the GPU."""
    size = ["--steps", 2, "--batch-size", 8] if machine.emulated else ["--steps", 5, "--batch-size", 64]
    output = machine.run(machine.lockstep, "verify", "--model", model, "--dtype", dtype, "--data", machine.data, "--devices",
                         DEVICES, "--shards", 4, *size).stdout
    digests = set(re.findall(r"^\dxcuda:0 +([0-9a-f]{32})$", output, re.MULTILINE))
    if len(digests) != 1:
        raise Failed(f"{len(digests)} digests")
    return f"{DEVICES} alike, {last_line(output, r'^identical (after .*)$')}"


def check_training(machine, model):
    """A network trains in bf16: its loss is finite, and falls on real images."""
    batch, images, epochs = (16, 32, 2) if machine.emulated else (128, 2560, 3)
    events = machine.train("--devices", "cuda:0", "--model", model, "--dtype", "f32" if machine.emulated else "bf16",
                           "--batch-size", batch, "--limit-train", images, "--epochs", epochs)
    found = [event["train_loss"] for event in events if event["event"] == "epoch"]
    told = "loss " + " ".join(str(loss and round(loss, 4)) for loss in found)
    falls = None not in found and (machine.data == "synthetic" or machine.emulated or found[-1] < found[0])
    if not falls:
        raise Failed(told)
    return told


def check_merged(machine, model, dtype):
    """Merged shards give the bits of shards that run one after the other. Notes the engines of libraries that did both."""
    size = ["--batch-size", 16, "--limit-train", 32] if machine.emulated else ["--batch-size", 256, "--limit-train", 1280]
    digests = []
    with tempfile.TemporaryDirectory() as folder:
        for way in ("0", "1"):
            events = machine.train("--devices", "cuda:0", "--model", model, "--dtype", dtype, "--shards", 4, "--epochs", 1,
                                   "--branches", way, "--log-dir", f"{folder}/{way}", *size)
            digests.append(events[-1]["digest"])
        chosen = (Path(folder) / "0/algorithms.txt").read_text().splitlines()[1:]
    engines = {(line.split()[0], line.rpartition(" = ")[2]) for line in chosen}
    same = digests[0] == digests[1]
    with machine.lock:
        for engine in engines:
            machine.engines.setdefault(engine, []).append((f"{model} {dtype}", same))
    if not same:
        raise Failed(f"digest {digests[0]}, shard by shard {digests[1]}")
    return f"{len(engines)} engines, digest {digests[0]}"


def engine_lines(machine):
    """A row for each engine of a library. One is cleared by a single network that has equal bits."""
    lines = []
    for (operator, engine), runs in sorted(machine.engines.items()):
        clear = [name for name, same in runs if same]
        told = f"passed: same bits in {', '.join(clear)}" if clear else f"FAILED: other bits in {', '.join(n for n, _ in runs)}"
        lines.append(Line(f"merged shards, {operator}, {engine}", told))
    return lines


def losses(machine, devices, model, dtype, *options):
    batch, epochs = (16, 2) if machine.emulated else (64, CURVE_EPOCHS)
    events = machine.train("--devices", devices, "--model", model, "--dtype", dtype, "--batch-size", batch, "--shards",
                           SHARDS, "--limit-train", 2 * batch, "--epochs", epochs, "--base-lr", 0.001, "--optimizer", "sgd",
                           *options)
    found = [event["train_loss"] for event in events if event["event"] == "epoch"]
    return [math.nan if loss is None else loss for loss in found]


def check_curve(machine, model, dtype):
    """Compares the losses of the first epochs on GPU and CPU."""
    cores = min(SHARDS, len(os.sched_getaffinity(0)))
    gpu = losses(machine, "cuda:0", model, dtype)
    cpu = losses(machine, f"{cores}xcpu", model, dtype, "--algorithms", "direct")
    machine.record(f"losses, {model}, {dtype}", {"cuda": gpu, "cpu": cpu})
    if not gpu or len(gpu) != len(cpu):
        raise Failed(f"{len(gpu)} epochs on the GPU, {len(cpu)} on the CPU")
    apart = [abs(a - b) / abs(b) for a, b in zip(gpu, cpu)]
    bounds = CURVE_BOUNDS[f"with{'' if model in WITH_BATCH_NORM else 'out'} batch-norm", dtype]
    told = f"{apart[0]:.1e} apart of {bounds[0]:.0e}, later at most {max(apart[1:]):.1e} of {bounds[1]:.0e}"
    # written so that NaN fails
    if not (apart[0] <= bounds[0] and all(value <= bounds[1] for value in apart[1:])):
        raise Failed(told)
    return told


def sanitizer():
    folders = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    path = os.pathsep.join(str(Path(folder) / "bin") for folder in folders if folder)
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=path)
    if not found:
        raise NotMeasured("no compute-sanitizer")
    return found


def check_memory(machine, tool):
    """Runs compute-sanitizer on the own kernels, which the operators' test cases call with small and uneven shapes."""
    if machine.emulated:
        raise NotMeasured("emulated")
    before = [sanitizer(), "--tool", tool, "--error-exitcode", 9]
    return run_tests(machine, "conformance_test", OWN_OPERATORS, before)


def models(machine):
    return MODELS[:2] if machine.emulated else MODELS


def dtypes(machine):
    return ("f32",) if machine.emulated else ("f32", "bf16")


def doctor(machine):
    yield "a GPU, and the libraries for it", lambda: check_doctor(machine)


def conformance(machine):
    few = OWN_OPERATORS + ("matmul", "conv2d") if machine.emulated else ()
    yield ("operators against plain C in double, f32 and bf16",
           lambda: run_tests(machine, "conformance_test", few))


def images(machine):
    yield ("images prepared on the device: the bits of the host's loader",
           lambda: run_tests(machine, "prepare_images_test"))
    yield ("training with data on the device: the bits of training from the host",
           lambda: run_tests(machine, "device_data_test"))


def exchange(machine):
    yield ("sums over logical devices, GPUs and ranks, by copies and by NCCL: same bits",
           lambda: run_tests(machine, "links_allreduce_test"))


def gradients(machine):
    few = ("matmul", "relu", "max_pool2d", "batch_norm") if machine.emulated else ()
    yield ("gradients against plain C in double, and that against differences",
           lambda: run_tests(machine, "conformance_gradient_test", few))


def trains(machine):
    for model in models(machine)[:1] if machine.emulated else MODELS:
        yield f"{model} trains", lambda model=model: check_training(machine, model)


def merged(machine):
    for model in models(machine)[:1] if machine.emulated else MODELS:
        for dtype in dtypes(machine):
            yield f"merged shards, same bits, {model}, {dtype}", (
                lambda model=model, dtype=dtype: check_merged(machine, model, dtype))


def contract(machine):
    for model in models(machine):
        for dtype in dtypes(machine):
            yield f"same bits, {model}, {dtype}", lambda model=model, dtype=dtype: check_contract(machine, model, dtype)


def curves(machine):
    for model in models(machine):
        for dtype in dtypes(machine):
            yield f"losses beside the CPU's, {model}, {dtype}", (
                lambda model=model, dtype=dtype: check_curve(machine, model, dtype))


def memory(machine):
    for tool in ("memcheck", "racecheck"):
        yield f"own kernels under {tool}", lambda tool=tool: check_memory(machine, tool)
