"""Trigger URLs: replacement, expiry, deletion of their job, and what their statements visit."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, NOW, FalseClock, alone, asked, asleep, ended, given_held
from tests.support.query_plans import visited
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.usage import Spent, utc_day
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunFilter
from wakeful.store.sql import hooks
from wakeful.store.sql.driver import Statement
from wakeful.store.sql.hooks import HookRow
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.values.ids import new_id
from wakeful.values.json_value import compact

COUNT = 20_000


def _hook(token: str, job: JobRow, now_ms: int = NOW) -> HookRow:
    return HookRow(hashlib.sha256(token.encode()).digest(), job.id, now_ms, "admin:key:1")


def _entry(replaced: HookRow | None) -> list[AuditEntry]:
    details = compact({"replaced": replaced.id}) if replaced else "{}"
    return [AuditEntry("default", "key:1", "hook", "default/a", details, None)]


async def _replace(store: Store, hook: HookRow) -> HookRow | None:
    found, replaced = await store.replace_hook(hook, hook.created_ms + DAY, _entry)
    assert found
    return replaced


async def _find(store: Store, hash: bytes) -> HookRow | None:
    found = await store.hook(hash)
    if found is None:
        return None
    row, job = found
    assert job == await store.job_by_id(row.job_id)
    return row


async def test_a_new_url_keeps_the_one_before_it_for_a_day(store: Store, clock: FalseClock) -> None:
    job = asleep()
    await store.create_jobs([job])
    first, second, third = _hook("1", job), _hook("2", job, NOW + 1), _hook("3", job, NOW + 2)
    assert await _replace(store, first) is None
    assert await _find(store, first.hash) == first
    assert await _replace(store, second) == first
    old = first._replace(expires_ms=NOW + 1 + DAY)
    assert await store.hooks_of_job(job.id) == [second, old]
    assert await _find(store, first.hash) == old
    # Of several old ones only the last works.
    assert await _replace(store, third) == second
    assert await store.hook(first.hash) is None
    assert await store.hooks_of_job(job.id) == [third, second._replace(expires_ms=NOW + 2 + DAY)]
    clock.ms += DAY + 2
    assert await store.hook(second.hash) is None
    assert await store.hooks_of_job(job.id) == [third]
    assert [row.details for row in await store.audit("default")] == [
        "{}",
        compact({"replaced": first.id}),
        compact({"replaced": second.id}),
    ]


async def test_deleting_removes_all_urls_of_the_job_and_no_others(store: Store) -> None:
    job, other = asleep(), asleep("other")
    await store.create_jobs([job, other])
    kept = _hook("other", other)
    await _replace(store, kept)
    await _replace(store, _hook("1", job))
    await _replace(store, _hook("2", job))
    assert await store.delete_hooks(job.id, _entry(None))
    assert await store.hooks_of_job(job.id) == []
    assert await store.hook(_hook("1", job).hash) is None
    assert await _find(store, kept.hash) == kept
    before = len(await store.audit("default"))
    assert not await store.delete_hooks(job.id, _entry(None))
    assert len(await store.audit("default")) == before


async def test_the_url_of_a_deleted_job_does_not_work_and_is_pruned(store: Store, clock: FalseClock) -> None:
    job, other = asleep(), asleep("other")
    await store.create_jobs([job, other])
    await _replace(store, _hook("1", job))
    await _replace(store, _hook("2", other))
    await _replace(store, _hook("3", other))
    await store.delete_job(job.id, NOW, "deleted")
    assert await store.hook(_hook("1", job).hash) is None
    assert await store.replace_hook(_hook("4", job), NOW, _entry) == (False, None)
    assert not await store.delete_hooks(job.id)
    assert await store.prune_hooks(NOW) == 1
    clock.ms += DAY
    assert await store.prune_hooks(NOW + DAY) == 1
    assert [each.hash for each in await store.hooks_of_job(other.id)] == [_hook("3", other).hash]
    assert await store.hooks_of_job("no id") == []


async def test_concurrent_replacements_leave_one_present_url(database: Database) -> None:
    one, two = await database.connect(), await database.connect()
    job = asleep()
    await one.create_jobs([job])
    rows = [_hook(str(number), job, NOW + number) for number in range(8)]
    await asyncio.gather(
        *(
            (one if number % 2 else two).replace_hook(row, NOW + DAY, _entry)
            for number, row in enumerate(rows)
        )
    )
    found = await one.hooks_of_job(job.id)
    assert [each.expires_ms for each in found] == [None, NOW + DAY]
    assert len(await one.audit("default")) == len(rows)


def _cases() -> list[tuple[str, Statement, list[object], int]]:
    """Return statements with arguments, and the most rows that each may visit."""
    return [
        ("HOOK", hooks.HOOK, [_hash(5), NOW], 5),
        ("HOOKS_OF_JOB", hooks.HOOKS_OF_JOB, [_job(5), NOW], 10),
        ("LOCK_JOB", hooks.LOCK_JOB, [_job(5)], 5),
        ("DELETE_OLD", hooks.DELETE_OLD, [_job(5)], 10),
        ("EXPIRE", hooks.EXPIRE, [_job(6), NOW], 10),
        ("ADD_HOOK", hooks.ADD_HOOK, [_hash(COUNT), _job(7), NOW, "admin:a", None], 5),
        ("DELETE_HOOKS", hooks.DELETE_HOOKS, [_job(8)], 10),
        ("PRUNE", hooks.PRUNE, [NOW], 10 * COUNT),
    ]


def _hash(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def _job(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def _rows() -> list[tuple[object, ...]]:
    return [
        (_hash(number), _job(number // 2), NOW, "admin:a", NOW if number % 2 else None)
        for number in range(COUNT)
    ]


def test_every_statement_has_a_case() -> None:
    named = {
        name
        for name, text in vars(hooks).items()
        if name.isupper()
        and name[0] != "_"
        and (
            (isinstance(text, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", text))
            or name == "HOOK"
        )
    }
    assert named == {name for name, *_ in _cases()}


async def test_sqlite_scans_no_table_except_to_prune(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    db.execute("BEGIN")
    db.executemany(translate(hooks.ADD_HOOK), _rows())
    db.execute("COMMIT")
    db.execute("ANALYZE")
    scans = {
        name
        for name, statement, given, _ in _cases()
        for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", given)
        if step[3].startswith("SCAN")
    }
    await store.close()
    assert scans == {"PRUNE"}


async def test_postgres_visits_few_rows() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    beyond = {}
    async with store._pool._acquire() as db:
        await db.executemany(hooks.ADD_HOOK, _rows(), timeout=120)
        await db.execute("ANALYZE")
        for name, statement, given, most in _cases():
            rows, scanned = await visited(db, statement, *given)
            if rows > most or ("hooks" in scanned and name != "PRUNE"):
                beyond[name] = rows, scanned
    await store.close()
    assert beyond == {}


async def test_a_job_is_read_with_its_hook_its_spending_and_its_runs(store: Store, clock: FalseClock) -> None:
    row, run = await given_held(store)
    id_like = asleep(new_id(NOW), agent="other")  # its name has the form of an id
    after = asleep("report", after_job=row.name)
    alone_now = asleep("lonely", after_job="nobody")
    await store.create_jobs([id_like, after, alone_now])
    for job in (row.name, row.id):
        found = await store.job_with_runs(row.workspace, row.agent, job, 5)
        assert found is not None
        assert (found.has_hook, found.precheck_state, found.spent) == (False, None, Spent())
        assert found.runs == [await store.run(run.id)]
    await _replace(store, _hook("1", row))
    await store.finish("w1", [ended(run, usage='{"tokens":100,"cost":0.5}')], alone)
    await store.add_runs([asked(row, NOW + n) for n in range(1, 8)])
    for job in (row.name, row.id):
        found = await store.job_with_runs(row.workspace, row.agent, job, 5)
        assert found is not None
        assert (found.has_hook, found.spent) == (True, await store.read_spent(_owner(row), utc_day(NOW)))
        assert found.spent != Spent()
        newest = RunFilter(row.workspace, row.agent, row.id, limit=5)
        assert found.runs == await store.runs(newest)
        assert found.job == await store.job_by_id(row.id)
    clock.ms += DAY
    found = await store.job_with_runs(row.workspace, row.agent, row.id, 1)
    assert found is not None
    assert (found.spent, len(found.runs)) == (Spent(), 1)
    has_upstream = [
        found.has_upstream
        for each in (row, after, alone_now)
        if (found := await store.job_with_runs(each.workspace, each.agent, each.name, 1)) is not None
    ]
    assert has_upstream == [True, True, False]
    named = await store.job_with_runs("default", "other", id_like.name, 1)
    assert named is not None
    assert (named.job.id, named.runs) == (id_like.id, [])
    for where in (("default", "other", row.id), ("other", "default", row.id), ("default", "default", "none")):
        assert await store.job_with_runs(*where, 1) is None
    await store.delete_job(row.id, clock.ms, "deleted")
    assert await store.job_with_runs(row.workspace, row.agent, row.name, 1) is None
    assert await store.job_with_runs(row.workspace, row.agent, row.id, 1) is None


def _owner(job: JobRow) -> BudgetOwner:
    return BudgetOwner(job.workspace, job.agent, job.id)
