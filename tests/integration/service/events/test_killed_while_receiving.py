"""A server that is killed at the COMMIT of an event: the event starts one run, before or after it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support import prefork
from tests.support.api_client import JOBS
from tests.support.command_line import Machine, first_json
from tests.support.mcp_event_server import EVENT, KEY, McpEventServer
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE, eventually

_JOB = {"name": "triage", "on": {"server": "crm", "event": EVENT}, "target": {"kind": "pull"}}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_event_is_one_run_if_the_server_dies_at_its_commit(tmp_path: Path, when: str) -> None:
    database = tmp_path / "a.db"
    arguments = ["serve", "--dev", "--port", "0", "--db", str(database), "--json"]
    async with McpEventServer().serving() as crm:
        own = {"WAKEFUL_EVENT_SERVER_CRM": crm.url, "WAKEFUL_EVENT_KEY_CRM": KEY, "WAKEFUL_TICK_MS": "100"}
        environment = {**Machine(tmp_path).environment, **own}
        first = _start(tmp_path, environment, str(ROOT / "tests/support/killed_server.py"), when, *arguments)
        try:
            about = await asyncio.to_thread(first_json, first)
            key = (await asyncio.to_thread(Path(about["keyFile"]).read_text)).strip()
            await _request("PUT", f"{about['url']}{JOBS}/triage", key, _JOB)
            await eventually(lambda: crm.methods.count("events/poll") >= 2)
            crm.add_event(ticket=7)
            assert await asyncio.to_thread(first.wait, PATIENCE) == -9
        finally:
            _stop(first)
        with sqlite3.connect(database) as db:
            found = db.execute("SELECT count(*) FROM runs").fetchone()
            assert found == (1 if when == "after" else 0,)
            db.execute("UPDATE event_sources SET due_at = 1")  # its lease is over
        db.close()
        polls = len(crm.methods)
        second = _start(tmp_path, environment, "wakeful", *arguments)
        try:
            about = await asyncio.to_thread(first_json, second)

            async def tickets() -> list[object]:
                listed = await _request("GET", f"{about['url']}/api/workspaces/default/runs", key)
                return [run["payload"]["data"] for run in listed["runs"]]

            await eventually(lambda: len(crm.methods) >= polls + 3)
            await eventually(tickets)
            assert await tickets() == [{"ticket": 7}]
        finally:
            _stop(second)


def _start(home: Path, environment: dict[str, str], *command: str) -> subprocess.Popen[str]:
    with (home / "log").open("a") as log:
        return subprocess.Popen(
            prefork.command(*command),
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def _request(method: str, url: str, key: str, body: object = None) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=body, headers={"Authorization": f"Bearer {key}"}) as response,
    ):
        text = await response.text()
        assert response.status < 300, text
        return json.loads(text)
