"""The loop that gives instances the declared schedules of their classes, in batches, beside all other work.

A class that is registered with other schedules changes those of all its instances, also of instances that no
process has in memory. Only instances whose recorded hash differs are read and changed, each in a transaction
of its own, so 100,000 of them do not delay the start of a process. The classes come from the database: a
process with a lower version never overwrites the schedules of a higher one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from wakeful.agents.declared_schedules import DeclaredSchedules, read_declared, sync_rule
from wakeful.document import Defaults
from wakeful.engine.calendar_loader import off_loop
from wakeful.engine.loop import Loop
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.run.instances import AgentClass
from wakeful.store.instances import INSTANCES_TOPIC, InstanceFilter
from wakeful.store.port import Store
from wakeful.values.clock import Clock

#: The longest sleep without a notification.
_MAX_SLEEP_MS: Final = 10_000
#: How many instances are read at once, and how many of them are changed at once.
_BATCH: Final = 100
_AT_ONCE: Final = 4
#: When schedules that cannot be read, and instances that cannot be changed, are tried again.
_RETRY_MS: Final = 30_000

log = get_logger("wakeful.schedule_sync")


class AgentSettings(NamedTuple):
    """What the schedules of an agent inherit."""

    defaults: Defaults
    active: bool


class ClassKey(Protocol):
    """A class that is registered in this process."""

    @property
    def workspace(self) -> str:
        """Its workspace."""
        ...

    @property
    def agent(self) -> str:
        """Its agent."""
        ...

    @property
    def version(self) -> int:
        """Its version."""
        ...


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
        classes: Iterable[ClassKey],
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
        store.listen(self._notified)

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
            self.progressed()
        return now_ms if more else None

    async def _sync(self, registered: ClassKey, now_ms: int) -> bool:
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
            self.progressed()
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

    def _notified(self, topic: str) -> None:
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
