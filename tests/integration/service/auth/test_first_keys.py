"""The first admin key: one for all replicas, on disk before requests are accepted, or set by the operator."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.integration.conftest import NewApp
from tests.support.command_line import Machine, first_json
from tests.support.waiting import PATIENCE
from wakeful import Wakeful
from wakeful.client.api_key_file import store_key
from wakeful.errors import InvalidArgument, Unauthenticated
from wakeful.server.serve import serve
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings, read_settings


def new_key() -> str:
    return "wk_" + secrets.token_urlsafe(32)


async def test_replicas_that_start_together_create_one_key(new_app: NewApp):
    async with contextlib.AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(new_app()) for _ in range(5)]
        made = await asyncio.gather(*(app.services.auth.keys.first_key() for app in apps))
        assert len([key for key in made if key is not None]) == 1
        assert len(await apps[0].store.keys(None)) == 1
        assert len(await apps[0].store.audit("default")) == 1


async def test_processes_that_start_together_store_one_key(database: str, tmp_path: Path):
    homes = [tmp_path / name for name in ("one", "two", "three")]
    for home in homes:
        home.mkdir()
    processes = [Machine(home).start("serve", "--port", "0", "--db", database, "--json") for home in homes]
    try:
        said = await asyncio.gather(*(asyncio.to_thread(first_json, process) for process in processes))
        (file,) = [file for home in homes for file in (home / "config/wakeful/keys").glob("*")]
        key = file.read_text().strip()
        async with aiohttp.ClientSession() as session:
            headers = {"Authorization": f"Bearer {key}"}
            for each in said:
                path = f"{each['url']}/api/workspaces/default/keys"
                async with session.get(path, headers=headers) as response:
                    assert len((await response.json())["keys"]) == 1
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            process.stdout.close()
        for process in processes:
            assert await asyncio.to_thread(process.wait, 60) == 0


async def test_requests_are_accepted_after_the_key_is_on_disk(tmp_path: Path):
    file = tmp_path / "key"
    seen: list[tuple[int, bool]] = []

    async def prepare(url: str, app: Wakeful) -> None:
        address = urlsplit(url)
        with pytest.raises(ConnectionRefusedError), socket.socket() as client:
            client.connect((address.hostname, address.port))
        key = await app.services.auth.keys.first_key()
        assert key is not None
        store_key(url, key, {"WAKEFUL_KEY_FILE": str(file)})

    async def look(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
            seen.append((response.status, file.exists()))
        serving.cancel()

    looking: list[asyncio.Task[None]] = []
    settings = Settings(db=f"sqlite:///{tmp_path}/a.db", port=0)
    serving = asyncio.create_task(
        serve(
            settings,
            prepare=prepare,
            started=lambda url, app: looking.append(asyncio.create_task(look(url))),
        )
    )
    await asyncio.wait([serving])
    assert serving.cancelled()
    assert seen == [(200, True)]


# --- WAKEFUL_ADMIN_KEY ---------------------------------------------------------------------------------


async def test_replicas_that_apply_the_same_admin_key_create_it_once(new_app: NewApp):
    key = new_key()
    async with new_app() as one, new_app() as other:
        keys = [one.services.auth.keys, other.services.auth.keys]
        assert await asyncio.gather(*(each.apply_admin_key(key) for each in 3 * keys)) == 6 * ["valid"]
        who = await one.services.auth.keys.authenticate(key)
        assert (who.role, who.workspace) == ("admin", None)
        assert len(await one.store.keys(None)) == 1
        assert await one.services.auth.keys.first_key() is None


async def test_a_changed_admin_key_revokes_the_old_one_permanently(new_app: NewApp):
    before, after = new_key(), new_key()
    async with new_app() as app:
        keys = app.services.auth.keys
        _, other = await keys.create(LOCAL, None, {"name": "ci", "role": "admin"})
        await keys.apply_admin_key(before)
        assert await keys.apply_admin_key(after) == "valid"
        assert await keys.apply_admin_key(before) == "revoked"
    async with new_app() as app:
        keys = app.services.auth.keys
        with pytest.raises(Unauthenticated, match="revoked"):
            await keys.authenticate(before)
        assert (await keys.authenticate(after)).role == "admin"
        assert (await keys.authenticate(other)).role == "admin"
        entries = await app.store.audit("default")
        told = sorted((entry.action, entry.actor) for entry in entries if entry.actor != LOCAL.actor)
        operator = "setting:WAKEFUL_ADMIN_KEY"
        assert told == [("key.create", operator), ("key.create", operator), ("key.revoke", operator)]


@pytest.mark.parametrize("text", ["hunter2", "wk_short", "wk_" + 43 * "!", "wk_" + 44 * "a"])
def test_an_invalid_admin_key_is_refused_and_not_shown(text: str):
    with pytest.raises(InvalidArgument, match="WAKEFUL_ADMIN_KEY: write wk_") as refused:
        read_settings({"WAKEFUL_ADMIN_KEY": text})
    assert text not in refused.value.message


def test_a_server_with_an_admin_key_writes_no_key_file(tmp_path: Path):
    key = new_key()
    machine = Machine(tmp_path)
    (tmp_path / "wakeful.toml").write_text(f'admin_key = "{key}"\n')
    process = machine.start("serve", "--port", "0", "--db", str(tmp_path / "a.db"), "--json")
    try:
        url = first_json(process)["url"]
        assert not (tmp_path / "config").exists()
        listed = Machine(tmp_path, url).wakeful("keys", "list", "--json", WAKEFUL_KEY=key)
        assert [each["name"] for each in json.loads(listed.out)["keys"]] == ["WAKEFUL_ADMIN_KEY"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
