"""The launcher of signals: it loads an instance, calls its handler, and returns what is to be written."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from wakeful import (
    SELF,
    Agent,
    CancelCron,
    CancelDelay,
    Context,
    Delay,
    Emit,
    SetCron,
    SetState,
    Signal,
    Stop,
    on,
)
from wakeful.agents.class_registry import ClassRegistry
from wakeful.agents.launcher import AgentLauncher
from wakeful.document import Defaults
from wakeful.errors import Permanent, Unavailable
from wakeful.launch.port import Launch, SignalLaunch
from wakeful.run.instances import AgentClass, ScheduleChange, Send, instance_id
from wakeful.run.outcome import Failed, Handled, Outcome, Succeeded
from wakeful.schedule.schedules import CronSchedule
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import Json

NOW = 1_800_000_000_000
SOURCE = "/workspaces/default/agents/counter/instances/eu"
Body = Callable[[Signal, Context], Any]


class FixedClock:
    def now_ms(self) -> int:
        return NOW


class Counter(Agent):
    name = "counter"
    version = 2
    state: ClassVar[Any] = {"count": 0}
    body: ClassVar[Body] = lambda signal, ctx: None

    @on("count.*")
    async def handle(self, signal: Signal, ctx: Context) -> object:
        result = type(self).body(signal, ctx)
        return await result if isinstance(result, Awaitable) else result

    @on("thread")
    def in_thread(self, signal: Signal, ctx: Context) -> object:
        return type(self).body(signal, ctx)


def counter(body: Body = lambda signal, ctx: None, **attributes: Any) -> type[Counter]:
    return type("Counter", (Counter,), {"body": staticmethod(body), **attributes})


class Fixture:
    def __init__(self) -> None:
        self.opened: list[AgentLauncher] = []

    def launcher(self, cls: type[Agent], **options: Any) -> AgentLauncher:
        classes = ClassRegistry()
        classes.register(cls)
        launcher = AgentLauncher(classes, FixedClock(), threads=2, **options)
        self.opened.append(launcher)
        return launcher

    async def handle(self, body: Body, run: Launch | None = None, **attributes: Any) -> Outcome:
        return await self.launcher(counter(body, **attributes)).start(run or launch())


@pytest.fixture
async def agents() -> AsyncIterator[Fixture]:
    fixture = Fixture()
    yield fixture
    for launcher in fixture.opened:
        await launcher.close()


def launch(
    type: str = "count.up",
    data: Json = None,
    *,
    state: str | None = None,
    version: int = 2,
    revision: int = 7,
    memory: str | None = None,
    instance: str = "eu",
    attempt: int = 1,
    id: str = "s1",
    target: dict[str, Json] | None = None,
) -> Launch:
    """Return a run of a signal that was sent."""
    text = Signal(type, data, id=id, source="/sender").to_text()
    return SignalLaunch(
        "r1", None, None, "default", "counter", text, NOW, NOW, attempt, "signal", "key-1", target or {},
        instance=instance, instance_id=instance_id("default", "counter", instance), signal=type,
        state_text=state, state_version=0 if state is None else version, revision=revision, memory=memory,
    )  # fmt: skip


def handled(outcome: Outcome) -> Handled:
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.handled is not None
    return outcome.handled


def failed(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed)
    return outcome


# --- what a handler gets -----------------------------------------------------------------------------


async def test_a_handler_gets_its_signal_and_its_context(agents: Fixture):
    seen: list[Any] = []

    def body(signal: Signal, ctx: Context) -> None:
        seen.append((signal.type, signal.data, signal.source, signal.id))
        seen.append((ctx.state, ctx.key, ctx.attempt, ctx.run_id, ctx.agent, ctx.instance, ctx.workspace))
        assert ctx.clock.now() == ctx.now()
        seen.append((ctx.now(), ctx.clock.now_ms(), ctx.scheduled_at, ctx.last_run, ctx.signal is signal))
        ctx.log.info("done")

    await agents.handle(body, launch(data={"n": 1}, state='{"count":5}', attempt=3))

    assert seen == [
        ("count.up", {"n": 1}, "/sender", "s1"),
        ({"count": 5}, "key-1", 3, "r1", "counter", "eu", "default"),
        (utc_datetime(NOW), NOW, utc_datetime(NOW), None, True),
    ]


async def test_an_instance_without_a_state_has_the_initial_one(agents: Fixture):
    states = []
    outcome = await agents.handle(lambda signal, ctx: states.append(ctx.state))

    assert states == [{"count": 0}]
    assert handled(outcome).data is None


async def test_synchronous_handlers_run_in_threads_and_may_yield(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> Any:
        yield SetState(count=1)
        assert threading.current_thread() is not threading.main_thread()
        yield "done"

    outcome = await agents.handle(body, launch("thread"))

    assert (handled(outcome).data, outcome) == ('{"count":1}', Succeeded("done", handled=handled(outcome)))


async def test_asynchronous_generators_yield_directives(agents: Fixture):
    class Yielding(Agent):
        name = "counter"

        @on("*")
        async def handle(self) -> AsyncIterator[object]:
            yield SetState(a=1)
            await asyncio.sleep(0)
            yield SetState(b=2)

    outcome = await agents.launcher(Yielding).start(launch())

    assert handled(outcome).data == '{"a":1,"b":2}'


async def test_self_state_is_refused_with_advice(agents: Fixture):
    class Wrong(Counter):
        @on("count.*")
        async def handle(self, signal: Signal, ctx: Context) -> object:
            return self.state["count"]

    error = failed(await agents.launcher(Wrong).start(launch())).error

    assert "read ctx.state and return SetState" in error
    assert Wrong.state == {"count": 0}


async def test_the_context_cannot_set_the_state(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> None:
        ctx.state = {"count": 1}

    assert "return SetState(...) from the handler" in failed(await agents.handle(body)).error


async def test_a_change_of_the_copy_is_not_stored(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> object:
        ctx.state["count"] = 99
        return SetState(other=1)

    assert handled(await agents.handle(body)).data == '{"count":0,"other":1}'


# --- runs of jobs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "target", "type"),
    [
        ("count.tick", {"kind": "agent"}, "count.tick"),
        (None, {"kind": "agent", "signal": "count.tick"}, "count.tick"),
        (None, {"kind": "agent"}, "wakeful.job"),
        ("wakeful.heartbeat", {"kind": "agent"}, "wakeful.heartbeat"),
    ],
)
async def test_the_run_of_a_job_is_a_signal_with_its_payload(
    agents: Fixture, signal: str | None, target: dict[str, Json], type: str
):
    seen: list[Signal] = []

    class All(Agent):
        name = "counter"

        @on("*")
        async def handle(self, signal: Signal) -> None:
            seen.append(signal)

    run = SignalLaunch(
        "r1", "eu-daily", "j1", "default", "counter", '{"n":1}', NOW, NOW, 1, "schedule", "key-1", target,
        instance="eu", instance_id=instance_id("default", "counter", "eu"), signal=signal,
    )  # fmt: skip
    await agents.launcher(All).start(run)

    (one,) = seen
    assert (one.type, one.data, one.id, one.time) == (type, {"n": 1}, "key-1", utc_datetime(NOW))
    assert one.source == "/workspaces/default/agents/counter/jobs/eu-daily"


async def test_the_payload_of_a_job_may_be_larger_than_a_signal_that_is_sent(agents: Fixture):
    sizes: list[int] = []
    run = launch()
    run.job_id, run.job, run.payload_text = "j1", "daily", json.dumps("x" * 100_000)
    await agents.handle(lambda signal, ctx: sizes.append(len(str(signal.data))), run)

    assert sizes == [100_000]


# --- directives --------------------------------------------------------------------------------------


async def test_directives_become_what_is_written(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> object:
        return [
            SetState(count=ctx.state["count"] + 1),
            None,
            Emit(Signal("report.ready", {"n": 1}, id="e1")),
            Emit(Signal("again", id="e2", source="/mine"), to=SELF),
            Emit(Signal("archive.add"), to=("archive", "us")),
            Delay("5s", Signal("count.later", id="d1")),
            SetCron("*/5 * * * *", Signal("count.tick", {"a": 1}), "heartbeat", tz="Europe/Berlin"),
            CancelCron("old"),
            CancelCron("daily", declared=True),
            "first",
            "second",
        ]

    outcome = await agents.handle(body, launch(state='{"count":1}'))
    result = handled(outcome)

    assert outcome == Succeeded("first\nsecond", handled=result)
    assert result[:7] == (
        "default", "counter", "eu", 7, 2, '{"count":2}', f'{{"runs":{{"count.up":{NOW}}}}}',
    )  # fmt: skip
    assert result.emitted is not None
    time = "2027-01-15T08:00:00Z"
    assert json.loads(result.emitted) == [
        {
            "specversion": "1.0",
            "id": "e1",
            "source": SOURCE,
            "type": "report.ready",
            "time": time,
            "data": {"n": 1},
        }
    ]
    again, archive, later = result.sends
    assert again == Send("counter", "eu", "again", again.text, "/mine", "e2")
    assert archive == Send("archive", "us", "archive.add", archive.text, SOURCE, None)
    assert later == Send("counter", "eu", "count.later", later.text, SOURCE, "d1", 5_000)
    assert Signal.from_text(later.text).source == SOURCE
    cron, old, daily = result.schedules
    assert (old, daily) == (ScheduleChange("old"), ScheduleChange("daily", None, True))
    definition = cron.definition
    assert definition is not None
    assert definition.timing is not None
    assert definition.timing.schedule == CronSchedule("*/5 * * * *", "Europe/Berlin")
    assert definition.work.target == {"kind": "agent", "signal": "count.tick", "instance": "eu"}
    assert (definition.work.payload, definition.work.lane) == ({"a": 1}, "team")
    assert (definition.policy.timeout_ms, definition.policy.max_attempts) == (60_000, 5)
    assert not result.stop


async def test_the_last_change_of_a_delay_wins(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> object:
        return [
            Delay("1s", "count.a", id="x"), Delay("2s", "count.b", id="y"), Delay("3s", "count.c"),
            Delay("4s", "count.d", id="x"), CancelDelay("y"), CancelDelay("z"),
        ]  # fmt: skip

    result = handled(await agents.handle(body))
    assert [(send.type, send.delay_ms, send.delay_id) for send in result.sends] == [
        ("count.c", 3_000, None), ("count.d", 4_000, "x"),
    ]  # fmt: skip
    assert result.delay_ids == ("x", "y", "z")


async def test_the_last_change_of_a_schedule_wins(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> object:
        return [SetCron("@daily", "count.a", "x"), SetCron("@hourly", "count.a", "y"), CancelCron("x")]

    schedules = handled(await agents.handle(body)).schedules

    assert [(each.schedule_id, each.definition is None) for each in schedules] == [("x", True), ("y", False)]


async def test_a_schedule_has_the_defaults_of_the_agent(agents: Fixture):
    async def defaults_of(workspace: str, agent: str) -> Defaults:
        return Defaults(tz={("default", "counter"): "Asia/Tokyo"}[workspace, agent], overlap="queue")

    launcher = agents.launcher(
        counter(lambda signal, ctx: SetCron("@daily", "count.a", "x")), defaults_of=defaults_of
    )
    (change,) = handled(await launcher.start(launch())).schedules

    assert change.definition is not None
    assert change.definition.timing is not None
    assert change.definition.timing.schedule.tz == "Asia/Tokyo"
    assert change.definition.policy.overlap == "skip"


@pytest.mark.parametrize("kept", [True, False])
async def test_a_delay_that_is_not_durable_is_kept_in_memory_if_that_is_possible(agents: Fixture, kept: bool):
    delays: list[tuple[str, Any]] = []
    launcher = agents.launcher(
        counter(lambda signal, ctx: Delay(5, "count.x", durable=False)),
        keep_delays=(lambda run, sends: delays.append((run.id, list(sends)))) if kept else None,
    )
    result = handled(await launcher.start(launch()))

    if kept:
        assert result.sends == ()
        assert [(run_id, [send.delay_ms for send in sends]) for run_id, sends in delays] == [("r1", [5])]
    else:
        assert [send.delay_ms for send in result.sends] == [5]


async def test_stop_is_part_of_the_outcome_and_removes_the_object(agents: Fixture):
    launcher = agents.launcher(counter(lambda signal, ctx: Stop()))

    assert handled(await launcher.start(launch())).stop
    assert len(launcher.cache) == 0


async def test_a_state_that_did_not_change_is_not_written(agents: Fixture):
    outcome = await agents.handle(lambda signal, ctx: SetState(count=1), launch(state='{"count":1}'))

    assert handled(outcome).data is None


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (5, "a handler returns SetState"),
        ({"a": 1}, "a handler returns SetState"),
        ([SetState(a=1), 5], "a handler returns SetState"),
        (b"x", "a handler returns SetState"),
        ([[Stop()]], "a handler returns SetState"),
        (object(), "a handler returns SetState"),
        (Signal("a"), "to send a signal, return Emit(signal)"),
        ([Stop], "it is a class: write Stop(…)"),
    ],
)
async def test_an_unknown_directive_is_a_permanent_error(agents: Fixture, value: object, advice: str):
    outcome = failed(await agents.handle(lambda signal, ctx: value))

    assert outcome.error.startswith("unknown directive")
    assert advice in outcome.error
    assert (outcome.permanent, outcome.reason, outcome.handled) == (True, "unknown_directive", None)


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        (SetState(a={1}), "SetState: a: set is not JSON"),
        (SetState(a=datetime(2027, 1, 1, tzinfo=UTC)), "SetState: a: datetime is not JSON"),
        (SetState(a="x" * 262_144), "the state has 26"),
        (SetState([1], replace=True), "SetState: the state is a dict"),
    ],
)
async def test_an_invalid_state_is_a_permanent_error(agents: Fixture, directive: SetState, message: str):
    outcome = failed(await agents.handle(lambda signal, ctx: [Emit("a"), directive]))

    assert message in outcome.error
    assert (outcome.permanent, outcome.reason, outcome.handled) == (True, "invalid_state", None)


async def test_a_schedule_that_cannot_be_stored_is_a_failed_attempt(agents: Fixture):
    async def defaults_of(workspace: str, agent: str) -> Defaults:
        return Defaults(tz_allowlist=frozenset({"UTC"}))

    cls = counter(lambda signal, ctx: SetCron("@daily", "count.a", "x", tz="Asia/Tokyo"))
    outcome = failed(await agents.launcher(cls, defaults_of=defaults_of).start(launch()))

    assert "SetCron 'x': tz: 'Asia/Tokyo' is not allowed" in outcome.error
    assert (outcome.permanent, outcome.reason) == (False, "directive_refused")


async def test_a_database_that_is_unavailable_does_not_count_as_a_failure_of_the_handler(agents: Fixture):
    async def defaults_of(workspace: str, agent: str) -> Defaults:
        raise Unavailable("the database does not respond")

    cls = counter(lambda signal, ctx: SetCron("@daily", "count.a", "x"))
    outcome = failed(await agents.launcher(cls, defaults_of=defaults_of).start(launch()))

    assert (outcome.error, outcome.counted) == ("SetCron: the database does not respond", False)
    assert (outcome.permanent, outcome.reason) == (False, "directive_refused")


async def test_a_schedule_whose_signal_no_handler_handles_is_set_and_reported(
    agents: Fixture, caplog: pytest.LogCaptureFixture
):
    (change,) = handled(await agents.handle(lambda signal, ctx: SetCron("@daily", "later", "x"))).schedules

    assert change.schedule_id == "x"
    assert "SetCron 'x': Counter has no handler for 'later'" in caplog.text


async def test_too_many_directives_and_too_large_signals_are_refused(agents: Fixture):
    many = failed(await agents.handle(lambda signal, ctx: [Emit("a")] * 1001))
    data = Signal("a", "x" * 60_000)
    assert "1001 directives; at most 1000" in many.error
    for one in (Emit(data), Emit(data, to=SELF), Delay("1h", data), Delay("1h", data, durable=False)):
        twenty = [one] * 20
        large = failed(await agents.handle(lambda signal, ctx: twenty))  # noqa: B023
        assert "at most 1048576 at once" in large.error
        assert {many.reason, large.reason} == {"directive_refused"}


# --- failures ----------------------------------------------------------------------------------------


async def test_an_exception_is_a_failed_attempt_that_is_retried(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> None:
        raise ValueError("no such customer")

    for type in ("count.up", "thread"):
        outcome = failed(await agents.handle(body, launch(type)))
        assert outcome == Failed("ValueError: no such customer")


async def test_permanent_is_not_retried(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> None:
        raise Permanent("the customer has left")

    outcome = failed(await agents.handle(body))

    assert outcome == Failed("the customer has left", permanent=True, reason="permanent")


async def test_a_signal_without_a_handler_is_a_permanent_error(agents: Fixture):
    outcome = failed(await agents.handle(lambda signal, ctx: None, launch("other.type")))

    assert outcome.error == "Counter has no handler for 'other.type'; it handles thread, count.*"
    assert (outcome.permanent, outcome.reason) == (True, "unhandled")


@pytest.mark.parametrize(
    ("version", "handles", "permanent"),
    [(3, ("count.*", "other.*"), False), (3, ("count.*",), True), (2, ("other.*",), True), (None, (), True)],
)
async def test_a_signal_for_a_newer_class_is_retried(
    agents: Fixture, version: int | None, handles: tuple[str, ...], permanent: bool
):
    async def newest_class(workspace: str, agent: str) -> AgentClass | None:
        return (
            None
            if version is None
            else AgentClass(workspace, agent, version, "{}", 1, 1, "team", (), handles)
        )

    launcher = agents.launcher(counter(), newest_class=newest_class)
    outcome = failed(await launcher.start(launch("other.type")))

    assert (outcome.permanent, outcome.counted, outcome.reason) == (permanent, True, "unhandled")


@pytest.mark.parametrize("running", [True, False])
async def test_attempts_do_not_count_while_a_process_with_the_newer_class_runs(
    agents: Fixture, running: bool
):
    async def newest_class(workspace: str, agent: str) -> AgentClass | None:
        return AgentClass(workspace, agent, 3, "{}", 1, 1, "team", (), ("other.*",))

    async def has_process(workspace: str, agent: str, version: int) -> bool:
        return running and (workspace, agent, version) == ("default", "counter", 3)

    launcher = agents.launcher(counter(), newest_class=newest_class, has_process=has_process)
    outcome = failed(await launcher.start(launch("other.type")))

    assert (outcome.permanent, outcome.counted, outcome.reason) == (False, not running, "unhandled")


async def test_a_database_that_cannot_be_read_makes_no_dead_letter(agents: Fixture):
    async def newest_class(workspace: str, agent: str) -> AgentClass | None:
        raise Unavailable("no connection")

    launcher = agents.launcher(counter(), newest_class=newest_class)
    outcome = failed(await launcher.start(launch("other.type")))

    assert (outcome.permanent, outcome.counted) == (False, False)


async def test_a_class_that_this_process_lacks_does_not_count(agents: Fixture):
    run = launch()
    run.agent = "other"
    outcome = failed(await agents.handle(lambda signal, ctx: None, run))

    assert (outcome.counted, outcome.reason) == (False, "not_registered")


async def test_a_state_of_a_newer_class_waits_for_a_process_that_has_it(agents: Fixture):
    calls: list[object] = []
    run = launch(state='{"count":1}', version=3)
    outcome = failed(await agents.handle(lambda signal, ctx: calls.append(1), run))

    assert "has version 3, and Counter in this process has version 2" in outcome.error
    assert (outcome.counted, outcome.handled, calls) == (False, None, [])


async def test_a_payload_that_is_no_signal_is_a_permanent_error(agents: Fixture):
    run = launch()
    run.payload_text = '{"id":'

    assert failed(await agents.handle(lambda signal, ctx: None, run)).reason == "unreadable"


async def test_a_run_without_an_instance_does_not_reach_a_handler(agents: Fixture):
    calls: list[object] = []
    run = launch()
    assert isinstance(run, SignalLaunch)
    run.instance = None
    outcome = failed(await agents.handle(lambda signal, ctx: calls.append(1), run))

    assert (outcome.permanent, outcome.reason, calls) == (True, "unreadable", [])


async def test_a_class_that_cannot_be_instantiated_is_a_failed_attempt(agents: Fixture):
    class Broken(Counter):
        def __init__(self) -> None:
            raise OSError("no network")

    assert await agents.launcher(Broken).start(launch()) == Failed("OSError: no network")


# --- versions ----------------------------------------------------------------------------------------


async def test_an_older_state_is_migrated_and_written_with_the_outcome(agents: Fixture):
    def migrate(self: Agent, state: dict[str, Any], from_version: int) -> object:
        return {"count": state["n"], "from": from_version}

    states = []
    outcome = await agents.handle(
        lambda signal, ctx: states.append(ctx.state), launch(state='{"n":4}', version=1), migrate=migrate
    )

    assert states == [{"count": 4, "from": 1}]
    assert (handled(outcome).data, handled(outcome).version) == ('{"count":4,"from":1}', 2)


async def test_migrate_may_be_asynchronous_and_the_default_keeps_the_state(agents: Fixture):
    async def migrate(self: Agent, state: dict[str, Any], from_version: int) -> object:
        return {**state, "new": True}

    run = launch(state='{"n":4}', version=1)
    assert handled(await agents.handle(lambda s, c: None, run, migrate=migrate)).data == '{"n":4,"new":true}'
    assert handled(await agents.handle(lambda s, c: None, run)).data == '{"n":4}'


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda: None, "migrate returned nothing; return the new state"),
        (lambda: dict[str, object]()["n"], "KeyError: 'n'"),
        (lambda: {"tags": {1}}, "tags: set is not JSON"),
    ],
)
async def test_a_state_that_cannot_be_migrated_blocks_the_instance(
    agents: Fixture, result: Callable[[], object], message: str
):
    def migrate(self: Agent, state: dict[str, Any], from_version: int) -> object:
        return result()

    run = launch(state='{"n":4}', version=1)
    outcome = failed(await agents.handle(lambda s, c: SetState(count=1), run, migrate=migrate))

    why = f"the state cannot be migrated from version 1 to 2: {message}"
    assert outcome.error.startswith(why)
    assert (outcome.counted, outcome.permanent, outcome.reason) == (False, False, "blocked")
    assert outcome.handled == Handled("default", "counter", "eu", 7, 2, block=outcome.error)


@dataclass
class Typed:
    count: int = 0


@pytest.mark.parametrize("state", ["{", "[1]", '{"count":"x"}', '{"old":1}'])
async def test_a_state_that_cannot_be_read_blocks_the_instance(agents: Fixture, state: str):
    run = launch(state=state)
    outcome = failed(await agents.handle(lambda s, c: SetState(count=1), run, state=Typed))

    assert outcome.error.startswith("the state cannot be read: ")
    assert outcome.handled is not None
    assert outcome.handled.block == outcome.error
    assert outcome.handled.data is None


async def test_a_typed_state_is_an_object_of_its_type(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> object:
        assert isinstance(ctx.state, Typed)
        return SetState(count=ctx.state.count + 1)

    assert handled(await agents.handle(body, launch(state='{"count":4}'), state=Typed)).data == '{"count":5}'
    wrong = failed(await agents.handle(lambda s, c: SetState(cuont=1), state=Typed))
    assert wrong.error == "SetState: cuont: Typed has no such field; it has count"
    assert wrong.permanent


# --- memory ------------------------------------------------------------------------------------------


async def test_keys_are_remembered_with_the_outcome(agents: Fixture):
    seen: list[bool] = []

    def body(signal: Signal, ctx: Context) -> None:
        seen.extend([ctx.seen("order-7"), ctx.seen("order-7"), ctx.seen(8)])

    memory = handled(await agents.handle(body)).memory
    await agents.handle(body, launch(memory=memory))

    assert seen == [False, True, False, True, True, True]


async def test_a_failed_attempt_remembers_nothing(agents: Fixture):
    def body(signal: Signal, ctx: Context) -> None:
        assert not ctx.seen("order-7")
        raise ValueError

    assert failed(await agents.handle(body)).handled is None


async def test_a_key_is_text_or_a_number(agents: Fixture):
    outcome = failed(await agents.handle(lambda signal, ctx: ctx.seen(["order-7"])))

    assert "ctx.seen: ['order-7'] is not a key" in outcome.error


async def test_the_last_run_is_of_the_same_type(agents: Fixture):
    last: list[Any] = []
    memory = handled(await agents.handle(lambda signal, ctx: last.append(ctx.last_run))).memory
    await agents.handle(lambda signal, ctx: last.append(ctx.last_run), launch(memory=memory))
    await agents.handle(lambda signal, ctx: last.append(ctx.last_run), launch("count.down", memory=memory))

    assert last == [None, utc_datetime(NOW), None]


# --- changes that are not stored ---------------------------------------------------------------------


async def test_a_handler_that_changes_its_copy_of_the_state_is_named_once(
    agents: Fixture, caplog: pytest.LogCaptureFixture
):
    def body(signal: Signal, ctx: Context) -> object:
        ctx.state["count"] += 1
        return SetState(count=ctx.state["count"]) if signal.data else None

    launcher = agents.launcher(counter(body))
    assert handled(await launcher.start(launch(data=True))).data == '{"count":1}'
    assert "state_unsaved" not in caplog.text
    for _ in range(3):
        assert handled(await launcher.start(launch())).data is None
    (warning,) = [record.getMessage() for record in caplog.records if "state_unsaved" in record.getMessage()]
    assert "handler=handle" in warning
    assert "return SetState(...)" in warning


async def test_a_handler_that_only_reads_its_state_is_not_named(
    agents: Fixture, caplog: pytest.LogCaptureFixture
):
    @dataclass
    class Added:
        count: int = 0
        new: int = 0  # the stored state does not have it

    launcher = agents.launcher(counter(lambda signal, ctx: str(ctx.state.count), state=Added))
    outcome = await launcher.start(launch(state='{"count":5}'))
    assert isinstance(outcome, Succeeded)
    assert outcome.output == "5"
    assert "state_unsaved" not in caplog.text


async def test_a_state_that_cannot_be_compared_does_not_fail_its_handler(
    agents: Fixture, caplog: pytest.LogCaptureFixture
):
    @dataclass
    class Counted:
        count: int = 0

    def body(signal: Signal, ctx: Context) -> str:
        ctx.state.__dict__.clear()
        ctx.state.__class__ = type("Broken", (Counted,), {"count": property(lambda self: 1 / 0)})
        return "done"

    outcome = await agents.handle(body, state=Counted)
    assert isinstance(outcome, Succeeded)
    assert "state_unsaved" in caplog.text


async def test_the_memory_of_any_key_can_be_stored(agents: Fixture):
    outcome = await agents.handle(lambda signal, ctx: str(ctx.seen("report-\udcff.csv")))
    memory = handled(outcome).memory
    assert memory is not None
    assert memory.encode()
    again = await agents.handle(lambda signal, ctx: str(ctx.seen("report-\udcff.csv")), launch(memory=memory))
    assert isinstance(again, Succeeded)
    assert again.output == "True"
