"""Jobs that an agent makes in a run: their bounds, and what they carry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import ApiClient, Reply
from tests.support.rpc_client import Refused, calling
from tests.support.waiting import eventually
from wakeful import SELF, Agent, Delay, Emit, SetCron, Signal, on
from wakeful.run.factory import manual_run
from wakeful.run.run import RunDetails, TriggerName
from wakeful.service.auth.access import LOCAL

JOBS = "/agents/ada/jobs"
ONCE = {"schedule": "in 20m", "message": "look again"}
WEEKLY = {"schedule": "0 9 * * 1", "message": "remind Ada"}
EVENT = {"server": "crm", "event": "ticket.created"}
UNKNOWN = "0190a0b0-0000-7000-8000-000000000000"


class InRun:
    """A client whose requests are made in a run."""

    def __init__(self, client: ApiClient, run_id: str) -> None:
        self.client = client
        self.run_id = run_id

    async def __call__(self, method: str, path: str, body: object = None) -> Reply:
        return await self.client(method, path, body, headers={"x-wakeful-run-id": self.run_id})

    async def add(self, name: str, fields: Mapping[str, object]) -> Reply:
        return await self("POST", JOBS, {"name": name, **fields})

    async def made(self, name: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Add a job, which must succeed."""
        added = await self.add(name, fields)
        assert added.status == 201, added
        return dict(added.body)

    async def end(self, status: str = "succeeded") -> None:
        done = await self.client("POST", f"/runs/{self.run_id}/complete", {"status": status, "attempt": 1})
        assert done.status == 200, done


@pytest.fixture
async def ada(ask: ApiClient) -> ApiClient:
    """Return a client with the key of an agent that has a job created by an admin."""
    await ask("PUT", "/agents/ada", {})
    await ask("PUT", "/agents/ben", {})
    await ask("POST", JOBS, {"name": "report", "schedule": SELDOM})
    return await ask.new("agent", agent="ada")


async def in_run(
    ask: ApiClient,
    client: ApiClient,
    trigger: TriggerName = "schedule",
    agent: str = "ada",
    job: str | None = "report",
    **details: Any,
) -> InRun:
    """Return a client in a new run of the job that an executor has claimed."""
    services = ask.app.services
    of = await services.jobs.get(LOCAL, "default", agent, job) if job else None
    run = manual_run(
        job_id=of.id if of else None,
        workspace="default",
        agent=agent,
        job_name=of.name if of else None,
        lane="cron",
        trigger=trigger,
        now_ms=services.now_ms(),
        claim_ms=60_000,
        details=RunDetails(**details) if details else None,
    )
    await services.store.add_runs([run])
    claimed = await ask("POST", "/runs/claim", {"worker": "w", "agents": [agent], "limit": 1})
    assert [each["id"] for each in claimed.body["runs"]] == [run.id]
    return InRun(client, run.id)


async def names(ask: ApiClient) -> list[str]:
    jobs = (await ask("GET", JOBS, include_disabled="true")).body["jobs"]
    return sorted(job["name"] for job in jobs if job["name"] != "report")


def refused(reply: Reply) -> tuple[int, str]:
    assert reply.status >= 400, reply
    return reply.status, reply.code


# --- one-time jobs only, so many, so deep ----------------------------------------------------------------


async def test_in_a_scheduled_run_an_agent_adds_one_time_jobs_only(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    tried = [
        await run.add("weekly", WEEKLY),
        await run.add("often", {**ONCE, "schedule": "every 1m"}),
        await run.add("chained", {"after": "report", "message": "and then"}),
        await run("PUT", f"{JOBS}/weekly", WEEKLY),
        await run.add("paused", {**WEEKLY, "enabled": False}),
        await run.add("listening", {**ONCE, "on": EVENT}),
    ]
    assert [refused(each) for each in tried] == [(403, "permission-denied")] * len(tried)
    assert "'in 20m'" in tried[0].body["detail"]
    assert "selfScheduling" in tried[0].body["detail"]
    assert await names(ask) == []
    job = await run.made("once", ONCE)
    assert (job["depth"], job["createdBy"].split(":")[0], job["origin"]) == (1, "agent", None)
    assert await names(ask) == ["once"]


async def test_a_run_makes_five_jobs_and_removing_them_gives_none_back(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    for number in range(5):
        await run.made(f"once-{number}", ONCE)
        if number % 2:
            assert (await run("DELETE", f"{JOBS}/once-{number}")).status == 204
    sixth = await run.add("once-6", ONCE)
    assert refused(sixth) == (429, "resource-exhausted")
    assert "5 jobs, of at most 5" in sixth.body["detail"]
    assert refused(await run("PUT", f"{JOBS}/once-6", ONCE)) == (429, "resource-exhausted")
    assert refused(await run("PATCH", f"{JOBS}/once-0", {"schedule": "in 30m"}))[0] == 429
    assert refused(await run("POST", f"{JOBS}/once-0/run"))[0] == 429
    assert await names(ask) == ["once-0", "once-2", "once-4"]
    assert (await run("PATCH", f"{JOBS}/once-0", {"message": "another text"})).status == 200
    another = await in_run(ask, ada)
    await another.made("once-6", ONCE)


async def test_concurrent_requests_of_one_run_make_five_jobs_in_all(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    replies = await asyncio.gather(*(run.add(f"once-{number}", ONCE) for number in range(20)))
    assert sorted(reply.status for reply in replies) == [201] * 5 + [429] * 15
    assert len(await names(ask)) == 5


async def test_each_job_of_a_batch_counts(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    jobs = [{"name": f"once-{number}", **ONCE} for number in range(6)]
    assert refused(await run("POST", f"{JOBS}/bulk", {"jobs": jobs})) == (429, "resource-exhausted")
    assert await names(ask) == []
    assert (await run("POST", f"{JOBS}/bulk", {"jobs": jobs[:5]})).status == 201
    assert refused(await run.add("once-6", ONCE)) == (429, "resource-exhausted")
    weekly = await run("POST", f"{JOBS}/bulk", {"jobs": [{"name": "weekly", **WEEKLY}]})
    assert refused(weekly)[0] == 403


async def test_a_refused_job_is_not_counted(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    await run.made("once", ONCE)
    for _ in range(6):
        assert refused(await run.add("once", ONCE)) == (409, "already-exists")
        assert refused(await run.add("bad", {"schedule": "in 20m", "jitter": "x"}))[0] in (400, 422)
        assert (await run("PUT", f"{JOBS}/other?dry_run=true", ONCE)).status == 204
    for number in range(4):
        await run.made(f"once-{number}", ONCE)


async def test_a_chain_of_self_made_jobs_is_at_most_three_deep(ask: ApiClient, ada: ApiClient):
    job = "report"
    for depth in range(3):
        run = await in_run(ask, ada, job=job, depth=depth)
        job = f"once-{depth}"
        assert (await run.made(job, ONCE))["depth"] == depth + 1
    # Its own tick: the depth of the job is that of its runs.
    await ask("PATCH", f"{JOBS}/{job}", {"schedule": "in 1s"})
    claimed = await ask("POST", "/runs/claim", {"worker": "w", "agents": ["ada"], "waitMs": 20_000})
    (tick,) = claimed.body["runs"]
    assert (tick["job"], tick["trigger"], tick["depth"]) == (job, "schedule", 3)
    last = InRun(ada, tick["id"])
    for tried in (await last.add("more", ONCE), await last("PATCH", f"{JOBS}/{job}", {"schedule": "in 2h"})):
        assert refused(tried) == (403, "permission-denied")
        assert "a chain of 3 jobs" in tried.body["detail"]
    assert refused(await last("POST", f"{JOBS}/once-0/run")) == (403, "permission-denied")


async def test_the_document_of_the_agent_allows_more(ask: ApiClient, ada: ApiClient):
    more = {"selfScheduling": {"recurring": True, "perRun": 2, "depth": 5}}
    assert (await ask("PUT", "/agents/ada", more)).body["selfScheduling"] == more["selfScheduling"]
    run = await in_run(ask, ada, depth=4)
    await run.made("weekly", WEEKLY)
    assert (await run.made("once", ONCE))["depth"] == 5
    assert refused(await run.add("twice", ONCE))[0] == 429
    deep = await in_run(ask, ada, depth=5)
    assert refused(await deep.add("deep", ONCE))[0] == 403


@on_one_store
@pytest.mark.parametrize(
    "document",
    [
        {"selfScheduling": {"perRun": -1}},
        {"selfScheduling": {"recurring": "yes"}},
        {"selfScheduling": {"perDay": 1}},
        {"selfScheduling": True},
        {"approval": True},
    ],
)
async def test_invalid_bounds_are_refused(ask: ApiClient, document: dict[str, Any]):
    reply = await ask("PUT", "/agents/ada", document)
    assert reply.code == "invalid-argument"
    assert reply.body["detail"].startswith(f"{next(iter(document))}: ")


# --- which runs are bounded ------------------------------------------------------------------------------


@on_one_store
@pytest.mark.parametrize("trigger", ["chain", "backfill", "heartbeat", "hook", "replay", "signal", "agent"])
async def test_every_run_that_no_person_started_is_bounded(
    ask: ApiClient, ada: ApiClient, trigger: TriggerName
):
    run = await in_run(ask, ada, trigger)
    assert refused(await run.add("weekly", WEEKLY)) == (403, "permission-denied")


@on_one_store
async def test_in_a_run_that_a_person_started_an_agent_adds_any_job(ask: ApiClient, ada: ApiClient):
    by_hand = (await ask("POST", f"{JOBS}/report/run")).body
    await ask("POST", "/runs/claim", {"worker": "w", "agents": ["ada"], "limit": 1})
    run = InRun(ada, by_hand["id"])
    assert (await run.made("weekly", WEEKLY))["depth"] == 1
    for number in range(6):
        await run.made(f"once-{number}", ONCE)
    assert (await run("PATCH", f"{JOBS}/once-0", {"schedule": "every 1h"})).status == 200


@on_one_store
async def test_a_run_that_an_agent_starts_is_bounded_too(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    job = await run.made("once", ONCE)
    assert job["depth"] == 1
    started = (await run("POST", f"{JOBS}/once/run")).body
    assert (started["trigger"], started["depth"]) == ("agent", 1)
    await ask("POST", "/runs/claim", {"worker": "w", "agents": ["ada"], "limit": 1})
    inner = InRun(ada, started["id"])
    assert refused(await inner.add("weekly", WEEKLY)) == (403, "permission-denied")
    again = (await inner("POST", f"{JOBS}/once/run")).body
    assert again["depth"] == 2


@on_one_store
async def test_a_backfill_counts_its_runs(ask: ApiClient, ada: ApiClient):
    await ada("POST", JOBS, {"name": "own", "schedule": "every 1h", "startAt": 0})
    run = await in_run(ask, ada)
    hour = 3_600_000
    assert refused(await run("POST", f"{JOBS}/own/backfill", {"start": 0, "end": 5 * hour}))[0] == 429
    assert (await run("POST", f"{JOBS}/own/backfill", {"start": 0, "end": 4 * hour})).status == 200
    assert refused(await run.add("once", ONCE))[0] == 429


Way = Callable[[InRun, int], Awaitable[Reply]]
HOUR = 3_600_000


async def send(run: InRun, id: str) -> Reply:
    event = {"specversion": "1.0", "type": "go", "source": "/tests", "id": id}
    return await run("POST", "/agents/ada/signals?instance=eu", event)


#: All ways in which a call in a run can start something.
WAYS: dict[str, Way] = {
    "job": lambda run, n: run.add(f"once-{n}", ONCE),
    "upsert": lambda run, n: run("PUT", f"{JOBS}/once-{n}", ONCE),
    "recurring job": lambda run, n: run.add(f"weekly-{n}", WEEKLY),
    "change": lambda run, n: run("PATCH", f"{JOBS}/own", {"schedule": f"every {n + 2}h"}),
    "run": lambda run, n: run("POST", f"{JOBS}/own/run"),
    "backfill": lambda run, n: run("POST", f"{JOBS}/own/backfill", {"start": n * HOUR, "end": n * HOUR}),
    "message": lambda run, n: run("POST", "/agents/ada/messages", {"message": "go on", "session": f"s{n}"}),
    "signal": lambda run, n: send(run, f"{n}"),
    "instance": lambda run, n: run("POST", f"/agents/ada/instances/i{n}/start"),
    "trigger URL": lambda run, n: run("POST", f"{JOBS}/own/hook"),
}


class Ada(Agent):
    """An agent class that goes on by itself."""

    name = "ada"

    @on("go")
    async def go(self, signal, ctx):
        return [
            Emit(Signal("emitted"), to=SELF),
            Delay(1, "later"),
            Delay(1, "forgotten", durable=False),
            SetCron("0 9 * * 1", "weekly", "weekly"),
        ]

    @on("*")
    async def rest(self, signal, ctx): ...


@pytest.mark.parametrize("way", WAYS)
@on_one_store
async def test_whatever_a_run_starts_counts_and_is_deeper(ask: ApiClient, ada: ApiClient, way: str):
    start = WAYS[way]
    await ask("PUT", "/agents/ada", {"selfScheduling": {"recurring": True}, "queue": {"debounceMs": 0}})
    await ada("POST", JOBS, {"name": "own", "schedule": "every 1h", "startAt": 0})
    ask.app.agent(Ada)
    run = await in_run(ask, ada, job=None)
    replies = [await start(run, number) for number in range(5)]
    assert all(reply.status < 300 for reply in replies), replies
    assert refused(await start(run, 5)) == (429, "resource-exhausted")
    assert refused(await run.add("once", ONCE)) == (429, "resource-exhausted")
    deep = await in_run(ask, ada, job=None, depth=3)
    assert refused(await start(deep, 6)) == (403, "permission-denied")


async def test_what_a_handler_starts_is_as_deep_as_its_run(ask: ApiClient, ada: ApiClient):
    ask.app.agent(Ada)
    run = await in_run(ask, ada, job=None, depth=1)
    sent = await send(run, "1")
    assert sent.status == 202, sent

    async def depths() -> dict[str, int]:
        runs = (await ask("GET", "/agents/ada/runs", trigger="signal")).body["runs"]
        return {each["signal"]: each["depth"] for each in runs}

    async def all_arrived() -> bool:
        return (await depths()).keys() == {"go", "emitted", "later", "forgotten"}

    await eventually(all_arrived)
    assert set((await depths()).values()) == {2}
    jobs = (await ask("GET", JOBS)).body["jobs"]
    assert [job["depth"] for job in jobs if job["name"] != "report"] == [2]


# --- changes of jobs -------------------------------------------------------------------------------------


async def test_an_update_in_a_scheduled_run_does_not_get_around_the_bounds(ask: ApiClient, ada: ApiClient):
    await ada("POST", JOBS, {"name": "weekly", **WEEKLY})
    await ada("POST", JOBS, {"name": "off", **WEEKLY, "enabled": False})
    run = await in_run(ask, ada)
    await run.made("once", ONCE)
    tried = [
        await run("PATCH", f"{JOBS}/once", {"schedule": "every 1m"}),
        await run("PUT", f"{JOBS}/once", WEEKLY),
        await run("PATCH", f"{JOBS}/once", {"schedule": None, "after": "report"}),
        await run("PATCH", f"{JOBS}/once", {"on": EVENT}),
        await run("PATCH", f"{JOBS}/weekly", {"on": EVENT}),
        await run("PATCH", f"{JOBS}/weekly", {"schedule": "every 1m"}),
        await run("PATCH", f"{JOBS}/off", {"enabled": True}),
        await run("POST", f"{JOBS}/off/resume"),
        await run("POST", f"{JOBS}/off/pause", {"until": "in 1m"}),
    ]
    assert [refused(each) for each in tried] == [(403, "permission-denied")] * len(tried)
    many = (await run("POST", "/jobs/resume", {"jobs": ["off"], "agent": "ada"})).body
    assert (many["count"], many["errors"][0]["code"]) == (0, "permission-denied")
    assert (await run("PATCH", f"{JOBS}/weekly", {"message": "other words"})).status == 200
    assert (await run("PUT", f"{JOBS}/weekly", {**WEEKLY, "message": "other words"})).status == 200
    assert (await run("POST", f"{JOBS}/weekly/pause")).status == 200
    assert refused(await run("POST", f"{JOBS}/weekly/resume"))[0] == 403
    moved = (await run("PATCH", f"{JOBS}/once", {"schedule": "in 40m"})).body
    assert moved["depth"] == 1
    assert (await ada("POST", f"{JOBS}/weekly/resume")).status == 200


@on_one_store
async def test_a_one_time_job_that_moves_itself_gets_deeper(ask: ApiClient, ada: ApiClient):
    first = await in_run(ask, ada)
    await first.made("once", ONCE)
    second = await in_run(ask, ada, job="once", depth=1)
    assert (await second("PATCH", f"{JOBS}/once", {"schedule": "in 1h"})).body["depth"] == 2
    assert (await second("POST", f"{JOBS}/once/pause")).body["depth"] == 2
    assert (await second("POST", f"{JOBS}/once/resume")).body["depth"] == 2
    third = await in_run(ask, ada, job="once", depth=2)
    assert (await third("POST", f"{JOBS}/once/pause")).status == 200
    assert (await third("POST", "/jobs/resume", {"jobs": ["once"], "agent": "ada"})).body["count"] == 1
    assert (await ask("GET", f"{JOBS}/once")).body["depth"] == 3


async def test_remote_procedure_calls_have_the_same_bounds(ask: ApiClient, ada: ApiClient):
    await ada("POST", JOBS, {"name": "off", **WEEKLY, "enabled": False})
    run = await in_run(ask, ada)
    async with calling(ada, headers={"x-wakeful-run-id": run.run_id}) as call:
        await call("cron.create", agentId="ada", name="once", **ONCE)
        for method, params in (
            ("cron.create", {"name": "weekly", **WEEKLY}),
            ("cron.update", {"jobId": "once", "patch": {"schedule": "every 1m"}}),
            ("cron.toggle", {"jobId": "off", "enabled": True}),
        ):
            with pytest.raises(Refused) as error:
                await call(method, agentId="ada", **params)
            assert error.value.code == "permission-denied", method
    assert await names(ask) == ["off", "once"]


@on_one_store
async def test_a_scheduled_run_creates_no_trigger_url(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    await run.made("once", ONCE)
    reply = await run("POST", f"{JOBS}/once/hook")
    assert refused(reply) == (403, "permission-denied")
    assert reply.body["detail"].startswith("trigger URL of job 'once': no person started")
    assert (await ada("POST", f"{JOBS}/once/hook")).status in (200, 201)
    await ask("PUT", "/agents/ada", {"approval": "required"})
    assert refused(await ada("POST", f"{JOBS}/once/hook")) == (403, "permission-denied")


async def test_what_follows_a_deep_run_is_as_deep(ask: ApiClient, ada: ApiClient):
    """Neither a heartbeat nor a follower that a person made starts the chain anew."""
    await ask("PUT", "/agents/ada", {"heartbeat": {"every": "365d"}})
    await ask("POST", JOBS, {"name": "then", "after": "once"})
    first = await in_run(ask, ada, depth=1)
    await first.made("once", {**ONCE, "wakeHeartbeat": True})
    run = await in_run(ask, ada, job="once", depth=2)
    await run.end()
    claim = {"worker": "w", "agents": ["ada"], "limit": 10, "waitMs": 20_000}
    found: dict[str, dict[str, Any]] = {}
    while found.keys() != {"then", "heartbeat"}:
        found |= {each["job"]: each for each in (await ask("POST", "/runs/claim", claim)).body["runs"]}
    triggers = {name: (each["trigger"], each["depth"]) for name, each in found.items()}
    assert triggers == {"then": ("chain", 2), "heartbeat": ("heartbeat", 2)}
    assert (await InRun(ada, found["heartbeat"]["id"]).made("again", ONCE))["depth"] == 3


# --- whose run it is -------------------------------------------------------------------------------------


async def test_the_run_must_be_a_running_one_of_the_agent(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    foreign = InRun(ada, (await in_run(ask, ask, agent="ben", job=None)).run_id)
    for unknown in (foreign, InRun(ada, UNKNOWN), InRun(ada, "nonsense"), InRun(ask, UNKNOWN)):
        assert refused(await unknown.add("once", ONCE)) == (404, "not-found")
        assert refused(await unknown("POST", f"{JOBS}/report/run")) == (404, "not-found")
    pending = (await ask("POST", f"{JOBS}/report/run")).body
    assert refused(await InRun(ada, pending["id"]).add("once", ONCE)) == (409, "failed-precondition")
    await run.made("once", ONCE)
    await run.end()
    ended = await run.add("late", ONCE)
    assert refused(ended) == (409, "failed-precondition")
    assert "unset WAKEFUL_RUN_ID" in ended.body["detail"]
    assert refused(await run("PATCH", f"{JOBS}/once", {"message": "x"}))[0] == 409
    assert (await run("GET", f"{JOBS}/once")).status == 200


@on_one_store
async def test_the_run_of_another_workspace_is_not_found(ask: ApiClient, ada: ApiClient):
    await ask("PUT", "/api/workspaces/acme", {})
    run = await in_run(ask, ask)
    reply = await run("POST", "/api/workspaces/acme/agents/ada/jobs", {"name": "once", **ONCE})
    assert refused(reply) == (404, "not-found")


async def test_a_job_is_not_made_when_the_run_ends_meanwhile(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    replies = await asyncio.gather(*(run.add(f"once-{n}", ONCE) for n in range(4)), run.end())
    made = [f"once-{n}" for n, reply in enumerate(replies[:4]) if reply and reply.status == 201]
    assert await names(ask) == made
    assert {reply.status for reply in replies[:4] if reply} <= {201, 409}


@on_one_store
async def test_a_call_in_a_run_is_bounded_with_every_key(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ask)
    assert refused(await run.add("weekly", WEEKLY)) == (403, "permission-denied")
    job = await run.made("once", ONCE)
    assert (job["depth"], job["catchupPolicy"]) == (1, "none")
    for _ in range(6):  # what people made, a program may start as often as it needs
        woken = await run("POST", "/agents/ada/runs", {})
        assert (woken.status, woken.body["trigger"], woken.body["depth"]) == (201, "agent", 1)
    confirmed = await run("POST", f"/runs/{run.run_id}/verify", {"verified": True})
    assert refused(confirmed) == (403, "permission-denied")
    loosened = await run("PUT", "/agents/ada", {"selfScheduling": {"recurring": True}})
    assert refused(loosened) == (403, "permission-denied")
    for role in ({"role": "admin"}, {"role": "member"}, {"role": "agent", "agent": "ada"}):
        assert refused(await run("POST", "/keys", role)) == (403, "permission-denied")
    assert refused(await run("POST", "/api/sign-in-links")) == (403, "permission-denied")
    assert (await run("PUT", "/agents/ada", {"tz": "Europe/Berlin"})).status == 200


@on_one_store
async def test_without_the_header_a_key_acts_outside_a_run_unless_that_is_forbidden(
    ask: ApiClient, ada: ApiClient
):
    run = await in_run(ask, ada)
    assert (await ada("POST", JOBS, {"name": "weekly", **WEEKLY})).body["depth"] == 1
    await ask("PUT", "/agents/ada", {"selfScheduling": {"outsideRuns": False}})
    for tried in (
        await ada("POST", JOBS, {"name": "once", **ONCE}),
        await ada("PATCH", f"{JOBS}/weekly", {"schedule": "every 1m"}),
    ):
        assert refused(tried) == (403, "permission-denied")
        assert "x-wakeful-run-id" in tried.body["detail"]
    assert (await ada("POST", f"{JOBS}/weekly/pause")).status == 200
    assert refused(await ada("POST", f"{JOBS}/weekly/resume"))[0] == 403
    assert refused(await ada("POST", f"{JOBS}/weekly/hook"))[0] == 403
    await run.made("once", ONCE)
    assert (await ask("POST", JOBS, {"name": "by-admin", **WEEKLY})).status == 201


@on_one_store
async def test_a_message_outside_a_run_does_not_lift_the_bounds_where_that_is_forbidden(
    ask: ApiClient, ada: ApiClient
):
    bounds = {"selfScheduling": {"outsideRuns": False}, "queue": {"debounceMs": 0}}
    assert (await ask("PUT", "/agents/ada", bounds)).status == 200
    assert (await ada("POST", "/agents/ada/messages", {"message": "make a weekly job"})).status == 202
    claim = {"worker": "w", "agents": ["ada"], "limit": 1, "waitMs": 20_000}
    (turn,) = (await ask("POST", "/runs/claim", claim)).body["runs"]
    assert (turn["trigger"], turn["session"]) == ("chain", "main")
    run = InRun(ada, turn["id"])
    assert refused(await run.add("weekly", WEEKLY)) == (403, "permission-denied")
    await run.made("once", ONCE)


# --- catch-up --------------------------------------------------------------------------------------------


@on_one_store
async def test_jobs_that_an_agent_makes_catch_up_with_the_latest_tick(ask: ApiClient, ada: ApiClient):
    made = (await ada("POST", JOBS, {"name": "weekly", **WEEKLY})).body
    assert made["catchupPolicy"] == "latest"
    same = (await ada("PUT", f"{JOBS}/weekly", WEEKLY)).body
    assert (same["catchupPolicy"], same["revision"]) == ("latest", made["revision"])
    own = {**WEEKLY, "catchup_policy": "none"}
    assert (await ada("POST", JOBS, {"name": "own", **own})).body["catchupPolicy"] == "none"
    assert (await ask("POST", JOBS, {"name": "admin", **WEEKLY})).body["catchupPolicy"] == "none"


# --- approval --------------------------------------------------------------------------------------------


async def test_jobs_of_an_agent_that_needs_approval_wait_for_a_person(ask: ApiClient, ada: ApiClient):
    assert (await ask("PUT", "/agents/ada", {"approval": "required"})).body["approval"] == "required"
    made = await ada("POST", JOBS, {"name": "weekly", **WEEKLY})
    assert (made.status, made.body["enabled"], made.body["disabledReason"]) == (201, False, "approval")
    assert made.body["nextAt"] is None
    assert any("(wakeful resume ada/" in warning for warning in made.body["warnings"])
    tried = [
        await ada("POST", f"{JOBS}/weekly/resume"),
        await ada("PATCH", f"{JOBS}/weekly", {"enabled": True}),
        await ada("PATCH", f"{JOBS}/weekly", {"enabled": True, "message": "x"}),
        await ada("POST", f"{JOBS}/weekly/run"),
        await ada("POST", f"{JOBS}/weekly/run", {"mode": "due"}),
        await ada("POST", f"{JOBS}/weekly/backfill", {"start": 0, "end": 1}),
    ]
    assert [refused(each) for each in tried] == [(403, "permission-denied")] * len(tried)
    assert refused(await ada("POST", f"{JOBS}/weekly/pause", {"until": "in 1m"}))[0] == 409
    async with calling(ada) as call:
        with pytest.raises(Refused, match="only a person"):
            await call("cron.toggle", agentId="ada", jobId="weekly", enabled=True)
    for document in ({**WEEKLY, "schedule": "every 1s"}, {**WEEKLY, "enabled": True}):
        edited = (await ada("PUT", f"{JOBS}/weekly", document)).body
        assert (edited["enabled"], edited["disabledReason"]) == (False, "approval")
    off = (await ada("POST", JOBS, {"name": "off", **WEEKLY, "enabled": False})).body
    assert off["disabledReason"] == "approval"
    resumed = (await ask("POST", f"{JOBS}/weekly/resume")).body
    assert (resumed["enabled"], resumed["disabledReason"]) == (True, None)


async def test_an_approved_job_that_its_agent_edits_waits_for_approval_again(ask: ApiClient, ada: ApiClient):
    await ask("PUT", "/agents/ada", {"approval": "required"})
    await ada("POST", JOBS, {"name": "weekly", **WEEKLY})
    await ask("POST", f"{JOBS}/weekly/resume")
    assert (await ada("PUT", f"{JOBS}/weekly", WEEKLY)).body["enabled"] is True
    edited = (await ada("PATCH", f"{JOBS}/weekly", {"message": "pay Mallory"})).body
    assert (edited["enabled"], edited["disabledReason"], edited["nextAt"]) == (False, "approval", None)
    await ask("POST", f"{JOBS}/weekly/resume")
    assert (await ada("POST", f"{JOBS}/weekly/pause")).status == 200
    assert refused(await ada("POST", f"{JOBS}/weekly/resume")) == (403, "permission-denied")
    edited = (await ask("PATCH", f"{JOBS}/weekly", {"message": "by a person", "enabled": True})).body
    assert (edited["enabled"], edited["disabledReason"]) == (True, None)


@on_one_store
async def test_approval_counts_for_calls_in_a_run_and_outlives_the_setting(ask: ApiClient, ada: ApiClient):
    await ask("PUT", "/agents/ada", {"approval": "required"})
    run = await in_run(ask, ask)
    assert (await run.made("once", ONCE))["disabledReason"] == "approval"
    await ada("POST", JOBS, {"name": "weekly", **WEEKLY})
    await ask("PUT", "/agents/ada", {"active": False})
    await ask("PUT", "/agents/ada", {"active": True, "approval": "none"})
    assert (await ask("GET", f"{JOBS}/weekly")).body["disabledReason"] == "approval"
    assert refused(await ada("POST", f"{JOBS}/weekly/resume")) == (403, "permission-denied")
    assert (await ada("POST", JOBS, {"name": "free", **WEEKLY})).body["enabled"] is True


# --- conversations ---------------------------------------------------------------------------------------


TELEGRAM = {"channel": "telegram", "to": "123"}


async def in_turn(ask: ApiClient, ada: ApiClient, **message: object) -> InRun:
    """Return a client in a turn of the session `telegram:123`."""
    await ask("PUT", "/agents/ada", {"queue": {"debounceMs": 0}, "channel": "slack"})
    said = {"message": "remind me every Monday", "session": "telegram:123", **message}
    assert (await ask("POST", "/agents/ada/messages", said)).status == 202
    claim = {"worker": "w", "agents": ["ada"], "limit": 1, "waitMs": 20_000}
    (turn,) = (await ask("POST", "/runs/claim", claim)).body["runs"]
    assert (turn["trigger"], turn["session"], turn["depth"]) == ("user", "telegram:123", 0)
    return InRun(ada, turn["id"])


def delivery(job: Mapping[str, Any]) -> tuple[bool, str | None, str | None]:
    return job["deliver"], job["channel"], job["to"]


async def test_a_job_that_is_made_in_a_conversation_delivers_there(ask: ApiClient, ada: ApiClient):
    turn = await in_turn(ask, ada, **TELEGRAM)
    weekly = await turn.made("weekly", WEEKLY)
    assert weekly["origin"] == {"session": "telegram:123", **TELEGRAM}
    assert delivery(weekly) == (True, "telegram", "123")
    assert delivery(await turn.made("said", {**WEEKLY, "deliver": True})) == (True, "telegram", "123")
    assert delivery(await turn.made("quiet", {**WEEKLY, "deliver": False})) == (False, None, None)
    assert delivery(await turn.made("own", {**WEEKLY, "channel": "slack"})) == (True, "slack", None)
    for other in ({"channel": "telegram", "to": "456"}, {"channel": "mail"}, {"to": "456"}):
        assert refused(await turn.add("elsewhere", {**WEEKLY, **other})) == (403, "permission-denied")
    quiet = (await turn("PATCH", f"{JOBS}/quiet", {"deliver": True, **TELEGRAM})).body
    assert delivery(quiet) == (True, "telegram", "123")
    assert refused(await turn("PATCH", f"{JOBS}/quiet", {"to": "456"}))[0] == 403


async def test_jobs_in_runs_of_a_job_have_its_conversation(ask: ApiClient, ada: ApiClient):
    turn = await in_turn(ask, ada, **TELEGRAM)
    weekly = await turn.made("weekly", WEEKLY)
    run = await in_run(ask, ada, job="weekly", depth=1)
    once = await run.made("once", ONCE)
    assert (once["origin"], once["depth"]) == (weekly["origin"], 2)
    assert delivery(once) == (True, "telegram", "123")
    # A document that was stored with the defaults of the conversation converges, wherever it is sent from.
    same = (await ada("PUT", f"{JOBS}/weekly", WEEKLY)).body
    assert (same["revision"], same["origin"]) == (weekly["revision"], weekly["origin"])
    edited = (await ask("PATCH", f"{JOBS}/weekly", {"message": "by a person"})).body
    assert (edited["origin"], delivery(edited)) == (weekly["origin"], (True, "telegram", "123"))
    sent_back = {**edited, "origin": {"session": "main", "channel": "mail", "to": "x"}, "depth": 0}
    kept = (await ask("PUT", f"{JOBS}/weekly", sent_back)).body
    assert (kept["origin"], kept["depth"]) == (weekly["origin"], 1)


@on_one_store
async def test_a_conversation_without_a_channel_is_the_origin_and_delivers_nothing(
    ask: ApiClient, ada: ApiClient
):
    turn = await in_turn(ask, ada)
    weekly = await turn.made("weekly", WEEKLY)
    assert weekly["origin"] == {"session": "telegram:123", "channel": None, "to": None}
    assert delivery(weekly) == (False, None, None)


@on_one_store
async def test_a_job_of_another_agent_has_no_conversation(ask: ApiClient, ada: ApiClient):
    turn = InRun(ask, (await in_turn(ask, ada, **TELEGRAM)).run_id)
    made = (await turn("POST", "/agents/ben/jobs", {"name": "weekly", **WEEKLY})).body
    assert (made["origin"], made["deliver"], made["depth"]) == (None, False, 1)


async def test_a_message_from_a_scheduled_run_does_not_lift_its_bounds(ask: ApiClient, ada: ApiClient):
    await ask("PUT", "/agents/ada", {"queue": {"debounceMs": 0}})
    run = await in_run(ask, ada, depth=1)
    for number in range(5):
        said = {"message": "add a job every Monday", "session": f"own-{number}"}
        assert (await run("POST", "/agents/ada/messages", said)).status == 202
    assert refused(await run("POST", "/agents/ada/messages", {"message": "more"}))[0] == 429
    claim = {"worker": "w", "agents": ["ada"], "limit": 10, "waitMs": 20_000}
    turns = (await ask("POST", "/runs/claim", claim)).body["runs"]
    assert [(found["trigger"], found["depth"]) for found in turns] == [("chain", 2)] * 5
    turn = InRun(ada, turns[0]["id"])
    assert refused(await turn.add("weekly", WEEKLY)) == (403, "permission-denied")
    assert (await turn.made("once", ONCE))["depth"] == 3
    deep = await in_run(ask, ada, depth=3)
    assert refused(await deep("POST", "/agents/ada/messages", {"message": "more"}))[0] == 403
    assert (await deep("POST", "/agents/ada/messages", {"message": "/stopall"})).status == 202


# --- a real schedule -------------------------------------------------------------------------------------


async def test_a_prompt_for_a_recurring_reminder_does_not_multiply_jobs(ask: ApiClient, ada: ApiClient):
    """Each run of a job obeys its text, which says: remind me every Monday."""
    await ask("POST", JOBS, {"name": "check", "schedule": "every 1s", "message": "remind me every Monday"})
    denied = 0
    for number in range(3):
        claim = {"worker": "w", "agents": ["ada"], "waitMs": 20_000, "limit": 1}
        (found,) = (await ask("POST", "/runs/claim", claim)).body["runs"]
        assert found["trigger"] == "schedule"
        run = InRun(ada, found["id"])
        for attempt in range(3):
            reply = await run.add(f"remind-{number}-{attempt}", WEEKLY)
            denied += reply.status == 403
        await run.end()
    assert denied == 9
    assert await names(ask) == ["check"]


@on_one_store
async def test_what_a_run_makes_is_in_the_audit_log(ask: ApiClient, ada: ApiClient):
    run = await in_run(ask, ada)
    await run.made("once", ONCE)
    entries = (await ask("GET", "/audit")).body["entries"]
    (entry,) = [each for each in entries if each["subject"] == "ada/once"]
    assert (entry["action"], entry["details"]["inRun"]) == ("job.create", run.run_id)
