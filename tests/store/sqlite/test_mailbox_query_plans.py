"""With 100,000 instances that wait for a delayed signal, no call visits more rows than it needs.

One test, so that the big database is created once, by one process. Measured by query plans and by the
virtual machine steps of each call, not by time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.support.factories import DAY, MINUTE, NOW, FalseClock, alone
from tests.support.instances import HAS_REPORT, LANES, MAILBOX, agent_class, arrival, done, key_of, taken
from wakeful.store.instances import InstanceChange, InstanceFilter
from wakeful.store.rows import RunFilter
from wakeful.store.sql import erasure
from wakeful.store.sql import instances as shared
from wakeful.store.sqlite import SqliteStore, instances, mailbox, signal_outcomes
from wakeful.store.sqlite.session import translate

INSTANCES = 100_000
TABLES = "jobs|runs|instances|agent_classes|signal_ids|quotas"
STEP = 100


def _load(db: sqlite3.Connection) -> None:
    """Add instances, each with a signal that is due in a day and ten that are over."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {INSTANCES})"
    db.create_function("own", 1, lambda number: key_of(f"n{number:06d}"))
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    db.execute(
        f"""{numbers}
        INSERT INTO instances (id, workspace, agent, name, status, sequence, schedules_hash, created_at,
            updated_at)
        SELECT own(i), 'default', 'report', printf('n%06d', i), 'active', 1, 'm', {NOW}, {NOW}
        FROM n"""
    )
    for copy, state, due in ((0, "pending", f"{NOW + DAY} + i"), (1, "succeeded", "NULL")):
        db.execute(
            f"""{numbers}
            INSERT INTO runs (id, workspace, agent, scheduled_at, fire_at, trigger, state, covers, attempt,
                lane, serial, due_at, finished_at, idempotency_key, payload, created_at, requires,
                instance_id, instance, signal, sequence)
            SELECT printf('r{copy}%06d', i), 'default', 'report', {NOW + DAY} + i, {NOW + DAY} + i, 'signal',
                '{state}', 1, 1, 'team', 0, {due}, iif('{state}' = 'pending', NULL, {NOW}), 'key', '{{}}',
                {NOW}, 'agent:default/report', own(i), printf('n%06d', i), 'x', {copy} FROM n"""
        )
    db.execute(
        f"""{numbers} INSERT INTO signal_ids
        SELECT own(i), '/tests', 'a', 'r', {NOW + DAY} FROM n"""
    )
    db.execute("COMMIT")
    db.execute("PRAGMA analysis_limit = 1000")
    db.execute("ANALYZE")


def _all_statements() -> dict[str, str]:
    named = {
        f"{module.__name__}.{name}": translate(text) if module in (shared, erasure) else text
        for module in (shared, erasure, instances, mailbox, signal_outcomes)
        for name, text in vars(module).items()
        if isinstance(text, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
    }
    for agent in (None, "a"):
        for after in (None, ("a", "b")):
            only = InstanceFilter("w", agent, None, after)
            named[str(only)] = translate(shared.list_statement(only, NOW)[0])
    return named


def _scans(db: sqlite3.Connection, statement: str) -> list[str]:
    """Return the steps of the plan that scan a table or an index."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    given = [None] * (max(numbered) if numbered else statement.count("?"))
    steps = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {statement}", given)]
    return [
        step
        for step in steps
        if re.match(rf"SCAN ({TABLES}|[a-z])\b", step)
        and not re.search("VIRTUAL TABLE|instances_deleting", step)  # a list argument; few rows
    ]


async def test_no_statement_scans_a_table_and_no_call_exceeds_its_step_budget(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    _load(db)
    named = _all_statements()
    assert len(named) > 30
    assert {name: found for name, text in named.items() if (found := _scans(db, text))} == {}

    steps = 0

    def count() -> None:
        nonlocal steps
        steps += STEP

    async def cost(call: Callable[[], object]) -> int:
        nonlocal steps
        steps = 0
        await call()  # type: ignore[misc]
        return steps

    await store.put_class(agent_class(hash="m"), NOW)
    # A full mailbox, and a hundred instances that have something to do now.
    await store.send([arrival("full") for _ in range(999)], MAILBOX)
    await store.send([arrival(f"x{number}") for number in range(99)], MAILBOX)
    running = await taken(store)
    assert len(running) == 100
    db.set_progress_handler(count, STEP)
    many = [arrival(f"n{number:06d}", signal_id="b") for number in range(1_000)]

    def pause(row: object, schedules: object) -> InstanceChange:
        return InstanceChange(row._replace(status="paused"))  # type: ignore[attr-defined]

    budget = {
        "take": (lambda: store.take(NOW, "w1", LANES, HAS_REPORT), 2 * STEP),
        "next_due": (lambda: store.next_due_ms(NOW, list(LANES), HAS_REPORT), 2 * STEP),
        "finish": (lambda: store.finish("w1", [done(run, data="{}") for run in running], alone), 41_000),
        "send": (lambda: store.send([arrival("n000007", signal_id="c")], MAILBOX), 5 * STEP),
        "send to a full mailbox": (lambda: store.send([arrival("full")], MAILBOX), 100 * STEP),
        "send a thousand": (lambda: store.send(many, MAILBOX), 600_000),
        "change": (lambda: store.change_instance("default", "report", "n000009", NOW, pause), 10 * STEP),
        "instance": (lambda: store.instance("default", "report", "n000009"), 2 * STEP),
        "instances": (lambda: store.instances(InstanceFilter("default", limit=50)), 100 * STEP),
        "runs": (lambda: store.runs(RunFilter("default", instance_id=key_of("n000007"))), 3 * STEP),
        "schedules": (lambda: store.schedules(key_of()), STEP),
        "stale": (lambda: store.stale_instances(agent_class(hash="m"), 50), 10 * STEP),
        "hibernated": (lambda: store.record_hibernation([key_of("n000007")], NOW), STEP),
        "prune": (lambda: store.prune_signal_ids(NOW + MINUTE, 100), STEP),
    }
    costs = {name: (await cost(call), most) for name, (call, most) in budget.items()}
    assert {name: spent for name, (spent, most) in costs.items() if spent > most} == {}
    await store.close()
