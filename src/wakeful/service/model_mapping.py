"""The one converter from stored jobs and runs to the public model.

It reads the definition of a job as the clients do, from its JSON, and caches what jobs with the same
definition share, because a program may create many of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from wakeful.document import payload_from_text, write_definition
from wakeful.job.job import Definition, JobRecord, Timing
from wakeful.model import Job, Run
from wakeful.model.codec import from_ms, read_fields
from wakeful.schedule.schedules import Every
from wakeful.schedule.ticks import Ticks
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.rights import LOCAL_RIGHTS
from wakeful.service.serializers import ATTEMPTS, JOB_STATE, RUNS, explain_job
from wakeful.store.row_mapping import job_from_row, ticks_from_text
from wakeful.store.rows import AttemptView, JobRow, RunView
from wakeful.values.bounded_cache import MB, BoundedCache

#: How many of the next ticks a job shows.
TICKS: Final = 5
#: How many next ticks are kept for a definition.
_MANY: Final = 8
#: Fields whose values are mutable: no two jobs share them.
_MUTABLE: Final = ("target", "labels", "precheck", "verify", "budget")
#: Assigns a field of a new job. A program may create many jobs: this takes a third of the time of `Job(…)`.
_ASSIGN: Final[dict[str, Callable[[Job, Any], None]]] = {
    each.name: vars(Job)[each.name].__set__ for each in dataclasses.fields(Job)
}

_ASSIGN_OWN: Final = [
    _ASSIGN[name] for name in (*JOB_STATE.names, "payload", "next_ticks", "secret", "created", "warnings")
]


class _Shared(NamedTuple):
    """What jobs with the same definition share."""

    fields: list[tuple[Callable[[Job, Any], None], Any]]
    mutable: list[tuple[Callable[[Job, Any], None], Any]]
    timing: Timing | None
    #: the ticks, unless they depend on the anchor of the job
    ticks: Ticks | None
    #: the next ticks, by the first of them
    upcoming: dict[int, tuple[datetime, ...]]


#: The values of the fields that only some jobs or calls have.
_DEFAULTS: Final = {
    each.name: each.default for each in dataclasses.fields(Job) if each.default is not dataclasses.MISSING
}

_shared: BoundedCache[tuple[str | None, ...], _Shared] = BoundedCache(2 * MB)


def job_as_read(job: JobRecord, **extra: Any) -> Job:
    """Return the public job of one that was read, with what the program may do with it."""
    return job_from_record(job, may=tuple(LOCAL_RIGHTS.job(job)), **extra)


def job_from_record(job: JobRecord, *, ticks: bool = True, **extra: Any) -> Job:
    """Return the public job of a stored one; `ticks`: with its next ticks. `extra` sets further fields."""
    return Job(
        **_definition_fields(job.definition),
        **dict(zip(JOB_STATE.names, JOB_STATE.values(job), strict=True)),
        payload=job.definition.work.payload,
        next_ticks=_next_ticks(job.open_ticks, job.next_ms) if ticks else (),
        schedule_origin=job.schedule_key.origin if job.schedule_key else None,
        schedule_id=job.schedule_key.schedule_id if job.schedule_key else None,
        **extra,
    )


def job_from_saved(saved: SaveResult) -> Job:
    """Return the public job of one that was just saved, with its new secret."""
    row = saved.row
    shared = _shared_by(row)
    job = object.__new__(Job)
    for assign, value in shared.fields:
        assign(job, value)
    for assign, value in shared.mutable:
        assign(job, _copy(value))
    own = JOB_STATE.values(row)
    rest = (
        payload_from_text(row.payload),
        _next_ticks_by(shared, row),
        saved.secret,
        saved.created,
        saved.warnings,
    )
    for assign, value in zip(_ASSIGN_OWN, own + rest, strict=True):
        assign(job, value)
    if row.schedule_id is not None:
        _ASSIGN["schedule_origin"](job, row.schedule_origin)
        _ASSIGN["schedule_id"](job, row.schedule_id)
    return job


def _shared_by(row: JobRow) -> _Shared:
    key = (row.timing, row.policy, row.work, row.after_job, row.after_on, row.description, row.labels)
    shared = _shared.get(key)
    if shared is None:
        definition = job_from_row(row).definition
        timing = definition.timing
        values = {**_DEFAULTS, **_definition_fields(definition)}
        shared = _Shared(
            [(_ASSIGN[name], value) for name, value in values.items() if name not in _MUTABLE],
            [(_ASSIGN[name], values[name]) for name in _MUTABLE],
            timing,
            None if timing is None or isinstance(timing.schedule, Every) else timing.ticks(row.anchor_ms),
            {},
        )
        _shared.put(key, shared, 8_192 + 8 * sum(len(text) for text in key if text))
    return shared


def _next_ticks_by(shared: _Shared, row: JobRow) -> tuple[datetime, ...]:
    if shared.ticks is None or row.next_ms is None or row.decided_ticks is not None:
        ticks = shared.timing.ticks(row.anchor_ms) if shared.timing else None
        return _next_ticks(ticks and ticks.without(ticks_from_text(row.decided_ticks)), row.next_ms)
    found = shared.upcoming.get(row.next_ms)
    if found is None:
        if len(shared.upcoming) >= _MANY:
            shared.upcoming.clear()
        found = shared.upcoming[row.next_ms] = _next_ticks(shared.ticks, row.next_ms)
    return found


def run_from_view(
    run: RunView, attempts: Sequence[AttemptView] | None = None, waiting_for: str | None = None
) -> Run:
    """Return the public run of a stored one."""
    if attempts is None:
        return RUNS.to_model(run)
    may = tuple(LOCAL_RIGHTS.run(run))
    read = tuple(ATTEMPTS.to_model(each) for each in attempts)
    return RUNS.to_model(run, attempts=read, waiting_for=waiting_for, may=may)


def run_as_listed(run: RunView) -> Run:
    """Return the public run of one in a list, with what the program may do with it."""
    return RUNS.to_model(run, may=tuple(LOCAL_RIGHTS.run(run)))


def _definition_fields(definition: Definition) -> dict[str, Any]:
    fields = read_fields(Job, write_definition(definition))
    del fields["name"], fields["payload"]
    work = definition.work
    return {**fields, "explain": explain_job(definition), "origin": work.origin, "depth": work.depth}


def _next_ticks(ticks: Ticks | None, next_ms: int | None) -> tuple[datetime, ...]:
    """Return the next ticks; none for a job that is paused or has ended."""
    if ticks is None or next_ms is None:
        return ()
    # The next tick may be due and not yet planned: it is still the next one.
    return tuple(from_ms(ms) for ms in ticks.upcoming(next_ms - 1, TICKS))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
