"""Targets in Python. In JSON they are objects with a `kind`."""

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
    #: `callback`: the run stays running until a request completes it
    completion: Literal["callback"] | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        target: dict[str, Json] = {"kind": "webhook", "url": self.url}
        if self.headers:
            target["headers"] = dict(self.headers)
        if self.completion:
            target["completion"] = self.completion
        return target


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function that is registered under this name in the process."""

    name: str

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        return {"kind": "function", "name": self.name}


@dataclass(frozen=True, slots=True, init=False)
class Command:
    """A program that the server runs without a shell; the operator must allow it.

    >>> Command("/usr/local/bin/report", "--daily").to_json()
    {'kind': 'command', 'argv': ['/usr/local/bin/report', '--daily']}
    """

    argv: tuple[str, ...]
    #: variables that are added to its environment
    env: Mapping[str, str] | None
    #: its working directory, as an absolute path
    cwd: str | None

    def __init__(self, *argv: str, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        object.__setattr__(self, "argv", argv)
        object.__setattr__(self, "env", env)
        object.__setattr__(self, "cwd", cwd)

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        target: dict[str, Json] = {"kind": "command", "argv": list(self.argv)}
        if self.env:
            target["env"] = dict(self.env)
        if self.cwd:
            target["cwd"] = self.cwd
        return target


@dataclass(frozen=True, slots=True)
class Echo:
    """No work: each run succeeds at once, and its output is its message or payload. To try out schedules.

    >>> Echo().to_json()
    {'kind': 'echo'}
    """

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        return {"kind": "echo"}


Target = Webhook | Function | Command | Echo
