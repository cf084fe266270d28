"""Prints torch_resnet18.h: names and shapes of the state_dict() of torchvision's ResNet-18, and the logits that PyTorch
computes in float64 with numbers that resnet18_weights_test.c makes too. The network is written here, with torchvision's
names, because only PyTorch is needed then. Usage: torch_resnet18.py > ../../support/torch_resnet18.h"""

import torch
from torch import nn

CLASSES, IMAGES, SIZE = 10, 2, 64


class BasicBlock(nn.Module):
    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def noise(tensor, shape):
    """Numbers from -0.5 to 0.5; see resnet18_weights_test.c."""
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    word = (i * 2654435761 + tensor * 40503 + 12345) % 2**32
    word = (word ^ (word >> 15)) * 2246822519 % 2**32
    return ((word >> 8).double() / 2**24 - 0.5).reshape(shape)


def value(tensor, name, shape):
    if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
        return 1 + noise(tensor, shape) / 2
    if len(shape) > 1:
        return noise(tensor, shape) * (12 / torch.Size(shape[1:]).numel()) ** 0.5
    return noise(tensor, shape)


net = ResNet18().double().eval()
state = net.state_dict()
names = [name for name in state if "num_batches_tracked" not in name]
for tensor, name in enumerate(names):
    state[name].copy_(value(tensor, name, list(state[name].shape)).float())
with torch.no_grad():
    logits = net(noise(len(names), [IMAGES, 3, SIZE, SIZE]).float().double()).flatten().tolist()

print("/* Made by torch/torch_resnet18.py with PyTorch " + torch.__version__.split("+")[0] + ". */")
print("/* clang-format off */\n#pragma once\n")
print("static const struct {\n    const char *name;\n    lk_shape shape;\n} resnet18_tensors[] = {")
for name in names:
    shape = ", ".join(str(n) for n in state[name].shape)
    print(f'    {{"{name}", {{.ndim = {state[name].dim()}, .dim = {{{shape}}}}}}},')
print("};\n\nstatic const double resnet18_logits[] = {")
for i in range(0, len(logits), 5):
    print("    " + " ".join(f"{v!r}," for v in logits[i : i + 5]))
print("};\n/* clang-format on */")
