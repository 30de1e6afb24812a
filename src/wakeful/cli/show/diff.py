"""The changes that `apply` makes, and how they are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.show.tables import compact, escaped
from wakeful.values.json_value import Json

Kind = Literal["created", "changed", "unchanged", "removed"]

_MARKS: Final[dict[Kind, tuple[str, str]]] = {
    "created": ("+", "green"),
    "changed": ("~", "yellow"),
    "unchanged": ("=", "dim"),
    "removed": ("-", "red"),
}


@dataclass(frozen=True, slots=True)
class JobChange:
    """The change to one job, and its changed fields as (old, new)."""

    kind: Kind
    agent: str
    name: str
    document: dict[str, Json] = field(default_factory=dict)
    fields: dict[str, tuple[Json, Json]] = field(default_factory=dict)


def diff(changes: Sequence[JobChange], *, dry_run: bool) -> Iterator[RenderableType]:
    """Yield a line for each job, a line for each changed field, and the totals."""
    for change in changes:
        mark, colour = _MARKS[change.kind]
        agent = "" if change.agent == "default" else f"{change.agent}/"
        yield Text(f"{mark} {agent}{change.name}", colour).append(f"  {change.kind}", "dim")
        yield from field_lines(change.fields)
    counts = Counter(change.kind for change in changes)
    totals = ", ".join(f"{counts[kind]} {kind}" for kind in _MARKS)
    yield Text(totals + (" (dry run)" if dry_run else ""), "bold")


def field_lines(fields: Mapping[str, tuple[Json, Json]]) -> Iterator[RenderableType]:
    """Yield a line for each changed field, with its old and new value."""
    for name, (old, new) in fields.items():
        line = Text(f"    {name}: ").append(_shown(old), "red").append(" → ")
        yield line.append(_shown(new), "green")


def _shown(value: Json) -> str:
    text = escaped(compact(value)).plain
    return text if len(text) <= 120 else text[:119] + "…"
