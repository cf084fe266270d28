#!/usr/bin/env python3
"""Trains on Fashion-MNIST with PyTorch as `lockstep train` does with the same options, and prints a JSON object for each
epoch: validation accuracy, and the seconds since training began, with evaluation. Imports, reading the files and making
the network are not counted. bf16 is autocast: f32 parameters, as in `lockstep train --dtype bf16`.

Runs on the CPUs that its caller's affinity leaves it. More than one process: DistributedDataParallel over gloo on the
loopback interface, a process on each CPU, each batch divided among them.
"""
import argparse
import gzip
import json
import math
import sys
import time
from pathlib import Path

import numpy
import peer
import torch
from peer_torch_networks import NETWORKS
from peer_torch_processes import join, leave, run_all
from torch import nn
from torch.nn import functional as F

EVALUATED_TOGETHER = 1000


def read(folder, name, header):
    path = Path(folder) / name
    with open(path, "rb") if path.exists() else gzip.open(f"{path}.gz") as file:
        return torch.from_numpy(numpy.frombuffer(file.read(), dtype=numpy.uint8, offset=header).copy())


def read_set(folder, split):
    images = read(folder, f"{split}-images-idx3-ubyte", 16).view(-1, 28, 28)
    return images, read(folder, f"{split}-labels-idx1-ubyte", 8).long()


class Augmentation:
    """The random changes of `--augment` that this program knows: flip, crop=N and cutout=N."""

    def __init__(self, text):
        given = dict(word.partition("=")[::2] for word in text.split(",") if word)
        self.flips, self.padding, self.cutout = "flip" in given, int(given.pop("crop", 0)), int(given.pop("cutout", 0))
        given.pop("flip", None)
        if given:
            sys.exit(f"--augment {','.join(given)}: there are flip, crop and cutout")

    def pad(self, images):
        return F.pad(images, [self.padding] * 4)

    def choose(self, padded, chosen):
        """Gives the chosen images, [N, 28, 28] bytes, flipped and cropped."""
        n, side = len(chosen), padded.shape[1] - 2 * self.padding
        rows, columns = (torch.arange(side).repeat(n, 1) for _ in range(2))
        if self.flips:
            columns = torch.where(torch.rand(n, 1) < 0.5, side - 1 - columns, columns)
        rows, columns = (at + torch.randint(0, 2 * self.padding + 1, (n, 1)) for at in (rows, columns))
        return padded[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]

    def cut_out(self, images):
        """Sets a square of each normalized image [N, 1, 28, 28] to 0."""
        if self.cutout:
            n, _, height, width = images.shape
            inside = [((at := torch.arange(size) - torch.randint(0, size, (n, 1)) + self.cutout // 2) >= 0) & (at < self.cutout)
                      for size in (height, width)]
            images.masked_fill_((inside[0][:, :, None] & inside[1][:, None, :])[:, None], 0)
        return images


class Training:
    """One of the processes."""

    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.train_images, self.train_labels = read_set(args.data, "train")
        self.val_images, self.val_labels = read_set(args.data, "t10k")
        if args.normalize == "standard":
            pixels = self.train_images.float() / 255
            self.mean, self.deviation = pixels.mean(), pixels.std() + 1e-6
        else:
            self.mean, self.deviation = torch.tensor(0.0), torch.tensor(1.0)
        self.augmentation = Augmentation(args.augment)
        self.padded = self.augmentation.pad(self.train_images)
        torch.manual_seed(args.seed)
        net = NETWORKS[args.model]()
        if args.channels_last:
            net = net.to(memory_format=torch.channels_last)
        together = nn.parallel.DistributedDataParallel(net) if args.processes > 1 else net
        self.net = torch.compile(together) if args.compile else together
        # DistributedDataParallel exchanges buffers in each forward pass, but processes may evaluate unlike numbers of batches.
        self.evaluated = net if args.processes > 1 else self.net
        self.sgd = torch.optim.SGD(net.parameters(), lr=args.base_lr, momentum=args.momentum, nesterov=args.nesterov,
                                   weight_decay=args.wd, fused=True)
        self.updates = math.ceil(len(self.train_images) / args.batch_size)
        self.order = torch.Generator().manual_seed(args.seed)  # the same in all processes
        torch.manual_seed(args.seed * args.processes + rank)  # augmentation

    def prepare(self, images):
        images = ((images.float() / 255 - self.mean) / self.deviation)[:, None]
        return images.contiguous(memory_format=torch.channels_last) if self.args.channels_last else images

    def forward(self, net, images):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.dtype == "bf16"):
            return net(images)

    def rate(self, update):
        """As lk_schedule_rate."""
        epoch = update / self.updates
        rate = self.args.base_lr
        if self.args.schedule == "cosine":
            rate *= (1 + math.cos(math.pi * epoch / self.args.epochs)) / 2
        return rate * min(1, (update + 1) / (self.args.warmup_epochs * self.updates)) if self.args.warmup_epochs else rate

    def train_epoch(self, epoch):
        args = self.args
        self.net.train()
        for i, batch in enumerate(torch.randperm(len(self.padded), generator=self.order).split(args.batch_size)):
            mine = batch.tensor_split(args.processes)[self.rank]
            images = self.augmentation.cut_out(self.prepare(self.augmentation.choose(self.padded, mine)))
            for group in self.sgd.param_groups:
                group["lr"] = self.rate(epoch * self.updates + i)
            self.sgd.zero_grad()
            F.cross_entropy(self.forward(self.net, images).float(), self.train_labels[mine],
                            label_smoothing=args.label_smoothing).backward()
            self.sgd.step()

    def evaluate(self):
        self.net.eval()
        mine = range(self.rank * EVALUATED_TOGETHER, len(self.val_images), self.args.processes * EVALUATED_TOGETHER)
        hits = torch.zeros(())
        with torch.no_grad():
            for begin in mine:
                part = slice(begin, begin + EVALUATED_TOGETHER)
                hits += (self.forward(self.evaluated, self.prepare(self.val_images[part])).argmax(1) == self.val_labels[part]).sum()
        if self.args.processes > 1:
            torch.distributed.all_reduce(hits)
        return hits.item() / len(self.val_images)

    def run(self):
        began = time.perf_counter()
        for epoch in range(self.args.epochs):
            self.train_epoch(epoch)
            accuracy = self.evaluate()
            if self.rank == 0:
                print(json.dumps({"event": "epoch", "epoch": epoch + 1, "val_accuracy": accuracy,
                                  "total_seconds": time.perf_counter() - began}), flush=True)


def run(rank, args, meeting):
    """Runs one of the processes. Errors are one line on standard error."""
    try:
        join(rank, args, meeting)
        Training(rank, args).run()
        leave(args)
    except Exception as error:
        peer.fail(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the four IDX files, packed or not")
    parser.add_argument("--model", required=True, choices=NETWORKS)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--optimizer", default="sgd", choices=["sgd"])
    parser.add_argument("--base-lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--wd", type=float, default=0)
    parser.add_argument("--schedule", default="constant", choices=["constant", "cosine"])
    parser.add_argument("--warmup-epochs", type=float, default=0)
    parser.add_argument("--label-smoothing", type=float, default=0)
    parser.add_argument("--augment", default="")
    parser.add_argument("--normalize", default="none", choices=["none", "standard"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of each process (default 1)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--shards", type=int, help="ignored: batch-norm takes the statistics of each process's images")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile, with its default settings")
    args = parser.parse_args()
    run_all(run, args)


if __name__ == "__main__":
    main()
