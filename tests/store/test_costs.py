"""Reads of spending for reports: the most expensive agents and jobs of each day, exact sums, budgets."""

from __future__ import annotations

from tests.support.databases import Database
from tests.support.factories import DAY, NOW, alone, asleep, ended, given_held, given_job, held, tick
from wakeful.job.start_rules import BudgetOwner
from wakeful.store.accounts import AgentRow
from wakeful.store.port import Store
from wakeful.store.sql.reports import BlockRow, BudgetRow, DayRange, JobTitle, SpendingRow

TODAY = NOW // DAY
WEEK = DayRange(TODAY - 6, TODAY)


async def spend(
    database: Database, rows: list[tuple[str, str, int, int, float]], workspace: str = "default"
) -> None:
    """Write spending: agent, job, days ago, tokens, cost."""
    values = ", ".join(
        f"('{workspace}', '{agent}', '{job}', {TODAY - ago}, {tokens}, {cost})"
        for agent, job, ago, tokens, cost in rows
    )
    await database.execute(f"INSERT INTO spending (workspace, agent, job, day, tokens, cost) VALUES {values}")


async def test_spending_of_owners_is_returned_by_day(store: Store, database: Database) -> None:
    await spend(
        database,
        [("", "", 0, 9, 3.0), ("a", "", 0, 4, 1.0), ("a", "j1", 1, 2, 0.5), ("b", "j1", 0, 7, 7.0)],
    )
    await spend(database, [("a", "", 0, 1, 99.0)], "other")
    found = await store.spending("default", [("", ""), ("a", ""), ("a", "j1"), ("a", "j2")], WEEK)
    assert sorted(found) == [
        SpendingRow("", "", TODAY, 9, 3.0),
        SpendingRow("a", "", TODAY, 4, 1.0),
        SpendingRow("a", "j1", TODAY - 1, 2, 0.5),
    ]
    assert await store.spending("default", [("a", "j1")], DayRange(TODAY, TODAY)) == []
    assert await store.spending("default", [], WEEK) == []


async def test_the_top_of_each_day_is_considered_and_the_sums_decide(
    store: Store, database: Database
) -> None:
    await spend(
        database,
        [
            *[("a", f"j{number}", 0, 1, float(number)) for number in range(5)],
            ("a", "j1", 1, 1, 50.0),
            ("b", "big", 2, 1, 3.5),
            ("a", "", 0, 9, 99.0),  # an agent is no job
            ("", "", 0, 9, 99.0),
            ("a", "old", 7, 1, 500.0),  # before the range
        ],
    )
    await spend(database, [("a", "other", 0, 1, 77.0)], "other")
    # j1 leads by its second day; on the first, only the two most expensive are considered
    assert await store.top_owners("default", None, WEEK, 2, 10, jobs=True) == [
        ("a", "j1"),
        ("a", "j4"),
        ("b", "big"),
        ("a", "j3"),
    ]
    assert await store.top_owners("default", None, WEEK, 2, 1, jobs=True) == [("a", "j1")]
    assert await store.top_owners("default", "b", WEEK, 2, 10, jobs=True) == [("b", "big")]
    assert await store.top_owners("default", None, WEEK, 2, 10, jobs=False) == [("a", "")]


async def test_without_a_cost_tokens_decide(store: Store, database: Database) -> None:
    await spend(database, [("a", "few", 0, 1, 0.0), ("a", "many", 0, 900, 0.0), ("a", "some", 0, 30, 0.0)])
    assert await store.top_owners("default", None, WEEK, 2, 10, jobs=True) == [("a", "many"), ("a", "some")]


async def test_a_run_that_reports_usage_is_in_the_report(store: Store) -> None:
    job, run = await given_held(store)
    await store.finish("w1", [ended(run, usage='{"tokens":5,"cost":0.25}')], alone)
    assert await store.top_owners("default", None, WEEK, 10, 10, jobs=True) == [("default", job.id)]
    assert await store.top_owners("default", None, WEEK, 10, 10, jobs=False) == [("default", "")]
    (row,) = await store.spending("default", [("default", job.id)], WEEK)
    assert row == SpendingRow("default", job.id, TODAY, 5, 0.25)


async def test_budgets_of_agents_come_with_todays_use(store: Store, database: Database) -> None:
    def put(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(budget='{"costPerDay":2}')

    assert await store.agent_budgets("default", TODAY, 10) == []
    await store.put_agent("default", "default", put)
    assert await store.agent_budgets("default", TODAY, 10) == [
        BudgetRow("default", '{"costPerDay":2}', 0, 0.0)
    ]
    await spend(database, [("default", "", 0, 7, 1.5), ("default", "", 1, 7, 9.0)])
    assert await store.agent_budgets("default", TODAY, 10) == [
        BudgetRow("default", '{"costPerDay":2}', 7, 1.5)
    ]
    assert len(await store.agent_budgets("default", TODAY, 10, "default")) == 1
    assert await store.agent_budgets("default", TODAY, 10, "other") == []


async def test_used_up_budgets_of_jobs_are_listed(store: Store) -> None:
    work = '{"budget":{"tokensPerDay":10},"target":{"kind":"pull"}}'
    job = asleep("digest", work=work)
    await store.create_jobs([job])
    run = held(tick(job, NOW))
    await store.add_runs([run])
    assert await store.job_blocks("default", TODAY, 10) == []
    await store.finish("w1", [ended(run, usage='{"tokens":12}')], alone)
    assert await store.job_blocks("default", TODAY, 10) == [
        BlockRow("default", job.id, "tokensPerDay", 10.0, 12, 0.0)
    ]
    assert len(await store.job_blocks("default", TODAY, 10, "default")) == 1
    assert await store.job_blocks("default", TODAY, 10, "other") == []
    assert await store.read_spent(BudgetOwner("default", "default", job.id), TODAY) == (12, 0.0)


async def test_names_of_deleted_jobs_stay_known(store: Store) -> None:
    job = await given_job(store)
    assert await store.job_titles([job.id]) == [JobTitle(job.id, job.name, False, job.work)]
    run = held(tick(job, NOW))
    await store.add_runs([run])
    await store.delete_job(job.id, NOW, "deleted")
    (title,) = await store.job_titles([job.id])
    assert title.deleted
    assert title.name == job.name
    assert await store.job_titles([]) == []
