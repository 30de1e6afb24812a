"""`wakeful tail`: every run that starts or ends is one line, also across a restart of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from tests.support import prefork
from tests.support.command_line import Machine, first_json, serving, webhook_receiver

_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with webhook_receiver() as url:
        yield url


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, receiver: str) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("tail")) as machine:
        add_jobs(machine, receiver)
        yield machine


def add_jobs(machine: Machine, receiver: str) -> None:
    for name, path, agent in (("good", "hook", "default"), ("bad", "500", "ops")):
        made = machine.wakeful(
            *("add", name, "-s", "0 0 29 2 *", "--url", f"{receiver}/{path}", "--max-attempts", "1"),
            *("--agent", agent, "--create-agent"),
        )
        assert made.code == 0, made


class Tail:
    """A running `wakeful tail`, with the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: dict[str, list[str]] = {"out": [], "err": []}
        self._news = threading.Condition()
        self._threads = [
            threading.Thread(target=self._read, args=(name, stream))
            for name, stream in (("out", process.stdout), ("err", process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, name: str, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self.lines[name].append(line.rstrip("\n"))
                    self._news.notify_all()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()

    def wait_for(self, name: str, condition: Callable[[list[str]], bool]) -> list[str]:
        with self._news:
            assert self._news.wait_for(lambda: condition(self.lines[name]), _PATIENCE_S), self.lines
            return list(self.lines[name])

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(_PATIENCE_S)


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def tailing(machine: Machine, *options: str) -> Iterator[Tail]:
    """Run `wakeful tail` and yield it once it is connected."""
    process = subprocess.Popen(
        prefork.command("wakeful", "tail", *options),
        env=machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background of a shell ignores SIGINT, and so would its child processes.
        preexec_fn=_default_interrupt,
    )
    tail = Tail(process)
    try:
        tail.wait_for("err", lambda lines: any("connected to" in line for line in lines))
        yield tail
    finally:
        tail.close()


def test_runs_are_shown_as_they_start_and_end_until_ctrl_c(machine: Machine):
    with tailing(machine) as tail:
        good = machine.wakeful("run", "good", "--wait", "--json").json["id"]
        bad = machine.wakeful("run", "ops/bad", "--wait", "--json").json["id"]
        lines = tail.wait_for("out", lambda lines: len(lines) == 4)
        assert tail.interrupt() == 0
    assert "Traceback" not in "".join(tail.lines["err"])
    assert all(part in lines[0] for part in ("good  running (attempt 1)", good))
    assert all(part in lines[1] for part in ("good  succeeded in ", good))
    assert all(part in lines[2] for part in ("ops/bad  running", bad))
    assert all(part in lines[3] for part in ("ops/bad  failed", "500", bad))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--agent", "ops"), [("bad", "running"), ("bad", "failed")]),
        (("--job", "ops/bad", "--state", "failed"), [("bad", "failed")]),
        (("--state", "succeeded", "--state", "failed"), [("good", "succeeded"), ("bad", "failed")]),
        (("--job", "good"), [("good", "running"), ("good", "succeeded")]),
    ],
)
def test_a_filter_and_json_lines(machine: Machine, options: tuple[str, ...], expected: list[tuple[str, str]]):
    with tailing(machine, *options, "--json", "--count", str(len(expected))) as tail:
        machine.wakeful("run", "good", "--wait")
        machine.wakeful("run", "ops/bad", "--wait")
        assert tail.process.wait(_PATIENCE_S) == 0
        lines = tail.wait_for("out", lambda lines: len(lines) == len(expected))
    events = [json.loads(line) for line in lines]
    shown = [
        (event["job"], "running" if event["type"] == "run.started" else event["run"]["state"])
        for event in events
    ]
    assert shown == expected


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--state", "pending"), 2),
        (("--job", "nope"), 3),
        (("--agent", "nobody"), 3),
    ],
)
def test_a_wrong_filter_is_refused(machine: Machine, options: tuple[str, ...], code: int):
    refused = machine.wakeful("tail", *options)
    assert (refused.code, refused.out) == (code, "")


def test_an_unreachable_server_is_reported(machine: Machine):
    assert machine.wakeful("tail", WAKEFUL_URL="http://127.0.0.1:1").code == 7


def kill(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
    assert server.stdout is not None
    server.stdout.close()


def test_it_continues_after_a_restart_of_the_server_and_misses_nothing(tmp_path: Path, receiver: str):
    def start(port: int) -> subprocess.Popen[str]:
        return Machine(tmp_path).start(
            "serve", "--dev", "--port", str(port), "--db", str(tmp_path / "a.db"), "--json"
        )

    server = start(0)
    try:
        machine = Machine(tmp_path, first_json(server)["url"])
        add_jobs(machine, receiver)
        with tailing(machine, "--json", "--state", "succeeded") as tail:
            first = machine.wakeful("run", "good", "--wait", "--json").json["id"]
            tail.wait_for("out", lambda lines: len(lines) == 1)
            kill(server)
            tail.wait_for("err", lambda lines: any("is lost; reconnecting" in line for line in lines))
            server = start(urlsplit(machine.url or "").port or 0)
            first_json(server)
            second = machine.wakeful("run", "good", "--wait", "--json").json["id"]
            lines = tail.wait_for("out", lambda lines: len(lines) == 2)
            tail.wait_for("err", lambda lines: any("connected again" in line for line in lines))
            assert tail.interrupt() == 0
        assert [json.loads(line)["run"]["id"] for line in lines] == [first, second]
    finally:
        kill(server)


def test_the_end_of_a_pipe_ends_it(machine: Machine):
    command = f"set -o pipefail; {sys.executable} -m wakeful tail --json | head -n 1"
    with subprocess.Popen(
        ["bash", "-c", command],
        env=machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stderr is not None
        assert "connected to" in reader.stderr.readline()
        # The first line ends head; the next ones find the pipe closed.
        while reader.poll() is None:
            machine.wakeful("run", "good", "--wait")
        assert reader.returncode == 0
        assert "Traceback" not in reader.stderr.read()


@pytest.mark.parametrize(
    "options",
    [
        ["runs"],
        ["runs", "--json"],
        ["list"],
        ["run", "ops/bad", "--wait"],
        ["--help"],
        ["add", "-h"],
        ["agents", "--help"],
        ["--version"],
    ],
)
def test_a_closed_pipe_does_not_change_the_exit_code(machine: Machine, options: list[str]):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "wakeful", *options]
    ended = subprocess.run(
        command, env=machine.environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (int("--wait" in options), "")
