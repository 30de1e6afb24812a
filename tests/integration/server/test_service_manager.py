"""Messages to systemd: ready, status, watchdog, stopping. The sockets and processes are real."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support import prefork
from tests.support.command_line import Machine
from tests.support.notify_socket import NotifySocket, notify_socket
from tests.support.waiting import PATIENCE, eventually
from wakeful import Unavailable
from wakeful.engine import loop as engine_loop
from wakeful.server.service_manager import ServiceManager


def start(home: Path, sock: NotifySocket, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    with (home / "log").open("wb") as log:
        return subprocess.Popen(
            prefork.command("wakeful", *arguments),
            env={**Machine(home).environment, "NOTIFY_SOCKET": sock.address, **environment},
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def status_of(url: str) -> int:
    with urlopen(url) as response:
        status: int = response.status
        return status


async def ended(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(process.wait, PATIENCE)


@pytest.mark.parametrize("abstract", [False, True])
async def test_a_server_is_ready_when_its_port_and_database_are_open(tmp_path: Path, abstract: bool):
    database = tmp_path / "later" / "a.db"
    with notify_socket(None if abstract else tmp_path) as sock:
        serve = ("serve", "--port", "0", "--db", str(database), "--wait-for-db")
        process = start(tmp_path, sock, *serve, WATCHDOG_USEC="200000")
        try:
            await eventually(lambda: "database.waiting" in (tmp_path / "log").read_text())
            assert sock.drain() == [{"STATUS": "opening the database"}]
            database.parent.mkdir()
            ready = await sock.until(lambda message: message.get("READY") == "1")
            url = ready["STATUS"].removeprefix("serving at ")
            assert await asyncio.to_thread(status_of, f"{url}/readyz") == 200
            sock.received.clear()
            for _ in range(2):
                await sock.until(lambda message: message.get("WATCHDOG") == "1")
                sock.received.clear()
            assert not any("STOPPING" in message for message in sock.drain())
        finally:
            code = await ended(process)
        assert code == 0
        assert [message for message in sock.drain() if "STOPPING" in message] == [
            {"STOPPING": "1", "STATUS": "stopping"}
        ]


@pytest.mark.parametrize("http", ["yes", "no"])
async def test_a_worker_reports_its_state_too(tmp_path: Path, http: str):
    with notify_socket(tmp_path) as sock:
        process = start(
            tmp_path, sock, "worker", "--port", "0", "--db", str(tmp_path / "a.db"), WAKEFUL_WORKER_HTTP=http
        )
        try:
            ready = await sock.until(lambda message: message.get("READY") == "1")
            assert ready["STATUS"].startswith("working")
        finally:
            code = await ended(process)
        assert code == 0
        assert {"STOPPING": "1", "STATUS": "stopping"} in sock.drain()
        assert not any("WATCHDOG" in message for message in sock.received), "it was not asked for"


@on_one_store
async def test_thewatchdog_stops_if_a_loop_hangs_and_not_if_it_fails(
    new_app: NewApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    with notify_socket(tmp_path) as sock:
        manager = ServiceManager(sock.address, watchdog_s=0.05)
        async with app:
            assert app._engine is not None
            planner = app._engine._planner
            manager.ready("working", app.services.admin.status)
            never = asyncio.Event()

            async def fails() -> None:
                raise Unavailable("it is gone")

            async def hangs() -> None:
                await never.wait()

            monkeypatch.setattr(engine_loop, "_STALLED_S", 0.2)
            monkeypatch.setattr(planner, "step", fails)
            await sock.until(lambda message: "planner loop is stalled" in message.get("STATUS", ""))
            sock.received.clear()
            await sock.until(lambda message: message.get("WATCHDOG") == "1")

            monkeypatch.setattr(engine_loop, "_HANGING_S", 0.2)
            monkeypatch.setattr(planner, "step", hangs)
            await eventually(lambda: app.services.admin.status.hanging() == ["planner"])
            sock.received.clear()
            await sock.until(lambda message: "STATUS" in message)  # of a pass that may have begun before
            sock.received.clear()
            await eventually(lambda: len(sock.drain()) >= 3)
            assert all(message.keys() == {"STATUS"} for message in sock.received)

            monkeypatch.undo()
            never.set()
            sock.received.clear()
            await sock.until(lambda message: message.get("WATCHDOG") == "1")
        await manager.close()


def test_the_variables_of_the_service_manager_are_removed():
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "HOME": "/"}
    manager = ServiceManager.of_environment(environment)
    assert environment == {"HOME": "/"}
    assert manager.watchdog_s is None, "the watchdog is for another process"
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    assert ServiceManager.of_environment(environment).watchdog_s == 1


async def test_nothing_is_sent_without_a_socket_and_an_unreachable_one_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    ServiceManager(None).starting("starting")
    assert not caplog.records
    ServiceManager(str(tmp_path / "nothing")).stopping()
    assert "service_manager.unreachable" in caplog.text
