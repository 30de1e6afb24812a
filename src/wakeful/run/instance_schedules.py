"""The jobs of the schedules of instances: how one is created, and changed when it is set again. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wakeful.job.job import AGENT_INACTIVE, Definition, JobRecord, ScheduleKey, anchor_of
from wakeful.run.job_transitions import edited, paused
from wakeful.run.planning import begin
from wakeful.schedule.schedules import At
from wakeful.values.ids import new_id

#: The reason why a declared schedule is disabled that its agent cancelled.
CANCELLED_BY_AGENT: Final = "cancelled_by_agent"
#: Who creates the jobs of declared schedules. Keys of the role `agent` may not change them.
WAKEFUL: Final = "admin:wakeful"


def schedule_job(
    key: ScheduleKey,
    workspace: str,
    agent: str,
    definition: Definition,
    old: JobRecord | None,
    now_ms: int,
    created_by: str,
    *,
    active: bool = True,
) -> JobRecord | None:
    """Return the job of a schedule that is set: a new one, or the old one with this definition.

    None if nothing changes. A schedule that a person paused stays paused; one that is disabled for another
    reason is enabled again. Without `active` its agent is not active, and it has no ticks until the agent is.
    FailedPrecondition: the old one has no run or tick left.
    """
    if old is None:
        job_id = new_id(now_ms)
        anchor_ms = anchor_of(definition, now_ms)
        at_ms = one_time_ms(definition)
        # An instant that has passed since the handler returned is caught up, as for every one-time job.
        from_ms = now_ms if at_ms is None else min(now_ms, at_ms - 1)
        next_ms, wake_ms = begin(job_id, definition, anchor_ms, from_ms)
        job = JobRecord(
            id=job_id,
            workspace=workspace,
            agent=agent,
            definition=definition,
            enabled=True,
            anchor_ms=anchor_ms,
            next_ms=next_ms,
            wake_ms=wake_ms,
            created_ms=now_ms,
            updated_ms=now_ms,
            created_by=created_by,
            schedule_key=key,
        )
        return job if active else replace(paused(job, now_ms), disabled_reason=AGENT_INACTIVE)
    enables = not old.enabled and old.disabled_reason not in ("paused", AGENT_INACTIVE)
    enable = True if enables else None
    if old.definition == definition and enable is None:
        return None
    return edited(old, definition, now_ms, enable, active=active)


def one_time_ms(definition: Definition) -> int | None:
    """Return the only instant of a one-time schedule."""
    schedule = definition.timing.schedule if definition.timing else None
    return schedule.at_ms if isinstance(schedule, At) else None
