"""Draws training speed relative to the fastest peer, as an SVG."""
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
    """bars: (network, cores, ratio, ours and theirs as text), those of a network next to each other."""
    scale = (WIDTH - LEFT - RIGHT) / max(1, max(ratio for _, _, ratio, _ in bars))
    parts, y, last = [], TOP, None
    for network, cores, ratio, speeds in bars:
        if network != last:
            y += BETWEEN_NETWORKS if last else 0
            last = network
            parts.append(f'<text x="{LEFT - 10}" y="{y + BAR + 5}" text-anchor="end">{html.escape(network)}</text>')
        width = ratio * scale
        color = "one" if cores == 1 else "two"
        parts.append(f'<rect class="{color}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>')
        parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{ratio:.2f}× <tspan class="quiet">'
                     f'{html.escape(speeds)}</tspan></text>')
        y += BAR + GAP
    one = LEFT + scale
    head = [f'<text class="title" x="12" y="24">{html.escape(title)}</text>',
            f'<text class="quiet" x="12" y="43">{html.escape(subtitle)}</text>',
            *legend("one", "1 core", LEFT), *legend("two", "2 cores", LEFT + 80),
            f'<line class="line" x1="{one:.1f}" y1="{TOP - 6}" x2="{one:.1f}" y2="{y + 2}"/>',
            f'<text class="quiet" x="{one:.1f}" y="{y + 18}" text-anchor="middle">1× = the fastest peer</text>']
    size = f'viewBox="0 0 {WIDTH} {y + 30}" width="{WIDTH}" height="{y + 30}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([svg, f"<style>{STYLE}</style>", *parts, *head, "</svg>", ""])
