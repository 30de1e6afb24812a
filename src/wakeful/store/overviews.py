"""What pages show of agents, conversations, mailboxes and dead letters: bounded reads from an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from wakeful.store.accounts import AgentRow
from wakeful.store.rows import RunView
from wakeful.store.sessions import SessionKey, SessionMessage

#: How many characters of an error are read: `failure_cause` reads no more.
ERROR_READ: Final = 2_000


class AgentOverview(NamedTuple):
    """What an agent has. A count ends at the limit of the call."""

    name: str
    jobs: int
    sessions: int
    instances: int
    #: the version of its class; None: it has no class
    class_version: int | None
    #: the job of its heartbeat, and the newest run of that job
    heartbeat_job: str | None
    heartbeat_run: str | None


class RunOutcome(NamedTuple):
    """What a bar of the last outcomes shows of a run."""

    id: str
    state: str
    trigger: str
    fire_ms: int
    started_ms: int | None
    finished_ms: int | None

    @property
    def duration_ms(self) -> int | None:
        """How long it ran; None if it has not ended, or did not start."""
        if self.started_ms is None or self.finished_ms is None:
            return None
        return max(0, self.finished_ms - self.started_ms)


class DayCost(NamedTuple):
    """What runs used on a day (UTC, counted from 1970)."""

    day: int
    tokens: int
    cost: float


class JobOverview(NamedTuple):
    """What a list shows of a job besides its fields."""

    #: its last runs, oldest first
    runs: tuple[RunOutcome, ...] = ()
    #: the days on which its runs used something, oldest first
    costs: tuple[DayCost, ...] = ()
    #: the ids of its open incidents, oldest first
    incidents: tuple[str, ...] = ()


class DeadLetterFilter(NamedTuple):
    """Which dead letters to read; None does not filter. Ids are in the order of creation."""

    workspace: str
    agent: str | None = None
    #: only ids above this one, and not above the other; oldest first if `oldest_first`
    after: str | None = None
    through: str | None = None
    #: only ids below this one
    before: str | None = None
    oldest_first: bool = False
    limit: int = 50


class DeadLetterRow(NamedTuple):
    """What says why a run is a dead letter."""

    id: str
    agent: str
    job_id: str | None
    job_name: str | None
    reason: str | None
    response_code: int | None
    #: its beginning
    error: str | None
    finished_ms: int


class OverviewStore(Protocol):
    """The part of a store that pages read."""

    async def agents_page(
        self, workspace: str, after: str | None, limit: int, search: str = ""
    ) -> list[AgentRow]:
        """Return agents by name, after that name; with `search`, only those whose name contains it."""
        ...

    async def agent_overviews(
        self, workspace: str, names: Sequence[str], most: int
    ) -> dict[str, AgentOverview]:
        """Return what these agents have, by name; counts end at `most`."""
        ...

    async def job_overviews(
        self, job_ids: Sequence[str], runs: int, since_day: int
    ) -> dict[str, JobOverview]:
        """Return what a list shows of these jobs, by id: so many last runs, and the costs since that day."""
        ...

    async def waiting_messages(self, key: SessionKey, limit: int) -> list[SessionMessage]:
        """Return the messages that wait in a session, oldest first."""
        ...

    async def recent_turns(self, key: SessionKey, limit: int) -> list[RunView]:
        """Return the newest turns of a session whose run exists, newest first."""
        ...

    async def mailbox(self, instance_id: str, limit: int) -> list[RunView]:
        """Return the pending runs of an instance, in the order in which it handles them."""
        ...

    async def dead_letters(self, only: DeadLetterFilter) -> list[DeadLetterRow]:
        """Return dead letters, newest first or oldest first."""
        ...
