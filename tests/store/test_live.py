"""What open dashboards read: figures of a workspace or an agent, and changed runs."""

from __future__ import annotations

import pytest

from tests.support.factories import NOW, alone, asked, ended, given_job, held, jobless, look
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.stats import LIVE_LIMIT, NEWEST_LIMIT, LiveFigures, RunChange


async def _given(store: Store) -> JobRow:
    """Add runs in every live state and dead letters, of two agents and two workspaces."""
    of = await given_job(store)
    failed = [held(asked(of, NOW + n, serial=False)) for n in range(3)]
    await store.add_runs([
        *failed,
        held(asked(of, NOW + 10, serial=False)),
        asked(of, NOW + 11, serial=False),
        asked(of, NOW + 12, serial=False, state="retrying"),
        held(jobless(agent="ada")),
        held(jobless(workspace="acme")),
    ])  # fmt: skip
    await store.finish("w1", [ended(run, "failed") for run in failed], alone)
    await store.beat("w1", NOW, [])
    return of


async def test_figures_are_those_of_the_workspace_or_the_agent(store: Store) -> None:
    of = await _given(store)
    found = await store.live_figures("default", None, NOW)
    assert found[:4] == (2, 1, 1, 3)
    assert (found.workers, found.next_tick_ms, found.more) == (1, of.next_ms, ())
    ada = await store.live_figures("default", "ada", NOW)
    assert ada == LiveFigures(1, 0, 0, 0, 0, 0, 1, None)
    acme = await store.live_figures("acme", None, NOW + 1)
    assert acme == LiveFigures(1, 0, 0, 0, 0, 0, 0, None)


async def test_figures_beyond_the_limits_are_lower_bounds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _given(store)
    monkeypatch.setattr("wakeful.store.sql.figures.NEWEST_LIMIT", 2)
    monkeypatch.setattr("wakeful.store.sql.figures.LIVE_LIMIT", 3)
    found = await store.live_figures("default", None, NOW)
    assert (found.dead_letters, found.more) == (2, ("running", "dead_letters"))
    assert NEWEST_LIMIT < LIVE_LIMIT


async def test_changed_runs_have_their_state(store: Store) -> None:
    of = await given_job(store)
    run = held(asked(of))
    other = jobless(workspace="acme", agent="ada")
    await store.add_runs([run, other])
    await store.finish("w1", [ended(run)], alone)
    gone = (await look(store, run)).id[:-4] + "0000"
    assert sorted(await store.run_changes([run.id, other.id, gone])) == sorted([
        RunChange(run.id, "default", "default", of.id, "succeeded"),
        RunChange(other.id, "acme", "ada", None, "pending"),
    ])  # fmt: skip
    assert await store.run_changes([]) == []
