"""Wakes of an agent without a job of its own, and messages to it.

Both run through an internal job. A message waits in a session until it becomes part of a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from wakeful.agents.sessions import LANE, command_in, receive, turn_payload
from wakeful.document import payload_from_text, work_from_text
from wakeful.document.agents import session_name
from wakeful.document.fields import WORK
from wakeful.document.kinds import read_as
from wakeful.document.target import AGENT_KIND
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.job import Definition, Work, inherit
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.job.start_rules import BudgetOwner, find_requirement
from wakeful.launch.secrets import Keyring, new_secret
from wakeful.run.conversations import JOB_SESSION
from wakeful.run.factory import claim_timeout_ms, manual_run, signal_of_job
from wakeful.run.instances import (
    CLOSED,
    DEFAULT_INSTANCE,
    INSTANCE_DELETED,
    MAILBOX_FULL,
    STOPPED,
    WAKE_SIGNAL,
)
from wakeful.service.admin.limits import Budgets
from wakeful.service.agents.inheritance import needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import AgentTargetPolicy
from wakeful.service.jobs.job_editor import run_as_it_is
from wakeful.service.jobs.job_factory import unscheduled_job
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.service.runs.manual_runs import read_payload
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.accounts import AgentRow, no_agent
from wakeful.store.idempotency import Keyed
from wakeful.store.internal_jobs import InternalChange, InternalRules
from wakeful.store.mailbox_rules import refusal
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_to_row
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sessions import WAKE_JOB, SessionKey, SessionMessage, SessionUpdate
from wakeful.values.ids import id_at
from wakeful.values.json_value import compact, json_text, storable

FIELDS: Final = ("message", "session", "channel", "to")
#: where a message comes from, read as the fields of a job
_ADDRESS: Final = {field.name: field.kind for field in WORK if field.name in ("channel", "to")}


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a message."""

    session: str
    #: `waiting` for a turn, `started`, `dropped` because the queue is full, or `stopped` for a command
    #: (`/stop`, `/stopall`)
    state: Literal["waiting", "started", "dropped", "stopped"]
    #: the id of the message; None for a command
    id: str | None
    #: the run of the turn that it started
    run_id: str | None
    #: when its turn may start, if a slot is free
    due_ms: int | None
    #: the number of waiting turns
    waiting: int
    #: the turns that it stopped, and the number of messages that it dropped
    stopped: tuple[str, ...]
    dropped: int


class MessageService:
    """Accepts messages. `SessionService` reads the sessions."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        budgets: Budgets,
        wake_jobs: WakeJobs,
        origins: RunOrigins,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._wake_jobs = wake_jobs
        self._origins = origins
        self._longest = accounts.defaults.max_payload_bytes
        self._budgets = budgets

    async def send(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        *,
        keyed: Keyed[Receipt] | None = None,
    ) -> Receipt:
        """Send a message to the agent, in the named session or in `main`.

        `channel` and `to` say where it comes from: jobs that are made in the conversation deliver there.
        """
        await self._accounts.authorize(principal, "run", workspace, agent)
        row = await self._accounts.agent(workspace, agent)
        unknown = sorted(str(key)[:64] for key in document if key not in FIELDS)
        if unknown:
            raise InvalidArgument(f"a message has no {', '.join(unknown)}; it has {', '.join(FIELDS)}")
        session = _session(document.get("session"))
        address = await self._address(principal, workspace, agent, document)
        now_ms = self._store.clock.now_ms()
        call = await self._origins.call(principal, workspace, agent)
        body = _body(document.get("message"))
        message = SessionMessage(id_at(now_ms), body, principal.actor, "user", now_ms)
        if call is not None and command_in(body) is None:
            message = call.sent(message)
        _check_size(session, message, self._longest)
        order = command_in(body)
        if order is None:
            if not row.active:
                raise FailedPrecondition(f"agent '{agent}' is not active; activate it to send messages")
            await self._budgets.check(BudgetOwner(workspace, agent))
            await self._check_instance(row)
            await self._wake_jobs.job(workspace, agent)
        entry = principal.entry(
            workspace, "agent.message", agent, compact({"session": session, "order": order})
        )
        key = SessionKey(workspace, agent, session)
        message_id = None if order else message.id
        settled = await self._store.update_session(
            key,
            now_ms,
            lambda talk: receive(talk, message, now_ms, address),
            [entry],
            keyed.of(lambda settled: _receipt(session, message_id, settled)) if keyed else None,
            call.charge if call else None,
        )
        return _receipt(session, message_id, settled)

    async def _address(
        self, principal: Principal, workspace: str, agent: str, document: Mapping[str, object]
    ) -> tuple[str, str | None] | None:
        """Return the channel and the recipient of a message, if it has any.

        An agent's key names only where it may deliver: a job made in the conversation delivers there.
        """
        channel, to = (
            None if document.get(name) is None else str(read_as(name, _ADDRESS[name], document[name]))
            for name in ("channel", "to")
        )
        if channel is None:
            if to is not None:
                raise InvalidArgument("to: it is a recipient on a channel; give the channel too")
            return None
        context = await self._accounts.context(workspace, agent)
        AgentTargetPolicy.check_delivery(principal, Work(channel=channel, to=to), context)
        return channel, to

    async def _check_instance(self, row: AgentRow) -> None:
        """Raise an error if the instance that handles the messages is stopped, or its mailbox is full."""
        target = payload_from_text(row.target)
        if not isinstance(target, dict) or target.get("kind") != AGENT_KIND:
            return
        name = str(target.get("instance") or DEFAULT_INSTANCE)
        view = await self._store.instance(row.workspace, row.name, name)
        agent_class = await self._store.agent_class(row.workspace, row.name)
        if view is None or agent_class is None:
            return
        if view.row.status in CLOSED:
            reason = STOPPED if view.row.status == "stopped" else INSTANCE_DELETED
            raise refusal(row.name, name, reason, agent_class.mailbox)
        if view.waiting - view.delays >= agent_class.mailbox:
            raise refusal(row.name, name, MAILBOX_FULL, agent_class.mailbox)


def _session(value: object) -> str:
    """Return the session of a message. A job runs in its own session, in which no message arrives."""
    name = session_name(value)
    if name.startswith(JOB_SESSION):
        raise InvalidArgument(
            f"session: '{name}' is the session of a job, which takes no messages; choose a name that "
            f"does not begin with '{JOB_SESSION}'"
        )
    return name


def _body(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument("message: it is missing; write text such as 'good morning'")
    return value


def _check_size(session: str, message: SessionMessage, longest: int) -> None:
    """Raise InvalidArgument if the message exceeds the payload limit or cannot be stored."""
    try:
        storable(message.body, longest)
        json_text(turn_payload(session, [message]), longest)
    except InvalidArgument as error:
        raise InvalidArgument(f"message: {error.message}") from error


def _receipt(session: str, message_id: str | None, settled: SessionUpdate) -> Receipt:
    state: Literal["waiting", "started", "dropped", "stopped"]
    if message_id is None:
        state = "stopped"
    elif message_id in settled.dropped:
        state = "dropped"
    else:
        state = "started" if settled.arrived is None else "waiting"
    return Receipt(
        session=session,
        state=state,
        id=message_id,
        run_id=settled.begun[-1].id if state == "started" else None,
        due_ms=settled.due_ms if state == "waiting" else None,
        waiting=settled.waiting,
        stopped=tuple(run_id for run_id, _ in settled.stopped),
        dropped=len(settled.dropped),
    )


class WakeJobs:
    """Creates the wake job of an agent on demand. It has the target of the agent."""

    def __init__(self, store: Store, accounts: Accounts, keyring: Keyring) -> None:
        self._store = store
        self._accounts = accounts
        self._keyring = keyring

    async def job(self, workspace: str, agent: str) -> tuple[Work, JobRow]:
        """Return the work of a wake and the wake job. Its runs move with the job if the target changes.

        The work is that of the job: it has the target of the agent, in the lane of conversations. An agent
        that is deleted meanwhile is not added again: that is NotFound.
        """
        row = await self._store.job(workspace, agent, WAKE_JOB)
        if row is None:
            row = await self._create(workspace, agent)
        return work_from_text(row.work), row

    async def _create(self, workspace: str, agent: str) -> JobRow:
        """Add the wake job in a transaction that holds the agent, unless it exists by then."""
        found: list[JobRow] = []

        def add_missing(owner: AgentRow, old: JobRow | None) -> InternalChange | None:
            found[:] = [self._new_job(owner) if old is None else old]
            return InternalChange(add=found[0]) if old is None else None

        def internal(owner: AgentRow) -> InternalRules:
            return {WAKE_JOB: lambda old: add_missing(owner, old)}

        if await self._store.put_agent(workspace, agent, lambda old: None, internal=internal) is None:
            raise no_agent(agent)
        return found[0]

    def _new_job(self, owner: AgentRow) -> JobRow:
        context = self._accounts.new_context(owner.workspace, owner.name, None, owner)
        work = inherit(Work(lane=LANE), context.target)
        now_ms = self._store.clock.now_ms()
        definition = Definition(
            WAKE_JOB, None, work=work, description="Made when the agent was woken by hand."
        )
        row = job_to_row(unscheduled_job(owner.workspace, owner.name, definition, now_ms))
        if signed_by_agent(work, owner.inherited):
            return with_agents_secret(row, owner.inherited, now_ms)
        if needs_secret(definition):
            return row._replace(secret=self._keyring.seal(new_secret()))
        return row


class WakeService:
    """Wakes agents on request."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        budgets: Budgets,
        wake_jobs: WakeJobs,
        origins: RunOrigins,
        telemetry: RunTelemetry,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._wake_jobs = wake_jobs
        self._budgets = budgets
        self._origins = origins
        self._telemetry = telemetry

    async def wake(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        payload: object = None,
        *,
        keyed: Keyed[RunView] | None = None,
    ) -> RunView:
        """Create a pending run of the agent with this payload."""
        await self._accounts.authorize(principal, "wake", workspace, agent)
        view = await run_as_it_is(self._wake)(principal, workspace, agent, payload, keyed)
        self._telemetry.record_trigger(view)
        return view

    async def _wake(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        payload: object,
        keyed: Keyed[RunView] | None,
    ) -> RunView:
        await self._accounts.agent(workspace, agent)
        call = await self._origins.call(principal, workspace, agent)
        own = read_payload(payload, self._accounts.defaults.max_payload_bytes)
        await self._budgets.check(BudgetOwner(workspace, agent))
        work, job = await self._wake_jobs.job(workspace, agent)
        now_ms = self._store.clock.now_ms()
        run = manual_run(
            job_id=job.id,
            workspace=workspace,
            agent=agent,
            job_name=job.name,
            lane=work.lane,
            trigger="agent" if call else "user",
            now_ms=now_ms,
            triggered_by=principal.actor,
            payload=own,
            claim_ms=claim_timeout_ms(work, DEFAULT_POLICY),
            requirement=find_requirement(work, workspace, agent),
        )
        run = signal_of_job(run, work, WAKE_SIGNAL)
        if call is not None:
            (run,) = call.triggered([run])
        entry = principal.entry(workspace, "agent.wake", agent)
        response: Keyed[list[RunView]] | None = keyed.of(lambda runs: runs[0]) if keyed else None
        charge = call.charge if call else None
        (view,) = await self._store.add_runs([run], [entry], response, charge, [job.version])
        return view
