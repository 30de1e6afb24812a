"""The completer never writes a success without its directives: what cannot be stored is a failed attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.factories import NOW, FalseClock, alone, job, look
from tests.support.instances import agent_class, done, given_sent, taken, view
from wakeful.document import Defaults, read_definition
from wakeful.engine.completer import Completer
from wakeful.run.instances import ScheduleChange, Send, schedule_job_name
from wakeful.run.outcome import Finished
from wakeful.store.port import Store

#: A text that neither database stores.
UNSTORABLE = '{"x":"\ud800"}'


async def _complete(store: Store, finished: Sequence[Finished]) -> dict[str, str]:
    """Write these outcomes with a completer. Returns the state of each run, as the completer reports it."""
    completer = Completer("w1", store, FalseClock(), 1, alone)
    states: dict[str, str] = {}
    done = asyncio.Event()

    def note(batch: Sequence[Finished], ids: set[str], taken: object) -> None:
        states.update({each.run_id: each.state for each in batch if each.run_id in ids})
        if len(states) == len(finished):
            done.set()

    completer.on_written = note
    for each in finished:
        completer.add(each)
    task = asyncio.create_task(completer.run())
    try:
        await asyncio.wait_for(done.wait(), 60)
    finally:
        task.cancel()
    return states


async def test_directives_that_cannot_be_stored_are_a_failed_attempt_and_harm_no_other(store: Store) -> None:
    await store.put_class(agent_class(), NOW)
    await given_sent(store, "a", "b", "c")
    good, bad, other = await taken(store)
    states = await _complete(
        store,
        [
            done(good, data='{"n":1}', output="one"),
            done(bad, data=UNSTORABLE, output="two", sends=(Send("report", "us", "x", "{}"),)),
            done(other, data='{"n":3}', output="three"),
        ],
    )
    assert states == {good.id: "succeeded", bad.id: "retrying", other.id: "succeeded"}
    seen = await look(store, bad)
    assert (seen.state, seen.reason, seen.output) == ("retrying", "directive_refused", None)
    assert seen.error is not None
    assert seen.error.startswith("its directives could not be stored")
    assert [(await view(store, name)).row.data for name in "abc"] == ['{"n":1}', None, '{"n":3}']
    assert await store.instance("default", "report", "us") is None


async def test_a_refused_outcome_is_reported_as_the_failed_attempt_that_was_written(store: Store) -> None:
    await store.put_class(agent_class(), NOW)
    await given_sent(store, "a", "b")
    good, refused = await taken(store)
    states = await _complete(
        store, [done(good, data="{}"), done(refused, sends=(Send("nobody", "x", "x", "{}"),))]
    )
    assert states == {good.id: "succeeded", refused.id: "retrying"}


async def test_a_schedule_whose_job_name_is_taken_is_a_failed_attempt_and_delays_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_class(agent_class(), NOW)
    await given_sent(store, "a", "b")
    bad, good = await taken(store)
    name = schedule_job_name("a", "dynamic", "daily")
    document = {"name": name, "schedule": "@daily", "target": {"kind": "agent", "instance": "a"}}
    definition = read_definition(document, now_ms=NOW, defaults=Defaults())
    await store.create_jobs([job(name, agent="report")])
    writes = 0
    finish = store.finish

    async def counted(*args: Any) -> set[str]:
        nonlocal writes
        writes += 1
        return await finish(*args)

    monkeypatch.setattr(store, "finish", counted)
    change = ScheduleChange("daily", definition)
    states = await _complete(store, [done(bad, schedules=(change,)), done(good, data='{"n":1}')])
    assert states == {bad.id: "retrying", good.id: "succeeded"}
    assert writes == 4, "of both, of the first, of its refusal, and of the other"
    error = (await look(store, bad)).error
    assert error is not None
    assert name in error
