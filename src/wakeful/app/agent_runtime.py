"""The agent classes of an app: their launcher, their registration in the database, and their schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from wakeful.agents.agent import Agent
from wakeful.agents.class_registry import ClassRegistry, RegisteredClass, read_class
from wakeful.agents.launcher import AgentLauncher
from wakeful.agents.memory_delays import MemoryDelays
from wakeful.agents.schedule_sync import AgentSettings, ScheduleSync
from wakeful.document import Defaults
from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.job.start_rules import Requirement, agent_requirement, can_take
from wakeful.launch.function import DEFAULT_THREADS, HandlerContext
from wakeful.logs import get_logger
from wakeful.service.services import Services
from wakeful.store.instances import UNLOAD_TOPIC

A = TypeVar("A", bound=type[Agent])

log = get_logger("wakeful.app")


class AgentRuntime:
    """What an app needs to handle signals."""

    def __init__(
        self,
        services: Services,
        workspace: str,
        lanes: Mapping[str, int],
        context: HandlerContext | None = None,
    ) -> None:
        self._services = services
        self._workspace = workspace
        self._lanes = lanes
        self._store = services.store
        self.classes = ClassRegistry()
        self._delays = MemoryDelays(self._store)
        self.launcher = AgentLauncher(
            self.classes,
            self._store.clock,
            defaults_of=self._defaults,
            keep_delays=self._delays.keep,
            newest_class=self._store.agent_class,
            has_process=self._has_process,
            limits=services.agents.instance_limits,
            threads=max(DEFAULT_THREADS, sum(lanes.values())),
            context=context,
        )
        self._sync: ScheduleSync | None = None
        #: the event loop while the app runs
        self._loop: asyncio.AbstractEventLoop | None = None
        #: the classes that are not written to the database yet
        self._unwritten: list[RegisteredClass] = []
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        services.agents.instances.registry = self.classes
        services.agents.classes.before_read = self._write
        self._store.listen(self._on_topic)

    def register(self, cls: A) -> A:
        """Add a class to those of this process. While the app runs, it is written to the database at once."""
        lane = read_class(cls, self._workspace).lane
        if lane not in self._lanes:
            raise InvalidArgument(
                f"class {cls.__name__}: lane: there is no lane '{lane}', only "
                f"{', '.join(sorted(self._lanes))}"
            )
        self._unwritten.append(self.classes.register(cls, self._workspace))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._start_writing)
        return cls

    async def start(self) -> None:
        """Write the classes to the database, and make them the target of their agents."""
        self._unwritten = list(self.classes)
        self._writing = asyncio.Lock()  # an earlier start may have had another event loop
        await self._write()
        self._loop = asyncio.get_running_loop()

    def loops(self) -> list[ScheduleSync]:
        """Return the loops of the engine that classes need."""
        self._sync = ScheduleSync(self._store, self._store.clock, self.classes, self._settings)
        return [self._sync]

    async def stop(self) -> None:
        """Drop the delays that are in memory."""
        self._loop = None
        await asyncio.gather(*self._tasks)
        await self._delays.close()

    def _start_writing(self) -> None:
        task = asyncio.create_task(self._write_later(), name="wakeful-agent-classes")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_later(self) -> None:
        try:
            await self._write()
        except WakefulError as error:  # the next use of a class tries it again
            log.warning("agent.class_not_written", error=error.message)

    async def _write(self) -> None:
        """Write the classes to the database that are not written yet."""
        if not self._unwritten:
            return
        async with self._writing:
            while self._unwritten:
                await self._write_one(self._unwritten[0])
                del self._unwritten[0]
        self._services.agents.classes.forget()
        if self._sync is not None:
            self._sync.wake()

    async def _write_one(self, registered: RegisteredClass) -> None:
        where = registered.workspace, registered.agent
        known = await self._store.put_class(registered.agent_class, self._store.clock.now_ms())
        if known.version > registered.version:
            log.warning(
                "agent.older_version", workspace=where[0], agent=where[1], version=registered.version,
                newest=known.version,
            )  # fmt: skip
        await self._services.agents.give_class_target(*where)

    async def _defaults(self, workspace: str, agent: str) -> Defaults:
        return (await self._services.accounts.context(workspace, agent)).defaults

    async def _has_process(self, workspace: str, agent: str, version: int) -> bool:
        wanted = Requirement(agent_requirement(workspace, agent), version)
        running = await self._store.capabilities(self._store.clock.now_ms() - LEASE_MS)
        return any(can_take(each, wanted) for each in running)

    async def _settings(self, workspace: str, agent: str) -> AgentSettings:
        context = await self._services.accounts.context(workspace, agent)
        return AgentSettings(context.defaults, context.active)

    def _on_topic(self, topic: str) -> None:
        if topic.startswith(UNLOAD_TOPIC):
            self.launcher.hibernate(topic.removeprefix(UNLOAD_TOPIC))
