"""Workspaces and agents, with a cache of one second, since every service method reads them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from wakeful.document import Defaults, payload_from_text
from wakeful.document.agents import REQUIRED, DeliveryAddress, deliver_to
from wakeful.errors import NotFound
from wakeful.job.self_scheduling import DEFAULT_BOUNDS, SelfScheduling, read_bounds
from wakeful.service.auth.access import LOCAL, Action, Principal, permit
from wakeful.service.auth.actor_names import ActorNames
from wakeful.service.recent_values import RecentValues
from wakeful.store.accounts import AgentChanged, AgentRow, Inherited, WorkspaceRow, no_agent
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB, text_size
from wakeful.values.json_value import Json

_TRIES: Final = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobContext:
    """The workspace and agent of a job, and the defaults that they give to its document."""

    workspace: str
    agent: str
    defaults: Defaults
    #: the target of its agent
    target: Mapping[str, Json] | None = None
    active: bool = True
    #: what the store compares with the agent's row when it writes a job of this context
    inherited: Inherited = field(default_factory=Inherited)
    #: where the output of the agent goes, and where else its keys may deliver output
    channel: str | None = None
    to: str | None = None
    deliver_to: tuple[DeliveryAddress, ...] = ()
    #: whether jobs that the agent makes wait for a person, and the bounds of those jobs
    approval: bool = False
    bounds: SelfScheduling = DEFAULT_BOUNDS
    #: equal for contexts in which the same document means the same
    key: str = field(init=False)

    def __post_init__(self) -> None:
        parts = self.workspace, self.agent, self.defaults.tz, self.target, self.active
        object.__setattr__(self, "key", repr(parts))


class Accounts:
    """Reads workspaces and agents. Changes of another process are visible within a second."""

    def __init__(self, store: Store, defaults: Defaults) -> None:
        self._store = store
        #: the names of who made, changed or started something
        self.names = ActorNames(store)
        #: the defaults where neither a document nor its agent or workspace sets a value
        self.defaults = defaults
        self._contexts: RecentValues[tuple[str, str], JobContext] = RecentValues(
            store, 4 * MB, lambda context: 1_000 + 8 * text_size(context.key)
        )
        self._workspaces: set[str] = set()

    async def authorize(
        self, principal: Principal, action: Action, workspace: str, agent: str | None = None
    ) -> None:
        """Check the permission, and that the workspace exists."""
        permit(principal, action, workspace, agent)
        if principal is LOCAL or workspace in self._workspaces:
            return
        if await self._store.workspace(workspace) is None:
            raise NotFound(f"no workspace '{workspace[:64]}'")
        self._workspaces.add(workspace)

    async def context(self, workspace: str, agent: str) -> JobContext:
        """Return the context of a new or changed job. The agent need not exist yet."""
        return await self._contexts.get((workspace, agent), partial(self._read_context, workspace, agent))

    async def _read_context(self, workspace: str, agent: str) -> JobContext:
        workspace_row = await self._store.workspace(workspace)
        return self.new_context(workspace, agent, workspace_row, await self._store.agent(workspace, agent))

    async def with_context(self, workspace: str, agent: str, work: Callable[[JobContext], Awaitable[T]]) -> T:
        """Run `work` with the context of an agent; retry if the agent has changed meanwhile."""
        for _ in range(_TRIES):
            try:
                return await work(await self.context(workspace, agent))
            except AgentChanged:
                self.forget(workspace, agent)
        return await work(await self.context(workspace, agent))

    def new_context(
        self, workspace: str, agent: str, workspace_row: WorkspaceRow | None, row: AgentRow | None
    ) -> JobContext:
        """Return the context of a job of this agent in this workspace."""
        tz = (row.tz if row else None) or (workspace_row.tz if workspace_row else None)
        defaults = replace(self.defaults, tz=tz) if tz else self.defaults
        target = payload_from_text(row.target) if row and row.target else None
        return JobContext(
            workspace,
            agent,
            defaults,
            target if isinstance(target, dict) else None,
            row.active if row else True,
            row.inherited if row else Inherited(),
            row.channel if row else None,
            row.to if row else None,
            deliver_to(payload_from_text(row.deliver_to)) if row and row.deliver_to else (),
            row is not None and row.approval == REQUIRED,
            _bounds(row),
        )

    async def agent(self, workspace: str, agent: str) -> AgentRow:
        """Return the agent, or raise NotFound. A cached context that differs from it is dropped."""
        row = await self._store.agent(workspace, agent)
        if row is None:
            raise no_agent(agent)
        known = self._contexts.peek((workspace, agent))
        if known is not None and known.inherited != row.inherited:
            self._contexts.forget((workspace, agent))
        return row

    async def check_agent(self, principal: Principal, workspace: str, agent: str | None) -> None:
        """Raise NotFound for an agent that does not exist, which may be why a list is empty."""
        if agent not in (None, principal.agent) and principal is not LOCAL:
            await self.agent(workspace, agent)

    def forget(self, workspace: str, agent: str | None = None) -> None:
        """Drop the cached contexts of a workspace or agent that has changed."""
        self._contexts.forget_all(lambda key, _: key[0] == workspace and agent in (None, key[1]))


def _bounds(row: AgentRow | None) -> SelfScheduling:
    document = payload_from_text(row.self_scheduling) if row else None
    return read_bounds(document if isinstance(document, dict) else None)
