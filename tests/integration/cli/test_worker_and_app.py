"""`worker` with its port, and `serve --app` and `worker --app` with the operator's settings."""

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

from tests.support.command_line import Machine, answering, first_json

OWN = "from wakeful import Wakeful\napp = Wakeful({})\n"


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def started(home: Path, *arguments: str, **environment: str) -> Iterator[Any]:
    """What a process says first; at the end it is asked to stop, and has."""
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


# --- the port of a worker ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment"),
    [(("--port", "0"), {}), ((), {"WAKEFUL_WORKER_PORT": "0"}), ((), {"WAKEFUL_PORT": "0"})],
)
def test_a_worker_answers_health_and_metrics_and_nothing_else(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str]
):
    with started(tmp_path, "worker", "--db", str(tmp_path / "a.db"), *options, **environment) as said:
        url = said["url"]
        assert get(f"{url}/healthz") == (200, '{"status":"ok"}')
        assert get(f"{url}/readyz") == (200, '{"status":"ready"}')
        status, metrics = get(f"{url}/metrics")
        assert (status, "wakeful_lane_size" in metrics) == (200, True)
        for path in ("/api/workspaces/default/jobs", "/docs", "/openapi.json", "/"):
            status, body = get(url + path)
            assert (status, json.loads(body)["code"]) == (404, "not-found"), path
    assert f"url={url}" in (tmp_path / "log").read_text()


def test_a_worker_whose_usual_port_is_taken_takes_a_free_one(tmp_path: Path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9254))
            taken.listen()
        except OSError:
            pass  # something else has it: as good
        with started(tmp_path, "worker", "--db", str(tmp_path / "a.db")) as said:
            assert not said["url"].endswith(":9254")
            assert get(f"{said['url']}/healthz")[0] == 200


def test_a_port_that_a_worker_is_told_and_that_is_taken_stops_the_start(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = Machine(tmp_path).wakeful("worker", "--port", port, "--db", str(tmp_path / "a.db"))

    assert (said.code, port in said.err) == (7, True)


def test_a_worker_may_answer_no_http(tmp_path: Path):
    with started(tmp_path, "worker", "--db", str(tmp_path / "a.db"), WAKEFUL_WORKER_HTTP="no") as said:
        assert said["url"] is None


def test_a_server_takes_a_free_port_by_its_setting(tmp_path: Path):
    with started(tmp_path, "serve", "--db", str(tmp_path / "a.db"), WAKEFUL_PORT="0") as said:
        assert get(f"{said['url']}/readyz")[0] == 200


# --- an app of one's own -------------------------------------------------------------------------------


def test_an_app_has_the_settings_of_options_environment_and_file(tmp_path: Path):
    (tmp_path / "mine.py").write_text(OWN.format(""))
    (tmp_path / "wakeful.toml").write_text('lane_night_shift = 1\nsecret_key = "a key for tests"\n')
    options = ("--app", "mine:app", "--dev", "--db", str(tmp_path / "own.db"))
    with (
        answering() as receiver,
        started(tmp_path, "serve", "--port", "0", *options, WAKEFUL_DEFAULT_TZ="Asia/Tokyo") as said,
    ):
        wakeful = Machine(tmp_path, said["url"]).wakeful
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
            "pace=__import__('wakeful').EngineConfig()",
            (),
            {"WAKEFUL_LANE_CRON": "5"},
            ("WAKEFUL_LANE_CRON", "config"),
        ),
        ("wait_for_db=1", ("--wait-for-db", "5"), {}, ("--wait-for-db", "wait_for_db")),
    ],
)
def test_what_an_app_decides_itself_is_refused(
    tmp_path: Path,
    command: str,
    arguments: str,
    options: tuple[str, ...],
    environment: dict[str, str],
    names: tuple[str, str],
):
    (tmp_path / "mine.py").write_text(OWN.format(arguments))
    said = Machine(tmp_path).process(command, "--app", "mine:app", "--port", "0", *options, **environment)

    assert said.code == 2, said
    assert all(name in said.err for name in names), said.err
    assert not list(tmp_path.glob("*.db"))


def test_a_setting_that_says_the_same_as_the_app_is_no_mistake(tmp_path: Path):
    (tmp_path / "mine.py").write_text(OWN.format('"sqlite:///own.db", commands=["true"]'))
    same = {"WAKEFUL_DB": "sqlite:///own.db", "WAKEFUL_COMMANDS": "true"}
    with started(tmp_path, "worker", "--app", "mine:app", "--port", "0", **same) as said:
        assert get(f"{said['url']}/readyz")[0] == 200
    assert (tmp_path / "own.db").exists()
