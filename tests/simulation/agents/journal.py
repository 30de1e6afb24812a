"""The journal of signals: what senders sent and what handlers did, for the checker of mailboxes.

Nothing here comes from the store. A *token* identifies each signal that a handler sends, each signal that it
emits and each schedule that it sets; it names the run and the attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.journal import Launched


class Dispatch(NamedTuple):
    """A signal that a handler sends to an instance."""

    token: str
    #: agent and instance
    to: tuple[str, str]
    #: of a `Delay`; None: it is an `Emit`
    delay_ms: int | None = None
    #: an id that the handler chose: the recipient must not receive it twice
    signal_id: str | None = None


class Plan(NamedTuple):
    """The directives of one attempt."""

    sends: tuple[Dispatch, ...] = ()
    #: tokens of signals without a recipient
    emitted: tuple[str, ...] = ()
    #: schedules to set, with their token, or to cancel (None), in this order
    crons: tuple[tuple[str, str | None], ...] = ()
    stop: bool = False


@dataclass
class Handling:
    """One call of a handler."""

    launch: Launched
    agent: str
    instance: str
    #: the token of its signal
    token: str
    #: how many signals this chain has had before
    depth: int
    #: the runs in the state that the handler saw
    saw: list[str]
    #: what it returned; None if it did not return
    plan: Plan | None = None
    returned_ms: int = 0


class Sent(NamedTuple):
    """A signal whose sender got the response."""

    sender: str
    agent: str
    instance: str
    signal_id: str
    run_id: str


@dataclass
class SignalJournal:
    """Everything that happened to signals."""

    handlings: list[Handling] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    #: runs that an operator cancelled or stopped
    cancelled: set[str] = field(default_factory=set)
    #: when the outcome of an attempt was written, by the clock of the database
    written_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    #: how often objects were loaded and unloaded
    thaws: int = 0
    hibernations: int = 0
