"""Charts as SVG: text that any browser shows, light or dark, and that differs readably."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import escape

WIDTH, LABELS, VALUES = 760, 210, 130
"""Pixels: of a chart, and of its columns of names and of figures."""
BAR, TITLE = 24, 44
HEIGHT, LEFT, BOTTOM = 300, 60, 44
"""The sizes of a chart of lines and of its margins, in pixels."""
COLORS = ("#2f6fde", "#d9822b", "#2b9a66", "#b0449e", "#7a7f87", "#c0392b", "#0f8b8d", "#8a6d3b")

STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f; } .title { font-weight: 600; }
.faint { fill: #57606a; font-size: 12px; } .ours { fill: #2f6fde; } .others { fill: #9aa4af; }
.noise { stroke: #24292f; stroke-width: 1.5; } .grid { stroke: #d0d7de; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .faint { fill: #9198a1; } .noise { stroke: #e6edf3; }
.grid { stroke: #3d444d; } }
</style>"""


@dataclass(frozen=True)
class Bar:
    """One figure, and how far its runs lay apart."""

    label: str
    value: float
    least: float
    most: float
    ours: bool = False
    """Whether it is Tableferry's."""


def bars(title: str, unit: str, shown: Sequence[Bar]) -> str:
    """A chart of one horizontal bar each: medians, with a line from the least to the most.

    Args:
        title: above.
        unit: of all figures.
        shown: from top to bottom.
    """
    height = TITLE + BAR * len(shown) + 8
    longest = max((one.most for one in shown), default=0) or 1
    scale = (WIDTH - LABELS - VALUES) / longest
    parts = [_head(height, title), f'<text x="0" y="18" class="title">{escape(title)}</text>']
    parts.append(
        f'<text x="{WIDTH}" y="18" text-anchor="end" class="faint">{escape(unit)}: median, and '
        "least to most</text>"
    )
    for number, one in enumerate(shown):
        top = TITLE + BAR * number
        middle = top + BAR / 2 - 3
        kind = "ours" if one.ours else "others"
        low, high = (LABELS + value * scale for value in (one.least, one.most))
        parts += [
            f'<text x="{LABELS - 8}" y="{top + 14}" text-anchor="end">{escape(one.label)}</text>',
            f'<rect x="{LABELS}" y="{top}" width="{one.value * scale:.1f}" height="{BAR - 6}" '
            f'class="{kind}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" class="noise"/>',
            f'<text x="{high + 8:.1f}" y="{top + 14}">{number_text(one.value)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def lines(
    title: str, x_unit: str, y_unit: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """A chart of lines on two logarithmic axes: a straight line of slope 1 is a linear cost.

    Args:
        title: above.
        x_unit: of the first of each pair.
        y_unit: of the second.
        series: pairs of positive numbers by name.
    """
    pairs = [pair for line in series.values() for pair in line]
    height = HEIGHT + 20 * len(series)
    parts = [_head(height, title), f'<text x="0" y="18" class="title">{escape(title)}</text>']
    x = _Axis([one for one, _ in pairs], LEFT, WIDTH - 20)
    y = _Axis([other for _, other in pairs], HEIGHT - BOTTOM, TITLE)
    for tick in x.ticks:
        at = x.place(tick)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TITLE}" y2="{HEIGHT - BOTTOM}" class="grid"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" class="faint">'
            f"{number_text(tick)}</text>"
        )
    for tick in y.ticks:
        at = y.place(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
            f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" class="faint">'
            f"{number_text(tick)}</text>"
        )
    parts.append(
        f'<text x="{WIDTH}" y="18" text-anchor="end" class="faint">'
        f"{escape(y_unit)} by {escape(x_unit)}</text>"
    )
    for number, (name, line) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        points = [(x.place(one), y.place(other)) for one, other in sorted(line)]
        path = " ".join(f"{one:.1f},{other:.1f}" for one, other in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{one:.1f}" cy="{other:.1f}" r="3.5" fill="{color}"/>'
            for one, other in points
        ]
        top = HEIGHT + 20 * number
        parts.append(
            f'<rect x="{LEFT}" y="{top - 8}" width="14" height="4" fill="{color}"/>'
            f'<text x="{LEFT + 22}" y="{top}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def number_text(value: float) -> str:
    """Three digits that count, and thousands: `0.21`, `3.4`, `118`, `12,300`."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return (
        f"{round(value, digits):,.{max(digits, 0)}f}"
        if digits > 0
        else f"{round(value, digits):,.0f}"
    )


class _Axis:
    """A logarithmic one, from a pixel to a pixel."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        low = math.log10(min(values, default=1))
        high = math.log10(max(values, default=10))
        room = max((high - low) * 0.05, 0.02)
        self._low, self._high = low - room, high + room
        self._first, self._last = first, last
        wanted = [
            step * 10.0**power
            for power in range(math.floor(self._low), math.ceil(self._high) + 1)
            for step in (1, 2, 5)
        ]
        self.ticks = [one for one in wanted if self._low <= math.log10(one) <= self._high]

    def place(self, value: float) -> float:
        """Where it is."""
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first + part * (self._last - self._first)


def _head(height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">\n{STYLE}'
    )
