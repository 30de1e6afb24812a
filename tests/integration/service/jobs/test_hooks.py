"""Trigger URLs over HTTP: how they run a job, what they refuse, and that no token is shown again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient, Reply, served
from wakeful import Launch, NotFound, Wakeful
from wakeful.errors import FailedPrecondition
from wakeful.launch.secrets import ROTATION_MS
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.rate_limits import RateLimited, RateLimiter
from wakeful.settings import Settings, active_settings
from wakeful.store.rows import RunFilter, RunView
from wakeful.values.json_value import Json

_DEPLOY: dict[str, object] = {
    "name": "deploy",
    "schedule": SELDOM,
    "target": {"kind": "pull"},
    "payload": {"own": True},
}


class Sender:
    """An outside system that knows only a URL."""

    def __init__(self, ask: ApiClient, url: str) -> None:
        self._ask = ask.with_key(None)
        self._url = url

    async def __call__(
        self, data: object = None, method: str = "POST", query: str = "", **headers: str
    ) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = self._url.removeprefix(self._ask.url)
        async with self._ask.session.request(
            method, self._ask.url + path + query, data=data, headers=named
        ) as response:
            is_json = "json" in response.headers.get("content-type", "")
            return Reply(
                response.status, response.headers, await response.json(content_type=None) if is_json else ""
            )


async def _hooked(ask: ApiClient, document: dict[str, object] = _DEPLOY) -> Sender:
    """Create the job and its trigger URL."""
    assert (await ask("PUT", f"{JOBS}/{document['name']}", document)).status == 201
    return await _new_url(ask, str(document["name"]))


async def _new_url(ask: ApiClient, name: str = "deploy") -> Sender:
    created = await ask("POST", f"{JOBS}/{name}/hook")
    assert created.status == 201, created
    return Sender(ask, created.body["url"])


async def _runs(ask: ApiClient) -> list[RunView]:
    return await ask.app.services.store.runs(RunFilter("default"))


async def test_a_post_to_the_url_runs_the_job_with_the_body_as_payload(ask: ApiClient):
    created = await _create(ask)
    send = Sender(ask, created.body["url"])
    reply = await send(b'{"ref": "main"}', Content_Type="application/json")
    assert reply.status == 202
    (run,) = await _runs(ask)
    assert reply.body == {"id": run.id, "job": "deploy", "state": "pending", "trigger": "hook"}
    assert (run.trigger, run.triggered_by) == ("hook", f"hook:{created.body['id']}")
    shown = (await ask("GET", f"/runs/{run.id}")).body
    assert (shown["payload"], shown["trigger"]) == ({"ref": "main"}, "hook")
    claimed = await ask("POST", "/runs/claim", {"worker": "w", "limit": 1})
    assert claimed.body["runs"][0]["payload"] == {"ref": "main"}
    listed = (await ask("GET", "/runs", trigger="hook")).body["runs"]
    assert [each["id"] for each in listed] == [run.id]


async def test_a_job_without_a_schedule_is_started_by_its_url_and_by_hand(ask: ApiClient):
    path = f"{JOBS}/deploy"
    document = {name: value for name, value in _DEPLOY.items() if name != "schedule"}
    refused = await ask("PUT", path, document)
    assert (refused.status, "`triggerUrl`" in refused.body["detail"]) == (422, True)
    document["triggerUrl"] = True
    made = await ask("PUT", path, document)
    assert (made.status, made.body["schedule"], made.body["nextAt"]) == (201, None, None)
    assert made.body["explain"] == "When its trigger URL is called, or it is run by hand"
    assert [text for text in made.body["warnings"] if "wakeful hook deploy" in text]
    send = await _new_url(ask)
    assert (await send(b"1")).status == 202
    assert (await ask("POST", f"{path}/run")).status == 201
    assert [run.trigger for run in await _runs(ask)] == ["user", "hook"]

    assert (await ask("PUT", path, document)).body["revision"] == 1
    read = (await ask("GET", path)).body
    assert (await ask("PUT", path, read)).body["revision"] == 1, "the same document again"
    assert (await ask("PATCH", path, {"description": "x"})).body["revision"] == 2
    assert (await ask("PATCH", path, {"triggerUrl": False})).status == 422
    assert (await ask("POST", f"{path}/pause")).status == 200
    assert (await send(b"2")).status in (202, 409)
    assert (await ask("POST", f"{path}/resume")).body["nextAt"] is None
    listed = (await ask("GET", "/jobs?schedule=none")).body["jobs"]
    assert [job["name"] for job in listed] == ["deploy"]

    assert (await ask("PATCH", path, {"schedule": "@daily", "triggerUrl": None})).body["nextAt"]
    assert (await ask("PATCH", path, {"schedule": None})).status == 422
    restored = await ask("POST", f"{path}/revisions/2/restore")
    assert (restored.status, restored.body["schedule"], restored.body["triggerUrl"]) == (200, None, True)
    assert (await send(b"3")).status == 202


async def _create(ask: ApiClient) -> Reply:
    await ask("POST", JOBS, _DEPLOY)
    return await ask("POST", f"{JOBS}/deploy/hook")


@on_one_store
async def test_every_kind_of_body_becomes_a_payload(ask: ApiClient):
    send = await _hooked(ask)
    bodies: list[tuple[str, bytes, Json]] = [
        ("application/json", b"[1]", [1]),
        ("application/x-www-form-urlencoded", b"text=hi+there", {"text": "hi there"}),
        ("text/plain; charset=utf-8", "grün".encode(), "grün"),
        ("application/octet-stream", b"", None),
    ]
    for content_type, body, _ in bodies:
        assert (await send(body, Content_Type=content_type)).status == 202
    newest = [(await ask("GET", f"/runs/{run.id}")).body["payload"] for run in await _runs(ask)]
    assert newest == [payload for _, _, payload in reversed(bodies)]


@on_one_store
async def test_a_run_without_a_body_has_the_payload_of_the_job(ask: ApiClient):
    send = await _hooked(ask)
    assert (await send()).status == 202
    claimed = await ask("POST", "/runs/claim", {"worker": "w", "limit": 1})
    assert claimed.body["runs"][0]["payload"] == {"own": True}


@on_one_store
@pytest.mark.parametrize(
    ("content_type", "body", "status", "message"),
    [
        ("application/json", b"{", 400, "the body is not JSON"),
        ("image/png", b"\x89PNG\xff", 422, "binary data as base64"),
        ("text/plain", b"x" * 70_000, 422, "at most 65536"),
        ("text/plain", b"x" * 300_000, 413, "store large data elsewhere"),
        ("application/json", b'"\\ud800"', 422, "surrogate"),
    ],
)
async def test_a_body_that_cannot_be_a_payload_starts_no_run(
    ask: ApiClient, content_type: str, body: bytes, status: int, message: str
):
    send = await _hooked(ask)
    reply = await send(body, Content_Type=content_type)
    assert (reply.status, reply.code) == (status, "invalid-argument")
    assert message in reply.body["detail"]
    assert await _runs(ask) == []


async def test_a_repeated_key_starts_one_run_also_after_the_url_was_replaced(ask: ApiClient):
    first = await _hooked(ask)
    one = await first(b"a", Idempotency_Key="delivery-1")
    again = await first(b"a", Idempotency_Key="delivery-1")
    second = await _new_url(ask)
    third = await second(b"a", Idempotency_Key="delivery-1")
    assert one.body == again.body == third.body
    assert [each.headers.get("idempotency-replayed") for each in (one, again, third)] == [
        None,
        "true",
        "true",
    ]
    other = await second(b"b", Idempotency_Key="delivery-1")
    assert (other.status, other.code) == (422, "invalid-argument")
    assert len(await _runs(ask)) == 1
    # Without a key, the same body is another event.
    assert (await second(b"a")).body["id"] != (await second(b"a")).body["id"]


async def test_concurrent_requests_with_one_key_start_one_run(ask: ApiClient):
    send = await _hooked(ask)
    replies = await asyncio.gather(*(send(b"a", Idempotency_Key="k") for _ in range(10)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.body["id"] for reply in replies}) == len(await _runs(ask)) == 1


@on_one_store
async def test_the_id_of_a_standard_webhook_is_a_key_too(ask: ApiClient):
    send = await _hooked(ask)
    one = await send(b"a", webhook_id="msg_1")
    assert (await send(b"a", webhook_id="msg_1")).body == one.body
    # An Idempotency-Key takes precedence.
    assert (await send(b"a", webhook_id="msg_1", Idempotency_Key="other")).body["id"] != one.body["id"]
    assert (await send(b"a", Idempotency_Key="")).status == 400


async def test_two_jobs_do_not_share_keys(ask: ApiClient):
    one, two = await _hooked(ask), await _hooked(ask, {**_DEPLOY, "name": "other"})
    assert (await one(b"a", Idempotency_Key="k")).body["job"] == "deploy"
    assert (await two(b"a", Idempotency_Key="k")).body["job"] == "other"


async def test_a_replaced_url_works_for_a_day_and_no_older_one(ask: ApiClient):
    created = await _create(ask)
    first = Sender(ask, created.body["url"])
    assert created.body["previousId"] is created.body["previousUntil"] is None
    rotated = await ask("POST", f"{JOBS}/deploy/hook")
    second = Sender(ask, rotated.body["url"])
    assert rotated.body["previousId"] == created.body["id"] != rotated.body["id"]
    assert [(await send()).status for send in (first, second)] == [202, 202]
    third = await _new_url(ask)
    assert [(await send()).status for send in (first, second, third)] == [404, 202, 202]
    shown = await ask("GET", f"{JOBS}/deploy/hook")
    assert (shown.body["previousId"], shown.body.keys() & {"url", "token"}) == (rotated.body["id"], set())
    actions = [each["action"] for each in (await ask("GET", "/audit")).body["entries"]]
    assert actions.count("job.create-hook") == 1
    assert actions.count("job.rotate-hook") == 2


async def test_the_old_url_stops_when_its_day_is_over(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    first = await _hooked(ask)
    second = await _new_url(ask)
    clock = ask.app.services.store.clock
    now_ms = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + ROTATION_MS + 1)
    assert [(await send()).status for send in (first, second)] == [404, 202]


async def test_a_deleted_url_stops_at_once_and_the_old_one_too(ask: ApiClient):
    first = await _hooked(ask)
    second = await _new_url(ask)
    assert (await ask("DELETE", f"{JOBS}/deploy/hook")).status == 204
    assert [(await send()).status for send in (first, second)] == [404, 404]
    missing = [await ask(method, f"{JOBS}/deploy/hook") for method in ("DELETE", "GET")]
    assert [each.code for each in missing] == ["not-found"] * 2
    assert "has no trigger URL; create one with 'wakeful hook " in missing[0].body["detail"]
    assert (await ask("GET", f"{JOBS}/deploy")).body["hook"] is False
    third = await _new_url(ask)
    assert (await third()).status == 202
    assert (await ask("GET", f"{JOBS}/deploy")).body["hook"] is True
    actions = [each["action"] for each in (await ask("GET", "/audit")).body["entries"]]
    assert (actions.count("job.create-hook"), actions.count("job.delete-hook")) == (2, 1)


async def test_the_url_of_a_deleted_job_does_not_run_a_new_job_of_its_name(ask: ApiClient):
    send = await _hooked(ask)
    await ask("DELETE", f"{JOBS}/deploy")
    await ask("POST", JOBS, _DEPLOY)
    reply = await send()
    assert (reply.status, reply.code) == (404, "not-found")
    assert "its job was deleted" in reply.body["detail"]


@on_one_store
async def test_a_url_survives_edits_upserts_and_a_new_name(ask: ApiClient):
    send = await _hooked(ask)
    shown = (await ask("GET", f"{JOBS}/deploy")).body
    assert (await ask("PUT", f"{JOBS}/deploy", shown)).status == 200
    assert (await ask("PATCH", f"{JOBS}/deploy", {"name": "release", "payload": None})).status == 200
    assert (await send()).body["job"] == "release"


async def test_a_job_that_is_not_enabled_refuses_and_says_why(ask: ApiClient):
    send = await _hooked(ask)
    await ask("POST", f"{JOBS}/deploy/pause", {"note": "a secret plan"})
    paused = await send()
    assert (paused.status, paused.code) == (409, "failed-precondition")
    assert paused.body["detail"] == "job 'deploy' is paused; resume it, then send again"
    await ask("POST", f"{JOBS}/deploy/resume")
    await ask("PUT", "/agents/default", {"active": False})
    assert "agent of job 'deploy' is not active" in (await send()).body["detail"]
    await ask("PUT", "/agents/default", {"active": True})
    assert (await send()).status == 202
    assert len(await _runs(ask)) == 1


async def test_a_used_up_budget_refuses_until_midnight(ask: ApiClient):
    send = await _hooked(ask, {**_DEPLOY, "budget": {"tokensPerDay": 1}})
    assert (await send()).status == 202
    (claimed,) = (await ask("POST", "/runs/claim", {"worker": "w"})).body["runs"]
    done = {"attempt": 1, "status": "succeeded", "usage": {"tokens": 5}}
    assert (await ask("POST", f"/runs/{claimed['id']}/complete", done)).status == 200
    reply = await send()
    assert (reply.status, reply.code) == (429, "resource-exhausted")
    assert "has used its budget" in reply.body["detail"]
    assert 0 < int(reply.headers["retry-after"]) <= 86_400


@on_one_store
async def test_a_precheck_applies_to_a_hook_and_sees_its_payload(new_app: NewApp):
    app = new_app()

    @app.function("work")
    async def work() -> str:
        return "done"

    @app.function("is-main")
    async def is_main(run: Launch) -> bool:
        return run.payload == "main"

    async with app, served(app) as ask:
        target, check = ({"kind": "function", "name": name} for name in ("work", "is-main"))
        send = await _hooked(ask, {**_DEPLOY, "target": target, "precheck": check})
        ended = [await app.runs.wait((await send(body)).body["id"]) for body in (b"main", b"other")]
        assert [(run.state, run.reason) for run in ended] == [("succeeded", None), ("skipped", "precheck")]


@on_one_store
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
async def test_only_post_runs_the_job(ask: ApiClient, method: str):
    send = await _hooked(ask)
    reply = await send(method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert reply.headers["referrer-policy"] == "no-referrer"
    if method != "HEAD":
        assert reply.body["detail"].startswith("send POST to run the job")
        assert reply.body["instance"] == "/hooks/***"
    assert await _runs(ask) == []


@on_one_store
async def test_unknown_urls_are_not_found_and_then_limited(ask: ApiClient):
    known = await _hooked(ask)
    await known()
    malformed = Sender(ask, "/hooks/wk_" + "x" * 43)
    assert {(await malformed()).status for _ in range(5)} == {404}
    hooks = ask.app.services.jobs.hooks
    hooks._unknown = RateLimiter(per_minute=3)
    unknown = Sender(ask, "/hooks/hook_" + "x" * 43)
    replies = [await unknown() for _ in range(3)]
    assert {reply.code for reply in replies} == {"not-found"}
    limited = await unknown()
    assert (limited.status, limited.code) == (429, "resource-exhausted")
    assert int(limited.headers["retry-after"]) >= 1
    # A URL that worked lately is not affected, nor are other addresses.
    assert (await known()).status == 202
    with pytest.raises(NotFound, match="no such trigger URL"):
        await hooks.authenticate("hook_" + "y" * 43, "192.0.2.7")
    # A client with IPv6 has a whole network of addresses.
    for number in range(3):
        with pytest.raises(NotFound):
            await hooks.authenticate("hook_" + "y" * 43, f"2001:db8::{number:x}")
    with pytest.raises(RateLimited):
        await hooks.authenticate("hook_" + "y" * 43, "2001:db8::ffff")


@pytest.fixture
async def limited(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Serve an app whose trigger URLs take three requests a minute."""
    with active_settings(Settings(hooks_per_minute=3, public_url="https://wake.example.com/base")):
        app = new_app()
        async with app, served(app) as ask:
            yield ask


@on_one_store
async def test_a_burst_is_limited_per_job(limited: ApiClient):
    ask = limited
    url = (await _create(ask)).body["url"]
    assert url.startswith("https://wake.example.com/base/hooks/hook_")
    send = Sender(ask, url.removeprefix("https://wake.example.com/base"))
    assert [(await send()).status for _ in range(3)] == [202] * 3
    reply = await send()
    assert (reply.status, reply.code) == (429, "resource-exhausted")
    assert 1 <= int(reply.headers["retry-after"]) <= 20
    assert "takes 3 requests a minute" in reply.body["detail"]
    # A new URL of the same job does not start anew; another job does.
    new = (await ask("POST", f"{JOBS}/deploy/hook")).body["url"]
    assert (await Sender(ask, new.removeprefix("https://wake.example.com/base"))()).status == 429
    await ask("POST", JOBS, {**_DEPLOY, "name": "other"})
    other = (await ask("POST", f"{JOBS}/other/hook")).body["url"]
    assert (await Sender(ask, other.removeprefix("https://wake.example.com/base"))()).status == 202
    assert len(await _runs(ask)) == 4


async def test_the_url_of_an_agents_key_sends_no_more_than_the_key(ask: ApiClient):
    agent = await ask.new("agent", agent="writer")
    own = f"{JOBS.replace('/default/jobs', '/writer/jobs')}"
    await agent("POST", own, {"name": "draft", "schedule": SELDOM})
    send = Sender(ask, (await agent("POST", f"{own}/draft/hook")).body["url"])
    assert (await send(b"one")).status == 202
    # An admin gives the job a target that an agent's key may not send payloads to.
    target = {"kind": "function", "name": "nothing"}
    assert (await ask("PATCH", f"{own}/draft", {"target": target})).status == 200
    refused = await send(b"two")
    assert (refused.status, refused.code) == (403, "permission-denied")
    assert (await send()).status == 202
    assert (await agent("POST", f"{own}/draft/hook")).code == "permission-denied"
    # A URL that an admin creates sends any payload.
    by_admin = Sender(ask, (await ask("POST", f"{own}/draft/hook")).body["url"])
    assert (await by_admin(b"three")).status == 202
    # An admin's job stays the admin's.
    await ask("POST", own, {"name": "admins", "schedule": SELDOM})
    assert (await agent("POST", f"{own}/admins/hook")).code == "permission-denied"


async def test_no_token_is_stored_logged_or_shown_again(ask: ApiClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    created = await _create(ask)
    token = created.body["token"]
    assert created.headers["cache-control"] == "no-store"
    send = Sender(ask, created.body["url"])
    for data, method in (
        (b'"a"', "POST"),
        (b"{", "POST"),
        (None, "GET"),
        (None, "OPTIONS"),
        (b"x" * 300_000, "POST"),
    ):
        reply = await send(data, method, Content_Type="application/json")
        assert token not in str(reply.body)
    await ask("POST", f"{JOBS}/deploy/pause")
    assert (await send()).status == 409
    secret = token.removeprefix("hook_")
    assert secret not in caplog.text
    assert "hook.fired" in caplog.text
    assert "hook.refused" in caplog.text
    for path in (f"{JOBS}/deploy", f"{JOBS}/deploy/hook", "/audit", "/runs"):
        assert secret not in str((await ask("GET", path)).body)


async def test_the_python_api_creates_shows_and_deletes_it(new_app: NewApp):
    app: Wakeful = new_app()
    async with app:
        await app.jobs.create("deploy", schedule=SELDOM, target={"kind": "pull"})
        assert (await app.jobs.get("deploy")).hook is False
        created = await app.jobs.create_hook("deploy")
        assert created.token is not None
        assert created.url is None
        assert created.token not in repr(created)
        caller = await app.services.jobs.hooks.authenticate(created.token)
        run = await app.services.jobs.hooks.fire(caller, {"a": 1})
        assert (await app.runs.get(run.id)).trigger == "hook"
        rotated = await app.jobs.create_hook("deploy")
        assert rotated.previous_id == created.id
        assert rotated.previous_until is not None
        shown = await app.jobs.get_hook("deploy")
        assert (shown.id, shown.url, shown.token) == (rotated.id, None, None)
        assert (await app.jobs.get("deploy")).hook is True
        await app.jobs.delete_hook("deploy")
        with pytest.raises(NotFound, match="no trigger URL"):
            await app.jobs.get_hook("deploy")
        with pytest.raises(NotFound, match="no job"):
            await app.jobs.create_hook("unknown")


@on_one_store
async def test_a_stale_version_creates_no_url(ask: ApiClient):
    await ask("POST", JOBS, _DEPLOY)
    for method in ("POST", "DELETE"):
        reply = await ask(method, f"{JOBS}/deploy/hook", headers={"If-Match": '"7"'})
        assert reply.status == 412
    assert not await ask.app.services.jobs.hooks.exists(
        (await ask.app.services.jobs.get(LOCAL, "default", "default", "deploy")).id
    )


@pytest.mark.parametrize("edit", ["moved", "paused"])
async def test_a_request_beside_an_edit_meets_the_job_as_it_is(ask: ApiClient, edit: str):
    await _hooked(ask)
    services = ask.app.services
    token = (await services.jobs.hooks.create(LOCAL, "default", "default", "deploy")).token
    caller = await services.jobs.hooks.authenticate(str(token))
    if edit == "moved":
        await services.jobs.update(LOCAL, "default", "default", "deploy", {"lane": "agent"})
        run = await services.jobs.hooks.fire(caller, None)
        assert run.lane == "agent"
    else:
        await services.jobs.pause(LOCAL, "default", "default", "deploy")
        with pytest.raises(FailedPrecondition, match="is paused"):
            await services.jobs.hooks.fire(caller, None)
        assert await _runs(ask) == []
