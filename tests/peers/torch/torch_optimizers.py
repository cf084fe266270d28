"""Prints src/optim/optimizer_torch.h: a few parameters after steps of PyTorch's optimizers in float64."""

import torch

STEPS = 6
W, B = 12, 5  # a matrix and a vector
CLIP = 1.0

CASES = {
    "sgd": lambda p, rate: torch.optim.SGD(p, rate),
    "momentum": lambda p, rate: torch.optim.SGD(p, rate, momentum=0.9),
    "momentum_decay": lambda p, rate: torch.optim.SGD(p, rate, momentum=0.9, weight_decay=0.05),
    "nesterov_decay": lambda p, rate: torch.optim.SGD(p, rate, momentum=0.9, nesterov=True, weight_decay=0.05),
    "adam": lambda p, rate: torch.optim.Adam(p, rate, eps=1e-7),
    "adam_decay": lambda p, rate: torch.optim.Adam(p, rate, betas=(0.8, 0.99), eps=1e-7, weight_decay=0.05),
    "adamw_decay": lambda p, rate: torch.optim.AdamW(p, rate, eps=1e-7, weight_decay=0.05),
    "clipped": lambda p, rate: torch.optim.SGD(p, rate, momentum=0.9),
}


def gradient(i, t):
    return ((i * 5 + t * 3) % 13 - 6) / 16


def run(name):
    values = torch.tensor([((i * 7) % 11 - 5) / 8 for i in range(W + B)], dtype=torch.float64)
    parameters = [values[:W].clone().reshape(3, 4).requires_grad_(), values[W:].clone().requires_grad_()]
    optimizer = CASES[name](parameters, 0.1)
    for t in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 if t < 3 else 0.025
        grads = torch.tensor([gradient(i, t) for i in range(W + B)], dtype=torch.float64)
        parameters[0].grad, parameters[1].grad = grads[:W].reshape(3, 4), grads[W:]
        if name == "clipped":
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in parameters]).tolist()


print("/* What PyTorch " + torch.__version__.split("+")[0] + " makes of optimizer_test.c's parameters, in float64.")
print(" * Printed by tests/peers/torch/torch_optimizers.py. */")
print("#pragma once\n")
print("/* clang-format off */")
for case in CASES:
    print(f"static const double torch_{case}[] = {{")
    values = run(case)
    for start in range(0, len(values), 4):
        print("    " + ", ".join(f"{v:.17g}" for v in values[start : start + 4]) + ",")
    print("};")
print("/* clang-format on */")
