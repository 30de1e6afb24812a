"""The port of `worker`, and the settings of `serve --app` and `worker --app`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.command_line import Machine, first_json, webhook_receiver

APP = "from wakeful import Wakeful\napp = Wakeful({})\n"


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def started(home: Path, *arguments: str, **environment: str) -> Iterator[Any]:
    """Start a process and yield its first JSON output; stop it at the end."""
    with patch("tests.support.command_line._ENVIRONMENT", {**Machine(home).environment, **environment}):
        process = Machine(home).start(*arguments, "--json")
    try:
        yield first_json(process)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "environment"),
    [(("--port", "0"), {}), ((), {"WAKEFUL_WORKER_PORT": "0"}), ((), {"WAKEFUL_PORT": "0"})],
)
def test_a_worker_serves_only_health_and_metrics(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str]
):
    with started(tmp_path, "worker", "--db", str(tmp_path / "a.db"), *options, **environment) as result:
        url = result["url"]
        assert get(f"{url}/healthz") == (200, '{"status":"ok"}')
        assert get(f"{url}/readyz") == (200, '{"status":"ready"}')
        status, metrics = get(f"{url}/metrics")
        assert (status, "wakeful_lane_size" in metrics) == (200, True)
        assert "process_resident_memory_bytes" in metrics
        assert "wakeful_workers_alive 1.0" in metrics
        for path in ("/api/workspaces/default/jobs", "/docs", "/openapi.json", "/"):
            status, body = get(url + path)
            assert (status, json.loads(body)["code"]) == (404, "not-found"), path
    assert f"url={url}" in (tmp_path / "log").read_text()


def test_a_worker_picks_a_free_port_if_its_default_is_in_use(tmp_path: Path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9254))
            taken.listen()
        except OSError:
            pass  # another process uses the port, which serves as well
        with started(tmp_path, "worker", "--db", str(tmp_path / "a.db")) as result:
            assert not result["url"].endswith(":9254")
            assert get(f"{result['url']}/healthz")[0] == 200


def test_a_worker_does_not_start_if_its_given_port_is_in_use(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = Machine(tmp_path).wakeful("worker", "--port", port, "--db", str(tmp_path / "a.db"))

    assert (result.code, port in result.err) == (7, True)


def test_worker_http_can_be_disabled(tmp_path: Path):
    with started(tmp_path, "worker", "--db", str(tmp_path / "a.db"), WAKEFUL_WORKER_HTTP="no") as result:
        assert result["url"] is None


def test_port_zero_picks_a_free_port(tmp_path: Path):
    with started(tmp_path, "serve", "--db", str(tmp_path / "a.db"), WAKEFUL_PORT="0") as result:
        assert get(f"{result['url']}/readyz")[0] == 200


def test_an_app_gets_the_settings_of_options_environment_and_file(tmp_path: Path):
    (tmp_path / "mine.py").write_text(APP.format(""))
    (tmp_path / "wakeful.toml").write_text('lane_night_shift = 1\nsecret_key = "a key for tests"\n')
    options = ("--app", "mine:app", "--dev", "--db", str(tmp_path / "own.db"))
    with (
        webhook_receiver() as receiver,
        started(tmp_path, "serve", "--port", "0", *options, WAKEFUL_DEFAULT_TZ="Asia/Tokyo") as result,
    ):
        wakeful = Machine(tmp_path, result["url"]).wakeful
        made = wakeful(
            *("add", "job", "--schedule", "@yearly", "--url", receiver, "--set", 'lane="night-shift"')
        )
        assert made.code == 0, made
        assert "Asia/Tokyo" in wakeful("show", "job").out
        ran = wakeful("run", "job", "--wait", "--json")
        assert (ran.code, ran.json["state"]) == (0, "succeeded"), ran
    assert (tmp_path / "own.db").exists()


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize(
    ("arguments", "options", "environment", "names"),
    [
        ('"sqlite:///own.db"', ("--db", "other.db"), {}, ("--db", "url")),
        ('"sqlite:///own.db"', (), {"WAKEFUL_DB": "sqlite:///other.db"}, ("WAKEFUL_DB", "url")),
        ("allow_private_targets=False", ("--dev",), {}, ("--dev", "allow_private_targets")),
        (
            "config=__import__('wakeful').EngineConfig()",
            (),
            {"WAKEFUL_LANE_CRON": "5"},
            ("WAKEFUL_LANE_CRON", "config"),
        ),
        ("wait_for_db=1", ("--wait-for-db", "5"), {}, ("--wait-for-db", "wait_for_db")),
    ],
)
def test_a_setting_that_the_app_overrides_is_refused(
    tmp_path: Path,
    command: str,
    arguments: str,
    options: tuple[str, ...],
    environment: dict[str, str],
    names: tuple[str, str],
):
    (tmp_path / "mine.py").write_text(APP.format(arguments))
    result = Machine(tmp_path).process(command, "--app", "mine:app", "--port", "0", *options, **environment)

    assert result.code == 2, result
    assert all(name in result.err for name in names), result.err
    assert not list(tmp_path.glob("*.db"))


def test_a_setting_equal_to_the_apps_argument_is_accepted(tmp_path: Path):
    (tmp_path / "mine.py").write_text(APP.format('"sqlite:///own.db", commands=["true"]'))
    same = {"WAKEFUL_DB": "sqlite:///own.db", "WAKEFUL_COMMANDS": "true"}
    with started(tmp_path, "worker", "--app", "mine:app", "--port", "0", **same) as result:
        assert get(f"{result['url']}/readyz")[0] == 200
    assert (tmp_path / "own.db").exists()
