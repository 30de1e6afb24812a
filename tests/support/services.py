"""Services over a store, without quotas, limits of lanes or targets of agents."""

from __future__ import annotations

from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.launch.secrets import Keyring
from wakeful.service.admin.limits import Budgets
from wakeful.service.admin.peaks import WeekCache
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import ALL, AgentTargetPolicy
from wakeful.service.jobs.job_editor import JobDependencies
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.service.jobs.save_warnings import SaveWarnings
from wakeful.service.runs.executors import Executors, Replicas
from wakeful.service.runs.runs import RunService
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.port import Store


def job_service(store: Store, launchers: LauncherRegistry) -> JobService:
    """Return the job service over a store."""
    accounts = Accounts(store, Defaults())
    return JobService(
        JobDependencies(
            store=store,
            launchers=launchers,
            keyring=Keyring([]),
            accounts=accounts,
            budgets=Budgets(store),
            target_policy=AgentTargetPolicy((ALL,)),
            lanes=None,
            allowance=None,
            hooks_per_minute=60,
            warnings=SaveWarnings(Executors(store), Replicas(store, launchers), WeekCache(store)),
            origins=RunOrigins(store, accounts),
            telemetry=RunTelemetry(Metrics()),
        )
    )


def run_service(store: Store) -> RunService:
    """Return the run service over a store."""
    return RunService(store, Accounts(store, Defaults()), Budgets(store), RunTelemetry(Metrics()))
