"""All that is known of one run: its attempts with requests, its job, what it waits for, and what follows."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from wakeful.document import work_from_text
from wakeful.errors import InvalidArgument, NotFound
from wakeful.job.job import JobRecord, Json
from wakeful.run.failure_cause import failure_cause
from wakeful.service.auth.access import Principal
from wakeful.service.runs.failure_advice import failure_advice
from wakeful.service.runs.run_finder import RunFinder
from wakeful.service.runs.run_requests import AttemptRequest, attempt_request, payload_of
from wakeful.service.runs.runs import RunService
from wakeful.service.runs.waiting import WaitingReasons
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import AttemptView, RunView
from wakeful.store.verifications import VerificationView
from wakeful.values.ids import is_id

#: The target of a job that has none.
PULL: Final[dict[str, Json]] = {"kind": "pull"}


class AttemptDetails(NamedTuple):
    """An attempt with its request and, if it failed, the cause and what to do."""

    attempt: AttemptView
    #: None: the job is not known any more, or cannot be read
    request: AttemptRequest | None
    #: whether it is the last one, whose output is that of the run
    last: bool
    cause: str | None
    advice: str | None


class RunDetails(NamedTuple):
    """A run and what belongs to it."""

    run: RunView
    #: its job as it is now; None: it has none, or it cannot be read
    job: JobRecord | None
    #: whether the job was deleted
    job_deleted: bool
    attempts: list[AttemptDetails]
    #: what it waits for, in words; None: it is over
    waiting: str | None
    verification: VerificationView | None
    #: the run that triggered it
    cause: RunView | None
    #: the run that it replays
    replay_of: RunView | None
    follow_ups: list[RunView]


class RunDetailReader:
    """Reads the details of runs."""

    def __init__(self, store: Store, runs: RunService, finder: RunFinder, waiting: WaitingReasons) -> None:
        self._store = store
        self._runs = runs
        self._finder = finder
        self._waiting = waiting

    async def get(self, principal: Principal, workspace: str, run_id: str) -> RunDetails:
        """Return the run of that id with its details, or raise NotFound."""
        run = await self._runs.get(principal, workspace, run_id)
        row = await self._store.job_by_id(run.job_id) if run.job_id else None
        alive = row is not None
        if run.job_id is not None and row is None:
            row = await self._store.job_by_id(run.job_id, deleted=True)
        job, work = None, None
        if row is not None:
            with contextlib.suppress(InvalidArgument):  # the page of the job reports it
                job, work = job_of(row), work_from_text(row.work)
        payload = payload_of(run, work, None if row is None else row.payload)
        attempts = await self._runs.attempts(principal, workspace, run_id)
        return RunDetails(
            run,
            job,
            run.job_id is not None and not alive,
            [
                _details(
                    run,
                    each,
                    None if work is None else attempt_request(run, each, work.target or PULL, payload),
                )
                for each in attempts
            ],
            await self._waiting.of(run),
            await self._store.verification(run.id) if run.verifying else None,
            await self._visible(principal, workspace, run.triggered_by),
            await self._visible(principal, workspace, run.replay_of),
            await self._finder.follow_ups(principal, workspace, run.id),
        )

    async def _visible(self, principal: Principal, workspace: str, run_id: str | None) -> RunView | None:
        if run_id is None or not is_id(run_id):
            return None
        try:
            return await self._runs.get(principal, workspace, run_id)
        except NotFound:
            return None


def _details(run: RunView, attempt: AttemptView, request: AttemptRequest | None) -> AttemptDetails:
    last = attempt.attempt == run.attempt and run.state not in ("pending",)
    failed = attempt.error is not None and (not last or run.state in ("failed", "retrying"))
    # The reason of an earlier attempt is not kept.
    reason = run.reason if last else "http" if attempt.response_code is not None else None
    return AttemptDetails(
        attempt,
        request,
        last,
        failure_cause(reason, attempt.response_code, attempt.error) if failed else None,
        failure_advice(reason, attempt.response_code) if failed else None,
    )
