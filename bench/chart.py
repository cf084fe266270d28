"""Draws training speed relative to the fastest peer, and efficiency by number of devices, as SVG."""
import html

WIDTH, LEFT, RIGHT, TOP = 760, 120, 220, 84
BAR, GAP, BETWEEN_NETWORKS = 18, 4, 14

STYLE = """
  text { font: 13px sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: bold; }
  .quiet { fill: #57606a; }
  .one { fill: #54aeff; } .two { fill: #0969da; }
  .line { stroke: #8c959f; stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #9198a1; } .line { stroke: #6e7681; }
    .one { fill: #a5d6ff; } .two { fill: #388bfd; }
  }
"""


def legend(color, text, x):
    return [f'<rect class="{color}" x="{x}" y="54" width="12" height="12"/>', f'<text x="{x + 18}" y="65">{text}</text>']


def draw(title, subtitle, bars):
    """bars: (network, cores, ratio, ours and theirs as text)."""
    scale = (WIDTH - LEFT - RIGHT) / max(1, max(ratio for _, _, ratio, _ in bars))
    groups = {}
    for bar in bars:
        groups.setdefault(bar[0], []).append(bar)
    parts, y = [], TOP
    for network, group in groups.items():
        middle = y + (len(group) * (BAR + GAP) - GAP) / 2
        parts.append(f'<text x="{LEFT - 10}" y="{middle + 5:g}" text-anchor="end">{html.escape(network)}</text>')
        for _, cores, ratio, speeds in sorted(group, key=lambda bar: bar[1]):
            width = ratio * scale
            color = "one" if cores == 1 else "two"
            parts.append(f'<rect class="{color}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>')
            parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{ratio:.2f}× <tspan class="quiet">'
                         f'{html.escape(speeds)}</tspan></text>')
            y += BAR + GAP
        y += BETWEEN_NETWORKS
    y -= BETWEEN_NETWORKS
    one = LEFT + scale
    head = [f'<text class="title" x="12" y="24">{html.escape(title)}</text>',
            f'<text class="quiet" x="12" y="43">{html.escape(subtitle)}</text>',
            *legend("one", "1 core", LEFT), *legend("two", "2 cores", LEFT + 80),
            f'<line class="line" x1="{one:.1f}" y1="{TOP - 6}" x2="{one:.1f}" y2="{y + 2}"/>',
            f'<text class="quiet" x="{one:.1f}" y="{y + 18}" text-anchor="middle">1× = the fastest peer</text>']
    size = f'viewBox="0 0 {WIDTH} {y + 30}" width="{WIDTH}" height="{y + 30}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([svg, f"<style>{STYLE}</style>", *parts, *head, "</svg>", ""])


LINES = ("#0969da", "#bf8700", "#1a7f37", "#cf222e")
PANEL_WIDTH, PANEL_HEIGHT, PANEL_LEFT, PANEL_TOP = 300, 150, 50, 90


def draw_lines(title, xs, panels):
    """panels: (title, {name: {x: share}}), two in a row, with the same names. xs are as far apart as their positions."""
    parts = []
    for p, (heading, lines) in enumerate(panels):
        left = PANEL_LEFT + p % 2 * (PANEL_WIDTH + 70)
        top = PANEL_TOP + p // 2 * (PANEL_HEIGHT + 80)
        place = {x: left + i * PANEL_WIDTH / max(1, len(xs) - 1) for i, x in enumerate(xs)}
        parts.append(f'<text x="{left}" y="{top - 10}">{html.escape(heading)}</text>')
        for share in (0, 0.5, 1):
            y = top + (1 - share) * PANEL_HEIGHT
            parts.append(f'<line class="line" x1="{left}" y1="{y}" x2="{left + PANEL_WIDTH}" y2="{y}"/>')
            parts.append(f'<text class="quiet" x="{left - 6}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
        for x in xs:
            parts.append(f'<text class="quiet" x="{place[x]:.1f}" y="{top + PANEL_HEIGHT + 18}" text-anchor="middle">{x}</text>')
        for color, line in zip(LINES, lines.values()):
            points = " ".join(f"{place[x]:.1f},{top + (1 - share) * PANEL_HEIGHT:.1f}" for x, share in line.items())
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
    keys = []
    for i, (color, name) in enumerate(zip(LINES, panels[0][1])):
        keys.append(f'<rect fill="{color}" x="{PANEL_LEFT + 120 * i}" y="40" width="12" height="12"/>')
        keys.append(f'<text x="{PANEL_LEFT + 120 * i + 18}" y="51">{html.escape(name)}</text>')
    height = PANEL_TOP + (len(panels) + 1) // 2 * (PANEL_HEIGHT + 80) - 30
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    head = f'<text class="title" x="12" y="24">{html.escape(title)}</text>'
    return "\n".join([svg, f"<style>{STYLE}</style>", head, *keys, *parts, "</svg>", ""])


TIMES_LEFT, TIMES_TOP, TIMES_WIDTH, TIMES_HEIGHT, LEAST_ACCURACY, MOST_ACCURACY = 60, 90, 640, 300, 0.86, 0.96


def draw_times(title, subtitle, curves, goals):
    """curves: {name: [[(seconds, accuracy), …], …]}, a line for each training. goals: accuracies to mark."""
    end = max(seconds for lines in curves.values() for line in lines for seconds, _ in line)
    step = next(s for s in (1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600) if end / s <= 10 or s == 3600)
    bottom = TIMES_TOP + TIMES_HEIGHT

    def place(seconds, accuracy):
        share = (max(accuracy, LEAST_ACCURACY) - LEAST_ACCURACY) / (MOST_ACCURACY - LEAST_ACCURACY)
        return f"{TIMES_LEFT + seconds / end * TIMES_WIDTH:.1f}", f"{bottom - share * TIMES_HEIGHT:.1f}"

    parts = []
    for accuracy in sorted({LEAST_ACCURACY, 0.88, 0.90, *goals, MOST_ACCURACY}):
        _, y = place(0, accuracy)
        dash = 'class="line"' if accuracy in goals else 'class="line" stroke-opacity="0.4"'
        parts.append(f'<line {dash} x1="{TIMES_LEFT}" y1="{y}" x2="{TIMES_LEFT + TIMES_WIDTH}" y2="{y}"/>')
        parts.append(f'<text class="quiet" x="{TIMES_LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{accuracy:.0%}</text>')
    for seconds in range(0, int(end) + 1, step):
        x, _ = place(seconds, LEAST_ACCURACY)
        parts.append(f'<text class="quiet" x="{x}" y="{bottom + 20}" text-anchor="middle">{seconds} s</text>')
    key = TIMES_LEFT
    for color, (name, lines) in zip(LINES, curves.items()):
        parts.append(f'<rect fill="{color}" x="{key}" y="56" width="12" height="12"/>')
        parts.append(f'<text x="{key + 18}" y="67">{html.escape(name)}</text>')
        key += 50 + 7 * len(name)
        for line in lines:
            points = [place(*point) for point in line]
            path = " ".join(f"{x},{y}" for x, y in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
            parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}"/>' for x, y in points]
    height = bottom + 40
    head = [f'<text class="title" x="12" y="24">{html.escape(title)}</text>',
            f'<text class="quiet" x="12" y="43">{html.escape(subtitle)}</text>']
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    return "\n".join([svg, f"<style>{STYLE}</style>", *head, *parts, "</svg>", ""])
