"""The examples run as they stand."""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.support import web_programs
from tests.support.command_line import Machine, serving
from tests.support.doc_pages import DOCS, blocks
from tests.support.paths import ROOT
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

EXAMPLES = ROOT / "examples"


def test_the_embedded_example_runs_and_stops(tmp_path: Path) -> None:
    lines = embedded("embedded.py", tmp_path, 3)
    assert "hello, you\n" in lines
    assert sum(line.startswith("tick of") for line in lines) == 2


def test_the_flask_example_runs_in_forked_workers(tmp_path: Path) -> None:
    for name in ("flask_app.py", "gunicorn_hooks.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    port = free_port()
    options = ("--config", "gunicorn_hooks.py", "--workers", "2", "--preload", "--no-control-socket")
    bound = ("--bind", f"127.0.0.1:{port}", "flask_app:web")
    with web_programs.program(tmp_path, "-m", "gunicorn", *options, *bound, port=port) as server:
        url = f"http://127.0.0.1:{port}"
        run = web_programs.request(f"{url}/orders/7", "")["run"]
        done = web_programs.wait_until(lambda: web_programs.request(f"{url}/runs/{run}")["output"])
        assert done == "order 7, from shop@example.com"
        assert server.stop() == 0


def test_the_daily_report_is_generated_once_a_day(tmp_path: Path) -> None:
    first = embedded("daily_report.py", tmp_path, 2)
    again = embedded("daily_report.py", tmp_path, 2)
    assert first[0] == "generated: report 1: everything since the beginning\n"
    assert first[1].startswith("state: {'count': 1}; next report at ")
    assert again == [first[0].replace("generated", "a duplicate"), first[1]]


def test_the_monitor_reads_more_often_while_the_load_is_high(tmp_path: Path) -> None:
    lines = embedded("monitor.py", tmp_path, 7)
    assert lines == [
        "load 20 %, next reading in 2 s\n",
        "attempt 1: no answer\n",
        "load 93 %, next reading in 1 s\n",
        "alert: load 93 %\n",
        "load 97 %, next reading in 1 s\n",
        "load 41 %, next reading in 2 s\n",
        "recovered: load 41 %\n",
    ]


#: A receiver of the documentation, and the output of its run.
RECEIVERS = {"examples/receiver.py": "", "standard.py": "hello me", "receiver.mjs": "hello me"}


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_receiver_survives_a_rotated_secret(name: str, tmp_path: Path) -> None:
    with serving(tmp_path) as machine, receiver(name, tmp_path) as start:
        port = free_port()
        job = add_webhook(machine, port)
        start(job["secret"], port)
        before = machine.wakeful("run", "hook", "--wait", "--json").json
        rotated = machine.wakeful("rotate-secret", "hook", "--json").json
        old = machine.wakeful("run", "hook", "--wait", "--json").json
        other = free_port()
        machine.wakeful("edit", "hook", "--url", f"http://127.0.0.1:{other}")
        start(rotated["secret"], other)
        new = machine.wakeful("run", "hook", "--wait", "--json").json
        machine.wakeful("delete", "hook")
        add_webhook(machine, port)  # with a secret that the receiver does not know
        forged = machine.wakeful("run", "hook", "--wait", "--json").json
    assert rotated["secret"] != job["secret"]
    for run in (before, old, new):
        assert (run["state"], run["output"] or "") == ("succeeded", RECEIVERS[name]), run["error"]
    assert forged["error"].startswith("HTTP 401")


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_receiver_refuses_what_is_not_signed_or_old(name: str, tmp_path: Path) -> None:
    secret, body, now = b"a secret of the receiver", b'{"job":"hook","payload":{"to":"me"}}', int(time.time())

    def signed(at: object, *, key: bytes = secret, content: bytes = body) -> dict[str, str]:
        digest = hmac.digest(key, f"run.{at}.".encode() + content, "sha256")
        signature = f"v1,{base64.b64encode(digest).decode()}"
        return {"webhook-id": "run", "webhook-timestamp": str(at), "webhook-signature": signature}

    good, other = signed(now), signed(now, key=b"another")
    both = {**good, "webhook-signature": f"{other['webhook-signature']} {good['webhook-signature']}"}
    refused = {
        "nothing": {},
        "an hour old": signed(now - 3600),
        "an hour ahead": signed(now + 3600),
        "another key": other,
        "another body": signed(now, content=b"{}"),
        "another id": {**good, "webhook-id": "run2"},
        "another time": {**good, "webhook-timestamp": str(now - 1)},
        "no time": {**good, "webhook-timestamp": ""},
        "garbage": {
            "webhook-id": "run",
            "webhook-timestamp": "9" * 5000,
            "webhook-signature": "é v1 v1, v1,é",
        },
        "a word as the time": signed("now"),
    }
    with receiver(name, tmp_path) as start:
        port = free_port()
        start(f"whsec_{base64.b64encode(secret).decode()}", port)
        accepted = [post_status(port, headers, body) for headers in (good, both)]
        statuses = {case: post_status(port, headers, body) for case, headers in refused.items()}
        again = post_status(port, good, body)
    assert [each // 100 for each in (*accepted, again)] == [2, 2, 2]
    assert statuses == dict.fromkeys(refused, 401)


def add_webhook(machine: Machine, port: int) -> dict[str, Any]:
    job: dict[str, Any] = machine.wakeful(
        *("add", "hook", "--schedule", "0 0 29 2 *", "--url", f"http://127.0.0.1:{port}"),
        *("--max-attempts", "1", "--payload", '{"to": "me"}', "--json"),
    ).json
    return job


@contextmanager
def receiver(name: str, directory: Path) -> Iterator[Callable[[str, int], None]]:
    """Yield a function that starts a receiver of the documentation with a secret, on a port."""
    if name.startswith("examples/"):
        text = (ROOT / name).read_text()
    else:
        (text,) = (each.text for each in blocks(DOCS / "how-to/webhook.md") if each.value == name)
    programs: list[subprocess.Popen[bytes]] = []

    def start(secret: str, port: int) -> None:
        file = directory / f"{port}-{Path(name).name}"
        file.write_text(text.replace("8080", str(port)))
        command = tool("node") if name.endswith("mjs") else sys.executable
        arguments = [] if name.startswith("examples/") else [str(port)]
        programs.append(subprocess.Popen([command, str(file), secret, *arguments]))
        wait_for(port)

    try:
        yield start
    finally:
        for program in programs:
            program.terminate()
            program.wait()


def test_the_receiver_reports_a_missing_secret(tmp_path: Path) -> None:
    program = example("receiver.py", Machine(tmp_path))
    _, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == 1
    assert errors.startswith("usage: python examples/receiver.py whsec_…")


def test_the_executor_stops_if_its_key_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as machine:
        program = example("executor.py", machine, WAKEFUL_KEY=f"wk_{43 * 'A'}")
        _, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == 1
    assert errors.startswith("executor: ")
    assert "Traceback" not in errors


def test_the_executor_claims_and_completes_a_run(tmp_path: Path) -> None:
    with serving(tmp_path) as machine:
        machine.wakeful(
            *("add", "greet", "--schedule", "0 0 29 2 *", "--message", "hello"),
            *("--target", '{"kind": "pull"}'),
        )
        program = example("executor.py", machine, **machine.wakeful("keys", "env", "--json").json)
        try:
            over = machine.wakeful("run", "greet", "--wait", "--json")
        finally:
            stop(program)
    assert over.code == 0
    assert over.json["output"].startswith("did {'message': 'hello'}")
    assert over.json["worker"] == f"{socket.gethostname()}-{program.pid}"


def test_the_worker_in_javascript_completes_runs_and_finishes_them_before_it_stops(tmp_path: Path) -> None:
    node = tool("node")
    with serving(tmp_path) as machine:
        for name, payload in (("greet", '{"to": "me"}'), ("fail", '{"permanent": true}')):
            machine.wakeful(
                *("add", name, "--schedule", "0 0 29 2 *", "--payload", payload),
                *("--target", '{"kind": "pull"}'),
            )
        environment = {**machine.environment, **machine.wakeful("keys", "env", "--json").json}
        program = subprocess.Popen(
            [node, str(EXAMPLES / "worker.mjs")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            done = machine.wakeful("run", "greet", "--wait", "--json")
            failed = machine.wakeful("run", "fail", "--wait", "--json")
        finally:
            program.terminate()
            printed, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, errors
    assert done.json["output"].startswith('did {"to":"me"} for the tick of ')
    assert done.json["worker"] == f"{socket.gethostname()}-{program.pid}"
    assert (failed.json["error"], failed.json["attempt"]) == ("Error: it never works", 1)
    assert printed.splitlines()[0].startswith("greet succeeded")


def test_the_worker_in_javascript_stops_if_its_key_is_refused(tmp_path: Path) -> None:
    node = tool("node")
    with serving(tmp_path) as machine:
        done = subprocess.run(
            [node, str(EXAMPLES / "worker.mjs")],
            env={**machine.environment, "WAKEFUL_KEY": "wk_wrong"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 1
    assert "key" in done.stderr


def test_the_file_of_jobs_is_applied_idempotently(tmp_path: Path) -> None:
    file = str(EXAMPLES / "jobs.yaml")
    with serving(tmp_path) as machine:
        first = machine.wakeful("apply", file, "--json")
        again = machine.wakeful("apply", file, "--prune", "--json")
    assert [change["change"] for change in first.json["changes"]] == ["created"] * 3
    assert [change["change"] for change in again.json["changes"]] == ["unchanged"] * 3


def embedded(name: str, directory: Path, lines: int) -> list[str]:
    """Run an example that needs no server until it has printed so many lines, then interrupt it."""
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name)],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("WAKEFUL_")},
        preexec_fn=accept_interrupts,
    )
    assert program.stdout is not None
    printed = [program.stdout.readline() for _ in range(lines)]
    stop(program)
    # An interrupt before `serve_forever` ends the program as Python does by default.
    assert program.returncode in (0, -signal.SIGINT)
    return printed


def example(name: str, machine: Machine, *arguments: str, port: int = 8080, **environment: str):
    """An example that stays, on a port of its own where it listens."""
    program = machine.home / name
    program.write_text((EXAMPLES / name).read_text().replace("8080", str(port)))
    return subprocess.Popen(
        [sys.executable, str(program), *arguments],
        env={**machine.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=accept_interrupts,
    )


def post_status(port: int, headers: dict[str, str], body: bytes) -> int:
    """Post to a receiver and return the status of the response."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/", body=body, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def accept_interrupts() -> None:
    """Undo what a shell does to a job in the background: its programs would ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def stop(program: subprocess.Popen[str]) -> tuple[str, str]:
    program.send_signal(signal.SIGINT)
    return program.communicate(timeout=PATIENCE)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


def wait_for(port: int, patience: float = 30.0) -> None:
    """Wait until a server listens on the port."""
    until = time.monotonic() + patience
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            assert time.monotonic() < until, f"no server listens on {port}"
            time.sleep(0.05)
        else:
            return
