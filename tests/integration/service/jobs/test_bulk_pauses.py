"""Pause and resume several jobs: named ones, or those of an agent or with a label."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.factories import asleep
from wakeful.client import AsyncClient
from wakeful.errors import InvalidArgument
from wakeful.service.jobs import job_query
from wakeful.signal.event_catalog import job_name
from wakeful.store.rows import JobFilter

_OPS = f"{HOME}/agents/ops/jobs"


async def create(ask: ApiClient, path: str, name: str, **fields: object) -> str:
    made = await ask("POST", path, {"name": name, "schedule": SELDOM, **fields})
    assert made.status == 201, made.body
    return str(made.body["id"])


async def some_jobs(ask: ApiClient) -> dict[str, str]:
    """Create default/a and /b, and ops/a, /b and /c; return their ids."""
    ops = {"team": "ops"}
    return {
        "default/a": await create(ask, JOBS, "a", labels=ops),
        "default/b": await create(ask, JOBS, "b"),
        "ops/a": await create(ask, _OPS, "a", labels=ops),
        "ops/b": await create(ask, _OPS, "b", labels={**ops, "urgent": ""}),
        "ops/c": await create(ask, _OPS, "c"),
    }


async def enabled(ask: ApiClient) -> list[str]:
    jobs = (await ask("GET", "/jobs")).body["jobs"]
    return [f"{job['agentId']}/{job['name']}" for job in jobs]


def names(jobs: list[dict[str, object]]) -> list[str]:
    return [f"{job['agentId']}/{job['name']}" for job in jobs]


@pytest.mark.parametrize(
    ("select", "paused"),
    [
        ({"agent": "ops"}, ["ops/a", "ops/b", "ops/c"]),
        ({"label": "team=ops"}, ["default/a", "ops/a", "ops/b"]),
        ({"agent": "ops", "label": ["team=ops", "urgent"]}, ["ops/b"]),
        ({"labels": {"team": "ops"}, "agent": "default"}, ["default/a"]),
        ({"all": True}, ["default/a", "default/b", "ops/a", "ops/b", "ops/c"]),
        ({"jobs": ["ops/c", "default/b"]}, ["ops/c", "default/b"]),
        ({"jobs": ["c"]}, ["ops/c"]),
        ({"jobs": ["b", "c"], "agent": "ops"}, ["ops/b", "ops/c"]),
        ({"label": "nothing"}, []),
    ],
)
async def test_a_selection_is_counted_paused_and_resumed(
    ask: ApiClient, select: dict[str, object], paused: list[str]
):
    await some_jobs(ask)
    before = await enabled(ask)

    counted = (await ask("POST", "/jobs/pause", {**select, "dryRun": True})).body
    assert (counted["dryRun"], counted["count"], names(counted["jobs"])) == (True, len(paused), paused)
    assert await enabled(ask) == before, "a dry run changes nothing"

    done = await ask("POST", "/jobs/pause", {**select, "note": "maintenance"})
    assert (done.status, done.body["count"], done.body["errors"]) == (200, len(paused), [])
    assert names(done.body["jobs"]) == paused
    assert await enabled(ask) == [job for job in before if job not in paused]
    for each in done.body["jobs"]:
        job = (await ask("GET", f"/jobs/{each['id']}")).body
        assert (job["pauseNote"], job["nextAt"], job["revision"]) == ("maintenance", None, 2)

    resumed = (await ask("POST", "/jobs/resume", select)).body
    assert names(resumed["jobs"]) == paused
    assert all(job["nextAt"] for job in resumed["jobs"])
    assert await enabled(ask) == before


async def test_every_job_has_its_audit_entry(ask: ApiClient):
    await some_jobs(ask)
    await ask("POST", "/jobs/pause", {"agent": "ops", "note": "fire drill"})
    await ask("POST", "/jobs/pause", {"agent": "ops", "dryRun": True})
    await ask("POST", "/jobs/pause", {"agent": "ops"})  # they are paused already

    entries = (await ask("GET", "/audit")).body["entries"]
    paused = [entry for entry in entries if entry["action"] == "job.pause"]
    assert sorted(entry["subject"] for entry in paused) == ["ops/a", "ops/b", "ops/c"]
    assert {entry["details"]["note"] for entry in paused} == {"fire drill"}
    assert (await ask("GET", "/audit/verify")).body["flaw"] is None


async def test_a_filter_does_not_touch_the_note_and_the_end_of_a_paused_job(ask: ApiClient):
    await some_jobs(ask)
    await ask("POST", f"{_OPS}/a/pause", {"note": "by hand"})

    done = (await ask("POST", "/jobs/pause", {"agent": "ops", "until": "in 2h"})).body
    assert (names(done["jobs"]), done["unchanged"]) == (["ops/b", "ops/c"], 1)
    assert all(job["pausedUntil"] for job in done["jobs"])
    job = (await ask("GET", f"{_OPS}/a")).body
    assert (job["pauseNote"], job["pausedUntil"]) == ("by hand", None)

    named = (await ask("POST", "/jobs/pause", {"jobs": ["ops/a"], "until": "in 2h"})).body
    assert named["jobs"][0]["pausedUntil"] is not None


async def test_a_filter_resumes_only_paused_jobs(ask: ApiClient):
    await some_jobs(ask)
    over = await create(ask, _OPS, "over", maxRuns=1)
    await ask("PUT", f"{HOME}/agents/ops", {"active": False})

    assert (await ask("POST", "/jobs/resume", {"agent": "ops"})).body["count"] == 0
    refused = (await ask("POST", "/jobs/resume", {"jobs": ["ops/a", over]})).body
    assert refused["count"] == 0
    assert [error["code"] for error in refused["errors"]] == ["failed-precondition"] * 2
    assert "not active" in refused["errors"][0]["message"]


async def test_internal_jobs_are_left_out_of_filters(ask: ApiClient):
    await some_jobs(ask)
    await ask("PUT", f"{HOME}/agents/ops", {"heartbeat": {"every": "30m"}})
    # The job of a subscription: while it is paused, its subscriber gets no events.
    delivers = job_name("sub_" + "0" * 32)
    hourly = '{"schedule":{"kind":"every","everyMs":3600000}}'
    await ask.app.store.create_jobs([asleep(delivers, agent="ops", timing=hourly, policy="{}")])
    internal = ["ops/heartbeat", f"ops/{delivers}"]
    assert "ops/heartbeat" in await enabled(ask)

    done = (await ask("POST", "/jobs/pause", {"all": True})).body

    assert not set(internal).intersection(names(done["jobs"]))
    stored = await ask.app.store.jobs(JobFilter("default", include_disabled=False))
    assert [f"{job.agent}/{job.name}" for job in stored] == internal
    assert (await ask("POST", "/jobs/pause", {"jobs": ["ops/heartbeat"]})).body["count"] == 1


async def test_an_unreadable_internal_job_keeps_no_others_from_a_filter(ask: ApiClient):
    await some_jobs(ask)
    await ask.app.store.create_jobs([asleep("heartbeat", agent="ops", policy='{"no":"such thing"}')])
    done = await ask("POST", "/jobs/pause", {"agent": "ops"})
    assert names(done.body["jobs"]) == ["ops/a", "ops/b", "ops/c"]


async def test_one_unknown_name_changes_nothing_and_all_are_listed(ask: ApiClient):
    await some_jobs(ask)
    before = await enabled(ask)

    refused = await ask("POST", "/jobs/pause", {"jobs": ["ops/a", "nope", "ops/neither"]})

    assert (refused.status, refused.code) == (404, "not-found")
    assert "'nope'" in refused.body["detail"]
    assert "'ops/neither'" in refused.body["detail"]
    assert await enabled(ask) == before


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "select jobs"),
        ({"all": False}, "select jobs"),
        ({"dryRun": True}, "select jobs"),
        ({"jobs": []}, "jobs: give a list"),
        ({"jobs": ["a", 1]}, "jobs: give a list"),
        ({"jobs": ["a\x00"]}, "jobs: give a list"),
        ({"jobs": ["a"], "all": True}, "not both"),
        ({"jobs": ["a"], "label": "team"}, "not both"),
        ({"label": 1}, "label: write"),
        ({"label": "a", "labels": {"a": "b"}}, "give one of them"),
        ({"agent": 1}, "agent: give"),
        ({"all": 1}, "all: write true"),
        ({"all": True, "dryRun": "yes"}, "dryRun: write true or false"),
        ({"all": True, "note": 1}, "note:"),
        ({"all": True, "colour": 1}, "colour: there is no such field"),
    ],
)
@on_one_store
async def test_a_wrong_selection_is_refused(ask: ApiClient, body: dict[str, object], words: str):
    await some_jobs(ask)
    before = await enabled(ask)
    refused = await ask("POST", "/jobs/pause", body)
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert words in refused.body["detail"]
    assert await enabled(ask) == before


@on_one_store
async def test_an_unknown_agent_is_not_found(ask: ApiClient):
    missing = await ask("POST", "/jobs/pause", {"agent": "nobody"})
    assert (missing.status, missing.code) == (404, "not-found")


async def test_an_agents_key_changes_only_its_own_jobs(ask: ApiClient):
    await some_jobs(ask)
    key = await ask.new("agent", agent="ops")
    own = await create(key, _OPS, "own")

    done = (await key("POST", "/jobs/pause", {"all": True})).body

    assert names(done["jobs"]) == ["ops/own"]
    assert {error["code"] for error in done["errors"]} == {"permission-denied"}
    assert await enabled(ask) == ["default/a", "default/b", "ops/a", "ops/b", "ops/c"]
    assert (await key("POST", "/jobs/pause", {"agent": "default"})).status == 404
    assert (await key("POST", "/jobs/pause", {"jobs": ["default/a"]})).status == 404
    assert (await key("POST", "/jobs/resume", {"jobs": [own]})).body["count"] == 1


async def test_many_jobs_are_changed_in_batches_while_others_change_them(ask: ApiClient):
    made = [{"name": f"j{number:04}", "schedule": SELDOM} for number in range(450)]
    await ask.app.jobs.of("ops").create_many(made)

    results = await asyncio.gather(
        *(ask("POST", "/jobs/pause", {"agent": "ops"}) for _ in range(3)),
        *(ask("POST", f"{_OPS}/j{number:04}/pause") for number in range(0, 450, 50)),
        ask("PUT", f"{HOME}/agents/ops", {"description": "changed meanwhile"}),
    )

    assert {reply.status for reply in results} == {200}
    assert sum(reply.body["count"] for reply in results[:3]) in range(450 - 9, 451), "each job once"
    assert await enabled(ask) == []


@on_one_store
async def test_python_pauses_and_resumes_several_jobs(ask: ApiClient):
    ids = await some_jobs(ask)
    async with AsyncClient(ask.url, ask.key) as client:
        for jobs in (ask.app.jobs, client.jobs):
            counted = await jobs.pause_many(labels={"team": "ops"}, all_agents=True, dry_run=True)
            assert (counted.count, counted.dry_run) == (3, True)
            done = await jobs.of("ops").pause_many(["a", ids["ops/b"]], note="x", until="in 2h")
            assert [(job.agent, job.name) for job in done.jobs] == [("ops", "a"), ("ops", "b")]
            assert done.jobs[0].paused_until is not None
            back = await jobs.of("ops").resume_many()
            assert (back.count, back.errors, back.unchanged) == (2, (), 1)
            both: list[Mapping[str, str] | Sequence[str]] = [{"team": "x"}, ["team=x"], ("team=x",)]
            for labels in both:
                with pytest.raises(InvalidArgument, match="not both"):
                    await jobs.of("ops").pause_many(["a"], labels=labels)


@on_one_store
async def test_thousands_of_large_jobs_do_not_fill_the_memory(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    ids = [await create(ask, _OPS, name, payload={"text": "x" * 50_000}) for name in ("a", "b", "c")]
    monkeypatch.setattr(job_query, "MAX_CHARACTERS", 100_000)
    for select in ({"agent": "ops"}, {"jobs": ids}, {"jobs": ["ops/a", "ops/b", "ops/c"]}):
        for path, dry_run in (("/jobs/pause", True), ("/jobs/pause", False), ("/jobs/resume", False)):
            done = await ask("POST", path, {**select, "dryRun": dry_run})
            assert (done.status, done.body["count"]) == (200, 3)
    assert (await ask("GET", "/agents/ops/jobs/a")).body["payload"] == {"text": "x" * 50_000}
    await ask("PATCH", "/agents/ops/jobs/a", {"description": "y" * 5_000})
    monkeypatch.setattr(job_query, "MAX_CHARACTERS", 4_000)
    for select in ({"agent": "ops"}, {"jobs": ids}, {"jobs": ["ops/a", "ops/b", "ops/c"]}):
        refused = await ask("POST", "/jobs/pause", select)
        assert (refused.status, "more than 4000 characters" in refused.body["detail"]) == (422, True)
