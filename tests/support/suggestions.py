"""A suggestion for a job without a month of runs."""

from __future__ import annotations

from wakeful.evolution.suggestion import Suggestion
from wakeful.store.port import Store
from wakeful.store.sql.suggestions import SuggestionFilter
from wakeful.values.ids import new_id


async def suggest(store: Store, agent: str, name: str) -> str:
    """Suggest a longer timeout for a job, unless it has a suggestion; returns the id of one."""
    job = await store.job("default", agent, name)
    assert job is not None
    now_ms = store.clock.now_ms()
    row = Suggestion(
        new_id(now_ms), "default", agent, job.id, name, "raise_timeout", "open",
        '{"runs":20,"timedOut":20,"currentTimeoutMs":30000,"lostMsPerRun":30000}', '{"timeoutMs":60000}',
        '{"timeoutMs":null}', job.version, now_ms, now_ms,
    )  # fmt: skip
    await store.write_suggestions([row])
    (found, *_) = await store.suggestions(SuggestionFilter("default", agent))
    return found.id
