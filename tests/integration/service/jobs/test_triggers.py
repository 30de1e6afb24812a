"""Jobs that are run again and again: another process changes them between two runs."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, NewApp
from wakeful import NotFound, ResourceExhausted

PULL = {"kind": "pull"}


async def test_a_job_that_another_process_has_changed_runs_as_it_is_now(new_app: NewApp):
    here, there = new_app(), new_app()
    async with here, there:
        await here.jobs.create("digest", schedule=SELDOM, target=PULL, lane="main")
        runs = [await here.jobs.run("digest") for _ in range(2)]
        assert [run.lane for run in runs] == ["main", "main"]

        await there.jobs.update("digest", lane="cron")
        assert (await here.jobs.run("digest")).lane == "cron"

        await there.jobs.update("digest", name="other")
        with pytest.raises(NotFound):
            await here.jobs.run("digest")
        old = await here.jobs.run("other")
        await there.jobs.create("digest", schedule=SELDOM, target=PULL)
        new = await here.jobs.run("digest")
        assert new.job_id != old.job_id

        await there.jobs.delete("digest")
        with pytest.raises(NotFound):
            await here.jobs.run("digest")
        await there.jobs.create("digest", schedule=SELDOM, target=PULL)
        assert (await here.jobs.run("digest")).job_id not in (new.job_id, old.job_id)


async def test_a_cap_that_is_reached_between_two_runs_prevents_the_second(new_app: NewApp):
    here, there = new_app(), new_app()
    async with here, there:
        await here.jobs.create(
            "think", schedule=SELDOM, target=PULL, budget={"tokens_per_day": 100}, overlap_policy="allow"
        )
        await here.jobs.create("free", schedule=SELDOM, target=PULL)
        for _ in range(2):
            await here.jobs.run("think")
            await here.jobs.run("free")
        (claimed,) = [run for run in await there.runs.claim("w", limit=4) if run.job == "think"][:1]
        await there.runs.complete(claimed, "succeeded", usage={"tokens": 100})
        with pytest.raises(ResourceExhausted, match="has used its budget"):
            await here.jobs.run("think")
        assert (await here.jobs.run("free")).job == "free"
