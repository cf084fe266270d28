"""The networks of Lockstep in PyTorch, in float64, with named variables, to compare gradients with. A forward pass
takes a dictionary of variables and a list of shards. Batch-norm normalizes over all shards (sync) or over each shard."""

import torch
import torch.nn.functional as F


class Masks:
    """Which activations are above 0 on the other side, in the order of the rectifiers and of their shards. It counts
    the activations that have another sign here, and `farthest` is their largest distance from 0, relative to the largest
    activation of their rectifier and shard."""

    def __init__(self, values):
        self.values = values
        self.used = self.flips = 0
        self.farthest = 0.0

    def rectify(self, x):
        mask = self.values[self.used : self.used + x.numel()].reshape(x.shape)
        self.used += x.numel()
        flipped = x.detach()[(x > 0) != (mask > 0)].abs()
        if len(flipped):
            self.flips += len(flipped)
            self.farthest = max(self.farthest, (flipped.max() / x.detach().abs().max()).item())
        return x * mask


class Net:
    """variables: name -> tensor; sync: batch-norm over all shards; masks: a Masks that replaces the activations' own
    signs, or None."""

    def __init__(self, variables, sync, masks=None):
        self.v = variables
        self.sync = sync
        self.rectify = masks.rectify if masks else torch.relu

    def conv(self, xs, name, stride=1, padding=0):
        bias = self.v.get(name + ".bias")
        return [F.conv2d(x, self.v[name + ".weight"], bias, stride=stride, padding=padding) for x in xs]

    def dense(self, xs, name):
        return [x.flatten(1) @ self.v[name + ".weight"] + self.v[name + ".bias"] for x in xs]

    def norm(self, xs, name, eps):
        def one(x):
            return F.batch_norm(x, None, None, self.v[name + ".weight"], self.v[name + ".bias"], True, 0, eps)

        if not self.sync:
            return [one(x) for x in xs]
        return list(one(torch.cat(xs)).split([len(x) for x in xs]))

    @staticmethod
    def each(function, *lists):
        return [function(*x) for x in zip(*lists)]

    def relu(self, xs):
        return self.each(self.rectify, xs)

    def mean(self, xs):
        return [x.mean((2, 3)) for x in xs]


def lenet(net, xs):
    xs = [F.avg_pool2d(x, 2) for x in net.relu(net.conv(xs, "conv1"))]
    xs = [F.avg_pool2d(x, 2) for x in net.relu(net.conv(xs, "conv2"))]
    return net.dense(net.relu(net.dense(xs, "dense1")), "dense2")


def keras_cnn(net, xs):
    xs = [F.max_pool2d(x, 2) for x in net.relu(net.conv(xs, "conv1"))]
    return net.dense(net.relu(net.dense(xs, "dense1")), "dense2")


def resnet18(net, xs):
    xs = net.relu(net.norm(net.conv(xs, "conv1", padding=1), "bn1", 1e-5))
    for block in range(1, 5):
        for part in (1, 2):
            name, halve = f"block{block}.{part}.", part == 1 and block > 1
            ys = net.conv(xs, name + "conv1", stride=2 if halve else 1, padding=1)
            ys = net.relu(net.norm(ys, name + "bn1", 1e-5))
            ys = net.norm(net.conv(ys, name + "conv2", padding=1), name + "bn2", 1e-5)
            if halve:
                xs = net.conv(xs, name + "conv3", stride=2)
            xs = net.relu(net.each(torch.add, ys, xs))
    return net.dense(net.mean(xs), "dense")


def wrn_16_10(net, xs):
    def cbr(zs, conv, norm):
        return net.relu(net.norm(net.conv(zs, conv, padding=1), norm, 1e-3))

    xs = cbr(xs, "conv1", "bn1")
    for block in range(1, 4):
        for part in (1, 2):
            name = f"block{block}.{part}."
            ys = cbr(cbr(xs, name + "conv1", name + "bn1"), name + "conv2", name + "bn2")
            if part == 1:
                xs = net.conv(xs, name + "conv3")
            xs = net.each(torch.add, xs, ys)
        if block < 3:
            xs = [F.max_pool2d(x, 2) for x in xs]
    return net.dense(net.mean(xs), "dense")


MODELS = {"lenet": lenet, "keras-cnn": keras_cnn, "resnet18": resnet18, "wrn-16-10": wrn_16_10}


def loss_and_gradients(forward, variables, images, labels, shards, sync, smoothing=0.0, masks=None):
    """The mean loss over all samples, and its gradient for every variable."""
    variables = {name: value.clone().requires_grad_() for name, value in variables.items()}
    count = len(labels)
    bounds = [count * s // shards for s in range(shards + 1)]
    sizes = [b - a for a, b in zip(bounds, bounds[1:])]
    net = Net(variables, sync, masks)
    logits = forward(net, list(images.split(sizes)))
    assert masks is None or masks.used == len(masks.values), "not as many masks as activations"
    loss = F.cross_entropy(torch.cat(logits), labels, reduction="sum", label_smoothing=smoothing) / count
    loss.backward()
    return loss.item(), {name: value.grad for name, value in variables.items()}
