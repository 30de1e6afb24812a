"""What a file changes, as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.changes import Change, Kind
from wakeful.cli.show.tables import compact, harmless
from wakeful.job import Json

_MARKS: Final[dict[Kind, tuple[str, str]]] = {
    "created": ("+", "green"),
    "changed": ("~", "yellow"),
    "unchanged": ("=", "dim"),
    "removed": ("-", "red"),
}


def diff(changes: Sequence[Change], *, dry_run: bool) -> Iterator[RenderableType]:
    """A line for each job, a line for each of its fields that is another, and what it all comes to."""
    for change in changes:
        mark, colour = _MARKS[change.kind]
        whose = "" if change.agent == "default" else f"{change.agent}/"
        yield Text(f"{mark} {whose}{change.name}", colour).append(f"  {change.kind}", "dim")
        for name, (old, new) in change.fields.items():
            line = Text(f"    {name}: ").append(_shown(old), "red").append(" → ")
            yield line.append(_shown(new), "green")
    counts = Counter(change.kind for change in changes)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in _MARKS)
    yield Text(told + (" if it were applied" if dry_run else ""), "bold")


def _shown(value: Json) -> str:

    text = harmless(compact(value)).plain
    return text if len(text) <= 120 else text[:119] + "…"
