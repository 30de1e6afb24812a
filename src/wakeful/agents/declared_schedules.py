"""The declared schedules of instances: which jobs an instance has, and which its class declares. Pure.

The database knows the class of an agent, so every process can converge its instances. An instance records the
hash of the schedules that it has; only instances with another hash are changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from wakeful.agents.schedules import read_schedule
from wakeful.document import Defaults
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.job import Definition, JobRecord, ScheduleKey
from wakeful.logs import get_logger
from wakeful.run.instances import AgentClass, schedule_job_name
from wakeful.run.job_transitions import CANCELLED_BY_AGENT, WAKEFUL, edited, schedule_job
from wakeful.store.instances import InstanceChange, InstanceRow, InstanceRule
from wakeful.store.row_mapping import changed_row, job_of, row_of
from wakeful.store.rows import JobRow

#: Any valid name: an instance has its own.
_ANY_NAME: Final = "schedule"

log = get_logger("wakeful.schedules")


@dataclass(frozen=True, slots=True)
class DeclaredSchedules:
    """The schedules of a class as definitions. An instance has its own names and its own target."""

    agent_class: AgentClass
    definitions: Mapping[str, Definition]
    #: the schedules that cannot be read now, and why: a job that exists stays as it is
    errors: Mapping[str, str]
    #: whether the agent is active: otherwise its jobs are paused
    active: bool

    @property
    def hash(self) -> str:
        """What an instance records when it has these schedules. It changes when an error is gone."""
        if not self.errors:
            return self.agent_class.hash
        failed = hashlib.sha256("\n".join(sorted(self.errors)).encode()).hexdigest()[:8]
        return f"{self.agent_class.hash}-without-{failed}"

    def of_instance(self, instance: str, schedule_id: str) -> Definition:
        """Return the definition of the job of an instance."""
        definition = self.definitions[schedule_id]
        target = {**(definition.work.target or {}), "instance": instance}
        return replace(
            definition,
            name=schedule_job_name(instance, "declared", schedule_id),
            work=replace(definition.work, target=target),
        )


def read_declared(
    agent_class: AgentClass, defaults: Defaults, now_ms: int, *, active: bool = True
) -> DeclaredSchedules:
    """Read the schedules of a class. Unavailable: the time zone database cannot be read now.

    The class was valid when it was registered. A schedule that cannot be read here and now is left out.
    """
    definitions: dict[str, Definition] = {}
    errors: dict[str, str] = {}
    for schedule_id, document in agent_class.schedules:
        try:
            definition = read_schedule(document, _ANY_NAME, None, now_ms=now_ms, defaults=defaults)
            if definition.timing is not None:  # excluded days are computed here, not in a transaction
                definition.timing.ticks(now_ms).upcoming(now_ms, 2)
        except InvalidArgument as error:
            errors[schedule_id] = error.message
        else:
            definitions[schedule_id] = definition
    return DeclaredSchedules(agent_class, definitions, errors, active)


class ScheduleDiff(NamedTuple):
    """What to write so that an instance has the declared schedules."""

    created: tuple[JobRow, ...] = ()
    changed: tuple[JobRow, ...] = ()
    #: ids of jobs
    deleted: tuple[str, ...] = ()


def converge(
    instance_id: str,
    instance: str,
    jobs: Sequence[JobRow],
    declared: DeclaredSchedules,
    now_ms: int,
    *,
    enable_cancelled: bool = False,
) -> ScheduleDiff:
    """Return what makes the declared jobs of an instance match; dynamic ones stay, unless they are malformed.

    A job that a person paused stays paused. With `enable_cancelled`, those that the agent cancelled are
    enabled again.
    """
    created: list[JobRow] = []
    changed: list[JobRow] = []
    deleted: list[str] = []
    known: dict[str, tuple[JobRow, JobRecord]] = {}
    for row in jobs:
        is_declared = row.schedule_origin == "declared"
        schedule_id = str(row.schedule_id)
        if is_declared and schedule_id in declared.errors:
            continue
        try:
            job = job_of(row)
        except InvalidArgument as error:
            log.warning("schedule.dropped", **row.log_fields, schedule_id=schedule_id, error=error.message)
            deleted.append(row.id)
            continue
        if not is_declared:
            continue
        if schedule_id in declared.definitions:
            known[schedule_id] = row, job
        else:
            deleted.append(row.id)
    for schedule_id in declared.definitions:
        definition = declared.of_instance(instance, schedule_id)
        if schedule_id in known:
            row, job = known[schedule_id]
            new = _change_job(job, definition, declared.active, now_ms, enable_cancelled=enable_cancelled)
            if new is not job:
                changed.append(changed_row(row, new))
        else:
            key = ScheduleKey(instance_id, "declared", schedule_id)
            created.append(row_of(_create_job(key, declared, definition, now_ms)))
    return ScheduleDiff(tuple(created), tuple(changed), tuple(deleted))


def _create_job(
    key: ScheduleKey, declared: DeclaredSchedules, definition: Definition, now_ms: int
) -> JobRecord:
    agent_class = declared.agent_class
    job = schedule_job(
        key, agent_class.workspace, agent_class.agent, definition, None, now_ms, WAKEFUL,
        active=declared.active,
    )  # fmt: skip
    assert job is not None
    return job


def _change_job(
    job: JobRecord, definition: Definition, active: bool, now_ms: int, *, enable_cancelled: bool
) -> JobRecord:
    """Return the job with this definition, or the same object if nothing changes."""
    enable = enable_cancelled and job.disabled_reason == CANCELLED_BY_AGENT
    if job.definition == definition and not enable:
        return job
    try:
        return edited(job, definition, now_ms, True if enable else None, active=active)
    except FailedPrecondition:  # it has no tick left, so it stays disabled
        return job if job.definition == definition else edited(job, definition, now_ms, active=active)


def sync_rule(name: str, declared: DeclaredSchedules, now_ms: int) -> InstanceRule:
    """Return the rule that gives an instance the declared schedules of a class that may have changed.

    An instance that is stopped, or has the schedules of a higher version, stays as it is. One that is blocked
    and has the schedules of a lower version handles signals again: the newer class may read its state.
    """
    agent_class = declared.agent_class

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        if row is None or row.status == "stopped" or row.schedules_version > agent_class.version:
            return None
        diff = converge(row.id, name, jobs, declared, now_ms)
        new = row._replace(schedules_hash=declared.hash, schedules_version=agent_class.version)
        if row.status == "blocked" and row.schedules_version < agent_class.version:
            new = new._replace(status="active", note=None)
        if new == row and not any(diff):
            return None
        return InstanceChange(new._replace(updated_ms=now_ms), *diff, active=declared.active)

    return rule
