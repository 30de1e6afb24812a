"""`wakeful serve`, `worker` and `demo`, and commands that need no server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import Machine, first_json, serving
from tests.support.waiting import PATIENCE, eventually
from wakeful.cli.serving import NEW_DATABASE
from wakeful.store.migrations import load


@contextmanager
def _started(home: Path, *options: str) -> Iterator[tuple[Machine, list[str], subprocess.Popen[str]]]:
    """Run a server with output for people; yields its machine, its greeting and its process."""
    process = Machine(home).start("serve", "--port", "0", "--db", str(home / "a.db"), *options)
    assert process.stdout is not None
    last = "finished runs:" if "--dev" in options else "Ctrl-C stops"
    lines: list[str] = []
    try:
        while not lines or last not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], (home / "log").read_text()
        (url,) = (line.split()[1] for line in lines if line.startswith("url "))
        yield Machine(home, url), lines, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.stdout.close()
        assert process.wait(PATIENCE) == 0, (home / "log").read_text()


def test_the_first_start_stores_a_key_that_the_next_one_accepts(tmp_path: Path):
    with serving(tmp_path) as machine:
        (key,) = (tmp_path / "config/wakeful/keys").iterdir()
        assert key.stat().st_mode & 0o777 == 0o600
        port = str(machine.url).rpartition(":")[2]

    process = Machine(tmp_path).start("serve", "--port", port, "--db", str(tmp_path / "a.db"), cold=True)
    assert process.stdout is not None
    try:
        greeting = "".join(process.stdout.readline() for _ in range(7))
        assert f"{key} (the CLI reads it)" in greeting
        assert Machine(tmp_path, machine.url).wakeful("list").code == 0
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.stdout.close()
        assert process.wait(PATIENCE) == 0


def test_the_first_job_on_a_new_database_is_seen_to_run_in_dev_mode(tmp_path: Path):
    with _started(tmp_path, "--dev") as (machine, lines, process):
        assert any(NEW_DATABASE in line for line in lines)
        added = machine.wakeful("add", "hello", "--schedule", "every 1s", "--message", "good morning")
        assert (added.code, added.err) == (0, "")
        assert "run it now with: wakeful run hello --wait" in added.out
        assert process.stdout is not None
        printed = process.stdout.readline()
        assert re.search(r"^\d\d:\d\d:\d\d  hello  succeeded in \d+ m?s: good morning  ", printed), printed


def test_only_a_new_database_in_dev_mode_gets_the_target_echo(tmp_path: Path):
    for options in ((), ("--dev",)):  # at the second start the database is not new
        with _started(tmp_path, *options) as (machine, lines, _):
            (file, *_) = sorted((tmp_path / "config/wakeful/keys").iterdir())
            key = file.read_text().strip()
            shown = machine.wakeful("agents", "show", "default", "--json", WAKEFUL_KEY=key)
            assert shown.json["target"] is None
            assert not any("echo" in line for line in lines)


def test_an_admin_key_of_the_settings_does_not_hide_that_the_database_is_new(tmp_path: Path):
    (tmp_path / "wakeful.toml").write_text(f'admin_key = "wk_{"a" * 43}"\n')
    with _started(tmp_path, "--dev") as (_, lines, _):
        assert any(NEW_DATABASE in line for line in lines)


def test_a_worker_starts_and_stops(tmp_path: Path):
    process = Machine(tmp_path).start("worker", "--db", str(tmp_path / "a.db"), "--json", cold=True)
    assert first_json(process)["db"].endswith("a.db")
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("arguments", [("serve", "--dev"), ("worker",)])
def test_a_full_disk_for_its_output_stops_no_server(tmp_path: Path, arguments: tuple[str, ...]):
    machine, log = Machine(tmp_path), tmp_path / "stderr"
    command = [sys.executable, "-m", "wakeful", *arguments, "--port", "0", "--db", str(tmp_path / "a.db")]
    with open("/dev/full", "w") as full, log.open("w") as errors:
        process = subprocess.Popen(command, env=machine.environment, cwd=tmp_path, stdout=full, stderr=errors)
    try:
        asyncio.run(eventually(lambda: "er.started url" in log.read_text() or process.poll() is not None))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()


def test_serve_refuses_a_port_that_is_in_use(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        result = Machine(tmp_path).wakeful("serve", "--port", port, "--db", str(tmp_path / "b.db"))

    assert result.code == 7
    assert port in result.err
    assert list(tmp_path.glob("b.db*")) == []


def test_the_demo_runs_an_agent_that_verifies_signatures(tmp_path: Path):
    (tmp_path / "wakeful.toml").write_text("nats_url = 'this is not an address'")
    result = Machine(tmp_path).process("demo", "--port", "0", "--runs", "2", "--json", WAKEFUL_TICK_MS="none")

    assert result.code == 0, "the settings of the machine are not those of the demo"
    assert result.json["verified"] == result.json["woken"] > 0
    assert result.json["refused"] == 0
    assert "succeeded" in {run["state"] for run in result.json["runs"]}
    assert list(tmp_path.glob("**/*.db")) == []


def test_the_demo_shows_a_live_table_on_a_terminal(tmp_path: Path):
    result = Machine(tmp_path).on_a_terminal("demo", "--port", "0", "--runs", "1")

    assert result.code == 0
    assert "export WAKEFUL_URL=http://127.0.0.1:" in result.out
    assert "press Ctrl-C to stop" in result.out
    assert "hello" in result.out
    assert "\x1b[32msucceeded" in result.out


def test_commands_to_copy_are_not_wrapped_on_a_narrow_terminal(tmp_path: Path):
    result = Machine(tmp_path).on_a_terminal("demo", "--port", "0", "--runs", "1", columns=40)

    assert re.search(
        r"\n  export WAKEFUL_URL=http://127\.0\.0\.1:\d+ WAKEFUL_KEY=wk_[\w-]{43}\r\n", result.out
    )
    assert '$WAKEFUL_URL/api/workspaces/default/runs?limit=3"\r\n' in result.out


def test_keys_env_prints_exports_that_a_shell_reads(tmp_path: Path):
    with serving(tmp_path) as machine:
        printed = machine.wakeful("keys", "env")
        variables = machine.wakeful("keys", "env", "--json").json
        echoed = subprocess.run(
            ["bash", "-euc", f'{printed.out}\nenv | grep "^WAKEFUL_"'],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": os.environ["PATH"]},
        )
        wrong = machine.wakeful("keys", "env", WAKEFUL_KEY="wk_'$(touch x)'")

    assert variables["WAKEFUL_URL"] == machine.url
    assert sorted(echoed.stdout.split()) == sorted(f"{name}={value}" for name, value in variables.items())
    assert (wrong.code, wrong.out) == (4, "")


def test_keys_env_says_what_to_do_without_a_server_or_a_key(tmp_path: Path):
    stopped = Machine(tmp_path, "http://127.0.0.1:1").wakeful("keys", "env")
    with serving(tmp_path) as machine:
        keyless = machine.wakeful("keys", "env", XDG_CONFIG_HOME=str(tmp_path / "empty"))

    assert (stopped.code, stopped.out) == (7, "")
    assert "start a server with `wakeful serve`" in stopped.err
    assert (keyless.code, keyless.out) == (4, "")
    assert "set WAKEFUL_KEY" in keyless.err


def test_preview_needs_no_server_and_marks_clock_changes(tmp_path: Path):
    result = Machine(tmp_path).wakeful(
        *("preview", "0 2 * * *", "--tz", "Europe/Berlin", "-n", "3", "--after", "2027-03-26T12:00Z")
    )

    assert result.code == 0
    assert result.out.splitlines()[:4] == [
        "At 02:00, every day (Europe/Berlin)",
        *(line for line in result.out.splitlines()[1:2] if line.startswith("Sat 2027-03-27 02:00:00+01:00")),
        "-- clocks go forward 1 h in Europe/Berlin --",
        *(line for line in result.out.splitlines()[3:4] if line.startswith("Sun 2027-03-28 03:00:00+02:00")),
    ]


def test_preview_prints_json(tmp_path: Path):
    result = Machine(tmp_path).wakeful("preview", "every 15m", "-n", "2", "--json")

    first, second = result.json["nextTicks"]
    assert second["atMs"] - first["atMs"] == 15 * 60_000
    assert result.json["explain"] == "Every 15 minutes"


def test_the_help_lists_the_exit_codes(tmp_path: Path):
    result = Machine(tmp_path).wakeful("--help")

    assert result.code == 0
    assert "Exit codes" in result.out
    assert "7  the server is unreachable" in result.out


def test_colours_are_off_in_a_pipe_and_with_no_color(tmp_path: Path):
    assert "\x1b" not in Machine(tmp_path).wakeful("preview", "@daily").out
    coloured = Machine(tmp_path).wakeful("preview", "@daily", FORCE_COLOR="1", TERM="xterm").out
    assert "\x1b[1m" in coloured
    plain = Machine(tmp_path).wakeful("preview", "@daily", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").out
    assert "\x1b[3" not in plain
    assert os.linesep in plain


def test_a_dry_run_of_an_import_needs_the_server(tmp_path: Path):
    result = Machine(tmp_path, "http://127.0.0.1:1").wakeful(
        "import", "crontab", "--dry-run", "--json", stdin="0 9 * * * backup\n"
    )

    assert result.code == 7
    assert "127.0.0.1:1" in result.err


def test_migrate_creates_the_tables_and_prints_the_schema(tmp_path: Path):
    said = Machine(tmp_path).process("migrate", "--db", "a.db", "--json")

    assert (said.code, said.json["schema"]) == (0, len(load("sqlite")))
    assert (tmp_path / "a.db").exists()
    missing = Machine(tmp_path).process("migrate", "--db", "nowhere/a.db")
    assert (missing.code, "nowhere/a.db" in missing.err) == (7, True)
