"""Faults at every port of the Celery launcher: the broker, the result backend, and what applies reports.

Each fault happens once. Afterwards nothing that the broker accepted is lost, nothing was sent whose attempt
has failed, and results are still read.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from tests.support.interruptions import cancel_at_each_await
from tests.unit.launch.launches import launch
from wakeful.errors import Unavailable
from wakeful.launch.broker import Report, ReportResult
from wakeful.launch.celery import launcher as module
from wakeful.launch.celery.client import CeleryClient, Sending, Sent, Withdrawn
from wakeful.launch.celery.launcher import CeleryLauncher
from wakeful.launch.celery.results import UNREADABLE, TaskState
from wakeful.launch.port import Launch
from wakeful.run.outcome import AwaitingCallback, Failed
from wakeful.store.rows import AwaitingRun
from wakeful.values.json_value import Json

#: more than there are threads that send
LAUNCHES = 20


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_S", 1.5)  # enough for all others on a busy machine
    monkeypatch.setattr(module, "BROKER_S", 0.1)
    monkeypatch.setattr(module, "SWEEP_S", 0.05)
    monkeypatch.setattr(module, "_RETRY_S", 0.01)


class _World:
    """A broker whose workers end each task at once, its result backend, and the services of the process."""

    has_results = True
    app_name = "shop"
    registered: frozenset[str] = frozenset()

    def __init__(self, faults: dict[str, Callable[[_World], Any]]) -> None:
        self.faults = faults
        #: faults that hang end with it
        self.release = threading.Event()
        self.sent: list[str] = []
        self.revoked: list[str] = []
        #: what the database has of all replicas
        self.awaiting: list[AwaitingRun] = []
        self.reports: dict[str, Report] = {}
        store: Any = SimpleNamespace(awaiting_runs=self._awaiting_runs, run=self._run)
        self.launcher = CeleryLauncher(store, lambda: self)  # type: ignore[arg-type, return-value]
        self.launcher.apply_report = self._apply

    def _fail(self, port: str) -> Any:
        fault = self.faults.pop(port, None)
        return None if fault is None else fault(self)

    # --- what the launcher calls, in threads ---

    def send(self, sending: Sending) -> Sent:
        self._fail("before sending")
        if not sending.begin():
            raise Withdrawn
        self._fail("while sending")
        self.sent.append(sending.task.id)
        sending.sent = Sent(True)
        self._fail("after sending")
        return sending.sent

    def read(self, ids: Sequence[str]) -> dict[str, TaskState]:
        changed = self._fail("read")
        states = {
            each: TaskState({"status": "SUCCESS", "result": each}, 1) for each in ids if each in self.sent
        }
        return states if changed is None else changed(states)

    def close(self) -> None:
        """Close nothing."""

    def revoke(self, ids: Sequence[str]) -> None:
        self.revoked.extend(ids)

    # --- the services ---

    async def _apply(self, kind: str, report: Report) -> ReportResult:
        fault = self.faults.pop("apply", None)
        if fault is not None:
            fault(self)
        first = report.run_id not in self.reports
        if report.status != "running":
            self.reports.setdefault(report.run_id, report)
        return ReportResult(first)

    async def _awaiting_runs(self, after: str, limit: int) -> list[Any]:
        fault = self.faults.pop("sweep", None)
        if fault is not None:
            fault(self)
        return self.awaiting if after == "" else []

    async def _run(self, run_id: str) -> Any:
        over = run_id in self.reports
        return SimpleNamespace(state="succeeded" if over else "running", attempt=1, verifying=False)


@asynccontextmanager
async def _open(world: _World) -> AsyncIterator[_World]:
    await world.launcher.open()
    try:
        yield world
    finally:
        world.release.set()
        await world.launcher.close()


def _launches(count: int) -> list[Launch]:
    target: dict[str, Json] = {"kind": "celery", "task": "a"}
    return [launch(target, run_id=f"r{number}", key=f"k{number}") for number in range(count)]


def _raise(error: Exception) -> Callable[[_World], Any]:
    def fault(world: _World) -> Any:
        raise error

    return fault


def _hang(world: _World) -> None:
    world.release.wait(30)


def _first_unreadable(world: _World) -> Any:
    def change(states: dict[str, TaskState]) -> dict[str, TaskState]:
        for task_id in list(states)[:1]:
            states[task_id] = TaskState({"status": UNREADABLE, "result": "no JSON"}, 2)
        return states

    return change


def _nothing_found(world: _World) -> Any:
    return lambda states: {}


FAULTS: dict[str, dict[str, Callable[[_World], Any]]] = {
    "sending": {
        "error": _raise(ConnectionError("refused")),
        "program error": _raise(AttributeError("an error of a driver")),
        "pause": lambda world: _no_result(world.release.wait(0.1)),
        "hang": _hang,
    },
    "reading": {
        "error": _raise(ConnectionError("refused")),
        "program error": _raise(TypeError("an error of a driver")),
        "unreadable": _first_unreadable,
        "empty": _nothing_found,
        "pause": lambda world: _no_result(world.release.wait(0.3)),
    },
    "applying": {
        "unavailable": _raise(Unavailable("the database is down")),
        "program error": _raise(KeyError("a bug")),
    },
}


def _no_result(_: object) -> None:
    """Return nothing: the fault changes no answer."""


CASES = [
    (port, name)
    for ports, kind in (
        (("before sending", "while sending", "after sending"), "sending"),
        (("read",), "reading"),
        (("apply", "sweep"), "applying"),
    )
    for port in ports
    for name in FAULTS[kind]
]
_KIND = {"read": "reading", "apply": "applying", "sweep": "applying"}


@pytest.mark.parametrize(("port", "name"), CASES)
async def test_one_fault_loses_nothing_and_sends_nothing_late(port: str, name: str):
    world = _World({port: FAULTS[_KIND.get(port, "sending")][name]})
    async with _open(world):
        runs = _launches(LAUNCHES)
        outcomes = await asyncio.gather(*map(world.launcher.start, runs))
        failed = {run.id for run, outcome in zip(runs, outcomes, strict=True) if isinstance(outcome, Failed)}
        for run, outcome in zip(runs, outcomes, strict=True):
            assert isinstance(outcome, Failed | AwaitingCallback)
            if isinstance(outcome, Failed):
                # It counts if the broker may have the task: then another attempt may execute it once more.
                expected = ("broker_unavailable", port == "while sending")
                assert (outcome.reason, outcome.counted) == expected
            else:
                assert f"{run.idempotency_key}-1" in world.sent
        assert len(failed) <= 1, "one fault affects one launch"
        async with asyncio.timeout(30):
            while world.reports.keys() < {run.id for run in runs} - failed:
                await asyncio.sleep(0.01)
        assert sum(report.status == "failed" for report in world.reports.values()) == (name == "unreadable")
        watching = world.launcher._watching
        assert watching is not None
        assert not watching.done()
        before = list(world.sent)
        world.release.set()
        await asyncio.sleep(0.05)
        late = set(world.sent) - set(before)
        # A broker that got the task within the attempt, and answers after it, has it: it is revoked.
        assert not late or (port == "while sending" and name == "hang")


async def test_all_threads_that_send_may_hang_and_no_task_is_sent_later():
    world = _World({})

    def hang(port: str) -> None:
        if port == "before sending":
            world.release.wait(30)

    world._fail = hang  # type: ignore[method-assign]
    async with _open(world):
        runs = _launches(LAUNCHES)
        outcomes = await asyncio.gather(*map(world.launcher.start, runs))
        assert all(isinstance(outcome, Failed) for outcome in outcomes)
        world.release.set()
        again = _launches(LAUNCHES + 1)[-1]
        assert isinstance(await world.launcher.start(again), AwaitingCallback)
        assert world.sent == [f"k{LAUNCHES}-1"]


@pytest.mark.parametrize("port", ["before sending", "while sending"])
async def test_the_task_of_a_cancelled_launch_is_not_sent_or_revoked(port: str):
    began = threading.Event()

    def hang(world: _World) -> None:
        began.set()
        world.release.wait(30)

    world = _World({port: hang})
    async with _open(world):
        task = asyncio.create_task(world.launcher.start(_launches(1)[0]))
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        world.release.set()
        async with asyncio.timeout(30):
            assert isinstance(await world.launcher.start(_launches(2)[1]), AwaitingCallback)
            sent, revoked = (["k1-1"], []) if port == "before sending" else (["k0-1", "k1-1"], ["k0-1"])
            while (sorted(world.sent), world.revoked) != (sent, revoked):
                await asyncio.sleep(0.01)


async def test_a_launch_that_is_cancelled_at_any_await_is_awaited_or_revoked():
    world = _World({})
    numbers = itertools.count(1)

    async def start() -> None:
        number = next(numbers)
        run = launch({"kind": "celery", "task": "a"}, run_id=f"r{number}", key=f"k{number}")
        await world.launcher.start(run)

    async def check() -> None:
        async with asyncio.timeout(30):  # a task that the broker has is awaited, or revoked
            while set(world.sent) != {*(f"k{each[1:]}-1" for each in world.reports), *world.revoked}:
                await asyncio.sleep(0.01)

    async with _open(world):
        assert await cancel_at_each_await(start, check) >= 2


async def test_results_whose_reading_is_cancelled_at_any_await_are_read_again():
    world = _World({})
    async with _open(world):
        watching = world.launcher._watching
        assert watching is not None
        watching.cancel()  # only the calls of this test read
        await asyncio.gather(watching, return_exceptions=True)
        client: Any = world
        numbers = itertools.count(1)

        async def prepare() -> None:
            number = next(numbers)
            run = launch({"kind": "celery", "task": "a"}, run_id=f"r{number}", key=f"k{number}")
            await world.launcher.start(run)
            await asyncio.sleep(0.11)  # a new task is asked for after a moment

        async def read() -> None:
            await world.launcher._read_due(client)
            await world.launcher._sweep(client)

        async def check() -> None:
            async with asyncio.timeout(30):
                while len(world.reports) < len(world.sent):
                    await read()
                    await asyncio.sleep(0.01)
            assert world.revoked == []

        assert await cancel_at_each_await(read, check, prepare=prepare) >= 2


async def test_results_are_applied_together_and_one_that_has_to_wait_holds_up_no_other():
    world = _World({})
    others = asyncio.Barrier(LAUNCHES - 1)

    async def apply(kind: str, report: Report) -> ReportResult:
        if report.run_id == "r0":
            raise Unavailable("its launch is not recorded yet")
        await others.wait()
        return await world._apply(kind, report)

    async with _open(world), asyncio.timeout(30):
        watching = world.launcher._watching
        assert watching is not None
        watching.cancel()  # only the call of this test reads
        await asyncio.gather(watching, return_exceptions=True)
        world.launcher.apply_report = apply
        await asyncio.gather(*map(world.launcher.start, _launches(LAUNCHES)))
        await asyncio.sleep(0.11)  # new tasks are asked for after a moment
        client: Any = world
        with pytest.raises(Unavailable):
            await world.launcher._read_due(client)
        assert len(world.reports) == LAUNCHES - 1


@pytest.mark.parametrize("work", ['{"target":{"kind":"webhook","url":"https://a.example"}}', "{garbage"])
@pytest.mark.parametrize(("requires", "edited"), [("celery", False), ("", True), ("celery:other", True)])
async def test_the_result_of_a_dead_replica_is_read_also_if_the_job_was_edited(
    work: str, requires: str, edited: bool
):
    world = _World({})
    world.sent.append("k1-1")
    world.awaiting.append(AwaitingRun("r1", 1, "k1", work, requires, edited))
    async with _open(world), asyncio.timeout(30):
        while "r1" not in world.reports:
            await asyncio.sleep(0.01)
    assert world.reports["r1"].status == "succeeded"


async def test_results_of_another_app_are_left_to_processes_that_have_it():
    world = _World({})
    world.sent += ["k1-1", "k2-1"]  # task ids are those of runs: no other app has them in fact
    work = '{"target":{"kind":"celery","task":"a"}}'
    world.awaiting += [
        AwaitingRun("r1", 1, "k1", work, "celery:other"),
        AwaitingRun("r2", 1, "k2", work, "celery:shop"),
    ]
    async with _open(world), asyncio.timeout(30):
        while "r2" not in world.reports:
            await asyncio.sleep(0.01)
        outcome = await world.launcher.start(launch({"kind": "celery", "task": "a", "app": "other"}))
    assert set(world.reports) == {"r2"}
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.counted) == ("not_registered", False)


@pytest.mark.parametrize(
    "options", [{"serializer": "none"}, {"compression": "none"}, {"countdown": 1e15}, {"expires": 1e300}]
)
async def test_options_that_celery_cannot_use_are_no_fault_of_the_broker(options: dict[str, Json]) -> None:
    app = Celery("shop", broker="memory://")
    store: Any = SimpleNamespace()
    launcher = CeleryLauncher(store, lambda: CeleryClient(app, terminate=False))
    await launcher.open()
    try:
        outcome = await launcher.start(
            launch(target={"kind": "celery", "task": "shop.add", "options": options})
        )
    finally:
        await launcher.close()
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.reason) == (True, "invalid_target")
