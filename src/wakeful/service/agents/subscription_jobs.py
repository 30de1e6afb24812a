"""The internal job of a subscription to MCP events: each delivery is a run of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from wakeful.document import read_definition
from wakeful.errors import FailedPrecondition
from wakeful.job.job import Definition, JobRecord, Work, choose_anchor
from wakeful.job.policy import Backoff, Policy
from wakeful.launch.event_callback import KIND, MAX_ATTEMPTS
from wakeful.launch.tick_events import KEPT_MS, TickCursor
from wakeful.run.planning import begin
from wakeful.schedule.ticks import Ticks
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.signal.event_catalog import TICK, EventDefinition, job_name
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json

_LABELS: Final = {"system": "subscription"}
#: One event at a time, in order. 30 attempts take about five hours.
_POLICY: Final = Policy(
    overlap="queue",
    max_queued=10_000,
    catchup="fire_immediately",
    catchup_window_ms=KEPT_MS,
    max_attempts=MAX_ATTEMPTS,
    backoff=Backoff(2_000, 900_000),
)


def read_ticks(arguments: Mapping[str, Json], since_ms: int, context: JobContext) -> tuple[Ticks, str | None]:
    """Return the ticks of a subscription to time, and its message."""
    definition = _tick_definition(arguments, since_ms, context)
    assert definition.timing is not None, "the argument is required"
    return definition.timing.ticks(choose_anchor(definition, since_ms)), definition.work.message


def _tick_definition(arguments: Mapping[str, Json], since_ms: int, context: JobContext) -> Definition:
    """Return the schedule and the message; words such as 'in 20m' count from when it began."""
    return read_definition({"name": "ticks", **arguments}, now_ms=since_ms, defaults=context.defaults)


def subscription_job(
    context: JobContext,
    identity: str,
    event: EventDefinition,
    arguments: Mapping[str, Json],
    now_ms: int,
    principal: Principal,
    first: TickCursor | None = None,
) -> JobRecord:
    """Return the job that delivers the events of a subscription: for time, with its schedule.

    Ticks are counted and sent from `first` on; None: from now on.
    """
    if not context.active:
        raise FailedPrecondition(f"agent '{context.agent}' is not active; activate it to subscribe")
    first = first or TickCursor(now_ms, now_ms)
    target: dict[str, Json] = {"kind": KIND, "subscription": identity, "sinceMs": first.since_ms}
    about = f"Delivers the event {event.name} to a subscriber."
    definition = Definition(job_name(identity), None, _POLICY, Work(target), None, about, _LABELS)
    if event.name == TICK:
        read = _tick_definition(arguments, first.since_ms, context)
        work = replace(definition.work, message=read.work.message)
        definition = replace(definition, timing=read.timing, work=work)
    anchor_ms = choose_anchor(definition, first.since_ms)
    job_id = new_id(now_ms)
    next_ms, wake_ms = begin(job_id, definition, anchor_ms, first.at_ms)
    return JobRecord(
        id=job_id, workspace=context.workspace, agent=context.agent, definition=definition, enabled=True,
        anchor_ms=anchor_ms, next_ms=next_ms, wake_ms=wake_ms, created_ms=now_ms, updated_ms=now_ms,
        created_by=principal.creator,
    )  # fmt: skip
