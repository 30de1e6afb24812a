"""Suggestions in every store, and the summaries of runs on generated months."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import FalseClock, asleep, look_at_job, tick
from tests.support.run_months import (
    DAY,
    END,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Recorded,
    failing,
    overlapping,
    sharing_slots,
    summarize,
    timing_out,
    varying,
)
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.evolution.suggestion import Suggestion
from wakeful.run.run import NewRun
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql.suggestions import SuggestionDecision, SuggestionFilter
from wakeful.values.ids import first_id, new_id

HOURLY = 3_600_000
ENTRY = AuditEntry("default", "key:1", "suggestion.apply", "default/digest", "{}", None)


@pytest.fixture(autouse=True)
def _month_is_over(clock: FalseClock) -> None:
    clock.ms = END


def suggestion(of: JobRow, **fields: Any) -> Suggestion:
    row = Suggestion(
        new_id(END), of.workspace, of.agent, of.id, of.name, "raise_timeout", "open",
        '{"lostMsPerRun":30000}', '{"timeoutMs":60000}', '{"timeoutMs":null}', of.version, END, END,
    )  # fmt: skip
    return row._replace(**fields)


async def given_job(store: Store, name: str = "digest", **fields: Any) -> JobRow:
    row = asleep(name, created_ms=START, updated_ms=START, **fields)
    await store.create_jobs([row])
    return row


# --- summaries of runs ----------------------------------------------------------------------------------


def row_of(of: JobRow, run: Recorded, number: int) -> NewRun:
    """Return the row of a recorded run, with an id of its time."""
    return tick(
        of, run.scheduled, id=f"{first_id(run.scheduled)[:-12]}{number:012x}",
        fire_ms=run.fire, state=run.state, reason=run.reason,
        started_ms=run.started, finished_ms=run.finished, attempt=run.attempt, due_ms=None,
        trigger=run.trigger,
    )  # fmt: skip


async def record(store: Store, month: Iterable[Recorded], jobs: dict[str, JobRow]) -> None:
    rows = [row_of(jobs[run.job], run, number) for number, run in enumerate(month)]
    for first in range(0, len(rows), 5_000):
        await store.add_runs(rows[first : first + 5_000])


MONTHS = {
    "overlapping": lambda: overlapping("work", 20 * MINUTE, varying(50 * MINUTE, 0.3, seed=1)),
    "replaced": lambda: overlapping("work", 20 * MINUTE, lambda _: HOUR, overlap="replace"),
    "timing-out": lambda: timing_out(
        "work", HOUR, 30 * SECOND, lambda n: MINUTE if n % 7 else SECOND, attempts=3
    ),
    "failing": lambda: failing("work", HOUR, lambda n: n % 3 == 0),
    "peak": lambda: sharing_slots(
        [("work", 9 * HOUR, 6 * HOUR), *((f"other-{n}", 9 * HOUR, DAY) for n in range(7))], 2, 20 * SECOND
    ),
}


@pytest.mark.parametrize("month", MONTHS)
async def test_a_summary_says_what_counting_the_runs_by_hand_says(store: Store, month: str) -> None:
    runs = MONTHS[month]()
    jobs = {name: await given_job(store, name) for name in sorted({run.job for run in runs})}
    await record(store, runs, jobs)
    ids = [row.id for row in jobs.values()]
    found = await store.run_summaries(ids, START, 5)
    assert found == {row.id: summarize(runs, name) for name, row in jobs.items()}
    week = await store.run_summaries(ids, END - 7 * DAY, 5)
    assert week[jobs["work"].id] == summarize([run for run in runs if run.scheduled >= END - 7 * DAY], "work")


async def test_other_runs_do_not_count(store: Store) -> None:
    job = await given_job(store)
    other = await given_job(store, "other")
    failed = failing("digest", DAY, lambda _: True)
    manual = [
        Recorded("digest", run.scheduled + HOUR, run.fire, "succeeded", trigger=trigger)
        for run in failed[:5]
        for trigger in ("user", "replay", "backfill", "agent")
    ]
    missed = [Recorded("digest", START + HOUR, START + HOUR, "missed", "downtime")]
    noise = failing("other", HOUR, lambda _: False)
    await record(store, [*failed, *manual, *missed, *noise], {"digest": job, "other": other})
    assert await store.run_summaries([job.id], START, 5) == {job.id: summarize(failed, "digest")}


async def test_only_runs_since_the_last_change_of_the_job_count(store: Store) -> None:
    job = await given_job(store)
    runs = failing("digest", DAY, lambda _: True)
    await record(store, runs, {"digest": job})
    since = START + 20 * DAY

    def edited(row: JobRow) -> JobChange:
        return JobChange(row._replace(description="edited", updated_ms=since))

    await store.change_job(job.id, edited)
    found = await store.run_summaries([job.id], START, 5)
    assert found == {job.id: summarize(runs, "digest", since=since)}
    assert found[job.id].failed == 8


async def test_jobs_without_runs_have_no_summary(store: Store) -> None:
    job = await given_job(store)
    assert await store.run_summaries([job.id], START, 5) == {}
    assert await store.run_summaries([], START, 5) == {}


# --- suggestions ----------------------------------------------------------------------------------------


async def test_a_suggestion_is_stored_with_all_its_fields(store: Store) -> None:
    job = await given_job(store)
    row = suggestion(job)
    await store.write_suggestions([row])
    assert await store.suggestion("default", row.id) == row
    assert await store.suggestion("other", row.id) is None
    assert await store.suggestion("default", "no-id") is None
    decided = row._replace(
        status="rolled_back", decided_ms=END + 1, decided_by="key:1", evaluated_ms=END + 2,
        evaluation='{"verdict":"worse"}',
    )  # fmt: skip
    assert await store.change_suggestion("default", row.id, lambda _: decided, [ENTRY]) == decided
    assert await store.suggestion("default", row.id) == decided
    assert [entry.action for entry in await store.audit("default")] == ["suggestion.apply"]


async def test_an_open_suggestion_gets_new_figures_and_a_decided_one_stays(store: Store) -> None:
    job = await given_job(store)
    row = suggestion(job)
    await store.write_suggestions([row])
    again = row._replace(figures='{"lostMsPerRun":60000}', updated_ms=END + DAY)
    await store.write_suggestions([again])
    assert await store.suggestion("default", row.id) == again
    dismissed = again._replace(status="dismissed", decided_ms=END + DAY)
    await store.change_suggestion("default", row.id, lambda _: dismissed)
    await store.write_suggestions([again])  # an analysis that began before the decision
    assert await store.suggestion("default", row.id) == dismissed


async def test_a_rule_has_one_open_suggestion_for_a_job(store: Store) -> None:
    job = await given_job(store)
    first, second = suggestion(job), suggestion(job)
    other = suggestion(job, rule="pause_failing")
    await store.write_suggestions([first, second, other])
    found = await store.suggestions(SuggestionFilter("default"))
    assert {each.id for each in found} == {first.id, other.id}
    await store.change_suggestion("default", first.id, lambda row: row._replace(status="dismissed"))
    await store.write_suggestions([second])
    assert len(await store.suggestions(SuggestionFilter("default"))) == 3


async def test_suggestions_are_listed_newest_first_with_filters_and_pages(store: Store) -> None:
    jobs = [await given_job(store, f"job-{n}", agent=f"agent-{n % 2}") for n in range(6)]
    rows = [suggestion(job, id=new_id(END + n)) for n, job in enumerate(jobs)]
    await store.write_suggestions(rows)
    await store.change_suggestion("default", rows[0].id, lambda row: row._replace(status="dismissed"))

    async def listed(**only: Any) -> list[int]:
        found = await store.suggestions(SuggestionFilter("default", **only))
        return [int(each.job_name.removeprefix("job-")) for each in found]

    assert await listed() == [5, 4, 3, 2, 1, 0]
    assert await listed(agent="agent-1") == [5, 3, 1]
    assert await listed(statuses=("open",)) == [5, 4, 3, 2, 1]
    assert await listed(statuses=("dismissed", "applied")) == [0]
    assert await listed(job="job-4") == await listed(job=jobs[4].id) == [4]
    assert await listed(limit=2) == [5, 4]
    assert await listed(limit=2, before=rows[4].id) == [3, 2]
    assert await listed(before="nonsense") == []
    assert await store.suggestions(SuggestionFilter("other")) == []


async def test_job_and_suggestion_change_in_one_transaction(store: Store) -> None:
    job = await given_job(store)
    row = suggestion(job)
    await store.write_suggestions([row])

    def decide(locked: Suggestion, changed: JobRow) -> Suggestion:
        return locked._replace(
            status="applied", job_version=changed.version, decided_ms=changed.updated_ms, decided_by="key:1"
        )

    def edited(old: JobRow) -> JobChange:
        return JobChange(old._replace(policy='{"timeoutMs":60000}', updated_ms=END + 1))

    decision = SuggestionDecision(row.id, decide)
    changed = await store.change_job(job.id, edited, [ENTRY], suggestion=decision)
    assert changed is not None
    found = await store.suggestion("default", row.id)
    assert found is not None
    assert (found.status, found.job_version, found.decided_ms) == ("applied", changed.version, END + 1)

    def refuse(locked: Suggestion, changed: JobRow) -> Suggestion:
        raise FailedPrecondition(f"it is {locked.status}")

    def again(old: JobRow) -> JobChange:
        return JobChange(old._replace(policy="{}", updated_ms=END + 2))

    with pytest.raises(FailedPrecondition, match="it is applied"):
        await store.change_job(job.id, again, [ENTRY], suggestion=SuggestionDecision(row.id, refuse))
    assert await look_at_job(store, job) == changed
    missing = SuggestionDecision(new_id(END), decide)
    with pytest.raises(NotFound):
        await store.change_job(job.id, again, [ENTRY], suggestion=missing)
    assert await look_at_job(store, job) == changed
    assert len(await store.audit("default")) == 1


async def test_withdrawn_suggestions_and_those_of_deleted_jobs_are_pruned(store: Store) -> None:
    kept, gone = await given_job(store), await given_job(store, "gone")
    rows = [
        suggestion(kept, status="withdrawn", decided_ms=START),
        suggestion(kept, status="withdrawn", decided_ms=END),
        suggestion(kept, status="dismissed", decided_ms=START),
        suggestion(kept),
        suggestion(gone, status="dismissed", decided_ms=START),
    ]
    await store.write_suggestions(rows)
    await store.delete_job(gone.id, END, "deleted")
    await store.prune_suggestions(START + DAY)
    found = await store.suggestions(SuggestionFilter("default"))
    assert {each.id for each in found} == {each.id for each in rows[1:4]}


async def test_suggestions_are_deleted_with_their_agent(store: Store) -> None:
    job = await given_job(store, agent="ada")
    await store.write_suggestions([suggestion(job)])
    await store.delete_job(job.id, END, "deleted")
    assert await store.delete_agent("default", "ada")
    assert await store.suggestions(SuggestionFilter("default")) == []


async def test_agents_with_evolution_are_found_in_all_workspaces(database: Database) -> None:
    store = await database.connect()
    await given_job(store, agent="ada")
    await given_job(store, agent="bob")
    for name in ("ada", "default"):
        await store.put_agent("default", name, lambda old: old._replace(evolution="suggest") if old else None)
    assert await store.evolving_agents() == [("default", "ada", True), ("default", "default", True)]
    await store.put_agent("default", "ada", lambda old: old._replace(evolution=None) if old else None)
    assert await store.evolving_agents() == [("default", "default", True)]


async def test_every_change_of_a_suggestion_is_in_the_changelog_once(store: Store):
    job = await given_job(store)
    made, other = suggestion(job), suggestion(job)
    seen = (await store.changes(0))[-1].last

    async def events() -> list[tuple[str, ...]]:
        return [row.items for row in await store.changes(seen) if row.kind == "suggestion.changed"]

    await store.write_suggestions([made, other])
    assert await events() == [(made.id,)], "a second open one of a rule is not added"
    await store.write_suggestions([made._replace(figures='{"lostMsPerRun":1}')])
    assert await store.change_suggestion("default", made.id, lambda old: None) is not None
    assert await store.change_suggestion("elsewhere", made.id, lambda old: old) is None
    assert await events() == [(made.id,)] * 2
    await store.change_suggestion("default", made.id, lambda old: old._replace(status="dismissed"))
    assert await events() == [(made.id,)] * 3
    await store.write_suggestions([made])
    assert await events() == [(made.id,)] * 3, "it is not open any more"
    await store.change_job(
        job.id, lambda old: JobChange(old), suggestion=SuggestionDecision(made.id, lambda old, _: old)
    )
    assert await events() == [(made.id,)] * 4
    assert [each.id for each in await store.suggestions_by_ids([made.id, other.id])] == [made.id]
