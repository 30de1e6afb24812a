"""The job by which an agent looks around by itself: one for each agent whose document has a `heartbeat`.

It is a job like any other: it goes where its agent's jobs go, its runs can be seen, and people may pause it
and run it by hand. It comes, changes and goes with the agent's document; to keys of the role `agent` it is
there to be read.
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
    """What a document says of it: `text` is what is kept with the agent, `job` the document of its job."""

    text: str | None = None
    job: Mapping[str, Json] | None = None


NO_HEARTBEAT: Final = Heartbeat()


class Heartbeats:
    """Makes, changes and deletes the jobs that are heartbeats."""

    def __init__(self, store: Store, jobs: JobService) -> None:
        self._store = store
        #: they charge nobody: what Wakeful makes for itself counts towards no limit
        self._jobs = jobs

    def read(self, value: object, tz: str | None, channel: str | None) -> Heartbeat:
        """The `heartbeat` of a document, judged by itself; `tz` and `channel` are its agent's."""
        try:
            beat = heartbeat(value)
        except InvalidArgument as error:
            raise _refused(error) from error
        if beat is None:
            return NO_HEARTBEAT
        about: dict[str, Json] = {"description": "Lets its agent look around by itself.", "labels": _LABELS}
        return Heartbeat(compact(beat), {"name": HEARTBEAT, **heartbeat_job(beat, tz, channel), **about})

    async def check(self, principal: Principal, workspace: str, agent: str, beat: Heartbeat) -> None:
        """Refuse what could not be followed, before anything is written."""
        if beat.job is None:
            return
        row = await self._store.job(workspace, agent, HEARTBEAT)
        if row is not None and not self.owns(row):
            raise InvalidArgument(
                f"heartbeat: agent '{agent}' has a job '{HEARTBEAT}' that is not Wakeful's own; "
                "delete or rename it"
            )
        await self._save(principal, workspace, agent, beat.job, dry_run=True)

    async def follow(self, principal: Principal, workspace: str, agent: str, beat: Heartbeat) -> None:
        """Have the job that this heartbeat is, or none; it has been checked.

        The same again changes nothing: not a pause, nor the next tick.
        """
        if beat.job is not None:
            await self._save(principal, workspace, agent, beat.job)
            return
        row = await self._store.job(workspace, agent, HEARTBEAT)
        if row is not None and self.owns(row):
            with contextlib.suppress(NotFound):  # somebody says the same at this moment
                await self._jobs.delete(principal, workspace, agent, HEARTBEAT)

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Whether a job is a heartbeat, and not somebody's own."""
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
