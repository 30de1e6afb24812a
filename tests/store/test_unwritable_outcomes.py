"""Outcomes are written with their output after a database fault; only one that causes faults loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.factories import FalseClock, alone, asked, ended, given_job, held, look
from wakeful.engine.completer import Completer
from wakeful.errors import DatabaseFault, Unstorable, WakefulError
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow


async def _held(store: Store, row: JobRow, *outputs: str) -> list[tuple[NewRun, Finished]]:
    runs = [held(asked(row, serial=False)) for _ in outputs]
    await store.add_runs(runs)
    return [
        (run, ended(run, output=output, usage='{"tokens":7}'))
        for run, output in zip(runs, outputs, strict=True)
    ]


async def _complete(store: Store, finished: Sequence[Finished]) -> None:
    """Write these outcomes with a completer."""
    completer = Completer("w1", store, FalseClock(), 1, alone)
    missing = {each.run_id for each in finished}
    done = asyncio.Event()

    def note(batch: Sequence[Finished], ids: set[str], taken: object) -> None:
        missing.difference_update(ids)
        if not missing:
            done.set()

    completer.on_written = note
    for each in finished:
        completer.add(each)
    task = asyncio.create_task(completer.run())
    try:
        await asyncio.wait_for(done.wait(), 60)
    finally:
        task.cancel()


def _break_down(store: Any, writes: int, *, at_commit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make that many writes fail, whatever they write: before they begin, or when they commit."""
    driver, left = store._driver, writes
    real = {name: getattr(driver, name) for name in ("write", "write_one")}

    def failing(name: str) -> Any:
        async def call(operation: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left <= 0:
                return await real[name](operation, *args, **kwargs)
            if not at_commit:
                left -= 1
                raise DatabaseFault("could not read block 7")

            async def uncommitted(*given: Any, **named: Any) -> None:
                nonlocal left
                await operation(*given, **named)
                left -= 1
                raise DatabaseFault("could not write to the log")

            return await real[name](uncommitted, *args, **kwargs)

        return call

    for name in real:
        monkeypatch.setattr(driver, name, failing(name))


@pytest.mark.parametrize("at_commit", [False, True], ids=["before", "commit"])
@pytest.mark.parametrize("outputs", [("one",), ("one", "two", "three")], ids=["alone", "together"])
async def test_a_fault_of_the_whole_database_drops_no_output_whenever_it_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch, outputs: tuple[str, ...], at_commit: bool
) -> None:
    row = await given_job(store)
    for writes in (*range(16), 100):
        runs = await _held(store, row, *outputs)
        with monkeypatch.context() as patch:
            _break_down(store, writes, at_commit=at_commit, monkeypatch=patch)
            await _complete(store, [outcome for _, outcome in runs])
        for run, outcome in runs:
            seen = await look(store, run)
            assert (seen.state, seen.output, seen.usage, seen.reason) == (
                "succeeded", outcome.output, outcome.usage, None,
            ), f"{writes} writes failed"  # fmt: skip


@pytest.mark.parametrize("error", [DatabaseFault, Unstorable])
@pytest.mark.parametrize("field", ["output", "usage", "evidence"])
@pytest.mark.parametrize("outputs", [("bad",), ("one", "bad", "three")], ids=["alone", "together"])
async def test_an_outcome_that_causes_faults_itself_is_written_without_what_causes_them(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    outputs: tuple[str, ...],
    field: str,
    error: type[WakefulError],
) -> None:
    runs = await _held(store, await given_job(store), *outputs)
    runs = [(run, outcome._replace(evidence='{"url":"x"}')) for run, outcome in runs]
    finish = store.finish
    bad = [run.id for run, outcome in runs if outcome.output == "bad"]

    async def refuse(worker: str, finished: Sequence[Finished], consequences: Any) -> set[str]:
        if any(each.run_id in bad and getattr(each, field) is not None for each in finished):
            raise error("could not read block 7")
        return await finish(worker, finished, consequences)

    monkeypatch.setattr(store, "finish", refuse)
    await _complete(store, [outcome for _, outcome in runs])
    for run, outcome in runs:
        seen = await look(store, run)
        assert seen.state == "succeeded"
        assert seen.usage == (None if run.id in bad and field == "usage" else '{"tokens":7}')
        expected = (None, "unstorable") if run.id in bad else (outcome.output, None)
        assert (seen.output, seen.reason) == expected
