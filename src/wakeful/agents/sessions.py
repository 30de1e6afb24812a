"""How the messages of a session become turns. Pure.

A turn is a run of the agent whose payload is a batch of messages. Messages within the *debounce* of each
other are one turn. A turn starts when no message was added for that time and a slot is free: a session runs
as many turns at once as its agent's queue allows (default 1), and only one if its context window is nearly
full.
At most `cap` turns wait. `/stop` and `/stopall` are commands, not messages: they act at once.

    queue, followup   turns run one after another, in the order of their messages
    interrupt         a new message stops running turns and drops waiting ones; then its turn starts at once.
                      Within the debounce, the new turn also has the messages of the turn that it stops
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from wakeful.document import payload_from_text, payload_to_text, policy_from_text, work_from_text
from wakeful.document.agents import Drop, Mode
from wakeful.job.job import Work
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.job.start_rules import find_requirement
from wakeful.run.factory import claim_timeout_ms, manual_run, signal_of_job
from wakeful.run.instances import MESSAGE_SIGNAL
from wakeful.run.run import NewRun, RunDetails, RunState, TriggerName
from wakeful.store.sessions import WAKE_JOB, SessionMessage, SessionState, SessionUpdate, Turn
from wakeful.values.ids import first_id
from wakeful.values.json_value import Json

STOP: Final = "/stop"
STOP_ALL: Final = "/stopall"
#: The lane of turns.
LANE: Final = "main"
#: A session with a fuller context window runs one turn at a time.
NEARLY_FULL: Final = 0.6
#: A turn starts after at most this many debounce times, even if messages keep arriving.
_MAX_DEBOUNCES: Final = 10
_MAX_TOKENS: Final = 2**53
#: The largest text of one turn in bytes, and its most messages; more becomes another turn.
MAX_TURN_BYTES: Final = 60_000
MAX_TURN_MESSAGES: Final = 100
#: The same of all waiting turns of a session, whatever its `cap`: each update reads all of them.
MAX_WAITING_BYTES: Final = 1_000_000
MAX_WAITING_MESSAGES: Final = 1_000


@dataclass(frozen=True, slots=True)
class SessionQueue:
    """The queue settings of an agent's sessions."""

    mode: Mode = "queue"
    #: the most waiting turns
    cap: int = 10
    #: what is dropped beyond `cap`: the oldest turns, or the new message
    drop: Drop = "old"
    debounce_ms: int = 800
    #: the most turns of one session at once
    turns: int = 1


def parse_queue(text: str | None) -> SessionQueue:
    """Return the queue settings of an agent's stored text.

    >>> parse_queue('{"mode":"interrupt","debounceMs":0}')
    SessionQueue(mode='interrupt', cap=10, drop='old', debounce_ms=0, turns=1)
    """
    stored = json.loads(text) if text else {}
    return SessionQueue(
        **{"debounce_ms" if key == "debounceMs" else key: value for key, value in stored.items()}
    )


def command_in(body: str) -> str | None:
    """Return the command of a message, if it is one.

    >>> command_in(" /STOP "), command_in("/stopall"), command_in("/stop it")
    ('/stop', '/stopall', None)
    """
    word = body.strip().lower()
    return word if word in (STOP, STOP_ALL) else None


def receive(
    state: SessionState,
    message: SessionMessage,
    now_ms: int,
    address: tuple[str, str | None] | None = None,
) -> SessionUpdate:
    """Return the update of a session for a new message.

    Messages are ordered by arrival: a message is never earlier than those before it, whatever its clock. The
    session keeps the `address` of the message, its channel and recipient, unless the message is a command.
    """
    update = _receive(state, message, now_ms)
    return update if address is None or command_in(message.body) else update._replace(address=address)


def _receive(state: SessionState, message: SessionMessage, now_ms: int) -> SessionUpdate:
    # Stored messages are in the order of their times, and of their ids where these are equal.
    at_ms = max([now_ms, *(each.at_ms + (message.id < each.id) for each in state.messages[-1:])])
    message = message._replace(at_ms=at_ms)
    live, queue = _live(state), parse_queue(state.queue)
    command = command_in(message.body)
    if command == STOP:
        return _settle(state, state.messages, live[1:], now_ms, stopped=_stop_turns(live[:1], "stopped"))
    if command == STOP_ALL:
        return _settle(state, (), (), now_ms, stopped=_stop_turns(live, "stopped"), dropped=state.messages)
    waiting = batches([*state.messages, message], queue)
    *before, newest = waiting
    if queue.mode == "interrupt":
        return _settle(
            state, newest, (), now_ms, _stop_turns(live, "interrupted"), [m for each in before for m in each],
            message, interrupted=[read_messages(payload_from_text(turn.payload)) for turn in live],
        )  # fmt: skip
    # Turns that start now do not wait, and a message that joins a waiting turn needs no room.
    ready = _ready(waiting, _room(state, queue)[1] - len(live), queue, now_ms)
    too_many = _excess(waiting[ready:], queue)
    if too_many <= 0 or newest[0] is not message:
        return _settle(state, [*state.messages, message], live, now_ms, arrived=message)
    if queue.drop == "new":
        return _settle(state, state.messages, live, now_ms)._replace(dropped=[message.id])
    dropped = [m for each in waiting[ready : ready + too_many] for m in each]
    kept = [m for each in (*waiting[:ready], *waiting[ready + too_many :]) for m in each]
    return _settle(state, kept, live, now_ms, dropped=dropped, arrived=message)


def delete(state: SessionState) -> SessionUpdate:
    """Return the update of a session that is deleted: its turns stop, and its messages are dropped."""
    return SessionUpdate(
        dropped=[message.id for message in state.messages],
        stopped=_stop_turns(_live(state), "session_deleted"),
        over=[turn.run_id for turn in state.turns],
    )


def start_turns(state: SessionState, now_ms: int) -> SessionUpdate:
    """Return the update of a session in which a turn may be due."""
    return _settle(state, state.messages, _live(state), now_ms)


def batches(messages: Sequence[SessionMessage], queue: SessionQueue) -> list[list[SessionMessage]]:
    """Return the messages grouped into turns, in order.

    >>> said = [
    ...     SessionMessage(str(n), "hi", "key:1", "user", at) for n, at in enumerate((0, 700, 1400, 2200))
    ... ]
    >>> [[m.at_ms for m in batch] for batch in batches(said, SessionQueue())]
    [[0, 700, 1400], [2200]]
    """
    found: list[list[SessionMessage]] = []
    said = 0
    for message in messages:
        length = _length(message)
        if (
            found
            and message.at_ms - found[-1][-1].at_ms < queue.debounce_ms
            and message.at_ms - found[-1][0].at_ms < _MAX_DEBOUNCES * queue.debounce_ms
            and said + length <= MAX_TURN_BYTES
            and len(found[-1]) < MAX_TURN_MESSAGES
        ):
            found[-1].append(message)
            said += length
        else:
            found.append([message])
            said = length
    return found


def turn_payload(
    session: str, batch: Sequence[SessionMessage], before: TurnMessages | None = None
) -> dict[str, Json]:
    """Return the payload of the run of a turn; `before` comes first.

    Of several messages, `lines` has the number of lines of each, unless each is one line.
    """
    said = [message.body for message in batch]
    ids: list[Json] = [message.id for message in batch]
    lines = [body.count("\n") + 1 for body in said]
    if before is not None:
        said, ids, lines = [before.text, *said], [*before.ids, *ids], [*before.lines, *lines]
    payload: dict[str, Json] = {"session": session, "message": "\n".join(said), "messages": ids}
    known = len(lines) == len(ids) > 1  # those of a turn that an earlier version began may not be
    return {**payload, "lines": [*lines]} if known and max(lines) > 1 else payload


class TurnMessages(NamedTuple):
    """The messages of a turn."""

    text: str = ""
    #: the ids of the messages, which are in the order of their time
    ids: tuple[str, ...] = ()
    #: how many lines each has
    lines: tuple[int, ...] = ()


def read_messages(payload: Json) -> TurnMessages:
    """Return the messages of a turn, as its payload has them.

    >>> read_messages({"message": "a\\nb", "messages": ["1", "2"]}).lines
    (1, 1)
    """
    if not isinstance(payload, dict) or not isinstance(ids := payload.get("messages"), list) or not ids:
        return TurnMessages()
    text = str(payload.get("message", ""))
    length, given = text.count("\n") + 1, payload.get("lines")
    lines = [each for each in given if isinstance(each, int) and each > 0] if isinstance(given, list) else []
    if len(ids) == 1:
        lines = [length]
    elif not lines and len(ids) == length:
        lines = [1] * length
    known = len(lines) == len(ids) and sum(lines) == length
    return TurnMessages(text, tuple(map(str, ids)), tuple(lines) if known else ())


def split_messages(payload: Json) -> list[str]:
    """Return the texts of the messages of a turn; none: they are not known one by one.

    >>> split_messages({"message": "a\\nb\\nc", "messages": ["1", "2"], "lines": [1, 2]})
    ['a', 'b\\nc']
    """
    said = read_messages(payload)
    lines, ends = said.text.split("\n"), [*accumulate(said.lines)]
    return ["\n".join(lines[start:end]) for start, end in pairwise([0, *ends])]


def _repeated_messages(
    interrupted: Sequence[TurnMessages], batch: Sequence[SessionMessage], queue: SessionQueue
) -> TurnMessages | None:
    """Return the messages of an interrupted turn that would be one turn with this batch; None: none."""
    at_ms, length = batch[0].at_ms, sum(map(_length, batch))
    for said in reversed(interrupted):
        if (
            said.ids
            and said.ids[-1] > first_id(at_ms - queue.debounce_ms + 1)
            and said.ids[0] > first_id(at_ms - _MAX_DEBOUNCES * queue.debounce_ms + 1)
            and len(said.text.encode("utf-8", "replace")) + length <= MAX_TURN_BYTES
            and len(said.ids) + len(batch) <= MAX_TURN_MESSAGES
        ):
            return said
    return None


def _excess(waiting: Sequence[Sequence[SessionMessage]], queue: SessionQueue) -> int:
    """Return how many of these turns, the oldest first, may not wait: a session has no room for them."""
    kept = texts = messages = 0
    for batch in reversed(waiting[-queue.cap :]):
        texts += sum(map(_length, batch))
        messages += len(batch)
        if kept and (texts > MAX_WAITING_BYTES or messages > MAX_WAITING_MESSAGES):
            break
        kept += 1
    return len(waiting) - kept


def _length(message: SessionMessage) -> int:
    """Return the bytes of a message in a turn, with the line break."""
    return len(message.body.encode("utf-8", "replace")) + 1


def context_fullness(usage: str | None) -> float | None:
    """Return how full the context window is (0 to 1), by `contextTokens` and `contextWindow` of the usage.

    >>> (
    ...     context_fullness('{"tokens":900,"contextTokens":90000,"contextWindow":120000}'),
    ...     context_fullness('{"tokens":900}'),
    ... )
    (0.75, None)
    """
    if usage is None or "context" not in usage:
        return None
    value = json.loads(usage)
    if not isinstance(value, dict):
        return None
    used, window = value.get("contextTokens"), value.get("contextWindow")
    for number in (used, window):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= _MAX_TOKENS:
            return None
    return min(used / window, 1.0) if window else None


def _settle(
    state: SessionState,
    messages: Sequence[SessionMessage],
    live: Sequence[Turn],
    now_ms: int,
    stopped: Sequence[tuple[str, str]] = (),
    dropped: Sequence[SessionMessage] = (),
    arrived: SessionMessage | None = None,
    *,
    interrupted: Sequence[TurnMessages] = (),
) -> SessionUpdate:
    """Return the update that starts all turns that can start, and when to check again.

    A turn starts when its debounce is over; one that has `interrupted` others starts at once.
    """
    queue, over = parse_queue(state.queue), [turn for turn in state.turns if _is_over(turn)]
    context, places = _room(state, queue)
    waiting = batches(messages, queue)
    ready = _ready(waiting, places - len(live), queue, now_ms, at_once=bool(interrupted))
    before = _repeated_messages(interrupted, waiting[0], queue) if interrupted else None
    taken = {message.id for batch in waiting[:ready] for message in batch}
    there = {message.id for message in state.messages}
    if arrived is not None and arrived.id in taken:
        arrived = None  # it starts at once, so it is not stored
    return SessionUpdate(
        arrived=arrived,
        dropped=[message.id for message in dropped if message.id in there],
        taken=[each for each in taken if each in there],
        stopped=stopped,
        begun=[_run(state, batch, now_ms, before) for batch in waiting[:ready]],
        over=[turn.run_id for turn in over] + [run_id for run_id, _ in stopped],
        due_ms=_closes_ms(waiting[ready], queue, now_ms) if ready < len(waiting) else None,
        places=places,
        context=context,
        waiting=len(waiting) - ready,
    )


def _room(state: SessionState, queue: SessionQueue) -> tuple[float | None, int]:
    """Return the used share of the context window, and how many turns may be live at once."""
    context = state.context
    for turn in state.turns:
        full = context_fullness(turn.usage) if _is_over(turn) else None
        context = context if full is None else full
    return context, 1 if context is not None and context > NEARLY_FULL else queue.turns


def _ready(
    waiting: Sequence[Sequence[SessionMessage]],
    free: int,
    queue: SessionQueue,
    now_ms: int,
    *,
    at_once: bool = False,
) -> int:
    """Return how many of the waiting turns start now, in `free` slots; `at_once`: without the debounce."""
    ready = 0
    while ready < min(len(waiting), free) and (
        at_once or _closes_ms(waiting[ready], queue, now_ms) <= now_ms
    ):
        ready += 1
    return ready


def _run(
    state: SessionState, batch: Sequence[SessionMessage], now_ms: int, before: TurnMessages | None = None
) -> NewRun:
    """Return the run of a turn: to the target of the agent, in the lane `main`."""
    work = work_from_text(state.work) if state.work else Work(lane=LANE)
    policy = policy_from_text(state.policy) if state.policy else DEFAULT_POLICY
    workspace, agent, session = state.key
    depth = max(message.depth for message in batch)
    run = manual_run(
        job_id=state.job_id,
        workspace=workspace,
        agent=agent,
        job_name=None if state.job_id is None else WAKE_JOB,
        lane=work.lane,
        trigger=_trigger(batch),
        now_ms=now_ms,
        triggered_by=batch[-1].sent_by,
        payload=payload_to_text(turn_payload(session, batch, before)),
        claim_ms=claim_timeout_ms(work, policy),
        requirement=find_requirement(work, workspace, agent),
        details=RunDetails(session=session, depth=depth),
    )
    return signal_of_job(run, work, MESSAGE_SIGNAL)


def _trigger(batch: Sequence[SessionMessage]) -> TriggerName:
    """Return the trigger of a turn: `chain` if a run that no person started sent one of its messages."""
    if any(message.trigger == "chain" for message in batch):
        return "chain"
    return "agent" if batch[-1].trigger == "agent" else "user"


def _closes_ms(batch: Sequence[SessionMessage], queue: SessionQueue, now_ms: int) -> int:
    """Return when no more messages join the batch: now, if the clock was ahead when it was sent."""
    longest_ms = _MAX_DEBOUNCES * queue.debounce_ms
    if batch[0].at_ms > now_ms + longest_ms:
        return now_ms
    return min(batch[-1].at_ms + queue.debounce_ms, batch[0].at_ms + longest_ms)


def _live(state: SessionState) -> list[Turn]:
    return [turn for turn in state.turns if not _is_over(turn)]


def _is_over(turn: Turn) -> bool:
    return turn.state is None or RunState(turn.state).terminal


def _stop_turns(turns: Sequence[Turn], reason: str) -> list[tuple[str, str]]:
    return [(turn.run_id, reason) for turn in turns]
