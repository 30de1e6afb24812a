"""All services of a process, composed once. The interfaces use these and nothing below them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final

from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.engine.tracing import Tracing
from wakeful.launch.celery.launcher import CeleryLauncher
from wakeful.launch.queue.launcher import QueueLauncher
from wakeful.launch.secrets import Keyring
from wakeful.run.instances import InstanceLimits
from wakeful.run.outcome import Finished
from wakeful.service.admin.alert_jobs import AlertJobs
from wakeful.service.admin.attention import Attention
from wakeful.service.admin.audit import AuditService
from wakeful.service.admin.calendar import CalendarService
from wakeful.service.admin.channels import ChannelService
from wakeful.service.admin.cost import CostService
from wakeful.service.admin.doctor import Doctor
from wakeful.service.admin.evolution import Evolution
from wakeful.service.admin.evolution_jobs import EvolutionJobs
from wakeful.service.admin.figures import Figures
from wakeful.service.admin.incidents import IncidentService
from wakeful.service.admin.limits import Budgets, QuotaService
from wakeful.service.admin.peaks import PeakService, WeekCache
from wakeful.service.admin.settings import SettingsService
from wakeful.service.admin.status import Status, WorkerService
from wakeful.service.admin.suggestions import SuggestionService
from wakeful.service.admin.workflows import WorkflowService
from wakeful.service.agents.agents import AgentService, WorkspaceService
from wakeful.service.agents.heartbeats import Heartbeats
from wakeful.service.agents.instances import InstanceService
from wakeful.service.agents.messages import MessageService, WakeJobs, WakeService
from wakeful.service.agents.overviews import AgentOverviews
from wakeful.service.agents.sessions import SessionService
from wakeful.service.agents.signals import AgentClasses, SignalService
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import AgentTargetPolicy
from wakeful.service.auth.connections import ConnectionLimits, OpenUses, Origins
from wakeful.service.auth.jwt_auth import JwtTokens
from wakeful.service.auth.keys import KeyService, Tokens
from wakeful.service.auth.rate_limits import SignInLimits
from wakeful.service.auth.web_sessions import WebSessions
from wakeful.service.coalesced_events import CoalescedEvents
from wakeful.service.event_stream import EventStream
from wakeful.service.idempotency import IdempotencyService
from wakeful.service.jobs.job_details import JobDetailReader, JobOverviews
from wakeful.service.jobs.job_editor import JobDependencies
from wakeful.service.jobs.job_factory import JobFactory
from wakeful.service.jobs.job_snippets import JobTexts
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.service.jobs.save_warnings import SaveWarnings
from wakeful.service.jobs.schedule_previews import SchedulePreviews
from wakeful.service.jobs.target_tests import TargetTests
from wakeful.service.runs.broker_reports import BrokerReports
from wakeful.service.runs.dead_letters import DeadLetterService
from wakeful.service.runs.executors import Executors, Replicas
from wakeful.service.runs.pull import PullService
from wakeful.service.runs.report_batches import ReportBatches
from wakeful.service.runs.run_details import RunDetailReader, RunFinder
from wakeful.service.runs.runs import RunService
from wakeful.service.runs.waiting import WaitingReasons
from wakeful.service.search import SearchService
from wakeful.settings import Settings
from wakeful.store.internal_jobs import WORKSPACE_AGENT
from wakeful.store.port import Store
from wakeful.store.quotas import CREATE_JOB, INSTANCES, LIVE_JOBS, Allowance
from wakeful.store.rows import RunView
from wakeful.store.sql.driver import TenantTurns
from wakeful.values.duration import HOUR

#: How many lists of one tenant are read and sent at once.
PAGES_AT_ONCE: Final = 8


class Services:
    """The services by subject. Every method takes the caller (`Principal`) first."""

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
        self.store = store
        self.keyring = keyring
        accounts = self.accounts = Accounts(store, defaults)
        self.budgets = Budgets(store)
        self.executors = Executors(store)
        replicas = Replicas(store, launchers)
        self._weeks = WeekCache(store)
        self.peaks = PeakService(store, accounts, self._weeks)
        self.figures = Figures(store, accounts, self.peaks)
        self.calendar = CalendarService(store, accounts, self.figures)
        self.attention = Attention(store, accounts, launchers, metrics)
        warnings = SaveWarnings(self.executors, replicas, self._weeks, settings.channels)
        run_origins = RunOrigins(store, accounts)
        job_dependencies = JobDependencies(
            store=store,
            launchers=launchers,
            keyring=keyring,
            accounts=accounts,
            budgets=self.budgets,
            target_policy=AgentTargetPolicy(settings.agent_targets, settings.chat_targets),
            lanes=frozenset(lanes or ()) or None,
            allowance=allowance(settings),
            hooks_per_minute=settings.hooks_per_minute,
            warnings=warnings,
            origins=run_origins,
        )
        self.jobs = JobService(job_dependencies)
        self.schedule_previews = SchedulePreviews(store, accounts, self._weeks)
        self.target_tests = TargetTests(job_dependencies, self.executors, replicas)
        self.job_texts = JobTexts(accounts)
        self.job_overviews = JobOverviews(store, accounts)
        self.runs = RunService(store, accounts, self.budgets)
        self.broker_reports = BrokerReports(store, self.runs, metrics.record_report)
        launchers.receive_reports(self.broker_reports.apply)
        self.search = SearchService(store, self.jobs, self.runs)
        self.dead_letters = DeadLetterService(store, accounts, self.runs)
        self.run_finder = RunFinder(store, self.runs)
        self.waiting = WaitingReasons(store, self.executors, replicas, metrics)
        self.run_details = RunDetailReader(store, self.runs, self.run_finder, self.waiting)
        self.job_details = JobDetailReader(
            store, self.jobs, self.runs, self.budgets, self.executors, replicas, metrics
        )
        self.idempotency = IdempotencyService(store, keyring)
        self.pull = PullService(store, accounts, self.runs, self.executors, launchers)
        self.reports = ReportBatches(store, accounts, self.runs)
        wake_jobs = WakeJobs(store, accounts, keyring)
        self.wakes = WakeService(store, accounts, self.budgets, wake_jobs, run_origins)
        self.messages = MessageService(store, accounts, self.budgets, wake_jobs, run_origins)
        self.sessions = SessionService(store, accounts)
        alert_jobs = AlertJobs(store, launchers, keyring)
        heartbeats = Heartbeats(store, JobFactory(launchers, keyring, job_dependencies.lanes))
        self.evolution_jobs = EvolutionJobs(store)
        self.agents = AgentService(
            store,
            accounts,
            launchers,
            keyring,
            alert_jobs,
            heartbeats,
            self.evolution_jobs,
            warnings,
        )
        self.agent_overviews = AgentOverviews(store, accounts, self.budgets)
        self.agent_classes = AgentClasses(store, accounts)
        self.agents.on_deleted = self._agent_deleted
        limits = self.instance_limits = instance_limits(settings)
        self.instances = InstanceService(store, accounts, self.agent_classes, limits, run_origins)
        self.signals = SignalService(store, accounts, self.budgets, self.agent_classes, limits, run_origins)
        self.workspaces = WorkspaceService(store, accounts, alert_jobs)
        self.keys = KeyService(store, accounts, tokens(settings))
        self.web_sessions = WebSessions(
            store,
            accounts,
            self.keys,
            SignInLimits(store, settings.failed_sign_ins_per_minute),
            idle_ms=settings.session_idle_hours * HOUR,
            max_ms=settings.session_max_hours * HOUR,
        )
        self.keys.on_revoked = self.web_sessions.forget
        self.open_uses = OpenUses(store, self._forget_credentials)
        #: the issuer of accepted tokens; None: tokens are not accepted, or no issuer is set
        self.issuer = settings.jwt_issuer if settings.jwt_secret or settings.jwks_url else None
        self.audit = AuditService(store, accounts)
        self.quotas = QuotaService(store, accounts, default_quotas(settings))
        self.cost = CostService(store, accounts)
        self.workflows = WorkflowService(store, accounts)
        self.incidents = IncidentService(store, accounts)
        self.suggestions = SuggestionService(store, accounts, self.jobs)
        self.evolution = Evolution(store, launchers, self.suggestions)
        self.events = EventStream(store, accounts)
        self.live = CoalescedEvents(store, accounts)
        self.connection_limits = ConnectionLimits(
            settings.max_connections,
            settings.max_connections_per_key,
            settings.max_unauthenticated_connections,
            settings.max_connections_per_workspace,
            settings.max_requests_per_workspace,
        )
        #: for lists of jobs and runs: a page may take a hundred megabytes until it is sent
        self.pages = TenantTurns(PAGES_AT_ONCE)
        self.metrics = metrics
        self.runs.on_completed = self._completed
        self.metrics.connections = self.connection_limits.open
        self.metrics_key = settings.metrics_key
        #: the address of the server in trigger URLs and sign-in links; None: that of the request
        self.public_url = settings.public_url
        self.origins = Origins(settings.allowed_origins, settings.allowed_hosts)
        self.status = Status(store, accounts)
        queue, celery = launchers.launcher("queue"), launchers.launcher("celery")
        self.doctor = Doctor(
            store,
            accounts,
            settings,
            metrics,
            self.status,
            sorted(settings.channels),
            launchers.check,
            nats=queue.connection if isinstance(queue, QueueLauncher) else None,
            celery=celery if isinstance(celery, CeleryLauncher) else None,
        )
        self.workers = WorkerService(store, accounts, metrics, self.status)
        self.channels = ChannelService(store, accounts, settings.channels)
        self.settings = SettingsService(accounts, settings)
        self.tracing: Tracing | None = None

    def _completed(self, finished: Finished, run: RunView) -> None:
        """Count a run that was completed from outside, and record its span."""
        self.metrics.record_finished([finished], (), [(run.workspace, run.agent, finished.state)])
        if self.tracing is not None:
            self.tracing.finished(self.tracing.now_ns(), run.worker or "", [run], 1, 1)

    def _agent_deleted(self) -> None:
        self.agent_classes.forget()
        self._forget_credentials()

    def _forget_credentials(self, key_id: str | None = None) -> None:
        self.keys.forget(key_id)
        self.web_sessions.forget(key_id)

    def trace(self, tracing: Tracing | None) -> None:
        """Record a span for each run that a request creates; None: do not."""
        self.tracing = tracing
        record = _ignore if tracing is None else tracing.triggered
        self.jobs.triggers.on_triggered = record
        self.jobs.hooks.on_triggered = record
        self.wakes.on_triggered = record
        self.signals.on_triggered = record
        self.runs.on_triggered = record
        self.pull.claims.tracing = tracing

    async def repair_internal_jobs(self, workspace: str, agent: str) -> None:
        """Write the internal jobs of an agent by its document, and those of its workspace with `default`."""
        await self.agents.repair(workspace, agent)
        if agent == WORKSPACE_AGENT:
            await self.workspaces.repair(workspace)

    async def close(self) -> None:
        """End what runs in the background. The store is closed after it."""
        async with AsyncExitStack() as stack:  # one that fails or is cancelled keeps no other running
            stack.push_async_callback(self.pull.close)
            stack.push_async_callback(self.keys.close)
            stack.push_async_callback(self.open_uses.close)
            stack.push_async_callback(self.web_sessions.close)
            stack.push_async_callback(self.calendar.close)
            stack.push_async_callback(self._weeks.close)

    def now_ms(self) -> int:
        """Return the current time of the store's clock."""
        return self.store.clock.now_ms()


def _ignore(run: RunView) -> None:
    pass


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


def tokens(settings: Settings) -> Tokens | None:
    """Return what verifies signed tokens; None if none are configured."""
    if not settings.jwt_secret and not settings.jwks_url:
        return None
    return JwtTokens(
        secret=settings.jwt_secret,
        jwks_url=settings.jwks_url,
        audience=settings.jwt_audience,
        issuer=settings.jwt_issuer,
    )
