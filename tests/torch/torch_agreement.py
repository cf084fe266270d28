"""Reads a folder that torch_agreement_test wrote (model, variables, images, labels, gradients) and compares with
PyTorch in float64. Usage: torch_agreement.py FOLDER. Exit status 0: within the bounds; 1: not."""

import array
import json
import pathlib
import sys

import torch
import torch_networks

LOSS_BOUND, GRADIENT_BOUND, FLOOR = 1e-5, 1e-4, 1e-3


def read(folder, name, kind, shape):
    values = array.array(kind)
    values.frombytes((folder / name).read_bytes())
    return torch.tensor(values.tolist(), dtype=torch.int64 if kind == "i" else torch.float64).reshape(shape)


def split(flat, layout):
    """One flat tensor -> name -> tensor."""
    tensors, start = {}, 0
    for name, shape in layout:
        count = 1
        for size in shape:
            count *= size
        tensors[name] = flat[start : start + count].reshape(shape)
        start += count
    return tensors


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    about = json.loads((folder / "about.json").read_text())
    layout, images = about["parameters"], about["images"]
    have = split(read(folder, "gradients", "f", [-1]), layout)
    loss, want = torch_networks.loss_and_gradients(
        torch_networks.MODELS[about["model"]],
        split(read(folder, "parameters", "f", [-1]), layout),
        read(folder, "images", "f", images),
        read(folder, "labels", "i", [images[0]]),
        about["shards"],
        about["sync"],
        masks=read(folder, "masks", "B", [-1]),
    )
    failed = False
    loss_error = abs(about["loss"] - loss) / abs(loss)
    if not loss_error <= LOSS_BOUND:
        print(f"loss {about['loss']!r}, PyTorch {loss!r}")
        failed = True
    everything = torch.cat([g.flatten() for g in want.values()]).norm().item()
    worst, where = 0.0, ""
    for name, reference in want.items():
        error = (have[name] - reference).norm().item() / (reference.norm().item() + FLOOR * everything)
        if not error <= worst:
            worst, where = error, name
        if not error <= GRADIENT_BOUND:
            print(f"gradient of {name}: relative difference {error:.2e}, |g| {reference.norm().item():.3e}")
            failed = True
    print(f"{about['model']}: loss differs by {loss_error:.1e}, gradients by at most {worst:.1e} ({where})")
    sys.exit(1 if failed else 0)


main()
