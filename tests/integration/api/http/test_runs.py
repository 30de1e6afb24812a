"""Runs over HTTP: list, filter, cancel, stop, replay, claim and complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.factories import jobless, over
from tests.support.rpc_client import calling
from tests.support.waiting import PATIENCE, eventually
from wakeful.service.auth.access import LOCAL
from wakeful.service.cron_tool.local import LocalScheduler

_FAILING = {"kind": "function", "name": "failing"}
_NOTHING = {"kind": "function", "name": "nothing"}
_PULL = {"kind": "pull"}


async def test_runs_are_listed_newest_first_with_pagination(ask: ApiClient):
    await _job(ask, "a", _PULL)
    ids = [(await ask("POST", f"{JOBS}/a/run")).body["id"] for _ in range(7)]
    for path in ("/runs", f"{HOME}/agents/default/runs", f"{JOBS}/a/runs"):
        found: list[str] = []
        cursor = None
        while cursor is not None or not found:
            page = (await ask("GET", path, limit=3, **({"cursor": cursor} if cursor else {}))).body
            found += [run["id"] for run in page["runs"]]
            cursor = page["cursor"]
        assert found == ids[::-1], path
    older = await ask("GET", "/runs", before=ids[2])
    assert [run["id"] for run in older.body["runs"]] == [ids[1], ids[0]]


@on_one_store
async def test_by_default_a_job_lists_20_runs_and_an_agent_50(ask: ApiClient):
    await _job(ask, "a", _PULL)
    await asyncio.gather(*(ask("POST", f"{JOBS}/a/run") for _ in range(52)))
    assert len((await ask("GET", f"{JOBS}/a/runs")).body["runs"]) == 20
    assert len((await ask("GET", f"{HOME}/agents/default/runs")).body["runs"]) == 50
    assert len((await ask("GET", "/runs", limit=500)).body["runs"]) == 52


async def test_runs_are_filtered_by_agent_job_state_and_trigger(ask: ApiClient):
    await _job(ask, "waiting", _PULL)
    await _job(ask, "done", _NOTHING)
    waiting = (await ask("POST", f"{JOBS}/waiting/run")).body
    done = (await ask("POST", f"{JOBS}/done/run")).body
    await _over(ask, done["id"])

    async def found(**query: Any) -> list[str]:
        return [run["job"] for run in (await ask("GET", "/runs", **query)).body["runs"]]

    assert await found() == ["done", "waiting"]
    assert await found(state="succeeded") == ["done"]
    assert await found(state="succeeded,pending") == ["done", "waiting"]
    assert await found(job="waiting", agent="default") == ["waiting"]
    assert await found(job=waiting["jobId"]) == ["waiting"]
    assert await found(job_id=done["jobId"]) == ["done"]
    assert await found(trigger="schedule") == []
    assert await found(trigger="user", agent="default") == ["done", "waiting"]
    several = await ask("GET", "/runs?state=succeeded&state=pending")
    assert len(several.body["runs"]) == 2


@on_one_store
async def test_runs_of_an_instance_need_its_agent(ask: ApiClient):
    reply = await ask("GET", "/runs", instance="eu")
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert "give agent too" in reply.body["detail"]
    assert (await ask("GET", "/agents/default/runs", instance="a\nb")).status == 422

    assert (await ask("GET", "/runs", agent="default", instance="eu")).body["runs"] == []


async def test_a_run_is_shown_with_its_attempts(ask: ApiClient):
    await _job(ask, "a", _FAILING)
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    run = await _over(ask, run_id)
    assert (run["state"], run["dead"]) == ("failed", True)
    assert [attempt["attempt"] for attempt in run["attempts"]] == [1]
    assert "it never works" in run["attempts"][0]["error"]


async def test_a_pending_run_can_be_cancelled_and_a_finished_one_cannot(ask: ApiClient):
    await _job(ask, "a", _PULL)
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    cancelled = await ask("POST", f"/runs/{run_id}/cancel")
    assert (cancelled.status, cancelled.body["state"]) == (200, "cancelled")
    again = await ask("POST", f"/runs/{run_id}/cancel")
    assert (again.status, again.code) == (409, "failed-precondition")


async def test_a_running_run_can_be_stopped_but_not_cancelled(ask: ApiClient):
    await _job(ask, "a", _PULL)
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    early = await ask("POST", f"/runs/{run_id}/stop")
    assert (early.status, early.code) == (409, "failed-precondition")
    await ask("POST", "/runs/claim", {"worker": "laptop"})
    assert (await ask("POST", f"/runs/{run_id}/cancel")).code == "failed-precondition"
    stopped = await ask("POST", f"/runs/{run_id}/stop")
    assert (stopped.status, stopped.body["state"]) == (200, "cancelled")
    assert (await ask("POST", f"/runs/{run_id}/stop")).code == "failed-precondition"


async def test_an_executor_claims_heartbeats_and_completes_a_run(ask: ApiClient):
    await _job(ask, "a", _PULL, payload={"to": "me"})
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    claimed = await ask("POST", "/runs/claim", {"worker": "laptop", "agents": [], "limit": 5})
    (run,) = claimed.body["runs"]
    assert (run["id"], run["target"], run["payload"]) == (run_id, _PULL, {"to": "me"})
    assert (await ask("POST", "/runs/claim", {"worker": "laptop"})).body == {"runs": []}
    assert (await ask("POST", f"/runs/{run_id}/heartbeat", {"attempt": 1})).body["state"] == "running"
    outcome = {"status": "succeeded", "attempt": 1, "output": {"sent": 3}, "usage": {"tokens": 512}}
    done = await ask("POST", f"/runs/{run_id}/complete", outcome)
    assert (done.status, done.body["state"]) == (200, "succeeded")
    assert (done.body["output"], done.body["usage"]) == ('{"sent":3}', {"tokens": 512})
    for verb, body in (("heartbeat", None), ("complete", outcome)):
        assert (await ask("POST", f"/runs/{run_id}/{verb}", body)).status == 409


@on_one_store
@pytest.mark.parametrize("state", ["skipped", "missed", "pending", "cancelled"])
@pytest.mark.parametrize("status", ["succeeded", "failed"])
async def test_a_run_that_is_not_running_cannot_be_completed(ask: ApiClient, state: str, status: str):
    run = over(jobless(attempt=0), state) if state != "pending" else jobless()
    await ask.app.store.add_runs([run])
    reply = await ask("POST", f"/runs/{run.id}/complete", {"status": status, "attempt": run.attempt})
    assert (reply.status, reply.code) == (409, "failed-precondition")
    assert state in reply.body["detail"]


async def test_a_claim_waits_for_the_first_run(ask: ApiClient):
    await _job(ask, "a", _PULL)
    claiming = asyncio.create_task(ask("POST", "/runs/claim", {"worker": "laptop", "waitMs": 30_000}))
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    assert [run["id"] for run in (await claiming).body["runs"]] == [run_id]


@on_one_store
async def test_a_claim_of_a_disconnected_client_takes_nothing(ask: ApiClient):
    await _job(ask, "a", _PULL)
    waiting, gone = asyncio.Event(), asyncio.Event()
    claim = ask.app.services.runs.pull.claim

    async def watched(*given: Any, **named: Any) -> Any:
        waiting.set()
        try:
            return await claim(*given, **named)
        except asyncio.CancelledError:
            gone.set()
            raise

    ask.app.services.runs.pull.claim = watched  # type: ignore[method-assign]
    claiming = asyncio.create_task(ask("POST", "/runs/claim", {"worker": "laptop", "waitMs": 60_000}))
    await waiting.wait()
    claiming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await claiming
    async with asyncio.timeout(PATIENCE):
        await gone.wait()
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    assert (await ask("GET", f"/runs/{run_id}")).body["state"] == "pending"


@on_one_store
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"worker": ""},
        {"worker": 7},
        {"worker": "w", "agents": "a"},
        {"worker": "w", "agents": [1]},
        {"worker": "w", "limit": 0},
        {"worker": "w", "limit": "3"},
        {"worker": "w", "limit": True},
        {"worker": "w", "waitMs": -1},
        {"worker": "w", "waitMs": 10**12},
        {"worker": "w", "hurry": True},
    ],
)
async def test_an_invalid_claim_is_rejected(ask: ApiClient, body: dict[str, object]):
    reply = await ask("POST", "/runs/claim", body)
    assert (reply.status, reply.code) == (422, "invalid-argument")


async def test_dead_letters_are_listed_replayed_and_discarded(ask: ApiClient):
    await _job(ask, "a", _FAILING)
    ids = [(await ask("POST", f"{JOBS}/a/run")).body["id"] for _ in range(4)]
    for run_id in ids:
        await _over(ask, run_id)
    first = await ask("GET", "/dead-letters", limit=3)
    rest = await ask("GET", "/dead-letters", limit=3, cursor=first.body["cursor"])
    dead = [run["id"] for page in (first, rest) for run in page.body["deadLetters"]]
    assert dead == ids[::-1]

    one = await ask("POST", f"/runs/{ids[0]}/replay")
    assert (one.status, one.body["replayOf"], one.body["attempt"]) == (201, ids[0], 2)
    assert one.headers["location"] == f"{HOME}/runs/{one.body['id']}"
    assert (await ask("POST", f"/runs/{ids[0]}/replay")).code == "failed-precondition"
    await _over(ask, one.body["id"])

    gone = await ask("POST", "/dead-letters/discard", {"ids": [ids[1], ids[0], "none"]})
    assert gone.body == {"discarded": [ids[1]]}
    many = await ask("POST", "/dead-letters/replay", {"all": True})
    assert set(many.body["replayed"]) == {ids[2], ids[3], one.body["id"]}


@on_one_store
async def test_replaying_or_discarding_all_dead_letters_must_be_explicit(ask: ApiClient):
    for body in ({}, {"all": False}, {"ids": None}, {"ids": "all"}, {"ids": [1]}, {"ids": [], "all": True}):
        for verb in ("replay", "discard"):
            assert (await ask("POST", f"/dead-letters/{verb}", body)).status == 422, body


async def test_an_agent_is_woken_manually(ask: ApiClient):
    await ask("PUT", f"{HOME}/agents/writer", {})
    run = await ask("POST", f"{HOME}/agents/writer/runs", {"payload": {"message": "look"}})
    assert (run.status, run.body["state"], run.body["trigger"]) == (201, "pending", "user")
    assert run.body["triggeredBy"].startswith("key:")
    assert run.headers["location"] == f"{HOME}/runs/{run.body['id']}"
    assert (await ask("POST", f"{HOME}/agents/writer/runs")).status == 201
    assert (await ask("POST", f"{HOME}/agents/nobody/runs")).status == 404


async def _job(ask: ApiClient, name: str, target: object, **more: object) -> None:
    reply = await ask("POST", JOBS, {"name": name, "schedule": SELDOM, "target": target, **more})
    assert reply.status == 201, reply.body


async def _over(ask: ApiClient, run_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        run: dict[str, Any] = (await ask("GET", f"/runs/{run_id}")).body
        return run if run["finishedAt"] else None

    run: dict[str, Any] | None = await eventually(look)
    assert run is not None
    return run


@pytest.mark.slow
@on_one_store
async def test_the_event_loop_has_its_turn_between_the_large_items_of_a_list(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    turns = 0
    seen: dict[str, Counter[int]] = {}

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def noted(place: str) -> None:
        owner, _, name = place.rpartition(".")
        function = getattr(resolve_name(owner), name)
        found = seen.setdefault(place, Counter())

        def called(*given: Any, **named: Any) -> Any:
            found[turns] += 1
            return function(*given, **named)

        monkeypatch.setattr(resolve_name(owner), name, called)

    large = {"schedule": SELDOM, "target": {"kind": "pull"}, "payload": [1] * 30_000}
    for number in range(12):
        assert (await ask("PUT", f"{JOBS}/job-{number}", large)).status == 201
        assert (await ask("POST", f"{JOBS}/job-0/run", {"payload": [1] * 30_000})).status == 201
    for number in range(12):
        assert (await ask("PATCH", f"{JOBS}/job-1", {"payload": [number] * 15_000})).status == 200
    for place in (
        "wakeful.api.http.job_actions.REVISIONS.to_json",
        "wakeful.service.serializers.serialize_run",
        "wakeful.service.runs.claims.payload_from_text",
        "wakeful.api.http.runs.serialize_run",
        "wakeful.api.http.job_lists.serialize_job",
        "wakeful.service.serializers._with_news",
        "wakeful.service.jobs.jobs.job_from_row",
    ):
        noted(place)
    taking = asyncio.create_task(take_turns())
    runs, jobs = await ask("GET", "/runs"), await ask("GET", "/jobs")
    async with calling(ask) as call:
        told = await call("cron.runs", jobId="job-0", limit=12)
    revisions = await ask("GET", f"{JOBS}/job-1/revisions")
    assert len(revisions.body["revisions"]) == 13
    assert len(await LocalScheduler(ask.app.services, LOCAL).runs("default", None, 12)) == 12
    claimed = await ask("POST", "/runs/claim", {"worker": "w", "limit": 100})
    assert [run["payload"] for run in claimed.body["runs"]] == [[1] * 30_000] * 12
    for batch in "ab":
        names = [f"{batch}-{number}" for number in range(6)]
        batch_of_jobs = [{**large, "payload": "x" * 40_000, "name": name} for name in names]
        made = await ask("POST", f"{JOBS}/bulk", {"jobs": batch_of_jobs})
        assert (made.status, [job["name"] for job in made.body["jobs"]]) == (201, names)
    taking.cancel()
    assert [len(each) for each in (runs.body["runs"], jobs.body["jobs"], told["runs"])] == [12, 12, 12]
    assert (runs.body["runs"][0]["payload"], runs.body["cursor"]) == ([1] * 30_000, None)
    assert {place: max(found.values()) <= 2 for place, found in seen.items()} == dict.fromkeys(seen, True)
    assert all(found.total() >= 12 for found in seen.values())
