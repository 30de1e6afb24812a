"""Conversion between jobs and their rows, and from new runs to stored ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Final

from wakeful.document import (
    payload_from_text,
    payload_to_text,
    policy_from_text,
    policy_to_text,
    timing_from_text,
    timing_to_text,
    work_from_text,
    work_to_text,
)
from wakeful.job.job import Chain, ChainOn, Definition, JobRecord, ScheduleKey, ScheduleOrigin
from wakeful.run.run import NewRun, RunDetails
from wakeful.store.rows import JobRow, RunView

#: the fields that a job and its row have under the same name, and those that a new run and a stored one have
_OF_JOB: Final = tuple(field.name for field in fields(JobRecord) if field.name in JobRow._fields)
_OF_RUN: Final = tuple(name for name in NewRun._fields if name in RunView._fields)
_OF_DETAILS: Final = tuple(name for name in RunDetails._fields if name in RunView._fields)
_NO_DETAILS: Final = RunDetails()


def job_to_row(job: JobRecord, secret: bytes | None = None) -> JobRow:
    """Return the row of a new job, with its encrypted webhook secret."""
    definition = job.definition
    after = definition.after
    key = job.schedule_key
    return JobRow(
        name=definition.name,
        timing=timing_to_text(definition.timing) if definition.timing else None,
        policy=policy_to_text(definition.policy),
        work=work_to_text(definition.work),
        payload=payload_to_text(definition.work.payload),
        after_job=after.job if after else None,
        after_on=after.on if after else None,
        description=definition.description,
        labels=payload_to_text(dict(definition.labels)) or "{}",
        secret=secret,
        old_secret=None,
        old_secret_until_ms=None,
        instance_id=key.instance_id if key else None,
        schedule_origin=key.origin if key else None,
        schedule_id=key.schedule_id if key else None,
        decided_ticks=ticks_to_text(job.decided),
        **{name: getattr(job, name) for name in _OF_JOB},
    )


def changed_row(row: JobRow, job: JobRecord) -> JobRow:
    """Return the row of a changed job: its secrets stay."""
    return job_to_row(job)._replace(
        secret=row.secret, old_secret=row.old_secret, old_secret_until_ms=row.old_secret_until_ms
    )


def job_from_row(row: JobRow) -> JobRecord:
    """Return the job of a row."""
    labels = payload_from_text(row.labels)
    work = work_from_text(row.work)
    definition = Definition(
        name=row.name,
        timing=timing_from_text(row.timing) if row.timing else None,
        policy=policy_from_text(row.policy),
        work=replace(work, payload=payload_from_text(row.payload)),
        after=Chain(row.after_job, _chain_on(row.after_on), work.after_output) if row.after_job else None,
        description=row.description,
        labels={key: str(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
    )
    return JobRecord(
        definition=definition,
        schedule_key=schedule_key(row),
        decided=ticks_from_text(row.decided_ticks),
        **{name: getattr(row, name) for name in _OF_JOB},
    )


def ticks_to_text(ticks: Iterable[int]) -> str | None:
    """Return ticks as they are stored; None if there are none."""
    return ",".join(map(str, ticks)) or None


def ticks_from_text(text: str | None) -> tuple[int, ...]:
    """Return stored ticks."""
    return tuple(map(int, text.split(","))) if text else ()


def schedule_key(row: JobRow) -> ScheduleKey | None:
    """Return the identity of the schedule; None if the job is not a schedule of an instance."""
    if row.instance_id is None or row.schedule_id is None:
        return None
    origin: ScheduleOrigin = "declared" if row.schedule_origin == "declared" else "dynamic"
    return ScheduleKey(row.instance_id, origin, row.schedule_id)


def view_of_new_run(run: NewRun, now_ms: int) -> RunView:
    """Return a run as it is stored when it is inserted."""
    given = {name: getattr(run, name) for name in _OF_RUN}
    details = run.details or _NO_DETAILS
    given |= {name: getattr(details, name) for name in _OF_DETAILS}
    return RunView(
        output=None,
        error=None,
        usage=None,
        dead=False,
        created_ms=now_ms,
        is_pull=run.is_pull,
        claim_deadline_ms=run.claim_deadline_ms,
        **given,
    )


def _chain_on(text: str | None) -> ChainOn:
    if text == "failed":
        return "failed"
    return "finished" if text == "finished" else "succeeded"
