#!/usr/bin/env python3
"""Draws the diagrams of the documents, as SVG, into the folder of this script: layers, a step, the tree, a sum along it, and the promise."""
from pathlib import Path

INK, SOFT, LINE, PAPER = "#1f2937", "#6b7280", "#cbd5e1", "#ffffff"
BLUE, ORANGE, GREEN, GRAY = "#3b82f6", "#f59e0b", "#10b981", "#e5e7eb"
PALE = {BLUE: "#dbeafe", ORANGE: "#fef3c7", GREEN: "#d1fae5", GRAY: "#f3f4f6"}


class Picture:
    def __init__(self, width, height, title):
        self.size = width, height
        self.parts = [f"<title>{title}</title>", f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>']

    def box(self, x, y, width, height, fill=PALE[GRAY], edge=LINE):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{edge}"/>')

    def text(self, x, y, text, size=13, fill=INK, anchor="start", weight="normal", mono=False):
        family = "ui-monospace,Menlo,Consolas,monospace" if mono else "system-ui,Segoe UI,Helvetica,Arial,sans-serif"
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x}" y="{y}" font-family="{family}" font-size="{size}" font-weight="{weight}" '
                          f'fill="{fill}" text-anchor="{anchor}">{text}</text>')

    def line(self, x1, y1, x2, y2, color=SOFT, arrow=False, dashed=False):
        end = ' marker-end="url(#arrow)"' if arrow else ""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="1.5"{end}{dash}/>')

    def circle(self, x, y, radius, fill, edge):
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>')

    def write(self, name):
        width, height = self.size
        arrow = ('<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                 f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{SOFT}"/></marker></defs>')
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        Path(__file__).with_name(name).write_text("\n".join([head, arrow, *self.parts, "</svg>\n"]))


def layers():
    rows = [
        ("cli/", ORANGE, [("the command: commands, launch, text", 4)]),
        ("training", BLUE, [("report", 1), ("train", 2), ("predict", 1), ("export", 1)]),
        ("several devices", BLUE, [("dist: process, service, transports, sum, collectives, strategies", 5)]),
        ("services", GREEN, [("optim", 1), ("data", 1), ("io", 1)]),
        ("networks", GREEN, [("autograd", 1), ("program", 1), ("nn", 1)]),
        ("kernels", GREEN, [("ref", 1), ("cpu", 1), ("cuda", 1), ("pjrt", 1), ("backends", 1)]),
        ("operators", GRAY, [("ops: one file an operator", 3)]),
        ("engine", GRAY, [("core: devices, queues, tensors, allocator, trace", 4)]),
        ("foundation", GRAY, [("base: errors, memory, Philox, options, threads", 4)]),
    ]
    picture = Picture(820, 60 + 48 * len(rows), "The layers of Lockstep; a layer includes only layers below it")
    picture.text(24, 32, "A layer includes only from layers drawn below it.", 14, SOFT)
    for i, (name, color, boxes) in enumerate(rows):
        y = 48 + 48 * i
        picture.text(24, y + 25, name, 13, SOFT)
        total, x = sum(weight for _, weight in boxes), 150
        room = 510 - 8 * (len(boxes) - 1)
        for label, weight in boxes:
            width = room * weight / total
            picture.box(round(x), y, round(width), 38, PALE[color], color)
            picture.text(round(x + width / 2), y + 24, label, 12.5, INK, "middle")
            x += width + 8
    picture.box(690, 96, 106, 48 * len(rows) - 58, PALE[GRAY], LINE)
    for i, line in enumerate(("include/", "lockstep/", "", "the public", "headers: all", "that the", "command and", "programs see")):
        picture.text(743, 240 + 18 * i, line, 12.5, INK, "middle")
    picture.write("layers.svg")


def tree():
    shards, devices = 8, [(0, 3), (3, 6), (6, 8)]
    colors = [BLUE, ORANGE, GREEN]
    picture = Picture(820, 400, "The tree over eight shards on three devices")
    at = {}

    def place(lo, hi, depth):
        if hi - lo == 1:
            at[lo, hi] = 90 + 90 * lo, 270
            return at[lo, hi]
        mid = (lo + hi) // 2
        left, right = place(lo, mid, depth + 1), place(mid, hi, depth + 1)
        at[lo, hi] = (left[0] + right[0]) / 2, 60 + 70 * depth
        return at[lo, hi]

    place(0, shards, 0)
    for (lo, hi), (x, y) in at.items():
        if hi - lo > 1:
            mid = (lo + hi) // 2
            for child in ((lo, mid), (mid, hi)):
                picture.line(x, y, *at[child])
    for (lo, hi), (x, y) in at.items():
        owner = [d for d, (first, end) in enumerate(devices) if first <= lo and hi <= end]
        color = colors[owner[0]] if owner else GRAY
        picture.circle(x, y, 19, PALE[color], color if owner else SOFT)
        picture.text(x, y + 5, f"{lo}" if hi - lo == 1 else f"{lo}…{hi - 1}", 12.5, INK, "middle")
    for d, (first, end) in enumerate(devices):
        picture.box(58 + 90 * first, 305, 90 * (end - first) - 26, 30, PALE[colors[d]], colors[d])
        picture.text(45 + 45 * (first + end), 325, f"device {d}", 13, INK, "middle")
    picture.text(24, 365, "A device adds up the nodes inside its range. Gray nodes join values of several devices: these cross.", 13, SOFT)
    picture.text(24, 385, "The shape depends on the number of shards alone, so the additions are the same on any number of devices.", 13,
                 SOFT)
    picture.write("tree.svg")


def exchange():
    """Cells of a row that a device has: of its own sum, of a node of two devices, or of the whole sum."""
    own, pairs, whole = (GRAY, LINE), (PALE[BLUE], BLUE), (PALE[GREEN], GREEN)
    heads = ["own sums", "1: halves", "2: quarters", "3: quarters", "4: halves"]
    sums = ["", "0 + 1 and 2 + 3", "(0 + 1) + (2 + 3)", "the sum goes back", "all have it"]
    having = [[range(4)] * 4, [(0, 1), (2, 3), (0, 1), (2, 3)], [(0,), (2,), (1,), (3,)], [(0, 1), (2, 3), (0, 1), (2, 3)], [range(4)] * 4]
    partners = [None, ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 2), (1, 3)), ((0, 1), (2, 3))]
    looks = [own, pairs, whole, whole, whole]
    picture = Picture(820, 340, "A sum of four devices along the tree, in four steps")
    for device in range(4):
        picture.text(24, 110 + 56 * device, f"device {device}", 13, SOFT)
    for column, (head, note, (fill, edge)) in enumerate(zip(heads, sums, looks)):
        x = 100 + 146 * column
        picture.text(x, 36, head, 13, INK, weight="bold")
        picture.text(x, 56, note, 12.5, SOFT)
        for device in range(4):
            for cell in range(4):
                full = cell in having[column][device]
                picture.box(x + 22 * cell, 90 + 56 * device, 20, 30, fill if full else PAPER, edge if full else LINE)
        for i, pair in enumerate(partners[column] or ()):
            at = x - 16 - 14 * (i if pair[1] - pair[0] == 2 else 0)
            picture.line(at, 105 + 56 * pair[0], at, 105 + 56 * pair[1], SOFT, arrow=True)
            picture.line(at, 105 + 56 * pair[1], at, 105 + 56 * pair[0], SOFT, arrow=True)
    picture.text(24, 325, "Arrows join devices that send each other cells. Additions are those of the tree, so the bits are too.", 13, SOFT)
    picture.write("exchange.svg")


def step():
    picture = Picture(820, 330, "A training step on two devices")
    lanes = ["host thread", "device 0", "device 1", "links"]
    for i, lane in enumerate(lanes):
        y = 50 + 58 * i
        picture.text(24, y + 24, lane, 13, SOFT)
        picture.line(120, y + 40, 800, y + 40, LINE)

    def bar(lane, begin, end, label, color):
        y = 50 + 58 * lane
        picture.box(120 + begin, y, end - begin, 36, PALE[color], color)
        picture.text(120 + (begin + end) / 2, y + 22, label, 11.5, INK, "middle")

    bar(0, 0, 105, "push step t", GRAY)
    bar(0, 110, 215, "push step t+1", GRAY)
    bar(0, 560, 680, "metrics of step t", GRAY)
    for lane in (1, 2):
        shift = 12 if lane == 2 else 0
        bar(lane, 20 + shift, 135 + shift, "forward", BLUE)
        bar(lane, 139 + shift, 245 + shift, "backward 1", GREEN)
        bar(lane, 249 + shift, 355 + shift, "backward 2", GREEN)
        bar(lane, 359 + shift, 460 + shift, "backward 3", GREEN)
        bar(lane, 500, 560, "update", BLUE)
    bar(3, 265, 360, "bucket 1", ORANGE)
    bar(3, 375, 465, "bucket 2", ORANGE)
    bar(3, 470, 497, "3", ORANGE)
    picture.line(372, 202, 384, 222, arrow=True)
    picture.line(482, 202, 494, 222, arrow=True)
    picture.line(617, 222, 622, 206, arrow=True)
    picture.text(24, 300, "Pushing returns at once; the host waits only for the metrics of the step before the last one.", 13, SOFT)
    picture.text(24, 318, "A bucket of gradients is summed over devices while backward goes on. Every device applies the same sums.", 13,
                 SOFT)
    picture.text(24, 30, "time →", 12, SOFT)
    picture.write("step.svg")


def promise():
    # LeNet, Fashion-MNIST, 10 epochs, two cores with AVX2 (Zen 3), 2026-11-25: `lockstep train --model lenet` in four ways.
    runs = [("1 device", 50.6), ("2 devices", 26.5), ("2 processes", 28.5), ("killed, resumed on 3", None)]
    digest = "34551706d8d4b5cf29d43f0c47fc9895"
    picture = Picture(820, 210, "The number of devices changes the time, never the result")
    picture.text(24, 34, "The number of devices changes the time, never the result.", 17, INK, weight="600")
    for i, (name, seconds) in enumerate(runs):
        y = 56 + 36 * i
        picture.text(24, y + 18, name, 13.5)
        if seconds:
            picture.box(190, y, round(290 * seconds / runs[0][1]), 26, PALE[BLUE], BLUE)
            picture.text(200, y + 18, f"{seconds} s", 12.5)
        else:
            picture.box(190, y, 62, 26, PALE[BLUE], BLUE)
            picture.line(256, y + 4, 264, y + 22, "#dc2626")
            picture.line(264, y + 4, 256, y + 22, "#dc2626")
            picture.box(268, y, 100, 26, PALE[BLUE], BLUE)
        picture.line(490, y + 13, 520, y + 13, arrow=True)
        picture.text(530, y + 18, digest, 12.5, "#047857", mono=True)
    picture.write("promise.svg")


layers()
tree()
exchange()
step()
promise()
