"""How messages become turns. Pure: a conversation as it stands, and what becomes of it.

A turn is a run of the agent that carries what was said. Messages that follow each other within the *debounce*
are one turn; a turn begins when nothing was added to it for that long, and there is a place for it: as many
turns of one conversation go at once as its agent's queue says (one), and one alone when its context window is
nearly full. At most `cap` turns wait. `/stop` and `/stopall` are no messages: they act at once.

    queue, followup   turns wait for one another, in the order they were said
    interrupt         what is under way is stopped, and what waits is dropped: the newest is all that counts
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wakeful.document import payload_to_text, policy_from_text, work_from_text
from wakeful.document.sessions import Drop, Mode
from wakeful.job import Json, Work
from wakeful.policy import DEFAULT_POLICY
from wakeful.run import NewRun, RunState, TriggerName
from wakeful.run_factory import claim_timeout_ms, manual_run
from wakeful.store.sessions import WAKE_JOB, SessionMessage, SessionState, SessionUpdate, Turn

STOP: Final = "/stop"
STOP_ALL: Final = "/stopall"
#: The lane of turns.
LANE: Final = "main"
#: A context window that is fuller than this has one turn at a time.
NEARLY_FULL: Final = 0.6
#: A turn that somebody keeps adding to begins after so many times the debounce all the same.
_LONGEST: Final = 10
_MOST_TOKENS: Final = 2**53
#: How much may be said in one turn, in bytes: what is more is another turn.
MAX_SAID: Final = 60_000


@dataclass(frozen=True, slots=True)
class Queue:
    """How messages wait in an agent's sessions."""

    mode: Mode = "queue"
    #: how many turns may wait
    cap: int = 10
    #: what goes when there are more: the oldest of them, or the newest message
    drop: Drop = "old"
    debounce_ms: int = 800
    #: how many turns of one session may be under way at once
    turns: int = 1


def queue_of(text: str | None) -> Queue:
    """The queue that an agent's row says.

    >>> queue_of('{"mode":"interrupt","debounceMs":0}')
    Queue(mode='interrupt', cap=10, drop='old', debounce_ms=0, turns=1)
    """
    said = json.loads(text) if text else {}
    return Queue(**{"debounce_ms" if key == "debounceMs" else key: value for key, value in said.items()})


def command_in(body: str) -> str | None:
    """The order that a message is, if it is one.

    >>> command_in(" /STOP "), command_in("/stopall"), command_in("/stop it")
    ('/stop', '/stopall', None)
    """
    word = body.strip().lower()
    return word if word in (STOP, STOP_ALL) else None


def receive(talk: SessionState, message: SessionMessage, now_ms: int) -> SessionUpdate:
    """What becomes of a conversation when somebody says something.

    Whoever was let in first spoke first, whatever their clock says: so nobody is put before another.
    """
    now_ms = max([now_ms, *(each.at_ms for each in talk.messages)])
    message = message._replace(at_ms=now_ms)
    live, queue = _live(talk), queue_of(talk.queue)
    order = command_in(message.body)
    if order == STOP:
        return _settle(talk, talk.messages, live[1:], now_ms, stopped=_stopped(live[:1], "stopped"))
    if order == STOP_ALL:
        return _settle(talk, (), (), now_ms, stopped=_stopped(live, "stopped"), dropped=talk.messages)
    waiting = batches([*talk.messages, message], queue)
    *before, newest = waiting
    if queue.mode == "interrupt":
        stopped = _stopped(live, "interrupted")
        return _settle(talk, newest, (), now_ms, stopped, [m for each in before for m in each], message)
    if len(waiting) <= queue.cap or newest[0] is not message:  # what is added to a turn needs no room
        return _settle(talk, [*talk.messages, message], live, now_ms, arrived=message)
    if queue.drop == "new":
        return _settle(talk, talk.messages, live, now_ms)
    too_many = waiting[: len(waiting) - queue.cap]
    kept = [m for each in waiting[len(too_many) :] for m in each]
    return _settle(talk, kept, live, now_ms, dropped=[m for each in too_many for m in each], arrived=message)


def start_turns(talk: SessionState, now_ms: int) -> SessionUpdate:
    """What becomes of a conversation in which a turn may be due."""
    return _settle(talk, talk.messages, _live(talk), now_ms)


def batches(messages: Sequence[SessionMessage], queue: Queue) -> list[list[SessionMessage]]:
    """The messages by the turns that they will be, in order.

    >>> said = [
    ...     SessionMessage(str(n), "hi", "key:1", "user", at) for n, at in enumerate((0, 700, 1400, 2200))
    ... ]
    >>> [[m.at_ms for m in batch] for batch in batches(said, Queue())]
    [[0, 700, 1400], [2200]]
    """
    found: list[list[SessionMessage]] = []
    said = 0
    for message in messages:
        length = len(message.body.encode("utf-8", "replace")) + 1
        if (
            found
            and message.at_ms - found[-1][-1].at_ms < queue.debounce_ms
            and message.at_ms - found[-1][0].at_ms < _LONGEST * queue.debounce_ms
            and said + length <= MAX_SAID
        ):
            found[-1].append(message)
            said += length
        else:
            found.append([message])
            said = length
    return found


def payload_of(session: str, batch: Sequence[SessionMessage]) -> dict[str, Json]:
    """What the run of a turn carries."""
    said = "\n".join(message.body for message in batch)
    return {"session": session, "message": said, "messages": [message.id for message in batch]}


def context_fullness(usage: str | None) -> float | None:
    """How full a context window is, of 1, where what a run used says so (`contextTokens`, `contextWindow`).

    >>> (
    ...     context_fullness('{"tokens":900,"contextTokens":90000,"contextWindow":120000}'),
    ...     context_fullness('{"tokens":900}'),
    ... )
    (0.75, None)
    """
    if usage is None or "context" not in usage:
        return None
    said = json.loads(usage)
    if not isinstance(said, dict):
        return None
    used, window = said.get("contextTokens"), said.get("contextWindow")
    for number in (used, window):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= _MOST_TOKENS:
            return None
    return min(used / window, 1.0) if window else None


def _settle(
    talk: SessionState,
    messages: Sequence[SessionMessage],
    live: Sequence[Turn],
    now_ms: int,
    stopped: Sequence[tuple[str, str]] = (),
    dropped: Sequence[SessionMessage] = (),
    arrived: SessionMessage | None = None,
) -> SessionUpdate:
    """Begin what can begin of these messages beside the live turns, and say when to look again."""
    queue, over = queue_of(talk.queue), [turn for turn in talk.turns if _is_over(turn)]
    context = talk.context
    for turn in over:
        full = context_fullness(turn.usage)
        context = context if full is None else full
    places = 1 if context is not None and context > NEARLY_FULL else queue.turns
    waiting = batches(messages, queue)
    ready = 0
    while ready < min(len(waiting), places - len(live)) and _closes_ms(waiting[ready], queue) <= now_ms:
        ready += 1
    taken = {message.id for batch in waiting[:ready] for message in batch}
    there = {message.id for message in talk.messages}
    if arrived is not None and arrived.id in taken:
        arrived = None  # it need not wait
    return SessionUpdate(
        arrived=arrived,
        dropped=[message.id for message in dropped if message.id in there],
        taken=[each for each in taken if each in there],
        stopped=stopped,
        begun=[_run(talk, batch, now_ms) for batch in waiting[:ready]],
        over=[turn.run_id for turn in over] + [run_id for run_id, _ in stopped],
        due_ms=_closes_ms(waiting[ready], queue) if ready < len(waiting) else None,
        places=places,
        context=context,
        waiting=len(waiting) - ready,
    )


def _run(talk: SessionState, batch: Sequence[SessionMessage], now_ms: int) -> NewRun:
    """The run of a turn: where the agent's other runs go, in the lane of conversations."""
    work = work_from_text(talk.work) if talk.work else Work(lane=LANE)
    policy = policy_from_text(talk.policy) if talk.policy else DEFAULT_POLICY
    has_job = not work.pulled
    workspace, agent, session = talk.key
    trigger: TriggerName = "agent" if batch[-1].trigger == "agent" else "user"
    return manual_run(
        job_id=talk.job_id if has_job else None,
        workspace=workspace,
        agent=agent,
        job_name=WAKE_JOB if has_job else None,
        lane=work.lane,
        trigger=trigger,
        now_ms=now_ms,
        triggered_by=batch[-1].sent_by,
        payload=payload_to_text(payload_of(session, batch)),
        claim_ms=claim_timeout_ms(work, policy),
    )


def _closes_ms(batch: Sequence[SessionMessage], queue: Queue) -> int:
    """When nothing is added to it any more."""
    return min(batch[-1].at_ms + queue.debounce_ms, batch[0].at_ms + _LONGEST * queue.debounce_ms)


def _live(talk: SessionState) -> list[Turn]:
    return [turn for turn in talk.turns if not _is_over(turn)]


def _is_over(turn: Turn) -> bool:
    return turn.state is None or RunState(turn.state).terminal


def _stopped(turns: Sequence[Turn], reason: str) -> list[tuple[str, str]]:
    return [(turn.run_id, reason) for turn in turns]
