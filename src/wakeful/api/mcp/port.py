"""What the tool asks of a scheduler, wherever that is: in this process, or behind a server's HTTP.

Jobs and runs are told as every face tells them (`service/shapes.py`); what is refused is raised, in the
service layer's own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wakeful.job import Json

JsonObject = dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallContext:
    """Who asks, and what holds for them now."""

    now_ms: int
    #: the zone of schedules that name none
    tz: str
    #: whose jobs they are, unless another agent is named
    agent: str


class Scheduler(Protocol):
    """The use cases behind the tool, as one caller may use them."""

    async def standing(self, agent: str | None) -> CallContext:
        """The time, the zone and the agent; `agent` is the one that was named."""
        ...

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Add a job; its secret is in what comes back, where one was made."""
        ...

    async def check(self, agent: str, document: Mapping[str, Json]) -> None:
        """Raise what is wrong with a document, and change nothing."""
        ...

    async def update(self, agent: str, name: str, patch: Mapping[str, Json]) -> JsonObject:
        """Change the fields that are named."""
        ...

    async def get(self, agent: str, name: str) -> JsonObject:
        """The job with its next ticks, or NotFound."""
        ...

    async def place_of(self, job_id: str) -> tuple[str, str]:
        """The agent and the name of the job of that id, or NotFound."""
        ...

    async def jobs(
        self, agent: str, include_disabled: bool, after: str | None, limit: int
    ) -> Sequence[JsonObject]:
        """Its jobs, by name, from after that one on."""
        ...

    async def pause(self, agent: str, name: str, note: Json, until: Json) -> JsonObject:
        """Stop its ticks, with a note and up to an instant where they are given."""
        ...

    async def resume(self, agent: str, name: str) -> JsonObject:
        """Start its ticks again, from now."""
        ...

    async def delete(self, agent: str, name: str) -> None:
        """Delete a job, or NotFound."""
        ...

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run it now; None: by the mode `due`, it is not due."""
        ...

    async def runs(self, agent: str, job_id: str | None, limit: int) -> Sequence[JsonObject]:
        """Its runs, or those of one job, newest first."""
        ...

    async def status(self) -> JsonObject:
        """How the server is, and what there is in the workspace."""
        ...
