"""Messages to an agent: a message waits in a session until it becomes part of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from wakeful.agents.sessions import command_in, payload_of, receive
from wakeful.document import payload_from_text
from wakeful.document.fields import WORK
from wakeful.document.objects import read_as
from wakeful.document.sessions import session_name
from wakeful.document.target import AGENT_KIND
from wakeful.document.values import compact, json_text, storable
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.job import Work
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.conversations import JOB_SESSION
from wakeful.run.instances import DEFAULT_INSTANCE, MAILBOX_FULL, STOPPED
from wakeful.service.admin.budgets import Budgets
from wakeful.service.agents.wakes import WakeJobs
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_target_policy import AgentTargetPolicy
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.store.accounts import AgentRow
from wakeful.store.idempotency import Keyed
from wakeful.store.mailbox_rules import refusal
from wakeful.store.port import Store
from wakeful.store.sessions import SessionKey, SessionMessage, SessionUpdate
from wakeful.values.ids import id_at

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
        if view.row.status == "stopped":
            raise refusal(row.name, name, STOPPED, agent_class.mailbox)
        if view.waiting >= agent_class.mailbox:
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
        json_text(payload_of(session, [message]), longest)
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
