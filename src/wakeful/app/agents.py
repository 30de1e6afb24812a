"""The agents of a workspace in this process. `wakeful.client.admin` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from wakeful.app.home import LocalPart
from wakeful.app.jobs import plain_fields
from wakeful.app.pages import check_cursor, make_page, one_more
from wakeful.app.runs import Runs
from wakeful.client.admin import Agents as ClientAgents
from wakeful.client.instances import SignalLike, check_state, delete_all, read_states
from wakeful.document.agents import is_session_name
from wakeful.errors import FailedPrecondition
from wakeful.model import (
    AgentInfo,
    InstanceInfo,
    InstanceStatus,
    MessageReceipt,
    Page,
    Run,
    SessionInfo,
    StartedInstances,
)
from wakeful.model.codec import JsonObject, from_json
from wakeful.run.instances import DEFAULT_INSTANCE
from wakeful.run.instances import InstanceStatus as StatusName
from wakeful.service.agents.instances import read_cursor
from wakeful.service.agents.sessions import read_history_cursor
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.model_mapping import job_as_read
from wakeful.service.rights import LOCAL_RIGHTS
from wakeful.service.serializers import (
    DELAYS,
    HISTORY,
    INSTANCES,
    RECEIPTS,
    RUNS,
    SESSIONS,
    serialize_agent,
    serialize_saved_agent,
    serialize_started,
)
from wakeful.signal.signals import Signal
from wakeful.store.instances import InstanceView


class Agents(LocalPart, ClientAgents):
    """The agents of a workspace: `app.agents`."""

    @overload
    async def list(self) -> builtins.list[AgentInfo]: ...
    @overload
    async def list(self, name: str) -> builtins.list[InstanceInfo]: ...
    async def list(self, name: str | None = None) -> builtins.list[AgentInfo] | builtins.list[InstanceInfo]:
        if name is not None:
            return await self._all_instances(name)
        rows = await self._services.agents.list(LOCAL, self._workspace)
        return [from_json(AgentInfo, serialize_agent(LOCAL, row, LOCAL_RIGHTS)) for row in rows]

    async def get(self, name: str) -> AgentInfo:
        row = await self._services.agents.get(LOCAL, self._workspace, name)
        return await self._with_usage(name, serialize_agent(LOCAL, row, LOCAL_RIGHTS))

    async def put(self, name: str, fields: Mapping[str, object]) -> AgentInfo:
        saved = await self._services.agents.put(LOCAL, self._workspace, name, plain_fields(fields))
        return await self._with_usage(name, serialize_saved_agent(LOCAL, saved))

    async def update(
        self, name: str, fields: Mapping[str, object], *, if_version: int | None = None
    ) -> AgentInfo:
        saved = await self._services.agents.update(
            LOCAL, self._workspace, name, plain_fields(fields), version=if_version
        )
        return await self._with_usage(name, serialize_saved_agent(LOCAL, saved))

    async def rotate_secret(self, name: str) -> AgentInfo:
        saved = await self._services.agents.rotate_secret(LOCAL, self._workspace, name)
        return await self._with_usage(name, serialize_saved_agent(LOCAL, saved))

    async def delete(self, name: str) -> None:
        await self._services.agents.delete(LOCAL, self._workspace, name)

    async def say(
        self,
        name: str,
        message: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        to: str | None = None,
    ) -> MessageReceipt:
        given = {"message": message, "session": session, "channel": channel, "to": to}
        document = {field: value for field, value in given.items() if value is not None}
        receipt = await self._services.agents.messages.send(LOCAL, self._workspace, name, document)
        return RECEIPTS.to_model(receipt)

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionInfo]:
        after = check_cursor(cursor, is_session_name)
        found = await self._services.agents.sessions.list(
            LOCAL, self._workspace, name, after, one_more(limit)
        )
        return make_page(found, limit, SESSIONS.to_model, lambda session: session.name)

    async def session(
        self, name: str, session: str = "main", *, limit: int = 50, cursor: str | None = None
    ) -> SessionInfo:
        before = read_history_cursor(cursor)
        found = await self._services.agents.sessions.get(
            LOCAL, self._workspace, name, session, before, one_more(limit)
        )
        shown = found.entries[:limit]
        following = str(shown[-1].sequence) if len(found.entries) > limit else None
        history = tuple(HISTORY.to_model(entry) for entry in shown)
        return SESSIONS.to_model(found.view, history=history, cursor=following)

    async def delete_session(self, name: str, session: str = "main") -> None:
        await self._services.agents.sessions.delete(LOCAL, self._workspace, name, session)

    # --- instances -------------------------------------------------------------------------------

    async def start(
        self,
        name: str,
        id: str = DEFAULT_INSTANCE,
        *,
        state: Mapping[str, object] | None = None,
        replace: bool = False,
    ) -> InstanceInfo:
        check_state(state)
        manage = self._services.agents.instances
        return _instance(await manage.start(*self._at(name, id), state=state, replace=replace))

    async def start_many(
        self,
        name: str,
        ids: Iterable[str] | Mapping[str, Mapping[str, object] | None],
        *,
        replace: bool = False,
    ) -> StartedInstances:
        started = await self._services.agents.instances.start_many(
            LOCAL, self._workspace, name, read_states(ids), replace=replace
        )
        return from_json(StartedInstances, serialize_started(started))

    async def delete_instance(self, name: str, id: str, *, erase: bool = False) -> None:
        await delete_all(self._delete_instance, name, id, erase=erase)

    async def _delete_instance(self, name: str, id: str, *, erase: bool) -> bool:
        manage = self._services.agents.instances
        return await manage.delete(*self._at(name, id), erase=erase) is not None

    async def stop(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return _instance(await self._services.agents.instances.stop(*self._at(name, id)))

    async def pause(self, name: str, id: str = DEFAULT_INSTANCE, *, note: str | None = None) -> InstanceInfo:
        return _instance(await self._services.agents.instances.pause(*self._at(name, id), note=note))

    async def resume(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return _instance(await self._services.agents.instances.resume(*self._at(name, id)))

    async def hibernate(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        return _instance(await self._services.agents.instances.hibernate(*self._at(name, id)))

    @property
    def _current_workspace(self) -> str:
        return self._workspace

    async def _wait(self, name: str, run_id: str) -> Run:
        return await Runs(self._services, self._workspace, name, self._home).wait(run_id)

    async def _send(self, name: str, id: str, signals: Sequence[SignalLike]) -> builtins.list[Run]:
        read = [read_signal(each) for each in signals]
        received = await self._services.agents.signals.send(*self._at(name, id), read)
        return [RUNS.to_model(each.run, duplicate=each.duplicate) for each in received]

    async def state(self, name: str, id: str = DEFAULT_INSTANCE) -> dict[str, Any]:
        details = await self._services.agents.instances.get(*self._at(name, id))
        if details.state is None:
            raise FailedPrecondition(
                details.state_error
                or f"instance '{id}' has the initial state of its class, which this program does not have"
            )
        return details.state

    async def instance(self, name: str, id: str = DEFAULT_INSTANCE) -> InstanceInfo:
        details = await self._services.agents.instances.get(*self._at(name, id))
        view, schedules = details.view, tuple(job_as_read(job, ticks=False) for job in details.schedules)
        return INSTANCES.to_model(
            view.row,
            waiting=view.waiting,
            run_id=view.active_run,
            schedules=schedules,
            delays=tuple(DELAYS.to_model(each) for each in details.delays),
            state=details.state if details.has_state else None,
            state_error=details.state_error if details.has_state else None,
            may=tuple(LOCAL_RIGHTS.instance(view.row)),
        )

    async def instances(
        self,
        name: str | None = None,
        *,
        status: InstanceStatus | StatusName | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InstanceInfo]:
        found = await self._services.agents.instances.list(
            LOCAL, self._workspace, name, status=status, after=read_cursor(cursor), limit=one_more(limit)
        )
        return make_page(found, limit, _instance, lambda view: f"{view.row.agent}/{view.row.name}")

    def _at(self, name: str, id: str) -> tuple[Principal, str, str, str]:
        return LOCAL, self._workspace, name, id

    async def _with_usage(self, name: str, content: JsonObject) -> AgentInfo:
        spent = await self._services.admin.budgets.spent(self._workspace, name)
        return from_json(AgentInfo, content, spent=spent)


def read_signal(value: SignalLike) -> Signal:
    """Return a signal from a signal, the text of its type, or a CloudEvent as JSON."""
    if isinstance(value, Signal):
        return value
    return Signal(value) if isinstance(value, str) else Signal.from_json(value)


def _instance(view: InstanceView) -> InstanceInfo:
    may = tuple(LOCAL_RIGHTS.instance(view.row))
    return INSTANCES.to_model(view.row, waiting=view.waiting, run_id=view.active_run, may=may)
