"""What becomes of a job when a file is applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from wakeful.job import Json

Kind = Literal["created", "changed", "unchanged", "removed"]


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one job, and which of its fields are others afterwards: (old, new)."""

    kind: Kind
    agent: str
    name: str
    document: dict[str, Json] = field(default_factory=dict)
    fields: dict[str, tuple[Json, Json]] = field(default_factory=dict)
