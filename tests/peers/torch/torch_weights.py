"""The reference networks as PyTorch's programs define them.

torch_weights.py write DIR: writes the initial weights of each network, DIR/NAME.safetensors, and its logits for some
    images, DIR/NAME.outputs (images, logits). resnet18-book has the book's names. Exit status 77: there is no PyTorch.
torch_weights.py check DIR: checks that DIR/NAME/checkpoint-00000001/model.safetensors has the same bits, and that the
    module loads DIR/NAME.back and then has the initial weights.

This script reads and writes safetensors itself; if PyPI's package is installed, it must read the same values."""

import json
import struct
import sys

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit(77)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, project, stride, names):
        super().__init__()
        self.names = names
        parts = [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, 1, 1)]
        parts += [nn.BatchNorm2d(outputs), nn.Conv2d(inputs, outputs, 1, stride) if project else None]
        for name, part in zip(names, parts):
            setattr(self, name, part)

    def forward(self, x):
        conv1, norm1, conv2, norm2, conv3 = (getattr(self, name) for name in self.names)
        y = norm2(conv2(F.relu(norm1(conv1(x)))))
        return F.relu(y + (conv3(x) if conv3 is not None else x))


def stage(inputs, outputs, first, names):
    return [Residual(inputs, outputs, not first, 1 if first else 2, names), Residual(outputs, outputs, False, 1, names)]


def stem():
    return [nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU()]


def resnet18():
    names = ("c1", "b1", "c2", "b2", "c3")
    stages = stage(64, 64, True, names) + stage(64, 128, False, names)
    stages += stage(128, 256, False, names) + stage(256, 512, False, names)
    return nn.Sequential(*stem(), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def resnet18_book():
    names = ("conv1", "bn1", "conv2", "bn2", "conv3")
    net = nn.Sequential(*stem())
    sizes = [64, 64, 128, 256, 512]
    for i in range(4):
        net.add_module(f"resnet_block{i + 1}", nn.Sequential(*stage(sizes[i], sizes[i + 1], i == 0, names)))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, 10)))
    return net


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))  # fmt: skip


def keras_cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 13 * 13, 64),
                         nn.ReLU(), nn.Linear(64, 10))  # fmt: skip


def cbr(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs, eps=1e-3), nn.ReLU()]


class WideBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.body = nn.Sequential(*cbr(inputs, outputs), nn.Dropout(0.01), *cbr(outputs, outputs))

    def forward(self, x):
        return self.skip(x) + self.body(x)


def wrn_16_10():
    return nn.Sequential(*cbr(1, 16), WideBlock(16, 160), WideBlock(160, 160), nn.MaxPool2d(2), WideBlock(160, 320),
                         WideBlock(320, 320), nn.MaxPool2d(2), WideBlock(320, 640), WideBlock(640, 640),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 10))  # fmt: skip


class FastBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        layers = [nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(channels), nn.ReLU())  # fmt: skip

    def forward(self, x):
        return self.body(x) + x


def fast_conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


def fast_cnn():
    return nn.Sequential(fast_conv(1, 32), nn.BatchNorm2d(32), nn.ReLU(), fast_conv(32, 64), nn.MaxPool2d(2),
                         nn.BatchNorm2d(64), nn.ReLU(), fast_conv(64, 128), nn.MaxPool2d(2), nn.BatchNorm2d(128), nn.ReLU(),
                         FastBlock(128), fast_conv(128, 256), nn.MaxPool2d(2), nn.BatchNorm2d(256), nn.ReLU(),
                         nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(256, 10))  # fmt: skip


MODELS = {"lenet": lenet, "keras-cnn": keras_cnn, "resnet18": resnet18, "resnet18-book": resnet18_book,
          "wrn-16-10": wrn_16_10, "fast-cnn": fast_cnn}  # fmt: skip
DTYPES = {"F32": torch.float32, "I64": torch.int64}


def save(path, tensors):
    header, end = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        dtype = next(key for key, value in DTYPES.items() if value == tensor.dtype)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


def load(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = torch.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write(name, folder):
    torch.manual_seed(3)
    net = MODELS[name]().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    images = torch.rand(2, 1, 28, 28)
    save(f"{folder}/{name}.safetensors", net.state_dict())
    with torch.no_grad():
        save(f"{folder}/{name}.outputs", {"images": images, "logits": net(images)})


def in_order(tensors, net):
    """The weight, bias, mean and variance of each module, in the order of the modules."""
    ordered = []
    for path, module in net.named_modules():
        for own in ("weight", "bias", "running_mean", "running_var"):
            if f"{path}.{own}" in tensors:
                tensor = tensors[f"{path}.{own}"]
                linear = isinstance(module, nn.Linear) and own == "weight"
                ordered.append(tensor.t().contiguous() if linear else tensor)
    return ordered


def check(name, folder):
    path = f"{folder}/{name}/checkpoint-00000001/model.safetensors"
    found, wanted = load(path), in_order(load(f"{folder}/{name}.safetensors"), MODELS[name]())
    kept = dict.fromkeys(key.rpartition(".")[0] for key in found)  # layers in Lockstep's order
    if name == "wrn-16-10":  # in PyTorch its blocks begin with the shortcut, in Lockstep they end with it
        for block in ("block1.1.", "block2.1.", "block3.1."):
            names = list(kept)
            names.insert(names.index(block + "conv1"), names.pop(names.index(block + "conv3")))
            kept = names
    mine = [found[f"{layer}.{own}"] for layer in kept for own in ("weight", "bias", "running_mean", "running_var")
            if f"{layer}.{own}" in found]  # fmt: skip
    assert len(mine) == len(wanted) == len(found), f"{len(mine)} tensors, {len(wanted)} in PyTorch"
    for a, b in zip(mine, wanted):
        assert a.shape == b.shape and torch.equal(a, b), "not what was given"
    net = MODELS[name]()
    net.load_state_dict(load(f"{folder}/{name}.back"))
    for key, given in load(f"{folder}/{name}.safetensors").items():
        assert torch.equal(net.state_dict()[key], given), f"{key} is not what it was"
    try:
        from safetensors.torch import load_file
    except ImportError:
        return
    theirs = load_file(path)
    assert theirs.keys() == found.keys() and all(torch.equal(theirs[key], found[key]) for key in found)


for model in MODELS:
    {"write": write, "check": check}[sys.argv[1]](model, sys.argv[2])
