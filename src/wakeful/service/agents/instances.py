"""Instances of agents: start, stop, pause, resume, hibernate, delete, read and list them."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, cast, get_args

from wakeful.agents.class_registry import ClassRegistry
from wakeful.agents.schedule_sync import DeclaredSchedules, log_invalid, read_declared
from wakeful.agents.state import StateObject, state_from_text, state_to_text
from wakeful.engine.calendar_loader import off_loop
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, WakefulError
from wakeful.job.job import JobRecord
from wakeful.logs import get_logger
from wakeful.run.instances import (
    InstanceLimits,
    InstanceStatus,
    instance_id,
)
from wakeful.service.agents import instance_rules
from wakeful.service.agents.signals import AgentClasses
from wakeful.service.auth.access import MAY, Principal, visible_agent
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.masking import mask_value
from wakeful.service.jobs.pauses import read_note
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.store.audit import AuditEntry
from wakeful.store.instances import (
    ERASE_BATCH,
    ChangedInstance,
    DelayRow,
    InstanceChange,
    InstanceFilter,
    InstanceRow,
    InstanceRule,
    InstanceView,
)
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow, RunView
from wakeful.values.instance_names import check_instance
from wakeful.values.json_value import Json, compact, json_value

log = get_logger("wakeful.service")

#: How many delays of an instance are shown.
_SHOWN_DELAYS: Final = 100
#: How many instances are started at once, at most.
MAX_STARTED: Final = 1_000
#: How many seconds `delete` waits until the history is erased.
_ERASE_S: Final = 10.0
STATUSES: Final[tuple[InstanceStatus, ...]] = get_args(InstanceStatus)


@dataclass(frozen=True, slots=True)
class StartedInstances:
    """Instances that were started together, and by name why others were not."""

    views: list[InstanceView]
    errors: dict[str, WakefulError]


@dataclass(frozen=True, slots=True)
class InstanceDetails:
    """An instance, and its state if the caller may read it."""

    view: InstanceView
    schedules: tuple[JobRecord, ...] = ()
    #: the first delays that are not due yet
    delays: tuple[DelayRow, ...] = ()
    #: whether the caller may read the state
    has_state: bool = False
    #: None: the initial state of a class that is not registered in this process
    state: StateObject | None = None
    #: why the stored state cannot be read or shown
    state_error: str | None = None


class InstanceService:
    """Manages instances."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        classes: AgentClasses,
        limits: InstanceLimits,
        origins: RunOrigins,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._classes = classes
        self._limits = limits
        self._origins = origins
        #: the classes of this process
        self.registry = ClassRegistry()

    # --- changes ---------------------------------------------------------------------------------

    async def start(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        state: Mapping[str, object] | None = None,
        replace: bool = False,
    ) -> InstanceView:
        """Start an instance. A new one, or one that was stopped, begins with its initial state.

        `state` changes keys of the initial state. An instance that is not stopped keeps its state, and gets
        the declared schedules of its class: also those that it cancelled itself. FailedPrecondition: it has
        another state than `state` asks for, and is not to `replace` it.
        """
        started = await self.start_many(principal, workspace, agent, {name: state}, replace=replace)
        for error in started.errors.values():
            raise error
        if not started.views:  # it was deleted a moment later
            raise instance_rules.no_instance(agent, name)
        return started.views[0]

    async def start_many(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        states: Mapping[str, Mapping[str, object] | None],
        *,
        replace: bool = False,
    ) -> StartedInstances:
        """Start instances in one transaction, each with its state, as `start` does; None: without one.

        Those that cannot be started are reported by their names; the others are started.
        """
        await self._accounts.authorize(principal, "instance.write", workspace, agent)
        if not 1 <= len(states) <= MAX_STARTED:
            raise InvalidArgument(f"instances: start 1 to {MAX_STARTED} at once, not {len(states)}")
        errors: dict[str, WakefulError] = {}
        texts: dict[str, str | None] = {}
        for given, state in states.items():
            try:
                name = check_instance(given)
                texts[name] = self._initial(workspace, agent, state, replace=replace)
            except (InvalidArgument, FailedPrecondition) as error:
                errors[given] = error
        if not texts:
            await self._classes.get(workspace, agent)
            return StartedInstances([], errors)
        # A newer version may be registered elsewhere: it migrates what the class of this process wrote.
        registered = self.registry.get(workspace, agent)
        version = registered.version if registered else 0
        call = await self._origins.call(principal, workspace, agent)
        if call is not None:
            call.start(*texts)
        charge = call.charge if call else None

        async def start(context: JobContext) -> None:
            declared = await self._declared(context)
            log_invalid(declared)
            now_ms = self._now_ms()

            def rule_of(name: str, data: str | None) -> InstanceRule:
                decide = instance_rules.start(
                    name, declared, data, now_ms, 0 if data is None else version, replace=replace
                )

                def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
                    errors.pop(name, None)  # of a transaction that is repeated
                    try:
                        return decide(row, jobs)
                    except FailedPrecondition as error:
                        errors[name] = error
                        return None

                return rule

            def entries(changed: Sequence[ChangedInstance]) -> list[AuditEntry]:
                names = [name for name, each in zip(texts, changed, strict=True) if each.changed]
                if len(names) == 1:
                    return [principal.entry(workspace, "instance.start", f"{agent}/{names[0]}")]
                details: dict[str, Json] = {"count": len(names), "instances": [*names]}
                return [principal.entry(workspace, "instance.start", agent, compact(details))]

            rules = {name: rule_of(name, data) for name, data in texts.items()}
            await self._store.change_instances(workspace, agent, now_ms, rules, entries, self._limits, charge)

        await self._checked(workspace, agent, self._accounts.with_context(workspace, agent, start))
        ids = [instance_id(workspace, agent, name) for name in texts if name not in errors]
        views = {view.row.id: view for view in await self._store.instances_by_ids(ids)}
        return StartedInstances([views[each] for each in ids if each in views], errors)

    async def delete(
        self, principal: Principal, workspace: str, agent: str, name: str, *, erase: bool = False
    ) -> InstanceView | None:
        """Delete an instance: its state, mailbox and schedules. Its runs stay, and with `erase` they do not.

        Runs that have not ended are cancelled. Returns the instance if an erasure is not complete after some
        seconds: it continues, and the instance is `deleting` until then. Call it again to wait on.
        """
        name = await self._authorize(principal, workspace, agent, name)
        own = instance_id(workspace, agent, name)
        has_runs = erase and await self._store.has_runs_of(own)
        rule = instance_rules.delete(workspace, agent, name, self._now_ms(), erase=erase, has_runs=has_runs)
        action: Literal["erase", "delete"] = "erase" if erase else "delete"
        await self._change(principal, workspace, agent, name, action, rule)
        ends_at = asyncio.get_running_loop().time() + _ERASE_S
        while erase and await self._store.erase_instance(own, ERASE_BATCH):
            if asyncio.get_running_loop().time() > ends_at:
                return await self._store.instance(workspace, agent, name)
        return None

    async def stop(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
    ) -> InstanceView:
        """Stop an instance: delete its schedules, and cancel its runs, also the one that is running."""
        name = await self._authorize(principal, workspace, agent, name)
        rule = instance_rules.stop(agent, name, self._now_ms())
        return await self._changed(principal, workspace, agent, name, "stop", rule)

    async def pause(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        note: object = None,
    ) -> InstanceView:
        """Pause an instance: its signals wait until it is resumed."""
        text = read_note(note)
        name = await self._authorize(principal, workspace, agent, name, "instance.pause")
        rule = instance_rules.pause(agent, name, text, self._now_ms())
        return await self._changed(principal, workspace, agent, name, "pause", rule, note=text)

    async def resume(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
    ) -> InstanceView:
        """Resume an instance that is paused or blocked."""
        name = await self._authorize(principal, workspace, agent, name, "instance.pause")
        rule = instance_rules.resume(agent, name, self._now_ms())
        return await self._changed(principal, workspace, agent, name, "resume", rule)

    async def hibernate(self, principal: Principal, workspace: str, agent: str, name: str) -> InstanceView:
        """Remove an instance from the memory of every process. Its next signal loads it again."""
        name = await self._authorize(principal, workspace, agent, name)
        view = await self._view(workspace, agent, name)
        now_ms = self._now_ms()
        await self._store.record_hibernation([view.row.id], now_ms, publish=True)
        return view._replace(row=view.row._replace(hibernated_ms=now_ms))

    # --- reading ---------------------------------------------------------------------------------

    async def get(self, principal: Principal, workspace: str, agent: str, name: str) -> InstanceDetails:
        """Return an instance with its schedules, and for an admin its state, as it is."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        view = await self._view(workspace, agent, check_instance(name))
        schedules = _readable(await self._store.schedules(view.row.id))
        delays = tuple(await self._store.delays(view.row.id, _SHOWN_DELAYS)) if view.delays else ()
        if principal.role not in MAY["instance.state"]:
            return InstanceDetails(view, schedules, delays)
        state, error = self._state(view.row)
        return InstanceDetails(view, schedules, delays, True, state, error)

    def for_page(self, details: InstanceDetails) -> InstanceDetails:
        """Return an instance as pages show it: its class redacts its state, and credentials are masked."""
        state, row = details.state, details.view.row
        if state is None:
            return details
        try:
            registered = self.registry.get(row.workspace, row.agent)
            shown = json_value(dict(registered.cls.redact(state)) if registered else state, None)
        except Exception:  # the code of the class failed: show nothing rather than too much
            log.exception("instance.redact_failed", workspace=row.workspace, agent=row.agent)
            return replace(details, state=None, state_error="the method redact of the class failed")
        return replace(details, state=cast(StateObject, mask_value(shown)))

    async def list(
        self,
        principal: Principal,
        workspace: str,
        agent: str | None = None,
        *,
        status: object = None,
        after: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[InstanceView]:
        """List instances by agent and name, without their state; an agent's key sees those of its agent."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        if agent is not None:
            await self._accounts.agent(workspace, agent)
        visible = visible_agent(principal, agent)
        only = InstanceFilter(workspace, visible, read_status(status), after, limit)
        return await self._store.instances(only)

    async def mailbox(
        self, principal: Principal, workspace: str, agent: str, name: str, limit: int = 50
    ) -> builtins.list[RunView]:
        """Return the pending runs of an instance, in the order in which it handles them."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        return await self._store.mailbox(instance_id(workspace, agent, check_instance(name)), limit)

    # --- parts -----------------------------------------------------------------------------------

    async def _declared(self, context: JobContext) -> DeclaredSchedules:
        """Return the schedules that the class of an agent declares."""
        agent_class = await self._classes.get(context.workspace, context.agent)
        read = partial(read_declared, agent_class, context.defaults, self._now_ms(), active=context.active)
        return await off_loop(read)

    async def _authorize(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        action: Literal["instance.write", "instance.pause"] = "instance.write",
    ) -> str:
        """Check the right, and return the name of the instance."""
        await self._accounts.authorize(principal, action, workspace, agent)
        return check_instance(name)

    async def _change(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        action: Literal["stop", "pause", "resume", "delete", "erase"],
        rule: InstanceRule,
        **details: Json,
    ) -> None:
        await self._classes.get(workspace, agent)  # the agent exists and has a class
        entry = principal.entry(workspace, f"instance.{action}", f"{agent}/{name}", compact(details))
        change = self._store.change_instance(
            workspace, agent, name, self._now_ms(), rule, [entry], self._limits
        )
        await self._checked(workspace, agent, change)

    async def _changed(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        action: Literal["stop", "pause", "resume"],
        rule: InstanceRule,
        **details: Json,
    ) -> InstanceView:
        await self._change(principal, workspace, agent, name, action, rule, **details)
        return await self._view(workspace, agent, name)

    async def _checked(self, workspace: str, agent: str, change: Awaitable[object]) -> None:
        """Wait for a change; if the store finds no class, raise the error that says why."""
        try:
            await change
        except NotFound:
            await self._classes.check(workspace, agent)
            raise

    async def _view(self, workspace: str, agent: str, name: str) -> InstanceView:
        view = await self._store.instance(workspace, agent, name)
        if view is None:
            await self._accounts.agent(workspace, agent)
            raise instance_rules.no_instance(agent, name)
        return view

    def _initial(
        self, workspace: str, agent: str, state: Mapping[str, object] | None, *, replace: bool
    ) -> str | None:
        """Return the initial state with these keys as text, checked by the class; None: there are none."""
        if state is None:
            if replace:
                raise InvalidArgument("state: give the state that replaces the one of the instance")
            return None
        registered = self.registry.get(workspace, agent)
        if registered is None:
            raise FailedPrecondition(
                f"the class of agent '{agent}' is not registered in this process, so the state cannot be "
                "checked; start the instance in a program that has the class, or without a state"
            )
        try:
            return state_to_text(registered.state.merge(registered.state.initial(), state))
        except InvalidArgument as error:
            raise InvalidArgument(f"state: {error.message}") from error

    def _state(self, row: InstanceRow) -> tuple[StateObject | None, str | None]:
        """Return the state, or why it cannot be read."""
        if row.data is None:
            registered = self.registry.get(row.workspace, row.agent)
            return registered.state.initial() if registered else None, None
        try:
            return state_from_text(row.data), None
        except InvalidArgument as error:
            return None, f"the stored state cannot be read: {error.message}"

    def _now_ms(self) -> int:
        return self._store.clock.now_ms()


def read_status(value: object) -> InstanceStatus | None:
    """Return the status to filter by, or None.

    >>> read_status("paused")
    'paused'
    """
    if value is None:
        return None
    for known in STATUSES:
        if value == known:
            return known
    raise InvalidArgument(f"status: '{str(value)[:64]}' is not one of {', '.join(STATUSES)}")


def read_cursor(cursor: str | None) -> tuple[str, str] | None:
    """Return the agent and the name of the last instance of a page; a cursor is `agent/name`.

    >>> read_cursor("daily-report/eu")
    ('daily-report', 'eu')
    """
    if cursor is None:
        return None
    agent, _, name = cursor.partition("/")
    if not agent or not name:
        raise InvalidArgument("cursor: use the cursor of the previous page as it is")
    return agent, name


def _readable(rows: list[JobRow]) -> tuple[JobRecord, ...]:
    jobs = []
    for row in rows:
        try:
            jobs.append(job_from_row(row))
        except InvalidArgument as error:
            log.warning("job.unreadable", **row.log_fields, error=error.message)
    return tuple(jobs)
