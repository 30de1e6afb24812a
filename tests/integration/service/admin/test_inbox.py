"""The inbox from end to end: what each caller sees and may do, and decisions that meet each other."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.runs.test_verified_runs import MANUAL, reported
from tests.support.api_client import ApiClient, Reply, served
from tests.support.receiver import Receiver
from tests.support.sse_client import listening
from tests.support.suggestions import suggest
from tests.support.waiting import eventually
from wakeful import AsyncClient, Client, FailedPrecondition, NotFound, PermissionDenied
from wakeful.run.inbox import INBOX_KINDS
from wakeful.service.auth.access import Principal

WEEKLY: dict[str, Any] = {"schedule": SELDOM, "target": {"kind": "pull"}}
ADA = "/agents/ada/jobs"


@pytest.fixture
async def ada(ask: ApiClient) -> ApiClient:
    """A client with the key of the agent ada, whose jobs need approval."""
    await ask("PUT", "/agents/ada", {"approval": "required", "evolution": "suggest"})
    return await ask.new("agent", agent="ada")


async def given_items(ask: ApiClient, ada: ApiClient) -> dict[str, str]:
    """Make an item of each kind; those of `ada` are an approval and a suggestion. Returns the ids by kind."""
    run_id = await reported(ask, "confirm", verify=MANUAL, maxAttempts=1)
    job_id = (await ada("POST", ADA, {"name": "weekly", **WEEKLY})).body["id"]
    await ask("POST", ADA, {"name": "slow", **WEEKLY})
    suggestion_id = await suggest(ask.app.store, "ada", "slow")
    failed = await ask("POST", "/agents/default/jobs", {"name": "broken", **WEEKLY, "maxAttempts": 1})
    await ask("POST", "/agents/default/jobs/broken/run")
    claimed = await ask("POST", "/runs/claim", {"worker": "w", "limit": 1, "waitMs": 20_000})
    (run,) = claimed.body["runs"]
    assert failed.body["id"] == run["jobId"]
    over = await ask("POST", f"/runs/{run['id']}/complete", {"attempt": 1, "status": "failed", "error": "no"})
    assert over.body["state"] == "failed"
    (incident,) = (await ask("GET", "/incidents")).body["incidents"]
    about = (run_id, job_id, suggestion_id, incident["id"])
    return {kind: f"{kind}:{each}" for kind, each in zip(INBOX_KINDS, about, strict=True)}


async def listed(ask: ApiClient, **query: Any) -> dict[str, dict[str, Any]]:
    """Return the items by kind."""
    reply = await ask("GET", "/inbox", **query)
    assert reply.status == 200, reply.body
    return {item["kind"]: item for item in reply.body["items"]}


async def test_everyone_sees_what_they_may_and_what_they_may_do(ask: ApiClient, ada: ApiClient):
    ids = await given_items(ask, ada)
    found = await listed(ask)
    assert {kind: item["id"] for kind, item in found.items()} == ids
    assert found["verification"]["title"] == "Confirm the work of job 'confirm' of agent 'default'"
    assert (found["verification"]["detail"], found["verification"]["version"]) == ("sent", 1)
    assert found["verification"]["until"] > found["verification"]["since"]
    assert found["incident"]["title"] == "Job 'broken' of agent 'default' fails: no"
    assert found["suggestion"]["detail"].endswith("allow 1 minute.")
    both = ["approve", "reject"]
    assert [found[kind]["may"] for kind in INBOX_KINDS] == [both, both, both, ["approve"]]
    assert found["approval"]["deciders"] == ["admin"]

    member = await listed(await ask.new("member"))
    assert [member[kind]["may"] for kind in INBOX_KINDS] == [both, [], [], ["approve"]]
    own = await listed(ada)
    assert {kind: item["may"] for kind, item in own.items()} == {"approval": [], "suggestion": []}
    assert (await ada("GET", "/inbox/counts")).body == {
        "total": 2, "verification": 0, "approval": 1, "suggestion": 1, "incident": 0,
    }  # fmt: skip
    assert (await ada("GET", "/inbox", agent="default")).status == 404
    assert (await ask("GET", "/inbox", agent="nobody")).status == 404
    assert (await ask("GET", "/inbox", kind="tasks")).status == 422
    assert set(await listed(ask, agent="ada", kind="approval,incident")) == {"approval"}
    for kind, item_id in ids.items():
        for action in ("approve", "reject"):
            refused = await ada("POST", f"/inbox/{item_id}/{action}")
            no_way = (kind, action) == ("incident", "reject")
            assert refused.status == (422 if no_way else 403 if kind in own else 404), kind

    await ask("PUT", "/api/workspaces/acme", {})
    other = await ask.new("admin", workspace="acme")
    acme = "/api/workspaces/acme/inbox"
    assert (await other("GET", "/inbox")).status == 404
    assert (await other("GET", acme)).body["items"] == []
    for item_id in ids.values():
        assert (await other("POST", f"{acme}/{item_id}/approve")).status == 404
        assert (await other("POST", f"/inbox/{item_id}/approve")).status == 404
    for wrong in ("tasks:1", "approval:1", "approval", "verification:01980000-0000-7000-8000-000000000000"):
        assert (await ask("POST", f"/inbox/{wrong}/approve")).status == 404
    for body in ({"reason": 1}, {"version": "1"}, {"verified": True}, {"reason": "x" * 1_001}):
        assert (await ask("POST", f"/inbox/{ids['approval']}/approve", body)).status in (400, 422), body
    assert {kind: item["id"] for kind, item in (await listed(ask)).items()} == ids, "nothing was decided"


async def test_pages_follow_each_other(ask: ApiClient, ada: ApiClient):
    await given_items(ask, ada)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 1}
    while query.get("cursor", "first"):
        page = (await ask("GET", "/inbox", **query)).body
        assert page["counts"]["total"] == 4
        seen += [item["kind"] for item in page["items"]]
        query["cursor"] = page["cursor"]
    assert Counter(seen) == Counter(INBOX_KINDS)
    async with AsyncClient(ask.url, ask.key) as client:
        for own in (client, ask.app):
            first = await own.inbox.list(limit=3)
            rest = await own.inbox.list(limit=3, cursor=first.cursor)
            assert [item.kind for item in (*first, *rest)] == seen
            assert rest.cursor is None
            assert (await own.inbox.counts(agent="ada")).total == 2


STATES = {
    "approve": ["succeeded", "active", "applied", "acknowledged"],
    "reject": ["failed", "paused", "dismissed"],
}


@pytest.mark.parametrize("action", ["approve", "reject"])
async def test_of_two_people_one_decides_and_the_other_is_told(ask: ApiClient, ada: ApiClient, action: str):
    ids = await given_items(ask, ada)
    people = [await ask.new("admin", name=name) for name in ("ann", "bea")]
    kinds = INBOX_KINDS if action == "approve" else INBOX_KINDS[:3]
    states = []
    for kind in kinds:
        replies: list[Reply] = await asyncio.gather(
            *(person("POST", f"/inbox/{ids[kind]}/{action}") for person in people)
        )
        assert sorted(reply.status for reply in replies) == [200, 409], (kind, replies)
        (won,) = (reply.body for reply in replies if reply.status == 200)
        (lost,) = (reply for reply in replies if reply.status == 409)
        assert (won["id"], won["kind"], won["action"]) == (ids[kind], kind, action)
        assert lost.code == "failed-precondition"
        states.append(won["state"])
    assert states == STATES[action]
    assert set(await listed(ask)) == (set() if action == "approve" else {"incident"})
    entries = (await ask("GET", "/audit", limit=50)).body["entries"]
    decided = Counter(entry["action"] for entry in entries)
    expected = {
        "approve": ("run.verify", "job.resume", "suggestion.apply", "incident.acknowledge"),
        "reject": ("run.verify", "job.pause", "suggestion.dismiss"),
    }
    assert [decided[each] for each in expected[action]] == [1] * len(kinds)


async def test_what_changed_since_is_not_decided(ask: ApiClient, ada: ApiClient):
    ids = await given_items(ask, ada)
    seen = await listed(ask)
    edited = await ada("PATCH", f"{ADA}/weekly", {"message": "pay Mallory"})
    assert edited.body["disabledReason"] == "approval"
    stale = await ask("POST", f"/inbox/{ids['approval']}/approve", {"version": seen["approval"]["version"]})
    assert (stale.status, stale.code) == (409, "failed-precondition")
    now = (await listed(ask))["approval"]
    assert now["version"] > seen["approval"]["version"]
    assert now["since"] >= seen["approval"]["since"]
    done = await ask("POST", f"/inbox/{ids['approval']}/approve", {"version": now["version"]})
    assert (done.status, done.body["state"]) == (200, "active")
    stale = await ask("POST", f"/inbox/{ids['verification']}/reject", {"version": 2})
    assert (stale.status, stale.code) == (409, "failed-precondition")
    assert (await ask("POST", f"/inbox/{ids['incident']}/reject")).status == 422


async def test_what_is_gone_is_not_decided(ask: ApiClient, ada: ApiClient):
    ids = await given_items(ask, ada)
    await ask("DELETE", f"{ADA}/weekly")
    await ask("DELETE", f"{ADA}/slow")
    await ask("POST", f"/runs/{ids['verification'].partition(':')[2]}/stop")
    await ask("DELETE", "/agents/default/jobs/broken")
    found = {kind: (await ask("POST", f"/inbox/{item}/approve")).status for kind, item in ids.items()}
    assert found == {"verification": 409, "approval": 404, "suggestion": 409, "incident": 409}
    assert await listed(ask) == {}


async def test_a_decision_that_meets_its_deadline_has_one_outcome(ask: ApiClient):
    runs = [
        await reported(
            ask, f"job-{number}", verify={"kind": "manual", "timeoutMs": 20 + number}, maxAttempts=1
        )
        for number in range(8)
    ]
    replies = await asyncio.gather(*(ask("POST", f"/inbox/verification:{run}/approve") for run in runs))
    for run_id, reply in zip(runs, replies, strict=True):
        run = (await ask("GET", f"/runs/{run_id}")).body
        if reply.status == 200:
            assert (reply.body["state"], run["state"]) == ("succeeded", "succeeded")
        else:
            assert (reply.status, run["verifying"], run["reason"]) == (409, False, "unverified")
    assert (await listed(ask)) == {} or set(await listed(ask)) == {"incident"}


@on_one_store
async def test_clients_and_programs_decide(ask: ApiClient, ada: ApiClient):
    ids = await given_items(ask, ada)

    def reject() -> str:
        with Client(ask.url, ask.key) as client:
            (item,) = client.inbox.list(kinds=["verification"])
            assert client.inbox.counts().total == 4
            done = client.inbox.reject(item.id, reason="the page is empty", version=item.version)
            with pytest.raises(FailedPrecondition):
                client.inbox.approve(item.id)
            return done.state

    assert await asyncio.to_thread(reject) == "failed"
    done = await ask.app.inbox.approve(ids["approval"])
    assert (done.kind, done.state) == ("approval", "active")
    with pytest.raises(FailedPrecondition, match="does not wait for approval: it is active since"):
        await ask.app.inbox.reject(ids["approval"])
    with pytest.raises(NotFound, match="list the inbox"):
        await ask.app.inbox.approve("nothing")
    inbox = ask.app.services.admin.inbox
    in_run = Principal("key:1", "admin", "default", run_id=ids["verification"].partition(":")[2])
    (row,) = await inbox.list(in_run, "default", kinds=["suggestion"])
    with pytest.raises(PermissionDenied, match="ask a person"):
        await inbox.decide(in_run, "default", row.id, "approve")


@on_one_store
async def test_runs_that_are_verified_are_a_filter_of_every_list(ask: ApiClient):
    run_id = await reported(ask, "a", verify=MANUAL)
    for path in ("/runs", "/agents/default/runs", "/agents/default/jobs/a/runs"):
        for state in ("verifying", "verifying,failed"):
            found = (await ask("GET", path, state=state)).body["runs"]
            assert [(run["id"], run["verifying"]) for run in found] == [(run_id, True)], path
        assert (await ask("GET", path, state="checking")).status == 422
    async with AsyncClient(ask.url, ask.key) as client:
        for runs in (client.runs, ask.app.runs):
            assert [run.id for run in await runs.list(states=["verifying"])] == [run_id]


async def test_the_page_and_home_show_what_waits_with_the_decisions(ask: ApiClient, ada: ApiClient):
    ids = await given_items(ask, ada)
    hostile = "<script>alert(1)</script>"
    await ada("POST", ADA, {"name": "odd", "description": f"{hostile}\u202egnp", **WEEKLY})

    async def shown(caller: ApiClient, path: str) -> str:
        reply = await caller("GET", f"/workspaces/default/{path}")
        assert reply.status == 200, reply
        return str(reply.body)

    admin, member, agent = [await shown(each, "inbox") for each in (ask, await ask.new("member"), ada)]
    for kind, item_id in ids.items():
        approve = f'data-path="/api/workspaces/default/inbox/{item_id.replace(":", "%3A")}/approve"'
        assert approve in admin, kind
        assert (approve in member) == (kind in ("verification", "incident")), kind
        assert approve not in agent
    assert hostile not in admin
    assert "&lt;script&gt;alert(1)" in admin
    assert "decided by a key of the role admin" in member
    assert "Confirm the work" not in agent
    assert "Nothing waits" in await shown(ada, "inbox?kind=incident")
    home = await shown(ask, "")
    assert 'data-figure="nav-inbox"' in home
    for path, region in (("inbox", "list"), ("", "inbox")):
        part = await ask("GET", f"/workspaces/default/{path}", headers={"x-wakeful-region": region})
        assert (part.status, "/approve" in part.body) == (200, True), path
    assert "5 in the inbox" in home
    assert home.count("/approve") == 3
    for wrong in ("inbox?kind=x", "inbox?cursor=x", "inbox?cursor=1.x"):
        assert (await ask("GET", f"/workspaces/default/{wrong}")).status == 422
    (event,) = [each async for each in _first_summary(ask)]
    assert event["figures"]["inbox"] == 5


async def _first_summary(ask: ApiClient) -> AsyncIterator[dict[str, Any]]:
    """Yield the first summary of changes that open pages get."""
    url = f"{ask.url}/api/workspaces/default/events?coalesceMs=250"
    async with ask.session.get(url, headers={"Authorization": f"Bearer {ask.key}"}) as response:
        async for line in response.content:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])
                return


async def test_an_event_says_what_began_to_wait(ask: ApiClient, ada: ApiClient):
    other = await ask.new("agent", agent="other")
    types = "inbox.item_added"
    async with (
        listening(ask, types=types) as stream,
        listening(ada, types=types) as own,
        listening(other, types=types) as elsewhere,
    ):
        ids = await given_items(ask, ada)
        seen = [await stream.until(lambda event: event.type == types) for _ in INBOX_KINDS]
        items = {event.data["item"]["kind"]: event.data["item"] for (event,) in seen}
        assert {kind: item["id"] for kind, item in items.items()} == ids
        listed_items = await listed(ask)
        for kind, item in items.items():
            assert item == {key: value for key, value in listed_items[kind].items() if key != "may"}
        # An edit of a job that waits already is no new item; one of an approved job is.
        await ada("PATCH", f"{ADA}/weekly", {"message": "more"})
        await ask("POST", f"/inbox/{ids['approval']}/approve")
        await ada("PATCH", f"{ADA}/weekly", {"message": "pay Mallory"})
        (again,) = await stream.until(lambda event: event.type == types)
        assert again.data["item"]["id"] == ids["approval"]
        for expected in ("approval", "suggestion", "approval"):
            (mine,) = await own.until(lambda event: event.type == types)
            assert mine.data["item"]["kind"] == expected
        await ask("POST", "/agents/other/jobs", {"name": "own", **WEEKLY})
        made = await suggest(ask.app.store, "other", "own")
        (first,) = await elsewhere.until(lambda event: event.type == types)
        assert first.data["item"]["id"] == f"suggestion:{made}", "an agent gets nothing of others"
    async with AsyncClient(ask.url, ask.key) as client:
        found = []
        async for event in client.events(types=["inbox.item_added"], after=0):
            assert event.item is not None
            found.append(event.item.kind)
            if len(found) == 6:
                break
        assert Counter(found) == {"verification": 1, "approval": 2, "suggestion": 2, "incident": 1}


async def test_one_replica_says_at_once_what_waits(new_app: NewApp, receiver: Receiver):
    app, replica = new_app(), new_app()
    async with app, replica, served(app) as ask:
        alerts = {"url": receiver.url, "waiting": True, "deadLetter": False}
        assert (await ask("PUT", "/api/workspaces/default", {"alerts": alerts})).status == 200
        await ask("PUT", "/agents/ada", {"approval": "required"})
        ada = await ask.new("agent", agent="ada")
        await ada("POST", ADA, {"name": "weekly", **WEEKLY})
        await ada("PATCH", f"{ADA}/weekly", {"message": "more"})
        await reported(ask, "confirm", verify=MANUAL)
        await reported(ask, "checked", verify={"kind": "function", "name": "no-such-function"})

        def sent() -> list[str]:
            return sorted(json.loads(body)["payload"]["message"] for body in receiver.bodies)

        await eventually(lambda: len(sent()) >= 2)
        alert_jobs = await app.jobs.runs("wakeful-workspace-alerts")
        assert len(alert_jobs) == 2, "of two replicas one sends each message"
    ids = [json.loads(body)["payload"]["kind"] for body in receiver.bodies]
    assert ids == ["inbox", "inbox"]
    first, second = sent()
    assert first.startswith(
        "a run of job 'confirm' of agent 'default' waits for a person to confirm its work"
    )
    assert "wakeful inbox approve verification:" in first
    assert second.startswith("job 'weekly' of agent 'ada' waits for approval; decide with: wakeful inbox")
