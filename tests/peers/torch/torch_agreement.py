"""Reads a folder that torch_agreement_test wrote (model, variables, images, labels, gradients) and compares with
PyTorch in float64. Usage: torch_agreement.py FOLDER. Exit status 0: all differences are inside the bounds; 1: not."""

import array
import json
import pathlib
import sys

import torch
import torch_networks

# The fast algorithms, such as Winograd's convolutions, keep the same bounds.
LOSS_BOUND, GRADIENT_BOUND, FLOOR = 1e-5, 1e-4, 1e-3

# Bounds for activations that have different signs on the two sides: their distance from 0 (see Masks) and their share
# of all activations. resnet18 has the most; the bounds are three times its measured values.
FLIP_BOUND, FLIP_SHARE = 1e-5, 1e-5

# Models without batch-norm are also compared without masks, each side with its own rectifiers.
PLAIN_MODELS = ("lenet", "keras-cnn")


def read(folder, name, kind, shape):
    values = array.array(kind)
    values.frombytes((folder / name).read_bytes())
    return torch.tensor(values.tolist(), dtype=torch.int64 if kind == "i" else torch.float64).reshape(shape)


def split(flat, layout):
    """Cuts a flat tensor into tensors by name."""
    tensors, start = {}, 0
    for name, shape in layout:
        count = 1
        for size in shape:
            count *= size
        tensors[name] = flat[start : start + count].reshape(shape)
        start += count
    return tensors


def compare(what, loss, gradients, want_loss, want):
    """Whether loss and gradients are inside the bounds."""
    good = True
    loss_error = abs(loss - want_loss) / abs(want_loss)
    if not loss_error <= LOSS_BOUND:
        print(f"{what}: loss {loss!r}, PyTorch {want_loss!r}")
        good = False
    everything = torch.cat([g.flatten() for g in want.values()]).norm().item()
    worst, where = 0.0, ""
    for name, reference in want.items():
        error = (gradients[name] - reference).norm().item() / (reference.norm().item() + FLOOR * everything)
        if not error <= worst:
            worst, where = error, name
        if not error <= GRADIENT_BOUND:
            print(f"{what}: gradient of {name}: relative difference {error:.2e}, |g| {reference.norm().item():.3e}")
            good = False
    print(f"{what}: loss differs by {loss_error:.1e}, gradients by at most {worst:.1e} ({where})")
    return good


def few_flips(what, masks):
    share = masks.flips / len(masks.values)
    print(f"{what}: {masks.flips} of {len(masks.values)} activations on the other side of 0, "
          f"at most {masks.farthest:.1e} of the largest away from it")
    return share <= FLIP_SHARE and masks.farthest <= FLIP_BOUND


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    about = json.loads((folder / "about.json").read_text())
    model, layout, images = about["model"], about["parameters"], about["images"]
    what = f"{model}, {about['algorithms']}"
    gradients = split(read(folder, "gradients", "f", [-1]), layout)
    masks = torch_networks.Masks(read(folder, "masks", "B", [-1]))
    arguments = [
        torch_networks.MODELS[model],
        split(read(folder, "parameters", "f", [-1]), layout),
        read(folder, "images", "f", images),
        read(folder, "labels", "i", [images[0]]),
        about["shards"],
        about["sync"],
    ]
    want = torch_networks.loss_and_gradients(*arguments, masks=masks)
    good = compare(what, about["loss"], gradients, *want)
    good = few_flips(what, masks) and good
    if model in PLAIN_MODELS:
        want = torch_networks.loss_and_gradients(*arguments)
        good = compare(f"{what}, each its own rectifiers", about["loss"], gradients, *want) and good
    sys.exit(0 if good else 1)


main()
