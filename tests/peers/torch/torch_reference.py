"""Prints torch_reference.h: losses and gradients of a small network as PyTorch computes them in float64, for machines
without PyTorch. Usage: torch_reference.py > ../torch_reference.h"""

import torch
import torch.nn.functional as F
import torch_networks

SHAPES = {  # in the order in which the network asks for them; see torch_reference_test.c
    "conv1.weight": [4, 2, 3, 3],
    "conv1.bias": [4],
    "norm1.weight": [4],
    "norm1.bias": [4],
    "conv2.weight": [8, 4, 3, 3],
    "conv2.bias": [8],
    "norm2.weight": [8],
    "norm2.bias": [8],
    "shortcut.weight": [8, 4, 1, 1],
    "shortcut.bias": [8],
    "dense.weight": [8, 3],
    "dense.bias": [3],
}
SAMPLES, SHARDS = 5, 2


def fill(tensor, shape):
    count = torch.Size(shape).numel()
    values = [((i * 37 + tensor * 101 + 11) % 64 - 31.5) / 64 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def network(net, xs):
    xs = net.relu(net.norm(net.conv(xs, "conv1", padding=1), "norm1", 1e-5))
    ys = net.norm(net.conv(xs, "conv2", stride=2, padding=1), "norm2", 1e-3)
    ys = net.relu(net.each(torch.add, ys, net.conv(xs, "shortcut", stride=2)))
    ys = [F.max_pool2d(y, 2, stride=1) for y in ys]
    return net.dense(net.mean(ys), "dense")


def case(name, sync, smoothing):
    variables = {}
    for tensor, (variable, shape) in enumerate(SHAPES.items()):
        gamma = variable.startswith("norm") and variable.endswith("weight")
        variables[variable] = fill(tensor, shape) + (1 if gamma else 0)
    pixels = SAMPLES * 2 * 6 * 6
    images = torch.tensor([(i * 53 + 7) % 128 / 128 for i in range(pixels)], dtype=torch.float64)
    loss, gradients = torch_networks.loss_and_gradients(
        network, variables, images.reshape(SAMPLES, 2, 6, 6), torch.arange(SAMPLES) % 3, SHARDS, sync, smoothing
    )
    flat = torch.cat([g.flatten() for g in gradients.values()]).tolist()
    print(f"static const double {name}_loss = {loss!r};")
    print(f"static const double {name}_gradients[] = {{")
    for i in range(0, len(flat), 5):
        print("    " + " ".join(f"{value!r}," for value in flat[i : i + 5]))
    print("};\n")


print("/* Made by torch/torch_reference.py with PyTorch " + torch.__version__.split("+")[0] + ". */")
print("/* clang-format off */")
print("#pragma once\n")
case("sync", True, 0.0)
case("shard", False, 0.0)
case("smooth", True, 0.1)
print("/* clang-format on */")
