"""The parts of an app, which follow from its arguments, and the engine of a start.

`Wakeful` imports this module when it is constructed: it imports the services, the stores and the launchers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from wakeful.agents.agent import Agent
from wakeful.agents.turn_starter import TurnStarter
from wakeful.app.admin import Incidents, Suggestions
from wakeful.app.agent_runtime import AgentRuntime
from wakeful.app.agents import Agents
from wakeful.app.arguments import AppArguments, engine_config, job_defaults
from wakeful.app.calls import Task
from wakeful.app.declared import Declared, DeclaredJobs
from wakeful.app.home import Home
from wakeful.app.inbox import Inbox
from wakeful.app.jobs import Jobs
from wakeful.app.launchers import build_launchers, connect_services
from wakeful.app.runs import Runs
from wakeful.app.sync import SyncMethods
from wakeful.app.tasks import Enqueued, Tasks
from wakeful.client.scheduler import Scheduler
from wakeful.deliver.deliverer import Deliverer
from wakeful.document import Defaults
from wakeful.engine.engine import Engine, EngineConfig
from wakeful.engine.event_subscriber import EventSubscriber
from wakeful.engine.metrics import Metrics
from wakeful.engine.pinger import Pinger
from wakeful.engine.tracing_setup import engine_tracing
from wakeful.launch.function import FunctionLauncher, HandlerContext
from wakeful.launch.secrets import keyring_for
from wakeful.model.job_fields import JobOptions
from wakeful.service.admin.evolution_jobs import EvolutionStarter
from wakeful.service.services import Services
from wakeful.settings import Settings
from wakeful.store.connect import open_within, sqlite_path, store_at
from wakeful.store.port import Store


class Assembly:
    """The store, the launchers and the services of an app, and its public parts (`jobs`, `runs` …).

    What was registered and declared on the app is given: it outlives its parts.
    """

    def __init__(
        self,
        arguments: AppArguments,
        functions: FunctionLauncher,
        classes: Iterable[type[Agent]],
        declared: dict[str, Declared],
        tasks: dict[object, Task],
        home: Home,
    ) -> None:
        settings = self._settings = arguments.effective_settings()
        self.store = arguments.store or store_at(settings.db)
        keyring = keyring_for(settings.secret_key, None if arguments.store else sqlite_path(settings.db))
        metrics = Metrics(settings.metrics_agents)
        self.config = engine_config(arguments.config, settings)
        defaults = arguments.defaults or job_defaults(settings)
        lanes = self.config.lanes
        launchers = build_launchers(
            self.store, settings, functions, keyring, metrics, lanes, arguments.celery
        )
        self.launchers, self._channels = launchers.registry, launchers.channels
        self.services = Services(
            self.store, self.launchers, keyring, defaults, settings, metrics, lanes=lanes
        )
        self.agent_runtime = AgentRuntime(self.services, arguments.workspace, lanes, functions.context)
        for each in classes:
            self.agent_runtime.register(each)
        connect_services(launchers, self.services, self.agent_runtime.launcher)
        where = workspace, agent = arguments.workspace, arguments.agent
        self.jobs = Jobs(self.services, workspace, agent, home)
        self.runs = Runs(self.services, workspace, agent, home)
        self.agents = Agents(self.services, workspace, home)
        self.incidents = Incidents(self.services, workspace, home)
        self.suggestions = Suggestions(self.services, workspace, home)
        self.tasks = Tasks(self.services, functions, self.jobs, self.runs, home, tasks, where)
        self.declared = DeclaredJobs(self.services, functions, self.tasks, home, declared, defaults, where)
        self.inbox = Inbox(self.services, workspace, home)
        self.sync = SyncMethods(self.tasks, self.agents, self.incidents, self.inbox, self.suggestions, home)
        self.grace = arguments.grace
        waiting = arguments.wait_for_db
        self._wait_for_db = (settings.wait_for_db or 0) if waiting is None else waiting
        self._ping = settings.ping_url, settings.ping_ms

    async def open_store(self) -> None:
        """Open the database; wait for it as long as the arguments say."""
        await open_within(self.store, self._wait_for_db)

    async def build_engine(self, exporter: AsyncExitStack) -> Engine:
        """Return an engine that is not started; `exporter` closes that of its traces."""
        tracing = await exporter.enter_async_context(engine_tracing())
        services, metrics, clock = self.services, self.services.metrics, self.store.clock
        services.telemetry.tracing = tracing
        loops = [
            TurnStarter(self.store, clock, self.config.tick_ms),
            Deliverer(self.store, clock, self._channels, metrics.record_delivery, tracing),
            EvolutionStarter(
                self.store, services.agents.evolution_jobs, services.agents.repair_internal_jobs
            ),
            *self.agent_runtime.loops(),
            *self._event_subscribers(),
            *self._pingers(),
        ]
        return Engine(self.store, self.launchers, self.config, metrics, loops, tracing)

    def _event_subscribers(self) -> list[EventSubscriber]:
        settings, services = self._settings, self.services
        if not settings.event_servers:
            return []
        return [
            EventSubscriber(
                self.store,
                self.store.clock,
                settings.event_servers,
                services.keyring,
                settings.public_url,
                services.jobs.events,
                10 * self.config.tick_ms,
            )
        ]

    def _pingers(self) -> list[Pinger]:
        url, every_ms = self._ping
        if url is None:
            return []
        services = self.services
        return [
            Pinger(self.store.clock, url, every_ms, services.admin.status.ready, services.metrics.record_ping)
        ]


#: What the annotations of `Wakeful` name, which its modules import for type checkers only. They are added to
#: these modules: `get_type_hints` needs them, such as for a framework that injects an app.
ANNOTATED: Final[Mapping[str, object]] = {
    "Agent": Agent, "AppArguments": AppArguments, "Assembly": Assembly, "Declared": Declared,
    "Defaults": Defaults, "Engine": Engine, "EngineConfig": EngineConfig, "Enqueued": Enqueued,
    "FunctionLauncher": FunctionLauncher, "HandlerContext": HandlerContext, "JobOptions": JobOptions,
    "Scheduler": Scheduler, "Settings": Settings, "Store": Store, "Task": Task,
}  # fmt: skip
