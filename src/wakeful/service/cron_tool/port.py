"""The scheduler that the tool calls: in this process, or over the HTTP API of a server.

Jobs and runs are JSON as in every interface (`service/serializers.py`). Errors are those of the services.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wakeful.signal.signals import Signal
from wakeful.values.json_value import Json

JsonObject = dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallContext:
    """The time, zone and agent of a call."""

    now_ms: int
    #: the zone of schedules that name none
    tz: str
    #: the agent of the jobs, unless the call names another
    agent: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call, as text and as JSON."""

    text: str
    content: JsonObject
    is_error: bool = False


class Scheduler(Protocol):
    """The operations of the tool, for one caller."""

    async def context(self, agent: str | None) -> CallContext:
        """Return the time, the zone and the agent; `agent` is the one that the call names."""
        ...

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Create a job; the result has its secret if there is a new one."""
        ...

    async def dry_run(self, agent: str, document: Mapping[str, Json]) -> None:
        """Raise the errors of a document, and change nothing."""
        ...

    async def update(self, agent: str, name: str, patch: Mapping[str, Json]) -> JsonObject:
        """Change the fields of the patch."""
        ...

    async def get(self, agent: str, name: str) -> JsonObject:
        """Return the job with its next ticks, or raise NotFound."""
        ...

    async def find_by_id(self, job_id: str) -> tuple[str, str]:
        """Return the agent and the name of the job with that id, or raise NotFound."""
        ...

    async def jobs(
        self, agent: str, include_disabled: bool, after: str | None, limit: int
    ) -> Sequence[JsonObject]:
        """List the jobs of an agent by name, after that name."""
        ...

    async def pause(self, agent: str, name: str, note: Json, until: Json) -> JsonObject:
        """Pause a job, with an optional note and end."""
        ...

    async def resume(self, agent: str, name: str) -> JsonObject:
        """Resume a job."""
        ...

    async def delete(self, agent: str, name: str) -> Sequence[str]:
        """Delete a job, or raise NotFound. Returns warnings."""
        ...

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run a job now; None: with mode `due`, no tick is due."""
        ...

    async def runs(self, agent: str, job_id: str | None, limit: int) -> Sequence[JsonObject]:
        """List the runs of an agent or of one job, newest first."""
        ...

    async def instances(self, agent: str, after: str | None, limit: int) -> Sequence[JsonObject]:
        """List the instances of an agent by id, after that id."""
        ...

    async def instance(self, agent: str, id: str) -> JsonObject:
        """Return an instance with its schedules, and its state if the caller may see it; or NotFound."""
        ...

    async def send(self, agent: str, id: str, signal: Signal) -> JsonObject:
        """Send a signal to an instance; return its run, with `duplicate`."""
        ...

    async def status(self) -> JsonObject:
        """Return the status of the server and the workspace."""
        ...
