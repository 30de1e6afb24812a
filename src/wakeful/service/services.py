"""All services of a process, composed by area. The interfaces use these and nothing below them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.celery.launcher import CeleryLauncher
from wakeful.launch.event_callback import KIND as EVENT_KIND
from wakeful.launch.event_callback import EventLauncher
from wakeful.launch.queue.launcher import QueueLauncher
from wakeful.launch.secrets import Keyring
from wakeful.run.instances import InstanceLimits
from wakeful.service.admin.audit import AuditService
from wakeful.service.admin.calendar import CalendarService
from wakeful.service.admin.channels import ChannelService
from wakeful.service.admin.cost import CostService
from wakeful.service.admin.doctor import Doctor
from wakeful.service.admin.evolution import Evolution
from wakeful.service.admin.evolution_jobs import EvolutionJobs
from wakeful.service.admin.figures import Attention, Figures
from wakeful.service.admin.inbox import InboxService
from wakeful.service.admin.incidents import IncidentService
from wakeful.service.admin.limits import Budgets, QuotaService
from wakeful.service.admin.peaks import PeakService, WeekCache
from wakeful.service.admin.settings import SettingsService
from wakeful.service.admin.status import Status, WorkerService
from wakeful.service.admin.suggestions import SuggestionService
from wakeful.service.admin.workflows import WorkflowService
from wakeful.service.agents.agents import AgentService, WorkspaceService
from wakeful.service.agents.instances import InstanceService
from wakeful.service.agents.internal_jobs import AlertJobs, Heartbeats
from wakeful.service.agents.messages import MessageService, WakeJobs, WakeService
from wakeful.service.agents.overviews import AgentOverviews
from wakeful.service.agents.sessions import SessionService
from wakeful.service.agents.signals import AgentClasses, SignalService
from wakeful.service.agents.subscriptions import Subscriptions
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import AgentTargetPolicy
from wakeful.service.auth.client_documents import ClientDocuments
from wakeful.service.auth.connections import ConnectionLimits, OpenUses, Origins
from wakeful.service.auth.keys import KeyService
from wakeful.service.auth.oauth import OAuthService
from wakeful.service.auth.people import PeopleService
from wakeful.service.auth.rate_limits import SignInLimits
from wakeful.service.auth.web_sessions import WebSessions
from wakeful.service.coalesced_events import CoalescedEvents
from wakeful.service.event_stream import EventStream
from wakeful.service.idempotency import IdempotencyService
from wakeful.service.jobs.event_receiver import EventDeliveries
from wakeful.service.jobs.job_details import JobDetailReader, JobOverviews
from wakeful.service.jobs.job_editor import JobDependencies
from wakeful.service.jobs.job_factory import JobFactory
from wakeful.service.jobs.job_snippets import JobTexts
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.service.jobs.save_warnings import SaveWarnings
from wakeful.service.jobs.schedule_previews import SchedulePreviews
from wakeful.service.jobs.target_tests import TargetTests
from wakeful.service.rights import RightsReader
from wakeful.service.runs.broker_reports import BrokerReports
from wakeful.service.runs.dead_letters import DeadLetterService
from wakeful.service.runs.executors import Executors, Replicas, WaitingReasons
from wakeful.service.runs.pull import PullService
from wakeful.service.runs.run_details import RunDetailReader, RunFinder
from wakeful.service.runs.runs import RunService
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.service.search import SearchService
from wakeful.settings import Settings
from wakeful.store.internal_jobs import WORKSPACE_AGENT
from wakeful.store.port import Store
from wakeful.store.quotas import CREATE_JOB, INSTANCES, LIVE_JOBS, Allowance
from wakeful.store.sql.driver import TenantTurns
from wakeful.values.clock import Clock
from wakeful.values.duration import HOUR

if TYPE_CHECKING:
    from wakeful.service.auth.jwt_auth import JwtTokens
    from wakeful.service.auth.openid import OpenIdProvider

#: How many lists of one tenant are read and sent at once.
PAGES_AT_ONCE: Final = 8
#: How many requests with many jobs of one tenant are received at once, and how many of all are performed.
BATCHES_AT_ONCE: Final = 2
ALL_BATCHES_AT_ONCE: Final = 4


class RunArea(RunService):
    """The service of runs, and those beside it."""

    def __init__(self, services: Services) -> None:
        store, accounts, telemetry = services.store, services.accounts, services.telemetry
        super().__init__(store, accounts, services.budgets, telemetry)
        self.broker_reports = BrokerReports(store, telemetry, services.metrics.record_report)
        services.launchers.receive_reports(self.broker_reports.apply)
        self.dead_letters = DeadLetterService(store, accounts, self)
        self.finder = RunFinder(store, self)
        self.waiting = WaitingReasons(store, services.executors, services.replicas, services.metrics)
        self.details = RunDetailReader(store, self, self.finder, self.waiting)
        self.pull = PullService(store, accounts, self, services.executors, services.launchers, telemetry)


class JobArea(JobService):
    """The service of jobs, and those beside it."""

    def __init__(self, services: Services, runs: RunService) -> None:
        store, accounts, settings = services.store, services.accounts, services.settings
        dependencies = JobDependencies(
            store=store,
            launchers=services.launchers,
            keyring=services.keyring,
            accounts=accounts,
            budgets=services.budgets,
            target_policy=services.target_policy,
            lanes=services.lanes,
            allowance=allowance(settings),
            hooks_per_minute=settings.hooks_per_minute,
            warnings=services.warnings,
            origins=services.origins,
            telemetry=services.telemetry,
        )
        super().__init__(dependencies)
        self._dependencies = dependencies
        self._metrics = services.metrics
        self.events = EventDeliveries(store, services.keyring, services.telemetry, settings.event_servers)
        self.previews = SchedulePreviews(store, accounts, services.weeks)
        self.target_tests = TargetTests(dependencies, services.executors, services.replicas)
        self.texts = JobTexts(accounts)
        self.overviews = JobOverviews(store, accounts)
        self.details = JobDetailReader(
            store,
            self,
            runs,
            services.budgets,
            services.executors,
            services.replicas,
            services.metrics,
        )

    def with_store(self, store: Store) -> JobService:
        """Return the same service for a store that plans writes: it records no spans of the runs."""
        return JobService(replace(self._dependencies, store=store, telemetry=RunTelemetry(self._metrics)))


class AgentArea(AgentService):
    """The service of agents, and those of their instances, messages and workspaces."""

    def __init__(self, services: Services) -> None:
        store, accounts, keyring = services.store, services.accounts, services.keyring
        budgets, origins, telemetry = services.budgets, services.origins, services.telemetry
        alert_jobs = AlertJobs(store, services.launchers, keyring)
        self.evolution_jobs = EvolutionJobs(store)
        self.classes = AgentClasses(store, accounts)
        super().__init__(
            store,
            accounts,
            services.launchers,
            keyring,
            alert_jobs,
            Heartbeats(store, JobFactory(services.launchers, keyring, services.lanes)),
            self.evolution_jobs,
            services.warnings,
            self.classes,
        )
        self.overviews = AgentOverviews(store, accounts, budgets)
        limits = self.instance_limits = instance_limits(services.settings)
        self.instances = InstanceService(store, accounts, self.classes, limits, origins)
        self.signals = SignalService(store, accounts, budgets, self.classes, limits, origins, telemetry)
        wake_jobs = WakeJobs(store, accounts, keyring)
        self.wakes = WakeService(store, accounts, budgets, wake_jobs, origins, telemetry)
        self.messages = MessageService(store, accounts, budgets, wake_jobs, origins)
        self.sessions = SessionService(store, accounts)
        self.workspaces = WorkspaceService(store, accounts, alert_jobs)
        events = services.launchers.launcher(EVENT_KIND)
        self.subscriptions = Subscriptions(
            store,
            accounts,
            keyring,
            events if isinstance(events, EventLauncher) else None,
            services.target_policy,
            allowance(services.settings),
        )

    async def repair_internal_jobs(self, workspace: str, agent: str) -> None:
        """Write the internal jobs of an agent by its document, and those of its workspace with `default`."""
        await self.repair(workspace, agent)
        if agent == WORKSPACE_AGENT:
            await self.workspaces.repair(workspace)


class AuthArea:
    """Keys, sessions of the dashboard, and connections."""

    def __init__(self, services: Services) -> None:
        store, settings = services.store, services.settings
        self.keys = KeyService(store, services.accounts, tokens(settings))
        self.web_sessions = WebSessions(
            store,
            services.accounts,
            self.keys,
            SignInLimits(store, settings.failed_sign_ins_per_minute),
            idle_ms=settings.session_idle_hours * HOUR,
            max_ms=settings.session_max_hours * HOUR,
        )
        self.oauth = OAuthService(store, services.accounts, self.keys)
        self.client_documents = ClientDocuments(AddressGuard(allow_private=settings.allow_private_targets))
        self.people = PeopleService(store, services.accounts)
        #: the issuer at which people sign in; None: only with keys
        self.openid = open_id_provider(settings, store.clock)
        self.open_uses = OpenUses(store)
        #: the issuer of accepted tokens; None: tokens are not accepted, or no issuer is set
        self.issuer = settings.jwt_issuer if settings.jwt_secret or settings.jwks_url else None
        #: whether people may connect assistants with OAuth
        self.oauth_enabled = settings.oauth and self.issuer is None
        self.connection_limits = ConnectionLimits(
            settings.max_connections,
            settings.max_connections_per_key,
            settings.max_unauthenticated_connections,
            settings.max_connections_per_workspace,
            settings.max_requests_per_workspace,
        )
        services.metrics.connections = self.connection_limits.open
        self.origins = Origins(settings.allowed_origins, settings.allowed_hosts)


class AdminArea:
    """What operators read and set: load, cost, incidents, suggestions, audit, quotas, status."""

    def __init__(self, services: Services, jobs: JobService, runs: RunService) -> None:
        store, accounts, settings = services.store, services.accounts, services.settings
        self.budgets = services.budgets
        self.peaks = PeakService(store, accounts, services.weeks)
        self.figures = Figures(store, accounts, self.peaks)
        self.calendar = CalendarService(store, accounts, self.figures)
        self.attention = Attention(store, accounts, services.launchers, services.metrics)
        self.audit = AuditService(store, accounts)
        self.quotas = QuotaService(store, accounts, default_quotas(settings))
        self.cost = CostService(store, accounts)
        self.workflows = WorkflowService(store, accounts)
        self.incidents = IncidentService(store, accounts)
        self.suggestions = SuggestionService(store, accounts, jobs)
        self.inbox = InboxService(store, accounts, jobs, runs, self.suggestions, self.incidents)
        self.evolution = Evolution(store, services.launchers, self.suggestions)
        self.status = Status(store, accounts)
        queue, celery = services.launchers.launcher("queue"), services.launchers.launcher("celery")
        self.doctor = Doctor(
            store,
            accounts,
            settings,
            services.metrics,
            self.status,
            sorted(settings.channels),
            services.launchers.check,
            nats=queue.connection if isinstance(queue, QueueLauncher) else None,
            celery=celery if isinstance(celery, CeleryLauncher) else None,
        )
        self.workers = WorkerService(store, accounts, services.metrics, self.status)
        self.channels = ChannelService(store, accounts, settings.channels)
        self.settings = SettingsService(accounts, settings)


class Services:
    """The services by area. Every method takes the caller (`Principal`) first."""

    def __init__(
        self,
        store: Store,
        launchers: LauncherRegistry,
        keyring: Keyring,
        defaults: Defaults,
        settings: Settings,
        metrics: Metrics,
        lanes: Iterable[str] | None,
    ) -> None:
        # What the services of several areas use.
        self.store = store
        self.launchers = launchers
        self.keyring = keyring
        self.settings = settings
        self.metrics = metrics
        #: None: the process has no workers, and accepts every lane
        self.lanes = frozenset(lanes or ()) or None
        self.accounts = Accounts(store, defaults)
        self.budgets = Budgets(store)
        self.executors = Executors(store)
        self.replicas = Replicas(store, launchers)
        self.weeks = WeekCache(store)
        self.origins = RunOrigins(store, self.accounts)
        self.warnings = SaveWarnings(
            self.executors, self.replicas, self.weeks, settings.channels, settings.event_servers
        )
        self.telemetry = RunTelemetry(metrics)
        self.target_policy = AgentTargetPolicy(settings.agent_targets, settings.chat_targets)
        # The areas, and what belongs to none.
        self.metrics_key = settings.metrics_key
        #: the address of the server in trigger URLs and sign-in links; None: that of the request
        self.public_url = settings.public_url
        self.runs = RunArea(self)
        self.jobs = JobArea(self, self.runs)
        self.agents = AgentArea(self)
        self.auth = AuthArea(self)
        self.admin = AdminArea(self, self.jobs, self.runs)
        self.rights = RightsReader(store, self.accounts, self.origins, self.target_policy)
        self.search = SearchService(store, self.jobs, self.runs)
        self.idempotency = IdempotencyService(store, keyring)
        self.events = EventStream(store, self.accounts)
        self.live = CoalescedEvents(store, self.accounts)
        #: for lists of jobs and runs: a page may take a hundred megabytes until it is sent
        self.pages = TenantTurns(PAGES_AT_ONCE)
        #: for requests with many jobs, which take as much
        self.batches = TenantTurns(BATCHES_AT_ONCE)
        self.all_batches = asyncio.Semaphore(ALL_BATCHES_AT_ONCE)

    async def close(self) -> None:
        """End what runs in the background. The store is closed after it."""
        async with AsyncExitStack() as stack:  # one that fails or is cancelled keeps no other running
            stack.push_async_callback(self.runs.pull.close)
            stack.push_async_callback(self.auth.keys.close)
            stack.push_async_callback(self.auth.open_uses.close)
            stack.push_async_callback(self.auth.web_sessions.close)
            stack.push_async_callback(self.admin.calendar.close)
            stack.push_async_callback(self.weeks.close)
        # The scheduler may start again on another event loop.
        self.all_batches = asyncio.Semaphore(ALL_BATCHES_AT_ONCE)

    def now_ms(self) -> int:
        """Return the current time of the store's clock."""
        return self.store.clock.now_ms()


def allowance(settings: Settings) -> Allowance:
    """Return the default quotas: 0 in the settings is no limit."""
    return Allowance(
        create_per_workspace=settings.quota_create_per_workspace or None,
        create_per_agent=settings.quota_create_per_agent or None,
        live_per_workspace=settings.quota_jobs_per_workspace or None,
        live_per_agent=settings.quota_jobs_per_agent or None,
    )


def default_quotas(settings: Settings) -> dict[tuple[str, bool], int | None]:
    """Return the default limits by bucket, of workspaces (False) and agents (True)."""
    jobs, instances = allowance(settings), instance_limits(settings)
    return {
        (CREATE_JOB, False): jobs.create_per_workspace,
        (CREATE_JOB, True): jobs.create_per_agent,
        (LIVE_JOBS, False): jobs.live_per_workspace,
        (LIVE_JOBS, True): jobs.live_per_agent,
        (INSTANCES, False): instances.per_workspace,
        (INSTANCES, True): instances.per_agent,
    }


def instance_limits(settings: Settings) -> InstanceLimits:
    """Return the default limits of instances: 0 in the settings is no limit."""
    return InstanceLimits(
        settings.quota_instances_per_workspace or None, settings.quota_instances_per_agent or None
    )


def open_id_provider(settings: Settings, clock: Clock) -> OpenIdProvider | None:
    """Return the issuer where people sign in; None if none is configured."""
    if not settings.oidc_issuer:
        return None
    from wakeful.service.auth.openid import OpenIdProvider  # imports aiohttp

    return OpenIdProvider(settings, clock)


def tokens(settings: Settings) -> JwtTokens | None:
    """Return what verifies signed tokens; None if none are configured."""
    if not settings.jwt_secret and not settings.jwks_url:
        return None
    from wakeful.service.auth.jwt_auth import JwtTokens  # imports PyJWT and its ciphers

    return JwtTokens(
        secret=settings.jwt_secret,
        jwks_url=settings.jwks_url,
        audience=settings.jwt_audience,
        issuer=settings.jwt_issuer,
    )
