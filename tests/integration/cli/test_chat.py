"""`wakeful chat` and `wakeful sessions`: conversations with an agent on the command line."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import prefork
from tests.support.command_line import Completed, Machine, serving
from tests.support.raw_server import RawConnection, raw_server
from wakeful import Client, FailedPrecondition

_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Run a server, and an executor that answers messages; `wait` waits until the turn is stopped."""
    with serving(tmp_path_factory.mktemp("chat")) as machine:
        made = machine.wakeful("agents", "put", "parrot", "--queue", '{"debounceMs": 0}')
        assert made.code == 0, made
        with executing(machine):
            yield machine


@contextmanager
def executing(machine: Machine) -> Iterator[None]:
    done = threading.Event()
    key = next((machine.home / "config/wakeful/keys").iterdir()).read_text().strip()

    def work() -> None:
        with Client(machine.url or "", key) as client:
            while not done.is_set():
                for run in client.runs.claim("parrot", agents=["parrot"], wait_ms=200):
                    assert isinstance(run.payload, dict)
                    said = str(run.payload["message"])
                    with suppress(FailedPrecondition):
                        while said == "wait" and not done.is_set():
                            client.runs.heartbeat(run)
                        client.runs.complete(run, "succeeded", output=f"you said: {said}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Screen:
    """A command on a terminal, with all that it has printed."""

    def __init__(self, machine: Machine, *arguments: str) -> None:
        self._primary, secondary = pty.openpty()
        self.process = subprocess.Popen(
            prefork.command("wakeful", *arguments),
            env={**machine.environment, "TERM": "xterm-256color", "COLUMNS": "200"},
            cwd=machine.home,
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
        )
        os.close(secondary)
        self._output = ""
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError):  # the process has ended
            while chunk := os.read(self._primary, 65_536):
                with self._news:
                    self._output += chunk.decode("utf-8", "replace")
                    self._news.notify_all()

    @property
    def text(self) -> str:
        """What was printed, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._output)

    def type(self, text: str) -> None:
        os.write(self._primary, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.text.count(text) >= times, _PATIENCE_S), self.text

    def end(self) -> int:
        code = self.process.wait(_PATIENCE_S)
        self._thread.join()
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        os.close(self._primary)


@contextmanager
def chatting(machine: Machine, *arguments: str) -> Iterator[Screen]:
    screen = Screen(machine, "chat", *arguments)
    try:
        yield screen
    finally:
        screen.close()


def test_a_message_is_sent_and_its_answer_printed(machine: Machine):
    said = machine.wakeful("chat", "parrot", "--session", "one", "-m", "pretty boy")
    assert (said.code, said.out) == (0, "you said: pretty boy\n")
    run = machine.wakeful("chat", "parrot", "--session", "one", "-m", "again", "--json").json
    assert (run["state"], run["output"]) == ("succeeded", "you said: again")


def test_a_message_that_is_dropped_before_its_turn_is_an_error(machine: Machine):
    run = machine.wakeful("say", "parrot", "wait", "--session", "stopped", "--json").json["runId"]
    answers: list[Completed] = []
    later = ("chat", "parrot", "--session", "stopped", "-m", "later")
    chat = threading.Thread(target=lambda: answers.append(machine.process(*later)))
    chat.start()
    while machine.wakeful("sessions", "parrot", "stopped", "--json").json["messages"] == 0:
        pass
    machine.wakeful("say", "parrot", "/stopall", "--session", "stopped")
    chat.join(_PATIENCE_S)
    (done,) = answers
    assert (done.code, "dropped from the queue" in done.err) == (5, True), done
    assert machine.wakeful("runs", run, "--json").json["state"] == "cancelled"


@contextmanager
def first_line_of_stderr(machine: Machine, *arguments: str) -> Iterator[str]:
    """Start a command that waits, without a terminal, and yield what it prints first on stderr."""
    with subprocess.Popen(
        prefork.command("wakeful", *arguments),
        env=machine.environment,
        cwd=machine.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        try:
            assert select.select([process.stderr], [], [], _PATIENCE_S)[0]
            yield process.stderr.readline().decode()
        finally:
            process.terminate()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_chat_without_a_terminal_says_what_it_waits_for(machine: Machine, options: tuple[str, ...]):
    assert machine.wakeful("agents", "put", "alone", "--queue", '{"debounceMs": 0}').code == 0
    session = f"s{len(options)}"
    with first_line_of_stderr(
        machine, "chat", "alone", "-m", "hello", "--session", session, *options
    ) as line:
        assert "pending: waits for an executor (none has asked" in line
        with first_line_of_stderr(
            machine, "chat", "alone", "-m", "more", "--session", session, *options
        ) as line:
            assert line == "the message waits in the queue of its session\n"


def test_each_line_of_a_pipe_is_a_message(machine: Machine):
    said = machine.wakeful("chat", "parrot", "--session", "piped", stdin="one\n\ntwo\n/stop\n/quit\nthree\n")
    assert said.code == 0, said
    assert said.out.splitlines() == [
        "you said: one", "you said: two", "nothing to stop: no turn is running"
    ]  # fmt: skip
    lines = machine.wakeful("chat", "parrot", "--session", "piped", "--json", stdin="four\nfive\n").out
    assert [json.loads(line)["output"] for line in lines.splitlines()] == ["you said: four", "you said: five"]


def test_an_interrupt_ends_a_chat_that_waits_for_the_next_line(machine: Machine):
    with subprocess.Popen(
        [sys.executable, "-m", "wakeful", "chat", "parrot", "--session", "interrupted"],
        env=machine.environment,
        cwd=machine.home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(b"hello\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"you said: hello\n"
            time.sleep(0.5)  # it reads on
            process.send_signal(signal.SIGINT)
            assert process.wait(_PATIENCE_S) == -signal.SIGINT
        finally:
            process.kill()


def test_a_conversation_on_a_terminal(machine: Machine):
    machine.wakeful("chat", "parrot", "--session", "talk", "-m", "an old message")
    with chatting(machine, "parrot", "--session", "talk") as screen:
        screen.wait_for("Ctrl-D ends")
        assert "you said: an old message" in screen.text
        screen.type("hello there\n")
        screen.wait_for("you said: hello there")
        screen.type("wait\n")
        screen.wait_for("running")
        screen.type("/stop\n")
        screen.wait_for("cancelled: stopped")
        machine.wakeful("chat", "parrot", "--session", "talk", "-m", "from elsewhere")
        screen.wait_for("you said: from elsewhere")
        assert screen.text.count("from elsewhere") == 2, "what was said elsewhere, and the answer"
        assert screen.text.count("hello there") == 2, "what was typed is not repeated"
        screen.type("/stop\n")
        screen.wait_for("nothing to stop")
        screen.type("x" * 100 + "\n/history\n")
        screen.wait_for("you said: hello there", times=2)
        screen.type("\x04")
        assert screen.end() == 0, screen.text
    assert "Traceback" not in screen.text


def test_an_error_does_not_end_a_conversation(machine: Machine):
    with chatting(machine, "parrot", "--session", "job:digest") as screen:
        screen.wait_for("no history yet")
        screen.type("hello\n")
        screen.wait_for("'job:digest' is the session of a job")
        screen.type("/quit\n")
        assert screen.end() == 0


async def test_a_server_that_is_away_for_a_moment_ends_no_conversation(tmp_path: Path):
    run = {"id": "1", "payload": {"session": "main", "messages": ["m"]}, "state": "succeeded"}
    event = json.dumps({"seq": 7, "type": "run.finished", "run": run})
    shown = asyncio.Event()

    async def talk(connection: RawConnection) -> None:
        while True:
            head, _ = await connection.request()
            if b"/events" in head:
                await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                await shown.wait()
                await connection.send(f"id: 7\ndata: {event}\n\n".encode())
                await asyncio.sleep(_PATIENCE_S)
            status, body = (503, b"{}") if shown.is_set() else (200, b'{"history": []}')
            shown.set()
            await connection.send(
                b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
            )

    async with raw_server(talk) as server:
        machine = Machine(tmp_path, f"http://127.0.0.1:{server.port}")
        with chatting(machine, "parrot") as screen:
            await asyncio.to_thread(screen.wait_for, "responded 503 X; /history shows the history")
            screen.type("/history\n")
            await asyncio.to_thread(screen.wait_for, "responded 503 X", times=2)
            screen.type("/quit\n")
            assert await asyncio.to_thread(screen.end) == 0, screen.text


def test_a_conversation_with_an_unknown_agent_is_an_error(machine: Machine):
    with chatting(machine, "parot") as screen:
        assert screen.end() == 3, screen.text
    assert "did you mean 'parrot'?" in screen.text
    assert machine.wakeful("chat", "parot", "-m", "hello").code == 3


def test_sessions_are_listed_shown_and_deleted(machine: Machine):
    machine.wakeful(
        "say", "parrot", "hello", "--session", "s1", "--channel", "telegram", "--to", "1", "--wait"
    )
    listed = machine.wakeful("sessions", "parrot")
    assert re.search(r"^s1\s.*telegram 1\s", listed.out, re.MULTILINE), listed
    names = [each["name"] for each in machine.wakeful("sessions", "parrot", "--json").json["sessions"]]
    assert "s1" in names
    shown = machine.wakeful("sessions", "parrot", "s1")
    assert re.search(r"user .*\nhello\n\nassistant .*\nyou said: hello\n", shown.out), shown
    history = machine.wakeful("sessions", "parrot", "s1", "--json", "--limit", "1").json
    assert [each["content"] for each in history["history"]] == ["you said: hello"]
    older = machine.wakeful("sessions", "parrot", "s1", "--json", "--cursor", history["cursor"]).json
    assert [each["content"] for each in older["history"]] == ["hello"]
    deleted = machine.wakeful("sessions", "parrot", "s1", "--delete")
    assert (deleted.code, deleted.out) == (0, "deleted the session s1 of parrot\n")
    missing = machine.wakeful("sessions", "parrot", "s1")
    assert (missing.code, "has no session 's1'" in missing.err) == (3, True), missing
    refused = machine.wakeful("sessions", "parrot", "--delete")
    assert (refused.code, "name the session too" in refused.err) == (2, True), refused
    assert machine.wakeful("sessions").code == 0, "the agent is `default` unless one is named"
