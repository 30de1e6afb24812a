"""Run or delete several jobs: the named ones, or those that a filter finds.

Each job is run or deleted in its own transaction, with its own audit entry, as by a request for that job. A
job that cannot be is reported, and the others go on. A filter finds no internal jobs; it runs enabled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wakeful.errors import InvalidArgument, WakefulError
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.bulk_pauses import BulkResult, JobError
from wakeful.service.jobs.chains import MOST_FOLLOWERS, no_upstream
from wakeful.service.jobs.job_editor import JobEditor
from wakeful.service.jobs.job_selection import JobSelection, selected_jobs
from wakeful.service.jobs.triggers import JobTriggers
from wakeful.service.runs.manual_runs import read_mode, read_overlap, read_payload
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunView

#: The most jobs that one request runs or deletes. A dry run selects more.
MAX_ACTIONS: Final = 1_000


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


class BulkActions:
    """Runs and deletes several jobs."""

    def __init__(self, store: Store, accounts: Accounts, triggers: JobTriggers, editor: JobEditor) -> None:
        self._store = store
        self._accounts = accounts
        self._triggers = triggers
        self._editor = editor

    async def run(
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
        rows = await selected_jobs(self._store, self._accounts, principal, workspace, selection)
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
                run = await self._triggers.trigger(
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

    async def delete(
        self, principal: Principal, workspace: str, selection: JobSelection, *, dry_run: bool = False
    ) -> BulkResult:
        """Delete the selected jobs, as by `JobEditor.delete`. The warnings name jobs that are left."""
        await self._accounts.authorize(principal, "job.write", workspace, selection.agent)
        rows = await selected_jobs(self._store, self._accounts, principal, workspace, selection)
        if dry_run:
            return BulkResult(rows, 0, [], dry_run=True)
        _check_number(rows)
        deleted: list[JobRow] = []
        followed: list[JobRow] = []
        errors: list[JobError] = []
        for row in rows:
            try:
                if await self._editor.delete(principal, workspace, row.agent, row.id):
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


def _check_number(rows: Sequence[JobRow]) -> None:
    if len(rows) > MAX_ACTIONS:
        raise InvalidArgument(
            f"{len(rows)} jobs are selected, and one request takes at most {MAX_ACTIONS}; send their ids in "
            "several requests: a dry run returns them"
        )
