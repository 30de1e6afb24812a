"""Mutation tests of the simulation of agents: each breaks one guarantee, and histories must fail.

Each test removes one mechanism that mailboxes, states or directives depend on, runs histories, and expects
the checker to report the violation.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.simulation.agents.agent_world import AGENTS, AgentWorld
from tests.simulation.agents.history import AgentHistory
from tests.simulation.faults import Odds
from tests.simulation.fences import without_fences
from tests.simulation.virtual_loop import Stuck, run_virtually
from tests.simulation.world import Replica
from wakeful.agents.launcher import AgentLauncher
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.worker import Worker
from wakeful.errors import Unavailable, WakefulError
from wakeful.launch.port import Launch, SignalLaunch
from wakeful.run.outcome import Finished, Outcome, Succeeded
from wakeful.run.signal_rules import SignalEffects, signal_effects, signal_run
from wakeful.store import mailbox_rules
from wakeful.store.sqlite import mailbox as sqlite_mailbox
from wakeful.store.sqlite import signal_outcomes as sqlite_signal_outcomes

SEEDS = range(200, 230)

Tweak = Callable[[AgentHistory], None]


def fails(seed: int, tweak: Tweak | None = None) -> str:
    """Run a history. Returns its error, or an empty string."""
    history = AgentHistory(seed)
    if tweak is not None:
        tweak(history)
    with TemporaryDirectory() as folder:
        try:
            run_virtually(history.tell(Path(folder)))
        except (AssertionError, Stuck, WakefulError) as error:
            return str(error)
    return ""


def complains_that(words: str, tweak: Tweak | None = None) -> bool:
    """Whether some history fails with these words."""
    return any(words in fails(seed, tweak) for seed in SEEDS)


def troubled(history: AgentHistory) -> None:
    """Raise the fault rates between replicas and database."""
    history.odds = Odds(crash=4, doubt=4, stall=4, stall_s=40 * history.unit, way_s=0.3 * history.unit)
    history.want = 2


def failing(history: AgentHistory) -> None:
    """Make handlers fail often."""
    history.fates = 0.5


def stopping(history: AgentHistory) -> None:
    """Make handlers stop their instances often."""
    history.stops = 0.1


def test_histories_of_agents_pass_with_the_unbroken_runtime():
    assert [fails(seed, tweak) for seed in SEEDS[:2] for tweak in (troubled, failing, stopping)] == [""] * 6


# --- before the transaction of the outcome ---------------------------------------------------------------


def before_the_outcome(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[AgentWorld, Replica, Succeeded], Awaitable[Outcome]]
) -> None:
    """Call `write` after each handler that returned; its result is the outcome that is reported later."""
    real = AgentWorld.new_targets

    def new_targets(world: AgentWorld, replica: Replica | None) -> Any:
        targets = real(world, replica)
        if replica is not None:
            launcher = world.launchers[replica]
            start = launcher.start

            async def start_and_write(run: Launch) -> Outcome:
                outcome = await start(run)
                return await write(world, replica, outcome) if isinstance(outcome, Succeeded) else outcome

            launcher.start = start_and_write  # type: ignore[method-assign]
        return targets

    monkeypatch.setattr(AgentWorld, "new_targets", new_targets)


def test_a_state_written_outside_the_transaction_of_the_outcome_counts_wrong(
    monkeypatch: pytest.MonkeyPatch,
):
    async def write(world: AgentWorld, replica: Replica, outcome: Succeeded) -> Outcome:
        handled = outcome.handled
        assert handled is not None
        world.recorder.execute(
            "UPDATE instances SET data = ? WHERE id = ?", handled.data, handled.instance_id
        )
        return replace_handled(outcome, data=None)

    before_the_outcome(monkeypatch, write)
    assert complains_that("signals succeeded, and its state", troubled)


def replace_handled(outcome: Succeeded, **fields: Any) -> Succeeded:
    assert outcome.handled is not None
    return outcome._replace(handled=outcome.handled._replace(**fields))


@pytest.mark.parametrize("words", ["is not written", "arrived"])
def test_signals_sent_before_the_commit_arrive_without_their_outcome(
    monkeypatch: pytest.MonkeyPatch, words: str
):
    async def write(world: AgentWorld, replica: Replica, outcome: Succeeded) -> Outcome:
        handled = outcome.handled
        assert handled is not None
        for each in handled.sends:
            arrival = signal_run(
                world.classes[each.agent], each.instance, each.type, each.text, world.clock.now_ms(),
                source=each.source, signal_id=each.id, delay_ms=each.delay_ms,
            )  # fmt: skip
            await replica._inner.send([arrival], 1000)
        return replace_handled(outcome, sends=())

    before_the_outcome(monkeypatch, write)
    assert complains_that(words, troubled)


# --- fences, order, duplicates -----------------------------------------------------------------------------


def test_a_mailbox_without_fencing_writes_outcomes_of_runs_that_others_hold(monkeypatch: pytest.MonkeyPatch):
    without_fences(monkeypatch)
    assert complains_that("was changed though it was", troubled)


def everywhere(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    """Replace a function of the mailbox in each module of the store that uses it."""
    real = getattr(sqlite_mailbox, name)
    users = [
        module
        for path, module in list(sys.modules.items())
        if path.startswith("wakeful.store.sqlite") and getattr(module, name, None) is real
    ]
    assert len(users) > 1
    for module in users:
        monkeypatch.setattr(module, name, function)


def weaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the unique index of exposed runs by a plain one, before anything is exposed."""
    real = AgentWorld.__aenter__

    async def enter(world: AgentWorld) -> AgentWorld:
        await real(world)
        ((text,),) = world.recorder.execute("SELECT sql FROM sqlite_master WHERE name = 'runs_exposed'")
        world.recorder.execute("DROP INDEX runs_exposed")
        world.recorder.execute(str(text).replace("UNIQUE ", ""))
        return world

    monkeypatch.setattr(AgentWorld, "__aenter__", enter)


def expose_the_next(db: sqlite3.Connection, events: Any, now_ms: int, instances: Collection[str]) -> None:
    """Expose the next pending run also while another one retries."""
    for instance in instances:
        db.execute(
            "UPDATE runs SET due_at = fire_at WHERE rowid = (SELECT rowid FROM runs WHERE instance_id = ?"
            " AND state = 'pending' ORDER BY fire_at, sequence LIMIT 1)",
            (instance,),
        )
    events.publish("runs")


def test_an_expose_that_ignores_a_retrying_run_breaks_the_order(monkeypatch: pytest.MonkeyPatch):
    weaken(monkeypatch)
    everywhere(monkeypatch, "expose", expose_the_next)
    assert complains_that("was in progress", failing)


def test_the_index_of_exposed_runs_refuses_a_second_one(monkeypatch: pytest.MonkeyPatch):
    everywhere(monkeypatch, "expose", expose_the_next)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        complains_that("was in progress", failing)


def test_an_expose_in_the_order_of_arrival_starts_delayed_signals_in_the_wrong_order(
    monkeypatch: pytest.MonkeyPatch,
):
    by_arrival = sqlite_mailbox.NEXT.replace("ORDER BY fire_at, sequence", "ORDER BY sequence")
    assert by_arrival != sqlite_mailbox.NEXT
    monkeypatch.setattr(sqlite_mailbox, "NEXT", by_arrival)
    assert complains_that("which comes first")


def test_without_deduplication_a_repeated_signal_is_stored_twice(monkeypatch: pytest.MonkeyPatch):
    def nothing(db: sqlite3.Connection, now_ms: int, keys: Sequence[Any]) -> dict[Any, str]:
        return {}

    everywhere(monkeypatch, "known_signals", nothing)
    assert complains_that("is stored 2 times")


# --- instances ---------------------------------------------------------------------------------------------


def test_a_cached_state_of_another_process_is_detected(monkeypatch: pytest.MonkeyPatch):
    states: dict[tuple[int, str], str] = {}
    real = AgentLauncher.start

    async def start(launcher: AgentLauncher, run: Launch) -> Outcome:
        """Use the state that this process wrote last."""
        assert isinstance(run, SignalLaunch)
        key = id(launcher), str(run.instance_id)
        run.state_text = states.get(key, run.state_text)
        outcome = await real(launcher, run)
        if isinstance(outcome, Succeeded) and outcome.handled is not None and outcome.handled.data:
            states[key] = outcome.handled.data
        return outcome

    monkeypatch.setattr(AgentLauncher, "start", start)

    def several(history: AgentHistory) -> None:
        history.want = 3

    assert complains_that("saw a state with", several)


def test_a_stop_that_leaves_pending_signals_is_detected(monkeypatch: pytest.MonkeyPatch):
    none = f"{sqlite_signal_outcomes.PENDING} AND id = ''"
    monkeypatch.setattr(sqlite_signal_outcomes, "PENDING", none)
    assert complains_that("is not cancelled though the instance was stopped", stopping)


# --- half of an outcome ------------------------------------------------------------------------------------


def with_effects(monkeypatch: pytest.MonkeyPatch, change: Callable[[SignalEffects], SignalEffects]) -> None:
    """Change what follows from the outcomes of handlers."""
    real = signal_effects

    def effects(*arguments: Any) -> SignalEffects:
        return change(real(*arguments))

    monkeypatch.setattr(sqlite_signal_outcomes, "signal_effects", effects)


def test_an_outcome_without_its_signals_is_detected(monkeypatch: pytest.MonkeyPatch):
    with_effects(monkeypatch, lambda effects: effects._replace(arrivals=effects.arrivals[1:]))
    assert complains_that("did not arrive")


def test_an_outcome_that_applies_half_of_its_schedules_is_detected(monkeypatch: pytest.MonkeyPatch):
    with_effects(monkeypatch, lambda effects: effects._replace(deleted={}))
    assert complains_that("has the schedules")


def test_an_outcome_without_what_it_emitted_is_detected(monkeypatch: pytest.MonkeyPatch):
    with_effects(monkeypatch, lambda effects: effects._replace(emitted=effects.emitted[1:]))
    assert complains_that("has emitted 0 signals")


def test_a_delay_that_is_counted_from_the_return_of_the_handler_is_too_early(
    monkeypatch: pytest.MonkeyPatch,
):
    real = signal_effects

    def effects(outcomes: Iterable[Finished], facts: Any, now_ms: int) -> SignalEffects:
        finished = list(outcomes)
        return real(finished, facts, min([now_ms, *(each.finished_ms for each in finished)]))

    monkeypatch.setattr(sqlite_signal_outcomes, "signal_effects", effects)
    assert complains_that("ms too early", troubled)


def test_a_replica_that_takes_signals_of_other_classes_is_detected(monkeypatch: pytest.MonkeyPatch):
    all_classes = {f"agent:default/{agent}": 9 for agent in AGENTS}
    monkeypatch.setattr(LauncherRegistry, "capabilities", lambda self: {"": 0, **all_classes})
    assert complains_that("was taken by a process without its class")


def test_a_paused_instance_that_is_exposed_is_detected(monkeypatch: pytest.MonkeyPatch):
    active = sqlite_mailbox.NEXT.replace("SELECT i.status", "SELECT 'active'")
    assert active != sqlite_mailbox.NEXT
    monkeypatch.setattr(sqlite_mailbox, "NEXT", active)
    assert complains_that("started though the instance was paused")


def test_a_stopped_instance_that_accepts_signals_is_detected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mailbox_rules, "_refusal", lambda mailbox, added: None)
    assert complains_that("was accepted though the instance is stopped", stopping)


def test_a_stop_without_effect_is_detected(monkeypatch: pytest.MonkeyPatch):
    def without_status(effects: SignalEffects) -> SignalEffects:
        return effects._replace(instances=[each._replace(status=None) for each in effects.instances])

    with_effects(monkeypatch, without_status)
    assert complains_that("did not stop the instance", stopping)


def test_a_signal_taken_with_an_outcome_whose_answer_is_lost_is_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    async def story(folder: Path) -> None:
        async with AgentWorld(folder) as world:
            for signal_id in ("1", "2"):
                await world.send("alpha", "a", signal_id)
            replica = await world.start()
            real, lost = replica.store._call, 0

            async def call(name: str, *rest: Any) -> Any:
                nonlocal lost
                answer = await real(name, *rest)
                if name == "finish_and_take" and not lost:
                    lost += 1
                    raise Unavailable("no answer")
                return answer

            replica.store._call = call  # type: ignore[method-assign, assignment]
            await world.sleep(60)
            assert lost
            world.check(over=True)

    for name in ("unbroken", "broken"):
        (tmp_path / name).mkdir()
    run_virtually(story(tmp_path / "unbroken"))
    monkeypatch.setattr(Worker, "_claim_failed", lambda self: None)
    with pytest.raises(AssertionError, match="is running for ever"):
        run_virtually(story(tmp_path / "broken"))
