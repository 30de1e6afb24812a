"""Every use case, put together once a process. The faces are given this, and nothing below it."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.launch.secrets import Keyring
from wakeful.service.admin.alert_jobs import AlertJobs
from wakeful.service.admin.audit import AuditService
from wakeful.service.admin.budgets import Budgets
from wakeful.service.admin.quotas import QuotaService
from wakeful.service.admin.status import Status
from wakeful.service.admin.workflows import WorkflowService
from wakeful.service.agents.agents import AgentService, WorkspaceService
from wakeful.service.agents.heartbeats import Heartbeats
from wakeful.service.agents.messages import MessageService
from wakeful.service.agents.wakes import WakeJobs, WakeService
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_target_policy import AgentTargetPolicy
from wakeful.service.auth.connection_limits import ConnectionLimits
from wakeful.service.auth.jwt_auth import JwtTokens
from wakeful.service.auth.keys import KeyService, Tokens
from wakeful.service.auth.origins import Origins
from wakeful.service.event_stream import EventStream
from wakeful.service.idempotency import IdempotencyService
from wakeful.service.jobs.jobs import JobService
from wakeful.service.runs.pull import PullService
from wakeful.service.runs.runs import RunService
from wakeful.settings import Settings
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance


class Services:
    """The use cases by what they are about. Each takes who asks (`Principal`) before anything else."""

    def __init__(
        self,
        store: Store,
        targets: LauncherRegistry,
        keyring: Keyring,
        defaults: Defaults,
        settings: Settings,
        lanes: Iterable[str] | None = None,
    ) -> None:
        self.store = store
        self.keyring = keyring
        accounts = Accounts(store, defaults)
        self.jobs = JobService(
            store,
            targets,
            keyring,
            defaults,
            accounts=accounts,
            allowance=allowance(settings),
            lanes=lanes,
            target_policy=AgentTargetPolicy(settings.agent_targets),
        )
        self.runs = RunService(store, accounts)
        self.idempotency = IdempotencyService(store, keyring)
        self.pull = PullService(store, accounts, self.runs)
        wake_jobs = WakeJobs(store, accounts, keyring)
        self.wakes = WakeService(store, accounts, wake_jobs, defaults)
        self.messages = MessageService(store, accounts, wake_jobs, defaults)
        alert_jobs = AlertJobs(store, targets, keyring)
        uncharged = JobService(
            store, targets, keyring, defaults, accounts=accounts, lanes=lanes, internal=True
        )
        heartbeats = Heartbeats(store, uncharged)
        self.agents = AgentService(store, accounts, targets, keyring, alert_jobs, heartbeats)
        self.workspaces = WorkspaceService(store, accounts, alert_jobs)
        self.budgets = Budgets(store)
        self.keys = KeyService(store, accounts, tokens(settings))
        #: who issues the tokens that are accepted beside keys; None: only keys are, or it is not said
        self.issuer = settings.jwt_issuer if settings.jwt_secret or settings.jwks_url else None
        self.audit = AuditService(store, accounts)
        self.quotas = QuotaService(store, accounts)
        self.workflows = WorkflowService(store, accounts)
        self.events = EventStream(store, accounts)
        self.connection_limits = ConnectionLimits(
            settings.max_connections,
            settings.max_connections_per_key,
            settings.max_unauthenticated_connections,
        )
        self.metrics = Metrics()
        self.metrics.connections = self.connection_limits.open
        self.metrics_key = settings.metrics_key
        self.origins = Origins(settings.allowed_origins, settings.allowed_hosts)
        self.status = Status(store, accounts)

    def now_ms(self) -> int:
        """Return the current time of the store's clock."""
        return self.store.clock.now_ms()


def allowance(settings: Settings) -> Allowance:
    """The limits that hold where no other is set: 0 in the settings is none."""
    return Allowance(
        create_per_workspace=settings.quota_create_per_workspace or None,
        create_per_agent=settings.quota_create_per_agent or None,
        live_per_workspace=settings.quota_jobs_per_workspace or None,
        live_per_agent=settings.quota_jobs_per_agent or None,
    )


def tokens(settings: Settings) -> Tokens | None:
    """What reads signed tokens, where the operator says how they are signed."""
    if not settings.jwt_secret and not settings.jwks_url:
        return None
    return JwtTokens(
        secret=settings.jwt_secret,
        jwks_url=settings.jwks_url,
        audience=settings.jwt_audience,
        issuer=settings.jwt_issuer,
    )
