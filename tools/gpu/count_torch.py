#!/usr/bin/env python3
"""Estimates a training step of compiled PyTorch on one GPU, for a comparison with tools/gpu_count. No GPU is needed.

    PYTHON tools/gpu/count_torch.py MODEL BATCH DTYPE [--gpu NAME]     PYTHON: one that has PyTorch; DTYPE: f32 or bf16

torch.compile plans the forward and the backward pass as for a processor, channels last and under autocast; each kernel that it
would run counts as on a GPU: its bytes or operations by data sheet, plus the latency within a CUDA graph. SGD with momentum
is one more kernel, and images and labels are two copies into the graph. On GPUs large sums take two kernels, which are not
counted, so this is a lower bound.
"""
import argparse
import math
import runpy
import sys
from pathlib import Path

import torch
from torch._dynamo.utils import detect_fake_mode
from torch._inductor.compile_fx import compile_fx, record_original_output_strides
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import NopKernelSchedulerNode
from torch._inductor.utils import fresh_inductor_cache
from torch._inductor.virtualized import V

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
from peer_torch_networks import NETWORKS  # noqa: E402

COUNT = runpy.run_path(str(ROOT / "tools" / "gpu_count"))


def works_of(graph):
    """Returns (kernels, bytes, operations) of each node. The gradients of a convolution are one node of two kernels."""
    works = []
    for node in graph.scheduler.nodes:
        bytes_moved, operations, kernels = node.get_read_write_buffers_sizes(), node.estimate_flops() or 0, 1
        if getattr(node.node, "op_overload", None) == torch.ops.aten.convolution_backward.default:
            dy, _, weights = (tensor.get_size() for tensor in node.node.inputs[:3])
            kernels = sum(node.node.constant_args[-3:-1])  # of the three gradients, without the bias
            operations = kernels * 2 * math.prod(dy) * math.prod(weights[1:])
        if not isinstance(node, NopKernelSchedulerNode):
            works.append((kernels, bytes_moved, float(operations)))
    return works


def results_without_work(gm):
    """Returns a function that only makes the tensors that `gm` would compute."""
    results = [node.meta["val"] if node is not None else None for node in gm.graph.output_node().args[0]]

    def run(arguments):
        arguments.clear()
        return [torch.empty_strided(r.shape, r.stride(), dtype=r.dtype) if r is not None else None for r in results]

    run._boxed_call = True
    return run


def step_works(model, batch, dtype):
    """Returns what works_of does, for a step."""
    works = []

    def plan(gm, inputs, **_):
        record_original_output_strides(gm)
        graph = GraphLowering(gm, shape_env=None)
        fake = detect_fake_mode(inputs)
        with V.set_fake_mode(fake), V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
            graph.run(*inputs)
            graph._update_scheduler()
            works.extend(works_of(graph))
        return results_without_work(gm)

    network = NETWORKS[model]().to(memory_format=torch.channels_last)
    images = torch.zeros(batch, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(batch, dtype=torch.int64)
    loss_of = torch.nn.CrossEntropyLoss()

    def loss():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            return loss_of(network(images), labels)

    torch.compile(loss, backend=lambda gm, inputs: compile_fx(gm, inputs, inner_compile=plan))().backward()
    parameters = sum(p.numel() for p in network.parameters())
    return works + [(1, 5 * 4 * parameters, 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=NETWORKS)
    parser.add_argument("batch", type=int)
    parser.add_argument("dtype", choices=("f32", "bf16"))
    parser.add_argument("--gpu", choices=COUNT["GPUS"], default="h100")
    args = parser.parse_args()
    gpu = COUNT["GPUS"][args.gpu]
    with fresh_inductor_cache():
        works = step_works(args.model, args.batch, args.dtype)
    busy = sum(max(moved / gpu.bandwidth, operations / getattr(gpu, args.dtype)) for _, moved, operations in works)
    kernels, moved, operations = map(sum, zip(*works))
    seconds = gpu.launch + busy + kernels * gpu.node + 2 * gpu.outside
    print(f"{args.model}, {args.batch} images, {args.dtype}, PyTorch {torch.__version__}: {kernels} kernels; "
          f"{moved / 1e9:.3f} GB, {operations / 1e9:.1f} Gflop")
    print(f"estimate for one {args.gpu.upper()}, not measured: {1e3 * seconds:.2f} ms, {args.batch / seconds:.0f} images/s")


if __name__ == "__main__":
    main()
