"""SVG charts. Pure: numbers in, markup out. The only module that builds SVG.

Colours come from classes (`app.css`), because the content security policy forbids inline styles. Every chart
has a title for screen readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

_BAR: Final = 6
_GAP: Final = 2


class Bar(NamedTuple):
    """One bar: its state, its value (None: full height), its tooltip, and where it leads."""

    state: str
    value: float | None
    title: str
    href: str | None = None


def outcome_bars(
    bars: Sequence[Bar], *, slots: int = 20, height: int = 24, label: str = "Last outcomes"
) -> Markup:
    """Return the last outcomes as bars, newest on the right; the height is the duration."""
    width = slots * (_BAR + _GAP) - _GAP
    most = max((bar.value for bar in bars if bar.value is not None), default=0.0) or 1.0
    start = (slots - len(bars)) * (_BAR + _GAP)
    parts = [
        Markup('<line x1="0" x2="{}" y1="{}" y2="{}" class="chart-axis"/>').format(
            width, height - 0.5, height - 0.5
        )
    ]
    for index, bar in enumerate(bars):
        size = height if bar.value is None else max(4.0, height * bar.value / most)
        rect = _rect(start + index * (_BAR + _GAP), height - size, _BAR, size, bar.state, bar.title)
        parts.append(Markup('<a href="{}">{}</a>').format(bar.href, rect) if bar.href else rect)
    return _svg(width, height, label, parts, "outcome-bars")


def columns(
    values: Sequence[float], titles: Sequence[str], *, width: int = 640, height: int = 96, label: str
) -> Markup:
    """Return a column chart of one series."""
    most = max(values, default=0.0) or 1.0
    step = width / max(1, len(values))
    parts = [
        _rect(index * step, height - size, max(1.0, step - 1), size, "series", title)
        for index, (value, title) in enumerate(zip(values, titles, strict=True))
        for size in [height * value / most]
        if value
    ]
    axis = Markup('<line x1="0" x2="{}" y1="{}" y2="{}" class="chart-axis"/>').format(
        width, height - 0.5, height - 0.5
    )
    return _svg(width, height, label, [axis, *parts], "columns")


def minutes(values: Sequence[float], titles: Sequence[str], *, label: str) -> Markup:
    """Return the runs of an hour, a column for each minute.

    A column grows with the square root of its number: single runs stay visible beside a thousand.
    """
    width, height = 10 * len(values), 72
    most = max(values, default=0.0) or 1.0
    parts = [
        Markup('<line x1="{0}" x2="{0}" y1="0" y2="{1}" class="chart-grid"/>').format(x, height)
        for x in range(0, width + 1, 150)
    ]
    parts.append(
        Markup('<line x1="0" x2="{}" y1="{}" y2="{}" class="chart-axis"/>').format(
            width, height - 0.5, height - 0.5
        )
    )
    for index, (value, title) in enumerate(zip(values, titles, strict=True)):
        if value > 0:
            size = max(6.0, (height - 4) * (value / most) ** 0.5)
            parts.append(_rect(10 * index + 1, height - size, 8, size, "series", title))
    return _svg(width, height, label, parts, "minutes")


def line(values: Sequence[float | None], *, width: int = 640, height: int = 96, label: str) -> Markup:
    """Return a line chart; None is a gap."""
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    step = width / max(1, len(values) - 1)
    paths: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            paths.append([])
        else:
            paths[-1].append(f"{index * step:.1f},{(height - 2) * (1 - value / most) + 1:.1f}")
    parts = [
        Markup('<polyline points="{}" class="chart-line"/>').format(" ".join(points))
        for points in paths
        if points
    ]
    return _svg(width, height, label, parts, "line")


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str) -> Markup:
    return Markup(
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1.5" class="fill-{}">'
        "<title>{}</title></rect>"
    ).format(x, y, width, height, fill, title)


def _svg(width: float, height: float, label: str, parts: Sequence[Markup], kind: str) -> Markup:
    return Markup(
        '<svg class="chart chart-{}" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}"'
        ' preserveAspectRatio="none" focusable="false">{}</svg>'
    ).format(kind, width, height, escape(label), Markup("").join(parts))
