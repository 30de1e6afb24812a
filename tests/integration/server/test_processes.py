"""`wakeful serve --processes`: real processes on PostgreSQL that are killed, stopped and counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support import prefork
from tests.support.command_line import Machine
from tests.support.databases import postgres
from tests.support.many_processes import gone, many_processes
from tests.support.notify_socket import notify_socket
from tests.support.programs import alive
from tests.support.waiting import PATIENCE, eventually

WORK = {"kind": "function", "name": "work"}
FINISHED = 'wakeful_runs_finished_total{state="succeeded"}'


@pytest.fixture
def database() -> str:
    return postgres().url


async def test_a_killed_process_is_replaced_and_no_run_is_lost_or_doubled(tmp_path: Path, database: str):
    async with many_processes(tmp_path, database, WAKEFUL_ALLOW_PRIVATE_TARGETS="yes") as server:
        before = server.pids
        await server.add_jobs(11, WORK)
        await eventually(lambda: len(server.calls) == 11)
        busy = Counter(pid for _, pid, _, _ in server.calls)
        assert set(busy) == set(before.values()), "every process has a part of the lane"
        os.kill(before[2], signal.SIGKILL)
        await eventually(lambda: server.pids[2] != before[2])
        server.let_go()

        async def all_succeeded() -> bool:
            return await server.states() == {"succeeded": 11}

        await eventually(all_succeeded)
        starts = Counter((key, attempt) for word, _, key, attempt in server.calls if word == "start")
        ends = Counter(key for word, _, key, _ in server.calls if word == "end")
        assert set(starts.values()) == {1}, "each attempt was launched once"
        assert set(ends.values()) == {1}
        assert len(ends) == 11
        again = [key for key, attempt in starts if attempt == 2]
        assert len(again) == busy[before[2]], "only the runs of the killed process were started again"
        (ended,) = server.events("process.ended")
        assert (ended["number"], ended["reason"]) == (2, "SIGKILL")
        assert await server.stop() == 0


@pytest.mark.slow
async def test_metrics_are_those_of_all_processes_and_never_go_back(tmp_path: Path, database: str):
    async with many_processes(tmp_path, database) as server:
        server.let_go()
        await server.add_jobs(11, WORK)

        async def all_counted() -> bool:
            return (await server.metrics())[FINISHED] == 11

        await eventually(all_counted)
        seen = [await server.metrics() for _ in range(8)]
        assert {each[FINISHED] for each in seen} == {11}, "whichever process responds"
        assert {each["wakeful_run_duration_seconds_count"] for each in seen} == {11}
        assert {each['wakeful_lane_size{lane="cron"}'] for each in seen} == {11}
        assert {each['wakeful_lane_size{lane="one"}'] for each in seen} == {3}, "at least 1 in each process"
        assert {each["wakeful_processes"] for each in seen} == {3}
        assert {each["wakeful_processes_responding"] for each in seen} == {3}
        requests = [sum(v for k, v in each.items() if "_http_requests_total" in k) for each in seen]
        assert requests == sorted(requests)

        before = server.pids
        for number in before:  # also the one that has counted most
            os.kill(before[number], signal.SIGKILL)
        await eventually(lambda: all(server.pids[number] != before[number] for number in before))
        await eventually(lambda: len(server.events("server.started")) == 6)
        later = await server.metrics()
        assert later[FINISHED] == 11
        assert sum(v for k, v in later.items() if "_http_requests_total" in k) >= requests[-1]
        assert await server.stop() == 0


async def test_a_stop_drains_all_processes_and_each_line_of_the_log_has_its_process(
    tmp_path: Path, database: str
):
    async with many_processes(tmp_path, database) as server:
        pids = server.pids
        await server.add_jobs(6, WORK)
        await eventually(lambda: len(server.calls) == 6)
        os.kill(server.pid, signal.SIGTERM)
        await eventually(lambda: len(server.events("server.stopping")) == 3)
        os.kill(pids[1], signal.SIGTERM)  # as from a signal to the whole group: it changes nothing
        server.let_go()
        assert await server.exit_code() == 0
        assert Counter(word for word, *_ in server.calls) == {"start": 6, "end": 6}
        assert not any(map(alive, pids.values()))
        assert [line["released"] for line in server.events("engine.stopped")] == [0, 0, 0]
        assert {line["process"] for line in server.log} == {0, 1, 2, 3}
        assert {line["process"] for line in server.events("engine.started")} == {1, 2, 3}


@pytest.mark.slow
async def test_a_second_signal_kills_what_has_not_stopped(tmp_path: Path, database: str):
    async with many_processes(tmp_path, database, count=2) as server:
        pids = server.pids
        await server.add_jobs(2, WORK)
        await eventually(lambda: len(server.calls) == 2)
        os.kill(server.pid, signal.SIGINT)
        await eventually(lambda: server.events("server.stopping"))
        assert await server.stop(signal.SIGINT) == 1
        assert not any(map(alive, pids.values()))
        assert server.events("process.killed")


@pytest.mark.slow
async def test_the_processes_end_with_their_supervisor(tmp_path: Path, database: str):
    async with many_processes(tmp_path, database, count=2) as server:
        pids = server.pids
        os.kill(server.pid, signal.SIGKILL)
        await gone(list(pids.values()))
        assert len(server.events("process.supervisor_ended")) == 2
        assert len(server.events("engine.stopped")) == 2, "they stop in order"


@pytest.mark.slow
async def test_the_start_work_is_done_once_and_systemd_hears_of_all_processes(tmp_path: Path):
    from tests.support.postgres_server import empty_database

    with notify_socket(tmp_path) as sock:
        environment = {"NOTIFY_SOCKET": sock.address, "WATCHDOG_USEC": "2000000"}
        async with many_processes(
            tmp_path, empty_database(), "--dev", count=2, app=None, **environment
        ) as server:
            ready = await sock.until(lambda message: message.get("READY") == "1")
            assert ready["STATUS"] == f"serving at {server.url} with 2 processes"
            assert len(server.events("server.started")) == 2
            assert [message for message in sock.drain() if "READY" in message] == [ready]
            await sock.until(lambda message: message.get("WATCHDOG") == "1")
            keys = await server.request("GET", "/api/workspaces/default/keys")
            assert [key["name"] for key in keys["keys"]] == ["first"]
            assert await server.stop() == 0
        assert {"STOPPING": "1", "STATUS": "stopping"} in sock.drain()


def test_sqlite_is_refused(tmp_path: Path):
    result = Machine(tmp_path).wakeful("serve", "--processes", "2", "--db", str(tmp_path / "a.db"))
    assert result.code == 2
    assert "--processes 2 needs PostgreSQL" in result.err
    (tmp_path / "own.py").write_text("from wakeful import Wakeful\napp = Wakeful('sqlite:///own.db')\n")
    done = subprocess.run(
        prefork.command("wakeful", "serve", "--port", "0", "--processes", "2", "--app", "own:app"),
        env=Machine(tmp_path).environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, "--processes 2 needs PostgreSQL" in done.stderr) == (2, True), done.stderr


HANGING = """
import os, signal, socket, time
from pathlib import Path
from wakeful.server.processes import supervisor
from wakeful.server.processes.child import Message
from wakeful.server.service_manager import ServiceManager
from wakeful.logs.setup import configure

configure("json")
supervisor.SILENT_S = supervisor._TICK_S = 0.05

def run_child(child):
    child.link.send(Message("ready"))
    if not Path("hung").exists():
        Path("hung").touch()
        while True:
            time.sleep(60)
    os.kill(os.getppid(), signal.SIGTERM)
    while True:
        child.link.send(Message("alive"))
        time.sleep(0.01)

listener = socket.create_server(("127.0.0.1", 0))
manager = ServiceManager(None, watchdog_s=0.2)
supervisor.Supervisor(1, listener, manager, run_child, lambda values: None, status="").run()
"""


@pytest.mark.slow
def test_a_process_that_hangs_is_logged_and_with_a_watchdog_replaced(tmp_path: Path):
    done = _script(tmp_path, HANGING)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    hanging = events.index("process.hanging")
    assert events[hanging:][:4] == ["process.hanging", "process.killed", "process.ended", "process.started"]


FAILING = """
import socket, sys
from wakeful.server.processes import child
from wakeful.server.processes.supervisor import Supervisor
from wakeful.server.service_manager import ServiceManager
from wakeful.errors import WakefulError

child.FIRST_DELAY_S = 0.01
listener = socket.create_server(("127.0.0.1", 0))
try:
    Supervisor(2, listener, ServiceManager(None), lambda child: 3, print, status="").run()
except WakefulError as error:
    sys.exit(error.message)
"""


def test_a_server_whose_processes_cannot_start_ends_with_the_reason(tmp_path: Path):
    done = _script(tmp_path, FAILING)
    assert done.returncode == 1
    assert "process 1 ended 5 times before it was ready, the last time with: exit code 3" in done.stderr


EXHAUSTED = """
import errno, os, signal, socket, time
from pathlib import Path
from wakeful.server.processes import child
from wakeful.server.processes import supervisor
from wakeful.server.processes.child import Message
from wakeful.server.service_manager import ServiceManager
from wakeful.logs.setup import configure

configure("json")
child.FIRST_DELAY_S = 0.01
fork, forks = os.fork, []

def forked():
    forks.append(len(forks))
    if forks[-1] in (2, 3):
        raise OSError(errno.EAGAIN, "no more processes")
    return fork()

os.fork = forked

def run_child(child):
    child.link.send(Message("ready"))
    while not Path("started").exists():
        time.sleep(0.01)
    if child.number == 2 and not Path("ended").exists():
        Path("ended").touch()
        return 3
    if child.number == 2:
        os.kill(os.getppid(), signal.SIGTERM)
    while True:
        time.sleep(60)

listener = socket.create_server(("127.0.0.1", 0))
started = lambda values: Path("started").touch()
supervisor.Supervisor(2, listener, ServiceManager(None), run_child, started, status="").run()
"""


@pytest.mark.slow
def test_a_process_that_cannot_be_restarted_at_once_ends_no_other(tmp_path: Path):
    done = _script(tmp_path, EXHAUSTED)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    ended = events.index("process.ended")
    assert events[ended:][:4] == [
        "process.ended", "process.not_started", "process.not_started", "process.started",
    ]  # fmt: skip


STOPPED_AT_ITS_START = """
import os, signal, socket, time
from wakeful.server.processes import supervisor
from wakeful.server.service_manager import ServiceManager

supervisor._STOP_S = 5.0
os.register_at_fork(
    after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM), after_in_child=lambda: time.sleep(0.5)
)
listener = socket.create_server(("127.0.0.1", 0))
run_child = lambda child: time.sleep(60)
supervisor.Supervisor(1, listener, ServiceManager(None), run_child, print, status="").run()
"""


def test_a_process_that_has_just_been_forked_is_stopped_too(tmp_path: Path):
    done = _script(tmp_path, STOPPED_AT_ITS_START)
    assert done.returncode == 0, done.stderr


def _script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose main thread is a supervisor."""
    (folder / "script.py").write_text(text)
    return subprocess.run(
        prefork.command(str(folder / "script.py")),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
