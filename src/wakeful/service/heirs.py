"""What jobs have from their agent: a target, where they have none of their own, and whether they may fire."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wakeful.engine.targets import Targets
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job import Job, inherit
from wakeful.launch.secrets import Keyring, new_secret
from wakeful.logs import get_logger
from wakeful.service.directory import Directory, Home
from wakeful.service.editing import cut_off, moved, paused, resumed
from wakeful.service.making import INACTIVE, needs_secret
from wakeful.store.port import Store
from wakeful.store.records import changed_row, job_of
from wakeful.store.rows import JobChange, JobFilter, JobRow

_PAGE: Final = 500

log = get_logger("wakeful.service")


class Heirs:
    """Brings an agent's jobs up to date with the agent."""

    def __init__(self, store: Store, directory: Directory, targets: Targets, keyring: Keyring) -> None:
        self._store = store
        self._directory = directory
        self._targets = targets
        self._keyring = keyring

    async def follow(self, workspace: str, agent: str) -> int:
        """Give its jobs what they inherit now; the others are left alone. How many changed."""
        home = await self._directory.home(workspace, agent)
        changed, after = 0, None
        while True:
            rows = await self._store.jobs(JobFilter(workspace, agent, after=after, limit=_PAGE))
            for row in rows:
                try:
                    stale = self._changed(row, home) is not None
                    if stale:
                        await self._store.change_job(row.id, lambda now: self._changed(now, home))
                    changed += stale
                except (InvalidArgument, FailedPrecondition) as error:
                    # A job that cannot be read, or has no tick left: its siblings follow all the same.
                    log.warning("job.left_behind", job=row.name, agent=agent, error=error.message)
            if len(rows) < _PAGE:
                return changed
            after = agent, rows[-1].name

    def _changed(self, row: JobRow, home: Home) -> JobChange | None:
        old, now_ms = job_of(row), self._store.clock.now_ms()
        job = heir(old, home)
        stopped = old.enabled and not home.active
        if stopped:
            job = replace(paused(job, now_ms), disabled_reason=INACTIVE)
        elif home.active and old.disabled_reason == INACTIVE:
            job = resumed(job, now_ms)
        changed = changed_row(row, job)
        if changed == row:
            return None
        if row.secret is None and needs_secret(job.definition):
            changed = changed._replace(secret=self._keyring.seal(new_secret()))
        changed = changed._replace(updated_ms=now_ms)
        change = JobChange(changed, move=moved(old, job))
        if stopped:
            return change._replace(withdraw=INACTIVE, born=cut_off(row, now_ms, "paused"))
        return change


def heir(job: Job, home: Home) -> Job:
    """The job with the target that it has from its agent, if it has none of its own."""
    definition = job.definition
    return replace(job, definition=replace(definition, work=inherit(definition.work, home.target)))
