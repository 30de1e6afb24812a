"""Sessions of agents: waiting messages, and the runs that are turns.

- `sessions`: one row per session. The row is the lock for adding and removing messages and for beginning
  turns. `due_at` is set while messages wait; its index is scanned for turns to begin.
- `messages`: waiting messages. A message that became part of a turn is in the payload of that run.
- `turns`: which runs are turns. A turn is *live* until an update has seen that its run has ended; the last
  one of a session stays live until it is pruned.
- `session_history`: what was said and answered, numbered by `sequence` of the session. Entries are appended
  with the outcome of a run (`Finished.history`). The longest history is in `wakeful.run.conversations`.

Updates are decided by a pure function that the caller passes (`wakeful.agents.sessions`). When runs end while
messages wait in any session, the topic `sessions` is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wakeful.job.job import HEARTBEAT_JOB
from wakeful.job.job import WAKE_JOB as WAKE_JOB
from wakeful.run.run import NewRun

#: The job of an agent's heartbeat, and the labels that mark it as internal.
HEARTBEAT: Final = HEARTBEAT_JOB
HEARTBEAT_LABELS: Final = '{"system":"heartbeat"}'


class SessionKey(NamedTuple):
    """Identifies a session."""

    workspace: str
    agent: str
    name: str


class SessionMessage(NamedTuple):
    """A message to an agent."""

    id: str
    body: str
    #: the sender, as in the audit
    sent_by: str
    #: the trigger of its turn: `user`, `agent`, or `chain` if a run that no person started sent it
    trigger: str
    #: not before that of an earlier message of the session
    at_ms: int
    #: of its turn: how many jobs in a row an agent made for itself
    depth: int = 0


class Turn(NamedTuple):
    """A run that is a turn, and was live at the last update."""

    run_id: str
    #: None: the run is deleted
    state: str | None
    usage: str | None
    #: what was said: the stored text of `agents.sessions.turn_payload`
    payload: str | None = None


class SessionState(NamedTuple):
    """A session before an update."""

    key: SessionKey
    #: waiting messages and live turns, oldest first
    messages: Sequence[SessionMessage]
    turns: Sequence[Turn]
    #: the used share of its context window (0 to 1), if reported
    context: float | None
    #: compact JSON of the queue settings of its agent; None: the defaults
    queue: str | None
    #: the agent's job `WAKE_JOB`, if it has one
    job_id: str | None
    work: str | None
    policy: str | None


class SessionUpdate(NamedTuple):
    """The changes of a session."""

    #: a new message that waits
    arrived: SessionMessage | None = None
    #: ids of messages that are dropped (also a new one, which is not stored), and of those that became part
    #: of a turn
    dropped: Sequence[str] = ()
    taken: Sequence[str] = ()
    #: turns to cancel, with the reason
    stopped: Sequence[tuple[str, str]] = ()
    #: the runs of new turns
    begun: Sequence[NewRun] = ()
    #: turns whose run has ended
    over: Sequence[str] = ()
    #: when the next turn may begin, and how many may be live at once; None: nothing waits
    due_ms: int | None = None
    places: int = 1
    context: float | None = None
    #: the number of waiting turns after the update
    waiting: int = 0
    #: the new channel and recipient of the session; None: unchanged
    address: tuple[str, str | None] | None = None


class HistoryRow(NamedTuple):
    """An entry of the history of a session."""

    #: its number in the session, from 1 on and without gaps
    sequence: int
    #: `user` or `assistant` (`conversations.HistoryRole`)
    role: str
    content: str
    #: an estimate of its length
    tokens: int
    run_id: str
    #: of an answer that a job added to the conversation that it comes from
    job_name: str | None
    at_ms: int


class SessionView(NamedTuple):
    """A session as it is listed."""

    name: str
    #: the number of waiting messages
    messages: int
    #: the runs of its live turns
    turns: tuple[str, ...]
    context: float | None
    due_ms: int | None
    created_ms: int
    updated_ms: int
    #: where its last message with a channel came from
    channel: str | None = None
    to: str | None = None


#: Decides the update of a session.
SessionRule = Callable[[SessionState], SessionUpdate]
