"""The heartbeat: an internal job that wakes an agent at intervals, if its document has a `heartbeat`.

It is an ordinary job with the target of the agent: its runs are listed, and people may pause and run it. It
is created, changed and deleted with the agent's document. Keys of the role `agent` may only read it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wakeful.document.heartbeats import heartbeat, heartbeat_job
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, NotFound
from wakeful.job import Json
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.jobs import JobService
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS

_LABELS: Final[dict[str, Json]] = json.loads(HEARTBEAT_LABELS)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of a document: `text` is stored with the agent, `job` is the document of its job."""

    text: str | None = None
    job: Mapping[str, Json] | None = None


NO_HEARTBEAT: Final = Heartbeat()


class Heartbeats:
    """Creates, changes and deletes heartbeat jobs."""

    def __init__(self, store: Store, jobs: JobService) -> None:
        self._store = store
        #: without quotas: internal jobs count towards no limit
        self._jobs = jobs

    def read(self, value: object, tz: str | None, channel: str | None) -> Heartbeat:
        """Read the `heartbeat` of a document; `tz` and `channel` are those of its agent."""
        try:
            beat = heartbeat(value)
        except InvalidArgument as error:
            raise _refused(error) from error
        if beat is None:
            return NO_HEARTBEAT
        about: dict[str, Json] = {"description": "Lets its agent look around by itself.", "labels": _LABELS}
        return Heartbeat(compact(beat), {"name": HEARTBEAT, **heartbeat_job(beat, tz, channel), **about})

    async def check(self, principal: Principal, workspace: str, agent: str, beat: Heartbeat) -> None:
        """Raise InvalidArgument if the job could not be saved. Nothing is written."""
        if beat.job is None:
            return
        row = await self._store.job(workspace, agent, HEARTBEAT)
        if row is not None and not self.owns(row):
            raise InvalidArgument(
                f"heartbeat: agent '{agent}' has a job '{HEARTBEAT}' that is not a heartbeat; "
                "delete or rename it"
            )
        await self._save(principal, workspace, agent, beat.job, dry_run=True)

    async def sync(self, principal: Principal, workspace: str, agent: str, beat: Heartbeat) -> None:
        """Create, change or delete the heartbeat job to match.

        The same heartbeat again changes nothing: not the pause, nor the next tick.
        """
        if beat.job is not None:
            await self._save(principal, workspace, agent, beat.job)
            return
        row = await self._store.job(workspace, agent, HEARTBEAT)
        if row is not None and self.owns(row):
            with contextlib.suppress(NotFound):  # deleted concurrently
                await self._jobs.delete(principal, workspace, agent, HEARTBEAT)

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Return whether a job is a heartbeat, and not a user's job of that name."""
        return row.name == HEARTBEAT and row.labels == HEARTBEAT_LABELS

    async def _save(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        job: Mapping[str, Json],
        *,
        dry_run: bool = False,
    ) -> None:
        try:
            await self._jobs.upsert(principal, workspace, agent, job, dry_run=dry_run)
        except InvalidArgument as error:
            raise _refused(error) from error


def _refused(error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument("\n".join(f"heartbeat: {line}" for line in error.message.splitlines()))
