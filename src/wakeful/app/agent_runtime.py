"""The agent classes of an app: their launcher, their registration in the database, and their schedules."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar, cast

from wakeful.agents.agent import Agent
from wakeful.agents.class_registry import ClassRegistry
from wakeful.agents.launcher import AgentLauncher
from wakeful.agents.memory_delays import MemoryDelays
from wakeful.agents.schedule_sync import AgentSettings, ScheduleSync
from wakeful.agents.state import StateObject, StateType
from wakeful.document import Defaults
from wakeful.errors import InvalidArgument
from wakeful.logs import get_logger
from wakeful.service.services import Services

A = TypeVar("A", bound=type[Agent])

_HIBERNATE = "hibernate:"

log = get_logger("wakeful.app")


class AgentRuntime:
    """What an app needs to handle signals."""

    def __init__(self, services: Services, workspace: str, lanes: Collection[str]) -> None:
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
        )
        services.instances.state_types = _StateTypes(self.classes)

    def register(self, cls: A) -> A:
        """Add a class to those of this process."""
        registered = self.classes.register(cls, self._workspace)
        if registered.lane not in self._lanes:
            raise InvalidArgument(
                f"class {cls.__name__}: lane: there is no lane '{registered.lane}', only "
                f"{', '.join(sorted(self._lanes))}"
            )
        return cls

    async def start(self) -> None:
        """Write the classes to the database, and make them the target of their agents."""
        for registered in self.classes:
            where = registered.workspace, registered.agent
            known = await self._store.put_class(registered.agent_class, self._store.clock.now_ms())
            if known.version > registered.version:
                log.warning(
                    "agent.older_version", workspace=where[0], agent=where[1], version=registered.version,
                    newest=known.version,
                )  # fmt: skip
            await self._services.agents.give_class_target(*where)
        self._services.agent_classes.forget()
        self._store.listen(self._notified)

    def loops(self) -> list[ScheduleSync]:
        """Return the loops of the engine that classes need."""
        if not len(self.classes):
            return []
        return [ScheduleSync(self._store, self._store.clock, self.classes, self._settings)]

    async def stop(self) -> None:
        """Drop the delays that are in memory."""
        await self._delays.close()

    async def _defaults(self, workspace: str, agent: str) -> Defaults:
        return (await self._services.accounts.context(workspace, agent)).defaults

    async def _settings(self, workspace: str, agent: str) -> AgentSettings:
        context = await self._services.accounts.context(workspace, agent)
        return AgentSettings(context.defaults, context.active)

    def _notified(self, topic: str) -> None:
        if topic.startswith(_HIBERNATE):
            self.launcher.hibernate(topic.removeprefix(_HIBERNATE))


class _StateTypes:
    """The states of the registered classes, for the service of instances."""

    def __init__(self, classes: ClassRegistry) -> None:
        self._classes = classes

    def state_type(self, workspace: str, agent: str) -> StateType | None:
        """Return the type of the state of a class."""
        registered = self._classes.get(workspace, agent)
        return registered.state if registered else None

    def redact(self, workspace: str, agent: str, state: StateObject) -> StateObject:
        """Return what people may see of a state."""
        registered = self._classes.get(workspace, agent)
        return cast(StateObject, dict(registered.cls.redact(state))) if registered else state
