"""Errors that PostgreSQL reports while an outcome is written do not lose the output of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from tests.support.factories import NOW, alone, asked, ended, given_job, held, look
from wakeful.engine.completer import Completer
from wakeful.errors import DatabaseFault, Unstorable
from wakeful.run.conversations import HistoryAppend
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.postgres import PostgresStore
from wakeful.store.sessions import SessionKey
from wakeful.values.clock import SystemClock


async def _fail(url: str, code: str, times: int, when: str = "true") -> None:
    """Make the server raise this error so many times, for updates of runs that match `when`."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"""
        SET search_path = wakeful;
        CREATE SEQUENCE faults;
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('wakeful.faults') <= {times} THEN
                RAISE EXCEPTION 'could not read block 7' USING ERRCODE = '{code}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER fail BEFORE UPDATE ON runs FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION fail()""")
    await connection.close()


async def _held(store: Store, *outputs: str) -> list[tuple[NewRun, Finished]]:
    row = await given_job(store)
    runs = [held(asked(row, serial=False)) for _ in outputs]
    await store.add_runs(runs)
    return [
        (run, ended(run, output=output, usage='{"tokens":7}'))
        for run, output in zip(runs, outputs, strict=True)
    ]


async def _write(store: Store, finished: Sequence[Finished]) -> list[str]:
    """Write these outcomes with a completer. Returns the ids of the runs in the order written."""
    writer = Completer("w1", store, SystemClock(), 1, alone)
    written: list[str] = []
    done = asyncio.Event()

    def note(batch: Sequence[Finished], ids: set[str], taken: object) -> None:
        written.extend(each.run_id for each in batch if each.run_id in ids)
        if len(written) == len(finished):
            done.set()

    writer.on_written = note
    for each in finished:
        writer.add(each)
    task = asyncio.create_task(writer.run())
    try:
        await asyncio.wait_for(done.wait(), 60)
    finally:
        task.cancel()
    return written


@pytest.mark.parametrize("code", ["58030", "58P01", "XX000", "XX001"])
async def test_a_transient_fault_loses_no_output(store: PostgresStore, url: str, code: str) -> None:
    held_runs = await _held(store, "one", "two", "three")
    await _fail(url, code, times=3)
    await _write(store, [outcome for _, outcome in held_runs])
    for run, outcome in held_runs:
        seen = await look(store, run)
        assert (seen.state, seen.output, seen.usage, seen.reason) == (
            "succeeded", outcome.output, outcome.usage, None,
        )  # fmt: skip


async def test_a_permanent_fault_of_one_outcome_does_not_delay_the_others(
    store: PostgresStore, url: str
) -> None:
    held_runs = await _held(store, "one", "bad", "three")
    await _fail(url, "XX000", times=1_000, when="NEW.output = 'bad'")
    written = await _write(store, [outcome for _, outcome in held_runs])
    (first, _), (bad, _), (third, _) = held_runs
    assert written == [first.id, third.id, bad.id]
    assert [(await look(store, run)).output for run in (first, bad, third)] == ["one", None, "three"]
    seen = await look(store, bad)
    assert (seen.state, seen.reason) == ("succeeded", "unstorable")
    assert seen.error == "its output could not be stored (DatabaseFault)"


async def test_a_rejected_value_is_dropped_without_a_retry(store: PostgresStore, url: str) -> None:
    held_runs = await _held(store, "one", "bad")
    await _fail(url, "22021", times=2, when="NEW.output = 'bad'")
    await _write(store, [outcome for _, outcome in held_runs])
    seen = [await look(store, run) for run, _ in held_runs]
    assert [(run.output, run.reason) for run in seen] == [("one", None), (None, "unstorable")]


async def test_a_history_that_cannot_be_written_is_dropped(store: PostgresStore) -> None:
    (good, one), (bad, two) = await _held(store, "one", "two")
    said = HistoryAppend("default", "default", "main", "assistant", "hello", good.id, NOW)
    one, two = one._replace(history=(said,)), two._replace(history=(said._replace(run_id="no id"),))
    assert sorted(await _write(store, [one, two])) == sorted([good.id, bad.id])
    seen = await look(store, bad)
    assert (seen.state, seen.reason) == ("succeeded", "unstorable")
    assert [entry.run_id for entry in await store.history(SessionKey("default", "default", "main"))] == [
        good.id
    ]


async def test_faults_and_rejected_values_raise_different_errors(store: PostgresStore, url: str) -> None:
    ((_, outcome),) = await _held(store, "one")
    await _fail(url, "58030", times=1)
    with pytest.raises(DatabaseFault, match="could not read block 7"):
        await store.finish("w1", [outcome], alone)
    with pytest.raises(Unstorable):
        await store.finish("w1", [outcome._replace(attempt=2**40)], alone)
    assert await store.finish("w1", [outcome], alone) == {outcome.run_id}
