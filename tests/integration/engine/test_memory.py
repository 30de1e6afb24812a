"""Caches are bounded in bytes, and a dry run leaves nothing in them."""

from __future__ import annotations

import gc
from typing import Any

from tests.integration.conftest import NewApp, on_one_store
from tests.support.effort import cases
from wakeful.service.auth.access import LOCAL
from wakeful.values.bounded_cache import BoundedCache


def document(number: int) -> dict[str, Any]:
    """Return a job document that is unique to this number."""
    return {
        "name": f"job-{number}",
        "schedule": f"{number % 60} {number // 60} * * *",
        "exclude": [f"2027-01-{number % 28 + 1:02}"],
        "target": {"kind": "webhook", "url": f"https://example.com/{number}"},
        "message": f"{number}" * 5_000,
        "maxAttempts": number % 90 + 1,
    }


def live_caches() -> list[BoundedCache[Any, Any]]:
    """Return all caches of this process; the references keep them from being collected."""
    return [each for each in gc.get_objects() if isinstance(each, BoundedCache)]


@on_one_store
async def test_a_dry_run_leaves_nothing_in_the_caches(new_app: NewApp):
    app = new_app()
    await app.store.open()  # without an engine, whose loops have caches too
    jobs = app.services.jobs
    await jobs.create(LOCAL, "default", "default", document(0))
    await jobs.upsert(LOCAL, "default", "default", document(0), dry_run=True)
    caches = live_caches()
    before = [len(each) for each in caches]
    for number in range(1, cases(30, 30)):
        await jobs.upsert(LOCAL, "default", "default", document(number), dry_run=True)
        await jobs.create(LOCAL, "default", "default", document(number), dry_run=True)
        changed = {**document(number), "name": "job-0"}
        await jobs.upsert(LOCAL, "default", "default", changed, dry_run=True)
    assert [len(each) for each in caches] == before
    await jobs.create(LOCAL, "default", "default", document(30))
    assert [len(each) for each in caches] != before
    await app.store.close()
