"""Collects what `wakeful doctor` checks, with the rules for brokers. The others are in `diagnosis`."""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from wakeful.deliver.channels import apprise_installed
from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import NotFound, Unavailable, WakefulError
from wakeful.job.policy import DAY_MS
from wakeful.launch.celery.launcher import CeleryLauncher
from wakeful.launch.queue.connection import NatsConnection
from wakeful.logs import get_logger
from wakeful.model.codec import JsonObject, from_ms, to_json
from wakeful.model.reports import Check, DoctorReport
from wakeful.service.admin import diagnosis
from wakeful.service.admin.diagnosis import check_targets
from wakeful.service.admin.status import Status
from wakeful.service.admin.target_checks import read_targets, read_undelivered
from wakeful.service.auth.access import Principal, may_operate, permit
from wakeful.service.auth.accounts import Accounts
from wakeful.settings import Settings
from wakeful.store.address import mask_address
from wakeful.store.connect import Inspection, inspect_database, sqlite_path
from wakeful.store.port import Store
from wakeful.values.json_value import Json
from wakeful.values.process_share import current_share

#: The longest time for one check.
TIMEOUT_S: Final = 3.0
#: Leases that expired longer ago are stuck: rescuing takes seconds.
_STUCK_MS: Final = 60_000
#: The number of newest dead letters and deliveries that are counted.
_COUNTED: Final = 10_000
_AGENTS: Final = 20
_NO_DATABASE: Final = "the database does not respond"

log = get_logger("wakeful.doctor")


class Doctor:
    """Checks this process, its database and a workspace."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        settings: Settings,
        metrics: Metrics,
        status: Status,
        channels: Sequence[str],
        check_target: Callable[[Mapping[str, Json]], None],
        nats: NatsConnection | None = None,
        celery: CeleryLauncher | None = None,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._settings = settings
        self._metrics = metrics
        self._status = status
        self._channels = channels
        self._check_target = check_target
        self._nats = nats
        self._celery = celery

    async def examine(self, principal: Principal, workspace: str) -> JsonObject:
        """Return all checks that the caller may see.

        A key for all workspaces sees those of the whole installation; the admin of a workspace those of the
        workspace.
        """
        permit(principal, "diagnose", workspace)
        operator = may_operate(principal)
        database = await self._database()
        if database.state != "error":
            await self._accounts.authorize(principal, "diagnose", workspace)
        of = None if operator else workspace
        checks = [database] if operator else []
        reads = self._reads(of)
        for name, read in reads.items():
            if database.state == "error":
                checks.append(diagnosis.check_failed(name, _NO_DATABASE))
            else:
                checks += await _within(name, read)
        if operator and self._nats is not None and self._nats.configured:
            checks.append(check_nats(self._nats.server, self._nats.error))
        if operator and self._celery is not None:
            checks += await _within("celery", self._celery_app)
        if operator:
            checks.append(self._settings_check())
        return to_json(
            DoctorReport(
                workspace=workspace,
                scope="installation" if operator else "workspace",
                now=from_ms(self._store.clock.now_ms()),
                state=diagnosis.worst(checks),
                checks=tuple(checks),
            )
        )

    def _reads(self, workspace: str | None) -> dict[str, Callable[[], Awaitable[list[Check]]]]:
        """Return what reads the database, by name: of a workspace, or of the installation (None)."""

        async def leases() -> list[Check]:
            before_ms = self._store.clock.now_ms() - LEASE_MS - _STUCK_MS
            return [diagnosis.check_leases(await self._store.expired_leases(workspace, before_ms))]

        async def dead_letters() -> list[Check]:
            counted = await self._store.dead_letters_by_reason(workspace, _COUNTED)
            return [diagnosis.check_dead_letters(counted)]

        async def channels() -> list[Check]:
            since_ms = self._store.clock.now_ms() - DAY_MS
            counts = await self._store.delivery_counts(workspace, since_ms, _COUNTED)
            unreachable = await read_undelivered(self._store, workspace, self._channels)
            return [diagnosis.check_channels(self._channels, apprise_installed(), counts, unreachable)]

        async def chat() -> list[Check]:
            found = await read_targets(self._store, workspace, "chat", self._check_target)
            # Only the operator can bind keys.
            keys = sorted(self._settings.chat_keys.keys() - self._settings.chat_hosts.keys())
            return [diagnosis.check_chat(*found, unbound=keys if workspace is None else ())]

        async def incidents() -> list[Check]:
            assert workspace is not None
            stats = await self._store.workspace_stats(workspace)
            return [diagnosis.check_incidents(stats.open_incidents, stats.acknowledged_incidents)]

        async def chains() -> list[Check]:
            alone = await self._store.dangling_jobs(workspace, _COUNTED)
            chained = await self._store.chained_jobs(workspace, _COUNTED)
            return [diagnosis.check_chains(alone, diagnosis.find_cycles(chained))]

        async def events() -> list[Check]:
            figures = await self._store.event_figures(workspace)
            return [diagnosis.check_events(figures, self._store.clock.now_ms())]

        of_workspace = {
            "leases": leases,
            "dead letters": dead_letters,
            "chains": chains,
            "channels": channels,
            "chat": chat,
            "events": events,
        }
        if workspace is not None:
            return {**of_workspace, "incidents": incidents}
        return {
            "schema": self._schema,
            "clock": self._clock,
            "connections": self._connections,
            "work": self._work,
            **of_workspace,
            "disk": self._disk,
        }

    async def _database(self) -> Check:
        address = mask_address(self._settings.db)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._store.ping()
        except TimeoutError:
            return diagnosis.check_database(address, None, f"{address} does not respond in {TIMEOUT_S:.0f} s")
        except WakefulError as error:
            return diagnosis.check_database(address, None, error.message)
        return diagnosis.check_database(address, 1000 * (time.perf_counter() - began), None)

    async def _schema(self) -> list[Check]:
        return [diagnosis.check_schema(await self._store.schema(), self._store.newest_schema)]

    async def log_few_connections(self) -> None:
        """Log a warning if the database server does not accept all connections that this one may open."""
        for check in await _within("connections", self._connections):
            if check.state == "warning":
                log.warning("database.few_connections", error=f"{check.message}; {check.action}")

    async def _connections(self) -> list[Check]:
        use = await self._store.connection_use()
        if use is None:
            return []
        count = current_share().count
        return [diagnosis.check_connections(use.limit, use.others, count, use.per_process)]

    async def _clock(self) -> list[Check]:
        skew_ms = self._store.clock.now_ms() - round(1000 * time.time())
        return [diagnosis.check_clock("clock", skew_ms, "the clock of the database", "that of the server")]

    async def _work(self) -> list[Check]:
        """Check the engine, the replicas and the work that waits."""
        now_ms = self._store.clock.now_ms()
        backlog = await self._store.backlog(now_ms, now_ms - LEASE_MS, _AGENTS)
        workers = await self._store.workers(now_ms - LEASE_MS)
        running = await self._store.capabilities(now_ms - LEASE_MS)
        engine = self._status.engine
        due = [runs.oldest_ms for runs in backlog.lanes.values() if runs.oldest_ms is not None]
        overdue_ms = None if backlog.next_wake_ms is None else now_ms - backlog.next_wake_ms
        return [
            diagnosis.check_engine(
                engine is not None and engine.alive,
                [] if engine is None else engine.stalled(),
                time.time() - self._metrics.planned_at,
                overdue_ms,
            ),
            diagnosis.check_replicas(workers),
            diagnosis.check_lanes(
                self._metrics.lanes(), {lane: runs.number for lane, runs in backlog.lanes.items()}
            ),
            diagnosis.check_due_runs(
                sum(runs.number for runs in backlog.lanes.values()), now_ms - min(due) if due else None
            ),
            diagnosis.check_functions(await self._store.due_requirements(now_ms), running),
            diagnosis.check_unclaimed(
                backlog.pull.number,
                None if backlog.pull.oldest_ms is None else now_ms - backlog.pull.oldest_ms,
                backlog.pull_by_agent,
            ),
            diagnosis.check_incidents(backlog.open_incidents, backlog.acknowledged_incidents),
        ]

    async def _disk(self) -> list[Check]:
        return [check_disk_space(self._settings.db, await self._store.database_size())]

    async def _celery_app(self) -> list[Check]:
        """Check the Celery app of this process, and the tasks of jobs."""
        assert self._celery is not None
        try:
            health = await self._celery.examine()
        except Unavailable as error:
            return [check_celery_error(error.message)]
        if health is None:
            return []
        found = await read_targets(self._store, None, "celery", self._check_target)
        return [check_celery(health.broker, health.has_results, health.has_worker, *found)]

    def _settings_check(self) -> Check:
        settings = self._settings
        return diagnosis.check_settings(
            _is_public(settings.host),
            settings.allow_private_targets,
            bool(settings.secret_key),
            sqlite_path(settings.db) is not None,
        )


async def examine_database(url: str, *, must_exist: bool) -> list[JsonObject]:
    """Return the checks of a database that can be made without a server. Changes nothing.

    Without `must_exist`, an SQLite file that does not exist has no checks.
    """
    address = mask_address(url)
    try:
        async with asyncio.timeout(2 * TIMEOUT_S):
            found = await inspect_database(url)
    except TimeoutError:
        error = f"{address} does not respond in {2 * TIMEOUT_S:.0f} s"
        return [to_json(diagnosis.check_database(address, None, error))]
    except NotFound as error:
        return [to_json(diagnosis.check_database(address, None, error.message))] if must_exist else []
    except WakefulError as error:
        return [to_json(diagnosis.check_database(address, None, error.message))]
    return [to_json(check) for check in _checks_of(url, found)]


def check_disk_space(url: str, size: int) -> Check:
    """Return the check of the disk that holds the database."""
    path = sqlite_path(url)
    if path is None or path == ":memory:":
        return diagnosis.check_disk(size, None, None)
    disk = shutil.disk_usage(Path(path).resolve().parent)
    return diagnosis.check_disk(size, disk.free, disk.total)


def _checks_of(url: str, found: Inspection) -> list[Check]:
    return [
        diagnosis.check_database(found.address, found.latency_ms, None),
        diagnosis.check_schema(found.schema, found.newest),
        diagnosis.check_clock("clock", found.skew_ms, "the clock of the database", "that of this machine"),
        check_disk_space(url, found.size),
    ]


async def _within(name: str, read: Callable[[], Awaitable[list[Check]]]) -> list[Check]:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await read()
    except TimeoutError:
        return [diagnosis.check_failed(name, f"no response in {TIMEOUT_S:.0f} s")]
    except WakefulError as error:
        return [diagnosis.check_failed(name, error.message)]


def _is_public(host: str) -> bool:
    """Return whether a server at this address can be reached from other machines.

    >>> _is_public("127.0.0.1"), _is_public("localhost"), _is_public("0.0.0.0")
    (False, False, True)
    """
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def check_nats(server: str, error: str) -> Check:
    """Check the connection to NATS: the address of the server, or why there is none."""
    if server:
        return Check("nats", "ok", f"connected to {server}")
    return Check(
        "nats",
        "error",
        f"not connected: {error}; runs of queue targets are retried",
        "check the NATS server, and WAKEFUL_NATS_URL",
    )


def check_celery_error(error: str) -> Check:
    """Return the check of a Celery app whose broker or result backend does not answer."""
    return Check(
        "celery",
        "error",
        f"the broker or the result backend is not reachable: {error}; runs of celery targets are retried",
        "check the broker and the result backend of the Celery app, and their addresses",
    )


def check_celery(
    broker: str,
    has_results: bool,
    has_worker: bool,
    number: int,
    broken: Sequence[tuple[str, str]],
    more: bool,
) -> Check:
    """Check a Celery app whose broker answers: its results, its workers, and the targets of jobs.

    `number` targets were read, of which `broken` cannot be launched; `more`: there are others.
    """
    action = "correct the names of the tasks, or allow them by WAKEFUL_CELERY_TASKS"
    targets = check_targets("celery", number, broken, more, action)
    if targets.state != "ok":
        return targets
    if not has_worker:
        return Check(
            "celery",
            "warning",
            f"connected to {broker}, but no worker answers within a second",
            "start a worker of the app: celery -A APP worker",
        )
    if not has_results:
        return Check(
            "celery",
            "warning",
            f"connected to {broker}; the app keeps no results, so runs succeed when their task is sent",
            "set a result backend that several processes can read, such as Redis",
        )
    return Check("celery", "ok", f"connected to {broker}; a worker answers; {targets.message}")
