"""The one converter from stored jobs and runs to the public model.

It uses the parser of the clients: it serializes a definition or a run and parses the JSON. It caches what
jobs with the same definition share, because a program may create many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from wakeful.bounded_cache import MB, BoundedCache, bounded_cache
from wakeful.document import payload_from_text, timing_from_text, write_definition
from wakeful.job import Definition, JobRecord, Json
from wakeful.model import Job, Page, Run
from wakeful.model.from_json import from_ms, job_from_json, run_from_json
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.serializers import explain_job, serialize_run
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import AttemptView, JobRow, RunView
from wakeful.ticks import Ticks

#: How many of the next ticks a job shows.
TICKS: Final = 5
#: Fields whose values are mutable: no two jobs share them.
_MUTABLE: Final = ("target", "labels", "precheck", "budget")

_definitions: BoundedCache[tuple[str | None, ...], dict[str, Any]] = BoundedCache(2 * MB)


def job_from_record(job: JobRecord, *, ticks: bool = True, **extra: object) -> Job:
    """Return the public job of a stored one; `ticks`: with its next ticks. `extra` sets further fields."""
    fields = _definition_fields(job.definition)
    payload = job.definition.work.payload
    return _job(job, fields, payload, _next_ticks(job.ticks, job.next_ms) if ticks else (), extra)


def job_from_saved(saved: SaveResult) -> Job:
    """Return the public job of one that was just saved, with its new secret."""
    row = saved.row
    key = (row.timing, row.policy, row.work, row.after_job, row.after_on, row.description, row.labels)
    fields = _definitions.get(key)
    if fields is None:
        fields = _definition_fields(job_of(row).definition)
        _definitions.put(key, fields, 4_096 + 8 * sum(len(text) for text in key if text))
    fields = fields | {name: _copy(fields[name]) for name in _MUTABLE if fields[name]}
    ticks = timing_from_text(row.timing).ticks(row.anchor_ms) if row.timing else None
    extra = {"secret": saved.secret, "created": saved.created}
    return _job(row, fields, payload_from_text(row.payload), _next_ticks(ticks, row.next_ms), extra)


def run_from_view(run: RunView, attempts: Sequence[AttemptView] | None = None) -> Run:
    """Return the public run of a stored one."""
    return run_from_json(serialize_run(run, attempts))


def page_of_runs(found: Sequence[RunView], limit: int) -> Page[Run]:
    """Return a page of the runs that were read, one more than `limit`; its cursor is its last id."""
    shown = [run_from_view(run) for run in found[:limit]]
    return Page(shown, shown[-1].id if len(found) > limit else None)


def _definition_fields(definition: Definition) -> dict[str, Any]:
    fields = job_from_json.arguments(write_definition(definition))
    del fields["name"], fields["payload"]
    return {**fields, "explain": explain_job(definition)}


def _job(
    source: JobRecord | JobRow,
    fields: dict[str, Any],
    payload: Json,
    next_ticks: tuple[datetime, ...],
    extra: dict[str, Any],
) -> Job:
    return Job(
        id=source.id,
        workspace=source.workspace,
        agent=source.agent,
        name=source.name,
        payload=payload,
        enabled=source.enabled,
        disabled_reason=source.disabled_reason,
        pause_note=source.pause_note,
        paused_until=_instant(source.pause_until_ms),
        next_at=_instant(source.next_ms),
        run_count=source.run_count,
        failures=source.failures,
        revision=source.version,
        created_at=from_ms(source.created_ms),
        created_by=source.created_by or None,
        updated_at=from_ms(source.updated_ms),
        next_ticks=next_ticks,
        **fields,
        **extra,
    )


def _instant(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)


def _next_ticks(ticks: Ticks | None, next_ms: int | None) -> tuple[datetime, ...]:
    """Return the next ticks; none for a job that is paused or has ended."""
    return () if ticks is None or next_ms is None else _upcoming(ticks, next_ms)


@bounded_cache(MB, lambda *_: 1_024)
def _upcoming(ticks: Ticks, next_ms: int) -> tuple[datetime, ...]:
    # The next tick may be due and not yet planned: it is still the next one.
    return tuple(from_ms(ms) for ms in ticks.upcoming(next_ms - 1, TICKS))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
