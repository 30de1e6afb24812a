"""The parameters of a method. An invalid parameter is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wakeful.document.values import whole_number
from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal

#: The form of ids and names; anything else is refused before it reaches the database.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Params:
    """The parameters of a request. Workspace and agent default to those of the caller."""

    def __init__(self, principal: Principal, given: Mapping[str, object]) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.workspace = self.name("workspace") or principal.workspace or "default"
        #: the agent of the request
        self.agent = self.name("agentId")
        #: the agent of the request, or the default
        self.agent_or_default = self.agent or principal.agent or "default"

    def only(self, *names: str) -> None:
        """Raise InvalidArgument for unknown parameters."""
        known = (*names, "agentId", "workspace")
        for name in self.given:
            if name not in known:
                raise InvalidArgument(
                    f"{name[:64]}: there is no such parameter; there are {', '.join(known)}"
                )

    def name(self, name: str) -> str | None:
        """Return a name or an id, or None."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise InvalidArgument(f"{name}: give a name or an id: letters, digits and hyphens")
        return value

    def job(self) -> str:
        """Return the job of the request: its id or its name."""
        job = self.name("jobId")
        if job is None:
            raise InvalidArgument("jobId: write the id of the job, or its name with the agentId")
        return job

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean."""
        value = self.given.get(name, default)
        if not isinstance(value, bool):
            raise InvalidArgument(f"{name}: write true or false")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = whole_number(self.given.get(name, default))
        if value is None or not low <= value <= high:
            raise InvalidArgument(f"{name}: give a whole number from {low} to {high}")
        return value

    def object(self, name: str) -> dict[str, object]:
        """Return a JSON object."""
        value = self.given.get(name)
        if not isinstance(value, dict):
            raise InvalidArgument(f"{name}: give a JSON object")
        return value

    def words(self, name: str) -> list[str]:
        """Return a list of text; a single text is a list of one."""
        value = self.given.get(name, [])
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InvalidArgument(f"{name}: give a list of text")
        return words
