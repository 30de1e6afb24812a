"""Conversion between jobs and their rows, and from new runs to stored ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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
from wakeful.run.run import NewRun
from wakeful.store.rows import JobRow, RunView


def job_to_row(job: JobRecord, secret: bytes | None = None) -> JobRow:
    """Return the row of a new job, with its encrypted webhook secret."""
    definition = job.definition
    after = definition.after
    key = job.schedule_key
    return JobRow(
        id=job.id,
        workspace=job.workspace,
        agent=job.agent,
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
        enabled=job.enabled,
        disabled_reason=job.disabled_reason,
        anchor_ms=job.anchor_ms,
        next_ms=job.next_ms,
        wake_ms=job.wake_ms,
        run_count=job.run_count,
        failures=job.failures,
        version=job.version,
        created_ms=job.created_ms,
        updated_ms=job.updated_ms,
        created_by=job.created_by,
        pause_note=job.pause_note,
        pause_until_ms=job.pause_until_ms,
        instance_id=key.instance_id if key else None,
        schedule_origin=key.origin if key else None,
        schedule_id=key.schedule_id if key else None,
        decided_ticks=ticks_to_text(job.decided),
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
        id=row.id,
        workspace=row.workspace,
        agent=row.agent,
        definition=definition,
        enabled=row.enabled,
        anchor_ms=row.anchor_ms,
        next_ms=row.next_ms,
        wake_ms=row.wake_ms,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        run_count=row.run_count,
        failures=row.failures,
        version=row.version,
        disabled_reason=row.disabled_reason,
        created_by=row.created_by,
        pause_note=row.pause_note,
        pause_until_ms=row.pause_until_ms,
        schedule_key=schedule_key(row),
        decided=ticks_from_text(row.decided_ticks),
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
    return RunView(
        id=run.id,
        job_id=run.job_id,
        workspace=run.workspace,
        agent=run.agent,
        job_name=run.job_name,
        scheduled_ms=run.scheduled_ms,
        fire_ms=run.fire_ms,
        trigger=run.trigger,
        triggered_by=run.triggered_by,
        state=run.state,
        reason=run.reason,
        covers=run.covers,
        until_ms=run.until_ms,
        attempt=run.attempt,
        worker=run.worker,
        lane=run.lane,
        due_ms=run.due_ms,
        started_ms=run.started_ms,
        finished_ms=run.finished_ms,
        idempotency_key=run.idempotency_key,
        replay_of=run.replay_of,
        payload=run.payload,
        output=None,
        error=None,
        usage=None,
        dead=False,
        created_ms=now_ms,
        is_pull=run.is_pull,
        claim_deadline_ms=run.claim_deadline_ms,
        serial=run.serial,
        requires=run.requires,
        requires_version=run.requires_version,
        instance=run.instance,
        signal=run.signal,
        session=run.details.session if run.details else None,
        depth=run.details.depth if run.details else 0,
        context=run.details.context if run.details else None,
    )


def _chain_on(text: str | None) -> ChainOn:
    if text == "failed":
        return "failed"
    return "finished" if text == "finished" else "succeeded"
