"""Targets as people write them in Python. In JSON they are objects with a `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wakeful.job import Json


@dataclass(frozen=True, slots=True)
class Webhook:
    """A signed POST to a URL.

    >>> Webhook("https://example.com/wake").to_json()
    {'kind': 'webhook', 'url': 'https://example.com/wake'}
    """

    url: str
    headers: Mapping[str, str] | None = None
    #: `callback`: the run stays running until somebody completes it
    completion: Literal["callback"] | None = None

    def to_json(self) -> dict[str, Json]:
        """The target as a job document has it."""
        target: dict[str, Json] = {"kind": "webhook", "url": self.url}
        if self.headers:
            target["headers"] = dict(self.headers)
        if self.completion:
            target["completion"] = self.completion
        return target


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function that is registered under this name in the process that runs it."""

    name: str

    def to_json(self) -> dict[str, Json]:
        """The target as a job document has it."""
        return {"kind": "function", "name": self.name}


Target = Webhook | Function
