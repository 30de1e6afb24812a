"""Heartbeats: the internal job that runs an agent periodically, and its active hours."""

from __future__ import annotations

import time
from typing import Any

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.admin.test_channel_alerts import messages, posts, to_channels
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.document.agents import DEFAULT_MESSAGE
from wakeful.model import Run
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings
from wakeful.store.rows import JobChange

LOOK = {"kind": "function", "name": "look"}
BEAT = "/agents/ada/jobs/heartbeat"


def hours(start: int, end: int) -> str:
    """Return a range of UTC hours relative to now."""
    now = time.time() // 3600 % 24
    return f"{(now + start) % 24:02.0f}:00-{(now + end) % 24:02.0f}:00"


NOW, LATER = hours(-2, 3), hours(4, 6)


def looking(app: Wakeful) -> Wakeful:
    """Register `look`, which returns HEARTBEAT_OK, and `fail`, which always fails."""

    @app.function()
    async def look() -> str:
        return "HEARTBEAT_OK"

    @app.function()
    async def fail() -> None:
        raise ValueError("no")

    return app


async def put(app: Wakeful, heartbeat: object, **fields: object) -> None:
    document = {"target": LOOK, "heartbeat": heartbeat, **fields}
    await app.services.agents.put(LOCAL, "default", "ada", document)


async def add(app: Wakeful, name: str, **fields: object) -> None:
    document = {"name": name, "schedule": SELDOM, **fields}
    await app.services.jobs.create(LOCAL, "default", "ada", document)


async def run(app: Wakeful, name: str) -> Run:
    """Run a job of the agent manually and wait until it is over."""
    started = await app.services.jobs.trigger(LOCAL, "default", "ada", name)
    assert started is not None
    return await app.runs.wait(started.id, poll=0.01)


async def beats(app: Wakeful) -> list[Run]:
    """Return the finished runs of the heartbeat, newest first."""
    runs = await app.runs.of("ada").list()
    return [each for each in runs if each.job == "heartbeat" and each.finished_at is not None]


# --- the job -------------------------------------------------------------------------------------------


async def test_a_heartbeat_runs_within_its_active_hours(new_app: NewApp):
    async with looking(new_app()) as app:
        await put(app, {"every": "1s", "activeHours": NOW, "tz": "UTC"})
        beat = (await eventually(lambda: beats(app)))[-1]
    assert (beat.trigger, beat.state, beat.output) == ("schedule", "succeeded", "HEARTBEAT_OK")


@on_one_store
async def test_the_heartbeat_job_is_built_from_the_agent_document(ask: ApiClient):
    made = await ask("PUT", "/agents/ada", {"tz": "Europe/Berlin", "heartbeat": True})
    assert (made.status, made.body["heartbeat"]) == (201, {"everyMs": 1_800_000})
    job = (await ask("GET", BEAT)).body
    assert job["schedule"] == {"kind": "every", "everyMs": 1_800_000, "tz": "Europe/Berlin"}
    assert (job["message"], job["activeHours"], job["target"]) == (DEFAULT_MESSAGE, None, None)
    assert (job["deliver"], job["stateless"], job["lane"]) == (False, False, "cron")
    assert (job["overlapPolicy"], job["catchupPolicy"]) == ("skip", "none")
    assert job["labels"] == {"system": "heartbeat"}

    heartbeat = {
        "every": "15m", "activeHours": "8-22", "tz": "Asia/Tokyo", "message": "Look.", "stateless": True,
        "deliver": False, "channel": "team", "to": "ada",
    }  # fmt: skip
    kept = {**heartbeat, "everyMs": 900_000, "activeHours": "08:00-22:00"}
    del kept["every"]
    answer = await ask("PUT", "/agents/ada", {"target": LOOK, "heartbeat": heartbeat})
    assert (answer.status, answer.body["heartbeat"]) == (200, kept)
    job = (await ask("GET", BEAT)).body
    assert {name: job[name] for name in kept if name != "everyMs"} == {
        name: value for name, value in kept.items() if name != "everyMs"
    }
    assert (job["schedule"]["everyMs"], job["target"]) == (900_000, None)

    for none in (None, False):
        await ask("PUT", "/agents/ada", {"heartbeat": True})
        assert (await ask("PUT", "/agents/ada", {"heartbeat": none})).body["heartbeat"] is None
        assert (await ask("GET", BEAT)).status == 404


@on_one_store
async def test_a_heartbeat_is_delivered_by_default_if_there_is_a_channel(ask: ApiClient):
    documents: list[tuple[dict[str, Any], bool]] = [
        ({"heartbeat": True}, False),
        ({"channel": "team", "heartbeat": True}, True),
        ({"heartbeat": {"channel": "team"}}, True),
        ({"channel": "team", "heartbeat": {"deliver": False}}, False),
    ]
    for document, deliver in documents:
        await ask("PUT", "/agents/ada", document)
        assert (await ask("GET", BEAT)).body["deliver"] is deliver, document


async def test_the_same_document_again_changes_nothing(new_app: NewApp):
    async with looking(new_app()) as app:
        heartbeat = {"every": "1h", "activeHours": NOW}
        for paused in (False, True):
            await put(app, heartbeat)
            if paused:
                await app.services.jobs.pause(LOCAL, "default", "ada", "heartbeat")
            before = await app.services.jobs.get(LOCAL, "default", "ada", "heartbeat")
            agent = await app.services.agents.get(LOCAL, "default", "ada")
            await put(app, heartbeat)
            assert await app.services.jobs.get(LOCAL, "default", "ada", "heartbeat") == before
            assert await app.services.agents.get(LOCAL, "default", "ada") == agent
            assert before.enabled is not paused
        await put(app, {**heartbeat, "message": "Look again."})
        changed = await app.services.jobs.get(LOCAL, "default", "ada", "heartbeat")
    assert (changed.definition.work.message, changed.enabled) == ("Look again.", False)
    assert (changed.id, changed.anchor_ms) == (before.id, before.anchor_ms)


@on_one_store
async def test_a_heartbeat_uses_the_target_of_its_agent_and_is_disabled_with_it(
    new_app: NewApp, receiver: Receiver
):
    async with looking(new_app()) as app:
        await put(app, True, target={"kind": "webhook", "url": receiver.url})
        assert (await run(app, "heartbeat")).state == "succeeded"
        assert len(receiver.requests) == 1
        await put(app, True)
        assert (await run(app, "heartbeat")).output == "HEARTBEAT_OK"
        await put(app, True, active=False)
        job = await app.services.jobs.get(LOCAL, "default", "ada", "heartbeat")
        assert (job.enabled, job.disabled_reason) == (False, "agent_inactive")
        await put(app, True)
        assert (await app.services.jobs.get(LOCAL, "default", "ada", "heartbeat")).enabled


async def test_a_heartbeat_is_deleted_with_its_agent(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"heartbeat": True, "alerts": {"url": "http://127.0.0.1:1/"}})
    await ask("PUT", "/agents/ada/jobs/digest", {"schedule": SELDOM})
    kept = await ask("DELETE", "/agents/ada")
    assert (kept.status, kept.code) == (409, "failed-precondition")
    assert (await ask("GET", BEAT)).status == 200
    await ask("DELETE", "/agents/ada/jobs/digest")
    assert (await ask("DELETE", "/agents/ada")).status == 204
    assert (await ask("GET", "/jobs")).body["jobs"] == []


@on_one_store
async def test_the_audit_records_who_created_and_deleted_a_heartbeat(ask: ApiClient):
    for heartbeat in (True, True, None):
        await ask("PUT", "/agents/ada", {"heartbeat": heartbeat})
    entries = (await ask("GET", "/audit")).body["entries"]
    of_job = [entry for entry in reversed(entries) if entry["subject"] == "ada/heartbeat"]
    assert [entry["action"] for entry in of_job] == ["job.create", "job.delete"]
    assert all(entry["actor"].startswith("key:") for entry in of_job)


@on_one_store
async def test_a_heartbeat_counts_towards_no_quota(ask: ApiClient):
    for bucket in ("scheduler.createJob", "scheduler.liveJobs"):
        limit = {"bucket": bucket, "limit": 0}
        assert (await ask("PUT", "/quotas", limit)).status == 200
    assert (await ask("PUT", "/agents/ada/jobs/digest", {"schedule": SELDOM})).status == 429
    assert (await ask("PUT", "/agents/ada", {"heartbeat": True})).status == 201
    assert (await ask("GET", BEAT)).status == 200


# --- permissions -----------------------------------------------------------------------------------------


@on_one_store
async def test_an_agent_key_can_read_its_heartbeat_but_not_change_it(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"heartbeat": True})
    ada = await ask.new("agent", agent="ada")
    before = await ada("GET", BEAT)
    assert before.status == 200
    for method, path, body in [
        ("PUT", BEAT, {"schedule": "every 1d"}),
        ("PATCH", BEAT, {"schedule": "every 1d"}),
        ("POST", f"{BEAT}/pause", None),
        ("POST", f"{BEAT}/run", None),
        ("DELETE", BEAT, None),
    ]:
        answer = await ada(method, path, body)
        assert (answer.status, answer.code) == (403, "permission-denied"), (method, path)
    assert (await ada("GET", BEAT)).body == before.body
    made = await (await ask.new("agent", agent="bob"))(
        "POST", "/agents/bob/jobs", {"name": "heartbeat", "schedule": SELDOM}
    )
    assert made.status == 403


@on_one_store
async def test_an_agent_key_can_claim_and_complete_heartbeats(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"heartbeat": {"every": "1s", "activeHours": NOW}})
    ada = await ask.new("agent", agent="ada")
    (given,) = (await ada("POST", "/runs/claim", {"worker": "laptop", "waitMs": 60_000})).body["runs"]
    assert (given["job"], given["payload"]) == ("heartbeat", {"message": DEFAULT_MESSAGE})
    outcome = {"status": "succeeded", "attempt": given["attempt"], "output": "HEARTBEAT_OK"}
    done = await ada("POST", f"/runs/{given['id']}/complete", outcome)
    assert (done.status, done.body["state"]) == (200, "succeeded")


@on_one_store
async def test_an_admin_can_pause_and_a_member_can_run_a_heartbeat(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"target": {"kind": "function", "name": "nothing"}, "heartbeat": True})
    assert (await ask("POST", f"{BEAT}/pause")).body["enabled"] is False
    member = await ask.new("member")
    assert (await member("POST", f"{BEAT}/run")).body["trigger"] == "user"


# --- validation ------------------------------------------------------------------------------------------


REFUSED: list[tuple[object, str]] = [
    ("30m", "heartbeat: '30m' is not a heartbeat; write true, null for none, or an object"),
    (30, "heartbeat: 30 is not a heartbeat"),
    ({"interval": "30m"}, "heartbeat: a heartbeat has no field 'interval'; it has everyMs, activeHours"),
    ({"every": 30}, "heartbeat: every: 30 is not a duration"),
    ({"every": "5ms"}, "heartbeat: everyMs: 5 is out of range; it goes from 1000"),
    ({"every": "30m", "everyMs": 5}, "heartbeat: every and everyMs are the same; give one of them"),
    ({"activeHours": "by day"}, "heartbeat: activeHours: 'by day' is not a range of hours"),
    ({"activeHours": ["08:00", "22:00"]}, "heartbeat: activeHours: ['08:00', '22:00'] is not text"),
    ({"tz": "Mars/Base"}, "heartbeat: tz: unknown time zone 'Mars/Base'"),
    ({"tz": 1}, "heartbeat: tz: 1 is not text; give the name of a zone, such as 'Europe/Berlin'"),
    ({"message": " "}, "heartbeat: message: it is empty"),
    ({"deliver": "yes"}, "heartbeat: deliver: 'yes' is neither true nor false"),
]


@on_one_store
async def test_an_invalid_heartbeat_is_refused_and_nothing_changes(ask: ApiClient):
    for heartbeat, said in REFUSED:
        answer = await ask("PUT", "/agents/ada", {"heartbeat": heartbeat})
        assert (answer.status, answer.code) == (422, "invalid-argument")
        assert said in answer.body["detail"]
        assert (await ask("GET", "/agents/ada")).status == 404


async def test_a_user_job_named_heartbeat_is_not_changed(ask: ApiClient):
    await ask("PUT", "/agents/ada/jobs/other", {"schedule": SELDOM})
    row = await ask.app.store.job("default", "ada", "other")
    assert row is not None
    # As in a database that is older than the reserved names.
    await ask.app.store.change_job(row.id, lambda old: JobChange(old._replace(name="heartbeat")))
    answer = await ask("PUT", "/agents/ada", {"description": "new", "heartbeat": True})
    assert (answer.status, answer.code) == (422, "invalid-argument")
    assert "agent 'ada' has a job 'heartbeat' that is not a heartbeat; delete" in answer.body["detail"]
    assert (await ask("GET", "/agents/ada")).body["description"] == ""
    await ask("PUT", "/agents/ada", {"heartbeat": None})
    assert (await ask("GET", BEAT)).status == 200
    assert (await ask("DELETE", "/agents/ada")).status == 409


@on_one_store
async def test_a_time_zone_outside_the_allowlist_is_refused(new_app: NewApp):
    app = new_app(settings=Settings(tz_allowlist=("Europe/Berlin",)))
    async with app, served(app) as ask:
        answer = await ask("PUT", "/agents/ada", {"heartbeat": {"tz": "Asia/Tokyo"}})
        assert answer.body["detail"].startswith("heartbeat: tz: 'Asia/Tokyo' is not allowed here")
        assert (await ask("GET", "/agents/ada")).status == 404


# --- active hours ----------------------------------------------------------------------------------------


async def test_a_heartbeat_outside_its_hours_is_skipped_unless_run_manually(new_app: NewApp):
    async with looking(new_app()) as app:
        await put(app, {"every": "1s", "activeHours": LATER, "tz": "UTC"})
        await add(app, "mail", wakeHeartbeat=True)
        by_hand = await run(app, "heartbeat")
        assert (by_hand.trigger, by_hand.state) == ("user", "succeeded")
        await run(app, "mail")

        async def both() -> dict[str, Run]:
            found = {str(beat.trigger): beat for beat in await beats(app)}
            return found if {"schedule", "heartbeat"} <= found.keys() else {}

        found = await eventually(both)
        assert {beat.state for beat in await beats(app) if beat.trigger != "user"} == {"skipped"}
    assert {each.reason for each in found.values()} == {None, "outside_hours"}
    start, end = LATER.split("-")
    assert found["heartbeat"].output == f"the job runs from {start} to {end} (UTC)"


async def test_runs_outside_the_hours_of_their_job_are_not_claimed(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"heartbeat": {"every": "1s", "activeHours": LATER, "tz": "UTC"}})
    await ask("PUT", "/agents/ada/jobs/mail", {"schedule": SELDOM, "wakeHeartbeat": True})
    asked = (await ask("POST", "/agents/ada/jobs/mail/run")).body
    (given,) = (await ask("POST", "/runs/claim", {"worker": "laptop", "waitMs": 60_000})).body["runs"]
    assert given["id"] == asked["id"]
    await ask("POST", f"/runs/{given['id']}/complete", {"status": "succeeded", "attempt": 1})

    async def both() -> list[Run]:
        found = await beats(ask.app)
        return found if {beat.trigger for beat in found} == {"schedule", "heartbeat"} else []

    found = await eventually(both)
    assert {(beat.state, beat.reason) for beat in found} == {("skipped", "outside_hours")}


async def test_a_run_that_is_unclaimed_when_its_hours_end_is_skipped(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"heartbeat": {"activeHours": NOW, "tz": "UTC"}})
    await ask("PUT", "/agents/ada/jobs/mail", {"schedule": SELDOM, "wakeHeartbeat": True})
    await ask("POST", "/agents/ada/jobs/mail/run")
    (mail,) = (await ask("POST", "/runs/claim", {"worker": "laptop", "waitMs": 60_000})).body["runs"]
    await ask("POST", f"/runs/{mail['id']}/complete", {"status": "succeeded", "attempt": 1})
    await ask("PUT", "/agents/ada", {"heartbeat": {"activeHours": LATER, "tz": "UTC"}})
    assert (await ask("POST", "/runs/claim", {"worker": "laptop"})).body["runs"] == []
    (beat,) = await beats(ask.app)
    assert (beat.trigger, beat.state, beat.reason) == ("heartbeat", "skipped", "outside_hours")
    assert beat.output is not None


async def test_a_tick_outside_its_hours_does_not_replace_the_active_run(new_app: NewApp):
    async with looking(new_app()) as app:
        pulled = {"target": {"kind": "pull"}, "overlapPolicy": "replace", "schedule": "every 1s"}
        await add(app, "watch", **pulled, activeHours=LATER)
        asked = await app.services.jobs.trigger(LOCAL, "default", "ada", "watch")
        (given,) = await app.services.runs.pull.claim(LOCAL, "default", "laptop", wait_ms=60_000)
        assert asked is not None
        assert given["id"] == asked.id

        async def skipped() -> bool:
            runs = await app.services.runs.list(LOCAL, "default", "ada")
            return any(each.reason == "outside_hours" for each in runs)

        await eventually(skipped)
        assert (await app.runs.get(asked.id)).state == "running"
        assert app.services.metrics.runs_skipped == 0, "for no other run of its job was in the way"


# --- wakes and deliveries --------------------------------------------------------------------------------


async def test_a_job_that_succeeds_wakes_the_heartbeat_and_one_that_fails_does_not(new_app: NewApp):
    async with looking(new_app()) as app:
        await put(app, True)
        fails = {"target": {"kind": "function", "name": "fail"}, "maxAttempts": 1}
        await add(app, "broken", **fails, wakeHeartbeat=True)
        await add(app, "quiet")
        await add(app, "mail", wakeHeartbeat=True)
        assert (await run(app, "broken")).state == "failed"
        assert (await run(app, "quiet")).state == "succeeded"
        mail = await run(app, "mail")
        (beat,) = await eventually(lambda: beats(app))
    assert (beat.trigger, beat.triggered_by, beat.state) == ("heartbeat", mail.id, "succeeded")


async def test_heartbeat_outputs_are_delivered_except_heartbeat_ok(new_app: NewApp, receiver: Receiver):
    app = new_app(settings=to_channels(team=posts(receiver)))
    answers = iter(["HEARTBEAT_OK", "The disk is full."])

    @app.function()
    async def look() -> str:
        return next(answers)

    async with app:
        await put(app, True, channel="team")
        quiet, loud = await run(app, "heartbeat"), await run(app, "heartbeat")
        await eventually(lambda: messages(receiver))

        async def known() -> bool:
            became = [(await app.runs.get(each.id)).delivery for each in (quiet, loud)]
            return became == ["suppressed", "delivered"]

        await eventually(known)
    assert [message["message"] for message in messages(receiver)] == ["The disk is full."]
