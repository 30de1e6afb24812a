"""The examples run as they stand."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

from tests.support.command_line import Machine, serving
from tests.support.paths import ROOT
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

EXAMPLES = ROOT / "examples"


def test_the_embedded_example_runs_and_stops(tmp_path: Path) -> None:
    lines = embedded("embedded.py", tmp_path, 3)
    assert "hello, you\n" in lines
    assert sum(line.startswith("tick of") for line in lines) == 2


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


def test_the_receiver_accepts_only_signed_requests(tmp_path: Path) -> None:
    with serving(tmp_path) as machine:
        port = free_port()
        job = machine.wakeful(
            *("add", "hook", "--schedule", "0 0 29 2 *", "--url", f"http://127.0.0.1:{port}"),
            *("--max-attempts", "1", "--payload", '{"to":"me"}', "--json"),
        ).json
        program = example("receiver.py", machine, job["secret"], port=port)
        try:
            wait_for(port)
            genuine = machine.wakeful("run", "hook", "--wait", "--json")
            assert program.stdout is not None
            received = program.stdout.readline()
            machine.wakeful("rotate-secret", "hook")  # the new one is not what it was started with
            forged = machine.wakeful("run", "hook", "--wait", "--json")
        finally:
            stop(program)
    assert genuine.json["state"] == "succeeded"
    assert received.split(" ", 1)[1] == '{"job":"hook","payload":{"to":"me"}}\n'
    assert forged.json["error"].startswith("HTTP 401")


def test_the_receiver_refuses_unsigned_and_wrongly_signed_requests(tmp_path: Path) -> None:
    port = free_port()
    program = example("receiver.py", Machine(tmp_path), "whsec_AAAA", port=port)
    try:
        wait_for(port)
        statuses = [post_status(port, headers) for headers in ({}, {"x-wakeful-signature": "é"})]
    finally:
        _, errors = stop(program)
    assert statuses == [401, 401]
    assert errors == ""


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


def post_status(port: int, headers: dict[str, str]) -> int:
    """Post to a receiver and return the status of the response."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/", body=b"{}", headers=headers)
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
