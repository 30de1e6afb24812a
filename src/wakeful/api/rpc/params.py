"""The parameters of a method, one by one. What cannot be right is refused, by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wakeful.document.values import whole_number
from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal

#: Ids and names of ours; anything else is refused before a database sees it.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Params:
    """What a request brings, and what it leaves open: the workspace and the agent of whoever asks."""

    def __init__(self, principal: Principal, given: Mapping[str, object]) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.workspace = self.name("workspace") or principal.workspace or "default"
        #: the agent that was named
        self.agent = self.name("agentId")
        #: the agent that is meant where one is needed
        self.home = self.agent or principal.agent or "default"

    def only(self, *names: str) -> None:
        """Refuse what nobody reads: it is a mistake, more often than not."""
        known = (*names, "agentId", "workspace")
        for name in self.given:
            if name not in known:
                there_are = ", ".join(known)
                raise InvalidArgument(f"{name[:64]}: there is no such parameter; there are {there_are}")

    def name(self, name: str) -> str | None:
        """A name or an id."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise InvalidArgument(f"{name}: give a name or an id: letters, digits and hyphens")
        return value

    def job(self) -> str:
        """The job that it is about: its id, or its name."""
        job = self.name("jobId")
        if job is None:
            raise InvalidArgument("jobId: say which job: its id, or its name with the agentId")
        return job

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self.given.get(name, default)
        if not isinstance(value, bool):
            raise InvalidArgument(f"{name}: write true or false")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number within limits, both included."""
        value = whole_number(self.given.get(name, default))
        if value is None or not low <= value <= high:
            raise InvalidArgument(f"{name}: give a whole number from {low} to {high}")
        return value

    def object(self, name: str) -> dict[str, object]:
        """A JSON object."""
        value = self.given.get(name)
        if not isinstance(value, dict):
            raise InvalidArgument(f"{name}: give a JSON object")
        return value

    def words(self, name: str) -> list[str]:
        """A list of text; one may stand alone."""
        value = self.given.get(name, [])
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InvalidArgument(f"{name}: give a list of text")
        return words
