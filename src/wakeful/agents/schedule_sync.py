"""The declared schedules of instances, and the loop that gives instances those of their classes, in batches.

The database knows the class of an agent, so every process can converge its instances. A class that is
registered with other schedules changes those of all its instances, also of instances that no process has in
memory. An instance records the hash of the schedules that it has; only instances with another hash are read
and changed, each in a transaction of its own, so 100,000 of them do not delay the start of a process. A
process with a lower version never overwrites the schedules of a higher one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from wakeful.agents.class_registry import RegisteredClass
from wakeful.agents.schedules import read_schedule
from wakeful.document import Defaults
from wakeful.engine.calendar_loader import off_loop
from wakeful.engine.loop import Loop
from wakeful.errors import FailedPrecondition, InvalidArgument, Unavailable
from wakeful.job.job import Definition, JobRecord, ScheduleKey
from wakeful.logs import get_logger
from wakeful.run.instances import CLOSED, AgentClass, schedule_job_name
from wakeful.run.job_transitions import CANCELLED_BY_AGENT, WAKEFUL, edit_job, schedule_job
from wakeful.store.instances import INSTANCES_TOPIC, InstanceChange, InstanceFilter, InstanceRow, InstanceRule
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_from_row, job_to_row
from wakeful.store.rows import JobRow
from wakeful.values.clock import Clock

#: Any valid name: an instance has its own.
_ANY_NAME: Final = "schedule"
#: The longest sleep without a notification.
_MAX_SLEEP_MS: Final = 10_000
#: How many instances are read at once, and how many of them are changed at once.
_BATCH: Final = 100
_AT_ONCE: Final = 4
#: When schedules that cannot be read, and instances that cannot be changed, are tried again.
_RETRY_MS: Final = 30_000

log = get_logger("wakeful.schedule_sync")


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
            job = job_from_row(row)
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
            created.append(job_to_row(_create_job(key, declared, definition, now_ms)))
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
        return edit_job(job, definition, now_ms, True if enable else None, active=active)
    except FailedPrecondition:  # it has no tick left, so it stays disabled
        return job if job.definition == definition else edit_job(job, definition, now_ms, active=active)


def sync_rule(name: str, declared: DeclaredSchedules, now_ms: int) -> InstanceRule:
    """Return the rule that gives an instance the declared schedules of a class that may have changed.

    An instance that is stopped, or has the schedules of a higher version, stays as it is. One that is blocked
    and has the schedules of a lower version handles signals again: the newer class may read its state.
    """
    agent_class = declared.agent_class

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        if row is None or row.status in CLOSED or row.schedules_version > agent_class.version:
            return None
        diff = converge(row.id, name, jobs, declared, now_ms)
        new = row._replace(schedules_hash=declared.hash, schedules_version=agent_class.version)
        if row.status == "blocked" and row.schedules_version < agent_class.version:
            new = new._replace(status="active", note=None)
        if new == row and not any(diff):
            return None
        return InstanceChange(new._replace(updated_ms=now_ms), *diff, active=declared.active)

    return rule


class AgentSettings(NamedTuple):
    """What the schedules of an agent inherit."""

    defaults: Defaults
    active: bool


class _Declared(NamedTuple):
    schedules: DeclaredSchedules
    settings: AgentSettings
    until_ms: int


class ScheduleSync(Loop):
    """Converges the declared schedules of all instances of the registered classes."""

    name = "schedule_sync"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        classes: Iterable[RegisteredClass],
        settings_of: Callable[[str, str], Awaitable[AgentSettings]],
    ) -> None:
        super().__init__(clock, _MAX_SLEEP_MS)
        self._store = store
        self._classes = classes
        self._settings_of = settings_of
        self._declared: dict[tuple[str, str], _Declared] = {}
        #: the versions for which blocked instances were tried again
        self._unblocked: dict[tuple[str, str], int] = {}
        #: instances that could not be changed, and until when they are left alone
        self._aside: dict[tuple[str, str, str], int] = {}
        store.listen(self._on_notify)

    async def step(self) -> int | None:
        """Change one batch of instances of each class. Returns a near time while there are more."""
        now_ms = self.clock.now_ms()
        self._aside = {key: until_ms for key, until_ms in self._aside.items() if until_ms > now_ms}
        more = False
        for each in self._classes:
            try:
                more |= await self._sync(each, now_ms)
            except Unavailable as error:
                log.warning(
                    "schedules.unavailable", workspace=each.workspace, agent=each.agent, error=error.message
                )
            except Exception:
                log.exception("schedules.failed", workspace=each.workspace, agent=each.agent)
            self.report_progress()
        return now_ms if more else None

    async def _sync(self, registered: RegisteredClass, now_ms: int) -> bool:
        """Change one batch of instances of a class. Returns whether there are more."""
        key = registered.workspace, registered.agent
        agent_class = await self._store.agent_class(*key)
        if agent_class is None:
            return False
        declared = await self._read(agent_class, now_ms)
        if registered.version == agent_class.version and self._unblocked.get(key) != agent_class.version:
            await self._unblock(declared, now_ms)
            self._unblocked[key] = agent_class.version
        aside = {name for workspace, agent, name in self._aside if (workspace, agent) == key}
        wanted = agent_class._replace(hash=declared.hash)
        names = await self._store.stale_instances(wanted, _BATCH + len(aside))
        changed = await self._change([name for name in names if name not in aside], declared, now_ms)
        if changed:
            log.info("schedules.synced", workspace=key[0], agent=key[1], instances=changed)
        return changed > 0 and len(names) >= _BATCH + len(aside)

    async def _read(self, agent_class: AgentClass, now_ms: int) -> DeclaredSchedules:
        """Return the schedules of a class. Those with errors are logged, and read again after a while."""
        key = agent_class.workspace, agent_class.agent
        settings = await self._settings_of(*key)
        known = self._declared.get(key)
        if (
            known is not None
            and known.schedules.agent_class == agent_class
            and known.settings == settings
            and now_ms < known.until_ms
        ):
            return known.schedules
        declared = await off_loop(
            partial(read_declared, agent_class, settings.defaults, now_ms, active=settings.active)
        )
        if known is None or known.schedules.errors != declared.errors:
            log_invalid(declared)
        self._declared[key] = _Declared(declared, settings, now_ms + _RETRY_MS)
        return declared

    async def _change(self, names: list[str], declared: DeclaredSchedules, now_ms: int) -> int:
        """Change these instances, a few at once. Returns how many could be changed."""
        done = 0
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            done += sum(await asyncio.gather(*(self._change_one(name, declared, now_ms) for name in some)))
            self.report_progress()
        return done

    async def _change_one(self, name: str, declared: DeclaredSchedules, now_ms: int) -> bool:
        agent_class = declared.agent_class
        workspace, agent = agent_class.workspace, agent_class.agent
        try:
            rule = sync_rule(name, declared, self.clock.now_ms())
            await self._store.change_instance(workspace, agent, name, self.clock.now_ms(), rule)
        except Unavailable:
            raise
        except Exception:
            log.exception("schedules.set_aside", workspace=workspace, agent=agent, instance=name)
            self._aside[workspace, agent, name] = now_ms + _RETRY_MS
            return False
        return True

    async def _unblock(self, declared: DeclaredSchedules, now_ms: int) -> None:
        """Let blocked instances try again that were blocked when their class had a lower version."""
        agent_class = declared.agent_class
        workspace, agent = agent_class.workspace, agent_class.agent
        after: tuple[str, str] | None = None
        while found := await self._store.instances(
            InstanceFilter(workspace, agent, "blocked", after, _BATCH)
        ):
            rows = [view.row for view in found]
            older = [row.name for row in rows if row.schedules_version < agent_class.version]
            if older:
                await self._change(older, declared, now_ms)
                log.info("instances.unblocked", workspace=workspace, agent=agent, instances=len(older))
            after = agent, rows[-1].name

    def _on_notify(self, topic: str) -> None:
        if topic == INSTANCES_TOPIC:
            self.wake()


def log_invalid(declared: DeclaredSchedules) -> None:
    """Log the schedules of a class that cannot be read."""
    agent_class = declared.agent_class
    for schedule_id, error in declared.errors.items():
        log.warning(
            "schedule.invalid", workspace=agent_class.workspace, agent=agent_class.agent,
            version=agent_class.version, schedule_id=schedule_id, error=error,
        )  # fmt: skip
