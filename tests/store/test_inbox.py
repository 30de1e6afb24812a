"""The inbox in every store: against a model, by page, and with 10,000 items of each kind."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.store.test_verifications import given_reported
from tests.support.factories import MINUTE, NOW, FalseClock, alone, asleep, ended, given_held
from tests.support.query_plans import visited
from wakeful.evolution.suggestion import Suggestion
from wakeful.run.inbox import COUNTED, INBOX_KINDS
from wakeful.run.incidents import Incident
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunFilter
from wakeful.store.sql import incidents, suggestions
from wakeful.store.sql.inbox import InboxFilter, count_statement, list_statement
from wakeful.store.sql.runs import list_runs
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.values.ids import new_id

MANUAL = '{"kind":"manual"}'
#: Titles and errors are of users: each of these is text and nothing else.
HOSTILE = ("<script>alert(1)</script>", "\u202egnp", "'; DROP TABLE jobs; --", "{manual}", "")


def waiting_job(number: int, workspace: str, agent: str, at_ms: int) -> JobRow:
    return asleep(
        f"job-{number}", id=new_id(NOW), workspace=workspace, agent=agent, enabled=False,
        disabled_reason="approval", description=HOSTILE[number % len(HOSTILE)], updated_ms=at_ms,
    )  # fmt: skip


def suggestion(number: int, workspace: str, agent: str, at_ms: int, status: str = "open") -> Suggestion:
    return Suggestion(
        new_id(NOW), workspace, agent, new_id(NOW), f"job-{number}", "raise_timeout", status,  # type: ignore[arg-type]
        '{"timedOut":2,"runs":3,"lostMsPerRun":1}', '{"timeoutMs":60000}', "{}", 7, at_ms, at_ms,
    )  # fmt: skip


def incident(number: int, workspace: str, agent: str, at_ms: int, **fields: Any) -> Incident:
    found = Incident(
        new_id(NOW), workspace, agent, new_id(NOW), f"job-{number}", "http 503",
        HOSTILE[number % len(HOSTILE)], at_ms, at_ms, 1, 1, new_id(NOW), new_id(NOW),
    )  # fmt: skip
    return found._replace(**fields)


async def write_incidents(store: Store, rows: Iterable[Incident]) -> None:
    async def write(db: Any, events: Any) -> None:
        await store._driver.session(db).execute_many(incidents.WRITE, list(rows))

    await store._driver.write(write)


async def test_pages_are_what_waits_in_order(store: Store) -> None:
    rng = random.Random(31)
    model: list[tuple[int, str, str, str, Any]] = []  # since, id, kind, workspace, agent
    for number in range(60):
        workspace, agent = rng.choice(("default", "default", "acme")), rng.choice(("ada", "bob"))
        at_ms = NOW + rng.randrange(8) * MINUTE  # several wait since the same instant
        waits = rng.random() < 0.7
        made: JobRow | Suggestion | Incident
        if (kind := rng.choice(INBOX_KINDS[1:])) == "approval":
            made = waiting_job(number, workspace, agent, at_ms)
            made = made if waits else made._replace(disabled_reason="paused")
            await store.create_jobs([made])
        elif kind == "suggestion":
            made = suggestion(number, workspace, agent, at_ms, "open" if waits else "dismissed")
            await store.write_suggestions([made])
        else:
            over: Any = rng.choice(
                ({"acknowledged_ms": NOW}, {"closed_ms": NOW, "closed_reason": "succeeded"})
            )
            made = incident(number, workspace, agent, at_ms, **({} if waits else over))
            await write_incidents(store, [made])
        if waits:
            model.append((at_ms, made.id, kind, workspace, agent))
    for name in "abc":
        run = await given_reported(store, check=MANUAL, name=name)
        model.append((NOW, run.id, "verification", run.workspace, run.agent))
    await given_reported(store, name="checked by itself")
    model.sort(reverse=True)

    chosen = ((), ("approval",), ("suggestion", "incident"), ("verification", "approval"))
    for workspace, owner, kinds in product(("default", "acme", "none"), (None, "ada", "default"), chosen):
        only = InboxFilter(workspace, owner, kinds or INBOX_KINDS, limit=rng.randrange(1, 9))  # type: ignore[arg-type]
        seen: list[tuple[int, str, str, str, Any]] = []
        while True:
            page = await store.inbox(only)
            seen += [(row.since_ms, row.subject_id, row.kind, row.workspace, row.agent) for row in page]
            assert len(page) <= only.limit
            assert all(row.title for row in page)
            if not page:
                break
            only = only._replace(after=page[-1].position)
        due = [each for each in model if each[3] == workspace and owner in (None, each[4])]
        assert seen == [each for each in due if each[2] in (kinds or INBOX_KINDS)]
        counts = {kind: sum(each[2] == kind for each in due) for kind in INBOX_KINDS}
        assert await store.inbox_counts(workspace, owner) == counts
    assert await store.inbox(InboxFilter("default", after=(NOW, "x' OR 1=1"))) == []


async def test_what_was_decided_or_deleted_does_not_wait(store: Store) -> None:
    first, second, third = [await given_reported(store, check=MANUAL, name=name) for name in "abc"]
    waiting = waiting_job(1, "default", "ada", NOW)
    await store.create_jobs([waiting])

    async def items() -> set[str]:
        return {row.subject_id for row in await store.inbox(InboxFilter("default"))}

    assert await items() == {first.id, second.id, third.id, waiting.id}
    assert await store.finish_verification(ended(first), alone)
    assert await store.cancel_run(second.id, NOW, "stopped", running=True)
    await store.delete_job(waiting.id, NOW, "deleted")
    assert await items() == {third.id}
    assert (await store.inbox_counts("default"))["verification"] == 1


async def test_runs_whose_work_is_verified_are_a_filter_of_lists(store: Store) -> None:
    manual = await given_reported(store, check=MANUAL, name="a")
    checked = await given_reported(store, name="b")
    _, running = await given_held(store, name="c")
    job, failed = await given_held(store, name="d")
    await store.finish("w1", [ended(failed, "failed")], alone)

    async def listed(*states: str, **only: Any) -> set[str]:
        return {run.id for run in await store.runs(RunFilter("default", states=states, **only))}

    assert await listed("verifying") == {manual.id, checked.id}
    assert await listed("verifying", to_confirm=True) == {manual.id}
    assert await listed("verifying", "failed") == {manual.id, checked.id, failed.id}
    assert await listed("verifying", "running") == {manual.id, checked.id, running.id}
    assert await listed("verifying", job_id=manual.job_id) == {manual.id}
    assert await listed("verifying", job_id=job.id) == await listed("verifying", agent="x") == set()
    assert await listed("verifying", dead=True) == set()
    assert await listed("verifying", before=checked.id) == {manual.id}


# --- 10,000 items of each kind ----------------------------------------------------------------------------

COUNT = 10_000
_FILTERS = [
    InboxFilter("default", agent, after=after)
    for agent in (None, "ada")
    for after in (None, (NOW + COUNT // 2, "01980000-0000-7000-8000-000000000000"))
]
_LITE_RUNS = f"""
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {COUNT})
    INSERT INTO verifications (run_id, attempt, reported_by, due_at, verify, requires, at, workspace)
    SELECT printf('01910000-0000-7000-8000-%012d', i), 1, 'w1', {NOW} + i, '{MANUAL}', '', {NOW} + i,
        'default' FROM n;
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, worker, awaiting_callback, idempotency_key, created_at)
    SELECT run_id, workspace, 'ada', {NOW}, {NOW}, 'user', 'running', 1, 1, 'main', 0, 'verifying', 1,
        'key', {NOW} FROM verifications"""
_GREAT_RUNS = f"""
    INSERT INTO verifications (run_id, attempt, reported_by, due_at, verify, requires, at, workspace)
    SELECT ('01910000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 1, 'w1',
        to_timestamp({NOW} / 1000.0) + i * interval '1 ms', '{MANUAL}', '',
        to_timestamp({NOW} / 1000.0) + i * interval '1 ms', 'default'
    FROM generate_series(0, {COUNT - 1}) i;
    INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt, lane,
        serial, worker, awaiting_callback, idempotency_key, created_at)
    SELECT run_id, workspace, 'ada', at, at, 'user', 'running', 1, 1, 'main', false, 'verifying', true,
        'key', at FROM verifications"""


async def _fill(store: Store) -> None:
    numbers = range(COUNT)
    await store.create_jobs([waiting_job(each, "default", "ada", NOW + each) for each in numbers])
    await write_incidents(store, (incident(each, "default", "ada", NOW + each) for each in numbers))

    async def write(db: Any, events: Any) -> None:
        rows = [suggestion(each, "default", "ada", NOW + each) for each in numbers]
        await store._driver.session(db).execute_many(suggestions.ADD, rows)

    await store._driver.write(write)


def _statements() -> list[tuple[str, Any, list[object], int]]:
    """Return the statements with arguments, and the most rows that each may visit."""
    listed = [
        (f"{kind} {only}", *list_statement(kind, only), 300) for only in _FILTERS for kind in INBOX_KINDS
    ]
    count: list[tuple[str, Any, list[object], int]] = [
        ("count", count_statement(of_agent=False), ["default", COUNTED], 8 * COUNTED),
        ("count of agent", count_statement(of_agent=True), ["default", COUNTED, "ada"], 8 * COUNTED),
    ]
    return [*listed, *count]


async def test_sqlite_reads_the_indexes_in_order(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("PRAGMA synchronous = OFF")
    await _fill(store)
    db.executescript(_LITE_RUNS)
    wrong = {}
    for name, statement, given, _ in _statements():
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", given)]
        if any(re.match(r"SCAN [rjsiv]\b", step) or "TEMP B-TREE" in step for step in plan):
            wrong[name] = plan
    listing, args = list_runs(RunFilter("default", states=("verifying",)))
    listed = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {translate(listing)}", args)]
    assert (await store.inbox_counts("default")) == dict.fromkeys(INBOX_KINDS, COUNTED)
    assert len(await store.inbox(InboxFilter("default", limit=200))) == 200
    await store.close()
    assert wrong == {}
    assert not any(re.match(r"SCAN (runs|verifications|r|w)\b", step) for step in listed), listed


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    await _fill(store)
    beyond = {}
    async with store._pool._acquire() as db:
        await db.execute(_GREAT_RUNS)
        await db.execute("ANALYZE")
        for name, statement, given, most in _statements():
            rows, scanned = await visited(db, statement, *given)
            if rows > most or {"runs", "jobs", "suggestions", "job_incidents", "verifications"} & set(
                scanned
            ):
                beyond[name] = rows, scanned
    assert (await store.inbox_counts("default")) == dict.fromkeys(INBOX_KINDS, COUNTED)
    await store.close()
    assert beyond == {}
