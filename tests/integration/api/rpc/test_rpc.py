"""The RPC over a WebSocket: methods, authentication and connection limits."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.certificates import Authority
from tests.support.rpc_client import Caller, Refused, calling, connected
from tests.support.sse_client import listening
from tests.support.waiting import PATIENCE, eventually, over
from wakeful.engine.exposition import new_registry
from wakeful.errors import Unavailable
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

NOTHING = {"kind": "function", "name": "nothing"}
METHODS = (
    "cron.list", "cron.create", "cron.update", "cron.delete", "cron.toggle", "cron.run", "cron.runs",
    "cron.status",
)  # fmt: skip


async def create(call: Caller, name: str = "digest", **fields: object) -> dict[str, Any]:
    result = await call("cron.create", name=name, **{"schedule": SELDOM, "target": NOTHING, **fields})
    return dict(result["job"])


async def names(call: Caller, **params: object) -> list[str]:
    return [job["name"] for job in (await call("cron.list", **params))["jobs"]]


# --- methods ---------------------------------------------------------------------------------------------


async def test_a_job_is_created_listed_updated_toggled_and_deleted(ask: ApiClient):
    async with calling(ask) as call:
        made = await create(call, schedule={"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin"})
        assert (made["agentId"], made["enabled"]) == ("default", True)
        assert made["nextRunAtMs"] == made["nextAtMs"] is not None
        (shown,) = (await ask("GET", "/jobs")).body["jobs"]
        assert {name: made[name] for name in shown} == shown, "as every face shows it"

        patch = {"schedule": {"kind": "cron", "expr": "0 10 * * *"}}
        changed = (await call("cron.update", jobId=made["id"], patch=patch))["job"]
        assert changed["schedule"] == {"kind": "cron", "expr": "0 10 * * *", "tz": "Europe/Berlin"}

        paused = (await call("cron.toggle", jobId=made["id"], enabled=False))["job"]
        assert (paused["enabled"], paused["nextRunAtMs"]) == (False, None)
        assert await names(call) == []
        assert await names(call, includeDisabled=True) == ["digest"]
        resumed = (await call("cron.toggle", jobId="digest", enabled=True))["job"]
        assert (resumed["enabled"], resumed["nextRunAtMs"]) == (True, changed["nextRunAtMs"])

        gone = await call("cron.delete", jobId=made["id"])
        assert gone == {"deleted": True, "jobId": made["id"]}
        assert await names(call, includeDisabled=True) == []


async def test_runs_of_a_job_are_listed_after_it_is_deleted(ask: ApiClient):
    async with calling(ask) as call:
        job = await create(call)
        assert await call("cron.run", jobId=job["id"], mode="due") == {"ran": False, "run": None}
        first = (await call("cron.run", jobId=job["id"], mode="force"))["run"]
        assert (first["jobId"], first["trigger"], first["state"]) == (job["id"], "user", "pending")
        second = (await call("cron.run", jobId="digest", payload={"n": 2}))["run"]
        for run in (first, second):
            await over(ask.app, run["id"])
        page = await call("cron.runs", jobId=job["id"])
        assert [run["id"] for run in page["runs"]] == [second["id"], first["id"]]
        assert (page["limit"], page["offset"], page["more"]) == (20, 0, False)
        assert page["runs"][0]["payload"] == {"n": 2}
        page = await call("cron.runs", jobId=job["id"], limit=1)
        assert ([run["id"] for run in page["runs"]], page["more"]) == ([second["id"]], True)
        page = await call("cron.runs", jobId=job["id"], limit=1, offset=1)
        assert ([run["id"] for run in page["runs"]], page["more"]) == ([first["id"]], False)
        await call("cron.delete", jobId=job["id"])
        assert len((await call("cron.runs", jobId=job["id"]))["runs"]) == 2


async def test_a_page_reads_no_more_than_it_shows(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    for name in ("jobs", "runs"):
        found = getattr(ask.app.store, name)

        async def counted(*given: Any, found: Any = found) -> Any:
            rows = await found(*given)
            read.append(len(rows))
            return rows

        monkeypatch.setattr(ask.app.store, name, counted)
    async with calling(ask) as call:
        made = [await create(call, f"job-{number}") for number in range(6)]
        for _ in range(6):
            await over(ask.app, (await call("cron.run", jobId=made[0]["id"]))["run"]["id"])
        ids = [run["id"] for run in (await call("cron.runs", jobId=made[0]["id"]))["runs"]]
        read.clear()
        for offset in (0, 3, 5, 6, 10_000):
            page = await call("cron.list", limit=1, offset=offset)
            assert [job["name"] for job in page["jobs"]] == [job["name"] for job in made[offset:][:1]]
            assert page["more"] == (offset < 5)
            page = await call("cron.runs", jobId=made[0]["id"], limit=1, offset=offset)
            assert ([run["id"] for run in page["runs"]], page["more"]) == (ids[offset:][:1], offset < 5)
        assert max(read) == 2
        await call("cron.delete", jobId=made[0]["id"])
        assert (await call("cron.runs", jobId=made[0]["id"], offset=6))["runs"] == []


async def test_the_status_has_the_engine_state_and_the_number_of_jobs(ask: ApiClient):
    async with calling(ask) as call:
        await create(call)
        await create(call, "other", enabled=False)
        status = await call("cron.status")
        assert (status["running"], status["activeJobs"]) == (True, 1)
        assert status["jobs"] == {"active": 1, "paused": 1}
        assert status["nextAtMs"] is not None


async def test_a_job_shows_the_status_and_error_of_its_last_run(ask: ApiClient):
    async with calling(ask) as call:
        job = await create(call, target={"kind": "function", "name": "failing"})
        assert (job["lastStatus"], job["lastError"]) == (None, None)
        await over(ask.app, (await call("cron.run", jobId=job["id"]))["run"]["id"])
        (job,) = (await call("cron.list"))["jobs"]
        assert (job["lastStatus"], job["enabled"]) == ("error", True)
        assert "it never works" in job["lastError"]


@on_one_store
async def test_a_secret_is_shown_once(ask: ApiClient):
    async with calling(ask) as call:
        made = await create(call, target={"kind": "webhook", "url": "https://example.com/hook"})
        assert made["secret"].startswith("whsec_")
        assert made["secret"] not in json.dumps(await call("cron.list"))
        other = await create(call, "other")
        assert "secret" not in other
        patch = {"target": {"kind": "webhook", "url": "https://example.com/hook"}}
        changed = (await call("cron.update", jobId="other", patch=patch))["job"]
        assert changed["secret"].startswith("whsec_"), "it needs one from now on"


@on_one_store
async def test_jobs_are_listed_by_agent_with_pagination(ask: ApiClient):
    async with calling(ask) as call:
        for name in ("a", "b", "c"):
            await create(call, name)
        await create(call, "hers", agentId="ada")
        assert await names(call) == ["hers", "a", "b", "c"]
        assert await names(call, agentId="ada") == ["hers"]
        page = await call("cron.list", agentId="default", limit=2)
        assert ([job["name"] for job in page["jobs"]], page["more"]) == (["a", "b"], True)
        page = await call("cron.list", agentId="default", limit=2, offset=2)
        assert ([job["name"] for job in page["jobs"]], page["more"]) == (["c"], False)
        shown = (await call("cron.toggle", jobId="hers", agentId="ada", enabled=False))["job"]
        assert shown["agentId"] == "ada", "a name, and whose it is"


@pytest.mark.parametrize(
    ("method", "params", "code", "sentence"),
    [
        ("cron.create", {"name": "digest", "schedule": SELDOM}, "already-exists", "has a job 'digest'"),
        ("cron.create", {"schedule": SELDOM}, "invalid-argument", "name"),
        ("cron.create", {"name": "x", "schedule": "61 * * * *"}, "invalid-argument", "minute"),
        ("cron.create", {"name": "x", "schedule": SELDOM, "agentId": 5}, "invalid-argument", "agentId"),
        ("cron.create", {"name": "x", "schedule": SELDOM, "workspace": "acme"}, "not-found", "workspace"),
        ("cron.update", {"jobId": "nope", "patch": {}}, "not-found", "no job 'nope'"),
        ("cron.update", {"jobId": "digest", "patch": {"schedule": "x"}}, "invalid-argument", "schedule"),
        ("cron.update", {"jobId": "digest", "patch": []}, "invalid-argument", "patch: give a JSON object"),
        ("cron.update", {"patch": {}}, "invalid-argument", "jobId: write the id"),
        ("cron.delete", {"jobId": "nope"}, "not-found", "no job 'nope'"),
        ("cron.delete", {"jobId": "a\u0000b"}, "invalid-argument", "jobId"),
        ("cron.delete", {"jobId": "digest", "agentId": "ada"}, "not-found", "no job 'digest'"),
        ("cron.update", {"jobId": "digest", "patch": {"agentId": "ada"}}, "invalid-argument", "stays with"),
        ("cron.toggle", {"jobId": "digest"}, "invalid-argument", "enabled: write true or false"),
        ("cron.toggle", {"jobId": "digest", "enabled": "no"}, "invalid-argument", "enabled"),
        ("cron.run", {"jobId": "digest", "mode": "now"}, "invalid-argument", "'force'"),
        ("cron.run", {"jobId": "nope"}, "not-found", "no job 'nope'"),
        ("cron.runs", {"jobId": "nope"}, "not-found", "no job 'nope'"),
        ("cron.runs", {"jobId": "digest", "limit": 0}, "invalid-argument", "limit"),
        ("cron.runs", {"jobId": "digest", "offset": "1"}, "invalid-argument", "offset"),
        ("cron.list", {"includeDisabled": 1}, "invalid-argument", "includeDisabled"),
        ("cron.list", {"includeDisbled": True}, "invalid-argument", "there is no such parameter"),
        ("cron.list", {"agentId": "nobody"}, "not-found", "no agent 'nobody'"),
        ("cron.status", {"workspace": "acme"}, "not-found", "no workspace 'acme'"),
        ("events.subscribe", {"types": ["run.lost"]}, "invalid-argument", "run.finished"),
        ("events.subscribe", {"types": 5}, "invalid-argument", "types"),
        ("events.subscribe", {"after": -1}, "invalid-argument", "after"),
    ],
)  # fmt: skip
@on_one_store
async def test_a_rejected_request_returns_an_error_and_keeps_the_connection(
    ask: ApiClient, method: str, params: dict[str, object], code: str, sentence: str
):
    async with calling(ask) as call:
        await create(call)
        with pytest.raises(Refused) as refused:
            await call(method, **params)
        assert refused.value.code == code
        assert sentence in refused.value.message
        assert await names(call) == ["digest"]


@on_one_store
async def test_the_error_for_an_unknown_method_lists_the_methods(ask: ApiClient):
    async with calling(ask) as call:
        with pytest.raises(Refused) as refused:
            await call("cron.destroy")
        assert refused.value.code == "not-found"
        for method in (*METHODS, "auth", "events.subscribe", "events.unsubscribe"):
            assert method in refused.value.message


# --- messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "id"),
    [
        ("{", None),
        ("", None),
        ("[" * 100_000, None),
        ('{"id": 1, "method": "cron.list", "params": {"limit": NaN}}', None),
        ('{"id": 1, "method": "cron.list", "params": {"agentId": "\\ud800"}}', None),
        ([{"id": 1, "method": "cron.list"}], None),
        ({"id": [1], "method": "cron.list"}, None),
        ('{"id": 1e999, "method": "cron.list"}', None),
        ({"id": "x" * 129, "method": "cron.list"}, None),
        ({"id": 7}, 7),
        ({"id": "a", "method": 5}, "a"),
        ({"id": 1.5, "method": "cron.list", "params": []}, 1.5),
    ],
)
@on_one_store
async def test_an_invalid_message_is_answered_with_an_error_and_its_id_if_any(
    ask: ApiClient, message: object, id: object
):
    async with calling(ask) as call:
        reply = await call.say(message)
        assert (reply["id"], reply["error"]["code"]) == (id, "invalid-argument")
        assert await names(call) == []


@on_one_store
async def test_ids_are_returned_unchanged_and_are_optional(ask: ApiClient):
    async with calling(ask) as call:
        for id in ("one", 2, 2.5, None):
            assert (await call.say({"id": id, "method": "cron.list"}))["id"] == id
        reply = await call.say({"method": "cron.list", "jsonrpc": "2.0"})
        assert (reply["id"], reply["result"]["jobs"]) == (None, [])


@on_one_store
async def test_pipelined_requests_are_answered_in_order(ask: ApiClient):
    async with calling(ask) as call:
        await create(call)
        for n in range(40):
            params = {"jobId": "digest", "enabled": bool(n % 2)}
            await call.socket.send(json.dumps({"id": n, "method": "cron.toggle", "params": params}))
        replies = [json.loads(await call.socket.recv()) for _ in range(40)]
        assert [reply["id"] for reply in replies] == list(range(40))
        assert [reply["result"]["job"]["enabled"] for reply in replies] == [False, True] * 20


@on_one_store
async def test_a_binary_message_is_rejected(ask: ApiClient):
    async with calling(ask) as call:
        await call.socket.send(b"{}")
        code, reason = await call.closed()
        assert (code, "text" in str(reason)) == (1003, True)


@on_one_store
async def test_an_oversized_message_is_rejected(ask: ApiClient):
    async with calling(ask) as call:
        assert (await call.say(" " * 200_000 + '{"id": 1, "method": "cron.list"}'))["id"] == 1
        await call.socket.send(json.dumps({"id": 1, "method": "cron.list", "x": "y" * 256 * 1024}))
        assert (await call.closed())[0] == 1009


@on_one_store
async def test_an_internal_error_reveals_no_details(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(ask.app.services.jobs, "list", broken)
    async with calling(ask) as call:
        with pytest.raises(Refused) as refused:
            await call("cron.list")
        assert refused.value.code == "internal"
        assert "secret" not in refused.value.message
        assert (await call("cron.status"))["running"] is True


# --- authentication --------------------------------------------------------------------------------------


@on_one_store
async def test_a_client_can_authenticate_by_its_first_message(ask: ApiClient):
    async with connected(ask.url) as call:
        member = await ask.new("member")
        assert await call("auth", token=member.key) == {
            "role": "member", "workspace": "default", "agentId": None
        }  # fmt: skip
        assert await names(call) == []
        with pytest.raises(Refused) as refused:
            await create(call)
        assert refused.value.code == "permission-denied"


@on_one_store
async def test_a_client_can_authenticate_by_a_subprotocol(ask: ApiClient):
    async with connected(ask.url, subprotocols=["wakeful", f"bearer.{ask.key}"]) as call:
        assert call.socket.subprotocol == "wakeful", "and never the key"
        assert await names(call) == []


@on_one_store
async def test_a_client_that_does_not_authenticate_in_time_is_disconnected(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.api.rpc.connection.AUTH_TIMEOUT_S", 0.05)
    async with connected(ask.url) as call:
        code, reason = await call.closed()
        assert (code, "auth" in str(reason)) == (4401, True)


@on_one_store
async def test_a_request_before_authentication_is_rejected_and_closes_the_connection(ask: ApiClient):
    async with connected(ask.url) as call:
        with pytest.raises(Refused) as refused:
            await call("cron.list")
        assert refused.value.code == "unauthenticated"
        assert (await call.closed())[0] == 4401


@pytest.mark.parametrize("by", ["header", "message", "subprotocol"])
@on_one_store
async def test_an_unknown_key_is_rejected(ask: ApiClient, by: str):
    wrong = "wk_" + "x" * 43
    given: dict[str, Any] = {"header": {"key": wrong}, "subprotocol": {"subprotocols": [f"bearer.{wrong}"]}}
    async with connected(ask.url, **given.get(by, {})) as call:
        if by == "message":
            with pytest.raises(Refused) as refused:
                await call("auth", token=wrong)
            assert refused.value.code == "unauthenticated"
        assert (await call.closed())[0] == 4401


@on_one_store
async def test_a_request_with_a_revoked_key_closes_the_connection(ask: ApiClient):
    member = await ask.new("member")
    async with calling(member) as call:
        assert await names(call) == []
        (key,) = [
            key for key in await ask.app.services.auth.keys.list(LOCAL, "default") if key.name == "member"
        ]
        await ask.app.services.auth.keys.revoke(LOCAL, "default", key.id)
        # The connection may be closed before the request is sent.
        with pytest.raises((Refused, ConnectionClosed)) as refused:
            await call("cron.list")
        assert not isinstance(refused.value, Refused) or refused.value.code == "unauthenticated"
        assert (await call.closed())[0] == 4401


@on_one_store
async def test_revoking_a_key_ends_its_subscription(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.api.rpc.connection.KEY_CHECK_S", 0.05)
    member = await ask.new("member")
    async with calling(member) as call:
        await call("events.subscribe")
        (key,) = [
            key for key in await ask.app.services.auth.keys.list(LOCAL, "default") if key.name == "member"
        ]
        await ask.app.services.auth.keys.revoke(LOCAL, "default", key.id)
        assert (await call.closed())[0] == 4401


@on_one_store
async def test_a_client_whose_key_cannot_be_checked_now_is_told_to_come_back(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    async def fails(*_: object) -> None:
        raise Unavailable("the database cannot be reached")

    monkeypatch.setattr(ask.app.services.auth.keys, "authenticate", fails)
    async with calling(ask) as call:
        assert await call.closed() == (1013, "reconnect later: the database cannot be reached")
    await eventually(lambda: not ask.app.services.auth.connection_limits.open().total())


@on_one_store
async def test_an_agent_sees_only_its_own_jobs(ask: ApiClient):
    ada = await ask.new("agent", agent="ada")
    async with calling(ask) as call, calling(ada) as hers:
        theirs = await create(call)
        own = await create(hers, "own", target=None)
        assert own["agentId"] == "ada", "without a word about whose it is"
        assert await names(hers) == ["own"]
        run = (await hers("cron.run", jobId="own"))["run"]
        assert run["trigger"] == "agent"
        for method, params in (
            ("cron.update", {"patch": {"message": "x"}}),
            ("cron.delete", {}),
            ("cron.toggle", {"enabled": False}),
            ("cron.run", {}),
            ("cron.runs", {}),
        ):
            for which in ({"jobId": theirs["id"]}, {"jobId": "digest", "agentId": "default"}):
                with pytest.raises(Refused) as refused:
                    await hers(method, **which, **params)
                assert refused.value.code == "not-found", method
        for method in ("cron.list", "events.subscribe"):
            with pytest.raises(Refused) as refused:
                await hers(method, agentId="default")
            assert refused.value.code == "not-found", method
        assert await names(call, agentId="default") == ["digest"]


@on_one_store
async def test_the_workspace_defaults_to_that_of_the_key(ask: ApiClient):
    await ask("PUT", "/api/workspaces/acme", {})
    owner = await ask.new("admin", "acme")
    async with calling(ask) as call, calling(owner) as theirs:
        assert (await create(theirs))["workspace"] == "acme"
        assert await names(call) == []
        assert await names(call, workspace="acme") == ["digest"]
        with pytest.raises(Refused) as refused:
            await theirs("cron.list", workspace="default")
        assert refused.value.code == "not-found"


# --- disconnects -----------------------------------------------------------------------------------------


@on_one_store
async def test_a_stopping_server_closes_connections_with_1012(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.server.serve.GRACE", 4 * PATIENCE)
    loop = asyncio.get_running_loop()
    async with new_app() as app:
        async with served(app) as operator:
            idle, hearing = connected(operator.url, operator.key), connected(operator.url, operator.key)
            one, other = await idle.__aenter__(), await hearing.__aenter__()
            await other("events.subscribe")
            began = loop.time()
        assert loop.time() - began < PATIENCE, "nobody keeps it"
        for call in (one, other):
            code, reason = await call.closed()
            assert (code, "reconnect" in str(reason)) == (1012, True)
        await idle.__aexit__(None, None, None)
        await hearing.__aexit__(None, None, None)
        assert app.services.events._reader is None


@on_one_store
async def test_a_client_that_does_not_answer_pings_is_disconnected(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.server.serve._PING", 0.5)
    async with (
        new_app() as app,
        served(app) as operator,
        calling(operator) as call,  # answers pings
        asyncio.timeout(PATIENCE),
    ):
        address = urlsplit(operator.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(
            f"GET /ws HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'x' * 22}==\r\n"
            f"Authorization: Bearer {operator.key}\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        frames = await reader.read()  # until it is closed
        writer.close()
        assert frames[0] == 0x89, "a ping"
        assert frames[6] == 0x88, "and a close frame, since it was not answered"
        assert int.from_bytes(frames[8:10]) == 1011
        assert await names(call) == []


@on_one_store
async def test_a_disconnect_removes_the_listener(ask: ApiClient):
    async with calling(ask) as call:
        await call("events.subscribe")
        assert ask.app.services.events._listeners
    await eventually(lambda: not ask.app.services.events._listeners)


# --- metrics and limits ----------------------------------------------------------------------------------


async def test_calls_are_counted_by_method_and_outcome(ask: ApiClient):
    metric = new_registry(ask.app.services.metrics).get_sample_value
    async with calling(ask) as call:
        await names(call)
        for method in ("cron.delete", "cron.made-up"):
            with pytest.raises(Refused):
                await call(method, jobId="nobody")
        assert metric("wakeful_rpc_connections") == 1
    for method, outcome in (("cron.list", "ok"), ("cron.delete", "not-found"), ("-", "not-found")):
        labels = {"method": method, "outcome": outcome}
        assert metric("wakeful_rpc_calls_total", labels) == 1, labels
    await eventually(lambda: metric("wakeful_rpc_connections") == 0)


@on_one_store
async def test_connections_are_limited_per_key_and_per_server(new_app: NewApp):
    app = new_app(settings=Settings(max_connections=3, max_connections_per_key=2))
    metric = new_registry(app.services.metrics).get_sample_value
    async with app, served(app) as operator:
        member = await operator.new("member")
        async with calling(operator) as one, calling(operator) as two:
            assert (await names(one), await names(two)) == ([], [])  # both are counted now
            async with calling(operator) as third:
                code, reason = await third.closed()
                assert (code, "this key has 2 connections open" in str(reason)) == (4429, True)
            async with connected(operator.url) as by_message:
                with pytest.raises(Refused) as refused:
                    await by_message("auth", token=operator.key)
                assert refused.value.code == "resource-exhausted"
                assert (await by_message.closed())[0] == 4429
            await eventually(lambda: metric("wakeful_rpc_connections") == 2)
            async with calling(member) as another:
                assert await names(another) == []
                async with calling(member) as fourth:
                    code, reason = await fourth.closed()
                    assert (code, "this server has 3 connections open" in str(reason)) == (4429, True)
                refused_stream = await member("GET", "/events")
                assert (refused_stream.status, refused_stream.code) == (429, "resource-exhausted")
                assert refused_stream.headers["retry-after"] == "1"
            assert await names(one) == []
        await eventually(lambda: metric("wakeful_rpc_connections") == 0)
        async with calling(operator) as again:
            assert await names(again) == []
        assert metric("wakeful_rpc_dropped_total", {"reason": "limit"}) == 3


@on_one_store
async def test_unauthenticated_connections_have_a_separate_limit(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.api.rpc.connection.AUTH_TIMEOUT_S", 3_600.0)
    app = new_app(settings=Settings(max_connections=1, max_unauthenticated_connections=2))
    async with app, served(app) as operator, connected(operator.url) as one, connected(operator.url):
        await eventually(lambda: app.services.auth.connection_limits.open()["rpc"] == 2)
        async with connected(operator.url) as third:
            code, reason = await third.closed()
            assert (code, "not authenticated" in str(reason)) == (4429, True)
        async with calling(operator) as with_header:
            assert await names(with_header) == []
            with pytest.raises(Refused, match="this server has 1 connections open"):
                await one("auth", token=operator.key)
        await eventually(lambda: app.services.auth.connection_limits.open()["rpc"] == 1)
        async with connected(operator.url) as later:
            await later("auth", token=operator.key)
            assert await names(later) == []


@on_one_store
async def test_event_streams_count_as_connections(new_app: NewApp):
    app = new_app(settings=Settings(max_connections_per_key=1))
    metric = new_registry(app.services.metrics).get_sample_value
    async with app, served(app) as operator:
        async with listening(operator):
            assert metric("wakeful_event_streams") == 1
            async with calling(operator) as call:
                assert (await call.closed())[0] == 4429
        await eventually(lambda: metric("wakeful_event_streams") == 0)
        assert (await operator("GET", "/events", types="made-up")).status == 422
        async with calling(operator) as call:
            assert await names(call) == []


@on_one_store
async def test_the_rpc_works_over_tls(new_app: NewApp, tmp_path: Path):
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    app = new_app()
    async with app, served(app, Settings(port=0, tls_cert=str(cert), tls_key=str(key))) as operator:
        assert operator.url.startswith("https://")
        async with calling(operator, ssl=ssl.create_default_context(cafile=authority.file)) as call:
            assert (await call("cron.status"))["running"] is True
            after = (await call("events.subscribe"))["after"]
            await create(call, target={"kind": "pull"})
            assert (await call.next_event())["seq"] == after + 1
        with pytest.raises(ssl.SSLCertVerificationError):
            async with calling(operator):
                raise AssertionError("a certificate that nobody vouches for is good enough")
