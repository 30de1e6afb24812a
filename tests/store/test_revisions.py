"""Revisions of jobs in every store: written with the change, limited, deleted with the job."""

from __future__ import annotations

import pytest

from tests.support.factories import DAY, NOW, alone, asked, ended, given_held, given_job, held
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import MAX_REVISIONS, JobChange, JobRow, NewRevision, RevisionRow

FIRST = NewRevision('{"name":"digest","tz":"UTC"}', '["tz"]', "admin:key:1")


async def edit(store: Store, job: JobRow, description: str, revision: NewRevision | None = FIRST) -> JobRow:
    def change(row: JobRow) -> JobChange:
        return JobChange(
            row._replace(description=description, updated_ms=NOW + row.version), revision=revision
        )

    changed = await store.change_job(job.id, change)
    assert changed is not None
    return changed


async def test_a_change_leaves_the_job_before_it(store: Store) -> None:
    digest = await given_job(store)
    assert await store.revisions(digest.id) == []
    changed = await edit(store, digest, "new")
    assert await store.revisions(digest.id) == [
        RevisionRow(digest.version, FIRST.document, FIRST.fields, changed.updated_ms, FIRST.by)
    ]


async def test_a_change_without_a_revision_adds_none(store: Store) -> None:
    digest = await given_job(store)
    await edit(store, digest, "new", None)
    await store.change_job(digest.id, lambda row: None)
    assert await store.revisions(digest.id) == []


async def test_the_newest_revision_is_first(store: Store) -> None:
    digest = await given_job(store)
    for number in range(3):
        await edit(store, digest, str(number), FIRST._replace(by=f"admin:key:{number}"))
    assert [row.replaced_by for row in await store.revisions(digest.id)] == [
        "admin:key:2",
        "admin:key:1",
        "admin:key:0",
    ]


async def test_only_the_newest_revisions_are_kept(store: Store) -> None:
    digest, other = await given_job(store), await given_job(store, "other")
    await edit(store, other, "new")
    for number in range(MAX_REVISIONS + 3):
        await edit(store, digest, str(number))
    kept = await store.revisions(digest.id)
    assert len(kept) == MAX_REVISIONS
    newest = digest.version + MAX_REVISIONS + 2
    assert [row.version for row in kept] == list(range(newest, newest - MAX_REVISIONS, -1))
    assert len(await store.revisions(other.id)) == 1


async def test_a_change_that_is_rolled_back_leaves_no_revision(store: Store) -> None:
    digest, _ = await given_job(store), await given_job(store, "other")

    def renamed(row: JobRow) -> JobChange:
        return JobChange(row._replace(name="other"), revision=FIRST)

    entry = AuditEntry("default", "key:1", "job.update", "default/digest", "{}", None)
    with pytest.raises(Exception, match="already has a job"):
        await store.change_job(digest.id, renamed, [entry])
    assert await store.revisions(digest.id) == []


async def test_revisions_go_with_a_deleted_job_that_has_no_runs(store: Store) -> None:
    digest, other = await given_job(store), await given_job(store, "other")
    await edit(store, digest, "new")
    await edit(store, other, "new")
    await store.delete_job(digest.id, NOW, "no longer wanted")
    assert await store.revisions(digest.id) == []
    assert len(await store.revisions(other.id)) == 1


async def test_revisions_go_with_the_last_run_of_a_deleted_job(store: Store) -> None:
    digest, run = await given_held(store)
    later = held(asked(digest))
    await store.add_runs([later])
    await edit(store, digest, "new")
    await store.delete_job(digest.id, NOW, "no longer wanted")
    await store.finish("w1", [ended(run)], alone)
    await store.prune(NOW + DAY, 100)
    assert len(await store.revisions(digest.id)) == 1
    await store.finish("w1", [ended(later)], alone)
    await store.prune(NOW + DAY, 100)
    assert await store.revisions(digest.id) == []


async def test_an_unknown_job_has_no_revisions(store: Store) -> None:
    assert await store.revisions("nothing") == []
    assert await store.revisions("01900000-0000-7000-8000-000000000000") == []
