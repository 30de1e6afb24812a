"""What a store keeps of conversations: the messages that wait, and which runs are turns.

- `sessions`: one row a conversation of an agent. Its row is the lock: whoever adds a message, takes one away,
  or begins a turn does so alone. `due_at` is set while messages wait, and the index on it is what is scanned
  for turns to begin.
- `messages`: those that wait. One that became part of a turn is in that run's payload.
- `turns`: which runs are turns. A turn is *live* until somebody has seen that its run is over.

What becomes of messages is decided by the pure function that the caller hands in (`wakeful.agents.sessions`).
When runs end while anything waits in a session, that is announced (`sessions`), whoever ended them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from wakeful.run import NewRun
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed

#: The job that an agent with a target of its own is woken through: it has no ticks, and what every launch
#: needs, such as a secret to sign with.
WAKE_JOB: Final = "woken-by-hand"
#: The job by which an agent looks around by itself, and how it is marked as Wakeful's own.
HEARTBEAT: Final = "heartbeat"
HEARTBEAT_LABELS: Final = '{"system":"heartbeat"}'


class SessionKey(NamedTuple):
    """Which conversation."""

    workspace: str
    agent: str
    name: str


class SessionMessage(NamedTuple):
    """Something that somebody said to an agent."""

    id: str
    body: str
    #: who, as the audit names them
    sent_by: str
    #: what its turn is triggered by: `user`, or `agent`
    trigger: str
    #: never before that of one that was there already
    at_ms: int


class Turn(NamedTuple):
    """A run that is a turn, and was live when somebody last looked."""

    run_id: str
    #: None: the run is gone
    state: str | None
    usage: str | None


class SessionState(NamedTuple):
    """A conversation as it stands."""

    key: SessionKey
    #: those that wait, and the live turns: oldest first
    messages: Sequence[SessionMessage]
    turns: Sequence[Turn]
    #: how full its context window is, of 1, where somebody said so
    context: float | None
    #: compact JSON of how its agent's sessions queue; None: as is usual
    queue: str | None
    #: the agent's job `WAKE_JOB`, if it has one
    job_id: str | None
    work: str | None
    policy: str | None


class SessionUpdate(NamedTuple):
    """What becomes of it."""

    #: a message that waits from now on
    arrived: SessionMessage | None = None
    #: ids of messages that nobody will read, and of those that became part of a turn
    dropped: Sequence[str] = ()
    taken: Sequence[str] = ()
    #: turns that are cancelled, each with its reason
    stopped: Sequence[tuple[str, str]] = ()
    #: the runs of new turns
    begun: Sequence[NewRun] = ()
    #: turns that are over
    over: Sequence[str] = ()
    #: when the next turn may begin, if there is a place for it; None: nothing waits
    due_ms: int | None = None
    places: int = 1
    context: float | None = None
    #: how many turns are waiting, after all this
    waiting: int = 0


class SessionView(NamedTuple):
    """A conversation, for whoever looks."""

    name: str
    #: how many messages wait
    messages: int
    #: the runs of the turns that are under way, or wait for a worker
    turns: tuple[str, ...]
    context: float | None
    due_ms: int | None
    created_ms: int
    updated_ms: int


SessionRule = Callable[[SessionState], SessionUpdate]


class SessionStore(Protocol):
    """The part of a store that keeps conversations."""

    async def update_session(
        self,
        key: SessionKey,
        now_ms: int,
        judge: SessionRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[SessionUpdate] | None = None,
    ) -> SessionUpdate:
        """Lock a conversation, which is made where there is none, and write what `judge` makes of it.

        Announced (`sessions`) while anything waits in it.
        """
        ...

    async def take_turns(self, now_ms: int, limit: int, judge: SessionRule) -> int:
        """The same for up to `limit` conversations that are due and have a place, longest due first.

        Those that somebody else holds are passed over. Returns how many there were.
        """
        ...

    async def next_turn(self, now_ms: int) -> tuple[bool, int | None]:
        """Whether any conversation is due, whether or not it has a place; and when the next one will be."""
        ...

    async def sessions(self, workspace: str, agent: str, after: str | None, limit: int) -> list[SessionView]:
        """The conversations of an agent, by name, from the first after `after`."""
        ...

    async def prune_sessions(self, before_ms: int) -> None:
        """Forget turns that began before then and are over, and conversations since when nobody spoke."""
        ...
