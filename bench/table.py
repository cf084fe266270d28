"""Formats tables of measurements."""
import statistics


def summary(samples, digits):
    """The median, then the least and the largest."""
    middle, least, largest = (f"{v:.{digits}f}" for v in (statistics.median(samples), min(samples), max(samples)))
    return middle if len(samples) == 1 else f"{middle} ({least}-{largest})"


class Row:
    def __init__(self, what, goal, digits=0):
        self.what, self.goal, self.digits = what, goal, digits
        self.ours = self.peer = self.ratio = self.reached = "-"

    def value(self, samples):
        return summary(samples, self.digits)

    def compare(self, ours, peer, peer_name, goal):
        ratio = statistics.median(ours) / statistics.median(peer)
        self.ours, self.peer, self.ratio = self.value(ours), f"{self.value(peer)}, {peer_name}", f"{ratio:.2f}"
        self.reached = "yes" if ratio >= goal else "no"

    def judge(self, samples, reached):
        self.ours, self.reached = self.value(samples), "yes" if reached(statistics.median(samples)) else "no"

    def cells(self):
        return [self.what, self.ours, self.peer, self.ratio, self.goal, self.reached]


def format_cells(table):
    """Lines of text; the first of the table is the header."""
    table = [[str(cell) for cell in line] for line in table]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    table.insert(1, ["-" * width for width in widths])
    return ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in table]


def print_cells(table):
    print("\n".join(format_cells(table)))


def print_table(rows):
    print_cells([["what", "ours", "peer", "ratio", "goal", "reached"]] + [row.cells() for row in rows])
