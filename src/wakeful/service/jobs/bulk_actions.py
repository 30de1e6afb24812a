"""Pause, resume, run or delete several jobs: the named ones, or those that a filter finds.

A job that cannot be changed is reported, and the others go on. Pauses are written in batches, each in one
transaction with its audit entries. Jobs that a filter finds change only between enabled and paused: a job
that is paused keeps its note and its end, and a job that is disabled for another reason stays disabled.

Each job is run or deleted in its own transaction, with its own audit entry, as by a request for that job. A
filter finds no internal jobs; it runs enabled ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from wakeful.engine.calendar_loader import load
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.auth.agent_policy import check_change, check_not_internal
from wakeful.service.jobs.job_query import JobSelection, select_jobs, without_payload
from wakeful.service.jobs.pauses import pause_change, pause_details, read_note, resume_change
from wakeful.service.jobs.run_origin import AgentCall
from wakeful.service.jobs.save_warnings import MOST_FOLLOWERS, no_upstream
from wakeful.service.jobs.triggers import JobTriggers
from wakeful.service.runs.manual_runs import read_mode, read_overlap, read_payload
from wakeful.store.accounts import AgentChanged
from wakeful.store.job_changes import end_pause
from wakeful.store.rows import JobChange, JobRow, RunView

#: How many jobs are changed in one transaction.
_BATCH: Final = 200
_TRIES: Final = 5
#: After so many decisions the event loop has its turn.
_AT_ONCE: Final = 50

Decision = Callable[[JobRow, JobContext], JobChange | None]

#: The most jobs that one request runs or deletes. A dry run selects more.
MAX_ACTIONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class JobError:
    """A job that could not be changed, and why."""

    job: JobRow
    error: WakefulError


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The jobs that were changed, or with `dry_run` would be; by agent and name."""

    jobs: Sequence[JobRow]
    #: how many jobs were selected and need no change
    unchanged: int
    errors: Sequence[JobError]
    dry_run: bool
    #: about jobs that come after deleted ones
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BulkRuns:
    """What running several jobs did, or with `dry_run` would do; by agent and name."""

    #: the jobs that were run, or would be
    jobs: Sequence[JobRow]
    runs: Sequence[RunView]
    #: with the mode `due`: jobs without a due tick
    not_due: Sequence[JobRow]
    errors: Sequence[JobError]
    dry_run: bool


class BulkActions(JobTriggers):
    """Pauses, resumes, runs and deletes several jobs."""

    async def pause_many(
        self,
        principal: Principal,
        workspace: str,
        selection: JobSelection,
        *,
        note: object = None,
        until: object = None,
        dry_run: bool = False,
    ) -> BulkResult:
        """Pause the selected jobs. `note` and `until` are as in `JobPauses.pause`."""
        text = read_note(note)

        def decide(row: JobRow, context: JobContext) -> JobChange | None:
            now_ms = self._store.clock.now_ms()
            if not selection.jobs and not end_pause(row, now_ms).enabled:
                return None
            return pause_change(row, now_ms, text, until, context.defaults.tz)

        details = pause_details(text, until)
        return await self._change_many(principal, "job.pause", workspace, selection, decide, details, dry_run)

    async def resume_many(
        self, principal: Principal, workspace: str, selection: JobSelection, *, dry_run: bool = False
    ) -> BulkResult:
        """Resume the selected jobs, from now."""

        def decide(row: JobRow, context: JobContext) -> JobChange | None:
            if not selection.jobs and row.disabled_reason != "paused":
                return None
            return resume_change(row, context, self._store.clock.now_ms())

        return await self._change_many(principal, "job.resume", workspace, selection, decide, "{}", dry_run)

    async def _change_many(
        self,
        principal: Principal,
        action: str,
        workspace: str,
        selection: JobSelection,
        decide: Decision,
        details: str,
        dry_run: bool,
    ) -> BulkResult:
        await self._accounts.authorize(principal, "job.write", workspace, selection.agent)
        rows = await select_jobs(self._store, self._accounts, principal, workspace, selection)
        changed: list[JobRow] = []
        errors: dict[str, JobError] = {}
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            await load([row.timing for row in batch], self._store.clock.now_ms())
            call = await self._origins.call(principal, workspace, batch[0].agent)
            bounded = decide if call is None else partial(_within_bounds, call, decide)
            if dry_run:
                changed += await self._preview_changes(principal, batch, bounded, errors)
            else:
                changed += await self._write_changes(principal, action, batch, bounded, details, errors, call)
        order = {row.id: number for number, row in enumerate(rows)}
        changed.sort(key=lambda row: order[row.id])
        return BulkResult(
            changed,
            len(rows) - len(changed) - len(errors),
            list(errors.values()),
            dry_run,
        )

    async def _write_changes(
        self,
        principal: Principal,
        action: str,
        batch: Sequence[JobRow],
        decide: Decision,
        details: str,
        errors: dict[str, JobError],
        call: AgentCall | None,
    ) -> list[JobRow]:
        workspace = batch[0].workspace
        for tries in range(_TRIES, 0, -1):
            contexts = await self._contexts(batch)
            try:
                changed = await self._store.change_jobs(
                    [row.id for row in batch],
                    lambda row, contexts=contexts: _decide_job(principal, row, contexts, decide, errors),  # type: ignore[misc]
                    lambda row: principal.entry(workspace, action, f"{row.agent}/{row.name}", details),
                    {(workspace, agent): context.inherited for agent, context in contexts.items()},
                    call.charge if call else None,
                )
                return [without_payload(row) for row in changed]
            except AgentChanged:
                if tries == 1:
                    raise
                for agent in contexts:
                    self._accounts.forget(workspace, agent)
        raise AssertionError

    async def _preview_changes(
        self,
        principal: Principal,
        batch: Sequence[JobRow],
        decide: Decision,
        errors: dict[str, JobError],
    ) -> list[JobRow]:
        contexts = await self._contexts(batch)
        changed: list[JobRow] = []
        for number, row in enumerate(batch, 1):
            decision = _decide_job(principal, row, contexts, decide, errors)
            if decision is not None:
                changed.append(decision.job)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return changed

    async def _contexts(self, batch: Sequence[JobRow]) -> dict[str, JobContext]:
        workspace, agents = batch[0].workspace, sorted({row.agent for row in batch})
        return {agent: await self._accounts.context(workspace, agent) for agent in agents}

    async def run_many(
        self,
        principal: Principal,
        workspace: str,
        selection: JobSelection,
        *,
        mode: object = "force",
        payload: object = None,
        overlap: object = None,
        dry_run: bool = False,
    ) -> BulkRuns:
        """Run the selected jobs now. The arguments are as in `JobTriggers.trigger`."""
        read_mode(mode), read_overlap(overlap)
        read_payload(payload, self._accounts.defaults.max_payload_bytes)
        await self._accounts.authorize(principal, "run", workspace, selection.agent)
        rows = await select_jobs(self._store, self._accounts, principal, workspace, selection)
        if not selection.jobs:
            rows = [row for row in rows if row.enabled]
        if dry_run:
            return BulkRuns(rows, [], [], [], dry_run=True)
        _check_number(rows)
        jobs: list[JobRow] = []
        runs: list[RunView] = []
        not_due: list[JobRow] = []
        errors: list[JobError] = []
        for row in rows:
            try:
                run = await self.trigger(
                    principal, workspace, row.agent, row.id, mode=mode, payload=payload, overlap=overlap
                )
            except WakefulError as error:
                errors.append(JobError(row, error))
                continue
            if run is None:
                not_due.append(row)
            else:
                jobs.append(row)
                runs.append(run)
        return BulkRuns(jobs, runs, not_due, errors, dry_run=False)

    async def delete_many(
        self, principal: Principal, workspace: str, selection: JobSelection, *, dry_run: bool = False
    ) -> BulkResult:
        """Delete the selected jobs, as by `JobEditor.delete`. The warnings name jobs that are left."""
        await self._accounts.authorize(principal, "job.write", workspace, selection.agent)
        rows = await select_jobs(self._store, self._accounts, principal, workspace, selection)
        if dry_run:
            return BulkResult(rows, 0, [], dry_run=True)
        _check_number(rows)
        deleted: list[JobRow] = []
        followed: list[JobRow] = []
        errors: list[JobError] = []
        for row in rows:
            try:
                if await self.delete(principal, workspace, row.agent, row.id):
                    followed.append(row)
                deleted.append(row)
            except WakefulError as error:
                errors.append(JobError(row, error))
        warnings = [
            no_upstream(follower, row.name)
            for row in followed  # some of the followers may be deleted now
            for follower in await self._store.followers(workspace, row.agent, row.name, MOST_FOLLOWERS)
        ]
        return BulkResult(deleted, 0, errors, dry_run=False, warnings=warnings[:MOST_FOLLOWERS])


def _within_bounds(call: AgentCall, decide: Decision, row: JobRow, context: JobContext) -> JobChange | None:
    return call.apply(row, decide(row, context), context)


def _decide_job(
    principal: Principal,
    row: JobRow,
    contexts: dict[str, JobContext],
    decide: Decision,
    errors: dict[str, JobError],
) -> JobChange | None:
    """Return what becomes of a job; None if nothing, or if it is refused: then `errors` says why."""
    errors.pop(row.id, None)  # a transaction may be repeated
    try:
        change = decide(row, contexts[row.agent])
        if change is not None:
            check_not_internal(principal, row.name)
            check_change(principal, row)
        return change
    except WakefulError as error:
        errors[row.id] = JobError(without_payload(row), error)
        return None


def _check_number(rows: Sequence[JobRow]) -> None:
    if len(rows) > MAX_ACTIONS:
        raise InvalidArgument(
            f"{len(rows)} jobs are selected, and one request takes at most {MAX_ACTIONS}; send their ids in "
            "several requests: a dry run returns them"
        )
