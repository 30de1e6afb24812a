"""Read, create, change and delete workspaces and agents."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from wakeful.document import Defaults, payload_from_text, payload_to_text, read_definition
from wakeful.document.agents import EVOLUTION_FIELDS, OFF, deliver_to, evolution, write_addresses
from wakeful.document.agents import approval as read_approval
from wakeful.document.agents import queue as read_queue
from wakeful.document.agents import self_scheduling as read_self_scheduling
from wakeful.document.kinds import read_zone
from wakeful.document.target import AGENT_KIND
from wakeful.document.timing import check_zone
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.job import Definition, Work, check_slug
from wakeful.job.start_rules import find_requirement
from wakeful.launch.secrets import ROTATION_MS, Keyring, format_secret, new_secret
from wakeful.service.admin.evolution_jobs import EvolutionJobs
from wakeful.service.admin.limits import read_budget
from wakeful.service.agents.inheritance import Inheritance, goes_to_webhook
from wakeful.service.agents.internal_jobs import (
    NO_ALERTS,
    NO_HEARTBEAT,
    AlertJobs,
    Alerts,
    Heartbeat,
    Heartbeats,
)
from wakeful.service.agents.signals import AgentClasses
from wakeful.service.auth.access import LOCAL, Principal, check_person, permit, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.save_warnings import SaveWarnings
from wakeful.store.accounts import AgentRow, Inherited, WorkspaceRow, no_agent
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed
from wakeful.store.internal_jobs import InternalChange, InternalRules
from wakeful.store.port import Store
from wakeful.store.rows import JobFilter
from wakeful.store.sessions import WAKE_JOB
from wakeful.values.json_value import Json, compact
from wakeful.values.stored_text import UNSTORABLE, is_storable

#: The fields of an agent; the first six mean the same as in a job.
FIELDS: Final = (
    "target", "tz", "channel", "to", "description", "budget", "active", "alerts", "queue", "heartbeat",
    "deliverTo", "approval", "selfScheduling", "evolution",
)  # fmt: skip
_WORKSPACE_FIELDS: Final = ("tz", "description", "budget", "alerts", "laneWeight")
#: the smallest and the largest weight of a workspace in a lane
LANE_WEIGHTS: Final = (0.1, 100)
#: Read-only fields, which are ignored in a document that was read and is sent back.
_READ_ONLY: Final = frozenset(
    {"name", "workspace", "version", "createdAt", "updatedAt", "spent", "warnings", "may"}
)
#: The fields that no job has.
_OWN: Final = frozenset(
    {"active", "alerts", "queue", "heartbeat", "deliverTo", "approval", "selfScheduling", "evolution"}
)
#: The workspace and the agent that exist from the start.
DEFAULT: Final = "default"
#: The target of an agent that has a class and no other target, as it is stored.
_CLASS_TARGET: Final = compact({"kind": AGENT_KIND})
#: How often a patch is applied again because another change was first.
_TRIES: Final = 20
T = TypeVar("T")

_REQUIRED_OF_JOB: Final = {"name": "agent", "schedule": "@daily"}


class StaleAgent(FailedPrecondition):
    """The agent is not at the version that the caller has read."""


def stale_agent(name: str, version: int | None) -> StaleAgent:
    """Return the error for an agent that has changed, is gone (None), or exists already."""
    now = "does not exist any more" if version is None else f"is at version {version} now"
    return StaleAgent(f"agent '{name}' has changed meanwhile: it {now}; read it again")


class StaleWorkspace(FailedPrecondition):
    """The workspace is not at the version that the caller has read."""


def stale_workspace(name: str, row: WorkspaceRow | None) -> StaleWorkspace:
    """Return the error for a workspace that has changed, or does not exist (None)."""
    now = "does not exist" if row is None else f"is at version {row.updated_ms} now"
    return StaleWorkspace(f"workspace '{name[:64]}' has changed meanwhile: it {now}; read it again")


class SavedAgent(NamedTuple):
    """A saved agent, and its secret if it is new: it is not returned again."""

    row: AgentRow
    created: bool
    secret: str | None = None
    warnings: tuple[str, ...] = ()


class AgentService:
    """Reads, creates, changes and deletes agents."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        launchers: LauncherRegistry,
        keyring: Keyring,
        alert_jobs: AlertJobs,
        heartbeats: Heartbeats,
        evolution_jobs: EvolutionJobs,
        warnings: SaveWarnings,
        classes: AgentClasses,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._launchers = launchers
        self._keyring = keyring
        self._alert_jobs = alert_jobs
        self._heartbeats = heartbeats
        self._evolution_jobs = evolution_jobs
        self._warnings = warnings
        self._classes = classes

    async def get(self, principal: Principal, workspace: str, name: str) -> AgentRow:
        """Return the agent, or raise NotFound."""
        await self._accounts.authorize(principal, "read", workspace, name)
        return await self._accounts.agent(workspace, name)

    async def list(self, principal: Principal, workspace: str) -> list[AgentRow]:
        """List the agents by name; an agent sees only itself."""
        await self._accounts.authorize(principal, "read", workspace)
        only = visible_agent(principal, None)
        return [row for row in await self._store.agents(workspace) if only in (None, row.name)]

    async def put(
        self,
        principal: Principal,
        workspace: str,
        name: str,
        document: Mapping[str, object],
        *,
        version: int | None = None,
    ) -> SavedAgent:
        """Create the agent or change it to match the document.

        `version` is the version that it must still have (`StaleAgent` otherwise): 0 if it must not exist.

        In the same transaction, its jobs without a target of their own get the new target, its jobs are
        paused if it becomes inactive, or resumed if it becomes active, and its alert jobs, its heartbeat,
        the jobs of evolution and its budget blocks change. An agent with a new webhook gets a secret. The
        target of an agent with a class is that class, unless the document has another one.
        """
        await self._accounts.authorize(principal, "agent.write", workspace, name)
        check_slug(name, "agent")
        return await self._save(principal, workspace, name, document, version, document)

    async def update(
        self,
        principal: Principal,
        workspace: str,
        name: str,
        patch: Mapping[str, object],
        *,
        version: int | None = None,
    ) -> SavedAgent:
        """Change the fields of a patch and no others; null resets a field to its default.

        The result is validated as a whole, and takes effect as by `put`. With a `version`, an agent that has
        another one is refused (`StaleAgent`); without it, the patch applies to the newest one.
        """
        await self._accounts.authorize(principal, "agent.write", workspace, name)
        tries = 0
        while True:
            tries += 1
            row = await self._store.agent(workspace, name)
            if row is None:
                raise no_agent(name)
            if version not in (None, row.version):
                raise stale_agent(name, row.version)
            try:
                return await self._save(principal, workspace, name, _merge(row, patch), row.version, patch)
            except StaleAgent:
                if version is not None or tries == _TRIES:
                    raise

    async def _save(
        self,
        principal: Principal,
        workspace: str,
        name: str,
        document: Mapping[str, object],
        version: int | None,
        given: Mapping[str, object],
    ) -> SavedAgent:
        """Make the agent match the document. `given` are the fields of the request, for the audit log."""
        shared = _read(document, self._accounts.defaults)
        self._launchers.check(shared.work.target)
        target = payload_to_text(dict(shared.work.target)) if shared.work.target else None
        if target is None and await self._store.agent_class(workspace, name) is not None:
            target = _CLASS_TARGET
        active = document.get("active", True)
        if not isinstance(active, bool):
            raise InvalidArgument("active: write true or false")
        alerts = self._alert_jobs.read(document.get("alerts"))
        queue = _queue(document.get("queue"))
        evolves = evolution(document)
        places = _deliver_to(document.get("deliverTo"))
        approval = _as("approval", read_approval, document.get("approval"))
        bounds = _self_scheduling(document.get("selfScheduling"))
        tz = shared.timing.schedule.tz if shared.timing and document.get("tz") is not None else None
        beat = self._heartbeats.read(document.get("heartbeat"), tz, shared.work.channel)
        workspace_row = await self._store.workspace(workspace)
        now_ms = self._store.clock.now_ms()
        secret = new_secret() if goes_to_webhook(shared.work.target) else None
        sealed = self._keyring.seal(secret) if secret is not None else None
        before: list[AgentRow | None] = []

        def changed(old: AgentRow | None) -> AgentRow | None:
            before[:] = [old]
            if version is not None and version != (old.version if old else 0):
                raise stale_agent(name, old.version if old else None)
            if (approval, bounds) != ((old.approval, old.self_scheduling) if old else (None, None)):
                check_person(principal, "change approval and selfScheduling")
            known = Inherited() if old is None else old.inherited
            if sealed is not None and known.secret is None and known.target != target:
                known = known._replace(secret=sealed)
            row = AgentRow(
                workspace=workspace,
                name=name,
                target=target,
                tz=tz,
                active=active,
                channel=shared.work.channel,
                to=shared.work.to,
                description=shared.description,
                version=old.version if old else 1,
                created_ms=old.created_ms if old else now_ms,
                updated_ms=old.updated_ms if old else now_ms,
                budget=compact(dict(shared.work.budget)) if shared.work.budget else None,
                alerts=alerts.text,
                queue=queue,
                heartbeat=beat.text,
                secret=known.secret,
                old_secret=known.old_secret,
                old_secret_until_ms=known.old_secret_until_ms,
                deliver_to=places,
                approval=approval,
                self_scheduling=bounds,
                evolution=evolves,
            )
            return None if row == old else row._replace(updated_ms=now_ms)

        details = compact({"fields": [*sorted(str(key)[:64] for key in given)[:64]]})
        row, untargeted = await self._write(
            workspace,
            name,
            changed,
            principal.entry(workspace, "agent.put", name, details),
            lambda row: self._internal_rules(principal, workspace_row, row, alerts, beat),
        )
        is_new_secret = secret is not None and row.secret == sealed
        return SavedAgent(
            row,
            before[0] is None,
            format_secret(secret) if secret is not None and is_new_secret else None,
            await self._warnings.of_agent(
                row, untargeted, find_requirement(Work(_target(row.target)), workspace, name)
            ),
        )

    async def give_first_target(self, target: Mapping[str, Json]) -> bool:
        """Give the agent `default` of a new database this target; False if the database is not new.

        A database is new until a server has created the first key in it, or a program the first job.
        """
        if await self._store.keys(None) or await self._store.jobs(JobFilter(DEFAULT, limit=1)):
            return False
        agent = await self._store.agent(DEFAULT, DEFAULT)
        if agent is None or agent.target is not None or agent.version > 1:
            return False
        await self.put(LOCAL, DEFAULT, DEFAULT, {"target": dict(target)})
        return True

    async def give_class_target(self, workspace: str, name: str) -> None:
        """Give an agent that has a class, and no target, its class as the target.

        So its jobs without a target, its wakes and its messages become signals.
        """
        now_ms = self._store.clock.now_ms()

        def targeted(old: AgentRow | None) -> AgentRow | None:
            if old is None or old.target is not None:
                return None
            return old._replace(target=_CLASS_TARGET, updated_ms=now_ms)

        row = await self._store.agent(workspace, name)
        if row is not None and row.target is None:
            details = compact({"fields": ["target"]})
            entry = LOCAL.entry(workspace, "agent.put", name, details)
            inheritance = Inheritance(now_ms, lambda: self._keyring.seal(new_secret()))
            await self._store.put_agent(workspace, name, targeted, [entry], inheritance)
            self._accounts.forget(workspace, name)

    async def rotate_secret(
        self, principal: Principal, workspace: str, name: str, *, keyed: Keyed[SavedAgent] | None = None
    ) -> SavedAgent:
        """Give the agent a new secret. For a day, inherited webhooks are signed with both secrets."""
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

        def saved(row: AgentRow | None) -> SavedAgent:
            assert row is not None
            return SavedAgent(row, False, format_secret(secret))

        entry = principal.entry(workspace, "agent.rotate-secret", name)
        response = keyed.of(saved) if keyed else None
        row, _ = await self._write(workspace, name, rotated, entry, keyed=response)
        return saved(row)

    async def _write(
        self,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        entry: AuditEntry,
        internal: Callable[[AgentRow], InternalRules] | None = None,
        keyed: Keyed[AgentRow | None] | None = None,
    ) -> tuple[AgentRow, Collection[str]]:
        """Write the agent, and what its jobs inherit from it. Returns it, and the jobs without target now."""
        inheritance = Inheritance(self._store.clock.now_ms(), lambda: self._keyring.seal(new_secret()))
        row = await self._store.put_agent(workspace, name, change, [entry], inheritance, internal, keyed)
        assert row is not None
        self._accounts.forget(workspace, name)
        return row, inheritance.untargeted

    async def delete(self, principal: Principal, workspace: str, name: str) -> None:
        """Delete an agent that has only internal jobs, with those, and revoke its keys; its runs stay.

        An agent that has others, or instances that are not stopped, is refused, and nothing changes.
        """
        await self._accounts.authorize(principal, "agent.write", workspace, name)
        context = self._accounts.new_context(workspace, name, None, None)
        internal: InternalRules = {
            **self._alert_jobs.rules(workspace, name, NO_ALERTS),
            **self._heartbeats.rules(principal, context, NO_HEARTBEAT),
            **self._evolution_jobs.rules_of_deletion(),
            WAKE_JOB: lambda row: None if row is None else InternalChange(delete=True),
        }
        entry = principal.entry(workspace, "agent.delete", name)
        if not await self._store.delete_agent(workspace, name, [entry], internal):
            raise no_agent(name)
        self._accounts.forget(workspace, name)
        self._classes.forget()

    async def repair(self, workspace: str, name: str) -> None:
        """Write the internal jobs of an agent again, by its document.

        Earlier versions wrote them after the agent: an error, or two changes at once, left others.
        """
        workspace_row = await self._store.workspace(workspace)

        def internal(row: AgentRow) -> InternalRules:
            alerts = self._alert_jobs.read(payload_from_text(row.alerts))
            beat = self._heartbeats.read(payload_from_text(row.heartbeat), row.tz, row.channel)
            return self._internal_rules(LOCAL, workspace_row, row, alerts, beat)

        await self._store.put_agent(workspace, name, lambda old: None, internal=internal)

    def _internal_rules(
        self,
        principal: Principal,
        workspace: WorkspaceRow | None,
        row: AgentRow,
        alerts: Alerts,
        beat: Heartbeat,
    ) -> InternalRules:
        context = self._accounts.new_context(row.workspace, row.name, workspace, row)
        return {
            **self._alert_jobs.rules(row.workspace, row.name, alerts),
            **self._heartbeats.rules(principal, context, beat),
            **self._evolution_jobs.rules(row),
        }


def write_agent(row: AgentRow) -> dict[str, Json]:
    """Return the document of an agent with all its fields, as `AgentService.put` reads it."""
    return {
        "target": payload_from_text(row.target),
        "tz": row.tz,
        "active": row.active,
        "channel": row.channel,
        "to": row.to,
        "description": row.description,
        "budget": payload_from_text(row.budget),
        "alerts": payload_from_text(row.alerts),
        "queue": payload_from_text(row.queue),
        "heartbeat": payload_from_text(row.heartbeat),
        "deliverTo": payload_from_text(row.deliver_to) or [],
        "approval": row.approval,
        "selfScheduling": payload_from_text(row.self_scheduling),
        "evolution": row.evolution or OFF,
    }


def _merge(row: AgentRow, patch: Mapping[str, object]) -> dict[str, object]:
    """Return the document of an agent with the fields of a patch. A null is left out: the default."""
    document: dict[str, object] = {**write_agent(row)}
    if any(name in patch for name in EVOLUTION_FIELDS):
        del document["evolution"]
    document |= patch
    return {name: value for name, value in document.items() if value is not None}


def _read(document: Mapping[str, object], defaults: Defaults) -> Definition:
    """Read the fields that an agent shares with a job, by the rules of a job."""
    known = {*FIELDS, *EVOLUTION_FIELDS, *_READ_ONLY}
    unknown = sorted(str(key)[:64] for key in document if key not in known)
    if unknown:
        raise InvalidArgument(f"an agent has no {', '.join(unknown)}; it has {', '.join(FIELDS)}")
    fields = {key: document[key] for key in FIELDS if key in document and key not in _OWN}
    allowed = Defaults(tz_allowlist=defaults.tz_allowlist if fields.get("tz") is not None else None)
    return read_definition({**fields, **_REQUIRED_OF_JOB}, now_ms=0, defaults=allowed)


def _target(text: str | None) -> Mapping[str, Json] | None:
    target = payload_from_text(text)
    return target if isinstance(target, dict) else None


def _as(field: str, read: Callable[[object], T], value: object) -> T:
    """Return the value of a field; an error message begins with the name of the field."""
    try:
        return read(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error.message}") from error


def _deliver_to(value: object) -> str | None:
    places = () if value is None else _as("deliverTo", deliver_to, value)
    return payload_to_text(write_addresses(places)) if places else None


def _queue(value: object) -> str | None:
    return None if value is None else compact(_as("queue", read_queue, value))


def _self_scheduling(value: object) -> str | None:
    return None if value is None else compact(_as("selfScheduling", read_self_scheduling, value))


def _lane_weight(value: object) -> float:
    if value is None:
        return 1
    low, high = LANE_WEIGHTS
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidArgument(f"laneWeight: write a number from {low} to {high}; without one it is 1")
    return value


class WorkspaceService:
    """Reads, creates and changes workspaces. Writing one takes a key for all workspaces."""

    def __init__(self, store: Store, accounts: Accounts, alert_jobs: AlertJobs) -> None:
        self._store = store
        self._accounts = accounts
        self._alert_jobs = alert_jobs

    async def list(self, principal: Principal) -> list[WorkspaceRow]:
        """List the workspaces of the principal."""
        if principal.workspace is None:
            return await self._store.workspaces()
        names = principal.workspaces or (principal.workspace,)
        rows = [await self._store.workspace(name) for name in names]
        return [row for row in rows if row is not None]

    async def search(
        self, principal: Principal, prefix: str = "", limit: int = 20
    ) -> builtins.list[WorkspaceRow]:
        """List the workspaces of the principal whose names begin like this, by name."""
        if principal.workspace is None:
            return await self._store.workspaces_named(prefix[:64] if is_storable(prefix) else "~", limit)
        return [row for row in await self.list(principal) if row.name.startswith(prefix)]

    async def get(self, principal: Principal, name: str) -> WorkspaceRow:
        """Return the workspace, or raise NotFound."""
        permit(principal, "read", name)
        row = await self._store.workspace(name)
        if row is None:
            raise NotFound(f"no workspace '{name[:64]}'")
        return row

    async def put(
        self, principal: Principal, name: str, document: Mapping[str, object], version: int | None = None
    ) -> tuple[WorkspaceRow, bool]:
        """Create the workspace or change it to match the document; return whether it is new.

        `version` is the `updated_ms` that it must still have (`StaleWorkspace` otherwise); 0: it is new.
        """
        permit(principal, "operate", name)
        check_slug(name, "workspace")
        unknown = sorted(str(key)[:64] for key in document if key not in _WORKSPACE_FIELDS)
        unknown = [key for key in unknown if key not in _READ_ONLY]
        if unknown:
            raise InvalidArgument(
                f"a workspace has no {', '.join(unknown)}; it has {', '.join(_WORKSPACE_FIELDS)}"
            )
        budget, alerts = read_budget(document.get("budget")), self._alert_jobs.read(document.get("alerts"))
        weight = _lane_weight(document.get("laneWeight"))
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
        row = WorkspaceRow(name, tz, description, created_ms, now_ms, budget, alerts.text, weight)
        internal = self._alert_jobs.rules(name, None, alerts)

        def check(current: WorkspaceRow | None) -> None:
            if version is not None and version != (current.updated_ms if current else 0):
                raise stale_workspace(name, current)

        entry = principal.entry(name, "workspace.put", name)
        saved = await self._store.put_workspace(row, [entry], internal, check)
        self._accounts.forget(name)
        return saved, old is None

    async def repair(self, name: str) -> None:
        """Write the alert jobs of a workspace again, by its document. See `AgentService.repair`."""
        await self._store.repair_workspace(
            name,
            lambda row: self._alert_jobs.rules(
                name, None, self._alert_jobs.read(payload_from_text(row.alerts))
            ),
        )
