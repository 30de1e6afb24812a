"""A retry with an Idempotency-Key after a failure at COMMIT replays the response or executes the request."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.integration.conftest import QUICK, SELDOM, STORES
from tests.support import prefork
from tests.support.api_client import HOME, JOBS, ApiClient, Reply, served
from tests.support.command_line import Machine, first_json
from tests.support.commit_proxy import CommitProxy, Cut, commit_proxy
from tests.support.effort import part
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE, over
from wakeful import Permanent, Wakeful
from wakeful.job.job import WAKE_JOB
from wakeful.launch.secrets import read_secret

_KEY = {"Idempotency-Key": "deploy 17"}
_JOB = {"name": "a", "schedule": SELDOM, "target": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}


async def _dead_letter(ask: ApiClient) -> str:
    run = (await ask("POST", f"{JOBS}/failing/run")).body["id"]
    await over(ask.app, run)
    return str(run)


async def _prepare_create(ask: ApiClient) -> tuple[str, object]:
    return JOBS, _JOB


async def _prepare_run(ask: ApiClient) -> tuple[str, object]:
    return f"{JOBS}/failing/run", {}


async def _prepare_wake(ask: ApiClient) -> tuple[str, object]:
    return f"{HOME}/agents/default/runs", {"payload": 1}


async def _prepare_backfill(ask: ApiClient) -> tuple[str, object]:
    return f"{JOBS}/failing/backfill", {"start": "2024-02-28T00:00:00Z", "end": "2024-03-01T00:00:00Z"}


async def _prepare_replay(ask: ApiClient) -> tuple[str, object]:
    return f"{HOME}/runs/{await _dead_letter(ask)}/replay", None


async def _prepare_replay_all(ask: ApiClient) -> tuple[str, object]:
    await _dead_letter(ask)
    return f"{HOME}/dead-letters/replay", {"all": True}


async def _prepare_message(ask: ApiClient) -> tuple[str, object]:
    return f"{HOME}/agents/default/messages", {"message": "good morning"}


_OPERATIONS = (
    _prepare_create,
    _prepare_run,
    _prepare_wake,
    _prepare_backfill,
    _prepare_replay,
    _prepare_replay_all,
    _prepare_message,
)


async def _counts(ask: ApiClient) -> tuple[int, ...]:
    """Count jobs without the internal one of wakes, runs, waiting messages and audit entries."""
    listed = (await ask("GET", "/jobs", include_disabled="true")).body["jobs"]
    jobs = [job for job in listed if job["name"] != WAKE_JOB]
    runs = (await ask("GET", "/runs", limit=500)).body["runs"]
    sessions = (await ask("GET", "/agents/default/sessions")).body["sessions"]
    audit = (await ask("GET", "/audit", limit=500)).body["entries"]
    return len(jobs), len(runs), sum(each["messages"] for each in sessions), len(audit)


@pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is not installed")
@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("prepare", part(_OPERATIONS))
async def test_a_retry_after_a_connection_cut_at_commit_executes_once(
    cut: Cut, prepare: Callable[[ApiClient], Awaitable[tuple[str, object]]]
) -> None:
    from tests.support.postgres_server import fresh_database

    async with commit_proxy(fresh_database()) as proxy:
        app = Wakeful(proxy.url, config=QUICK, secret_key="a key for tests", allow_private_targets=True)

        @app.function()
        async def failing() -> None:
            raise Permanent("it never works")

        async with app, served(app) as ask:
            target = {"kind": "function", "name": "failing"}
            await ask("POST", JOBS, {"name": "failing", "schedule": SELDOM, "target": target})
            path, body = await prepare(ask)
            before = await _counts(ask)
            first, again, third = await _three_times(ask, proxy, cut, path, body)
            assert first.status == 503, first
            assert again.status // 100 == 2, again
            assert again.headers.get("idempotency-replayed") == ("true" if cut == "after" else None)
            assert third.body == again.body
            assert third.headers["idempotency-replayed"] == "true"
            changed = [now - then for then, now in zip(before, await _counts(ask), strict=True)]
            assert changed[3] == 1, f"audit entries: {changed}"
            assert sum(changed[:3]) == 1, changed
            if path == JOBS:
                row = await app.store.job("default", "default", "a")
                assert row is not None
                assert row.secret is not None
                assert app.services.keyring.open(row.secret) == read_secret(again.body["secret"])


async def _three_times(
    ask: ApiClient, proxy: CommitProxy, cut: Cut, path: str, body: object
) -> tuple[Reply, Reply, Reply]:
    proxy.cut = cut
    first = await ask("POST", path, body, headers=_KEY)
    assert proxy.cuts == 1, "no COMMIT of a keyed operation was seen"
    again = await ask("POST", path, body, headers=_KEY)
    return first, again, await ask("POST", path, body, headers=_KEY)


@pytest.mark.parametrize("number", [None, 300])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_retry_after_a_process_is_killed_at_commit_on_sqlite(
    tmp_path: Path, when: str, number: int | None
) -> None:
    machine = Machine(tmp_path)
    arguments = ["serve", "--dev", "--port", "0", "--db", str(tmp_path / "a.db"), "--json"]
    key = ""
    with (tmp_path / "first.log").open("w") as log:
        process = subprocess.Popen(
            prefork.command(str(ROOT / "tests/support/killed_server.py"), when, *arguments),
            env=machine.environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            about = first_json(process)
            key = Path(about["keyFile"]).read_text().strip()
            with pytest.raises((URLError, ConnectionError)):
                _post(about["url"], key, number)
            assert process.wait(PATIENCE) == -9
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    second = machine.start(*arguments)
    try:
        url = first_json(second)["url"]
        headers, created = _post(url, key, number)
        assert headers.get("idempotency-replayed") == ("true" if when == "after" else None)
        jobs = [created] if number is None else created["jobs"]
        assert len({job["secret"] for job in jobs}) == (number or 1)
        headers, again = _post(url, key, number)
        assert headers["idempotency-replayed"] == "true"
        assert again == created
    finally:
        second.terminate()
        assert second.stdout is not None
        second.stdout.close()
        second.wait(PATIENCE)


def _post(url: str, key: str, number: int | None) -> tuple[dict[str, str], Any]:
    """Create a job, or so many in one request."""
    jobs = {"jobs": [{**_JOB, "name": f"job-{each}"} for each in range(number or 0)]}
    request = Request(
        url + JOBS + ("" if number is None else "/bulk"),
        json.dumps(_JOB if number is None else jobs).encode(),
        {**_KEY, "Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urlopen(request, timeout=60) as response:
        return {name.lower(): value for name, value in response.headers.items()}, json.load(response)


@pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is not installed")
async def test_a_request_waits_for_a_held_key_and_blocks_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import asyncpg

    from tests.support.postgres_server import fresh_database
    from wakeful.store.postgres import connection

    settings = connection.settings
    monkeypatch.setattr(
        connection, "settings", lambda schema: settings(schema).replace("'10s'", "'300ms'", 1)
    )
    url = fresh_database()
    app = Wakeful(url, config=QUICK, secret_key="a key for tests", allow_private_targets=True)
    holder = await asyncpg.connect(url)
    async with app, served(app) as ask:
        await ask("POST", JOBS, _JOB, headers=_KEY)
        await holder.execute(
            "UPDATE wakeful.idempotency_keys SET created_at = created_at - interval '2 days'"
        )
        async with holder.transaction():
            await holder.execute("SELECT FROM wakeful.idempotency_keys FOR UPDATE")
            held = ask("POST", JOBS, {**_JOB, "name": "b"}, headers=_KEY)
            others = [
                ask("POST", JOBS, {**_JOB, "name": f"c{number}"}, headers=headers)
                for number, headers in enumerate([{}, {"Idempotency-Key": "another"}, {}])
            ]
            waited, *done = await asyncio.gather(held, *others)
            assert (waited.status, waited.code) == (409, "failed-precondition")
            assert waited.headers["retry-after"] == "1"
            assert "send it again" in waited.body["detail"]
        assert [reply.status for reply in done] == [201, 201, 201]
        assert (await ask("POST", JOBS, {**_JOB, "name": "b"}, headers=_KEY)).status == 201
    await holder.close()


@pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is not installed")
async def test_many_requests_with_a_held_key_leave_connections_for_others() -> None:
    import asyncpg

    from tests.support.postgres_server import fresh_database

    url = fresh_database()
    app = Wakeful(url, config=QUICK, secret_key="a key for tests", allow_private_targets=True)
    holder = await asyncpg.connect(url)
    async with app, served(app) as ask:
        await ask("POST", JOBS, _JOB, headers=_KEY)
        await holder.execute(
            "UPDATE wakeful.idempotency_keys SET created_at = created_at - interval '2 days'"
        )
        async with holder.transaction():
            await holder.execute("SELECT FROM wakeful.idempotency_keys FOR UPDATE")
            held = [
                asyncio.create_task(ask("POST", JOBS, {**_JOB, "name": "b"}, headers=_KEY)) for _ in range(20)
            ]
            for number in range(3):
                reply = await ask("POST", JOBS, {**_JOB, "name": f"c{number}"})
                assert reply.status == 201
            assert not [task for task in held if task.done()]
        replies = [await task for task in held]
        assert {reply.status for reply in replies} == {201}
        assert len({reply.body["id"] for reply in replies}) == 1
    await holder.close()
