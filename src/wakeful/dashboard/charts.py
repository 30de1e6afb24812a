"""SVG charts. Pure: numbers in, markup out. The only module that builds SVG.

Colours come from classes (`app.css`), because the content security policy forbids inline styles. Every chart
has a title for screen readers.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

_BAR: Final = 6
_DAY: Final = 10
#: The states in a bar, from the top.
_ORDER: Final = {
    state: number for number, state in enumerate(("failed", "missed", "cancelled", "skipped", "succeeded"))
}
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
        _fill('<line x1="0" x2="{}" y1="{}" y2="{}" class="chart-axis"/>', width, height - 0.5, height - 0.5)
    ]
    for index, bar in enumerate(bars):
        size = height if bar.value is None else max(height * 0.3, height * bar.value / most)
        rect = _rect(start + index * (_BAR + _GAP), height - size, _BAR, size, bar.state, bar.title)
        parts.append(_fill('<a href="{}">{}</a>', bar.href, rect) if bar.href else rect)
    return _svg(width, height, label, parts, "outcome-bars")


def outcome_strokes(
    bars: Sequence[Bar], *, slots: int = 20, height: int = 24, label: str = "Last outcomes"
) -> Markup:
    """Return the last outcomes as bars without links and tooltips: one path for each state.

    A list of jobs has 20 bars in each row, so their size counts.
    """
    width = slots * (_BAR + _GAP) - _GAP
    most = max((bar.value for bar in bars if bar.value is not None), default=0.0) or 1.0
    start = (slots - len(bars)) * (_BAR + _GAP) + _BAR // 2
    paths: dict[str, str] = {}
    ends: dict[str, tuple[int, int]] = {}
    for index, bar in enumerate(bars):
        size = round(height if bar.value is None else max(height * 0.3, height * bar.value / most))
        x, (end, top) = start + index * (_BAR + _GAP), ends.get(bar.state, (0, height))
        paths[bar.state] = paths.get(bar.state, f"M0 {height - top}") + f"m{x - end} {top}v-{size}"
        ends[bar.state] = x, size
    axis = _fill('<path d="M0 {}H{}" class="chart-axis"/>', height, width)
    parts = [_fill('<path d="{}" class="stroke-{}"/>', path, state) for state, path in paths.items()]
    return _svg(width, height, label, [axis, *parts], "outcome-bars")


class DayBar(NamedTuple):
    """A day: how many runs ended in each state, its tooltip, and where it leads."""

    counts: Mapping[str, int]
    title: str
    href: str | None = None


def day_strip(days: Sequence[DayBar], *, height: int = 40, label: str) -> Markup:
    """Return one bar for each day, the newest on the right: the shares of the states, failures on top."""
    width = len(days) * (_DAY + _GAP) - _GAP
    parts = []
    for index, day in enumerate(days):
        x, y, total = index * (_DAY + _GAP), 0.0, sum(day.counts.values())
        bars = []
        # A failed run among thousands is still visible.
        ordered = sorted(day.counts.items(), key=lambda each: _ORDER.get(each[0], 0))
        for state, count in ordered:
            size = height - y if state == ordered[-1][0] else max(3.0, height * count / total)
            bars.append(_rect(x, y, _DAY, max(0.0, min(size, height - y)), state, day.title))
            y = min(float(height), y + size)
        if not total:
            bars.append(_rect(x, height - 4, _DAY, 4, "none", day.title))
        drawn = Markup("").join(bars)
        parts.append(
            _fill('<a href="{}" aria-label="{}">{}</a>', day.href, day.title, drawn) if day.href else drawn
        )
    return _svg(width, height, label, parts, "day-strip")


def columns(
    values: Sequence[float], titles: Sequence[str], *, width: int = 640, height: int = 96, label: str
) -> Markup:
    """Return a column chart of one series; without tooltips, if there are no titles."""
    most = max(values, default=0.0) or 1.0
    step = width / max(1, len(values))
    if not titles:
        path = "".join(
            f"M{index * step:g} {height}v-{height * value / most:.0f}h{max(1.0, step - 1):g}V{height}"
            for index, value in enumerate(values)
            if value
        )
        return _svg(width, height, label, [_fill('<path d="{}" class="fill-series"/>', path)], "columns")
    parts = [
        _rect(index * step, height - size, max(1.0, step - 1), size, "series", title)
        for index, (value, title) in enumerate(zip(values, titles, strict=True))
        for size in [height * value / most]
        if value
    ]
    axis = _fill(
        '<line x1="0" x2="{}" y1="{}" y2="{}" class="chart-axis"/>', width, height - 0.5, height - 0.5
    )
    return _svg(width, height, label, [axis, *parts], "columns")


def minutes(values: Sequence[float], titles: Sequence[str], *, label: str) -> Markup:
    """Return the runs of an hour, a column for each minute.

    A column grows with the square root of its number: single runs stay visible beside a thousand.
    """
    width, height = 10 * len(values), 72
    most = max(values, default=0.0) or 1.0
    parts = [
        _fill('<line x1="{0}" x2="{0}" y1="0" y2="{1}" class="chart-grid"/>', x, height)
        for x in range(0, width + 1, 150)
    ]
    parts.append(
        _fill('<line x1="0" x2="{}" y1="{}" y2="{}" class="chart-axis"/>', width, height - 0.5, height - 0.5)
    )
    for index, (value, title) in enumerate(zip(values, titles, strict=True)):
        if value > 0:
            size = max(6.0, (height - 4) * (value / most) ** 0.5)
            parts.append(_rect(10 * index + 1, height - size, 8, size, "series", title))
    return _svg(width, height, label, parts, "minutes")


def _fill(template: str, *values: object) -> Markup:
    """Return markup with these values; text is escaped. `Markup.format` takes ten times as long.

    >>> _fill('<a href="{}">{:.1f}</a>', '"<', 1.25)
    Markup('<a href="&#34;&lt;">1.2</a>')
    """
    return Markup(
        template.format(*[each if isinstance(each, int | float) else str(escape(each)) for each in values])
    )


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str) -> Markup:
    # A list has a thousand of them: `html.escape` takes a third of the time of `_fill`.
    return Markup(
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5"'
        f' class="fill-{html.escape(fill)}"><title>{html.escape(title)}</title></rect>'
    )


def _svg(width: float, height: float, label: str, parts: Sequence[Markup], kind: str) -> Markup:
    return _fill(
        '<svg class="chart chart-{}" viewBox="0 0 {:g} {:g}" role="{}" aria-label="{}"'
        ' preserveAspectRatio="none">{}</svg>',
        kind,
        width,
        height,
        # What is in a picture is nothing that can be reached.
        "group" if any("<a " in part for part in parts) else "img",
        escape(label),
        Markup("").join(parts),
    )


class HeatCell(NamedTuple):
    """A cell of a heat map."""

    column: int
    row: int
    value: int
    #: `upcoming`, `past`, `gap` (an hour that does not exist) or `pending` (not known yet)
    kind: str
    #: what a screen reader and the tooltip say
    title: str
    href: str | None = None
    #: whether something went wrong in it
    marked: bool = False
    is_selected: bool = False
    #: the part of the column that it takes: 0 all, 1 the left half, 2 the right half
    part: int = 0


class HeatColumn(NamedTuple):
    """A column of a heat map: its heading, a sign behind it, and its tooltip."""

    text: str
    sign: str = ""
    title: str = ""
    is_current: bool = False


_HEAT_LEVELS: Final = 5
_HEAT_LEFT: Final = 44
_HEAT_TOP: Final = 28
_HEAT_WIDTH: Final = 96
_HEAT_HEIGHT: Final = 22


def heat_map(
    columns: Sequence[HeatColumn], rows: Sequence[str], cells: Sequence[HeatCell], *, label: str
) -> Markup:
    """Return a heat map. Each cell with an address is a link; the number in it says what the colour says.

    The tooltip of a link comes from its label when the pointer is on it (`static/calendar.js`).
    """
    width = _HEAT_LEFT + len(columns) * _HEAT_WIDTH
    height = _HEAT_TOP + len(rows) * _HEAT_HEIGHT
    most = max((cell.value for cell in cells), default=0)
    parts = [
        _fill(
            '<text x="{}" y="18" class="heat-heading{}">{}<title>{}</title></text>',
            _HEAT_LEFT + index * _HEAT_WIDTH + _HEAT_WIDTH // 2,
            " heat-current" if column.is_current else "",
            f"{column.text} {column.sign}".strip(),
            column.title or column.text,
        )
        for index, column in enumerate(columns)
    ]
    parts += [
        _fill(
            '<text x="{}" y="{}" class="heat-row">{}</text>',
            _HEAT_LEFT - 6,
            _HEAT_TOP + index * _HEAT_HEIGHT + 15,
            row,
        )
        for index, row in enumerate(rows)
    ]
    parts += [_heat_cell(cell, most) for cell in cells]
    return _fill(
        '<svg class="chart chart-heat" viewBox="0 0 {:g} {:g}" role="group" aria-label="{}">{}</svg>',
        width,
        height,
        label,
        Markup("").join(parts),
    )


def _heat_cell(cell: HeatCell, most: int) -> Markup:
    whole = _HEAT_WIDTH - 2
    width = whole if cell.part == 0 else whole / 2 - 1
    x = _HEAT_LEFT + cell.column * _HEAT_WIDTH + 1 + (whole / 2 + 1 if cell.part == 2 else 0)
    y = _HEAT_TOP + cell.row * _HEAT_HEIGHT + 1
    parts = [
        _fill(
            '<rect x="{:g}" y="{:g}" width="{:g}" height="{}" rx="3" class="heat-{} heat-{}{}"/>',
            x,
            y,
            width,
            _HEAT_HEIGHT - 2,
            cell.kind,
            heat_level(cell.value, most),
            " heat-selected" if cell.is_selected else "",
        )
    ]
    if cell.value:
        parts.append(
            _fill(
                '<text x="{:g}" y="{:g}" class="heat-value heat-on-{}">{}</text>',
                x + width / 2,
                y + 14,
                heat_level(cell.value, most),
                short_number(cell.value),
            )
        )
    if cell.marked:
        parts.append(_fill('<path d="M{:g} {:g}l7 0l-7 7z" class="heat-mark"/>', x + 1, y + 1))
    if cell.href is None:
        return _fill("<g>{}<title>{}</title></g>", Markup("").join(parts), cell.title)
    return _fill(
        '<a href="{}" aria-label="{}" data-column="{}" data-row="{}"{}>{}</a>',
        cell.href,
        cell.title,
        cell.column,
        cell.row,
        Markup(' aria-current="true"') if cell.is_selected else "",
        Markup("").join(parts),
    )


def heat_level(value: int, most: int) -> int:
    """Return the level of a value, 0 to 5, on a logarithmic scale.

    >>> [heat_level(value, 1_000) for value in (0, 1, 10, 100, 1_000)]
    [0, 1, 2, 4, 5]
    """
    if value <= 0:
        return 0
    return max(
        1, min(_HEAT_LEVELS, math.ceil(_HEAT_LEVELS * math.log1p(value) / math.log1p(max(value, most))))
    )


def short_number(value: int) -> str:
    """Return a number in a few characters.

    >>> short_number(999), short_number(1_340), short_number(24_000), short_number(3_400_000)
    ('999', '1.3k', '24k', '3.4M')
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return (
                f"{value / size:.1f}".removesuffix(".0") + unit
                if value < 10 * size
                else f"{value // size}{unit}"
            )
    return str(value)
