"""Every use case, put together once a process. The faces are given this, and nothing below it."""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.document import Defaults
from wakeful.engine.meters import Meters
from wakeful.engine.targets import Targets
from wakeful.launch.secrets import Keyring
from wakeful.service.agents import AgentService, WorkspaceService
from wakeful.service.budgets import Budgets
from wakeful.service.by_hand import ByHand
from wakeful.service.directory import Directory
from wakeful.service.feed import Feed
from wakeful.service.heartbeats import Heartbeats
from wakeful.service.idempotency import IdempotencyService
from wakeful.service.jobs import JobService
from wakeful.service.keys import KeyService, Tokens
from wakeful.service.ledger import AuditService, QuotaService, WorkflowService
from wakeful.service.messages import MessageService
from wakeful.service.origins import Origins
from wakeful.service.places import Places
from wakeful.service.pull import PullService
from wakeful.service.reach import Reach
from wakeful.service.runs import RunService
from wakeful.service.senders import Senders
from wakeful.service.status import Status
from wakeful.service.tokens import JwtTokens
from wakeful.service.waking import WakeService
from wakeful.settings import Settings
from wakeful.store.office import Allowance
from wakeful.store.port import Store


class Services:
    """The use cases by what they are about. Each takes who asks (`Principal`) before anything else."""

    def __init__(
        self,
        store: Store,
        targets: Targets,
        keyring: Keyring,
        defaults: Defaults,
        settings: Settings,
        lanes: Iterable[str] | None = None,
    ) -> None:
        self.store = store
        self.keyring = keyring
        directory = Directory(store, defaults)
        self.jobs = JobService(
            store,
            targets,
            keyring,
            defaults,
            directory=directory,
            allowance=allowance(settings),
            lanes=lanes,
            reach=Reach(settings.agent_targets),
        )
        self.runs = RunService(store, directory)
        self.idempotency = IdempotencyService(store, keyring)
        self.pull = PullService(store, directory, self.runs, targets)
        by_hand = ByHand(store, directory, keyring)
        self.wakes = WakeService(store, directory, by_hand, defaults)
        self.messages = MessageService(store, directory, by_hand, defaults)
        senders = Senders(store, targets, keyring)
        uncharged = JobService(
            store, targets, keyring, defaults, directory=directory, lanes=lanes, internal=True
        )
        heartbeats = Heartbeats(store, uncharged)
        self.agents = AgentService(store, directory, targets, keyring, senders, heartbeats)
        self.workspaces = WorkspaceService(store, directory, senders)
        self.budgets = Budgets(store)
        self.keys = KeyService(store, directory, tokens(settings))
        #: who issues the tokens that are accepted beside keys; None: only keys are, or it is not said
        self.issuer = settings.jwt_issuer if settings.jwt_secret or settings.jwks_url else None
        self.audit = AuditService(store, directory)
        self.quotas = QuotaService(store, directory)
        self.workflows = WorkflowService(store, directory)
        self.feed = Feed(store, directory)
        self.places = Places(
            settings.max_connections,
            settings.max_connections_per_key,
            settings.max_unauthenticated_connections,
        )
        self.meters = Meters()
        self.meters.connections = self.places.open
        self.metrics_key = settings.metrics_key
        self.origins = Origins(settings.allowed_origins, settings.allowed_hosts)
        self.status = Status(store, directory)


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
