"""Workspaces, agents, keys and workflows: columns, updates, deletion and concurrent changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, NOW, asleep, given_held, job
from wakeful.errors import AlreadyExists, FailedPrecondition
from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, WorkflowRow

# --- workspaces -----------------------------------------------------------------------------------------


async def test_a_new_database_has_the_default_workspace_and_agent(store: Store) -> None:
    (workspace,) = await store.workspaces()
    assert (workspace.name, workspace.tz, workspace.description) == ("default", None, "")
    assert workspace.created_ms == workspace.updated_ms > 1_700_000_000_000
    (agent,) = await store.agents("default")
    assert agent[:9] == ("default", "default", None, None, True, None, None, "", 1)
    assert await store.agent("default", "default") == agent


async def test_replacing_a_workspace_keeps_its_creation_time(store: Store) -> None:
    acme = WorkspaceRow("acme", "Europe/Berlin", "Häßlich 🦉", NOW, NOW)
    await store.put_workspace(acme)
    assert await store.workspace("acme") == acme
    await store.put_workspace(WorkspaceRow("acme", None, "later", NOW + 5, NOW + 5))
    assert await store.workspace("acme") == WorkspaceRow("acme", None, "later", NOW, NOW + 5)
    assert [row.name for row in await store.workspaces()] == ["acme", "default"]
    assert await store.workspace("nope") is None


# --- agents ---------------------------------------------------------------------------------------------


def agent(name: str = "scribe", workspace: str = "default") -> AgentRow:
    return AgentRow(
        workspace, name, '{"kind":"pull"}', "Asia/Tokyo", False, "slack", "#ops", "writes", 0, NOW, NOW
    )


async def test_an_agent_keeps_every_column_and_counts_its_versions(store: Store) -> None:
    made = await store.put_agent("default", "scribe", lambda old: agent() if old is None else None)
    assert made == agent()._replace(version=1)
    assert await store.agent("default", "scribe") == made

    def change(old: AgentRow | None) -> AgentRow:
        assert old == made
        return AgentRow("else", "other", None, None, True, None, None, "", 77, NOW + 9, NOW + 8)

    changed = await store.put_agent("default", "scribe", change)
    assert changed == AgentRow("default", "scribe", None, None, True, None, None, "", 2, NOW, NOW + 8)
    assert await store.agent("default", "scribe") == changed
    assert await store.agent("else", "other") is None


async def test_put_agent_without_a_change_keeps_the_agent(store: Store) -> None:
    assert await store.put_agent("default", "nobody", lambda old: None) is None
    assert await store.agent("default", "nobody") is None
    made = await store.put_agent("default", "scribe", lambda old: agent())
    assert await store.put_agent("default", "scribe", lambda old: None) == made


async def test_an_exception_in_the_change_leaves_the_agent_unchanged(store: Store) -> None:
    def refuse(old: AgentRow | None) -> AgentRow:
        raise FailedPrecondition("no")

    with pytest.raises(FailedPrecondition):
        await store.put_agent("default", "scribe", refuse)
    assert await store.agent("default", "scribe") is None


async def test_concurrent_changes_to_one_agent_are_all_applied(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]

    def add_one(old: AgentRow | None) -> AgentRow:
        return agent()._replace(description=str(int(old.description) + 1) if old else "1")

    await asyncio.gather(*(store.put_agent("default", "scribe", add_one) for store in stores * 10))
    found = await stores[0].agent("default", "scribe")
    assert found is not None
    assert (found.description, found.version) == ("30", 30)


async def test_agents_of_a_workspace_are_listed_by_name(store: Store) -> None:
    for name, workspace in (("b", "acme"), ("a-b", "acme"), ("ab", "acme"), ("c", "other")):
        await store.put_agent(workspace, name, lambda old, n=name: agent(n))  # type: ignore[misc]
    assert [row.name for row in await store.agents("acme")] == ["a-b", "ab", "b"]
    assert await store.agents("nope") == []


async def test_an_agent_is_created_with_its_first_job(store: Store, database: Database) -> None:
    database.clock.ms = NOW + 7
    await store.create_jobs([job("a", agent="scribe"), job("b", agent="scribe"), job(workspace="acme")])
    made = await store.agent("default", "scribe")
    assert made == AgentRow("default", "scribe", None, None, True, None, None, "", 1, NOW + 7, NOW + 7)
    assert [row.name for row in await store.agents("acme")] == ["default"]
    assert await store.workspace("acme") is None
    changed = await store.put_agent("default", "scribe", lambda old: agent())
    await store.create_jobs([job("c", agent="scribe")])
    assert await store.agent("default", "scribe") == changed


async def test_an_agent_is_not_created_with_rejected_jobs(store: Store) -> None:
    await store.create_jobs([job()])
    with pytest.raises(AlreadyExists):
        await store.create_jobs([job("new", agent="scribe"), job()])
    assert await store.agent("default", "scribe") is None


async def test_an_agent_is_created_with_a_job_that_moves_to_it(store: Store) -> None:
    row = asleep()
    await store.create_jobs([row])

    def move(old: JobRow) -> JobChange:
        return JobChange(old._replace(agent="scribe"))

    assert await store.change_job(row.id, move) is not None
    assert await store.agent("default", "scribe") is not None


async def test_deleting_an_agent_with_jobs_fails_with_their_number(store: Store) -> None:
    rows = [job("a", agent="scribe"), job("b", agent="scribe")]
    await store.create_jobs(rows)
    with pytest.raises(FailedPrecondition, match="agent 'scribe' has 2 jobs: delete them first"):
        await store.delete_agent("default", "scribe")
    assert await store.agent("default", "scribe") is not None
    await store.delete_job(rows[0].id, NOW, "gone")
    with pytest.raises(FailedPrecondition, match="has 1 job:"):
        await store.delete_agent("default", "scribe")
    await store.delete_job(rows[1].id, NOW, "gone")
    assert await store.delete_agent("default", "scribe") is True
    assert await store.agent("default", "scribe") is None
    assert await store.delete_agent("default", "scribe") is False


async def test_an_agent_with_only_runs_of_deleted_jobs_can_be_deleted(store: Store) -> None:
    row, _ = await given_held(store)
    await store.delete_job(row.id, NOW, "gone")
    assert await store.delete_agent("default", "default") is True


async def test_an_agent_deleted_while_its_jobs_are_created_still_exists(database: Database) -> None:
    """Whichever commits first, every job has its agent afterwards."""
    one, other = [await database.connect() for _ in range(2)]

    async def delete(number: int) -> None:
        with suppress(FailedPrecondition):
            await other.delete_agent("default", f"agent-{number % 5}")

    for number in range(5):
        await one.put_agent("default", f"agent-{number}", lambda old: agent())
    await asyncio.gather(
        *(delete(number) for number in range(20)),
        *(one.create_jobs([asleep(f"job-{n}", agent=f"agent-{n % 5}")]) for n in range(20)),
        *(delete(number) for number in range(20)),
    )
    assert {f"agent-{number}" for number in range(5)} <= {row.name for row in await one.agents("default")}


# --- keys -----------------------------------------------------------------------------------------------


def key(key_id: str = "k1", workspace: str | None = "default", created: int = NOW) -> KeyRow:
    return KeyRow(
        key_id, workspace, "laptop", "agent", "scribe", b"\x00hash of " + key_id.encode(), created,
        "key:k0", NOW + DAY, None, None,
    )  # fmt: skip


async def test_a_key_is_found_by_its_hash_with_every_column(store: Store) -> None:
    whole = key()._replace(last_used_ms=NOW + 1, revoked_ms=NOW + 2)
    bare = key("k2", None)._replace(agent=None, expires_ms=None)
    await store.add_key(whole)
    await store.add_key(bare)
    assert await store.key_by_hash(whole.hash) == whole
    assert await store.key_by_hash(bare.hash) == bare
    assert await store.key_by_hash(b"other") is None


async def test_a_duplicate_key_id_or_hash_is_rejected(store: Store) -> None:
    await store.add_key(key())
    with pytest.raises(AlreadyExists, match="'k1'"):
        await store.add_key(key()._replace(hash=b"other"))
    with pytest.raises(AlreadyExists, match="'k2'"):
        await store.add_key(key("k2")._replace(hash=key().hash))
    assert await store.keys(None) == [key()]


async def test_keys_are_listed_oldest_first_for_a_workspace_or_all(store: Store) -> None:
    for row in (key("c", "acme", NOW), key("a", "acme", NOW + 5), key("b", "acme", NOW), key("d", None, 5)):
        await store.add_key(row)
    await store.add_key(key("e", "other", 7))
    assert [row.id for row in await store.keys("acme")] == ["b", "c", "a"]
    assert [row.id for row in await store.keys(None)] == ["d", "e", "b", "c", "a"]
    assert await store.keys("nope") == []


async def test_a_key_is_revoked_once(store: Store) -> None:
    await store.add_key(key())
    assert await store.revoke_key("k1", NOW + 3) is True
    assert await store.revoke_key("k1", NOW + 4) is False
    assert await store.revoke_key("nope", NOW) is False
    assert await store.keys("default") == [key()._replace(revoked_ms=NOW + 3)]


async def test_the_last_use_of_a_key_never_decreases(store: Store) -> None:
    await store.add_key(key())
    await store.add_key(key("k2"))
    await store.touch_keys([("k1", NOW + 5), ("k1", NOW + 9), ("k1", NOW + 7), ("gone", NOW)])
    await store.touch_keys([("k1", NOW + 8), ("k2", NOW)])
    await store.touch_keys([])
    assert {row.id: row.last_used_ms for row in await store.keys("default")} == {"k1": NOW + 9, "k2": NOW}


# --- workflows ------------------------------------------------------------------------------------------


async def test_a_version_of_a_workflow_never_changes(store: Store) -> None:
    row = WorkflowRow("default", "etl", 1, '{"nodes":["häßlich"]}', NOW)
    assert await store.put_workflow(row) is True
    assert await store.put_workflow(row._replace(created_ms=NOW + 1)) is False
    with pytest.raises(AlreadyExists, match="workflow 'etl' has a version 1 already"):
        await store.put_workflow(row._replace(dag="{}"))
    assert await store.workflow("default", "etl", 1) == row
    for other in (row._replace(version=2), row._replace(workspace="acme"), row._replace(id="elt")):
        assert await store.workflow(*other[:3]) is None
        assert await store.put_workflow(other._replace(dag="{}")) is True
    assert await store.workflow("default", "etl", 1) == row


async def test_keys_for_all_workspaces_are_listed_apart(store: Store) -> None:
    def key(name: str, workspace: str | None, created_ms: int) -> KeyRow:
        hashed = name.encode()
        return KeyRow(name, workspace, name, "admin", None, hashed, created_ms, "python", None, None, None)

    for row in (key("b", None, NOW + 1), key("a", None, NOW), key("c", "default", NOW)):
        await store.add_key(row)
    assert [row.id for row in await store.global_keys()] == ["a", "b"]
    assert [row.id for row in await store.keys("default")] == ["c"]
