"""What can be done with workspaces and agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wakeful.document import Defaults, payload_from_text, payload_to_text, read_definition
from wakeful.document.deliveries import deliver_to, written
from wakeful.document.sessions import queue as read_queue
from wakeful.document.timing import check_zone, read_zone
from wakeful.document.values import compact
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job import Definition, Json, check_slug
from wakeful.launch.secrets import ROTATION_MS, Keyring, format_secret, new_secret
from wakeful.service.admin.alert_jobs import NO_ALERTS, AlertJobs
from wakeful.service.admin.budgets import Budgets, read_budget
from wakeful.service.agents.heartbeats import NO_HEARTBEAT, Heartbeats
from wakeful.service.agents.inheritance import Inheritance, goes_to_webhook
from wakeful.service.auth.access import Principal, permit, visible_agent
from wakeful.service.auth.accounts import Accounts, no_agent
from wakeful.start_rules import BudgetOwner
from wakeful.store.accounts import AgentRow, Inherited, WorkspaceRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import JobFilter
from wakeful.stored_text import UNSTORABLE, is_storable

#: What somebody may say of an agent; the first six mean what they mean in a job.
FIELDS: Final = (
    "target", "tz", "channel", "to", "description", "budget", "active", "alerts", "queue", "heartbeat",
    "deliverTo",
)  # fmt: skip
_WORKSPACE_FIELDS: Final = ("tz", "description", "budget", "alerts")
#: Read-only fields of an agent: they may be sent back with a document that was read, and are ignored.
_SHOWN: Final = frozenset({"name", "workspace", "version", "createdAt", "updatedAt", "spent"})
#: What no job has.
_OWN: Final = frozenset({"active", "alerts", "queue", "heartbeat", "deliverTo"})
#: Two that send its alerts, and its heartbeat.
_MADE_FOR_IT: Final = 3
_STAND_IN: Final = {"name": "agent", "schedule": "@daily"}


class SavedAgent(NamedTuple):
    """A saved agent, and its secret if one was created now: it is not shown again."""

    row: AgentRow
    created: bool
    secret: str | None = None


class AgentService:
    """Shows, makes, changes and deletes agents."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        budgets: Budgets,
        launchers: LauncherRegistry,
        keyring: Keyring,
        alert_jobs: AlertJobs,
        heartbeats: Heartbeats,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._launchers = launchers
        self._keyring = keyring
        self._alert_jobs = alert_jobs
        self._heartbeats = heartbeats
        self._budgets = budgets

    async def get(self, principal: Principal, workspace: str, name: str) -> AgentRow:
        """The agent, or NotFound."""
        await self._accounts.authorize(principal, "read", workspace, name)
        return await self._accounts.agent(workspace, name)

    async def list(self, principal: Principal, workspace: str) -> list[AgentRow]:
        """All of them, by name; an agent sees itself."""
        await self._accounts.authorize(principal, "read", workspace)
        only = visible_agent(principal, None)
        return [row for row in await self._store.agents(workspace) if only in (None, row.name)]

    async def put(
        self, principal: Principal, workspace: str, name: str, document: Mapping[str, object]
    ) -> SavedAgent:
        """Make the agent what the document says.

        In the same transaction, its jobs that have no target of their own get its new one, and its jobs are
        paused when it stops being active, or resumed from now on when it is active again. An agent that is
        given a webhook gets a secret with it. The jobs that send its alerts, and its heartbeat, become what
        the document says of them afterwards.
        """
        await self._accounts.authorize(principal, "agent.write", workspace, name)
        check_slug(name, "agent")
        said = _read(document, self._accounts.defaults)
        self._launchers.check(said.work.target)
        target = payload_to_text(dict(said.work.target)) if said.work.target else None
        active = document.get("active", True)
        if not isinstance(active, bool):
            raise InvalidArgument("active: write true or false")
        alerts = self._alert_jobs.read(document.get("alerts"))
        queue = _queue(document.get("queue"))
        places = _deliver_to(document.get("deliverTo"))
        tz = said.timing.schedule.tz if said.timing and document.get("tz") is not None else None
        beat = self._heartbeats.read(document.get("heartbeat"), tz, said.work.channel)
        await self._heartbeats.check(principal, workspace, name, beat)
        now_ms = self._store.clock.now_ms()
        secret = new_secret() if goes_to_webhook(said.work.target) else None
        sealed = self._keyring.seal(secret) if secret is not None else None
        before: list[AgentRow | None] = []

        def changed(old: AgentRow | None) -> AgentRow | None:
            before[:] = [old]
            known = Inherited() if old is None else old.inherited
            if sealed is not None and known.secret is None and known.target != target:
                known = known._replace(secret=sealed)
            row = AgentRow(
                workspace=workspace,
                name=name,
                target=target,
                tz=tz,
                active=active,
                channel=said.work.channel,
                to=said.work.to,
                description=said.description,
                version=old.version if old else 1,
                created_ms=old.created_ms if old else now_ms,
                updated_ms=old.updated_ms if old else now_ms,
                budget=compact(dict(said.work.budget)) if said.work.budget else None,
                alerts=alerts.text,
                queue=queue,
                heartbeat=beat.text,
                secret=known.secret,
                old_secret=known.old_secret,
                old_secret_until_ms=known.old_secret_until_ms,
                deliver_to=places,
            )
            return None if row == old else row._replace(updated_ms=now_ms)

        told = compact({"fields": [*sorted(str(key)[:64] for key in document)[:64]]})
        row = await self._write(workspace, name, changed, principal.entry(workspace, "agent.put", name, told))
        await self._alert_jobs.follow(workspace, name, alerts)
        await self._heartbeats.follow(principal, workspace, name, beat)
        if row.budget != (before[0].budget if before[0] else None):
            await self._budgets.check_budgets(BudgetOwner(workspace, name))
        made = secret is not None and row.secret == sealed
        return SavedAgent(
            row, before[0] is None, format_secret(secret) if secret is not None and made else None
        )

    async def rotate_secret(self, principal: Principal, workspace: str, name: str) -> SavedAgent:
        """Give it a new secret. For a day, the webhooks that its jobs inherit are signed with both."""
        await self._accounts.authorize(principal, "agent.write", workspace, name)
        await self._accounts.agent(workspace, name)
        now_ms = self._store.clock.now_ms()
        secret = new_secret()
        sealed = self._keyring.seal(secret)

        def rotated(old: AgentRow | None) -> AgentRow | None:
            if old is None:
                raise no_agent(name)
            if old.secret is None and not goes_to_webhook(_target(old.target)):
                raise FailedPrecondition(
                    f"agent '{name}' has no webhook as its target, so it has no secret to rotate"
                )
            now = old._replace(secret=sealed, updated_ms=now_ms)
            if old.secret is None:
                return now
            return now._replace(old_secret=old.secret, old_secret_until_ms=now_ms + ROTATION_MS)

        row = await self._write(
            workspace, name, rotated, principal.entry(workspace, "agent.rotate-secret", name)
        )
        return SavedAgent(row, False, format_secret(secret))

    async def _write(
        self,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        entry: AuditEntry,
    ) -> AgentRow:
        """Write the agent, and with it all that its jobs inherit."""
        inheritance = Inheritance(self._store.clock.now_ms(), lambda: self._keyring.seal(new_secret()))
        row = await self._store.put_agent(workspace, name, change, [entry], inheritance)
        assert row is not None
        self._accounts.forget(workspace, name)
        return row

    async def delete(self, principal: Principal, workspace: str, name: str) -> None:
        """Delete an agent that has no jobs but those made for it; its runs can still be seen."""
        await self._accounts.authorize(principal, "agent.write", workspace, name)
        if await self._alone(workspace, name):  # else the agent stays, and so do they
            await self._alert_jobs.follow(workspace, name, NO_ALERTS)
            await self._heartbeats.follow(principal, workspace, name, NO_HEARTBEAT)
        if not await self._store.delete_agent(
            workspace, name, [principal.entry(workspace, "agent.delete", name)]
        ):
            raise no_agent(name)
        self._accounts.forget(workspace, name)

    async def _alone(self, workspace: str, name: str) -> bool:
        """Whether an agent has no jobs but those that were made for it."""
        jobs = await self._store.jobs(JobFilter(workspace, name, limit=_MADE_FOR_IT + 1))
        return all(self._alert_jobs.owns(row) or self._heartbeats.owns(row) for row in jobs)


def _read(document: Mapping[str, object], defaults: Defaults) -> Definition:
    """An agent's document, by the rules of a job's: the fields they share mean the same."""
    unknown = sorted(str(key)[:64] for key in document if key not in FIELDS and key not in _SHOWN)
    if unknown:
        raise InvalidArgument(f"an agent has no {', '.join(unknown)}; it has {', '.join(FIELDS)}")
    shared = {key: document[key] for key in FIELDS if key in document and key not in _OWN}
    allowed = Defaults(tz_allowlist=defaults.tz_allowlist if shared.get("tz") is not None else None)
    return read_definition({**shared, **_STAND_IN}, now_ms=0, defaults=allowed)


def _target(text: str | None) -> Mapping[str, Json] | None:
    target = payload_from_text(text)
    return target if isinstance(target, dict) else None


def _deliver_to(value: object) -> str | None:
    try:
        places = () if value is None else deliver_to(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"deliverTo: {error.message}") from error
    return payload_to_text(written(places)) if places else None


def _queue(value: object) -> str | None:
    try:
        return None if value is None else compact(read_queue(value))
    except InvalidArgument as error:
        raise InvalidArgument(f"queue: {error.message}") from error


class WorkspaceService:
    """Shows and makes workspaces. Making one takes a key for all of them."""

    def __init__(self, store: Store, accounts: Accounts, budgets: Budgets, alert_jobs: AlertJobs) -> None:
        self._store = store
        self._accounts = accounts
        self._alert_jobs = alert_jobs
        self._budgets = budgets

    async def list(self, principal: Principal) -> list[WorkspaceRow]:
        """Those that they belong to."""
        return [row for row in await self._store.workspaces() if principal.workspace in (None, row.name)]

    async def get(self, principal: Principal, name: str) -> WorkspaceRow:
        """The workspace, or NotFound."""
        permit(principal, "read", name)
        row = await self._store.workspace(name)
        if row is None:
            raise NotFound(f"no workspace '{name[:64]}'")
        return row

    async def put(
        self, principal: Principal, name: str, document: Mapping[str, object]
    ) -> tuple[WorkspaceRow, bool]:
        """Make the workspace what the document says; whether it is new."""
        permit(principal, "operate", name)
        check_slug(name, "workspace")
        unknown = sorted(str(key)[:64] for key in document if key not in _WORKSPACE_FIELDS)
        unknown = [key for key in unknown if key not in _SHOWN]
        if unknown:
            raise InvalidArgument(
                f"a workspace has no {', '.join(unknown)}; it has {', '.join(_WORKSPACE_FIELDS)}"
            )
        budget, alerts = read_budget(document.get("budget")), self._alert_jobs.read(document.get("alerts"))
        tz, description = document.get("tz"), document.get("description")
        description = "" if description is None else description
        if not isinstance(description, str) or len(description) > 1_000:
            raise InvalidArgument("description: write text of at most 1000 characters")
        if not is_storable(description):
            raise InvalidArgument(f"description: {UNSTORABLE}")
        try:
            tz = None if tz is None else read_zone(tz)
            if tz is not None:
                check_zone(tz, self._accounts.defaults)
        except InvalidArgument as error:
            raise InvalidArgument(f"tz: {error.message}") from error
        now_ms = self._store.clock.now_ms()
        old = await self._store.workspace(name)
        created_ms = old.created_ms if old else now_ms
        row = WorkspaceRow(name, tz, description, created_ms, now_ms, budget, alerts.text)
        await self._store.put_workspace(row, [principal.entry(name, "workspace.put", name)])
        self._accounts.forget(name)
        await self._alert_jobs.follow(name, None, alerts)
        if budget != (old.budget if old else None):
            await self._budgets.check_budgets(BudgetOwner(name))
        return row, old is None
