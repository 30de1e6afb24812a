"""How messages become turns: the rules alone, on conversations that are made up here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import part
from wakeful.agents.sessions import (
    MAX_TURN_BYTES,
    MAX_TURN_MESSAGES,
    MAX_WAITING_BYTES,
    MAX_WAITING_MESSAGES,
    SessionQueue,
    batches,
    context_fullness,
    receive,
    split_messages,
    start_turns,
)
from wakeful.document.agents import queue as read_queue
from wakeful.document.agents import session_name
from wakeful.errors import InvalidArgument
from wakeful.run.run import NewRun
from wakeful.store.sessions import SessionKey, SessionMessage, SessionState, SessionUpdate, Turn
from wakeful.values.ids import first_id

NOW = 1_800_000_000_000
KEY = SessionKey("default", "ops", "main")
HOOK = '{"target":{"kind":"webhook","url":"https://a.example"},"lane":"main","inherited":true}'
PULL = '{"lane":"main"}'


@dataclass
class Conversation:
    """A conversation in memory: does what the rules say, as a store does."""

    queue: dict[str, object] = field(default_factory=dict)
    work: str | None = None
    now_ms: int = NOW
    waiting: list[SessionMessage] = field(default_factory=list)
    #: the turns by their runs: their state and what they used
    turns: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    known_over: set[str] = field(default_factory=set)
    begun: list[NewRun] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    due_ms: int | None = None
    places: int = 1
    context: float | None = None
    #: whether a turn has ended that nobody has noticed yet
    unnoticed: bool = False
    _ids: count[int] = field(default_factory=count)

    @property
    def live(self) -> list[str]:
        return [run for run, (state, _) in self.turns.items() if state in ("pending", "running")]

    @property
    def said(self) -> list[str]:
        """What each turn so far was told."""
        return [json.loads(run.payload or "")["message"] for run in self.begun]

    def say(self, body: str, after_ms: int = 0) -> SessionUpdate:
        self.wait(after_ms)
        message_id = first_id(self.now_ms)[:-6] + f"{next(self._ids):06}"
        message = SessionMessage(message_id, body, "key:1", "user", self.now_ms)
        settled = receive(self._talk(), message, self.now_ms)
        self.unnoticed = False
        self._write(settled)
        return settled

    def wait(self, ms: int) -> None:
        """Let time pass; turns start on the way, as soon as it may."""
        until = self.now_ms + ms
        while (
            not self.unnoticed
            and self.due_ms is not None
            and self.due_ms <= until
            and len(self.live) < self.places
        ):
            self.now_ms = max(self.now_ms, self.due_ms)
            before = self.due_ms, self.places
            self._write(start_turns(self._talk(), self.now_ms))
            if (self.due_ms, self.places) == before:
                break
        self.now_ms = until

    def end(self, usage: str | None = None, state: str = "succeeded") -> None:
        """The oldest turn is over."""
        self.turns[self.live[0]] = state, usage
        self.unnoticed = False
        self.wait(0)

    def end_unnoticed(self) -> None:
        """The oldest turn is over, and nobody starts the next until a message arrives."""
        self.turns[self.live[0]] = "succeeded", None
        self.unnoticed = True

    def _talk(self) -> SessionState:
        payloads = {run.id: run.payload for run in self.begun}
        turns = [
            Turn(run, *is_at, payloads[run])
            for run, is_at in self.turns.items()
            if run not in self.known_over
        ]
        queue = json.dumps(self.queue) if self.queue else None
        waiting = sorted(self.waiting, key=lambda message: (message.at_ms, message.id))
        return SessionState(KEY, waiting, turns, self.context, queue, "j1", self.work, None)

    def _write(self, settled: SessionUpdate) -> None:
        gone = {*settled.dropped, *settled.taken}
        assert set(settled.taken) <= {message.id for message in self.waiting}
        if settled.arrived is not None:
            self.waiting.append(settled.arrived)
        self.waiting = [message for message in self.waiting if message.id not in gone]
        self.dropped += settled.dropped
        for run, _ in settled.stopped:
            assert run in self.live
            self.turns[run] = "cancelled", None
        self.known_over |= set(settled.over)
        for run_row in settled.begun:
            self.begun.append(run_row)
            self.turns[run_row.id] = "pending", None
        self.due_ms, self.places, self.context = settled.due_ms, settled.places, settled.context
        assert (settled.due_ms is None) == (not self.waiting)


def test_a_message_becomes_a_turn_when_nothing_was_added_for_the_debounce():
    talk = Conversation()
    talk.say("good morning")
    talk.wait(799)
    assert talk.said == []
    talk.wait(1)
    assert talk.said == ["good morning"]


def test_five_messages_within_the_debounce_are_one_turn():
    talk = Conversation()
    for word in ("one", "two", "three", "four", "five"):
        talk.say(word, after_ms=200)
    talk.wait(10_000)
    assert talk.said == ["one\ntwo\nthree\nfour\nfive"]


def test_a_turn_starts_although_messages_keep_arriving():
    talk = Conversation()
    for _ in range(100):
        talk.say("and another thing", after_ms=500)
    assert 0 < len(talk.begun) < 10


def test_one_turn_at_a_time_and_the_others_in_order():
    talk = Conversation()
    for word in ("one", "two", "three"):
        talk.say(word, after_ms=1_000)
    talk.wait(1_000)
    assert talk.said == ["one"]
    talk.end()
    assert talk.said == ["one", "two"]
    talk.end(state="failed")
    assert talk.said == ["one", "two", "three"], "a turn that fails does not hold up the next"


@pytest.mark.parametrize("mode", ["queue", "followup"])
def test_when_too_many_turns_wait_the_oldest_is_dropped(mode: str):
    talk = Conversation(queue={"mode": mode, "cap": 2})
    for word in ("at work", "one", "two", "three"):
        talk.say(word, after_ms=1_000)
    assert [message.body for message in talk.waiting] == ["two", "three"]
    assert len(talk.dropped) == 1


def test_with_drop_new_the_newest_message_is_dropped():
    talk = Conversation(queue={"cap": 2, "drop": "new"})
    for word in ("at work", "one", "two"):
        talk.say(word, after_ms=1_000)
    refused = talk.say("three", after_ms=1_000)
    assert (refused.arrived, refused.begun) == (None, [])
    assert [message.body for message in talk.waiting] == ["one", "two"]


@pytest.mark.parametrize("drop", ["old", "new"])
def test_a_turn_that_starts_with_a_message_makes_room_for_it(drop: str):
    talk = Conversation(queue={"cap": 1, "drop": drop})
    talk.say("at work")
    talk.say("one", after_ms=1_000)
    talk.end_unnoticed()
    settled = talk.say("two", after_ms=1_000)
    assert talk.said == ["at work", "one"]
    assert (settled.arrived, settled.dropped) == (talk.waiting[0], [])


def test_a_message_that_is_dropped_says_so_although_another_turn_starts():
    talk = Conversation(queue={"cap": 2, "drop": "new"})
    for word in ("at work", "one", "two"):
        talk.say(word, after_ms=1_000)
    talk.queue["cap"] = 1
    talk.end_unnoticed()
    settled = talk.say("three", after_ms=1_000)
    assert talk.said == ["at work", "one"]
    assert (settled.arrived, len(settled.dropped)) == (None, 1)
    assert [message.body for message in talk.waiting] == ["two"]


def test_a_message_that_joins_a_waiting_turn_does_not_count():
    talk = Conversation(queue={"cap": 1, "drop": "new"})
    talk.say("at work")
    talk.say("one", after_ms=1_000)
    talk.say("and two", after_ms=100)
    talk.wait(1_000)
    talk.end()
    assert talk.said == ["at work", "one\nand two"]
    assert talk.dropped == []


def test_an_interruption_stops_running_turns_and_drops_waiting_ones():
    talk = Conversation(queue={"mode": "interrupt"})
    talk.say("write a novel")
    talk.wait(1_000)
    (novel,) = talk.live
    settled = talk.say("no, a poem")
    assert list(settled.stopped) == [(novel, "interrupted")]
    assert talk.said == ["write a novel", "no, a poem"], "at once"
    assert (talk.waiting, talk.dropped) == ([], [])


def test_an_interruption_within_the_debounce_repeats_the_messages_of_the_turn_that_it_stops():
    talk = Conversation(queue={"mode": "interrupt"})
    talk.say("write a novel")
    talk.wait(1_000)
    talk.say("no, a poem")
    talk.say("a short one", after_ms=100)
    talk.say("about cats", after_ms=100)
    assert talk.said[2:] == ["no, a poem\na short one", "no, a poem\na short one\nabout cats"]
    assert [len(json.loads(run.payload or "")["messages"]) for run in talk.begun] == [1, 1, 2, 3]
    talk.say("dogs", after_ms=800)
    assert talk.said[-1] == "dogs"


def test_interruptions_do_not_grow_without_end():
    talk = Conversation(queue={"mode": "interrupt"})
    talk.say("start")
    talk.wait(1_000)
    for _ in range(30):
        talk.say("more", after_ms=500)
    assert max(said.count("more") for said in talk.said) == 16
    long = "x" * (MAX_TURN_BYTES // 2)
    talk.say(long, after_ms=2_000)
    talk.say(long, after_ms=1)
    assert talk.said[-1] == long


def test_without_a_running_turn_nothing_is_interrupted_and_messages_wait_for_the_debounce():
    talk = Conversation(queue={"mode": "interrupt"})
    talk.say("write")
    talk.say("a poem", after_ms=100)
    assert talk.said == []
    talk.wait(800)
    assert talk.said == ["write\na poem"]


def test_stop_stops_only_the_oldest_turn():
    talk = Conversation(queue={"turns": 2})
    for word in ("one", "two", "three"):
        talk.say(word, after_ms=1_000)
    talk.wait(1_000)
    first, second = talk.live
    settled = talk.say("/stop")
    assert list(settled.stopped) == [(first, "stopped")]
    assert talk.live[0] == second
    assert talk.said == ["one", "two", "three"], "its place goes to the next, without a debounce"


def test_stopall_stops_all_turns_and_empties_the_queue():
    talk = Conversation(queue={"turns": 2})
    for word in ("one", "two", "three"):
        talk.say(word, after_ms=1_000)
    talk.wait(700)
    settled = talk.say("/StopAll ")
    assert len(settled.stopped) == 2
    assert (talk.live, talk.waiting, talk.due_ms) == ([], [], None)


def test_stop_and_stopall_are_never_part_of_a_turn():
    talk = Conversation()
    talk.say("one")
    talk.say("/stop", after_ms=10)
    talk.say("two", after_ms=10)
    talk.wait(1_000)
    assert talk.said == ["one\ntwo"]


def test_a_context_window_that_is_nearly_full_has_one_turn_at_a_time():
    talk = Conversation(queue={"turns": 3, "debounceMs": 0})
    talk.say("one")
    talk.say("two")
    assert len(talk.live) == 2
    talk.end(usage='{"tokens":900,"contextTokens":61,"contextWindow":100}')
    talk.say("three")
    talk.say("four")
    assert (len(talk.live), talk.context) == (1, 0.61)
    talk.end(usage='{"contextTokens":20,"contextWindow":100}')
    talk.say("five")
    assert len(talk.live) == 3, "somebody has made room in it"


@pytest.mark.parametrize("full", [0.0, 0.59, 0.6])
def test_below_the_context_limit_the_queue_decides(full: float):
    talk = Conversation(queue={"turns": 2, "debounceMs": 0}, context=full)
    talk.say("one")
    talk.say("two")
    assert len(talk.live) == 2


def test_without_a_debounce_a_message_is_a_turn_at_once():
    talk = Conversation(queue={"debounceMs": 0})
    settled = talk.say("now")
    assert (settled.arrived, len(settled.begun), talk.waiting) == (None, 1, [])


def test_a_turn_goes_where_the_agents_runs_go():
    hooked, pulled = Conversation(work=HOOK), Conversation(work=PULL)
    for talk in (hooked, pulled):
        talk.say("hello")
        talk.wait(1_000)
    (run,) = hooked.begun
    assert (run.job_id, run.job_name, run.lane) == ("j1", "woken-by-hand", "main")
    assert (run.state, run.trigger, run.triggered_by) == ("pending", "user", "key:1")
    (message_id,) = json.loads(run.payload or "").pop("messages")
    assert json.loads(run.payload or "") == {"session": "main", "message": "hello", "messages": [message_id]}
    assert message_id.endswith("000000")
    (run,) = pulled.begun
    assert (run.job_id, run.job_name, run.lane, run.is_pull) == ("j1", "woken-by-hand", "main", True)
    assert run.claim_deadline_ms is not None


def test_no_turn_is_longer_than_a_payload_may_be():
    long = "ü" * (MAX_TURN_BYTES // 4)
    said = [SessionMessage(str(n), long, "key:1", "user", NOW) for n in range(3)]
    assert [len(batch) for batch in batches(said, SessionQueue())] == [1, 1, 1]
    assert [len(batch) for batch in batches([m._replace(body="ü") for m in said], SessionQueue())] == [3]


@pytest.mark.parametrize("drop", part(["old", "new"]))
@pytest.mark.parametrize(
    ("body", "debounce_ms", "messages"),
    [
        pytest.param("ü" * (MAX_TURN_BYTES // 2 - 1), 0, 40, id="long messages"),
        pytest.param("a", 60_000, 2 * MAX_WAITING_MESSAGES, marks=pytest.mark.slow, id="many messages"),
    ],
)
def test_what_waits_in_a_session_is_bounded_whatever_its_cap(
    drop: str, body: str, debounce_ms: int, messages: int
):
    talk = Conversation(queue={"cap": 1_000, "drop": drop, "debounceMs": 0})
    talk.say("first")
    talk.queue["debounceMs"] = debounce_ms
    for _ in range(messages):
        talk.say(body)
    waiting = talk.waiting
    size = sum(len(each.body.encode()) + 1 for each in waiting)
    assert len(waiting) == MAX_WAITING_MESSAGES or size > MAX_WAITING_BYTES - MAX_TURN_BYTES
    assert size <= MAX_WAITING_BYTES
    assert len(waiting) + len(talk.dropped) == messages
    assert max(map(len, batches(waiting, SessionQueue(debounce_ms=debounce_ms)))) <= MAX_TURN_MESSAGES
    talk.end()
    talk.wait(600_000)
    assert len(talk.said[-1].split()) <= MAX_TURN_MESSAGES


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "{}",
        '{"contextTokens":1}',
        '{"contextTokens":1,"contextWindow":0}',
        '{"contextTokens":true,"contextWindow":2}',
        '{"contextTokens":"many","contextWindow":2}',
        '{"contextTokens":1,"contextWindow":-5}',
        f'{{"contextTokens":{10**400},"contextWindow":5}}',
        '["contextTokens"]',
    ],
)
def test_usage_without_a_context_window_is_ignored(usage: str | None):
    assert context_fullness(usage) is None


@pytest.mark.parametrize(("used", "full"), [(0, 0.0), (50, 0.5), (100, 1.0), (300, 1.0)])
def test_the_context_share_is_between_zero_and_one(used: int, full: float):
    assert context_fullness(json.dumps({"contextTokens": used, "contextWindow": 100})) == full


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 2_000)),
        st.tuples(st.just("end"), st.integers(0, 3_000)),
        st.tuples(st.just("end unnoticed"), st.just(0)),
        st.tuples(st.just("order"), st.integers(0, 1)),
    ),
    max_size=40,
)
BODIES = ("word", "two\nlines", "more\n\n")
QUEUES = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["queue", "followup", "interrupt"]),
        "cap": st.integers(1, 4),
        "drop": st.sampled_from(["old", "new"]),
        "debounceMs": st.sampled_from([0, 1, 800]),
        "turns": st.integers(1, 3),
    },
)


@given(queue=QUEUES, steps=STEPS)
def test_each_message_is_in_one_turn_or_dropped(queue: dict[str, object], steps: list[tuple[str, int]]):
    talk = Conversation(queue=queue)
    said = 0
    for what, number in steps:
        if what == "say":
            talk._ids = count(said)
            settled = talk.say(BODIES[said % len(BODIES)], after_ms=number)
            said += 1
            if settled.dropped and queue.get("mode") != "interrupt":
                assert len(talk.live) == talk.places, "nothing is dropped that could start"
        elif what == "order":
            talk.say(("/stop", "/stopall")[number])
        elif talk.live and what == "end unnoticed":
            talk.end_unnoticed()
        elif talk.live:
            talk.end()
            talk.wait(number)
        assert len(talk.live) <= int(str(queue.get("turns", 1)))
        assert len(
            batches(talk.waiting, SessionQueue(debounce_ms=int(str(queue.get("debounceMs", 800)))))
        ) <= int(str(queue.get("cap", 10)))
    talk.unnoticed = False
    while talk.live or talk.waiting:
        talk.wait(20_000)
        if talk.live:
            talk.end()
    turns = [[int(each[-6:]) for each in json.loads(run.payload or "")["messages"]] for run in talk.begun]
    for run, turn in zip(talk.begun, turns, strict=True):
        assert split_messages(json.loads(run.payload or "")) == [BODIES[each % len(BODIES)] for each in turn]
    read = [each for turn in turns for each in turn]
    dropped = {int(each[-6:]) for each in talk.dropped}
    if queue.get("mode") == "interrupt":
        assert all(turn == sorted(set(turn)) for turn in turns), "in the order they were said"
        repeated = [set(one) & set(other) for one, other in pairwise(turns)]
        assert all(set(each) == again for each, again in zip(turns, repeated, strict=False) if again), (
            "a turn that repeats messages repeats all of the one that it stops"
        )
        assert set(read) | dropped == set(range(said))
        assert not set(read) & dropped
    else:
        assert sorted([*read, *dropped]) == list(range(said))
        assert read == sorted(read), "in the order they were said"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "is not an object with fields"),
        ("interrupt", "is not an object with fields"),
        ({"mode": "stack"}, "mode: 'stack' is not known; write 'queue', 'followup' or 'interrupt'"),
        ({"cap": 0}, "cap: 0 is out of range"),
        ({"drop": "all"}, "drop: 'all' is not known"),
        ({"debounceMs": -1}, "debounceMs: "),
        ({"debounce": "soon"}, "debounce: "),
        ({"debounce": "1s", "debounceMs": 5}, "are the same; give one of them"),
        ({"size": 5}, "a queue has no field 'size'; it has mode, cap, drop, debounceMs, turns"),
    ],
)
def test_an_invalid_queue_is_refused(wrong: object, sentence: str):
    with pytest.raises(InvalidArgument) as refused:
        read_queue(wrong)
    assert sentence in refused.value.message


def test_session_names_may_be_chat_ids():
    for name in ("main", "telegram:123456789", "user@example.com", "a", "x" * 128):
        assert session_name(name) == name


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "x" * 129, "naïve", "a/b", 5, "a\n", ["main"]])
def test_other_session_names_are_refused(name: object):
    with pytest.raises(InvalidArgument, match="is not a valid name of a session"):
        session_name(name)


def test_a_clock_that_went_back_does_not_reorder_messages():
    talk = Conversation()
    talk.say("first")
    talk.now_ms -= 5_000
    talk.say("second")
    talk.now_ms += 5_000
    talk.wait(1_000)
    assert talk.said == ["first\nsecond"]


def test_messages_do_not_wait_for_a_clock_that_was_ahead():
    talk = Conversation()
    talk.say("first")
    talk.now_ms -= 3_600_000
    talk.say("second")
    assert talk.said == ["first\nsecond"]
    talk.now_ms += 3_600_000
    talk.say("third")
    talk.now_ms -= 3_600_000
    talk.say("fourth")
    talk.end()
    assert talk.said[1:] == ["third\nfourth"]
    assert talk.begun[1].fire_ms == talk.now_ms
