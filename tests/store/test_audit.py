"""The audit: a gapless hash chain, written in the transaction of the operation it records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    NOW,
    alone,
    asked,
    asleep,
    ended,
    given_held,
    given_job,
    held,
    job,
    look,
    tick,
)
from wakeful.errors import AlreadyExists, FailedPrecondition, ResourceExhausted
from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditEntry, AuditFilter, AuditRow, flaw
from wakeful.store.port import Store
from wakeful.store.quotas import CREATE_JOB, Allowance
from wakeful.store.rows import JobChange, JobRow, WorkflowRow


def entry(action: str = "job.create", workspace: str = "default", **fields: object) -> AuditEntry:
    whole = AuditEntry(workspace, "key:1", action, "default/digest", '{"a":1}', "192.0.2.1")
    return whole._replace(**fields)  # type: ignore[arg-type]


async def append(store: Store, entries: Sequence[AuditEntry]) -> None:
    """Append entries with an operation that always records its entries."""
    await store.set_quota("default", "", CREATE_JOB, 1_000, entries)


async def chain(store: Store, workspace: str = "default") -> list[AuditRow]:
    """Return the whole chain, verified."""
    rows = await store.audit(workspace, limit=10_000)
    assert flaw(rows, 0, "") is None
    return rows


async def actions(store: Store, workspace: str = "default") -> list[str]:
    return [row.action for row in await chain(store, workspace)]


# --- the chain ------------------------------------------------------------------------------------------


async def test_an_entry_keeps_every_field_and_is_dated_by_the_store(store: Store, database: Database) -> None:
    database.clock.ms = NOW + 7
    said = entry(subject="häßlich 🦉 ' \" --", details=json.dumps({"x": "\x00"}), address=None)
    await append(store, [said])
    (row,) = await chain(store)
    assert row[:9] == ("default", 1, NOW + 7, *said[1:5], None, "")
    await append(store, [entry("b"), entry("c")])
    assert [(row.seq, row.before) for row in (await chain(store))[1:]] == [
        (2, row.hash),
        (3, (await chain(store))[1].hash),
    ]


async def test_text_that_cannot_be_stored_is_replaced(store: Store) -> None:
    await append(store, [entry(actor="jwt:\x00", subject="\ud800")])
    (row,) = await chain(store)
    assert (row.actor, row.subject) == ("jwt:\ufffd", "\ufffd")


async def test_every_workspace_has_a_chain_of_its_own(store: Store) -> None:
    await append(store, [entry("a", "one"), entry("b", "two"), entry("c", "one")])
    await append(store, [entry("d", "two")])
    assert [(row.seq, row.action) for row in await chain(store, "one")] == [(1, "a"), (2, "c")]
    assert [(row.seq, row.action) for row in await chain(store, "two")] == [(1, "b"), (2, "d")]
    assert await chain(store, "three") == []


async def test_appending_no_entries_is_a_no_op(store: Store) -> None:
    await append(store, [])
    assert await chain(store) == []


async def test_the_audit_is_read_in_pages_from_either_end(store: Store) -> None:
    await append(store, [entry(str(number)) for number in range(1, 8)])

    async def page(**only: int) -> list[int]:
        return [row.seq for row in await store.audit("default", **only)]

    assert await page() == [1, 2, 3, 4, 5, 6, 7]
    assert await page(limit=2) == [1, 2]
    assert await page(after=2, limit=3) == [3, 4, 5]
    assert await page(after=7) == []
    assert await page(before=2**62, limit=3) == [7, 6, 5]
    assert await page(before=5, limit=2) == [4, 3]
    assert await page(after=2, before=5) == [4, 3]
    assert await page(before=1) == []


async def test_concurrent_entries_form_one_gapless_chain(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]

    async def work(number: int) -> None:
        store = stores[number % 3]
        others = [entry(f"{number}", workspace) for workspace in ("one", "two", "three")]
        # Any order of the workspaces works: they are locked in one order.
        await append(store, others if number % 2 else others[::-1])
        await store.create_jobs([asleep(f"job-{number}")], [entry(f"{number}", "one")])

    await asyncio.gather(*(work(number) for number in range(30)))
    for workspace, times in (("one", 2), ("two", 1), ("three", 1)):
        rows = await chain(stores[0], workspace)
        assert [row.seq for row in rows] == list(range(1, 30 * times + 1))
        assert sorted(row.action for row in rows) == sorted([str(n) for n in range(30)] * times)


@pytest.mark.parametrize(
    ("deed", "found"),
    [
        ("UPDATE audit SET actor = 'key:2' WHERE seq = 2", "entry 2 was changed"),
        ("DELETE FROM audit WHERE seq = 2", "entry 2 is missing"),
        ("UPDATE audit SET seq = 9 WHERE seq = 3", "entry 3 is missing"),
    ],
)
async def test_tampering_with_the_table_is_detected(
    store: Store, database: Database, deed: str, found: str
) -> None:
    await append(store, [entry(str(number)) for number in range(4)])
    await database.execute(deed)
    assert found in (flaw(await store.audit("default"), 0, "") or "")


# --- entries of operations ------------------------------------------------------------------------------


async def test_job_operations_append_their_entries(store: Store) -> None:
    row, other = asleep(), asleep("other")
    await store.create_jobs([row, other], [entry("job.create"), entry("job.create", "acme")])
    await store.change_job(row.id, lambda old: JobChange(old), [entry("job.update")])
    await store.delete_job(row.id, NOW, "gone", [entry("job.delete")])
    assert await actions(store) == ["job.create", "job.update", "job.delete"]
    assert await actions(store, "acme") == ["job.create"]


async def test_an_operation_that_changes_nothing_appends_no_entry(store: Store) -> None:
    row, run = await given_held(store)
    said = [entry("nothing")]
    assert await store.change_job(row.id, lambda old: None, said) == row
    assert await store.change_job(job().id, lambda old: JobChange(old), said) is None
    assert await store.delete_job(job().id, NOW, "gone", said) is False
    assert await store.cancel_run(job().id, NOW, "no", running=True, entries=said) is None
    assert await store.complete_run(ended(run, attempt=2), alone, said) is False
    assert await store.put_agent("default", "default", lambda old: None, said) is not None
    assert await store.delete_agent("default", "nobody", said) is False
    assert await store.revoke_key("nobody", NOW, said) is False
    assert await chain(store) == []


async def test_a_rejected_operation_appends_no_entry(store: Store) -> None:
    row, run = await given_held(store)
    said = [entry("refused")]
    await store.put_workflow(WorkflowRow("default", "etl", 1, "{}", NOW))

    def rename(old: JobRow) -> JobChange:
        return JobChange(old._replace(name="taken"))

    def fail(old: object) -> None:
        raise FailedPrecondition("no")

    await store.create_jobs([asleep("taken")])
    with pytest.raises(AlreadyExists):
        await store.create_jobs([asleep("taken")], said)
    with pytest.raises(ResourceExhausted):
        await store.create_jobs([asleep("new")], said, Allowance(live_per_agent=2))
    with pytest.raises(AlreadyExists):
        await store.change_job(row.id, rename, said)
    with pytest.raises(FailedPrecondition):
        await store.change_job(row.id, fail, said)
    with pytest.raises(AlreadyExists):
        await store.add_runs([asked(row, id=run.id)], said)
    with pytest.raises(FailedPrecondition):
        await store.cancel_run(run.id, NOW, "no", running=False, entries=said)
    with pytest.raises(FailedPrecondition):
        await store.delete_agent("default", "default", said)
    with pytest.raises(FailedPrecondition):
        await store.put_agent("default", "default", fail, said)
    with pytest.raises(AlreadyExists):
        await store.put_workflow(WorkflowRow("default", "etl", 1, "[]", NOW), said)
    assert await store.put_workflow(WorkflowRow("default", "etl", 1, "{}", NOW), said) is False
    assert await chain(store) == []


async def test_run_operations_append_their_entries(store: Store) -> None:
    row = await given_job(store, "digest", lambda due: held(tick(due)), lambda due: tick(due, NOW + 1))
    runs = [asked(row), held(asked(row)), held(asked(row))]
    await store.add_runs(runs, [entry("run.add")])
    await store.cancel_run(runs[0].id, NOW, "no", running=False, entries=[entry("run.cancel")])
    await store.finish("w1", [ended(runs[2], "running", due_ms=NOW + 5)], alone)
    await store.complete_run(ended(runs[2], "failed"), alone, [entry("run.complete")])
    assert (await look(store, runs[2].id)).dead
    replayed = await store.replay_runs(
        "default", [runs[2].id], lambda dead: asked(row), lambda dead: entry("run.replay")
    )
    assert len(replayed) == 1
    await store.cancel_run(runs[1].id, NOW, "no", running=True, entries=[entry("run.stop")])
    assert await actions(store) == ["run.add", "run.cancel", "run.complete", "run.replay", "run.stop"]


async def test_admin_operations_append_their_entries(store: Store) -> None:
    await store.put_workspace(WorkspaceRow("acme", None, "", NOW, NOW), [entry("workspace.put")])
    scribe = AgentRow("default", "scribe", None, None, True, None, None, "", 1, NOW, NOW)
    await store.put_agent("default", "scribe", lambda old: scribe, [entry("agent.put")])
    await store.delete_agent("default", "scribe", [entry("agent.delete")])
    key = KeyRow("k", None, "", "admin", None, b"hash", NOW, "wakeful", None, None, None)
    await store.add_key(key, [entry("key.create")])
    await store.revoke_key("k", NOW, [entry("key.revoke")])
    await store.set_quota("default", "", "scheduler.liveJobs", 5, [entry("quota.set")])
    await store.put_workflow(WorkflowRow("default", "etl", 1, "{}", NOW), [entry("workflow.put")])
    assert await actions(store) == [
        "workspace.put", "agent.put", "agent.delete", "key.create", "key.revoke", "quota.set", "workflow.put",
    ]  # fmt: skip


async def test_an_entry_that_cannot_be_written_rolls_back_the_operation(
    store: Store, database: Database
) -> None:
    await database.execute("DROP TABLE audit")
    with pytest.raises(Exception, match="audit"):
        await store.create_jobs([job("lost", agent="scribe")], [entry()], Allowance())
    assert await store.job("default", "scribe", "lost") is None
    assert await store.agent("default", "scribe") is None
    assert {row.used for row in await store.quotas("default", NOW)} == {0}


# --- filters ------------------------------------------------------------------------------------------------


async def _found(store: Store, *, before: int | None = None, considered: int = 1_000, **only: object) -> str:
    """Return the numbers of the entries that match, newest first, and where the next page begins."""
    found = await store.audit_page(
        "default",
        AuditFilter(**only),  # type: ignore[arg-type]
        before=before,
        limit=2,
        considered=considered,
    )
    return f"{' '.join(str(row.seq) for row in found.rows)} | {found.before}"


async def _filterable(store: Store, database: Database) -> None:
    """Append six entries, one a second."""
    for number, (actor, action, subject) in enumerate(
        [
            ("key:1", "job.create", "a/x"),
            ("key:2", "job.update", "a/x"),
            ("key:1", "jobs", "a/y"),
            ("key:1", "run.stop", "r"),
            ("key:2", "job.delete", "a/x"),
            ("key:1", "job.create", "a/y"),
        ]
    ):
        database.clock.ms = NOW + 1_000 * number
        await append(store, [entry(action, actor=actor, subject=subject)])


async def test_entries_are_filtered_and_paged(store: Store, database: Database) -> None:
    await _filterable(store, database)
    assert await _found(store) == "6 5 | 5"
    assert await _found(store, before=5) == "4 3 | 3"
    assert await _found(store, actor="key:2") == "5 2 | None"
    assert await _found(store, action="job") == "6 5 | 5"
    assert await _found(store, action="job", before=5) == "2 1 | None"
    assert await _found(store, action="job.create") == "6 1 | None"
    assert await _found(store, subject="a/x") == "5 2 | 2"
    assert await _found(store, subject="a/x", before=2) == "1 | None"
    assert await _found(store, subject="a/x", actor="key:1") == "1 | None"
    assert await _found(store, actor="nobody") == " | None"


async def test_entries_are_filtered_by_time(store: Store, database: Database) -> None:
    await _filterable(store, database)
    assert await _found(store, since_ms=NOW + 4_000) == "6 5 | None"
    assert await _found(store, since_ms=NOW + 3_001, until_ms=NOW + 5_000) == "5 | None"
    assert await _found(store, until_ms=NOW + 1_001) == "2 1 | None"
    assert await _found(store, until_ms=NOW) == " | None"
    assert await _found(store, since_ms=NOW + 60_000) == " | None"


async def test_a_page_reads_a_bounded_number_of_entries(store: Store, database: Database) -> None:
    await _filterable(store, database)
    assert await _found(store, action="jobs", considered=2) == " | 5"
    assert await _found(store, action="jobs", considered=2, before=5) == "3 | 3"
    assert await _found(store, action="jobs", considered=2, before=3) == " | None"


async def test_an_entry_alone_is_part_of_the_chain(store: Store) -> None:
    await store.append_audit([entry("channel.test")])
    assert await actions(store) == ["channel.test"]


async def test_an_action_that_changes_nothing_has_an_entry(store: Store):
    await store.append_audit([entry("job.test-target"), entry("job.test-target", subject="default/other")])
    rows = await store.audit("default")
    assert [(row.action, row.subject) for row in rows] == [
        ("job.test-target", "default/digest"),
        ("job.test-target", "default/other"),
    ]
    assert flaw(rows, 0, "") is None
